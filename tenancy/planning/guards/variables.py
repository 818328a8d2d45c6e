"""CEL variables of the guards: the pod, who sends the request, and what the queue reads of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import JOB_CONTROLLERS, JOB_FINALIZER, KUEUE, MANAGED, WORKLOAD_CONTROLLERS
from tenancy.rules.expressions import CONTROLS, OWN_FINALIZERS, annotation, annotation_list, cel, map_at
from tenancy.rules.model import GuardFacts

# Pods

REQUESTED_RESOURCES = """variables.allowedResources.filter(r, {containers}.exists(c, has(c.resources)
    && has(c.resources.limits) && r in c.resources.limits && sign(quantity(string(c.resources.limits[r]))) > 0))"""
"""Resources of the tenant that a container requests."""
LISTS: Mapping[str, str] = {
    "allowances": annotation_list(vocabulary.ALLOWANCES),
    "allowedAccounts": annotation_list(vocabulary.ALLOWED_ACCOUNTS),
    "allowedRuntimes": annotation_list(vocabulary.ALLOWED_RUNTIMES),
    "tokenAccounts": annotation_list(vocabulary.TOKEN_ACCOUNTS),
    "allowedPools": annotation_list(vocabulary.ALLOWED_POOLS),
    "allowedPriorities": annotation_list(vocabulary.ALLOWED_PRIORITIES),
    "allowedRegistries": annotation_list(vocabulary.ALLOWED_REGISTRIES),
    "allowedResources": annotation_list(vocabulary.ALLOWED_RESOURCES),
}
# What a pod has already is not judged again: a network agent has written there how the pod is connected, and a request
# that removes one finalizer leaves the others. Agents of the system write onto pods that exist; pods that its
# controllers create have what a tenant's template says.
_OF_SYSTEM = """('system:serviceaccounts:kube-system' in request.userInfo.groups
    || request.userInfo.username.startsWith('eks:'))"""
_NEW_ANNOTATIONS = f"""variables.podAnnotations.filter(k, request.operation == 'CREATE' || (!{_OF_SYSTEM}
    && !(has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations
        && oldObject.metadata.annotations[k] == variables.podAnnotations[k])))"""
_IN_PLACE = f"""
    && !(f == {cel(MANAGED)} && {cel(MANAGED)} in variables.podLabels)"""
"""Kueue's finalizer goes when the work has ended; where no Kueue runs, it would stay for ever."""
_NEW_FINALIZERS = f"""{OWN_FINALIZERS}.filter(f,
    !(f == {cel(JOB_FINALIZER)} && request.userInfo.username in {cel(list(JOB_CONTROLLERS))}))"""


def pod_variables(spec: str, metadata: str, placing: str, queued: bool = False) -> dict[str, str]:
    """`spec` and `metadata` yield the pod's; `placing` is true while the scheduler has not seen it."""

    def either(field: str) -> str:
        return f"has({metadata}.{field}) ? {metadata}.{field} : {{}}"

    of_pod = metadata == "object.metadata"
    optional = "" if of_pod else f"has({metadata}) && "
    labels, annotations = (f"{optional}{either(f)}" for f in ("labels", "annotations"))
    finalizers = f"{optional}has({metadata}.finalizers) ? {metadata}.finalizers : []"
    return {
        "spec": spec,
        "podLabels": labels,
        "podAnnotations": annotations,
        "newAnnotations": _NEW_ANNOTATIONS if of_pod else "variables.podAnnotations.filter(k, true)",
        "newFinalizers": _NEW_FINALIZERS + (f".filter(f, true{_IN_PLACE})" if queued else "") if of_pod else finalizers,
        **({} if of_pod else {"ownFinalizers": OWN_FINALIZERS}),
        "placing": placing,
        "containers": "variables.spec.containers"
        " + (has(variables.spec.initContainers) ? variables.spec.initContainers : [])"
        " + (has(variables.spec.ephemeralContainers) ? variables.spec.ephemeralContainers : [])",
        **LISTS,
        "asked": REQUESTED_RESOURCES.format(containers="variables.containers"),
    }


# Requests


def requester_variables(facts: GuardFacts) -> dict[str, str]:
    """CEL variables that tell who sent a request: the queue, a controller, an operator."""
    operators = sorted({framework.operator for framework in facts.frameworks})

    def by(*names: str) -> str:
        return f"request.userInfo.username in {cel(list(names))}"

    return {
        "byQueue": by(KUEUE),
        "byRunner": by(KUEUE, *JOB_CONTROLLERS, *operators),
        "byController": by(KUEUE, *WORKLOAD_CONTROLLERS, *operators),
        "owned": f"request.operation == 'UPDATE' ? {_owned('oldObject')} : {_owned('object')}",
        "newOwners": f"""(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []).filter(o,
    ({CONTROLS} || (request.operation == 'UPDATE' && {_owned("oldObject")}))
    && !(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
        && o in oldObject.metadata.ownerReferences)
    && !(request.operation == 'CREATE' && request.resource.resource == 'jobs' && {_OF_CRONJOB}))""",
        "lostOwners": f"""(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
    ? oldObject.metadata.ownerReferences : []).filter(o, {CONTROLS}
        && !(has(object.metadata.ownerReferences) && o in object.metadata.ownerReferences))""",
        "allowedQueues": annotation_list(vocabulary.ALLOWED_QUEUES),
        "defaultLimits": annotation_list(vocabulary.DEFAULT_LIMITS),
        "mostSeconds": annotation(vocabulary.MAX_RUN_SECONDS),
    }


_OF_CRONJOB = "o.kind == 'CronJob' && o.apiVersion == 'batch/v1'"
"""A CronJob is no work: its Jobs are queued like any other Job, such as one of `kubectl create job --from`."""


def _owned(root: str) -> str:
    """Whether it is a part of other work."""
    references = f"{root}.metadata.ownerReferences"
    return f"(has({references}) && {references}.exists(o, {CONTROLS} && !({_OF_CRONJOB})))"


def controllers(queued: bool) -> dict[str, str]:
    """Work from before a rule can be stopped: scaled down by its controller, suspended by the queue.

    Whatever else they change is judged, so nothing starts that breaks a rule by now. Not everything that this is asked
    of has a template in one place, or can be suspended.
    """
    ways = [
        f"""(request.userInfo.username in {cel(list(WORKLOAD_CONTROLLERS))}
        && has(dyn(object).spec.template) && dyn(object).spec.template == dyn(oldObject).spec.template)"""
    ]
    if queued:
        suspended = " || ".join(f"dyn(object).?spec.?{at}suspend.orValue(false)" for at in ("", "runPolicy.?"))
        ways.append(f"(request.userInfo.username == {cel(KUEUE)} && ({suspended}))")
    return {"stopped": f"request.operation != 'UPDATE' || !({' || '.join(ways)})"}


# What the queue reads


def marks_of(root: str, optional: Sequence[str] = ()) -> list[str]:
    """CEL: the labels and the annotations of the metadata at a path."""
    return [map_at(f"{root}.{field}", optional) for field in ("labels", "annotations")]


OBJECT_METADATA = "{0}.metadata"


@dataclass(frozen=True, slots=True)
class QueueFields:
    """Places from which the queue reads in a kind of object. Expressions, of which `{0}` is the object."""

    work: str
    """Metadata of what is queued."""
    template: str = ""
    """A pod's template in it."""
    queues: str = "true"
    """Whether it is queued by itself, and not only the pods that it makes."""
    ends: str = "true"
    """Whether the queue keeps its run time."""
    given: str = "{}"
    usual: tuple[str, ...] = ()
    """Gates of pods that may be there when the work is made: those that the queue's own webhook adds."""


def queue_variables(facts: GuardFacts, fields: QueueFields) -> dict[str, str]:
    """CEL variables with the queue's labels and annotations of an object and of its pods."""

    def optional(root: str) -> list[str]:
        """An object's own metadata is always there."""
        return [] if fields.work == OBJECT_METADATA else [fields.work.format(root)]

    def queue_marks(root: str) -> str:
        pods = f"{fields.template.format(root)}.metadata"
        return ", ".join(
            [*marks_of(fields.work.format(root), optional(root)), *(marks_of(pods, [pods]) if fields.template else [])]
        )

    def gates(root: str) -> str:
        spec = f"{fields.template.format(root)}.spec" if fields.template else f"{root}.spec"
        return f"has({spec}.schedulingGates) ? {spec}.schedulingGates.map(g, g.name) : []"

    return {
        **requester_variables(facts),
        "workLabels": map_at(f"{fields.work.format('object')}.labels", optional("object")),
        "marks": f"[{queue_marks('object')}]",
        "oldMarks": f"request.operation == 'UPDATE' ? [{queue_marks('oldObject')}] : []",
        "queues": fields.queues,
        "ends": fields.ends,
        "given": fields.given,
        "gates": gates("object"),
        # Work that was started carries the queue's own gate; a change of the work keeps it.
        "oldGates": f"request.operation == 'UPDATE' ? ({gates('oldObject')}) : []",
        "usualGates": cel(list(fields.usual)),
    }


def suspension(suspend: str, managed_by: str, waits: str = "true") -> dict[str, str]:
    """Fields that say that work waits, and which controller runs it: paths below the object."""

    def at(root: str, path: str) -> str:
        parts = path.split(".")
        return " && ".join(f"has({root}.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))

    return {
        "waits": waits,
        "suspended": f"{at('object', suspend)} && object.{suspend}",
        "wasSuspended": f"{at('oldObject', suspend)} && oldObject.{suspend}",
        "controllers": f"{at('object', managed_by)} ? [object.{managed_by}] : []",
    }
