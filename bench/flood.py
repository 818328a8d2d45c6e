"""One tenant floods the API server: latency of its neighbour, of the platform and of the queue, with and without a
priority level of its own for tenants."""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.generate import generate
from bench.labs import SERVER, answers, guards_judge, started, until
from tenancy.catalog import vocabulary as words
from tenancy.catalog.sizes import DATA, KEYS, KIB, METADATA
from tenancy.kube.objects import Object
from tenancy.lab import api as lab_api
from tenancy.lab import ports, processes
from tenancy.lab.layout import Lab, environ
from tenancy.live.api import Api, Identity, Unreachable, collection, path_of
from tenancy.plan import Plan, make_plan
from tenancy.plan.common.pools import fake_nodes
from tenancy.plan.guards.names import QUEUE
from tenancy.plan.kubernetes.flow_control import TENANTS
from tenancy.plan.kubernetes.samples import sample
from tenancy.validation import Loaded, load

IN_FLIGHT = {"max-requests-inflight": 40, "max-mutating-requests-inflight": 20}
"""Concurrent requests of the API server: a tenth of its defaults, for two processors that it shares with the rest."""
CLIENTS = 12
"""Connections of the tenant that floods, half of a user and half of a pod's service account."""
SECONDS = 20.0
"""Seconds of each flood."""
ROUNDS = 2
PAUSE = 0.1
"""Seconds between two requests of the neighbour and of the platform."""
PATIENCE = 240.0
MEDIAN_BAR, QUEUE_BAR = 8.0, 8.0
"""Maximum ratio of the median of a request, and of the time until a job is admitted, to that without a flood."""
DATABASE_BAR = 1024
"""Maximum size of etcd's database after all floods, in MiB."""
WITH, WITHOUT = "with the levels", "without them"
MARKS = KEYS - 16
"""Labels, and annotations, of a flood's pod. The rest is for those that the API server and Kueue add."""
_GPU = {"a100": 1}
_MERGE = "application/merge-patch+json"


@dataclass
class Seen:
    """Latencies in seconds, of all rounds."""

    neighbour: list[float] = field(default_factory=list)
    platform: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    """Until a job of the neighbour, within its guarantee, is admitted."""
    answers: dict[int, int] = field(default_factory=dict)
    """Number of the flood's answers, by status."""
    database: int = 0
    """Size of the database at the end of the last round, in bytes."""


@dataclass(frozen=True)
class Scene:
    lab: Lab
    loaded: Loaded
    plan: Plan
    api: Api
    """A client with the platform's identity."""
    admin: lab_api.Api
    """A client that is exempt from flow control, for measurements that must not wait."""

    def person(self, number: int) -> Identity:
        return Identity(f"person-{number}", (f"{self.loaded.tenants[number].tenant}-engineers",))

    def space(self, number: int) -> str:
        return words.derived_name(self.loaded.tenants[number].tenant, self.loaded.tenants[number].namespaces[0].name)

    def work(self, number: int, kind: str) -> Object:
        tenant = self.loaded.tenants[number]
        item = sample(kind, self.loaded.environment, tenant, tenant.namespaces[0], _GPU)
        item["metadata"]["labels"][QUEUE] = words.DEFAULT_QUEUE
        return item


def measure() -> str:
    """The rows of the section, as Markdown."""
    found: dict[tuple[str, bool], Seen] = {(kind, flood): Seen() for kind in (WITH, WITHOUT) for flood in (False, True)}
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as place:
        for number in range(ROUNDS):
            for kind in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                with levels(place, there=kind == WITH):
                    for flood in (False, True):
                        observe(place, found[kind, flood], flood=flood)
                        print(
                            f"flood: {kind}, flood {flood}: {_numbers(found[kind, flood])}", file=sys.stderr, flush=True
                        )
    in_flight = " and ".join(f"`{name}={most}`" for name, most in IN_FLIGHT.items())
    kept = [*_kept(found)]
    return "\n".join(
        [
            f"An API server with {in_flight}, a tenth of the defaults. One tenant keeps {CLIENTS} connections busy for "
            f"{SECONDS:.0f} s, half of them as a user and half as the service account of a pod: dry runs of pods "
            f"with {MARKS} labels and {MARKS} annotations, a ConfigMap of {DATA // KIB} KiB written "
            "over and over, and jobs that fit nowhere, made and deleted. Meanwhile its neighbour asks for dry runs of "
            "a pod, the platform team reads a namespace, and the neighbour makes a job of its guarantee. Medians of "
            f"{ROUNDS} rounds; in brackets the ratio to the same without a flood.",
            "",
            "| levels | flood | neighbour's pod, ms | p99, ms | platform's read, ms | until a job is admitted, s "
            "| requests of the flood | refused with 429 |",
            "|---|---|---|---|---|---|---|---|",
            *(_row(kind, flood, found) for kind, flood in found),
            "",
            f"Bounds with the levels: medians of requests within {MEDIAN_BAR:g} times, admission within {QUEUE_BAR:g} "
            f"times of those without a flood, and a maximum of {DATABASE_BAR:,} MiB of database, of which "
            f"{max(seen.database for seen in found.values()) >> 20:,} were used: {', '.join(kept)}.",
        ]
    )


def _kept(found: Mapping[tuple[str, bool], Seen]) -> Iterable[str]:
    quiet, flooded = found[WITH, False], found[WITH, True]
    for name, bar in (("neighbour", MEDIAN_BAR), ("platform", MEDIAN_BAR), ("queue", QUEUE_BAR)):
        ratio = statistics.median(getattr(flooded, name)) / statistics.median(getattr(quiet, name))
        yield f"{name} {ratio:.1f} {'kept' if ratio <= bar else 'NOT KEPT'}"
    used = max(seen.database for seen in found.values()) >> 20
    yield f"database {'kept' if used <= DATABASE_BAR else 'NOT KEPT'}"


def _row(kind: str, flood: bool, found: Mapping[tuple[str, bool], Seen]) -> str:
    seen, quiet = found[kind, flood], found[kind, False]

    def cell(name: str, scale: float, value: Callable[[list[float]], float] = statistics.median) -> str:
        mine, theirs = value(getattr(seen, name)), value(getattr(quiet, name))
        return f"{mine * scale:,.1f} ({mine / theirs:.1f})"

    cells = [
        kind,
        "yes" if flood else "no",
        cell("neighbour", 1000),
        cell("neighbour", 1000, _p99),
        cell("platform", 1000),
        cell("queue", 1),
        f"{sum(seen.answers.values()):,}" if flood else "–",
        f"{seen.answers.get(429, 0):,}" if flood else "–",
    ]
    return f"| {' | '.join(cells)} |"


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def _numbers(seen: Seen) -> str:
    medians = ", ".join(
        f"{name} {statistics.median(getattr(seen, name)) * 1000:.0f} ms" for name in ("neighbour", "platform", "queue")
    )
    return f"{medians}, {seen.answers}, database {seen.database >> 20} MiB"


def observe(place: Scene, seen: Seen, *, flood: bool) -> None:
    """Measure the neighbour's and the platform's requests for that many seconds, and the queue three times."""
    with flooding(place, seen) if flood else _nothing():
        until = time.monotonic() + SECONDS
        stop = threading.Event()
        queue = threading.Thread(target=_ask_the_queue, args=(place, seen, stop))
        queue.start()
        pod = place.work(1, "pod")
        pods, platform = collection("v1", "Pod", place.space(1)), f"/api/v1/namespaces/{words.PLATFORM_NAMESPACE}"
        while time.monotonic() < until:
            seen.neighbour.append(_timed(lambda: place.api.request("POST", f"{pods}?dryRun=All", pod, place.person(1))))
            seen.platform.append(_timed(lambda: place.api.request("GET", platform)))
            time.sleep(PAUSE)
        stop.set()
        queue.join()
    (line,) = [
        line
        for line in place.admin.request("GET", "/metrics").splitlines()
        if line.startswith("apiserver_storage_size_bytes{")
    ]
    seen.database = int(float(line.rpartition(" ")[2]))


@contextmanager
def _nothing() -> Generator[None]:
    yield


def _timed(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def _ask_the_queue(place: Scene, seen: Seen, stop: threading.Event) -> None:
    """Create a job within the guarantee, wait until Kueue has unsuspended it, and delete it."""
    # A connection of its own: the other is in use.
    with lab_api.Api(place.lab, ports.remembered(place.lab)[SERVER]) as admin:
        mine, jobs = Api(place.plan.context), collection("batch/v1", "Job", place.space(1))
        while not stop.is_set():
            item = place.work(1, "job")
            del item["metadata"]["name"]
            item["metadata"]["generateName"] = "asked-"
            began = time.perf_counter()
            answer = mine.request("POST", jobs, item, place.person(1))
            if not answer.ok:
                raise SystemExit(f"a job of the neighbour is refused: {answer.status} {answer.message}")
            path = f"{jobs}/{answer.body['metadata']['name']}"
            while admin.get(path)["spec"].get("suspend"):
                if time.perf_counter() - began > PATIENCE:
                    raise SystemExit(f"after {PATIENCE:.0f} s no job of the neighbour is admitted")
                time.sleep(0.01)
            seen.queue.append(time.perf_counter() - began)
            admin.request("DELETE", f"{path}?propagationPolicy=Background")
            time.sleep(1)


# The flood


@contextmanager
def flooding(place: Scene, seen: Seen) -> Generator[None]:
    """Flood from a separate process, so that the measurement does not wait for it."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Queue()
    space, person = place.space(0), place.person(0)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{space}")
    account = Identity(f"system:serviceaccount:{space}:{words.DEFAULT_ACCOUNT}", groups)
    pod, job = place.work(0, "pod"), place.work(0, "job")
    pod["metadata"]["labels"] |= {f"flood-{number}": "x" for number in range(MARKS - len(pod["metadata"]["labels"]))}
    each = "x" * (METADATA // 2 // KEYS)
    pod["metadata"]["annotations"] = {f"flood-{number}": each for number in range(MARKS)}
    job["spec"]["template"]["spec"]["nodeSelector"] = {"flood": "nowhere"}
    arguments = (place.plan.context, (person, account), space, pod, job, stop, answers)
    process = context.Process(target=_flood, args=arguments)
    process.start()
    answers.get(timeout=PATIENCE)  # it has begun
    try:
        yield
    finally:
        stop.set()
        for status, count in answers.get(timeout=PATIENCE).items():
            seen.answers[status] = seen.answers.get(status, 0) + count
        process.join()
        jobs = collection("batch/v1", "Job", space)
        place.admin.request("DELETE", f"{jobs}?propagationPolicy=Background")
        place.admin.request("DELETE", f"{collection('v1', 'ConfigMap', space)}?labelSelector=flood")


def _flood(
    context: str, who: tuple[Identity, Identity], space: str, pod: Object, job: Object, stop: Any, answers: Any
) -> None:
    counts: dict[int, int] = {}
    lock = threading.Lock()
    address = Api(context).host
    if "//127.0.0.1:" not in address:
        raise SystemExit(f"given {address}; rule: a flood of this machine's own API server alone; change: use the lab")

    def run(number: int) -> None:
        api, me, turn = Api(context), who[number % 2], 0
        maps, jobs = collection("v1", "ConfigMap", space), collection("batch/v1", "Job", space)
        mine = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"flood-{number}", "labels": {"flood": "x"}},
        }
        asked = (
            lambda: api.request("POST", f"{collection('v1', 'Pod', space)}?dryRun=All", pod, me),
            lambda: api.request(
                "PATCH",
                f"{maps}/flood-{number}",
                {"data": {"a": chr(97 + turn % 26) * (DATA - KIB)}},
                me,
                _MERGE,
            ),
            lambda: api.request(
                "POST", jobs, {**job, "metadata": {**job["metadata"], "name": f"flood-{number}-{turn}"}}, me
            ),
        )
        api.request("POST", maps, mine, me)
        while not stop.is_set():
            try:
                status = asked[number // 2 % len(asked)]().status
            except Unreachable:
                status = 0
            turn += 1
            with lock:
                counts[status] = counts.get(status, 0) + 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    answers.put("begun")
    for thread in threads:
        thread.join()
    answers.put(counts)


# The lab


@contextmanager
def scene(root: Path) -> Generator[Scene]:
    """A lab of two tenants with all of their objects."""
    folder = generate(root / "stacks" / "bench", 2)
    loaded = load(folder)
    plan = make_plan(loaded.environment, loaded.tenants)
    with started(root, loaded, plan, fake_nodes(loaded.environment)) as lab:
        os.environ["KUBECONFIG"] = str(lab.folder / "kubeconfig")
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(plan.objects())})
        command = ["kubectl", "apply", "--server-side", "-f", "-"]
        subprocess.run(command, input=text, env=environ(root), text=True, capture_output=True, check=True)
        _limit(lab)
        with lab_api.Api(lab, ports.remembered(lab)[SERVER]) as admin:
            place = Scene(lab, loaded, plan, Api(plan.context), admin)
            until(lambda: _in_force(place), "the guards are enforced and a job of the neighbour is admitted", PATIENCE)
            yield place


def _limit(lab: Lab) -> None:
    """Restart the lab's API server with the limits of concurrent requests."""
    running = processes.running(lab, (SERVER,))[SERVER]
    argv = [*running[0].argv, *(f"--{name}={most}" for name, most in IN_FLIGHT.items())]
    processes.stop(running)
    processes.start(lab, SERVER, argv)
    until(lambda: answers(lab, ports.remembered(lab)[SERVER]), "the API server answers", PATIENCE)


def _in_force(place: Scene) -> bool:
    """Whether the guards are enforced and a job of a tenant is admitted."""
    jobs = f"{collection('batch/v1', 'Job', place.space(1))}?dryRun=All"
    try:
        return guards_judge(place.admin) and place.api.request("POST", jobs, place.work(1, "job"), place.person(1)).ok
    except Unreachable:
        return False


@contextmanager
def levels(place: Scene, *, there: bool) -> Generator[None]:
    """Run with the plan's flow schemas, or without them."""
    schemas = [item for item in place.plan.platform.flow_control if item["kind"] == "FlowSchema"]
    if not there:
        for item in schemas:
            place.admin.request("DELETE", path_of(item))
    until(
        lambda: (_schema_of(place, place.person(0)) == TENANTS) is there,
        "the flow schemas are created or removed",
        PATIENCE,
    )
    try:
        yield
    finally:
        if not there:
            for item in schemas:
                place.admin.request("POST", path_of(item).rpartition("/")[0], item, "application/json")


def _schema_of(place: Scene, who: Identity) -> str:
    """Name of the flow schema of an identity's requests."""
    listed = place.admin.get(collection("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"))["items"]
    headers = place.api.request("GET", "/version", identity=who).headers
    uid = next(value for name, value in headers.items() if name.lower() == "x-kubernetes-pf-flowschema-uid")
    return next((item["metadata"]["name"] for item in listed if item["metadata"]["uid"] == uid), "")
