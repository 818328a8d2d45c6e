"""A kernel for each pod: the RuntimeClass of tenants in sandboxes."""

from __future__ import annotations

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.pools import node_taints
from tenancy.spec.fields.environment import Environment


def runtime_classes(environment: Environment) -> tuple[Object, ...]:
    """The API server adds selector and tolerations to every pod of the class, and quotas count what it costs."""
    if (sandbox := environment.sandbox) is None:
        return ()
    taints = node_taints(sandbox.pool, environment.pools[sandbox.pool])
    body = {
        "handler": sandbox.handler,
        "overhead": {"podFixed": dict(sandbox.overhead)},
        "scheduling": {
            "nodeSelector": {vocabulary.POOL: sandbox.pool},
            "tolerations": [{"operator": "Equal", **taint} for taint in taints],
        },
    }
    return (manifest("node.k8s.io/v1", "RuntimeClass", vocabulary.SANDBOX_CLASS, platform_labels(environment), body),)
