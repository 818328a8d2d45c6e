"""Results of a run: waiting times, borrowing, cost of evictions, and fairness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tenancy.catalog import boards
from tenancy.catalog.waits import percentile
from tenancy.planning.queueing.quota_shares import QueueShare, shares, supply
from tenancy.simulation.events import ENDS, EventKind, Run
from tenancy.simulation.idling import idle_times
from tenancy.simulation.trace import Job
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import Loaded

HOUR = 3600
BINS = 96
"""Number of time intervals in charts; a quarter of an hour each for a day."""
LONGEST_WAITS = 10


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from submission to the first start."""

    jobs: int
    never: int
    """Jobs that did not start. They count as waiting longer than all others."""
    p50: int | None
    """None if that job never started, or if there are no jobs; the same for p95 and max."""
    p95: int | None
    max: int | None
    mean: int | None
    """Mean of the jobs that started."""


@dataclass(frozen=True, slots=True)
class Group:
    """A tenant, or a tier."""

    name: str
    waits: Waits
    used: float
    """GPU hours; a slice counts as its part of a GPU."""
    guaranteed: float
    """Part of these within the own guarantee."""
    borrowed: float
    lent: float
    """GPU hours of the own guarantee that other tenants used."""
    evictions: int
    lost: float
    """GPU hours of work that evictions threw away."""
    idle: float = 0.0
    """GPU hours that were held while the GPUs were idle."""
    suspended: int = 0
    """Jobs that idle rules ended."""
    back: float = 0.0
    """GPU hours for which suspended jobs would have kept their GPUs."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Use of a pool's GPUs."""

    name: str
    gpus: float
    used: float
    """GPU hours."""
    share: float
    """Part of the pool's GPUs, from 0 to 1."""
    most: float
    """Max GPUs in use at once."""
    busy: float = 0.0
    """Part of the pool's GPUs that were in use and not idle."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A job that waited long, and the reason."""

    job: str
    tenant: str
    gpus: int
    flavor: str
    submit: int
    waited: int
    started: bool
    reason: str
    """Kueue's last message before it started."""
    above: dict[str, float]
    """Tenants above their guarantee of that flavor when the job was submitted, and by how many GPUs."""


@dataclass(frozen=True, slots=True)
class Results:
    """The numbers of one simulation."""

    hours: float
    jobs: int
    tenants: tuple[Group, ...]
    tiers: tuple[Group, ...]
    pools: tuple[PoolUse, ...]
    evictions: dict[str, dict[str, int]]
    """Preempting tenant -> evicted tenant -> number of evictions."""
    longest: tuple[Wait, ...]
    bin_seconds: float
    use: dict[str, tuple[float, ...]]
    """Tenant -> average GPUs in use in each time interval."""
    pool_use: dict[str, tuple[float, ...]]
    """Pool -> part of its GPUs in use."""
    borrowing: dict[str, tuple[float, ...]]
    waiting: tuple[float, ...]
    """GPUs that waiting jobs ask for."""
    evicted: tuple[int, ...]
    fairness: tuple[float | None, ...]
    """Jain's index of borrowed GPUs divided by weight, among tenants that borrow or wait to; None without any."""
    all_waits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Tenant -> every waiting time, ascending."""
    capacity: float = 0.0
    """GPUs of all pools."""
    activity: bool = False
    """Whether the trace says when GPUs become idle; if not, all that are in use count as busy."""

    @property
    def mean_fairness(self) -> float | None:
        """Mean of the fairness of borrowing over time; None if nothing was borrowed."""
        values = [value for value in self.fairness if value is not None]
        return sum(values) / len(values) if values else None


def gpu_part(environment: Environment, pool: str, flavor: str) -> Fraction:
    """The part of a GPU that one device of a flavor is."""
    flavor_spec, sharing = environment.flavors[flavor], environment.pools[pool].gpu_sharing
    if flavor_spec.mig:
        board = boards.BOARDS[flavor_spec.gpu]
        return Fraction(board.profiles[flavor_spec.mig].compute, board.compute_slices)
    return Fraction(1, sharing.replicas) if sharing else Fraction(1)


def jain(values: Iterable[float]) -> float | None:
    """Jain's index: 1 if all values are equal, 1/n if one of n has everything."""
    numbers = list(values)
    squares = sum(value * value for value in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else None


def lending(idle: Mapping[str, float], borrowed: float, spare: float) -> dict[str, float]:
    """Idle guarantees in use by others, by tenant: unallocated GPUs are used first, then idle ones in proportion."""
    lent_total, idle_total = max(0.0, borrowed - spare), sum(idle.values())
    return {name: count * min(1.0, lent_total / idle_total) for name, count in idle.items()} if idle_total else {}


def evaluate(loaded: Loaded, jobs: Sequence[Job], run: Run, seconds: int) -> Results:
    """The results of a run over `seconds` from its start; waiting times include every job."""
    return _Evaluation(loaded, jobs, run, seconds).results()


class _Evaluation:
    def __init__(self, loaded: Loaded, jobs: Sequence[Job], run: Run, seconds: int) -> None:
        self.environment, self.jobs, self.run, self.end = loaded.environment, jobs, run, max(1, seconds)
        self.tenants = {tenant.tenant: tenant for tenant in loaded.tenants if tenant.gpus}
        self.shares: dict[str, QueueShare] = shares(
            self.environment, sorted(loaded.tenants, key=lambda t: t.tenant), loaded.day
        )
        supplies = supply(self.environment, loaded.day, always_on=False)
        self.supply = {(pool, flavor): count for flavor, pools in supplies.items() for pool, count in pools.items()}
        self.part = {key: float(gpu_part(self.environment, *key)) for key in self.supply}
        promised: Counter[tuple[str, str]] = Counter()
        for share in self.shares.values():
            for key in self.supply:
                promised[key] += share.guaranteed(*key)
        self.spare = {key: max(0, count - promised[key]) for key, count in self.supply.items()}
        self.bin = self.end / BINS
        self.borrowers = {
            (tenant.tenant, part.name, flavor)
            for tenant in self.tenants.values()
            for part in tenant.namespaces
            for flavor, share in tenant.gpus.items()
            if share.borrows and self.environment.tiers[tenant.tier_of(part)].allow_borrowing
        }

    def results(self) -> Results:
        self._sweep()
        first_starts = self._starts()
        waits: dict[str, list[int]] = defaultdict(list)
        tier_waits: dict[str, list[int]] = defaultdict(list)
        never: Counter[str] = Counter()
        # In an interrupted run the other jobs are not submitted yet.
        submitted = {event.job for event in self.run.events if event.kind is EventKind.SUBMIT}
        for number, job in enumerate(self.jobs):
            if number not in submitted:
                continue
            if number in first_starts:
                waits[job.tenant].append(first_starts[number] - job.submit)
                tier_waits[job.tier].append(first_starts[number] - job.submit)
            else:
                never[job.tenant] += 1
                never[f"tier {job.tier}"] += 1
        capacity = sum(count * self.part[key] for key, count in self.supply.items())
        names = sorted({job.tenant for job in self.jobs} | {name for name in self.tenants if self.lent_hours[name] > 0})
        return Results(
            hours=self.end / HOUR,
            jobs=len(submitted),
            tenants=tuple(self._group(name, waits[name], never[name]) for name in names),
            tiers=tuple(
                self._tier(name, tier_waits[name], never[f"tier {name}"])
                for name in sorted({job.tier for job in self.jobs})
            ),
            pools=tuple(self._pools()),
            evictions={
                preemptor: dict(sorted(counts.items())) for preemptor, counts in sorted(self._evictions().items())
            },
            longest=tuple(self._longest(first_starts)),
            bin_seconds=self.bin,
            use={name: tuple(values) for name, values in sorted(self.use_bins.items())},
            pool_use={name: tuple(values) for name, values in sorted(self.pool_bins.items())},
            borrowing={name: tuple(values) for name, values in sorted(self.borrow_bins.items())},
            waiting=tuple(self.wait_bins),
            evicted=tuple(self.evicted_bins),
            fairness=tuple(self._fairness()),
            all_waits={name: tuple(sorted(values)) for name, values in sorted(waits.items())},
            capacity=capacity,
            activity=any(job.busy is not None for job in self.jobs),
        )

    # Over time

    def _sweep(self) -> None:
        """Process all events, adding up the GPUs in use between each event and the next."""
        usage: Counter[tuple[str, str, str]] = Counter()
        waiting: dict[int, None] = {}
        self.hours: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.tier_hours: defaultdict[str, float] = defaultdict(float)
        self.guarantee_hours: defaultdict[str, float] = defaultdict(float)
        self.borrowed_hours: defaultdict[str, float] = defaultdict(float)
        self.lent_hours: defaultdict[str, float] = defaultdict(float)
        self.max_in_use: defaultdict[str, float] = defaultdict(float)
        self.use_bins: dict[str, list[float]] = defaultdict(lambda: [0.0] * BINS)
        self.borrow_bins: dict[str, list[float]] = defaultdict(lambda: [0.0] * BINS)
        self.wanting: list[set[str]] = [set() for _ in range(BINS)]
        self.pool_bins = {pool: [0.0] * BINS for pool, _ in self.supply}
        self.wait_bins, self.evicted_bins = [0.0] * BINS, [0] * BINS
        self.idle: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.returned_hours: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.suspended: Counter[tuple[str, str]] = Counter()
        self.tier_lost: defaultdict[str, float] = defaultdict(float)
        self.tier_evictions: Counter[str] = Counter()
        self.lost_hours: defaultdict[str, float] = defaultdict(float)
        self.evictions: Counter[str] = Counter()
        self.tenants_above: dict[int, dict[str, float]] = {}
        running_pools: dict[int, str] = {}
        tiers: defaultdict[str, float] = defaultdict(float)
        last_time = 0
        for event in self.run.events:
            self._between(last_time, event.time, usage, waiting, tiers)
            last_time, job = event.time, self.jobs[event.job]
            if event.kind is EventKind.SUBMIT:
                waiting[event.job] = None
                self.tenants_above[event.job] = self._tenants_above(usage, job.flavor)
            elif event.kind is EventKind.START:
                waiting.pop(event.job, None)
                running_pools[event.job] = event.pool
                usage[job.tenant, event.pool, job.flavor] += job.gpus
                tiers[job.tier] += job.gpus * self._unit_costs(event.pool, job.flavor)
                self.max_in_use[event.pool] = max(self.max_in_use[event.pool], self._in_pool(usage, event.pool))
            elif event.kind in ENDS and event.job in running_pools:
                pool = running_pools.pop(event.job)
                usage[job.tenant, pool, job.flavor] -= job.gpus
                tiers[job.tier] -= job.gpus * self._unit_costs(pool, job.flavor)
                if event.kind is EventKind.EVICT:
                    waiting[event.job] = None
                    lost_hours = event.lost_seconds * job.gpus * self._unit_costs(pool, job.flavor) / HOUR
                    self.lost_hours[job.tenant] += lost_hours
                    self.evictions[job.tenant] += 1
                    self.tier_lost[job.tier] += lost_hours
                    self.tier_evictions[job.tier] += 1
                    if event.time < self.end:
                        self.evicted_bins[int(event.time / self.bin)] += 1
                elif event.kind is EventKind.SUSPEND:
                    returned_hours = event.returned_seconds * job.gpus * self._unit_costs(pool, job.flavor) / HOUR
                    for name in (("tenant", job.tenant), ("tier", job.tier)):
                        self.suspended[name] += 1
                        self.returned_hours[name] += returned_hours
        self._between(last_time, self.end, usage, waiting, tiers)
        self._idle()

    def _idle(self) -> None:
        """Add up the GPU hours that are held by jobs whose GPUs are idle."""
        for number, pool, begin, end in idle_times(self.jobs, self.run, self.end):
            job = self.jobs[number]
            hours = (end - begin) * job.gpus * self._unit_costs(pool, job.flavor) / HOUR
            for name in (("tenant", job.tenant), ("tier", job.tier), ("pool", pool)):
                self.idle[name] += hours

    def _unit_costs(self, pool: str, flavor: str) -> float:
        return self.part[pool, flavor]

    def _in_pool(self, usage: Mapping[tuple[str, str, str], int], pool: str) -> float:
        return sum(
            count * self._unit_costs(pool, flavor)
            for (_, used_pool, flavor), count in usage.items()
            if used_pool == pool
        )

    def _between(
        self,
        begin: int,
        end: int,
        usage: Mapping[tuple[str, str, str], int],
        waiting: Mapping[int, None],
        tiers: Mapping[str, float],
    ) -> None:
        end = min(end, self.end)
        if end <= begin:
            return
        guaranteed, borrowed, lent_gpus = self._balance(usage)
        hours = (end - begin) / HOUR
        spans = list(self._spans(begin, end))
        for (tenant, pool, flavor), count in usage.items():
            if count:
                gpus = count * self._unit_costs(pool, flavor)
                self.hours[tenant, pool] += gpus * hours
                for place, part in spans:
                    self.use_bins[tenant][place] += gpus * part
                    self.pool_bins[pool][place] += gpus * part
        for tier, gpus in tiers.items():
            self.tier_hours[tier] += gpus * hours
        for tenant in self.tenants:
            self.guarantee_hours[tenant] += guaranteed[tenant] * hours
            self.borrowed_hours[tenant] += borrowed[tenant] * hours
            self.lent_hours[tenant] += lent_gpus[tenant] * hours
            if borrowed[tenant]:
                for place, part in spans:
                    self.borrow_bins[tenant][place] += borrowed[tenant] * part
                    self.wanting[place].add(tenant)
        for number in waiting:
            job = self.jobs[number]
            for place, part in spans:
                self.wait_bins[place] += job.gpus * part
                if (job.tenant, job.namespace, job.flavor) in self.borrowers:
                    self.wanting[place].add(job.tenant)

    def _spans(self, begin: int, end: int) -> Iterable[tuple[int, float]]:
        """The bins that a time span overlaps, and the length of each overlap."""
        place = int(begin / self.bin)
        while place < BINS and place * self.bin < end:
            yield place, (min(end, (place + 1) * self.bin) - max(begin, place * self.bin)) / self.bin
            place += 1

    def _balance(
        self, usage: Mapping[tuple[str, str, str], int]
    ) -> tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]]:
        """GPUs in use within the guarantees, above them, and the tenants whose idle GPUs these are."""
        guaranteed: defaultdict[str, float] = defaultdict(float)
        borrowed: defaultdict[str, float] = defaultdict(float)
        lent_gpus: defaultdict[str, float] = defaultdict(float)
        for (pool, flavor), part in self.part.items():
            borrowed_total, idle = 0, {}
            for tenant, share in self.shares.items():
                guarantee, count = share.guaranteed(pool, flavor), usage.get((tenant, pool, flavor), 0)
                guaranteed[tenant] += min(guarantee, count) * part
                borrowed[tenant] += max(0, count - guarantee) * part
                borrowed_total += max(0, count - guarantee)
                if lendable := min(max(0, guarantee - count), share.lending.get(pool, {}).get(flavor, 0)):
                    idle[tenant] = float(lendable)
            for tenant, count in lending(idle, borrowed_total, self.spare[pool, flavor]).items():
                lent_gpus[tenant] += count * part
        return guaranteed, borrowed, lent_gpus

    def _tenants_above(self, usage: Mapping[tuple[str, str, str], int], flavor: str) -> dict[str, float]:
        """Tenants with more of a flavor than their guarantee, the largest first."""
        excess_by_tenant: Counter[str] = Counter()
        for (tenant, pool, used_flavor), count in usage.items():
            excess = count - self.shares[tenant].guaranteed(pool, flavor) if used_flavor == flavor else 0
            if excess > 0:
                excess_by_tenant[tenant] += excess
        return dict(sorted(excess_by_tenant.items(), key=lambda item: (-item[1], item[0]))[:3])

    def _fairness(self) -> Iterable[float | None]:
        for place in range(BINS):
            wanting = self.wanting[place]
            if len(wanting) < 2:
                yield None
                continue
            weights = self._weights(wanting)
            yield jain(
                self.borrow_bins[name][place] / weights[name] if name in self.borrow_bins else 0.0 for name in wanting
            )

    def _weights(self, names: Iterable[str]) -> dict[str, float]:
        """Weight of a tenant: its department's weight times its share among the department's tenants with demand."""
        names = list(names)
        department_weights: Counter[str] = Counter()
        for name in names:
            department_weights[self.tenants[name].department] += self.tenants[name].weight
        departments = self.environment.organisation.departments
        return {
            name: departments[self.tenants[name].department].weight
            * self.tenants[name].weight
            / department_weights[self.tenants[name].department]
            for name in names
        }

    # Sums

    def _starts(self) -> dict[int, int]:
        first_starts: dict[int, int] = {}
        for event in self.run.events:
            if event.kind is EventKind.START:
                first_starts.setdefault(event.job, event.time)
        return first_starts

    def _group(self, name: str, waits: list[int], never: int) -> Group:
        used_hours = sum(hours for (tenant, _), hours in self.hours.items() if tenant == name)
        return Group(
            name,
            waits_of(waits, never),
            used_hours,
            self.guarantee_hours[name],
            self.borrowed_hours[name],
            self.lent_hours[name],
            self.evictions[name],
            self.lost_hours[name],
            *self._wasted("tenant", name),
        )

    def _wasted(self, kind: str, name: str) -> tuple[float, int, float]:
        return self.idle[kind, name], self.suspended[kind, name], self.returned_hours[kind, name]

    def _tier(self, name: str, waits: list[int], never: int) -> Group:
        return Group(
            name,
            waits_of(waits, never),
            self.tier_hours[name],
            0.0,
            0.0,
            0.0,
            self.tier_evictions[name],
            self.tier_lost[name],
            *self._wasted("tier", name),
        )

    def _pools(self) -> Iterable[PoolUse]:
        for pool in sorted({pool for pool, _ in self.supply}):
            gpus = sum(count * self.part[key] for key, count in self.supply.items() if key[0] == pool)
            if not gpus:
                continue
            used_hours = sum(hours for (_, used_pool), hours in self.hours.items() if used_pool == pool)
            self.pool_bins[pool] = [value / gpus for value in self.pool_bins[pool]]
            available_hours = gpus * self.end / HOUR
            busy = used_hours - self.idle["pool", pool]
            yield PoolUse(
                pool, gpus, used_hours, used_hours / available_hours, self.max_in_use[pool], busy / available_hours
            )

    def _evictions(self) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for event in self.run.events:
            if event.kind is EventKind.EVICT:
                if event.preemptor is None:
                    preemptor = "?"
                else:
                    preemptor = self.jobs[event.preemptor].tenant if event.preemptor < len(self.jobs) else "a window"
                counts[preemptor][self.jobs[event.job].tenant] += 1
        return counts

    def _longest(self, first_starts: Mapping[int, int]) -> Iterable[Wait]:
        reasons: dict[int, str] = {}
        for event in self.run.events:
            if event.kind is EventKind.WAIT and event.time <= first_starts.get(event.job, event.time):
                reasons[event.job] = event.text
        end = max([event.time for event in self.run.events], default=0)
        waited = {number: first_starts.get(number, end) - job.submit for number, job in enumerate(self.jobs)}
        for number in sorted(waited, key=lambda number: (-waited[number], number in first_starts, number))[
            :LONGEST_WAITS
        ]:
            if not waited[number] and number in first_starts:
                return
            job = self.jobs[number]
            equivalent_reason = next(
                (reasons[candidate] for candidate in reasons if self._is_equivalent(self.jobs[candidate], job)),
                "nothing: it waits for its like",
            )
            yield Wait(
                job.name,
                job.tenant,
                job.gpus,
                job.flavor,
                job.submit,
                waited[number],
                number in first_starts,
                reasons.get(number, equivalent_reason),
                self.tenants_above.get(number, {}),
            )

    @staticmethod
    def _is_equivalent(first: Job, second: Job) -> bool:
        return (first.tenant, first.namespace, first.flavor, first.gpus) == (
            second.tenant,
            second.namespace,
            second.flavor,
            second.gpus,
        )


def waits_of(values: list[int], never: int) -> Waits:
    """Summary of waiting times, in seconds; `never` counts jobs that did not start."""
    values = sorted(values)
    mean = round(sum(values) / len(values)) if values else None
    return Waits(
        len(values) + never,
        never,
        percentile(values, 0.5, never),
        percentile(values, 0.95, never),
        percentile(values, 1.0, never),
        mean,
    )
