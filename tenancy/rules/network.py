"""Rules on network policies, services and ingresses of tenants, each by itself and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.kube.kinds import group_of
from tenancy.rules import cilium
from tenancy.rules.declared import undeclared
from tenancy.rules.found import UNKNOWN, Finding, Given, Object, at, finding_on, name_of
from tenancy.rules.owned import annotations_of, is_ours, is_tenants, labels_of, plain_value, spec_of
from tenancy.rules.values import (
    is_internet,
    publishes,
    too_wide_together,
    unsafe_range,
)


def _network_policy(item: Object, homes: Mapping[str, str] = MappingProxyType({})) -> Given:
    """net-02, net-05; `homes` are the namespaces that are known to be a tenant's, with their tenants."""
    if not is_tenants(item):
        return
    tenant = labels_of(item)[words.TENANT]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in spec_of(item).get(direction) or ():
            peers = rule.get(side)
            if not peers:
                yield "net-02", f"{direction} without '{side}', which allows every peer"
            for peer in peers or ():
                block = peer.get("ipBlock")
                mine = direction == "egress" and block and block.get("cidr") == words.IDENTITY_AGENT
                mine = mine or (direction == "egress" and bool(block) and is_internet(block))
                if block and not mine and (given := unsafe_range(str(block.get("cidr")))):
                    yield "net-05", f"{direction} {given}"
                selector = peer.get("namespaceSelector")
                if selector is not None and not _stays_home(peer, tenant, direction, rule, homes):
                    unknown = f" with ports {UNKNOWN}" if UNKNOWN in str(rule.get("ports")) else ""
                    yield "net-02", f"{direction} namespaceSelector {plain_value(selector)} of tenant {tenant}{unknown}"


def _stays_home(peer: Object, tenant: str, direction: str, rule: Object, homes: Mapping[str, str]) -> bool:
    labels = peer["namespaceSelector"].get("matchLabels") or {}
    if labels.get(words.TENANT) == tenant:
        return True
    ports = {(port.get("port"), port.get("endPort", port.get("port"))) for port in rule.get("ports") or ()}
    space = str(labels.get(words.SPACE_NAME, words.SEPARATOR))
    if space in homes:
        return homes[space] == tenant
    if direction == "egress" and space == "kube-system" and ports == {(53, 53)}:
        return True
    # A service of the platform: no tenant's namespace has such a name.
    pods = (peer.get("podSelector") or {}).get("matchLabels")
    named = bool(ports) and None not in {first for first, _ in ports}
    return words.SEPARATOR not in space and space != "default" and bool(pods) and named


def _cilium(item: Object) -> Given:
    if is_tenants(item):
        yield from cilium.in_namespace(item, labels_of(item)[words.TENANT], {})


def _clusterwide(item: Object) -> Given:
    if is_ours(item):
        yield from cilium.clusterwide(item, {})


def opened_to_neighbours(items: Iterable[Object], homes: Mapping[str, str]) -> Iterator[Finding]:
    """net-02, net-05 with the tenants of the namespaces that a policy names."""
    for item in items:
        kind = item.get("kind")
        found: Given = iter(())
        if kind == "NetworkPolicy":
            found = _network_policy(item, homes)
        elif kind == cilium.IN_NAMESPACE and is_tenants(item):
            found = cilium.in_namespace(item, labels_of(item)[words.TENANT], homes)
        elif kind == cilium.CLUSTERWIDE and homes:
            found = cilium.clusterwide(item, homes)
        together = {finding_on(item, rule, given): None for rule, given in found}
        alone = {finding_on(item, rule, given) for rule, given in CHECKS[str(kind)](item)} if together else set()
        yield from (finding for finding in together if finding not in alone)


def opened_beyond_the_file(
    items: Iterable[Object], spaces: Mapping[str, Object], homes: Mapping[str, str]
) -> Iterator[Finding]:
    """net-02 for traffic that is not allowed in this namespace, but may be in another."""
    for item in items:
        space = spaces.get(str(at(item, "metadata", "namespace")))
        if item.get("kind") != "NetworkPolicy" or space is None:
            continue
        said = any(rule == "net-02" for rule, _ in (*_network_policy(item), *_network_policy(item, homes)))
        for given in () if said else undeclared(item, space):
            yield finding_on(item, "net-02", given)


def opened_together(items: Iterable[Object]) -> Iterator[Finding]:
    """net-05 on the ranges of all policies in a namespace together, because policies add up."""
    opened: dict[tuple[str, str], list[tuple[Object, str]]] = {}
    kinds = {"NetworkPolicy", cilium.IN_NAMESPACE}
    # The finding names the same policy in any order.
    for item in sorted((one for one in items if one.get("kind") in kinds and is_tenants(one)), key=name_of):
        kind = item["kind"]
        for direction in ("ingress", "egress"):
            found = cilium.ranges(item, direction) if kind == cilium.IN_NAMESPACE else _ranges(item, direction)
            where = str(at(item, "metadata", "namespace")), direction
            opened.setdefault(where, []).extend((item, cidr) for cidr in found)
    for (_, direction), ranges in opened.items():
        if found := too_wide_together([cidr for _, cidr in ranges]):
            yield finding_on(ranges[found[0]][0], "net-05", f"{direction} {found[1]}")


def _ranges(policy: Object, direction: str) -> list[str]:
    side = {"ingress": "from", "egress": "to"}[direction]
    peers = [peer for rule in spec_of(policy).get(direction) or () for peer in rule.get(side) or ()]
    return [str(at(peer, "ipBlock", "cidr")) for peer in peers if peer.get("ipBlock")]


def _service(item: Object) -> Given:
    if not is_tenants(item):
        return
    spec = spec_of(item)
    if spec.get("type", "ClusterIP") != "ClusterIP":
        yield "net-01", f"type {spec['type']}"
    if spec.get("externalIPs"):
        yield "net-01", f"externalIPs {list(spec['externalIPs'])}"
    if spec.get("externalName"):
        yield "net-01", f"externalName {spec['externalName']}"
    notes = annotations_of(item)
    for key in filter(publishes, notes) if isinstance(notes, Mapping) else ():
        yield "net-01", f"annotation {key}: {notes[key]}"


RAY = ("RayCluster", "RayCronJob", "RayJob", "RayService")
"""KubeRay's kinds (v1.6.2), each with a cluster's spec in it."""


def ray(item: Object) -> Given:
    """net-01 on every cluster in an object of KubeRay, which publishes a head's dashboard by an Ingress."""
    if is_tenants(item) and group_of(item) == "ray.io":
        for where, head in _ray_heads(item.get("spec"), "spec"):
            if at(head, "enableIngress") is True:
                yield "net-01", f"{where}.enableIngress: true"


def _ray_heads(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The heads of the clusters in a field of KubeRay's kinds, at any depth, with their paths."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        path = f"{where}.{key}"
        if key == "headGroupSpec":
            yield path, inner
        elif isinstance(inner, Mapping):
            yield from _ray_heads(inner, path)


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    cilium.CLUSTERWIDE: _clusterwide,
    cilium.IN_NAMESPACE: _cilium,
    "NetworkPolicy": _network_policy,
    "Service": _service,
}
