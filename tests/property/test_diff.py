"""Changes from one spec to another, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.generate import generate
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import ChangeTopic, SpecState, diff
from tenancy.spec.fields.network_rules import EgressRule
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load

TENANTS = 6
_NETWORKS = ["198.51.100.0/24", "203.0.113.0/24"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(generate(tmp_path_factory.mktemp("many") / "bench", TENANTS))


def _edited(tenant: Tenant, draw: Any) -> Tenant:
    """A tenant of which anything may differ that a reviewer would want to know."""
    gpus = {
        flavor: share.model_copy(update={"guaranteed": share.guaranteed + draw(st.integers(0, 3))})
        for flavor, share in tenant.gpus.items()
        if draw(st.integers(0, 4))
    }
    people = tuple(
        person.model_copy(update={"role": draw(st.sampled_from(Role))})
        for person in tenant.people
        if draw(st.booleans())
    )
    reach = tuple(EgressRule(cidr=cidr, port=443) for cidr in draw(st.sets(st.sampled_from(_NETWORKS))))
    share_update = (
        {"gpus": {f: n for f, n in space.gpus.items() if f in gpus}} if (space := tenant.namespaces[0]) else {}
    )
    namespaces = (space.model_copy(update=share_update), *tenant.namespaces[1:])
    return tenant.model_copy(update={"gpus": gpus, "people": people, "egress": reach, "namespaces": namespaces})


def _side(generated: Loaded, draw: Any, name: str) -> SpecState:
    kept_tenants = [tenant for tenant in generated.tenants if draw(st.integers(0, 5))]
    tenants = tuple(_edited(tenant, draw) for tenant in kept_tenants)
    # What is told of a change does not depend on whether rules across files allow it.
    return SpecState(name, replace(generated, tenants=tenants))


@settings(max_examples=12)
@given(data=st.data())
def test_what_changes_forth_changes_back(generated: Loaded, data: st.DataObject) -> None:
    first_side, second_side = (_side(generated, data.draw, name) for name in "ab")
    forth, back = diff(first_side, second_side), diff(second_side, first_side)
    assert {change.mirrored() for change in forth} == set(back)
    assert len(forth) == len(set(forth))
    assert (forth == ()) is (
        first_side.plan == second_side.plan and _printed_facts(first_side) == _printed_facts(second_side)
    )


def _printed_facts(side: SpecState) -> Any:
    """Facts of the files that no object shows."""
    assert side.loaded
    return [(t.tenant, t.egress, t.people) for t in side.loaded.tenants]


@settings(max_examples=6)
@given(data=st.data())
def test_nothing_changes_between_a_spec_and_itself(generated: Loaded, data: st.DataObject) -> None:
    side = _side(generated, data.draw, "a")
    assert diff(side, SpecState("b", side.loaded)) == ()
    assert diff(side, SpecState("b", replace(side.loaded, tenants=tuple(reversed(side.loaded.tenants))))) == ()  # type: ignore


@settings(max_examples=12)
@given(data=st.data())
def test_no_loss_of_a_guarantee_goes_without_an_alarm(generated: Loaded, data: st.DataObject) -> None:
    first_side, second_side = (_side(generated, data.draw, name) for name in "ab")
    losing = {
        (name, flavor)
        for name, tenant in first_side.tenants.items()
        for flavor, share in tenant.gpus.items()
        if share.guaranteed
        > (second_side.tenants[name].gpus[flavor].guaranteed if _has(second_side, name, flavor) else 0)
    }
    alarms = {(c.tenant, c.of) for c in diff(first_side, second_side) if alarm(c) is ReviewReason.LOST_GUARANTEE}
    assert alarms == losing


def _has(side: SpecState, tenant: str, flavor: str) -> bool:
    return tenant in side.tenants and flavor in side.tenants[tenant].gpus


@settings(max_examples=12)
@given(data=st.data())
def test_a_stack_runs_if_and_only_if_its_part_of_the_plan_differs(generated: Loaded, data: st.DataObject) -> None:
    first_side, second_side = (_side(generated, data.draw, name) for name in "ab")
    runs = {
        change.tenant
        for change in diff(first_side, second_side)
        if change.topic is ChangeTopic.STACK and change.of == "tenant"
    }
    plans = [{tenant.name: tenant for tenant in side.plan.tenants} for side in (first_side, second_side) if side.plan]
    differ = {name for name in plans[0].keys() | plans[1].keys() if plans[0].get(name) != plans[1].get(name)}
    assert runs == (differ if generated.environment.stacks == "per-tenant" else set())
