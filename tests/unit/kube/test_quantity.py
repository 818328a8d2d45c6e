from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from tenancy.kube import quantities
from tenancy.kube.quantities import parse, parse_or_zero, parse_plain, thousandths, units, write, write_count

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("500m", "0.5"),
        ("64", "64"),
        ("1.5", "1.5"),
        ("2k", "2000"),
        ("256Gi", "274877906944"),
        ("+1Ki", "1024"),
        ("1k", "1000"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E+3", "1000"),
        ("1e-3", "0.001"),
        ("129e6", "129000000"),
        ("1E", "1000000000000000000"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+1", "1"),
        ("-1", "-1"),
        ("-1500m", "-1.5"),
        ("1500m", "1.5"),
        ("123n", "0.000000123"),
        ("5u", "0.000005"),
        ("1Ei", "1152921504606846976"),
        ("1.5Ki", "1536"),
        ("00.5", "0.5"),
        (" 8 ", "8"),
    ],
)
def test_a_quantity_means_its_number(text: str, number: str) -> None:
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize(("value", "number"), [(8, "8"), (0.5, "0.5"), (8.0, "8"), (1e22, "1e22"), (-1, "-1")])
def test_a_number_of_json_is_a_quantity(value: float, number: str) -> None:
    assert parse(value) == Decimal(number)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "1 0",
            "1KB",
            "5GB",
            "--1",
            "١",
            "1K",
            "nan",
            "inf",
            "1e",
            "1e1.5",
            "1_000",
            "1Ee3",
            "Pi",
            "e-10",
            "1..2",
        ),
        *(None, True, [], {}, float("nan"), float("inf")),
    ],
)
def test_what_the_api_server_refuses_is_no_quantity(value: object) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse(value)
    assert parse_or_zero(value) == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.0000000001", "0.000000001"),
        ("-0.0000000001", "-0.000000001"),
        ("0.0000000001Ki", "0.000000103"),
        ("1e-99", "0.000000001"),
        ("8Ei", str(2**63 - 1)),
        ("-8Ei", str(-(2**63) + 1)),
        ("9000000Ti", str(2**63 - 1)),
    ],
)
def test_what_is_too_small_or_too_large_is_read_as_the_api_server_keeps_it(text: str, number: str) -> None:
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize("text", ["1e999999999", "1E2000000000", "-1e2147483647", "9" * 5000])
def test_a_huge_quantity_is_read_at_once_and_is_more_than_anything_has(text: str) -> None:
    assert abs(parse(text)) == quantities.MAX_NUMBER
    assert abs(units(text)) == 10**100
    assert abs(thousandths(text)) == 10**103


@pytest.mark.parametrize(("text", "whole_units", "milli"), [("123n", 1, 1), ("1500m", 2, 1500), ("1k", 1000, 10**6)])
def test_a_quantity_is_rounded_up_where_it_is_counted(text: str, whole_units: int, milli: int) -> None:
    assert (units(text), thousandths(text)) == (whole_units, milli)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1\n", "1e3", "1E3", "1KB", "5GB", "1u", "0.0001", ".5", "5.", "--1", "١", "1K", "nan"]
)
def test_a_spec_file_writes_quantities_in_the_plain_form_alone(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_plain(text)


@pytest.mark.parametrize("text", ["8Ei", "100E", "9223372036854775808"])
def test_the_plain_form_is_not_capped_so_that_a_spec_file_can_be_refused(text: str) -> None:
    assert parse_plain(text) > quantities.LARGEST


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1e3", "1k"),
        ("1200", "1200"),
        ("1000000", "1M"),
        ("1024", "1Ki"),
        ("1024Mi", "1Gi"),
        ("2048Gi", "2Ti"),
        ("0", "0"),
        ("0Gi", "0"),
        ("0064", "64"),
        ("5u", "5u"),
        ("1500n", "1500n"),
        ("-1500m", "-1500m"),
        ("-2000", "-2k"),
    ],
)
def test_a_quantity_is_written_as_the_api_server_writes_it_back(text: str, canonical: str) -> None:
    assert write(parse(text)) == canonical


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (64, "64"), (1000, "1k"), (1024, "1024"), (1_000_000, "1M")])
def test_a_count_is_written_in_powers_of_ten(number: int, text: str) -> None:
    assert write_count(number) == text


# The one reader

FIELDS = {
    *("nominalQuota", "borrowingLimit", "lendingLimit", "allocatable", "hard", "requests", "limits"),
    *("defaultRequest", "maxLimitRequestRatio", "overhead", "flavorsReservation", "flavorsUsage", "resourceUsage"),
}
"""Fields of objects that hold quantities: a module that names one in its code reads quantities."""

NO_QUANTITY: Mapping[str, Mapping[str, str]] = {
    "tenancy/chargeback/non_compute.py": {"int(price * MICRO)": "dollars", "int(rate * MICRO)": "dollars"},
    "tenancy/chargeback/example.py": {
        "int(dice.lognormvariate(math.log(5 * HOUR), 1.1))": "seconds",
        "round(min(0.99, max(0.01, dice.gauss(0.55, 0.22))), 3)": "a made-up utilization",
    },
    "tenancy/cli/supply_tables.py": {
        "float(pool.memory_gib)": "the catalogue's number",
        "float(round(amount, 2))": "dollars",
        "round(amount, 2)": "dollars",
        "float(pool.vcpu)": "the catalogue's number",
    },
    "tenancy/clock/idle.py": {
        "float(series['value'][1])": "a sample of a metric",
        "int(gpus)": "a number of GPUs, after the reader",
    },
    "tenancy/check/admission/cel.py": {
        f"Decimal({name})": "a quantity's exact number, which the reader wrote" for name in ("a", "b", "amount")
    },
    "tenancy/check/admission/quota.py": {
        "int(part.get('count', 1))": "a number of devices",
    },
    "tenancy/clock/usage.py": {
        "Decimal(3600 * MILLI)": "seconds",
        "int(n)": "the clock's own record",
        "int(warned)": "the clock's own record",
    },
    "tenancy/diff/previews.py": {"int(count)": "a number of nodes"},
    "tenancy/kube/pods.py": {
        "int((item['metadata'].get('annotations') or {}).get(_MIN_PODS, 0))": "a number of pods",
        "int(pods.count)": "a number of pods",
        "Decimal(number)": "thousandths, which the reader made",
    },
    "tenancy/lab/metrics.py": {
        "float(each_phase == phase)": "a truth",
        "float(quantities.parse(amount))": "a sample of a metric, after the reader",
        "int(at)": "a time",
        "round(32 + 40 * part)": "a made-up temperature",
        "round(60 + 300 * part, 1)": "a made-up power",
        "round(part * 100)": "a made-up utilization",
        "round(part, 4)": "a made-up utilization",
    },
    "tenancy/planning/queueing/pool_yields.py": {
        "int(amount(quota.cpu))": "rounded down on purpose, after the reader",
        "int(amount(quota.memory) / 2 ** 30)": "rounded down on purpose, after the reader",
        "int(available.cpu * part)": "a part of the catalogue's number",
        "int(available.ephemeral * part)": "a part of the catalogue's number",
        "int(available.memory * part)": "a part of the catalogue's number",
    },
    "tenancy/planning/queueing/queues.py": {
        "int(amount(quota.cpu) * 1000)": "rounded down on purpose, after the reader",
        "int(amount(quota.memory) / 2 ** 20)": "rounded down on purpose, after the reader",
    },
    "tenancy/planning/services.py": {"Decimal(kueue_memory(environment, tenants))": "bytes, computed"},
    "tenancy/spec/fields/base.py": {"int(value)": "a number that YAML read"},
    "tenancy/spec/fields/tiers.py": {"int(self.utilization_threshold[:-1])": "a percentage"},
    "tenancy/simulation/clocked.py": {
        "float(units(resource['nominalQuota']))": "a number of GPUs, after the reader",
    },
    "tenancy/simulation/objects.py": {"int(tail, 16)": "a part of a UID", "round(half_life)": "seconds"},
    "tenancy/spec/checks/notes.py": {
        "int(node_amount / default_amount)": "a ratio of two numbers that are read already"
    },
    "tenancy/spec/checks/stored_objects.py": {"int(STORE_BYTES * SHARE)": "bytes, computed"},
}
"""Calls in such modules, by file, and what it is that they convert."""

READER = "tenancy.kube.quantities"
CONVERSIONS = {"int", "float", "round", "Decimal", "Fraction"}


def _imports_the_reader(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        return node.module == READER or bool(names & {READER, "tenancy.spec.fields.base.amount"})
    return isinstance(node, ast.Import) and any(alias.name == READER for alias in node.names)


def _conversions(path: Path) -> Iterator[str]:
    """Calls that make a number of something, in a module that names a field with quantities or imports the reader."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    names_field = any(isinstance(node, ast.Constant) and node.value in FIELDS for node in nodes)
    if not (names_field or any(map(_imports_the_reader, nodes))):
        return
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        by_name = isinstance(node.func, ast.Name) and node.func.id in CONVERSIONS
        by_method = isinstance(node.func, ast.Attribute) and node.func.attr in {"isdigit", "isdecimal", "isnumeric"}
        if by_method or (by_name and any(not isinstance(argument, ast.Constant) for argument in node.args)):
            yield ast.unparse(node)


def test_no_quantity_is_read_but_by_the_one_reader() -> None:
    folders = ("tenancy", "policy", "bench", "scripts")
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.name != "quantities.py"]
    conversions = {(str(path.relative_to(ROOT)), call) for path in modules for call in _conversions(path)}
    allowed = {(path, call) for path, calls in NO_QUANTITY.items() for call in calls}
    assert conversions - allowed == set()
    assert allowed - conversions == set(), "an exception that nothing needs"


@pytest.mark.parametrize(
    "line",
    [
        "int(quota['nominalQuota'])",
        "x['hard'].isdigit()",
        "float(at(r, 'requests'))",
        "round(x['limits'])",
        "Fraction(x['hard'])",
    ],
)
def test_a_quantity_that_is_read_elsewhere_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"{line}\n", "utf-8")
    assert list(_conversions(tmp_path / "module.py")) == [line]


@pytest.mark.parametrize(
    "importing", [f"import {READER}", f"from {READER} import parse", "from tenancy.kube import quantities"]
)
def test_a_module_that_imports_the_reader_reads_nothing_beside_it(tmp_path: Path, importing: str) -> None:
    (tmp_path / "module.py").write_text(f"{importing}\nint(text)\n", "utf-8")
    assert list(_conversions(tmp_path / "module.py")) == ["int(text)"]
    (tmp_path / "module.py").write_text("import tenancy.kube.selectors\nint(text)\n", "utf-8")
    assert list(_conversions(tmp_path / "module.py")) == [], "a module without quantities"
