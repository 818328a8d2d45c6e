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

SECTIONS = {
    "Write": {
        "init": "Write a new repository with program, environments and policies.",
        "new": "Write the spec file of a new tenant and show what it creates.",
        "discover": "Write pools and flavors from the nodes of an existing cluster.",
        "sample": "Print a minimal pod, Job or MPIJob manifest for a tenant.",
        "catalog": "List GPU instance types, or the capacity of a node of one type.",
        "schema": "Print the JSON Schemas of the spec files.",
    },
    "Check": {
        "validate": "Report every mistake in the spec files of an environment.",
        "check": "Check Kubernetes manifests from any source against the rules.",
        "diff": "Show the effects of a spec change on each tenant.",
        "rules": "List the rules and where each is enforced.",
        "simulate": "Simulate a day of jobs before and after a change of quotas.",
    },
    "Deploy": {
        "render": "Write the Kubernetes objects of an environment as YAML.",
        "up": "Update stacks that differ from the spec files or the cluster.",
        "rollout": "Show which tenants run the present version of the program.",
        "move": "Move tenants between Pulumi stacks after a change of `stacks`.",
        "down": "Remove an environment from its cluster.",
    },
    "Operate": {
        "clock": "Apply scheduled quota changes and enforce budgets.",
        "queues": "Show GPU guarantees, usage and waiting workloads of each queue.",
        "why": "Explain why a workload waits.",
        "fits": "Test whether a manifest would start now, and what blocks it.",
        "report": "Report capacity, access, drift and the impact of failures.",
        "chargeback": "Allocate the bill of an environment to its tenants.",
        "export": "Export the objects of a tenant into a folder.",
    },
    "Prove": {
        "verify": "Attack the cluster as its tenants and show each refusing control.",
        "evidence": "Write a signed folder of evidence for an auditor, or verify one.",
        "claims": "List each control and the attacks that succeed without it.",
        "can": "Evaluate whether a tenant may do an AWS action on a resource.",
        "who-can": "List who can access an S3 prefix, secret, queue or repository.",
    },
    "Lab": {
        "lab": "Run a local Kubernetes control plane and manage its tools.",
    },
}
"""Commands by section of `tenancy --help`, each with one sentence."""
COMMANDS = {name: sentence for commands in SECTIONS.values() for name, sentence in commands.items()}


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
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), sentence) for name, sentence in commands.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpu-tenancy")
def main() -> None:
    """Create and operate GPU clusters on EKS that many teams share safely.

    Exit codes: 0 success, 1 a finding or a failed step, 2 bad input.
    """
