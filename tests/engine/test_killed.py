"""Engines that are killed in the middle: the next run goes on from there."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
from engine_project import Project, kill_engine

from tenancy.catalog import vocabulary
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.exhaustive(
        reason=(
            "kills engines in the middle of whole runs; `make test` kills one "
            "in tests/engine/test_faults.py, locks are in "
            "tests/unit/deploy/test_recovery.py"
        )
    ),
    pytest.mark.usefixtures("every_step"),
]

PLUGIN = "pulumi-resource-kubernetes"


def write_lock(project: Project, pid: int, host: str) -> Path:
    folder = project.lab.state / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "11111111-2222-3333-4444-555555555555.json"
    timestamp = dt.datetime.now(dt.UTC).isoformat()
    text = {"pid": pid, "username": "jane", "hostname": host, "timestamp": timestamp}
    lock.write_text(json.dumps(text))
    return lock


def test_killed_in_the_middle_twice_and_a_tenant_file_removed_the_next_run_converges(project: Project) -> None:
    assert project.pulumi("stack", "init", "local").code == 0
    first = project.start("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", "local")
    project.until_made("/apis/rbac.authorization.k8s.io/v1/clusterroles/tenancy-viewer", first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()

    second = project.start(sys.executable, "-m", "tenancy", "up", "local")
    project.until_made("/api/v1/namespaces/performance--train", second)
    kill_engine(second)
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1
    assert "taking over the lock of an engine that has died" in out
    assert "the engine ended without output; run the command again" in err
    assert "Traceback" not in err

    orphans = project.engines()
    assert any(PLUGIN in command for command in orphans.values()), "the plugin goes on without its engine"
    as_if_killed_while_making(project, "performance--train")
    project.remove("tenants/performance.yaml")
    result = project.tenancy("up", "local", "--remove", "performance")
    assert result.code == 0, result.text
    assert re.search(r"settled \d+ operations that an engine left unfinished", result.out)
    assert project.keys_in_state() == set(project.objects()), (
        "nothing on the cluster is forgotten, nothing in the state is gone"
    )
    tenants = {item["metadata"]["labels"].get(vocabulary.TENANT) for item in project.objects().values()}
    assert tenants == {None, "fraud", "research"}
    assert not project.exists("/api/v1/namespaces/performance--train")
    assert not orphans.keys() & project.engines().keys(), "the next run ends what the dead engine left behind"


def as_if_killed_while_making(project: Project, namespace: str) -> None:
    """The namespace is on the cluster, and the engine did not live to write that down."""
    # Not through `pulumi stack import`: that drops pending operations.
    file = project.lab.state / ".pulumi" / "stacks" / "gpu-tenancy" / "local.json"
    stored = json.loads(file.read_text())
    deployment = stored["checkpoint"]["latest"]
    pending = deployment.setdefault("pending_operations", [])
    for resource in deployment["resources"]:
        if resource["type"] == "kubernetes:core/v1:Namespace" and resource["id"] == namespace:
            deployment["resources"].remove(resource)
            unfinished = {key: value for key, value in resource.items() if key not in {"id", "outputs"}}
            pending.append({"type": "creating", "resource": unfinished})
            break
    assert any(operation["resource"]["urn"].endswith(f"::{namespace}") for operation in pending)
    file.write_text(json.dumps(stored))


@pytest.mark.parametrize("host", ["ours", "elsewhere.example"])
def test_the_lock_of_an_engine_that_may_be_alive_is_not_taken_over(project: Project, host: str) -> None:
    versions = project.versions()
    pid = os.getpid() if host == "ours" else 999_999_999
    lock = write_lock(project, pid, socket.gethostname() if host == "ours" else host)
    result = project.tenancy("up", "local")
    assert lock.exists()
    lock.unlink()
    assert result.code == 1
    assert f"process {pid} on {socket.gethostname() if host == 'ours' else host}" in result.err
    assert project.versions() == versions
