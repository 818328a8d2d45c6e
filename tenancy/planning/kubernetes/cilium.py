"""Cilium's policies beyond NetworkPolicies: host names, the node's own services, and denies for every tenant.

A deny overrides every allow, those of NetworkPolicies too, and no tenant has a right to write Cilium's policies.
Selectors name the namespace, by its name or by a label of it that only the platform writes, never pods' labels alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels, tenant_labels
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.tenant import Namespace, Tenant

API = "cilium.io/v2"
CLUSTER_POLICY = "tenancy"
"""Name of the clusterwide policy for all tenants, and prefix of the names of those for one tenant."""

NAMESPACE_LABEL = "k8s:io.kubernetes.pod.namespace"
ACCOUNT_LABEL = "k8s:io.cilium.k8s.policy.serviceaccount"
TENANT_LABEL = f"k8s:io.cilium.k8s.namespace.labels.{vocabulary.TENANT}"

DNS_NAMESPACE, DNS_PODS = "kube-system", {"k8s-app": "kube-dns"}
AGENT_PORT = 80
"""Port of EKS Pod Identity's agent on every node. To Cilium it is the node, which no address range names."""
API_PORT = 443
CLUSTER_DOMAIN = "svc.cluster.local"
LABELS_BEFORE_AWS = 3
"""Max labels before the AWS suffix, as in bucket.s3.dualstack.eu-central-1.amazonaws.com; a `*` is one label."""


def has_cluster_policies(environment: Environment) -> bool:
    """Whether the CNI has policies for the whole cluster, which no namespace can override."""
    return environment.cluster.cni is Cni.CILIUM


def namespace_policies(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[Object]:
    """Policies of one namespace that no NetworkPolicy can express; none where another CNI enforces."""
    if not has_cluster_policies(environment):
        return
    labels, name = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)

    def policy(title: str, egress: list[Object], selector: Mapping[str, object] | None = None) -> Object:
        body = {"spec": {"endpointSelector": dict(selector or {}), "egress": egress}}
        return manifest(API, "CiliumNetworkPolicy", title, labels, body, namespace=name)

    servers = {
        "matchLabels": {NAMESPACE_LABEL: DNS_NAMESPACE, **{f"k8s:{key}": value for key, value in DNS_PODS.items()}}
    }
    dns_rules = [{"matchName": host} for host in hosts(tenant)]
    dns_rules += [{"matchPattern": pattern} for pattern in name_patterns(environment, tenant, namespace)]
    ports = [{"port": "53", "protocol": protocol} for protocol in ("UDP", "TCP")]
    yield policy("dns", [{"toEndpoints": [servers], "toPorts": [{"ports": ports, "rules": {"dns": dns_rules}}]}])
    host_rules = [
        {"toFQDNs": [{"matchName": rule.dns}], "toPorts": [_ports(rule.port, rule.protocol)]}
        for rule in tenant.egress
        if rule.dns
    ]
    if host_rules:
        yield policy("egress-hosts", host_rules)
    if tenant.has_identity(namespace) and environment.aws.identity is not PodIdentity.IRSA:
        yield policy("pod-identity", [{"toEntities": ["host"], "toPorts": [_ports(AGENT_PORT)]}])
    if accounts := [account.name for account in tenant.accounts_in(namespace) if account.automount_token]:
        account_selector = {"matchExpressions": [{"key": ACCOUNT_LABEL, "operator": "In", "values": sorted(accounts)}]}
        yield policy(
            "api-server", [{"toEntities": ["kube-apiserver"], "toPorts": [_ports(API_PORT)]}], account_selector
        )


def hosts(tenant: Tenant) -> list[str]:
    """Host names that its pods may reach, each once."""
    return list(dict.fromkeys(rule.dns for rule in tenant.egress if rule.dns))


def name_patterns(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[str]:
    """Names beside these hosts that its pods may ask for: those of services that they may reach.

    Queries for other names are refused, so that no data leaves the cluster in DNS names. A tenant with egress to the
    internet asks for any.
    """
    spaces = [tenant.namespace_name(namespace)]
    spaces += [tenant.namespace_name(part) for part in tenant.namespaces] if tenant.allow_cross_namespace else []
    spaces += [environment.platform.services[rule.service].namespace for rule in tenant.egress if rule.service]
    for space in dict.fromkeys(spaces):
        # The name of a service, and of one of its pods.
        yield from (f"{'*.' * labels}{space}.{CLUSTER_DOMAIN}" for labels in (1, 2))
    if any(rule.internet for rule in tenant.egress):
        yield "*"
    region = environment.aws.region
    if tenant.has_identity(namespace) and region:
        home = f"{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
        yield from (f"{'*.' * labels}{home}" for labels in range(1, LABELS_BEFORE_AWS + 1))
    yield f"kubernetes.default.{CLUSTER_DOMAIN}"  # there in every cluster: what asks whether names work asks for it


def platform_network_policies(environment: Environment) -> tuple[Object, ...]:
    """One policy for all tenants. It denies nodes, instance metadata, and the platform's pods that no tenant file may
    name."""
    if not has_cluster_policies(environment):
        return ()
    denied_endpoints = [{"matchExpressions": expressions} for expressions in _platform_selectors(environment)]
    spec = {
        "endpointSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]},
        "egressDeny": [
            {"toEndpoints": denied_endpoints},
            {"toCIDRSet": [{"cidr": cidr} for cidr in vocabulary.METADATA]},
            {"toEntities": ["remote-node"]},
            {"toEntities": ["host"], "toPorts": [_all_but(AGENT_PORT)]},
        ],
        "ingressDeny": [{"fromEndpoints": denied_endpoints}, {"fromEntities": ["remote-node"]}],
    }
    body = {"spec": spec}
    return (manifest(API, "CiliumClusterwideNetworkPolicy", CLUSTER_POLICY, platform_labels(environment), body),)


def tenant_network_policies(environment: Environment, tenant: Tenant) -> tuple[Object, ...]:
    """One policy for a tenant: it denies traffic to and from every other tenant."""
    if not has_cluster_policies(environment):
        return ()
    own_pods = {"key": TENANT_LABEL, "operator": "In", "values": [tenant.tenant]}
    other_tenants = [
        {
            "matchExpressions": [
                {"key": TENANT_LABEL, "operator": "Exists"},
                {"key": TENANT_LABEL, "operator": "NotIn", "values": [tenant.tenant]},
            ]
        }
    ]
    specs: list[Object] = [
        {
            "endpointSelector": {"matchExpressions": [own_pods]},
            "egressDeny": [{"toEndpoints": other_tenants}],
            "ingressDeny": [{"fromEndpoints": other_tenants}],
        }
    ]
    namespaces_with_token = [
        tenant.namespace_name(part)
        for part in tenant.namespaces
        if any(account.automount_token for account in tenant.accounts_in(part))
    ]
    if len(namespaces_with_token) < len(tenant.namespaces):
        without_token = (
            [{"key": NAMESPACE_LABEL, "operator": "NotIn", "values": namespaces_with_token}]
            if namespaces_with_token
            else []
        )
        specs.append(
            {
                "endpointSelector": {"matchExpressions": [own_pods, *without_token]},
                "egressDeny": [{"toEntities": ["kube-apiserver"]}],
            }
        )
    name = vocabulary.derived_name(CLUSTER_POLICY, tenant.tenant)
    labels = {**platform_labels(environment), vocabulary.TENANT: tenant.tenant}
    return (manifest(API, "CiliumClusterwideNetworkPolicy", name, labels, {"specs": specs}),)


def _platform_selectors(environment: Environment) -> Iterator[list[Object]]:
    """Selectors of pods that are no tenant's, nor the cluster's DNS, nor a declared service: each a list of expressions
    that must all match."""
    open_services: dict[str, list[Mapping[str, str]]] = {DNS_NAMESPACE: [DNS_PODS]}
    for service in environment.platform.services.values():
        open_services.setdefault(service.namespace, []).append(service.labels)
    yield [
        {"key": TENANT_LABEL, "operator": "DoesNotExist"},
        # Nothing but a pod has a namespace: without this the whole world would match.
        {"key": NAMESPACE_LABEL, "operator": "Exists"},
        {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": [*open_services]},
    ]
    for space, services in open_services.items():
        # A pod that lacks one label of each service is none of them.
        for missing_labels in product(*(sorted(labels.items()) for labels in services)):
            expressions = [
                {"key": f"k8s:{key}", "operator": "NotIn", "values": [value]} for key, value in missing_labels
            ]
            yield [{"key": NAMESPACE_LABEL, "operator": "In", "values": [space]}, *expressions]


def _ports(port: int, protocol: str = "TCP") -> Object:
    return {"ports": [{"port": str(port), "protocol": protocol}]}


def _all_but(port: int) -> Object:
    """Every port of every transport but one of TCP."""
    tcp = [(1, port - 1), (port + 1, 65535)]
    ports = [{"port": str(first), "endPort": last, "protocol": "TCP"} for first, last in tcp]
    return {"ports": [*ports, *({"port": "1", "endPort": 65535, "protocol": p} for p in ("UDP", "SCTP"))]}
