"""Network fields of the files: those that are refused, and the policies that the plan makes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.diff.changes import ChangeTopic, SpecState, diff
from tenancy.kube.objects import Object
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.charts import cilium as cilium_chart
from tenancy.planning.kubernetes.cilium import CLUSTER_POLICY
from tenancy.rules.objects import object_findings
from tenancy.spec.fields.cluster import Encryption
from tenancy.spec.loader import load, on_lab
from tenancy.verify.attacks import Scene, all_attacks
from tests.conftest import SpecFolder
from tests.network_worlds import BANK, World, adversarial

ENV, TENANT = "environment.yaml", "tenants/fraud.yaml"
REACH = "egress:\n  - {cidr: 198.51.100.0/24, port: 8443}\n"
SERVICE = "  namespaces: [monitoring]\n"
SCRAPER = f"{SERVICE}  services: {{metrics: {{namespace: monitoring, labels: {{app: prometheus}}}}}}\n"
RANGES = "  cni: vpc-cni\n  node-and-pod-cidrs: [10.64.0.0/16]\n"


def plan_of(spec: Any) -> Plan:
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def policies(plan: Plan, space: str) -> dict[str, Object]:
    namespace = next(s for t in plan.tenants for s in t.namespaces if s.name == space)
    return {o["metadata"]["name"]: o for o in namespace.isolation if "NetworkPolicy" in o["kind"]}


# What is refused when a file is read


@pytest.mark.parametrize(
    ("bad", "rule", "field"),
    [
        ("ingress: [{cidr: 169.254.169.0/24, port: 80}]", "net-05", "ingress[0].cidr"),
        ("ingress: [{cidr: 0.0.0.0/0, port: 80}]", "net-05", "ingress[0].cidr"),
        ("ingress: [{cidr: 10.64.8.0/24, port: 80}]", "net-05", "ingress[0].cidr"),
        ("ingress: [{cidr: 10.0.0.0/8, port: 80}]", "net-05", "ingress[0].cidr"),
        ("ingress: [{service: metrix, port: 80}]", "ref-01", "ingress[0].service"),
        ("ingress: [{service: metrics, cidr: 10.20.0.0/16, port: 80}]", "", "ingress[0]"),
        ("ingress: [{port: 80}]", "", "ingress[0]"),
        ("ingress: [{dns: vendor.example, port: 80}]", "", "ingress[0].dns"),
    ],
)
def test_what_comes_in_is_named_and_is_not_the_cluster_itself(spec: Any, bad: str, rule: str, field: str) -> None:
    spec.edit(ENV, SERVICE, SCRAPER)
    spec.edit(ENV, "  cni: vpc-cni\n", RANGES)
    spec.add(TENANT, f"{bad}\n")
    assert [(p.id, p.field) for p in spec.problems()] == [(rule, field)]


@pytest.mark.parametrize(
    "good", ["{cidr: 10.20.0.0/16, port: 80}", "{service: metrics, port: 80}", "{cidr: 203.0.113.0/24, port: 80}"]
)
def test_what_comes_in_may_be_the_company_or_the_platform(spec: Any, good: str) -> None:
    spec.edit(ENV, SERVICE, SCRAPER)
    spec.edit(ENV, "  cni: vpc-cni\n", RANGES)
    spec.add(TENANT, f"ingress: [{good}]\n")
    assert spec.problems() == ()


def test_no_allowed_range_contains_addresses_of_pods(spec: Any) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", RANGES)
    spec.edit(TENANT, "198.51.100.0/24", "10.64.8.0/24")
    assert [(p.id, p.field) for p in spec.problems()] == [("net-05", "egress[0].cidr")]


def test_where_pods_have_unknown_addresses_no_private_range_comes_in(spec: Any) -> None:
    spec.add(TENANT, "ingress: [{cidr: 10.20.0.0/16, port: 80}]\n")
    [problem] = spec.problems()
    assert (problem.id, problem.field) == ("net-05", "ingress[0].cidr")
    assert "cluster.node-and-pod-cidrs" in str(problem)


def test_a_service_is_of_the_platforms_namespaces(spec: Any) -> None:
    spec.edit(ENV, SERVICE, SCRAPER.replace("namespace: monitoring", "namespace: fraud-tools"))
    assert [(p.id, p.field) for p in spec.problems()] == [("ref-01", "platform.services.metrics.namespace")]


def test_encryption_is_ciliums(spec: Any) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  encryption: wireguard\n")
    assert [(p.id, p.field) for p in spec.problems()] == [("net-09", "cluster.encryption")]
    spec.edit(ENV, "  cni: vpc-cni\n", "  cni: cilium\n")
    assert spec.problems() == ()


# What is made


def test_with_nothing_written_a_namespace_has_three_policies(spec: Any) -> None:
    assert policies(plan_of(spec), "research--main").keys() == {"default-deny", "same-namespace", "dns", "egress"}
    spec.edit("tenants/research.yaml", "storage:\n  - {bucket: datasets, prefix: shared/}\n", "")
    assert policies(plan_of(spec), "research--main").keys() == {"default-deny", "same-namespace", "dns"}


def test_a_namespace_that_is_closed_inside_has_neither_itself_nor_siblings(spec: Any) -> None:
    spec.add(TENANT, "allow-cross-namespace: true\n")
    spec.edit(TENANT, "{name: train, purpose: nightly retraining}", "{name: train, allow-intra-namespace: false}")
    plan = plan_of(spec)
    assert not {"same-namespace", "allow-cross-namespace"} & policies(plan, "fraud--train").keys()
    assert {"same-namespace", "allow-cross-namespace"} <= policies(plan, "fraud--serve").keys()


def test_what_a_tenants_own_policies_may_open_stands_on_its_namespace(spec: Any) -> None:
    spec.add(TENANT, "allow-cross-namespace: true\ningress: [{cidr: 203.0.113.0/24, port: 53, protocol: UDP}]\n")
    annotations_by_namespace = {
        s.name: s.namespace["metadata"]["annotations"] for t in plan_of(spec).tenants for s in t.namespaces
    }
    assert annotations_by_namespace["fraud--train"][vocabulary.ALLOWED_EGRESS] == "namespaces,198.51.100.0/24:8443/TCP"
    assert annotations_by_namespace["fraud--train"][vocabulary.ALLOWED_INGRESS] == "namespaces,203.0.113.0/24:53/UDP"
    assert annotations_by_namespace["research--main"][vocabulary.ALLOWED_EGRESS] == "", "nothing is open"


def test_cluster_policies_do_not_grow_with_what_a_tenant_has(tmp_path: Any) -> None:
    world = World(adversarial(tmp_path / "small", "cilium"))
    assert [o["metadata"]["name"] for o in world.plan.platform.cluster_policies] == [CLUSTER_POLICY]
    assert {t.name: [o["metadata"]["name"] for o in t.cluster_policies] for t in world.plan.tenants} == {
        t.name: [f"{CLUSTER_POLICY}--{t.name}"] for t in world.plan.tenants
    }


def test_without_cilium_nothing_of_its_is_made(tmp_path: Any) -> None:
    plan = World(adversarial(tmp_path / "small", "vpc-cni")).plan
    assert [o["kind"] for o in plan.objects() if o["apiVersion"].startswith("cilium.io")] == []


def test_selectors_of_cluster_policies_name_the_namespace(tmp_path: Any) -> None:
    plan = World(adversarial(tmp_path / "small", "cilium")).plan
    fences = [*plan.platform.cluster_policies, *(o for t in plan.tenants for o in t.cluster_policies)]
    selectors = [s for o in fences for spec in o.get("specs", [o.get("spec")]) for s in _selectors(spec)]
    assert selectors
    for selector in selectors:
        keys = {e["key"] for e in selector["matchExpressions"]}
        assert any("namespace" in key for key in keys), "a tenant may write any label onto a pod"


def _selectors(spec: Object) -> list[Object]:
    peers = [
        selector
        for direction, side in (("ingressDeny", "fromEndpoints"), ("egressDeny", "toEndpoints"))
        for rule in spec.get(direction, [])
        for selector in rule.get(side, [])
    ]
    return [spec["endpointSelector"], *peers]


def test_no_name_is_a_bare_star(tmp_path: Any) -> None:
    for world in (World(adversarial(tmp_path / "small", "cilium")), World(load(BANK))):
        texts = [
            text
            for item in world.policies
            for rule in item.get("spec", {}).get("egress", [])
            for names in (
                rule.get("toFQDNs", []),
                *(p.get("rules", {}).get("dns", []) for p in rule.get("toPorts", [])),
            )
            for name in names
            for text in name.values()
        ]
        assert texts
        assert [t for t in texts if t in {"*", "**"} or t.endswith("*")] == []


def test_in_a_lab_nothing_of_ciliums_is_made() -> None:
    loaded = on_lab(load(BANK))
    plan = make_plan(loaded, loaded.day)
    assert [o["kind"] for o in plan.objects() if o["apiVersion"].startswith("cilium.io")] == []
    assert {"default-deny", "dns"} <= policies(plan, "pricing--train").keys()


def test_encryption_reaches_the_chart() -> None:
    loaded = load(BANK)
    cluster = loaded.environment.cluster.model_copy(update={"encryption": Encryption.WIREGUARD})
    plan = planning.plan(loaded.environment.model_copy(update={"cluster": cluster}), loaded.tenants)
    assert plan.platform.services is not None
    [chart] = [chart for chart in plan.platform.services.charts if chart.name == "cilium"]
    assert chart.values == cilium_chart(wireguard=True).values


def test_the_policy_pack_takes_the_plans_policies(tmp_path: Any) -> None:
    for cni in ("vpc-cni", "cilium"):
        world = World(adversarial(tmp_path / cni / "small", cni))
        findings = [f for item in world.plan.objects() for f in object_findings(item)]
        assert [f for f in findings if f.rule.startswith(("net-", "rbac-"))] == []


def test_who_runs_work_adds_policies_and_never_removes_all_at_once(spec: Any) -> None:
    rights = {
        role["metadata"]["name"].removeprefix("tenancy-"): {*rule["verbs"]} - {"get", "list", "watch"}
        for role in plan_of(spec).platform.roles
        for rule in role["rules"]
        if rule["resources"] == ["networkpolicies"]
    }
    write_verbs = {"create", "update", "patch", "delete"}
    assert rights == {"viewer": set(), "operator": set(), "developer": write_verbs, "owner": write_verbs}


# Who else knows


def test_a_reviewer_reads_what_comes_in_and_what_opens_inside(spec: Any, tmp_path: Any) -> None:
    spec.add(TENANT, "allow-cross-namespace: true\ningress: [{cidr: 203.0.113.0/24, port: 53, protocol: UDP}]\n")
    before = SpecFolder(tmp_path / "before" / "small")
    changes = [
        c for c in diff(SpecState("a", before.load()), SpecState("b", spec.load())) if c.topic is ChangeTopic.NETWORK
    ]
    assert {(c.tenant, c.of, c.what, c.before, c.after) for c in changes} == {
        ("fraud", "203.0.113.0/24", "pods, port 53/UDP", None, "connect"),
        ("fraud", "pods of train", "pods of serve", None, "connect"),
        ("fraud", "pods of serve", "pods of train", None, "connect"),
    }


def test_every_tenant_is_attacked_by_policies_of_its_own(tmp_path: Any) -> None:
    loaded = adversarial(tmp_path / "small", "vpc-cni")
    attacks = [a for a in all_attacks(Scene(loaded.environment, loaded.tenants)) if a.rule in {"net-02", "net-10"}]
    assert {a.id.partition("@")[2].partition("--")[0] for a in attacks} == {t.tenant for t in loaded.tenants}
