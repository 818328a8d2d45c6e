"""No guard iterates over more than a few entries that the requester wrote.

Done for all expressions at once, so that no rule forgets it. A list or map that is too large is an error, and an error
refuses: CEL's `||` and `&&` pass over one only where the other side decides alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from tenancy.catalog import sizes
from tenancy.planning.guards.admission_policy import Guard, one_line
from tenancy.rules.expressions import cel

OF_PLATFORM = ("namespaceObject.", "request.userInfo.groups")
"""Prefixes of paths that no tenant writes."""
LISTS_OF_PLATFORM = frozenset(
    "allowances allowedAccounts allowedClasses allowedEgress allowedIngress allowedPools allowedPriorities "
    "allowedQueues allowedRegistries allowedResources allowedRuntimes asked defaultLimits patchChecks "
    "securityChecks tokenAccounts usualGates".split()
)
"""Variables that are made from annotations of the namespace or from constants."""

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<walk>\.(?:all|exists|exists_one|filter|map)\((?=\w+,))
    |(?P<open>[(\[{])|(?P<close>[)\]}])""",
    re.VERBOSE,
)
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")


def too_many(maximum: int) -> str:
    """Part of the API server's message on a list or map that is too large."""
    return f"avail-05: more than {maximum} entries"


def with_bounds(guard: Guard, maximum: int = sizes.WALKED) -> Guard:
    """The same guard, which walks over no more than `maximum` entries."""

    def bound_texts(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: _bound_text(one_line(text), maximum) for name, text in texts.items()}

    return replace(
        guard,
        rules=bound_texts(guard.rules),
        variables=bound_texts(guard.variables),
        conditions=bound_texts(guard.conditions),
    )


@lru_cache(maxsize=4096)
def _bound_text(text: str, maximum: int) -> str:
    replacements: list[tuple[int, int, str]] = []
    for start, end in walks(text):
        operand = _bound_text(text[start:end], maximum)
        if not is_small(text[start:end]):
            is_within = f"size({operand}) <= {maximum}"
            operand = f'{{"": {operand}}}[{is_within} ? "" : {cel(too_many(maximum))}]'
        # Of a walk in what another walks over, the outer one writes it.
        replacements = [replacement for replacement in replacements if not start <= replacement[0] < end]
        replacements.append((start, end, operand))
    for start, end, operand in sorted(replacements, reverse=True):
        text = text[:start] + operand + text[end:]
    return text


def walks(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of the operand of each macro, in the order of the macros."""
    opened: list[int] = []
    begins: dict[int, int] = {}
    for token in _TOKEN.finditer(text):
        if token["walk"]:
            yield _begin(text, token.start(), begins), token.start()
            opened.append(token.end() - 1)
        elif token["open"]:
            opened.append(token.start())
        elif token["close"]:
            begins[token.start()] = opened.pop()


def _begin(text: str, end: int, begins: Mapping[int, int]) -> int:
    """Begin of the operand that ends there."""
    position = end
    while position:
        previous_character = text[position - 1]
        if previous_character in ")]}":
            position = begins[position - 1]
        elif (
            previous_character.isalnum()
            or previous_character in "_."
            or (previous_character == "?" and text[position - 2] == ".")
        ):
            position -= 1
        else:
            break
    if position == end:
        raise ValueError(f"nothing is walked over before {text[end : end + 40]!r}: write it without a space before")
    return position


def is_small(operand: str) -> bool:
    """Whether it is a constant, the platform's, or what a bounded walk leaves of something."""
    while operand.startswith("(") and operand.endswith(")") and _closes(operand):
        operand = operand[1:-1].strip()
    if not re.search(r"[A-Za-z_]", _TEXT.sub("", operand)):
        return True
    if operand.startswith(OF_PLATFORM) or operand.removeprefix("variables.") in LISTS_OF_PLATFORM:
        return True
    return any(begin == 0 and _whole_call(operand, position) for begin, position in walks(operand))


def _closes(text: str) -> bool:
    """Whether the first parenthesis is closed by the last character."""
    return _close_of(text, 0) == len(text) - 1


def _whole_call(text: str, position: int) -> bool:
    return _close_of(text, text.index("(", position)) == len(text) - 1


def _close_of(text: str, opening: int) -> int:
    opened: list[int] = []
    for token in _TOKEN.finditer(text):
        if token["walk"]:
            opened.append(token.end() - 1)
        elif token["open"]:
            opened.append(token.start())
        elif token["close"] and opened.pop() == opening:
            return token.start()
    return -1
