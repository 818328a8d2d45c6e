"""Rows about GPUs: shares of tenants, supply of pools, and use over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenancy.output import charts
from tenancy.report.facts import Facts, Member, SupplyBar, number
from tenancy.report.inputs import UsageTimeline
from tenancy.spec.fields.environment import Environment

NEVER_LENT, LENT, UNALLOCATED, BURST = "kept", "lent", "unallocated", "burst"
TITLES: Mapping[str, str] = {
    NEVER_LENT: "guaranteed and kept",
    LENT: "guaranteed, lent while idle",
    UNALLOCATED: "unallocated",
    BURST: "autoscaled, not guaranteed",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: its kind is its colour, its share is in percent of the bar."""

    kind: str
    share: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace with its tier, purpose and guarantee."""

    name: str
    tier: str
    purpose: str = ""
    guaranteed: str = ""


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant of an environment; `guaranteed`, `lends` and `borrows` have a line for each flavor."""

    name: str
    title: str
    department: str
    tier: str
    namespaces: Sequence[NamespaceRow]
    guaranteed: Sequence[str]
    lends: Sequence[str]
    borrows: Sequence[str]
    gpus: str
    segment: Segment


@dataclass(frozen=True, slots=True)
class SupplyRow:
    """Supply of one flavor in one pool, in counts of the flavor."""

    pool: str
    flavor: str
    label: str
    segments: Sequence[Segment]
    guaranteed: int
    lent: int
    always_on: int
    maximum: int


@dataclass(frozen=True, slots=True)
class FlavorRow:
    """A tenant's share in one flavor."""

    flavor: str
    label: str
    segments: Sequence[Segment]
    guaranteed: int
    lends: int
    borrows: int


@dataclass(frozen=True, slots=True)
class CourseView:
    """Charts of GPUs over time; no legend on the page of one tenant, no fairness if it is not known."""

    source: str
    legend: Mapping[str, str]
    in_use: charts.Chart
    borrowed: charts.Chart
    has_limit: bool
    fairness: charts.Chart | None


def tenants(facts: Facts) -> list[TenantRow]:
    """All tenants of an environment, with bars relative to the largest guarantee."""
    largest = max([member.gpus for member in facts.members if member.gpus], default=1)
    rows = []
    for member in facts.members:
        spec = member.spec
        visible_shares = [share for share in member.shares if share.guaranteed or share.borrows]
        rows.append(
            TenantRow(
                name=member.name,
                title=spec.title or spec.team,
                department=spec.department,
                tier=spec.tier,
                namespaces=[NamespaceRow(part.name, spec.tier_of(part)) for part in spec.namespaces],
                guaranteed=[f"{share.guaranteed} {share.flavor}" for share in visible_shares],
                lends=[str(share.lends or "–") for share in visible_shares],
                borrows=[str(share.borrows or "–") for share in visible_shares],
                gpus=number(member.gpus),
                segment=Segment(NEVER_LENT, 100 * float(member.gpus / largest)),
            )
        )
    return rows


def supply(bars: Iterable[SupplyBar]) -> list[SupplyRow]:
    """The supply of all pools, with bars relative to the max of each."""
    return [
        SupplyRow(
            pool=bar.pool,
            flavor=bar.flavor,
            label=f"{bar.never_lent + bar.lent} of {bar.always_on} always on are guaranteed",
            segments=list(
                _segments(
                    {NEVER_LENT: bar.never_lent, LENT: bar.lent, UNALLOCATED: bar.free, BURST: bar.burst},
                    max(bar.maximum, bar.never_lent + bar.lent),
                )
            ),
            guaranteed=bar.never_lent + bar.lent,
            lent=bar.lent,
            always_on=bar.always_on,
            maximum=bar.maximum,
        )
        for bar in bars
    ]


def _segments(counts: Mapping[str, int], total: int, titles: Mapping[str, str] = TITLES) -> Iterator[Segment]:
    for kind, count in counts.items():
        if count > 0:
            yield Segment(kind, 100 * count / max(total, 1), f"{titles[kind]}: {count}")


def without_gpus(environment: Environment) -> list[str]:
    """Pools without GPUs, with their nodes."""
    return [
        f"{name}, {pool.nodes.min} to {pool.nodes.max} {pool.instance_type}"
        for name, pool in sorted(environment.pools.items())
        if not pool.machine.gpus
    ]


def namespaces(member: Member) -> list[NamespaceRow]:
    """The namespaces of a tenant."""
    spec = member.spec
    return [
        NamespaceRow(spec.namespace_name(part), spec.tier_of(part), part.purpose, _counts(spec.guaranteed_in(part)))
        for part in spec.namespaces
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {flavor}" for flavor, count in counts.items() if count) or "–"


def flavors(member: Member) -> list[FlavorRow]:
    """A tenant's share in each flavor that it has or may borrow."""
    return [
        FlavorRow(
            flavor=share.flavor,
            label=f"{share.guaranteed} guaranteed, {share.borrows} may be borrowed",
            segments=list(
                _segments(
                    {NEVER_LENT: share.guaranteed - share.lends, LENT: share.lends, BURST: share.borrows},
                    share.guaranteed + share.borrows,
                    {**TITLES, BURST: "may be borrowed"},
                )
            ),
            guaranteed=share.guaranteed,
            lends=share.lends,
            borrows=share.borrows,
        )
        for share in member.shares
        if share.guaranteed or share.borrows
    ]


def timeline_view(timeline: UsageTimeline | None, tenant_name: str | None) -> CourseView | None:
    """GPUs over time of all tenants, or of one; None if no GPU was in use."""
    if timeline is None or (tenant_name is not None and tenant_name not in timeline.in_use):
        return None
    in_use = {tenant_name: timeline.in_use[tenant_name]} if tenant_name is not None else dict(timeline.in_use)
    borrowed = (
        {tenant_name: timeline.borrowed.get(tenant_name, [0.0])} if tenant_name is not None else dict(timeline.borrowed)
    )
    colours = charts.colours({name: sum(values) for name, values in in_use.items()})
    limit = timeline.capacity if tenant_name is None else None
    max_gpus = max([limit or 0.0, *map(sum, zip(*in_use.values(), strict=True)), 1.0])
    width = len(next(iter(in_use.values())))
    use_layers = charts.layers(in_use, colours, width)
    sums = [
        sum(values[index] if index < len(values) else 0.0 for values in borrowed.values()) for index in range(width)
    ]
    borrowed_layers = charts.layers(
        {name: list(values) for name, values in borrowed.items() if len(values) == width}, colours, width
    )
    has_fairness = tenant_name is None and any(value is not None for value in timeline.fairness)
    return CourseView(
        source=timeline.source,
        legend=colours if tenant_name is None else {},
        in_use=charts.stacked(use_layers, colours, max_gpus, timeline.hours, limit, "GPUs in use by tenant"),
        borrowed=charts.stacked(
            borrowed_layers, colours, max([1.0, *sums]), timeline.hours, None, "GPUs borrowed by tenant"
        ),
        has_limit=bool(limit),
        fairness=charts.line(timeline.fairness, timeline.hours, "var(--accent)", "Jain's index over time")
        if has_fairness
        else None,
    )
