"""The three conditions against a search that places every slice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tenancy.catalog.gpus import BOARDS, COMPUTE_SLICES, layout_misfit

# (compute slices, memory units, starts), from NVIDIA's placement tables for boards of seven slices.
PLACEMENTS = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
MOST = (7, 4, 3, 2, 1, 1)


def _vectors() -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(most + 2) for most in MOST))


def _placeable(counts: tuple[int, ...]) -> bool:
    slices = [kind for kind, count in enumerate(counts) for _ in range(count)]
    if sum(PLACEMENTS[kind][0] for kind in slices) > COMPUTE_SLICES:
        return False

    def place(index: int, taken: int, least: int) -> bool:
        if index == len(slices):
            return True
        _, memory, starts = PLACEMENTS[slices[index]]
        again = index and slices[index] == slices[index - 1]
        for start in starts:
            mask = ((1 << memory) - 1) << start
            if (not again or start > least) and not taken & mask and place(index + 1, taken | mask, start):
                return True
        return False

    return place(0, 0, -1)


FEASIBLE = frozenset(counts for counts in _vectors() if any(counts) and _placeable(counts))


def _profiles(board: str) -> list[str]:
    return [name for name in BOARDS[board] if not name.endswith("+me")]


@pytest.mark.parametrize("board", [name for name, profiles in BOARDS.items() if profiles])
def test_the_check_admits_exactly_what_can_be_placed(board: str) -> None:
    names = _profiles(board)
    for counts in _vectors():
        layout = {name: count for name, count in zip(names, counts, strict=True) if count}
        if layout:
            assert (layout_misfit(board, layout) is None) == (counts in FEASIBLE), layout


def test_there_are_77_layouts() -> None:
    assert len(FEASIBLE) == 77


def test_compute_alone_would_admit_25_that_cannot_be_placed() -> None:
    within_most = [c for c in _vectors() if any(c) and all(n <= most for n, most in zip(c, MOST, strict=True))]
    by_compute = [c for c in within_most if sum(n * p[0] for n, p in zip(c, PLACEMENTS, strict=True)) <= 7]
    assert len(set(by_compute) - FEASIBLE) == 25


def test_the_media_extension_fits_once_beside_six_small_slices() -> None:
    assert layout_misfit("a100-40gb", {"1g.5gb+me": 1, "1g.5gb": 6}) is None
    assert layout_misfit("a100-40gb", {"1g.5gb+me": 1, "1g.5gb": 7})
