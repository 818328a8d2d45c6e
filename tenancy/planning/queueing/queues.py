"""Kueue's objects: what each tenant is guaranteed, what it may borrow, and who gets GPUs that are reclaimed.

The tree is organisation, department, tenant, and under each tenant a ClusterQueue for every tier that it has. A tenant
is a Cohort: its limits apply to all of its tiers together, and a second tier is one queue more and renames none.

Two kinds of flavor are counted. GPUs by pool, so that admitted pods go where their quota is. CPU and memory once, for
all pools: a flavor with the GPU nodes' labels would send pods without a GPU there. A GPU comes with its part of its
node's CPU and memory, so work that asks for no more than that part waits for GPUs alone.

Sources: Kueue v0.19.2 `apis/kueue/v1beta2`, `pkg/webhooks` and `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.kube.quota_tree import FlavorQuota
from tenancy.planning.common.labels import manifest, platform_labels, tenant_labels, tier_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.common.pools import node_taints
from tenancy.planning.common.priorities import priorities
from tenancy.planning.queueing.clock_access import clock_access
from tenancy.planning.queueing.queue_names import (
    ANY_POOL,
    API,
    CORES,
    MEMORY,
    PROVISIONING,
    ROOT,
    TOPOLOGIES,
    department_cohort,
    flavor_name,
    parent_cohort,
    queue_name,
    tenant_cohort,
    topology_levels,
    topology_of,
)
from tenancy.planning.queueing.queue_objects import (
    OPEN,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueingPlan,
    ResourceFlavor,
    ResourceGroup,
)
from tenancy.planning.queueing.quota_shares import (
    PoolFlavorCounts,
    QueueShare,
    QuotaCalculator,
    has_no_capacity,
    in_preference,
    open_pools,
    supply,
)
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.queues import QueueingStrategy, StopPolicy
from tenancy.spec.fields.tenant import Namespace, Tenant

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
                **{limit: amounts.get((pool, resource), 0) for limit, amounts in limits.items()},
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
    environment: Environment,
    tenants: Sequence[Tenant],
    queue_shares: Mapping[str, QueueShare],
    calculator: QuotaCalculator,
) -> QueueingPlan:
    """Objects that all queues depend on."""
    labels = platform_labels(environment)
    used_topologies = {topology_of(environment, pool) for pool in environment.pools.values()}
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
            if topology in used_topologies
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
        cohorts=tuple(_cohorts(environment, tenants, queue_shares, calculator)),
        clock=clock_access(environment, tenants) if environment.queues.clock else (),
        reserve=_reserve(environment, calculator) if environment.queues.clock else (),
    )


def machine_resources(environment: Environment) -> dict[str, str]:
    """Resource names of CPU and memory in the queues."""
    places = any(topology_of(environment, pool) for pool in environment.pools.values())
    return {"cpu": CORES, "memory": MEMORY} if places else {"cpu": "cpu", "memory": "memory"}


def _flavor(environment: Environment, name: str, pool: Pool) -> ResourceFlavor:
    return ResourceFlavor(
        Meta(flavor_name(environment, name), platform_labels(environment)),
        {vocabulary.POOL: name},
        tuple(node_taints(name, pool)),
        topology_of(environment, pool),
    )


def _provisioning(environment: Environment) -> Iterator[Object]:
    labels = platform_labels(environment)
    settings = {
        "provisioningClassName": environment.queues.provisioning_class,
        "managedResources": sorted(environment.resources),
    }
    yield manifest(API, "ProvisioningRequestConfig", PROVISIONING, labels, {"spec": settings})
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
    amounts = calculator.quota_with_cpu(counts)
    return ClusterQueue(
        Meta(vocabulary.RESERVE_QUEUE, labels, annotations=clock_annotations(environment)),
        ROOT,
        {vocabulary.SPACE_NAME: vocabulary.PLATFORM_NAMESPACE},
        _groups(environment, pools, calculator.resources(environment.flavors), amounts, borrowing={}, lending=amounts),
        weight=1,
        strict=False,
        stop=OPEN,
    )


def _reserve(environment: Environment, calculator: QuotaCalculator) -> tuple[ClusterQueue, LocalQueue]:
    queue = reserve_queue(environment, calculator, {})
    meta = Meta(vocabulary.RESERVE_QUEUE, platform_labels(environment), vocabulary.PLATFORM_NAMESPACE)
    return queue, LocalQueue(meta, queue.name, OPEN, 1)


def clock_annotations(environment: Environment) -> dict[str, str]:
    """Annotations of a queue or Cohort."""
    return {vocabulary.KEPT_BY_CLOCK: "true"} if environment.queues.clock else {}


def _cohorts(
    environment: Environment,
    tenants: Sequence[Tenant],
    queue_shares: Mapping[str, QueueShare],
    calculator: QuotaCalculator,
) -> Iterator[Cohort]:
    labels = platform_labels(environment)
    pools = in_preference(environment, (name for name, pool in environment.pools.items() if pool.machine.gpus))
    resources = calculator.resources(environment.flavors)
    supply_by_pool: dict[str, dict[str, int]] = {}
    for flavor, by_pool in supply(environment, calculator.day, always_on=False).items():
        for pool, count in by_pool.items():
            supply_by_pool.setdefault(pool, {})[flavor] = count
    unallocated = {
        pool: {
            f: count - sum(share.guaranteed(pool, f) for share in queue_shares.values()) for f, count in flavors.items()
        }
        for pool, flavors in supply_by_pool.items()
    }
    annotations = clock_annotations(environment)
    yield Cohort(
        Meta(ROOT, labels, annotations=annotations),
        None,
        _groups(environment, pools, resources, calculator.quota_with_cpu(unallocated)),
    )
    everything = calculator.quota_with_cpu(supply_by_pool)
    for name, department in sorted(environment.organisation.departments.items()):
        lending_limits: Counter[tuple[str, str]] = Counter()
        for tenant in tenants:
            if tenant.department == name and department.sharing.lends:
                lending_limits.update(calculator.quota_with_cpu(queue_shares[tenant.tenant].lending))
        groups = _groups(
            environment,
            pools,
            resources,
            {},
            borrowing=everything if department.sharing.borrows else {},
            lending=lending_limits,
        )
        yield Cohort(Meta(department_cohort(name), labels, annotations=annotations), ROOT, groups, department.weight)


def tenant_queues(
    environment: Environment, tenant: Tenant, share: QueueShare, calculator: QuotaCalculator
) -> tuple[Cohort | None, tuple[ClusterQueue, ...]]:
    """A tenant's queues, one for each tier, and the Cohort over them where there are several.

    Over one queue a Cohort would say once more what the queue says, and Kueue would compare its share with every piece
    of work that it admits.
    """
    labels, annotations = tier_labels(environment, tenant, tenant.tier), clock_annotations(environment)
    pools_by_tier = {tier: open_pools(environment, tenant, tier) for tier in sorted(tenant.tiers)}
    resources = calculator.resources(tenant.gpus)
    borrowed = calculator.quota_for_any_pool(
        share.borrowing, {f: gpu_share.borrows for f, gpu_share in tenant.gpus.items()}
    )
    lending_limits = calculator.quota_with_cpu(share.lending)
    nominal = {tier: _nominal(environment, calculator, tenant, tier, share) for tier in pools_by_tier}
    total_nominal: Counter[tuple[str, str]] = Counter()
    for amounts in nominal.values():
        total_nominal.update(amounts)
    parent = parent_cohort(tenant)
    is_single_queue = parent != tenant_cohort(tenant.tenant)
    cohort: Cohort | None = None
    if not is_single_queue:
        pools = in_preference(environment, {name for names in pools_by_tier.values() for name in names})
        groups = _groups(environment, pools, resources, {}, borrowing=borrowed, lending=lending_limits)
        cohort = Cohort(
            Meta(parent, labels, annotations=annotations), department_cohort(tenant.department), groups, tenant.weight
        )
    queues: list[ClusterQueue] = []
    for tier, tier_nominal in nominal.items():
        tier_pools = pools_by_tier[tier]
        tier_borrowing = total_nominal + borrowed - tier_nominal if environment.tiers[tier].allow_borrowing else {}
        queues.append(
            ClusterQueue(
                Meta(queue_name(tenant.tenant, tier), tier_labels(environment, tenant, tier), annotations=annotations),
                parent,
                {vocabulary.TENANT: tenant.tenant},
                # Explicit limits, all of them: an absent one would mean all there is.
                _groups(
                    environment,
                    tier_pools,
                    resources,
                    tier_nominal,
                    borrowing=tier_borrowing,
                    lending=lending_limits if is_single_queue else tier_nominal,
                ),
                tenant.weight if is_single_queue else 1,
                environment.tiers[tier].queueing_strategy is QueueingStrategy.STRICT_FIFO,
                _stop(environment, tenant, tier_pools, calculator.day),
                _checks(environment, tier_pools),
            )
        )
    return cohort, tuple(queues)


def _nominal(
    environment: Environment, calculator: QuotaCalculator, tenant: Tenant, tier: str, share: QueueShare
) -> Counter[tuple[str, str]]:
    """Nominal quota of a queue. CPU and memory of machines without GPUs follow its namespaces' quotas, not lent."""
    amounts = calculator.quota_with_cpu(share.guarantees[tier])
    if any(
        not pool.machine.gpus and pool.admits(tenant.tenant, frozenset({tier})) for pool in environment.pools.values()
    ):
        for namespace in tenant.namespaces:
            if tenant.tier_of(namespace) == tier:
                quota = environment.tiers[tier].quota_for(namespace.quota)
                amounts[ANY_POOL, "cpu"] += int(amount(quota.cpu) * 1000)
                amounts[ANY_POOL, "memory"] += int(amount(quota.memory) / 2**20)
    return amounts


STOPS = {StopPolicy.NONE: OPEN, StopPolicy.HOLD: "Hold", StopPolicy.HOLD_AND_DRAIN: "HoldAndDrain"}


def _stop(environment: Environment, tenant: Tenant, pools: Collection[str], day: dt.date) -> str:
    if tenant.stop_policy is not StopPolicy.NONE:
        return STOPS[tenant.stop_policy]
    # One that still has another pool goes on there: the one that ends has no quota left.
    is_closed = bool(pools) and all(has_no_capacity(environment, environment.pools[name], day) for name in pools)
    return "Hold" if is_closed else OPEN


def _checks(environment: Environment, pools: Iterable[str]) -> tuple[AdmissionCheck, ...]:
    scaling = tuple(flavor_name(environment, name) for name in pools if environment.pools[name].is_autoscaled)
    if not (environment.queues.provisioning_class and scaling):
        return ()
    return (AdmissionCheck(PROVISIONING, scaling),)


def local_queues(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[LocalQueue, ...]:
    """The queues that a namespace's work names, `default` for work that names none; nothing without a queue."""
    if not environment.has_queues:
        return ()
    labels, namespace_name = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)
    cluster_queue = queue_name(tenant.tenant, tenant.tier_of(namespace))
    weights = {vocabulary.DEFAULT_QUEUE: namespace.weight, **namespace.queues}
    return tuple(
        LocalQueue(Meta(name, labels, namespace_name), cluster_queue, STOPS[namespace.stop_policy], weight)
        for name, weight in weights.items()
    )
