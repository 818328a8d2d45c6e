"""Bandwidth limits that alerts compare measured rates with: an instance's default network card, and a GPU's PCIe link.

The network limit is that of the default card, which has the node's own address and those of its pods. EFA is not in it:
traffic through the other cards bypasses the kernel and is in no interface counter.

Source: EC2 DescribeInstanceTypes, `NetworkInfo.NetworkCards[0].BaselineBandwidthInGbps`, as moto 5.2 keeps it, read
2026-11-21. The alert omits types that are not listed there.
"""

from __future__ import annotations

from collections.abc import Mapping

_TYPES: Mapping[float, str] = {
    1.25: "g5g.xlarge",
    1.5: "g6f.large",
    2.5: "g5.xlarge g5g.2xlarge g6.xlarge g6f.xlarge g6e.xlarge",
    5: "g4dn.xlarge g5.2xlarge g5g.4xlarge g6.2xlarge g6f.2xlarge g6e.2xlarge",
    10: "g4dn.2xlarge g5.4xlarge g6.4xlarge gr6.4xlarge g6f.4xlarge gr6f.4xlarge",
    12: "g5g.8xlarge",
    20: "g4dn.4xlarge g6e.4xlarge",
    25: "g5.8xlarge g5.16xlarge g5g.16xlarge g5g.metal g6.8xlarge g6.16xlarge gr6.8xlarge g6e.8xlarge",
    35: "g6e.16xlarge",
    40: "g5.12xlarge g6.12xlarge g7.2xlarge",
    50: "g4dn.8xlarge g4dn.12xlarge g4dn.16xlarge g5.24xlarge g6.24xlarge g7e.2xlarge g7e.4xlarge",
    80: "g7.4xlarge",
    100: (
        "p3dn.24xlarge p4d.24xlarge p4de.24xlarge p5.4xlarge p5.48xlarge p5e.48xlarge g4dn.metal g5.48xlarge "
        "g6.48xlarge g6e.12xlarge g7.8xlarge g7e.8xlarge"
    ),
    175: "g7.12xlarge",
    200: "p5en.48xlarge p6-b200.48xlarge g6e.24xlarge",
    350: "p6-b300.48xlarge g7.24xlarge g7.48xlarge",
    400: "g6e.48xlarge g7e.12xlarge g7e.24xlarge g7e.48xlarge",
}

GIGABITS: Mapping[str, float] = {name: rate for rate, names in _TYPES.items() for name in names.split()}
"""A second, in each direction, by instance type."""

PCIE_BYTES: Mapping[str, float] = {
    "volta": 15.75e9,
    "turing": 15.75e9,
    "ampere": 31.5e9,
    "ada": 31.5e9,
    "hopper": 63e9,
    "blackwell": 63e9,
}
"""Bytes a second in each direction over 16 lanes, by GPU architecture: PCIe 3.0, 4.0 and 5.0 after line coding.

Source: NVIDIA's data sheets of V100, T4, A100, L4, H100 and B200, read 2026-11-23. B300 links at 6.0 are twice as fast:
their alert fires early, at half of the threshold."""
