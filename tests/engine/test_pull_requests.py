"""The steps of the workflows on a real control plane: preview, update, drift."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_project import ROOT, CommandResult, Key, Project, canonical

from tenancy.catalog import vocabulary
from tests.conftest import every
from tests.printed import compare, page_block

pytestmark = pytest.mark.chapters

QUOTA = "/api/v1/namespaces/fraud--train/resourcequotas/tenant"
OLD, NEW = "role: viewer", "role: operator"


@pytest.fixture(scope="module")
def steps(project: Project) -> Project:
    """The environment in one stack, made by the step for merges."""
    shutil.copytree(ROOT / "ci", project.folder / "ci", dirs_exist_ok=True)
    result = step(project, "update", "local", "local", "create")
    assert result.code == 0, result.text
    return project


def step(project: Project, name: str, *arguments: str) -> CommandResult:
    return project.run(str(Path("ci/steps") / name), *arguments)


def bindings(project: Project) -> set[str]:
    return {key[2] for key in project.objects() if key[:2] == ("rolebindings", "fraud--train")}


@pytest.mark.exhaustive(reason="the update of a merge once more; `make test` makes the stack by the same step")
def test_the_update_of_a_merge_previews_first(steps: Project) -> None:
    output = step(steps, "update", "local", "local", "update").out
    assert "local: preview in" in output
    assert f"{len(steps.objects())} unchanged" in output


@contextmanager
def edited(project: Project) -> Iterator[None]:
    """A tenant's file as its pull request has it."""
    file = project.environment / "tenants" / "fraud.yaml"
    text = file.read_text("utf-8")
    project.edit("tenants/fraud.yaml", OLD, NEW)
    try:
        yield
    finally:
        file.write_text(text, "utf-8")


@pytest.mark.exhaustive(
    reason=(
        "the preview of a sound change; `make test` keeps that of a change which the pack refuses, and it changes"
        " nothing"
    )
)
def test_a_preview_is_kept_for_the_comment_and_changes_nothing(steps: Project) -> None:
    before = steps.versions()
    with edited(steps):
        result = step(steps, "preview", "local", "local", "update", "out")
    assert result.code == 0, result.text
    preview_text = (steps.folder / "out" / "local.txt").read_text("utf-8")
    assert preview_text == result.out
    assert "User jane" in preview_text or "RoleBinding fraud--train/" in preview_text
    assert steps.versions() == before


@contextmanager
def weakened(project: Project) -> Iterator[None]:
    """The program as a pull request might change it: namespaces admit any pod."""
    source = project.folder / "tenancy" / "planning" / "kubernetes" / "namespaces.py"
    text = source.read_text("utf-8")
    sound = "prefix + mode: mode_level for mode, mode_level in modes.items()"
    assert sound in text
    source.write_text(text.replace(sound, 'prefix + mode: "privileged" for mode in modes'), "utf-8")
    try:
        yield
    finally:
        source.write_text(text, "utf-8")


def test_what_the_pack_refuses_fails_the_preview_by_its_id(steps: Project) -> None:
    before = steps.versions()
    with weakened(steps):
        result = step(steps, "preview", "local", "local", "update", "out")
    assert result.code == 1
    preview_text = (steps.folder / "out" / "local.txt").read_text("utf-8")
    assert "ns-03" in preview_text
    assert preview_text == result.out
    assert steps.versions() == before


@pytest.mark.exhaustive(reason="the words for the engine's own preview; they are in tests/unit/diff")
def test_the_engines_own_preview_is_told_in_the_same_words(steps: Project) -> None:
    with edited(steps):
        preview = steps.pulumi("preview", "--stack", "local", "--policy-pack", "policy", "--json")
    assert preview.code == 0, preview.text
    (steps.folder / "preview.json").write_text(preview.out, "utf-8")
    report = steps.tenancy("diff", "--preview", "preview.json", "--format", "json")
    assert report.code == 0, report.text
    document = json.loads(report.out)
    assert document["alarms"] == ["wider-access"]
    assert [entry["stack"] for entry in document["stacks"]] == ["local"]
    gained = {(c["of"], c["what"], c["after"]) for c in document["changes"] if c["topic"] == "access" and c["after"]}
    assert gained >= {("User jane@bank.example", "fraud--train", "operator")}


@pytest.fixture(scope="module")
def items_before(steps: Project) -> dict[Key, dict[str, Any]]:
    """Each object as the engine made it."""
    return as_it_is(steps)


def as_it_is(project: Project) -> dict[Key, dict[str, Any]]:
    return {key: canonical(item) for key, item in project.objects().items()}


@pytest.mark.exhaustive(
    reason=("a night without drift; tests/queues/test_engine_clock.py asks `tenancy report drift` where there is none")
)
@pytest.mark.usefixtures("items_before")
def test_without_drift_the_night_says_nothing(steps: Project) -> None:
    result = step(steps, "drift", "local", "night")
    assert (result.code, result.out) == (0, ""), result.text
    assert [path.name for path in (steps.folder / "night").iterdir()] == ["local.md"]


def test_a_change_by_hand_is_shown_and_left_alone(steps: Project) -> None:
    with steps.api() as api:
        api.request("PATCH", QUOTA, {"spec": {"hard": {"pods": "999"}}})
    before = steps.versions()
    result = step(steps, "drift", "local", "night")
    assert result.code == 1, result.text
    compare(page_block("pull-requests.md", "ci/steps/drift"), result.out)
    compare(page_block("pull-requests.md", "cat"), (steps.folder / "night" / "local.txt").read_text("utf-8"))
    report = (steps.folder / "night" / "local.md").read_text("utf-8")
    assert report.startswith("<!-- gpu-tenancy drift: local -->\n")
    who = (steps.folder / "night" / "local.who.txt").read_text("utf-8")
    assert "ResourceQuota fraud--train/tenant" in who
    assert steps.versions() == before


BY_HAND = {
    'ResourceQuota fraud--train/tenant: spec.hard.pods, spec.hard.secrets, spec.hard["count/x.y"] (new)': (
        '[{"op": "remove", "path": "/spec/hard/secrets"}, '
        '{"op": "add", "path": "/spec/hard/count~1x.y", "value": "9"}]',
        *("resourcequota", "tenant", "-n", "fraud--train"),
    ),
    "ValidatingAdmissionPolicy tenancy-templates: spec.matchConditions[name=never] (new)": (
        '[{"op": "add", "path": "/spec/matchConditions/-", "value": {"name": "never", "expression": "false"}}]',
        *("validatingadmissionpolicy", "tenancy-templates"),
    ),
    "ValidatingAdmissionPolicy tenancy-claims: spec.matchConditions[name=changed].expression": (
        '[{"op": "replace", "path": "/spec/matchConditions/0/expression", "value": "false"}]',
        *("validatingadmissionpolicy", "tenancy-claims"),
    ),
    # Neither the old list nor both together is one that the API server takes.
    'ValidatingAdmissionPolicyBinding tenancy-pods: spec.validationActions, spec.validationActions["Warn"] (new)': (
        '[{"op": "replace", "path": "/spec/validationActions", "value": ["Warn"]}]',
        *("validatingadmissionpolicybinding", "tenancy-pods"),
    ),
    "RoleBinding fraud--train/developer: subjects": (
        '[{"op": "add", "path": "/subjects/-", "value": {"kind": "User", "name": "eve"}}]',
        *("rolebinding", "developer", "-n", "fraud--train"),
    ),
    'Namespace fraud--serve: metadata.labels["pod-security.kubernetes.io/enforce"], '
    'metadata.annotations["tenancy.gpu/exceptions"] (new)': (
        '[{"op": "replace", "path": "/metadata/labels/pod-security.kubernetes.io~1enforce", "value": "privileged"}, '
        '{"op": "add", "path": "/metadata/annotations/tenancy.gpu~1exceptions", "value": "gpu-02=2999-01-01"}]',
        *("namespace", "fraud--serve"),
    ),
}
"""Text of the drift -> a JSON patch, and its object."""
TAKEN_AWAY = (
    ("validatingadmissionpolicybinding", "tenancy-services"),
    ("networkpolicy", "default-deny", "-n", "fraud--train"),
)


@pytest.mark.exhaustive(
    reason=(
        "an update that reverts changes by hand; `make test` shows them and "
        "reverts one in tests/engine/test_plain_engine.py"
    )
)
def test_an_update_reverts_fields_changed_removed_and_added_by_hand(
    steps: Project, items_before: dict[Key, dict[str, Any]]
) -> None:
    """The pods of the quota are 999 since the test above."""
    for patch, *where in BY_HAND.values():
        result = steps.run("kubectl", "patch", *where, "--type", "json", "--patch", patch)
        assert result.code == 0, result.text
    owned = ("networkpolicy", "dns", "-n", "fraud--train")
    with steps.api() as api:
        root = api.get("/api/v1/namespaces/fraud--train/configmaps/kube-root-ca.crt")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": root}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    assert steps.run("kubectl", "patch", *owned, "--type", "merge", "--patch", patch).code == 0
    expected = {*BY_HAND, f"NetworkPolicy fraud--train/dns: metadata.ownerReferences[uid={root}] (new)"}
    for where in TAKEN_AWAY:
        result = steps.run("kubectl", "delete", *where)
        assert result.code == 0, result.text
    altered = as_it_is(steps)
    report = steps.tenancy("report", "drift", "local", "--format", "json")
    preview = steps.tenancy("up", "local", "--preview")
    assert preview.code == 0, preview.text
    assert as_it_is(steps) == altered, "a preview changes nothing"
    result = step(steps, "update", "local", "local", "update")
    assert result.code == 0, result.text
    for output in (preview.out, result.out):
        drift_lines = [
            line.removeprefix("local: drifted: ") for line in output.splitlines() if "local: drifted: " in line
        ]
        deleted_lines = {line for line in drift_lines if line.endswith(" is gone")}
        assert deleted_lines == {
            "ValidatingAdmissionPolicyBinding tenancy-services is gone",
            "NetworkPolicy fraud--train/default-deny is gone",
        }
        assert {line.partition("; by ")[0] for line in drift_lines} - deleted_lines == expected
        assert every("; by kubectl-patch at " in line for line in drift_lines if line not in deleted_lines)
    drift_lines = {f"{entry['object']}: {entry['what']}" for entry in json.loads(report.out)["drift"]}
    assert drift_lines == {line.replace(" is gone", ": is gone") for line in deleted_lines | expected}
    assert as_it_is(steps) == items_before
    again = steps.up()
    assert "drifted" not in again.out
    assert step(steps, "drift", "local", "night").code == 0
    result = steps.tenancy("report", "drift", "local")
    assert (result.code, result.out) == (
        0,
        "No drift: the objects of the stacks of local on the cluster are unchanged.\n",
    )


@pytest.mark.exhaustive(
    reason=(
        "a state that cannot be read at night; an environment that there is not is in "
        "tests/unit/project/test_workflows.py"
    )
)
def test_a_stack_that_cannot_be_looked_at_is_no_drift(steps: Project) -> None:
    result = steps.run("ci/steps/drift", "local", "night", env={"PULUMI_BACKEND_URL": "file:///nowhere"})
    assert result.code == 2
    assert "local: cannot be checked" in result.err


def test_a_stack_that_no_file_names_is_refused(steps: Project) -> None:
    result = step(steps, "update", "local", "local--missing", "update")
    assert result.code == 2
    assert "given --stack local--missing; rule: a stack of local" in result.err
    assert vocabulary.PLATFORM_NAMESPACE in {key[2] for key in steps.objects()}


@pytest.mark.exhaustive(reason="the pack by the environment; `make test` has it by the option")
def test_the_pack_judges_an_update_that_takes_it_from_the_environment(steps: Project) -> None:
    """As in a workspace of the operator, which passes no option of ours."""
    steps.up()  # the change by hand, which the plain engine refuses, is reverted
    with weakened(steps):
        result = steps.run(
            "pulumi", "up", "--stack", "local", "--yes", "--skip-preview", "--non-interactive",
            env={"PULUMI_OPTION_POLICY_PACK": "policy"},
        )  # fmt: skip
    assert result.code != 0
    assert "ns-03" in result.text
    levels = {
        item["metadata"]["labels"][vocabulary.PSA_ENFORCE]
        for (kind, _, _), item in steps.objects().items()
        if kind == "namespaces" and vocabulary.TENANT in item["metadata"]["labels"]
    }
    assert levels == {"restricted"}
