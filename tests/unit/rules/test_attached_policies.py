"""id-06 through attachments: what a policy of its own lets the tenant do whose role it is attached to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
from pack_cases import on_aws

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN
from tenancy.rules import aws
from tenancy.rules.cross_object import findings_together

Object = dict[str, Any]
NOT_KNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The engine's spelling of a string that a preview does not know."""
WHOLE_BUCKET, OWN_PREFIX = "arn:aws:s3:::data/*", "arn:aws:s3:::data/acme/*"
ACCOUNT = "arn:aws:iam::111122223333:policy"


def policy(name: str = "p", on: str = WHOLE_BUCKET, *actions: str, tenant: str = "") -> Object:
    statement = {"Effect": "Allow", "Action": [*(actions or ("s3:GetObject",))], "Resource": on}
    tags = {"tags": {vocabulary.TENANT_TAG: tenant}} if tenant else {}
    return on_aws(aws.POLICY, name, {"name": name, "policy": json.dumps({"Statement": [statement]}), **tags})


def role(name: str, tenant: str | None = "acme", **more: Any) -> Object:
    tags = {"tags": {vocabulary.TENANT_TAG: tenant}} if tenant else {}
    return on_aws(aws.ROLE, name, {"name": name, **tags, **more})


def attachment_findings(*items: Object) -> list[tuple[str, str]]:
    return [(finding.object, finding.given) for finding in findings_together(items) if finding.rule == "id-06"]


ACCESS_TO_BUCKET = f"policy p: s3:getobject on {WHOLE_BUCKET} for tenant acme"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (aws.ATTACHMENT, {"role": "jobs", "policyArn": f"{ACCOUNT}/p"}),
        (aws.ATTACHMENT, {"role": "jobs", "policyArn": f"{ACCOUNT}/below/a/path/p"}),
        (aws.ATTACHMENT_TO_ALL, {"roles": ["else", "jobs"], "policyArn": f"{ACCOUNT}/p"}),
        (aws.ALL_ATTACHMENTS, {"roleName": "jobs", "policyArns": [f"{ACCOUNT}/else", f"{ACCOUNT}/p"]}),
    ],
)
def test_both_ends_are_found_by_what_they_are_called(kind: str, fields: Object) -> None:
    attachment = on_aws(kind, "a", fields)
    assert attachment_findings(role("jobs"), policy(), attachment) == [(f"{kind} a", ACCESS_TO_BUCKET)]
    assert attachment_findings(role("jobs"), policy(on=OWN_PREFIX), attachment) == [], "below its prefix"
    assert attachment_findings(role("jobs", None), policy(), attachment) == [], "a role of no tenant"
    assert attachment_findings(role("other"), policy(), attachment) == [], "another role"


def test_everything_on_everything_is_told_of_where_it_is_attached_too() -> None:
    wide = policy("p", "*", "s3:*")
    attachment = on_aws(aws.ATTACHMENT, "a", {"role": "jobs", "policyArn": f"{ACCOUNT}/p"})
    assert attachment_findings(role("jobs"), wide, attachment) == [
        (f"{aws.ATTACHMENT} a", "policy p: s3:* on * for tenant acme")
    ]


def test_a_role_that_names_a_policy_has_it_attached() -> None:
    role_with_policy = role("jobs", managedPolicyArns=[f"{ACCOUNT}/p"])
    assert attachment_findings(role_with_policy, policy()) == [(f"{aws.ROLE} jobs", ACCESS_TO_BUCKET)]
    assert attachment_findings(role_with_policy, policy(on=OWN_PREFIX)) == []


def test_what_aws_calls_the_same_is_not_the_programs() -> None:
    attachment_of_aws = on_aws(aws.ATTACHMENT, "a", {"role": "jobs", "policyArn": "arn:aws:iam::aws:policy/AWSDenyAll"})
    assert attachment_findings(role("jobs"), policy("AWSDenyAll"), attachment_of_aws) == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (aws.ATTACHMENT, {"role": "jobs", "policyArn": "arn:aws:iam::aws:policy/{}"}),
        (aws.ATTACHMENT_TO_ALL, {"roles": ["jobs"], "policyArn": "arn:aws:iam::aws:policy/job-function/{}"}),
        (aws.ALL_ATTACHMENTS, {"roleName": "jobs", "policyArns": ["arn:aws-cn:iam::aws:policy/{}"]}),
    ],
)
def test_a_policy_of_aws_own_knows_no_tenants(kind: str, fields: Object) -> None:
    def attachment(name: str) -> Object:
        return on_aws(kind, "a", json.loads(json.dumps(fields).replace("{}", name)))

    explanation = "AWS' own SecretsManagerReadWrite for tenant acme, which does not distinguish tenants"
    assert attachment_findings(role("jobs"), attachment("SecretsManagerReadWrite")) == [(f"{kind} a", explanation)]
    assert attachment_findings(role("jobs", None), attachment("SecretsManagerReadWrite")) == [], "a role of no tenant"
    assert attachment_findings(role("jobs"), attachment("AWSXRayDaemonWriteAccess")) == [], "it reads nothing"


def test_a_policy_with_the_tenants_tag_is_judged_once_where_it_stands() -> None:
    attachment = on_aws(aws.ATTACHMENT, "a", {"role": "jobs", "policyArn": f"{ACCOUNT}/p"})
    assert attachment_findings(role("jobs"), policy(tenant="acme"), attachment) == []
    assert attachment_findings(role("jobs"), policy(tenant="rival"), attachment) == [
        (f"{aws.ATTACHMENT} a", ACCESS_TO_BUCKET)
    ]


def test_a_role_policy_reaches_its_role_by_name_as_well() -> None:
    wide = json.loads(policy()["policy"])
    inline = on_aws(aws.ROLE_POLICY, "a", {"role": "jobs", "policy": json.dumps(wide)})
    assert attachment_findings(role("jobs"), inline) == [(f"{aws.ROLE_POLICY} a", ACCESS_TO_BUCKET.partition(": ")[2])]


UNPROTECTED: Any = None
"""Options of a resource, which nothing here reads."""


def in_preview(
    pack: ModuleType, attachment: Object, sources: Mapping[str, Sequence[Object]], *others: Object
) -> list[str]:
    """Messages of the stack's policies in a preview that knows no ARN and no role's name yet."""
    from pulumi_policy import ResourceValidationArgs, StackValidationArgs
    from pulumi_policy.policy import PolicyResource
    from pulumi_policy.proxy import unknown_checking_proxy

    def policy_resource(item: Object, sources: Mapping[str, Sequence[Object]]) -> Any:
        inputs = {key: value for key, value in item.items() if key not in {"kind", "metadata"}}
        props, name = unknown_checking_proxy(inputs), item["metadata"]["name"]
        dependencies = {field: [policy_resource(source, {}) for source in items] for field, items in sources.items()}
        return PolicyResource(item["kind"], props, "urn", name, UNPROTECTED, None, None, [], dependencies)

    messages: list[str] = []
    first = ResourceValidationArgs("pulumi:pulumi:Stack", {}, "urn", "s", UNPROTECTED, None, {}, {})
    next(policy for policy in pack.POLICIES if policy.name == "isolation").validate(first, lambda *_: None)
    source_items = [source for items in sources.values() for source in items]
    resources = [
        *(policy_resource(source, {}) for source in (*source_items, *others)),
        policy_resource(attachment, sources),
    ]
    for policy in (policy for policy in pack.POLICIES if policy.name.startswith("isolation-stack")):
        policy.validate(StackValidationArgs(resources, {}, {}), lambda text, _urn=None: messages.append(text))
    return [text for text in messages if text.startswith(f"id-06: {attachment['kind']} ")]


DARK = on_aws(aws.ATTACHMENT, "a", {"role": NOT_KNOWN, "policyArn": NOT_KNOWN})


def test_both_ends_are_found_by_the_resources_that_a_preview_says_they_come_from(pack: ModuleType) -> None:
    (message,) = in_preview(pack, DARK, {"role": [role("jobs")], "policyArn": [policy()]})
    assert f"given {ACCESS_TO_BUCKET};" in message
    assert in_preview(pack, DARK, {"role": [role("jobs")], "policyArn": [policy(on=OWN_PREFIX)]}) == []
    assert in_preview(pack, DARK, {"role": [role("jobs", None)], "policyArn": [policy()]}) == []


@pytest.mark.parametrize(
    ("sources", "unknown_ends"),
    [
        ({"role": [role("jobs")]}, f"policyArn {UNKNOWN} for tenant acme"),
        ({"policyArn": [policy()]}, f"role {UNKNOWN}, policy p: s3:getobject on {WHOLE_BUCKET} for an unknown tenant"),
        ({}, f"policyArn {UNKNOWN} for role {UNKNOWN}"),
    ],
    ids=["policy", "role", "neither"],
)
def test_an_end_that_comes_from_elsewhere_is_told_of(
    pack: ModuleType, sources: Mapping[str, Sequence[Object]], unknown_ends: str
) -> None:
    (message,) = in_preview(pack, DARK, sources)
    assert f"given {unknown_ends};" in message


def test_of_many_roles_the_one_from_elsewhere_is_told_of(pack: ModuleType) -> None:
    attachment = on_aws(aws.ATTACHMENT_TO_ALL, "a", {"roles": [NOT_KNOWN, NOT_KNOWN], "policyArn": NOT_KNOWN})
    sources = {"roles": [role("jobs")], "policyArn": [policy()]}
    known_role_message, unknown_role_message = in_preview(pack, attachment, sources)
    assert f"given {ACCESS_TO_BUCKET};" in known_role_message
    assert f"given roles {UNKNOWN}, policy p: " in unknown_role_message
    both = in_preview(pack, attachment, {**sources, "roles": [role("jobs"), role("nodes", None)]})
    assert len(both) == 1, "both are the program's"


def test_a_role_whose_tenant_is_not_known_is_told_of(pack: ModuleType) -> None:
    (message,) = in_preview(pack, DARK, {"role": [role("jobs", NOT_KNOWN)], "policyArn": [policy()]})
    assert f"given role {UNKNOWN}, policy p: " in message


def test_a_role_without_a_tenant_may_have_a_policy_from_elsewhere(pack: ModuleType) -> None:
    assert in_preview(pack, DARK, {"role": [role("nodes", None)]}) == []


def test_a_policy_that_stays_below_a_prefix_may_go_to_a_role_from_elsewhere(pack: ModuleType) -> None:
    assert in_preview(pack, DARK, {"policyArn": [policy(on=OWN_PREFIX)]}) == []


def test_two_names_that_are_not_known_are_not_taken_for_one(pack: ModuleType) -> None:
    unnamed = {**role("jobs"), "name": NOT_KNOWN}
    messages = in_preview(pack, DARK, {"policyArn": [policy()]}, unnamed)
    assert [UNKNOWN in text for text in messages] == [True]
