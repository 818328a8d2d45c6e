"""Manifests of platforms that others wrote: Karpenter's pools, Kueue's older versions, layouts of one board."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenancy.check.judge import judge
from tenancy.check.reader import FilePosition, Manifests
from tenancy.rules.catalogue import RULES
from tenancy.rules.model import Severity
from tests.pack_cases import GPU_TAINT, P5, manifest, node_pool, one_of, release, with_field
from tests.pack_cases import cluster_queue as queue

AUTO_MODE = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}
TEMPLATE = ("spec", "template", "spec")


def findings(*items: Any) -> dict[str, str]:
    """The given values of the findings on the objects, by rule."""
    judged = judge(Manifests([(item, FilePosition("x.yaml", 1)) for item in items])).findings
    return {judged_finding.finding.rule: judged_finding.finding.given for judged_finding in judged}


def pool(requirement: Any = P5, *, disruption: Any = None, age: str | None = "Never", **template: Any) -> Any:
    changed_pool = with_field(node_pool("gpus", requirement, [GPU_TAINT]), ("spec", "disruption"), disruption)
    changed_pool = with_field(changed_pool, (*TEMPLATE, "expireAfter"), age)
    for field, value in template.items():
        changed_pool = with_field(changed_pool, (*TEMPLATE, field), value)
    return changed_pool


EMPTY = {"consolidationPolicy": "WhenEmpty"}
CPU = one_of("karpenter.k8s.aws/instance-category", "m")


@pytest.mark.parametrize(
    "disruption",
    [
        None,
        {"consolidationPolicy": "WhenEmptyOrUnderutilized"},
        {"consolidationPolicy": "WhenUnderutilized"},
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "10%"}]},
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "0", "schedule": "@daily"}]},
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]},
    ],
)
def test_a_pool_with_gpus_that_packs_its_work_is_found(disruption: Any) -> None:
    assert "consolidationPolicy" in findings(pool(disruption=disruption))["node-10"]
    assert "node-10" not in findings(pool(CPU, disruption=disruption))


@pytest.mark.parametrize(
    "disruption",
    [
        EMPTY,
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never"},
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "0"}]},
        {"budgets": [{"nodes": "0%", "reasons": ["Underutilized"]}]},
    ],
)
def test_a_pool_that_removes_empty_nodes_alone_is_not(disruption: Any) -> None:
    assert "node-10" not in findings(pool(disruption=disruption))


def test_a_pool_whose_nodes_karpenter_leaves_alone_is_not() -> None:
    safe_pool = with_field(
        pool(), ("spec", "template", "metadata"), {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    )
    assert "node-10" not in findings(safe_pool)
    assert "node-10" not in findings(with_field(pool(), ("spec", "replicas"), 2))


def test_nodes_with_gpus_that_expire_are_found() -> None:
    assert "expireAfter 720h, the default" in findings(pool(disruption=EMPTY, age=None))["node-10"]
    assert "expireAfter 168h" in findings(pool(disruption=EMPTY, age="168h"))["node-10"]


def test_auto_mode_keeps_a_node_21_days_at_most() -> None:
    automatic = one_of("eks.amazonaws.com/instance-family", "p5")
    young = findings(pool(automatic, disruption=EMPTY, age=None, nodeClassRef=AUTO_MODE))
    assert "expireAfter 336h, the default" in young["node-10"]
    assert "node-10" not in findings(pool(automatic, disruption=EMPTY, age="504h", nodeClassRef=AUTO_MODE))


@pytest.mark.parametrize(
    "requirement",
    [
        one_of("eks.amazonaws.com/instance-gpu-manufacturer", "nvidia"),
        one_of("eks.amazonaws.com/instance-gpu-name", "h100"),
        {"key": "eks.amazonaws.com/instance-gpu-count", "operator": "Gt", "values": ["0"]},
        one_of("eks.amazonaws.com/instance-family", "g6e", "p5"),
        one_of("eks.amazonaws.com/instance-category", "p"),
    ],
)
def test_a_pool_of_auto_mode_is_judged_as_one_of_karpenter(requirement: Any) -> None:
    bare = pool(requirement, disruption=EMPTY, age="504h", nodeClassRef=AUTO_MODE, taints=[])
    assert {"node-03", "node-07"} <= set(findings(with_field(bare, ("spec", "limits"), None)))
    assert not {"node-03", "node-07"} & set(findings(with_field(bare, (*TEMPLATE, "taints"), [GPU_TAINT])))
    auto_mode_pool = pool(one_of("eks.amazonaws.com/instance-category", "m"), nodeClassRef=AUTO_MODE, taints=[])
    assert not {"node-03", "node-07", "node-10"} & set(findings(with_field(auto_mode_pool, ("spec", "limits"), None)))


@pytest.mark.parametrize(
    ("kind", "version", "newer"),
    [
        ("Topology", "v1alpha1", "0.19"),
        ("Cohort", "v1alpha1", "0.19"),
        ("Topology", "v1beta1", "0.20"),
        ("ClusterQueue", "v1beta1", "0.20"),
        ("WorkloadPriorityClass", "v1beta1", "0.20"),
    ],
)
def test_an_older_version_of_kueues_api_is_not_served_by_newer_kueue(kind: str, version: str, newer: str) -> None:
    item = manifest(f"kueue.x-k8s.io/{version}", kind, "all", {"spec": {}}, None)
    assert f"not served by Kueue {newer} and newer" in findings(item)["kueue-15"]
    assert RULES["kueue-15"].severity is Severity.HIGH
    assert "kueue-15" not in findings({**item, "apiVersion": "kueue.x-k8s.io/v1beta2"})
    assert "kueue-15" not in findings({**item, "apiVersion": f"topology.example/{version}"})


UNLIMITED = [
    {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}],
    }
]


def test_rules_on_cohorts_read_older_versions_too() -> None:
    old = queue("old", cohortName=None, cohort="bank", preemption={}, resourceGroups=UNLIMITED)
    item = {**old, "apiVersion": "kueue.x-k8s.io/v1beta1"}
    assert {"kueue-12", "kueue-13"} <= set(findings(item))
    assert not {"kueue-12", "kueue-13"} & set(findings(with_field(item, ("spec", "cohort"), None)))
    child = manifest(
        "kueue.x-k8s.io/v1alpha1", "Cohort", "child", {"spec": {"parent": "bank", "resourceGroups": UNLIMITED}}, None
    )
    assert "kueue-12" in findings(child)
    assert "kueue-12" not in findings(with_field(child, ("spec", "parent"), None))


def layouts(device: Any, **slices: int) -> Any:
    group = {"devices": "all", "device-filter": device, "mig-enabled": True, "mig-devices": slices}
    text = json.dumps({"version": "v1", "mig-configs": {"cut": [group]}})
    return manifest("v1", "ConfigMap", "layouts", {"data": {"config.yaml": text}}, None, "gpu-operator")


@pytest.mark.parametrize("device", ["0x290110DE", ["0x290110de"], ["0x290110DE", "0x2BB510DE"]])
def test_a_layout_with_a_device_filter_is_judged_by_that_board(device: Any) -> None:
    for slices in ({"1g.24gb": 4}, {"1g.24gb": 7}):
        assert "b200-180gb has no profile 1g.24gb" in findings(layouts(device, **slices))["mig-01"]
    assert "mig-01" not in findings(layouts("0x290110DE", **{"1g.23gb": 7}))


def test_without_a_filter_any_board_with_such_slices_will_do() -> None:
    for device in (None, []):
        assert "mig-01" not in findings(layouts(device, **{"1g.24gb": 4}))
        assert "rtx-pro-6000" in findings(layouts(device, **{"1g.24gb": 7}))["mig-01"]


def test_a_layout_of_a_board_that_is_not_known_is_not_judged_by_another() -> None:
    for device in ("0xFFFF10DE", ["0xFFFF10DE"]):
        assert "mig-01" not in findings(layouts(device, **{"1g.24gb": 7}))
    assert "mig-01" in findings(layouts(["0xFFFF10DE", "0x2BB510DE"], **{"1g.24gb": 7}))


def test_layouts_in_the_operators_values_are_judged_too() -> None:
    text = layouts("0x290110DE", **{"1g.24gb": 4})["data"]["config.yaml"]
    item = release("operator", {"migManager": {"config": {"create": True, "data": {"config.yaml": text}}}})
    assert "b200-180gb has no profile 1g.24gb" in findings(item)["mig-01"]
    assert "mig-01" not in findings(with_field(item, ("values", "migManager"), {}))


def deployment(deadline: int | None, **labels: str) -> Any:
    spec = {"progressDeadlineSeconds": deadline, "template": {"spec": {"containers": []}}}
    item = manifest("apps/v1", "Deployment", "chat", {"spec": spec}, None, "team-a")
    return with_field(item, ("metadata", "labels"), labels)


QUEUED = {"kueue.x-k8s.io/queue-name": "default"}


@pytest.mark.parametrize("deadline", [None, 60, 600])
def test_a_deployment_in_a_queue_is_advised_to_wait_longer_than_ten_minutes(deadline: int | None) -> None:
    assert "progressDeadlineSeconds" in findings(deployment(deadline, **QUEUED))["kueue-33"]
    assert RULES["kueue-33"].advises
    assert "kueue-33" not in findings(deployment(86400, **QUEUED))
    assert "kueue-33" not in findings(deployment(deadline, app="chat"))


def limit_range(**limits: Any) -> Any:
    body = {"spec": {"limits": [{"type": "Container", **limits}]}}
    return manifest("v1", "LimitRange", "bounds", body, None, "team-a")


@pytest.mark.parametrize("resource", ["hugepages-2Mi", "hugepages-1Gi", "cpu", "memory", "ephemeral-storage"])
def test_a_maximum_without_a_default_is_every_containers_default(resource: str) -> None:
    assert resource in findings(limit_range(max={resource: "1Gi"}))["quota-02"]
    assert "quota-02" not in findings(limit_range(max={resource: "1Gi"}, default={resource: "0"}))
    of_pod = with_field(limit_range(max={resource: "1Gi"}), ("spec", "limits", 0, "type"), "Pod")
    assert "quota-02" not in findings(of_pod), "only a container has defaults"


@pytest.mark.parametrize("field", ["default", "defaultRequest", "min"])
def test_huge_pages_that_every_container_gets_are_found(field: str) -> None:
    assert f"hugepages-2Mi under {field}" in findings(limit_range(**{field: {"hugepages-2Mi": "1Gi"}}))["quota-02"]
    assert "quota-02" not in findings(limit_range(**{field: {"hugepages-2Mi": "0"}}))
