"""What `tenancy chargeback` has to know beside the pools: what nodes cost, and who bears what nobody holds."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tenancy.spec.base import PartName, Slug, Spec, Whole, plain, written


def _price(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise plain(written(value), "a price is needed", "write it like 2.50")
    try:
        price = Decimal(str(value))
    except ArithmeticError:
        price = Decimal(-1)
    if not (price.is_finite() and 0 < price <= 100_000 and price == round(price, 6)):
        raise plain(written(value), "a price is above 0, at most 100,000, with six decimals at most", "write 2.50")
    return price


Price = Annotated[
    Decimal, BeforeValidator(_price), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 100_000})
]
Percent = Annotated[int, Whole(0, 100)]
Discount = Annotated[int, Whole(1, 99)]


class Bought(StrEnum):
    """How a node is bought, as a bill tells them apart."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"  # an on-demand capacity reservation: billed as on-demand, used or not
    CAPACITY_BLOCK = "capacity-block"


class Kind(StrEnum):
    """What is billed beside nodes, with its unit."""

    STORAGE = "storage"  # volumes, GiB for a month of 730 hours
    SNAPSHOT = "snapshot"  # the same of snapshots
    EGRESS = "egress"  # GiB out of the cluster
    S3 = "s3"  # GiB for a month of 730 hours under a prefix


class Key(StrEnum):
    """By what the platform's own costs are shared."""

    COMPUTE = "compute"  # as the tenants' shares of the nodes' costs
    GUARANTEE = "guarantee"  # as what they are promised is worth
    EVEN = "even"  # every tenant the same


class Costs(Spec):
    pools: dict[PartName, Price] = Field(
        default_factory=dict,
        description="Dollars for an hour of one node, by pool: what a contract says. Absent: the board's price times "
        "its GPUs, and where there is none, what AWS published for the instance type.",
    )
    discounts: dict[Bought, Discount] = Field(
        default_factory=dict,
        description="Percent off the board's or the published price, by how nodes are bought. Nothing is published "
        "for spot and capacity-block: without a discount, a pool's or a board's price, theirs is not known.",
    )
    shared: dict[Slug, Price] = Field(
        default_factory=dict,
        description="Dollars an hour of what belongs to no pool, such as control-plane: 0.10. Absent: nothing.",
    )
    rates: dict[Kind, Price] = Field(
        default_factory=dict,
        description="Dollars for a unit of what is billed beside nodes: storage, snapshot and s3 for a GiB a month, "
        "egress for a GiB. Absent: the lines themselves have dollars.",
    )
    overhead: Key = Field(Key.COMPUTE, description="By what the platform's own costs are shared among tenants.")
    lender_credit: Percent = Field(
        0,
        description="Percent of what borrowers pay that goes to those who left it idle. Absent: nothing; what is "
        "borrowed is then cheaper for everybody, because it is not idle.",
    )
