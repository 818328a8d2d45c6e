"""Guards on what is no work: scaling and deleting, nodes, networks, queues, namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.catalog.sizes import MOST_GRACE
from tenancy.catalog.vocabulary import Allowance
from tenancy.planning.common.pools import NETWORK_LAYER
from tenancy.planning.guards.counts import few
from tenancy.planning.guards.expressions import (
    DEVICES,
    GRANTED,
    HAS_TENANT,
    META,
    OF_TENANT,
    Guard,
    NamespaceScope,
    cel,
    changed,
    listed,
    map_at,
    may,
    unchanged,
)
from tenancy.planning.guards.keys import claim_classes
from tenancy.planning.guards.names import AUTOSCALERS, NAMESPACE_CONTROLLERS, VOLUME_BINDER
from tenancy.planning.guards.pods import LISTS
from tenancy.planning.guards.sizes import of_tenants, people
from tenancy.planning.guards.unmanaged import is_temporary
from tenancy.planning.guards.who import frameworks, who
from tenancy.rules.values import HARMLESS_ANNOTATIONS, PUBLISHERS
from tenancy.schema.environment import Environment

DELETIONS = "tenancy-deletions"

ON_NODES = ("system:nodes", f"system:serviceaccounts:{words.OPERATOR_NAMESPACE}")
"""Groups of kubelets, and of NVIDIA's operator: its feature discovery labels any node as the daemons there say, under
every prefix but Kubernetes' own (nfd-master, `denyLabelNs`)."""
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Of a service account's token that is bound to a pod: where that pod runs (KEP-4193, on since 1.30)."""
PLACING = (words.PREFIX, NETWORK_LAYER)
"""How the labels of nodes begin that pods, flavors and Kueue's topology choose by, and that a kubelet may write."""
PLACE = "kubernetes.io/hostname"
"""The narrowest of the topology, and what keeps pods of two tenants apart. A kubelet that registers again writes it
once more as it was."""

_HARMLESS, _CONTROLLERS = cel(list(HARMLESS_ANNOTATIONS)), cel(list(PUBLISHERS))

# Of objects that are deleted. A pod's grace period may be that of the request, and a Job's pods may outlive the Job.
_DELETION_RULES: Mapping[str, str] = {
    "avail-01": f"""request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds <= {MOST_GRACE}""",
}
# What the API server forgets at once has given its quota and its share back while its containers still run.
_AT_ONCE = """request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds > 0
        || !has(dyn(oldObject).spec.nodeName) || dyn(oldObject).spec.nodeName == ''
        || (has(dyn(oldObject).status.phase) && dyn(oldObject).status.phase in ['Succeeded', 'Failed'])"""
QUEUED_DELETIONS: Mapping[str, str] = {
    "kueue-25": """variables.byController || request.resource.resource == 'pods' || (
        (!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan')
        && (!has(request.options.orphanDependents) || !request.options.orphanDependents)
        && (request.resource.resource != 'jobs' || has(request.options.propagationPolicy)
            || has(request.options.orphanDependents)))""",  # of a Job without either, the API server leaves the pods
}

# By now every service has an address. An address that a client chose has a field manager; one that the API server
# chose has none.
_GIVEN_ADDRESS = """object.spec.?clusterIP.orValue('None') == 'None'
        || dyn(object).metadata.?managedFields.orValue([]).all(m, !m.?fieldsV1[?'f:spec'][?'f:clusterIP'].hasValue()
            && !m.?fieldsV1[?'f:spec'][?'f:clusterIPs'].hasValue())"""
# Each name is looked up: the expression does not iterate over what the requester wrote.
_KEYS = f"!has(object.data) || {DEVICES}.all(d, !(d in object.data))"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation that goes before `storageClassName`: what the volume binder reads first."""


def object_guards(environment: Environment) -> tuple[Guard, ...]:
    """Guards on objects that are not work: config maps, services, network policies, roles."""
    platform = f"{cel(environment.platform.group)} in request.userInfo.groups"
    return (
        Guard(
            "tenancy-configmaps",
            [("", "v1", ["configmaps"])],
            {"gpu-04": _KEYS},
            {},
            changed("data"),
        ),
        Guard(
            "tenancy-secrets",
            [("", "v1", ["secrets"])],
            {"gpu-04": _KEYS, "id-02": "!has(object.type) || object.type != 'kubernetes.io/service-account-token'"},
            {},
            changed("data"),
        ),
        Guard(
            "tenancy-serviceaccounts",
            [("", "v1", ["serviceaccounts"])],
            {
                "id-01": f"""{platform} || !has(object.metadata.annotations)
        || !object.metadata.annotations.exists(k, k.startsWith('eks.amazonaws.com/'))""",
            },
            {},
            changed("metadata.annotations"),
        ),
        Guard(
            "tenancy-services",
            [("", "v1", ["services"])],
            {
                "net-01": f"""(!has(object.spec.type) || object.spec.type == 'ClusterIP')
        && (!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0)
        && !has(object.spec.externalName)
        && (!has(object.metadata.annotations) || object.metadata.annotations.all(k,
            !k.contains('/') || {_HARMLESS}.exists(p, k.startsWith(p))
            || !{_CONTROLLERS}.exists(d, k.split('/')[0].endsWith(d))))""",
                **of_tenants({"net-11": f"{platform} || request.operation != 'CREATE' || {_GIVEN_ADDRESS}"}),
            },
            {},
            changed("spec", "metadata.annotations"),
        ),
        _network_guard(environment),
        Guard(
            "tenancy-claims",
            [("", "v1", ["persistentvolumeclaims"])],
            {
                "stor-03": f"""has(object.spec.storageClassName) && object.spec.storageClassName != ''
        && object.metadata.?annotations[?{cel(_OLD_CLASS)}].orValue(object.spec.storageClassName)
            == object.spec.storageClassName
        && !has(object.spec.selector)
        && (!has(object.spec.volumeName) || object.spec.volumeName == ''
            || request.userInfo.username == {cel(VOLUME_BINDER)}
            || (oldObject != null && has(oldObject.spec.volumeName)
                && oldObject.spec.volumeName == object.spec.volumeName))""",
                # A claim that is there keeps its class: it can still be enlarged.
                "stor-12": f"""({claim_classes(environment, "dyn(object)")}) || (oldObject != null
        && {_same("storageClassName")} && {_same("volumeAttributesClassName")})""",
            },
            {},
            changed("spec", also=_same_old_class()),
        ),
        Guard(
            "tenancy-budgets",
            [("policy", "v1", ["poddisruptionbudgets"])],
            {
                # The number of pods is unknown here: any other number of pods to keep may be all of them. Without
                # any number it is one.
                "avail-02": """(has(object.spec.maxUnavailable)
            ? int(string(object.spec.maxUnavailable).replace('%', '')) > 0 : has(object.spec.minAvailable))
        && (!has(object.spec.minAvailable) || int(string(object.spec.minAvailable).replace('%', '')) == 0)"""
            },
            {},
            changed("spec"),
        ),
        Guard(
            "tenancy-namespaces",
            [("", "v1", ["namespaces", "namespaces/status", "namespaces/finalize"])],
            {"ns-01": f"{platform} || (variables.labelsKept && variables.annotationsKept)"},
            _namespace_variables(environment),
            changed(*META),
            spaces=NamespaceScope.ALL,
        ),
        Guard(
            "tenancy-removals",
            [("", "v1", ["namespaces"])],
            {"ns-05": f"{platform} || request.userInfo.username in {cel(list(NAMESPACE_CONTROLLERS))}"},
            {},
            {"tenants": f"has(oldObject.metadata.labels) && {cel(words.TENANT)} in oldObject.metadata.labels"},
            operations=("DELETE",),
            spaces=NamespaceScope.ALL,
        ),
    )


def scale_guard(environment: Environment) -> Guard:
    """Refuses to scale up work with GPUs without the right to create it. A scale request does not say what it scales,
    so the rule applies to all work."""
    others = [(f.group, f.version, [f"{f.resource}/scale"]) for f in frameworks(environment)]
    # No replicas are no field.
    now, before = (f"dyn({root}).?spec.?replicas.orValue(0)" for root in ("object", "oldObject"))
    scaler = "request.resource.resource == 'horizontalpodautoscalers'"
    pods = f"{scaler} ? {few('dyn(object).spec.maxReplicas')} : {few(now)}"
    return Guard(
        "tenancy-scales",
        [
            ("apps", "v1", ["deployments/scale", "statefulsets/scale", "replicasets/scale"]),
            ("", "v1", ["replicationcontrollers/scale"]),
            *others,
            ("autoscaling", "v2", ["horizontalpodautoscalers"]),
        ],
        {
            "gpu-10": f"""{may(Allowance.GPUS_FOR_ALL)} || request.userInfo.username in {cel(list(AUTOSCALERS))}
        || (has(request.subResource) && {now} <= {before}) || {GRANTED}""",
            **({"kueue-29": pods} if environment.queued else {}),
        },
        {"allowances": LISTS["allowances"]},
        changed("spec"),
    )


def _same(field: str) -> str:
    now, before = (f"dyn({root}).spec.?{field}.orValue('')" for root in ("object", "oldObject"))
    return f"{now} == {before}"


def _same_old_class() -> str:
    old = f".metadata.?annotations[?{cel(_OLD_CLASS)}].orValue('none')"
    return f"object{old} == oldObject{old}"


def deletion_guard(environment: Environment) -> Guard:
    """How work ends. The author of a delete request chooses the pods' grace period, and whether they are deleted."""
    queued = environment.queued
    kinds = [("", "v1", ["pods"])]
    if queued:
        kinds += [("batch", "v1", ["jobs"]), ("apps", "v1", ["deployments", "statefulsets"])]
        kinds += [(f.group, f.version, [f.resource]) for f in frameworks(environment)]
    return Guard(
        DELETIONS,
        kinds,
        {
            **_DELETION_RULES,
            **of_tenants({"avail-06": f"!({people(environment)['people']}) || {_AT_ONCE}"}),
            **(QUEUED_DELETIONS if queued else {}),
        },
        {"byController": who(environment)["byController"]} if queued else {},
        {},
        operations=("DELETE",),
    )


def node_guard() -> Guard:
    """Limits what a compromised node can write: it has its kubelet's rights, and those of the pods on it.

    A kubelet makes its Node with any labels that it is started with, and cannot delete the object to make it anew.
    """
    key = cel(NODE_OF_TOKEN)
    extra = f"request.userInfo.extra[{key}]"
    placing = f"({cel(list(PLACING))}.exists(p, k.startsWith(p)) || k == {cel(PLACE)})"
    labels, old = (map_at(f"{root}.metadata.labels", ()) for root in ("object", "oldObject"))
    return Guard(
        "tenancy-nodes",
        # Labels can be written by the status too, and are by kubelets.
        [("", "v1", ["nodes", "nodes/status"])],
        {"node-08": unchanged("labels", "oldLabels", placing)},
        {"labels": labels, "oldLabels": old},
        {
            **changed("metadata.labels"),
            "node": f"""request.userInfo.groups.exists(g, g in {cel(list(ON_NODES))})
    || (has(request.userInfo.extra) && {key} in request.userInfo.extra && object.metadata.name in {extra})""",
        },
        operations=("UPDATE",),
        spaces=NamespaceScope.ALL,
    )


def _network_guard(environment: Environment) -> Guard:
    """NetworkPolicies add up: one of a tenant's own may open only what its file opens, and the platform's stay."""
    platform = f"{cel(environment.platform.group)} in request.userInfo.groups"
    ours = f"has({{0}}.metadata.labels) && {cel(words.ENVIRONMENT)} in {{0}}.metadata.labels"
    name, tenant = cel(words.SPACE_NAME), cel(words.TENANT)

    def home(allowed: str) -> str:
        """Whether a peer `p` of a rule `r` is the namespace, a sibling, or an address that the file names."""
        chosen = "p.namespaceSelector.matchLabels"
        return f"""has(p.ipBlock)
            ? has(r.ports) && size(r.ports) > 0 && r.ports.all(q, has(q.port) && !has(q.endPort)
                && (p.ipBlock.cidr + ':' + string(q.port) + '/' + (has(q.protocol) ? q.protocol : 'TCP'))
                    in variables.{allowed})
            : !has(p.namespaceSelector) || (has({chosen}) && (
                ({name} in {chosen} && {chosen}[{name}] == namespaceObject.metadata.name)
                || ({cel(words.SIBLINGS)} in variables.{allowed} && {tenant} in {chosen}
                    && {chosen}[{tenant}] == {OF_TENANT})))"""

    def narrow(direction: str, side: str, allowed: str) -> str:
        at = f"object.spec.{direction}"
        return f"""(!has({at}) || {at}.all(r, has(r.{side}) && size(r.{side}) > 0
            && r.{side}.all(p, {home(allowed)})))"""

    return Guard(
        "tenancy-networkpolicies",
        [("networking.k8s.io", "v1", ["networkpolicies"])],
        {
            "net-10": f"{platform} || !variables.ours || request.userInfo.username in "
            + cel(list(NAMESPACE_CONTROLLERS)),
            "net-02": f"""{platform} || request.operation == 'DELETE'
        || (request.operation == 'UPDATE' && object.spec == oldObject.spec)
        || ({narrow("ingress", "from", "allowedIngress")} && {narrow("egress", "to", "allowedEgress")})""",
        },
        {
            # Any change of it: with an owner reference to a tenant's object, the garbage collector would delete it.
            "ours": f"""(object != null && {ours.format("object")})
    || (oldObject != null && {ours.format("oldObject")})""",
            "allowedEgress": listed(words.ALLOWED_EGRESS),
            "allowedIngress": listed(words.ALLOWED_INGRESS),
        },
        {},
        operations=("CREATE", "UPDATE", "DELETE"),
    )


def queue_guard() -> Guard:
    """A LocalQueue leads to the tenant's own share, for any author."""
    return Guard(
        "tenancy-queues",
        [("kueue.x-k8s.io", "v1beta2", ["localqueues"])],
        {
            "kueue-05": f"""{HAS_TENANT["ns-02"]}
        && object.spec.clusterQueue.startsWith({OF_TENANT} + {cel(words.SEPARATOR)})"""
        },
        {},
        changed("spec"),
        spaces=NamespaceScope.ALL,
    )


def _namespace_variables(environment: Environment) -> dict[str, str]:
    def either(root: str, field: str) -> str:
        null = "" if root == "object" else f"{root} != null && "
        return f"{null}has({root}.metadata.{field}) ? {root}.metadata.{field} : {{}}"

    ours = f"k.startsWith({cel(words.PREFIX)})"
    pod_security = "k.startsWith('pod-security.kubernetes.io/')"
    if environment.platform.unmanaged or environment.platform.temporary_namespaces:
        # Their own owners choose it; a conformance suite labels each namespace that it makes.
        name = "object.metadata.name"
        outside = f"{name} in {cel(list(environment.platform.unmanaged))} || {is_temporary(environment, name)}"
        pod_security = f"({pod_security} && !({outside}))"
    protected = (
        f"({ours} || {pod_security} || k.startsWith('kueue.x-k8s.io/')"
        " || k in ['resource.kubernetes.io/admin-access', 'resource.k8s.io/admin-access']"
        f" || k in {cel([words.MANAGED_BY, *words.COST_LABELS])})"
    )

    return {
        "labels": either("object", "labels"),
        "oldLabels": either("oldObject", "labels"),
        "annotations": either("object", "annotations"),
        "oldAnnotations": either("oldObject", "annotations"),
        "labelsKept": unchanged("labels", "oldLabels", protected),
        "annotationsKept": unchanged("annotations", "oldAnnotations", ours),
    }
