"""Placement of claims: as much as fits, each as whole as can be, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.kube.placement import Placement, place, place_by_pools
from tests.conftest import examples

Claims = dict[str, tuple[list[str], int]]


def check(claims: Claims, stock: Mapping[str, int], placement: Placement[str]) -> None:
    """Nothing stands where it may not, no pool holds more than it has, and what is missing is counted."""
    stands: Counter[str] = Counter()
    for pool, holders in placement.holds.items():
        assert sum(holders.values()) <= stock[pool]
        for who, count in holders.items():
            assert count >= 0
            assert count == 0 or pool in claims[who][0]
            stands[who] += count
    assert all(stands[who] <= count for who, (_, count) in claims.items())
    assert placement.missing == sum(count for _, count in claims.values()) - stands.total()


def hall_maximum(claims: Claims, stock: Mapping[str, int]) -> int:
    """The most that fits, by Hall: whatever pools are chosen, they and the claims beyond them hold it all."""
    pools = sorted(stock)
    return min(
        sum(stock[pool] for pool, is_picked in zip(pools, picked, strict=True) if is_picked)
        + sum(
            count
            for admitted, count in claims.values()
            if not {pool for pool, is_picked in zip(pools, picked, strict=True) if is_picked} >= set(admitted)
        )
        for picked in product([False, True], repeat=len(pools))
    )


POOLS = ("a", "b", "c")
CLAIMS = st.dictionaries(
    st.sampled_from("tuvwxyz"),
    st.tuples(st.lists(st.sampled_from(POOLS), unique=True), st.integers(0, 6)),
    max_size=5,
)
STOCK = st.fixed_dictionaries({pool: st.integers(0, 8) for pool in POOLS})


@settings(max_examples=examples(500))
@given(claims=CLAIMS, stock=STOCK)
def test_no_other_way_places_more(claims: Claims, stock: dict[str, int]) -> None:
    placement = place(claims, stock)
    check(claims, stock, placement)
    assert sum(sum(holders.values()) for holders in placement.holds.values()) == hall_maximum(claims, stock)


def brute_force(claims: Claims, stock: dict[str, int]) -> int:
    """The most that fits, by trying every unit in every pool."""
    units = [admitted for admitted, count in claims.values() for _ in range(count)]
    best = 0
    for choice in product(*([None, *admitted] for admitted in units)):
        used = Counter(pool for pool in choice if pool)
        if all(count <= stock[pool] for pool, count in used.items()):
            best = max(best, used.total())
    return best


@settings(max_examples=examples(150))
@given(
    claims=st.dictionaries(
        st.sampled_from("xyz"), st.tuples(st.lists(st.sampled_from(POOLS), unique=True), st.integers(0, 2)), max_size=3
    ),
    stock=st.fixed_dictionaries({pool: st.integers(0, 2) for pool in POOLS}),
)
def test_trying_everything_finds_nothing_better(claims: Claims, stock: dict[str, int]) -> None:
    assert hall_maximum(claims, stock) == brute_force(claims, stock), "Hall's count is right"
    assert place(claims, stock).missing == sum(count for _, count in claims.values()) - brute_force(claims, stock)


@settings(max_examples=examples(300))
@given(claims=CLAIMS, stock=STOCK)
def test_the_full_pools_explain_what_is_missing(claims: Claims, stock: dict[str, int]) -> None:
    placement = place(claims, stock)
    inside = sum(count for admitted, count in claims.values() if set(admitted) <= placement.full)
    assert placement.missing == max(0, inside - sum(stock[pool] for pool in placement.full))
    assert bool(placement.full) <= bool(placement.missing), "without a claim that is short no pool is called full"


@settings(max_examples=examples(200))
@given(claims=CLAIMS, stock=STOCK, data=st.data())
def test_the_order_of_pools_in_stock_changes_nothing(
    claims: Claims, stock: dict[str, int], data: st.DataObject
) -> None:
    again = dict(data.draw(st.permutations(list(stock.items()))))
    assert place(claims, stock).holds == place(claims, again).holds


def test_the_same_claims_stand_in_the_same_pools_every_time() -> None:
    claims: Claims = {"x": (["a", "b"], 5), "y": (["b", "a"], 5), "z": (["a"], 2)}
    first = place(claims, {"a": 7, "b": 5})
    assert all(place(claims, {"a": 7, "b": 5}) == first for _ in range(5))


@pytest.mark.parametrize("order", list(permutations("xyz")))
def test_claims_of_different_pools_stand_the_same_in_any_order(order: tuple[str, ...]) -> None:
    claims: Claims = {"x": (["a"], 4), "y": (["a", "b"], 4), "z": (["b", "a"], 4)}
    placement = place({name: claims[name] for name in order}, {"a": 8, "b": 4})
    assert placement.missing == 0
    assert {pool: +holders for pool, holders in placement.holds.items()} == {
        "a": Counter({"x": 4, "y": 4}),
        "b": Counter({"z": 4}),
    }


def test_a_claim_stands_whole_in_the_first_of_its_pools_that_holds_it() -> None:
    placement = place({"x": (["small", "large", "larger"], 5)}, {"small": 4, "large": 5, "larger": 9})
    assert +placement.holds["large"] == Counter({"x": 5})


def test_a_claim_is_divided_only_where_no_pool_holds_it() -> None:
    placement = place({"x": (["a", "b"], 5)}, {"a": 4, "b": 4})
    assert placement.missing == 0
    assert sorted(count for holders in placement.holds.values() for count in holders.values()) == [1, 4]


def test_who_has_no_choice_comes_first() -> None:
    placement = place({"free": (["a", "b"], 4), "bound": (["a"], 4)}, {"a": 4, "b": 4})
    assert (+placement.holds["a"], +placement.holds["b"]) == (Counter({"bound": 4}), Counter({"free": 4}))


def test_who_has_a_choice_makes_way() -> None:
    """x stands in a because all of it fits there; y would find no place if x did not move."""
    placement = place({"x": (["b", "a"], 3), "y": (["b", "c"], 5)}, {"a": 3, "b": 4, "c": 1})
    assert placement.missing == 0
    check({"x": (["b", "a"], 3), "y": (["b", "c"], 5)}, {"a": 3, "b": 4, "c": 1}, placement)


def test_what_no_pool_admits_is_missing_and_fills_none() -> None:
    placement = place({"x": ([], 3)}, {"a": 4})
    assert (placement.missing, placement.full) == (3, frozenset())


def test_claims_known_by_their_pools_alone_are_placed_too() -> None:
    assert place_by_pools({frozenset("a"): 5, frozenset("ab"): 5}, {"a": 4, "b": 4}) == (2, frozenset("ab"))
    assert place_by_pools({frozenset("a"): 5, frozenset("ab"): 3}, {"a": 4, "b": 4}) == (1, frozenset("a"))


def test_a_thousand_claims_are_placed_at_once() -> None:
    claims: Claims = {f"t{i}": ([f"p{i % 7}", f"p{(i + 1) % 7}"], 3) for i in range(1000)}
    placement = place(claims, {f"p{i}": 430 for i in range(7)})
    assert placement.missing == 0
