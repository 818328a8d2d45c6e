"""Sums and counts against a search that places every slice, over all layouts of every board."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.catalog.boards import BOARDS, feasible_layouts, layout_misfit, maximal_layouts, nearest_layouts
from tests.conftest import examples

Counts = tuple[int, ...]

PARTITIONABLE = [name for name, board in BOARDS.items() if board.profiles]
SEVEN = [name for name in PARTITIONABLE if BOARDS[name].compute_slices == 7]
MEDIA = 1
"""Index of `+me` among the profiles of a board of seven slices; the known counts of layouts leave it out."""
DOUBLE = 2


def _vectors(board: str) -> Iterator[Counts]:
    """All counts, up to one more than fits of each profile.

    With eleven profiles, where that makes millions, only up to what fits.
    """
    beyond = len(BOARDS[board].profiles) < 9
    return itertools.product(*(range(p.most + 1 + beyond) for p in BOARDS[board].profiles.values()))


def _placeable(board: str, counts: Counts) -> bool:
    """Whether every slice finds a place of its own, without any use of how many fit at most."""
    catalogued_board = BOARDS[board]
    kinds = list(catalogued_board.profiles.values())
    slices = [kind for kind, count in enumerate(counts) for _ in range(count)]
    if sum(kinds[kind].compute for kind in slices) > catalogued_board.compute_slices:
        return False
    if catalogued_board.engines and sum(kinds[kind].engines for kind in slices) > catalogued_board.engines:
        return False
    if sum(kinds[kind].extension for kind in slices) > 1:
        return False
    slices.sort(key=lambda kind: (-kinds[kind].memory, kind))

    def place(index: int, occupied: int, least: int) -> bool:
        if index == len(slices):
            return True
        profile = kinds[slices[index]]
        again = index and slices[index] == slices[index - 1]
        for start in profile.starts:
            mask = ((1 << profile.memory) - 1) << start
            if (not again or start > least) and not occupied & mask and place(index + 1, occupied | mask, start):
                return True
        return False

    return place(0, 0, -1)


@cache
def _search(board: str) -> frozenset[Counts]:
    return frozenset(counts for counts in _vectors(board) if any(counts) and _placeable(board, counts))


def _layout(board: str, counts: Counts) -> dict[str, int]:
    return {name: n for name, n in zip(BOARDS[board].profiles, counts, strict=True) if n}


def _distance(counts: Counts, other_counts: Counts) -> int:
    return sum(abs(a - b) for a, b in zip(counts, other_counts, strict=True))


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_the_check_admits_exactly_what_can_be_placed(board: str) -> None:
    search = _search(board)
    for counts in _vectors(board):
        if any(counts):
            assert (layout_misfit(board, _layout(board, counts)) is None) == (counts in search), counts


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_one_more_of_a_profile_than_fits_never_fits(board: str) -> None:
    for name, profile in BOARDS[board].profiles.items():
        assert layout_misfit(board, {name: profile.most}) is None
        assert layout_misfit(board, {name: profile.most + 1})
        index = list(BOARDS[board].profiles).index(name)
        counts = tuple(profile.most + 1 if i == index else 0 for i in range(len(BOARDS[board].profiles)))
        assert not _placeable(board, counts), name


@pytest.mark.parametrize("board", SEVEN)
def test_a_board_of_seven_slices_has_77_layouts_without_media(board: str) -> None:
    plain = [counts for counts in feasible_layouts(board) if not counts[MEDIA]]
    assert len(plain) == 77


def test_compute_alone_would_admit_25_that_cannot_be_placed() -> None:
    profiles = list(BOARDS["a100-40gb"].profiles.values())
    by_compute = [
        counts
        for counts in _vectors("a100-40gb")
        if any(counts)
        and not counts[MEDIA]
        and all(n <= p.most for n, p in zip(counts, profiles, strict=True))
        and sum(n * p.compute for n, p in zip(counts, profiles, strict=True)) <= 7
    ]
    assert len(set(by_compute) - _search("a100-40gb")) == 25


def _maximal(layouts: set[Counts]) -> list[Counts]:
    def grown(counts: Counts) -> bool:
        return any((*counts[:i], n + 1, *counts[i + 1 :]) in layouts for i, n in enumerate(counts))

    return [counts for counts in layouts if not grown(counts)]


def test_28_layouts_are_maximal_and_12_without_double_memory() -> None:
    plain = {counts for counts in _search("a100-40gb") if not counts[MEDIA]}
    assert len(_maximal(plain)) == 28
    assert len(_maximal({counts for counts in plain if not counts[DOUBLE]})) == 12


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_the_feasible_and_the_maximal_layouts_are_those_of_the_search(board: str) -> None:
    assert set(feasible_layouts(board)) == _search(board)
    assert set(maximal_layouts(board)) == set(_maximal(set(_search(board))))


@given(st.data())
@settings(max_examples=examples(60))
def test_the_nearest_layouts_fit_and_none_is_nearer(data: st.DataObject) -> None:
    board = data.draw(st.sampled_from(["a100-40gb", "rtx-pro-6000", "a30-24gb"]))
    requested = tuple(data.draw(st.integers(0, p.most + 2)) for p in BOARDS[board].profiles.values())
    names = tuple(BOARDS[board].profiles)
    nearest = nearest_layouts(board, _layout(board, requested))
    if not any(requested):
        assert nearest == []
        return
    assert len(nearest) == 3
    assert all(layout_misfit(board, layout) is None for layout in nearest)
    by_distance = sorted(_distance(requested, counts) for counts in _search(board))
    distances = [_distance(requested, tuple(layout.get(name, 0) for name in names)) for layout in nearest]
    assert distances == by_distance[:3]


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_a_layout_that_fits_is_its_own_nearest(board: str) -> None:
    for counts in feasible_layouts(board)[:: max(1, len(feasible_layouts(board)) // 20)]:
        assert nearest_layouts(board, _layout(board, counts), count=1) == [_layout(board, counts)]
