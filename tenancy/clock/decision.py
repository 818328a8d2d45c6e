"""Quotas and states of the queues at an instant: a pure function of the spec, the instant and the record of the month.

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

from tenancy.catalog import vocabulary
from tenancy.clock.usage import Usage, next_month
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.queue_names import ANY_POOL, API, queue_resource
from tenancy.planning.queueing.queue_objects import ClusterQueue, Cohort
from tenancy.planning.queueing.queues import platform_queues, reserve_queue, tenant_queues
from tenancy.planning.queueing.quota_shares import QueueShare, QuotaCalculator, shares
from tenancy.spec.fields.calendar import TEMPORARY_SHARE_LEAD
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import BudgetExemption, StopPolicy, seconds
from tenancy.spec.fields.shares import WhenSpent
from tenancy.spec.fields.tenant import Tenant

_SEVERITY = (StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)
KEY = vocabulary.PREFIX + "span"
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
    """Name of the window; empty for a further share."""

    @property
    def key(self) -> str:
        """One for all spans of a tenant and a flavor that start together."""
        return f"{self.tenant}/{self.flavor}/{self.start.astimezone(dt.UTC):%Y-%m-%dT%H:%MZ}"


@dataclass(frozen=True, slots=True)
class ExhaustedBudget:
    """A budget that is spent and binds."""

    tenant: str
    since: dt.datetime
    excess: str
    """By how much of what, such as `412.0 GPU-hours`."""
    opens: dt.datetime
    state: StopPolicy
    owner: str

    def __str__(self) -> str:
        return (
            f"The budget of {self.since:%Y-%m} was spent on {self.since:%Y-%m-%d}; {self.excess} over it; the next "
            f"month starts on {self.opens:%Y-%m-%d} UTC; ask {self.owner}."
        )


class QueueCause(NamedTuple):
    """Facts that the queues depend on besides the files: for equal causes they are equal."""

    day: dt.date
    states: tuple[tuple[str, StopPolicy], ...]
    """Tenants whose budget is spent, and what that does to their queues."""
    spans: tuple[Span, ...]
    """Those of open queues at the instant, or whose lead has begun."""
    granted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Desired:
    """Objects that the cluster should have at an instant."""

    cause: QueueCause
    cohorts: tuple[Cohort, ...]
    cluster_queues: tuple[ClusterQueue, ...]
    """Every one, whole; the reserve queue too."""
    reservations: tuple[Object, ...]
    """Workloads for which Kueue reclaims GPUs of spans that start soon, or that it has not yet reclaimed."""
    exhausted_budgets: tuple[ExhaustedBudget, ...]
    usage: Usage
    """The given record, with the times at which budgets were found spent and the spans whose GPUs the tenants have."""

    @property
    def queues(self) -> tuple[Object, ...]:
        """Manifests of every Cohort and ClusterQueue."""
        return tuple(queue.manifest() for queue in (*self.cohorts, *self.cluster_queues))

    def by_place(self) -> dict[tuple[str, str], Cohort | ClusterQueue]:
        """Every Cohort and ClusterQueue by kind and name."""
        kinds = (("Cohort", self.cohorts), ("ClusterQueue", self.cluster_queues))
        return {(kind, queue.name): queue for kind, queues in kinds for queue in queues}


def desired(
    environment: Environment,
    tenants: Sequence[Tenant],
    now: dt.datetime,
    usage: Usage,
    admitted: Collection[str] = (),
    former: Desired | None = None,
) -> Desired:
    """The queues at `now` (with a zone). The specs must be valid together; `admitted` are keys of spans all of whose
    reservations Kueue has admitted. `former` saves time and changes nothing: a decision by the same specs, whose queues
    are taken if their cause is the same."""
    present = active_tenants(sorted(tenants, key=lambda tenant: tenant.tenant))
    exhausted = tuple(budget for tenant in present if (budget := _exhausted_budget(environment, tenant, now, usage)))
    states = {budget.tenant: budget.state for budget in exhausted}
    effective_tenants = [
        tenant.model_copy(update={"stop_policy": max(tenant.stop_policy, states[tenant.tenant], key=_SEVERITY.index)})
        if tenant.tenant in states
        else tenant
        for tenant in present
    ]
    # A tenant whose queue is stopped has no window: its GPUs would be idle.
    spans = [
        span for tenant in effective_tenants if tenant.stop_policy is StopPolicy.NONE for span in spans_at(tenant, now)
    ]
    granted = frozenset(s.key for s in spans if s.start <= now and (s.key in usage.granted or s.key in admitted))
    extra_gpus = _gpus_by_flavor(span for span in spans if span.key in granted)
    cause = QueueCause(now.astimezone(dt.UTC).date(), tuple(states.items()), tuple(spans), granted)
    new_usage = replace(usage, spent_since={budget.tenant: budget.since for budget in exhausted}, granted=granted)
    if former and former.cause == cause:
        return replace(former, exhausted_budgets=exhausted, usage=new_usage)
    calculator = QuotaCalculator(environment, cause.day)
    current_shares = shares(environment, effective_tenants, cause.day, extra_gpus)
    waiting = [span for span in spans if span.key not in granted]
    reserved = tuple(_reserved_gpus(environment, effective_tenants, cause.day, extra_gpus, waiting, current_shares))
    counts: dict[str, dict[str, int]] = {}
    for reserved_part in reserved:
        flavor_counts = counts.setdefault(reserved_part.pool, {})
        flavor_counts[reserved_part.flavor] = flavor_counts.get(reserved_part.flavor, 0) + reserved_part.gpus
    # What is reserved is no longer the organisation's.
    holders = {**current_shares, vocabulary.RESERVE_QUEUE: QueueShare({vocabulary.RESERVE_QUEUE: counts})}
    cohorts = list(platform_queues(environment, effective_tenants, holders, calculator).cohorts)
    queues = [reserve_queue(environment, calculator, counts)]
    for tenant in effective_tenants:
        cohort, own_queues = tenant_queues(environment, tenant, current_shares[tenant.tenant], calculator)
        cohorts += [cohort] if cohort else []
        queues += own_queues
    reservations = tuple(_reservation(environment, calculator, reserved_part) for reserved_part in reserved)
    return Desired(cause, tuple(cohorts), tuple(queues), reservations, exhausted, new_usage)


def budget_exemption(environment: Environment, tenant: Tenant | None, now: dt.datetime) -> BudgetExemption | None:
    """Why the tenant's budget does not bind at the instant: the environment's relief, or its own."""
    exemptions = (environment.queues.budget_exemption, tenant.budget.exemption if tenant and tenant.budget else None)
    day = now.astimezone(dt.UTC).date()
    return next((exemption for exemption in exemptions if exemption and day <= exemption.until), None)


def spans_at(tenant: Tenant, now: dt.datetime) -> Iterator[Span]:
    """The tenant's windows and further shares at the instant, and those whose lead has begun."""
    for window in tenant.gpu_windows:
        if interval := window.interval_at(now):
            yield Span(tenant.tenant, window.flavor, window.gpus, interval.start, interval.end, window.name)
    for flavor, share in tenant.gpus.items():
        for more in share.temporary_shares:
            start, end = more.interval
            if start - TEMPORARY_SHARE_LEAD <= now < end:
                yield Span(tenant.tenant, flavor, more.gpus, start, end, "")


def _gpus_by_flavor(spans: Iterable[Span]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for span in spans:
        counts[span.tenant, span.flavor] += span.gpus
    return counts


@dataclass(frozen=True, slots=True)
class _Reserved:
    """GPUs of one pool that are reserved for spans of one key."""

    key: str
    tenant: str
    flavor: str
    pool: str
    gpus: int
    start: dt.datetime


def _reserved_gpus(
    environment: Environment,
    tenants: Sequence[Tenant],
    day: dt.date,
    more: Mapping[tuple[str, str], int],
    waiting: Iterable[Span],
    current_shares: Mapping[str, QueueShare],
) -> Iterator[_Reserved]:
    """Pools in which the spans will have their GPUs, by what they add to each; those that start first are placed
    first."""
    total_gpus, former_shares = Counter(more), current_shares
    for _, together in groupby(sorted(waiting, key=lambda span: span.start), key=lambda span: span.start):
        group = list(together)
        spans = {(span.tenant, span.flavor): span for span in group}
        total_gpus.update(_gpus_by_flavor(group))
        new_shares = shares(environment, tenants, day, total_gpus)
        for (tenant, flavor), span in sorted(spans.items()):
            for pool in environment.pools:
                gpus = new_shares[tenant].guaranteed(pool, flavor) - former_shares[tenant].guaranteed(pool, flavor)
                if gpus > 0:
                    yield _Reserved(span.key, tenant, flavor, pool, gpus, span.start)
        former_shares = new_shares


def _reservation(environment: Environment, calculator: QuotaCalculator, reserved: _Reserved) -> Object:
    """A Workload without a job: Kueue evicts borrowers for it and admits it, and nothing starts. Each GPU comes with
    its part of a node's CPU and memory, as in every quota."""
    unit = calculator.quota_with_cpu({reserved.pool: {reserved.flavor: 1}})
    amounts = {
        queue_resource(environment, reserved.flavor): "1",
        "cpu": f"{unit[ANY_POOL, 'cpu']}m",
        "memory": f"{unit[ANY_POOL, 'memory']}Mi",
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {vocabulary.POOL: reserved.pool},
        "containers": [{"name": "none", "image": "none", "resources": {"requests": amounts, "limits": amounts}}],
    }
    podset = {"name": "main", "count": reserved.gpus, "template": {"spec": pod}}
    name = f"{reserved.tenant}.{reserved.flavor}.{reserved.pool}.{reserved.start.astimezone(dt.UTC):%Y%m%d%H%M}"
    return manifest(
        API,
        "Workload",
        name,
        platform_labels(environment),
        {"spec": {"queueName": vocabulary.RESERVE_QUEUE, "podSets": [podset]}},
        vocabulary.PLATFORM_NAMESPACE,
        {KEY: reserved.key},
    )


def _exhausted_budget(
    environment: Environment, tenant: Tenant, now: dt.datetime, usage: Usage
) -> ExhaustedBudget | None:
    budget = tenant.budget
    if budget_exemption(environment, tenant, now):
        return None
    if budget is None or budget.when_spent is WhenSpent.ALERT or usage.month != f"{now.astimezone(dt.UTC):%Y-%m}":
        return None
    excess = []
    hours = usage.gpu_hours(tenant.tenant)
    if budget.monthly_gpu_hours is not None and hours >= budget.monthly_gpu_hours:
        excess.append(f"{hours - budget.monthly_gpu_hours:,.1f} GPU-hours")
    prices = environment.prices
    if prices and (dollars := usage.dollars(tenant.tenant, prices)) >= budget.monthly_usd:
        excess.append(f"${dollars - budget.monthly_usd:,.2f}")
    if not excess:
        return None
    since = usage.spent_since.get(tenant.tenant, now)
    is_grace_over = budget.when_spent is WhenSpent.STOP and now - since >= dt.timedelta(
        seconds=seconds(budget.grace_period)
    )
    state = StopPolicy.HOLD_AND_DRAIN if is_grace_over else StopPolicy.HOLD
    return ExhaustedBudget(tenant.tenant, since, " and ".join(excess), next_month(now), state, tenant.owner.name)
