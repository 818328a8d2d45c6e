"""The queue's name that the API server writes onto work without one.

Kueue's webhook writes it too, but not while the namespace's queue is on hold or drains: it forgets a LocalQueue with a
stopPolicy (v0.19.2 `localqueue_controller.go`; `DefaultLocalQueueExist`). Such work would be refused, or, made by a
controller, wait for ever. A MutatingAdmissionPolicy is there from Kubernetes 1.36 on; before, kueue-01 refuses the work
with the label to write, and a CronJob's controller tries again until the queue is open.
"""

from __future__ import annotations

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import QUEUE
from tenancy.catalog.versions import incompatible
from tenancy.kube.objects import Object
from tenancy.planning.guards.admission_policy import one_line
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.kubernetes.pod_defaults import ResourceRule, mutating_policy
from tenancy.rules.expressions import cel
from tenancy.spec.fields.environment import Environment

NAME = "tenancy-queue-defaults"

_QUEUED_KINDS = ("apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "batch/Job", "v1/Pod")
"""Built-in kinds whose parts Kueue counts with them, and gives no queue of their own (`IsOwnerManagedByKueue`)."""
_HAS_QUEUE_NAME = f"(has({{0}}.metadata.labels) && {{0}}.metadata.labels[?{cel(QUEUE)}].orValue('') != '')"
_PATCH = f"""!({cel(vocabulary.TENANT)} in namespaceObject.metadata.labels) ? [] :
    (has(object.metadata.labels) ? [] : [JSONPatch{{op: "add", path: "/metadata/labels", value: {{}}}}])
    + [JSONPatch{{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey({cel(QUEUE)}),
        value: request.operation == 'CREATE' ? {cel(vocabulary.DEFAULT_QUEUE)}
            : oldObject.metadata.labels[{cel(QUEUE)}]}}]"""


def queue_defaults(environment: Environment) -> tuple[Object, ...]:
    """The policy and its binding; none without a queue, or where the API server lacks the kind."""
    if not environment.has_queues or incompatible(environment.cluster.kubernetes, "pod-defaults"):
        return ()
    enabled_frameworks = frameworks(environment)
    owners = [*_QUEUED_KINDS, *(f"{framework.group}/{framework.kind}" for framework in enabled_frameworks)]
    conditions = {
        "unnamed": f"!{_HAS_QUEUE_NAME.format('object')}",
        "whole": f"""!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o,
            o.?controller.orValue(false) && (o.apiVersion.split('/')[0] + '/' + o.kind) in {cel(owners)})""",
        # An update keeps the name. One that had none may run without the queue, which would stop it.
        "new": f"request.operation == 'CREATE' || {_HAS_QUEUE_NAME.format('oldObject')}",
    }
    rules: list[ResourceRule] = [
        ("", "v1", ["pods"], ["CREATE"]),
        ("batch", "v1", ["jobs"], ["CREATE", "UPDATE"]),
        ("apps", "v1", ["deployments", "statefulsets"], ["CREATE", "UPDATE"]),
        *(
            (job_framework.group, job_framework.version, [job_framework.resource], ["CREATE", "UPDATE"])
            for job_framework in enabled_frameworks
        ),
    ]
    match = [{"name": name, "expression": one_line(text)} for name, text in conditions.items()]
    # Work that has no queue's name then is refused by a guard.
    return mutating_policy(environment, NAME, rules, one_line(_PATCH), matchConditions=match)
