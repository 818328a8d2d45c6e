"""The judge `aws-engine`: what the engine does to whole environments over a real provider, and the verdict.

Of each environment: up, a second preview, a refresh and another preview, an upgrade of Kubernetes where one is named,
destroy. Every request on the way is judged by AWS' API models. Last, one environment with seeded faults, each of which
has to be found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from judged import program
from judged.aws import edits
from judged.aws.edits import Comparison
from judged.aws.engine import AwsRequest, EngineOverAws, Run, provider
from judged.homes import ROOT
from judged.model import Finding, Verdict
from judged.program import Resource
from tenancy.planning import make_plan
from tenancy.planning.scope import CLUSTER_SUFFIX
from tenancy.spec.loader import load

JUDGE = "aws-engine"
ON = "AWS on loopback"
FAULTS = Path(__file__).parents[1] / "faults_engine.yaml"
FAULTY = "faulty"
"""Name of the environment with seeded faults: a copy of `regulated` without the stack of its cluster."""
OF_OTHERS = ("existing", FAULTY)
"""Clusters that no stack here makes."""
HEADINGS = ("environment", "resources", "second preview", "refresh", "upgrade", "destroy", "requests", "wrong")
UPGRADES = ("eks:UpdateClusterVersion", "eks:UpdateNodegroupVersion")
IN_PLACE = ("update", *UPGRADES, "eks:UpdateAddon")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment to take through the steps. `upgrade` are the minor versions before and after."""

    name: str
    source: Path
    upgrade: tuple[str, str] | None = None


ENVIRONMENTS = (
    Environment("bank", ROOT / "stacks" / "bank"),
    Environment("regulated", ROOT / "stacks" / "regulated", ("1.35", "1.36")),
    Environment("existing", Path(__file__).parent / "existing"),
)


@dataclass(slots=True)
class Journey:
    """Results of an environment."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    steps: int = 0
    cells: dict[str, str] = field(default_factory=lambda: dict.fromkeys(HEADINGS, "–"))
    requests: Counter[str] = field(default_factory=Counter)
    wrong: int = 0

    def note(self, check: str, item: str, message: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(JUDGE, check, item, message))

    def judge_run(self, check: str, stack: str, run: Run) -> bool:
        """Whether a command of the engine succeeded."""
        self.steps += 1
        if run.code:
            self.note(check, stack, run.problem)
        return not run.code

    def judge_unchanged(self, check: str, stack: str, run: Run) -> bool:
        """Whether a preview or a refresh found nothing to change."""
        if not self.judge_run(check, stack, run):
            return False
        for operation, item in run.changes:
            self.note(check, f"{stack}/{item}", operation)
        return not run.changes

    def judge_requests(self, requests: Iterable[AwsRequest]) -> None:
        """Judge what was sent since the last call."""
        for request in requests:
            self.requests[request.name] += 1
            self.wrong += bool(request.wrong)
            findings = [("request", f"{request.name}{path}", message) for path, message in request.wrong]
            if request.unread:
                findings.append(("unread", request.name, request.unread))
            if request.status >= 400 and request.writes:
                findings.append(("refused", request.name, request.refusal))
            for check, item, message in findings:
                finding = Finding(JUDGE, check, f"{self.name}/{item}", message)
                if finding not in self.findings:
                    self.findings.append(finding)

    def row(self) -> tuple[str, ...]:
        """The cells of its row in the table."""
        total = sum(self.requests.values())
        cells = {**self.cells, "environment": self.name, "requests": str(total), "wrong": str(self.wrong)}
        return tuple(cells[heading] for heading in HEADINGS)


def verdict(folder: Path) -> Verdict:
    """Take every environment through its steps. Raises SkippedJudge without a provider."""
    source = provider(os.environ)
    resources = [resource for environment in ENVIRONMENTS for resource in registered(environment.source)]
    journeys, remaining = [], 0
    # Each has an account of its own: what one leaves there, such as the provider of a forge, is in the way of the next.
    for environment in ENVIRONMENTS:
        with EngineOverAws(folder / environment.name, source, resources, OF_OTHERS) as engine:
            journeys.append(travel(engine, environment))
            remaining += len(engine.remaining_processes())
    with EngineOverAws(folder / FAULTY, source, resources, OF_OTHERS) as engine:
        seeded = find_faults(engine)
        remaining += len(engine.remaining_processes())
    resources += registered(edits.environment_file(folder / "files"))
    with EngineOverAws(folder / edits.NAME, source, resources, OF_OTHERS) as engine:
        comparison = edits.compare(engine, JUDGE)
        remaining += len(engine.remaining_processes())
    return summary(journeys, seeded, comparison, remaining, source.version)


def summary(
    journeys: Sequence[Journey],
    seeded: Mapping[str, Sequence[str]],
    comparison: Comparison,
    remaining: int,
    version: str,
) -> Verdict:
    """The verdict on journeys, on seeded faults with the findings on each, on edits of fields, and on processes that
    outlive the engine.

    Checks are the engine's commands, the requests, the faults, the edits and the look at processes.
    """
    findings = [*(finding for journey in journeys for finding in journey.findings), *comparison.findings]
    misses = [name for name, answers in seeded.items() if not answers]
    findings += [Finding(JUDGE, "fault", name, "a seeded fault that was not found") for name in misses]
    if remaining:
        findings.append(Finding(JUDGE, "processes", "providers", f"{remaining} outlive the engine"))
    checks = sum(journey.steps + sum(journey.requests.values()) for journey in journeys) + len(seeded) + 1
    checks += comparison.commands + comparison.edits
    details = (*page(journeys, seeded), *edits.page(comparison))
    return Verdict(JUDGE, version, ON, checks, tuple(findings), details=details)


def registered(source: Path) -> Sequence[Resource]:
    """Resources that the programs of an environment register on AWS."""
    loaded = load(source)
    return program.aws_resources(make_plan(loaded, loaded.day))


def travel(engine: EngineOverAws, environment: Environment) -> Journey:
    """Take one environment through its steps, as far as they succeed."""
    journey = Journey(environment.name)
    file = engine.environment(environment.name) / "environment.yaml"
    shutil.copytree(environment.source, file.parent)
    if environment.upgrade:
        set_kubernetes(file, environment.upgrade[0])
    loaded = load(file.parent)
    built = make_plan(loaded, loaded.day).cluster is not None
    stacks = [*([environment.name + CLUSTER_SUFFIX] if built else []), environment.name]
    engine.requests()
    if all(make(engine, journey, stack) for stack in stacks):
        total = sum((engine.resources(stack) for stack in stacks), Counter[str]())
        journey.cells["resources"] = str(sum(count for kind, count in total.items() if kind.startswith("aws:")))
        previews = [journey.judge_unchanged("preview", stack, engine.operate("preview", stack)) for stack in stacks]
        journey.cells["second preview"] = "unchanged" if all(previews) else "changed"
        refreshed = [refresh(engine, journey, stack) for stack in stacks]
        journey.cells["refresh"] = "unchanged" if all(refreshed) else "changed"
        journey.judge_requests(engine.requests())
        if environment.upgrade:
            set_kubernetes(file, environment.upgrade[1])
            journey.cells["upgrade"] = upgrade(engine, journey, stacks[0])
        journey.cells["destroy"] = destroy(engine, journey, stacks)
    journey.judge_requests(engine.requests())
    return journey


def make(engine: EngineOverAws, journey: Journey, stack: str) -> bool:
    """Make a new stack."""
    engine.stack("stack", "init", stack)
    return journey.judge_run("up", stack, engine.operate("up", stack))


def refresh(engine: EngineOverAws, journey: Journey, stack: str) -> bool:
    """Whether neither a refresh nor a preview after it finds a change."""
    return journey.judge_unchanged("refresh", stack, engine.operate("refresh", stack)) and journey.judge_unchanged(
        "preview after refresh", stack, engine.operate("preview", stack)
    )


def set_kubernetes(file: Path, minor: str) -> None:
    """Write a minor version into an environment's file."""
    text, count = re.subn(r'(kubernetes: )"[0-9.]+"', rf'\1"{minor}"', file.read_text("utf-8"))
    if count != 1:
        raise ValueError(f'{file}: `kubernetes: "…"` is there {count} times')
    file.write_text(text, "utf-8")


def upgrade(engine: EngineOverAws, journey: Journey, stack: str) -> str:
    """Upgrade Kubernetes: the control plane first, then the node groups, all in place."""
    run = engine.operate("up", stack)
    requests = engine.requests()
    journey.judge_requests(requests)
    if not journey.judge_run("upgrade", stack, run):
        return "failed"
    problems = list(upgrade_problems(run.changes, [request.name for request in requests if request.writes]))
    for item, message in problems:
        journey.note("upgrade", f"{stack}/{item}", message)
    again = journey.judge_unchanged("preview after upgrade", stack, engine.operate("preview", stack))
    return "in place" if again and not problems else "failed"


def upgrade_problems(changes: Iterable[tuple[str, str]], operations: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Steps of an upgrade that were no update, and whether a node group moved before the control plane did."""
    for operation, item in changes:
        if operation != "update":
            yield item, f"{operation} in an upgrade"
    order = [operation for operation in operations if operation in UPGRADES]
    if order[:1] != [UPGRADES[0]] or order.count(UPGRADES[0]) != 1 or UPGRADES[1] not in order:
        yield "order", f"first the control plane, then node groups; asked was {', '.join(order) or 'nothing'}"


def destroy(engine: EngineOverAws, journey: Journey, stacks: Sequence[str]) -> str:
    """Delete the stacks, the cluster's last, as after `deletion-protection: false`."""
    deletions, retentions = 0, 0
    for stack in reversed(stacks):
        engine.stack("state", "unprotect", "--all", "--yes", "--stack", stack)
        run = engine.operate("destroy", stack)
        if not journey.judge_run("destroy", stack, run):
            return "failed"
        deletions += run.deletions[0]
        retentions += run.deletions[1]
    return f"{deletions - retentions} deleted, {retentions} kept"


# Seeded faults


def faults() -> list[dict[str, Any]]:
    """The rows of faults_engine.yaml."""
    return yaml.safe_load(FAULTS.read_text("utf-8"))["faults"]


def find_faults(engine: EngineOverAws) -> Mapping[str, list[str]]:
    """The findings on each fault, by its name: all are seeded into one environment."""
    rows = faults()
    folder = engine.environment(FAULTY)
    shutil.copytree(ENVIRONMENTS[1].source, folder)
    for file in folder.rglob("*.yaml"):
        file.write_text(file.read_text("utf-8").replace("regulated", FAULTY), "utf-8")
    # What begins with the environment's name belongs to the stack of its cluster.
    resources = [resource for resource in registered(folder) if not resource.name.startswith(f"{FAULTY}-")]
    names = {row["kind"]: next(item.name for item in resources if item.kind == row["kind"]) for row in rows}
    seeds = engine.folder / "faults.json"
    seeds.write_text(json.dumps([{**row, "resource": names[row["kind"]]} for row in rows]), "utf-8")
    journey = Journey(FAULTY)
    engine.requests()
    engine.stack("stack", "init", FAULTY)
    journey.judge_run("up", FAULTY, engine.operate("up", FAULTY, faults=seeds))
    journey.judge_requests(engine.requests())
    journey.judge_unchanged("preview", FAULTY, engine.operate("preview", FAULTY, faults=seeds))
    journey.judge_unchanged("refresh", FAULTY, engine.operate("refresh", FAULTY, faults=seeds))
    return {row["name"]: found_by(journey.findings, row) for row in rows}


def found_by(findings: Iterable[Finding], row: Mapping[str, Any]) -> list[str]:
    """The findings that a fault's row names, as `check: object: message`."""
    return sorted(
        {
            f"{finding.check}: {finding.object.partition('/')[2]}: {finding.message}"
            for finding in findings
            if finding.check == row["check"] and fnmatchcase(finding.object, row["object"])
        }
    )


# The page


def page(journeys: Sequence[Journey], seeded: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The judge's part of docs/judged.md."""
    yield "## The engine over a real AWS provider"
    yield ""
    yield "`aws-engine` takes environments through the steps of their lives: the real engine with our program over a"
    yield "real provider, against AWS on loopback (moto, and in `judged/aws` our own EKS, Budgets, cost-allocation tags"
    yield "and parameters of images). `bank` and `regulated` are those of `stacks/`, `existing` is in `judged/aws`; of"
    yield "the platform and the tenants it is what they own on AWS. Every request is judged by"
    yield "AWS' API models (botocore); `wrong` are those that these refuse. Not shown are permissions, trust, quotas,"
    yield "capacity and how long AWS takes. `make judged-aws` runs it alone."
    yield ""
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{'---|' * len(HEADINGS)}"
    for journey in journeys:
        yield f"| {' | '.join(journey.row())} |"
    yield ""
    yield "Faults seeded into resources of a copy of `regulated`, and how the judge finds them:"
    yield ""
    yield "| seeded fault | resource | found as |"
    yield "|---|---|---|"
    for row in faults():
        answers = "<br>".join(f"`{answer[:160]}`" for answer in seeded[row["name"]]) or "–"
        yield f"| {row['name']} | `{row['kind']}` | {answers} |"
    yield ""
