"""A lab that a GitOps tool syncs from a git repository as the platform's identity, and what the audit log says."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.deploy.gitops import GitOpsSource, GitOpsTool, rendered
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.kueue import _path
from tenancy.lab.layout import Lab
from tenancy.lab.pki import PLATFORM_USER
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.services import queue_chart
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import on_lab
from tests.conftest import SpecFolder, documents, every

CREATE = "application/json"
EGRESS = "egress:\n  - {cidr: 198.51.100.7/32, port: 9443}\n"
FOLDER = "rendered"
Key = tuple[str, str, str]
"""(resource, namespace, name)"""
ISOLATION: Mapping[str, Collection[str]] = {
    **dict.fromkeys(("namespaces", "resourcequotas", "limitranges"), ()),
    "networkpolicies": ("default-deny",),
    "serviceaccounts": ("default",),
}
"""Objects of a tenant without a file that stay: resources, and their names where not all of them stay."""


@dataclass
class GitOpsCluster:
    """A cluster with a GitOps tool: the parts that are the same for all tools."""

    root: Path
    spec: SpecFolder
    api: LabApi
    tool: GitOpsTool
    shards: int = 0
    prune: bool = True
    commits: list[str] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        return Lab.locate(self.root)

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def url(self) -> str:
        return f"file://{self.repository}"

    def plan(self) -> Plan:
        loaded = on_lab(self.spec.load())
        return make_plan(loaded, loaded.day)

    def texts(self) -> dict[str, str]:
        source = GitOpsSource(self.url, FOLDER, shards=self.shards, prune=self.prune)
        return dict(rendered(self.plan(), Layout.PER_TENANT, self.tool, source))

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

    def begin(self) -> None:
        """The repository with its first commit."""
        self.repository.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.publish()

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.repository), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def as_platform(self) -> LabApi:
        """The identity that may change what isolates tenants, which is the tool's too."""
        return LabApi(self.lab, ports.remembered(self.lab)["kube-apiserver"], identity="platform")

    def credentials(self) -> dict[str, str]:
        """Address, certificate authority, certificate and key of that identity, the last three in base64."""
        files = {"ca": "ca.crt", "certificate": "platform.crt", "key": "platform.key"}
        certificates = {
            name: base64.b64encode((self.lab.pki / file).read_bytes()).decode() for name, file in files.items()
        }
        return {"server": f"https://127.0.0.1:{ports.remembered(self.lab)['kube-apiserver']}", **certificates}

    def audit_size(self) -> int:
        return (self.lab.folder / "audit.log").stat().st_size

    def writes(self, since: int = 0) -> list[tuple[Key, str, int]]:
        """Writes of the tool in the order of their answers: object, verb, status."""
        with (self.lab.folder / "audit.log").open("rb") as file:
            file.seek(since)
            events = [json.loads(line) for line in file.read().splitlines()]
        written_objects = []
        for event in sorted(events, key=lambda event: event["stageTimestamp"]):
            object_reference = event.get("objectRef") or {}
            writes = event["verb"] in {"create", "update", "patch", "delete"} and "dryRun" not in event["requestURI"]
            if (
                event["user"]["username"] == PLATFORM_USER
                and writes
                and "selfsubject" not in object_reference["resource"]
            ):
                # Of a namespace the log says that it is in itself.
                space = "" if object_reference["resource"] == "namespaces" else object_reference.get("namespace", "")
                written_objects.append(
                    (
                        (object_reference["resource"], space, object_reference.get("name", "")),
                        event["verb"],
                        event["responseStatus"]["code"],
                    )
                )
        return written_objects

    def deleted(self, since: int) -> set[Key]:
        """Keys of the objects that the tool deleted."""
        return {key for key, verb, _ in self.writes(since) if verb == "delete"}

    def exists(self, path: str) -> bool:
        try:
            self.api.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def make_namespace(self, name: str) -> None:
        self.api.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def key(item: dict[str, Any]) -> Key:
    """An object as the audit log names it."""
    kind = item["kind"].lower()
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("s") else "s")
    return plural, item["metadata"].get("namespace", ""), item["metadata"]["name"]


def created_keys(cluster: GitOpsCluster) -> list[Key]:
    """Objects that the tool created, in order. A namespace's account `default` is there before the tool writes it."""
    return [key for key, _, status in cluster.writes() if status == 201 or (status == 200 and key[2] == "default")]


def rendered_items(cluster: GitOpsCluster) -> list[dict[str, Any]]:
    """The objects of platform and tenants."""
    parts = ("platform/", "tenants/", "shards/")
    texts = [text for name, text in cluster.texts().items() if name.startswith(parts) and name.endswith(".yaml")]
    return [item for text in texts for item in documents(text)]


def of_tenant(cluster: GitOpsCluster, tenant: str) -> set[Key]:
    """The objects of a tenant."""
    return {key(item) for item in cluster.plan().tenant(tenant).objects()}


def uids(cluster: GitOpsCluster) -> dict[Key, str]:
    """The identity of each rendered object: another one is an object that was made again."""
    return {key(item): cluster.api.get(_path(item))["metadata"]["uid"] for item in rendered_items(cluster)}


def expect_isolation_stays(cluster: GitOpsCluster, items: Mapping[Key, dict[str, Any]], deleted: set[Key]) -> None:
    """Expect that of a removed tenant's objects only its isolation stays."""
    remaining = {key for key in items if key not in deleted}
    assert {key[0] for key in remaining} == {*ISOLATION}
    assert every(key[2] in ISOLATION[key[0]] for key in remaining if ISOLATION[key[0]])
    for key in remaining:
        assert cluster.exists(_path(items[key])), key


@contextmanager
def lab_of(root: Path) -> Iterator[tuple[SpecFolder, LabApi]]:
    """A lab with Kueue for the small environment."""
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    spec = SpecFolder(root / "stacks" / "small")
    environment = on_lab(spec.load()).environment
    chart = queue_chart(environment)
    assert chart
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            lab = control_plane.up(
                root=root,
                platform_group=environment.platform.group,
                nodes=fake_nodes(environment),
                queues=chart.values,
            )
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
                yield spec, api
        finally:
            control_plane.down(root=root)


def definitions(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Definitions of kinds in these files of a folder; by default in all."""
    files = [folder / name for name in names] if names else sorted(folder.glob("*.yaml"))
    return [yaml.safe_load(file.read_text("utf-8")) for file in files]
