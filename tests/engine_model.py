"""Steps of the engine for an edit of the files, from the resources that its program registers before and after: without
an engine.

A resource is replaced where a property changes that its provider cannot change in place: on AWS by the double's facts,
on the cluster by `FORCE_NEW` and `NAMES`. What refers to a replaced resource by such a property is replaced with it,
and updated where it refers by another; so is what refers to an updated one whose outputs change (`RENEWED`).
`tests/engine/test_cluster_edits.py` holds this model against the engine with the double, `make judged-aws` against the
engine over a real provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import aws_double_facts as facts
from aws_double_types import from_struct, plain

from tenancy.kube.objects import name_of
from tenancy.planning import Plan
from tests.registered import Registered

# `forceNewProperties` in provider/pkg/provider/diff.go of pulumi/pulumi-kubernetes, read 2026-11-27, for the kinds that
# the program makes. The program's provider changes ConfigMaps in place.
NAMES = ("metadata.name", "metadata.namespace", "kind")
FORCE_NEW: Mapping[str, str] = {
    "ClusterRoleBinding": "roleRef",
    "Deployment": "spec.selector",
    "PersistentVolumeClaim": "spec",
    "ResourceQuota": "spec.scopes",
    "RoleBinding": "roleRef",
    "Secret": "data stringData type",
    "Service": "spec.clusterIP",
    "StorageClass": "parameters provisioner",
}


RENEWED = {"aws:ec2/launchTemplate:LaunchTemplate"}
"""Types of which an update changes an output: a launch template's latest version."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the engine for one resource."""

    operation: str
    kind: str
    name: str
    protected: bool
    """Whether the engine refuses it, because the program protects the resource."""


def steps(before: Registered, after: Registered) -> list[Step]:
    """Every step but `same`, sorted."""
    old, new = _custom(before), _custom(after)
    both = old.keys() & new.keys()
    changes_by_path = {path: _changes(old[path], new[path]) for path in both}
    replaced = {
        path
        for path, path_changes in changes_by_path.items()
        if any(_replaces(old[path], change) for change in path_changes)
    }
    updated = {path for path in both - replaced if changes_by_path[path]}
    waiting = replaced | {path for path in updated if new[path].type in RENEWED}
    while waiting:
        urns = {f"{new[path].type}::{new[path].name}" for path in waiting}
        following = {path for path in both - replaced if _refers(new[path], urns)}
        replaced_now = {path for path in following if _refers(new[path], urns, forced=True)}
        updated_now = following - replaced_now - updated
        replaced, updated = replaced | replaced_now, updated | updated_now
        waiting = replaced_now | {path for path in updated_now if new[path].type in RENEWED}
    operations = [Step("create", new[path].type, new[path].name, protected=False) for path in new.keys() - old.keys()]
    operations += [
        Step("delete", old[path].type, old[path].name, old[path].protect) for path in old.keys() - new.keys()
    ]
    for path in both:
        protected = old[path].protect and new[path].protect
        if path in replaced:
            operations.append(Step("replace", new[path].type, new[path].name, protected))
        elif path in updated:
            operations.append(Step("update", new[path].type, new[path].name, protected=False))
    return sorted(operations, key=lambda step: (step.operation, step.kind, step.name))


def object_steps(before: Plan, after: Plan) -> list[Step]:
    """The same for the cluster's objects and charts of two plans, which is quicker than to register them; nothing of it
    is protected."""
    old, new = ({name_of(item): item for item in (*plan.objects(), *_charts(plan))} for plan in (before, after))
    operations = [Step("create", new[name]["kind"], name, protected=False) for name in new.keys() - old.keys()]
    operations += [Step("delete", old[name]["kind"], name, protected=False) for name in old.keys() - new.keys()]
    for name in old.keys() & new.keys():
        changes = list(facts.changes(old[name], new[name])) if old[name] != new[name] else []
        replaced = any(_is_forced(new[name]["kind"], change) for change in changes)
        if changes:
            operations.append(Step("replace" if replaced else "update", new[name]["kind"], name, protected=False))
    return sorted(operations, key=lambda step: (step.operation, step.kind, step.name))


def _charts(plan: Plan) -> Iterator[dict[str, Any]]:
    services, queue = plan.platform.services, plan.platform.queue_chart
    # The chart of the queue is one of the services', where these have it.
    charts = {
        c.name: c
        for c in (*filter(None, [queue]), *plan.platform.metrics_charts, *(services.charts if services else ()))
    }
    for chart in charts.values():
        yield {"kind": "Release", "metadata": {"name": chart.name}, "spec": asdict(chart)}


def _custom(registered: Registered) -> dict[str, Any]:
    """Requests for resources of providers by the path that the engine makes a URN of."""
    requests = registered.requests.items()
    return {
        registered.path(urn): request
        for urn, request in requests
        if request.custom and not request.type.startswith("pulumi:providers:")
    }


def _changes(old: Any, new: Any) -> list[facts.Change]:
    if old.object == new.object:
        return []
    changes = facts.changes(*(plain(from_struct(request.object)) for request in (old, new)))
    return [change for change in changes if not change.path.startswith(tuple(new.ignoreChanges))]


def _replaces(request: Any, change: facts.Change) -> bool:
    if request.type.startswith("aws:"):
        return facts.replaces(request.type, change)
    if request.type.startswith("kubernetes:"):
        return _is_forced(request.type.rpartition(":")[2], change)
    return False


def _is_forced(kind: str, change: facts.Change) -> bool:
    words = (*NAMES, *FORCE_NEW.get(kind, "").split())
    return any(change.path == word or change.path.startswith((f"{word}.", f"{word}[")) for word in words)


def _refers(request: Any, urns: set[str], *, forced: bool = False) -> bool:
    """Whether it refers to one of these on AWS by a property that is not ignored, or `forced` by one that cannot
    change."""
    return any(
        any(urn.endswith(tuple(urns)) for urn in refers.urns)
        and not any(change.startswith(key) for change in request.ignoreChanges)
        and key not in facts.COMPUTED_BLOCKS.get(request.type, ())
        and (_replaces(request, facts.Change(key, "UPDATE")) or not forced)
        for key, refers in request.propertyDependencies.items()
    )
