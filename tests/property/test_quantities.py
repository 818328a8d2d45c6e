from __future__ import annotations

from decimal import Decimal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenancy.kube.quantities import LARGEST, MAX_NUMBER, parse, parse_plain, write, write_count
from tests import judges
from tests.conftest import examples

DIGITS = st.text("0123456789", max_size=22)
SUFFIXES = st.sampled_from(
    ["", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "i", "ki", "e", "B"]
)
EXPONENTS = st.builds(
    lambda e, sign, number: f"{e}{sign}{number}",
    st.sampled_from("eE"),
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 40),
)
SPELLINGS = st.builds(
    lambda sign, integer, point, part, suffix: f"{sign}{integer}{point}{part}{suffix}",
    st.sampled_from(["", "", "+", "-"]),
    DIGITS,
    st.sampled_from(["", "."]),
    DIGITS,
    st.one_of(SUFFIXES, EXPONENTS),
)
NEARLY = st.text("0159.+-eEinumkKMGTPx _", max_size=9)
NUMBERS = st.one_of(
    st.integers(0, 10**7), st.integers(0, 10**6).map(lambda n: n * 1024), st.integers(0, 99).map(lambda n: n / 10)
)
PLAIN = st.builds(
    lambda n, s: f"{int(n) if s == 'm' else n}{s}",
    NUMBERS,
    st.sampled_from(["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
)

SUFFIXED = 10**21
"""From here on there is no suffix for a thousand more."""


def _read(text: str) -> Decimal | None:
    try:
        return parse(text)
    except ValueError:
        return None


@settings(max_examples=examples(2000))
@given(st.one_of(SPELLINGS, NEARLY))
@example("+")
@example("k")
@example("Ti")
@example("Pi")
@example(".Ei")
@example("e-9")
@example("e-10")
@example("0e-10")
@example("1e4294967299")
@example("1e9223372036854775808")
@example("8Ei")
@example("1000E")
@example("-8.5Ei")
@example("0.0000000001Ki")
@example("1.00000000000000000001")
@example("99999999999999999999999999999.999999999")
def test_a_quantity_is_read_as_the_api_server_reads_it_and_refused_where_it_refuses(text: str) -> None:
    api_answer = judges.quantity(text)
    own_number = _read(text)
    if "error" in api_answer:
        assert own_number is None, f"the API server refuses {text!r}: {api_answer['error']}"
    else:
        assert own_number == Decimal(api_answer["number"]), f"the API server reads {text!r} as {api_answer['number']}"
        # Of more than 999E it drops the suffix: it writes 1000E back as 1.
        assert abs(own_number or 0) >= SUFFIXED or _read(api_answer["canonical"]) == own_number, (
            f"and writes it back as {api_answer['canonical']!r}"
        )


@settings(max_examples=examples(500))
@given(SPELLINGS)
def test_what_we_write_is_what_the_api_server_writes_back(text: str) -> None:
    number = _read(text)
    if number is not None and abs(number) <= LARGEST:
        quantity = write(number)
        api_answer = judges.quantity(quantity)
        assert Decimal(api_answer["number"]) == number
        assert api_answer["canonical"] == quantity


@given(PLAIN)
@example("8388609Ti")
def test_writing_keeps_the_number(text: str) -> None:
    assert min(parse(write(parse_plain(text))), LARGEST) == min(parse(text), LARGEST)


@given(PLAIN)
def test_what_is_written_once_is_written_the_same_again(text: str) -> None:
    once = write(parse(text))
    assert write(parse(once)) == once


@given(PLAIN)
def test_what_is_written_is_canonical_in_its_family(text: str) -> None:
    # No fraction, and no larger suffix of the same family leaves a whole number.
    quantity = write(parse(text))
    digits = quantity.rstrip("mkKMGTPEi")
    suffix = quantity[len(digits) :]
    steps = [1024] if suffix.endswith("i") else [1000, 1024] if not suffix else [1000]
    assert digits == "0" or suffix in {"E", "Ei"} or all(int(digits) % step for step in steps)


@given(st.integers(0, int(LARGEST)))
def test_a_count_keeps_its_number(number: int) -> None:
    assert parse(write_count(number)) == Decimal(number)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    number = _read(text)
    assert number is None or abs(number) <= MAX_NUMBER


@given(st.one_of(st.text(max_size=12), PLAIN))
def test_the_plain_form_is_a_part_of_the_whole(text: str) -> None:
    try:
        plain = parse_plain(text)
    except ValueError:
        return
    assert min(plain, LARGEST) == min(parse(text), LARGEST)
