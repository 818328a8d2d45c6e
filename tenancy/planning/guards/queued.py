"""Rules on everything that queues, and where each kind says what the queue reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenancy.planning.guards.expressions import cel, map_at
from tenancy.planning.guards.names import (
    COUNTED,
    DOMAIN,
    HELD,
    MANAGED,
    OWN_CONTROLLERS,
    QUEUE,
    RUN_TIME,
    URGENCY,
    WRITABLE,
)
from tenancy.planning.guards.who import but_by_controllers, who
from tenancy.schema.environment import Environment

# Rules on everything that queues, over what `queue_variables` yields.
QUEUE_RULES: Mapping[str, str] = {
    # Also of a CronJob's controller, which tries again: without a queue's name its Job would wait for ever.
    "kueue-01": f"""(!variables.queues || variables.owned || {cel(QUEUE)} in variables.workLabels
            || (variables.byController && request.operation != 'CREATE'))
        && (variables.byController
            || variables.marks.all(m, !({cel(QUEUE)} in m) || m[{cel(QUEUE)}] in variables.allowedQueues))""",
} | but_by_controllers(
    {
        "kueue-02": "size(variables.newOwners) == 0 && size(variables.lostOwners) == 0",
        "kueue-03": "variables.gates.all(g, g in variables.usualGates || g in variables.oldGates)",
        "kueue-06": f"""variables.marks.all(m, !({cel(URGENCY)} in m)
            || m[{cel(URGENCY)}] in variables.allowedPriorities)""",
        "kueue-08": f"""variables.marks.all(m, m.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || (k in variables.given && (variables.given[k] == '' || variables.given[k] == m[k]))
            || variables.oldMarks.exists(o, k in o && o[k] == m[k])))
        && variables.oldMarks.all(o, o.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || variables.marks.exists(m, k in m)))""",
        "kueue-10": f"""variables.mostSeconds == '' || !variables.ends || variables.owned
        || ({cel(RUN_TIME)} in variables.workLabels
            && variables.workLabels[{cel(RUN_TIME)}].matches('^[1-9][0-9]{{0,8}}$')
            && int(variables.workLabels[{cel(RUN_TIME)}]) <= int(variables.mostSeconds))""",
    }
)
QUEUED_PODS: Mapping[str, str] = {
    **QUEUE_RULES,
    # A controller knows its pods by their labels, and releases one that lacks them: it would run on without being
    # counted. A pod that is queued by itself is counted with any owner.
    "kueue-02": f"""({QUEUE_RULES["kueue-02"]}) && (variables.byController || !variables.owned
        || request.operation != 'UPDATE' || !has(oldObject.metadata.labels)
        || {cel(MANAGED)} in oldObject.metadata.labels
        || oldObject.metadata.labels.all(k, k in variables.podLabels
            && variables.podLabels[k] == oldObject.metadata.labels[k]))""",
    # The queue's marks stay labels or annotations, as they are: Kueue ignores a pod whose label became an annotation.
    "kueue-08": f"""({QUEUE_RULES["kueue-08"]}) && (variables.byController || request.operation != 'UPDATE' || (
        (!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podLabels))
        && (!has(oldObject.metadata.annotations) || oldObject.metadata.annotations.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podAnnotations))))""",
    # No gate can be added to a pod that exists, and a pod without the queue's gate would start outside the queue. Kueue
    # itself does so: it ungates every pod of a StatefulSet's former revision, admitted or not (pkg/util/statefulset),
    # and a rollout that never ends would exceed any share. What it counted it labels.
    "kueue-03": f"""({QUEUE_RULES["kueue-03"]})
        && (request.operation != 'UPDATE' || !has(oldObject.spec.schedulingGates)
            || oldObject.spec.schedulingGates.all(g,
                g.name in variables.gates || !g.name.startsWith({cel(DOMAIN)})
                || (variables.byQueue && (g.name != {cel(HELD)} || {cel(COUNTED)} in variables.podLabels
                    || has(object.metadata.deletionTimestamp)))))""",
    "kueue-07": """request.operation != 'CREATE' || variables.containers.all(c,
        has(c.resources) && has(c.resources.requests)
        && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)""",
    # A Deployment's and a StatefulSet's pods wait each by itself, those of other work with it.
    "kueue-09": f"""request.operation != 'CREATE' || variables.byRunner || {cel(HELD)} in variables.gates""",
}
# Kueue reads a template before the defaults of its pods are filled in.
TEMPLATE_LIMITS: Mapping[str, str] = but_by_controllers(
    {
        "quota-04": """variables.containers.all(c, !has(c.resources) || !has(c.resources.requests)
        || variables.defaultLimits.all(d, !(d.split('=')[0] in c.resources.requests)
            || (has(c.resources.limits) && d.split('=')[0] in c.resources.limits)
            || !quantity(string(c.resources.requests[d.split('=')[0]])).isGreaterThan(quantity(d.split('=')[1]))))"""
    }
)
# What a job's count was is what the queue has counted: a higher one makes pods that run until the queue has stopped the
# job, and then for their grace period. The queue itself starts fewer at first where that was asked for.
COUNTS: Mapping[str, str] = {
    "kueue-27": """variables.byRunner || request.operation != 'UPDATE' || variables.suspended
        || variables.noMorePods"""
}
SUSPENSION: Mapping[str, str] = {
    "kueue-04": f"""variables.byRunner || (
        variables.controllers.all(c, c in {cel(list(OWN_CONTROLLERS))})
        && (!variables.waits || variables.suspended
            || (request.operation == 'UPDATE' && !variables.wasSuspended)))"""
}


def marks_of(root: str, optional: Sequence[str] = ()) -> list[str]:
    """CEL: the labels and the annotations of the metadata at a path."""
    return [map_at(f"{root}.{field}", optional) for field in ("labels", "annotations")]


OWN = "{0}.metadata"


@dataclass(frozen=True, slots=True)
class QueueFields:
    """Where a kind of object says what the queue reads. Expressions, of which `{0}` is the object."""

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


def queue_variables(environment: Environment, of: QueueFields) -> dict[str, str]:
    """CEL variables with the queue's labels and annotations of an object and of its pods."""

    def optional(root: str) -> list[str]:
        """An object's own metadata is always there."""
        return [] if of.work == OWN else [of.work.format(root)]

    def found(root: str) -> str:
        pods = f"{of.template.format(root)}.metadata"
        return ", ".join(
            [*marks_of(of.work.format(root), optional(root)), *(marks_of(pods, [pods]) if of.template else [])]
        )

    def gates(root: str) -> str:
        spec = f"{of.template.format(root)}.spec" if of.template else f"{root}.spec"
        return f"has({spec}.schedulingGates) ? {spec}.schedulingGates.map(g, g.name) : []"

    return {
        **who(environment),
        "workLabels": map_at(f"{of.work.format('object')}.labels", optional("object")),
        "marks": f"[{found('object')}]",
        "oldMarks": f"request.operation == 'UPDATE' ? [{found('oldObject')}] : []",
        "queues": of.queues,
        "ends": of.ends,
        "given": of.given,
        "gates": gates("object"),
        # Work that was started carries the queue's own gate; a change of the work keeps it.
        "oldGates": f"request.operation == 'UPDATE' ? ({gates('oldObject')}) : []",
        "usualGates": cel(list(of.usual)),
    }


def suspension(suspend: str, managed_by: str, waits: str = "true") -> dict[str, str]:
    """Where work says that it waits, and who runs it: paths below the object."""

    def at(root: str, path: str) -> str:
        parts = path.split(".")
        return " && ".join(f"has({root}.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))

    return {
        "waits": waits,
        "suspended": f"{at('object', suspend)} && object.{suspend}",
        "wasSuspended": f"{at('oldObject', suspend)} && oldObject.{suspend}",
        "controllers": f"{at('object', managed_by)} ? [object.{managed_by}] : []",
    }
