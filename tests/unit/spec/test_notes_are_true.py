"""A note that calls a field without effect is true: without it the plan, the clock and all reports are the same."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenancy import planning
from tenancy.cli import main
from tenancy.clock.decision import desired
from tenancy.clock.page import page
from tenancy.clock.usage import Usage
from tenancy.spec.loader import Loaded, load, spec_notes
from tenancy.spec.reading.problems import Problem
from tests.aws_cases import BUCKETS, ON_AWS
from tests.conftest import SpecFolder

NO_EFFECT_RULE = "a field without effect is reported"
ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
REPORTS = (
    "report capacity DIR --format json",
    "report failures DIR --format json",
    "report pools DIR --format json",
    "report access DIR --format json",
    "report page DIR --out OUT",
    "report dashboards DIR --out OUT",
    "chargeback DIR --example 1 --from 2026-10-01 --to 2026-10-03 --format json",
    "claims DIR",
    "sample job DIR --tenant fraud",
)
OFF = ON_AWS.replace("enabled: true", "enabled: false")
BUILT_CLUSTER_FIELDS = """\
  system: {nodes: 3}
  ami-release: v20260724
  upgrade-pause: 10
  deletion-protection: false
"""
EXISTING = ON_AWS.replace("  cni: vpc-cni\n", "  cni: cilium\n  mode: existing\n")


def consequences(loaded: Loaded, out: Path) -> dict[str, str]:
    """All that the files of an environment decide, as text by its name."""
    environment, tenants = loaded.environment, loaded.tenants
    plan = planning.plan(environment, tenants)
    names = [tenant.tenant for tenant in tenants]
    used = Usage(NOW, {name: {"a100-40gb": 10**12} for name in names}, {})
    texts = {
        "objects": repr(list(plan.objects())),
        "tenants": repr(plan.tenants),
        "platform": repr(plan.platform),
        "cluster": repr(plan.cluster),
        "account": repr(plan.account),
        "calendar": page(environment, tenants, NOW, 3),
    }
    if environment.has_clock:
        texts["clock"] = repr(replace(desired(environment, tenants, NOW, used), usage=used))
    for number, line in enumerate(REPORTS):
        (out / str(number)).mkdir(parents=True, exist_ok=True)
        words = line.replace("DIR", str(loaded.folder)).replace("OUT", str(out / str(number))).split()
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"{line}: {result.output}"
        rendered_texts = [path.read_text("utf-8") for path in sorted((out / str(number)).rglob("*.*"))]
        # A line's number in a file is not what the field does.
        text = re.sub(r'"line": \d+|<td[^>]*>\d+</td>', "", "\n".join([result.stdout, *rendered_texts]))
        texts[line] = re.sub(r"environment\.yaml:\d+|yaml, line \d+", "", text)
    return texts


def without(spec: SpecFolder, note: Problem) -> None:
    """Drop the field that a note names from its file."""
    path = spec.path / Path(note.file).relative_to(Path(note.file).parents[1 if "tenants/" in note.file else 0])
    document: Any = yaml.safe_load(path.read_text("utf-8"))
    fields = {"sharing": ("sharing", "lending-limit", "borrowing-limit")}
    *parents, last = re.findall(r"\[(\d+)\]|([^.\[\]]+)", note.field)
    part = document
    for index, name in parents:
        part = part[int(index) if index else name]
    for name in fields.get(last[1], (last[1],)):
        part.pop(name, None)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


CASES: Mapping[str, Mapping[str, str]] = {
    "fields of AWS where it is off": {"  cni: vpc-cni\n": OFF + BUILT_CLUSTER_FIELDS},
    "data where AWS is off": {"  cni: vpc-cni\n": OFF, "buckets: [datasets, models]\n": BUCKETS},
    "a cluster of others": {
        "  cni: vpc-cni\n": EXISTING + BUILT_CLUSTER_FIELDS,
        "  train: {instance-type: p4d.24xlarge, nodes: 4}\n": "  train: {instance-type: p4d.24xlarge, nodes: 4, "
        "zones: [eu-central-1a], upgrade: {max-unavailable: 2}}\n",
    },
    "services": {"buckets:": "services: {efa-device-plugin: install, dra-driver: install}\nbuckets:"},
    "waves in one stack": {"buckets:": "rollout: {depends-on: [dev], canary: [fraud]}\nbuckets:"},
    "an issuer that nothing trusts": {
        "  cni: vpc-cni\n": EXISTING + "  oidc-issuer: oidc.eks.eu-central-1.amazonaws.com/id/ABCDEF0123456789\n"
    },
    "budgets": {"buckets:": "queues: {clock: true}\nprices: {a100-40gb: 2.50, l4: 0.80}\nbuckets:"},
    "shares": {},
}
SHARE = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
BUDGET = "budget: {monthly-usd: 180000}"
TENANTS: Mapping[str, Mapping[str, str]] = {
    "budgets": {BUDGET: "budget: {monthly-usd: 1, when-spent: hold}"},
    "shares": {
        SHARE: "a100: {guaranteed: 0, sharing: lend-and-borrow, lending-limit: 0}",
        "a100-1g.5gb: {guaranteed: 14}": "a100-1g.5gb: {guaranteed: 14, sharing: lend}",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_field_that_a_note_calls_without_effect_can_be_dropped(spec: SpecFolder, tmp_path: Path, case: str) -> None:
    for old, new in CASES[case].items():
        spec.edit(ENV, old, new)
    for old, new in TENANTS.get(case, {}).items():
        spec.edit(FRAUD, old, new)
    loaded = spec.load()
    files = {name: (spec.path / name).read_text("utf-8") for name in (ENV, FRAUD, RESEARCH)}
    notes = [note for note in spec_notes(loaded) if note.rule == NO_EFFECT_RULE]
    assert bool(notes) is (case != "budgets"), "a case has notes, or shows that it has none"
    before = consequences(loaded, tmp_path / "before")
    wrong = []
    for number, note in enumerate(notes):
        assert "drop" in note.change, note
        for name, text in files.items():
            spec.write(name, text)
        without(spec, note)
        if problems := spec.problems():
            wrong.append(f"{note.field}: {problems[0]}")
            continue
        after = consequences(load(spec.path), tmp_path / f"after-{number}")
        wrong += [f"{note.field}: {name}" for name, text in before.items() if after[name] != text]
    assert not wrong, "\n".join(wrong)
