"""Whether nodes have room for pods now, or could have with the nodes that pools may still add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.kube.pods import SCALE, Pods, Resources, requests_of
from tenancy.kube.quantities import thousandths
from tenancy.kube.selectors import has_labels, takes_node
from tenancy.kube.tolerations import tolerates
from tenancy.live.api import Api
from tenancy.live.fits_answers import ControlAnswer, FitVerdict
from tenancy.planning.common.pools import node_labels, node_resources, node_taints
from tenancy.planning.queueing.causes import oversized
from tenancy.schema.environment import Environment


@dataclass(slots=True)
class Machine:
    """A node, or one that a pool may still add."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    allocatable: Resources
    free: Resources
    exists: bool = True
    """False for a node that the pool could still add."""


def _machines(api: Api, environment: Environment) -> list[Machine]:
    """Existing nodes with their free capacity, then the nodes that pools may still add."""
    used: dict[str, Resources] = {}
    for pod in api.items("/api/v1/pods"):
        spec = pod["spec"]
        if spec.get("nodeName") and (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            used.setdefault(spec["nodeName"], Counter()).update(requests_of(spec) + Counter({"pods": SCALE}))
    machines = []
    for node in api.items("/api/v1/nodes"):
        if node["spec"].get("unschedulable"):
            continue
        name, allocatable = node["metadata"]["name"], _parsed(node["status"].get("allocatable") or {})
        free = Counter(allocatable)
        free.subtract(used.get(name, {}))
        labels = {"kubernetes.io/hostname": name, **(node["metadata"].get("labels") or {})}
        machines.append(Machine(name, labels, node["spec"].get("taints") or (), allocatable, free))
    present = Counter(machine.labels.get(words.POOL) for machine in machines)
    for name, pool in environment.pools.items():
        allocatable = _parsed(node_resources(environment, name))
        for number in range(pool.nodes.max - present[name]):
            labels, taints = node_labels(name, pool), node_taints(name, pool)
            machines.append(
                Machine(f"{name} (new {number})", labels, taints, allocatable, Counter(allocatable), exists=False)
            )
    return machines


def _parsed(amounts: Mapping[str, Any]) -> Resources:
    return Counter({name: thousandths(amount) for name, amount in amounts.items()})


def nodes_answer(api: Api, environment: Environment, sets: Sequence[Pods], flavors: Sequence[Object]) -> ControlAnswer:
    """Whether nodes have room for the pods, with the node selectors and tolerations of their flavors."""
    machines = _machines(api, environment)
    demands: list[tuple[int, Resources, list[Machine]]] = []
    for pods in sets:
        spec = _as_admitted(pods.template["spec"], flavors)
        needed = requests_of(spec) + Counter({"pods": SCALE})
        reasons = {machine.name: _mismatch(spec, machine) for machine in machines}
        suitable = [machine for machine in machines if not reasons[machine.name]]
        if not any(_has_room(machine.allocatable, needed) for machine in suitable):
            return _no_node_answer(machines, reasons, needed, pods)
        demands.append((pods.count, needed, suitable))
    total = sum(pods.count for pods in sets)
    unplaced, needs_new_nodes = _pack(demands, {machine.name: Counter(machine.free) for machine in machines})
    if unplaced:
        never, _ = _pack(demands, {machine.name: Counter(machine.allocatable) for machine in machines})
        if never:
            text = f"All nodes that its pods fit on have room for {total - never} of its {total} together."
            return ControlAnswer("pool", FitVerdict.NEVER, text, "ask for fewer or smaller pods")
        text = f"Nodes have room for {total - unplaced} of its {total} pods now."
        return ControlAnswer(
            "pool", FitVerdict.WAITS, text, "wait until other work ends, or ask for fewer or smaller pods"
        )
    if needs_new_nodes:
        return ControlAnswer(
            "pool", FitVerdict.WAITS, "Its pods need new nodes.", "wait until the autoscaler has added them"
        )
    return ControlAnswer("pool", FitVerdict.FITS, "Nodes have room for all of its pods.")


def _pack(demands: Sequence[tuple[int, Resources, list[Machine]]], room: Mapping[str, Resources]) -> tuple[int, bool]:
    """Number of pods that do not fit, placed first-fit, and whether a new node is needed."""
    unplaced, needs_new_nodes = 0, False
    for count, needed, suitable in demands:
        remaining = count
        for machine in suitable:
            fitting = min(remaining, _pods_that_fit(room[machine.name], needed))
            if fitting > 0:
                room[machine.name].subtract({name: amount * fitting for name, amount in needed.items()})
                remaining -= fitting
                needs_new_nodes = needs_new_nodes or not machine.exists
        unplaced += remaining
    return unplaced, needs_new_nodes


def _as_admitted(spec: Mapping[str, Any], flavors: Sequence[Object]) -> Object:
    """A pod as the queue admits it: with the node selector and the tolerations of its flavors."""
    selector, tolerations = dict(spec.get("nodeSelector") or {}), list(spec.get("tolerations") or ())
    for flavor in flavors:
        selector |= flavor["spec"].get("nodeLabels") or {}
        tolerations += flavor["spec"].get("tolerations") or ()
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _has_room(machine: Resources, needed: Resources) -> bool:
    return all(machine[name] >= amount for name, amount in needed.items())


def _pods_that_fit(machine: Resources, needed: Resources) -> int:
    return min((int(machine[name] // amount) for name, amount in needed.items() if amount), default=0)


def _mismatch(spec: Mapping[str, Any], machine: Machine) -> str:
    """Why the scheduler would never place a pod on the node, whatever its free capacity; empty if it could."""
    if not has_labels(spec["nodeSelector"], machine.labels):
        return "are not those of its node selector or pool"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not takes_node(affinity["nodeSelectorTerms"], machine.labels, machine.name):
        return "are not those of its node affinity"
    for taint in machine.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(tolerates(t, taint) for t in spec["tolerations"]):
            return f"have the taint {taint['key']}, which it does not tolerate"
    return ""


def _no_node_answer(
    machines: Sequence[Machine], reasons: Mapping[str, str], needed: Resources, pods: Pods
) -> ControlAnswer:
    reason_counts: Counter[str] = Counter()
    for machine in machines:
        short = [name for name, amount in needed.items() if machine.allocatable[name] < amount]
        reason_counts[reasons[machine.name] or f"have less {short[0] if short else 'room'} than one pod asks for"] += 1
    why = "; ".join(f"{count} {reason}" for reason, count in reason_counts.most_common(3)) or "there are none"
    suitable = [machine.allocatable for machine in machines if not reasons[machine.name]]
    selected = (pods.template["spec"].get("nodeSelector") or {}).get(words.POOL, "")
    if cause := oversized(pods.template, suitable, selected):
        return ControlAnswer("pool", FitVerdict.NEVER, f"{cause.sentence}.", cause.change)
    more = ", those that are not made yet among them," if any(not machine.exists for machine in machines) else ""
    text = f"No node takes a pod of it ({pods.name}), not even an empty one: of {len(machines)} nodes{more} {why}."
    asks = any(name.startswith("nvidia.com/") for name in needed) or pods.template["spec"].get("resourceClaims")
    keep_off = all(gpus.GPU_TAINT in {taint["key"] for taint in machine.taints} for machine in machines)
    if machines and keep_off and not asks:
        change = "ask for a GPU, or have the platform team add a pool without GPUs: every pool is of GPU nodes"
        return ControlAnswer("pool", FitVerdict.NEVER, text, change)
    return ControlAnswer(
        "pool", FitVerdict.NEVER, text, "ask for what one node has, and name no nodes: the queue chooses the pool"
    )
