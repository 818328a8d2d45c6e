"""Printed reports: every form has the same sum, the same input makes the same bytes, every total leads to its rows."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

from tenancy.chargeback import mail, outputs, pages
from tenancy.chargeback.example import frames, month
from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.report import make_report
from tenancy.chargeback.tables import Tables, tables
from tenancy.chargeback.use import BudgetUse, TenantUse, budgets, uses
from tenancy.cli import main
from tenancy.spec.loader import Loaded, load
from tests.chargeback.scene import (
    DAY,
    HOUR,
    MICRO,
    NOVEMBER,
    OCTOBER,
    allocation,
    dollars,
    node,
    priced,
    report,
    tables_of,
    whole_periods,
)
from tests.conftest import every, nonempty

TENANT = "fraud"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("outputs"), "costs: {shared: {control-plane: 0.10}}\n")


@pytest.fixture(scope="module")
def usage_tables(loaded: Loaded) -> Tables:
    frames_by_name = frames(month(loaded, OCTOBER, NOVEMBER, 7))
    return tables({name: [(name, frame.lazy())] for name, frame in frames_by_name.items()}, OCTOBER, NOVEMBER)


@pytest.fixture(scope="module")
def costs(loaded: Loaded, usage_tables: Tables) -> ChargebackReport:
    return make_report(
        loaded.environment, loaded.tenants, usage_tables, whole_periods(OCTOBER, NOVEMBER, PeriodLength.WEEK)
    )


def text(costs: ChargebackReport, form: str) -> str:
    if form == "json":
        return json.dumps(outputs.as_json(costs, [], []))
    columns, rows = (outputs.COLUMNS, outputs.rows(costs)) if form == "csv" else (outputs.FOCUS, outputs.focus(costs))
    return outputs.as_csv(columns, rows)


def bill(costs: ChargebackReport) -> Decimal:
    return Decimal(sum(costs.bills.values())).scaleb(-6)


@pytest.mark.parametrize(("form", "column"), [("csv", "dollars"), ("focus", "BilledCost"), ("focus", "EffectiveCost")])
def test_the_rows_of_every_form_add_up_to_the_bill(costs: ChargebackReport, form: str, column: str) -> None:
    rows = list(csv.DictReader(io.StringIO(text(costs, form))))
    assert sum(Decimal(row[column]) for row in rows) == bill(costs)


def test_parquet_has_the_rows_with_exact_numbers(costs: ChargebackReport) -> None:
    frame = pl.read_parquet(outputs.as_parquet(costs))
    assert frame["dollars"].dtype == pl.Decimal(38, 6)
    assert frame["dollars"].sum() == bill(costs)
    assert frame.height == len(costs.lines)


def test_json_adds_up_in_millionths_and_in_cents(costs: ChargebackReport) -> None:
    output = outputs.as_json(costs, [], [])
    assert sum(Decimal(entry["dollars"]) for entry in output["tenants"]) == Decimal(output["bill"]) == bill(costs)
    assert sum(Decimal(entry["invoice"]) for entry in output["tenants"]) == bill(costs).quantize(Decimal("0.01"))
    assert sum(Decimal(entry["dollars"]) for entry in output["bills"]) == bill(costs)


def test_cents_add_up_where_every_amount_alone_would_round_down() -> None:
    assert outputs.cents({"a": 3_334, "b": 3_333, "c": 3_333}) == {"a": 1, "b": 0, "c": 0}
    assert outputs.cents({"a": -4_000, "b": 14_000}) == {"a": 0, "b": 1}


@pytest.mark.parametrize("form", ["csv", "focus", "json"])
def test_the_same_input_makes_the_same_bytes(loaded: Loaded, costs: ChargebackReport, form: str) -> None:
    frames_by_name = frames(month(loaded, OCTOBER, NOVEMBER, 7))
    # Another order of rows is no other input.
    mixed = {name: frame.sample(fraction=1.0, shuffle=True, seed=3) for name, frame in frames_by_name.items()}
    read = tables({name: [(name, frame.lazy())] for name, frame in mixed.items()}, OCTOBER, NOVEMBER)
    again = make_report(loaded.environment, loaded.tenants, read, whole_periods(OCTOBER, NOVEMBER, PeriodLength.WEEK))
    assert text(again, form) == text(costs, form)


# FinOps Open Cost and Usage Specification, `specification/datasets/cost_and_usage/columns`, as of 2026-11.
SPECIFIED = set(
    "BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory "
    "ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart ConsumedQuantity ConsumedUnit "
    "ContractedCost EffectiveCost InvoiceIssuerName ListCost PricingCategory PricingQuantity PricingUnit ProviderName "
    "PublisherName RegionId ServiceCategory ServiceName SkuId SubAccountId SubAccountName Tags".split()
)


def test_columns_are_the_specifications_or_marked_as_our_own() -> None:
    assert {name for name in outputs.FOCUS if not name.startswith("x_")} == SPECIFIED


def test_a_focus_row_has_the_tenants_tags(costs: ChargebackReport) -> None:
    rows = csv.DictReader(io.StringIO(text(costs, "focus")))
    tags = json.loads(next(row["Tags"] for row in rows if row["SubAccountId"] == TENANT))
    assert (tags["team"], tags["cost-center"]) == ("fraud-detection", "CC-4411")


# Events


def billing_events(costs: ChargebackReport) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outputs.events(costs)]


def test_events_add_up_to_what_was_held_and_borrowed(costs: ChargebackReport) -> None:
    lines = [li for li in costs.lines if li.category in {Category.HELD, Category.BORROWED} and li.tenant == TENANT]
    tenant_events = [event for event in billing_events(costs) if event["tenant"] == TENANT]
    assert sum(Decimal(event["dollars"]) for event in tenant_events) == Decimal(sum(li.micro for li in lines)).scaleb(
        -6
    )
    assert sum(event["device_seconds"] for event in tenant_events) == sum(li.devices for li in lines)


def test_an_event_has_its_own_id_and_the_same_when_it_is_asked_for_again(
    loaded: Loaded, usage_tables: Tables, costs: ChargebackReport
) -> None:
    ids = Counter(event["id"] for event in billing_events(costs))
    assert max(ids.values()) == 1
    again = make_report(
        loaded.environment, loaded.tenants, usage_tables, whole_periods(OCTOBER, NOVEMBER, PeriodLength.WEEK)
    )
    assert [event["id"] for event in billing_events(again)] == list(ids)


def test_a_week_alone_has_the_ids_that_it_has_in_the_month(
    loaded: Loaded, usage_tables: Tables, costs: ChargebackReport
) -> None:
    start = OCTOBER + 4 * DAY
    alone = make_report(
        loaded.environment, loaded.tenants, usage_tables, whole_periods(start, start + 7 * DAY, PeriodLength.WEEK)
    )
    of_the_month = {event["id"] for event in billing_events(costs) if event["period"] == "2026-W41"}
    assert {event["id"] for event in billing_events(alone)} == of_the_month


# From a total to its rows


def test_lines_and_workloads_of_an_explanation_add_up_to_the_total(costs: ChargebackReport) -> None:
    explanation = pages.explain(costs, TENANT, 10**6)
    lines = [table for table in explanation if "line by line" in table.title]
    for table in lines:
        total = Decimal(table.title.partition("$")[2].partition(",  ")[0].split(", line")[0].replace(",", ""))
        assert sum(Decimal(row[-1].replace(",", "")) for row in table.rows) == total
    assert sum(Decimal(t.title.partition("$")[2].split(", line")[0].replace(",", "")) for t in lines) == Decimal(
        outputs.totals(costs)[TENANT]
    ).scaleb(-6)
    workload_tables = [table for table in explanation if "workloads" in table.title]
    explained = sum(Decimal(row[-1].replace(",", "")) for table in workload_tables for row in table.rows)
    charged_micro = [li.micro for li in costs.lines if li.tenant == TENANT and li.category in {"held", "borrowed"}]
    assert explained == Decimal(sum(charged_micro)).scaleb(-6)


def test_hours_times_price_are_the_dollars_of_a_line(costs: ChargebackReport) -> None:
    for line in nonempty(costs.lines):
        if line.billing_unit.pool and line.weight:
            assert costs.hours(line) * float(outputs.price_of(costs, line)) * MICRO == pytest.approx(line.micro, abs=60)


def test_the_table_adds_up_in_both_directions(costs: ChargebackReport) -> None:
    for table in nonempty(pages.tables(costs, [], [])):
        if table.title.startswith("Costs of "):
            cells = [[Decimal(cell.replace(",", "")) for cell in row[1:]] for row in table.rows]
            assert every(sum(row[:-1]) == row[-1] for row in cells)
            assert f"${sum(row[-1] for row in cells):,.2f}" in table.remarks[0]


# Use and budgets


def use_of_fraud(loaded: Loaded, **used: Any) -> TenantUse:
    end = OCTOBER + HOUR
    rows = [allocation("fraud--train", "t1", "a100", 4, OCTOBER, end)]
    use = [{"namespace": "fraud--train", "flavor": "a100", "devices": 4, "start": OCTOBER, "end": end, **used}]
    rows_by_table = {
        "nodes": [node("t1", "train", OCTOBER, end)],
        "allocations": rows,
        **({"used": use} if used else {}),
    }
    tables = tables_of(OCTOBER, end, **rows_by_table)
    costs = make_report(loaded.environment, loaded.tenants, tables, whole_periods(OCTOBER, end))
    return next(tenant_use for tenant_use in uses(costs, tables) if tenant_use.tenant == "fraud")


def test_efficiency_is_used_of_held_and_use_is_of_all_that_is_paid_for(loaded: Loaded) -> None:
    use = use_of_fraud(loaded, value=0.75)
    assert (use.allocated, use.measured_use, use.efficiency) == (4, 3, 75)
    assert use.idle == pytest.approx(4 * 16 / 24, abs=1e-5)
    assert use.utilisation == pytest.approx(75 * 4 / (4 + 4 * 16 / 24), abs=1e-3)
    assert use.unused_micro == 2_500_000, "a quarter of 4 GPUs at 2.50"


def test_unmeasured_use_is_unknown_and_not_zero(loaded: Loaded) -> None:
    use = use_of_fraud(loaded)
    assert (use.measured_use, use.efficiency, use.unused_micro) == (None, None, None)


def test_hours_that_were_not_measured_do_not_count_as_idle(loaded: Loaded) -> None:
    use = use_of_fraud(loaded, value=0.5, end=OCTOBER + HOUR // 2)
    assert (use.measured, use.efficiency) == (50, 50)


@pytest.mark.parametrize(
    ("budget", "reached"), [(7_500, 100), (7_501, 80), (9_375, 80), (9_376, 50), (15_000, 50), (15_001, 0)]
)
def test_a_budget_is_reached_at_50_80_and_100_percent(tmp_path: Path, budget: int, reached: int) -> None:
    loaded = priced(tmp_path)
    path = loaded.folder / "tenants/fraud.yaml"
    path.write_text(path.read_text("utf-8").replace("180000", str(budget)), "utf-8")
    loaded = load(loaded.folder)
    rows = [allocation("fraud--train", f"t{i}", "a100", 8, OCTOBER, NOVEMBER) for i in (1,)]
    nodes = [node("t1", "train", OCTOBER, OCTOBER + 375 * HOUR)]
    (budget_use,) = budgets(
        report(loaded, OCTOBER, NOVEMBER, PeriodLength.MONTH, nodes=nodes, allocations=rows), PeriodLength.MONTH
    )
    assert (budget_use.micro, budget_use.reached) == (7_500 * MICRO, reached)


def test_a_forecast_goes_on_as_the_month_went_so_far(loaded: Loaded) -> None:
    end = OCTOBER + DAY
    rows = [allocation("fraud--train", "t1", "a100", 8, OCTOBER, end)]
    costs = report(
        loaded, OCTOBER, end, PeriodLength.MONTH, nodes=[node("t1", "train", OCTOBER, end)], allocations=rows
    )
    (budget_use,) = budgets(costs, PeriodLength.MONTH)
    assert budget_use.micro / MICRO == pytest.approx(24 * 20.1)
    assert budget_use.forecast_micro == budget_use.micro * 31
    assert pages.alert(BudgetUse(0, "fraud", 1, 0, 0, 0, 80)) == "80 % expected"


# Mail


def test_a_mail_says_what_a_tenant_pays_and_nothing_of_others(loaded: Loaded, costs: ChargebackReport) -> None:
    mail_text = mail.mail(costs, loaded.tenants[0], [], [], "markdown")
    total = outputs.dollars(outputs.cents(outputs.totals(costs))["fraud"])
    assert f"${total}" in mail_text
    assert "research" not in mail_text


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_what_tenants_name_is_no_markup_in_a_mail(loaded: Loaded, form: str) -> None:
    end = OCTOBER + HOUR
    rows = [allocation("fraud--train", "t1", "a100", 8, OCTOBER, end, workload="<script>alert(1)</script>|x")]
    costs = report(loaded, OCTOBER, end, nodes=[node("t1", "train", OCTOBER, end)], allocations=rows)
    mail_text = mail.mail(costs, loaded.tenants[0], [], [], form)
    assert "&lt;script&gt;" in mail_text
    assert "<script>" not in mail_text
    assert form == "html" or r"\|x" in mail_text, "it makes no cell of its own"
    assert loaded.tenants[0].owner.mail in mail_text, "an address can be copied"


# The command


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, ["chargeback", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


SPAN = ("--from", "2026-10-01", "--to", "2026-11-01")


@pytest.fixture(scope="module")
def folder(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "october"
    assert run(loaded.folder, *SPAN, "--example", 7, "--save-tables", path).exit_code == 0
    return path


def test_recorded_tables_make_the_same_report(loaded: Loaded, folder: Path) -> None:
    first = run(loaded.folder, *SPAN, "--example", 7, "--format", "csv")
    assert run(loaded.folder, *SPAN, "--tables", folder, "--format", "csv").stdout == first.stdout


def test_a_file_gets_plain_text_although_the_command_runs_on_a_terminal(
    loaded: Loaded, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (loaded.folder, *SPAN, "--tables", folder)
    plain, out = run(*words).stdout, tmp_path / "report.txt"
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert run(*words).stdout.count("\n") > plain.count("\n"), "narrower, so that more lines wrap"
    assert run(*words, "--out", out).exit_code == 0
    assert out.read_text("utf-8") == plain


def test_the_table_says_what_the_numbers_lack(loaded: Loaded, folder: Path) -> None:
    result = run(loaded.folder, *SPAN, "--tables", folder)
    assert result.exit_code == 0
    assert "no data from 2026-10-12T03:00:00Z to 2026-10-12T03:40:00Z" in " ".join(result.stdout.split())


def test_strict_ends_with_1_where_the_numbers_lack_anything(loaded: Loaded, folder: Path) -> None:
    assert run(loaded.folder, *SPAN, "--tables", folder, "--strict").exit_code == 1


def test_strict_ends_with_0_where_they_lack_nothing(loaded: Loaded, folder: Path) -> None:
    span = ("--from", "2026-10-01", "--to", "2026-10-08")
    assert run(loaded.folder, *span, "--tables", folder, "--strict", "--period", "range").exit_code == 0


def test_one_tenants_report_has_no_other_tenant(loaded: Loaded, folder: Path) -> None:
    output = run(loaded.folder, *SPAN, "--tables", folder, "--tenant", "fraud", "--format", "csv").stdout
    assert {row["tenant"] for row in csv.DictReader(io.StringIO(output))} == {"fraud"}


def test_everything_is_written_where_it_is_asked_for(loaded: Loaded, folder: Path, tmp_path: Path) -> None:
    out, events, mails = tmp_path / "o.parquet", tmp_path / "e.jsonl", tmp_path / "mail"
    options = ("--format", "parquet", "--out", out, "--events", events, "--mail", mails)
    assert run(loaded.folder, *SPAN, "--tables", folder, *options).exit_code == 0
    assert pl.read_parquet(out).height > 5
    assert every("id" in json.loads(line) for line in events.read_text("utf-8").splitlines())
    assert sorted(path.name for path in mails.iterdir()) == ["fraud.html", "fraud.md", "research.html", "research.md"]


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (SPAN, "no data"),
        ((*SPAN, "--tables", "x", "--example", 1), "usage comes from exactly one source"),
        ((*SPAN, "--tables", "/nowhere"), "which is no folder"),
        ((*SPAN, "--example", 1, "--format", "parquet"), "without --out"),
        ((*SPAN, "--example", 1, "--token-file", "x"), "without --prometheus"),
        ((*SPAN, "--example", 1, "--timezone", "Mars"), "--timezone 'Mars'"),
        ((*SPAN, "--example", 1, "--explain", "frau"), "tenant 'frau'"),
        ((*SPAN, "--prometheus", "somewhere"), "--prometheus 'somewhere'"),
        ((*SPAN, "--prometheus", "http://[::"), "--prometheus 'http://[::'"),
        (("--from", "1st", "--to", "2026-11-01", "--example", 1), "time '1st'"),
        (
            ("--from", "0001-01-01", "--to", "2026-11-01", "--timezone", "Asia/Tokyo", "--example", 1),
            "time '0001-01-01'",
        ),
        (("--from", "2026-10-01", "--to", "9999-12-31", "--example", 1), "time '9999-12-31'"),
        (("--from", "1970-01-01", "--to", "1981-01-01", "--example", 1), "a range from 1970-01-01T00:00:00Z"),
        (("--from", "2026-11-01", "--to", "2026-10-01", "--example", 1), "a range from"),
        (("--from", "2026-10-03", "--to", "2026-11-01", "--example", 1, "--events", "e"), "a part of 2026-10"),
        ((*SPAN, "--example", 1, "--bill", "/nowhere.parquet"), "--bill /nowhere.parquet"),
        ((*SPAN, "--example", 1, "--out", "/nowhere/report"), "/nowhere/report"),
        ((*SPAN, "--example", 1, "--events", "/nowhere/events"), "/nowhere/events"),
        ((*SPAN, "--example", 1, "--mail", "/dev/null/mail"), "/dev/null/mail"),
        ((*SPAN, "--example", 1, "--save-tables", "/dev/null/tables"), "--save-tables /dev/null/tables"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_change(loaded: Loaded, words: tuple, message_part: str) -> None:
    result = run(loaded.folder, *words)
    assert (result.exit_code, message_part in result.stderr, "change: " in result.stderr) == (2, True, True), (
        result.stderr
    )


def test_a_prometheus_that_does_not_answer_ends_with_1(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenancy.chargeback.prometheus.TRIES", 1)
    result = run(loaded.folder, *SPAN, "--prometheus", "http://127.0.0.1:9")
    assert (result.exit_code, "does not answer" in result.stderr) == (1, True)


def test_help_needs_no_polars() -> None:
    import subprocess
    import sys

    code = "import sys; sys.modules['polars'] = None; from tenancy.cli import main; main(['chargeback', '--help'])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, "tenancy chargeback bank" in completed.stdout) == (0, True), completed.stderr


def test_a_share_that_is_idle_is_told_with_how_it_came_about(loaded: Loaded, folder: Path) -> None:
    output = " ".join(
        run(loaded.folder, *SPAN, "--tables", folder, "--explain", "fraud", "--max-workloads", 3).stdout.split()
    )
    assert "66.6667 %: its part of the guarantees there" in output
    assert "more workloads" in output


def test_dollars_are_never_of_a_fraction_of_a_millionth(costs: ChargebackReport) -> None:
    assert every(isinstance(line.micro, int) for line in costs.lines)
    assert dollars(costs) == pytest.approx(float(bill(costs)))


PAGE = Path(__file__).parents[2] / "docs" / "chargeback.md"


def test_the_page_shows_what_the_command_prints() -> None:
    examples = [block for block in PAGE.read_text("utf-8").split("```") if block.startswith("\n$ tenancy")]
    assert len(examples) == 2
    for block in examples:
        command, *lines = block.strip().splitlines()
        printed = iter(run(*command.split()[3:]).stdout.splitlines())
        for line in lines:
            assert line in {"", "…"} or line in printed, f"{line!r} is not printed, or not there"
