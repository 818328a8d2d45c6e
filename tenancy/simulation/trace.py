"""A trace: the jobs of a simulation, as CSV in the columns of this program."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from tenancy.catalog import vocabulary
from tenancy.planning.common.pools import pools_of
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.problems import Problem, SpecError


@dataclass(frozen=True, slots=True)
class Job:
    """A job that asks for all of its GPUs at once, and keeps them until it ends."""

    name: str
    submit: int
    """Seconds from the start of the trace."""
    tenant: str
    namespace: str
    flavor: str
    gpus: int
    gpus_per_pod: int
    duration: int
    """Seconds that it runs without an eviction."""
    tier: str
    """Tier whose priority class it has."""
    checkpoint: int | None = None
    """Seconds between checkpoints; an eviction loses the work after the last one. None: all work."""
    queue: str | None = None
    """A queue of its namespace. Default: the queue named default."""
    busy: int | None = None
    """Seconds of work after which its GPUs are idle until it ends; at most `duration`. None: they are never idle."""

    def idle_from(self, start: int, saved_seconds: int = 0) -> int | None:
        """Second at which its GPUs become idle after a start at `start` with `saved_seconds` of work saved, or None."""
        return None if self.busy is None or self.busy >= self.duration else start + max(0, self.busy - saved_seconds)


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their submission."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    """Assumptions about facts that the file does not have."""


def select_hours(trace: Trace, begin: int, hours: int) -> Trace:
    """The jobs submitted within `hours` hours from hour `begin`, which becomes the start."""
    begin_second, end_second = begin * 3600, (begin + hours) * 3600
    jobs = tuple(
        replace(job, submit=job.submit - begin_second) for job in trace.jobs if begin_second <= job.submit < end_second
    )
    note = f"hours {begin} to {begin + hours}: {len(jobs)} of {len(trace.jobs)} jobs, on a cluster empty at the start"
    return Trace(jobs, (*trace.notes, note))


def pods_of(gpus: int, node: int) -> int:
    """Devices of each pod: as many as one node has, or the largest number that divides the total evenly."""
    return next(size for size in range(min(gpus, node), 0, -1) if gpus % size == 0)


def per_node(environment: Environment, flavor: str) -> int:
    """Max devices of a flavor on one node, and so of one pod."""
    return max((environment.flavors_of(pool).get(flavor, 0) for pool in environment.pools), default=0)


def write(jobs: Iterable[Job]) -> str:
    """A trace as CSV in the columns of this program."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [
        "submit",
        "name",
        "tenant",
        "namespace",
        "flavor",
        "gpus",
        "gpus-per-pod",
        "duration",
        "tier",
        "checkpoint",
        "queue",
        "busy",
    ]
    writer.writerow(names)
    field_names = {field.name for field in fields(Job)}
    for job in jobs:
        values = {name: getattr(job, name.replace("-", "_")) for name in names if name.replace("-", "_") in field_names}
        writer.writerow(["" if values[name] is None else values[name] for name in names])
    return out.getvalue()


def must_fit(trace: Trace, loaded: Loaded) -> None:
    """Raise SpecError if an environment has no place for a job of a trace that was made for another one."""
    namespaces = {
        (tenant.tenant, namespace.name, flavor): namespace
        for tenant in loaded.tenants
        for namespace in tenant.namespaces
        for flavor in tenant.gpus
        if pools_of(loaded.environment, flavor, tenant.tenant, frozenset({tenant.tier_of(namespace)}))
    }
    misplaced: dict[tuple[str, str, str, str | None], Job] = {}
    for job in trace.jobs:
        namespace = namespaces.get((job.tenant, job.namespace, job.flavor))
        is_known = namespace is not None and job.queue in {None, vocabulary.DEFAULT_QUEUE, *namespace.queues}
        if not is_known or job.tier not in loaded.environment.tiers:
            misplaced.setdefault((job.tenant, job.namespace, job.flavor, job.queue), job)
    if misplaced:
        rule = "the same work runs before the change and after it"
        raise SpecError(
            [
                Problem(
                    "--change",
                    1,
                    1,
                    "",
                    f"no place for job {job.name} of {tenant}: {flavor} in {namespace}"
                    + (f", queue {queue}" if queue else "")
                    + f", tier {job.tier}",
                    rule,
                    "keep it",
                )
                for (tenant, namespace, flavor, queue), job in misplaced.items()
            ]
        )
