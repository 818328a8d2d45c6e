"""The clock of the lab's environment, as a process beside the components."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tenancy.lab import processes
from tenancy.lab.layout import Lab
from tenancy.lab.pki import LOOPBACK

PORT = "clock"


def command(lab: Lab, folder: str, ports: Mapping[str, int], *, metrics: bool) -> list[str]:
    """Command line of the clock for the spec files in a folder; with `metrics` it reads samples of the lab's
    Prometheus."""
    where = [f"--kubeconfig={lab.kubeconfig}", f"--metrics={LOOPBACK}:{ports[PORT]}"]
    source = [f"--prometheus=http://{LOOPBACK}:{ports['prometheus']}"] if metrics else []
    return [sys.executable, "-m", "tenancy", "clock", "run", folder, "--lab", *where, *source]


def running(lab: Lab) -> list[processes.Process]:
    """The clock's processes, recognised by their command: their program is Python."""
    name = Path(sys.executable).name
    found = processes.running(lab, (name,)).get(name, [])
    return [process for process in found if process.argv[1:5] == ("-m", "tenancy", "clock", "run")]
