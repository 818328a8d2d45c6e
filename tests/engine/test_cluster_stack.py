"""The AWS half in the real engine, against a double of AWS: what is asked for, in which order, and what a change does.

The double says nothing about what AWS would answer; it refuses what the SDK's types and AWS' own API models refuse.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from engine_aws import OnAws, on_aws, system_node
from engine_project import Project, kill_engine

from tenancy.lab import control_plane
from tenancy.lab.nodes import apply_nodes
from tenancy.planning.services import queue_chart
from tenancy.spec.loader import load
from tests import judges
from tests.conftest import every
from tests.printed import compare, page_block
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.chapters

CLUSTER, PLATFORM = "bank.cluster", "bank"
NEWER = ('kubernetes: "1.35"', 'kubernetes: "1.36"')
"""The version that the cluster is upgraded to, which the bank's file has."""


@pytest.fixture(scope="module")
def bank(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnAws]:
    with on_aws("bank", project, tmp_path_factory.mktemp("bank")) as on_cluster:
        on_cluster.edit("platform:\n", f"platform:\n  chart-mirror: {on_cluster.charts}\n")
        on_cluster.edit(*NEWER[::-1])
        yield on_cluster


@pytest.fixture(scope="module")
def on_kubernetes(bank: OnAws) -> OnAws:
    """With what the platform's stack asks of the cluster; the stack of the cluster asks nothing of it."""
    # Kueue's pods do not run here: the lab runs it as a process, and its release is an empty one.
    chart = queue_chart(load(bank.folder).environment)
    assert chart
    control_plane.up(root=bank.project.folder, queues=chart.values)
    # Cilium's operator brings them once it runs, and the release waits for it; no pod runs here.
    cilium = judges.folder("schemas-cilium")
    kinds = [str(cilium / f"cilium{name}networkpolicies.yaml") for name in ("", "clusterwide")]
    bank.project.run("kubectl", "apply", "--server-side", *(word for kind in kinds for word in ("-f", kind)))
    return bank


def test_a_preview_shows_the_cluster_and_says_what_has_to_wait(bank: OnAws) -> None:
    result = bank.tenancy("up", "bank", "--preview", kubeconfig=False)
    assert result.code == 0, result.text
    assert "no preview of the other stacks is possible before the cluster exists" in result.out
    compare(page_block("cluster.md", "tenancy up bank --preview"), result.out)
    assert [call for call in bank.aws.calls if call.kind == "create" and not call.preview] == []


@pytest.mark.exhaustive(
    reason=(
        "the steps of the cluster's stack as one list; `make test` has the preview that counts them, and each "
        "edit of the cluster in tests/unit/deploy/test_field_edits.py"
    )
)
def test_the_clusters_resources_are_these(bank: OnAws, golden: Any) -> None:
    golden.check("bank-cluster.txt", "".join(f"{step}\n" for step in sorted(bank.steps(CLUSTER))))


@pytest.mark.exhaustive(
    reason=(
        "the steps of the platform's stack in the real engine; its resources are in "
        "tests/unit/components/test_components_aws.py"
    )
)
def test_the_platforms_resources_are_these(on_kubernetes: OnAws, golden: Any) -> None:
    bank = on_kubernetes
    assert bank.run("pulumi", "stack", "init", PLATFORM).code == 0
    bank.edit(*NEWER)
    golden.check("bank-platform.txt", "".join(f"{step}\n" for step in sorted(bank.steps(PLATFORM))))
    bank.edit(*NEWER[::-1])


def test_a_run_without_the_new_clusters_context_ends_with_the_command_that_adds_it(bank: OnAws) -> None:
    result = bank.tenancy("up", "bank", kubeconfig=False)
    assert result.code == 1
    assert "aws eks update-kubeconfig --name bank --region eu-central-1 --alias bank" in result.err
    assert bank.aws.live, "the cluster itself was made"


def test_nodes_come_after_their_network_and_the_waves_one_after_another(bank: OnAws) -> None:
    state = bank.project.state(CLUSTER)
    order = [resource["urn"].rpartition("::")[2] for resource in state["resources"]]
    waves = [
        "bank-vpc-cni",
        "bank-system-nodes",
        "bank-notebooks-nodes",
        "bank-train-a100-nodes",
        "bank-serve-mig-nodes",
    ]
    assert sorted(waves, key=order.index) == waves
    assert "bank-coredns" not in order, "under Cilium a pod that starts before the agent has no identity"


def test_a_role_is_used_only_with_its_policies(bank: OnAws) -> None:
    order = [resource["urn"].rpartition("::")[2] for resource in bank.project.state(CLUSTER)["resources"]]
    of_cluster = [name for name in order if name.startswith("bank-role-cluster-")]
    assert of_cluster
    assert every(order.index(name) < order.index("bank-cluster") for name in of_cluster)


def test_only_the_platforms_role_administers_the_cluster(bank: OnAws) -> None:
    cluster = bank.aws.find("::bank-cluster").inputs
    assert cluster["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    entries = [call for call in bank.aws.live.values() if call.type == "aws:eks/accessEntry:AccessEntry"]
    assert [entry.inputs["principalArn"].rpartition("/")[2] for entry in entries] == ["gpu-platform"]


def test_every_node_keeps_its_metadata_from_pods(bank: OnAws) -> None:
    templates = [r for r in bank.aws.live.values() if r.type == "aws:ec2/launchTemplate:LaunchTemplate"]
    assert len(templates) == 6
    for template in templates:
        options = template.inputs["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
        assert template.inputs["blockDeviceMappings"][0]["ebs"]["encrypted"] == "true"


def test_efa_interfaces_carry_the_pools_own_group_and_no_other(bank: OnAws) -> None:
    group = bank.aws.find("::bank-efa-train-efa-group").id
    interfaces = bank.aws.find("::bank-train-efa-template").inputs["networkInterfaces"]
    assert [interface["interfaceType"] for interface in interfaces] == ["interface", *["efa-only"] * 4]
    assert {security_group for interface in interfaces[1:] for security_group in interface["securityGroups"]} == {group}
    assert interfaces[0]["securityGroups"] != [group]


def test_a_reservation_is_used_alone_and_without_a_placement_group(bank: OnAws) -> None:
    template = bank.aws.find("::bank-train-a100-template").inputs
    reservation = template["capacityReservationSpecification"]
    assert reservation["capacityReservationPreference"] == "capacity-reservations-only"
    assert "placement" not in template


def test_a_second_run_changes_nothing(bank: OnAws) -> None:
    assert set(bank.steps(CLUSTER).values()) == {"same"}


FIXED = ("cni: cilium}", "cni: cilium, service-cidr: 172.21.0.0/16}")


def test_a_value_that_eks_fixes_is_refused_before_anything_changes(bank: OnAws) -> None:
    bank.edit(*FIXED)
    for arguments in (("up", "bank"), ("up", "bank", "--preview")):
        result = bank.tenancy(*arguments, "--stack", CLUSTER, kubeconfig=False)
        assert result.code == 1, result.text
        assert "given cluster.service-cidr: 172.21.0.0/16, and a cluster that was made with" in result.err
        assert bank.aws.order("create", "update", "delete") == []
    bank.edit(*FIXED[::-1])


@pytest.mark.exhaustive(
    reason=(
        "a value that EKS fixes by the engine alone; `make test` has it by the command, and a protected platform "
        "in tests/engine/test_scopes.py"
    )
)
def test_the_engine_alone_deletes_nothing_for_a_value_that_eks_fixes(bank: OnAws) -> None:
    """By itself it would delete nodes, add-ons and access before the control plane; a target keeps none of them."""
    bank.edit(*FIXED)
    result = bank.pulumi("up", "--yes", "--skip-preview", "--stack", CLUSTER, "--target", "**::bank-cluster")
    assert result.code != 0
    assert "marked for protection" in " ".join(result.text.split())
    assert bank.aws.order("create", "update", "delete") == []
    bank.edit(*FIXED[::-1])


@pytest.mark.exhaustive(reason="the charts in the real engine; their values and order are in tests/unit/components")
def test_the_charts_are_installed_and_karpenter_gets_its_pools(on_kubernetes: OnAws) -> None:
    bank = on_kubernetes
    apply_nodes([system_node(number) for number in range(2)], bank.project.lab)
    result = bank.tenancy("up", "bank", "--stack", PLATFORM)
    assert result.code == 0, result.text
    object_names = bank.run("kubectl", "get", "nodepools,ec2nodeclasses,nodeoverlays", "-o", "name").out
    assert set(object_names.split()) == {
        "nodepool.karpenter.sh/serve-mig",
        "ec2nodeclass.karpenter.k8s.aws/serve-mig",
        "nodeoverlay.karpenter.sh/serve-mig",
    }
    deployed = bank.run("kubectl", "get", "deployments,daemonsets", "-n", "kube-system", "-o", "name").out.split()
    assert {"deployment.apps/karpenter", "daemonset.apps/cilium"} <= set(deployed)


@pytest.mark.exhaustive(reason="a second run with charts; without them it is in `make test`")
def test_a_second_run_leaves_the_charts_alone(bank: OnAws) -> None:
    result = bank.tenancy("up", "bank", "--stack", PLATFORM)
    assert result.code == 0, result.text
    assert "update" not in result.out


@pytest.mark.exhaustive(reason="an order of the charts in the real engine; it is in tests/unit/components")
def test_prometheus_comes_before_the_rules_that_only_its_operator_knows(bank: OnAws) -> None:
    object_names = bank.run("kubectl", "get", "servicemonitors,prometheusrules", "-n", "monitoring", "-o", "name")
    assert set(object_names.out.split()) == {
        "servicemonitor.monitoring.coreos.com/tenancy-dcgm",
        "servicemonitor.monitoring.coreos.com/tenancy-kueue",
        "prometheusrule.monitoring.coreos.com/tenancy",
    }
    order = [resource["urn"].rpartition("::")[2] for resource in bank.project.state(PLATFORM)["resources"]]
    release = order.index("platform-metrics-kube-prometheus-stack")
    assert (
        order.index("platform-metrics-monitoring") < order.index("platform-metrics-prometheus-operator-crds") < release
    )
    assert release < order.index("platform-metrics-tenancy")


@pytest.mark.exhaustive(
    reason="a preview of grants; `make test` previews the cluster, and the report of grants is in tests/unit"
)
def test_a_preview_shows_which_grants_of_a_tenant_are_new(bank: OnAws) -> None:
    result = bank.tenancy("up", "bank", "--preview", "--stack", "bank--fraud")
    assert result.code == 0, result.text
    table = result.out.partition("Grants on AWS")[2]
    assert "s3://bank-models/fraud/" in table
    assert "s3://bank-models/aml/" not in table


@pytest.mark.exhaustive(
    reason="a changed layout in the real engine; what it changes is in tests/unit/deploy/test_field_edits.py"
)
def test_a_changed_layout_replaces_the_nodes_of_its_pool_alone(bank: OnAws) -> None:
    bank.edit("layout: {1g.5gb: 4, 3g.20gb: 1}", "layout: {1g.5gb: 5, 2g.10gb: 1}")
    bank.edit("a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}", "a100-3g.20gb: {gpu: a100-40gb, mig: 2g.10gb}")
    changes = {name: op for name, op in bank.steps(CLUSTER).items() if op != "same"}
    assert changes == {
        "aws:ec2/launchTemplate:LaunchTemplate bank-serve-mig-template": "update",
        "aws:eks/nodeGroup:NodeGroup bank-serve-mig-nodes": "update",
    }, "a new version of the template, to which EKS moves the group node by node"
    bank.edit("layout: {1g.5gb: 5, 2g.10gb: 1}", "layout: {1g.5gb: 4, 3g.20gb: 1}")
    bank.edit("a100-3g.20gb: {gpu: a100-40gb, mig: 2g.10gb}", "a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}")


@dataclass(frozen=True)
class Upgraded:
    out: str
    order: list[str]
    """Updated resources, in their order."""


@pytest.fixture(scope="module")
def upgraded(bank: OnAws) -> Upgraded:
    """Another version of Kubernetes, without a pause between waves."""
    bank.edit("  platform-role:", "  upgrade-pause: 0\n  platform-role:")
    bank.edit(*NEWER)
    result = bank.tenancy("up", "bank", "--stack", CLUSTER, kubeconfig=False)
    assert result.code == 0, result.text
    return Upgraded(result.out, bank.updated())


@pytest.mark.exhaustive(reason="an upgrade in the real engine, wave by wave; the waves are in tests/unit/components")
def test_a_version_goes_wave_by_wave(upgraded: Upgraded) -> None:
    groups = [name for name in upgraded.order if name.endswith("-nodes")]
    assert groups[0] == "bank-system-nodes", upgraded.out
    assert set(groups[1:3]) == {"bank-general-nodes", "bank-notebooks-nodes"}
    assert set(groups[3:5]) == {"bank-train-a100-nodes", "bank-train-efa-nodes"}
    assert groups[5:] == ["bank-serve-mig-nodes"]
    assert re.findall(r": (.+) is done; the next follows in 0 min", upgraded.out) == [
        "the control plane",
        *(f"wave {wave}" for wave in range(3)),
    ]


@pytest.mark.exhaustive(
    reason="versions of nodes during an upgrade in the real engine; the order of an upgrade is in tests/unit/components"
)
def test_no_node_is_newer_than_its_control_plane(upgraded: Upgraded) -> None:
    assert upgraded.order[0] == "bank-cluster"
    assert "the control plane is done" in upgraded.out


@pytest.mark.exhaustive(reason="a new image in the real engine, wave by wave; the waves are in tests/unit/components")
@pytest.mark.usefixtures("upgraded")
def test_a_new_image_goes_wave_by_wave(bank: OnAws) -> None:
    bank.edit("  platform-role:", "  ami-release: v20260912\n  platform-role:")
    result = bank.tenancy("up", "bank", "--stack", CLUSTER, kubeconfig=False)
    assert result.code == 0, result.text
    groups = [name for name in bank.updated() if name.endswith("-nodes")]
    assert len(groups) == len({*groups}) == 6


@pytest.mark.exhaustive(
    reason="node groups of a full reservation in the real engine; their settings are in tests/unit/planning/aws"
)
def test_nodes_that_hold_a_full_reservation_go_before_the_next_comes(bank: OnAws) -> None:
    how = {name: bank.aws.find(f"::bank-{name}-nodes").inputs["updateConfig"] for name in ("train-a100", "notebooks")}
    assert how["train-a100"] == {"maxUnavailable": 4, "updateStrategy": "MINIMAL"}
    assert how["notebooks"] == {"maxUnavailable": 1, "updateStrategy": "DEFAULT"}


@pytest.mark.exhaustive(
    reason="an engine that dies while AWS makes nodes; one that dies on Kubernetes is in tests/engine/test_faults.py"
)
@pytest.mark.usefixtures("every_step")
def test_what_aws_was_making_when_the_engine_died_is_not_forgotten(bank: OnAws) -> None:
    bank.edit(
        "  notebooks:\n",
        "  more: {instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {time-slicing: 4}, tenants: "
        "[notebooks-lab]}\n  notebooks:\n",
    )
    is_requested, go_on = threading.Event(), threading.Event()

    def hold(call: Any) -> None:
        if call.kind == "create" and call.name == "bank-more-nodes" and not call.preview:
            is_requested.set()
            go_on.wait(PATIENCE)

    bank.aws.on_call = hold
    command = (sys.executable, "-m", "tenancy", "up", "bank", "--stack", CLUSTER)
    process = bank.project.start(*command, env=bank.environ(kubeconfig=False))
    until(is_requested.is_set, "the node group is asked for", process=process)
    kill_engine(process)
    go_on.set()
    process.communicate(timeout=PATIENCE)
    bank.aws.on_call = None
    result = bank.tenancy("up", "bank", "--stack", CLUSTER, kubeconfig=False)
    assert result.code == 1, result.text
    assert "bank-more-nodes; rule: nothing on AWS is forgotten" in result.err
    assert f"pulumi refresh --stack {CLUSTER} --clear-pending-creates" in result.err


def test_a_stack_that_the_environment_has_not_is_named(bank: OnAws) -> None:
    result = bank.tenancy("up", "bank", "--stack", "bank.clutser", kubeconfig=False)
    assert result.code == 2
    assert "bank.clutser" in result.err
    assert CLUSTER in result.err


def test_credentials_of_another_account_end_the_run(bank: OnAws) -> None:
    provider = next(r for r in bank.project.state(CLUSTER)["resources"] if r["type"] == "pulumi:providers:aws")
    assert json.loads(provider["inputs"]["allowedAccountIds"]) == ["111122223333"]


@pytest.mark.exhaustive(
    reason=(
        "removes a cluster's stack; that nothing is deleted by mistake is "
        "in `make test` for a tenant and a value of EKS"
    )
)
def test_the_cluster_stays_when_the_environment_goes(bank: OnAws) -> None:
    result = bank.tenancy("down", "bank", "--yes")
    assert result.code == 0, result.text
    assert "the cluster stays" in result.out
    assert bank.aws.find("::bank-cluster")
