"""Modules that one reads in one sitting, and tests that stand alone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 500
"""Lines of a module."""
TABLES = {"tenancy/rules/catalogue.py"}
"""Modules that are one table: more rows are no more to understand."""
LONGER = {"tenancy/live/fits.py", "tenancy/simulation/runner.py", "tenancy/simulation/trace.py"}
"""Modules that are still to be split. Take a module off once it is; add none."""
MODULES = [
    path.relative_to(ROOT)
    for place in ("tenancy", "policy", "scripts", "bench")
    for path in sorted((ROOT / place).rglob("*.py"))
]


def test_no_module_is_longer_than_one_reads() -> None:
    assert len(MODULES) > 300
    long = {
        str(path): lines for path in MODULES if (lines := len((ROOT / path).read_text("utf-8").splitlines())) > LIMIT
    }
    assert {path: lines for path, lines in long.items() if path not in TABLES | LONGER} == {}, "split it by cohesion"


def test_a_table_is_one_that_is_long() -> None:
    for path in TABLES:
        assert len((ROOT / path).read_text("utf-8").splitlines()) > LIMIT, path
