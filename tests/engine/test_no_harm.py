"""A cluster that lives already: what is not ours goes on, whatever is run, and who may not deploy is told before."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_project import ROOT, CommandResult, Project

from tenancy.catalog import vocabulary
from tenancy.lab.api import ApiError
from tests.waiting import until

pytestmark = pytest.mark.chapters

HOOK = "cert-manager-webhook"
FOREIGN = ("cert-manager", "ml-fraud")
DECIDED = "  unmanaged-namespaces: [cert-manager, ml-fraud]\n"
PLATFORM = "platform:\n  group: gpu-platform-team\n"
PROGRAM = """\
import pulumi
import pulumi_kubernetes as kubernetes

from tenancy import GpuTenant, load

context = load({folder!r}).environment.cluster.context
settings = pulumi.Config("foreign")
provider = kubernetes.Provider("mine", context=context, kubeconfig=settings.get("kubeconfig"))
given = provider if settings.get_bool("provider") is not False else None
opts = pulumi.ResourceOptions(providers=[given]) if given else None
GpuTenant("research", {folder!r}, opts=opts)
"""


def ask(project: Project, method: str, path: str, body: Any = None) -> Any:
    """The answer, or the refusal's words."""
    with project.api("admin") as api:
        try:
            return api.request(method, path, body, "application/json")
        except ApiError as error:
            return str(error)


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"containers": [{"name": "main", "image": "docker.io/library/any:1"}], **spec}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def pods(project: Project, space: str) -> set[str]:
    with project.api("admin") as api:
        return {item["metadata"]["uid"] for item in api.get(f"/api/v1/namespaces/{space}/pods")["items"]}


def restarted(project: Project, space: str) -> None:
    """All pods of a namespace are deleted, and their controllers make as many anew."""
    before = pods(project, space)
    assert len(before) == 2
    ask(project, "DELETE", f"/api/v1/namespaces/{space}/pods")
    until(lambda: len(pods(project, space) - before) == 2, f"{space} has its pods again")


@pytest.fixture(scope="module")
def foreign(project: Project) -> Project:
    """Work of others on the cluster: two Deployments, and a webhook whose service is in one of their namespaces."""
    for space in FOREIGN:
        ask(project, "POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        until(
            lambda space=space: project.exists(f"/api/v1/namespaces/{space}/serviceaccounts/default"), "it takes pods"
        )
        ask(project, "POST", f"/apis/apps/v1/namespaces/{space}/deployments", deployment("service"))
        until(lambda space=space: len(pods(project, space)) == 2, "it runs")
    hook = {
        "name": "webhook.cert-manager.example",
        "clientConfig": {"service": {"name": HOOK, "namespace": "cert-manager"}},
        "rules": [{"apiGroups": ["x.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    service = {"metadata": {"name": HOOK}, "spec": {"ports": [{"port": 443}]}}
    ask(project, "POST", "/api/v1/namespaces/cert-manager/services", service)
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    ask(project, "POST", path, {"metadata": {"name": HOOK}, "webhooks": [hook]})
    return project


def both(project: Project) -> Iterator[CommandResult]:
    """By the command, and by the engine alone."""
    yield project.tenancy("up", "local")
    yield plain_up(project)


def plain_up(project: Project, **env: str) -> CommandResult:
    """By the engine alone."""
    project.pulumi("stack", "init", "local")
    command = ("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", "local")
    return project.run(*command, env=env)


def test_work_that_no_file_decides_about_ends_it_before_anything_is_made(foreign: Project) -> None:
    for result in both(foreign):
        assert result.code != 0
        assert "given 2 namespaces with work and no decision; rule ns-06" in result.text
        assert "cert-manager: ns-02 refuses when created again: 2 pods, 1 deployments, 1 replicasets" in result.text
        assert f"its services answer for ValidatingWebhookConfiguration {HOOK}" in result.text
        assert "ml-fraud: ns-02 refuses" in result.text
        assert "Traceback" not in result.text
    assert foreign.objects() == {}


def test_a_deployer_outside_of_the_platforms_group_is_told_before_anything_is_made(foreign: Project) -> None:
    text = (foreign.environment / "environment.yaml").read_text("utf-8")
    foreign.edit("environment.yaml", PLATFORM, "platform:\n  group: another-team\n" + DECIDED)
    try:
        result = foreign.tenancy("up", "local")
    finally:
        foreign.write("environment.yaml", text)
    assert result.code == 1
    assert "rule rbac-07: " in result.err
    assert re.search(r"given identity \S+, whose groups are .*gpu-platform-team", result.err), result.err
    assert "aws eks create-access-entry" in result.err
    assert "--kubernetes-groups another-team" in result.err
    assert foreign.objects() == {}


def test_every_right_is_not_enough_to_deploy(foreign: Project) -> None:
    """An admin of EKS is in no group of the platform."""
    text = (foreign.environment / "environment.yaml").read_text("utf-8")
    foreign.edit("environment.yaml", PLATFORM, PLATFORM + DECIDED)
    try:
        result = plain_up(foreign, KUBECONFIG=str(foreign.lab.admin_kubeconfig))
    finally:
        foreign.write("environment.yaml", text)
    assert result.code != 0
    assert "rule rbac-07: " in result.text
    assert "system:masters is not enough" in result.text
    assert "given 2 namespaces" not in result.text
    assert foreign.objects() == {}


class OwnProgram:
    """A foreign program that makes one tenant with the library."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.folder = project, folder
        (folder / "state").mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text(
            f"name: foreign\nruntime:\n  name: python\n  options: {{virtualenv: {sys.prefix}}}\n"
        )
        (folder / "__main__.py").write_text(PROGRAM.format(folder=str(project.environment)))
        self.env = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), "PYTHONPATH": str(ROOT)}
        self("stack", "init", "dev")

    def __call__(self, *command: str) -> CommandResult:
        return self.project.run("pulumi", *command, "--non-interactive", env=self.env, folder=self.folder)


@pytest.fixture(scope="module")
def own_program(foreign: Project, tmp_path_factory: pytest.TempPathFactory) -> OwnProgram:
    return OwnProgram(foreign, tmp_path_factory.mktemp("own") / "program")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("preview",),
            id="preview",
            marks=pytest.mark.exhaustive(
                reason="the preview of an own program without guards; `make test` runs its update"
            ),
        ),
        pytest.param(("up", "--yes", "--skip-preview"), id="up"),
    ],
)
def test_a_tenant_of_ones_own_program_refuses_a_cluster_without_guards(
    own_program: OwnProgram, command: tuple[str, ...]
) -> None:
    result = own_program(*command, "--stack", "dev")
    assert result.code != 0
    assert "tenant research: given a cluster with no guards; rule: a tenant needs enforced guards" in result.text
    assert "Traceback" not in result.text
    assert own_program.project.objects() == {}


@pytest.mark.exhaustive(reason="a preview without a cluster; the question is in tests/unit/components")
def test_a_preview_without_a_cluster_says_what_waits(own_program: OwnProgram) -> None:
    dead = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dead", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": vocabulary.LAB_CONTEXT, "context": {"cluster": "dead", "user": "anonymous"}}],
    }
    own_program("config", "set", "foreign:kubeconfig", json.dumps(dead), "--stack", "dev")
    result = own_program("preview", "--stack", "dev")
    own_program("config", "rm", "foreign:kubeconfig", "--stack", "dev")
    assert "tenant research: whether the guards judge is asked in the update, not in this preview" in result.text
    assert "does not answer" in result.text


@pytest.mark.exhaustive(reason="an own program without a provider; the refusal is in tests/unit/components")
def test_a_tenant_without_a_provider_is_refused(own_program: OwnProgram) -> None:
    own_program("config", "set", "foreign:provider", "false", "--stack", "dev")
    result = own_program("preview", "--stack", "dev")
    own_program("config", "rm", "foreign:provider", "--stack", "dev")
    assert result.code != 0
    assert "given tenant research without a provider of its cluster" in result.text


# While guards warn


@pytest.fixture(scope="module")
def warned(foreign: Project, own_program: OwnProgram) -> CommandResult:  # noqa: ARG001 (what it shows needs a cluster without guards)
    foreign.edit("environment.yaml", "environment: local\n", "environment: local\nguards: audit\n")
    return foreign.up()


@pytest.mark.exhaustive(
    reason="guards that warn on a cluster with work; tests/cluster/test_adoption.py has them in `make test`"
)
def test_guards_that_warn_stop_nothing_and_name_what_they_would(foreign: Project, warned: CommandResult) -> None:
    assert "note: given 2 namespaces with work and no decision; rule ns-06" in warned.out
    restarted(foreign, "ml-fraud")


@pytest.mark.exhaustive(reason="the report over a whole cluster; one namespace is in tests/cluster/test_adoption.py")
@pytest.mark.usefixtures("warned")
def test_the_report_covers_the_whole_cluster(foreign: Project) -> None:
    result = foreign.tenancy("report", "adoption", "local", "--format", "json")
    assert result.code == 1, result.text
    spaces_by_name = {space["name"]: space for space in json.loads(result.out)["namespaces"]}
    for space in FOREIGN:
        assert spaces_by_name[space]["state"] == "undecided"
        refused = [f for f in spaces_by_name[space]["findings"] if f["topic"] == "refused"]
        assert {(f["what"], f["now"], f["rule"]) for f in refused} == {("Deployment service", "warned of", "ns-02")}
    unmanaged_objects = [f["what"] for f in spaces_by_name["cert-manager"]["findings"] if f["topic"] == "stays beside"]
    assert unmanaged_objects == [f"ValidatingWebhookConfiguration {HOOK}"]
    assert "default" not in spaces_by_name, "it has no work"


@pytest.mark.exhaustive(
    reason="guards that begin to refuse; that undecided work ends a run before anything is made is in `make test`"
)
@pytest.mark.usefixtures("warned")
def test_guards_do_not_begin_to_refuse_before_each_is_decided(foreign: Project) -> None:
    versions = foreign.versions()
    foreign.edit("environment.yaml", "guards: audit\n", "")
    result = foreign.tenancy("up", "local")
    assert result.code == 1
    assert "given 2 namespaces with work and no decision" in result.err
    assert foreign.versions() == versions


# Decided


@pytest.fixture(scope="module")
def decided(foreign: Project) -> CommandResult:
    text = (foreign.environment / "environment.yaml").read_text("utf-8").replace("guards: audit\n", "")
    foreign.write("environment.yaml", text.replace(PLATFORM, PLATFORM + DECIDED))
    return foreign.up()


@pytest.mark.usefixtures("decided")
@pytest.mark.parametrize("space", FOREIGN)
def test_work_of_an_unmanaged_namespace_starts_again(foreign: Project, space: str) -> None:
    restarted(foreign, space)


@pytest.mark.usefixtures("decided")
def test_its_agents_that_enter_every_node_are_named_and_refused(foreign: Project) -> None:
    path = "/apis/apps/v1/namespaces/ml-fraud/daemonsets"
    body = deployment("agent", tolerations=[{"operator": "Exists"}])
    del body["spec"]["replicas"]
    ask(foreign, "POST", path, body)
    try:
        result = foreign.tenancy("report", "adoption", "local", "--format", "json")
    finally:
        ask(foreign, "DELETE", f"{path}/agent")
    spaces_by_name = {space["name"]: space for space in json.loads(result.out)["namespaces"]}
    assert spaces_by_name["ml-fraud"]["state"] == "unmanaged"
    refused = [(f["what"], f["rule"]) for f in spaces_by_name["ml-fraud"]["findings"] if f["topic"] == "refused"]
    assert refused == [("DaemonSet agent", "gpu-12")]


@pytest.mark.usefixtures("decided")
def test_a_new_namespace_with_work_is_named_at_the_next_run(foreign: Project) -> None:
    """Without a decision its work is refused; what a platform's namespace was let go of has some."""
    foreign.edit("environment.yaml", DECIDED, "  unmanaged-namespaces: [cert-manager]\n")
    result = foreign.tenancy("up", "local")
    foreign.edit("environment.yaml", "  unmanaged-namespaces: [cert-manager]\n", DECIDED)
    assert result.code == 1
    assert "given 1 namespace with work and no decision" in result.err
    assert "ml-fraud: ns-02 refuses when created again" in result.err


@pytest.mark.exhaustive(reason="a tenant of an own program; tests/engine/test_examples.py makes one in `make test`")
@pytest.mark.usefixtures("decided")
def test_a_tenant_of_ones_own_program_is_made_where_guards_judge(own_program: OwnProgram) -> None:
    result = own_program("preview", "--stack", "dev")
    assert result.code == 0, result.text
    assert "waits" not in result.text
    marker = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/guards"
    with own_program.project.api() as api:
        older = {"data": {"version": "1"}}
        api.request("PATCH", marker, older)
        refused = own_program("up", "--yes", "--skip-preview", "--stack", "dev")
    assert refused.code != 0
    assert "given a cluster with guards of version 1" in refused.text


@pytest.mark.exhaustive(
    reason=(
        "a destroy of an own program; that the plain engine deletes no namespace is in tests/engine/test_one_stack.py"
    )
)
@pytest.mark.usefixtures("decided")
def test_a_destroy_that_skips_its_preview_leaves_namespaces_isolation_and_guards(foreign: Project) -> None:
    foreign.up()
    before = set(foreign.objects())
    result = foreign.pulumi("destroy", "--yes", "--skip-preview", "--stack", "local")
    assert result.code != 0
    assert "because it is protected" in " ".join(result.text.split())
    isolation_resources = {"limitranges", "networkpolicies", "resourcequotas", "namespaces"}
    guards = {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
    protected_keys = {key for key in before if key[0] in isolation_resources | guards}
    assert protected_keys <= set(foreign.objects())
    foreign.up()
    assert set(foreign.objects()) == before
    assert foreign.tenancy("down", "local", "--yes").code == 0
    assert foreign.objects() == {}
