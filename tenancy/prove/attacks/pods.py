"""Attacks through pods, and through everything that makes pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tenancy.catalog import gpus, sizes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import JOB_FINALIZER
from tenancy.live import denial
from tenancy.live.api import Impersonation, collection
from tenancy.planning.common.labels import own_labels, tenant_labels
from tenancy.planning.common.priorities import allowed_classes, class_name
from tenancy.planning.kubernetes.namespaces import allowed_pools, allowed_registries, granted_resources
from tenancy.prove.attacks.grants import withheld_attacks
from tenancy.prove.attacks.model import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.prove.attacks.scene import AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import (
    ALL_KINDS,
    ANTI_AFFINITY,
    BY_CONTROLLERS,
    ENV,
    FINALIZERS,
    FOREIGN_IMAGE,
    INIT,
    LIMITS,
    RUNTIME,
    TOKEN,
    Case,
    attack_of,
    kinds_of,
    of_api,
    workload,
)
from tenancy.rules.identity import TOKEN_SECONDS

JOB_CONTROLLER = Impersonation(
    "system:serviceaccount:kube-system:job-controller", ("system:serviceaccounts:kube-system",)
)

OBEYED = {
    "networks": ("join another network", "k8s.v1.cni.cncf.io/networks"),
    "default-network": ("leave the cluster's network", "v1.multus-cni.io/default-network"),
    "pod-ips": ("receive load balancers' traffic for another pod", "vpc.amazonaws.com/pod-ips"),
    "eni-config": ("choose its subnet and security groups", "k8s.amazonaws.com/eniConfig"),
    "calico-address": ("take another pod's address", "cni.projectcalico.org/ipAddrs"),
    "ovn": ("write its own network settings", "k8s.ovn.org/pod-networks"),
    "kube-ovn-address": ("take another pod's address", "ovn.kubernetes.io/ip_address"),
    "cilium-tracking": ("exempt its connections from tracking", "policy.cilium.io/no-track-port"),
    "cilium-tracking-old": ("exempt its connections from tracking", "io.cilium.no-track-port"),
    "kata": ("choose the hypervisor that the node starts", "io.katacontainers.config.hypervisor.path"),
    "untrusted": ("choose its runtime without a class", "io.kubernetes.cri.untrusted-workload"),
    "crio-devices": ("have the node's devices injected", "io.kubernetes.cri-o.Devices"),
    "crio-seccomp": ("choose its system calls", "seccomp-profile.kubernetes.cri-o.io"),
    "crio-processors": ("use CPU above its limit", "cpu-quota.crio.io"),
    "nri-mounts": ("mount the node's disk", "mounts.nri.io/container.hello"),
    "nri-devices": ("have the node's devices injected", "devices.noderesource.dev/container.hello"),
    "gvisor": ("share its sandbox's mounts", "dev.gvisor.spec.mount.data.share"),
    "containerd": ("have the node run a program as its log", "containerd.io/restart.loguri"),
}
"""Annotations that networks and runtimes obey, and their effect; each domain and prefix of net-07 once."""


def pod_attacks(scene: Scene) -> Iterator[Attack]:
    """Every rule on pods, through every kind that makes pods; variants through pods alone."""
    home = scene.home
    if home is None:
        yield skipped("pods", "gpu-02", "attack through pods", "no tenant has a developer or an owner")
        return
    for case in (*_devices(scene, home), *_scheduling(scene, home), *_rest(scene, home), *_around(scene, home)):
        by_controllers = BY_CONTROLLERS if case.kinds == ALL_KINDS else ()
        for kind in (*kinds_of(home, case.kinds), *by_controllers):
            yield attack_of(scene, home, case, kind)
    yield _named_node(scene, home)
    yield from _runtime_class(scene, home)
    yield _tracked(scene, home)
    yield from _of_its_own(scene, home)
    if not home.environment.devices_by_claim:
        yield from _gpu_tolerations(scene, home)
    yield from withheld_attacks(scene)
    for place in scene.manned:
        for case in _of_namespace(scene, place):
            yield attack_of(scene, place, case, "Pod", suffix=f"@{place.name}")
        yield from _foreign_pools(scene, place)


def _devices(_scene: Scene, place: AttackedNamespace) -> Iterator[Case]:
    harmless = {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}
    visible = "NVIDIA_VISIBLE_DEVICES"
    name, plain = f"{ENV}/0/name", harmless["name"]
    env = {ENV: [harmless]}
    yield Case("gpu-02", "env", "see all GPUs of the node by variable", name, visible, plain, env, ALL_KINDS)
    first = place.pod()["spec"]["containers"][0]
    init = {INIT: [{**first, "name": "first", "env": [harmless]}]}
    yield Case("gpu-02", "init-env", "see all GPUs in an init container", f"{INIT}/0/env/0/name", visible, plain, init)
    sidecar = {INIT: [{**first, "name": "first", "env": [harmless], "restartPolicy": "Always"}]}
    yield Case("gpu-02", "sidecar-env", "see all GPUs in a sidecar", f"{INIT}/0/env/0/name", visible, plain, sidecar)
    value = {ENV: [{"name": visible, "value": "void"}]}
    yield Case("gpu-02", "env-index", "see one GPU by its index", f"{ENV}/0/value", "0", "", value)
    hidden = {ENV: [{"name": plain, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "x"}}}]}
    yield Case("gpu-02", "env-from-key", "see GPUs by a variable read from a config map", name, visible, plain, hidden)
    for device in gpus.DEVICE_VARIABLES:
        if device != visible:
            slug = device.removeprefix("NVIDIA_").lower().replace("_", "-")
            yield Case("gpu-02", f"env-{slug}", f"open devices by {device}", name, device, plain, env)
    source = [{"prefix": "MODEL_", "configMapRef": {"name": "settings"}}]
    prefixed = {"/spec/containers/0/envFrom": source}
    at = "/spec/containers/0/envFrom/0/prefix"
    complete = "turn a config map's key into a device variable by a prefix"
    yield Case("gpu-03", "prefix", complete, at, "NVIDIA_", "MODEL_", prefixed, ALL_KINDS)
    yield Case("gpu-03", "short-prefix", f"{complete} of one letter", at, "N", "M", prefixed)
    yield Case("gpu-03", "long-prefix", f"{complete} that lacks one letter", at, f"{visible[:-1]}", "M", prefixed)
    for slug, key, kinds in (
        ("annotation", "nvidia.cdi.k8s.io/container.hello", ALL_KINDS),
        ("plain-annotation", "cdi.k8s.io/anything", ("Pod",)),
    ):
        at = f"/metadata/annotations/{key.replace('/', '~1')}"
        base = {"/metadata/annotations": {"note": "hello"}}
        yield Case(
            "gpu-05", slug, "have a device injected by annotation", at, "nvidia.com/gpu=all", ABSENT, base, kinds
        )
    granted = granted_resources(place.environment, place.tenant, place.namespace)
    wanted = {"unknown": "nvidia.com/mig-99g.999gb", "efa": gpus.EFA, "other-vendor": "amd.com/gpu"}
    for slug, resource in wanted.items():
        if resource not in granted:
            kinds = ALL_KINDS if slug == "unknown" else ("Pod",)
            at = f"{LIMITS}/{resource.replace('/', '~1')}"
            yield Case("gpu-06", slug, f"ask for {resource}, which no quota names", at, "1", kinds=kinds)
    implicit = "deviceclass.resource.kubernetes.io~1gpu.nvidia.com"
    yield Case("gpu-06", "device-class", "ask for a device class as a resource", f"{LIMITS}/{implicit}", "1")


def _scheduling(scene: Scene, place: AttackedNamespace) -> Iterator[Case]:
    all_taints = [{"operator": "Exists"}]
    yield Case("sched-01", "all", "tolerate every taint", "/spec/tolerations", all_taints, kinds=ALL_KINDS)
    usual = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    exists = {"/spec/tolerations": [{**usual, "operator": "Exists"}]}
    equal = {"/spec/tolerations": [{**usual, "operator": "Equal", "value": "another-tenants"}]}
    key = "/spec/tolerations/0/key"
    yield Case("sched-01", "empty-key", "tolerate every taint of an effect", key, "", usual["key"], exists)
    yield Case("sched-01", "any-pool", "tolerate every pool's taint", key, words.POOL, usual["key"], exists)
    yield Case("sched-01", "a-pool", "tolerate another tenant's pool", key, words.POOL, usual["key"], equal)
    cordon = "node.kubernetes.io/unschedulable"
    yield Case("sched-01", "cordon", "run on nodes that are being drained", key, cordon, usual["key"], exists)
    effect = "/spec/tolerations/0/effect"
    yield Case("sched-01", "not-ready", "start on a node that is not ready", effect, "NoSchedule", "NoExecute", exists)
    others = tuple(kind for kind in kinds_of(place) if kind != "Pod")
    yield Case("sched-02", "node", "choose a node without the scheduler", "/spec/nodeName", "node-1", kinds=others)
    priority = "/spec/priorityClassName"
    usual_class = allowed_classes(place.environment, place.tenant.tier_of(place.namespace))[-1]
    for slug, name, kinds in (
        ("system", "system-node-critical", ALL_KINDS),
        ("cluster", "system-cluster-critical", ("Pod",)),
    ):
        yield Case("sched-04", slug, f"run with priority {name}", priority, name, usual_class, kinds=kinds)
    scheduler = "/spec/schedulerName"
    yield Case("sched-05", "own", "use a scheduler of its own", scheduler, "mine", "default-scheduler", kinds=ALL_KINDS)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    away = {ANTI_AFFINITY: [term]}
    near = ANTI_AFFINITY.replace("podAntiAffinity", "podAffinity")
    others = "keep all other tenants' pods off its node"
    yield Case(
        "sched-06", "all-namespaces", others, f"{ANTI_AFFINITY}/0/namespaceSelector", {}, base=away, kinds=ALL_KINDS
    )
    named = other.name if (other := scene.other(place)) else "kube-system"
    yield Case(
        "sched-06", "named", f"keep {named}'s pods off its node", f"{ANTI_AFFINITY}/0/namespaces", [named], base=away
    )
    for slug, name, bad in (("all", "namespaceSelector", {}), ("named", "namespaces", [named])):
        for prefers, where in (("away", ANTI_AFFINITY), ("near", near)):
            prefer = where.replace("required", "preferred")
            weighed: dict[str, Any] = {prefer: [{"weight": 1, "podAffinityTerm": term}]}
            yield Case(
                *("sched-06", f"oracle-{prefers}-{slug}", "learn by its own placement where other tenants' pods run"),
                *(f"{prefer}/0/podAffinityTerm/{name}", bad, ABSENT, weighed),
                ALL_KINDS if (slug, prefers) == ("all", "away") else ("Pod",),
            )
    for slug, where in (("required", near), ("preferred", near.replace("required", "preferred"))):
        one = term if slug == "required" else {"weight": 1, "podAffinityTerm": term}
        full: dict[str, Any] = {where: [one] * sizes.AFFINITY_TERMS}
        yield Case(
            *(
                "sched-09",
                slug,
                "slow the scheduler down by many affinity terms",
                f"{where}/{sizes.AFFINITY_TERMS}",
                one,
                ABSENT,
                full,
            ),
            ALL_KINDS if slug == "preferred" else ("Pod",),
        )
    yield Case(
        "sched-06", "near", "run beside other tenants' pods", f"{near}/0/namespaceSelector", {}, base={near: [term]}
    )


def _rest(scene: Scene, place: AttackedNamespace) -> Iterator[Case]:
    image = place.environment.images.sample
    pull = "run an image from anywhere"
    yield Case("img-01", "image", pull, "/spec/containers/0/image", FOREIGN_IMAGE, image, kinds=ALL_KINDS)
    first = {**place.pod()["spec"]["containers"][0], "name": "first"}
    latest = f"{image.partition('@')[0].rpartition(':')[0]}:latest"
    moving = "run an image by a tag that moves"
    yield Case("img-02", "latest", moving, "/spec/containers/0/image", latest, image, kinds=ALL_KINDS)
    yield Case("img-02", "no-tag", moving, "/spec/containers/0/image", latest.removesuffix(":latest"), image)
    half = f"{image.partition('@')[0]}@sha256:abc"
    yield Case("img-02", "half-digest", "run an image by an incomplete digest", "/spec/containers/0/image", half, image)
    yield Case("img-01", "init", f"{pull} as init container", f"{INIT}/0/image", FOREIGN_IMAGE, image, {INIT: [first]})
    volumes = {"/spec/volumes": [{"name": "weights", "image": {"reference": image}}]}
    yield Case(
        "img-01",
        "volume",
        "mount an image from anywhere",
        "/spec/volumes/0/image/reference",
        FOREIGN_IMAGE,
        image,
        volumes,
    )
    prefix = allowed_registries(place.environment, place.tenant)[0].rstrip("/")
    alike = f"{prefix}.attacker.example/miner:1"
    yield Case(
        "img-01",
        "look-alike",
        "run an image of a registry with a similar name",
        "/spec/containers/0/image",
        alike,
        image,
    )
    yield Case(
        "img-01",
        "way-out",
        "run an image of a folder beside its registry's",
        "/spec/containers/0/image",
        f"{prefix}/../other/miner:1",
        image,
    )
    policy = "/spec/dnsPolicy"
    yield Case(
        "dns-01",
        "policy",
        "resolve names outside of the cluster's DNS",
        policy,
        "Default",
        "ClusterFirst",
        kinds=ALL_KINDS,
    )
    hosts = [{"ip": "169.254.169.254", "hostnames": ["api.vendor.example"]}]
    yield Case("dns-01", "hosts", "give a host name an address of its choice", "/spec/hostAliases", hosts)
    resolver = {"nameservers": ["198.51.100.53"]}
    yield Case("dns-01", "resolver", "add a resolver of its own", "/spec/dnsConfig", resolver)
    own_search = f"train.{place.name}.svc.cluster.local"
    yield Case(
        "dns-01",
        "search",
        "find names of another namespace first",
        "/spec/dnsConfig/searches/0",
        "kube-system.svc.cluster.local",
        own_search,
        {"/spec/dnsConfig": {"searches": [own_search]}},
    )
    grace = "/spec/terminationGracePeriodSeconds"
    yield Case("avail-01", "grace", "keep its GPU long after eviction", grace, 601, 600, kinds=ALL_KINDS)
    for probe in ("livenessProbe", "startupProbe"):
        check = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 600}
        for slug, first in (("", "/spec/containers/0"), ("sidecar-", f"{INIT}/0")):
            sidecar = {INIT: [{**place.pod()["spec"]["containers"][0], "name": "first", "restartPolicy": "Always"}]}
            at = f"{first}/{probe}"
            yield Case(
                *("avail-01", f"{slug}{probe.lower()}", "keep its GPU by the grace period of a probe"),
                *(f"{at}/terminationGracePeriodSeconds", 31536000, 600, {**(sidecar if slug else {}), at: check}),
                ALL_KINDS if (slug, probe) == ("", "livenessProbe") else ("Pod",),
            )
    forgotten = "release its quota before its containers end"
    yield Case("avail-06", "at-once", forgotten, grace, 0, 1, kinds=ALL_KINDS)
    yield Case("pod-01", "users", "run as root of a user namespace", "/spec/hostUsers", False, True, kinds=ALL_KINDS)
    whole = {"limits": {"cpu": "1"}}
    yield Case(
        "quota-03",
        "pod-level",
        "request resources outside of the limit range",
        "/spec/resources",
        whole,
        kinds=ALL_KINDS,
    )
    inline = [{"name": "data", "csi": {"driver": "s3.csi.aws.com"}}]
    yield Case("stor-04", "inline", "mount a volume with the driver's rights", "/spec/volumes", inline, kinds=ALL_KINDS)
    tenant = place.tenant
    other = scene.other(place)
    mine = tenant_labels(place.environment, tenant, place.namespace)
    theirs = other.tenant if other else None
    labels = {
        "team": theirs.team if theirs and theirs.team != tenant.team else "another-team",
        "department": "another-department",
        "cost-center": "CC-another",
        "owner": "another-owner",
        "product": "another-product",
        "gpu-tier": "another-gpu-tier",
    }
    for key, value in labels.items():
        at = f"/metadata/labels/{key}"
        kinds = ALL_KINDS if key == "team" else ("Pod",)
        yield Case("cost-01", key, f"charge its cost to another {key}", at, value, mine[key], kinds=kinds)
    for key in own_labels(tenant, place.namespace):
        at = f"/metadata/labels/{escaped(key)}"
        yield Case("cost-01", "own-label", f"have another {key} than its namespace", at, "another", mine[key])


def _around(_scene: Scene, place: AttackedNamespace) -> Iterator[Case]:
    """Attacks of a pod on its node, its network and services that trust its identity."""
    keep = "keep its node and its namespace from ever being removed"
    yield Case("avail-03", "finalizer", keep, FINALIZERS, ["bank.example/keep"], kinds=ALL_KINDS)
    tracked = f"{keep}, by the job controller's own finalizer"
    yield Case("avail-03", "job-template", tracked, FINALIZERS, [JOB_FINALIZER], kinds=("Job", "Deployment"))
    note = {"/metadata/annotations": {"note": "hello"}}
    hold = "keep its node from being replaced"
    karpenter = "/metadata/annotations/karpenter.sh~1do-not-disrupt"
    yield Case("avail-04", "do-not-disrupt", hold, karpenter, "true", "false", note, ALL_KINDS)
    yield Case("avail-04", "for-a-year", f"{hold}, for a duration", karpenter, "8760h", "false", note)
    autoscaler = "/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict"
    yield Case("avail-04", "safe-to-evict", hold, autoscaler, "false", "true", note, ALL_KINDS)
    # The twin keeps an annotation that limits the pod alone.
    bandwidth = {"/metadata/annotations": {"kubernetes.io/egress-bandwidth": "1G"}}
    for slug, (sentence, key) in OBEYED.items():
        at = f"/metadata/annotations/{escaped(key)}"
        kinds = ALL_KINDS if slug in ("networks", "kata") else ("Pod",)
        yield Case("net-07", slug, sentence, at, "x", ABSENT, bandwidth, kinds)
    token = {"path": "token", "audience": "sts.amazonaws.com", "expirationSeconds": TOKEN_SECONDS}
    mounted = {"/spec/volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}]}
    audience, life = f"{TOKEN}/audience", f"{TOKEN}/expirationSeconds"
    log_in = "log in to a service that trusts the cluster"
    yield Case("id-03", "audience", log_in, audience, "vault.bank.example", token["audience"], mounted, ALL_KINDS)
    yield Case("id-03", "look-alike", log_in, audience, f"{token['audience']}.evil.example", token["audience"], mounted)
    long = "get a token that is valid for too long"
    yield Case("id-03", "life", long, life, TOKEN_SECONDS + 1, TOKEN_SECONDS, mounted)
    automount = "/spec/automountServiceAccountToken"
    ask = "mount a token for the API server"
    yield Case("id-08", "mount", ask, automount, True, False, kinds=ALL_KINDS)
    yield Case("id-08", "projected", f"{ask} in a volume of its own", audience, ABSENT, token["audience"], mounted)
    of_templates = tuple(kind for kind in kinds_of(place) if kind != "Pod")
    account = "/spec/serviceAccountName"
    left = "run as a service account that the tenant's file does not name"
    yield Case("id-07", "account", left, account, "left-behind", "default", kinds=of_templates)


def _named_node(scene: Scene, place: AttackedNamespace) -> Attack:
    case = Case("sched-02", "node", "choose a node without the scheduler", "/spec/nodeName", "node-1")
    if not place.environment.queued:
        return attack_of(scene, place, case, "Pod")
    # Every pod has the queue's scheduling gate by then, and the API server refuses a pod with a gate and a node name.
    return attack_of(scene, place, replace(case, rule="api-validation"), "Pod", denial.API_VALIDATION)


def _tracked(scene: Scene, place: AttackedNamespace) -> Attack:
    """The job controller's finalizer, set by a user: no controller removes it from a pod without a Job."""
    pod = put(place.pod(), FINALIZERS, [JOB_FINALIZER])
    return attack(
        "avail-03-pod-job",
        "avail-03",
        "keep a pod by the job controller's own finalizer",
        scene.guard("avail-03", "pods"),
        Request("POST", collection("v1", "Pod", place.name), pod, place.developer),
        twin_who=JOB_CONTROLLER,
    )


def _of_its_own(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Metadata of work itself. Its queue no longer counts deleted work that a finalizer keeps, and its pods run on."""
    for kind in kinds_of(place):
        if kind != "Pod":
            path, made = collection(of_api(kind), kind, place.name), workload(kind, place.pod())
            charged = put(made, "/metadata/labels/team", place.tenant.team)
            yield attack(
                f"cost-01-{kind.lower()}-own",
                "cost-01",
                f"through a {kind}: have the queue count it for another team",
                scene.guard("cost-01", path.rpartition("/")[2]),
                Request("POST", path, put(charged, "/metadata/labels/team", "another-team"), place.developer),
                twin_body=charged,
            )
            yield attack(
                f"avail-03-{kind.lower()}-own",
                "avail-03",
                f"through a {kind}: run on after it was deleted",
                scene.guard("avail-03", path.rpartition("/")[2]),
                Request("POST", path, put(made, FINALIZERS, ["bank.example/never"]), place.developer),
                twin_body=made,
            )


def _runtime_class(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "choose a runtime class, such as one that exposes every GPU"
    known = next(iter(scene.runtime_classes), None)
    case = Case("gpu-01", "runtime-class", sentence, RUNTIME, known or "nvidia")
    for kind in kinds_of(place):
        if kind == "Pod" and known is None:
            reason = "the cluster has no RuntimeClass: the API server refuses the pod before any guard is evaluated"
            yield skipped("gpu-01-pod-runtime-class", "gpu-01", sentence, reason)
        else:
            yield attack_of(scene, place, case, kind)


def _gpu_tolerations(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "use a GPU node's CPU without asking for its GPU"
    flavor = next(iter(place.held), None)
    if flavor is None:
        yield skipped("sched-01-pod-no-gpu", "sched-01", sentence, "no namespace with a developer has GPUs")
        return
    resource = place.environment.resource_of(flavor)
    at = f"{LIMITS}/{resource.replace('/', '~1')}"
    base = {
        "/spec/tolerations": [{"key": gpus.GPU_TAINT, "operator": "Exists"}],
        f"{at.replace('limits', 'requests')}": ABSENT,
    }
    case = Case("sched-01", "no-gpu", sentence, at, ABSENT, "1", base, gpus={flavor: 1})
    for kind in kinds_of(place):
        yield attack_of(scene, place, case, kind)
    # Requests follow limits: a limit of zero asks for nothing.
    yield attack_of(scene, place, Case("sched-01", "zero-gpu", sentence, at, "0", "1", base, gpus={flavor: 1}), "Pod")


def _of_namespace(scene: Scene, place: AttackedNamespace) -> Iterator[Case]:
    """Attacks on limits that guards read from the namespace's own annotations."""
    environment, tenant = place.environment, place.tenant
    granted = granted_resources(environment, tenant, place.namespace)
    for resource in sorted({*environment.resources, gpus.GPU} - set(granted)):
        at = f"{LIMITS}/{resource.replace('/', '~1')}"
        slug = resource.rpartition("/")[2].replace(".", "-")
        yield Case("gpu-06", slug, f"ask for {resource}, which {tenant.tenant} was not granted", at, "1")
    allowed = allowed_classes(environment, tenant.tier_of(place.namespace))
    for name in sorted({class_name(tier) for tier in environment.tiers} - set(allowed)):
        yield Case("sched-04", name, f"run with priority {name}", "/spec/priorityClassName", name, allowed[-1])
    theirs = scene.other(place)
    if theirs:
        mine = allowed_registries(environment, tenant)
        for registry in sorted(set(allowed_registries(environment, theirs.tenant)) - set(mine)):
            at, good = "/spec/containers/0/image", environment.images.sample
            sentence = f"run an image of {theirs.tenant.tenant}"
            yield Case("img-01", "foreign-tenant", sentence, at, f"{registry}model:1", good)
        label = f"/metadata/labels/{words.TENANT.replace('/', '~1')}"
        bad = theirs.tenant.tenant
        yield Case("cost-01", "tenant", f"charge its cost to {bad}", label, bad, tenant.tenant)


def _foreign_pools(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "tolerate another tenant's pool instead of its own"
    mine = allowed_pools(place.environment, place.tenant, place.tenant.tier_of(place.namespace))
    theirs = [name for name, pool in sorted(place.environment.pools.items()) if pool.restricted and name not in mine]
    if not (mine and theirs):
        reason = "no pool with a taint admits it" if not mine else "every pool with a taint admits it"
        yield skipped(f"sched-01-pod-foreign-pool@{place.name}", "sched-01", sentence, reason)
        return
    base = {"/spec/tolerations": [{"key": words.POOL, "operator": "Equal", "value": mine[0], "effect": "NoSchedule"}]}
    case = Case("sched-01", "foreign-pool", sentence, "/spec/tolerations/0/value", theirs[0], mine[0], base)
    yield attack_of(scene, place, case, "Pod", suffix=f"@{place.name}")
