"""The API server of a clock, played: it counts writes and can end the process that asks."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator
from email.utils import format_datetime
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Response
from tenancy.kube.objects import Object
from tenancy.kube.quantities import units
from tenancy.planning import make_plan
from tenancy.spec.loader import Loaded

MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
KINDS = ("clusterqueues", "cohorts", "workloads")
RECORD = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/{vocabulary.CLOCK}"


class Killed(Exception):
    """The process ended before this request."""


class Cluster:
    """Objects by path; Kueue admits what is reserved before the next request. It counts writes, and can end the process
    that asks before one of its requests."""

    def __init__(self, loaded: Loaded) -> None:
        self.objects: dict[str, Object] = {}
        self.happened: list[tuple[int, str, Object]] = []
        self.oldest = 0
        """Version since which changes are known."""
        self.version = 0
        self.writes: list[str] = []
        self.requests = self.lists = 0
        self.kill_at: int | None = None
        self.changed_before_deletion = ""
        self.now = MONDAY
        self.most = 0
        plan = make_plan(loaded, loaded.day)
        for item in plan.objects():
            if item["kind"] in {"ClusterQueue", "Cohort"}:
                kind = f"{item['kind'].lower()}s"
                self._put(f"/apis/kueue.x-k8s.io/v1beta2/{kind}/{item['metadata']['name']}", copy.deepcopy(item))

    def _put(self, path: str, item: Object) -> Response:
        self.version += 1
        item["metadata"] |= {"resourceVersion": str(self.version), "uid": path}
        self._happened("MODIFIED" if path in self.objects else "ADDED", path, item)
        self.objects[path] = item
        self.most = max(self.most, self.promised())
        return Response(200, item)

    def _happened(self, what: str, path: str, item: Object) -> None:
        self.happened.append((self.version, what, {"path": path, **copy.deepcopy(item)}))

    def delete(self, path: str) -> Response:
        item = self.objects.pop(path, None)
        if item is None:
            return Response(404, {})
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self._happened("DELETED", path, item)
        return Response(200, item)

    def promised(self) -> int:
        """Whole A100 that all queues and Cohorts have."""
        return sum(
            units(resource["nominalQuota"])
            for item in self.objects.values()
            for group in item.get("spec", {}).get("resourceGroups", ())
            for flavor in group["flavors"]
            for resource in flavor["resources"]
            if resource["name"] == "nvidia.com/gpu"
        )

    def _count_request(self) -> None:
        self.requests += 1
        if self.kill_at is not None and self.requests >= self.kill_at:
            raise Killed

    def items(self, path: str) -> list[Object]:
        kind = path.rpartition("/")[2]
        assert kind in KINDS, path
        items = [copy.deepcopy(item) for place, item in self.objects.items() if f"/{kind}/" in place]
        return [_with_status(kind, item) for item in items]

    def pages(self, path: str) -> Iterator[Object]:
        """Two objects in a page."""
        self.lists += 1
        items, version = self.items(path), {"resourceVersion": str(self.version)}
        for start in range(0, max(len(items), 1), 2):
            self._count_request()
            yield {"items": items[start : start + 2], "metadata": version}

    def events(self, path: str) -> Iterator[Object]:
        self._count_request()
        where, _, query = path.partition("?")
        kind, since = where.rpartition("/")[2], int(query.rpartition("=")[2])
        if since < self.oldest:
            yield {"type": "ERROR", "object": {"code": 410}}
            return
        for version, what, item in self.happened:
            if version > since and f"/{kind}/" in item["path"]:
                yield {"type": what, "object": _with_status(kind, copy.deepcopy(item))}

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        self._count_request()
        where = path.partition("?")[0]
        headers = {"Date": format_datetime(self.now, usegmt=True)}
        stored = self.objects.get(where)
        if method == "GET":
            return Response(200, copy.deepcopy(stored), headers) if stored else Response(404, {}, headers)
        self.writes.append(f"{method} {where}")
        if method == "POST":
            place = f"{where}/{body['metadata']['name']}"
            return Response(409, {}) if place in self.objects else self._put(place, copy.deepcopy(body))
        if method == "DELETE":
            if stored and where == self.changed_before_deletion:
                self._put(where, stored)
            conditions = (body or {}).get("preconditions", {}).items()
            if stored and any(stored["metadata"][key] != value for key, value in conditions):
                return Response(409, {"message": "Precondition failed"})
            return self.delete(where)
        if method == "PUT":
            if stored is None or body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
                return Response(409, {"message": "the object has been modified"})
            return self._put(where, copy.deepcopy(body))
        assert method == "PATCH"
        if "/events/" in where:
            return self._put(where, copy.deepcopy(body))
        new_object = copy.deepcopy(stored or body)
        if stored and body["metadata"].get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            return Response(409, {"message": "another object of that name"})
        new_object["spec"] = {**new_object.get("spec", {}), **body.get("spec", {})}
        if notes := body["metadata"].get("annotations"):
            new_object["metadata"]["annotations"] = {**new_object["metadata"].get("annotations", {}), **notes}
        return self._put(where, new_object)

    def state(self) -> dict[str, Any]:
        return {path: item.get("spec") for path, item in self.objects.items() if "/events/" not in path}


def _with_status(kind: str, item: Object) -> Object:
    if kind == "workloads":
        item.setdefault("status", {"conditions": [{"type": "Admitted", "status": "True"}]})
    return item
