"""The model of an attack: a request that must be refused, and its twin that must not be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.kube.requests import Impersonation


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


def keys_of(pointer: str) -> list[str]:
    """The keys of a JSON pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def value_at(document: Any, pointer: str) -> Any:
    """The value at the JSON pointer of a JSON document; KeyError or IndexError if there is none."""
    for key in keys_of(pointer):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def put(document: Any, pointer: str, value: Any) -> Any:
    """A copy of a JSON document with `value` at the JSON pointer, or without it if the value is ABSENT.

    The copy shares every other value with the original: requests of attacks are never modified in place.
    """
    return _put(document, keys_of(pointer), value)


def _put(document: Any, keys: Sequence[str], value: Any) -> Any:
    key, *deeper = keys
    if isinstance(document, list):
        at = int(key)
        items = [_put(document[at], deeper, value)] if deeper else [] if value is ABSENT else [value]
        return [*document[:at], *items, *document[at + 1 :]]
    mapping = dict(document)
    if deeper:
        mapping[key] = _put(mapping.get(key, {}), deeper, value)
    elif value is ABSENT:
        mapping.pop(key, None)
    else:
        mapping[key] = value
    return mapping


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def differences(first: Any, second: Any, at: str = "") -> list[str]:
    """JSON pointers of the fields in which two documents differ; a field that one lacks is one difference."""
    if isinstance(first, dict) and isinstance(second, dict):
        pointers = []
        for key in sorted({*first, *second}):
            where = f"{at}/{escaped(key)}"
            pointers += differences(first[key], second[key], where) if key in first and key in second else [where]
        return pointers
    if isinstance(first, list) and isinstance(second, list):
        nested_pointers = [differences(a, b, f"{at}/{n}") for n, (a, b) in enumerate(zip(first, second, strict=False))]
        length = range(min(len(first), len(second)), max(len(first), len(second)))
        return [pointer for part in nested_pointers for pointer in part] + [f"{at}/{n}" for n in length]
    return [] if first == second and type(first) is type(second) else [at]


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
