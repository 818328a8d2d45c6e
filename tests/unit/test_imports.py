"""The way of the data has one direction: spec, plan, components; catalog and rules below; live, lab, cli above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tenancy"

MAY_IMPORT = {
    "catalog": set(),
    "rules": {"catalog"},
    "spec": {"catalog", "rules"},
    "plan": {"catalog", "rules", "spec"},
    "iam": {"catalog", "rules", "spec", "plan"},
    "components": {"catalog", "rules", "spec", "plan"},
    "live": {"catalog", "rules", "spec", "plan"},
    "chargeback": {"catalog", "rules", "spec", "plan"},
    "check": {"catalog", "rules"},
    "diff": {"catalog", "rules", "spec", "plan", "iam", "components", "chargeback"},
    "report": {"catalog", "rules", "spec", "plan", "iam", "live", "chargeback", "simulation"},
    "gitops": {"catalog", "spec", "plan", "components"},
}
"""Parts of the package, and what of it each may import."""


class Import(NamedTuple):
    file: str
    module: str
    at_top: bool
    for_types: bool


def _imports(folder: Path) -> Iterator[Import]:
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        typing_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            for name in names:
                yield Import(str(path.relative_to(ROOT)), name, node in tree.body, id(node) in typing_only)


def _ours(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "tenancy" and len(parts) > 1 else None


def _top(name: str) -> str:
    return name.split(".")[0]


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    wrong = [
        (found.file, found.module)
        for found in _imports(PACKAGE / part)
        if (ours := _ours(found.module)) and ours != part and ours not in MAY_IMPORT[part] and not found.for_types
    ]
    assert wrong == []


def test_only_components_and_what_runs_the_engine_import_pulumi() -> None:
    engines = ("tenancy/components/", "tenancy/engine/", "tenancy/lab/language_host.py")
    wrong = {
        found.file
        for found in _imports(PACKAGE)
        if _top(found.module).startswith("pulumi") and not found.file.startswith(engines)
    }
    assert wrong == set()


def test_the_evaluator_of_iam_knows_nothing_of_ours() -> None:
    """It judges documents of anybody."""
    judges = {"conditions.py", "evaluator.py"}
    ours = {f.module for f in _imports(PACKAGE / "iam") if Path(f.file).name in judges and _ours(f.module)}
    assert {module.split(".")[1] for module in ours} == {"iam"}
    assert {module.split(".")[2] for module in ours} == {"conditions"}


@pytest.mark.parametrize("part", ["catalog", "rules", "spec", "plan", "iam"])
def test_the_pure_half_imports_no_client_and_no_screen(part: str) -> None:
    clients = {"kubernetes", "pulumi", "boto3", "requests", "socket", "subprocess", "urllib", "rich", "click"}
    assert {f.module for f in _imports(PACKAGE / part) if _top(f.module) in clients} == set()


def test_the_lab_knows_nothing_of_tenants_when_it_is_imported() -> None:
    wrong = [(f.file, f.module) for f in _imports(PACKAGE / "lab") if f.at_top and _ours(f.module) in {"spec", "plan"}]
    assert wrong == []


def test_commands_import_what_they_need_when_they_run() -> None:
    heavy = {"kubernetes", "rich", "pulumi"}
    files = [
        PACKAGE / "cli" / name
        for name in ("__init__.py", "common.py", "validate.py", "render.py", "sample.py", "schema.py")
    ]
    wrong = [f for f in _imports(PACKAGE / "cli") if f.at_top and _top(f.module) in heavy and ROOT / f.file in files]
    assert wrong == []


def test_the_policy_pack_repeats_no_rule_of_the_files() -> None:
    assert {_ours(f.module) for f in _imports(ROOT / "policy")} <= {None, "rules", "catalog", "check"}


def test_a_module_of_the_plan_but_one_touches_no_disk() -> None:
    writers = {f.file for f in _imports(PACKAGE / "plan") if _top(f.module) in {"pathlib", "os", "shutil", "tempfile"}}
    assert writers <= {"tenancy/plan/render.py"}
