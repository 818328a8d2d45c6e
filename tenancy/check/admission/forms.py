"""The form of objects: what the API server refuses before any control is asked, because it cannot be read or kept.

Sources: `k8s.io/kubernetes` v1.36.3 `pkg/apis/{core,apps,batch,networking,policy,autoscaling}/validation`,
`k8s.io/apimachinery` v0.36.3 `pkg/api/validation`. Kinds that tenants write; pods and their templates are in
`validation`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from ipaddress import ip_network
from typing import Any

from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import API_VALIDATION, NOT_FOUND
from tenancy.kube.objects import Object, get_path
from tenancy.kube.pod_templates import PodTemplate, templates_of
from tenancy.kube.quantities import parse
from tenancy.kube.selectors import matches

Problem = tuple[str, str]
"""A field and what is wrong with it."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ALPHANUMERIC = "must consist of alphanumeric characters"
_TYPES: Mapping[str, type] = {
    **dict.fromkeys("activeDeadlineSeconds terminationGracePeriodSeconds priority".split(), int),
    **dict.fromkeys(
        "automountServiceAccountToken enableServiceLinks hostIPC hostNetwork hostPID hostUsers "
        "shareProcessNamespace".split(),
        bool,
    ),
    **dict.fromkeys(
        "dnsPolicy hostname nodeName priorityClassName restartPolicy runtimeClassName schedulerName "
        "serviceAccountName subdomain".split(),
        str,
    ),
    **dict.fromkeys("containers initContainers imagePullSecrets tolerations volumes".split(), list),
    **dict.fromkeys("affinity nodeSelector securityContext".split(), dict),
}
"""Fields of a pod, and the type of each."""
_OF_CONTAINERS: Mapping[str, type] = {
    **dict.fromkeys("image imagePullPolicy name workingDir".split(), str),
    **dict.fromkeys("args command env ports volumeMounts".split(), list),
    **dict.fromkeys("stdin tty".split(), bool),
    **dict.fromkeys("resources securityContext".split(), dict),
}
_WORDS: Mapping[type, str] = {int: "int64", bool: "bool", str: "string", list: "array", dict: "object"}
_SELECTING = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_BATCH = ("CronJob", "Job")


def undecodable(request: AdmissionRequest) -> Denial | None:
    """Why an object cannot be decoded, or is sent to another place than it names; None if it can."""
    item = request.object
    if item is None or request.operation is not Operation.CREATE or request.subresource:
        return None
    if request.group == "" and request.version != "v1":
        return Denial(NOT_FOUND, None, "the server could not find the requested resource")
    metadata = item["metadata"]
    if request.namespace and metadata.get("namespace") not in (None, "", request.namespace):
        reason = "the namespace of the provided object does not match the namespace sent on the request"
        return Denial(API_VALIDATION, None, reason)
    kind = item["kind"]
    for path, reason in _mistyped(item):
        message = f'{kind} in version "{request.version}" cannot be handled as a {kind}: {reason}'
        return Denial(API_VALIDATION, None, message, path)
    return None


def _mistyped(item: Object) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        for value in (get_path(item, "metadata", field) or {}).values():
            if not isinstance(value, str):
                yield f"metadata.{field}", f"json: cannot unmarshal {_word(value)} into a string"
    for template in templates_of(item):
        yield from _of_types(template.spec, _TYPES, template.path)
        for path, container in template.containers:
            yield from _of_types(container, _OF_CONTAINERS, path)
            for side in ("requests", "limits"):
                yield from _quantities(get_path(container, "resources", side), f"{path}.resources.{side}")
    if item["kind"] == "PersistentVolumeClaim":
        yield from _quantities(get_path(item, "spec", "resources", "requests"), "spec.resources.requests")
    if item["kind"] in ("ConfigMap", "Secret"):
        for field in ("data", "stringData", "binaryData"):
            for key, value in (item.get(field) or {}).items():
                if not isinstance(value, str):
                    yield field, f"json: cannot unmarshal {_word(value)} into Go struct field of type string"
                elif (item["kind"], field) in {("Secret", "data"), ("ConfigMap", "binaryData")} and _no_base64(value):
                    yield f"{field}[{key}]", "illegal base64 data"


def _of_types(entries: Mapping[str, Any], types: Mapping[str, type], path: str) -> Iterator[Problem]:
    for field, field_type in types.items():
        value = entries.get(field)
        # A truth value is a number to Python, and not to Kubernetes.
        right = isinstance(value, field_type) and not (field_type is int and isinstance(value, bool))
        if value is not None and not right:
            yield f"{path}.{field}", f"json: cannot unmarshal {_word(value)} into a field of type {_WORDS[field_type]}"


def _quantities(amounts: Any, path: str) -> Iterator[Problem]:
    for name, amount in (amounts or {}).items():
        try:
            parse(amount)
        except ValueError:
            yield f"{path}[{name}]", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*)$'"


def _word(value: Any) -> str:
    return {bool: "bool", int: "number", float: "number", str: "string"}.get(type(value), "object")


def _no_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return True
    return False


def form_problems(item: Object) -> Iterator[Problem]:
    """Fields of a new object that the API server would not keep."""
    yield from _metadata(item)
    kind, spec = str(item["kind"]), item.get("spec") or {}
    if kind in _SELECTING:
        yield from _selector(kind, spec)
    if kind in _BATCH or kind in _SELECTING:
        yield from _of_templates(kind, item)
    for template in templates_of(item):
        yield from _pod(template)
    if check := _CHECKS.get(kind):
        yield from check(item)


def _pod(template: PodTemplate) -> Iterator[Problem]:
    """Names within a pod: of its containers and volumes, and of what they mount."""
    spec, policy = template.spec, template.spec.get("restartPolicy") or "Always"
    if policy not in ("Always", "OnFailure", "Never"):
        yield f"{template.path}.restartPolicy", f'Unsupported value: "{policy}"'
    volumes = [str(volume.get("name")) for volume in spec.get("volumes") or ()]
    for number, name in enumerate(volumes):
        if name in volumes[:number]:
            yield f"{template.path}.volumes[{number}].name", f'Duplicate value: "{name}"'
    names: set[str] = set()
    for path, container in template.containers:
        name = str(container.get("name") or "")
        if name and (len(name) > 63 or not _LABEL.fullmatch(name)):
            yield f"{path}.name", f'Invalid value: "{name}": a lowercase RFC 1123 label {_ALPHANUMERIC}'
        if name in names:
            yield f"{path}.name", f'Duplicate value: "{name}"'
        names.add(name)
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                yield f"{path}.volumeMounts[{number}].name", f'Not found: "{mount.get("name")}"'


def _metadata(item: Object) -> Iterator[Problem]:
    metadata, kind = item["metadata"], item["kind"]
    name = metadata.get("name") or ""
    if not name and not metadata.get("generateName") and kind not in _ANSWERED:
        yield "metadata.name", "Required value: name or generateName is required"
    form, max_length = (_SERVICE, 63) if kind == "Service" else (_SUBDOMAIN, 52 if kind == "CronJob" else 253)
    if name and kind not in _ANY_NAME and (len(name) > max_length or not form.fullmatch(name)):
        yield "metadata.name", f'Invalid value: "{name}"'
    for key, value in (metadata.get("labels") or {}).items():
        prefix, slash, name_part = str(key).rpartition("/")
        right = _QUALIFIED.fullmatch(name_part) and len(name_part) <= 63 and (not slash or _SUBDOMAIN.fullmatch(prefix))
        if not right:
            yield "metadata.labels", f'Invalid value: "{key}": name part {_ALPHANUMERIC}'
        if value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
            yield "metadata.labels", f'Invalid value: "{value}": a valid label {_ALPHANUMERIC}'


_ANSWERED = frozenset(
    "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectReview SelfSubjectRulesReview SubjectAccessReview "
    "TokenRequest TokenReview".split()
)
"""Kinds that the API server answers and does not keep."""
_ANY_NAME = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})


def _selector(kind: str, spec: Mapping[str, Any]) -> Iterator[Problem]:
    selector, labels = spec.get("selector"), get_path(spec, "template", "metadata", "labels") or {}
    if selector is None:
        yield "spec.selector", "Required value"
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield "spec.selector", f"Invalid value: {{}}: empty selector is invalid for {kind.lower()}"
    elif not matches(selector, labels):
        yield "spec.template.metadata.labels", "Invalid value: `selector` does not match template `labels`"


def _of_templates(kind: str, item: Object) -> Iterator[Problem]:
    """Problems with the demands of a kind of work on its pods."""
    templates = templates_of(item)
    if not templates or not any(template.spec for template in templates):
        yield "spec.template.spec.containers", "Required value"
    allowed = ("Never", "OnFailure") if kind in _BATCH else ("Always",)
    for template in templates:
        policy = template.spec.get("restartPolicy") or "Always"
        if policy not in allowed:
            values = ", ".join(f'"{value}"' for value in allowed)
            yield f"{template.path}.restartPolicy", f'Unsupported value: "{policy}": supported values: {values}'
        if kind in _SELECTING and template.spec.get("activeDeadlineSeconds") is not None:
            owner = "ReplicaSet" if kind == "Deployment" else kind
            yield (
                f"{template.path}.activeDeadlineSeconds",
                f"Forbidden: activeDeadlineSeconds in {owner} is not Supported",
            )


def _job(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if isinstance(spec.get(field), int) and spec[field] < 0:
            yield f"{path}.{field}", f"Invalid value: {spec[field]}: must be greater than or equal to 0"
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield f"{path}.completions", "Required value: when completion mode is Indexed"


def _cron_job(item: Object) -> Iterator[Problem]:
    spec = item.get("spec") or {}
    schedule, zone = str(spec.get("schedule") or ""), spec.get("timeZone")
    fields = schedule.split()
    if not schedule:
        yield "spec.schedule", "Required value"
    elif not schedule.startswith("@") and len(fields) != 5:
        yield "spec.schedule", f'Invalid value: "{schedule}": expected exactly 5 fields, found {len(fields)}: {fields}'
    if zone is not None and zone not in _zones():
        yield "spec.timeZone", f'Invalid value: "{zone}": unknown time zone {zone}'
    yield from _job(get_path(spec, "jobTemplate", "spec") or {}, "spec.jobTemplate.spec")


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _service(item: Object) -> Iterator[Problem]:
    spec = item.get("spec") or {}
    ports, kind = spec.get("ports") or (), spec.get("type", "ClusterIP")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", "Required value"
    if kind == "ExternalName" and not spec.get("externalName"):
        yield "spec.externalName", "Required value"
    for number, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield f"spec.ports[{number}].name", "Required value"
        if not 1 <= (port.get("port") or 0) <= 65535:
            value = port.get("port")
            yield f"spec.ports[{number}].port", f"Invalid value: {value}: must be between 1 and 65535, inclusive"


def _claim(item: Object) -> Iterator[Problem]:
    if "storage" not in (get_path(item, "spec", "resources", "requests") or {}):
        yield "spec.resources[storage]", "Required value"
    if not get_path(item, "spec", "accessModes"):
        yield "spec.accessModes", "Required value: at least 1 access mode is required"


def _keys(item: Object) -> Iterator[Problem]:
    for field in ("data", "stringData", "binaryData"):
        for key in item.get(field) or {}:
            if not _KEY.fullmatch(key) or len(key) > 253:
                yield f"{field}[{key}]", f'Invalid value: "{key}": a valid config key {_ALPHANUMERIC}'


_REQUIRED_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret(item: Object) -> Iterator[Problem]:
    yield from _keys(item)
    kind, data = item.get("type"), {**(item.get("data") or {}), **(item.get("stringData") or {})}
    for key in _REQUIRED_KEYS.get(str(kind), ()):
        if key not in data:
            yield f"data[{key}]", "Required value"
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield "data[username]", "Required value"
    account = get_path(item, "metadata", "annotations", "kubernetes.io/service-account.name")
    if kind == "kubernetes.io/service-account-token" and not account:
        yield "metadata.annotations[kubernetes.io/service-account.name]", "Required value"
    text = (item.get("stringData") or {}).get(".dockerconfigjson")
    if kind == "kubernetes.io/dockerconfigjson" and text is not None and not _is_json(text):
        yield "data[.dockerconfigjson]", 'Invalid value: "<secret contents redacted>"'


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _network_policy(item: Object) -> Iterator[Problem]:
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for number, rule in enumerate(get_path(item, "spec", side) or ()):
            for index, peer in enumerate((rule or {}).get(peers) or ()):
                block = peer.get("ipBlock")
                if block and not _is_range(block.get("cidr")):
                    path = f"spec.{side}[{number}].{peers}[{index}].ipBlock.cidr"
                    yield path, f'Invalid value: "{block.get("cidr")}": must be a valid CIDR value'


def _is_range(text: Any) -> bool:
    try:
        ip_network(str(text), strict=False)
    except ValueError:
        return False
    return "/" in str(text)


def _budget(item: Object) -> Iterator[Problem]:
    spec = item.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield "spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"


def _autoscaler(item: Object) -> Iterator[Problem]:
    spec = item.get("spec") or {}
    least, max_replicas = spec.get("minReplicas", 1), spec.get("maxReplicas") or 0
    if max_replicas < 1:
        yield "spec.maxReplicas", "Required value: must be set and greater than 0"
    if max_replicas < least:
        yield "spec.maxReplicas", f"Invalid value: {max_replicas}: must be greater than or equal to `minReplicas`"


_CHECKS: Mapping[str, Callable[[Object], Iterator[Problem]]] = {
    "ConfigMap": _keys,
    "CronJob": _cron_job,
    "HorizontalPodAutoscaler": _autoscaler,
    "Job": lambda item: _job(item.get("spec") or {}, "spec"),
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": _claim,
    "PodDisruptionBudget": _budget,
    "Secret": _secret,
    "Service": _service,
}
