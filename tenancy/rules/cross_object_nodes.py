"""Rules on nodes and the work that runs on them, on one index of all objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenancy.catalog import gpus
from tenancy.kube.kubelets import RESTRICTED, kubelet_may_label
from tenancy.kube.objects import UNKNOWN, as_list, get_path, labels_of, name_of
from tenancy.kube.pod_templates import containers_of
from tenancy.kube.quota_tree import stored_quotas
from tenancy.kube.selectors import meets_requirement
from tenancy.kube.tolerations import tolerates
from tenancy.rules import aws
from tenancy.rules.findings import Finding, Object
from tenancy.rules.index import Index, has_pairs, own_name, pairs_of, tenant_label
from tenancy.rules.nodes import NODE_POOL, pool_gpus
from tenancy.rules.owned import plain_value

_NODE_GROUP = "eks.amazonaws.com/nodegroup"
_BY_FEATURE = ("feature.node.kubernetes.io/", "nvidia.com/")
"""Labels that a node gets at run time: a pool does not show them."""
_OF_NODES = ("kubernetes.io/", "node.kubernetes.io/")
"""Labels that a kubelet gives its node."""


def findings(index: Index) -> Iterator[Finding]:
    """Violations of the rules on nodes and their pools."""
    yield from _tolerated(index)
    yield from _placed(index)
    yield from _relabelled(index)


def _tolerated(index: Index) -> Iterator[Finding]:
    """node-06."""
    pools = [
        (name_of(pool), pool_labels(pool), aws.taints_of(get_path(pool, "spec", "template", "spec", "taints")))
        for pool in index.kinds("NodePool")
        if pool_gpus(pool)
    ]
    pools += [
        (name_of(node), labels_of(node), aws.taints_of(get_path(node, "spec", "taints")))
        for node in index.kinds("Node")
        if any(str(key).startswith("nvidia.com/") for key in get_path(node, "status", "capacity") or {})
    ]
    for item in index.kinds("DaemonSet") if pools else ():
        if tenant_label(item):
            continue
        pod = get_path(item, "spec", "template", "spec")
        kept_off: dict[tuple[str, ...], str] = {}
        for name, labels, taints in pools:
            missing = tuple(aws.taints_text([taint]) for taint in _untolerated(pod, taints))
            if missing and _may_run(pod, labels):
                kept_off.setdefault(missing, name)
        for missing, name in kept_off.items():
            yield Finding("node-06", name_of(item), f"no toleration on {name} with {', '.join(missing)}")


def _placed(index: Index) -> Iterator[Finding]:
    """sched-07."""
    places = [(labels_of(n), aws.taints_of(get_path(n, "spec", "taints"))) for n in index.kinds("Node")]
    knows_all_nodes = bool(places)
    places += [
        (pool_labels(pool), aws.taints_of(get_path(pool, "spec", "template", "spec", "taints")))
        for pool in index.kinds("NodePool")
    ]
    for item, template in index.templates() if places else ():
        namespace, pod = str(get_path(item, "metadata", "namespace")), template.spec
        selector = get_path(pod, "nodeSelector")
        # Kueue adds the labels and tolerations of its flavors.
        if (
            not tenant_label(item)
            or not isinstance(selector, Mapping)
            or not selector
            or index.within(namespace, "LocalQueue")
        ):
            continue
        if UNKNOWN in selector.values():
            continue
        fitting = [taints for labels, taints in places if has_pairs(labels, selector)]
        if not fitting and knows_all_nodes:
            yield Finding("sched-07", name_of(item), f"nodeSelector {plain_value(selector)}, which no node has")
        elif fitting and all(_untolerated(pod, taints) for taints in fitting):
            taints_text = aws.taints_text(_untolerated(pod, fitting[0])).partition(" ")[2]
            detail = f"nodeSelector {plain_value(selector)} without a toleration of {taints_text}"
            yield Finding("sched-07", name_of(item), detail)


def _relabelled(index: Index) -> Iterator[Finding]:
    """node-08."""
    makers = list(_makers(index))
    tenants_by_label = _choices(index) if makers else {}
    every_tenant = {*index.tenant_of.values(), *(tenant for tenants in tenants_by_label.values() for tenant in tenants)}
    # A label that all tenants' work selects separates no tenants.
    apart = {label: tenants for label, tenants in tenants_by_label.items() if tenants and tenants != every_tenant}
    open_to = _unguarded(index) if apart else []
    if not open_to:
        return
    unguarded = f"no ValidatingAdmissionPolicy on updates of {' and '.join(open_to)}"
    if _choose_in_the_dark(index):
        unguarded += f"; the tenants of other work: {UNKNOWN}"
    for machine, by_itself, more, remark in makers:
        details: dict[str, None] = {}
        for (key, value), tenants in sorted(apart.items()):
            has = by_itself.get(key) or (UNKNOWN if more == UNKNOWN else str(pairs_of(more).get(key)))
            whose = "" if has == UNKNOWN else f" for {', '.join(sorted(tenants))}"
            if has in (value, UNKNOWN) and kubelet_may_label(key):
                details[f"label {key}: {has}{whose}"] = None
        if details:
            yield Finding("node-08", name_of(machine), f"{'; '.join(details)}, and {unguarded}{remark}")


def _choices(index: Index) -> dict[tuple[str, str], set[str]]:
    """Labels of nodes, and the tenants whose work selects them."""
    tenants_by_label: dict[tuple[str, str], set[str]] = {}
    for item, template in index.templates():
        tenant = tenant_label(item) or index.tenant_of.get(str(get_path(item, "metadata", "namespace")))
        if tenant:
            for label in _selected(template.spec):
                tenants_by_label.setdefault(label, set()).add(tenant)
    flavors = {own_name(item): item for item in index.kinds("ResourceFlavor")}
    for queue in index.kinds("ClusterQueue"):
        tenants = {*index.taken_by(queue).values(), *filter(None, [tenant_label(queue)])}
        for name in {quota.flavor for quota in stored_quotas(queue.get("spec"))} & set(flavors):
            for key, value in pairs_of(get_path(flavors[name], "spec", "nodeLabels")).items():
                tenants_by_label.setdefault((str(key), str(value)), set()).update(tenants)
    return tenants_by_label


def _selected(pod: Any) -> Iterator[tuple[str, str]]:
    for key, value in pairs_of(get_path(pod, "nodeSelector")).items():
        yield str(key), str(value)
    for term in _required_terms(pod):
        for expression in as_list(get_path(term, "matchExpressions")):
            for value in as_list(get_path(expression, "values")) if get_path(expression, "operator") == "In" else ():
                yield str(get_path(expression, "key")), str(value)


def _required_terms(pod: Any) -> Sequence[Any]:
    """Terms of the node affinity, one of which a node must match."""
    required = get_path(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return as_list(get_path(required, "nodeSelectorTerms"))


def _choose_in_the_dark(index: Index) -> bool:
    """Whether some work may select nodes by values that are unknown."""
    documents = [
        get_path(template.spec, key) for _, template in index.templates() for key in ("nodeSelector", "affinity")
    ]
    documents += [item.get("spec") for item in index.kinds("ClusterQueue", "ResourceFlavor")]
    return UNKNOWN in str(documents)


def _makers(index: Index) -> Iterator[tuple[Object, Mapping[str, str], Any, str]]:
    """Resources that create nodes, the labels that they set themselves, the configured labels, and a remark."""
    for pool in index.kinds("NodePool"):
        yield pool, {NODE_POOL: own_name(pool)}, get_path(pool, "spec", "template", "metadata", "labels"), ""
    for group in index.kinds(aws.GROUP):
        remark = f"; EKS gives node groups no label of {RESTRICTED}/"
        yield group, {_NODE_GROUP: str(group.get("nodeGroupName"))}, group.get("labels"), remark


def _unguarded(index: Index) -> list[str]:
    """Requests by which a kubelet can change labels of its node without an admission policy of the program."""
    if index.blurred & {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}:
        return []
    bound = {str(get_path(item, "spec", "policyName")) for item in index.kinds("ValidatingAdmissionPolicyBinding")}
    rules = [
        rule
        for policy in index.kinds("ValidatingAdmissionPolicy")
        if {own_name(policy), UNKNOWN} & bound
        for rule in as_list(get_path(policy, "spec", "matchConstraints", "resourceRules"))
    ]
    return [resource for resource in ("nodes", "nodes/status") if not any(_covers(rule, resource) for rule in rules)]


def _covers(rule: Any, resource: str) -> bool:
    """Whether a rule of an admission policy matches updates of a core resource, or may (unknown values)."""

    def one_of(field: str, *names: str) -> bool:
        return bool({*map(str, as_list(get_path(rule, field)))} & {*names, UNKNOWN})

    name, _, part = resource.partition("/")
    resources = {f"{api_group}/{sub}" if sub else api_group for api_group in ("*", name) for sub in {part, "*"}}
    return one_of("apiGroups", "", "*") and one_of("operations", "UPDATE", "*") and one_of("resources", *resources)


def _untolerated(pod: Any, taints: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    tolerations = list(as_list(get_path(pod, "tolerations")))
    if any(gpus.GPU in (get_path(container, "resources", "limits") or {}) for container in containers_of(pod)):
        # A pod that requests a GPU may get this toleration by admission.
        tolerations.append({"key": gpus.GPU, "operator": "Exists"})
    return [
        taint
        for taint in taints
        if aws.bars(taint) and not any(tolerates(toleration, taint, UNKNOWN) for toleration in tolerations)
    ]


def _may_run(pod: Any, labels: Mapping[str, str]) -> bool:
    """Whether a pod can run on nodes with these labels, by its selectors."""
    if get_path(pod, "nodeSelector") == UNKNOWN:
        return False
    if any(
        not _may_have(labels, str(key), str(value)) for key, value in pairs_of(get_path(pod, "nodeSelector")).items()
    ):
        return False
    terms = _required_terms(pod)
    return not terms or any(
        all(_meets(labels, expression) for expression in as_list(get_path(term, "matchExpressions"))) for term in terms
    )


def _meets(labels: Mapping[str, str], requirement: Any) -> bool:
    key, operator = str(get_path(requirement, "key")), get_path(requirement, "operator")
    if key not in labels and operator in {"In", "Exists"}:
        # A label that a node may get at run time.
        return key.startswith((*_BY_FEATURE, *(_OF_NODES if operator == "In" else ())))
    return meets_requirement(requirement, labels)


def _may_have(labels: Mapping[str, str], key: str, value: str) -> bool:
    return labels[key] == value if key in labels else key.startswith((*_BY_FEATURE, *_OF_NODES))


def pool_labels(pool: Object) -> Mapping[str, str]:
    """Labels of every node of a NodePool."""
    labels = {str(k): str(v) for k, v in pairs_of(get_path(pool, "spec", "template", "metadata", "labels")).items()}
    for requirement in as_list(get_path(pool, "spec", "template", "spec", "requirements")):
        values = as_list(get_path(requirement, "values"))
        if get_path(requirement, "operator") == "In" and len(values) == 1:
            labels[str(get_path(requirement, "key"))] = str(values[0])
    return {**labels, NODE_POOL: own_name(pool)}
