"""ResourceQuota and LimitRange of a namespace.

Where there is a queue, it holds a tenant to its share, and the quota stands under it, should the queue be stepped
around: at the most that the queue could give. Without one, GPUs are capped at what is guaranteed: nobody could call
borrowed ones back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import gpus, quantity
from tenancy.catalog import vocabulary as words
from tenancy.plan.devices import DRIVER_CLASSES, claimable, device_class
from tenancy.plan.guards.who import frameworks
from tenancy.plan.labels import manifest, tenant_labels
from tenancy.plan.model import Object
from tenancy.plan.priorities import allowed_classes, class_name
from tenancy.plan.queues import most_held
from tenancy.spec.base import amount
from tenancy.spec.environment import Environment, Quota
from tenancy.spec.tenant import Namespace, Tenant

NAME = "tenant"
SYSTEM_QUOTA = "system-classes"
SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
CLASS_AS_RESOURCE = "requests.deviceclass.resource.kubernetes.io/"
CLAIM_COUNTS = ("count/resourceclaims.resource.k8s.io", "count/resourceclaimtemplates.resource.k8s.io")
CLAIMS = 200
"""Device claims of one namespace: a runaway controller stops here, not at the cluster's limits."""
WORKLOADS = "count/workloads.kueue.x-k8s.io"
NETWORK_POLICIES = 50
"""Of one namespace, the platform's own among them; each is work for every node's agent."""
SERVICE_ACCOUNTS = 50
"""Of one namespace; its pods may use only those that the tenant's file names."""
REPLICA_SETS = 12
"""Of one Deployment: ten old ones by default (`revisionHistoryLimit`), the one that stands and the next."""


def gpu_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Every extended resource that a node could bring, with what the namespace holds of it: granted or zero.

    All profiles of the environment's boards are among them, so that a new layout surprises nobody: it is in every
    quota before the first node offers it. Only the `requests.` form is counted by the API server (quota-01).
    """
    held = dict.fromkeys(sorted({*environment.resources, *environment.possible_slices, *gpus.ALWAYS_CAPPED}), 0)
    classes = {}
    for flavor, count in most_held(environment, tenant, namespace).items():
        if environment.devices_by_claim:
            classes[flavor] = count
        else:
            held[environment.resource_of(flavor)] += count
    held[gpus.EFA] = efa_share(environment, tenant, namespace)
    return {
        **{f"requests.{resource}": quantity.write_count(count) for resource, count in held.items()},
        **claim_quota(environment, classes),
    }


def claim_quota(environment: Environment, held: Mapping[str, int]) -> dict[str, str]:
    """Devices by claim: of every class granted or zero; without DRA no claims at all, so that only one quota counts.

    From Kubernetes 1.36 a container may name a class as a resource, which the class's own quota does not see. The
    second key counts these and claims together, so both hold the same number.
    """
    if not environment.devices_by_claim:
        return dict.fromkeys(CLAIM_COUNTS, "0")
    most = dict.fromkeys(DRIVER_CLASSES, 0)
    most |= {device_class(flavor): held.get(flavor, 0) for flavor in claimable(environment)}
    keys = {key: count for name, count in most.items() for key in (f"{name}{CLASS_QUOTA}", CLASS_AS_RESOURCE + name)}
    return {key: quantity.write_count(count) for key, count in (keys | dict.fromkeys(CLAIM_COUNTS, CLAIMS)).items()}


def queued_lines(environment: Environment) -> list[str]:
    """Keys of a quota that are full when all is used as it is meant to be: of what the queue gives, and of EFA, which
    goes with it."""
    if not environment.queued:
        return []
    extended = (f"requests.{resource}" for resource in (*environment.resources, gpus.EFA))
    return sorted({*extended, *claim_quota(environment, {})} - {*CLAIM_COUNTS})


def efa_share(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    """EFA interfaces that go with the GPUs that may be held: those of as many nodes as the GPUs fill."""
    tiers, interfaces = frozenset({tenant.tier_of(namespace)}), 0
    held = most_held(environment, tenant, namespace)
    for name, pool in environment.pools.items():
        if pool.efa and pool.admits(tenant.tenant, tiers):
            filled = [-(-held.get(f, 0) // each) for f, each in environment.flavors_of(name).items()]
            interfaces += min(max(filled, default=0), pool.nodes.max) * pool.machine.efa
    return interfaces


def resource_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> Object:
    quota = _quota(environment, tenant, namespace)
    hard = {
        **_compute(quota),
        "requests.ephemeral-storage": quota.ephemeral_storage,
        "limits.ephemeral-storage": quota.ephemeral_storage,
        "requests.storage": quota.storage,
        "persistentvolumeclaims": quantity.write_count(quota.volume_claims),
        "services": quantity.write_count(quota.services),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        "secrets": quantity.write_count(quota.secrets),
        "configmaps": quantity.write_count(quota.config_maps),
        "count/jobs.batch": quantity.write_count(quota.jobs),
        "count/cronjobs.batch": quantity.write_count(quota.jobs),
        "count/deployments.apps": quantity.write_count(quota.deployments),
        "count/statefulsets.apps": quantity.write_count(quota.deployments),
        "count/poddisruptionbudgets.policy": quantity.write_count(2 * quota.deployments),
        "count/horizontalpodautoscalers.autoscaling": quantity.write_count(2 * quota.deployments),
        "count/networkpolicies.networking.k8s.io": quantity.write_count(NETWORK_POLICIES),
        "count/replicasets.apps": quantity.write_count(REPLICA_SETS * quota.deployments),
        # Each holds a whole template, and a StatefulSet keeps as many as it says.
        "count/controllerrevisions.apps": quantity.write_count(REPLICA_SETS * quota.deployments),
        "count/serviceaccounts": quantity.write_count(SERVICE_ACCOUNTS),
        # A workload for each pod that is queued by itself, and for each job.
        **({WORKLOADS: quantity.write_count(quota.pods + quota.jobs)} if environment.queued else {}),
        **{f"count/{f.resource}.{f.group}": quantity.write_count(quota.jobs) for f in frameworks(environment)},
        **quota.other,
        **gpu_quota(environment, tenant, namespace),
    }
    return manifest(
        "v1",
        "ResourceQuota",
        NAME,
        tenant_labels(environment, tenant, namespace),
        {"spec": {"hard": dict(sorted(hard.items()))}},
        namespace=words.derived_name(tenant.tenant, namespace.name),
    )


def class_quotas(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """What pods of each priority class may hold of the namespace's quota, where that is less than all of it.

    A class brings its tier's quota along: whoever may also run batch work does not run more of it than batch tenants
    do. The namespace's own class is held by its quota alone. Classes of the system are 0, behind sched-04. The API
    server takes no more than pods, cpu and memory under such a scope.
    """
    whole = _compute(_quota(environment, tenant, namespace))
    labels, where = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)

    def made(name: str, classes: Sequence[str], hard: Mapping[str, str]) -> Object:
        of = [{"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}]
        body = {"spec": {"hard": dict(sorted(hard.items())), "scopeSelector": {"matchExpressions": of}}}
        return manifest("v1", "ResourceQuota", name, labels, body, namespace=where)

    quotas = [made(SYSTEM_QUOTA, SYSTEM_CLASSES, {"pods": "0"})]
    own = tenant.tier_of(namespace)
    for name in allowed_classes(environment, own):
        tier = next((t for t in environment.tiers if class_name(t) == name), own)
        capped = _compute(environment.tiers[tier].quota)
        if less := {key: most for key, most in capped.items() if amount(most) < amount(whole[key])}:
            quotas.append(made(name, [name], less))
    return tuple(quotas)


def _quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> Quota:
    return environment.tiers[tenant.tier_of(namespace)].allows(namespace.quota)


def _compute(quota: Quota) -> dict[str, str]:
    """CPU, memory and pods, by the keys of a ResourceQuota."""
    return {
        "requests.cpu": quota.cpu,
        "limits.cpu": quota.cpu_limit or quantity.write(2 * amount(quota.cpu)),
        "requests.memory": quota.memory,
        "limits.memory": quota.memory_limit or quantity.write(2 * amount(quota.memory)),
        "pods": quantity.write_count(quota.pods),
    }


def limit_range(environment: Environment, tenant: Tenant, namespace: Namespace) -> Object:
    """Defaults and bounds of containers and claims; never a GPU (quota-02)."""
    tier = environment.tiers[tenant.tier_of(namespace)]
    container, claim = tier.container, tier.claim
    limits = [
        {
            "type": "Container",
            "default": dict(container.default),
            "defaultRequest": dict(container.default_request),
            "min": dict(container.min),
            "max": dict(container.max),
        },
        {"type": "PersistentVolumeClaim", "min": {"storage": claim.min}, "max": {"storage": claim.max}},
    ]
    return manifest(
        "v1",
        "LimitRange",
        NAME,
        tenant_labels(environment, tenant, namespace),
        {"spec": {"limits": limits}},
        namespace=words.derived_name(tenant.tenant, namespace.name),
    )
