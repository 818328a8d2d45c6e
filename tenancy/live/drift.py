"""What somebody else did to objects of the engine's since it made them, by server-side apply's own record.

The API server keeps who wrote which field (`metadata.managedFields`, KEP-555): a value that somebody else changed is
theirs from then on, one that they removed is nobody's, and what they wrote beside it is theirs alone. So what the API
server fills in or writes in another form is no difference, and a list for each kind is all that is asked.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.live.api import Api, collection, path_of
from tenancy.plan.model import Object
from tenancy.rules.objects import name_of

ENGINE = "pulumi-kubernetes"
"""How the engine's field managers begin: it has one for each object (pulumi-kubernetes 4.25)."""
_NOT_WRITTEN = frozenset({"apiVersion", "kind", "metadata", "status"})
_OURS = (words.PREFIX, words.PSA_ENFORCE.removesuffix("enforce"))
"""Labels and annotations that say something on an object of ours; of others nobody of ours reads any."""

Node = Mapping[str, Any]
"""Of `fieldsV1`: `f:<field>`, `k:<keys of a list's item>` or `v:<value>` -> what is below it, empty for a leaf."""
Path = tuple[str, ...]


class NotPutBack(Exception):
    """The API server does not let an object be written as it was."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What of one object is no longer as it was made."""

    item: Object
    """As it was made."""
    live: Object | None
    """As it is; None if it is gone, or nobody's."""
    changed: tuple[Path, ...] = ()
    """Fields that somebody changed or removed."""
    added: tuple[Path, ...] = ()
    """Fields that somebody wrote beside: the engine does not see them, and would leave them."""
    by: str = ""
    """Who wrote, by the names that clients give themselves, and when."""

    def __str__(self) -> str:
        if self.live is None:
            return f"{self.name} is gone"
        return f"{self.name}: {self.fields}{f'; by {self.by}' if self.by else ''}"

    @property
    def name(self) -> str:
        return name_of(self.item)

    @property
    def fields(self) -> str:
        return ", ".join([*map(_spoken, self.changed), *(f"{_spoken(path)} (new)" for path in self.added)])


def drift(api: Api, selector: str, items: Iterable[Object]) -> list[Drift]:
    """Of each object that is not as the engine made it, of those that have these labels; what it never made is gone,
    too."""
    lists: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
    found = []
    for item in items:
        kind = (item["apiVersion"], item["kind"])
        if kind not in lists:
            listed = api.items(f"{collection(*kind)}?labelSelector={selector}", absent=True)
            lists[kind] = {_key(each): each for each in listed}
        live = lists[kind].get(_key(item))
        if live is None:
            found.append(Drift(item, None))
            continue
        ours, theirs = _owned(live, ours=True), _owned(live, ours=False)
        # Who wrote the same value has its name on it, and changed nothing.
        changed = tuple(path for path in _lost(item, ours) if _value(live, path) != _value(item, path))
        added = tuple(_beside(item, ours, theirs))
        if changed or added:
            found.append(Drift(item, live, changed, added, _writers(live)))
    return found


def is_the_engines(live: Object) -> bool:
    """Whether the engine wrote it, whatever its labels say now."""
    return any(True for _ in _entries(live, ours=True))


def put_back(api: Api, found: Drift, manager: str) -> None:
    """Write the object as the engine made it, in its name; NotPutBack if the API server does not let it.

    What was written beside is made the engine's first, so that it goes with one write of all that is right: a list of
    which only a part is right may be no list that the API server takes.
    """
    if found.live is None:
        return
    path = path_of(found.item)
    if found.added:
        metadata = found.live["metadata"]
        entries = _handed_over(metadata["managedFields"], found, manager)
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        patch = [version, {"op": "replace", "path": "/metadata/managedFields", "value": entries}]
        _ask(api, path, patch, "application/json-patch+json")
    _ask(api, f"{path}?fieldManager={manager}&force=true", found.item, "application/apply-patch+yaml")


def _ask(api: Api, path: str, body: object, content_type: str) -> None:
    answer = api.request("PATCH", path, body, content_type=content_type)
    if not answer.ok:
        raise NotPutBack(f"PATCH {path}: {answer.status} {answer.message}")


def _handed_over(entries: Iterable[Mapping[str, Any]], found: Drift, manager: str) -> list[Mapping[str, Any]]:
    """Who owns what, once what was written beside is the engine's."""
    own: dict[str, Any] = {}
    rest: list[Mapping[str, Any]] = []
    for entry in entries:
        fields = copy.deepcopy(entry.get("fieldsV1") or {})
        if entry.get("subresource"):
            rest.append(entry)
        elif (entry["manager"], entry["operation"]) == (manager, "Apply"):
            _merge(own, fields)
        else:
            for path in found.added:
                if taken := _take(fields, path):
                    _merge(own, taken)
            if fields:
                rest.append({**entry, "fieldsV1": fields})
    mine = {"manager": manager, "operation": "Apply", "apiVersion": found.item["apiVersion"]}
    return [{**mine, "fieldsType": "FieldsV1", "fieldsV1": own}, *rest]


def _take(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """Cut what is at the path out of the tree; a tree of it alone, empty if it was not there."""
    key, below = path[0], path[1:]
    if key not in tree:
        return {}
    if not below:
        return {key: tree.pop(key)}
    taken = _take(tree[key], below)
    if not tree[key] or set(tree[key]) == {"."}:
        del tree[key]
    return {key: taken} if taken else {}


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _entries(live: Object, *, ours: bool) -> Iterator[Mapping[str, Any]]:
    for entry in live["metadata"].get("managedFields") or ():
        if not entry.get("subresource") and entry["manager"].startswith(ENGINE) is ours:
            yield entry


def _owned(live: Object, *, ours: bool) -> Node:
    tree: dict[str, Any] = {}
    for entry in _entries(live, ours=ours):
        _merge(tree, entry.get("fieldsV1") or {})
    return tree


def _merge(tree: dict[str, Any], more: Node) -> None:
    for key, below in more.items():
        _merge(tree.setdefault(key, {}), below)


def _writers(live: Object) -> str:
    return ", ".join(sorted({f"{e['manager']} at {e.get('time', '?')}" for e in _entries(live, ours=False)}))


# What is ours


def _lost(item: Object, ours: Node) -> Iterator[Path]:
    for key, value in item.items():
        if key not in _NOT_WRITTEN:
            yield from _lost_below(value, f"f:{key}", ours, ())
    for place in ("labels", "annotations"):
        for key in item["metadata"].get(place) or {}:
            if f"f:{key}" not in (ours.get("f:metadata") or {}).get(f"f:{place}", {}):
                yield ("f:metadata", f"f:{place}", f"f:{key}")


def _lost_below(value: object, key: str, parent: Node, above: Path) -> Iterator[Path]:
    path = (*above, key)
    if key not in parent:
        if value:
            yield path
        return  # of what is empty or false the API server keeps no owner
    node = parent[key]
    if not node:
        return  # one value, or a list or map that has one owner
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _lost_below(below, f"f:{name}", node, path)
    elif isinstance(value, list):
        for each in value:
            yield from _lost_below(each, _key_of(each, node), node, path)


def _key_of(item: object, node: Node) -> str:
    """The item's key in the list's node; one that is not there if it has none."""
    if not isinstance(item, Mapping):
        return f"v:{json.dumps(item)}"
    for key in node:
        if key.startswith("k:") and all(item.get(name) == value for name, value in json.loads(key[2:]).items()):
            return key
    return f"k:{json.dumps({'name': item.get('name')}, separators=(',', ':'))}"


# What is beside it


def _beside(item: Object, ours: Node, theirs: Node) -> Iterator[Path]:
    for key, node in theirs.items():
        name = key.removeprefix("f:")
        if name not in _NOT_WRITTEN:
            yield from _beside_below(item.get(name), key, node, ours, ())
    metadata, own = theirs.get("f:metadata") or {}, ours.get("f:metadata") or {}
    # With an owner, the garbage collector takes it away when that is gone.
    for key in metadata.get("f:ownerReferences") or {}:
        if key != ".":
            yield ("f:metadata", "f:ownerReferences", key)
    for place in ("labels", "annotations"):
        planned = item["metadata"].get(place) or {}
        for key in metadata.get(f"f:{place}") or {}:
            name = key.removeprefix("f:")
            if name.startswith(_OURS) and name not in planned and key not in own.get(f"f:{place}", {}):
                yield ("f:metadata", f"f:{place}", key)


def _beside_below(value: object, key: str, node: Node, parent: Node, above: Path) -> Iterator[Path]:
    """`value` is what was made there; None if nothing."""
    path = (*above, key)
    if not value and key not in parent:
        yield path
        return
    for each, below in node.items():
        if each == ".":
            continue
        if isinstance(value, list):
            planned = next((v for v in value if _key_of(v, node) == each), None)
        else:
            planned = value.get(each.removeprefix("f:")) if isinstance(value, Mapping) else None
        yield from _beside_below(planned, each, below, parent.get(key) or {}, path)


def _value(tree: Any, path: Path) -> object:
    """What is at the path; None if nothing."""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f":
            tree = tree.get(name) if isinstance(tree, Mapping) else None
        elif kind == "k":
            wanted = json.loads(name)
            tree = next((each for each in tree or () if all(each.get(k) == v for k, v in wanted.items())), None)
        else:
            tree = json.loads(name) if json.loads(name) in (tree or ()) else None
    return tree


def _spoken(path: Path) -> str:
    """As people write it, such as `spec.matchConditions[name=hole]`."""
    said = ""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f":
            said += f"[{json.dumps(name)}]" if "." in name or "/" in name else f".{name}" if said else name
        elif kind == "k":
            said += f"[{', '.join(f'{k}={v}' for k, v in json.loads(name).items())}]"
        else:
            said += f"[{name}]"
    return said
