"""NetworkPolicies of a namespace: deny everything, then open what the tenant file says.

They are the same for every CNI, but for what only Cilium can express (`plan/kubernetes/cilium.py`): names instead of
addresses, and the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.kubernetes import cilium
from tenancy.planning.kubernetes.namespace_objects import EGRESS, INGRESS, NetworkPolicy, NetworkRule, Peer, Port
from tenancy.rules.values import INTERNET, outside_of_internet
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.network_rules import EgressRule, IngressRule
from tenancy.spec.fields.tenant import Namespace, Tenant

DEFAULT_DENY = "default-deny"

AGENT = vocabulary.IDENTITY_AGENT
"""EKS Pod Identity's agent on every node; one address beside the metadata service's, which stays closed."""

_DNS_PORTS = (Port("UDP", 53), Port("TCP", 53))
_CLUSTER_DNS = NetworkRule((Peer(namespaces={vocabulary.SPACE_NAME: "kube-system"}, pods=cilium.DNS_PODS),), _DNS_PORTS)
_DNS_CACHE = NetworkRule((Peer(vocabulary.DNS_CACHE),), _DNS_PORTS)


def network_policies(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[NetworkPolicy, ...]:
    """NetworkPolicies of one namespace, without those that only Cilium has."""
    labels, namespace_name = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)

    def policy(title: str, ingress: Sequence[NetworkRule] = (), egress: Sequence[NetworkRule] = ()) -> NetworkPolicy:
        types = [direction for direction, rules in ((INGRESS, ingress), (EGRESS, egress)) if rules] or [INGRESS, EGRESS]
        return NetworkPolicy(Meta(title, labels, namespace_name), tuple(types), tuple(ingress), tuple(egress))

    def both_ways(title: str, peer: Peer) -> NetworkPolicy:
        return policy(title, [NetworkRule((peer,))], [NetworkRule((peer,))])

    policies = [policy(DEFAULT_DENY)]
    if namespace.allow_intra_namespace:
        policies.append(both_ways("same-namespace", Peer(pods={})))
        if tenant.allow_cross_namespace and len(tenant.namespaces) > 1:
            # Only the platform writes the label: ns-01 refuses all others.
            policies.append(both_ways("allow-cross-namespace", Peer(namespaces={vocabulary.TENANT: tenant.tenant})))
    if environment.cluster.cni is not Cni.CILIUM:
        caches = [_DNS_CACHE] if environment.cluster.node_local_dns else []
        policies.append(policy("dns", egress=[_CLUSTER_DNS, *caches]))
    if network_rules := [*_peer_rules(environment, tenant.egress), *_aws_rules(environment, tenant, namespace)]:
        policies.append(policy("egress", egress=network_rules))
    if network_rules := list(_peer_rules(environment, tenant.ingress)):
        policies.append(policy("ingress", ingress=network_rules))
    return tuple(policies)


def _peer_rules(environment: Environment, entries: Sequence[EgressRule | IngressRule]) -> Iterator[NetworkRule]:
    """Rules for peers by address or by label; host names need Cilium."""
    for entry in entries:
        if entry.cidr:
            peer = Peer(entry.cidr)
        elif isinstance(entry, EgressRule) and entry.internet:
            peer = Peer(
                INTERNET, excluded_cidrs=outside_of_internet((*environment.own_ranges, *environment.service_cidrs))
            )
        elif entry.service:
            service = environment.platform.services[entry.service]
            peer = Peer(namespaces={vocabulary.SPACE_NAME: service.namespace}, pods=service.labels)
        else:
            continue
        yield NetworkRule((peer,), (Port(entry.protocol, entry.port),))


def _aws_rules(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[NetworkRule]:
    """Egress to credentials and to AWS' services, for namespaces with an IAM identity."""
    if not tenant.has_identity(namespace):
        return
    # To Cilium the agent is the node itself, which no address range names.
    if environment.aws.identity is not PodIdentity.IRSA and environment.cluster.cni is not Cni.CILIUM:
        yield NetworkRule((Peer(AGENT),), (Port("TCP", 80),))
    if ranges := environment.aws.network.aws_service_cidrs:
        yield NetworkRule(tuple(Peer(cidr) for cidr in ranges), (Port("TCP", 443),))


def allowed_peers(tenant: Tenant) -> dict[str, list[str]]:
    """Peers that the tenant's own NetworkPolicies may open besides their namespace, by annotation."""
    siblings = [vocabulary.SIBLINGS] if tenant.allow_cross_namespace and len(tenant.namespaces) > 1 else []
    return {
        vocabulary.ALLOWED_EGRESS: [*siblings, *(rule.place for rule in tenant.egress if rule.cidr)],
        vocabulary.ALLOWED_INGRESS: [*siblings, *(rule.place for rule in tenant.ingress if rule.cidr)],
    }
