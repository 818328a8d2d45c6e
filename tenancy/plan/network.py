"""NetworkPolicies of a namespace: deny everything, then open what the tenant file says."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary as words
from tenancy.plan.labels import manifest, tenant_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment
from tenancy.spec.identity import PodIdentity
from tenancy.spec.tenant import Namespace, Tenant

DEFAULT_DENY = "default-deny"

AGENT = words.IDENTITY_AGENT
"""EKS Pod Identity's agent on every node; one address beside the metadata service's, which stays closed. To Cilium it
is the node itself, which no address range names: there this rule opens nothing."""

_CLUSTER_DNS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
_DNS_PORTS = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]


def network_policies(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    labels = tenant_labels(environment, tenant, namespace)
    name = words.derived_name(tenant.tenant, namespace.name)

    def policy(title: str, types: list[str], **rules: object) -> Object:
        body = {"spec": {"podSelector": {}, "policyTypes": types, **rules}}
        return manifest("networking.k8s.io/v1", "NetworkPolicy", title, labels, body, namespace=name)

    same = [{"podSelector": {}}]
    policies = [
        policy(DEFAULT_DENY, ["Ingress", "Egress"]),
        policy("same-namespace", ["Ingress", "Egress"], ingress=[{"from": same}], egress=[{"to": same}]),
        policy("dns", ["Egress"], egress=[{"to": [_CLUSTER_DNS], "ports": _DNS_PORTS}]),
    ]
    places: list[dict[str, object]] = [
        {"to": [{"ipBlock": {"cidr": place.cidr}}], "ports": [{"protocol": place.protocol, "port": place.port}]}
        for place in tenant.reach
        if place.cidr
    ]
    places += _aws(environment, tenant, namespace)
    if places:
        policies.append(policy("reach", ["Egress"], egress=places))
    return tuple(policies)


def _aws(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[dict[str, object]]:
    """The way to credentials and to AWS' services, for parts that are somebody there."""
    if not tenant.has_identity(namespace):
        return
    if environment.aws.identity is not PodIdentity.IRSA:
        yield {"to": [{"ipBlock": {"cidr": AGENT}}], "ports": [{"protocol": "TCP", "port": 80}]}
    if ranges := environment.aws.network.service_ranges:
        yield {"to": [{"ipBlock": {"cidr": cidr}} for cidr in ranges], "ports": [{"protocol": "TCP", "port": 443}]}
