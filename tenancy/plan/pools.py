"""What the pools' nodes look like to the scheduler: labels, taints, resources."""

from __future__ import annotations

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment, Pool


def node_labels(name: str, pool: Pool) -> dict[str, str]:
    instance = gpus.INSTANCES[pool.instance]
    return {
        words.POOL: name,
        "node.kubernetes.io/instance-type": pool.instance,
        "nvidia.com/gpu.present": "true",
        words.BOARD: instance.gpu,
    }


def node_taints(name: str, pool: Pool) -> list[dict[str, str]]:
    """Every GPU node keeps pods without a GPU off; one that is not for everybody has a taint of its own."""
    taints = [{"key": gpus.GPU_TAINT, "value": "present", "effect": "NoSchedule"}]
    if pool.restricted:
        taints.append({"key": words.POOL, "value": name, "effect": "NoSchedule"})
    return taints


def node_resources(environment: Environment, name: str) -> dict[str, str]:
    """Allocatable of one node: what is left of the machine, and the flavors it yields."""
    pool = environment.pools[name]
    yields = {
        environment.flavors[flavor].resource: str(count) for flavor, count in environment.flavors_of(name).items()
    }
    return {**gpus.allocatable(gpus.INSTANCES[pool.instance]), **yields}


def pools_of(environment: Environment, flavor: str, tenant: str, tiers: frozenset[str]) -> list[str]:
    """Pools that yield a flavor to a tenant."""
    return [
        name
        for name, pool in sorted(environment.pools.items())
        if flavor in environment.flavors_of(name) and pool.admits(tenant, tiers)
    ]


def fake_nodes(environment: Environment) -> list[Object]:
    """The pools' nodes at their minimum, as kwok plays them; a stand-in for EC2 in the lab."""
    return [
        _fake_node(environment, name, pool, number)
        for name, pool in sorted(environment.pools.items())
        for number in range(pool.nodes.min)
    ]


def _fake_node(environment: Environment, name: str, pool: Pool, number: int) -> Object:
    resources = {**node_resources(environment, name), "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{name}-{number}",
            "labels": {**node_labels(name, pool), words.LAB_NODE: "node"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": node_taints(name, pool)},
        "status": {"allocatable": resources, "capacity": resources},
    }
