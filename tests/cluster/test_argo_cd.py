"""Argo CD's controller and repository server, a git repository and a real API server: in which order Argo CD makes what
is rendered for it, what it writes for a change of one tenant, and what stays when a tenant's file is gone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.gitops import GitOpsSource, GitOpsTool, rendered
from tenancy.gitops.argo import COMPARE, WAVE, application_bytes
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.kueue import _path
from tenancy.lab.layout import Lab
from tenancy.lab.pki import PLATFORM_USER
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.services import queue_chart
from tenancy.schema.environment import Layout
from tenancy.validation import on_lab
from tests.conftest import SpecFolder, documents
from tests.judges import folder

pytestmark = [pytest.mark.exhaustive, pytest.mark.chapters]

CREATE = "application/json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLICATION = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/small"
SECRETS = "/api/v1/namespaces/argocd/secrets"
DENY = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/default-deny"
FOLDER = "rendered"
EGRESS = "egress:\n  - {cidr: 198.51.100.7/32, port: 9443}\n"
SYNC_SECONDS = 180.0
Key = tuple[str, str, str]
"""(resource, namespace, name)"""


def until(fact: Callable[[], Any], what: Callable[[], object], seconds: float = SYNC_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still not: {what()}"
        time.sleep(0.25)
    return found


@dataclass
class Argo:
    """A lab that Argo CD syncs from a git repository, as the platform's identity."""

    root: Path
    spec: SpecFolder
    api: LabApi
    commits: list[str] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        return Lab.of(self.root)

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    def plan(self) -> Plan:
        loaded = on_lab(self.spec.load())
        return make_plan(loaded.environment, loaded.tenants)

    def texts(self) -> dict[str, str]:
        source = GitOpsSource(f"file://{self.repository}", FOLDER)
        return dict(rendered(self.plan(), Layout.PER_TENANT, GitOpsTool.ARGO, source))

    def publish(self) -> None:
        """Render the files and commit them."""
        shutil.rmtree(self.repository / FOLDER, ignore_errors=True)
        for name, text in self.texts().items():
            path = self.repository / FOLDER / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        self.git("add", "--all")
        self.git("-c", "user.name=platform", "-c", "user.email=platform@bank.example", "commit", "--quiet", "-m", "x")
        self.commits.append(self.git("rev-parse", "HEAD"))

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.repository), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def application(self) -> dict[str, Any]:
        return self.api.get(APPLICATION).get("status") or {}

    def refresh(self) -> None:
        """What a webhook of the forge does: Argo CD reads the repository now, not at its next poll."""
        notes = {"argocd.argoproj.io/refresh": "normal"}
        self.api.request("PATCH", APPLICATION, {"metadata": {"annotations": notes}})

    def synced(self) -> dict[str, Any]:
        """Wait until the last commit is synced; the result of that operation."""
        self.refresh()

        def done() -> dict[str, Any] | None:
            operation = self.application().get("operationState") or {}
            revision = (operation.get("syncResult") or {}).get("revision")
            return operation if revision == self.commits[-1] and operation["phase"] == "Succeeded" else None

        return until(done, lambda: f"{self.commits[-1]} is synced: {told(self.application())}")

    def as_platform(self) -> LabApi:
        """The identity that may change what isolates tenants, which is Argo CD's too."""
        return LabApi(self.lab, ports.remembered(self.lab)["kube-apiserver"], identity="platform")

    def audit_size(self) -> int:
        return (self.lab.folder / "audit.log").stat().st_size

    def written(self, since: int = 0) -> list[tuple[Key, str, int]]:
        """What Argo CD wrote, in the order in which it was answered: object, verb, status."""
        with (self.lab.folder / "audit.log").open("rb") as file:
            file.seek(since)
            events = [json.loads(line) for line in file.read().splitlines()]
        found = []
        for event in sorted(events, key=lambda event: event["stageTimestamp"]):
            asked = event.get("objectRef") or {}
            writes = event["verb"] in {"create", "update", "patch", "delete"} and "dryRun" not in event["requestURI"]
            if event["user"]["username"] == PLATFORM_USER and writes and "selfsubject" not in asked["resource"]:
                # Of a namespace the log says that it is in itself.
                space = "" if asked["resource"] == "namespaces" else asked.get("namespace", "")
                found.append(
                    (
                        (asked["resource"], space, asked.get("name", "")),
                        event["verb"],
                        event["responseStatus"]["code"],
                    )
                )
        return found

    def there(self, path: str) -> bool:
        try:
            self.api.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True


def told(status: dict[str, Any]) -> str:
    """What Argo CD says, short."""
    operation = status.get("operationState") or {}
    resources = (operation.get("syncResult") or {}).get("resources") or []
    failed = [each for each in resources if each.get("status") == "SyncFailed"]
    return json.dumps(
        {
            "conditions": status.get("conditions"),
            "sync": (status.get("sync") or {}).get("status"),
            "operation": [operation.get("phase"), operation.get("message")],
            "failed": failed[:5],
        }
    )


def key(item: dict[str, Any]) -> Key:
    kind = item["kind"].lower()
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("s") else "s")
    return plural, item["metadata"].get("namespace", ""), item["metadata"]["name"]


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


def cluster_secret(lab: Lab, name: str) -> dict[str, Any]:
    """The lab as a cluster of Argo CD, with the identity that the page names: a member of the platform's group."""
    files = {"caData": "ca.crt", "certData": "platform.crt", "keyData": "platform.key"}
    tls = {field: base64.b64encode((lab.pki / file).read_bytes()).decode() for field, file in files.items()}
    server = f"https://127.0.0.1:{ports.remembered(lab)['kube-apiserver']}"
    labels = {"argocd.argoproj.io/secret-type": "cluster"}
    data = {"name": name, "server": server, "config": json.dumps({"tlsClientConfig": tls})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cluster", "labels": labels}, "stringData": data}


def answers(port: int) -> bool:
    with socket.socket() as other:
        return other.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Argo]:
    root = tmp_path_factory.mktemp("argo")
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    spec = SpecFolder(root / "stacks" / "small")
    environment = on_lab(spec.load()).environment
    chart = queue_chart(environment)
    assert chart
    program = folder("argo-cd")
    crds = [yaml.safe_load((folder("schemas-argo-cd") / f"{kind}-crd.yaml").read_text("utf-8"))
            for kind in ("application", "appproject")]  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            lab = control_plane.up(
                root=root,
                platform_group=environment.platform.group,
                nodes=fake_nodes(environment),
                queues=chart.values,
                type_checks=False,
            )
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
                for crd in crds:
                    api.request("POST", CRDS, crd, CREATE)
                made = Argo(root, spec, api)
                prepare(made)
                start(lab, program, root, running)
                for item in documents(made.texts()["gitops/argo.yaml"]):
                    path = f"/apis/argoproj.io/v1alpha1/namespaces/argocd/{item['kind'].lower()}s"
                    until(lambda path=path: made.there(path), lambda: "the kinds of Argo CD are served")
                    api.apply(path, item)
                yield made
        finally:
            for process in running:
                process.kill()
                process.wait()
            control_plane.down(root=root)


def prepare(argo: Argo) -> None:
    """What an installation of Argo CD has, and the repository with the first commit."""
    argo.repository.mkdir()
    argo.git("init", "--quiet", "--initial-branch", "main")
    argo.publish()
    part = {"app.kubernetes.io/part-of": "argocd"}
    argo.api.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "labels": part}}
    argo.api.request("POST", "/api/v1/namespaces/argocd/configmaps", settings, CREATE)
    signature = {"server.secretkey": "only the server reads it"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "argocd-secret", "labels": part}}
    argo.api.request("POST", SECRETS, {**secret, "stringData": signature}, CREATE)
    argo.api.request("POST", SECRETS, cluster_secret(argo.lab, argo.plan().context), CREATE)


def start(lab: Lab, program: Path, root: Path, running: list[subprocess.Popen[bytes]]) -> None:
    """Redis, the repository server and the controller, with their defaults but for addresses."""
    redis, repositories, metrics, own = free_ports(4)
    scratch = root / "argo-cd"
    scratch.mkdir()
    # The repository server calls it for each commit. It says nothing of a commit without a signature, and no project
    # here asks for one.
    verify = scratch / "git-verify-wrapper.sh"
    verify.write_text("#!/bin/sh\n")
    verify.chmod(0o700)
    env = {
        "PATH": f"{scratch}:{os.environ['PATH']}",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_ASK_PASS_SOCK": str(scratch / "ask"),
        "ARGOCD_TLS_DATA_PATH": str(scratch / "tls"),
        "ARGOCD_SSH_DATA_PATH": str(scratch / "ssh"),
    }
    cache, plain = f"--redis=127.0.0.1:{redis}", f"--metrics-port={metrics}"
    server = [f"--port={repositories}", "--address=127.0.0.1", plain, "--metrics-address=127.0.0.1"]
    control = [
        *(f"--kubeconfig={lab.admin_kubeconfig}", "--namespace=argocd", f"--metrics-port={own}"),
        f"--repo-server=127.0.0.1:{repositories}",
    ]
    for port, words in (
        (redis, ["redis", f"127.0.0.1:{redis}"]),
        (repositories, ["repo-server", cache, *server]),
        (own, ["controller", cache, *control]),
    ):
        with (scratch / f"{words[0]}.log").open("wb") as log:
            running.append(
                subprocess.Popen([program, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
            )
        until(lambda port=port: answers(port), lambda words=words: f"{words[0]} listens", 60)


# The tests


def test_each_wave_is_made_after_the_one_before_it_and_access_last(argo: Argo) -> None:
    argo.synced()
    items = [item for name, text in argo.texts().items() if name.startswith(("platform/", "tenants/"))
             for item in documents(text)]  # fmt: skip
    wave = {key(item): int(item["metadata"]["annotations"][WAVE]) for item in items}
    # A namespace's account `default` is there before Argo CD writes it.
    made = [key for key, _, status in argo.written() if status == 201 or (status == 200 and key[2] == "default")]
    assert set(made) == set(wave), "each object is made, and nothing else"
    assert len(made) == len(wave), "once"
    order = [wave[each] for each in made]
    assert order == sorted(order)
    guards = [n for n, each in enumerate(made) if each[0].startswith("validatingadmissionpolic")]
    spaces = [n for n, each in enumerate(made) if each[0] == "namespaces" and "--" in each[2]]
    bindings = [n for n, each in enumerate(made) if each[0] == "rolebindings" and "--" in each[1]]
    assert guards
    assert spaces
    assert bindings
    assert max(guards) < min(spaces)
    assert max(spaces) < min(bindings)


def test_when_all_is_made_the_application_is_synced_and_healthy(argo: Argo) -> None:
    until(
        lambda: (argo.application()["sync"]["status"], argo.application()["health"]["status"]) == ("Synced", "Healthy"),
        lambda: f"synced and healthy: {told(argo.application())}",
    )


def test_the_size_of_the_application_is_known_before_it_is_rendered(argo: Argo) -> None:
    """Above what etcd takes for an object `tenancy render` refuses: Argo CD could not write down what it synced."""
    found = argo.api.get(APPLICATION)
    assert len(found["status"]["resources"]) == len(found["status"]["operationState"]["syncResult"]["resources"])
    size = len(json.dumps(found, separators=(",", ":")))
    assert size < application_bytes(argo.plan().objects()) < 1.25 * size + 8192


def test_a_change_of_one_tenant_writes_that_tenants_objects_alone(argo: Argo) -> None:
    since = argo.audit_size()
    argo.spec.add("tenants/research.yaml", EGRESS)
    argo.publish()
    argo.synced()
    written = {each for each, _, _ in argo.written(since)}
    assert written
    assert {each for each in written if not f"{each[1]}/{each[2]}".count("research")} == set()


def test_a_default_deny_that_a_person_deletes_comes_back(argo: Argo) -> None:
    path = DENY.format("fraud--train")
    with argo.as_platform() as api:
        api.request("DELETE", path)
    until(lambda: argo.there(path), lambda: f"it is there again: {told(argo.application())}")


def test_a_tenant_without_a_file_loses_access_and_keeps_its_data_and_isolation(argo: Argo) -> None:
    claims = "/api/v1/namespaces/fraud--train/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"}, "spec": claim}
    argo.api.request("POST", claims, body, CREATE)
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/fraud--train/rolebindings"
    assert argo.api.get(bindings)["items"]
    items = {key(item): item for tenant in argo.plan().tenants if tenant.name == "fraud" for item in tenant.objects()}
    since = argo.audit_size()
    (argo.spec.path / "tenants" / "fraud.yaml").unlink()
    argo.publish()
    argo.synced()
    deleted = {each for each, verb, _ in argo.written(since) if verb == "delete"}
    assert deleted <= set(items), "of no other tenant, and nothing of the platform"
    assert argo.api.get(bindings)["items"] == []
    kept = {each for each in items if each not in deleted}
    assert {each[0] for each in kept} == {"namespaces", "resourcequotas", "limitranges", "networkpolicies"}
    assert {each[2] for each in kept if each[0] == "networkpolicies"} == {"default-deny"}
    for each in kept:
        assert argo.there(_path(items[each])), each
    assert argo.there(f"{claims}/weights")


def test_what_stays_of_a_tenant_does_not_keep_the_application_out_of_sync(argo: Argo) -> None:
    """An Application that stays out of sync is synced at ever longer intervals, and a deleted default-deny of another
    tenant would be back after minutes."""

    def is_now(wanted: str) -> None:
        argo.refresh()
        until(
            lambda: argo.application()["sync"]["status"] == wanted,
            lambda: f"it is {wanted}: {told(argo.application())}",
            60,
        )

    is_now("Synced")
    without = {"metadata": {"annotations": {COMPARE: None}}}
    with argo.as_platform() as api:
        api.request("PATCH", "/api/v1/namespaces/fraud--train", without)
    is_now("OutOfSync")


def test_a_deleted_application_deletes_no_object(argo: Argo) -> None:
    argo.api.request("DELETE", APPLICATION)
    until(lambda: not argo.there(APPLICATION), lambda: "it is gone")
    for tenant in argo.plan().tenants:
        for item in tenant.objects():
            assert argo.there(_path(item)), key(item)
