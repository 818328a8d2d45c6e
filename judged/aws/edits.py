"""Edits of fields in previews of the real engine over a real provider, compared with the table of the same edits.

`tests/field_edits.py` has one edit of every field of `aws`, `cluster`, `pools` and `tiers`, and the golden table of
`tests/unit/deploy/test_field_edits.py` what the engine would do for it, by the facts of AWS' double. Here an
environment is made once, and an edit of each kind is previewed. No edit is applied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judged.aws.engine import EngineOverAws, Run
from judged.homes import ROOT
from judged.model import Finding
from tenancy.planning import make_plan
from tenancy.planning.scope import CLUSTER_SUFFIX
from tenancy.spec.loader import load
from tests import field_edits
from tests.field_edits import FieldEdit

CHECK = "edit"
NAME = "edits"
CLUSTER = NAME + CLUSTER_SUFFIX
TABLE = ROOT / "tests" / "unit" / "golden" / "field-edits.txt"
LINE = re.compile(r"  (delete|replace|create|update) on AWS: (.+)")
KIND = re.compile(r"(\w+)(?: ×(\d+))?")
REPLACEMENTS = ("create-replacement", "delete-replaced", "replace")
"""Steps of the engine that are parts of a replacement."""
PREVIEWED = (
    *(
        "aws.root-volume-size",
        "aws.ami-release",
        "aws.system.instance-type",
        "aws.add-ons.release",
        "aws.log-retention-days",
    ),
    *("aws.group-roles", "aws.platform-role", "aws.public-access-cidrs", "aws.organization-id", "aws.kms-key-arn"),
    *("aws.network.cidr", "aws.zones (one more)", "aws.zones (another one)"),
    *("cluster.service-cidr", "cluster.kubernetes", "pools.general.instance-type (another architecture)"),
    *("pools.general (removed)", "pools.reserved.purchase.reservation", "pools.serve.mig.layout"),
    "tiers.production.gpu-tier",
)
"""An edit of each kind, by its title: a preview takes from 10 seconds to a minute."""

Steps = Counter[tuple[str, str]]
"""Number of resources on AWS, by operation and type, such as ("replace", "NodeGroup")."""
Parts = Mapping[str, Any]
"""AWS parts of the plan, by stack."""


@dataclass(slots=True)
class Comparison:
    """Results of the edits. `judge` names the findings."""

    judge: str
    findings: list[Finding] = field(default_factory=list)
    edits: int = 0
    """Edits that were previewed."""
    commands: int = 0
    """Commands of the engine."""
    resources: int = 0
    """Resources on AWS of the environment."""

    def note(self, item: str, message: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(self.judge, CHECK, item, message))

    def judge_run(self, item: str, run: Run) -> bool:
        """Whether a command of the engine succeeded."""
        self.commands += 1
        if run.code:
            self.note(item, run.problem)
        return not run.code


def compare(engine: EngineOverAws, judge: str) -> Comparison:
    """Preview the edits on a new environment."""
    comparison, expectations = Comparison(judge), table(TABLE.read_text("utf-8"))
    parts = _write_environment(engine.environment(NAME), field_edits.base())
    edits = {edit.title: edit for edit in field_edits.EDITS}
    with engine.one_provider():
        if all(make(engine, comparison, stack) for stack in parts):
            for title in PREVIEWED:
                preview(engine, comparison, edits[title], parts, expectations[title])
    return comparison


def environment_file(folder: Path) -> Path:
    """The files that edits start from, in a folder of their environment's name."""
    return field_edits.write(folder / NAME, field_edits.base())


def _write_environment(folder: Path, environment: Mapping[str, Any]) -> Parts:
    """Write an environment's files, and what its plan has on AWS."""
    field_edits.write(folder, environment)
    loaded = load(folder)
    plan = make_plan(loaded, loaded.day)
    services = plan.platform.services and replace(plan.platform.services, charts=(), nodes=())
    return {CLUSTER: plan.cluster, NAME: (services, plan.platform.data, *(tenant.aws for tenant in plan.tenants))}


def make(engine: EngineOverAws, comparison: Comparison, stack: str) -> bool:
    """Make a new stack."""
    engine.stack("stack", "init", stack)
    engine_run = comparison.judge_run(stack, engine.operate("up", stack))
    # Previews of what the engine refuses to replace or delete would end there.
    engine.stack("state", "unprotect", "--all", "--yes", "--stack", stack)
    counts = engine.resources(stack)
    comparison.resources += sum(count for kind, count in counts.items() if kind.startswith("aws:"))
    return engine_run


def preview(engine: EngineOverAws, comparison: Comparison, edit: FieldEdit, before: Parts, expectation: Steps) -> None:
    """Preview an edit in the stacks whose part of AWS it changes, and compare it with the table."""
    after = _write_environment(engine.environment(NAME), field_edits.edited(edit))
    runs = [engine.operate("preview", stack) for stack in before if after[stack] != before[stack]]
    comparison.edits += 1
    if all(comparison.judge_run(edit.title, run) for run in runs):
        changes = [change for run in runs for change in run.changes]
        for item, message in differences(expectation, changes):
            comparison.note(f"{edit.title}/{item}", message)


def differences(expectation: Steps, changes: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Type, and how the engine's changes differ from the table. A change is an operation and `type name`."""
    names: dict[tuple[str, str], set[str]] = {}
    for operation, item in changes:
        kind, _, name = item.partition(" ")
        if kind.startswith("aws:"):
            operation = "replace" if operation in REPLACEMENTS else operation
            names.setdefault((operation, kind.rpartition(":")[2]), set()).add(name)
    for operation, kind in sorted(names.keys() | expectation.keys()):
        found_names, count = sorted(names.get((operation, kind), ())), expectation[operation, kind]
        if len(found_names) != count:
            yield (
                kind,
                f"{operation} of {len(found_names)} by the provider ({', '.join(found_names) or 'none'}), "
                f"of {count} in the table",
            )


def table(text: str) -> dict[str, Steps]:
    """Steps on AWS in the golden table, by the edit's title."""
    steps_by_title: dict[str, Steps] = {}
    for block in text.strip().split("\n\n"):
        title, *lines = block.splitlines()
        steps_by_title[title] = Counter()
        for line in filter(None, map(LINE.fullmatch, lines)):
            for kind, count in KIND.findall(line[2]):
                steps_by_title[title][line[1], kind] += int(count or 1)
    return steps_by_title


def page(comparison: Comparison) -> Iterator[str]:
    """The comparison's part of docs/judged.md."""
    differing = len({finding.object.partition("/")[0] for finding in comparison.findings})
    yield "Edits of single fields (`tests/field_edits.py`) are previewed on an environment of their own, and what the"
    yield "provider would create, update, replace or delete on AWS is compared with the golden table that the double of"
    yield "the tests makes (`tests/unit/golden/field-edits.txt`):"
    yield ""
    yield "| resources | edits | as in the table | not as in the table |"
    yield "|---|---|---|---|"
    yield f"| {comparison.resources} | {comparison.edits} | {comparison.edits - differing} | {differing} |"
    yield ""
    yield f"Edits: {', '.join(f'`{title}`' for title in PREVIEWED)}."
    yield ""
