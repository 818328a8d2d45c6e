"""Argo CD's controller and repository server, beside a lab and a git repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gitops_cluster import CREATE, GitOpsCluster, definitions, lab_of

from tenancy.deploy.gitops import GitOpsTool
from tenancy.lab.layout import Lab
from tests.answering import answers, free_ports
from tests.conftest import documents
from tests.judges import folder
from tests.kinds import define
from tests.waiting import until

APPLICATIONS = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
SECRETS = "/api/v1/namespaces/argocd/secrets"


@dataclass
class Argo(GitOpsCluster):
    """A lab that Argo CD syncs. Where an Application is not named, it is that of the environment without shards."""

    def application(self, name: str = "small") -> dict[str, Any]:
        return self.api.get(f"{APPLICATIONS}/{name}").get("status") or {}

    def names(self) -> list[str]:
        """Names of the Applications that are rendered."""
        items = documents(self.texts()["gitops/argo.yaml"])
        return [item["metadata"]["name"] for item in items if item["kind"] == "Application"]

    def install(self, *names: str) -> None:
        """Apply gitops/argo.yaml as kubectl does, for the project and these Applications; by default for all."""
        for item in documents(self.texts()["gitops/argo.yaml"]):
            if item["kind"] == "AppProject" or not names or item["metadata"]["name"] in names:
                self.api.apply(f"/apis/argoproj.io/v1alpha1/namespaces/argocd/{item['kind'].lower()}s", item)

    def refresh(self, name: str = "small") -> None:
        """Ask for a refresh, as a webhook of the forge does: Argo CD reads the repository now, not at its next poll."""
        notes = {"argocd.argoproj.io/refresh": "normal"}
        self.api.request("PATCH", f"{APPLICATIONS}/{name}", {"metadata": {"annotations": notes}})

    def synced(self, name: str = "small") -> None:
        """Wait until the last commit is synced, or changes nothing of this Application."""
        self.refresh(name)

        def is_synced() -> bool:
            application = self.application(name)
            operation, sync = application.get("operationState") or {}, application.get("sync") or {}
            if sync.get("revision") == self.commits[-1] and sync["status"] == "Synced":
                return True
            revision = (operation.get("syncResult") or {}).get("revision")
            return revision == self.commits[-1] and operation["phase"] == "Succeeded"

        until(is_synced, lambda: f"{self.commits[-1]} is synced: {sync_summary(self.application(name))}")


def sync_summary(status: dict[str, Any]) -> str:
    """Short summary of Argo CD's status."""
    operation = status.get("operationState") or {}
    resources = (operation.get("syncResult") or {}).get("resources") or []
    failed = [resource for resource in resources if resource.get("status") == "SyncFailed"]
    return json.dumps(
        {
            "conditions": status.get("conditions"),
            "sync": (status.get("sync") or {}).get("status"),
            "operation": [operation.get("phase"), operation.get("message")],
            "failed": failed[:5],
        }
    )


@contextmanager
def argo_cd(root: Path, shards: int = 0) -> Iterator[Argo]:
    """A lab with Argo CD, which has no Application yet."""
    program = folder("argo-cd")
    running: list[subprocess.Popen[bytes]] = []
    with lab_of(root) as (spec, api):
        try:
            cluster = Argo(root, spec, api, GitOpsTool.ARGO, shards)
            define(api, definitions(folder("schemas-argo-cd"), "application-crd.yaml", "appproject-crd.yaml"))
            cluster.begin()
            _prepare(cluster)
            _start(cluster.lab, program, root, running)
            yield cluster
        finally:
            for process in running:
                process.kill()
                process.wait()


def _prepare(argo: Argo) -> None:
    """Create the objects of an installation of Argo CD, and the lab as a cluster with the identity that docs/gitops.md
    names."""
    part = {"app.kubernetes.io/part-of": "argocd"}
    argo.make_namespace("argocd")
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "labels": part}}
    argo.api.request("POST", "/api/v1/namespaces/argocd/configmaps", settings, CREATE)
    signature = {"server.secretkey": "only the server reads it"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "argocd-secret", "labels": part}}
    argo.api.request("POST", SECRETS, {**secret, "stringData": signature}, CREATE)
    credentials = argo.credentials()
    tls = {"caData": credentials["ca"], "certData": credentials["certificate"], "keyData": credentials["key"]}
    data = {
        "name": argo.plan().context,
        "server": credentials["server"],
        "config": json.dumps({"tlsClientConfig": tls}),
    }
    labels = {"argocd.argoproj.io/secret-type": "cluster"}
    cluster = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cluster", "labels": labels}}
    argo.api.request("POST", SECRETS, {**cluster, "stringData": data}, CREATE)


def _start(lab: Lab, program: Path, root: Path, running: list[subprocess.Popen[bytes]]) -> None:
    """Redis, the repository server and the controller, with their defaults but for addresses."""
    redis, repositories, metrics, controller_metrics = free_ports(4)
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
        *(f"--kubeconfig={lab.admin_kubeconfig}", "--namespace=argocd", f"--metrics-port={controller_metrics}"),
        f"--repo-server=127.0.0.1:{repositories}",
    ]
    for port, words in (
        (redis, ["redis", f"127.0.0.1:{redis}"]),
        (repositories, ["repo-server", cache, *server]),
        (controller_metrics, ["controller", cache, *control]),
    ):
        with (scratch / f"{words[0]}.log").open("wb") as log:
            running.append(
                subprocess.Popen([program, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
            )
        until(lambda port=port: answers(port), lambda words=words: f"{words[0]} listens", process=running[-1])
