"""The way of the data has one direction: spec, plan, components; catalog, kube, rules below; everything else above.

Each folder imports only what is below it, and no two modules import each other, whatever the detour.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "tenancy"

FACTS = {"catalog", "kube", "rules"}
SPEC = {*FACTS, "spec"}

MAY_IMPORT = {
    "catalog": set(),
    "kube": set(),
    "rules": {"catalog", "kube"},
    "spec": FACTS,
    "planning": SPEC,
    "iam": {*SPEC, "planning"},
    "cluster": {*SPEC, "planning", "http_client"},
    "components": {*SPEC, "planning", "cluster"},
    "check": {*SPEC, "planning"},
    "policy_pack": {*FACTS, "check"},
    "lifecycle": {*SPEC, "planning", "cluster"},
    "diff": {*SPEC, "planning", "iam", "components"},
    "deploy": {*SPEC, "planning", "iam", "cluster", "lifecycle", "components"},
    "repository": {*SPEC, "planning"},
    "program": {*SPEC, "planning", "cluster", "lifecycle", "components", "deploy"},
    "http_client": set(),
    "output": {"catalog"},
    "explain": {*SPEC, "planning", "cluster"},
    "verify": {*SPEC, "planning", "cluster", "check", "output"},
    "chargeback": {*SPEC, "planning", "cluster", "output"},
    "clock": {*SPEC, "planning", "cluster", "output"},
    "report": {*SPEC, "planning", "iam", "verify", "output"},
    "lab": {*SPEC, "planning", "http_client"},
    "simulation": {*SPEC, "planning", "clock", "lab", "output", "http_client"},
}
"""Parts of the package, and what of it each may import. `cli` is above them all."""

EXTENSIONS = ("explain", "verify", "chargeback", "clock", "report", "lab", "simulation")
"""Parts that only commands load: the core works without them."""

INSIDE = {
    "spec": {
        "reading": set(),
        "fields": {"reading"},
        "checks": {"reading", "fields"},
    },
    "planning": {
        "common": set(),
        "aws": {"common"},
        "guards": {"common"},
        "queueing": {"common"},
        "kubernetes": {"common", "aws", "guards", "queueing"},
        "observability": {"common", "aws", "guards", "queueing", "kubernetes"},
    },
    "components": {
        "kubernetes": set(),
        "aws": {"kubernetes"},
    },
    "check": {"admission": set()},
    "deploy": {"gitops": set()},
    "verify": {"attacks": set(), "evidence": set()},
}
"""Folders of a part, and which of their sisters each may import. What lies beside them at the top of the part is above
them all."""


class Import(NamedTuple):
    file: str
    module: str
    at_top: bool
    for_types: bool


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def _found_in(path: Path) -> tuple[Import, ...]:
    tree = _tree(path)
    top = set(map(id, tree.body))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    module_imports = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent_names = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            base = ".".join([*parent_names, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        module_imports += [
            Import(str(path.relative_to(ROOT)), n, id(node) in top, id(node) in typing_only) for n in names
        ]
    return tuple(module_imports)


def _imports(folder: Path) -> Iterator[Import]:
    for path in [folder.with_suffix(".py")] if folder.with_suffix(".py").exists() else sorted(folder.rglob("*.py")):
        yield from _found_in(path)


MODULES_FOR_GUARDS = {
    "tenancy.cluster.api",
    "tenancy.cluster.guards",
    "tenancy.cluster.preflight",
    "tenancy.cluster.preflight.check_platform",
}
"""Modules of `live` that components may use: a tenant asks its cluster for the guards before it is made, and guards
ask whether it is ready for them."""


def _own_part(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "tenancy" and len(parts) > 1 else None


def _top(name: str) -> str:
    return name.split(".")[0]


def test_every_part_has_its_place() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__", "cli"} == set(MAY_IMPORT)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    """Neither when it is imported, nor when a function runs, nor for types."""
    wrong = [
        (statement.file, statement.module)
        for statement in _imports(PACKAGE / part)
        if (own_part := _own_part(statement.module)) and own_part != part and own_part not in MAY_IMPORT[part]
    ]
    assert wrong == []


def test_the_core_imports_no_part_that_only_commands_load() -> None:
    core = MAY_IMPORT.keys() - set(EXTENSIONS)
    assert {part: MAY_IMPORT[part] & {*EXTENSIONS} for part in core} == {part: set() for part in core}


def test_what_parts_may_import_has_one_direction() -> None:
    assert _circles(MAY_IMPORT) == []
    assert [part for part, folders in INSIDE.items() if _circles(folders)] == []


@pytest.mark.parametrize(("part", "folder"), [(part, folder) for part in INSIDE for folder in INSIDE[part]])
def test_a_folder_of_a_part_imports_only_what_is_below_it(part: str, folder: str) -> None:
    allowed = INSIDE[part][folder] | {folder}
    wrong = [
        (statement.file, statement.module)
        for statement in _imports(PACKAGE / part / folder)
        if statement.module.startswith(f"tenancy.{part}.") and statement.module.split(".")[2] not in allowed
    ]
    assert wrong == []


def test_every_folder_of_a_part_has_its_place() -> None:
    folders_by_part = {part: {p.parent.name for p in (PACKAGE / part).glob("*/__init__.py")} for part in MAY_IMPORT}
    assert {part: folders for part, folders in folders_by_part.items() if folders} == {
        part: set(folders) for part, folders in INSIDE.items()
    }


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _graph(*, lazy: bool) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports; a name that is imported from a package is the package's own, unless it
    is a module."""
    modules = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = {f.module for f in _found_in(path) if lazy or f.at_top or f.for_types} & set(modules)
        # `from a.b import c` names a.b too: if c is a module, a.b is only on the way there.
        passed = {name for name in names if any(longer_name.startswith(f"{name}.") for longer_name in names)}
        graph[module] = {*(names - passed), *(passed & _modules_imported_from(path))} - {module}
    return graph


def _modules_imported_from(path: Path) -> set[str]:
    """Modules from which something else than a module is imported."""
    return {
        node.module
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and any(not _is_module(node.module, a.name) for a in node.names)
    }


def _is_module(package: str, name: str) -> bool:
    base = ROOT / package.replace(".", "/") / name
    return base.with_suffix(".py").exists() or (base / "__init__.py").exists()


def _circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for imported in sorted(graph.get(name, ())):
            if imported not in order:
                visit(imported)
                low[name] = min(low[name], low[imported])
            elif imported in stack:
                low[name] = min(low[name], order[imported])
        if low[name] == order[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                circles.append(sorted(members))

    for name in graph:
        if name not in order:
            visit(name)
    return circles


@pytest.mark.parametrize("lazy", [False, True], ids=["when imported and for types", "in functions too"])
def test_no_modules_import_each_other(lazy: bool) -> None:
    """An import within a function puts cost off; it does not excuse a circle, and there is none to excuse."""
    assert _circles(_graph(lazy=lazy)) == []


def test_a_circle_would_be_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    graph = _graph(lazy=True)
    assert len(graph) > 300
    assert sum(map(len, graph.values())) > 1000
    circular_graph = {**graph, "tenancy.kube.objects": {"tenancy.planning.plan_model"}}
    assert {"tenancy.kube.objects", "tenancy.planning.plan_model"} <= set(_circles(circular_graph)[0])


def test_components_ask_a_cluster_for_its_guards_and_nothing_else() -> None:
    used = {f.module for f in _imports(PACKAGE / "components") if _own_part(f.module) == "cluster"}
    modules = {
        module
        for module in used
        if any(module == prefix or module.startswith(f"{prefix}.") for prefix in MODULES_FOR_GUARDS)
    }
    assert used - modules == set()


def test_only_components_and_what_runs_the_engine_import_pulumi() -> None:
    engines = ("tenancy/components/", "tenancy/deploy/", "tenancy/lab/language_host.py", "tenancy/policy_pack/")
    wrong = {
        statement.file
        for statement in _imports(PACKAGE)
        if _top(statement.module).startswith("pulumi")
        and not statement.file.startswith((*engines, "tenancy/program.py"))
    }
    assert wrong == set()


def test_the_evaluator_of_iam_knows_nothing_of_ours() -> None:
    """It judges any policy document."""
    judges = {"conditions.py", "evaluator.py", "requests.py"}
    own_modules = {f.module for f in _imports(PACKAGE / "iam") if Path(f.file).name in judges and _own_part(f.module)}
    assert {module.split(".")[1] for module in own_modules} == {"iam"}
    assert {module.split(".")[2] for module in own_modules} == {"conditions", "requests"}


@pytest.mark.parametrize("part", ["catalog", "kube", "rules", "spec", "planning", "iam"])
def test_the_pure_half_imports_no_client_and_no_screen(part: str) -> None:
    clients = {"kubernetes", "pulumi", "boto3", "requests", "socket", "subprocess", "urllib", "rich", "click"}
    # urllib.parse only reads and writes text.
    texts = {"urllib.parse", "urllib.parse.quote", "urllib.parse.urlencode"}
    assert {f.module for f in _imports(PACKAGE / part) if _top(f.module) in clients} <= texts


def test_the_lab_knows_nothing_of_tenants_when_it_is_imported() -> None:
    spec = {"spec", "planning"}
    wrong = [(f.file, f.module) for f in _imports(PACKAGE / "lab") if f.at_top and _own_part(f.module) in spec]
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
    assert {_own_part(f.module) for f in _imports(PACKAGE / "policy_pack")} <= {
        *(None, "rules", "kube", "catalog", "check", "policy_pack")
    }


def test_a_module_of_the_plan_but_one_touches_no_disk() -> None:
    writers = {
        f.file for f in _imports(PACKAGE / "planning") if _top(f.module) in {"pathlib", "os", "shutil", "tempfile"}
    }
    assert writers <= {"tenancy/planning/render.py"}


def test_no_two_modules_of_a_part_have_one_name() -> None:
    modules = [(path.relative_to(PACKAGE).parts[0], path.stem) for path in PACKAGE.rglob("*.py")]
    names = [module for module in modules if module[1] != "__init__"]
    assert len(names) > 300
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports them by their name alone, and collects nothing at all where two of them have one."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert names
    assert sorted({name for name in names if names.count(name) > 1}) == []


CORE = ("tenancy", "tenancy.spec.inputs", "tenancy.planning", "tenancy.components.program", "tenancy.program")
EXTRAS = {"boto3", "botocore", "cryptography", "polars"}
"""Packages that only an extra of the distribution needs."""


@pytest.mark.parametrize(
    "modules", [CORE, tuple(f"tenancy.cli.{path.stem}" for path in (PACKAGE / "cli").glob("*.py"))]
)
def test_what_an_extra_needs_is_imported_by_nothing_else(modules: tuple[str, ...]) -> None:
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    completed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = set(completed.stdout.split())
    assert "tenancy.spec.fields.environment" in loaded
    assert loaded & EXTRAS == set()


def test_each_extra_is_of_the_parts_that_import_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {extra: set(map(_package, needed)) for extra, needed in project["optional-dependencies"].items()}
    always = set(map(_package, project["dependencies"]))
    # A pin in an extra narrows what is installed always.
    assert (extras["lab"] - always, extras["cost"]) == ({"cryptography"}, {"polars"})
    assert EXTRAS.isdisjoint(always)
    used = {(_top(f.module), Path(f.file).parts[1]) for f in _imports(PACKAGE) if _top(f.module) in EXTRAS}
    assert used == {
        ("cryptography", "lab"),
        ("cryptography", "verify"),
        ("polars", "chargeback"),
        ("polars", "cli"),
    }


def _package(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0]
