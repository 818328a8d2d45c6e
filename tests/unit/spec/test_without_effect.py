"""A field that changes nothing here is named with its place, and nothing is dropped in silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy import planning
from tenancy.cli import main
from tenancy.planning import make_plan
from tenancy.spec.loader import load, on_lab, spec_notes
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder

ROOT = Path(__file__).parents[3]
BANK = ROOT / "stacks" / "bank"
FRAUD, RESEARCH, ENV = "tenants/fraud.yaml", "tenants/research.yaml", "environment.yaml"
CI = "ci: {github: bank/fraud-models, branch: main}\n"
USES = "aws-resources: {repositories: [scoring]}\n"
IDLE = "a field without effect is reported"
NOTES = {
    IDLE,
    "a field whose resources are made on AWS alone is reported",
    "alerts on budgets come from a metrics.collector or from AWS",
}


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def idle(spec: SpecFolder) -> dict[str, tuple[str, int]]:
    """Fields without effect, or without the part of it that is on AWS: the file and the line of each."""
    return {note.field: (Path(note.file).name, note.line) for note in spec_notes(spec.load()) if note.rule in NOTES}


def line_of(spec: SpecFolder, file: str, text: str) -> int:
    return next(n for n, line in enumerate((spec.path / file).read_text().splitlines(), 1) if line.startswith(text))


@pytest.mark.parametrize(("field", "text"), [("ci", CI), ("aws-resources", USES), ("storage", ""), ("budget", "")])
def test_what_aws_alone_makes_is_named_with_its_place_where_it_is_off(spec: SpecFolder, field: str, text: str) -> None:
    spec.add(FRAUD, text)
    notes_by_field = {note.field: note for note in spec_notes(spec.load()) if note.file.endswith("fraud.yaml")}
    assert notes_by_field[field].line == line_of(spec, FRAUD, field)
    assert notes_by_field[field].given.startswith(f"{field} with aws.enabled: false")
    # Its twin: where AWS is on it has an effect.
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS)
    assert field not in idle(spec)


def test_fields_of_aws_are_named_where_it_is_off(spec: SpecFolder) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS.replace("enabled: true", "enabled: false"))
    expected = {"account", "region", "zones", "platform-role", "group-roles", "break-glass", "service-quotas"}
    assert {field for field in idle(spec) if field.startswith("aws.")} == {f"aws.{name}" for name in expected}
    assert "buckets" in idle(spec)


@pytest.mark.parametrize(
    ("file", "text", "field"),
    [
        (FRAUD, CI, "ci"),
        (FRAUD, USES, "aws-resources"),
        (FRAUD, "", "budget"),
        (ENV, 'aws: {account: "111122223333", region: eu-central-1}\n', "aws.region"),
    ],
)
def test_what_is_named_makes_no_object_of_its_own(spec: SpecFolder, file: str, text: str, field: str) -> None:
    """But for the binding of a pipeline's group, into which no identity is mapped."""

    def objects() -> list[Any]:
        loaded = spec.load()
        plan = make_plan(loaded, loaded.day)
        assert not any(tenant.aws for tenant in plan.tenants)
        return [item for item in plan.objects() if item["kind"] != "RoleBinding"]

    without = objects()
    if text:
        spec.add(file, text)
        assert field in idle(spec)
        assert objects() == without
    else:
        assert field in idle(spec)
        path = spec.path / file
        path.write_text(re.sub(rf"^{field}: .*\n", "", path.read_text(), flags=re.MULTILINE))
        assert field not in idle(spec)
        assert objects() == without


def test_a_budget_alerts_by_metrics_too(spec: SpecFolder) -> None:
    assert "budget" in idle(spec)
    spec.add(ENV, "metrics: {collector: existing}\n")
    assert "budget" not in idle(spec)


# On the lab


def test_a_run_on_the_lab_says_what_of_the_bank_it_does_not_have() -> None:
    bank = load(BANK)
    assert spec_notes(bank) == (), "on its own cluster everything has an effect"
    notes = spec_notes(on_lab(bank))
    assert {note.rule for note in notes} == NOTES
    fields = {note.field for note in notes}
    assert {"aws.enabled", "cluster.cni", "storage", "ci", "aws-resources", "budget"} <= fields
    names = [
        (note.file, note.line, way.dns)
        for tenant in bank.tenants
        for i, way in enumerate(tenant.egress)
        if way.dns
        for note in notes
        if note.field == f"egress[{i}].dns" and note.file.endswith(f"/{tenant.tenant}.yaml")
    ]
    assert names
    assert len(names) == sum(bool(way.dns) for tenant in bank.tenants for way in tenant.egress)


def test_every_policy_that_the_lab_drops_is_behind_a_note() -> None:
    bank = load(BANK)
    planned_kinds = {item["kind"] for item in make_plan(bank, bank.day).objects()}
    played = {item["kind"] for item in planning.plan(on_lab(bank)).objects()}
    assert {kind for kind in planned_kinds - played if kind.startswith("Cilium")}
    assert "cluster.cni" in {note.field for note in spec_notes(on_lab(bank))}


# Where it is told


@pytest.mark.parametrize("command", ["validate", "render"])
def test_each_command_that_reads_to_make_tells_it(spec: SpecFolder, tmp_path: Path, command: str) -> None:
    more = ["--out", tmp_path / "out"] if command == "render" else []
    result = run(command, spec.path, *more)
    assert result.exit_code == 0
    line = line_of(spec, FRAUD, "budget")
    assert re.search(rf"^note: .*fraud\.yaml:{line}:1: budget: given budget", result.stderr, re.MULTILINE)


def test_up_tells_it_before_it_looks_at_a_cluster(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(spec.path / "none"))
    result = run("up", spec.path, "--preview")
    assert result.exit_code != 0, "there is no cluster"
    assert "storage: given storage with aws.enabled: false" in result.stderr


@pytest.mark.parametrize("name", ["local", "bank"])
def test_the_examples_have_no_such_field(name: str) -> None:
    assert spec_notes(load(ROOT / "stacks" / name)) == ()


def test_the_same_field_of_many_tenants_is_one_note_that_counts_them(spec: SpecFolder) -> None:
    fraud = (spec.path / FRAUD).read_text("utf-8")
    for number in range(6):
        name = f"team-{number}"
        text = fraud.replace("tenant: fraud", f"tenant: {name}").replace("guaranteed: 1", "guaranteed: 0 #")
        people = text[: text.index("people:")] + "budget: {monthly-usd: 1000}\n"
        spec.write(f"tenants/{name}.yaml", re.sub(r"namespaces:\n(  - .*\n)+", "", people))
    budget_notes = [note for note in spec_notes(spec.load()) if note.field == "budget"]
    assert len(budget_notes) == 1
    assert "(so in 7 tenants' files: also " in budget_notes[0].given


# Budgets and sharing


@pytest.mark.parametrize("when_spent", ["hold", "stop"])
def test_a_budget_that_the_clock_keeps_is_not_called_without_effect(spec: SpecFolder, when_spent: str) -> None:
    prices = "queues: {clock: true}\nprices: {a100-40gb: 2.50, l4: 0.80}\n"
    spec.edit(ENV, "buckets:", f"{prices}buckets:")
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", f"budget: {{monthly-usd: 1, when-spent: {when_spent}}}")
    (note,) = [note for note in spec_notes(spec.load()) if note.field == "budget"]
    assert note.rule != IDLE
    assert note.given.endswith("without a metrics.collector: no alert is sent")
    assert "drop" not in note.change
    assert note.change.endswith(f"and the clock keeps when-spent: {when_spent}")


SHARE = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"


@pytest.mark.parametrize(
    ("share", "has_note"),
    [
        ("a100: {guaranteed: 0, sharing: lend}", True),
        ("a100: {guaranteed: 0, sharing: lend-and-borrow}", True),
        ("a100: {guaranteed: 4, sharing: lend, lending-limit: 0}", True),
        ("a100: {guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 4}", False),
        ("a100: {guaranteed: 4, sharing: lend}", False),
        ("a100: {guaranteed: 4}", False),
    ],
)
def test_sharing_by_which_nothing_is_lent_or_borrowed_is_told(spec: SpecFolder, share: str, has_note: bool) -> None:
    spec.edit(FRAUD, SHARE, share)
    assert ("gpus.a100.sharing" in idle(spec)) is has_note


@pytest.mark.parametrize(("sharing", "has_note"), [("lend-and-borrow", True), ("lend", False)])
def test_borrowing_that_no_tier_of_the_tenant_does_is_told(spec: SpecFolder, sharing: str, has_note: bool) -> None:
    spec.edit(ENV, "  batch:\n", "  batch:\n    allow-borrowing: false\n")
    spec.edit("tenants/research.yaml", "a100: {guaranteed: 8}", f"a100: {{guaranteed: 8, sharing: {sharing}}}")
    spec.edit(FRAUD, SHARE, "a100: {guaranteed: 16}")
    assert ("gpus.a100.sharing" in idle(spec)) is has_note
