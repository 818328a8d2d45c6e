"""Requests whose answer AWS documents, and the pages that say so: what the evaluator is judged by.

In the tables a document is a list of statements of version 2012-10-17 unless `version` says another; who asks is a
session of `FRAUD` unless `as` says another. `expect` is the decision as text; of a condition, whether it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tenancy.iam import evaluator, requests
from tenancy.iam.conditions import PolicyError, Undocumented
from tests.conftest import documents

FRAUD = "arn:aws:iam::111122223333:role/fraud"

_GUIDE = "https://docs.aws.amazon.com/IAM/latest/UserGuide/"
SOURCES = {
    "action": f"{_GUIDE}reference_policies_elements_action.html",
    "accounts": f"{_GUIDE}reference_policies_evaluation-logic-cross-account.html",
    "boundaries": f"{_GUIDE}access_policies_boundaries.html",
    "condition": f"{_GUIDE}reference_policies_elements_condition.html",
    "decision": f"{_GUIDE}reference_policies_evaluation-logic_policy-eval-denyallow.html",
    "logic": f"{_GUIDE}reference_policies_condition-logic-multiple-context-keys-or-values.html",
    "notaction": f"{_GUIDE}reference_policies_elements_notaction.html",
    "notprincipal": f"{_GUIDE}reference_policies_elements_notprincipal.html",
    "notresource": f"{_GUIDE}reference_policies_elements_notresource.html",
    "operators": f"{_GUIDE}reference_policies_elements_condition_operators.html",
    "principal": f"{_GUIDE}reference_policies_elements_principal.html",
    "resource": f"{_GUIDE}reference_policies_elements_resource.html",
    "sets": f"{_GUIDE}reference_policies_condition-single-vs-multi-valued-context-keys.html",
    "assume": "https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html",
    "tags": f"{_GUIDE}id_session-tags.html",
    "variables": f"{_GUIDE}reference_policies_variables.html",
    "version": f"{_GUIDE}reference_policies_elements_version.html",
    "key": "https://docs.aws.amazon.com/kms/latest/developerguide/key-policies.html",
    "key-default": "https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-default.html",
    "pod-identity": "https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html",
    "rcp": "https://docs.aws.amazon.com/organizations/latest/userguide/orgs_manage_policies_rcps.html",
    "s3-copy": "https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html",
    "s3-delete": "https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html",
    "scp": "https://docs.aws.amazon.com/organizations/latest/userguide/orgs_manage_policies_scps.html",
    "scp-evaluation": "https://docs.aws.amazon.com/organizations/latest/userguide/"
    "orgs_manage_policies_scps_evaluation.html",
    "isolation-2.11": "isolation.md §2.11",
    "isolation-2.13": "isolation.md §2.13",
}
UNDOCUMENTED, REFUSED = "undocumented", "no policy"


@dataclass(frozen=True, slots=True)
class Vector:
    table: str
    name: str
    source: str
    policies: Mapping[str, Any]
    cases: tuple[Mapping[str, Any], ...]

    def wrong(self) -> list[str]:
        """What the evaluator answers otherwise than AWS documents."""
        found = []
        for case in self.cases:
            answer = _answer(self.policies, case)
            expected = case["expect"]
            if isinstance(expected, bool):
                answer = answer.startswith("allowed") if answer.startswith(("allowed", "implicit")) else answer
            if answer != expected:
                found.append(f"{case}: {answer}")
        return found


def _answer(policies: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    try:
        return str(evaluator.compile(_policies(policies))(_request(case)))
    except Undocumented:
        return UNDOCUMENTED
    except PolicyError:
        return REFUSED


def _policies(written: Mapping[str, Any]) -> evaluator.Policies:
    version = written.get("version", "2012-10-17")

    def document(statements: Any) -> dict[str, Any]:
        return {**({"Version": version} if version else {}), "Statement": statements}

    def documents(name: str) -> list[Any]:
        return [document(written[name])] if name in written else []

    def levels(name: str) -> list[list[Any]]:
        return [[document(level)] if level else [] for level in written.get(name, [])]

    return evaluator.Policies(
        identity=documents("identity"),
        boundary=document(written["boundary"]) if "boundary" in written else None,
        session=documents("session"),
        scps=levels("scps"),
        rcps=levels("rcps"),
        resource=document(written["resource"]) if "resource" in written else None,
        guard=requests.ResourceClass[written.get("guard", "ordinary").upper()],
    )


def _request(case: Mapping[str, Any]) -> requests.AwsRequest:
    context = {
        name: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
        for name, value in case["context"].items()
    }
    who = principal(case.get("as") or {})
    return requests.request(who, case["action"], case["resource"], context, resource_account=case.get("account"))


def principal(written: Mapping[str, Any]) -> requests.Principal:
    if "service" in written:
        return requests.service(written["service"])
    if "federated" in written:
        return requests.federated(written["federated"])
    if "anonymous" in written:
        return requests.ANONYMOUS
    if "user" in written:
        return requests.user(written["user"], tags=written.get("tags"), organisation=written.get("organisation"))
    return requests.role_session(
        written.get("role", FRAUD),
        written.get("session", "session"),
        tags=written.get("tags"),
        session_tags=written.get("session-tags"),
        organisation=written.get("organisation"),
    )


@cache
def vectors() -> dict[str, Vector]:
    """Every vector by its name."""
    made: dict[str, Vector] = {}
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        for vector in _of_file(file):
            if vector.name in made:
                raise ValueError(f"two vectors of one name (given {vector.name!r} in {file.name})")
            made[vector.name] = vector
    return made


def _of_file(file: Path) -> Iterator[Vector]:
    for written in documents(file.read_text("utf-8"))[0]:
        if "condition" in written:
            allow = {"Sid": "Condition", "Effect": "Allow", "Action": "*", "Resource": "*"}
            policies = {"identity": [{**allow, "Condition": written["condition"]}]}
            cases = [{"context": context, "expect": expect} for context, expect in written["cases"]]
        else:
            policies, cases = written["policies"], written["cases"]
        common = {
            "action": "s3:GetObject",
            "resource": "arn:aws:s3:::bank/key",
            "context": {},
            **written.get("ask", {}),
        }
        yield Vector(
            file.stem, written["name"], written["source"], policies, tuple({**common, **case} for case in cases)
        )
