"""The offline API server refuses every attack by the control that is expected to, and admits every twin.

What a live API server answers is compared in `tests/cluster/test_offline_verdicts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tenancy.check.admission.cel import EvaluationError, Evaluator, compiled
from tenancy.check.admission.policies import evaluator_of
from tenancy.check.admission.requests import DEEPEST, LARGEST, Identity, creation
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import Verdict, VerdictOutcome
from tenancy.kube.deniers import API_VALIDATION
from tenancy.kube.objects import Object
from tenancy.verify.attacks import Attack
from tests.attack_worlds import WORLDS, world_of
from tests.offline_requests import attacks_of, offline_server, verdict_on

UNDECIDED = 0.02
"""Share of requests whose answer may depend on what only the cluster knows."""


@cache
def server(world: str) -> OfflineApiServer:
    return offline_server(*world_of(world))


@cache
def attacks(world: str) -> tuple[Attack, ...]:
    return attacks_of(*world_of(world))


def answer(world: str, request: Any) -> Verdict:
    return verdict_on(server(world), request, world_of(world)[0].platform.group)


AGAIN = ("local", "bank")
"""Worlds all of whose guards are in each of the others too."""


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            world,
            marks=pytest.mark.exhaustive(
                reason="environments whose guards the others have too; `make test` attacks each guard in one of these"
            )
            if world in AGAIN
            else (),
        )
        for world in WORLDS
    ],
)
def test_every_attack_is_refused_by_its_control_and_every_twin_is_admitted(world: str) -> None:
    assert len(attacks(world)) > 700
    wrong, undecided = {}, []
    for attack in attacks(world):
        refusal, admission = answer(world, attack.request), answer(world, attack.twin)
        undecided += [attack.id for verdict in (refusal, admission) if verdict.outcome is VerdictOutcome.UNDECIDED]
        missing = attack.twin_missing and admission.missing
        if refusal.denier != attack.expected_denier or not (missing or admission.outcome is VerdictOutcome.ADMITTED):
            wrong[attack.id] = (refusal.denier, admission.denier, admission.undecided)
    assert wrong == {}, "what refuses an attack and its twin, where that is not what it should be"
    assert len(undecided) <= UNDECIDED * 2 * len(attacks(world))


def _rules(world: str) -> dict[str, Attack]:
    """The first attack of each rule of each policy."""
    policies = [attack for attack in attacks(world) if attack.expected_denier.startswith("ValidatingAdmissionPolicy/")]
    return {attack.expected_denier: attack for attack in reversed(policies)}


@pytest.fixture
def without() -> Iterator[Any]:
    """Takes a validation off a rendered policy, until the test ends."""
    replaced_specs: list[tuple[Any, Any]] = []

    def take(policy: str, rule: str) -> None:
        (policy_object,) = (candidate for candidate in server("local").validating if candidate.name == policy)
        replaced_specs.append((policy_object, policy_object.spec))
        remaining = [
            validation
            for validation in policy_object.spec["validations"]
            if not validation["message"].startswith(f"{rule}:")
        ]
        assert len(remaining) < len(policy_object.spec["validations"])
        policy_object.spec = {**policy_object.spec, "validations": remaining}

    yield take
    for policy, spec in replaced_specs:
        policy.spec = spec


@pytest.mark.parametrize("denier", _rules("local"))
def test_without_its_validation_an_attack_is_not_refused_by_its_rule(denier: str, without: Any) -> None:
    attack, (policy, _, rule) = _rules("local")[denier], denier.partition("/")[2].partition(":")
    assert answer("local", attack.request).denier == denier
    without(policy, rule)
    assert answer("local", attack.request).denier != denier


def test_every_expression_of_every_environment_is_one_that_cel_compiles() -> None:
    texts = set()
    for world in WORLDS:
        for policy in (*server(world).validating, *server(world).mutating):
            texts |= {*policy.conditions, *policy.variables.values()}
            texts |= {validation["expression"] for validation in policy.spec.get("validations") or ()}
            texts |= {
                validation["messageExpression"]
                for validation in policy.spec.get("validations") or ()
                if "messageExpression" in validation
            }
            texts |= {mutation["jsonPatch"]["expression"] for mutation in policy.spec.get("mutations") or ()}
    assert len(texts) > 200
    for text in texts:
        compiled(text)


# What a manifest of a user may be

PERSON = Identity("ann", ("fraud-engineers",))
SPACE = "fraud--train"


def pod(**spec: Any) -> Object:
    container = {"name": "main", "image": "registry.example/a"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container], **spec}}


def _deep(levels: int) -> Any:
    nested: Any = "end"
    for _ in range(levels):
        nested = {"a": nested}
    return nested


def _doubled(times: int) -> Any:
    """A structure as aliases in YAML make it: one list of entries that are all the same list, and so on."""
    nested: Any = ["text"]
    for _ in range(times):
        nested = [nested, nested]
    return nested


def _admin(item: Object) -> Verdict:
    group = world_of("local")[0].platform.group
    return server("local").verdict(creation(item, SPACE, Identity("admin", (group, "system:masters"))))


@pytest.mark.parametrize(
    "item",
    [
        pod(affinity=_deep(100_000)),
        pod(tolerations=_doubled(60)),
        pod(volumes=[{"name": "a" * LARGEST}]),
        pod(hostAliases=[{"ip": "1.2.3.4"}] * (LARGEST // 10)),
    ],
    ids=["deep", "aliases", "long", "wide"],
)
def test_an_object_that_no_api_server_reads_is_refused(item: Object) -> None:
    assert [denial.component for denial in _admin(item).denials] == [API_VALIDATION]


def test_an_object_as_deep_as_may_be_is_judged() -> None:
    verdict = _admin(pod(affinity=_deep(DEEPEST - 4)))
    assert API_VALIDATION not in {denial.component for denial in verdict.denials}


@pytest.mark.parametrize("wrong", ["text", 1, [1], [["a"]], {"a": 1}, [{"a": [{}]}]], ids=str)
@pytest.mark.parametrize("field", ["containers", "volumes", "tolerations", "securityContext", "resources"])
def test_a_field_of_another_form_is_an_answer(field: str, wrong: Any) -> None:
    assert _admin(pod(**{field: wrong})).outcome in VerdictOutcome
    assert _admin({**pod(), field: wrong}).outcome in VerdictOutcome


@pytest.mark.parametrize("spec", ["text", 1, [1], {}])
def test_a_pod_whose_spec_has_another_form_is_refused(spec: Any) -> None:
    assert _admin({**pod(), "spec": spec}).denier == API_VALIDATION


def test_an_object_in_a_namespace_of_no_file_is_not_decided() -> None:
    group = world_of("local")[0].platform.group
    verdict = server("local").verdict(creation(pod(), "elsewhere", Identity("admin", (group, "system:masters"))))
    assert verdict.outcome is VerdictOutcome.UNDECIDED
    assert "elsewhere" in verdict.undecided[0]


# CEL


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", True),
        ("quantity('9007199254740993').isGreaterThan(quantity('9007199254740992'))", True),
        ("sign(quantity('0')) == 0 && sign(quantity('1n')) == 1 && sign(quantity('-1')) == -1", True),
        ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
        ("authorizer.group('g').resource('r').namespace('n').check('use').allowed()", True),
        ("authorizer.group('g').resource('r').namespace('m').check('use').allowed()", False),
        ("variables.twice == 4 && has(variables.twice)", True),
        ("variables.wrong == 1 || true", True),
    ],
)
def test_functions_of_kubernetes_have_their_values(expression: str, value: Any) -> None:
    evaluator = Evaluator({}, lambda check: check == {"group": "g", "resource": "r", "namespace": "n", "verb": "use"})
    variables = {"twice": "2 * variables.two", "two": "1 + 1", "wrong": "object.nothing"}
    assert evaluator.having(variables).value(expression) == value


@pytest.mark.parametrize(("field", "present"), [("name", True), ("namespace", True), ("subResource", False)])
def test_what_is_empty_in_a_request_is_absent(field: str, present: bool) -> None:
    evaluator = evaluator_of(creation(pod(), SPACE, PERSON), server("local").cluster, lambda _: False)
    assert evaluator.value(f"has(request.{field})") is present


@pytest.mark.parametrize("expression", ["quantity('many')", "variables.wrong", "object.nothing"])
def test_what_has_no_value_is_an_error(expression: str) -> None:
    with pytest.raises(EvaluationError):
        Evaluator({"object": {}}).having({"wrong": "1 / 0"}).value(expression)


def test_a_variable_is_evaluated_once_for_all_that_read_it() -> None:
    checks: list[Any] = []

    def permission(check: Any) -> bool:
        checks.append(check)
        return True

    evaluator = Evaluator({}, permission).having({"granted": "authorizer.group('g').check('use').allowed()"})
    assert evaluator.values(["variables.granted && variables.granted", "variables.granted"]) == [True, True]
    assert len(checks) == 1


def test_an_expression_that_ends_in_an_error_leaves_the_others_their_values() -> None:
    first, wrong, last = Evaluator({"object": {}}).values(["1 == 1", "object.nothing", "1 == 2"])
    assert (first, last) == (True, False)
    assert isinstance(wrong, EvaluationError)


@pytest.mark.parametrize("expression", [f"size('{'a' * 60_000}') == 60000", f"{'(' * 31}true{')' * 31}"])
def test_expressions_that_cannot_be_read_as_one_have_their_values(expression: str) -> None:
    assert Evaluator({}).values([expression, expression]) == [True, True]


def test_a_request_that_a_policy_only_warns_of_is_admitted() -> None:
    attack = next(iter(_rules("local").values()))
    policies = [policy for policy in server("local").validating if policy.denies]
    try:
        for policy in policies:
            policy.denies = False
        assert answer("local", attack.request).outcome is VerdictOutcome.ADMITTED
    finally:
        for policy in policies:
            policy.denies = True
    assert answer("local", replace(attack.request)).outcome is VerdictOutcome.REFUSED
