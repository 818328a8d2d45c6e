"""Objects of one kind that are read whole once, and from then on by what changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tenancy.kube.objects import place_of
from tenancy.live.api import Api, ApiUnreachable

Kept = TypeVar("Kept")
Place = tuple[str, str]
"""Namespace and name; the namespace of a cluster-wide object is empty."""

SECONDS = 1
"""After which the API server ends a watch: the shortest time that it offers. Changes that it has are sent at once."""
GONE = 410
"""The API server no longer knows what changed since the version."""


class Followed(Generic[Kept]):
    """What `keep` makes of each object at `path`, the path of a list; None if the object is not needed."""

    def __init__(self, path: str, keep: Callable[[Mapping[str, Any]], Kept | None]) -> None:
        self.kept: dict[Place, Kept] = {}
        self._path, self._keep = path, keep
        self._version = ""

    def forget(self) -> None:
        """Read whole the next time."""
        self._version = ""

    def read(self, api: Api) -> set[Place]:
        """Bring `kept` to what the cluster has, and answer where that made a difference. ApiUnreachable without an
        answer; the next call then asks for the same changes."""
        return self._changes(api) if self._version else self._whole(api)

    def _changes(self, api: Api) -> set[Place]:
        query = f"watch=true&timeoutSeconds={SECONDS}&resourceVersion={self._version}"
        try:
            # All of them before the first is taken in: of a watch that is cut the caller would not learn what changed.
            events = [*api.events(f"{self._path}?{query}")]
        except ApiUnreachable as error:
            if error.status == GONE:
                return self._whole(api)
            raise
        changed: set[Place] = set()
        for event in events:
            if event["type"] == "ERROR":
                return changed | self._whole(api)
            item = event["object"]
            place, before = place_of(item), self.kept.pop(place_of(item), None)
            kept = None if event["type"] == "DELETED" else self._keep(item)
            if kept is not None:
                self.kept[place] = kept
            if kept != before:
                changed.add(place)
            self._version = str(item["metadata"]["resourceVersion"])
        return changed

    def _whole(self, api: Api) -> set[Place]:
        new: dict[Place, Kept] = {}
        for page in api.pages(self._path):
            for item in page["items"]:
                if (kept := self._keep(item)) is not None:
                    new[place_of(item)] = kept
            version = str(page["metadata"]["resourceVersion"])
        before, self.kept, self._version = self.kept, new, version
        return {place for place in before.keys() | new.keys() if before.get(place) != new.get(place)}
