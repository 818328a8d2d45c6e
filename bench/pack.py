"""The policy pack: the time that it adds to a preview, and the part of its start."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.engine import NAME, TENANTS, project, timed
from tenancy.lab.layout import environ

ROUNDS = 3
_EMPTY = "import pulumi\n"


def measure() -> str:
    """The rows of the section, as Markdown."""
    with project() as (root, _):
        empty = root / "empty"
        empty.mkdir()
        (empty / "Pulumi.yaml").write_text("name: empty\nruntime: {name: python, options: {virtualenv: ../.venv}}\n")
        (empty / "__main__.py").write_text(_EMPTY, "utf-8")
        return _rows(root, empty, environ(root))


def _rows(root: Path, empty: Path, env: Mapping[str, str]) -> str:
    for where in (root, empty):
        timed(where, env, "pulumi", "stack", "init", NAME)
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", "packed", "empty", "empty packed")}
    starts, bare = [], []
    for _ in range(ROUNDS):
        starts.append(_start(root / "policy"))
        bare.append(timed(root, env, sys.executable, "-c", "import pulumi_policy"))
        preview = ("pulumi", "preview", "--stack", NAME)
        seconds["plain"].append(timed(root, env, *preview))
        seconds["packed"].append(timed(root, env, *preview, "--policy-pack", "policy"))
        seconds["empty"].append(timed(empty, env, *preview))
        seconds["empty packed"].append(timed(empty, env, *preview, "--policy-pack", "../policy"))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    start = median["empty packed"] - median["empty"]
    judging = median["packed"] - start
    return "\n".join(
        [
            f"{TENANTS} tenants; medians of {ROUNDS} rounds, one of each after another. "
            f"Load when it ended: {os.getloadavg()[0]:.1f}.",
            "",
            "| preview from nothing | seconds | ratio |",
            "|---|---|---|",
            f"| without a pack | {median['plain']:.2f} | 1.00 |",
            f"| with the pack | {median['packed']:.2f} | {median['packed'] / median['plain']:.2f} |",
            f"| with the pack, without its start | {judging:.2f} | {judging / median['plain']:.2f} |",
            "",
            "| start of the pack | seconds |",
            "|---|---|",
            f"| its process, until it listens | {statistics.median(starts):.2f} |",
            f"| the import of the SDK alone | {statistics.median(bare):.2f} |",
            f"| what it adds to the preview of an empty program | {start:.2f} |",
        ]
    )


def _start(pack: Path) -> float:
    """Seconds until the pack reports the port that it listens on."""
    began = time.monotonic()
    # The arguments are an engine's address, which is not asked before there is something to judge, and the pack.
    process = subprocess.Popen([sys.executable, str(pack), "127.0.0.1:1", str(pack)], stdout=subprocess.PIPE)
    try:
        if not process.stdout or not process.stdout.readline().strip().isdigit():
            raise SystemExit(f"{pack}: the pack says no port")
        return time.monotonic() - began
    finally:
        process.kill()
        process.wait()
