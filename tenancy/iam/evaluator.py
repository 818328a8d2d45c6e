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
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from tenancy.iam.conditions import (
    Condition,
    Matcher,
    Null,
    PolicyError,
    Undocumented,
    action_matcher,
    conditions,
    resource_matcher,
    texts,
)
from tenancy.iam.requests import AwsRequest, Principal, PrincipalKind, ResourceClass

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


class Grant(IntEnum):
    """Form in which a resource policy's Allow names the principal; the wider the name, the less it gives by itself."""

    ACCOUNT = 1  # delegates: an identity policy must allow as well
    ROLE = 2  # no identity policy needed; boundary and session policy still limit
    DIRECT = 3  # the session, the user, or all principals: only an explicit deny limits


# Policies


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies that apply to a request."""

    identity: Sequence[Document] = ()
    boundary: Document | None = None
    session: Sequence[Document] = ()
    scps: Sequence[Sequence[Document]] = ()
    """Policies of every level from the organisation's root to the account. Empty: no organisation, or its management
    account."""
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

    def matches(self, request: AwsRequest) -> bool:
        """Whether the statement applies to a request: its action, resource and conditions match."""
        return (
            matches_action(self, request)
            and matches_resource(self, request)
            and all(condition.holds(request.keys) for condition in self.conditions)
        )

    def __str__(self) -> str:
        return f"{self.layer.value} {self.label}"


def matches_action(statement: Statement, request: AwsRequest) -> bool:
    """Whether the statement's actions include the requested one."""
    return any(match(request.action, request.keys) for match in statement.actions) != statement.not_actions


def matches_resource(statement: Statement, request: AwsRequest) -> bool:
    """One without a value for its variable matches nothing; under NotResource it takes nothing out (variables)."""
    return any(match(request.resource, request.keys) for match in statement.resources) != statement.not_resources


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
    statement_documents = document["Statement"]
    return tuple(
        _statement(statement_document, layer, guard, f"[{at}][{place}]", version == "2012-10-17")
        for place, statement_document in enumerate(
            statement_documents if isinstance(statement_documents, list | tuple) else [statement_documents]
        )
    )


def _statement(
    statement_document: Mapping[str, Any], layer: Layer, guard: ResourceClass, place: str, variables: bool
) -> Statement:
    label = statement_document.get("Sid") or place
    if unknown := set(statement_document) - _ELEMENTS:
        raise PolicyError(f"{label}: no element of a statement (given {sorted(unknown)})")
    if statement_document.get("Effect") not in ("Allow", "Deny"):
        raise PolicyError(f"{label}: Effect is Allow or Deny (given {statement_document.get('Effect')!r})")
    action, not_actions = _either(statement_document, "Action", label)
    trust = layer is Layer.RESOURCE and guard is ResourceClass.TRUST
    if trust and {"Resource", "NotResource"} & set(statement_document):
        raise PolicyError(f"{label}: a trust policy is about its own role and names no resource")
    resource, not_resources = (("*",), False) if trust else _either(statement_document, "Resource", label)
    principals, not_principals = _principals(statement_document, layer, trust, label)
    return Statement(
        layer,
        label,
        statement_document["Effect"],
        tuple(action_matcher(text) for text in action),
        not_actions,
        tuple(resource_matcher(text, variables) for text in resource),
        not_resources,
        conditions(statement_document.get("Condition", {}), variables),
        principals,
        not_principals,
    )


def _either(statement_document: Mapping[str, Any], name: str, label: str) -> tuple[tuple[str, ...], bool]:
    if (name in statement_document) == (f"Not{name}" in statement_document):
        raise PolicyError(f"{label}: either {name} or Not{name}")
    negated = name not in statement_document
    return texts(statement_document[f"Not{name}" if negated else name]), negated


def _principals(
    statement_document: Mapping[str, Any], layer: Layer, trust: bool, label: str
) -> tuple[Mapping[str, tuple[str, ...]] | None, bool]:
    principal_elements = {"Principal", "NotPrincipal"} & set(statement_document)
    if layer is Layer.RCP and statement_document.get("Principal") == "*":
        return None, False  # RCPs apply to all principals, and say so
    if layer is not Layer.RESOURCE:
        if principal_elements:
            raise PolicyError(f"{label}: a {layer.value} names no principal")
        return None, False
    if len(principal_elements) != 1:
        raise PolicyError(f"{label}: a resource policy names either Principal or NotPrincipal")
    negated = "NotPrincipal" in statement_document
    if negated and (trust or statement_document["Effect"] == "Allow"):
        raise PolicyError(f"{label}: NotPrincipal is for a Deny, and not in a trust policy")
    principal_element = statement_document["NotPrincipal" if negated else "Principal"]
    principals = (
        {"AWS": ("*",)}
        if principal_element == "*"
        else {kind: texts(value) for kind, value in principal_element.items()}
    )
    if unknown_kinds := set(principals) - {"AWS", "Service", "Federated"}:
        raise PolicyError(f"{label}: kinds of principals that are not read here (given {sorted(unknown_kinds)})")
    for name in principals.get("AWS", ()):
        if "*" in name and name != "*":
            raise PolicyError(f"{label}: a principal is named whole (given {name!r})")
    return principals, negated


# How a resource policy names who asks


def grant(statement: Statement, request: AwsRequest) -> Grant | None:
    """Form in which a statement of a resource policy names the caller; None where it does not."""
    principal, principals = request.principal, statement.principals
    if principals is None:
        return Grant.DIRECT
    if statement.not_principals:
        return None if exempt(principals, principal) else Grant.DIRECT
    return named_as(principals, principal)


def named_as(principals: Mapping[str, tuple[str, ...]], principal: Principal) -> Grant | None:
    """Form in which a principal element names the caller: directly, by the account, or not at all."""
    aws = principals.get("AWS", ())
    if "*" in aws:
        return Grant.DIRECT
    if principal.kind is PrincipalKind.SERVICE:
        return Grant.DIRECT if principal.arn in principals.get("Service", ()) else None
    if principal.kind is PrincipalKind.FEDERATED:
        return Grant.DIRECT if principal.arn in principals.get("Federated", ()) else None
    if principal.kind is PrincipalKind.ANONYMOUS:
        return None
    if principal.arn in aws:
        return Grant.DIRECT
    if principal.role and principal.role in aws:
        return Grant.ROLE
    return Grant.ACCOUNT if names_account(aws, principal) else None


def names_account(aws: Sequence[str], principal: Principal) -> bool:
    """`111122223333` is `arn:aws:iam::111122223333:root`, and neither is the root user alone (principal)."""
    partition = principal.arn.split(":")[1]
    return bool(principal.account) and (
        principal.account in aws or f"arn:{partition}:iam::{principal.account}:root" in aws
    )


def exempt(principals: Mapping[str, tuple[str, ...]], principal: Principal) -> bool:
    """Is it one of NotPrincipal? Of the account alone or the identity alone AWS says "might" (notprincipal)."""
    if principal.kind not in (PrincipalKind.ROLE, PrincipalKind.USER):
        return named_as(principals, principal) is not None
    aws = principals.get("AWS", ())
    itself = (principal.role or principal.arn) in aws
    parts = [names_account(aws, principal), itself]
    if "*" in aws or all(parts):
        return True
    if not any(parts) and principal.arn not in aws:
        return False
    raise Undocumented(
        f"whether NotPrincipal takes out {principal.arn}, of which it names not both account and identity"
    )


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
        reasons = ", ".join(str(statement) for statement in self.by)
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

    def layer(documents: Sequence[Document], policy_layer: Layer) -> tuple[Statement, ...]:
        return tuple(
            statement
            for index, document in enumerate(documents)
            for statement in statements(document, policy_layer, at=index)
        )

    resource = policies.resource
    compiled_policies = Compiled(
        tuple(layer(level, Layer.SCP) for level in policies.scps),
        tuple(layer(level, Layer.RCP) for level in policies.rcps),
        statements(resource, Layer.RESOURCE, policies.guard) if resource is not None else (),
        layer(policies.identity, Layer.IDENTITY),
        layer([policies.boundary], Layer.BOUNDARY) if policies.boundary is not None else None,
        layer(policies.session, Layer.SESSION) if policies.session else None,
        policies.guard,
    )
    return lambda request: decide(compiled_policies, request)


def all_of(ask: Decide, requests: Iterable[AwsRequest]) -> Decision:
    """A call that needs several permissions: the first refusal, or the last allowance."""
    last = None
    for request in requests:
        last = ask(request)
        if not last.allowed:
            return last
    if last is None:
        raise ValueError("nothing was asked")
    return last


def decide(compiled_policies: Compiled, request: AwsRequest) -> Decision:
    """AWS' decision: an explicit deny first, then the ceilings, then the grants."""
    if denied := explicit_deny(compiled_policies, request):
        return denied
    if refused := ceilings(compiled_policies, request):
        return refused
    granted = grants(compiled_policies, request)
    if request.principal.kind not in (PrincipalKind.ROLE, PrincipalKind.USER):
        # It has no policies of its own: what names it is the resource's policy.
        return _allowed(granted, Grant.DIRECT) or Decision(False, Layer.RESOURCE)
    if not request.within_account:
        return across_accounts(compiled_policies, request, granted)
    return within_account(compiled_policies, request, granted)


def explicit_deny(compiled_policies: Compiled, request: AwsRequest) -> Decision | None:
    """An explicit deny in any of the policies (decision, "Deny evaluation")."""
    for level in applicable(compiled_policies.scps, request, Layer.SCP) + applicable(
        compiled_policies.rcps, request, Layer.RCP
    ):
        if denying_statements := matching(level, request, "Deny"):
            return Decision(False, denying_statements[0].layer, denying_statements)
    for statement in matching(compiled_policies.resource, request, "Deny"):
        if barred_by_boundary(statement, compiled_policies) or grant(statement, request) is not None:
            return Decision(False, Layer.RESOURCE, (statement,))
    for layer_statements in (compiled_policies.identity, compiled_policies.boundary, compiled_policies.session):
        if denying_statements := matching(layer_statements or (), request, "Deny"):
            return Decision(False, denying_statements[0].layer, denying_statements)
    return None


def barred_by_boundary(statement: Statement, compiled_policies: Compiled) -> bool:
    """A Deny with NotPrincipal applies to every principal with a permissions boundary, named or not (notprincipal)."""
    return statement.not_principals and compiled_policies.boundary is not None


def applicable(
    levels: tuple[tuple[Statement, ...], ...], request: AwsRequest, layer: Layer
) -> tuple[tuple[Statement, ...], ...]:
    """Neither kind limits service-linked roles; SCPs limit principals of accounts alone (scp, rcp)."""
    is_exempt = request.principal.service_linked or (layer is Layer.SCP and not request.principal.account)
    return () if is_exempt else levels


def ceilings(compiled_policies: Compiled, request: AwsRequest) -> Decision | None:
    """Every level of the organisation must allow (scp, "How SCPs work with Allow")."""
    for layer, levels in ((Layer.RCP, compiled_policies.rcps), (Layer.SCP, compiled_policies.scps)):
        for level in applicable(levels, request, layer):
            if not matching(level, request, "Allow"):
                return Decision(False, layer)
    return None


def within_account(
    compiled_policies: Compiled, request: AwsRequest, granted: Sequence[tuple[Grant, Statement]]
) -> Decision:
    """(decision, "Resource-based policies" and what follows)"""
    if direct := _allowed(granted, Grant.DIRECT):
        return direct
    by_role = _allowed(granted, Grant.ROLE)
    if not by_role and compiled_policies.guard is not ResourceClass.ORDINARY and not granted:
        return Decision(False, Layer.RESOURCE)
    return by_role_or_identity(compiled_policies, request, by_role)


def by_role_or_identity(compiled_policies: Compiled, request: AwsRequest, by_role: Decision | None) -> Decision:
    """The decision on a role's session within its account."""
    identity_statements = matching(compiled_policies.identity, request, "Allow")
    if not by_role and not identity_statements:
        return Decision(False, Layer.IDENTITY)
    return limits(compiled_policies, request) or by_role or Decision(True, by=identity_statements)


def across_accounts(
    compiled_policies: Compiled, request: AwsRequest, granted: Sequence[tuple[Grant, Statement]]
) -> Decision:
    """Both accounts must allow, each by its own policies (accounts)."""
    if not granted:
        return Decision(False, Layer.RESOURCE)
    identity_statements = matching(compiled_policies.identity, request, "Allow")
    if not identity_statements:
        return Decision(False, Layer.IDENTITY)
    return limits(compiled_policies, request) or Decision(
        True, by=(*identity_statements, *(statement for _, statement in granted))
    )


def limits(compiled_policies: Compiled, request: AwsRequest) -> Decision | None:
    """Boundary and session policy give nothing: where there is one, it must allow as well (decision)."""
    for layer, layer_statements in (
        (Layer.BOUNDARY, compiled_policies.boundary),
        (Layer.SESSION, compiled_policies.session),
    ):
        if layer_statements is not None and not matching(layer_statements, request, "Allow"):
            return Decision(False, layer)
    return None


def grants(compiled_policies: Compiled, request: AwsRequest) -> list[tuple[Grant, Statement]]:
    """Statements of the resource policy that allow the request, each with how it names the caller."""
    grant_of_statement = (
        (grant(statement, request), statement) for statement in matching(compiled_policies.resource, request, "Allow")
    )
    return [(grant_kind, statement) for grant_kind, statement in grant_of_statement if grant_kind is not None]


def matching(candidates: Iterable[Statement], request: AwsRequest, effect: str) -> tuple[Statement, ...]:
    """Statements with this effect that apply to the request."""
    return tuple(statement for statement in candidates if statement.effect == effect and statement.matches(request))


def _allowed(granted: Sequence[tuple[Grant, Statement]], least: Grant) -> Decision | None:
    by = tuple(statement for how, statement in granted if how >= least)
    return Decision(True, by=by) if by else None
