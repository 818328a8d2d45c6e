"""Plans over random sets of tenants, where every flavor comes from one pool: no guarantee makes way for another.

Where several pools yield a flavor, `test_random_queues.py` says what may move.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.generate import generate
from tenancy import planning
from tenancy.kube.objects import Object
from tenancy.planning import digest, make_plan
from tenancy.spec.loader import Loaded, load
from tests.conftest import examples

TENANTS = 12
SUBSETS = st.sets(st.integers(0, TENANTS - 1), min_size=1)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(generate(tmp_path_factory.mktemp("many") / "bench", TENANTS))


@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_tenants_plan_does_not_depend_on_other_tenants(generated: Loaded, data: st.DataObject) -> None:
    indices = data.draw(SUBSETS)
    alone = {t.name: t for t in make_plan(generated, generated.day).tenants}
    partial_plan = planning.plan(generated.environment, [generated.tenants[i] for i in indices])
    assert all(tenant == alone[tenant.name] for tenant in partial_plan.tenants)


@settings(max_examples=examples(30))
@given(indices=SUBSETS)
def test_the_platforms_plan_does_not_depend_on_the_tenants(generated: Loaded, indices: set[int]) -> None:
    """But for unallocated quota and what departments lend, which are amounts in Cohorts, and Kueue's memory."""
    platform_plan = planning.plan(generated.environment, [generated.tenants[i] for i in indices]).platform
    empty = planning.plan(generated.environment, ()).platform
    tenant_dependent = {"queueing": None, "queue_chart": None, "services": None, "exporters": {}}
    assert replace(platform_plan, **tenant_dependent) == replace(empty, **tenant_dependent)
    assert list(map(without_amounts, platform_plan.queues)) == list(map(without_amounts, empty.queues))


def without_amounts(item: Object) -> Object:
    """The object, and if it is a Cohort, with the names of its resources and limits alone."""
    if item["kind"] != "Cohort":
        return item
    groups = [
        {**group, "flavors": [(f["name"], [[r["name"], *r] for r in f["resources"]]) for f in group["flavors"]]}
        for group in item["spec"]["resourceGroups"]
    ]
    return {**item, "spec": {**item["spec"], "resourceGroups": groups}}


def test_the_order_of_tenants_changes_nothing(generated: Loaded) -> None:
    plans = {
        digest(planning.plan(generated.environment, order).objects()) for order in permutations(generated.tenants[:4])
    }
    assert len(plans) == 1


def test_no_object_of_one_tenant_names_another(generated: Loaded) -> None:
    for tenant in make_plan(generated, generated.day).tenants:
        text = str(list(tenant.objects()))
        others = {t.tenant for t in generated.tenants} - {tenant.name}
        assert not [name for name in others if name in text]


def test_a_generated_environment_is_the_same_every_time(tmp_path: Path) -> None:
    first_folder, second_folder = (generate(tmp_path / folder / "bench", 3) for folder in ("a", "b"))
    assert load(first_folder).tenants == load(second_folder).tenants
