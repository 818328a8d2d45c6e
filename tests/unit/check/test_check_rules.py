"""For every rule on plain manifests what breaks it, and its twin that differs in one field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_cases import (
    ALONE,
    CASES,
    FLAVORS,
    G6,
    GPU,
    LABELS,
    PREVIEW_ONLY_CASES,
    QUEUED,
    SHARED_GPU,
    TOGETHER,
    daemon_set,
    flavor,
    home,
    node,
    policy,
    policy_binding,
    queue,
    share,
)
from pack_cases import GPU_TAINT, Case, kueue, node_pool, with_field

from tenancy.catalog import vocabulary
from tenancy.check.guard_rules import guard_findings
from tenancy.kube.objects import UNKNOWN
from tenancy.planning import make_plan
from tenancy.rules import cross_object, manifest_rules
from tenancy.rules.faces import with_face
from tenancy.rules.findings import Finding
from tenancy.rules.model import Face
from tenancy.spec.loader import load
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]


def findings_of(items: tuple[Object, ...]) -> list[Finding]:
    alone = (f for item in items for f in manifest_rules.object_findings(item))
    return [*alone, *guard_findings(items)[0], *(f for f in cross_object.findings_together(items) if f.rule != "ns-04")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_its_twin_passes(case: Case) -> None:
    assert {(f.rule, f.object) for f in findings_of(case.broken)} == {(case.rule, case.finding)}
    assert findings_of(case.mended) == []


def test_every_rule_has_a_case_that_breaks_it() -> None:
    assert {case.rule for case in (*ALONE, *PREVIEW_ONLY_CASES, *TOGETHER)} <= set(with_face(Face.PREVIEW))


@pytest.mark.parametrize("kind", sorted({*manifest_rules.CHECKS, "Node", "NodePool", "Release", "ServiceAccount"}))
@pytest.mark.parametrize(
    "body", [{}, {"metadata": None, "spec": None}, {"metadata": {"labels": {vocabulary.TENANT: "a"}}, "spec": {}}]
)
def test_no_kind_stumbles_over_what_is_not_there(kind: str, body: Object) -> None:
    assert findings_of(({**body, "kind": kind},)) == []


def test_a_limit_of_a_pool_that_others_may_add_to_is_no_end() -> None:
    """A folder without nodes: managed groups may be elsewhere."""
    pools = with_field(node_pool("a", G6, [GPU_TAINT]), ("spec", "limits"), {GPU: "8"})
    labelled = with_field(pools, ("spec", "template", "metadata", "labels"), LABELS)
    assert findings_of((*QUEUED, *FLAVORS, labelled, share("acme", amount="9"))) == []


def test_nodes_of_a_pool_are_inside_of_its_limit() -> None:
    pools = with_field(node_pool("a", G6, [GPU_TAINT]), ("spec", "limits"), {GPU: "8"})
    pool_node = node("n", {"karpenter.sh/nodepool": "a"}, "8", [GPU_TAINT])
    items = (*QUEUED, flavor("a100", {"karpenter.sh/nodepool": "a"}), pools, pool_node)
    assert [f.rule for f in findings_of((*items, share("acme", amount="9")))] == ["kueue-16"]
    assert findings_of((*items, share("acme", amount="8"))) == []


def test_work_that_must_name_a_queue_needs_no_default() -> None:
    items = (share("acme"), *home("acme"), queue("acme", "other"))
    demanding = with_field(
        policy("named"), ("spec", "validations"), [{"expression": "'kueue.x-k8s.io/queue-name' in x"}]
    )
    assert [f.rule for f in findings_of(items)] == ["kueue-20"]
    assert findings_of((*items, demanding, policy_binding("named", "named"))) == []
    assert findings_of((*items, kueue("k"))) == []


def test_two_shared_pools_may_be_two_tenants() -> None:
    def on(name: str, pool: str) -> tuple[Object, ...]:
        space, *home_resources = home(name, SHARED_GPU)
        return (with_field(space, ("metadata", "annotations"), {vocabulary.ALLOWED_POOLS: pool}), *home_resources)

    assert findings_of((*on("acme", "a"), *on("rival", "b"))) == []
    assert [f.rule for f in findings_of((*on("acme", "a,c"), *on("rival", "b,c")))] == ["pool-02"]


def test_a_daemon_set_that_waits_for_a_label_of_features_may_run_on_a_pool() -> None:
    waits = daemon_set(nodeSelector={"feature.node.kubernetes.io/pci-10de.present": "true"})
    assert [f.rule for f in findings_of((node_pool("a", G6, [GPU_TAINT]), waits))] == ["node-06"]
    assert findings_of((node_pool("a", G6, [GPU_TAINT]), daemon_set(nodeSelector={"disk": "ssd"}))) == []


def test_a_tenant_of_a_cluster_without_gpus_needs_no_quota_of_them() -> None:
    quota = with_field(home("acme")[1], ("spec", "hard"), {"pods": "1"})
    space, _, *other_resources = home("acme")
    assert findings_of((space, quota, *other_resources)) == []


# The product's own plan, one wall at a time


def mutants_of(item: Object) -> Iterator[tuple[str, Object | None]]:
    """Removed or weakened objects, each with the rule that has to report it."""
    # A queue called default may go: the guards demand a queue of all work, which is as good.
    kind, name = item["kind"], item["metadata"]["name"]
    if kind in {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}:
        yield "guard-02", None
    if kind == "LocalQueue":
        yield "kueue-17", with_field(item, ("spec", "clusterQueue"), "nowhere")
        yield "kueue-15", with_field(item, ("apiVersion",), "kueue.x-k8s.io/v1beta1")
    if kind == "ClusterQueue":
        yield "kueue-17", None
        yield "kueue-22", with_field(item, ("spec", "namespaceSelector", "matchLabels", vocabulary.TENANT), "missing")
    if kind == "ResourceFlavor" and name != "any.pool":
        yield "kueue-18", None
    if kind == "ResourceQuota" and name == "tenant":
        for offered in (GPU, "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"):
            yield "quota-05", with_field(item, ("spec", "hard", f"requests.{offered}"), None)
    if kind == "NetworkPolicy" and name == "dns":
        yield "net-08", None
    if kind == "RoleBinding":
        yield "rbac-06", with_field(item, ("roleRef", "name"), "tenancy-missing")
        yield "rbac-02", with_field(item, ("roleRef", "name"), "edit")


@pytest.fixture(scope="module")
def local() -> list[Object]:
    loaded = load(ROOT / "stacks" / "local")
    return list(make_plan(loaded, loaded.day).objects())


def test_whatever_isolation_resource_of_the_plan_falls_its_rule_is_named(local: list[Object]) -> None:
    assert findings_of(tuple(local)) == []
    tried, missed = 0, []
    for at, item in enumerate(local):
        for rule, mutant in mutants_of(item):
            items = (*local[:at], *([mutant] if mutant else []), *local[at + 1 :])
            tried += 1
            if rule not in {f.rule for f in findings_of(items)}:
                missed.append((rule, item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]))
    assert tried > 60
    assert missed == []


# What a preview does not know


@pytest.fixture(scope="module")
def unknown() -> Any:
    """The policy pack's text for a value that is not known yet."""
    from tenancy.policy_pack.objects import Unknown

    return Unknown()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_value_that_is_not_known_stops_nothing_and_is_told_where_it_counts(case: Case, unknown: Any) -> None:
    """Whatever is said rests on what is not known, and says so."""
    item = case.mended[-1]
    for path in nonempty(places(item)):
        if path[0] in {"apiVersion", "kind"} or path[:2] == ("metadata", "namespace"):
            continue
        findings = findings_of((*case.mended[:-1], with_field(item, path, unknown)))
        assert [f for f in findings if UNKNOWN not in f.given and UNKNOWN not in f.object] == [], path
