"""Patterns, policy variables and condition operators of IAM, as AWS' user guide documents them.

Sources (docs.aws.amazon.com/IAM/latest/UserGuide/, read 2026-11-21), cited below by their short names:

- operators: reference_policies_elements_condition_operators.html;
- sets: reference_policies_condition-single-vs-multi-valued-context-keys.html;
- variables: reference_policies_variables.html;
- resource: reference_policies_elements_resource.html.

Where they leave an answer open, `Undocumented` is raised: a judge that guesses is none.
"""

from __future__ import annotations

import base64
import ipaddress
import operator as compare
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any

Value = str | bytes | tuple[str, ...]
"""Value of a key in a request; a tuple is a key of many values."""
Keys = Mapping[str, Value]
"""Context of a request: names in lower case, for names of keys have no case (variables, operators)."""
Matcher = Callable[[Any, Keys], bool]


class PolicyError(ValueError):
    """A policy that IAM would not take, or that this evaluator does not read."""


class Undocumented(Exception):
    """AWS' documentation does not say what the answer is."""


# Patterns


class Wild(Enum):
    """A wildcard of a policy."""

    STAR = "*"
    ANY = "?"
    SEGMENT_STAR = "[^:]*"  # in an ARN before its fifth colon, not at the end of a segment
    SEGMENT_ANY = "[^:]"


@dataclass(frozen=True, slots=True)
class Variable:
    """A policy variable, such as ${aws:PrincipalTag/tenant}, with its default."""

    key: str
    default: str | None


Piece = str | Wild | Variable
Resolved = tuple[str | Wild, ...]

_VARIABLE = re.compile(r"\s*([^\s,']+)\s*(?:,\s*'(.*)'\s*)?", re.DOTALL)


def pieces(text: str, *, variables: bool, wildcards: bool) -> tuple[Piece, ...]:
    """A text of a policy taken apart. Without `variables`, `${` is plain text (Version before 2012-10-17)."""
    parsed_pieces: list[Piece] = []
    index = 0
    while index < len(text):
        if variables and text.startswith("${", index):
            end = text.find("}", index)
            if end < 0:
                raise PolicyError(f"a variable without its closing brace (given {text!r})")
            parsed_pieces.append(variable(text[index + 2 : end]))
            index = end + 1
            continue
        letter = text[index]
        parsed_pieces.append(Wild(letter) if wildcards and letter in "*?" else letter)
        index += 1
    return tuple(parsed_pieces)


def variable(inside: str) -> Piece:
    """`${*}`, `${?}` and `${$}` are the letters themselves (variables, "Special characters")."""
    if inside in ("*", "?", "$"):
        return inside
    parts = _VARIABLE.fullmatch(inside)
    if not parts:
        raise PolicyError(f"not a policy variable (given ${{{inside}}})")
    return Variable(parts[1].lower(), parts[2])


def in_segments(text_pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Before the fifth colon a wildcard stays in its segment, but for a `*` at the segment's end (resource)."""
    segment_pieces: list[Piece] = []
    colons = 0
    for index, piece in enumerate(text_pieces):
        is_last = index + 1 == len(text_pieces) or text_pieces[index + 1] == ":"
        colons += piece == ":"
        if colons < 5 and piece is Wild.STAR and not is_last:
            segment_pieces.append(Wild.SEGMENT_STAR)
        elif colons < 5 and piece is Wild.ANY:
            segment_pieces.append(Wild.SEGMENT_ANY)
        else:
            segment_pieces.append(piece)
    return tuple(segment_pieces)


def resolve(text_pieces: tuple[Piece, ...], keys: Keys) -> Resolved | None:
    """Values in the place of variables; None where one has no value (variables, "Policy variables with no value").

    A value is text: a `*` in it matches a `*`. AWS does not document that, and allows no `*` in tags and session names.
    """
    resolved_pieces: list[str | Wild] = []
    for piece in text_pieces:
        if not isinstance(piece, Variable):
            resolved_pieces.append(piece)
            continue
        value = variable_value(piece, keys)
        if value is None:
            return None
        resolved_pieces.extend(value)
    return tuple(resolved_pieces)


def variable_value(variable: Variable, keys: Keys) -> str | None:
    """Keys of many values are no variables (sets, "Key points"), so they leave one without value."""
    value = keys.get(variable.key)
    if value == "":
        raise Undocumented(f"whether ${{{variable.key}}} has a value when that is empty")
    return value if isinstance(value, str) else variable.default


@lru_cache(maxsize=20_000)
def regex(resolved: Resolved, ignore_case: bool = False) -> re.Pattern[str]:
    """A compiled expression for pieces whose variables have values."""
    parts = (
        re.escape(piece) if isinstance(piece, str) else {"*": ".*", "?": "."}.get(piece.value, piece.value)
        for piece in resolved
    )
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE | re.ASCII if ignore_case else re.NOFLAG))


def matcher(text_pieces: tuple[Piece, ...], *, ignore_case: bool = False) -> Matcher:
    """Does a value match? Never, where a variable has no value."""
    if not any(isinstance(piece, Variable) for piece in text_pieces):
        full_match = regex(
            tuple(piece for piece in text_pieces if not isinstance(piece, Variable)), ignore_case
        ).fullmatch
        return lambda value, _keys: full_match(value) is not None

    def match(value: str, keys: Keys) -> bool:
        resolved = resolve(text_pieces, keys)
        return resolved is not None and regex(resolved, ignore_case).fullmatch(value) is not None

    return match


def action_matcher(text: str) -> Matcher:
    """Prefix and name of an action have no case (reference_policies_elements_action.html)."""
    return matcher(pieces(text, variables=False, wildcards=True), ignore_case=True)


def resource_pieces(text: str, variables: bool) -> tuple[Piece, ...]:
    """Pieces of a resource ARN: texts, wildcards and variables.

    Raises PolicyError for a variable before the fifth colon.
    """
    text_pieces = pieces(text, variables=variables, wildcards=True)
    colons = 0
    for piece in text_pieces:
        colons += piece == ":"
        if isinstance(piece, Variable) and colons < 5:
            raise PolicyError(f"a variable is allowed only after the fifth colon of an ARN (given {text!r})")
    return in_segments(text_pieces)


def resource_matcher(text: str, variables: bool) -> Matcher:
    """Case counts in a resource (resource)."""
    return matcher(resource_pieces(text, variables))


# Operators: what a policy's value makes of a request's value


def _string_equals(text: str, variables: bool) -> Matcher:
    return matcher(pieces(text, variables=variables, wildcards=False))


def _string_equals_ignore_case(text: str, variables: bool) -> Matcher:
    return matcher(pieces(text, variables=variables, wildcards=False), ignore_case=True)


def _string_like(text: str, variables: bool) -> Matcher:
    return matcher(pieces(text, variables=variables, wildcards=True))


def _arn_like(text: str, variables: bool) -> Matcher:
    """Each of the six components by itself; ArnEquals is the same (operators, "ARN condition operators")."""
    text_pieces = pieces(text, variables=variables, wildcards=True)

    def match(value: str, keys: Keys) -> bool:
        resolved = resolve(text_pieces, keys)
        if resolved is None:
            return False
        pattern_components, value_components = _components(resolved), value.split(":", 5)
        return len(pattern_components) == len(value_components) == 6 and all(
            regex(part).fullmatch(word) for part, word in zip(pattern_components, value_components, strict=True)
        )

    return match


def _components(resolved: Resolved) -> list[Resolved]:
    parts: list[list[str | Wild]] = [[]]
    for piece in resolved:
        if piece == ":" and len(parts) < 6:
            parts.append([])
        else:
            parts[-1].append(piece)
    return [tuple(part) for part in parts]


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"not a number (given {text!r})") from None


def _date(text: str) -> Decimal:
    """Seconds since 1970: the W3C's forms of ISO 8601, or epoch time (operators, "Date condition operators")."""
    if re.fullmatch(r"\d{5,}(\.\d+)?", text):
        return Decimal(text)
    full_text = text + "-01-01"[3 * (len(text) == 7) :] if len(text) in (4, 7) else text
    moment = datetime.fromisoformat(full_text)
    return Decimal(str((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()))


def _ordered(read: Callable[[str], Decimal], test: Callable[[Any, Any], bool]) -> Callable[[str, bool], Matcher]:
    def prepare(text: str, _variables: bool) -> Matcher:
        bound = read(text)
        return lambda value, _keys: test(read(value), bound)

    return prepare


def _bool(text: str, _variables: bool) -> Matcher:
    expected = text.lower()
    return lambda value, _keys: value.lower() == expected


def _binary(text: str, _variables: bool) -> Matcher:
    """Byte for byte against what the policy gives in base64."""
    expected = base64.b64decode(text, validate=True)
    return lambda value, _keys: value == expected


def _ip_address(text: str, _variables: bool) -> Matcher:
    """Without a prefix length: the one address."""
    network = ipaddress.ip_network(text, strict=False)
    return lambda value, _keys: ipaddress.ip_address(value) in network


@dataclass(frozen=True, slots=True)
class Operator:
    """A condition operator: how its values are prepared, and whether it is negated."""

    prepare: Callable[[str, bool], Matcher]
    negated: bool = False


_NUMBERS = {
    "Equals": compare.eq,
    "LessThan": compare.lt,
    "LessThanEquals": compare.le,
    "GreaterThan": compare.gt,
    "GreaterThanEquals": compare.ge,
}

OPERATORS: dict[str, Operator] = {
    "StringEquals": Operator(_string_equals),
    "StringNotEquals": Operator(_string_equals, negated=True),
    "StringEqualsIgnoreCase": Operator(_string_equals_ignore_case),
    "StringNotEqualsIgnoreCase": Operator(_string_equals_ignore_case, negated=True),
    "StringLike": Operator(_string_like),
    "StringNotLike": Operator(_string_like, negated=True),
    **{f"Numeric{name}": Operator(_ordered(_number, test)) for name, test in _NUMBERS.items()},
    "NumericNotEquals": Operator(_ordered(_number, compare.eq), negated=True),
    **{f"Date{name}": Operator(_ordered(_date, test)) for name, test in _NUMBERS.items()},
    "DateNotEquals": Operator(_ordered(_date, compare.eq), negated=True),
    "Bool": Operator(_bool),
    "BinaryEquals": Operator(_binary),
    "IpAddress": Operator(_ip_address),
    "NotIpAddress": Operator(_ip_address, negated=True),
    "ArnEquals": Operator(_arn_like),
    "ArnLike": Operator(_arn_like),
    "ArnNotEquals": Operator(_arn_like, negated=True),
    "ArnNotLike": Operator(_arn_like, negated=True),
}
FOR_ALL, FOR_ANY = "ForAllValues", "ForAnyValue"


def takes_variables(name: str) -> bool:
    """String and ARN operators alone (variables, "Condition element")."""
    return name.startswith(("String", "Arn"))


@dataclass(frozen=True, slots=True)
class Name:
    """An operator's name in a policy, taken apart."""

    base: str
    qualifier: str | None
    if_exists: bool


def operator_name(text: str) -> Name:
    """The parts of an operator's name; raises PolicyError for an unknown one."""
    qualifier, _, operator_text = text.rpartition(":")
    base = operator_text.removesuffix("IfExists")
    if qualifier not in ("", FOR_ALL, FOR_ANY) or (base not in OPERATORS and operator_text != "Null"):
        raise PolicyError(f"no condition operator (given {text!r})")
    if base == "Null" and text != "Null":
        raise PolicyError(f"Null takes no set operator and no IfExists (given {text!r})")
    return Name(base, qualifier or None, base != operator_text)


# Conditions


@dataclass(frozen=True, slots=True)
class Condition:
    """One key of a condition block with its operator and values."""

    key: str
    name: Name
    negated: bool
    matchers: tuple[Matcher, ...]

    def holds(self, keys: Keys) -> bool:
        """Whether the condition is met by the keys of a request; raises Undocumented where AWS does not say."""
        value = keys.get(self.key)
        if value is None:
            return when_absent(self.name, self.negated)
        if self.name.qualifier is None:
            if isinstance(value, tuple):
                raise Undocumented(f"{self.key} has many values, and {self.name.base} no set operator")
            return meets(self, value, keys)
        values = given_values(value)
        if not values:
            return when_empty(self.name)
        combine = for_all if self.name.qualifier == FOR_ALL else for_any
        return combine(meets(self, single_value, keys) for single_value in values)


@dataclass(frozen=True, slots=True)
class Null:
    """A condition on the presence of a key."""

    key: str
    accepted_answers: frozenset[bool]

    def holds(self, keys: Keys) -> bool:
        """Whether the key's presence is as wanted."""
        return is_null(self.key, keys) in self.accepted_answers


def meets(condition: Condition, value: str | bytes, keys: Keys) -> bool:
    """Any of the policy's values; for a negated operator none of them (…condition-logic-multiple-context-keys…)."""
    return any(match(value, keys) for match in condition.matchers) != condition.negated


def when_absent(name: Name, negated: bool) -> bool:
    """The answer for a key that the request does not have (operators, "Important"; sets)."""
    if name.qualifier == FOR_ALL:
        return True
    if name.qualifier == FOR_ANY:
        if name.if_exists:
            raise Undocumented("ForAnyValue is false and IfExists is true where there is no key")
        return False
    return name.if_exists or negated


def when_empty(name: Name) -> bool:
    """Values that "resolve to a null dataset, such as an empty string" (sets)."""
    return name.qualifier == FOR_ALL


def given_values(value: Value) -> tuple[str | bytes, ...]:
    """The values of a key; none if all of them are empty."""
    values = value if isinstance(value, tuple) else (value,)
    return values if any(values) else ()


def for_all(results: Iterable[bool]) -> bool:
    """ForAllValues: true for no values."""
    return all(results)


def for_any(results: Iterable[bool]) -> bool:
    """ForAnyValue: false for no values."""
    return any(results)


def is_null(key: str, keys: Keys) -> bool:
    """Not there, or without a value (operators, "Condition operator to check existence")."""
    value = keys.get(key)
    if value == "":
        raise Undocumented(f"whether {key} is null when it is empty")
    return value is None or value == ()


def conditions(block: Mapping[str, Mapping[str, Any]], variables: bool) -> tuple[Condition | Null, ...]:
    """A Condition element: all of its conditions must be true."""
    parsed_conditions: list[Condition | Null] = []
    for operator_text, tests in block.items():
        name = operator_name(operator_text)
        for key, value in tests.items():
            values = texts(value)
            if name.base == "Null":
                if not {text.lower() for text in values} <= {"true", "false"}:
                    raise PolicyError(f"Null asks for true or false (given {value!r})")
                parsed_conditions.append(Null(condition_key(key), frozenset(text.lower() == "true" for text in values)))
                continue
            operator = OPERATORS[name.base]
            if variables and not takes_variables(name.base) and any("${" in text for text in values):
                raise PolicyError(f"{name.base} takes no variable (given {value!r})")
            matchers = tuple(operator.prepare(text, variables) for text in values)
            parsed_conditions.append(Condition(condition_key(key), name, operator.negated, matchers))
    return tuple(parsed_conditions)


def condition_key(name: str) -> str:
    """Names of keys have no case (reference_policies_elements_condition.html)."""
    return name.lower()


def texts(value: Any) -> tuple[str, ...]:
    """A single value or a list of values, as a list; numbers and booleans are texts to IAM."""
    return tuple(
        ("true" if item else "false") if isinstance(item, bool) else str(item)
        for item in (value if isinstance(value, list | tuple) else [value])
    )
