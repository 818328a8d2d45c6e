"""Waves of a new version: which tenants' stacks run together, and how far a rollout is.

Nothing of a rollout is stored. The waves follow from the spec files, and how far it is follows from the records of the
stacks, which say of which program each was last made. So a rollout that was ended goes on, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.deploy.decide import Cause
from tenancy.deploy.digests import StackDigest
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.rollout import Order, Rollout
from tenancy.spec.fields.tenant import Tenant

CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Wave:
    """Stacks of tenants that run side by side."""

    name: str
    stacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaveProgress:
    """Progress of one wave."""

    wave: Wave
    finished: tuple[str, ...]
    """Stacks whose last successful run was of the present program."""

    @property
    def remaining(self) -> tuple[str, ...]:
        """Stacks that still have to run."""
        return tuple(name for name in self.wave.stacks if name not in self.finished)


def waves(environment: Environment, tenants: Sequence[Tenant], rollout: Rollout) -> list[Wave]:
    """All tenants' stacks in waves; each is in one."""
    ordered = sorted(tenants, key=_size)
    canaries = _canary(ordered, rollout)
    other_tenants = [tenant for tenant in ordered if tenant.tenant not in canaries]
    groups = [("", other_tenants)]
    if rollout.order is Order.DEPARTMENT:
        names = [*environment.organisation.departments]
        groups = [(name, [tenant for tenant in other_tenants if tenant.department == name]) for name in names]
    named_groups = [(CANARY, sorted(canaries))] if canaries else []
    number = 0
    for name, group in groups:
        for start in range(0, len(group), rollout.wave_size):
            number += 1
            part = [tenant.tenant for tenant in group[start : start + rollout.wave_size]]
            named_groups.append((f"wave {number}{f' ({name})' if name else ''}", part))
    return [
        Wave(name, tuple(vocabulary.derived_name(environment.environment, tenant) for tenant in part))
        for name, part in named_groups
    ]


def progress(
    planned: Sequence[Wave], digests: Mapping[str, StackDigest], records: Mapping[str, StackDigest]
) -> list[WaveProgress]:
    """Progress of each wave, by the records of the stacks."""
    return [
        WaveProgress(wave, tuple(name for name in wave.stacks if _is_current(name, digests[name].program, records)))
        for wave in planned
    ]


def find_outdated_stacks(stacks: Iterable[str], program: str, records: Mapping[str, StackDigest]) -> list[str]:
    """Those of the stacks whose last successful run was not of that program, or that never had one."""
    return [name for name in stacks if not _is_current(name, program, records)]


def _is_current(stack: str, program: str, records: Mapping[str, StackDigest]) -> bool:
    return stack in records and records[stack].program == program


def waves_for_new_program(planned: Sequence[Wave], causes: Mapping[str, Sequence[Cause]]) -> list[Wave]:
    """The waves with what of them has to run because of a new program. What is asked for by name does not wait for a
    wave, and a stack that does not exist yet has nothing to lose."""
    return [
        Wave(wave.name, tuple(name for name in wave.stacks if _waits_for_wave(causes.get(name, ()))))
        for wave in planned
    ]


def _waits_for_wave(causes: Sequence[Cause]) -> bool:
    return Cause.PROGRAM in causes and Cause.REQUESTED not in causes


def _canary(tenants: Sequence[Tenant], rollout: Rollout) -> set[str]:
    canaries = {tenant.tenant for tenant in tenants if tenant.tenant in rollout.canary}
    tiers: dict[str, list[str]] = {}
    for tenant in tenants:
        tiers.setdefault(tenant.tier, []).append(tenant.tenant)
    for names in tiers.values():
        canary_count = math.ceil(len(names) * rollout.canary_percent / 100)
        more = [name for name in names if name not in canaries]
        canaries.update(more[: max(0, canary_count - (len(names) - len(more)))])
    return canaries


def _size(tenant: Tenant) -> tuple[int, str]:
    return sum(share.guaranteed for share in tenant.gpus.values()), tenant.tenant
