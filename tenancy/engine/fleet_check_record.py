"""Result of the last check of a whole fleet, as one record on the cluster: the next run requests what changed since,
and plans and compares only that.

It is next to the records of the stacks, where tenants have no access, and like them it only saves work: a lost one
costs the time of a whole check. One of another day or another program counts as lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog.days import today
from tenancy.engine.records import KIND, PATH, put
from tenancy.live.api import Api, ApiUnreachable

NAME = "checked"
SHORT = 32
"""Hexadecimal digits of a digest that are kept: a ConfigMap has room for 10,000 stacks."""


@dataclass(frozen=True, slots=True)
class FleetCheckRecord:
    """Stacks without drift, and what their plans were made from."""

    versions: Mapping[str, int] = field(default_factory=dict)
    """By a list's path: the resource version at which the stacks had no drift."""
    stacks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By a stack's name: the beginnings of the digests of what its plan is made from, and of its plan."""
    program: str = ""
    """Digest of the program that made the plans."""

    def of_program(self, program: str) -> FleetCheckRecord:
        """The record if it is of that program, else an empty one."""
        return self if self.program == program else FleetCheckRecord()

    def is_made_from(self, stack: str, inputs: str, plan: str) -> bool:
        """Whether these inputs made the stack's plan, all by their digests."""
        return self.stacks.get(stack) == (inputs[:SHORT], plan[:SHORT])

    def is_as_planned(self, stack: str, plan: str) -> bool:
        """Whether the stack had no drift from the plan of that digest."""
        return stack in self.stacks and self.stacks[stack][1] == plan[:SHORT]


def read(api: Api) -> FleetCheckRecord:
    """The record of a cluster; an empty one if it cannot be read, or is of another day."""
    answer = api.request("GET", f"{PATH}/{NAME}")
    data: Mapping[str, Any] = answer.body.get("data") or {} if answer.ok else {}
    try:
        if data["day"] != today().isoformat():
            return FleetCheckRecord()
        program = str(data["program"])
        versions = {str(path): int(version) for path, version in json.loads(data["versions"]).items()}
        stacks = {
            str(name): (str(inputs_digest), str(plan_digest))
            for name, (inputs_digest, plan_digest) in json.loads(data["stacks"]).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return FleetCheckRecord()
    return FleetCheckRecord(versions, stacks, program)


def write(api: Api, record: FleetCheckRecord) -> None:
    """Keep it for the next run, which without it checks everything: a refusal, or no answer, costs no more."""
    stacks = {name: [inputs[:SHORT], plan[:SHORT]] for name, (inputs, plan) in record.stacks.items()}
    data = {
        "day": today().isoformat(),
        "program": record.program,
        "versions": json.dumps(record.versions, separators=(",", ":")),
        "stacks": json.dumps(stacks, separators=(",", ":")),
    }
    with suppress(ApiUnreachable):
        put(api, NAME, {KIND: NAME}, data)
