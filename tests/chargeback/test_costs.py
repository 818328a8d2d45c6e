"""Costs in an environment's file: allowed and refused settings, and published prices for the rest."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tenancy.catalog.instances import MACHINES
from tenancy.catalog.prices import ON_DEMAND
from tenancy.chargeback.measures import measure
from tenancy.planning.aws.prices import node_price
from tests.conftest import SpecFolder

ENV = "environment.yaml"


@pytest.mark.parametrize(
    ("costs", "field"),
    [
        ("{pools: {trains: 12.5}}", "costs.pools.trains"),
        ("{pools: {train: 0}}", "costs.pools.train"),
        ("{discounts: {spot: 100}}", "costs.discounts.spot"),
        ("{discounts: {spot: 0}}", "costs.discounts.spot"),
        ("{discounts: {gift: 10}}", "costs.discounts.gift"),
        ("{rates: {coffee: 3}}", "costs.rates.coffee"),
        ("{rates: {s3: -1}}", "costs.rates.s3"),
        ("{shared: {control-plane: free}}", "costs.shared.control-plane"),
        ("{overhead: mood}", "costs.overhead"),
        ("{lender-credit: 101}", "costs.lender-credit"),
        ("{premium: 1}", "costs.premium"),
    ],
)
def test_costs_that_mean_nothing_are_refused(spec: SpecFolder, costs: str, field: str) -> None:
    spec.add(ENV, f"costs: {costs}\n")
    assert spec.problem().field.startswith(field)


def test_costs_that_mean_something_are_taken(spec: SpecFolder) -> None:
    spec.add(
        ENV,
        "costs: {pools: {train: 12.5}, discounts: {spot: 60}, rates: {s3: 0.0245}, shared: {control-plane: 0.10}, "
        "overhead: guarantee, lender-credit: 100}\n",
    )
    assert spec.load().environment.costs.rates["s3"] == Decimal("0.0245")


@pytest.mark.parametrize(
    ("more", "purchase", "price"),
    [
        ("", "on-demand", 21_957_642),
        ("", "reservation", 21_957_642),
        ("", "spot", None),
        ("", "capacity-block", None),
        ("costs: {discounts: {spot: 50}}\n", "spot", 10_978_821),
        ("costs: {discounts: {spot: 50}}\n", "on-demand", 21_957_642),
        ("costs: {pools: {train: 3}}\n", "spot", 3_000_000),
        ("prices: {l4: 0.8, a100-40gb: 2.5}\n", "spot", 20_000_000),
        ("prices: {l4: 0.8, a100-40gb: 2.5}\ncosts: {discounts: {spot: 50}}\n", "spot", 10_000_000),
    ],
)
def test_a_nodes_price_is_the_files_or_the_published_one(
    spec: SpecFolder, more: str, purchase: str, price: int | None
) -> None:
    spec.add(ENV, more)
    assert node_price(spec.load().environment, "train", "p4d.24xlarge", purchase) == price


def test_a_type_without_a_published_price_has_none(spec: SpecFolder) -> None:
    assert node_price(spec.load().environment, "train", "p5e.48xlarge", "on-demand") is None


def test_published_prices_are_of_types_that_the_catalogue_has() -> None:
    assert set(MACHINES) > set(ON_DEMAND)
    without = ("g7.", "m7i.metal-", "p5e.48xlarge", "p6e-gb200.36xlarge")
    assert set(MACHINES) - set(ON_DEMAND) == {name for name in MACHINES if name.startswith(without)}


@pytest.mark.parametrize("pool", ["train", "serve", "notebooks"])
def test_all_that_a_node_yields_is_the_whole_node(spec: SpecFolder, pool: str) -> None:
    environment = spec.load().environment
    pool_measure = measure(environment, pool)
    assert (
        sum(pool_measure.units_by_flavor[flavor] * count for flavor, count in environment.flavors_of(pool).items())
        == pool_measure.units
    )
