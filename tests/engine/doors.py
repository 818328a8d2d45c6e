"""Moments at which a person could enter a namespace that is not isolated yet, from the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterator

from engine_project import COLLECTIONS, Asked, Key, Project

from tenancy.kube.objects import Object
from tenancy.live.api import path_of
from tenancy.planning import Plan, make_plan
from tenancy.validation import load

PLURALS = {path.rpartition("/")[2] for path in COLLECTIONS}


def planned(project: Project) -> Plan:
    loaded = load(project.environment)
    return make_plan(loaded.environment, loaded.tenants)


def key(item: Object) -> Key:
    metadata = item["metadata"]
    return path_of(item).split("/")[-2], metadata.get("namespace", ""), metadata["name"]


def changes(project: Project, since: int) -> Iterator[Asked]:
    """What was written, in the order in which it was: objects of kinds that the plan has."""
    for one in project.audit(since):
        if one.code < 300 and not one.dry_run and one.resource in PLURALS:
            yield one


def open_doors(project: Project, plan: Plan, since: int, present: set[Key]) -> list[str]:
    """Moments at which a person could enter a namespace without one of its limits, or while a guard is missing.

    `present` is what stood at `since`, and afterwards what stands now.
    """
    guards = {key(guard) for guard in (*plan.platform.guards, *plan.platform.readiness_probe)}
    isolation_resources = {s.name: {key(w) for w in s.isolation} for tenant in plan.tenants for s in tenant.namespaces}
    found = []
    for one in changes(project, since):
        what = (one.resource, one.namespace, one.name)
        if one.resource == "namespaces":
            what = (one.resource, "", one.name)
        (present.discard if one.verb == "delete" else present.add)(what)
        bindings = {name for resource, name, _ in present if resource == "rolebindings" and name in isolation_resources}
        found += [
            f"after {one.verb} {what}: {name} is open without {sorted(missing)}"
            for name in bindings
            if (missing := (isolation_resources[name] | guards | {("namespaces", "", name)}) - present)
        ]
        if one.verb == "delete" and one.resource == "namespaces":
            # The namespace controller takes what is in it, in an order of its own: no binding may be among that.
            present -= {each for each in present if each[1] == one.name}
    return found
