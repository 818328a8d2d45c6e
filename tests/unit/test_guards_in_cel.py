"""Each guard's expression, evaluated by CEL's own runtime, refuses the attacks on its rule and not their twins.

The API server is the judge of all guards together (`tests/attacks`); here each rule of each environment is judged by
itself, in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.planning.guards import guards
from tenancy.planning.guards.model import Guard, NamespaceScope
from tenancy.prove.attacks import Attack, Request
from tenancy.rules.catalogue import Face, with_face
from tests import cel_runtime as cel
from tests.attack_worlds import WORLDS, creations, manifest, world_of

COMPLETED = {
    "net-11-": "managedFields say who chose an address, and the API server writes them",
    "gpu-04-secret-text": "stringData becomes data",
    "gpu-08-resourceclaim": "a claim's count has a default",
    "kueue-01-": "Kueue's webhook writes the queue's label on work without one",
    "kueue-04-": "Kueue's webhook suspends new work",
}
"""Attacks, by how their names begin, whose requests the API server and its webhooks complete before guards see them."""
_PATH = re.compile(
    r"/apis?(?:/(?P<group>[a-z0-9.-]+))?/v\w+(?:/namespaces/(?P<space>[^/?]+))?/(?P<resource>\w+)"
    r"(?:/(?P<name>[^/?]+)/(?P<part>\w+))?"
)


@cache
def _spaces(world: str) -> dict[str, Object]:
    items = make_plan(*world_of(world)).objects()
    return {item["metadata"]["name"]: item for item in items if item["kind"] == "Namespace"}


@cache
def _guards(world: str) -> tuple[Guard, ...]:
    return tuple(guards(world_of(world)[0]))


def _asked(world: str, rule: str, request: Request) -> Iterator[tuple[Guard, dict[str, Any]]]:
    """The guards with a rule that the API server asks about a creation, and what it tells them."""
    found = _PATH.match(request.path)
    assert found, request.path
    group, space, part = found["group"] or "", found["space"], found["part"] or ""
    resource = f"{found['resource']}/{part}" if part else found["resource"]
    platform = world_of(world)[0].platform
    groups = list(request.who.groups) if request.who else [platform.group]
    named = {"group": group, "resource": found["resource"]}
    user = {"username": request.who.user if request.who else "platform", "groups": groups}
    data = {
        "object": manifest(request.path, request.body),
        "request": {
            "operation": "CREATE",
            "resource": named,
            "subResource": part,
            "name": found["name"] or "x",
            "namespace": space,
            "userInfo": user,
        },
        "oldObject": None,
        "namespaceObject": _spaces(world).get(space, {"metadata": {"name": space, "labels": {}}}),
    }
    unmanaged = space in platform.unmanaged
    for guard in _guards(world):
        there = guard.spaces is NamespaceScope.ALL or (guard.spaces is NamespaceScope.UNMANAGED) == unmanaged
        served = any(of == group and resource in resources for of, _, resources in guard.resources)
        if rule in guard.rules and served and there and "CREATE" in guard.operations:
            yield guard, data


def refused(world: str, rule: str, request: Request) -> bool:
    return any(cel.refuses(guard, rule, data) for guard, data in _asked(world, rule, request))


def _attacks(world: str) -> dict[str, list[Attack]]:
    found: dict[str, list[Attack]] = {}
    for one in creations(world):
        if one.rule in with_face(Face.API_SERVER) and not one.id.startswith(tuple(COMPLETED)):
            found.setdefault(one.rule, []).append(one)
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_the_expression_of_a_guard_refuses_every_attack_and_no_twin(world: str) -> None:
    attacks = _attacks(world)
    assert len(attacks) > 25
    wrong = {
        one.id: answers
        for rule, asked in attacks.items()
        for one in asked
        if (answers := (refused(world, rule, one.request), refused(world, rule, one.twin))) != (True, False)
    }
    assert wrong == {}, "attacks and twins that are refused, or not, against what they are"


def test_every_expression_of_every_environment_is_one_that_cel_compiles() -> None:
    texts = {
        text
        for world in WORLDS
        for guard in _guards(world)
        for text in (*guard.rules.values(), *guard.variables.values(), *guard.conditions.values())
    }
    assert len(texts) > 200
    for text in texts:
        cel.compiled(text)


def test_an_expression_that_allows_all_would_be_found() -> None:
    rule = "net-01"
    one = next(one for one in creations("local") if one.rule == rule)
    ((guard, data),) = _asked("local", rule, one.request)
    assert cel.refuses(guard, rule, data)
    assert not cel.refuses(replace(guard, rules={rule: "true"}), rule, data)
    assert not cel.refuses(replace(guard, conditions={"never": "false"}), rule, data)
