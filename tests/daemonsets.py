"""Paths of the tolerations of daemonsets in the values of charts."""

from __future__ import annotations

DAEMONSETS = {
    "gpu-operator": ("daemonsets.tolerations", "node-feature-discovery.worker.tolerations"),
    "aws-efa-k8s-device-plugin": ("tolerations",),
    "dra-driver-nvidia-gpu": ("kubeletPlugin.tolerations",),
    "cilium": ("tolerations",),
    "kube-prometheus-stack": ("prometheus-node-exporter.tolerations",),
    "eks-node-monitoring-agent": ("dcgmAgent.tolerations",),
    "aws-ebs-csi-driver": ("node.tolerateAllTaints",),
}
"""Path of the tolerations of each daemonset in the values."""
TOLERATE_ALL = {
    "kube-proxy": "EKS' manifest of kube-proxy: operator Exists",
    "eks-node-monitoring-agent": "aws/eks-node-monitoring-agent@v1.7.0 values.yaml: nodeAgent.tolerations, Exists",
    "vpc-cni": "aws/amazon-vpc-cni-k8s charts/aws-vpc-cni/values.yaml: tolerations, operator Exists",
    "eks-pod-identity-agent": "aws/eks-pod-identity-agent charts/…/values.yaml: tolerations, operator Exists",
}
"""Daemonsets that tolerate every taint as they come."""
