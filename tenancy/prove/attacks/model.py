"""What an attack is: a request that must be refused, and its twin that must not be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from tenancy.live.api import Impersonation

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
"""Marks a field that a document lacks."""


@dataclass(frozen=True, slots=True)
class Request:
    """One API request and the identity that sends it. Default of `who`: the kubeconfig's own user, the platform."""

    method: str
    path: str
    body: Any = None
    who: Impersonation | None = None
    content_type: str = "application/json"

    def as_data(self) -> dict[str, Any]:
        """Plain data for comparisons; the identity is one field and the path another."""
        who = {"user": self.who.user, "groups": list(self.who.groups)} if self.who else None
        return {
            "who": json.dumps(who),
            "method": self.method,
            "path": self.path,
            "content_type": self.content_type,
            "body": self.body,
        }


@dataclass(frozen=True, slots=True)
class Attack:
    """`rule` is what the attack proves: a rule's id, or the control itself (RBAC, quota) where it has no rules."""

    id: str
    rule: str
    attack: str
    expected_denier: str
    request: Request
    twin: Request
    twin_missing: bool = False
    """The twin names an object that does not exist: a 404 comes after authorization and admission."""
    skipped: str = ""
    """Why the attack does not apply to this environment; empty if it does."""


NOTHING = Request("GET", "/version")


def skipped(id: str, rule: str, attack: str, reason: str) -> Attack:
    """An attack that does not apply to this environment, with the reason."""
    return Attack(id, rule, attack, "", NOTHING, NOTHING, skipped=reason)


def _keys(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def value_at(document: Any, pointer: str) -> Any:
    """The value at the JSON pointer of a JSON document; KeyError or IndexError if there is none."""
    for key in _keys(pointer):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def put(document: Any, pointer: str, value: Any) -> Any:
    """A copy of a JSON document with `value` at the JSON pointer, or without it if the value is ABSENT.

    The copy shares every other value with the original: requests of attacks are never modified in place.
    """
    return _put(document, _keys(pointer), value)


def _put(document: Any, keys: Sequence[str], value: Any) -> Any:
    key, *deeper = keys
    if isinstance(document, list):
        at = int(key)
        wanted = [_put(document[at], deeper, value)] if deeper else [] if value is ABSENT else [value]
        return [*document[:at], *wanted, *document[at + 1 :]]
    made = dict(document)
    if deeper:
        made[key] = _put(made.get(key, {}), deeper, value)
    elif value is ABSENT:
        made.pop(key, None)
    else:
        made[key] = value
    return made


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """JSON pointers of the fields in which two documents differ; a field that one lacks is one difference."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = []
        for key in sorted({*one, *other}):
            where = f"{at}/{escaped(key)}"
            found += differences(one[key], other[key], where) if key in one and key in other else [where]
        return found
    if isinstance(one, list) and isinstance(other, list):
        shared = [differences(a, b, f"{at}/{n}") for n, (a, b) in enumerate(zip(one, other, strict=False))]
        length = range(min(len(one), len(other)), max(len(one), len(other)))
        return [pointer for part in shared for pointer in part] + [f"{at}/{n}" for n in length]
    return [] if one == other and type(one) is type(other) else [at]


def attack(
    id: str,
    rule: str,
    sentence: str,
    denier: str,
    request: Request,
    *,
    twin_who: Impersonation | _Absent | None = ABSENT,
    twin_path: str | None = None,
    twin_body: Any = ABSENT,
    twin_missing: bool = False,
) -> Attack:
    """An attack whose twin differs from it in one thing: the identity, the path or the body."""
    twin = request
    if not isinstance(twin_who, _Absent):
        twin = replace(twin, who=twin_who)
    if twin_path is not None:
        twin = replace(twin, path=twin_path)
    if twin_body is not ABSENT:
        twin = replace(twin, body=twin_body)
    return Attack(id, rule, sentence, denier, request, twin, twin_missing)


def core(namespace: str, *rest: str) -> str:
    """Path of something in a namespace's core group."""
    return "/".join([f"/api/v1/namespaces/{quote(namespace)}", *rest])


def group(api_version: str, namespace: str | None, *rest: str) -> str:
    """Path of something in a named API group."""
    scope = [f"namespaces/{quote(namespace)}"] if namespace else []
    return "/".join([f"/apis/{api_version}", *scope, *rest])


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_NEEDED = ("id", "expected_denier", "path", "twin")


def from_entries(entries: Sequence[Any]) -> Iterator[Attack]:
    """Attacks from a user's file; a field that the twin leaves out is that of the attack.

    ValueError names the entry, what was given in it, and what to change.
    """
    if not entries:
        raise ValueError("given an empty list; change: write an attack")
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        where = f"entry {number}"
        if not isinstance(entry, Mapping):
            raise ValueError(f"given {where}, which is no mapping; change: write id, attack, as, method, path")
        if lacking := [key for key in _NEEDED if key not in entry]:
            raise ValueError(f"given {where} without {', '.join(lacking)}; change: add it")
        id, twin = str(entry["id"]), entry["twin"]
        if not isinstance(twin, Mapping):
            raise ValueError(f"given {where}: twin {twin!r}; change: a mapping of what differs, or {{}}")
        if id in seen:
            raise ValueError(f"given {where}: id {id!r}, which an entry before has; change: write another")
        seen.add(id)
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
