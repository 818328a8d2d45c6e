"""Entry point: makes a report from tables."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import prices
from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.allocate import allocate, share_overhead, sort_and_check
from tenancy.chargeback.bill import Bill
from tenancy.chargeback.claims import claims, known_tenants
from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.non_compute import add_billed_costs, add_lines, add_shared_costs
from tenancy.chargeback.periods import Period
from tenancy.chargeback.tables import Tables
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


def make_report(
    environment: Environment,
    tenants: Sequence[Tenant],
    tables: Tables,
    periods: Sequence[Period],
    bill: Bill | None = None,
) -> ChargebackReport:
    """Allocate the costs. With AWS's bill, the costs of the bill are allocated, and no others."""
    report = allocate(environment, tenants, tables, periods, bill.costs_by_unit if bill else None)
    payers = known_tenants(tenants, tables.allocations, tables.namespaces, tables.guarantees)
    report_range = (periods[0].start, periods[-1].end)
    has_other_costs = bill is not None or tables.lines is not None
    namespace_claims = (
        claims(environment, tenants, tables.allocations, tables.namespaces, report_range) if has_other_costs else {}
    )
    if bill:
        add_billed_costs(report, bill.other_costs, namespace_claims, payers)
        report.findings += bill.findings
        report.notes += bill.notes
        if tables.lines is not None:
            report.notes.append("the table of lines is not read, because with --bill all costs come from the bill")
    else:
        add_shared_costs(report)
        _note_price_source(report)
    if tables.lines is not None and not bill:
        add_lines(report, tables.lines, namespace_claims, payers)
    share_overhead(report)
    return sort_and_check(report)


def _note_price_source(report: ChargebackReport) -> None:
    """Note the source of prices that the environment does not have."""
    environment = report.environment
    pools = {
        billing_unit.pool
        for billing_unit, instance_prices in report.rates.items()
        for instance, _ in instance_prices
        if billing_unit.pool not in environment.costs.pools
        and instance in prices.ON_DEMAND
        and MACHINES[instance].gpu not in environment.prices
    }
    if pools:
        price_source = f"{prices.REGION}, {prices.DATE}"
        environment_region = environment.aws.region or "another region"
        region_note = "" if environment_region == prices.REGION else f"; {environment_region} has prices of its own"
        report.notes.append(
            f"prices of {', '.join(sorted(pools))} are AWS's published ones of {price_source}{region_note}"
        )
