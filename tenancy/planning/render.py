"""The plan as files. The only module of the plan that touches a disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from tenancy.kube.objects import Object, identity
from tenancy.planning.plan_model import Plan

HEADER = "# Rendered by gpu-tenancy; edit the spec files instead.\n"
PART = ".yaml.part"


class ForeignFiles(Exception):
    """The folder contains files that were not rendered here."""


_SAFE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SAFE):
    def ignore_aliases(self, _data: object) -> bool:
        return True


def files(plan: Plan) -> Iterator[tuple[str, list[Object]]]:
    """Relative path and objects of each file, in the order in which they are safe to apply."""
    platform = plan.platform
    yield "platform/00-namespace.yaml", [platform.namespace]
    yield "platform/10-priorities.yaml", _sorted(platform.priorities)
    yield "platform/25-device-classes.yaml", _sorted(platform.device_classes)
    yield "platform/26-storage-classes.yaml", list(platform.storage_classes)
    yield "platform/27-pod-settings.yaml", list(platform.pod_settings)
    yield "platform/28-flow-control.yaml", list(platform.flow_control)
    yield "platform/30-guards.yaml", list(platform.guards)
    yield "platform/40-readiness-probe.yaml", list(platform.readiness_probe)
    # A binding gives nothing before its role exists, so no tenant's people have access before the guards.
    yield "platform/45-roles.yaml", _sorted(platform.roles)
    yield "platform/50-marker.yaml", [platform.marker]
    yield "platform/52-cluster-network-policies.yaml", list(platform.cluster_policies)
    yield "platform/55-queues.yaml", list(platform.queues)
    yield "platform/58-metrics.yaml", [*platform.metrics_prerequisites, *platform.metrics]
    yield "platform/60-nodes.yaml", _sorted(platform.services.nodes if platform.services else ())
    for tenant in plan.tenants:
        spaces = tenant.namespaces
        yield f"tenants/{tenant.name}/00-queues.yaml", list(tenant.queues)
        yield f"tenants/{tenant.name}/02-cluster-network-policies.yaml", list(tenant.cluster_policies)
        yield f"tenants/{tenant.name}/05-namespaces.yaml", _sorted(s.namespace for s in spaces)
        yield f"tenants/{tenant.name}/10-isolation.yaml", _sorted(o for s in spaces for o in s.isolation)
        yield f"tenants/{tenant.name}/20-access.yaml", _sorted(o for s in spaces for o in s.access)


def reference_files(plan: Plan) -> Iterator[tuple[str, list[Object]]]:
    """Files that are not Kubernetes objects: charts with their values, in the order in which they are installed, and
    the layouts of slices."""
    services = plan.platform.services
    if services:
        for number, chart in enumerate((*services.charts, *plan.platform.metrics_charts)):
            yield f"charts/{number}0-{chart.name}.yaml", [asdict(chart)]
    elif plan.platform.queue_chart:
        yield "charts/00-kueue.yaml", [asdict(plan.platform.queue_chart)]
    for tenant in plan.tenants:
        for space in tenant.namespaces:
            if space.chart:
                yield f"charts/{space.name}.yaml", [asdict(space.chart)]
    for name, chart_values in plan.platform.exporters.items():
        yield f"charts/values-{name}.yaml", [chart_values]
    # Where nodes are made by another tool too: their operator cuts the GPUs, and `verify-on-cluster.sh` compares.
    yield "cluster/mig-parted.yaml", [plan.platform.mig_parted] if plan.platform.mig_parted else []


def _sorted(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=_order)


def _order(item: Object) -> tuple[str, str, str]:
    kind, namespace, name = identity(item)
    return namespace, kind, name


def file_texts(plan: Plan) -> Mapping[str, str]:
    """Relative path -> text."""
    return {path: text_of(objects) for path, objects in (*files(plan), *reference_files(plan)) if objects}


def text_of(objects: list[Object]) -> str:
    """Objects as one YAML text, with the header of generated files."""
    return HEADER + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=True, width=120, explicit_start=True)


def write(plan: Plan, out: Path, file_contents: Mapping[str, str] | None = None) -> int:
    """Write the files, by default those of `texts`, and remove those of a former run; the number of objects.

    Raises ForeignFiles before anything is written if a file there is not ours.
    """
    file_contents = file_texts(plan) if file_contents is None else file_contents
    existing_files = []
    for path in _entries(out):
        if not _is_ours(path):
            raise ForeignFiles(
                f"given --out {out}, which contains {path.relative_to(out)}; rule: a folder of rendered files alone; "
                "change: name an empty folder"
            )
        existing_files.append(path)
    for path in existing_files:
        if path.relative_to(out).as_posix() not in file_contents:
            path.unlink()
            _remove_empty(path.parent, out)
    for name, text in file_contents.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(PART)
        part.write_text(text, "utf-8")
        part.replace(path)
    return sum(1 for _ in plan.objects())


def _entries(folder: Path) -> Iterator[Path]:
    """Everything there but folders, one by one: the first that is not ours ends the search."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            yield from _entries(path)
        else:
            yield path


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(len(HEADER))
    # A run that was killed may have left a part of a file.
    return start == HEADER.encode() or (path.name.endswith(PART) and HEADER.encode().startswith(start))


def _remove_empty(folder: Path, out: Path) -> None:
    while folder != out and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
