"""An environment and its tenants, given as models, as mappings in Python's names, or as paths of files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenancy.schema.base import Spec
from tenancy.schema.environment import Environment
from tenancy.schema.problems import Problem, SpecError
from tenancy.schema.tenant import Tenant
from tenancy.validation.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER, load, read
from tenancy.validation.validator import require_valid
from tenancy.validation.validator import validate as problems_together

if TYPE_CHECKING:
    from tenancy.schema.typed import EnvironmentDict, TenantDict

EnvironmentInput: TypeAlias = "Environment | EnvironmentDict | str | os.PathLike[str]"
"""A model, a mapping, or the path of `environment.yaml` or of its folder."""
TenantInput: TypeAlias = "Tenant | TenantDict | str | os.PathLike[str]"
"""A model, a mapping, or the path of a tenant's file."""
TenantsInput: TypeAlias = "Sequence[TenantInput] | str | os.PathLike[str]"
"""Tenants, or the path of a folder with a file for each."""

_Model = TypeVar("_Model", bound=Spec)


def validate(environment: EnvironmentInput, tenants: TenantsInput | None = None) -> list[Problem]:
    """Every problem of an environment and its tenants, each alone and all together, sorted; empty if they are valid.

    Args:
        environment: A model, a mapping in Python's names, or the path of `environment.yaml` or of its folder.
        tenants: All tenants of the environment: models, mappings, paths of files, or the path of a folder of files.
            Default: the files in `tenants/` beside the environment's file; none if it is not given as a path.

    A problem has the path of its field (`path`), what was given (`given`), the broken rule (`rule`, and its `id` in
    docs/rules.md) and a correction (`change`); for a file its name, line and column too.
    """
    try:
        return problems_together(*_made(environment, tenants))
    except SpecError as error:
        return list(error.problems)


def specs(environment: EnvironmentInput, tenants: TenantsInput | None = None) -> tuple[Environment, list[Tenant]]:
    """The models of valid specs; arguments as in `validate`. Raises SpecError with every problem."""
    made = _made(environment, tenants)
    require_valid(*made)
    return made


def _made(environment: EnvironmentInput, tenants: TenantsInput | None) -> tuple[Environment, list[Tenant]]:
    if tenants is None and isinstance(environment, str | os.PathLike) and Path(environment).is_dir():
        loaded = load(Path(environment).resolve())
        return loaded.environment, list(loaded.tenants)
    problems: list[Problem] = []
    made = list(_models(Environment, [environment], problems))
    given = files_beside(environment) if tenants is None else tenants
    each = _models(Tenant, tenants_of(given), problems)
    if problems:
        raise SpecError(problems)
    return made[0], each


def models(kind: type[_Model], given: Iterable[Any]) -> list[_Model]:
    """The models of specs. Raises SpecError with every problem of all of them."""
    problems: list[Problem] = []
    made = _models(kind, given, problems)
    if problems:
        raise SpecError(problems)
    return made


def _models(kind: type[_Model], given: Iterable[Any], problems: list[Problem]) -> list[_Model]:
    made: list[_Model] = []
    for one in given:
        try:
            made.append(model(kind, one))
        except SpecError as error:
            problems += error.problems
    return made


def model(kind: type[_Model], given: Any) -> _Model:
    """The model of one spec, given as one, as a mapping or as a path. Raises SpecError with every problem of it."""
    if isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        return kind(**{str(name): value for name, value in given.items()})
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        return read(path / ENVIRONMENT_FILE if kind is Environment and path.is_dir() else path, kind)
    name = kind.__name__
    rule, change = f"an {name}, a mapping of its fields or a path", "give one of them"
    raise SpecError([Problem(name.lower(), 0, 0, "", type(given).__name__, rule, change)])


def tenants_of(given: TenantsInput) -> Sequence[TenantInput]:
    """Tenants, one by one."""
    return _files(given) if isinstance(given, str | os.PathLike) else given


def files_beside(environment: EnvironmentInput) -> Sequence[Path]:
    """Tenants' files in `tenants/` beside an environment's file; none if it is not given as a path."""
    if not isinstance(environment, str | os.PathLike):
        return ()
    path = Path(environment)
    folder = (path if path.is_dir() else path.parent) / TENANTS_FOLDER
    return _files(folder) if folder.is_dir() else ()


def _files(folder: str | os.PathLike[str]) -> Sequence[Path]:
    path = Path(folder)
    if not path.is_dir():
        rule, change = "tenants are a folder of files, or a list", "name an existing folder"
        raise SpecError([Problem(str(path), 1, 1, "", repr(str(path)), rule, change)])
    return sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
