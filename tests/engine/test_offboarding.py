"""A tenant that leaves, by the commands: on hold, exported, back again, removed; and one that cannot go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aws_double import Call
from engine_aws import OnAws, on_aws
from engine_project import AuditedRequest, CommandResult, Key, Project

from tenancy.catalog import vocabulary
from tests.tenant_aws_files import ENVIRONMENT, FRAUD, TENANT
from tests.waiting import until

FILE = "tenants/fraud.yaml"
SPACES = ("fraud--serve", "fraud--train")
WALLS = {"limitranges", "networkpolicies", "resourcequotas"}
pytestmark = [pytest.mark.chapters, pytest.mark.usefixtures("before")]


def stage(project: Project, leaving: str) -> None:
    """Write that stage into the tenant's file; empty: it stays."""
    lines = [
        line for line in (project.environment / FILE).read_text().splitlines() if not line.startswith("offboarding:")
    ]
    project.write(FILE, "\n".join([*lines, *([f"offboarding: {leaving}"] if leaving else [])]) + "\n")


def bindings(project: Project, space: str) -> dict[str, set[str]]:
    """Role -> who has it there."""
    return {
        item["roleRef"]["name"]: {subject["name"] for subject in item["subjects"]}
        for (kind, where, _), item in project.objects().items()
        if (kind, where) == ("rolebindings", space)
    }


def ask(project: Project, method: str, path: str, body: Any = None) -> None:
    with project.api() as api:
        api.request(method, path, body, "application/json")


@pytest.fixture(scope="module")
def before(project: Project) -> dict[Any, Any]:
    """All objects before a tenant leaves."""
    project.up()
    return project.objects()


def test_a_tenant_at_work_is_not_removed_at_once(project: Project) -> None:
    versions, state = project.versions(), project.state_digest()
    stage(project, "remove")
    result = project.tenancy("up", "local")
    assert result.code == 1
    assert "given tenant fraud with offboarding: remove, whose fraud--serve, fraud--train is in use" in result.err
    assert "write `offboarding: hold` and run `tenancy up local`" in result.err
    assert project.versions() == versions
    assert project.state_digest() == state


def test_a_file_that_is_deleted_first_is_refused(project: Project) -> None:
    stage(project, "")
    text = (project.environment / FILE).read_text()
    versions, state = project.versions(), project.state_digest()
    project.remove(FILE)
    result = project.tenancy("up", "local")
    project.write(FILE, text)
    assert result.code == 1
    assert "given namespace fraud--serve, fraud--train of tenant fraud, which has no file; rule ns-07" in result.err
    assert "write its file again with `offboarding: hold`" in result.err
    assert "tenancy up local --remove fraud" in result.err
    assert project.versions() == versions
    assert project.state_digest() == state


def test_only_who_has_no_file_is_removed_by_name(project: Project) -> None:
    result = project.tenancy("up", "local", "--remove", "fraud")
    assert result.code == 2
    assert "given --remove fraud, which has a file" in result.err


def test_on_hold_all_people_only_read_and_gain_no_right(project: Project, before: dict[Any, Any]) -> None:
    entered = {space: set().union(*bindings(project, space).values()) for space in SPACES}
    # In the foreground nothing that this calls its owner would go before it does.
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "blockOwnerDeletion": True}
    owners = [
        {**kind, "name": key[2], "uid": item["metadata"]["uid"]}
        for key, item in before.items()
        if key[:2] == ("rolebindings", "fraud--train")
    ]
    anchor = {"name": "anchor", "finalizers": ["vendor.example/never"], "ownerReferences": owners}
    ask(project, "POST", "/api/v1/namespaces/fraud--train/configmaps", {"metadata": anchor})
    stage(project, "hold")
    result = project.up()
    free = {"metadata": {**anchor, "finalizers": [], "ownerReferences": []}}
    ask(project, "PUT", "/api/v1/namespaces/fraud--train/configmaps/anchor", free)
    ask(project, "DELETE", "/api/v1/namespaces/fraud--train/configmaps/anchor")
    assert owners
    assert "fraud" in result.out
    for space in SPACES:
        assert bindings(project, space) == {"tenancy-viewer": entered[space]}
    after = project.objects()
    isolation_resources = {key for key in before if key[1] in SPACES and key[0] != "rolebindings"}
    assert {key for key in after if key[1] in SPACES and key[0] != "rolebindings"} == isolation_resources
    notes = {after["namespaces", "", space]["metadata"]["annotations"][vocabulary.LEAVING] for space in SPACES}
    assert notes == {"hold"}


def test_the_review_says_that_they_read(project: Project) -> None:
    result = project.tenancy("report", "access", "local", "--tenant", "fraud", "--live", "--format", "json")
    assert result.code == 0, result.text
    people = [
        entry for entry in json.loads(result.out)["access"] if entry["kind"] in {"Group", "User"} and entry["tenant"]
    ]
    assert len(people) >= 4
    assert {entry["may"] for entry in people} == {"viewer"}


@pytest.mark.exhaustive(
    reason="the way back from hold in the real engine; `make test` shows the way there and the removal"
)
def test_back_from_hold_all_is_as_it_was(project: Project, before: dict[Any, Any]) -> None:
    stage(project, "export")
    project.up()
    stage(project, "")
    project.up()
    after = project.objects()
    assert after.keys() == before.keys()
    spec = lambda item: {k: v for k, v in item.items() if k not in {"metadata", "status"}}  # noqa: E731
    assert {key: spec(item) for key, item in after.items()} == {key: spec(item) for key, item in before.items()}
    for space in SPACES:
        assert vocabulary.LEAVING not in after["namespaces", "", space]["metadata"].get("annotations", {})


@dataclass(frozen=True)
class Stuck:
    """A removal that timed out: a ConfigMap has a finalizer that no controller removes."""

    result: CommandResult
    requests: list[AuditedRequest]
    """Requests of the platform in that run, in their order."""
    others: dict[Key, str]
    """Versions of what is not the tenant's, before."""


def of_others(project: Project) -> dict[Key, str]:
    return {key: version for key, version in project.versions().items() if "fraud" not in f"{key[1]}{key[2]}"}


@pytest.fixture(scope="module")
def on_hold(project: Project) -> Project:
    """The tenant is on hold; it may have been before."""
    if "offboarding: hold\n" not in (project.environment / FILE).read_text():
        stage(project, "hold")
        project.up()
    return project


@pytest.fixture(scope="module")
def barred(on_hold: Project) -> Stuck:
    """A removal whose first RoleBinding has a foreign finalizer until the end of this fixture."""
    (path, *_) = [
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{where}/rolebindings/{name}"
        for kind, where, name in sorted(on_hold.objects())
        if (kind, where) == ("rolebindings", "fraud--train")
    ]

    def mark(finalizers: list[str]) -> None:
        with on_hold.api() as api:
            patch = {"metadata": {"finalizers": finalizers}}
            api.request("PATCH", path, patch, "application/merge-patch+json")

    mark(["vendor.example/never"])
    try:
        others, since = of_others(on_hold), on_hold.audit_size()
        stage(on_hold, "remove")
        result = on_hold.tenancy("up", "local")
        return Stuck(result, [request for request in on_hold.audit(since) if not request.dry_run], others)
    finally:
        mark([])


@pytest.mark.exhaustive(
    reason=(
        "a binding with a foreign finalizer; `make test` has one in a namespace, and what is said of each in "
        "tests/unit/deploy/test_offboarding_stacks.py"
    )
)
def test_a_binding_with_a_foreign_finalizer_is_named_before_the_first_is_deleted(
    project: Project, barred: Stuck
) -> None:
    result = barred.result
    assert result.code == 1, result.text
    assert "tenant fraud is not removed" in result.err
    assert "RoleBinding fraud--train/" in result.err
    assert "is blocked by vendor.example/never" in result.err
    assert "kubectl patch rolebindings.rbac.authorization.k8s.io " in result.err
    deleted = [
        (request.resource, request.namespace, request.name) for request in barred.requests if request.verb == "delete"
    ]
    assert deleted == [("configmaps", "tenancy-system", "stack.local")], "the record alone: the next run is a whole one"
    assert of_others(project) == barred.others


@pytest.fixture(scope="module")
def stuck(on_hold: Project) -> Stuck:
    stage(on_hold, "remove")
    others = of_others(on_hold)
    blocked_configmap = {"metadata": {"name": "held", "finalizers": ["vendor.example/never"]}}
    ask(on_hold, "POST", "/api/v1/namespaces/fraud--train/configmaps", blocked_configmap)
    since = on_hold.audit_size()
    result = on_hold.tenancy("up", "local", "--timeout", "5")
    return Stuck(result, [request for request in on_hold.audit(since) if not request.dry_run], others)


def test_what_holds_a_namespace_is_named(stuck: Stuck) -> None:
    result = stuck.result
    assert result.code == 1, result.text
    assert "tenant fraud is not removed" in result.err
    assert "ConfigMap fraud--train/held is blocked by vendor.example/never" in result.err
    assert "vendor.example/never is removed by the controller of vendor.example" in result.err
    assert "run this again: it continues from here" in result.err
    command = 'kubectl patch configmaps held -n fraud--train --type merge -p \'{"metadata":{"finalizers":null}}\''
    assert command in result.err
    assert "Traceback" not in result.text


@pytest.mark.parametrize("space", SPACES)
def test_access_bindings_go_before_namespaces_and_isolation_go_with_them(stuck: Stuck, space: str) -> None:
    removed = [
        request for request in stuck.requests if request.verb == "delete" and space in {request.namespace, request.name}
    ]
    order = [request.resource for request in removed if request.code < 300]
    assert order.index("rolebindings") < order.index("namespaces"), order
    assert set(order[order.index("namespaces") :]) == {"namespaces"}, order
    assert not WALLS & set(order), f"a wall fell while the namespace stood: {order}"


def test_with_its_bindings_deleted_a_second_run_goes_on_and_touches_no_other_tenant(
    project: Project, stuck: Stuck
) -> None:
    assert bindings(project, "fraud--train") == {}
    until(lambda: not project.exists("/api/v1/namespaces/fraud--serve"), "the other part is gone")

    freed = project.run(
        "kubectl", "patch", "configmaps", "held", "-n", "fraud--train", "--type", "merge",
        "-p", '{"metadata":{"finalizers":null}}',
    )  # fmt: skip
    assert freed.code == 0, freed.text
    since = project.audit_size()
    project.up()
    assert not WALLS & {request.resource for request in project.audit(since) if request.verb == "delete"}
    assert {key for key in project.objects() if "fraud" in f"{key[1]}{key[2]}"} == set()
    assert of_others(project) == stuck.others, "no other tenant's objects changed"


@pytest.mark.exhaustive(reason="the file after a removal; that nothing of the tenant is left is in `make test`")
def test_the_file_stays_as_the_record_and_then_may_go(project: Project) -> None:
    again: CommandResult = project.up()
    assert "unchanged" in again.out
    project.remove(FILE)
    project.up()
    assert project.keys_in_state() == set(project.objects())
    assert "fraud--train" not in {key[2] for key in project.objects()}


# On AWS, which is a double


@pytest.fixture(scope="module")
def on(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnAws]:
    """Another environment on an empty cluster, of two tenants in stacks of their own."""
    project.fresh()
    with on_aws("two", project, tmp_path_factory.mktemp("two")) as on_double:
        (on_double.folder / "tenants").mkdir(parents=True)
        (on_double.folder / "environment.yaml").write_text(ENVIRONMENT.format(charts=on_double.charts), "utf-8")
        write_fraud(on_double, "")
        yield on_double


def write_fraud(on: OnAws, more: str) -> None:
    (on.folder / "tenants" / "fraud.yaml").write_text(TENANT.format(name="fraud") + FRAUD + more, "utf-8")


def up_two(on: OnAws, *more: str) -> CommandResult:
    result = on.tenancy("up", "two", "--stack", "two", "--stack", "two--fraud", *more)
    assert result.code == 0, result.text
    return result


def pipeline_may(on: OnAws) -> set[str]:
    """Actions that the pipeline's role allows."""
    (policy,) = [
        json.loads(entry.inputs["policy"])
        for entry in on.aws.live.values()
        if entry.type.endswith(":RolePolicy") and entry.inputs["name"] == "pipeline"
    ]
    return {action for statement in policy["Statement"] for action in statement["Action"]}


@pytest.mark.exhaustive(
    reason=(
        "the rights of a held tenant's pipeline in the real engine; its "
        "statements are in tests/unit/planning/aws/test_tenant_aws_plan.py"
    )
)
def test_on_hold_its_pipeline_pulls_and_pushes_nothing(on: OnAws) -> None:
    up_two(on)
    assert {"ecr:PutImage", "ecr:BatchGetImage"} <= pipeline_may(on)
    write_fraud(on, "offboarding: hold\n")
    up_two(on)
    assert "ecr:BatchGetImage" in pipeline_may(on)
    assert "ecr:PutImage" not in pipeline_may(on)
    assert "PodIdentityAssociation" in {entry.type.rpartition(":")[2] for entry in on.aws.live.values()}


@pytest.mark.exhaustive(
    reason=(
        "a removal on AWS in the real engine; its order on the cluster is "
        "in `make test`, on AWS in tests/unit/components"
    )
)
def test_removed_pods_lose_their_identity_before_their_namespace_goes_and_data_stays(on: OnAws) -> None:
    presence_by_space: dict[str, bool] = {}

    def note(call: Call) -> None:
        if call.kind == "delete" and not call.preview and call.type.endswith(":PodIdentityAssociation"):
            space = call.inputs["namespace"]
            wall = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies/default-deny"
            presence_by_space[space] = on.project.exists(wall)

    on.aws.on_call = note
    write_fraud(on, "offboarding: remove\n")
    up_two(on, "--preview")
    assert presence_by_space == {}
    assert on.project.exists("/api/v1/namespaces/fraud--train")
    up_two(on)
    assert presence_by_space == {"fraud--train": True, "fraud--serve": True}
    assert not on.project.exists("/api/v1/namespaces/fraud--train")
    fraud_resources = [entry for entry in on.aws.live.values() if "fraud" in entry.urn]
    remaining_kinds = {entry.type.rpartition(":")[2] for entry in fraud_resources}
    assert {"Key", "Repository", "Secret"} <= remaining_kinds
    bindings = {"AccessEntry", "PodIdentityAssociation", "Role", "RolePolicy"}
    opened = [entry.urn.rpartition("::")[2] for entry in fraud_resources if entry.type.rpartition(":")[2] in bindings]
    assert opened == ["platform-data-fraud-engineers"], "of the people whom environment.yaml names"
    bound = [item["subjects"] for (kind, *_), item in on.project.objects().items() if kind == "rolebindings"]
    assert "fraud-engineers" not in {subject["name"] for subjects in bound for subject in subjects}, "no rights there"
