"""A small environment in one stack: from nothing, unchanged, edited, refused, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from engine_project import NEW_TENANT, AuditedRequest, CommandResult, Project, canonical

from tenancy.catalog import vocabulary
from tenancy.cluster.preflight import REMOVING
from tenancy.planning.guards import QUESTION
from tests.waiting import until

WALLS = {"limitranges", "networkpolicies", "resourcequotas"}
pytestmark = [pytest.mark.chapters, pytest.mark.usefixtures("first")]
GUARDS = {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}


@pytest.fixture(scope="module")
def first(project: Project) -> CommandResult:
    """`tenancy up local` on an empty cluster."""
    return project.up()


def writes(requests: Iterator[AuditedRequest]) -> list[AuditedRequest]:
    return [request for request in requests if not request.dry_run and request.code < 300]


def test_from_nothing_every_namespace_carries_its_tenant(project: Project, first: CommandResult) -> None:
    assert "done in" in first.out
    spaces = {
        name: item["metadata"]["labels"].get(vocabulary.TENANT)
        for (kind, _, name), item in project.objects().items()
        if kind == "namespaces"
    }
    assert spaces == {
        "fraud--serve": "fraud",
        "fraud--train": "fraud",
        "performance--train": "performance",
        "research--main": "research",
        vocabulary.PLATFORM_NAMESPACE: None,
    }


def test_the_stack_exports_what_other_stacks_build_on(project: Project) -> None:
    result = project.pulumi("stack", "output", "--json", "--stack", "local")
    assert result.code == 0, result.text
    outputs = json.loads(result.out)
    assert set(outputs) == {"namespaces", "service_accounts", "role_arns", "queues", "buckets", "sample_job"}
    assert {name for tenant in outputs["namespaces"].values() for name in tenant.values()} == {
        item["metadata"]["name"] for (kind, *_), item in project.objects().items() if kind == "namespaces"
    } - {"tenancy-system"}
    assert outputs["sample_job"]["fraud"]["kind"] == "Job"


def test_bindings_are_named_after_the_persona(project: Project) -> None:
    names = {key[2] for key in project.objects() if key[:2] == ("rolebindings", "fraud--train")}
    assert names == {"developer", "operator", "owner", "viewer"}


def test_the_state_and_the_cluster_hold_the_same(project: Project) -> None:
    assert project.keys_in_state() == set(project.objects())


def test_access_bindings_are_made_after_the_isolation_resources_of_the_namespace(project: Project) -> None:
    requests = writes(project.audit())
    for space in ("fraud--serve", "fraud--train", "performance--train", "research--main"):
        inside = [
            request.resource
            for request in requests
            if request.namespace == space and request.resource in WALLS | {"rolebindings"}
        ]
        entry = inside.index("rolebindings")
        assert set(inside[:entry]) >= WALLS, f"{space} was open before {WALLS - set(inside[:entry])}"
        assert not WALLS & set(inside[entry:]), f"{space} got a wall after its binding"


def test_no_namespace_of_a_tenant_is_made_before_the_guards_are_in_force(project: Project) -> None:
    requests = list(project.audit())
    space = next(
        i
        for i, request in enumerate(requests)
        if request.resource == "namespaces" and vocabulary.SEPARATOR in request.name and not request.dry_run
    )
    guards = [i for i, request in enumerate(requests) if request.resource in GUARDS and not request.dry_run]
    assert guards, "guards were made"
    assert max(guards) < space, "a guard was stored after a tenant's namespace"
    answers = [
        request for request in requests[max(guards) : space] if request.resource == "configmaps" and request.dry_run
    ]
    answers = [request for request in answers if request.namespace == vocabulary.PLATFORM_NAMESPACE]
    assert [request.code for request in answers][-10:] == [403] * 10, f"no request asked whether {QUESTION}"


def test_a_second_run_writes_nothing(project: Project) -> None:
    versions, state, audit_size = project.versions(), project.state_digest(), project.audit_size()
    assert "0 of 1 stacks to run, 1 unchanged" in project.up().out
    assert project.state_digest() == state, "the state was written"
    assert writes(project.audit(audit_size)) == []
    result = project.tenancy("up", "local", "--stack", "local")
    assert f"{len(versions)} unchanged" in result.out, "the engine itself finds no difference either"
    assert project.versions() == versions
    assert project.state_digest() == state, "the state was written"
    assert {request.name for request in writes(project.audit(audit_size))} == {"stack.local"}, (
        "the record of the run alone"
    )


def test_the_engine_keeps_no_log_of_its_own(project: Project) -> None:
    """A log takes a quarter of the engine's time: after its runs there is no folder of logs."""
    assert (project.lab.folder / "pulumi" / "logs").read_bytes() == b""


@pytest.mark.exhaustive(reason="a preview by the engine alone; `make test` has the second run of the command")
def test_the_plain_engine_sees_no_difference(project: Project) -> None:
    result = project.pulumi("preview", "--stack", "local", "--policy-pack", "policy")
    assert result.code == 0, result.text
    assert "unchanged" in result.out
    assert "to create" not in result.out
    assert "to update" not in result.out


def test_three_mistakes_end_it_before_the_engine_starts(project: Project) -> None:
    versions, state = project.versions(), project.state_digest()
    project.write(
        "tenants/wrong.yaml",
        NEW_TENANT.format(name="wrong").replace("role: developer", "role: king")
        + "egress:\n  - {cidr: 0.0.0.0/0, port: 443}\nbudjet: {monthly-usd: 1}\n",
    )
    # First on the search path of a lab: every start of an engine starts this one.
    fake = project.lab.folder / "bin" / "pulumi"
    fake.write_text(f"#!/bin/sh\necho started >> {project.folder}/engine-started\nexit 1\n")
    fake.chmod(0o700)
    try:
        result = project.tenancy("up", "local")
        problems = [line for line in result.err.splitlines() if "wrong.yaml:" in line]
        assert result.code == 2, result.text
        assert len(problems) == 3, result.err
        assert not (project.folder / "engine-started").exists()
        project.remove("tenants/wrong.yaml")
        assert project.tenancy("up", "local").code == 1
        assert (project.folder / "engine-started").exists(), "with the mistakes mended the fake would have been found"
    finally:
        fake.unlink()
    assert project.versions() == versions
    assert project.state_digest() == state


def test_the_plain_engine_says_in_one_message_what_is_wrong_with_a_file(project: Project) -> None:
    project.write("tenants/wrong.yaml", NEW_TENANT.format(name="wrong").replace("tier: batch", "tier: gold"))
    result = project.pulumi("preview", "--stack", "local")
    project.remove("tenants/wrong.yaml")
    assert result.code != 0
    assert "wrong.yaml:6:7: tier: given tier 'gold'" in result.text
    assert "Traceback" not in result.text
    assert "1 error\n" in result.text, "one message"
    assert "unhandled" not in result.text


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/api/v1/namespaces", {"metadata": {"name": "wanted--main"}}, "Namespace wanted--main"),
        pytest.param(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "tenancy-tier-gold"}, "value": 7},
            "PriorityClass tenancy-tier-gold",
            marks=pytest.mark.exhaustive(reason="another kind of object of another owner; `make test` has a namespace"),
        ),
    ],
)
def test_an_object_that_another_owner_made_is_refused_by_name(
    project: Project, path: str, body: dict[str, object], name: str
) -> None:
    environment = (project.environment / "environment.yaml").read_text()
    with project.api() as api:
        api.request("POST", path, body, "application/json")
    project.write("tenants/wanted.yaml", NEW_TENANT.format(name="wanted"))
    project.edit("environment.yaml", "  research:\n    priority", "  gold: {priority: 50}\n  research:\n    priority")
    versions, state = project.versions(), project.state_digest()
    try:
        result = project.tenancy("up", "local")
    finally:
        with project.api() as api:
            api.request("DELETE", f"{path}/{name.split()[1]}")
        project.remove("tenants/wanted.yaml")
        project.write("environment.yaml", environment)
    assert result.code == 1
    assert f"given {name}, which exists" in result.err
    assert "Traceback" not in result.text
    assert project.versions() == versions
    assert project.state_digest() == state


def test_what_lost_its_label_is_not_to_be_deleted(project: Project) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tenancy-viewer"
    with project.api() as api:
        api.request("PATCH", path, {"metadata": {"labels": {vocabulary.ENVIRONMENT: None}}})
        result = project.tenancy("up", "local")
        api.request("PATCH", path, {"metadata": {"labels": {vocabulary.ENVIRONMENT: "local"}}})
    assert result.code == 1
    assert "given ClusterRole tenancy-viewer, which exists" in result.err
    assert f"`kubectl label ClusterRole tenancy-viewer {vocabulary.ENVIRONMENT}=local`" in result.err


def test_an_edit_and_two_new_tenants_leave_all_other_tenants_alone(project: Project) -> None:
    with project.api() as api:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "old--main"}}, "application/json")
        path = "/api/v1/namespaces/old--main/configmaps"
        api.request("POST", path, {"metadata": {"name": "kept"}, "data": {"was": "here"}}, "application/json")
    before = project.versions()
    project.edit("tenants/fraud.yaml", "a100: {guaranteed: 32", "a100: {guaranteed: 24")
    project.write("tenants/new.yaml", NEW_TENANT.format(name="new"))
    project.write("tenants/old.yaml", NEW_TENANT.format(name="old") + "adopt: true\n")
    result = project.up()
    after = project.versions()
    changed_keys = {key for key in before if after.get(key) != before[key]}
    assert changed_keys == {("resourcequotas", "fraud--train", "tenant")}
    assert {key[1] or key[2] for key in after.keys() - before.keys()} == {"new--main", "old--main"}
    line = next(line for line in result.out.splitlines() if "~" in line and "ResourceQuota" in line)
    assert "ResourceQuota fraud--train/tenant" in line
    assert "requests.nvidia.com/gpu 32 → 24" in line
    assert "spec.hard" not in line


def test_an_adopted_namespace_gets_its_isolation_and_keeps_its_content(project: Project) -> None:
    objects = project.objects()
    labels = objects["namespaces", "", "old--main"]["metadata"]["labels"]
    assert labels[vocabulary.TENANT] == "old"
    assert labels[vocabulary.PSA_ENFORCE] == "restricted"
    assert ("resourcequotas", "old--main", "tenant") in objects
    assert project.exists("/api/v1/namespaces/old--main/configmaps/kept")


def removals(project: Project, since: int) -> dict[str, list[str]]:
    """Deleted resources of each namespace, in order."""
    by_space: dict[str, list[str]] = {}
    for request in writes(project.audit(since)):
        if request.verb == "delete":
            by_space.setdefault(request.namespace, []).append(request.resource)
    return by_space


def doors_then_space(order: list[str]) -> bool:
    """Isolation resources go with their namespace: none is removed while a pod may still run in it."""
    space = order.index("namespaces")
    bindings = {"rolebindings"}, {"rolebindings", "serviceaccounts"}
    return set(order[:space]) in bindings and set(order[space:]) == {"namespaces"}


@pytest.mark.exhaustive(
    reason="a tenant without a file and adopted objects; that no namespace is deleted by mistake is in `make test`"
)
def test_without_its_file_a_tenant_is_gone_and_what_was_adopted_stays(project: Project) -> None:
    before, since = project.versions(), project.audit_size()
    project.remove("tenants/new.yaml")
    project.remove("tenants/old.yaml")
    result = project.tenancy("up", "local", "--remove", "new", "--remove", "old")
    assert result.code == 0, result.text
    after = project.versions()
    assert "Namespace new--main" in result.out
    assert not project.exists("/api/v1/namespaces/new--main")
    assert project.exists("/api/v1/namespaces/old--main/configmaps/kept"), "it was there before the tenant"
    assert not {key for key in after if key[1] == "old--main"}
    annotations = project.objects()["namespaces", "", "old--main"]["metadata"]["annotations"]
    assert annotations[vocabulary.LEAVING] == vocabulary.LEFT, "else the next run would miss it"
    namespace_keys = {("namespaces", "", name) for name in ("new--main", "old--main")}
    kept_before = {key: value for key, value in before.items() if key[1] not in {"new--main", "old--main"}}
    assert {key: value for key, value in kept_before.items() if key not in namespace_keys} == {
        key: value for key, value in after.items() if key not in namespace_keys
    }
    by_space = removals(project, since)
    assert doors_then_space(by_space["new--main"])
    removed_kinds = by_space["old--main"]
    last_door = max(i for i, resource in enumerate(removed_kinds) if resource == "rolebindings")
    assert last_door < min(i for i, resource in enumerate(removed_kinds) if resource in WALLS), removed_kinds
    with project.api() as api:
        api.request("DELETE", "/api/v1/namespaces/old--main")
    until(lambda: not project.exists("/api/v1/namespaces/old--main"), "the adopted namespace is gone")


@pytest.fixture
def without_a_file(project: Project) -> Iterator[None]:
    """A tenant's file is missing for a moment."""
    file = project.environment / "tenants" / "performance.yaml"
    text = file.read_text("utf-8")
    file.unlink()
    yield
    file.write_text(text, "utf-8")


@pytest.mark.usefixtures("without_a_file")
@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(
            ("--policy-pack", "policy"),
            id="with-the-pack",
            marks=pytest.mark.exhaustive(reason="the refusal with the policy pack too; `make test` has it without"),
        ),
        pytest.param((), id="alone"),
    ],
)
def test_the_plain_engine_deletes_no_tenant_whose_file_is_missing(project: Project, pack: tuple[str, ...]) -> None:
    versions = project.versions()
    result = project.pulumi("up", "--yes", "--skip-preview", "--stack", "local", *pack)
    assert result.code != 0
    assert "given namespace performance--train of tenant performance, which has no file; rule ns-07" in result.text
    assert "Traceback" not in result.text
    assert project.versions() == versions


def test_the_plain_engine_deletes_no_namespace_that_its_file_lost(project: Project) -> None:
    file = "tenants/fraud.yaml"
    text = (project.environment / file).read_text("utf-8")
    removed_prefixes = ("  - {name: serve", "  a100-1g.5gb:", "  a100-3g.20gb:")
    remaining_lines = [line for line in text.splitlines(keepends=True) if not line.startswith(removed_prefixes)]
    versions = project.versions()
    project.write(file, "".join(remaining_lines))
    try:
        plain = project.pulumi("up", "--yes", "--skip-preview", "--stack", "local")
        by_tenancy = project.tenancy("up", "local")
    finally:
        project.write(file, text)
    for result in (plain, by_tenancy):
        assert result.code != 0
        assert "given namespace fraud--serve, which the file of tenant fraud names no more; rule ns-07" in result.text
        assert "`tenancy up local --remove fraud--serve`" in result.text
    assert project.versions() == versions


@pytest.mark.exhaustive(reason="a program that asks nothing; `make test` has the one that asks")
def test_even_a_program_that_asks_nothing_deletes_no_namespace(project: Project) -> None:
    """Told by its variable that they go, it asks no more; what is protected in the state is left."""
    file = project.environment / "tenants" / "performance.yaml"
    text = file.read_text("utf-8")
    file.unlink()
    command = ("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", "local")
    try:
        result = project.run(*command, env={REMOVING: "performance"})
    finally:
        file.write_text(text, "utf-8")
    assert result.code != 0
    assert "because it is protected" in " ".join(result.text.split())
    assert project.exists("/api/v1/namespaces/performance--train")
    project.up()


@pytest.mark.exhaustive(reason="a program that renames a namespace; `make test` has a file that lost one")
def test_an_update_that_would_delete_a_namespace_of_the_files_is_refused(project: Project) -> None:
    program = project.folder / "tenancy" / "components" / "kubernetes" / "tenant_namespace.py"
    text = program.read_text()
    program.write_text(
        text.replace(
            "self.namespace = Manifest(\n            name,",
            "self.namespace = Manifest(\n            name + '-renamed',",
        )
    )
    versions = project.versions()
    result = project.tenancy("up", "local")
    program.write_text(text)
    assert result.code == 1
    assert "would delete Namespace fraud--serve" in result.err
    assert project.versions() == versions


@pytest.mark.exhaustive(
    reason=(
        "an API server that dies; `tenancy verify` has one message for it in tests/attacks/test_attacks.py, and "
        "the program in tests/unit/components/test_guarded.py"
    )
)
def test_a_dead_api_server_is_one_message_and_no_change(project: Project) -> None:
    state, resources = project.state_digest(), project.state()["resources"]
    project.kill_server()
    try:
        by_tenancy = project.tenancy("up", "local")
        assert project.state_digest() == state
        plain = project.pulumi("up", "--yes", "--skip-preview", "--stack", "local")
    finally:
        project.mend_server()
    for result in (by_tenancy, plain):
        assert "does not answer" in result.text
        assert "Traceback" not in result.text
    assert by_tenancy.code == 1
    assert len(by_tenancy.err.splitlines()) == 1, by_tenancy.err
    assert plain.code != 0
    assert project.state()["resources"] == resources


@pytest.mark.exhaustive(
    reason=(
        "a whole removal, compared with rendered files; "
        "tests/engine/test_scopes.py removes tenants and platform in `make "
        "test`"
    )
)
def test_removal_takes_the_access_bindings_first_and_rendered_files_make_the_same(project: Project) -> None:
    items_before = {key: canonical(item) for key, item in project.objects().items()}
    since = project.audit_size()
    refused = project.pulumi("destroy", "--yes", "--stack", "local")
    assert refused.code != 0
    assert "because it is protected" in " ".join(refused.text.split())
    assert {key: canonical(item) for key, item in project.objects().items()} == items_before, (
        "the engine deleted something"
    )
    result = project.tenancy("down", "local", "--yes")
    assert result.code == 0, result.text
    assert project.objects() == {}
    by_space = removals(project, since)
    for space in ("fraud--train", "fraud--serve", "performance--train", "research--main"):
        assert doors_then_space(by_space[space]), by_space[space]
    removed = [request for request in writes(project.audit(since)) if request.verb == "delete"]
    last_space = max(
        i for i, request in enumerate(removed) if request.resource == "namespaces" and "--" in request.name
    )
    first_guard = min(i for i, request in enumerate(removed) if request.resource in GUARDS)
    assert last_space < first_guard, "a guard fell while a tenant's namespace stood"

    assert project.tenancy("render", "local", "--out", "rendered").code == 0
    for part in ("platform", "tenants"):
        applied = project.run("kubectl", "apply", "--server-side", "--recursive", "-f", f"rendered/{part}")
        assert applied.code == 0, applied.text
    rendered = {key: canonical(item) for key, item in project.objects().items()}
    assert rendered == items_before
