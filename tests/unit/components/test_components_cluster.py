"""The cluster's network and nodes as the program registers them, under mocks that answer what it asks of AWS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_double_api
import pulumi
import pytest

from tenancy.catalog.versions import ADD_ON_FLOORS, ADD_ONS
from tenancy.components.aws.add_on import eks_add_on
from tenancy.components.aws.image_release import image_release
from tenancy.components.aws.network import ClusterNetwork
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.addons import add_ons
from tenancy.planning.aws.cluster import (
    CHINA_ENDPOINT_SERVICES,
    PRIVATE_SERVICES,
    NetworkPlan,
    SubnetPlan,
    cluster_plan,
    endpoint_service,
)
from tenancy.planning.scope import StackScope
from tenancy.spec.fields.aws import AddOns, Endpoints
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests import registered
from tests.aws_answers import MAIN, SECONDARY, Answers, refused
from tests.conftest import nonempty
from tests.registered import Registered, register
from tests.registered_aws import dependencies_of, if_any, inputs, inputs_of_kinds

ROOT = Path(__file__).parents[3]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    monkeypatch.setattr(registered.Echo, "call", lambda mocks, call: answers(mocks, call))
    return answers


@pytest.fixture(scope="module")
def bank() -> Plan:
    loaded = load(ROOT / "stacks" / "bank")
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def cluster(bank: Plan) -> Registered:
    answers, echo = Answers(), registered.Echo.new_resource

    def resource(mocks: Any, request: Any) -> tuple[str, dict[str, Any]]:
        """A missing value is no dependency either, and an address has its id from AWS."""
        identifier, outputs = echo(mocks, request)
        return identifier, {**outputs, "allocationId": identifier} if request.typ == "aws:ec2/eip:Eip" else outputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registered.Echo, "call", lambda mocks, call: answers(mocks, call))
        patch.setattr(registered.Echo, "new_resource", resource)
        return register(bank, StackScope.CLUSTER)


def existing_vpc(bank: Plan, endpoints: Endpoints) -> NetworkPlan:
    """The bank's network in a VPC that is there."""
    assert bank.cluster
    subnets = tuple(SubnetPlan(f"eu-central-1{z}", f"subnet-0{z}", "", "") for z in "abc")
    return replace(bank.cluster.network, vpc="vpc-0123abcd", subnets=subnets, endpoints=endpoints)


def made_of(bank: Plan, network: NetworkPlan, monkeypatch: pytest.MonkeyPatch) -> Registered:
    monkeypatch.setattr(registered, "build", lambda *_: ClusterNetwork("n", network, {}))
    return register(bank)


def before(registered: Registered, urn: str) -> set[str]:
    """Kinds and names of what is made before a resource, and is deleted after it."""
    earlier_requests = (registered.requests[earlier_urn] for earlier_urn in dependencies_of(registered, urn))
    return {f"{request.type.rpartition(':')[2]} {request.name}" for request in earlier_requests}


def test_nat_gateways_and_their_addresses_wait_for_the_internet_gateway(cluster: Registered) -> None:
    gateways = inputs_of_kinds(cluster, "NatGateway", "Eip")
    assert len(gateways) == 6
    for urn in gateways:
        assert "InternetGateway bank-network-gateway" in before(cluster, urn)


def test_nodes_come_after_every_way_out_and_go_before_it(cluster: Registered) -> None:
    ways = {
        f"{request.type.rpartition(':')[2]} {request.name}"
        for request in inputs_of_kinds(
            cluster, "NatGateway", "Eip", "InternetGateway", "RouteTable", "RouteTableAssociation", "VpcEndpoint"
        ).values()
    }
    assert len(ways) == 3 + 3 + 1 + 4 + 6 + 11
    groups = inputs_of_kinds(cluster, "NodeGroup")
    real = {urn for urn, request in groups.items() if request.type.startswith("aws:")}
    assert len(real) == 6
    for urn in real:
        assert ways <= before(cluster, urn)


def test_the_way_out_replaces_no_node_group(cluster: Registered) -> None:
    """By order and by no property: a NAT gateway that is made anew would take the groups along."""
    for urn, request in inputs_of_kinds(cluster, "NodeGroup").items():
        if not request.type.startswith("aws:"):
            continue
        on = {u for dependencies in request.propertyDependencies.values() for u in dependencies.urns}
        kinds = {cluster.requests[urn].type.rpartition(":")[2] for urn in on}
        assert not {"NatGateway", "RouteTableAssociation", "VpcEndpoint"} & kinds, urn


@pytest.mark.parametrize("endpoints", Endpoints)
@pytest.mark.parametrize("attribute", ["enableDnsSupport", "enableDnsHostnames"])
def test_a_given_vpc_in_which_private_names_do_not_resolve_ends_the_run(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch, attribute: str, endpoints: Endpoints
) -> None:
    answers.switched_off = {attribute}
    with pytest.raises(pulumi.RunError, match=f"given vpc-0123abcd without {attribute}; rule: nodes reach"):
        made_of(bank, existing_vpc(bank, endpoints), monkeypatch)


def test_a_checked_vpc_is_asked_for_its_names_and_its_endpoints_alone(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = made_of(bank, existing_vpc(bank, Endpoints.CHECKED), monkeypatch)
    assert {name for name, _ in answers.asked} == {"getVpc", "getVpcEndpoint"}
    assert answers.kinds() == {"s3": "Gateway", **dict.fromkeys(PRIVATE_SERVICES, "Interface")}
    assert if_any(network, "VpcEndpoint", "SecurityGroup") == {}


def test_several_endpoints_of_a_service_are_enough(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.twice = {"sts"}
    made_of(bank, existing_vpc(bank, Endpoints.CHECKED), monkeypatch)
    assert answers.kinds().keys() == {"s3", *PRIVATE_SERVICES}, "it went on to the last"


def test_a_missing_endpoint_ends_the_run_with_what_to_do(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.missing = {"sts"}
    with pytest.raises(pulumi.RunError) as error:
        made_of(bank, existing_vpc(bank, Endpoints.CHECKED), monkeypatch)
    missing = "without an available endpoint of type Interface for com.amazonaws.eu-central-1.sts"
    assert f"given vpc-0123abcd {missing}" in str(error.value)
    assert "change: make that endpoint, or write `endpoints: made`" in str(error.value)


def test_what_else_aws_answers_is_not_taken_for_a_missing_endpoint(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.getVpcEndpoint = lambda _: refused("UnauthorizedOperation")  # ty: ignore[invalid-assignment]
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        made_of(bank, existing_vpc(bank, Endpoints.CHECKED), monkeypatch)


def test_routes_to_s3_are_in_every_subnets_table_and_in_the_main_one_where_it_has_none(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = made_of(bank, existing_vpc(bank, Endpoints.MADE), monkeypatch)
    endpoints = {
        inputs(request)["serviceName"].rpartition(".")[2]: inputs(request)
        for request in inputs_of_kinds(network, "VpcEndpoint").values()
    }
    assert endpoints["s3"]["routeTableIds"] == [MAIN, "rtb-own"]
    assert {name for name, _ in answers.asked} == {"getVpc", "getRouteTables"}


def test_endpoints_admit_every_range_of_a_given_vpc(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = made_of(bank, existing_vpc(bank, Endpoints.MADE), monkeypatch)
    assert answers.asked
    (group,) = inputs_of_kinds(network, "SecurityGroup").values()
    (rule,) = inputs(group)["ingress"]
    assert (rule["protocol"], rule["fromPort"], rule["toPort"]) == ("tcp", 443, 443)
    assert rule["cidrBlocks"] == ["10.0.0.0/16", SECONDARY], "nodes in a secondary range use them too"


def one_pool(bank: Plan, answers: Answers, day: str) -> tuple[dict[str, Any], ...]:
    """Template and node group of a pool of the bank's that comes from a capacity block of February 2027, on a day."""
    assert answers.asked == []
    bought = {"capacity-block": "cr-0123abcd", "starts": "2027-02-01", "ends": "2027-03-01"}
    environment_fields = load(ROOT / "stacks" / "bank").environment.model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    pool = {**environment_fields["pools"]["train-a100"], "nodes": 4, "purchase": bought}
    environment = Environment.model_validate(
        {**environment_fields, "pools": {**environment_fields["pools"], "train-a100": pool}}
    )
    planned = cluster_plan(environment, dt.date.fromisoformat(day))
    assert planned
    registered_plan = register(replace(bank, cluster=planned), StackScope.CLUSTER)
    kinds = ("LaunchTemplate", "NodeGroup")
    inputs_by_type = {
        r.type.rpartition(":")[2]: inputs(r)
        for r in inputs_of_kinds(registered_plan, *kinds).values()
        if r.name in NAMES
    }
    return tuple(inputs_by_type[kind] for kind in kinds)


NAMES = {"bank-train-a100-template", "bank-train-a100-nodes"}


@pytest.mark.parametrize(("day", "started"), [("2027-01-31", 0), ("2027-02-01", 4)])
def test_a_capacity_block_has_no_nodes_before_it_begins(bank: Plan, answers: Answers, day: str, started: int) -> None:
    _, group = one_pool(bank, answers, day)
    assert group["scalingConfig"] == {"desiredSize": started, "minSize": started, "maxSize": 4}
    mistakes = aws_double_api.mistakes("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": group["scalingConfig"]})
    assert not [mistake for mistake in mistakes if mistake.path.startswith("scalingConfig")], "EKS takes such a size"


def test_a_capacity_block_is_named_by_its_target_alone(bank: Plan, answers: Answers) -> None:
    template, group = one_pool(bank, answers, "2027-02-01")
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = {"capacityReservationId": "cr-0123abcd"}
    assert template["capacityReservationSpecification"] == {"capacityReservationTarget": target}
    assert group["capacityType"] == "CAPACITY_BLOCK"


@pytest.mark.parametrize("region", ["cn-north-1", "eu-central-1", "us-gov-west-1"])
def test_four_services_have_names_of_their_own_in_china(region: str) -> None:
    service_names = {short: endpoint_service(region, short) for short in ("s3", *PRIVATE_SERVICES)}
    apart = {short for short, name in service_names.items() if name.startswith("cn.")}
    assert apart == ({"ec2", "ecr.api", "ecr.dkr", "sts"} if region.startswith("cn-") else set())
    assert {name.removeprefix("cn.") for name in service_names.values()} == {
        f"com.amazonaws.{region}.{s}" for s in service_names
    }
    assert set(PRIVATE_SERVICES) > CHINA_ENDPOINT_SERVICES


# Node groups: what is repaired, and their root volumes


def groups_of(stack: Registered) -> dict[str, dict[str, Any]]:
    """Inputs of the node groups of AWS by name."""
    groups = (
        inputs(request) for request in inputs_of_kinds(stack, "NodeGroup").values() if request.type.startswith("aws:")
    )
    return {group["nodeGroupName"]: group for group in groups}


def test_a_fault_of_a_tenants_program_repairs_no_node(cluster: Registered) -> None:
    for name, group in nonempty(groups_of(cluster).items()):
        repair = group["nodeRepairConfig"]
        assert repair["enabled"] is True, name
        reasons = ["NvidiaXID13Error", "NvidiaXID31Error"] if name not in ("system", "general") else []
        assert repair["nodeRepairConfigOverrides"] == [
            {
                "nodeMonitoringCondition": "AcceleratedHardwareReady",
                "nodeUnhealthyReason": reason,
                "minRepairWaitTimeMins": 1,
                "repairAction": "NoAction",
            }
            for reason in reasons
        ], name


def test_the_root_volume_is_small_where_local_disks_hold_images_and_files(cluster: Registered) -> None:
    templates = (inputs(request) for request in inputs_of_kinds(cluster, "LaunchTemplate").values())
    sizes = {template["name"]: template["blockDeviceMappings"][0]["ebs"]["volumeSize"] for template in templates}
    assert sizes == {
        "bank-system": 200,
        "bank-general": 200,
        "bank-notebooks": 50,
        "bank-serve-mig": 50,
        "bank-train-a100": 50,
        "bank-train-efa": 50,
    }


# Add-ons


@pytest.fixture
def version_of(bank: Plan, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Version of each add-on as it is registered, by name, of what a file says of add-ons."""

    def versions_by_add_on(**settings: Any) -> dict[str, str]:
        versions = AddOns.model_validate(settings)
        plans = add_ons([], cni="cilium", volume_tags={}, interface_tags={}, kubernetes="1.36", versions=versions)
        options = pulumi.ResourceOptions()
        monkeypatch.setattr(
            registered, "build", lambda *_: [eks_add_on(plan.name, plan, "bank", None, {}, options) for plan in plans]
        )
        addons = (inputs(addon) for addon in inputs_of_kinds(register(bank), "Addon").values())
        return {addon["addonName"]: addon["addonVersion"] for addon in addons}

    return versions_by_add_on


def test_an_add_on_has_the_version_that_eks_lists_for_the_clusters_kubernetes(
    version_of: Callable[..., dict[str, str]], answers: Answers
) -> None:
    versions = version_of()
    assert set(versions) == set(ADD_ONS)
    assert {*versions.values()} == {"v1.36.0-eksbuild.1", "v9.36.0-eksbuild.1"}
    requests = [arguments for name, arguments in answers.asked if name == "getAddonVersion"]
    assert {arguments["kubernetesVersion"] for arguments in requests} == {"1.36"}, "another minor has other versions"


@pytest.mark.usefixtures("answers")
def test_the_latest_version_is_taken_where_it_is_asked_for_and_a_fixed_one_before_it(
    version_of: Callable[..., dict[str, str]],
) -> None:
    versions = version_of(release="latest", versions={"coredns": "v1.12.1-eksbuild.2"})
    assert versions.pop("coredns") == "v1.12.1-eksbuild.2"
    assert {*versions.values()} == {"v1.36.1-eksbuild.1", "v9.36.1-eksbuild.1"}


@pytest.mark.parametrize("name", ADD_ON_FLOORS)
def test_a_default_that_is_older_than_the_platform_needs_gives_way_to_the_latest(
    version_of: Callable[..., dict[str, str]], answers: Answers, name: str
) -> None:
    answers.add_ons[name] = ("v1.5.9-eksbuild.1", "v1.99.0-eksbuild.1")
    assert version_of()[name] == "v1.99.0-eksbuild.1"


@pytest.mark.parametrize("name", ADD_ON_FLOORS)
def test_a_kubernetes_for_which_every_version_is_too_old_is_refused(
    version_of: Callable[..., dict[str, str]], answers: Answers, name: str
) -> None:
    answers.add_ons[name] = ("v1.5.8-eksbuild.1", "v1.5.9-eksbuild.1")
    with pytest.raises(
        pulumi.RunError, match=f"lists version v1.5.9-eksbuild.1 of {name}, before {ADD_ON_FLOORS[name][0]}"
    ):
        version_of()


# The image's release

NOT_THERE = "reading SSM Parameter: couldn't find resource"
DESCRIBED = "EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: 1.36.2, containerd: 2.2.5-1.amzn2023.0.4)"


@pytest.fixture
def release_of(bank: Plan, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The release version of the system's nodes as it is registered."""
    assert bank.cluster
    group = bank.cluster.groups[0]

    def registered_release() -> str:
        def program(*_: Any) -> None:
            parent = pulumi.ComponentResource("gpu-tenancy:index:NodeGroup", "parent")
            pulumi.ComponentResource(
                "gpu-tenancy:index:Release", "made", {"version": image_release(group, "1.36", parent)}
            )

        monkeypatch.setattr(registered, "build", program)
        (request,) = (request for request in register(bank).requests.values() if request.name == "made")
        return str(inputs(request)["version"])

    return registered_release


def test_the_release_is_what_eks_says_of_the_image(release_of: Callable[[], str], answers: Answers) -> None:
    assert release_of() == "1.36.3-20260903"
    assert {name for name, _ in answers.asked} == {"getParameter"}, "the image is not asked for"


def test_an_image_without_a_parameter_says_its_kubelet_itself(release_of: Callable[[], str], answers: Answers) -> None:
    answers.getParameter = lambda _: refused(NOT_THERE)  # ty: ignore[invalid-assignment]
    answers.images["amazon-eks-node-al2023-x86_64-standard-1.36-v20260903"] = DESCRIBED
    assert release_of() == "1.36.2-20260903"


@pytest.mark.parametrize("description", [None, "an image of somebody", "(containerd: 1.36.2)"])
def test_an_image_that_is_not_there_ends_the_run_with_what_to_write(
    release_of: Callable[[], str], answers: Answers, description: str | None
) -> None:
    answers.getParameter = lambda _: refused(NOT_THERE)  # ty: ignore[invalid-assignment]
    if description is not None:
        answers.images["amazon-eks-node-al2023-x86_64-standard-1.36-v20260903"] = description
    with pytest.raises(pulumi.RunError) as error:
        release_of()
    text = str(error.value)
    assert text.startswith(
        "given ami-release v20260903 on Kubernetes 1.36, for which AWS has no image amazon-eks-node-"
    )
    assert "change: write a release whose notes" in text
    assert NOT_THERE in text
