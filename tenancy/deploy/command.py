"""Pulumi's command in a process group of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from pulumi import automation
from pulumi.automation.errors import create_command_error

OnOutput = Callable[[str], object]


class OwnGroupCommand(automation.PulumiCommand):
    """The engine of a stack that runs beside others. Ctrl-C in a terminal reaches a whole process group: here it
    reaches `tenancy` alone, which lets the engines that are at work finish their stacks."""

    def __init__(self, command: automation.PulumiCommand) -> None:
        """`command` has been asked for its version already."""
        self.command, self.version = command.command, command.version

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> automation.CommandResult:
        """Run it, without a terminal; CommandError if it fails."""
        env = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        command = [self.command, "--non-interactive", *args]
        completed = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", check=False, process_group=0
        )
        for text, listener in ((completed.stdout, on_output), (completed.stderr, on_error)):
            if listener:
                for line in text.splitlines():
                    listener(line)
        result = automation.CommandResult(
            stderr=completed.stderr.rstrip(), stdout=completed.stdout.rstrip(), code=completed.returncode
        )
        if completed.returncode:
            raise create_command_error(result)
        return result


class UnselectedWorkspace(automation.LocalWorkspace):
    """A workspace whose stacks are named in each command: none becomes the current one, a file that commands share."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing."""
