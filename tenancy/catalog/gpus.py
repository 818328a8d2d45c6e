"""Names of GPUs in Kubernetes and in NVIDIA's container toolkit."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
SHARED = ".shared"
"""Suffix that the device plugin appends under `renameByDefault`, to distinguish a replica from a GPU."""
GPU_SHARED = GPU + SHARED
EFA = "vpc.amazonaws.com/efa"
ALWAYS_CAPPED = (GPU, GPU_SHARED, EFA)
"""Resources in every tenant's quota, also if no pool offers them: a new node with one is not outside of all quotas."""

APPLICATION_XIDS = (13, 31, 43, 45)
"""A program's own faults and their cleaning up (NVIDIA, "XID Errors"): its owner sees them in its log."""
REPAIRED_APPLICATION_XIDS = (13, 31)
"""Those of them for which EKS reboots a managed node or Karpenter replaces one (EKS user guide, "Detect node health
issues", 2026-11-27), if the node monitoring agent reports them, as before v1.6.4."""

GPU_TAINT = GPU
"""Taint key of every GPU node, which keeps off pods without a GPU."""

DEVICE_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VERSION",  # without NVIDIA_REQUIRE_CUDA it marks a legacy image, which gets all GPUs by default
    "NVIDIA_GDRCOPY",
    "NVIDIA_GDS",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
)
"""Variables by which the NVIDIA container toolkit selects devices (v1.20 `internal/config/image`). The first opens none
if it is set and empty, as the MPI operator writes it for a launcher, or `void` or `none`."""


def resource_name(profile: str | None, shared: bool) -> str:
    """Name of the extended resource of a whole GPU, a slice under the mixed strategy, or a replica of either.

    A resource name cannot contain a plus: the device plugin writes `1g.5gb+me` as `1g.5gb.me`.
    """
    name = "nvidia.com/mig-" + profile.replace("+", ".") if profile else GPU
    return name + SHARED if shared else name
