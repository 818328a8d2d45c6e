"""A page for an environment, and one for a tenant: no network, no script, light and dark mode, printable.

A tenant's page has that tenant's numbers and no other tenant's name: facts about other tenants are only counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.output.html import Tile, render
from tenancy.planning import make_plan
from tenancy.planning.access_review import BREAK_GLASS, AccessGrant, inactive_grants, review
from tenancy.planning.aws.prices import MICRO
from tenancy.planning.common.stages import without_removed_tenants
from tenancy.report import costs, isolation, shares
from tenancy.report.facts import Facts, Member, dollars, facts, first_names, number, pools_monthly
from tenancy.report.inputs import ChargebackSummary, UsageTimeline
from tenancy.report.planes import CellKind, IsolationMatrix, counts
from tenancy.spec.loader import Loaded

PLATFORM = "the platform"


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A subject's role, and the namespaces where it applies."""

    tenant: str
    kind: str
    who: str
    role: str
    where: Sequence[str]


@dataclass(frozen=True, slots=True)
class AccessView:
    """Access by subject and place; `not_created` is the number of grants on AWS that are not created, or empty."""

    rows: Sequence[AccessRow]
    count: str
    not_created: str
    with_tenant: bool
    opened: bool


class Pages:
    """All pages of one environment; shared facts are computed once."""

    def __init__(
        self, loaded: Loaded, timeline: UsageTimeline | None = None, chargeback_summary: ChargebackSummary | None = None
    ) -> None:
        self.plan = make_plan(loaded, loaded.day)
        loaded = self.loaded = without_removed_tenants(loaded)
        self.facts: Facts = facts(loaded)
        self.planes = IsolationMatrix(loaded, self.plan).all()
        self.chargeback_summary = chargeback_summary
        self.timeline = timeline or (chargeback_summary.timeline if chargeback_summary else None)
        self.entries = review(loaded.environment, loaded.tenants, self.plan)
        self.not_made = inactive_grants(loaded.environment, loaded.tenants, self.plan)
        """Grants on AWS in files with aws.enabled: false."""

    def environment(self) -> str:
        """The page of the whole environment."""
        environment, chargeback_summary = self.loaded.environment, self.chargeback_summary
        aws = f", {environment.aws.region}" if environment.aws.enabled else ""
        title = f"Tenancy of {environment.environment}"
        return render(
            "environment.html.j2",
            title=title,
            heading=title,
            about=f"cluster {environment.cluster.name}, Kubernetes {environment.cluster.kubernetes}{aws}",
            sections=("Tenants", "Capacity", "Isolation", "Over time", "Cost", "Access"),
            tiles=self._environment_tiles(),
            tenants=shares.tenants(self.facts),
            supply=shares.supply(self.facts.bars),
            without_gpus=shares.without_gpus(environment),
            planes=isolation.planes(self.planes, self._names),
            charged=costs.view(chargeback_summary) if chargeback_summary else None,
            amounts=costs.bill(chargeback_summary) if chargeback_summary else self._min_costs(),
            unpriced=pools_monthly(environment)[1],
            command=f"tenancy report {environment.environment}",
            **self._common_values(None),
        )

    def tenant(self, name: str) -> str:
        """The page of one tenant."""
        member, environment = self.facts.member(name), self.loaded.environment.environment
        spec, chargeback_summary = member.spec, self.chargeback_summary
        on_aws = self.loaded.environment.aws.enabled and any(spec.has_identity(part) for part in spec.namespaces)
        return render(
            "tenant.html.j2",
            title=f"{spec.title or name}: GPUs of {name}",
            heading=spec.title or name,
            about=f"{spec.team}, {spec.cost_center}; in {environment}",
            sections=("Share", "Isolation", "Over time", "Cost", "Access"),
            tiles=self._tenant_tiles(member),
            namespaces=shares.namespaces(member),
            flavors=shares.flavors(member),
            others=len(self._names) - 1,
            planes=isolation.of_tenant(self.planes, self._names, name),
            egress=", ".join(way.place for way in spec.egress),
            ingress=", ".join(way.place for way in spec.ingress),
            allow_cross_namespace=spec.allow_cross_namespace,
            identity_on_aws=on_aws,
            charged=costs.view(chargeback_summary, [name]) if chargeback_summary else None,
            paid=chargeback_summary is not None and name in chargeback_summary.paid,
            has_budget=spec.budget is not None,
            amounts=self._tenant_amounts(member),
            unpriced=member.unpriced,
            command=f"tenancy report {environment} --tenant {name}",
            **self._common_values(name),
        )

    @property
    def _names(self) -> list[str]:
        return [member.name for member in self.facts.members]

    def _common_values(self, tenant_name: str | None) -> Mapping[str, Any]:
        """Values of the parts that both pages have; `tenant_name` is the tenant of the page."""
        return {
            "kinds": isolation.MEANINGS,
            "course": shares.timeline_view(self.timeline, tenant_name),
            "course_given": self.timeline is not None,
            "access": self._access(tenant_name),
        }

    # The environment

    def _environment_tiles(self) -> list[Tile]:
        environment, members = self.loaded.environment, self.facts.members
        pools = environment.pools.values()
        nodes_min, nodes_max = sum(p.nodes.min for p in pools), sum(p.nodes.max for p in pools)
        gpus_min, gpus_max = (sum(p.machine.gpus * getattr(p.nodes, end) for p in pools) for end in ("min", "max"))
        guaranteed = sum((member.gpus for member in members), start=0)
        cell_counts = counts(self.planes)
        pools_cost, unpriced = pools_monthly(environment)
        return [
            Tile("tenants", str(len(members)), several(sum(len(m.spec.namespaces) for m in members), "namespace")),
            Tile(
                "GPUs always on",
                str(gpus_min),
                several(nodes_min, "node")
                if nodes_min == nodes_max
                else f"on {nodes_min} nodes; max {gpus_max} on {nodes_max}",
            ),
            Tile("guaranteed", number(guaranteed), f"{costs.share(float(guaranteed), gpus_min)} of those always on"),
            Tile("paths between tenants", f"{cell_counts[CellKind.CLOSED]:,} closed", _other_paths(cell_counts)),
            Tile(
                "guaranteed nodes",
                dollars(pools_cost),
                "a month" + (f", without {first_names(unpriced)}: no price" if unpriced else ""),
            ),
        ]

    def _min_costs(self) -> costs.Amounts:
        """The min cost of each tenant's guarantees, and of what is always on and unallocated."""
        paid = [(member.name, member.monthly / MICRO, "") for member in self.facts.members if member.places]
        pools_cost, _ = pools_monthly(self.loaded.environment)
        unallocated = pools_cost / MICRO - sum(amount for _, amount, _ in paid)
        caption = "guarantees at the price of the nodes that are always on, a month"
        return costs.amounts(paid, [("unallocated", max(0.0, unallocated))], caption)

    # A tenant

    def _tenant_tiles(self, member: Member) -> list[Tile]:
        borrows = [f"{share.borrows} {share.flavor}" for share in member.shares if share.borrows]
        lends = [f"{share.lends} {share.flavor}" for share in member.shares if share.lends]
        budget, chargeback_summary = member.spec.budget, self.chargeback_summary
        if chargeback_summary and member.name in chargeback_summary.paid:
            cost = Tile("paid", f"${chargeback_summary.paid[member.name]:,.0f}", costs.span(chargeback_summary))
        else:
            limit = f"of a budget of ${budget.monthly_usd:,}" if budget else "no budget is set, so no alert is sent"
            cost = Tile("guarantee, a month", dollars(member.monthly), limit)
        return [
            Tile("guaranteed", number(member.gpus), "GPUs; a slice counts as its part"),
            Tile("may borrow", borrows[0] if borrows else "nothing", ", ".join(borrows[1:]) or "of idle GPUs"),
            Tile("lends", lends[0] if lends else "nothing", ", ".join(lends[1:]) or "while it is idle"),
            cost,
        ]

    def _tenant_amounts(self, member: Member) -> costs.Amounts:
        """Cost of a tenant by category, or the minimum cost of its guarantees."""
        chargeback_summary = self.chargeback_summary
        if chargeback_summary and member.name in chargeback_summary.paid:
            parts = chargeback_summary.parts.get(member.name, {})
            return costs.amounts([(category, paid, "") for category, paid in parts.items()], [], "costs by category")
        rows = [
            (f"{place.count} {place.flavor}", place.monthly / MICRO, f"in {place.pool}")
            for place in member.places
            if place.monthly is not None
        ]
        return costs.amounts(rows, [], "a month")

    def _access(self, tenant_name: str | None) -> AccessView:
        everywhere = {"Group", BREAK_GLASS}  # the platform group has access everywhere
        shown_entries: list[AccessGrant] = [
            entry
            for entry in self.entries
            if tenant_name is None or entry.tenant == tenant_name or (not entry.tenant and entry.kind in everywhere)
        ]
        idle_grants = sum(tenant_name in (None, entry.tenant) for entry in self.not_made)
        return AccessView(
            rows=[AccessRow(e.tenant or PLATFORM, e.kind, e.subject, e.role, e.applies_to) for e in shown_entries],
            count=several(len(shown_entries), "line"),
            not_created=several(idle_grants, "grant") if idle_grants else "",
            with_tenant=tenant_name is None,
            opened=tenant_name is not None or len(shown_entries) <= isolation.MAX_TENANTS,
        )


def several(count: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


def _other_paths(cell_counts: Mapping[CellKind, int]) -> str:
    named_kinds = ((CellKind.SHARED_RESOURCE, "shared"), (CellKind.GRANTED, "given"))
    return ", ".join(
        [
            *(f"{cell_counts[kind]:,} {word}" for kind, word in named_kinds if cell_counts[kind]),
            f"{cell_counts[CellKind.OPEN]:,} open",
        ]
    )
