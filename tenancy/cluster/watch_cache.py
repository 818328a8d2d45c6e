"""Objects of one kind that are read whole once, and from then on by what changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.kube.objects import place_of

Value = TypeVar("Value")
Place = tuple[str, str]
"""Namespace and name; the namespace of a cluster-wide object is empty."""

WATCH_SECONDS = 1
"""After which the API server ends a watch: the shortest time that it offers. Changes that it has are sent at once."""
HTTP_GONE = 410
"""The API server no longer knows what changed since the version."""


class WatchCache(Generic[Value]):
    """Values that `extract` derives from each object at `path`, the path of a list; None for an object that is not
    needed."""

    def __init__(self, path: str, extract: Callable[[Mapping[str, Any]], Value | None]) -> None:
        self.values: dict[Place, Value] = {}
        self._path, self._extract = path, extract
        self._version = ""

    def forget(self) -> None:
        """Read whole the next time."""
        self._version = ""

    def read(self, api: Api) -> set[Place]:
        """Bring `values` to what the cluster has, and answer where that made a difference. ApiUnreachable without an
        answer; the next call then asks for the same changes."""
        return self._changes(api) if self._version else self._read_list(api)

    def _changes(self, api: Api) -> set[Place]:
        query = f"watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={self._version}"
        try:
            # All of them before the first is taken in: of a watch that is cut the caller would not learn what changed.
            events = [*api.events(f"{self._path}?{query}")]
        except ApiUnreachable as error:
            if error.status == HTTP_GONE:
                return self._read_list(api)
            raise
        changed_places: set[Place] = set()
        for event in events:
            if event["type"] == "ERROR":
                return changed_places | self._read_list(api)
            item = event["object"]
            place, previous = place_of(item), self.values.pop(place_of(item), None)
            value = None if event["type"] == "DELETED" else self._extract(item)
            if value is not None:
                self.values[place] = value
            if value != previous:
                changed_places.add(place)
            self._version = str(item["metadata"]["resourceVersion"])
        return changed_places

    def _read_list(self, api: Api) -> set[Place]:
        values: dict[Place, Value] = {}
        for page in api.pages(self._path):
            for item in page["items"]:
                if (value := self._extract(item)) is not None:
                    values[place_of(item)] = value
            version = str(page["metadata"]["resourceVersion"])
        previous, self.values, self._version = self.values, values, version
        return {place for place in previous.keys() | values.keys() if previous.get(place) != values.get(place)}
