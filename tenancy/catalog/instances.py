"""EC2 instance types with NVIDIA GPUs.

Sources:

- moto: moto 5.2.5 `moto/ec2/resources/instance_types.json.gz` (2026-10-27), that is EC2's DescribeInstanceTypes:
  processors, memory, GPUs, EFA, NVMe, network cards;
- Karpenter: karpenter-provider-aws v1.14.1 `pkg/providers/instancetype/zz_generated.vpclimits.go` (2026-05-18): pods
  and network cards. A pod takes an address of the default network card only, so `pods` is that card's interfaces times
  (addresses of one - 1), plus 2 for pods on the host network: 100 on a p5.48xlarge, whose other 31 cards are for EFA.

Both agree wherever both have a type (`tests/unit/catalog/test_instances.py`); a comment says where only one does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance type."""

    gpu: str
    """Key of `BOARDS`; empty: no GPU."""
    gpus: int
    vcpu: int
    memory: int
    """GiB."""
    efa: int
    """EFA interfaces, that is `vpc.amazonaws.com/efa` on a node."""
    nvme: int
    """GB of local disks; 0: none."""
    pods: int
    """As the network interfaces allow, without prefix delegation."""
    network_cards: int = 1
    addresses: int = 50
    """IPv4 addresses of one interface, right where there is EFA: an interface for EFA alone on the default card takes
    the place of one that would serve pods."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    unsupported: str = ""
    """Why pools of this type are not supported; empty if they are."""
    old: bool = False
    """EC2 no longer offers it to new customers or in new regions."""


NOT_NVIDIA = re.compile(r"(dl\d|f\d|g4ad|inf\d|trn\d|vt\d)[a-z0-9]*\.")
"""Beginnings of types with accelerators of other makers: AWS, "Accelerated computing instances", 2026-11-20."""
_IN_NETWORK = {
    4: re.compile(r"p6-b[23]00\."),
    3: re.compile(r"(p3dn|p4d|p4de|p5e|p5en|p6e-gb200|g6e|g7e)\.|p5\.48xlarge$"),
}
"""Number of network layers -> beginnings of the types for which EC2 reports an instance's place in the network, and EKS
sets it as labels of the node: AWS, "Prerequisites for Amazon EC2 topology", 2026-11-23. Further types with EFA have no
such labels: g4dn, g5, g6, gr6, g7 and p5.4xlarge."""
_VGPU = "its GPU is a part of an L4 (vGPU): it needs NVIDIA's GRID driver, which no EKS image carries"
_CUSTOM_IMAGE = "its GPUs need NVIDIA driver 595, and the EKS images carry 580: it takes an image of your own"
_ULTRASERVER = (
    "it comes only as part of an UltraServer, in a capacity block, and its GPUs need an IMEX domain across instances"
)

INSTANCES: Mapping[str, Instance] = MappingProxyType(
    {
        # V100: moto, Karpenter, 2026-11-20. EC2's list has dropped all but p3dn: processors and memory of the other
        # three are from moto 4.2.14 (2024-01). The last driver for Volta is 580.
        "p3.2xlarge": Instance("v100-16gb", 1, 8, 61, 0, 0, 58, old=True),
        "p3.8xlarge": Instance("v100-16gb", 4, 32, 244, 0, 0, 234, old=True),
        "p3.16xlarge": Instance("v100-16gb", 8, 64, 488, 0, 0, 234, old=True),
        "p3dn.24xlarge": Instance("v100-32gb", 8, 96, 768, 1, 1800, 737, old=True),
        # A100: moto, Karpenter, 2026-11-20.
        "p4d.24xlarge": Instance("a100-40gb", 8, 96, 1152, 4, 8000, 737, network_cards=4),
        "p4de.24xlarge": Instance("a100-80gb", 8, 96, 1152, 4, 8000, 737, network_cards=4),
        # H100 and H200: moto, Karpenter, 2026-11-20.
        "p5.4xlarge": Instance("h100-80gb", 1, 16, 256, 1, 3800, 118, addresses=30),
        "p5.48xlarge": Instance("h100-80gb", 8, 192, 2048, 32, 30400, 100, network_cards=32),
        "p5e.48xlarge": Instance("h200-141gb", 8, 192, 2048, 32, 30400, 100, network_cards=32),
        "p5en.48xlarge": Instance("h200-141gb", 8, 192, 2048, 16, 30400, 198, network_cards=16),
        # B200 and B300: moto, Karpenter, 2026-11-20. The first network card of a p6-b300 has no EFA.
        "p6-b200.48xlarge": Instance("b200-180gb", 8, 192, 2048, 8, 30400, 198, network_cards=8),
        "p6-b300.48xlarge": Instance("b300-269gb", 8, 192, 4096, 16, 30400, 198, network_cards=17),
        # GB200: AWS's P6e announcement and HyperPod's constants, 2026-11-20; in neither moto nor Karpenter. EFA and
        # NVMe are not stated per instance, and pods not at all: 0 says unknown here.
        "p6e-gb200.36xlarge": Instance(
            "gb200-186gb", 4, 144, 960, 0, 0, 0, architecture="arm64", unsupported=_ULTRASERVER
        ),
        # T4: moto, Karpenter, 2026-11-20.
        "g4dn.xlarge": Instance("t4", 1, 4, 16, 0, 125, 29),
        "g4dn.2xlarge": Instance("t4", 1, 8, 32, 0, 225, 29),
        "g4dn.4xlarge": Instance("t4", 1, 16, 64, 0, 225, 29),
        "g4dn.8xlarge": Instance("t4", 1, 32, 128, 1, 900, 58, addresses=15),
        "g4dn.12xlarge": Instance("t4", 4, 48, 192, 1, 900, 234, addresses=30),
        "g4dn.16xlarge": Instance("t4", 1, 64, 256, 1, 900, 58, addresses=15),
        "g4dn.metal": Instance("t4", 8, 96, 384, 1, 1800, 737),
        # A10G: moto, Karpenter, 2026-11-20.
        "g5.xlarge": Instance("a10g", 1, 4, 16, 0, 250, 58),
        "g5.2xlarge": Instance("a10g", 1, 8, 32, 0, 450, 58),
        "g5.4xlarge": Instance("a10g", 1, 16, 64, 0, 600, 234),
        "g5.8xlarge": Instance("a10g", 1, 32, 128, 1, 900, 234, addresses=30),
        "g5.12xlarge": Instance("a10g", 4, 48, 192, 1, 3800, 737),
        "g5.16xlarge": Instance("a10g", 1, 64, 256, 1, 1900, 234, addresses=30),
        "g5.24xlarge": Instance("a10g", 4, 96, 384, 1, 3800, 737),
        "g5.48xlarge": Instance("a10g", 8, 192, 768, 1, 7600, 345),
        # T4G, on Graviton: moto, Karpenter, 2026-11-20.
        "g5g.xlarge": Instance("t4g", 1, 4, 8, 0, 0, 58, architecture="arm64"),
        "g5g.2xlarge": Instance("t4g", 1, 8, 16, 0, 0, 58, architecture="arm64"),
        "g5g.4xlarge": Instance("t4g", 1, 16, 32, 0, 0, 234, architecture="arm64"),
        "g5g.8xlarge": Instance("t4g", 1, 32, 64, 0, 0, 234, architecture="arm64"),
        "g5g.16xlarge": Instance("t4g", 2, 64, 128, 0, 0, 737, architecture="arm64"),
        "g5g.metal": Instance("t4g", 2, 64, 128, 0, 0, 737, architecture="arm64"),
        # L4: moto, Karpenter, 2026-11-20.
        "g6.xlarge": Instance("l4", 1, 4, 16, 0, 250, 58),
        "g6.2xlarge": Instance("l4", 1, 8, 32, 0, 450, 58),
        "g6.4xlarge": Instance("l4", 1, 16, 64, 0, 600, 234),
        "g6.8xlarge": Instance("l4", 1, 32, 128, 1, 900, 234, addresses=30),
        "g6.12xlarge": Instance("l4", 4, 48, 192, 1, 3760, 234, addresses=30),
        "g6.16xlarge": Instance("l4", 1, 64, 256, 1, 1880, 737),
        "g6.24xlarge": Instance("l4", 4, 96, 384, 1, 3760, 737),
        "g6.48xlarge": Instance("l4", 8, 192, 768, 1, 7520, 737),
        "gr6.4xlarge": Instance("l4", 1, 16, 128, 0, 600, 234),
        "gr6.8xlarge": Instance("l4", 1, 32, 256, 1, 900, 234, addresses=30),
        # Parts of an L4, an eighth to a half: moto, Karpenter, 2026-11-20. EC2 counts 0 GPUs and one logical GPU.
        "g6f.large": Instance("l4", 1, 2, 8, 0, 100, 20, unsupported=_VGPU),
        "g6f.xlarge": Instance("l4", 1, 4, 16, 0, 100, 58, unsupported=_VGPU),
        "g6f.2xlarge": Instance("l4", 1, 8, 32, 0, 200, 58, unsupported=_VGPU),
        "g6f.4xlarge": Instance("l4", 1, 16, 64, 0, 450, 234, unsupported=_VGPU),
        "gr6f.4xlarge": Instance("l4", 1, 16, 128, 0, 450, 234, unsupported=_VGPU),
        # L40S: moto, Karpenter, 2026-11-20.
        "g6e.xlarge": Instance("l40s", 1, 4, 32, 0, 250, 58),
        "g6e.2xlarge": Instance("l40s", 1, 8, 64, 0, 450, 58),
        "g6e.4xlarge": Instance("l40s", 1, 16, 128, 0, 600, 234),
        "g6e.8xlarge": Instance("l40s", 1, 32, 256, 1, 900, 234, addresses=30),
        "g6e.12xlarge": Instance("l40s", 4, 48, 384, 1, 3800, 292, addresses=30),
        "g6e.16xlarge": Instance("l40s", 1, 64, 512, 1, 1900, 737),
        "g6e.24xlarge": Instance("l40s", 4, 96, 768, 2, 3800, 492, network_cards=2),
        "g6e.48xlarge": Instance("l40s", 8, 192, 1536, 4, 7600, 492, network_cards=4),
        # RTX PRO 4500: moto, Karpenter, 2026-11-20; the driver: amazon-eks-ami `doc/usage/g7-ami.md`.
        "g7.2xlarge": Instance("rtx-pro-4500", 1, 8, 32, 0, 440, 254, unsupported=_CUSTOM_IMAGE),
        "g7.4xlarge": Instance("rtx-pro-4500", 1, 16, 64, 0, 875, 506, unsupported=_CUSTOM_IMAGE),
        "g7.8xlarge": Instance("rtx-pro-4500", 1, 32, 128, 1, 930, 632, unsupported=_CUSTOM_IMAGE, addresses=64),
        "g7.12xlarge": Instance("rtx-pro-4500", 2, 48, 192, 1, 1900, 758, unsupported=_CUSTOM_IMAGE, addresses=64),
        "g7.24xlarge": Instance("rtx-pro-4500", 4, 96, 384, 1, 3800, 1514, unsupported=_CUSTOM_IMAGE, addresses=64),
        "g7.48xlarge": Instance(
            "rtx-pro-4500", 8, 192, 768, 2, 7600, 758, network_cards=2, unsupported=_CUSTOM_IMAGE, addresses=64
        ),
        # RTX PRO 6000 Blackwell Server Edition: moto, Karpenter, 2026-11-20.
        "g7e.2xlarge": Instance("rtx-pro-6000", 1, 8, 64, 0, 1900, 254),
        "g7e.4xlarge": Instance("rtx-pro-6000", 1, 16, 128, 0, 1900, 506),
        "g7e.8xlarge": Instance("rtx-pro-6000", 1, 32, 256, 1, 1900, 506, addresses=64),
        "g7e.12xlarge": Instance("rtx-pro-6000", 2, 48, 512, 1, 3800, 632, addresses=64),
        "g7e.24xlarge": Instance("rtx-pro-6000", 4, 96, 1024, 2, 7600, 632, network_cards=2, addresses=64),
        "g7e.48xlarge": Instance("rtx-pro-6000", 8, 192, 2048, 4, 15200, 632, network_cards=4, addresses=64),
    }
)

_SIZES = {
    "xlarge": (4, 58),
    "2xlarge": (8, 58),
    "4xlarge": (16, 234),
    "8xlarge": (32, 234),
    "12xlarge": (48, 234),
    "16xlarge": (64, 737),
    "24xlarge": (96, 737),
    "48xlarge": (192, 737),
}
"""Processors and pods, which the sizes of one generation share."""


def _general(family: str, gib: int, architecture: Literal["amd64", "arm64"], last: str) -> dict[str, Instance]:
    """A family without GPUs, with `gib` GiB per processor. EFA of its largest sizes is not used."""
    sizes = list(_SIZES)[: list(_SIZES).index(last) + 1]
    return {
        f"{family}.{size}": Instance("", 0, vcpu, gib * vcpu, 0, 0, pods, architecture=architecture)
        for size, (vcpu, pods) in _SIZES.items()
        if size in sizes
    }


GENERAL: Mapping[str, Instance] = MappingProxyType(
    {
        # moto, Karpenter, 2026-11-21.
        **_general("m7i", 4, "amd64", "48xlarge"),
        **_general("c7i", 2, "amd64", "48xlarge"),
        **_general("r7i", 8, "amd64", "48xlarge"),
        **_general("m7g", 4, "arm64", "16xlarge"),
        # Virtual machines inside of EC2 instances need bare metal.
        "m7i.metal-24xl": Instance("", 0, 96, 384, 0, 0, 737),
        "m7i.metal-48xl": Instance("", 0, 192, 768, 0, 0, 737),
    }
)
"""Types for work without GPUs, which taints keep off GPU nodes."""

_GRAVITON = re.compile(r"[a-z]+[0-9]+g|a1\.")
"""EC2 user guide, "Instance type naming conventions": a g behind the generation is the processor; a1 is older."""
_TINY = frozenset({"nano", "micro", "small", "medium"})
"""Sizes of one or two processors, and of 4 GiB at most but for those of one processor."""


def for_services(name: str) -> str | None:
    """Why an instance type cannot run the platform's own services; the type may be outside of the catalogue."""
    if _GRAVITON.match(name):
        return "is arm64, and the image of these nodes is amd64"
    if name.partition(".")[2] in _TINY:
        return "has no room for the platform's services"
    return "has GPUs" if name in INSTANCES else None


MACHINES: Mapping[str, Instance] = MappingProxyType({**INSTANCES, **GENERAL})
"""All instance types of pools."""


def network_layers(name: str) -> int:
    """Number of network layers for which EC2 reports an instance's place; 0 if it reports none for the type."""
    return next((layers for layers, pattern in _IN_NETWORK.items() if pattern.match(name)), 0)
