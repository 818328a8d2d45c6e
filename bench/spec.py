"""Reading and planning environments of 10, 100 and 1,000 tenants, each in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import child
from bench.child import Run
from bench.generate import generate

SIZES = (10, 100, 1000)
ROUNDS = 5

# The command line's work, with the plan alone timed.
_PLAN = """
import json, resource, sys, time
from tenancy.cli.common import load_or_exit
from tenancy.planning import make_plan
loaded = load_or_exit(sys.argv[1])
wall, cpu = time.perf_counter(), time.process_time()
plan = make_plan(loaded, loaded.day)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def measure() -> str:
    """The tables, as Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folders = {size: generate(Path(name) / f"n{size}", size) for size in SIZES}
        broken = generate(Path(name) / "broken", SIZES[-1])
        for path in (broken / "tenants").iterdir():
            path.write_text(path.read_text("utf-8").replace("tier: ", "tier: x", 1), "utf-8")
        parts = [
            _table("`tenancy validate`, the whole process", {n: _best(_validate, f) for n, f in folders.items()}),
            _table("`tenancy report capacity`, likewise", {n: _best(_report, f) for n, f in folders.items()}),
            _table("The plan, in a process that has read the files", {n: _best(_plan, f) for n, f in folders.items()}),
        ]
        wrong = _best(lambda folder: child.tenancy("validate", str(folder), code=2), broken)
    last = f"{SIZES[-1]:,} files with a mistake each: {wrong.wall:.2f} s, {wrong.peak / 1024:.0f} MiB."
    return "\n\n".join([*parts, last, f"Best of {ROUNDS} runs each."])


def _validate(folder: Path) -> Run:
    return child.tenancy("validate", str(folder))


def _report(folder: Path) -> Run:
    return child.tenancy("report", "capacity", str(folder))


def _plan(folder: Path) -> Run:
    return child.python(_PLAN, str(folder))


def _best(run: Callable[[Path], Run], folder: Path) -> Run:
    return min(run(folder) for _ in range(ROUNDS))


def _table(title: str, runs: dict[int, Run]) -> str:
    lines = [f"{title}:", "", "| tenants | wall | CPU | peak memory | times the row above |", "|---|---|---|---|---|"]
    before: Run | None = None
    for size, run in runs.items():
        ratio = f"{run.wall / before.wall:.1f}" if before else "–"
        cells = [f"{size:,}", f"{run.wall:.3f} s", f"{run.cpu:.3f} s", f"{run.peak / 1024:.0f} MiB", ratio]
        lines.append(f"| {' | '.join(cells)} |")
        before = run
    return "\n".join(lines)
