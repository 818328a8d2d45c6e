"""Admission guards: a ValidatingAdmissionPolicy for each kind of object, a validation for each rule.

Few and wide, because each policy costs 0.3 ms at every admission and each validation almost nothing. Their
number does not grow with tenants: what differs by tenant is in annotations of the namespace, which `ns-01`
stops tenants from changing. An absent annotation is an empty list, so a damaged namespace admits nothing. No
text of a tenant file enters an expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tenancy.catalog import vocabulary
from tenancy.catalog.sizes import WALKED, WALKED_OF_PLATFORM
from tenancy.kube.objects import Object, digest
from tenancy.planning.common.labels import exclude_system_namespaces, in_namespaces, manifest, platform_labels
from tenancy.planning.guards.admission_policy import Guard, NamespaceScope, one_line
from tenancy.planning.guards.assembly import ordered
from tenancy.planning.guards.bounds import with_bounds
from tenancy.planning.guards.device_claims import claim_guards
from tenancy.planning.guards.facts import guard_facts
from tenancy.planning.guards.objects import (
    admission_guard,
    deletion_guard,
    node_guard,
    object_guards,
    queue_guard,
    scale_guard,
)
from tenancy.planning.guards.sizes import limit_guards
from tenancy.planning.guards.unmanaged import temporary, unmanaged_guards
from tenancy.planning.guards.work import work_guards
from tenancy.rules.catalogue import RULES, with_subject
from tenancy.rules.expressions import cel
from tenancy.rules.model import GuardFacts, GuardSubject
from tenancy.spec.fields.environment import Environment, GuardsMode

VERSION = 9
"""Raised with each rule that guards enforce. A tenant is made only where the guards have this version or a newer."""
MARKER = "guards"
READINESS_PROBE = "tenancy-readiness"
QUESTION = "are-the-guards-in-force"
"""Name of the readiness probe's ConfigMap: requested in a dry run and always refused, so it never exists."""

GUARDED = tuple(rule.id for rule in RULES.values() if rule.guards)
"""Every rule that some guard enforces, including those that exist only where there is a queue."""
OF_DELETIONS = with_subject(GuardSubject.QUEUED_DELETIONS)
"""Rules that only a request to delete an object can break."""
OF_RUNNING = with_subject(GuardSubject.RUNNING_WORK)
"""Rules that only a change of running work can break."""
OF_ADMISSIONS = with_subject(GuardSubject.ADMISSIONS)
"""Rules that only Kueue can break, when it admits work."""
BACKSTOPS = tuple(rule for rule in GUARDED if RULES[rule].earlier_control)
"""Rules that no request reaches while another control is active: a limit range, Kueue's own webhooks."""


def guards(environment: Environment) -> tuple[Guard, ...]:
    """All guards of an environment, each bounded in the number of entries that it evaluates."""
    platform_guards = ("tenancy-namespaces", "tenancy-nodes")
    return tuple(
        with_bounds(
            replace(guard, rules=ordered(guard.rules)), WALKED_OF_PLATFORM if guard.name in platform_guards else WALKED
        )
        for guard in _guards(environment)
    )


def guards_of_objects(facts: GuardFacts) -> tuple[Guard, ...]:
    """Guards on what people of tenants create, as far as they depend on these facts alone."""
    guard_list = (
        *work_guards("", facts),
        *((queue_guard(facts),) if facts.queued else ()),
        *object_guards(None, facts),
        *(claim_guards(facts) if facts.devices_by_claim else ()),
        *limit_guards(facts),
    )
    return tuple(with_bounds(guard, WALKED) for guard in guard_list if guard.name != "tenancy-namespaces")


def _guards(environment: Environment) -> tuple[Guard, ...]:
    facts = guard_facts(environment)
    return (
        *work_guards(environment.platform.docs, facts),
        scale_guard(facts),
        deletion_guard(facts),
        *((queue_guard(facts), admission_guard(facts)) if facts.queued else ()),
        *object_guards(environment, facts),
        node_guard(facts),
        *(claim_guards(facts) if facts.devices_by_claim else ()),
        *limit_guards(facts),
        *unmanaged_guards(environment, facts),
    )


def refusal(rule: str, docs: str) -> str:
    """Message for the tenant: the rule's id, what it asks for, what to change and where to read."""
    catalogue_rule = RULES[rule]
    return f"{rule}: {catalogue_rule.title}. To change: {catalogue_rule.fix}. Read {docs}#{rule}"


def guard_objects(environment: Environment) -> tuple[Object, ...]:
    """Every policy, then every binding."""
    labels = platform_labels(environment)
    selectors = {
        NamespaceScope.MANAGED: exclude_system_namespaces(environment, unmanaged=False),
        NamespaceScope.ALL: exclude_system_namespaces(environment),
        NamespaceScope.UNMANAGED: in_namespaces(environment.platform.unmanaged_namespaces),
    }
    policies, bindings = [], []
    for guard in guards(environment):
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                # The binding selects: of every policy it is asked before the kind, of a binding after.
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": list(guard.operations),
                        "resources": list(resources),
                        "scope": "*",
                    }
                    for group, version, resources in guard.resources
                ],
            },
            "matchConditions": _named_expressions({**guard.conditions, **temporary(environment, guard)}),
            **({"variables": _named_expressions(guard.variables)} if guard.variables else {}),
            "validations": [
                {
                    "expression": one_line(expression),
                    "message": refusal(rule, environment.platform.docs),
                    **({"messageExpression": guard.messages[rule]} if rule in guard.messages else {}),
                    "reason": "Forbidden",
                }
                for rule, expression in guard.rules.items()
            ],
        }
        api = "admissionregistration.k8s.io/v1"
        policies.append(manifest(api, "ValidatingAdmissionPolicy", guard.name, labels, {"spec": spec}))
        # Audit beside the other: the audit log then names the rule.
        audit = environment.guards is GuardsMode.AUDIT
        everywhere = {
            "matchPolicy": "Equivalent",
            "namespaceSelector": selectors[guard.spaces],
            "objectSelector": {},
        }
        actions = ["Warn" if audit else "Deny", "Audit"]
        binding = {"policyName": guard.name, "matchResources": everywhere, "validationActions": actions}
        notes = {vocabulary.GUARDS_MODE: environment.guards.value} if audit else None
        kind, body = "ValidatingAdmissionPolicyBinding", {"spec": binding}
        bindings.append(manifest(api, kind, guard.name, labels, body, annotations=notes))
    return (*policies, *bindings)


def probe_message(digest_of_guards: str) -> str:
    """Answer of the readiness probe."""
    return f"guards {digest_of_guards} are enforced"


def readiness_probe(environment: Environment, guard_list: tuple[Object, ...]) -> tuple[Object, ...]:
    """Readiness probe: a policy that refuses one name and says which guards are enforced; made after them.

    An API server takes up new policies about a second after they are stored, all that it has seen at once
    and in the order in which they were stored: one that enforces the probe enforces every guard.
    """
    api, labels = "admissionregistration.k8s.io/v1", platform_labels(environment)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": vocabulary.PLATFORM_NAMESPACE}},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["configmaps"],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": [{"name": "question", "expression": f"object.metadata.name == {cel(QUESTION)}"}],
        "validations": [
            {"expression": "false", "message": probe_message(digest(list(guard_list))), "reason": "Forbidden"}
        ],
    }
    binding = {"policyName": READINESS_PROBE, "validationActions": ["Deny"]}
    return (
        manifest(api, "ValidatingAdmissionPolicy", READINESS_PROBE, labels, {"spec": spec}),
        manifest(api, "ValidatingAdmissionPolicyBinding", READINESS_PROBE, labels, {"spec": binding}),
    )


def marker(environment: Environment, guard_list: tuple[Object, ...]) -> Object:
    """ConfigMap made after the guards: a tenant's own stack checks for it before it makes anything."""
    data = {"version": str(VERSION), "digest": digest(list(guard_list))}
    return manifest(
        "v1", "ConfigMap", MARKER, platform_labels(environment), {"data": data}, namespace=vocabulary.PLATFORM_NAMESPACE
    )


def _named_expressions(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": one_line(text)} for name, text in expressions.items()]
