"""A whole fleet from nothing, each tenant's stack by the engine: an hour for a thousand tenants (BENCH_WHOLE)."""

from __future__ import annotations

import os

from bench.engine import edit
from bench.fleet import EDITED, NAME, files_of_fleet, project, up

TENANTS = int(os.environ.get("BENCH_WHOLE", "1000"))


def measure() -> str:
    """The rows of the section, as Markdown."""
    with project(TENANTS) as root:
        files_of_fleet(root, TENANTS)
        platform = up(root, "--stack", NAME)
        first_run = up(root)
        same = up(root)
        edit(root, EDITED)
        edited = up(root)
        states = root / ".lab" / "state" / ".pulumi" / "stacks" / "gpu-tenancy"
        size = sum(path.stat().st_size for path in states.glob("*.json"))
    rows = [
        ("the platform's stack alone", platform),
        (f"{TENANTS:,} tenants from nothing", first_run),
        ("nothing changed", same),
        ("one tenant changed", edited),
    ]
    return "\n".join(
        [
            f"{TENANTS:,} tenants, a stack for each, file backend, queues. Load when it ended: "
            f"{os.getloadavg()[0]:.1f}.",
            "",
            "| run of `tenancy up` | wall, s | CPU, s | peak of `tenancy` itself, MiB | peak of any process, MiB |",
            "|---|---:|---:|---:|---:|",
            *(f"| {what} | {c.wall:.1f} | {c.cpu:.1f} | {c.driver:.0f} | {c.peak:.0f} |" for what, c in rows),
            "",
            f"A tenant from nothing: {first_run.wall / TENANTS:.2f} s of wall time, {first_run.cpu / TENANTS:.2f} s of "
            f"CPU. All states are {size / 2**20:.0f} MiB.",
        ]
    )
