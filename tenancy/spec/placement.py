"""Do claims fit on pools, when each claim may use some of them only?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def placed(claims: Mapping[frozenset[str], int], there: Mapping[str, int]) -> tuple[int, frozenset[str]]:
    """How much of the claims finds no place, and the pools that are then full of what may go nowhere else.

    A maximum flow, by shortest augmenting paths: a claim that finds its pools full may move another that has a choice.
    The pools returned hold exactly what is missing too little (Hall).
    """
    free = dict(there)
    holds: dict[str, Counter[frozenset[str]]] = {pool: Counter() for pool in there}
    lacking: Counter[frozenset[str]] = Counter()
    for admitted, count in sorted(claims.items(), key=lambda claim: (len(claim[0]), sorted(claim[0]))):
        left = count
        while left:
            came_from = _reached([admitted], holds)
            end = next((pool for pool in came_from if free[pool] > 0), None)
            if end is None:
                lacking[admitted] = left
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
    return lacking.total(), frozenset(_reached(lacking, holds))


def _reached(
    claims: Iterable[frozenset[str]], holds: Mapping[str, Mapping[frozenset[str], int]]
) -> dict[str, tuple[str | None, frozenset[str]]]:
    """Pools that claims could use if others moved, nearest first: from which pool, and who would move."""
    came_from: dict[str, tuple[str | None, frozenset[str]]] = {}
    waiting: list[str] = []

    def reach(pools: frozenset[str], source: str | None) -> None:
        for pool in sorted(pools - came_from.keys()):
            came_from[pool] = (source, pools)
            waiting.append(pool)

    for pools in claims:
        reach(pools, None)
    for pool in waiting:
        for who, count in holds[pool].items():
            if count:
                reach(who, pool)
    return came_from
