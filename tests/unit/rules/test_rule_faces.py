"""A rule is enforced where its row says, and the places that enforce it agree on what breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from tenancy import planning
from tenancy.check.guard_rules import guard_rules
from tenancy.check.judge import JUDGED, judge
from tenancy.check.reader import FilePosition as Where
from tenancy.check.reader import Manifests
from tenancy.cli import main
from tenancy.kube.objects import Object
from tenancy.planning.guards import guards
from tenancy.rules import catalogue, faces, objects
from tenancy.rules.attacks import Request
from tenancy.rules.catalogue import RULES
from tenancy.rules.faces import checked_in_files, checked_on_objects, faces_of, with_face
from tenancy.rules.findings import Finding
from tenancy.rules.model import Face, Rule
from tenancy.spec.fields.environment import Environment
from tenancy.verify.attacks import Attack
from tests import pack_worlds
from tests.attack_worlds import WORLDS, creations, manifest, world_of
from tests.conftest import every

ROOT = Path(__file__).parents[3]

BEYOND = {
    "gpu-07": ("gpu-07-",),
    "meta-01": ("meta-01-configmap-platforms", "meta-01-secret-platforms"),
    "net-10": ("net-10-policy-forged",),
}
"""Prefixes of the ids of attacks that the preview does not find, by rule; the row says why it sees less."""
BY_ANOTHER = {"pod-04": "pod-02"}
"""Of one rule's attacks the preview finds some by another rule, which names what gives a pod its node."""
WITHOUT_A_BODY = {"gpu-10", "id-10", "node-08", "sched-03", "sched-08"}
"""Rules that only a change to what is there breaks, and those whose attacks these worlds skip: no manifest shows it."""


@cache
def _all_of(name: str) -> tuple[Attack, ...]:
    return tuple(attack for attack in creations(name) if attack.rule in JUDGED)


@cache
def _objects_and_attacks(name: str) -> tuple[tuple[Object, ...], tuple[Attack, ...]]:
    """Objects that rules look up of the plan, and the attacks that a manifest can be made of, without those of
    `local`."""
    attacks = (
        _all_of(name)
        if name == "local"
        else tuple(attack for attack in _all_of(name) if attack not in _all_of("local"))
    )
    looked_up = {"Namespace", "ClusterQueue"}
    items = planning.plan(*world_of(name)).objects()
    return tuple(item for item in items if item["kind"] in looked_up), attacks


def checked(items: Iterable[Object]) -> set[Finding]:
    """Findings of `tenancy check`."""
    return {
        judged_finding.finding
        for judged_finding in judge(Manifests([(item, Where("x.yaml", 1)) for item in items])).findings
    }


@cache
def _before(world: str) -> frozenset[Finding]:
    return frozenset(checked(_objects_and_attacks(world)[0]))


def rules_of(world: str, requests: Iterable[Request]) -> dict[str, set[str]]:
    """Rules that are found in manifests beside the objects of a world, by the name that each got in its order."""
    manifests = [_renamed(manifest(request.path, request.body), _name(n)) for n, request in enumerate(requests)]
    rules: dict[str, set[str]] = {}
    for finding in checked([*_objects_and_attacks(world)[0], *manifests]) - _before(world):
        if name := re.search(r"attack-\d+$", finding.object):
            rules.setdefault(name[0], set()).add(finding.rule)
    return rules


@cache
def _rules_of_all(world: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Of all attacks of a world in one check, and of all twins in another."""
    attacks = _objects_and_attacks(world)[1]
    return rules_of(world, [a.request for a in attacks]), rules_of(world, [a.twin for a in attacks])


def test_every_rule_of_both_faces_has_an_attack_that_a_manifest_can_be_made_of() -> None:
    both = {rule for rule in JUDGED if Face.ATTACK in faces_of(RULES[rule])}
    attacks = {world: _objects_and_attacks(world)[1] for world in WORLDS}
    assert {attack.rule for world_attacks in attacks.values() for attack in world_attacks} == both - WITHOUT_A_BODY
    assert every(attacks.values())
    assert sum(map(len, attacks.values())) > 500


def tells(attack: Attack) -> bool:
    """Whether a manifest tells an attack from its twin; of some only the user differs."""
    return (attack.twin.path, attack.twin.body) != (attack.request.path, attack.request.body)


# What the bank's attacks have more than those of `local` are more cases.
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            world,
            marks=pytest.mark.exhaustive(
                reason="attacks that only the bank has; `make test` has those of the other environments"
            )
            if world == "bank"
            else (),
        )
        for world in WORLDS
    ],
)
def test_an_attack_is_found_in_a_preview_by_its_rule_and_its_twin_is_not(world: str) -> None:
    of_attacks, of_twins = _rules_of_all(world)
    numbered = [(_name(n), attack) for n, attack in enumerate(_objects_and_attacks(world)[1])]
    assert numbered
    missed = [
        attack.id
        for name, attack in numbered
        if not attack.id.startswith(BEYOND.get(attack.rule, ("none",)))
        and not of_attacks.get(name, set()) & {attack.rule, BY_ANOTHER.get(attack.rule, attack.rule)}
    ]
    wrong = [attack.id for name, attack in numbered if tells(attack) and attack.rule in of_twins.get(name, set())]
    assert (missed, wrong) == ([], []), "attacks that nothing is said of, and twins that are found"


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            world,
            marks=pytest.mark.exhaustive(
                reason=(
                    "a program with the attacks that only the bank has; `make test` has those of the other environments"
                )
            )
            if world == "bank"
            else (),
        )
        for world in WORLDS
    ],
)
def test_the_policy_pack_finds_every_attack_and_no_twin(pack: ModuleType, world: str) -> None:
    """One program with all attacks of an environment, each in an object of its own name, and one with all twins."""
    items, world_attacks = _objects_and_attacks(world)
    attacks = [
        _renamed(manifest(attack.request.path, attack.request.body), _name(n)) for n, attack in enumerate(world_attacks)
    ]
    twins = [_renamed(manifest(attack.twin.path, attack.twin.body), _name(n)) for n, attack in enumerate(world_attacks)]
    attack_findings, of_twins = (
        {
            (rule, name)
            for texts in pack_worlds.judged(pack, [*items, *manifests]).values()
            for rule, name in _rules_and_names(texts)
        }
        for manifests in (attacks, twins)
    )
    attack_findings |= {
        (rule, name) for rule, further_rule in BY_ANOTHER.items() for at, name in attack_findings if at == further_rule
    }
    reported_attacks = [
        (n, attack)
        for n, attack in enumerate(world_attacks)
        if not attack.id.startswith(BEYOND.get(attack.rule, ("none",)))
    ]
    assert {(attack.rule, _name(n)) for n, attack in reported_attacks} - attack_findings == set()
    reported_twins = {(attack.rule, _name(n)) for n, attack in enumerate(world_attacks) if tells(attack)}
    assert reported_twins & of_twins == set()


def _name(number: int) -> str:
    return f"attack-{number}"


def _renamed(item: Object, name: str) -> Object:
    # The queue counts a template by its name, to which a suffix can be added.
    name = f"{item['metadata']['name']}.{name}" if item["kind"] == "ResourceClaimTemplate" else name
    return {**item, "metadata": {**item["metadata"], "name": name}}


def _rules_and_names(texts: Iterable[str]) -> set[tuple[str, str]]:
    """Rule and name of the object; a text begins `rule: Kind namespace/name: ...`."""
    return {match.groups() for text in texts if (match := re.match(r"([a-z]+-\d\d): .*?(attack-\d+)\b", text))}  # type: ignore[misc]


# Rows against code


@pytest.fixture(scope="module")
def environments() -> list[Environment]:
    """Together they have every guard that there is."""
    return [world_of(name)[0] for name in WORLDS]


def test_the_guards_enforce_what_the_rows_say(environments: list[Environment]) -> None:
    enforced = {rule for environment in environments for guard in guards(environment) for rule in guard.rules}
    assert enforced == set(with_face(Face.API_SERVER))


def test_a_rule_that_is_attacked_is_one_that_a_guard_enforces() -> None:
    assert set(with_face(Face.ATTACK)) <= set(with_face(Face.API_SERVER))


def test_every_rule_has_a_face_but_those_of_a_bill_and_of_a_cluster_before_it_is_changed() -> None:
    before = {"ns-06", "rbac-07", "custom-01"}
    assert {rule.id for rule in RULES.values() if not faces_of(rule)} == {
        r for r in RULES if r.startswith("bill-")
    } | before


def test_a_preview_judges_the_expressions_that_rows_say_it_does() -> None:
    assert {ways[0].rule for guard_attacks in guard_rules().values() for ways in guard_attacks} == {
        rule.id for rule in RULES.values() if rule.previewed
    }


def test_every_rule_that_the_code_of_the_spec_names_is_one_of_a_mistake() -> None:
    """A face follows from the ids in the code of checks, so an id has no other use there."""
    mistakes = {
        ast.literal_eval(argument)
        for path in (ROOT / "tenancy" / "spec").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"rule_mistake", "Violation", "Mistake"}
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert mistakes & set(RULES) == checked_in_files()


def test_a_check_that_is_removed_takes_its_face_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read_code = faces._code
    monkeypatch.setattr(faces, "_code", lambda name: None if name == "tenancy.spec.fields.data" else read_code(name))
    assert checked_in_files() - checked_in_files.__wrapped__() == {"stor-01"}
    monkeypatch.delattr(objects, "_quota")
    assert checked_on_objects() - checked_on_objects.__wrapped__() == {"quota-01"}


def test_a_face_that_sees_less_is_one_that_the_rule_has_and_others_see_more() -> None:
    for rule in RULES.values():
        for face in rule.partial:
            assert face in faces_of(rule), rule.id
            assert faces_of(rule) & ~face, f"{rule.id}: no face sees all of it"


@pytest.mark.parametrize("rule", ["net-02", "gpu-01"])
def test_the_page_says_partly_and_why(rule: str) -> None:
    page = CliRunner().invoke(main, ["rules", "--markdown"]).output
    (row,) = [line for line in page.splitlines() if line.startswith(f"| [{rule}]")]
    assert row.count("partly") == len(RULES[rule].partial)
    for why in RULES[rule].partial.values():
        assert f"- Partly in the preview: {why}." in page


def test_each_rule_has_an_id_of_its_own() -> None:
    assert sum(len(family.RULES) for family in catalogue.FAMILIES) == len(RULES)
    with pytest.raises(ValueError, match="a second rule gpu-01"):
        Rule(id="gpu-01", title="t", why="w", fix="f")


def test_the_readme_says_where_rules_are_enforced_and_every_rule_has_such_a_place() -> None:
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    places = "on a resource in the preview by a policy pack, on a request by the API server"
    assert f"A rule is enforced at one or more of three places: in a file when it is read, {places}" in readme
    enforced = Face.SPEC | Face.PREVIEW | Face.API_SERVER
    elsewhere = {rule.id for rule in RULES.values() if not faces_of(rule) & enforced}
    # A bill is no file of the spec: `tenancy chargeback` refuses it. The others are refused by the program before it
    # changes a cluster.
    assert {id for id in elsewhere if not id.startswith("bill-")} == {"custom-01", "ns-06", "rbac-07"}
    assert {rule.id for rule in RULES.values() if faces_of(rule) & enforced == enforced} == {"img-01", "img-02"}, (
        "then the README may say so"
    )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_no_page_says_that_every_rule_is_enforced_in_every_place(page: Path) -> None:
    text = " ".join(page.read_text("utf-8").split())
    assert not re.search(
        r"(?:every|each|all) rules? (?:is|are) (?:checked|enforced|judged) (?:two|three|3|twice|everywhere)", text, re.I
    )
