"""Fields that built-in admission plugins write into new objects, and their refusals.

Sources: `k8s.io/kubernetes` v1.36.3 `plugin/pkg/admission`: `serviceaccount`, `priority`, `defaulttolerationseconds`,
`runtimeclass`, `extendedresourcetoleration`, `storage`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.objects import Object, as_list, get_path

SERVICE_ACCOUNT = "ServiceAccount"
PRIORITY = "Priority"

_SYSTEM_CLASSES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_TOKEN = {
    "name": "kube-api-access-00000",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
            {
                "downwardAPI": {
                    "items": [
                        {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}
                    ]
                }
            },
        ],
    },
}
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def completed(request: AdmissionRequest, cluster: ClusterObjects) -> Iterator[Denial]:
    """Completes a new object, which is changed, and yields why it cannot be."""
    item = request.object
    if item is None or request.operation is not Operation.CREATE or request.subresource:
        return
    if (request.group, request.resource) == ("", "pods"):
        yield from _account(item, request.namespace or "", cluster)
        yield from _priority(item, cluster)
        _tolerations(item)
        _runtime(item, cluster)
    elif (request.group, request.resource) == ("", "persistentvolumeclaims"):
        _storage(item, cluster)


def _account(item: Object, namespace: str, cluster: ClusterObjects) -> Iterator[Denial]:
    spec = item["spec"]
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = cluster.get("", "ServiceAccount", name, namespace)
    if account is None and name != "default":
        message = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        yield Denial(SERVICE_ACCOUNT, None, message, "spec.serviceAccountName")
        return
    mounted = spec.get("automountServiceAccountToken")
    if mounted is None:
        mounted = get_path(account, "automountServiceAccountToken")
    if mounted is not False:
        _mount_token(spec)
    if "imagePullSecrets" not in spec and (secrets := as_list(get_path(account, "imagePullSecrets"))):
        spec["imagePullSecrets"] = [{"name": secret["name"]} for secret in secrets]


def _mount_token(spec: Object) -> None:
    needed = False
    for container in (*as_list(spec.get("initContainers")), *as_list(spec.get("containers"))):
        mounts = as_list(container.get("volumeMounts"))
        if all(mount.get("mountPath") != _TOKEN_PATH for mount in mounts):
            mount = {"mountPath": _TOKEN_PATH, "name": _TOKEN["name"], "readOnly": True}
            container["volumeMounts"] = [*mounts, mount]
            needed = True
    if needed:
        spec["volumes"] = [*as_list(spec.get("volumes")), _TOKEN]


def _priority(item: Object, cluster: ClusterObjects) -> Iterator[Denial]:
    spec, classes = item["spec"], cluster.all("scheduling.k8s.io", "PriorityClass")
    name = spec.get("priorityClassName")
    priority_class = next((candidate for candidate in classes if candidate["metadata"]["name"] == name), None)
    if not name:
        globally = [candidate for candidate in classes if candidate.get("globalDefault")]
        priority_class = min(globally, key=lambda candidate: candidate.get("value", 0)) if globally else None
        spec["priorityClassName"] = priority_class["metadata"]["name"] if priority_class else ""
        if not priority_class:
            del spec["priorityClassName"]
    elif priority_class is None and name not in _SYSTEM_CLASSES:
        yield Denial(PRIORITY, None, f"no PriorityClass with name {name} was found", "spec.priorityClassName")
        return
    value = priority_class.get("value", 0) if priority_class else _SYSTEM_CLASSES.get(str(name), 0)
    if spec.setdefault("priority", value) != value:
        message = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        yield Denial(PRIORITY, None, message, "spec.priority")
    policy = (priority_class or {}).get("preemptionPolicy", "PreemptLowerPriority")
    if spec.setdefault("preemptionPolicy", policy) != policy:
        message = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        yield Denial(PRIORITY, None, message, "spec.preemptionPolicy")


def _tolerations(item: Object) -> None:
    own_tolerations = as_list(item["spec"].get("tolerations"))
    more = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _TOLERATED
        if not any(
            toleration.get("key", key) == key and toleration.get("effect", "NoExecute") == "NoExecute"
            for toleration in own_tolerations
        )
    ]
    resources = {
        name
        for field in ("containers", "initContainers")
        for container in as_list(item["spec"].get(field))
        for name in get_path(container, "resources", "requests") or {}
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }
    devices = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in sorted(resources)]
    if more := [*more, *(toleration for toleration in devices if toleration not in own_tolerations)]:
        item["spec"]["tolerations"] = [*own_tolerations, *more]


def _runtime(item: Object, cluster: ClusterObjects) -> None:
    name = item["spec"].get("runtimeClassName")
    runtime_class = cluster.get("node.k8s.io", "RuntimeClass", name) if name else None
    if overhead := get_path(runtime_class, "overhead", "podFixed"):
        item["spec"]["overhead"] = dict(overhead)


def _storage(item: Object, cluster: ClusterObjects) -> None:
    default_classes = [
        storage_class
        for storage_class in cluster.all("storage.k8s.io", "StorageClass")
        if (get_path(storage_class, "metadata", "annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    if default_classes and "storageClassName" not in item["spec"]:
        item["spec"]["storageClassName"] = default_classes[0]["metadata"]["name"]
    item["metadata"]["finalizers"] = [*as_list(item["metadata"].get("finalizers")), "kubernetes.io/pvc-protection"]
