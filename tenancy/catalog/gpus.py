"""GPU boards, their MIG geometry, the instance types that carry them, and what Kubernetes calls each.

Sources, read 2026-11-20:
- instance types: karpenter-provider-aws `website/content/en/preview/reference/instance-types.md` (2026-07-11);
- MIG profiles: NVIDIA MIG user guide r610 and mig-parted `deployments/systemd/config-default.yaml` v0.15.0;
- kubelet reserve: amazon-eks-ami `nodeadm/internal/kubelet/` v20260724.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"
EFA = "vpc.amazonaws.com/efa"
ALWAYS_CAPPED = (GPU, GPU_SHARED, EFA)
"""In every tenant's quota, even where no pool offers them yet: a node that brings one surprises nobody."""

GPU_TAINT = GPU
"""Taint key of every GPU node: keeps pods without a GPU off it."""

DEVICE_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VERSION",  # without NVIDIA_REQUIRE_CUDA it marks a legacy image, which gets all GPUs unasked
    "NVIDIA_GDRCOPY",
    "NVIDIA_GDS",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
)
"""What the NVIDIA container toolkit picks devices by (container-toolkit v1.20 `internal/config/image`)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One MIG profile: its share of the board's 7 compute slices and 8 memory units, and how many fit."""

    compute: int
    memory: int
    most: int


COMPUTE_SLICES = 7
MEMORY_UNITS = 8


def _board(one: str, double: str, two: str, three: str, four: str, seven: str) -> dict[str, Profile]:
    return {
        one: Profile(1, 1, 7),
        one + "+me": Profile(1, 1, 1),
        double: Profile(1, 2, 4),
        two: Profile(2, 2, 3),
        three: Profile(3, 4, 2),
        four: Profile(4, 4, 1),
        seven: Profile(7, 8, 1),
    }


_SMALL = _board("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
_LARGE = _board("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")

BOARDS: Mapping[str, Mapping[str, Profile]] = {
    "a100-40gb": _SMALL,
    "a100-80gb": _LARGE,
    "h100-80gb": _LARGE,
    "h200-141gb": _board("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "a10g": {},
    "l4": {},
    "l40s": {},
    "t4": {},
}
"""Keyed by board and never by profile alone: `1g.10gb` is two different slices on two boards."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance type. `memory` in GiB; `pods` as the network interfaces allow."""

    gpu: str
    gpus: int
    vcpu: int
    memory: int
    efa: int
    pods: int


INSTANCES: Mapping[str, Instance] = {
    "p4d.24xlarge": Instance("a100-40gb", 8, 96, 1152, 4, 737),
    "p4de.24xlarge": Instance("a100-80gb", 8, 96, 1152, 4, 737),
    "p5.48xlarge": Instance("h100-80gb", 8, 192, 2048, 32, 100),
    "p5e.48xlarge": Instance("h200-141gb", 8, 192, 2048, 32, 100),
    "p5en.48xlarge": Instance("h200-141gb", 8, 192, 2048, 16, 198),
    "g4dn.12xlarge": Instance("t4", 4, 48, 192, 1, 234),
    "g5.12xlarge": Instance("a10g", 4, 48, 192, 1, 737),
    "g5.48xlarge": Instance("a10g", 8, 192, 768, 1, 345),
    "g6.12xlarge": Instance("l4", 4, 48, 192, 1, 234),
    "g6.48xlarge": Instance("l4", 8, 192, 768, 1, 737),
    "g6e.12xlarge": Instance("l40s", 4, 48, 384, 1, 292),
    "g6e.48xlarge": Instance("l40s", 8, 192, 1536, 4, 492),
}

MANAGED_POD_CAP = 250
"""Managed node groups cap pods here from 30 vCPU on, whatever the interfaces allow."""


def resource_name(profile: str | None, shared: bool) -> str:
    """The extended resource that a whole GPU, a slice under the mixed strategy or a shared replica is."""
    if profile:
        return "nvidia.com/mig-" + profile.replace("+", ".")
    return GPU_SHARED if shared else GPU


def layout_misfit(board: str, layout: Mapping[str, int]) -> str | None:
    """Why a MIG layout does not fit on one board, with the sums; None when it fits.

    The three conditions together accept exactly what an exhaustive placement search accepts.
    """
    profiles = BOARDS[board]
    unknown = sorted(set(layout) - set(profiles))
    if unknown:
        known = ", ".join(profiles) or "none, it cannot be partitioned"
        return f"{board} has no profile {', '.join(unknown)}; its profiles: {known}"
    for name, count in layout.items():
        if count > profiles[name].most:
            return f"{count} x {name}: at most {profiles[name].most} fit on {board}"
    for what, limit in (("memory", MEMORY_UNITS), ("compute", COMPUTE_SLICES)):
        parts = [count * getattr(profiles[name], what) for name, count in layout.items()]
        if sum(parts) > limit:
            return f"{what} {' + '.join(map(str, parts))} = {sum(parts)} of {limit} units on {board}"
    return None


def allocatable(instance: Instance) -> dict[str, str]:
    """CPU, memory and pods that are left for pods after the kubelet's reserve on an EKS node."""
    pods = min(instance.pods, MANAGED_POD_CAP)
    reserved_cpu = 60 + 10 + 2 * 5 + round(2.5 * (instance.vcpu - 4))
    reserved_memory = 255 + 11 * pods + 100
    return {
        "cpu": f"{instance.vcpu * 1000 - reserved_cpu}m",
        "memory": f"{instance.memory * 1024 - reserved_memory}Mi",
        "pods": str(pods),
    }
