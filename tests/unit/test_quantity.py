from __future__ import annotations

from decimal import Decimal

import pytest

from tenancy.catalog.quantity import parse, write, write_count


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
    ],
)
def test_a_quantity_means_its_number(text: str, number: str) -> None:
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1\n", "1e3", "1E3", "1KB", "5GB", "1u", "0.0001", ".5", "5.", "--1", "١", "1K", "nan"]
)
def test_what_is_no_quantity_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1200", "1200"),
        ("1000000", "1M"),
        ("1024", "1Ki"),
        ("1024Mi", "1Gi"),
        ("2048Gi", "2Ti"),
        ("0", "0"),
        ("0Gi", "0"),
        ("0064", "64"),
    ],
)
def test_a_quantity_is_written_as_the_api_server_writes_it_back(text: str, canonical: str) -> None:
    assert write(parse(text)) == canonical


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (64, "64"), (1000, "1k"), (1024, "1024"), (1_000_000, "1M")])
def test_a_count_is_written_in_powers_of_ten(number: int, text: str) -> None:
    assert write_count(number) == text
