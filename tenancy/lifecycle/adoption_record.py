"""Record of what an adoption changes in a namespace: written before it, and restored when the tenant has left.

The record is an annotation of the namespace, which only the platform may change (ns-01). It has the labels and
annotations of before, and the objects that existed under names of the plan's own, such as the service account
`default`. What the adoption wrote since is told by the engine's field manager.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import CONFLICT, NOT_FOUND, Api, Response, path_of
from tenancy.cluster.drift import ENGINE
from tenancy.cluster.guards import PreconditionFailed
from tenancy.cluster.selectors import environment_selector
from tenancy.cluster.user_copies import user_copy
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE
from tenancy.planning.plan_model import NamespacePlan, TenantPlan

RECORD_ANNOTATION = vocabulary.BEFORE_ADOPTION
MANAGER = "tenancy-adoption"
"""Field manager of the record and of what is given back."""
PLACES = ("labels", "annotations")
_SERVER_KEYS = (vocabulary.SPACE_NAME, "kubectl.kubernetes.io/last-applied-configuration")


def record(api: Api, tenants: Sequence[TenantPlan]) -> None:
    """Record what the adoption of namespaces of these tenants is about to change; those that are recorded or were
    adopted before keep what they have. PreconditionFailed if the API server refuses."""
    for tenant in tenants:
        for space in tenant.namespaces if tenant.adopt else ():
            answer = api.request("GET", path_of(space.namespace))
            if answer.status != NOT_FOUND and _is_foreign(_expect(answer, space.name), space.namespace):
                recorded_values = json.dumps(
                    _values_to_record(api, space, answer.body), sort_keys=True, separators=(",", ":")
                )
                _expect(
                    _merge(api, path_of(space.namespace), {"annotations": {RECORD_ANNOTATION: recorded_values}}),
                    space.name,
                )


def _is_foreign(live: Mapping[str, Any], planned: Object) -> bool:
    """Whether it was not adopted yet: it has neither a record nor the environment's label."""
    labels, notes = (live["metadata"].get(place) or {} for place in PLACES)
    return (
        RECORD_ANNOTATION not in notes
        and labels.get(vocabulary.ENVIRONMENT) != planned["metadata"]["labels"][vocabulary.ENVIRONMENT]
    )


def _values_to_record(api: Api, space: NamespacePlan, live: Mapping[str, Any]) -> dict[str, Any]:
    metadata_values: dict[str, Any] = {
        place: {key: value for key, value in (live["metadata"].get(place) or {}).items() if key not in _SERVER_KEYS}
        for place in PLACES
    }
    answers = (api.request("GET", path_of(item)) for item in (*space.isolation, *space.access))
    return metadata_values | {"objects": [user_copy(answer.body) for answer in answers if answer.ok]}


def restore_namespaces(api: Api, environment: str, say: Callable[[str], None]) -> None:
    """Restore namespaces whose tenant has left and which stay: their labels, annotations and objects of before. Safe to
    repeat: a namespace that was given back is no longer the environment's.

    PreconditionFailed if the API server refuses.
    """
    for live in api.items(f"/api/v1/namespaces?labelSelector={environment_selector(environment)}"):
        metadata = live["metadata"]
        notes = metadata.get("annotations") or {}
        if notes.get(vocabulary.LEAVING) != vocabulary.LEFT or "deletionTimestamp" in metadata:
            continue
        name = metadata["name"]
        try:
            recorded_values = json.loads(notes.get(RECORD_ANNOTATION, "{}"))
        except ValueError:
            recorded_values = {}
        objects = recorded_values.get("objects") or []
        for item in objects:
            _expect(_create_or_merge(api, item), name)
        # The last step: by its labels it is found again after a run that was ended here.
        _expect(_merge(api, f"/api/v1/namespaces/{name}", _changes(live, recorded_values)), name)
        objects_note = f", with {len(objects)} of its own objects" if objects else ""
        missing_record_note = (
            ""
            if RECORD_ANNOTATION in notes
            else "; what they were before is unknown, because its adoption made no record"
        )
        say(
            f"namespace {name} has its labels and annotations of before its adoption{objects_note}{missing_record_note}"
        )


def _create_or_merge(api: Api, item: Object) -> Response:
    collection = path_of(item).rpartition("/")[0]
    answer = api.request("POST", f"{collection}?fieldManager={MANAGER}", item)
    if answer.status != CONFLICT:
        return answer
    # Kubernetes makes the service account `default` of each namespace again.
    return api.request("PATCH", f"{path_of(item)}?fieldManager={MANAGER}", item, content_type=MERGE)


def _changes(live: Object, recorded_values: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """Labels and annotations to write, None for those to remove: the adoption's own get their former values, and former
    ones that are missing come back. What others wrote since stays."""
    changes: dict[str, dict[str, str | None]] = {}
    for place in PLACES:
        current, former = live["metadata"].get(place) or {}, recorded_values.get(place) or {}
        platform_keys = {key for key in current if key.startswith(vocabulary.PREFIX)} | {*_keys_of_engine(live, place)}
        removed_keys = former.keys() - current.keys()
        changes[place] = {key: former.get(key) for key in sorted(platform_keys | removed_keys)}
    return changes


def _keys_of_engine(live: Object, place: str) -> Iterator[str]:
    """Keys that the engine wrote."""
    for entry in live["metadata"].get("managedFields") or ():
        if str(entry.get("manager", "")).startswith(ENGINE):
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get(f"f:{place}") or {}
            yield from (key.removeprefix("f:") for key in fields if key != ".")


def _merge(api: Api, path: str, metadata: Mapping[str, Any]) -> Response:
    return api.request("PATCH", f"{path}?fieldManager={MANAGER}", {"metadata": metadata}, content_type=MERGE)


def _expect(answer: Response, name: str) -> Mapping[str, Any]:
    if not answer.ok:
        raise PreconditionFailed(
            f"given namespace {name}, of which the API server answers {answer.status}: {answer.message}; rule: what an "
            "adoption changes is recorded and given back; change: resolve what the answer says, and run this again"
        )
    return answer.body
