"""Drift of the engine's objects: fields that other managers wrote since, by the record of server-side apply.

The API server records the manager of each field (`metadata.managedFields`, KEP-555): a client that changes a value
becomes its manager, a value that a client removes has no manager, and a field that a client adds has that client alone.
So defaults of the API server are no drift, and one list request for each kind is enough.

A client chooses its manager's name. So the engine's name is taken from its state, not recognised by a prefix, and
values are compared whatever their manager: a client that uses the engine's own name changes values too. Where a value
that the engine manages differs, a dry run of the engine's own write tells another form of a value from another value.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.text import shown
from tenancy.kube.objects import CLOCK_FIELDS, Object, place_of
from tenancy.kube.requests import APPLY, collection
from tenancy.live.api import Api, path_of
from tenancy.rules.found import name_of

ENGINE = "pulumi-kubernetes"
"""Prefix of the engine's field managers, one for each object (pulumi-kubernetes 4.25). Other clients may use it too: a
name with it may be the engine's, and need not."""
AHEAD = 4
"""Lists that are asked for before they are needed: the API server answers them while the caller compares others."""
_NOT_WRITTEN = frozenset({"apiVersion", "kind", "metadata", "status"})
_OURS = (words.PREFIX, words.PSA_ENFORCE.removesuffix("enforce"))
"""Prefixes of labels and annotations that guards and reports read; additional ones of other prefixes have no effect."""

Node = Mapping[str, Any]
"""Of `fieldsV1`: `f:<field>`, `k:<keys of a list's item>` or `v:<value>` -> what is below it, empty for a leaf."""
Path = tuple[str, ...]


class NotPutBack(Exception):
    """The API server refuses to revert an object."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of one object."""

    item: Object
    """The object as the engine wrote it."""
    live: Object | None
    """The object in the cluster; None if it does not exist."""
    changed: tuple[Path, ...] = ()
    """Fields that another manager changed or removed."""
    added: tuple[Path, ...] = ()
    """Fields that another manager added: the engine does not see them, and would leave them."""
    by: str = ""
    """Managers that wrote, by the names that clients give themselves, and when."""
    anew: bool = False
    """Whether another client created the object again after its deletion."""

    def __str__(self) -> str:
        if self.live is None:
            return f"{self.name} {self.what}"
        return f"{self.name}: {self.what}{f'; by {self.by}' if self.by else ''}"

    @property
    def what(self) -> str:
        """What happened to it."""
        if self.live is None:
            return "is gone"
        return f"was created again, without {self.fields}" if self.anew else self.fields

    @property
    def name(self) -> str:
        """Kind, namespace and name of the object."""
        return name_of(self.item)

    @property
    def fields(self) -> str:
        """The changed and added fields, in words."""
        return ", ".join([*map(_spoken, self.changed), *(f"{_spoken(path)} (new)" for path in self.added)])


def drift(
    api: Api,
    selector: str,
    items: Iterable[Object],
    managers: Mapping[str, str] | None = None,
    listed: Callable[[str, str], None] = lambda _, __: None,
) -> list[Drift]:
    """Drift of each of these objects, which are listed by the selector; an object that was never created counts as
    deleted.

    `managers` are the engine's field managers by the objects' paths, from its state. Without them a difference may be
    another form of the same value, an object without its labels counts as deleted, and any name with the engine's
    prefix counts as the engine: the result then tells only whether to ask again with them.
    `listed` gets the path and the resource version of each list.
    """
    planned: dict[tuple[str, str], dict[tuple[str, str], tuple[int, Object]]] = {}
    for place, item in enumerate(items):
        planned.setdefault((item["apiVersion"], item["kind"]), {})[place_of(item)] = place, item
    found: list[tuple[int, Drift]] = []
    lists = _ahead(api, [f"{collection(*kind)}?labelSelector={selector}" for kind in planned])
    for (kind, wanted), (lives, version) in zip(planned.items(), lists, strict=True):
        listed(collection(*kind), version)
        for live in lives:
            if one := wanted.pop(place_of(live), None):
                found += [(one[0], each) for each in of_object(api, one[1], live, managers)]
        for place, item in wanted.values():
            again = None
            if managers is not None:
                # An object that another client created again has none of the labels.
                answer = api.request("GET", path_of(item))
                again = dict(answer.body) if answer.ok else None
            gone = [Drift(item, None)] if again is None else of_object(api, item, again, managers)
            found += [(place, each) for each in gone]
    return [each for _, each in sorted(found, key=lambda one: one[0])]


def _ahead(api: Api, paths: Sequence[str]) -> Iterator[tuple[list[Object], str]]:
    """The objects of each list, and its resource version. The API server answers the next ones while the caller is at
    the one before; the lists of a large fleet are not all held at once."""
    asked: deque[Future[tuple[list[Object], str]]] = deque()
    with ThreadPoolExecutor(AHEAD) as pool:
        for path in paths:
            asked.append(pool.submit(api.listed, path, absent=True))
            if len(asked) > AHEAD:
                yield asked.popleft().result()
        for last in asked:
            yield last.result()


def of_object(api: Api, item: Object, live: Object, managers: Mapping[str, str] | None = None) -> list[Drift]:
    """The object's drift; empty if it is as the engine wrote it. `managers` are as for `drift`."""
    manager = managers.get(path_of(item)) if managers is not None else None
    ours, theirs = _owned(live, manager, ours=True), _owned(live, manager, ours=False)
    written = item
    if _is_kept(item):
        # Another controller keeps them: it reverts what a third client writes there.
        written = _without(item, CLOCK_FIELDS)
        theirs = _without(theirs, [[f"f:{key}" for key in path] for path in CLOCK_FIELDS])
    # A client that wrote the same value became its manager, and changed nothing.
    lost = [path for path in _lost(written, ours) if _value(live, path) != _value(item, path)]
    # False and absent are the same value for some fields, and differ for others.
    changed = [path for path in lost if _value(live, path) or _value(item, path)]
    doubtful = [path for path in lost if path not in changed] if manager else []
    kept = _really(api, item, live, manager, [*_kept_but_other(written, live, ours)])
    changed += [*kept, *_really(api, item, live, manager, doubtful)]
    added = tuple(_beside(written, ours, theirs))
    if not (changed or added):
        return []
    by = _writers(live, manager, forged=bool(kept))
    return [Drift(item, live, tuple(changed), added, by, anew=not ours)]


def by_others(api: Api, selector: str, items: Iterable[Object]) -> Iterator[Drift]:
    """Drift by other managers than the engine's, told without the engine's state: objects that exist, and fields that
    another manager owns. A value that another client removed has no manager, and only the state tells it."""
    for found in drift(api, selector, items):
        if found.live is None:
            continue
        theirs = _owned(found.live, None, ours=False)
        changed = tuple(path for path in found.changed if _has(theirs, path))
        if changed or found.added:
            yield replace(found, changed=changed)


def missing(api: Api, selector: str, items: Iterable[Object]) -> list[Object]:
    """Those of the objects that no list with the selector has."""
    return [found.item for found in drift(api, selector, items) if found.live is None]


def _is_kept(item: Object) -> bool:
    return words.KEPT_BY_CLOCK in (item["metadata"].get("annotations") or {})


def _without(tree: Mapping[str, Any], paths: Iterable[Sequence[str]]) -> dict[str, Any]:
    """A copy without what is at the paths, and without the parents of which nothing else is left."""
    made = dict(tree)
    for key, *below in paths:
        if key not in made:
            continue
        left = {k: v for k, v in _without(made[key], [below]).items() if k != "."} if below else {}
        if left:
            made[key] = left
        else:
            del made[key]
    return made


def _has(tree: Node, path: Path) -> bool:
    for key in path:
        if key not in tree:
            return False
        tree = tree[key]
    return True


def _kept_but_other(item: Object, live: Object, ours: Node) -> list[Path]:
    """Fields that the engine manages, and whose values differ from what it wrote, perhaps in form only."""
    found = []
    for key, value in item.items():
        if key not in _NOT_WRITTEN:
            leaves = _leaves(value, live.get(key), f"f:{key}", ours, ())
            found += [path for path in leaves if _value(live, path) != _value(item, path)]
    for place in ("labels", "annotations"):
        live_ones, planned = live["metadata"].get(place) or {}, item["metadata"].get(place) or {}
        if live_ones == planned:
            continue
        kept = (ours.get("f:metadata") or {}).get(f"f:{place}", {})
        for key, value in planned.items():
            if f"f:{key}" in kept and live_ones.get(key) != value:
                found.append(("f:metadata", f"f:{place}", f"f:{key}"))
    return found


def _leaves(value: object, live: object, key: str, parent: Node, above: Path) -> Iterator[Path]:
    """Paths of the values that the node of managed fields contains, but not of those that the live object has too:
    most parts of most objects are equal, and are not walked. `live` is None in the items of a list."""
    node = parent.get(key)
    if node is None or (value == live and value is not None):
        return
    path = (*above, key)
    if not node:
        yield path
    elif isinstance(value, dict):
        there = live if isinstance(live, dict) else {}
        for name, below in value.items():
            yield from _leaves(below, there.get(name), f"f:{name}", node, path)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, None, _key_of(each, node), node, path)


def _really(api: Api, item: Object, live: Object, manager: str | None, suspects: list[Path]) -> list[Path]:
    """Fields that the engine's own write would change: the rest are other forms of the same values."""
    if not suspects or manager is None:
        return suspects
    path = f"{path_of(item)}?dryRun=All&fieldManager={manager}&force=true"
    answer = api.request("PATCH", path, item, content_type=APPLY)
    if not answer.ok:
        return suspects
    return [path for path in suspects if _value(answer.body, path) != _value(live, path)]


def is_the_engines(live: Object) -> bool:
    """Whether the engine wrote the object, by the names of its field managers, whatever its labels."""
    return any(True for _ in _entries(live, None, ours=True))


def put_back(api: Api, found: Drift, manager: str) -> None:
    """Revert the object by the engine's write, under its manager's name; NotPutBack if the API server refuses.

    Added fields become the engine's first, so that one write removes them and restores the rest: a list that is
    corrected in part may be invalid to the API server.
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
    _ask(api, f"{path}?fieldManager={manager}&force=true", _to_write(found, manager), APPLY)


def _to_write(found: Drift, manager: str) -> Object:
    """The object as the engine writes it. A field that the clock writes too has its live value where the engine still
    manages it, because leaving it out would remove it; the others are left to the clock."""
    if found.live is None or not _is_kept(found.item):
        return found.item
    ours, made = _owned(found.live, manager, ours=True), _without(found.item, CLOCK_FIELDS)
    for part, field in CLOCK_FIELDS:
        if _has(ours, (f"f:{part}", f"f:{field}")):
            made[part] = {**made.get(part, {}), field: found.live[part][field]}
    return made


def _ask(api: Api, path: str, body: object, content_type: str) -> None:
    answer = api.request("PATCH", path, body, content_type=content_type)
    if not answer.ok:
        raise NotPutBack(f"PATCH {path}: {answer.status} {answer.message}")


def _handed_over(entries: Iterable[Mapping[str, Any]], found: Drift, manager: str) -> list[Mapping[str, Any]]:
    """The managed fields after the engine has become the manager of added ones."""
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
    """Cut the path out of the tree; return a tree of the path alone, empty if the tree lacks it."""
    key, below = path[0], path[1:]
    if key not in tree:
        return {}
    if not below:
        return {key: tree.pop(key)}
    taken = _take(tree[key], below)
    if not tree[key] or set(tree[key]) == {"."}:
        del tree[key]
    return {key: taken} if taken else {}


def _entries(live: Object, manager: str | None, *, ours: bool) -> Iterator[Mapping[str, Any]]:
    """Entries of the engine's manager, or of others; without `manager` the engine is recognised by its prefix."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("subresource"):
            continue
        by, way = entry["manager"], entry["operation"]
        own = by.startswith(ENGINE) if manager is None else (by, way) == (manager, "Apply")
        if own is ours:
            yield entry


def _owned(live: Object, manager: str | None, *, ours: bool) -> Node:
    parts = [entry.get("fieldsV1") or {} for entry in _entries(live, manager, ours=ours)]
    if len(parts) == 1:
        return parts[0]
    tree: dict[str, Any] = {}
    for part in parts:
        _merge(tree, part)
    return tree


def _merge(tree: dict[str, Any], more: Node) -> None:
    for key, below in more.items():
        _merge(tree.setdefault(key, {}), below)


_ALIKE = (ENGINE.partition("-")[0], words.PRODUCT, words.PREFIX.partition(".")[0])
"""How names begin, in any case, that a reader may take for the engine's or this product's."""


def _writers(live: Object, manager: str | None, *, forged: bool) -> str:
    """Other managers that wrote; if there is none, the client used the engine's name, or none.

    `forged`: a changed field still has the engine as its manager, so its author wrote under the engine's name, or wrote
    the record of managers too.
    """
    entries = [*_entries(live, manager, ours=False)]
    named = {f"{shown(e['manager'])}{_not_the_engine(e, manager)} at {e.get('time', '?')}" for e in entries}
    if forged or not entries:
        named |= {
            f"a client under the engine's name {shown(e['manager'])} at {e.get('time', '?')}"
            for e in _entries(live, manager, ours=True)
        }
    return ", ".join(sorted(named)) or f"a client without a name at {live['metadata'].get('creationTimestamp', '?')}"


def _not_the_engine(entry: Mapping[str, Any], manager: str | None) -> str:
    alike = entry["manager"].casefold().startswith(_ALIKE) and entry["manager"] not in {words.CLOCK, manager}
    return " (not the engine's)" if alike and manager is not None else ""


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
        if not _is_empty(value):
            yield path
        return  # the API server records no manager of an empty value
    node = parent[key]
    if not node:
        return  # one value, or an atomic list or map
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _lost_below(below, f"f:{name}", node, path)
    elif isinstance(value, list):
        for each in value:
            yield from _lost_below(each, _key_of(each, node), node, path)


def _key_of(item: object, node: Node) -> str:
    """The item's key in the list's node; a key that the node lacks if the item is not in it."""
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
    # The garbage collector deletes an object whose owner is deleted.
    for key in metadata.get("f:ownerReferences") or {}:
        if key != ".":
            yield ("f:metadata", "f:ownerReferences", key)
    for place in ("labels", "annotations"):
        planned = item["metadata"].get(place) or {}
        for key in metadata.get(f"f:{place}") or {}:
            name = key.removeprefix("f:")
            ours_alone = name.startswith(_OURS) and name != words.BEFORE_ADOPTION
            if ours_alone and name not in planned and key not in own.get(f"f:{place}", {}):
                yield ("f:metadata", f"f:{place}", key)


def _beside_below(value: object, key: str, node: Node, parent: Node, above: Path) -> Iterator[Path]:
    """`value` is what the engine wrote there; None if nothing."""
    path = (*above, key)
    if _is_empty(value) and key not in parent:
        yield path
        return
    if not node and key not in parent and not value:
        return  # the engine wrote false or zero, and values are compared
    for each, below in node.items():
        if each == ".":
            continue
        if isinstance(value, list):
            planned = next((v for v in value if _key_of(v, node) == each), None)
        else:
            planned = value.get(each.removeprefix("f:")) if isinstance(value, Mapping) else None
        yield from _beside_below(planned, each, below, parent.get(key) or {}, path)


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _value(tree: Any, path: Path) -> object:
    """The value at the path; None if there is none."""
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
    """The path as users write it, such as `spec.matchConditions[name=hole]`."""
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
