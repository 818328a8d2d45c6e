"""The shape of what the program registers, under mocks: names, parents, order, providers, protection."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
from virtual_worlds import virtual

from bench.generate import generate
from tenancy.catalog import vocabulary
from tenancy.planning import Plan, make_plan
from tenancy.planning.scope import StackScope, ordered_stacks, scope_of, stacks
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import load
from tests.conftest import every, nonempty
from tests.registered import Registered, register

ROOT = Path(__file__).parents[3]
MOST_EDGES = 11
"""The SDK walks the closure of every edge: many of them are what makes a program slow."""


@pytest.fixture(scope="module")
def local() -> Plan:
    loaded = load(ROOT / "stacks" / "local")
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def single_stack(local: Plan) -> Registered:
    return register(local)


@pytest.fixture(scope="module", params=[3, 12])
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Registered]:
    loaded = load(generate(tmp_path_factory.mktemp("generated") / "many", request.param))
    plan = make_plan(loaded, loaded.day)
    return plan, register(plan)


def test_every_object_of_the_plan_is_registered_once_and_as_it_is(local: Plan, single_stack: Registered) -> None:
    from google.protobuf import json_format

    sent = [json_format.MessageToDict(request.object) for request in single_stack.kubernetes().values()]
    keyed = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in sent}
    planned = list(local.objects())
    assert len(sent) == len(keyed) == len(planned)
    for item in sent:
        notes = item["metadata"]["annotations"]
        assert notes.pop("pulumi.com/deletionPropagationPolicy") == "background"
        if not notes:
            del item["metadata"]["annotations"]
    for item in planned:
        assert keyed[item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]] == item


def test_no_two_resources_share_a_name(generated: tuple[Plan, Registered]) -> None:
    plan, registered = generated
    assert registered.repeated == []
    assert len(registered.kubernetes()) == sum(1 for _ in plan.objects())
    names = Counter((request.type, request.name) for request in registered.kubernetes().values())
    assert [name for name, count in names.items() if count > 1] == []


def test_a_childs_name_starts_with_its_components_and_does_not_repeat_its_kind(single_stack: Registered) -> None:
    for urn, request in nonempty(single_stack.kubernetes().items()):
        parent = single_stack.parent(urn).name
        assert request.name == parent or request.name.startswith(parent + "-"), request.name
        assert f"-{request.type.rpartition(':')[2].lower()}-" not in request.name


def test_a_stack_has_one_component_for_the_platform_and_one_for_each_tenant(
    single_stack: Registered, local: Plan
) -> None:
    tops = {
        r.name: r.type.rpartition(":")[2]
        for r in single_stack.requests.values()
        if r.parent not in single_stack.requests
    }
    tenants = {tenant.name: "GpuTenant" for tenant in local.tenants}
    assert tops == {"kubernetes": "kubernetes", "platform": "GpuPlatform", **tenants}


def test_every_object_has_a_component_for_a_parent(single_stack: Registered) -> None:
    parents = {single_stack.parent(urn).type.rpartition(":")[2] for urn in single_stack.kubernetes()}
    assert parents == {"AdmissionGuards", "ClusterQueues", "GpuTenant", "TenantNamespace"}
    for urn in nonempty(single_stack.of("TenantNamespace")):
        assert single_stack.parent(urn).type == "gpu-tenancy:index:GpuTenant"


def test_every_component_says_that_it_is_complete(single_stack: Registered) -> None:
    components = {urn for urn, request in single_stack.requests.items() if request.type.startswith("gpu-tenancy:")}
    assert components
    assert components <= single_stack.outputs.keys()


def test_one_provider_serves_the_stack_and_every_object_names_it(generated: tuple[Plan, Registered]) -> None:
    _, registered = generated
    providers = [urn for urn, r in registered.requests.items() if r.type == "pulumi:providers:kubernetes"]
    assert len(providers) == 1
    used = {request.provider for request in registered.kubernetes().values()}
    assert used == {f"{providers[0]}::kubernetes-id"}


def test_edges_are_few_and_do_not_grow_with_tenants(generated: tuple[Plan, Registered]) -> None:
    plan, registered = generated
    gates = max(len(plan.platform.guards), len(plan.platform.queues))
    for urn, request in nonempty(registered.kubernetes().items()):
        of_tenant = registered.parent(urn).type.endswith((":GpuTenant", ":TenantNamespace"))
        assert len(request.dependencies) <= (MOST_EDGES if of_tenant else gates), request.name


def test_a_binding_waits_for_every_isolation_resource_of_its_namespace(generated: tuple[Plan, Registered]) -> None:
    _, registered = generated
    isolation_resources: dict[str, set[str]] = {}
    for urn, request in registered.kubernetes().items():
        if request.type.rpartition(":")[2] not in {"Namespace", "RoleBinding", "ServiceAccount"}:
            isolation_resources.setdefault(request.parent, set()).add(urn)
    bindings = {**registered.of("RoleBinding"), **registered.of("ServiceAccount")}
    assert bindings
    for request in bindings.values():
        assert set(request.dependencies) == isolation_resources[request.parent], request.name


def test_a_isolation_resource_waits_for_its_namespace(single_stack: Registered) -> None:
    spaces = {request.parent: urn for urn, request in single_stack.of("Namespace").items()}
    for kind in ("ResourceQuota", "LimitRange", "NetworkPolicy", "LocalQueue"):
        for request in single_stack.of(kind).values():
            assert list(request.dependencies) == [spaces[request.parent]]


def tenant_spaces(registered: Registered) -> dict[str, Any]:
    return {urn: request for urn, request in registered.of("Namespace").items() if vocabulary.SEPARATOR in request.name}


def tenant_queues(registered: Registered, tenant: str) -> set[str]:
    """URNs of a tenant's own Cohort and ClusterQueues."""
    (component,) = [urn for urn, request in registered.of("GpuTenant").items() if request.name == tenant]
    return {urn for urn, request in registered.kubernetes().items() if request.parent == component}


def test_a_namespace_waits_for_its_tenants_queues_and_these_for_the_marker(single_stack: Registered) -> None:
    """So a queue is deleted after all that was in it, and no work is admitted before the guards are in force."""
    (marker,) = single_stack.of("ConfigMap")
    for request in nonempty(tenant_spaces(single_stack).values()):
        queues = tenant_queues(single_stack, request.name.partition(vocabulary.SEPARATOR)[0])
        assert "ClusterQueue" in {single_stack.requests[urn].type.rpartition(":")[2] for urn in queues}
        assert set(request.dependencies) == queues
        for urn in queues:
            assert marker in single_stack.requests[urn].dependencies


def test_a_queue_waits_for_all_that_queues_stand_on(single_stack: Registered) -> None:
    prerequisites = [
        urn for urn in single_stack.kubernetes() if single_stack.parent(urn).type.endswith(":ClusterQueues")
    ]
    *others, last = prerequisites
    assert set(single_stack.requests[last].dependencies) == set(others)
    for tenant in ("fraud", "performance", "research"):
        for urn in tenant_queues(single_stack, tenant):
            assert last in single_stack.requests[urn].dependencies


def test_a_tenants_queues_wait_for_its_cohort(single_stack: Registered) -> None:
    own_queues = tenant_queues(single_stack, "fraud")
    (cohort,) = own_queues & single_stack.of("Cohort").keys()
    cluster_queues = own_queues & single_stack.of("ClusterQueue").keys()
    assert len(cluster_queues) == 2
    assert every(cohort in single_stack.requests[urn].dependencies for urn in cluster_queues)


def test_without_a_queue_a_namespace_waits_for_the_marker(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "stacks" / "local", tmp_path / "local")
    environment = folder / "environment.yaml"
    environment.write_text(environment.read_text("utf-8") + "queues: {scheduler: none}\n", "utf-8")
    for file in (folder / "tenants").iterdir():
        file.write_text(re.sub(r", sharing: .*}", "}", file.read_text("utf-8")), "utf-8")
    loaded = load(folder)
    registered = register(make_plan(loaded, loaded.day))
    (marker,) = registered.of("ConfigMap")
    assert tenant_spaces(registered)
    for request in tenant_spaces(registered).values():
        assert list(request.dependencies) == [marker]
    assert not [urn for urn in registered.kubernetes() if "kueue" in urn]


def test_a_local_queue_that_leads_elsewhere_is_made_anew(single_stack: Registered) -> None:
    """Its ClusterQueue is immutable."""
    for urn, request in nonempty(single_stack.kubernetes().items()):
        queue = request.type.endswith(":LocalQueue")
        assert list(request.replaceOnChanges) == (["spec.clusterQueue"] if queue else []), urn
        assert request.deleteBeforeReplace == queue


def test_the_marker_waits_for_every_guard(single_stack: Registered) -> None:
    (marker,) = single_stack.of("ConfigMap")
    policies = {**single_stack.of("ValidatingAdmissionPolicy"), **single_stack.of("ValidatingAdmissionPolicyBinding")}
    readiness_probe = {urn for urn, request in policies.items() if request.name.endswith("-readiness")}
    assert len(readiness_probe) == 2
    assert readiness_probe <= set(single_stack.requests[marker].dependencies)
    for urn in readiness_probe:
        assert set(single_stack.requests[urn].dependencies) == policies.keys() - readiness_probe


def test_no_namespace_is_registered_before_the_guards_are_said_to_be_in_force(single_stack: Registered) -> None:
    order = list(single_stack.requests)
    assert len(single_stack.asked) == 1
    first = min(order.index(urn) for urn in tenant_spaces(single_stack))
    (marker,) = single_stack.of("ConfigMap")
    assert order.index(marker) < single_stack.asked[0] <= first


def test_a_preview_does_not_wait_for_guards(local: Plan) -> None:
    registered = register(local, preview=True)
    assert registered.asked == []
    assert len(registered.kubernetes()) == sum(1 for _ in local.objects())


def test_the_guards_are_protected_in_a_stack_of_their_own_alone(local: Plan, single_stack: Registered) -> None:
    alone = register(local, StackScope.PLATFORM).kubernetes()
    assert alone
    assert every(request.protect for request in alone.values())
    protected = {urn for urn, request in single_stack.kubernetes().items() if request.protect}
    assert protected == set(tenant_spaces(single_stack)), "with a namespace goes all that is in it"


@pytest.mark.parametrize(("leaving", "is_protected"), [("", True), ("hold", False), ("export", False)])
def test_a_namespace_may_go_only_once_its_tenant_said_that_it_leaves(
    tmp_path: Path, leaving: str, is_protected: bool
) -> None:
    folder = generate(tmp_path / "two", 2)
    file = folder / "tenants" / "team-0000.yaml"
    file.write_text(file.read_text() + (f"offboarding: {leaving}\n" if leaving else ""))
    loaded = load(folder)
    registered = register(make_plan(loaded, loaded.day))
    spaces = [r for r in registered.of("Namespace").values() if r.name.startswith("team-0000--")]
    assert len(spaces) == 3
    assert {request.protect for request in spaces} == {is_protected}


def test_only_an_adopted_namespace_outlives_its_tenant(tmp_path: Path) -> None:
    folder = generate(tmp_path / "two", 2)
    file = folder / "tenants" / "team-0000.yaml"
    file.write_text(file.read_text() + "adopt: true\n")
    loaded = load(folder)
    registered = register(make_plan(loaded, loaded.day))
    retained_names = {request.name for request in registered.kubernetes().values() if request.retainOnDelete}
    assert retained_names == {f"team-0000--{part}" for part in ("notebooks", "serve", "train")}


@pytest.mark.parametrize("tenant", ["fraud", "research"])
def test_a_tenants_own_stack_registers_what_one_stack_registers_of_it(
    local: Plan, single_stack: Registered, tenant: str
) -> None:
    alone = register(local, StackScope.TENANT, tenant)
    own_urns = {
        urn
        for urn, request in single_stack.kubernetes().items()
        if request.name.startswith(f"{tenant}{vocabulary.SEPARATOR}") or urn in tenant_queues(single_stack, tenant)
    }
    assert alone.kubernetes().keys() == own_urns
    order = list(alone.requests)
    first = min(order.index(urn) for urn in tenant_spaces(alone))
    assert [call <= first for call in alone.asked] == [True], "its cluster is asked for the guards, once"


def test_the_scopes_together_register_what_one_stack_does(local: Plan, single_stack: Registered) -> None:
    names = [
        request.name
        for _, scope, tenant in stacks(local, Layout.PER_TENANT)
        for request in register(local, scope, tenant).kubernetes().values()
    ]
    assert sorted(names) == sorted(request.name for request in single_stack.kubernetes().values())


@pytest.mark.parametrize(
    ("setting", "layout", "stack", "scope"),
    [
        (None, Layout.ONE, "bank", StackScope.ALL),
        (None, Layout.PER_TENANT, "bank", StackScope.PLATFORM),
        (None, Layout.ONE, "bank--fraud", StackScope.TENANT),
        (None, Layout.PER_TENANT, "bank.cluster", StackScope.CLUSTER),
        ("platform", Layout.ONE, "bank", StackScope.PLATFORM),
    ],
)
def test_a_stack_owns_what_its_settings_or_its_name_says(
    setting: str | None, layout: Layout, stack: str, scope: StackScope
) -> None:
    assert scope_of(setting, layout, stack) is scope


def test_the_cluster_is_made_first_and_changed_last() -> None:
    stacks = [
        ("bank.cluster", StackScope.CLUSTER, None),
        ("bank", StackScope.PLATFORM, None),
        ("bank--a", StackScope.TENANT, "a"),
    ]
    assert ordered_stacks(stacks, cluster_exists=False) == stacks
    assert ordered_stacks(stacks, cluster_exists=True) == [*stacks[1:], stacks[0]], (
        "quotas know a new slice before a node has it"
    )


def test_a_scope_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="given scope 'tenants'"):
        scope_of("tenants", Layout.ONE, "bank")


def test_logical_names_stay_as_they_are(single_stack: Registered, golden: Any) -> None:
    """A resource whose logical name changes is made anew and the old one deleted: with it, a namespace."""
    golden.check("logical-names.txt", "".join(sorted(f"{single_stack.path(urn)}\n" for urn in single_stack.requests)))


def test_a_control_plane_stands_on_all_of_its_namespace(tmp_path: Path) -> None:
    """Its pod would start as an account that is not there yet, or before the isolation resources around it."""
    loaded = virtual(tmp_path / "small").load()
    registered_plan = register(make_plan(loaded, loaded.day))
    releases = {urn: request for urn, request in registered_plan.of("Release").items() if "virtual" in request.name}
    assert sorted(request.name for request in releases.values()) == [
        "fraud--serve-virtual-cluster",
        "fraud--train-virtual-cluster",
    ]
    for request in releases.values():
        siblings = {
            urn for urn, sibling in registered_plan.requests.items() if sibling.parent == request.parent
        } - releases.keys()
        namespace = {urn for urn in siblings if registered_plan.requests[urn].type == "kubernetes:core/v1:Namespace"}
        assert siblings - namespace <= {*request.dependencies}


def test_names_of_the_sdk_agree_with_the_type_of_every_object(local: Plan) -> None:
    """Our own tokens are those of the SDK's classes: the provider knows no others. What a cluster defines itself has
    no class; its token is made of version and kind by the one class for all of these."""
    from pulumi_kubernetes import admissionregistration, core, flowcontrol, networking, rbac, scheduling

    from tenancy.components.kubernetes.manifest import resource_type
    from tenancy.planning.queueing.queue_names import API

    classes: list[Callable[..., Any]] = [
        *(
            getattr(core.v1, name)
            for name in ("ConfigMap", "LimitRange", "Namespace", "ResourceQuota", "ServiceAccount")
        ),
        admissionregistration.v1.ValidatingAdmissionPolicy,
        admissionregistration.v1.ValidatingAdmissionPolicyBinding,
        flowcontrol.v1.FlowSchema,
        flowcontrol.v1.PriorityLevelConfiguration,
        networking.v1.NetworkPolicy,
        rbac.v1.ClusterRole,
        rbac.v1.RoleBinding,
        scheduling.v1.PriorityClass,
    ]
    kinds = ("Cohort", "ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
    # Newer than the SDK's classes.
    newer_kinds = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    defined = {custom_type(API, kind) for kind in kinds}
    defined |= {custom_type("admissionregistration.k8s.io/v1", kind) for kind in newer_kinds}
    assert {resource_type(item) for item in local.objects()} == {
        resource_class.pulumi_type for resource_class in classes
    } | defined


def custom_type(version: str, kind: str) -> str:
    """The token that the SDK gives an object of a cluster's own definitions."""
    from pulumi_kubernetes.apiextensions import CustomResource

    tokens: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulumi.CustomResource, "__init__", lambda _self, token, *_args, **_more: tokens.append(token))
        CustomResource("any", api_version=version, kind=kind)
    return tokens[0]
