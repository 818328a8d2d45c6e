"""Entries that are judged on a day: exceptions with a last day, capacity blocks, releases of node images."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from tenancy.catalog.account import EARLIEST_BLOCK, LONGEST_BLOCK
from tenancy.catalog.versions import ami_release_misfit
from tenancy.rules.values import unbounded_end
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX, IndexedMistake
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Purchase
from tenancy.spec.fields.queues import BudgetExemption
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.mistakes import Mistake, rule_mistake
from tenancy.spec.reading.source import Location


def dated_mistakes(
    environment: Environment | None, tenants: Sequence[Tenant], day: dt.date, *, refuse_past: bool
) -> Iterator[IndexedMistake]:
    """Entries that are wrong on that day. Without `refuse_past`, one whose last day has passed is no mistake."""
    for mistake in _environment_mistakes(environment, day, refuse_past) if environment else ():
        yield ENVIRONMENT_INDEX, mistake
    for index, tenant in enumerate(tenants):
        for mistake in _tenant_mistakes(tenant, day, refuse_past):
            yield index, mistake


def _environment_mistakes(environment: Environment, day: dt.date, refuse_past: bool) -> Iterator[Mistake]:
    for i, entry in enumerate(environment.platform.temporary_namespaces):
        location: Location = ("platform", "temporary-namespaces", i, "until")
        if fault := _unbounded(entry.until, day, refuse_past):
            yield rule_mistake(location, "ns-08", fault)
    yield from _budget_exemption(("queues", "budget-exemption", "until"), environment.queues.budget_exemption, day)
    releases: dict[Location, str | None] = {("aws", "ami-release"): environment.aws.ami_release}
    for name, pool in environment.pools.items():
        releases["pools", name, "ami-release"] = pool.ami_release
        yield from _capacity_block(("pools", name, "purchase"), pool.purchase, day, refuse_past)
    for location, release in releases.items():
        if release and (misfit := ami_release_misfit(release, day)):
            yield rule_mistake(location, "ami-01", misfit)


def _tenant_mistakes(tenant: Tenant, day: dt.date, refuse_past: bool) -> Iterator[Mistake]:
    for i, entry in enumerate(tenant.exceptions):
        if fault := _unbounded(entry.until, day, refuse_past):
            yield rule_mistake(("exceptions", i, "until"), "exc-01", fault)
    if tenant.budget:
        yield from _budget_exemption(("budget", "exemption", "until"), tenant.budget.exemption, day)


def _unbounded(until: dt.date, day: dt.date, refuse_past: bool) -> str | None:
    return unbounded_end(until, day) if refuse_past or until >= day else None


def _budget_exemption(location: Location, exemption: BudgetExemption | None, day: dt.date) -> Iterator[Mistake]:
    # One that has ended is no mistake: a clock that starts later reads the same files.
    if exemption and (fault := _unbounded(exemption.until, day, refuse_past=False)):
        yield rule_mistake(location, "exc-01", fault)


def _capacity_block(location: Location, purchase: Purchase, day: dt.date, refuse_past: bool) -> Iterator[Mistake]:
    block, rule = f"capacity block {purchase.capacity_block}", "pool-07"
    ends_ahead = (purchase.ends - day).days if purchase.ends else 0
    starts_ahead = (purchase.starts - day).days if purchase.starts else 0
    if ends_ahead < 0 and refuse_past:
        fault = f"{block}, which ended on {purchase.ends}"
        yield rule_mistake((*location, "ends"), rule, fault, "name the block that follows, or remove the pool")
    elif ends_ahead > LONGEST_BLOCK + EARLIEST_BLOCK:
        fault = f"{block} until {purchase.ends}, {ends_ahead} days ahead"
        change = f"check the day: a block starts within {EARLIEST_BLOCK} days and lasts {LONGEST_BLOCK} at most"
        yield rule_mistake((*location, "ends"), rule, fault, change)
    if starts_ahead > EARLIEST_BLOCK:
        fault = f"{block} from {purchase.starts}, {starts_ahead} days ahead"
        change = f"check the day: a block is bought {EARLIEST_BLOCK} days ahead at most"
        yield rule_mistake((*location, "starts"), rule, fault, change)
