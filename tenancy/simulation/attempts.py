"""Runs a trace in a temporary cluster, and in another one from the last checkpoint where a cluster fails."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

from tenancy.kube.objects import identity
from tenancy.lab.layout import LabError
from tenancy.planning import make_plan
from tenancy.simulation import objects
from tenancy.simulation.checkpoint import Store, run_of
from tenancy.simulation.clocked import first_instant
from tenancy.simulation.cluster import own_lab, stop_leftover
from tenancy.simulation.events import Run
from tenancy.simulation.rounds import ClockedRunner
from tenancy.simulation.runner import Runner
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded

MAX_CHECKS = 480
"""Approximate number of checks in a run, each of which takes Kueue a second. Ends close together share one."""
MAX_ATTEMPTS = 3
"""Max clusters that are started one after another without progress."""


def window_of(jobs: Sequence[Job], requested: int | None) -> int:
    """Simulated seconds within which ends share one check of Kueue."""
    return max(1, max((job.submit for job in jobs), default=0) // MAX_CHECKS) if requested is None else requested


class Unfinished(LabError):
    """A run that ended before its work; `run` is its saved part, from which a later run continues."""

    def __init__(self, reason: str, run: Run, now: int) -> None:
        super().__init__(reason)
        self.run = run
        self.now = now
        """Seconds from the start of the trace up to which it is saved."""


def simulate(
    loaded: Loaded,
    jobs: Sequence[Job],
    say: Callable[[str], None],
    window: int | None = None,
    store: Store | None = None,
    start: dt.datetime | None = None,
) -> Run:
    """Run a trace under an environment's quotas, in a temporary cluster, from the last checkpoint in `store`.

    A cluster that stalls or loses a process is replaced, and the run continues from its last checkpoint. Raises
    Unfinished if that does not help.
    """
    store = store or Store()
    with store.hold_lock():
        if leftover_folder := store.leftover_cluster():
            stop_leftover(leftover_folder)
            store.record_cluster(None)
        checkpoint = store.read()
        if checkpoint and checkpoint["done"]:
            say("taken from an earlier run")
            return run_of(checkpoint)
        if checkpoint:
            say(f"continues from {checkpoint['now'] / 3600:.1f} h of an earlier run")
        reached, attempts = checkpoint["now"] if checkpoint else -1, 0
        while True:
            try:
                return _attempt(loaded, jobs, say, window, store, start)
            except (LabError, OSError) as error:
                checkpoint = store.read()
                now = checkpoint["now"] if checkpoint else -1
                attempts = 0 if now > reached else attempts + 1
                reached = now
                if attempts >= MAX_ATTEMPTS:
                    run = run_of(checkpoint) if checkpoint else Run((), 0.0, 0, 0)
                    raise Unfinished(str(error), run, max(0, now)) from error
                say(f"{error}; starting another cluster, from {max(0, now) / 3600:.1f} h")


def _attempt(
    loaded: Loaded,
    jobs: Sequence[Job],
    say: Callable[[str], None],
    window: int | None,
    store: Store,
    start: dt.datetime | None,
) -> Run:
    checkpoint = store.read()
    with own_lab(objects.kueue_values(loaded), say, record_folder=store.record_cluster) as cluster:
        plan = make_plan(loaded, loaded.day)
        manifests = list(objects.cluster_objects(plan))
        saved_queues = {identity(item): item for item in checkpoint["queues"]} if checkpoint else {}
        cluster.make(item for item in manifests if identity(item) not in saved_queues)
        for item in saved_queues.values():
            cluster.put_queue(item)
        cluster.wait_until_active(queue.name for queue in plan.cluster_queues if queue.is_open)
        cluster.wait_until_known()
        cluster.watch()
        runner_arguments = (loaded, jobs, cluster, plan, window_of(jobs, window), store)
        if loaded.environment.has_clock:
            return ClockedRunner(*runner_arguments, start=start or first_instant(loaded.day)).run(say)
        return Runner(*runner_arguments).run(say)
