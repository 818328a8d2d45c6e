"""Kubernetes quantities. Ours, because the client library that has a parser takes 170 ms to import."""

from __future__ import annotations

import re
from decimal import Decimal

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_FORM = re.compile(r"([+-]?[0-9]{1,40}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_SCALE = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    **{s: Decimal(1000) ** i for i, s in enumerate("kMGTPE", start=1)},
    **{s + "i": Decimal(1024) ** i for i, s in enumerate("KMGTPE", start=1)},
}
_BINARY = [(s + "i", 1024**i) for i, s in reversed(list(enumerate("KMGTPE", start=1)))]
_DECIMAL = [(s, 1000**i) for i, s in reversed(list(enumerate("kMGTPE", start=1)))]

MIB = 2**20
LARGEST = Decimal(2**63 - 1)
"""The API server silently lowers anything above."""


def parse(text: str) -> Decimal:
    """The number that a quantity such as `500m`, `64` or `256Gi` means; ValueError if it is none."""
    found = _FORM.fullmatch(text)
    if not found:
        raise ValueError("a quantity is a number such as 500m, 64 or 256Gi")
    number = Decimal(found[1]) * _SCALE[found[2]]
    if number * 1000 != (number * 1000).to_integral_value():
        raise ValueError("a quantity has no parts smaller than a thousandth")
    return number


def is_one(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def write(number: Decimal) -> str:
    """The canonical spelling, as the API server writes it back, so that a second run sees no change.

    That is the largest suffix that leaves a whole number; of the two families the binary one where it fits.
    """
    whole = int(number)
    if number != whole:
        return f"{int(number * 1000)}m"
    for suffix, scale in (*_BINARY, *_DECIMAL):
        if whole and whole % scale == 0:
            return f"{whole // scale}{suffix}"
    return str(whole)


def write_count(number: int) -> str:
    """The canonical spelling of a count: a thousand pods are `1k`."""
    for suffix, scale in _DECIMAL:
        if number and number % scale == 0:
            return f"{number // scale}{suffix}"
    return str(number)
