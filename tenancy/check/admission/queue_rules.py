"""Refusals of Kueue's validating webhooks for new and changed work in a tenant's namespace.

Source: `sigs.k8s.io/kueue` v0.19.2 `pkg/controller/jobframework/validation.go`, `tas_validation.go` and
`pkg/controller/jobs`. Checks that compare with running work are left out: there
is none offline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import KUEUE
from tenancy.kube.objects import Object, get_path
from tenancy.kube.pod_templates import templates_of

DOMAIN = "kueue.x-k8s.io/"
_HOOKS: Mapping[tuple[str, str], str] = {
    ("", "pods"): "vpod",
    ("apps", "deployments"): "vdeployment",
    ("apps", "statefulsets"): "vstatefulset",
    ("batch", "jobs"): "vjob",
    **{(kind.group, kind.resource): f"v{kind.kind.lower()}" for kind in FRAMEWORKS.values()},
}
"""Group and resource -> name of the webhook."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = frozenset("1 t T TRUE true True 0 f F FALSE false False".split())
_TOPOLOGY_ANNOTATIONS = tuple(
    f"{DOMAIN}podset-{strength}-topology" for strength in ("required", "preferred", "unconstrained")
)
_SLICE, _SLICE_SIZE = f"{DOMAIN}podset-slice-required-topology", f"{DOMAIN}podset-slice-size"
_GROUP, _GROUP_SIZE = f"{DOMAIN}pod-group-name", f"{DOMAIN}pod-group-total-count"
_MIN_PARALLELISM, _EQUAL_COMPLETIONS = f"{DOMAIN}job-min-parallelism", f"{DOMAIN}job-completions-equal-parallelism"
_MAX_EXECUTION_SECONDS = f"{DOMAIN}max-exec-time-seconds"


def webhook_denials(request: AdmissionRequest, cluster: ClusterObjects) -> Iterator[Denial]:
    """The refusals of the webhook for the request's kind, in one denial."""
    item, hook = request.object, _HOOKS.get((request.group, request.resource))
    writes = request.operation in (Operation.CREATE, Operation.UPDATE) and not request.subresource
    if item is None or hook is None or not writes or not request.namespace:
        return
    namespace_labels = get_path(cluster.namespace(request.namespace), "metadata", "labels") or {}
    if vocabulary.TENANT not in namespace_labels or not cluster.all("kueue.x-k8s.io", "ClusterQueue"):
        return
    messages = [*_errors(item, hook)]
    if messages:
        message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        yield Denial(KUEUE, None, f'admission webhook "{hook}.kb.io" denied the request: {message}')


def _errors(item: Object, hook: str) -> Iterator[str]:
    labels, annotations = (get_path(item, "metadata", field) or {} for field in ("labels", "annotations"))
    yield from _subdomain("labels", QUEUE_NAME, labels)
    if hook in ("vdeployment", "vstatefulset"):
        return
    if (longest := labels.get(_MAX_EXECUTION_SECONDS)) is not None:
        if not _NUMBER.fullmatch(longest):
            yield f"metadata.labels[{_MAX_EXECUTION_SECONDS}]: Invalid value: {_quoted(longest)}: {_no_number(longest)}"
        elif int(longest) <= 0:
            yield f"metadata.labels[{_MAX_EXECUTION_SECONDS}]: Invalid value: {int(longest)}: should be greater than 0"
    if hook == "vpod":
        yield from _pod(labels, annotations)
        yield from _topology("metadata", annotations)
        return
    if hook == "vjob":
        yield from _partial_admission_errors(item, annotations)
    for template in templates_of(item):
        path = f"{template.path.removesuffix('spec')}metadata"
        yield from _topology(path, get_path(template.metadata, "annotations") or {})


def _pod(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    if labels.get(f"{DOMAIN}managed", "true") != "true":
        yield f"metadata.labels[{DOMAIN}managed]: Forbidden: managed label value can only be 'true'"
    group_name = annotations.get(_GROUP) or labels.get(_GROUP) or ""
    size = annotations.get(_GROUP_SIZE)
    where = f"metadata.{'annotations' if annotations.get(_GROUP) else 'labels'}[{_GROUP}]"
    kind = "annotation" if annotations.get(_GROUP) else "label"
    both = f"both the '{_GROUP_SIZE}' annotation and the '{_GROUP}' {kind} should be set"
    if not group_name:
        if size is not None:
            yield f"{where}: Required value: {both}"
        return
    yield from _subdomain("annotations" if annotations.get(_GROUP) else "labels", _GROUP, {_GROUP: group_name})
    if size is None:
        yield f"metadata.annotations[{_GROUP_SIZE}]: Required value: {both}"
    elif not _NUMBER.fullmatch(size):
        yield f"metadata.annotations[{_GROUP_SIZE}]: Invalid value: {_quoted(size)}: {_no_number(size)}"
    elif int(size) < 1:
        reason = f"incorrect annotation value '{_GROUP_SIZE}={size}': group total count should be greater than zero"
        yield f"metadata.annotations[{_GROUP_SIZE}]: Invalid value: {_quoted(size)}: {reason}"


def _partial_admission_errors(item: Object, annotations: Mapping[str, str]) -> Iterator[str]:
    """A Job that may start with fewer pods, or whose completions follow them."""
    spec = item["spec"]
    parallelism = spec.get("parallelism", 1)
    completions = spec.get("completions")
    pods = min(parallelism, completions) if completions is not None else parallelism
    if (least := annotations.get(_MIN_PARALLELISM)) is not None:
        if not _NUMBER.fullmatch(least):
            yield f"metadata.annotations[{_MIN_PARALLELISM}]: Invalid value: {_quoted(least)}: {_no_number(least)}"
        elif not 0 < int(least) < pods:
            reason = f"should be between 0 and {pods - 1}"
            yield f"metadata.annotations[{_MIN_PARALLELISM}]: Invalid value: {int(least)}: {reason}"
    if (equal := annotations.get(_EQUAL_COMPLETIONS)) is not None:
        if equal not in _BOOLEANS:
            reason = f"strconv.ParseBool: parsing {_quoted(equal)}: invalid syntax"
            yield f"metadata.annotations[{_EQUAL_COMPLETIONS}]: Invalid value: {_quoted(equal)}: {reason}"
        elif equal in {"1", "t", "T", "TRUE", "true", "True"}:
            if spec.get("completionMode", "NonIndexed") == "NonIndexed":
                reason = "should not be enabled for NonIndexed jobs"
                yield f"metadata.annotations[{_EQUAL_COMPLETIONS}]: Invalid value: {_quoted(equal)}: {reason}"
            if parallelism != (1 if completions is None else completions):
                reason = f"should be equal to parallelism when {_EQUAL_COMPLETIONS} annotation is true"
                yield f"spec.completions: Invalid value: {completions or 'null'}: {reason}"


def _topology(path: str, annotations: Mapping[str, str]) -> Iterator[str]:
    """Annotations by which pods ask for nearness."""
    where = f"{path}.annotations"
    if sum(name in annotations for name in _TOPOLOGY_ANNOTATIONS) > 1:
        names = ", ".join(map(_quoted, _TOPOLOGY_ANNOTATIONS))
        yield f"{where}: Invalid value: must not contain more than one topology annotation: [{names}]"
    for name in (*_TOPOLOGY_ANNOTATIONS[:2], _SLICE):
        if name in annotations and not _is_label(annotations[name]):
            reason = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            yield f"{where}[{name}]: Invalid value: {_quoted(annotations[name])}: {reason}"
    free = annotations.get(_TOPOLOGY_ANNOTATIONS[2])
    if free is not None and free not in _BOOLEANS:
        yield f"{where}[{_TOPOLOGY_ANNOTATIONS[2]}]: Invalid value: {_quoted(free)}: must be a boolean value"
    size = annotations.get(_SLICE_SIZE)
    if size is not None and not _NUMBER.fullmatch(size):
        yield f"{where}[{_SLICE_SIZE}]: Invalid value: {_quoted(size)}: must be a numeric value"
    elif size is not None and int(size) < 1:
        yield f"{where}[{_SLICE_SIZE}]: Invalid value: {_quoted(size)}: must be greater than or equal to 1"
    if _SLICE in annotations and size is None:
        yield f"{where}[{_SLICE_SIZE}]: Required value: must be set when '{_SLICE}' is specified"
    if _SLICE not in annotations and size is not None:
        yield f"{where}[{_SLICE_SIZE}]: Forbidden: may not be set when '{_SLICE}' is not specified"


def _subdomain(field: str, key: str, entries: Mapping[str, str]) -> Iterator[str]:
    if (value := entries.get(key)) is not None and (len(value) > 253 or not _SUBDOMAIN.fullmatch(value)):
        reason = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        yield f"metadata.{field}[{key}]: Invalid value: {_quoted(value)}: {reason}"


def _is_label(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    match = re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name)
    return bool(match) and (not slash or bool(_SUBDOMAIN.fullmatch(prefix)))


def _no_number(text: str) -> str:
    return f"strconv.Atoi: parsing {_quoted(text)}: invalid syntax"


def _quoted(text: str) -> str:
    return f'"{text}"'
