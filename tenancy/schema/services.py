"""`services`: what runs on the cluster's nodes for GPUs, queues and volumes, and who brings it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tenancy.schema.base import Spec


class Source(StrEnum):
    """Where a service of the cluster comes from."""

    INSTALL = "install"  # part of the environment's stack
    PRESENT = "present"  # on the cluster already; another tool updates it
    NONE = "none"  # not on the cluster


_BUILT = "Default: install with cluster.mode: build, else present."


class Services(Spec):
    """Charts of the platform, each on its own."""

    gpu_operator: Source | None = Field(
        default=None,
        description="NVIDIA's GPU operator: device plugin, feature discovery and DCGM exporter. With none the cluster "
        f"has no pool with GPUs. {_BUILT}",
    )
    dra_driver: Source | None = Field(
        default=None, description=f"NVIDIA's DRA driver, which cluster.devices: dra needs. {_BUILT}"
    )
    efa_plugin: Source | None = Field(
        default=None, description=f"Device plugin of EFA, which pools with efa need. {_BUILT}"
    )
    kueue: Source | None = Field(default=None, description=f"Kueue, which queues.scheduler: kueue needs. {_BUILT}")
    storage_class: Source | None = Field(
        default=None,
        description="Storage class tenancy-gp3 of encrypted EBS volumes with the tenant's tags; needs AWS and the EBS "
        "CSI driver. Default: install with cluster.mode: build, else none.",
    )
