"""Finds the tenant of each object in manifests of any origin, and sets the labels that the rules read.

If a namespace has a tenant label, this label decides. Otherwise every namespace except the platform's counts as a
tenant, and an object belongs to the tenant of its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.kinds import GROUPS, ruled
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.kube.pod_templates import holds_pods
from tenancy.rules import cilium
from tenancy.rules.findings import Object
from tenancy.rules.index import Index, selects

PLATFORMS = frozenset(
    {
        *vocabulary.SYSTEM_NAMESPACES,
        *vocabulary.RESERVED_NAMES,
        *(framework.namespace for framework in FRAMEWORKS.values()),
    }
    - {"all", "default", "shared"}
) | frozenset(
    "amazon-cloudwatch argocd aws-observability cert-manager external-dns external-secrets flux-system "
    "gatekeeper-system ingress-nginx istio-system kube-system kyverno logging network-operator node-feature-discovery "
    "nvidia-device-plugin nvidia-gpu-operator nvidia-network-operator opencost prometheus".split()
)
"""Namespaces that belong to no tenant."""
_OURS_BY_PREFIX = ("kube-", "openshift-")
_EVERYWHERE = "default"
"""Namespace of an object that names none."""
_NAMESPACED = frozenset(
    "CiliumNetworkPolicy CronJob Deployment Job LimitRange LocalQueue NetworkPolicy Pod ReplicaSet "
    "ReplicationController ResourceClaim ResourceClaimTemplate ResourceQuota Role RoleBinding "
    "Service ServiceAccount StatefulSet".split()
)
"""Kinds that belong to a tenant also without a namespace. A DaemonSet without one belongs to the platform."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The objects with labels; `plain` are the same in the form for the rules on this product's own names."""

    objects: list[Object]
    plain: list[Object]
    tenant_of: Mapping[str, str]
    foreign: bool
    """Whether no object has a label of this product."""


def adopt(
    items: Iterable[Object],
    label: str | None = None,
    platform: Collection[str] = (),
    tenants: Mapping[str, str] | None = None,
) -> Adopted:
    """Every object with the label of its tenant; `label` is the key on namespaces of tenants, if it is another.

    `tenants` has the tenant of each namespace, where it is known.
    """
    items = [with_rule_kind(_stored(item)) for item in _written_by_people(list(items))]
    key = label or vocabulary.TENANT
    is_marked = any({key, vocabulary.ENVIRONMENT} & {*_labels(item)} for item in items)
    foreign = tenants is None and (label is not None or not is_marked)
    if label is None and foreign:
        names = {_namespace(item) for item in items}
        names |= {get_path(item, "metadata", "name") for item in items if item.get("kind") == "Namespace"}
        tenant_of = {
            str(name): str(name) for name in names - {None, "", UNKNOWN} if not _is_platforms(str(name), platform)
        }
    else:
        spaces = [item for item in items if item.get("kind") == "Namespace"]
        tenant_of = {
            str(get_path(item, "metadata", "name")): str(_labels(item)[key]) for item in spaces if key in _labels(item)
        }
        for item in items:
            if (space := _namespace(item)) and key in _labels(item) and space not in platform:
                tenant_of.setdefault(space, str(_labels(item)[key]))
        tenant_of = {name: tenant for name, tenant in tenant_of.items() if UNKNOWN not in (name, tenant)}
        tenant_of = {**tenant_of, **(tenants or {})}
    labelled = [_labelled(item, tenant_of) for item in items]
    if not foreign:
        return Adopted(labelled, labelled, tenant_of, foreign)
    index = Index(labelled)
    return Adopted(labelled, [_in_our_words(item, tenant_of, index) for item in labelled], tenant_of, foreign)


def _is_platforms(name: str, platform: Collection[str]) -> bool:
    return name in PLATFORMS or name in platform or name.startswith(_OURS_BY_PREFIX)


def _written_by_people(items: list[Object]) -> list[Object]:
    """Objects without those that a controller made from another of them: a dump contains both."""
    uids = {get_path(item, "metadata", "uid") for item in items} - {None}
    return [
        item
        for item in items
        if not any(
            get_path(owner, "controller") is True and get_path(owner, "uid") in uids
            for owner in as_list(get_path(item, "metadata", "ownerReferences"))
        )
    ]


def _stored(item: Object) -> Object:
    """A pod of a dump as it was created, without the node that the scheduler chose."""
    if item.get("kind") == "Pod" and get_path(item, "metadata", "uid"):
        return {**item, "spec": {key: value for key, value in (item.get("spec") or {}).items() if key != "nodeName"}}
    return item


def with_rule_kind(item: Object) -> Object:
    """The object with its kind as the rules name it, by its API group."""
    kind = str(item.get("kind"))
    rule_kind = ruled(kind, str(item.get("apiVersion") or ""))
    return item if rule_kind == kind else {**item, "kind": rule_kind}


def _labels(item: Object) -> Mapping[str, Any]:
    labels = get_path(item, "metadata", "labels")
    return labels if isinstance(labels, Mapping) else {}  # they may be unknown in a preview


def _namespace(item: Object) -> str | None:
    namespace = get_path(item, "metadata", "namespace")
    if namespace:
        return str(namespace)
    of_others = item.get("kind") not in GROUPS and holds_pods(item)
    return _EVERYWHERE if of_others or item.get("kind") in _NAMESPACED else None


def _labelled(item: Object, tenant_of: Mapping[str, str]) -> Object:
    kind, metadata = item.get("kind"), item.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        return item
    space = metadata.get("name") if kind == "Namespace" else _namespace(item)
    tenant = tenant_of.get(str(space)) if space else None
    if kind == "ClusterRoleBinding":
        accounts = [
            subject for subject in as_list(item.get("subjects")) if get_path(subject, "kind") == "ServiceAccount"
        ]
        # A base of kustomize may have default as a placeholder for the namespace of its overlays.
        spaces = {str(get_path(subject, "namespace")) for subject in accounts} - {_EVERYWHERE}
        tenant = next((tenant_of[name] for name in sorted(spaces) if name in tenant_of), None)
    if tenant is None or _labels(item).get(vocabulary.TENANT):
        return item
    return {**item, "metadata": {**metadata, "labels": {**_labels(item), vocabulary.TENANT: tenant}}}


def _in_our_words(item: Object, tenant_of: Mapping[str, str], index: Index) -> Object:
    """An object of another origin that complies with a rule under other names, with the names that the rule expects."""
    tenant = _labels(item).get(vocabulary.TENANT)
    if item.get("kind") == "NetworkPolicy" and tenant:
        spec = dict(item.get("spec") or {})
        for side, peers in (("ingress", "from"), ("egress", "to")):
            if isinstance(spec.get(side), list):
                spec[side] = [
                    _homely(rule, peers, lambda selector: _stays(selector, str(tenant), tenant_of, index), str(tenant))
                    for rule in spec[side]
                ]
        return {**item, "spec": spec}
    if item.get("kind") == cilium.IN_NAMESPACE and tenant:

        def stays(peer: Any) -> bool:
            tenants_by_space = [(name, tenant_of.get(name)) for name in cilium.spaces_of(peer)]
            all_own = [
                whose == tenant or (whose is None and _is_platforms(name, ())) for name, whose in tenants_by_space
            ]
            return bool(tenants_by_space) and all(all_own) and "kube-system" not in dict(tenants_by_space)

        rewritten_fields = {
            key: [_homely_spec(spec, stays) for spec in as_list(item.get(key))] for key in ("specs",) if item.get(key)
        }
        return {**item, "spec": _homely_spec(item.get("spec"), stays), **rewritten_fields}
    if item.get("kind") == "LocalQueue" and tenant:
        name = str(get_path(item, "spec", "clusterQueue"))
        queue = index.queues.get(name)
        # A queue that several tenants share keeps its name, and is reported.
        if queue is None or set(index.taken_by(queue).values()) <= {tenant}:
            return {
                **item,
                "spec": {**(item.get("spec") or {}), "clusterQueue": vocabulary.derived_name(str(tenant), name)},
            }
    return item


def _homely(rule: Any, peers: str, stays: Callable[[Any], bool], tenant: str) -> Any:
    if not isinstance(rule, Mapping) or not isinstance(rule.get(peers), list):
        return rule
    own_selector = {"matchLabels": {vocabulary.TENANT: tenant}}
    return {
        **rule,
        peers: [
            {**peer, "namespaceSelector": own_selector} if stays(get_path(peer, "namespaceSelector")) else peer
            for peer in rule[peers]
        ],
    }


def _homely_spec(spec: Any, stays: Callable[[Any], bool]) -> Any:
    """A spec of Cilium's, with peers that stay as those of the own namespace."""
    if not isinstance(spec, Mapping):
        return spec
    homely = dict(spec)
    for side, peers in (("ingress", "fromEndpoints"), ("egress", "toEndpoints")):
        if isinstance(rules := spec.get(side), list):
            homely[side] = [
                {**rule, peers: [{} if stays(peer) else peer for peer in rule[peers]]}
                if isinstance(rule, Mapping) and isinstance(rule.get(peers), list)
                else rule
                for rule in rules
            ]
    return homely


def _stays(selector: Any, tenant: str, tenant_of: Mapping[str, str], index: Index) -> bool:
    """Whether a selector matches by name only namespaces of this tenant or of the platform."""
    names = get_path(selector, "matchLabels", "kubernetes.io/metadata.name")
    if names in tenant_of or _is_platforms(str(names), ()):
        return tenant_of.get(str(names), tenant) == tenant and names != "kube-system"
    if not get_path(selector, "matchLabels") and not get_path(selector, "matchExpressions"):
        return False
    selected_spaces = [space for space in index.spaces.values() if selects(selector, space)]
    return bool(selected_spaces) and {_labels(space)[vocabulary.TENANT] for space in selected_spaces} == {tenant}
