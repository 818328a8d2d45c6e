"""A day of the bank on a real Kueue: strict shares against lending and a window."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tenancy.catalog.waits import percentile
from tenancy.simulation.events import EventKind, Run
from tenancy.simulation.generate import generate
from tenancy.simulation.report import SimulationReport, run_both
from tenancy.simulation.results import Results
from tenancy.simulation.trace import Job, Trace
from tenancy.spec.loader import Loaded, load

BANK = Path(__file__).parents[1] / "stacks" / "bank"
JOBS, HOURS, SEED = 1000, 24, 1
MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
TENANT, FLAVOR = "market-risk", "a100"
GUARANTEED, MORE = 64, 64
WINDOW = (
    f"gpu-windows: [{{name: end-of-day, flavor: {FLAVOR}, gpus: {MORE}, starts: '17:00', ends: '20:00', "
    "time-zone: Europe/Berlin}]\n"
)
OPENS, CLOSES = 16 * 3600, 19 * 3600
"""Start and end of the window, in seconds of the day, UTC."""
RUN = (GUARANTEED + MORE) // 8
"""Jobs of 8 GPUs for two and a half hours, all submitted when the window opens."""
RECLAIM = 4
"""A reclaim takes up to so many checks of waiting work: what docs/simulate.md says of a start with an eviction."""


def measure() -> str:
    """The section of the page."""
    with tempfile.TemporaryDirectory() as home:
        lending = _bank(Path(home) / "lending" / "bank", strict=False)
        strict = _bank(Path(home) / "strict" / "bank", strict=True)
        jobs = (*generate(lending, JOBS, HOURS, SEED), *_end_of_day())
        trace = Trace(tuple(sorted(jobs, key=lambda job: job.submit)))
        change_names = ["lending and a window"]
        report = run_both(strict, lending, trace, HOURS * 3600, None, change_names, _say, Path(home), start=MONDAY)
    return _page(report, lending, trace.jobs)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _bank(folder: Path, *, strict: bool) -> Loaded:
    shutil.copytree(BANK, folder)
    for path in (folder / "tenants").iterdir():
        text = path.read_text("utf-8")
        if strict:
            lines = [
                line.partition("sharing:")[0] + "sharing: strict}" if "sharing:" in line else line
                for line in text.splitlines()
            ]
            text = "\n".join(lines) + "\n"
        elif path.stem == TENANT:
            text += WINDOW
        path.write_text(text, "utf-8")
    if not strict:
        path = folder / "environment.yaml"
        path.write_text(path.read_text("utf-8") + "queues: {clock: true}\n", "utf-8")
    return load(folder)


def _end_of_day() -> Iterator[Job]:
    for number in range(RUN):
        name = f"{TENANT}-end-of-day-{number:02}"
        yield Job(name, OPENS + 10, TENANT, "train", FLAVOR, 8, 8, 9000, "production-training")


def owed(loaded: Loaded, jobs: Sequence[Job], run: Run) -> list[int | None]:
    """Waits of the jobs that are within their tenant's guarantee, or its window, with all that the tenant has and
    waits for: seconds, or None for one that never started."""
    guarantee = {(t.tenant, flavor): share.guaranteed for t in loaded.tenants for flavor, share in t.gpus.items()}
    requested_gpus: Counter[tuple[str, str]] = Counter()
    due: set[int] = set()
    started: dict[int, int] = {}
    for event in run.events:
        job = jobs[event.job]
        key = (job.tenant, job.flavor)
        if event.kind is EventKind.SUBMIT:
            requested_gpus[key] += job.gpus
            window = MORE if key == (TENANT, FLAVOR) and OPENS <= event.time < CLOSES else 0
            if requested_gpus[key] <= guarantee[key] + window:
                due.add(event.job)
        elif event.kind is EventKind.START:
            started.setdefault(event.job, event.time)
        elif event.kind in {EventKind.FINISH, EventKind.SUSPEND}:
            requested_gpus[key] -= job.gpus
    return [started[n] - jobs[n].submit if n in started else None for n in sorted(due)]


def _page(report: SimulationReport, lending: Loaded, jobs: Sequence[Job]) -> str:
    before, after = report.before, report.after
    assert after is not None
    waits = owed(lending, jobs, report.runs[1])
    max_seconds = RECLAIM * report.window
    late = [wait for wait in waits if wait is None or wait > max_seconds]
    at_close, also = (_done_by(jobs, run, CLOSES) for run in report.runs)
    rows: list[tuple[str, object, object]] = [
        ("use of the A100 pools", f"{_use(before):.0%}", f"{_use(after):.0%}"),
        ("GPU-hours in the day", round(_hours(before)), round(_hours(after))),
        *(
            (f"wait, {name}", _waited(before, part), _waited(after, part))
            for name, part in (("median", 0.5), ("p95", 0.95))
        ),
        ("jobs that never started", _never(before), _never(after)),
        (f"end-of-day jobs done at 20:00, of {RUN}", at_close, also),
        ("evictions", _evictions(before), _evictions(after)),
        (
            "GPU-hours lost by evictions",
            round(sum(t.lost for t in before.tenants)),
            round(sum(t.lost for t in after.tenants)),
        ),
    ]
    waited = [wait for wait in waits if wait]
    lines = [
        f"`stacks/bank`, {len(jobs)} jobs: a generated day of {JOBS} (seed {SEED}), and {RUN} of {TENANT} that ask for "
        f"{GUARANTEED + MORE} GPUs at 17:00 in Berlin. Strict: no tenant lends. Lending: the file's shares, and a "
        f"window of {MORE} GPUs for {TENANT} from 17:00 to 20:00.",
        "",
        "| | strict | lending and a window |",
        "|---|---:|---:|",
        *(f"| {name} | {strict_value} | {lending_value} |" for name, strict_value, lending_value in rows),
        "",
        f"Of {len(waits)} jobs within the guarantee or the window of their tenant {waits.count(0)} started at once and "
        f"{len(waits) - len(late)} within one reclaim, which a run records up to {max_seconds} s late; the longest "
        f"waited {max(waited, default=0)} s, and {waits.count(None)} never started.",
    ]
    return "\n".join(lines)


def _use(results: Results) -> float:
    pools = [pool for pool in results.pools if pool.name.startswith("train-")]
    return sum(pool.used for pool in pools) / sum(pool.gpus * results.hours for pool in pools)


def _hours(results: Results) -> float:
    return sum(tenant.used for tenant in results.tenants)


def _never(results: Results) -> int:
    return sum(tenant.waits.never for tenant in results.tenants)


def _evictions(results: Results) -> int:
    return sum(tenant.evictions for tenant in results.tenants)


def _waited(results: Results, part: float) -> str:
    sorted_waits = sorted(wait for waits in results.all_waits.values() for wait in waits)
    seconds = percentile(sorted_waits, part, _never(results))
    return "never" if seconds is None else f"{seconds / 60:.0f} min"


def _done_by(jobs: Sequence[Job], run: Run, second: int) -> int:
    ends = [jobs[e.job].name for e in run.events if e.kind is EventKind.FINISH and e.time <= second]
    return sum(name.startswith(f"{TENANT}-end-of-day") for name in ends)
