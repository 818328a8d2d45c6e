"""Kueue's own configuration: one for the cluster, made from the environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.frameworks import BUILT_IN_INTEGRATIONS, FRAMEWORKS
from tenancy.planning.common.device_classes import claimable_flavors, device_class
from tenancy.planning.queueing.queue_names import BOARD_COMPUTE, BOARD_MEMORY, CORES, queue_resource
from tenancy.planning.queueing.queues import machine_resources
from tenancy.planning.queueing.quota_shares import board_units
from tenancy.rules.queues import GATES, PREEMPTION
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.tenant import Tenant

MANAGED_NAMESPACES: dict[str, Any] = {"matchExpressions": [{"key": vocabulary.TENANT, "operator": "Exists"}]}
"""Namespaces in which nothing starts without the queue: tenants'. The chart gives it to the webhooks too, so that the
system's own pods start when Kueue does not answer."""


MAX_STATUS_WRITES = 5
"""Writes a second of LocalQueues' usage, at most: Kueue writes the status of every LocalQueue after each interval,
whether work ran in it or not (v0.19.2 `localqueue_controller.go`)."""
INTERVALS = (5, 10, 15, 20, 30, 60)
"""Minutes between two samples of usage. Few, because a change restarts Kueue; the first is Kueue's default. A job
counts as use for one interval at least, so a longer one is worse for queues of short jobs."""


def sampling_minutes(tenants: Iterable[Tenant]) -> int:
    """Minutes between two samples of the usage of LocalQueues."""
    number = sum(1 + len(namespace.queues) for tenant in tenants for namespace in tenant.namespaces)
    return next((interval for interval in INTERVALS if number <= 60 * interval * MAX_STATUS_WRITES), INTERVALS[-1])


def configuration(environment: Environment, tenants: Iterable[Tenant] = ()) -> dict[str, Any]:
    """Kueue's `Configuration` (v0.19.2 `apis/config/v1beta2`)."""
    queues = environment.queues
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": vocabulary.QUEUE_NAMESPACE,
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {
            "bindAddress": ":8443",
            "enableClusterQueueResources": True,
            # For those each admission goes through every LocalQueue and all that waits in its queue. Absent: it does.
            "localQueueMetrics": {"enable": False},
        },
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": MANAGED_NAMESPACES,
        "integrations": {
            "frameworks": [*BUILT_IN_INTEGRATIONS, *(FRAMEWORKS[kind].integration for kind in sorted(queues.kinds))],
            "labelKeysToCopy": list(vocabulary.CHARGED_LABELS),
        },
        "waitForPodsReady": {
            "timeout": _duration(queues.pods_ready_timeout),
            "recoveryTimeout": _duration(queues.pods_ready_timeout),
            "blockAdmission": False,
            "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600},
        },
        "featureGates": dict(GATES),
        "fairSharing": {"preemptionStrategies": list(PREEMPTION)},
        "admissionFairSharing": {
            "usageHalfLifeTime": _duration(queues.usage_half_life),
            "usageSamplingInterval": f"{sampling_minutes(tenants)}m",
            "resourceWeights": _weights(environment),
        },
        "resources": _resources(environment, tenants),
        "objectRetentionPolicies": {"workloads": {"afterFinished": _duration(queues.finished_workload_retention)}},
    }


def _duration(text: str) -> str:
    """Go knows no days."""
    return f"{seconds(text) // 60}m"


def _weights(environment: Environment) -> dict[str, float]:
    """Weights of resources in the usage: boards alone. At the default of 1 for all, bytes of memory would dominate."""
    ignored = sorted({"cpu", "memory", *machine_resources(environment).values()})
    if environment.uses_device_claims:
        weights = {queue_resource(environment, flavor): 1.0 for flavor in claimable_flavors(environment)}
    else:
        ignored += sorted(environment.resources)
        weights = dict.fromkeys(map(environment.resource_of, sorted(environment.flavors)), 1.0)
        if board_units(environment):
            ignored += [*weights, BOARD_MEMORY]
            weights = {BOARD_COMPUTE: 1.0}
    return {**dict.fromkeys(ignored, 0.0), **weights}


def _resources(environment: Environment, tenants: Iterable[Tenant]) -> dict[str, Any]:
    # What is never short of itself: the disk of a node goes with its CPU, and EFA with a pool's single tenant. What a
    # quota grants beside GPUs is limited by that quota alone. GPUs are not among them: what is left out here is not
    # counted at all.
    excluded = {"excludeResourcePrefixes": ["ephemeral-storage", gpus.EFA, *_granted_resources(environment, tenants)]}
    if environment.uses_device_claims:
        mapped = [
            {"name": queue_resource(environment, flavor), "deviceClassNames": [device_class(flavor)]}
            for flavor in claimable_flavors(environment)
        ]
        return {**excluded, "deviceClassMappings": mapped}
    return {
        **excluded,
        "transformations": [
            {
                "input": resource,
                "strategy": "Retain",
                "outputs": {BOARD_COMPUTE: str(compute), BOARD_MEMORY: str(memory)},
            }
            for resource, (compute, memory) in sorted(board_units(environment).items())
        ]
        + [
            {"input": resource, "strategy": "Replace", "outputs": {output: "1000" if output == CORES else "1"}}
            for resource, output in machine_resources(environment).items()
            if output != resource
        ],
    }


def _granted_resources(environment: Environment, tenants: Iterable[Tenant]) -> list[str]:
    """Resources beside GPUs that the quota of some namespace grants."""
    quotas = [tier.quota for tier in environment.tiers.values()]
    quotas += [namespace.quota for tenant in tenants for namespace in tenant.namespaces if namespace.quota]
    return sorted({name for quota in quotas for name in quota.extra_resources})
