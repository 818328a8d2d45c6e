"""The policy pack on whole programs of others: those with the mistakes of public templates, and well-made ones."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble
from engine_project import ROOT, CommandResult, Project, end

from tenancy.lab import tools

pytestmark = pytest.mark.exhaustive(
    reason="whole programs of others; `make test` runs one with the mistakes in tests/engine/test_pack.py"
)

PROGRAMS = ROOT / "tests" / "foreign" / "programs"
WELL_MADE = ("research", "inference", "platform")
CONFIG = "config:\n  kubernetes:renderYamlToDirectory: rendered\n  aws:region: eu-central-1\n"
MISTAKES = (
    ("eks-01", "aws:eks/cluster:Cluster ml"),
    ("eks-02", "aws:eks/cluster:Cluster ml"),
    ("node-02", "aws:eks/nodeGroup:NodeGroup gpus"),
    ("node-03", "aws:eks/nodeGroup:NodeGroup gpus"),
    ("id-09", "aws:eks/podIdentityAssociation:PodIdentityAssociation speech-jobs"),
    ("id-04", "aws:eks/podIdentityAssociation:PodIdentityAssociation vision-jobs"),
    ("node-07", "NodePool more"),
    ("node-10", "NodePool more"),
    ("stor-09", "PersistentVolume models"),
    ("ns-04", "Namespace vision"),
    ("ns-03", "Namespace speech"),
    ("cost-02", "Namespace speech"),
    ("quota-01", "ResourceQuota vision/gpus"),  # of the SDK
    ("quota-01", "ResourceQuota speech/gpus"),  # of a patch
    ("gpu-01", "Deployment vision/notebook"),
    ("gpu-02", "Deployment vision/notebook"),
    ("pod-02", "Deployment vision/notebook"),
    ("pod-04", "Deployment vision/notebook"),
    ("net-01", "Service vision/notebook"),
    ("rbac-02", "RoleBinding vision/devs"),  # of a ConfigFile
    ("rbac-05", "RoleBinding vision/devs"),
    ("id-04", "ServiceAccount vision/jobs"),
    ("net-02", "NetworkPolicy speech/allow"),  # of a ConfigGroup of the second version
    ("net-05", "NetworkPolicy speech/allow"),
    ("kueue-11", "ClusterQueue cluster-queue"),  # of a CustomResource
    ("kueue-12", "ClusterQueue cluster-queue"),
    ("kueue-13", "ClusterQueue cluster-queue"),
    ("pod-02", "Pod speech/agent"),  # of a Chart of the fourth version
    ("pod-04", "Pod speech/agent"),
    ("gpu-09", "Release gpu-operator/gpu-operator"),  # of a Release's values
    ("pod-02", "Pod vision/notes"),  # of a Release's chart
    ("pod-04", "Pod vision/notes"),
    ("seen-01", "Release vision/tracking"),
)
Judge = Any


@pytest.fixture(scope="module")
def judge(_copy: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Run a command of the engine on a program of this name, with the pack; `check` judges what it has rendered."""
    _copy.start_lab()
    folder = tmp_path_factory.mktemp("programs")
    helm = Path(tools.ensure(only=["helm"])["helm"])
    with AwsDouble() as double:

        def run(name: str, *command: str) -> CommandResult:
            program_folder = folder / name
            env = {
                "PULUMI_BACKEND_URL": (program_folder / "state").as_uri(),
                "PWD": str(program_folder),
                **double.environ,
            }
            env["PATH"] = f"{helm.parent}:{_copy.environ()['PATH']}"
            if not program_folder.exists():
                shutil.copytree(PROGRAMS / name, program_folder, ignore=shutil.ignore_patterns("__pycache__"))
                (program_folder / "state").mkdir()
                (program_folder / "Pulumi.dev.yaml").write_text(CONFIG)
                assert _copy.run("pulumi", "stack", "init", "dev", env=env, folder=program_folder).code == 0
            pack = ("--stack", "dev", "--policy-pack", str(ROOT / "policy"), "--non-interactive")
            return _copy.run("pulumi", *command, *pack, env=env, folder=program_folder)

        def check(name: str) -> CommandResult:
            return _copy.run(sys.executable, "-m", "tenancy", "check", str(folder / name / "rendered"))

        run.check = check
        yield run
    end(_copy)


@pytest.fixture(scope="module")
def quickstart(judge: Judge) -> CommandResult:
    return judge("quickstart", "preview")


@pytest.mark.parametrize(("rule", "where"), MISTAKES, ids=lambda text: text.replace(" ", "-").replace("/", "-"))
def test_the_mistakes_of_public_templates_are_found_however_the_object_is_made(
    quickstart: CommandResult, rule: str, where: str
) -> None:
    assert quickstart.code != 0
    assert f"{rule}: {where}: given " in quickstart.out, quickstart.text


def test_what_a_release_hides_is_said_with_the_command_that_shows_it(quickstart: CommandResult) -> None:
    command = "helm template tracking mlflow --namespace vision --version 1.0.0 -f VALUES | tenancy check -"
    assert command in quickstart.out


@pytest.mark.parametrize("name", WELL_MADE)
def test_the_pack_and_tenancy_check_are_silent_on_a_well_made_program(judge: Judge, name: str) -> None:
    preview = judge(name, "preview")
    assert preview.code == 0, preview.text
    assert "mandatory" not in preview.out
    # What is not rendered would be installed.
    update = judge(name, "up", "--yes", "--skip-preview", "--exclude", "**kubernetes:helm.sh/v3:Release**")
    assert update.code == 0, update.text
    for result in (preview, update):
        assert "advisory" not in result.out, result.out
    checked = judge.check(name)
    assert checked.code == 0, checked.text
    assert "no broken rule" in checked.out
    assert "to consider" not in checked.out
