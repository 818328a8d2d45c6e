"""The rules across an environment and its tenants, for specs from any source.

Models check their fields and the rules within one spec when they are made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from tenancy.catalog.text import escape_invisible
from tenancy.spec.checks.crossfile import check_all
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.problems import Problem, SpecError, dotted_path


@dataclass(frozen=True, slots=True)
class ValidSpec:
    """An environment and its tenants that are valid together, with the names of their namespaces in the cluster written
    out. `valid_spec` and `load` make it; its readers check nothing again."""

    environment: Environment
    tenants: tuple[Tenant, ...]


def valid_spec(environment: Environment, tenants: Sequence[Tenant], day: dt.date) -> ValidSpec:
    """The spec of an environment, if it is valid on that day. Raises SpecError with every problem.

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
        for index, mistake in check_all(environment, tenants, day)
    ]
    if problems:
        raise SpecError(problems)
    return ValidSpec(environment, tuple(sorted(tenants, key=lambda tenant: tenant.tenant)))
