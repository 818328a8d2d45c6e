"""Reports of a run: a table, SARIF 2.1.0 for code scanning and for `tenancy evidence`, and the page docs/judged.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from judged.checklists import Checklist
from judged.faults import aws_rows, faults
from judged.model import Verdict
from judged.waivers import Judgement, Waiver

FINDERS = ("checkov", "kube-score", "kyverno")
"""Judges that are given the seeded faults."""
HEADINGS = ("judge", "version", "on what", "checks", "passed", "waived", "failed")


def row(verdict: Verdict, judged: Judgement) -> tuple[str, ...]:
    """The cells of a judge in the table. A check with several findings counts as many times as it found something."""
    if verdict.skipped:
        return (verdict.judge, verdict.version, f"skipped: {verdict.skipped}", "–", "–", "–", "–")
    failed = len(judged.open(verdict))
    waived = len(verdict.findings) - failed
    units = verdict.checks
    passed = max(units - len({(finding.object, finding.check) for finding in verdict.findings}), 0)
    if verdict.counts_files:
        passed = units - len({finding.file or finding.object for finding in verdict.findings})
    return (verdict.judge, verdict.version, verdict.judged, *map(str, (units, passed, waived, failed)))


def table(judged: Judgement) -> str:
    """The table as text with aligned columns."""
    rows = [HEADINGS, *(row(verdict, judged) for verdict in judged.verdicts)]
    wide = [max(len(cells[at]) for cells in rows if not cells[2].startswith("skipped")) for at in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(wide[at]) for at, cell in enumerate(cells)).rstrip() for cells in rows)


def sarif(judged: Judgement) -> dict[str, Any]:
    """One run for each judge that ran. A waived finding has a suppression with the waiver's reason, owner and date."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [_run(verdict, judged) for verdict in judged.verdicts if not verdict.skipped],
    }


def _run(verdict: Verdict, judged: Judgement) -> dict[str, Any]:
    results = []
    for finding in sorted(verdict.findings):
        place: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": finding.object}]}
        if finding.file:
            place["physicalLocation"] = {
                "artifactLocation": {"uri": finding.file},
                "region": {"startLine": max(finding.line, 1)},
            }
        result: dict[str, Any] = {
            "ruleId": finding.check,
            "level": "warning",
            "message": {"text": finding.message},
            "locations": [place],
        }
        if waiver := judged.waived.get(finding):
            result["suppressions"] = [
                {"kind": "external", "status": "accepted", "justification": justification(waiver)}
            ]
        results.append(result)
    rules = [{"id": check} for check in sorted({finding.check for finding in verdict.findings})]
    return {
        "tool": {"driver": {"name": verdict.judge, "version": verdict.version, "rules": rules}},
        "results": results,
        "properties": {"checks": verdict.checks, "judged": verdict.judged},
    }


def justification(waiver: Waiver) -> str:
    """A waiver in one line, as SARIF and the evidence of an environment quote it."""
    return f"{waiver.reason} (owner {waiver.owner}, until {waiver.until})"


def page(
    judged: Judgement,
    checklists: Mapping[str, Checklist],
    seeded: Mapping[str, Mapping[str, list[str]]],
    on_aws: Mapping[str, list[str]],
) -> str:
    """docs/judged.md. `seeded` are the checks that found each seeded fault, by judge; `on_aws` checkov's on AWS."""
    ran = [verdict for verdict in judged.verdicts if not verdict.skipped]
    skipped = [verdict for verdict in judged.verdicts if verdict.skipped]
    lines = [
        "# Judged by other tools",
        "",
        "`make judged` runs tools of other makers on what this repository makes: the objects of the example",
        "environments `local` and `bank`, the pods and jobs that `tenancy sample` prints, the resources on AWS that",
        "`bank` registers (as a Terraform plan, which `judged/terraform.py` writes), workflows, scripts, code and",
        "pages. For tools that ask a running cluster it starts a lab of its own with the environment `local` and its",
        "samples, and deletes it at the end. Each tool has a pinned version in an environment of its own",
        "(`requirements/judges-*.txt` with hashes, `judged/modules`), outside the checkout, so that none constrains",
        "the product's dependencies. NVIDIA's suite (`nvidia`) is in no package index: `JUDGED_NVIDIA` is the path of",
        "a clone of its repository, and without it that judge is skipped. `aws-engine` needs a provider of AWS:",
        "`JUDGED_AWS_PROVIDER` is the path of `pulumi-resource-aws` or of Terraform's `terraform-provider-aws`. The",
        "command writes this page.",
        "",
        "A finding is mended, or accepted in `judged/waivers.yaml` with judge, check, object, reason, owner and last",
        "day. The command ends with exit code 1 if a finding has no waiver, a waiver matches no finding, or its last",
        "day is over. It writes `build/judged/judged.sarif`, which `tenancy evidence --sarif` takes into a bundle.",
        "",
        "## Results",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(f"| {' | '.join(row(verdict, judged))} |" for verdict in ran),
        "",
        "`checks` counts the checks of tools that count them, otherwise the files or objects that were read; `passed`",
        "are those without a finding. `waived` and `failed` count findings.",
        "",
        *(line for verdict in ran for line in verdict.details),
        "## Not run",
        "",
        "| judge | reason |",
        "|---|---|",
        *(f"| {verdict.judge} | {verdict.skipped} |" for verdict in skipped),
        "",
        "## Accepted findings",
        "",
        "| judge | check | object | findings | reason | owner | until |",
        "|---|---|---|---|---|---|---|",
    ]
    counts: dict[Waiver, int] = {}
    for waiver in judged.waived.values():
        counts[waiver] = counts.get(waiver, 0) + 1
    lines += [
        f"| {waiver.judge} | `{waiver.check}` | `{waiver.object}` | {count} | {waiver.reason} | {waiver.owner} "
        f"| {waiver.until} |"
        for waiver, count in sorted(counts.items(), key=lambda item: str(item[0]))
    ]
    lines += [
        "",
        "## Seeded faults",
        "",
        "A pod without a fault, and the same with one fault each, of the kinds that these tools look for. Columns name",
        "the checks that fire on the fault and not on its twin. Whatever a tool finds, `tenancy check` or a guard",
        "finds: a test holds the column *ours*.",
        "",
        f"| fault | {' | '.join(FINDERS)} | ours |",
        f"|---|{'---|' * len(FINDERS)}---|",
    ]
    for fault in faults():
        other_checks = [", ".join(seeded.get(fault.name, {}).get(name, ())) or "–" for name in FINDERS]
        own_rules = ", ".join(fault.rules) or f"refused by a guard: attack `{fault.attack}`"
        lines.append(f"| {fault.name} | {' | '.join(other_checks)} | {own_rules} |")
    lines += [
        "",
        "The same on AWS: a copy of a resource of `bank` with one fault. Each is found by a rule of the policy pack.",
        "",
        "| fault | resource | checkov | ours |",
        "|---|---|---|---|",
    ]
    for aws_fault in aws_rows():
        other_checks = ", ".join(on_aws.get(aws_fault["name"], ())) or "–"
        lines.append(
            f"| {aws_fault['name']} | `{aws_fault['kind']}` | {other_checks} | {', '.join(aws_fault['rules'])} |"
        )
    lines += ["", "The items of CNCF Kubernetes AI Conformance are in the [control map](controls.md#ai-conformance)."]
    for checklist in checklists.values():
        lines += ["", f"## {checklist.title}", "", *checklist.intro, "", *checklist.table()]
    return "\n".join(lines) + "\n"


def as_text(judged: Judgement) -> str:
    """SARIF as JSON text."""
    return json.dumps(sarif(judged), indent=1, sort_keys=True) + "\n"
