"""Rules on network policies, services and ingresses of tenants, each by itself and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_network
from types import MappingProxyType
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.vocabulary import Allowance
from tenancy.kube.objects import UNKNOWN, get_path, labels_of, name_of
from tenancy.kube.requests import core
from tenancy.rules import cilium
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put
from tenancy.rules.expressions import (
    by_framework,
    by_platform,
    cel,
    in_tenants_namespaces,
    may,
    unless_by_controller,
)
from tenancy.rules.findings import Finding, Given, Object, finding_on
from tenancy.rules.model import GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.owned import is_ours, is_tenants, plain_value, spec_of
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.values import (
    is_internet,
    too_wide_together,
    unsafe_range,
)
from tenancy.rules.workloads import (
    ALL_KINDS,
    Case,
    at_home,
    create,
    in_queue,
    kinds_of,
    minimal,
    through,
    through_all_kinds,
)

# Annotations of pods that a network or a runtime obeys. Network plugins, by domain (a domain covers those below it):
#   k8s.v1.cni.cncf.io, v1.multus-cni.io   more networks, the default one: Multus, docs/configuration.md
#   vpc.amazonaws.com, k8s.amazonaws.com   ENIs, addresses that load balancers believe: amazon-vpc-cni-k8s README
#   cni.projectcalico.org                  addresses, pools, allowed source prefixes: Calico, "pod annotations"
#   k8s.ovn.org, ovn.kubernetes.io         OVN-Kubernetes; Kube-OVN, addresses and gateways
#   cilium.io                              policy.cilium.io/no-track-port, ipam.cilium.io/ip-pool, bandwidth.cilium.io:
#                                          cilium pkg/annotation/k8s.go
# and runtimes:
#   cri-o.io, crio.io                      seccomp, processors: CRI-O, pkg/annotations
#   nri.io, noderesource.dev               devices and mounts: containerd/nri, plugins/device-injector
#   containerd.io                          where the restart monitor writes: containerd, core/runtime/restart
NETWORK_DOMAINS = (
    *("cilium.io", "cni.projectcalico.org", "k8s.amazonaws.com", "k8s.ovn.org", "k8s.v1.cni.cncf.io"),
    *("ovn.kubernetes.io", "v1.multus-cni.io", "vpc.amazonaws.com"),
)
RUNTIME_DOMAINS = ("containerd.io", "cri-o.io", "crio.io", "noderesource.dev", "nri.io")
# Keys without a domain, by how they begin: Kata's hypervisor (kata-containers, docs/how-to/how-to-set-sandbox-config),
# CRI-O's devices and containerd's untrusted runtime, gVisor's mounts, Cilium's older names.
SANDBOX_PREFIXES = ("dev.gvisor.", "io.cilium.", "io.katacontainers.", "io.kubernetes.cri-o.", "io.kubernetes.cri.")
DOMAINS_OF_NODE = cel([f".{domain}" for domain in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS, "cdi.k8s.io")])
"""Domains of annotations that the node obeys: each is judged by net-07 or gpu-05."""
_DOMAINS = cel([f".{domain}" for domain in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS)])
_HARMLESS = cel(["app.kubernetes.io/", "kubectl.kubernetes.io/", "service.kubernetes.io/topology-mode"])
_CONTROLLERS = cel(["kubernetes.io", "k8s.io", "k8s.aws", "amazonaws.com", "cilium.io", "io.cilium"])
"""Domains of controllers that publish a service, name it or open it to other clusters by its annotations; the last is
the prefix of Cilium's older names."""
_INGRESS = "dyn(object).spec.{0}headGroupSpec.?enableIngress.orValue(false)"
_INGRESSES = {
    "RayCluster": f"!{_INGRESS.format('')}",
    "RayJob": f"(!has(dyn(object).spec.rayClusterSpec) || !{_INGRESS.format('rayClusterSpec.')})",
}
# By now every service has an address. An address that a client chose has a field manager; one that the API server
# chose has none.
_GIVEN_ADDRESS = """object.spec.?clusterIP.orValue('None') == 'None'
        || dyn(object).metadata.?managedFields.orValue([]).all(m, !m.?fieldsV1[?'f:spec'][?'f:clusterIP'].hasValue()
            && !m.?fieldsV1[?'f:spec'][?'f:clusterIPs'].hasValue())"""
# The MPI operator lets workers find each other by their Service.
_NAMES = """(!has(variables.spec.dnsPolicy) || variables.spec.dnsPolicy in ['', 'ClusterFirst'])
        && (!has(variables.spec.dnsConfig) || (!has(variables.spec.dnsConfig.nameservers)
            && !has(variables.spec.dnsConfig.options) && (!has(variables.spec.dnsConfig.searches)
            || variables.spec.dnsConfig.searches.all(s,
                s.endsWith('.' + request.namespace + '.svc.cluster.local')))))
        && !has(variables.spec.hostAliases)"""


def _own_names(facts: GuardFacts) -> str:
    """A syncer of a virtual cluster writes into every pod that it makes where its DNS and API server are."""
    if not facts.virtual_clusters:
        return _NAMES
    return f"""({_NAMES})
        || ({may(Allowance.SYNCED_NAMES)} && (!variables.placing || request.userInfo.username
            == 'system:serviceaccount:' + namespaceObject.metadata.name + ':' + {cel(vocabulary.VIRTUAL_CLUSTER)}))"""


def _no_ingress(facts: GuardFacts) -> str | None:
    text = by_framework([framework.kind for framework in facts.frameworks], _INGRESSES, "true")
    return None if text == "true" else unless_by_controller(text)


def _addresses(facts: GuardFacts) -> str:
    return in_tenants_namespaces(
        f"{by_platform(facts.platform_group)} || request.operation != 'CREATE' || {_GIVEN_ADDRESS}"
    )


# Attacks

OBEYED = {
    "networks": ("join another network", "k8s.v1.cni.cncf.io/networks"),
    "default-network": ("leave the cluster's network", "v1.multus-cni.io/default-network"),
    "pod-ips": ("receive load balancers' traffic for another pod", "vpc.amazonaws.com/pod-ips"),
    "eni-config": ("choose its subnet and security groups", "k8s.amazonaws.com/eniConfig"),
    "calico-address": ("take another pod's address", "cni.projectcalico.org/ipAddrs"),
    "ovn": ("write its own network settings", "k8s.ovn.org/pod-networks"),
    "kube-ovn-address": ("take another pod's address", "ovn.kubernetes.io/ip_address"),
    "cilium-tracking": ("exempt its connections from tracking", "policy.cilium.io/no-track-port"),
    "cilium-tracking-old": ("exempt its connections from tracking", "io.cilium.no-track-port"),
    "kata": ("choose the hypervisor that the node starts", "io.katacontainers.config.hypervisor.path"),
    "untrusted": ("choose its runtime without a class", "io.kubernetes.cri.untrusted-workload"),
    "crio-devices": ("have the node's devices injected", "io.kubernetes.cri-o.Devices"),
    "crio-seccomp": ("choose its system calls", "seccomp-profile.kubernetes.cri-o.io"),
    "crio-processors": ("use CPU above its limit", "cpu-quota.crio.io"),
    "nri-mounts": ("mount the node's disk", "mounts.nri.io/container.hello"),
    "nri-devices": ("have the node's devices injected", "devices.noderesource.dev/container.hello"),
    "gvisor": ("share its sandbox's mounts", "dev.gvisor.spec.mount.data.share"),
    "containerd": ("have the node run a program as its log", "containerd.io/restart.loguri"),
}
"""Annotations that networks and runtimes obey, and their effect; each domain and prefix of net-07 once."""


def _services(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    plain, kind = _plain_service(), "/spec/type"
    yield create(scene, place, "net-01", "node-port", "open a port on every node", plain, kind, "NodePort")
    yield create(scene, place, "net-01", "load-balancer", "publish itself to the internet", plain, kind, "LoadBalancer")
    sentence, elsewhere = "redirect clients to a name of its choice", "payments.bank.example"
    yield create(scene, place, "net-01", "external-name", sentence, plain, "/spec/externalName", elsewhere)
    sentence = "take over traffic to a foreign address"
    yield create(scene, place, "net-01", "external-ip", sentence, plain, "/spec/externalIPs", ["198.51.100.7"])
    annotations = "/metadata/annotations/"
    at = f"{annotations}{escaped('service.beta.kubernetes.io/aws-load-balancer-scheme')}"
    sentence = "ask for an internet-facing load balancer"
    yield create(scene, place, "net-01", "annotation", sentence, plain, at, "internet-facing")
    at = f"{annotations}{escaped('external-dns.alpha.kubernetes.io/hostname')}"
    yield create(scene, place, "net-01", "host-name", "claim a host name of the company", plain, at, elsewhere)
    at = f"{annotations}{escaped('io.cilium/global-service')}"
    yield create(scene, place, "net-01", "other-clusters", "share the service with other clusters", plain, at, "true")


def _plain_service() -> dict[str, Any]:
    spec = {"type": "ClusterIP", "selector": {"app": "x"}, "ports": [{"port": 80}]}
    plain = minimal("Service", spec=spec)
    plain["metadata"]["annotations"] = {"note": "hello"}
    return plain


def _dashboards(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for kind, spec in (("RayCluster", "/spec"), ("RayJob", "/spec/rayClusterSpec")):
        if kind in kinds_of(place):
            at, sentence = f"{spec}/headGroupSpec/enableIngress", "publish its dashboard by an ingress"
            yield through(scene, place, "net-01", "ingress", sentence, kind, at, True, False)


def _foreign_addresses(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    plain, sentence = _plain_service(), "take an address reserved for another service"
    address = scene.address or str(ip_network(place.environment.service_cidrs[0])[251])
    yield create(scene, place, "net-11", "address", sentence, plain, "/spec/clusterIP", address)
    headless = put(plain, "/spec/clusterIP", "None")
    request = Request("POST", core(place.name, "services"), put(headless, "/spec/clusterIP", address), place.developer)
    guard = scene.guard("net-11", "services")
    yield attack("net-11-service-chosen", "net-11", sentence, guard, request, twin_body=headless)


def _obeyed(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    # The twin keeps an annotation that limits the pod alone.
    bandwidth = {"/metadata/annotations": {"kubernetes.io/egress-bandwidth": "1G"}}
    for slug, (sentence, key) in OBEYED.items():
        kinds = ALL_KINDS if slug in ("networks", "kata") else ("Pod",)
        yield Case("net-07", slug, sentence, f"/metadata/annotations/{escaped(key)}", "x", ABSENT, bandwidth, kinds)


def _foreign_names(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    sentence, at = "resolve names outside of the cluster's DNS", "/spec/dnsPolicy"
    yield Case("dns-01", "policy", sentence, at, "Default", "ClusterFirst", kinds=ALL_KINDS)
    hosts = [{"ip": "169.254.169.254", "hostnames": ["api.vendor.example"]}]
    yield Case("dns-01", "hosts", "give a host name an address of its choice", "/spec/hostAliases", hosts)
    resolver = {"nameservers": ["198.51.100.53"]}
    yield Case("dns-01", "resolver", "add a resolver of its own", "/spec/dnsConfig", resolver)
    own_search, at = f"train.{place.name}.svc.cluster.local", "/spec/dnsConfig/searches/0"
    base = {"/spec/dnsConfig": {"searches": [own_search]}}
    sentence = "find names of another namespace first"
    yield Case("dns-01", "search", sentence, at, "kube-system.svc.cluster.local", own_search, base)


RULES: tuple[Rule, ...] = (
    Rule(
        id="net-05",
        title=(
            "address ranges lie outside the cluster and together cover no more than one /8, or one /32 of "
            "IPv6; or it is "
            "the internet without private ranges"
        ),
        why="a wide range, also in pieces, opens the instance metadata service, the nodes and every other tenant",
        fix="name the range of the service that the tenant needs, or write internet: true under egress",
        severity=Severity.CRITICAL,
        fix_of_object=(
            "name the range of the service that the tenant needs under ipBlock.cidr; NodeLocal DNSCache needs none"
        ),
    ),
    Rule(
        id="net-06",
        title="network rules by host name need a CNI that enforces them",
        why="a plain NetworkPolicy matches addresses only: the rule would match nothing, without an error",
        fix="set cluster.cni to cilium, or name the service's address range with cidr",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="net-09",
        title="encryption between nodes needs a CNI that supports it",
        why="the VPC CNI sends pods' traffic unencrypted, whatever the file says",
        fix="set cluster.cni to cilium, or encryption to none",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="dns-01",
        title="a pod uses the cluster's DNS as it is",
        why="hostAliases and other resolvers bypass network rules by host name",
        fix="drop dnsPolicy, dnsConfig and hostAliases",
        severity=Severity.MEDIUM,
        guards={GuardSubject.PODS: _own_names},
        attacks=(through_all_kinds(_foreign_names),),
    ),
    Rule(
        id="net-01",
        title="a service is of type ClusterIP, without external addresses, names or controllers' annotations",
        why="load balancers, node ports and external names bypass the network policies",
        fix="use ClusterIP; the platform team publishes services",
        guards={
            GuardSubject.SERVICES: f"""(!has(object.spec.type) || object.spec.type == 'ClusterIP')
        && (!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0)
        && !has(object.spec.externalName)
        && (!has(object.metadata.annotations) || object.metadata.annotations.all(k,
            !k.contains('/') || {_HARMLESS}.exists(p, k.startsWith(p))
            || !{_CONTROLLERS}.exists(d, k.split('/')[0].endsWith(d))))""",
            GuardSubject.FRAMEWORKS: _no_ingress,
        },
        attacks=(at_home(_services), in_queue(_dashboards)),
    ),
    Rule(
        id="net-07",
        title="a pod's annotations choose no network, address, device or sandbox of the node",
        why=(
            "network plugins and runtimes obey them: the pod could get another network or address, bypass policies or "
            "choose another hypervisor"
        ),
        fix="drop the annotation; kubernetes.io/ingress-bandwidth and egress-bandwidth are fine",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""variables.newAnnotations.all(k,
        !{cel(list(SANDBOX_PREFIXES))}.exists(p, k.startsWith(p))
        && !{_DOMAINS}.exists(d, ('.' + k.split('/')[0]).endsWith(d)))"""
        },
        attacks=(through_all_kinds(_obeyed),),
    ),
    Rule(
        id="net-11",
        title="the cluster chooses a service's address",
        why="a chosen address may be that of another service that is not made yet, such as the cluster's DNS",
        fix="drop clusterIP and clusterIPs; clusterIP: None is fine",
        guards={GuardSubject.SERVICES: _addresses},
        attacks=(at_home(_foreign_addresses),),
    ),
    Rule(
        id="net-08",
        title="a namespace with a default-deny allows egress to the cluster's DNS",
        why="without DNS no name resolves, and users then remove the default-deny to make their work run",
        fix="add an egress rule to kube-dns in kube-system, UDP and TCP 53",
        severity=Severity.MEDIUM,
    ),
)


def _network_policy(item: Object, homes: Mapping[str, str] = MappingProxyType({})) -> Given:
    """net-02, net-05; `homes` are the namespaces that are known to be a tenant's, with their tenants."""
    if not is_tenants(item):
        return
    tenant = labels_of(item)[vocabulary.TENANT]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in spec_of(item).get(direction) or ():
            peers = rule.get(side)
            if not peers:
                yield "net-02", f"{direction} without '{side}', which allows every peer"
            for peer in peers or ():
                block = peer.get("ipBlock")
                is_trusted_peer = direction == "egress" and block and block.get("cidr") == vocabulary.IDENTITY_AGENT
                is_trusted_peer = is_trusted_peer or (
                    direction == "egress" and bool(block) and (is_internet(block) or _is_cache(block, rule))
                )
                if block and not is_trusted_peer and (detail := unsafe_range(str(block.get("cidr")))):
                    yield "net-05", f"{direction} {detail}"
                selector = peer.get("namespaceSelector")
                if selector is not None and not _stays_home(peer, tenant, direction, rule, homes):
                    unknown = f" with ports {UNKNOWN}" if UNKNOWN in str(rule.get("ports")) else ""
                    yield "net-02", f"{direction} namespaceSelector {plain_value(selector)} of tenant {tenant}{unknown}"


def _is_cache(block: Object, rule: Object) -> bool:
    """Whether a rule opens NodeLocal DNSCache for DNS alone."""
    ports = [port.get("port") for port in rule.get("ports") or ()]
    return block.get("cidr") == vocabulary.DNS_CACHE and bool(ports) and set(ports) == {53}


def _stays_home(peer: Object, tenant: str, direction: str, rule: Object, homes: Mapping[str, str]) -> bool:
    labels = peer["namespaceSelector"].get("matchLabels") or {}
    if labels.get(vocabulary.TENANT) == tenant:
        return True
    ports = {(port.get("port"), port.get("endPort", port.get("port"))) for port in rule.get("ports") or ()}
    space = str(labels.get(vocabulary.SPACE_NAME, vocabulary.SEPARATOR))
    if space in homes:
        return homes[space] == tenant
    if direction == "egress" and space == "kube-system" and ports == {(53, 53)}:
        return True
    # A service of the platform: no tenant's namespace has such a name.
    pods = (peer.get("podSelector") or {}).get("matchLabels")
    has_named_ports = bool(ports) and None not in {first for first, _ in ports}
    return vocabulary.SEPARATOR not in space and space != "default" and bool(pods) and has_named_ports


def _cilium(item: Object) -> Given:
    if is_tenants(item):
        yield from cilium.in_namespace(item, labels_of(item)[vocabulary.TENANT], {})


def _clusterwide(item: Object) -> Given:
    if is_ours(item):
        yield from cilium.clusterwide(item, {})


def opened_to_neighbours(items: Iterable[Object], homes: Mapping[str, str]) -> Iterator[Finding]:
    """net-02, net-05 with the tenants of the namespaces that a policy names."""
    for item in items:
        kind = item.get("kind")
        details: Given = iter(())
        if kind == "NetworkPolicy":
            details = _network_policy(item, homes)
        elif kind == cilium.IN_NAMESPACE and is_tenants(item):
            details = cilium.in_namespace(item, labels_of(item)[vocabulary.TENANT], homes)
        elif kind == cilium.CLUSTERWIDE and homes:
            details = cilium.clusterwide(item, homes)
        together = {finding_on(item, rule, detail): None for rule, detail in details}
        alone = {finding_on(item, rule, detail) for rule, detail in CHECKS[str(kind)](item)} if together else set()
        yield from (finding for finding in together if finding not in alone)


def opened_together(items: Iterable[Object]) -> Iterator[Finding]:
    """net-05 on the ranges of all policies in a namespace together, because policies add up."""
    opened: dict[tuple[str, str], list[tuple[Object, str]]] = {}
    kinds = {"NetworkPolicy", cilium.IN_NAMESPACE}
    # The finding names the same policy in any order.
    for item in sorted((item for item in items if item.get("kind") in kinds and is_tenants(item)), key=name_of):
        kind = item["kind"]
        for direction in ("ingress", "egress"):
            item_ranges = cilium.ranges(item, direction) if kind == cilium.IN_NAMESPACE else _ranges(item, direction)
            where = str(get_path(item, "metadata", "namespace")), direction
            opened.setdefault(where, []).extend((item, cidr) for cidr in item_ranges)
    for (_, direction), ranges in opened.items():
        if excess := too_wide_together([cidr for _, cidr in ranges]):
            yield finding_on(ranges[excess[0]][0], "net-05", f"{direction} {excess[1]}")


def _ranges(policy: Object, direction: str) -> list[str]:
    side = {"ingress": "from", "egress": "to"}[direction]
    peers = [peer for rule in spec_of(policy).get(direction) or () for peer in rule.get(side) or ()]
    return [str(get_path(peer, "ipBlock", "cidr")) for peer in peers if peer.get("ipBlock")]


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    cilium.CLUSTERWIDE: _clusterwide,
    cilium.IN_NAMESPACE: _cilium,
    "NetworkPolicy": _network_policy,
}
