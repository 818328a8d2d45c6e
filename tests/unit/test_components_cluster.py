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
from tenancy.schema.aws import AddOns, Endpoints
from tenancy.validation import Environment, load
from tests import registered
from tests.aws_answers import MAIN, SECONDARY, Answers, refused
from tests.registered import Registered, register
from tests.registered_aws import behind, if_any, inputs, of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(registered.Echo, "call", lambda mocks, call: made(mocks, call))
    return made


@pytest.fixture(scope="module")
def bank() -> Plan:
    loaded = load(ROOT / "stacks" / "bank")
    return make_plan(loaded.environment, loaded.tenants)


@pytest.fixture(scope="module")
def cluster(bank: Plan) -> Registered:
    made, echo = Answers(), registered.Echo.new_resource

    def resource(mocks: Any, asked: Any) -> tuple[str, dict[str, Any]]:
        """What has no value is no dependency either, and an address has its id from AWS."""
        found, outputs = echo(mocks, asked)
        return found, {**outputs, "allocationId": found} if asked.typ == "aws:ec2/eip:Eip" else outputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registered.Echo, "call", lambda mocks, call: made(mocks, call))
        patch.setattr(registered.Echo, "new_resource", resource)
        return register(bank, StackScope.CLUSTER)


def given(bank: Plan, endpoints: Endpoints) -> NetworkPlan:
    """The bank's network in a VPC that is there."""
    assert bank.cluster
    subnets = tuple(SubnetPlan(f"eu-central-1{z}", f"subnet-0{z}", "", "") for z in "abc")
    return replace(bank.cluster.network, vpc="vpc-0123abcd", subnets=subnets, endpoints=endpoints)


def made_of(bank: Plan, network: NetworkPlan, monkeypatch: pytest.MonkeyPatch) -> Registered:
    monkeypatch.setattr(registered, "build", lambda *_: ClusterNetwork("n", network, {}))
    return register(bank)


def before(registered: Registered, urn: str) -> set[str]:
    """Kinds and names of what is made before a resource, and is deleted after it."""
    own = (registered.requests[each] for each in behind(registered, urn))
    return {f"{request.type.rpartition(':')[2]} {request.name}" for request in own}


def test_nat_gateways_and_their_addresses_wait_for_the_internet_gateway(cluster: Registered) -> None:
    found = of(cluster, "NatGateway", "Eip")
    assert len(found) == 6
    for urn in found:
        assert "InternetGateway bank-network-gateway" in before(cluster, urn)


def test_nodes_come_after_every_way_out_and_go_before_it(cluster: Registered) -> None:
    ways = {
        f"{request.type.rpartition(':')[2]} {request.name}"
        for request in of(
            cluster, "NatGateway", "Eip", "InternetGateway", "RouteTable", "RouteTableAssociation", "VpcEndpoint"
        ).values()
    }
    assert len(ways) == 3 + 3 + 1 + 4 + 6 + 11
    groups = of(cluster, "NodeGroup")
    real = {urn for urn, request in groups.items() if request.type.startswith("aws:")}
    assert len(real) == 6
    for urn in real:
        assert ways <= before(cluster, urn)


def test_the_way_out_replaces_no_node_group(cluster: Registered) -> None:
    """By order and by no property: a NAT gateway that is made anew would take the groups along."""
    for urn, request in of(cluster, "NodeGroup").items():
        if not request.type.startswith("aws:"):
            continue
        on = {u for each in request.propertyDependencies.values() for u in each.urns}
        kinds = {cluster.requests[one].type.rpartition(":")[2] for one in on}
        assert not {"NatGateway", "RouteTableAssociation", "VpcEndpoint"} & kinds, urn


@pytest.mark.parametrize("endpoints", Endpoints)
@pytest.mark.parametrize("attribute", ["enableDnsSupport", "enableDnsHostnames"])
def test_a_given_vpc_in_which_private_names_do_not_resolve_ends_the_run(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch, attribute: str, endpoints: Endpoints
) -> None:
    answers.switched_off = {attribute}
    with pytest.raises(pulumi.RunError, match=f"given vpc-0123abcd without {attribute}; rule: nodes reach"):
        made_of(bank, given(bank, endpoints), monkeypatch)


def test_a_checked_vpc_is_asked_for_its_names_and_its_endpoints_alone(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_of(bank, given(bank, Endpoints.CHECKED), monkeypatch)
    assert {name for name, _ in answers.asked} == {"getVpc", "getVpcEndpoint"}
    assert answers.kinds() == {"s3": "Gateway", **dict.fromkeys(PRIVATE_SERVICES, "Interface")}
    assert if_any(made, "VpcEndpoint", "SecurityGroup") == {}


def test_several_endpoints_of_a_service_are_enough(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.twice = {"sts"}
    made_of(bank, given(bank, Endpoints.CHECKED), monkeypatch)
    assert answers.kinds().keys() == {"s3", *PRIVATE_SERVICES}, "it went on to the last"


def test_a_missing_endpoint_ends_the_run_with_what_to_do(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.missing = {"sts"}
    with pytest.raises(pulumi.RunError) as error:
        made_of(bank, given(bank, Endpoints.CHECKED), monkeypatch)
    missing = "without an available endpoint of type Interface for com.amazonaws.eu-central-1.sts"
    assert f"given vpc-0123abcd {missing}" in str(error.value)
    assert "change: make that endpoint, or write `endpoints: made`" in str(error.value)


def test_what_else_aws_answers_is_not_taken_for_a_missing_endpoint(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.getVpcEndpoint = lambda _: refused("UnauthorizedOperation")  # ty: ignore[invalid-assignment]
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        made_of(bank, given(bank, Endpoints.CHECKED), monkeypatch)


def test_routes_to_s3_are_in_every_subnets_table_and_in_the_main_one_where_it_has_none(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_of(bank, given(bank, Endpoints.MADE), monkeypatch)
    endpoints = {inputs(one)["serviceName"].rpartition(".")[2]: inputs(one) for one in of(made, "VpcEndpoint").values()}
    assert endpoints["s3"]["routeTableIds"] == [MAIN, "rtb-own"]
    assert {name for name, _ in answers.asked} == {"getVpc", "getRouteTables"}


def test_endpoints_admit_every_range_of_a_given_vpc(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_of(bank, given(bank, Endpoints.MADE), monkeypatch)
    assert answers.asked
    (group,) = of(made, "SecurityGroup").values()
    (rule,) = inputs(group)["ingress"]
    assert (rule["protocol"], rule["fromPort"], rule["toPort"]) == ("tcp", 443, 443)
    assert rule["cidrBlocks"] == ["10.0.0.0/16", SECONDARY], "nodes in a secondary range use them too"


def one_pool(bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch, day: str) -> tuple[dict[str, Any], ...]:
    """Template and node group of a pool of the bank's that comes from a capacity block of February 2027, on a day."""
    assert answers.asked == []
    monkeypatch.setattr("tenancy.schema.pools.today", lambda: dt.date.fromisoformat(day))
    bought = {"capacity-block": "cr-0123abcd", "starts": "2027-02-01", "ends": "2027-03-01"}
    written = load(ROOT / "stacks" / "bank").environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    pool = {**written["pools"]["train-a100"], "nodes": 4, "purchase": bought}
    environment = Environment.model_validate({**written, "pools": {**written["pools"], "train-a100": pool}})
    planned = cluster_plan(environment)
    assert planned
    made = register(replace(bank, cluster=planned), StackScope.CLUSTER)
    kinds = ("LaunchTemplate", "NodeGroup")
    found = {r.type.rpartition(":")[2]: inputs(r) for r in of(made, *kinds).values() if r.name in NAMES}
    return tuple(found[kind] for kind in kinds)


NAMES = {"bank-train-a100-template", "bank-train-a100-nodes"}


@pytest.mark.parametrize(("day", "started"), [("2027-01-31", 0), ("2027-02-01", 4)])
def test_a_capacity_block_has_no_nodes_before_it_begins(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch, day: str, started: int
) -> None:
    _, group = one_pool(bank, answers, monkeypatch, day)
    assert group["scalingConfig"] == {"desiredSize": started, "minSize": started, "maxSize": 4}
    found = aws_double_api.mistakes("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": group["scalingConfig"]})
    assert not [each for each in found if each.path.startswith("scalingConfig")], "EKS takes such a size"


def test_a_capacity_block_is_named_by_its_target_alone(
    bank: Plan, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, group = one_pool(bank, answers, monkeypatch, "2027-02-01")
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = {"capacityReservationId": "cr-0123abcd"}
    assert template["capacityReservationSpecification"] == {"capacityReservationTarget": target}
    assert group["capacityType"] == "CAPACITY_BLOCK"


@pytest.mark.parametrize("region", ["cn-north-1", "eu-central-1", "us-gov-west-1"])
def test_four_services_have_names_of_their_own_in_china(region: str) -> None:
    named = {short: endpoint_service(region, short) for short in ("s3", *PRIVATE_SERVICES)}
    apart = {short for short, name in named.items() if name.startswith("cn.")}
    assert apart == ({"ec2", "ecr.api", "ecr.dkr", "sts"} if region.startswith("cn-") else set())
    assert {name.removeprefix("cn.") for name in named.values()} == {f"com.amazonaws.{region}.{s}" for s in named}
    assert set(PRIVATE_SERVICES) > CHINA_ENDPOINT_SERVICES


# Node groups: what is repaired, and their root volumes


def groups_of(made: Registered) -> dict[str, dict[str, Any]]:
    """Inputs of the node groups of AWS by name."""
    found = (inputs(request) for request in of(made, "NodeGroup").values() if request.type.startswith("aws:"))
    return {each["nodeGroupName"]: each for each in found}


def test_a_fault_of_a_tenants_program_repairs_no_node(cluster: Registered) -> None:
    for name, group in groups_of(cluster).items():
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
    templates = (inputs(request) for request in of(cluster, "LaunchTemplate").values())
    sizes = {each["name"]: each["blockDeviceMappings"][0]["ebs"]["volumeSize"] for each in templates}
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

    def made(**written: Any) -> dict[str, str]:
        wanted = AddOns.model_validate(written)
        plans = add_ons([], cni="cilium", volume_tags={}, interface_tags={}, kubernetes="1.36", versions=wanted)
        below = pulumi.ResourceOptions()
        monkeypatch.setattr(
            registered, "build", lambda *_: [eks_add_on(plan.name, plan, "bank", None, {}, below) for plan in plans]
        )
        found = (inputs(each) for each in of(register(bank), "Addon").values())
        return {each["addonName"]: each["addonVersion"] for each in found}

    return made


def test_an_add_on_has_the_version_that_eks_lists_for_the_clusters_kubernetes(
    version_of: Callable[..., dict[str, str]], answers: Answers
) -> None:
    made = version_of()
    assert set(made) == set(ADD_ONS)
    assert set(made.values()) == {"v9.9.0-eksbuild.1"}
    asked = [asked for name, asked in answers.asked if name == "getAddonVersion"]
    assert {each["kubernetesVersion"] for each in asked} == {"1.36"}, "another minor has other versions"


@pytest.mark.usefixtures("answers")
def test_the_latest_version_is_taken_where_it_is_asked_for_and_a_fixed_one_before_it(
    version_of: Callable[..., dict[str, str]],
) -> None:
    made = version_of(release="latest", versions={"coredns": "v1.12.1-eksbuild.2"})
    assert made.pop("coredns") == "v1.12.1-eksbuild.2"
    assert set(made.values()) == {"v9.9.1-eksbuild.1"}


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

    def made() -> str:
        def program(*_: Any) -> None:
            parent = pulumi.ComponentResource("gpu-tenancy:index:NodeGroup", "parent")
            pulumi.ComponentResource(
                "gpu-tenancy:index:Release", "made", {"version": image_release(group, "1.36", parent)}
            )

        monkeypatch.setattr(registered, "build", program)
        (request,) = (each for each in register(bank).requests.values() if each.name == "made")
        return str(inputs(request)["version"])

    return made


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
