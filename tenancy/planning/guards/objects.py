"""Guards on what is no work: scaling and deleting, nodes, networks, queues, namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.guards.admission_policy import META, Guard, NamespaceScope, change_condition
from tenancy.planning.guards.unmanaged import is_temporary
from tenancy.planning.guards.variables import LISTS, requester_variables
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import annotation_list, cel, is_unchanged, map_at
from tenancy.rules.model import GuardFacts, GuardSubject
from tenancy.rules.storage import OLD_CLASS
from tenancy.spec.fields.environment import Environment

DELETIONS = "tenancy-deletions"

ON_NODES = ("system:nodes", f"system:serviceaccounts:{vocabulary.OPERATOR_NAMESPACE}")
"""Groups of kubelets, and of NVIDIA's operator: its feature discovery labels any node as the daemons there say, under
every prefix but Kubernetes' own (nfd-master, `denyLabelNs`)."""
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Node of the pod that a service account's token is bound to (KEP-4193, on since 1.30)."""


def object_guards(environment: Environment | None, facts: GuardFacts) -> tuple[Guard, ...]:
    """All guards on objects that are not work: config maps, services, network policies, roles."""

    def guard(name: str, kinds: Sequence[tuple[str, str, Sequence[str]]], subject: GuardSubject, *fields: str) -> Guard:
        return Guard(name, kinds, expressions(subject, facts), {}, change_condition(*fields))

    old_class = f".metadata.?annotations[?{cel(OLD_CLASS)}].orValue('none')"
    return (
        guard("tenancy-configmaps", [("", "v1", ["configmaps"])], GuardSubject.CONFIG_MAPS, "data"),
        guard("tenancy-secrets", [("", "v1", ["secrets"])], GuardSubject.SECRETS, "data"),
        guard(
            "tenancy-serviceaccounts",
            [("", "v1", ["serviceaccounts"])],
            GuardSubject.SERVICE_ACCOUNTS,
            "metadata.annotations",
        ),
        guard("tenancy-services", [("", "v1", ["services"])], GuardSubject.SERVICES, "spec", "metadata.annotations"),
        _network_guard(facts),
        Guard(
            "tenancy-claims",
            [("", "v1", ["persistentvolumeclaims"])],
            expressions(GuardSubject.CLAIMS, facts),
            {},
            change_condition("spec", also=f"object{old_class} == oldObject{old_class}"),
        ),
        guard("tenancy-budgets", [("policy", "v1", ["poddisruptionbudgets"])], GuardSubject.BUDGETS, "spec"),
        Guard(
            "tenancy-namespaces",
            [("", "v1", ["namespaces", "namespaces/status", "namespaces/finalize"])],
            expressions(GuardSubject.NAMESPACES, facts),
            _namespace_variables(environment),
            change_condition(*META),
            spaces=NamespaceScope.ALL,
        ),
        Guard(
            "tenancy-removals",
            [("", "v1", ["namespaces"])],
            expressions(GuardSubject.REMOVALS, facts),
            {},
            {"tenants": f"has(oldObject.metadata.labels) && {cel(vocabulary.TENANT)} in oldObject.metadata.labels"},
            operations=("DELETE",),
            spaces=NamespaceScope.ALL,
        ),
    )


def scale_guard(facts: GuardFacts) -> Guard:
    """Refuses to scale up work with GPUs without the right to create it."""
    framework_scales = [(f.group, f.version, [f"{f.resource}/scale"]) for f in facts.frameworks]
    return Guard(
        "tenancy-scales",
        [
            ("apps", "v1", ["deployments/scale", "statefulsets/scale", "replicasets/scale"]),
            ("", "v1", ["replicationcontrollers/scale"]),
            *framework_scales,
            ("autoscaling", "v2", ["horizontalpodautoscalers"]),
        ],
        expressions(GuardSubject.SCALES, facts),
        {"allowances": LISTS["allowances"]},
        change_condition("spec"),
    )


def deletion_guard(facts: GuardFacts) -> Guard:
    """Options with which work ends: the author of a delete request chooses the pods' grace period, and whether they are
    deleted."""
    kinds: list[tuple[str, str, Sequence[str]]] = [("", "v1", ["pods"])]
    if facts.queued:
        kinds += [("batch", "v1", ["jobs"]), ("apps", "v1", ["deployments", "statefulsets"])]
        kinds += [(f.group, f.version, [f.resource]) for f in facts.frameworks]
    return Guard(
        DELETIONS,
        kinds,
        {
            **expressions(GuardSubject.DELETIONS, facts),
            **(expressions(GuardSubject.QUEUED_DELETIONS, facts) if facts.queued else {}),
        },
        {"byController": requester_variables(facts)["byController"]} if facts.queued else {},
        {},
        operations=("DELETE",),
    )


def node_guard(facts: GuardFacts) -> Guard:
    """Limits what a compromised node can write: it has its kubelet's rights, and those of the pods on it.

    A kubelet makes its Node with any labels that it is started with, and cannot delete the object to make it anew.
    """
    key = cel(NODE_OF_TOKEN)
    extra = f"request.userInfo.extra[{key}]"
    labels, old_labels = (map_at(f"{root}.metadata.labels", ()) for root in ("object", "oldObject"))
    return Guard(
        "tenancy-nodes",
        # Labels can be written by the status too, and are by kubelets.
        [("", "v1", ["nodes", "nodes/status"])],
        expressions(GuardSubject.NODES, facts),
        {"labels": labels, "oldLabels": old_labels},
        {
            **change_condition("metadata.labels"),
            "node": f"""request.userInfo.groups.exists(g, g in {cel(list(ON_NODES))})
    || (has(request.userInfo.extra) && {key} in request.userInfo.extra && object.metadata.name in {extra})""",
        },
        operations=("UPDATE",),
        spaces=NamespaceScope.ALL,
    )


def _network_guard(facts: GuardFacts) -> Guard:
    platform_label = f"has({{0}}.metadata.labels) && {cel(vocabulary.ENVIRONMENT)} in {{0}}.metadata.labels"
    return Guard(
        "tenancy-networkpolicies",
        [("networking.k8s.io", "v1", ["networkpolicies"])],
        expressions(GuardSubject.NETWORK_POLICIES, facts),
        {
            # Any change of it: with an owner reference to a tenant's object, the garbage collector would delete it.
            "ours": f"""(object != null && {platform_label.format("object")})
    || (oldObject != null && {platform_label.format("oldObject")})""",
            "allowedEgress": annotation_list(vocabulary.ALLOWED_EGRESS),
            "allowedIngress": annotation_list(vocabulary.ALLOWED_INGRESS),
        },
        {},
        operations=("CREATE", "UPDATE", "DELETE"),
    )


def queue_guard(facts: GuardFacts) -> Guard:
    """A guard on LocalQueues of every namespace."""
    return Guard(
        "tenancy-queues",
        [("kueue.x-k8s.io", "v1beta2", ["localqueues"])],
        expressions(GuardSubject.QUEUES, facts),
        {},
        change_condition("spec"),
        spaces=NamespaceScope.ALL,
    )


def admission_guard(facts: GuardFacts) -> Guard:
    """Refuses an admission of Kueue that was decided by counts which the work no longer has, and other counts of work
    that is admitted."""
    admission = "has({0}.status) && has({0}.status.admission)"
    is_new = (
        f"!({admission.format('oldObject')}) || object.status.admission != oldObject.status.admission "
        "|| object.spec.podSets != oldObject.spec.podSets"
    )
    return Guard(
        "tenancy-admissions",
        [("kueue.x-k8s.io", "v1beta2", ["workloads", "workloads/status"])],
        expressions(GuardSubject.ADMISSIONS, facts),
        {},
        # Of an admission that stands already, Kueue has to be able to write the end.
        {"admitted": f"{admission.format('object')} && ({is_new})"},
        operations=("UPDATE",),
    )


def _namespace_variables(environment: Environment | None) -> dict[str, str]:
    def either(root: str, field: str) -> str:
        null = "" if root == "object" else f"{root} != null && "
        return f"{null}has({root}.metadata.{field}) ? {root}.metadata.{field} : {{}}"

    platform_key = f"k.startsWith({cel(vocabulary.PREFIX)})"
    pod_security = "k.startsWith('pod-security.kubernetes.io/')"
    if environment and (environment.platform.unmanaged_namespaces or environment.platform.temporary_namespaces):
        # Their own owners choose it; a conformance suite labels each namespace that it makes.
        name = "object.metadata.name"
        unmanaged_name = (
            f"{name} in {cel(list(environment.platform.unmanaged_namespaces))} || {is_temporary(environment, name)}"
        )
        pod_security = f"({pod_security} && !({unmanaged_name}))"
    protected = (
        f"({platform_key} || {pod_security} || k.startsWith('kueue.x-k8s.io/')"
        " || k in ['resource.kubernetes.io/admin-access', 'resource.k8s.io/admin-access']"
        f" || k in {cel([vocabulary.MANAGED_BY, *vocabulary.COST_LABELS])})"
    )

    return {
        "labels": either("object", "labels"),
        "oldLabels": either("oldObject", "labels"),
        "annotations": either("object", "annotations"),
        "oldAnnotations": either("oldObject", "annotations"),
        "labelsKept": is_unchanged("labels", "oldLabels", protected),
        "annotationsKept": is_unchanged("annotations", "oldAnnotations", platform_key),
    }
