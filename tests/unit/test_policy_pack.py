"""The rules of the policy pack, on plain objects and as the SDK hands them over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pack_cases import CASES, OBJECT_CASES, STACK_CASES, Case, binding, manifest, namespace, walls, with_field

from tenancy.catalog import vocabulary as words
from tenancy.components.manifest import resource_type
from tenancy.plan import Plan, make_plan
from tenancy.rules.catalogue import RULES
from tenancy.rules.objects import CHECKS, OBJECT_RULES, STACK_RULES, Finding, object_findings, stack_findings
from tenancy.spec import load

ROOT = Path(__file__).parents[2]
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a string that a preview does not know."""

Object = dict[str, Any]


@pytest.fixture(scope="module")
def pack() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "policy"))
    try:
        import pack

        yield pack
    finally:
        sys.path.remove(str(ROOT / "policy"))


@pytest.fixture(scope="module")
def local() -> Plan:
    loaded = load(ROOT / "stacks" / "local")
    return make_plan(loaded.environment, loaded.tenants)


def findings(items: tuple[Object, ...] | list[Object]) -> list[Finding]:
    return [*(found for item in items for found in object_findings(item)), *stack_findings(items)]


def judged(pack: ModuleType, items: list[Object], config: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """What each level reports of resources with these inputs, as the SDK would call it."""
    from pulumi_policy import ResourceValidationArgs, StackValidationArgs
    from pulumi_policy.policy import PolicyResource
    from pulumi_policy.proxy import unknown_checking_proxy

    said: dict[str, list[str]] = {policy.name: [] for policy in pack.POLICIES}

    def report(name: str) -> Callable[..., None]:
        return lambda text, _urn=None: said[name].append(text)

    resources = [(resource_type(item), unknown_checking_proxy(item)) for item in items]
    each, each_rest = (p for p in pack.POLICIES if p.name in {"isolation", "isolation-advisory"})
    for kind, props in resources:
        args = ResourceValidationArgs(kind, props, "urn", "name", None, None, dict(config or {}), {})
        for policy in (each, each_rest):
            policy.validate(args, report(policy.name))
    stack = [PolicyResource(kind, props, "urn", "name", None, None, None, [], {}) for kind, props in resources]
    for policy in (p for p in pack.POLICIES if p.name.startswith("isolation-stack")):
        known = {rule: level for rule, level in (config or {}).items() if rule in STACK_RULES}
        policy.validate(StackValidationArgs(stack, known, {}), report(policy.name))
    return said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_its_twin_passes(case: Case) -> None:
    found = findings(case.broken)
    assert {finding.rule for finding in found} == {case.rule}
    assert case.finding in {finding.object for finding in found}
    assert findings(case.mended) == []


def test_every_rule_of_the_pack_has_a_case() -> None:
    assert {case.rule for case in OBJECT_CASES} == set(OBJECT_RULES)
    assert {case.rule for case in STACK_CASES} == set(STACK_RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_finding_says_what_was_given_why_and_what_to_do(case: Case) -> None:
    text = str(next(found for found in findings(case.broken) if found.rule == case.rule))
    assert text.startswith(f"{case.rule}: {case.finding}: given ")
    assert f"why: {RULES[case.rule].why}" in text
    assert f"fix: {RULES[case.rule].fix}" in text


def test_the_products_own_plan_breaks_no_rule(local: Plan) -> None:
    assert findings(list(local.objects())) == []


def weakened(plan: Plan) -> Iterator[tuple[str, str, list[Object]]]:
    """Every wall of the plan, one at a time, taken away or weakened; with the rule that has to say so."""
    objects = list(plan.objects())
    for index, item in enumerate(objects):
        at = f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for what, rule, mutant in mutants_of(item):
            yield f"{at} {what}", rule, [*objects[:index], *([mutant] if mutant else []), *objects[index + 1 :]]


def mutants_of(item: Object) -> Iterator[tuple[str, str, Object | None]]:
    kind, name = item["kind"], item["metadata"]["name"]

    def put(path: tuple[Any, ...], value: Any) -> Object:
        return with_field(item, path, value)

    if kind in {"LimitRange", "ResourceQuota"} or name == "default-deny":
        yield "removed", "ns-04", None
    if kind == "ResourceQuota":
        yield "not counted", "quota-01", put(("spec", "hard", "nvidia.com/gpu"), "1")
    if kind == "LimitRange":
        yield "with a GPU", "quota-02", put(("spec", "limits", 0, "max", "nvidia.com/gpu"), "1")
    if name == "default-deny":
        yield "lets in", "ns-04", put(("spec", "ingress"), [{"from": [{"podSelector": {}}]}])
        yield "lets out", "ns-04", put(("spec", "policyTypes"), ["Ingress"])
        yield "for some pods", "ns-04", put(("spec", "podSelector"), {"matchLabels": {"app": "x"}})
    if name == "same-namespace":
        yield "for all", "net-02", put(("spec", "ingress", 0, "from", 0), {"namespaceSelector": {}})
    if kind == "NetworkPolicy" and name == "reach":
        yield (
            "for the metadata service",
            "net-05",
            put(("spec", "egress", 0, "to", 0, "ipBlock", "cidr"), "169.254.169.254/32"),
        )
    if kind == "Namespace" and words.TENANT in item["metadata"]["labels"]:
        for key in words.COST_LABELS:
            yield f"without {key}", "cost-02", put(("metadata", "labels", key), None)
        for key in (words.PSA_ENFORCE, words.PSA_VERSION):
            yield f"without {key}", "ns-03", put(("metadata", "labels", key), None)
    if kind == "RoleBinding":
        yield "for everybody", "rbac-05", put(("subjects", 0, "name"), "system:authenticated")
    if kind == "ClusterRole":
        yield "with a wildcard", "rbac-01", put(("rules", 0, "resources"), ["*"])
        yield "may mint tokens", "rbac-02", put(("rules", 0, "resources"), ["serviceaccounts/token"])
    if kind == "ValidatingAdmissionPolicy":
        yield "fails open", "guard-01", put(("spec", "failurePolicy"), "Ignore")
    if kind == "ValidatingAdmissionPolicyBinding":
        yield "only warns", "guard-01", put(("spec", "validationActions"), ["Warn"])


def test_whatever_wall_of_the_plan_falls_its_rule_is_named(local: Plan) -> None:
    mutants = list(weakened(local))
    missed = [what for what, rule, items in mutants if rule not in {found.rule for found in findings(items)}]
    assert len(mutants) > 60
    assert missed == []


def test_kinds_that_are_no_objects_are_no_findings(pack: ModuleType) -> None:
    for token in ("kubernetes:core/v1:NamespaceList", "kubernetes:helm.sh/v3:Release", "kubernetes:yaml:ConfigFile"):
        item = pack.manifest(token, {"items": [{"metadata": None}]})
        assert list(object_findings(item)) == []
        assert list(stack_findings([item])) == []
    assert pack.manifest("aws:s3/bucket:Bucket", {}) is None
    assert pack.manifest("pulumi:providers:kubernetes", {"kind": "Namespace"}) is None


@pytest.mark.parametrize("kind", sorted(CHECKS))
@pytest.mark.parametrize(
    "inputs", [{}, {"metadata": None, "spec": None}, {"metadata": {"labels": {words.TENANT: "a"}}}]
)
def test_no_kind_stumbles_over_what_is_not_there(kind: str, inputs: Object) -> None:
    list(object_findings({**inputs, "kind": kind}))
    list(stack_findings([{**inputs, "kind": kind}]))


def test_a_patch_is_judged_as_what_it_changes(pack: ModuleType) -> None:
    item = pack.manifest("kubernetes:core/v1:ResourceQuotaPatch", {"spec": {"hard": {"nvidia.com/gpu": "1"}}})
    assert [found.rule for found in object_findings(item)] == ["quota-01"]


def test_the_kind_is_the_types_whatever_the_inputs_say(pack: ModuleType) -> None:
    assert pack.manifest("kubernetes:core/v1:Pod", {"kind": "ConfigMap"})["kind"] == "Pod"


def test_a_broken_rule_is_mandatory_unless_configured(pack: ModuleType) -> None:
    quota = manifest("v1", "ResourceQuota", "q", {"spec": {"hard": {"nvidia.com/gpu": "1"}}}, namespace="acme--main")
    assert len(judged(pack, [quota])["isolation"]) == 1
    advised = judged(pack, [quota], {"quota-01": "advisory"})
    assert advised["isolation"] == []
    assert len(advised["isolation-advisory"]) == 1
    assert not any(judged(pack, [quota], {"quota-01": "disabled"}).values())
    assert len(judged(pack, [quota], {"quota-02": "disabled"})["isolation"]) == 1


@pytest.mark.parametrize(
    ("config", "named"), [({"quota-99": "advisory"}, "given rule 'quota-99'"), ({"quota-01": "loud"}, "'loud'")]
)
def test_a_rule_or_level_that_there_is_not_is_refused_by_name(
    pack: ModuleType, config: dict[str, str], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        judged(pack, [namespace("a", "a")], config)


def unknown_at(item: Object, path: tuple[Any, ...]) -> Object:
    return with_field(item, path, UNKNOWN)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in an object at which a preview may not know the value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_no_value_that_is_not_known_yet_stops_a_preview_by_mistake(pack: ModuleType, case: Case) -> None:
    item = case.mended[-1]
    for path in places(item):
        if path[0] in {"apiVersion", "kind"} or path[:2] == ("metadata", "namespace"):
            continue
        said = judged(pack, [*case.mended[:-1], unknown_at(item, path)])
        assert said["isolation"] == [], f"{path} is not known and may turn out well"
        assert any("not known until apply" in text for text in said["isolation-advisory"]), path


def test_what_is_known_to_be_wrong_stops_a_preview_whatever_else_is_not_known(pack: ModuleType) -> None:
    pod = OBJECT_CASES[4].broken[0]
    assert OBJECT_CASES[4].rule == "gpu-01"
    said = judged(pack, [unknown_at(pod, ("metadata", "name"))])
    assert len(said["isolation"]) == 1


def test_a_wall_whose_namespace_is_not_known_does_not_count_as_one(pack: ModuleType) -> None:
    quota, *rest = walls("a", "a")
    said = judged(pack, [namespace("a", "a"), *rest, unknown_at(quota, ("metadata", "namespace"))])
    assert [text[:5] for text in said["isolation-stack"]] == ["ns-04"]


def test_two_groups_that_are_not_known_are_not_taken_for_one(pack: ModuleType) -> None:
    items = [
        item
        for name in ("left", "right")
        for item in (
            namespace(name, name),
            *walls(name, name),
            unknown_at(binding("developer", name, name, "r", "people"), ("subjects", 0, "name")),
        )
    ]
    assert judged(pack, items)["isolation-stack"] == []
