"""Work that a queue could never admit is reported before anything is created."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tenancy import planning
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.queue import QueueAdmission
from tenancy.kube.objects import Object
from tests.attack_worlds import world_of

SPACE = "fraud--train"
GPU = "nvidia.com/gpu"


@cache
def _objects() -> tuple[Object, ...]:
    return tuple(planning.plan(*world_of("local")).objects())


def _causes(item: Object, *, namespace: str = SPACE, objects: tuple[Object, ...] | None = None) -> list[str]:
    queues = QueueAdmission(world_of("local")[0], ClusterObjects(_objects() if objects is None else objects))
    return [str(cause) for cause in queues.obstacles(item, namespace)]


def _job(
    count: int = 1, labels: dict[str, str] | None = None, selector: dict[str, str] | None = None, **amounts: Any
) -> Object:
    resource_requests = {
        "cpu": "100m",
        "memory": "128Mi",
        **{name.replace("__", "/").replace("_", "."): n for name, n in amounts.items()},
    }
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": resource_requests, "limits": resource_requests},
    }
    spec: Object = {"containers": [container], "restartPolicy": "Never", "nodeSelector": selector or {}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x", "labels": labels or {}},
        "spec": {"parallelism": count, "completions": count, "template": {"spec": spec}},
    }


def test_work_that_fits_has_no_obstacle() -> None:
    assert _causes(_job(nvidia_com__gpu=1)) == []
    assert _causes(_job(8, nvidia_com__gpu=8)) == []


def test_more_gpus_than_the_queue_can_ever_have() -> None:
    (cause,) = _causes(_job(9, nvidia_com__gpu=8))
    assert "It never starts" in cause
    assert "72 nvidia.com/gpu at once, and the maximum of its queue is 64" in cause


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (_job(labels={"kueue.x-k8s.io/queue-name": "team-queue"}), "there is no queue team-queue in its namespace"),
        (_job(example_com__fpga=1), "its queue has no example.com/fpga"),
    ],
)
def test_a_queue_or_a_resource_that_is_not_there(item: Object, message: str) -> None:
    (cause,) = _causes(item)
    assert message in cause


def test_a_queue_on_hold_is_named() -> None:
    stopped_objects = tuple(
        {**item, "spec": {**item["spec"], "stopPolicy": "Hold"}} if item["kind"] == "ClusterQueue" else item
        for item in _objects()
    )
    assert _causes(_job()) == []
    (cause,) = _causes(_job(), objects=stopped_objects)
    assert "on hold" in cause


def test_what_makes_no_pods_or_is_no_tenants_has_no_queue() -> None:
    assert _causes({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {}}) == []
    assert _causes(_job(99, nvidia_com__gpu=8), namespace="kube-system") == []
