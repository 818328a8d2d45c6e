"""A verdict as text for people, as SARIF for code scanning, as JUnit for CI and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from tenancy.catalog.text import escape_invisible, escape_output, pluralize, printed_json
from tenancy.check import answer_outputs
from tenancy.check.judge import CheckedFinding, CheckResult
from tenancy.check.reader import FilePosition, Unjudged
from tenancy.rules.catalogue import RULES, Rule
from tenancy.rules.levels import RuleLevel
from tenancy.rules.model import Severity

WIDTH = 100
SCREEN = 40
"""Minimum number of lines of a screen."""
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LISTED_TENANTS = 5
"""Tenants that are listed with counts only, if there is no room for their findings."""
_EXCEPTED = 3
"""Exceptions that are shown on one screen; the summary has their number."""
_UNJUDGED = 3
"""Objects that cannot be checked that have their reason on one screen; of the others the names are shown."""
_SCORES = {Severity.CRITICAL: "9.5", Severity.HIGH: "7.5", Severity.MEDIUM: "5.0"}
"""GitHub's security-severity: above 9 it shows critical, from 7 high, from 4 medium."""


# For people


def text(verdict: CheckResult, *, everything: bool = False) -> str:
    """Findings by tenant, the worst tenant and finding first, on one screen."""
    return escape_output(_text(_on_lines(verdict), everything))


def _on_lines(verdict: CheckResult) -> CheckResult:
    """The result with each text of the manifests on one line, with invisible characters as their numbers."""
    return replace(
        verdict,
        findings=tuple(
            replace(
                entry,
                tenant=escape_invisible(entry.tenant),
                finding=replace(
                    entry.finding,
                    object=escape_invisible(entry.finding.object),
                    given=escape_invisible(entry.finding.given),
                    fix=escape_invisible(entry.finding.fix),
                ),
            )
            for entry in verdict.findings
        ),
        objects=tuple(
            (escape_invisible(tenant), escape_invisible(name), place) for tenant, name, place in verdict.objects
        ),
        unjudged=tuple(
            replace(entry, object=escape_invisible(entry.object), reason=escape_invisible(entry.reason))
            for entry in verdict.unjudged
        ),
    )


def _text(verdict: CheckResult, everything: bool) -> str:
    lines = list(answer_outputs.lines(verdict.answers, 10**9 if everything else SCREEN // 2)) if verdict.answers else []
    hidden_count = 0
    tenants = list(_by_tenant(verdict))
    covered = [entry for entry in verdict.findings if entry.waiver]
    note = covered if everything else covered[:_EXCEPTED]
    unjudged_lines = min(len(verdict.unjudged), _UNJUDGED + 3) + (1 if verdict.others else 0)
    room = 10**9 if everything else SCREEN - 6 - min(len(verdict.ended), 5) - len(note) - unjudged_lines
    short: list[str] = []
    for position, (tenant, tenant_findings) in enumerate(tenants):
        head = [*([""] if lines else []), f"{tenant}: {_counts(tenant_findings)}"]
        # Each later tenant has at least one line.
        reserved_lines = min(len(tenants) - position - 1, _LISTED_TENANTS)
        for index, entry in enumerate(tenant_findings):
            body = [*head, *_lines(entry, everything)] if index == 0 else _lines(entry, everything)
            if hidden_count or len(lines) + len(body) + reserved_lines > room:
                hidden_count += len(tenant_findings) - index
                if index == 0:
                    short.append(head[-1])
                break
            lines += body
    lines += [*([""] if short else []), *short[:_LISTED_TENANTS]]
    for waiver in verdict.ended:
        lines += _wrapped(f"expired exception: {waiver}; renew it after a review, or drop it", "  ")
    lines += [f"excepted: {entry.waiver}" for entry in note]
    if everything:
        lines += [f"unused exception: {waiver}" for waiver in verdict.unused]
    unjudged = verdict.unjudged if everything else verdict.unjudged[:_UNJUDGED]
    lines += [f"not judged: {entry}" for entry in unjudged]
    if hidden_unjudged := verdict.unjudged[len(unjudged) :]:
        names = ", ".join(dict.fromkeys(entry.object for entry in hidden_unjudged))
        lines += _wrapped(f"not judged: {len(hidden_unjudged)} more, --all has their reasons: {names}", "", 3)
    if verdict.waits:
        wait = "waits" if len(verdict.waits) == 1 else "wait"
        note = (
            f"note: {pluralize(len(verdict.waits), 'rule')} of the API server {wait} for an environment (--env ENV): "
        )
        lines += _wrapped(f"{note}{', '.join(verdict.waits)}", "", None if everything else 2)
    if verdict.others:
        names = ", ".join(dict.fromkeys(escape_invisible(place.file) for place in verdict.others))
        count = pluralize(len(verdict.others), "document")
        is_are = "is no object" if len(verdict.others) == 1 else "are no objects"
        lines += _wrapped(f"note: {count} {is_are} of Kubernetes: {names}", "", None if everything else 2)
    if hidden_count:
        lines.append(f"… and {hidden_count} more: --all shows them")
    return "\n".join([*lines, *([""] if lines else []), summary(verdict)])


def summary(verdict: CheckResult) -> str:
    """One line with the numbers of objects, broken rules, advice and exceptions."""
    failing = len(verdict.failing)
    open_ones = [entry for entry in verdict.findings if not entry.waiver]
    parts = [f"{len(verdict.answers.refusals)} refused by {verdict.answers.environment}"] if verdict.answers else []
    if verdict.answers and (blocked := len(verdict.answers.blocked)):
        parts.append(f"{blocked} can never start")
    parts.append(pluralize(failing, "broken rule") if failing else "no broken rule")
    parts[0] = f"{pluralize(len(verdict.objects), 'object')}: {parts[0]}"
    if advice := len(open_ones) - failing:
        parts.append(f"{advice} to consider")
    if verdict.answers and (undecided := verdict.answers.undecided):
        count = len({id(entry) for objects in undecided.values() for entry in objects if not entry.refused})
        parts += [f"{count} not decided"] if count else []
    if verdict.unjudged:
        parts.append(f"{len(verdict.unjudged)} not judged")
    if covered := len(verdict.findings) - len(open_ones):
        parts.append(f"{covered} excepted")
    if verdict.ended:
        parts.append(pluralize(len(verdict.ended), "ended exception"))
    if verdict.unused:
        parts.append(pluralize(len(verdict.unused), "unused exception"))
    return ", ".join(parts)


def _by_tenant(verdict: CheckResult) -> Iterator[tuple[str, list[CheckedFinding]]]:
    groups: dict[str, list[CheckedFinding]] = {}
    for finding in verdict.findings:
        if not finding.waiver:
            groups.setdefault(finding.tenant, []).append(finding)

    def badness(tenant_findings: list[CheckedFinding]) -> list[int]:
        return [
            -sum(finding.fails and finding.rule.severity is severity for finding in tenant_findings)
            for severity in Severity
        ]

    yield from sorted(groups.items(), key=lambda group: (badness(group[1]), group[0]))


def _counts(tenant_findings: list[CheckedFinding]) -> str:
    parts = [
        f"{count} {severity}"
        for severity in Severity
        if (count := sum(finding.fails and finding.rule.severity is severity for finding in tenant_findings))
    ]
    advice = sum(not finding.fails for finding in tenant_findings)
    return ", ".join([*parts, *([f"{advice} to consider"] if advice else [])])


def _lines(checked: CheckedFinding, everything: bool) -> list[str]:
    word = checked.rule.severity.value if checked.fails else "consider"
    head = f"  {word:<8}  {checked.finding.rule:<9} {checked.finding.object} ({checked.place})"
    max_lines = None if everything else 3
    return [head, *_wrapped(f"given {checked.finding.given}; fix: {checked.finding.change}", "            ", max_lines)]


def _wrapped(sentence: str, indent: str, max_lines: int | None = 3) -> list[str]:
    wrapped = textwrap.wrap(
        sentence, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, max_lines=max_lines
    )
    return wrapped or [indent.rstrip()]


# For machines


def as_json(verdict: CheckResult) -> dict[str, Any]:
    """The result as plain values, for JSON."""
    return {
        **({"answers": answer_outputs.as_json(verdict.answers)} if verdict.answers else {}),
        "passes": verdict.passes,
        "objects": len(verdict.objects),
        "findings": [
            {
                "rule": entry.finding.rule,
                "severity": entry.rule.severity,
                "level": entry.level,
                "tenant": entry.tenant,
                "object": entry.finding.object,
                "file": entry.place.file,
                "line": entry.place.line,
                "given": entry.finding.given,
                "why": entry.rule.why,
                "fix": entry.finding.change,
                "exception": str(entry.waiver) if entry.waiver else None,
            }
            for entry in verdict.findings
        ],
        "ended": [str(waiver) for waiver in verdict.ended],
        "unused": [str(waiver) for waiver in verdict.unused],
        "waits": list(verdict.waits),
        "others": [{"file": place.file, "line": place.line} for place in verdict.others],
        "not_judged": [
            {"object": entry.object, "file": entry.place.file, "line": entry.place.line, "reason": entry.reason}
            for entry in verdict.unjudged
        ],
    }


def sarif(verdict: CheckResult, version: str, exceptions: str = "") -> str:
    """SARIF 2.1.0: one run, the rules that are broken, and where. An expired exception is reported in its file."""
    verdict = _on_lines(verdict)
    denied = answer_outputs.result_ids(verdict.answers) if verdict.answers else set()
    ids = sorted({entry.finding.rule for entry in verdict.findings} | ({"exc-01"} if verdict.ended else set()) | denied)
    results = [_result(entry, ids.index(entry.finding.rule)) for entry in verdict.findings]
    results += answer_outputs.sarif_results(verdict.answers, ids) if verdict.answers else []
    for waiver in verdict.ended:
        message = f"given {waiver}; why: {RULES['exc-01'].why}; fix: {RULES['exc-01'].fix}"
        fingerprint = {"gpuTenancy/v1": f"exc-01 {waiver.rule} {waiver.resource}"}
        results.append(
            {
                "ruleId": "exc-01",
                "ruleIndex": ids.index("exc-01"),
                "level": "error",
                "message": {"text": message},
                "locations": [answer_outputs.location(FilePosition(exceptions, 1), f"{waiver.rule} {waiver.resource}")],
                "partialFingerprints": fingerprint,
            }
        )
    driver = {
        "name": "gpu-tenancy",
        "version": version,
        "rules": [_descriptor(RULES[name]) if name in RULES else _component(name) for name in ids],
    }
    unread = [{"level": "error", "message": {"text": escape_invisible(str(entry))}} for entry in verdict.unread]
    unjudged = [
        {
            "level": "error" if verdict.strict else "warning",
            "message": {"text": f"not judged: {entry.object}: {entry.reason}"},
            "locations": [answer_outputs.location(entry.place, entry.object)],
        }
        for entry in verdict.unjudged
    ]
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": [*unread, *unjudged]}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return printed_json(json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2))


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.title[0].upper()}{rule.title[1:]}."},
        "fullDescription": {"text": f"Why: {rule.why}."},
        "help": {"text": f"Why: {rule.why}. What to do: {rule.fix}."},
        "properties": {"security-severity": _SCORES[rule.severity], "tags": ["security", "multi-tenancy"]},
    }


def _component(name: str) -> dict[str, Any]:
    """A control of the API server without rules of ours, such as its validation, or the queue."""
    never = name == answer_outputs.NEVER_STARTS
    text = {"text": "The queue can never admit it." if never else f"{name} refuses the request."}
    tags = {"security-severity": _SCORES[Severity.MEDIUM], "tags": ["multi-tenancy"]}
    return {"id": name, "shortDescription": text, "fullDescription": text, "properties": tags}


def _result(checked: CheckedFinding, index: int) -> dict[str, Any]:
    result = {
        "ruleId": checked.finding.rule,
        "ruleIndex": index,
        "level": "error" if checked.level is RuleLevel.MANDATORY else "warning",
        "message": {"text": str(checked.finding)},
        "locations": [answer_outputs.location(checked.place, checked.finding.object)],
        # Lines change; the object and the finding do not.
        "partialFingerprints": {
            "gpuTenancy/v1": f"{checked.finding.rule} {checked.finding.object} {checked.finding.given}"
        },
    }
    if checked.waiver:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": str(checked.waiver)}]
    return result


def junit(verdict: CheckResult) -> str:
    """A suite for each tenant and a case for each object; exceptions and objects that cannot be checked are skipped."""
    verdict = _on_lines(verdict)
    by_object: dict[str, list[CheckedFinding]] = {}
    for entry in verdict.findings:
        by_object.setdefault(entry.finding.object, []).append(entry)
    suites: _Suites = {}
    unjudged = {(entry.object, entry.place): entry for entry in verdict.unjudged}
    for tenant, name, place in verdict.objects:
        object_findings = by_object.pop(name, [])
        case = _case(suites, tenant, name, tenant)
        case.attrib.update(file=escape_invisible(place.file), line=str(place.line))
        if failing := [entry for entry in object_findings if entry.fails]:
            text = "\n".join(f"{entry.place}: {entry.finding}" for entry in failing)
            message = ", ".join(dict.fromkeys(entry.finding.rule for entry in failing))
            ElementTree.SubElement(case, "failure", message=message, type=failing[0].rule.severity).text = text
        elif waived := [entry for entry in object_findings if entry.waiver]:
            ElementTree.SubElement(case, "skipped", message="; ".join(str(entry.waiver) for entry in waived))
        elif entry := unjudged.pop((name, place), None):
            _say_unjudged(case, entry, strict=verdict.strict)
        if advice := [entry for entry in object_findings if entry.level is RuleLevel.ADVISORY and not entry.waiver]:
            ElementTree.SubElement(case, "system-out").text = "\n".join(str(entry.finding) for entry in advice)
    judged_names = {name for _, name, _ in verdict.objects}
    for entry in unjudged.values():
        if entry.object not in judged_names:
            case = _case(suites, "not judged", entry.object, "sources")
            _say_unjudged(case, entry, strict=verdict.strict)
    for waiver in verdict.ended:
        case = _case(suites, "exceptions", f"{waiver.rule} {waiver.resource}", "exceptions")
        ElementTree.SubElement(case, "failure", message="exc-01").text = str(waiver)
    root = ElementTree.Element("testsuites", name="tenancy check")
    root.extend(suites.values())
    if verdict.answers:
        answer_outputs.junit_suite(verdict.answers, root)
    for element in (*root, root):
        cases = [*element.iter("testcase")]
        element.set("tests", str(len(cases)))
        for key, outcome in (("failures", "failure"), ("skipped", "skipped")):
            element.set(key, str(sum(case.find(outcome) is not None for case in cases)))
        element.set("errors", "0")
    ElementTree.indent(root)
    return escape_output('<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode"))


_Suites = dict[str, ElementTree.Element]


def _case(suites: _Suites, suite_name: str, name: str, classname: str) -> ElementTree.Element:
    suite = suites.setdefault(suite_name, ElementTree.Element("testsuite", name=suite_name))
    return ElementTree.SubElement(suite, "testcase", name=name, classname=classname)


def _say_unjudged(case: ElementTree.Element, unjudged: Unjudged, *, strict: bool) -> None:
    ElementTree.SubElement(case, "failure" if strict else "skipped", message=f"not judged: {unjudged.reason}")
