"""The readable part of a file with mistakes, so that mistakes across files, and those behind the first, are shown in
the same run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from tenancy.spec.checks.environment_checks import undeclared_name
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.messages import REQUIRED, located_mistakes
from tenancy.spec.reading.mistakes import Mistake, rule_mistake
from tenancy.spec.reading.source import Location

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

_FOLLOWING_SECTIONS: Mapping[str, frozenset[str]] = {
    "aws": frozenset({"cluster", "metrics", "services"}),
    "cluster": frozenset({"metrics", "services"}),
}
"""Section of an environment -> sections that ask it whether a cluster is built: their mistakes have no rule's id."""

_DERIVED: Mapping[Location, Location] = {("aws", "zones"): ("aws", "network", "subnets")}
"""Field -> the field whose value it has where it is absent."""


class ReadableEnvironment(NamedTuple):
    """Readable part of an environment's file with mistakes."""

    model: Environment
    further: tuple[Mistake, ...]
    """Mistakes that the first ones hid."""
    dropped: frozenset[Location]

    def may_follow_from_dropped(self, mistake: Mistake) -> bool:
        """Whether a mistake may be there only because something of the environment could not be read."""
        if any(name in mistake.given for name in (_UNREAD, *_names(self.dropped))):
            return True
        sections = {str(location[0]) for location in self.dropped if location}
        if not mistake.id and any(str(mistake.location[0]) in _FOLLOWING_SECTIONS.get(s, ()) for s in sections):
            return True
        family = mistake.id.partition("-")[0]
        return any(family in _FOLLOWING.get(section, {"ref"}) for section in sections)


def salvage_environment(document: dict[str, Any]) -> ReadableEnvironment | None:
    """The environment without the mistakes of its file; None if too little is left."""
    remaining = copy.deepcopy(document)
    dropped: set[Location] = set()
    further: list[Mistake] = []
    for number in range(_ROUNDS):
        try:
            model = Environment.from_file(remaining)
        except ValidationError as error:
            for mistake, _ in located_mistakes(Environment, error):
                if number and not _is_known(mistake, dropped):
                    further.append(mistake)
                dropped.add(_drop_or_fill(remaining, mistake.location))
            for key, value in _ENVIRONMENT.items():
                remaining.setdefault(key, copy.deepcopy(value))
        else:
            readable = ReadableEnvironment(model, (), frozenset(dropped))
            return readable._replace(
                further=tuple(
                    mistake_in_rest
                    for mistake_in_rest in further
                    if not readable.may_follow_from_dropped(mistake_in_rest)
                )
            )
    return None


def _is_known(mistake: Mistake, dropped: set[Location]) -> bool:
    """Whether a mistake lies in, or is about, what was dropped before it was found."""
    location = mistake.location
    is_known = any(
        location[: len(dropped_location)] == dropped_location or dropped_location[: len(location)] == location
        for dropped_location in dropped
    )
    is_known = is_known or (location in _DERIVED and any(one[:3] == _DERIVED[location] for one in dropped))
    # Under the name that was refused: without it, the required one is missing.
    is_known = is_known or (mistake.rule.endswith(REQUIRED) and any(location[:-1] == one[:-1] for one in dropped))
    return is_known or any(name in mistake.given for name in (_UNREAD, *_names(dropped)))


def _names(dropped: set[Location] | frozenset[Location]) -> Iterator[str]:
    """Names that authors chose among the dropped entries, such as a pool's."""
    sections = (*_FOLLOWING, "organisation")
    return (str(location[1]) for location in dropped if len(location) > 1 and location[0] in sections)


def _drop_or_fill(document: dict[str, Any], location: Location) -> Location:
    """Drop the field of a mistake, or write a value where one is required; the location that was changed."""
    depth = next((i for i, part in enumerate(location) if isinstance(part, int)), len(location))
    path = location[:depth]
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
        return _drop_or_fill(document, path[:-1])
    return path


def salvage(document: dict[str, Any], environment: Environment) -> tuple[Tenant, tuple[Mistake, ...]] | None:
    """The tenant without the mistakes of its file, and mistakes that these hid; None if too little is left.

    Missing fields get values that break no rule across files. No entry is moved, so places in the result are places
    in the file.
    """
    remaining = copy.deepcopy(document)
    for _ in range(_ROUNDS):
        try:
            model = Tenant.from_file(remaining)
        except ValidationError as error:
            for mistake, _ in located_mistakes(Tenant, error):
                _drop(remaining, mistake.location)
        else:
            return model, tuple(_hidden(document, remaining, environment))
        for key, value in _fillers(environment).items():
            remaining.setdefault(key, value)
    return None


def _hidden(document: dict[str, Any], remaining: dict[str, Any], environment: Environment) -> Iterator[Mistake]:
    """Mistakes in what was dropped that need no other part of the file."""
    shares = document.get("gpus")
    if isinstance(shares, dict) and "gpus" not in remaining:
        for flavor in shares:
            if isinstance(flavor, str) and environment.flavors and flavor not in environment.flavors:
                yield undeclared_name(("gpus", flavor), "flavor", flavor, environment.flavors)
    if document.get("gpu-windows") and "gpu-windows" not in remaining and not environment.has_clock:
        state = "queues.clock: false" if environment.has_queues else "queues.scheduler: none"
        yield rule_mistake(("gpu-windows",), "time-01", f"gpu-windows with {state}")


def _fillers(environment: Environment) -> dict[str, Any]:
    return {
        "tenant": "unread",
        "team": "unread",
        "owner": {"name": "unread", "mail": "unread@bank.example"},
        "department": next(iter(environment.organisation.departments)),
        "cost-center": "unread",
        "tier": next(iter(environment.tiers)),
    }


def _drop(document: dict[str, Any], location: Location) -> None:
    if not location:
        return
    # A mistake in a list drops the whole field: without one entry the others would have other places.
    depth = next((i for i, part in enumerate(location) if isinstance(part, int)), len(location))
    *path, last = location[:depth]
    node: Any = document
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict) and last in node:
        del node[last]
    else:
        _drop(document, tuple(path))
    if location[0] == "ci":
        # Without one of its fields it would be another pipeline.
        document.pop("ci", None)
    if location[0] in {"namespaces", "tier"}:
        # The pools that admit a share depend on the tiers of the namespaces.
        document.pop("gpus", None)
