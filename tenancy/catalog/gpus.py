"""What Kubernetes and the container toolkit call GPUs."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
SHARED = ".shared"
"""What the device plugin appends under `renameByDefault`, so that nobody takes a replica for a GPU."""
GPU_SHARED = GPU + SHARED
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


def resource_name(profile: str | None, shared: bool) -> str:
    """The extended resource that a whole GPU, a slice under the mixed strategy, or a replica of either is.

    A plus is no letter of a resource name: the device plugin writes `1g.5gb+me` as `1g.5gb.me`.
    """
    name = "nvidia.com/mig-" + profile.replace("+", ".") if profile else GPU
    return name + SHARED if shared else name
