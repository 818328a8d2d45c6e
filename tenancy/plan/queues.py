"""Kueue's objects: what each tenant is promised, what it may borrow, and who gets what comes back.

The tree is organisation, department, tenant, and under each tenant a ClusterQueue for every tier that it has. A tenant
is a Cohort: its limits hold for all of its tiers together, and a second tier is one queue more and renames none.

Two kinds of flavor are counted. GPUs by pool, so that admitted pods go where their quota is. CPU and memory once, for
all pools: a flavor with the GPU nodes' labels would send pods without a GPU there. A GPU comes with its part of its
node's CPU and memory, so whoever asks for no more than that is held up by nothing else.

Sources: Kueue v0.19.2 `apis/kueue/v1beta2`, `pkg/webhooks` and `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from tenancy.catalog import boards, quantity
from tenancy.catalog import vocabulary as words
from tenancy.plan.labels import manifest, platform_labels, tenant_labels, tier_labels
from tenancy.plan.model import Object
from tenancy.plan.pools import network_labels, node_allocatable, node_taints, pools_of
from tenancy.plan.priorities import priorities
from tenancy.spec.base import amount
from tenancy.spec.environment import Environment
from tenancy.spec.placement import place
from tenancy.spec.pools import Pool
from tenancy.spec.queues import Gate, Order, seconds
from tenancy.spec.tenant import Namespace, Tenant

API = "kueue.x-k8s.io/v1beta2"
ROOT = "organisation"
"""The Cohort above all; what nobody is promised is its quota."""
ANY_POOL = "any.pool"
"""Flavor of CPU and memory. With a dot, so that no pool is called so."""
TOPOLOGIES = {3: "eks-network", 4: "eks-network-4"}
"""By the layers of the network that nodes tell: Kueue takes nodes alone that have the labels of all levels."""
PROVISIONING = "provisioning"
CORES = words.PREFIX + "millicores"
MEMORY = words.PREFIX + "memory"
"""CPU in thousandths and memory in bytes under names that no pod asks for. Kueue refuses work that asks for a topology
as soon as a flavor without one has anything that its pods ask for (`tas_flavorassigner.go`, "does not support")."""

BOARD = 56
"""Units of a whole board: a multiple of 7 and 8, so that every share of a board is a whole number of them."""
BOARD_COMPUTE = words.PREFIX + "board-compute"
BOARD_MEMORY = words.PREFIX + "board-memory"

Amounts = Mapping[tuple[str, str], int]
"""(Kueue's flavor, resource) -> CPU in thousandths, memory in Mi, the rest in units."""
Stakes = Mapping[str, Mapping[str, int]]
"""Pool -> flavor of the spec -> how many."""


@dataclass(slots=True)
class Share:
    """What one tenant has in the queues."""

    held: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Guaranteed: tier -> pool -> flavor -> how many."""
    lent: dict[str, dict[str, int]] = field(default_factory=dict)
    """At most: pool -> flavor -> how many."""
    borrowed: dict[str, dict[str, int]] = field(default_factory=dict)
    """On top, at most: pool -> flavor -> how many."""

    def guaranteed(self, pool: str, flavor: str) -> int:
        return sum(pools.get(pool, {}).get(flavor, 0) for pools in self.held.values())


def department_cohort(department: str) -> str:
    return words.derived_name("department", department)


def tenant_cohort(tenant: str) -> str:
    return words.derived_name("tenant", tenant)


def above_queues(tenant: Tenant) -> str:
    """Name of the Cohort that a tenant's queues stand in: its own, or for one queue its department's."""
    return tenant_cohort(tenant.tenant) if len(tenant.tiers) > 1 else department_cohort(tenant.department)


def queue_name(tenant: str, tier: str) -> str:
    """Name of a ClusterQueue; a label of its pods, so at most 63 characters by the limits on both parts."""
    return words.derived_name(tenant, tier)


def queue_resource(environment: Environment, flavor: str) -> str:
    """What a flavor is called in the queues; under DRA devices get a name there (`deviceClassMappings`)."""
    return words.PREFIX + flavor if environment.devices_by_claim else environment.resource_of(flavor)


def flavor_name(environment: Environment, pool: str) -> str:
    """Kueue's flavor of a pool. Nobody can give a flavor a topology afterwards, or take it away: another name does."""
    topology = _topology(environment, environment.pools[pool])
    return f"{pool}.{topology}" if topology else pool


def pool_of(flavor: str) -> str:
    """Whose flavor it is; pools are called without dots."""
    return flavor if flavor == ANY_POOL else flavor.partition(".")[0]


def topology_levels(layers: int) -> tuple[str, ...]:
    """Broadest first; labels that EKS puts on nodes whose types report their place (EKS user guide, "topology aware
    scheduling"). Kueue minds node taints only where the last one is the host's name."""
    return (*network_labels(layers), "kubernetes.io/hostname")


def closing(environment: Environment, pool: Pool) -> bool:
    """Whether the pool's capacity block ends too soon for new work."""
    return pool.purchase.over_in(seconds(environment.queues.hold_before_end) // seconds("1d"))


def supply(environment: Environment, *, surely: bool) -> dict[str, dict[str, int]]:
    """Flavor -> pool -> how many there are at least, or at most."""
    found: dict[str, dict[str, int]] = {flavor: {} for flavor in environment.flavors}
    for name, pool in environment.pools.items():
        nodes = 0 if closing(environment, pool) else pool.nodes.min if surely else pool.nodes.max
        for flavor, each in environment.flavors_of(name).items():
            found[flavor][name] = each * nodes
    return found


def open_pools(environment: Environment, tenant: Tenant, tier: str) -> list[str]:
    """Pools with GPUs that a queue spans, in the order in which Kueue tries them."""
    pools = [pools_of(environment, flavor, tenant.tenant, frozenset({tier})) for flavor in tenant.gpus]
    return in_preference(environment, {name for found in pools for name in found})


def in_preference(environment: Environment, pools: Iterable[str]) -> list[str]:
    return sorted(pools, key=lambda name: environment.pools[name].preference(name))


def borrowing_tiers(environment: Environment, tenant: Tenant) -> list[str]:
    return [tier for tier in sorted(tenant.tiers) if environment.tiers[tier].borrows]


def shares(environment: Environment, tenants: Sequence[Tenant]) -> dict[str, Share]:
    """Every tenant's share: guarantees stand in pools, each as whole in one as can be."""
    found = {tenant.tenant: Share({tier: {} for tier in sorted(tenant.tiers)}) for tenant in tenants}
    surely, most = supply(environment, surely=True), supply(environment, surely=False)
    for flavor in environment.flavors:
        claims: dict[tuple[str, str], int] = Counter()
        for tenant in tenants:
            for namespace in tenant.namespaces if flavor in tenant.gpus else ():
                claims[tenant.tenant, tenant.tier_of(namespace)] += tenant.held_in(namespace)[flavor]
        ordered = sorted(claims.items(), key=lambda claim: (-claim[1], claim[0]))
        placed = place(
            {
                (name, tier): (pools_of(environment, flavor, name, frozenset({tier})), count)
                for (name, tier), count in ordered
                if count
            },
            surely[flavor],
        )
        for pool, holders in placed.holds.items():
            for (name, tier), count in holders.items():
                if count:
                    found[name].held[tier].setdefault(pool, {})[flavor] = count
        for tenant in tenants:
            if flavor in tenant.gpus:
                _share_out(environment, tenant, flavor, found[tenant.tenant], most[flavor])
    return found


def _share_out(environment: Environment, tenant: Tenant, flavor: str, share: Share, most: Mapping[str, int]) -> None:
    wanted = tenant.gpus[flavor]
    left = wanted.lend_up_to or 0 if wanted.sharing.lends else 0
    # What others may use before what is the tenant's alone, where nobody could borrow it.
    lendable = pools_of(environment, flavor, tenant.tenant, tenant.tiers)
    for pool in sorted(lendable, key=lambda name: environment.pools[name].sole_tenant is not None):
        if lent := min(left, share.guaranteed(pool, flavor)):
            share.lent.setdefault(pool, {})[flavor] = lent
            left -= lent
    tiers = frozenset(borrowing_tiers(environment, tenant))
    for pool in pools_of(environment, flavor, tenant.tenant, tiers) if tiers else ():
        if more := min(wanted.borrow_up_to or 0, most[pool] - share.guaranteed(pool, flavor)):
            share.borrowed.setdefault(pool, {})[flavor] = more


def most_held(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, int]:
    """The most that one part may hold at once, by flavor: what stands under the queue if the queue fails.

    All that its tier's queue is promised, and for a tier that borrows also what the tenant's other tiers leave idle
    and what the tenant may borrow, in each pool again: Kueue knows no limit over several. Wherever others' guarantees
    stand, it is enough, so that nobody's quota changes with them. Without a queue, what the part itself is promised.
    """
    if not environment.queued:
        return tenant.held_in(namespace)
    tier = tenant.tier_of(namespace)
    most = dict.fromkeys(tenant.gpus, 0)
    borrowing = frozenset(borrowing_tiers(environment, tenant))
    for flavor, share in tenant.gpus.items():
        if not pools_of(environment, flavor, tenant.tenant, frozenset({tier})):
            continue
        if environment.tiers[tier].borrows:
            pools = pools_of(environment, flavor, tenant.tenant, borrowing)
            there = [environment.flavors_of(pool)[flavor] * environment.pools[pool].nodes.max for pool in pools]
            most[flavor] = share.guaranteed + sum(min(share.borrow_up_to or 0, count) for count in there)
        else:
            parts = [part for part in tenant.namespaces if tenant.tier_of(part) == tier]
            most[flavor] = sum(tenant.held_in(part)[flavor] for part in parts)
    return most


def board_units(environment: Environment) -> dict[str, tuple[int, int]]:
    """What one of each extended resource takes of a board, in compute and in memory.

    The queue sees a resource's name alone: where two boards have one name for slices of different size, the larger
    counts for both, in what is asked for and in what is promised. Of one resource alone they would say the same once
    more, for which Kueue takes a fifth of its time: there are none.
    """
    units: dict[str, tuple[int, int]] = {}
    for pool_name, pool in environment.pools.items():
        for flavor in environment.flavors_of(pool_name):
            of, profile = environment.flavors[flavor].gpu, environment.flavors[flavor].mig
            compute = memory = Fraction(1, pool.share.replicas if pool.share else 1)
            if profile:
                board = boards.BOARDS[of]
                compute *= Fraction(board.profiles[profile].compute, board.compute_slices)
                memory *= Fraction(board.profiles[profile].memory, board.memory_units)
            resource = environment.resource_of(flavor)
            before = units.get(resource, (0, 0))
            units[resource] = (max(before[0], _up(compute * BOARD)), max(before[1], _up(memory * BOARD)))
    return units if len(units) > 1 else {}


def _up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def part_of_node(environment: Environment, pool: str, flavor: str) -> Fraction:
    """The part of a node that goes with one GPU, slice or replica: all that it yields make up the node."""

    def part(name: str) -> Fraction:
        profile = environment.flavors[name].mig
        return boards.share_of(environment.flavors[name].gpu, profile) if profile else Fraction(1)

    return part(flavor) / sum(part(name) * each for name, each in environment.flavors_of(pool).items())


@dataclass(frozen=True, slots=True)
class Worth:
    """What one unit of a flavor in a pool is to the queues."""

    cpu: int
    memory: int
    resource: str
    compute: int
    board_memory: int


class Ledger:
    """Turns counts of flavors into quotas of Kueue."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._units = {} if environment.devices_by_claim else board_units(environment)
        self._worth: dict[tuple[str, str], Worth] = {}
        for name in environment.pools:
            yielded = environment.flavors_of(name)
            left, ours = node_allocatable(environment, name), environment.daemonsets(name)
            for flavor in yielded:
                part = part_of_node(environment, name, flavor)
                compute, memory = self._units.get(environment.resource_of(flavor), (0, 0))
                self._worth[name, flavor] = Worth(
                    int((left.cpu - ours.cpu) * part),
                    int((left.memory - ours.memory) * part),
                    queue_resource(environment, flavor),
                    compute,
                    memory,
                )

    def resources(self, flavors: Iterable[str]) -> list[str]:
        """Resources that a queue of these flavors covers, in one order everywhere."""
        names = sorted({queue_resource(self.environment, flavor) for flavor in flavors})
        return [*names, *([BOARD_COMPUTE, BOARD_MEMORY] if names and self._units else [])]

    def gpus(self, stakes: Stakes) -> Counter[tuple[str, str]]:
        """What counts of flavors are of each pool."""
        found: Counter[tuple[str, str]] = Counter()
        for pool, flavors in stakes.items():
            for flavor, count in flavors.items():
                worth = self._worth[pool, flavor]
                found[pool, worth.resource] += count
                if self._units:
                    found[pool, BOARD_COMPUTE] += count * worth.compute
                    found[pool, BOARD_MEMORY] += count * worth.board_memory
        return found

    def all(self, stakes: Stakes) -> Counter[tuple[str, str]]:
        """The same with the CPU and memory that come along."""
        found = self.gpus(stakes)
        for pool, flavors in stakes.items():
            for flavor, count in flavors.items():
                found[ANY_POOL, "cpu"] += count * self._worth[pool, flavor].cpu
                found[ANY_POOL, "memory"] += count * self._worth[pool, flavor].memory
        return found

    def either(self, stakes: Stakes, count: Mapping[str, int]) -> Counter[tuple[str, str]]:
        """Of stakes in several pools that are not all used at once: `count` of each flavor, in whichever pool."""
        found = self.gpus(stakes)
        for flavor, most in count.items():
            worths = [self._worth[pool, flavor] for pool, flavors in stakes.items() if flavor in flavors]
            found[ANY_POOL, "cpu"] += most * max((worth.cpu for worth in worths), default=0)
            found[ANY_POOL, "memory"] += most * max((worth.memory for worth in worths), default=0)
        return found


@cache
def _written(resource: str, count: int) -> str:
    if resource == CORES:
        return quantity.write_count(count)
    if resource == "cpu":
        return quantity.write_count(count // 1000) if count % 1000 == 0 else f"{count}m"
    if resource in {"memory", MEMORY}:
        return quantity.write(amount(f"{count}Mi"))
    return quantity.write_count(count)


def _groups(
    environment: Environment, pools: Sequence[str], resources: Sequence[str], nominal: Amounts, **limits: Amounts
) -> list[dict[str, object]]:
    """Resource groups: CPU and memory, and the GPUs of the pools. Every flavor lists all resources of its group."""

    def flavor(pool: str, name: str, covered: Sequence[str]) -> dict[str, object]:
        return {
            "name": name,
            "resources": [
                {
                    "name": (named := machines.get(resource, resource)),
                    "nominalQuota": _written(named, nominal.get((pool, resource), 0)),
                    **{limit: _written(named, of.get((pool, resource), 0)) for limit, of in limits.items()},
                }
                for resource in covered
            ],
        }

    machines = machine_resources(environment)
    groups: list[dict[str, object]] = [
        {"coveredResources": list(machines.values()), "flavors": [flavor(ANY_POOL, ANY_POOL, list(machines))]},
    ]
    if pools:
        flavors = [flavor(pool, flavor_name(environment, pool), resources) for pool in pools]
        groups.append({"coveredResources": list(resources), "flavors": flavors})
    return groups


def platform_queues(
    environment: Environment, tenants: Sequence[Tenant], found: Mapping[str, Share], ledger: Ledger
) -> Iterator[Object]:
    """What all queues stand on, in the order in which it is made."""
    labels = platform_labels(environment)
    asked_for = {_topology(environment, pool) for pool in environment.pools.values()}
    for layers, topology in TOPOLOGIES.items():
        if topology in asked_for:
            levels = [{"nodeLabel": label} for label in topology_levels(layers)]
            yield manifest(API, "Topology", topology, labels, {"spec": {"levels": levels}})
    yield manifest(API, "ResourceFlavor", ANY_POOL, labels, {"spec": {}})
    for name, pool in sorted(environment.pools.items()):
        if pool.machine.gpus:
            yield _flavor(environment, name, pool)
    for name, value in priorities(environment).items():
        body = {"value": value, "description": "The same as the priority class of that name."}
        yield manifest(API, "WorkloadPriorityClass", name, labels, body)
    if environment.queues.provisioning_class:
        yield from _provisioning(environment)
    yield from _cohorts(environment, tenants, found, ledger)


def _topology(environment: Environment, pool: Pool) -> str | None:
    # Kueue places no pods with claims of devices, and the others on nodes that are there and have all of the labels.
    # Nobody would ever ask for one more, unless a ProvisioningRequest does first.
    there = not pool.scales or environment.queues.provisioning_class is not None
    placed = pool.efa and there and not environment.devices_by_claim
    return TOPOLOGIES.get(pool.network_layers) if placed else None


def machine_resources(environment: Environment) -> dict[str, str]:
    """What CPU and memory are called in the queues."""
    places = any(_topology(environment, pool) for pool in environment.pools.values())
    return {"cpu": CORES, "memory": MEMORY} if places else {"cpu": "cpu", "memory": "memory"}


def _flavor(environment: Environment, name: str, pool: Pool) -> Object:
    taints, topology = node_taints(name, pool), _topology(environment, pool)
    spec = {
        "nodeLabels": {words.POOL: name},
        "nodeTaints": taints,
        # Only who asks for a GPU gets this flavor, so the pods that it opens the pool to are the pool's.
        "tolerations": [{"operator": "Equal", **taint} for taint in taints],
        **({"topologyName": topology} if topology else {}),
    }
    return manifest(API, "ResourceFlavor", flavor_name(environment, name), platform_labels(environment), {"spec": spec})


def _provisioning(environment: Environment) -> Iterator[Object]:
    labels = platform_labels(environment)
    asked = {
        "provisioningClassName": environment.queues.provisioning_class,
        "managedResources": sorted(environment.resources),
    }
    yield manifest(API, "ProvisioningRequestConfig", PROVISIONING, labels, {"spec": asked})
    check = {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": PROVISIONING},
    }
    yield manifest(API, "AdmissionCheck", PROVISIONING, labels, {"spec": check})


def _cohorts(
    environment: Environment, tenants: Sequence[Tenant], found: Mapping[str, Share], ledger: Ledger
) -> Iterator[Object]:
    labels = platform_labels(environment)
    pools = in_preference(environment, (name for name, pool in environment.pools.items() if pool.machine.gpus))
    resources = ledger.resources(environment.flavors)
    there: dict[str, dict[str, int]] = {}
    for flavor, by_pool in supply(environment, surely=False).items():
        for pool, count in by_pool.items():
            there.setdefault(pool, {})[flavor] = count
    rest = {
        pool: {f: count - sum(share.guaranteed(pool, f) for share in found.values()) for f, count in flavors.items()}
        for pool, flavors in there.items()
    }
    spec = {"resourceGroups": _groups(environment, pools, resources, ledger.all(rest))}
    yield manifest(API, "Cohort", ROOT, labels, {"spec": spec})
    everything = ledger.all(there)
    for name, department in sorted(environment.organisation.departments.items()):
        lent: Counter[tuple[str, str]] = Counter()
        for tenant in tenants:
            if tenant.department == name and department.sharing.lends:
                lent.update(ledger.all(found[tenant.tenant].lent))
        spec = {
            "parentName": ROOT,
            "resourceGroups": _groups(
                environment,
                pools,
                resources,
                {},
                borrowingLimit=everything if department.sharing.borrows else {},
                lendingLimit=lent,
            ),
            "fairSharing": {"weight": str(department.weight)},
        }
        yield manifest(API, "Cohort", department_cohort(name), labels, {"spec": spec})


def tenant_queues(environment: Environment, tenant: Tenant, share: Share, ledger: Ledger) -> tuple[Object, ...]:
    """A tenant's queues, one for each tier, and the Cohort over them where there are several.

    Over one queue a Cohort would say once more what the queue says, and Kueue would compare its share with every piece
    of work that it admits.
    """
    labels = tier_labels(environment, tenant, tenant.tier)
    spanned = {tier: open_pools(environment, tenant, tier) for tier in sorted(tenant.tiers)}
    resources = ledger.resources(tenant.gpus)
    borrowed = ledger.either(share.borrowed, {f: wanted.borrow_up_to or 0 for f, wanted in tenant.gpus.items()})
    lent = ledger.all(share.lent)
    nominal = {tier: _nominal(environment, ledger, tenant, tier, share) for tier in spanned}
    whole: Counter[tuple[str, str]] = Counter()
    for amounts in nominal.values():
        whole.update(amounts)
    above, weight = above_queues(tenant), str(tenant.weight)
    alone = above != tenant_cohort(tenant.tenant)
    made: list[Object] = []
    if not alone:
        pools = in_preference(environment, {name for names in spanned.values() for name in names})
        cohort = {
            "parentName": department_cohort(tenant.department),
            "resourceGroups": _groups(environment, pools, resources, {}, borrowingLimit=borrowed, lendingLimit=lent),
            "fairSharing": {"weight": weight},
        }
        made.append(manifest(API, "Cohort", above, labels, {"spec": cohort}))
    for tier, own in nominal.items():
        mine = spanned[tier]
        more = whole + borrowed - own if environment.tiers[tier].borrows else {}
        spec = {
            "cohortName": above,
            "namespaceSelector": {"matchLabels": {words.TENANT: tenant.tenant}},
            "queueingStrategy": "StrictFIFO" if environment.tiers[tier].order is Order.STRICT else "BestEffortFIFO",
            # Explicit limits, all of them: an absent one would mean all there is.
            "resourceGroups": _groups(
                environment, mine, resources, own, borrowingLimit=more, lendingLimit=lent if alone else own
            ),
            # What is promised in any pool before what others lend in a better one: who borrows may be evicted. And free
            # GPUs anywhere before somebody is.
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                # Whoever lends gets it back, from work of any priority.
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "Never"},
            },
            "fairSharing": {"weight": weight if alone else "1"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "stopPolicy": _stop(environment, tenant, mine),
            **_checks(environment, mine),
        }
        labels = tier_labels(environment, tenant, tier)
        made.append(manifest(API, "ClusterQueue", queue_name(tenant.tenant, tier), labels, {"spec": spec}))
    return tuple(made)


def _nominal(
    environment: Environment, ledger: Ledger, tenant: Tenant, tier: str, share: Share
) -> Counter[tuple[str, str]]:
    """What a queue is promised. Of machines without GPUs, what its parts' quotas allow: nobody lends these."""
    found = ledger.all(share.held[tier])
    if any(
        not pool.machine.gpus and pool.admits(tenant.tenant, frozenset({tier})) for pool in environment.pools.values()
    ):
        for namespace in tenant.namespaces:
            if tenant.tier_of(namespace) == tier:
                quota = environment.tiers[tier].allows(namespace.quota)
                found[ANY_POOL, "cpu"] += int(amount(quota.cpu) * 1000)
                found[ANY_POOL, "memory"] += int(amount(quota.memory) / 2**20)
    return found


STOPS = {Gate.OPEN: "None", Gate.HOLD: "Hold", Gate.DRAIN: "HoldAndDrain"}


def _stop(environment: Environment, tenant: Tenant, pools: Collection[str]) -> str:
    if tenant.queue is not Gate.OPEN:
        return STOPS[tenant.queue]
    # One that still has another pool goes on there: the one that ends has no quota left.
    ending = bool(pools) and all(closing(environment, environment.pools[name]) for name in pools)
    return "Hold" if ending else "None"


def _checks(environment: Environment, pools: Iterable[str]) -> dict[str, object]:
    scaling = [flavor_name(environment, name) for name in pools if environment.pools[name].scales]
    if not (environment.queues.provisioning_class and scaling):
        return {}
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": PROVISIONING, "onFlavors": scaling}]}}


def local_queues(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """The queues that a part's work names, `default` for work that names none; nothing without a queue."""
    if not environment.queued:
        return ()
    labels = tenant_labels(environment, tenant, namespace)
    weights = {words.DEFAULT_QUEUE: namespace.weight, **namespace.queues}
    return tuple(
        manifest(
            API,
            "LocalQueue",
            name,
            labels,
            {
                "spec": {
                    "clusterQueue": queue_name(tenant.tenant, tenant.tier_of(namespace)),
                    "stopPolicy": STOPS[namespace.queue],
                    "fairSharing": {"weight": str(weight)},
                }
            },
            namespace=tenant.namespace_name(namespace),
        )
        for name, weight in weights.items()
    )
