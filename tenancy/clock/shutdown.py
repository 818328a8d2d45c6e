"""The end of a clock, before its queues are removed."""

from __future__ import annotations

import time

from tenancy.catalog import vocabulary
from tenancy.clock.controller import ClockRefused, reserving
from tenancy.clock.lease import release, take
from tenancy.cluster.api import NOT_FOUND, Api
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API

END_SECONDS = 60.0
"""For the end of the clock's pods: their grace period is half of it."""


def end_reservations(api: Api) -> int:
    """Delete the Workloads that reserve GPUs, before the reserve queue is removed: Kueue keeps a queue in which work is
    admitted, and the engine would wait for it. The clock's Deployment is deleted, and a clock that is a process makes
    no more rounds until `begin_again`, or for an hour. How many Workloads there were; ApiUnreachable or ClockRefused
    if that fails."""
    if not api.request("GET", f"{collection(API, 'ClusterQueue')}/{vocabulary.RESERVE_QUEUE}").ok:
        return 0
    take(api)
    _end_deployment(api)
    path = collection(API, "Workload", vocabulary.PLATFORM_NAMESPACE)
    reservations = list(reserving(api.items(path)))
    for workload in reservations:
        answer = api.request("DELETE", f"{path}/{workload['metadata']['name']}")
        if not answer.ok and answer.status != NOT_FOUND:
            raise ClockRefused(f"DELETE {path}: {answer.status} {answer.message}")
    return len(reservations)


def begin_again(api: Api) -> None:
    """Let a clock work that `end_reservations` stopped; ApiUnreachable or ClockRefused if that fails."""
    release(api)


def _end_deployment(api: Api) -> None:
    """Delete the clock's Deployment and wait for the end of its pods, which would reserve the GPUs again."""
    path = collection("apps/v1", "Deployment", vocabulary.PLATFORM_NAMESPACE)
    answer = api.request("DELETE", f"{path}/{vocabulary.CLOCK}?propagationPolicy=Background")
    if not answer.ok and answer.status != NOT_FOUND:
        raise ClockRefused(f"DELETE {path}: {answer.status} {answer.message}")
    selector = f"labelSelector=app.kubernetes.io/name={vocabulary.CLOCK}"
    pods = f"{collection('v1', 'Pod', vocabulary.PLATFORM_NAMESPACE)}?{selector}"
    deadline = time.monotonic() + END_SECONDS
    while answer.ok and api.items(pods):
        if time.monotonic() > deadline:
            raise ClockRefused(f"pods of {vocabulary.CLOCK} have not ended within {END_SECONDS:.0f} s")
        time.sleep(1)
