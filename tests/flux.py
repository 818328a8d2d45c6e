"""Flux' source-controller and several kustomize-controllers, beside a lab and a git repository that HTTP serves."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gitops_cluster import FOLDER, GitOpsCluster, definitions, lab_of

from tenancy.deploy.gitops import GitOpsTool
from tenancy.deploy.gitops.flux import SHARD
from tests.answering import answering, answers, free_ports
from tests.conftest import documents
from tests.judges import folder
from tests.kinds import define
from tests.waiting import until

NAMESPACE = "flux-system"
SOURCES = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/gitrepositories"
KUSTOMIZATIONS = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/kustomizations"
FLEET_NAME = "fleet"
"""The platform's own Kustomization, which applies those that are rendered."""
NONE = ""
"""The shard of the controller that takes what has no label."""


@dataclass
class Flux(GitOpsCluster):
    """A lab that Flux syncs: a controller for what has no label, and one for each shard."""

    port: int = 0
    controllers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/repository"

    def kustomization(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{KUSTOMIZATIONS}/{name}").get("status") or {}

    def reconcile(self, path: str) -> None:
        """Annotate like `flux reconcile`: the controller looks now, not after its interval."""
        notes = {"reconcile.fluxcd.io/requestedAt": f"{time.time()}"}
        self.api.request("PATCH", path, {"metadata": {"annotations": notes}})

    def fetched(self) -> str:
        """Wait until the last commit is an artifact; its revision."""
        self.reconcile(f"{SOURCES}/small")

        def stored_revision() -> str | None:
            artifact = (self.api.get(f"{SOURCES}/small").get("status") or {}).get("artifact") or {}
            revision = str(artifact.get("revision", ""))
            return revision if revision.endswith(self.commits[-1]) else None

        return until(stored_revision, lambda: f"fetched: {self.api.get(f'{SOURCES}/small').get('status')}")

    def applied(self, *names: str) -> None:
        """Wait until the last commit is applied by these Kustomizations, by default by all."""
        revision = self.fetched()
        until(
            lambda: self.kustomization(FLEET_NAME).get("lastAppliedRevision") == revision,
            lambda: self.conditions_text([FLEET_NAME]),
        )
        expected_names = names or tuple(self.names())

        def is_applied() -> bool:
            return all(self.kustomization(name).get("lastAppliedRevision") == revision for name in expected_names)

        until(is_applied, lambda: self.conditions_text(expected_names))

    def names(self) -> list[str]:
        """Names of the Kustomizations that are rendered."""
        items = documents(self.texts()["gitops/flux.yaml"])
        return [item["metadata"]["name"] for item in items if item["kind"] == "Kustomization"]

    def conditions_text(self, names: Any) -> str:
        """The last conditions, short."""
        return json.dumps({name: (self.kustomization(name).get("conditions") or [])[:1] for name in names})

    def start(self, shard: str) -> None:
        """Start the controller of a shard."""
        selector = f"{SHARD}={shard}" if shard else f"!{SHARD}"
        self.run(shard, "flux-kustomize", f"--watch-label-selector={selector}", "--requeue-dependency=2s")

    def stop(self, shard: str) -> None:
        """End it, as a node that fails does."""
        process = self.controllers.pop(shard)
        process.kill()
        process.wait()

    def run(self, name: str, program: str, *flags: str, more: Mapping[str, str] | None = None) -> None:
        metrics, health = free_ports(2)
        scratch = self.root / f"flux-{name or 'unlabelled'}"
        scratch.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "KUBECONFIG": str(self.lab.admin_kubeconfig),
            "RUNTIME_NAMESPACE": NAMESPACE,
            **(more or {}),
        }
        words = [folder(program), f"--metrics-addr=127.0.0.1:{metrics}", f"--health-addr=127.0.0.1:{health}", *flags]
        with (scratch / "log").open("ab") as log:
            self.controllers[name] = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env, cwd=scratch
            )
        until(
            lambda: answers(health), lambda: f"{program} is ready: {(scratch / 'log').read_text('utf-8')[-2000:]}", 60
        )


@contextmanager
def flux(root: Path, shards: int) -> Iterator[Flux]:
    """A lab with Flux, which applies the first commit."""
    with lab_of(root) as (spec, api), served(root) as port:
        cluster = Flux(root, spec, api, GitOpsTool.FLUX, shards, port=port)
        try:
            for module in ("schemas-flux-source", "schemas-flux-kustomize"):
                define(api, definitions(folder(module)))
            cluster.begin()
            cluster.make_namespace(NAMESPACE)
            (artifacts,) = free_ports(1)
            storage = root / "artifacts"
            storage.mkdir()
            address = f"127.0.0.1:{artifacts}"
            cluster.run(
                "source",
                "flux-source",
                *(f"--storage-path={storage}", f"--storage-addr={address}", f"--storage-adv-addr={address}"),
            )
            for shard in (NONE, *(f"shard-{number + 1}" for number in range(shards))):
                cluster.start(shard)
            install(cluster)
            yield cluster
        finally:
            for process in cluster.controllers.values():
                process.kill()
                process.wait()


def install(flux: Flux) -> None:
    """The source, and a Kustomization of the platform's own that applies those that are rendered, with the lab's
    credentials in place of those for EKS."""
    access = flux.credentials()
    cluster = {"server": access["server"], "certificate-authority-data": access["ca"]}
    user = {"client-certificate-data": access["certificate"], "client-key-data": access["key"]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "platform", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "platform"}}],
        "current-context": "lab",
    }
    data = {"value": base64.b64encode(json.dumps(config).encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lab"}, "data": data}
    flux.api.apply(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    (source,) = [item for item in documents(flux.texts()["gitops/flux.yaml"]) if item["kind"] == "GitRepository"]
    flux.api.apply(SOURCES, source)
    with_secret = [{"op": "replace", "path": "/spec/kubeConfig", "value": {"secretRef": {"name": "lab"}}}]
    spec = {
        "sourceRef": {"kind": "GitRepository", "name": "small"},
        "path": f"./{FOLDER}/gitops",
        "interval": "10m",
        "prune": True,
        "patches": [{"target": {"kind": "Kustomization"}, "patch": json.dumps(with_secret)}],
    }
    kustomization = {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": FLEET_NAME},
    }
    flux.api.apply(KUSTOMIZATIONS, {**kustomization, "spec": spec})


@contextmanager
def served(root: Path) -> Iterator[int]:
    """Serve the repositories of a folder by git's own HTTP program, as Flux takes HTTP and SSH alone; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            env = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "REMOTE_ADDR": "127.0.0.1",
            }
            output = subprocess.run(
                ["git", "http-backend"], input=body, capture_output=True, env=env, check=True
            ).stdout
            head, _, content = output.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with answering(server):
        yield server.server_port
