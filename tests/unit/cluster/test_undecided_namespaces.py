"""Work of others is named before guards refuse it, and so is work that would reach tenants' GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenancy.cluster.undecided_namespaces import UndecidedNamespace, judged_work, problem, takes_gpus
from tenancy.planning import make_plan
from tenancy.spec.loader import load

LOCAL = Path(__file__).parents[3] / "stacks" / "local"
MAIN: dict[str, Any] = {"name": "main", "image": "any"}


@pytest.mark.parametrize(
    ("spec", "is_gpu_pod"),
    [
        ({"containers": [MAIN]}, False),
        ({"containers": [{**MAIN, "resources": {"limits": {"nvidia.com/gpu": 1}}}]}, True),
        ({"containers": [{**MAIN, "resources": {"limits": {"hugepages-2Mi": "1Gi"}}}]}, False),
        ({"containers": [MAIN], "initContainers": [{**MAIN, "resources": {"requests": {"nvidia.com/gpu": 1}}}]}, True),
        ({"containers": [MAIN], "tolerations": [{"operator": "Exists"}]}, True),
        ({"containers": [MAIN], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, True),
        ({"containers": [MAIN], "tolerations": [{"key": "tenancy.gpu/pool", "value": "train"}]}, True),
        ({"containers": [MAIN], "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}, False),
    ],
)
def test_a_pod_takes_gpus_by_what_it_asks_for_or_tolerates(spec: dict[str, Any], is_gpu_pod: bool) -> None:
    assert takes_gpus({"metadata": {"name": "one"}, "spec": spec}) is is_gpu_pod


CPU: dict[str, Any] = {"spec": {"containers": [MAIN]}}
GPU: dict[str, Any] = {"spec": {"containers": [{**MAIN, "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


@pytest.mark.parametrize("has_head", [True, False], ids=["with its kind", "as a list of its kind has it"])
@pytest.mark.parametrize(
    ("kind", "pod_fields", "twin"),
    [
        (("v1", "Pod"), GPU, CPU),
        (("apps/v1", "Deployment"), {"spec": {"template": GPU}}, {"spec": {"template": CPU}}),
        (
            ("batch/v1", "CronJob"),
            {"spec": {"jobTemplate": {"spec": {"template": GPU}}}},
            {"spec": {"jobTemplate": {"spec": {"template": CPU}}}},
        ),
        (
            ("ray.io/v1", "RayCluster"),
            {"spec": {"headGroupSpec": {"template": CPU}, "workerGroupSpecs": [{"template": CPU}, {"template": GPU}]}},
            {"spec": {"headGroupSpec": {"template": CPU}, "workerGroupSpecs": [{"template": CPU}, {"template": CPU}]}},
        ),
        # A kind that no rule knows by its name.
        (
            ("forge.example/v1", "Smelter"),
            {"spec": {"stages": [{"podTemplate": GPU["spec"]}]}},
            {"spec": {"stages": [{"podTemplate": CPU["spec"]}]}},
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_gpus_are_seen_wherever_a_kind_holds_its_pods(
    kind: tuple[str, str], pod_fields: dict[str, Any], twin: dict[str, Any], has_head: bool
) -> None:
    head = {"apiVersion": kind[0], "kind": kind[1]} if has_head else {}
    assert takes_gpus({**head, **pod_fields})
    assert not takes_gpus({**head, **twin})
    assert not takes_gpus({**head, **twin, "status": pod_fields}), "a status asks for nothing"


def test_what_is_asked_for_is_what_guards_refuse_outside_of_tenants() -> None:
    loaded = load(LOCAL)
    resources = {resource for _, _, resource in judged_work(make_plan(loaded, loaded.day))}
    assert {"pods", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs"} <= resources


def test_each_namespace_is_named_with_what_would_be_refused() -> None:
    namespace = UndecidedNamespace("cert-manager", {"pods": 3, "deployments": 1}, ("APIService v1.x",), ("pods/agent",))
    text = problem([namespace])
    assert text.startswith("given 1 namespace with work and no decision; rule ns-06: ")
    assert "platform.unmanaged-namespaces" in text
    assert text.splitlines()[1:] == [
        "  cert-manager: ns-02 refuses when created again: 3 pods, 1 deployments; its services answer for APIService "
        "v1.x; as unmanaged, gpu-12 would refuse pods/agent"
    ]
