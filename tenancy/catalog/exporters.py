"""Names in kube-state-metrics, and the labels of objects that it exports."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenancy.catalog import vocabulary

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
CHARGED = (vocabulary.TENANT, *vocabulary.COST_LABELS)
CLOCK_LAST_ROUND = "tenancy_clock_last_round_timestamp_seconds"
"""Metric of the clock: Unix time of its last round."""
CLOCK_ENDED = "tenancy_clock_ended_entries"
"""Metric of the clock: number of entries of its spec files whose last day has passed."""
COUNT_DELAY_SECONDS = 60
"""For which the GPUs that pods have may differ from those that Kueue counts: pods and queues are read one after the
other, and pods end after their work."""
LABELS: Mapping[str, tuple[str, ...]] = {
    "nodes": (
        vocabulary.POOL,
        vocabulary.BOARD,
        "node.kubernetes.io/instance-type",
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/capacityType",
    ),
    "namespaces": CHARGED,
    "pods": (*CHARGED, QUEUE_NAME),
}
"""Labels for `--metric-labels-allowlist`, by kind: all that alert rules and bills read. Each adds series."""


def metric_name(text: str) -> str:
    """A resource's name as kube-state-metrics writes it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def label_name(key: str) -> str:
    """A label's key as kube-state-metrics writes it."""
    return "label_" + metric_name(key)
