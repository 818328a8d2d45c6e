"""Pieces of CEL that rules share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.controllers import SYSTEM_USERS
from tenancy.rules.model import GuardFacts


def cel(value: object) -> str:
    """A constant of ours as a CEL literal; CEL reads JSON's strings and lists."""
    return json.dumps(value)


DEVICES = cel(list(gpus.DEVICE_VARIABLES))
_COST_LABELS = cel(list(vocabulary.CHARGED_LABELS))

GRANTED = f"""authorizer.group({cel(vocabulary.GPU_GRANT[0])}).resource({cel(vocabulary.GPU_GRANT[1])})
            .namespace(namespaceObject.metadata.name).check({cel(vocabulary.GPU_GRANT[2])}).allowed()"""
OF_TENANT = f"namespaceObject.metadata.labels[{cel(vocabulary.TENANT)}]"
IN_TENANTS_NAMESPACE = f"{cel(vocabulary.TENANT)} in namespaceObject.metadata.labels"
CONTROLS = "has(o.controller) && o.controller"
"""Whether an owner reference `o` names the object's controller."""
PLAIN_RESOURCES = cel(["cpu", "memory", "ephemeral-storage"])
"""Resources that every container may ask for."""

OWN_FINALIZERS = """(has(object.metadata.finalizers) ? object.metadata.finalizers : []).filter(f,
    request.operation == 'CREATE'
        || !(has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers))"""


def annotation(key: str, literal: Callable[[str], str] = cel) -> str:
    """An annotation of the namespace; empty if it is not there. `literal` writes the key: CEL takes both quotes, and
    a policy with the other ones is another policy."""
    return f"namespaceObject.metadata.?annotations[?{literal(key)}].orValue('')"


def annotation_list(key: str) -> str:
    """An annotation of the namespace as a list. No item is empty: every image's name begins with nothing."""
    return f"{annotation(key)}.split(',').filter(x, x != '')"


def charged_keys(literal: Callable[[str], str] = cel) -> str:
    """Keys of the labels that costs are charged by: ours, and those that the namespace's annotation names."""
    return f"({_COST_LABELS} + {annotation(vocabulary.OWN_LABELS, literal)}.split(','))"


def cost_labels_match(labels: str) -> str:
    """Whether the cost labels, by which tenants are charged, are the namespace's."""
    return f"""{charged_keys()}.all(k, !(k in {labels})
        || (k in namespaceObject.metadata.labels && {labels}[k] == namespaceObject.metadata.labels[k]))"""


def may(allowance: vocabulary.Allowance) -> str:
    """Whether the namespace has an allowance."""
    return f"({cel(allowance.value)} in variables.allowances)"


def by_platform(group: str) -> str:
    """Whether the request is the platform's."""
    return f"{cel(group)} in request.userInfo.groups"


def by_people(facts: GuardFacts) -> str:
    """Whether the request is no controller's, no kubelet's and not the platform's."""
    groups = [facts.platform_group, "system:nodes"]
    groups += [f"system:serviceaccounts:{name}" for name in facts.system_namespaces]
    return f"""!request.userInfo.groups.exists(g, g in {cel(groups)})
    && !(request.userInfo.username in {cel(list(SYSTEM_USERS))}) && !request.userInfo.username.startsWith('eks:')"""


def unless_by_controller(text: str) -> str:
    """An expression that is true for controllers: their objects were judged as templates, and the queue may change its
    own."""
    return f"variables.byController || ({text})"


def in_tenants_namespaces(text: str) -> str:
    """An expression for tenants' namespaces alone: it judges nothing that others run on the same cluster."""
    return f"!({IN_TENANTS_NAMESPACE}) || ({text})"


def map_at(at: str, optional: Sequence[str]) -> str:
    """A map that may be absent, as may the objects around it."""
    all_present = " && ".join([*(f"has({part})" for part in optional), f"has({at})"])
    return f"({all_present} ? {at} : {{}})"


def is_unchanged(new: str, old: str, which: str) -> str:
    """Whether no key `k` of a map for which `which` is true was written, changed or removed."""
    return (
        f"variables.{new}.all(k, !{which}"
        f" || (k in variables.{old} && variables.{old}[k] == variables.{new}[k]))"
        f" && variables.{old}.all(k, !{which} || k in variables.{new})"
    )


def same_field(field: str) -> str:
    """Whether a field of the spec is as it was."""
    now, before = (f"dyn({root}).spec.?{field}.orValue('')" for root in ("object", "oldObject"))
    return f"{now} == {before}"


def by_framework(kinds: Sequence[str], values: Mapping[str, str], otherwise: str) -> str:
    """The value for the kind of the object."""
    expression = otherwise
    for kind in kinds:
        if text := values.get(kind):
            expression = f"object.kind == {cel(kind)} ? {text} : {expression}"
    return expression
