"""Answers of judges as verdicts: pure functions of a judge's output, one for each judge's own format.

An output of another form raises ValueError, KeyError or TypeError, which makes the run fail: a judge that is not
understood has not passed anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from judged.model import Finding, SkippedJudge, Verdict


def checkov(text: str, version: str, judged: str, judge: str = "checkov") -> Verdict:
    """`checkov --output json --quiet`: one report for a framework, or a list of them."""
    answer = json.loads(text)
    checks, findings = 0, []
    for report in answer if isinstance(answer, list) else [answer]:
        if "results" not in report:  # a framework without a file is reported as counts that are all 0
            continue
        failed = report["results"]["failed_checks"]
        checks += report["summary"]["passed"] + len(failed)
        if report["summary"]["parsing_errors"]:
            raise ValueError(f"{report['summary']['parsing_errors']} files could not be read")
        findings += [
            Finding(
                judge,
                check["check_id"],
                f"{PurePosixPath(check['file_path']).parent.name}/{check['resource']}",
                check["check_name"],
            )
            for check in failed
        ]
    return Verdict(judge, version, judged, checks, tuple(findings))


def kube_score(text: str, version: str, judged: str) -> Verdict:
    """`kube-score score --output-format json`: grades 10 (ok), 7 (almost), 5 (warning), 1 (critical)."""
    checks, findings = 0, []
    for item in json.loads(text):
        for check in item["checks"]:
            if check["skipped"]:
                continue
            checks += 1
            if check["grade"] < 7:
                words = "; ".join(comment["summary"] for comment in check["comments"] or ())
                findings.append(
                    Finding("kube-score", check["check"]["id"], item["object_name"], words or check["check"]["comment"])
                )
    return Verdict("kube-score", version, judged, checks, tuple(findings))


def kyverno(text: str, version: str, judged: str, folder: str) -> Verdict:
    """`kyverno apply --policy-report --output-format json`: warnings, and one line of JSON. Rules for pods are applied
    to templates of other kinds under a name with a prefix, which is left out."""
    report = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    if report["summary"]["error"]:
        raise ValueError(f"{report['summary']['error']} rules could not be applied")
    checks, findings = 0, []
    for result in report["results"]:
        if result["result"] not in ("pass", "fail"):
            continue
        checks += 1
        if result["result"] == "fail":
            (item,) = result["resources"]
            where = "/".join(part for part in (folder, item["kind"], item.get("namespace"), item["name"]) if part)
            rule = re.sub(r"^autogen-(cronjob-)?", "", result["rule"])
            findings.append(
                Finding("kyverno", f"{result['policy']}/{rule}", where, " ".join(result["message"].split()))
            )
    return Verdict("kyverno", version, judged, checks, tuple(findings))


def kubeconform(text: str, version: str, judged: str) -> Verdict:
    """`kubeconform -output json -verbose`: a status for each object. One whose kind has no schema is a finding."""
    checks, findings = 0, []
    for result in json.loads(text)["resources"]:
        checks += 1
        if result["status"] != "statusValid":
            where = "/".join(PurePosixPath(result["filename"]).parts[-2:])
            findings.append(
                Finding("kubeconform", result["status"].removeprefix("status").lower(), where, result["msg"])
            )
    return Verdict("kubeconform", version, judged, checks, tuple(findings))


_INVALID = re.compile(r"^ERROR +(?P<file>\S+) (?P<words>.*did not validate.*)$")
_VALID = re.compile(r"^INFO +(?P<file>\S+) passed for resource")


def kubernetes_validate(text: str, version: str, judged: str) -> Verdict:
    """`kubernetes-validate --strict`: a line for each object. An object of a kind without a schema is not counted."""
    checks, findings = 0, []
    for line in text.splitlines():
        invalid = _INVALID.match(line)
        checks += bool(invalid or _VALID.match(line))
        if invalid:
            where = "/".join(PurePosixPath(invalid["file"]).parts[-2:])
            findings.append(Finding("kubernetes-validate", "schema", where, invalid["words"]))
    return Verdict("kubernetes-validate", version, judged, checks, tuple(findings))


def promtool(answers: Sequence[tuple[str, str]], version: str, judged: str) -> Verdict:
    """Name of a rule file and what `promtool check rules --lint=all --lint-fatal` wrote about it."""
    checks, findings = 0, []
    for name, text in answers:
        success = re.search(r"SUCCESS: (\d+) rules? found", text)
        if success:
            checks += int(success[1])
        else:
            checks += 1
            findings.append(Finding("promtool", "rules", name, " ".join(text.split())))
    return Verdict("promtool", version, judged, checks, tuple(findings))


def actionlint(text: str, version: str, judged: str, files: int) -> Verdict:
    """`actionlint -format '{{json .}}'`, with shellcheck on the scripts inside."""
    findings = [
        Finding(
            "actionlint", problem["kind"], problem["filepath"], problem["message"], problem["filepath"], problem["line"]
        )
        for problem in json.loads(text)
    ]
    return Verdict("actionlint", version, judged, files, tuple(findings), counts_files=True)


def shellcheck(text: str, version: str, judged: str, files: int) -> Verdict:
    """`shellcheck --format json1`."""
    findings = [
        Finding(
            "shellcheck", f"SC{comment['code']}", comment["file"], comment["message"], comment["file"], comment["line"]
        )
        for comment in json.loads(text)["comments"]
    ]
    return Verdict("shellcheck", version, judged, files, tuple(findings), counts_files=True)


def zizmor(text: str, version: str, judged: str, files: int) -> Verdict:
    """`zizmor --format json-v1`; rows start at 0."""
    findings = []
    for audit_finding in json.loads(text):
        place = next(location for location in audit_finding["locations"] if location["symbolic"]["kind"] == "Primary")
        path = place["symbolic"]["key"]["Local"]["verbatim_path"]
        line = place["concrete"]["location"]["start_point"]["row"] + 1
        findings.append(Finding("zizmor", audit_finding["ident"], path, audit_finding["desc"], path, line))
    return Verdict("zizmor", version, judged, files, tuple(findings), counts_files=True)


def bandit(text: str, version: str, judged: str) -> Verdict:
    """`bandit --format json`."""
    answer = json.loads(text)
    if answer["errors"]:
        raise ValueError(f"bandit could not read {answer['errors'][0]}")
    findings = [
        Finding(
            "bandit",
            result["test_id"],
            result["filename"],
            result["issue_text"],
            result["filename"],
            result["line_number"],
        )
        for result in answer["results"]
    ]
    return Verdict("bandit", version, judged, len(answer["metrics"]) - 1, tuple(findings), counts_files=True)


def pip_audit(text: str, version: str, judged: str) -> Verdict:
    """`pip-audit --format json`. Raises SkippedJudge if it looked up no package: it ends with exit code 0 then too."""
    packages = json.loads(text)["dependencies"]
    checked_packages = [package for package in packages if "skip_reason" not in package]
    if not checked_packages:
        raise SkippedJudge("its service of advisories was not reached, so that it looked up no package")
    findings = [
        Finding(
            "pip-audit", advisory["id"], package["name"], f"{package['name']} {package['version']} has {advisory['id']}"
        )
        for package in checked_packages
        for advisory in package["vulns"]
    ]
    findings += [
        Finding("pip-audit", "not-looked-up", package["name"], package["skip_reason"])
        for package in packages
        if "skip_reason" in package
    ]
    return Verdict("pip-audit", version, judged, len(packages), tuple(findings))


def mypy(text: str, version: str, judged: str, files: int) -> Verdict:
    """`mypy --output json`: one JSON object a line."""
    findings = [
        Finding("mypy", error["code"] or "error", error["file"], error["message"], error["file"], error["line"])
        for error in map(json.loads, text.splitlines())
        if error["severity"] == "error"
    ]
    return Verdict("mypy", version, judged, files, tuple(findings), counts_files=True)


_MARKDOWN = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+):\d+: (?P<check>[A-Z]+\d+): (?P<words>.*)$")


def pymarkdown(text: str, version: str, judged: str, files: int, root: str) -> Verdict:
    """`pymarkdown scan`: a line for each finding."""
    return Verdict("pymarkdown", version, judged, files, tuple(_markdown(text, root)), counts_files=True)


def _markdown(text: str, root: str) -> Iterator[Finding]:
    for line in text.splitlines():
        match = _MARKDOWN.match(line)
        if match is None:
            raise ValueError(f"pymarkdown wrote {line!r}")
        # It prints absolute paths of files, whatever it was given.
        file = match["file"].removeprefix(f"{root}/")
        yield Finding("pymarkdown", match["check"], file, match["words"], file, int(match["line"]))


def trestle(text: str, version: str, judged: str, controls: int) -> Verdict:
    """`valid`, or what the models of OSCAL have against the document."""
    answer = text.strip()
    if not answer:
        raise ValueError("no answer")
    findings = () if answer == "valid" else (Finding("trestle", "oscal", "component-definition", answer[:400]),)
    return Verdict("trestle", version, judged, controls, findings)


def prowler(items: Sequence[Mapping[str, Any]], version: str, judged: str) -> Verdict:
    """`prowler kubernetes -M json-ocsf`. What it asks people to look at by hand (files of nodes) is no check."""
    checks, findings = 0, []
    for result in items:
        if result["status_code"] not in ("PASS", "FAIL"):
            continue
        checks += 1
        if result["status_code"] == "FAIL":
            (item,) = result["resources"]
            where = "/".join(part for part in (_namespace(item.get("namespace", "")), item["name"]) if part)
            findings.append(Finding("prowler", result["metadata"]["event_code"], where, result["status_detail"]))
    return Verdict("prowler", version, judged, checks, tuple(findings))


def _namespace(resource_text: str) -> str:
    name = resource_text.removeprefix("namespace: ")
    return "" if name == "cluster-wide" else name


def hardeneks(answer: Mapping[str, Any], version: str, judged: str) -> Verdict:
    """`hardeneks --export-json`: results by scope, pillar, section and rule. A rule is named by its sentence."""
    checks, findings = 0, []
    for pillars in answer.values():
        for sections in pillars.values():
            for rules in sections.values():
                for rule, results in rules.items():
                    for result in results:
                        checks += 1
                        findings += [
                            Finding(
                                "hardeneks", rule.rstrip("."), "/".join(filter(None, (result["namespace"], name))), rule
                            )
                            for name in (() if result["status"] else sorted(set(result["resources"])))
                        ]
    return Verdict("hardeneks", version, judged, checks, tuple(findings))


def nvidia(
    results: Sequence[Mapping[str, Any]],
    requested_checks: Sequence[str],
    ends: Mapping[str, str],
    version: str,
    judged: str,
) -> Verdict:
    """Results of ai-cloud-validation. A check that skipped itself, or passed as it was told nothing to compare with, is
    a finding: it has shown nothing. `ends` has what a check says where it first needs a container; its finding is then
    on `containers`, and every other on `lab`."""
    missing = sorted(set(requested_checks) - {result["name"] for result in results})
    if missing:
        raise ValueError(f"no result of {', '.join(missing)}")
    findings = []
    for result in results:
        message = " ".join(result["message"].split())
        if result["passed"] and not result["skipped"] and not message.startswith("Skipped"):
            continue
        end = ends.get(result["name"])
        where = "containers" if end and end in message and not result["passed"] else "lab"
        findings.append(Finding("nvidia", result["name"], where, message))
    return Verdict("nvidia", version, judged, len(results), tuple(findings))
