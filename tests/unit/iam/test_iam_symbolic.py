"""Evaluator and prover judge each other: what one finds the other allows, what one excludes the other never allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from tenancy.iam import evaluator, requests
from tenancy.iam.conditions import Undocumented
from tenancy.iam.evaluator import Grant, Policies
from tenancy.iam.requests import ANONYMOUS, Principal, ResourceClass, request, role_session, service, user
from tests.conftest import examples
from tests.iam import symbolic
from tests.iam.symbolic import (
    CannotTell,
    Region,
    Witness,
    counterexample,
    literal,
    pattern,
    shortest_word,
)

FRAUD = role_session("arn:aws:iam::111122223333:role/fraud", tags={"tenant": "fraud"})
BANK = "arn:aws:s3:::bank"
OTHERS_OBJECTS = Region(resources=(f"{BANK}/teams/fraud-2/*",))
OTHERS_LIST = Region(actions=("s3:ListBucket",), resources=(BANK,), keys={"s3:prefix": ("teams/fraud-2/*", "", None)})
READ = {
    "Sid": "Read",
    "Effect": "Allow",
    "Action": ["s3:GetObject", "s3:PutObject"],
    "Resource": f"{BANK}/teams/fraud/*",
}
LIST = {"Sid": "List", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": BANK}


def document(*statements: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def of_identity(*statements: Any) -> Policies:
    return Policies(identity=[document(*statements)])


def listing(operator: str, *values: str) -> dict[str, Any]:
    return {**LIST, "Condition": {operator: {"s3:prefix": list(values)}}}


def allowed(policies: Policies, witness: Witness) -> bool:
    return evaluator.compile(policies)(witness.request).allowed


# Words


@pytest.mark.parametrize(
    ("required", "unwanted", "word"),
    [
        (["a*"], [], "a"),
        (["a*", "*b"], [], "ab"),
        (["?b*", "a*"], ["ab"], "aba"),
        (["teams/fraud/*"], ["teams/fraud/*"], None),
        (["teams/fraud*"], ["teams/fraud/*", "teams/fraud"], "teams/frauda"),
        (["*"], ["?*"], ""),
        (["*"], ["*"], None),
        (["a?", "?b"], ["ab"], None),
    ],
)
def test_the_shortest_word_is_found(required: list[str], unwanted: list[str], word: str | None) -> None:
    shortest = shortest_word(tuple((pattern(text),) for text in required), tuple(pattern(text) for text in unwanted))
    assert (shortest is None) == (word is None)
    assert shortest is None or len(shortest) == len(word or "")
    assert shortest is None or all(fnmatchcase(shortest, text) for text in required)


SMALL = st.text("ab*?", max_size=5)
WORDS = ["".join(letters) for length in range(6) for letters in itertools.product("abc", repeat=length)]


@given(st.lists(st.lists(SMALL, min_size=1, max_size=2), min_size=1, max_size=2), st.lists(SMALL, max_size=2))
def test_no_shorter_word_is_overlooked(clauses: list[list[str]], unwanted: list[str]) -> None:
    """Against all words of up to five letters, `c` for those that no pattern names."""
    shortest = shortest_word(
        tuple(tuple(pattern(text) for text in clause) for clause in clauses), tuple(pattern(text) for text in unwanted)
    )

    def matches(word: str) -> bool:
        return all(any(fnmatchcase(word, text) for text in clause) for clause in clauses) and not any(
            fnmatchcase(word, text) for text in unwanted
        )

    first = next(filter(matches, WORDS), None)
    assert shortest is None or matches(shortest)
    assert first is None or (shortest is not None and len(shortest) == len(first))
    assert shortest is None or len(shortest) > 5 or first is not None


# What tenants reach


@pytest.mark.parametrize(
    ("statement", "region"),
    [
        pytest.param({**READ, "Resource": f"{BANK}/teams/fraud*"}, OTHERS_OBJECTS, id="prefix without its slash"),
        pytest.param({**READ, "Resource": "*"}, OTHERS_OBJECTS, id="any object"),
        pytest.param({**READ, "Resource": f"{BANK}/teams/fraud?2/*"}, OTHERS_OBJECTS, id="one letter of the name"),
        pytest.param(
            {**READ, "Resource": f"{BANK}/teams/${{aws:PrincipalTag/tenant}}*"}, OTHERS_OBJECTS, id="tag without slash"
        ),
        pytest.param({"Effect": "Allow", "NotAction": "s3:GetObject", "Resource": "*"}, OTHERS_OBJECTS, id="NotAction"),
        pytest.param(
            {"Effect": "Allow", "Action": "s3:*", "NotResource": f"{BANK}/hr/*"}, OTHERS_OBJECTS, id="NotResource"
        ),
        pytest.param(LIST, OTHERS_LIST, id="listing without condition"),
        pytest.param(listing("ForAllValues:StringLike", "teams/fraud/*"), OTHERS_LIST, id="ForAllValues"),
        pytest.param(listing("StringLikeIfExists", "teams/fraud/*"), OTHERS_LIST, id="IfExists"),
        pytest.param(listing("StringLike", "teams/fraud*"), OTHERS_LIST, id="listing without slash"),
        pytest.param(listing("StringNotLike", "hr/*"), OTHERS_LIST, id="listing of all but one"),
        pytest.param(listing("StringEquals", ""), OTHERS_LIST, id="listing of the top"),
        pytest.param(listing("Null", "true"), OTHERS_LIST, id="listing without prefix"),
    ],
)
def test_a_hole_between_tenants_is_found(statement: dict[str, Any], region: Region) -> None:
    policies = of_identity(statement)
    witness = counterexample(policies, FRAUD, region)
    assert witness is not None
    assert allowed(policies, witness)


@pytest.mark.parametrize(
    ("statements", "region"),
    [
        pytest.param([READ], OTHERS_OBJECTS, id="own objects"),
        pytest.param(
            [{**READ, "Resource": f"{BANK}/teams/${{aws:PrincipalTag/tenant}}/*"}], OTHERS_OBJECTS, id="by tag"
        ),
        pytest.param(
            [{**READ, "Resource": f"{BANK}/teams/${{aws:PrincipalTag/none}}*"}], OTHERS_OBJECTS, id="by no tag"
        ),
        pytest.param([listing("StringLike", "teams/fraud/*")], OTHERS_LIST, id="own listing"),
        pytest.param([listing("StringEquals", "teams/fraud*")], OTHERS_LIST, id="a listing that is dead"),
        pytest.param([listing("ForAnyValue:StringLike", "teams/fraud/*", "")], OTHERS_LIST, id="ForAnyValue"),
        pytest.param(
            [
                {**READ, "Resource": "*"},
                {"Effect": "Deny", "Action": "*", "NotResource": f"{BANK}/teams/fraud/*"},
            ],
            OTHERS_OBJECTS,
            id="all but what is denied",
        ),
        pytest.param(
            [LIST, {**listing("StringNotLike", "teams/fraud/*"), "Effect": "Deny"}], OTHERS_LIST, id="listing denied"
        ),
    ],
)
def test_what_is_closed_is_proven(statements: list[dict[str, Any]], region: Region) -> None:
    assert counterexample(of_identity(*statements), FRAUD, region) is None


def test_the_counterexample_is_the_shortest_and_says_what_allows_it() -> None:
    witness = counterexample(of_identity({**READ, "Resource": f"{BANK}/teams/fraud*"}), FRAUD, OTHERS_OBJECTS)
    assert str(witness) == f"s3:getobject on {BANK}/teams/fraud-2/: allowed by identity policy Read"


def test_a_case_is_split_by_the_choices_that_are_given() -> None:
    """Only unencrypted, or only through the endpoint."""
    tls = {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    endpoint = {**READ, "Condition": {"StringEquals": {"aws:SourceVpce": "vpce-1"}}}
    region = Region(resources=(f"{BANK}/*",))
    open_ = counterexample(of_identity(endpoint, tls), FRAUD, region)
    assert open_ is not None
    assert open_.context == {"aws:securetransport": "true", "aws:sourcevpce": "vpce-1"}
    unencrypted = {"aws:SecureTransport": ("false",)}
    assert counterexample(of_identity(endpoint, tls), FRAUD, region, choices=unencrypted) is None
    elsewhere = {"aws:SourceVpce": ("vpce-2", None)}
    assert counterexample(of_identity(endpoint, tls), FRAUD, region, choices=elsewhere) is None


def test_a_choice_holds_where_the_region_alone_asks_for_its_key() -> None:
    region = Region(resources=(f"{BANK}/*",), keys={"aws:SourceVpce": ("vpce-1",)})
    assert counterexample(of_identity(READ), FRAUD, region, choices={"aws:SourceVpce": ("vpce-2",)}) is None
    assert counterexample(of_identity(READ), FRAUD, region, choices={"aws:SourceVpce": ("vpce-1",)}) is not None


@pytest.mark.parametrize(
    "condition",
    [
        {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
        {"ForAllValues:StringEquals": {"aws:TagKeys": "team"}},
        {"ForAnyValue:StringEqualsIfExists": {"s3:prefix": "a"}},
        {"StringEqualsIgnoreCase": {"s3:prefix": "a"}},
        {"StringEquals": {"s3:prefix": "${aws:userid}"}},
        {"NumericLessThan": {"s3:max-keys": "10"}},
    ],
)
@pytest.mark.parametrize("effect", ["Allow", "Deny"])
def test_what_cannot_be_decided_is_said(condition: dict[str, Any], effect: str) -> None:
    undecided = {**READ, "Resource": "*", "Effect": effect, "Sid": "Doubt", "Condition": condition}
    statements = [undecided] if effect == "Allow" else [{**READ, "Resource": "*"}, undecided]
    with pytest.raises(CannotTell, match="Doubt"):
        counterexample(of_identity(*statements), FRAUD, OTHERS_OBJECTS)


def test_an_unknown_variable_in_a_resource_is_said() -> None:
    with pytest.raises(CannotTell, match="userid"):
        counterexample(of_identity({**READ, "Resource": f"{BANK}/teams/${{aws:userid}}/*"}), FRAUD, OTHERS_OBJECTS)


def test_an_empty_value_under_null_is_said() -> None:
    """AWS does not document whether it is null."""
    region = Region(actions=("s3:ListBucket",), resources=(BANK,), keys={"s3:prefix": ("",)})
    with pytest.raises(CannotTell, match="empty value"):
        counterexample(of_identity(listing("Null", "true")), FRAUD, region)


def test_what_cannot_be_decided_does_not_matter_where_nothing_hangs_on_it() -> None:
    doubt = {**READ, "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}
    assert counterexample(of_identity(doubt), FRAUD, OTHERS_OBJECTS) is None, "its resources are others"
    sure = counterexample(of_identity(doubt, {**READ, "Resource": "*"}), FRAUD, OTHERS_OBJECTS)
    assert sure is not None, "another statement allows it for sure"


@pytest.mark.parametrize(
    ("value", "reached"),
    [("arn:aws:iam::111122223333:role/fr*", True), ("arn:aws:iam::*:role/other", False)],
)
def test_an_operator_on_what_is_known_of_the_principal_is_decided(value: str, reached: bool) -> None:
    statement = {**READ, "Resource": "*", "Condition": {"ArnLike": {"aws:PrincipalArn": value}}}
    assert (counterexample(of_identity(statement), FRAUD, OTHERS_OBJECTS) is not None) is reached


def test_arns_that_are_not_known_are_compared_by_component() -> None:
    source = {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:111122223333:t*"}}
    policies = of_identity({**READ, "Condition": source})
    searched_region = Region(resources=(f"{BANK}/*",), keys={"aws:SourceArn": ("arn:aws:sns:*:444455556666:*",)})
    assert counterexample(policies, FRAUD, searched_region) is not None, "the fifth colon may be in the resource"
    for elsewhere in ("arn:aws:sqs:*", "arn:aws:sns:eu-central-1:444455556666:a:111122223333:t"):
        region = Region(resources=(f"{BANK}/*",), keys={"aws:SourceArn": (elsewhere,)})
        assert counterexample(policies, FRAUD, region) is None, elsewhere


# Each judges the other

ACCOUNT, STRANGER = "111122223333", "444455556666"
WHO = [
    FRAUD,
    role_session(f"arn:aws:iam::{ACCOUNT}:role/fraud", "night", tags={"t": "a"}),
    role_session(f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x/linked"),
    user(f"arn:aws:iam::{ACCOUNT}:user/bob", tags={"t": "b"}),
    service("events.amazonaws.com"),
    ANONYMOUS,
]
NAMES = [
    "*",
    {"AWS": "*"},
    {"AWS": ACCOUNT},
    {"AWS": f"arn:aws:iam::{ACCOUNT}:role/fraud"},
    {"AWS": [f"arn:aws:iam::{ACCOUNT}:role/fraud", f"arn:aws:iam::{ACCOUNT}:root"]},
    {"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/fraud/night"},
    {"AWS": f"arn:aws:iam::{ACCOUNT}:user/bob"},
    {"Service": "events.amazonaws.com"},
]
ACTIONS = ["s3:GetObject", "S3:get*", "s3:*", "s3:ListBucket", "*", "s3:Put?bject"]
ASKED_ACTIONS = ["s3:getobject", "s3:putobject", "s3:listbucket"]
TEXT = st.lists(st.sampled_from(["a", "b", "/", "*", "?"]), max_size=4).map("".join)
TEMPLATE = st.lists(
    st.sampled_from(["a", "b", "/", "*", "?", "${aws:PrincipalTag/t}", "${aws:PrincipalTag/t, 'a'}", "${*}"]),
    max_size=3,
).map("".join)
RESOURCES = st.one_of(st.sampled_from(["*", "arn:*:b", "arn:aws:s3:::b"]), TEMPLATE.map("arn:aws:s3:::b/{}".format))
STRINGS = ["StringEquals", "StringLike", "StringNotEquals", "StringNotLike"]
OPERATORS = [
    *STRINGS,
    *(f"{operator}IfExists" for operator in STRINGS),
    *(f"{qualifier}:{operator}" for qualifier in ("ForAllValues", "ForAnyValue") for operator in STRINGS),
]
PLAIN = st.one_of(
    st.tuples(st.sampled_from(OPERATORS[:8]), st.just("s3:prefix"), st.lists(TEMPLATE, min_size=1, max_size=2)),
    st.tuples(st.sampled_from(STRINGS), st.just("S3:Prefix"), TEMPLATE),
    st.tuples(st.just("Bool"), st.just("aws:SecureTransport"), st.sampled_from(["true", "false"])),
    st.tuples(st.sampled_from(STRINGS), st.just("aws:SourceVpce"), st.sampled_from(["v-a", "v-?"])),
    st.tuples(st.sampled_from(STRINGS), st.just("aws:PrincipalTag/t"), st.sampled_from(["a", "b", "?"])),
    st.tuples(
        st.sampled_from(["ArnLike", "ArnNotEquals"]),
        st.just("aws:SourceArn"),
        st.sampled_from(["arn:aws:s3:*:*:b", "arn:aws:s?:::*"]),
    ),
)
SPECIAL = st.one_of(
    st.tuples(st.sampled_from(OPERATORS[8:]), st.just("s3:prefix"), st.lists(TEMPLATE, min_size=1, max_size=2)),
    st.tuples(st.just("Null"), st.just("s3:prefix"), st.sampled_from(["true", "false"])),
    st.tuples(st.just("IpAddress"), st.just("aws:SourceIp"), st.just("10.0.0.0/8")),
)
CONTEXTS = st.fixed_dictionaries(
    {"aws:SecureTransport": st.booleans()},
    optional={
        "s3:prefix": st.text("ab/*", max_size=3),
        "aws:SourceVpce": st.sampled_from(["v-a", "v-b", "w"]),
        "aws:SourceArn": st.sampled_from(["arn:aws:s3:::b", "arn:aws:sq:::b", "arn:aws:s3:a:b:c:b", "x"]),
        "aws:SourceIp": st.sampled_from(["10.1.1.1", "11.1.1.1"]),
    },
)


@st.composite
def statements(
    draw: st.DrawFn, *, principals: bool = False, asks: st.SearchStrategy[Any] = PLAIN | SPECIAL
) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "Effect": draw(st.sampled_from(["Allow", "Allow", "Deny"])),
        draw(st.sampled_from(["Action", "Action", "NotAction"])): draw(
            st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=2)
        ),
        draw(st.sampled_from(["Resource", "Resource", "NotResource"])): draw(
            st.lists(RESOURCES, min_size=1, max_size=2)
        ),
    }
    for operator, key, value in draw(st.lists(asks, max_size=2)):
        statement.setdefault("Condition", {}).setdefault(operator, {})[key] = value
    if principals:
        elements = ["Principal", "Principal", "NotPrincipal"] if statement["Effect"] == "Deny" else ["Principal"]
        statement[draw(st.sampled_from(elements))] = draw(st.sampled_from(NAMES))
    return statement


DOCUMENTS = st.lists(statements(), min_size=1, max_size=3).map(lambda items: document(*items))
WIDE = st.just(document({"Effect": "Allow", "Action": "*", "Resource": "*"}))
CEILINGS = st.one_of(WIDE, DOCUMENTS)
POLICIES = st.builds(
    Policies,
    identity=st.lists(CEILINGS, max_size=2),
    boundary=st.none() | CEILINGS,
    session=st.lists(CEILINGS, max_size=1),
    scps=st.lists(st.lists(CEILINGS, max_size=1), max_size=2),
    rcps=st.just(()),
    resource=st.none() | st.lists(statements(principals=True), min_size=1, max_size=3).map(lambda s: document(*s)),
    guard=st.sampled_from([ResourceClass.ORDINARY, ResourceClass.ORDINARY, ResourceClass.KEY]),
)
REGIONS = st.builds(
    Region,
    actions=st.just(tuple(ASKED_ACTIONS)),
    resources=st.one_of(
        st.just(("arn:aws:s3:::b*",)), TEXT.map(lambda text: (f"arn:aws:s3:::b/{text}", "arn:aws:s3:::b"))
    ),
    keys=st.one_of(st.just({}), st.fixed_dictionaries({"s3:prefix": st.tuples(st.none() | TEXT, TEXT)})),
)


def within(region: Region, aws_request: requests.AwsRequest) -> bool:
    def one_of(value: Any, patterns: Iterable[str | None]) -> bool:
        return any(
            value is None if accepted_pattern is None else value is not None and fnmatchcase(value, accepted_pattern)
            for accepted_pattern in patterns
        )

    return (
        one_of(aws_request.action.lower(), region.actions)
        and one_of(aws_request.resource, region.resources)
        and all(one_of(aws_request.keys.get(key), patterns) for key, patterns in region.keys.items())
    )


class Scene(NamedTuple):
    policies: Policies
    who: Principal
    region: Region
    account: str
    contexts: list[dict[str, Any]]


SCENES = st.builds(
    Scene,
    POLICIES,
    st.sampled_from(WHO),
    REGIONS,
    st.sampled_from([ACCOUNT, ACCOUNT, STRANGER]),
    st.lists(CONTEXTS, min_size=3, max_size=3),
)


def of_one_layer(asks: st.SearchStrategy[Any]) -> st.SearchStrategy[Scene]:
    policies = st.lists(statements(asks=asks), min_size=1, max_size=3).map(lambda items: of_identity(*items))
    contexts = st.lists(CONTEXTS, min_size=4, max_size=4)
    return st.builds(Scene, policies, st.sampled_from(WHO[:2]), REGIONS, st.just(ACCOUNT), contexts)


SUFFIXES = ["", *("/" + "".join(letters) for n in range(3) for letters in itertools.product("ab/", repeat=n))]


def searched(scene: Scene) -> Witness | None:
    return counterexample(scene.policies, scene.who, scene.region, resource_account=scene.account)


def asked_in(scene: Scene) -> Iterator[tuple[requests.AwsRequest, dict[str, Any]]]:
    """Requests of a scene's region, each with its context."""
    for action, suffix, context in itertools.product(ASKED_ACTIONS, SUFFIXES, scene.contexts):
        aws_request = request(scene.who, action, f"arn:aws:s3:::b{suffix}", context, resource_account=scene.account)
        if within(scene.region, aws_request):
            yield aws_request, context


def contradiction(scene: Scene) -> str | None:
    """A contradiction between prover and evaluator."""
    try:
        witness = searched(scene)
    except (CannotTell, Undocumented):
        return None
    decide = evaluator.compile(scene.policies)
    if witness and not within(scene.region, witness.request):
        return f"{witness}, which is outside of the region"
    try:
        decision = decide(witness.request) if witness else None
    except Undocumented:
        return None
    if decision and not decision.allowed:
        return f"{witness}; but {decision}"
    for aws_request, context in asked_in(scene):
        try:
            decision = decide(aws_request)
        except Undocumented:
            continue
        if decision.allowed and not witness:
            return f"nothing is found; but {aws_request.action} on {aws_request.resource} with {context} is {decision}"
    return None


PATIENT = settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])


@PATIENT
@given(SCENES)
def test_prover_and_evaluator_agree(scene: Scene) -> None:
    assert contradiction(scene) is None


@PATIENT
@given(of_one_layer(PLAIN))
def test_nothing_shorter_than_the_counterexample_is_allowed(scene: Scene) -> None:
    """Only where all is decided: elsewhere the witness is a sure one, and another may be shorter."""
    witness = searched(scene)
    decide = evaluator.compile(scene.policies)
    for aws_request, context in asked_in(scene):
        length = (
            len(aws_request.action) + len(aws_request.resource) + sum(len(str(value)) for value in context.values())
        )
        if decide(aws_request).allowed:
            assert witness is not None
            assert witness.length <= length


_past, _ways, _word = symbolic._past, symbolic._Reader.ways, symbolic.shortest_word


@pytest.mark.parametrize(
    ("scenes", "place", "name", "fault"),
    [
        pytest.param(SCENES, symbolic, "_past", lambda parts, _denies: _past(parts, []), id="no Deny"),
        pytest.param(SCENES, symbolic, "shortest_word", lambda clauses, *_: _word(clauses), id="nothing unwanted"),
        pytest.param(
            SCENES,
            symbolic,
            "shortest_word",
            lambda clauses, *unwanted: _word(clauses[:1], *unwanted),
            id="one clause alone",
        ),
        pytest.param(
            of_one_layer(PLAIN),
            symbolic.Part,
            "negated",
            lambda part: replace(part, matches=not part.matches),
            id="a Deny without a key",
            marks=pytest.mark.exhaustive(reason="one fault more; `make test` has the others of this table"),
        ),
        pytest.param(
            of_one_layer(SPECIAL),
            symbolic._Reader,
            "_of_set",
            staticmethod(lambda _name, part: [part]),
            id="sets as single values",
        ),
        pytest.param(
            of_one_layer(SPECIAL),
            symbolic._Reader,
            "_null",
            staticmethod(lambda key, _truth_values, **_: symbolic.Part(key, (), absent=True)),
            id="Null false as Null true",
        ),
        pytest.param(
            SCENES,
            symbolic._Reader,
            "_spared",
            lambda _reader, _layer: False,
            id="SCPs for all",
            marks=pytest.mark.exhaustive(reason="one fault more; `make test` has the others of this table"),
        ),
        pytest.param(SCENES, symbolic._Reader, "_grant_of", lambda *_: Grant.DIRECT, id="all principals are named"),
        pytest.param(
            SCENES,
            symbolic._Reader,
            "ways",
            lambda *arguments: (way[:-1] for way in _ways(*arguments) if len(way) > 1),
            id="a layer less",
        ),
        pytest.param(
            SCENES,
            symbolic._Reader,
            "ways",
            lambda *arguments: itertools.islice(_ways(*arguments), 1),
            id="one way alone",
        ),
    ],
)
def test_a_fault_of_the_prover_contradicts_the_evaluator(
    scenes: st.SearchStrategy[Scene], place: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, fault)
    many_examples = settings(PATIENT, max_examples=3000, phases=[Phase.generate], database=None)
    scene = find(scenes, lambda scene: contradiction(scene) is not None, settings=many_examples, random=Random(1))
    assert contradiction(scene) is not None


def test_a_word_of_letters_matches_itself_alone() -> None:
    assert shortest_word(((literal("a*?"),),)) == "a*?"
    assert shortest_word(((literal("a*?"),),), (pattern("a*"),)) is None
