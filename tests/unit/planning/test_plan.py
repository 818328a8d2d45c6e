"""Properties of every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.gpus import DEVICE_VARIABLES
from tenancy.planning import Plan, digest, make_plan
from tenancy.planning.common.pools import fake_nodes, node_taints, tenant_allocatable
from tenancy.planning.common.priorities import DEFAULT_CLASS
from tenancy.planning.guards import refusal
from tenancy.planning.kubernetes import quotas
from tenancy.planning.kubernetes.access import GPU_USER, PERSONAS
from tenancy.planning.kubernetes.quotas import CLAIM_COUNTS
from tenancy.rules.catalogue import RULES
from tenancy.rules.values import gpu_keys, unenforced_quota_keys
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.fields.tiers import OWN_QUOTA_KEYS
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder, in_days, nonempty, unreserved


def kinds(objects: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The objects of a kind. There is one at least: a loop over none would show nothing."""
    objects_of_kind = [item for item in objects if item["kind"] == kind]
    assert objects_of_kind, f"no {kind} in the plan"
    return objects_of_kind


def is_made(objects: Iterable[dict[str, Any]], kind: str) -> bool:
    return any(item["kind"] == kind for item in objects)


READ = {"get", "list", "watch"}
LIMITING = {"resourcequotas", "limitranges", "rolebindings", "roles"}


def _quotas(plan: Plan) -> list[Any]:
    """Quotas of whole namespaces, without those of priority classes."""
    return [q for q in kinds(plan.objects(), "ResourceQuota") if q["metadata"]["name"] == quotas.NAME]


def _quota(plan: Plan, namespace: str) -> dict[str, str]:
    quotas = [q for q in _quotas(plan) if q["metadata"]["namespace"] == namespace]
    assert len(quotas) == 1
    return quotas[0]["spec"]["hard"]


# Quotas and limits


def test_no_limit_range_names_a_gpu(plan: Plan) -> None:
    for item in nonempty(kinds(plan.objects(), "LimitRange")):
        for limit in nonempty(item["spec"]["limits"]):
            assert gpu_keys({key for bounds in limit.values() if isinstance(bounds, dict) for key in bounds}) == []


def _largest(loaded: Loaded, namespace: str) -> dict[str, str]:
    plan = make_plan(loaded, loaded.day)
    (item,) = [x for x in kinds(plan.objects(), "LimitRange") if x["metadata"]["namespace"] == namespace]
    return item["spec"]["limits"][0]["max"]


def test_a_container_is_no_larger_than_the_largest_node_of_its_pools(spec: SpecFolder) -> None:
    namespace = "research--main"
    assert _largest(spec.load(), namespace) == {"cpu": "32", "memory": "128Gi"}, "the tier's: a node has more"
    spec.edit("environment.yaml", "      max: {cpu: 32, memory: 128Gi}", "      max: {cpu: 200, memory: 2Ti}")
    loaded = spec.load()
    node_room = tenant_allocatable(loaded.environment, "train")
    assert _largest(loaded, namespace) == {"cpu": f"{node_room.cpu // 1000}", "memory": f"{node_room.memory // 1024}Gi"}


def test_the_product_of_a_namespace_is_its_own_or_the_tenants(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "namespaces:\n", "product: cards\nnamespaces:\n")
    spec.edit("tenants/fraud.yaml", "{name: serve", "{name: serve, product: scoring")
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    objects_with_product = {
        (item["kind"], item["metadata"]["labels"]["product"])
        for item in plan.objects()
        if item["metadata"].get("namespace", item["metadata"]["name"]) == "fraud--serve"
    }
    assert ("Namespace", "scoring") in objects_with_product
    assert {product for _, product in objects_with_product} == {"scoring"}
    (train,) = [x for x in kinds(plan.objects(), "Namespace") if x["metadata"]["name"] == "fraud--train"]
    assert train["metadata"]["labels"]["product"] == "cards"


def test_a_tenants_own_labels_are_on_its_objects_and_those_of_a_namespace_replace_them(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  departments:", "  label-keys: [project, bank.example/data]\n  departments:")
    spec.edit(
        "tenants/fraud.yaml", "tier: batch\n", "tier: batch\nlabels: {project: cards, bank.example/data: secret}\n"
    )
    spec.edit("tenants/fraud.yaml", "{name: serve", "{name: serve, labels: {project: scoring}")
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    projects = {
        item["metadata"]["name"]: item["metadata"]["labels"].get("project")
        for item in kinds(plan.objects(), "Namespace")
        if "--" in item["metadata"]["name"]
    }
    assert projects == {"fraud--train": "cards", "fraud--serve": "scoring", "research--main": None}
    (serve,) = [x for x in kinds(plan.objects(), "Namespace") if x["metadata"]["name"] == "fraud--serve"]
    assert serve["metadata"]["annotations"][vocabulary.OWN_LABELS] == "bank.example/data,project"
    inside = [x for x in plan.objects() if x["metadata"].get("namespace") == "fraud--serve"]
    assert inside
    assert {x["metadata"]["labels"]["bank.example/data"] for x in inside} == {"secret"}


def test_a_label_that_the_environment_does_not_allow_is_refused(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "tier: batch\n", "tier: batch\nlabels: {project: cards}\n")
    problem = spec.problem()
    assert (problem.field, problem.id) == ("labels.project", "ref-01")
    assert "organisation.label-keys" in problem.change


def test_every_quota_key_is_one_that_the_api_server_counts(plan: Plan) -> None:
    assert (
        unenforced_quota_keys(
            set(chain.from_iterable(q["spec"]["hard"] for q in kinds(plan.objects(), "ResourceQuota")))
        )
        == []
    )


def test_every_resource_that_some_pool_yields_is_in_every_quota(plan: Plan, environment: Environment) -> None:
    offered = {f"requests.{r}" for r in (*environment.resources, *gpus.ALWAYS_CAPPED)}
    for item in nonempty(_quotas(plan)):
        assert offered <= set(item["spec"]["hard"]), "granted or zero, never absent: absent is unlimited"


def test_what_a_tenant_was_not_granted_is_zero(plan: Plan) -> None:
    assert _quota(plan, "fraud--train")["requests.nvidia.com/gpu.shared"] == "0"


def test_a_namespace_holds_its_claim_and_the_first_namespace_the_rest(plan: Plan) -> None:
    assert _quota(plan, "fraud--serve")["requests.nvidia.com/mig-1g.5gb"] == "14"
    assert _quota(plan, "fraud--train")["requests.nvidia.com/mig-1g.5gb"] == "0"
    assert _quota(plan, "fraud--train")["requests.nvidia.com/gpu"] == "32", "16 of its own and 16 borrowed"
    assert _quota(plan, "fraud--serve")["requests.nvidia.com/gpu"] == "32", (
        "what its queue might give it, should it fail"
    )


def test_without_a_queue_a_namespace_holds_what_it_is_promised_and_no_more(spec: Any) -> None:
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    assert _quota(plan, "fraud--train")["requests.nvidia.com/gpu"] == "16"
    assert _quota(plan, "fraud--serve")["requests.nvidia.com/gpu"] == "0"


def test_the_namespaces_together_have_the_guarantee(loaded: Loaded) -> None:
    for tenant in nonempty(loaded.tenants):
        guaranteed: Counter[str] = Counter()
        for namespace in tenant.namespaces:
            guaranteed.update(tenant.guaranteed_in(namespace))
        assert guaranteed == Counter({flavor: share.guaranteed for flavor, share in tenant.gpus.items()})


def test_a_quota_of_a_namespace_lowers_only_what_it_says(plan: Plan) -> None:
    quota = _quota(plan, "fraud--serve")
    assert (quota["requests.cpu"], quota["limits.cpu"], quota["pods"]) == ("16", "32", "20")
    assert (quota["requests.memory"], quota["count/ingresses.networking.k8s.io"]) == ("512Gi", "5")


def test_what_comes_with_deployments_is_counted_by_them(plan: Plan) -> None:
    quota = _quota(plan, "fraud--train")
    assert quota["count/deployments.apps"] == quota["count/statefulsets.apps"] == "20"
    assert quota["count/poddisruptionbudgets.policy"] == quota["count/horizontalpodautoscalers.autoscaling"] == "40"
    assert quota["count/replicasets.apps"] == "240", "ten old ones are kept of each, beside the last and the next"


def test_a_limit_that_the_plan_writes_is_none_of_the_further_keys(plan: Plan) -> None:
    planned_keys = {key for key in _quota(plan, "fraud--train") if not key.startswith("requests.") or "/" not in key}
    further = {"count/ingresses.networking.k8s.io"}
    assert planned_keys - further - {*CLAIM_COUNTS} <= OWN_QUOTA_KEYS, "or the spec file's number would be lost"


def test_no_tenant_opens_ports_of_nodes_or_load_balancers(plan: Plan) -> None:
    for item in nonempty(_quotas(plan)):
        assert item["spec"]["hard"]["services.loadbalancers"] == item["spec"]["hard"]["services.nodeports"] == "0"


def test_numbers_are_spelt_as_the_api_server_spells_them(spec: Any) -> None:
    spec.edit("environment.yaml", "pods: 100", "pods: 1000")
    spec.edit("tenants/fraud.yaml", ", pods: 20", "")
    loaded = spec.load()
    assert _quota(make_plan(loaded, loaded.day), "fraud--serve")["pods"] == "1k"


# Roles


def _rules(plan: Plan) -> list[tuple[str, dict[str, list[str]]]]:
    role_rules = [(role["metadata"]["name"], rule) for role in plan.platform.roles for rule in role["rules"]]
    assert role_rules
    return role_rules


def test_no_role_has_a_wildcard(plan: Plan) -> None:
    for name, rule in nonempty(_rules(plan)):
        assert not any("*" in text for part in rule.values() for text in part), name


def test_what_limits_a_tenant_is_only_read(plan: Plan) -> None:
    for name, rule in nonempty(_rules(plan)):
        if LIMITING & set(rule["resources"]):
            assert set(rule["verbs"]) <= READ, f"{name} changes {rule['resources']}"


@pytest.mark.parametrize("verb", ["escalate", "bind", "impersonate", "approve", "sign", "*"])
def test_no_role_has_a_verb_that_is_every_other_right(plan: Plan, verb: str) -> None:
    assert verb not in {v for _, rule in _rules(plan) for v in rule["verbs"]}


@pytest.mark.parametrize(
    "resource",
    [
        "pods/status",
        "nodes",
        "namespaces",
        "serviceaccounts/token",
        "persistentvolumes",
        "pods/eviction",
        "events/status",
        "nodes/proxy",
    ],
)
def test_no_role_reaches_beyond_its_namespaces_workloads(plan: Plan, resource: str) -> None:
    assert resource not in {r for _, rule in _rules(plan) for r in rule["resources"]}


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_only_looks_or_operates_reads_no_secret(plan: Plan, role: str) -> None:
    assert "secrets" not in {r for name, rule in _rules(plan) if name == f"tenancy-{role}" for r in rule["resources"]}


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_only_looks_or_operates_creates_no_workload(plan: Plan, role: str) -> None:
    workloads = {"pods", "jobs", "cronjobs", "deployments", "statefulsets"}
    for name, rule in nonempty(_rules(plan)):
        if name == f"tenancy-{role}" and workloads & set(rule["resources"]):
            assert "create" not in rule["verbs"]


def test_there_is_a_role_for_each_persona(plan: Plan) -> None:
    assert {r["metadata"]["name"] for r in plan.platform.roles} == {f"tenancy-{role}" for role in (*PERSONAS, GPU_USER)}


def test_tenants_get_rights_in_namespaces_only(plan: Plan) -> None:
    assert not is_made(plan.objects(), "ClusterRoleBinding")


def test_a_binding_is_in_its_tenants_namespace_and_to_our_roles(plan: Plan) -> None:
    for tenant in nonempty(plan.tenants):
        for binding in nonempty(kinds(tenant.objects(), "RoleBinding")):
            assert binding["metadata"]["namespace"].startswith(tenant.name + vocabulary.SEPARATOR)
            assert binding["roleRef"]["name"] in {r["metadata"]["name"] for r in plan.platform.roles}


def test_a_person_for_some_namespaces_is_bound_there_alone(plan: Plan) -> None:
    where = {
        binding["metadata"]["namespace"]
        for binding in kinds(plan.objects(), "RoleBinding")
        if any(subject["name"] == "fraud-leads" for subject in binding["subjects"])
    }
    assert where == {"fraud--train"}


# Labels and names


def test_every_tenant_object_carries_the_whole_vocabulary(plan: Plan) -> None:
    expected_labels = {*vocabulary.COST_LABELS, vocabulary.TENANT, vocabulary.ENVIRONMENT, vocabulary.MANAGED_BY}
    for tenant in nonempty(plan.tenants):
        for item in nonempty(tenant.objects()):
            labels = item["metadata"]["labels"]
            assert expected_labels <= set(labels), item["kind"]
            assert labels[vocabulary.TENANT] == tenant.name


def test_every_label_value_is_one_that_kubernetes_takes(plan: Plan) -> None:
    for item in nonempty(plan.objects()):
        for value in nonempty(item["metadata"]["labels"].values()):
            assert len(value) <= vocabulary.LABEL_LENGTH
            assert value.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_no_two_objects_are_one(plan: Plan) -> None:
    object_counts = Counter(
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in plan.objects()
    )
    assert max(object_counts.values()) == 1


def test_every_namespace_has_a_quota_a_limit_range_and_a_default_deny(plan: Plan) -> None:
    for tenant in nonempty(plan.tenants):
        for namespace in nonempty(tenant.namespaces):
            isolation_objects = {(o["kind"], o["metadata"]["name"]) for o in namespace.isolation}
            assert {
                ("ResourceQuota", "tenant"),
                ("LimitRange", "tenant"),
                ("NetworkPolicy", "default-deny"),
            } <= isolation_objects


def test_every_namespace_enforces_restricted_at_a_pinned_version(plan: Plan) -> None:
    for item in nonempty(kinds(chain.from_iterable(t.objects() for t in plan.tenants), "Namespace")):
        labels = item["metadata"]["labels"]
        assert (labels[vocabulary.PSA_ENFORCE], labels[vocabulary.PSA_VERSION]) == ("restricted", "v1.36")


# Network


def test_the_default_deny_denies_both_ways(plan: Plan) -> None:
    for item in nonempty(kinds(plan.objects(), "NetworkPolicy")):
        if item["metadata"]["name"] == "default-deny":
            assert item["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_only_dns_leads_to_another_namespace(plan: Plan) -> None:
    for item in nonempty(kinds(plan.objects(), "NetworkPolicy")):
        peers = [
            p
            for way in ("ingress", "egress")
            for rule in item["spec"].get(way, [])
            for p in rule.get("from", rule.get("to"))
        ]
        if item["metadata"]["name"] != "dns":
            assert not any("namespaceSelector" in peer for peer in peers), item["metadata"]["name"]


def test_only_declared_ranges_and_ports_lead_out(plan: Plan) -> None:
    out = [
        (peer["ipBlock"]["cidr"], tuple(port["port"] for port in rule["ports"]))
        for item in kinds(plan.objects(), "NetworkPolicy")
        for rule in item["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    declared, agent = ("198.51.100.0/24", (8443,)), (vocabulary.IDENTITY_AGENT, (80,))
    assert out.count(declared) == 2, "once for each part of fraud"
    assert set(out) == {declared, agent}, "and the way to credentials, where there are grants"


# Guards


def test_a_label_that_is_charged_by_is_one_of_the_namespace(plan: Plan) -> None:
    for item in nonempty(kinds(chain.from_iterable(t.objects() for t in plan.tenants), "Namespace")):
        assert {*vocabulary.CHARGED_LABELS} <= set(item["metadata"]["labels"]), "else no object may carry it at all"


def test_namespaces_are_guarded_against_removal_by_an_own_guard(plan: Plan) -> None:
    operations_by_guard = {
        guard["metadata"]["name"]: rule["operations"]
        for guard in kinds(plan.platform.guards, "ValidatingAdmissionPolicy")
        for rule in guard["spec"]["matchConstraints"]["resourceRules"]
        if rule["resources"][0] == "namespaces"
    }
    assert operations_by_guard == {"tenancy-namespaces": ["CREATE", "UPDATE"], "tenancy-removals": ["DELETE"]}


def test_the_number_of_guards_does_not_grow_with_tenants(environment: Environment, loaded: Loaded) -> None:
    unreserved_environment = unreserved(environment)
    none, all_of_them = (planning.plan(unreserved_environment, tenants).platform for tenants in ((), loaded.tenants))
    # Kueue's memory is of the tenants' work.
    tenant_parts: dict[str, Any] = {"queueing": None, "queue_chart": None, "exporters": {}}
    assert replace(none, **tenant_parts) == replace(all_of_them, **tenant_parts)
    names = [[(o["kind"], o["metadata"]["name"]) for o in platform.queues] for platform in (none, all_of_them)]
    assert names[0] == names[1]


def test_every_guard_fails_closed_and_denies(plan: Plan) -> None:
    for policy in nonempty(kinds(plan.platform.guards, "ValidatingAdmissionPolicy")):
        assert policy["spec"]["failurePolicy"] == "Fail"
    for binding in nonempty(kinds(plan.platform.guards, "ValidatingAdmissionPolicyBinding")):
        assert "Deny" in binding["spec"]["validationActions"]


def test_every_guard_is_bound(plan: Plan) -> None:
    policies = {g["metadata"]["name"] for g in kinds(plan.platform.guards, "ValidatingAdmissionPolicy")}
    bound = [g["spec"]["policyName"] for g in kinds(plan.platform.guards, "ValidatingAdmissionPolicyBinding")]
    assert sorted(bound) == sorted(policies)


def test_every_refusal_names_a_rule_of_the_catalogue(plan: Plan) -> None:
    for guard in nonempty(kinds(plan.platform.guards, "ValidatingAdmissionPolicy")):
        for validation in nonempty(guard["spec"]["validations"]):
            assert validation["message"].partition(":")[0] in RULES


def test_a_refusal_says_what_to_change_and_where_to_read() -> None:
    text = refusal("gpu-01", "docs/rules.md")
    assert text.startswith("gpu-01: ")
    assert RULES["gpu-01"].fix in text
    assert text.endswith("docs/rules.md#gpu-01")


def test_no_text_of_a_tenant_enters_a_guard(environment: Environment, loaded: Loaded) -> None:
    text = str(planning.plan(environment, loaded.tenants).platform.guards)
    assert not any(word in text for word in ("fraud", "research", "bank.example"))


def test_no_guard_judges_requests_in_system_namespaces_alone(plan: Plan) -> None:
    bindings = kinds(plan.platform.guards, "ValidatingAdmissionPolicyBinding")
    assert len(bindings) == len(kinds(plan.platform.guards, "ValidatingAdmissionPolicy"))
    for binding in bindings:
        (term,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert (term["key"], term["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert set(term["values"]) == {*vocabulary.SYSTEM_NAMESPACES, "monitoring", "kueue-system"}


@pytest.fixture
def outside(spec: Any) -> Plan:
    """With namespaces of no tenant: one left to its owners, and those of a suite."""
    suite = f"{{name: 'e2e-*', until: {in_days(9)}, reason: conformance after an upgrade}}"
    spec.edit(
        "environment.yaml",
        "  group: gpu-platform-team\n",
        f"  group: gpu-platform-team\n  unmanaged-namespaces: [cert-manager]\n  temporary-namespaces: [{suite}]\n",
    )
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def test_an_unmanaged_namespace_is_judged_by_what_reaches_tenants_alone(outside: Plan) -> None:
    unmanaged_guards = set()
    for binding in kinds(outside.platform.guards, "ValidatingAdmissionPolicyBinding"):
        (term,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        has_cert_manager = "cert-manager" in term["values"]
        if has_cert_manager is (term["operator"] == "In"):
            unmanaged_guards.add(binding["metadata"]["name"])
    assert unmanaged_guards == {
        *("tenancy-namespaces", "tenancy-nodes", "tenancy-queues", "tenancy-removals", "tenancy-unmanaged"),
    }


def test_temporary_namespaces_are_left_out_of_every_guard_but_those_on_namespaces(outside: Plan) -> None:
    temporary_conditions = {}
    for policy in kinds(outside.platform.guards, "ValidatingAdmissionPolicy"):
        conditions = {c["name"]: c["expression"] for c in policy["spec"]["matchConditions"]}
        temporary_conditions[policy["metadata"]["name"]] = conditions.get("temporary")
    judged = {name for name, condition in temporary_conditions.items() if condition is None}
    assert judged == {"tenancy-namespaces", "tenancy-removals", "tenancy-unmanaged"}
    (condition,) = {condition for condition in temporary_conditions.values() if condition}
    # A tenant called e2e has namespaces that begin so.
    assert condition == """!(!request.namespace.contains("--") && (request.namespace.startsWith("e2e-")))"""


@pytest.mark.parametrize(
    ("namespace", "decided"),
    [
        *(("cert-manager", True), ("kube-system", True), ("e2e-1", True)),
        *(("e2e--x", False), ("e2e-a--x", False), ("e2", False), ("ml-fraud", False)),
    ],
)
def test_what_is_decided_is_what_guards_leave_alone(outside: Plan, namespace: str, decided: bool) -> None:
    assert outside.admission.is_decided(namespace) is decided


def test_the_marker_changes_with_the_guards(loaded: Loaded, spec: Any) -> None:
    before = planning.plan(unreserved(loaded.environment), ()).platform.marker["data"]["digest"]
    spec.edit("environment.yaml", "gpu-platform-team", "other-team")
    assert planning.plan(unreserved(spec.load().environment), ()).platform.marker["data"]["digest"] != before


def test_the_toolkits_variables_are_guarded() -> None:
    assert "NVIDIA_VISIBLE_DEVICES" in DEVICE_VARIABLES


# What the guards read


def _annotations(plan: Plan, name: str) -> dict[str, str]:
    (namespace,) = [o for o in kinds(plan.objects(), "Namespace") if o["metadata"]["name"] == name]
    return namespace["metadata"]["annotations"]


def test_a_namespace_may_use_the_pools_of_its_own_tier_alone(plan: Plan) -> None:
    assert _annotations(plan, "fraud--serve")[vocabulary.ALLOWED_POOLS] == "serve"
    assert _annotations(plan, "fraud--train")[vocabulary.ALLOWED_POOLS] == ""


def test_a_namespace_may_use_the_priorities_of_its_tier_and_below(plan: Plan) -> None:
    assert _annotations(plan, "fraud--train")[vocabulary.ALLOWED_PRIORITIES] == f"{DEFAULT_CLASS},tenancy-tier-batch"


def test_a_tenants_own_registry_is_its_own(plan: Plan) -> None:
    assert "registry.bank.example/teams/fraud/" in _annotations(plan, "fraud--train")[vocabulary.ALLOWED_REGISTRIES]
    assert "teams/fraud/" not in _annotations(plan, "research--main")[vocabulary.ALLOWED_REGISTRIES]


def test_only_granted_resources_are_allowed(plan: Plan) -> None:
    assert _annotations(plan, "research--main")[vocabulary.ALLOWED_RESOURCES] == "nvidia.com/gpu,nvidia.com/gpu.shared"


def test_a_waiver_in_force_stands_on_its_part_alone(spec: Any) -> None:
    spec.add(
        "tenants/fraud.yaml",
        "exceptions:\n"
        "  - {rule: ns-03, namespace: train, reason: needs a vendor image, owner: a@b.example, "
        f"until: {in_days(9)}}}\n",
    )
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    assert _annotations(plan, "fraud--train")[vocabulary.EXCEPTIONS] == f"ns-03={in_days(9)}"
    assert vocabulary.EXCEPTIONS not in _annotations(plan, "fraud--serve")


def test_adoption_is_asked_for_on_the_namespaces_alone(spec: Any) -> None:
    spec.add("tenants/fraud.yaml", "adopt: true\n")
    loaded = spec.load()
    forced = [o["kind"] for o in make_plan(loaded, loaded.day).objects() if "pulumi.com/patchForce" in str(o)]
    assert set(forced) == {"Namespace"}


# Pools and priorities


def test_every_gpu_node_keeps_pods_without_a_gpu_off(environment: Environment) -> None:
    for name, pool in nonempty(environment.pools.items()):
        assert node_taints(name, pool)[0]["key"] == gpus.GPU_TAINT


def test_a_pool_for_chosen_tenants_has_a_taint_of_its_own(environment: Environment) -> None:
    tainted = {name for name, pool in environment.pools.items() if len(node_taints(name, pool)) == 2}
    assert tainted == {"serve", "notebooks"}


def test_the_labs_nodes_yield_what_the_pools_promise(environment: Environment) -> None:
    total: Counter[str] = Counter()
    for node in fake_nodes(environment):
        total.update({k: int(v) for k, v in node["status"]["allocatable"].items() if k.startswith("nvidia.com/")})
    assert total == {"nvidia.com/gpu": 32, "nvidia.com/mig-1g.5gb": 56, "nvidia.com/gpu.shared": 16}


def test_no_priority_class_preempts(plan: Plan) -> None:
    assert {p["preemptionPolicy"] for p in plan.platform.priorities} == {"Never"}


def test_the_default_class_is_below_every_tier(plan: Plan) -> None:
    values = {p["metadata"]["name"]: p["value"] for p in plan.platform.priorities}
    default = values.pop(DEFAULT_CLASS)
    assert default < min(values.values())
    assert [p["metadata"]["name"] for p in plan.platform.priorities if p["globalDefault"]] == [DEFAULT_CLASS]


# The plan as a whole


def test_a_plan_has_one_tenant_by_name_or_none(plan: Plan) -> None:
    assert plan.tenant("fraud").name == "fraud"
    with pytest.raises(KeyError):
        plan.tenant("frau")


def test_a_digest_sees_any_change_and_no_order_of_keys(plan: Plan) -> None:
    item = plan.platform.namespace
    turned = dict(reversed(list(item.items())))
    assert digest([item]) == digest([turned])
    assert digest([item]) != digest([{**item, "kind": "Other"}])


def test_a_plan_is_the_same_twice(environment: Environment, fraud: Tenant, research: Tenant) -> None:
    first_digest, second_digest = (digest(planning.plan(environment, (fraud, research)).objects()) for _ in range(2))
    assert first_digest == second_digest


def test_planning_leaves_the_spec_as_it_was(environment: Environment, fraud: Tenant) -> None:
    environment = unreserved(environment)
    before = (environment.model_dump_json(), fraud.model_dump_json())
    plan = planning.plan(environment, (fraud,))
    next(iter(kinds(plan.objects(), "LimitRange")))["spec"]["limits"][0]["max"]["cpu"] = "1"
    assert (environment.model_dump_json(), fraud.model_dump_json()) == before


def test_a_plan_is_frozen(plan: Plan) -> None:
    with pytest.raises(AttributeError):
        plan.environment = "other"  # type: ignore[misc]
    assert replace(plan, environment="other").environment == "other"
