"""The policy pack as a whole: its configuration, exceptions, remedies, types, and what it says of whole programs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from check_cases import PREVIEW_ONLY_CASES
from pack_cases import (
    OBJECT_CASES,
    REGULATED_CASES,
    isolation_resources,
    manifest,
    namespace,
    on_aws,
    release,
    resource,
    with_field,
)
from pack_worlds import CASES, findings_of, judged, together, worlds

from tenancy.catalog import vocabulary
from tenancy.check.judge import JUDGED
from tenancy.kube.kinds import GROUPS, placed, ruled
from tenancy.planning import make_plan
from tenancy.rules import aws, regulated
from tenancy.rules.catalogue import RULES, Violation
from tenancy.rules.levels import REGULATED_ALONE, PolicyPreset
from tenancy.spec.loader import load
from tests.conftest import in_days, nonempty

ROOT = Path(__file__).parents[3]
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
QUOTA = next(case for case in OBJECT_CASES if case.rule == "quota-01")
WAIVER = {
    "rule": "quota-01",
    "resource": QUOTA.finding,
    "reason": "counted by another controller",
    "owner": "platform@bank.example",
    "until": in_days(99),
}
Object = dict[str, Any]


def refused(messages: dict[str, list[str]]) -> set[str]:
    """Rules that stop the preview."""
    return {text.partition(":")[0] for name in ("isolation", "isolation-stack") for text in messages[name]}


def advised(messages: dict[str, list[str]]) -> set[str]:
    return {text.partition(":")[0] for name, texts in messages.items() if "advisory" in name for text in texts}


# Every rule


def test_every_rule_of_the_pack_has_a_program_that_breaks_it_and_one_that_does_not() -> None:
    """The engine runs these programs; seen-02 is of a value that no program has, and has tests of its own."""
    assert {case.rule for case in REGULATED_CASES} == REGULATED_ALONE
    by_guards = {rule.id for rule in RULES.values() if rule.previewed}  # their attacks are those of test_rule_faces
    not_in_worlds = {"seen-02", *REGULATED_ALONE, *by_guards}
    assert {case.rule for world in worlds() for case in world} | not_in_worlds == JUDGED
    assert {case.rule for case in CASES} | not_in_worlds == JUDGED


def test_a_world_of_broken_rules_is_refused_and_its_mended_twin_is_silent(pack: ModuleType) -> None:
    for cases in nonempty(worlds()):
        messages = judged(pack, together(cases, "broken") or [])
        all_text = "\n".join(text for texts in messages.values() for text in texts)
        assert [case.id for case in cases if f"{case.rule}: {case.finding}: given " not in all_text] == []
        assert not any(judged(pack, together(cases, "mended") or []).values())


@pytest.mark.parametrize("case", PREVIEW_ONLY_CASES, ids=lambda case: case.id)
def test_what_rules_cannot_see_is_said(pack: ModuleType, case: Any) -> None:
    messages = judged(pack, list(case.broken))
    assert case.rule in (advised(messages) if case.rule == "seen-01" else refused(messages))
    assert not any(judged(pack, list(case.mended)).values())


@pytest.mark.parametrize("case", REGULATED_CASES, ids=lambda case: case.id)
def test_what_is_regulated_is_asked_by_that_preset_alone(pack: ModuleType, case: Any) -> None:
    broken = {(finding.rule, finding.object) for finding in findings_of(case.broken, PolicyPreset.REGULATED)}
    assert (case.rule, case.finding) in broken
    assert broken - {("reg-01", "Namespace stranger")} == {(case.rule, case.finding)}
    assert findings_of(case.mended, PolicyPreset.REGULATED) == set()
    assert refused(judged(pack, list(case.broken), {"preset": "regulated"})) == {case.rule}
    for preset in ("baseline", "restricted"):
        assert not any(judged(pack, list(case.broken), {"preset": preset}).values())
    assert refused(judged(pack, list(case.broken), {case.rule: "mandatory"})) == {case.rule}


def apart(**term: Any) -> Object:
    """Anti-affinity that keeps a pod of tenant a off nodes with others' pods."""
    others = {"matchExpressions": [{"key": vocabulary.TENANT, "operator": "NotIn", "values": ["a"]}]}
    affinity_term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": others, **term}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [affinity_term]}}}


@pytest.mark.parametrize(
    ("pod", "alone"),
    [
        (apart(), True),
        (apart(topologyKey="topology.kubernetes.io/zone"), False),
        (apart(labelSelector={"matchLabels": {"app": "x"}}), False),
        (apart(namespaceSelector={}), False),
        ({"nodeSelector": {vocabulary.TENANT: "a"}}, True),
        ({"nodeSelector": {vocabulary.TENANT: "b"}}, False),
        ({}, False),
    ],
)
def test_work_is_alone_on_its_nodes_by_selector_or_by_anti_affinity(pod: Object, alone: bool) -> None:
    work = manifest("v1", "Pod", "p", {"spec": pod}, "a", "a")
    rules = [finding.rule for finding in regulated.findings([namespace("a", "a"), work])]
    assert rules == ([] if alone else ["reg-01"])


def test_a_key_that_the_program_makes_is_one_and_days_that_are_not_known_are_told_of(pack: ModuleType) -> None:
    def logs(**fields: Any) -> Object:
        return on_aws(aws.LOGS, "l", {"retentionInDays": 400, "kmsKeyId": "arn:1", **fields})

    config = {"preset": "regulated"}
    assert not any(judged(pack, [logs(kmsKeyId=UNKNOWN)], config).values())
    assert refused(judged(pack, [logs(retentionInDays=UNKNOWN)], config)) == {"reg-03"}
    assert refused(judged(pack, [logs(retentionInDays=0)], config)) == {"reg-03"}


# Whole programs


@pytest.mark.parametrize("name", ["local", "bank"])
def test_the_products_own_environments_are_passed_in_silence(pack: ModuleType, name: str) -> None:
    loaded = load(ROOT / "stacks" / name)
    assert not any(judged(pack, list(make_plan(loaded, loaded.day).objects())).values())


def test_a_platform_without_tenants_is_no_tenants_program(pack: ModuleType) -> None:
    loaded = load(ROOT / "stacks" / "local")
    objects = make_plan(loaded, loaded.day).objects()
    alone = [item for item in objects if vocabulary.TENANT not in item["metadata"]["labels"]]
    assert len(alone) > 20
    assert not any(judged(pack, alone).values())


def test_without_labels_of_ours_every_namespace_is_a_tenant(pack: ModuleType) -> None:
    service = manifest("v1", "Service", "s", {"spec": {"type": "NodePort"}}, None, "team-a")
    messages = judged(pack, [service])
    assert [text[:22] for text in messages["isolation-stack"]] == ["net-01: Service team-a"]
    assert messages["isolation"] == []
    assert not any(judged(pack, [service], {"platform": ["team-a"]}).values())


def test_a_finding_is_told_once(pack: ModuleType) -> None:
    service = manifest("v1", "Service", "s", {"spec": {"type": "NodePort"}}, "a", "a")
    messages = judged(pack, [service])
    assert (len(messages["isolation"]), messages["isolation-stack"]) == (1, [])


def test_a_label_of_others_says_who_is_a_tenant(pack: ModuleType) -> None:
    space = manifest("v1", "Namespace", "team-a", None, None)
    space["metadata"]["labels"] = {"team": "a"}
    assert "ns-04" in refused(judged(pack, [space], {"tenantLabel": "team"}))
    assert not any(judged(pack, [space], {"tenantLabel": "squad"}).values())


def test_findings_come_by_tenant_and_the_worst_first(pack: ModuleType) -> None:
    mild = with_field(namespace("a", "a"), ("metadata", "labels", "team"), None)
    worse = [manifest("v1", "Service", "s", {"spec": {"type": "NodePort"}}, None, "b"), namespace("b", "b")]
    messages = judged(
        pack,
        [mild, *isolation_resources("a", "a"), *worse, manifest("v1", "ConfigMap", "c", None, None, "kube-system")],
    )
    assert [text[:20] for text in messages["isolation-stack"]] == ["ns-04: Namespace b: ", "net-01: Service b/s:"]


# Configuration


@pytest.mark.parametrize(
    ("preset", "expected"), [("baseline", "advisory"), ("restricted", "mandatory"), ("regulated", "mandatory")]
)
def test_a_preset_decides_how_strict_a_rule_is_held(pack: ModuleType, preset: str, expected: str) -> None:
    case = next(case for case in OBJECT_CASES if case.rule == "ns-03")
    messages = judged(pack, list(case.broken), {"preset": preset})
    assert ("ns-03" in refused(messages), "ns-03" in advised(messages)) == (
        expected == "mandatory",
        expected == "advisory",
    )


def test_what_is_not_known_counts_as_broken_where_it_is_regulated(pack: ModuleType) -> None:
    quota = with_field(QUOTA.mended[0], ("spec", "hard"), {"pods": UNKNOWN})
    assert (refused(judged(pack, [quota])), advised(judged(pack, [quota]))) == (set(), {"seen-02"})
    assert refused(judged(pack, [quota], {"preset": "regulated"})) == {"seen-02"}
    assert refused(judged(pack, [quota], {"preset": "regulated", "seen-02": "advisory"})) == set()


def test_what_isolation_is_told_holds_for_the_stack_too(pack: ModuleType) -> None:
    space = namespace("a", "a")
    assert refused(judged(pack, [space])) == {"ns-04"}
    assert not any(judged(pack, [space], {"ns-04": "disabled"}).values())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quota-99": "advisory"}, "given 'quota-99'"),
        ({"name-01": "advisory"}, "given 'name-01'"),
        ({"presett": "baseline"}, "given 'presett'"),
        ({"preset": "strict"}, "given preset: 'strict'"),
        ({"exceptions": "nowhere.yaml"}, r"nowhere\.yaml: No such file"),
        ({"exceptions": [{"rule": "quota-01"}]}, "no owner"),
        ({"exceptions": [{**WAIVER, "rule": "quota-99"}]}, "'quota-99', an unknown rule"),
        ({"exceptions": [{**WAIVER, "rule": "name-01"}]}, "'name-01', an unknown rule"),
    ],
)
def test_the_pack_refuses_a_configuration_that_it_does_not_know(pack: ModuleType, config: Object, message: str) -> None:
    with pytest.raises((ValueError, Violation), match=message):
        judged(pack, [namespace("a", "a")], config)


def test_the_schema_of_each_policy_names_every_rule_and_parameter(pack: ModuleType) -> None:
    for policy in pack.POLICIES:
        if "advisory" not in policy.name:
            parameters = {"charts", "exceptions", "platform", "preset", "tenantLabel"}
            assert {*policy.config_schema.properties} == JUDGED | parameters


# Exceptions


def test_an_exception_is_told_and_stops_nothing(pack: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "exceptions.yaml"
    path.write_text(json.dumps({"exceptions": [WAIVER]}))
    for exceptions in ([WAIVER], str(path)):
        messages = judged(pack, list(QUOTA.broken), {"exceptions": exceptions})
        assert refused(messages) == set()
        assert messages["isolation-advisory"] == [
            f"excepted: quota-01 for {QUOTA.finding} until {WAIVER['until']}, platform@bank.example: {WAIVER['reason']}"
        ]


def test_an_exception_that_has_ended_fails_with_what_it_covered(pack: ModuleType) -> None:
    messages = judged(pack, list(QUOTA.broken), {"exceptions": [{**WAIVER, "until": "2026-01-31"}]})
    assert refused(messages) == {"quota-01", "exc-01"}


def test_an_exception_covers_no_other_object(pack: ModuleType) -> None:
    messages = judged(pack, list(QUOTA.broken), {"exceptions": [{**WAIVER, "resource": "ResourceQuota a/b"}]})
    assert refused(messages) == {"quota-01"}


# Types


def test_kinds_are_known_in_the_groups_that_the_sdk_has_them_in() -> None:
    spec = importlib.util.find_spec("pulumi_kubernetes")
    assert spec
    assert spec.origin
    sdk = Path(spec.origin).parent
    other_groups = {"cilium.io", "eks.services.k8s.aws", "karpenter.k8s.aws", "karpenter.sh", "kueue.x-k8s.io"}
    other_groups |= {"kyverno.io", "nvidia.com"}
    for kind, groups in GROUPS.items():
        tokens = {
            token
            for path in sdk.glob(f"**/{kind}.py")
            for token in re.findall(rf"'kubernetes:([^']+):{kind}'", path.read_text("utf-8"))
        }
        in_sdk = {token.removeprefix("core/").rpartition("/")[0] for token in tokens}
        assert groups - other_groups == in_sdk, kind


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "NetworkPolicy"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicyPatch", "NetworkPolicy"),
        ("kubernetes:extensions/v1beta1:NetworkPolicy", "NetworkPolicy"),
        ("kubernetes:crd.projectcalico.org/v1:NetworkPolicy", "NetworkPolicy.crd.projectcalico.org"),
        ("kubernetes:core/v1:Service", "Service"),
        ("kubernetes:serving.knative.dev/v1:Service", "Service.serving.knative.dev"),
        ("kubernetes:helm.sh/v3:Release", "Release"),
        ("kubernetes:helm.crossplane.io/v1beta1:Release", "Release.helm.crossplane.io"),
        ("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "ClusterQueue"),
        ("kubernetes:helm.sh/v4:Chart", "Chart"),
        ("kubernetes:yaml/v2:ConfigGroup", "ConfigGroup"),
    ],
)
def test_a_types_group_decides_what_its_kind_means(pack: ModuleType, token: str, kind: str) -> None:
    assert pack.object_of(token, {"metadata": {"name": "x"}})["kind"] == kind


def test_a_type_stands_in_the_docs() -> None:
    text = (ROOT / "docs" / "policy.md").read_text("utf-8")
    missing = [kind for kind in GROUPS if f"`{kind}`" not in text]
    assert missing == []


def test_every_rule_that_the_page_names_is_in_the_catalogue() -> None:
    text = (ROOT / "docs" / "policy.md").read_text("utf-8")
    assert {name for name in re.findall(r"rules\.md#([a-z0-9-]+)", text) if name not in RULES} == set()


def test_an_object_of_the_whole_cluster_has_no_namespace() -> None:
    item = {"kind": "ClusterQueue", "metadata": {"name": "q", "namespace": "default"}}
    assert placed(item)["metadata"] == {"name": "q"}
    assert placed({**item, "kind": "LocalQueue"})["metadata"]["namespace"] == "default"
    assert ruled("Job", "batch.volcano.sh/v1alpha1") == "Job.batch.volcano.sh"


# Releases


def test_a_release_that_hides_objects_is_told_with_the_command_that_shows_them(pack: ModuleType) -> None:
    hidden = {**release("db", {}), "chart": "redis", "version": "1.2.3"}
    hidden |= {"metadata": {"name": "db", "namespace": "team-a"}, "repositoryOpts": {"repo": "https://charts.example"}}
    messages = judged(pack, [hidden])
    command = "helm template db redis --namespace team-a --repo https://charts.example --version 1.2.3 -f VALUES"
    assert f"{command} | tenancy check -" in messages["isolation-stack-advisory"][0]
    assert refused(judged(pack, [hidden], {"preset": "regulated"})) == {"seen-01"}
    assert not any(judged(pack, [{**hidden, "metadata": {"name": "db", "namespace": "monitoring"}}]).values())


# Remedies


def mended(pack: ModuleType, *items: Object, secret: bool = False) -> list[Object]:
    """Properties after the remedies, as the engine gets them back."""
    from pulumi_policy import ResourceValidationArgs
    from pulumi_policy.deserialize import SPECIAL_SECRET_SIG, SPECIAL_SIG_KEY, deserialize_properties
    from pulumi_policy.deserialize import serialize_properties as wired
    from pulumi_policy.proxy import unknown_checking_proxy

    policy = next(p for p in pack.POLICIES if p.name == "isolation")
    remediated = []
    for item in items:
        registration = resource(item)
        inputs = json.loads(json.dumps(registration.inputs))
        if secret:
            inputs["metadata"]["annotations"] = {"s": {SPECIAL_SIG_KEY: SPECIAL_SECRET_SIG, "value": "hush"}}
        props = unknown_checking_proxy(deserialize_properties(inputs, True))
        args = ResourceValidationArgs(registration.type, props, "urn", registration.name, None, None, {}, {})
        remediated.append(wired(policy.remediate(args) or props))
    return remediated


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "limits.nvidia.com/gpu"])
def test_a_key_of_a_quota_that_counts_nothing_gets_the_prefix_that_counts(pack: ModuleType, key: str) -> None:
    quota = manifest("v1", "ResourceQuota", "q", {"spec": {"hard": {key: "4", "pods": UNKNOWN}}}, "a", "a--b")
    (quota_copy,) = mended(pack, quota, secret=True)
    assert quota_copy["spec"]["hard"] == {"requests.nvidia.com/gpu": "4", "pods": UNKNOWN}
    assert quota_copy["metadata"]["annotations"]["s"]["value"] == "hush"
    assert len(quota_copy["metadata"]["annotations"]["s"]) == 2  # it is still a secret


def test_an_amount_that_is_not_known_yet_is_carried_along(pack: ModuleType) -> None:
    quota = manifest("v1", "ResourceQuota", "q", {"spec": {"hard": {"nvidia.com/gpu": UNKNOWN}}}, "a", "a--b")
    assert mended(pack, quota)[0]["spec"]["hard"] == {"requests.nvidia.com/gpu": UNKNOWN}


def test_of_two_keys_for_one_resource_none_is_taken(pack: ModuleType) -> None:
    hard = {"nvidia.com/gpu": "4", "requests.nvidia.com/gpu": "2"}
    (quota_copy,) = mended(pack, manifest("v1", "ResourceQuota", "q", {"spec": {"hard": hard}}, "a", "a--b"))
    assert quota_copy["spec"]["hard"] == hard


def test_an_object_gets_the_labels_of_its_namespace(pack: ModuleType) -> None:
    quota = with_field(isolation_resources("inherit", "acme")[0], ("metadata", "labels"), None)
    _, quota_copy = mended(pack, namespace("inherit", "acme"), quota)
    assert quota_copy["metadata"]["labels"] == {vocabulary.TENANT: "acme", **dict.fromkeys(vocabulary.COST_LABELS, "x")}


@pytest.mark.parametrize(
    "item",
    [
        with_field(isolation_resources("acme--main", "acme")[0], ("metadata", "labels"), None),
        isolation_resources("rival--main", "acme")[0],
        isolation_resources("shared", "acme")[0],
        with_field(isolation_resources("shared", "acme")[0], ("metadata", "labels"), None),
        with_field(isolation_resources("acme--main", "acme")[0], ("metadata", "labels"), UNKNOWN),
        {
            **isolation_resources("acme--main", "acme")[0],
            "kind": "ResourceQuotaPatch",
            "metadata": {"namespace": "acme--main"},
        },
    ],
    ids=[
        "a namespace that is not seen, named as a tenant's are",
        "another tenant's",
        "labelled",
        "without labels",
        "not known yet",
        "a patch",
    ],
)
def test_what_is_no_plain_mistake_stays_as_it_is(pack: ModuleType, item: Object) -> None:
    if item["kind"].endswith("Patch"):
        item = {**item, "metadata": {"name": "p", **item["metadata"]}}
    assert mended(pack, item) == [resource(item).inputs]
