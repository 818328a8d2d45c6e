"""Prices for `tenancy chargeback` besides the pools: costs of nodes, and who pays for unused GPUs."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tenancy.spec.fields.base import ShortName, Slug, Spec, WholeNumber
from tenancy.spec.reading.mistakes import describe_value, form_error


def _price(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise form_error(describe_value(value), "a price is needed", "write it like 2.50")
    try:
        price = Decimal(str(value))
    except ArithmeticError:
        price = Decimal(-1)
    if not (price.is_finite() and 0 < price <= 100_000 and price == round(price, 6)):
        raise form_error(
            describe_value(value), "a price is above 0, at most 100,000, with six decimals at most", "write 2.50"
        )
    return price


Price = Annotated[
    Decimal, BeforeValidator(_price), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 100_000})
]
Percent = Annotated[int, WholeNumber(0, 100)]
Discount = Annotated[int, WholeNumber(1, 99)]


class PurchaseKind(StrEnum):
    """Purchase option of a node, as far as bills distinguish it."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"  # an on-demand capacity reservation: billed as on-demand, used or not
    CAPACITY_BLOCK = "capacity-block"


class UsageKind(StrEnum):
    """Kinds of usage that are billed besides nodes, with their units."""

    STORAGE = "storage"  # volumes, GiB for a month of 730 hours
    SNAPSHOT = "snapshot"  # the same of snapshots
    EGRESS = "egress"  # GiB out of the cluster
    S3 = "s3"  # GiB for a month of 730 hours under a prefix


class OverheadKey(StrEnum):
    """Key by which the platform's own costs are distributed."""

    COMPUTE = "compute"  # in proportion to the tenants' shares of the nodes' costs
    GUARANTEE = "guarantee"  # in proportion to the value of the tenants' guarantees
    EVEN = "even"  # the same for every tenant


class Costs(Spec):
    """Prices, discounts and allocation keys for chargeback, in US dollars and percent."""

    pools: dict[ShortName, Price] = Field(
        default_factory=dict,
        description="Price of one node for one hour, dollars, by pool; for prices of a contract. Default: the "
        "board's price times the node's GPUs; for a board without a price, the AWS list price of the instance type.",
    )
    discounts: dict[PurchaseKind, Discount] = Field(
        default_factory=dict,
        description="Discount on the board's price or the list price, percent, by how nodes are bought. AWS "
        "publishes no list price for spot and capacity-block: without a discount, a pool's price or a board's price, "
        "their price is unknown. Default: none.",
    )
    shared: dict[Slug, Price] = Field(
        default_factory=dict,
        description="Price of resources outside of all pools for one hour, dollars, by name, such as control-plane: "
        "0.10. Default: none.",
    )
    rates: dict[UsageKind, Price] = Field(
        default_factory=dict,
        description="Price of one unit of further resources, dollars, by kind: storage, snapshot and s3 per GiB and "
        "month, egress per GiB. Default: the usage rows themselves have dollars.",
    )
    overhead: OverheadKey = Field(
        default=OverheadKey.COMPUTE,
        description="Key by which the platform's own costs are distributed among tenants. Default: compute.",
    )
    lender_credit: Percent = Field(
        default=0,
        description="Share of what borrowers pay that is credited to the lenders, percent. With 0, borrowing only "
        "lowers the cost of idle GPUs for all tenants. Default: 0.",
    )
