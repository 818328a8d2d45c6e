"""Rules on all objects of a cluster together, on one index that is built once.

Missing objects of other owners are no finding: a folder with tenants' objects alone is checked without the platform's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from tenancy.catalog import gpus, vocabulary
from tenancy.kube.objects import UNKNOWN, as_list, get_path, labels_of, name_of
from tenancy.kube.quantities import parse_or_zero
from tenancy.kube.quota_tree import resource_groups
from tenancy.rules import access, aws, cilium, cross_object_nodes, cross_object_queues, network, nodes, queues
from tenancy.rules.findings import Finding, Object
from tenancy.rules.index import Index, own_name, pairs_of, tenant_label
from tenancy.rules.nodes import is_operator, pool_gpus
from tenancy.rules.owned import is_tenants, spec_of
from tenancy.rules.pod_security import RefusedField, breaches, fields_that_give_root_on_node, level_of, minor_of

_ROLE_ARN = "eks.amazonaws.com/role-arn"
_PRIORITY = "kueue.x-k8s.io/priority-class"
_BUILT_IN = {
    "cluster-admin": ("rbac-01", "everything, in every API group"),
    "admin": ("rbac-03", "writes roles, rolebindings and networkpolicies"),
    "edit": ("rbac-02", "impersonates serviceaccounts, serviceaccounts/token, and writes networkpolicies"),
}
"""Kubernetes' own roles that no tenant can be bound to (1.36, `rbac/bootstrappolicy`)."""


def findings_together(items: Iterable[Object], in_our_names: Iterable[Object] | None = None) -> Iterator[Finding]:
    """Findings on all objects of a cluster together.

    `in_our_names` has the same objects with the names that this product gives, where `items` come from another tool.
    """
    items = list(items)
    renamed_items = items if in_our_names is None else list(in_our_names)
    yield from nodes.findings(renamed_items)
    yield from _isolation(renamed_items)
    index = Index(items)
    yield from _quotas(index)
    yield from _resolved(index)
    yield from _bindings(index)
    yield from _policies(index)
    yield from _priorities(index)
    yield from _demanded(index)
    yield from _secured(index)
    yield from _identities(index)
    yield from cross_object_queues.findings(index)
    yield from cross_object_nodes.findings(index)


KINDS = frozenset({"Node", "PriorityClass", "ResourceFlavor", "ServiceAccount"})
"""Kinds that are checked together and not alone."""


def _isolation(items: list[Object]) -> Iterator[Finding]:
    """Namespaces with their isolation resources, and what is opened from one tenant to another."""
    spaces = {
        str((item.get("metadata") or {}).get("name")): item
        for item in items
        if item.get("kind") == "Namespace" and is_tenants(item)
    }
    inside: dict[str, list[Object]] = {}
    for item in items:
        if where := (item.get("metadata") or {}).get("namespace"):
            inside.setdefault(str(where), []).append(item)
    homes = {name: labels_of(space)[vocabulary.TENANT] for name, space in spaces.items()}
    for name, space in sorted(spaces.items()):
        present = inside.get(name, [])
        yield from _isolation_resources(name, space, present)
    owner_of: dict[tuple[str, str], str] = {}
    yield from access.bound(items, inside, homes, owner_of)
    for queue, text in queues.shares_taken(items, homes):
        yield Finding("kueue-05", name_of(queue), text)
    yield from network.opened_to_neighbours(items, homes)
    yield from network.opened_together(items)
    for item, text in aws.cluster_wide(items, owner_of):
        yield Finding("rbac-04", name_of(item), text)
    for item, text in aws.tenants_policies(items):
        yield Finding("id-06", name_of(item), text)
    for item in items if spaces else ():
        if item.get("kind") == aws.CLUSTER and (loose := aws.undeletable(item)):
            yield Finding("eks-03", name_of(item), f"{loose}, with tenants on the cluster")


def _isolation_resources(name: str, space: Object, present: Iterable[Object]) -> Iterator[Finding]:
    kinds = {str(item.get("kind")) for item in present if _bounds(item)}
    missing = [kind for kind in ("ResourceQuota", "LimitRange") if kind not in kinds]
    if not any(_denies_all(item) for item in present):
        missing.append("default-deny NetworkPolicy")
    if missing:
        yield Finding("ns-04", name_of(space), f"no {', no '.join(missing)} in {name}")


def _bounds(item: Object) -> bool:
    """Whether a quota or limit range has limits, and for all pods: with scopes, other pods would have none."""
    limits_field = {"ResourceQuota": "hard", "LimitRange": "limits"}.get(str(item.get("kind")))
    scopes = [get_path(spec_of(item), key) for key in ("scopeSelector", "scopes")]
    return (
        bool(limits_field)
        and bool(get_path(spec_of(item), limits_field))
        and not any(scope and scope != UNKNOWN for scope in scopes)
    )


def _denies_all(item: Object) -> bool:
    spec = spec_of(item)
    return (
        item.get("kind") == "NetworkPolicy"
        and not spec.get("podSelector")
        and {"Ingress", "Egress"} <= set(spec.get("policyTypes") or ())
        and not spec.get("ingress")
        and not spec.get("egress")
    )


def _quotas(index: Index) -> Iterator[Finding]:
    """quota-05."""
    offered = _offered(index)
    for name in sorted(index.spaces) if offered else ():
        quotas = [
            item
            for item in index.within(name, "ResourceQuota")
            if not get_path(item, "spec", "scopeSelector") and not get_path(item, "spec", "scopes")
        ]
        counted_keys = {str(key) for item in quotas for key in get_path(item, "spec", "hard") or {}}
        missing = sorted(
            resource
            for resource in offered
            if f"requests.{resource}" not in counted_keys and UNKNOWN not in counted_keys
        )
        if quotas and missing:
            text = f"no {', no '.join(f'requests.{resource}' for resource in missing)}"
            yield Finding("quota-05", name_of(quotas[0]), text)


def _offered(index: Index) -> set[str]:
    """Extended resources of the cluster's GPUs; empty if no object shows GPUs."""
    resources: set[str] = set()
    for node in index.kinds("Node"):
        resources |= {*(get_path(node, "status", "allocatable") or {})}
    for item in index.kinds("NodePool"):
        resources |= {*(get_path(item, "spec", "limits") or {}), *([gpus.GPU] if pool_gpus(item) else [])}
    for item in index.kinds("NodeOverlay"):
        resources |= {*(get_path(item, "spec", "capacity") or {})}
    for item in index.kinds("ClusterQueue"):
        resources.update(*(group.resources for group in resource_groups(item.get("spec"))))
    operated = [item for item in index.kinds("ClusterPolicy") if not str(item.get("apiVersion")).startswith("kyverno")]
    if operated or any(is_operator(item) for item in index.kinds("Release")):
        resources.add(gpus.GPU)
    return {resource for resource in resources if str(resource).startswith("nvidia.com/")}


_NETWORKS = frozenset({"NetworkPolicy", cilium.IN_NAMESPACE, cilium.CLUSTERWIDE})


def _resolved(index: Index) -> Iterator[Finding]:
    """net-08."""
    for name, space in sorted(index.spaces.items()) if not index.blurred & _NETWORKS else ():
        policies = index.within(name, "NetworkPolicy")
        closed = [
            p
            for p in policies
            if "Egress" in as_list(get_path(p, "spec", "policyTypes")) and not get_path(p, "spec", "egress")
        ]
        for_all_pods = [p for p in closed if not get_path(p, "spec", "podSelector")]
        ciliums = [*index.within(name, cilium.IN_NAMESPACE), *index.kinds(cilium.CLUSTERWIDE)]
        if for_all_pods and not any(map(_opens_dns, policies)) and not any(map(cilium.opens_dns, ciliums)):
            yield Finding("net-08", name_of(for_all_pods[0]), f"no egress to port 53 in {own_name(space)}")


def _opens_dns(policy: Object) -> bool:
    for rule in as_list(get_path(policy, "spec", "egress")):
        ports = {str(get_path(port, "port")) for port in as_list(get_path(rule, "ports"))}
        elsewhere = any(
            get_path(peer, "namespaceSelector") is not None or get_path(peer, "ipBlock")
            for peer in as_list(get_path(rule, "to"))
        )
        if ports & {"53", "dns", "dns-tcp", UNKNOWN} or (not ports and (elsewhere or not get_path(rule, "to"))):
            return True
    return False


def _bindings(index: Index) -> Iterator[Finding]:
    """rbac-06; and findings for built-in roles of Kubernetes, which programs do not define."""
    cluster_roles = {own_name(item) for item in index.kinds("ClusterRole")}
    for space in sorted(index.inside):
        roles = {own_name(item) for item in index.within(space, "Role")}
        for binding in index.within(space, "RoleBinding"):
            kind, name = get_path(binding, "roleRef", "kind"), str(get_path(binding, "roleRef", "name"))
            if kind == "ClusterRole" and name in _BUILT_IN and name not in cluster_roles and tenant_label(binding):
                rule, may = _BUILT_IN[name]
                yield Finding(rule, name_of(binding), f"ClusterRole {name}, which may: {may}")
            known_names = roles if kind == "Role" else cluster_roles | {*_BUILT_IN, "view"}
            roles_shown = (kind == "Role" or cluster_roles) and kind not in index.blurred
            if (
                roles_shown
                and name not in {*known_names, UNKNOWN}
                and not name.startswith("system:")
                and tenant_label(binding)
            ):
                yield Finding("rbac-06", name_of(binding), f"{kind} {name}, which does not exist")


def _policies(index: Index) -> Iterator[Finding]:
    """guard-02."""
    policies = {own_name(item): item for item in index.kinds("ValidatingAdmissionPolicy")}
    bindings = index.kinds("ValidatingAdmissionPolicyBinding")
    bound_names = {str(get_path(item, "spec", "policyName")) for item in bindings}
    for item in bindings if policies and "ValidatingAdmissionPolicy" not in index.blurred else ():
        if (name := str(get_path(item, "spec", "policyName"))) not in {*policies, UNKNOWN}:
            yield Finding("guard-02", name_of(item), f"policyName {name}, which does not exist")
    for name, item in sorted(policies.items()):
        if name not in bound_names and UNKNOWN not in bound_names:
            yield Finding("guard-02", name_of(item), "no ValidatingAdmissionPolicyBinding that names it")


def _priorities(index: Index) -> Iterator[Finding]:
    """kueue-23."""
    if not index.spaces and not index.queues:
        return
    quotas = [get_path(item, "spec", "scopeSelector") for item in index.kinds("ResourceQuota")]
    read = str([get_path(item, "spec") for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")])
    # A single class, or one below the default priority, gives no work precedence.
    of_queues = sorted(index.kinds("WorkloadPriorityClass"), key=_value)
    of_pods = sorted((c for c in index.kinds("PriorityClass") if _value(c) > 0), key=_value)
    if len({_value(item) for item in of_queues}) > 1 and not _spoken_of(_PRIORITY, read):
        text = f"value {_value(of_queues[-1])} and no admission policy that reads {_PRIORITY}"
        yield Finding("kueue-23", name_of(of_queues[-1]), text)
    if of_pods and not _spoken_of("priorityClassName", read) and not _spoken_of("PriorityClass", str(quotas)):
        text = f"value {_value(of_pods[-1])} and no admission policy that reads priorityClassName"
        yield Finding("kueue-23", name_of(of_pods[-1]), text)


def _value(priority: Object) -> Decimal:
    return parse_or_zero(get_path(priority, "value"))


def _spoken_of(word: str, text: str) -> bool:
    return word in text or UNKNOWN in text


def _demanded(index: Index) -> Iterator[Finding]:
    """kueue-24."""
    read = str([get_path(item, "spec") for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")])
    if _spoken_of("requests", read) or index.blurred & {"LimitRange", "ResourceQuota"}:
        return
    for name, space in sorted(index.spaces.items()):
        limits = [
            limit for item in index.within(name, "LimitRange") for limit in as_list(get_path(item, "spec", "limits"))
        ]
        quotas = [get_path(item, "spec", "hard") for item in index.within(name, "ResourceQuota")]
        all_amounts = [get_path(limit, key) for limit in limits for key in ("default", "defaultRequest")] + quotas
        limited_resources = {str(key).removeprefix("requests.") for amounts in all_amounts for key in pairs_of(amounts)}
        missing = [resource for resource in ("cpu", "memory") if resource not in limited_resources]
        # If there is neither, ns-04 reports it.
        if missing and limits and index.within(name, "LocalQueue") and UNKNOWN not in str([limits, quotas]):
            yield Finding("kueue-24", name_of(space), f"no default, quota or admission policy for {', '.join(missing)}")


def _secured(index: Index) -> Iterator[Finding]:
    """pod-04. A namespace that is not among the objects counts as enforcing the strictest level."""
    for item in (breach for objects in index.by_kind.values() for breach in objects):
        namespace = str(get_path(item, "metadata", "namespace"))
        if not (tenant_label(item) or namespace in index.spaces):
            continue
        space = index.spaces.get(namespace)
        level, minor = level_of(space), minor_of(space)
        broken: list[RefusedField] = []
        for _, template in index.templates([item]):
            # pod-02 reports those, at any level of the namespace.
            reported = {*fields_that_give_root_on_node(template)}
            broken += [breach for breach in breaches(template, level, minor) if breach not in reported]
        if broken:
            wanted_fields = dict.fromkeys(breach.requirement for breach in broken if breach.requirement)
            text = f"{'; '.join(map(str, broken))}, at level {level}"
            yield Finding(
                "pod-04",
                name_of(item),
                text,
                f"write the fields so that {', '.join(wanted_fields)}" if wanted_fields else "",
            )


def _identities(index: Index) -> Iterator[Finding]:
    """id-04."""
    first: dict[str, str] = {}
    role_holders = [
        (str(get_path(item, "metadata", "namespace")), item, get_path(item, "metadata", "annotations", _ROLE_ARN))
        for item in index.kinds("ServiceAccount")
    ]
    role_holders += [
        (str(get_path(item, "spec", "namespace")), item, get_path(item, "spec", "roleARN"))
        for item in index.kinds("PodIdentityAssociation")
    ]
    role_holders += [(str(item.get("namespace")), item, item.get("roleArn")) for item in index.kinds(aws.POD_IDENTITY)]
    for namespace, item, role in sorted(role_holders, key=lambda entry: (entry[0], name_of(entry[1]))):
        tenant = index.tenant_of.get(namespace) or tenant_label(item)
        if tenant and role and role != UNKNOWN and (owner := first.setdefault(str(role), tenant)) != tenant:
            yield Finding("id-04", name_of(item), f"role {role}, which tenant {owner} has as well")
