"""The mail to a tenant's owner: what the tenant pays, and why."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog.text import in_markdown
from tenancy.chargeback.budgets import data_gaps
from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.outputs import cents, dollars, totals
from tenancy.chargeback.pages import alert, explain, tables
from tenancy.chargeback.use import BudgetUse, TenantUse
from tenancy.output.html import render
from tenancy.output.tables import as_markdown
from tenancy.spec.fields.tenant import Tenant

UNESCAPED = "@"
"""The at sign is not escaped in Markdown, because the owner copies addresses from this mail."""


def mail(
    report: ChargebackReport, tenant: Tenant, uses: Sequence[TenantUse], budgets: Sequence[BudgetUse], form: str
) -> str:
    """The mail to a tenant's owner, in Markdown or HTML."""
    name = tenant.tenant
    parts = [*tables(report, uses, budgets, only=name), *explain(report, name, 5)]
    periods = ", ".join(period.name for period in report.periods)
    title = f"GPU cost of {tenant.title or name}, {periods}: ${dollars(cents(totals(report)).get(name, 0))}"
    lead = f"To {tenant.owner.name} <{tenant.owner.mail}>, cost center {tenant.cost_center}, team {tenant.team}."
    alerts = [
        f"{report.periods[budget.period].name}: {alert_text} of a budget of ${budget.budget:,}"
        for budget in budgets
        if budget.tenant == name and (alert_text := alert(budget))
    ]
    lead += f" Budget, {'; '.join(alerts)}." if alerts else ""
    missing = [*map(str, report.findings), *data_gaps(report, budgets, uses, tenant_name=name)]
    if form == "markdown":
        text = [f"# {in_markdown(title, UNESCAPED)}", "", in_markdown(lead, UNESCAPED)]
        for part in parts:
            text += ["", as_markdown(part, UNESCAPED)]
        text += ["", "## Missing data", "", *(f"- {in_markdown(gap, UNESCAPED)}" for gap in missing)] if missing else []
        return "\n".join(text) + "\n"
    return render("mail.html.j2", title=title, lead=lead, tables=parts, missing=missing)
