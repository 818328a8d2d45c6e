"""Attacks from a user's file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenancy.kube.requests import JSON_PATCH, MERGE, Impersonation
from tenancy.rules.attacks import Attack, Request

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_NEEDED = ("id", "expected_denier", "path", "twin")


def from_entries(entries: Sequence[Any]) -> Iterator[Attack]:
    """Attacks from a user's file; a field that the twin leaves out is that of the attack.

    ValueError names the entry, what was given in it, and what to change.
    """
    if not entries:
        raise ValueError("given an empty list; change: write an attack")
    seen_ids: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        where = f"entry {number}"
        if not isinstance(entry, Mapping):
            raise ValueError(f"given {where}, which is no mapping; change: write id, attack, as, method, path")
        if missing_keys := [key for key in _NEEDED if key not in entry]:
            raise ValueError(f"given {where} without {', '.join(missing_keys)}; change: add it")
        id, twin = str(entry["id"]), entry["twin"]
        if not isinstance(twin, Mapping):
            raise ValueError(f"given {where}: twin {twin!r}; change: a mapping of what differs, or {{}}")
        if id in seen_ids:
            raise ValueError(f"given {where}: id {id!r}, which an entry before has; change: write another")
        seen_ids.add(id)
        yield Attack(
            id,
            str(entry.get("rule", "")),
            str(entry.get("attack", id)),
            str(entry["expected_denier"]),
            _request(entry, where),
            _request({**entry, **twin}, f"{where}, twin"),
        )


def _request(entry: Mapping[str, Any], where: str) -> Request:
    method, path, body = str(entry.get("method", "GET")).upper(), str(entry["path"]), entry.get("body")
    if method not in METHODS:
        raise ValueError(f"given {where}: method {method!r}; change: use one of {', '.join(METHODS)}")
    if not path.startswith("/"):
        raise ValueError(f"given {where}: path {path!r}; change: begin it with /api or /apis")
    try:
        json.dumps(body)
    except TypeError as error:
        raise ValueError(f"given {where}: a body that is no JSON ({error}); change: put quotes around it") from error
    plain = JSON_PATCH if isinstance(body, list) else MERGE
    kind = entry.get("content-type", plain if method == "PATCH" else "application/json")
    return Request(method, path, body, _identity(entry.get("as"), where), str(kind))


def _identity(who: Any, where: str) -> Impersonation | None:
    """The identity to impersonate; None, the kubeconfig's own user, if the entry names none."""
    if who is None:
        return None
    groups = who.get("groups") or [] if isinstance(who, Mapping) else None
    if not (isinstance(who, Mapping) and isinstance(who.get("user"), str) and isinstance(groups, list)):
        raise ValueError(f"given {where}: as {who!r}; change: write {{user: <name>, groups: [<name>]}}")
    return Impersonation(who["user"], tuple(map(str, groups)))
