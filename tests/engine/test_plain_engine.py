"""What `tenancy up` does beside the engine, tried with the engine alone: it happens in the program, or the program ends
with the command to run. docs/pulumi.md has the list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_project import Done, Project

from tenancy.lab.api import MERGE

POLICY = "/apis/networking.k8s.io/v1/namespaces/fraud--train/networkpolicies/default-deny"
LIMITS = "/api/v1/namespaces/fraud--train/limitranges/tenant"
COMMAND = "`tenancy up local`"


@pytest.fixture(scope="module")
def deployed(project: Project) -> Project:
    """By the engine alone, as README.md says."""
    assert project.pulumi("stack", "select", "local", "--create").code == 0
    done = up(project, "--policy-pack", "policy")
    assert done.code == 0, done.text
    return project


@pytest.fixture
def tenant_file(deployed: Project) -> Iterator[str]:
    file = deployed.environment / "tenants" / "performance.yaml"
    text = file.read_text("utf-8")
    yield text
    file.write_text(text, "utf-8")


def up(project: Project, *more: str) -> Done:
    return project.pulumi("up", "--yes", "--skip-preview", "--stack", "local", *more)


def preview(project: Project) -> Done:
    return project.pulumi("preview", "--stack", "local")


def one_line(done: Done) -> str:
    return " ".join(done.text.split())


@pytest.mark.exhaustive
def test_an_undisturbed_cluster_gets_no_warning(deployed: Project) -> None:
    done = preview(deployed)
    assert done.code == 0, done.text
    assert "warning" not in done.text
    assert "unchanged" in done.text


def test_a_preview_warns_of_drift_and_an_update_is_refused(deployed: Project) -> None:
    with deployed.api() as api:
        api.request("PATCH", f"{POLICY}?fieldManager=kubectl-edit", {"spec": {"ingress": [{}]}}, MERGE)
    said = "given NetworkPolicy fraud--train/default-deny: spec.ingress (new); by kubectl-edit"
    warned = preview(deployed)
    assert warned.code == 0, warned.text
    assert said in one_line(warned)
    versions = deployed.versions()
    refused = up(deployed)
    assert refused.code != 0
    assert said in one_line(refused)
    assert f"{COMMAND} reverts it" in one_line(refused)
    assert deployed.versions() == versions
    deployed.up()
    with deployed.api() as api:
        assert "ingress" not in api.get(POLICY)["spec"]
    assert "warning" not in preview(deployed).text


@pytest.mark.exhaustive
def test_an_object_that_was_deleted_is_told_and_a_refresh_makes_it_again(deployed: Project) -> None:
    with deployed.api() as api:
        api.request("DELETE", LIMITS)
    warned = preview(deployed)
    assert "warning: LimitRange fraud--train/tenant: not on the cluster" in one_line(warned)
    done = up(deployed, "--refresh")
    assert done.code == 0, done.text
    assert deployed.exists(LIMITS)


@pytest.mark.exhaustive
def test_a_kind_that_the_cluster_does_not_serve_is_told_with_what_to_install(deployed: Project) -> None:
    off = "queues: {scheduler: none}\n"
    deployed.edit("environment.yaml", off, "")
    try:
        for done in (preview(deployed), up(deployed), deployed.tenancy("up", "local")):
            assert done.code != 0
            assert "given a cluster that does not serve kueue.x-k8s.io/v1beta2 (" in one_line(done)
            assert "`helm upgrade --install kueue oci://" in one_line(done)
    finally:
        with (deployed.environment / "environment.yaml").open("a", encoding="utf-8") as file:
            file.write(off)


@pytest.mark.exhaustive
def test_the_last_stage_of_a_removal_is_left_to_the_command(deployed: Project, tenant_file: str) -> None:
    space = "/api/v1/namespaces/performance--train"
    deployed.write("tenants/performance.yaml", f"{tenant_file}offboarding: hold\n")
    held = up(deployed)
    assert held.code == 0, held.text
    deployed.write("tenants/performance.yaml", f"{tenant_file}offboarding: remove\n")
    versions = deployed.versions()
    for refused in (preview(deployed), up(deployed)):
        assert refused.code != 0
        assert "given tenant performance with offboarding: remove; rule: access ends first" in one_line(refused)
        assert f"{COMMAND} removes the tenant in this order" in one_line(refused)
    assert deployed.versions() == versions
    deployed.up()
    assert not deployed.exists(space)
    done = preview(deployed)
    assert done.code == 0, done.text
