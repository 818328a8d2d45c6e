"""Requests of a program for resources on AWS, as they were registered."""

from __future__ import annotations

from typing import Any

from aws_double_types import from_struct, plain

from tests.registered import Registered


def kind(request: Any) -> str:
    return request.type.rpartition(":")[2]


def on_aws(registered: Registered) -> dict[str, Any]:
    return {urn: request for urn, request in registered.requests.items() if request.type.startswith("aws:")}


def inputs(request: Any) -> dict[str, Any]:
    return plain(from_struct(request.object))


def inputs_of_kinds(registered: Registered, *kinds: str) -> dict[str, Any]:
    """Requests of some kinds by URN. There is one at least: a loop over none would show nothing."""
    inputs = if_any(registered, *kinds)
    assert inputs, f"none of {', '.join(kinds)} was registered"
    return inputs


def if_any(registered: Registered, *kinds: str) -> dict[str, Any]:
    """Requests of some kinds by URN; for a test of whether there are any."""
    return {urn: request for urn, request in on_aws(registered).items() if kind(request) in kinds}


def dependencies_of(registered: Registered, urn: str) -> set[str]:
    """URNs of all that stands before a resource is made, and until it is gone."""
    dependencies: set[str] = set()
    waiting = [urn]
    while waiting:
        request = registered.requests[waiting.pop()]
        new = {
            *request.dependencies,
            *([request.parent] if request.parent in registered.requests else []),
        } - dependencies
        dependencies |= new
        waiting += new
    return dependencies
