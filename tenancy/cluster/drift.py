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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.text import escape_invisible
from tenancy.cluster.api import Api, path_of
from tenancy.kube.objects import CLOCK_FIELDS, Object, name_of, place_of
from tenancy.kube.requests import APPLY, collection

ENGINE = "pulumi-kubernetes"
"""Prefix of the engine's field managers, one for each object (pulumi-kubernetes 4.25). Another
client may use a name with this prefix."""
MAX_PENDING_LISTS = 4
"""Lists that are asked for before they are needed: the API server answers them while the caller compares others."""
_UNCOMPARED_KEYS = frozenset({"apiVersion", "kind", "metadata", "status"})
_PLATFORM_PREFIXES = (vocabulary.PREFIX, vocabulary.PSA_ENFORCE.removesuffix("enforce"))
"""Prefixes of labels and annotations that guards and reports read; additional ones of other prefixes have no effect."""

Node = Mapping[str, Any]
"""A node of `fieldsV1`: `f:<field>`, `k:<keys of a list's item>` or `v:<value>` -> what is below it, empty for a
leaf."""
Path = tuple[str, ...]


class RevertFailed(Exception):
    """The API server refuses to revert an object."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of one object."""

    item: Object
    """The object as the engine wrote it."""
    live: Object | None
    """The object in the cluster; None if it does not exist."""
    changed_fields: tuple[Path, ...] = ()
    """Fields that another manager changed or removed."""
    added_fields: tuple[Path, ...] = ()
    """Fields that another manager added: the engine does not see them, and would leave them."""
    writers: str = ""
    """Managers that wrote, by the names that clients give themselves, and when."""
    is_recreated: bool = False
    """Whether another client created the object again after its deletion."""

    def __str__(self) -> str:
        if self.live is None:
            return f"{self.name} {self.description}"
        return f"{self.name}: {self.description}{f'; by {self.writers}' if self.writers else ''}"

    @property
    def description(self) -> str:
        """The drift as a text."""
        if self.live is None:
            return "is gone"
        return f"was created again, without {self.fields}" if self.is_recreated else self.fields

    @property
    def name(self) -> str:
        """Kind, namespace and name of the object."""
        return name_of(self.item)

    @property
    def fields(self) -> str:
        """The changed and added fields, in words."""
        return ", ".join(
            [*map(_format_path, self.changed_fields), *(f"{_format_path(path)} (new)" for path in self.added_fields)]
        )


def drift(
    api: Api,
    selector: str,
    items: Iterable[Object],
    managers: Mapping[str, str] | None = None,
) -> list[Drift]:
    """Drift of each of these objects, which are listed by the selector; an object that was never created counts as
    deleted.

    `managers` are the engine's field managers by the objects' paths, from its state. Without them a difference may be
    another form of the same value, an object without its labels counts as deleted, and any name with the engine's
    prefix counts as the engine: the result then tells only whether to ask again with them.
    """
    planned: dict[tuple[str, str], dict[tuple[str, str], tuple[int, Object]]] = {}
    for index, item in enumerate(items):
        planned.setdefault((item["apiVersion"], item["kind"]), {})[place_of(item)] = index, item
    results: list[tuple[int, Drift]] = []
    lists = _prefetched_lists(api, [f"{collection(*kind)}?labelSelector={selector}" for kind in planned])
    for remaining, live_objects in zip(planned.values(), lists, strict=True):
        for live in live_objects:
            if entry := remaining.pop(place_of(live), None):
                results += [(entry[0], object_drift) for object_drift in drift_of_object(api, entry[1], live, managers)]
        for index, item in remaining.values():
            live_copy = None
            if managers is not None:
                # An object that another client created again has none of the labels.
                answer = api.request("GET", path_of(item))
                live_copy = dict(answer.body) if answer.ok else None
            drifts = [Drift(item, None)] if live_copy is None else drift_of_object(api, item, live_copy, managers)
            results += [(index, object_drift) for object_drift in drifts]
    return [object_drift for _, object_drift in sorted(results, key=lambda entry: entry[0])]


def _prefetched_lists(api: Api, paths: Sequence[str]) -> Iterator[list[Object]]:
    """The objects of each list. The API server answers the next ones while the caller is at the one before; the lists
    of a large fleet are not all held at once."""
    pending: deque[Future[list[Object]]] = deque()
    with ThreadPoolExecutor(MAX_PENDING_LISTS) as pool:
        for path in paths:
            pending.append(pool.submit(api.items, path, absent=True))
            if len(pending) > MAX_PENDING_LISTS:
                yield pending.popleft().result()
        for future in pending:
            yield future.result()


def drift_of_object(api: Api, item: Object, live: Object, managers: Mapping[str, str] | None = None) -> list[Drift]:
    """The object's drift; empty if it is as the engine wrote it. `managers` are as for `drift`."""
    manager = managers.get(path_of(item)) if managers is not None else None
    engine_fields, foreign_fields = (
        _managed_fields(live, manager, by_engine=True),
        _managed_fields(live, manager, by_engine=False),
    )
    compared_item = item
    if _is_clock_managed(item):
        # Another controller keeps them: it reverts what a third client writes there.
        compared_item = _without_paths(item, CLOCK_FIELDS)
        foreign_fields = _without_paths(foreign_fields, [[f"f:{key}" for key in path] for path in CLOCK_FIELDS])
    # A client that wrote the same value became its manager, and changed nothing.
    lost_paths = [
        path for path in _lost_fields(compared_item, engine_fields) if _value(live, path) != _value(item, path)
    ]
    # False and absent are the same value for some fields, and differ for others.
    changed_paths = [path for path in lost_paths if _value(live, path) or _value(item, path)]
    unconfirmed_paths = [path for path in lost_paths if path not in changed_paths] if manager else []
    overwritten_paths = _confirmed_by_dry_run(
        api, item, live, manager, [*_managed_but_different(compared_item, live, engine_fields)]
    )
    changed_paths += [*overwritten_paths, *_confirmed_by_dry_run(api, item, live, manager, unconfirmed_paths)]
    added_paths = tuple(_added_fields(compared_item, engine_fields, foreign_fields))
    if not (changed_paths or added_paths):
        return []
    writers = _writers(live, manager, uses_engine_name=bool(overwritten_paths))
    return [Drift(item, live, tuple(changed_paths), added_paths, writers, is_recreated=not engine_fields)]


def foreign_drift(api: Api, selector: str, items: Iterable[Object]) -> Iterator[Drift]:
    """Drift by other managers than the engine's, told without the engine's state: objects that exist, and fields that
    another manager owns. A value that another client removed has no manager, and only the state tells it."""
    for object_drift in drift(api, selector, items):
        if object_drift.live is None:
            continue
        foreign_fields = _managed_fields(object_drift.live, None, by_engine=False)
        changed_paths = tuple(path for path in object_drift.changed_fields if _has_path(foreign_fields, path))
        if changed_paths or object_drift.added_fields:
            yield replace(object_drift, changed_fields=changed_paths)


def missing_objects(api: Api, selector: str, items: Iterable[Object]) -> list[Object]:
    """Those of the objects that no list with the selector has."""
    return [object_drift.item for object_drift in drift(api, selector, items) if object_drift.live is None]


def _is_clock_managed(item: Object) -> bool:
    return vocabulary.KEPT_BY_CLOCK in (item["metadata"].get("annotations") or {})


def _without_paths(tree: Mapping[str, Any], paths: Iterable[Sequence[str]]) -> dict[str, Any]:
    """A copy without what is at the paths, and without the parents of which nothing else is left."""
    copied = dict(tree)
    for key, *child_path in paths:
        if key not in copied:
            continue
        remaining = (
            {k: v for k, v in _without_paths(copied[key], [child_path]).items() if k != "."} if child_path else {}
        )
        if remaining:
            copied[key] = remaining
        else:
            del copied[key]
    return copied


def _has_path(tree: Node, path: Path) -> bool:
    for key in path:
        if key not in tree:
            return False
        tree = tree[key]
    return True


def _managed_but_different(item: Object, live: Object, engine_fields: Node) -> list[Path]:
    """Fields that the engine manages, and whose values differ from what it wrote, perhaps in form only."""
    paths = []
    for key, value in item.items():
        if key not in _UNCOMPARED_KEYS:
            leaves = _leaves(value, live.get(key), f"f:{key}", engine_fields, ())
            paths += [path for path in leaves if _value(live, path) != _value(item, path)]
    for metadata_field in ("labels", "annotations"):
        live_entries, planned = live["metadata"].get(metadata_field) or {}, item["metadata"].get(metadata_field) or {}
        if live_entries == planned:
            continue
        managed_keys = (engine_fields.get("f:metadata") or {}).get(f"f:{metadata_field}", {})
        for key, value in planned.items():
            if f"f:{key}" in managed_keys and live_entries.get(key) != value:
                paths.append(("f:metadata", f"f:{metadata_field}", f"f:{key}"))
    return paths


def _leaves(value: object, live: object, key: str, parent: Node, parent_path: Path) -> Iterator[Path]:
    """Paths of managed values that differ in the live object; equal subtrees are skipped. `live` is None in the items
    of a list."""
    node = parent.get(key)
    if node is None or (value == live and value is not None):
        return
    path = (*parent_path, key)
    if not node:
        yield path
    elif isinstance(value, dict):
        live_children = live if isinstance(live, dict) else {}
        for name, child in value.items():
            yield from _leaves(child, live_children.get(name), f"f:{name}", node, path)
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(entry, None, _key_of(entry, node), node, path)


def _confirmed_by_dry_run(
    api: Api, item: Object, live: Object, manager: str | None, candidate_paths: list[Path]
) -> list[Path]:
    """Fields that the engine's own write would change: the rest are other forms of the same values."""
    if not candidate_paths or manager is None:
        return candidate_paths
    path = f"{path_of(item)}?dryRun=All&fieldManager={manager}&force=true"
    answer = api.request("PATCH", path, item, content_type=APPLY)
    if not answer.ok:
        return candidate_paths
    return [path for path in candidate_paths if _value(answer.body, path) != _value(live, path)]


def is_engine_object(live: Object) -> bool:
    """Whether the engine wrote the object, by the names of its field managers, whatever its labels."""
    return any(True for _ in _entries(live, None, by_engine=True))


def revert_drift(api: Api, object_drift: Drift, manager: str) -> None:
    """Revert the object by the engine's write, under its manager's name; RevertFailed if the API server refuses.

    Added fields become the engine's first, so that one write removes them and restores the rest: a list that is
    corrected in part may be invalid to the API server.
    """
    if object_drift.live is None:
        return
    path = path_of(object_drift.item)
    if object_drift.added_fields:
        metadata = object_drift.live["metadata"]
        entries = _with_adopted_fields(metadata["managedFields"], object_drift, manager)
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        patch = [version, {"op": "replace", "path": "/metadata/managedFields", "value": entries}]
        _patch(api, path, patch, "application/json-patch+json")
    _patch(api, f"{path}?fieldManager={manager}&force=true", _manifest_to_write(object_drift, manager), APPLY)


def _manifest_to_write(object_drift: Drift, manager: str) -> Object:
    """The object as the engine writes it. A field that the clock writes too has its live value where the engine still
    manages it, because leaving it out would remove it; the others are left to the clock."""
    if object_drift.live is None or not _is_clock_managed(object_drift.item):
        return object_drift.item
    engine_fields, manifest = (
        _managed_fields(object_drift.live, manager, by_engine=True),
        _without_paths(object_drift.item, CLOCK_FIELDS),
    )
    for part, field in CLOCK_FIELDS:
        if _has_path(engine_fields, (f"f:{part}", f"f:{field}")):
            manifest[part] = {**manifest.get(part, {}), field: object_drift.live[part][field]}
    return manifest


def _patch(api: Api, path: str, body: object, content_type: str) -> None:
    answer = api.request("PATCH", path, body, content_type=content_type)
    if not answer.ok:
        raise RevertFailed(f"the write to {path.partition('?')[0]} was refused: {answer.status} {answer.message}")


def _with_adopted_fields(
    entries: Iterable[Mapping[str, Any]], object_drift: Drift, manager: str
) -> list[Mapping[str, Any]]:
    """The managed fields after the engine has become the manager of added ones."""
    engine_fields: dict[str, Any] = {}
    other_entries: list[Mapping[str, Any]] = []
    for entry in entries:
        fields = copy.deepcopy(entry.get("fieldsV1") or {})
        if entry.get("subresource"):
            other_entries.append(entry)
        elif (entry["manager"], entry["operation"]) == (manager, "Apply"):
            _merge(engine_fields, fields)
        else:
            for path in object_drift.added_fields:
                if removed_fields := _cut_path(fields, path):
                    _merge(engine_fields, removed_fields)
            if fields:
                other_entries.append({**entry, "fieldsV1": fields})
    engine_entry = {"manager": manager, "operation": "Apply", "apiVersion": object_drift.item["apiVersion"]}
    return [{**engine_entry, "fieldsType": "FieldsV1", "fieldsV1": engine_fields}, *other_entries]


def _cut_path(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """Cut the path out of the tree; return a tree of the path alone, empty if the tree lacks it."""
    key, child_path = path[0], path[1:]
    if key not in tree:
        return {}
    if not child_path:
        return {key: tree.pop(key)}
    removed_fields = _cut_path(tree[key], child_path)
    if not tree[key] or set(tree[key]) == {"."}:
        del tree[key]
    return {key: removed_fields} if removed_fields else {}


def _entries(live: Object, manager: str | None, *, by_engine: bool) -> Iterator[Mapping[str, Any]]:
    """Entries of the engine's manager, or of others; without `manager` the engine is recognised by its prefix."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("subresource"):
            continue
        writer, operation = entry["manager"], entry["operation"]
        is_engine = writer.startswith(ENGINE) if manager is None else (writer, operation) == (manager, "Apply")
        if is_engine is by_engine:
            yield entry


def _managed_fields(live: Object, manager: str | None, *, by_engine: bool) -> Node:
    parts = [entry.get("fieldsV1") or {} for entry in _entries(live, manager, by_engine=by_engine)]
    if len(parts) == 1:
        return parts[0]
    tree: dict[str, Any] = {}
    for part in parts:
        _merge(tree, part)
    return tree


def _merge(tree: dict[str, Any], other: Node) -> None:
    for key, children in other.items():
        _merge(tree.setdefault(key, {}), children)


_CONFUSABLE_PREFIXES = (ENGINE.partition("-")[0], vocabulary.PRODUCT, vocabulary.PREFIX.partition(".")[0])
"""Prefixes, in any case, of names that a reader may take for the engine's or this product's."""


def _writers(live: Object, manager: str | None, *, uses_engine_name: bool) -> str:
    """Other managers that wrote; if there is none, the client used the engine's name, or none.

    `uses_engine_name`: a changed field still has the engine as its manager, so its author wrote under the engine's
    name, or wrote the record of managers too.
    """
    entries = [*_entries(live, manager, by_engine=False)]
    names = {f"{escape_invisible(e['manager'])}{_imitation_note(e, manager)} at {e.get('time', '?')}" for e in entries}
    if uses_engine_name or not entries:
        names |= {
            f"a client under the engine's name {escape_invisible(e['manager'])} at {e.get('time', '?')}"
            for e in _entries(live, manager, by_engine=True)
        }
    return ", ".join(sorted(names)) or f"a client without a name at {live['metadata'].get('creationTimestamp', '?')}"


def _imitation_note(entry: Mapping[str, Any], manager: str | None) -> str:
    looks_like_engine = entry["manager"].casefold().startswith(_CONFUSABLE_PREFIXES) and entry["manager"] not in {
        vocabulary.CLOCK,
        manager,
    }
    return " (not the engine's)" if looks_like_engine and manager is not None else ""


# Fields that the engine manages


def _lost_fields(item: Object, engine_fields: Node) -> Iterator[Path]:
    for key, value in item.items():
        if key not in _UNCOMPARED_KEYS:
            yield from _lost_fields_below(value, f"f:{key}", engine_fields, ())
    for metadata_field in ("labels", "annotations"):
        for key in item["metadata"].get(metadata_field) or {}:
            if f"f:{key}" not in (engine_fields.get("f:metadata") or {}).get(f"f:{metadata_field}", {}):
                yield ("f:metadata", f"f:{metadata_field}", f"f:{key}")


def _lost_fields_below(value: object, key: str, parent: Node, parent_path: Path) -> Iterator[Path]:
    path = (*parent_path, key)
    if key not in parent:
        if not _is_empty(value):
            yield path
        return  # the API server records no manager of an empty value
    node = parent[key]
    if not node:
        return  # one value, or an atomic list or map
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _lost_fields_below(child, f"f:{name}", node, path)
    elif isinstance(value, list):
        for entry in value:
            yield from _lost_fields_below(entry, _key_of(entry, node), node, path)


def _key_of(item: object, node: Node) -> str:
    """The item's key in the list's node; a key that the node lacks if the item is not in it."""
    if not isinstance(item, Mapping):
        return f"v:{json.dumps(item)}"
    for key in node:
        if key.startswith("k:") and all(item.get(name) == value for name, value in json.loads(key[2:]).items()):
            return key
    return f"k:{json.dumps({'name': item.get('name')}, separators=(',', ':'))}"


# Fields that other managers added


def _added_fields(item: Object, engine_fields: Node, foreign_fields: Node) -> Iterator[Path]:
    for key, node in foreign_fields.items():
        name = key.removeprefix("f:")
        if name not in _UNCOMPARED_KEYS:
            yield from _added_fields_below(item.get(name), key, node, engine_fields, ())
    metadata, engine_metadata = foreign_fields.get("f:metadata") or {}, engine_fields.get("f:metadata") or {}
    # The garbage collector deletes an object whose owner is deleted.
    for key in metadata.get("f:ownerReferences") or {}:
        if key != ".":
            yield ("f:metadata", "f:ownerReferences", key)
    for metadata_field in ("labels", "annotations"):
        planned = item["metadata"].get(metadata_field) or {}
        for key in metadata.get(f"f:{metadata_field}") or {}:
            name = key.removeprefix("f:")
            is_platform_key = name.startswith(_PLATFORM_PREFIXES) and name != vocabulary.BEFORE_ADOPTION
            if is_platform_key and name not in planned and key not in engine_metadata.get(f"f:{metadata_field}", {}):
                yield ("f:metadata", f"f:{metadata_field}", key)


def _added_fields_below(value: object, key: str, node: Node, parent: Node, parent_path: Path) -> Iterator[Path]:
    """Paths of the node that other managers added. `value` is what the engine wrote there; None if nothing."""
    path = (*parent_path, key)
    if _is_empty(value) and key not in parent:
        yield path
        return
    if not node and key not in parent and not value:
        return  # the engine wrote false or zero, and values are compared
    for name, child in node.items():
        if name == ".":
            continue
        if isinstance(value, list):
            planned = next((v for v in value if _key_of(v, node) == name), None)
        else:
            planned = value.get(name.removeprefix("f:")) if isinstance(value, Mapping) else None
        yield from _added_fields_below(planned, name, child, parent.get(key) or {}, path)


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _value(tree: Any, path: Path) -> object:
    """The value at the path; None if there is none."""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f":
            tree = tree.get(name) if isinstance(tree, Mapping) else None
        elif kind == "k":
            item_keys = json.loads(name)
            tree = next((entry for entry in tree or () if all(entry.get(k) == v for k, v in item_keys.items())), None)
        else:
            tree = json.loads(name) if json.loads(name) in (tree or ()) else None
    return tree


def _format_path(path: Path) -> str:
    """The path as users write it, such as `spec.matchConditions[name=hole]`."""
    text = ""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f":
            text += f"[{json.dumps(name)}]" if "." in name or "/" in name else f".{name}" if text else name
        elif kind == "k":
            text += f"[{', '.join(f'{k}={v}' for k, v in json.loads(name).items())}]"
        else:
            text += f"[{name}]"
    return text
