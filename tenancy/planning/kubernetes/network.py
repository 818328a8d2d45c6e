"""NetworkPolicies of a namespace: deny everything, then open what the tenant file says.

They are the same for every CNI, but for what only Cilium can express (`plan/kubernetes/cilium.py`): names instead of
addresses, and the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, tenant_labels
from tenancy.planning.kubernetes import cilium
from tenancy.rules.values import internet_block
from tenancy.schema.cluster import Cni
from tenancy.schema.environment import Environment
from tenancy.schema.identity import PodIdentity
from tenancy.schema.network_rules import EgressRule, IngressRule
from tenancy.schema.tenant import Namespace, Tenant

DEFAULT_DENY = "default-deny"

AGENT = words.IDENTITY_AGENT
"""EKS Pod Identity's agent on every node; one address beside the metadata service's, which stays closed."""

_CLUSTER_DNS = {
    "namespaceSelector": {"matchLabels": {words.SPACE_NAME: "kube-system"}},
    "podSelector": {"matchLabels": dict(cilium.DNS_PODS)},
}
_DNS_PORTS = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]

Rule = dict[str, object]


def network_policies(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """Of one part, Cilium's own among them where it enforces."""
    labels = tenant_labels(environment, tenant, namespace)
    by_cilium = environment.cluster.cni is Cni.CILIUM

    def policy(title: str, types: Sequence[str], **rules: object) -> Object:
        body = {"spec": {"podSelector": {}, "policyTypes": list(types), **rules}}
        name = tenant.namespace_name(namespace)
        return manifest("networking.k8s.io/v1", "NetworkPolicy", title, labels, body, namespace=name)

    def both_ways(title: str, peer: Rule) -> Object:
        return policy(title, ["Ingress", "Egress"], ingress=[{"from": [peer]}], egress=[{"to": [peer]}])

    policies = [policy(DEFAULT_DENY, ["Ingress", "Egress"])]
    if namespace.open_inside:
        policies.append(both_ways("same-namespace", {"podSelector": {}}))
        if tenant.between_namespaces and len(tenant.namespaces) > 1:
            # Only the platform writes the label: ns-01 refuses all others.
            siblings: Rule = {"namespaceSelector": {"matchLabels": {words.TENANT: tenant.tenant}}}
            policies.append(both_ways("between-namespaces", siblings))
    if not by_cilium:
        policies.append(policy("dns", ["Egress"], egress=[{"to": [_CLUSTER_DNS], "ports": _DNS_PORTS}]))
    ways = [*_ways(environment, tenant.egress, "to"), *_aws(environment, tenant, namespace)]
    if ways:
        policies.append(policy("egress", ["Egress"], egress=ways))
    if ways := list(_ways(environment, tenant.ingress, "from")):
        policies.append(policy("ingress", ["Ingress"], ingress=ways))
    if by_cilium:
        policies += cilium.namespace_policies(environment, tenant, namespace)
    return tuple(policies)


def _ways(environment: Environment, ways: Sequence[EgressRule | IngressRule], side: str) -> Iterator[Rule]:
    """Rules for peers by address or by label; host names need Cilium."""
    for way in ways:
        if way.cidr:
            peer: Rule = {"ipBlock": {"cidr": way.cidr}}
        elif isinstance(way, EgressRule) and way.internet:
            peer = {"ipBlock": internet_block((*environment.own_ranges, *environment.service_cidrs))}
        elif way.service:
            service = environment.platform.services[way.service]
            peer = {
                "namespaceSelector": {"matchLabels": {words.SPACE_NAME: service.namespace}},
                "podSelector": {"matchLabels": dict(service.labels)},
            }
        else:
            continue
        yield {side: [peer], "ports": [{"protocol": way.protocol, "port": way.port}]}


def _aws(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[Rule]:
    """Egress to credentials and to AWS' services, for namespaces with an IAM identity."""
    if not tenant.has_identity(namespace):
        return
    # To Cilium the agent is the node itself, which no address range names.
    if environment.aws.identity is not PodIdentity.IRSA and environment.cluster.cni is not Cni.CILIUM:
        yield {"to": [{"ipBlock": {"cidr": AGENT}}], "ports": [{"protocol": "TCP", "port": 80}]}
    if ranges := environment.aws.network.service_ranges:
        yield {"to": [{"ipBlock": {"cidr": cidr}} for cidr in ranges], "ports": [{"protocol": "TCP", "port": 443}]}


def allowed_ways(tenant: Tenant) -> dict[str, list[str]]:
    """What NetworkPolicies of the tenant's own may open beside their own namespace, by the annotation that says so."""
    siblings = [words.SIBLINGS] if tenant.between_namespaces and len(tenant.namespaces) > 1 else []
    return {
        words.ALLOWED_EGRESS: [*siblings, *(way.place for way in tenant.egress if way.cidr)],
        words.ALLOWED_INGRESS: [*siblings, *(way.place for way in tenant.ingress if way.cidr)],
    }
