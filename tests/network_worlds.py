"""Environments whose networks are judged, who is in them, and what their files say about each connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import ip_address, ip_network
from itertools import product
from pathlib import Path
from typing import Any

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import Plan
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.loader import Loaded, load
from tests.conftest import ENVIRONMENT, SpecFolder
from tests.judges import Flow

BANK = Path(__file__).parents[1] / "stacks" / "bank"
POLICIES = ("NetworkPolicy", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
ENGINES = {"vpc-cni": "cyclonus", "cilium": "cilium"}
"""By CNI, whose engine judges what is planned for it."""

LONG = "abcdefghijklmnopqrstuvwxyzabcd"
_OWNER = "{name: leads, mail: leads@bank.example}"
_HEAD = f"team: t\nowner: {_OWNER}\ndepartment: risk\ncost-center: CC-1\ntier: batch\n"
_PEOPLE = "people: [{{group: {0}-people, role: developer}}]\n"
TENANTS = {
    "fraud": """namespaces: [train, serve]
allow-cross-namespace: true
storage: [{bucket: datasets, prefix: teams/fraud/, namespaces: [train]}]
egress:
  - {cidr: 198.51.100.0/24, port: 8443}
  - {service: registry, port: 443}
ingress:
  - {service: metrics, port: 9090}
  - {cidr: 10.20.0.0/16, port: 8080}
""",
    "fraud-2": """namespaces: [train, serve]
egress:
  - {cidr: 203.0.113.16/28, port: 6514, protocol: UDP}
ingress:
  - {cidr: 10.20.0.0/16, port: 8080}
""",
    "f": "namespaces: [{name: main, allow-intra-namespace: false}]\n",
    LONG: """namespaces:
  - {name: a, service-accounts: [{name: robot, automount-token: true}]}
  - {name: b, allow-intra-namespace: false}
  - c
allow-cross-namespace: true
ingress:
  - {service: ingress, port: 8000}
""",
}
"""Names that begin alike, one letter, and the most letters; each with a network of its own kind."""
WIDE = "egress:\n  - {internet: true, port: 443}\n"
HOSTS = "  - {dns: feed.marketdata.example, port: 443}\n"
SERVICES = """  namespaces: [monitoring, registry]
  services:
    metrics: {namespace: monitoring, labels: {app.kubernetes.io/name: prometheus, role: scraper}}
    ingress: {namespace: monitoring, labels: {app: ingress}}
    registry: {namespace: registry, labels: {app: registry}}
"""
NETWORK = """  node-and-pod-cidrs: [10.64.0.0/16]
aws: {region: eu-central-1, network: {aws-service-cidrs: [10.64.250.0/24]}}
queues: {scheduler: none}
images:
"""
STRANGERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
    "system": ("kube-system", {"k8s-app": "metrics-server"}),
    "dns-elsewhere": ("default", {"k8s-app": "kube-dns"}),
    "metrics": ("monitoring", {"app.kubernetes.io/name": "prometheus", "role": "scraper"}),
    "metrics-elsewhere": ("default", {"app.kubernetes.io/name": "prometheus", "role": "scraper"}),
    "half-metrics": ("monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "other-half": ("monitoring", {"role": "scraper"}),
    "ingress-elsewhere": ("registry", {"app": "ingress"}),
    "mirror": ("registry", {"app": "mirror"}),
    "ingress": ("monitoring", {"app": "ingress"}),
    "registry": ("registry", {"app": "registry"}),
    "registry-elsewhere": ("monitoring", {"app": "registry"}),
}
"""Pods of no tenant: namespace and labels."""
ADDRESSES = (
    *("198.51.100.7", "203.0.113.17", "203.0.113.99", "10.20.0.9", "10.64.250.7", "192.0.2.8", "2001:db8::7"),
    *("169.254.169.254", "169.254.169.253", "fd00:ec2::254", "169.254.170.23"),
    *("9.255.255.255", "172.32.0.1", "10.0.0.1", "172.31.255.255", "192.168.7.7", "100.64.9.9", "172.20.0.10"),
)
INTERNET = ("198.51.100.7", "203.0.113.17", "203.0.113.99", "192.0.2.8", "9.255.255.255", "172.32.0.1")
"""Those of them that stand for hosts on the internet, two beside private ranges."""
NAMES = ("feed.marketdata.example", "lists.sanctions.example", "hub.models.example", "attacker.example")
ENTITIES = ("host", "remote-node", "kube-apiserver")
PORTS = ((53, "UDP"), (53, "TCP"), (80, "TCP"), (443, "TCP"), (6514, "UDP"), (6514, "TCP"), (8000, "TCP"))
PORTS += ((8080, "TCP"), (8443, "TCP"), (9090, "TCP"), (10250, "TCP"), (10250, "UDP"), (10250, "SCTP"))


def adversarial(folder: Path, cni: str, *, internet: bool = False) -> Loaded:
    """Tenants that are easily taken for one another; with `internet`, one of them has egress there."""
    spec = SpecFolder(folder)
    for name in ("fraud", "research"):
        (folder / "tenants" / f"{name}.yaml").unlink()
    text = ENVIRONMENT.replace("  namespaces: [monitoring]\n", SERVICES).replace("images:\n", NETWORK)
    text = text.replace("cni: vpc-cni", f"cni: {cni}").replace("tenants: [research]", "tenants: [fraud]")
    spec.write("environment.yaml", text)
    for name, more in TENANTS.items():
        more += WIDE if internet and name == "f" else ""
        reach = more.replace("egress:\n", f"egress:\n{HOSTS}") if cni == "cilium" else more
        spec.write(f"tenants/{name}.yaml", f"tenant: {name}\n{_HEAD}{_PEOPLE.format(name)}{reach}")
    return load(folder)


def bank(cni: str) -> Loaded:
    """The bank; on plain NetworkPolicies without the host names that these cannot hold."""
    loaded = load(BANK)
    if cni == "cilium":
        return loaded
    cluster = loaded.environment.cluster.model_copy(update={"cni": Cni(cni)})
    environment = loaded.environment.model_copy(update={"cluster": cluster})
    tenants = [t.model_copy(update={"egress": tuple(w for w in t.egress if not w.dns)}) for t in loaded.tenants]
    return replace(loaded, environment=environment, tenants=tuple(tenants))


@dataclass
class Pod:
    tenant: Tenant
    part: Namespace
    account: str = "default"


@dataclass(eq=False, repr=False)
class World:
    """One environment, its policies, and all peers that might connect to each other."""

    loaded: Loaded
    plan: Plan = field(init=False)
    pods: dict[str, Pod] = field(default_factory=dict)
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = planning.plan(self.environment, self.loaded.tenants)
        labels = {
            space.name: {**space.namespace["metadata"]["labels"], vocabulary.SPACE_NAME: space.name}
            for tenant in self.plan.tenants
            for space in tenant.namespaces
        }
        tenants = sorted(self.loaded.tenants, key=lambda t: t.tenant)
        for number, (tenant, part) in enumerate((t, n) for t in tenants for n in t.namespaces):
            space = tenant.namespace_name(part)
            accounts = ["default", *(account.name for account in part.service_accounts)]
            lies = {"k8s-app": "kube-dns", "app": "registry", vocabulary.TENANT: tenants[0].tenant}
            for kind, (account, extra_labels) in enumerate([*((a, {}) for a in accounts), ("default", lies)]):
                name = f"{space}/{'liar' if extra_labels else account}"
                self.pods[name] = Pod(tenant, part, account)
                self.peers[name] = {
                    "namespace": space,
                    "namespaceLabels": labels[space],
                    "labels": extra_labels,
                    "account": account,
                    "address": f"10.64.{number}.{kind + 4}",
                }
        for number, (name, (space, extra_labels)) in enumerate(STRANGERS.items()):
            self.peers[name] = {
                "namespace": space,
                "namespaceLabels": {vocabulary.SPACE_NAME: space},
                "labels": dict(extra_labels),
                "account": "default",
                "address": f"10.64.255.{number + 4}",
            }
        self.peers |= {address: {"address": address} for address in ADDRESSES}
        if self.cni == "cilium":
            self.peers |= {name: {"host": name} for name in NAMES}
            self.peers |= {name: {"entity": name} for name in ENTITIES}

    @property
    def environment(self) -> Environment:
        return self.loaded.environment

    @property
    def cni(self) -> str:
        return self.environment.cluster.cni.value

    @cached_property
    def policies(self) -> list[Object]:
        return [item for item in self.plan.objects() if item["kind"] in POLICIES and "tenancy.gpu/tenant" in str(item)]

    @cached_property
    def flows(self) -> list[Flow]:
        """Every peer to every pod of a tenant, and every pod of a tenant to every peer."""
        pairs = [pair for pair in product(self.peers, repeat=2) if pair[0] != pair[1] and {*pair} & {*self.pods}]
        return [Flow(source, target, port, protocol) for source, target in pairs for port, protocol in PORTS]

    def is_named(self, flow: Flow) -> bool:
        """Whether the files name a connection, whichever engine enforces them."""
        out = flow.source not in self.pods or self._leaves(self.pods[flow.source], flow)
        return out and (flow.target not in self.pods or self._enters(self.pods[flow.target], flow))

    def _leaves(self, pod: Pod, flow: Flow) -> bool:
        tenant, target = pod.tenant, self.peers[flow.target]
        where = (flow.port, flow.protocol)
        if flow.target in self.pods:
            return self._inside(pod, self.pods[flow.target])
        if flow.target == "dns":
            return flow.port == 53
        reach = [way for way in tenant.egress if (way.port, way.protocol) == where]
        if flow.target in STRANGERS:
            return any(way.service and self._is(target, way.service) for way in reach)
        if "host" in target:
            return any(way.dns == target["host"] or way.internet for way in reach)
        has_identity = tenant.has_identity(pod.part)
        if "entity" in target:
            accounts = {account.name: account.automount_token for account in pod.part.service_accounts}
            asks = target["entity"] == "kube-apiserver" and accounts.get(pod.account, False)
            return (asks and flow.port == 443) or (has_identity and flow.target == "host" and where == (80, "TCP"))
        if any(way.internet for way in reach) and target["address"] in INTERNET:
            return True
        ranges = [way.cidr for way in reach if way.cidr]
        if has_identity and where == (443, "TCP"):
            ranges += self.environment.aws.network.aws_service_cidrs
        if has_identity and where == (80, "TCP") and self.cni == "vpc-cni":
            ranges.append(vocabulary.IDENTITY_AGENT)
        return any(_within(target["address"], cidr) for cidr in ranges)

    def _enters(self, pod: Pod, flow: Flow) -> bool:
        source = self.peers[flow.source]
        if flow.source in self.pods:
            return self._inside(pod, self.pods[flow.source])
        if source.get("entity") == "host":
            return True  # its own node, which asks after its health
        accept = [way for way in pod.tenant.ingress if (way.port, way.protocol) == (flow.port, flow.protocol)]
        if flow.source in STRANGERS:
            return any(way.service and self._is(source, way.service) for way in accept)
        return "address" in source and any(way.cidr and _within(source["address"], way.cidr) for way in accept)

    def _inside(self, source: Pod, target: Pod) -> bool:
        if source.tenant is not target.tenant or not (
            source.part.allow_intra_namespace and target.part.allow_intra_namespace
        ):
            return False
        return source.part is target.part or source.tenant.allow_cross_namespace

    def _is(self, peer: Mapping[str, Any], service: str) -> bool:
        service_facts = self.environment.platform.services[service]
        return peer["namespace"] == service_facts.namespace and service_facts.labels.items() <= peer["labels"].items()


def _within(address: str, cidr: str) -> bool:
    network = ip_network(cidr)
    return network.version == ip_address(address).version and ip_address(address) in network


def let_through(flows: Sequence[Flow], verdicts: Sequence[str]) -> set[Flow]:
    return {flow for flow, verdict in zip(flows, verdicts, strict=True) if verdict in {"allowed", "proxied"}}


def between_tenants(world: World, flows: Sequence[Flow]) -> Iterator[Flow]:
    for flow in flows:
        source, target = world.pods.get(flow.source), world.pods.get(flow.target)
        if source and target and source.tenant is not target.tenant:
            yield flow
