"""Resources that tenants share on AWS, and their isolation in them, fact by fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.planning.aws import iam_roles, platform_plan
from tenancy.planning.aws.documents import Document, length
from tenancy.planning.aws.platform_models import BucketPlan, DataPlan
from tenancy.planning.aws.tenant_plan import tenant_aws_plan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tests.conftest import every, nonempty
from tests.tenant_aws_world import ACCOUNT, AWS, CLUSTER_ARN, REGION, as_list, tenant

ROLE = f"arn:aws:iam::{ACCOUNT}:role/"
GLASS = {"trusted-principals": [f"arn:aws:iam::{ACCOUNT}:user/jane"], "mail": "security@bank.example"}
GLASS_ROLE = f"{ROLE}tenancy-platform/small/small-break-glass"
Planned = Callable[..., DataPlan]


@pytest.fixture(scope="session")
def plan_of(environment: Environment) -> Planned:
    """The plan for so many buckets and tenants; keywords are fields of `aws`."""
    environment_fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def plan(buckets: Any = ("data",), tenants: tuple[Tenant, ...] = (), **aws: Any) -> DataPlan:
        changed_fields = {"aws": {**AWS, **aws}, "buckets": buckets, "pools": {}, "flavors": {}}
        data_plan = platform_plan.data_plan(
            Environment.model_validate({**environment_fields, **changed_fields}), tenants
        )
        assert data_plan
        return data_plan

    return plan


def holding(name: str, *grants: dict[str, Any], **more: Any) -> Tenant:
    return tenant(namespaces=["main"], storage=grants, aws_resources={}, **more).model_copy(update={"tenant": name})


def only_bucket(plan: DataPlan) -> BucketPlan:
    (bucket,) = plan.buckets
    return bucket


def statement(document: Document, sid: str) -> Document:
    (entry,) = [s for s in document["Statement"] if s["Sid"] == sid]
    return entry


FRAUD = holding("fraud", {"bucket": "data", "prefix": "fraud/", "access": "read-write"})

# Buckets


def test_a_bucket_is_made_with_a_key_that_encrypts_by_default(plan_of: Planned) -> None:
    plan = plan_of(["data", "models"])
    assert [(bucket.name, bucket.key) for bucket in plan.buckets] == [
        ("data", "alias/tenancy/small/bucket/data"),
        ("models", "alias/tenancy/small/bucket/models"),
    ]
    assert [key.alias for key in plan.keys] == [bucket.key for bucket in plan.buckets]


def test_an_existing_bucket_is_not_made_and_within_the_boundary(plan_of: Planned) -> None:
    plan = plan_of({"data": {}, "old": {"existing": True}}, (FRAUD,))
    assert [bucket.name for bucket in plan.buckets] == ["data"]
    assert [key.alias for key in plan.keys] == ["alias/tenancy/small/bucket/data"]
    assert plan.boundary
    assert "arn:aws:s3:::old/*" in statement(plan.boundary.document, "Objects")["Resource"]


def test_removing_a_line_does_not_delete_a_bucket_that_has_objects(plan_of: Planned) -> None:
    assert only_bucket(plan_of()).force_destroy is False


def test_a_buckets_policy_only_denies_and_names_no_principal(plan_of: Planned) -> None:
    """A principal that is not there makes S3 refuse the policy; made anew, it would not be meant."""
    policy = only_bucket(plan_of(tenants=(FRAUD,))).policy
    assert {s["Effect"] for s in policy["Statement"]} == {"Deny"}
    assert {s["Principal"] for s in policy["Statement"]} == {"*"}


def test_every_isolation_resource_but_encryption_lets_the_platform_and_break_glass_pass(plan_of: Planned) -> None:
    """The platform can repair every bucket."""
    policy = only_bucket(plan_of(tenants=(FRAUD,), **{"organization-id": "o-a1b2c3d4e5", "break-glass": GLASS})).policy
    for s in nonempty(policy["Statement"]):
        condition = json.dumps(s["Condition"])
        if s["Sid"] in {"NothingUnencrypted", "NoWeakerEncryption", "NoKeysOfClients"}:
            assert AWS["platform-role"] not in condition, "and these apply to all principals"
        elif "ArnLike" in s["Condition"]:
            assert s["Condition"]["ArnLike"] == {"aws:PrincipalArn": f"{ROLE}tenancy/small/*"}, (
                "tenants alone are meant"
            )
        else:
            assert {AWS["platform-role"], GLASS_ROLE} <= set(_exempt(s["Condition"])), s["Sid"]


def _exempt(condition: Document) -> list[str]:
    return [arn for operator in condition.values() for arn in as_list(operator.get("aws:PrincipalArn", []))]


def test_without_break_glass_only_the_platform_is_exempt(plan_of: Planned) -> None:
    assert "break-glass" not in json.dumps(only_bucket(plan_of(tenants=(FRAUD,))).policy)


def test_data_is_reached_by_tls_alone(plan_of: Planned) -> None:
    denial = statement(only_bucket(plan_of()).policy, "NothingUnencrypted")
    assert denial["Action"] == ["s3:*"]
    assert denial["Resource"] == ["arn:aws:s3:::data", "arn:aws:s3:::data/*"]
    assert denial["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_data_is_reached_through_endpoints_of_the_account_or_from_the_given_network(plan_of: Planned) -> None:
    def inside(**aws: Any) -> Document:
        return statement(only_bucket(plan_of(**aws)).policy, "OnlyFromInside")["Condition"]["StringNotEquals"]

    network = {"vpc": "vpc-0123abcd", "subnets": {f"{REGION}a": "subnet-0123abcd", f"{REGION}b": "subnet-4567cdef"}}
    assert inside()["aws:VpceAccount"] == ACCOUNT
    assert inside(network=network)["aws:SourceVpc"] == "vpc-0123abcd"


def test_data_is_reached_by_the_organisation_alone_where_one_is_written(plan_of: Planned) -> None:
    denial = statement(only_bucket(plan_of(**{"organization-id": "o-a1b2c3d4e5"})).policy, "OnlyOfTheOrganisation")
    assert denial["Condition"]["StringNotEquals"]["aws:PrincipalOrgID"] == "o-a1b2c3d4e5"
    assert "OnlyOfTheOrganisation" not in {s["Sid"] for s in only_bucket(plan_of()).policy["Statement"]}


def test_a_prefix_is_its_holders_alone(plan_of: Planned) -> None:
    aml = holding("aml", {"bucket": "data", "prefix": "aml/"})
    policy = only_bucket(plan_of(tenants=(FRAUD, aml))).policy
    (denial,) = [
        s for s in policy["Statement"] if s["Resource"] == ["arn:aws:s3:::data/fraud/*"] and s["Action"] == ["s3:*"]
    ]
    assert _exempt(denial["Condition"]) == [f"{ROLE}tenancy/small/fraud/small--fraud--main", AWS["platform-role"]]


@pytest.mark.parametrize("tenants", [2, 40])
def test_with_access_points_the_policy_is_as_long_for_two_tenants_as_for_forty(plan_of: Planned, tenants: int) -> None:
    holders = tuple(holding(f"t{i}", {"bucket": "data", "prefix": f"t{i}/"}) for i in range(tenants))
    assert length(only_bucket(plan_of({"data": {"access-points": True}}, holders)).policy) == length(
        only_bucket(plan_of({"data": {"access-points": True}})).policy
    )
    assert length(only_bucket(plan_of(tenants=holders)).policy) > length(only_bucket(plan_of()).policy)


def test_with_access_points_no_tenant_comes_directly(plan_of: Planned) -> None:
    denial = statement(
        only_bucket(plan_of({"data": {"access-points": True}}, (FRAUD,))).policy, "OnlyThroughAccessPoints"
    )
    assert denial["Condition"] == {
        "ArnLike": {"aws:PrincipalArn": f"{ROLE}tenancy/small/*"},
        "StringNotEquals": {"s3:DataAccessPointAccount": ACCOUNT},
    }


# What goes by itself


def test_unfinished_uploads_are_dropped_in_every_bucket(plan_of: Planned) -> None:
    for bucket in nonempty(plan_of({"data": {}, "plain": {"versioning": False}}).buckets):
        assert [(rule.prefix, rule.abort_upload_days) for rule in bucket.lifecycle] == [("", 7)]


def test_old_versions_are_kept_as_long_as_the_bucket_says(plan_of: Planned) -> None:
    assert only_bucket(plan_of()).lifecycle[0].old_version_days == 30
    assert only_bucket(plan_of({"data": {"noncurrent-version-days": 7}})).lifecycle[0].old_version_days == 7
    assert only_bucket(plan_of({"data": {"versioning": False}})).lifecycle[0].old_version_days is None


def test_objects_expire_only_where_expire_after_is_set(plan_of: Planned) -> None:
    assert only_bucket(plan_of()).lifecycle[0].expire_days is None
    assert only_bucket(plan_of({"data": {"expiration-days": 14}})).lifecycle[0].expire_days == 14


def test_a_grants_expiry_is_a_rule_for_its_prefix(plan_of: Planned) -> None:
    short = holding("fraud", {"bucket": "data", "prefix": "fraud/", "access": "read-write", "expiration-days": 3})
    _, rule = only_bucket(plan_of(tenants=(short,))).lifecycle
    assert (rule.prefix, rule.expire_days) == ("fraud/", 3)
    assert len(only_bucket(plan_of(tenants=(FRAUD,))).lifecycle) == 1


def test_of_two_expiries_of_one_prefix_the_shorter_holds(plan_of: Planned) -> None:
    holder = tenant(
        namespaces=["a", "b"],
        aws_resources={},
        storage=[
            {"bucket": "data", "prefix": "x/", "access": "read-write", "namespaces": [part], "expiration-days": days}
            for part, days in (("a", 30), ("b", 3))
        ],
    )
    assert [rule.expire_days for rule in only_bucket(plan_of(tenants=(holder,))).lifecycle] == [None, 3]


def test_markers_of_deletion_are_dropped_where_versions_are_kept_and_nothing_expires(plan_of: Planned) -> None:
    """S3 refuses both in one rule, and an expiry drops them by itself."""
    assert only_bucket(plan_of()).lifecycle[0].drop_markers is True
    assert only_bucket(plan_of({"data": {"expiration-days": 14}})).lifecycle[0].drop_markers is False


# The most that any role can do


def test_there_is_a_boundary_where_a_tenant_has_a_role(plan_of: Planned) -> None:
    assert plan_of(tenants=(FRAUD,)).boundary
    assert plan_of().boundary is None


def test_the_boundary_allows_nothing_outside_the_environment(plan_of: Planned) -> None:
    boundary = plan_of(tenants=(FRAUD,)).boundary
    assert boundary
    for s in boundary.document["Statement"]:
        if s["Effect"] == "Allow":
            assert every(action.split(":")[1].isalpha() for action in s["Action"]), "no pattern"
            assert s["Resource"] != "*" or s["Action"] == ["ecr:GetAuthorizationToken"]
    assert statement(boundary.document, "Lists")["Resource"][0] == "arn:aws:s3:::data"
    assert statement(boundary.document, "Cluster")["Resource"] == CLUSTER_ARN
    assert statement(boundary.document, "Secrets")["Resource"].endswith(":secret:tenancy/small/*")


def test_what_makes_rights_is_denied_by_the_boundary_whatever_a_role_says(plan_of: Planned) -> None:
    boundary = plan_of(tenants=(FRAUD,)).boundary
    assert boundary
    denied = {a for s in boundary.document["Statement"] if s["Effect"] == "Deny" for a in s["Action"]}
    assert {"iam:*", "sts:AssumeRole*", "kms:CreateGrant", "s3:*Policy", "s3:*Acl", "s3:DeleteObjectVersion"} <= denied
    assert {"eks:*AccessEntry", "eks:*PodIdentityAssociation"} <= denied


def test_file_systems_are_mounted_through_access_points_alone(plan_of: Planned) -> None:
    boundary = plan_of(tenants=(FRAUD,)).boundary
    assert boundary
    mounting = statement(boundary.document, "Files")
    assert mounting["Condition"] == {"Null": {"elasticfilesystem:AccessPointArn": "false"}}
    assert "elasticfilesystem:ClientRootAccess" not in mounting["Action"]


def test_whatever_a_role_may_is_within_the_boundary(plan_of: Planned, environment: Environment) -> None:
    """By action and service; whether resources meet is the evaluator's to say."""
    bucket_holder = holding(
        "fraud",
        *(
            {"bucket": "data", "prefix": f"{a}/", "access": a}
            for a in ("read-only", "write-once", "append-only", "read-write")
        ),
    )
    use = {"secrets": ["a"], "log-groups": ["b"], "sqs-queues": ["c"], "repositories": ["d"]}
    full_tenant = tenant(
        namespaces=["main"],
        storage=bucket_holder.model_dump(by_alias=True, exclude_unset=True)["storage"],
        aws_resources=use,
        ci={"github": "a/b", "branch": "m"},
    )
    boundary = plan_of(tenants=(full_tenant,)).boundary
    assert boundary
    within = {a for s in boundary.document["Statement"] if s["Effect"] == "Allow" for a in s["Action"]}
    environment_fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    aws_environment = Environment.model_validate(
        {**environment_fields, "aws": AWS, "buckets": ["data"], "pools": {}, "flavors": {}}
    )
    plan = tenant_aws_plan(aws_environment, full_tenant)
    assert plan
    used = {a for r in plan.roles for d in r.policies.values() for s in d["Statement"] for a in s["Action"]}
    assert len(used) > 20
    assert used <= within


# People


def test_people_get_in_by_their_group_and_none_is_an_administrator(plan_of: Planned) -> None:
    people = {"fraud-engineers": f"{ROLE}fraud", "aml-engineers": f"{ROLE}aml"}
    entries = plan_of(group_roles=people).access_entries
    assert [(entry.principal, entry.groups) for entry in entries] == [
        (f"{ROLE}aml", ("aml-engineers",)),
        (f"{ROLE}fraud", ("fraud-engineers",)),
    ]
    assert {entry.policy for entry in entries} == {""}, "what they may do is bound in the cluster, by namespace"


def test_breaking_the_glass_needs_a_second_factor_fresh_and_in_this_region(plan_of: Planned) -> None:
    glass = plan_of(**{"break-glass": GLASS}).break_glass
    assert glass
    (trust,) = glass.role.trust["Statement"]
    assert trust["Principal"] == {"AWS": GLASS["trusted-principals"]}
    assert trust["Condition"] == {
        "Bool": {"aws:MultiFactorAuthPresent": "true"},
        "NumericLessThan": {"aws:MultiFactorAuthAge": "900"},
        "StringEquals": {"aws:RequestedRegion": REGION},
    }
    assert glass.role.session_seconds == 3600


def test_breaking_the_glass_is_heard_where_it_happens(plan_of: Planned) -> None:
    """Rules get events of their own region alone: the trust refuses requests through STS of another region."""
    glass = plan_of(**{"break-glass": GLASS}).break_glass
    assert glass
    assert glass.alarm.pattern["detail"] == {
        "eventSource": ["sts.amazonaws.com"],
        "eventName": ["AssumeRole"],
        "requestParameters": {"roleArn": [GLASS_ROLE]},
    }
    assert glass.role.arn == GLASS_ROLE
    assert glass.alarm.topic.split(":")[3] == REGION
    assert glass.alarm.mail == "security@bank.example"


def test_the_one_who_breaks_the_glass_administers_the_cluster_and_makes_no_rights_on_aws(plan_of: Planned) -> None:
    glass = plan_of(**{"break-glass": GLASS}).break_glass
    assert glass
    assert glass.entry.policy == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    assert glass.entry.principal == glass.role.arn
    actions = {a for d in glass.role.policies.values() for s in d["Statement"] for a in s["Action"]}
    assert {action.partition(":")[0] for action in actions} == {"eks", "s3", "kms"}
    assert not any("*" in action or "Policy" in action.replace("GetBucketPolicy", "") for action in actions)


def test_break_glass_has_the_organisations_boundary_where_there_is_one(plan_of: Planned) -> None:
    arn = f"arn:aws:iam::{ACCOUNT}:policy/all"
    with_one, without = (
        plan_of(**{"break-glass": GLASS, "permissions-boundary": arn}),
        plan_of(**{"break-glass": GLASS}),
    )
    assert with_one.break_glass
    assert without.break_glass
    assert (with_one.break_glass.role.boundary, without.break_glass.role.boundary) == (arn, "")


def test_without_break_glass_in_the_file_there_is_no_role_for_it(plan_of: Planned) -> None:
    assert plan_of().break_glass is None


# Forges


def test_a_provider_for_each_forge_but_those_that_are_there(plan_of: Planned) -> None:
    tenants = (
        holding("a", ci={"github": "bank/a", "branch": "m"}),
        holding("b", ci={"github": "bank/b", "branch": "m"}),
        holding("c", ci={"gitlab": "bank/c", "host": "git.bank.example", "branch": "m"}),
    )
    plan = plan_of(tenants=tenants, **{"existing-oidc-providers": ["git.bank.example"]})
    assert [(provider.url, provider.existing) for provider in plan.providers] == [
        ("https://git.bank.example", True),
        ("https://token.actions.githubusercontent.com", False),
    ]
    assert {provider.audience for provider in plan.providers} == {"sts.amazonaws.com"}
    assert [r for r in plan.resources() if r in plan.providers] == [plan.providers[1]], "the other is the account's"


# What it costs


def test_the_account_that_pays_activates_every_tag_that_a_tenants_things_carry(plan_of: Planned) -> None:
    plan = plan_of(**{"management-account": True}, tenants=(FRAUD,))
    assert set(plan.cost_tags) >= {vocabulary.TENANT_TAG, *vocabulary.COST_LABELS}
    assert len(set(plan.cost_tags)) == len(plan.cost_tags)
    assert plan_of(tenants=(FRAUD,)).cost_tags == (), "another account's to activate"


def test_what_to_ask_of_the_account_that_pays_is_written_down() -> None:
    page = (Path(__file__).parents[4] / "docs" / "identity.md").read_text("utf-8")
    for tag in nonempty(platform_plan.COST_TAGS):
        assert f"TagKey={tag},Status=Active" in page


def test_everything_carries_the_environments_tags(plan_of: Planned) -> None:
    tenants = (holding("a", ci={"github": "bank/a", "branch": "m"}),)
    plan = plan_of(tenants=tenants, group_roles={"x": f"{ROLE}x"}, **{"break-glass": GLASS})
    things: list[Any] = [r for r in plan.resources() if r is not plan.break_glass]
    assert plan.break_glass
    things += [plan.break_glass.role, plan.break_glass.entry, plan.break_glass.alarm]
    assert len({type(thing) for thing in things}) == 7
    for thing in things:
        assert thing.tags["tenancy:environment"] == "small"
        assert thing.tags["env"] == "small"


# The whole


def test_keys_and_boundary_come_first_and_who_gets_in_last(plan_of: Planned) -> None:
    plan = plan_of(tenants=(FRAUD,), group_roles={"x": f"{ROLE}x"}, **{"break-glass": GLASS})
    kinds = [type(resource).__name__ for resource in plan.resources()]
    assert kinds == ["KeyPlan", "Boundary", "BucketPlan", "AccessEntry", "BreakGlassPlan"]


def test_the_order_of_tenants_changes_nothing(plan_of: Planned) -> None:
    aml = holding("aml", {"bucket": "data", "prefix": "aml/"}, ci={"github": "bank/aml", "branch": "m"})
    assert plan_of(tenants=(FRAUD, aml)) == plan_of(tenants=(aml, FRAUD))


def test_without_aws_there_is_none(environment: Environment) -> None:
    assert environment.aws.enabled is False
    assert platform_plan.data_plan(environment, (FRAUD,)) is None
    assert iam_roles.shared_roles(environment, (FRAUD,)) == ()
