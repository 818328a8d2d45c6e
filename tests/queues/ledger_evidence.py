"""Evidence of a cluster on some work of a story, for a message that no one can ask the cluster about later."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from ledger_items import WITHOUT_OPERATOR, resource
from scene import Object, Scene

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.api import collection
from tenancy.lab import processes
from tenancy.planning.queueing.queue_names import API

KINDS = dict.fromkeys([(API, "Workload"), *map(resource, FRAMEWORKS), *WITHOUT_OPERATOR.values()])
LENGTH = 900
"""Characters of a line."""
LOG_LINES = 12


def evidence(scene: Scene, works: Collection[str]) -> str:
    """Objects of this work and what belongs to it, the newest events of it, and what Kueue's log says of it."""
    lines: list[str] = []
    for tenant in scene.loaded.tenants:
        space = scene.space(tenant.tenant)
        for version, kind in KINDS:
            items = scene.api.items(collection(version, kind, space), absent=True)
            lines += [_line(kind, item) for item in items if _is_about(item, works)]
        events = scene.api.items(collection("v1", "Event", space))
        lines += list(_events(events, works))
    log = processes.tail(scene.lab, "kueue", lines=2000).splitlines()
    about = [line[:LENGTH] for line in log if any(f'"{name}"' in line or f"/{name}" in line for name in works)]
    return "\n".join([*lines, *about[-LOG_LINES:]])


def _is_about(item: Object, works: Collection[str]) -> bool:
    owners = [owner["name"] for owner in item["metadata"].get("ownerReferences") or ()]
    return any(name.partition("-")[0] in works for name in (item["metadata"]["name"], *owners))


def _line(kind: str, item: Object) -> str:
    metadata, spec, status = item["metadata"], item.get("spec") or {}, dict(item.get("status") or {})
    keys = ("type", "status", "reason", "message", "lastTransitionTime")
    conditions = [" ".join(str(c.get(key, ""))[:120] for key in keys) for c in status.pop("conditions", ())]
    facts = {
        "created": metadata["creationTimestamp"],
        "deleted": metadata.get("deletionTimestamp"),
        "finalizers": metadata.get("finalizers"),
        "owners": [owner["name"] for owner in metadata.get("ownerReferences") or ()],
        "suspend": spec.get("suspend"),
        "node": spec.get("nodeName"),
        "gates": spec.get("schedulingGates"),
        "conditions": conditions,
    }
    if kind != "Pod":
        facts["status"] = status
    else:
        facts["phase"] = status.get("phase")
    facts_text = json.dumps({key: value for key, value in facts.items() if value}, default=str)
    return f"{kind}/{metadata['name']}: {facts_text[:LENGTH]}"


def _events(events: list[Object], works: Collection[str]) -> Iterator[str]:
    work_events = [e for e in events if (e.get("involvedObject") or {}).get("name", "").partition("-")[0] in works]
    work_events.sort(key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or e["metadata"]["creationTimestamp"])
    for event in work_events[-LOG_LINES:]:
        about = event["involvedObject"]
        when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
        yield f"{when} {about['kind']}/{about['name']} {event.get('reason')}: {(event.get('message') or '')[:LENGTH]}"
