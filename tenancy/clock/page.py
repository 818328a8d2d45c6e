"""GPUs of each tenant over time, as one page: no network, no script, light and dark mode, printable."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenancy.output import charts
from tenancy.output.html import render
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.quota_shares import part_of_node, supply
from tenancy.spec.fields.calendar import Interval
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.shares import WhenSpent
from tenancy.spec.fields.tenant import Tenant

STEP = dt.timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class FlavorView:
    """The chart of one flavor and the colours of its tenants."""

    name: str
    chart: charts.Chart
    colours: dict[str, str]
    always_on: int


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One window on one day, or one further share."""

    tenant: str
    what: str
    flavor: str
    gpus: int
    start: str
    end: str
    remark: str


@dataclass(frozen=True, slots=True)
class BindingBudgetRow:
    """A budget that binds, and how long the guarantee in full use would last."""

    tenant: str
    dollars: str
    hours: str
    then: str
    lasts: str


def page(environment: Environment, tenants: Sequence[Tenant], start: dt.datetime, days: int) -> str:
    """The page of the days from an instant on."""
    ordered = sorted(active_tenants(tenants), key=lambda tenant: tenant.tenant)
    end = start + dt.timedelta(days=days)
    rows = sorted(_rows(ordered, start, end), key=lambda row: (row.start, row.tenant, row.what))
    return render(
        "calendar.html.j2",
        title=f"Calendar of {environment.environment}",
        environment=environment.environment,
        span=f"{days} days from {start:%Y-%m-%d %H:%M} UTC",
        flavors=[view for flavor in environment.flavors if (view := _view(environment, flavor, ordered, start, days))],
        rows=rows,
        budgets=list(_budgets(environment, ordered)),
    )


def _view(
    environment: Environment, flavor: str, tenants: Sequence[Tenant], start: dt.datetime, days: int
) -> FlavorView | None:
    holders = [tenant for tenant in tenants if flavor in tenant.gpus]
    if not holders:
        return None
    moments = [start + n * STEP for n in range(days * dt.timedelta(days=1) // STEP)]
    end = moments[-1] + STEP
    series = {tenant.tenant: _gpus_over_time(tenant, flavor, moments, end) for tenant in holders}
    # Those that change are told apart, whatever their size.
    colours = charts.colours({n: sum(v) + 1e12 * (max(v) - min(v)) for n, v in series.items() if any(v)})
    always_on = sum(supply(environment, start.date(), always_on=True)[flavor].values())
    maximum = max(always_on, *(sum(values) for values in zip(*series.values(), strict=True)), 1)
    layers = charts.layers(series, colours, len(moments))
    title = f"{flavor} by tenant over time"
    return FlavorView(
        flavor, charts.stacked(layers, colours, maximum, days * 24, always_on, title, start), colours, always_on
    )


def _gpus_over_time(tenant: Tenant, flavor: str, moments: Sequence[dt.datetime], end: dt.datetime) -> list[float]:
    counts = [float(tenant.gpus[flavor].guaranteed)] * len(moments)
    spans = [
        (interval, w.gpus)
        for w in tenant.gpu_windows
        if w.flavor == flavor
        for interval in w.intervals_between(moments[0], end)
    ]
    spans += [(more.interval, more.gpus) for more in tenant.gpus[flavor].temporary_shares]
    for interval, gpus in spans:
        for n, moment in enumerate(moments):
            if interval.start < moment + STEP and moment < interval.end:
                counts[n] += gpus
    return counts


def _rows(tenants: Sequence[Tenant], start: dt.datetime, end: dt.datetime) -> Iterator[SpanRow]:
    def row(tenant: Tenant, what: str, flavor: str, gpus: int, interval: Interval, remark: str) -> SpanRow:
        moments = (f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}" for moment in interval)
        return SpanRow(tenant.tenant, what, flavor, gpus, *moments, remark)

    for tenant in tenants:
        for window in tenant.gpu_windows:
            local = f"{window.starts} to {window.ends}, {window.time_zone}; reclaimed {window.reclaim_lead_time} before"
            for interval in window.intervals_between(start, end):
                yield row(tenant, f"window {window.name}", window.flavor, window.gpus, interval, local)
        for flavor, share in tenant.gpus.items():
            for more in share.temporary_shares:
                if more.interval.start < end and more.interval.end > start:
                    yield row(tenant, "further share", flavor, more.gpus, more.interval, more.reason)


def _budgets(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[BindingBudgetRow]:
    for tenant in tenants:
        budget = tenant.budget
        if budget is None or budget.when_spent is WhenSpent.ALERT:
            continue
        hours, gpus = budget.monthly_gpu_hours, _guaranteed(environment, tenant)
        yield BindingBudgetRow(
            tenant.tenant,
            f"{budget.monthly_usd:,}",
            f"{hours:,}" if hours else "–",
            f"stop after {budget.grace_period}" if budget.when_spent is WhenSpent.STOP else str(budget.when_spent),
            f"{float(hours / gpus / 24):.1f} days" if hours and gpus else "–",
        )


def _guaranteed(environment: Environment, tenant: Tenant) -> Fraction:
    """Whole GPUs of the guarantee; a slice counts as its part of one."""
    total = Fraction(0)
    for flavor, share in tenant.gpus.items():
        pools = [name for name in environment.pools if flavor in environment.flavors_of(name)]
        if pools:
            total += (
                share.guaranteed
                * part_of_node(environment, pools[0], flavor)
                * environment.pools[pools[0]].machine.gpus
            )
    return total
