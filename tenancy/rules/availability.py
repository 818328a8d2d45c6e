"""Availability: what keeps work, nodes and namespaces from ending, and what overloads the control plane."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import sizes
from tenancy.catalog.sizes import MOST_GRACE
from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.expressions import (
    OWN_FINALIZERS,
    by_people,
    by_platform,
    cel,
    in_tenants_namespaces,
    may,
    unless_by_controller,
)
from tenancy.rules.model import Face, GuardFacts, Rule, Severity, Subject
from tenancy.rules.values import SCHEDULE

STEADFAST = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
"""Annotations that autoscalers read before they remove a node, and the one value that does not block the removal
(Karpenter takes durations too)."""
OF_SERVER = ("kubernetes.io/pvc-protection",)
"""Finalizers that the API server itself puts on what is new (`StorageObjectInUseProtection`)."""


def _short(probe: str) -> str:
    at = f"c.{probe}.terminationGracePeriodSeconds"
    return f"(!has(c.{probe}) || !has({at}) || {at} <= {MOST_GRACE})"


def _few_keys(facts: GuardFacts) -> str:
    """Of a template: what its pods will carry, beside what controllers add."""
    few = f"size(variables.podLabels) <= {sizes.KEYS} && size(variables.podAnnotations) <= {sizes.KEYS}"
    return unless_by_controller(f"{by_platform(facts.platform_group)} || ({few})")


def _bytes(at: str) -> str:
    """Bytes of a value's text. A string's own size is in characters."""
    return f"size(bytes('%s'.format([{at}])))"


_COUNTED: Mapping[str, str] = {"labels": "{}", "annotations": "{}", "managedFields": "[]"}


def _size(body: str, most: str) -> str:
    """Whether an object is small; one that is not may be made no larger, so that it can be made small."""

    def counted(root: str) -> list[str]:
        return [f"size(dyn({root}).metadata.?{field}.orValue({empty}))" for field, empty in _COUNTED.items()]

    def total(root: str) -> str:
        return f"{_bytes(f'dyn({root}.metadata)')} + {_bytes(body.format(root))}"

    counts = zip(counted("object"), (sizes.KEYS, sizes.KEYS, sizes.MANAGERS), strict=True)
    small = " && ".join(
        [
            # First: without these the requester would decide how long the rest takes.
            *(f"{count} <= {limit}" for count, limit in counts),
            f"{_bytes('dyn(object.metadata)')} <= {sizes.METADATA}",
            f"{_bytes(body.format('object'))} <= {most}",
        ]
    )
    return f"({small}) || (request.operation == 'UPDATE' && {total('object')} <= {total('oldObject')})"


_SPEC = "dyn({0}).?spec.orValue({{}})"
_DATA = "[dyn({0}).?data.orValue({{}}), dyn({0}).?binaryData.orValue({{}})]"
_BODY = f"""(request.resource.resource in ['configmaps', 'secrets']
        ? ({may(Allowance.LARGE_CONFIG)} ? dyn([]) : dyn({_DATA}))
        : request.resource.resource == 'serviceaccounts' ? dyn([dyn({{0}}).?secrets.orValue([]),
            dyn({{0}}).?imagePullSecrets.orValue([])]) : {_SPEC})"""
_MAX_BODY = f"(request.resource.resource in ['configmaps', 'secrets'] ? {sizes.DATA} : {sizes.SPEC})"
# What the API server forgets at once has given its quota and its share back while its containers still run.
_AT_ONCE = """request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds > 0
        || !has(dyn(oldObject).spec.nodeName) || dyn(oldObject).spec.nodeName == ''
        || (has(dyn(oldObject).status.phase) && dyn(oldObject).status.phase in ['Succeeded', 'Failed'])"""

RULES: tuple[Rule, ...] = (
    Rule(
        id="avail-01",
        title="a pod ends within ten minutes (600 s)",
        why="a long grace period keeps a GPU from the tenant that reclaims it",
        fix=(
            "set terminationGracePeriodSeconds, of the pod and of each probe, or --grace-period, to 600 or "
            "less and write "
            "checkpoints on SIGTERM"
        ),
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            # A probe that fails ends its container with a grace period of its own, and a deletion waits for that.
            Subject.PODS: f"""(!has(variables.spec.terminationGracePeriodSeconds)
            || variables.spec.terminationGracePeriodSeconds <= {MOST_GRACE})
        && variables.containers.all(c, {_short("livenessProbe")} && {_short("startupProbe")})""",
            # A pod's grace period may be that of the request.
            Subject.DELETIONS: f"""request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds <= {MOST_GRACE}""",
        },
    ),
    Rule(
        id="avail-02",
        title="a disruption budget leaves room for one eviction",
        why=(
            "a budget that allows no eviction, or that sets minAvailable, can block the drain of a node that others "
            "share"
        ),
        fix="write maxUnavailable, of 1 or more, in place of minAvailable",
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            # The number of pods is unknown here: any other number of pods to keep may be all of them. Without any
            # number it is one.
            Subject.BUDGETS: """(has(object.spec.maxUnavailable)
            ? int(string(object.spec.maxUnavailable).replace('%', '')) > 0 : has(object.spec.minAvailable))
        && (!has(object.spec.minAvailable) || int(string(object.spec.minAvailable).replace('%', '')) == 0)"""
        },
    ),
    Rule(
        id="avail-03",
        title="a tenant's objects have no finalizers of the tenant's own",
        why=(
            "if a finalizer is never removed, the object and its namespace are never deleted, and a deleted job's pods "
            "run on"
        ),
        fix="drop metadata.finalizers; clean up in a preStop hook or on SIGTERM",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            Subject.PODS: "size(variables.newFinalizers) == 0",
            Subject.WORK: "variables.byController || size(variables.ownFinalizers) == 0",
            Subject.SIZES_OF_OBJECTS: in_tenants_namespaces(
                f"size({OWN_FINALIZERS}.filter(f, !(f in {cel(list(OF_SERVER))}))) == 0"
            ),
        },
    ),
    Rule(
        id="avail-04",
        title="a pod does not block the drain of its node",
        why="one pod that does keeps the node, with the vulnerabilities of its image, in use for any length of time",
        fix=(
            "drop karpenter.sh/do-not-disrupt and cluster-autoscaler.kubernetes.io/safe-to-evict; use a disruption "
            "budget"
        ),
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""{cel(STEADFAST)}.all(k, !(k in variables.podAnnotations)
        || variables.podAnnotations[k] == {cel(STEADFAST)}[k])"""
        },
    ),
    Rule(
        id="avail-05",
        title=(
            "an object is small: a spec of up to 64 KiB, a config map or secret of up to 256 KiB, metadata of up to "
            "128 KiB, up to 64 labels and 64 annotations of it and of a pod template, up to 32 field managers, "
            "and up to "
            "256 entries in a list or a map"
        ),
        why=(
            "above 1.5 MiB etcd accepts no change of an object: it cannot be deleted, evicted or suspended any "
            "more, and "
            "a GPU that it borrowed is never returned; below that it fills the memory of the API server and of "
            "the queue"
        ),
        fix=(
            "put data into a bucket, a volume or an image and read it from there; apply with --server-side, "
            "which repeats "
            "no object in an annotation; for config maps of up to 1 MiB ask for a tier with large-config"
        ),
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.ATTACK,
        partial={
            Face.PREVIEW: (
                "it reads objects with the tenant's label, and no data of config maps, which a tier may extend"
            )
        },
        guards={
            Subject.TEMPLATES: _few_keys,
            Subject.SIZES_OF_WORK: in_tenants_namespaces(_size(_SPEC, str(sizes.SPEC))),
            Subject.SIZES_OF_OBJECTS: in_tenants_namespaces(_size(_BODY, _MAX_BODY)),
        },
    ),
    Rule(
        id="avail-07",
        title="a CronJob's schedule has five fields, or is a word such as @daily: at most one start a minute",
        why=(
            "`@every` takes any duration: a few CronJobs that start each second occupy the controllers of all tenants' "
            "CronJobs and Jobs"
        ),
        fix="write five fields, such as */5 * * * *; for a shorter interval let one pod repeat the work",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={Subject.CRON_JOBS: f"object.spec.schedule.matches({cel(f'^{SCHEDULE}$')})"},
    ),
    Rule(
        id="avail-06",
        title="a pod stays in the API until its containers have ended",
        why=(
            "a pod that is deleted with a grace period of zero frees quota, queue and devices while its containers run "
            "on: the next pod, of any tenant, is scheduled on GPUs that are still in use"
        ),
        fix=(
            "drop --force and --grace-period=0, and set terminationGracePeriodSeconds to 1 or more; the "
            "platform removes "
            "the pods of a lost node"
        ),
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            # With a grace period of zero a deletion leaves nothing for the kubelet to end: quota and queue are free at
            # once.
            Subject.PODS: """!variables.placing || variables.byController
        || !has(variables.spec.terminationGracePeriodSeconds)
        || variables.spec.terminationGracePeriodSeconds > 0""",
            Subject.DELETIONS: lambda facts: in_tenants_namespaces(f"!({by_people(facts)}) || {_AT_ONCE}"),
        },
    ),
)
