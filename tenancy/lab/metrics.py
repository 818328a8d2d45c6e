"""Metrics of kube-state-metrics and of DCGM's exporter for the lab: its objects, and devices whose use a seed decides.

The lab has no kubelet and no GPU, so one process serves both exporters' metrics, with their names and labels:
kube-state-metrics v2 `docs/metrics`, dcgm-exporter `etc/default-counters.csv` and its labels of pods. Objects are read
from the API server at each scrape; how busy a device is follows from the seed, its pod's name and the time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tenancy.catalog import boards, vocabulary
from tenancy.catalog.exporters import LABELS, label_name, metric_name
from tenancy.catalog.instances import INSTANCES
from tenancy.kube import quantities
from tenancy.lab import processes
from tenancy.lab.layout import Lab
from tenancy.lab.pki import LOOPBACK

Object = Mapping[str, Any]
Sample = tuple[str, dict[str, str], float]
"""Metric, labels, value."""

MODULE = "tenancy.lab.metrics"
STATE, DEVICES = "/kube-state-metrics", "/dcgm-exporter"
PHASES = ("Pending", "Succeeded", "Failed", "Running", "Unknown")
SLOT = 300
"""Seconds for which a device's use stays the same."""
DRIVER = "580.95.05"
SHARED_SUFFIX = ".shared"
API = "/apis/admissionregistration.k8s.io/v1"


def labels(given: Mapping[str, str], kind: str) -> dict[str, str]:
    """Labels of a sample, from those of an object that kube-state-metrics exports."""
    return {label_name(key): given[key] for key in LABELS[kind] if key in given}


def unit_of(resource: str) -> str:
    """Unit of a resource as kube-state-metrics calls it."""
    return {"cpu": "core", "memory": "byte", "ephemeral-storage": "byte"}.get(resource, "integer")


def node_samples(
    node: str, given: Mapping[str, str], taints: Iterable[Mapping[str, str]], resources: Mapping[str, str]
) -> Iterator[Sample]:
    """Samples of kube-state-metrics for a node: labels, taints and resources."""
    yield "kube_node_labels", {"node": node, **labels(given, "nodes")}, 1
    for taint in taints:
        facts = {"key": taint["key"], "value": taint.get("value", ""), "effect": taint["effect"]}
        yield "kube_node_spec_taint", {"node": node, **facts}, 1
    for resource, amount in resources.items():
        facts = {"node": node, "resource": metric_name(resource), "unit": unit_of(resource)}
        for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
            yield metric, facts, float(quantities.parse(amount))


def pod_samples(
    namespace: str,
    pod: str,
    *,
    uid: str,
    node: str,
    phase: str,
    requests: Mapping[str, Mapping[str, str]],
    owner: tuple[str, str],
    given: Mapping[str, str],
    scheduled: float | None = None,
    ended: float | None = None,
    deleted: float | None = None,
) -> Iterator[Sample]:
    """`requests` are those of each container; `owner` is the kind and the name of the controller, or two empty ones.

    `scheduled`, `ended` and `deleted`, the end of its grace period, are in seconds since 1970; None: not yet.
    """
    me = {"namespace": namespace, "pod": pod, "uid": uid}
    if scheduled is not None:
        yield "kube_pod_status_scheduled_time", me, scheduled
    if ended is not None:
        yield "kube_pod_completion_time", me, ended
    if deleted is not None:
        yield "kube_pod_deletion_timestamp", me, deleted
    for each_phase in PHASES:
        yield "kube_pod_status_phase", {**me, "phase": each_phase}, float(each_phase == phase)
    yield "kube_pod_labels", {**me, **labels(given, "pods")}, 1
    yield "kube_pod_info", {**me, "node": node}, 1
    kind, name = owner
    facts = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if kind else ""}
    yield "kube_pod_owner", {**me, **facts}, 1
    for container, container_requests in requests.items():
        for resource, amount in container_requests.items():
            facts = {"container": container, "node": node, "resource": metric_name(resource), "unit": unit_of(resource)}
            yield "kube_pod_container_resource_requests", {**me, **facts}, float(quantities.parse(amount))


def namespace_samples(namespace: str, given: Mapping[str, str]) -> Iterator[Sample]:
    """Samples of kube-state-metrics for a namespace."""
    yield "kube_namespace_labels", {"namespace": namespace, **labels(given, "namespaces")}, 1


def quota_samples(quota: Object) -> Iterator[Sample]:
    """Samples of kube-state-metrics for a ResourceQuota."""
    me = {"namespace": quota["metadata"]["namespace"], "resourcequota": quota["metadata"]["name"]}
    for kind in ("hard", "used"):
        for resource, amount in quota.get("status", {}).get(kind, {}).items():
            yield "kube_resourcequota", {**me, "resource": resource, "type": kind}, float(quantities.parse(amount))


def guard_samples(policies: Iterable[Object], bindings: Iterable[Object]) -> Iterator[Sample]:
    """Samples of kube-state-metrics for admission policies and their bindings."""
    for policy in policies:
        facts = {"failure_policy": policy["spec"].get("failurePolicy", "")}
        me = {"validatingadmissionpolicy": policy["metadata"]["name"]}
        yield "kube_validatingadmissionpolicy_info", me | facts, 1
    for binding in bindings:
        me = {"validatingadmissionpolicybinding": binding["metadata"]["name"]}
        facts = {"policy_name": binding["spec"]["policyName"]}
        yield "kube_validatingadmissionpolicybinding_info", me | facts, 1
        for action in binding["spec"]["validationActions"]:
            yield "kube_validatingadmissionpolicybinding_validation_action", me | {"action": action}, 1


def state(items: Mapping[str, Sequence[Object]]) -> Iterator[Sample]:
    """The samples of kube-state-metrics for objects, which are given by plural."""
    for node in items["nodes"]:
        meta = node["metadata"]
        resources = node["status"].get("capacity", {})
        yield from node_samples(meta["name"], meta.get("labels", {}), node["spec"].get("taints", ()), resources)
    for namespace in items["namespaces"]:
        yield from namespace_samples(namespace["metadata"]["name"], namespace["metadata"].get("labels", {}))
    for pod in items["pods"]:
        meta = pod["metadata"]
        owner = next((o for o in meta.get("ownerReferences", ()) if o.get("controller")), {"kind": "", "name": ""})
        yield from pod_samples(
            meta["namespace"],
            meta["name"],
            uid=meta["uid"],
            node=pod["spec"].get("nodeName", ""),
            phase=pod["status"].get("phase", "Unknown"),
            requests={c["name"]: c.get("resources", {}).get("requests", {}) for c in pod["spec"]["containers"]},
            owner=(owner["kind"], owner["name"]),
            given=meta.get("labels", {}),
            scheduled=max(_times(pod["status"].get("conditions", ()), "PodScheduled"), default=None),
            ended=max(_endings(pod["status"].get("containerStatuses", ())), default=None),
            deleted=_seconds(meta["deletionTimestamp"]) if "deletionTimestamp" in meta else None,
        )
    for quota in items["resourcequotas"]:
        yield from quota_samples(quota)
    yield from guard_samples(items["validatingadmissionpolicies"], items["validatingadmissionpolicybindings"])


def _times(conditions: Iterable[Object], kind: str) -> Iterator[float]:
    """When a condition became true, in seconds since 1970."""
    for condition in conditions:
        if condition["type"] == kind and condition["status"] == "True":
            yield _seconds(condition["lastTransitionTime"])


def _endings(containers: Iterable[Object]) -> Iterator[float]:
    for container in containers:
        if ended := container.get("state", {}).get("terminated", {}).get("finishedAt"):
            yield _seconds(ended)


def _seconds(time: str) -> float:
    return dt.datetime.fromisoformat(time).timestamp()


def busy(seed: int, pod: str, at: float) -> float:
    """Use of a pod's devices, from 0 to 1; one pod in eight has devices and leaves them idle."""
    of_pod = random.Random(f"{seed} {pod}")
    if of_pod.random() < 0.125:
        return 0.01
    mean = min(max(of_pod.gauss(0.55, 0.22), 0.1), 0.95)
    return min(max(random.Random(f"{seed} {pod} {int(at) // SLOT}").gauss(mean, 0.08), 0.06), 0.99)


def units(resource: str, count: int, machine: str) -> list[tuple[int, str, str]]:
    """GPU, MIG profile and instance of each device of a node that is one resource."""
    gpus = INSTANCES[machine].gpus if machine in INSTANCES else count
    profile = resource.partition("/mig-")[2].removesuffix(SHARED_SUFFIX)
    if not profile:
        return [(i % gpus, "", "") for i in range(count)]
    return [(i % gpus, profile, str(1 + i // gpus)) for i in range(count)]


def device_samples(
    node: str,
    given: Mapping[str, str],
    resources: Mapping[str, str],
    work: Iterable[tuple[str, str, str, Mapping[str, str]]],
    seed: int,
    at: float,
) -> Iterator[Sample]:
    """The samples of one node's exporter; `work` is namespace, pod, container and requests of the containers there."""
    machine, board = given.get("node.kubernetes.io/instance-type", ""), given.get(vocabulary.BOARD, "")
    free_devices = {
        resource: units(resource, quantities.units(amount), machine)
        for resource, amount in resources.items()
        if resource.startswith("nvidia.com/")
    }
    reported = set()  # replicas of one GPU are one device, and one series
    for namespace, pod, container, container_requests in work:
        pod_labels = {"container": container, "namespace": namespace, "pod": pod}
        for resource, amount in container_requests.items():
            for _ in range(min(quantities.units(amount), len(free_devices.get(resource, ())))):
                device = free_devices[resource].pop(0)
                if (device, namespace, pod) not in reported:
                    reported |= {device, (device, namespace, pod)}
                    yield from _device(node, board, device, pod_labels, busy(seed, f"{namespace}/{pod}", at))
    for device in dict.fromkeys(device for devices in free_devices.values() for device in devices):
        if device not in reported:
            yield from _device(node, board, device, {}, 0.0)


def _device(
    node: str, board: str, device: tuple[int, str, str], pod_labels: Mapping[str, str], part: float
) -> Iterator[Sample]:
    gpu, profile, instance = device
    me = {
        "gpu": str(gpu),
        "UUID": f"GPU-{random.Random(f'{node} {gpu}').getrandbits(64):016x}",
        "device": f"nvidia{gpu}",
        "modelName": boards.PRODUCTS.get(board, board),
        "Hostname": node,
        "DCGM_FI_DRIVER_VERSION": DRIVER,
        **({"GPU_I_PROFILE": profile, "GPU_I_ID": instance} if profile else {}),
        **pod_labels,
    }
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", me, round(part, 4)
    if not profile:  # NVML has no use of a slice
        yield "DCGM_FI_DEV_GPU_UTIL", me, round(part * 100)
    yield "DCGM_FI_DEV_GPU_TEMP", me, round(32 + 40 * part)
    yield "DCGM_FI_DEV_POWER_USAGE", me, round(60 + 300 * part, 1)
    for metric in FAULTS:
        yield metric, me, 0


FAULTS = (
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
)


def devices(items: Mapping[str, Sequence[Object]], seed: int, at: float) -> Iterator[Sample]:
    """The samples of all nodes' exporters."""
    work: dict[str, list[tuple[str, str, str, Mapping[str, str]]]] = {}
    for pod in sorted(items["pods"], key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"])):
        if pod["status"].get("phase") == "Running":
            meta = pod["metadata"]
            for container in pod["spec"]["containers"]:
                requests = container.get("resources", {}).get("requests", {})
                pod_container = (meta["namespace"], meta["name"], container["name"], requests)
                work.setdefault(pod["spec"]["nodeName"], []).append(pod_container)
    for node in items["nodes"]:
        meta, resources = node["metadata"], node["status"].get("capacity", {})
        yield from device_samples(meta["name"], meta.get("labels", {}), resources, work.get(meta["name"], ()), seed, at)


def line(name: str, given: Mapping[str, str], value: float) -> str:
    """A sample in Prometheus' text format."""
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in given.items())
    return f"{name}{{{pairs}}} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


LISTS = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "pods": "/api/v1/pods",
    "resourcequotas": "/api/v1/resourcequotas",
    "validatingadmissionpolicies": f"{API}/validatingadmissionpolicies",
    "validatingadmissionpolicybindings": f"{API}/validatingadmissionpolicybindings",
}


def command(lab: Lab, port: int, api_port: int, seed: int) -> list[str]:
    """Command line of the generator of metrics."""
    options = [f"--folder={lab.folder}/", f"--port={port}", f"--api-port={api_port}"]
    return [sys.executable, "-m", MODULE, *options, f"--seed={seed}"]


def running(lab: Lab) -> list[processes.Process]:
    """The generator's processes, recognised by their module: their program is Python."""
    name = Path(sys.executable).name
    return [process for process in processes.running(lab, (name,)).get(name, []) if MODULE in process.argv]


def serve(lab: Lab, port: int, api_port: int, seed: int) -> None:
    """Answer scrapes until the process is ended."""
    from tenancy.lab.api import LabApi

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/healthz":
                self._answer(200, "ok")
            elif self.path not in (STATE, DEVICES):
                self._answer(404, f"{STATE} or {DEVICES}")
            else:
                with LabApi(lab, api_port) as api:
                    # From the watch cache: a scrape is no load on etcd.
                    lists = LISTS if self.path == STATE else {name: LISTS[name] for name in ("nodes", "pods")}
                    items = {name: api.get(path, resourceVersion="0")["items"] for name, path in lists.items()}
                samples = state(items) if self.path == STATE else devices(items, seed, time.time())
                self._answer(200, "".join(f"{line(*sample)}\n" for sample in samples))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    ThreadingHTTPServer((LOOPBACK, port), Answers).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    for option in ("--port", "--api-port", "--seed"):
        parser.add_argument(option, type=int)
    given = parser.parse_args()
    serve(Lab(given.folder, given.folder), given.port, given.api_port, given.seed)
