"""The record of the last check of a fleet, and what a stack's plan is made from."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog.days import assumed, today
from tenancy.catalog.vocabulary import TENANT
from tenancy.engine import fleet_check_record
from tenancy.engine.digests import digests, input_digests
from tenancy.engine.fleet_check_record import FleetCheckRecord
from tenancy.live.api import ApiUnreachable, Response
from tenancy.planning import make_plan
from tenancy.planning.scope import stacks
from tenancy.schema.environment import Layout
from tenancy.validation import Loaded, load
from tenancy.validation.validator import mark_valid

ROOT = Path(__file__).parents[2]
INPUTS, PLAN = "1" * 64, "2" * 64


class Server:
    """Keeps one ConfigMap."""

    def __init__(self) -> None:
        self.item: Mapping[str, Any] | None = None

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        assert path.partition("?")[0].endswith("/namespaces/tenancy-system/configmaps/checked")
        if method == "PATCH":
            self.item = body
        return Response(200, self.item) if self.item else Response(404, {})


@pytest.fixture
def api() -> Any:
    server: Any = Server()
    fleet_check_record.write(
        server, FleetCheckRecord({"/api/v1/namespaces": 7}, {"bank--fraud": (INPUTS, PLAN)}, "program")
    )
    return server


def test_the_next_run_of_the_same_program_reads_what_was_kept(api: Any) -> None:
    found = fleet_check_record.read(api).of_program("program")
    assert dict(found.versions) == {"/api/v1/namespaces": 7}
    assert found.is_made_from("bank--fraud", INPUTS, PLAN)
    assert found.is_as_planned("bank--fraud", PLAN)


def test_other_files_another_plan_and_another_stack_are_not_what_was_kept(api: Any) -> None:
    found = fleet_check_record.read(api).of_program("program")
    assert not found.is_made_from("bank--fraud", PLAN, PLAN)
    assert not found.is_made_from("bank--fraud", INPUTS, INPUTS)
    assert not found.is_as_planned("bank--fraud", INPUTS)
    assert not found.is_as_planned("bank--aml", PLAN)


def test_another_program_another_day_and_a_damaged_record_count_as_none(api: Any) -> None:
    assert fleet_check_record.read(api).of_program("other") == FleetCheckRecord()
    with assumed(dt.date(2027, 1, 1)):
        assert fleet_check_record.read(api) == FleetCheckRecord()
    for field, text in {"stacks": "[]", "versions": "{", "day": ""}.items():
        server: Any = Server()
        server.item = {"data": {**api.item["data"], field: text}}
        assert fleet_check_record.read(server) == FleetCheckRecord(), field
    assert fleet_check_record.read(Server()) == FleetCheckRecord()  # ty: ignore[invalid-argument-type]


def test_a_record_of_ten_thousand_stacks_fits_into_a_config_map(api: Any) -> None:
    fleet_check_record.write(
        api, FleetCheckRecord({}, {f"production--team-{n:05}": (INPUTS, PLAN) for n in range(10_000)}, PLAN)
    )
    assert len(json.dumps(api.item)) < 2**20


def test_an_api_server_that_refuses_the_record_or_does_not_answer_does_not_end_the_run() -> None:
    class Refusing:
        def request(self, *_: Any, **__: Any) -> Response:
            return Response(403, {"message": "no"})

    class Silent:
        def request(self, *_: Any, **__: Any) -> Response:
            raise ApiUnreachable("it does not answer")

    for server in (Refusing(), Silent()):
        fleet_check_record.write(server, FleetCheckRecord())  # ty: ignore[invalid-argument-type]


def _of_all(loaded: Loaded) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of what plans are made from, and of the plans, by tenant."""
    plan = make_plan(loaded.environment, loaded.tenants, eager=False)
    made = digests(loaded, plan, stacks(plan, Layout.PER_TENANT), ROOT, "program")
    names = {tenant: name for name, _, tenant in stacks(plan, Layout.PER_TENANT) if tenant}
    return input_digests(loaded, plan), {tenant: made[name].plan for tenant, name in names.items()}


def _changed_tenants(before: Loaded, after: Loaded) -> tuple[set[str], set[str]]:
    """Tenants whose plans are made from something else, and those whose plans differ."""
    (old_inputs, old_plans), (new_inputs, new_plans) = _of_all(before), _of_all(after)
    inputs = {tenant for tenant in old_inputs if old_inputs[tenant] != new_inputs[tenant]}
    return inputs, {tenant for tenant in old_plans if old_plans[tenant] != new_plans[tenant]}


def _with(loaded: Loaded, name: str, **update: Any) -> Loaded:
    tenants = tuple(each.model_copy(update=update) if each.tenant == name else each for each in loaded.tenants)
    # How a change of one tenant reaches others does not depend on whether rules across files allow it.
    mark_valid(loaded.environment, tenants)
    return replace(loaded, tenants=tenants)


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks" / "bank")


def test_a_change_of_one_tenants_file_is_one_of_what_its_own_plan_is_made_from(bank: Loaded) -> None:
    assert _changed_tenants(bank, _with(bank, "fraud", egress=())) == ({"fraud"}, {"fraud"})
    assert _changed_tenants(bank, bank) == (set(), set())


def test_a_guarantee_that_moves_those_of_others_changes_what_their_plans_are_made_from(bank: Loaded) -> None:
    flavor, name = "a100-3g.20gb", "document-ai"
    gpus = next(each.gpus for each in bank.tenants if each.tenant == name)
    more = {**gpus, flavor: gpus[flavor].model_copy(update={"guaranteed": gpus[flavor].guaranteed + 16})}
    inputs, plans = _changed_tenants(bank, _with(bank, name, gpus=more))
    assert plans <= inputs
    assert plans > {name}, "the case shows nothing if no other tenant's plan differs"


def test_a_day_and_a_field_of_the_environment_change_what_all_plans_are_made_from(bank: Loaded) -> None:
    every, (now, _) = {each.tenant for each in bank.tenants}, _of_all(bank)
    with assumed(today() + dt.timedelta(days=1)):
        tomorrow, _ = _of_all(bank)
    assert {tenant for tenant in every if now[tenant] != tomorrow[tenant]} == every
    renamed = bank.environment.model_copy(update={"environment": "other"})
    mark_valid(renamed, bank.tenants)
    assert _changed_tenants(bank, replace(bank, environment=renamed))[0] == every


def test_plans_that_are_made_when_they_are_asked_for_are_those_that_are_made_at_once(bank: Loaded) -> None:
    now = make_plan(bank.environment, bank.tenants)
    later = make_plan(bank.environment, bank.tenants, eager=False)
    assert later.names == now.names == tuple(sorted(each.tenant for each in bank.tenants))
    assert (tuple(later.tenants), later.tenants[3], later.tenants[-2:]) == (
        now.tenants,
        now.tenants[3],
        now.tenants[-2:],
    )
    for name in now.names:
        queues = [item for item in now.tenant(name).objects() if item["kind"] == "LocalQueue"]
        assert [*later.local_queues(name)] == [*now.local_queues(name)] == queues
    assert later.tenant("fraud") == now.tenant("fraud")
    assert len(later.tenants) == len(now.tenants)
    with pytest.raises(KeyError):
        later.tenant("nobody")
    assert replace(later, tenants=now.tenants) == now


def test_one_plan_is_made_of_the_tenant_that_is_asked_for(bank: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("tenancy.planning.NamespacePlan", lambda **parts: made.append(parts["meta"].labels[TENANT]))
    plan = make_plan(bank.environment, bank.tenants, eager=False)
    assert made == []
    plan.tenant("fraud"), plan.tenant("fraud")
    spaces = next(each.namespaces for each in bank.tenants if each.tenant == "fraud")
    assert made == ["fraud"] * len(spaces)
