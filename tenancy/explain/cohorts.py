"""Kueue's tree of quotas as the cluster has it, with the quota in use."""

from __future__ import annotations

from typing import Any

from tenancy.cluster.api import Api
from tenancy.kube.quantities import thousandths
from tenancy.kube.quota_tree import Node, Tree
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API


def read_tree(api: Api) -> dict[str, Node]:
    """The ClusterQueues by name, in thousandths, each with the Cohorts above it; ApiUnreachable without Kueue."""
    # A list's items do not say their kind.
    stored: list[dict[str, Any]] = [
        {**item, "kind": kind} for kind in ("ClusterQueue", "Cohort") for item in api.items(collection(API, kind))
    ]
    queues = Tree.read(stored).queues
    for item in (entry for entry in stored if entry["kind"] == "ClusterQueue"):
        for flavor in (item.get("status") or {}).get("flavorsReservation") or ():
            for resource in flavor["resources"]:
                place = (flavor["name"], resource["name"])
                queues[item["metadata"]["name"]].use(place, thousandths(resource.get("total") or 0))
    return queues
