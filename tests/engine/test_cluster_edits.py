"""Edits of a built cluster in the real engine, against the double of AWS: what is refused, what goes by name, and what
stays as it is. The same is shown of every field without an engine (`tests/unit/deploy/test_field_edits.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from engine_aws import OnAws, on_aws
from engine_project import Project

pytestmark = [
    pytest.mark.chapters,
    pytest.mark.exhaustive(
        reason=(
            "edits of a cluster in the real engine; the answer to every edit is "
            "in tests/unit, one of each kind in "
            "tests/engine/test_cluster_stack.py"
        )
    ),
]

ENVIRONMENT, CLUSTER = "regulated", "regulated.cluster"
CHANGES = ("create", "update", "delete")
ZONES = "zones: [eu-central-1a, eu-central-1b]"
MORE = "zones: [eu-central-1c, eu-central-1a, eu-central-1b]"
PLATFORM_ROLE = "  platform-role:"
SYSTEM_IN_TWO = "  system: {zones: [eu-central-1a, eu-central-1c]}\n"


@pytest.fixture(scope="module")
def on(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnAws]:
    with on_aws(ENVIRONMENT, project, tmp_path_factory.mktemp("regulated")) as regulated:
        regulated.edit(PLATFORM_ROLE, f"  upgrade-pause: 0\n{PLATFORM_ROLE}")
        regulated.edit('kubernetes: "1.36"', 'kubernetes: "1.35"')
        result = regulated.tenancy("up", ENVIRONMENT, "--stack", CLUSTER, kubeconfig=False)
        assert regulated.aws.live, result.text
        yield regulated


def up(on: OnAws, *more: str, code: int = 0) -> str:
    result = on.tenancy("up", ENVIRONMENT, "--stack", CLUSTER, *more, kubeconfig=False)
    assert result.code == code, result.text
    return result.text


def groups(on: OnAws, *kinds: str) -> list[str]:
    """Operations on node groups, in their order."""
    return [step for step in on.aws.order(*kinds) if step.endswith("-nodes")]


def test_one_line_deletes_nothing_by_either_way(on: OnAws) -> None:
    for old, new in (
        ("encryption: wireguard}", "encryption: wireguard, service-cidr: 172.21.0.0/16}"),
        ("  network:  #", "  network:\n    cidr: 10.80.0.0/16  #"),
    ):
        on.edit(old, new)
        assert "nothing was changed" in up(on, code=1)
        assert on.aws.order(*CHANGES) == []
        assert on.pulumi("up", "--yes", "--skip-preview", "--stack", CLUSTER).code != 0
        assert [step for step in on.aws.order("delete", "update") if "launch" not in step] == []
        on.edit(new, old)


def test_a_zone_is_added_and_no_node_is_touched(on: OnAws) -> None:
    on.edit(ZONES, MORE)
    output = up(on)
    assert "nodes of system stay in the zones that they have" in output
    created = on.aws.order("create")
    assert "create regulated-network-private-eu-central-1c" in created
    assert every_of(created, "eu-central-1c")
    assert groups(on, *CHANGES) == []
    assert "update regulated-cluster" not in on.aws.order("update"), "EKS would refuse another zone"
    assert on.aws.order("delete") == []


def every_of(steps: list[str], word: str) -> bool:
    return bool(steps) and all(word in step for step in steps)


def test_a_second_run_has_nothing_to_do(on: OnAws) -> None:
    assert set(on.steps(CLUSTER).values()) == {"same"}


def test_a_version_comes_before_the_nodes_where_the_control_plane_has_fewer_zones(on: OnAws) -> None:
    """A targeted step ends in the engine's "not specified in --target list" where it refers to what is not made yet."""
    on.edit('kubernetes: "1.35"', 'kubernetes: "1.36"')
    assert "the control plane is done" in up(on)


def test_named_nodes_move_into_the_zone_in_waves(on: OnAws) -> None:
    output = up(on, "--replace", "system", "--replace", "risk")
    assert re.findall(r": (.+) is done; the next follows in 0 min", output) == ["wave 0"]
    assert groups(on, "delete", "create") == [
        *("delete regulated-system-nodes", "create regulated-system-nodes"),
        *("delete regulated-risk-nodes", "create regulated-risk-nodes"),
    ]
    assert len(on.aws.find("::regulated-system-nodes").inputs["subnetIds"]) == 3
    assert len(on.aws.find("::regulated-payments-nodes").inputs["subnetIds"]) == 2
    assert set(on.steps(CLUSTER).values()) <= {"same", "update"}


def test_a_replaced_group_is_protected_again(on: OnAws) -> None:
    protected = {r["urn"].rpartition("::")[2] for r in on.project.state(CLUSTER)["resources"] if r.get("protect")}
    assert {"regulated-system-nodes", "regulated-risk-nodes", "regulated-cluster", "regulated-network-vpc"} <= protected


def test_a_zone_is_left_only_by_name_and_last_goes_its_network(on: OnAws) -> None:
    on.edit(MORE, ZONES)
    assert "which has nodes of risk, system" in up(on, code=1)
    assert on.aws.order(*CHANGES) == []
    up(on, "--replace", "eu-central-1c")
    order = on.aws.order("delete", "create")
    last = max(order.index(step) for step in order if step.endswith("-nodes"))
    assert order.index("delete regulated-network-private-eu-central-1c") > last
    assert not [entry for entry in on.aws.live.values() if "eu-central-1c" in entry.urn]


def test_a_zone_of_the_control_plane_stays(on: OnAws) -> None:
    on.edit(ZONES, "zones: [eu-central-1a, eu-central-1c]")
    for more in ((), ("--replace", "eu-central-1b")):
        assert "given aws.zones without eu-central-1b, in which the control plane was made" in up(on, *more, code=1)
        assert on.aws.order(*CHANGES) == []
    on.edit("zones: [eu-central-1a, eu-central-1c]", ZONES)


def test_a_pool_that_the_file_no_longer_has_takes_its_nodes(on: OnAws) -> None:
    more = "pools:  # one for each tenant: no two tenants' pods are on one node\n"
    pool = "  spare: {instance-type: m7i.8xlarge, nodes: 1, tenants: [risk]}\n"
    on.edit(more, more + pool)
    up(on)
    assert groups(on, *CHANGES) == ["create regulated-spare-nodes"]
    on.edit(pool, "")
    assert on.pulumi("up", "--yes", "--skip-preview", "--stack", CLUSTER).code != 0
    assert "delete regulated-spare-nodes" not in on.aws.order("delete")
    up(on, "--preview")
    up(on)
    assert groups(on, *CHANGES) == ["delete regulated-spare-nodes"]


def test_the_platforms_role_is_followed_by_its_access(on: OnAws) -> None:
    on.edit("role/gpu-platform", "role/platform-2")
    up(on)
    order = on.aws.order("create", "delete")
    assert order.index("create regulated-platform") < order.index("delete regulated-platform")


def test_a_cluster_stays_when_the_files_no_longer_build_it(on: OnAws) -> None:
    on.edit("cluster: {name: regulated,", "cluster: {mode: existing, name: regulated,")
    result = on.tenancy("up", ENVIRONMENT)
    assert result.code == 1
    assert "whose cluster the files no longer build" in result.err
    assert on.aws.order(*CHANGES) == []
    on.edit("cluster: {mode: existing, name: regulated,", "cluster: {name: regulated,")


def test_without_its_protection_everything_goes(on: OnAws) -> None:
    on.edit(PLATFORM_ROLE, f"  deletion-protection: false\n{PLATFORM_ROLE}")
    up(on)
    assert not [r["urn"] for r in on.project.state(CLUSTER)["resources"] if r.get("protect")]
    result = on.tenancy("down", ENVIRONMENT, "--yes")
    assert result.code == 0, result.text
    assert not on.aws.live
