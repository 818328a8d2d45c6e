"""Effects of each rule of the model on a bill, in traces of a few rows. A node of train or serve is $20 an hour."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.periods import LONGEST, PeriodLength, iso_time, moment, periods, zone_of
from tenancy.chargeback.rounding import divide_by_weights, round_to_sum
from tenancy.chargeback.tables import TABLES
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import Loaded
from tests.chargeback.scene import (
    DAY,
    HOUR,
    MICRO,
    NOVEMBER,
    OCTOBER,
    PRICES,
    UTC,
    allocation,
    device_hours,
    dollars,
    node,
    priced,
    report,
    rules,
    tables_of,
    whole_periods,
)
from tests.conftest import SpecFolder

END = OCTOBER + HOUR
TRAIN = [node("t1", "train", OCTOBER, END)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("allocate"))


def hour(loaded: Loaded, *allocations: dict, nodes: list[dict] | None = None, **more: object) -> ChargebackReport:
    """One hour of one node of train, unless others are named."""
    return report(loaded, OCTOBER, END, nodes=nodes or TRAIN, allocations=list(allocations) or [NO_USE], **more)  # type: ignore[arg-type]


NO_USE = allocation("fraud--train", "t1", "a100", 1, END, END)


# What is held


def test_a_whole_gpu_costs_its_part_of_the_node(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 1, OCTOBER, END))
    assert dollars(costs, "fraud", "held") == 2.5


def test_a_slice_costs_the_larger_of_its_compute_and_its_memory_share(tmp_path: Path) -> None:
    loaded = priced(tmp_path)
    rows = [allocation("fraud--serve", "s1", "a100-1g.5gb", 7, OCTOBER, END)]
    costs = hour(loaded, *rows, nodes=[node("s1", "serve", OCTOBER, END)])
    assert dollars(costs, "fraud", "held") == 2.5, "seven slices with a seventh of the compute each are one board"


def test_slices_of_a_layout_with_something_left_over_pay_for_the_whole_board(tmp_path: Path) -> None:
    folder = SpecFolder(tmp_path / "small")
    folder.add("environment.yaml", PRICES)
    folder.edit("environment.yaml", "layout: {1g.5gb: 7}", "layout: {1g.5gb: 4, 3g.20gb: 1}")
    folder.edit("environment.yaml", "  l4-shared:", "  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}\n  l4-shared:")
    folder.edit("tenants/fraud.yaml", "gpus: {a100-1g.5gb: 14}", "gpus: {a100-1g.5gb: 8}")
    folder.edit("tenants/fraud.yaml", "a100-1g.5gb: {guaranteed: 14}", "a100-1g.5gb: {guaranteed: 8}")
    rows = [allocation("fraud--serve", "s1", flavor, 1, OCTOBER, END) for flavor in ("a100-1g.5gb", "a100-3g.20gb")]
    costs = hour(folder.load(), *rows, nodes=[node("s1", "serve", OCTOBER, END)])
    # Shares of 1/7 and 1/2: four and one of them are 15/14 of a board, which is paid for once.
    assert dollars(costs, "fraud", "a100-1g.5gb") == pytest.approx(2.5 * (1 / 7) / (15 / 14), abs=1e-6)
    assert dollars(costs, "fraud", "a100-3g.20gb") == pytest.approx(2.5 * (1 / 2) / (15 / 14), abs=1e-6)


def test_a_replica_costs_its_part_of_a_shared_gpu_and_the_rest_is_the_owners(loaded: Loaded) -> None:
    nodes = [node("l1", "notebooks", OCTOBER, END)]
    costs = hour(loaded, allocation("research--main", "l1", "l4-shared", 1, OCTOBER, END), nodes=nodes)
    assert dollars(costs, "research", "held") == 0.2, "one of 16 replicas of a node at 3.20"
    assert dollars(costs, "research", "idle") == 3.0


@pytest.mark.parametrize(("cpu", "part"), [(8, 1 / 8), (47, 47 / 95)])
def test_who_takes_more_cpu_than_comes_with_its_gpus_pays_for_the_cpu(loaded: Loaded, cpu: int, part: float) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 1, OCTOBER, END, cpu=cpu))
    assert dollars(costs, "fraud", "held") == pytest.approx(20 * part, rel=0.02)


def test_memory_alone_costs_its_part_of_the_node(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "", 0, OCTOBER, END, memory=500 * 2**30))
    assert 9 < dollars(costs, "fraud", "held") < 10.5, "500 of about 1,050 GiB that are left for tenants"
    assert device_hours(costs, "fraud") == 0


def test_the_platforms_own_pods_on_a_gpu_node_take_nothing_of_it(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("kube-system", "t1", "", 0, OCTOBER, END, cpu=4))
    assert dollars(costs, "held") == 0
    assert dollars(costs, "idle") == 20


# Pools without GPUs, and without queues

GENERAL = "  general: {instance-type: m7i.4xlarge, nodes: 1}\n"


def test_a_pool_without_gpus_is_shared_by_cpu_and_memory_and_its_rest_is_the_platforms(tmp_path: Path) -> None:
    folder = SpecFolder(tmp_path / "small")
    folder.add("environment.yaml", GENERAL + PRICES)
    rows = [
        allocation("fraud--train", "g1", "", 0, OCTOBER, END, cpu=5),
        allocation("kube-system", "g1", "", 0, OCTOBER, END, cpu=3),
    ]
    costs = hour(folder.load(), *rows, nodes=[node("g1", "general", OCTOBER, END)])
    own_cost = dollars(costs, "fraud", "held")
    assert own_cost == pytest.approx(0.8064 * 5 / 15.5, rel=0.05), "of 16 cores, less what the system keeps"
    assert dollars(costs, "fraud", "overhead") == pytest.approx(0.8064 - own_cost, abs=1e-6)


def test_without_queues_guarantees_are_those_of_the_files(tmp_path: Path) -> None:
    folder = SpecFolder(tmp_path / "small")
    folder.add("environment.yaml", "queues: {scheduler: none}\n" + PRICES)
    lends = "{guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
    folder.edit("tenants/fraud.yaml", lends, "{guaranteed: 16}")
    assert dollars(hour(folder.load()), "fraud", "idle") == pytest.approx(20 * 16 / 24, abs=1e-6)


# What is idle


def test_idle_of_a_shared_pool_goes_by_guarantee(loaded: Loaded) -> None:
    costs = hour(loaded)
    assert dollars(costs, "fraud", "idle") == pytest.approx(20 * 16 / 24, abs=1e-6)
    assert dollars(costs, "research", "idle") == pytest.approx(20 * 8 / 24, abs=1e-6)


def test_a_pool_for_two_tenants_is_owned_by_neither(tmp_path: Path) -> None:
    folder = SpecFolder(tmp_path / "small")
    folder.add("environment.yaml", PRICES)
    folder.edit("environment.yaml", "nodes: 4}", "nodes: 4, tenants: [fraud, research]}")
    costs = hour(folder.load())
    assert dollars(costs, "research", "idle") == pytest.approx(20 * 8 / 24, abs=1e-6)


def test_guarantees_that_change_within_the_range_count_from_then_on(loaded: Loaded) -> None:
    half = OCTOBER + HOUR // 2
    promised = [
        {"tenant": "fraud", "pool": "train", "flavor": "a100", "count": 8, "start": OCTOBER, "end": END},
        {"tenant": "research", "pool": "train", "flavor": "a100", "count": 8, "start": half, "end": END},
    ]
    costs = hour(loaded, guarantees=promised)
    assert (dollars(costs, "fraud", "idle"), dollars(costs, "research", "idle")) == (15, 5)


def test_unallocated_idle_is_the_platforms_and_shared_by_compute(loaded: Loaded) -> None:
    promised = [{"tenant": "fraud", "pool": "serve", "flavor": "a100-1g.5gb", "count": 7, "start": OCTOBER, "end": END}]
    rows = [
        allocation("fraud--train", "t1", "a100", 3, OCTOBER, END),
        allocation("research--main", "t1", "a100", 1, OCTOBER, END),
    ]
    costs = hour(loaded, *rows, guarantees=promised)
    assert (dollars(costs, "fraud", "overhead"), dollars(costs, "research", "overhead")) == (7.5, 2.5)


def test_without_tenants_the_platforms_cost_is_a_line_of_its_own(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {shared: {control-plane: 0.10}}\n")
    promised = [{"tenant": "fraud", "pool": "serve", "flavor": "a100-1g.5gb", "count": 7, "start": OCTOBER, "end": END}]
    costs = hour(loaded, guarantees=promised)
    assert dollars(costs, "(platform)") == 20.1


@pytest.mark.parametrize(("key", "fraud"), [("compute", 0.1 * 15 / 20), ("guarantee", 0.1 * 18 / 27), ("even", 0.05)])
def test_the_platforms_cost_is_shared_by_the_environments_key(tmp_path: Path, key: str, fraud: float) -> None:
    loaded = priced(tmp_path, f"costs: {{overhead: {key}, shared: {{control-plane: 0.10}}}}\n")
    promised = [
        {"tenant": "fraud", "pool": "train", "flavor": "a100", "count": 18, "start": OCTOBER, "end": END},
        {"tenant": "research", "pool": "train", "flavor": "a100", "count": 9, "start": OCTOBER, "end": END},
    ]
    rows = [
        allocation("fraud--train", "t1", "a100", 6, OCTOBER, END),
        allocation("research--main", "t1", "a100", 2, OCTOBER, END),
    ]
    costs = hour(loaded, *rows, guarantees=promised)
    assert dollars(costs, "fraud", "overhead") == pytest.approx(fraud, abs=1e-6)


# Borrowing

THREE = [node(f"t{i}", "train", OCTOBER, END) for i in (1, 2, 3)]
BORROWS = [allocation("fraud--train", f"t{i}", "a100", 8, OCTOBER, END) for i in (1, 2, 3)]


def test_what_is_held_above_the_guarantee_is_borrowed_and_paid_by_who_holds_it(loaded: Loaded) -> None:
    costs = hour(loaded, *BORROWS, nodes=THREE)
    assert (device_hours(costs, "fraud", "held"), device_hours(costs, "fraud", "borrowed")) == (16, 8)
    assert (dollars(costs, "fraud", "held"), dollars(costs, "fraud", "borrowed")) == (40, 20)


def test_only_the_hours_above_the_guarantee_are_borrowed(loaded: Loaded) -> None:
    rows = [*BORROWS[:2], {**BORROWS[2], "end": OCTOBER + HOUR // 4}]
    assert device_hours(hour(loaded, *rows, nodes=THREE), "fraud", "borrowed") == 2


def test_what_is_borrowed_is_credited_to_who_left_it_idle(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {lender-credit: 50}\n")
    promised = [
        {"tenant": "fraud", "pool": "train", "flavor": "a100", "count": 16, "start": OCTOBER, "end": END},
        {"tenant": "research", "pool": "train", "flavor": "a100", "count": 8, "lends": 8, "start": OCTOBER, "end": END},
    ]
    costs = hour(loaded, *BORROWS, nodes=THREE, guarantees=promised)
    assert dollars(costs, "research", "credit") == -10
    # The credit is shared as though what was borrowed had been idle.
    assert dollars(costs, "fraud", "idle") == pytest.approx(10 * 16 / 24, abs=1e-6)
    assert dollars(costs) == 60


def test_who_lends_nothing_is_credited_nothing(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {lender-credit: 50}\n")
    costs = hour(loaded, *BORROWS, nodes=THREE)
    assert dollars(costs, "credit") == 0, "research's file says strict"


def test_lenders_are_credited_for_the_hours_in_which_they_lent(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {lender-credit: 100}\n")
    half = OCTOBER + HOUR // 2
    nodes = [node(f"t{i}", "train", OCTOBER, END) for i in (1, 2, 3, 4)]
    promised = [
        {"tenant": name, "pool": "train", "flavor": "a100", "count": 8, "lends": 8, "start": OCTOBER, "end": END}
        for name in ("research", "early", "late")
    ]
    rows = [
        allocation("fraud--train", "t1", "a100", 4, OCTOBER, half),  # early leaves its own idle then, late does not
        allocation("late", "t2", "a100", 8, OCTOBER, half, tenant="late"),
        allocation("research--main", "t3", "a100", 8, OCTOBER, END),
        allocation("early", "t4", "a100", 8, half, END, tenant="early"),
    ]
    costs = hour(loaded, *rows, nodes=nodes, guarantees=promised)
    assert (dollars(costs, "early", "credit"), dollars(costs, "late", "credit")) == (-5, 0)


# Time


def test_a_job_that_crosses_the_first_of_a_month_is_split_there(loaded: Loaded) -> None:
    start, end = NOVEMBER - HOUR, NOVEMBER + 3 * HOUR
    rows = [allocation("fraud--train", "t1", "a100", 8, start, end)]
    costs = report(loaded, start, end, PeriodLength.MONTH, nodes=[node("t1", "train", start, end)], allocations=rows)
    assert [(p.name, dollars(costs, i)) for i, p in enumerate(costs.periods)] == [("2026-10", 20), ("2026-11", 60)]


def test_weeks_begin_on_monday() -> None:
    weeks = whole_periods(OCTOBER, OCTOBER + 14 * DAY, PeriodLength.WEEK)
    assert [(p.name, iso_time(p.start)[:10], p.is_whole) for p in weeks] == [
        ("2026-W40", "2026-10-01", False),
        ("2026-W41", "2026-10-05", True),
        ("2026-W42", "2026-10-12", False),
    ]


def test_a_day_with_a_change_of_clocks_has_25_hours() -> None:
    berlin = zone_of("Europe/Berlin")
    days = periods(moment("2026-10-24", berlin), moment("2026-10-27", berlin), PeriodLength.DAY, berlin)
    assert [(p.end - p.start) // HOUR for p in days] == [24, 25, 24]


def test_the_borders_are_those_of_the_time_zone() -> None:
    berlin = zone_of("Europe/Berlin")
    (month,) = periods(moment("2026-10-01", berlin), moment("2026-11-01", berlin), PeriodLength.MONTH, berlin)
    assert (iso_time(month.start), iso_time(month.end)) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")


@pytest.mark.parametrize("text", ["2026-13-01", "yesterday", "", "0001-01-01", "1969-12-31T23:59:59", "9999-01-01"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Violation, match="bill-09"):
        moment(text, UTC)


@pytest.mark.parametrize(("text", "zone"), [("0001-01-01", "Asia/Tokyo"), ("9999-12-31", "America/New_York")])
def test_a_time_that_no_calendar_has_is_refused_in_every_zone(text: str, zone: str) -> None:
    with pytest.raises(Violation, match="bill-09"):
        moment(text, zone_of(zone))


def test_what_is_held_of_a_node_for_as_long_as_can_be_asked_for_has_room(loaded: Loaded) -> None:
    end = OCTOBER + LONGEST
    maxima = {
        name: column.maximum
        for name, column in TABLES["allocations"].items()
        if column.kind != "text" and name != "count"
    }
    rows = [
        allocation(where, "t1", "a100", TABLES["allocations"]["count"].maximum, OCTOBER, end, **maxima)
        for where in ("fraud--train", "research--main")
        for _ in range(4)
    ]
    nodes = [node("t1", "train", OCTOBER, end, price=TABLES["nodes"]["price"].maximum)]
    costs = report(loaded, OCTOBER, end, nodes=nodes, allocations=rows)
    assert dollars(costs, "fraud") == dollars(costs, "research") == LONGEST / HOUR * 10**6 / 2
    with pytest.raises(Violation, match="ten years"):
        whole_periods(OCTOBER, end + 1)


def test_times_begin_with_1970_and_end_before_9999() -> None:
    assert moment("1970-01-01", UTC) == 0
    first, last = moment("9998-12-31", UTC), moment("9998-12-31T23:59:59", UTC)
    assert [period.name for period in periods(first, last, PeriodLength.MONTH, UTC)] == ["9998-12"]


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(Violation, match="bill-09"):
        zone_of("Europe/Atlantis")


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(Violation, match="bill-09"):
        periods(OCTOBER, OCTOBER, PeriodLength.MONTH, UTC)


# Prices


def test_spot_and_on_demand_are_billed_apart(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {discounts: {spot: 60}}\n")
    nodes = [node("t1", "train", OCTOBER, END), node("t2", "train", OCTOBER, END, purchase="spot")]
    costs = hour(loaded, *[allocation("fraud--train", n["node"], "a100", 8, OCTOBER, END) for n in nodes], nodes=nodes)
    assert (dollars(costs, "on-demand"), dollars(costs, "spot")) == (20, 8)


def test_a_pools_own_price_goes_before_its_boards(tmp_path: Path) -> None:
    loaded = priced(tmp_path, "costs: {pools: {train: 12.5}}\n")
    assert dollars(hour(loaded)) == 12.5


def test_without_prices_it_is_what_aws_published_and_the_report_says_so(tmp_path: Path) -> None:
    costs = hour(priced(tmp_path, prices=""))
    assert dollars(costs) == 21.957642
    assert "published" in costs.notes[0]
    assert "us-east-1, 2026-07-06" in costs.notes[0]


@pytest.mark.parametrize("purchase", ["spot", "capacity-block"])
def test_a_price_that_is_not_set_is_named_and_not_made_up(tmp_path: Path, purchase: str) -> None:
    loaded = priced(tmp_path, prices="")
    nodes = [node("t1", "train", OCTOBER, END, purchase=purchase), node("t2", "train", OCTOBER, END)]
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 8, OCTOBER, END), nodes=nodes)
    assert dollars(costs) == 21.957642, "of the other node alone"
    assert [f.observation for f in costs.findings if f.rule == "bill-01"] == [
        f"1.0 node-hours of train, {purchase} p4d.24xlarge, without a price"
    ]


def test_a_price_that_the_source_knows_goes_first(loaded: Loaded) -> None:
    assert dollars(hour(loaded, nodes=[node("t1", "train", OCTOBER, END, price=7.25)])) == 7.25


# What the data lacks


def test_an_unknown_device_is_never_counted_as_one(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "h100", 1, OCTOBER, END))
    assert (dollars(costs, "(unknown device)"), dollars(costs, "fraud")) == (20, 0)
    assert "bill-02" in rules(costs)


def test_what_others_hold_beside_an_unknown_device_is_charged_as_ever(loaded: Loaded) -> None:
    rows = [
        allocation("fraud--train", "t1", "h100", 1, OCTOBER, END),
        allocation("research--main", "t1", "a100", 4, OCTOBER, END),
    ]
    costs = hour(loaded, *rows)
    assert (dollars(costs, "(unknown device)"), dollars(costs, "research", "held")) == (10, 10)


@pytest.mark.parametrize(("pool", "instance"), [("gone", "p4d.24xlarge"), ("train", "p5.48xlarge")])
def test_a_pool_that_is_not_as_declared_is_a_line_of_its_own(loaded: Loaded, pool: str, instance: str) -> None:
    nodes = [node("t1", pool, OCTOBER, END, instance=instance, price=30)]
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 8, OCTOBER, END), nodes=nodes)
    assert dollars(costs, "(unknown device)") == 30
    assert "bill-02" in rules(costs)


def test_a_namespace_that_two_tenants_claim_at_one_time_is_named_and_neither_pays_for_the_other(loaded: Loaded) -> None:
    half = OCTOBER + HOUR // 2
    claimed = [
        {"namespace": "shop", "tenant": "fraud", "start": OCTOBER, "end": END},
        {"namespace": "shop", "tenant": "research", "start": half, "end": END},
    ]
    costs = hour(loaded, allocation("shop", "t1", "a100", 8, OCTOBER, END), namespaces=claimed)
    assert (dollars(costs, "fraud", "held"), dollars(costs, "(disputed: fraud, research)")) == (10, 10)
    assert [f.rule for f in costs.findings if "shop" in f.observation] == ["bill-03"]


def test_a_namespace_that_changes_hands_is_each_ones_in_its_time(loaded: Loaded) -> None:
    half = OCTOBER + HOUR // 2
    claimed = [
        {"namespace": "shop", "tenant": "fraud", "start": OCTOBER, "end": half},
        {"namespace": "shop", "tenant": "research", "start": half, "end": END},
    ]
    costs = hour(loaded, allocation("shop", "t1", "a100", 8, OCTOBER, END), namespaces=claimed)
    assert (dollars(costs, "fraud", "held"), dollars(costs, "research", "held")) == (10, 10)
    assert "bill-03" not in rules(costs)


def test_a_pod_with_another_tenants_label_makes_its_namespace_disputed(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 8, OCTOBER, END, tenant="research"))
    assert dollars(costs, "(disputed: fraud, research)") == 20


def test_a_pod_with_its_own_tenants_label_does_not(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 8, OCTOBER, END, tenant="fraud"))
    assert dollars(costs, "fraud", "held") == 20


def test_a_namespace_without_a_tenant_is_a_line_of_its_own(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("stray", "t1", "a100", 8, OCTOBER, END))
    assert dollars(costs, "(no tenant)") == 20
    assert "bill-08" in rules(costs)


def test_hours_without_data_are_a_named_line_and_not_idle(loaded: Loaded) -> None:
    gap = [{"start": OCTOBER, "end": OCTOBER + HOUR // 4}]
    costs = hour(loaded, allocation("fraud--train", "t1", "a100", 8, OCTOBER, END), gaps=gap)
    assert (dollars(costs, "(no data)"), dollars(costs, "fraud")) == (5, 15)
    assert costs.findings[0].observation == "no data from 2026-10-01T00:00:00Z to 2026-10-01T00:15:00Z"


def test_nodes_that_must_have_been_there_and_were_not_seen_are_named_with_their_worth(loaded: Loaded) -> None:
    costs = hour(loaded)
    missing = {f.observation: f.effect for f in costs.findings if f.rule == "bill-04"}
    assert missing["3.0 node-hours fewer of pool train than its nodes.min"] == "these hours, $60, are in no line"


def test_more_than_a_node_has_is_named_and_costs_no_more_than_the_node(loaded: Loaded) -> None:
    rows = [
        allocation("fraud--train", "t1", "a100", 12, OCTOBER, END),
        allocation("research--main", "t1", "a100", 4, OCTOBER, END),
    ]
    costs = hour(loaded, *rows)
    assert (dollars(costs, "fraud"), dollars(costs, "research")) == (15, 5)
    assert "up to 200 % of the devices of t1" in next(f.observation for f in costs.findings if f.rule == "bill-05")


def test_cpu_beside_all_gpus_is_no_fault_and_the_node_is_shared(loaded: Loaded) -> None:
    rows = [
        allocation("fraud--train", "t1", "a100", 8, OCTOBER, END),
        allocation("research--main", "t1", "", 0, OCTOBER, END, cpu=20),
    ]
    costs = hour(loaded, *rows)
    assert dollars(costs, "fraud", "held") + dollars(costs, "fraud", "borrowed") < 20
    assert dollars(costs) == 20
    assert "bill-05" not in rules(costs)


def test_what_is_in_use_on_a_node_without_records_is_named(loaded: Loaded) -> None:
    costs = hour(loaded, allocation("fraud--train", "ghost", "a100", 8, OCTOBER, END))
    assert "8.00 device-hours of fraud on ghost" in next(f.observation for f in costs.findings if f.rule == "bill-06")


def test_a_pod_that_is_told_twice_counts_once(loaded: Loaded) -> None:
    row = allocation("fraud--train", "t1", "a100", 4, OCTOBER, END, pod="a")
    assert dollars(hour(loaded, row, {**row, "start": OCTOBER + 60}), "fraud", "held") == 10


def test_two_pods_of_one_workload_count_twice(loaded: Loaded) -> None:
    row = allocation("fraud--train", "t1", "a100", 4, OCTOBER, END, pod="a")
    assert dollars(hour(loaded, row, {**row, "pod": "b"}), "fraud", "held") == 20


def test_a_node_that_is_told_twice_is_billed_once(loaded: Loaded) -> None:
    assert dollars(hour(loaded, nodes=[*TRAIN, node("t1", "train", OCTOBER + 60, END)])) == 20


# Rounding


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        (100, [1, 1, 1], [34, 33, 33]),
        (7, [0, 5], [0, 7]),
        (10, [3, -1], [15, -5]),
        (-5, [1, 1], [-2, -3]),
        (0, [0], [0]),
    ],
)
def test_shares_are_whole_and_add_up(total: int, weights: list[int], parts: list[int]) -> None:
    assert divide_by_weights(total, weights) == parts
    assert sum(parts) == total


@pytest.mark.parametrize(
    ("amounts", "parts"),
    [
        (["1/3", "1/3", "1/3"], [1, 0, 0]),
        (["1/4", "3/4", "1/4"], [0, 1, 0]),
        (["-1/3", "-1/3", "-1/3"], [0, 0, -1]),
        (["5", "-5/2", "0"], [5, -2, 0]),
        ([], []),
    ],
)
def test_the_nearest_whole_numbers_add_up_to_the_nearest_sum(amounts: list[str], parts: list[int]) -> None:
    exact = [Fraction(amount) for amount in amounts]
    assert round_to_sum(exact) == parts
    assert sum(parts) == math.floor(sum(exact) + Fraction(1, 2))


def test_costs_without_weights_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        divide_by_weights(1, [0, 0])


def test_three_who_share_a_cent_pay_a_cent(loaded: Loaded) -> None:
    nodes = [node("t1", "train", OCTOBER, OCTOBER + 1, price=0.036)]
    rows = [allocation(f"x{i}", "t1", "a100", 2, OCTOBER, END, tenant=f"x{i}") for i in range(4)]
    costs = report(loaded, OCTOBER, OCTOBER + 1, nodes=nodes, allocations=rows)
    assert sum(line.micro for line in costs.lines) == 10
    assert sorted(line.micro for line in costs.lines) == [2, 2, 3, 3]


def test_prices_and_ranges_are_in_the_millionths_they_say() -> None:
    assert MICRO == 1_000_000
    assert dt.datetime.fromtimestamp(OCTOBER, ZoneInfo("UTC")).isoformat() == "2026-10-01T00:00:00+00:00"
    assert tables_of(OCTOBER, END, nodes=TRAIN).nodes.height == 1
