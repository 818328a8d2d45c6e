"""One stack at a time through the engine, by Pulumi's Automation API."""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy.engine.changes import Outcome, summary
from tenancy.engine.recovery import Locked, dead_locks, settle
from tenancy.live.api import Api

PROJECT = "gpu-tenancy"
PACK = "policy"


class Failed(Exception):
    """A run ended without doing what it should; the message says why."""


@dataclass(frozen=True, slots=True)
class Driver:
    root: Path
    """The project's folder."""
    api: Api
    say: Callable[[str], None]

    def select(self, name: str) -> Any:
        """The stack, made if it is not there, and freed of what a dead engine left."""
        from pulumi import automation

        try:
            stack = automation.create_or_select_stack(name, work_dir=str(self.root))
        except automation.CommandError as error:
            raise Failed(f"stack {name}: {_reason(error)}") from error
        try:
            locks = dead_locks(os.environ.get("PULUMI_BACKEND_URL", ""), PROJECT, name)
        except Locked as error:
            raise Failed(str(error)) from error
        if locks:
            self.say(f"{name}: taking over the lock of an engine that has died")
            stack.cancel()
        deployment = stack.export_stack().deployment or {}
        count = settle(deployment, self.api, lambda arguments: self._refresh(name, arguments))
        if count:
            self.say(f"{name}: settled {count} operations that an engine left unfinished")
        return stack

    def preview(self, stack: Any) -> Outcome:
        """What would change; Failed if a mandatory rule of the pack is broken or the program fails."""
        return self._run(stack, stack.preview, "preview")

    def update(self, stack: Any) -> Outcome:
        """Make it so. Only after a preview: stack rules of a pack run when resources have been made."""
        return self._run(stack, stack.up, "update")

    def destroy(self, stack: Any) -> Outcome:
        return self._run(stack, stack.destroy, "removal", pack=False)

    def _run(self, stack: Any, action: Callable[..., Any], what: str, pack: bool = True) -> Outcome:
        from pulumi import automation

        outcome = Outcome()
        began = time.monotonic()
        packs = {"policy_packs": [str(self.root / PACK)]} if pack else {}
        try:
            warnings.filterwarnings("ignore", "Error in event stream")  # it precedes the error that says why
            action(on_event=outcome.listen, suppress_progress=True, color="never", **packs)
        except automation.CommandError as error:
            raise Failed(_why(stack.name, what, outcome, error)) from error
        for text in outcome.advice:
            self.say(f"advice: {text}")
        self.say(f"{stack.name}: {what} in {time.monotonic() - began:.1f} s: {summary(outcome)}")
        return outcome

    def _refresh(self, name: str, arguments: list[str]) -> None:
        # The Automation API cannot hand over the ids of pending creations.
        done = subprocess.run(
            ["pulumi", "refresh", "--yes", "--skip-preview", "--non-interactive", "--stack", name, *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Failed(f"stack {name}: what an engine left unfinished cannot be settled: {done.stderr.strip()}")


def _why(stack: str, what: str, outcome: Outcome, error: Exception) -> str:
    if outcome.violations:
        lines = [f"stack {stack}: the policy pack refuses the {what}; nothing was changed", *outcome.violations]
        return "\n  ".join(dict.fromkeys(lines))
    if outcome.errors:
        known = dict.fromkeys(text for text in outcome.errors if text)
        return f"stack {stack}: {what} failed\n  " + "\n  ".join(known)
    return f"stack {stack}: {what} failed: {_reason(error)}"


def _reason(error: Exception) -> str:
    errors = [line.strip() for line in str(error).splitlines() if line.strip().startswith("error:")]
    if errors:
        return errors[-1].removeprefix("error: ")
    return "the engine ended without a word; run the command again, it goes on from there"
