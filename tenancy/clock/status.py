"""A tenant's budget and windows at an instant, in words."""

from __future__ import annotations

import datetime as dt

from tenancy.clock.decision import budget_exemption, spans_at
from tenancy.clock.usage import Usage
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.shares import WhenSpent
from tenancy.spec.fields.tenant import Tenant


def budget_status(environment: Environment, tenant: Tenant, now: dt.datetime, usage: Usage | None) -> str:
    """Used part of a budget that binds, and its effect on the queue; empty without one. The larger of its two
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
    state_text = f", {budget.when_spent} since {since:%m-%d}" if (since := usage.spent_since.get(tenant.tenant)) else ""
    if free := budget_exemption(environment, tenant, now):
        state_text = f", does not bind until {free.until:%m-%d}"
    return f"{max(parts) * 100:.0f} %{state_text}"


def window_status(tenant: Tenant, now: dt.datetime, usage: Usage | None) -> str:
    """GPUs on top of the guarantee now, or that are being reclaimed; empty if there are none."""
    granted = usage.granted if usage else frozenset()
    parts = []
    for span in spans_at(tenant, now):
        amount = f"+{span.gpus} {span.flavor}"
        if span.key in granted:
            parts.append(f"{amount} until {span.end.astimezone(dt.UTC):%m-%d %H:%MZ}")
        else:
            start = f" from {span.start.astimezone(dt.UTC):%H:%MZ}" if now < span.start else ""
            parts.append(f"{amount}{start}, being reclaimed")
    return "; ".join(parts)
