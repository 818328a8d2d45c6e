"""The readable part of a file with mistakes, so that mistakes across files, and those behind the first, are shown in
the same run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from tenancy.schema.environment import Environment, undeclared
from tenancy.schema.messages import REQUIRED, explain
from tenancy.schema.mistakes import Mistake, broken
from tenancy.schema.source import Location
from tenancy.schema.tenant import Tenant

_ROUNDS = 6

_UNREAD = "unread"
_ENVIRONMENT: Mapping[str, Any] = {
    "environment": _UNREAD,
    "organisation": {"name": _UNREAD, "departments": {_UNREAD: {}}},
    "platform": {"group": "unread-platform"},
    "cluster": {"name": _UNREAD, "context": _UNREAD, "kubernetes": "1.36", "cni": "cilium"},
    "images": {"registries": [f"registry.{_UNREAD}.example/"], "sample": f"registry.{_UNREAD}.example/sample:1"},
    "tiers": {_UNREAD: {"priority": 1}},
}
"""Values for required fields of an environment that are missing or wrong; the CNI is the one that can do most."""

_SUPPLY = frozenset({"pool", "quota", "queue", "share", "mig", "iso", "price", "time", "sched", "node", "ver"})
_FOLLOWING: Mapping[str, frozenset[str]] = {
    "pools": _SUPPLY,
    "flavors": _SUPPLY | {"ref"},
    "tiers": _SUPPLY | {"ref"},
    "cluster": frozenset({"net", "ver", "eks", "aws", "node", "pool"}),
    "aws": frozenset({"aws", "stor", "id", "eks", "img", "net", "ref"}),
    "platform": frozenset({"net", "rbac", "ns", "ref"}),
    "queues": frozenset({"time", "queue", "share"}),
    "images": frozenset({"img"}),
    "prices": frozenset({"price", "time"}),
    "sandbox": frozenset({"iso", "ref"}),
    "virtual-clusters": frozenset({"iso", "ref"}),
}
"""Section of an environment -> families of rules that may be broken because something of it could not be read."""

_DERIVED: Mapping[Location, Location] = {("aws", "zones"): ("aws", "network", "subnets")}
"""Field -> the field whose value it has where it is absent."""


class ReadableEnvironment(NamedTuple):
    """What can be read of an environment's file with mistakes."""

    model: Environment
    further: tuple[Mistake, ...]
    """Mistakes that the first ones hid."""
    dropped: frozenset[Location]

    def follows(self, mistake: Mistake) -> bool:
        """Whether a mistake may be there only because something of the environment could not be read."""
        if any(name in mistake.given for name in (_UNREAD, *_names(self.dropped))):
            return True
        family = mistake.id.partition("-")[0]
        return any(family in _FOLLOWING.get(str(where[0]), {"ref"}) for where in self.dropped if where)


def salvage_environment(document: dict[str, Any]) -> ReadableEnvironment | None:
    """The environment without the mistakes of its file; None if too little is left."""
    rest = copy.deepcopy(document)
    dropped: set[Location] = set()
    further: list[Mistake] = []
    for number in range(_ROUNDS):
        try:
            model = Environment.from_file(rest)
        except ValidationError as error:
            for mistake, _ in explain(Environment, error):
                if number and not _is_known(mistake, dropped):
                    further.append(mistake)
                dropped.add(_replaced(rest, mistake.where))
            for key, value in _ENVIRONMENT.items():
                rest.setdefault(key, copy.deepcopy(value))
        else:
            found = ReadableEnvironment(model, (), frozenset(dropped))
            return found._replace(further=tuple(one for one in further if not found.follows(one)))
    return None


def _is_known(mistake: Mistake, dropped: set[Location]) -> bool:
    """Whether a mistake lies in, or is about, what was dropped before it was found."""
    where = mistake.where
    same = any(where[: len(one)] == one or one[: len(where)] == where for one in dropped)
    same = same or (where in _DERIVED and any(one[:3] == _DERIVED[where] for one in dropped))
    # Under the name that was refused: without it, the required one is missing.
    same = same or (mistake.rule.endswith(REQUIRED) and any(where[:-1] == one[:-1] for one in dropped))
    return same or any(name in mistake.given for name in (_UNREAD, *_names(dropped)))


def _names(dropped: set[Location] | frozenset[Location]) -> Iterator[str]:
    """Names that authors chose among the dropped entries, such as a pool's."""
    sections = (*_FOLLOWING, "organisation")
    return (str(where[1]) for where in dropped if len(where) > 1 and where[0] in sections)


def _replaced(document: dict[str, Any], where: Location) -> Location:
    """Drop the field of a mistake, or write a value where one is required; the location that was changed."""
    depth = next((i for i, part in enumerate(where) if isinstance(part, int)), len(where))
    path = where[:depth]
    if not path:
        return ()
    node: Any = document
    filler: Any = _ENVIRONMENT
    for part in path[:-1]:
        node = node.get(part) if isinstance(node, dict) else None
        filler = filler.get(part) if isinstance(filler, Mapping) else None
    value = filler.get(path[-1]) if isinstance(filler, Mapping) else None
    if isinstance(node, dict) and value is not None:
        node[path[-1]] = copy.deepcopy(value)
    elif isinstance(node, dict) and path[-1] in node:
        del node[path[-1]]
    else:  # a required field of an entry: without it the entry is not one
        return _replaced(document, path[:-1])
    return path


def salvage(document: dict[str, Any], environment: Environment) -> tuple[Tenant, tuple[Mistake, ...]] | None:
    """The tenant without the mistakes of its file, and mistakes that these hid; None if too little is left.

    Missing fields get values that break no rule across files. No entry is moved, so places in the result are places
    in the file.
    """
    rest = copy.deepcopy(document)
    for _ in range(_ROUNDS):
        try:
            model = Tenant.from_file(rest)
        except ValidationError as error:
            for mistake, _ in explain(Tenant, error):
                _drop(rest, mistake.where)
        else:
            return model, tuple(_hidden(document, rest, environment))
        for key, value in _fillers(environment).items():
            rest.setdefault(key, value)
    return None


def _hidden(document: dict[str, Any], rest: dict[str, Any], environment: Environment) -> Iterator[Mistake]:
    """Mistakes in what was dropped that need no other part of the file."""
    shares = document.get("gpus")
    if isinstance(shares, dict) and "gpus" not in rest:
        for flavor in shares:
            if isinstance(flavor, str) and environment.flavors and flavor not in environment.flavors:
                yield undeclared(("gpus", flavor), "flavor", flavor, environment.flavors)
    if document.get("windows") and "windows" not in rest and not environment.clocked:
        state = "queues.clock: false" if environment.queued else "queues.scheduler: none"
        yield broken(("windows",), "time-01", f"windows with {state}")


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
