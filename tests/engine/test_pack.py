"""The policy pack in the real engine, on a program that is not ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble
from engine_project import ROOT, Done, Project
from pack_cases import CASES, OBJECT_CASES, Case, efa_template, group, manifest, resource, template

from tenancy.rules import aws
from tenancy.rules.catalogue import RULES

# The Kubernetes provider only renders here, and AWS is a double: what is judged is the pack.
PROGRAM = """\
import json, pathlib, pulumi

OPTIONS = {
    "aws": {"region": "eu-central-1"},
    "kubernetes": {"renderYamlToDirectory": "rendered"},
}
providers = {name: pulumi.ProviderResource(name, name, options) for name, options in OPTIONS.items()}
templates = {}

def make(name, token, inputs):
    provider = providers[token.partition(":")[0]]
    return pulumi.CustomResource(token, name, inputs, pulumi.ResourceOptions(provider=provider))

first = make("first", "kubernetes:core/v1:ConfigMap", {"metadata": {"name": "first", "namespace": "default"}})
for index, (token, name, inputs, template) in enumerate(json.loads(pathlib.Path("objects.json").read_text())):
    if inputs.pop("unknown", False):
        inputs["spec"] = {"hard": {"pods": first.id}}
    if template:
        inputs["launchTemplate"] = {"id": templates[template].id, "version": "1"}
    if "NEW" in json.dumps(inputs.get("networkInterfaces", "")):
        wall = make(f"{name}-wall", "aws:ec2/securityGroup:SecurityGroup", {"vpcId": "vpc-0a"})
        for interface in inputs["networkInterfaces"]:
            interface["securityGroups"] = [wall.id]
    made = make(name if token.startswith("aws:") else f"r{index}", token, inputs)
    if token == "aws:ec2/launchTemplate:LaunchTemplate":
        templates[name] = made
"""


class Foreign:
    """Somebody else's program, with objects of its own."""

    def __init__(self, project: Project, folder: Path, double: AwsDouble) -> None:
        self.project, self.folder = project, folder
        (folder / "state").mkdir(parents=True)
        (folder / "__main__.py").write_text(PROGRAM)
        # In place of NVIDIA's: Helm looks for a chart's folder before it asks a repository.
        chart = folder / "gpu-operator"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: gpu-operator\nversion: 0.0.0\n")
        options = {"virtualenv": sys.prefix}
        (folder / "Pulumi.yaml").write_text(
            json.dumps({"name": "foreign", "runtime": {"name": "python", "options": options}})
        )
        self.env = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), **double.environ}
        done = self.pulumi("stack", "init", "dev")
        assert done.code == 0, done.text

    def pulumi(self, *arguments: str) -> Done:
        return self.project.run("pulumi", *arguments, "--non-interactive", env=self.env, folder=self.folder)

    def preview(self, objects: Iterable[dict[str, Any]], config: dict[str, Any] | None = None) -> Done:
        sent = [resource(item) for item in objects]
        (self.folder / "objects.json").write_text(json.dumps([[s.type, s.name, s.inputs, s.template] for s in sent]))
        (self.folder / "config.json").write_text(json.dumps(config or {}))
        packs = ["--policy-pack", str(self.project.folder / "policy"), "--policy-pack-config", "config.json"]
        return self.pulumi("preview", "--stack", "dev", *packs)


@pytest.fixture(scope="module")
def foreign(_copy: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    _copy.ready()
    shutil.copytree(ROOT / "policy", _copy.folder / "policy", dirs_exist_ok=True)
    with AwsDouble() as double:
        yield Foreign(_copy, tmp_path_factory.mktemp("foreign") / "program", double)


@pytest.fixture(scope="module")
def broken(foreign: Foreign) -> Done:
    """Every rule broken, in one program."""
    return foreign.preview(item for case in CASES for item in case.broken)


@pytest.fixture(scope="module")
def mended(foreign: Foreign) -> Done:
    return foreign.preview(item for case in CASES for item in case.mended)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_preview_shows_each_broken_rule_with_its_reason_and_fix(broken: Done, case: Case) -> None:
    assert broken.code != 0
    # Without their CRDs the provider takes Karpenter's objects and the operator's for namespaced ones.
    shown = broken.out.replace(" default/", " ").splitlines()
    lines = [line for line in shown if f"{case.rule}: {case.finding}: given " in line]
    assert lines, f"{case.rule} on {case.finding} is not shown"
    assert RULES[case.rule].why in lines[0]
    assert RULES[case.rule].fix in lines[0]


def test_the_same_program_with_every_field_mended_passes(mended: Done) -> None:
    assert mended.code == 0, mended.text
    assert "mandatory" not in mended.out
    assert "advisory" not in mended.out


def test_a_refusal_takes_no_longer_than_a_pass(broken: Done, mended: Done) -> None:
    assert broken.seconds < 2 * mended.seconds + 1


def test_a_rule_can_be_advisory_disabled_and_nothing_that_there_is_not(foreign: Foreign) -> None:
    quota = next(case for case in OBJECT_CASES if case.rule == "quota-01")
    net = next(case for case in OBJECT_CASES if case.rule == "net-05")
    done = foreign.preview((*quota.broken, *net.broken), {"isolation": {"quota-01": "advisory", "net-05": "disabled"}})
    assert done.code == 0, done.text
    assert f"quota-01: {quota.finding}" in done.out
    assert "advisory" in done.out
    assert "net-05" not in done.out
    for config, named in (({"quota-99": "advisory"}, "quota-99"), ({"quota-01": "loud"}, "quota-01 must be one of")):
        refused = foreign.preview(quota.mended, {"isolation": config})
        assert refused.code != 0
        assert named in refused.out
        assert "Traceback" not in refused.out


def test_what_a_preview_does_not_know_yet_is_said_and_does_not_stop_it(foreign: Foreign) -> None:
    quota = {**manifest("v1", "ResourceQuota", "later", namespace="acme--main"), "unknown": True}
    patch = {"apiVersion": "v1", "kind": "ConfigMapPatch", "metadata": {"name": "p", "namespace": "default"}}
    done = foreign.preview([quota, patch])
    assert "ResourceQuota acme--main/later: spec.hard.pods: not known until apply" in done.out
    assert "isolation" in done.out
    assert "failed to run policy" not in done.text
    assert "Traceback" not in done.text


def test_two_walls_that_are_made_in_the_same_run_are_told_of_and_stop_nothing(foreign: Foreign) -> None:
    done = foreign.preview([efa_template("left", "NEW"), efa_template("right", "NEW")])
    assert done.code == 0, done.text
    assert f"pool-06: {aws.TEMPLATE} right: given security group not known until apply" in done.out


def test_a_node_group_of_another_tool_is_judged_by_the_template_that_it_names(foreign: Foreign) -> None:
    base = template("gpus", instanceType="g6.12xlarge")
    bare = group("bare", templates=[base])
    done = foreign.preview([base, bare])
    assert done.code != 0
    assert f"node-03: {aws.GROUP} bare: given no taint on g6.12xlarge" in done.out
    plain = template("plain", instanceType="m7i.large")
    assert foreign.preview([plain, group("bare", templates=[plain])]).code == 0
