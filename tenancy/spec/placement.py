"""Do claims fit on pools, when each claim may use some of them only? And where does each stand?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

Claims = Mapping[Key, tuple[Collection[str], int]]
"""Whose claim -> the pools that it may use, the preferred first, and how much it is."""


class Placed(NamedTuple, Generic[Key]):
    missing: int
    """How much finds no place."""
    full: frozenset[str]
    """The pools that hold exactly what is missing too little (Hall)."""
    holds: Mapping[str, Counter[Key]]
    """What each pool holds of each claim."""


def placed(claims: Mapping[frozenset[str], int], there: Mapping[str, int]) -> tuple[int, frozenset[str]]:
    """How much of claims that are known by their pools alone finds no place, and the pools that are then full."""
    found = place({pools: (sorted(pools), count) for pools, count in claims.items()}, there)
    return found.missing, found.full


def place(claims: Claims[Key], there: Mapping[str, int]) -> Placed[Key]:
    """The most that fits: claims with the fewest pools first, each as whole in one pool as can be.

    A maximum flow, by shortest augmenting paths: a claim that finds its pools full may move another that has a choice.
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
