"""Attacks through templates whose pods Pod Security would refuse: work that has GPU quota and no pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenancy.catalog.versions import incompatible
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.guards.pod_security import RULE
from tenancy.planning.kubernetes.samples import SAMPLE_ID
from tenancy.prove.attacks.model import ABSENT, Attack, skipped
from tenancy.prove.attacks.scene import Scene
from tenancy.prove.attacks.workloads import BY_CONTROLLERS, SECURITY, Case, attack_of, kinds_of
from tenancy.schema.tenant import PodSecurity

_HOLD = "reserve GPUs for pods that never start"
_VOLUMES = "/spec/volumes"
_PORTS = "/spec/containers/0/ports"
_PROBE = "/spec/containers/0/livenessProbe"


def security_attacks(scene: Scene) -> Iterator[Attack]:
    """Every breach of the restricted level through a Job, three of them through every other kind that makes pods."""
    strict = (place for place in scene.manned if place.namespace.pod_security is PodSecurity.RESTRICTED)
    if (place := next(strict, None)) is None:
        yield skipped(RULE, RULE, _HOLD, "no namespace with a developer enforces the restricted level")
        return
    hosts = "pod-05" if incompatible(place.environment.cluster.kubernetes, "probe-hosts") else RULE
    if hosts == RULE:
        reason = f"Pod Security of Kubernetes {place.environment.cluster.kubernetes} has the check"
        yield skipped("pod-05-pod-probe", "pod-05", "have the node send requests to an address of its choice", reason)
    kinds = [*(kind for kind in kinds_of(place) if kind != "Pod"), *BY_CONTROLLERS]
    for case in _cases(hosts, kinds, tuple(f.kind for f in frameworks(place.environment) if f.kind in kinds)):
        for kind in case.kinds:
            yield attack_of(scene, place, case, kind)


def _cases(hosts: str, kinds: Sequence[str], of_others: Sequence[str]) -> Iterator[Case]:
    volume = {_VOLUMES: [{"name": "data"}]}
    job = ("Job",)

    def case(name: str, what: str, at: str, bad: object, good: object = ABSENT, **more: object) -> Case:
        return Case(RULE, name, f"{_HOLD}: {what}", at, bad, good, **{"kinds": job, **more})  # ty: ignore[invalid-argument-type]

    yield case("host-network", "on the node's network", "/spec/hostNetwork", True, kinds=kinds)
    yield case("host-pid", "among the node's processes", "/spec/hostPID", True)
    yield case("host-ipc", "in the node's shared memory", "/spec/hostIPC", True)
    yield case("host-path", "on the node's disk", f"{_VOLUMES}/0/hostPath", {"path": "/"}, base=volume)
    yield case("nfs", "on a server of its choice", f"{_VOLUMES}/0/nfs", {"server": "h", "path": "/"}, base=volume)
    on_port = {_PORTS: [{"containerPort": 8080}]}
    yield case("host-port", "on a port of the node", f"{_PORTS}/0/hostPort", 8080, base=on_port)
    asks = {_PROBE: {"httpGet": {"port": 80, "path": "/"}}}
    host = f"{_PROBE}/httpGet/host"
    yield replace(case("probe", "probed at an address of its choice", host, "192.0.2.1", base=asks), rule=hosts)
    yield case("capability", "with an additional capability", f"{SECURITY}/capabilities/add", ["SYS_ADMIN"])
    yield case("keeps-capabilities", "with the default capabilities", f"{SECURITY}/capabilities/drop", ABSENT, ["ALL"])
    yield case(
        "escalation", "that may gain privileges", f"{SECURITY}/allowPrivilegeEscalation", True, False, kinds=kinds
    )
    yield case("root", "as root", f"{SECURITY}/runAsUser", 0, SAMPLE_ID)
    not_root = "/spec/securityContext/runAsNonRoot"
    yield case("may-be-root", "that may be root", not_root, ABSENT, True, kinds=kinds)
    seccomp = "/spec/securityContext/seccompProfile"
    yield case("seccomp", "without system call filtering", f"{seccomp}/type", "Unconfined", "RuntimeDefault")
    yield case("no-seccomp", "without a seccomp profile", seccomp, ABSENT, {"type": "RuntimeDefault"})
    sysctl = [{"name": "kernel.msgmax", "value": "1"}]
    yield case("sysctl", "with a kernel setting", "/spec/securityContext/sysctls", sysctl)
    yield case("app-armor", "unconfined by AppArmor", "/spec/securityContext/appArmorProfile", {"type": "Unconfined"})
    yield case(
        "se-linux", "with an SELinux label of their own", "/spec/securityContext/seLinuxOptions", {"type": "spc_t"}
    )
    if of_others:
        # Of Kubernetes' own kinds the API server refuses it beside `allowPrivilegeEscalation: false`.
        yield case("privileged", "with every device of the node", f"{SECURITY}/privileged", True, kinds=of_others)
