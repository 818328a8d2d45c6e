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
from tenancy.check.reader import FilePosition
from tenancy.planning.queueing.causes import WaitCause

WIDTH = 100
NEVER_STARTS = "never-starts"
"""Id of the result for work that is admitted and that the queue can never admit."""
_LISTED_OBJECTS = 5
"""Objects that are named of those for which one reason holds."""


def lines(answers: ObjectAnswers, room: int) -> Iterator[str]:
    """Refusals in the words of what refuses, and once for each reason what is not decided; `room` limits the lines."""
    for identity, tenants in identities_of(answers.answers):
        yield escape_invisible(f"asked of {answers.environment} as {identity}, for {', '.join(tenants)}")
    refusals, remaining_lines = answers.refusals, room
    for index, answer in enumerate(refusals):
        block = list(_refusal(answer))
        if index and len(block) > remaining_lines:
            yield f"… and {len(refusals) - index} more refused: --all shows them"
            break
        remaining_lines -= len(block)
        yield from block
    for answer in answers.blocked:
        yield escape_invisible(f"  never starts  {answer.object} ({answer.place})")
        for cause in answer.obstacles:
            yield from _wrapped(never_starts(answer, cause), "            ")
    for reason, objects in answers.undecided.items():
        names = list(dict.fromkeys(answer.object for answer in objects))
        more = f" and {len(names) - _LISTED_OBJECTS} more" if len(names) > _LISTED_OBJECTS else ""
        yield from _wrapped(f"not decided: {reason}: {', '.join(names[:_LISTED_OBJECTS])}{more}", "")


def _refusal(answer: ObjectAnswer) -> Iterator[str]:
    yield escape_invisible(f"  refused   {answer.object} ({answer.place})")
    for denial in answer.verdict.denials:
        yield from _wrapped(denial_text(denial), "            ")


def denial_text(denial: Denial) -> str:
    """A denial with the component that denies."""
    return escape_invisible(f"{denial.component}: {denial.message}")


def never_starts(answer: ObjectAnswer, cause: WaitCause) -> str:
    """Why the queue can never admit an object, and what to change."""
    sentence = str(cause)
    return escape_invisible(f"{answer.verdict.outcome}, but {sentence[0].lower()}{sentence[1:]}")


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
                "object": answer.object,
                "tenant": answer.tenant,
                "file": answer.place.file,
                "line": answer.place.line,
                "as": answer.identity,
                "answer": answer.verdict.outcome.value,
                "obstacles": [dataclasses.asdict(cause) for cause in answer.obstacles],
                "denials": [dataclasses.asdict(denial) for denial in answer.verdict.denials],
                "undecided": list(answer.verdict.undecided),
            }
            for answer in answers.answers
        ],
    }


def rule_of(denial: Denial) -> str:
    """Id under which a denial is reported: of its rule, or of the component that has none."""
    return denial.rule or denial.component


def result_ids(answers: ObjectAnswers) -> set[str]:
    """Ids under which the results of SARIF are reported."""
    refusals = {rule_of(denial) for answer in answers.refusals for denial in answer.verdict.denials}
    return refusals | ({NEVER_STARTS} if answers.blocked else set())


def sarif_results(answers: ObjectAnswers, ids: list[str]) -> Iterator[dict[str, Any]]:
    """A result for each denial, and for each reason why work never starts."""
    for answer in answers.answers:
        for denial in answer.verdict.denials:
            text = f"{answers.environment} refuses {answer.object}: {denial_text(denial)}"
            yield _sarif_result(answer, rule_of(denial), ids, text, denial.component)
        for cause in answer.obstacles:
            yield _sarif_result(
                answer, NEVER_STARTS, ids, f"{answer.object}: {never_starts(answer, cause)}", cause.sentence
            )


def _sarif_result(answer: ObjectAnswer, rule: str, ids: list[str], text: str, reason: str) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "ruleIndex": ids.index(rule),
        "level": "error",
        "message": {"text": text},
        "locations": [location(answer.place, answer.object)],
        "partialFingerprints": {"gpuTenancy/v1": f"{rule} {answer.object} {reason}"},
    }


def location(place: FilePosition, what: str) -> dict[str, Any]:
    """The place of an object, for SARIF."""
    where = {"artifactLocation": {"uri": quote(place.file)}, "region": {"startLine": place.line}}
    return {"physicalLocation": where, "logicalLocations": [{"name": what, "kind": "object"}]}


def junit_suite(answers: ObjectAnswers, root: ElementTree.Element) -> None:
    """A suite with a case for each object that was asked about."""
    suite = ElementTree.SubElement(root, "testsuite", name=f"answers of {answers.environment}")
    for answer in answers.answers:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=escape_invisible(answer.object),
            classname=escape_invisible(answer.tenant),
            file=escape_invisible(answer.place.file),
            line=str(answer.place.line),
        )
        if answer.refused:
            message = ", ".join(dict.fromkeys(map(rule_of, answer.verdict.denials)))
            text = "\n".join(map(denial_text, answer.verdict.denials))
            ElementTree.SubElement(case, "failure", message=message, type="refused").text = text
        elif answer.obstacles:
            text = "\n".join(never_starts(answer, cause) for cause in answer.obstacles)
            ElementTree.SubElement(case, "failure", message=NEVER_STARTS, type=NEVER_STARTS).text = text
        elif answer.verdict.undecided:
            ElementTree.SubElement(
                case, "skipped", message=escape_invisible(f"not decided: {'; '.join(answer.verdict.undecided)}")
            )
