"""The rules of the policy pack, on plain objects and as the SDK hands them over."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pack_cases import (
    ALONE_CASES,
    CASES,
    GPU_TAINT,
    MACHINE_CASES,
    MIG_CONFIG,
    OBJECT_CASES,
    P5,
    STACK_CASES,
    STACK_MACHINE_CASES,
    TOGETHER_CASES,
    Case,
    binding,
    cilium,
    cluster,
    cluster_queue,
    efa_class,
    efa_template,
    group,
    isolation_resources,
    kueue,
    kueue_map,
    local_queue,
    manifest,
    namespace,
    node_class,
    node_pool,
    on_aws,
    one_of,
    overlay,
    release,
    template,
    with_field,
)
from pack_worlds import judged

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.check.guard_rules import guard_findings
from tenancy.kube.objects import UNKNOWN as UNKNOWN_TEXT
from tenancy.planning import Plan, make_plan
from tenancy.planning.common import pools
from tenancy.rules import aws, nodes
from tenancy.rules.catalogue import RULES
from tenancy.rules.cross_object import findings_together
from tenancy.rules.faces import with_face
from tenancy.rules.findings import Finding
from tenancy.rules.model import Face
from tenancy.rules.objects import CHECKS, object_findings
from tenancy.spec.loader import load
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The engine's notation for a string that a preview does not know."""

Object = dict[str, Any]


@pytest.fixture(scope="module")
def local() -> Plan:
    loaded = load(ROOT / "stacks" / "local")
    return make_plan(loaded, loaded.day)


def findings(items: tuple[Object, ...] | list[Object]) -> list[Finding]:
    alone = (finding for item in items for finding in object_findings(item))
    return [*alone, *guard_findings(items)[0], *findings_together(items)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_its_twin_passes(case: Case) -> None:
    case_findings = findings(case.broken)
    assert {finding.rule for finding in case_findings} == {case.rule}
    assert case.finding in {finding.object for finding in case_findings}
    assert findings(case.mended) == []


def test_every_case_is_of_a_rule_that_a_preview_has() -> None:
    """The tests of the whole pack require a case for every such rule."""
    assert {case.rule for case in (*ALONE_CASES, *TOGETHER_CASES)} <= set(with_face(Face.PREVIEW))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_finding_says_what_was_given_why_and_what_to_do(case: Case) -> None:
    text = str(next(finding for finding in findings(case.broken) if finding.rule == case.rule))
    assert text.startswith(f"{case.rule}: {case.finding}: given ")
    assert f"why: {RULES[case.rule].why}" in text
    rule = RULES[case.rule]
    assert f"fix: {rule.fix_of_object or rule.fix}" in text, "no spec file describes the object"


def test_the_products_own_plan_breaks_no_rule(local: Plan) -> None:
    assert findings(list(local.objects())) == []


def test_the_products_own_policies_of_ciliums_break_no_rule() -> None:
    bank = load(ROOT / "stacks" / "bank")
    planned_objects = list(make_plan(bank, bank.day).objects())
    assert sum(item["kind"].startswith("Cilium") for item in planned_objects) > 30
    assert [finding for finding in findings(planned_objects) if finding.rule.startswith("net-")] == []


@pytest.mark.parametrize(
    "spec",
    [
        {"ingress": [{}], "egress": [{}]},
        {"ingress": [{"fromEndpoints": []}]},
        {"ingressDeny": [{"fromEntities": ["all"]}], "egressDeny": [{"toEntities": ["world"]}]},
        {"ingress": [{"fromRequires": [{"matchLabels": {"team": "a"}}]}]},
    ],
    ids=["empty rules", "no peers", "denies", "more conditions"],
)
def test_what_opens_nothing_under_cilium_is_no_finding(spec: Object) -> None:
    assert findings([cilium("closed", **spec)]) == []


def test_a_subresource_of_everything_is_that_of_what_has_power_as_well() -> None:
    rules = [{"apiGroups": [""], "resources": ["*/token", "*/log"], "verbs": ["create"]}]
    role_findings = findings(
        [manifest("rbac.authorization.k8s.io/v1", "Role", "r", {"rules": rules}, namespace="acme")]
    )
    assert [(finding.rule, finding.given) for finding in role_findings if finding.rule == "rbac-02"] == [
        ("rbac-02", "serviceaccounts/token")
    ]
    assert "rbac-01" in {finding.rule for finding in role_findings}


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

    if kind == "LimitRange" or name == "default-deny" or (kind == "ResourceQuota" and name == "tenant"):
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
    if kind == "NetworkPolicy" and name == "egress":
        yield (
            "for the metadata service",
            "net-05",
            put(("spec", "egress", 0, "to", 0, "ipBlock", "cidr"), "169.254.169.254/32"),
        )
    if kind == "Namespace" and vocabulary.TENANT in item["metadata"]["labels"]:
        for key in vocabulary.COST_LABELS:
            yield f"without {key}", "cost-02", put(("metadata", "labels", key), None)
        for key in (vocabulary.PSA_ENFORCE, vocabulary.PSA_VERSION):
            yield f"without {key}", "ns-03", put(("metadata", "labels", key), None)
    if kind == "RoleBinding":
        yield "for all", "rbac-05", put(("subjects", 0, "name"), "system:authenticated")
    if kind == "ClusterRole":
        yield "with a wildcard", "rbac-01", put(("rules", 0, "resources"), ["*"])
        yield "may mint tokens", "rbac-02", put(("rules", 0, "resources"), ["serviceaccounts/token"])
    if kind == "ValidatingAdmissionPolicy":
        yield "fails open", "guard-01", put(("spec", "failurePolicy"), "Ignore")
    if kind == "LocalQueue":
        yield "of another tenant's share", "kueue-05", put(("spec", "clusterQueue"), "another--batch")
    if kind == "ClusterQueue":
        yield "for all", "kueue-11", put(("spec", "namespaceSelector"), {})
        if re.search(r'"lendingLimit": "[1-9]', json.dumps(item["spec"])):
            yield "not given back", "kueue-13", put(("spec", "preemption", "reclaimWithinCohort"), None)
    if kind == "ClusterQueue" or (kind == "Cohort" and "parentName" in item["spec"]):
        lent = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "lendingLimit")
        yield "lends everything", "kueue-12", put(lent, None)
    if kind == "ValidatingAdmissionPolicyBinding":
        yield "only warns", "guard-01", put(("spec", "validationActions"), ["Warn"])


def test_whatever_isolation_resource_of_the_plan_falls_its_rule_is_named(local: Plan) -> None:
    mutants = list(weakened(local))
    missed = [what for what, rule, items in mutants if rule not in {finding.rule for finding in findings(items)}]
    assert len(mutants) > 60
    assert missed == []


def test_what_the_product_gives_kueue_breaks_no_rule(local: Plan) -> None:
    chart = local.platform.queue_chart
    assert chart
    assert findings([{**release(chart.name, {}), "chart": chart.chart, "values": chart.values}]) == []


@pytest.mark.parametrize(
    "item",
    [
        cluster_queue("alone", cohortName=None, preemption={}),
        cluster_queue("for-none", namespaceSelector=None),
        with_field(kueue("elsewhere"), ("values", "managerConfig"), None) | {"valueYamlFiles": [{}]},
        {**kueue_map("k", manageJobsWithoutQueueName=False), "metadata": {"name": "something-else"}},
        local_queue("the-systems", "monitoring", None, "system"),
    ],
    ids=lambda item: f"{item['kind']} {item['metadata']['name']}",
)
def test_a_queue_that_lends_nothing_or_cannot_be_judged_is_no_finding(item: Object) -> None:
    assert findings([item]) == []


def test_a_share_that_is_never_lent_need_not_come_back() -> None:
    quiet = cluster_queue("quiet", preemption={"reclaimWithinCohort": "Never"})
    lent = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "lendingLimit")
    assert [finding.rule for finding in findings([quiet])] == ["kueue-13"]
    assert findings([with_field(quiet, lent, "0")]) == []


_UNRECLAIMED = {"featureGates": {"ReclaimablePods": False}}
CONFIGURATION = ("values", "managerConfig", "controllerManagerConfigYaml")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"manageJobsWithoutQueueName": False} | _UNRECLAIMED),
        json.dumps(
            {"manageJobsWithoutQueueName": True, "resources": {"excludeResourcePrefixes": ["nvidia.com/gpu"]}}
            | _UNRECLAIMED
        ),
        json.dumps(_UNRECLAIMED),
    ],
)
def test_a_release_of_kueue_is_judged_by_its_values(text: str | None) -> None:
    broken = with_field(kueue("k"), CONFIGURATION, text)
    assert [(finding.rule, finding.object) for finding in findings([broken])] == [
        ("kueue-14", "Release gpu-operator/k")
    ]
    assert findings([kueue("k")]) == []


@pytest.mark.parametrize("text", ["{}", "integrations: [", None])
def test_a_release_with_kueues_defaults_is_told_of_both(text: str | None) -> None:
    """An absent text is the chart's own, which leaves work without a queue alone and counts ended pods as returned."""
    broken = with_field(kueue("k"), CONFIGURATION, text)
    assert [finding.rule for finding in findings([broken])] == ["kueue-14", "kueue-31"]


@pytest.mark.parametrize(("enabled", "rules"), [(True, ["kueue-31"]), (False, [])])
def test_feature_gates_of_the_command_line_replace_those_of_the_configuration(enabled: bool, rules: list[str]) -> None:
    text = json.dumps({"manageJobsWithoutQueueName": True})
    item = with_field(kueue("k"), CONFIGURATION, text)
    gates = [{"name": "ReclaimablePods", "enabled": enabled}]
    item = with_field(item, ("values", "controllerManager"), {"featureGates": gates})
    assert [finding.rule for finding in findings([item])] == rules


@pytest.mark.parametrize("length", range(1, len(CONFIGURATION) + 1))
def test_a_release_of_kueue_that_is_not_known_is_told_of_and_stops_nothing(pack: ModuleType, length: int) -> None:
    messages = judged(pack, [unknown_at(kueue("k"), CONFIGURATION[:length])])
    assert messages["isolation"] == []
    assert [text[:8] for text in messages["isolation-advisory"]] == ["kueue-14"]


def test_kinds_that_are_no_objects_are_no_findings(pack: ModuleType) -> None:
    for token in ("kubernetes:core/v1:NamespaceList", "kubernetes:helm.sh/v3:Release", "kubernetes:yaml:ConfigFile"):
        item = pack.object_of(token, {"items": [{"metadata": None}]})
        assert list(object_findings(item)) == []
        assert list(findings_together([item])) == []
    assert pack.object_of("aws:sqs/queue:Queue", {}) is None
    assert pack.object_of("pulumi:providers:kubernetes", {"kind": "Namespace"}) is None


@pytest.mark.parametrize("kind", sorted(CHECKS))
@pytest.mark.parametrize(
    "inputs", [{}, {"metadata": None, "spec": None}, {"metadata": {"labels": {vocabulary.TENANT: "a"}}}]
)
def test_no_kind_stumbles_over_what_is_not_there(kind: str, inputs: Object) -> None:
    list(object_findings({**inputs, "kind": kind}))
    list(findings_together([{**inputs, "kind": kind}]))


def test_a_patch_is_judged_as_what_it_changes(pack: ModuleType) -> None:
    item = pack.object_of("kubernetes:core/v1:ResourceQuotaPatch", {"spec": {"hard": {"nvidia.com/gpu": "1"}}})
    assert [finding.rule for finding in object_findings(item)] == ["quota-01"]


def test_the_kind_is_the_types_whatever_the_inputs_say(pack: ModuleType) -> None:
    assert pack.object_of("kubernetes:core/v1:Pod", {"kind": "ConfigMap"})["kind"] == "Pod"


def test_a_broken_rule_is_mandatory_unless_configured(pack: ModuleType) -> None:
    quota = manifest("v1", "ResourceQuota", "q", {"spec": {"hard": {"nvidia.com/gpu": "1"}}}, namespace="acme--main")
    assert len(judged(pack, [quota])["isolation"]) == 1
    advised = judged(pack, [quota], {"quota-01": "advisory"})
    assert advised["isolation"] == []
    assert len(advised["isolation-advisory"]) == 1
    assert not any(judged(pack, [quota], {"quota-01": "disabled"}).values())
    assert len(judged(pack, [quota], {"quota-02": "disabled"})["isolation"]) == 1


@pytest.mark.parametrize(
    ("config", "message"), [({"quota-99": "advisory"}, "given 'quota-99'"), ({"quota-01": "loud"}, "'loud'")]
)
def test_a_rule_or_level_that_there_is_not_is_refused_by_name(
    pack: ModuleType, config: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
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


@pytest.mark.parametrize("case", [*OBJECT_CASES, *STACK_CASES], ids=lambda case: case.id)
def test_no_value_that_is_not_known_yet_stops_a_preview_by_mistake(pack: ModuleType, case: Case) -> None:
    item = case.mended[-1]
    for path in nonempty(places(item)):
        if path[0] in {"apiVersion", "kind"} or path[:2] == ("metadata", "namespace"):
            continue
        messages = judged(pack, [*case.mended[:-1], unknown_at(item, path)])
        assert messages["isolation"] == [], f"{path} is not known and may turn out well"
        assert any("not known until apply" in text for text in messages["isolation-advisory"]), path


def test_what_rules_cannot_read_beside_another_stops_a_preview_and_hides_nothing_else(pack: ModuleType) -> None:
    pool = node_pool("quarters", P5, [GPU_TAINT], {MIG_CONFIG: "quarters"})
    broken = with_field(overlay("o", "quarters"), ("spec", "requirements", 0), -1)
    messages = judged(pack, [namespace("a", "a"), pool, broken])
    assert [text[:7] for text in messages["isolation-stack"]].count("seen-03") == 1
    assert "ns-04: " in {text[:7] for text in messages["isolation-stack"]}
    assert not [text for text in judged(pack, [pool, overlay("o", "quarters")])["isolation-stack"] if "seen-03" in text]


def test_what_rules_cannot_read_beside_a_release_is_named_too(pack: ModuleType) -> None:
    chart = {**release("tracking", {}), "chart": "nowhere", "metadata": {"name": "tracking", "namespace": "a"}}
    quota = with_field(isolation_resources("a", "a")[0], ("metadata", "ownerReferences"), 3)
    messages = judged(pack, [namespace("a", "a"), chart, quota])
    texts = [text for level_texts in messages.values() for text in level_texts]
    assert [text for text in texts if text.startswith("seen-03: ResourceQuota a/isolation")]
    assert [text for text in texts if text.startswith("seen-01: Release a/tracking")]


def test_an_exception_that_the_plan_wrote_is_told_in_every_preview(pack: ModuleType) -> None:
    until = today() + dt.timedelta(days=30)
    space = with_field(namespace("a", "a"), ("metadata", "labels", vocabulary.PSA_ENFORCE), "baseline")
    space["metadata"]["annotations"] = {
        vocabulary.EXCEPTIONS: f"ns-03={until}",
        vocabulary.OWNER_MAIL: "jane@bank.example",
    }
    messages = judged(pack, [space, *isolation_resources("a", "a")])
    assert [text[:5] for text in messages["isolation"]] == ["ns-03"]
    planned = [
        with_field(item, ("metadata", "labels", vocabulary.ENVIRONMENT), "bank")
        for item in (space, *isolation_resources("a", "a"))
    ]
    messages = judged(pack, planned)
    assert (messages["isolation"], messages["isolation-stack"]) == ([], [])
    assert [text for text in messages["isolation-advisory"] if f"excepted: ns-03 for Namespace a until {until}" in text]


def test_what_is_known_to_be_wrong_stops_a_preview_whatever_else_is_not_known(pack: ModuleType) -> None:
    pod = next(case for case in OBJECT_CASES if case.rule == "gpu-01").broken[0]
    messages = judged(pack, [unknown_at(pod, ("metadata", "name"))])
    assert len(messages["isolation"]) == 1


def test_a_isolation_resource_whose_namespace_is_not_known_does_not_count_as_one(pack: ModuleType) -> None:
    quota, *others = isolation_resources("a", "a")
    messages = judged(pack, [namespace("a", "a"), *others, unknown_at(quota, ("metadata", "namespace"))])
    assert [text[:5] for text in messages["isolation-stack"]] == ["ns-04"]


def test_two_groups_that_are_not_known_are_not_taken_for_one(pack: ModuleType) -> None:
    items = [
        item
        for name in ("left", "right")
        for item in (
            namespace(name, name),
            *isolation_resources(name, name),
            unknown_at(binding("developer", name, name, "view", "people", "ClusterRole"), ("subjects", 0, "name")),
        )
    ]
    assert judged(pack, items)["isolation-stack"] == []


# Machines


@pytest.fixture(scope="module")
def machines() -> list[Object]:
    """Objects that the bank's environment installs to make nodes, without AWS' own half."""
    loaded = load(ROOT / "stacks" / "bank")
    services = make_plan(loaded, loaded.day).platform.services
    assert services
    registered_machines = [
        {**release(chart.name, chart.values), "chart": chart.chart, "values": chart.values} for chart in services.charts
    ]
    return [*services.nodes, *registered_machines]


def test_types_are_those_of_the_sdk() -> None:
    import pulumi_aws

    classes = (
        pulumi_aws.eks.Cluster,
        pulumi_aws.eks.NodeGroup,
        pulumi_aws.ec2.LaunchTemplate,
        pulumi_aws.eks.AccessEntry,
        pulumi_aws.eks.AccessPolicyAssociation,
        pulumi_aws.eks.PodIdentityAssociation,
        pulumi_aws.iam.Policy,
        pulumi_aws.iam.PolicyAttachment,
        pulumi_aws.iam.Role,
        pulumi_aws.iam.RolePolicy,
        pulumi_aws.iam.RolePolicyAttachment,
        pulumi_aws.iam.RolePolicyAttachmentsExclusive,
        pulumi_aws.s3.Bucket,
        pulumi_aws.s3.BucketServerSideEncryptionConfiguration,
        pulumi_aws.cloudwatch.LogGroup,
        pulumi_aws.ebs.Volume,
        pulumi_aws.s3.BucketPublicAccessBlock,
        pulumi_aws.kms.Key,
        pulumi_aws.ecr.Repository,
        pulumi_aws.ec2.SecurityGroup,
        pulumi_aws.vpc.SecurityGroupIngressRule,
    )
    assert {kind.pulumi_type for kind in classes} == aws.KINDS
    assert pools.MIG_CONFIG == MIG_CONFIG


def test_a_pack_without_aws_sdk_starts_fast() -> None:
    imported_modules = "[name for name in sys.modules if name.startswith(('pulumi_aws', 'pulumi_kub'))]"
    code = f"import sys, tenancy.policy_pack.policies; print({imported_modules})"
    process = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert process.stdout.strip() == "[]", process.stderr


def test_the_banks_machines_break_no_rule(machines: list[Object]) -> None:
    assert {item["kind"] for item in machines} == {"EC2NodeClass", "NodeOverlay", "NodePool", "Release"}
    assert findings(machines) == []


def machine_mutants(item: Object) -> Iterator[tuple[str, str, Object | None]]:
    def put(path: tuple[Any, ...], value: Any) -> Object:
        return with_field(item, path, value)

    if item["kind"] == "EC2NodeClass":
        yield "old", "ami-01", put(("spec", "amiSelectorTerms", 0, "alias"), "al2023@v20260401")
        yield "unpinned", "ami-02", put(("spec", "amiSelectorTerms", 0, "alias"), "al2023@latest")
        yield "without tokens", "node-01", put(("spec", "metadataOptions", "httpTokens"), "optional")
        yield "two hops", "node-01", put(("spec", "metadataOptions", "httpPutResponseHopLimit"), 2)
        yield "not encrypted", "node-02", put(("spec", "blockDeviceMappings", 0, "ebs", "encrypted"), None)
    if item["kind"] == "NodePool":
        yield "without taints", "node-03", put(("spec", "template", "spec", "taints"), None)
        more = {"key": "other", "effect": "NoExecute"}
        taints = [*item["spec"]["template"]["spec"]["taints"], more]
        yield "with a taint of its own", "node-05", put(("spec", "template", "spec", "taints"), taints)
    if item["kind"] == "NodeOverlay":
        yield "removed", "mig-04", None
    if item.get("chart") == "gpu-operator":
        yield "with NRI", "gpu-09", put(("values", "cdi", "nriPluginEnabled"), True)
        yield "with a DCGM server", "node-09", put(("values", "dcgm", "enabled"), True)
        yield "as the chart tolerates", "node-05", put(("values", "daemonsets"), None)
        yield "undiscovered", "node-05", put(("values", "node-feature-discovery", "worker", "tolerations"), [])
        for name, text in item["values"]["devicePlugin"]["config"]["data"].items():
            if "sharing" in text:
                nameless = text.replace("renameByDefault: true", "renameByDefault: false")
                yield name, "share-02", put(("values", "devicePlugin", "config", "data", name), nameless)


def test_whatever_is_weakened_of_the_machines_its_rule_is_named(machines: list[Object]) -> None:
    missed, count = [], 0
    sliced = {
        name
        for item in machines
        if item["kind"] == "NodePool" and MIG_CONFIG in item["spec"]["template"]["metadata"]["labels"]
        for name in [item["metadata"]["name"]]
    }
    for index, item in enumerate(machines):
        for what, rule, mutant in machine_mutants(item):
            if rule == "mig-04" and item["metadata"]["name"] not in sliced:
                continue  # for replicas, which no label of a layout speaks of
            count += 1
            items = [*machines[:index], *([mutant] if mutant else []), *machines[index + 1 :]]
            if rule not in {finding.rule for finding in findings(items)}:
                missed.append(f"{item['kind']} {item['metadata']['name']} {what}")
    assert count >= 8
    assert missed == []


def changed_path(broken: Any, mended: Any, path: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Path at which two objects differ, down to the field that both have the parent of."""
    keys: list[Any] = []
    if isinstance(broken, dict) and isinstance(mended, dict):
        keys = [key for key in {**broken, **mended} if broken.get(key) != mended.get(key)]
    elif isinstance(broken, list) and isinstance(mended, list) and len(broken) == len(mended):
        keys = [index for index, pair in enumerate(zip(broken, mended, strict=True)) if pair[0] != pair[1]]
    if len(keys) != 1 or (isinstance(broken, dict) and (keys[0] not in broken or keys[0] not in mended)):
        return (*path, keys[0]) if len(keys) == 1 else path
    return changed_path(broken[keys[0]], mended[keys[0]], (*path, keys[0]))


SILENT = {("spec",), ("launchTemplate",), ("policyArn",), ("tags", "cost-center")}
"""An ARN that is not known is that of a policy of the program's own, which is judged; a tag may have any value."""


@pytest.mark.parametrize("case", [*MACHINE_CASES, *STACK_MACHINE_CASES], ids=lambda case: case.id)
def test_a_machines_value_that_is_not_known_is_told_of_and_stops_nothing(pack: ModuleType, case: Case) -> None:
    item = case.mended[-1]
    path = changed_path(case.broken[-1], item)
    assert path
    if case.rule == "node-04":
        path = (*path[:-1], "placement") if item["kind"] == aws.TEMPLATE else path
    for length in range(1, len(path) + 1):
        if path[:length] in SILENT:
            continue
        messages = judged(pack, [*case.mended[:-1], unknown_at(item, path[:length])])
        mandatory = messages["isolation"] + messages["isolation-stack"]
        assert mandatory == [], f"{path[:length]} is not known and may turn out well"
        advice = messages["isolation-advisory"] + messages["isolation-stack-advisory"]
        assert any(UNKNOWN_TEXT in text for text in advice), path[:length]


@pytest.mark.parametrize("case", [*MACHINE_CASES, *STACK_MACHINE_CASES], ids=lambda case: case.id)
def test_nothing_else_that_is_not_known_of_a_machine_stops_a_preview(pack: ModuleType, case: Case) -> None:
    item = case.mended[-1]
    for path in nonempty(places(item)):
        if path[0] in {"apiVersion", "kind", aws.TEMPLATES, aws.ROLES, aws.POLICIES} or path[:2] in {
            ("metadata", "namespace"),
            ("metadata", "name"),
        }:
            continue
        messages = judged(pack, [*case.mended[:-1], unknown_at(item, path)])
        assert messages["isolation"] == [], path


def test_what_no_rule_reads_may_stay_unknown_in_silence(pack: ModuleType) -> None:
    unread_resources = [
        unknown_at(cluster("c"), ("vpcConfig", "subnetIds")),
        unknown_at(group("g"), ("launchTemplate", "id")),
        unknown_at(template("t", imageId="ami-0a"), ("imageId",)),
        unknown_at(node_class("n"), ("spec", "role")),
    ]
    assert not any(judged(pack, unread_resources).values())


def test_a_rule_that_advises_refuses_where_it_is_configured_to(pack: ModuleType) -> None:
    latest = node_class("n", amiSelectorTerms=[{"alias": "al2023@latest"}])
    messages = judged(pack, [latest])
    assert messages["isolation"] == []
    assert [text[:6] for text in messages["isolation-advisory"]] == ["ami-02"]
    assert len(judged(pack, [latest], {"ami-02": "mandatory"})["isolation"]) == 1
    assert not any(judged(pack, [latest], {"ami-02": "disabled"}).values())


@pytest.mark.parametrize(
    "item",
    [
        group("custom", amiType="CUSTOM", releaseVersion=None),
        group("whatever", releaseVersion=None),
        group("bottlerocket", amiType="BOTTLEROCKET_x86_64", releaseVersion="1.50.0-20fd0ae1"),
        node_class("by-tag", amiSelectorTerms=[{"tags": {"team": "images"}}]),
        node_class("bottlerocket", amiSelectorTerms=[{"alias": "bottlerocket@v1.50.0"}]),
        node_class("defaults", metadataOptions={"httpProtocolIPv6": "disabled"}),
        template("deaf", metadataOptions={"httpEndpoint": "disabled"}),
        template("reserved", capacityReservationSpecification={"capacityReservationPreference": "open"}),
        template("grouped", placement={"groupName": "near"}),
        group("evicting", instanceTypes=["g6.xlarge"], taints=[{"key": "gpu", "effect": "NO_EXECUTE"}]),
        node_pool("cpu", one_of("karpenter.k8s.aws/instance-category", "c", "m"), []),
        node_pool("none", {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"}, []),
        node_pool("whole", P5, [GPU_TAINT], {MIG_CONFIG: "all-disabled"}),
        cluster("named", {"publicAccessCidrs": ["198.51.100.7/32"]}),
        {**release("else", {"cdi": {"nriPluginEnabled": True}}), "chart": "some-operator"},
    ],
    ids=lambda item: f"{item['kind']} {item['metadata']['name']}",
)
def test_what_is_well_or_cannot_be_judged_is_no_finding(item: Object) -> None:
    assert findings([item]) == []


@pytest.mark.parametrize(
    ("requirement", "gpus"),
    [
        (one_of("node.kubernetes.io/instance-type", "m7i.large"), False),
        (one_of("node.kubernetes.io/instance-type", "m7i.large", "g6.xlarge"), True),
        (one_of("karpenter.k8s.aws/instance-category", "g"), True),
        (one_of("karpenter.k8s.aws/instance-gpu-name", "h100"), True),
        ({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Gt", "values": ["0"]}, True),
        (one_of("karpenter.k8s.aws/instance-gpu-count", "0"), False),
        ({"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["g6"]}, False),
    ],
)
def test_a_pool_has_gpus_where_its_requirements_say_so(requirement: Object, gpus: bool) -> None:
    assert bool(nodes.pool_gpus(node_pool("p", requirement, []))) is gpus


@pytest.mark.parametrize(
    ("toleration", "enough"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "true"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_scheduler_says(toleration: Object, enough: bool) -> None:
    pool = node_pool("p", P5, [GPU_TAINT])
    operator = release("o", {"daemonsets": {"tolerations": [toleration]}})
    assert (findings([pool, operator]) == []) is enough


def test_the_operator_tolerates_nvidias_taint_by_itself_and_no_other() -> None:
    operator = {**release("o", {}), "values": {}}
    assert findings([node_pool("p", P5, [GPU_TAINT]), operator]) == []
    pool = node_pool("p", P5, [GPU_TAINT, {"key": "team", "value": "a", "effect": "NoSchedule"}])
    assert [finding.rule for finding in findings([pool, operator])] == ["node-05", "node-05"]
    assert len(findings([pool, {**operator, "values": {"nfd": {"enabled": False}}}])) == 1
    assert findings([pool, {**operator, "valueYamlFiles": [{}]}]) == [], "the files may say so"


def test_a_taint_of_a_managed_group_has_to_be_tolerated_too() -> None:
    taints = [{"key": "team", "value": "a", "effect": "NO_SCHEDULE"}]
    gpu, plain = (group("g", instanceTypes=[name], taints=taints) for name in ("p5.48xlarge", "m7i.large"))
    operator = {**release("o", {}), "values": {}}
    assert [finding.rule for finding in findings([gpu, operator])] == ["node-05", "node-05"]
    assert findings([plain, operator]) == []


def policy(*statements: Object, tenant: str | None = None, effect: str = "Allow") -> Object:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": effect, **statement} for statement in statements]}
    tags = {vocabulary.TENANT_TAG: tenant, **dict.fromkeys(vocabulary.COST_LABELS, "x")} if tenant else {}
    return on_aws(aws.POLICY, "p", {"policy": json.dumps(document), "tags": tags})


DATA = "arn:aws:s3:::data"
SECURE = {"Bool": {"aws:SecureTransport": "true"}}
LISTING_CONDITION = {"StringLike": {"s3:prefix": ["acme/*"]}}


@pytest.mark.parametrize(
    ("statement", "tenant", "given_text"),
    [
        ({"Action": "s3:*", "Resource": [DATA, f"{DATA}/*"]}, None, f"s3:* on {DATA}, {DATA}/*"),
        ({"Action": "S3:*", "Resource": "arn:aws:s3:::*"}, None, "s3:* on arn:aws:s3:::*"),
        ({"NotAction": "iam:*", "Resource": "*"}, None, "all but iam:* on *"),
        ({"Action": "*", "NotResource": DATA}, None, f"* on all but {DATA}"),
        ({"Action": "s3:GetObject", "Resource": f"{DATA}/*"}, None, None),
        ({"Action": "s3:ListBucket", "Resource": DATA}, None, None),
        ({"Action": "s3:*", "Resource": f"{DATA}/acme/*"}, None, None),
        ({"Action": "s3:P*", "Resource": "*"}, "acme", "s3:p* on * for tenant acme"),
        (
            {"Action": "s3:L*", "Resource": DATA, "Condition": SECURE},
            "acme",
            f"s3:listbucket on {DATA} without a condition on s3:prefix for tenant acme",
        ),
        ({"Action": "s3:ListBucket", "Resource": DATA, "Condition": LISTING_CONDITION}, "acme", None),
        ({"Action": "s3:GetBucketLocation", "Resource": DATA}, "acme", None),
        ({"Action": "ec2:*", "Resource": "*"}, None, None),
        ({"Action": "ec2:*", "Resource": "*"}, "acme", "ec2:* on * for tenant acme, which allows privilege escalation"),
        ({"Action": "ec2:Describe*", "Resource": "*"}, "acme", None),
        ({"Action": "iam:PutRolePolicy", "Resource": "*"}, None, None),
    ],
)
def test_a_policy_is_as_wide_as_its_actions_on_its_resources(
    statement: Object, tenant: str | None, given_text: str | None
) -> None:
    expected = [("id-06", given_text)] if given_text else []
    assert [(finding.rule, finding.given) for finding in findings([policy(statement, tenant=tenant)])] == expected
    assert findings([policy(statement, tenant=tenant, effect="Deny")]) == []


def test_a_cluster_that_the_engine_protects_is_not_deleted_in_one_step(pack: ModuleType) -> None:
    class Protected:
        protect = True

    inputs = {key: value for key, value in cluster("c", deletable=True).items() if key not in {"kind", "metadata"}}
    isolated_namespace = [namespace("a", "a"), *isolation_resources("a", "a")]
    loose, protected_cluster = (
        pack.object_of(aws.CLUSTER, inputs, "c", protection) for protection in (None, Protected())
    )
    assert [finding.rule for finding in findings([*isolated_namespace, loose])] == ["eks-03"]
    assert findings([*isolated_namespace, protected_cluster]) == []
    assert findings([loose]) == [], "no tenant is on it"


def test_the_account_of_a_roles_own_provider_is_its_own(pack: ModuleType) -> None:
    class Provider:
        def __init__(self, **props: str) -> None:
            self.props = props

    statement = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": "sts:AssumeRole"}
    tags = {vocabulary.TENANT_TAG: "acme", **dict.fromkeys(vocabulary.COST_LABELS, "x")}
    inputs = {"assumeRolePolicy": json.dumps({"Statement": [statement]}), "tags": tags}

    def provider_findings(provider: Provider | None) -> list[tuple[str, str]]:
        role = pack.object_of(aws.ROLE, inputs, "r", None, provider)
        return [(finding.rule, finding.given.rpartition(", ")[2]) for finding in findings([role])]

    assert provider_findings(Provider(allowedAccountIds='["111122223333"]')) == []
    assert provider_findings(Provider(allowedAccountIds='["444455556666"]')) == [("id-05", "outside of 444455556666")]
    unsaid = [("id-05", "in accounts that no allowedAccountIds names")]
    assert provider_findings(Provider(region="eu-central-1")) == unsaid
    assert provider_findings(Provider(allowedAccountIds="no list")) == [("id-05", "outside of no list")]
    assert provider_findings(None) == unsaid


def test_what_the_product_permits_breaks_no_rule() -> None:
    """Documents of the bank's roles, as the engine sends them, those of tenants with the tenant's tag."""
    loaded = load(ROOT / "stacks" / "bank")
    plan = make_plan(loaded, loaded.day)
    assert plan.cluster
    assert plan.platform.data
    assert plan.platform.data.boundary
    tenant_policies = [(t.name, role.policies.values()) for t in plan.tenants if t.aws for role in t.aws.roles]
    machines = [(None, role.inline.values()) for role in plan.cluster.roles.values()]
    limits = [(None, [plan.platform.data.boundary.document])]
    policies = [
        policy(*document["Statement"], tenant=owner)
        for owner, all_of in [*tenant_policies, *machines, *limits]
        for document in all_of
    ]
    assert len(policies) > 30
    assert findings(policies) == []


def test_two_templates_of_one_tenant_may_share_a_isolation_resource() -> None:
    fraud_tags = {"tags": {vocabulary.TENANT_TAG: "fraud"}}
    risk_tags = {"tags": {vocabulary.TENANT_TAG: "risk"}}
    first, right = efa_template("a", "sg-0a"), efa_template("b", "sg-0a")
    assert findings([{**first, **fraud_tags}, {**right, **fraud_tags}]) == []
    assert [finding.rule for finding in findings([{**first, **fraud_tags}, {**right, **risk_tags}])] == ["pool-06"]


def test_two_isolation_that_are_not_known_yet_are_told_of(pack: ModuleType) -> None:
    path = ("networkInterfaces", 1, "securityGroups", 0)
    first, right = (unknown_at(efa_template(name, "sg-0a"), path) for name in "ab")
    messages = judged(pack, [first, right])
    assert messages["isolation-stack"] == []
    assert [text[:7] for text in messages["isolation-stack-advisory"]] == ["pool-06"]
    assert not any(judged(pack, [first]).values()), "one alone has nothing to share"


def test_interfaces_without_a_group_share_the_default_one() -> None:
    first, right = (with_field(efa_template(n, "x"), ("networkInterfaces", 1, "securityGroups"), None) for n in "ab")
    assert [finding.rule for finding in findings([first, right])] == ["pool-06"]


def test_classes_without_efa_may_choose_the_same_group() -> None:
    term = {"tags": {"aws:eks:cluster-name": "c"}}
    both = [node_class(name, securityGroupSelectorTerms=[term]) for name in "ab"]
    assert findings(both) == []
    assert [finding.rule for finding in findings([efa_class(name, term) for name in "ab"])] == ["pool-06"]


def test_an_overlay_for_the_type_is_one_for_the_pool() -> None:
    pool = node_pool("p", P5, [GPU_TAINT], {MIG_CONFIG: "all-1g.10gb"})
    by_type = with_field(overlay("o", "p"), ("spec", "requirements"), [P5])
    other_type = with_field(
        overlay("o", "p"), ("spec", "requirements"), [one_of("node.kubernetes.io/instance-type", "p4d.24xlarge")]
    )
    priced = with_field(overlay("o", "p"), ("spec", "capacity"), {"smarter-devices/fuse": "1"})
    assert findings([pool, by_type]) == []
    for useless in (other_type, priced):
        assert [finding.rule for finding in findings([pool, useless])] == ["mig-04"]


def test_a_configuration_that_is_none_is_named() -> None:
    broken = release("o", {"devicePlugin": {"config": {"create": True, "data": {"any": "sharing: ["}}}})
    assert [finding.rule for finding in findings([broken])] == ["share-02"]
