"""The clock at 1,000 tenants: processor time, memory and requests of a round, with an API server that is played."""

from __future__ import annotations

import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from bench.child import python
from bench.generate import generate
from tenancy.catalog import vocabulary
from tenancy.clock.controller import Clock
from tenancy.cluster.api import Response
from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.spec.loader import load

TENANTS, WORKLOADS, CHANGES = 1000, 5000, 100
"""CHANGES: Workloads that end and that start in a busy round, half of each."""
PAGE = 500
ROUNDS, INTERVAL = 10, 30
MONDAY = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
CORE, MEBIBYTES = 0.01, 200
"""Maximum part of a core and of memory."""


class Played:
    """Answers from files of JSON text, so that reading them is measured and making them is not."""

    def __init__(self, answers: Path) -> None:
        self.answers = answers
        self.events = ""
        """Name of the round whose events the next watches have; empty: none."""
        self.record: Object | None = None
        self.now = MONDAY
        self.asked: Counter[str] = Counter()

    def pages(self, path: str) -> Iterator[Any]:
        for page in sorted(self.answers.glob(f"{path.rpartition('/')[2]}-*")):
            self.asked["page of a list"] += 1
            yield json.loads(page.read_bytes())

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        if "?watch=true" in path:
            self.asked["watch"] += 1
            events = self.answers / f"{self.events}-{path.partition('?')[0].rpartition('/')[2]}"
            lines = events.read_bytes() if events.exists() else b""
            return Response(200, {"items": [json.loads(line) for line in lines.splitlines()]})
        self.asked["read" if method == "GET" else "write"] += 1
        headers = {"Date": format_datetime(self.now, usegmt=True)}
        if not path.partition("?")[0].endswith((f"configmaps/{vocabulary.CLOCK}", "configmaps")):
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
    # As long as what the API server keeps of the writers of a Workload.
    fields = [{"manager": "kueue", "operation": "Apply", "fieldsV1": {f"f:{n}": {} for n in range(250)}}]
    return {
        "metadata": {
            "name": f"job-{number}",
            "uid": str(number),
            "namespace": namespace,
            "resourceVersion": "1",
            "managedFields": fields,
        },
        "spec": {"queueName": "default", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"admission": {"podSetAssignments": [podset]}, "conditions": [admitted]},
    }


def play(folder: str, answers: str) -> None:
    """Write what the API server answers: pages of its lists, and the events of busy rounds."""
    loaded, home = load(folder), Path(answers)
    plan = make_plan(loaded, loaded.day)
    kinds = {"ClusterQueue": "clusterqueues", "Cohort": "cohorts"}
    lists: dict[str, list[Object]] = {"clusterqueues": [], "cohorts": [], "workloads": []}
    for item in plan.objects():
        if item["kind"] in kinds:
            item["metadata"]["resourceVersion"] = "1"
            lists[kinds[item["kind"]]].append(item)
    spaces = [space.name for tenant in plan.tenants for space in tenant.namespaces]
    lists["workloads"] = [_workload(n, spaces[n % len(spaces)]) for n in range(WORKLOADS)]
    for kind, items in lists.items():
        for start in range(0, len(items), PAGE):
            page = {"metadata": {"resourceVersion": "1"}, "items": items[start : start + PAGE]}
            (home / f"{kind}-{start:05}").write_text(json.dumps(page), "utf-8")
    for number in range(ROUNDS):
        for kind, events in _events(lists, number * CHANGES // 2).items():
            lines = [json.dumps({"type": what, "object": item}) for what, item in events]
            (home / f"{number}-{kind}").write_text("\n".join(lines), "utf-8")


def _events(lists: dict[str, list[Object]], first: int) -> dict[str, list[tuple[str, Object]]]:
    """Events of a round in which work ends and starts: each Workload changes three times, and each time its queue's
    status does."""
    half = slice(first, first + CHANGES // 2)
    works, queues = lists["workloads"][half], lists["clusterqueues"][half]
    new = [_workload(WORKLOADS + first + n, work["metadata"]["namespace"]) for n, work in enumerate(works)]
    changes = [("MODIFIED", item) for item in [*works, *new] for _ in range(3)]
    return {
        "workloads": changes + [("DELETED", item) for item in works],
        "clusterqueues": [("MODIFIED", item) for item in queues for _ in range(6)],
    }


def child(folder: str, answers: str, busy: str) -> None:
    """Print wall time and processor time of a round, and the peak memory; requests to stderr."""
    loaded = load(folder)
    api: Any = Played(Path(answers))
    clock = Clock(api, loaded.environment, loaded.tenants)
    clock.tick()
    api.asked.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(ROUNDS):
        api.events = str(number) if busy else ""
        api.now += dt.timedelta(seconds=INTERVAL)
        assert clock.tick().changes == ()
    wall, cpu = (time.perf_counter() - wall) / ROUNDS, (time.process_time() - cpu) / ROUNDS
    print(", ".join(f"{count // ROUNDS} {what}" for what, count in sorted(api.asked.items())), file=sys.stderr)
    print(json.dumps([wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def measure() -> str:
    """The section of the page."""
    with tempfile.TemporaryDirectory() as home:
        folder = generate(Path(home) / "many", TENANTS)
        _clocked(folder)
        answers = Path(home) / "answers"
        answers.mkdir()
        child_code = "import sys; from bench.clock import play; play(*sys.argv[1:])"
        subprocess.run([sys.executable, "-c", child_code, str(folder), str(answers)], check=True)
        code = "import sys; from bench.clock import child; child(*sys.argv[1:])"
        quiet, busy = (python(code, str(folder), str(answers), kind) for kind in ("", "busy"))
    memory = max(quiet.peak, busy.peak) / 1024
    lines = [
        f"A round every {INTERVAL} seconds, {TENANTS:,} tenants, each with a window and a budget that binds, "
        f"{WORKLOADS:,} admitted Workloads, mean of {ROUNDS}. In a busy round {CHANGES // 2} of them end and as many "
        "start. A round in which a queue changes has one more request for each.",
        "",
        "| | measured | maximum | met |",
        "|---|---:|---:|---|",
        *(
            f"| processor time of a {name} round | {run.cpu:.3f} s: {run.cpu / INTERVAL:.2%} of a core | "
            f"{CORE:.0%} of a core | {'yes' if run.cpu / INTERVAL <= CORE else 'no'} |"
            for name, run in (("quiet", quiet), ("busy", busy))
        ),
        f"| peak memory | {memory:.0f} MiB | {MEBIBYTES} MiB | {'yes' if memory <= MEBIBYTES else 'no'} |",
        "| requests | a read of the record, three watches, a write of the record | – | – |",
    ]
    return "\n".join(lines)


def _clocked(folder: Path) -> None:
    """Give every tenant a window and a budget that binds, and the nodes for that."""
    path = folder / "environment.yaml"
    text, few = path.read_text("utf-8"), f"train-a100: {{instance-type: p4d.24xlarge, nodes: {TENANTS + 1}}}"
    assert few in text
    more = few.replace(str(TENANTS + 1), str(TENANTS + 1 + TENANTS // 8))
    path.write_text(text.replace(few, more) + "queues: {clock: true}\n", "utf-8")
    for tenant in (folder / "tenants").iterdir():
        text = tenant.read_text("utf-8").replace("budget: {", "budget: {monthly-gpu-hours: 100000, when-spent: hold, ")
        window = (
            "gpu-windows: [{name: close, flavor: a100, gpus: 1, starts: '17:00', ends: '20:00', time-zone: "
            "Europe/Berlin}]"
        )
        tenant.write_text(f"{text}{window}\n", "utf-8")
