"""All tenants' stacks of a large fleet, digested and compared with the cluster: by this process and a helper process.

Plans, their digests and the comparison keep a processor busy for seconds. The helper process has read the same
files, makes the same plans, and takes half of the stacks.
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

from tenancy.engine.digests import plan_digests
from tenancy.lab.layout import LabError, enter_lab, find_root
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.background import in_background
from tenancy.live.fleet_drift import BATCH, FleetDrift, drift_by_lists
from tenancy.planning import make_plan
from tenancy.planning.model import Plan
from tenancy.planning.scope import Stack
from tenancy.validation import Loaded


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """Plan digests and drift of tenants' stacks."""

    plans: dict[str, str] = field(default_factory=dict)
    """Digests of their plans, by the stacks' names."""
    drift: FleetDrift = field(default_factory=FleetDrift)

    def add(self, part: FleetComparison) -> None:
        """Add the result for other stacks."""
        self.plans.update(part.plans)
        self.drift.add(part.drift)


class HelperProcess:
    """The helper process, which runs `serve_comparisons`."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def ask(self, stacks: Sequence[Stack]) -> FleetComparison | None:
        """Its result; None if it has ended, for any reason: this process then computes the same, or fails for that
        reason."""
        try:
            self._connection.send(stacks)
            comparison: FleetComparison = self._connection.recv()
        except (EOFError, OSError):
            return None
        return comparison

    def end(self) -> None:
        """End it, which frees its memory."""
        self._connection.close()


def serve_comparisons(connection: Connection[Any, Any], loaded: Loaded, folder: Path) -> None:
    """Answer `HelperProcess` until its end of the connection is closed. `folder` is the environment's."""
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


def check(api: Api, loaded: Loaded, plan: Plan, stacks: Sequence[Stack]) -> FleetComparison:
    """Digest the plans of these tenants' stacks, and compare them with the cluster."""
    return FleetComparison(
        plan_digests(loaded, plan, stacks), drift_by_lists(api, plan, [tenant for *_, tenant in stacks if tenant])
    )


def check_all(
    api: Api, loaded: Loaded, plan: Plan, stacks: Sequence[Stack], helper: HelperProcess | None
) -> FleetComparison:
    """As `check`, with the helper process if there is one."""
    pending = deque(stacks[start : start + BATCH] for start in range(0, len(stacks), BATCH))
    compare_here = partial(check, api, loaded, plan)
    helper_result = in_background(_work_off, pending, pending.pop, helper.ask) if helper else None
    comparison = _work_off(pending, pending.popleft, compare_here)
    if helper_result:
        comparison.add(helper_result.result())
        comparison.add(_work_off(pending, pending.popleft, compare_here))  # what was asked beside and not answered
    return comparison


def _work_off(
    pending: deque[Sequence[Stack]],
    take: Callable[[], Sequence[Stack]],
    ask: Callable[[Sequence[Stack]], FleetComparison | None],
) -> FleetComparison:
    """Results of `ask` for one part of `pending` after another, until none is left or one is not answered."""
    comparison = FleetComparison()
    while True:
        try:
            part = take()
        except IndexError:
            return comparison
        part_comparison = ask(part)
        if part_comparison is None:
            pending.append(part)
            return comparison
        comparison.add(part_comparison)
