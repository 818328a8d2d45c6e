"""No path goes around the rules across an environment and its tenants."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tenancy.planning import make_plan
from tenancy.spec.checks import crossfile
from tenancy.spec.checks import validator as validation
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import validate
from tenancy.spec.loader import Loaded, on_lab
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
        make_plan(loaded.environment, [wrong_tenant, research])
    assert list(refused.value.problems) == problems


def test_the_plan_is_refused_once_with_all_problems(loaded: Loaded) -> None:
    fraud, research = loaded.tenants
    both = [remade(fraud, department="nosuch"), remade(research, tier="gold", department="other")]
    with pytest.raises(SpecError) as refused:
        make_plan(loaded.environment, both)
    places = [(problem.file, problem.field) for problem in refused.value.problems]
    assert places == [("tenant fraud", "department"), ("tenant research", "department"), ("tenant research", "tier")]


def test_specs_without_a_mistake_have_no_problem_and_a_plan(loaded: Loaded) -> None:
    twins = [remade(tenant) for tenant in loaded.tenants]
    assert validate(loaded.environment, twins) == []
    assert [tenant.name for tenant in make_plan(loaded.environment, twins).tenants] == ["fraud", "research"]


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
    spec.edit("tenants/fraud.yaml", " lend-up-to: 8, borrow-up-to: 16}", "}")
    spec.edit("tenants/fraud.yaml", "department: risk", "department: nosuch")
    program_problems: list[Problem] = validate(
        loaded.environment, [remade(fraud, gpus=TOO_MANY, department="nosuch"), research]
    )
    assert sorted(what(spec.problems())) == sorted(what(program_problems))
    assert every(problem.line and problem.file.endswith(".yaml") for problem in spec.problems())


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    judge = crossfile.check_with_environment

    def counting(environment: Environment, tenants: Any, unread: Any = ()) -> Any:
        calls.append(len(tenants))
        return judge(environment, tenants, unread)

    monkeypatch.setattr(crossfile, "check_with_environment", counting)
    return calls


def test_what_was_loaded_is_judged_once(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _counted(monkeypatch)
    loaded = spec.load()
    for tenants in (loaded.tenants, loaded.tenants[::-1]):
        make_plan(loaded.environment, tenants)
    played = on_lab(loaded)
    make_plan(played.environment, played.tenants)
    assert calls == [2]


@pytest.mark.parametrize("change", ["environment", "tenant", "fewer"])
def test_what_was_changed_after_it_was_loaded_is_judged_again(
    spec: SpecFolder, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    loaded = spec.load()
    calls = _counted(monkeypatch)
    fraud, research = loaded.tenants
    environment = loaded.environment.model_copy() if change == "environment" else loaded.environment
    with_or_without = [research] if change == "fewer" else [fraud.model_copy(), research]
    make_plan(environment, loaded.tenants if change == "environment" else with_or_without)
    assert calls == [2 if change != "fewer" else 1]


def test_the_lab_plays_no_environment_that_is_wrong(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenancy.spec.checks.stored_objects.STORE_BYTES", 2**20)
    with pytest.raises(SpecError, match="object-overcommit"):
        on_lab(Loaded(loaded.environment, loaded.tenants[:1], loaded.folder))


def test_only_the_loader_vouches_for_specs() -> None:
    callers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tenancy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == validation.mark_valid.__name__
    }
    assert callers == {"tenancy/spec/loader.py", "tenancy/spec/checks/validator.py"}
