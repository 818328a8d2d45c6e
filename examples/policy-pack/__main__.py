"""A tenant's namespace by hand. The policy pack finds what it lacks; with `complete: true` nothing is left to find."""

import pulumi
import pulumi_kubernetes as kubernetes

complete = pulumi.Config().get_bool("complete")
cluster = kubernetes.Provider("cluster", context="gpu-tenancy-lab")
on_cluster = pulumi.ResourceOptions(provider=cluster)
labels = {
    "tenancy.gpu/tenant": "fraud",
    "team": "fraud-detection",
    "owner": "fraud-leads",
    "department": "risk",
    "cost-center": "CC-4411",
    "product": "fraud",
    "env": "dev",
    "tier": "batch",
    "gpu-tier": "shared",
}
secure = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "v1.36"}

kubernetes.core.v1.Namespace(
    "train",
    metadata={"name": "fraud--train", "labels": {**labels, **secure}},
    opts=pulumi.ResourceOptions(provider=cluster, protect=True),
)
in_train = {"namespace": "fraud--train", "labels": labels}
# `nvidia.com/gpu` without `requests.` counts nothing.
gpus = "requests.nvidia.com/gpu" if complete else "nvidia.com/gpu"
hard = {gpus: "8", "cpu": "64", "memory": "512Gi", "pods": "50"}
kubernetes.core.v1.ResourceQuota("quota", metadata={"name": "quota", **in_train}, spec={"hard": hard}, opts=on_cluster)
if complete:
    kubernetes.core.v1.LimitRange(
        "limits",
        metadata={"name": "limits", **in_train},
        spec={"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "4Gi"}}]},
        opts=on_cluster,
    )
    dns = {
        "namespace_selector": {"match_labels": {"kubernetes.io/metadata.name": "kube-system"}},
        "pod_selector": {"match_labels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    policies = {
        "default-deny": {"policy_types": ["Ingress", "Egress"]},
        "dns": {"policy_types": ["Egress"], "egress": [{"to": [dns], "ports": ports}]},
    }
    for name, spec in policies.items():
        kubernetes.networking.v1.NetworkPolicy(
            name, metadata={"name": name, **in_train}, spec={"pod_selector": {}, **spec}, opts=on_cluster
        )
