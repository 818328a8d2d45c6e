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
    "init": "Write a new repository: program, environments, policy pack and workflows.",
    "new": "Write the spec file of a new tenant, and show what the tenant will get.",
    "discover": "Read the nodes of an existing cluster, and write its pools and flavors.",
    "validate": "Read the spec files of an environment and report every mistake.",
    "render": "Write the objects of an environment as YAML, without the Pulumi engine.",
    "check": "Check Kubernetes manifests from any source against the rules.",
    "diff": "Show what a change of the spec files means to tenants.",
    "up": "Update the stacks that differ from the spec files or from the cluster.",
    "rollout": "Show how far a new version has reached the tenants.",
    "clock": "Keep windows, further shares and budgets of tenants.",
    "move": "Move tenants between stacks after a change of `stacks`.",
    "down": "Remove an environment from its cluster.",
    "export": "Write what a tenant owns into a folder, before the tenant leaves.",
    "sample": "Print the smallest pod or job that a tenant may run.",
    "queues": "Show guaranteed, used and borrowed GPUs and waiting work for each queue.",
    "why": "Say in one sentence why a job waits.",
    "can": "Say whether a tenant may do an action on AWS, and which statements decide.",
    "who-can": "Show who has access to a bucket's prefix, a secret, a queue or a repository.",
    "fits": "Say whether a pod or job would be admitted now, and if not, which control stops it.",
    "verify": "Attack the live cluster as its tenants, and show which control refused each attack.",
    "evidence": "Write a signed folder of evidence for an auditor, or verify one.",
    "claims": "Show each control, and how many attacks succeed without it.",
    "report": "Report supply, pools, access, drift and the cost of a failure.",
    "simulate": "Simulate a day of work under the quotas, before and after a change.",
    "chargeback": "Allocate the bill to tenants: who pays what, and why.",
    "catalog": "List GPU instance types, or show what a pool of one type would yield.",
    "rules": "List the rules, and where each is enforced.",
    "schema": "Print the JSON Schema of the spec files, or write it into a folder.",
    "lab": "Run the lab, a local Kubernetes control plane, and manage its tools.",
}


_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


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
            if error.errno not in _DISK_FULL_ERRORS:
                raise
            from tenancy.cli.common import BAD_INPUT, fail

            with contextlib.suppress(OSError, ValueError):
                # Output that is still in the buffer would fail once more at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            input_text = f"an output that takes no more data ({error.strerror})"
            fail(f"given {input_text}; rule: the output can be written; change: write it elsewhere", BAD_INPUT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpu-tenancy")
def main() -> None:
    """Create and operate GPU clusters on EKS that many teams share safely.

    Exit codes: 0 success, 1 a finding or a failed step, 2 bad input.
    """
