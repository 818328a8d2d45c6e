"""From tables to a report: the one way in."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import prices
from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.allocate import Report, allocate, settle, share_overhead
from tenancy.chargeback.beside import add_billed, add_lines, add_shared
from tenancy.chargeback.bill import Bill
from tenancy.chargeback.claims import claims, known
from tenancy.chargeback.periods import Period
from tenancy.chargeback.tables import Tables
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant


def make_report(
    environment: Environment,
    tenants: Sequence[Tenant],
    tables: Tables,
    periods: Sequence[Period],
    bill: Bill | None = None,
) -> Report:
    """Who pays what. With AWS's bill that is what is shared out, and nothing beside it."""
    report = allocate(environment, tenants, tables, periods, bill.pots if bill else None)
    payers = known(tenants, tables.holdings, tables.namespaces, tables.guarantees)
    if bill:
        add_billed(report, bill.beside, payers)
        report.findings += bill.findings
        report.notes += bill.notes
        if tables.lines is not None:
            report.notes.append("the table of lines is not read: with a bill, what is beside nodes is on the bill")
    else:
        add_shared(report)
        _published(report)
    if tables.lines is not None and not bill:
        whole = (periods[0].start, periods[-1].end)
        claimed = claims(environment, tenants, tables.holdings, tables.namespaces, whole)
        add_lines(report, tables.lines, claimed, payers)
    share_overhead(report)
    return settle(report)


def _published(report: Report) -> None:
    """Say where a price comes from that nobody wrote."""
    environment = report.environment
    pools = {
        pot.pool
        for pot, of in report.rates.items()
        for instance, _ in of
        if pot.pool not in environment.costs.pools
        and instance in prices.ON_DEMAND
        and MACHINES[instance].gpu not in environment.prices
    }
    if pools:
        where = f"{prices.REGION}, {prices.DATE}"
        here = environment.aws.region or "another region"
        other = "" if here == prices.REGION else f"; {here} has prices of its own"
        report.notes.append(f"prices of {', '.join(sorted(pools))} are AWS's published ones of {where}{other}")
