"""A platform stack and a stack for each tenant: the same objects, safe for every identity that runs one of them."""

from __future__ import annotations

import re

import pytest
from engine_project import CommandResult, Project

from tenancy.catalog import vocabulary
from tenancy.planning import make_plan
from tenancy.planning.plan_model import Plan
from tenancy.spec.loader import load

MARKER = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/guards"
PER_TENANT = "environment: local\nstacks: per-tenant"
pytestmark = [pytest.mark.chapters, pytest.mark.usefixtures("plan")]


def plain_up(project: Project, stack: str) -> CommandResult:
    """A stack that has no settings but its name."""
    project.pulumi("stack", "init", stack)
    return project.pulumi("up", "--yes", "--skip-preview", "--stack", stack)


@pytest.fixture(scope="module")
def plan(project: Project) -> Plan:
    project.remove("tenants/research.yaml")
    project.edit(
        "environment.yaml", "    gpu-sharing: {time-slicing: 4}\n    tenants: [research]", "    tiers: [research]"
    )
    project.edit("environment.yaml", "{gpu: l4, gpu-sharing: time-slicing}", "{gpu: l4}")
    project.edit("environment.yaml", "environment: local", PER_TENANT)
    settings = project.folder / "stacks" / "Pulumi.local.yaml"
    settings.write_text(settings.read_text().replace("scope: all", "scope: platform"))
    loaded = load(project.environment)
    return make_plan(loaded, loaded.day)


def test_a_tenant_is_not_made_on_a_cluster_without_guards(project: Project) -> None:
    result = plain_up(project, "local--fraud")
    assert result.code != 0
    assert "given a cluster with no guards" in result.text
    assert "Traceback" not in result.text
    assert project.objects() == {}


def test_the_platform_stack_makes_the_guards_and_no_tenant(project: Project) -> None:
    result = plain_up(project, "local")
    assert result.code == 0, result.text
    assert project.exists(MARKER)
    assert {key[2] for key in project.objects() if key[0] == "namespaces"} == {vocabulary.PLATFORM_NAMESPACE}


@pytest.mark.exhaustive(
    reason=(
        "older guards in the real engine; `make test` has none at all, and each version is in "
        "tests/unit/components/test_guarded.py"
    )
)
def test_a_tenant_is_not_made_behind_older_guards(project: Project, plan: Plan) -> None:
    newer = plan.platform.marker["data"]["version"]
    with project.api() as api:
        api.request("PATCH", MARKER, {"data": {"version": "0"}})
        result = plain_up(project, "local--fraud")
        api.request("PATCH", MARKER, {"data": {"version": newer}})
    assert result.code != 0
    assert "guards of version 0" in result.text
    assert "update the platform stack of the environment first" in result.text


def test_a_tenants_own_stack_is_known_by_its_name_alone(project: Project) -> None:
    result = plain_up(project, "local--fraud")
    assert result.code == 0, result.text
    spaces = {key[2] for key in project.objects() if key[0] == "namespaces"}
    assert spaces == {vocabulary.PLATFORM_NAMESPACE, "fraud--serve", "fraud--train"}


@pytest.mark.exhaustive(reason="a stack without a file; that it is removed before anything else is in `make test`")
def test_a_stack_of_a_tenant_without_a_file_is_refused(project: Project) -> None:
    result = plain_up(project, "local--frod")
    project.pulumi("stack", "rm", "--yes", "local--frod")
    assert result.code != 0
    assert "given tenant 'frod'" in result.text
    assert "Traceback" not in result.text


def test_all_stacks_together_make_what_one_stack_would(project: Project, plan: Plan) -> None:
    versions = project.versions()
    result = project.up()
    after = project.versions()
    assert {key: after[key] for key in versions} == versions, "what plain pulumi made is as it should be"
    assert "local--performance: update" in result.out
    # What one stack makes of these files is what their rendering makes: test_one_stack.py.
    assert project.tenancy("render", "local", "--out", "rendered").code == 0
    objects = ("-f", "rendered/platform", "-f", "rendered/tenants")
    difference = project.run("kubectl", "diff", "--server-side", "--force-conflicts", "--recursive", *objects)
    assert difference.code == 0, difference.text
    assert len(after) == sum(1 for _ in plan.objects())
    assert project.keys_in_state("local", "local--fraud", "local--performance") == set(project.objects())


def test_the_platform_cannot_be_destroyed_by_mistake(project: Project) -> None:
    versions = project.versions()
    result = project.pulumi("destroy", "--yes", "--skip-preview", "--stack", "local")
    assert result.code != 0
    assert "protected" in result.text
    assert project.versions() == versions


def test_without_its_file_a_tenants_stack_is_removed_before_anything_else(project: Project) -> None:
    project.remove("tenants/performance.yaml")
    refused = project.tenancy("up", "local")
    assert refused.code == 1
    assert "given stack local--performance, whose tenant has no file" in refused.err
    assert "`tenancy up local --remove performance`" in refused.err
    assert project.exists("/api/v1/namespaces/performance--train")
    result = project.tenancy("up", "local", "--remove", "performance")
    assert result.code == 0, result.text
    lines = result.out.splitlines()
    removal = next(i for i, line in enumerate(lines) if "its tenant has no file" in line)
    assert lines[removal].startswith("local--performance:")
    assert removal < next(i for i, line in enumerate(lines) if "stacks to run" in line)
    assert not project.exists("/api/v1/namespaces/performance--train")
    assert "local--performance" not in project.pulumi("stack", "ls").out
    assert project.keys_in_state("local", "local--fraud") == set(project.objects())


def test_one_stack_for_all_does_not_take_tenants_out_of_their_own_stacks(project: Project) -> None:
    versions = project.versions()
    project.edit("environment.yaml", PER_TENANT, "environment: local")
    result = project.tenancy("up", "local")
    project.edit("environment.yaml", "environment: local", PER_TENANT)
    assert result.code == 1
    assert "given stack local--fraud, which has tenant fraud" in result.err
    assert "change: `tenancy move local`" in result.err
    assert project.versions() == versions


@pytest.mark.exhaustive(
    reason="tenants move between forms of stacks; that one stack does not take them is in `make test`"
)
def test_tenants_move_into_one_stack_and_back_and_no_object_is_touched(project: Project) -> None:
    versions, settings = project.versions(), project.folder / "stacks" / "Pulumi.local.yaml"
    layouts = (
        ((PER_TENANT, "environment: local"), ("scope: platform", "scope: all"), ["local"]),
        (("environment: local", PER_TENANT), ("scope: all", "scope: platform"), ["local", "local--fraud"]),
    )
    for edit, scope, stacks in layouts:
        project.edit("environment.yaml", *edit)
        settings.write_text(settings.read_text().replace(*scope))
        as_if_ended_between_the_two_writes(project, stacks)
        assert "tenant fraud would move to" in project.tenancy("move", "local", "--preview").out
        moved = project.tenancy("move", "local")
        assert moved.code == 0, moved.text
        assert "local: 1 tenant moved" in moved.out
        assert project.keys_in_state(*stacks) == set(project.objects())
        result = project.up()
        assert re.search(r"update in .*: (?!.*[+-]\d)", result.out), result.text
        assert "every tenant is in the stack" in project.tenancy("move", "local").out
    stack_names = {name.rstrip("*") for name in project.pulumi("stack", "ls").out.split() if name.startswith("local")}
    assert stack_names == {*stacks}
    after = project.versions()
    changed_keys = {key for key in after if versions.get(key) != after[key]}
    assert {kind for kind, *_ in changed_keys} <= {"configmaps"}, "records alone"
    assert set(versions) == set(after)


def as_if_ended_between_the_two_writes(project: Project, stacks: list[str]) -> None:
    """In the second direction: both states have the tenant."""
    if len(stacks) == 1:
        return
    state = project.lab.state / ".pulumi" / "stacks" / "gpu-tenancy" / "local.json"
    before = state.read_text()
    assert project.tenancy("move", "local").code == 0
    state.write_text(before)


def test_down_asks_first(project: Project) -> None:
    versions = project.versions()
    result = project.tenancy("down", "local")
    assert result.code == 1
    assert "fraud--serve, fraud--train" in result.out
    assert project.versions() == versions


def test_down_removes_the_tenants_then_the_platform(project: Project) -> None:
    result = project.tenancy("down", "local", "--yes")
    assert result.code == 0, result.text
    assert result.out.index("local--fraud: removal") < result.out.index("local: removal")
    assert project.objects() == {}
    assert project.keys_in_state() == set()
    assert "there is nothing to remove" in project.tenancy("down", "local", "--yes").out
