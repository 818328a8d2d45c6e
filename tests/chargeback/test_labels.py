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
from tenancy.spec.loader import load
from tests.chargeback.scene import DAY, OCTOBER, PRICES, allocation, node, report
from tests.conftest import SpecFolder, nonempty

END = OCTOBER + 7 * DAY
HELD_CATEGORIES = {Category.HELD, Category.BORROWED}
PRODUCT = {"fraud--train": "scoring", "fraud--serve": "fraud-detection"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec_folder = SpecFolder(tmp_path_factory.mktemp("labels") / "small")
    spec_folder.add("environment.yaml", PRICES)
    train = "  - {name: train, purpose: nightly retraining"
    spec_folder.edit("tenants/fraud.yaml", train, f"{train}, product: scoring")
    return spec_folder.path


@pytest.fixture(scope="module")
def costs(folder: Path) -> ChargebackReport:
    train = allocation("fraud--train", "train-0", "a100", 5, OCTOBER, OCTOBER + DAY)
    serve = allocation("fraud--serve", "train-0", "a100", 2, OCTOBER, OCTOBER + DAY // 3)
    nodes = [node("train-0", "train", OCTOBER, END)]
    return report(load(folder), OCTOBER, END, nodes=nodes, allocations=[train, serve])


@pytest.mark.parametrize("keys", [("product",), ("product", "team")])
def test_the_parts_of_every_line_add_up_to_it(costs: ChargebackReport, keys: tuple[str, ...]) -> None:
    at = outputs.COLUMNS.index("detail") + 1
    whole_rows, parts = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for rows, into in ((outputs.rows(costs), whole_rows), (outputs.rows(costs, keys), parts)):
        for row in rows:
            into[row[:at]] += round(float(row[outputs.COLUMNS.index("dollars")]) * 1_000_000)
    assert parts == whole_rows
    assert len(outputs.rows(costs, keys)) > len(costs.lines)


def test_a_product_pays_for_the_work_of_its_namespaces(costs: ChargebackReport) -> None:
    by_work, by_label = Counter[str](), Counter[str]()
    for row, micro in outputs.workloads(costs):
        if row["owner"] == "fraud":
            by_work[PRODUCT[row["namespace"]]] += micro
    for row in (
        dict(zip(outputs.columns(["product"]), row_values, strict=True))
        for row_values in outputs.rows(costs, ["product"])
    ):
        if row["tenant"] == "fraud" and row["category"] in HELD_CATEGORIES:
            by_label[row["label_product"]] += round(float(row["dollars"]) * 1_000_000)
    assert set(by_label) == {"scoring", "fraud-detection"}
    for product, micro in nonempty(by_work.items()):
        # Millionths are rounded once for each line here, and once for each workload there.
        assert by_label[product] == pytest.approx(micro, abs=len(costs.lines))


def test_what_no_namespace_held_has_the_tenants_value(costs: ChargebackReport) -> None:
    for line, labels in nonempty(by_labels(costs, ["product"])):
        if line.tenant == "fraud" and line.category not in HELD_CATEGORIES:
            assert labels["product"] == "fraud-detection"


def command(folder: Path, *more: str) -> tuple[int, str, str]:
    times = ("--from", "2026-10-01", "--to", "2026-10-08", "--period", "range", "--example", "7")
    completed = CliRunner().invoke(main, ["chargeback", str(folder), *times, *more])
    return completed.exit_code, completed.stdout, completed.stderr


def test_focus_has_the_values_of_namespaces_in_its_tags(folder: Path) -> None:
    code, out, _ = command(folder, "--format", "focus", "--label", "product")
    assert code == 0
    products = {
        json.loads(row["Tags"])["product"] for row in csv.DictReader(io.StringIO(out)) if "product" in row["Tags"]
    }
    assert {"scoring", "fraud-detection"} <= products


@pytest.mark.parametrize(
    ("more", "message_part"),
    [
        (("--label", "product"), "given --label with --format table; rule: labels are columns or tags"),
        (("--format", "csv", "--label", "projct"), "given --label 'projct'; rule: a label of a tenant or a namespace"),
    ],
)
def test_a_label_that_cannot_be_shown_is_refused(folder: Path, more: tuple[str, ...], message_part: str) -> None:
    code, out, err = command(folder, *more)
    assert (code, out) == (2, "")
    assert message_part in err
