"""Admission guards: a ValidatingAdmissionPolicy for each kind of object, a validation for each rule.

Few and wide, because each policy costs 0.3 ms at every admission and each validation almost nothing. Their
number does not grow with tenants: what differs by tenant stands in annotations of the namespace, which
`ns-01` keeps out of tenants' hands. An absent annotation is an empty list, so a damaged namespace admits
nothing. No text of a tenant file enters an expression.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.plan.guards.devices import CLAIM_RULES, claim_guards
from tenancy.plan.guards.expressions import HAS_TENANT, Guard, cel, one_line
from tenancy.plan.guards.objects import (
    QUEUED_DELETIONS,
    deletion_guard,
    node_guard,
    object_guards,
    queue_guard,
    scale_guard,
)
from tenancy.plan.guards.pods import POD_RULES
from tenancy.plan.guards.queued import QUEUED_PODS, SUSPENSION, TEMPLATE_LIMITS
from tenancy.plan.guards.work import work_guards
from tenancy.plan.labels import beside_the_systems, manifest, platform_labels
from tenancy.plan.model import Object, digest
from tenancy.rules.catalogue import RULES
from tenancy.spec.environment import Environment, GuardsMode

VERSION = 4
"""Raised when a tenant's objects need guards that older platforms lack."""
MARKER = "guards"
WITNESS = "tenancy-witness"
QUESTION = "are-the-guards-in-force"
"""Name of a ConfigMap that the witness always refuses: asked for in a dry run, it is never made."""

GUARDED = (
    *(*HAS_TENANT, *POD_RULES, *CLAIM_RULES, "gpu-11"),
    *(*QUEUED_PODS, *TEMPLATE_LIMITS, *SUSPENSION, "kueue-05", *QUEUED_DELETIONS, "kueue-26"),
    *("avail-02", "gpu-04", "id-01", "id-02", "net-01", "net-02", "net-10", "node-08", "ns-01", "ns-05", "stor-03"),
)
"""Every rule that some guard enforces, those that stand only where there is a queue among them."""
OF_DELETIONS = tuple(QUEUED_DELETIONS)
"""Rules that nothing breaks but a request to delete what is there."""
BACKSTOPS = ("kueue-07", "kueue-09")
"""Rules that no request comes to as long as another control stands: a limit range, Kueue's own webhooks."""


def guards(environment: Environment) -> tuple[Guard, ...]:
    return (
        *work_guards(environment),
        scale_guard(environment),
        deletion_guard(environment),
        *((queue_guard(),) if environment.queued else ()),
        *object_guards(environment),
        node_guard(),
        *(claim_guards() if environment.devices_by_claim else ()),
    )


def refusal(rule: str, docs: str) -> str:
    """What a tenant reads: the rule's id, what it asks for, what to change and where to read."""
    found = RULES[rule]
    return f"{rule}: {found.title}. To change: {found.fix}. Read {docs}#{rule}"


def guard_objects(environment: Environment) -> tuple[Object, ...]:
    """Every policy, then every binding."""
    labels = platform_labels(environment)
    selector = beside_the_systems(environment)
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
            "matchConditions": _named(guard.conditions),
            **({"variables": _named(guard.variables)} if guard.variables else {}),
            "validations": [
                {
                    "expression": one_line(expression),
                    "message": refusal(rule, environment.platform.docs),
                    "reason": "Forbidden",
                }
                for rule, expression in guard.rules.items()
            ],
        }
        api = "admissionregistration.k8s.io/v1"
        policies.append(manifest(api, "ValidatingAdmissionPolicy", guard.name, labels, {"spec": spec}))
        # Audit beside the other: the audit log then names the rule.
        audit = environment.guards is GuardsMode.AUDIT
        everywhere = {"matchPolicy": "Equivalent", "namespaceSelector": selector, "objectSelector": {}}
        actions = ["Warn" if audit else "Deny", "Audit"]
        binding = {"policyName": guard.name, "matchResources": everywhere, "validationActions": actions}
        notes = {words.GUARDS_MODE: environment.guards.value} if audit else None
        kind, body = "ValidatingAdmissionPolicyBinding", {"spec": binding}
        bindings.append(manifest(api, kind, guard.name, labels, body, annotations=notes))
    return (*policies, *bindings)


def standing(digest_of_guards: str) -> str:
    """What the witness answers."""
    return f"guards {digest_of_guards} are in force"


def witness(environment: Environment, guard_list: tuple[Object, ...]) -> tuple[Object, ...]:
    """A policy that refuses one name and says which guards stand; made after them.

    An API server takes up new policies about a second after they are stored, all that it has seen at once
    and in the order in which they were stored: one that knows the witness knows every guard.
    """
    api, labels = "admissionregistration.k8s.io/v1", platform_labels(environment)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": words.PLATFORM_NAMESPACE}},
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
        "validations": [{"expression": "false", "message": standing(digest(list(guard_list))), "reason": "Forbidden"}],
    }
    binding = {"policyName": WITNESS, "validationActions": ["Deny"]}
    return (
        manifest(api, "ValidatingAdmissionPolicy", WITNESS, labels, {"spec": spec}),
        manifest(api, "ValidatingAdmissionPolicyBinding", WITNESS, labels, {"spec": binding}),
    )


def marker(environment: Environment, guard_list: tuple[Object, ...]) -> Object:
    """Made after the guards: what a tenant's own stack looks for before it makes anything."""
    data = {"version": str(VERSION), "digest": digest(list(guard_list))}
    return manifest(
        "v1", "ConfigMap", MARKER, platform_labels(environment), {"data": data}, namespace=words.PLATFORM_NAMESPACE
    )


def _named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": one_line(text)} for name, text in expressions.items()]
