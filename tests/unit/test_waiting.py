"""What `tenancy why` says of work that was evicted, by Kueue's own message."""

from __future__ import annotations

import pytest

from tenancy.live.waiting import evicted

TENANT = "More urgent work of its own tenant took its place."
SHARE = "It ran on borrowed GPUs, which went to a queue that uses less for its weight."
OWNER = "It ran on borrowed GPUs, which their owner reclaimed."


@pytest.mark.parametrize(
    ("reason", "queue", "sentence"),
    [
        ("prioritization in the ClusterQueue", "fraud--batch", TENANT),
        ("prioritization in the ClusterQueue", "cohort--batch", TENANT),
        ("Fair Sharing within the cohort", "fraud--batch", SHARE),
        ("reclamation within the cohort", "fraud--batch", OWNER),
    ],
)
def test_who_evicted_work_is_told_by_kueues_reason_alone(reason: str, queue: str, sentence: str) -> None:
    """Names of queues stand in the same message, and a tenant may be called as a word of the reason."""
    path = f"/organisation/department--risk/{queue}"
    said = (
        "Preempted to accommodate a workload (UID: 1f, JobUID: 2e) due to "
        f"{reason}; preemptor path: {path}; preemptee path: {path}"
    )
    assert evicted({"type": "Evicted", "reason": "Preempted", "message": said}) == sentence
