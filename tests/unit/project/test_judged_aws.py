"""The judge `aws-engine` without its engine: requests against AWS' models, tokens, what the engine says, EKS on
loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aws_double_facts as facts
import botocore.session
import pytest

from judged.aws import edits, engine, journey, models, tokens
from judged.aws.answers import RefusedRequest
from judged.aws.billing import Budgets
from judged.aws.edits import Comparison
from judged.aws.eks import Eks, Request
from judged.aws.engine import AwsRequest, Run
from judged.aws.journey import Journey
from judged.model import Finding, SkippedJudge
from judged.program import Resource

# Requests against AWS' models


@cache
def shape(service: str, operation: str) -> Any:
    return botocore.session.Session().get_service_model(service).operation_model(operation).input_shape


ENTRY = {"clusterName": "bank", "principalArn": "arn:aws:iam::111122223333:role/a", "type": "STANDARD"}


@pytest.mark.parametrize(
    ("service", "operation", "request_body", "path"),
    [
        ("eks", "CreateAccessEntry", {**ENTRY, "kubernetesgroups": []}, ".kubernetesgroups"),
        ("eks", "CreateAccessEntry", {"clusterName": "bank"}, ".principalArn"),
        ("eks", "CreateNodegroup", {"capacityType": "RESERVED"}, ".capacityType"),
        ("eks", "CreateNodegroup", {"taints": [{"effect": "NoSchedule"}]}, ".taints[].effect"),
        ("kms", "TagResource", {"Tags": [{"TagKey": "k" * 129, "TagValue": ""}]}, ".Tags[].TagKey"),
        ("logs", "CreateLogGroup", {"logGroupName": "a b"}, ".logGroupName"),
        ("sqs", "CreateQueue", {"Attributes": {"Delay": "1"}}, ".Attributes{key}"),
        ("eks", "CreateNodegroup", {"scalingConfig": {"minSize": -1}}, ".scalingConfig.minSize"),
    ],
)
def test_a_parameter_that_aws_model_does_not_take_is_named(
    service: str, operation: str, request_body: dict[str, Any], path: str
) -> None:
    assert path in [where for where, _ in models.mistakes(shape(service, operation), request_body)]


@pytest.mark.parametrize(
    ("service", "operation", "request_body"),
    [
        ("eks", "CreateAccessEntry", {**ENTRY, "kubernetesGroups": ["a"]}),
        ("kms", "TagResource", {"KeyId": "a", "Tags": [{"TagKey": "k" * 128, "TagValue": ""}]}),
        ("logs", "CreateLogGroup", {"logGroupName": "a-b", "kmsKeyId": None}),
        ("sqs", "CreateQueue", {"QueueName": "a", "Attributes": {"DelaySeconds": "1"}}),
        ("budgets", "DeleteBudget", {"AccountId": "111122223333", "BudgetName": "bank fraud"}),
    ],
)
def test_a_request_as_aws_models_want_it_has_no_mistake(
    service: str, operation: str, request_body: dict[str, Any]
) -> None:
    """The pattern of a budget's name has a switch in its middle, which Python does not read as it is."""
    assert list(models.mistakes(shape(service, operation), request_body)) == []


def test_a_pattern_that_python_cannot_read_is_an_error_and_passes_nothing() -> None:
    text = SimpleNamespace(type_name="string", enum=[], metadata={"pattern": "[\\p{Sc}]+"})
    with pytest.raises(models.UnreadablePattern, match="Sc"):
        list(models.mistakes(text, "$"))


# Tokens


@pytest.fixture(scope="module")
def registrations() -> dict[str, Sequence[Resource]]:
    """By environment. What bank registers besides takes ten seconds and shows nothing else."""
    smaller = [environment for environment in journey.ENVIRONMENTS if environment.name != "bank"]
    return {environment.name: journey.registered(environment.source) for environment in smaller}


@pytest.fixture(scope="module")
def table(registrations: dict[str, Sequence[Resource]]) -> dict[str, Any]:
    return tokens.table(chain.from_iterable(registrations.values()))


def test_every_type_that_the_programs_register_has_its_token(table: dict[str, Any]) -> None:
    types = table["resources"]
    assert len(types) > 40
    assert types["aws_eks_cluster"]["token"] == "aws:eks/cluster:Cluster"
    assert types["aws_ce_cost_allocation_tag"]["token"] == "aws:costexplorer/costAllocationTag:CostAllocationTag"
    assert table["version"].startswith("7.")


def test_no_exception_is_of_a_type_that_nothing_registers(table: dict[str, Any]) -> None:
    assert {*tokens.NAMES, *tokens.SINGLE, *tokens.NEWER} <= set(table["resources"])


def test_what_the_program_names_has_to_go_before_it_comes_again(table: dict[str, Any]) -> None:
    first = {name for name, mapping in table["resources"].items() if mapping["deletesFirst"]}
    assert {"aws_eks_cluster", "aws_eks_node_group", "aws_s3_bucket", "aws_iam_role"} <= first
    assert not first & {"aws_vpc", "aws_subnet", "aws_eks_addon", "aws_kms_key"}
    kinds = {mapping["token"] for mapping in table["resources"].values()}
    assert {kind: name for kind, name in facts.AUTONAMED.items() if kind in kinds} == tokens.NAMED_BY
    assert not tokens.table([Resource("aws:iam/role:Role", "a", {})])["resources"]["aws_iam_role"]["deletesFirst"]


# The provider


def test_without_a_provider_the_judge_is_skipped_with_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(
        SkippedJudge, match=r"JUDGED_AWS_PROVIDER=PATH of `pulumi-resource-aws` \(`pulumi plugin install"
    ):
        engine.provider({"PATH": str(tmp_path)})
    with pytest.raises(SkippedJudge, match="no file `pulumi-resource-aws`"):
        engine.provider({"JUDGED_AWS_PROVIDER": str(tmp_path)})


def test_pulumis_own_plugin_needs_no_bridge(tmp_path: Path) -> None:
    plugin = tmp_path / "resource-aws-v7.51.1" / "pulumi-resource-aws"
    plugin.parent.mkdir()
    plugin.touch(mode=0o755)
    source = engine.provider({"PATH": str(plugin.parent)})
    assert (source.program, source.bridge, source.version) == (plugin, None, "7.51.1")
    assert engine.provider({"PATH": "", "JUDGED_AWS_PROVIDER": str(plugin)}) == source


def test_terraforms_provider_has_the_bridge_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, bridge = tmp_path / "terraform-provider-aws_v5.100.0_x5", tmp_path / "bridge"
    program.touch()
    monkeypatch.setattr(engine.homes, "built", lambda _: bridge)
    source = engine.provider({"JUDGED_AWS_PROVIDER": str(program)})
    assert (source.bridge, source.version) == (bridge, "5.100.0 bridged")


# What the engine and the server say


def event(operation: str, name: str, key: str = "resourcePreEvent") -> dict[str, Any]:
    urn = f"urn:pulumi:bank::gpu-tenancy::gpu-tenancy:index:Data$aws:kms/key:Key::{name}"
    return {key: {"metadata": {"op": operation, "urn": urn}}}


def test_steps_that_keep_a_resource_are_no_changes() -> None:
    stack = {"op": "create", "urn": "urn:pulumi:bank::gpu-tenancy::pulumi:pulumi:Stack::gpu-tenancy-bank"}
    events = [event("same", "a"), event("update", "b"), event("update", "b", "resOutputsEvent"), event("refresh", "c")]
    run = Run(0, [*events, {"resourcePreEvent": {"metadata": stack}}], "")
    assert run.changes == [("update", "aws:kms/key:Key b")]


def test_a_failed_run_is_told_by_its_first_error() -> None:
    events = [
        {"diagnosticEvent": {"severity": "warning", "message": "old"}},
        {"diagnosticEvent": {"severity": "error", "message": "<{%reset%}>creating\n  a key<{%reset%}>"}},
    ]
    assert Run(1, events, "x").problem == "creating a key"
    assert Run(1, [], "one\ntwo\n").problem == "two"


def test_what_a_stack_leaves_to_aws_is_no_deletion() -> None:
    def deletion(kind: str, **old: bool) -> dict[str, Any]:
        return {"resourcePreEvent": {"metadata": {"op": "delete", "urn": "", "type": kind, "old": old}}}

    component, deleted_role = deletion("gpu-tenancy:index:Data"), deletion("aws:iam/role:Role", retainOnDelete=False)
    retained_bucket = deletion("aws:s3/bucket:Bucket", retainOnDelete=True)
    assert Run(0, [component, retained_bucket, deleted_role, event("same", "a")], "").deletions == (2, 1)


def sent(operation: str, **fields: Any) -> AwsRequest:
    return AwsRequest("eks", operation, fields.pop("status", 200), fields.pop("wrong", ()), **fields)


def test_a_line_of_the_log_is_a_request() -> None:
    line = {"service": "kms", "region": "r", "status": 200, "operation": "TagResource", "wrong": [[".Tags", "missing"]]}
    (request,) = engine.requests([json.dumps(line)])
    assert (request.name, request.writes, request.wrong) == ("kms:TagResource", True, [(".Tags", "missing")])


def test_a_wrong_an_unread_and_a_refused_request_are_findings_once_each() -> None:
    bank = Journey("bank")
    wrong = sent("CreateCluster", wrong=[(".name", "missing")])
    refused = sent("CreateNodegroup", status=409, refusal="it exists")
    bank.judge_requests([wrong, wrong, refused, sent("DescribeCluster", status=404), sent("CreateAddon", unread="?")])
    assert [(finding.check, finding.object) for finding in bank.findings] == [
        ("request", "bank/eks:CreateCluster.name"),
        ("refused", "bank/eks:CreateNodegroup"),
        ("unread", "bank/eks:CreateAddon"),
    ]
    assert bank.row()[-2:] == ("5", "2")


def test_a_second_preview_that_is_not_clean_is_a_finding_for_each_resource() -> None:
    bank = Journey("bank")
    assert bank.judge_unchanged("preview", "bank", Run(0, [event("same", "a")], ""))
    assert not bank.judge_unchanged("preview", "bank", Run(0, [event("update", "a")], ""))
    assert not bank.judge_unchanged("preview", "bank", Run(255, [], "no plugin"))
    assert [finding.message for finding in bank.findings] == ["update", "no plugin"]


CONTROL_PLANE, GROUP = journey.UPGRADES


@pytest.mark.parametrize(
    ("changes", "operations", "items"),
    [
        ([("update", "a")], [CONTROL_PLANE, GROUP, GROUP], []),
        ([("update", "a")], ["ec2:CreateTags", GROUP, CONTROL_PLANE], ["order"]),
        ([("update", "a")], [CONTROL_PLANE], ["order"]),
        ([("update", "a")], [CONTROL_PLANE, CONTROL_PLANE, GROUP], ["order"]),
        ([("replace", "the group"), ("delete-replaced", "the group")], [CONTROL_PLANE, GROUP], ["the group"] * 2),
    ],
)
def test_an_upgrade_updates_the_control_plane_first_and_replaces_nothing(
    changes: list[tuple[str, str]], operations: list[str], items: list[str]
) -> None:
    assert [item for item, _ in journey.upgrade_problems(changes, operations)] == items


def test_a_minor_version_is_written_into_the_one_place_that_has_it(tmp_path: Path) -> None:
    file = tmp_path / "environment.yaml"
    file.write_text('cluster: {kubernetes: "1.36", cni: cilium}\n', "utf-8")
    journey.set_kubernetes(file, "1.35")
    assert file.read_text("utf-8") == 'cluster: {kubernetes: "1.35", cni: cilium}\n'
    file.write_text("cluster: {}\n", "utf-8")
    with pytest.raises(ValueError, match="is there 0 times"):
        journey.set_kubernetes(file, "1.35")


# Seeded faults


def test_a_seeded_fault_is_found_by_its_check_on_its_object_alone() -> None:
    row = {"check": "request", "object": "faulty/kms:*.Tags[[][]].TagKey"}
    request_finding = Finding("aws-engine", "request", "faulty/kms:TagResource.Tags[].TagKey", "129 characters")
    preview_finding = Finding("aws-engine", "preview", "faulty/kms:TagResource.Tags[].TagKey", "129 characters")
    assert journey.found_by([request_finding, preview_finding], row) == [
        "request: kms:TagResource.Tags[].TagKey: 129 characters"
    ]
    assert journey.found_by([preview_finding], row) == []


def test_every_seeded_fault_is_of_a_type_that_its_environment_registers(
    registrations: dict[str, Sequence[Resource]],
) -> None:
    kinds = {resource.kind for resource in registrations["regulated"]}
    rows = journey.faults()
    assert rows
    assert {row["kind"] for row in rows} <= kinds
    assert len({row["kind"] for row in rows}) == len(rows), "each has a resource of its own"


def test_a_fault_that_is_not_found_and_a_process_that_stays_are_findings() -> None:
    seeded = {row["name"]: [] for row in journey.faults()}
    findings = journey.summary([], seeded, Comparison(journey.JUDGE), 2, "5.100.0").findings
    assert [(finding.check, finding.object) for finding in findings] == [
        *(("fault", name) for name in seeded),
        ("processes", "providers"),
    ]


# Edits of fields

TABLE = """\
aws.a
  replace on AWS: Cluster, NodeGroup ×8
  update on AWS: Role
  update: Namespace ×2, Role
  up: refused: given aws.a

aws.b (more)
  update: Namespace
"""


def test_the_table_of_edits_is_read_as_counts_of_types_on_aws() -> None:
    assert edits.table(TABLE) == {
        "aws.a": {("replace", "Cluster"): 1, ("replace", "NodeGroup"): 8, ("update", "Role"): 1},
        "aws.b (more)": {},
    }


def test_every_edit_is_in_the_table_and_some_of_it_on_aws() -> None:
    rows = edits.table(edits.TABLE.read_text("utf-8"))
    assert rows.keys() == {edit.title for edit in edits.field_edits.EDITS}
    assert rows["cluster.service-cidr"]["replace", "Cluster"] == 1


CLUSTER, ROLE, OBJECT = "aws:eks/cluster:Cluster a", "aws:iam/role:Role b", "kubernetes:core/v1:Namespace c"


@pytest.mark.parametrize(
    ("changes", "types"),
    [
        ([("replace", CLUSTER), ("delete-replaced", CLUSTER), ("create-replacement", CLUSTER), ("update", ROLE)], []),
        ([("replace", CLUSTER), ("update", ROLE), ("delete", OBJECT)], []),
        ([("update", CLUSTER), ("update", ROLE)], ["Cluster", "Cluster"]),
        ([("replace", CLUSTER)], ["Role"]),
        ([("replace", CLUSTER), ("update", ROLE), ("update", f"{ROLE}-2")], ["Role"]),
    ],
)
def test_a_preview_is_held_against_the_table(changes: list[tuple[str, str]], types: list[str]) -> None:
    expectation = edits.Steps({("replace", "Cluster"): 1, ("update", "Role"): 1})
    assert [kind for kind, _ in edits.differences(expectation, changes)] == types


def test_edits_that_are_previewed_start_from_the_same_files_and_show_every_operation_and_each_kind_of_value() -> None:
    rows = edits.table(edits.TABLE.read_text("utf-8"))
    previewed = [edit for edit in edits.field_edits.EDITS if edit.title in edits.PREVIEWED]
    assert len(previewed) == len(edits.PREVIEWED)
    assert not [edit.title for edit in previewed if edit.before or not rows[edit.title]]
    steps = {step for edit in previewed for step in rows[edit.title]}
    assert {operation for operation, _ in steps} == {"create", "update", "replace", "delete"}
    lost_kinds = {kind for operation, kind in steps if operation in {"replace", "delete"}}
    assert lost_kinds >= {"Cluster", "Vpc", "Subnet", "NodeGroup", "Key"}


# EKS and Budgets on loopback


class FakeEc2:
    """Answers as moto's EC2 of a region."""

    def get_subnet(self, _: str) -> Any:
        return SimpleNamespace(vpc_id="vpc-1")

    def create_security_group(self, *_: str, vpc_id: str) -> Any:
        return SimpleNamespace(id=f"sg-of-{vpc_id}")

    def delete_security_group(self, *, group_id: str) -> None:
        assert group_id == "sg-of-vpc-1"


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask() -> Ask:
    eks = Eks(lambda _: FakeEc2())

    def answer(method: str, path: str, **body: Any) -> dict[str, Any]:
        return eks.answer(Request(method, tuple(path.split("/")), {}, body, "eu-central-1"))

    answer("POST", "clusters", name="bank", roleArn="r", resourcesVpcConfig={"subnetIds": ["s"]}, tags={"a": "b"})
    scaling = {"minSize": 1, "maxSize": 1, "desiredSize": 1}
    group = {"nodegroupName": "system", "scalingConfig": scaling, "subnets": ["s"], "nodeRole": "r"}
    answer(
        "POST", "clusters/bank/node-groups", **group, labels={"a": "1", "b": "2"}, taints=[{"key": "k", "effect": "e"}]
    )
    return answer


def test_eks_fills_in_what_a_cluster_was_not_given(ask: Ask) -> None:
    cluster = ask("GET", "clusters/bank")["cluster"]
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "172.20.0.0/16"
    assert cluster["resourcesVpcConfig"]["publicAccessCidrs"] == ["0.0.0.0/0"]
    assert [part["enabled"] for part in cluster["logging"]["clusterLogging"]] == [False]
    assert cluster["tags"] == {"a": "b"}


def test_a_name_that_exists_is_refused(ask: Ask) -> None:
    for path, body in (
        ("clusters", {"name": "bank", "resourcesVpcConfig": {}}),
        ("clusters/bank/node-groups", {"nodegroupName": "system"}),
    ):
        with pytest.raises(RefusedRequest) as refused:
            ask("POST", path, **body)
        assert refused.value.status == 409


def test_a_request_that_is_sent_again_has_the_answer_of_the_first(ask: Ask) -> None:
    path, body = "clusters/bank/pod-identity-associations", {"namespace": "a", "serviceAccount": "b", "roleArn": "r"}
    entry = {"principalArn": "role-b", "clientRequestToken": "once"}
    first, second = (ask("POST", "clusters/bank/access-entries", **entry) for _ in range(2))
    assert first == second
    with pytest.raises(RefusedRequest):
        ask("POST", "clusters/bank/access-entries", **{**entry, "clientRequestToken": "twice"})
    assert ask("POST", path, **body) != ask("POST", path, **body), "without a token each is another"


def test_a_cluster_with_node_groups_or_with_deletion_protection_is_not_deleted(ask: Ask) -> None:
    with pytest.raises(RefusedRequest, match="nodegroups attached"):
        ask("DELETE", "clusters/bank")
    ask("DELETE", "clusters/bank/node-groups/system")
    ask("POST", "clusters/bank/update-config", deletionProtection=True)
    with pytest.raises(RefusedRequest, match="Deletion protection"):
        ask("DELETE", "clusters/bank")
    ask("POST", "clusters/bank/update-config", deletionProtection=False)
    ask("DELETE", "clusters/bank")
    with pytest.raises(RefusedRequest, match="No cluster found"):
        ask("GET", "clusters/bank")


def test_an_update_of_a_group_changes_labels_taints_and_version(ask: Ask) -> None:
    path = "clusters/bank/node-groups/system"
    labels = {"addOrUpdateLabels": {"c": "3"}, "removeLabels": ["a"]}
    update = ask(
        "POST",
        f"{path}/update-config",
        labels=labels,
        taints={"addOrUpdateTaints": [{"key": "k", "effect": "e", "value": "v"}]},
    )
    assert ask("GET", f"clusters/bank/updates/{update['update']['id']}")["update"]["status"] == "Successful"
    ask("POST", f"{path}/update-version", version="1.36", force=True)
    group = ask("GET", path)["nodegroup"]
    assert group["labels"] == {"b": "2", "c": "3"}
    assert group["taints"] == [{"key": "k", "effect": "e", "value": "v"}]
    assert (group["version"], "force" in group) == ("1.36", False)


def test_an_access_entry_has_the_policies_that_were_associated(ask: Ask) -> None:
    path = "clusters/bank/access-entries/role-a"
    ask("POST", "clusters/bank/access-entries", principalArn="role-a")
    ask("POST", f"{path}/access-policies", policyArn="view", accessScope={"type": "cluster"})
    (policy,) = ask("GET", f"{path}/access-policies")["associatedAccessPolicies"]
    assert (policy["policyArn"], policy["accessScope"]) == ("view", {"namespaces": [], "type": "cluster"})
    ask("DELETE", f"{path}/access-policies/view")
    assert ask("GET", f"{path}/access-policies")["associatedAccessPolicies"] == []


def test_the_versions_of_an_add_on_move_with_kubernetes_the_most_recent_one_before_the_default() -> None:
    query = {"addonName": ["coredns"], "kubernetesVersion": ["1.36"]}
    answer = Eks(lambda _: FakeEc2()).answer(
        Request("GET", ("addons", "supported-versions"), query, {}, "eu-central-1")
    )
    (add_on,) = answer["addons"]
    versions = [version["addonVersion"] for version in add_on["addonVersions"]]
    assert versions == ["v9.36.1-eksbuild.1", "v9.36.0-eksbuild.1"]


def test_a_budget_comes_back_with_aws_defaults() -> None:
    budgets = Budgets()
    budget = {"BudgetName": "fraud", "BudgetLimit": {"Amount": "10", "Unit": "USD"}}
    alert = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
    people = [{"SubscriptionType": "EMAIL", "Address": "a@bank.example"}]
    body = {"Budget": budget, "NotificationsWithSubscribers": [{"Notification": alert, "Subscribers": people}]}
    budgets.answer("CreateBudget", body)
    answer = budgets.answer("DescribeBudget", {"BudgetName": "fraud"})["Budget"]
    assert (answer["BudgetLimit"]["Amount"], answer["CostTypes"]["IncludeTax"]) == ("10.0", True)
    request = {"BudgetName": "fraud", "Notification": alert}
    assert budgets.answer("DescribeSubscribersForNotification", request)["Subscribers"] == people
    budgets.answer("DeleteBudget", {"BudgetName": "fraud"})
    with pytest.raises(RefusedRequest, match="Unable to get budget"):
        budgets.answer("DescribeBudget", {"BudgetName": "fraud"})
