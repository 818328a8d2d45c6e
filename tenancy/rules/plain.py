"""Rules on one object that nobody's program made: charts' output, repositories of manifests, a cluster's dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from tenancy.catalog import boards
from tenancy.catalog import vocabulary as words
from tenancy.rules import nodes, objects, queues
from tenancy.rules.found import UNKNOWN, Finding, Given, Object, at, many, name_of
from tenancy.rules.nodes import shared_without_a_name

KUEUE = "kueue.x-k8s.io/"
KUEUE_VERSION = "v1beta2"
_NO_ROOT_OF_NODE = frozenset(
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID "
    "SYS_CHROOT".split()
)
"""Capabilities that the baseline level lets a container add (Kubernetes 1.36, Pod Security Standards)."""
RENDERED = "rendered"
"""Of a release: True where its objects are judged as well, or why they are not."""
_HOST = ("hostNetwork", "hostPID", "hostIPC")


def pod_of(item: Object) -> Any:
    """The pod's spec in a workload, or the pod's own; None in what makes no pods."""
    kind = item.get("kind")
    if kind == "Pod":
        return item.get("spec")
    template = (
        at(item, "spec", "jobTemplate", "spec", "template") if kind == "CronJob" else at(item, "spec", "template")
    )
    return at(template, "spec")


def containers(pod: Any) -> list[Any]:
    return [one for key in ("containers", "initContainers", "ephemeralContainers") for one in many(at(pod, key))]


def _workload(item: Object) -> Given:
    if not at(item, "metadata", "labels", words.TENANT):
        return
    pod = pod_of(item)
    if held := [key for key in _HOST if at(pod, key) is True]:
        yield "pod-02", ", ".join(f"{key}: true" for key in held)
    for volume in many(at(pod, "volumes")):
        if path := at(volume, "hostPath", "path"):
            yield "pod-02", f"hostPath {path} as volume {volume.get('name')}"
    for container in containers(pod):
        context, name = container.get("securityContext"), container.get("name")
        if at(context, "privileged") is True:
            yield "pod-02", f"privileged: true in container {name}"
        added = set(map(str, many(at(context, "capabilities", "add"))))
        if wide := sorted(added - _NO_ROOT_OF_NODE):
            yield "pod-02", f"capabilities {', '.join(wide)} in container {name}"


def _config_map(item: Object) -> Given:
    """What NVIDIA's device plugin shares GPUs by, and what its MIG manager cuts them by."""
    for name, text in _texts(item):
        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError:
            continue  # some other program's
        if isinstance(at(config, "sharing"), Mapping):
            yield from shared_without_a_name({name: config})
        layouts = at(config, "mig-configs")
        for layout, groups in layouts.items() if isinstance(layouts, Mapping) else ():
            for group in groups if isinstance(groups, list) else ():
                if given := _misfit(at(group, "mig-devices")):
                    yield "mig-01", f"{name}: {layout}: {given}"


def _texts(item: Object) -> Iterator[tuple[str, str]]:
    data = item.get("data")
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and ("sharing" in text or "mig-configs" in text):
            yield str(name), text


def _misfit(devices: Any) -> str | None:
    """Why slices fit on no board that has such profiles; None if some board takes them."""
    if not isinstance(devices, Mapping) or not devices:
        return None
    layout = {str(profile): count for profile, count in devices.items() if type(count) is int}
    reasons = [
        misfit
        for board in boards.BOARDS
        if set(layout) <= set(boards.BOARDS[board].profiles) and (misfit := boards.layout_misfit(board, layout))
    ]
    there = [board for board in boards.BOARDS if set(layout) <= set(boards.BOARDS[board].profiles)]
    if not there:
        return f"{boards.write_layout(layout)}, which no board has together"
    return None if len(reasons) < len(there) else reasons[0]


def _old_kueue(item: Object) -> Given:
    version = str(item.get("apiVersion") or "")
    if version.startswith(KUEUE) and version != KUEUE + KUEUE_VERSION:
        yield "kueue-15", f"apiVersion {version}"


def _release(item: Object) -> Given:
    chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
    judged = nodes.is_operator(item) or chart.startswith(queues.CHART)
    if chart and not judged and at(item, "metadata", "labels", words.TENANT) and item.get(RENDERED) is not True:
        reason = f" ({item[RENDERED]})" if item.get(RENDERED) else ""
        yield "seen-01", f"chart {item.get('chart')}{reason}; to judge them: {_rendering(item)}"


def _rendering(item: Object) -> str:
    source, name = at(item, "repositoryOpts", "repo"), at(item, "metadata", "name")
    options = {"--namespace": at(item, "metadata", "namespace"), "--repo": source, "--version": item.get("version")}
    said = [f"{option} {value}" for option, value in options.items() if value and value != UNKNOWN]
    return f"helm template {name} {item.get('chart')} {' '.join(said)} -f VALUES | tenancy check -"


def unknown_fields(value: Any, path: str = "") -> Iterator[str]:
    """Paths of what is not known."""
    if value == UNKNOWN:
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unknown_fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, f"{path}[{index}]")


def unknown_findings(item: Object) -> Iterator[Finding]:
    """seen-02, on what a preview hands over; of machines the rules say themselves what is not known."""
    kind = str(item.get("kind"))
    if kind in objects.CHECKS and kind not in objects.MACHINES and (unknown := list(unknown_fields(item))):
        yield Finding("seen-02", name_of(item), f"{', '.join(unknown)}: {UNKNOWN}")


_KUEUES = ("AdmissionCheck", "ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
WORKLOADS = (
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Pod",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
)
CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "ConfigMap": _config_map,
    "Release": _release,
    **dict.fromkeys(_KUEUES, _old_kueue),
    **dict.fromkeys(WORKLOADS, _workload),
}
RULES_ALONE = "kueue-15 mig-01 pod-02 seen-01 seen-02 seen-03 share-02".split()


def object_findings(item: Object) -> Iterator[Finding]:
    """Everything that is wrong with one object on its own, beside what `objects` finds."""
    check = CHECKS.get(str(item.get("kind")))
    for rule, given in check(item) if check else ():
        yield Finding(rule, name_of(item), given)
