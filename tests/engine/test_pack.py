"""The policy pack in the real engine, on a program that is not ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from engine_project import ROOT, Done, Project
from pack_cases import CASES, OBJECT_CASES, manifest

from tenancy.components.manifest import resource_type
from tenancy.rules.catalogue import RULES

# The provider only renders here: what is judged is the pack, and no cluster has to take these objects.
PROGRAM = """\
import json, pathlib, pulumi

provider = pulumi.ProviderResource("kubernetes", "kubernetes", {"renderYamlToDirectory": "rendered"})
options = pulumi.ResourceOptions(provider=provider)

def make(name, token, inputs):
    return pulumi.CustomResource(token, name, inputs, options)

first = make("first", "kubernetes:core/v1:ConfigMap", {"metadata": {"name": "first", "namespace": "default"}})
for index, (token, inputs) in enumerate(json.loads(pathlib.Path("objects.json").read_text())):
    if inputs.pop("unknown", False):
        inputs["spec"] = {"hard": {"pods": first.id}}
    make(f"r{index}", token, inputs)
"""


class Foreign:
    """Somebody else's program, with objects of its own."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.folder = project, folder
        (folder / "state").mkdir(parents=True)
        (folder / "__main__.py").write_text(PROGRAM)
        options = {"virtualenv": sys.prefix}
        (folder / "Pulumi.yaml").write_text(
            json.dumps({"name": "foreign", "runtime": {"name": "python", "options": options}})
        )
        self.env = {"PULUMI_BACKEND_URL": (folder / "state").as_uri()}
        done = self.pulumi("stack", "init", "dev")
        assert done.code == 0, done.text

    def pulumi(self, *arguments: str) -> Done:
        return self.project.run("pulumi", *arguments, "--non-interactive", env=self.env, folder=self.folder)

    def preview(self, objects: Iterable[dict[str, Any]], config: dict[str, Any] | None = None) -> Done:
        inputs = [[resource_type(item), item] for item in objects]
        (self.folder / "objects.json").write_text(json.dumps(inputs))
        (self.folder / "config.json").write_text(json.dumps(config or {}))
        packs = ["--policy-pack", str(self.project.folder / "policy"), "--policy-pack-config", "config.json"]
        return self.pulumi("preview", "--stack", "dev", *packs)


@pytest.fixture(scope="module")
def foreign(_copy: Project, tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    _copy.ready()
    shutil.copytree(ROOT / "policy", _copy.folder / "policy", dirs_exist_ok=True)
    return Foreign(_copy, tmp_path_factory.mktemp("foreign") / "program")


@pytest.fixture(scope="module")
def broken(foreign: Foreign) -> Done:
    """Every rule broken, in one program."""
    return foreign.preview(item for case in CASES for item in case.broken)


@pytest.fixture(scope="module")
def mended(foreign: Foreign) -> Done:
    return foreign.preview(item for case in CASES for item in case.mended)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_preview_shows_each_broken_rule_with_its_reason_and_fix(broken: Done, case: Any) -> None:
    assert broken.code != 0
    lines = [line for line in broken.out.splitlines() if f"{case.rule}: {case.finding}: given " in line]
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
