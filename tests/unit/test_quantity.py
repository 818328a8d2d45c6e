from __future__ import annotations

import ast
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tenancy.kube import quantities
from tenancy.kube.quantities import parse, parse_or_zero, parse_plain, thousandths, units, write, write_count

ROOT = Path(__file__).parents[2]


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
    assert abs(parse(text)) == quantities.MOST
    assert abs(units(text)) == 10**100
    assert abs(thousandths(text)) == 10**103


@pytest.mark.parametrize(("text", "whole", "milli"), [("123n", 1, 1), ("1500m", 2, 1500), ("1k", 1000, 10**6)])
def test_a_quantity_is_rounded_up_where_it_is_counted(text: str, whole: int, milli: int) -> None:
    assert (units(text), thousandths(text)) == (whole, milli)


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

NO_QUANTITY = {
    "int(pods.count)": "pods of a pod set",
    "int(factor)": "a multiplier of Kueue's configuration",
    "int(notes.get(LEAST_PODS, 0))": "an annotation of Kueue's with a number of pods",
    "int(machine[name] // amount)": "a ratio of two numbers that are read already",
    "int(amount(quota.cpu) * 1000)": "rounded down on purpose, after the reader",
    "int(amount(quota.memory) / 2 ** 20)": "rounded down on purpose, after the reader",
    "float(quantities.parse(amount))": "a sample of a metric, after the reader",
    "int(count)": "a number of nodes",
    "int(at)": "a time",
    "int(tail, 16)": "a part of a UID",
    "Decimal(number)": "thousandths, which the reader made",
    "float(price)": "dollars",
    "float(each == phase)": "a truth",
    "float(pool.vcpu)": "the catalogue's number",
    "float(pool.memory_gib)": "the catalogue's number",
    "int(price * MICRO)": "dollars",
    "int(rate * MICRO)": "dollars",
    "int(lost['lost'][5:].sum())": "seconds",
    "int(dice.lognormvariate(math.log(5 * HOUR), 1.1))": "seconds",
}
"""Calls in such modules, and what it is that they read."""


def _conversions(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    if not any(isinstance(node, ast.Constant) and node.value in FIELDS for node in ast.walk(tree)):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        by_name = isinstance(node.func, ast.Name) and node.func.id in {"int", "float", "Decimal"}
        by_method = isinstance(node.func, ast.Attribute) and node.func.attr in {"isdigit", "isdecimal", "isnumeric"}
        if by_method or (by_name and any(not isinstance(given, ast.Constant) for given in node.args)):
            yield ast.unparse(node)


def test_no_quantity_is_read_but_by_the_one_reader() -> None:
    modules = [*(ROOT / "tenancy").rglob("*.py"), *(ROOT / "policy").rglob("*.py")]
    found = {path: set(_conversions(path)) for path in modules if path.name != "quantities.py"}
    wrong = {str(path.relative_to(ROOT)): sorted(each - set(NO_QUANTITY)) for path, each in found.items()}
    assert {path: each for path, each in wrong.items() if each} == {}
    assert set(NO_QUANTITY) == set().union(*found.values()) & set(NO_QUANTITY), "an exception that nothing needs"


@pytest.mark.parametrize("line", ["int(quota['nominalQuota'])", "x['hard'].isdigit()", "float(at(r, 'requests'))"])
def test_a_quantity_that_is_read_elsewhere_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"{line}\n", "utf-8")
    assert list(_conversions(tmp_path / "module.py")) == [line]
