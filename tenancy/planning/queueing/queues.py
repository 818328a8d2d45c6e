"""Kueue's objects: what each tenant is guaranteed, what it may borrow, and who gets GPUs that are reclaimed.

The tree is organisation, department, tenant, and under each tenant a ClusterQueue for every tier that it has. A tenant
is a Cohort: its limits apply to all of its tiers together, and a second tier is one queue more and renames none.

Two kinds of flavor are counted. GPUs by pool, so that admitted pods go where their quota is. CPU and memory once, for
all pools: a flavor with the GPU nodes' labels would send pods without a GPU there. A GPU comes with its part of its
node's CPU and memory, so work that asks for no more than that part waits for GPUs alone.

Sources: Kueue v0.19.2 `apis/kueue/v1beta2`, `pkg/webhooks` and `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.kube.quota_tree import FlavorQuota
from tenancy.planning.common.labels import manifest, platform_labels, tenant_labels, tier_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.common.pools import node_taints
from tenancy.planning.common.priorities import priorities
from tenancy.planning.queueing.clock_access import clock_access
from tenancy.planning.queueing.model import (
    OPEN,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueingPlan,
    ResourceFlavor,
    ResourceGroup,
)
from tenancy.planning.queueing.queue_names import (
    ANY_POOL,
    API,
    CORES,
    MEMORY,
    PROVISIONING,
    ROOT,
    TOPOLOGIES,
    above_queues,
    department_cohort,
    flavor_name,
    queue_name,
    tenant_cohort,
    topology_levels,
    topology_of,
)
from tenancy.planning.queueing.quota_shares import (
    PoolFlavorCounts,
    QueueShare,
    QuotaCalculator,
    closing,
    in_preference,
    open_pools,
    supply,
)
from tenancy.schema.base import amount
from tenancy.schema.environment import Environment
from tenancy.schema.pools import Pool
from tenancy.schema.queues import QueueOrder, QueueState
from tenancy.schema.tenant import Namespace, Tenant

Amounts = Mapping[tuple[str, str], int]
"""(Kueue's flavor, resource) -> CPU in thousandths, memory in Mi, the rest in units."""


def _groups(
    environment: Environment, pools: Sequence[str], resources: Sequence[str], nominal: Amounts, **limits: Amounts
) -> tuple[ResourceGroup, ...]:
    """Resource groups: CPU and memory, and the GPUs of the pools. Every flavor lists all resources of its group.

    `limits` are `borrowing` and `lending`; a limit that is given is 0 for what it does not name.
    """

    def flavor(pool: str, covered: Sequence[str]) -> dict[str, FlavorQuota]:
        return {
            machines.get(resource, resource): FlavorQuota(
                nominal.get((pool, resource), 0),
                **{limit: of.get((pool, resource), 0) for limit, of in limits.items()},
            )
            for resource in covered
        }

    machines = machine_resources(environment)
    groups = [ResourceGroup(tuple(machines.values()), {ANY_POOL: flavor(ANY_POOL, list(machines))})]
    if pools:
        flavors = {flavor_name(environment, pool): flavor(pool, resources) for pool in pools}
        groups.append(ResourceGroup(tuple(resources), flavors))
    return tuple(groups)


def platform_queues(
    environment: Environment, tenants: Sequence[Tenant], found: Mapping[str, QueueShare], calculator: QuotaCalculator
) -> QueueingPlan:
    """Objects that all queues depend on."""
    labels = platform_labels(environment)
    asked_for = {topology_of(environment, pool) for pool in environment.pools.values()}
    pools = [(name, pool) for name, pool in sorted(environment.pools.items()) if pool.machine.gpus]
    return QueueingPlan(
        topologies=tuple(
            manifest(
                API,
                "Topology",
                topology,
                labels,
                {"spec": {"levels": [{"nodeLabel": label} for label in topology_levels(layers)]}},
            )
            for layers, topology in TOPOLOGIES.items()
            if topology in asked_for
        ),
        flavors=(ResourceFlavor(Meta(ANY_POOL, labels)), *(_flavor(environment, name, pool) for name, pool in pools)),
        priorities=tuple(
            manifest(
                API,
                "WorkloadPriorityClass",
                name,
                labels,
                {"value": value, "description": "The same as the priority class of that name."},
            )
            for name, value in priorities(environment).items()
        ),
        checks=tuple(_provisioning(environment)) if environment.queues.provisioning_class else (),
        cohorts=tuple(_cohorts(environment, tenants, found, calculator)),
        clock=clock_access(environment, tenants) if environment.queues.clock else (),
        reserve=_reserve(environment, calculator) if environment.queues.clock else (),
    )


def machine_resources(environment: Environment) -> dict[str, str]:
    """What CPU and memory are called in the queues."""
    places = any(topology_of(environment, pool) for pool in environment.pools.values())
    return {"cpu": CORES, "memory": MEMORY} if places else {"cpu": "cpu", "memory": "memory"}


def _flavor(environment: Environment, name: str, pool: Pool) -> ResourceFlavor:
    return ResourceFlavor(
        Meta(flavor_name(environment, name), platform_labels(environment)),
        {words.POOL: name},
        tuple(node_taints(name, pool)),
        topology_of(environment, pool),
    )


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


def reserve_queue(environment: Environment, calculator: QuotaCalculator, counts: PoolFlavorCounts) -> ClusterQueue:
    """The queue of the Workloads that reserve GPUs for windows. All of its quota is lent, so that Kueue has to reclaim
    from borrowers what it admits there: quota that is not lent counts as free while others still use the GPUs."""
    labels = {**platform_labels(environment)}
    pools = in_preference(environment, (name for name, pool in environment.pools.items() if pool.machine.gpus))
    amounts = calculator.all(counts)
    return ClusterQueue(
        Meta(words.RESERVE_QUEUE, labels, annotations=kept_by_clock(environment)),
        ROOT,
        {words.SPACE_NAME: words.PLATFORM_NAMESPACE},
        _groups(environment, pools, calculator.resources(environment.flavors), amounts, borrowing={}, lending=amounts),
        weight=1,
        strict=False,
        stop=OPEN,
    )


def _reserve(environment: Environment, calculator: QuotaCalculator) -> tuple[ClusterQueue, LocalQueue]:
    queue = reserve_queue(environment, calculator, {})
    meta = Meta(words.RESERVE_QUEUE, platform_labels(environment), words.PLATFORM_NAMESPACE)
    return queue, LocalQueue(meta, queue.name, OPEN, 1)


def kept_by_clock(environment: Environment) -> dict[str, str]:
    """Annotations of a queue or Cohort."""
    return {words.KEPT_BY_CLOCK: "true"} if environment.queues.clock else {}


def _cohorts(
    environment: Environment, tenants: Sequence[Tenant], found: Mapping[str, QueueShare], calculator: QuotaCalculator
) -> Iterator[Cohort]:
    labels = platform_labels(environment)
    pools = in_preference(environment, (name for name, pool in environment.pools.items() if pool.machine.gpus))
    resources = calculator.resources(environment.flavors)
    there: dict[str, dict[str, int]] = {}
    for flavor, by_pool in supply(environment, always_on=False).items():
        for pool, count in by_pool.items():
            there.setdefault(pool, {})[flavor] = count
    rest = {
        pool: {f: count - sum(share.guaranteed(pool, f) for share in found.values()) for f, count in flavors.items()}
        for pool, flavors in there.items()
    }
    kept = kept_by_clock(environment)
    yield Cohort(
        Meta(ROOT, labels, annotations=kept), None, _groups(environment, pools, resources, calculator.all(rest))
    )
    everything = calculator.all(there)
    for name, department in sorted(environment.organisation.departments.items()):
        lent: Counter[tuple[str, str]] = Counter()
        for tenant in tenants:
            if tenant.department == name and department.sharing.lends:
                lent.update(calculator.all(found[tenant.tenant].lent))
        groups = _groups(
            environment,
            pools,
            resources,
            {},
            borrowing=everything if department.sharing.borrows else {},
            lending=lent,
        )
        yield Cohort(Meta(department_cohort(name), labels, annotations=kept), ROOT, groups, department.weight)


def tenant_queues(
    environment: Environment, tenant: Tenant, share: QueueShare, calculator: QuotaCalculator
) -> tuple[Cohort | None, tuple[ClusterQueue, ...]]:
    """A tenant's queues, one for each tier, and the Cohort over them where there are several.

    Over one queue a Cohort would say once more what the queue says, and Kueue would compare its share with every piece
    of work that it admits.
    """
    labels, kept = tier_labels(environment, tenant, tenant.tier), kept_by_clock(environment)
    spanned = {tier: open_pools(environment, tenant, tier) for tier in sorted(tenant.tiers)}
    resources = calculator.resources(tenant.gpus)
    borrowed = calculator.either(share.borrowed, {f: wanted.borrows for f, wanted in tenant.gpus.items()})
    lent = calculator.all(share.lent)
    nominal = {tier: _nominal(environment, calculator, tenant, tier, share) for tier in spanned}
    whole: Counter[tuple[str, str]] = Counter()
    for amounts in nominal.values():
        whole.update(amounts)
    above = above_queues(tenant)
    alone = above != tenant_cohort(tenant.tenant)
    cohort: Cohort | None = None
    if not alone:
        pools = in_preference(environment, {name for names in spanned.values() for name in names})
        groups = _groups(environment, pools, resources, {}, borrowing=borrowed, lending=lent)
        cohort = Cohort(
            Meta(above, labels, annotations=kept), department_cohort(tenant.department), groups, tenant.weight
        )
    made: list[ClusterQueue] = []
    for tier, own in nominal.items():
        mine = spanned[tier]
        more = whole + borrowed - own if environment.tiers[tier].borrows else {}
        made.append(
            ClusterQueue(
                Meta(queue_name(tenant.tenant, tier), tier_labels(environment, tenant, tier), annotations=kept),
                above,
                {words.TENANT: tenant.tenant},
                # Explicit limits, all of them: an absent one would mean all there is.
                _groups(environment, mine, resources, own, borrowing=more, lending=lent if alone else own),
                tenant.weight if alone else 1,
                environment.tiers[tier].order is QueueOrder.STRICT,
                _stop(environment, tenant, mine),
                _checks(environment, mine),
            )
        )
    return cohort, tuple(made)


def _nominal(
    environment: Environment, calculator: QuotaCalculator, tenant: Tenant, tier: str, share: QueueShare
) -> Counter[tuple[str, str]]:
    """What a queue is guaranteed. Of machines without GPUs, what its namespaces' quotas allow: these are not lent."""
    found = calculator.all(share.held[tier])
    if any(
        not pool.machine.gpus and pool.admits(tenant.tenant, frozenset({tier})) for pool in environment.pools.values()
    ):
        for namespace in tenant.namespaces:
            if tenant.tier_of(namespace) == tier:
                quota = environment.tiers[tier].quota_for(namespace.quota)
                found[ANY_POOL, "cpu"] += int(amount(quota.cpu) * 1000)
                found[ANY_POOL, "memory"] += int(amount(quota.memory) / 2**20)
    return found


STOPS = {QueueState.OPEN: OPEN, QueueState.HOLD: "Hold", QueueState.DRAIN: "HoldAndDrain"}


def _stop(environment: Environment, tenant: Tenant, pools: Collection[str]) -> str:
    if tenant.queue is not QueueState.OPEN:
        return STOPS[tenant.queue]
    # One that still has another pool goes on there: the one that ends has no quota left.
    ending = bool(pools) and all(closing(environment, environment.pools[name]) for name in pools)
    return "Hold" if ending else OPEN


def _checks(environment: Environment, pools: Iterable[str]) -> tuple[AdmissionCheck, ...]:
    scaling = tuple(flavor_name(environment, name) for name in pools if environment.pools[name].is_autoscaled)
    if not (environment.queues.provisioning_class and scaling):
        return ()
    return (AdmissionCheck(PROVISIONING, scaling),)


def local_queues(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[LocalQueue, ...]:
    """The queues that a namespace's work names, `default` for work that names none; nothing without a queue."""
    if not environment.has_queues:
        return ()
    labels, where = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)
    leads = queue_name(tenant.tenant, tenant.tier_of(namespace))
    weights = {words.DEFAULT_QUEUE: namespace.weight, **namespace.queues}
    return tuple(
        LocalQueue(Meta(name, labels, where), leads, STOPS[namespace.queue], weight) for name, weight in weights.items()
    )
