"""Kubernetes quantities. Ours, because the client library that has a parser takes 170 ms to import."""

from __future__ import annotations

import re
from decimal import Decimal

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_FORM = re.compile(r"^([+-]?[0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_SCALE = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    **{s: Decimal(1000) ** i for i, s in enumerate("kMGTPE", start=1)},
    **{s + "i": Decimal(1024) ** i for i, s in enumerate("KMGTPE", start=1)},
}
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def parse(text: str) -> Decimal:
    """The number that a quantity such as `500m`, `64` or `256Gi` means; ValueError if it is none."""
    found = _FORM.match(text)
    if not found:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 64 or 256Gi")
    return Decimal(found[1]) * _SCALE[found[2]]


def write(number: Decimal) -> str:
    """The canonical spelling, as the API server writes it back, so that a second run sees no change."""
    if number != number.to_integral_value():
        return f"{int(number * 1000)}m"
    whole = int(number)
    for suffix in _BINARY:
        scale = int(_SCALE[suffix])
        if whole and whole % scale == 0:
            return f"{whole // scale}{suffix}"
    return str(whole)
