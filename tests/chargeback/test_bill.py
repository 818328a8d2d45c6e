"""AWS's own bill: what it says is charged once, to whom it says, or named."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tenancy.chargeback import bill as bills
from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.report import make_report
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import Loaded
from tests.chargeback.scene import (
    DAY,
    HOUR,
    NOVEMBER,
    OCTOBER,
    allocation,
    dollars,
    node,
    priced,
    tables_of,
    whole_periods,
)

END = OCTOBER + HOUR
TRAIN = [node("t1", "train", OCTOBER, END)]
HOURLY = pl.Datetime("us")
"""As CUR has them: without a zone."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("bill"))


def cur(path: Path, *rows: dict[str, Any], maps: bool = True, without: str = "", **types: Any) -> Path:
    """A CUR 2.0 export: one row for each hour of each resource."""
    parquet_rows = []
    for bill_row in rows:
        row = dict(bill_row)
        tags = {"user_tenancy_environment": "small", **row.pop("tags", {})}
        at = dt.datetime.fromtimestamp(row.pop("at", OCTOBER), dt.UTC).replace(tzinfo=None)
        parquet_rows.append(
            {
                "line_item_line_item_type": "Usage",
                "line_item_product_code": "AmazonEC2",
                "line_item_usage_type": "EUC1-BoxUsage:p4d.24xlarge",
                "line_item_usage_start_date": at,
                "line_item_usage_end_date": at + dt.timedelta(hours=1),
                "line_item_unblended_cost": 0.0,
                "line_item_currency_code": "USD",
                **dict.fromkeys(bills.SUM_COLUMNS, 0.0),
                "reservation_reservation_a_r_n": "",
                **row,
                "resource_tags": [{"key": k, "value": v} for k, v in tags.items()] if maps else tags,
            }
        )
    frame = pl.DataFrame(parquet_rows, infer_schema_length=None).drop(without or [])
    frame.with_columns(pl.col(name).cast(kind) for name, kind in types.items()).write_parquet(path)
    return path


POOL = {"user_tenancy_pool": "train"}


def with_bill(loaded: Loaded, *paths: Path, nodes: list[dict[str, Any]] = TRAIN, **tables: Any) -> ChargebackReport:
    bill_periods = whole_periods(OCTOBER, END)
    rows = [allocation("fraud--train", "t1", "a100", 2, OCTOBER, END)]
    usage_tables = tables_of(OCTOBER, END, nodes=nodes, allocations=rows, **tables)
    return make_report(
        loaded.environment, loaded.tenants, usage_tables, bill_periods, bills.read_bill(paths, bill_periods, "small")
    )


@pytest.mark.parametrize("maps", [True, False], ids=["map", "structure"])
def test_the_bill_and_no_list_price_is_what_is_shared_out(loaded: Loaded, tmp_path: Path, maps: bool) -> None:
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 13.2, "tags": POOL}, maps=maps))
    assert dollars(costs) == 13.2
    assert dollars(costs, "fraud", "held") == 3.3


def test_tags_are_known_however_the_export_spells_them(loaded: Loaded, tmp_path: Path) -> None:
    tags = {"user:tenancy:environment": "small", "user:tenancy:pool": "train"}
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 8.0, "tags": tags}))
    assert dollars(costs, "train") == 8


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
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows), nodes=nodes)
    assert (dollars(costs, "on-demand"), dollars(costs, "spot")) == (20, 7)


def test_what_a_reservation_runs_is_on_demand_on_the_bill(loaded: Loaded, tmp_path: Path) -> None:
    nodes = [node("t1", "train", OCTOBER, END, purchase="reservation")]
    costs = with_bill(
        loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 20.0, "tags": POOL}), nodes=nodes
    )
    assert dollars(costs, "reservation") == 20


@pytest.mark.parametrize("usage", ["UnusedBox", "UnusedDed"])
def test_the_unused_part_of_a_capacity_reservation_is_the_pools(loaded: Loaded, tmp_path: Path, usage: str) -> None:
    rows = [
        {"line_item_unblended_cost": 24.0, "tags": POOL},
        {"line_item_usage_type": f"EUC1-{usage}:p4d.24xlarge", "line_item_unblended_cost": 8.0, "tags": POOL},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(costs) == 32
    assert dollars(costs, "train") == 32, "not the platform's, which all tenants would pay"


def test_a_pool_on_the_bill_of_which_no_node_was_seen_is_named(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 20.0, "tags": POOL},
        {"line_item_unblended_cost": 9.0, "tags": {"user_tenancy_pool": "serve"}},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(costs, "(no data)") == 9
    assert any("$9.00 billed for serve" in f.observation for f in costs.findings)


def test_nodes_that_are_on_no_bill_are_named(loaded: Loaded, tmp_path: Path) -> None:
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_product_code": "AmazonS3", "tags": {}}))
    assert any("1.0 node-hours of train, on-demand, on no bill" in f.observation for f in costs.findings)


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
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(costs, "research", "s3") == 4
    assert dollars(costs, "overhead") == 0.1
    assert dollars(costs) == 24.1


def test_what_others_in_the_account_spend_is_no_line_and_a_note(loaded: Loaded, tmp_path: Path) -> None:
    foreign_tags = {"user_tenancy_environment": "other"}
    rows = [{"line_item_unblended_cost": 20.0, "tags": POOL}, {"line_item_unblended_cost": 5.0, "tags": foreign_tags}]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(costs) == 20
    assert costs.notes == [
        "$5.00 of the bill have no tag tenancy:environment=small: they are not part of this environment"
    ]


@pytest.mark.parametrize("net", [27.0, 30.0, None, float("nan")])
def test_what_a_contract_takes_off_is_named(loaded: Loaded, tmp_path: Path, net: float | None) -> None:
    row = {"line_item_unblended_cost": 30.0, bills.NET_COST_COLUMN: net, "tags": POOL}
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", row, **{bills.NET_COST_COLUMN: pl.Float64}))
    contract_notes = [note for note in costs.notes if bills.NET_COST_COLUMN in note]
    assert [("$3.00" in note, "before them" in note) for note in contract_notes] == [(True, True)] * (net == 27.0)
    assert dollars(costs) == 30


def test_a_bill_in_another_currency_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_currency_code": "EUR", "tags": POOL})
    with pytest.raises(Violation, match="EUR"):
        with_bill(loaded, path)


@pytest.mark.parametrize("content", ["no Parquet", ""])
def test_a_bill_that_is_no_export_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.parquet"
    path.write_text(content, "utf-8")
    with pytest.raises(Violation, match="bill-07"):
        bills.read_bill([path], whole_periods(OCTOBER, END), "small")


def test_an_export_without_resources_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"line_item_unblended_cost": [1.0]}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(Violation, match="without column"):
        bills.read_bill([tmp_path / "c.parquet"], whole_periods(OCTOBER, END), "small")


# Times


def outside(costs: ChargebackReport) -> list[str]:
    return [f.observation for f in costs.findings if "outside of the range" in f.observation]


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]


@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_a_bill_is_the_same_in_every_time_zone_of_the_machine(loaded: Loaded, tmp_path: Path, zone: str) -> None:
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL}))
    assert (dollars(costs), outside(costs)) == (10, []), zone


@pytest.mark.parametrize(("zone", "inside"), [("UTC", 10), ("Europe/Berlin", 0)])
def test_a_time_with_a_zone_is_of_its_zone(loaded: Loaded, tmp_path: Path, zone: str, inside: float) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL})
    times = [pl.col(name).dt.replace_time_zone(zone) for name in bills.TIMES]
    pl.read_parquet(path).with_columns(times).write_parquet(path)
    assert dollars(with_bill(loaded, path)) == inside


def test_a_line_without_an_end_is_of_the_moment_at_which_it_starts(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 10.0, "tags": POOL},
        {"line_item_unblended_cost": 500.0, "tags": POOL, "line_item_usage_end_date": None},
    ]
    assert dollars(with_bill(loaded, cur(tmp_path / "c.parquet", *rows))) == 510


@pytest.mark.parametrize(("at", "inside"), [(OCTOBER, 500), (END, 0), (OCTOBER - 1, 0)])
def test_a_line_of_a_moment_is_in_the_range_or_named(loaded: Loaded, tmp_path: Path, at: int, inside: float) -> None:
    moment = dt.datetime.fromtimestamp(at, dt.UTC).replace(tzinfo=None)
    row = {"line_item_unblended_cost": 500.0, "at": at, "line_item_usage_end_date": moment, "tags": POOL}
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", row))
    assert dollars(costs) == inside
    assert [observation.split()[0] for observation in outside(costs)] == ([] if inside else ["$500.00"])


def test_every_day_of_a_line_of_a_month_has_its_part(tmp_path: Path) -> None:
    end = dt.datetime.fromtimestamp(NOVEMBER, dt.UTC).replace(tzinfo=None)
    row = {"line_item_unblended_cost": 100.0, "line_item_usage_end_date": end, "tags": POOL}
    days = whole_periods(OCTOBER, NOVEMBER, PeriodLength.DAY)
    read_bill = bills.read_bill([cur(tmp_path / "c.parquet", row)], days, "small")
    assert sorted(read_bill.costs_by_unit.values()) == [3_225_806] * 31, (
        "each rounded by itself: a day costs the same in any range"
    )


# What is told, and by whom it is paid


def test_another_tag_of_the_same_value_does_not_make_a_line_ours(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 10.0, "tags": POOL},
        {"line_item_unblended_cost": 700.0, "tags": {"user_tenancy_environment": "other", "user_env": "small"}},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert dollars(costs) == 10
    assert costs.notes == [
        "$700.00 of the bill have no tag tenancy:environment=small: they are not part of this environment"
    ]


def test_taxes_have_no_usage_type_and_are_charged(loaded: Loaded, tmp_path: Path) -> None:
    tax = {
        "line_item_line_item_type": "Tax",
        "line_item_usage_type": None,
        "line_item_unblended_cost": 5.0,
        "tags": {"user_tenancy_tenant": "research"},
    }
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL}, tax))
    assert dollars(costs, "research", "other") == 5
    assert "AmazonEC2 Tax" in {line.detail for line in costs.lines}


@pytest.mark.parametrize(("tenant", "who", "is_named"), [("fruad", "(no tenant)", True), ("fraud", "fraud", False)])
def test_a_tag_of_an_unknown_tenant_gives_no_tenant_and_is_named(
    loaded: Loaded, tmp_path: Path, tenant: str, who: str, is_named: bool
) -> None:
    row = {
        "line_item_product_code": "AmazonS3",
        "line_item_unblended_cost": 4.0,
        "tags": {"user_tenancy_tenant": tenant},
    }
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", row))
    assert dollars(costs, who, "s3") == 4
    assert any("$4.00 billed with the tag tenancy:tenant=fruad" in f.observation for f in costs.findings) == is_named


VOLUME = {"line_item_usage_type": "EUC1-EBS:VolumeUsage.gp3", "line_item_unblended_cost": 8.0}


@pytest.mark.parametrize(
    ("tags", "who"),
    [
        ({"user_tenancy_namespace": "fraud--train", "user_tenancy_tenant": "fraud"}, "fraud"),
        ({"user_tenancy_namespace": "fraud--train"}, "fraud"),
        ({"user_kubernetes_io_created_for_pvc_namespace": "research--main"}, "research"),
        ({"user:kubernetes.io/created-for/pvc/namespace": "research--main"}, "research"),
        ({"user_tenancy_namespace": "fraud--train", "user_tenancy_tenant": "research"}, "fraud"),
        ({"user_tenancy_namespace": "monitoring"}, "overhead"),
        ({"user_tenancy_namespace": "gone--main", "user_tenancy_tenant": "fraud"}, "fraud"),
        ({"user_tenancy_namespace": "gone--main", "user_tenancy_tenant": "gone"}, "(no tenant)"),
        ({"user_tenancy_namespace": "ml-fraud"}, "(no tenant)"),
        ({}, "overhead"),
    ],
    ids=lambda argument: (
        " ".join(f"{k.rpartition('_')[2]}={v}" for k, v in argument.items()) if isinstance(argument, dict) else argument
    ),
)
def test_a_volume_is_its_namespaces_tenants(loaded: Loaded, tmp_path: Path, tags: dict[str, str], who: str) -> None:
    rows = [{"line_item_unblended_cost": 20.0, "tags": POOL}, {**VOLUME, "tags": tags}]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    charged_to = (who,) if who == "overhead" else (who, "storage")
    assert (dollars(costs, *charged_to), dollars(costs)) == (8, 28)
    assert (who == "(no tenant)") is any(finding.rule == "bill-08" for finding in costs.findings)


def test_a_volume_of_a_namespace_that_changed_hands_is_each_tenants_for_its_time(
    loaded: Loaded, tmp_path: Path
) -> None:
    row = {**VOLUME, "tags": {"user_tenancy_namespace": "fraud--train"}}
    quarter = OCTOBER + HOUR // 4
    spaces = [
        {"namespace": "fraud--train", "tenant": "fraud", "start": OCTOBER, "end": quarter},
        {"namespace": "fraud--train", "tenant": "research", "start": quarter, "end": END},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", row), namespaces=spaces)
    assert (dollars(costs, "fraud", "storage"), dollars(costs, "research", "storage")) == (2, 6)


def test_a_volume_of_a_namespace_without_a_tenant_is_named(loaded: Loaded, tmp_path: Path) -> None:
    row = {**VOLUME, "tags": {"user_tenancy_namespace": "ml-fraud"}}
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", row))
    observations = [finding.observation for finding in costs.findings if finding.rule == "bill-08"]
    assert observations == ["$8.00 billed with the tag tenancy:namespace=ml-fraud, which belongs to no tenant"]
    assert "AmazonEC2 ml-fraud" in {line.detail for line in costs.lines}


def test_a_table_of_lines_beside_a_bill_is_not_read_and_a_note_says_so(loaded: Loaded, tmp_path: Path) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL})
    lines = [{"kind": "s3", "tenant": "fraud", "dollars": 50, "start": OCTOBER, "end": END}]
    costs = with_bill(loaded, path, lines=lines)
    assert dollars(costs) == 10
    assert costs.notes == ["the table of lines is not read, because with --bill all costs come from the bill"]
    assert with_bill(loaded, path).notes == []


def test_a_pool_that_a_credit_pays_is_on_the_bill(loaded: Loaded, tmp_path: Path) -> None:
    rows = [
        {"line_item_unblended_cost": 10.0, "tags": POOL},
        {"line_item_line_item_type": "Credit", "line_item_unblended_cost": -10.0, "tags": POOL},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert (len(costs.bills), set(costs.bills.values())) == (1, {0})
    assert not [f for f in costs.findings if "on no bill" in f.observation]


# What was paid ahead

COMMITMENTS = [
    (
        {"line_item_line_item_type": "SavingsPlanCoveredUsage", "savings_plan_savings_plan_effective_cost": 6.0},
        {
            "line_item_line_item_type": "SavingsPlanRecurringFee",
            "line_item_product_code": "ComputeSavingsPlans",
            "line_item_usage_type": "ComputeSP:1yrNoUpfront",
            "savings_plan_used_commitment": 6.0,
        },
        "savings_plan_total_commitment_to_date",
        6.0,
        "ComputeSavingsPlans unused commitment",
    ),
    (
        {"line_item_line_item_type": "DiscountedUsage", "reservation_effective_cost": 6.0},
        {"line_item_line_item_type": "RIFee", "line_item_usage_type": "HeavyUsage:p4d.24xlarge", "tags": POOL},
        "reservation_unused_recurring_fee",
        0.0,
        "AmazonEC2 unused reservation",
    ),
]


@pytest.mark.parametrize("unused", [0.0, 2.5])
@pytest.mark.parametrize(("used", "fee", "column", "already", "what"), COMMITMENTS, ids=["plan", "reservation"])
def test_a_commitment_costs_what_was_used_of_it_and_a_line_of_what_was_not(
    loaded: Loaded,
    tmp_path: Path,
    used: dict[str, Any],
    fee: dict[str, Any],
    column: str,
    already: float,
    what: str,
    unused: float,
) -> None:
    rows = [{**used, "tags": POOL}, {**fee, "line_item_unblended_cost": 6.0 + unused, column: already + unused}]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows))
    assert (dollars(costs, "train"), dollars(costs, "other")) == (6, unused)
    assert {line.detail for line in costs.lines if line.detail} == ({what} if unused else set())


@pytest.mark.parametrize(
    ("arn", "cost"),
    [
        ("arn:aws:ec2:eu-central-1:111122223333:reserved-instances/1", 0),
        ("arn:aws:ec2:eu-central-1:111122223333:capacity-reservation/cr-1", 90),
        ("", 90),
    ],
)
def test_a_fee_for_a_reservation_stands_in_its_hours_and_any_other_is_charged(
    loaded: Loaded, tmp_path: Path, arn: str, cost: float
) -> None:
    fee = {
        "line_item_line_item_type": "Fee",
        "line_item_unblended_cost": 90.0,
        "line_item_usage_type": "HeavyUsage:p4d.24xlarge",
        "reservation_reservation_a_r_n": arn,
    }
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL}, fee))
    assert dollars(costs) == 10 + cost


KINDS = [(kind, column) for kind, columns in bills.AMORTISED_COST_COLUMNS.items() for column in columns] + [
    ("Fee", bills.RESERVATION_COLUMN)
]


@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_a_line_whose_cost_the_export_lacks_is_refused(loaded: Loaded, tmp_path: Path, kind: str, column: str) -> None:
    row = {"line_item_line_item_type": kind, "tags": POOL}
    with pytest.raises(Violation, match=f"row 1: {kind} without {column}.*export the column {column}"):
        with_bill(loaded, cur(tmp_path / "c.parquet", row, without=column))
    with_bill(loaded, cur(tmp_path / "c.parquet", row))


@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_what_others_paid_ahead_is_a_note_where_the_export_does_not_say_it(
    loaded: Loaded, tmp_path: Path, kind: str, column: str
) -> None:
    foreign_tags = {"user_tenancy_environment": "other"}
    rows = [
        {"line_item_unblended_cost": 10.0, "tags": POOL},
        {"line_item_line_item_type": kind, "line_item_unblended_cost": 5.0, "tags": foreign_tags},
    ]
    costs = with_bill(loaded, cur(tmp_path / "c.parquet", *rows, without=column))
    assert dollars(costs) == 10
    assert [note for note in costs.notes if f"of 1 lines {kind}" in note and column in note]


# Once


def test_a_bill_that_is_named_twice_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL})
    (tmp_path / "link.parquet").symlink_to(path)
    os.link(path, tmp_path / "hard.parquet")
    for again in (path, tmp_path / "link.parquet", tmp_path / "hard.parquet", tmp_path / "." / "c.parquet", tmp_path):
        with pytest.raises(Violation, match="name it once"):
            with_bill(loaded, path, again)
    assert dollars(with_bill(loaded, path)) == 10


def test_a_folder_is_all_files_in_it(loaded: Loaded, tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / "data" / f"BILLING_PERIOD={name}"
        folder.mkdir(parents=True)
        row = {"identity_line_item_id": name, "line_item_unblended_cost": 5.0, "tags": POOL}
        cur(folder / "part.parquet", row)
    assert dollars(with_bill(loaded, tmp_path / "data")) == 10


def test_a_folder_without_a_bill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="without a Parquet file"):
        bills.read_bill([tmp_path], whole_periods(OCTOBER, END), "small")


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, True),
        ({"line_item_unblended_cost": 11.0}, True),
        ({"identity_line_item_id": "def"}, False),
        ({"identity_time_interval": "2026-10-01T01:00:00Z/2026-10-01T02:00:00Z"}, False),
    ],
    ids=["copied", "another version", "another line", "another hour"],
)
@pytest.mark.parametrize("files", [1, 2])
def test_a_line_that_is_told_twice_is_refused(
    loaded: Loaded, tmp_path: Path, more: dict[str, Any], refused: bool, files: int
) -> None:
    row = {
        "identity_line_item_id": "abc",
        "identity_time_interval": "2026-10-01T00:00:00Z/2026-10-01T01:00:00Z",
        "line_item_unblended_cost": 10.0,
        "tags": POOL,
    }
    rows = [row, {**row, **more}]
    groups = [rows] if files == 1 else [[row] for row in rows]
    paths = [cur(tmp_path / f"{i}.parquet", *group) for i, group in enumerate(groups)]
    if refused:
        with pytest.raises(Violation, match=r"line abc in .*would count twice"):
            with_bill(loaded, *paths)
    else:
        assert dollars(with_bill(loaded, *paths)) == 20


def test_several_files_whose_lines_cannot_be_told_apart_are_refused(loaded: Loaded, tmp_path: Path) -> None:
    paths = [cur(tmp_path / f"{i}.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL}) for i in range(2)]
    with pytest.raises(Violation, match=r"2 files and 0\.parquet without column identity_line_item_id"):
        with_bill(loaded, *paths)


# What cannot be read


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e10])
@pytest.mark.parametrize("environment", ["small", "other"])
def test_an_amount_that_is_none_is_refused_with_its_row(
    loaded: Loaded, tmp_path: Path, value: float, environment: str
) -> None:
    broken_row = {"line_item_unblended_cost": value, "tags": {"user_tenancy_environment": environment}}
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL}, broken_row)
    with pytest.raises(Violation, match=r"c\.parquet: row 2: line_item_unblended_cost"):
        with_bill(loaded, path)


def test_what_is_no_number_in_a_column_that_a_line_does_not_need_is_nothing(loaded: Loaded, tmp_path: Path) -> None:
    row = {"line_item_unblended_cost": 10.0, "reservation_effective_cost": float("nan"), "tags": POOL}
    assert dollars(with_bill(loaded, cur(tmp_path / "c.parquet", row))) == 10


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("line_item_unblended_cost", ["ten"]),
        ("reservation_effective_cost", ["ten"]),
        ("resource_tags", ['{"user_tenancy_environment": "small"}']),
        ("resource_tags", [["small"]]),
        ("resource_tags", [{"user_tenancy_environment": 1}]),
        ("line_item_usage_start_date", ["2026-10-01T00:00:00Z"]),
        ("line_item_usage_end_date", [OCTOBER]),
        ("line_item_usage_type", [1]),
        ("identity_line_item_id", [1]),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, column: str, values: list[Any]) -> None:
    path = cur(tmp_path / "c.parquet", {"identity_line_item_id": "abc", "tags": POOL})
    pl.read_parquet(path).with_columns(pl.Series(column, values)).write_parquet(path)
    with pytest.raises(Violation, match=f"{column} of "):
        bills.read_bill([path], whole_periods(OCTOBER, END), "small")


@pytest.mark.parametrize(
    "types",
    [
        {"line_item_usage_type": pl.Categorical},
        {"line_item_unblended_cost": pl.Decimal(20, 10)},
        {"line_item_usage_start_date": pl.Datetime("ns")},
        {"line_item_usage_end_date": pl.Datetime("ms", "UTC")},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_a_column_that_says_the_same_in_another_type_is_read(
    loaded: Loaded, tmp_path: Path, types: dict[str, Any]
) -> None:
    row = {"line_item_unblended_cost": 10.0, "tags": POOL}
    assert dollars(with_bill(loaded, cur(tmp_path / "c.parquet", row, **types))) == 10


def test_an_export_without_any_tag_is_not_ours(loaded: Loaded, tmp_path: Path) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0})
    pl.read_parquet(path).with_columns(resource_tags=pl.lit(None)).write_parquet(path)
    assert with_bill(loaded, path).notes[:1] == [
        "$10.00 of the bill have no tag tenancy:environment=small: they are not part of this environment"
    ]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (None, OCTOBER),
        (None, None),
        (END, OCTOBER),
        (-DAY, OCTOBER),
        (OCTOBER, 9_000_000_000_000),
    ],
)
def test_a_line_of_no_time_is_refused_with_its_row(
    loaded: Loaded, tmp_path: Path, start: int | None, end: int | None
) -> None:
    path = cur(tmp_path / "c.parquet", {"line_item_unblended_cost": 10.0, "tags": POOL})
    seconds = dict(zip(bills.TIMES, (start, end), strict=True))
    times = {name: pl.lit(None if at is None else at * 10**6, HOURLY) for name, at in seconds.items()}
    pl.read_parquet(path).with_columns(**times).write_parquet(path)
    with pytest.raises(Violation, match="row 1: line_item_usage_start_date"):
        with_bill(loaded, path)


def test_a_line_that_cost_nothing_known_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    for kind in ("Usage", "Fee"):
        row = {"line_item_line_item_type": kind, "line_item_unblended_cost": None, "tags": POOL}
        with pytest.raises(Violation, match=f"row 2: {kind} without line_item_unblended_cost"):
            with_bill(loaded, cur(tmp_path / "c.parquet", {"tags": POOL}, row))
