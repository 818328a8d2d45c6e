"""An EKS cluster that another tool made, with two tenants: all that is theirs is made on AWS, and nothing of a network,
a cluster or nodes. AWS is a double; the engine and the API server are real."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from engine_aws import OnAws, on_aws
from engine_project import Project

from tests.tenant_aws_files import AML, ENVIRONMENT, FRAUD, TENANT

pytestmark = pytest.mark.exhaustive(
    reason=(
        "two tenants on a cluster of others in the real engine; its plan is "
        "in tests/unit/planning/test_existing_cluster.py"
    )
)

TENANT_KINDS = {
    *("AccessEntry", "Budget", "BucketPolicy", "Key", "LogGroup", "PodIdentityAssociation", "Queue", "Repository"),
    *("Role", "RolePolicy", "Secret"),
}
OF_A_CLUSTER = {
    *("Addon", "Cluster", "InternetGateway", "LaunchTemplate", "NatGateway", "NodeGroup", "RouteTable"),
    *("SecurityGroup", "Subnet", "Vpc", "VpcEndpoint"),
}


@pytest.fixture(scope="module")
def two_tenants(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnAws]:
    with on_aws("two", project, tmp_path_factory.mktemp("there")) as on:
        folder = on.folder / "tenants"
        folder.mkdir(parents=True)
        (on.folder / "environment.yaml").write_text(ENVIRONMENT.format(charts=on.charts), "utf-8")
        on.edit("cluster: {name: two, context: two}", "cluster: {name: two, context: two, mode: existing}")
        for name, fields in (("fraud", FRAUD.replace("[train, serve]", NAMED_NAMESPACES)), ("aml", AML)):
            (folder / f"{name}.yaml").write_text(TENANT.format(name=name) + fields, "utf-8")
        result = on.tenancy("up", "two")
        assert result.code == 0, result.text
        yield on


NAMED_NAMESPACES = "[{name: train, namespace-name: ml-fraud}, serve]"


def test_all_that_is_the_tenants_is_made_and_nothing_of_the_cluster(two_tenants: OnAws) -> None:
    kinds = {entry.type.rpartition(":")[2] for entry in two_tenants.aws.live.values()}
    assert kinds >= TENANT_KINDS
    assert not kinds & OF_A_CLUSTER


def test_pods_get_their_roles_in_the_namespaces_that_the_cluster_has(two_tenants: OnAws) -> None:
    namespaces = {
        (entry.inputs["clusterName"], entry.inputs["namespace"])
        for entry in two_tenants.aws.live.values()
        if entry.type.endswith(":PodIdentityAssociation")
    }
    assert namespaces == {("two", "ml-fraud"), ("two", "fraud--serve"), ("two", "aml--main")}
    (role,) = [e for e in two_tenants.aws.live.values() if e.inputs.get("name") == "two--fraud--train"]
    trust = json.loads(role.inputs["assumeRolePolicy"])["Statement"][0]["Condition"]["StringEquals"]
    assert trust["aws:RequestTag/kubernetes-namespace"] == "ml-fraud"
    assert two_tenants.project.exists("/apis/networking.k8s.io/v1/namespaces/ml-fraud/networkpolicies/default-deny")


def test_there_is_no_stack_of_a_cluster(two_tenants: OnAws) -> None:
    refused = two_tenants.pulumi("preview", "--stack", "two.cluster")
    assert refused.code != 0
    again = two_tenants.tenancy("up", "two")
    assert again.code == 0, again.text
    assert two_tenants.updated() == []
