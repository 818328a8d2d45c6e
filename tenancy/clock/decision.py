"""What the queues should be at an instant: a pure function of the spec, the instant and the record of the month.

GPUs of a window or a further share come in two steps. In its lead they are quota of the reserve queue, in which a
Workload asks for them: the queue lends all that it has, so Kueue has to evict borrowers before it admits the Workload.
At the start, and not before Kueue has admitted it, the quota becomes the tenant's. Quota that moved to the tenant at
once would count as free while borrowers still use the GPUs (v0.19.2 `resource_node.go`, localQuota).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from tenancy.catalog import vocabulary as words
from tenancy.catalog.days import assumed
from tenancy.clock.usage import Usage, next_month
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.model import ClusterQueue, Cohort
from tenancy.planning.queueing.queue_names import ANY_POOL, API, queue_resource
from tenancy.planning.queueing.queues import platform_queues, reserve_queue, tenant_queues
from tenancy.planning.queueing.quota_shares import QueueShare, QuotaCalculator, shares
from tenancy.schema.calendar import MORE_AHEAD
from tenancy.schema.environment import Environment
from tenancy.schema.queues import QueueState, Relief, seconds
from tenancy.schema.shares import WhenSpent
from tenancy.schema.tenant import Tenant

_SEVERITY = (QueueState.OPEN, QueueState.HOLD, QueueState.DRAIN)
KEY = words.PREFIX + "span"
"""Annotation of a reservation: the key of what it reserves."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a tenant has GPUs on top of its guarantee, or the lead of one."""

    tenant: str
    flavor: str
    gpus: int
    start: dt.datetime
    end: dt.datetime
    name: str
    """Of the window; empty for a further share."""

    @property
    def key(self) -> str:
        """One for all spans of a tenant and a flavor that start together."""
        return f"{self.tenant}/{self.flavor}/{self.start.astimezone(dt.UTC):%Y-%m-%dT%H:%MZ}"


@dataclass(frozen=True, slots=True)
class Spent:
    """A budget that is spent and binds."""

    tenant: str
    since: dt.datetime
    over: str
    """By how much of what, such as `412.0 GPU-hours`."""
    opens: dt.datetime
    state: QueueState
    owner: str

    def __str__(self) -> str:
        return (
            f"The budget of {self.since:%Y-%m} was spent on {self.since:%Y-%m-%d}; {self.over} over it; the next "
            f"month starts on {self.opens:%Y-%m-%d} UTC; ask {self.owner}."
        )


class QueueCause(NamedTuple):
    """What the queues depend on besides the files: for equal causes they are equal."""

    day: dt.date
    states: tuple[tuple[str, QueueState], ...]
    """Tenants whose budget is spent, and what that does to their queues."""
    spans: tuple[Span, ...]
    """Those of open queues at the instant, or whose lead has begun."""
    granted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Desired:
    """What the cluster should have at an instant."""

    cause: QueueCause
    cohorts: tuple[Cohort, ...]
    cluster_queues: tuple[ClusterQueue, ...]
    """Every one, whole; the reserve queue too."""
    reservations: tuple[Object, ...]
    """Workloads for which Kueue reclaims GPUs of spans that start soon, or that it has not yet reclaimed."""
    spent: tuple[Spent, ...]
    usage: Usage
    """The given record, with the times at which budgets were found spent and the spans whose GPUs the tenants have."""

    @property
    def queues(self) -> tuple[Object, ...]:
        """Manifests of every Cohort and ClusterQueue."""
        return tuple(each.manifest() for each in (*self.cohorts, *self.cluster_queues))

    def by_place(self) -> dict[tuple[str, str], Cohort | ClusterQueue]:
        """Every Cohort and ClusterQueue by kind and name."""
        kinds = (("Cohort", self.cohorts), ("ClusterQueue", self.cluster_queues))
        return {(kind, each.name): each for kind, those in kinds for each in those}


def desired(
    environment: Environment,
    tenants: Sequence[Tenant],
    now: dt.datetime,
    usage: Usage,
    admitted: Collection[str] = (),
    before: Desired | None = None,
) -> Desired:
    """The queues at `now` (with a zone). The specs must be valid together; `admitted` are keys of spans all of whose
    reservations Kueue has admitted. `before` saves time and changes nothing: a decision by the same specs, whose queues
    are taken if their cause is the same."""
    present = active_tenants(sorted((t.named(environment.namespace_name) for t in tenants), key=lambda t: t.tenant))
    spent = tuple(found for tenant in present if (found := _spent(environment, tenant, now, usage)))
    states = {each.tenant: each.state for each in spent}
    there = [
        tenant.model_copy(update={"queue": max(tenant.queue, states[tenant.tenant], key=_SEVERITY.index)})
        if tenant.tenant in states
        else tenant
        for tenant in present
    ]
    # A tenant whose queue is stopped has no window: its GPUs would be idle.
    spans = [span for tenant in there if tenant.queue is QueueState.OPEN for span in spans_at(tenant, now)]
    granted = frozenset(s.key for s in spans if s.start <= now and (s.key in usage.granted or s.key in admitted))
    more = _counted(span for span in spans if span.key in granted)
    cause = QueueCause(now.astimezone(dt.UTC).date(), tuple(states.items()), tuple(spans), granted)
    noted = replace(usage, spent={each.tenant: each.since for each in spent}, granted=granted)
    if before and before.cause == cause:
        return replace(before, spent=spent, usage=noted)
    with assumed(cause.day):
        calculator = QuotaCalculator(environment)
        found = shares(environment, there, more)
        waiting = [span for span in spans if span.key not in granted]
        reserved = tuple(_reserved(environment, there, more, waiting, found))
        counts: dict[str, dict[str, int]] = {}
        for each in reserved:
            of = counts.setdefault(each.pool, {})
            of[each.flavor] = of.get(each.flavor, 0) + each.gpus
        # What is reserved is no longer the organisation's.
        holders = {**found, words.RESERVE_QUEUE: QueueShare({words.RESERVE_QUEUE: counts})}
        cohorts = list(platform_queues(environment, there, holders, calculator).cohorts)
        queues = [reserve_queue(environment, calculator, counts)]
        for tenant in there:
            cohort, made = tenant_queues(environment, tenant, found[tenant.tenant], calculator)
            cohorts += [cohort] if cohort else []
            queues += made
    reservations = tuple(_reservation(environment, calculator, each) for each in reserved)
    return Desired(cause, tuple(cohorts), tuple(queues), reservations, spent, noted)


def relief(environment: Environment, tenant: Tenant | None, now: dt.datetime) -> Relief | None:
    """Why the tenant's budget does not bind at the instant: the environment's relief, or its own."""
    given = (environment.queues.relief, tenant.budget.relief if tenant and tenant.budget else None)
    day = now.astimezone(dt.UTC).date()
    return next((each for each in given if each and day <= each.until), None)


def spans_at(tenant: Tenant, now: dt.datetime) -> Iterator[Span]:
    """The tenant's windows and further shares at the instant, and those whose lead has begun."""
    for window in tenant.windows:
        if found := window.at(now):
            yield Span(tenant.tenant, window.flavor, window.gpus, found.start, found.end, window.name)
    for flavor, share in tenant.gpus.items():
        for more in share.more:
            start, end = more.interval
            if start - MORE_AHEAD <= now < end:
                yield Span(tenant.tenant, flavor, more.gpus, start, end, "")


def _counted(spans: Iterable[Span]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for span in spans:
        found[span.tenant, span.flavor] += span.gpus
    return found


@dataclass(frozen=True, slots=True)
class _Reserved:
    """GPUs of one pool that are reserved for spans of one key."""

    key: str
    tenant: str
    flavor: str
    pool: str
    gpus: int
    start: dt.datetime


def _reserved(
    environment: Environment,
    tenants: Sequence[Tenant],
    more: Mapping[tuple[str, str], int],
    waiting: Iterable[Span],
    found: Mapping[str, QueueShare],
) -> Iterator[_Reserved]:
    """Where the spans will have their GPUs: what they add to each pool, those that start first placed first."""
    so_far, before = Counter(more), found
    for _, together in groupby(sorted(waiting, key=lambda span: span.start), key=lambda span: span.start):
        group = list(together)
        spans = {(span.tenant, span.flavor): span for span in group}
        so_far.update(_counted(group))
        after = shares(environment, tenants, so_far)
        for (tenant, flavor), span in sorted(spans.items()):
            for pool in environment.pools:
                gpus = after[tenant].guaranteed(pool, flavor) - before[tenant].guaranteed(pool, flavor)
                if gpus > 0:
                    yield _Reserved(span.key, tenant, flavor, pool, gpus, span.start)
        before = after


def _reservation(environment: Environment, calculator: QuotaCalculator, reserved: _Reserved) -> Object:
    """A Workload without a job: Kueue evicts borrowers for it and admits it, and nothing starts. Each GPU comes with
    its part of a node's CPU and memory, as in every quota."""
    each = calculator.all({reserved.pool: {reserved.flavor: 1}})
    amounts = {
        queue_resource(environment, reserved.flavor): "1",
        "cpu": f"{each[ANY_POOL, 'cpu']}m",
        "memory": f"{each[ANY_POOL, 'memory']}Mi",
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {words.POOL: reserved.pool},
        "containers": [{"name": "none", "image": "none", "resources": {"requests": amounts, "limits": amounts}}],
    }
    podset = {"name": "main", "count": reserved.gpus, "template": {"spec": pod}}
    name = f"{reserved.tenant}.{reserved.flavor}.{reserved.pool}.{reserved.start.astimezone(dt.UTC):%Y%m%d%H%M}"
    return manifest(
        API,
        "Workload",
        name,
        platform_labels(environment),
        {"spec": {"queueName": words.RESERVE_QUEUE, "podSets": [podset]}},
        words.PLATFORM_NAMESPACE,
        {KEY: reserved.key},
    )


def _spent(environment: Environment, tenant: Tenant, now: dt.datetime, usage: Usage) -> Spent | None:
    budget = tenant.budget
    if relief(environment, tenant, now):
        return None
    if budget is None or budget.when_spent is WhenSpent.ALERT or usage.month != f"{now.astimezone(dt.UTC):%Y-%m}":
        return None
    over = []
    hours = usage.gpu_hours(tenant.tenant)
    if budget.monthly_gpu_hours is not None and hours >= budget.monthly_gpu_hours:
        over.append(f"{hours - budget.monthly_gpu_hours:,.1f} GPU-hours")
    prices = environment.prices
    if prices and (dollars := usage.dollars(tenant.tenant, prices)) >= budget.monthly_usd:
        over.append(f"${dollars - budget.monthly_usd:,.2f}")
    if not over:
        return None
    since = usage.spent.get(tenant.tenant, now)
    late = budget.when_spent is WhenSpent.STOP and now - since >= dt.timedelta(seconds=seconds(budget.grace))
    state = QueueState.DRAIN if late else QueueState.HOLD
    return Spent(tenant.tenant, since, " and ".join(over), next_month(now), state, tenant.owner.name)
