"""The policy pack in the real engine, on a program that is not ours."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_double import AwsDouble
from engine_project import ROOT, CommandResult, Project, end
from pack_cases import (
    OBJECT_CASES,
    REGULATED_CASES,
    Case,
    efa_template,
    group,
    isolation_resources,
    manifest,
    namespace,
    resource,
    template,
    with_field,
)
from pack_worlds import case_of_each_rule, together, worlds

from tenancy.catalog import vocabulary
from tenancy.planning import make_plan
from tenancy.rules import aws
from tenancy.rules.catalogue import RULES
from tenancy.spec.loader import load
from tests.conftest import in_days, nonempty
from tests.printed import compare, page_block

Programs = Callable[[], Iterable[tuple[Case, ...]]]
WORLDS = [
    pytest.param(lambda: [case_of_each_rule()], id="each-rule"),
    pytest.param(
        worlds,
        id="every-case",
        marks=pytest.mark.exhaustive(
            reason=(
                "every case of every rule; `make test` has a case of each rule in one program, and all of them in "
                "tests/unit/policy_pack/test_policy_pack_whole.py"
            )
        ),
    ),
]

# The Kubernetes provider only renders here, and AWS is a double: what is judged is the pack.
PROGRAM = """\
import json, pathlib, pulumi

OPTIONS = {
    "aws": {"region": "eu-central-1"},
    "kubernetes": {"renderYamlToDirectory": "rendered"},
}
providers = {name: pulumi.ProviderResource(name, name, options) for name, options in OPTIONS.items()}
sources = {}

spaces = []

def make(name, token, inputs):
    options = pulumi.ResourceOptions(provider=providers[token.partition(":")[0]], protect=inputs.pop("protected", None))
    # As programs have it: what is in a namespace comes after it.
    options.depends_on = [*spaces] if (inputs.get("metadata") or {}).get("namespace") else None
    made = pulumi.CustomResource(token, name, inputs, options)
    if token == "kubernetes:core/v1:Namespace":
        spaces.append(made)
    return made

first = make("first", "kubernetes:core/v1:ConfigMap", {"metadata": {"name": "first", "namespace": "default"}})
for index, (token, name, inputs, source) in enumerate(json.loads(pathlib.Path("objects.json").read_text())):
    if inputs.pop("unknown", False):
        inputs["spec"] = {"hard": {"pods": first.id}}
    if source:
        field, *of = source
        known = sources[tuple(of)].id
        inputs[field] = {"id": known, "version": "1"} if field == "launchTemplate" else known
    if "NEW" in json.dumps(inputs.get("networkInterfaces", "")):
        wall = make(f"{name}-wall", "aws:ec2/securityGroup:SecurityGroup", {"vpcId": "vpc-0a"})
        for interface in inputs["networkInterfaces"]:
            interface["securityGroups"] = [wall.id]
    sources[token, name] = make(name if token.startswith("aws:") else f"r{index}", token, inputs)
"""

CHARTS = ("gpu-operator", "kueue", "redis")
"""In place of published ones: Helm looks for a chart's folder before it asks a repository."""


class Foreign:
    """A foreign program, with objects of its own."""

    def __init__(self, project: Project, folder: Path, double: AwsDouble) -> None:
        self.project, self.folder = project, folder
        (folder / "state").mkdir(parents=True)
        (folder / "__main__.py").write_text(PROGRAM)
        for name in CHARTS:
            chart = folder / name
            (chart / "templates").mkdir(parents=True)
            (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 0.0.0\n")
        options = {"virtualenv": sys.prefix}
        (folder / "Pulumi.yaml").write_text(
            json.dumps({"name": "foreign", "runtime": {"name": "python", "options": options}})
        )
        self.env = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), **double.environ}
        result = self.pulumi("stack", "init", "dev")
        assert result.code == 0, result.text

    def pulumi(self, *arguments: str) -> CommandResult:
        return self.project.run("pulumi", *arguments, "--non-interactive", env=self.env, folder=self.folder)

    def run(
        self, command: str, objects: Iterable[dict[str, Any]], config: dict[str, Any] | None = None
    ) -> CommandResult:
        sent = [resource(item) for item in objects]
        for pack_resource in sent:
            if "chart" in pack_resource.inputs:
                pack_resource.inputs["chart"] = pack_resource.inputs["chart"].rpartition("/")[2]
        (self.folder / "objects.json").write_text(json.dumps([[s.type, s.name, s.inputs, s.source] for s in sent]))
        (self.folder / "config.json").write_text(json.dumps(config or {}))
        packs = ["--policy-pack", str(self.project.folder / "policy"), "--policy-pack-config", "config.json"]
        sure = ("--yes", "--skip-preview") if command == "up" else ()
        return self.pulumi(command, "--stack", "dev", *packs, *sure)

    def preview(self, objects: Iterable[dict[str, Any]], config: dict[str, Any] | None = None) -> CommandResult:
        return self.run("preview", objects, config)


@pytest.fixture(scope="module")
def foreign(_copy: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    _copy.start_lab()
    shutil.copytree(ROOT / "policy", _copy.folder / "policy", dirs_exist_ok=True)
    with AwsDouble() as double:
        yield Foreign(_copy, tmp_path_factory.mktemp("foreign") / "program", double)
    end(_copy)


@pytest.mark.parametrize("programs", WORLDS)
def test_a_preview_shows_each_broken_rule_with_its_reason_and_fix(foreign: Foreign, programs: Programs) -> None:
    for cases in nonempty(programs()):
        result = foreign.preview(together(cases, "broken") or ())
        assert result.code != 0
        missing = []
        for case in cases:
            lines = [line for line in result.out.splitlines() if f"{case.rule}: {case.finding}: given " in line]
            rule = RULES[case.rule]
            # pod-04 names the values that the level allows.
            fix = "write the fields so that" if case.rule == "pod-04" else rule.fix_of_object or rule.fix
            if not (lines and rule.why in lines[0] and f"fix: {fix}" in lines[0]):
                missing.append((case.id, lines[:1]))
        assert missing == []


@pytest.mark.parametrize("programs", WORLDS)
def test_the_same_program_with_every_field_mended_passes(foreign: Foreign, programs: Programs) -> None:
    for cases in nonempty(programs()):
        result = foreign.preview(together(cases, "mended") or ())
        assert result.code == 0, result.text
        assert "mandatory" not in result.out
        assert "advisory" not in result.out


REGULATED = {"isolation": {"preset": "regulated"}}


@pytest.mark.exhaustive(reason="another preset in the real engine; presets are in tests/unit/policy_pack")
def test_what_is_regulated_is_asked_by_that_preset_alone(foreign: Foreign) -> None:
    broken = together(REGULATED_CASES, "broken") or ()
    assert broken
    refused = foreign.preview(broken, REGULATED)
    assert refused.code != 0
    missing = [case.id for case in REGULATED_CASES if f"{case.rule}: {case.finding}: given " not in refused.out]
    assert missing == []
    restricted = foreign.preview(broken)
    assert restricted.code == 0, restricted.text
    assert "reg-0" not in restricted.out
    mended = foreign.preview(together(REGULATED_CASES, "mended") or (), REGULATED)
    assert mended.code == 0, mended.text


@pytest.mark.exhaustive(
    reason="levels of rules in the real engine; each is in tests/unit/policy_pack/test_policy_pack.py"
)
def test_a_rule_can_be_advisory_disabled_and_nothing_that_there_is_not(foreign: Foreign) -> None:
    quota = next(case for case in OBJECT_CASES if case.rule == "quota-01")
    net = next(case for case in OBJECT_CASES if case.rule == "net-05")
    result = foreign.preview(
        (*quota.broken, *net.broken), {"isolation": {"quota-01": "advisory", "net-05": "disabled"}}
    )
    assert result.code == 0, result.text
    assert f"quota-01: {quota.finding}" in result.out
    assert "advisory" in result.out
    assert "net-05" not in result.out
    for config, error_text in (
        ({"quota-99": "advisory"}, "quota-99"),
        ({"quota-01": "loud"}, "quota-01 must be one of"),
    ):
        refused = foreign.preview(quota.mended, {"isolation": config})
        assert refused.code != 0
        assert error_text in refused.out
        assert "Traceback" not in refused.out


def test_what_a_preview_does_not_know_yet_is_said_and_does_not_stop_it(foreign: Foreign) -> None:
    quota = {**manifest("v1", "ResourceQuota", "later", namespace="acme--main"), "unknown": True}
    patch = {"apiVersion": "v1", "kind": "ConfigMapPatch", "metadata": {"name": "p", "namespace": "default"}}
    result = foreign.preview([quota, patch])
    assert result.code == 0, result.text
    assert "seen-02: ResourceQuota acme--main/later: given spec.hard.pods: not known until apply" in result.out
    assert "failed to run policy" not in result.text
    assert "Traceback" not in result.text
    regulated = foreign.preview([quota], {"isolation": {"preset": "regulated"}})
    assert regulated.code != 0
    assert "seen-02: ResourceQuota acme--main/later" in regulated.out


@pytest.mark.exhaustive(
    reason=(
        "groups of EFA that are made in the same run; tests/unit/policy_pack/test_policy_pack.py has them, and "
        "what is not known yet is in `make test`"
    )
)
def test_two_isolation_that_are_made_in_the_same_run_are_told_of_and_stop_nothing(foreign: Foreign) -> None:
    result = foreign.preview([efa_template("left", "NEW"), efa_template("right", "NEW")])
    assert result.code == 0, result.text
    assert f"pool-06: {aws.TEMPLATE} right: given security group not known until apply" in result.out


@pytest.mark.exhaustive(reason="a node group of another tool in the real engine; the rule is in tests/unit/policy_pack")
def test_a_node_group_of_another_tool_is_judged_by_the_template_that_it_names(foreign: Foreign) -> None:
    base = template("gpus", instanceType="g6.12xlarge")
    bare = group("bare", templates=[base])
    result = foreign.preview([base, bare])
    assert result.code != 0
    assert f"node-03: {aws.GROUP} bare: given no taint on g6.12xlarge" in result.out
    plain = template("plain", instanceType="m7i.large")
    assert foreign.preview([plain, group("bare", templates=[plain])]).code == 0


@pytest.mark.exhaustive(
    reason="compares a page of the documentation with what is printed; the findings are in `make test`"
)
def test_the_page_of_the_pack_shows_what_a_preview_prints(foreign: Foreign) -> None:
    gpus = {"spec": {"hard": {"nvidia.com/gpu": "8"}}}
    objects = [namespace("vision", "vision"), manifest("v1", "ResourceQuota", "gpus", gpus, "vision", "vision")]
    levels = page_block("policy.md", "cat levels.json").output
    until = json.loads(levels)["isolation"]["exceptions"][0]["until"]
    blocks = {
        "{}": page_block("policy.md", "pulumi preview --policy-pack path"),
        levels: page_block("policy.md", "pulumi preview --policy-pack policy"),
    }
    for config, block in blocks.items():
        result = foreign.preview(objects, json.loads(config.replace(until, in_days(30))))
        replacements = {
            str(foreign.project.folder / "policy"): "path/to/gpu-tenancy/policy",
            "ResourceQuota: r1)": "ResourceQuota: gpus)",  # the program numbers its resources
            in_days(30): until,
        }
        output = functools.reduce(lambda text, pair: text.replace(*pair), replacements.items(), result.out)
        compare(block, output)


# The product's own plan


@pytest.mark.exhaustive(
    reason=(
        "the plan of this product in the real engine; tests/unit/policy_pack/test_policy_pack.py weakens each of "
        "its resources, and tests/engine/test_pull_requests.py runs the pack over that plan"
    )
)
def test_whatever_isolation_resource_of_the_products_own_plan_falls_a_preview_names_it(foreign: Foreign) -> None:
    loaded = load(ROOT / "stacks" / "local")
    plan = [
        {**item, aws.PROTECTED: True} if item["kind"] == "Namespace" else item
        for item in make_plan(loaded, loaded.day).objects()
    ]
    full_preview = foreign.preview(plan)
    assert full_preview.code == 0, full_preview.text
    assert "mandatory" not in full_preview.out
    assert "advisory" not in full_preview.out

    def first(kind: str, name: str = "") -> dict[str, Any]:
        return next(item for item in plan if item["kind"] == kind and item["metadata"]["name"].endswith(name))

    deny, bound = first("NetworkPolicy", "default-deny"), first("ValidatingAdmissionPolicyBinding")
    share, people = first("ClusterQueue"), first("RoleBinding")
    weakened_items = {
        id(deny): None,
        id(bound): None,
        id(share): with_field(share, ("spec", "namespaceSelector"), {}),
        id(people): with_field(people, ("subjects", 0, "name"), "system:authenticated"),
    }
    weak = [replacement for item in plan if (replacement := weakened_items.get(id(item), item))]
    where = people["metadata"]
    expected_texts = [
        f"ns-04: Namespace {deny['metadata']['namespace']}: given no default-deny NetworkPolicy",
        f"guard-02: ValidatingAdmissionPolicy {bound['spec']['policyName']}: given no",
        f"kueue-11: ClusterQueue {share['metadata']['name']}: given",
        f"rbac-05: RoleBinding {where['namespace']}/{where['name']}: given",
    ]
    result = foreign.preview(weak)
    assert result.code != 0
    assert [text for text in expected_texts if text not in result.out] == []


# Exceptions


@pytest.mark.exhaustive(reason="exceptions in the real engine; their days are in tests/unit/policy_pack")
def test_an_exception_of_a_file_holds_until_its_day(foreign: Foreign) -> None:
    quota = next(case for case in OBJECT_CASES if case.rule == "quota-01")
    waiver = {
        "rule": "quota-01",
        "resource": quota.finding,
        "reason": "counted by another controller",
        "owner": "platform@bank.example",
        "until": in_days(99),
    }
    path = foreign.folder / "exceptions.yaml"
    config = {"isolation": {"exceptions": str(path)}}
    path.write_text(json.dumps([waiver]))
    excepted = foreign.preview(quota.broken, config)
    assert excepted.code == 0, excepted.text
    assert f"excepted: quota-01 for {quota.finding} until {waiver['until']}, platform@bank.example" in excepted.out
    path.write_text(json.dumps([{**waiver, "until": "2026-01-31"}]))
    ended = foreign.preview(quota.broken, config)
    assert ended.code != 0
    assert "an expired exception" in ended.out
    assert f"quota-01: {quota.finding}: given" in ended.out
    path.write_text(json.dumps([{**waiver, "rule": "quota-99"}]))
    refused = foreign.preview(quota.mended, config)
    assert refused.code != 0
    assert f"{path}: exceptions[0].rule: 'quota-99', an unknown rule" in refused.text
    inline = {"isolation": {"exceptions": [{key: value for key, value in waiver.items() if key != "owner"}]}}
    unowned = foreign.preview(quota.mended, inline)
    assert unowned.code != 0
    assert "owner" in unowned.text


# Remedies


@pytest.mark.exhaustive(reason="what is mended in the real engine; each mending is in tests/unit/policy_pack")
def test_what_can_be_mended_safely_is_made_as_it_should_be(foreign: Foreign) -> None:
    space = namespace("acme--main", "acme")
    dead, *others = isolation_resources("acme--main", "acme")
    dead = {**dead, "spec": {"hard": {"pods": "1", "nvidia.com/gpu": "4"}}, "metadata": {**dead["metadata"]}}
    del dead["metadata"]["labels"]
    program = (space, dead, *others)
    refused = foreign.preview(program)
    assert refused.code != 0
    assert "quota-01: ResourceQuota acme--main/isolation" in refused.out
    result = foreign.run("up", program, {"isolation": {"enforcementLevel": "remediate"}})
    try:
        assert result.code == 0, result.text
        quota_files = list((foreign.folder / "rendered").rglob("*resourcequota-acme--main-isolation*"))
        assert len(quota_files) == 1
        quota_object = yaml.safe_load(quota_files[0].read_text())
        assert quota_object["spec"]["hard"] == {"pods": "1", "requests.nvidia.com/gpu": "4"}
        assert quota_object["metadata"]["labels"][vocabulary.TENANT] == "acme"
    finally:
        foreign.pulumi("destroy", "--stack", "dev", "--yes")
