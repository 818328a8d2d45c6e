"""Resources that tenants' object quotas can use: bytes of the API server's store, and memory of Kueue, which caches
whole objects. Computed with the largest objects that the guards admit (avail-05).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from tenancy.catalog import sizes
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube import quantities
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.fields.tiers import Quota, Tier

STORE_BYTES = 8 * 2**30
"""Size of etcd's database on EKS (EKS user guide, "Amazon EKS clusters"; etcd's documentation suggests no more)."""
SHARE = Fraction(1, 2)
"""Share of the store for objects in tenants' quotas. The other half is for former revisions, for events, and for the
platform's objects."""
REVISION_SECONDS = 600
"""Seconds that etcd keeps a former revision at most: every 5 minutes the API server compacts up to the revision that it
saw one round before, so for 5 to 10 minutes (apiserver v0.36.3 `pkg/storage/etcd3/compact.go`). On EKS neither can be
set."""

STORED_BYTES = sizes.SPEC + sizes.METADATA
"""Bytes of the largest object of a built-in kind. They are stored as protobuf, no longer than the text that the guards
count; field managers are part of the metadata."""
JSON_GROWTH = 6
"""Bytes of the largest custom resource, stored as JSON, in which a `<` takes six bytes (tenancy/catalog/sizes.py)."""
WORKLOAD_BYTES = JSON_GROWTH * sizes.SPEC
"""Bytes of the largest Workload: the templates of its job. Its metadata are Kueue's, and small."""

JOBS, PODS, WORKLOADS = "count/jobs.batch", "count/pods", "count/workloads.kueue.x-k8s.io"
_CONFIGS = ("configmaps", "secrets")

NETWORK_POLICIES = 50
"""Network policies of one namespace, the platform's included; every node's agent processes each of them."""
SERVICE_ACCOUNTS = 50
"""Service accounts of one namespace; its pods may use only those that the tenant's file names."""
REPLICA_SETS = 12
"""ReplicaSets of one Deployment: ten old ones by default (`revisionHistoryLimit`), the current and the next one."""
OTHER_KINDS = 5
"""Jobs per object of each further queued kind in a namespace: such an object may take six times a job's bytes in the
store."""
CLAIMS = 200
"""Device claims of one namespace: a runaway controller stops here, not at the cluster's limits."""
CLAIM_COUNTS = ("count/resourceclaims.resource.k8s.io", "count/resourceclaimtemplates.resource.k8s.io")

KUEUE_BASE = 256 * 2**20
"""Memory of Kueue with an empty cache, bytes."""
KUEUE_PER_BYTE = 3
"""Bytes of Kueue's live heap per byte of a spec. Metadata are texts, with one byte per byte."""
CACHED_BYTES = KUEUE_PER_BYTE * sizes.SPEC + sizes.METADATA
"""Bytes of the largest job, pod or workload in Kueue's live heap."""
GO_GROWTH = 2
"""Go collects when the heap has doubled (GOGC 100). The chart sets no environment, so there is no GOMEMLIMIT."""
KUEUE_SIZES = tuple(2**30 * each for each in (1, 2, 3, 4, 6))
"""Memory limits that Kueue may get, in bytes. Few sizes, because a change restarts Kueue. The largest leaves room on
an m7i.xlarge, the default of the system nodes, for the 8 GiB of Prometheus: each of two replicas needs a node."""


def object_counts(environment: Environment, quota: Quota) -> dict[str, int]:
    """Keys of a namespace's ResourceQuota that count objects."""
    ended = 2 * quota.jobs if quota.ended_pods is None else quota.ended_pods
    claims = CLAIMS if environment.uses_device_claims else 0
    return {
        "persistentvolumeclaims": quota.volume_claims,
        "services": quota.services,
        "secrets": quota.secrets,
        "configmaps": quota.config_maps,
        # Ended pods too, which the key `pods` does not count.
        PODS: quota.pods + ended,
        JOBS: quota.jobs,
        "count/cronjobs.batch": quota.cron_jobs,
        "count/deployments.apps": quota.deployments,
        "count/statefulsets.apps": quota.deployments,
        "count/poddisruptionbudgets.policy": 2 * quota.deployments,
        "count/horizontalpodautoscalers.autoscaling": 2 * quota.deployments,
        "count/networkpolicies.networking.k8s.io": NETWORK_POLICIES,
        "count/replicasets.apps": REPLICA_SETS * quota.deployments,
        # Each contains a whole template, and a StatefulSet keeps as many as its revisionHistoryLimit.
        "count/controllerrevisions.apps": REPLICA_SETS * quota.deployments,
        "count/serviceaccounts": SERVICE_ACCOUNTS,
        # A Workload for each pod that is queued by itself, and for each job, until these are deleted.
        **({WORKLOADS: quota.pods + ended + quota.jobs} if environment.has_queues else {}),
        **dict.fromkeys(framework_counts(environment), -(-quota.jobs // OTHER_KINDS)),
        **dict.fromkeys(CLAIM_COUNTS, claims),
    }


def framework_counts(environment: Environment) -> tuple[str, ...]:
    """Keys of the further kinds that are queued."""
    if not environment.has_queues:
        return ()
    # An unknown kind is reported by itself.
    frameworks = [FRAMEWORKS[kind] for kind in sorted({*environment.queues.kinds} & FRAMEWORKS.keys())]
    return tuple(f"count/{framework.resource}.{framework.group}" for framework in frameworks)


def _all_counts(environment: Environment, quota: Quota) -> dict[str, int]:
    """Object quotas, including those of a tier's `hard`."""
    other_counts = {key: quantities.units(text) for key, text in quota.hard.items() if _counts_objects(key)}
    return object_counts(environment, quota) | other_counts


def _counts_objects(key: str) -> bool:
    return key.startswith("count/") or key in {"replicationcontrollers", "resourcequotas"}


class _Maxima(NamedTuple):
    """Maxima of one namespace: the number of its objects, their bytes in the store, and of Kueue's live heap."""

    objects: int
    stored_bytes: int
    cached_bytes: int


class ObjectQuotas:
    """Object quotas of an environment's tenants. Those of a tier are counted once for all namespaces that have them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        frameworks = framework_counts(environment)
        self._sizes_of_kind = {**dict.fromkeys(frameworks, JSON_GROWTH * STORED_BYTES), WORKLOADS: WORKLOAD_BYTES}
        self._cached_kinds = (JOBS, PODS, WORKLOADS, *frameworks) if environment.has_queues else ()
        self._of_tier: dict[str, _Maxima] = {}

    def _maxima(self, tenant: Tenant) -> Iterator[_Maxima]:
        """Maxima of each namespace; an undeclared tier is reported by itself."""
        for part in tenant.namespaces:
            name = tenant.tier_of(part)
            if not (tier := self._environment.tiers.get(name)):
                continue
            if part.quota:
                yield self._of_quota(tier, tier.quota_for(part.quota))
                continue
            if name not in self._of_tier:
                self._of_tier[name] = self._of_quota(tier, tier.quota)
            yield self._of_tier[name]

    def _of_quota(self, tier: Tier, quota: Quota) -> _Maxima:
        counts = _all_counts(self._environment, quota)
        data = sizes.LARGE_DATA if tier.allow_large_config else sizes.DATA
        largest = self._sizes_of_kind | dict.fromkeys(_CONFIGS, data + sizes.METADATA)
        return _Maxima(
            sum(counts.values()),
            sum(count * largest.get(key, STORED_BYTES) for key, count in counts.items()),
            sum(counts[key] for key in self._cached_kinds) * CACHED_BYTES,
        )

    def objects(self, tenant: Tenant) -> int:
        """Maximum number of objects that a tenant may store."""
        return sum(maxima.objects for maxima in self._maxima(tenant))

    def stored_bytes(self, tenant: Tenant) -> int:
        """Maximum that a tenant may store, in bytes of etcd's database without former revisions."""
        return sum(maxima.stored_bytes for maxima in self._maxima(tenant))

    def cached_bytes(self, tenant: Tenant) -> int:
        """Maximum of Kueue's live heap for a tenant's jobs, pods and workloads, in bytes."""
        return sum(maxima.cached_bytes for maxima in self._maxima(tenant))

    def kueue_need(self, tenants: Sequence[Tenant]) -> int:
        """Memory that Kueue needs, before it is rounded up to one of the sizes, in bytes."""
        cached_bytes = [self.cached_bytes(tenant) for tenant in tenants]
        live = max([*cached_bytes, sum(cached_bytes) // self._environment.cluster.object_overcommit, 0])
        return KUEUE_BASE + GO_GROWTH * live


def store_budget() -> int:
    """Maximum that all tenants may store together, in bytes."""
    return int(STORE_BYTES * SHARE)


def kueue_memory(environment: Environment, tenants: Sequence[Tenant]) -> int:
    """Memory limit of Kueue, in bytes: for all tenants together, divided by object-overcommit; at least enough for the
    largest tenant alone, and at most what a node has."""
    need = ObjectQuotas(environment).kueue_need(tenants)
    return next((size for size in KUEUE_SIZES if size >= need), KUEUE_SIZES[-1])
