"""NetworkPolicies of a namespace: deny everything, then open what the tenant file says."""

from __future__ import annotations

from tenancy.catalog import vocabulary as words
from tenancy.plan.labels import manifest, tenant_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Namespace, Tenant

DEFAULT_DENY = "default-deny"

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
    places = [
        {"to": [{"ipBlock": {"cidr": place.cidr}}], "ports": [{"protocol": place.protocol, "port": place.port}]}
        for place in tenant.reach
        if place.cidr
    ]
    if places:
        policies.append(policy("reach", ["Egress"], egress=places))
    return tuple(policies)
