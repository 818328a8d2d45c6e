"""Guards on pods and on what makes them."""

from __future__ import annotations

from tenancy.catalog.controllers import GATED, HELD, PLACED
from tenancy.planning.guards.admission_policy import (
    META,
    NO_NEW_FINALIZER,
    Guard,
    by_resource,
    change_condition,
    untyped,
    with_inlined_variables,
)
from tenancy.planning.guards.assembly import Kinds, fields_of_work, latest, merge_expressions, of_resources
from tenancy.planning.guards.frameworks import framework_guard
from tenancy.planning.guards.pod_security import security_message, security_variables
from tenancy.planning.guards.variables import (
    OBJECT_METADATA,
    QueueFields,
    controllers,
    pod_variables,
    queue_variables,
    requester_variables,
    suspension,
)
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import cel
from tenancy.rules.model import GuardFacts, GuardSubject
from tenancy.rules.queue_counts import IS_JOB, in_parallel


def work_guards(docs: str, facts: GuardFacts) -> tuple[Guard, ...]:
    """All guards on pods and on every kind that has a pod template."""
    return (
        with_inlined_variables(_pods(facts)),
        with_inlined_variables(_templates(docs, facts)),
        _cron_jobs(docs, facts),
        *((framework_guard(docs, facts),) if facts.frameworks else ()),
    )


def _pods(facts: GuardFacts) -> Guard:
    queue = QueueFields(
        OBJECT_METADATA,
        # A pod of other work carries what that work's template says.
        given=f"request.operation == 'CREATE' ? {cel(GATED['pods'])} : {{}}",
        # Kueue's webhook writes both onto each pod, whether or not a flavor has a topology, and Kueue removes both
        # when it admits the pod without one (v0.19.2, pod_webhook.go; pod_controller.go, `prepare`).
        usual=(HELD, PLACED),
    )
    queued = (GuardSubject.QUEUED, GuardSubject.QUEUED_PODS) if facts.queued else ()
    return Guard(
        "tenancy-pods",
        # A pod's marks can be written by its status too.
        [("", "v1", ["pods", "pods/ephemeralcontainers", *(["pods/status"] if facts.queued else [])])],
        latest(facts, GuardSubject.NAMESPACE_OF_WORK, GuardSubject.PODS, GuardSubject.POD, *queued),
        {
            **pod_variables("object.spec", "object.metadata", "request.operation == 'CREATE'", facts.queued),
            "byController": requester_variables(facts)["byController"],
            **(queue_variables(facts, queue) if facts.queued else {}),
        },
        change_condition("spec", *META, *(["metadata.ownerReferences"] if facts.queued else []), also=NO_NEW_FINALIZER),
    )


def _rules_of_work(facts: GuardFacts, *queued: GuardSubject) -> dict[str, str]:
    """Rules on pod templates, and on the objects that have them."""
    return {
        **merge_expressions(
            latest(facts, GuardSubject.PODS, GuardSubject.TEMPLATES),
            expressions(GuardSubject.CLAIMS_OF_WORK, facts),
            expressions(GuardSubject.WORK, facts),
        ),
        **latest(facts, GuardSubject.NAMESPACE_OF_WORK, GuardSubject.POD_SECURITY),
        **(latest(facts, GuardSubject.QUEUED, GuardSubject.QUEUED_TEMPLATES, *queued) if facts.queued else {}),
    }


def _templates(docs: str, facts: GuardFacts) -> Guard:
    kinds: Kinds = [
        ("batch", "v1", ["jobs"]),
        ("apps", "v1", ["deployments", "statefulsets", "replicasets", "daemonsets"]),
        ("", "v1", ["replicationcontrollers"]),
    ]
    facts = of_resources(facts, kinds)
    queue = QueueFields(
        *(OBJECT_METADATA, "{0}.spec.template"),
        queues="request.resource.resource in ['jobs', 'deployments', 'statefulsets']",
        ends=IS_JOB,
        given=by_resource({kind: GATED[kind] for kind in ("deployments", "statefulsets")}),
    )
    now, before = (in_parallel(f"dyn({root}).spec") for root in ("object", "oldObject"))
    of_queue = {
        **queue_variables(facts, queue),
        **{k: f"{IS_JOB} && ({untyped(v)})" for k, v in suspension("spec.suspend", "").items() if k != "controllers"},
        # Other kinds' pods wait each by itself.
        "noMorePods": f"!({IS_JOB}) || {now} <= {before}",
        "controllers": f"{IS_JOB} && has(dyn(object).spec.managedBy) ? [dyn(object).spec.managedBy] : []",
    }
    return Guard(
        "tenancy-templates",
        kinds,
        _rules_of_work(facts, GuardSubject.QUEUED_WORK, GuardSubject.RUNNING_WORK, GuardSubject.BUILT_IN_WORK),
        {
            **pod_variables("object.spec.template.spec", "object.spec.template.metadata", "true"),
            **security_variables(),
            "byController": requester_variables(facts)["byController"],
            **(of_queue if facts.queued else {}),
        },
        {**change_condition(*fields_of_work(facts), also=NO_NEW_FINALIZER), **controllers(facts.queued)},
        messages=security_message(docs),
    )


def _cron_jobs(docs: str, facts: GuardFacts) -> Guard:
    kinds: Kinds = [("batch", "v1", ["cronjobs"])]
    facts = of_resources(facts, kinds)
    job = "object.spec.jobTemplate.spec"
    queue = QueueFields("{0}.spec.jobTemplate.metadata", "{0}.spec.jobTemplate.spec.template", queues="false")
    of_queue = {
        **queue_variables(facts, queue),
        # Whether it makes Jobs now is its own; each of them waits.
        "waits": "false",
        "suspended": "true",
        "wasSuspended": "true",
        "controllers": f"has({job}.managedBy) ? [{job}.managedBy] : []",
    }
    return Guard(
        "tenancy-cronjobs",
        kinds,
        {**_rules_of_work(facts, GuardSubject.QUEUED_WORK), **expressions(GuardSubject.CRON_JOBS, facts)},
        {
            **pod_variables(f"{job}.template.spec", f"{job}.template.metadata", "true"),
            **security_variables(),
            "byController": requester_variables(facts)["byController"],
            **(of_queue if facts.queued else {}),
        },
        change_condition(*fields_of_work(facts), also=NO_NEW_FINALIZER),
        messages=security_message(docs),
    )
