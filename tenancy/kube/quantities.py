"""Kubernetes quantities, read as the API server reads them.

Source: `k8s.io/apimachinery` v0.36.3 `pkg/api/resource/quantity.go`, `suffix.go`; tests compare this reader with that
one. It is written here because the client library that has a reader takes 170 ms to import and knows no exponents.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_DECIMAL_EXPONENT = {None: 0, "n": -9, "u": -6, "m": -3, **{s: 3 * i for i, s in enumerate("kMGTPE", start=1)}}
_BINARY_SCALE = {s + "i": 1024**i for i, s in enumerate("KMGTPE", start=1)}
_BINARY = sorted(_BINARY_SCALE.items(), key=lambda pair: -pair[1])
_DECIMAL = [(s, 1000**i) for i, s in reversed(list(enumerate("kMGTPE", start=1)))]
_FRACTIONS = (("m", 10**3), ("u", 10**6), ("n", 10**9))

# What a spec file may write: digits before and after a point, and a suffix that is common in manifests.
_PLAIN = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")

MIB = 2**20
LARGEST = Decimal(2**63 - 1)
"""The API server silently lowers anything above, where it is written in powers of two."""
MAX_NUMBER = Decimal("1e100")
"""Larger numbers are read as this one: `1e999999999` is a quantity, and as an integer it would fill the memory."""
_NANO = Decimal("1e-9")
_INT64 = range(-(2**63), 2**63)
_WIDE = Context(prec=200)

_NOT_ONE = "a quantity is a number such as 500m, 64 or 256Gi"


def parse(value: object) -> Decimal:
    """The number that a quantity of an object means, such as `1k`, `1e3`, `.5` or `256Gi`; ValueError if it is none.

    Numbers are accepted too, as in JSON. A value below a billionth is rounded up to a billionth.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise ValueError(_NOT_ONE)
    # The API server drops white space around a quantity that it reads from JSON.
    return _parse(value.strip(" \t\r\n") if isinstance(value, str) else str(value))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Decimal:
    number, binary = _exact(text)
    limit = LARGEST if binary else MAX_NUMBER
    if number.copy_abs() > limit:
        return limit.copy_sign(number)
    finer = number.as_tuple().exponent < _NANO.as_tuple().exponent  # ty: ignore[unsupported-operator]
    return number.quantize(_NANO, rounding=ROUND_UP, context=_WIDE) if finer else number


def _exact(text: str) -> tuple[Decimal, bool]:
    """The number before limits are applied, and whether it is written in powers of two."""
    match = _FORM.fullmatch(text)
    if not match or not text:
        raise ValueError(_NOT_ONE)
    sign, digits, part, suffix, power = match.groups()
    scale = _BINARY_SCALE.get(suffix)
    exponent = 0 if scale else _DECIMAL_EXPONENT[suffix]
    if power:
        if len(power) > 20 or int(power) not in _INT64:
            raise ValueError(_NOT_ONE)
        exponent = (int(power) + 2**31) % 2**32 - 2**31  # the API server keeps 32 bits of it
    if not digits and not part and (exponent < -9 or (scale or 0) > 1024**4):
        # The API server reads a text without a digit as 0, except for these.
        raise ValueError(_NOT_ONE)
    large = 0 < exponent <= 100
    number = Decimal(f"{sign}{digits or 0}{'.' if part else ''}{part or ''}e{0 if large else exponent}")
    if not number:
        return Decimal(0), False
    if large or scale:
        # Multiplied, so that it is shown as 1000 and not as 1E+3.
        number = Context(prec=len(text) + 120).multiply(number, Decimal(scale or 10**exponent))
    return number, scale is not None


def parse_or_zero(value: object) -> Decimal:
    """As `parse`; an invalid or unknown quantity counts as 0."""
    try:
        return parse(value)
    except ValueError:
        return Decimal(0)


def units(value: object) -> int:
    """A quantity in whole units, rounded up as the API server does: GPUs, bytes, pods."""
    return math.ceil(parse(value))


def thousandths(value: object) -> int:
    """A quantity in thousandths, rounded up, so that sums are exact."""
    return math.ceil(_WIDE.multiply(parse(value), Decimal(1000)))


@lru_cache(maxsize=4096)
def parse_plain(text: str) -> Decimal:
    """A quantity in the narrower form of spec files; ValueError if it is not in that form."""
    if not is_plain(text):
        raise ValueError(_NOT_ONE)
    number, _ = _exact(text)
    if number != number.quantize(Decimal("0.001"), context=_WIDE):
        raise ValueError("a quantity has no parts smaller than a thousandth")
    return number


def is_plain(text: str) -> bool:
    """Whether a text is a quantity in the form of spec files."""
    return _PLAIN.fullmatch(text) is not None


def write(number: Decimal) -> str:
    """The canonical spelling, as the API server writes it back, so that a second run sees no change.

    That is the largest suffix that leaves a whole number; of the two families the binary one where it fits.
    """
    integer = int(number)
    if number != integer:
        for suffix, scale in _FRACTIONS:
            scaled = _WIDE.multiply(number, Decimal(scale))
            if scaled == int(scaled) or suffix == "n":
                return f"{int(scaled)}{suffix}"
    # In powers of two the API server would lower what is more than LARGEST.
    for suffix, scale in (*(_BINARY if abs(integer) <= LARGEST else ()), *_DECIMAL):
        if integer and integer % scale == 0:
            return f"{integer // scale}{suffix}"
    return str(integer)


def write_count(number: int) -> str:
    """The canonical spelling of a count: a thousand pods are `1k`."""
    for suffix, scale in _DECIMAL:
        if number and number % scale == 0:
            return f"{number // scale}{suffix}"
    return str(number)
