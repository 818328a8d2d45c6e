from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog.versions import (
    ADD_ON_FLOORS,
    ADD_ONS,
    AMI_DEFAULT,
    AMI_FLOOR,
    AMI_FLOORS,
    CHARTS,
    COMPATIBLE,
    add_on_misfit,
    ami_name,
    ami_release_misfit,
    incompatible,
    karpenter_alias,
    minor_step,
)
from tenancy.deploy.cluster_changes import kubernetes_refusal
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import load, spec_notes
from tests.conftest import every
from tests.demo import demo


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_pinned_to_one_release(name: str) -> None:
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", CHARTS[name].version), "no range, no tag that moves"


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_comes_over_an_encrypted_road(name: str) -> None:
    assert CHARTS[name].repository.startswith(("https://", "oci://"))


def test_karpenter_and_its_crds_are_of_one_release() -> None:
    assert CHARTS["karpenter"].version == CHARTS["karpenter-crd"].version


@pytest.mark.parametrize(
    ("name", "version", "refused"),
    [
        ("aws-ebs-csi-driver", "v1.57.1-eksbuild.1", "before v1.58.0"),
        ("aws-ebs-csi-driver", "v1.58.0-eksbuild.1", None),
        ("aws-ebs-csi-driver", "v1.100.0-eksbuild.1", None),
        ("eks-node-monitoring-agent", "v1.6.3-eksbuild.1", "before v1.6.4"),
        ("eks-node-monitoring-agent", "v1.6.4-eksbuild.1", None),
        ("coredns", "v1.11.1-eksbuild.8", None),
        ("coredns", "1.11.1", "not like v1.2.3-eksbuild.1"),
        ("coredns", "latest", "not like v1.2.3-eksbuild.1"),
    ],
)
def test_a_version_of_an_add_on_is_one_build_and_not_older_than_the_platform_needs(
    name: str, version: str, refused: str | None
) -> None:
    misfit = add_on_misfit(name, version)
    assert misfit is None if refused is None else misfit is not None and refused in misfit


@pytest.mark.parametrize(
    ("current", "requested_version", "step"),
    [
        ("1.36", "1.36", None),
        ("1.36", "1.37", None),
        ("1.36", "1.38", "1.37"),
        ("1.33", "1.36", "1.34"),
        ("1.9", "1.11", "1.10"),
        ("1.36", "1.35", "1.36"),
        ("1.36", "1.30", "1.36"),
    ],
)
def test_a_cluster_goes_one_minor_at_a_time_and_none_back(
    current: str, requested_version: str, step: str | None
) -> None:
    assert minor_step(current, requested_version) == step


def cluster_of(version: str, live_version: str | None = None) -> list[dict[str, Any]]:
    """The state of a cluster that was made with a version, and that AWS reports with another."""
    cluster = {"type": "aws:eks/cluster:Cluster", "inputs": {"version": version}}
    return [
        {"type": "aws:ec2/vpc:Vpc", "inputs": {}},
        {**cluster, "outputs": {"version": live_version} if live_version else {}},
    ]


def test_an_update_by_two_minors_or_back_is_refused_with_the_next_step() -> None:
    plan = planning.plan(*bank()).cluster
    assert plan
    assert plan.kubernetes == "1.36"
    for current in ("1.36", "1.35"):
        assert kubernetes_refusal(plan, cluster_of(current)) is None
    assert kubernetes_refusal(plan, []) is None, "it is not made yet"
    jump = kubernetes_refusal(plan, cluster_of("1.33"))
    assert jump is not None
    assert jump.startswith("given cluster.kubernetes: 1.36, and cluster bank of Kubernetes 1.33; rule: EKS updates")
    assert 'change: write "1.34", run `tenancy up`, and write "1.36" afterwards; nothing was changed' in jump
    back = kubernetes_refusal(plan, cluster_of("1.37"))
    assert back is not None
    assert 'change: write "1.37"; nothing was changed' in back


def test_the_version_that_aws_reports_counts_before_the_one_that_was_written() -> None:
    plan = planning.plan(*bank()).cluster
    assert plan
    assert kubernetes_refusal(plan, cluster_of("1.34", live_version="1.35")) is None, (
        "EKS updated it at the end of its support"
    )


def bank() -> tuple[Environment, Sequence[Tenant]]:
    loaded = load(Path(__file__).parents[3] / "stacks" / "bank")
    return loaded.environment, loaded.tenants


def test_every_floor_is_of_an_add_on_that_is_installed() -> None:
    assert set(ADD_ON_FLOORS) <= set(ADD_ONS)


def test_floors_of_the_node_images_only_rise() -> None:
    releases = [release for release, _ in AMI_FLOORS]
    assert every(earlier < next_floor for earlier, next_floor in pairwise(releases))


def test_the_floor_is_the_one_that_closes_every_hole() -> None:
    assert max(release for release, _ in AMI_FLOORS) == AMI_FLOOR


def test_the_floor_is_past_the_release_whose_toolkit_has_the_known_escape() -> None:
    assert ami_release_misfit("v20260512"), "container toolkit 1.19.0"


@pytest.mark.parametrize("release", [AMI_FLOOR, AMI_DEFAULT])
def test_the_floor_and_the_default_fit(release: str) -> None:
    assert ami_release_misfit(release) is None


@pytest.mark.parametrize(("release", "hole"), [("v20260403", 0), ("v20260423", 1), ("v20260523", 2)])
def test_a_release_below_the_floor_is_told_the_oldest_hole_it_has(release: str, hole: int) -> None:
    assert ami_release_misfit(release) == f"AMI release {release}, before {AMI_FLOOR}: {AMI_FLOORS[hole][1]}"


@pytest.mark.parametrize(
    "release", ["", "latest", "20260903", "v20261399", "v2026090", "v202609031", "1.36.3-20260903"]
)
def test_a_release_is_v_and_a_day(release: str) -> None:
    assert "not v and a day" in (ami_release_misfit(release) or "")


def test_an_image_is_named_as_the_release_notes_list_it() -> None:
    name = ami_name("1.36", "x86_64", "nvidia", "v20260903")
    assert name == "amazon-eks-node-al2023-x86_64-nvidia-1.36-v20260903"


def test_karpenter_asks_for_the_same_release() -> None:
    assert karpenter_alias("v20260903") == "al2023@v20260903"


@pytest.mark.parametrize("what", COMPATIBLE)
def test_the_default_kubernetes_runs_everything(what: str) -> None:
    assert incompatible("1.36", what) is None


@pytest.mark.parametrize("what", COMPATIBLE)
def test_a_range_of_minors_is_not_empty_and_says_why(what: str) -> None:
    minors = COMPATIBLE[what]
    assert incompatible(minors.oldest, what) is None
    assert minors.newest is None or incompatible(minors.newest, what) is None
    assert minors.why


@pytest.mark.parametrize("what", COMPATIBLE)
def test_the_minor_before_the_oldest_is_refused(what: str) -> None:
    oldest = COMPATIBLE[what].oldest
    before = f"1.{int(oldest.split('.')[1]) - 1}"
    assert f"use Kubernetes {oldest} or newer" in (incompatible(before, what) or "")


@pytest.mark.parametrize("what", ["karpenter", "cilium"])
@pytest.mark.parametrize("version", ["1.37", "1.38"])
def test_a_minor_past_the_newest_is_refused(what: str, version: str) -> None:
    assert (incompatible(version, what) or "").startswith("use Kubernetes 1.36 or older")


@pytest.mark.parametrize(("version", "unknown"), [("1.36", False), ("1.37", True), ("1.38", True)])
def test_a_version_of_which_nothing_is_known_is_noted(tmp_path: Path, version: str, *, unknown: bool) -> None:
    files = demo()
    files["environment"]["cluster"]["kubernetes"] = version
    notes = [str(note) for note in spec_notes(load(files.write(tmp_path)))]
    assert any("of which nothing is known here" in note for note in notes) is unknown


def test_minors_are_numbers_and_not_text() -> None:
    assert incompatible("1.9", "dra"), "as text 1.9 would be newer than 1.34"


@pytest.mark.parametrize("version", ["1.34", "v1.34.2", "1.34.0"])
def test_a_patch_is_of_its_minor(version: str) -> None:
    assert incompatible(version, "dra") is None
