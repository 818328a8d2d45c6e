"""Availability: what keeps work, nodes and namespaces from ending, and what overloads the control plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenancy.catalog import sizes
from tenancy.catalog.controllers import JOB_FINALIZER
from tenancy.catalog.sizes import MAX_GRACE_SECONDS
from tenancy.catalog.vocabulary import Allowance
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation, collection
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, put
from tenancy.rules.expressions import (
    OWN_FINALIZERS,
    by_people,
    by_platform,
    cel,
    in_tenants_namespaces,
    may,
    unless_by_controller,
)
from tenancy.rules.model import GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    BY_CONTROLLERS,
    ENV,
    FINALIZERS,
    INIT,
    Case,
    at_home,
    attack_of,
    create,
    kinds_of,
    minimal,
    objects_beside_work,
    of_api,
    through,
    through_all_kinds,
    workload,
)

STEADFAST = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
"""Annotations that autoscalers read before they remove a node, and the one value that does not block the removal
(Karpenter takes durations too)."""
OF_SERVER = ("kubernetes.io/pvc-protection",)
"""Finalizers that the API server itself puts on what is new (`StorageObjectInUseProtection`)."""


def _short(probe: str) -> str:
    at = f"c.{probe}.terminationGracePeriodSeconds"
    return f"(!has(c.{probe}) || !has({at}) || {at} <= {MAX_GRACE_SECONDS})"


def _few_keys(facts: GuardFacts) -> str:
    """Labels and annotations that a template gives its pods, beside those that controllers add."""
    few = f"size(variables.podLabels) <= {sizes.KEYS} && size(variables.podAnnotations) <= {sizes.KEYS}"
    return unless_by_controller(f"{by_platform(facts.platform_group)} || ({few})")


def _bytes(at: str) -> str:
    """Bytes of a value's text. A string's own size is in characters."""
    return f"size(bytes('%s'.format([{at}])))"


_COUNTED: Mapping[str, str] = {"labels": "{}", "annotations": "{}", "managedFields": "[]"}


def _size(body: str, max_size: str) -> str:
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
            f"{_bytes(body.format('object'))} <= {max_size}",
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

_SCHEDULE = r"(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^@\s]+(\s+[^@\s]+){4})"
"""Schedule of a CronJob: five fields, the first of them minutes, or a word for five (robfig/cron v3, `ParseStandard`).
What is left is `@every`, which takes any duration, also one below a second or below zero."""

# Attacks

JOB_CONTROLLER = Impersonation(
    "system:serviceaccount:kube-system:job-controller", ("system:serviceaccounts:kube-system",)
)
_KEEP = "keep its node and its namespace from ever being removed"


def _graces(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    grace = "/spec/terminationGracePeriodSeconds"
    yield Case("avail-01", "grace", "keep its GPU long after eviction", grace, 601, 600, kinds=ALL_KINDS)
    check = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 600}
    sidecar = {INIT: [{**place.pod()["spec"]["containers"][0], "name": "first", "restartPolicy": "Always"}]}
    for probe in ("livenessProbe", "startupProbe"):
        for slug, container in (("", "/spec/containers/0"), ("sidecar-", f"{INIT}/0")):
            at = f"{container}/{probe}"
            yield Case(
                *("avail-01", f"{slug}{probe.lower()}", "keep its GPU by the grace period of a probe"),
                *(f"{at}/terminationGracePeriodSeconds", 31536000, 600, {**(sidecar if slug else {}), at: check}),
                ALL_KINDS if (slug, probe) == ("", "livenessProbe") else ("Pod",),
            )


def _at_once(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    sentence, at = "release its quota before its containers end", "/spec/terminationGracePeriodSeconds"
    yield Case("avail-06", "at-once", sentence, at, 0, 1, kinds=ALL_KINDS)


def _finalizers(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    yield Case("avail-03", "finalizer", _KEEP, FINALIZERS, ["bank.example/keep"], kinds=ALL_KINDS)
    tracked = f"{_KEEP}, by the job controller's own finalizer"
    yield Case("avail-03", "job-template", tracked, FINALIZERS, [JOB_FINALIZER], kinds=("Job", "Deployment"))


def _finalizers_of_work(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """The queue no longer counts deleted work that a finalizer keeps, and its pods run on."""
    # No controller removes the job controller's finalizer from a pod without a Job.
    yield attack(
        "avail-03-pod-job",
        "avail-03",
        "keep a pod by the job controller's own finalizer",
        scene.guard("avail-03", "pods"),
        Request(
            "POST", collection("v1", "Pod", place.name), put(place.pod(), FINALIZERS, [JOB_FINALIZER]), place.developer
        ),
        twin_who=JOB_CONTROLLER,
    )
    for kind in kinds_of(place):
        if kind != "Pod":
            path, workload_body = collection(of_api(kind), kind, place.name), workload(kind, place.pod())
            yield attack(
                f"avail-03-{kind.lower()}-own",
                "avail-03",
                f"through a {kind}: run on after it was deleted",
                scene.guard("avail-03", path.rpartition("/")[2]),
                Request("POST", path, put(workload_body, FINALIZERS, ["bank.example/never"]), place.developer),
                twin_body=workload_body,
            )


def _finalizers_of_objects(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for body in objects_beside_work(place):
        if body["kind"] != "ServiceAccount":
            path = collection(body["apiVersion"], body["kind"], place.name)
            request = Request("POST", path, put(body, FINALIZERS, ["bank.example/keep"]), place.developer)
            guard, keep = scene.guard("avail-03", path.rpartition("/")[2]), "keep its namespace from ever being removed"
            yield attack(f"avail-03-{body['kind'].lower()}", "avail-03", keep, guard, request, twin_body=body)


def _finalizers_of_accounts(scene: AttackScene) -> Iterator[Attack]:
    if scene.home and (place := next((place for place in scene.places if place.owner), None)):
        plain = minimal("ServiceAccount")
        plain["metadata"]["annotations"] = {"note": "hello"}
        never, keep = "keep a service account, and its namespace, from ever being removed", ["bank.example/keep"]
        yield create(scene, place, "avail-03", "finalizer", never, plain, FINALIZERS, keep, place.owner)


def _steadfast(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    note, hold = {"/metadata/annotations": {"note": "hello"}}, "keep its node from being replaced"
    karpenter = "/metadata/annotations/karpenter.sh~1do-not-disrupt"
    yield Case("avail-04", "do-not-disrupt", hold, karpenter, "true", "false", note, ALL_KINDS)
    yield Case("avail-04", "for-a-year", f"{hold}, for a duration", karpenter, "8760h", "false", note)
    autoscaler = "/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict"
    yield Case("avail-04", "safe-to-evict", hold, autoscaler, "false", "true", note, ALL_KINDS)


def _schedules(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "delay other tenants' CronJobs by one that starts jobs without a pause"
    cron_job = put(workload("CronJob", place.pod()), "/spec/schedule", "* * * * *")
    for slug, schedule in {"second": "@every 1s", "short": "@every 1ns", "hour": "@every 1h0m0.5s"}.items():
        yield through(
            scene, place, "avail-07", slug, sentence, "CronJob", "/spec/schedule", schedule, "* * * * *", base=cron_job
        )


_MANY_KEYS = sizes.KEYS + 6
_FILL = "fill an object until it cannot be updated or removed"
_BESIDE_CLASS = {"cronjobs": "tenancy-cronjobs"}
_NOTE = "/metadata/annotations/note"


def _sizes_of_objects(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for body in objects_beside_work(place):
        kind = body["kind"]
        path, who = collection(body["apiVersion"], kind, place.name), place.developer
        if kind == "ServiceAccount":
            who = place.owner
            if who is None:
                continue
        guard, slug = scene.guard("avail-05", path.rpartition("/")[2]), kind.lower()
        request = Request("POST", path, put(body, "/metadata/labels", _labels(_MANY_KEYS)), who)
        yield attack(f"avail-05-{slug}-labels", "avail-05", _FILL, guard, request, twin_who=None)
        if kind == "ServiceAccount":
            pull_secrets = [{"name": f"secret-{number}-{'a' * 200}"} for number in range(400)]
            request = Request("POST", path, put(body, "/imagePullSecrets", pull_secrets), who)
            yield attack(f"avail-05-{slug}-list", "avail-05", _FILL, guard, request, twin_who=None)
    for kind, value in (("ConfigMap", "a" * sizes.DATA), ("Secret", "YWFh" * (sizes.DATA // 4))):
        manifest, path = minimal(kind, data={"note": "YWFh"}), collection("v1", kind, place.name)
        guard = scene.guard("avail-05", path.rpartition("/")[2])
        request = Request("POST", path, put(manifest, "/data/note", value), place.developer)
        yield attack(f"avail-05-{kind.lower()}-data", "avail-05", _FILL, guard, request, twin_body=manifest)


def _budgets(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    twin = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": POD_NAME},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1},
    }
    path = collection("policy/v1", "PodDisruptionBudget", place.name)
    guard = scene.guard("avail-02", "poddisruptionbudgets")
    sentence = "keep a node from ever being drained"
    staying = put(put(twin, "/spec/maxUnavailable", ABSENT), "/spec/minAvailable", 0)
    for name, good, at, bad in (
        ("none", twin, "maxUnavailable", 0),
        ("padded", put(twin, "/spec/maxUnavailable", "10%"), "maxUnavailable", "00%"),
        ("all-stay", staying, "minAvailable", "0100%"),
        ("many-stay", staying, "minAvailable", 1000),
        ("no-number", twin, "maxUnavailable", ABSENT),
    ):
        request = Request("POST", path, put(good, f"/spec/{at}", bad), place.developer)
        yield attack(f"avail-02-budget-{name}", "avail-02", sentence, guard, request, twin_body=good)


def _labels(count: int) -> dict[str, str]:
    return {f"note-{number}": "x" for number in range(count)}


def _sizes_of_work(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    others = {framework.kind for framework in place.frameworks}
    for kind in (*kinds_of(place), *BY_CONTROLLERS):
        path = collection(of_api(kind), kind, place.name)
        resource = path.rpartition("/")[2]
        guard = scene.guard("avail-05", resource)
        large = Case("avail-05", "spec", _FILL, f"{ENV}/0/value", "a" * sizes.SPEC, "a" * (sizes.SPEC // 2))
        yield attack_of(scene, place, _with(large, {ENV: [{"name": "NOTE"}]}), kind, guard)
        if kind in BY_CONTROLLERS:
            continue
        for field in ("labels", "annotations"):
            manifest = workload(kind, place.pod())
            metadata = manifest["metadata"].get(field, {})
            body = put(manifest, f"/metadata/{field}", {**metadata, **_labels(_MANY_KEYS)})
            request = Request("POST", path, body, place.developer)
            # The limit does not apply to the platform, which writes few objects.
            yield attack(f"avail-05-{kind.lower()}-{field}", "avail-05", _FILL, guard, request, twin_who=None)
            if kind != "Pod":
                pod = place.pod()
                manifest = workload(
                    kind, put(pod, f"/metadata/{field}", {**pod["metadata"].get(field, {}), **_labels(_MANY_KEYS)})
                )
                # A Job without labels is given its template's, and another guard judges those.
                manifest = put(
                    manifest,
                    "/metadata/labels",
                    {"app.kubernetes.io/name": "x", **manifest["metadata"].get("labels", {})},
                )
                request = Request("POST", path, manifest, place.developer)
                policy = "tenancy-frameworks" if kind in others else _BESIDE_CLASS.get(resource, "tenancy-templates")
                yield attack(
                    f"avail-05-{kind.lower()}-template-{field}",
                    "avail-05",
                    f"by a template: {_FILL}",
                    deniers.guard(policy, "avail-05"),
                    request,
                    twin_who=None,
                )
    pods, guard = collection("v1", "Pod", place.name), scene.guard("avail-05", "pods")
    pod_body = put(place.pod(), "/metadata/annotations", {"note": "hello"})
    request = Request("POST", pods, put(pod_body, _NOTE, "a" * sizes.METADATA), place.developer)
    yield attack("avail-05-pod-metadata", "avail-05", f"{_FILL}, by an annotation", guard, request, twin_body=pod_body)
    # An emoji is one character and four bytes.
    wide = put(place.pod(), ENV, [{"name": "NOTE", "value": "x"}])
    request = Request("POST", pods, put(wide, f"{ENV}/0/value", "\U0001f600" * (sizes.SPEC // 3)), place.developer)
    yield attack("avail-05-pod-bytes", "avail-05", f"{_FILL}, by few characters", guard, request, twin_body=wide)
    request = Request("POST", pods, put(place.pod(), "/metadata/managedFields", _managers()), place.developer)
    yield attack("avail-05-pod-managers", "avail-05", f"{_FILL}, by field managers", guard, request, twin_who=None)


def _with(case: Case, base: Object) -> Case:
    return Case(case.rule, case.name, case.attack, case.at, case.bad, case.good, base)


def _managers() -> list[Object]:
    """Entries as if many clients had applied fields before."""
    return [
        {
            "manager": f"manager-{number}",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {f"f:bank.example/{number}": {}}}},
        }
        for number in range(sizes.MANAGERS + 6)
    ]


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
        guards={
            # A probe that fails ends its container with a grace period of its own, and a deletion waits for that.
            GuardSubject.PODS: f"""(!has(variables.spec.terminationGracePeriodSeconds)
            || variables.spec.terminationGracePeriodSeconds <= {MAX_GRACE_SECONDS})
        && variables.containers.all(c, {_short("livenessProbe")} && {_short("startupProbe")})""",
            # A pod's grace period may be that of the request.
            GuardSubject.DELETIONS: f"""request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds <= {MAX_GRACE_SECONDS}""",
        },
        attacks=(through_all_kinds(_graces),),
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
        guards={
            # The number of pods is unknown here: any other number of pods to keep may be all of them. Without any
            # number it is one.
            GuardSubject.BUDGETS: """(has(object.spec.maxUnavailable)
            ? int(string(object.spec.maxUnavailable).replace('%', '')) > 0 : has(object.spec.minAvailable))
        && (!has(object.spec.minAvailable) || int(string(object.spec.minAvailable).replace('%', '')) == 0)"""
        },
        attacks=(at_home(_budgets),),
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
        guards={
            GuardSubject.PODS: "size(variables.newFinalizers) == 0",
            GuardSubject.WORK: "variables.byController || size(variables.ownFinalizers) == 0",
            GuardSubject.SIZES_OF_OBJECTS: in_tenants_namespaces(
                f"size({OWN_FINALIZERS}.filter(f, !(f in {cel(list(OF_SERVER))}))) == 0"
            ),
        },
        attacks=(
            through_all_kinds(_finalizers),
            at_home(_finalizers_of_work),
            at_home(_finalizers_of_objects),
            _finalizers_of_accounts,
        ),
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
        guards={
            GuardSubject.PODS: f"""{cel(STEADFAST)}.all(k, !(k in variables.podAnnotations)
        || variables.podAnnotations[k] == {cel(STEADFAST)}[k])"""
        },
        attacks=(through_all_kinds(_steadfast),),
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
            "no object in an annotation; for config maps of up to 1 MiB ask for a tier with allow-large-config"
        ),
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.TEMPLATES: _few_keys,
            GuardSubject.SIZES_OF_WORK: in_tenants_namespaces(_size(_SPEC, str(sizes.SPEC))),
            GuardSubject.SIZES_OF_OBJECTS: in_tenants_namespaces(_size(_BODY, _MAX_BODY)),
        },
        attacks=(at_home(_sizes_of_work), at_home(_sizes_of_objects)),
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
        guards={GuardSubject.CRON_JOBS: f"object.spec.schedule.matches({cel(f'^{_SCHEDULE}$')})"},
        attacks=(at_home(_schedules),),
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
        guards={
            # With a grace period of zero a deletion leaves nothing for the kubelet to end: quota and queue are free at
            # once.
            GuardSubject.PODS: """!variables.placing || variables.byController
        || !has(variables.spec.terminationGracePeriodSeconds)
        || variables.spec.terminationGracePeriodSeconds > 0""",
            GuardSubject.DELETIONS: lambda facts: in_tenants_namespaces(f"!({by_people(facts)}) || {_AT_ONCE}"),
        },
        attacks=(through_all_kinds(_at_once),),
    ),
)
