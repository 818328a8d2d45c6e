"""The AWS double, spoken to as the engine does. Every refusal has a twin that is let in."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

import aws_double_api
import aws_double_facts as facts
import aws_double_types as sdk
import grpc
import pytest
from aws_double import AwsDouble, Call
from aws_double_types import UNKNOWN, from_struct, to_struct
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
FUNCTION = "aws:lambda/function:Function"
ROLE = "aws:iam/role:Role"
BUDGET = "aws:budgets/budget:Budget"

SIGNATURE = rpc._special_sig_key
ARCHIVE = {SIGNATURE: rpc._special_archive_sig, "hash": "0", "path": "code.zip"}
SCALING = {"minSize": 0, "maxSize": 2, "desiredSize": 1}
NOTIFICATION = {"comparisonOperator": "GREATER_THAN", "notificationType": "ACTUAL", "thresholdType": "PERCENTAGE"}
GOOD: Mapping[str, Mapping[str, Any]] = {
    BUDGET: {"budgetType": "COST", "timeUnit": "MONTHLY"},
    CLUSTER: {"roleArn": "arn:aws:iam::111122223333:role/cluster", "vpcConfig": {"subnetIds": ["subnet-1"]}},
    FUNCTION: {"role": "arn:aws:iam::111122223333:role/function"},
    NODE_GROUP: {
        "clusterName": "c",
        "nodeRoleArn": "arn:aws:iam::111122223333:role/node",
        "subnetIds": ["subnet-1", "subnet-2"],
        "scalingConfig": SCALING,
    },
    ROLE: {"assumeRolePolicy": "{}"},
    TEMPLATE: {},
    "aws:ec2/vpc:Vpc": {"cidrBlock": "10.0.0.0/16"},
    "aws:rds/clusterInstance:ClusterInstance": {"clusterIdentifier": "c", "instanceClass": "db.r6g.large"},
}


def secret(value: Any) -> dict[str, Any]:
    return {SIGNATURE: rpc._special_secret_sig, "value": value}


class Engine:
    """The engine's end of the line."""

    def __init__(self, aws: AwsDouble, channel: grpc.Channel) -> None:
        self.aws, self.stub = aws, provider_pb2_grpc.ResourceProviderStub(channel)

    @staticmethod
    def urn(token: str, name: str) -> str:
        return f"urn:pulumi:dev::test::{token}::{name}"

    def check(self, token: str, inputs: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Any:
        news, olds = to_struct(inputs), to_struct(old or {})
        return self.stub.Check(pb.CheckRequest(urn=self.urn(token, "it"), news=news, olds=olds, randomSeed=b"seed"))

    def wrong(self, token: str, **changes: Any) -> dict[str, str]:
        """Path and reason of every failure of a good resource with these changes; None takes a property away."""
        return {failure.property: failure.reason for failure in self.check(token, {**GOOD[token], **changes}).failures}

    def diff(self, token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
        request = pb.DiffRequest(urn=self.urn(token, "it"), old_inputs=to_struct(old), news=to_struct(new))
        return self.stub.Diff(request)

    def create(
        self, token: str, logical: str = "it", /, preview: bool = False, **changes: Any
    ) -> tuple[str, dict[str, Any]]:
        properties = to_struct({**GOOD.get(token, {}), **changes})
        response = self.stub.Create(
            pb.CreateRequest(urn=self.urn(token, logical), properties=properties, preview=preview)
        )
        return response.id, from_struct(response.properties)

    def update(
        self, token: str, id: str, olds: Mapping[str, Any], preview: bool = False, **changes: Any
    ) -> dict[str, Any]:
        old_inputs, news = to_struct(GOOD[token]), to_struct({**GOOD[token], **changes})
        request = pb.UpdateRequest(
            id=id, urn=self.urn(token, "it"), olds=to_struct(olds), old_inputs=old_inputs, news=news, preview=preview
        )
        return from_struct(self.stub.Update(request).properties)

    def invoke(self, token: str, **arguments: Any) -> dict[str, Any]:
        answer = self.stub.Invoke(pb.InvokeRequest(tok=token, args=to_struct(arguments)))
        return from_struct(getattr(answer, "return"))


@pytest.fixture
def aws() -> Iterator[AwsDouble]:
    with AwsDouble() as double:
        yield double


@pytest.fixture
def engine(aws: AwsDouble) -> Iterator[Engine]:
    with grpc.insecure_channel(f"127.0.0.1:{aws.port}") as channel:
        yield Engine(aws, channel)


@pytest.mark.parametrize(
    ("token", "property", "bad", "path", "reason", "good"),
    [
        (NODE_GROUP, "labls", {"a": "b"}, "labls", "no such property; did you mean `labels`", None),
        (NODE_GROUP, "node_role_arn", "x", "node_role_arn", "did you mean `nodeRoleArn`", None),
        (NODE_GROUP, "clusterName", None, "clusterName", "needs this property", "c"),
        (NODE_GROUP, "clusterName", 3, "clusterName", "wants a string, got the number 3", "3"),
        (NODE_GROUP, "diskSize", "20", "diskSize", "wants a whole number, got the string '20'", 20),
        (NODE_GROUP, "diskSize", 20.5, "diskSize", "wants a whole number", 20.0),
        (NODE_GROUP, "diskSize", True, "diskSize", "wants a whole number, got true", 1),
        (NODE_GROUP, "forceUpdateVersion", "true", "forceUpdateVersion", "wants true or false", True),
        (NODE_GROUP, "subnetIds", "subnet-1", "subnetIds", "wants a list", ["subnet-1"]),
        (NODE_GROUP, "subnetIds", {"a": "b"}, "subnetIds", "wants a list, got a map", []),
        (NODE_GROUP, "subnetIds", ["a", 1], "subnetIds[1]", "wants a string", ["a", "1"]),
        (NODE_GROUP, "labels", ["a"], "labels", "wants a map, got a list", {}),
        (NODE_GROUP, "labels", {"gpus": 8}, "labels.gpus", "wants a string, got the number 8", {"gpus": "8"}),
        (NODE_GROUP, "scalingConfig", [SCALING], "scalingConfig", "wants eks.NodeGroupScalingConfig", SCALING),
        (NODE_GROUP, "scalingConfig", {**SCALING, "size": 1}, "scalingConfig.size", "no such property", SCALING),
        (NODE_GROUP, "scalingConfig", {**SCALING, "minSize": "0"}, "scalingConfig.minSize", "whole number", SCALING),
        (NODE_GROUP, "scalingConfig", {**SCALING, "minSize": None}, "scalingConfig.minSize", "needs this", SCALING),
        (NODE_GROUP, "taints", [{"key": "gpu"}], "taints[0].effect", "needs", [{"key": "g", "effect": "NO_SCHEDULE"}]),
        (ROLE, "assumeRolePolicy", 1, "assumeRolePolicy", "wants a string or iam.PolicyDocument", "{}"),
        (
            ROLE,
            "assumeRolePolicy",
            {"Version": "2012-10-17"},
            "assumeRolePolicy.Statement",
            "needs this property",
            {"Version": "2012-10-17", "Statement": []},
        ),
        (FUNCTION, "code", "code.zip", "code", "wants an archive, got the string", ARCHIVE),
        (FUNCTION, "description", ARCHIVE, "description", "wants a string, got a map", "code.zip"),
        (TEMPLATE, "ebsOptimized", True, "ebsOptimized", "wants a string, got true", "true"),
        (
            BUDGET,
            "notifications",
            [{**NOTIFICATION, "threshold": "80"}],
            "notifications[0].threshold",
            "wants a number, got the string",
            [{**NOTIFICATION, "threshold": 80}, {**NOTIFICATION, "threshold": 99.5}],
        ),
    ],
)
def test_a_property_that_the_sdk_would_not_have_is_refused(
    engine: Engine, token: str, property: str, bad: Any, path: str, reason: str, good: Any
) -> None:
    wrong = engine.wrong(token, **{property: bad})
    assert list(wrong) == [path]
    assert reason in wrong[path]
    assert engine.wrong(token, **{property: good}) == {}


def test_an_enumeration_without_a_way_out_is_closed(engine: Engine) -> None:
    token = "aws:rds/clusterInstance:ClusterInstance"
    assert "one of 'aurora'" in engine.wrong(token, engine="oracle")["engine"]
    assert engine.wrong(token, engine="aurora-postgresql") == {}


def test_a_type_that_the_sdk_does_not_have_is_refused(engine: Engine) -> None:
    failures = engine.check("aws:eks/nodegroup:NodeGroup", GOOD[NODE_GROUP]).failures
    assert [failure.reason for failure in failures] == ["pulumi_aws has no resource type aws:eks/nodegroup:NodeGroup"]
    assert not engine.check(NODE_GROUP, GOOD[NODE_GROUP]).failures


def test_what_is_unknown_passes_anywhere_and_what_is_secret_is_judged(engine: Engine) -> None:
    output = {SIGNATURE: rpc._special_output_value_sig, "secret": True}
    assert engine.wrong(NODE_GROUP, diskSize=UNKNOWN, scalingConfig=UNKNOWN, subnetIds=[UNKNOWN], labels=output) == {}
    assert engine.wrong(NODE_GROUP, diskSize=secret(20), labels={"a": secret("b")}) == {}
    assert list(engine.wrong(NODE_GROUP, diskSize=secret("20"))) == ["diskSize"]
    assert list(engine.wrong(NODE_GROUP, diskSize={**output, "value": "20"})) == ["diskSize"]


def test_settings_of_the_provider_are_judged_too(engine: Engine) -> None:
    def check(**settings: str) -> list[str]:
        request = pb.CheckRequest(urn=engine.urn("pulumi:providers:aws", "it"), news=to_struct(settings))
        return [failure.property for failure in engine.stub.CheckConfig(request).failures]

    assert check(regoin="eu-west-1") == ["regoin"]
    assert check(defaultTags='{"tag": {"a": "b"}}') == ["defaultTags.tag"]
    assert check(maxRetries="many") == ["maxRetries"]
    assert (
        check(
            profile="123",
            maxRetries="3",
            region="eu-west-1",
            defaultTags='{"tags": {"a": "b"}}',
            skipCredentialsValidation="true",
        )
        == []
    )


@pytest.mark.parametrize(
    ("token", "property", "bad", "path", "good"),
    [
        (NODE_GROUP, "taints", [{"key": "g", "effect": "NoSchedule"}], "taints[0].effect", None),
        (NODE_GROUP, "amiType", "AL2023_x86_64_NVIDA", "amiType", "AL2023_x86_64_NVIDIA"),
        (NODE_GROUP, "capacityType", "RESERVED", "capacityType", "CAPACITY_BLOCK"),
        (NODE_GROUP, "instanceTypes", ["p4d.24xlrge"], "instanceTypes[0]", ["p4d.24xlarge"]),
        (NODE_GROUP, "scalingConfig", {**SCALING, "maxSize": 0}, "scalingConfig.maxSize", SCALING),
        (CLUSTER, "enabledClusterLogTypes", ["audits"], "enabledClusterLogTypes[0]", ["audit"]),
        (CLUSTER, "accessConfig", {"authenticationMode": "IAM"}, "accessConfig.authenticationMode", None),
        (TEMPLATE, "metadataOptions", {"httpTokens": "yes"}, "metadataOptions.httpTokens", {"httpTokens": "required"}),
        (ROLE, "name", "r" * 65, "name", "r" * 64),
        (BUDGET, "timeUnit", "WEEKLY", "timeUnit", "MONTHLY"),
    ],
)
def test_a_value_that_the_api_does_not_know_is_refused(
    engine: Engine, token: str, property: str, bad: Any, path: str, good: Any
) -> None:
    assert list(engine.wrong(token, **{property: bad})) == [path]
    assert engine.wrong(token, **{property: good}) == {}


def test_every_operation_of_the_api_is_there_and_knows_its_renamed_members() -> None:
    for token, (service, operation, member) in aws_double_api.OPERATIONS.items():
        shape = aws_double_api._model(service).operation_model(operation).input_shape
        members = (shape.members[member] if member else shape).members
        assert set(aws_double_api.NAMES.get(token, {}).values()) <= set(members), token


def test_a_name_is_made_once_and_kept(engine: Engine) -> None:
    first = from_struct(engine.check(NODE_GROUP, GOOD[NODE_GROUP]).inputs)
    assert first["nodeGroupName"].startswith("it-")
    assert first["__defaults"] == ["nodeGroupName"]
    previous_inputs = from_struct(
        engine.check(NODE_GROUP, GOOD[NODE_GROUP], {**first, "nodeGroupName": "it-0000000"}).inputs
    )
    assert previous_inputs["nodeGroupName"] == "it-0000000"
    named_inputs = from_struct(engine.check(NODE_GROUP, {**GOOD[NODE_GROUP], "nodeGroupName": "given"}, first).inputs)
    assert (named_inputs["nodeGroupName"], named_inputs["__defaults"]) == ("given", [])
    prefixed = from_struct(engine.check(NODE_GROUP, {**GOOD[NODE_GROUP], "nodeGroupNamePrefix": "g-"}).inputs)
    assert "nodeGroupName" not in prefixed


@pytest.mark.parametrize(
    ("token", "old", "new", "replaces", "updates"),
    [
        (NODE_GROUP, {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, [], ["labels.a"]),
        (NODE_GROUP, {"instanceTypes": ["a"]}, {"instanceTypes": ["b"]}, ["instanceTypes[0]"], []),
        (NODE_GROUP, {"subnetIds": ["a", "b"]}, {"subnetIds": ["b", "a"]}, [], []),
        (NODE_GROUP, {"subnetIds": ["a"]}, {"subnetIds": ["b"]}, ["subnetIds"], []),
        (
            NODE_GROUP,
            {"launchTemplate": {"version": "1"}},
            {"launchTemplate": {"version": "2"}},
            [],
            ["launchTemplate.version"],
        ),
        (NODE_GROUP, {"launchTemplate": {"id": "a"}}, {"launchTemplate": {"id": UNKNOWN}}, ["launchTemplate.id"], []),
        (
            NODE_GROUP,
            {},
            {"launchTemplate": {"id": "a", "version": "1"}},
            ["launchTemplate.id"],
            ["launchTemplate.version"],
        ),
        (
            CLUSTER,
            {"vpcConfig": {"subnetIds": ["a"]}},
            {"vpcConfig": {"subnetIds": ["b"]}},
            [],
            ["vpcConfig.subnetIds"],
        ),
        (CLUSTER, {"version": "1.35"}, {"version": "1.36"}, [], ["version"]),
        (CLUSTER, {"encryptionConfig": {"resources": ["secrets"]}}, {}, ["encryptionConfig.resources"], []),
        (CLUSTER, {}, {"encryptionConfig": {"resources": ["secrets"]}}, [], ["encryptionConfig.resources"]),
        ("aws:ec2/vpc:Vpc", {"region": "eu-west-1"}, {"region": "eu-west-2"}, ["region"], []),
        ("aws:s3/bucketVersioning:BucketVersioning", {"bucket": "a"}, {"bucket": "b"}, ["bucket"], []),
        ("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", {"vpcId": "a"}, {"vpcId": "b"}, ["vpcId"], []),
        (
            "aws:s3/accessPoint:AccessPoint",
            {"publicAccessBlockConfiguration": {"blockPublicAcls": True}},
            {"publicAccessBlockConfiguration": {"blockPublicAcls": False}},
            ["publicAccessBlockConfiguration.blockPublicAcls"],
            [],
        ),
        (ROLE, {"tags": {"a": "1"}}, {"tags": {"a": "1"}, "__defaults": []}, [], []),
    ],
)
def test_what_aws_cannot_change_in_place_replaces(
    engine: Engine, token: str, old: Any, new: Any, replaces: list[str], updates: list[str]
) -> None:
    response = engine.diff(token, old, new)
    assert list(response.replaces) == replaces
    assert sorted(response.detailedDiff) == sorted(replaces + updates)
    assert (response.changes == pb.DiffResponse.DIFF_SOME) == bool(replaces + updates)


def test_a_given_name_is_free_only_after_the_old_resource_is_gone(engine: Engine) -> None:
    old, new = {"name": "r", "path": "/"}, {"name": "r", "path": "/team/"}
    assert engine.diff(ROLE, old, new).deleteBeforeReplace
    assert not engine.diff(ROLE, old, {**new, "name": "s"}).deleteBeforeReplace
    automatic = {"__defaults": ["name"]}
    assert not engine.diff(ROLE, {**old, **automatic}, {**new, **automatic}).deleteBeforeReplace


def test_a_name_is_taken_only_once(engine: Engine) -> None:
    engine.create(NODE_GROUP, nodeGroupName="g")
    with pytest.raises(grpc.RpcError, match=r"\(c:g\): it exists already"):
        engine.create(NODE_GROUP, "other", nodeGroupName="g")
    assert engine.create(NODE_GROUP, "other", nodeGroupName="h")[0] == "c:h"
    policy = "aws:s3/bucketPolicy:BucketPolicy"
    assert engine.create(policy, bucket="b")[0] == engine.create(policy, "again", bucket="b")[0] == "b"


def test_a_made_resource_has_what_the_sdk_promises(engine: Engine) -> None:
    id, cluster = engine.create(CLUSTER, name="c", tags={"a": "b"})
    assert id == "c"
    assert cluster["arn"] == "arn:aws:eks:eu-central-1:111122223333:cluster/c"
    assert cluster["vpcConfig"]["subnetIds"] == ["subnet-1"]
    assert cluster["vpcConfig"]["clusterSecurityGroupId"].startswith("sg-")
    assert cluster["tagsAll"] == {"a": "b"}
    id, vpc = engine.create("aws:ec2/vpc:Vpc")
    assert id.startswith("vpc-")
    assert vpc.keys() == {"cidrBlock", "region"} | sdk.computed("aws:ec2/vpc:Vpc").keys()
    assert vpc["defaultSecurityGroupId"].startswith("sg-")


def test_a_preview_leaves_open_what_aws_decides(engine: Engine) -> None:
    id, cluster = engine.create(CLUSTER, preview=True)
    assert id == ""
    assert cluster["endpoint"] == cluster["arn"] == cluster["vpcConfig"]["vpcId"] == rpc.UNKNOWN
    assert cluster["vpcConfig"]["subnetIds"] == ["subnet-1"]
    assert not engine.aws.live


@pytest.mark.parametrize(
    ("change", "planned", "then"),
    [({"imageId": "ami-1"}, rpc.UNKNOWN, 2), ({"description": "x"}, 1, 2), ({"tags": {"a": "b"}}, rpc.UNKNOWN, 1)],
)
def test_a_launch_template_counts_its_versions(engine: Engine, change: Any, planned: Any, then: int) -> None:
    id, outputs = engine.create(TEMPLATE)
    assert engine.update(TEMPLATE, id, outputs, preview=True, **change)["latestVersion"] == planned
    assert engine.update(TEMPLATE, id, outputs, **change)["latestVersion"] == then


def test_an_update_leaves_what_aws_decided_and_forgets_what_was_taken_away(engine: Engine) -> None:
    id, outputs = engine.create(CLUSTER, name="c")
    outputs["vpcConfig"]["endpointPublicAccess"] = True
    updated = engine.update(CLUSTER, id, outputs, vpcConfig={"subnetIds": ["subnet-9"]}, version="1.36")
    assert updated["vpcConfig"]["subnetIds"] == ["subnet-9"]
    assert updated["vpcConfig"]["vpcId"] == outputs["vpcConfig"]["vpcId"]
    assert (updated["endpoint"], updated["version"]) == (outputs["endpoint"], "1.36")
    hidden = secret({"subnetIds": ["subnet-9"]})
    assert engine.update(CLUSTER, id, outputs, vpcConfig=hidden)["vpcConfig"] == hidden
    with pytest.raises(grpc.RpcError, match="does not exist"):
        engine.update(CLUSTER, "other", outputs, version="1.36")


def test_an_invoke_without_an_answer_fails(engine: Engine) -> None:
    token = "aws:ssm/getParameter:getParameter"
    with pytest.raises(grpc.RpcError, match=f"no answer to {token}"):
        engine.invoke(token, name="/ami")
    engine.aws.answers[token] = lambda arguments, region: {"value": f"{arguments['name']} in {region}"}
    assert engine.invoke(token, name="/ami") == {"value": "/ami in eu-central-1"}
    assert engine.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == facts.ACCOUNT
    assert engine.invoke("aws:index/getRegion:getRegion", region="eu-west-2")["region"] == "eu-west-2"


def test_a_fault_strikes_the_calls_it_names_as_often_as_it_says(engine: Engine) -> None:
    engine.aws.fail_on("nodeGroup:NodeGroup::it", "create", "no capacity", times=2)
    engine.create(NODE_GROUP, nodeGroupName="g", preview=True)
    engine.create(NODE_GROUP, "other", nodeGroupName="other")
    for _ in range(2):
        with pytest.raises(grpc.RpcError, match="no capacity"):
            engine.create(NODE_GROUP, nodeGroupName="g")
    engine.create(NODE_GROUP, nodeGroupName="g")


def test_every_call_is_written_down_before_anything_is_done(engine: Engine) -> None:
    live: list[int] = []
    engine.aws.on_call = lambda _: live.append(len(engine.aws.live))
    id, _ = engine.create(ROLE, "first", name="r", path=secret("/team/"))
    engine.stub.Read(pb.ReadRequest(id=id, urn=engine.urn(ROLE, "first")))
    engine.stub.Delete(pb.DeleteRequest(id=id, urn=engine.urn(ROLE, "first")))
    urn = "urn:pulumi:dev::test::aws:iam/role:Role::first"
    inputs = {"assumeRolePolicy": "{}", "name": "r", "path": "/team/"}
    assert engine.aws.calls[0] == Call("create", ROLE, "first", urn, inputs)
    assert engine.aws.order("create", "read", "delete") == ["create first", "read first", "delete first"]
    assert live == [0, 1, 1]


def test_reading_finds_what_is_there_and_only_that(engine: Engine) -> None:
    id, _ = engine.create(ROLE, name="r")

    def read() -> tuple[str, Any]:
        response = engine.stub.Read(pb.ReadRequest(id=id, urn=engine.urn(ROLE, "it")))
        return response.id, from_struct(response.inputs).get("description")

    engine.aws.drift("::it", description="drifted")
    assert read() == ("r", "drifted")
    engine.aws.lose("::it")
    assert read() == ("", None)


def test_parameterized_providers_are_not_played(engine: Engine) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        engine.stub.Parameterize(pb.ParameterizeRequest())
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def _has(token: str, path: str) -> bool:
    typ: Any = sdk.arguments_class(sdk.resource_class(token))
    for name in path.split("."):
        if name not in sdk.fields(typ):
            return False
        typ = sdk.fields(typ)[name]
    return True


def test_the_tables_name_types_and_properties_that_the_sdk_has() -> None:
    tables = (facts.REPLACES, facts.AUTONAMED, facts.PREFIXES, facts.IDS, facts.ARNS, aws_double_api.OPERATIONS)
    tokens = {token for table in tables for token in table} | facts.DELETES_FIRST | facts.PUTS
    assert [token for token in sorted(tokens) if sdk.resource_class(token) is None] == []
    type_properties = [
        (token, path) for table in (facts.REPLACES, facts.AUTONAMED) for token in table for path in table[token].split()
    ]
    assert [pair for pair in type_properties if not _has(*pair)] == []
    generated_words = {"account", "region", "id", "arn", "uuid", "host", "path", "name"}
    for table in (facts.IDS, facts.ARNS):
        for token, template in table.items():
            words = {word for _, word, _, _ in string.Formatter().parse(template) if word}
            assert [word for word in words - generated_words if not _has(token, word)] == [], token


def test_every_type_of_the_packages_in_use_has_an_arguments_class() -> None:
    used = {token.split(":")[1].partition("/")[0] for token in facts.REPLACES}
    modules = [
        module
        for key, package_modules in rpc._RESOURCE_MODULES.items()
        for module in package_modules
        if key.startswith("aws:")
    ]
    tokens = [token for module in modules for token in module.mod_info["classes"] if re.split("[:/]", token)[1] in used]
    assert len(tokens) > 200
    assert [token for token in tokens if not sdk.arguments_class(sdk.resource_class(token))] == []
