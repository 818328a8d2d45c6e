"""Kubernetes' Pod Security Standards: what each level allows, as one table for findings and guards.

Read in k8s.io/pod-security-admission v0.36.3, `policy/check_*.go`. `tests/cluster/test_pod_security.py` compares
findings, guards and the API server's own admission.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.kube.pod_templates import PodTemplate

LATEST = 999
"""Minor version for a namespace without a version, or with `latest`."""


class PodSecurityLevel(StrEnum):
    """A level of the Pod Security Standards."""

    PRIVILEGED = "privileged"  # nothing is refused
    BASELINE = "baseline"  # no access to the node, and no added privilege
    RESTRICTED = "restricted"  # no privileges


class FieldOwner(StrEnum):
    """Whether a field is of the pod, of its containers, or of both."""

    POD = "pod"
    CONTAINERS = "containers"
    BOTH = "both"


class Requirement(StrEnum):
    """Whether a field must be present."""

    NO = "no"  # an absent field is allowed
    YES = "yes"  # every container has the field
    INHERITED = "inherited"  # every container has the field, or its pod has it


@dataclass(frozen=True, slots=True)
class Check:
    """Allowed values of one field of a pod or of its containers."""

    level: PodSecurityLevel
    owner: FieldOwner
    field: str
    """Path in the pod's spec or in a container; `[]` steps through a list."""
    allowed: tuple[Any, ...] = ()
    """Values; the first one means the same as an absent field."""
    refused: tuple[Any, ...] = ()
    """Instead of `allowed`: every other value is allowed."""
    needed: Requirement = Requirement.NO
    must_contain: str = ""
    """Instead of `allowed`: a value that the list must contain."""
    one_of: tuple[str, ...] = ()
    """Instead of `allowed`: an entry has one of these fields, or only its name."""
    since: int = 0
    """Kubernetes 1.x from which on the check is made."""
    until: int = LATEST + 1
    """Kubernetes 1.x from which on the check is not made."""
    windows: bool = True
    """Whether pods with os: windows are checked."""
    user_namespace: bool = True
    """Whether pods in a user namespace of their own are checked."""
    gives_root_on_node: bool = False
    """Whether a pod that breaks it can become root on its node."""
    group: str = ""
    """Name of a group of checks of several fields."""

    @property
    def requirement(self) -> str:
        """The requirement on the field, in words."""
        field = self.group or self.field
        field = f"{field} of a container" if self.owner is FieldOwner.CONTAINERS else field
        if self.must_contain:
            return f"{field} contains {self.must_contain}"
        if self.one_of:
            return f"{field} are of type {', '.join(self.one_of)}"
        if self.refused:
            return f"{field} is not {' or '.join(map(_literal, self.refused))}"
        alternatives = [_literal(value) for value in self.allowed if value != ""]
        if not alternatives:
            return f"{field} is absent"
        absent = "" if self.needed is not Requirement.NO else "absent or "
        return f"{field} is {absent}{_either(alternatives)}"


def _either(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
"""Capabilities that a container may add at the baseline level."""
VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"),
    *("projected", "secret"),
)
"""Types of volumes that the restricted level allows."""
_SYSCTLS = (
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
    *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"),
)
_SYSCTLS_27 = (*_SYSCTLS, "net.ipv4.ip_local_reserved_ports")
_SYSCTLS_29 = (
    *_SYSCTLS_27,
    *(f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")),
)
_SYSCTLS_32 = (*_SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_SELINUX = ("", "container_t", "container_init_t", "container_kvm_t")
_PROFILES = ("RuntimeDefault", "Localhost")
_CONTEXT = "securityContext"
_HANDLERS = (
    *("livenessProbe", "readinessProbe", "startupProbe"),
    *("lifecycle.postStart", "lifecycle.preStop"),
)
PROBE_HOST_FIELDS = tuple(f"{handler}.{way}.host" for handler in _HANDLERS for way in ("httpGet", "tcpSocket"))
"""Fields by which the kubelet sends requests to another address than the pod's own."""


def _baseline(owner: FieldOwner, field: str, *allowed: Any, **more: Any) -> Check:
    return Check(PodSecurityLevel.BASELINE, owner, field, allowed, **more)


def _restricted(owner: FieldOwner, field: str, *allowed: Any, **more: Any) -> Check:
    return Check(PodSecurityLevel.RESTRICTED, owner, field, allowed, **more)


CHECKS: tuple[Check, ...] = (
    _baseline(FieldOwner.POD, "hostNetwork", False, gives_root_on_node=True),
    _baseline(FieldOwner.POD, "hostPID", False, gives_root_on_node=True),
    _baseline(FieldOwner.POD, "hostIPC", False, gives_root_on_node=True),
    _baseline(FieldOwner.POD, "volumes[].hostPath", gives_root_on_node=True),
    _baseline(FieldOwner.CONTAINERS, f"{_CONTEXT}.privileged", False, gives_root_on_node=True),
    _baseline(FieldOwner.CONTAINERS, f"{_CONTEXT}.capabilities.add[]", *CAPABILITIES, gives_root_on_node=True),
    _baseline(FieldOwner.CONTAINERS, "ports[].hostPort", 0),
    *(
        _baseline(FieldOwner.CONTAINERS, field, "", since=34, group="host of probes and lifecycle hooks")
        for field in PROBE_HOST_FIELDS
    ),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.appArmorProfile.type", *_PROFILES),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.seLinuxOptions.type", *_SELINUX, until=31),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.seLinuxOptions.type", *_SELINUX, "container_engine_t", since=31),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.seLinuxOptions.user", ""),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.seLinuxOptions.role", ""),
    _baseline(FieldOwner.CONTAINERS, f"{_CONTEXT}.procMount", "Default", until=35),
    _baseline(FieldOwner.CONTAINERS, f"{_CONTEXT}.procMount", "Default", since=35, user_namespace=False),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.seccompProfile.type", *_PROFILES),
    _baseline(FieldOwner.POD, f"{_CONTEXT}.sysctls[].name", *_SYSCTLS, until=27),
    _baseline(FieldOwner.POD, f"{_CONTEXT}.sysctls[].name", *_SYSCTLS_27, since=27, until=29),
    _baseline(FieldOwner.POD, f"{_CONTEXT}.sysctls[].name", *_SYSCTLS_29, since=29, until=32),
    _baseline(FieldOwner.POD, f"{_CONTEXT}.sysctls[].name", *_SYSCTLS_32, since=32),
    _baseline(FieldOwner.BOTH, f"{_CONTEXT}.windowsOptions.hostProcess", False),
    _restricted(FieldOwner.POD, "volumes[]", one_of=VOLUMES),
    _restricted(
        FieldOwner.CONTAINERS, f"{_CONTEXT}.allowPrivilegeEscalation", False, needed=Requirement.YES, windows=False
    ),
    _restricted(FieldOwner.CONTAINERS, f"{_CONTEXT}.capabilities.drop", must_contain="ALL", windows=False),
    _restricted(FieldOwner.CONTAINERS, f"{_CONTEXT}.capabilities.add[]", "NET_BIND_SERVICE", windows=False),
    _restricted(FieldOwner.CONTAINERS, f"{_CONTEXT}.procMount", "Default", since=35),
    _restricted(FieldOwner.BOTH, f"{_CONTEXT}.runAsNonRoot", True, needed=Requirement.INHERITED, until=35),
    _restricted(
        FieldOwner.BOTH, f"{_CONTEXT}.runAsNonRoot", True, needed=Requirement.INHERITED, since=35, user_namespace=False
    ),
    _restricted(FieldOwner.BOTH, f"{_CONTEXT}.runAsUser", refused=(0,), until=35),
    _restricted(FieldOwner.BOTH, f"{_CONTEXT}.runAsUser", refused=(0,), since=35, user_namespace=False),
    _restricted(
        FieldOwner.BOTH, f"{_CONTEXT}.seccompProfile.type", *_PROFILES, needed=Requirement.INHERITED, windows=False
    ),
)
"""Every check that Kubernetes 1.25 or newer makes on a field. From 1.25 on some do not apply to Windows pods."""
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Prefix of annotations that choose a container's profile; seccomp annotations have no effect since 1.27."""
APPARMOR_PROFILES = ("", "runtime/default")
APPARMOR_OF_NODE = "localhost/"


def level_of(space: Any) -> PodSecurityLevel:
    """The level that a namespace enforces; without a readable label, the strictest level."""
    level = get_path(space, "metadata", "labels", vocabulary.PSA_ENFORCE)
    return PodSecurityLevel(level) if level in list(PodSecurityLevel) else PodSecurityLevel.RESTRICTED


def minor_of(space: Any) -> int:
    """The minor version of Kubernetes whose standard a namespace enforces."""
    version = str(get_path(space, "metadata", "labels", vocabulary.PSA_VERSION) or "")
    version_match = re.fullmatch(r"v1\.([0-9]{1,3})", version)
    return int(version_match[1]) if version_match else LATEST


def overridden(check: Check) -> bool:
    """Whether the restricted level replaces a check of the baseline level."""
    return check.level is PodSecurityLevel.BASELINE and any(
        (stricter.field, stricter.owner) == (check.field, check.owner)
        and stricter.since <= check.since
        and check.until <= stricter.until
        for stricter in CHECKS
        if stricter.level is PodSecurityLevel.RESTRICTED
    )


def checked(check: Check, level: PodSecurityLevel) -> bool:
    """Whether a level makes a check, in some version."""
    if level is PodSecurityLevel.BASELINE:
        return check.level is PodSecurityLevel.BASELINE
    return level is PodSecurityLevel.RESTRICTED and not overridden(check)


@cache
def checks_of(level: PodSecurityLevel, minor: int) -> tuple[Check, ...]:
    """Checks of a level in a version; the restricted level includes those of the baseline level."""
    return tuple(check for check in CHECKS if checked(check, level) and check.since <= minor < check.until)


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A field that a level refuses."""

    path: str
    given: str
    gives_root_on_node: bool = field(default=False, compare=False)
    """Whether a pod with it can become root on its node."""
    requirement: str = field(default="", compare=False)
    """The requirement of the level, in words."""

    def __str__(self) -> str:
        return f"{self.path}: {self.given}"


_DOT = re.compile(r"\.")


def breaches(
    template: PodTemplate, level: PodSecurityLevel = PodSecurityLevel.RESTRICTED, minor: int = LATEST
) -> Iterator[RefusedField]:
    """Fields of a pod that Pod Security refuses."""
    windows = get_path(template.spec, "os", "name") == "windows"
    has_user_namespace = get_path(template.spec, "hostUsers") is False
    known_fields: set[tuple[str, str]] = set()
    parent_paths: set[str] = set()
    for check in checks_of(level, minor):
        if (windows and not check.windows) or (has_user_namespace and not check.user_namespace):
            continue
        for path, refused_value in _broken(template, check):
            # A hostPath volume breaks a check of its type and one of its source.
            if (path, refused_value) not in known_fields and path not in parent_paths:
                known_fields.add((path, refused_value))
                parent_paths.update(path[: dot.start()] for dot in _DOT.finditer(path))
                yield RefusedField(path, refused_value, check.gives_root_on_node, check.requirement)
    annotations = get_path(template.metadata, "annotations")
    pairs = annotations.items() if isinstance(annotations, Mapping) and level is not PodSecurityLevel.PRIVILEGED else ()
    for key, value in pairs:
        if str(key).startswith(APPARMOR) and not _profile(str(value)):
            where = template.path.removesuffix("spec") + "metadata.annotations"
            yield RefusedField(f"{where}[{key}]", str(value))


def fields_that_give_root_on_node(template: PodTemplate) -> list[RefusedField]:
    """Fields by which a pod can become root on its node, at any level."""
    return [
        refused_field
        for refused_field in breaches(template, PodSecurityLevel.BASELINE)
        if refused_field.gives_root_on_node
    ]


def _profile(value: str) -> bool:
    return value in {*APPARMOR_PROFILES, UNKNOWN} or value.startswith(APPARMOR_OF_NODE)


def _broken(template: PodTemplate, check: Check) -> Iterator[tuple[str, str]]:
    steps = tuple(check.field.split("."))
    of_pod: list[tuple[str, Any]] = []
    if check.owner is not FieldOwner.CONTAINERS:
        of_pod = list(_values(template.spec, steps, template.path))
        yield from _refused(of_pod, check)
    for path, container in template.containers if check.owner is not FieldOwner.POD else ():
        values = list(_values(container, steps, path))
        yield from _refused(values, check)
        if check.must_contain:
            container_value = get_path(container, *steps)
            dropped = as_list(container_value)
            must_drop = template.whole or container_value is not None
            if must_drop and not {check.must_contain, UNKNOWN} & {str(capability) for capability in dropped}:
                yield f"{path}.{check.field}", f"without {check.must_contain}" if dropped else "absent"
        elif template.whole and check.needed is not Requirement.NO and not values:
            inherited = check.needed is Requirement.INHERITED and any(_allows(check, value) for _, value in of_pod)
            if not inherited:
                yield f"{path}.{check.field}", "absent"


def _refused(values: list[tuple[str, Any]], check: Check) -> Iterator[tuple[str, str]]:
    for path, value in values:
        if not _allows(check, value):
            yield path, _value_text(value)


def _allows(check: Check, value: Any) -> bool:
    if value == UNKNOWN or check.must_contain:
        return True
    if check.one_of:
        kinds = {key for key in value if key != "name"} if isinstance(value, Mapping) else set()
        return not kinds or bool(kinds & set(check.one_of))
    if check.refused:
        return not any(_same(value, refused_value) for refused_value in check.refused)
    return any(_same(value, allowed_value) for allowed_value in check.allowed)


def _same(value: Any, listed_value: Any) -> bool:
    """Equality of type and value: YAML's 0 is not false, and its 1 is not true."""
    return value == listed_value and isinstance(value, bool) == isinstance(listed_value, bool)


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        kinds = [str(key) for key in value if key != "name"]
        return str(value["path"]) if isinstance(value.get("path"), str) else ", ".join(kinds)
    return _literal(value)


def _values(value: Any, steps: tuple[str, ...], path: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, one for each entry of its lists; none if it is absent."""
    if not steps:
        yield path, value
        return
    step, *deeper = steps
    name = step.removesuffix("[]")
    inner = get_path(value, name)
    if inner is None:
        return
    if step.endswith("[]"):
        for number, entry in enumerate(as_list(inner)):
            yield from _values(entry, tuple(deeper), f"{path}.{name}[{number}]")
    else:
        yield from _values(inner, tuple(deeper), f"{path}.{name}")
