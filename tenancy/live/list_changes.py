"""Changes of lists since they were read: one watch for each, which ends when it is complete.

The API server keeps a kind's last changes in memory, at least a hundred of them, and answers them from there. A list of
objects with their field managers takes it and its client seconds for 1,000 tenants; a watch without a change takes
neither, but about two seconds of waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.kube.objects import Object, place_of
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.background import in_background

WATCH_SECONDS = 3
"""After which the API server ends a watch. It says two seconds before the end of one up to which version it has sent
all changes (`nextBookmarkTime` in kube-apiserver's cacher), and about each minute in longer ones."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a list up to a resource version."""

    objects: Mapping[tuple[str, str], tuple[Object, bool]]
    """By namespace and name: the object's last state, and whether it is still in the list."""
    version: int


def changes(api: Api, versions: Mapping[str, int], selector: str, empty_selector: str) -> dict[str, Changes | None]:
    """Changes of each list, by its path, since its resource version; None where they are not known, and the list has to
    be read.

    `selector` is that of the lists, `empty_selector` one that no object has, as `tenancy.live.selectors` has them.
    """
    # All at once: there is one for each kind, and they wait and need no processor.
    answers = {
        path: in_background(_changes_since, api, path, version, selector, empty_selector)
        for path, version in versions.items()
    }
    return {path: answer.result() for path, answer in answers.items()}


def _changes_since(api: Api, path: str, version: int, selector: str, empty_selector: str) -> Changes | None:
    """A watch says nothing if nothing changed, and nothing if it is late. It sends changes in the order of versions, so
    it is complete once it names one as late as that of a consistent list, which was asked for before."""
    objects: dict[tuple[str, str], tuple[Object, bool]] = {}
    if version == 0:
        return None  # to the API server it means any version
    try:
        current_version = _number(api.items_and_version(f"{path}?labelSelector={empty_selector}")[1])
        if current_version == version:
            return Changes({}, version)  # of which the API server sends no bookmark
        for kind, item in _events(api, path, version, selector):
            if kind != "BOOKMARK":
                objects[place_of(item)] = item, kind != "DELETED"
            if 0 < current_version <= (event_version := _number(item["metadata"]["resourceVersion"])):
                return Changes(objects, event_version)
    except (ApiUnreachable, KeyError):
        pass  # too old a version, an identity that may not watch, another kind of API server
    return None


def _events(api: Api, path: str, version: int, selector: str) -> Iterator[tuple[str, Any]]:
    query = f"watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
    for event in api.events(f"{path}?{query}&labelSelector={selector}"):
        if event["type"] == "ERROR":
            return
        yield event["type"], event["object"]


def _number(version: str) -> int:
    """A resource version as a number, which it is on every API server with etcd; 0 if it is none."""
    return int(version) if version.isdecimal() else 0
