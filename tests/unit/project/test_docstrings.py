"""Every public class, function and method of the package says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3] / "tenancy"
PACKAGES = sorted(path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Name(NamedTuple):
    where: str
    name: str
    documented: bool
    bases: tuple[str, ...] = ()
    """Bases of the class, for a method."""


def names(source: str, where: str) -> Iterator[Name]:
    """Names of a module, the private ones too: a public method may override one of a private class."""
    yield from _names_inside(ast.parse(source), where, "", ())


def _names_inside(node: ast.Module | ast.ClassDef, where: str, path: str, bases: tuple[str, ...]) -> Iterator[Name]:
    for definition in node.body:
        if isinstance(definition, Definition):
            name = path + definition.name
            yield Name(f"{where}:{definition.lineno}", name, ast.get_docstring(definition) is not None, bases)
            if isinstance(definition, ast.ClassDef):
                base_names = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in definition.bases)
                yield from _names_inside(definition, where, f"{name}.", base_names)


def undocumented(all_names: list[Name]) -> list[Name]:
    """Names without a docstring of their own, and without one of the method that they override."""
    documented = {name.name for name in all_names if name.documented}
    bases_by_class = {name.name.rpartition(".")[0]: name.bases for name in all_names if "." in name.name}

    def inherits(method: str, bases: tuple[str, ...]) -> bool:
        return any(f"{base}.{method}" in documented or inherits(method, bases_by_class.get(base, ())) for base in bases)

    def public(name: str) -> bool:
        return not any(part.startswith("_") for part in name.split("."))

    bare = [name for name in all_names if public(name.name) and not name.documented]
    return [name for name in bare if not inherits(name.name.rpartition(".")[2], name.bases)]


@cache
def all_names() -> list[Name]:
    return [
        name
        for path in sorted(ROOT.rglob("*.py"))
        for name in names(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    ]


def test_there_are_names_to_look_at() -> None:
    assert len(all_names()) > 1_500
    assert {"spec", "planning", "components"} <= {*PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_a_docstring(package: str) -> None:
    missing = [
        f"{name.where} {name.name}"
        for name in undocumented(all_names())
        if name.where.partition("/")[0].partition(":")[0].removesuffix(".py") == package
    ]
    assert not missing, "write one:\n" + "\n".join(missing)


def test_a_name_without_a_docstring_is_found() -> None:
    source = '''
class Made:
    """A thing."""
    def told(self):
        """What it is."""
    def bare(self): ...
    def _own(self): ...

class Other(Made):
    """Another."""
    def told(self): ...
    def bare(self): ...

def alone(): ...
'''
    undocumented_names = undocumented(list(names(source, "module.py")))
    assert [name.name for name in undocumented_names] == ["Made.bare", "Other.bare", "alone"]
