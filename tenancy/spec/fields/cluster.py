"""`cluster`, and what its nodes and containers run: CNI, devices, sandbox, virtual clusters, images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from tenancy.catalog import vocabulary
from tenancy.catalog.versions import incompatible
from tenancy.rules.values import astray_image, moving_image, range_of_address, unsafe_range, wide_range
from tenancy.spec.fields.base import VALID_AMOUNTS, Flag, Quantity, ShortName, Slug, Spec, TextForm, WholeNumber
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class Cni(StrEnum):
    """The CNI plugin that enforces network policies."""

    VPC_CNI = "vpc-cni"  # NetworkPolicy: addresses and labels, no host names
    CILIUM = "cilium"  # host names and clusterwide denies as well


class Encryption(StrEnum):
    """Encryption of traffic between nodes."""

    NONE = "none"
    WIREGUARD = "wireguard"  # Cilium's, between nodes


_Block = Annotated[
    str, TextForm(r"^[0-9a-f.:]+/[0-9]{1,3}$", "an address range with its length", "write it like 10.64.0.0/16", 60)
]
_Version = Annotated[
    str, TextForm(r"^1\.3[0-9]$", "a minor version from 1.30 to 1.39", 'write it like "1.36", with quotes')
]
_Context = Annotated[
    str, TextForm(r"^[^\s\x00-\x1f]+$", "a context's name without spaces", "see kubectl config get-contexts", 253)
]


class Devices(StrEnum):
    """Way in which pods request GPUs: by an extended resource or by a ResourceClaim."""

    PLUGIN = "plugin"  # NVIDIA's device plugin: extended resources such as nvidia.com/gpu
    DRA = "dra"  # NVIDIA's DRA driver: device classes, one for each flavor


DRIVER_DOMAIN = ".nvidia.com"
SERVICE_CIDRS = ("10.100.0.0/16", "172.20.0.0/16")
"""Ranges that EKS chooses from for services by default (EKS API reference, KubernetesNetworkConfigRequest)."""
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class ClusterMode(StrEnum):
    """Whether the environment makes its cluster."""

    BUILD = "build"  # network, control plane and nodes are made, in a stack of their own
    EXISTING = "existing"  # another tool made it: pools describe its nodes


class Cluster(Spec):
    """The EKS cluster of an environment: its name, version, network plugin and GPU devices."""

    name: Slug = Field(description="Name of the EKS cluster. Required.")
    mode: ClusterMode | None = Field(
        default=None,
        description="Whether network, cluster and nodes are made (build), or exist already (existing). With existing, "
        "pools describe the cluster's nodes, and everything else is made: with aws.enabled also roles, buckets, keys, "
        "repositories, budgets and access entries. Default: build with aws.enabled, else existing.",
    )
    context: _Context = Field(
        description="Context of the kubeconfig. A run stops if the kubeconfig does not have it, so that a shell left "
        "on another cluster changes nothing there. Required.",
    )
    kubernetes: _Version = Field(
        default="1.36",
        description="Minor version of Kubernetes, 1.30 or newer. Before 1.34 a guard checks the hosts of probes, "
        "because Pod Security does not (pod-05). Default: 1.36.",
    )
    cni: Cni = Field(default=Cni.VPC_CNI, description="CNI plugin that enforces network policies. Default: vpc-cni.")
    encryption: Encryption = Field(
        default=Encryption.NONE,
        description="Encryption of traffic between pods on different nodes; wireguard needs cni: cilium. Default: "
        "none.",
    )
    node_and_pod_cidrs: tuple[_Block, ...] = Field(
        default=(),
        min_length=1,
        description="Address ranges of nodes and pods. Tenants can neither open egress to them nor ingress from "
        "them. Default: the range of the VPC that is made; for an existing VPC, unknown.",
    )
    service_cidr: _Block | None = Field(
        default=None,
        description="Address range of the cluster's services. Tenants cannot open egress to it. A cluster that is "
        "made here gets it at creation and cannot change it later. Default: EKS chooses it, and both ranges that EKS "
        f"chooses from are closed to tenants: {' and '.join(SERVICE_CIDRS)}.",
    )
    object_overcommit: Annotated[int, WholeNumber(1, 1000)] = Field(
        default=10,
        description="Maximum of all tenants' object quotas together, as a multiple of what the API server's store "
        "and Kueue's memory hold. With 1, all tenants together cannot fill them. With more, one tenant cannot, but "
        "several together can; the alerts ApiStorageNearlyFull and ApiStorageFull report it. Default: 10.",
    )
    node_local_dns: Flag = Field(
        default=False,
        description="Whether pods resolve names at NodeLocal DNSCache, on the node at "
        f"{vocabulary.DNS_CACHE.partition('/')[0]}: network policies then open that address for DNS as well. Its pods "
        "are on the node's network, so no label selects them. With cni: cilium a local redirect policy leads to the "
        "cache, and the field is false. Default: false.",
    )
    devices: Devices = Field(
        default=Devices.PLUGIN,
        description="How pods request GPUs. dra needs Kubernetes 1.34 or newer and no pool of Karpenter. Default: "
        "plugin.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if vocabulary.SEPARATOR in self.name:
            # Names on AWS are <cluster>--<tenant>--<namespace>: another cluster's could be the same.
            yield rule_mistake(("name",), "name-01", f"cluster {self.name!r}", "write it with single dashes")
        if self.devices is Devices.DRA and (misfit := incompatible(self.kubernetes, "dra")):
            yield rule_mistake(("devices",), "dra-01", f"devices: dra on Kubernetes {self.kubernetes}", misfit)
        if self.encryption is Encryption.WIREGUARD and self.cni is not Cni.CILIUM:
            yield rule_mistake(("encryption",), "net-09", f"encryption: wireguard with cni {self.cni}")
        if self.node_local_dns and self.cni is Cni.CILIUM:
            fault, rule = (
                "node-local-dns with cni: cilium",
                "to Cilium the cache is the node, which no address range opens",
            )
            change = "drop node-local-dns, and lead DNS to the cache by a CiliumLocalRedirectPolicy"
            yield Mistake(("node-local-dns",), fault, rule, change)
        for i, text in enumerate(self.node_and_pod_cidrs):
            if fault := wide_range(text):
                yield Mistake(
                    ("node-and-pod-cidrs", i), fault, "a range of the cluster's own", "write it like 10.64.0.0/16"
                )
            elif change := range_of_address(text):
                yield Mistake(("node-and-pod-cidrs", i), repr(text), "a range begins with its first address", change)
        if self.service_cidr and (fault := unsafe_range(self.service_cidr)):
            rule = "the range of the cluster's services"
            yield Mistake(("service-cidr",), fault, rule, "write it like 172.20.0.0/16")


_Handler = Annotated[
    str,
    TextForm(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "a runtime's handler on the nodes", "write it like kata-qemu"),
]


class Sandbox(Spec):
    """A kernel for each pod. The runtime is already on the pool's nodes: their image or an installer brings it."""

    handler: _Handler = Field(
        description="Name of the runtime in containerd's configuration, such as kata-qemu. Required."
    )
    pool: ShortName = Field(
        description="Pool whose nodes have the runtime. They are bare metal, because virtual machines need it. "
        "Required."
    )
    overhead: Annotated[dict[Literal["cpu", "memory"], Quantity], VALID_AMOUNTS] = Field(
        default={"cpu": "250m", "memory": "160Mi"},
        description="CPU (cores) and memory (bytes) of each pod beyond its containers, counted by quota and "
        "scheduler. Default: cpu 250m and memory 160Mi, as in Kata's runtime class.",
    )


_Release = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+:[A-Za-z0-9_][A-Za-z0-9_.-]*@sha256:[0-9a-f]{64}$",
        "an image with its registry, its tag and its digest",
        "write it like registry.bank.example/shared/kubernetes:v1.35.0@sha256:…",
        400,
    ),
]
_Resolver = Annotated[
    str,
    TextForm(r"^[0-9a-f.:]+$", "an address", "write the clusterIP of kube-system's kube-dns, like 172.20.0.10", 45),
]
_Oidc = Annotated[
    str,
    TextForm(r"^--oidc-[a-z-]+=[^\s\x00-\x1f]+$", "an argument --oidc-…=…", "write it as kube-apiserver takes it", 400),
]


class VirtualClusters(Spec):
    """An API server for each namespace of a tenant, made by the chart vcluster from its open-source build."""

    syncer: _Release = Field(description="Image of the syncer: loft-sh/vcluster-oss of the chart's release. Required.")
    kubernetes: _Release = Field(
        description="Image of the API server and its controllers: loft-sh/kubernetes. Required."
    )
    dns: _Release = Field(description="Image of CoreDNS in the virtual cluster. Required.")
    resolver: _Resolver = Field(
        description="Address of the host cluster's DNS, which resolves all other names. Required."
    )
    storage_class: Slug | None = Field(
        default=None,
        description="Storage class of the control planes' volumes. Default: the platform's class, which exists only "
        "where the environment makes one.",
    )
    oidc: tuple[_Oidc, ...] = Field(
        default=(),
        description="OIDC arguments of kube-apiserver by which people sign in to the virtual cluster. Default: none; "
        "people sign in by kubeconfig.",
    )

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images that a virtual cluster runs."""
        return (self.syncer, self.kubernetes, self.dns)


_Registry = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?/(([a-z0-9][a-z0-9._-]*|\{tenant\})/)*$",
        "a prefix of image names: a registry's host and path, which ends with '/'",
        "write it like registry.bank.example/teams/{tenant}/",
        200,
    ),
]
_Image = Annotated[
    str,
    TextForm(r"^[^\s\x00-\x1f]+$", "an image's name without spaces", "write it like registry.example/cuda:13.0", 400),
]


class Images(Spec):
    """Registries that tenants' images may come from, and the image of samples."""

    registries: tuple[_Registry, ...] = Field(
        min_length=1,
        description="Prefixes of the image names that tenants may use. Each ends with '/'; {tenant} stands for the "
        "tenant's name. Required.",
    )
    sample: _Image = Field(
        description="Name of a small CUDA image, in a registry open to all tenants, that `tenancy sample` uses. "
        "Required."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if not self.sample.startswith(self.registries):
            yield rule_mistake(("sample",), "img-01", f"sample {self.sample!r} outside {', '.join(self.registries)}")
        elif fault := astray_image(self.sample):
            yield rule_mistake(("sample",), "img-01", f"{fault}, which is no path below it")
        if fault := moving_image(self.sample):
            yield rule_mistake(("sample",), "img-02", fault)
