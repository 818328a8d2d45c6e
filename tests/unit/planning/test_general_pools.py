"""Pools without GPUs: where work runs that GPU nodes keep off."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog import gpus
from tenancy.planning import make_plan
from tenancy.planning.common.pools import extended_resources, fake_nodes, node_labels, node_taints
from tenancy.planning.queueing.pool_yields import pool_yield
from tenancy.spec.loader import Loaded
from tests.conftest import every

ENV = "environment.yaml"
AWS = """\
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: arn:aws:iam::111122223333:role/platform
buckets:"""
GENERAL = "  general: {instance-type: m7i.8xlarge, nodes: {min: 1, max: 5}%s}\n  serve:\n"


@pytest.fixture
def loaded(spec: Any) -> Loaded:
    spec.edit(ENV, "  serve:\n", GENERAL % "")
    spec.edit(ENV, "buckets:", AWS)
    return spec.load()


def test_its_nodes_have_no_gpus_and_no_taints(loaded: Loaded) -> None:
    pool = loaded.environment.pools["general"]
    assert extended_resources(loaded.environment, "general") == {}
    assert node_taints("general", pool) == []
    assert not {label for label in node_labels("general", pool) if label.startswith("nvidia.com/")}


def test_a_restricted_one_keeps_others_off(spec: Any) -> None:
    spec.edit(ENV, "  serve:\n", GENERAL % ", tenants: [research]")
    (taint,) = node_taints("general", spec.load().environment.pools["general"])
    assert taint["value"] == "general"


def test_its_image_is_the_one_without_drivers(loaded: Loaded) -> None:
    plan = make_plan(loaded, loaded.day)
    assert plan.cluster
    (group,) = [group for group in plan.cluster.groups if group.name == "general"]
    assert group.ami_type == "AL2023_x86_64_STANDARD"
    assert "/x86_64/standard/" in group.release


def test_karpenter_needs_no_overlay_for_it(loaded: Loaded) -> None:
    plan = make_plan(loaded, loaded.day)
    assert plan.platform.services
    kinds = [n["kind"] for n in plan.platform.services.nodes if n["metadata"]["name"] == "general"]
    assert kinds == ["EC2NodeClass", "NodePool"]


def test_it_is_in_the_lab_with_what_pods_get(loaded: Loaded) -> None:
    (node,) = [n for n in fake_nodes(loaded.environment) if n["metadata"]["name"].startswith("general-")]
    assert node["status"]["allocatable"].keys() == {"cpu", "memory", "ephemeral-storage", "pods"}


def test_reports_say_that_it_has_none(loaded: Loaded) -> None:
    general_yield = pool_yield(loaded.environment, "general")
    assert (general_yield.units, general_yield.layout) == ((), "no GPUs")


@pytest.mark.parametrize("field", ["mig: {layout: {1g.5gb: 1}}", "gpu-sharing: {time-slicing: 2}, tenants: [research]"])
def test_what_is_for_gpus_is_refused_on_it(spec: Any, field: str) -> None:
    spec.edit(ENV, "  serve:\n", GENERAL % f", {field}")
    assert spec.problem().id == "pool-09"


def _changes_by_general_pool(spec: Any, users: str) -> tuple[list[str], list[str]]:
    """Changes by a pool without GPUs: names of objects, and amounts in their queues."""
    before = list(planning.plan(*_parts(spec.load())).objects())
    spec.edit(ENV, "  serve:\n", GENERAL % users)
    after = list(planning.plan(*_parts(spec.load())).objects())
    assert len(before) == len(after)
    object_pairs = [
        (object_before, object_after)
        for object_before, object_after in zip(before, after, strict=True)
        if object_before != object_after
    ]
    pairs = [pair for pair in object_pairs if "resourceGroups" in pair[0].get("spec", {})]
    moved = {
        f"{flavor['name']} {resource['name']} {field}"
        for pair in pairs
        for object_before, object_after in [[item["spec"].pop("resourceGroups") for item in pair]]
        for old, new in zip(object_before, object_after, strict=True)
        for flavor, then in zip(old["flavors"], new["flavors"], strict=True)
        for resource, now in zip(flavor["resources"], then["resources"], strict=True)
        for field in resource
        if resource[field] != now[field]
    }
    assert every(object_before == object_after for object_before, object_after in pairs), "but for amounts"
    return [
        f"{object_before['kind']}/{object_before['metadata']['name']}" for object_before, _ in object_pairs
    ], sorted(moved)


PROMISED = [f"any.pool {what} nominalQuota" for what in ("cpu", "memory")]
BETWEEN_TIERS = [
    f"any.pool {what} {field}" for what in ("cpu", "memory") for field in ("borrowingLimit", "lendingLimit")
]


def test_cpu_and_memory_of_queues_alone_change_with_it(spec: Any) -> None:
    """Resources of namespaces without a GPU are in their queue too; a tenant's tiers lend them to each other."""
    names, moved = _changes_by_general_pool(spec, "")
    assert names == [f"ClusterQueue/{queue}" for queue in ("fraud--batch", "fraud--production", "research--batch")]
    assert moved == sorted(PROMISED + BETWEEN_TIERS)


def test_a_restricted_one_changes_its_tenants_queues_alone(spec: Any) -> None:
    names, moved = _changes_by_general_pool(spec, ", tenants: [research]")
    assert names == ["ClusterQueue/research--batch", "Namespace/research--main"]
    assert moved == PROMISED


def _parts(loaded: Loaded) -> tuple[Any, Any]:
    return loaded.environment, loaded.tenants


def test_the_taint_of_gpu_nodes_is_still_on_gpu_nodes(loaded: Loaded) -> None:
    assert node_taints("train", loaded.environment.pools["train"])[0]["key"] == gpus.GPU_TAINT
