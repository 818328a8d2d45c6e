"""The clock of the lab's environment, as a process next to the components."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tenancy.catalog import vocabulary
from tenancy.lab import pki, processes
from tenancy.lab.layout import Lab
from tenancy.lab.pki import LOOPBACK

PORT = "clock"
USER = f"system:serviceaccount:{vocabulary.PLATFORM_NAMESPACE}:{vocabulary.CLOCK}"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{vocabulary.PLATFORM_NAMESPACE}")
"""Groups in tokens of the ServiceAccount that the clock's Deployment has."""


def write_identity(lab: Lab, port: int) -> Path:
    """Write the clock's kubeconfig, with the user and groups of its ServiceAccount, and so with the rights of the roles
    alone that an update binds to it.

    It has a certificate, because a token is valid only from the first update to the removal of the environment.
    """
    return pki.write_user(lab, vocabulary.CLOCK, USER, GROUPS, port)


def command(folder: str, kubeconfig: Path, ports: Mapping[str, int], *, metrics: bool) -> list[str]:
    """Command line of the clock for the spec files in a folder; with `metrics` it reads samples of the lab's
    Prometheus."""
    address_options = [f"--kubeconfig={kubeconfig}", f"--metrics={LOOPBACK}:{ports[PORT]}"]
    source = [f"--prometheus=http://{LOOPBACK}:{ports['prometheus']}"] if metrics else []
    return [sys.executable, "-m", "tenancy", "clock", "run", folder, "--lab", *address_options, *source]


def running(lab: Lab) -> list[processes.Process]:
    """The clock's processes, recognised by their command: their program is Python."""
    name = Path(sys.executable).name
    candidates = processes.running(lab, (name,)).get(name, [])
    return [process for process in candidates if process.argv[1:5] == ("-m", "tenancy", "clock", "run")]
