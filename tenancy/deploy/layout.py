"""Moves of tenants between stacks after a change of `stacks`: a pure decision over the states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.spec.fields.environment import Layout


@dataclass(frozen=True, slots=True)
class Move:
    """One tenant's component with all resources below it."""

    tenant: str
    source: str
    """Stack that has it."""
    target: str
    """Stack that is to have it; it may not exist."""
    urn: str
    """The component's, in the source."""
    is_begun: bool
    """Whether the target has it already: an earlier run was ended between the two writes."""


def moves(
    environment: str, layout: Layout, tenants: Iterable[str], states: Mapping[str, Mapping[str, str]]
) -> list[Move]:
    """Moves that bring each tenant into the stack of the layout. `states` has the URNs of tenants' components by their
    tenants, for each stack that exists."""
    result = []
    for tenant in tenants:
        tenant_stack = vocabulary.derived_name(environment, tenant)
        source, target = (environment, tenant_stack) if layout is Layout.PER_TENANT else (tenant_stack, environment)
        if urn := states.get(source, {}).get(tenant):
            result.append(Move(tenant, source, target, urn, is_begun=tenant in states.get(target, {})))
    return result
