"""AWS' decision on one request, as the IAM user guide documents it.

`compile(policies)` gives a function from requests to decisions. Sources (docs.aws.amazon.com/…, read 2026-11-21), cited
below by their short names:

- decision: IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html;
- accounts: IAM/latest/UserGuide/reference_policies_evaluation-logic-cross-account.html;
- principal: IAM/latest/UserGuide/reference_policies_elements_principal.html;
- notprincipal: IAM/latest/UserGuide/reference_policies_elements_notprincipal.html;
- scp: organizations/latest/userguide/orgs_manage_policies_scps_evaluation.html, rcp: …orgs_manage_policies_rcps.html;
- key: kms/latest/developerguide/key-policies.html and key-policy-default.html;
- assume: STS/latest/APIReference/API_AssumeRole.html.

Not decided here: root users, STS federated users, grants of KMS, ACLs, policies of VPC endpoints, and which permissions
an API call asks for. A call that needs several is several requests: see `all_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from tenancy.iam.conditions import (
    Condition,
    Keys,
    Matcher,
    Null,
    PolicyError,
    Undocumented,
    Value,
    action_matcher,
    conditions,
    resource_matcher,
    texts,
)

Document = Mapping[str, Any]
VERSIONS = ("2012-10-17", "2008-10-17")


class Layer(Enum):
    """A type of policy that takes part in a decision."""

    SCP = "service control policy"
    RCP = "resource control policy"
    RESOURCE = "resource policy"
    IDENTITY = "identity policy"
    BOUNDARY = "permissions boundary"
    SESSION = "session policy"


class PrincipalKind(Enum):
    """What kind of caller a request comes from."""

    ROLE = "role session"
    USER = "user"
    SERVICE = "AWS service"
    FEDERATED = "identity provider"  # who comes with a token to become a role
    ANONYMOUS = "anonymous"


class ResourceClass(Enum):
    """Kind of resource: whether an identity policy alone gives access to it within its account."""

    ORDINARY = "resource"
    KEY = "KMS key"  # identity policies count where the key policy names the account (key)
    TRUST = "role to assume"  # the trust policy names the principal or its account (decision, assume)


class Grant(IntEnum):
    """How a resource policy's Allow names the principal; the wider the name, the less it gives by itself (decision)."""

    ACCOUNT = 1  # delegates: an identity policy must allow as well
    ROLE = 2  # no identity policy needed; boundary and session policy still limit
    DIRECT = 3  # the session, the user, or all principals: only an explicit deny limits


# Who asks, and for what


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request."""

    kind: PrincipalKind
    arn: str
    """Of the session, the user or the provider; of a service its name."""
    account: str = ""
    role: str = ""
    """ARN of the role of a session."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """What AWS knows of it in every request."""

    @property
    def service_linked(self) -> bool:
        """Whether the role is one that is linked to an AWS service."""
        return ":role/aws-service-role/" in self.role


def role_session(
    role: str,
    name: str = "session",
    *,
    tags: Mapping[str, str] | None = None,
    session_tags: Mapping[str, str] | None = None,
    organisation: str | None = None,
) -> Principal:
    """A session of a role, given by the role's ARN. Of two tags of one name the session's counts (id_session-tags)."""
    _, partition, _, _, account, path = role.split(":", 5)
    arn = f"arn:{partition}:sts::{account}:assumed-role/{path.rpartition('/')[2]}/{name}"
    all_tags = {key.lower(): value for each in (tags, session_tags) for key, value in (each or {}).items()}
    keys = {"aws:PrincipalArn": role, "aws:PrincipalType": "AssumedRole", **_of_account(account, organisation)}
    return Principal(PrincipalKind.ROLE, arn, account, role, {**keys, **_tagged(all_tags)})


def user(arn: str, *, tags: Mapping[str, str] | None = None, organisation: str | None = None) -> Principal:
    """An IAM user as the caller."""
    account, name = arn.split(":")[4], arn.rpartition("/")[2]
    keys = {"aws:PrincipalArn": arn, "aws:PrincipalType": "User", "aws:username": name}
    return Principal(
        PrincipalKind.USER, arn, account, keys={**keys, **_of_account(account, organisation), **_tagged(tags or {})}
    )


def service(name: str) -> Principal:
    """An AWS service as the caller."""
    return Principal(
        PrincipalKind.SERVICE, name, keys={"aws:PrincipalIsAWSService": "true", "aws:PrincipalServiceName": name}
    )


def federated(provider: str) -> Principal:
    """An identity provider as the caller, which asks for a role."""
    return Principal(PrincipalKind.FEDERATED, provider)


ANONYMOUS = Principal(PrincipalKind.ANONYMOUS, "anonymous", keys={"aws:PrincipalType": "Anonymous"})


def _of_account(account: str, organisation: str | None) -> dict[str, str]:
    known = {"aws:PrincipalAccount": account, "aws:PrincipalIsAWSService": "false"}
    return {**known, "aws:PrincipalOrgID": organisation} if organisation else known


def _tagged(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:PrincipalTag/{key}": value for key, value in tags.items()}


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One request to AWS: caller, action, resource and condition keys."""

    principal: Principal
    action: str
    resource: str
    keys: Keys
    resource_account: str

    @property
    def within_account(self) -> bool:
        """Whether the caller and the resource belong to one account."""
        return self.principal.account == self.resource_account


def request(
    principal: Principal,
    action: str,
    resource: str,
    context: Mapping[str, Any] | None = None,
    *,
    resource_account: str | None = None,
) -> AwsRequest:
    """The resource's account is in its ARN or is given (S3); otherwise it is the principal's own."""
    named = resource.split(":")[4] if resource.count(":") >= 5 else ""
    keys = {name.lower(): _value(value) for each in (principal.keys, context or {}) for name, value in each.items()}
    return AwsRequest(principal, action, resource, keys, resource_account or named or principal.account)


def _value(given: Any) -> Value:
    if isinstance(given, list | tuple | set | frozenset):
        return texts(sorted(given) if isinstance(given, set | frozenset) else given)
    return given if isinstance(given, str | bytes) else texts(given)[0]


# Policies


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies that apply to a request."""

    identity: Sequence[Document] = ()
    boundary: Document | None = None
    session: Sequence[Document] = ()
    scps: Sequence[Sequence[Document]] = ()
    """Of every level from the organisation's root to the account. Empty: no organisation, or its management account."""
    rcps: Sequence[Sequence[Document]] = ()
    resource: Document | None = None
    """Bucket, queue or key policy, or the trust policy of a role."""
    guard: ResourceClass = ResourceClass.ORDINARY


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a policy, compiled."""

    layer: Layer
    label: str
    """Its Sid, or its place: `[document]` and `[statement]`."""
    effect: str
    actions: tuple[Matcher, ...]
    not_actions: bool
    resources: tuple[Matcher, ...]
    not_resources: bool
    conditions: tuple[Condition | Null, ...]
    principals: Mapping[str, tuple[str, ...]] | None
    not_principals: bool

    def matches(self, asked: AwsRequest) -> bool:
        """Whether the statement applies to a request: its action, resource and conditions match."""
        return (
            matches_action(self, asked)
            and matches_resource(self, asked)
            and all(each.holds(asked.keys) for each in self.conditions)
        )

    def __str__(self) -> str:
        return f"{self.layer.value} {self.label}"


def matches_action(statement: Statement, asked: AwsRequest) -> bool:
    """Whether the statement's actions include the requested one."""
    return any(match(asked.action, asked.keys) for match in statement.actions) != statement.not_actions


def matches_resource(statement: Statement, asked: AwsRequest) -> bool:
    """One without a value for its variable matches nothing; under NotResource it takes nothing out (variables)."""
    return any(match(asked.resource, asked.keys) for match in statement.resources) != statement.not_resources


_ELEMENTS = {
    *("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition", "Principal", "NotPrincipal"),
}


def statements(
    document: Document, layer: Layer, guard: ResourceClass = ResourceClass.ORDINARY, at: int = 0
) -> tuple[Statement, ...]:
    """The compiled statements of a document; raises PolicyError if it is invalid."""
    version = document.get("Version", "2008-10-17")
    if version not in VERSIONS:
        raise PolicyError(f"no version of the policy language (given {version!r}; either of {VERSIONS})")
    written = document["Statement"]
    return tuple(
        _statement(each, layer, guard, f"[{at}][{place}]", version == "2012-10-17")
        for place, each in enumerate(written if isinstance(written, list | tuple) else [written])
    )


def _statement(
    written: Mapping[str, Any], layer: Layer, guard: ResourceClass, place: str, variables: bool
) -> Statement:
    label = written.get("Sid") or place
    if unknown := set(written) - _ELEMENTS:
        raise PolicyError(f"{label}: no element of a statement (given {sorted(unknown)})")
    if written.get("Effect") not in ("Allow", "Deny"):
        raise PolicyError(f"{label}: Effect is Allow or Deny (given {written.get('Effect')!r})")
    action, not_actions = _either(written, "Action", label)
    trust = layer is Layer.RESOURCE and guard is ResourceClass.TRUST
    if trust and {"Resource", "NotResource"} & set(written):
        raise PolicyError(f"{label}: a trust policy is about its own role and names no resource")
    resource, not_resources = (("*",), False) if trust else _either(written, "Resource", label)
    principals, not_principals = _principals(written, layer, trust, label)
    return Statement(
        layer,
        label,
        written["Effect"],
        tuple(action_matcher(each) for each in action),
        not_actions,
        tuple(resource_matcher(each, variables) for each in resource),
        not_resources,
        conditions(written.get("Condition", {}), variables),
        principals,
        not_principals,
    )


def _either(written: Mapping[str, Any], name: str, label: str) -> tuple[tuple[str, ...], bool]:
    if (name in written) == (f"Not{name}" in written):
        raise PolicyError(f"{label}: either {name} or Not{name}")
    negated = name not in written
    return texts(written[f"Not{name}" if negated else name]), negated


def _principals(
    written: Mapping[str, Any], layer: Layer, trust: bool, label: str
) -> tuple[Mapping[str, tuple[str, ...]] | None, bool]:
    given = {"Principal", "NotPrincipal"} & set(written)
    if layer is Layer.RCP and written.get("Principal") == "*":
        return None, False  # RCPs apply to all principals, and say so
    if layer is not Layer.RESOURCE:
        if given:
            raise PolicyError(f"{label}: a {layer.value} names no principal")
        return None, False
    if len(given) != 1:
        raise PolicyError(f"{label}: a resource policy names either Principal or NotPrincipal")
    negated = "NotPrincipal" in written
    if negated and (trust or written["Effect"] == "Allow"):
        raise PolicyError(f"{label}: NotPrincipal is for a Deny, and not in a trust policy")
    named = written["NotPrincipal" if negated else "Principal"]
    found = {"AWS": ("*",)} if named == "*" else {kind: texts(value) for kind, value in named.items()}
    if unread := set(found) - {"AWS", "Service", "Federated"}:
        raise PolicyError(f"{label}: kinds of principals that are not read here (given {sorted(unread)})")
    for each in found.get("AWS", ()):
        if "*" in each and each != "*":
            raise PolicyError(f"{label}: a principal is named whole (given {each!r})")
    return found, negated


# How a resource policy names who asks


def grant(statement: Statement, asked: AwsRequest) -> Grant | None:
    """How a statement of a resource policy names who asks; None where it does not."""
    who, named = asked.principal, statement.principals
    if named is None:
        return Grant.DIRECT
    if statement.not_principals:
        return None if exempt(named, who) else Grant.DIRECT
    return named_as(named, who)


def named_as(named: Mapping[str, tuple[str, ...]], who: Principal) -> Grant | None:
    """How a principal element names the caller: directly, by the account, or not at all."""
    aws = named.get("AWS", ())
    if "*" in aws:
        return Grant.DIRECT
    if who.kind is PrincipalKind.SERVICE:
        return Grant.DIRECT if who.arn in named.get("Service", ()) else None
    if who.kind is PrincipalKind.FEDERATED:
        return Grant.DIRECT if who.arn in named.get("Federated", ()) else None
    if who.kind is PrincipalKind.ANONYMOUS:
        return None
    if who.arn in aws:
        return Grant.DIRECT
    if who.role and who.role in aws:
        return Grant.ROLE
    return Grant.ACCOUNT if names_account(aws, who) else None


def names_account(aws: Sequence[str], who: Principal) -> bool:
    """`111122223333` is `arn:aws:iam::111122223333:root`, and neither is the root user alone (principal)."""
    partition = who.arn.split(":")[1]
    return bool(who.account) and (who.account in aws or f"arn:{partition}:iam::{who.account}:root" in aws)


def exempt(named: Mapping[str, tuple[str, ...]], who: Principal) -> bool:
    """Is it one of NotPrincipal? Of the account alone or the identity alone AWS says "might" (notprincipal)."""
    if who.kind not in (PrincipalKind.ROLE, PrincipalKind.USER):
        return named_as(named, who) is not None
    aws = named.get("AWS", ())
    itself = (who.role or who.arn) in aws
    parts = [names_account(aws, who), itself]
    if "*" in aws or all(parts):
        return True
    if not any(parts) and who.arn not in aws:
        return False
    raise Undocumented(f"whether NotPrincipal takes out {who.arn}, of which it names not both account and identity")


# The decision


@dataclass(frozen=True, slots=True)
class Decision:
    """AWS' answer, and the statements that decide it. `by` of an implicit deny is empty: no statement causes it."""

    allowed: bool
    layer: Layer | None = None
    """Which refused: by a statement of it (explicit), or for want of one."""
    by: tuple[Statement, ...] = ()

    @property
    def explicit(self) -> bool:
        """Whether a statement denies the request."""
        return bool(self.by) and not self.allowed

    def __str__(self) -> str:
        reasons = ", ".join(str(each) for each in self.by)
        if self.allowed:
            return f"allowed by {reasons}"
        if self.layer is None:
            raise AssertionError("a refusal without a layer")
        return f"explicit deny by {reasons}" if self.by else f"implicit deny: no {self.layer.value} allows it"


Decide = Callable[[AwsRequest], Decision]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The statements of all policies that apply to a request, by layer."""

    scps: tuple[tuple[Statement, ...], ...]
    rcps: tuple[tuple[Statement, ...], ...]
    resource: tuple[Statement, ...]
    identity: tuple[Statement, ...]
    boundary: tuple[Statement, ...] | None
    session: tuple[Statement, ...] | None
    guard: ResourceClass


def compile(policies: Policies) -> Decide:
    """Policies read once, then asked often."""

    def layer(documents: Sequence[Document], of: Layer) -> tuple[Statement, ...]:
        return tuple(each for at, document in enumerate(documents) for each in statements(document, of, at=at))

    resource = policies.resource
    made = Compiled(
        tuple(layer(level, Layer.SCP) for level in policies.scps),
        tuple(layer(level, Layer.RCP) for level in policies.rcps),
        statements(resource, Layer.RESOURCE, policies.guard) if resource is not None else (),
        layer(policies.identity, Layer.IDENTITY),
        layer([policies.boundary], Layer.BOUNDARY) if policies.boundary is not None else None,
        layer(policies.session, Layer.SESSION) if policies.session else None,
        policies.guard,
    )
    return lambda asked: decide(made, asked)


def all_of(ask: Decide, requests: Iterable[AwsRequest]) -> Decision:
    """A call that needs several permissions: the first refusal, or the last allowance."""
    last = None
    for each in requests:
        last = ask(each)
        if not last.allowed:
            return last
    if last is None:
        raise ValueError("nothing was asked")
    return last


def decide(made: Compiled, asked: AwsRequest) -> Decision:
    """AWS' decision: an explicit deny first, then the ceilings, then the grants."""
    if denied := explicit_deny(made, asked):
        return denied
    if refused := ceilings(made, asked):
        return refused
    granted = grants(made, asked)
    if asked.principal.kind not in (PrincipalKind.ROLE, PrincipalKind.USER):
        # It has no policies of its own: what names it is the resource's policy.
        return _allowed(granted, Grant.DIRECT) or Decision(False, Layer.RESOURCE)
    if not asked.within_account:
        return across_accounts(made, asked, granted)
    return within_account(made, asked, granted)


def explicit_deny(made: Compiled, asked: AwsRequest) -> Decision | None:
    """An explicit deny in any of the policies (decision, "Deny evaluation")."""
    for level in applicable(made.scps, asked, Layer.SCP) + applicable(made.rcps, asked, Layer.RCP):
        if found := matching(level, asked, "Deny"):
            return Decision(False, found[0].layer, found)
    for statement in matching(made.resource, asked, "Deny"):
        if barred_by_boundary(statement, made) or grant(statement, asked) is not None:
            return Decision(False, Layer.RESOURCE, (statement,))
    for each in (made.identity, made.boundary, made.session):
        if found := matching(each or (), asked, "Deny"):
            return Decision(False, found[0].layer, found)
    return None


def barred_by_boundary(statement: Statement, made: Compiled) -> bool:
    """A Deny with NotPrincipal applies to every principal with a permissions boundary, named or not (notprincipal)."""
    return statement.not_principals and made.boundary is not None


def applicable(
    levels: tuple[tuple[Statement, ...], ...], asked: AwsRequest, layer: Layer
) -> tuple[tuple[Statement, ...], ...]:
    """Neither kind limits service-linked roles; SCPs limit principals of accounts alone (scp, rcp)."""
    without = asked.principal.service_linked or (layer is Layer.SCP and not asked.principal.account)
    return () if without else levels


def ceilings(made: Compiled, asked: AwsRequest) -> Decision | None:
    """Every level of the organisation must allow (scp, "How SCPs work with Allow")."""
    for layer, levels in ((Layer.RCP, made.rcps), (Layer.SCP, made.scps)):
        for level in applicable(levels, asked, layer):
            if not matching(level, asked, "Allow"):
                return Decision(False, layer)
    return None


def within_account(made: Compiled, asked: AwsRequest, granted: Sequence[tuple[Grant, Statement]]) -> Decision:
    """(decision, "Resource-based policies" and what follows)"""
    if direct := _allowed(granted, Grant.DIRECT):
        return direct
    by_role = _allowed(granted, Grant.ROLE)
    if not by_role and made.guard is not ResourceClass.ORDINARY and not granted:
        return Decision(False, Layer.RESOURCE)
    return by_role_or_identity(made, asked, by_role)


def by_role_or_identity(made: Compiled, asked: AwsRequest, by_role: Decision | None) -> Decision:
    """The decision on a role's session within its account."""
    own = matching(made.identity, asked, "Allow")
    if not by_role and not own:
        return Decision(False, Layer.IDENTITY)
    return limits(made, asked) or by_role or Decision(True, by=own)


def across_accounts(made: Compiled, asked: AwsRequest, granted: Sequence[tuple[Grant, Statement]]) -> Decision:
    """Both accounts must allow, each by its own policies (accounts)."""
    if not granted:
        return Decision(False, Layer.RESOURCE)
    own = matching(made.identity, asked, "Allow")
    if not own:
        return Decision(False, Layer.IDENTITY)
    return limits(made, asked) or Decision(True, by=(*own, *(statement for _, statement in granted)))


def limits(made: Compiled, asked: AwsRequest) -> Decision | None:
    """Boundary and session policy give nothing: where there is one, it must allow as well (decision)."""
    for layer, found in ((Layer.BOUNDARY, made.boundary), (Layer.SESSION, made.session)):
        if found is not None and not matching(found, asked, "Allow"):
            return Decision(False, layer)
    return None


def grants(made: Compiled, asked: AwsRequest) -> list[tuple[Grant, Statement]]:
    """Statements of the resource policy that allow the request, each with how it names the caller."""
    found = ((grant(each, asked), each) for each in matching(made.resource, asked, "Allow"))
    return [(how, each) for how, each in found if how is not None]


def matching(found: Iterable[Statement], asked: AwsRequest, effect: str) -> tuple[Statement, ...]:
    """Statements with this effect that apply to the request."""
    return tuple(each for each in found if each.effect == effect and each.matches(asked))


def _allowed(granted: Sequence[tuple[Grant, Statement]], least: Grant) -> Decision | None:
    by = tuple(statement for how, statement in granted if how >= least)
    return Decision(True, by=by) if by else None
