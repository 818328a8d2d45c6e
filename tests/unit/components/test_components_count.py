"""Both sides of an account's book: what the AWS halves of a plan list, and what the program registers for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy.planning import Plan, make_plan
from tenancy.planning.aws import platform_models, tenant_models
from tenancy.planning.scope import StackScope
from tenancy.spec.loader import load
from tests.iam.worlds import world
from tests.registered import Registered, register
from tests.registered_aws import inputs, kind, on_aws

BANK = Path(__file__).parents[3] / "stacks" / "bank"
AROUND_A_BUCKET = (
    *("Bucket", "BucketPublicAccessBlock", "BucketOwnershipControls", "BucketVersioning", "BucketPolicy"),
    *("BucketServerSideEncryptionConfiguration", "BucketLifecycleConfiguration"),
)
Line = tuple[str, str]
"""Kind, and what AWS knows it by."""
KNOWN_BY = {
    **dict.fromkeys(AROUND_A_BUCKET, "bucket"),
    **dict.fromkeys(("AccessEntry", "AccessPolicyAssociation"), "principalArn"),
    "CostAllocationTag": "tagKey",
    "Key": "description",
    "OpenIdConnectProvider": "url",
}
"""The property; of the others it is `name`."""
ON = {
    **dict.fromkeys(AROUND_A_BUCKET[1:], ("bucket", "Bucket")),
    "EventTarget": ("rule", "EventRule"),
    "QueuePolicy": ("queueUrl", "Queue"),
    "RepositoryPolicy": ("repository", "Repository"),
    "RolePolicy": ("role", "Role"),
    "SecretPolicy": ("secretArn", "Secret"),
    "TopicPolicy": ("arn", "Topic"),
    "TopicSubscription": ("topic", "Topic"),
}
"""Kinds that are known by what they are on: the property with its id, and its kind."""


def lines(resource: object) -> Iterator[Line]:
    """The resources of AWS that an entry of a plan stands for, as its docstring says."""
    match resource:
        case tenant_models.KeyPlan(description=text, alias=alias):
            yield from (("Key", text), ("Alias", alias))
        case platform_models.Boundary(name=name):
            yield "Policy", name
        case tenant_models.TenantRolePlan(name=name, policies=policies):
            yield "Role", name
            yield from (("RolePolicy", f"{name}/{policy}") for policy in policies)
        case platform_models.BucketPlan(name=name):
            yield from ((type_name, name) for type_name in AROUND_A_BUCKET)
        case platform_models.OidcProvider(url=url):
            yield "OpenIdConnectProvider", url
        case tenant_models.AccessEntry(principal=principal, policy=policy):
            yield "AccessEntry", principal
            yield from [("AccessPolicyAssociation", principal)] if policy else []
        case platform_models.BreakGlassPlan(role=role, entry=entry, alarm=alarm):
            yield from (*lines(role), *lines(entry))
            yield from ((type_name, alarm.name) for type_name in ("Topic", "TopicPolicy", "TopicSubscription"))
            yield from (("EventRule", alarm.name), ("EventTarget", alarm.name))
        case tenant_models.AccessPoint(name=name):
            yield "AccessPoint", name
        case tenant_models.OwnedResource(type=type_token, name=name, policy=policy):
            yield from ((token.rpartition(":")[2], name) for token in (type_token, policy and policy.type) if token)
        case tenant_models.BudgetPlan(name=name):
            yield "Budget", name
        case tenant_models.Association(namespace=namespace, service_account=account):
            yield "PodIdentityAssociation", f"{namespace}/{account}"
        case _:
            raise AssertionError(f"nothing is known of {resource}")


def planned(plan: Plan, tenant: str | None = None) -> Counter[Line]:
    """Entries of a tenant's plan, or of the platform's."""
    if tenant:
        tenant_plan = plan.tenant(tenant).aws
        assert tenant_plan is not None
        return Counter(line for entry in tenant_plan.resources() for line in lines(entry))
    platform_plan = plan.platform.data
    assert platform_plan
    return Counter(line for entry in platform_plan.resources() for line in lines(entry)) + Counter(
        ("CostAllocationTag", tag) for tag in platform_plan.cost_tags
    )


def registered(*stacks: Registered) -> Counter[Line]:
    """Registered resources other than services, which are no part of the AWS halves of tenants."""
    own_requests = [r for stack in stacks for urn, r in on_aws(stack).items() if ":Services$" not in stack.path(urn)]
    mothers = {(kind(r), f"{r.name}-id"): str(inputs(r).get(KNOWN_BY.get(kind(r), "name"))) for r in own_requests}

    def known_by(request: Any) -> str:
        what, resource_inputs = kind(request), inputs(request)
        if what == "PodIdentityAssociation":
            return f"{resource_inputs['namespace']}/{resource_inputs['serviceAccount']}"
        if what not in ON:
            return resource_inputs[KNOWN_BY.get(what, "name")]
        key, mother = ON[what]
        return mothers[mother, resource_inputs[key]] + (f"/{resource_inputs['name']}" if what == "RolePolicy" else "")

    return Counter((kind(request), known_by(request)) for request in own_requests)


def bank() -> Plan:
    loaded = load(BANK)
    return make_plan(loaded, loaded.day)


PLANS: dict[str, Callable[[], Plan]] = {
    "bank": bank,
    **{
        f"{(random_world := world(seed)).identity} {seed}": lambda random_world=random_world: random_world.account.plan
        for seed in range(3)
    },
}


@pytest.fixture(scope="module", params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]()


def test_one_stack_registers_every_line_of_the_plan_once_and_nothing_else(plan: Plan) -> None:
    lines = [planned(plan), *(planned(plan, tenant.name) for tenant in plan.tenants)]
    assert registered(register(plan)) == sum(lines, Counter())
    assert len(lines[0]) > 5


def test_each_scope_registers_its_own_lines() -> None:
    plan = PLANS["shared 2"]()
    assert registered(register(plan, StackScope.PLATFORM)) == planned(plan)
    for tenant in plan.tenants:
        assert registered(register(plan, StackScope.TENANT, tenant.name)) == planned(plan, tenant.name), tenant.name


def test_every_kind_of_entry_is_in_one_of_these_plans() -> None:
    met = set[type]()
    for make_bank_plan in PLANS.values():
        plan = make_bank_plan()
        halves = [plan.platform.data, *(tenant.aws for tenant in plan.tenants)]
        met |= {type(entry) for half in halves if half is not None for entry in half.resources()}
    assert met == ENTRIES


ENTRIES: set[type] = {
    *(
        tenant_models.KeyPlan,
        tenant_models.TenantRolePlan,
        tenant_models.AccessPoint,
        tenant_models.OwnedResource,
        tenant_models.BudgetPlan,
        tenant_models.Association,
        tenant_models.AccessEntry,
    ),
    *(
        platform_models.Boundary,
        platform_models.BucketPlan,
        platform_models.OidcProvider,
        platform_models.BreakGlassPlan,
    ),
}
