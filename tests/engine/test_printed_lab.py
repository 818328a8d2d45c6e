"""What the pages show of commands that need a cluster is what they print in the lab, in the order of a first day."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from engine_project import ROOT, Project, copied

from tests.printed import Printed, compare, page_block
from tests.queues.scene import on_lab_of

pytestmark = [pytest.mark.chapters, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A checkout with a lab of its own, whose shell finds the commands."""
    with copied(tmp_path_factory.mktemp("engine") / "project") as made:
        shutil.copytree(ROOT / "schemas", made.folder / "schemas")
        for arguments in (["init", "--quiet"], ["add", "stacks"], ["commit", "--quiet", "-m", "the files of before"]):
            assert made.run("git", "-c", "user.name=platform", "-c", "user.email=p@bank.example", *arguments).code == 0
        yield made


def run(project: Project, shown: Printed) -> None:
    """Run the command of a block as a person's shell does, after the block's earlier commands, and compare."""
    shell = {"PATH": f"{project.folder}/.venv/bin:{project.environ()['PATH']}"}
    for command in shown.earlier:
        done = project.run("bash", "-c", command, env=shell)
        assert done.code == 0, done.text
    # Problems and progress go to stderr, and a person sees both in their order.
    compare(shown, project.run("bash", "-c", f"({shown.command}) 2>&1", env=shell).out)


def test_the_quickstart_shows_what_make_up_prints(project: Project) -> None:
    steps = "tenancy lab up local && tenancy up local && tenancy verify local --brief"
    run(project, page_block("quickstart.md", "make up")._replace(command=steps))


def test_drift_is_told_as_the_page_shows(project: Project) -> None:
    run(project, page_block("state.md", "tenancy up"))


def test_work_waits_and_is_explained_as_the_first_environment_shows(project: Project) -> None:
    with on_lab_of(project.folder, project.environment) as scene:
        training, other = scene.space("performance"), scene.space("fraud", "train")
        scene.submit("performance", "fine-tuning", 8, 6)
        scene.until_runs(training, "fine-tuning")
        scene.submit("fraud", "retraining", 8, 4)
        scene.until_runs(other, "retraining")
        scene.submit("performance", "sweep", 8, 4)
        scene.until_runs(training, "sweep")
        scene.submit("performance", "evaluation", 8, 8)
        scene.until_waits(training, "fine-tuning", "evaluation")
        run(project, page_block("first-environment.md", "tenancy queues"))
        run(project, page_block("first-environment.md", "tenancy why"))
        scene.clear("performance", "fraud")


ONBOARDING = [
    page_block("onboarding.md", "tenancy new"),
    page_block("onboarding.md", "tenancy validate"),
    page_block("onboarding.md", "tenancy up"),
    page_block("onboarding.md", "tenancy sample"),
    page_block("onboarding.md", "tenancy report"),
]


@pytest.mark.parametrize("block", ONBOARDING, ids=str)
def test_a_tenant_is_onboarded_as_the_page_shows(project: Project, block: Printed) -> None:
    run(project, block)
