"""No path goes around the rules across an environment and its tenants."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenancy import planning
from tenancy.planning import make_plan
from tenancy.spec.checks import crossfile
from tenancy.spec.checks.validator import ValidSpec
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Purchase
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import validate
from tenancy.spec.loader import Loaded, load, on_lab
from tenancy.spec.reading.problems import Problem, SpecError
from tests.conftest import SpecFolder, every

ROOT = Path(__file__).parents[3]


def remade(tenant: Tenant, **fields: Any) -> Tenant:
    """The tenant as a program makes one, with other fields."""
    return Tenant.model_validate(tenant.model_dump(by_alias=True, exclude_unset=True) | fields)


SERVED = {"a100-1g.5gb": {"guaranteed": 14}}
"""GPUs of a namespace of the tenant."""
TOO_MANY: dict[str, object] = {"a100": {"guaranteed": 9999}, **SERVED}
WRONG = {
    "more GPUs than there are": ({"gpus": TOO_MANY}, "gpus.a100.guaranteed", "pool-03"),
    "an unknown department": ({"department": "nosuch"}, "department", "ref-01"),
    "an unknown tier": ({"tier": "gold"}, "tier", "ref-01"),
    "an unknown tier of a namespace": (
        {"namespaces": [{"name": "train", "tier": "gold"}], "people": []},
        "namespaces[0].tier",
        "ref-01",
    ),
    "an unknown flavor": ({"gpus": {"b200": {"guaranteed": 8}, **SERVED}}, "gpus.b200", "ref-01"),
    "an unknown bucket": ({"storage": [{"bucket": "other", "prefix": "x/"}]}, "storage[0].bucket", "ref-01"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_specs_of_a_program_is_a_problem_at_its_field(loaded: Loaded, wrong: str) -> None:
    fields, field, rule = WRONG[wrong]
    fraud, research = loaded.tenants
    wrong_tenant = remade(fraud, **fields)
    problems = validate(loaded.environment, [wrong_tenant, research])
    (problem,) = [candidate for candidate in problems if candidate.id == rule]
    assert (problem.file, problem.line, problem.field) == ("tenant fraud", 0, field)
    assert str(problem).startswith(f"tenant fraud: {field}: given ")
    with pytest.raises(SpecError) as refused:
        planning.plan(loaded.environment, [wrong_tenant, research])
    assert list(refused.value.problems) == problems


def test_the_plan_is_refused_once_with_all_problems(loaded: Loaded) -> None:
    fraud, research = loaded.tenants
    both = [remade(fraud, department="nosuch"), remade(research, tier="gold", department="other")]
    with pytest.raises(SpecError) as refused:
        planning.plan(loaded.environment, both)
    places = [(problem.file, problem.field) for problem in refused.value.problems]
    assert places == [("tenant fraud", "department"), ("tenant research", "department"), ("tenant research", "tier")]


def test_specs_without_a_mistake_have_no_problem_and_a_plan(loaded: Loaded) -> None:
    twins = [remade(tenant) for tenant in loaded.tenants]
    assert validate(loaded.environment, twins) == []
    assert [tenant.name for tenant in planning.plan(loaded.environment, twins).tenants] == ["fraud", "research"]


def test_two_tenants_of_one_name_are_a_problem(loaded: Loaded) -> None:
    fraud, research = loaded.tenants
    assert "name-02" in {problem.id for problem in validate(loaded.environment, [fraud, research, remade(fraud)])}


def test_what_the_environment_has_wrong_is_a_problem_of_the_environment(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.spec.checks.stored_objects.STORE_BYTES", 2**20)
    places = {(problem.file, problem.field) for problem in validate(loaded.environment, loaded.tenants[:1])}
    assert ("environment", "cluster.object-overcommit") in places


def test_files_and_objects_are_refused_by_the_same_rules(spec: SpecFolder, loaded: Loaded) -> None:
    def what(problems: Any) -> list[tuple[str, str, str, str]]:
        return [(problem.id, problem.field, problem.given, problem.change) for problem in problems]

    fraud, research = loaded.tenants
    spec.edit("tenants/fraud.yaml", "a100: {guaranteed: 16, sharing: lend-and-borrow,", "a100: {guaranteed: 9999,")
    spec.edit("tenants/fraud.yaml", " lending-limit: 8, borrowing-limit: 16}", "}")
    spec.edit("tenants/fraud.yaml", "department: risk", "department: nosuch")
    program_problems: list[Problem] = validate(
        loaded.environment, [remade(fraud, gpus=TOO_MANY, department="nosuch"), research]
    )
    assert sorted(what(spec.problems())) == sorted(what(program_problems))
    assert every(problem.line and problem.file.endswith(".yaml") for problem in spec.problems())


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    judge = crossfile.check_with_environment

    def counting(environment: Environment, tenants: Any, *others: Any) -> Any:
        calls.append(len(tenants))
        return judge(environment, tenants, *others)

    monkeypatch.setattr(crossfile, "check_with_environment", counting)
    return calls


def test_what_was_loaded_is_judged_once(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _counted(monkeypatch)
    loaded = spec.load()
    for valid_spec in (loaded, replace(loaded, tenants=loaded.tenants[::-1]), on_lab(loaded)):
        planning.plan(valid_spec)
    assert calls == [2]


def test_a_folder_is_judged_once_for_its_plan(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _counted(monkeypatch)
    planning.plan(spec.path)
    assert calls == [2]


def test_a_plan_depends_on_the_day_that_it_is_asked_for() -> None:
    bank = load(ROOT / "stacks" / "bank")
    starts, ends = bank.day + dt.timedelta(days=10), bank.day + dt.timedelta(days=30)
    block = Purchase(capacity_block="cr-0123abcd", starts=starts, ends=ends)
    name = next(name for name, pool in bank.environment.pools.items() if pool.nodes.min and pool.machine.gpus)
    pool = bank.environment.pools[name].model_copy(update={"purchase": block})
    environment = bank.environment.model_copy(update={"pools": {**bank.environment.pools, name: pool}})

    def started(days: int) -> int:
        cluster = make_plan(ValidSpec(environment, bank.tenants), bank.day + dt.timedelta(days=days)).cluster
        assert cluster is not None
        return next(group.started for group in cluster.groups if group.pool == name)

    assert [started(days) for days in (9, 10)] == [0, pool.nodes.min]


def test_an_entry_is_judged_on_the_day_that_is_given(loaded: Loaded) -> None:
    last = loaded.day + dt.timedelta(days=1000)
    waiver = {
        "rule": "ns-03",
        "namespace": "train",
        "reason": "a reason that an auditor reads",
        "owner": "a@bank.example",
    }
    fraud, research = loaded.tenants
    waived = remade(fraud, exceptions=[{**waiver, "until": last}])

    def faults(days: int) -> set[str]:
        problems = validate(loaded.environment, [waived, research], day=last + dt.timedelta(days=days))
        return {problem.id for problem in problems}

    assert [("exc-01" in faults(days)) for days in (-367, -366, 0, 1)] == [True, False, False, True]
