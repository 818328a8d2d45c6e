"""Queueing: what work tells the queue, and how it starts and ends."""

from __future__ import annotations

from tenancy.catalog.controllers import (
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
from tenancy.rules.expressions import cel, unless_by_controller
from tenancy.rules.model import Face, Rule, Severity, Subject

_OWNERS = unless_by_controller("size(variables.newOwners) == 0 && size(variables.lostOwners) == 0")
_GATES = unless_by_controller("variables.gates.all(g, g in variables.usualGates || g in variables.oldGates)")
_MARKS = unless_by_controller(
    f"""variables.marks.all(m, m.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || (k in variables.given && (variables.given[k] == '' || variables.given[k] == m[k]))
            || variables.oldMarks.exists(o, k in o && o[k] == m[k])))
        && variables.oldMarks.all(o, o.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || variables.marks.exists(m, k in m)))"""
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="kueue-01",
        title="work names a queue of its namespace",
        why="work without a queue, or with a queue that does not exist, waits for ever",
        fix=(
            "label the work kueue.x-k8s.io/queue-name: default, or with another name of `kubectl get "
            "localqueues`: a queue "
            "on hold takes it, and starts it when it opens"
        ),
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            # Also of a CronJob's controller, which tries again: without a queue's name its Job would wait for ever.
            Subject.QUEUED: f"""(!variables.queues || variables.owned || {cel(QUEUE)} in variables.workLabels
            || (variables.byController && request.operation != 'CREATE'))
        && (variables.byController
            || variables.marks.all(m, !({cel(QUEUE)} in m) || m[{cel(QUEUE)}] in variables.allowedQueues))"""
        },
    ),
    Rule(
        id="kueue-02",
        title="only controllers set which objects they own",
        why=(
            "a pod that claims to be part of admitted work, or that leaves it, is not counted: any number of "
            "GPUs could "
            "run under a quota of one CPU"
        ),
        fix=(
            "leave references with controller: true as they are, and the labels of a job's pods; other references "
            "are fine"
        ),
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED: _OWNERS,
            # A controller knows its pods by their labels, and releases one that lacks them: it would run on without
            # being counted. A pod that is queued by itself is counted with any owner.
            Subject.QUEUED_PODS: f"""({_OWNERS}) && (variables.byController || !variables.owned
        || request.operation != 'UPDATE' || !has(oldObject.metadata.labels)
        || {cel(MANAGED)} in oldObject.metadata.labels
        || oldObject.metadata.labels.all(k, k in variables.podLabels
            && variables.podLabels[k] == oldObject.metadata.labels[k]))""",
        },
    ),
    Rule(
        id="kueue-03",
        title="only the queue sets scheduling gates, and removes them from pods that it has counted",
        why="a pod without the gate runs on GPUs of other tenants; a pod with another gate keeps GPUs and never runs",
        fix="drop schedulingGates, and wait for the queue: `tenancy why` shows what it waits for",
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED: _GATES,
            # A list of gates for each template.
            Subject.FRAMEWORKS: unless_by_controller(
                """variables.gates.all(l, l.all(g, g in variables.usualGates
        || variables.oldGates.exists(o, g in o)))"""
            ),
            # No gate can be added to a pod that exists, and a pod without the queue's gate would start outside the
            # queue. Kueue itself does so: it ungates every pod of a StatefulSet's former revision, admitted or not
            # (pkg/util/statefulset), and a rollout that never ends would exceed any share. What it counted it labels.
            Subject.QUEUED_PODS: f"""({_GATES})
        && (request.operation != 'UPDATE' || !has(oldObject.spec.schedulingGates)
            || oldObject.spec.schedulingGates.all(g,
                g.name in variables.gates || !g.name.startsWith({cel(DOMAIN)})
                || (variables.byQueue && (g.name != {cel(HELD)} || {cel(COUNTED)} in variables.podLabels
                    || has(object.metadata.deletionTimestamp)))))""",
        },
    ),
    Rule(
        id="kueue-04",
        title="only the queue starts work, and the controller of its kind runs it",
        why="work that is created unsuspended, or is resumed by hand, runs before it is counted",
        fix="drop suspend: false and managedBy; to stop work of your own set suspend to true",
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED_WORK: f"""variables.byRunner || (
        variables.controllers.all(c, c in {cel(list(OWN_CONTROLLERS))})
        && (!variables.waits || variables.suspended
            || (request.operation == 'UPDATE' && !variables.wasSuspended)))"""
        },
    ),
    Rule(
        id="kueue-06",
        title="work uses only the workload priority classes of its namespace",
        why="a higher class is admitted first in every queue of the tenant, and evicts the tenant's other work",
        fix="use a class that your namespace lists, or drop the label kueue.x-k8s.io/priority-class",
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED: unless_by_controller(
                f"""variables.marks.all(m, !({cel(URGENCY)} in m)
            || m[{cel(URGENCY)}] in variables.allowedPriorities)"""
            )
        },
    ),
    Rule(
        id="kueue-07",
        title="a container has requests of CPU and memory",
        why="the queue counts a container without requests as using nothing",
        fix="write requests of cpu and memory; the namespace's limit range, where there is one, fills them in",
        severity=Severity.MEDIUM,
        guards={
            Subject.QUEUED_PODS: """request.operation != 'CREATE' || variables.containers.all(c,
        has(c.resources) && has(c.resources.requests)
        && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)"""
        },
    ),
    Rule(
        id="kueue-08",
        title="a tenant sets only those Kueue labels and annotations that are requests to the queue",
        why=(
            "the others are Kueue's own records: a pod with them passes for counted, for a copy of a counted "
            "pod, or for "
            "unmanaged"
        ),
        fix=(
            "drop labels and annotations of kueue.x-k8s.io other than queue-name, priority-class, "
            "max-exec-time-seconds, "
            "job-min-parallelism, job-completions-equal-parallelism and podset-*-topology; for pods that start "
            "together "
            "use a Job"
        ),
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED: _MARKS,
            # The queue's marks stay labels or annotations, as they are: Kueue ignores a pod whose label became an
            # annotation.
            Subject.QUEUED_PODS: f"""({_MARKS}) && (variables.byController || request.operation != 'UPDATE' || (
        (!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podLabels))
        && (!has(oldObject.metadata.annotations) || oldObject.metadata.annotations.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podAnnotations))))""",
        },
    ),
    Rule(
        id="kueue-09",
        title="a pod waits for the queue unless it is part of work that the queue started",
        why="a pod that starts without the queue is not counted",
        fix="ask the platform team to check the queue's webhooks; the pod itself is correct",
        guards={
            # A Deployment's and a StatefulSet's pods wait each by itself, those of other work with it.
            Subject.QUEUED_PODS: "request.operation != 'CREATE' || variables.byRunner"
            f" || {cel(HELD)} in variables.gates"
        },
    ),
    Rule(
        id="kueue-10",
        title="work that runs to completion sets a maximum run time, within the limit of its tier",
        why="without it, there is no time by which its GPUs are free again",
        fix=(
            "set the label kueue.x-k8s.io/max-exec-time-seconds to at most tenancy.gpu/max-run-seconds of the namespace"
        ),
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            Subject.QUEUED: unless_by_controller(
                f"""variables.mostSeconds == '' || !variables.ends || variables.owned
        || ({cel(RUN_TIME)} in variables.workLabels
            && variables.workLabels[{cel(RUN_TIME)}].matches('^[1-9][0-9]{{0,8}}$')
            && int(variables.workLabels[{cel(RUN_TIME)}]) <= int(variables.mostSeconds))"""
            )
        },
    ),
    Rule(
        id="kueue-25",
        title="work is deleted together with its pods",
        why="pods that outlive their work keep GPUs that the queue has given to other work",
        fix="delete it with propagationPolicy Background or Foreground, as kubectl does without --cascade=orphan",
        guards={
            # Of a Job without either, the API server leaves the pods.
            Subject.QUEUED_DELETIONS: """variables.byController || request.resource.resource == 'pods' || (
        (!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan')
        && (!has(request.options.orphanDependents) || !request.options.orphanDependents)
        && (request.resource.resource != 'jobs' || has(request.options.propagationPolicy)
            || has(request.options.orphanDependents)))"""
        },
    ),
    Rule(
        id="kueue-27",
        title="running work has no more pods than the queue has counted",
        why=(
            "further pods run until the queue has stopped the work, and for their grace period after, on GPUs that are "
            "guaranteed to others"
        ),
        fix="suspend the work before its counts are raised, or make further work",
        guards={
            # What a job's count was is what the queue has counted: a higher one makes pods that run until the queue has
            # stopped the job, and then for their grace period. The queue itself starts fewer at first where that was
            # asked for.
            Subject.RUNNING_WORK: """variables.byRunner || request.operation != 'UPDATE' || variables.suspended
        || variables.noMorePods"""
        },
    ),
)
