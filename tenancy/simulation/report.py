"""The report of a simulation: one run, or two runs of the same trace side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tenancy.catalog.waits import time
from tenancy.kube.objects import Object
from tenancy.output.tables import Cell, Table
from tenancy.planning import make_plan
from tenancy.simulation.attempts import Unfinished, simulate, window_of
from tenancy.simulation.checkpoint import Store, name_of
from tenancy.simulation.clocked import ROUND_SECONDS, first_instant
from tenancy.simulation.events import Run, first_part
from tenancy.simulation.idling import SAMPLE_SECONDS
from tenancy.simulation.objects import OVERRIDES, cluster_objects, kueue_values
from tenancy.simulation.results import Group, PoolUse, Results, Waits, evaluate
from tenancy.simulation.trace import Trace
from tenancy.spec.loader import Loaded

NOT_MODELLED = (
    "Kueue and its queues are real and have the environment's configuration; jobs, nodes and the clock are simulated",
    "run times are those of the trace: no data loading, no slower network, no failure, restarts only after an eviction",
    "an evicted job ends at once, without its grace period, and a restart costs only the lost work",
    "an autoscaled pool always has its max nodes",
    "a pool is a number of GPUs: placement on nodes and fragmentation are not modelled",
    f"overridden for the run: {'; '.join(OVERRIDES)}",
)


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The results of a simulation, of two if there is a change."""

    environment: str
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    before: Results
    after: Results | None
    runs: tuple[Run, ...]
    window: int
    pools: tuple[str, ...] = field(default=())
    partial: str = ""
    """Reason for which the results cover only a part of the work; empty if they cover all of it."""

    @property
    def remarks(self) -> list[str]:
        """Notes on the trace and on what the numbers cover."""
        span = (
            f"GPU hours and use of pools cover the first {self.before.hours:g} hours, until all work was submitted; "
            "waits, evictions, suspensions, lost and returned GPU hours and max use cover all of the work"
        )
        return [*self.notes, span, *NOT_MODELLED, *self.tolerance]

    @property
    def part(self) -> str:
        """The part of the work that partial results cover."""
        return f"the first {self.before.hours:.1f} hours" if self.partial else ""

    @property
    def tolerance(self) -> list[str]:
        """Max delay of a recorded start, in simulated seconds."""
        late = max(run.max_delay for run in self.runs)
        return [
            f"a start may be recorded up to {self.window} s late (max {late} s here): Kueue checks waiting work "
            "a second after an end, and ends within that time share one check"
        ]

    def as_json(self) -> dict[str, Any]:
        """The results as plain values, for JSON."""
        results_by_name = {"before": self.before} | ({"after": self.after} if self.after else {})
        results = {name: _rounded(asdict(results_of_run)) for name, results_of_run in results_by_name.items()}
        for tier in (tier for results_of_run in results.values() for tier in results_of_run["tiers"]):
            for share in ("guaranteed", "borrowed", "lent"):
                del tier[share]
        return {
            "environment": self.environment,
            "changes": list(self.changes),
            "partial": {"of": self.part, "reason": self.partial} if self.partial else None,
            "remarks": self.remarks,
            "runs": [{"seconds": round(r.seconds, 1), "looks": r.checks, "latest": r.max_delay} for r in self.runs],
            **results,
        }

    def rows(self) -> Iterator[Sequence[Cell]]:
        """Tenants and tiers as one flat table."""
        yield (
            "run",
            "kind",
            "name",
            "jobs",
            "never",
            "wait p50 s",
            "wait p95 s",
            "wait max s",
            "wait mean s",
            "GPU hours",
            "guaranteed",
            "borrowed",
            "lent",
            "evictions",
            "lost GPU hours",
            "idle GPU hours",
            "suspended",
            "GPU hours back",
        )
        partial = " (partial)" if self.partial else ""
        for run, results in ((f"before{partial}", self.before), (f"after{partial}", self.after)):
            for kind, groups in (("tenant", results.tenants), ("tier", results.tiers)) if results else ():
                for g in groups:
                    w = g.waits
                    # Tiers have no guarantee.
                    split = (
                        (round(x, 3) for x in (g.guaranteed, g.borrowed, g.lent)) if kind == "tenant" else (None,) * 3
                    )
                    yield (
                        run,
                        kind,
                        g.name,
                        w.jobs,
                        w.never,
                        w.p50,
                        w.p95,
                        w.max,
                        w.mean,
                        round(g.used, 3),
                        *split,
                        g.evictions,
                        round(g.lost, 3),
                        round(g.idle, 3),
                        g.suspended,
                        round(g.back, 3),
                    )

    def tables(self) -> Iterator[Table]:
        """The results as tables."""
        title = f"{f'PARTIAL, {self.part}: s' if self.partial else 'S'}imulation of {self.environment}"
        if self.after is None:
            yield _single_table(f"{title}: tenants", self.before.tenants)
            yield _single_tier_table("Tiers", self.before.tiers)
        else:
            yield _comparison_table(
                f"{title}: before and after {', '.join(self.changes)}", self.before.tenants, self.after.tenants
            )
            yield _comparison_table("Tiers", self.before.tiers, self.after.tiers, shares=False)
        yield self._pools()
        if self.before.activity:
            yield self._idle()
        yield self._evictions()
        final_results = self.after or self.before
        yield Table(
            f"Jobs that waited longest{' after the change' if self.after else ''}",
            ("job", "GPUs", "submitted", "waited", "tenants above their guarantee then", "Kueue's reason"),
            [
                (
                    w.job,
                    w.gpus,
                    clock(w.submit),
                    time(w.waited) + ("" if w.started else ", never started"),
                    ", ".join(f"{name} {count:g}" for name, count in w.above.items()) or "none",
                    shorten_reason(w.reason),
                )
                for w in final_results.longest[:5]
            ],
            self.remarks,
        )

    def _pools(self) -> Table:
        before = {pool.name: pool for pool in self.before.pools}
        after = {pool.name: pool for pool in self.after.pools} if self.after else {}
        rows: list[Sequence[Cell]] = []
        for name in sorted(before | after):
            runs = [before.get(name), after.get(name)] if self.after else [before[name]]
            sizes = [_gpus(pool.gpus) if pool else "0" for pool in runs]
            use_cells = [cell for pool in runs for cell in self._use(pool)]
            rows.append((name, arrow(sizes[0], sizes[-1]), *use_cells))
        names = ("in use", *(("busy",) if self.before.activity else ()), "max")
        return Table(
            "Pools",
            ("pool", "GPUs", *names, *((f"{name} after" for name in names) if self.after else ())),
            rows,
            [
                f"fairness of borrowing (Jain's index, 1 is even): {_fair(self.before)}"
                + (f" before, {_fair(self.after)} after" if self.after else "")
            ],
        )

    def _use(self, pool: PoolUse | None) -> Iterator[str]:
        yield f"{pool.share:.0%}" if pool else "–"
        if self.before.activity:
            yield f"{pool.busy:.0%}" if pool else "–"
        yield _gpus(pool.most) if pool else "–"

    def _idle(self) -> Table:
        """GPU hours that jobs held while their GPUs were idle, and GPU hours that idle rules returned."""
        idle_before, idle_after = (
            {group.name: (round(group.idle), group.suspended, round(group.back)) for group in results.tenants}
            for results in (self.before, self.after or self.before)
        )
        rows: list[Sequence[Cell]] = []
        for name in sorted(idle_before | idle_after):
            pairs = list(zip(idle_before.get(name, (0, 0, 0)), idle_after.get(name, (0, 0, 0)), strict=True))
            if any(map(any, pairs)):
                rows.append((name, *(arrow(*pair) for pair in pairs)))
        runs = [self.before, *([self.after] if self.after else [])]
        in_use, busy = ([f"{part(results):.0%}" for results in runs] for part in (in_use_part, busy_part))
        return Table(
            "Idle GPUs",
            ("tenant", "idle GPU hours", "suspended", "GPU hours back"),
            rows,
            [
                f"of all GPUs {arrow(in_use[0], in_use[-1])} were in use and {arrow(busy[0], busy[-1])} busy",
                "idle GPU hours: held by jobs whose GPUs were idle; back: what suspended jobs would have held until "
                "their end",
            ],
        )

    def _evictions(self) -> Table:
        pairs = sorted(
            {
                (preemptor, victim)
                for r in (self.before, self.after)
                if r
                for preemptor, counts in r.evictions.items()
                for victim in counts
            }
        )
        pair_counts = [
            (
                preemptor,
                victim,
                *(r.evictions.get(preemptor, {}).get(victim, 0) for r in (self.before, self.after) if r),
            )
            for preemptor, victim in pairs
        ]
        pair_counts.sort(key=lambda row: (-max(row[2:]), row[:2]))
        header = ("for", "from", "before", "after") if self.after else ("for", "from", "evictions")
        remarks = [f"and {len(pair_counts) - 12} more pairs"] if len(pair_counts) > 12 else []
        return Table("Evictions", header, pair_counts[:12], remarks)


def run_both(
    before: Loaded,
    after: Loaded | None,
    trace: Trace,
    seconds: int,
    window: int | None,
    changes: Sequence[str],
    say: Callable[[str], None],
    state: Path | None = None,
    *,
    fresh: bool = False,
    start: dt.datetime | None = None,
) -> SimulationReport:
    """Simulate a trace, and again after a change.

    `state` is the folder of the checkpoints that a run continues from, unless it is `fresh`. `start` is the instant at
    which the trace begins, for clocks; by default the next Monday. The report of a run that did not finish is marked
    as partial.
    """
    notes = [f"trace: {note}" for note in trace.notes]
    if after is not None and _decisive_settings(before) == _decisive_settings(after):
        notes.append("the change affects no queue: differences between the two runs are within the tolerance")
        say(notes[-1])
    window_seconds = window_of(trace.jobs, window)
    inputs = [(name, loaded) for name, loaded in (("before", before), ("after", after)) if loaded is not None]
    start = start or first_instant(before.day)
    if any(loaded.environment.has_clock for _, loaded in inputs):
        notes.append(
            f"the clock makes a round every {ROUND_SECONDS // 60} minutes from {start:%Y-%m-%d} on: windows, further "
            "shares and budgets that bind are kept; guarantees in the tables are those without windows"
        )
    notes += _about_idle(trace, [loaded for _, loaded in inputs])
    stores = [Store(state, name_of(loaded, trace.jobs, window_seconds, f"{start:%Y-%m-%d}")) for _, loaded in inputs]
    runs: list[Run] = []
    partial = ""
    for (name, loaded), store in zip(inputs, stores, strict=True):
        if fresh:
            store.delete()
        say(f"{name} the change: {len(trace.jobs)} jobs" if after else f"{len(trace.jobs)} jobs")
        try:
            runs.append(simulate(loaded, trace.jobs, say, window, store, start))
        except Unfinished as unfinished:
            if not unfinished.run.events:
                raise
            partial, seconds = str(unfinished), max(1, min(seconds, unfinished.now))
            runs = [first_part(run, seconds) for run in (*runs, unfinished.run)]
            break
        say(f"done in {runs[-1].seconds:.0f} s")
    if not partial:
        for store in stores:
            store.delete()
    results = [evaluate(loaded, trace.jobs, run, seconds) for (_, loaded), run in zip(inputs, runs, strict=False)]
    return SimulationReport(
        environment=before.environment.environment,
        changes=tuple(changes),
        notes=tuple(notes),
        before=results[0],
        after=results[1] if len(results) > 1 else None,
        runs=tuple(runs),
        window=window_seconds,
        partial=partial,
    )


def _about_idle(trace: Trace, environments: Sequence[Loaded]) -> Iterator[str]:
    has_idle_rules = any(tier.idle for loaded in environments for tier in loaded.environment.tiers.values())
    if any(job.busy is not None for job in trace.jobs):
        yield (
            "a job's GPUs are idle from the time on that the trace says, and all others are busy while they are in use"
        )
        if has_idle_rules:
            minutes = SAMPLE_SECONDS // 60
            yield (
                f"idle rules look every {minutes} minutes while GPUs are idle, or every `after` if it is less: each "
                f"warning and the suspension are up to {minutes} minutes late; a suspended job does not come back"
            )
    elif has_idle_rules:
        yield "idle rules find nothing: no job of the trace says when its GPUs become idle"


def _decisive_settings(loaded: Loaded) -> object:
    """All that decides which work starts: what Kueue gets, and what the clock goes by."""
    tenants = loaded.tenants if loaded.environment.has_clock else ()
    environment = loaded.environment
    rules = [(name, tier.idle) for name, tier in environment.tiers.items()]
    times = (environment.queues, environment.prices, rules) if environment.has_clock else ()
    return kueue_settings(loaded), [(t.tenant, t.gpu_windows, t.gpus, t.budget) for t in tenants], times


def kueue_settings(loaded: Loaded) -> tuple[list[Object], dict[str, Any]]:
    """All settings of an environment that Kueue gets."""
    return list(cluster_objects(make_plan(loaded, loaded.day))), kueue_values(loaded)


def _single_table(title: str, groups: Sequence[Group]) -> Table:
    header = (
        "tenant",
        "jobs",
        "p50",
        "p95",
        "longest",
        "GPU hours",
        "guaranteed",
        "borrowed",
        "lent",
        "evicted",
        "lost",
    )
    rows = [
        (
            g.name,
            g.waits.jobs,
            wait(g.waits, g.waits.p50),
            wait(g.waits, g.waits.p95),
            wait(g.waits, g.waits.max),
            round(g.used),
            round(g.guaranteed),
            round(g.borrowed),
            round(g.lent),
            g.evictions,
            round(g.lost),
        )
        for g in groups
    ]
    return Table(
        title, header, rows, ["p50, p95, longest: wait of all jobs until the first start", *_never_started(groups)]
    )


def _single_tier_table(title: str, groups: Sequence[Group]) -> Table:
    rows = [
        (
            g.name,
            g.waits.jobs,
            wait(g.waits, g.waits.p50),
            wait(g.waits, g.waits.p95),
            wait(g.waits, g.waits.max),
            round(g.used),
            g.evictions,
            round(g.lost),
        )
        for g in groups
    ]
    return Table(title, ("tier", "jobs", "p50", "p95", "longest", "GPU hours", "evicted", "lost"), rows)


def _comparison_table(title: str, before: Sequence[Group], after: Sequence[Group], *, shares: bool = True) -> Table:
    nothing = Group("", Waits(0, 0, None, None, None, None), 0.0, 0.0, 0.0, 0.0, 0, 0.0)
    groups_before, groups_after = ({group.name: group for group in groups} for groups in (before, after))
    rows = []
    for name in sorted(groups_before | groups_after):
        g, a = groups_before.get(name, nothing), groups_after.get(name, nothing)
        rows.append(
            (
                name,
                max(g.waits.jobs, a.waits.jobs),
                arrow(wait(g.waits, g.waits.p50), wait(a.waits, a.waits.p50)),
                arrow(wait(g.waits, g.waits.p95), wait(a.waits, a.waits.p95)),
                arrow(wait(g.waits, g.waits.max), wait(a.waits, a.waits.max)),
                arrow(round(g.used), round(a.used)),
                *((arrow(round(g.borrowed), round(a.borrowed)), arrow(round(g.lent), round(a.lent))) if shares else ()),
                arrow(g.evictions, a.evictions),
                arrow(round(g.lost), round(a.lost)),
            )
        )
    split = ("borrowed", "lent") if shares else ()
    header = ("name", "jobs", "p50", "p95", "longest", "GPU hours", *split, "evicted", "lost")
    return Table(title, header, rows, [*_never_started(before, " before"), *_never_started(after, " after")])


def in_use_part(results: Results) -> float:
    """Part of all GPUs that were in use; 0 without GPUs."""
    return sum(pool.used for pool in results.pools) / (results.capacity * results.hours or 1)


def busy_part(results: Results) -> float:
    """Part of all GPUs that were in use and not idle; 0 without GPUs."""
    return sum(pool.busy * pool.gpus for pool in results.pools) / (results.capacity or 1)


def _never_started(groups: Sequence[Group], when: str = "") -> list[str]:
    entries = [f"{g.name} {g.waits.never}" for g in groups if g.waits.never]
    return [f"never started{when}: {', '.join(entries)}"] if entries else []


def arrow(before: Cell, after: Cell) -> str:
    """A value, or the values before and after a change if they differ."""
    return str(before) if before == after else f"{before} → {after}"


def wait(waits: Waits, seconds: int | None) -> str:
    """One of the times of `of`."""
    return "never" if seconds is None and waits.never else time(seconds)


def clock(seconds: int) -> str:
    """Seconds as hours and minutes."""
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}"


def shorten_reason(reason: str, length: int = 160) -> str:
    """Kueue's reason for the first resource; it repeats the reason for each resource."""
    first = reason.removeprefix("couldn't assign flavors to pod set main: ").split(", insufficient")[0]
    return first if len(first) <= length else f"{first[: length - 1]}…"


def _gpus(count: float) -> str:
    return f"{count:g}" if count == int(count) else f"{count:.1f}"


def _fair(results: Results) -> str:
    return "–" if results.mean_fairness is None else f"{results.mean_fairness:.2f}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
