"""`tenancy …`: each command lives in a module of its own and is imported only when it runs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import Any

import click

from tenancy import __version__

COMMANDS = {
    "new": "write the file of a new tenant, and show what it will get",
    "validate": "read the spec files of an environment and say what is wrong with them",
    "render": "write the objects of every tenant as YAML, without the engine",
    "check": "judge plain manifests, whoever made them, by the same rules",
    "diff": "say what a change of the files means to tenants",
    "up": "preview with the policy pack, then update what changed",
    "down": "remove the tenants of an environment",
    "export": "write down what a tenant owns, before it leaves",
    "sample": "print the smallest pod or job that a tenant may run",
    "queues": "show what each queue is guaranteed, holds, borrows and lets wait",
    "why": "say in one sentence why a job waits",
    "can": "say whether a tenant may do something on AWS, and which statements decide",
    "who-can": "show who may reach a bucket's prefix, a secret, a queue or a repository",
    "fits": "say whether a pod or job would be let in now, and if not, which control says no",
    "verify": "attack the live cluster as its tenants and show who refused",
    "claims": "show each control, and how many attacks get through without it",
    "report": "show supply, pools and what a failure costs",
    "simulate": "run a day of work under the quotas, before a change and after it",
    "chargeback": "share out the bill: who pays what, and why",
    "catalog": "list GPU instance types, or what a pool of one would yield",
    "rules": "list the rules and the planes that enforce each",
    "schema": "print or write the JSON Schema of the spec files",
    "lab": "the local control plane and its tools",
}


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Commands(click.Group):  # click names the arguments, used or not
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"tenancy.cli.{cmd_name.replace('-', '_')}").command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            from tenancy.cli.common import BAD_INPUT, fail

            with contextlib.suppress(OSError, ValueError):
                # What is left in the buffer would fail once more at the end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            given = f"an output that takes nothing more ({error.strerror})"
            fail(f"given {given}; rule: what is asked for can be written; change: write it elsewhere", BAD_INPUT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpu-tenancy")
def main() -> None:
    """GPU clusters on EKS that many teams share safely.

    Exit codes: 0 fine, 1 a finding or a failed step, 2 bad input.
    """
