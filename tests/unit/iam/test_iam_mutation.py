"""An evaluator with one fault turns a vector red: the vectors would notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tenancy.iam import conditions, evaluator, requests
from tenancy.iam.conditions import OPERATORS, Name, Operator, Wild, operator_name
from tenancy.iam.evaluator import Grant, Layer
from tenancy.iam.requests import PrincipalKind, ResourceClass
from tests.iam.vectors import Vector, vectors

VECTORS = vectors()
Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    fault: str
    patch: Patch
    red: str
    """The vector that notices."""


# How a fault is made


def in_conditions(name: str, fault: Any) -> Patch:
    return lambda patch: patch.setattr(conditions, name, fault)


def in_evaluator(name: str, fault: Any) -> Patch:
    return lambda patch: patch.setattr(evaluator, name, fault)


def in_requests(name: str, fault: Any) -> Patch:
    return lambda patch: patch.setattr(requests, name, fault)


def read_as(name: str, other_operator: str) -> Patch:
    return lambda patch: patch.setitem(OPERATORS, name, OPERATORS[other_operator])


def prepared(name: str, prepare: Callable[[str, bool], conditions.Matcher]) -> Patch:
    return lambda patch: patch.setitem(OPERATORS, name, Operator(prepare, OPERATORS[name].negated))


def like(ignore_case: bool) -> Callable[[str, bool], conditions.Matcher]:
    return lambda text, variables: conditions.matcher(
        conditions.pieces(text, variables=variables, wildcards=False), ignore_case=ignore_case
    )


_absent, _variable, _regex, _segments = (
    conditions.when_absent,
    conditions.variable,
    conditions.regex,
    conditions.in_segments,
)
_matching, _named_as, _grant, _statement = (
    evaluator.matching,
    evaluator.named_as,
    evaluator.grant,
    evaluator._statement,
)
_within, _limits, _session = evaluator.within_account, evaluator.limits, requests.role_session


def blind_to(effect: str, layer: Layer) -> Patch:
    """Statements of a layer that say so are not seen."""
    return in_evaluator(
        "matching",
        lambda statements, aws_request, searched_effect: tuple(
            statement
            for statement in _matching(statements, aws_request, searched_effect)
            if (statement.effect, statement.layer) != (effect, layer)
        ),
    )


def unlimited_by(layer: Layer) -> Patch:
    def limits(policies: Any, aws_request: Any) -> Any:
        return _limits(dataclasses.replace(policies, **{layer.name.lower(): None}), aws_request)

    return in_evaluator("limits", limits)


def naming_with(change: Callable[[Grant | None, Any, Any], Grant | None]) -> Patch:
    return in_evaluator("named_as", lambda names, who: change(_named_as(names, who), names, who))


def absent(change: Callable[[Name, bool], bool]) -> Patch:
    return in_conditions("when_absent", change)


def matches_without(part: str) -> Patch:
    """Statement.matches without one of its parts."""

    def matches(statement: evaluator.Statement, aws_request: requests.AwsRequest) -> bool:
        return (
            (part == "action" or evaluator.matches_action(statement, aws_request))
            and (part == "resource" or evaluator.matches_resource(statement, aws_request))
            and (part == "conditions" or all(condition.holds(aws_request.keys) for condition in statement.conditions))
        )

    return lambda patch: patch.setattr(evaluator.Statement, "matches", matches)


def _wild(replace: dict[Any, Any]) -> Callable[..., Any]:
    """Patterns in which one kind of piece is another."""
    return lambda resolved, ignore_case=False: _regex(
        tuple(replace.get(piece, piece) for piece in resolved), ignore_case
    )


def _swapped(role: str, name: str = "session", **settings: Any) -> requests.Principal:
    return _session(
        role, name, **{**settings, "tags": settings.get("session_tags"), "session_tags": settings.get("tags")}
    )


def _one_level(policies: Any, aws_request: Any) -> Any:
    for layer, levels in ((Layer.RCP, policies.rcps), (Layer.SCP, policies.scps)):
        if levels and not any(evaluator.matching(level, aws_request, "Allow") for level in levels):
            return evaluator.Decision(False, layer)
    return None


def _boundary_grants(policies: Any, aws_request: Any, by_role: Any) -> Any:
    wider = (*policies.identity, *(policies.boundary or ()))
    granting = evaluator.matching(wider, aws_request, "Allow")
    return (evaluator.limits(policies, aws_request) or evaluator.Decision(True, by=granting)) if granting else by_role


def _session_grants(policies: Any, aws_request: Any, by_role: Any) -> Any:
    granting = evaluator.matching((*policies.identity, *(policies.session or ())), aws_request, "Allow")
    return evaluator.Decision(True, by=granting) if granting else by_role or evaluator.Decision(False, Layer.IDENTITY)


def _scp_grants(policies: Any, aws_request: Any, by_role: Any) -> Any:
    levels = [statement for level in policies.scps for statement in level]
    granting = evaluator.matching((*policies.identity, *levels), aws_request, "Allow")
    return evaluator.Decision(True, by=granting) if granting else by_role or evaluator.Decision(False, Layer.IDENTITY)


MUTANTS = [
    # Operators taken for one another
    Mutant("StringEquals with wildcards", read_as("StringEquals", "StringLike"), "StringEquals knows no wildcard"),
    Mutant(
        "StringEquals without case",
        prepared("StringEquals", like(True)),
        "StringEquals compares whole texts and their case",
    ),
    Mutant(
        "StringNotEquals without case",
        prepared("StringNotEquals", like(True)),
        "StringNotEquals holds for every other text and for none",
    ),
    Mutant(
        "StringEqualsIgnoreCase with case",
        prepared("StringEqualsIgnoreCase", like(False)),
        "StringEqualsIgnoreCase looks past case and no further",
    ),
    Mutant(
        "StringNotEqualsIgnoreCase with case",
        prepared("StringNotEqualsIgnoreCase", like(False)),
        "StringNotEqualsIgnoreCase looks past case",
    ),
    Mutant(
        "StringLike without wildcards",
        read_as("StringLike", "StringEquals"),
        "StringLike matches any run and any one letter, and case counts",
    ),
    Mutant(
        "StringNotLike without wildcards",
        read_as("StringNotLike", "StringNotEquals"),
        "StringNotLike holds for what does not match and for none",
    ),
    Mutant("ArnLike across colons", read_as("ArnLike", "StringLike"), "ArnLike compares the six components one by one"),
    Mutant("ArnEquals across colons", read_as("ArnEquals", "StringLike"), "ArnEquals takes wildcards as ArnLike does"),
    Mutant(
        "ArnEquals without wildcards",
        read_as("ArnEquals", "StringEquals"),
        "ArnEquals takes wildcards as ArnLike does",
    ),
    Mutant("ArnNotLike without wildcards", read_as("ArnNotLike", "StringNotEquals"), "ArnNotLike is everything else"),
    Mutant(
        "ArnNotEquals without wildcards",
        read_as("ArnNotEquals", "StringNotEquals"),
        "ArnNotEquals holds without a key",
    ),
    Mutant(
        "numbers as texts",
        read_as("NumericEquals", "StringEquals"),
        "NumericEquals compares numbers and not their letters",
    ),
    Mutant(
        "unequal numbers as texts",
        read_as("NumericNotEquals", "StringNotEquals"),
        "NumericNotEquals holds for every other number and for none",
    ),
    Mutant(
        "numbers in the order of texts",
        prepared("NumericGreaterThan", lambda text, _variables: lambda value, _keys: value > text),
        "NumericGreaterThan leaves the bound out",
    ),
    Mutant("dates as texts", read_as("DateEquals", "StringEquals"), "DateEquals compares moments however written"),
    Mutant(
        "unequal dates as texts",
        read_as("DateNotEquals", "StringNotEquals"),
        "DateNotEquals holds for every other moment and for none",
    ),
    *(
        Mutant(f"{kind}{operator} with the other bound", read_as(f"{kind}{operator}", f"{kind}{swapped_operator}"), red)
        for kind, at in (("Numeric", "{}"), ("Date", "{}"))
        for operator, swapped_operator, numeric, date in (
            ("LessThan", "LessThanEquals", "leaves the bound out", "is before"),
            ("LessThanEquals", "LessThan", "takes the bound in", "is at or before"),
            ("GreaterThan", "GreaterThanEquals", "leaves the bound out", "is after"),
            ("GreaterThanEquals", "GreaterThan", "takes the bound in", "is at or after"),
        )
        for red in (at.format(f"{kind}{operator} {numeric if kind == 'Numeric' else date}"),)
    ),
    Mutant("addresses as texts", read_as("IpAddress", "StringEquals"), "IpAddress is within a range of either version"),
    Mutant(
        "other addresses as texts",
        read_as("NotIpAddress", "StringNotEquals"),
        "NotIpAddress is outside of every range, or of no address",
    ),
    Mutant(
        "an address without prefix length as a network of class C",
        prepared("IpAddress", lambda text, v: conditions._ip_address(text if "/" in text else f"{text}/24", v)),
        "IpAddress without a prefix length is one address",
    ),
    # Qualifiers and keys that are not there
    Mutant(
        "ForAllValues as ForAnyValue",
        in_conditions("for_all", conditions.for_any),
        "ForAllValues wants every value of the request",
    ),
    Mutant(
        "ForAnyValue as ForAllValues",
        in_conditions("for_any", conditions.for_all),
        "ForAnyValue wants one value of the request",
    ),
    Mutant(
        "ForAllValues false without a key",
        absent(lambda name, negated: name.qualifier is None and _absent(name, negated)),
        "ForAllValues holds where there is nothing to ask",
    ),
    Mutant(
        "ForAllValues false without a value",
        in_conditions("when_empty", lambda _name: False),
        "ForAllValues holds where there is nothing to ask",
    ),
    Mutant(
        "ForAnyValue true without a key",
        absent(lambda name, negated: name.qualifier is not None or _absent(name, negated)),
        "ForAnyValue is false where there is nothing to ask",
    ),
    Mutant(
        "ForAnyValue true without a value",
        in_conditions("when_empty", lambda _name: True),
        "ForAnyValue is false where there is nothing to ask",
    ),
    Mutant(
        "an empty text as a value of a set",
        in_conditions("given_values", lambda value: value if isinstance(value, tuple) else (value,)),
        "ForAllValues holds where there is nothing to ask",
    ),
    Mutant(
        "IfExists dropped",
        absent(lambda name, negated: _absent(dataclasses.replace(name, if_exists=False), negated)),
        "IfExists asks only where there is a key",
    ),
    Mutant(
        "IfExists everywhere",
        absent(lambda name, negated: name.qualifier is None or _absent(name, negated)),
        "without IfExists a key that is not there does not match",
    ),
    Mutant(
        "negated operators false without a key",
        absent(lambda name, _negated: _absent(name, False)),
        "StringNotEquals holds for every other text and for none",
    ),
    Mutant(
        "Null inverted",
        in_conditions("is_null", lambda key, keys: key in keys),
        "Null asks for a key that is not there",
    ),
    Mutant(
        "Null past a key without values",
        in_conditions("is_null", lambda key, keys: key not in keys),
        "Null false asks for a key with a value",
    ),
    Mutant("keys with case", in_conditions("condition_key", lambda name: name), "names of keys have no case"),
    Mutant(
        "all values wanted",
        in_conditions("meets", lambda c, value, keys: all(match(value, keys) for match in c.matchers) != c.negated),
        "of several values any will do",
    ),
    Mutant(
        "a negated operator content with one value",
        in_conditions("meets", lambda c, value, keys: any(match(value, keys) != c.negated for match in c.matchers)),
        "of several values a negated operator wants none",
    ),
    Mutant(
        "one condition of many is enough",
        lambda patch: patch.setattr(
            evaluator.Statement,
            "matches",
            lambda s, aws_request: (
                evaluator.matches_action(s, aws_request)
                and evaluator.matches_resource(s, aws_request)
                and (not s.conditions or any(condition.holds(aws_request.keys) for condition in s.conditions))
            ),
        ),
        "keys and operators are all to hold",
    ),
    # Patterns and variables
    Mutant(
        "actions with case",
        in_evaluator(
            "action_matcher",
            lambda text: conditions.matcher(conditions.pieces(text, variables=False, wildcards=True)),
        ),
        "an action's case does not hide it",
    ),
    Mutant(
        "actions without wildcards",
        in_evaluator("action_matcher", lambda text: like(True)(text, False)),
        "actions have no case and take wildcards",
    ),
    Mutant(
        "resources without case",
        in_evaluator(
            "resource_matcher",
            lambda text, variables: conditions.matcher(conditions.resource_pieces(text, variables), ignore_case=True),
        ),
        "resources have a case and end where they end",
    ),
    Mutant("? as a letter", in_conditions("regex", _wild({Wild.ANY: "?"})), "a question mark is one letter"),
    Mutant("? as any run", in_conditions("regex", _wild({Wild.ANY: Wild.STAR})), "a question mark is one letter"),
    Mutant("* as one letter", in_conditions("regex", _wild({Wild.STAR: Wild.ANY})), "a star crosses slashes"),
    Mutant(
        "wildcards across colons",
        in_conditions("in_segments", lambda matcher: matcher),
        "a star within a segment stays in it, at its end it crosses colons",
    ),
    Mutant(
        "no wildcard across colons",
        in_conditions("regex", _wild({Wild.STAR: Wild.SEGMENT_STAR})),
        "a star within a segment stays in it, at its end it crosses colons",
    ),
    Mutant(
        "a variable without value is empty",
        in_conditions("variable_value", lambda variable, keys: keys.get(variable.key, variable.default or "")),
        "a resource whose variable has no value is no resource",
    ),
    Mutant(
        "a variable without value is its own text",
        in_conditions("variable_value", lambda w, keys: keys.get(w.key, w.default or f"${{{w.key}}}")),
        "a variable without value is like nothing",
    ),
    Mutant(
        "NotResource takes all out by a variable without value",
        in_evaluator(
            "matches_resource",
            lambda s, aws_request: (
                any(match(aws_request.resource, aws_request.keys) for match in s.resources) and not s.not_resources
            ),
        ),
        "NotResource takes out nothing by a variable without value",
    ),
    Mutant(
        "variables are text",
        in_conditions("variable", lambda inside: _variable(f"nothing-{inside}") if inside not in "*?$" else inside),
        "a variable in a resource is the request's own value",
    ),
    Mutant(
        "variables with case",
        in_conditions(
            "variable",
            lambda inside: inside if inside in "*?$" else conditions.Variable(inside.partition(",")[0], None),
        ),
        "names of variables have no case",
    ),
    Mutant(
        "defaults dropped",
        in_conditions("variable_value", lambda variable, keys: keys.get(variable.key)),
        "a variable's default stands where there is no value",
    ),
    Mutant(
        "defaults always",
        in_conditions("variable_value", lambda variable, keys: variable.default or keys.get(variable.key)),
        "a resource's variable may have a default",
    ),
    Mutant(
        "special characters as wildcards",
        in_conditions("variable", lambda inside: Wild(inside) if inside in ("*", "?") else _variable(inside)),
        "special characters are written as variables",
    ),
    Mutant(
        "variables in every version",
        in_evaluator(
            "_statement", lambda document, layer, guard, place, _v: _statement(document, layer, guard, place, True)
        ),
        "before version 2012-10-17 a variable is plain text",
    ),
    Mutant(
        "variables in no version",
        in_evaluator(
            "_statement", lambda document, layer, guard, place, _v: _statement(document, layer, guard, place, False)
        ),
        "a variable in a resource is the request's own value",
    ),
    Mutant("role's tags first", in_requests("role_session", _swapped), "the session's tag counts before the role's"),
    # Statements
    Mutant(
        "NotAction as Action",
        in_evaluator(
            "matches_action",
            lambda s, aws_request: any(match(aws_request.action, aws_request.keys) for match in s.actions),
        ),
        "NotAction is every other action",
    ),
    Mutant(
        "NotResource as Resource",
        in_evaluator(
            "matches_resource",
            lambda s, aws_request: any(match(aws_request.resource, aws_request.keys) for match in s.resources),
        ),
        "NotResource under Deny denies every other resource",
    ),
    Mutant("actions ignored", matches_without("action"), "actions have no case and take wildcards"),
    Mutant("resources ignored", matches_without("resource"), "own prefix and the neighbour whose name begins the same"),
    Mutant("conditions ignored, as moto does", matches_without("conditions"), "a listing is bound by its prefix"),
    Mutant("a Deny's conditions ignored", matches_without("conditions"), "a Deny's condition is read"),
    # Whom a resource policy names
    Mutant(
        "NotPrincipal as Principal",
        in_evaluator("grant", lambda s, aws_request: s.principals and _named_as(s.principals, aws_request.principal)),
        "NotPrincipal under Deny spares whom it names with its account",
    ),
    Mutant(
        "NotPrincipal spares whom it names without their account",
        in_evaluator("exempt", lambda names, who: _named_as(names, who) is not None),
        "NotPrincipal under Deny without the account may spare no principal",
    ),
    Mutant(
        "NotPrincipal spares who has a boundary",
        in_evaluator("barred_by_boundary", lambda _statement, _policies: False),
        "NotPrincipal under Deny spares no principal that has a boundary",
    ),
    Mutant(
        "principals ignored",
        in_evaluator("grant", lambda _statement, _request: Grant.DIRECT),
        "within an account a resource policy is enough",
    ),
    Mutant(
        "the account's name gives to all of it",
        naming_with(lambda how, _names, _who: Grant.DIRECT if how is Grant.ACCOUNT else how),
        "what the account is given its identity policies hand on",
    ),
    Mutant(
        "the account's number is not its name",
        in_evaluator("names_account", lambda aws, who: any(arn.endswith(f"::{who.account}:root") for arn in aws)),
        "a deny to the account is a deny to all of it",
    ),
    Mutant(
        "any account is this account",
        in_evaluator("names_account", lambda aws, _who: bool(aws)),
        "across accounts both must allow",
    ),
    Mutant(
        "a role is given as a session is",
        naming_with(lambda how, _names, _who: Grant.DIRECT if how is Grant.ROLE else how),
        "what a role is given is limited by its boundary",
    ),
    Mutant(
        "a session is given as its role is",
        naming_with(
            lambda how, names, who: (
                Grant.ROLE if who.kind is PrincipalKind.ROLE and who.arn in names.get("AWS", ()) else how
            )
        ),
        "what a session is given is limited by neither",
    ),
    Mutant(
        "a grant to all counts as one to a role",
        naming_with(lambda how, names, who: Grant.ROLE if who.role and "*" in names.get("AWS", ()) else how),
        "what all principals are given under a role's ARN as a condition is limited by neither",
    ),
    Mutant(
        "a user is given as a role is",
        naming_with(lambda how, _names, who: Grant.ROLE if how and who.kind is PrincipalKind.USER else how),
        "what a user is given is not limited by its boundary",
    ),
    Mutant(
        "a session's other name is its name",
        naming_with(
            lambda how, names, who: (
                how
                or (
                    Grant.DIRECT
                    if any(a.startswith(who.arn.rpartition("/")[0]) for a in names.get("AWS", ()))
                    else None
                )
            )
        ),
        "what a session is given is limited by neither",
    ),
    Mutant(
        "any service is the service",
        naming_with(
            lambda how, names, who: Grant.DIRECT if who.kind is PrincipalKind.SERVICE and "Service" in names else how
        ),
        "a service is named by its name",
    ),
    Mutant(
        "any provider is the provider",
        naming_with(
            lambda how, names, who: (
                Grant.DIRECT if who.kind is PrincipalKind.FEDERATED and "Federated" in names else how
            )
        ),
        "a token is of this subject and audience",
    ),
    Mutant(
        "strangers are of the account",
        naming_with(lambda how, _names, who: Grant.DIRECT if who.kind is PrincipalKind.ANONYMOUS else how),
        "no principal in particular is not the account",
    ),
    # Layers
    Mutant(
        "explicit deny ignored",
        in_evaluator("explicit_deny", lambda _policies, _request: None),
        "an explicit deny in an identity policy wins",
    ),
    *(
        Mutant(f"explicit deny of the {layer.value} ignored", blind_to("Deny", layer), red)
        for layer, red in (
            (Layer.IDENTITY, "an explicit deny in an identity policy wins"),
            (Layer.RESOURCE, "an explicit deny in a resource policy wins"),
            (Layer.BOUNDARY, "an explicit deny in a permissions boundary wins"),
            (Layer.SESSION, "an explicit deny in a session policy wins"),
            (Layer.SCP, "an explicit deny in a service control policy wins"),
            (Layer.RCP, "resource control policies limit who asks for the resource"),
        )
    ),
    *(
        Mutant(f"{layer.value} allows nothing", blind_to("Allow", layer), red)
        for layer, red in (
            (Layer.IDENTITY, "an explicit deny in an identity policy wins"),
            (Layer.RESOURCE, "within an account a resource policy is enough"),
            (Layer.BOUNDARY, "a boundary limits what identity policies give"),
            (Layer.SESSION, "a session policy limits what identity policies give"),
            (Layer.SCP, "every level of the organisation must allow"),
            (Layer.RCP, "resource control policies limit who asks for the resource"),
        )
    ),
    Mutant(
        "the organisation's levels ignored",
        in_evaluator("ceilings", lambda _policies, _request: None),
        "every level of the organisation must allow",
    ),
    Mutant(
        "the resource's organisation ignored",
        in_evaluator("ceilings", lambda _policies, _request: None),
        "every level of resource control policies must allow",
    ),
    Mutant(
        "one level of the organisation is enough",
        in_evaluator("ceilings", _one_level),
        "a level without a policy allows nothing",
    ),
    Mutant(
        "service control policies for all",
        in_evaluator("applicable", lambda levels, _request, _layer: levels),
        "service control policies do not limit service-linked roles and services",
    ),
    Mutant(
        "a service control policy gives",
        in_evaluator("by_role_or_identity", _scp_grants),
        "a service control policy gives nothing",
    ),
    Mutant("boundary ignored", unlimited_by(Layer.BOUNDARY), "a boundary limits what identity policies give"),
    Mutant(
        "boundary ignored for roles", unlimited_by(Layer.BOUNDARY), "what a role is given is limited by its boundary"
    ),
    Mutant(
        "session policy ignored", unlimited_by(Layer.SESSION), "a session policy limits what identity policies give"
    ),
    Mutant(
        "session policy ignored for roles",
        unlimited_by(Layer.SESSION),
        "what a role is given is limited by the session policy",
    ),
    Mutant(
        "boundary ignored across accounts",
        unlimited_by(Layer.BOUNDARY),
        "across accounts boundary and session policy limit",
    ),
    Mutant("a boundary gives", in_evaluator("by_role_or_identity", _boundary_grants), "a boundary gives nothing"),
    Mutant(
        "a session policy gives", in_evaluator("by_role_or_identity", _session_grants), "a session policy gives nothing"
    ),
    Mutant(
        "resource policies limit all principals",
        in_evaluator(
            "within_account",
            lambda policies, aws_request, granted: (
                evaluator.limits(policies, aws_request) or _within(policies, aws_request, granted)
            ),
        ),
        "what a session is given is limited by neither",
    ),
    Mutant(
        "a resource policy needs an identity policy beside it",
        in_evaluator("within_account", evaluator.across_accounts),
        "within an account a resource policy is enough",
    ),
    Mutant(
        "other accounts are this account",
        in_evaluator("across_accounts", evaluator.within_account),
        "across accounts both must allow",
    ),
    Mutant(
        "across accounts a resource policy is enough",
        in_evaluator("across_accounts", evaluator.within_account),
        "across accounts a session that is named needs its identity policy as well",
    ),
    *(
        Mutant(
            f"a {guard.value} is guarded as any resource is",
            in_evaluator(
                "within_account",
                lambda policies, aws_request, granted: _within(
                    dataclasses.replace(policies, guard=ResourceClass.ORDINARY), aws_request, granted
                ),
            ),
            red,
        )
        for guard, red in (
            (ResourceClass.KEY, "without the key's policy an identity policy opens no key"),
            (ResourceClass.TRUST, "an identity policy alone takes no role"),
        )
    ),
    Mutant(
        "a key needs to name who asks and not its account",
        in_evaluator(
            "within_account",
            lambda policies, aws_request, granted: _within(
                policies, aws_request, [g for g in granted if g[0] is not Grant.ACCOUNT]
            ),
        ),
        "a key policy that names the account lets identity policies count",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.fault for mutant in MUTANTS])
def test_a_fault_turns_its_vector_red(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = VECTORS[mutant.red]
    assert vector.wrong() == [], "the vector is green without the fault"
    mutant.patch(monkeypatch)
    assert vector.wrong() != []


def test_no_two_faults_have_one_name() -> None:
    assert len({mutant.fault for mutant in MUTANTS}) == len(MUTANTS)


# Every operator, broken in each of three ways


def with_operator(name: str) -> list[Vector]:
    return [
        vector
        for vector in VECTORS.values()
        if vector.table == "conditions"
        for operator_text in vector.policies["identity"][0]["Condition"]
        if operator_name(operator_text).base == name
    ]


def broken(name: str, how: str) -> Operator:
    operator = OPERATORS[name]
    if how == "inverted":
        return dataclasses.replace(operator, negated=not operator.negated)
    answer = (how == "always") != operator.negated
    return dataclasses.replace(operator, prepare=lambda _text, _variables: lambda _value, _keys: answer)


@pytest.mark.parametrize("how", ["always", "never", "inverted"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_broken_operator_turns_one_of_its_vectors_red(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, name, broken(name, how))
    assert [vector.name for vector in with_operator(name) if vector.wrong()] != []


# Every kind of refusal, lost


@pytest.mark.parametrize("explicit", [True, False], ids=["explicit", "implicit"])
@pytest.mark.parametrize("layer", Layer)
def test_a_refusal_that_is_lost_turns_a_vector_red(
    layer: Layer, explicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = evaluator.decide

    def forgiving(compiled: evaluator.Compiled, aws_request: requests.AwsRequest) -> evaluator.Decision:
        decision = decide(compiled, aws_request)
        is_this_refusal = not decision.allowed and decision.layer is layer and decision.explicit is explicit
        return dataclasses.replace(decision, allowed=True) if is_this_refusal else decision

    monkeypatch.setattr(evaluator, "decide", forgiving)
    assert [vector.name for vector in VECTORS.values() if vector.wrong()] != []
