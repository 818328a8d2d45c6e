"""A month against its budgets: each line's day follows from a formula, and what is not known is named."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from tenancy.chargeback import budgets, mail, outputs, pages
from tenancy.chargeback.model import ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.use import BudgetUse, uses
from tenancy.chargeback.use import budgets as spent_of
from tenancy.spec.loader import Loaded, load
from tests.chargeback.scene import DAY, HOUR, NOVEMBER, OCTOBER, allocation, node, priced, report, tables_of


def budgeted(path: Path, monthly: int) -> Loaded:
    loaded = priced(path)
    file = loaded.folder / "tenants/fraud.yaml"
    file.write_text(file.read_text("utf-8").replace("180000", str(monthly)), "utf-8")
    return load(loaded.folder)


def held_by_fraud(loaded: Loaded, start: int, end: int, by: PeriodLength = PeriodLength.MONTH) -> ChargebackReport:
    """Fraud holds a node of $20 an hour all the time."""
    rows = [allocation("fraud--train", "t1", "a100", 8, start, end)]
    return report(loaded, start, end, by, nodes=[node("t1", "train", start, end)], allocations=rows)


def only(costs: ChargebackReport) -> budgets.BudgetStatus:
    (status,) = budgets.budget_statuses(costs, spent_of(costs, PeriodLength.MONTH))
    return status


def test_a_line_that_will_be_crossed_has_the_day_on_which_it_will(tmp_path: Path) -> None:
    status = only(held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER, OCTOBER + 5 * DAY))
    assert status.use.micro == 2_400_000_000, "5 days of $480"
    assert dict(status.lines) == {50: "2026-10-11", 80: "2026-10-17", 100: "2026-10-21"}, "after 10, 16 and 20 days"
    assert (status.percent, status.forecast_percent) == (25, 155)


def test_a_line_that_is_crossed_is_reached_and_has_no_day(tmp_path: Path) -> None:
    status = only(held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER, OCTOBER + 16 * DAY))
    assert dict(status.lines) == {50: "reached", 80: "reached", 100: "2026-10-21"}


def test_a_line_above_the_forecast_has_nothing(tmp_path: Path) -> None:
    # 31 days of $480 are $14,880.
    assert only(held_by_fraud(budgeted(tmp_path / "at", 14_880), OCTOBER, OCTOBER + DAY)).lines[100] == "2026-11-01"
    assert only(held_by_fraud(budgeted(tmp_path / "above", 14_881), OCTOBER, OCTOBER + DAY)).lines[100] == ""


def test_a_month_in_which_nothing_was_spent_crosses_nothing(tmp_path: Path) -> None:
    loaded = budgeted(tmp_path, 1)
    costs = report(
        loaded, OCTOBER, OCTOBER + DAY, PeriodLength.MONTH, nodes=[node("n1", "notebooks", OCTOBER, OCTOBER + DAY)]
    )
    assert set(only(costs).lines.values()) == {""}


def test_all_budgets_of_a_month_are_added_up(tmp_path: Path) -> None:
    costs = held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER, OCTOBER + 5 * DAY)
    use_of_fraud = BudgetUse(0, "fraud", 9_600, 2_400_000_000, 14_880_000_000, 0, 100)
    use_of_research = use_of_fraud._replace(
        tenant="research", budget=400, micro=100_000_000, forecast_micro=620_000_000
    )
    *_, total = budgets.budget_statuses(costs, [use_of_fraud, use_of_research], with_totals=True)
    assert (total.use.tenant, total.use.budget, total.percent) == (budgets.ALL_BUDGETS, 10_000, 25)
    assert total.lines[50] == "2026-10-11"
    assert len(budgets.budget_statuses(costs, [use_of_fraud], with_totals=True)) == 1, "one is its own sum"


def test_budgets_are_named_where_the_report_is_not_by_month(tmp_path: Path) -> None:
    loaded = budgeted(tmp_path, 9_600)
    weekly, monthly = (held_by_fraud(loaded, OCTOBER, NOVEMBER, by) for by in (PeriodLength.WEEK, PeriodLength.MONTH))
    sentence = "budgets are monthly: --period month shows them"
    assert sentence in budgets.data_gaps(weekly, spent_of(weekly, PeriodLength.WEEK), [])
    assert sentence not in budgets.data_gaps(monthly, spent_of(monthly, PeriodLength.MONTH), [])


def test_a_tenant_without_a_budget_is_named(tmp_path: Path) -> None:
    costs = held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER, NOVEMBER)
    sentence = "no budget in the file of research: no alert is sent"
    assert budgets.data_gaps(costs, spent_of(costs, PeriodLength.MONTH), []) == [sentence]
    assert budgets.data_gaps(costs, spent_of(costs, PeriodLength.MONTH), [], tenant_name="fraud") == []


@pytest.mark.parametrize(("days", "late"), [(0, False), (9, True)])
def test_a_month_that_is_not_seen_from_its_beginning_says_so(tmp_path: Path, days: int, late: bool) -> None:
    costs = held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER + days * DAY, OCTOBER + 20 * DAY)
    gaps = budgets.data_gaps(costs, spent_of(costs, PeriodLength.MONTH), [], tenant_name="fraud")
    assert [line.partition(":")[0] for line in gaps] == (["data of 2026-10 starts at 2026-10-10T00"] if late else [])


@pytest.mark.parametrize(("zone", "begins"), [("Europe/Berlin", -2), ("America/Los_Angeles", 7)])
def test_a_month_of_another_time_zone_begins_when_it_does(tmp_path: Path, zone: str, begins: int) -> None:
    from zoneinfo import ZoneInfo

    from tenancy.chargeback.report import make_report
    from tests.chargeback.scene import whole_periods

    start, end = OCTOBER + begins * HOUR, OCTOBER + 20 * DAY
    assert dt.datetime.fromtimestamp(start, ZoneInfo(zone)).day == 1
    loaded = budgeted(tmp_path, 9_600)
    rows = [allocation("fraud--train", "t1", "a100", 8, start, end)]
    tables = tables_of(start, end, nodes=[node("t1", "train", start, end)], allocations=rows)
    costs = make_report(
        loaded.environment, loaded.tenants, tables, whole_periods(start, end, PeriodLength.MONTH, ZoneInfo(zone))
    )
    assert budgets.data_gaps(costs, spent_of(costs, PeriodLength.MONTH), [], tenant_name="fraud") == []


def test_hours_without_data_are_money_that_the_budgets_lack(tmp_path: Path) -> None:
    loaded = budgeted(tmp_path, 9_600)
    end = OCTOBER + 2 * DAY
    rows = [allocation("fraud--train", "t1", "a100", 8, OCTOBER, end)]
    nodes = [node("t1", "train", OCTOBER, end)]
    gap = [{"start": OCTOBER, "end": OCTOBER + 3 * HOUR}]
    blind = report(loaded, OCTOBER, end, PeriodLength.MONTH, nodes=nodes, allocations=rows, gaps=gap)
    clear = report(loaded, OCTOBER, end, PeriodLength.MONTH, nodes=nodes, allocations=rows)
    (gap_text,) = [
        line for line in budgets.data_gaps(blind, spent_of(blind, PeriodLength.MONTH), []) if line.startswith("$")
    ]
    assert gap_text.startswith("$60.00 of 2026-10 are of hours without data or of unknown devices")
    assert not any(line.startswith("$") for line in budgets.data_gaps(clear, spent_of(clear, PeriodLength.MONTH), []))


def test_use_that_was_not_measured_is_named_beside_the_table(tmp_path: Path) -> None:
    loaded = budgeted(tmp_path, 9_600)
    end = OCTOBER + HOUR
    rows = [allocation("fraud--train", "t1", "a100", 4, OCTOBER, end)]
    nodes = [node("t1", "train", OCTOBER, end)]
    measured = [
        {"namespace": "fraud--train", "flavor": "a100", "devices": 4, "value": 0.5, "start": OCTOBER, "end": end}
    ]
    sentence = "use of fraud was not measured: it is unknown, not zero"
    for more, expected in (({}, [sentence]), ({"used": measured}, [])):
        tables = tables_of(OCTOBER, end, nodes=nodes, allocations=rows, **more)
        costs = report(loaded, OCTOBER, end, PeriodLength.MONTH, nodes=nodes, allocations=rows, **more)
        uses_of_fraud = [use for use in uses(costs, tables) if use.tenant == "fraud"]
        assert (
            budgets.data_gaps(costs, spent_of(costs, PeriodLength.MONTH), uses_of_fraud, tenant_name="fraud")
            == expected
        )
        (table,) = [
            table
            for table in pages.tables(costs, uses_of_fraud, [], "fraud")
            if table.title.startswith("Held and used")
        ]
        assert table.rows[0][3] == ("–" if expected else "2.0"), "the column of what was used"


def test_the_lines_are_in_json_and_in_the_mail(tmp_path: Path) -> None:
    costs = held_by_fraud(budgeted(tmp_path, 9_600), OCTOBER, OCTOBER + 10 * DAY)
    due = spent_of(costs, PeriodLength.MONTH)
    (budget,) = json.loads(json.dumps(outputs.as_json(costs, [], due)))["budgets"]
    assert budget["lines"] == {"50": "reached", "80": "2026-10-17", "100": "2026-10-21"}
    text = mail.mail(costs, next(t for t in costs.tenants if t.tenant == "fraud"), [], due, "markdown")
    assert "Budget, 2026-10: 50 % reached of a budget of $9,600." in text
