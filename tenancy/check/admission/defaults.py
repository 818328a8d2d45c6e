"""Objects as the API server reads them: without what its types leave out, and with the defaults of their kinds.

Sources: `k8s.io/kubernetes` v1.36.3 `pkg/apis/{core,batch,apps}/v1/defaults.go`, the strategies' `PrepareForCreate`,
and `k8s.io/apimachinery` v0.36.3 `pkg/runtime/converter.go`, which leaves out empty fields as JSON does. Only
defaults that a policy or a control reads are here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from tenancy.kube.objects import Object, as_list, get_path
from tenancy.kube.pod_templates import BUILT_IN

Fields = MutableMapping[str, Any]

MAPS = frozenset(
    "annotations binaryData capacity data hard labels limits matchLabels nodeSelector overhead parameters requests "
    "stringData volumeAttributes".split()
)
"""Fields that map texts of the user: their values may be empty, and without entries they are left out."""
_EMPTY_KEYS = frozenset(
    "ingressClassName loadBalancerClass procMount runtimeClassName storageClassName volumeAttributesClassName".split()
)
"""Texts that may be empty, which is not the same as absent."""
_ZERO_IS_ABSENT = frozenset(
    "hostNetwork hostPID hostIPC stdin stdinOnce tty readOnly publishNotReadyAddresses hostPort unschedulable".split()
)
"""Fields whose false or 0 is the same as absent."""
_GROUPS_WITHOUT_DOMAIN = ("", "apps", "autoscaling", "batch", "policy")
_CUSTOM_RESOURCE_SUFFIX = ".x-k8s.io"


def built_in(group: str) -> bool:
    """Whether an API group is of Kubernetes itself: its objects are decoded into types."""
    return group in _GROUPS_WITHOUT_DOMAIN or (
        group.endswith(".k8s.io") and not group.endswith(_CUSTOM_RESOURCE_SUFFIX)
    )


def decode(item: Object, group: str) -> Object:
    """A copy of an object as the API server has it after decoding: what its types leave out is absent."""
    return _decoded(item) if built_in(group) else dict(item)


def _decoded(value: Mapping[str, Any]) -> Object:
    result: Object = {}
    for key, inner in value.items():
        if inner is None or (key in _ZERO_IS_ABSENT and not inner and not isinstance(inner, str)):
            continue
        if key in MAPS or (key == "selector" and _is_texts(inner)):
            if inner:
                result[key] = (
                    inner if not isinstance(inner, Mapping) else {k: "" if v is None else v for k, v in inner.items()}
                )
        elif isinstance(inner, Mapping):
            result[key] = _decoded(inner)
        elif isinstance(inner, list):
            if inner:
                result[key] = [_decoded(element) if isinstance(element, Mapping) else element for element in inner]
        elif inner != "" or key in _EMPTY_KEYS:
            result[key] = inner
    return result


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(entry, str) for entry in value.values())


def set_defaults(item: Object, group: str) -> Object:
    """The object with the defaults of its kind; the object itself is changed."""
    kind = str(item.get("kind"))
    if not built_in(group):
        return item
    if kind in BUILT_IN:
        _templates(kind, item)
    if (complete := _BY_KIND.get((group, kind))) is not None:
        complete(item)
    return item


def part_at(item: Fields, *path: str) -> Fields:
    """The mapping at a path, made if it is absent."""
    for key in path:
        item = item.setdefault(key, {})
    return item


def _templates(kind: str, item: Object) -> None:
    template = get_path(item, *BUILT_IN[kind]) if BUILT_IN[kind] else item
    if isinstance(template, dict):
        _pod_spec(part_at(template, "spec"))


def _pod_spec(spec: Fields) -> None:
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in as_list(spec.get("volumes")):
        if set(volume) <= {"name"}:
            volume["emptyDir"] = {}
    for container in _containers(spec):
        container.setdefault("resources", {})
        image = str(container.get("image") or "")
        latest = "@" not in image and image.rpartition("/")[2].partition(":")[2] in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in as_list(container.get("ports")):
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork") and "containerPort" in port:
                port.setdefault("hostPort", port["containerPort"])


def _containers(spec: Mapping[str, Any], *lists: str) -> Iterator[Fields]:
    for field in lists or ("containers", "initContainers", "ephemeralContainers"):
        yield from as_list(spec.get(field))


def _pod(item: Object) -> None:
    spec = item["spec"]
    for container in _containers(spec, "containers", "initContainers"):
        requests_from_limits(container["resources"])
    if limits := get_path(spec, "resources", "limits"):
        spec["resources"]["requests"] = {**limits, **(get_path(spec, "resources", "requests") or {})}
    spec.setdefault("enableServiceLinks", True)
    item["status"] = {"phase": "Pending", "qosClass": "Burstable"}


def requests_from_limits(resources: Fields) -> None:
    """A limit without a request is the request too."""
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _labels_of_template(item: Object) -> None:
    labels = get_path(item, "spec", "template", "metadata", "labels")
    if labels and not get_path(item, "metadata", "labels"):
        part_at(item, "metadata")["labels"] = dict(labels)


def _job(item: Object) -> None:
    spec = part_at(item, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    _labels_of_template(item)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    item["status"] = {}


def _cron_job(item: Object) -> None:
    spec = part_at(item, "spec")
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    item["status"] = {}


def _default_replicas(item: Object) -> None:
    spec = part_at(item, "spec")
    spec.setdefault("replicas", 1)
    item["status"] = {}


def _default_rolling_workload(item: Object) -> None:
    _default_replicas(item)
    item["spec"].setdefault("revisionHistoryLimit", 10)
    if item["kind"] == "Deployment":
        item["spec"].setdefault("progressDeadlineSeconds", 600)
        strategy = part_at(item, "spec", "strategy")
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = part_at(strategy, "rollingUpdate")
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
    else:
        item["spec"].setdefault("podManagementPolicy", "OrderedReady")
        item["spec"].setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        retention = part_at(item, "spec", "persistentVolumeClaimRetentionPolicy")
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        for claim in as_list(item["spec"].get("volumeClaimTemplates")):
            _claim(claim)


def _daemon_set(item: Object) -> None:
    spec = part_at(item, "spec")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = part_at(spec, "updateStrategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = part_at(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    item["status"] = {}


def _default_replication_controller(item: Object) -> None:
    _default_replicas(item)
    _labels_of_template(item)
    labels = get_path(item, "spec", "template", "metadata", "labels")
    if labels:
        item["spec"].setdefault("selector", dict(labels))


def _claim(item: Object) -> None:
    part_at(item, "spec").setdefault("volumeMode", "Filesystem")
    item["spec"].setdefault("resources", {})
    item["status"] = {"phase": "Pending"}


def _service(item: Object) -> None:
    spec = part_at(item, "spec")
    spec.setdefault("sessionAffinity", "None")
    kind = spec.setdefault("type", "ClusterIP")
    for port in as_list(spec.get("ports")):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if kind in ("LoadBalancer", "NodePort"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    item["status"] = {"loadBalancer": {}}


def _secret(item: Object) -> None:
    item.setdefault("type", "Opaque")
    if texts := item.pop("stringData", None):
        item["data"] = {**(item.get("data") or {}), **{key: _encoded(text) for key, text in texts.items()}}


def _encoded(text: Any) -> str:
    return b64encode(str(text).encode()).decode()


def _namespace(item: Object) -> None:
    if name := item["metadata"].get("name"):
        part_at(item, "metadata", "labels")["kubernetes.io/metadata.name"] = name
    part_at(item, "spec").setdefault("finalizers", ["kubernetes"])
    item["status"] = {"phase": "Active"}


def _network_policy(item: Object) -> None:
    spec = part_at(item, "spec")
    spec.setdefault("podSelector", {})
    if "policyTypes" not in spec:
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*as_list(spec.get("ingress")), *as_list(spec.get("egress"))):
        for port in as_list(rule.get("ports")):
            port.setdefault("protocol", "TCP")


def _autoscaler(item: Object) -> None:
    part_at(item, "spec").setdefault("minReplicas", 1)
    item["status"] = {"currentMetrics": None, "desiredReplicas": 0}


def _device_claim(item: Object) -> None:
    claim = item["kind"] == "ResourceClaim"
    devices = part_at(item, "spec", "devices") if claim else part_at(item, "spec", "spec", "devices")
    for request in as_list(devices.get("requests")):
        for part in (request.get("exactly"), *as_list(request.get("firstAvailable"))):
            if isinstance(part, dict) and part.setdefault("allocationMode", "ExactCount") == "ExactCount":
                part.setdefault("count", 1)
    if claim:
        item["status"] = {}


_BY_KIND: Mapping[tuple[str, str], Callable[[Object], None]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _default_replication_controller,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _default_rolling_workload,
    ("apps", "ReplicaSet"): _default_replicas,
    ("apps", "StatefulSet"): _default_rolling_workload,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("resource.k8s.io", "ResourceClaim"): _device_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _device_claim,
}


def set_creation_fields(item: Object, group: str) -> None:
    """Write the fields that the API server sets in a new object before it is judged; the object is changed."""
    kind, metadata = (group, str(item.get("kind"))), item["metadata"]
    if kind == ("", "Service"):
        spec = item["spec"]
        if spec.get("type") != "ExternalName":
            spec.setdefault("clusterIP", "10.0.0.1")
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
    elif kind == ("batch", "Job") and not item["spec"].get("manualSelector"):
        uid = metadata.setdefault("uid", "00000000-0000-0000-0000-000000000000")
        labels = part_at(item, "spec", "template", "metadata", "labels")
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}controller-uid", uid)
            labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
        item["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def add_managed_fields(item: Object, options: Mapping[str, Any], *, applied: bool) -> None:
    """Add the `managedFields` entry of a request, as the API server does before admission; the object is changed."""
    parts = {f"f:{key}": value for key, value in item.items() if key not in ("apiVersion", "kind", "metadata")}
    fields = {key: {f"f:{name}": {} for name in value} for key, value in parts.items() if isinstance(value, Mapping)}
    entry = {
        "manager": options.get("fieldManager") or "unknown",
        "operation": "Apply" if applied else "Update",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    item["metadata"]["managedFields"] = [*as_list(item["metadata"].get("managedFields")), entry]
