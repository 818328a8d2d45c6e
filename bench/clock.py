"""The clock at 1,000 tenants: processor time, memory and requests of a round, with an API server that is played."""

from __future__ import annotations

import datetime as dt
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from bench.child import python
from bench.generate import generate
from tenancy.catalog import vocabulary as words
from tenancy.clock.controller import Clock
from tenancy.kube.objects import Object
from tenancy.live.api import Response
from tenancy.planning import make_plan
from tenancy.validation import load

TENANTS, WORKLOADS = 1000, 5000
ROUNDS, INTERVAL = 10, 30
MONDAY = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
CORE, MEBIBYTES = 0.01, 200
"""Maximum part of a core and of memory."""


class Played:
    """Answers as JSON text, so that reading it is measured too."""

    def __init__(self, lists: dict[str, list[Object]]) -> None:
        self.texts = {kind: json.dumps({"items": items}) for kind, items in lists.items()}
        self.record: Object | None = None
        self.now = MONDAY
        self.asked: Counter[str] = Counter()

    def items(self, path: str) -> list[Object]:
        self.asked["list"] += 1
        return json.loads(self.texts[path.rpartition("/")[2]])["items"]

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        self.asked["read" if method == "GET" else "write"] += 1
        headers = {"Date": format_datetime(self.now, usegmt=True)}
        if not path.partition("?")[0].endswith((f"configmaps/{words.CLOCK}", "configmaps")):
            return Response(200, {}, headers)
        if method == "GET":
            return Response(200, self.record, headers) if self.record else Response(404, {}, headers)
        text = json.loads(json.dumps(body))
        self.record = {**text, "metadata": {**text["metadata"], "resourceVersion": str(sum(self.asked.values()))}}
        return Response(200, self.record, headers)


def _workload(number: int, namespace: str) -> Object:
    gpu = "nvidia.com/gpu"
    podset = {"name": "main", "flavors": {gpu: "train"}, "resourceUsage": {gpu: "1", "cpu": "8", "memory": "64Gi"}}
    container = {"name": "main", "image": "registry/x:1", "resources": {"requests": {gpu: "1", "cpu": "8"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-23T06:00:00Z"}
    return {
        "metadata": {"name": f"job-{number}", "uid": str(number), "namespace": namespace},
        "spec": {"queueName": "default", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"admission": {"podSetAssignments": [podset]}, "conditions": [admitted]},
    }


def child(folder: str) -> None:
    """Print wall time and processor time of a round, and the peak memory; requests to stderr."""
    loaded = load(folder)
    plan = make_plan(loaded.environment, loaded.tenants)
    kinds = {"ClusterQueue": "clusterqueues", "Cohort": "cohorts"}
    lists: dict[str, list[Object]] = {"clusterqueues": [], "cohorts": [], "workloads": []}
    for item in plan.objects():
        if item["kind"] in kinds:
            lists[kinds[item["kind"]]].append(item)
    spaces = [space.name for tenant in plan.tenants for space in tenant.namespaces]
    lists["workloads"] = [_workload(n, spaces[n % len(spaces)]) for n in range(WORKLOADS)]
    del plan
    api: Any = Played(lists)
    del lists
    clock = Clock(api, loaded.environment, loaded.tenants)
    clock.tick()
    api.asked.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(ROUNDS):
        api.now += dt.timedelta(seconds=INTERVAL)
        assert clock.tick().changes == ()
    wall, cpu = (time.perf_counter() - wall) / ROUNDS, (time.process_time() - cpu) / ROUNDS
    print(", ".join(f"{count // ROUNDS} {what}" for what, count in sorted(api.asked.items())), file=sys.stderr)
    print(json.dumps([wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def measure() -> str:
    """The section of the page."""
    with tempfile.TemporaryDirectory() as home:
        folder = generate(Path(home), TENANTS)
        path = folder / "environment.yaml"
        path.write_text(path.read_text("utf-8") + "queues: {clock: true}\n", "utf-8")
        found = python("import sys; from bench.clock import child; child(sys.argv[1])", str(folder))
    part, memory = found.cpu / INTERVAL, found.peak / 1024
    said = [
        f"A round every {INTERVAL} seconds in which nothing changes, {TENANTS:,} tenants, {WORKLOADS:,} admitted "
        "Workloads, mean of ten. A round in which something changes has one more request for each object that changes.",
        "",
        "| | measured | maximum | met |",
        "|---|---:|---:|---|",
        f"| processor time of a round | {found.cpu:.2f} s: {part:.1%} of a core | {CORE:.0%} of a core | "
        f"{'yes' if part <= CORE else 'no'} |",
        f"| peak memory | {memory:.0f} MiB | {MEBIBYTES} MiB | {'yes' if memory <= MEBIBYTES else 'no'} |",
        "| requests | a read of the record, three lists, a write of the record | – | – |",
    ]
    return "\n".join(said)
