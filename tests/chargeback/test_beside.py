"""Costs other than those of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import Loaded
from tests.chargeback.scene import (
    DAY,
    HOUR,
    MICRO,
    NOVEMBER,
    OCTOBER,
    dollars,
    node,
    priced,
    report,
    rules,
)

END = OCTOBER + HOUR
TRAIN = [node("t1", "train", OCTOBER, END)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("beside"), "costs: {rates: {storage: 0.08, egress: 0.09}}\n")


def billed(
    loaded: Loaded, *lines: dict[str, Any], start: int = OCTOBER, end: int = END, by: PeriodLength = PeriodLength.RANGE
) -> ChargebackReport:
    rows = [{"start": start, "end": end, **line} for line in lines]
    return report(loaded, start, end, by, nodes=[node("t1", "train", start, end)], lines=rows)


def test_storage_costs_its_rate_for_the_part_of_a_month_that_it_was_there(loaded: Loaded) -> None:
    costs = billed(loaded, {"kind": "storage", "namespace": "fraud--train", "quantity": 730})
    assert dollars(costs, "fraud", "storage") == 0.08, "730 GiB for one of 730 hours"


def test_traffic_costs_its_rate_whatever_the_time(loaded: Loaded) -> None:
    assert dollars(billed(loaded, {"kind": "egress", "tenant": "fraud", "quantity": 100}), "fraud", "egress") == 9


def test_a_line_without_dollars_or_rate_is_named_and_not_made_up(loaded: Loaded) -> None:
    costs = billed(loaded, {"kind": "snapshot", "tenant": "fraud", "quantity": 100})
    assert dollars(costs, "snapshot") == 0
    assert "100.00 GiB of snapshot" in next(f.observation for f in costs.findings if f.rule == "bill-01")


def test_a_line_that_runs_over_the_first_of_a_month_is_split_by_time(loaded: Loaded) -> None:
    line = {"kind": "other", "tenant": "fraud", "dollars": 40}
    costs = billed(loaded, line, start=NOVEMBER - DAY, end=NOVEMBER + 3 * DAY, by=PeriodLength.MONTH)
    assert (dollars(costs, "fraud", "other", 0), dollars(costs, "fraud", "other", 1)) == (10, 30)


def objects(costs: ChargebackReport, tenant: str) -> float:
    """Dollars of a tenant's own objects, without its part of the platform's."""
    return sum(li.micro for li in costs.lines if (li.tenant, li.category) == (tenant, Category.S3)) / MICRO


@pytest.mark.parametrize(
    ("prefix", "who"),
    [("teams/fraud/models/", "fraud"), ("teams/fraud-2/", "overhead"), ("shared/", "overhead"), ("", "overhead")],
)
def test_objects_are_whose_alone_they_can_be_written(loaded: Loaded, prefix: str, who: str) -> None:
    costs = billed(loaded, {"kind": "s3", "bucket": "datasets", "prefix": prefix, "dollars": 9})
    assert objects(costs, "fraud") == (9 if who == "fraud" else 0)
    assert dollars(costs, "overhead") == (0 if who == "fraud" else 9), "what several read is the platform's"


def test_a_buckets_bill_is_split_by_what_lies_under_its_prefixes(loaded: Loaded) -> None:
    lines = [
        {"kind": "s3", "bucket": "datasets", "prefix": "", "quantity": 0, "dollars": 100},
        {"kind": "s3", "bucket": "datasets", "prefix": "teams/fraud/", "quantity": 30, "dollars": None},
        {"kind": "s3", "bucket": "datasets", "prefix": "shared/", "quantity": 10, "dollars": None},
    ]
    costs = billed(loaded, *lines)
    assert (objects(costs, "fraud"), dollars(costs, "overhead")) == (75, 25)


def test_an_unknown_kind_is_refused(loaded: Loaded) -> None:
    with pytest.raises(Violation, match="bill-07"):
        billed(loaded, {"kind": "coffee", "tenant": "fraud", "dollars": 3})


def test_a_line_without_a_tenant_is_named(loaded: Loaded) -> None:
    costs = billed(loaded, {"kind": "other", "dollars": 3})
    assert dollars(costs, "(no tenant)") == 3
    assert "bill-08" in rules(costs)


def test_a_line_of_an_unknown_tenant_has_no_tenant_and_is_named(loaded: Loaded) -> None:
    costs = billed(loaded, {"kind": "other", "tenant": "fruad", "dollars": 3})
    assert dollars(costs, "(no tenant)") == 3
    assert [f.observation for f in costs.findings if f.rule == "bill-08"] == ["1 line of unknown tenant fruad"]


def test_a_line_of_a_tenant_that_was_seen_is_its_own(loaded: Loaded) -> None:
    rows = [{"kind": "other", "tenant": "gone", "dollars": 3, "start": OCTOBER, "end": END}]
    claimed = [{"namespace": "gone--main", "tenant": "gone", "start": OCTOBER, "end": END}]
    costs = report(loaded, OCTOBER, END, nodes=TRAIN, lines=rows, namespaces=claimed)
    assert dollars(costs, "gone") == 3
    assert "bill-08" not in rules(costs)


@pytest.mark.parametrize(("namespace", "who"), [("shop", "(no tenant)"), ("fraud--train", "fraud")])
def test_a_line_of_a_namespace_without_a_tenant_is_named(loaded: Loaded, namespace: str, who: str) -> None:
    costs = billed(loaded, {"kind": "other", "namespace": namespace, "dollars": 3})
    assert dollars(costs, who, "other") == 3
    assert any("1 line of namespace shop, which belongs to no tenant" in f.observation for f in costs.findings) == (
        who != "fraud"
    )


def test_a_line_of_a_namespace_that_two_claim_is_no_ones_and_named(loaded: Loaded) -> None:
    rows = [{"kind": "other", "namespace": "shop", "dollars": 3, "start": OCTOBER, "end": END}]
    claimed = [{"namespace": "shop", "tenant": who, "start": OCTOBER, "end": END} for who in ("fraud", "research")]
    costs = report(loaded, OCTOBER, END, nodes=TRAIN, lines=rows, namespaces=claimed)
    assert dollars(costs, "(disputed: fraud, research)") == 3
    assert any("of namespace shop, which belongs to more than one tenant" in f.observation for f in costs.findings)
