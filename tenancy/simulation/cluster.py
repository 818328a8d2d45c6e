"""A cluster of the simulation's own: an API server and Kueue, in a folder that goes when the run does."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import queue
import shutil
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import MERGE, Api
from tenancy.lab.components import KUEUE
from tenancy.lab.layout import Lab, LabError
from tenancy.lab.pki import LOOPBACK
from tenancy.plan.model import Object
from tenancy.plan.queues import API

LAB_FOLDER = "GPU_TENANCY_LAB"
NOT_NEEDED = ("kube-controller-manager", "kube-scheduler", "kwok")
"""There are no pods and no nodes: whoever looks after these would only take time."""
KUEUE_ROLE = "kueue-manager-role"
TAKEN_IN, RESTS, AT_WORK = (
    b'"msg":"Workload create event"',
    b'"msg":"Scheduling cycle starts"',
    b'"msg":"Obtained heads"',
)
"""What Kueue logs when it has seen a workload, when its scheduler waits for one, and when that looks at some."""
_PLURALS = {
    "ResourceFlavor": "resourceflavors",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Namespace": "namespaces",
}


class Stuck(LabError):
    """Kueue does not come to rest, or does not see what was written."""


@contextlib.contextmanager
def own_lab(values: dict[str, Any], say: Callable[[str], None], *, in_haste: bool = True) -> Generator[Cluster]:
    """A lab that nobody else knows, ended whatever happens; in haste, without what Kueue does for others to see."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-tenancy-simulation-"))
    # The lab is where this says, whatever the folder; the caller's own must not be meant.
    before = os.environ.get(LAB_FOLDER)
    os.environ[LAB_FOLDER] = str(folder / "lab")
    try:
        lab = control_plane.up(root=folder, platform_group="simulation", queues=values, say=say)
        found = processes.running(lab, NOT_NEEDED)
        processes.stop([process for each in found.values() for process in each], at_once=True)
        with Cluster(lab) as cluster:
            if in_haste:
                cluster.drop_webhooks()
                cluster.forbid_events()
            yield cluster
    finally:
        try:
            control_plane.down(root=folder)
        finally:
            if before is None:
                os.environ.pop(LAB_FOLDER, None)
            else:
                os.environ[LAB_FOLDER] = before
            shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """What the runner does to the cluster, and what it sees of it."""

    def __init__(self, lab: Lab) -> None:
        known = ports.remembered(lab)
        self.lab = lab
        self._api = Api(lab, known["kube-apiserver"])
        self._port = known["kube-apiserver"]
        self._etcd = http.client.HTTPSConnection(LOOPBACK, known["etcd"], timeout=30, context=_tls(lab, "etcd"))
        self.log = Log(lab.logs / f"{KUEUE}.log")
        self.changes: queue.SimpleQueue[Object] = queue.SimpleQueue()
        self._ended = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._etcd.close()

    def make(self, objects: Iterable[Object]) -> None:
        for item in objects:
            self._api.apply(_collection(item), item)

    def drop_webhooks(self) -> None:
        """Nobody but Kueue and the run write here, so nobody has to ask Kueue first."""
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self._api.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}")

    def forbid_events(self) -> None:
        """Nobody reads them, and a refusal costs less than an Event: Kueue writes more of these than of anything."""
        path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{KUEUE_ROLE}"
        role = self._api.get(path)
        rules = [rule for rule in role["rules"] if "events" not in rule.get("resources", ())]
        self._api.request("PATCH", path, {"rules": rules}, MERGE)

    def wait_until_active(self, queues: Iterable[str], within: float = 60) -> None:
        """Until Kueue takes work for all of these ClusterQueues that are not held."""
        wanted, deadline = set(queues), time.monotonic() + within
        while True:
            items = self._api.get(f"/apis/{API}/clusterqueues")["items"]
            active = {item["metadata"]["name"] for item in items if _condition(item, "Active").get("status") == "True"}
            if wanted <= active:
                return
            if time.monotonic() > deadline:
                raise Stuck(f"Kueue takes no work for {', '.join(sorted(wanted - active)[:5])} after {within:.0f} s.")
            time.sleep(0.05)

    def watch(self) -> None:
        """Put every later state of every workload into `changes`, from a thread of its own."""
        version = self._api.get(f"/apis/{API}/workloads")["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def _follow(self, version: str) -> None:
        context = _tls(self.lab, "api")
        while not self._ended:
            connection = http.client.HTTPSConnection(LOOPBACK, self._port, context=context)
            path = f"/apis/{API}/workloads?watch=1&resourceVersion={version}&timeoutSeconds=86400"
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                while not self._ended and (line := response.readline()):
                    item = json.loads(line)["object"]
                    if item["kind"] != "Workload":
                        break
                    version = item["metadata"]["resourceVersion"]
                    self.changes.put(item)
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(0.1)
            finally:
                connection.close()

    def put(self, item: Object) -> None:
        """Write a workload past the API server, which alone would choose its time and its id.

        Kueue queues by the first and breaks ties by the second.
        """
        self._write("put", {"key": _key(item), "value": _base64(json.dumps(item))})

    def _write(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        self._etcd.request("POST", f"/v3/kv/{what}", json.dumps(body))
        response = self._etcd.getresponse()
        answer = response.read()
        if response.status != 200:
            raise LabError(f"etcd refused a workload: {answer[:300]!r}")
        return json.loads(answer)

    def read(self, item: Object) -> Object:
        return self._api.get(_path(item))

    def change_status(self, item: Object, status: dict[str, Any]) -> Object | None:
        """Change the status of a workload as it was seen; None where it has changed since.

        Past the API server too: what it would do with a status costs it more than all else of a job's life, and
        decides nothing.
        """
        seen = item["metadata"]
        metadata = {name: value for name, value in seen.items() if name != "resourceVersion"}
        merged = {name: value for name, value in {**item.get("status", {}), **status}.items() if value is not None}
        changed = {**item, "metadata": metadata, "status": merged}
        key = _key(item)
        unchanged = {"key": key, "target": "MOD", "modRevision": seen["resourceVersion"], "result": "EQUAL"}
        put = {"requestPut": {"key": key, "value": _base64(json.dumps(changed))}}
        answer = self._write("txn", {"compare": [unchanged], "success": [put]})
        if not answer.get("succeeded"):
            return None
        return {**changed, "metadata": {**metadata, "resourceVersion": answer["header"]["revision"]}}


class Log:
    """Kueue's log as it grows: the only place that says that the scheduler rests, and what it has seen."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> list[bytes]:
        data = self._rest + self._file.read()
        *whole, self._rest = data.split(b"\n")
        return whole


def _tls(lab: Lab, what: str) -> ssl.SSLContext:
    authority, identity = ("etcd-ca", "kube-apiserver-etcd") if what == "etcd" else ("ca", "admin")
    context = ssl.create_default_context(cafile=str(lab.pki / f"{authority}.crt"))
    context.load_cert_chain(lab.pki / f"{identity}.crt", lab.pki / f"{identity}.key")
    return context


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
