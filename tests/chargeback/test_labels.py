"""Labels of namespaces as columns: what work held is split by them, and the parts add up."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenancy.chargeback import outputs
from tenancy.chargeback.labels import by_labels
from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.cli import main
from tenancy.validation import load
from tests.chargeback.scene import DAY, OCTOBER, PRICES, held, node, report
from tests.conftest import SpecFolder

END = OCTOBER + 7 * DAY
HELD = {Category.HELD, Category.BORROWED}
PRODUCT = {"fraud--train": "scoring", "fraud--serve": "fraud-detection"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SpecFolder(tmp_path_factory.mktemp("labels") / "small")
    made.add("environment.yaml", PRICES)
    train = "  - {name: train, purpose: nightly retraining"
    made.edit("tenants/fraud.yaml", train, f"{train}, product: scoring")
    return made.path


@pytest.fixture(scope="module")
def found(folder: Path) -> ChargebackReport:
    train = held("fraud--train", "train-0", "a100", 5, OCTOBER, OCTOBER + DAY)
    serve = held("fraud--serve", "train-0", "a100", 2, OCTOBER, OCTOBER + DAY // 3)
    nodes = [node("train-0", "train", OCTOBER, END)]
    return report(load(folder), OCTOBER, END, nodes=nodes, allocations=[train, serve])


@pytest.mark.parametrize("keys", [("product",), ("product", "team")])
def test_the_parts_of_every_line_add_up_to_it(found: ChargebackReport, keys: tuple[str, ...]) -> None:
    at = outputs.COLUMNS.index("detail") + 1
    whole_rows, parts = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for rows, into in ((outputs.rows(found), whole_rows), (outputs.rows(found, keys), parts)):
        for row in rows:
            into[row[:at]] += round(float(row[outputs.COLUMNS.index("dollars")]) * 1_000_000)
    assert parts == whole_rows
    assert len(outputs.rows(found, keys)) > len(found.lines)


def test_a_product_pays_for_the_work_of_its_namespaces(found: ChargebackReport) -> None:
    by_work, by_label = Counter[str](), Counter[str]()
    for row, micro in outputs.workloads(found):
        if row["owner"] == "fraud":
            by_work[PRODUCT[row["namespace"]]] += micro
    for row in (
        dict(zip(outputs.columns(["product"]), each, strict=True)) for each in outputs.rows(found, ["product"])
    ):
        if row["tenant"] == "fraud" and row["category"] in HELD:
            by_label[row["label_product"]] += round(float(row["dollars"]) * 1_000_000)
    assert set(by_label) == {"scoring", "fraud-detection"}
    for product, micro in by_work.items():
        # Millionths are rounded once for each line here, and once for each workload there.
        assert by_label[product] == pytest.approx(micro, abs=len(found.lines))


def test_what_no_namespace_held_has_the_tenants_value(found: ChargebackReport) -> None:
    for line, labels in by_labels(found, ["product"]):
        if line.tenant == "fraud" and line.category not in HELD:
            assert labels["product"] == "fraud-detection"


def command(folder: Path, *more: str) -> tuple[int, str, str]:
    times = ("--from", "2026-10-01", "--to", "2026-10-08", "--period", "range", "--example", "7")
    done = CliRunner().invoke(main, ["chargeback", str(folder), *times, *more])
    return done.exit_code, done.stdout, done.stderr


def test_focus_has_the_values_of_namespaces_in_its_tags(folder: Path) -> None:
    code, out, _ = command(folder, "--format", "focus", "--label", "product")
    assert code == 0
    products = {
        json.loads(row["Tags"])["product"] for row in csv.DictReader(io.StringIO(out)) if "product" in row["Tags"]
    }
    assert {"scoring", "fraud-detection"} <= products


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--label", "product"), "given --label with --format table; rule: labels are columns or tags"),
        (("--format", "csv", "--label", "projct"), "given --label 'projct'; rule: a label of a tenant or a namespace"),
    ],
)
def test_a_label_that_cannot_be_shown_is_refused(folder: Path, more: tuple[str, ...], said: str) -> None:
    code, out, err = command(folder, *more)
    assert (code, out) == (2, "")
    assert said in err
