"""Labels, taints and resources of the pools' nodes, as the scheduler sees them."""

from __future__ import annotations

from typing import Any

from tenancy.catalog import gpus, nodes, vocabulary
from tenancy.kube.objects import Object
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Market, Pool, resource_name

MIG_CONFIG = "nvidia.com/mig.config"
"""Label with the layout of the mig-parted configuration, which a node has from its registration."""
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"

Taint = dict[str, str]

AGENT_NOT_READY: Taint = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
"""Cilium's agent removes it: no pod starts on a node before policies are enforced there."""


def node_labels(name: str, pool: Pool) -> dict[str, str]:
    """Labels that a node of the pool is born with."""
    gpu_labels = {vocabulary.BOARD: pool.machine.gpu, "nvidia.com/gpu.present": "true"} if pool.machine.gpus else {}
    return {
        vocabulary.POOL: name,
        **({vocabulary.TENANT: pool.sole_tenant} if pool.sole_tenant else {}),
        "node.kubernetes.io/instance-type": pool.instance_type,
        **gpu_labels,
        **({MIG_CONFIG: name} if pool.mig else {}),
        **({PLUGIN_CONFIG: name} if pool.mig or pool.gpu_sharing else {}),
    }


def node_taints(name: str, pool: Pool) -> list[Taint]:
    """Every GPU node repels pods without a GPU; a node of a restricted pool has a taint of its own too."""
    taints = [{"key": gpus.GPU_TAINT, "value": "present", "effect": "NoSchedule"}] if pool.machine.gpus else []
    if pool.is_restricted:
        taints.append({"key": vocabulary.POOL, "value": name, "effect": "NoSchedule"})
    return taints


def startup_taints(environment: Environment) -> list[Taint]:
    """Taints with which a node is born and that something takes off."""
    return [AGENT_NOT_READY] if environment.cluster.cni is Cni.CILIUM else []


def tolerations(environment: Environment) -> list[Taint]:
    """Tolerations of the platform's daemonsets: every taint of every pool, each once.

    The one list that the charts and add-ons get: a taint that changes here changes everywhere.
    """
    taints = {
        (taint["key"], taint["effect"]) for name, pool in environment.pools.items() for taint in node_taints(name, pool)
    }
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(taints)]


def extended_resources(environment: Environment, name: str) -> dict[str, int]:
    """Extended resources that the device plugins of one node advertise, granted to a tenant or not.

    Under DRA nothing but EFA.
    """
    pool = environment.pools[name]
    counts = {gpus.EFA: pool.machine.efa} if pool.efa else {}
    if not environment.uses_device_claims:
        for count, slices in environment.partitions_of(name):
            for profile, slice_count in slices.items() or [(None, 1)]:
                resource = resource_name(profile, pool.gpu_sharing is not None, pool.strategy)
                counts[resource] = counts.get(resource, 0) + count * slice_count * (
                    pool.gpu_sharing.replicas if pool.gpu_sharing else 1
                )
    return counts


def node_allocatable(environment: Environment, name: str) -> nodes.Resources:
    """Allocatable resources of a node for all pods, the platform's own among them."""
    pool = environment.pools[name]
    return nodes.allocatable(pool.machine, pool.max_pods, environment.aws.root_gib(pool.machine.nvme))


def tenant_allocatable(environment: Environment, name: str) -> nodes.Resources:
    """Resources of a node for tenants: allocatable less the requests of the daemonsets."""
    allocatable, daemonsets = node_allocatable(environment, name), environment.daemonset_resources(name)
    return nodes.Resources(
        allocatable.cpu - daemonsets.cpu,
        allocatable.memory - daemonsets.memory,
        allocatable.pods - daemonsets.pods,
        allocatable.ephemeral,
    )


def node_resources(environment: Environment, name: str) -> dict[str, str]:
    """Allocatable of one node as its kubelet reports it."""
    allocatable = node_allocatable(environment, name)
    return {
        "cpu": f"{allocatable.cpu}m",
        "memory": f"{allocatable.memory}Mi",
        "ephemeral-storage": f"{allocatable.ephemeral}Mi",
        "pods": str(allocatable.pods),
        **{resource: str(count) for resource, count in extended_resources(environment, name).items()},
    }


def pools_of(environment: Environment, flavor: str, tenant: str, tiers: frozenset[str]) -> list[str]:
    """Pools that yield a flavor to a tenant, the preferred first."""
    return [name for name, pool in environment.pools_by_flavor.get(flavor, ()) if pool.admits(tenant, tiers)]


def efa_cards(pool: Pool) -> tuple[int, ...]:
    """Network cards that have EFA: the last ones, where a machine has more cards than EFA interfaces."""
    if not pool.efa:
        return ()
    machine = pool.machine
    return tuple(range(machine.network_cards - machine.efa, machine.network_cards))


def capacity_type(pool: Pool) -> str:
    """The value of Karpenter's label `karpenter.sh/capacity-type`."""
    if pool.purchase.reservation_id:
        return "reserved"
    return "spot" if pool.purchase.market is Market.SPOT else "on-demand"


def fake_nodes(environment: Environment) -> list[Object]:
    """The pools' nodes at their minimum, as kwok plays them; a stand-in for EC2 in the lab."""
    return [
        _fake_node(environment, name, pool, number)
        for name, pool in sorted(environment.pools.items())
        for number in range(pool.nodes.min)
    ]


def network_labels(layers: int) -> tuple[str, ...]:
    """Labels of where in the network a node is, broadest first."""
    return tuple(f"{vocabulary.NETWORK_LAYER}{layer}" for layer in range(1, layers + 1))


def _network_place_labels(name: str, pool: Pool, number: int) -> dict[str, str]:
    """4 share a switch of the lowest layer, 16 one of the next."""
    labels = network_labels(pool.network_layers)
    group_sizes = {label: 4 ** (len(labels) - layer) for layer, label in enumerate(labels)}
    return {label: f"nn-{name}-{label[-1]}-{number // group_size}" for label, group_size in group_sizes.items()}


def _fake_node(environment: Environment, name: str, pool: Pool, number: int) -> Object:
    resources = node_resources(environment, name)
    zones = pool.zones or environment.aws.every_zone
    zone: dict[str, Any] = {"topology.kubernetes.io/zone": zones[number % len(zones)]} if zones else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{name}-{number}",
            "labels": {
                **node_labels(name, pool),
                "kubernetes.io/arch": pool.machine.architecture,
                **zone,
                **(_network_place_labels(name, pool, number) if pool.efa else {}),
                vocabulary.LAB_NODE: "node",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": node_taints(name, pool)},
        "status": {"allocatable": resources, "capacity": resources},
    }
