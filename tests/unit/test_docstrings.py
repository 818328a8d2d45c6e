"""Every public class, function and method of the package says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "tenancy"
PACKAGES = sorted(path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Name(NamedTuple):
    where: str
    name: str
    documented: bool
    bases: tuple[str, ...] = ()
    """Of a method: the bases of its class."""


def names(source: str, where: str) -> Iterator[Name]:
    """Names of a module, the private ones too: a public method may override one of a private class."""
    yield from _below(ast.parse(source), where, "", ())


def _below(node: ast.Module | ast.ClassDef, where: str, path: str, bases: tuple[str, ...]) -> Iterator[Name]:
    for found in node.body:
        if isinstance(found, Definition):
            name = path + found.name
            yield Name(f"{where}:{found.lineno}", name, ast.get_docstring(found) is not None, bases)
            if isinstance(found, ast.ClassDef):
                above = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in found.bases)
                yield from _below(found, where, f"{name}.", above)


def undocumented(found: list[Name]) -> list[Name]:
    """Names without a docstring of their own, and without one of the method that they override."""
    documented = {name.name for name in found if name.documented}
    above = {name.name.rpartition(".")[0]: name.bases for name in found if "." in name.name}

    def inherits(method: str, bases: tuple[str, ...]) -> bool:
        return any(f"{base}.{method}" in documented or inherits(method, above.get(base, ())) for base in bases)

    def public(name: str) -> bool:
        return not any(part.startswith("_") for part in name.split("."))

    bare = [one for one in found if public(one.name) and not one.documented]
    return [one for one in bare if not inherits(one.name.rpartition(".")[2], one.bases)]


NAMES = [
    name
    for path in sorted(ROOT.rglob("*.py"))
    for name in names(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
]


def test_there_are_names_to_look_at() -> None:
    assert len(NAMES) > 1_500
    assert {"schema", "planning", "components"} <= {*PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_a_docstring(package: str) -> None:
    missing = [
        f"{one.where} {one.name}"
        for one in undocumented(NAMES)
        if one.where.partition("/")[0].partition(":")[0].removesuffix(".py") == package
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
    found = undocumented(list(names(source, "module.py")))
    assert [one.name for one in found] == ["Made.bare", "Other.bare", "alone"]
