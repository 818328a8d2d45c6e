"""A generated day of work, from the tenants' guarantees and a seed; the same seed gives the same work."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenancy.planning.common.pools import pools_of
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.simulation.trace import Job, per_node, pods_of
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.loader import Loaded

HOUR, DAY = 3600, 86400
SIZES = ((1, 40), (2, 18), (4, 16), (8, 16), (16, 5), (32, 3), (64, 2))
"""Devices, and how many of a hundred jobs ask for that number. Public traces agree: most jobs are small, most GPU
time is in the few large ones (Helios SC'21, PAI NSDI'22, Philly ATC'19)."""
MEDIAN, SPREAD = 22 * 60, 1.35
"""Parameters of run times, log-normal; a job of more devices runs longer."""
SHORTEST, LONGEST = 60, 20 * HOUR
CHECKPOINT = 30 * 60
LOAD = 0.4
"""Part of the GPU hours of the guarantees that everyday work asks for."""
BURST = 200
"""Jobs of the team that submits everything at once."""
NOTEBOOK_BUSY, NOTEBOOK_SPREAD = HOUR, 0.8
"""Parameters of the time for which a notebook is used, log-normal."""
NOTEBOOK_OPEN = (6 * HOUR, 12 * HOUR)
"""Time for which a notebook stays open, uniform."""


def generate(loaded: Loaded, jobs: int, hours: int, seed: int, notebooks: int = 0) -> list[Job]:
    """`jobs` jobs over `hours` hours, and `notebooks` whose GPUs become idle, in the order of their submission.

    In addition to the everyday work there are three cases for queues: a large job that borrows for a long time, a
    burst of one team, and production work of a lender that arrives while its GPUs are lent.
    """
    dice = random.Random(f"gpu-tenancy {seed}")
    places = list(_places(loaded))
    if not places or not jobs:
        return []
    special = [*_long(places, hours), *_production(places, hours), *_burst(places, hours, jobs)][: max(0, jobs // 4)]
    everyday = jobs - len(special)
    weights = [math.sqrt(place.guaranteed) if place.guaranteed else 0.7 for place in places]
    everyday_jobs = []
    for _ in range(everyday):
        place = dice.choices(places, weights)[0]
        everyday_jobs.append(_job(dice, place, hours))
    everyday_jobs = _to_load(everyday_jobs, places, hours)
    everyday_jobs = sorted(
        [*everyday_jobs, *special],
        key=lambda job: (job.submit, job.tenant, job.namespace, job.flavor, job.gpus, job.duration),
    )
    named_jobs = [
        replace(job, name=job.name or f"{job.tenant}-{number:04d}") for number, job in enumerate(everyday_jobs)
    ]
    # With dice of their own: the other jobs are the same with and without notebooks.
    notebook_jobs = _notebooks(random.Random(f"gpu-tenancy notebooks {seed}"), places, hours, notebooks)
    return sorted([*named_jobs, *notebook_jobs], key=lambda job: job.submit)


class _WorkloadSlot:
    """A namespace of a tenant, and a flavor that it may use there."""

    def __init__(self, loaded: Loaded, tenant: Tenant, namespace: Namespace, flavor: str) -> None:
        environment = loaded.environment
        self.tenant, self.namespace, self.flavor = tenant.tenant, namespace.name, flavor
        self.tier = tenant.tier_of(namespace)
        self.ceiling = quota_ceiling(environment, tenant, namespace)[flavor]
        self.guaranteed = tenant.guaranteed_in(namespace)[flavor]
        self.may_borrow = tenant.gpus[flavor].borrows if environment.tiers[self.tier].allow_borrowing else 0
        self.lends = tenant.gpus[flavor].lends
        self.priority = environment.tiers[self.tier].priority
        self.interruptible = environment.tiers[self.tier].interruptible
        self.node = per_node(environment, flavor)
        # A job runs in one pool.
        self.largest = min(
            self.ceiling,
            max(
                environment.pools[pool].nodes.max * environment.flavors_of(pool)[flavor]
                for pool in pools_of(environment, flavor, tenant.tenant, frozenset({self.tier}))
            ),
        )
        # Slices are for inference: each job asks for one.
        self.is_whole_gpu = environment.flavors[flavor].mig is None and environment.flavors[flavor].gpu_sharing is None


def _places(loaded: Loaded) -> Iterator[_WorkloadSlot]:
    for tenant in loaded.tenants:
        for namespace in tenant.namespaces:
            for flavor in sorted(tenant.gpus):
                tiers = frozenset({tenant.tier_of(namespace)})
                if pools_of(loaded.environment, flavor, tenant.tenant, tiers):
                    place = _WorkloadSlot(loaded, tenant, namespace, flavor)
                    if place.ceiling:
                        yield place


def _job(dice: random.Random, place: _WorkloadSlot, hours: int) -> Job:
    sizes = [
        (size, weight)
        for size, weight in SIZES
        if size <= max(1, place.largest // 2) and (place.is_whole_gpu or size <= 2)
    ]
    gpus = dice.choices([size for size, _ in sizes], [weight for _, weight in sizes])[0]
    median = MEDIAN * gpus**0.25
    duration = min(LONGEST, max(SHORTEST, round(dice.lognormvariate(math.log(median), SPREAD))))
    return Job(
        name="",
        submit=_arrival(dice, hours),
        tenant=place.tenant,
        namespace=place.namespace,
        flavor=place.flavor,
        gpus=gpus,
        gpus_per_pod=pods_of(gpus, place.node),
        duration=duration,
        tier=place.tier,
        checkpoint=CHECKPOINT if duration > 2 * CHECKPOINT else None,
    )


def _arrival(dice: random.Random, hours: int) -> int:
    """More work by day than by night: twice the average at 14:00, a fifth of it at night."""
    while True:
        second = dice.randrange(hours * HOUR)
        if dice.random() < 0.6 + 0.4 * math.sin(2 * math.pi * (second / DAY - 8 / 24)):
            return second


def _notebooks(dice: random.Random, places: Sequence[_WorkloadSlot], hours: int, count: int) -> Iterator[Job]:
    """Notebooks of one GPU: used for some time, and open for longer. Where a tenant has interruptible work, as idle
    rules suspend no other."""
    gpu_slots = [place for place in places if place.is_whole_gpu]
    notebook_slots = [place for place in gpu_slots if place.interruptible] or gpu_slots
    for number in range(count if notebook_slots else 0):
        place = dice.choice(notebook_slots)
        duration = dice.randint(*NOTEBOOK_OPEN)
        yield Job(
            f"{place.tenant}-notebook-{number:03d}",
            _arrival(dice, hours),
            place.tenant,
            place.namespace,
            place.flavor,
            1,
            1,
            duration,
            place.tier,
            busy=min(duration, round(dice.lognormvariate(math.log(NOTEBOOK_BUSY), NOTEBOOK_SPREAD))),
        )


def _to_load(jobs: list[Job], places: Sequence[_WorkloadSlot], hours: int) -> list[Job]:
    """Scale run times so that the demand for each flavor does not depend on the number of jobs."""
    scaled_jobs = []
    for flavor in sorted({place.flavor for place in places}):
        flavor_jobs = [job for job in jobs if job.flavor == flavor]
        requested = sum(job.gpus * job.duration for job in flavor_jobs)
        available = sum(place.guaranteed for place in places if place.flavor == flavor) * hours * HOUR
        factor = LOAD * available / requested if requested else 1.0
        scaled_jobs += [
            replace(job, duration=min(LONGEST, max(SHORTEST, round(job.duration * factor)))) for job in flavor_jobs
        ]
    return scaled_jobs


def _long(places: Sequence[_WorkloadSlot], hours: int) -> Iterator[Job]:
    """A job of the max size that a tenant may borrow, for a day and a half."""
    place = max(places, key=lambda place: (place.may_borrow, place.tenant))
    if place.may_borrow > place.node:
        gpus = min(place.may_borrow, place.largest) // place.node * place.node
        yield Job(
            f"{place.tenant}-fine-tuning",
            hours * HOUR // 24,
            place.tenant,
            place.namespace,
            place.flavor,
            gpus,
            place.node,
            36 * HOUR,
            place.tier,
            2 * HOUR,
        )


def _production(places: Sequence[_WorkloadSlot], hours: int) -> Iterator[Job]:
    """At noon the lender with the highest priority asks for half of its guarantee, all of which is lent."""
    lenders = [
        place for place in places if place.guaranteed and place.lends and place.may_borrow and place.is_whole_gpu
    ]
    if lenders:
        place = max(lenders, key=lambda place: (place.priority, place.may_borrow, place.guaranteed, place.tenant))
        gpus = max(1, place.guaranteed // 2)
        yield Job(
            f"{place.tenant}-retraining",
            hours * HOUR * 13 // 24,
            place.tenant,
            place.namespace,
            place.flavor,
            gpus,
            pods_of(gpus, place.node),
            6 * HOUR,
            place.tier,
            CHECKPOINT,
        )


def _burst(places: Sequence[_WorkloadSlot], hours: int, jobs: int) -> Iterator[Job]:
    """One of the smaller teams submits all of its jobs at once."""
    borrowers = [place for place in places if place.may_borrow and place.is_whole_gpu and place.guaranteed]
    if borrowers:
        place = min(borrowers, key=lambda place: (place.guaranteed, place.tenant))
        for number in range(min(BURST, jobs // 10)):
            yield Job(
                f"{place.tenant}-sweep-{number:03d}",
                hours * HOUR * 10 // 24,
                place.tenant,
                place.namespace,
                place.flavor,
                1,
                1,
                20 * 60,
                place.tier,
            )
