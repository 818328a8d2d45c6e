"""GPUs: what opens devices to a pod, and who may ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.controllers import AUTOSCALERS
from tenancy.catalog.vocabulary import Allowance
from tenancy.kube.objects import Object
from tenancy.kube.requests import JSON_PATCH, MERGE, STRATEGIC, collection, core
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.rules.expressions import DEVICES, GRANTED, PLAIN_RESOURCES, cel, may
from tenancy.rules.model import Face, GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    CLUSTER_ADMIN,
    ENV,
    INIT,
    LIMITS,
    RUNTIME,
    TRAIN_JOB,
    Case,
    all_kinds,
    at_home,
    attack_of,
    create,
    in_each_namespace,
    in_queue,
    kinds_of,
    minimal,
    of_api,
    through,
    through_all_kinds,
    withheld,
    work,
    workload,
)

_NVIDIA = "nvidia.com/"
"""Prefix of NVIDIA's extended resources and taints."""


def _of_gpu_users(passes: str) -> str:
    """Whether a pod asks for no GPU, or its author may ask for GPUs; `passes`: true for any request."""
    return f"""{passes} || {may(Allowance.GPUS_FOR_ALL)} || variables.byController
        || !(size(variables.asked) > 0
            || (has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0))
        || {GRANTED}"""


# For pods that controllers make, the template was judged, and its author's right was checked.
_NEW_GPU_PODS = _of_gpu_users("!variables.placing")
_SAME_PROGRAMS = " && ".join(
    f"has(object.spec.{field}) == has(oldObject.spec.{field})"
    f" && (!has(object.spec.{field}) || object.spec.{field} == oldObject.spec.{field})"
    for field in ("initContainers", "ephemeralContainers")
)
_REPLICAS, _OLD_REPLICAS = (f"dyn({root}).?spec.?replicas.orValue(0)" for root in ("object", "oldObject"))
_OF_TRAINER = "dyn(object).spec.?trainer.?resourcesPerNode"
# Each name is looked up: the expression does not iterate over what the requester wrote.
_NO_DEVICE_KEYS = f"!has(object.data) || {DEVICES}.all(d, !(d in object.data))"


def _unmanaged(facts: GuardFacts) -> str:
    """A pod that stays off the nodes of tenants: it tolerates none of their taints, names no node, and asks for nothing
    for which EKS adds a toleration."""
    is_gpu_resource = f"(r.startsWith({cel(_NVIDIA)}) || r == {cel(gpus.EFA)})"
    conditions = [
        f"""(!has(object.spec.tolerations) || object.spec.tolerations.all(t, has(t.key) && t.key != ''
            && !t.key.startsWith({cel(_NVIDIA)}) && !(t.key in {cel([gpus.EFA, vocabulary.POOL])})))""",
        "(request.operation != 'CREATE' || !has(object.spec.nodeName) || object.spec.nodeName == '')",
        f"""variables.containers.all(c, !has(c.resources) || (
            (!has(c.resources.limits) || c.resources.limits.all(r, !{is_gpu_resource}))
            && (!has(c.resources.requests) || c.resources.requests.all(r, !{is_gpu_resource}))))""",
    ]
    if facts.devices_by_claim:
        # The claim says which class it asks for, and it may be created after the pod.
        conditions.append("(!has(object.spec.resourceClaims) || size(object.spec.resourceClaims) == 0)")
    return " && ".join(conditions)


# Attacks

_VISIBLE = gpus.DEVICE_VARIABLES[0]


def _variables(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    harmless = {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}
    name, plain = f"{ENV}/0/name", harmless["name"]
    env = {ENV: [harmless]}
    yield Case("gpu-02", "env", "see all GPUs of the node by variable", name, _VISIBLE, plain, env, ALL_KINDS)
    first = place.pod()["spec"]["containers"][0]
    init = {INIT: [{**first, "name": "first", "env": [harmless]}]}
    yield Case("gpu-02", "init-env", "see all GPUs in an init container", f"{INIT}/0/env/0/name", _VISIBLE, plain, init)
    sidecar = {INIT: [{**first, "name": "first", "env": [harmless], "restartPolicy": "Always"}]}
    yield Case("gpu-02", "sidecar-env", "see all GPUs in a sidecar", f"{INIT}/0/env/0/name", _VISIBLE, plain, sidecar)
    value = {ENV: [{"name": _VISIBLE, "value": "void"}]}
    yield Case("gpu-02", "env-index", "see one GPU by its index", f"{ENV}/0/value", "0", "", value)
    hidden = {ENV: [{"name": plain, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "x"}}}]}
    yield Case("gpu-02", "env-from-key", "see GPUs by a variable read from a config map", name, _VISIBLE, plain, hidden)
    for device in gpus.DEVICE_VARIABLES:
        if device != _VISIBLE:
            slug = device.removeprefix("NVIDIA_").lower().replace("_", "-")
            yield Case("gpu-02", f"env-{slug}", f"open devices by {device}", name, device, plain, env)


def _prefixes(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    prefixed = {"/spec/containers/0/envFrom": [{"prefix": "MODEL_", "configMapRef": {"name": "settings"}}]}
    at = "/spec/containers/0/envFrom/0/prefix"
    complete = "turn a config map's key into a device variable by a prefix"
    yield Case("gpu-03", "prefix", complete, at, "NVIDIA_", "MODEL_", prefixed, ALL_KINDS)
    yield Case("gpu-03", "short-prefix", f"{complete} of one letter", at, "N", "M", prefixed)
    yield Case("gpu-03", "long-prefix", f"{complete} that lacks one letter", at, f"{_VISIBLE[:-1]}", "M", prefixed)


def _annotations(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    base = {"/metadata/annotations": {"note": "hello"}}
    for slug, key, kinds in (
        ("annotation", "nvidia.cdi.k8s.io/container.hello", ALL_KINDS),
        ("plain-annotation", "cdi.k8s.io/anything", ("Pod",)),
    ):
        at = f"/metadata/annotations/{escaped(key)}"
        inject = "have a device injected by annotation"
        yield Case("gpu-05", slug, inject, at, "nvidia.com/gpu=all", ABSENT, base, kinds)


def _resources(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    foreign = {"unknown": "nvidia.com/mig-99g.999gb", "efa": gpus.EFA, "other-vendor": "amd.com/gpu"}
    for slug, resource in foreign.items():
        if resource not in place.resources:
            kinds = ALL_KINDS if slug == "unknown" else ("Pod",)
            at = f"{LIMITS}/{escaped(resource)}"
            yield Case("gpu-06", slug, f"ask for {resource}, which no quota names", at, "1", kinds=kinds)
    implicit = "deviceclass.resource.kubernetes.io~1gpu.nvidia.com"
    yield Case("gpu-06", "device-class", "ask for a device class as a resource", f"{LIMITS}/{implicit}", "1")


def _withheld_resources(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    for resource in sorted({*place.environment.resources, gpus.GPU} - set(place.resources)):
        slug = resource.rpartition("/")[2].replace(".", "-")
        sentence = f"ask for {resource}, which {place.tenant.tenant} was not granted"
        yield Case("gpu-06", slug, sentence, f"{LIMITS}/{escaped(resource)}", "1")


def _runtime_class(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "choose a runtime class, such as one that exposes every GPU"
    class_name = next(iter(scene.runtime_classes), None)
    case = Case("gpu-01", "runtime-class", sentence, RUNTIME, class_name or "nvidia")
    for kind in kinds_of(place):
        if kind == "Pod" and class_name is None:
            reason = "the cluster has no RuntimeClass: the API server refuses the pod before any guard is evaluated"
            yield skipped("gpu-01-pod-runtime-class", "gpu-01", sentence, reason)
        else:
            yield attack_of(scene, place, case, kind)


def _node_runtime(scene: AttackScene) -> Iterator[Attack]:
    sentence = "run on the node's kernel, outside of its sandbox"
    return withheld(scene, "gpu-01", sentence, Allowance.NODE_RUNTIME, RUNTIME, ABSENT)


def _keys(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    smuggle = "smuggle a device variable into envFrom"
    plain = minimal("ConfigMap", data={"MODE": "fast"})
    yield create(scene, place, "gpu-04", "key", f"{smuggle} by a config map", plain, f"/data/{_VISIBLE}", "all")
    yield create(scene, place, "gpu-04", "imex", f"{smuggle} for IMEX", plain, "/data/NVIDIA_IMEX_CHANNELS", "0")
    secret = minimal("Secret", data={"MODE": "ZmFzdA=="})
    yield create(scene, place, "gpu-04", "key", f"{smuggle} by a secret", secret, f"/data/{_VISIBLE}", "YWxs")
    text = minimal("Secret", stringData={"MODE": "fast"})
    yield create(
        scene, place, "gpu-04", "text", f"{smuggle} by a secret's text", text, f"/stringData/{_VISIBLE}", "all"
    )
    # Every namespace has this one, so that an update can be tried without making anything.
    path = core(place.name, "configmaps", "kube-root-ca.crt")
    patch = {"data": {"MODE": "fast"}}
    merged = put(patch, f"/data/{_VISIBLE}", "all")
    added, harmless = ([{"op": "add", "path": f"/data/{key}", "value": "all"}] for key in (_VISIBLE, "MODE"))
    for name, kind, bad, good in (
        ("merge", MERGE, merged, patch),
        ("strategic", STRATEGIC, merged, patch),
        ("json", JSON_PATCH, added, harmless),
    ):
        yield attack(
            f"gpu-04-configmap-patch-{name}",
            "gpu-04",
            f"{smuggle} by a {name} patch",
            scene.guard("gpu-04", "configmaps"),
            Request("PATCH", path, bad, place.developer, kind),
            twin_body=good,
        )


def _train_without_grant(scene: AttackScene) -> Iterator[Attack]:
    """A TrainJob has no pod template: its GPUs are in its runtime."""
    place = next((p for p in scene.staffed if p.tenant.gpu_users and p.developer != p.without_grant), None)
    if place and TRAIN_JOB in all_kinds(place):
        path = collection(of_api(TRAIN_JOB), TRAIN_JOB, place.name)
        sentence, guard = "train on GPUs without a grant", scene.guard("gpu-10", "trainjobs")
        request = Request("POST", path, work(place, TRAIN_JOB), place.without_grant)
        yield attack("gpu-10-trainjob-not-granted", "gpu-10", sentence, guard, request, twin_who=place.developer)


def _trainer_resources(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    if TRAIN_JOB in all_kinds(place):
        limits = "/spec/trainer/resourcesPerNode/limits"
        train_job = put(work(place, TRAIN_JOB), "/spec/trainer", {"resourcesPerNode": {"limits": {"cpu": "1"}}})
        sentence = "ask for a resource that no quota names"
        at = f"{limits}/amd.com~1gpu"
        yield through(scene, place, "gpu-06", "unknown", sentence, TRAIN_JOB, at, "1", base=train_job)


def _from_unmanaged(scene: AttackScene) -> Iterator[Attack]:
    """Requests of a cluster admin outside of the platform's group, in the first of the unmanaged namespaces."""
    if scene.unmanaged is None:
        yield skipped("gpu-12-unmanaged", "gpu-12", "take GPUs outside of every quota", "no namespace is unmanaged")
    else:
        yield from _unmanaged_pods(scene, scene.unmanaged)


def _classes_as_resources(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for name in place.device_classes:
        at = f"{LIMITS}/deviceclass.resource.kubernetes.io~1{name}"
        sentence = f"ask for class {name} as a resource, outside of its quota"
        yield attack_of(scene, place, Case("gpu-06", f"class-{name}", sentence, at, "1"), "Pod")


def _without_grant(scene: AttackScene) -> Iterator[Attack]:
    """Work that asks for GPUs where a grant by name (gpu-users) is needed, by a developer without one."""
    sentence = "run on GPUs without a grant"
    place = next(
        (p for p in scene.staffed if p.tenant.gpu_users and p.usable_gpus and p.developer != p.without_grant), None
    )
    if place is None:
        yield skipped("gpu-10", "gpu-10", sentence, "no namespace has GPUs granted by name")
        return
    flavor = next(iter(place.usable_gpus))
    for kind in kinds_of(place):
        pod = place.pod({flavor: 1})
        path = collection(of_api(kind), kind, place.name)
        yield attack(
            f"gpu-10-{kind.lower()}-not-granted",
            "gpu-10",
            sentence if kind == "Pod" else f"through a {kind}: {sentence}",
            scene.guard("gpu-10", path.rpartition("/")[2]),
            Request("POST", path, workload(kind, pod), place.without_grant),
            twin_who=place.developer,
        )
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "of-another-user"}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": POD_NAME},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4},
    }
    path = collection("autoscaling/v2", "HorizontalPodAutoscaler", place.name)
    guard = scene.guard("gpu-10", "horizontalpodautoscalers")
    request = Request("POST", path, scaler, place.without_grant)
    more = "scale up another user's work on GPUs"
    yield attack("gpu-10-autoscaler-not-granted", "gpu-10", more, guard, request, twin_who=place.developer)


def _operator_pod() -> Object:
    """A pod as an operator may run it and no tenant could: privileged, with a host path."""
    container = {
        "name": "main",
        "image": "docker.io/library/agent:latest",
        "securityContext": {"privileged": True},
        "resources": {"limits": {"cpu": "1"}},
    }
    spec = {
        "containers": [container],
        "hostNetwork": True,
        "tolerations": [{"key": "example.com/own", "operator": "Exists"}],
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD_NAME}, "spec": spec}


def _unmanaged_pods(scene: AttackScene, name: str) -> Iterator[Attack]:
    good, guard = _operator_pod(), scene.guard("gpu-12", "pods")
    limits = "/spec/containers/0/resources/limits"
    plugin = {"cpu": "1", gpus.GPU: "1"}
    bad: dict[str, tuple[str, str, Any]] = {
        "gpu": ("ask for a GPU that no quota counts", limits, plugin),
        "slice": ("ask for a slice", limits, {"cpu": "1", "nvidia.com/mig-1g.5gb": "1"}),
        "network": ("ask for a network device of the GPU nodes", limits, {"cpu": "1", gpus.EFA: "1"}),
        "any-taint": ("tolerate every taint", "/spec/tolerations/0", {"operator": "Exists"}),
        "gpu-taint": (
            "tolerate the taint of GPU nodes",
            "/spec/tolerations/0",
            {"key": gpus.GPU_TAINT, "operator": "Exists"},
        ),
        "pool": (
            "tolerate the taint of a tenant's own pool",
            "/spec/tolerations/0",
            {"key": vocabulary.POOL, "operator": "Exists"},
        ),
        "node": ("choose its node without the scheduler", "/spec/nodeName", "gpu-node"),
    }
    if scene.environment.uses_device_claims:
        claims = [{"name": "gpu", "resourceClaimName": "mine"}]
        bad["claim"] = ("claim a device", "/spec/resourceClaims", claims)
    for slug, (sentence, pointer, value) in bad.items():
        request = Request("POST", core(name, "pods"), put(good, pointer, value), CLUSTER_ADMIN)
        text = f"{sentence}, from an unmanaged namespace"
        yield attack(f"gpu-12-unmanaged-{slug}", "gpu-12", text, guard, request, twin_body=good)
    init = {"name": "first", "image": "docker.io/library/agent:latest", "resources": {"limits": {"cpu": "1"}}}
    begun = put(good, "/spec/initContainers", [init])
    request = Request(
        "POST", core(name, "pods"), put(begun, "/spec/initContainers/0/resources/limits", plugin), CLUSTER_ADMIN
    )
    text = "ask for a GPU in an init container, from an unmanaged namespace"
    yield attack("gpu-12-unmanaged-init", "gpu-12", text, guard, request, twin_body=begun)


RULES: tuple[Rule, ...] = (
    Rule(
        id="gpu-01",
        title="a pod uses the runtime class of its namespace",
        why=(
            "the nvidia runtime classes give access to every GPU of the node, and the node's default runtime is no "
            "sandbox"
        ),
        fix="drop runtimeClassName; in a sandboxed namespace set it to tenancy-sandbox",
        severity=Severity.CRITICAL,
        partial={Face.PREVIEW: "it does not know which tiers are sandboxed, so work without a runtime class passes"},
        guards={
            GuardSubject.PODS: f"""has(variables.spec.runtimeClassName) && variables.spec.runtimeClassName != ''
        ? variables.spec.runtimeClassName in variables.allowedRuntimes : {may(Allowance.NODE_RUNTIME)}"""
        },
        attacks=(at_home(_runtime_class), _node_runtime),
    ),
    Rule(
        id="gpu-02",
        title="a container does not choose devices by environment variable",
        why="NVIDIA_VISIBLE_DEVICES and related variables open GPUs that the scheduler assigned to other pods",
        fix="drop the variable ('void' and 'none' are fine) and ask for GPUs under resources.limits",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""variables.containers.all(c, !has(c.env) || c.env.all(e, !(e.name in {DEVICES})
        || (e.name == 'NVIDIA_VISIBLE_DEVICES' && !has(e.valueFrom)
            && (!has(e.value) || e.value in ['', 'void', 'none']))))"""
        },
        attacks=(through_all_kinds(_variables),),
    ),
    Rule(
        id="gpu-03",
        title="envFrom has no prefix that can form the name of a device variable",
        why="prefix NVIDIA_ with key VISIBLE_DEVICES is NVIDIA_VISIBLE_DEVICES",
        fix="drop the prefix or choose another",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""variables.containers.all(c, !has(c.envFrom) || c.envFrom.all(f,
        !has(f.prefix) || f.prefix == '' || !{DEVICES}.exists(d, d.startsWith(f.prefix))))"""
        },
        attacks=(through_all_kinds(_prefixes),),
    ),
    Rule(
        id="gpu-04",
        title="a config map or secret has no key that is the name of a device variable",
        why="envFrom would turn the key into the variable, which the guard on pods cannot see",
        fix="rename the key",
        severity=Severity.CRITICAL,
        guards={GuardSubject.CONFIG_MAPS: _NO_DEVICE_KEYS, GuardSubject.SECRETS: _NO_DEVICE_KEYS},
        attacks=(at_home(_keys),),
    ),
    Rule(
        id="gpu-05",
        title="a pod has no CDI annotation",
        why="container runtimes inject any device that such an annotation names",
        fix="drop annotations under cdi.k8s.io and nvidia.cdi.k8s.io",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: """variables.podAnnotations.all(k,
        !k.startsWith('cdi.k8s.io/') && !k.startsWith('nvidia.cdi.k8s.io/'))"""
        },
        attacks=(through_all_kinds(_annotations),),
    ),
    Rule(
        id="gpu-06",
        title="a container asks only for extended resources that its tenant was granted",
        why="a resource that no quota names is unlimited",
        fix="ask for a granted resource; GPUs are granted by a flavor in the tenant file, huge pages and other "
        "resources under quota.hard as requests.<resource>",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""variables.containers.all(c, !has(c.resources) || (
        (!has(c.resources.limits) || c.resources.limits.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))
        && (!has(c.resources.requests) || c.resources.requests.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))))""",
            GuardSubject.FRAMEWORK_PODS: f"""object.kind != 'TrainJob'
        || [{_OF_TRAINER}.?limits.orValue({{}}), {_OF_TRAINER}.?requests.orValue({{}})].all(m, m.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))""",
        },
        attacks=(
            through_all_kinds(_resources),
            in_each_namespace(_withheld_resources),
            in_queue(_trainer_resources),
            at_home(_classes_as_resources),
        ),
    ),
    Rule(
        id="gpu-09",
        title="GPUs are assigned by the device plugin or by device claims, not by NRI",
        why="with NVIDIA's NRI plugin an annotation of a pod names the GPUs that it gets",
        fix="set cdi.nriPluginEnabled to false",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="gpu-10",
        title="where GPUs are granted by name, only users with the grant make work that asks for GPUs, and scale work",
        why="GPUs that a user without the grant takes are missing for the work of users who have it",
        fix="have one of the tenant's gpu-users do it, or be added there; without GPUs, change spec.replicas itself",
        severity=Severity.MEDIUM,
        guards={
            GuardSubject.PODS: _NEW_GPU_PODS,
            # A request that changes what runs in a pod uses the GPUs of the pod's author.
            GuardSubject.POD: _of_gpu_users(
                f"(!variables.placing && object.spec.containers == oldObject.spec.containers && {_SAME_PROGRAMS})"
            ),
            # A TrainJob has no template: its runtime's may ask for GPUs too.
            GuardSubject.FRAMEWORK_PODS: f"object.kind != 'TrainJob' || {may(Allowance.GPUS_FOR_ALL)}"
            f" || variables.byController || {GRANTED}",
            # A scale request does not say what it scales, so the rule applies to all work.
            GuardSubject.SCALES: f"""{may(Allowance.GPUS_FOR_ALL)}
        || request.userInfo.username in {cel(list(AUTOSCALERS))}
        || (has(request.subResource) && {_REPLICAS} <= {_OLD_REPLICAS}) || {GRANTED}""",
        },
        attacks=(_without_grant, _train_without_grant),
    ),
    Rule(
        id="gpu-12",
        title="work in an unmanaged namespace asks for no GPU and runs on no node that is reserved for tenants",
        why="it is in no quota and no queue, so it would run on GPUs that are guaranteed to tenants",
        fix=(
            "drop GPUs, device claims, nodeName, and tolerations of everything, of nvidia.com/* and of "
            "tenancy.gpu/pool; "
            "or run it as a tenant, or as the platform's under platform.namespaces"
        ),
        guards={GuardSubject.UNMANAGED_PODS: _unmanaged},
        attacks=(_from_unmanaged,),
    ),
)
