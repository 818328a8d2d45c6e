"""The programs of examples/ on the real engine and a real API server, each in a folder of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aws_double import AwsDouble
from chart_repository import serving
from engine_project import ROOT, CommandResult, Project, copied

from tenancy.lab import control_plane


class Example:
    """A copy of one example, with the folder's own stack."""

    def __init__(self, project: Project, name: str) -> None:
        self.project, self.folder = project, project.folder / "examples" / name
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        shutil.copytree(ROOT / "examples", self.folder.parent)
        (self.folder / ".venv").symlink_to(sys.prefix)
        self.environ: dict[str, str] = {}

    def pulumi(self, *arguments: str, env: dict[str, str] | None = None) -> CommandResult:
        more = {**self.environ, **(env or {})}
        return self.project.run("pulumi", *arguments, "--non-interactive", folder=self.folder, env=more)

    def init(self, stack: str = "dev") -> None:
        result = self.pulumi("stack", "init", stack)
        assert result.code == 0, result.text

    def preview(self, *arguments: str) -> CommandResult:
        return self.pulumi("preview", *arguments)

    def up(self, *arguments: str) -> CommandResult:
        result = self.pulumi("up", "--yes", "--skip-preview", *arguments)
        assert result.code == 0, result.text
        return result

    def outputs(self) -> dict[str, Any]:
        result = self.pulumi("stack", "output", "--json")
        assert result.code == 0, result.text
        return json.loads(result.out)

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


@pytest.mark.exhaustive(reason="the first preview of an own program; `make test` has its update and a preview after it")
def test_a_first_preview_of_an_own_program_shows_its_resources_beside_the_tenant(one_tenant: Example) -> None:
    result = one_tenant.preview()
    assert result.code == 0, result.text
    assert "gpu-tenancy:index:GpuPlatform" in result.text
    assert "gpu-tenancy:index:GpuTenant" in result.text


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
        created_job = api.request("POST", f"{path}?dryRun=All", outputs["sample_job"], "application/json")
    assert created_job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.fixture(scope="module")
def in_python(cluster: Project) -> Example:
    """On an empty cluster again: one cluster has one environment."""
    return _fresh(cluster, "python-models")


def _fresh(cluster: Project, name: str) -> Example:
    control_plane.down(root=cluster.folder)
    control_plane.up(root=cluster.folder, platform_group="gpu-platform-team")
    return Example(cluster, name)


@pytest.mark.exhaustive(
    reason="an example whose models are in Python; models and files are read by the same code in tests/unit/spec"
)
def test_models_in_python_need_no_files(in_python: Example) -> None:
    in_python.init()
    in_python.up()
    assert in_python.outputs() == {"fraud": {"train": "fraud--train"}, "vision": {"train": "vision--train"}}


@pytest.mark.exhaustive(reason="mistakes of models in Python; the same mistakes in files are in tests/unit/spec")
def test_a_wrong_model_in_python_ends_the_run_with_every_problem(in_python: Example) -> None:
    in_python.edit('cost_center="CC-4411"', "cost_center=4411")
    in_python.edit('tier="batch"', "teir='batch'")
    result = in_python.preview()
    assert result.code != 0
    assert "tenant fraud: cost_center: given 4411" in result.text
    assert "tenant fraud: teir: given key 'teir'" in result.text


@pytest.mark.exhaustive(
    reason="the pack over an example; tests/engine/test_pack.py runs it over a program with every mistake"
)
def test_the_pack_finds_the_mistakes_of_a_program_without_the_library(cluster: Project) -> None:
    example = Example(cluster, "policy-pack")
    example.init()
    pack = ("--policy-pack", str(ROOT / "policy"))
    wrong = example.preview(*pack)
    assert wrong.code != 0
    assert "quota-01: ResourceQuota fraud--train/quota" in wrong.text
    assert "ns-04: Namespace fraud--train" in wrong.text
    assert example.pulumi("config", "set", "complete", "true").code == 0
    right = example.preview(*pack)
    assert right.code == 0, right.text


@pytest.mark.exhaustive(reason="two environments over shared files; reading them is in tests/unit/spec")
def test_two_environments_share_the_files_of_their_tenants(cluster: Project) -> None:
    example = _fresh(cluster, "dev-and-prod")
    # Before dev is there: one cluster has one environment.
    example.init("prod")
    kubeconfig = cluster.lab.kubeconfig.read_text("utf-8").replace("gpu-tenancy-lab", "prod")
    (example.folder / "kubeconfig").write_text(kubeconfig)
    preview = example.pulumi("preview", "--json", env={"KUBECONFIG": str(example.folder / "kubeconfig")})
    assert preview.code == 0, preview.text
    inputs_by_name = {
        step["newState"]["inputs"]["metadata"]["name"]: step["newState"]["inputs"] for step in _objects(preview)
    }
    assert inputs_by_name["fraud--train"]["metadata"]["labels"]["env"] == "prod"
    example.init("dev")
    example.up()
    assert example.outputs() == {"tenants": ["fraud", "vision"]}


def _objects(preview: CommandResult) -> list[Any]:
    steps = json.loads(preview.out)["steps"]
    return [step for step in steps if "metadata" in step["newState"].get("inputs", {})]


ACCESS = """
from pathlib import Path


def kubeconfig(name, endpoint, authority):
    assert endpoint.endswith(".eks.amazonaws.com")
    return Path("{path}").read_text()
"""
"""Endpoint of the double's cluster, whose API server is the lab's."""


@pytest.fixture(scope="module")
def own_cluster(cluster: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Example, AwsDouble]]:
    example = _fresh(cluster, "cluster-in-program")
    with serving(tmp_path_factory.mktemp("served") / "charts") as charts, AwsDouble() as double:
        example.environ = {**double.environ, "PATH": cluster.environ()["PATH"]}
        example.edit("platform:\n", f"platform:\n  chart-mirror: {charts}\n", "environment.yaml")
        (example.folder / "access.py").write_text(ACCESS.format(path=cluster.lab.kubeconfig))
        example.init()
        yield example, double


@pytest.mark.exhaustive(reason="a first preview of a cluster in an own program; `make test` previews a tenant in one")
def test_nothing_of_the_cluster_is_known_in_the_first_preview_and_it_does_not_fail(own_cluster: Any) -> None:
    example, double = own_cluster
    result = example.preview()
    assert result.code == 0, result.text
    assert not double.live


@pytest.mark.exhaustive(
    reason="roles of tenants in an own program with a cluster; the trust of roles is in tests/unit/iam"
)
def test_roles_of_tenants_trust_the_issuer_of_the_cluster_that_the_program_makes(own_cluster: Any) -> None:
    example, double = own_cluster
    example.up()
    issuer = double.find("eks/cluster:Cluster::gpu").outputs["identities"][0]["oidcs"][0]["issuer"]
    outputs_by_tenant = example.outputs()
    assert set(outputs_by_tenant) == {"fraud", "vision"}
    for tenant, outputs in outputs_by_tenant.items():
        assert outputs["namespaces"] == {"train": f"{tenant}--train"}
        (role,) = [r for r in double.live.values() if r.outputs.get("arn") == outputs["role_arns"]["train"]]
        trust = role.inputs["assumeRolePolicy"]
        assert issuer.removeprefix("https://") in trust
        assert "id/00000000" not in trust
    assert not [r for r in double.live.values() if "vpc-00000000000000000" in json.dumps(r.inputs)]


@pytest.mark.exhaustive(
    reason="a second preview of that program; a second run is in tests/engine/test_cluster_stack.py"
)
def test_a_second_preview_changes_nothing(own_cluster: Any) -> None:
    example, _ = own_cluster
    result = example.preview("--expect-no-changes")
    assert result.code == 0, result.text
