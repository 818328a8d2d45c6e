"""A lab that starts from a snapshot of another's etcd: the same API server, and nothing of the other lab."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy.lab import control_plane, ports, snapshots
from tenancy.lab.api import LabApi
from tenancy.lab.layout import Lab
from tests.conftest import every

pytestmark = pytest.mark.exhaustive(reason="a lab from another's snapshot; `make test` starts every lab from nothing")

PER_START_FIELDS = {"creationTimestamp", "managedFields", "resourceVersion", "uid"}
"""Fields of metadata that differ between any two clusters."""
AUTHORITIES = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
PASSING = {"leases", "events"}
"""Kinds whose objects come and go with processes."""


@pytest.fixture(scope="module")
def snapshot_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of the snapshots, empty at first."""
    folder = tmp_path_factory.mktemp("cache") / "snapshots"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        patch.setattr(snapshots, "folder", lambda: folder)
        yield folder


def started(root: Path, group: str) -> tuple[Lab, list[str]]:
    """A lab, and what its start said."""
    messages: list[str] = []
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    return control_plane.up(root=root, platform_group=group, say=messages.append), messages


@pytest.fixture(scope="module")
def first(snapshot_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("first")
    try:
        assert not snapshot_folder.exists()
        yield started(root, "first-group")[0]
    finally:
        control_plane.down(root=root)


@pytest.fixture(scope="module")
def second(snapshot_folder: Path, first: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("second")
    stored_snapshot = snapshot(snapshot_folder)
    before = stored_snapshot.stat().st_mtime_ns
    try:
        lab, _ = started(root, "second-group")
        assert stored_snapshot.stat().st_mtime_ns > before, "the snapshot was used"
        assert first.folder != lab.folder
        yield lab
    finally:
        control_plane.down(root=root)


def snapshot(snapshots_folder: Path) -> Path:
    (stored_snapshot,) = (path for path in snapshots_folder.iterdir() if path.is_dir())
    return stored_snapshot


def api(lab: Lab) -> LabApi:
    return LabApi(lab, ports.remembered(lab)["kube-apiserver"])


def objects(lab: Lab) -> dict[tuple[str, str, str], Any]:
    """Objects that every client reads, by kind, namespace and name, without the fields that each cluster sets."""
    objects_by_identity = {}
    with api(lab) as server:
        groups = [group["preferredVersion"]["groupVersion"] for group in server.get("/apis")["groups"]]
        for path in ("/api/v1", *(f"/apis/{version}" for version in groups)):
            for kind in server.get(path)["resources"]:
                if "/" in kind["name"] or "list" not in kind["verbs"] or kind["name"] in PASSING:
                    continue
                for item in server.get(f"{path}/{kind['name']}")["items"]:
                    metadata = {key: value for key, value in item["metadata"].items() if key not in PER_START_FIELDS}
                    identity = (kind["name"], metadata.get("namespace", ""), metadata["name"])
                    objects_by_identity[identity] = {
                        **{k: v for k, v in item.items() if k != "status"},
                        "metadata": metadata,
                    }
    return objects_by_identity


def test_it_serves_the_objects_of_a_first_start(first: Lab, second: Lab) -> None:
    first_objects, restored_objects = objects(first), objects(second)
    assert restored_objects.keys() == first_objects.keys()
    assert len(restored_objects) > 200
    # The API server's own service has the lab's port.
    different = {key for key in restored_objects if restored_objects[key] != first_objects[key]} - {
        ("services", "default", "kubernetes")
    }
    assert different == {
        ("clusterrolebindings", "", "gpu-tenancy-lab:platform"),
        *(("configmaps", space, "kube-root-ca.crt") for space in ("default", "kube-public", "kube-system")),
        ("configmaps", "kube-node-lease", "kube-root-ca.crt"),
        ("configmaps", "kube-system", "extension-apiserver-authentication"),
    }, "each lab has its own authority and its own platform group"


def test_it_trusts_its_own_authorities_alone(first: Lab, second: Lab) -> None:
    for lab in (first, second):
        with api(lab) as server:
            trusted = server.get(AUTHORITIES)["data"]
        assert trusted["client-ca-file"].split() == (lab.pki / "ca.crt").read_text().split()
        assert trusted["requestheader-client-ca-file"].split() == (lab.pki / "front-proxy-ca.crt").read_text().split()


def test_every_component_answers(second: Lab) -> None:
    rows = control_plane.status(root=second.root)
    assert [row.component for row in rows if not row.answering] == []


@pytest.mark.usefixtures("second")
def test_a_snapshot_that_etcd_cannot_read_is_replaced(
    snapshot_folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = snapshot(snapshot_folder)
    data = b"no database of etcd"
    (bad / "member" / "snap" / "db").write_bytes(data)
    content = json.loads((bad / snapshots.CONTENT).read_text())
    content["member/snap/db"] = snapshots.digest(data)
    (bad / snapshots.CONTENT).write_text(json.dumps(content))
    copy = tmp_path_factory.mktemp("bad") / "copy"
    shutil.copytree(bad, copy)
    try:
        lab, messages = started(tmp_path, "third-group")
        assert "the kept snapshot of etcd does not work: starting without it" in messages
        assert every(row.answering for row in control_plane.status(root=lab.root))
        assert snapshot(snapshot_folder).name == bad.name
        assert (bad / snapshots.CONTENT).read_text() != (copy / snapshots.CONTENT).read_text(), "a new one is kept"
    finally:
        control_plane.down(root=tmp_path)
