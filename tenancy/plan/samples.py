"""The smallest workloads that the cluster admits from a tenant's developers."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.plan.labels import manifest
from tenancy.plan.model import Object
from tenancy.plan.pools import node_taints, pools_of
from tenancy.rules.catalogue import Violation
from tenancy.spec.environment import Environment, nearest
from tenancy.spec.tenant import Namespace, Tenant


def find_namespace(tenant: Tenant, part: str | None) -> Namespace:
    """A part by its name or its namespace's; the first when none is given. Violation if there is none."""
    if part is None:
        return tenant.namespaces[0]
    for namespace in tenant.namespaces:
        if part in {namespace.name, tenant.namespace_name(namespace)}:
            return namespace
    known = ", ".join(n.name for n in tenant.namespaces)
    raise Violation("ref-01", f"namespace {part!r} of tenant {tenant.tenant}", f"use one of {known}")


def sample(
    kind: str, environment: Environment, tenant: Tenant, namespace: Namespace, wanted: Mapping[str, int]
) -> Object:
    """A `pod` or `job` that asks for `wanted` GPUs by flavor; Violation if the tenant may not have them."""
    resources = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    tolerations: list[dict[str, str]] = []
    selector: dict[str, str] = {}
    for flavor, count in wanted.items():
        if flavor not in tenant.gpus:
            known = ", ".join(nearest(flavor, tenant.gpus)) or "no flavor at all"
            raise Violation("gpu-06", f"{flavor} for {tenant.tenant}", f"{tenant.tenant} has {known}")
        held = tenant.held_in(namespace)[flavor]
        if count > held:
            given = f"{count} {flavor}, while {tenant.namespace_name(namespace)} holds {held}"
            raise Violation("gpu-06", given, "ask for less, or choose the namespace that holds them")
        pools = pools_of(environment, flavor, tenant.tenant, frozenset({tenant.tier_of(namespace)}))
        if not pools:
            raise Violation("pool-01", f"{flavor}, which no pool yields to tier {tenant.tier_of(namespace)}")
        resources[environment.resource_of(flavor)] = str(count)
        selector = {words.POOL: pools[0]}
        tolerations = [{"operator": "Equal", **taint} for taint in node_taints(pools[0], environment.pools[pools[0]])]
    if len(wanted) > 1:
        raise Violation("build-01", f"flavors {', '.join(wanted)}", "one pod runs on one pool: ask for one flavor")
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "hello",
                "image": environment.images.sample,
                "command": ["nvidia-smi", "-L"] if wanted else ["true"],
                "resources": {"requests": dict(resources), "limits": dict(resources)},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        **({"tolerations": tolerations, "nodeSelector": selector} if wanted else {}),
    }
    labels = {"app.kubernetes.io/name": "hello-gpu"}
    where = tenant.namespace_name(namespace)
    if kind == "pod":
        return manifest("v1", "Pod", "hello-gpu", labels, {"spec": spec}, namespace=where)
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": template}}
    return manifest("batch/v1", "Job", "hello-gpu", labels, body, namespace=where)
