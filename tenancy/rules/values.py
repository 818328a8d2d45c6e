"""Rules on plain values, for the spec when a file is read and for the policy pack when a program runs.

Each function returns the given value that breaks its rule, or None.
"""

from __future__ import annotations

import bisect
import datetime as dt
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tenancy.catalog import days, vocabulary
from tenancy.kube.quantities import parse_or_zero

# Of a thousand tenants' files the same few ranges are asked about again and again.
_network = lru_cache(maxsize=10_000)(ipaddress.ip_network)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED_NAME = re.compile(
    rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?(?=[^/]{{1,63}}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
"""Form of a key in Kubernetes (IsQualifiedName): the API server refuses any other key of a quota."""

DNS_LABEL = re.compile(r"[a-z]([a-z0-9]|-(?!-))*(?<!-)")

_STANDARD_QUOTA_KEYS = frozenset(
    {"configmaps", "cpu", "ephemeral-storage", "memory", "persistentvolumeclaims", "pods", "secrets"}
    | {"limits.cpu", "limits.ephemeral-storage", "limits.memory", "replicationcontrollers"}
    | {"requests.cpu", "requests.ephemeral-storage", "requests.memory", "requests.storage"}
    | {"resourcequotas", "services", "services.loadbalancers", "services.nodeports"}
)
_ENFORCED_SUFFIXES = (
    ".storageclass.storage.k8s.io/requests.storage",
    ".storageclass.storage.k8s.io/persistentvolumeclaims",
    ".deviceclass.resource.k8s.io/devices",
)
_METADATA_SERVICES = tuple(
    map(
        ipaddress.ip_network,
        ("169.254.0.0/16", "fd00:ec2::/32", "fe80::/10", "127.0.0.0/8", "::1/128", "::ffff:0:0/96", "64:ff9b::/96"),
    )
)
"""The last two are IPv4 addresses mapped into IPv6."""
_WIDEST = {4: 8, 6: 32}
_BITS = {4: 32, 6: 128}
_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)


_SERVICES_WITHIN = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


def name_misfit(name: str, longest: int) -> str | None:
    """name-01."""
    if not DNS_LABEL.fullmatch(name):
        return f"{name!r}, which is not a DNS label without '{vocabulary.SEPARATOR}'"
    if len(name) > longest:
        return f"{name!r}, {len(name)} characters of {longest}"
    if name in vocabulary.RESERVED_NAMES or name.startswith(vocabulary.RESERVED_PREFIXES):
        return f"{name!r}, which is reserved"
    return None


def reserved_label(key: str) -> str:
    """Why a label's key is not available to tenants' files; empty if it is."""
    domain = key.rpartition("/")[0]
    if key in vocabulary.COST_LABELS or domain == vocabulary.PREFIX.rstrip("/"):
        return f"{key}, which the product sets itself"
    owned = next((d for d in vocabulary.PLATFORM_DOMAINS if domain == d or domain.endswith(f".{d}")), None)
    return f"{key}, a key of {owned}" if owned else ""


def tenants_name(namespace: str) -> str | None:
    """name-01: a namespace without tenants' guards whose name has the form of a tenant's namespace."""
    if vocabulary.SEPARATOR in namespace:
        return f"{namespace!r}, which has the form of a tenant's namespace"
    return None


def unusable_namespace(tenant: str, name: str) -> str | None:
    """name-03: a name on the cluster that no namespace of this tenant can have, in any environment."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        return f"{name!r}, which is not a DNS label"
    if len(name) > vocabulary.LABEL_LENGTH:
        return f"{name!r}, {len(name)} characters of {vocabulary.LABEL_LENGTH}"
    if name in vocabulary.RESERVED_NAMES or name.startswith(vocabulary.RESERVED_PREFIXES):
        return f"{name!r}, which is reserved"
    prefix = vocabulary.derived_name(tenant, "")
    if vocabulary.SEPARATOR in name and (
        not name.startswith(prefix) or vocabulary.SEPARATOR in name.removeprefix(prefix)
    ):
        return f"{name!r}, where '{vocabulary.SEPARATOR}' does not follow the tenant's name"
    return None


def unenforced_quota_keys(keys: Collection[str]) -> list[str]:
    """quota-01: keys that the API server would refuse, or store and never count."""

    def counted(key: str) -> bool:
        if not _QUALIFIED_NAME.fullmatch(key):
            return False
        if "/" not in key:
            return key in _STANDARD_QUOTA_KEYS or key.startswith("requests.hugepages-")
        prefix = key.partition("/")[0]
        return prefix == "count" or prefix.startswith("requests.") or key.endswith(_ENFORCED_SUFFIXES)

    return [key for key in sorted(keys) if not counted(key)]


def gpu_keys(keys: Collection[str]) -> list[str]:
    """quota-02: extended resources, which a limit range must not name."""
    return [key for key in sorted(keys) if "/" in key]


def huge_pages_for_all(amounts: Any) -> list[str]:
    """quota-02: huge pages that a default or a minimum gives to every container."""
    pairs = amounts.items() if isinstance(amounts, Mapping) else ()
    huge = {key: amount for key, amount in pairs if key.startswith("hugepages-")}
    return [key for key, amount in sorted(huge.items()) if parse_or_zero(amount)]


def without_default(max_amounts: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """quota-02: maxima of containers, by resource, that the API server takes for the default as well."""
    return {key: amount for key, amount in sorted(max_amounts.items()) if "/" not in key and key not in default}


_OTHERS_GROUPS = ("system:", "eks:", "aws:", "amazon:", "iam:")
"""Identities of Kubernetes, and of EKS, which access entries refuse."""


def foreign_subject(kind: str, name: str, platform_group: str = "", *, person: bool = False) -> str | None:
    """rbac-05; a group of people is not a group of a pipeline either."""
    if person and name.startswith("tenancy:"):
        return f"{kind} {name!r}"
    if name.startswith(_OTHERS_GROUPS) and kind != "ServiceAccount":
        return f"{kind} {name!r}"
    if not name or name in {"*", platform_group}:
        return f"{kind} {name!r}"
    return None


IMAGE_ASTRAY = "/([^0-9a-z]|$)|[^0-9A-Za-z._:@/-]"
"""Matches parts of an image's name that lead out of a registry's folder or are invalid: each part of the path begins
with a letter or digit (distribution, reference/regexp.go). The guards use it too, with RE2."""
IMAGE_DIGEST = "@sha256:[0-9a-f]{64}$"


def astray_image(name: str) -> str | None:
    """img-01: an image's name that is not a path below its registry, such as registry/team/../x."""
    return f"image {name!r}" if re.search(IMAGE_ASTRAY, name) else None


def moving_image(name: str, *, tags: bool = True) -> str | None:
    """img-02: an image by a moving tag, or by any tag if only digests are allowed; a digest must be complete."""
    tag = name.rpartition("/")[2].partition(":")[2]
    stays = re.search(IMAGE_DIGEST, name) if "@" in name else tags and tag and tag != "latest"
    return None if stays else f"image {name!r}"


def unsafe_range(cidr: str) -> str | None:
    """net-05: a range that is too wide or covers link-local, loopback or instance-metadata addresses."""
    try:
        network = _network(cidr)
    except ValueError as error:
        return f"{cidr!r}, no address range ({error})"
    if "/" not in cidr or cidr.rpartition("/")[2] != str(network.prefixlen):
        return f"{cidr!r}, which has no length such as /24"
    if network.prefixlen < _WIDEST[network.version]:
        return f"{cidr!r}, wider than /{_WIDEST[network.version]}"
    for service in _METADATA_SERVICES:
        if service.version == network.version and service.overlaps(network):
            if cidr == vocabulary.DNS_CACHE:
                return f"{cidr!r}, NodeLocal DNSCache, which cluster.node-local-dns of the environment opens for DNS"
            return f"{cidr!r}, which {'lies in' if network.prefixlen >= service.prefixlen else 'contains'} {service}"
    return None


def range_of_address(cidr: str) -> str | None:
    """The change to an address with the length of the range that it lies in; None if the range itself is refused."""
    try:
        network = ipaddress.ip_interface(cidr).network
    except ValueError:
        return None
    return None if str(network) == cidr or unsafe_range(str(network)) else f"write {network}"


INTERNET = "0.0.0.0/0"
NOT_INTERNET = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
)
"""IPv4 ranges of no host on the internet: private and shared addresses, loopback, link-local (the metadata service, the
Pod Identity agent), benchmarks, multicast and reserved ones. IANA IPv4 Special-Purpose Address Registry, 2026-11-24."""


def outside_of_internet(own_ranges: Sequence[str]) -> tuple[str, ...]:
    """Exceptions of the ipBlock of all IPv4 addresses that is the internet: private ranges, and the cluster's own."""
    left_out = [
        ipaddress.IPv4Network(cidr) for cidr in (*NOT_INTERNET, *(cidr for cidr in own_ranges if ":" not in cidr))
    ]
    return tuple(str(network) for network in sorted(_merged(left_out)))


def internet_block(own_ranges: Sequence[str]) -> dict[str, object]:
    """The one ipBlock that is the internet, with the cluster's own ranges left out."""
    return {"cidr": INTERNET, "except": list(outside_of_internet(own_ranges))}


def is_internet(block: Mapping[str, Any]) -> bool:
    """Whether an ipBlock is the internet and leaves out each range that is not."""
    if block.get("cidr") != INTERNET or not isinstance(block.get("except"), list | tuple):
        return False
    try:
        left_out = _merged([ipaddress.IPv4Network(str(cidr)) for cidr in block["except"]])
    except ValueError:
        return False
    return all(any(ipaddress.IPv4Network(cidr).subnet_of(out) for out in left_out) for cidr in NOT_INTERNET)


def too_wide_together(cidrs: Sequence[str]) -> tuple[int, str] | None:
    """net-05: the first of some ranges with which they exceed the limit together, and the sum.

    Each range counts once, also if it is named again; a range that is unsafe by itself is reported by itself.
    """
    if len(cidrs) < 2:
        return None
    safe = [(i, _network(cidr)) for i, cidr in enumerate(cidrs) if not unsafe_range(cidr)]
    for version, widest in _WIDEST.items():
        same_version = [(i, network) for i, network in safe if network.version == version]

        def sum_of(count: int, networks: Any = same_version) -> int:
            return sum(block.num_addresses for block in _merged([network for _, network in networks[:count]]))

        if sum_of(len(same_version)) > (max_addresses := 2 ** (_BITS[version] - widest)):
            position = bisect.bisect_right(range(len(same_version) + 1), max_addresses, key=sum_of)
            last, network = same_version[position - 1]
            return last, f"'{network}', which with {position - 1} more is wider than /{widest}"
    return None


def _merged(networks: Any) -> list[Any]:
    """Ranges of one family, each address once."""
    return [*ipaddress.collapse_addresses(networks)] if len(networks) > 1 else [*networks]


def whole_private(cidrs: Collection[str]) -> str | None:
    """net-05: a private range that is allowed as a whole."""
    networks = [_network(cidr) for cidr in cidrs if cidr and not unsafe_range(cidr)]
    for private_block in _PRIVATE:
        if any(
            private_block.subnet_of(block)
            for block in _merged([candidate for candidate in networks if candidate.version == private_block.version])
        ):
            return f"all of {private_block}, which may hold nodes and pods"
    return None


def inside(cidr: str, ranges: Collection[str], whose: str = "nodes and pods") -> str | None:
    """net-05: a range that contains addresses of the cluster."""
    network = _network(cidr, strict=False)
    for text in ranges:
        cluster_range = _network(text, strict=False)
        if cluster_range.version == network.version and cluster_range.overlaps(network):
            return f"{cidr!r}, which overlaps {text}, where {whose} are"
    return None


def holds_pods(cidr: str, ranges: Collection[str], *, builds_vpc: bool) -> str | None:
    """net-05: a range of endpoints that contains pods too.

    Endpoints have addresses of the cluster's ranges. In a VPC that is made here they share subnets with pods, so only
    single addresses can be named.
    """
    network = _network(cidr)
    for text in ranges:
        pod_range = _network(text, strict=False)
        if pod_range.version != network.version or not pod_range.overlaps(network):
            continue
        if network.prefixlen <= pod_range.prefixlen or (builds_vpc and network.num_addresses > 1):
            return f"{cidr!r}, which contains nodes and pods in {text}"
    return None


def is_service_cidr(cidr: str) -> bool:
    """Whether EKS accepts a range for services (EKS API reference, KubernetesNetworkConfigRequest)."""
    network = _network(cidr, strict=False)
    return 12 <= network.prefixlen <= 24 and any(
        isinstance(network, ipaddress.IPv4Network) and network.subnet_of(block) for block in _SERVICES_WITHIN
    )


def is_private(cidr: str) -> bool:
    """Whether a range contains private addresses, as those of a cluster are."""
    network = _network(cidr, strict=False)
    return any(block.version == network.version and block.overlaps(network) for block in _PRIVATE)


def wide_range(cidr: str) -> str | None:
    """eks-01: a range that is too wide, or invalid."""
    try:
        network = _network(cidr, strict=False)
    except ValueError as error:
        return f"{cidr!r}, no address range ({error})"
    if network.prefixlen < _WIDEST[network.version]:
        return f"{cidr!r}, wider than /{_WIDEST[network.version]}"
    return None


_NEVER_PUBLIC = (
    *_PRIVATE,
    *map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    ),
)
"""Ranges that are not routed on the internet (RFC 6890), and that EKS refuses. Those for documentation are not among
them: EKS' own examples use them."""
MOST_PUBLIC = 40
"""Maximum of ranges with access to an API server: EKS "Endpoints and quotas", public endpoint access CIDR ranges,
2026-11-23."""


def never_public(cidr: str) -> str | None:
    """eks-01: an IPv4 range that EKS refuses when it makes a cluster, after network, key and roles are made."""
    network = _network(cidr, strict=False)
    if network.version == 6:
        return None
    for reserved_block in _NEVER_PUBLIC:
        if reserved_block.version == 4 and reserved_block.overlaps(network):
            return f"{cidr!r}, which overlaps {reserved_block}, which is not routed on the internet"
    if str(network) != cidr:
        return f"{cidr!r}, an address with the length of a range: its range is {network}"
    return None


def unsafe_prefix(prefix: str) -> str | None:
    """stor-01. In a policy's JSON each character of a prefix is one byte, so that its length can be computed."""
    if not prefix.endswith("/") or prefix.startswith("/"):
        return f"{prefix!r}"
    if any(part in {"", ".", ".."} for part in prefix[:-1].split("/")):
        return f"{prefix!r}"
    if re.search(r"[*?$\\{}\"\s]", prefix) or not (prefix.isascii() and prefix.isprintable()):
        return f"{prefix!r}"
    return None


def foreign_arn(arn: str, account: str, region: str) -> str | None:
    """aws-01: an ARN of another account, partition or region; ARNs of AWS itself or without a region are accepted."""
    _, partition, _, where, whose, *_ = [*arn.split(":", 5), *[""] * 6]
    chinese, government = region.startswith("cn-"), region.startswith("us-gov-")
    if partition != ("aws-cn" if chinese else "aws-us-gov" if government else "aws"):
        return f"{arn}, of partition {partition}"
    if whose not in {account, "aws"}:
        return f"{arn}, of account {whose}"
    if where not in {"", region}:
        return f"{arn}, of region {where}"
    return None


_BROAD = re.compile(r"[*?${}\"\\\s]")


def broad_subject(text: str, *, path: bool) -> str | None:
    """aws-05: a part of an OIDC subject that matches more than one thing, or that could be read as two parts."""
    if _BROAD.search(text) or ":" in text or not text.isascii() or not text.isprintable():
        return repr(text)
    if path and (len(text.split("/")) < 2 or any(part in {"", ".", ".."} for part in text.split("/"))):
        return repr(text)
    return None


def day(text: str) -> dt.date | None:
    """The day that a text of the form 2027-01-31 means."""
    try:
        return dt.date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


LONGEST_EXCEPTION = 366
"""Maximum validity of an exception, days: one review a year."""


def unbounded_end(until: dt.date, today: dt.date | None = None) -> str | None:
    """exc-01: a last day that is past, or further ahead than the maximum validity."""
    ahead = (until - (today or days.today())).days
    if ahead < 0:
        return f"until: {until}, which is past"
    if ahead > LONGEST_EXCEPTION:
        return f"until: {until}, which is {ahead} days ahead"
    return None


def weak_pod_security(level: str | None) -> str | None:
    """ns-03."""
    return None if level == "restricted" else f"{level or 'no level'}"
