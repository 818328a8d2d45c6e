"""Every known way out is mapped to what holds it, and the page says what the code does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cli import main
from tenancy.planning import make_plan
from tenancy.planning.guards import BACKSTOPS, GUARDED
from tenancy.rules.catalogue import RULES
from tenancy.spec.loader import Loaded, load
from tenancy.verify import claims
from tenancy.verify.attacks import Attack, Scene, all_attacks
from tenancy.verify.bypasses import bypasses, families
from tenancy.verify.claims import CONTROLS, ON_CLUSTER, OTHER_OBJECTS, SCRIPT, Claims, enforcer
from tests.attacks.attack_lab import local
from tests.claims import by_claim
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
LOCAL = ROOT / "stacks" / "local"
COUNTS = {"G": 31, "Q": 21, "S": 21, "K": 22, "R": 29, "P": 19, "N": 28, "A": 25, "O": 6, "T": 8}
"""Ways that are known, by family."""


@cache
def _ids() -> frozenset[str]:
    """All attacks for which some environment has a target."""
    return frozenset(attack.id for attack in _attacks() if not attack.skipped)


@cache
def _attacks() -> Sequence[Attack]:
    with TemporaryDirectory() as folder:
        local_folder = local(Path(folder) / "local", kinds=FRAMEWORKS)
        environments = [load(local_folder), by_claim(Path(folder) / "small").load()]
    return [
        a
        for loaded in environments
        for a in all_attacks(Scene(loaded.environment, loaded.tenants, ["nvidia"], ["plain"]))
    ]


# The map


def test_every_known_way_out_is_mapped() -> None:
    expected = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert list(bypasses()) == expected
    assert list(families()) == list(COUNTS)


def test_every_file_of_tests_that_the_page_names_is_there() -> None:
    paths = {path for rule in RULES for path in re.findall(r"tests/[\w/.]+", claims._test_files(rule))}
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("way", bypasses())
def test_what_holds_a_way_is_there(way: str) -> None:
    bypass = bypasses()[way]
    assert bypass.mitigations, "held by nothing"
    assert [prefix for prefix in bypass.names("attack") if not any(id.startswith(prefix) for id in _ids())] == []
    assert [rule for rule in bypass.names("rule") if rule not in RULES] == []
    assert [test for test in bypass.names("test") if not _is_test(test)] == []
    assert [check for check in bypass.names("cluster") if not _is_check(check)] == []


def _is_test(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and f"\ndef {function}(" in path.read_text("utf-8")


def _is_check(text: str) -> bool:
    """A check of the script says what it saw in these words."""
    lines = (ROOT / SCRIPT).read_text("utf-8").splitlines()
    check_line = re.compile(r"^\s*(?:\d\) )?(?:allowed|refused|silent|say \w+|gap \w+) \"|(?:say|gap) \w+ \"")
    return any(text in line and check_line.search(line) for line in lines)


@pytest.mark.parametrize("way", [id for id, way in bypasses().items() if set(way.testers) & set("AC")])
def test_what_a_request_can_show_is_shown_by_one(way: str) -> None:
    bypass = bypasses()[way]
    live = [test for test in bypass.names("test") if test.startswith(LIVE)]
    assert bypass.names("attack") or live, "no attack and no test on an API server"


LIVE = ("tests/attacks/", "tests/cluster/", "tests/engine/", "tests/queues/")
"""Tests that run on a real API server."""


def test_what_is_open_is_said_in_the_docs() -> None:
    text = (ROOT / "docs" / "claims.md").read_text("utf-8")
    for way in nonempty(bypasses().values()):
        for reason in way.names("open"):
            assert f"**open**: {reason}" in text


# How much there is


def test_there_are_enough_attacks_and_cases() -> None:
    claims = Claims(load(LOCAL))
    variant = re.compile(r"-(?:pod|job|cronjob|deployment|statefulset|replicaset|daemonset|replicationcontroller)(?=-)")
    distinct = {variant.sub("", re.sub(r"(-as-[a-z0-9-]+)?@.*", "", attack.id)) for attack in claims.applicable_attacks}
    assert len(distinct) >= 150, "attacks, however many kinds, tenants and namespaces they are asked in"
    assert len(claims.applicable_attacks) >= 400


# The page


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(LOCAL)


def test_the_page_is_what_the_command_writes() -> None:
    result = CliRunner().invoke(main, ["claims", str(LOCAL), "--markdown"])
    assert result.exit_code == 0, result.output
    committed = (ROOT / "docs" / "claims.md").read_text("utf-8")
    assert committed == result.stdout, "run `make claims`"


def test_every_rule_has_a_plane_an_enforcer_and_a_proof(loaded: Loaded) -> None:
    rows = {
        line.split("[")[1].split("]")[0]: [cell.strip() for cell in line.split(" | ")]
        for line in claims.page(loaded).splitlines()
        if line.startswith("| [") and line.count(" | ") >= 4
    }
    assert rows.keys() == RULES.keys()
    planes = {"control", "data", "resource", "observability"}
    assert {rule: row[2] for rule, row in rows.items() if row[2] not in planes} == {}
    assert [rule for rule, row in rows.items() if not row[4].strip(" |") and rule not in UNPROVEN] == []


UNPROVEN: frozenset[str] = frozenset()
"""Rules that nothing shows."""


def test_a_guards_rule_is_the_api_servers() -> None:
    assert [rule for rule in GUARDED if not enforcer(rule).startswith("API server")] == []


def test_every_check_that_needs_hardware_is_in_the_script() -> None:
    assert [rule for rule in ON_CLUSTER if rule not in RULES] == []
    assert [check for check in ON_CLUSTER.values() if not _is_check(check)] == []


# The controls and their cases


def test_every_control_of_the_plan_is_in_the_table(loaded: Loaded) -> None:
    kinds = {item["kind"] for item in make_plan(loaded, loaded.day).objects()}
    assert kinds - {*CONTROLS, *OTHER_OBJECTS} == set(), "is it a control, or what holds it?"
    policies = {
        (item["metadata"]["name"], validation["message"].partition(":")[0])
        for item in make_plan(loaded, loaded.day).objects()
        if item["kind"] == "ValidatingAdmissionPolicy"
        for validation in item["spec"]["validations"]
    }
    table = {(control.where, control.name) for control in Claims(loaded).controls()}
    rule_policies = {(where, rule) for where, rule in policies if rule in RULES}
    assert rule_policies - table == set()
    assert {rule for rule, _ in CONTROLS.values()} <= {name for _, name in table}


def test_every_control_has_a_case_or_says_why_not(loaded: Loaded) -> None:
    claims_of_loaded = Claims(loaded)
    without = [control.name for control in claims_of_loaded.controls() if not control.attacks]
    attacked = {attack.rule for attack in claims_of_loaded.applicable_attacks}
    assert {
        rule for rule in without if not (rule in attacked or rule in BACKSTOPS or claims_of_loaded.reason(rule))
    } == set()


def test_no_case_stands_in_two_rows(loaded: Loaded) -> None:
    ids = [attack.id for control in Claims(loaded).controls() for attack in control.attacks]
    assert len(ids) == len(set(ids))


def test_the_command_lists_each_control_with_its_number_of_cases() -> None:
    result = CliRunner().invoke(main, ["claims", str(LOCAL)])
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if line.startswith("pod-security "))
    assert int(re.search(r" (\d+)  ", line)[1]) > 20  # ty: ignore[not-subscriptable]


def test_an_environment_that_there_is_not_is_bad_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["claims", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
