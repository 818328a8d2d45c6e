"""NetworkPolicies of a namespace: deny everything, then open what the tenant file says.

They are the same for every CNI, but for what only Cilium can express (`plan/kubernetes/cilium.py`): names instead of
addresses, and the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary as words
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.kubernetes import cilium
from tenancy.planning.kubernetes.model import EGRESS, INGRESS, NetworkPolicy, NetworkRule, Peer, Port
from tenancy.rules.values import INTERNET, outside_of_internet
from tenancy.schema.cluster import Cni
from tenancy.schema.environment import Environment
from tenancy.schema.identity import PodIdentity
from tenancy.schema.network_rules import EgressRule, IngressRule
from tenancy.schema.tenant import Namespace, Tenant

DEFAULT_DENY = "default-deny"

AGENT = words.IDENTITY_AGENT
"""EKS Pod Identity's agent on every node; one address beside the metadata service's, which stays closed."""

_DNS_PORTS = (Port("UDP", 53), Port("TCP", 53))
_CLUSTER_DNS = NetworkRule((Peer(namespaces={words.SPACE_NAME: "kube-system"}, pods=cilium.DNS_PODS),), _DNS_PORTS)
_DNS_CACHE = NetworkRule((Peer(words.DNS_CACHE),), _DNS_PORTS)


def network_policies(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[NetworkPolicy, ...]:
    """Of one namespace, without those that are Cilium's own."""
    labels, where = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)

    def policy(title: str, ingress: Sequence[NetworkRule] = (), egress: Sequence[NetworkRule] = ()) -> NetworkPolicy:
        types = [of for of, rules in ((INGRESS, ingress), (EGRESS, egress)) if rules] or [INGRESS, EGRESS]
        return NetworkPolicy(Meta(title, labels, where), tuple(types), tuple(ingress), tuple(egress))

    def both_ways(title: str, peer: Peer) -> NetworkPolicy:
        return policy(title, [NetworkRule((peer,))], [NetworkRule((peer,))])

    policies = [policy(DEFAULT_DENY)]
    if namespace.open_inside:
        policies.append(both_ways("same-namespace", Peer(pods={})))
        if tenant.between_namespaces and len(tenant.namespaces) > 1:
            # Only the platform writes the label: ns-01 refuses all others.
            policies.append(both_ways("between-namespaces", Peer(namespaces={words.TENANT: tenant.tenant})))
    if environment.cluster.cni is not Cni.CILIUM:
        caches = [_DNS_CACHE] if environment.cluster.dns_cache else []
        policies.append(policy("dns", egress=[_CLUSTER_DNS, *caches]))
    if ways := [*_ways(environment, tenant.egress), *_aws(environment, tenant, namespace)]:
        policies.append(policy("egress", egress=ways))
    if ways := list(_ways(environment, tenant.ingress)):
        policies.append(policy("ingress", ingress=ways))
    return tuple(policies)


def _ways(environment: Environment, ways: Sequence[EgressRule | IngressRule]) -> Iterator[NetworkRule]:
    """Rules for peers by address or by label; host names need Cilium."""
    for way in ways:
        if way.cidr:
            peer = Peer(way.cidr)
        elif isinstance(way, EgressRule) and way.internet:
            peer = Peer(INTERNET, excluded=outside_of_internet((*environment.own_ranges, *environment.service_cidrs)))
        elif way.service:
            service = environment.platform.services[way.service]
            peer = Peer(namespaces={words.SPACE_NAME: service.namespace}, pods=service.labels)
        else:
            continue
        yield NetworkRule((peer,), (Port(way.protocol, way.port),))


def _aws(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[NetworkRule]:
    """Egress to credentials and to AWS' services, for namespaces with an IAM identity."""
    if not tenant.has_identity(namespace):
        return
    # To Cilium the agent is the node itself, which no address range names.
    if environment.aws.identity is not PodIdentity.IRSA and environment.cluster.cni is not Cni.CILIUM:
        yield NetworkRule((Peer(AGENT),), (Port("TCP", 80),))
    if ranges := environment.aws.network.service_ranges:
        yield NetworkRule(tuple(Peer(cidr) for cidr in ranges), (Port("TCP", 443),))


def allowed_ways(tenant: Tenant) -> dict[str, list[str]]:
    """What NetworkPolicies of the tenant's own may open beside their own namespace, by the annotation that says so."""
    siblings = [words.SIBLINGS] if tenant.between_namespaces and len(tenant.namespaces) > 1 else []
    return {
        words.ALLOWED_EGRESS: [*siblings, *(way.place for way in tenant.egress if way.cidr)],
        words.ALLOWED_INGRESS: [*siblings, *(way.place for way in tenant.ingress if way.cidr)],
    }
