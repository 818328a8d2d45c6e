"""How kube-state-metrics names things, and which labels of objects it is allowed to tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenancy.catalog import vocabulary as words

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
CHARGED = (words.TENANT, *words.COST_LABELS)
LABELS: Mapping[str, tuple[str, ...]] = {
    "nodes": (
        words.POOL,
        words.BOARD,
        "node.kubernetes.io/instance-type",
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/capacityType",
    ),
    "namespaces": CHARGED,
    "pods": (*CHARGED, QUEUE_NAME),
}
"""What `--metric-labels-allowlist` names, by kind: all that rules and bills read. Each makes series of its own."""


def metric_name(text: str) -> str:
    """What it makes of a resource's name."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def label_name(key: str) -> str:
    """What it makes of a label's key."""
    return "label_" + metric_name(key)
