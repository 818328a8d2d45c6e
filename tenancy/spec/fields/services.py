"""`services`: what runs on the cluster's nodes for GPUs, queues and volumes, and who brings it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tenancy.spec.fields.base import Spec


class Source(StrEnum):
    """Source of a service of the cluster."""

    INSTALL = "install"  # part of the environment's stack
    PRESENT = "present"  # on the cluster already; another tool updates it
    NONE = "none"  # not on the cluster


_BUILT = "Default: install with cluster.mode: build, else present."


class Services(Spec):
    """Charts of the platform, each on its own."""

    gpu_operator: Source | None = Field(
        default=None,
        description=f"NVIDIA's GPU operator, with feature discovery and the two parts below. {_BUILT}",
    )
    device_plugin: Source | None = Field(
        default=None,
        description="NVIDIA's device plugin, which pools with GPUs need except with cluster.devices: dra. install: as "
        "a part of gpu-operator: install. Default: as gpu-operator.",
    )
    dcgm_exporter: Source | None = Field(
        default=None,
        description="NVIDIA's DCGM exporter, from which metrics of GPUs come. install: as a part of gpu-operator: "
        "install. present: scraped by the Service with the label app=nvidia-dcgm-exporter in the namespace "
        "gpu-operator. Default: as gpu-operator.",
    )
    dra_driver: Source | None = Field(
        default=None, description=f"NVIDIA's DRA driver, which cluster.devices: dra needs. {_BUILT}"
    )
    efa_device_plugin: Source | None = Field(
        default=None, description=f"Device plugin of EFA, which pools with efa need. {_BUILT}"
    )
    kueue: Source | None = Field(default=None, description=f"Kueue, which queues.scheduler: kueue needs. {_BUILT}")
    storage_class: Source | None = Field(
        default=None,
        description="Storage class tenancy-gp3 of encrypted EBS volumes with the tenant's tags; needs AWS and the EBS "
        "CSI driver. Default: install with cluster.mode: build, else none.",
    )
