"""Plans over random sets of tenants."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.generate import generate
from tenancy.plan import digest, make_plan
from tenancy.spec import Loaded, load

TENANTS = 12
SUBSETS = st.sets(st.integers(0, TENANTS - 1), min_size=1)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(generate(tmp_path_factory.mktemp("many") / "bench", TENANTS))


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_tenants_plan_is_the_same_whoever_else_is_there(many: Loaded, data: st.DataObject) -> None:
    chosen = data.draw(SUBSETS)
    alone = {t.name: t for t in make_plan(many.environment, many.tenants).tenants}
    some = make_plan(many.environment, [many.tenants[i] for i in chosen])
    assert all(tenant == alone[tenant.name] for tenant in some.tenants)


@settings(deadline=None, max_examples=30)
@given(chosen=SUBSETS)
def test_the_platforms_plan_is_the_same_whoever_is_there(many: Loaded, chosen: set[int]) -> None:
    some = make_plan(many.environment, [many.tenants[i] for i in chosen])
    assert some.platform == make_plan(many.environment, ()).platform


def test_the_order_of_tenants_changes_nothing(many: Loaded) -> None:
    plans = {digest(make_plan(many.environment, order).objects()) for order in permutations(many.tenants[:4])}
    assert len(plans) == 1


def test_no_object_of_one_tenant_names_another(many: Loaded) -> None:
    for tenant in make_plan(many.environment, many.tenants).tenants:
        text = str(list(tenant.objects()))
        others = {t.tenant for t in many.tenants} - {tenant.name}
        assert not [name for name in others if name in text]


def test_a_generated_environment_is_the_same_every_time(tmp_path: Path) -> None:
    one, other = (generate(tmp_path / folder / "bench", 3) for folder in ("a", "b"))
    assert load(one).tenants == load(other).tenants
