"""The cluster of a simulation: an API server and Kueue, in a folder that is deleted at the end of the run."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from tenancy.clock.idle import suspension
from tenancy.http_client import LocalServer, NoAnswer
from tenancy.kube.objects import Object
from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import MERGE, LabApi, client_tls
from tenancy.lab.components import KUEUE, PROBES
from tenancy.lab.layout import Lab, LabError
from tenancy.planning.queueing.queue_names import API

LAB_FOLDER = "GPU_TENANCY_LAB"
NOT_NEEDED = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Components of the lab to stop: without pods and nodes they would only take time."""
NEEDED = ("etcd", "kube-apiserver", KUEUE)
KUEUE_ROLE = "kueue-manager-role"
WORKLOAD_CREATED, CYCLE_STARTS, HEADS_OBTAINED = (
    b'"msg":"Workload create event"',
    b'"msg":"Scheduling cycle starts"',
    b'"msg":"Obtained heads"',
)
"""Log messages of Kueue: it has seen a workload, its scheduler starts a cycle, and the scheduler has work to check."""
_PLURALS = {
    "ResourceFlavor": "resourceflavors",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Namespace": "namespaces",
}


STALL_SECONDS = 300.0
"""Seconds without progress, with all processes alive, after which the cluster counts as stalled."""
BEAT_SECONDS, BEAT_COUNTS = 0.01, 0.012
"""Seconds between two requests of the pulse, and the max that one answer adds to its clock."""
FOLDER_PREFIX = "gpu-tenancy-simulation-"


class SimulationStuck(LabError):
    """The cluster makes no progress, or one of its processes has ended."""


@contextlib.contextmanager
def _lab_in(folder: Path) -> Generator[None]:
    """Use a lab below `folder` instead of the caller's lab, and delete it at the end."""
    previous_folder = os.environ.get(LAB_FOLDER)
    os.environ[LAB_FOLDER] = str(folder / "lab")
    try:
        yield
    finally:
        try:
            control_plane.down(root=folder)
        finally:
            if previous_folder is None:
                os.environ.pop(LAB_FOLDER, None)
            else:
                os.environ[LAB_FOLDER] = previous_folder
            shutil.rmtree(folder, ignore_errors=True)


def stop_leftover(folder: Path) -> None:
    """Stop the cluster of a run that was killed."""
    if folder.name.startswith(FOLDER_PREFIX) and folder.is_dir():
        with _lab_in(folder):
            pass


@contextlib.contextmanager
def own_lab(
    values: dict[str, Any],
    say: Callable[[str], None],
    *,
    without_webhooks: bool = True,
    record_folder: Callable[[Path | None], None] = lambda _: None,
) -> Generator[SimulationCluster]:
    """A temporary lab, always stopped at the end; `in_haste`, without webhooks and Events.

    `started` is called with the folder before a process runs in it, and with None after its deletion.
    """
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    record_folder(folder)
    try:
        with _lab_in(folder):
            lab = control_plane.up(root=folder, platform_group="simulation", queues=values, say=say)
            processes_by_name = processes.running(lab, NOT_NEEDED)
            processes.stop([process for group in processes_by_name.values() for process in group], at_once=True)
            with SimulationCluster(lab) as cluster:
                if without_webhooks:
                    cluster.drop_webhooks()
                    cluster.forbid_events()
                yield cluster
    finally:
        record_folder(None)


class Pulse:
    """A clock of Kueue's own time, which advances only while Kueue answers.

    A process without CPU time is silent, which is not a decision. On an idle machine this clock is about as fast as
    the wall clock.
    """

    def __init__(self, port: int, path: str) -> None:
        self._server = LocalServer(port, timeout=1)
        self._path = path
        self._last_request = time.monotonic()
        self._seconds = 0.0

    def now(self) -> float:
        """Seconds during which the API server answered."""
        if time.monotonic() - self._last_request >= BEAT_SECONDS:
            is_answered = self._server_answers()
            end = time.monotonic()
            if is_answered:
                self._seconds += min(end - self._last_request, BEAT_COUNTS)
            self._last_request = end
        return self._seconds

    def _server_answers(self) -> bool:
        try:
            return self._server.request("GET", self._path).status == 200
        except NoAnswer:
            return False

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


class SimulationCluster:
    """The runner's access to the cluster: writes and watches."""

    def __init__(self, lab: Lab) -> None:
        lab_ports = ports.remembered(lab)
        self.lab = lab
        self._api = LabApi(lab, lab_ports["kube-apiserver"])
        self._port = lab_ports["kube-apiserver"]
        self._etcd = LocalServer(lab_ports["etcd"], 30, client_tls(lab, "kube-apiserver-etcd", "etcd-ca"))
        self.log = LogFollower(lab.logs / f"{KUEUE}.log")
        self.pulse = Pulse(lab_ports[KUEUE], PROBES[KUEUE][1])
        self.changes: queue.SimpleQueue[Object] = queue.SimpleQueue()
        self._ended = False

    def __enter__(self) -> SimulationCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._etcd.close()
        self.pulse.close()

    def ended(self) -> list[str]:
        """Processes of the cluster that have ended."""
        alive = processes.running(self.lab, NEEDED)
        return [name for name in NEEDED if name not in alive]

    def make(self, objects: Iterable[Object]) -> None:
        """Create objects."""
        for item in objects:
            self._api.apply(_collection(item), item)

    def drop_webhooks(self) -> None:
        """Remove Kueue's admission webhooks: only Kueue and the run write to this cluster."""
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self._api.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}")

    def forbid_events(self) -> None:
        """Revoke Kueue's right to write Events, which it writes most: they are not read, and a refusal costs less."""
        path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{KUEUE_ROLE}"
        role = self._api.get(path)
        rules = [rule for rule in role["rules"] if "events" not in rule.get("resources", ())]
        self._api.request("PATCH", path, {"rules": rules}, MERGE)

    def wait_until_active(self, queues: Iterable[str], timeout: float = STALL_SECONDS) -> None:
        """Wait until Kueue accepts work for all of these ClusterQueues that are not on hold."""
        expected_queues, deadline = set(queues), time.monotonic() + timeout
        while True:
            items = self._api.get(f"/apis/{API}/clusterqueues")["items"]
            active = {item["metadata"]["name"] for item in items if _condition(item, "Active").get("status") == "True"}
            if expected_queues <= active:
                return
            if time.monotonic() > deadline:
                inactive = ", ".join(sorted(expected_queues - active)[:5])
                raise SimulationStuck(f"Kueue accepts no work for {inactive} after {timeout:.0f} s.")
            time.sleep(0.05)

    def watch(self) -> None:
        """Put every later state of every workload into `changes`, in a separate thread."""
        version = self._api.get(f"/apis/{API}/workloads")["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def _follow(self, version: str) -> None:
        server = LocalServer(self._port, None, client_tls(self.lab))
        while not self._ended:
            path = f"/apis/{API}/workloads?watch=1&resourceVersion={version}&timeoutSeconds=86400"
            try:
                with contextlib.closing(server.lines(path)) as lines:
                    for line in lines:
                        if self._ended:
                            break
                        item = json.loads(line)["object"]
                        if item["kind"] != "Workload":
                            # The server no longer has the changes after that version: it ends a slow watch.
                            version = self._list_workloads()
                            break
                        version = item["metadata"]["resourceVersion"]
                        self.changes.put(item)
            except (OSError, LabError, ValueError, KeyError):
                time.sleep(0.1)
        server.close()

    def _list_workloads(self) -> str:
        """Put the current state of every workload into `changes`; returns the version to watch from."""
        # A connection of its own: this is called beside the run's.
        with LabApi(self.lab, self._port, timeout=60) as api:
            response_body = api.get(f"/apis/{API}/workloads")
        for item in response_body["items"]:
            self.changes.put({"apiVersion": API, "kind": "Workload", **item})
        return response_body["metadata"]["resourceVersion"]

    def put(self, item: Object) -> None:
        """Write a workload directly to etcd, because the API server would choose its creation time and uid.

        Kueue orders its queues by the time and breaks ties by the uid.
        """
        self._write("put", {"key": _key(item), "value": _base64(json.dumps(_unversioned(item)))})

    def put_queue(self, item: Object) -> None:
        """Write a LocalQueue with its status, from which Kueue reads the past usage when it first sees the queue."""
        metadata = item["metadata"]
        key = f"/registry/kueue.x-k8s.io/localqueues/{metadata['namespace']}/{metadata['name']}"
        self._write("put", {"key": _base64(key), "value": _base64(json.dumps(item))})

    def queues(self) -> list[Object]:
        """The current LocalQueues, with their past usage."""
        response_body = _with_retries(lambda: self._api.get(f"/apis/{API}/localqueues"))
        items = [{**item, "status": _history(item)} for item in response_body["items"]]
        return [{"apiVersion": API, "kind": "LocalQueue", **_unversioned(item)} for item in items]

    def wait_until_known(self) -> None:
        """Wait until Kueue has processed every LocalQueue, because it refuses work in an unknown one."""
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            items = self._api.get(f"/apis/{API}/localqueues")["items"]
            if all(_condition(item, "Active") for item in items):
                return
            if time.monotonic() > deadline:
                raise SimulationStuck(f"Kueue does not know its LocalQueues after {STALL_SECONDS:.0f} s.")
            time.sleep(0.05)

    def _write(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to etcd; repeat it if the answer is too late.

        A repeated request is safe: a write has the same content, and a change is refused after it was made.
        """
        text = json.dumps(body)

        answer = _with_retries(lambda: self._etcd.request("POST", f"/v3/kv/{operation}", text))
        if answer.status != 200:
            raise LabError(f"etcd refused a workload: {answer.data[:300]!r}")
        return json.loads(answer.data)

    def read(self, item: Object) -> Object:
        """The object as the API server has it."""
        return _with_retries(lambda: self._api.get(_path(item)))

    def suspend(self, item: Object, reason: str) -> Object:
        """Suspend a workload as the clock does; the object as the API server then has it."""
        body = suspension(item["metadata"]["uid"], reason)
        # A repeated request changes nothing more.
        return _with_retries(lambda: self._api.request("PATCH", _path(item), body, MERGE))

    def change_status(self, item: Object, status: dict[str, Any]) -> Object | None:
        """Change the status of a workload in the version that was seen; None if it has changed since.

        This is also written directly to etcd: the API server would spend more time on a status than on all other
        requests for a job, without an effect on decisions.
        """
        seen_metadata, metadata = item["metadata"], _unversioned(item)["metadata"]
        merged = {name: value for name, value in {**item.get("status", {}), **status}.items() if value is not None}
        changed_item = {**item, "metadata": metadata, "status": merged}
        key = _key(item)
        version_condition = {
            "key": key,
            "target": "MOD",
            "modRevision": seen_metadata["resourceVersion"],
            "result": "EQUAL",
        }
        put = {"requestPut": {"key": key, "value": _base64(json.dumps(changed_item))}}
        answer = self._write("txn", {"compare": [version_condition], "success": [put]})
        if not answer.get("succeeded"):
            return None
        return {**changed_item, "metadata": {**metadata, "resourceVersion": answer["header"]["revision"]}}


class LogFollower:
    """Follows Kueue's log, the only source that shows that the scheduler is idle, and what it has seen."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._incomplete_line = b""

    def lines(self) -> list[bytes]:
        """Complete lines that were written since the last call."""
        data = self._incomplete_line + self._file.read()
        *complete_lines, self._incomplete_line = data.split(b"\n")
        return complete_lines


_T = TypeVar("_T")


def _with_retries(ask: Callable[[], _T], timeout: float | None = None) -> _T:
    """Send a request; repeat it, on a new connection, while the server is too slow to answer."""
    timeout = STALL_SECONDS if timeout is None else timeout
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ask()
        except NoAnswer as error:
            if time.monotonic() > deadline:
                raise SimulationStuck(
                    f"the cluster of the simulation did not answer within {timeout:.0f} s ({error})"
                ) from error
            time.sleep(0.05)


def _history(queue: Object) -> dict[str, Any]:
    """Past usage in the status of a LocalQueue."""
    return {name: value for name, value in queue.get("status", {}).items() if name == "fairSharing"}


def _unversioned(item: Object) -> Object:
    return {**item, "metadata": {name: value for name, value in item["metadata"].items() if name != "resourceVersion"}}


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return _base64(f"/registry/kueue.x-k8s.io/workloads/{metadata['namespace']}/{metadata['name']}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _collection(item: Object) -> str:
    version, namespace = item["apiVersion"], item["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}{f'/namespaces/{namespace}' if namespace else ''}/{_PLURALS[item['kind']]}"


def _path(item: Object) -> str:
    metadata = item["metadata"]
    return f"/apis/{API}/namespaces/{metadata['namespace']}/workloads/{quote(metadata['name'])}"


def _condition(item: Object, kind: str) -> Object:
    return next((c for c in item.get("status", {}).get("conditions", []) if c["type"] == kind), {})
