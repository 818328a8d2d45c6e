"""Rules on single objects from other sources than programs: output of charts, manifests in Git, dumps of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from tenancy.catalog import boards, vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.kinds import GROUPS
from tenancy.kube.objects import UNKNOWN, as_list, get_path, name_of
from tenancy.kube.pod_templates import BUILT_IN, templates_of
from tenancy.rules import nodes, objects, queues
from tenancy.rules.findings import Finding, Given, Object, finding_on
from tenancy.rules.nodes import shared_without_a_name
from tenancy.rules.pod_security import fields_that_give_root_on_node

KUEUE = "kueue.x-k8s.io/"
KUEUE_VERSION = "v1beta2"
_UNSERVED_FROM = {"v1alpha1": "0.19", "v1beta1": "0.20"}
"""Version of Kueue's API -> the first one of Kueue, from 0.19 on, that does not serve it (kueue PR 5595 and issue 7743
on Cohort and Topology, PR 14558)."""
RENDERED = "rendered"
"""Key of a release: True if its objects are checked too, or why they are not."""


def _workload(item: Object) -> Given:
    """pod-02."""
    if not get_path(item, "metadata", "labels", vocabulary.TENANT):
        return
    if problems := [
        str(refused_field)
        for template in templates_of(item)
        for refused_field in fields_that_give_root_on_node(template)
    ]:
        yield "pod-02", "; ".join(problems)


def _config_map(item: Object) -> Given:
    """Findings on configurations of NVIDIA's device plugin (sharing) and MIG manager (layouts)."""
    for name, config in _configurations(item.get("data")):
        if isinstance(get_path(config, "sharing"), Mapping):
            yield from shared_without_a_name({name: config})
        yield from _layouts(name, config)


def _layouts(name: str, config: Any) -> Given:
    """mig-01."""
    layouts = get_path(config, "mig-configs")
    for layout, groups in layouts.items() if isinstance(layouts, Mapping) else ():
        for group in groups if isinstance(groups, list) else ():
            device_filter = get_path(group, "device-filter")
            board_names = _boards_of(device_filter)
            if device_filter and not board_names:
                continue  # boards that are not known here
            if problem := _misfit(get_path(group, "mig-devices"), board_names):
                yield "mig-01", f"{name}: {layout}: {problem}"


def _configurations(data: Any) -> Iterator[tuple[str, Any]]:
    """The texts of a config map that are configurations of one of the two, as objects."""
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and ("sharing" in text or "mig-configs" in text):
            try:
                yield str(name), yaml.safe_load(text)
            except yaml.YAMLError:
                continue  # of another program


def _boards_of(devices: Any) -> list[str]:
    """Boards that a `device-filter` selects, by their PCI ids."""
    ids = {str(device).upper() for device in ([devices] if isinstance(devices, str) else as_list(devices))}
    return [name for name, board in boards.BOARDS.items() if ids & {device.upper() for device in board.devices}]


def _misfit(devices: Any, board_names: Sequence[str]) -> str | None:
    """Why slices do not fit on a board that the filter chooses, or without one on any board; None if they do."""
    if not isinstance(devices, Mapping) or not devices:
        return None
    layout = {str(profile): count for profile, count in devices.items() if type(count) is int}
    if board_names:
        return next((misfit for board in board_names if (misfit := boards.layout_misfit(board, layout))), None)
    reasons = [
        misfit
        for board in boards.BOARDS
        if set(layout) <= set(boards.BOARDS[board].profiles) and (misfit := boards.layout_misfit(board, layout))
    ]
    fitting_boards = [board for board in boards.BOARDS if set(layout) <= set(boards.BOARDS[board].profiles)]
    if not fitting_boards:
        return f"{boards.write_layout(layout)}, which fit on no board together"
    return None if len(reasons) < len(fitting_boards) else reasons[0]


def _old_kueue(item: Object) -> Given:
    version = str(item.get("apiVersion") or "")
    if version.startswith(KUEUE) and version != KUEUE + KUEUE_VERSION:
        unserved = _UNSERVED_FROM.get(version.removeprefix(KUEUE))
        yield "kueue-15", f"apiVersion {version}{f', not served by Kueue {unserved} and newer' if unserved else ''}"


def _release(item: Object) -> Given:
    chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
    if nodes.is_operator(item):
        for name, config in _configurations(get_path(item, "values", "migManager", "config", "data")):
            yield from _layouts(f"migManager.config.data.{name}", config)
    judged = nodes.is_operator(item) or chart.startswith(queues.CHART)
    if (
        chart
        and not judged
        and get_path(item, "metadata", "labels", vocabulary.TENANT)
        and item.get(RENDERED) is not True
    ):
        reason = f" ({item[RENDERED]})" if item.get(RENDERED) else ""
        yield "seen-01", f"chart {item.get('chart')}{reason}; to check them: {_rendering(item)}"


def _rendering(item: Object) -> str:
    source, name = get_path(item, "repositoryOpts", "repo"), get_path(item, "metadata", "name")
    options = {
        "--namespace": get_path(item, "metadata", "namespace"),
        "--repo": source,
        "--version": item.get("version"),
    }
    option_texts = [f"{option} {value}" for option, value in options.items() if value and value != UNKNOWN]
    return f"helm template {name} {item.get('chart')} {' '.join(option_texts)} -f VALUES | tenancy check -"


def unknown_fields(value: Any, path: str = "") -> Iterator[str]:
    """Paths of unknown values."""
    if value == UNKNOWN:
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unknown_fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, f"{path}[{index}]")


_READ_ALONE = (frozenset(GROUPS) - objects.MACHINES - {"ClusterPolicy", "Node", "PriorityClass", "ServiceAccount"}) | {
    *(framework.kind for framework in FRAMEWORKS.values()),
    "RayCronJob",
    "RayService",
}


def unknown_findings(item: Object) -> Iterator[Finding]:
    """seen-02, on resources of a preview; rules on nodes report unknown values themselves."""
    read = item.get("kind") in _READ_ALONE or (item.get("apiVersion") and templates_of(item))
    if read and (unknown := list(unknown_fields(item))):
        yield Finding("seen-02", name_of(item), f"{', '.join(unknown)}: {UNKNOWN}")


_KUEUES = ("AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology")
CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "ConfigMap": _config_map,
    "Release": _release,
    **dict.fromkeys((*_KUEUES, "WorkloadPriorityClass"), _old_kueue),
    **dict.fromkeys(BUILT_IN, _workload),
}


def object_findings(item: Object) -> Iterator[Finding]:
    """Findings on one object by itself, besides those of `objects`."""
    # An object of an unknown kind is searched for pods.
    check = CHECKS.get(str(item.get("kind")), _workload)
    for rule, detail in check(item):
        yield finding_on(item, rule, detail)


def unreadable_finding(item: Object, reason: str) -> Finding:
    """seen-03: a value that rules cannot read."""
    return Finding("seen-03", name_of(item), f"a value that rules cannot read ({reason})")
