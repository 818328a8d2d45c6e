"""Four stacks, one for each tenant: what a run does when nothing, one file, or one object on the cluster changed."""

from __future__ import annotations

import json

import pytest
from engine_project import NEW_TENANT, CommandResult, Project
from fleet_project import make_fleet

from tenancy.catalog import vocabulary
from tests.printed import compare, page_block

TENANTS = ("credit", "fraud", "risk")
EGRESS = "egress:\n  - {cidr: 198.51.100.7/32, port: 8443}\n"
DENY = "/apis/networking.k8s.io/v1/namespaces/credit/networkpolicies/default-deny"


def records(project: Project) -> set[str]:
    path = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps?labelSelector={vocabulary.PREFIX}record"
    with project.api() as api:
        return {item["data"]["stack"] for item in api.get(path)["items"]}


def ran(result: CommandResult) -> dict[str, list[str]]:
    """Causes by stack, of those that ran."""
    assert result.code == 0, result.text
    return {entry["stack"]: entry["causes"] for entry in json.loads(result.out) if entry["result"] != "unchanged"}


def up(project: Project, *more: str) -> CommandResult:
    return project.tenancy("up", "local", "--format", "json", *more)


@pytest.fixture(scope="module")
def first(project: Project) -> CommandResult:
    """From nothing, three small tenants."""
    make_fleet(project, TENANTS)
    return up(project, "--parallel", "3", "--skip-preview")


def test_from_nothing_every_stack_runs_and_leaves_a_record(project: Project, first: CommandResult) -> None:
    stacks = {"local", *(f"local--{name}" for name in TENANTS)}
    assert ran(first) == {name: ["no stack yet"] for name in stacks}
    assert records(project) == stacks
    assert project.keys_in_state(*sorted(stacks)) == set(project.objects()), (
        "side by side nothing is lost or made twice"
    )


def test_with_nothing_changed_no_engine_runs(project: Project) -> None:
    state = project.state_digest()
    result = project.tenancy("up", "local")
    assert "local: 0 of 4 stacks to run, 4 unchanged" in result.out, result.text
    assert project.state_digest() == state


def test_an_edit_of_one_file_runs_one_stack_and_touches_no_other_object(project: Project) -> None:
    before = project.versions()
    project.write("tenants/risk.yaml", NEW_TENANT.format(name="risk") + EGRESS)
    assert ran(up(project)) == {"local--risk": ["changed files"]}
    after = project.versions()
    changed_keys = {key for key in after if before.get(key) != after[key]}
    assert changed_keys
    assert {key for key in changed_keys if "risk" not in f"{key[1]}{key[2]}"} == set()


def delete_default_deny(project: Project) -> str:
    space = next(key[1] for key in project.objects() if key[0] == "networkpolicies" and key[1].startswith("credit"))
    path = DENY.replace("/credit/", f"/{space}/")
    with project.api() as api:
        api.request("DELETE", path)
    return path


def test_objects_deleted_and_changed_by_hand_run_their_stack_and_are_as_before(project: Project) -> None:
    path = delete_default_deny(project)
    assert ran(up(project)) == {"local--credit": ["drift on the cluster"]}
    assert project.exists(path)


@pytest.mark.exhaustive(
    reason="compares a page of the documentation with what is printed; the run itself is in `make test`"
)
def test_a_run_of_many_tenants_prints_what_the_page_shows(project: Project) -> None:
    """The page has 1,000 tenants where there are three here."""
    shown = page_block("scale.md", "tenancy up bank")
    text = shown.output
    for there, here in {
        "1001": "4",
        "1000": "3",
        "999": "2",
        "fraud": "risk",
        "voice": "credit",
        "bank": "local",
    }.items():
        assert there in text
        text = text.replace(there, here)
    delete_default_deny(project)
    project.write("tenants/risk.yaml", NEW_TENANT.format(name="risk"))
    compare(shown._replace(output=text), project.tenancy("up", "local", "--parallel", "1").out)


@pytest.mark.exhaustive(
    reason="a lost record and the plain engine; that an unchanged stack does not run is in `make test`"
)
def test_a_lost_record_and_a_run_of_the_plain_engine_cost_a_run_that_changes_nothing(project: Project) -> None:
    versions = project.versions()
    path = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/stack.local--fraud"
    with project.api() as api:
        api.request("DELETE", path)
    assert project.pulumi("up", "--yes", "--skip-preview", "--stack", "local--risk").code == 0
    causes = ["no record of a finished run"]
    assert ran(up(project)) == {"local--fraud": causes, "local--risk": causes}
    assert project.versions() == versions
