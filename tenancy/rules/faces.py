"""The faces of each rule. They follow from what enforces it: expressions, checks, settings on AWS and attacks.

A check names the rules that it finds broken by their ids, so the ids in the code of all checks are the rules that have
one.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from inspect import isfunction
from types import CodeType
from typing import Any

from tenancy.rules.catalogue import RULES
from tenancy.rules.model import FACES, Face, Rule

_RULES, _SPEC = "tenancy.rules", "tenancy.spec"
_FINDINGS = frozenset({"Given", "Finding", "Iterator[Finding]"})
"""Return types of checks on objects, as they are written."""


def faces_of(rule: Rule) -> Face:
    """Faces that enforce the rule."""
    return Face(sum(face.value for face, enforces in _ENFORCES.items() if enforces(rule)))


def names_of(faces: Face) -> list[str]:
    """Names of faces, as tables show them."""
    return [name for face, name in FACES.items() if face in faces]


def with_face(face: Face) -> tuple[str, ...]:
    """Ids of the rules that have a face."""
    return tuple(rule.id for rule in RULES.values() if _ENFORCES[face](rule))


@cache
def checked_in_files() -> frozenset[str]:
    """Rules that reading the spec files enforces."""
    # The spec is built on the rules, so that its code is read here and not imported.
    return frozenset(rule for name in _module_names(_SPEC) for rule in _ids(_code(name)))


@cache
def checked_on_objects() -> frozenset[str]:
    """Rules that checks on objects enforce, beside expressions: on one object, or on all of them together."""
    checks = (
        function
        for module in map(import_module, _module_names(_RULES))
        for function in vars(module).values()
        if isfunction(function)
        and function.__module__ == module.__name__
        and function.__annotations__.get("return") in _FINDINGS
    )
    return frozenset(rule for check in checks for rule in _ids(check.__code__))


def _module_names(package: str) -> Iterator[str]:
    spec = find_spec(package)
    for module in pkgutil.iter_modules(spec.submodule_search_locations if spec else None, f"{package}."):
        yield from _module_names(module.name) if module.ispkg else [module.name]


def _code(name: str) -> CodeType | None:
    spec = find_spec(name)
    return spec.loader.get_code(name) if spec and isinstance(spec.loader, InspectLoader) else None


def _ids(value: Any) -> Iterator[str]:
    """Ids of rules among the constants of a piece of code, and of all code in it."""
    if isinstance(value, CodeType):
        value = value.co_consts
    if isinstance(value, str):
        yield from [value] if value in RULES else []
    elif isinstance(value, tuple | frozenset):
        for constant in value:
            yield from _ids(constant)


_ENFORCES: Mapping[Face, Callable[[Rule], bool]] = {
    Face.SPEC: lambda rule: rule.id in checked_in_files(),
    Face.PREVIEW: lambda rule: rule.previewed or rule.id in checked_on_objects(),
    Face.API_SERVER: lambda rule: bool(rule.guards),
    Face.AWS: lambda rule: bool(rule.aws_settings),
    Face.ATTACK: lambda rule: bool(rule.attacks),
}
