from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenancy.catalog import vocabulary
from tenancy.rules.values import name_misfit

ALPHABET = "ab1-"


def names(longest: int) -> st.SearchStrategy[str]:
    texts = st.text(ALPHABET, min_size=1, max_size=longest)
    long = st.text("abc1", min_size=longest - 1, max_size=longest - 1).map(lambda text: "x" + text)
    return st.one_of(texts, long).filter(lambda name: name_misfit(name, longest) is None)


PAIRS = st.tuples(names(vocabulary.TENANT_LENGTH), names(vocabulary.PART_LENGTH))


@given(PAIRS, PAIRS)
def test_two_pairs_of_names_never_derive_one_name(first_pair: tuple[str, str], second_pair: tuple[str, str]) -> None:
    assert (vocabulary.derived_name(*first_pair) == vocabulary.derived_name(*second_pair)) == (
        first_pair == second_pair
    )


@given(PAIRS)
def test_a_derived_name_can_be_taken_apart_again(pair: tuple[str, str]) -> None:
    assert tuple(vocabulary.derived_name(*pair).split(vocabulary.SEPARATOR)) == pair


@given(PAIRS)
def test_a_derived_name_is_a_dns_label(pair: tuple[str, str]) -> None:
    name = vocabulary.derived_name(*pair)
    assert len(name) <= vocabulary.LABEL_LENGTH
    assert name.replace("-", "a").isalnum()
    assert name[0].isalpha()
    assert name[-1] != "-"


def test_the_limits_on_both_halves_fill_a_label_exactly() -> None:
    assert vocabulary.TENANT_LENGTH + len(vocabulary.SEPARATOR) + vocabulary.PART_LENGTH == vocabulary.LABEL_LENGTH


@given(st.text(max_size=40))
def test_every_admitted_name_is_plain_ascii(text: str) -> None:
    if name_misfit(text, 30) is None:
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert "--" not in text
