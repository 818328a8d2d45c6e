"""Condition operators, variables and patterns hold where AWS documents that they hold."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.iam import conditions
from tenancy.iam.conditions import OPERATORS, PolicyError, Wild, operator_name, pieces, resolve
from tests.iam.vectors import vectors

VECTORS = {name: vector for name, vector in vectors().items() if vector.table == "conditions"}
TEXTS = st.text("ab/:A", max_size=6)


def of_operator(name: str) -> list[str]:
    """Vectors whose condition has the operator, without regard to qualifiers and IfExists."""
    return [
        vector.name
        for vector in VECTORS.values()
        for operator_text in vector.policies["identity"][0]["Condition"]
        if operator_name(operator_text).base == name
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_the_condition_holds_where_aws_documents_it(name: str) -> None:
    assert VECTORS[name].wrong() == [], VECTORS[name].source


@pytest.mark.parametrize("operator", [*OPERATORS, "Null"])
def test_every_operator_has_a_vector(operator: str) -> None:
    assert of_operator(operator) != []


@pytest.mark.parametrize(
    ("operator", "opposite", "condition_value", "given_values"),
    [
        ("StringEquals", "StringNotEquals", "a", ["a", "A", "b"]),
        ("StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase", "a", ["a", "A", "b"]),
        ("StringLike", "StringNotLike", "a*", ["a", "ab", "b"]),
        ("NumericEquals", "NumericNotEquals", "1", ["1", "1.0", "2"]),
        ("DateEquals", "DateNotEquals", "2020-01-01", ["2020-01-01T00:00:00Z", "2020-01-02"]),
        ("IpAddress", "NotIpAddress", "10.0.0.0/8", ["10.1.1.1", "11.1.1.1"]),
        ("ArnEquals", "ArnNotEquals", "arn:aws:sns:*:*:a*", ["arn:aws:sns:x:1:ab", "arn:aws:sns:x:1:b"]),
        ("ArnLike", "ArnNotLike", "arn:aws:sns:*:*:a*", ["arn:aws:sns:x:1:ab", "arn:aws:sns:x:1:b"]),
    ],
)
def test_a_negated_operator_answers_the_opposite(
    operator: str, opposite: str, condition_value: str, given_values: list[str]
) -> None:
    answers = set()
    for value in given_values:
        (does,) = conditions.conditions({operator: {"key": condition_value}}, variables=True)
        (does_not,) = conditions.conditions({opposite: {"key": condition_value}}, variables=True)
        assert does.holds({"key": value}) != does_not.holds({"key": value}), value
        answers.add(does.holds({"key": value}))
    assert answers == {True, False}


@pytest.mark.parametrize(
    "operator_text", ["stringequals", "ForSomeValues:StringEquals", "ForAllValues:Null", "NullIfExists"]
)
def test_an_operator_is_named_as_aws_names_it(operator_text: str) -> None:
    with pytest.raises(PolicyError, match=operator_text):
        operator_name(operator_text)


@given(TEXTS, st.text("ab/:A*?", max_size=6))
def test_patterns_match_as_a_shell_matches(text: str, pattern: str) -> None:
    """A judge from outside: fnmatch knows the same two wildcards, and brackets, which are not drawn here."""
    matches = conditions.matcher(pieces(pattern, variables=True, wildcards=True))
    assert matches(text, {}) == fnmatch.fnmatchcase(text, pattern)


@given(st.text("ab*?$", max_size=8))
def test_a_variables_value_is_text_even_where_it_holds_wildcards(value: str) -> None:
    matches = conditions.matcher(pieces("x${aws:username, ''}y", variables=True, wildcards=True))
    keys = {"aws:username": value} if value else {}
    assert matches(f"x{value}y", keys)
    assert not matches(f"x{value}cy", keys)


def test_one_round_of_variables_is_all() -> None:
    pattern_pieces = pieces("${aws:username}", variables=True, wildcards=True)
    assert resolve(pattern_pieces, {"aws:username": "${aws:userid}", "aws:userid": "a"}) == tuple("${aws:userid}")


def test_wildcards_are_told_from_letters() -> None:
    assert pieces("a*?", variables=True, wildcards=True) == ("a", Wild.STAR, Wild.ANY)
    assert pieces("a*?", variables=True, wildcards=False) == ("a", "*", "?")


@pytest.mark.parametrize(
    ("operator", "value"), [("NumericEquals", "ten"), ("DateEquals", "tomorrow"), ("IpAddress", "203.0.113.0/33")]
)
def test_a_value_of_another_kind_is_said(operator: str, value: str) -> None:
    with pytest.raises(ValueError, match=value):
        conditions.conditions({operator: {"key": value}}, variables=True)
