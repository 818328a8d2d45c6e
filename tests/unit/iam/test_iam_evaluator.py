"""The evaluator answers what AWS documents, and says by what."""

from __future__ import annotations

import pytest

from tenancy.iam import evaluator
from tenancy.iam.conditions import PolicyError
from tenancy.iam.evaluator import Layer, Policies, all_of
from tenancy.iam.requests import ResourceClass, request, role_session
from tests.iam.vectors import FRAUD, SOURCES, vectors

VECTORS = vectors()
OTHERS = [name for name, vector in VECTORS.items() if vector.table != "conditions"]
READ = {"Sid": "Read", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bank/teams/fraud/*"}


def document(*statements: object) -> dict[str, object]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


@pytest.mark.parametrize("name", OTHERS)
def test_the_answer_is_what_aws_documents(name: str) -> None:
    assert VECTORS[name].wrong() == [], VECTORS[name].source


def test_every_vector_names_its_source() -> None:
    unknown = {v.name: v.source for v in VECTORS.values() if v.source.partition("#")[0].split()[0] not in SOURCES}
    assert unknown == {}


def test_every_source_is_used() -> None:
    used = {vector.source.partition("#")[0].split()[0] for vector in VECTORS.values()}
    assert used == set(SOURCES)


@pytest.mark.parametrize("layer", Layer)
def test_every_layer_refuses_in_some_vector_in_both_ways(layer: Layer) -> None:
    expected = [str(case["expect"]) for vector in VECTORS.values() for case in vector.cases]
    assert f"implicit deny: no {layer.value} allows it" in expected
    assert any(decision.startswith(f"explicit deny by {layer.value} ") for decision in expected)


@pytest.mark.parametrize(
    "row",
    [
        "GetObject own prefix / fraud-2",
        "ListBucket other prefix, StringLike s3:prefix",
        "ListBucket other prefix, StringEquals s3:prefix",
        "teams/fraud* reads teams/fraud-2/a",
        "ABAC ${aws:PrincipalTag/tenant} own",
        "Deny + Bool aws:SecureTransport=false",
        "Allow * + Deny NotResource own → other tenant",
        "only Deny NotResource → other tenant",
        "action case S3:getobject",
        "? wildcard",
        "AssumeRoleWithWebIdentity with wrong sub",
    ],
)
def test_what_moto_gets_wrong_is_a_vector(row: str) -> None:
    assert f"isolation-2.13 {row}" in {vector.source for vector in VECTORS.values()}


def test_a_decision_holds_the_statements_that_decided() -> None:
    decide = evaluator.compile(Policies(identity=[document(READ)]))
    decision = decide(request(role_session(FRAUD), "s3:GetObject", "arn:aws:s3:::bank/teams/fraud/a"))
    (statement,) = decision.by
    assert (decision.allowed, decision.explicit, statement.label, statement.layer) == (
        True,
        False,
        "Read",
        Layer.IDENTITY,
    )


def test_a_call_of_several_permissions_is_refused_by_the_first_that_is_missing() -> None:
    decide = evaluator.compile(Policies(identity=[document(READ, {**READ, "Sid": "Put", "Action": "s3:PutObject"})]))
    who = role_session(FRAUD)

    def copy(source: str) -> evaluator.Decision:
        target = request(who, "s3:PutObject", "arn:aws:s3:::bank/teams/fraud/copy")
        return all_of(decide, [request(who, "s3:GetObject", f"arn:aws:s3:::bank/teams/{source}/a"), target])

    assert copy("fraud").allowed
    assert str(copy("other")) == "implicit deny: no identity policy allows it"


def test_a_question_about_nothing_has_no_answer() -> None:
    with pytest.raises(ValueError, match="nothing was asked"):
        all_of(evaluator.compile(Policies()), [])


def test_documents_are_told_apart_by_their_place() -> None:
    unnamed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    decide = evaluator.compile(Policies(identity=[document(READ), document(unnamed)]))
    decision = decide(request(role_session(FRAUD), "s3:PutObject", "arn:aws:s3:::bank/a"))
    assert str(decision) == "allowed by identity policy [1][0]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Effect": "allow"}, "Effect is Allow or Deny"),
        ({"Actions": "s3:*"}, "no element of a statement"),
        ({"Condition": {"StringLike": {"s3:prefix": "${aws:username/*"}}}, "closing brace"),
        ({"Condition": {"StringLike": {"s3:prefix": "${}"}}}, "not a policy variable"),
        ({"Condition": {"Null": {"s3:prefix": "yes"}}}, "Null asks for true or false"),
    ],
)
def test_what_iam_would_not_take_is_said(change: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        evaluator.compile(Policies(identity=[document({**READ, **change})]))


def test_an_unknown_version_is_no_policy() -> None:
    with pytest.raises(PolicyError, match="2026-01-01"):
        evaluator.compile(Policies(identity=[{"Version": "2026-01-01", "Statement": []}]))


def test_kinds_of_principals_that_are_not_read_are_said() -> None:
    canonical = {**READ, "Principal": {"CanonicalUser": "79a59df9"}}
    with pytest.raises(PolicyError, match="CanonicalUser"):
        evaluator.compile(Policies(resource=document(canonical), guard=ResourceClass.ORDINARY))
