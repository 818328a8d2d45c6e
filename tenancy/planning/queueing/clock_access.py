"""Rights of `tenancy clock run`: exactly what it reads and changes."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.queueing.clock_deployment import clock_deployment
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

_RBAC = "rbac.authorization.k8s.io"
_KUEUE = "kueue.x-k8s.io"
_LEASES = "coordination.k8s.io"


def _rule(group: str, resources: list[str], verbs: list[str], names: tuple[str, ...] = ()) -> Object:
    resource_names = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **resource_names}


def clock_access(environment: Environment, tenants: Sequence[Tenant]) -> tuple[Object, ...]:
    """The clock's ServiceAccount, its rights in the cluster, and in the platform's namespace on its record of usage;
    its Deployment if there is one.

    It patches queues and cannot make or delete one. It makes Workloads in the platform's namespace alone, where they
    reserve a window's GPUs, and deletes those that keep quota after an eviction. It patches Workloads elsewhere only
    where a tier suspends idle work.
    """
    labels, name, home = platform_labels(environment), vocabulary.CLOCK, vocabulary.PLATFORM_NAMESPACE
    subject = [{"kind": "ServiceAccount", "name": name, "namespace": home}]
    queues = _rule(_KUEUE, ["clusterqueues", "cohorts"], ["get", "list", "watch", "patch"])
    # RBAC cannot limit a patch to a field; Kueue refuses most changes of admitted work.
    suspends = ["patch"] if environment.suspends_idle else []
    workloads = _rule(_KUEUE, ["workloads"], ["get", "list", "watch", "delete", *suspends])
    reserve = _rule(_KUEUE, ["workloads"], ["create"])
    events = _rule("", ["events"], ["create", "patch"])
    record = _rule("", ["configmaps"], ["get", "update"], (name,))
    # RBAC cannot limit create to a name: the object has none yet.
    create_record = _rule("", ["configmaps"], ["create"])
    leader = _rule(_LEASES, ["leases"], ["get", "update"], (name,))
    create_lease = _rule(_LEASES, ["leases"], ["create"])

    def reference(kind: str) -> Object:
        return {"subjects": subject, "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name}}

    def rbac_object(kind: str, body: Object, namespace: str | None = None) -> Object:
        return manifest(f"{_RBAC}/v1", kind, name, labels, body, namespace)

    return (
        manifest("v1", "ServiceAccount", name, labels, {"automountServiceAccountToken": False}, home),
        rbac_object("ClusterRole", {"rules": [queues, workloads, events]}),
        rbac_object("ClusterRoleBinding", reference("ClusterRole")),
        rbac_object("Role", {"rules": [record, create_record, leader, create_lease, reserve]}, home),
        rbac_object("RoleBinding", reference("Role"), home),
        *clock_deployment(environment, tenants),
    )
