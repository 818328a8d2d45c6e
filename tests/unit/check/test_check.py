"""`tenancy check`: what is read, whose it is, what is waived and how it is said."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from check_cases import pod
from click.testing import CliRunner, Result
from pack_cases import (
    GPU_TAINT,
    P5,
    binding,
    isolation_resources,
    local_queue,
    namespace,
    node_pool,
    of_space,
    overlay,
    with_field,
)

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.check import outputs
from tenancy.check.adopt import PLATFORMS, adopt
from tenancy.check.judge import JUDGED, PLATFORM, CheckResult, judge
from tenancy.check.reader import FilePosition, Manifests, read
from tenancy.cli import main
from tenancy.kube.kinds import GROUPS
from tenancy.kube.objects import UNKNOWN
from tenancy.planning import make_plan
from tenancy.planning.render import write
from tenancy.rules.catalogue import RULES, Violation
from tenancy.rules.exceptions import FIELDS, waivers
from tenancy.rules.findings import Finding
from tenancy.rules.levels import PolicyPreset, RuleLevel, level_of
from tenancy.rules.model import Severity
from tenancy.rules.nodes import MIG_CONFIG
from tenancy.spec.loader import load
from tests.conftest import in_days, nonempty

ROOT = Path(__file__).parents[3]
FOREIGN = ROOT / "tests" / "foreign"
MISTAKES = FOREIGN / "mistakes"
QUOTA = "ResourceQuota team-a/gpus"
Object = dict[str, Any]


@pytest.fixture(autouse=True)
def _in_repository_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(*words: object, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["check", *map(str, words)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is given"
    return result


def verdict(*items: Object, **settings: Any) -> CheckResult:
    return judge(Manifests([(item, FilePosition("x.yaml", 1)) for item in items]), **settings)


def thing(kind: str, name: str, space: str | None = None, **body: Any) -> Object:
    metadata = {"name": name, **({"namespace": space} if space else {})}
    group = min(GROUPS.get(kind, {""}))
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **body}


def rules_of(*items: Object, **settings: Any) -> set[tuple[str, str]]:
    return {
        (placed_finding.finding.rule, placed_finding.tenant) for placed_finding in verdict(*items, **settings).findings
    }


OPEN = {"spec": {"type": "NodePort"}}
WAIVER = {
    "rule": "quota-01",
    "resource": QUOTA,
    "reason": "counted by another controller",
    "owner": "platform@bank.example",
    "until": in_days(99),
}


# Silence


@pytest.mark.parametrize("name", ["local", "bank"])
def test_what_the_product_renders_breaks_no_rule(name: str, tmp_path: Path) -> None:
    loaded = load(ROOT / "stacks" / name)
    write(make_plan(loaded, loaded.day), tmp_path / "out")
    result = run(tmp_path / "out")
    assert result.stdout.endswith("no broken rule\n"), result.stdout
    assert (result.exit_code, result.stderr) == (0, "")
    regulated = run(tmp_path / "out", "--preset", "regulated", "--format", "json")
    assert set(re.findall(r'"rule": "([a-z]+-\d+)"', regulated.stdout)) == {"reg-01"}, "as docs/policy.md says"


@pytest.mark.parametrize("name", ["queues", "flux", "inference"])
def test_well_made_manifests_of_others_break_no_rule(name: str) -> None:
    result = run(FOREIGN / "well-made" / name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(" objects: no broken rule\n")


def test_one_tenants_folder_is_judged_by_what_it_shows(tmp_path: Path) -> None:
    loaded = load(ROOT / "stacks" / "local")
    write(make_plan(loaded, loaded.day), tmp_path / "out")
    assert run(tmp_path / "out" / "tenants" / "fraud").exit_code == 0


# Mistakes of public templates

EXPECTED = {
    "team-a": "cost-02 gpu-01 gpu-02 img-02 kueue-17 kueue-20 net-01 net-02 net-05 ns-03 ns-04 pod-02 pod-04 quota-01 "
    "quota-05 rbac-02 rbac-04 rbac-05",
    "team-b": "cost-02 id-04 kueue-20 ns-03 ns-04 quota-02",
    PLATFORM: "ami-02 guard-01 guard-02 kueue-11 kueue-12 kueue-13 kueue-15 kueue-16 mig-01 node-01 node-02 node-06 "
    "node-10 share-02",
}


@pytest.mark.parametrize("tenant", EXPECTED)
def test_the_mistakes_of_public_templates_are_found(tenant: str) -> None:
    findings = judge(read([str(MISTAKES)])).findings
    assert {placed_finding.finding.rule for placed_finding in findings if placed_finding.tenant == tenant} == set(
        EXPECTED[tenant].split()
    )


def test_an_object_has_the_line_at_which_it_begins() -> None:
    for _, object_name, place in nonempty(judge(read([str(MISTAKES)])).objects):
        line = Path(place.file).read_text().splitlines()[place.line - 1]
        assert line.startswith("apiVersion: "), place
        kind, _, name = object_name.partition(" ")
        following = "\n".join(Path(place.file).read_text().splitlines()[place.line :][:4])
        assert f"kind: {kind}" in following
        assert name.rpartition("/")[2] in following


@pytest.mark.parametrize(
    ("rule", "object_name", "line"),
    [
        ("ns-03", "Namespace team-a", "apiVersion: v1"),  # what is wrong is that a label is absent
        ("gpu-01", "Deployment team-a/notebook", "      runtimeClassName: nvidia"),
        ("gpu-02", "Deployment team-a/notebook", "          env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"),
        ("img-02", "Deployment team-a/notebook", "          image: jupyter/tensorflow-notebook"),
        ("pod-02", "Deployment team-a/notebook", "      hostIPC: true"),
        (
            "net-01",
            "Service team-a/notebook",
            "spec: {type: LoadBalancer, selector: {app: notebook}, ports: [{port: 80}]}",
        ),
        ("guard-01", "ValidatingAdmissionPolicy images", "  failurePolicy: Ignore"),
    ],
)
def test_a_finding_names_the_line_of_its_field(rule: str, object_name: str, line: str) -> None:
    findings = judge(read([str(MISTAKES)])).findings
    (place,) = {
        placed_finding.place
        for placed_finding in findings
        if (placed_finding.finding.rule, placed_finding.finding.object) == (rule, object_name)
    }
    assert Path(place.file).read_text().splitlines()[place.line - 1] == line


def test_an_entry_of_a_list_of_json_has_lines_of_its_fields(tmp_path: Path) -> None:
    item = thing("Service", "open", "team-a", spec={"ports": [{"port": 80}], "type": "NodePort"})
    (tmp_path / "x.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item, item]}, indent=1))
    lines = (tmp_path / "x.json").read_text().splitlines()
    (placed_finding,) = [entry for entry in judge(read([str(tmp_path)])).findings if entry.finding.rule == "net-01"]
    assert lines[placed_finding.place.line - 1].strip() == '"type": "NodePort"'


def test_advice_is_in_the_words_of_the_manifest_where_no_spec_file_is() -> None:
    bare = thing("Namespace", "team-a")
    labelled = with_field(bare, ("metadata", "labels"), {vocabulary.TENANT: "a", vocabulary.ENVIRONMENT: "local"})
    (placed_finding,) = [
        placed_finding for placed_finding in verdict(bare).findings if placed_finding.finding.rule == "ns-03"
    ]
    assert placed_finding.finding.given == f"{vocabulary.PSA_ENFORCE}: no level; {vocabulary.PSA_VERSION}: none", (
        "one finding for one fact"
    )
    assert "enforce: restricted and enforce-version: v1." in placed_finding.finding.change
    assert placed_finding.finding.change in str(placed_finding.finding)
    (placed_finding,) = [
        placed_finding for placed_finding in verdict(labelled).findings if placed_finding.finding.rule == "ns-03"
    ]
    assert placed_finding.finding.change == RULES["ns-03"].fix, "with the field of the spec file"
    bad = thing("Pod", "p", "team-a", spec={"containers": [{"name": "c", "image": "x/y:1"}]})
    (placed_finding,) = [
        placed_finding for placed_finding in verdict(bare, bad).findings if placed_finding.finding.rule == "pod-04"
    ]
    assert "allowPrivilegeEscalation of a container is false" in placed_finding.finding.change
    assert "capabilities.drop of a container contains ALL" in placed_finding.finding.change


@pytest.mark.parametrize("image", ["vllm/vllm-openai:latest", "jupyter/notebook", "x:5000/y", "x/y@sha256:abc"])
def test_an_image_by_a_tag_that_moves_is_found_in_every_kind(image: str) -> None:
    for kind in ("Pod", "Deployment", "CronJob", "RayCluster"):
        spec: Any = {"containers": [{"name": "c", "image": image}]}
        template = {"template": {"spec": spec}}
        of_kind = {
            "Pod": spec,
            "CronJob": {"schedule": "@daily", "jobTemplate": {"spec": template}},
            "RayCluster": {"headGroupSpec": template},
        }
        item = thing(kind, "x", "team-a", spec=of_kind.get(kind, template))
        item = {**item, "apiVersion": "ray.io/v1"} if kind == "RayCluster" else item
        assert ("img-02", "team-a") in rules_of(thing("Namespace", "team-a"), item), kind
        spec["containers"][0]["image"] = "x/y:1.2"
        assert ("img-02", "team-a") not in rules_of(thing("Namespace", "team-a"), item), kind


def test_an_entry_of_a_list_has_a_line_of_its_own() -> None:
    objects = read([str(FOREIGN / "well-made" / "queues" / "people.json")]).objects
    assert [(item["kind"], place.line) for item, place in objects] == [
        ("Role", 5),
        ("RoleBinding", 14),
        ("RoleBinding", 21),
    ]


# What is read

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_the_standard_input_is_read() -> None:
    result = run("-", stdin=(MISTAKES / "work.yaml").read_text())
    assert result.exit_code == 1
    assert "(stdin:9)" in result.stdout


def test_a_typed_list_names_its_entries_kind(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"apiVersion": "v1", "kind": "ServiceList", "items": [
        {"metadata": {"name": "a", "namespace": "team"}, **OPEN}]}, indent="\t"))  # fmt: skip
    assert [placed_finding.finding.object for placed_finding in judge(read([str(tmp_path)])).findings] == [
        "Service team/a"
    ]


@pytest.mark.parametrize("form", ["flux", "argo", "argo text"])
def test_a_release_of_a_chart_is_judged_by_its_values(form: str, tmp_path: Path) -> None:
    values = {"cdi": {"nriPluginEnabled": True}}
    if form == "flux":
        body = thing(
            "HelmRelease", "gpu", "flux-system", spec={"chart": {"spec": {"chart": "gpu-operator"}}, "values": values}
        )
    else:
        helm = {"valuesObject": values} if form == "argo" else {"values": yaml.safe_dump(values)}
        source = {"chart": "gpu-operator", "helm": helm}
        body = {**thing("Application", "gpu", spec={"source": source}), "apiVersion": "argoproj.io/v1alpha1"}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(body))
    assert [placed_finding.finding.rule for placed_finding in judge(read([str(tmp_path)])).findings] == ["gpu-09"]


@pytest.mark.parametrize(
    ("repository", "command"),
    [
        (
            "https://charts.example",
            "helm template llm stack --namespace team --repo https://charts.example --version 1.2 ",
        ),
        (
            "registry.example/charts",
            "helm template llm oci://registry.example/charts/stack --namespace team --version 1.2 ",
        ),
    ],
)
def test_the_command_that_renders_a_chart_names_where_it_is(repository: str, command: str, tmp_path: Path) -> None:
    spec = {
        "source": {"chart": "stack", "repoURL": repository, "targetRevision": "1.2"},
        "destination": {"namespace": "team"},
    }
    body = {**thing("Application", "llm", "argocd", spec=spec), "apiVersion": "argoproj.io/v1alpha1"}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(body))
    (entry,) = judge(read([str(tmp_path)])).findings
    assert entry.finding.rule == "seen-01"
    assert command in entry.finding.given


def test_a_charts_source_is_said_and_not_judged(tmp_path: Path) -> None:
    shutil.copy(MISTAKES / "work.yaml", tmp_path)
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "Chart.yaml").write_text("name: x\n")
    (tmp_path / "chart" / "templates" / "x.yaml").write_text("kind: {{ .Values.kind }}\n")
    result = run(tmp_path, "--all")
    assert result.exit_code == 1
    assert "not judged: chart chart in " in result.stdout
    assert "Chart.yaml:1: a chart's source: pipe `helm template` into `tenancy check -`" in result.stdout


@pytest.mark.parametrize(
    ("text", "line", "message_part"),
    [
        ("kind: [\n", 1, "did not find expected"),
        ("a: 1\nkind: {{ .Values.kind }}\n", 2, "helm template"),
        ("apiVersion: v1\nkind: Namespace\n", 1, "Namespace without a name"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: x\n", 1, "Namespace with metadata: 'x'"),
        ("a: 1\n---\napiVersion: v1\nkind: Role\nmetadata: {name: a}\nrules: x\n", 3, "Role with rules: 'x'"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [x]}\n", 1, "spec.containers: ['x']"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: [x]}\n", 1, "metadata.labels: ['x']"),
        ("apiVersion: v1\nkind: [Pod]\nmetadata: {name: a}\n", 1, "kind: ['Pod']"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: [b]}\n", 1, "metadata.namespace: ['b']"),
        ('{\n\t"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\\ud800"}}', 1, "surrogates not allowed"),
        (
            "apiVersion: argoproj.io/v1\nkind: Application\nmetadata: {name: a}\nspec: {sources: 3}\n",
            1,
            "cannot be read",
        ),
        ("[" * 90000 + "]" * 90000, 1, "too deep"),
        ("- " * 90000 + "x", 1, "too deep"),
        (BOMB, 1, "aliases of aliases"),
        ("[" + "1," * 2_000_001 + "1]", 1, "lines and commas"),
        ("- 1\n" * 2_000_001, 1, "lines and commas"),
        (
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: b}}\ndata: {{a: {'x' * 4_000_000}}}\n",
            1,
            "too large",
        ),
        ("x: 1\n", 0, "without an object"),
    ],
)
def test_what_cannot_be_judged_ends_with_2_and_its_place(
    text: str, line: int, message_part: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert message_part in result.stderr
    assert not line or f"x.yaml:{line}: given " in result.stderr
    assert "change: " in result.stderr


def policy_of_text(expression: str) -> str:
    """A policy with an expression on line 7."""
    return (
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: own}\n"
        f"spec:\n  validations:\n  - message: x\n    expression: {json.dumps(expression)}\n"
    )


@pytest.mark.parametrize("expression", ["object.spec.(", "object.a b", "object.spec.all(c, c.x", "'abc", ""])
def test_an_expression_that_does_not_compile_is_named_with_its_line(expression: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(policy_of_text(expression))
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    (sentence,) = result.stderr.splitlines()
    assert re.search(r"x\.yaml:7: given spec\.validations\[0\]\.expression: ", sentence), sentence


@pytest.mark.parametrize(
    "expression", ["object.spec.a", "params.most > 1 && url(object.a).getHost() == ip('::1')", "object.`a.b` == 1"]
)
def test_an_expression_of_functions_that_are_not_known_here_is_taken(expression: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(policy_of_text(expression))
    assert run(tmp_path).exit_code == 1, "guard-02 alone: nothing binds it"


PARTITIONED_POOL = node_pool("quarters", P5, [GPU_TAINT], {MIG_CONFIG: "quarters"})
UNREADABLE_OVERLAY = with_field(overlay("o", "quarters"), ("spec", "requirements", 0), -1)


def test_what_rules_cannot_read_beside_another_is_named_with_it_and_the_rest_is_judged() -> None:
    judged = verdict(PARTITIONED_POOL, pod(hostPID=True), UNREADABLE_OVERLAY)
    (unread,) = judged.unread
    assert unread.given.startswith("NodeOverlay o, which cannot be judged (")
    assert "beside NodePool quarters" in unread.given
    assert "pod-02" in {placed_finding.finding.rule for placed_finding in judged.findings}
    assert {name for _, name, _ in judged.objects} == {"NodePool quarters", "Pod acme/p"}
    assert not verdict(PARTITIONED_POOL, pod(hostPID=True), overlay("o", "quarters")).unread


@pytest.mark.parametrize(
    ("item", "path", "value", "fine"),
    [
        (
            binding("b", "acme--main", "acme", "tenancy-viewer", "people", "ClusterRole"),
            ("roleRef", "kind"),
            [],
            "ClusterRole",
        ),
        (isolation_resources("acme--main", "acme")[2], ("spec", "policyTypes", 0), {"x": "y"}, "Ingress"),
    ],
    ids=["role", "direction"],
)
def test_what_rules_cannot_read_in_a_tenants_namespace_ends_with_2(
    item: Object, path: tuple[Any, ...], value: Any, fine: Any
) -> None:
    other_resources = [resource for resource in isolation_resources("acme--main", "acme") if resource != item]
    for field_value, code in ((value, 2), (fine, 0)):
        items = [namespace("acme--main", "acme"), *other_resources, with_field(item, path, field_value)]
        result = run("-", stdin=yaml.safe_dump_all(items))
        assert result.exit_code == code, result.output


@pytest.mark.parametrize("name", ["nowhere.yaml", "empty", "latin.yaml"])
def test_a_path_that_cannot_be_read_ends_with_2(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nname: \xe9\n")
    result = run(tmp_path / name)
    assert result.exit_code == 2
    assert name in result.stderr


def test_settings_of_programs_are_no_objects(tmp_path: Path) -> None:
    shutil.copy(FOREIGN / "well-made" / "inference" / "team.yaml", tmp_path)
    (tmp_path / "kubelet.yaml").write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    (tmp_path / "values.yaml").write_text("kind: small\nreplicas: 2\n")
    (tmp_path / "package.json").write_text('{"name": "x", "scripts": {}}')
    result = run(tmp_path, "--all", "--strict")
    assert (result.exit_code, result.stderr) == (0, "")
    output = " ".join(result.stdout.split())
    assert "note: 3 documents are no objects of Kubernetes: " in output
    assert {name for name in ("kubelet.yaml", "values.yaml", "package.json") if name in output} != set()
    assert result.stdout.endswith("4 objects: no broken rule\n")


@pytest.mark.parametrize(
    "text", ["kind: Kustomization\napiVersion: kustomize.config.k8s.io/v1beta1\n", "resources: [a]\n"]
)
def test_a_source_of_kustomize_is_named_and_not_judged(text: str, tmp_path: Path) -> None:
    shutil.copy(FOREIGN / "well-made" / "inference" / "team.yaml", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(text)
    assert [run(tmp_path, *more).exit_code for more in ((), ("--strict",))] == [0, 1]
    assert "not judged: Kustomization in " in run(tmp_path).stdout


def test_a_broken_file_does_not_hide_what_the_others_show(tmp_path: Path) -> None:
    shutil.copy(MISTAKES / "work.yaml", tmp_path)
    (tmp_path / "broken.yaml").write_text("a: [")
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "gpu-02" in result.stdout
    assert "broken.yaml:1" in result.stderr


def _damage(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        return {**value, key: _damage(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], _damage(value[at], chance), *value[at + 1 :]]
    return chance.choice([None, "x", 3, [], {}, ["x"], {"x": "y"}, [{}], True])


def test_no_damage_to_an_object_ends_in_a_traceback() -> None:
    chance = random.Random(7)
    objects = read([str(FOREIGN)]).objects
    for _ in range(150):
        at = chance.randrange(len(objects))
        item, place = objects[at]
        key = chance.choice(list(item))
        damaged = {**item, key: _damage(item[key], chance), "kind": item["kind"], "apiVersion": "v1"}
        document = yaml.safe_dump(damaged)
        result = run("-", stdin=document)
        assert isinstance(result.exception, SystemExit | None), place


# Whose it is


@pytest.mark.parametrize(
    ("peer", "expected_rules"),
    [
        (of_space("monitoring"), set()),
        (of_space("team-a"), set()),
        (of_space("team-b"), {("net-02", "team-a")}),
        ({"matchLabels": {**of_space("monitoring")["matchLabels"], "reserved:all": ""}}, {("net-02", "team-a")}),
    ],
    ids=["platform", "own", "neighbour", "reserved"],
)
@pytest.mark.parametrize("several", [False, True])
def test_ciliums_peers_of_others_are_judged_by_whose_namespace_they_name(
    peer: Object, expected_rules: set[tuple[str, str]], several: bool
) -> None:
    spec = {"endpointSelector": {}, "ingress": [{"fromEndpoints": [peer]}]}
    policy = thing("CiliumNetworkPolicy", "p", "team-a", **({"specs": [spec]} if several else {"spec": spec}))
    rules = rules_of({**policy, "apiVersion": "cilium.io/v2"}, thing("Service", "s", "team-b"))
    assert {rule_and_tenant for rule_and_tenant in rules if rule_and_tenant[0] == "net-02"} == expected_rules


def test_every_namespace_but_the_platforms_is_a_tenant() -> None:
    items = [thing("Service", "s", space, **OPEN) for space in ("team-a", "kube-system", "gpu-operator", "monitoring")]
    assert rules_of(*items) == {("net-01", "team-a")}
    assert {"kube-system", "gpu-operator", "kueue-system", "karpenter", "argocd"} <= PLATFORMS


def test_a_namespace_can_be_named_the_platforms() -> None:
    assert rules_of(thing("Service", "s", "tools", **OPEN)) == {("net-01", "tools")}
    assert rules_of(thing("Service", "s", "tools", **OPEN), platform=["tools"]) == set()


def test_what_names_no_namespace_lands_in_default() -> None:
    assert rules_of(thing("Service", "s", **OPEN)) == {("net-01", "default")}


def test_a_label_of_others_can_say_who_is_a_tenant() -> None:
    def space(name: str, **labels: str) -> Object:
        item = namespace(name, name)
        item["metadata"]["labels"] = {**item["metadata"]["labels"], **labels}
        del item["metadata"]["labels"]["tenancy.gpu/tenant"]
        return item

    items = [space("a", customer="acme"), space("b", customer="acme"), space("c"), thing("Service", "s", "c", **OPEN)]
    assert rules_of(*items, thing("Service", "s", "b", **OPEN), label="customer") == {
        ("ns-04", "acme"),
        ("net-01", "acme"),
    }


def test_with_our_label_only_who_has_it_is_a_tenant() -> None:
    items = [
        namespace("acme--main", "acme"),
        *isolation_resources("acme--main", "acme"),
        thing("Service", "s", "tools", **OPEN),
    ]
    assert rules_of(*items, thing("Service", "s", "acme--main", **OPEN)) >= {("net-01", "acme")}
    assert "tools" not in {tenant for _, tenant in rules_of(*items, thing("Service", "s", "acme--main", **OPEN))}


def test_a_kind_of_another_api_group_is_another_kind() -> None:
    policy = thing("NetworkPolicy", "p", "team-a", spec={"ingress": [{"action": "Allow"}]})
    assert rules_of(policy) == {("net-02", "team-a")}
    assert rules_of({**policy, "apiVersion": "crd.projectcalico.org/v1"}) == set()


_PRIVILEGED = {"spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}}
_SAME_NAME = {
    "Service.serving.knative.dev": ("serving.knative.dev/v1", "Service", {"template": _PRIVILEGED}),
    "Job.batch.volcano.sh": ("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": _PRIVILEGED}]}),
    # The twin: the built-in kind of that name.
    "Job": ("batch/v1", "Job", {"template": _PRIVILEGED}),
}
"""Kind as rules name it -> API version, kind and spec of an object with a privileged container."""


@pytest.mark.parametrize("kind_name", _SAME_NAME)
def test_a_kind_with_the_name_of_a_built_in_one_keeps_its_file_and_line(
    kind_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    version, kind, spec = _SAME_NAME[kind_name]
    item = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "team-a"}, "spec": spec}
    path = Path("work.yaml")
    path.write_text(yaml.safe_dump_all([thing("ConfigMap", "before", "team-a"), item]))
    lines = path.read_text().splitlines()
    line = lines.index("---") + 2
    field = next(number for number, text in enumerate(lines, 1) if "hostNetwork" in text or "privileged" in text)
    text = run(path)
    assert text.exit_code == 1
    assert f"{path}:{field}" in text.stdout
    assert "(:1)" not in text.stdout
    sarif = json.loads(run(path, "--format", "sarif").stdout)["runs"][0]["results"]
    places = {
        (place["physicalLocation"]["artifactLocation"]["uri"], place["physicalLocation"]["region"]["startLine"])
        for result in sarif
        if result["ruleId"] == "pod-02"
        for place in result["locations"]
    }
    assert places == {(str(path), field)}
    cases = ElementTree.fromstring(run(path, "--format", "junit").stdout).iter("testcase")
    (case,) = (case for case in cases if case.get("name") == f"{kind_name} team-a/x")
    assert (case.get("classname"), case.get("file"), case.get("line")) == ("team-a", str(path), str(line))
    assert case.find("failure") is not None


def test_an_object_of_the_whole_cluster_is_in_no_namespace(tmp_path: Path) -> None:
    """The Kubernetes provider of Pulumi renders some into default."""
    queue = thing("ClusterQueue", "all", "default", spec={"namespaceSelector": {}})
    path = tmp_path / "queue.yaml"
    path.write_text(yaml.safe_dump({**queue, "apiVersion": "kueue.x-k8s.io/v1beta2"}))
    findings = judge(read([str(path)])).findings
    assert [(placed_finding.finding.object, placed_finding.tenant) for placed_finding in findings] == [
        ("ClusterQueue all", PLATFORM)
    ]


def test_a_cluster_role_for_a_tenants_service_account_is_found() -> None:
    def bound(space: str) -> Object:
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": space}
        return thing("ClusterRoleBinding", "b", roleRef={"kind": "ClusterRole", "name": "view"}, subjects=[subject])

    service = thing("Service", "s", "team-a")
    assert rules_of(service, bound("team-a")) == {("rbac-04", "team-a")}
    assert rules_of(service, bound("monitoring")) == set()
    assert rules_of(thing("Service", "s"), bound("default")) == set(), "a base of kustomize, whose overlays say where"


@pytest.mark.parametrize(
    ("peer", "wrong"),
    [
        ({"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}, False),
        ({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, False),
        ({"matchLabels": {"team": "a"}}, False),
        ({"matchLabels": {"kubernetes.io/metadata.name": "team-b"}}, True),
        ({"matchLabels": {"kind": "team"}}, True),
        ({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-b"]}]}, True),
        ({"matchLabels": {"unknown": "x"}}, True),
        ({}, True),
    ],
)
def test_a_policy_of_others_may_name_its_own_namespaces_in_its_own_way(peer: Object, wrong: bool) -> None:
    def space(name: str) -> Object:
        item = thing("Namespace", f"team-{name}")
        item["metadata"]["labels"] = {"team": name, "kind": "team"}
        return item

    rule = {"spec": {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": peer}]}]}}
    rules = rules_of(space("a"), space("b"), thing("NetworkPolicy", "p", "team-a", **rule))
    assert (("net-02", "team-a") in rules) is wrong


def test_a_share_that_two_namespaces_of_others_spend_is_found() -> None:
    def kueue(selector: Object) -> list[Object]:
        queue = thing("ClusterQueue", "all", spec={"namespaceSelector": selector})
        spaces = [thing("Namespace", name) for name in ("team-a", "team-b")]
        return [*spaces, queue, local_queue("default", "team-a", None, "all")]

    own_namespace = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    both = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}]
    }
    assert ("kueue-05", "team-a") not in rules_of(*kueue(own_namespace))
    assert ("kueue-05", "team-a") in rules_of(*kueue(both))


# A cluster's dump


def live(item: Object, uid: str, owner: str | None = None) -> Object:
    owners = [{"controller": True, "uid": owner, "kind": "ReplicaSet", "name": "r"}] if owner else []
    return {**item, "metadata": {**item["metadata"], "uid": uid, "ownerReferences": owners}}


def test_the_node_that_the_scheduler_chose_is_no_finding() -> None:
    pod = thing("Pod", "p", "team-a", spec={"nodeName": "n", "containers": []})
    assert rules_of(pod) == {("sched-02", "team-a")}
    assert rules_of(live(pod, "1")) == set()


def test_what_a_controller_made_is_judged_once() -> None:
    spec = {"runtimeClassName": "nvidia", "containers": []}
    deployment = thing("Deployment", "d", "team-a", spec={"template": {"spec": spec}})
    pod = thing("Pod", "d-1", "team-a", spec=spec)
    objects = [live(deployment, "1"), live(pod, "2", owner="1")]
    assert [placed_finding.finding.object for placed_finding in verdict(*objects).findings] == ["Deployment team-a/d"]
    assert [placed_finding.finding.object for placed_finding in verdict(live(pod, "2", owner="1")).findings] == [
        "Pod team-a/d-1"
    ]


# Levels


@pytest.mark.parametrize("rule", sorted(JUDGED))
def test_presets_are_ever_stricter(rule: str) -> None:
    strictness = [RuleLevel.DISABLED, RuleLevel.ADVISORY, RuleLevel.MANDATORY]
    levels = [strictness.index(level_of(Finding(rule, "x", "y"), preset)) for preset in PolicyPreset]
    assert levels == sorted(levels)
    assert levels[-1] == strictness.index(RuleLevel.MANDATORY)


def test_a_critical_rule_is_mandatory_in_every_preset() -> None:
    said_only = {"ns-03", "guard-03"}  # many charts need baseline; audit is a stage on the way
    critical = [r.id for r in RULES.values() if r.severity is Severity.CRITICAL and r.id not in said_only]
    assert {level_of(Finding(rule, "x", "y"), PolicyPreset.BASELINE) for rule in critical} == {RuleLevel.MANDATORY}


def test_what_is_not_known_advises_and_fails_where_it_is_regulated() -> None:
    finding = Finding("quota-01", "x", UNKNOWN)
    assert [level_of(finding, preset) for preset in PolicyPreset] == [
        RuleLevel.ADVISORY,
        RuleLevel.ADVISORY,
        RuleLevel.MANDATORY,
    ]


def test_the_preset_decides_the_exit_code() -> None:
    manifest = yaml.safe_dump(thing("EC2NodeClass", "c", spec={"amiSelectorTerms": [{"alias": "al2023@latest"}]}))
    assert run("-", stdin=manifest).exit_code == 0
    assert "consider  ami-02" in run("-", stdin=manifest).stdout
    assert run("-", "--preset", "regulated", stdin=manifest).exit_code == 1


# Exceptions


def with_exceptions(tmp_path: Path, *entries: Object) -> Path:
    path = tmp_path / "exceptions.yaml"
    path.write_text(yaml.safe_dump({"exceptions": list(entries)}))
    return path


QUOTA_ALONE = yaml.safe_dump(thing("ResourceQuota", "gpus", "team-a", spec={"hard": {"limits.nvidia.com/gpu": "4"}}))


def test_an_exception_waives_one_rule_for_one_object(tmp_path: Path) -> None:
    assert run("-", stdin=QUOTA_ALONE).exit_code == 1
    result = run("-", "--exceptions", with_exceptions(tmp_path, WAIVER), stdin=QUOTA_ALONE)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "1 object: no broken rule, 1 excepted")
    until = f"until {WAIVER['until']}"
    assert f"excepted: quota-01 for ResourceQuota team-a/gpus {until}, platform@bank.example" in result.stdout
    other_waiver = {**WAIVER, "resource": "ResourceQuota team-b/gpus"}
    assert run("-", "--exceptions", with_exceptions(tmp_path, other_waiver), stdin=QUOTA_ALONE).exit_code == 1


def excused(days: int | str = 30, **labels: str | None) -> str:
    """A namespace of the plan's below restricted, with an exception that ends in some days."""
    until = days if isinstance(days, str) else (today() + dt.timedelta(days=days)).isoformat()
    space = namespace("acme--main", "acme")
    changed_labels = {vocabulary.ENVIRONMENT: "bank", vocabulary.PSA_ENFORCE: "privileged", **labels}
    merged_labels = {
        key: value for key, value in {**space["metadata"]["labels"], **changed_labels}.items() if value is not None
    }
    notes = {vocabulary.EXCEPTIONS: f"ns-03={until}", vocabulary.OWNER_MAIL: "jane@bank.example"}
    space["metadata"] = {**space["metadata"], "labels": merged_labels, "annotations": notes}
    planned = [
        with_field(item, ("metadata", "labels", vocabulary.ENVIRONMENT), "bank")
        for item in isolation_resources("acme--main", "acme")
    ]
    return yaml.safe_dump_all([space, *planned])


def test_an_exception_that_the_plan_wrote_is_told_in_every_run() -> None:
    result = run("-", stdin=excused())
    until = today() + dt.timedelta(days=30)
    assert result.exit_code == 0
    assert f"excepted: ns-03 for Namespace acme--main until {until}, jane@bank.example: an exception" in result.stdout
    assert result.stdout.endswith("no broken rule, 1 excepted\n")


@pytest.mark.parametrize(
    ("manifest", "message_part"),
    [
        (excused(**{vocabulary.ENVIRONMENT: None}), "its exception is valid only on objects of this product"),
        (excused(400), "days ahead"),
        (excused(-1), "which is past"),
        (excused("some-day"), "its exception ends on 'some-day', which is not a day"),
    ],
    ids=["of no environment", "for ever", "over", "no day"],
)
def test_an_object_waives_no_rule_for_itself(manifest: str, message_part: str) -> None:
    result = run("-", stdin=manifest)
    assert result.exit_code == 1
    assert message_part in " ".join(result.stdout.split())


def test_an_exception_of_the_plans_lasts_a_year_at_most() -> None:
    assert run("-", stdin=excused(366)).exit_code == 0
    assert run("-", stdin=excused(368)).exit_code == 1


def test_an_exception_that_has_ended_fails_even_if_nothing_needs_it(tmp_path: Path) -> None:
    ended = {**WAIVER, "until": "2020-01-31"}
    result = run("-", "--exceptions", with_exceptions(tmp_path, ended), stdin=QUOTA_ALONE)
    assert result.exit_code == 1
    assert "expired exception: quota-01 for ResourceQuota team-a/gpus until 2020-01-31" in result.stdout
    assert "1 broken rule" in result.stdout
    good = yaml.safe_dump(thing("Service", "s", "team-a"))
    result = run("-", "--exceptions", with_exceptions(tmp_path, ended), stdin=good)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "1 object: no broken rule, 1 ended exception")


def test_an_exception_that_nothing_needs_is_told(tmp_path: Path) -> None:
    good = yaml.safe_dump(thing("Service", "s", "team-a"))
    result = run("-", "--exceptions", with_exceptions(tmp_path, WAIVER), stdin=good)
    assert (result.exit_code, result.stdout) == (0, "1 object: no broken rule, 1 unused exception\n")


@pytest.mark.parametrize(
    ("change", "message_part"),
    [
        ({"rule": "quota-99"}, "exceptions[0].rule: 'quota-99', an unknown rule"),
        ({"until": "soon"}, "exceptions[0].until: 'soon'"),
        ({"until": "2027-W05-1"}, "exceptions[0].until: '2027-W05-1'"),
        ({"until": in_days(400)}, "days ahead"),
        ({"until": None}, "exceptions[0]: no until"),
        ({"reason": "because"}, "exceptions[0].reason: 'because'"),
        ({"reason": "\u3164" * 30}, r"exceptions[0].reason: '\u3164\u3164"),
        ({"owner": "me"}, "exceptions[0].owner: 'me'"),
        ({"resource": ""}, "exceptions[0].resource: ''"),
        ({"more": "x"}, "exceptions[0]: unknown key more"),
    ],
)
def test_a_broken_exception_ends_with_2_and_is_named(change: Object, message_part: str, tmp_path: Path) -> None:
    entry = {key: value for key, value in {**WAIVER, **change}.items() if value is not None}
    result = run("-", "--exceptions", with_exceptions(tmp_path, entry), stdin=QUOTA_ALONE)
    assert result.exit_code == 2
    assert message_part in result.stderr
    assert "exceptions.yaml" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("text", ["exceptions: x\n", "[", "x: 1\n", "- 3\n"])
def test_a_file_that_is_no_list_of_exceptions_ends_with_2(text: str, tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    result = run("-", "--exceptions", path, stdin=QUOTA_ALONE)
    assert result.exit_code == 2
    assert "e.yaml" in result.stderr


def test_the_same_exception_twice_is_refused() -> None:
    with pytest.raises(Violation, match=r"exceptions\[1\]"):
        waivers([WAIVER, WAIVER])
    assert len(waivers([WAIVER])) == 1
    assert set(WAIVER) == set(FIELDS)


# How it is said


def test_the_worst_tenant_and_finding_come_first() -> None:
    lines = run(MISTAKES, "--all").stdout.splitlines()
    heads = [line.partition(":")[0] for line in lines if line and not line.startswith(" ")]
    assert heads[:3] == ["team-a", PLATFORM, "team-b"]
    severities = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    order = ["critical", "high", "medium", "consider"]
    first = severities[: severities.index("medium")]
    assert first == sorted(first, key=order.index)


def test_it_fits_on_a_screen_and_all_of_it_can_be_asked_for() -> None:
    brief, full = run(MISTAKES).stdout, run(MISTAKES, "--all").stdout
    assert len(brief.splitlines()) <= outputs.SCREEN
    assert "more: --all shows them" in brief
    assert len(full.splitlines()) > outputs.SCREEN
    assert "--all" not in full
    assert brief.splitlines()[-1] == full.splitlines()[-1]
    assert max(map(len, full.splitlines())) <= outputs.WIDTH + 20  # a path is not broken


def test_a_tenant_without_room_for_its_findings_is_named_with_their_number() -> None:
    brief = run(MISTAKES).stdout.splitlines()
    assert brief[0].startswith("team-a: ")
    assert "team-b: 3 critical, 2 high, 1 medium" in brief
    assert "platform: 3 critical, 6 high, 3 medium, 2 to consider" in brief


def test_json_says_it_all() -> None:
    output = json.loads(run(MISTAKES, "--format", "json").stdout)
    assert output["passes"] is False
    assert len(output["findings"]) == len(judge(read([str(MISTAKES)])).findings)
    (finding,) = [f for f in output["findings"] if f["rule"] == "id-04"]
    assert (finding["tenant"], finding["severity"], finding["level"]) == ("team-b", "critical", "mandatory")
    assert finding["file"] == "tests/foreign/mistakes/namespaces.yaml"


def _sarif_objects(value: Any) -> list[Object]:
    objects = [value] if isinstance(value, dict) else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        objects += _sarif_objects(inner)
    return objects


def test_sarif_has_what_its_schema_and_code_scanning_ask_for(tmp_path: Path) -> None:
    """The schema of 2.1.0 requires version, runs, tool.driver.name, message.text and rules' ids."""
    ended = {**WAIVER, "resource": "x", "until": "2020-01-31"}
    path = with_exceptions(tmp_path, WAIVER, ended)
    result = run(MISTAKES, "--exceptions", path, "--format", "sarif")
    log = json.loads(result.stdout)
    assert (result.exit_code, log["version"], set(log)) == (1, "2.1.0", {"$schema", "version", "runs"})
    (scan,) = log["runs"]
    assert set(scan) == {"tool", "invocations", "columnKind", "results"}
    described = scan["tool"]["driver"]["rules"]
    assert scan["tool"]["driver"]["name"] == "gpu-tenancy"
    assert len(scan["results"]) == len(judge(read([str(MISTAKES)])).findings) + 1
    prints = set()
    for result in scan["results"]:
        assert described[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning"}
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] >= 1
        assert not place["physicalLocation"]["artifactLocation"]["uri"].startswith("..") or result["ruleId"] == "exc-01"
        prints.add(json.dumps(result["partialFingerprints"]))
    assert len(prints) == len(scan["results"]), "a scan tells two findings apart by these"
    assert {4 <= float(rule["properties"]["security-severity"]) <= 10 for rule in described} == {True}
    (waived,) = [result for result in scan["results"] if "suppressions" in result]
    assert (waived["ruleId"], waived["suppressions"][0]["status"]) == ("quota-01", "accepted")


def test_sarif_says_what_could_not_be_judged(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: [")
    result = run(tmp_path, "--format", "sarif")
    (scan,) = json.loads(result.stdout)["runs"]
    assert (result.exit_code, scan["invocations"][0]["executionSuccessful"]) == (2, False)
    assert "x.yaml:1" in scan["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_junit_has_a_case_for_each_object_and_right_sums(tmp_path: Path) -> None:
    ended = {**WAIVER, "resource": "x", "until": "2020-01-31"}
    path = with_exceptions(tmp_path, ended)
    root = ElementTree.fromstring(run(MISTAKES, "--exceptions", path, "--format", "junit").stdout)
    cases = root.findall("testsuite/testcase")
    assert len(cases) == len(read([str(MISTAKES)]).objects) + 1
    assert root.get("tests") == str(len(cases))
    assert root.get("failures") == str(len(root.findall("testsuite/testcase/failure")))
    for suite in root.findall("testsuite"):
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))


def test_junit_skips_what_is_excepted_and_takes_any_text() -> None:
    odd = thing("ResourceQuota", "gpus", "team-a", spec={"hard": {"limits.nvidia.com/\x07<gpu>": "4"}})
    document = outputs.junit(verdict(odd, waivers=waivers([WAIVER])))
    root = ElementTree.fromstring(document)
    assert (root.get("skipped"), root.get("failures")) == ("1", "0")


def test_adopted_objects_are_copies() -> None:
    item = thing("Service", "s", "team-a", **OPEN)
    before = json.dumps(item)
    assert adopt([item]).objects[0]["metadata"]["labels"] == {"tenancy.gpu/tenant": "team-a"}
    assert json.dumps(item) == before


def test_the_manifests_of_the_textbook_break_the_rules_that_the_page_names(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "from-the-textbook.md").read_text("utf-8")
    section = page.partition("## A textbook's manifests, judged")[2].partition("\n## ")[0]
    block, prose = re.findall(r"```yaml\n(.*?)```(.*?)\Z", section, re.S)[0]
    (tmp_path / "team.yaml").write_text(block, "utf-8")
    rules = [placed_finding.finding.rule for placed_finding in judge(read([str(tmp_path)])).findings]
    assert len(rules) == int(re.findall(r"names (\d+) broken rules", prose)[0])
    assert set(rules) == set(re.findall(r"\b[a-z0-9]+-\d\d\b", prose))
