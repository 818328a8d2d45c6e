"""Huge pages and other extended resources: a quota that names them grants them, in every place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy.catalog import vocabulary
from tenancy.cli import main
from tenancy.planning import make_plan
from tenancy.planning.queueing.kueue import configuration
from tenancy.spec.loader import load
from tenancy.spec.reading.problems import SpecError
from tests.demo import demo

HUGE, HCA = "requests.hugepages-2Mi", "requests.rdma/hca"


def granting(folder: Path, other_resources: dict[str, Any], place: str = "tier") -> Path:
    """An environment whose tier, or whose tenant's namespace, has these further keys in its quota."""
    files = demo()
    if place == "tier":
        files["environment"]["tiers"]["steady"]["quota"] = {"hard": other_resources}
    else:
        files["vision"]["namespaces"] = [{"name": "main", "quota": {"hard": other_resources}}]
    return files.write(folder)


def allowed(folder: Path) -> list[str]:
    loaded = load(folder)
    objects = make_plan(loaded, loaded.day).objects()
    (space,) = [item for item in objects if item["kind"] == "Namespace" and item["metadata"]["name"] == "vision--main"]
    return space["metadata"]["annotations"][vocabulary.ALLOWED_RESOURCES].split(",")


@pytest.mark.parametrize("place", ["tier", "namespace"])
@pytest.mark.parametrize(("key", "resource"), [(HUGE, "hugepages-2Mi"), (HCA, "rdma/hca")])
def test_a_resource_of_the_quota_may_be_asked_for_and_is_not_counted_by_the_queue(
    tmp_path: Path, place: str, key: str, resource: str
) -> None:
    folder = granting(tmp_path, {key: "40Gi" if key == HUGE else "8"}, place)
    assert resource in allowed(folder)
    loaded = load(folder)
    left_out = configuration(loaded.environment, loaded.tenants)["resources"]["excludeResourcePrefixes"]
    assert resource in left_out
    hard = [
        item["spec"]["hard"]
        for item in make_plan(loaded, loaded.day).objects()
        if item["kind"] == "ResourceQuota" and item["metadata"]["namespace"] == "vision--main"
    ]
    assert any(key in quota for quota in hard)


def test_a_resource_with_an_amount_of_zero_and_a_count_of_objects_are_not_granted(tmp_path: Path) -> None:
    folder = granting(tmp_path, {HCA: "0", "count/leases.coordination.k8s.io": "5"})
    assert {"rdma/hca", "leases.coordination.k8s.io"}.isdisjoint(allowed(folder))
    assert "rdma/hca" not in str(configuration(load(folder).environment))


@pytest.mark.parametrize(
    ("other_resources", "change"),
    [
        ({HUGE: "5"}, "write 2Mi"),
        ({HUGE: "5121Ki"}, "write 6Mi"),
        ({"requests.hugepages-2M": "5Gi"}, "write requests.hugepages-2Mi"),
        ({"requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}, "drop it"),
        ({"requests.nvidia.com/gpu": "1"}, "drop it"),
        ({"requests.vpc.amazonaws.com/efa": "1"}, "drop it"),
    ],
)
def test_what_cannot_be_granted_by_a_quota_is_refused_when_it_is_read(
    tmp_path: Path, other_resources: dict[str, Any], change: str
) -> None:
    with pytest.raises(SpecError) as refused:
        load(granting(tmp_path, other_resources))
    (problem,) = refused.value.problems
    assert problem.change.startswith(change)


def test_a_sample_job_of_whole_nodes_with_efa_has_interfaces_and_huge_pages(tmp_path: Path) -> None:
    folder = granting(tmp_path, {HUGE: "40Gi"})
    result = CliRunner().invoke(main, ["sample", "job", str(folder), "--tenant", "vision", "--gpu", "h100=8"])
    assert result.exit_code == 0, result.output
    (container,) = json.loads(result.output)["spec"]["template"]["spec"]["containers"]
    for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
        assert (amounts["vpc.amazonaws.com/efa"], amounts["hugepages-2Mi"]) == ("32", "5Gi")
    part = CliRunner().invoke(main, ["sample", "job", str(folder), "--tenant", "vision", "--gpu", "h100=4"])
    assert "amazonaws.com/efa" not in part.output


def test_a_sample_asks_for_no_huge_pages_that_are_not_granted(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["sample", "job", str(demo().write(tmp_path)), "--tenant", "vision", "--gpu", "h100=8"]
    )
    assert "amazonaws.com/efa" in result.output
    assert "hugepages" not in result.output
