"""Causes for which work does not start: one sentence and one change for each, in every command.

`tenancy why` finds the cause in Kueue's messages, `tenancy fits` computes it from quotas and nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.kube.pods import SCALE, Resources, requests_of
from tenancy.planning.queueing.queue_names import ANY_POOL, pool_of

_GPU = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class WaitCause:
    """A cause for which work does not start, and a change that helps."""

    sentence: str
    change: str

    def __str__(self) -> str:
        return f"{self.sentence}; {self.change}."


def _in_pool(flavor: str) -> str:
    return "" if flavor in {"", ANY_POOL} else f" in pool {pool_of(flavor)}"


def above_maximum(flavor: str, requested: str, maximum: str) -> WaitCause:
    """All of its pods together ask for more than the queue can ever have."""
    text = (
        f"It never starts{_in_pool(flavor)} as it is: it asks for {requested} at once, and the maximum of its queue is"
    )
    return WaitCause(f"{text} {maximum}", "ask for less, or for a larger share")


def larger_than_nodes(flavor: str, requested: str, maximum: str) -> WaitCause:
    """One pod asks for more than a node of the pool has."""
    text = f"It never starts{_in_pool(flavor)}: one pod asks for {requested}, and a node has {maximum}"
    return WaitCause(text, "split it into pods that each fit on a node: completions and parallelism of a Job, replicas")


def not_granted(resource: str) -> WaitCause:
    """The queue has no quota of a resource."""
    text = f"It never starts: its queue has no {resource}"
    return WaitCause(text, "ask for what the tenant has a share of")


def no_topology(flavor: str) -> WaitCause:
    """Pods ask for a topology in a pool that has none."""
    change = "drop the topology annotation of its pod template, or the node selector that keeps it from other pools"
    return WaitCause(f"It never starts{_in_pool(flavor)}: the nodes there have no known topology", change)


def topology_alone(flavor: str) -> WaitCause:
    """Pods ask for no topology in a pool that places work by topology."""
    change = (
        'write the annotation kueue.x-k8s.io/podset-unconstrained-topology: "true" into its pod template, or drop a '
        "node selector that keeps it from other pools"
    )
    return WaitCause(f"It never starts{_in_pool(flavor)}: the pool places work by topology only", change)


def other_nodes(flavor: str) -> WaitCause:
    """A node selector or affinity names the nodes of another pool."""
    text = f"It never starts{_in_pool(flavor)}: its node selector or affinity names other nodes"
    return WaitCause(text, "drop it, the queue chooses the pool")


def no_queue(name: str) -> WaitCause:
    """The label names a queue that the namespace does not have."""
    change = "drop the label kueue.x-k8s.io/queue-name, or name one of `kubectl get localqueues`"
    return WaitCause(f"It never starts: there is no queue {name} in its namespace", change)


def on_hold() -> WaitCause:
    """The queue is stopped."""
    text = "Its queue is on hold: nothing new starts in it until the platform team opens it again"
    return WaitCause(text, "ask the platform team, or see `stop-policy` and `offboarding` in the tenant's file")


def oversized(template: Mapping[str, Any], sizes: Iterable[Resources], flavor: str) -> WaitCause | None:
    """The cause if a pod of the template asks for more GPUs than any node of these sizes has; None without nodes."""
    node_sizes = list(sizes)
    for name, amount in requests_of(template["spec"]).items():
        maximum = max((size.get(name, 0) for size in node_sizes), default=0)
        if name.startswith(_GPU) and 0 < maximum < amount:
            return larger_than_nodes(flavor, f"{amount // SCALE} {name}", f"{maximum // SCALE}")
    return None
