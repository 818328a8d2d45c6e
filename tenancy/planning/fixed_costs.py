"""Monthly costs of the platform without its GPU machines, by list prices: an estimate from the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from tenancy.catalog import prices, service_prices
from tenancy.catalog.instances import MACHINES
from tenancy.planning.aws import kinds
from tenancy.planning.aws.cluster import ClusterPlan, NodeGroupPlan
from tenancy.planning.aws.prices import MICRO, pool_price
from tenancy.planning.plan_model import Plan
from tenancy.spec.fields.aws import Endpoints
from tenancy.spec.fields.environment import Environment


@dataclass(frozen=True, slots=True)
class FixedCost:
    """One item of the estimate."""

    item: str
    count: int
    unit: Decimal | None
    """Dollars of one for a month; None where the catalogue has no price."""
    basis: str
    """Meaning of the count and the price."""

    @property
    def month(self) -> Decimal | None:
        """Dollars of all for a month."""
        return None if self.unit is None else self.unit * self.count


def fixed_costs(environment: Environment, plan: Plan) -> tuple[FixedCost, ...]:
    """Items that are paid for with and without work; empty without AWS."""
    if plan.account is None:
        return ()
    costs = [*(_cluster_costs(environment, plan.cluster) if plan.cluster else ()), *_data_costs(plan)]
    return tuple(cost for cost in costs if cost.count)


def _cluster_costs(environment: Environment, cluster: ClusterPlan) -> Iterator[FixedCost]:
    network = cluster.network
    zones = len(network.subnets)
    yield FixedCost("control plane", 1, service_prices.CONTROL_PLANE, "standard support")
    gateways = 0 if network.vpc else zones
    yield FixedCost("NAT gateways", gateways, service_prices.NAT_GATEWAY, "one for each zone, without its data")
    yield FixedCost("public IPv4 addresses", gateways, service_prices.ADDRESS, "one for each NAT gateway")
    creates_endpoints = network.endpoints is Endpoints.MADE
    services = len(network.services)
    basis = f"{services} services in {zones} zones, without their data"
    yield FixedCost("interface endpoints", services * zones if creates_endpoints else 0, service_prices.ENDPOINT, basis)
    logs = service_prices.LOG_GB_OF_CONTROL_PLANE
    yield FixedCost("GB of control plane logs", logs, service_prices.LOG_GB, "assumed; without storage")
    yield FixedCost("KMS key of the cluster", 0 if cluster.key else 1, service_prices.KEY, "without its requests")
    for group in cluster.groups:
        if not _has_gpus(group):
            yield FixedCost(f"nodes of {group.name}", group.nodes, _node_cost(environment, group), group.instance)
    for title, gpus in (("without GPUs", False), ("with GPUs", True)):
        groups = [group for group in cluster.groups if _has_gpus(group) is gpus]
        gib = sum(group.nodes * group.root_volume for group in groups)
        basis = f"of {sum(group.nodes for group in groups)} nodes"
        yield FixedCost(f"GiB of root volumes of nodes {title}", gib, service_prices.VOLUME_GIB, basis)


def _data_costs(plan: Plan) -> Iterator[FixedCost]:
    bucket_keys = len(plan.platform.data.keys) if plan.platform.data else 0
    tenants = [tenant.aws for tenant in plan.tenants if tenant.aws]
    yield FixedCost("KMS keys of buckets", bucket_keys, service_prices.KEY, "without their requests")
    keys = sum(len(aws.keys) for aws in tenants)
    yield FixedCost("KMS keys of tenants", keys, service_prices.KEY, "without their requests")
    for kind in kinds.KINDS:
        if kind.monthly_price is not None:
            count = sum(len(aws.owned_of(kind.field)) for aws in tenants)
            yield FixedCost(f"{kind.key} of tenants", count, kind.monthly_price, "without their requests")


def _has_gpus(group: NodeGroupPlan) -> bool:
    machine = MACHINES.get(group.instance)
    return bool(machine and machine.gpus)


def _node_cost(environment: Environment, group: NodeGroupPlan) -> Decimal | None:
    """Dollars of one node for a month."""
    if group.pool:
        price = pool_price(environment, group.pool)
        return None if price is None else Decimal(price) / MICRO * prices.MONTH_HOURS
    list_price = prices.ON_DEMAND.get(group.instance)
    return None if list_price is None else list_price * prices.MONTH_HOURS
