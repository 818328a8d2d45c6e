"""`tenancy report access`: who may do what where, by which line, and since when."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.catalog.text import in_markdown
from tenancy.cli import main, review
from tenancy.planning import make_plan
from tenancy.planning.access_review import Binding, planned_bindings, rights
from tenancy.planning.access_review import review as entries_of
from tenancy.spec.loader import load
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, nonempty

ROOT = Path(__file__).parents[3]
FRAUD = "tenants/fraud.yaml"
JANE = "jane@bank.example"
DAY = "2025-03-04"


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


def _entries(folder: Path, *options: object) -> list[dict[str, Any]]:
    result = run("report", "access", folder, *options, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)["access"]


def _entries_about(folder: Path, who: str, *options: object) -> list[dict[str, Any]]:
    return [entry for entry in _entries(folder, *options) if entry["who"] == who]


def _bank(*options: object) -> list[dict[str, Any]]:
    return _entries(ROOT / "stacks" / "bank", *options)


def git(folder: Path, *command: str, day: str = DAY) -> None:
    who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@x"}
    when = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
    subprocess.run(["git", "-C", folder, *command], check=True, capture_output=True, env={**os.environ, **who, **when})


@pytest.fixture
def committed(spec: SpecFolder) -> SpecFolder:
    git(spec.path, "init", "--quiet")
    git(spec.path, "add", ".")
    git(spec.path, "commit", "--quiet", "-m", "all of it")
    return spec


# Who, what and where


def test_a_group_has_its_role_in_every_namespace(spec: SpecFolder) -> None:
    (entry,) = _entries_about(spec.path, "fraud-engineers")
    assert (entry["kind"], entry["may"], entry["where"]) == ("Group", "developer", ["fraud--train", "fraud--serve"])


def test_a_role_that_is_given_in_one_namespace_holds_in_that_one_alone(spec: SpecFolder) -> None:
    (entry,) = _entries_about(spec.path, "fraud-leads")
    assert (entry["may"], entry["where"]) == ("owner", ["fraud--train"])


def test_two_lines_about_one_group_are_two_entries(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "{user: jane", "{group: fraud-leads, role: owner, namespaces: [serve]}\n  - {user: jane")
    lines_and_places = [(entry["line"], entry["where"]) for entry in _entries_about(spec.path, "fraud-leads")]
    assert sorted(lines_and_places) == [(13, ["fraud--train"]), (14, ["fraud--serve"])]


def test_a_user_is_told_from_a_group(spec: SpecFolder) -> None:
    assert [entry["kind"] for entry in _entries_about(spec.path, JANE)] == ["User"]


def test_where_aws_is_off_nothing_of_it_is_listed_as_made(spec: SpecFolder) -> None:
    spec.add(FRAUD, "ci: {github: bank/fraud-models, branch: main}\n")
    report = json.loads(run("report", "access", spec.path, "--format", "json").stdout)
    assert {entry["kind"] for entry in report["access"]} == {"Group", "User"}
    assert {entry["kind"] for entry in report["not_made"]} == {"service account", "CI identity"}
    markdown = run("report", "access", spec.path, "--tenant", "fraud", "--format", "markdown").stdout
    before, _, after = markdown.partition("In the files and not created, because aws.enabled is false")
    assert "s3://datasets/teams/fraud/" not in before
    assert "s3://datasets/teams/fraud/" in after
    # Its twin: where AWS is on they are.
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    report = json.loads(run("report", "access", spec.path, "--format", "json").stdout)
    assert {"service account", "CI identity"} <= {entry["kind"] for entry in report["access"]}
    assert report["not_made"] == []


def test_data_is_reached_by_the_service_account_of_each_part(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    entries = _entries_about(spec.path, "fraud--serve/workload")
    assert [(entry["may"], entry["where"]) for entry in entries] == [
        ("reads", ["s3://datasets/shared/"]),
        ("reads, writes, deletes", ["s3://datasets/teams/fraud/"]),
    ]


def test_a_grant_for_one_namespace_is_no_other_namespaces(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    spec.edit(FRAUD, "access: read-write}", "access: read-write, namespaces: [train]}")
    places = [entry["where"] for entry in _entries_about(spec.path, "fraud--serve/workload")]
    assert places == [["s3://datasets/shared/"]]


def test_a_pipeline_is_known_by_its_subject() -> None:
    entries = [entry for entry in _bank("--tenant", "fraud") if entry["kind"] == "CI identity"]
    assert {entry["who"] for entry in entries} == {"repo:bank/fraud-models:ref:refs/heads/main"}
    assert [(entry["may"], entry["where"]) for entry in entries] == [
        ("developer", ["fraud--train", "fraud--serve"]),
        ("pushes and pulls images", ["ECR bank/fraud/retraining", "ECR bank/fraud/scoring"]),
    ]


def test_an_iam_role_is_the_group_that_it_becomes() -> None:
    (entry,) = [entry for entry in _bank("--subject", "fraud-oncall") if entry["kind"] == "IAM role"]
    assert entry["may"] == "is group fraud-oncall"
    assert entry["who"].endswith("AWSReservedSSO_fraud-oncall_3d4e5f60718a9b0c")
    assert (entry["file"].endswith("stacks/bank/environment.yaml"), entry["field"]) == (
        True,
        "aws.group-roles.fraud-oncall",
    )


def test_the_identities_that_may_break_the_glass_are_named() -> None:
    identities = [entry["who"] for entry in _bank() if entry["kind"] == "break-glass"]
    assert identities == [f"arn:aws:iam::111122223333:user/emergency-{n}" for n in (1, 2)]


def test_the_platform_gets_in_everywhere_and_is_told_beside_each_tenant(spec: SpecFolder) -> None:
    assert {entry["tenant"] for entry in _entries(spec.path, "--tenant", "fraud")} == {"fraud", None}
    assert [entry["may"] for entry in _entries_about(spec.path, "gpu-platform-team", "--tenant", "fraud")] == [
        "runs the cluster and every tenant"
    ]


def test_every_binding_of_the_plan_has_an_entry() -> None:
    loaded = load(ROOT / "stacks" / "bank")
    plan = make_plan(loaded, loaded.day)
    entries = entries_of(loaded.environment, loaded.tenants, plan)
    bound = {(space, entry.role) for entry in entries for space in entry.applies_to}
    assert planned_bindings(plan)
    assert {(b.namespace, b.role.removeprefix("tenancy-")) for b in planned_bindings(plan)} <= bound
    subjects = {entry.subject for entry in entries}
    assert {b.name for b in planned_bindings(plan) if not b.name.startswith("tenancy:")} <= subjects


def test_a_role_says_what_it_may_do_in_words(spec: SpecFolder) -> None:
    loaded = spec.load()
    resources_by_right = {(right.role, right.may): right.to for right in rights(make_plan(loaded, loaded.day))}
    assert "jobs" in resources_by_right["developer", "makes, changes and deletes"]
    assert resources_by_right["operator", "uses"] == ("pods/attach", "pods/exec", "pods/portforward")
    assert not any("secrets" in to for (role, _), to in resources_by_right.items() if role in {"viewer", "operator"})


# By which line


def test_an_entry_names_its_file_line_and_field(spec: SpecFolder) -> None:
    for entry in _entries(spec.path):
        lines = Path(entry["file"]).read_text("utf-8").splitlines()
        expected_text = entry["where"][0].partition("s3://datasets/")[2] or entry["who"]
        assert expected_text in lines[entry["line"] - 1], entry
    assert _entries_about(spec.path, JANE)[0]["field"] == "people[2]"


def test_the_line_is_found_in_a_file_called_yml(spec: SpecFolder) -> None:
    (spec.path / FRAUD).rename(spec.path / "tenants/fraud.yml")
    assert _entries_about(spec.path, JANE)[0]["file"].endswith("tenants/fraud.yml")


# Since when


def test_a_line_stands_since_the_commit_that_made_it(committed: SpecFolder) -> None:
    (entry,) = _entries_about(committed.path, JANE)
    assert re.fullmatch(rf"{DAY} [0-9a-f]{{7}}", entry["since"])


def test_another_line_of_the_file_changes_nothing(committed: SpecFolder) -> None:
    committed.edit(FRAUD, "title: Fraud Detection", "title: Fraud")
    git(committed.path, "commit", "--quiet", "-am", "a title", day="2026-01-01")
    assert _entries_about(committed.path, JANE)[0]["since"].startswith(DAY)


def test_a_changed_role_stands_since_its_change(committed: SpecFolder) -> None:
    committed.edit(FRAUD, f"{JANE}, role: viewer", f"{JANE}, role: operator")
    git(committed.path, "commit", "--quiet", "-am", "more for jane", day="2026-01-01")
    assert _entries_about(committed.path, JANE)[0]["since"].startswith("2026-01-01 ")


def test_an_uncommitted_line_says_so(committed: SpecFolder) -> None:
    committed.edit(FRAUD, f"{JANE}, role: viewer", f"{JANE}, role: operator")
    assert _entries_about(committed.path, JANE)[0]["since"] == "not committed"
    assert _entries_about(committed.path, "fraud-leads")[0]["since"].startswith(DAY)


def test_an_uncommitted_file_says_so(committed: SpecFolder) -> None:
    git(committed.path, "rm", "--cached", "--quiet", FRAUD)
    git(committed.path, "commit", "--quiet", "-m", "without fraud")
    assert _entries_about(committed.path, JANE)[0]["since"] == "not committed"


def test_files_without_git_are_no_error(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(spec.path.parent))
    assert _entries_about(spec.path, JANE)[0]["since"] == "no git"


def test_a_machine_without_git_is_no_error(committed: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert _entries_about(committed.path, JANE)[0]["since"] == "no git"


# What is asked for


def test_one_name_is_looked_up(spec: SpecFolder) -> None:
    assert [entry["who"] for entry in _entries(spec.path, "--subject", JANE)] == [JANE]


def test_a_name_that_is_nowhere_has_an_answer(spec: SpecFolder) -> None:
    result = run("report", "access", spec.path, "--subject", "mallory")
    assert (result.exit_code, result.stdout) == (
        0,
        "No group, user or identity of that name is in the files of small.\n",
    )


def test_an_unknown_tenant_ends_with_2(spec: SpecFolder) -> None:
    result = run("report", "access", spec.path, "--tenant", "missing")
    assert result.exit_code == 2
    assert "given tenant 'missing'; rule: a tenant of small; change: use one of fraud, research" in result.stderr


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_the_same_files_make_the_same_report(spec: SpecFolder, form: str) -> None:
    before = run("report", "access", spec.path, "--format", form).stdout
    for path in (spec.path / "tenants").iterdir():
        text = path.read_bytes()
        path.unlink()
        path.write_bytes(text)
    assert before == run("report", "access", spec.path, "--format", form).stdout != ""


def test_the_tables_hold_what_json_says(committed: SpecFolder) -> None:
    text = run("report", "access", committed.path, "--format", "markdown").stdout
    for entry in nonempty(_entries(committed.path)):
        who = in_markdown(entry["who"])
        row = next(line for line in text.splitlines() if who in line and f"| {entry['line']} |" in line)
        assert entry["since"].partition(" ")[0] == DAY
        assert DAY in row


def test_a_report_of_the_bank_fits_its_width() -> None:
    text = run("report", "access", ROOT / "stacks" / "bank").stdout
    assert max(map(len, text.splitlines())) <= 100


# The cluster


class Cluster:
    """Answers of a cluster with these bindings."""

    def __init__(self, *items: dict[str, Any], everywhere: tuple[dict[str, Any], ...] = ()) -> None:
        self.items_of = {"rolebindings": items, "clusterrolebindings": everywhere}

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(self.items_of[path.rpartition("/")[2]])


def _binding(namespace: str, name: str, role: str) -> dict[str, Any]:
    subjects = [{"kind": "Group", "name": name}]
    return {"metadata": {"namespace": namespace}, "subjects": subjects, "roleRef": {"name": role}}


def _live(
    spec: SpecFolder, *more: dict[str, Any], without: str = "", **cluster_settings: Any
) -> tuple[list[Binding], ...]:
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    bindings = [o for t in plan.tenants for n in t.namespaces for o in n.access if o["kind"] == "RoleBinding"]
    bindings = [item for item in bindings if item["metadata"]["name"] != without]
    cluster: Any = Cluster(*bindings, *more, **cluster_settings)
    return review.differences(cluster, plan, None)


def test_a_cluster_as_planned_differs_in_nothing(spec: SpecFolder) -> None:
    assert _live(spec) == ([], [])


def test_a_binding_that_no_file_has_is_named(spec: SpecFolder) -> None:
    extra, lacking = _live(spec, _binding("fraud--train", "mallory", "admin"))
    assert (extra, lacking) == ([Binding("fraud--train", "Group", "mallory", "admin")], [])


def test_a_binding_that_the_cluster_lacks_is_named(spec: SpecFolder) -> None:
    extra, lacking = _live(spec, without="viewer")
    assert (extra, {binding.name for binding in lacking}) == ([], {JANE})


def test_a_binding_outside_of_tenants_is_not_reported(spec: SpecFolder) -> None:
    assert _live(spec, _binding("kube-system", "mallory", "admin")) == ([], [])


def test_a_tenants_group_with_rights_in_the_whole_cluster_is_named(spec: SpecFolder) -> None:
    everywhere = (_binding("", "fraud-engineers", "cluster-admin"), _binding("", "foreign", "view"))
    extra, _ = _live(spec, everywhere=everywhere)
    assert extra == [Binding("", "Group", "fraud-engineers", "cluster-admin")]
