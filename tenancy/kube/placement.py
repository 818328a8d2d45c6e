"""Placement of claims on pools, where each claim may use some of the pools only: whether all fit, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

Claims = Mapping[Key, tuple[Collection[str], int]]
"""Key of a claim -> the pools that it may use, the preferred first, and its amount."""


class Placed(NamedTuple, Generic[Key]):
    """The result of a placement of claims on pools, in the unit of the claims."""

    missing: int
    """Amount without a place."""
    full: frozenset[str]
    """The pools that together are too small by exactly `missing` (Hall's theorem)."""
    holds: Mapping[str, Counter[Key]]
    """Amount of each claim on each pool."""


def placed(claims: Mapping[frozenset[str], int], there: Mapping[str, int]) -> tuple[int, frozenset[str]]:
    """Amount without a place of claims that are known only by their pools, and the pools that are then full."""
    found = place({pools: (sorted(pools), count) for pools, count in claims.items()}, there)
    return found.missing, found.full


def place(claims: Claims[Key], there: Mapping[str, int]) -> Placed[Key]:
    """The largest amount that fits: claims with the fewest pools first, each in one pool if possible.

    A maximum flow, by shortest augmenting paths: a claim whose pools are full may move another to a free pool.
    """
    free = dict(there)
    holds: dict[str, Counter[Key]] = {pool: Counter() for pool in there}
    lacking: Counter[Key] = Counter()
    for key, (pools, count) in sorted(claims.items(), key=lambda claim: (len(claim[1][0]), list(claim[1][0]))):
        left = count
        if whole := next((pool for pool in pools if free[pool] >= count), None):
            free[whole] -= count
            holds[whole][key] += count
            continue
        while left:
            came_from = _reached([key], claims, holds)
            end = next((pool for pool in came_from if free[pool] > 0), None)
            if end is None:
                lacking[key] = left
                break
            steps = [(end, *came_from[end])]
            while (before := steps[-1][1]) is not None:
                steps.append((before, *came_from[before]))
            moved = min([left, free[end], *(holds[source][who] for _, source, who in steps if source is not None)])
            free[end] -= moved
            for target, source, who in steps:
                holds[target][who] += moved
                if source is not None:
                    holds[source][who] -= moved
            left -= moved
    return Placed(lacking.total(), frozenset(_reached(lacking, claims, holds)), holds)


def _reached(
    keys: Iterable[Key], claims: Claims[Key], holds: Mapping[str, Mapping[Key, int]]
) -> dict[str, tuple[str | None, Key]]:
    """Pools that claims could use if others moved, nearest first: from which pool, and who would move."""
    came_from: dict[str, tuple[str | None, Key]] = {}
    waiting: list[str] = []

    def reach(key: Key, source: str | None) -> None:
        for pool in claims[key][0]:
            if pool not in came_from:
                came_from[pool] = (source, key)
                waiting.append(pool)

    for key in keys:
        reach(key, None)
    for pool in waiting:
        for who, count in holds[pool].items():
            if count:
                reach(who, pool)
    return came_from
