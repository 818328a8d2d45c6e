"""Objects of the simulation's cluster: the queues of the environment, and a Workload for each job."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.meta import Meta
from tenancy.planning.common.priorities import class_name, priorities
from tenancy.planning.plan_model import Plan
from tenancy.planning.queueing.queue_names import API, queue_resource
from tenancy.planning.queueing.queue_objects import ClusterQueue
from tenancy.planning.services import queue_chart
from tenancy.simulation.trace import Job
from tenancy.spec.fields.queues import seconds
from tenancy.spec.loader import Loaded

POD_CPU = 1
"""CPU and memory of a pod for each device: less than the device's part of a node, so that only devices are scarce."""
NEVER = "8760h"
EXPECTED_SPEED = 360.0
"""Simulated seconds per real second, by which settings of Kueue in real time are scaled."""

SAMPLING_SECONDS = 20

# Settings that are left out or overridden, in the words of the report.
OVERRIDES = (
    "waitForPodsReady: every pod is ready at once",
    f"admissionFairSharing: half-life {EXPECTED_SPEED:.0f} times shorter, because the clock is about that much faster",
    "flavors have no topology: the placement of a job in a pool is not modelled",
    "no admission checks: all nodes of an autoscaled pool exist from the start",
)


def kueue_values(loaded: Loaded, speed: float = EXPECTED_SPEED) -> dict[str, Any]:
    """The environment's values of Kueue's chart, without settings that depend on the wall clock.

    `speed`: simulated seconds per real second; at 1 usage is sampled and decays as the environment configures.
    """
    chart = queue_chart(loaded.environment, loaded.tenants)
    if chart is None:
        raise ValueError("an environment without queues")
    values = json.loads(json.dumps(chart.values))
    manager = values["managerConfig"]
    import yaml

    configuration = yaml.safe_load(manager["controllerManagerConfigYaml"])
    configuration["waitForPodsReady"] |= {"timeout": NEVER, "recoveryTimeout": NEVER}
    if speed != 1:
        half_life = seconds(loaded.environment.queues.usage_half_life) / speed
        configuration["admissionFairSharing"] |= {
            "usageHalfLifeTime": f"{max(1, round(half_life))}s",
            # Not more often than needed: each sample of a queue is a request.
            "usageSamplingInterval": f"{SAMPLING_SECONDS}s",
        }
    # Dates are in the past, so finished objects would be deleted at once, with three useless requests each.
    configuration.pop("objectRetentionPolicies", None)
    manager["controllerManagerConfigYaml"] = json.dumps(configuration)
    return values


def cluster_objects(plan: Plan) -> Iterator[Object]:
    """Manifests of a plan's queues in order of creation, without topologies, admission checks, guards, ResourceQuotas
    and RBAC."""
    if queueing := plan.platform.queueing:
        flavors = tuple(replace(flavor, topology=None) for flavor in queueing.flavors)
        if queueing.reserve:
            yield Meta(vocabulary.PLATFORM_NAMESPACE, {}).manifest("v1", "Namespace", {})
        yield from replace(queueing, topologies=(), flavors=flavors, checks=(), clock=()).manifests()
    for tenant in plan.tenants:
        queues = tuple(map(unchecked, tenant.cluster_queues))
        yield from replace(tenant, cluster_queues=queues).queues
        for namespace in tenant.namespaces:
            yield Meta(namespace.name, {vocabulary.TENANT: tenant.name}).manifest("v1", "Namespace", {})
            yield from (queue.manifest() for queue in namespace.local_queues)


def unchecked(queue: ClusterQueue) -> ClusterQueue:
    """The queue without admission checks: all nodes exist from the start."""
    return replace(queue, checks=())


def uid_of(number: int) -> str:
    """A uid in order: of two workloads with the same time Kueue takes the smaller uid first."""
    return f"00000000-0000-4000-8000-{number:012x}"


def number_of(uid: str) -> int | None:
    """Number of the job that a uid belongs to; None for another object."""
    head, _, tail = uid.rpartition("-")
    return int(tail, 16) if head == "00000000-0000-4000-8000" else None


def workload(loaded: Loaded, job: Job, namespace: str, number: int, created: dt.datetime) -> Object:
    """The Workload of a job as Kueue's Job controller would write it in a namespace, created at a given time."""
    environment = loaded.environment
    priority = class_name(job.tier)
    resource = queue_resource(environment, job.flavor)
    requests: Mapping[str, str] = {
        "cpu": str(POD_CPU * job.gpus_per_pod),
        "memory": f"{job.gpus_per_pod}Gi",
        resource: str(job.gpus_per_pod),
    }
    container = {"name": "main", "image": "simulated", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": f"job-{number}",
            "namespace": namespace,
            "uid": uid_of(number),
            "generation": 1,
            "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            # As Kueue's webhook does: without it the object would be deleted before the cache is updated.
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        },
        "spec": {
            "active": True,
            "queueName": vocabulary.DEFAULT_QUEUE if job.queue is None else job.queue,
            "priority": priorities(environment)[priority],
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": priority},
            "podSets": [
                {
                    "name": "main",
                    "count": job.gpus // job.gpus_per_pod,
                    "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}},
                }
            ],
        },
    }
