"""The rules across an environment and its tenants, for specs from any source.

Models check their fields and the rules within one spec when they are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tenancy.catalog.text import escape_invisible
from tenancy.spec.checks.crossfile import check_all
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.problems import Problem, SpecError, dotted_path

_valid_specs: deque[tuple[Environment, tuple[Tenant, ...]]] = deque(maxlen=4)
"""Valid specs, so that specs that the loader has checked are not checked again; compared by identity. Only a few are
kept, because they keep their models alive."""


def validate(environment: Environment, tenants: Sequence[Tenant]) -> list[Problem]:
    """All mistakes of an environment and its tenants together, sorted; none if they can be planned.

    A problem names its spec (`environment`, `tenant fraud`) and the field in it. For specs in files call `load`, which
    applies the same rules and names file, line and column.
    """
    tenants = [tenant.with_namespace_names(environment.namespace_name) for tenant in tenants]
    problems = [
        Problem(
            "environment" if index == ENVIRONMENT_INDEX else f"tenant {tenants[index].tenant}",
            0,
            0,
            dotted_path(mistake.location),
            escape_invisible(mistake.given),
            mistake.rule,
            escape_invisible(mistake.change),
            mistake.id,
        )
        for index, mistake in check_all(environment, tenants)
    ]
    return list(SpecError(problems).problems)


def require_valid(environment: Environment, tenants: Sequence[Tenant]) -> None:
    """Raise SpecError with every problem, if there is one."""
    if _is_marked_valid(environment, tenants):
        return
    if problems := validate(environment, tenants):
        raise SpecError(problems)
    mark_valid(environment, tenants)


def mark_valid(environment: Environment, tenants: Sequence[Tenant]) -> None:
    """Remember that these models were checked and are valid."""
    _valid_specs.append((environment, tuple(tenants)))


def _is_marked_valid(environment: Environment, tenants: Sequence[Tenant]) -> bool:
    tenant_ids = {id(tenant) for tenant in tenants}
    return any(
        known_environment is environment
        and len(known_tenants) == len(tenants)
        and {id(tenant) for tenant in known_tenants} == tenant_ids
        for known_environment, known_tenants in _valid_specs
    )
