"""A namespace with work is taken over, and its tenant leaves again: by the commands, with the API server and Kueue."""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Response
from tenancy.cluster.preflight import wait_for_guards
from tenancy.lifecycle.removal import RemovalTimeout, end_and_remove
from tests.printed import compare, page_block
from tests.queues import town
from tests.queues.scene import ROOT, Object, Scene, condition, on_lab_of
from tests.waiting import until

sys.path.append(str(ROOT / "tests" / "engine"))
from engine_project import CommandResult, Project, copied

pytestmark = pytest.mark.chapters

HOME = "ml-fraud"
"""Another tool made it, and named it."""
FILE = "tenants/fraud.yaml"
IMAGE = "registry.bank.example/shared/app:1"
ENVIRONMENT = (
    town.ENVIRONMENT.replace("environment: town", "environment: local")
    .replace("context: town", "context: gpu-tenancy-lab")
    .replace("nodes: 8", "nodes: 2")
)
TENANT = town.tenant(
    *("fraud", "risk", "guaranteed: 8"),
    more=f"namespaces: [{{name: old, namespace-name: {HOME}, quota: {{config-maps: 2}}}}]\nadopt: true\n",
)
ORIGINAL_METADATA = {
    "labels": {"team": "blue-team", vocabulary.PSA_ENFORCE: "baseline", "blue.example/stage": "live"},
    "annotations": {"blue.example/contact": "blue@bank.example"},
}
"""Labels and annotations of the namespace before its adoption. The plan writes the first two labels itself."""
PULLS = {"imagePullSecrets": [{"name": "blue-registry"}], "metadata": {"labels": {"blue.example/stage": "live"}}}
"""The binding of its service account `default`, which the plan writes too."""
OWNER_TENANT = town.tenant("owner", "markets", "guaranteed: 8")
SAFE = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "readOnlyRootFilesystem": True,
}
AMOUNTS = {amount: {"cpu": "100m", "memory": "128Mi"} for amount in ("requests", "limits")}


def template(**container: Any) -> Object:
    """A pod that every rule lets in, but for what is written of its container."""
    main = {"name": "main", "image": IMAGE, "securityContext": SAFE, "resources": AMOUNTS, **container}
    spec = {"automountServiceAccountToken": False, "containers": [main]}
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


def deployment(name: str, **container: Any) -> Object:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template(**container)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": HOME}, "spec": spec}


def secret(name: str, kind: str, account: str = "") -> Object:
    account_annotation = {"kubernetes.io/service-account.name": account} if account else {}
    facts = {"name": name, "namespace": HOME, "annotations": account_annotation}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": facts, "type": kind, "stringData": {"password": "x"}}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A lab with Kueue and one tenant's files; nothing of ours is on it yet."""
    with copied(tmp_path_factory.mktemp("engine") / "project") as lab_project:
        for path in (lab_project.environment / "tenants").iterdir():
            path.unlink()
        lab_project.write("environment.yaml", ENVIRONMENT)
        lab_project.write("tenants/owner.yaml", OWNER_TENANT)
        result = lab_project.tenancy("lab", "up", "local")
        assert result.code == 0, result.text
        yield lab_project


@pytest.fixture
def scene(project: Project) -> Iterator[Scene]:
    with on_lab_of(project.folder, project.environment) as lab_scene:
        yield lab_scene


def report(project: Project, *more: str) -> tuple[CommandResult, dict[str, Any]]:
    """`tenancy report adoption` of fraud, as a person reads it and as data."""
    result = project.tenancy("report", "adoption", "local", "--tenant", "fraud")
    data = project.tenancy("report", "adoption", "local", "--tenant", "fraud", "--format", "json", *more)
    assert result.code == data.code, data.text
    (space,) = json.loads(data.out)["namespaces"]
    return result, space


def findings_of_topic(space: dict[str, Any], topic: str) -> list[dict[str, str]]:
    return [finding for finding in space["findings"] if finding["topic"] == topic]


def rules(space: dict[str, Any], work: str) -> set[str]:
    return {finding["rule"] for finding in findings_of_topic(space, "refused") if finding["what"] == work}


def make(scene: Scene, item: Object, query: str = "") -> Response:
    from tenancy.kube.requests import collection

    path = collection(item["apiVersion"], item["kind"], item["metadata"].get("namespace"))
    return scene.api.request("POST", path + query, item)


def drop(scene: Scene, version: str, kind: str, name: str) -> None:
    from tenancy.kube.requests import collection

    answer = scene.api.request("DELETE", f"{collection(version, kind, HOME)}/{name}?propagationPolicy=Background")
    assert answer.ok, answer.message


def everything(project: Project) -> dict[str, str]:
    """Objects in the namespace, with the fields that change with every write."""
    listing = project.run("kubectl", "get", "all,cm,quota,limits,netpol,rolebindings", "-n", HOME, "-o", "json")
    assert listing.code == 0, listing.text
    items = json.loads(listing.out)["items"]
    return {f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["uid"] + str(i.get("spec")) for i in items}


# Taken over


def test_before_any_guard_stands_the_report_says_what_comes_first(project: Project, scene: Scene) -> None:
    assert make(scene, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, **ORIGINAL_METADATA}}).ok
    account = f"/api/v1/namespaces/{HOME}/serviceaccounts/default"
    until(lambda: scene.api.request("GET", account).ok, "it takes pods")
    assert scene.api.request("PATCH", account, PULLS, content_type="application/merge-patch+json").ok
    legacy_metadata = {"metadata": {"name": "legacy", "namespace": HOME}}
    rbac = "rbac.authorization.k8s.io"
    subject = {"apiGroup": rbac, "kind": "Group", "name": "legacy-team"}
    items: list[Object] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"kept-{n}", "namespace": HOME}, "data": data}
        for n, data in enumerate(({}, {"A": "1"}, {"CUDA_VERSION": "13"}))
    ]
    items += [
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "subjects": [subject],
            **legacy_metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
        },
        {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "40"}}, **legacy_metadata},
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            **legacy_metadata,
            "spec": {"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "inside", "namespace": HOME},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}], "policyTypes": ["Ingress"]},
        },
        secret("token", "kubernetes.io/service-account-token", account="default"),
        secret("password", "kubernetes.io/basic-auth"),
        deployment("good"),
        deployment("visible", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        deployment("elsewhere", image="docker.io/library/app:1"),
        deployment("root", securityContext={**SAFE, "allowPrivilegeEscalation": True}),
    ]
    for item in items:
        answer = make(scene, item)
        assert answer.ok, f"{item['kind']}: {answer.message}"
    until(lambda: len(scene.items("Pod", HOME, "v1")) == 4, "every deployment has its pod")
    project.write(FILE, TENANT)
    before = everything(project)
    result, space = report(project)
    assert result.code == 1
    assert "the cluster has no guards" in result.out
    assert "write `guards: audit` into environment.yaml" in " ".join(result.out.split())
    assert (space["state"], space["asked"]) == ("to be taken over", 0)
    assert everything(project) == before, "it only asks"


def test_guards_that_warn_are_asked_before_the_namespace_is_ours(project: Project) -> None:
    project.remove(FILE)
    project.write("environment.yaml", ENVIRONMENT + "guards: audit\n")
    result = project.tenancy("up", "local")
    assert result.code == 0, result.text
    compare(page_block("adoption.md", "tenancy up local"), result.out)
    project.write(FILE, TENANT)
    before = everything(project)
    result, space = report(project)
    assert result.code == 1, result.text
    assert everything(project) == before
    compare(page_block("adoption.md", "tenancy report adoption"), result.out)
    # Of the rules that read the namespace nothing can be known yet, and so nothing is said.
    assert "img-01" in space["unasked"]
    assert rules(space, "Deployment visible") == {"gpu-02"}
    assert rules(space, "Deployment elsewhere") == set()
    assert rules(space, "Deployment good") == set()
    assert rules(space, "ConfigMap kept-1") == set()
    assert rules(space, "ConfigMap kept-2") == {"gpu-04"}
    assert rules(space, "Secret password") == set()
    assert rules(space, "Secret token") == {"id-02"}
    assert rules(space, "NetworkPolicy legacy") == set()
    changes = {finding["what"]: (finding["now"], finding["then"]) for finding in findings_of_topic(space, "changes")}
    assert changes[f"label {vocabulary.TENANT}"] == ("–", "fraud")
    assert changes[f"label {vocabulary.PSA_ENFORCE}"] == ("baseline", "restricted")
    remaining_objects = {finding["what"]: finding["now"] for finding in findings_of_topic(space, "stays beside")}
    assert remaining_objects == {
        "RoleBinding legacy": "Group legacy-team as edit",
        "ResourceQuota legacy": "pods 40",
        "NetworkPolicy legacy": "Ingress",
        "NetworkPolicy inside": "Ingress",
    }
    # Three of ours, and the root certificate that every namespace has.
    assert [(f["what"], f["now"], f["then"]) for f in findings_of_topic(space, "quota below use")] == [
        ("tenant: configmaps", "4", "2")
    ]
    (refused,) = findings_of_topic(space, "Pod Security")
    assert "root-" in refused["what"]
    assert "allowPrivilegeEscalation != false" in refused["now"]


@pytest.mark.exhaustive(
    reason="a namespace in the way of its tenant; tests/engine/test_one_stack.py has one that is refused by name"
)
def test_a_namespace_is_in_the_way_until_its_file_adopts_it(project: Project) -> None:
    project.edit(FILE, "adopt: true\n", "")
    result, space = report(project)
    refused = project.tenancy("up", "local")
    project.write(FILE, TENANT)
    assert (result.code, space["state"]) == (1, "in the way")
    assert refused.code == 1
    assert f"given Namespace {HOME}, which exists" in refused.err


def test_taken_over_below_its_use_nothing_is_deleted_and_it_is_said(project: Project) -> None:
    before = everything(project)
    result = project.tenancy("up", "local")
    assert result.code == 0, result.text
    after = everything(project)
    assert {key: after.get(key) for key in before} == before


def test_once_it_is_ours_all_rules_are_asked(project: Project) -> None:
    result, space = report(project)
    assert (result.code, space["state"], space["unasked"]) == (1, "taken over", [])
    assert findings_of_topic(space, "changes") == []
    assert rules(space, "Deployment elsewhere") == {"img-01"}
    assert rules(space, "Deployment visible") == {"gpu-02"}
    assert rules(space, "Deployment good") == set()
    assert rules(space, "Deployment root") == {"PodSecurity", "pod-04"}
    assert rules(space, "NetworkPolicy inside") == set()
    assert rules(space, "NetworkPolicy legacy") == {"net-02"}
    assert not [
        finding for finding in findings_of_topic(space, "stays beside") if finding["what"].startswith("NetworkPolicy")
    ]
    refusals = {finding["rule"]: finding["now"] for finding in findings_of_topic(space, "refused")}
    warned = dict.fromkeys(("gpu-02", "gpu-04", "id-02", "img-01", "net-02", "pod-04"), "warned of")
    assert refusals == {**warned, "PodSecurity": "refused"}


def test_verify_says_that_guards_only_warn(project: Project) -> None:
    result = project.tenancy("verify", "local", "--only", "gpu-02")
    assert result.code == 1
    compare(page_block("adoption.md", "tenancy verify"), result.err + result.out)


def test_the_guards_are_known_to_be_in_force_while_they_warn(scene: Scene) -> None:
    marker = scene.api.request("GET", f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/guards").body
    assert marker["data"]["digest"] == scene.plan.platform.marker["data"]["digest"]
    wait_for_guards(scene.api, marker["data"]["digest"])


def test_mended_it_is_enforced_and_the_report_is_empty(project: Project, scene: Scene) -> None:
    warned = make(scene, deployment("hidden", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), "?dryRun=All")
    assert warned.ok
    for name in ("visible", "elsewhere", "root"):
        drop(scene, "apps/v1", "Deployment", name)
    for n in range(3):
        drop(scene, "v1", "ConfigMap", f"kept-{n}")
    drop(scene, "rbac.authorization.k8s.io/v1", "RoleBinding", "legacy")
    drop(scene, "v1", "ResourceQuota", "legacy")
    drop(scene, "networking.k8s.io/v1", "NetworkPolicy", "legacy")
    drop(scene, "v1", "Secret", "token")
    project.write("environment.yaml", ENVIRONMENT)
    project.up()

    def is_clean() -> bool:
        result, _ = report(project)
        return result.code == 0

    until(is_clean, lambda: f"the quota is counted anew, and the report finds nothing: {report(project)[0].out}")
    bad, twin = "all", "void"
    answers = [
        make(scene, deployment("new", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]), "?dryRun=All")
        for value in (bad, twin)
    ]
    assert [answer.status for answer in answers] == [403, 201], answers
    assert "ValidatingAdmissionPolicy 'tenancy-templates'" in answers[0].message
    assert "gpu-02" in answers[0].message
    result = project.tenancy("verify", "local", "--only", "gpu-02")
    assert "only warn" not in result.text
    assert result.code == 0, result.text


# OffboardingStage, with the namespace


def own_metadata(scene: Scene) -> dict[str, dict[str, str]]:
    metadata = scene.api.request("GET", f"/api/v1/namespaces/{HOME}").body["metadata"]
    servers = {vocabulary.SPACE_NAME}
    return {
        place: {k: v for k, v in metadata[place].items() if k not in servers} for place in ("labels", "annotations")
    }


@pytest.mark.exhaustive(
    reason=(
        "an adopted namespace is put on hold, removed and given back; what is written back is in "
        "tests/unit/lifecycle/test_adoption_record.py, a removal by the engine in "
        "tests/engine/test_offboarding.py"
    )
)
def test_a_namespace_that_was_taken_over_is_given_back_as_it_was_and_its_work_starts_again(
    project: Project, scene: Scene
) -> None:
    """A deployment that guards refused is made and rolled as before; pods with GPUs stay refused, as in any namespace
    that is no tenant's."""
    record = own_metadata(scene)["annotations"][vocabulary.BEFORE_ADOPTION]
    assert json.loads(record)["labels"] == ORIGINAL_METADATA["labels"]
    elsewhere = deployment("elsewhere", image="docker.io/library/app:1")
    assert make(scene, elsewhere, "?dryRun=All").status == 403
    annotation_patch = {"metadata": {"annotations": {"blue.example/contact": "red@bank.example"}}}
    path = f"/api/v1/namespaces/{HOME}"
    assert scene.api.request("PATCH", path, annotation_patch, content_type="application/merge-patch+json").ok
    for leaving in ("hold", "remove"):
        project.write(FILE, f"{TENANT}offboarding: {leaving}\n")
        result = project.tenancy("up", "local")
        assert result.code == 0, result.text
    assert f"namespace {HOME} has its labels and annotations of before its adoption" in result.out
    expected_metadata = {
        "labels": ORIGINAL_METADATA["labels"],
        "annotations": annotation_patch["metadata"]["annotations"],
    }
    assert own_metadata(scene) == expected_metadata, "what others wrote since stays"
    account = scene.api.request("GET", f"{path}/serviceaccounts/default").body
    assert account["imagePullSecrets"] == PULLS["imagePullSecrets"]
    assert account["metadata"]["labels"] == PULLS["metadata"]["labels"]
    assert account.get("automountServiceAccountToken") is None
    isolation_prefixes = ("ResourceQuota", "LimitRange", "NetworkPolicy", "RoleBinding")
    assert [
        key for key in everything(project) if key.startswith(isolation_prefixes) and not key.endswith("/inside")
    ] == []

    until(lambda: make(scene, elsewhere, "?dryRun=All").ok, "its own work is created again")
    assert make(scene, elsewhere).ok
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-11-27T18:00:00Z"}
    roll = {"spec": {"template": {"metadata": {"annotations": restarted}}}}
    for name in ("good", "elsewhere"):
        where = f"/apis/apps/v1/namespaces/{HOME}/deployments/{name}"
        assert scene.api.request("PATCH", where, roll, content_type="application/merge-patch+json").ok

        def rolled(where: str = where) -> bool:
            # The nodes of this lab are kept for GPUs, so that pods wait: what counts is that they are created.
            workload = scene.api.request("GET", where).body
            status = workload.get("status") or {}
            return status.get("observedGeneration") == workload["metadata"]["generation"] and (
                status.get("updatedReplicas") == 1
            )

        until(rolled, f"{name} has a pod after its restart")
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": HOME}}
    with_gpus = template(resources={"limits": {"nvidia.com/gpu": "8"}})["spec"]
    assert "gpu-12" in make(scene, {**bare, "spec": with_gpus}, "?dryRun=All").message
    assert make(scene, {**bare, "spec": template()["spec"]}, "?dryRun=All").ok
    result = project.tenancy("up", "local")
    assert result.code == 0, result.text
    result = project.tenancy("report", "adoption", "local", "--format", "json")
    (space,) = [candidate for candidate in json.loads(result.out)["namespaces"] if candidate["name"] == HOME]
    assert (space["state"], space["tenant"]) == ("unmanaged", "")
    assert "in no file" not in project.tenancy("report", "adoption", "local").out


@pytest.mark.exhaustive(reason="a namespace is taken over a second time; `make test` takes it over once")
def test_it_is_taken_over_again(project: Project, scene: Scene) -> None:
    drop(scene, "apps/v1", "Deployment", "elsewhere")
    project.write(FILE, TENANT)
    result = project.tenancy("up", "local")
    assert result.code == 0, result.text
    assert own_metadata(scene)["labels"][vocabulary.TENANT] == "fraud"


# OffboardingStage


def stage(project: Project, leaving: str) -> None:
    text = TENANT.replace("adopt: true\n", "").replace("config-maps: 2", "config-maps: 20")
    project.write(FILE, text + (f"offboarding: {leaving}\n" if leaving else ""))


@pytest.mark.exhaustive(
    reason=(
        "a tenant with running and waiting work on hold in an adopted "
        "namespace; tests/queues/test_changes.py and "
        "tests/engine/test_offboarding.py have one on hold"
    )
)
def test_on_hold_what_runs_ends_what_waits_waits_and_people_read(project: Project, scene: Scene) -> None:
    """Two jobs of 8 GPUs of 8: one runs. On hold it goes on; when it has ended, the other still waits."""
    drop(scene, "apps/v1", "Deployment", "good")
    scene.read()
    scene.submit("fraud", "runs", 8)
    scene.until_runs(HOME, "runs")
    scene.submit("fraud", "waits", 8)
    scene.until_waits(HOME, "waits")
    stage(project, "hold")
    project.up()
    assert scene.queue("fraud", "batch")["spec"]["stopPolicy"] == "Hold"
    assert scene.runs(HOME, "runs")
    creation = scene.ask("fraud", scene.job("fraud", "more", 1), "?dryRun=All")
    assert (creation.status, "cannot create resource" in creation.message) == (403, True)
    jobs = f"/apis/batch/v1/namespaces/{HOME}/jobs"
    assert scene.api.request("GET", jobs, identity=scene.developer("fraud")).ok
    secrets = scene.api.request("GET", f"/api/v1/namespaces/{HOME}/secrets", identity=scene.developer("fraud"))
    assert secrets.status == 403, "who only reads sees no secrets"
    drop(scene, "batch/v1", "Job", "runs")
    until(lambda: scene.gpus_in_use("fraud") == 0, "its GPUs are back")
    assert not scene.runs(HOME, "waits")


@pytest.mark.exhaustive(
    reason="the way back from hold in an adopted namespace; tests/queues/test_changes.py opens a queue that was on hold"
)
def test_back_from_hold_what_waited_starts_and_people_write(project: Project, scene: Scene) -> None:
    stage(project, "")
    project.up()
    scene.until_runs(HOME, "waits")
    assert scene.ask("fraud", scene.job("fraud", "more", 1), "?dryRun=All").ok


@pytest.mark.exhaustive(
    reason=(
        "an export of real objects, which `make test` has nowhere; the stage "
        "is in tests/unit/deploy/test_offboarding_stacks.py"
    )
)
def test_an_export_holds_what_can_be_made_again_and_says_what_it_lacks(
    project: Project, scene: Scene, tmp_path: Path
) -> None:
    stage(project, "export")
    project.up()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": HOME}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": HOME},
        "spec": {
            "storageClassName": "tenancy-gp3",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": HOME},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    for item in ({**secret, "stringData": {"word": "hush"}}, claim, service):
        answer = make(scene, item)
        assert answer.ok, answer.message
    out = tmp_path / "export"
    result = project.tenancy("export", "fraud", "local", "--out", str(out))
    assert result.code == 0, result.text
    text = (out / "README.md").read_text()
    assert "hush" not in "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert f"Secret {HOME}/key (Opaque)" in text
    assert "tenancy chargeback local --from 20" in text
    (job,) = yaml.safe_load_all((out / f"objects/{HOME}/jobs.yaml").read_text())
    assert job["metadata"]["name"] == "waits"
    assert {"status", "uid", "resourceVersion"}.isdisjoint({*job, *job["metadata"]})
    assert "selector" not in job["spec"]
    (volume,) = yaml.safe_load((out / "record/volumes.yaml").read_text())
    assert (volume["claim"], volume["size"]) == ("data", "5Gi")
    people = yaml.safe_load((out / "record/people.yaml").read_text())["people"]
    assert [(p["name"], p["role"]) for p in people] == [("fraud-engineers", "developer")]
    assert (out / "record/tenant.yaml").read_text() == (project.environment / FILE).read_text()
    assert not (out / f"objects/{HOME}/resourcequotas.yaml").exists(), "what the file makes is not exported"
    assert re.search(r"ResourceQuota \(\d+\): made from the tenant's file", text)
    again = project.run("kubectl", "apply", "--dry-run=server", "--recursive", "-f", str(out / "objects"))
    assert again.code == 0, again.text

    result = project.tenancy("export", "fraud", "local", "--out", str(out))
    assert (result.code, "which exists" in result.err) == (2, True)
    open_out = tmp_path / "secrets"
    result = project.tenancy("export", "fraud", "local", "--out", str(open_out), "--include-secrets")
    assert result.code == 0, result.text
    file = open_out / f"objects/{HOME}/secrets.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert next(yaml.safe_load_all(file.read_text()))["data"] == {"word": "aHVzaA=="}


@pytest.mark.exhaustive(
    reason="Kueue is down while a tenant leaves; a removal that is held is named in tests/engine/test_offboarding.py"
)
def test_with_kueue_down_nothing_begins_and_what_had_begun_names_it(project: Project, scene: Scene) -> None:
    """`tenancy up` does not begin. What goes down in the middle of a removal is played by its second half alone: it
    says what holds the pods of a job that was deleted, and who should let go. With Kueue back the command goes on."""
    assert scene.runs(HOME, "waits"), "a tenant at stage export still runs what ran"
    until(lambda: scene.pods(HOME), "its pod runs")
    stage(project, "remove")
    scene.kill_kueue()
    try:
        versions, state = project.versions(), project.state_digest()
        result = project.tenancy("up", "local")
        assert result.code == 1, result.text
        assert "given tenant fraud that leaves, and a Kueue whose webhook does not answer" in result.err
        assert project.versions() == versions
        assert project.state_digest() == state
        with pytest.raises(RemovalTimeout) as stuck:
            # The longer Kueue is away, the longer the job controller waits until it asks again.
            end_and_remove(scene.api, [HOME], ["fraud--batch"], 3, print)
        message = str(stuck.value)
        assert f"given {HOME}, whose work still exists after 3 s" in message
        assert f"{HOME}/waits-" in message
        assert (
            "batch.kubernetes.io/job-tracking is removed by the job controller, asking the webhook of Kueue" in message
        )
        assert "change: start Kueue again, and run this again: it continues from here" in message
        assert scene.api.request("GET", f"/api/v1/namespaces/{HOME}").ok
    finally:
        scene.start_kueue()
    result = project.tenancy("up", "local")
    assert result.code == 0, result.text
    assert scene.api.request("GET", f"/api/v1/namespaces/{HOME}").status == 404
    assert scene.api.request("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/fraud--batch").status == 404
    assert project.keys_in_state() == set(project.objects())
    assert condition(scene.queue("owner", "batch"), "Active").get("status") == "True", "who stays goes on"
