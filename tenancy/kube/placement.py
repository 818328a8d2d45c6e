"""Placement of claims on pools, where each claim may use some of the pools only: whether all fit, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

Claims = Mapping[Key, tuple[Collection[str], int]]
"""Key of a claim -> the pools that it may use, the preferred first, and its amount."""


class Placement(NamedTuple, Generic[Key]):
    """The result of a placement of claims on pools, in the unit of the claims."""

    missing: int
    """Amount without a place."""
    full: frozenset[str]
    """The pools that together are too small by exactly `missing` (Hall's theorem)."""
    holds: Mapping[str, Counter[Key]]
    """Amount of each claim on each pool."""


def place_by_pools(claims: Mapping[frozenset[str], int], capacity: Mapping[str, int]) -> tuple[int, frozenset[str]]:
    """Amount without a place of claims that are known only by their pools, and the pools that are then full."""
    placement = place({pools: (sorted(pools), count) for pools, count in claims.items()}, capacity)
    return placement.missing, placement.full


def place(claims: Claims[Key], there: Mapping[str, int]) -> Placement[Key]:
    """The largest amount that fits: claims with the fewest pools first, each in one pool if possible.

    A maximum flow, by shortest augmenting paths: a claim whose pools are full may move another to a free pool.
    """
    free = dict(there)
    holds: dict[str, Counter[Key]] = {pool: Counter() for pool in there}
    shortages: Counter[Key] = Counter()
    for key, (pools, count) in sorted(claims.items(), key=lambda claim: (len(claim[1][0]), list(claim[1][0]))):
        remaining = count
        if pool_for_all := next((pool for pool in pools if free[pool] >= count), None):
            free[pool_for_all] -= count
            holds[pool_for_all][key] += count
            continue
        while remaining:
            came_from = _reached([key], claims, holds)
            end = next((pool for pool in came_from if free[pool] > 0), None)
            if end is None:
                shortages[key] = remaining
                break
            steps = [(end, *came_from[end])]
            while (before := steps[-1][1]) is not None:
                steps.append((before, *came_from[before]))
            moved = min(
                [
                    remaining,
                    free[end],
                    *(holds[source][moving_key] for _, source, moving_key in steps if source is not None),
                ]
            )
            free[end] -= moved
            for target, source, moving_key in steps:
                holds[target][moving_key] += moved
                if source is not None:
                    holds[source][moving_key] -= moved
            remaining -= moved
    return Placement(shortages.total(), frozenset(_reached(shortages, claims, holds)), holds)


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
        for held_key, count in holds[pool].items():
            if count:
                reach(held_key, pool)
    return came_from
