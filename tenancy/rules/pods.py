"""Pods: the level of Pod Security, and keys of labels and annotations that agents of the platform obey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenancy.catalog.versions import incompatible
from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.attacks import ABSENT, Attack, put, skipped
from tenancy.rules.expressions import (
    cel,
    may,
)
from tenancy.rules.model import Face, GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.pod_security import PROBE_HOST_FIELDS
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    BY_CONTROLLERS,
    SECURITY,
    TRAIN_JOB,
    Case,
    all_kinds,
    attack_of,
    in_queue,
    kinds_of,
    through,
    through_all_kinds,
    withheld,
    work,
)


def _no_host(field: str) -> str:
    steps = field.split(".")
    absent = [f"!has(c.{'.'.join(steps[: number + 1])})" for number in range(len(steps))]
    return f"({' || '.join([*absent, f'c.{field} == {cel(str())}'])})"


def _own_hosts(facts: GuardFacts) -> str | None:
    """No host in probes and hooks; None if Pod Security of the cluster's version checks them."""
    if not incompatible(facts.kubernetes, "probe-hosts"):
        return None
    return f"variables.containers.all(c, {' && '.join(_no_host(field) for field in PROBE_HOST_FIELDS)})"


# Attacks

_HOLD = "reserve GPUs for pods that never start"
_VOLUMES = "/spec/volumes"
_PORTS = "/spec/containers/0/ports"
_PROBE = "/spec/containers/0/livenessProbe"
_PROBED = "have the node send requests to an address of its choice"
_SAMPLE_USER = 10001
_AT_ANY_LEVEL = ("volume-of-the-node", "privileged")
"""Attacks that the baseline level refuses too."""


def _user_namespaces(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    sentence = "run as root of a user namespace"
    yield Case("pod-01", "users", sentence, "/spec/hostUsers", False, True, kinds=ALL_KINDS)


def _writable_root(scene: AttackScene) -> Iterator[Attack]:
    at = f"{SECURITY}/readOnlyRootFilesystem"
    return withheld(scene, "pod-03", "overwrite its own programs", Allowance.WRITABLE_ROOT, at, False)


def _of_levels(scene: AttackScene) -> Iterator[Attack]:
    """Every breach of the restricted level through a Job, three of them through every other kind that makes pods."""
    place = next((place for place in scene.staffed if place.is_restricted), None)
    if place is None:
        yield skipped("pod-04", "pod-04", _HOLD, "no namespace with a developer enforces the restricted level")
        return
    version = place.environment.cluster.kubernetes
    hosts = "pod-05" if incompatible(version, "probe-hosts") else "pod-04"
    if hosts == "pod-04":
        reason, sentence = f"Pod Security of Kubernetes {version} has the check", _PROBED
        yield skipped("pod-05-pod-probe", "pod-05", sentence, reason)
    kinds = [*(kind for kind in kinds_of(place) if kind != "Pod"), *BY_CONTROLLERS]
    for case in _breaches(hosts, kinds, tuple(f.kind for f in place.frameworks if f.kind in kinds)):
        for kind in case.kinds:
            yield attack_of(scene, place, case, kind)


def _levels(scene: AttackScene) -> Iterator[Attack]:
    return (attack for attack in _of_levels(scene) if attack.rule == "pod-04")


def _probes(scene: AttackScene) -> Iterator[Attack]:
    return (attack for attack in _of_levels(scene) if attack.rule == "pod-05")


def _of_operators(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Submitters of RayJobs, and patches of a TrainJob's runtime, that Pod Security refuses."""
    if "RayJob" in kinds_of(place) and place.is_restricted:
        idle, at = "hold GPUs for a job whose submitter never starts", "/spec/submissionMode"
        for mode in ("K8sJobMode", "SidecarMode"):
            yield through(scene, place, "pod-04", mode.lower(), idle, "RayJob", at, mode, "HTTPMode")
    if TRAIN_JOB in all_kinds(place):
        yield from _runtime_patches(scene, place)


def _breaches(hosts: str, kinds: Sequence[str], of_others: Sequence[str]) -> Iterator[Case]:
    volume = {_VOLUMES: [{"name": "data"}]}
    job = ("Job",)

    def case(name: str, what: str, at: str, bad: object, good: object = ABSENT, **more: object) -> Case:
        return Case("pod-04", name, f"{_HOLD}: {what}", at, bad, good, **{"kinds": job, **more})  # ty: ignore[invalid-argument-type]

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
    yield case("root", "as root", f"{SECURITY}/runAsUser", 0, _SAMPLE_USER)
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


def _runtime_patches(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Patches of a TrainJob's runtime that make pods which Pod Security refuses; the twins keep to its level."""
    sentence, patch = "hold GPUs for pods that Pod Security refuses", "/spec/runtimePatches/0/trainingRuntimeSpec"
    pods = f"{patch}/template/spec/replicatedJobs/0/template/spec/template/spec"
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    node_job = {"name": "node", "template": {"spec": {"template": {"spec": {"volumes": [], "containers": []}}}}}
    runtime = put(
        work(place, TRAIN_JOB),
        "/spec/runtimePatches",
        [
            {
                "manager": "bank.example/developer",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node_job]}}},
            }
        ],
    )
    container = {"name": "node", "securityContext": secure}
    node = {"name": "node", "hostPath": {"path": "/"}}
    for name, field, bad, good in (
        ("volume-of-the-node", "/volumes", [node], []),
        ("privileged", "/containers", [put(container, "/securityContext/privileged", True)], [container]),
        ("capability", "/initContainers", [put(container, "/securityContext/capabilities/add", ["BPF"])], [container]),
        ("keeps-capabilities", "/containers", [put(container, "/securityContext/capabilities/drop", [])], [container]),
        ("root", "/securityContext", {"runAsNonRoot": False}, {"runAsNonRoot": True}),
    ):
        if name in _AT_ANY_LEVEL or place.is_restricted:
            yield through(scene, place, "pod-04", name, sentence, TRAIN_JOB, f"{pods}{field}", bad, good, base=runtime)


RULES: tuple[Rule, ...] = (
    Rule(
        id="pod-01",
        title="a pod runs on Linux and in the node's own user namespace",
        why="for other pods the restricted level drops its checks on root and capabilities",
        fix="drop os and hostUsers",
        guards={
            GuardSubject.PODS: """(!has(variables.spec.os) || variables.spec.os.name == 'linux')
        && (!has(variables.spec.hostUsers) || variables.spec.hostUsers)"""
        },
        attacks=(through_all_kinds(_user_namespaces),),
    ),
    Rule(
        id="pod-02",
        title="a tenant's pod shares nothing of its node: no host namespaces, no hostPath, no privileged container",
        why="root on a node can read every other tenant's memory, tokens and GPUs there",
        fix="drop the field; work that needs the node runs as a daemon set of the platform",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="pod-03",
        title="where the tier requires it, containers write only to volumes",
        why="an intruder cannot replace a program on a file system that is read-only",
        fix="set securityContext.readOnlyRootFilesystem to true, and mount an emptyDir where the program writes",
        severity=Severity.MEDIUM,
        guards={
            GuardSubject.PODS: f"""{may(Allowance.WRITABLE_ROOT)} || variables.containers.all(c, has(c.securityContext)
        && has(c.securityContext.readOnlyRootFilesystem) && c.securityContext.readOnlyRootFilesystem)"""
        },
        attacks=(_writable_root,),
    ),
    Rule(
        id="pod-04",
        title="pods and pod templates comply with the Pod Security level that their namespace enforces",
        why=(
            "Pod Security refuses the pods of a Job and not the Job: the queue would reserve GPUs for work that never "
            "starts"
        ),
        fix="set each field that is named to what its level allows; `tenancy sample` prints a pod that complies",
        partial={Face.PREVIEW: "fields that give a pod access to its node, such as hostNetwork, are found as pod-02"},
        guards={GuardSubject.POD_SECURITY: "size(variables.unfit) == 0"},
        attacks=(_levels, in_queue(_of_operators)),
    ),
    Rule(
        id="pod-05",
        title="before Kubernetes 1.34, probes and lifecycle hooks of a pod ask the pod itself",
        why=(
            "the kubelet sends them from the node's network, past every network policy, to the instance metadata for "
            "example; Pod Security has the check from 1.34 on"
        ),
        fix="drop host from httpGet and tcpSocket of probes and lifecycle hooks",
        guards={GuardSubject.PODS: _own_hosts},
        attacks=(_probes,),
    ),
)
