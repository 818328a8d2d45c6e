"""What the pages show of commands that need a cluster is what they print in the lab, in the order of a first day."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from engine_project import ROOT, Project, copied, run_as_shown

from tests.printed import Printed, page_block
from tests.queues.scene import on_lab_of

pytestmark = [
    pytest.mark.chapters,
    pytest.mark.exhaustive(
        reason=(
            "compares pages with what commands print in a lab; the commands "
            "themselves are in the other tests of `make test`"
        )
    ),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A checkout with a lab of its own, whose shell finds the commands."""
    with copied(tmp_path_factory.mktemp("engine") / "project") as lab_project:
        shutil.copytree(ROOT / "schemas", lab_project.folder / "schemas")
        for arguments in (["init", "--quiet"], ["add", "stacks"], ["commit", "--quiet", "-m", "the files of before"]):
            assert (
                lab_project.run("git", "-c", "user.name=platform", "-c", "user.email=p@bank.example", *arguments).code
                == 0
            )
        yield lab_project


def test_the_quickstart_shows_what_make_up_prints(project: Project) -> None:
    steps = "tenancy lab up local && tenancy up local && tenancy verify local --brief"
    run_as_shown(project, page_block("quickstart.md", "make up")._replace(command=steps))


def test_drift_is_told_as_the_page_shows(project: Project) -> None:
    run_as_shown(project, page_block("state.md", "tenancy up"))


def test_work_waits_and_is_explained_as_the_first_environment_shows(project: Project) -> None:
    with on_lab_of(project.folder, project.environment) as scene:
        training, fraud_space = scene.space("performance"), scene.space("fraud", "train")
        scene.submit("performance", "fine-tuning", 8, 6)
        scene.until_runs(training, "fine-tuning")
        scene.submit("fraud", "retraining", 8, 4)
        scene.until_runs(fraud_space, "retraining")
        scene.submit("performance", "sweep", 8, 4)
        scene.until_runs(training, "sweep")
        scene.submit("performance", "evaluation", 8, 8)
        scene.until_waits(training, "fine-tuning", "evaluation")
        run_as_shown(project, page_block("first-environment.md", "tenancy queues"))
        run_as_shown(project, page_block("first-environment.md", "tenancy why"))
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
    run_as_shown(project, block)


def test_more_quota_is_previewed_as_the_page_shows(project: Project) -> None:
    file = project.environment / "tenants" / "scoring.yaml"
    text = file.read_text("utf-8")
    run_as_shown(project, page_block("onboarding.md", "tenancy up local --preview"))
    assert file.read_text("utf-8") != text
    file.write_text(text, "utf-8")


OFFBOARDING = [
    ("hold", page_block("offboarding.md", "tenancy up local")),
    ("export", page_block("offboarding.md", "tenancy export")),
]


@pytest.mark.parametrize(("stage", "block"), OFFBOARDING, ids=str)
def test_a_tenant_is_offboarded_as_the_page_shows(project: Project, stage: str, block: Printed) -> None:
    file = project.environment / "tenants" / "fraud.yaml"
    text = file.read_text("utf-8").partition("offboarding: ")[0]
    file.write_text(f"{text}offboarding: {stage}\n", "utf-8")
    run_as_shown(project, block)
