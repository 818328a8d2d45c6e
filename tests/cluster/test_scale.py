"""200 tenants with five namespaces each: what an API server has to know and to read does not grow with them.

How long it takes is for `make bench`.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.guards import fleet
from tenancy.catalog import vocabulary
from tenancy.planning import Plan, make_plan
from tenancy.spec.loader import load


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Plan]:
    """Plans of one tenant and of 200, with five namespaces each."""
    plans = {}
    for count in (1, 200):
        loaded = load(fleet(tmp_path_factory.mktemp("fleet") / str(count) / "bench", count))
        plans[count] = make_plan(loaded, loaded.day)
    return plans


def test_a_thousand_namespaces_have_the_guards_of_five(fleets: dict[int, Plan]) -> None:
    spaces = {count: sum(len(t.namespaces) for t in plan.tenants) for count, plan in fleets.items()}
    assert spaces == {1: 5, 200: 1000}
    small_fleet, large_fleet = (fleets[count].platform for count in (1, 200))
    assert (small_fleet.guards, small_fleet.readiness_probe, small_fleet.roles) == (
        large_fleet.guards,
        large_fleet.readiness_probe,
        large_fleet.roles,
    )


def test_what_a_guard_reads_of_a_namespace_does_not_grow_with_tenants(fleets: dict[int, Plan]) -> None:
    small_fleet, large_fleet = (fleets[count].tenants[0].namespaces for count in (1, 200))

    def read(space: Any) -> Any:
        return space.namespace["metadata"]["annotations"], space.namespace["metadata"]["labels"]

    assert list(map(read, small_fleet)) == list(map(read, large_fleet))
    assert vocabulary.ALLOWED_RESOURCES in read(small_fleet[0])[0]
