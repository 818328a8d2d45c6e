"""What is billed beside nodes, and AWS's own bill."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tenancy.chargeback import bill as bills
from tenancy.chargeback.allocate import Category, Report
from tenancy.chargeback.periods import By
from tenancy.chargeback.report import make_report
from tenancy.rules.catalogue import Violation
from tenancy.spec import Loaded
from tests.chargeback.scene import (
    DAY,
    HOUR,
    MICRO,
    NOVEMBER,
    OCTOBER,
    dollars,
    given,
    held,
    node,
    priced,
    report,
    rules,
    whole,
)

END = OCTOBER + HOUR
TRAIN = [node("t1", "train", OCTOBER, END)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("beside"), "costs: {rates: {storage: 0.08, egress: 0.09}}\n")


def billed(loaded: Loaded, *lines: dict[str, Any], start: int = OCTOBER, end: int = END, by: By = By.RANGE) -> Report:
    rows = [{"start": start, "end": end, **line} for line in lines]
    return report(loaded, start, end, by, nodes=[node("t1", "train", start, end)], lines=rows)


def test_storage_costs_its_rate_for_the_part_of_a_month_that_it_was_there(loaded: Loaded) -> None:
    found = billed(loaded, {"kind": "storage", "namespace": "fraud--train", "quantity": 730})
    assert dollars(found, "fraud", "storage") == 0.08, "730 GiB for one of 730 hours"


def test_traffic_costs_its_rate_whatever_the_time(loaded: Loaded) -> None:
    assert dollars(billed(loaded, {"kind": "egress", "tenant": "fraud", "quantity": 100}), "fraud", "egress") == 9


def test_a_line_without_dollars_or_rate_is_named_and_not_made_up(loaded: Loaded) -> None:
    found = billed(loaded, {"kind": "snapshot", "tenant": "fraud", "quantity": 100})
    assert dollars(found, "snapshot") == 0
    assert "100.00 units of snapshot" in next(f.given for f in found.findings if f.rule == "bill-01")


def test_a_line_that_runs_over_the_first_of_a_month_is_split_by_time(loaded: Loaded) -> None:
    line = {"kind": "other", "tenant": "fraud", "dollars": 40}
    found = billed(loaded, line, start=NOVEMBER - DAY, end=NOVEMBER + 3 * DAY, by=By.MONTH)
    assert (dollars(found, "fraud", "other", 0), dollars(found, "fraud", "other", 1)) == (10, 30)


def objects(found: Report, tenant: str) -> float:
    """Dollars of a tenant's own objects, without its part of the platform's."""
    return sum(li.micro for li in found.lines if (li.tenant, li.category) == (tenant, Category.S3)) / MICRO


@pytest.mark.parametrize(
    ("prefix", "who"),
    [("teams/fraud/models/", "fraud"), ("teams/fraud-2/", "overhead"), ("shared/", "overhead"), ("", "overhead")],
)
def test_objects_are_whose_alone_they_can_be_written(loaded: Loaded, prefix: str, who: str) -> None:
    found = billed(loaded, {"kind": "s3", "bucket": "datasets", "prefix": prefix, "dollars": 9})
    assert objects(found, "fraud") == (9 if who == "fraud" else 0)
    assert dollars(found, "overhead") == (0 if who == "fraud" else 9), "what several read is the platform's"


def test_a_buckets_bill_is_split_by_what_lies_under_its_prefixes(loaded: Loaded) -> None:
    lines = [
        {"kind": "s3", "bucket": "datasets", "prefix": "", "quantity": 0, "dollars": 100},
        {"kind": "s3", "bucket": "datasets", "prefix": "teams/fraud/", "quantity": 30, "dollars": None},
        {"kind": "s3", "bucket": "datasets", "prefix": "shared/", "quantity": 10, "dollars": None},
    ]
    found = billed(loaded, *lines)
    assert (objects(found, "fraud"), dollars(found, "overhead")) == (75, 25)


def test_a_kind_that_nobody_knows_is_refused(loaded: Loaded) -> None:
    with pytest.raises(Violation, match="bill-07"):
        billed(loaded, {"kind": "coffee", "tenant": "fraud", "dollars": 3})


def test_a_line_of_nobody_is_named(loaded: Loaded) -> None:
    found = billed(loaded, {"kind": "other", "dollars": 3})
    assert dollars(found, "(no tenant)") == 3
    assert "bill-08" in rules(found)


# AWS's bill


def cur(path: Path, *rows: dict[str, Any], maps: bool = True) -> Path:
    """A CUR 2.0 export: one row for each hour of each resource."""
    made = []
    for row in rows:
        tags = {"user_tenancy_environment": "small", **row.pop("tags", {})}
        at = dt.datetime.fromtimestamp(row.pop("at", OCTOBER), dt.UTC)
        made.append(
            {
                "line_item_line_item_type": "Usage",
                "line_item_product_code": "AmazonEC2",
                "line_item_usage_type": "EUC1-BoxUsage:p4d.24xlarge",
                "line_item_usage_start_date": at,
                "line_item_usage_end_date": at + dt.timedelta(hours=1),
                "line_item_unblended_cost": 0.0,
                "line_item_currency_code": "USD",
                "reservation_effective_cost": 0.0,
                "savings_plan_savings_plan_effective_cost": 0.0,
                **row,
                "resource_tags": [{"key": k, "value": v} for k, v in tags.items()] if maps else tags,
            }
        )
    pl.DataFrame(made).write_parquet(path)
    return path


POOL = {"user_tenancy_pool": "train"}


def with_bill(loaded: Loaded, path: Path, *, nodes: list[dict[str, Any]] = TRAIN, holdings: Any = None) -> Report:
    cut = whole(OCTOBER, END)
    rows = holdings or [held("fraud--train", "t1", "a100", 2, OCTOBER, END)]
    tables = given(OCTOBER, END, nodes=nodes, holdings=rows)
    return make_report(loaded.environment, loaded.tenants, tables, cut, bills.read([path], cut, "small"))


@pytest.mark.parametrize("maps", [True, False], ids=["map", "structure"])
def test_the_bill_and_no_list_price_is_what_is_shared_out(loaded: Loaded, tmp_path: Path, maps: bool) -> None:
    found = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 13.2, "tags": POOL}, maps=maps))
    assert dollars(found) == 13.2
    assert dollars(found, "fraud", "held") == 3.3


def test_tags_are_known_however_the_export_spells_them(loaded: Loaded, tmp_path: Path) -> None:
    tags = {"user:tenancy:environment": "small", "user:tenancy:pool": "train"}
    found = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 8.0, "tags": tags}))
    assert dollars(found, "train") == 8


def test_hours_that_a_plan_covers_cost_what_the_plan_cost(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {
            "line_item_line_item_type": "SavingsPlanCoveredUsage",
            "line_item_unblended_cost": 20.0,
            "savings_plan_savings_plan_effective_cost": 11.0,
            "tags": POOL,
        },
        {"line_item_line_item_type": "SavingsPlanNegation", "line_item_unblended_cost": -20.0, "tags": POOL},
    ]
    assert dollars(with_bill(loaded, cur(tmp_path / "c.parquet", *rows))) == 11


def test_spot_on_the_bill_goes_to_spot_nodes(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 20.0, "tags": POOL},
        {"line_item_unblended_cost": 7.0, "line_item_usage_type": "EUC1-SpotUsage:p4d.24xlarge", "tags": POOL},
    ]
    nodes = [*TRAIN, node("t2", "train", OCTOBER, END, purchase="spot")]
    found = with_bill(loaded, cur(tmp_path / "c.parquet", *rows), nodes=nodes)
    assert (dollars(found, "on-demand"), dollars(found, "spot")) == (20, 7)


def test_what_a_reservation_runs_is_on_demand_on_the_bill(loaded: Loaded, tmp_path: Path) -> None:
    nodes = [node("t1", "train", OCTOBER, END, purchase="reservation")]
    found = with_bill(
        loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 20.0, "tags": POOL}), nodes=nodes
    )
    assert dollars(found, "reservation") == 20


def test_a_pool_on_the_bill_of_which_no_node_was_seen_is_named(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 20.0, "tags": POOL},
        {"line_item_unblended_cost": 9.0, "tags": {"user_tenancy_pool": "serve"}},
    ]
    found = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(found, "(no data)") == 9
    assert any("$9.00 billed for serve" in f.given for f in found.findings)


def test_nodes_that_are_on_no_bill_are_named(loaded: Loaded, tmp_path: Path) -> None:
    found = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_product_code": "AmazonS3", "tags": {}}))
    assert any("1.0 node-hours of train, on-demand, on no bill" in f.given for f in found.findings)


def test_what_a_tenant_has_beside_nodes_is_its_own_the_rest_the_platforms(loaded: Loaded, tmp_path: Path) -> None:
    tagged = {"user_tenancy_tenant": "research"}
    rows = [
        {"line_item_unblended_cost": 20.0, "tags": POOL},
        {"line_item_product_code": "AmazonS3", "line_item_unblended_cost": 4.0, "tags": tagged},
        {
            "line_item_product_code": "AmazonEKS",
            "line_item_unblended_cost": 0.1,
            "line_item_usage_type": "EUC1-Cluster",
        },
    ]
    found = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(found, "research", "s3") == 4
    assert dollars(found, "overhead") == 0.1
    assert dollars(found) == 24.1


def test_what_others_in_the_account_spend_is_no_line_and_a_note(loaded: Loaded, tmp_path: Path) -> None:
    other = {"user_tenancy_environment": "other"}
    rows = [{"line_item_unblended_cost": 20.0, "tags": POOL}, {"line_item_unblended_cost": 5.0, "tags": other}]
    found = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(found) == 20
    assert found.notes == ["$5.00 of the bill have no tag tenancy:environment=small: they are of somebody else"]


def test_a_bill_in_another_currency_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_currency_code": "EUR", "tags": POOL})
    with pytest.raises(Violation, match="EUR"):
        with_bill(loaded, path)


@pytest.mark.parametrize("content", ["no Parquet", ""])
def test_a_bill_that_is_no_export_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.parquet"
    path.write_text(content, "utf-8")
    with pytest.raises(Violation, match="bill-07"):
        bills.read([path], whole(OCTOBER, END), "small")


def test_an_export_without_resources_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"line_item_unblended_cost": [1.0]}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(Violation, match="without column"):
        bills.read([tmp_path / "c.parquet"], whole(OCTOBER, END), "small")
