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
from tenancy.planning.guards.model import Guard, one_line
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


def too_many(most: int) -> str:
    """What the API server says of a list or map that is too large."""
    return f"avail-05: more than {most} entries"


def bounded(guard: Guard, most: int = sizes.WALKED) -> Guard:
    """The same guard, which walks over no more than `most` entries."""

    def each(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: _bounded(one_line(text), most) for name, text in texts.items()}

    return replace(guard, rules=each(guard.rules), variables=each(guard.variables), conditions=each(guard.conditions))


@lru_cache(maxsize=4096)
def _bounded(text: str, most: int) -> str:
    written: list[tuple[int, int, str]] = []
    for start, end in walks(text):
        what = _bounded(text[start:end], most)
        if not is_small(text[start:end]):
            within = f"size({what}) <= {most}"
            what = f'{{"": {what}}}[{within} ? "" : {cel(too_many(most))}]'
        # Of a walk in what another walks over, the outer one writes it.
        written = [found for found in written if not start <= found[0] < end]
        written.append((start, end, what))
    for start, end, what in sorted(written, reverse=True):
        text = text[:start] + what + text[end:]
    return text


def walks(text: str) -> Iterator[tuple[int, int]]:
    """Where what a macro walks over begins and ends, in the order of the macros."""
    opened: list[int] = []
    begins: dict[int, int] = {}
    for found in _TOKEN.finditer(text):
        if found["walk"]:
            yield _begin(text, found.start(), begins), found.start()
            opened.append(found.end() - 1)
        elif found["open"]:
            opened.append(found.start())
        elif found["close"]:
            begins[found.start()] = opened.pop()


def _begin(text: str, end: int, begins: Mapping[int, int]) -> int:
    """Where the operand begins that ends there."""
    at = end
    while at:
        last = text[at - 1]
        if last in ")]}":
            at = begins[at - 1]
        elif last.isalnum() or last in "_." or (last == "?" and text[at - 2] == "."):
            at -= 1
        else:
            break
    if at == end:
        raise ValueError(f"nothing is walked over before {text[end : end + 40]!r}: write it without a space before")
    return at


def is_small(what: str) -> bool:
    """Whether it is a constant, the platform's, or what a bounded walk leaves of something."""
    while what.startswith("(") and what.endswith(")") and _closes(what):
        what = what[1:-1].strip()
    if not re.search(r"[A-Za-z_]", _TEXT.sub("", what)):
        return True
    if what.startswith(OF_PLATFORM) or what.removeprefix("variables.") in LISTS_OF_PLATFORM:
        return True
    return any(begin == 0 and _whole_call(what, at) for begin, at in walks(what))


def _closes(text: str) -> bool:
    """Whether the first parenthesis is closed by the last character."""
    return _close_of(text, 0) == len(text) - 1


def _whole_call(text: str, at: int) -> bool:
    return _close_of(text, text.index("(", at)) == len(text) - 1


def _close_of(text: str, opening: int) -> int:
    opened: list[int] = []
    for found in _TOKEN.finditer(text):
        if found["walk"]:
            opened.append(found.end() - 1)
        elif found["open"]:
            opened.append(found.start())
        elif found["close"] and opened.pop() == opening:
            return found.start()
    return -1
