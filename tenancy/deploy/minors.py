"""Whether EKS would take the Kubernetes version of a plan, by the state of what AWS has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenancy.catalog.versions import MINOR_RULE, minor_step
from tenancy.planning.aws.cluster import ClusterPlan


def kubernetes_refusal(plan: ClusterPlan, resources: Iterable[Mapping[str, Any]]) -> str | None:
    """Why the cluster of a stack cannot be updated to the plan's Kubernetes; None if it can, or is not made yet."""
    for resource in resources:
        if resource["type"] != "aws:eks/cluster:Cluster":
            continue
        # EKS itself updates a cluster whose standard support ends, where that is allowed.
        current = (resource.get("outputs") or {}).get("version") or resource["inputs"]["version"]
        if step := minor_step(current, plan.kubernetes):
            next_step = f', run `tenancy up`, and write "{plan.kubernetes}" afterwards' if step != current else ""
            return (
                f"given cluster.kubernetes: {plan.kubernetes}, and cluster {plan.name} of Kubernetes {current}; rule: "
                f'{MINOR_RULE}; change: write "{step}"{next_step}; nothing was changed'
            )
    return None
