"""The API server's answers as lines for people, and as parts of JSON, SARIF and JUnit."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from tenancy.catalog.text import escape_invisible
from tenancy.check.admission.verdicts import Denial
from tenancy.check.answers import ObjectAnswer, ObjectAnswers, identities_of
from tenancy.planning.queueing.causes import WaitCause

WIDTH = 100
NEVER_STARTS = "never-starts"
"""Id of the result for work that is admitted and that the queue can never admit."""
_NAMED = 5
"""Objects that are named of those for which one reason holds."""


def lines(answers: ObjectAnswers, room: int) -> Iterator[str]:
    """Refusals in the words of what refuses, and once for each reason what is not decided; `room` limits the lines."""
    for identity, tenants in identities_of(answers.answers):
        yield escape_invisible(f"asked of {answers.environment} as {identity}, for {', '.join(tenants)}")
    refusals, left = answers.refusals, room
    for index, one in enumerate(refusals):
        block = list(_refusal(one))
        if index and len(block) > left:
            yield f"… and {len(refusals) - index} more refused: --all shows them"
            break
        left -= len(block)
        yield from block
    for one in answers.blocked:
        yield escape_invisible(f"  never starts  {one.object} ({one.place})")
        for cause in one.obstacles:
            yield from _wrapped(never_starts(one, cause), "            ")
    for reason, objects in answers.undecided.items():
        names = list(dict.fromkeys(one.object for one in objects))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield from _wrapped(f"not decided: {reason}: {', '.join(names[:_NAMED])}{more}", "")


def _refusal(one: ObjectAnswer) -> Iterator[str]:
    yield escape_invisible(f"  refused   {one.object} ({one.place})")
    for denial in one.verdict.denials:
        yield from _wrapped(said(denial), "            ")


def said(denial: Denial) -> str:
    """A denial with the component that denies."""
    return escape_invisible(f"{denial.component}: {denial.message}")


def never_starts(one: ObjectAnswer, cause: WaitCause) -> str:
    """Why the queue can never admit an object, and what to change."""
    sentence = str(cause)
    return escape_invisible(f"{one.verdict.outcome}, but {sentence[0].lower()}{sentence[1:]}")


def _wrapped(text: str, indent: str) -> list[str]:
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.wrap(escape_invisible(text))


def as_json(answers: ObjectAnswers) -> dict[str, Any]:
    """The answers as plain values."""
    return {
        "environment": answers.environment,
        "objects": [
            {
                "object": one.object,
                "tenant": one.tenant,
                "file": one.place.file,
                "line": one.place.line,
                "as": one.identity,
                "answer": one.verdict.outcome.value,
                "obstacles": [dataclasses.asdict(cause) for cause in one.obstacles],
                "denials": [dataclasses.asdict(denial) for denial in one.verdict.denials],
                "undecided": list(one.verdict.undecided),
            }
            for one in answers.answers
        ],
    }


def rule_of(denial: Denial) -> str:
    """Id under which a denial is reported: of its rule, or of the component that has none."""
    return denial.rule or denial.component


def result_ids(answers: ObjectAnswers) -> set[str]:
    """Ids under which the results of SARIF are reported."""
    refusals = {rule_of(denial) for one in answers.refusals for denial in one.verdict.denials}
    return refusals | ({NEVER_STARTS} if answers.blocked else set())


def sarif_results(answers: ObjectAnswers, ids: list[str]) -> Iterator[dict[str, Any]]:
    """A result for each denial, and for each reason why work never starts."""
    for one in answers.answers:
        for denial in one.verdict.denials:
            text = f"{answers.environment} refuses {one.object}: {said(denial)}"
            yield _sarif_result(one, rule_of(denial), ids, text, denial.component)
        for cause in one.obstacles:
            yield _sarif_result(one, NEVER_STARTS, ids, f"{one.object}: {never_starts(one, cause)}", cause.sentence)


def _sarif_result(one: ObjectAnswer, rule: str, ids: list[str], text: str, reason: str) -> dict[str, Any]:
    where = {"artifactLocation": {"uri": quote(one.place.file)}, "region": {"startLine": one.place.line}}
    return {
        "ruleId": rule,
        "ruleIndex": ids.index(rule),
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": where, "logicalLocations": [{"name": one.object, "kind": "object"}]}],
        "partialFingerprints": {"gpuTenancy/v1": f"{rule} {one.object} {reason}"},
    }


def junit_suite(answers: ObjectAnswers, root: ElementTree.Element) -> None:
    """A suite with a case for each object that was asked about."""
    failures = len(answers.refusals) + len(answers.blocked)
    undecided = [one for one in answers.answers if not one.refused and not one.obstacles and one.verdict.undecided]
    suite = ElementTree.SubElement(root, "testsuite", name=f"answers of {answers.environment}", errors="0")
    suite.attrib.update(tests=str(len(answers.answers)), failures=str(failures), skipped=str(len(undecided)))
    for one in answers.answers:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=escape_invisible(one.object),
            classname=escape_invisible(one.tenant),
            file=escape_invisible(one.place.file),
            line=str(one.place.line),
        )
        if one.refused:
            message = ", ".join(dict.fromkeys(map(rule_of, one.verdict.denials)))
            told = "\n".join(map(said, one.verdict.denials))
            ElementTree.SubElement(case, "failure", message=message, type="refused").text = told
        elif one.obstacles:
            told = "\n".join(never_starts(one, cause) for cause in one.obstacles)
            ElementTree.SubElement(case, "failure", message=NEVER_STARTS, type=NEVER_STARTS).text = told
        elif one.verdict.undecided:
            ElementTree.SubElement(
                case, "skipped", message=escape_invisible(f"not decided: {'; '.join(one.verdict.undecided)}")
            )
