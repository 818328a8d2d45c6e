"""The programs of examples/ on the real engine and a real API server, each in a folder of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from engine_project import ROOT, Done, Project, copied

from tenancy.lab import control_plane


class Example:
    """A copy of one example, with the folder's own stack."""

    def __init__(self, project: Project, name: str) -> None:
        self.project, self.folder = project, project.folder / "examples" / name
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        shutil.copytree(ROOT / "examples", self.folder.parent)
        (self.folder / ".venv").symlink_to(sys.prefix)

    def pulumi(self, *arguments: str, env: dict[str, str] | None = None) -> Done:
        return self.project.run("pulumi", *arguments, "--non-interactive", folder=self.folder, env=env)

    def init(self, stack: str = "dev") -> None:
        done = self.pulumi("stack", "init", stack)
        assert done.code == 0, done.text

    def preview(self, *arguments: str) -> Done:
        return self.pulumi("preview", *arguments)

    def up(self, *arguments: str) -> Done:
        done = self.pulumi("up", "--yes", "--skip-preview", *arguments)
        assert done.code == 0, done.text
        return done

    def outputs(self) -> dict[str, Any]:
        done = self.pulumi("stack", "output", "--json")
        assert done.code == 0, done.text
        return json.loads(done.out)

    def edit(self, old: str, new: str, file: str = "__main__.py") -> None:
        path = self.folder / file
        text = path.read_text("utf-8")
        assert old in text, f"{old!r} does not stand in {file}"
        path.write_text(text.replace(old, new), "utf-8")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """An empty cluster that this project did not make."""
    with copied(tmp_path_factory.mktemp("examples") / "project") as project:
        control_plane.up(root=project.folder, platform_group="gpu-platform-team")
        yield project


@pytest.fixture(scope="module")
def one_tenant(cluster: Project) -> Example:
    example = Example(cluster, "one-tenant")
    example.init()
    return example


def test_a_first_preview_of_an_own_program_shows_its_resources_beside_the_tenant(one_tenant: Example) -> None:
    done = one_tenant.preview()
    assert done.code == 0, done.text
    assert "gpu-tenancy:index:GpuPlatform" in done.text
    assert "gpu-tenancy:index:GpuTenant" in done.text


def test_an_own_program_makes_its_resources_in_the_tenants_namespace(one_tenant: Example) -> None:
    one_tenant.up()
    project = one_tenant.project
    with project.api() as api:
        settings = api.get("/api/v1/namespaces/fraud--train/configmaps/settings")
        namespace = api.get("/api/v1/namespaces/fraud--train")
    assert settings["data"] == {"queue": "none"}
    assert namespace["metadata"]["labels"]["bank.example/wave"] == "two"
    assert one_tenant.preview("--expect-no-changes").code == 0


def test_outputs_name_what_the_tenant_has(one_tenant: Example) -> None:
    outputs = one_tenant.outputs()
    assert outputs["namespaces"] == {"train": "fraud--train"}
    assert outputs["sample_job"]["kind"] == "Job"
    with one_tenant.project.api() as api:
        path = f"/apis/batch/v1/namespaces/{outputs['namespaces']['train']}/jobs"
        made = api.request("POST", f"{path}?dryRun=All", outputs["sample_job"], "application/json")
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
