"""`egress` and `ingress`: traffic that leaves or enters a tenant; everything else is denied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from tenancy.catalog import vocabulary
from tenancy.rules.values import INTERNET, range_of_address, unsafe_range
from tenancy.spec.fields.base import Flag, Port, Slug, Spec, TextForm
from tenancy.spec.reading.mistakes import Mistake, rule_mistake

_Host = Annotated[
    str,
    TextForm(
        r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        "a full host name in lower case, without wildcard, scheme or port",
        "write it like api.vendor.example",
        253,
    ),
]
_Range = Annotated[
    str, TextForm(r"^[0-9a-f.:]+/[0-9]{1,3}$", "an address range with its length", "write it like 198.51.100.0/24", 60)
]


_TO_INTERNET = (
    "write internet: true instead of cidr, and the ranges of nodes and pods, which it leaves out, as "
    "cluster.node-and-pod-cidrs in "
    "environment.yaml"
)


_TO_CACHE = (
    "drop the entry, and set cluster.node-local-dns to true in environment.yaml, which opens NodeLocal DNSCache to all"
)


class _NetworkRule(Spec):
    """One peer, and the destination port of its connections."""

    cidr: _Range | None = Field(default=None, description="Address range of the peer. Default: none.")
    service: Slug | None = Field(
        default=None, description="Name of a service under platform.services of the environment. Default: none."
    )
    port: Port = Field(description="Destination port. Required.")
    protocol: Literal["TCP", "UDP"] = Field(default="TCP", description="Transport protocol. Default: TCP.")

    def mistakes(self) -> Iterator[Mistake]:
        kinds = [name for name in ("dns", "cidr", "service", "internet") if name in type(self).model_fields]
        peers = [name for name in kinds if getattr(self, name)]
        if len(peers) != 1:
            fault = " and ".join(peers) or "none of them"
            yield Mistake((), fault, "an entry names one peer", f"write exactly one of {', '.join(kinds)}")
        elif self.cidr is not None and (unsafe := unsafe_range(self.cidr)):
            everything = self.cidr == INTERNET and "internet" in kinds
            change = _TO_CACHE if self.cidr == vocabulary.DNS_CACHE else range_of_address(self.cidr)
            change = _TO_INTERNET if everything else change
            yield rule_mistake(("cidr",), "net-05", unsafe, change)

    @property
    def place(self) -> str:
        """The peer in words, such as 198.51.100.0/24:8443/TCP."""
        peer = self.cidr or self.service or getattr(self, "dns", None) or "internet"
        return f"{peer}:{self.port}/{self.protocol}"


class EgressRule(_NetworkRule):
    """Egress: a peer outside the tenant that its pods may connect to. Exactly one of dns, cidr, service and internet.
    All other egress is denied."""

    internet: Flag = Field(
        default=False,
        description="Whether the peers are all hosts on the internet, by IPv4. Private ranges, link-local addresses "
        "such as the metadata service's, and the ranges of nodes, pods and services are left out. Default: false.",
    )

    dns: _Host | None = Field(
        default=None, description="Host name of the peer; needs cluster.cni: cilium. Default: none."
    )

    def mistakes(self) -> Iterator[Mistake]:
        yield from super().mistakes()
        if self.dns and self.dns.endswith(_OF_THE_CLUSTER):
            rule = "a host name is outside the cluster: Cilium does not match services of the cluster by name"
            change = "name a service of the platform with service, or open allow-cross-namespace for the tenant's own"
            yield Mistake(("dns",), self.dns, rule, change)


_OF_THE_CLUSTER = (".cluster.local", ".svc")


class IngressRule(_NetworkRule):
    """Ingress: a peer outside the tenant that may connect to its pods. Exactly one of cidr and service. All other
    ingress is denied."""
