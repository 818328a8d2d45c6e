"""States that a killed engine leaves behind, settled without an engine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tenancy.cluster.api import Api, Response
from tenancy.deploy import recovery
from tenancy.deploy.changes import Outcome, ResourceChange, namespaces_to_delete, summary
from tenancy.deploy.driver import SILENT, Driver, RunFailed, _reason
from tenancy.deploy.recovery import StackLocked, end_orphans, is_settled, mend_backend, settle_deployment, stale_locks
from tenancy.planning import Plan

URN = "urn:pulumi:local::gpu-tenancy::kubernetes:{}::{}"


class Cluster:
    """Answers as an API server that holds these paths."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    def request(self, _method: str, path: str) -> Response:
        return Response(200 if path in self.paths else 404, {})


def settle(deployment: dict[str, Any], *paths: str) -> tuple[dict[str, Any], list[str]]:
    return settle_deployment(deployment, cast("Api", Cluster(*paths)))


def operation(kind: str, name: str, what: str = "creating", namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    inputs = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
    urn = URN.format(f"core/v1:{kind}", name)
    return {
        "type": what,
        "resource": {"urn": urn, "custom": True, "type": f"kubernetes:core/v1:{kind}", "inputs": inputs},
    }


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    (tmp_path / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / "local").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("stored", "is_recorded"),
    [
        ({"checkpoint": {"latest": {"resources": []}}}, True),
        ({"checkpoint": {"latest": {"pending_operations": []}}}, True),
        ({"checkpoint": {"latest": None}}, True),
        ({"checkpoint": {"latest": {"pending_operations": [operation("Namespace", "x")]}}}, False),
        ({"state": "of another form"}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_state_is_settled_that_says_so_in_the_form_that_is_known(
    backend: Path, stored: Any, is_recorded: bool
) -> None:
    folder = backend / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    if stored is not None:
        (folder / "local.json").write_text(json.dumps(stored))
    assert is_settled(backend.as_uri(), "gpu-tenancy", "local") is is_recorded


def test_what_another_backend_holds_only_the_engine_can_tell() -> None:
    assert not is_settled("s3://states", "gpu-tenancy", "local")


def test_attributes_of_a_state_that_were_not_written_are_removed(backend: Path) -> None:
    folder = backend / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    texts = {"a.json": "{}", "a.json.attrs": "", "b.json": "{}", "b.json.attrs": '{"md5": ""}', "c.json": ""}
    for name, text in texts.items():
        (folder / name).write_text(text)
    assert mend_backend(backend.as_uri()) == 1
    assert {path.name for path in folder.iterdir()} == set(texts) - {"a.json.attrs"}


def test_another_kind_of_backend_is_left_alone() -> None:
    assert mend_backend("s3://bucket/state") == 0


def lock(backend: Path, content: object) -> Path:
    path = backend / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / "local" / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def locks(backend: Path) -> list[Path]:
    return stale_locks(backend.as_uri(), "gpu-tenancy", "local")


def ended() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over(backend: Path) -> None:
    path = lock(backend, {"pid": ended(), "hostname": socket.gethostname()})
    assert locks(backend) == [path]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="zombies are told apart by /proc")
def test_a_zombie_process_is_dead(backend: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    lock(backend, {"pid": process.pid, "hostname": socket.gethostname()})
    assert len(locks(backend)) == 1
    process.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the process table of Linux")
@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_is_dead(
    backend: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    path = lock(backend, {"pid": os.getpid(), "hostname": socket.gethostname()})
    read = Path.read_text

    def read_text(self: Path, *arguments: Any) -> str:
        if str(self) == f"/proc/{os.getpid()}/stat":
            raise error
        return read(self, *arguments)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert locks(backend) == [path]


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere.example"])
def test_a_lock_whose_holder_may_live_is_left_and_its_holder_named(backend: Path, host: str) -> None:
    lock(backend, {"pid": os.getpid(), "hostname": host, "timestamp": "today"})
    with pytest.raises(StackLocked, match=f"process {os.getpid()} on {host} since today"):
        locks(backend)


def test_a_lock_that_is_just_being_written_is_ignored(backend: Path) -> None:
    lock(backend, '{"pid": 1')
    assert locks(backend) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the process table of Linux")
@pytest.mark.parametrize(
    ("timestamp", "dead"), [("2001-01-01T00:00:00.123456789Z", True), ("2999-01-01T00:00:00Z", False)]
)
def test_a_lock_that_is_older_than_the_process_of_its_number_is_taken_over(
    backend: Path, timestamp: str, dead: bool
) -> None:
    path = lock(backend, {"pid": os.getpid(), "hostname": socket.gethostname(), "timestamp": timestamp})
    if dead:
        assert locks(backend) == [path], "the number belongs to another process by now"
    else:
        with pytest.raises(StackLocked):
            locks(backend)


@pytest.mark.parametrize("url", ["", "s3://state", "https://api.pulumi.com"])
def test_other_backends_say_themselves_who_holds_the_lock(url: str) -> None:
    assert stale_locks(url, "gpu-tenancy", "local") == []


def test_what_reached_the_cluster_is_taken_into_the_state() -> None:
    pending = operation("Namespace", "acme--main")
    deployment, stale = settle({"resources": [], "pending_operations": [pending]}, "/api/v1/namespaces/acme--main")
    assert [(r["urn"], r["id"]) for r in deployment["resources"]] == [(pending["resource"]["urn"], "acme--main")]
    assert stale == [pending["resource"]["urn"]], "its live state has to be read"
    assert "pending_operations" not in deployment


def test_what_is_taken_into_the_state_stands_before_what_rests_on_it() -> None:
    unrecorded = operation("Namespace", "a")
    child = {**operation("LimitRange", "b", namespace="a")["resource"], "dependencies": [unrecorded["resource"]["urn"]]}
    first = operation("ClusterRole", "c")["resource"]
    deployment = {"resources": [first, child], "pending_operations": [unrecorded]}
    deployment_after, _ = settle(deployment, "/api/v1/namespaces/a")
    assert [resource["urn"] for resource in deployment_after["resources"]] == [
        first["urn"],
        unrecorded["resource"]["urn"],
        child["urn"],
    ]


def test_the_id_of_a_namespaced_object_names_its_namespace() -> None:
    pending = operation("ConfigMap", "c", namespace="acme--main")
    path = "/api/v1/namespaces/acme--main/configmaps/c"
    deployment, _ = settle({"resources": [], "pending_operations": [pending]}, path)
    assert deployment["resources"][0]["id"] == "acme--main/c"


def test_what_never_reached_the_cluster_is_dropped() -> None:
    deployment, stale = settle({"resources": [], "pending_operations": [operation("Namespace", "acme--main")]})
    assert deployment["resources"] == []
    assert stale == []


@pytest.mark.parametrize("what", ["updating", "deleting"])
def test_what_was_being_changed_is_read_again(what: str) -> None:
    half = operation("Namespace", "acme--main", what)
    recorded = {**half["resource"], "id": "acme--main"}
    deployment, stale = settle({"resources": [recorded], "pending_operations": [half]})
    assert deployment["resources"] == [recorded]
    assert stale == [recorded["urn"]]


def test_a_component_in_the_making_is_no_object_of_the_cluster() -> None:
    component = {"type": "creating", "resource": {"urn": "urn:x", "type": "gpu-tenancy:index:GpuTenant", "inputs": {}}}
    assert settle({"resources": [], "pending_operations": [component]}) == ({"resources": []}, [])


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pids: list[int] = []
    monkeypatch.setattr(recovery.os, "kill", lambda pid, _signal: pids.append(pid))
    return pids


def test_only_plugins_without_an_engine_are_ended(killed: list[int], tmp_path: Path) -> None:
    plugin = f"{tmp_path}/plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes"
    table = [
        (1, 0, "/sbin/init"),
        (10, 1, "/usr/bin/pulumi up"),
        (11, 10, f"{plugin} 127.0.0.1:1"),
        (12, 1, f"{plugin} 127.0.0.1:2"),
        (13, 99, f"{plugin} 127.0.0.1:3"),
        (14, 1, "/elsewhere/plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes 127.0.0.1:4"),
        (15, 1, f"less {plugin}"),
    ]
    assert end_orphans(tmp_path, table) == 2
    assert killed == [12, 13]


def test_the_process_table_of_this_machine_can_be_read(killed: list[int], tmp_path: Path) -> None:
    assert end_orphans(tmp_path) == 0
    assert killed == []
    assert any(pid == os.getpid() for pid, *_ in recovery._table())


def test_the_engines_own_words_are_passed_on() -> None:
    assert _reason(Exception("\n code: 255\n stdout: \n stderr: error: no such thing\n")) == "no such thing"
    several = "error: 2 errors occurred:\n    1) one\n    2) two\n\nResources:\n"
    assert _reason(Exception(f"\n code: 255\n stdout: \n stderr: {several}")) == (
        "2 errors occurred:\n  1) one\n  2) two"
    )
    assert _reason(Exception("\n code: -9\n stdout: \n stderr: \n")) == SILENT


def test_a_namespace_of_the_files_that_would_be_deleted_is_noticed(plan: Plan) -> None:
    outcome = Outcome(
        changes=[
            ResourceChange("fraud", "delete", "Namespace fraud--train"),
            ResourceChange("research", "replace", "Namespace research--main"),
            ResourceChange("gone", "delete", "Namespace gone--main"),
            ResourceChange("fraud", "delete", "RoleBinding fraud--train/owner"),
            ResourceChange("fraud", "update", "Namespace fraud--serve"),
        ]
    )
    assert namespaces_to_delete(outcome, plan) == ["Namespace fraud--train", "Namespace research--main"]


def test_a_summary_counts_by_tenant() -> None:
    changes = [
        ResourceChange("fraud", "create", "a"),
        ResourceChange("fraud", "update", "b"),
        ResourceChange("platform", "delete", "c"),
    ]
    assert summary(Outcome(changes=changes, unchanged_count=4)) == "platform -1, fraud +1 ~1; 4 unchanged"


def test_the_stacks_of_a_file_backend_are_listed_without_reading_them(tmp_path: Path) -> None:
    folder = tmp_path / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    for name in ("bank.json", "bank.json.bak", "bank.json.attrs", "bank--fraud.json.gz", "bank.cluster.json", "x.txt"):
        (folder / name).write_text("not a state")
    assert recovery.stack_names(tmp_path.as_uri(), "gpu-tenancy") == ["bank", "bank--fraud", "bank.cluster"]
    assert recovery.stack_names(tmp_path.as_uri(), "other") == []


def test_only_the_engine_lists_another_backend_or_one_without_projects(tmp_path: Path) -> None:
    assert recovery.stack_names("s3://bucket/path", "gpu-tenancy") is None
    (tmp_path / ".pulumi" / "stacks").mkdir(parents=True)
    (tmp_path / ".pulumi" / "stacks" / "bank.json").write_text("{}")
    assert recovery.stack_names(tmp_path.as_uri(), "gpu-tenancy") is None


@pytest.mark.parametrize(
    ("text", "is_damaged"), [("", True), ('{"checkpoint": {"la', True), ("{}", False), (None, False)]
)
def test_a_state_that_a_full_disk_cut_off_is_named_and_left(tmp_path: Path, text: str | None, is_damaged: bool) -> None:
    folder = tmp_path / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    path = folder / "bank--fraud.json"
    if text is not None:
        path.write_text(text)
    assert recovery.damaged_state(tmp_path.as_uri(), "gpu-tenancy", "bank--fraud") == (path if is_damaged else None)
    assert path.exists() == (text is not None)
    assert recovery.damaged_state("s3://bucket/path", "gpu-tenancy", "bank--fraud") is None


def test_a_stack_with_such_a_state_fails_with_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    (folder / "bank--fraud.json").write_text("")
    monkeypatch.setenv("PULUMI_BACKEND_URL", tmp_path.as_uri())
    driver = Driver(tmp_path, "bank", lambda _: None, engine=None)
    for open_it in (
        lambda: driver.open_known("bank--fraud", exists=True),
        lambda: driver.open_read_only("bank--fraud"),
    ):
        with pytest.raises(RunFailed, match=r"bank--fraud\.json is empty or cut off; rule: .*; change: free space"):
            open_it()
