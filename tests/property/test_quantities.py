from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from tenancy.catalog.quantity import LARGEST, parse, write, write_count

NUMBERS = st.one_of(
    st.integers(0, 10**7), st.integers(0, 10**6).map(lambda n: n * 1024), st.integers(0, 99).map(lambda n: n / 10)
)
SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"])
TEXTS = st.builds(lambda n, s: f"{int(n) if s == 'm' else n}{s}", NUMBERS, SUFFIXES)


@settings(deadline=None)
@given(TEXTS)
def test_a_quantity_means_what_the_kubernetes_client_reads(text: str) -> None:
    assert parse(text) == parse_quantity(text)


@settings(deadline=None)
@given(TEXTS)
def test_writing_keeps_the_number(text: str) -> None:
    assert parse_quantity(write(parse(text))) == parse_quantity(text)


@settings(deadline=None)
@given(TEXTS)
def test_what_is_written_once_is_written_the_same_again(text: str) -> None:
    once = write(parse(text))
    assert write(parse(once)) == once


@settings(deadline=None)
@given(TEXTS)
def test_what_is_written_is_canonical_in_its_family(text: str) -> None:
    # No fraction, and no larger suffix of the same family leaves a whole number.
    written = write(parse(text))
    digits = written.rstrip("mkKMGTPEi")
    suffix = written[len(digits) :]
    steps = [1024] if suffix.endswith("i") else [1000, 1024] if not suffix else [1000]
    assert digits == "0" or suffix in {"E", "Ei"} or all(int(digits) % step for step in steps)


@settings(deadline=None)
@given(st.integers(0, int(LARGEST)))
def test_a_count_keeps_its_number(number: int) -> None:
    assert parse_quantity(write_count(number)) == Decimal(number)


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        parse(text)
    except ValueError:
        return
    assert parse_quantity(text) == parse(text)
