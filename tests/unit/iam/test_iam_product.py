"""The cluster's roles, as AWS would decide on them: beside a refusal what is allowed and differs in one field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tenancy.iam import evaluator
from tenancy.iam.evaluator import Decision, Policies, all_of
from tenancy.iam.requests import Principal, ResourceClass, request, role_session, service, user
from tenancy.planning import make_plan
from tenancy.planning.aws import identity
from tenancy.planning.common.names import node_role
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.iam.symbolic import Region, counterexample

BANK = Path(__file__).parents[3] / "stacks" / "bank"
ACCOUNT, REGION, CLUSTER = "111122223333", "eu-central-1", "bank"
PODS = service("pods.eks.amazonaws.com")
REFUSED = "implicit deny: no {} policy allows it"
BY_IDENTITY, BY_TRUST = REFUSED.format("identity"), REFUSED.format("resource")
PURPOSES = ["vpc-cni", "ebs-csi", "karpenter"]


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load(BANK).environment


@pytest.fixture(scope="module")
def roles() -> Mapping[str, identity.RolePlan]:
    loaded = load(BANK)
    cluster = make_plan(loaded, loaded.day).cluster
    assert cluster is not None
    return cluster.roles


@pytest.fixture(scope="module")
def karpenter(roles: Mapping[str, identity.RolePlan]) -> tuple[Policies, Principal]:
    role = roles["karpenter"]
    return Policies(identity=list(role.inline.values())), role_session(f"arn:aws:iam::{ACCOUNT}:role/{role.name}")


def ask(
    policies_and_principal: tuple[Policies, Principal],
    action: str,
    resource: str,
    context: Mapping[str, Any] | None = None,
) -> Decision:
    policies, who = policies_and_principal
    return evaluator.compile(policies)(request(who, action, resource, context, resource_account=ACCOUNT))


def ec2(kind: str) -> str:
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}"


# Becoming a role


def assume_role(
    role: identity.RolePlan, who: Principal, context: Mapping[str, Any], own_policies: Any = ()
) -> Decision:
    """Pod Identity asks for both: the role, and tags on its session."""
    decide = evaluator.compile(Policies(identity=own_policies, resource=role.trust, guard=ResourceClass.TRUST))
    arn = f"arn:aws:iam::{ACCOUNT}:role/{role.name}"
    return all_of(decide, [request(who, f"sts:{action}", arn, context) for action in ("AssumeRole", "TagSession")])


def of_pod(role: identity.RolePlan) -> dict[str, str]:
    assert role.service_account is not None
    namespace, account = role.service_account
    return {
        "aws:SourceAccount": ACCOUNT,
        "aws:SourceArn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}",
        "aws:RequestTag/eks-cluster-name": CLUSTER,
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": account,
    }


OTHERS = {
    "aws:SourceAccount": "444455556666",
    "aws:SourceArn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}-2",
    "aws:RequestTag/eks-cluster-name": f"{CLUSTER}-2",
    "aws:RequestTag/kubernetes-namespace": "fraud",
    "aws:RequestTag/kubernetes-service-account": "default",
}


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_pod_takes_its_role_and_none_of_another_place(
    roles: Mapping[str, identity.RolePlan], purpose: str, field: str
) -> None:
    role = roles[purpose]
    pod_context = of_pod(role)
    assert assume_role(role, PODS, pod_context).allowed
    assert str(assume_role(role, PODS, {**pod_context, field: OTHERS[field]})) == BY_TRUST
    assert (
        str(assume_role(role, PODS, {name: value for name, value in pod_context.items() if name != field})) == BY_TRUST
    )


@pytest.mark.parametrize("purpose", PURPOSES)
def test_only_pods_assume_a_role_of_pods(roles: Mapping[str, identity.RolePlan], purpose: str) -> None:
    role = roles[purpose]
    anything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    assert assume_role(role, PODS, of_pod(role)).allowed
    assert str(assume_role(role, service("eks.amazonaws.com"), of_pod(role))) == BY_TRUST
    assert str(assume_role(role, service("ec2.amazonaws.com"), of_pod(role))) == BY_TRUST
    for who in (role_session(f"arn:aws:iam::{ACCOUNT}:role/admin"), user(f"arn:aws:iam::{ACCOUNT}:user/admin")):
        assert str(assume_role(role, who, of_pod(role), own_policies=[anything])) == BY_TRUST, (
            "an administrator is no pod"
        )


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize("purpose", PURPOSES)
def test_no_value_of_a_field_but_its_own_opens_a_role_of_pods(
    roles: Mapping[str, identity.RolePlan], purpose: str, field: str
) -> None:
    """With its own value denied nothing is left, whatever else is said."""
    role = roles[purpose]
    own_value = {"StringEquals": {field: of_pod(role)[field]}}
    deny = {"Effect": "Deny", "Principal": "*", "Action": "*", "Condition": own_value}
    statements = role.trust["Statement"]
    trust = {"Version": "2012-10-17", "Statement": [*statements, deny]}
    assert counterexample(Policies(resource=role.trust, guard=ResourceClass.TRUST), PODS, Region()) is not None
    assert counterexample(Policies(resource=trust, guard=ResourceClass.TRUST), PODS, Region()) is None


def test_nodes_take_the_nodes_role_and_this_cluster_its_own(roles: Mapping[str, identity.RolePlan]) -> None:
    def assumed(purpose: str, who: str, context: Mapping[str, str]) -> Decision:
        policies = Policies(resource=roles[purpose].trust, guard=ResourceClass.TRUST)
        return ask((policies, service(who)), "sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/x", context)

    cluster_context = {
        "aws:SourceAccount": ACCOUNT,
        "aws:SourceArn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}",
    }
    assert assumed("node", "ec2.amazonaws.com", {}).allowed
    assert str(assumed("node", "pods.eks.amazonaws.com", {})) == BY_TRUST
    assert assumed("cluster", "eks.amazonaws.com", cluster_context).allowed
    assert (
        str(assumed("cluster", "eks.amazonaws.com", {**cluster_context, "aws:SourceArn": OTHERS["aws:SourceArn"]}))
        == BY_TRUST
    )
    assert str(assumed("cluster", "pods.eks.amazonaws.com", cluster_context)) == BY_TRUST


# What nodes may do


def test_a_node_describes_its_own_region_and_reaches_nothing_else(roles: Mapping[str, identity.RolePlan]) -> None:
    """By the policies that are ours: of AWS' own managed policies there is no copy here."""
    role = roles["node"]
    node = Policies(identity=list(role.inline.values())), role_session(f"arn:aws:iam::{ACCOUNT}:role/{role.name}")
    region_context = {"aws:RequestedRegion": REGION}
    assert ask(node, "ec2:DescribeInstances", "*", region_context).allowed
    assert str(ask(node, "ec2:DescribeInstances", "*", {"aws:RequestedRegion": "eu-west-1"})) == BY_IDENTITY
    for action in ("s3:*", "kms:*", "sts:*", "iam:*", "secretsmanager:*", "ec2:Run*", "ec2:Create*", "eks:*"):
        assert counterexample(*node, Region(actions=(action,), resources=("*",))) is None, action
    assert counterexample(*node, Region(actions=("ec2:Describe*",), resources=("*",))) is not None


# What Karpenter may do


def test_karpenter_passes_the_nodes_role_to_instances(
    karpenter: tuple[Policies, Principal], environment: Environment
) -> None:
    def passed(role: str, to: str) -> Decision:
        return ask(karpenter, "iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{role}", {"iam:PassedToService": to})

    own_role = node_role(environment)
    assert passed(own_role, "ec2.amazonaws.com").allowed
    assert str(passed("admin", "ec2.amazonaws.com")) == BY_IDENTITY
    assert str(passed(f"{own_role}-2", "ec2.amazonaws.com")) == BY_IDENTITY
    assert str(passed(own_role, "lambda.amazonaws.com")) == BY_IDENTITY


def test_karpenter_passes_no_other_role_at_all(karpenter: tuple[Policies, Principal], environment: Environment) -> None:
    policies, who = karpenter
    passing = Region(actions=("iam:PassRole",), resources=("*",))
    own_role = f"arn:aws:iam::{ACCOUNT}:role/{node_role(environment)}"
    deny = {"Effect": "Deny", "Action": "iam:PassRole", "Resource": own_role}
    without = Policies(identity=[*policies.identity, {"Version": "2012-10-17", "Statement": deny}])
    witness = counterexample(policies, who, passing)
    assert witness is not None
    assert witness.request.resource == own_role
    assert counterexample(without, who, passing) is None


@pytest.mark.parametrize(
    "action", ["s3:*", "kms:*", "sts:*", "secretsmanager:*", "iam:*Role*", "iam:*Polic*", "iam:*User*", "eks:*Access*"]
)
def test_karpenter_reaches_nothing_that_is_not_its_work(
    karpenter: tuple[Policies, Principal], environment: Environment, action: str
) -> None:
    policies, who = karpenter
    profiles, own_role = (
        f"arn:aws:iam::{ACCOUNT}:instance-profile/*",
        f"arn:aws:iam::{ACCOUNT}:role/{node_role(environment)}",
    )
    work = {"Effect": "Deny", "Action": "iam:*", "Resource": [profiles, own_role]}
    outside_policies = Policies(identity=[*policies.identity, {"Version": "2012-10-17", "Statement": work}])
    assert counterexample(outside_policies, who, Region(actions=(action,), resources=("*",))) is None
    assert counterexample(outside_policies, who, Region(actions=("ec2:*",), resources=("*",))) is not None


OWNED = {
    f"aws:ResourceTag/kubernetes.io/cluster/{CLUSTER}": "owned",
    "aws:ResourceTag/karpenter.sh/nodepool": "train",
}
REQUESTED_TAGS = {
    f"aws:RequestTag/kubernetes.io/cluster/{CLUSTER}": "owned",
    "aws:RequestTag/eks:eks-cluster-name": CLUSTER,
    "aws:RequestTag/karpenter.sh/nodepool": "train",
}


def test_karpenter_ends_its_own_instances_and_no_others(karpenter: tuple[Policies, Principal]) -> None:
    def ended(tags: Mapping[str, str]) -> str:
        return str(ask(karpenter, "ec2:TerminateInstances", ec2("instance/i-1"), tags))

    other_cluster = {f"aws:ResourceTag/kubernetes.io/cluster/{CLUSTER}-2": "owned"}
    assert ended(OWNED) == "allowed by identity policy DeleteOwn"
    assert ended({}) == BY_IDENTITY
    for name in OWNED:
        assert ended({tag: value for tag, value in OWNED.items() if tag != name}) == BY_IDENTITY, name
    assert ended({**other_cluster, "aws:ResourceTag/karpenter.sh/nodepool": "train"}) == BY_IDENTITY


@pytest.mark.parametrize("name", OWNED)
def test_karpenter_changes_no_instance_without_its_tags(karpenter: tuple[Policies, Principal], name: str) -> None:
    """Whatever else a request says."""
    instances = Region(
        actions=("ec2:Terminate*", "ec2:Stop*", "ec2:Modify*", "ec2:Start*", "ec2:Reboot*", "ec2:Detach*"),
        resources=("arn:*:instance/*",),
    )
    assert counterexample(*karpenter, instances) is not None
    assert counterexample(*karpenter, instances, choices={name: (None,)}) is None


def test_karpenter_makes_instances_with_its_tags_alone(karpenter: tuple[Policies, Principal]) -> None:
    def run_instances(tags: Mapping[str, str]) -> str:
        return str(ask(karpenter, "ec2:RunInstances", ec2("instance/*"), tags))

    assert run_instances(REQUESTED_TAGS) == "allowed by identity policy CreateTagged"
    for name in REQUESTED_TAGS:
        assert run_instances({tag: value for tag, value in REQUESTED_TAGS.items() if tag != name}) == BY_IDENTITY, name
    assert run_instances({**REQUESTED_TAGS, "aws:RequestTag/eks:eks-cluster-name": f"{CLUSTER}-2"}) == BY_IDENTITY


def test_karpenter_uses_its_own_templates(karpenter: tuple[Policies, Principal]) -> None:
    template = ec2("launch-template/lt-1")
    assert str(ask(karpenter, "ec2:CreateFleet", template, OWNED)) == "allowed by identity policy UseOwnTemplates"
    assert str(ask(karpenter, "ec2:CreateFleet", template)) == BY_IDENTITY


def test_karpenter_tags_what_it_makes_and_names_its_own(karpenter: tuple[Policies, Principal]) -> None:
    def tagged(context: Mapping[str, Any]) -> str:
        return str(ask(karpenter, "ec2:CreateTags", ec2("instance/i-1"), context))

    birth = {**REQUESTED_TAGS, "ec2:CreateAction": "RunInstances", "aws:TagKeys": ["Name"]}
    assert tagged(birth) == "allowed by identity policy TagWhatIsCreated"
    assert tagged({**birth, "ec2:CreateAction": "CreateTags"}) == BY_IDENTITY
    assert tagged({**OWNED, "aws:TagKeys": ["Name"]}) == "allowed by identity policy NameOwnInstances"
    stolen = {**OWNED, "aws:TagKeys": ["Name", f"kubernetes.io/cluster/{CLUSTER}"]}
    assert tagged(stolen) == BY_IDENTITY, "it cannot hand an instance to another cluster"
    foreign = {"aws:TagKeys": ["Name"]}
    assert tagged(foreign) == BY_IDENTITY


def test_karpenter_makes_profiles_in_its_own_path(karpenter: tuple[Policies, Principal]) -> None:
    tags = {
        f"aws:RequestTag/kubernetes.io/cluster/{CLUSTER}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": CLUSTER,
        "aws:RequestTag/topology.kubernetes.io/region": REGION,
        "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "train",
    }

    def create_profile(path: str, context: Mapping[str, str]) -> str:
        profile = f"arn:aws:iam::{ACCOUNT}:instance-profile/{path}"
        return str(ask(karpenter, "iam:CreateInstanceProfile", profile, context))

    own_path = f"karpenter/{REGION}/{CLUSTER}/p"
    assert create_profile(own_path, tags) == "allowed by identity policy CreateProfiles"
    assert create_profile(f"karpenter/{REGION}/{CLUSTER}-2/p", tags) == BY_IDENTITY
    assert create_profile("p", tags) == BY_IDENTITY
    for name in tags:
        assert create_profile(own_path, {tag: value for tag, value in tags.items() if tag != name}) == BY_IDENTITY, name


def test_karpenter_reads_its_own_queue(karpenter: tuple[Policies, Principal], environment: Environment) -> None:
    queue = identity.queue_policy(environment)["Statement"][0]["Resource"]
    assert ask(karpenter, "sqs:ReceiveMessage", queue).allowed
    assert str(ask(karpenter, "sqs:ReceiveMessage", f"{queue}-2")) == BY_IDENTITY
    assert str(ask(karpenter, "sqs:SendMessage", queue)) == BY_IDENTITY


# Queue and key


def test_the_queue_is_written_by_its_own_rules_and_encrypted(environment: Environment) -> None:
    policy = identity.queue_policy(environment)
    queue = policy["Statement"][0]["Resource"]
    rules = policy["Statement"][0]["Condition"]["ArnEquals"]["aws:SourceArn"]

    def send_message(who: Principal, context: Mapping[str, Any]) -> str:
        return str(ask((Policies(resource=policy), who), "sqs:SendMessage", queue, context))

    events, own_context = service("events.amazonaws.com"), {"aws:SourceArn": rules[0], "aws:SecureTransport": True}
    assert send_message(events, own_context) == "allowed by resource policy WriteFromOwnRules"
    assert send_message(events, {**own_context, "aws:SourceArn": f"{rules[0]}-2"}) == BY_TRUST
    assert send_message(events, {**own_context, "aws:SecureTransport": False}) == (
        "explicit deny by resource policy NothingUnencrypted"
    )
    assert send_message(service("sns.amazonaws.com"), own_context) == BY_TRUST
    assert send_message(role_session("arn:aws:iam::444455556666:role/other"), own_context) == BY_TRUST


@pytest.mark.parametrize("organisation", [None, "o-abcdef1234"])
def test_keys_of_other_accounts_do_not_write_to_s3(environment: Environment, organisation: str | None) -> None:
    aws = environment.aws.model_copy(update={"organization_id": organisation})
    policy = identity.s3_endpoint_policy(environment.model_copy(update={"aws": aws}))
    own_principal = role_session(f"arn:aws:iam::{ACCOUNT}:role/mine", organisation=organisation)
    foreign = role_session("arn:aws:iam::444455556666:role/other", organisation="o-zyxwvu9876")
    denied = "explicit deny by resource policy NoWritesWithForeignKeys"

    def decision_of(who: Principal, action: str) -> str:
        return str(ask((Policies(resource=policy), who), action, "arn:aws:s3:::foreign/object"))

    for action in ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject", "s3:CreateBucket"):
        assert decision_of(foreign, action) == denied, action
        assert decision_of(own_principal, action) != denied, action
    assert decision_of(foreign, "s3:GetObject") != denied, "layers of images are read with a registry's signature"


PLATFORM = role_session(f"arn:aws:iam::{ACCOUNT}:role/gpu-platform")
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
ANY_KEY = {"Version": "2012-10-17", "Statement": {"Sid": "Any", "Effect": "Allow", "Action": "kms:*", "Resource": "*"}}


def of_key(environment: Environment, who: Principal, action: str, context: Mapping[str, Any] | None = None) -> str:
    own_policies = [ANY_KEY] if who.account else []
    policies = Policies(identity=own_policies, resource=identity.key_policy(environment), guard=ResourceClass.KEY)
    return str(ask((policies, who), action, KEY, context))


def test_the_key_is_administered_by_identity_policies_and_read_by_none(environment: Environment) -> None:
    assert of_key(environment, PLATFORM, "kms:CreateGrant") == "allowed by identity policy Any"
    assert of_key(environment, PLATFORM, "kms:ScheduleKeyDeletion") == "allowed by identity policy Any"
    assert of_key(environment, PLATFORM, "kms:Decrypt") == BY_TRUST, "not even by who may do all with keys"
    stranger = role_session("arn:aws:iam::444455556666:role/admin")
    assert of_key(environment, stranger, "kms:CreateGrant") == BY_TRUST


def test_volumes_open_the_key_through_ec2_of_this_region(environment: Environment) -> None:
    def opened(**change: str) -> str:
        via = {"kms:CallerAccount": ACCOUNT, "kms:ViaService": f"ec2.{REGION}.amazonaws.com"}
        return of_key(environment, PLATFORM, "kms:Decrypt", {**via, **{f"kms:{k}": v for k, v in change.items()}})

    assert opened() == "allowed by resource policy Volumes"
    assert opened(ViaService=f"s3.{REGION}.amazonaws.com") == BY_TRUST
    assert opened(ViaService="ec2.eu-west-1.amazonaws.com") == BY_TRUST
    assert opened(CallerAccount="444455556666") == BY_TRUST


def test_auto_scaling_grants_the_key_to_aws_alone(environment: Environment) -> None:
    path = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    scaling = role_session(f"arn:aws:iam::{ACCOUNT}:role/{path}")
    for_aws = {"kms:CallerAccount": ACCOUNT, "kms:GrantIsForAWSResource": True}
    policies = Policies(resource=identity.key_policy(environment), guard=ResourceClass.KEY)
    granted = ask((policies, scaling), "kms:CreateGrant", KEY, for_aws)
    assert str(granted) == "allowed by resource policy GrantsOfNodeGroups"
    for_itself = {**for_aws, "kms:GrantIsForAWSResource": False}
    refused = ask((policies, scaling), "kms:CreateGrant", KEY, for_itself)
    assert str(refused) == BY_IDENTITY, "the account's name leaves it to identity policies, of which it has none"


def test_logs_of_this_cluster_are_encrypted_by_its_key(environment: Environment) -> None:
    logs = service(f"logs.{REGION}.amazonaws.com")

    def encrypted(group: str, who: Principal = logs) -> str:
        arn = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}"
        return of_key(environment, who, "kms:Encrypt", {"kms:EncryptionContext:aws:logs:arn": arn})

    own_group = f"{identity.log_group_prefix(environment)}cluster"
    assert encrypted(own_group) == "allowed by resource policy Logs"
    assert encrypted(f"/aws/eks/{CLUSTER}-2/cluster") == BY_TRUST
    assert encrypted(own_group, service("logs.eu-west-1.amazonaws.com")) == BY_TRUST
