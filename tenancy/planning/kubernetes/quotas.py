"""ResourceQuota and LimitRange of a namespace.

Where there is a queue, it limits a tenant to its share, and the quota is a second limit in case the queue is bypassed:
the maximum that the queue could admit. Without a queue, GPUs are capped at the guarantee: nothing could reclaim
borrowed ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import gpus
from tenancy.kube import quantities
from tenancy.planning.common.device_classes import claimable_flavors, device_class
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.common.pools import tenant_allocatable
from tenancy.planning.common.priorities import allowed_classes, class_name
from tenancy.planning.kubernetes.namespace_objects import Bounds, LimitRange, ResourceQuota
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.rules.claim_forms import DRIVER_CLASSES
from tenancy.spec.checks.stored_objects import CLAIM_COUNTS, CLAIMS, object_counts
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.fields.tiers import Quota

NAME = "tenant"
SYSTEM_QUOTA = "system-classes"
SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
CLASS_AS_RESOURCE = "requests.deviceclass.resource.kubernetes.io/"


def gpu_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Every extended resource that a node could offer, with the namespace's limit: granted or zero.

    All profiles of the environment's boards are among them, so that the profiles of a new layout are in every quota
    before the first node offers them. Only the `requests.` form is counted by the API server (quota-01).
    """
    gpu_counts = dict.fromkeys(sorted({*environment.resources, *environment.possible_slices, *gpus.ALWAYS_CAPPED}), 0)
    classes = {}
    for flavor, count in quota_ceiling(environment, tenant, namespace).items():
        if environment.uses_device_claims:
            classes[flavor] = count
        else:
            gpu_counts[environment.resource_of(flavor)] += count
    gpu_counts[gpus.EFA] = efa_share(environment, tenant, namespace)
    return {
        **{f"requests.{resource}": quantities.write_count(count) for resource, count in gpu_counts.items()},
        **claim_quota(environment, classes),
    }


def claim_quota(environment: Environment, class_counts: Mapping[str, int]) -> dict[str, str]:
    """Devices by claim: of every class granted or zero; without DRA no claims at all, so that only one quota counts.

    From Kubernetes 1.36 a container may name a class as a resource, which the class's own quota does not see. The
    second key counts these and claims together, so both have the same number.
    """
    if not environment.uses_device_claims:
        return dict.fromkeys(CLAIM_COUNTS, "0")
    class_limits = dict.fromkeys(DRIVER_CLASSES, 0)
    class_limits |= {device_class(flavor): class_counts.get(flavor, 0) for flavor in claimable_flavors(environment)}
    keys = {
        key: count for name, count in class_limits.items() for key in (f"{name}{CLASS_QUOTA}", CLASS_AS_RESOURCE + name)
    }
    return {key: quantities.write_count(count) for key, count in (keys | dict.fromkeys(CLAIM_COUNTS, CLAIMS)).items()}


def queued_keys(environment: Environment) -> list[str]:
    """Keys of a quota that are full when all is used as it is meant to be: of what the queue gives, and of EFA, which
    goes with it."""
    if not environment.has_queues:
        return []
    extended = (f"requests.{resource}" for resource in (*environment.resources, gpus.EFA))
    return sorted({*extended, *claim_quota(environment, {})} - {*CLAIM_COUNTS})


def efa_share(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    """EFA interfaces that go with the namespace's GPUs: those of as many nodes as the GPUs fill."""
    tiers, interfaces = frozenset({tenant.tier_of(namespace)}), 0
    ceilings = quota_ceiling(environment, tenant, namespace)
    for name, pool in environment.pools.items():
        if pool.efa and pool.admits(tenant.tenant, tiers):
            filled = [-(-ceilings.get(f, 0) // per_node) for f, per_node in environment.flavors_of(name).items()]
            interfaces += min(max(filled, default=0), pool.nodes.max) * pool.machine.efa
    return interfaces


def resource_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> ResourceQuota:
    """The ResourceQuota of a namespace: compute, storage, GPUs and object counts."""
    quota = _quota(environment, tenant, namespace)
    hard = {
        **_compute(quota),
        "requests.ephemeral-storage": quota.ephemeral_storage,
        "limits.ephemeral-storage": quota.ephemeral_storage,
        "requests.storage": quota.storage,
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **{key: quantities.write_count(maximum) for key, maximum in object_counts(environment, quota).items()},
        **quota.hard,
        **gpu_quota(environment, tenant, namespace),
    }
    return ResourceQuota(_meta(environment, tenant, namespace, NAME), dict(sorted(hard.items())))


def _meta(environment: Environment, tenant: Tenant, namespace: Namespace, name: str) -> Meta:
    return Meta(name, tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace))


def class_quotas(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[ResourceQuota, ...]:
    """Quotas of single priority classes, where they are less than the namespace's quota.

    A class has its tier's quota: a namespace of another tier that may also run batch work cannot run more of it than
    a batch namespace. Only the quota limits the namespace's own class. Classes of the system are 0, in addition to
    sched-04. The API server takes no more than pods, cpu and memory under such a scope.
    """
    compute_quota = _compute(_quota(environment, tenant, namespace))

    def quota_for(name: str, classes: Sequence[str], hard: Mapping[str, str]) -> ResourceQuota:
        meta = _meta(environment, tenant, namespace, name)
        return ResourceQuota(meta, dict(sorted(hard.items())), tuple(classes))

    quotas = [quota_for(SYSTEM_QUOTA, SYSTEM_CLASSES, {"pods": "0"})]
    own_tier = tenant.tier_of(namespace)
    for name in allowed_classes(environment, own_tier):
        tier = next((t for t in environment.tiers if class_name(t) == name), own_tier)
        capped = _compute(environment.tiers[tier].quota)
        if lower_limits := {key: limit for key, limit in capped.items() if amount(limit) < amount(compute_quota[key])}:
            quotas.append(quota_for(name, [name], lower_limits))
    return tuple(quotas)


def _quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> Quota:
    return environment.tiers[tenant.tier_of(namespace)].quota_for(namespace.quota)


def _compute(quota: Quota) -> dict[str, str]:
    """CPU, memory and pods, by the keys of a ResourceQuota."""
    return {
        "requests.cpu": quota.cpu,
        "limits.cpu": quota.cpu_limit or quantities.write(2 * amount(quota.cpu)),
        "requests.memory": quota.memory,
        "limits.memory": quota.memory_limit or quantities.write(2 * amount(quota.memory)),
        "pods": quantities.write_count(quota.pods),
    }


def limit_range(environment: Environment, tenant: Tenant, namespace: Namespace) -> LimitRange:
    """Defaults and bounds of containers and claims; never a GPU (quota-02)."""
    tier = environment.tiers[tenant.tier_of(namespace)]
    container, claim = tier.container, tier.volume_claim
    node = _largest_node(environment, tenant, tenant.tier_of(namespace))
    maxima = {
        key: _cap_at_node(maximum, node.get(key), container.default.get(key)) for key, maximum in container.max.items()
    }
    bounds = (
        Bounds("Container", container.min, maxima, container.default, container.default_request),
        Bounds("PersistentVolumeClaim", {"storage": claim.min}, {"storage": claim.max}),
    )
    return LimitRange(_meta(environment, tenant, namespace, NAME), bounds)


def _largest_node(environment: Environment, tenant: Tenant, tier: str) -> dict[str, str]:
    """Per resource, the most that one container can get on any node that the namespace's pods may use."""
    pools = [name for name, pool in environment.pools.items() if pool.admits(tenant.tenant, frozenset({tier}))]
    node_sizes = [tenant_allocatable(environment, name) for name in pools]
    if not node_sizes:
        return {}
    # In whole cores and GiB, so that another daemonset of the platform's does not change the limits of every tenant.
    cpu, memory = max(node.cpu for node in node_sizes) // 1000, max(node.memory for node in node_sizes) // 1024
    return {"cpu": str(cpu), "memory": f"{memory}Gi"}


def _cap_at_node(maximum: str, node: str | None, default: str | None) -> str:
    """The tier's maximum, or what the largest node has if that is less: a container above it would wait for ever.

    Never below the default, which the API server refuses in a LimitRange; reading the files reports such a pool."""
    if node is None or amount(node) >= amount(maximum):
        return maximum
    return default if default and amount(default) > amount(node) else quantities.write(amount(node))
