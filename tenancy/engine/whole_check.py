"""All tenants' stacks of a large fleet, digested and compared with the cluster: by this process and by one beside it.

Plans, their digests and the comparison keep a processor busy for seconds. The process beside has read the same files,
makes the same plans, and takes half of the stacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tenancy.engine.digests import of_plans
from tenancy.lab.layout import LabError, enter_lab, find_root
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.background import in_background
from tenancy.live.fleet_drift import BATCH, FleetDrift, compared
from tenancy.planning import make_plan
from tenancy.planning.model import Plan
from tenancy.planning.scope import Stack
from tenancy.validation import Loaded


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of tenants' stacks."""

    plans: dict[str, str] = field(default_factory=dict)
    """Digests of their plans, by the stacks' names."""
    drift: FleetDrift = field(default_factory=FleetDrift)

    def add(self, part: Found) -> None:
        """Take in what is known of others."""
        self.plans.update(part.plans)
        self.drift.add(part.drift)


class Beside:
    """The process beside this one, which runs `answer`."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def ask(self, stacks: Sequence[Stack]) -> Found | None:
        """What it finds; None if it has ended, for whatever reason: this process finds the same, or the reason."""
        try:
            self._connection.send(stacks)
            found: Found = self._connection.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> None:
        """End it, which frees its memory."""
        self._connection.close()


def answer(connection: Connection[Any, Any], loaded: Loaded, folder: Path) -> None:
    """Answer `Beside` until its end of the connection is closed. `folder` is the environment's."""
    api = None
    # What is not answered the command does by itself, and has the message.
    with suppress(EOFError, OSError, ApiUnreachable, LabError):
        while True:
            stacks: Sequence[Stack] = connection.recv()
            if api is None:
                plan = make_plan(loaded.environment, loaded.tenants, eager=False)
                enter_lab(plan.context, find_root(folder.resolve()))
                api = Api(plan.context)
            connection.send(check(api, loaded, plan, stacks))


def check(api: Api, loaded: Loaded, plan: Plan, stacks: Sequence[Stack]) -> Found:
    """Digest the plans of these tenants' stacks, and compare them with the cluster."""
    return Found(of_plans(loaded, plan, stacks), compared(api, plan, [tenant for *_, tenant in stacks if tenant]))


def check_all(api: Api, loaded: Loaded, plan: Plan, stacks: Sequence[Stack], beside: Beside | None) -> Found:
    """As `check`, with the process beside if there is one."""
    left = deque(stacks[start : start + BATCH] for start in range(0, len(stacks), BATCH))
    own = partial(check, api, loaded, plan)
    theirs = in_background(_work_off, left, left.pop, beside.ask) if beside else None
    found = _work_off(left, left.popleft, own)
    if theirs:
        found.add(theirs.result())
        found.add(_work_off(left, left.popleft, own))  # what was asked beside and not answered
    return found


def _work_off(
    left: deque[Sequence[Stack]],
    take: Callable[[], Sequence[Stack]],
    ask: Callable[[Sequence[Stack]], Found | None],
) -> Found:
    """What `ask` finds, of one part of `left` after another, until none is left or one is not answered."""
    found = Found()
    while True:
        try:
            part = take()
        except IndexError:
            return found
        answered = ask(part)
        if answered is None:
            left.append(part)
            return found
        found.add(answered)
