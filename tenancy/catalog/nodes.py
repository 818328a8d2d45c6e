"""Resources of an EKS node that are left for pods, and for a tenant's pods besides the daemonsets.

Sources, read 2026-11-20:

- nodeadm: awslabs/amazon-eks-ami `nodeadm/internal/kubelet/config.go`, v20240229 and a newer copy: kubelet reserve
  and eviction thresholds;
- Karpenter: karpenter-provider-aws v1.14.1 `pkg/providers/instancetype/types.go` and
  `pkg/operator/options/options.go`: the same reserve, and the memory that the operating system never sees;
- EKS user guide, "Assign more IP addresses with prefixes": the pod caps of managed node groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from tenancy.catalog.instances import Instance

Provisioner = Literal["managed", "karpenter"]

MANY_VCPU = 30
SMALL_POD_CAP = 110
"""Maximum number of pods of managed nodes below 30 vCPU."""
LARGE_POD_CAP = 250
"""Maximum number of pods of managed nodes with 30 vCPU or more, also if the interfaces allow more."""

UNSEEN_PER_MILLE = 75
"""Memory that EC2 sells and the operating system never sees: Karpenter's `vmMemoryOverheadPercent`, 7.5 % by default.

A conservative estimate, above all for large machines. Karpenter itself replaces it with what the first node of a type
reports.
"""
GRAVITON_MIB = 64
"""Memory that the kernel reserves on Graviton (`memory` in Karpenter's `types.go`)."""

CPU_RESERVE = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, None, 25))
"""Kubelet reserve by range of millicores, in parts of 10,000: 6 % of the first core, 1 %, 0.5 %, then 0.25 %."""
MEMORY_RESERVE_MIB = 255
MEMORY_RESERVE_PER_POD_MIB = 11
EVICTION_MIB = 100
EPHEMERAL_RESERVE_MIB = 1024
EPHEMERAL_EVICTION_PER_CENT = 10

ROOT_VOLUME_GIB = 20
"""Default size of the root volume, GiB; the same for EKS and Karpenter."""
WHOLE_ROOT_GIB = 200
"""Our default where the root volume holds container images and pods' own files."""
SYSTEM_ROOT_GIB = 50
"""Our default beside local NVMe disks, which hold both: the volume then has the system, its logs and its journal."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts in integers: millicores and MiB."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    ephemeral: int = 0


def pods(instance: Instance, provisioner: Provisioner, efa: bool = False) -> int:
    """Number of pods that the kubelet of a node admits, those of daemonsets included.

    With EFA, one interface of the default network card is for EFA alone, unless that card has no EFA.
    """
    reserved_addresses = instance.addresses - 1 if efa and instance.network_cards == instance.efa else 0
    addressed = instance.pods - reserved_addresses
    if provisioner == "karpenter":
        return addressed
    return min(addressed, SMALL_POD_CAP if instance.vcpu < MANY_VCPU else LARGE_POD_CAP)


def visible_memory(instance: Instance) -> int:
    """MiB that the operating system sees of what EC2 sells."""
    sold = instance.memory * 1024 - (GRAVITON_MIB if instance.architecture == "arm64" else 0)
    return sold - -(-sold * UNSEEN_PER_MILLE // 1000)


def cpu_reserve(vcpu: int) -> int:
    """Millicores that the kubelet reserves for itself and the container runtime."""
    total = vcpu * 1000
    return sum(
        (min(total, total if end is None else end) - start) * part // 10000
        for start, end, part in CPU_RESERVE
        if total > start
    )


def allocatable(instance: Instance, pods: int, root_gib: int = ROOT_VOLUME_GIB) -> Resources:
    """Resources that a node offers to all its pods.

    `pods` is what the kubelet admits. The memory reserve does not follow it: nodeadm computes the reserve from the
    network interfaces before a cap or a raised limit is applied. Local NVMe disks count as one RAID 0 that contains
    container images and pods' own files, which nodeadm and Karpenter do on request only; without them, the root volume.
    """
    disk = instance.nvme * 10**9 // 2**20 if instance.nvme else root_gib * 1024
    reserve = MEMORY_RESERVE_MIB + MEMORY_RESERVE_PER_POD_MIB * instance.pods
    return Resources(
        cpu=instance.vcpu * 1000 - cpu_reserve(instance.vcpu),
        memory=visible_memory(instance) - reserve - EVICTION_MIB,
        pods=pods,
        ephemeral=disk - EPHEMERAL_RESERVE_MIB - -(-disk * EPHEMERAL_EVICTION_PER_CENT // 100),
    )


class Addon(StrEnum):
    """Components that run a pod on every GPU node. A cluster has those that it installs; none is assumed."""

    VPC_CNI = "vpc-cni"
    CILIUM = "cilium"
    KUBE_PROXY = "kube-proxy"
    POD_IDENTITY = "pod-identity"
    EBS_CSI = "ebs-csi"
    NODE_MONITORING = "node-monitoring"
    GPU_OPERATOR = "gpu-operator"
    DCGM_EXPORTER = "dcgm-exporter"
    EFA = "efa"
    NODE_EXPORTER = "node-exporter"


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """One pod of every GPU node, and the requests of its containers together."""

    addon: Addon
    cpu: int
    """Millicores; 0: its chart sets none."""
    memory: int
    """MiB; 0: its chart sets none."""
    source: str


_OPERATOR = "NVIDIA/gpu-operator `assets/{}`: no requests; `daemonsets` and the component's `resources` can set some"

DAEMONSETS: Mapping[str, DaemonSet] = MappingProxyType(
    {
        "aws-node": DaemonSet(
            Addon.VPC_CNI, 50, 0, "aws/amazon-vpc-cni-k8s chart: 25m for aws-node and 25m for aws-eks-nodeagent"
        ),
        "cilium": DaemonSet(Addon.CILIUM, 0, 0, "cilium/cilium chart 1.18.0: `resources: {}`"),
        "cilium-envoy": DaemonSet(Addon.CILIUM, 0, 0, "cilium/cilium chart 1.18.0: `envoy.resources: {}`"),
        "kube-proxy": DaemonSet(Addon.KUBE_PROXY, 100, 0, "EKS add-on, as `kubectl describe node` shows it"),
        "eks-pod-identity-agent": DaemonSet(Addon.POD_IDENTITY, 0, 0, "aws/eks-pod-identity-agent chart 1.2.0"),
        "ebs-csi-node": DaemonSet(
            Addon.EBS_CSI,
            30,
            120,
            "aws-ebs-csi-driver chart: `node.resources` of 10m and 40Mi for each of 3 containers",
        ),
        "eks-node-monitoring-agent": DaemonSet(
            Addon.NODE_MONITORING, 10, 30, "aws/eks-node-monitoring-agent chart v1.5.1: `nodeAgent.resources`"
        ),
        "dcgm-server": DaemonSet(
            Addon.NODE_MONITORING, 0, 0, "aws/eks-node-monitoring-agent chart v1.5.1: `dcgmAgent.resources: {}`"
        ),
        "nvidia-device-plugin": DaemonSet(
            Addon.GPU_OPERATOR, 0, 0, _OPERATOR.format("state-device-plugin/0500_daemonset.yaml")
        ),
        "gpu-feature-discovery": DaemonSet(
            Addon.GPU_OPERATOR, 0, 0, _OPERATOR.format("gpu-feature-discovery/0500_daemonset.yaml")
        ),
        "nvidia-operator-validator": DaemonSet(
            Addon.GPU_OPERATOR, 0, 0, _OPERATOR.format("state-operator-validation/0500_daemonset.yaml")
        ),
        "node-feature-discovery-worker": DaemonSet(
            Addon.GPU_OPERATOR, 5, 64, "kubernetes-sigs/node-feature-discovery chart 0.17.3: `worker.resources`"
        ),
        "nvidia-dcgm-exporter": DaemonSet(
            Addon.DCGM_EXPORTER, 0, 0, _OPERATOR.format("state-dcgm-exporter/0900_daemonset.yaml")
        ),
        "aws-efa-k8s-device-plugin": DaemonSet(Addon.EFA, 10, 20, "aws/eks-charts `stable/aws-efa-k8s-device-plugin`"),
        "prometheus-node-exporter": DaemonSet(
            Addon.NODE_EXPORTER, 50, 50, "`tenancy/planning/common/charts.py`, which sets the chart's `resources`"
        ),
    }
)
"""The pods that every GPU node runs before a tenant's, by the name of their daemonset.

Requests are the charts' defaults, read 2026-11-20. A pod without requests still counts as a pod.
"""


def daemonset_reserve(addons: Iterable[Addon]) -> Resources:
    """Resources of one node that the daemonsets of these add-ons take."""
    selected = set(addons)
    daemonsets = [daemonset for daemonset in DAEMONSETS.values() if daemonset.addon in selected]
    return Resources(
        cpu=sum(daemonset.cpu for daemonset in daemonsets),
        memory=sum(daemonset.memory for daemonset in daemonsets),
        pods=len(daemonsets),
    )
