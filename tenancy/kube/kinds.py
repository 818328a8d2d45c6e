"""Kinds by the API groups in which they have the meaning that readers of objects expect.

Names of kinds are not unique: Calico has a NetworkPolicy, Knative a Service, Volcano a Job. A kind of another group has
the group as a suffix, as in kubectl, and no rule reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS: Mapping[str, str] = {
    "": "ConfigMap LimitRange Namespace Node PersistentVolume Pod ReplicationController ResourceQuota Service "
    "ServiceAccount",
    "admissionregistration.k8s.io": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "apps": "DaemonSet Deployment ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "cilium.io": "CiliumClusterwideNetworkPolicy CiliumNetworkPolicy",
    "eks.services.k8s.aws": "PodIdentityAssociation",
    "extensions": "DaemonSet Deployment NetworkPolicy ReplicaSet",
    "helm.sh": "Release",
    "karpenter.k8s.aws": "EC2NodeClass",
    "karpenter.sh": "NodeOverlay NodePool",
    "kueue.x-k8s.io": "AdmissionCheck ClusterQueue Cohort LocalQueue ResourceFlavor Topology WorkloadPriorityClass",
    "networking.k8s.io": "NetworkPolicy",
    # Kyverno's ClusterPolicy is read for whether it requires a queue, the operator's for its settings.
    "kyverno.io": "ClusterPolicy",
    "nvidia.com": "ClusterPolicy",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "resource.k8s.io": "ResourceClaim ResourceClaimTemplate",
    "scheduling.k8s.io": "PriorityClass",
}
GROUPS: Mapping[str, frozenset[str]] = {
    kind: frozenset(group for group, kinds in _KINDS.items() if kind in kinds.split())
    for kind in sorted({kind for kinds in _KINDS.values() for kind in kinds.split()})
}
"""Kind -> API groups; "" is the core group."""


def group_of(item: Mapping[str, Any]) -> str:
    """An object's API group; "" is the core group."""
    return str(item.get("apiVersion") or "").rpartition("/")[0]


def ruled(kind: str, api_version: str | None) -> str:
    """The kind as rules name it; a kind of another group has the group as a suffix."""
    group = group_of({"apiVersion": api_version})
    return kind if not api_version or kind not in GROUPS or group in GROUPS[kind] else f"{kind}.{group or 'core'}"


def plural(kind: str) -> str:
    """Name of the resource of a kind, as Kubernetes forms it for its own kinds and those of its extensions."""
    name = kind.lower()
    if name == "endpoints":
        return name
    if name.endswith("y") and name[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


_CLUSTER_WIDE = frozenset(
    "AdmissionCheck CiliumClusterwideNetworkPolicy ClusterPolicy ClusterQueue ClusterRole ClusterRoleBinding Cohort "
    "EC2NodeClass Namespace Node NodeOverlay NodePool PersistentVolume PriorityClass ResourceFlavor Topology "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding WorkloadPriorityClass".split()
)


_CLUSTER_WIDE_TOO = frozenset(
    "APIService CSIDriver CSINode CertificateSigningRequest ClusterServingRuntime ClusterTrainingRuntime "
    "ClusterTrustBundle ClusterWorkflowTemplate CustomResourceDefinition DeviceClass FlowSchema IPAddress IngressClass "
    "MultiKueueCluster MultiKueueConfig MutatingAdmissionPolicy MutatingAdmissionPolicyBinding "
    "MutatingWebhookConfiguration NodeClaim PriorityLevelConfiguration ProvisioningRequestConfig ResourceSlice "
    "RuntimeClass ServiceCIDR StorageClass ValidatingWebhookConfiguration VolumeAttachment "
    "VolumeAttributesClass".split()
)
"""Further cluster-scoped kinds of Kubernetes, Kueue, Karpenter, KServe, Trainer and Argo Workflows."""
_NAMESPACED_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "discovery.k8s.io", "extensions", "policy"})
"""Groups of which the kinds above alone are cluster-scoped."""


def is_cluster_wide(item: Mapping[str, Any], namespace: str | None = None) -> bool:
    """Whether an object is in no namespace. Of a kind that is not known, one is that names none, unless there is a
    `namespace` for those."""
    kind = str(item.get("kind"))
    if kind in _CLUSTER_WIDE | _CLUSTER_WIDE_TOO:
        return True
    has_known_scope = kind in GROUPS or group_of(item) in _NAMESPACED_GROUPS
    return not has_known_scope and namespace is None and not (item.get("metadata") or {}).get("namespace")


def placed(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cluster-scoped object without its namespace: for a kind that it has not seen, Pulumi's Kubernetes provider sets
    the namespace default."""
    metadata = item.get("metadata")
    if str(item.get("kind")) not in _CLUSTER_WIDE or not isinstance(metadata, Mapping) or "namespace" not in metadata:
        return item
    return {**item, "metadata": {key: value for key, value in metadata.items() if key != "namespace"}}
