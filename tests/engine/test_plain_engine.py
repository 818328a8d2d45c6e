"""What `tenancy up` does beside the engine, tried with the engine alone: it happens in the program, or the program ends
with the command to run. docs/pulumi.md has the list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_project import CommandResult, Project

from tenancy.lab.api import MERGE

POLICY = "/apis/networking.k8s.io/v1/namespaces/fraud--train/networkpolicies/default-deny"
LIMITS = "/api/v1/namespaces/fraud--train/limitranges/tenant"
COMMAND = "`tenancy up local`"


@pytest.fixture(scope="module")
def deployed(project: Project) -> Project:
    """By the engine alone, as README.md says."""
    assert project.pulumi("stack", "select", "local", "--create").code == 0
    result = up(project, "--policy-pack", "policy")
    assert result.code == 0, result.text
    return project


@pytest.fixture
def tenant_file(deployed: Project) -> Iterator[str]:
    file = deployed.environment / "tenants" / "performance.yaml"
    text = file.read_text("utf-8")
    yield text
    file.write_text(text, "utf-8")


def up(project: Project, *more: str) -> CommandResult:
    return project.pulumi("up", "--yes", "--skip-preview", "--stack", "local", *more)


def preview(project: Project) -> CommandResult:
    return project.pulumi("preview", "--stack", "local")


def one_line(result: CommandResult) -> str:
    return " ".join(result.text.split())


@pytest.mark.exhaustive(reason="a preview without drift; `make test` ends with one after drift was reverted")
def test_an_undisturbed_cluster_gets_no_warning(deployed: Project) -> None:
    result = preview(deployed)
    assert result.code == 0, result.text
    assert "warning" not in result.text
    assert "unchanged" in result.text


def test_a_preview_warns_of_drift_and_an_update_is_refused(deployed: Project) -> None:
    with deployed.api() as api:
        api.request("PATCH", f"{POLICY}?fieldManager=kubectl-edit", {"spec": {"ingress": [{}]}}, MERGE)
    drift_text = "given NetworkPolicy fraud--train/default-deny: spec.ingress (new); by kubectl-edit"
    warned = preview(deployed)
    assert warned.code == 0, warned.text
    assert drift_text in one_line(warned)
    versions = deployed.versions()
    refused = up(deployed)
    assert refused.code != 0
    assert drift_text in one_line(refused)
    assert f"{COMMAND} reverts it" in one_line(refused)
    assert deployed.versions() == versions
    deployed.up()
    with deployed.api() as api:
        assert "ingress" not in api.get(POLICY)["spec"]
    assert "warning" not in preview(deployed).text


@pytest.mark.exhaustive(reason="a deleted object; `make test` has a changed one")
def test_an_object_that_was_deleted_is_told_and_a_refresh_makes_it_again(deployed: Project) -> None:
    with deployed.api() as api:
        api.request("DELETE", LIMITS)
    warned = preview(deployed)
    assert "warning: LimitRange fraud--train/tenant: not on the cluster" in one_line(warned)
    result = up(deployed, "--refresh")
    assert result.code == 0, result.text
    assert deployed.exists(LIMITS)


@pytest.mark.exhaustive(reason="a cluster without Kueue's kinds; the check is in tests/unit/deploy")
def test_a_kind_that_the_cluster_does_not_serve_is_told_with_what_to_install(deployed: Project) -> None:
    off = "queues: {scheduler: none}\n"
    deployed.edit("environment.yaml", off, "")
    try:
        for result in (preview(deployed), up(deployed), deployed.tenancy("up", "local")):
            assert result.code != 0
            assert "given a cluster that does not serve kueue.x-k8s.io/v1beta2 (" in one_line(result)
            assert "`helm upgrade --install kueue oci://" in one_line(result)
    finally:
        with (deployed.environment / "environment.yaml").open("a", encoding="utf-8") as file:
            file.write(off)


@pytest.mark.exhaustive(
    reason=(
        "the last stage of a removal by the engine alone; `make test` has "
        "it by the command in tests/engine/test_offboarding.py"
    )
)
def test_the_last_stage_of_a_removal_is_left_to_the_command(deployed: Project, tenant_file: str) -> None:
    space = "/api/v1/namespaces/performance--train"
    deployed.write("tenants/performance.yaml", f"{tenant_file}offboarding: hold\n")
    update = up(deployed)
    assert update.code == 0, update.text
    deployed.write("tenants/performance.yaml", f"{tenant_file}offboarding: remove\n")
    versions = deployed.versions()
    for refused in (preview(deployed), up(deployed)):
        assert refused.code != 0
        assert "given tenant performance with offboarding: remove; rule: access ends first" in one_line(refused)
        assert f"{COMMAND} removes the tenant in this order" in one_line(refused)
    assert deployed.versions() == versions
    deployed.up()
    assert not deployed.exists(space)
    result = preview(deployed)
    assert result.code == 0, result.text
