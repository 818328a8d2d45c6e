"""A tenant's budget and windows at an instant, in words."""

from __future__ import annotations

import datetime as dt

from tenancy.clock.decision import relief, spans_at
from tenancy.clock.usage import Usage
from tenancy.schema.environment import Environment
from tenancy.schema.shares import WhenSpent
from tenancy.schema.tenant import Tenant


def budget_said(environment: Environment, tenant: Tenant, now: dt.datetime, usage: Usage | None) -> str:
    """How much of a budget that binds is used, and what it does to the queue; empty without one. The larger of its two
    parts counts."""
    budget = tenant.budget
    if budget is None or budget.when_spent is WhenSpent.ALERT:
        return ""
    if usage is None or usage.month != f"{now.astimezone(dt.UTC):%Y-%m}":
        return "unknown: no clock has run this month"
    parts = []
    if environment.prices:
        parts.append(usage.dollars(tenant.tenant, environment.prices) / budget.monthly_usd)
    if budget.monthly_gpu_hours:
        parts.append(usage.gpu_hours(tenant.tenant) / budget.monthly_gpu_hours)
    spent = f", {budget.when_spent} since {since:%m-%d}" if (since := usage.spent.get(tenant.tenant)) else ""
    if free := relief(environment, tenant, now):
        spent = f", does not bind until {free.until:%m-%d}"
    return f"{max(parts) * 100:.0f} %{spent}"


def window_said(tenant: Tenant, now: dt.datetime, usage: Usage | None) -> str:
    """GPUs on top of the guarantee now, or that are being reclaimed; empty if there are none."""
    granted = usage.granted if usage else frozenset()
    said = []
    for span in spans_at(tenant, now):
        what = f"+{span.gpus} {span.flavor}"
        if span.key in granted:
            said.append(f"{what} until {span.end.astimezone(dt.UTC):%m-%d %H:%MZ}")
        else:
            start = f" from {span.start.astimezone(dt.UTC):%H:%MZ}" if now < span.start else ""
            said.append(f"{what}{start}, being reclaimed")
    return "; ".join(said)
