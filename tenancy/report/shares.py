"""Rows about GPUs: shares of tenants, supply of pools, and use over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenancy.output import charts
from tenancy.report.facts import Facts, Member, SupplyBar, number
from tenancy.report.given import Course
from tenancy.validation import Environment

KEPT, LENT, UNALLOCATED, BURST = "kept", "lent", "unallocated", "burst"
TITLES: Mapping[str, str] = {
    KEPT: "guaranteed and kept",
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
        held = [each for each in member.held if each.guaranteed or each.borrows]
        rows.append(
            TenantRow(
                name=member.name,
                title=spec.title or spec.team,
                department=spec.department,
                tier=spec.tier,
                namespaces=[NamespaceRow(part.name, spec.tier_of(part)) for part in spec.namespaces],
                guaranteed=[f"{each.guaranteed} {each.flavor}" for each in held],
                lends=[str(each.lends or "–") for each in held],
                borrows=[str(each.borrows or "–") for each in held],
                gpus=number(member.gpus),
                segment=Segment(KEPT, 100 * float(member.gpus / largest)),
            )
        )
    return rows


def supply(bars: Iterable[SupplyBar]) -> list[SupplyRow]:
    """The supply of all pools, with bars relative to the max of each."""
    return [
        SupplyRow(
            pool=bar.pool,
            flavor=bar.flavor,
            label=f"{bar.kept + bar.lent} of {bar.always_on} always on are guaranteed",
            segments=list(
                _segments(
                    {KEPT: bar.kept, LENT: bar.lent, UNALLOCATED: bar.free, BURST: bar.burst},
                    max(bar.maximum, bar.kept + bar.lent),
                )
            ),
            guaranteed=bar.kept + bar.lent,
            lent=bar.lent,
            always_on=bar.always_on,
            maximum=bar.maximum,
        )
        for bar in bars
    ]


def _segments(counts: Mapping[str, int], whole: int, titles: Mapping[str, str] = TITLES) -> Iterator[Segment]:
    for kind, count in counts.items():
        if count > 0:
            yield Segment(kind, 100 * count / max(whole, 1), f"{titles[kind]}: {count}")


def without_gpus(environment: Environment) -> list[str]:
    """Pools without GPUs, with their nodes."""
    return [
        f"{name}, {pool.nodes.min} to {pool.nodes.max} {pool.instance}"
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
            flavor=each.flavor,
            label=f"{each.guaranteed} guaranteed, {each.borrows} may be borrowed",
            segments=list(
                _segments(
                    {KEPT: each.guaranteed - each.lends, LENT: each.lends, BURST: each.borrows},
                    each.guaranteed + each.borrows,
                    {**TITLES, BURST: "may be borrowed"},
                )
            ),
            guaranteed=each.guaranteed,
            lends=each.lends,
            borrows=each.borrows,
        )
        for each in member.held
        if each.guaranteed or each.borrows
    ]


def course(of: Course | None, only: str | None) -> CourseView | None:
    """GPUs over time of all tenants, or of one; None if no GPU was in use."""
    if of is None or (only is not None and only not in of.held):
        return None
    held = {only: of.held[only]} if only is not None else dict(of.held)
    lent = {only: of.borrowed.get(only, [0.0])} if only is not None else dict(of.borrowed)
    colours = charts.colours({name: sum(values) for name, values in held.items()})
    limit = of.capacity if only is None else None
    most = max([limit or 0.0, *map(sum, zip(*held.values(), strict=True)), 1.0])
    width = len(next(iter(held.values())))
    used = charts.layers(held, colours, width)
    sums = [sum(values[at] if at < len(values) else 0.0 for values in lent.values()) for at in range(width)]
    above = charts.layers({name: list(values) for name, values in lent.items() if len(values) == width}, colours, width)
    fair = only is None and any(value is not None for value in of.fairness)
    return CourseView(
        source=of.source,
        legend=colours if only is None else {},
        in_use=charts.stacked(used, colours, most, of.hours, limit, "GPUs in use by tenant"),
        borrowed=charts.stacked(above, colours, max([1.0, *sums]), of.hours, None, "GPUs borrowed by tenant"),
        has_limit=bool(limit),
        fairness=charts.line(of.fairness, of.hours, "var(--accent)", "Jain's index over time") if fair else None,
    )
