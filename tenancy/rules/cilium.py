"""net-02 and net-05 on Cilium's policies, which have more kinds of peers than NetworkPolicies.

Rules that allow no traffic are no finding: denies, `ingress: [{}]` (a default-deny in Cilium), and selectors without a
namespace in a namespaced policy, to which Cilium adds the policy's namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.rules.findings import Given, Object
from tenancy.rules.owned import plain_value
from tenancy.rules.values import unsafe_range

IN_NAMESPACE, CLUSTERWIDE = "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"
_SIDES = (("ingress", "from"), ("egress", "to"))
_SPACE = "io.kubernetes.pod.namespace"
_SPACE_LABEL = "io.cilium.k8s.namespace.labels."
_RESERVED = "reserved:"
_AGENT_PORT = 80
"""Port of EKS Pod Identity's agent, which is the node to Cilium."""
_HARMLESS = {
    "ingress": frozenset({"health", "host", "kube-apiserver", "none"}),  # the kubelet's probes come from the host
    "egress": frozenset({"health", "none"}),
}
"""Entities that no tenant can use to reach another. The node and the API server are checked by their ports."""
_WORLDS = {"world": "0.0.0.0/0", "world-ipv4": "0.0.0.0/0", "world-ipv6": "::/0"}
_PEERS = ("Endpoints", "Entities", "CIDR", "CIDRSet", "FQDNs", "Services", "Nodes", "Groups")


@dataclass(frozen=True, slots=True)
class _SelectedPods:
    """The pods that a policy selects: a tenant's, in the namespace of the policy, or without one in any namespace."""

    tenant: str | None
    namespace: str | None
    homes: Mapping[str, str]
    """Namespaces that are known to be a tenant's, with their tenants."""

    def may_be_anothers(self, space: str) -> bool:
        if space in self.homes:
            return self.homes[space] != self.tenant
        return vocabulary.SEPARATOR in space or space == "default"


def in_namespace(policy: Object, tenant: str, homes: Mapping[str, str]) -> Given:
    """Findings for a CiliumNetworkPolicy in a tenant's namespace that allows too much."""
    whose = _SelectedPods(tenant, str(get_path(policy, "metadata", "namespace")), homes)
    for spec in specs(policy):
        yield from _opened(spec, whose)


def clusterwide(policy: Object, homes: Mapping[str, str]) -> Given:
    """Findings for a CiliumClusterwideNetworkPolicy that allows too much and may select a tenant's pods."""
    for spec in specs(policy):
        pods = _read(get_path(spec, "endpointSelector"))
        if get_path(spec, "nodeSelector") is not None or pods.reserved:
            continue  # it does not select pods
        whose = _SelectedPods(pods.tenant, None, homes)
        if not pods.spaces or any(space in homes or whose.may_be_anothers(space) for space in pods.spaces):
            yield from _opened(spec, whose)


def specs(policy: Object) -> list[Any]:
    """The specs of a Cilium policy, under `spec` and under `specs`."""
    return [
        spec for spec in (policy.get("spec"), *as_list(policy.get("specs"))) if spec is not None and spec != UNKNOWN
    ]


def spaces_of(selector: Any) -> tuple[str, ...]:
    """Names of the namespaces that a selector matches; none if it matches a reserved identity of Cilium."""
    pods = _read(selector)
    return () if pods.reserved else pods.spaces


def ranges(policy: Object, direction: str) -> list[str]:
    """Address ranges that a policy allows in a direction."""
    side = dict(_SIDES)[direction]
    rules = [rule for spec in specs(policy) for rule in as_list(get_path(spec, direction))]
    peers = [peer for rule in rules for kind in ("CIDR", "CIDRSet") for peer in as_list(get_path(rule, side + kind))]
    return [str(peer if isinstance(peer, str) else get_path(peer, "cidr")) for peer in peers]


def opens_dns(policy: Object) -> bool:
    """net-08: whether a policy allows pods DNS queries, as far as it shows."""
    if UNKNOWN in str([policy.get("spec"), policy.get("specs")]):
        return True
    for spec in specs(policy):
        for rule in as_list(get_path(spec, "egress")):
            ports = _ports(rule)
            wide = ports is None and (
                get_path(rule, "toEntities")
                or any(_read(peer_selector).spaces for peer_selector in as_list(get_path(rule, "toEndpoints")))
            )
            if wide or any(first <= 53 <= last for first, last in ports or ()):
                return True
    return False


def _opened(spec: Any, whose: _SelectedPods) -> Given:
    for direction, side in _SIDES:
        for rule in as_list(get_path(spec, direction)):
            narrowed = [f"{side}{peer}" for peer in _PEERS if get_path(rule, f"{side}{peer}")]
            if not narrowed and (get_path(rule, "toPorts") or get_path(rule, "icmps")):
                yield "net-02", f"{direction} by ports alone, which allows every peer"
            for key in narrowed:
                for peer in as_list(get_path(rule, key)):
                    yield from _peer(direction, key, peer, rule, whose)


def _peer(direction: str, key: str, peer: Any, rule: Any, whose: _SelectedPods) -> Given:
    if peer == UNKNOWN:
        return  # reported as seen-02
    kind = key.removeprefix("from").removeprefix("to")
    if kind == "Entities":
        yield from _entity(direction, str(peer), rule)
    elif kind == "Endpoints":
        if detail := _foreign_pods(peer, direction, rule, whose):
            yield "net-02", f"{direction} {key} {detail}"
    elif kind in {"CIDR", "CIDRSet"}:
        yield from _range(direction, peer)
    elif kind == "FQDNs":
        if not str(get_path(peer, "matchPattern") or "x").strip("*."):
            yield "net-05", f"{direction} {key} matchPattern {get_path(peer, 'matchPattern')}, which is every name"
    elif kind == "Services":
        yield from _service(direction, key, peer, whose)
    elif kind == "Nodes":
        yield "net-02", f"{direction} {key} {plain_value(peer)}, which are nodes"
    else:
        yield "net-05", f"{direction} {key} {plain_value(peer)}, whose addresses no object shows"


def _entity(direction: str, entity: str, rule: Any) -> Given:
    ports = _ports(rule)
    of_agent = entity == "host" and direction == "egress" and ports == [(_AGENT_PORT, _AGENT_PORT)]
    of_server = entity == "kube-apiserver" and ports is not None
    if entity in _WORLDS:
        yield "net-05", f"{direction} entity {entity}, which is {_WORLDS[entity]}"
    elif entity not in _HARMLESS[direction] and not of_agent and not of_server:
        yield "net-02", f"{direction} entity {entity}{_unknown_ports(rule)}"


def _range(direction: str, peer: Any) -> Given:
    cidr = peer if isinstance(peer, str) else get_path(peer, "cidr")
    if cidr is None:
        group = get_path(peer, "cidrGroupRef") or get_path(peer, "cidrGroupSelector")
        yield "net-05", f"{direction} of the CIDR group {plain_value(group)}, whose ranges no policy shows"
    elif not (direction == "egress" and cidr == vocabulary.IDENTITY_AGENT) and (detail := unsafe_range(str(cidr))):
        yield "net-05", f"{direction} {detail}"


def _service(direction: str, key: str, peer: Any, whose: _SelectedPods) -> Given:
    for form in ("k8sService", "k8sServiceSelector"):
        if (reference := get_path(peer, form)) is not None:
            # Without a namespace Cilium matches services of that name or label in all namespaces.
            space = get_path(reference, "namespace")
            if not space or (space != whose.namespace and whose.may_be_anothers(str(space))):
                yield "net-02", f"{direction} {key} {plain_value(reference)}"


@dataclass(frozen=True, slots=True)
class _Selected:
    """The namespaces that a selector of Cilium matches."""

    spaces: tuple[str, ...]
    """Names that it matches, if it names any."""
    tenant: str | None
    """The tenant whose namespaces it matches, by their label."""
    bound: bool
    """Whether it has requirements on namespaces; if not, Cilium adds the policy's namespace."""
    reserved: bool
    pods: bool
    """Whether it has requirements on pods."""


def _read(selector: Any) -> _Selected:
    labels = get_path(selector, "matchLabels")
    # Each requirement as the values that it matches; None if it matches others too.
    requirements: list[tuple[str, tuple[str, ...] | None]] = []
    requirements += [
        (str(key), (str(value),)) for key, value in (labels if isinstance(labels, Mapping) else {}).items()
    ]
    for expression in as_list(get_path(selector, "matchExpressions")):
        values = (
            tuple(map(str, as_list(get_path(expression, "values"))))
            if get_path(expression, "operator") == "In"
            else None
        )
        requirements.append((str(get_path(expression, "key")), values))
    spaces: tuple[str, ...] = ()
    tenant, bound, reserved, pods = None, False, False, False
    for key, values in requirements:
        name = key.removeprefix("k8s:").removeprefix("any:")
        if key.startswith(_RESERVED):
            reserved = True
        elif name == _SPACE:
            bound, spaces = True, values or spaces
        elif name.startswith(_SPACE_LABEL):
            bound = True
            if name == _SPACE_LABEL + vocabulary.TENANT and values and len(values) == 1:
                tenant = values[0]
        else:
            pods |= values is not None
    return _Selected(spaces, tenant, bound, reserved, pods)


def _foreign_pods(selector: Any, direction: str, rule: Any, whose: _SelectedPods) -> str | None:
    pods, ports = _read(selector), _ports(rule)
    detail = f"{plain_value(selector)} of {f'tenant {whose.tenant}' if whose.tenant else 'any tenant'}"
    if not pods.reserved and not pods.bound:
        return None if whose.namespace else f"{plain_value(selector)}, which is every pod"
    if pods.tenant is not None and pods.tenant == whose.tenant and not pods.reserved:
        return None
    if pods.reserved or not pods.spaces:
        return detail
    for space in pods.spaces:
        dns = direction == "egress" and space == "kube-system" and ports == [(53, 53)]
        is_own_namespace = space == whose.namespace or (space in whose.homes and whose.homes[space] == whose.tenant)
        served = pods.pods and ports is not None and not whose.may_be_anothers(space)
        if not is_own_namespace and not dns and not served:
            return detail + _unknown_ports(rule)
    return None


_BY_NAME = (-1, -1)


def _ports(rule: Any) -> list[tuple[int, int]] | None:
    """Ranges of ports that a rule names, each once; None if it allows all."""
    ranges: dict[tuple[int, int], None] = {}
    for port_rule in as_list(get_path(rule, "toPorts")):
        ports = as_list(get_path(port_rule, "ports"))
        for port in ports:
            text = {"dns": "53", "dns-tcp": "53"}.get(str(get_path(port, "port")), str(get_path(port, "port")))
            if text in {"0", "None"}:
                return None
            end = str(get_path(port, "endPort") or text)
            numbered = text.isdecimal() and end.isdecimal()
            ranges[(int(text), max(int(text), int(end))) if numbered else _BY_NAME] = None
        if not ports:
            return None
    return [*ranges] or None


def _unknown_ports(rule: Any) -> str:
    return f" with ports {UNKNOWN}" if UNKNOWN in str(get_path(rule, "toPorts")) else ""
