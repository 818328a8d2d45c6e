"""Karpenter's objects: a node class, a node pool and, for slices, an overlay for each pool that scales.

Read 2026-11-20 in `sigs.k8s.io/karpenter` and `github.com/aws/karpenter-provider-aws` v1.14.1; its CRDs judge what is
made here (`tests/cluster/test_node_objects.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.versions import karpenter_alias
from tenancy.kube.objects import Object
from tenancy.planning.aws.creation import launch_settings
from tenancy.planning.aws.identity import volume_key
from tenancy.planning.aws.node_config import user_data
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.names import (
    CLUSTER_TAG,
    EKS_GROUP_TAG,
    POOL_TAG,
    SUBNET_TAG,
    SubnetUse,
    node_role,
    pool_tags,
)
from tenancy.planning.common.pools import (
    capacity_type,
    efa_cards,
    extended_resources,
    node_labels,
    node_taints,
    startup_taints,
)
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool

AWS_API = "karpenter.k8s.aws/v1"
API = "karpenter.sh/v1"
ALPHA_API = "karpenter.sh/v1alpha1"

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
DRAIN_TIMEOUT = "1h"
"""Maximum time to drain a node: six times what a pod may ask for to write its checkpoint (avail-01), so that no pod
delays a security fix in an image for ever. It counts from when a node is to be replaced or is deleted."""
IDLE_TIMEOUT = "10m"
"""Time that a node without work stays: longer than the start of a node, so that the next job of a row finds it."""
RESERVED_WEIGHT = 10
"""Weight of a pool whose machines are paid for whether they run or not: filled before all others, which have none."""


def karpenter_objects(environment: Environment) -> tuple[Object, ...]:
    """Objects for the pools that scale, a node class always before the pool that names it."""
    if not environment.builds_cluster:
        return ()
    scaling_pools = [(name, pool) for name, pool in sorted(environment.pools.items()) if pool.is_autoscaled]
    return tuple(item for name, pool in scaling_pools for item in _objects(environment, name, pool))


def _objects(environment: Environment, name: str, pool: Pool) -> Iterator[Object]:
    labels = {**platform_labels(environment), vocabulary.POOL: name}
    yield manifest(AWS_API, "EC2NodeClass", name, labels, {"spec": _node_class(environment, name, pool)})
    # Before the node pool: without it Karpenter reports to a pod that asks for a slice that no pool has any.
    if capacity := _overlay(environment, name, pool):
        in_pool = [_requirement("karpenter.sh/nodepool", name)]
        yield manifest(
            ALPHA_API, "NodeOverlay", name, labels, {"spec": {"requirements": in_pool, "capacity": capacity}}
        )
    yield manifest(API, "NodePool", name, labels, {"spec": _node_pool(environment, name, pool)})


def node_settings(environment: Environment, name: str, pool: Pool) -> dict[str, str]:
    """Settings with which Karpenter launches a node of a pool: it replaces nodes that have another value (drift)."""
    aws = environment.aws
    template = _node_pool(environment, name, pool)["template"]
    taints = (*template["spec"]["taints"], *template["spec"].get("startupTaints", ()))
    return {
        **launch_settings(
            pool.ami_release or aws.ami_release,
            aws.root_gib(pool.machine.nvme),
            aws.kms_key_arn or "",
            user_data(environment, name, base=False),
            pool_tags(environment, name),
        ),
        **{f"label {key}": value for key, value in template["metadata"]["labels"].items()},
        "taints": ", ".join(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in taints),
        "max pods": str(pool.max_pods),
    }


def _node_class(environment: Environment, name: str, pool: Pool) -> dict[str, Any]:
    aws = environment.aws
    spec: dict[str, Any] = {
        # By itself it takes the NVIDIA variant for machines with GPUs, of the machine's architecture.
        "amiSelectorTerms": [{"alias": karpenter_alias(pool.ami_release or aws.ami_release)}],
        "role": node_role(environment),
        "subnetSelectorTerms": _subnets(environment, pool),
        "securityGroupSelectorTerms": [{"tags": _security_group(environment, name, pool)}],
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": f"{aws.root_gib(pool.machine.nvme)}Gi",
                    "volumeType": "gp3",
                    "encrypted": True,
                    "kmsKeyID": volume_key(environment),
                    "deleteOnTermination": True,
                },
            }
        ],
        # One hop: the node itself, no pod.
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
            "httpProtocolIPv6": "disabled",
        },
        "kubelet": {"maxPods": pool.max_pods},
        "userData": user_data(environment, name, base=False),
        "tags": pool_tags(environment, name),
    }
    if pool.machine.nvme:
        spec["instanceStorePolicy"] = "RAID0"
    if pool.efa:
        spec["networkInterfaces"] = _interfaces(pool)
    if pool.purchase.reservation_id:
        # No placement group beside it: a reservation may lie outside of one.
        spec["capacityReservationSelectorTerms"] = [{"id": pool.purchase.reservation_id}]
    return spec


def _subnets(environment: Environment, pool: Pool) -> list[dict[str, Any]]:
    subnet_ids = environment.aws.network.subnets
    if subnet_ids:
        return [{"id": subnet_ids[zone]} for zone in _zones(environment, pool)]
    return [{"tags": {CLUSTER_TAG: environment.cluster.name, SUBNET_TAG: SubnetUse.PRIVATE.value}}]


def _security_group(environment: Environment, name: str, pool: Pool) -> dict[str, str]:
    """Tags of the one security group of a pool's nodes.

    Karpenter puts the same groups on every interface, and EKS' own lets EFA traffic through between all that carry it
    (EKS user guide, "Default cluster security group"). So nodes with EFA carry only the group of their pool.
    """
    if pool.efa:
        return {CLUSTER_TAG: environment.cluster.name, POOL_TAG: name}
    return {EKS_GROUP_TAG: environment.cluster.name}


def _interfaces(pool: Pool) -> list[dict[str, Any]]:
    """An ordinary interface for addresses, and one for EFA alone on every card that can."""

    def interface(card: int, device: int, kind: str) -> dict[str, Any]:
        return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}

    efa = [interface(card, 0 if card else 1, "efa-only") for card in efa_cards(pool)]
    return [interface(0, 0, "interface"), *efa]


def _node_pool(environment: Environment, name: str, pool: Pool) -> dict[str, Any]:
    machine = pool.machine
    registered_labels = {key: value for key, value in node_labels(name, pool).items() if key != INSTANCE_TYPE}
    reference = {"group": AWS_API.partition("/")[0], "kind": "EC2NodeClass", "name": name}
    spec: dict[str, Any] = {
        "template": {
            "metadata": {"labels": registered_labels},
            "spec": {
                "nodeClassRef": reference,
                "requirements": [
                    _requirement(INSTANCE_TYPE, pool.instance_type),
                    _requirement("karpenter.sh/capacity-type", capacity_type(pool)),
                    _requirement("kubernetes.io/arch", machine.architecture),
                    _requirement("kubernetes.io/os", "linux"),
                    _requirement("topology.kubernetes.io/zone", *_zones(environment, pool)),
                ],
                "taints": node_taints(name, pool),
                **({"startupTaints": taints} if (taints := startup_taints(environment)) else {}),
                # Age is no reason to end a training run; a new image or setting is (drift).
                "expireAfter": "Never",
                "terminationGracePeriod": DRAIN_TIMEOUT,
            },
        },
        "disruption": {
            # Never to pack work more tightly: that would end jobs.
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": IDLE_TIMEOUT,
            # The pace of replacements; what is idle may go all at once.
            "budgets": [{"nodes": str(pool.upgrade.max_unavailable), "reasons": ["Drifted"]}],
        },
        "limits": _limits(environment, name, pool),
    }
    if pool.purchase.reservation_id:
        spec["weight"] = RESERVED_WEIGHT
    return spec


def _limits(environment: Environment, name: str, pool: Pool) -> dict[str, str]:
    """Total resources of the nodes above the minimum.

    `nodes` alone is too few: Karpenter looks at it between two rounds of scheduling, and one round may overshoot
    (`subtractMax`). CPUs and GPUs it counts within a round, GPUs as the nodes report them: slices, not boards.
    """
    extra_nodes = pool.nodes.max - pool.nodes.min
    per_node = {"cpu": pool.machine.vcpu, **_node_gpus(environment, name)}
    return {"nodes": str(extra_nodes), **{resource: str(extra_nodes * count) for resource, count in per_node.items()}}


def _overlay(environment: Environment, name: str, pool: Pool) -> dict[str, str]:
    """Resources of a node that EC2 does not report for its type; empty for none.

    Karpenter lays it over its own numbers (`ApplyCapacityOverlay`). So whole GPUs that no node reports are 0: for a pod
    that asks for one it would start node after node, and never call one of them initialised.
    """
    gpu_counts = _node_gpus(environment, name)
    if not pool.machine.gpus or gpu_counts == {gpus.GPU: pool.machine.gpus}:
        return {}
    return {resource: str(count) for resource, count in {gpus.GPU: 0, **gpu_counts}.items()}


def _node_gpus(environment: Environment, name: str) -> dict[str, int]:
    """GPUs, slices and replicas of one node; EFA, which Karpenter counts by itself, is none."""
    return {
        resource: count for resource, count in extended_resources(environment, name).items() if resource != gpus.EFA
    }


def _zones(environment: Environment, pool: Pool) -> tuple[str, ...]:
    return pool.zones or environment.aws.every_zone


def _requirement(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
