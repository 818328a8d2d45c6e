"""Moments at which a person could enter a namespace that is not isolated yet, from the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterator

from engine_project import COLLECTIONS, AuditedRequest, Key, Project

from tenancy.cluster.api import path_of
from tenancy.kube.objects import Object
from tenancy.planning import Plan, make_plan
from tenancy.spec.loader import load

PLURALS = {path.rpartition("/")[2] for path in COLLECTIONS}


def planned(project: Project) -> Plan:
    loaded = load(project.environment)
    return make_plan(loaded, loaded.day)


def key(item: Object) -> Key:
    metadata = item["metadata"]
    return path_of(item).split("/")[-2], metadata.get("namespace", ""), metadata["name"]


def changes(project: Project, since: int) -> Iterator[AuditedRequest]:
    """Writes in their order, of objects of kinds that the plan has."""
    for request in project.audit(since):
        if request.code < 300 and not request.dry_run and request.resource in PLURALS:
            yield request


def open_doors(project: Project, plan: Plan, since: int, present: set[Key]) -> list[str]:
    """Moments at which a person could enter a namespace without one of its limits, or while a guard is missing.

    `present` is what stood at `since`, and afterwards what stands now.
    """
    guards = {key(guard) for guard in (*plan.platform.guards, *plan.platform.readiness_probe)}
    isolation_resources = {s.name: {key(w) for w in s.isolation} for tenant in plan.tenants for s in tenant.namespaces}
    open_bindings = []
    for request in changes(project, since):
        what = (request.resource, request.namespace, request.name)
        if request.resource == "namespaces":
            what = (request.resource, "", request.name)
        (present.discard if request.verb == "delete" else present.add)(what)
        bindings = {name for resource, name, _ in present if resource == "rolebindings" and name in isolation_resources}
        open_bindings += [
            f"after {request.verb} {what}: {name} is open without {sorted(missing)}"
            for name in bindings
            if (missing := (isolation_resources[name] | guards | {("namespaces", "", name)}) - present)
        ]
        if request.verb == "delete" and request.resource == "namespaces":
            # The namespace controller takes what is in it, in an order of its own: no binding may be among that.
            present -= {binding for binding in present if binding[1] == request.name}
    return open_bindings
