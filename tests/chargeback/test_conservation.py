"""Every trace adds up, and to what a loop over every second finds that knows nothing of how it is computed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tenancy.chargeback import bill as bills
from tenancy.chargeback.model import BillingUnit, Category
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.report import make_report
from tenancy.chargeback.rounding import rounded
from tenancy.chargeback.sweep import lent_by_tenants
from tenancy.spec.loader import Loaded
from tests.chargeback import scene
from tests.chargeback.scene import NOVEMBER
from tests.conftest import examples

START, END = NOVEMBER - 25, NOVEMBER + 35
"""A minute that the first of a month cuts."""

PRICE = {"train": 20, "serve": 20, "notebooks": Fraction(16, 5), "gone": Fraction(36, 5)}
"""Dollars an hour of a node: 8 boards at 2.50, 4 at 0.80, and what the source says of a pool that no file declares."""
PART = {
    ("train", "a100"): Fraction(1, 8),
    ("serve", "a100-1g.5gb"): Fraction(1, 56),
    ("notebooks", "l4-shared"): Fraction(1, 16),
}
GUARANTEED = {
    "train": {"fraud": Fraction(16, 8), "research": Fraction(8, 8)},
    "serve": {"fraud": Fraction(14, 56)},
}
POOLS = {"t1": "train", "t2": "train", "s1": "serve", "l1": "notebooks", "g1": "gone"}
FLAVORS = {"train": "a100", "serve": "a100-1g.5gb", "notebooks": "l4-shared"}
NAMESPACES = ("fraud--train", "fraud--serve", "research--main", "new--main", "kube-system")
FILES = {"fraud--train": "fraud", "fraud--serve": "fraud", "research--main": "research"}


@dataclass
class Trace:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    allocations: list[dict[str, Any]] = field(default_factory=list)
    namespaces: list[dict[str, Any]] | None = None
    gaps: list[dict[str, Any]] = field(default_factory=list)
    guarantees: list[dict[str, Any]] | None = None

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return {name: rows for name, rows in vars(self).items() if rows}


moments = st.integers(START - 5, END + 5)


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    first, second = draw(moments), draw(moments)
    return min(first, second), max(first, second)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    trace = Trace()
    for name, pool in POOLS.items():  # nodes come, go, and come back as something else
        borders = sorted(draw(st.lists(moments, max_size=6, unique=True)))
        for start, end in zip(borders[::2], borders[1::2], strict=False):
            purchase = draw(st.sampled_from(["on-demand", "spot"]))
            price = 7.2 if pool == "gone" else None
            trace.nodes.append(scene.node(name, pool, start, end, purchase=purchase, price=price))
    for number in range(draw(st.integers(0, 8))):
        on = draw(st.sampled_from([*POOLS, "ghost"]))
        right = FLAVORS.get(POOLS.get(on, "train"), "a100")
        flavor = draw(st.sampled_from([right, right, right, "a100", "h100"]))
        pod = draw(st.sampled_from(["", "", f"p{number}", "p0"]))
        count = draw(st.integers(1, 10))
        start, end = draw(spans())
        row = scene.allocation(draw(st.sampled_from(NAMESPACES)), on, flavor, count, start, end, pod=pod)
        row["cpu"] = draw(st.sampled_from([0, 0, 0, 24, 70]))
        row["tenant"] = draw(st.sampled_from(["", "", "", "fraud", "research", "newcomer"]))
        trace.allocations.append(row)
        if draw(st.booleans()) and end - start > 2:  # evicted, and back after a while
            trace.allocations[-1] = {**row, "end": start + 1}
            trace.allocations.append({**row, "start": start + 2})
    if draw(st.booleans()):
        trace.namespaces = [
            {
                "namespace": name,
                "tenant": draw(st.sampled_from(["fraud", "research", "newcomer"])),
                "start": a,
                "end": b,
            }
            for name in draw(st.lists(st.sampled_from(NAMESPACES[:4]), min_size=1, max_size=6))
            for a, b in [draw(spans())]
        ]
    trace.gaps = [{"start": a, "end": b} for a, b in draw(st.lists(spans(), max_size=2))]
    if draw(st.booleans()):
        trace.guarantees = [
            {"tenant": who, "pool": pool, "flavor": FLAVORS[pool], "count": n, "lends": n, "start": a, "end": b}
            for who, pool, n in draw(
                st.lists(
                    st.tuples(
                        st.sampled_from(["fraud", "research", "newcomer"]),
                        st.sampled_from(["train", "serve"]),
                        st.integers(0, 20),
                    ),
                    min_size=1,
                    max_size=4,
                )
            )
            for a, b in [draw(spans())]
        ]
    return trace


# The other calculation: one second after the other, one node after the other


def claimants(trace: Trace, namespace: str, at: int) -> set[str]:
    if namespace == "kube-system":
        tenants = {"(platform)"}
    elif trace.namespaces is None:
        tenants = {FILES[namespace]} if namespace in FILES else set()
    else:
        tenants = set()
    for row in trace.namespaces or ():
        if row["namespace"] == namespace and row["start"] <= at < row["end"]:
            tenants.add(row["tenant"])
    for row in rows_at(trace, at):
        if row["namespace"] == namespace and row["tenant"]:
            tenants.add(row["tenant"])
    return tenants


def rows_at(trace: Trace, at: int) -> Iterator[dict[str, Any]]:
    """Rows that hold something at a second; a pod is there once, as the row says that began first."""
    pods: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    rows = [row for row in trace.allocations if row["start"] <= at < row["end"]]
    for row in sorted(rows, key=lambda row: (max(row["start"], START), -min(row["end"], END))):
        if row["pod"]:
            key = (row["namespace"], row["pod"], row["node"], row["flavor"])
            if key in pods:
                continue
            pods[key] = row
        yield row


def naive(
    trace: Trace, cores: dict[str, Fraction]
) -> tuple[dict[tuple[BillingUnit, str], Fraction], dict[BillingUnit, Fraction]]:
    owed: dict[tuple[BillingUnit, str], Fraction] = defaultdict(Fraction)
    bills: dict[BillingUnit, Fraction] = defaultdict(Fraction)
    for at in range(START, END):
        missing = any(gap["start"] <= at < gap["end"] for gap in trace.gaps)
        now = list(rows_at(trace, at))
        for machine in trace.nodes:
            if not machine["start"] <= at < machine["end"]:
                continue
            pool = machine["pool"]
            pot = BillingUnit(int(at >= NOVEMBER), pool, machine["purchase"])
            cost = Fraction(PRICE[pool]) / 3600
            bills[pot] += cost
            if missing or pool == "gone":
                owed[pot, "(no data)" if missing else "(unknown device)"] += cost
                continue
            shares: dict[str, Fraction] = defaultdict(Fraction)
            strange = False
            for row in now:
                if row["node"] != machine["node"]:
                    continue
                who = claimants(trace, row["namespace"], at)
                owner = f"(disputed: {', '.join(sorted(who))})" if len(who) > 1 else min(who, default="(no tenant)")
                part = PART.get((pool, row["flavor"]))
                strange |= part is None
                if part is not None:
                    shares[owner] += max(row["count"] * part, row["cpu"] / cores[pool])
            share_sum = sum(shares.values())
            for owner, share in shares.items():
                owed[pot, owner] += cost * share / max(share_sum, 1)
            remaining_cost = cost * max(1 - share_sum, 0)
            if strange:
                owed[pot, "(unknown device)"] += remaining_cost
            elif pool == "notebooks":
                owed[pot, "research"] += remaining_cost
            else:
                promised = guaranteed(trace, pool, at)
                for owner, share in promised.items():
                    owed[pot, owner] += remaining_cost * share / sum(promised.values())
                if not promised:
                    owed[pot, "(platform)"] += remaining_cost
    return owed, bills


def guaranteed(trace: Trace, pool: str, at: int) -> dict[str, Fraction]:
    if trace.guarantees is None:
        return GUARANTEED[pool]
    shares: dict[str, Fraction] = defaultdict(Fraction)
    for row in trace.guarantees:
        if row["pool"] == pool and row["start"] <= at < row["end"] and row["count"]:
            shares[row["tenant"]] += row["count"] * PART[pool, row["flavor"]]
    return shares


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return scene.priced(tmp_path_factory.mktemp("conservation"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bills")


@pytest.fixture(scope="module")
def crediting(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return scene.priced(tmp_path_factory.mktemp("crediting"), "costs: {lender-credit: 60}\n")


quick = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])


@given(trace=traces())
@quick
def test_every_trace_adds_up_and_to_what_a_loop_over_seconds_finds(loaded: Loaded, trace: Trace) -> None:
    if not trace.nodes:
        return
    costs = scene.report(loaded, START, END, PeriodLength.MONTH, **trace.tables())
    cores = {name: Fraction(measure.cpu, 1000) for name, measure in costs.measures.items()}
    owed, bills = naive(trace, cores)
    assert {pot: float(amount) for pot, amount in bills.items()} == pytest.approx(
        {pot: amount / scene.MICRO for pot, amount in costs.bills.items()}, abs=1e-6
    )
    assert sum(line.micro for line in costs.lines) == sum(costs.bills.values())
    without = {key: amount for key, amount in owed.items() if amount and key[1] != "(platform)"}
    for pot in {pot for pot, _ in owed}:
        platform = owed.get((pot, "(platform)"), Fraction())
        lines = [line for line in costs.lines if line.billing_unit == pot]
        shared_cost = sum(
            line.micro for line in lines if line.category is Category.OVERHEAD or line.tenant == "(platform)"
        )
        assert shared_cost / scene.MICRO == pytest.approx(float(platform), abs=2e-5), "what is the platform's"
        cost_by_tenant: dict[str, int] = defaultdict(int)
        for line in lines:
            if line.category is not Category.OVERHEAD and line.tenant != "(platform)":
                cost_by_tenant[line.tenant] += line.micro
        expected = {who: float(amount) for (where, who), amount in without.items() if where == pot}
        # A millionth of a node at each second is rounded, and a millionth of a dollar in each line.
        assert {who: amount / scene.MICRO for who, amount in cost_by_tenant.items() if amount > 20} == pytest.approx(
            {who: amount for who, amount in expected.items() if amount * scene.MICRO > 20}, abs=2e-5
        )
    for finding in costs.findings:
        event(finding.rule)


@given(trace=traces())
@quick
def test_credits_change_who_pays_and_not_how_much(loaded: Loaded, crediting: Loaded, trace: Trace) -> None:
    if not trace.nodes:
        return
    tables = scene.tables_of(START, END, **trace.tables())
    plain = make_report(loaded.environment, loaded.tenants, tables, scene.whole_periods(START, END, PeriodLength.MONTH))
    credited = make_report(
        crediting.environment, crediting.tenants, tables, scene.whole_periods(START, END, PeriodLength.MONTH)
    )
    assert credited.bills == plain.bills
    assert sum(line.micro for line in credited.lines) == sum(plain.bills.values())
    given_back = [line for line in credited.lines if line.category is Category.CREDIT]
    event(f"credits: {bool(given_back)}")
    assert all(line.micro <= 0 for line in given_back)
    for pot in credited.bills:
        lines = [line for line in credited.lines if line.billing_unit == pot]
        borrowed = sum(line.micro for line in lines if line.category is Category.BORROWED)
        back = -sum(line.micro for line in lines if line.category is Category.CREDIT)
        assert back <= borrowed * 0.6 + 20, "no tenant is credited more than is borrowed"


@given(trace=traces(), at=st.integers(START + 1, END - 1))
@quick
def test_a_range_costs_what_its_two_halves_cost(loaded: Loaded, trace: Trace, at: int) -> None:
    if not trace.nodes:
        return
    sums: list[float] = []
    for start, end in ((START, END), (START, at), (at, END)):
        costs = scene.report(loaded, start, end, **trace.tables())
        sums.append(sum(costs.bills.values()))
    assert sums[0] == pytest.approx(sums[1] + sums[2], abs=2 * len(POOLS) * 2)


@given(trace=traces(), seed=st.randoms(use_true_random=False))
@quick
def test_the_order_of_the_rows_does_not_matter(loaded: Loaded, trace: Trace, seed: Any) -> None:
    if not trace.nodes:
        return
    mixed = {name: seed.sample(rows, len(rows)) for name, rows in trace.tables().items()}
    first = scene.report(loaded, START, END, PeriodLength.MONTH, **trace.tables())
    second = scene.report(loaded, START, END, PeriodLength.MONTH, **mixed)
    assert first.lines == second.lines
    assert [str(f) for f in first.findings] == [str(f) for f in second.findings]


# AWS's bill

KINDS = ("Usage", *bills.AMORTISED_COST_COLUMNS, "Fee", "Tax", "Credit", "Refund", "BundledDiscount")
cents = st.integers(-(10**6), 10**7).map(lambda n: n / 10**7)
"""With more decimals than a millionth has."""
parts = st.integers(0, 500).map(lambda n: n / 64)
"""Differences of them are exact."""


@st.composite
def exported(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of a CUR 2.0 export."""
    rows = []
    for number in range(draw(st.integers(1, 12))):
        start, end = draw(spans())
        rows.append(
            {
                "identity_line_item_id": f"line-{number}",
                "line_item_line_item_type": draw(st.sampled_from(KINDS)),
                "line_item_product_code": draw(st.sampled_from(["AmazonEC2", "AmazonEC2", "AmazonS3", None])),
                "line_item_usage_type": draw(st.sampled_from(["BoxUsage:p4d", "SpotUsage:p4d", "HeavyUsage", None])),
                "line_item_usage_start_date": start,
                "line_item_usage_end_date": draw(st.sampled_from([end, end, None])),
                "line_item_unblended_cost": draw(cents),
                "line_item_currency_code": "USD",
                **{name: draw(parts if name in FEES else cents) for name in bills.SUM_COLUMNS},
                "reservation_reservation_a_r_n": draw(st.sampled_from(["", None, "arn:reserved-instances/1"])),
                "resource_tags": draw(
                    st.fixed_dictionaries(
                        {"user_tenancy_environment": st.sampled_from(["small", "small", "small", "other", None])},
                        optional={
                            "user_tenancy_pool": st.sampled_from(["train", "serve", "gone"]),
                            "user_tenancy_tenant": st.sampled_from(["fraud", "research", "fruad"]),
                            "user_env": st.just("small"),
                        },
                    )
                ),
            }
        )
    return rows


FEES = tuple(name for kind in bills.UNUSED_COMMITMENT_TYPES for name in bills.AMORTISED_COST_COLUMNS[kind])


def amortised(row: dict[str, Any]) -> Fraction:
    """Cost of a row, in millionths."""

    def amount(name: str) -> Fraction:
        return Fraction(str(row[name])) * scene.MICRO

    match row["line_item_line_item_type"]:
        case "SavingsPlanCoveredUsage":
            return amount("savings_plan_savings_plan_effective_cost")
        case "SavingsPlanRecurringFee":
            return amount("savings_plan_total_commitment_to_date") - amount("savings_plan_used_commitment")
        case "DiscountedUsage":
            return amount("reservation_effective_cost")
        case "RIFee":
            upfront = amount("reservation_unused_amortized_upfront_fee_for_billing_period")
            return upfront + amount("reservation_unused_recurring_fee")
        case "SavingsPlanNegation" | "SavingsPlanUpfrontFee":
            return Fraction()
        case "Fee" if row["reservation_reservation_a_r_n"]:
            return Fraction()
    return amount("line_item_unblended_cost")


def export(path: Path, rows: list[dict[str, Any]]) -> Path:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["resource_tags"] = [
        [{"key": key, "value": value} for key, value in row["resource_tags"].items()] for row in rows
    ]
    types = {"resource_tags": pl.List(pl.Struct({"key": pl.String, "value": pl.String}))}
    text = pl.col("line_item_product_code", "line_item_usage_type", "reservation_reservation_a_r_n")
    times = [(pl.col(name).cast(pl.Int64) * 10**6).cast(pl.Datetime("us")) for name in bills.TIMES]
    frame = pl.DataFrame(columns, schema_overrides=types).with_columns(text.cast(pl.String), *times)
    frame.write_parquet(path)
    return path


@given(
    trace=traces(),
    rows=exported(),
    by=st.sampled_from([PeriodLength.MONTH, PeriodLength.RANGE]),
    files=st.integers(1, 3),
)
@quick
def test_every_line_of_a_bill_is_charged_once_or_named(
    loaded: Loaded, folder: Path, trace: Trace, rows: list[dict[str, Any]], by: PeriodLength, files: int
) -> None:
    paths = [export(folder / f"{i}.parquet", rows[i::files]) for i in range(files) if rows[i::files]]
    bill_periods = scene.whole_periods(START, END, by)
    bill = bills.read_bill(paths, bill_periods, "small")
    expected, whose, outside, others = [Fraction()] * len(bill_periods), defaultdict(Fraction), Fraction(), Fraction()
    for row in rows:
        cost, tags = amortised(row), row["resource_tags"]
        if tags["user_tenancy_environment"] != "small":
            others += cost
            continue
        start, end = row["line_item_usage_start_date"], row["line_item_usage_end_date"]
        seconds = range(start, end) if end is not None and start < end else [start]
        usage, ec2 = row["line_item_usage_type"], row["line_item_product_code"] == "AmazonEC2"
        node = ec2 and usage in {"BoxUsage:p4d", "SpotUsage:p4d"}
        pool = (
            tags.get("user_tenancy_pool", "")
            if node and row["line_item_line_item_type"] not in bills.UNUSED_COMMITMENT_TYPES
            else ""
        )
        purchase_and_tenant = (usage == "SpotUsage:p4d", "") if pool else (False, tags.get("user_tenancy_tenant", ""))
        for at in seconds:
            part = cost / len(seconds)
            number = next((i for i, period in enumerate(bill_periods) if period.start <= at < period.end), None)
            if number is None:
                outside += part
            else:
                expected[number] += part
                whose[number, pool, *purchase_and_tenant] += part
    trace.nodes = trace.nodes or [scene.node("t1", "train", START, END)]
    costs = make_report(
        loaded.environment, loaded.tenants, scene.tables_of(START, END, **trace.tables()), bill_periods, bill
    )
    event(f"findings: {sorted({finding.rule for finding in costs.findings})}")
    for number, amount in enumerate(expected):
        lines = sum(line.micro for line in costs.lines if line.billing_unit.period == number)
        assert lines == rounded(amount.numerator, amount.denominator), "to the millionth"
    charged_amounts: dict[tuple[int, str, bool, str], int] = defaultdict(int)
    for pot, amount in bill.costs_by_unit.items():
        charged_amounts[pot.period, pot.pool, pot.purchase == "spot", ""] += amount
    for item in bill.other_costs:
        charged_amounts[item.period, "", False, item.tenant] += item.micro
    for key in {*whose, *charged_amounts}:
        assert abs(charged_amounts[key] - whose[key]) < len(rows), "what is rounded is less than a millionth a line"
    remarks = " ".join([*(finding.observation for finding in costs.findings), *costs.notes])
    for amount, phrase in ((outside, "of the bill outside"), (others, "of the bill have no tag")):
        if abs(amount) >= scene.MICRO / 100:
            (dollars,) = re.findall(rf"\$([-\d.,]+) {phrase}", remarks)
            assert float(dollars.replace(",", "")) == pytest.approx(float(amount) / scene.MICRO, abs=0.0051)
    assert not {line.tenant for line in costs.lines} & {"fruad"}


@given(
    holders=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.integers(0, 30), st.integers(1, 5)), max_size=8
    ),
    promised=st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 6), st.integers(0, 6))),
)
@quick
def test_who_lent_is_who_left_it_idle_second_by_second(
    holders: list[tuple[str, int, int, int]], promised: dict[str, tuple[int, int]]
) -> None:
    rows = [(name, min(a, b), max(a, b), count) for name, a, b, count in holders]
    events = [e for name, a, b, n in rows for e in ((a, name, n), (b, name, -n))]
    lenders, total = lent_by_tenants(events, promised, 0, 30)
    expected: dict[str, Fraction] = defaultdict(Fraction)
    total_lent = 0
    for at in range(30):
        now = {name: sum(n for who, a, b, n in rows if who == name and a <= at < b) for name in "abcd"}
        spare = {name: max(0, min(count - now[name], lendable)) for name, (count, lendable) in promised.items()}
        borrowed = sum(max(0, now[name] - promised.get(name, (0, 0))[0]) for name in now)
        given_away = min(borrowed, sum(spare.values()))
        total_lent += given_away
        for name, count in spare.items():
            expected[name] += Fraction(given_away * count, sum(spare.values()) or 1)
    assert total == total_lent
    for name, amount in expected.items():
        assert lenders.get(name, 0) / 2**64 == pytest.approx(float(amount), abs=1e-9)
