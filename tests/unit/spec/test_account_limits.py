"""Limits of accounts and policies: sums from the files, compared with the documents that the plan then writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.catalog import account
from tenancy.planning.aws import iam_roles, platform_plan, tenant_plan
from tenancy.planning.aws.bucket_policies import access_point_policy, bucket_policy
from tenancy.planning.aws.documents import length
from tenancy.planning.aws.identity import roles
from tenancy.planning.common import names
from tenancy.rules.values import unsafe_prefix
from tenancy.spec.checks.aws_grants import (
    PLATFORM_ASSOCIATIONS,
    PLATFORM_ROLES,
    aws_resources,
    boundary_length,
    key_length,
    pipeline_length,
    policy_length,
    role_length,
)
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tests.aws_cases import ON_AWS
from tests.conftest import nonempty
from tests.spec_cases import ENV, FRAUD

REGIONS = {"eu-central-1": "aws", "ap-southeast-2": "aws", "us-gov-west-1": "aws-us-gov", "cn-northwest-1": "aws-cn"}
Make = Callable[..., Environment]


@pytest.fixture(scope="session")
def make_environment(environment: Environment) -> Make:
    dumped = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def make(
        region: str = "eu-central-1", name: str = "small", cluster: str = "small", buckets: Any = (), **aws: Any
    ) -> Environment:
        aws_settings = {
            "enabled": True,
            "account": "111122223333",
            "region": region,
            "zones": [f"{region}a", f"{region}b"],
            "platform-role": f"arn:{REGIONS[region]}:iam::111122223333:role/platform",
            **aws,
        }
        updates = {"environment": name, "buckets": buckets, "aws": aws_settings, "pools": {}, "flavors": {}}
        return Environment.model_validate({**dumped, **updates, "cluster": {**dumped["cluster"], "name": cluster}})

    return make


def tenant(name: str = "fraud", **more: Any) -> Tenant:
    prerequisites = {
        "tenant": name,
        "team": "x",
        "owner": {"name": "x", "mail": "a@bank.example"},
        "department": "risk",
        "cost-center": "c",
        "tier": "production",
    }
    return Tenant.model_validate({**prerequisites, **more})


# What is written is never longer than what was reckoned

POINTS = "arn:aws:elasticfilesystem:eu-central-1:111122223333:access-point/fsap-"
ACCESSES = ("read-only", "write-once", "append-only", "read-write")
texts = st.text("bcdfghjk", min_size=3, max_size=24)
OF_PREFIXES = [c for c in map(chr, (*range(256), 0x4E2D, 0x1F600)) if unsafe_prefix(f"x{c}x/") is None and c != "/"]
prefixes = st.lists(st.text(OF_PREFIXES, min_size=3, max_size=24), min_size=1, max_size=4).map(
    lambda folders: "/".join(folders) + "/"
)


@st.composite
def settings_of_buckets(draw: st.DrawFn) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in draw(st.lists(texts, min_size=1, max_size=4, unique=True)):
        access_points = draw(st.booleans())
        settings[f"b-{name}"] = {
            "kms-key-scope": draw(st.sampled_from(["bucket", "tenant"])),
            "access-points": access_points,
        }
    return settings


@st.composite
def tenants_of(draw: st.DrawFn, buckets: list[str]) -> list[Tenant]:
    tenants = []
    for number in range(draw(st.integers(1, 5))):
        parts = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
        part_lists = st.lists(st.sampled_from(parts), min_size=1, max_size=2, unique=True)
        grant = st.fixed_dictionaries(
            {
                "bucket": st.sampled_from(buckets),
                "prefix": prefixes,
                "access": st.sampled_from(ACCESSES),
                "namespaces": part_lists,
            }
        )
        use = st.dictionaries(texts, st.fixed_dictionaries({"namespaces": part_lists}), max_size=4)
        tenants.append(
            tenant(
                f"t{number}{draw(texts)}",
                namespaces=parts,
                storage=draw(st.lists(grant, max_size=8)),
                aws_resources={
                    "repositories": draw(st.lists(texts, max_size=5, unique=True)),
                    **{kind: draw(use) for kind in ("secrets", "log-groups", "sqs-queues")},
                    "efs-access-points": [
                        {
                            "file-system": "fs-" + "0" * 17,
                            "access-point": f"{POINTS}{i}",
                        }
                        for i in draw(st.lists(st.sampled_from(["0" * 8, "1" * 17]), max_size=2))
                    ],
                },
                ci={"github": "bank/x", "branch": "main"},
            )
        )
    return tenants


def lengths(environment: Environment, tenants: list[Tenant]) -> Iterator[tuple[str, int, int]]:
    """Kind, length and reckoned length of every document."""
    yield "boundary", length(platform_plan.boundary(environment).document), boundary_length(environment)
    for name, bucket in environment.buckets.items():
        if not bucket.access_points:
            reckoned = policy_length(environment, tenants, name)
            yield f"policy of {name}", length(bucket_policy(environment, tenants, name)), reckoned
    for tenant in tenants:
        for part in tenant.namespaces:
            if tenant.has_identity(part):
                role = iam_roles.namespace_role(environment, tenant, part)
                reckoned = role_length(environment, tenant, part)
                yield f"role of {part.name}", sum(map(length, role.policies.values())), reckoned
        assert tenant.ci
        (pipeline,) = iam_roles.pipeline_role(environment, tenant, tenant.ci).policies.values()
        yield "pipeline", length(pipeline), pipeline_length(environment, tenant)
        plan = tenant_plan.tenant_aws_plan(environment, tenant)
        assert plan
        for key in plan.keys:
            yield "key", length(key.policy), key_length(environment, tenant)
        for point in plan.access_points:
            reckoned = policy_length(environment, [tenant], point.bucket, point=True)
            yield "access point", length(access_point_policy(environment, tenant, point.bucket)), reckoned


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_document_is_longer_than_reckoned(make_environment: Make, data: st.DataObject) -> None:
    region = data.draw(st.sampled_from(sorted(REGIONS)))
    glass = {"trusted-principals": [f"arn:{REGIONS[region]}:iam::111122223333:user/x"], "mail": "a@bank.example"}
    environment = make_environment(
        region,
        data.draw(st.sampled_from(["e", "e" * 31])),
        data.draw(st.sampled_from(["c", "c" * 63])),
        data.draw(settings_of_buckets()),
        **data.draw(st.sampled_from([{}, {"break-glass": glass}, {"organization-id": "o-" + "a" * 32}])),
    )
    tenants = data.draw(tenants_of(sorted(environment.buckets)))
    for document, actual_length, reckoned in lengths(environment, tenants):
        assert actual_length <= reckoned, document
        assert reckoned <= 1.6 * actual_length + 3000, f"{document}: tenants would be refused that have room"


@pytest.mark.parametrize("region", REGIONS)
def test_the_trust_of_break_glass_is_not_longer_than_reckoned(make_environment: Make, region: str) -> None:
    def glass(people: int) -> Environment:
        users = [f"arn:{REGIONS[region]}:iam::111122223333:user/emergency-{i:02}" for i in range(people)]
        return make_environment(region, **{"break-glass": {"trusted-principals": users, "mail": "a@bank.example"}})

    def refused(environment: Environment) -> bool:
        return any(
            mistake.location == ("aws", "break-glass", "trusted-principals")
            for _, mistake in aws_resources(environment, ())
        )

    max_people = max(people for people in range(1, 60) if not refused(glass(people)))
    plan = platform_plan.data_plan(glass(max_people), ())
    assert plan
    assert plan.break_glass
    assert account.TRUST_LENGTH - 150 < length(plan.break_glass.role.trust) <= account.TRUST_LENGTH
    assert refused(glass(max_people + 1))


LONG = "x" * 31


def longest(make_environment: Make) -> tuple[Environment, Tenant]:
    parts = [f"p{number:02}{'x' * 28}" for number in range(20)]
    settings_by_name = {LONG: {}}
    long_tenant = tenant(
        "t" * 30,
        namespaces=parts,
        aws_resources={"secrets": settings_by_name, "sqs-queues": settings_by_name, "repositories": [LONG]},
    )
    glass = {"trusted-principals": ["arn:aws:iam::111122223333:user/x"], "mail": "a@bank.example"}
    return make_environment(name="e" * 31, cluster="c" * 63, **{"break-glass": glass}), long_tenant


def test_no_other_policy_can_be_too_long(make_environment: Make) -> None:
    """Twenty namespaces are the most that a tenant has, and no name is longer than these."""
    plan = tenant_plan.tenant_aws_plan(*longest(make_environment))
    assert plan
    lengths = {resource.kind: length(resource.policy.document) for resource in plan.owned if resource.policy}
    assert lengths.keys() == {"sqs_queues", "secrets", "repositories"}
    assert lengths["sqs_queues"] <= account.QUEUE_POLICY_LENGTH
    assert lengths["secrets"] <= account.SECRET_POLICY_LENGTH
    assert lengths["repositories"] <= account.REPOSITORY_POLICY_LENGTH
    assert {role.purpose for role in plan.roles if length(role.trust) > account.TRUST_LENGTH} == set()


def test_no_statement_of_a_queue_names_more_than_seven_actions(make_environment: Make) -> None:
    """SQS developer guide, "policy quotas"."""
    plan = tenant_plan.tenant_aws_plan(*longest(make_environment))
    assert plan
    (queue,) = plan.owned_of("sqs_queues")
    assert queue.policy
    assert max(len(statement["Action"]) for statement in queue.policy.document["Statement"]) <= 7


@pytest.mark.parametrize("identity", ["pod-identity", "irsa"])
def test_no_trust_is_too_long(make_environment: Make, identity: str) -> None:
    issuer = "oidc.eks.ap-southeast-2.amazonaws.com/id/" + "A" * 32
    environment = make_environment(
        name="e" * 31, cluster="c" * 63, identity=identity, irsa=True, **{"oidc-issuer": issuer}
    )
    long_tenant = tenant(
        "t" * 30,
        namespaces=[{"name": "p" * 31, "service-account": "s" * 63}],
        aws_resources={"secrets": ["card"]},
        ci={"gitlab": "g" * 127 + "/" + "p" * 127, "host": "h" * 240 + ".example", "branch": "b" * 255},
    )
    plan = tenant_plan.tenant_aws_plan(environment, long_tenant)
    assert plan
    assert [role.purpose for role in plan.roles] == ["p" * 31, "ci"]
    assert all(length(role.trust) <= account.TRUST_LENGTH for role in plan.roles)


# Names


def test_no_name_is_too_long_and_none_that_is_cut_meets_another(make_environment: Make) -> None:
    environment = make_environment(name="e" * 31, cluster="c" * 63, buckets=["b" * 63, "b" * 62 + "c"])
    grants = [{"bucket": bucket, "prefix": "x/"} for bucket in environment.buckets]
    tenants = [
        tenant(name, namespaces=[part, f"{part[:-1]}y"], storage=grants, budget={"monthly-usd": 1}, aws_resources=uses)
        for name in ("t" * 30, "t" * 29, "t" * 29 + "u")
        for part, uses in [("x" * 31, {"sqs-queues": ["q" * 31, "q" * 30]})]
    ]
    plans = [plan for owner in tenants if (plan := tenant_plan.tenant_aws_plan(environment, owner))]
    by_kind = {
        account.ROLE_NAME: [role.name for plan in plans for role in plan.roles],
        account.QUEUE_NAME: [queue.name for plan in plans for queue in plan.owned_of("sqs_queues")],
        account.ACCESS_POINT_NAME: [
            names.tenant_access_point(environment, t, b) for t in tenants for b in environment.buckets
        ],
        account.BUDGET_NAME: [plan.budget.name for plan in plans if plan.budget],
    }
    for max_length, names_of_kind in nonempty(by_kind.items()):
        assert len(names_of_kind) >= 3
        assert len(set(names_of_kind)) == len(names_of_kind), "two of one name"
        assert max(map(len, names_of_kind)) <= max_length


def test_a_name_that_is_cut_is_no_whole_name(make_environment: Make) -> None:
    """`.` and `_` stand in no name that people write, so a cut name never equals another's whole one."""
    full_name = names.tenant_role(make_environment(cluster="c"), tenant("t"), "p")
    shortened_name = names.tenant_role(make_environment(cluster="c" * 63), tenant("t"), "p")
    assert (full_name, "." in full_name) == ("c--t--p", False)
    assert len(shortened_name) == account.ROLE_NAME
    assert shortened_name[-13] == "."
    assert names.ci_role(make_environment(cluster="c" * 63), tenant("t")).endswith(".ci")


# Sums over all tenants


def quota_problems(environment: Environment, tenants: list[Tenant]) -> dict[str, str]:
    """Which quota is too small, and by what sum."""
    broken = [mistake for _, mistake in aws_resources(environment, tenants) if mistake.id == "aws-03"]
    return {str(mistake.location[-1]): mistake.given for mistake in broken}


def numbered_tenants(count: int, **more: Any) -> list[Tenant]:
    first = tenant("t0", **more)
    return [first.model_copy(update={"tenant": f"t{number}"}) for number in range(count)]


def test_a_role_for_each_namespace_with_a_grant_and_each_pipeline(make_environment: Make) -> None:
    grants = [{"bucket": "data", "prefix": "x/", "namespaces": ["a"]}]
    tenants = numbered_tenants(497, namespaces=["a", "b"], storage=grants, ci={"github": "bank/x", "branch": "m"})
    assert quota_problems(make_environment(buckets=["data"]), tenants) == {}, "994 and 6 of the platform are 1,000"
    one_more = [*tenants, tenant("t", namespaces=["a"], storage=grants)]
    assert quota_problems(make_environment(buckets=["data"]), one_more) == {
        "roles": "1001 roles for 498 tenants of 1000 IAM roles of an account"
    }
    assert quota_problems(make_environment(buckets=["data"], service_quotas={"roles": 1001}), one_more) == {}


def test_the_platforms_own_roles_and_associations_are_counted(make_environment: Make) -> None:
    made_roles = roles(Environment.model_validate({**_dumped(make_environment()), "pools": _SCALED}))
    assert len(made_roles) + 1 == PLATFORM_ROLES, "and the one that breaks the glass"
    assert sum(role.service_account is not None for role in made_roles.values()) == PLATFORM_ASSOCIATIONS


_SCALED = {"more": {"instance-type": "m7i.xlarge", "nodes": {"min": 0, "max": 2}}}


def _dumped(environment: Environment) -> dict[str, Any]:
    return environment.model_dump(mode="json", by_alias=True, exclude_unset=True)


def test_a_shared_role_is_counted_once_for_all_namespaces_of_its_grants(make_environment: Make) -> None:
    environment = make_environment(buckets=["data"], identity="shared")
    tenants = numbered_tenants(2000, storage=[{"bucket": "data", "prefix": "reference/"}])
    assert quota_problems(environment, tenants) == {}
    assert list(quota_problems(make_environment(buckets=["data"], service_quotas={"associations": 5000}), tenants)) == [
        "roles"
    ]


def test_5000_associations_are_all_that_a_cluster_has(make_environment: Make) -> None:
    environment = make_environment(buckets=["data"], identity="shared")
    tenants = numbered_tenants(4997, storage=[{"bucket": "data", "prefix": "reference/"}])
    assert quota_problems(environment, tenants) == {}
    assert quota_problems(
        environment, [*tenants, tenant("t", storage=[{"bucket": "data", "prefix": "reference/"}])]
    ) == {"associations": "5001 associations for 4998 tenants of 5000 Pod Identity associations of a cluster"}


def test_3000_access_entries_are_all_that_a_cluster_has(make_environment: Make) -> None:
    people = {f"group-{number}": f"arn:aws:iam::111122223333:role/r{number}" for number in range(2000)}
    quotas = {"roles": 10_000}
    tenants = numbered_tenants(997, ci={"github": "bank/x", "branch": "m"})
    assert quota_problems(make_environment(group_roles=people, service_quotas=quotas), tenants) == {}, (
        "2,000 of people, 997 of pipelines, 3 of the platform"
    )
    (reason,) = quota_problems(
        make_environment(group_roles=people, service_quotas=quotas),
        [*tenants, tenant("t", ci={"github": "b/x", "branch": "m"})],
    ).values()
    assert reason == "3001 access-entries for 998 tenants of 3000 access entries of a cluster"


def test_an_access_point_for_each_tenant_and_bucket_that_has_them(make_environment: Make) -> None:
    environment = make_environment(
        buckets={"data": {"access-points": True}, "more": {}}, service_quotas={"access-points": 3, "roles": 99}
    )
    grants = [
        {"bucket": "data", "prefix": "a/"},
        {"bucket": "data", "prefix": "b/"},
        {"bucket": "more", "prefix": "c/"},
    ]
    assert quota_problems(environment, numbered_tenants(3, storage=grants)) == {}
    assert list(quota_problems(environment, numbered_tenants(4, storage=grants))) == ["access-points"]


def test_a_provider_for_each_forge(make_environment: Make) -> None:
    def pipelines(count: int) -> list[Tenant]:
        return [
            tenant(f"t{i}", ci={"gitlab": "a/b", "host": f"git{i}.bank.example", "branch": "m"}) for i in range(count)
        ]

    assert quota_problems(make_environment(), pipelines(100)) == {}
    assert list(quota_problems(make_environment(), pipelines(101))) == ["oidc-providers"]
    assert list(quota_problems(make_environment(irsa=True), pipelines(100))) == ["oidc-providers"], (
        "the cluster has one too"
    )


@pytest.mark.parametrize("name", sorted(account.QUOTAS.keys() - {"policies"}))
def test_every_quota_is_reckoned_with(make_environment: Make, name: str) -> None:
    """All but one: of managed policies there is the boundary alone, however many tenants there are."""
    buckets = {"data": {"access-points": True, "kms-key-scope": "tenant"}, "more": {}}
    grants = [{"bucket": "data", "prefix": "x/", "access": "read-write"}]
    uses = {"secrets": ["a"], "repositories": ["a"]}
    tenants = [
        tenant(f"t{i}", storage=grants, aws_resources=uses, budget={"monthly-usd": 1}, ci={**ci, "branch": "m"})
        for i, ci in enumerate([{"github": "bank/x"}, {"gitlab": "bank/x"}])
    ]
    assert list(quota_problems(make_environment(buckets=buckets, service_quotas={name: 1}), tenants)) == [name]
    assert quota_problems(make_environment(buckets=buckets), tenants) == {}


def test_the_sum_and_what_to_do_are_said_in_the_environments_file(spec: Any) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS.replace("service-quotas: {}", "service-quotas: {roles: 8}"))
    problem = spec.problem()
    assert problem.file.endswith(ENV)
    assert problem.given == "9 roles for 2 tenants of 8 IAM roles of an account"
    assert "or set identity to shared" in problem.change


# Single policies


@pytest.mark.parametrize(("count", "refused"), [(500, True), (10, False)])
def test_a_namespaces_grants_fit_into_its_role(spec: Any, count: int, refused: bool) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS)
    more = "".join(f"  - {{bucket: models, prefix: fraud/{i:03}/}}\n" for i in range(count))
    spec.edit(FRAUD, "egress:\n", more + "egress:\n")
    problems = {(problem.id, problem.field) for problem in spec.problems()}
    parts = {("aws-02", "namespaces[0]"), ("aws-02", "namespaces[1]")}
    assert problems >= parts if refused else problems == set()


def test_prefixes_of_tenants_fit_into_a_buckets_policy_or_it_gets_access_points(make_environment: Make) -> None:
    def grants(count: int, **bucket: Any) -> list[tuple[Any, ...]]:
        environment = make_environment(buckets={"bank-datasets": bucket})
        tenants = [
            tenant(
                f"team-{i:03}",
                storage=[{"bucket": "bank-datasets", "prefix": f"teams/team-{i:03}/", "access": "read-write"}],
            )
            for i in range(count)
        ]
        return [(mistake.id, mistake.location) for _, mistake in aws_resources(environment, tenants)]

    assert grants(15) == []
    assert grants(60) == [("aws-02", ("buckets", "bank-datasets"))]
    assert grants(60, **{"access-points": True}) == []


def test_a_bucket_has_1000_rules_of_expiry(make_environment: Make) -> None:
    def refused(count: int) -> list[str]:
        environment = make_environment(buckets={"data": {"access-points": True}}, service_quotas={"roles": 5000})
        grant = {"bucket": "data", "access": "read-write", "expiration-days": 7}
        tenants = [tenant(f"t{i}", storage=[{**grant, "prefix": f"t{i}/"}]) for i in range(count)]
        return [mistake.given for _, mistake in aws_resources(environment, tenants)]

    assert refused(999) == [], "and one for everything"
    assert refused(1000) == ["bucket data with 1001 rules of expiry of 1000"]


def test_buckets_fit_into_the_boundary(make_environment: Make) -> None:
    def refused(count: int) -> list[Any]:
        environment = make_environment(buckets=[f"bank-data-{number:03}" for number in range(count)])
        return [mistake.location for _, mistake in aws_resources(environment, ())]

    max_buckets = max(count for count in range(100) if not refused(count))
    assert refused(max_buckets + 1) == [("buckets",)]
    full = make_environment(buckets=[f"bank-data-{number:03}" for number in range(max_buckets)])
    assert account.MANAGED_LENGTH - 200 < length(platform_plan.boundary(full).document) <= account.MANAGED_LENGTH


def test_repositories_fit_into_the_pipelines_policy(make_environment: Make) -> None:
    def refused(count: int) -> list[Any]:
        uses = {"repositories": [f"model-{number:03}" for number in range(count)]}
        tenants = [tenant(ci={"github": "bank/x", "branch": "m"}, aws_resources=uses)]
        return [mistake.location for _, mistake in aws_resources(make_environment(), tenants)]

    assert refused(60) == []
    assert refused(200) == [("aws-resources", "repositories")]


def test_what_a_tenants_key_encrypts_fits_into_its_policy(make_environment: Make) -> None:
    environment = make_environment(
        buckets={"data": {"kms-key-scope": "tenant", "access-points": True}}, service_quotas={"roles": 2000}
    )
    parts = [f"p{number}" for number in range(20)]

    def refused(prefixes_per_part: int) -> list[Any]:
        """So many prefixes of 250 characters in each of 20 parts."""
        grants = [
            {"bucket": "data", "prefix": f"{part}{i:03}{'x' * 240}/", "access": "read-write", "namespaces": [part]}
            for part in parts
            for i in range(prefixes_per_part)
        ]
        large_tenant = tenant(namespaces=parts, storage=grants)
        return [
            mistake.given for _, mistake in aws_resources(environment, [large_tenant]) if "own key" in mistake.given
        ]

    assert refused(3) == []
    assert len(refused(6)) == 1
