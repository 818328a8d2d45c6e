"""Price of a node for an hour, for the bill, dashboards and alerts."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from tenancy.catalog.instances import MACHINES
from tenancy.catalog.prices import ON_DEMAND
from tenancy.spec.fields.costs import PurchaseKind
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool

MICRO = 1_000_000
"""Millionths of a dollar: the unit of all amounts."""


def purchase_kind(pool: Pool) -> PurchaseKind:
    """Purchase kind of the nodes of a pool."""
    return PurchaseKind(pool.purchase.option)


def node_price(environment: Environment, name: str, instance: str, purchase: str) -> int | None:
    """Millionths of a dollar for an hour of a node; None where no price is known."""
    costs = environment.costs
    if name in costs.pools:
        return int(costs.pools[name] * MICRO)
    machine = MACHINES.get(instance)
    discount = costs.discounts.get(PurchaseKind(purchase), 0) if purchase in set(PurchaseKind) else 0
    if machine and machine.gpus and machine.gpu in environment.prices:
        return _discounted(environment.prices[machine.gpu] * machine.gpus, discount)
    has_list_price = purchase in {PurchaseKind.ON_DEMAND, PurchaseKind.RESERVATION} or discount
    if instance in ON_DEMAND and has_list_price:
        return _discounted(ON_DEMAND[instance], discount)
    return None


def _discounted(price: Decimal, discount: int) -> int:
    return round(price * MICRO * (100 - discount) / 100)


def pool_price(environment: Environment, name: str) -> int | None:
    """Millionths of a dollar for a node-hour of a pool; None where no price is known."""
    pool = environment.pools[name]
    return node_price(environment, name, pool.instance_type, purchase_kind(pool))


def node_prices(environment: Environment) -> dict[str, Fraction | None]:
    """Dollars for a node-hour of every pool; None where no price is known."""
    prices = {name: pool_price(environment, name) for name in environment.pools}
    return {name: None if price is None else Fraction(price, MICRO) for name, price in prices.items()}
