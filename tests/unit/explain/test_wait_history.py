"""Waiting times of work of a queue, from the Workloads that the API server still has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from tenancy.cluster.api import Api
from tenancy.explain.wait_history import DAYS, PastWaits, past_waits
from tenancy.kube.objects import Object

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


def work(queue: str, waited: int, started: dt.datetime = NOW, kind: str = "Admitted", status: str = "True") -> Object:
    form = "%Y-%m-%dT%H:%M:%SZ"
    condition = {"type": kind, "status": status, "lastTransitionTime": started.strftime(form)}
    created = (started - dt.timedelta(seconds=waited)).strftime(form)
    return {
        "metadata": {"creationTimestamp": created},
        "status": {"admission": {"clusterQueue": queue}, "conditions": [condition]},
    }


def past_waits_of(*items: Object) -> dict[str, PastWaits]:
    class Cluster:
        paged_items = Api.paged_items

        def pages(self, path: str, *, selector: str, absent: bool) -> Iterator[Object]:
            assert not selector
            assert not absent
            assert path.endswith("/workloads")
            yield {"items": list(items[:2])}
            yield {"items": list(items[2:])}

    api: Any = Cluster()
    return past_waits(api, NOW)


def test_waits_are_those_of_each_queues_started_work() -> None:
    waits = past_waits_of(*(work("fraud--batch", 60 * n) for n in range(1, 101)), work("nlp--batch", 5))
    assert waits == {"fraud--batch": PastWaits(100, 3000, 5700), "nlp--batch": PastWaits(1, 5, 5)}
    assert str(waits["fraud--batch"]) == "50m, p95 1h35 (100 started)"


def test_work_that_waits_or_started_long_ago_is_no_history() -> None:
    old = NOW - dt.timedelta(days=DAYS, seconds=1)
    waiting = work("a--b", 60, status="False")
    never: Object = {"metadata": {"creationTimestamp": "2026-11-25T10:00:00Z"}}
    reserved = work("a--b", 60, kind="QuotaReserved")
    assert past_waits_of(waiting, never, reserved, work("a--b", 60, old)) == {}
    assert past_waits_of(work("a--b", 60, old + dt.timedelta(seconds=1))).keys() == {"a--b"}, (
        "its twin is a second younger"
    )
