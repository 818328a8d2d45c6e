"""Kueue's tree of quotas: what a ClusterQueue can use now, and its maximum, through the Cohorts above it.

Source: Kueue v0.19.2 `pkg/cache/scheduler/resource_node.go`, from which the methods have their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tenancy.kube.objects import as_list, get_path
from tenancy.kube.quantities import thousandths

Object = Mapping[str, Any]
Place = tuple[str, str]
"""Kueue's flavor and a resource."""


class StoredGroup(NamedTuple):
    """Resources that get one flavor together, and the flavors in the order in which Kueue tries them."""

    resources: tuple[str, ...]
    flavors: tuple[Any, ...]


def resource_groups(spec: Any) -> Iterator[StoredGroup]:
    """The resource groups of a ClusterQueue's or a Cohort's spec, in order.

    An unknown list is one unknown entry, as rules need it in a preview.
    """
    for group in as_list(get_path(spec, "resourceGroups")):
        yield StoredGroup(
            tuple(map(str, as_list(get_path(group, "coveredResources")))), as_list(get_path(group, "flavors"))
        )


class StoredQuota(NamedTuple):
    """One resource of one flavor as a ClusterQueue or a Cohort has it; the amounts are not read yet, None: absent."""

    flavor: str
    resource: str
    nominal: Any
    borrowing: Any
    lending: Any


def stored_quotas(spec: Any) -> Iterator[StoredQuota]:
    """Every quota in the resource groups of a ClusterQueue's or a Cohort's spec, in order."""
    for group in resource_groups(spec):
        for flavor in group.flavors:
            for resource in as_list(get_path(flavor, "resources")):
                yield StoredQuota(
                    str(get_path(flavor, "name")),
                    str(get_path(resource, "name")),
                    get_path(resource, "nominalQuota"),
                    get_path(resource, "borrowingLimit"),
                    get_path(resource, "lendingLimit"),
                )


class FlavorQuota(NamedTuple):
    """Amounts of one resource of one flavor, in one unit; None: no limit."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


class QuotaHolder(Protocol):
    """A Cohort or a ClusterQueue, planned or stored."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def parent(self) -> str | None:
        """Name of the Cohort above it."""

    @property
    def quotas(self) -> Mapping[Place, FlavorQuota]:
        """Its own quotas, by flavor and resource."""


class StoredHolder(NamedTuple):
    """A Cohort or a ClusterQueue of a cluster."""

    name: str
    parent: str | None
    quotas: Mapping[Place, FlavorQuota]


@dataclass(slots=True, eq=False)
class Node:
    """A Cohort or a ClusterQueue. Default of a limit: none."""

    nominal: dict[Place, int] = field(default_factory=dict)
    borrowing: dict[Place, int] = field(default_factory=dict)
    lending: dict[Place, int] = field(default_factory=dict)
    parent: Node | None = None
    quota: Counter[Place] = field(default_factory=Counter)
    """Its own nominal quota, and the quota that its children lend."""
    used: Counter[Place] = field(default_factory=Counter)
    """Usage that counts against `quota`."""

    def local(self, place: Place) -> int:
        """Quota that it does not lend."""
        return max(0, self.quota[place] - self.lending[place]) if place in self.lending else 0

    def available(self, place: Place) -> int:
        """Quota that it can use now without an eviction; negative if usage exceeds the quota."""
        used = self.used[place]
        if self.parent is None:
            return self.quota[place] - used
        parent_quota, local = self.parent.available(place), self.local(place)
        if place in self.borrowing:
            parent_quota = min(parent_quota, self.quota[place] - local - max(0, used - local) + self.borrowing[place])
        return max(0, local - used) + parent_quota

    def potential(self, place: Place) -> int:
        """Quota that it could use if there were no other usage."""
        if self.parent is None:
            return self.quota[place]
        maximum = self.local(place) + self.parent.potential(place)
        return min(maximum, self.quota[place] + self.borrowing[place]) if place in self.borrowing else maximum

    def use(self, place: Place, amount: int) -> None:
        """Add usage here, and in the parent the usage above the local quota; a negative amount is subtracted."""
        local = self.local(place)
        before = max(0, self.used[place] - local)
        self.used[place] += amount
        passed = max(0, self.used[place] - local) - before
        if passed and self.parent:
            self.parent.use(place, passed)

    def above(self) -> Iterator[Node]:
        """Its Cohorts, up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


class Tree:
    """Cohorts and ClusterQueues by name. A Cohort without an object of its own has no quota and no limit."""

    def __init__(self, queues: Iterable[QuotaHolder], cohorts: Iterable[QuotaHolder]) -> None:
        self.cohorts: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        parents: list[tuple[Node, str]] = []
        for nodes, holders in ((self.queues, queues), (self.cohorts, cohorts)):
            for holder in holders:
                node = nodes[holder.name] = _node(holder.quotas)
                if holder.parent:
                    parents.append((node, holder.parent))
        for node, parent in parents:
            _join(node, self.cohorts.setdefault(parent, Node()))
        depths = {node: sum(1 for _ in node.above()) for node in (*self.cohorts.values(), *self.queues.values())}
        for node in sorted(depths, key=depths.__getitem__, reverse=True):
            node.quota.update(node.nominal)
            if node.parent:
                node.parent.quota.update({place: amount - node.local(place) for place, amount in node.quota.items()})

    @classmethod
    def read(cls, objects: Iterable[Object], read: Callable[[Any], int] = thousandths) -> Tree:
        """The tree of a cluster's ClusterQueues and Cohorts; other kinds are left out. `read` returns the number of a
        quantity."""
        queues, cohorts = [], []
        for item in objects:
            if item["kind"] == "ClusterQueue":
                queues.append(_stored(item, "cohortName", read))
            elif item["kind"] == "Cohort":
                cohorts.append(_stored(item, "parentName", read))
        return cls(queues, cohorts)


def _stored(item: Object, parent_field: str, read: Callable[[Any], int]) -> StoredHolder:
    def limit(value: Any) -> int | None:
        return None if value is None else read(value)

    quotas = {
        (quota.flavor, quota.resource): FlavorQuota(
            limit(quota.nominal) or 0, limit(quota.borrowing), limit(quota.lending)
        )
        for quota in stored_quotas(item["spec"])
    }
    return StoredHolder(item["metadata"]["name"], item["spec"].get(parent_field), quotas)


def _join(node: Node, parent: Node) -> None:
    # Kueue admits no work in a cycle of Cohorts; here the edge that would close the cycle is left out.
    if parent is not node and node not in parent.above():
        node.parent = parent


def _node(quotas: Mapping[Place, FlavorQuota]) -> Node:
    node = Node()
    for place, quota in quotas.items():
        node.nominal[place] = quota.nominal
        if quota.borrowing is not None:
            node.borrowing[place] = quota.borrowing
        if quota.lending is not None:
            node.lending[place] = quota.lending
    return node


def most_borrowed(borrowers: Sequence[Node], lenders: Sequence[Node], place: Place) -> int:
    """Maximum that some ClusterQueues may borrow from others, by the limits on every edge up and down the tree.

    The ClusterQueues of each side have one Cohort above them.
    """
    if not (borrowers and lenders):
        return 0
    lent = sum(min(node.nominal.get(place, 0), node.lending.get(place, node.nominal.get(place, 0))) for node in lenders)
    # A queue whose quota does not name the resource cannot use it.
    limits = [node.borrowing.get(place) for node in borrowers if place in node.nominal]
    open_limits = [limit for limit in limits if limit != 0]
    borrower_cohorts, lender_cohorts = ([*node.above()] for node in (*borrowers[:1], *lenders[:1]))
    common_cohort = next((cohort for cohort in borrower_cohorts if cohort in lender_cohorts), None)
    if not (lent and open_limits and common_cohort):
        return 0
    finite_limits = [limit for limit in open_limits if limit is not None]
    maxima = [lent, *([max(finite_limits)] if len(finite_limits) == len(open_limits) else [])]
    maxima += [
        cohort.borrowing[place]
        for cohort in borrower_cohorts[: borrower_cohorts.index(common_cohort)]
        if place in cohort.borrowing
    ]
    maxima += [
        cohort.lending[place]
        for cohort in lender_cohorts[: lender_cohorts.index(common_cohort)]
        if place in cohort.lending
    ]
    return min(maxima)
