"""Lines of the bill by labels of namespaces, such as `product` or the organisation's own `project`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tenancy.chargeback.model import BillingUnit, Category, ChargebackReport, CostLine
from tenancy.chargeback.rounding import divide_by_weights
from tenancy.planning.common.labels import tenant_labels, tier_labels

Labels = Mapping[str, str]


def known_keys(report: ChargebackReport) -> list[str]:
    """Keys of the labels that tenants and their namespaces carry."""
    return sorted(
        {key for labels in (*_of_tenants(report).values(), *_of_namespaces(report).values()) for key in labels}
    )


def by_labels(report: ChargebackReport, keys: Sequence[str] = ()) -> Iterator[tuple[CostLine, Labels]]:
    """Every line with the labels of its tenant, none for a payer that is not a tenant.

    With keys, what work held or borrowed is split by the values that its namespaces have, in proportion to the value
    of that work; the parts add up to the line. Everything else has the tenant's values.
    """
    tenants, namespaces = _of_tenants(report), _of_namespaces(report)
    work: dict[tuple[BillingUnit, str, str], list[tuple[str, int, int]]] = defaultdict(list)
    for row in report.work.iter_rows(named=True) if keys else ():
        unit = BillingUnit(row["period"], row["pool"], row["purchase"])
        work[unit, row["owner"], row["flavor"]].append((row["namespace"], row["unit_cost"], row["weight"]))
    for line in report.lines:
        tenant_labels = tenants.get(line.tenant, {})
        namespace_work = work.get((line.billing_unit, line.tenant, line.flavor))
        if not namespace_work or not tenant_labels or line.category not in {Category.HELD, Category.BORROWED}:
            yield line, tenant_labels
            continue
        parts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
        labels: dict[tuple[str, ...], Labels] = {}
        for namespace, cost, weight in namespace_work:
            namespace_labels = namespaces.get(namespace, tenant_labels)
            values = tuple(namespace_labels.get(key, "") for key in keys)
            labels[values] = {
                **tenant_labels,
                **{key: namespace_labels[key] for key in keys if key in namespace_labels},
            }
            parts[values][0] += cost
            parts[values][1] += weight
        line_parts = _divided(line, [parts[values] for values in sorted(parts)])
        yield from zip(line_parts, (labels[values] for values in sorted(parts)), strict=True)


def _divided(line: CostLine, parts: Sequence[Sequence[int]]) -> list[CostLine]:
    """The line in parts, by cost or, where work costs nothing, by weight."""
    cost = [part[0] for part in parts]
    weights = cost if sum(cost) else [part[1] for part in parts]
    if not sum(weights):
        weights = [1] * len(parts)
    amounts = (divide_by_weights(total, weights) for total in (line.micro, line.weight, line.devices))
    return [
        replace(line, micro=micro, weight=weight, devices=devices)
        for micro, weight, devices in zip(*amounts, strict=True)
    ]


def _of_tenants(report: ChargebackReport) -> dict[str, Labels]:
    return {tenant.tenant: tier_labels(report.environment, tenant, tenant.tier) for tenant in report.tenants}


def _of_namespaces(report: ChargebackReport) -> dict[str, Labels]:
    return {
        tenant.namespace_name(namespace): tenant_labels(report.environment, tenant, namespace)
        for tenant in report.tenants
        for namespace in tenant.namespaces
    }
