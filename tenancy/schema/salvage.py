"""The readable part of a tenant's file with mistakes, so that mistakes across files are shown in the same run."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import ValidationError

from tenancy.schema.environment import Environment
from tenancy.schema.messages import explain
from tenancy.schema.source import Location
from tenancy.schema.tenant import Tenant

_ROUNDS = 5


def salvage(document: dict[str, Any], environment: Environment) -> Tenant | None:
    """The tenant without the mistakes of its file; None if too little is left.

    Missing fields get values that break no rule across files. No entry is moved, so places in the result are places
    in the file.
    """
    rest = copy.deepcopy(document)
    for _ in range(_ROUNDS):
        try:
            return Tenant.from_file(rest)
        except ValidationError as error:
            for mistake, _ in explain(Tenant, error):
                _drop(rest, mistake.where)
        for key, value in _fillers(environment).items():
            rest.setdefault(key, value)
    return None


def _fillers(environment: Environment) -> dict[str, Any]:
    return {
        "tenant": "unread",
        "team": "unread",
        "owner": {"name": "unread", "mail": "unread@bank.example"},
        "department": next(iter(environment.organisation.departments)),
        "cost-center": "unread",
        "tier": next(iter(environment.tiers)),
    }


def _drop(document: dict[str, Any], where: Location) -> None:
    if not where:
        return
    # A mistake in a list drops the whole field: without one entry the others would have other places.
    depth = next((i for i, part in enumerate(where) if isinstance(part, int)), len(where))
    *path, last = where[:depth]
    node: Any = document
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict) and last in node:
        del node[last]
    else:
        _drop(document, tuple(path))
    if where[0] == "ci":
        # Without one of its fields it would be another pipeline.
        document.pop("ci", None)
    if where[0] in {"namespaces", "tier"}:
        # The pools that admit a share depend on the tiers of the namespaces.
        document.pop("gpus", None)
