"""What the simulation's cluster holds: the environment's own queues, and a Workload for a job."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.plan import make_plan
from tenancy.plan.model import Object
from tenancy.plan.priorities import class_name, priorities
from tenancy.plan.queues import API, queue_resource
from tenancy.plan.services import queue_chart
from tenancy.simulation.trace import Job
from tenancy.spec import Loaded
from tenancy.spec.queues import seconds

POD_CPU, POD_MEMORY = 1, "1Gi"
"""What a pod asks for with each device: less than the device's part of its node, so that devices alone are short."""
NEVER = "8760h"
EXPECTED_SPEED = 360.0
"""Simulated seconds in a real one: what Kueue measures in real time is scaled by it."""

SAMPLING_SECONDS = 20

# What is left out or overridden, as the report says it.
OVERRIDES = (
    "waitForPodsReady: no pod is ever late",
    f"admissionFairSharing: the half-life {EXPECTED_SPEED:.0f} times shorter, as the clock is about that much faster",
    "flavors without a topology: where in a pool a job lies is not modelled",
    "no admission checks: nodes of an autoscaled pool are there at once",
)


def kueue_values(loaded: Loaded, speed: float = EXPECTED_SPEED) -> dict[str, Any]:
    """The environment's own values of Kueue's chart, but for what would go by the wall clock.

    `speed`: simulated seconds in a real one; at 1 use is sampled and forgotten as the environment says.
    """
    chart = queue_chart(loaded.environment)
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
            # As often as it is worth: each sample of a queue is a request.
            "usageSamplingInterval": f"{SAMPLING_SECONDS}s",
        }
    # Dates are in the past, so all that ends would be due at once: three requests for nothing.
    configuration.pop("objectRetentionPolicies", None)
    manager["controllerManagerConfigYaml"] = json.dumps(configuration)
    return values


def cluster_objects(loaded: Loaded) -> Iterator[Object]:
    """The queues of an environment in the order in which they are made; no guard, no quota, nobody's rights."""
    plan = make_plan(loaded.environment, loaded.tenants)
    for item in plan.platform.queues:
        if item["kind"] not in {"Topology", "AdmissionCheck", "ProvisioningRequestConfig"}:
            yield _without(item, "topologyName")
    for tenant in plan.tenants:
        for item in tenant.queues:
            yield _without(item, "admissionChecksStrategy")
        for namespace in tenant.namespaces:
            labels = {words.TENANT: tenant.name}
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name, "labels": labels}}
            yield from (item for item in namespace.isolation if item["kind"] == "LocalQueue")


def _without(item: Object, field: str) -> Object:
    if "spec" not in item:
        return item
    return {**item, "spec": {name: value for name, value in item["spec"].items() if name != field}}


def uid_of(number: int) -> str:
    """Of two with the same time Kueue takes the smaller one first."""
    return f"00000000-0000-4000-8000-{number:012x}"


def number_of(uid: str) -> int | None:
    head, _, tail = uid.rpartition("-")
    return int(tail, 16) if head == "00000000-0000-4000-8000" else None


def workload(loaded: Loaded, job: Job, number: int, made: dt.datetime) -> Object:
    """A job as Kueue's controller for Jobs would write it down, made at a given time."""
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
            "namespace": words.derived_name(job.tenant, job.part),
            "uid": uid_of(number),
            "generation": 1,
            "creationTimestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            # As Kueue's webhook does: without it the object would vanish before the cache knows.
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        },
        "spec": {
            "active": True,
            "queueName": words.DEFAULT_QUEUE if job.queue is None else job.queue,
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
