"""Rules on Karpenter's objects, on NVIDIA's operator, and on both together with EKS node groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import Any
from urllib.parse import urlencode

import yaml

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.days import today
from tenancy.catalog.instances import INSTANCES
from tenancy.catalog.versions import ami_release_misfit
from tenancy.kube.objects import UNKNOWN, as_list, get_path, name_of
from tenancy.kube.requests import APPLY, JSON_PATCH, MERGE, STRATEGIC, Impersonation
from tenancy.kube.tolerations import tolerates
from tenancy.rules import aws
from tenancy.rules.attacks import Attack, Request, attack, escaped, put, skipped
from tenancy.rules.expressions import cel, is_unchanged
from tenancy.rules.findings import Finding, Given, Object
from tenancy.rules.model import Face, GuardSubject, Rule, Severity
from tenancy.rules.owned import plain_value
from tenancy.rules.scene import AttackScene

PLACING = (vocabulary.PREFIX, vocabulary.NETWORK_LAYER)
"""Prefixes of node labels that pods, flavors and Kueue's topology choose by, and that a kubelet may write."""
PLACE = "kubernetes.io/hostname"
"""Narrowest level of the topology. A kubelet that registers again writes it once more as it was."""
_PLACING = f"({cel(list(PLACING))}.exists(p, k.startsWith(p)) || k == {cel(PLACE)})"

# Attacks

NOTE = "bank.example/note"
"""A label that a kubelet may write on its own node: neither the API server nor a guard reserves its prefix."""


def _labels_of_nodes(scene: AttackScene) -> Iterator[Attack]:
    """Changes of a node's pool and place by its own kubelet, whose other writes the API server admits."""
    if (node := scene.node) is None:
        yield skipped("nodes", "node-08", "relabel a node as another pool's", "the cluster has no node of a pool")
        return
    yield from _moved(scene, node)
    yield from _renamed(scene, node)


def node_path(node: Object) -> str:
    """Path of a node that a list returned, and that so has no kind."""
    return f"/api/v1/nodes/{node['metadata']['name']}"


def kubelet(node: str) -> Impersonation:
    """The identity that the kubelet of a node has by its certificate, or by its machine's role on AWS."""
    return Impersonation(f"system:node:{node}", ("system:nodes",))


def _moved(scene: AttackScene, node: Object) -> Iterator[Attack]:
    """Move the node into another tenant's pool, by every kind of write request."""
    path, who = node_path(node), kubelet(node["metadata"]["name"])
    pool = node["metadata"]["labels"][vocabulary.POOL]
    other_pool = next((name for name in sorted(scene.environment.pools) if name != pool), "of-another-tenant")
    key = escaped(vocabulary.POOL)
    at = f"/metadata/labels/{key}"
    plain: dict[str, Any] = {"metadata": {"labels": {NOTE: "hello"}}}
    applied_node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node["metadata"]["name"], **plain["metadata"]},
    }
    applied = f"{path}?{urlencode({'fieldManager': 'verify', 'force': 'true'})}"
    full_node = put(_as_it_is(node), f"/metadata/labels/{escaped(NOTE)}", "hello")
    add = [{"op": "add", "path": at, "value": other_pool}]
    ways = {
        "replace": (Request("PUT", path, put(full_node, at, other_pool), who), full_node),
        "merge": (Request("PATCH", path, put(plain, at, other_pool), who, MERGE), plain),
        "strategic": (Request("PATCH", path, put(plain, at, other_pool), who, STRATEGIC), plain),
        "json": (Request("PATCH", path, add, who, JSON_PATCH), put(add, "/0/path", at.replace(key, escaped(NOTE)))),
        "apply": (Request("PATCH", applied, put(applied_node, at, other_pool), who, APPLY), applied_node),
    }
    for name, (request, twin) in ways.items():
        yield _relabelled(scene, f"moved-{name}", f"relabel its node as another pool's by {name}", request, twin)
    status = Request("PATCH", f"{path}/status", put(plain, at, other_pool), who, STRATEGIC)
    sentence = "relabel its node as another pool's through its status"
    yield _relabelled(scene, "moved-status", sentence, status, plain, "nodes/status")
    off = Request("PATCH", path, put(plain, at, None), who, MERGE)
    yield _relabelled(scene, "orphaned", "remove its pool's label", off, plain)


def _renamed(scene: AttackScene, node: Object) -> Iterator[Attack]:
    """Change the other labels that pods are scheduled by."""
    tenants = sorted(tenant.tenant for tenant in scene.tenants)
    parts = {
        "tenant": ("relabel its node as a tenant's own", vocabulary.TENANT, tenants[0] if tenants else "of-another"),
        "network": ("relabel its node's place in the network topology", f"{vocabulary.NETWORK_LAYER}1", "nn-elsewhere"),
        "host": ("relabel its node as another machine", PLACE, "elsewhere"),
    }
    for name, (sentence, key, value) in parts.items():
        plain: dict[str, Any] = {"metadata": {"labels": {NOTE: "hello"}}}
        is_own_label = node["metadata"]["labels"].get(key) == value
        bad = put(plain, f"/metadata/labels/{escaped(key)}", None if is_own_label else value)
        request = Request("PATCH", f"{node_path(node)}/status", bad, kubelet(node["metadata"]["name"]), STRATEGIC)
        yield _relabelled(scene, f"renamed-{name}", sentence, request, plain, "nodes/status")


def _relabelled(
    scene: AttackScene, name: str, sentence: str, request: Request, twin: Any, resource: str = "nodes"
) -> Attack:
    return attack(f"node-08-{name}", "node-08", sentence, scene.guard("node-08", resource), request, twin_body=twin)


def _as_it_is(node: Object) -> Object:
    """The object as a kubelet would write it, without a resource version that could conflict."""
    metadata = {
        key: field_value
        for key, field_value in node["metadata"].items()
        if key not in {"managedFields", "resourceVersion"}
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node.get("spec") or {}}


RULES: tuple[Rule, ...] = (
    Rule(
        id="node-01",
        title="a node's metadata service answers the node and no pod",
        why="a pod that reaches it gets the credentials of the node's role, and the user data",
        fix="set httpTokens to required and httpPutResponseHopLimit to 1 under metadataOptions",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="node-02",
        title="volumes of nodes are encrypted, whatever the account's default is",
        why="a node's disk holds images, scratch data and secrets of every tenant that ran there",
        fix="set encrypted on every ebs under blockDeviceMappings, the root volume among them",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="node-03",
        title="a node with GPUs has a taint that keeps off pods without GPUs",
        why="pods without a GPU fill its CPU and memory, and its GPUs stay idle",
        fix="give the group or NodePool a taint, nvidia.com/gpu=present:NoSchedule",
    ),
    Rule(
        id="node-04",
        title="a reservation is used without a placement group, unless it was made in that group",
        why="EC2 looks for capacity in the group, finds no reserved capacity there, and starts no instance",
        fix="drop the placement group, or make the reservation in it",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="node-05",
        title="NVIDIA's operator and its feature discovery tolerate the taints of every pool with GPUs",
        why="a node that they cannot run on advertises no GPUs, so no pod can use them",
        fix="list the taint under daemonsets.tolerations and under node-feature-discovery.worker.tolerations",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="node-06",
        title="a daemon set tolerates the taints of the pools with GPUs that it may run on",
        why="a node that it does not reach has no driver, no metrics or no network, without an error",
        fix="tolerate the taint, or select the nodes that it is for",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="node-07",
        title="a NodePool with GPU instances has a limit",
        why=(
            "Karpenter starts nodes for all pending pods: a loop that makes pods uses up the budget or the last "
            "capacity"
        ),
        fix="set spec.limits, such as nvidia.com/gpu: 64",
    ),
    Rule(
        id="node-08",
        title="kubelets cannot write the node labels by which tenants' work is placed",
        why="an attacker with a node's kubelet could label it as another tenant's node and receive that tenant's pods",
        fix=(
            "deny kubelets the label by an admission policy on updates of nodes and nodes/status; on a NodePool, the "
            "prefix node-restriction.kubernetes.io/ does the same"
        ),
        advises=True,
        partial={Face.PREVIEW: "it sees resources that create nodes with such labels, and no request to change a node"},
        guards={GuardSubject.NODES: is_unchanged("labels", "oldLabels", _PLACING)},
        attacks=(_labels_of_nodes,),
    ),
    Rule(
        id="node-09",
        title="one DCGM server runs on a node with GPUs",
        why=(
            "with a second one, EKS' node monitoring agent has marked healthy nodes unhealthy, and node repair "
            "replaces "
            "such a node with everything that runs on it"
        ),
        fix="set dcgm.enabled to false: the exporter has an engine of its own, and the agent installs its own server",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="node-10",
        title="a NodePool with GPUs removes only empty nodes, and none for its age",
        why=(
            "Karpenter evicts what runs on a node to pack work more tightly, and on a node that expires: a "
            "training run "
            "ends, and begins again at its last checkpoint"
        ),
        fix=(
            "set spec.disruption.consolidationPolicy to WhenEmpty and spec.template.spec.expireAfter to Never; "
            "EKS Auto "
            "Mode takes 504h at most"
        ),
        severity=Severity.MEDIUM,
        advises=True,
    ),
)

MIG_CONFIG = "nvidia.com/mig.config"
_UNCUT = "all-disabled"
"""Name of the layout with whole GPUs."""
NODE_POOL = "karpenter.sh/nodepool"
_AUTO_MODE = "eks.amazonaws.com"
OF_KARPENTER = ("karpenter.", "eks.amazonaws.com/instance-", "eks.amazonaws.com/compute-type")
"""Prefixes of labels that only nodes of Karpenter or of EKS Auto Mode have."""
_MACHINES = ("karpenter.k8s.aws", _AUTO_MODE)
"""Domains of labels on EC2's instance types: Karpenter's, and those of EKS Auto Mode, which have the same names (EKS
user guide, "Create a Node Pool for EKS Auto Mode", 2026-11-27)."""
_GPU_VALUES: Mapping[str, frozenset[str]] = {
    "node.kubernetes.io/instance-type": frozenset(INSTANCES),
    **{f"{domain}/instance-family": aws.FAMILIES for domain in _MACHINES},
    **{f"{domain}/instance-category": frozenset({"g", "gr", "p"}) for domain in _MACHINES},
}
_GPU_KEYS = tuple(f"{domain}/instance-gpu-" for domain in _MACHINES)
_LONGEST_ON_AUTO_MODE = 504
"""Hours: the 21 days for which EKS Auto Mode keeps a node at most."""
OPERATOR = "gpu-operator"
_OPERATORS_OWN = ({"key": gpus.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"},)
"""Default tolerations of the operator's chart, for its daemonsets and those of feature discovery."""
_RENAME, _ONE_DEVICE = "renameByDefault", "failRequestsGreaterThanOne"
_SHARING = {"timeSlicing": (_RENAME, _ONE_DEVICE), "mps": (_RENAME,)}
"""Required settings by mode of sharing; with MPS the device plugin itself refuses a request for two."""


def _node_class(item: Object) -> Given:
    spec = item.get("spec")
    for term in as_list(get_path(spec, "amiSelectorTerms")):
        alias, name = term.get("alias"), str(term.get("name") or "")
        system, _, release = str(alias or "").partition("@")
        if release == "latest" or name.endswith("*"):
            yield "ami-02", f"amiSelectorTerms {alias or name}"
        elif alias == UNKNOWN:
            yield "ami-01", f"amiSelectorTerms alias {alias}"
        elif system.startswith("al2") and (misfit := ami_release_misfit(release, today())):
            yield "ami-01", f"amiSelectorTerms {alias}: {misfit}"
    yield from aws.weak_metadata(get_path(spec, "metadataOptions"), safe_default=True)
    yield from aws.open_volumes(get_path(spec, "blockDeviceMappings"))
    group, reserved = get_path(spec, "placementGroupSelector"), get_path(spec, "capacityReservationSelectorTerms")
    if group and reserved:
        yield "node-04", f"placementGroupSelector {plain_value(group)} beside capacityReservationSelectorTerms"


def _node_pool(item: Object) -> Given:
    if machines := pool_gpus(item):
        yield from aws.unbarred(get_path(item, "spec", "template", "spec", "taints"), machines)
        if (limits := get_path(item, "spec", "limits")) in (None, {}, UNKNOWN):
            yield "node-07", f"spec.limits {limits or 'not set'} with {', '.join(machines)}"
        if endings := [*_packs(item), *_ages(item)]:
            yield "node-10", f"{' and '.join(endings)} with {', '.join(machines)}"


def _packs(pool: Object) -> Iterator[str]:
    """Settings by which Karpenter removes busy nodes to save others (Karpenter v1.14 API, defaults of NodePool)."""
    disruption = get_path(pool, "spec", "disruption")
    policy = get_path(disruption, "consolidationPolicy")
    notes = get_path(pool, "spec", "template", "metadata", "annotations")
    is_stable = get_path(pool, "spec", "replicas") is not None or str(get_path(notes, _DO_NOT_DISRUPT)) == "true"
    if policy == "WhenEmpty" or is_stable or get_path(disruption, "consolidateAfter") == "Never":
        return
    if not any(_stops_packing(budget) for budget in as_list(get_path(disruption, "budgets"))):
        yield f"consolidationPolicy {policy or 'WhenEmptyOrUnderutilized, the default,'}"


_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


def _stops_packing(budget: Any) -> bool:
    reasons = as_list(get_path(budget, "reasons"))
    return (
        str(get_path(budget, "nodes")) in {"0", "0%"}
        and not get_path(budget, "schedule")
        and (not reasons or "Underutilized" in reasons)
    )


def _ages(pool: Object) -> Iterator[str]:
    """A node's maximum lifetime, if it is less than it could be."""
    age = get_path(pool, "spec", "template", "spec", "expireAfter")
    automatic = get_path(pool, "spec", "template", "spec", "nodeClassRef", "group") == _AUTO_MODE
    longest = f"{_LONGEST_ON_AUTO_MODE}h" if automatic else "Never"
    if age not in {longest, "Never"}:
        yield f"expireAfter {age or ('336h' if automatic else '720h') + ', the default,'}"


def pool_gpus(item: Object) -> list[str]:
    """Requirements of a NodePool that select instances with GPUs, or may (unknown values)."""
    gpu_labels = []
    for requirement in as_list(get_path(item, "spec", "template", "spec", "requirements")):
        key, operator = str(requirement.get("key")), requirement.get("operator")
        values = set(map(str, as_list(requirement.get("values"))))
        if key.startswith(_GPU_KEYS):
            if operator == "DoesNotExist" or (operator == "In" and values == {"0"}):
                return []
            if operator in {"In", "Exists", "Gt", "Gte"}:
                gpu_labels.append(f"{key} {operator}")
        elif key == UNKNOWN:
            gpu_labels.append(key)
        elif key in _GPU_VALUES and operator in {"In", UNKNOWN}:
            gpu_labels += sorted(values & {*_GPU_VALUES[key], UNKNOWN})
    return gpu_labels


def _release(item: Object) -> Given:
    values = item.get("values")
    if is_operator(item):
        yield from _operator(values)
        data = get_path(values, "devicePlugin", "config", "data")
        yield from shared_without_a_name(data)


def _cluster_policy(item: Object) -> Given:
    yield from _operator(item.get("spec"))


def is_operator(item: Object) -> bool:
    """Whether a Helm release is NVIDIA's operator, from any repository."""
    chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
    return item.get("kind") == "Release" and (chart == OPERATOR or chart.startswith(f"{OPERATOR}-v"))


def _operator(values: Any) -> Given:
    nri = get_path(values, "cdi", "nriPluginEnabled")
    if nri not in (None, False, "false"):
        yield "gpu-09", f"cdi.nriPluginEnabled {'true' if nri is True else nri}"
    server = get_path(values, "dcgm", "enabled")
    if server not in (None, False, "false"):
        yield "node-09", f"dcgm.enabled {'true' if server is True else server}"


def shared_without_a_name(data: Any) -> Given:
    """share-02 on the device plugin's configurations, by their names."""
    for name, text in data.items() if isinstance(data, Mapping) else [("data", data)] if data else ():
        try:
            config = yaml.safe_load(text) if isinstance(text, str) else text
        except yaml.YAMLError:
            config = text
        if config is not None and not isinstance(config, Mapping):
            yield "share-02", f"{name}, which is not a configuration: {text!r}"
        for mode, needed in _SHARING.items():
            part = get_path(config, "sharing", mode)
            missing = [key for key in needed if get_path(part, key) is not True]
            if as_list(get_path(part, "resources")) and missing:
                yield "share-02", f"{name}: {mode} without {', '.join(missing)}"


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "ClusterPolicy": _cluster_policy,
    "EC2NodeClass": _node_class,
    "NodePool": _node_pool,
    "Release": _release,
}


def findings(items: Iterable[Object]) -> Iterator[Finding]:
    """Findings on all node resources of a program together."""
    by_kind: dict[str, list[Object]] = {}
    for item in items:
        by_kind.setdefault(str(item.get("kind")), []).append(item)
    yield from _shared_security_groups([*by_kind.get(aws.TEMPLATE, ()), *by_kind.get("EC2NodeClass", ())])
    yield from _unforeseen_slices(by_kind.get("NodePool", ()), by_kind.get("NodeOverlay", ()))
    tainted: list[tuple[Object, list[Mapping[str, Any]]]] = []
    for group in by_kind.get(aws.GROUP, ()):
        # Outputs that AWS fills in are unknown in a preview; unknown inputs are reported one by one.
        machines = [name for name in aws.group_gpus(group) if name != UNKNOWN]
        if not machines:
            types = [template.get("instanceType") for template in as_list(group.get(aws.TEMPLATES))]
            machines = aws.gpu_types([name for name in types if name])
            for rule, detail in aws.unbarred(group.get("taints"), machines) if machines else ():
                yield Finding(rule, name_of(group), detail)
        if machines:
            tainted.append((group, aws.taints_of(group.get("taints"))))
    pools = filter(pool_gpus, by_kind.get("NodePool", ()))
    tainted += [(pool, aws.taints_of(get_path(pool, "spec", "template", "spec", "taints"))) for pool in pools]
    for release in filter(is_operator, by_kind.get("Release", ())):
        yield from _untolerated(release, tainted)
        yield from _configured(release, by_kind.get("ConfigMap", ()))


def _shared_security_groups(makers: Iterable[Object]) -> Iterator[Finding]:
    """pool-06: two launch templates, or two node classes, with one security group for their EFA traffic."""
    groups: list[tuple[Object, str | None, Any]] = []
    # Resources have no order: of two, the finding always names the same one.
    for item in sorted(makers, key=lambda maker: (maker.get("kind") != aws.TEMPLATE, name_of(maker))):
        if item.get("kind") == aws.TEMPLATE:
            groups.append((item, aws.tenant_of(item), aws.efa_groups(item)))
        else:
            spec = item.get("spec") or {}
            kinds = {interface.get("interfaceType") for interface in as_list(get_path(spec, "networkInterfaces"))}
            terms = (
                as_list(get_path(spec, "securityGroupSelectorTerms")) if kinds & {"efa", "efa-only", UNKNOWN} else ()
            )
            groups.append((item, aws.tenant_of(spec), terms))
    for (first_group, first_tenant, first_terms), (second_group, second_tenant, second_terms) in combinations(
        groups, 2
    ):
        if (first_tenant is None or first_tenant != second_tenant) and (shared_id := _both(first_terms, second_terms)):
            yield Finding("pool-06", name_of(second_group), f"security group {shared_id}, as {name_of(first_group)}")


def _both(first_terms: Any, second_terms: Any) -> str:
    """A security group that both have, or may have (unknown values)."""
    if not first_terms or not second_terms:
        return ""
    if isinstance(first_terms, set) or isinstance(second_terms, set):
        first, second = (
            side if isinstance(side, set) else {str(term["id"]) for term in side if term.get("id")}
            for side in (first_terms, second_terms)
        )
        return ", ".join(first & second) or (UNKNOWN if first and second and UNKNOWN in first | second else "")
    for first_term, second_term in product(first_terms, second_terms):
        for key in ("id", "name"):
            first_value, second_value = get_path(first_term, key), get_path(second_term, key)
            if first_value and second_value and (first_value == second_value or UNKNOWN in (first_value, second_value)):
                return first_value if first_value == second_value else UNKNOWN
        tags, more = get_path(first_term, "tags"), get_path(second_term, "tags")
        if tags and more and (_within(tags, more) or _within(more, tags)):
            return f"with tags {plain_value(tags)} and {plain_value(more)}"
    return ""


def _within(tags: Any, more: Any) -> bool:
    """Whether one selection by tags matches all that the other matches, or may (unknown values)."""
    if UNKNOWN in (tags, more):
        return True
    return all(
        key in more and (value in ("*", UNKNOWN) or more[key] in (value, UNKNOWN)) for key, value in tags.items()
    )


def _unforeseen_slices(pools: Iterable[Object], overlays: Iterable[Object]) -> Iterator[Finding]:
    """mig-04."""
    offers = [(overlay, list(map(str, as_list(get_path(overlay, "spec", "capacity"))))) for overlay in overlays]
    for pool in pools:
        layouts = _values_of(pool).get(MIG_CONFIG, set()) - {_UNCUT}
        offered = [key for overlay, keys in offers if _is_for(overlay, pool) for key in keys]
        if layouts and not any(key.startswith("nvidia.com/") for key in offered):
            offer_texts = [
                f"{name_of(item)} with {', '.join(keys) or 'nothing'} on {_selector_text(item)}"
                for item, keys in offers
            ]
            detail = (
                f"label {MIG_CONFIG}: {', '.join(sorted(layouts))} and {'; '.join(offer_texts) or 'no NodeOverlay'}"
            )
            yield Finding("mig-04", name_of(pool), detail)


def _values_of(pool: Object) -> dict[str, set[str]]:
    """Labels that a pool sets on its nodes."""
    template = get_path(pool, "spec", "template")
    labels = get_path(template, "metadata", "labels")
    values_by_key = {str(key): {str(value)} for key, value in labels.items()} if isinstance(labels, Mapping) else {}
    if labels == UNKNOWN:
        values_by_key[MIG_CONFIG] = {UNKNOWN}
    for requirement in as_list(get_path(template, "spec", "requirements")):
        if requirement.get("operator") == "In":
            values_by_key.setdefault(str(requirement.get("key")), set(map(str, as_list(requirement.get("values")))))
    values_by_key[NODE_POOL] = {str(get_path(pool, "metadata", "name"))}
    return values_by_key


def _is_for(overlay: Object, pool: Object) -> bool:
    """Whether an overlay matches nodes of a pool: their requirements do not exclude each other, and all are known."""
    have = _values_of(pool)
    for requirement in as_list(get_path(overlay, "spec", "requirements")):
        pool_values = have.get(str(requirement.get("key")))
        values = set(map(str, as_list(requirement.get("values"))))
        if UNKNOWN in {requirement.get("key"), requirement.get("operator"), *values}:
            return False
        if pool_values and requirement.get("operator") == "In" and not pool_values & values:
            return False
        if pool_values and requirement.get("operator") == "NotIn" and pool_values <= values:
            return False
    return True


def _selector_text(overlay: Object) -> str:
    requirements = as_list(get_path(overlay, "spec", "requirements"))
    return (
        " and ".join(", ".join(map(str, as_list(requirement.get("values")))) for requirement in requirements)
        or "all nodes"
    )


def _untolerated(release: Object, tainted: Iterable[tuple[Object, list[Mapping[str, Any]]]]) -> Iterator[Finding]:
    """node-05."""
    values = release.get("values")
    places = ["daemonsets"]
    if get_path(values, "nfd", "enabled") not in (False, "false"):
        places.append("node-feature-discovery.worker")
    for place in places:
        tolerations = get_path(values, *place.split("."), "tolerations")
        if tolerations is None:
            if release.get("valueYamlFiles"):
                continue  # valid, but not read here
            tolerations = _OPERATORS_OWN
        for pool, taints in tainted:
            missing = [
                t
                for t in taints
                if aws.bars(t)
                and not any(tolerates(toleration, t, UNKNOWN, False) for toleration in as_list(tolerations))
            ]
            if missing:
                listed_tolerations = [plain_value(toleration) for toleration in as_list(tolerations)]
                detail = f"{place}.tolerations {listed_tolerations} on {name_of(pool)} with {aws.taints_text(missing)}"
                yield Finding("node-05", name_of(release), detail)


def _configured(release: Object, maps: Iterable[Object]) -> Iterator[Finding]:
    """share-02 on the ConfigMap that the operator's device plugin reads."""
    config = get_path(release, "values", "devicePlugin", "config")
    if get_path(config, "create") is True or not get_path(config, "name"):
        return
    home = get_path(release, "metadata", "namespace") or "default"
    for item in maps:
        metadata = item.get("metadata") or {}
        if (metadata.get("name"), metadata.get("namespace") or home) == (get_path(config, "name"), home):
            for rule, detail in shared_without_a_name(item.get("data")):
                yield Finding(rule, name_of(item), detail)
