"""Division of whole numbers by weights without a remainder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def divide_by_weights(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` by weights into whole numbers that add up to it; the rest goes to the largest remainders, and
    among equal ones to the first. A weight may be negative (a credit), the sum may not."""
    total_weight = sum(weights)
    if total_weight <= 0:
        if total:
            raise ValueError(f"{total} cannot be divided by weights that add up to {total_weight}")
        return [0] * len(weights)
    divided = [divmod(total * weight, total_weight) for weight in weights]
    parts = [part for part, _ in divided]
    first = sorted(range(len(weights)), key=lambda i: -divided[i][1])
    for i in first[: total - sum(parts)]:
        parts[i] += 1
    return parts


def rounded(numerator: int, denominator: int) -> int:
    """To the nearest whole number, a half upwards."""
    return (2 * numerator + denominator) // (2 * denominator)


def round_to_sum(amounts: Sequence[Fraction]) -> list[int]:
    """Round numbers so that they add up to their sum, which is rounded once; the rest goes to the largest remainders,
    and among equal ones to the first."""
    parts = [math.floor(amount) for amount in amounts]
    exact_sum = sum(amounts, Fraction())
    first = sorted(range(len(amounts)), key=lambda i: parts[i] - amounts[i])
    for i in first[: rounded(exact_sum.numerator, exact_sum.denominator) - sum(parts)]:
        parts[i] += 1
    return parts
