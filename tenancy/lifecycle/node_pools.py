"""Pools and flavors as a cluster's nodes show them: what an environment's file says of a cluster that exists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.instances import MACHINES
from tenancy.cluster.api import Api
from tenancy.kube.objects import Object
from tenancy.kube.quantities import units
from tenancy.kube.requests import collection
from tenancy.rules.values import name_misfit
from tenancy.spec.fields.pools import Provisioner

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GROUPS = (vocabulary.POOL, "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
"""Labels that say which nodes belong together, the first that a node has."""
_MIG = "nvidia.com/mig-"
_PRODUCT = "nvidia.com/gpu.product"
"""Label of GPU feature discovery."""
_SHARING = "nvidia.com/gpu.sharing-strategy"


@dataclass(frozen=True, slots=True)
class NodePools:
    """Pools and flavors that nodes show, in the form of an environment's file."""

    pools: dict[str, dict[str, Any]]
    flavors: dict[str, dict[str, Any]]
    remarks: tuple[str, ...]
    """Facts that the file cannot express, and labels and taints that nodes lack."""


def provisioner_of(labels: Mapping[str, str]) -> Provisioner:
    """Provisioner of a node, by its labels, which EKS and Karpenter set."""
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        return Provisioner.AUTO_MODE
    if "karpenter.sh/nodepool" in labels:
        return Provisioner.KARPENTER
    return Provisioner.MANAGED if "eks.amazonaws.com/nodegroup" in labels else Provisioner.SELF_MANAGED


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether a node was bought as spot capacity, by the labels of Karpenter and EKS."""
    capacity_type = labels.get("karpenter.sh/capacity-type") or labels.get("eks.amazonaws.com/capacityType") or ""
    return capacity_type.lower() == "spot"


def pools_of_nodes(nodes: Sequence[Object]) -> NodePools:
    """Nodes with one group label, instance type, way of being bought and resources are one pool."""
    groups: dict[tuple[Any, ...], list[Object]] = {}
    remarks = []
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        instance = labels.get(INSTANCE_TYPE, "")
        group = next((labels[key] for key in GROUPS if labels.get(key)), instance)
        kind = (group, instance, provisioner_of(labels), is_spot(labels), tuple(sorted(_devices(node).items())))
        groups.setdefault(kind, []).append(node)
    unknown_groups = {
        kind: groups.pop(kind) for kind in sorted(groups.keys(), key=lambda kind: kind[:4]) if kind[1] not in MACHINES
    }
    remarks += [_unknown_pool_remark(*kind, members) for kind, members in unknown_groups.items()]
    pools: dict[str, dict[str, Any]] = {}
    flavors: dict[str, dict[str, Any]] = {}
    for (group, instance, provisioner, spot, devices), members in sorted(groups.items(), key=lambda item: item[0][:4]):
        name = _name(group, pools)
        labels = members[0]["metadata"].get("labels") or {}
        pool, more = _pool(instance, provisioner, spot, len(members), dict(devices), labels)
        pools[name] = pool
        remarks += [f"pool {name}: {remark}" for remark in (*more, *_lacking(name, members, bool(devices)))]
        for flavor in _flavors(instance, pool, dict(devices)):
            flavors[_flavor_name(flavor)] = flavor
    return NodePools(pools, dict(sorted(flavors.items())), tuple(remarks))


def _unknown_pool_remark(
    group: str,
    instance: str,
    made_by: Provisioner,
    spot: bool,
    devices: Sequence[tuple[str, int]],
    members: Sequence[Object],
) -> str:
    """A pool that no file can have, as far as its nodes show it."""
    capacity = (members[0].get("status") or {}).get("allocatable") or {}
    offers = [f"{count} {name}" for name, count in devices]
    offers += [f"{name} {capacity[name]}" for name in ("cpu", "memory") if name in capacity]
    board = (members[0]["metadata"].get("labels") or {}).get(_PRODUCT, "")
    kind = f"{'spot, ' if spot else ''}{made_by}{f', GPU {board}' if board else ''}"
    return (
        f"no pool for {_node_names(members)} ({len(members)}) of {group or 'no group'}: instance type "
        f"{instance or 'unknown'} is not in the catalogue, from which a pool's GPUs, memory and price are read; a node "
        f"has {', '.join(offers)} ({kind})"
    )


def _node_names(members: Sequence[Object]) -> str:
    """Names of some nodes."""
    return " ".join(node["metadata"]["name"] for node in members[:3]) + (" …" if len(members) > 3 else "")


def detect_services(api: Api) -> dict[str, str]:
    """Services that the cluster has, in the form of an environment's `services`."""
    daemons = {item["metadata"]["name"] for item in api.items(collection("apps/v1", "DaemonSet"))}
    classes = api.items(collection("resource.k8s.io/v1", "DeviceClass"), absent=True)
    queues = api.request("GET", "/apis/kueue.x-k8s.io").ok
    presence = {
        "gpu-operator": api.request("GET", "/apis/nvidia.com").ok,
        "device-plugin": any("nvidia-device-plugin" in name for name in daemons),
        "dcgm-exporter": any("dcgm-exporter" in name for name in daemons),
        "dra-driver": any(item["metadata"]["name"] == "gpu.nvidia.com" for item in classes),
        "efa-device-plugin": any("efa-k8s-device-plugin" in name for name in daemons),
        "kueue": queues,
    }
    return {name: "present" if is_present else "none" for name, is_present in presence.items()}


def _devices(node: Object) -> dict[str, int]:
    """Extended resources of GPUs and EFA that a node advertises."""
    capacity = (node.get("status") or {}).get("allocatable") or {}
    counts = {key: units(value) for key, value in capacity.items() if key.startswith("nvidia.com/") or key == gpus.EFA}
    return {key: count for key, count in counts.items() if count}


def _name(group: str, pools: Mapping[str, Any]) -> str:
    """A pool's name that name-01 takes and no other pool has."""
    text = (
        re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "-", group.lower()))
        .strip("-")[: vocabulary.PART_LENGTH - 3]
        .strip("-")
    )
    text = text if text and not name_misfit(text, vocabulary.PART_LENGTH) else f"p-{text}".strip("-")
    return text if text not in pools else next(n for i in range(2, 999) if (n := f"{text}-{i}") not in pools)


def _pool(
    instance: str,
    provisioner: Provisioner,
    spot: bool,
    count: int,
    devices: Mapping[str, int],
    labels: Mapping[str, str],
) -> tuple[dict[str, Any], list[str]]:
    machine, remarks = MACHINES[instance], []
    scales = provisioner in {Provisioner.KARPENTER, Provisioner.AUTO_MODE}
    pool: dict[str, Any] = {"instance-type": instance, "nodes": {"min": 0, "max": count} if scales or spot else count}
    # A managed group has a fixed size in a file, and spot has none.
    pool["provisioner"] = (Provisioner.SELF_MANAGED if spot and not scales else provisioner).value
    if spot:
        pool["purchase"] = "spot"
        remarks.append("spot nodes are for interruptible tiers: name them under tiers")
    if devices.get(gpus.EFA):
        remarks.append("its nodes have EFA: write efa: true, its one zone and its one tenant to use it")
    slices = {key.removeprefix(_MIG): count for key, count in devices.items() if key.startswith(_MIG)}
    slices = {key.removesuffix(".shared"): count for key, count in slices.items()}
    if slices and machine.gpus:
        if any(slice_count % machine.gpus for slice_count in slices.values()):
            remarks.append(f"its GPUs are cut differently ({slices} on a node): write the parts as mig.per-gpu")
        else:
            pool["mig"] = {
                "layout": {profile: slice_count // machine.gpus for profile, slice_count in sorted(slices.items())}
            }
    replicas = devices.get(f"{gpus.GPU}.shared", 0)
    if replicas and machine.gpus:
        mode = "mps" if labels.get(_SHARING) == "mps" else "time-slicing"
        pool["gpu-sharing"] = {mode: replicas // machine.gpus}
        remarks.append("replicas share a GPU's memory: name the pool's one tenant, and interruptible tiers alone")
    if devices.get(gpus.GPU, 0) > machine.gpus:
        advertised = f"{devices[gpus.GPU]} {gpus.GPU} of {machine.gpus}"
        remarks.append(f"a node advertises {advertised}: rename replicas to .shared")
    if machine.gpus and not any(key.startswith("nvidia.com/") for key in devices):
        remarks.append("its nodes advertise no GPU: no device plugin runs there, or GPUs are claimed by DRA")
    return pool, remarks


def _lacking(name: str, members: Sequence[Object], on_gpus: bool) -> list[str]:
    """Label and taint that the platform's quotas and guards find nodes by, where a node has none."""
    nodes, remarks = _node_names(members), []
    if any((node["metadata"].get("labels") or {}).get(vocabulary.POOL) != name for node in members):
        remarks.append(f"label its nodes, in their node group: `kubectl label node {nodes} {vocabulary.POOL}={name}`")
    tainted = [{t["key"] for t in (node.get("spec") or {}).get("taints") or ()} for node in members]
    if on_gpus and any(gpus.GPU_TAINT not in keys for keys in tainted):
        command = f"kubectl taint node {nodes} {gpus.GPU_TAINT}=present:NoSchedule"
        remarks.append(f"keep pods without GPUs off its nodes, in their node group: `{command}`")
    return remarks


def _flavors(instance: str, pool: Mapping[str, Any], devices: Mapping[str, int]) -> list[dict[str, Any]]:
    board = MACHINES[instance].gpu
    if not board:
        return []
    share = {"gpu-sharing": next(iter(pool["gpu-sharing"]))} if "gpu-sharing" in pool else {}
    profiles = [*(pool["mig"]["layout"] if "mig" in pool else ())]
    if not profiles and any(key.startswith(_MIG) for key in devices):
        profiles = sorted({key.removeprefix(_MIG).removesuffix(".shared") for key in devices if key.startswith(_MIG)})
    return [{"gpu": board, **({"mig": profile} if profile else {}), **share} for profile in profiles or [""]]


def _flavor_name(flavor: Mapping[str, Any]) -> str:
    parts = [flavor["gpu"], flavor.get("mig", ""), "shared" if "gpu-sharing" in flavor else ""]
    return "-".join(part for part in parts if part)
