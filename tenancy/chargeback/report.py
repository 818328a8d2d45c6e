"""Entry point: makes a report from tables."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import prices
from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.allocate import allocate, settle, share_overhead
from tenancy.chargeback.beside import add_billed, add_lines, add_shared
from tenancy.chargeback.bill import Bill
from tenancy.chargeback.claims import claims, known
from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.periods import Period
from tenancy.chargeback.tables import Tables
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant


def make_report(
    environment: Environment,
    tenants: Sequence[Tenant],
    tables: Tables,
    periods: Sequence[Period],
    bill: Bill | None = None,
) -> ChargebackReport:
    """Allocate the costs. With AWS's bill, the costs of the bill are allocated, and no others."""
    report = allocate(environment, tenants, tables, periods, bill.pots if bill else None)
    payers = known(tenants, tables.allocations, tables.namespaces, tables.guarantees)
    whole = (periods[0].start, periods[-1].end)
    beside = bill is not None or tables.lines is not None
    claimed = claims(environment, tenants, tables.allocations, tables.namespaces, whole) if beside else {}
    if bill:
        add_billed(report, bill.beside, claimed, payers)
        report.findings += bill.findings
        report.notes += bill.notes
        if tables.lines is not None:
            report.notes.append("the table of lines is not read, because with --bill all costs come from the bill")
    else:
        add_shared(report)
        _published(report)
    if tables.lines is not None and not bill:
        add_lines(report, tables.lines, claimed, payers)
    share_overhead(report)
    return settle(report)


def _published(report: ChargebackReport) -> None:
    """Note the source of prices that the environment does not have."""
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
