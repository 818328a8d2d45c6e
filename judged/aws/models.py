"""A request's parameters against AWS' own API models, as botocore ships them: members, enumerations, sizes, patterns.

The models are what AWS generates its SDKs from. A request that they refuse, AWS refuses; AWS refuses more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Mistake = tuple[str, str]
"""Path of a parameter and what is wrong with it."""

CLASSES = {"\\p{L}": "\\w", "\\p{N}": "\\d", "\\p{Z}": "\\s", "\\p{IsAlphabetic}": "\\w", "\\p{IsDigit}": "\\d"}
"""Java's character classes that AWS' patterns have, in Python's form."""
EXCERPT = 80
"""Characters of a value in a message."""


class UnreadablePattern(ValueError):
    """A pattern of a model that Python's regular expressions cannot read."""


def mistakes(shape: Any, value: Any, path: str = "") -> Iterator[Mistake]:
    """Mistakes of a value by the model of a shape (botocore.model.Shape). Raises UnreadablePattern."""
    match shape.type_name:
        case "structure" if isinstance(value, Mapping):
            yield from _structure(shape, value, path)
        case "list" if isinstance(value, Sequence):
            yield from _size(shape, len(value), "items", path)
            for item in value:
                yield from mistakes(shape.member, item, f"{path}[]")
        case "map" if isinstance(value, Mapping):
            yield from _size(shape, len(value), "entries", path)
            for key, item in value.items():
                yield from mistakes(shape.key, key, f"{path}{{key}}")
                yield from mistakes(shape.value, item, f"{path}{{value}}")
        case "string" if isinstance(value, str):
            yield from _text(shape, value, path)
        case "integer" | "long" | "float" | "double" if isinstance(value, int | float):
            yield from _size(shape, value, "", path)


def _structure(shape: Any, value: Mapping[str, Any], path: str) -> Iterator[Mistake]:
    for name in shape.required_members:
        # An SDK fills in a token that is absent.
        if value.get(name) is None and not shape.members[name].metadata.get("idempotencyToken"):
            yield f"{path}.{name}", "missing"
    for name, item in value.items():
        if name not in shape.members:
            yield f"{path}.{name}", "no such parameter"
        elif item is not None:
            yield from mistakes(shape.members[name], item, f"{path}.{name}")


def _text(shape: Any, value: str, path: str) -> Iterator[Mistake]:
    if shape.enum and value not in shape.enum:
        yield path, f"{value[:EXCERPT]!r} is none of {', '.join(shape.enum[:8])}"
    yield from _size(shape, len(value), "characters", path)
    pattern = shape.metadata.get("pattern")
    if pattern and not re.fullmatch(_as_python(pattern), value, re.DOTALL):
        yield path, f"{value[:EXCERPT]!r} does not match {pattern}"


def _size(shape: Any, number: float, unit: str, path: str) -> Iterator[Mistake]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if (low is not None and number < low) or (high is not None and number > high):
        yield path, f"{number} {unit}".strip() + f", not from {low} to {high}"


def _as_python(pattern: str) -> str:
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        # A switch in the middle is an error in Python; it concerns what is forbidden, in lower case too.
        re.compile(pattern := pattern.replace("(?i)", ""))
    except re.error as error:
        raise UnreadablePattern(f"{pattern}: {error}") from None
    return pattern
