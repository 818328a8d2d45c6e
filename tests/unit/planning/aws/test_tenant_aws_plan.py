"""Resources of a tenant on AWS, fact by fact. The decisions of AWS by these documents are judged elsewhere, by an
evaluator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.planning.aws import iam_roles, tenant_plan
from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.platform_plan import data_plan
from tenancy.planning.aws.tenant_models import TenantAwsPlan, TenantRolePlan
from tenancy.planning.plan_model import Plan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tests.conftest import every, nonempty
from tests.tenant_aws_world import ACCOUNT, AWS, BUCKETS, CLUSTER, CLUSTER_ARN, ISSUER, POINT, REGION, as_list, tenant

MakeEnvironment = Callable[..., Environment]


@pytest.fixture(scope="session")
def on_aws(environment: Environment) -> MakeEnvironment:
    fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def make(**aws: Any) -> Environment:
        changes = {"aws": {**AWS, **aws}, "buckets": BUCKETS, "pools": {}, "flavors": {}}
        return Environment.model_validate({**fields, **changes})

    return make


def granted(*grants: dict[str, Any], **uses: Any) -> Tenant:
    """One namespace with these grants and nothing else."""
    return tenant(namespaces=["main"], storage=list(grants), aws_resources=uses)


def planned(environment: Environment, member: Tenant) -> TenantAwsPlan:
    plan = tenant_plan.tenant_aws_plan(environment, member)
    assert plan is not None
    return plan


@pytest.fixture
def fraud(on_aws: MakeEnvironment) -> TenantAwsPlan:
    return planned(on_aws(), tenant())


def statements(role: TenantRolePlan) -> Iterator[Document]:
    for document in role.policies.values():
        yield from document["Statement"]


def allowed(role: TenantRolePlan, service: str = "") -> set[str]:
    return {action for s in statements(role) for action in as_list(s["Action"]) if action.startswith(service)}


def only_role(environment: Environment, member: Tenant) -> TenantRolePlan:
    (role,) = planned(environment, member).roles
    return role


# Which identities assume a role


def test_a_namespace_has_a_role_where_it_has_a_grant_or_uses_something(fraud: TenantAwsPlan) -> None:
    assert [role.purpose for role in fraud.roles] == ["train", "serve"], "idle has neither"


def test_each_namespace_has_only_its_own_grants(fraud: TenantAwsPlan) -> None:
    train, serve = fraud.roles
    assert "s3:PutObject" in allowed(train)
    assert allowed(train, "secretsmanager:") == set()
    assert "secretsmanager:GetSecretValue" in allowed(serve)
    assert allowed(serve, "s3:") == set()


def test_pods_of_one_namespace_and_service_account_of_this_cluster_take_it(fraud: TenantAwsPlan) -> None:
    (statement,) = fraud.roles[1].trust["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": ACCOUNT,
            "aws:RequestTag/eks-cluster-arn": CLUSTER_ARN,
            "aws:RequestTag/kubernetes-namespace": "fraud--serve",
            "aws:RequestTag/kubernetes-service-account": "scorer",
        },
        "ArnEquals": {"aws:SourceArn": CLUSTER_ARN},
    }


def test_an_association_leads_from_that_service_account_to_that_role(fraud: TenantAwsPlan) -> None:
    assert [(a.namespace, a.service_account, a.role) for a in fraud.associations] == [
        ("fraud--train", vocabulary.WORKLOAD_ACCOUNT, fraud.roles[0].arn),
        ("fraud--serve", "scorer", fraud.roles[1].arn),
    ]
    assert {a.cluster for a in fraud.associations} == {CLUSTER}


def test_session_tags_stay_on(fraud: TenantAwsPlan) -> None:
    assert fraud.associations
    assert not any(association.disable_session_tags for association in fraud.associations), "the trust asks for them"


def accounts(plan: Plan) -> dict[str, Any]:
    return {
        f"{o['metadata']['namespace']}/{o['metadata']['name']}": o
        for o in plan.objects()
        if o["kind"] == "ServiceAccount" and o["metadata"]["name"] != "default"
    }


def test_the_service_account_is_there_and_brings_no_token_of_the_api_server(on_aws: MakeEnvironment) -> None:
    accounts_by_name = accounts(planning.plan(on_aws(), [tenant()]))
    assert list(accounts_by_name) == ["fraud--train/workload", "fraud--serve/scorer"]
    assert every(account["automountServiceAccountToken"] is False for account in accounts_by_name.values())
    assert every("annotations" not in account["metadata"] for account in accounts_by_name.values())


def test_with_irsa_a_token_is_trusted_word_for_word(on_aws: MakeEnvironment) -> None:
    environment = on_aws(identity="irsa", irsa=True, **{"oidc-issuer": ISSUER})
    plan = planned(environment, tenant())
    (statement,) = plan.roles[1].trust["Statement"]
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{ISSUER}"}
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"] == {
        "StringEquals": {
            f"{ISSUER}:aud": "sts.amazonaws.com",
            f"{ISSUER}:sub": "system:serviceaccount:fraud--serve:scorer",
        }
    }
    assert plan.associations == ()
    account = accounts(planning.plan(environment, [tenant()]))["fraud--serve/scorer"]
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": plan.roles[1].arn}


def test_every_role_has_the_boundary_and_lies_in_the_tenants_path(on_aws: MakeEnvironment) -> None:
    plan = planning.plan(on_aws(), [tenant(ci={"github": "bank/x", "branch": "main"})])
    aws, data = plan.tenant("fraud").aws, plan.platform.data
    assert aws
    assert data
    assert data.boundary
    assert {role.purpose for role in aws.roles} == {"train", "serve", "ci"}
    assert {role.boundary for role in aws.roles} == {data.boundary.arn}
    assert {role.path for role in aws.roles} == {"/tenancy/small/fraud/"}
    assert every(role.arn == f"arn:aws:iam::{ACCOUNT}:role{role.path}{role.name}" for role in aws.roles)


def test_the_boundary_is_not_in_the_tenants_path(on_aws: MakeEnvironment) -> None:
    """An identity that may one day write in that path does not write the boundary."""
    assert not iam_roles.boundary_arn(on_aws()).partition("policy")[2].startswith("/tenancy/")


def test_no_statement_of_a_role_is_an_open_one(on_aws: MakeEnvironment) -> None:
    grants = [{"bucket": b, "prefix": f"{a}/", "access": a} for b in ("data", "bindings") for a in ACTIONS]
    files = [{"file-system": "fs-0123abcd", "access-point": POINT}]
    of_all = granted(*grants, secrets=["a"], log_groups=["b"], sqs_queues=["c"], efs_access_points=files)
    role = only_role(on_aws(), of_all)
    assert len(list(statements(role))) > 15
    for statement in statements(role):
        assert statement["Effect"] == "Allow"
        assert {"NotAction", "NotResource", "Principal"}.isdisjoint(statement)
        assert every(re.fullmatch(r"[a-z0-9]+:[A-Za-z]+", action) for action in as_list(statement["Action"])), (
            "no wildcard"
        )
        assert "*" not in as_list(statement["Resource"])
        operators = set(statement.get("Condition", {}))
        assert not any("IfExists" in name or name.startswith("ForAllValues") for name in operators), "absent, they hold"


# Grants in buckets

LIST, READ = {"s3:ListBucket"}, {"s3:GetObject"}
WRITING = {
    *("s3:ListBucketVersions", "s3:GetObjectVersion", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
    "s3:PutObject",
}
ACTIONS = {
    "read-only": LIST | READ,
    "write-once": LIST | READ | WRITING,
    "append-only": LIST | READ | WRITING,
    "read-write": LIST | READ | WRITING | {"s3:DeleteObject"},
}


@pytest.mark.parametrize("access", ACTIONS)
def test_a_grant_allows_these_actions_and_no_others(on_aws: MakeEnvironment, access: str) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": access}))
    assert allowed(role, "s3:") == ACTIONS[access]


@pytest.mark.parametrize("access", ACTIONS)
def test_a_grant_is_about_its_prefix_alone(on_aws: MakeEnvironment, access: str) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": access}))
    for statement in nonempty(statements(role)):
        if as_list(statement["Action"])[0].startswith("s3:List") and "Parts" not in as_list(statement["Action"])[-1]:
            assert as_list(statement["Resource"]) == ["arn:aws:s3:::data"]
            assert statement["Condition"] == {"StringLike": {"s3:prefix": ["fraud/*"]}}, "and none without a prefix"
        elif as_list(statement["Action"])[0].startswith("s3:"):
            assert as_list(statement["Resource"]) == ["arn:aws:s3:::data/fraud/*"]


def test_who_writes_once_writes_what_is_not_there_or_parts_that_the_last_step_judges(on_aws: MakeEnvironment) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": "write-once"}))
    conditions = [s["Condition"] for s in statements(role) if "s3:PutObject" in as_list(s["Action"])]
    assert conditions == [
        {"Null": {"s3:if-none-match": "false"}},
        {"Bool": {"s3:ObjectCreationOperation": "false"}},
    ]


def test_no_grant_erases_a_version_or_changes_a_bucket(on_aws: MakeEnvironment) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": "read-write"}))
    assert {"s3:DeleteObjectVersion", "s3:PutBucketPolicy", "s3:PutObjectAcl"}.isdisjoint(allowed(role))


def test_uploads_of_the_whole_bucket_are_not_listed(on_aws: MakeEnvironment) -> None:
    """S3 knows no prefix there (service authorization reference): it would show every tenant's keys."""
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": "read-write"}))
    assert "s3:ListBucketMultipartUploads" not in allowed(role)


def test_where_there_are_no_versions_none_are_read(on_aws: MakeEnvironment) -> None:
    role = only_role(on_aws(), granted({"bucket": "plain", "prefix": "fraud/", "access": "read-write"}))
    assert {"s3:ListBucketVersions", "s3:GetObjectVersion"}.isdisjoint(allowed(role))
    assert "s3:PutObject" in allowed(role)


def keys(role: TenantRolePlan) -> dict[str, Document]:
    return {s["Sid"]: s for s in statements(role) if as_list(s["Action"])[0].startswith("kms:")}


def test_keys_are_used_through_s3_alone_and_for_the_grants_prefix(on_aws: MakeEnvironment) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/", "access": "read-write"}))
    (statement,) = keys(role).values()
    assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert statement["Condition"] == {
        "StringEquals": {"kms:ViaService": f"s3.{REGION}.amazonaws.com"},
        "StringLike": {"kms:EncryptionContext:aws:s3:arn": ["arn:aws:s3:::data", "arn:aws:s3:::data/fraud/*"]},
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": ["alias/tenancy/small/bucket/data"]},
    }


def test_who_only_reads_does_not_encrypt(on_aws: MakeEnvironment) -> None:
    role = only_role(on_aws(), granted({"bucket": "data", "prefix": "fraud/"}))
    assert allowed(role, "kms:") == {"kms:Decrypt"}


def test_a_tenant_has_a_key_of_its_own_where_it_writes_into_a_bucket_with_such_keys(on_aws: MakeEnvironment) -> None:
    def key_aliases(**grant: Any) -> list[str]:
        return [key.alias for key in planned(on_aws(), granted({"prefix": "fraud/", **grant})).keys]

    assert key_aliases(bucket="own-keys", access="read-write") == ["alias/tenancy/small/tenant/fraud"]
    assert key_aliases(bucket="own-keys", access="read-only") == []
    assert key_aliases(bucket="data", access="read-write") == []


def test_its_key_opens_for_its_roles_through_s3_and_for_its_prefixes(on_aws: MakeEnvironment) -> None:
    (key,) = planned(on_aws(), granted({"bucket": "own-keys", "prefix": "fraud/", "access": "read-write"})).keys
    administer, use = key.policy["Statement"]
    assert not any(action in as_list(administer["Action"]) for action in ("kms:Decrypt", "kms:CreateGrant", "kms:*"))
    assert use["Condition"]["StringEquals"] == {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    assert use["Condition"]["ArnLike"]["aws:PrincipalArn"][0] == f"arn:aws:iam::{ACCOUNT}:role/tenancy/small/fraud/*"
    assert use["Condition"]["StringLike"] == {
        "kms:EncryptionContext:aws:s3:arn": ["arn:aws:s3:::own-keys", "arn:aws:s3:::own-keys/fraud/*"]
    }
    assert (key.rotates, key.deletion_days) == (True, 30)


def test_an_access_point_of_its_own_where_the_bucket_has_them(on_aws: MakeEnvironment) -> None:
    plan = planned(
        on_aws(), granted({"bucket": "bindings", "prefix": "fraud/"}, {"bucket": "data", "prefix": "fraud/"})
    )
    (point,) = plan.access_points
    assert point.bucket == "bindings"
    assert point.arn == f"arn:aws:s3:{REGION}:{ACCOUNT}:accesspoint/{point.name}"
    resources = {resource for s in statements(plan.roles[0]) for resource in as_list(s["Resource"])}
    assert f"{point.arn}/object/fraud/*" in resources
    assert not any("accesspoint" in resource and "fraud" not in resource for resource in resources)
    assert every(statement["Effect"] == "Deny" for statement in point.policy["Statement"])


# What else it uses


def test_a_secret_lies_in_the_tenants_path_and_opens_for_the_namespace_that_uses_it(fraud: TenantAwsPlan) -> None:
    (secret,) = fraud.owned_of("secrets")
    assert secret.name == "tenancy/small/fraud/card-network"
    (statement,) = [s for s in statements(fraud.roles[1]) if "secretsmanager:GetSecretValue" in s["Action"]]
    (resource,) = statement["Resource"]
    assert resource == f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:tenancy/small/fraud/card-network-??????"


def others(policy: Document) -> list[str]:
    """The only roles that the last statement of a policy does not deny."""
    statement = policy["Statement"][-1]
    assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
    return statement["Condition"]["StringNotEquals"]["aws:PrincipalArn"]


def own_policy(plan: TenantAwsPlan, kind: str) -> Document:
    """The policy of the only resource of a kind."""
    (resource,) = plan.owned_of(kind)
    assert resource.policy
    return resource.policy.document


def test_a_secret_is_shut_to_all_but_that_namespace_and_the_platform(fraud: TenantAwsPlan) -> None:
    assert others(own_policy(fraud, "secrets")) == [fraud.roles[1].arn, AWS["platform-role"]]


def test_a_queue_is_shut_to_all_but_its_namespaces_and_unencrypted_requests(on_aws: MakeEnvironment) -> None:
    plan = planned(on_aws(), granted(sqs_queues=["alarms"]))
    (queue,) = plan.owned_of("sqs_queues")
    assert queue.name == "small--fraud--alarms"
    assert others(own_policy(plan, "sqs_queues")) == [plan.roles[0].arn, AWS["platform-role"]]
    assert own_policy(plan, "sqs_queues")["Statement"][0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    (statement,) = statements(plan.roles[0])
    assert statement["Resource"] == [queue.arn]
    assert "sqs:DeleteQueue" not in statement["Action"]


KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0f1e2d3c"


def test_a_log_group_is_encrypted_by_the_environments_key_of_logs(on_aws: MakeEnvironment) -> None:
    plan = planned(on_aws(**{"tenant-log-kms-key-arn": KEY}), granted(log_groups=["scores"]))
    assert [group.properties["kmsKeyId"] for group in plan.owned_of("log_groups")] == [KEY]


def test_a_log_group_is_written_and_not_read_and_ends_by_the_environments_days(on_aws: MakeEnvironment) -> None:
    plan = planned(on_aws(), granted(log_groups=["scores"]))
    (group,) = plan.owned_of("log_groups")
    assert (group.name, group.properties) == ("/tenancy/small/fraud/scores", {"retentionInDays": 90})
    assert allowed(plan.roles[0]) == {"logs:CreateLogStream", "logs:PutLogEvents"}
    (statement,) = statements(plan.roles[0])
    assert every(resource.split(":")[6] == group.name for resource in statement["Resource"])


@pytest.mark.parametrize(("access", "writes"), [("read-only", False), ("read-write", True)])
def test_files_are_mounted_through_the_tenants_access_point_alone(
    on_aws: MakeEnvironment, access: str, writes: bool
) -> None:
    files = {"file-system": "fs-0123abcd", "access-point": POINT, "access": access}
    (statement,) = statements(only_role(on_aws(), granted(efs_access_points=[files])))
    assert ("elasticfilesystem:ClientWrite" in statement["Action"]) is writes
    assert "elasticfilesystem:ClientRootAccess" not in statement["Action"]
    assert statement["Condition"] == {"StringEquals": {"elasticfilesystem:AccessPointArn": POINT}}


def test_repositories_are_the_tenants_and_written_by_its_pipeline_alone(on_aws: MakeEnvironment) -> None:
    fraud = tenant(ci={"github": "bank/fraud", "branch": "main"}, aws_resources={"repositories": ["scoring"]})
    plan = planned(on_aws(), fraud)
    (repository,) = plan.owned_of("repositories")
    (pipeline,) = [role for role in plan.roles if role.purpose == "ci"]
    assert repository.name == "small/fraud/scoring"
    assert others(own_policy(plan, "repositories")) == [pipeline.arn, AWS["platform-role"]]
    assert "Resource" not in own_policy(plan, "repositories")["Statement"][0], "ECR refuses one"
    pushable = [s["Resource"] for s in statements(pipeline) if "ecr:PutImage" in s["Action"]]
    assert pushable == [[f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/small/fraud/scoring"]]


def test_shared_repositories_are_read(on_aws: MakeEnvironment) -> None:
    plan = planned(on_aws(), tenant(ci={"github": "bank/fraud", "branch": "main"}))
    (pull_statement,) = [s for s in statements(plan.roles[-1]) if s["Sid"] == "PullShared"]
    assert pull_statement["Resource"] == f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/small/shared/*"
    assert "ecr:PutImage" not in pull_statement["Action"]
    assert "shared" in vocabulary.RESERVED_NAMES, "no tenant is called so"


# Its pipeline

CI = {
    "GitHub, a branch": (
        {"github": "bank/fraud", "branch": "main"},
        "token.actions.githubusercontent.com",
        "repo:bank/fraud:ref:refs/heads/main",
    ),
    "GitHub, an environment": (
        {"github": "bank/fraud", "environment": "cluster"},
        "token.actions.githubusercontent.com",
        "repo:bank/fraud:environment:cluster",
    ),
    "GitLab": (
        {"gitlab": "bank/risk/fraud", "branch": "main"},
        "gitlab.com",
        "project_path:bank/risk/fraud:ref_type:branch:ref:main",
    ),
    "GitLab of one's own": (
        {"gitlab": "bank/fraud", "host": "git.bank.example", "branch": "main"},
        "git.bank.example",
        "project_path:bank/fraud:ref_type:branch:ref:main",
    ),
}


@pytest.mark.parametrize("forge", CI)
def test_one_subject_of_one_forge_becomes_the_pipeline(on_aws: MakeEnvironment, forge: str) -> None:
    ci_fields, issuer, subject = CI[forge]
    pipeline = planned(on_aws(), tenant(ci=ci_fields)).roles[-1]
    (statement,) = pipeline.trust["Statement"]
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}"}
    assert statement["Condition"] == {"StringEquals": {f"{issuer}:aud": "sts.amazonaws.com", f"{issuer}:sub": subject}}


def test_a_pipeline_reaches_images_and_the_cluster_and_no_data(on_aws: MakeEnvironment) -> None:
    plan = planned(
        on_aws(), tenant(ci={"github": "bank/fraud", "branch": "main"}, aws_resources={"repositories": ["a"]})
    )
    assert {action.partition(":")[0] for action in allowed(plan.roles[-1])} == {"ecr", "eks"}
    assert allowed(plan.roles[-1], "eks:") == {"eks:DescribeCluster"}


def test_a_pipeline_is_in_its_tenants_group_and_holds_its_role_where_it_is_said(on_aws: MakeEnvironment) -> None:
    fraud = tenant(ci={"github": "bank/fraud", "branch": "main", "role": "operator", "namespaces": ["serve"]})
    plan = planning.plan(on_aws(), [fraud])
    aws = plan.tenant("fraud").aws
    assert aws
    (entry,) = aws.access_entries
    assert (entry.principal, entry.groups, entry.policy) == (aws.roles[-1].arn, ("tenancy:fraud:ci",), "")
    bound = [
        (o["metadata"]["namespace"], o["roleRef"]["name"])
        for o in plan.objects()
        if o["kind"] == "RoleBinding" and any(s["name"] == "tenancy:fraud:ci" for s in o["subjects"])
    ]
    assert bound == [("fraud--serve", "tenancy-operator")]


def test_without_a_pipeline_there_is_no_role_and_no_entry_for_one(fraud: TenantAwsPlan) -> None:
    assert fraud.access_entries == ()
    assert every(role.purpose != "ci" for role in fraud.roles)


# What it costs


def test_everything_carries_the_tenants_cost_vocabulary(on_aws: MakeEnvironment) -> None:
    fraud = tenant(
        storage=[{"bucket": bucket, "prefix": "fraud/", "access": "read-write"} for bucket in ("own-keys", "bindings")],
        aws_resources={"repositories": ["a"], "secrets": ["b"], "log-groups": ["c"], "sqs-queues": ["d"]},
        ci={"github": "bank/fraud", "branch": "main"},
        budget={"monthly-usd": 1000},
    )
    plan = planned(on_aws(), fraud)
    kinds = {getattr(resource, "kind", type(resource).__name__) for resource in plan.resources()}
    assert len(kinds) == 10, kinds
    for resource in nonempty(plan.resources()):
        tags = resource.tags  # ty: ignore[unresolved-attribute]
        assert tags[vocabulary.TENANT_TAG] == "fraud"
        assert set(vocabulary.COST_LABELS) <= set(tags), type(resource).__name__
        assert (tags["team"], tags["department"], tags["cost-center"], tags["product"], tags["env"]) == (
            "fraud-detection",
            "risk",
            "CC-4411",
            "cards",
            "small",
        )


def test_tags_say_what_the_namespaces_labels_say(on_aws: MakeEnvironment) -> None:
    plan = planning.plan(on_aws(), [tenant()])
    aws = plan.tenant("fraud").aws
    assert aws
    labels = {space.name: space.namespace["metadata"]["labels"] for space in plan.tenant("fraud").namespaces}
    for association in aws.associations:
        same = {key: labels[association.namespace][key] for key in vocabulary.COST_LABELS}
        assert {key: association.tags[key] for key in vocabulary.COST_LABELS} == same
    assert {a.tags["tier"] for a in aws.associations} == {"batch", "production"}


def test_a_budget_sees_the_tenants_tag_and_tells_its_owner(on_aws: MakeEnvironment) -> None:
    budget = planned(on_aws(), tenant(budget={"monthly-usd": 180_000})).budget
    assert budget
    assert budget.limit == "180000"
    assert budget.filters == {"TagKeyValue": ("user:tenancy:tenant$fraud",)}
    assert [(alert.kind, alert.percent) for alert in budget.alerts] == [
        ("ACTUAL", 50),
        ("ACTUAL", 80),
        ("ACTUAL", 100),
        ("FORECASTED", 100),
    ]
    assert {alert.mail for alert in budget.alerts} == {"fraud-leads@bank.example"}
    assert planned(on_aws(), tenant()).budget is None


# One role for many

OWN_PREFIX_GRANT = {"bucket": "data", "prefix": "fraud--main/", "access": "read-write"}
COMMON = {"bucket": "data", "prefix": "reference/"}


def shared_by(environment: Environment, *members: Tenant) -> tuple[TenantRolePlan, ...]:
    data = data_plan(environment, members)
    assert data
    return data.shared_roles


def test_namespaces_of_one_shape_of_grants_share_a_role(on_aws: MakeEnvironment) -> None:
    environment = on_aws(identity="shared")
    fraud = granted(OWN_PREFIX_GRANT, COMMON)
    two = granted({**OWN_PREFIX_GRANT, "prefix": "aml--main/"}, COMMON).model_copy(update={"tenant": "aml"})
    (role,) = shared_by(environment, fraud, two)
    for member in (fraud, two):
        plan = planned(environment, member)
        assert plan.roles == ()
        assert [association.role for association in plan.associations] == [role.arn]


@pytest.mark.parametrize(
    "further_tenant",
    [
        granted(OWN_PREFIX_GRANT),
        tenant(
            namespaces=[{"name": "main", "service-account": "x"}], storage=[OWN_PREFIX_GRANT, COMMON], aws_resources={}
        ),
    ],
)
def test_namespaces_of_another_shape_or_account_do_not(on_aws: MakeEnvironment, further_tenant: Tenant) -> None:
    environment = on_aws(identity="shared")
    assert (
        len(
            shared_by(
                environment, granted(OWN_PREFIX_GRANT, COMMON), further_tenant.model_copy(update={"tenant": "aml"})
            )
        )
        == 2
    )


def test_a_shared_role_tells_namespaces_apart_by_the_session(on_aws: MakeEnvironment) -> None:
    (role,) = shared_by(on_aws(identity="shared"), granted(OWN_PREFIX_GRANT, COMMON))
    put_statements = [s for s in statements(role) if "s3:PutObject" in as_list(s["Action"])]
    assert [s["Resource"] for s in put_statements] == [["arn:aws:s3:::data/${aws:PrincipalTag/kubernetes-namespace}/*"]]
    assert not any("fraud" in resource for s in statements(role) for resource in as_list(s["Resource"]))


def test_a_shared_role_is_for_one_service_account_of_this_cluster(on_aws: MakeEnvironment) -> None:
    (role,) = shared_by(on_aws(identity="shared"), granted(OWN_PREFIX_GRANT))
    (statement,) = role.trust["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    equal = statement["Condition"]["StringEquals"]
    assert equal["aws:RequestTag/eks-cluster-arn"] == CLUSTER_ARN
    assert equal["aws:RequestTag/kubernetes-service-account"] == vocabulary.WORKLOAD_ACCOUNT


def test_a_pipeline_has_a_role_of_its_own_all_the_same(on_aws: MakeEnvironment) -> None:
    fraud = tenant(ci={"github": "bank/fraud", "branch": "main"})
    plan = planned(on_aws(identity="shared"), fraud)
    assert [role.purpose for role in plan.roles] == ["ci"]


# The whole


def test_who_gets_in_comes_last(on_aws: MakeEnvironment) -> None:
    plan = planned(on_aws(), tenant(ci={"github": "bank/fraud", "branch": "main"}))
    kinds = [type(resource).__name__ for resource in plan.resources()]
    assert kinds == ["TenantRolePlan"] * 3 + ["OwnedResource"] + ["Association"] * 2 + ["AccessEntry"]


def test_a_tenant_that_uses_nothing_has_nothing(on_aws: MakeEnvironment) -> None:
    assert not planned(on_aws(), tenant(storage=[], aws_resources={}))
    assert planned(on_aws(), tenant())


def test_without_aws_there_is_no_half_there(on_aws: MakeEnvironment) -> None:
    environment = on_aws()
    off = environment.model_copy(update={"aws": environment.aws.model_copy(update={"enabled": False})})
    assert tenant_plan.tenant_aws_plan(off, tenant()) is None
    assert tenant_plan.tenant_aws_plan(environment, tenant()) is not None


def test_the_order_of_grants_in_a_file_changes_nothing(on_aws: MakeEnvironment) -> None:
    grants = [OWN_PREFIX_GRANT, COMMON, {"bucket": "bindings", "prefix": "x/"}]
    assert planned(on_aws(), granted(*grants)) == planned(on_aws(), granted(*reversed(grants)))


def test_two_tenants_have_nothing_of_one_name(on_aws: MakeEnvironment) -> None:
    def names(name: str) -> set[str]:
        uses = {"repositories": ["a"], "secrets": ["a"], "log-groups": ["a"], "sqs-queues": ["a"]}
        member = tenant(aws_resources=uses, storage=[{"bucket": "bindings", "prefix": f"{name}/"}]).model_copy(
            update={"tenant": name}
        )
        plan = planned(on_aws(), member)
        resource_kinds = (plan.roles, plan.access_points, plan.owned)
        return {resource.name for kind in resource_kinds for resource in kind}

    assert len(names("fraud")) == 8
    assert names("fraud").isdisjoint(names("fraud-2"))
