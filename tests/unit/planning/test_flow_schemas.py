"""Priority levels of the API server: the requests that share one, and the concurrency of each."""

from __future__ import annotations

from typing import Any

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import Plan
from tenancy.planning.kubernetes import flow_control
from tenancy.planning.render import file_texts
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import Loaded

KUBERNETES_LAST_SYSTEM_SCHEMA = 900
KUBERNETES_SERVICE_ACCOUNTS = 9000


def kinds(plan: Plan, kind: str) -> list[Object]:
    return [item for item in plan.objects() if item["kind"] == kind]


def spec_of(plan: Plan, kind: str, name: str) -> dict[str, Any]:
    (item_of_name,) = [item for item in kinds(plan, kind) if item["metadata"]["name"] == name]
    return item_of_name["spec"]


def groups(plan: Plan, name: str) -> set[str]:
    rules = spec_of(plan, "FlowSchema", name)["rules"]
    return {subject["group"]["name"] for rule in rules for subject in rule["subjects"]}


def test_an_identity_of_neither_the_system_nor_the_platform_has_the_tenants_level(plan: Plan) -> None:
    """Named one by one, a new person of a tenant would be outside until the platform's stack has run."""
    assert groups(plan, flow_control.TENANTS) == {"system:authenticated"}
    (rule,) = spec_of(plan, "FlowSchema", flow_control.TENANTS)["rules"]
    assert rule["resourceRules"] == [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    ]
    assert rule["nonResourceRules"] == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def test_the_platform_and_kueue_have_a_level_of_their_own(plan: Plan, environment: Environment) -> None:
    platform_groups = groups(plan, flow_control.PLATFORM)
    assert {environment.platform.group, f"system:serviceaccounts:{vocabulary.QUEUE_NAMESPACE}"} <= platform_groups
    spaces = {s.name for tenant in plan.tenants for s in tenant.namespaces}
    assert not {group.rpartition(":")[2] for group in platform_groups} & spaces
    assert spec_of(plan, "PriorityLevelConfiguration", flow_control.PLATFORM)["limited"]["lendablePercent"] == 0


def test_the_systems_are_asked_first_then_the_platform_then_tenants(plan: Plan) -> None:
    first, second = (
        spec_of(plan, "FlowSchema", name)["matchingPrecedence"]
        for name in (flow_control.PLATFORM, flow_control.TENANTS)
    )
    assert KUBERNETES_LAST_SYSTEM_SCHEMA < first < second < KUBERNETES_SERVICE_ACCOUNTS


def test_a_flow_is_a_user_and_never_a_namespace_that_others_can_name(plan: Plan) -> None:
    assert spec_of(plan, "FlowSchema", flow_control.TENANTS)["distinguisherMethod"] == {"type": "ByUser"}


def test_tenants_borrow_no_requests_from_others(plan: Plan) -> None:
    limited = spec_of(plan, "PriorityLevelConfiguration", flow_control.TENANTS)["limited"]
    assert limited["borrowingLimitPercent"] == 0
    assert limited["limitResponse"]["type"] == "Queue"


def test_nothing_of_it_depends_on_tenants(loaded: Loaded, plan: Plan) -> None:
    assert planning.plan(loaded.environment, ()).platform.flow_control == plan.platform.flow_control


def test_they_are_rendered_with_the_platform(plan: Plan) -> None:
    text = file_texts(plan)["platform/28-flow-control.yaml"]
    assert text.index("kind: PriorityLevelConfiguration") < text.index("kind: FlowSchema"), "a level before its schema"
