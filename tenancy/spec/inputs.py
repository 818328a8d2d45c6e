"""An environment and its tenants, given as models, as mappings in Python's names, or as paths of files."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenancy.catalog.days import today
from tenancy.spec.checks.validator import ValidSpec, valid_spec
from tenancy.spec.fields.base import Spec
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER, load, read
from tenancy.spec.reading.problems import Problem, SpecError

if TYPE_CHECKING:
    from tenancy.spec.typed import EnvironmentDict, TenantDict

EnvironmentInput: TypeAlias = "Environment | EnvironmentDict | str | os.PathLike[str]"
"""A model, a mapping, or the path of `environment.yaml` or of its folder."""
TenantInput: TypeAlias = "Tenant | TenantDict | str | os.PathLike[str]"
"""A model, a mapping, or the path of a tenant's file."""
TenantsInput: TypeAlias = "Sequence[TenantInput] | str | os.PathLike[str]"
"""Tenants, or the path of a folder with a file for each."""

_Model = TypeVar("_Model", bound=Spec)


def validate(
    environment: EnvironmentInput, tenants: TenantsInput | None = None, *, day: dt.date | None = None
) -> list[Problem]:
    """Every problem of an environment and its tenants, each alone and all together, sorted; empty if they are valid.

    Args:
        environment: A model, a mapping in Python's names, or the path of `environment.yaml` or of its folder.
        tenants: All tenants of the environment: models, mappings, paths of files, or the path of a folder of files.
            Default: the files in `tenants/` beside the environment's file; none if it is not given as a path.
        day: The day on which they have to be valid. Default: today in UTC.

    A problem has the path of its field (`path`), what was given (`given`), the broken rule (`rule`, and its `id` in
    docs/rules.md) and a correction (`change`); for a file its name, line and column too.
    """
    try:
        load_spec(environment, tenants, day or today())
    except SpecError as error:
        return list(error.problems)
    return []


def load_spec(environment: EnvironmentInput, tenants: TenantsInput | None, day: dt.date) -> ValidSpec:
    """The valid spec of an environment; arguments as in `validate`. Raises SpecError with every problem."""
    if tenants is None and isinstance(environment, str | os.PathLike) and Path(environment).is_dir():
        return load(Path(environment).resolve(), day=day)
    problems: list[Problem] = []
    models = list(_models(Environment, [environment], problems))
    tenants_input = tenant_files_of(environment) if tenants is None else tenants
    tenant_models = _models(Tenant, tenant_inputs(tenants_input), problems)
    if problems:
        raise SpecError(problems)
    return valid_spec(models[0], tenant_models, day)


def load_models(kind: type[_Model], inputs: Iterable[Any]) -> list[_Model]:
    """The models of specs. Raises SpecError with every problem of all of them."""
    problems: list[Problem] = []
    models = _models(kind, inputs, problems)
    if problems:
        raise SpecError(problems)
    return models


def _models(kind: type[_Model], inputs: Iterable[Any], problems: list[Problem]) -> list[_Model]:
    models: list[_Model] = []
    for spec_input in inputs:
        try:
            models.append(load_model(kind, spec_input))
        except SpecError as error:
            problems += error.problems
    return models


def load_model(kind: type[_Model], spec_input: Any) -> _Model:
    """The model of one spec, given as one, as a mapping or as a path. Raises SpecError with every problem of it."""
    if isinstance(spec_input, kind):
        return spec_input
    if isinstance(spec_input, Mapping):
        return kind(**{str(name): value for name, value in spec_input.items()})
    if isinstance(spec_input, str | os.PathLike):
        path = Path(spec_input)
        return read(path / ENVIRONMENT_FILE if kind is Environment and path.is_dir() else path, kind)
    name = kind.__name__
    rule, change = f"an {name}, a mapping of its fields or a path", "give one of them"
    raise SpecError([Problem(name.lower(), 0, 0, "", type(spec_input).__name__, rule, change)])


def tenant_inputs(tenants_input: TenantsInput) -> Sequence[TenantInput]:
    """Tenants, one by one."""
    return _files(tenants_input) if isinstance(tenants_input, str | os.PathLike) else tenants_input


def tenant_files_of(environment: EnvironmentInput) -> Sequence[Path]:
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
