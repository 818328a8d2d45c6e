"""Modules that one reads in one sitting, and tests that stand alone."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMIT = 550
"""Lines of a module."""
TABLES = {"tenancy/spec/typed.py"}
"""Modules that are one table: more rows are no more to understand."""
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
    assert {path: lines for path, lines in long.items() if path not in TABLES} == {}, "split it by cohesion"


def test_a_table_is_one_that_is_long() -> None:
    for path in TABLES:
        assert len((ROOT / path).read_text("utf-8").splitlines()) > LIMIT, path


def _imported(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def test_no_test_module_is_imported() -> None:
    """Code that several of them need is a module of its own: a test that is removed or run alone takes nothing with
    it."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 200
    wrong = {
        str(path.relative_to(ROOT)): names
        for path in files
        if (names := {name for name in _imported(path) if any(part.startswith("test_") for part in name.split("."))})
    }
    assert wrong == {}


def test_an_import_of_a_test_module_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from test_y import Z\n    import tests.unit.test_z\n", "utf-8")
    assert {"test_y", "tests.unit.test_z"} <= _imported(path)
