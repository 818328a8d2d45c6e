"""Guards on pods and on what makes them."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog.versions import incompatible
from tenancy.planning.guards.counts import ends_as_counted, few, in_parallel
from tenancy.planning.guards.expressions import (
    HAS_TENANT,
    META,
    NO_NEW_FINALIZER,
    Guard,
    by_resource,
    cel,
    changed,
    untyped,
    written_out,
)
from tenancy.planning.guards.keys import beside_pods, both, claim_rules, volume_keys
from tenancy.planning.guards.kinds import framework_guard
from tenancy.planning.guards.names import GATED, HELD, PLACED
from tenancy.planning.guards.pod_security import SECURED, security_message, security_variables
from tenancy.planning.guards.pods import (
    BY_CLAIM,
    POD_RULES,
    PROBE_HOSTS,
    STANDING_PODS,
    SYNCED,
    pod_variables,
    with_work,
)
from tenancy.planning.guards.queued import (
    COUNTS,
    OWN,
    QUEUE_RULES,
    QUEUED_PODS,
    SUSPENSION,
    TEMPLATE_LIMITS,
    QueueFields,
    queue_variables,
    suspension,
)
from tenancy.planning.guards.sizes import few_marks
from tenancy.planning.guards.who import but_by_controllers, controllers, frameworks, who
from tenancy.rules.values import SCHEDULE
from tenancy.schema.environment import Environment

_JOB = "dyn({0}).spec"
_OF_CRONJOB = "dyn(object).spec.jobTemplate.spec"


def work_guards(environment: Environment) -> tuple[Guard, ...]:
    """Guards on pods and on every kind that has a pod template."""
    templates = [
        ("batch", "v1", ["jobs"]),
        ("apps", "v1", ["deployments", "statefulsets", "replicasets", "daemonsets"]),
    ]
    pod_rules = {
        **POD_RULES,
        **(BY_CLAIM if environment.devices_by_claim else {}),
        **(SYNCED if environment.virtual_clusters else {}),
        **claim_rules(environment),
        **(PROBE_HOSTS if incompatible(environment.cluster.kubernetes, "probe-hosts") else {}),
    }
    queued = environment.queued
    makers = {"byController": who(environment)["byController"]}

    def of_queue(rules: Mapping[str, str], of: QueueFields, **more: str) -> tuple[dict[str, str], dict[str, str]]:
        return ({**rules}, {**queue_variables(environment, of), **more}) if queued else ({}, {})

    by_hand = "request.resource.resource in ['jobs', 'deployments', 'statefulsets']"
    on_pods = of_queue(
        QUEUED_PODS,
        QueueFields(
            OWN,
            # A pod of other work carries what that work's template says.
            given=f"request.operation == 'CREATE' ? {cel(GATED['pods'])} : {{}}",
            # Kueue's webhook writes both onto each pod, whether or not a flavor has a topology, and Kueue removes both
            # when it admits the pod without one (v0.19.2, pod_webhook.go; pod_controller.go, `prepare`).
            usual=(HELD, PLACED),
        ),
    )
    is_job = "request.resource.resource == 'jobs'"
    replicas = f"{_JOB.format('object')}.?replicas.orValue(1)"
    of_templates = {
        "kueue-28": f"!({is_job}) || {ends_as_counted(_JOB.format('object'))}",
        "kueue-29": f"{is_job} ? {few(in_parallel(_JOB.format('object')))} : {few(replicas)}",
    }
    of_cronjobs = {"kueue-28": ends_as_counted(_OF_CRONJOB), "kueue-29": few(in_parallel(_OF_CRONJOB))}
    on_templates = of_queue(
        {**QUEUE_RULES, **TEMPLATE_LIMITS, **SUSPENSION, **COUNTS, **but_by_controllers(of_templates)},
        QueueFields(
            *(OWN, "{0}.spec.template"),
            queues=by_hand,
            ends=is_job,
            given=by_resource({kind: GATED[kind] for kind in ("deployments", "statefulsets")}),
        ),
        **{k: f"{is_job} && ({untyped(v)})" for k, v in suspension("spec.suspend", "").items() if k != "controllers"},
        # Other kinds' pods wait each by itself.
        noMorePods=f"!({is_job}) || {in_parallel(_JOB.format('object'))} <= {in_parallel(_JOB.format('oldObject'))}",
        controllers=f"{is_job} && has(dyn(object).spec.managedBy) ? [dyn(object).spec.managedBy] : []",
    )
    on_cronjobs = of_queue(
        {**QUEUE_RULES, **TEMPLATE_LIMITS, **SUSPENSION, **but_by_controllers(of_cronjobs)},
        QueueFields("{0}.spec.jobTemplate.metadata", "{0}.spec.jobTemplate.spec.template", queues="false"),
        # Whether it makes Jobs now is its own; each of them waits.
        waits="false",
        suspended="true",
        wasSuspended="true",
        controllers="has(object.spec.jobTemplate.spec.managedBy) ? [object.spec.jobTemplate.spec.managedBy] : []",
    )
    of_schedule = {"avail-07": f"object.spec.schedule.matches({cel(f'^{SCHEDULE}$')})"}
    of_each = {**pod_rules, **few_marks(environment)}
    beside, of_jobs = (but_by_controllers(beside_pods(environment, [kind])) for kind in ("statefulsets", "cronjobs"))
    seen = ("spec", *META, "metadata.ownerReferences") if queued else ("spec",)
    return (
        written_out(
            Guard(
                "tenancy-pods",
                # A pod's marks can be written by its status too.
                [("", "v1", ["pods", "pods/ephemeralcontainers", *(["pods/status"] if queued else [])])],
                {
                    **HAS_TENANT,
                    **pod_rules,
                    **STANDING_PODS,
                    **but_by_controllers({"meta-01": volume_keys(environment)}),
                    **on_pods[0],
                },
                {
                    **pod_variables("object.spec", "object.metadata", "request.operation == 'CREATE'", queued),
                    **makers,
                    **on_pods[1],
                },
                changed("spec", *META, *seen[3:], also=NO_NEW_FINALIZER),
            )
        ),
        written_out(
            Guard(
                "tenancy-templates",
                [*templates, ("", "v1", ["replicationcontrollers"])],
                {**HAS_TENANT, **with_work(both(of_each, beside)), **SECURED, **on_templates[0]},
                {
                    **pod_variables("object.spec.template.spec", "object.spec.template.metadata", "true"),
                    **security_variables(),
                    **makers,
                    **on_templates[1],
                },
                {**changed(*seen, also=NO_NEW_FINALIZER), **controllers(queued)},
                messages=security_message(environment.platform.docs),
            )
        ),
        Guard(
            "tenancy-cronjobs",
            [("batch", "v1", ["cronjobs"])],
            {**HAS_TENANT, **with_work(both(of_each, of_jobs)), **SECURED, **of_schedule, **on_cronjobs[0]},
            {
                **pod_variables(
                    "object.spec.jobTemplate.spec.template.spec",
                    "object.spec.jobTemplate.spec.template.metadata",
                    "true",
                ),
                **security_variables(),
                **makers,
                **on_cronjobs[1],
            },
            changed(*seen, also=NO_NEW_FINALIZER),
            messages=security_message(environment.platform.docs),
        ),
        *((framework_guard(environment, pod_rules),) if frameworks(environment) else ()),
    )
