"""The rules across an environment and its tenants, for specs from any source.

Models check their fields and the rules within one spec when they are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tenancy.catalog.text import shown
from tenancy.schema.environment import Environment
from tenancy.schema.problems import Problem, SpecError, dotted
from tenancy.schema.tenant import Tenant
from tenancy.validation.crossfile import across
from tenancy.validation.found import ENVIRONMENT

_vouched: deque[tuple[Environment, tuple[Tenant, ...]]] = deque(maxlen=4)
"""Valid specs, so that specs that the loader has checked are not checked again; compared by identity. Only a few are
kept, because they keep their models alive."""


def validate(environment: Environment, tenants: Sequence[Tenant]) -> list[Problem]:
    """All mistakes of an environment and its tenants together, sorted; none if they can be planned.

    A problem names its spec (`environment`, `tenant fraud`) and the field in it. For specs in files call `load`, which
    applies the same rules and names file, line and column.
    """
    tenants = [tenant.named(environment.namespace_name) for tenant in tenants]
    found = [
        Problem(
            "environment" if index == ENVIRONMENT else f"tenant {tenants[index].tenant}",
            0,
            0,
            dotted(mistake.where),
            shown(mistake.given),
            mistake.rule,
            shown(mistake.change),
            mistake.id,
        )
        for index, mistake in across(environment, tenants)
    ]
    return list(SpecError(found).problems)


def require_valid(environment: Environment, tenants: Sequence[Tenant]) -> None:
    """Raise SpecError with every problem, if there is one."""
    if _is_vouched_for(environment, tenants):
        return
    if problems := validate(environment, tenants):
        raise SpecError(problems)
    vouch_for(environment, tenants)


def vouch_for(environment: Environment, tenants: Sequence[Tenant]) -> None:
    """Remember that these models were checked and are valid."""
    _vouched.append((environment, tuple(tenants)))


def _is_vouched_for(environment: Environment, tenants: Sequence[Tenant]) -> bool:
    given = {id(tenant) for tenant in tenants}
    return any(
        known is environment and len(judged) == len(tenants) and {id(tenant) for tenant in judged} == given
        for known, judged in _vouched
    )
