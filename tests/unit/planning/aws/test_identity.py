"""IAM documents: who may become what, and nothing without a bound."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tenancy.catalog.account import INLINE_LENGTH, TRUST_LENGTH
from tenancy.iam.evaluator import Policies, compile
from tenancy.iam.requests import Principal, request, role_session
from tenancy.planning.aws.documents import Document, partition
from tenancy.planning.aws.identity import MANAGED_COUNT, RolePlan, interruption_events, key_policy, queue_policy, roles
from tenancy.planning.common.names import ROLE_LENGTH
from tenancy.spec.fields.environment import Environment
from tests.conftest import every, nonempty
from tests.iam.symbolic import Region, counterexample

ACCOUNT = "111122223333"
CLUSTER = f"arn:aws:eks:eu-central-1:{ACCOUNT}:cluster/small"
AWS = {
    "enabled": True,
    "account": ACCOUNT,
    "region": "eu-central-1",
    "zones": ["eu-central-1a", "eu-central-1b"],
    "platform-role": f"arn:aws:iam::{ACCOUNT}:role/platform",
}
SCALING = {"instance-type": "p4d.24xlarge", "nodes": {"min": 0, "max": 2}}


def build(environment: Environment, pool: dict[str, Any] = SCALING, name: str = "small", **aws: Any) -> Environment:
    environment_fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    cluster = {**environment_fields["cluster"], "name": name}
    return Environment.model_validate(
        {**environment_fields, "aws": {**AWS, **aws}, "cluster": cluster, "pools": {"train": pool}}
    )


@pytest.fixture
def small(environment: Environment) -> Environment:
    return build(environment)


def statements(*documents: Document) -> Iterator[Document]:
    for document in documents:
        assert document["Version"] == "2012-10-17"
        yield from document["Statement"]


def actions(statement: Document) -> list[str]:
    stated_actions = statement["Action"]
    return [stated_actions] if isinstance(stated_actions, str) else stated_actions


def resources(statement: Document) -> list[str]:
    stated_resources = statement["Resource"]
    return [stated_resources] if isinstance(stated_resources, str) else stated_resources


def granted(role: RolePlan) -> dict[str, Document]:
    """Statements of a role's own policies, by their name."""
    statements_by_name = {statement["Sid"]: statement for statement in statements(*role.inline.values())}
    assert len(statements_by_name) == sum(1 for _ in statements(*role.inline.values())), "two statements of one name"
    return statements_by_name


def every_document(environment: Environment) -> list[Document]:
    planned_roles = roles(environment).values()
    inline = [document for role in planned_roles for document in role.inline.values()]
    return [*(role.trust for role in planned_roles), *inline, queue_policy(environment), key_policy(environment)]


def length(*documents: Document) -> int:
    return sum(len(re.sub(r"\s", "", json.dumps(document))) for document in documents)


# What holds for all


def test_no_document_names_actions_by_a_pattern(small: Environment) -> None:
    action_names = {action for statement in statements(*every_document(small)) for action in actions(statement)}
    assert [action for action in action_names if not re.fullmatch(r"[a-z0-9-]+:[A-Za-z0-9]+", action)] == []


def test_whatever_is_allowed_on_everything_only_reads_or_is_bound_by_a_condition(small: Environment) -> None:
    """A key policy is about its own key alone: there `*` is that key."""
    inline_documents = [document for role in roles(small).values() for document in role.inline.values()]
    unbound = {
        action
        for statement in statements(*inline_documents)
        if "*" in resources(statement) and "Condition" not in statement
        for action in actions(statement)
    }
    assert unbound == {"iam:ListInstanceProfiles", "pricing:GetProducts"}, "neither knows a narrower resource or region"


def test_every_resource_is_of_this_region_or_of_iam(small: Environment) -> None:
    inline_documents = [document for role in roles(small).values() for document in role.inline.values()]
    for statement in nonempty(statements(*inline_documents)):
        for resource in nonempty(resources(statement)):
            assert resource == "*" or resource.split(":")[3] in ("eu-central-1", ""), resource
            assert resource == "*" or resource.split(":")[3] or resource.split(":")[2] == "iam", resource


@pytest.mark.parametrize("purchase", ["on-demand", {"reservation": "cr-0123456789abcdef0"}])
def test_every_role_is_within_the_limits_of_iam(environment: Environment, purchase: Any) -> None:
    zones = ["ap-southeast-2a", "ap-southeast-2b"]
    pool = {**SCALING, "purchase": purchase, "zones": zones[:1]}
    longest = build(environment, pool, name="c" * 63, region="ap-southeast-2", zones=zones)
    for purpose, role in nonempty(roles(longest).items()):
        assert len(role.name) <= ROLE_LENGTH, purpose
        assert length(role.trust) <= TRUST_LENGTH, purpose
        assert length(*role.inline.values()) <= INLINE_LENGTH, purpose
        assert len(role.managed) <= MANAGED_COUNT, purpose


def test_two_clusters_of_one_account_share_no_role_and_no_rule(environment: Environment) -> None:
    first_cluster, second_cluster = build(environment), build(environment, name="other")
    assert {role.name for role in roles(first_cluster).values()}.isdisjoint(
        role.name for role in roles(second_cluster).values()
    )
    assert set(interruption_events(first_cluster)).isdisjoint(interruption_events(second_cluster))


@pytest.mark.parametrize(
    ("region", "expected"),
    [("eu-central-1", "aws"), ("us-east-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")],
)
def test_the_partition_follows_from_the_region(region: str, expected: str) -> None:
    assert partition(region) == expected


def test_no_document_of_a_region_in_china_names_another_partition(environment: Environment) -> None:
    platform = {"platform-role": f"arn:aws-cn:iam::{ACCOUNT}:role/platform"}
    china = build(environment, region="cn-north-1", zones=["cn-north-1a", "cn-north-1b"], **platform)
    text = json.dumps([every_document(china), [role.managed for role in roles(china).values()]])
    assert set(re.findall(r"arn:([a-z-]+):", text)) == {"aws-cn"}
    assert "ec2.amazonaws.com.cn" in text


# Who may become what


def test_karpenter_has_a_role_only_where_a_pool_scales(environment: Environment) -> None:
    assert set(roles(build(environment))) == {"cluster", "node", "vpc-cni", "ebs-csi", "karpenter"}
    assert set(roles(build(environment, {**SCALING, "nodes": 2}))) == {"cluster", "node", "vpc-cni", "ebs-csi"}


@pytest.mark.parametrize(
    ("purpose", "account"),
    [("vpc-cni", "aws-node"), ("ebs-csi", "ebs-csi-controller-sa"), ("karpenter", "karpenter")],
)
def test_a_service_account_of_another_cluster_or_namespace_gets_no_role(
    small: Environment, purpose: str, account: str
) -> None:
    role = roles(small)[purpose]
    assert role.service_account == ("kube-system", account)
    (statement,) = statements(role.trust)
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": ACCOUNT,
            "aws:RequestTag/eks-cluster-name": "small",
            "aws:RequestTag/kubernetes-namespace": "kube-system",
            "aws:RequestTag/kubernetes-service-account": account,
        },
        "ArnEquals": {"aws:SourceArn": CLUSTER},
    }


def test_the_clusters_role_is_taken_for_this_cluster_alone(small: Environment) -> None:
    role = roles(small)["cluster"]
    (statement,) = statements(role.trust)
    assert statement["Condition"]["ArnEquals"] == {"aws:SourceArn": CLUSTER}
    assert (role.service_account, role.inline) == (None, {})


def test_the_node_role_can_neither_change_the_network_nor_open_a_shell(small: Environment) -> None:
    role = roles(small)["node"]
    assert [arn.rpartition("/")[2] for arn in role.managed] == [
        "AmazonEKSWorkerNodeMinimalPolicy",
        "AmazonEC2ContainerRegistryPullOnly",
    ]
    (statement,) = statements(*role.inline.values())
    assert statement["Action"] == ["ec2:DescribeInstances", "ec2:DescribeInstanceTypes"], (
        "nodeadm of AL2023 does not start without the first, and the minimal policy lacks it"
    )


# What the VPC CNI and the EBS driver may do

EC2_ARN = f"arn:aws:ec2:eu-central-1:{ACCOUNT}"
CHANGES = tuple(f"ec2:{verb}*" for verb in ("Assign", "Attach", "Delete", "Detach", "Modify", "Unassign"))
CNI_TAGS = ("aws:ResourceTag/tenancy:cluster", "aws:ResourceTag/aws:eks:cluster-name")
OTHERS = (None, "other", "smal", "small-2", "Small")
"""Values of a tag that are not this cluster's."""


def session(purpose: str, environment: Environment) -> Principal:
    """A session of a pod of kube-system, with the tags that EKS Pod Identity gives it."""
    return role_session(
        f"arn:aws:iam::{ACCOUNT}:role/{roles(environment)[purpose].name}",
        session_tags={"eks-cluster-name": environment.cluster.name, "kubernetes-namespace": "kube-system"},
    )


def cni(environment: Environment) -> Policies:
    return Policies(identity=tuple(roles(environment)["vpc-cni"].inline.values()))


def test_neither_the_cni_nor_the_driver_has_a_policy_for_the_whole_account(small: Environment) -> None:
    planned_roles = roles(small)
    assert planned_roles["vpc-cni"].managed == ()
    assert planned_roles["ebs-csi"].managed == ("arn:aws:iam::aws:policy/AmazonEBSCSIDriverEKSClusterScopedPolicy",)
    assert planned_roles["ebs-csi"].inline == {}


@pytest.mark.parametrize("kind", ["network-interface", "instance", "security-group", "*"])
def test_no_request_of_the_cni_changes_what_is_of_another_cluster(small: Environment, kind: str) -> None:
    keys = {**dict.fromkeys(CNI_TAGS, OTHERS), "ec2:CreateAction": (None,)}
    region = Region((*CHANGES, "ec2:CreateTags"), (f"arn:aws:ec2:*:*:{kind}/*",), keys)
    assert counterexample(cni(small), session("vpc-cni", small), region) is None


def test_the_cni_creates_nothing_without_this_clusters_tag(small: Environment) -> None:
    keys = {"aws:RequestTag/tenancy:cluster": OTHERS}
    region = Region(("ec2:CreateNetworkInterface",), (f"{EC2_ARN}:network-interface/*",), keys)
    assert counterexample(cni(small), session("vpc-cni", small), region) is None


@pytest.mark.parametrize(
    ("kind", "action", "keys"),
    [
        ("network-interface", "AssignPrivateIpAddresses", {CNI_TAGS[0]: "small"}),
        ("network-interface", "UnassignPrivateIpAddresses", {CNI_TAGS[0]: "small"}),
        ("network-interface", "DeleteNetworkInterface", {CNI_TAGS[0]: "small"}),
        ("network-interface", "CreateNetworkInterface", {"aws:RequestTag/tenancy:cluster": "small"}),
        ("network-interface", "CreateTags", {"ec2:CreateAction": "CreateNetworkInterface"}),
        ("network-interface", "CreateTags", {CNI_TAGS[0]: "small"}),
        ("subnet", "CreateNetworkInterface", {CNI_TAGS[0]: "small"}),
        ("security-group", "CreateNetworkInterface", {CNI_TAGS[1]: "small"}),
        ("security-group", "CreateNetworkInterface", {CNI_TAGS[0]: "small"}),
        *(
            (kind, action, {CNI_TAGS[0]: "small"})
            for kind in ("network-interface", "instance")
            for action in ("AttachNetworkInterface", "DetachNetworkInterface", "ModifyNetworkInterfaceAttribute")
        ),
    ],
)
def test_the_cni_changes_what_is_of_its_own_cluster(
    small: Environment, kind: str, action: str, keys: dict[str, str]
) -> None:
    aws_request = request(session("vpc-cni", small), f"ec2:{action}", f"{EC2_ARN}:{kind}/x-1", keys)
    assert compile(cni(small))(aws_request).allowed


@pytest.mark.parametrize("action", ["Instances", "InstanceTypes", "NetworkInterfaces", "Subnets", "Tags"])
def test_the_cni_describes_in_its_own_region_alone(small: Environment, action: str) -> None:
    ask = compile(cni(small))
    who = session("vpc-cni", small)
    allowed = {
        region: ask(request(who, f"ec2:Describe{action}", "*", {"aws:RequestedRegion": region})).allowed
        for region in ("eu-central-1", "eu-west-1")
    }
    assert allowed == {"eu-central-1": True, "eu-west-1": False}


def test_in_a_given_network_the_cni_uses_the_given_subnets_alone(environment: Environment) -> None:
    subnets = {"eu-central-1a": "subnet-0123abcd", "eu-central-1b": "subnet-4567cdef"}
    existing_network = build(environment, network={"vpc": "vpc-0123abcd", "subnets": subnets}, zones=list(subnets))
    (statement,) = (s for s in statements(*cni(existing_network).identity) if s["Sid"] == "CreateInOwnSubnets")
    assert statement["Resource"] == [
        f"arn:aws:ec2:eu-central-1:*:subnet/{subnet}" for subnet in sorted(subnets.values())
    ]
    assert "Condition" not in statement, "a subnet of somebody else has no tag of ours"


def ebs_driver_policy() -> Document:
    """AmazonEBSCSIDriverEKSClusterScopedPolicy v2, edited 2026-05-28, as AWS' managed policy reference lists it
    (read 2026-11-27): its statements that change something."""
    cluster_name = "${aws:PrincipalTag/eks-cluster-name}"
    tag, node_tags = "ebs.csi.aws.com/cluster-name", ("eks:cluster-name", "eks:eks-cluster-name")

    def statement(actions: str, kind: str, **condition: Any) -> Document:
        names, resource = [f"ec2:{action}" for action in actions.split()], f"arn:aws:ec2:*:*:{kind}"
        return {"Effect": "Allow", "Action": names, "Resource": resource, "Condition": condition}

    has = {"StringEquals": {f"ec2:ResourceTag/{tag}": cluster_name}}
    requested_tag = {"StringEquals": {f"aws:RequestTag/{tag}": cluster_name}}
    created = {"StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot", "CopyVolumes"]}}
    permitted_keys = {"aws:TagKeys": ["ebs.csi.aws.com/cluster", tag, "kubernetes.io/created-for/pvc/name"]}
    after_creation = {**has, "Null": {"aws:TagKeys": "false"}, "ForAllValues:StringNotEquals": permitted_keys}
    return {
        "Version": "2012-10-17",
        "Statement": [
            statement("CreateVolume CopyVolumes", "volume/*", **requested_tag),
            statement("CopyVolumes", "volume/vol-*", **has),
            statement("CreateSnapshot", "snapshot/*", **requested_tag),
            statement("CreateSnapshot ModifyVolume AttachVolume DetachVolume DeleteVolume", "volume/*", **has),
            statement("CreateVolume EnableFastSnapshotRestores DeleteSnapshot LockSnapshot", "snapshot/*", **has),
            *(
                statement(
                    "AttachVolume DetachVolume", "instance/*", StringEquals={f"ec2:ResourceTag/{tag_key}": cluster_name}
                )
                for tag_key in (*node_tags, tag)
            ),
            *(statement("CreateTags", f"{kind}/*", **created) for kind in ("volume", "snapshot")),
            statement("CreateTags DeleteTags", "volume/*", **after_creation),
        ],
    }


EBS_TAGS = tuple(f"ec2:ResourceTag/{tag}" for tag in ("ebs.csi.aws.com/cluster-name", "eks:cluster-name"))
NODE_TAG = "ec2:ResourceTag/eks:eks-cluster-name"


@pytest.mark.parametrize("kind", ["volume", "snapshot", "instance-type"])
def test_no_request_of_the_driver_changes_what_is_of_another_cluster(small: Environment, kind: str) -> None:
    keys = {**dict.fromkeys((*EBS_TAGS, NODE_TAG), OTHERS), "ec2:CreateAction": (None,), "aws:TagKeys": (None,)}
    changing = tuple(f"ec2:{verb}*" for verb in ("Attach", "Delete", "Detach", "Enable", "Lock", "Modify"))
    region = Region((*changing, "ec2:CreateTags"), (f"arn:aws:ec2:*:*:{kind}/*",), keys)
    policies = Policies(identity=(ebs_driver_policy(),))
    assert counterexample(policies, session("ebs-csi", small), region) is None


def test_the_driver_attaches_to_nodes_of_managed_groups_and_of_karpenter(small: Environment) -> None:
    """Karpenter's nodes carry no tag of the driver: their root volumes would carry it too, and be the driver's."""
    ask = compile(Policies(identity=(ebs_driver_policy(),)))
    who = session("ebs-csi", small)
    for tag in (EBS_TAGS[1], NODE_TAG):
        assert ask(request(who, "ec2:AttachVolume", f"{EC2_ARN}:instance/i-1", {tag: "small"})).allowed
        assert not ask(request(who, "ec2:AttachVolume", f"{EC2_ARN}:instance/i-1", {tag: "other"})).allowed
    lifecycle = roles(small)["karpenter"].inline["node-lifecycle"]
    (created,) = (s for s in statements(lifecycle) if s["Sid"] == "CreateTagged")
    assert created["Condition"]["StringEquals"]["aws:RequestTag/eks:eks-cluster-name"] == "small"


# What Karpenter may do

CREATED = {"aws:RequestTag/kubernetes.io/cluster/small": "owned", "aws:RequestTag/eks:eks-cluster-name": "small"}
OWNED = {"aws:ResourceTag/kubernetes.io/cluster/small": "owned"}


def test_karpenter_makes_only_what_carries_this_clusters_tags(small: Environment) -> None:
    statements_by_name = granted(roles(small)["karpenter"])
    assert statements_by_name["CreateTagged"]["Condition"]["StringEquals"] == CREATED
    assert CREATED.items() <= statements_by_name["TagWhatIsCreated"]["Condition"]["StringEquals"].items()


def test_karpenter_ends_only_what_carries_this_clusters_tags(small: Environment) -> None:
    statements_by_name = granted(roles(small)["karpenter"])
    ending = [s for s in statements_by_name.values() if any("Terminate" in a or "ec2:Delete" in a for a in actions(s))]
    assert [s["Condition"]["StringEquals"] for s in ending] == [OWNED]


def test_karpenter_cannot_tag_a_foreign_instance_as_its_own(small: Environment) -> None:
    statements_by_name = granted(roles(small)["karpenter"])
    tagging = {sid: s for sid, s in statements_by_name.items() if "ec2:CreateTags" in actions(s)}
    assert set(tagging) == {"TagWhatIsCreated", "NameOwnInstances"}
    assert "ec2:CreateAction" in tagging["TagWhatIsCreated"]["Condition"]["StringEquals"]
    naming_condition = tagging["NameOwnInstances"]["Condition"]
    assert naming_condition["StringEquals"] == OWNED
    assert not any(
        "kubernetes.io/cluster" in key for key in naming_condition["ForAllValues:StringEquals"]["aws:TagKeys"]
    )


def test_karpenter_passes_the_nodes_role_and_no_other(small: Environment) -> None:
    statement = granted(roles(small)["karpenter"])["PassNodeRole"]
    assert statement["Resource"] == f"arn:aws:iam::{ACCOUNT}:role/small-node"
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_karpenter_changes_instance_profiles_in_its_own_path_alone(small: Environment) -> None:
    statements_by_name = granted(roles(small)["karpenter"])
    changing = [
        s
        for s in statements_by_name.values()
        if any(re.match("iam:(Add|Create|Delete|Remove|Tag)", a) for a in actions(s))
    ]
    own_profiles = f"arn:aws:iam::{ACCOUNT}:instance-profile/karpenter/eu-central-1/small/*"
    assert [s["Resource"] for s in changing] == [own_profiles] * 3
    assert every("Condition" in s for s in changing)


def test_karpenter_uses_the_pools_reservations_and_no_others(environment: Environment) -> None:
    def used(purchase: Any) -> list[str]:
        pool = {**SCALING, "purchase": purchase, "zones": ["eu-central-1a"]}
        statement = granted(roles(build(environment, pool))["karpenter"])["UseWhatIsThere"]
        return [resource for resource in resources(statement) if "capacity-reservation" in resource]

    assert used({"reservation": "cr-0123abcd"}) == ["arn:aws:ec2:eu-central-1:*:capacity-reservation/cr-0123abcd"]
    assert used("on-demand") == []


def test_karpenter_calls_what_its_own_client_calls(small: Environment) -> None:
    """`pkg/aws/sdk.go` of karpenter-provider-aws v1.14.1, without what a setting turns on that is off here."""
    statements_by_name = granted(roles(small)["karpenter"])
    assert {action for statement in statements_by_name.values() for action in actions(statement)} == {
        *(f"ec2:{verb}" for verb in ("CreateFleet", "CreateLaunchTemplate", "CreateTags", "DeleteLaunchTemplate")),
        *("ec2:RunInstances", "ec2:TerminateInstances", "ec2:DescribeCapacityReservations", "ec2:DescribeImages"),
        *("ec2:DescribeInstances", "ec2:DescribeInstanceStatus", "ec2:DescribeInstanceTypeOfferings"),
        *("ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplates", "ec2:DescribeSecurityGroups"),
        *("ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets"),
        *("iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile"),
        *("iam:GetInstanceProfile", "iam:ListInstanceProfiles", "iam:PassRole"),
        *("iam:RemoveRoleFromInstanceProfile", "iam:TagInstanceProfile"),
        *("eks:DescribeCluster", "pricing:GetProducts", "ssm:GetParameter"),
        *("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"),
    }


# Interruptions


def test_the_queue_takes_messages_of_this_clusters_rules_alone(small: Environment) -> None:
    write, deny = statements(queue_policy(small))
    assert write["Principal"] == {"Service": "events.amazonaws.com"}
    assert write["Action"] == ["sqs:SendMessage"]
    rules = write["Condition"]["ArnEquals"]["aws:SourceArn"]
    assert rules == [f"arn:aws:events:eu-central-1:{ACCOUNT}:rule/{name}" for name in interruption_events(small)]
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_every_event_that_karpenter_understands_has_a_rule(small: Environment) -> None:
    patterns = interruption_events(small).values()
    assert {kind for pattern in patterns for kind in pattern["detail-type"]} == {
        "AWS Health Event",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "EC2 Spot Instance Interruption Warning",
    }
    assert every(len(name) <= 64 for name in interruption_events(small)), "EventBridge's limit"


# The key


def by_sid(document: Document) -> dict[str, Document]:
    return {statement["Sid"]: statement for statement in statements(document)}


def test_the_account_administers_the_key_and_reads_nothing_with_it(small: Environment) -> None:
    statement = by_sid(key_policy(small))["Administer"]
    assert statement["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    assert "kms:PutKeyPolicy" in statement["Action"], "without it no principal could ever change the policy"
    assert {"kms:CreateGrant", "kms:DescribeKey"} <= set(statement["Action"]), "EKS asks for both for secrets"
    assert not {"kms:Decrypt", "kms:GenerateDataKey"} & set(statement["Action"])


def test_all_other_use_of_the_key_goes_through_a_service_of_this_account(small: Environment) -> None:
    for sid, statement in nonempty(by_sid(key_policy(small)).items()):
        if statement["Principal"] == {"AWS": "*"}:
            assert statement["Condition"]["StringEquals"]["kms:CallerAccount"] == ACCOUNT, sid
            narrowed = {*statement["Condition"]["StringEquals"], *statement["Condition"].get("ArnEquals", {})}
            assert narrowed & {"kms:ViaService", "aws:PrincipalArn"}, sid


def test_volumes_of_karpenter_and_of_node_groups_can_be_encrypted(small: Environment) -> None:
    key_statements = by_sid(key_policy(small))
    assert key_statements["Volumes"]["Condition"]["StringEquals"]["kms:ViaService"] == "ec2.eu-central-1.amazonaws.com"
    assert "kms:GenerateDataKeyWithoutPlaintext" in key_statements["Volumes"]["Action"]
    scaling = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    assert key_statements["VolumesOfNodeGroups"]["Condition"]["ArnEquals"] == {"aws:PrincipalArn": scaling}
    assert key_statements["GrantsOfNodeGroups"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_only_the_clusters_own_logs_are_encrypted_with_its_key(small: Environment) -> None:
    statement = by_sid(key_policy(small))["Logs"]
    assert statement["Principal"] == {"Service": "logs.eu-central-1.amazonaws.com"}
    assert statement["Condition"]["ArnLike"] == {
        "kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:eu-central-1:{ACCOUNT}:log-group:/aws/eks/small/*"
    }
