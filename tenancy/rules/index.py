"""Rules on all objects of a cluster together, on one index that is built once.

Missing objects of other owners are no finding: a folder with tenants' objects alone is checked without the platform's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import yaml

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.kube.quantities import parse_or_zero, write
from tenancy.kube.selectors import has_labels, matches, meets
from tenancy.kube.tolerations import tolerates
from tenancy.rules import aws, cilium, queues
from tenancy.rules.found import UNKNOWN, Finding, Object, at, many, name_of
from tenancy.rules.nodes import is_operator, pool_gpus
from tenancy.rules.pod_security import as_root_of_node, breaches, level_of, minor_of
from tenancy.rules.pod_templates import PodTemplate, containers_of, templates_of

_SUPPLIED = ("nvidia.com/", "vpc.amazonaws.com/efa", "amd.com/gpu")
"""Resources that nodes report; others in a queue are made by transformations."""
_NODE_POOL = "karpenter.sh/nodepool"
_NODE_GROUP = "eks.amazonaws.com/nodegroup"
_NODE_RESTRICTION = "node-restriction.kubernetes.io/"
_KUBELETS_OWN = frozenset(
    {f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")}
    | {f"topology.kubernetes.io/{name}" for name in ("region", "zone")}
)
"""Those with Kubernetes' own prefix."""
_ROLE_ARN = "eks.amazonaws.com/role-arn"
_QUEUE_NAME = "kueue.x-k8s.io/queue-name"
_PRIORITY = "kueue.x-k8s.io/priority-class"
_BY_FEATURE = ("feature.node.kubernetes.io/", "nvidia.com/")
"""Labels that a node gets at run time: a pool does not show them."""
_OF_NODES = ("kubernetes.io/", "node.kubernetes.io/")
"""Labels that a kubelet gives its node."""
_BUILT_IN = {
    "cluster-admin": ("rbac-01", "everything, in every API group"),
    "admin": ("rbac-03", "writes roles, rolebindings and networkpolicies"),
    "edit": ("rbac-02", "impersonates serviceaccounts, serviceaccounts/token, and writes networkpolicies"),
}
"""Kubernetes' own roles that no tenant can be bound to (1.36, `rbac/bootstrappolicy`)."""


class Index:
    """Index of all objects for the rules."""

    def __init__(self, items: Iterable[Object]) -> None:
        self.by_kind: dict[str, list[Object]] = {}
        self.inside: dict[str, list[Object]] = {}
        self.blurred: set[str] = set()
        """Kinds with an object of unknown name, namespace or labels: none of their objects counts as missing."""
        for item in items:
            self.by_kind.setdefault(str(item.get("kind")), []).append(item)
            if UNKNOWN in (
                item.get("metadata"),
                *(at(item, "metadata", key) for key in ("name", "namespace", "labels")),
            ):
                self.blurred.add(str(item.get("kind")))
            if namespace := at(item, "metadata", "namespace"):
                self.inside.setdefault(str(namespace), []).append(item)
        self.spaces = {_name(item): item for item in self.kinds("Namespace") if _tenant(item)}
        """Namespaces of tenants that are among the objects."""
        self.tenant_of = {name: str(_tenant(item)) for name, item in self.spaces.items()}
        self.queues = {_name(item): item for item in self.kinds("ClusterQueue")}
        self._templates: dict[int, tuple[PodTemplate, ...]] = {}
        self.kueue = list(_configurations(self))
        """Kueue's configurations, from all places."""

    def kinds(self, *kinds: str) -> list[Object]:
        """Objects of these kinds, in this order."""
        return [item for kind in kinds for item in self.by_kind.get(kind, ())]

    def within(self, namespace: str, kind: str) -> list[Object]:
        """Objects of a kind in a namespace."""
        return [item for item in self.inside.get(namespace, ()) if item.get("kind") == kind]

    def templates(self, items: Iterable[Object] | None = None) -> Iterator[tuple[Object, PodTemplate]]:
        """Pods and pod templates of all objects, or of these."""
        for item in (one for found in self.by_kind.values() for one in found) if items is None else items:
            if id(item) not in self._templates:
                self._templates[id(item)] = templates_of(item)
            yield from ((item, template) for template in self._templates[id(item)])

    def taken_by(self, queue: Object) -> dict[str, str]:
        """Namespaces of tenants that a ClusterQueue admits work of, with their tenants."""
        selector = at(queue, "spec", "namespaceSelector")
        if selector is None:
            return {}
        return {name: self.tenant_of[name] for name, space in self.spaces.items() if selects(selector, space)}


def findings_together(items: Iterable[Object]) -> Iterator[Finding]:
    """Findings on all objects of a cluster together, besides those of `objects`."""
    index = Index(items)
    yield from _quotas(index)
    yield from _resolved(index)
    yield from _bindings(index)
    yield from _policies(index)
    yield from _priorities(index)
    yield from _demanded(index)
    yield from _charged(index)
    yield from _taken_in(index)
    yield from _secured(index)
    yield from _identities(index)
    yield from _leads(index)
    yield from _members(index)
    yield from _supplies(index)
    yield from _settings(index)
    yield from _shared(index)
    yield from _tolerated(index)
    yield from _placed(index)
    yield from _relabelled(index)


KINDS = frozenset({"Node", "PriorityClass", "ResourceFlavor", "ServiceAccount"})
"""Kinds that are checked together and not alone."""


# Namespaces


def _quotas(index: Index) -> Iterator[Finding]:
    """quota-05."""
    offered = _offered(index)
    for name in sorted(index.spaces) if offered else ():
        quotas = [
            item
            for item in index.within(name, "ResourceQuota")
            if not at(item, "spec", "scopeSelector") and not at(item, "spec", "scopes")
        ]
        named = {str(key) for item in quotas for key in at(item, "spec", "hard") or {}}
        missing = sorted(
            resource for resource in offered if f"requests.{resource}" not in named and UNKNOWN not in named
        )
        if quotas and missing:
            given = f"no {', no '.join(f'requests.{resource}' for resource in missing)}"
            yield Finding("quota-05", name_of(quotas[0]), given)


def _offered(index: Index) -> set[str]:
    """Extended resources of the cluster's GPUs; empty if no object shows GPUs."""
    found: set[str] = set()
    for node in index.kinds("Node"):
        found |= {*(at(node, "status", "allocatable") or {})}
    for item in index.kinds("NodePool"):
        found |= {*(at(item, "spec", "limits") or {}), *([gpus.GPU] if pool_gpus(item) else [])}
    for item in index.kinds("NodeOverlay"):
        found |= {*(at(item, "spec", "capacity") or {})}
    for item in index.kinds("ClusterQueue"):
        found |= {
            str(r) for group in many(at(item, "spec", "resourceGroups")) for r in many(at(group, "coveredResources"))
        }
    operated = [item for item in index.kinds("ClusterPolicy") if not str(item.get("apiVersion")).startswith("kyverno")]
    if operated or any(is_operator(item) for item in index.kinds("Release")):
        found.add(gpus.GPU)
    return {resource for resource in found if str(resource).startswith("nvidia.com/")}


_NETWORKS = frozenset({"NetworkPolicy", cilium.IN_NAMESPACE, cilium.CLUSTERWIDE})


def _resolved(index: Index) -> Iterator[Finding]:
    """net-08."""
    for name, space in sorted(index.spaces.items()) if not index.blurred & _NETWORKS else ():
        policies = index.within(name, "NetworkPolicy")
        closed = [p for p in policies if "Egress" in many(at(p, "spec", "policyTypes")) and not at(p, "spec", "egress")]
        for_all_pods = [p for p in closed if not at(p, "spec", "podSelector")]
        ciliums = [*index.within(name, cilium.IN_NAMESPACE), *index.kinds(cilium.CLUSTERWIDE)]
        if for_all_pods and not any(map(_opens_dns, policies)) and not any(map(cilium.opens_dns, ciliums)):
            yield Finding("net-08", name_of(for_all_pods[0]), f"no egress to port 53 in {_name(space)}")


def _opens_dns(policy: Object) -> bool:
    for rule in many(at(policy, "spec", "egress")):
        ports = {str(at(port, "port")) for port in many(at(rule, "ports"))}
        elsewhere = any(
            at(peer, "namespaceSelector") is not None or at(peer, "ipBlock") for peer in many(at(rule, "to"))
        )
        if ports & {"53", "dns", "dns-tcp", UNKNOWN} or (not ports and (elsewhere or not at(rule, "to"))):
            return True
    return False


# People and identities


def _bindings(index: Index) -> Iterator[Finding]:
    """rbac-06; and findings for built-in roles of Kubernetes, which programs do not define."""
    cluster_roles = {_name(item) for item in index.kinds("ClusterRole")}
    for space in sorted(index.inside):
        roles = {_name(item) for item in index.within(space, "Role")}
        for binding in index.within(space, "RoleBinding"):
            kind, name = at(binding, "roleRef", "kind"), str(at(binding, "roleRef", "name"))
            if kind == "ClusterRole" and name in _BUILT_IN and name not in cluster_roles and _tenant(binding):
                rule, may = _BUILT_IN[name]
                yield Finding(rule, name_of(binding), f"ClusterRole {name}, which may: {may}")
            known = roles if kind == "Role" else cluster_roles | {*_BUILT_IN, "view"}
            shown = (kind == "Role" or cluster_roles) and kind not in index.blurred
            if shown and name not in {*known, UNKNOWN} and not name.startswith("system:") and _tenant(binding):
                yield Finding("rbac-06", name_of(binding), f"{kind} {name}, which does not exist")


def _policies(index: Index) -> Iterator[Finding]:
    """guard-02."""
    policies = {_name(item): item for item in index.kinds("ValidatingAdmissionPolicy")}
    bindings = index.kinds("ValidatingAdmissionPolicyBinding")
    named = {str(at(item, "spec", "policyName")) for item in bindings}
    for item in bindings if policies and "ValidatingAdmissionPolicy" not in index.blurred else ():
        if (name := str(at(item, "spec", "policyName"))) not in {*policies, UNKNOWN}:
            yield Finding("guard-02", name_of(item), f"policyName {name}, which does not exist")
    for name, item in sorted(policies.items()):
        if name not in named and UNKNOWN not in named:
            yield Finding("guard-02", name_of(item), "no ValidatingAdmissionPolicyBinding that names it")


def _priorities(index: Index) -> Iterator[Finding]:
    """kueue-23."""
    if not index.spaces and not index.queues:
        return
    quotas = [at(item, "spec", "scopeSelector") for item in index.kinds("ResourceQuota")]
    read = str([at(item, "spec") for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")])
    # A single class, or one below the default priority, gives no work precedence.
    of_queues = sorted(index.kinds("WorkloadPriorityClass"), key=_value)
    of_pods = sorted((c for c in index.kinds("PriorityClass") if _value(c) > 0), key=_value)
    if len({_value(item) for item in of_queues}) > 1 and not _spoken_of(_PRIORITY, read):
        given = f"value {_value(of_queues[-1])} and no admission policy that reads {_PRIORITY}"
        yield Finding("kueue-23", name_of(of_queues[-1]), given)
    if of_pods and not _spoken_of("priorityClassName", read) and not _spoken_of("PriorityClass", str(quotas)):
        given = f"value {_value(of_pods[-1])} and no admission policy that reads priorityClassName"
        yield Finding("kueue-23", name_of(of_pods[-1]), given)


def _value(priority: Object) -> Decimal:
    return parse_or_zero(at(priority, "value"))


def _spoken_of(word: str, text: str) -> bool:
    return word in text or UNKNOWN in text


def _demanded(index: Index) -> Iterator[Finding]:
    """kueue-24."""
    read = str([at(item, "spec") for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")])
    if _spoken_of("requests", read) or index.blurred & {"LimitRange", "ResourceQuota"}:
        return
    for name, space in sorted(index.spaces.items()):
        limits = [limit for item in index.within(name, "LimitRange") for limit in many(at(item, "spec", "limits"))]
        quotas = [at(item, "spec", "hard") for item in index.within(name, "ResourceQuota")]
        said = [at(limit, key) for limit in limits for key in ("default", "defaultRequest")] + quotas
        named = {str(key).removeprefix("requests.") for one in said for key in _pairs(one)}
        missing = [resource for resource in ("cpu", "memory") if resource not in named]
        # If there is neither, ns-04 reports it.
        if missing and limits and index.within(name, "LocalQueue") and UNKNOWN not in str([limits, quotas]):
            yield Finding("kueue-24", name_of(space), f"no default, quota or admission policy for {', '.join(missing)}")


def _charged(index: Index) -> Iterator[Finding]:
    """cost-01."""
    for name, space in sorted(index.spaces.items()):
        for item in index.inside.get(name, ()):
            charged = _pairs(_labels(space))
            told = str(_pairs(at(space, "metadata", "annotations")).get(words.OWN_LABELS, "")).split(",")
            pods = [_pairs(at(template.metadata, "labels")) for template in templates_of(item)]
            own_labels = _pairs(_labels(item))
            foreign = {
                f"{key}: {own[key]}, of a namespace of {charged[key]}": None
                for own, keys in (
                    *((labels, (words.TENANT, *words.COST_LABELS)) for labels in pods),
                    (own_labels, words.CHARGED_LABELS),
                )
                for key in (*keys, *told)
                if key in own and own[key] != charged.get(key, own[key])
            }
            if foreign:
                yield Finding("cost-01", name_of(item), "; ".join(foreign))


def _taken_in(index: Index) -> Iterator[Finding]:
    """gpu-02 by envFrom, for config maps and secrets among the objects."""
    for name in sorted(index.spaces):
        sources = {
            (kind, _name(item)): {**_pairs(item.get("data")), **_pairs(item.get("stringData"))}
            for kind in ("ConfigMap", "Secret")
            for item in index.within(name, kind)
        }
        for item, template in index.templates(index.inside.get(name, ())):
            for path, container in template.containers:
                for source in many(at(container, "envFrom")):
                    for kind, field in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                        named = str(at(source, field, "name"))
                        keys = sorted(f"{at(source, 'prefix') or ''}{key}" for key in sources.get((kind, named), ()))
                        if device := [key for key in keys if key in gpus.DEVICE_VARIABLES]:
                            given = f"{', '.join(device)} by envFrom of {kind} {named}"
                            yield Finding("gpu-02", name_of(item), f"{path}.envFrom: {given}")


def _secured(index: Index) -> Iterator[Finding]:
    """pod-04. A namespace that is not among the objects counts as enforcing the strictest level."""
    for item in (one for found in index.by_kind.values() for one in found):
        namespace = str(at(item, "metadata", "namespace"))
        if not (_tenant(item) or namespace in index.spaces):
            continue
        space = index.spaces.get(namespace)
        level, minor = level_of(space), minor_of(space)
        broken = [
            str(one)
            for _, template in index.templates([item])
            for one in breaches(template, level, minor)
            # pod-02 reports those, at any level of the namespace.
            if one not in as_root_of_node(template)
        ]
        if broken:
            yield Finding("pod-04", name_of(item), f"{'; '.join(broken)}, at level {level}")


def _identities(index: Index) -> Iterator[Finding]:
    """id-04."""
    first: dict[str, str] = {}
    held = [
        (str(at(item, "metadata", "namespace")), item, at(item, "metadata", "annotations", _ROLE_ARN))
        for item in index.kinds("ServiceAccount")
    ]
    held += [
        (str(at(item, "spec", "namespace")), item, at(item, "spec", "roleARN"))
        for item in index.kinds("PodIdentityAssociation")
    ]
    held += [(str(item.get("namespace")), item, item.get("roleArn")) for item in index.kinds(aws.POD_IDENTITY)]
    for namespace, item, role in sorted(held, key=lambda entry: (entry[0], name_of(entry[1]))):
        tenant = index.tenant_of.get(namespace) or _tenant(item)
        if tenant and role and role != UNKNOWN and (owner := first.setdefault(str(role), tenant)) != tenant:
            yield Finding("id-04", name_of(item), f"role {role}, which tenant {owner} has as well")


# Queues


def _configurations(index: Index) -> Iterator[tuple[Object, Any]]:
    for item in index.kinds("ConfigMap", "Release"):
        chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
        text: Any = None
        if item.get("kind") == "ConfigMap" and _name(item) == queues.CONFIGURATION:
            text = at(item, "data", "controller_manager_config.yaml")
        elif chart == queues.CHART:
            text = at(item, "values", "managerConfig", "controllerManagerConfigYaml")
        try:
            yield item, yaml.safe_load(text) if isinstance(text, str) else text
        except yaml.YAMLError:
            continue  # reported as kueue-14


def _leads(index: Index) -> Iterator[Finding]:
    """kueue-17, kueue-20."""
    if not index.queues:
        return
    for item in index.kinds("LocalQueue"):
        namespace, name = str(at(item, "metadata", "namespace")), str(at(item, "spec", "clusterQueue"))
        queue = index.queues.get(name)
        if queue is None and name != UNKNOWN and "ClusterQueue" not in index.blurred:
            yield Finding("kueue-17", name_of(item), f"clusterQueue {name}, which does not exist")
        elif queue and namespace in index.spaces and namespace not in index.taken_by(queue):
            selector = at(queue, "spec", "namespaceSelector")
            given = f"clusterQueue {name}, whose namespaceSelector {_plain(selector)} does not match {namespace}"
            yield Finding("kueue-17", name_of(item), given)
    if any(at(config, "manageJobsWithoutQueueName") is True for _, config in index.kueue):
        return
    if any(_QUEUE_NAME in str(at(item, "spec")) for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")):
        return
    for name, space in sorted(index.spaces.items()) if "LocalQueue" not in index.blurred else ():
        called = sorted(_name(item) for item in index.within(name, "LocalQueue"))
        if words.DEFAULT_QUEUE not in called:
            there = f"LocalQueue {', '.join(called)}" if called else "no LocalQueue"
            yield Finding("kueue-20", name_of(space), f"{there}, and none is named {words.DEFAULT_QUEUE}")


def _members(index: Index) -> Iterator[Finding]:
    """kueue-22."""
    tenants = set(index.tenant_of.values())
    for queue in index.kinds("ClusterQueue") if tenants and "Namespace" not in index.blurred else ():
        cohort = at(queue, "spec", "cohortName") or at(queue, "spec", "cohort")
        selector, tenant = at(queue, "spec", "namespaceSelector"), _tenant(queue)
        if not cohort or not selector or UNKNOWN in str(selector):
            continue
        if (tenant and tenant not in tenants) or not index.taken_by(queue):
            given = f"cohort {cohort}, and no namespace of a tenant that namespaceSelector {_plain(selector)} matches"
            yield Finding("kueue-22", name_of(queue), given)


def _supplies(index: Index) -> Iterator[Finding]:
    """kueue-16, kueue-18."""
    flavors = {_name(item): item for item in index.kinds("ResourceFlavor")}
    asked: dict[str, dict[str, Decimal]] = {}
    for item in index.kinds("ClusterQueue", "Cohort"):
        for flavor, resource, amounts in _amounts(item):
            of = asked.setdefault(flavor, {})
            # A Cohort's own quota is unallocated, and may be for nodes that are added later.
            promised = parse_or_zero(at(amounts, "nominalQuota")) if item.get("kind") == "ClusterQueue" else Decimal()
            of[resource] = of.get(resource, Decimal()) + promised
            if flavors and flavor not in {*flavors, UNKNOWN} and "ResourceFlavor" not in index.blurred:
                yield Finding("kueue-18", name_of(item), f"flavor {flavor}, which does not exist")
                flavors[flavor] = {}
    for name, item in sorted(flavors.items()):
        labels = at(item, "spec", "nodeLabels") or {}
        nodes = [node for node in index.kinds("Node") if _has(_labels(node), labels)]
        pools = [pool for pool in index.kinds("NodePool") if _has(_pool_labels(pool), labels)]
        if item and labels and index.kinds("Node") and not nodes and not pools:
            yield Finding("kueue-18", name_of(item), f"nodeLabels {_plain(labels)}, which no node has")
            continue
        for resource, wanted in sorted(asked.get(name, {}).items()):
            # If no node is shown, there may be others than Karpenter's, unless the flavor is only for those.
            seen = index.kinds("Node") or any(str(key).startswith("karpenter.") for key in labels)
            there = _supply(nodes, pools, resource) if seen else None
            if there is not None and wanted > there and resource.startswith(_SUPPLIED):
                given = f"{write(wanted)} {resource} of flavor {name} in all queues, of {write(there)}"
                yield Finding("kueue-16", name_of(item), given)


def _supply(nodes: list[Object], pools: list[Object], resource: str) -> Decimal | None:
    """Maximum capacity of nodes and pools; None if a pool has no limit, or none is shown."""
    limits = [_pairs(at(pool, "spec", "limits")) for pool in pools]
    if not (nodes or pools) or any(resource not in limit for limit in limits):
        return None
    # Nodes of a pool count against its limit.
    own = {_name(pool) for pool in pools}
    fixed = [node for node in nodes if _labels(node).get(_NODE_POOL) not in own]
    each = [at(node, "status", "allocatable", resource) for node in fixed] + [limit[resource] for limit in limits]
    return sum((parse_or_zero(one) for one in each), Decimal())


def _settings(index: Index) -> Iterator[Finding]:
    """kueue-19, kueue-21."""
    offered = {
        r for item in index.kinds("ClusterQueue") for _, r, _ in _amounts(item) if r.startswith("nvidia.com/mig-")
    }
    for source, config in index.kueue:
        fair = at(config, "fairSharing")
        if isinstance(fair, Mapping) and at(fair, "enable") is not False:
            for queue in index.kinds("ClusterQueue"):
                policy = at(queue, "spec", "preemption", "borrowWithinCohort", "policy")
                if policy not in (None, "Never", UNKNOWN):
                    yield Finding("kueue-19", name_of(queue), f"borrowWithinCohort {policy} beside fairSharing")
        inputs = {str(at(one, "input")) for one in many(at(config, "resources", "transformations"))}
        missing = sorted(offered - inputs)
        if any(name.startswith(("nvidia.com/mig-", gpus.GPU)) for name in inputs) and missing:
            yield Finding("kueue-21", name_of(source), f"transformations without {', '.join(missing)}")


def _amounts(queue: Object) -> Iterator[tuple[str, str, Any]]:
    for group in many(at(queue, "spec", "resourceGroups")):
        for flavor in many(at(group, "flavors")):
            for resource in many(at(flavor, "resources")):
                yield str(at(flavor, "name")), str(at(resource, "name")), resource


# Nodes


def _shared(index: Index) -> Iterator[Finding]:
    """pool-02."""
    users: dict[str, dict[str, Object]] = {}
    queued = False
    for queue in index.kinds("ClusterQueue"):
        for flavor, resource, amounts in _amounts(queue):
            if resource.endswith(gpus.SHARED):
                queued = True
                if any(parse_or_zero(at(amounts, key)) for key in ("nominalQuota", "borrowingLimit")):
                    for tenant in {*index.taken_by(queue).values(), *filter(None, [_tenant(queue)])}:
                        users.setdefault(f"flavor {flavor}", {}).setdefault(tenant, queue)
    if not queued:
        for name, space in sorted(index.spaces.items()):
            for item in index.within(name, "ResourceQuota"):
                held = {
                    str(key).removeprefix("requests.")
                    for key, amount in _pairs(at(item, "spec", "hard")).items()
                    if str(key).endswith(gpus.SHARED) and parse_or_zero(amount)
                }
                pools = at(space, "metadata", "annotations", words.ALLOWED_POOLS) or ""
                for resource in held:
                    for pool in sorted(pools.split(",")):
                        users.setdefault(f"{resource} {pool}".strip(), {}).setdefault(index.tenant_of[name], item)
    for what, by in sorted(users.items()):
        if len(by) > 1:
            first, *others = sorted(by)
            for tenant in others:
                yield Finding("pool-02", name_of(by[tenant]), f"{what} for tenant {tenant}, which {first} has as well")


def _tolerated(index: Index) -> Iterator[Finding]:
    """node-06."""
    pools = [
        (name_of(pool), _pool_labels(pool), aws.taints_of(at(pool, "spec", "template", "spec", "taints")))
        for pool in index.kinds("NodePool")
        if pool_gpus(pool)
    ]
    pools += [
        (name_of(node), _labels(node), aws.taints_of(at(node, "spec", "taints")))
        for node in index.kinds("Node")
        if any(str(key).startswith("nvidia.com/") for key in at(node, "status", "capacity") or {})
    ]
    for item in index.kinds("DaemonSet") if pools else ():
        if _tenant(item):
            continue
        pod = at(item, "spec", "template", "spec")
        kept_off: dict[tuple[str, ...], str] = {}
        for name, labels, taints in pools:
            missing = tuple(aws.shown([taint]) for taint in _untolerated(pod, taints))
            if missing and _may_run(pod, labels):
                kept_off.setdefault(missing, name)
        for missing, name in kept_off.items():
            yield Finding("node-06", name_of(item), f"no toleration on {name} with {', '.join(missing)}")


def _placed(index: Index) -> Iterator[Finding]:
    """sched-07."""
    places = [(_labels(n), aws.taints_of(at(n, "spec", "taints"))) for n in index.kinds("Node")]
    whole = bool(places)
    places += [
        (_pool_labels(pool), aws.taints_of(at(pool, "spec", "template", "spec", "taints")))
        for pool in index.kinds("NodePool")
    ]
    for item, template in index.templates() if places else ():
        namespace, pod = str(at(item, "metadata", "namespace")), template.spec
        wanted = at(pod, "nodeSelector")
        # Kueue adds the labels and tolerations of its flavors.
        if not _tenant(item) or not isinstance(wanted, Mapping) or not wanted or index.within(namespace, "LocalQueue"):
            continue
        if UNKNOWN in wanted.values():
            continue
        fitting = [taints for labels, taints in places if _has(labels, wanted)]
        if not fitting and whole:
            yield Finding("sched-07", name_of(item), f"nodeSelector {_plain(wanted)}, which no node has")
        elif fitting and all(_untolerated(pod, taints) for taints in fitting):
            missing = _untolerated(pod, fitting[0])
            given = f"nodeSelector {_plain(wanted)} without a toleration of {aws.shown(missing).partition(' ')[2]}"
            yield Finding("sched-07", name_of(item), given)


def _relabelled(index: Index) -> Iterator[Finding]:
    """node-08."""
    makers = list(_makers(index))
    chosen = _choices(index) if makers else {}
    every_tenant = {*index.tenant_of.values(), *(tenant for tenants in chosen.values() for tenant in tenants)}
    # A label that all tenants' work selects separates no tenants.
    apart = {label: tenants for label, tenants in chosen.items() if tenants and tenants != every_tenant}
    open_to = _unguarded(index) if apart else []
    if not open_to:
        return
    unguarded = f"no ValidatingAdmissionPolicy on updates of {' and '.join(open_to)}"
    if _choose_in_the_dark(index):
        unguarded += f"; the tenants of other work: {UNKNOWN}"
    for machine, by_itself, more, said in makers:
        given: dict[str, None] = {}
        for (key, value), tenants in sorted(apart.items()):
            has = by_itself.get(key) or (UNKNOWN if more == UNKNOWN else str(_pairs(more).get(key)))
            whose = "" if has == UNKNOWN else f" for {', '.join(sorted(tenants))}"
            if has in (value, UNKNOWN) and _of_kubelets(key):
                given[f"label {key}: {has}{whose}"] = None
        if given:
            yield Finding("node-08", name_of(machine), f"{'; '.join(given)}, and {unguarded}{said}")


def _choices(index: Index) -> dict[tuple[str, str], set[str]]:
    """Labels of nodes, and the tenants whose work selects them."""
    found: dict[tuple[str, str], set[str]] = {}
    for item, template in index.templates():
        tenant = _tenant(item) or index.tenant_of.get(str(at(item, "metadata", "namespace")))
        if tenant:
            for label in _selected(template.spec):
                found.setdefault(label, set()).add(tenant)
    flavors = {_name(item): item for item in index.kinds("ResourceFlavor")}
    for queue in index.kinds("ClusterQueue"):
        tenants = {*index.taken_by(queue).values(), *filter(None, [_tenant(queue)])}
        for name in {flavor for flavor, _, _ in _amounts(queue)} & set(flavors):
            for key, value in _pairs(at(flavors[name], "spec", "nodeLabels")).items():
                found.setdefault((str(key), str(value)), set()).update(tenants)
    return found


def _selected(pod: Any) -> Iterator[tuple[str, str]]:
    for key, value in _pairs(at(pod, "nodeSelector")).items():
        yield str(key), str(value)
    for term in _required_terms(pod):
        for one in many(at(term, "matchExpressions")):
            for value in many(at(one, "values")) if at(one, "operator") == "In" else ():
                yield str(at(one, "key")), str(value)


def _required_terms(pod: Any) -> Sequence[Any]:
    """Terms of the node affinity, one of which a node must match."""
    required = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return many(at(required, "nodeSelectorTerms"))


def _choose_in_the_dark(index: Index) -> bool:
    """Whether some work may select nodes by values that are unknown."""
    said = [at(template.spec, key) for _, template in index.templates() for key in ("nodeSelector", "affinity")]
    said += [item.get("spec") for item in index.kinds("ClusterQueue", "ResourceFlavor")]
    return UNKNOWN in str(said)


def _makers(index: Index) -> Iterator[tuple[Object, Mapping[str, str], Any, str]]:
    """Resources that create nodes, the labels that they set themselves, the configured labels, and a remark."""
    for pool in index.kinds("NodePool"):
        yield pool, {_NODE_POOL: _name(pool)}, at(pool, "spec", "template", "metadata", "labels"), ""
    for group in index.kinds(aws.GROUP):
        said = f"; EKS gives node groups no label of {_NODE_RESTRICTION}"
        yield group, {_NODE_GROUP: str(group.get("nodeGroupName"))}, group.get("labels"), said


def _unguarded(index: Index) -> list[str]:
    """Requests by which a kubelet can change labels of its node without an admission policy of the program."""
    if index.blurred & {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}:
        return []
    bound = {str(at(item, "spec", "policyName")) for item in index.kinds("ValidatingAdmissionPolicyBinding")}
    rules = [
        rule
        for policy in index.kinds("ValidatingAdmissionPolicy")
        if {_name(policy), UNKNOWN} & bound
        for rule in many(at(policy, "spec", "matchConstraints", "resourceRules"))
    ]
    return [resource for resource in ("nodes", "nodes/status") if not any(_covers(rule, resource) for rule in rules)]


def _covers(rule: Any, resource: str) -> bool:
    """Whether a rule of an admission policy matches updates of a core resource, or may (unknown values)."""

    def one_of(field: str, *names: str) -> bool:
        return bool({*map(str, many(at(rule, field)))} & {*names, UNKNOWN})

    name, _, part = resource.partition("/")
    resources = {f"{one}/{sub}" if sub else one for one in ("*", name) for sub in {part, "*"}}
    return one_of("apiGroups", "", "*") and one_of("operations", "UPDATE", "*") and one_of("resources", *resources)


def _of_kubelets(key: str) -> bool:
    """Whether a kubelet may write a label of its node (`k8s.io/kubelet`, `well_known_labels.go`)."""
    domain = f".{key.rpartition('/')[0]}"
    if not domain.endswith((".kubernetes.io", ".k8s.io")):
        return True
    return key in _KUBELETS_OWN or domain.endswith((".kubelet.kubernetes.io", ".node.kubernetes.io"))


def _untolerated(pod: Any, taints: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    tolerations = list(many(at(pod, "tolerations")))
    if any(gpus.GPU in (at(one, "resources", "limits") or {}) for one in containers_of(pod)):
        # A pod that requests a GPU may get this toleration by admission.
        tolerations.append({"key": gpus.GPU, "operator": "Exists"})
    return [
        taint for taint in taints if aws.bars(taint) and not any(tolerates(one, taint, UNKNOWN) for one in tolerations)
    ]


def _may_run(pod: Any, labels: Mapping[str, str]) -> bool:
    """Whether a pod can run on nodes with these labels, by its selectors."""
    if at(pod, "nodeSelector") == UNKNOWN:
        return False
    if any(not _may_have(labels, str(key), str(value)) for key, value in _pairs(at(pod, "nodeSelector")).items()):
        return False
    terms = _required_terms(pod)
    return not terms or any(all(_meets(labels, one) for one in many(at(term, "matchExpressions"))) for term in terms)


def _meets(labels: Mapping[str, str], requirement: Any) -> bool:
    key, operator = str(at(requirement, "key")), at(requirement, "operator")
    if key not in labels and operator in {"In", "Exists"}:
        # A label that a node may get at run time.
        return key.startswith((*_BY_FEATURE, *(_OF_NODES if operator == "In" else ())))
    return meets(requirement, labels)


def _may_have(labels: Mapping[str, str], key: str, value: str) -> bool:
    return labels[key] == value if key in labels else key.startswith((*_BY_FEATURE, *_OF_NODES))


def _pool_labels(pool: Object) -> Mapping[str, str]:
    """Labels of every node of a NodePool."""
    found = {str(k): str(v) for k, v in _pairs(at(pool, "spec", "template", "metadata", "labels")).items()}
    for requirement in many(at(pool, "spec", "template", "spec", "requirements")):
        values = many(at(requirement, "values"))
        if at(requirement, "operator") == "In" and len(values) == 1:
            found[str(at(requirement, "key"))] = str(values[0])
    return {**found, _NODE_POOL: _name(pool)}


# Reading objects


def _name(item: Object) -> str:
    return str(at(item, "metadata", "name"))


def _tenant(item: Object) -> str | None:
    tenant = at(item, "metadata", "labels", words.TENANT)
    return None if tenant == UNKNOWN else tenant


def _labels(item: Object) -> Mapping[str, str]:
    return at(item, "metadata", "labels") or {}


def _pairs(value: Any) -> Mapping[str, Any]:
    """A mapping; a missing or unknown one is empty."""
    return value if isinstance(value, Mapping) else {}


def _has(labels: Mapping[str, str], wanted: Any) -> bool:
    """Whether labels contain every wanted pair, or may (unknown values)."""
    return has_labels(wanted, labels, UNKNOWN)


def selects(selector: Any, space: Object) -> bool:
    """Whether a label selector matches a namespace; the API server labels each with its name."""
    labels = _labels(space)
    return matches(
        selector, labels if labels == UNKNOWN else {**labels, "kubernetes.io/metadata.name": _name(space)}, UNKNOWN
    )


def _plain(value: Any) -> Any:
    return {key: _plain(of) for key, of in value.items()} if isinstance(value, Mapping) else value
