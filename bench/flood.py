"""One tenant floods the API server: latency of its neighbour, of the platform and of the queue, with and without a
priority level of its own for tenants."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import ssl
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
from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import QUEUE
from tenancy.catalog.sizes import DATA, KEYS, KIB, METADATA
from tenancy.cluster.api import Api, ApiUnreachable, path_of
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation, collection
from tenancy.lab import api as lab_api
from tenancy.lab import ports, processes
from tenancy.lab.layout import Lab, environ
from tenancy.lab.pki import LOOPBACK
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.kubernetes.flow_control import TENANTS
from tenancy.planning.kubernetes.samples import sample
from tenancy.spec.loader import Loaded, load

IN_FLIGHT = {"max-requests-inflight": 40, "max-mutating-requests-inflight": 20}
"""Concurrent requests of the API server: a tenth of its defaults, for two processors that it shares with the rest."""
CLIENTS = 12
"""Connections of the tenant that floods, half of a user and half of a pod's service account."""
CLIENT_NICE = 10
"""Priority of the flood's process: below the API server's."""
SECONDS = 20.0
"""Seconds of each flood."""
ROUNDS = 2
PAUSE = 0.1
"""Seconds between two requests of the neighbour and of the platform."""
PATIENCE = 240.0
REQUEST_BAR, QUEUE_BAR = 1.0, 5.0
"""Maximum seconds of a request's 99th percentile, which is Kubernetes' own service level objective for requests of one
object, and of the time until a job is admitted."""
SHARED_LEVELS = ("global-default", "workload-low")
"""Kubernetes' own levels, which tenants have without a level of theirs."""
DATABASE_BAR = 1024
"""Maximum size of etcd's database after all floods, in MiB."""
WITH, WITHOUT = "with the levels", "without them"
EXTRA_KEYS = KEYS - 16
"""Labels, and annotations, of a flood's pod. The rest is for those that the API server and Kueue add."""
_GPU = {"a100": 1}
_JSON, _MERGE = "application/json", "application/merge-patch+json"


@dataclass
class Observation:
    """Latencies in seconds, of all rounds."""

    neighbour: list[float] = field(default_factory=list)
    platform: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    """Until a job of the neighbour, within its guarantee, is admitted."""
    answers: dict[int, int] = field(default_factory=dict)
    """Number of the flood's answers, by status."""
    queued: int = 0
    waited: float = 0.0
    """Requests of tenants that a priority level let through, and the seconds that they waited for a seat."""
    database: int = 0
    """Size of the database at the end of the last round, in bytes."""


@dataclass(frozen=True)
class Scene:
    lab: Lab
    loaded: Loaded
    plan: Plan
    api: Api
    """A client with the platform's identity."""
    admin: lab_api.LabApi
    """A client that is exempt from flow control, for measurements that must not wait."""

    def person(self, number: int) -> Impersonation:
        return Impersonation(f"person-{number}", (f"{self.loaded.tenants[number].tenant}-engineers",))

    def space(self, number: int) -> str:
        return vocabulary.derived_name(
            self.loaded.tenants[number].tenant, self.loaded.tenants[number].namespaces[0].name
        )

    def work(self, number: int, kind: str) -> Object:
        tenant = self.loaded.tenants[number]
        item = sample(kind, self.loaded.environment, tenant, tenant.namespaces[0], _GPU)
        item["metadata"]["labels"][QUEUE] = vocabulary.DEFAULT_QUEUE
        return item


def measure() -> str:
    """The rows of the section, as Markdown."""
    observations: dict[tuple[str, bool], Observation] = {
        (kind, flood): Observation() for kind in (WITH, WITHOUT) for flood in (False, True)
    }
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as place:
        for number in range(ROUNDS):
            for kind in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                with levels(place, is_present=kind == WITH):
                    for flood in (False, True):
                        observe(place, observations[kind, flood], flood=flood)
                        print(
                            f"flood: {kind}, flood {flood}: {_numbers(observations[kind, flood])}",
                            file=sys.stderr,
                            flush=True,
                        )
    in_flight = " and ".join(f"`{name}={limit}`" for name, limit in IN_FLIGHT.items())
    return "\n".join(
        [
            f"An API server with {in_flight}, a tenth of the defaults. One tenant keeps {CLIENTS} connections busy for "
            f"{SECONDS:.0f} s, half of them as a user and half as the service account of a pod: dry runs of pods "
            f"with {EXTRA_KEYS} labels and {EXTRA_KEYS} annotations, a ConfigMap of {DATA // KIB} KiB written "
            "over and over, and jobs that fit nowhere, made and deleted. Meanwhile its neighbour asks for dry runs of "
            "a pod, the platform team reads a namespace, and the neighbour makes a job of its guarantee. Medians of "
            f"{ROUNDS} rounds; in brackets the ratio to the same without a flood.",
            "",
            "| levels | flood | neighbour's pod, ms | p99, ms | platform's read, ms | p99, ms "
            "| until a job is admitted, s | requests of the flood | refused with 429 | mean wait for a seat, ms |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(_row(kind, flood, observations) for kind, flood in observations),
            "",
            f"Bounds with the levels: the 99th percentile of a request is at most {REQUEST_BAR:g} s (Kubernetes' own "
            f"objective for requests of one object), a job is admitted within {QUEUE_BAR:g} s, and the database has at "
            f"most {DATABASE_BAR:,} MiB: {', '.join(_bars_kept(observations))}.",
        ]
    )


def _bars_kept(observations: Mapping[tuple[str, bool], Observation]) -> Iterable[str]:
    flooded = observations[WITH, True]
    measured = (
        ("neighbour", _p99(flooded.neighbour), REQUEST_BAR, "s"),
        ("platform", _p99(flooded.platform), REQUEST_BAR, "s"),
        ("queue", max(flooded.queue), QUEUE_BAR, "s"),
        ("database", max(observation.database for observation in observations.values()) / KIB**2, DATABASE_BAR, "MiB"),
    )
    for name, value, bar, unit in measured:
        yield f"{name} {value:,.2f} {unit}, {'kept' if value <= bar else 'NOT KEPT'}"


def _row(kind: str, flood: bool, observations: Mapping[tuple[str, bool], Observation]) -> str:
    observation, quiet = observations[kind, flood], observations[kind, False]

    def cell(name: str, scale: float, value: Callable[[list[float]], float] = statistics.median) -> str:
        measured, undisturbed = value(getattr(observation, name)), value(getattr(quiet, name))
        return f"{measured * scale:,.1f} ({measured / undisturbed:.1f})"

    cells = [
        kind,
        "yes" if flood else "no",
        cell("neighbour", 1000),
        cell("neighbour", 1000, _p99),
        cell("platform", 1000),
        cell("platform", 1000, _p99),
        cell("queue", 1),
        f"{sum(observation.answers.values()):,}" if flood else "–",
        f"{observation.answers.get(429, 0):,}" if flood else "–",
        f"{observation.waited / max(observation.queued, 1) * 1000:,.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def _numbers(observation: Observation) -> str:
    medians = ", ".join(
        f"{name} {statistics.median(getattr(observation, name)) * 1000:.0f} ms"
        for name in ("neighbour", "platform", "queue")
    )
    return f"{medians}, {observation.answers}, database {observation.database >> 20} MiB"


def observe(place: Scene, observation: Observation, *, flood: bool) -> None:
    """Measure the neighbour's and the platform's requests for that many seconds, and the queue three times."""
    before = _waits(place)
    with flooding(place, observation) if flood else _nothing():
        until = time.monotonic() + SECONDS
        stop = threading.Event()
        queue = threading.Thread(target=_ask_the_queue, args=(place, observation, stop))
        queue.start()
        pod = place.work(1, "pod")
        pods, platform = collection("v1", "Pod", place.space(1)), f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}"
        while time.monotonic() < until:
            observation.neighbour.append(
                _timed(lambda: place.api.request("POST", f"{pods}?dryRun=All", pod, place.person(1)))
            )
            observation.platform.append(_timed(lambda: place.api.request("GET", platform)))
            time.sleep(PAUSE)
        stop.set()
        queue.join()
    after = _waits(place)
    observation.queued += int(after[0] - before[0])
    observation.waited += after[1] - before[1]
    (size,) = _metric(place, "apiserver_storage_size_bytes")
    observation.database = int(size)


def _metric(place: Scene, name: str, *labels: str) -> list[float]:
    """Values of a metric's series that have all of these labels."""
    lines = place.admin.request("GET", "/metrics").splitlines()
    metric_lines = [line for line in lines if line.startswith(f"{name}{{") and all(label in line for label in labels)]
    return [float(line.rpartition(" ")[2]) for line in metric_lines]


def _waits(place: Scene) -> tuple[float, float]:
    """Number of requests with a level of tenants and the seconds that they waited, since the API server began."""
    name = "apiserver_flowcontrol_request_wait_duration_seconds"
    both = [
        sum(
            value
            for level in (TENANTS, *SHARED_LEVELS)
            for value in _metric(place, f"{name}_{kind}", f'priority_level="{level}"', 'execute="true"')
        )
        for kind in ("count", "sum")
    ]
    return both[0], both[1]


@contextmanager
def _nothing() -> Generator[None]:
    yield


def _timed(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def _ask_the_queue(place: Scene, observation: Observation, stop: threading.Event) -> None:
    """Create a job within the guarantee, wait until Kueue has unsuspended it, and delete it."""
    # A connection of its own: the other is in use.
    with lab_api.LabApi(place.lab, ports.remembered(place.lab)[SERVER]) as admin:
        queue_api, jobs = Api(place.plan.context), collection("batch/v1", "Job", place.space(1))
        while not stop.is_set():
            item = place.work(1, "job")
            del item["metadata"]["name"]
            item["metadata"]["generateName"] = "asked-"
            began = time.perf_counter()
            answer = queue_api.request("POST", jobs, item, place.person(1))
            if not answer.ok:
                raise SystemExit(f"a job of the neighbour is refused: {answer.status} {answer.message}")
            path = f"{jobs}/{answer.body['metadata']['name']}"
            while admin.get(path)["spec"].get("suspend"):
                if time.perf_counter() - began > PATIENCE:
                    raise SystemExit(f"after {PATIENCE:.0f} s no job of the neighbour is admitted")
                time.sleep(0.01)
            observation.queue.append(time.perf_counter() - began)
            admin.request("DELETE", f"{path}?propagationPolicy=Background")
            time.sleep(1)


# The flood


@contextmanager
def flooding(place: Scene, observation: Observation) -> Generator[None]:
    """Flood from a separate process, so that the measurement does not wait for it."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Queue()
    space, person = place.space(0), place.person(0)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{space}")
    account = Impersonation(f"system:serviceaccount:{space}:{vocabulary.DEFAULT_ACCOUNT}", groups)
    pod, job = place.work(0, "pod"), place.work(0, "job")
    pod["metadata"]["labels"] |= {
        f"flood-{number}": "x" for number in range(EXTRA_KEYS - len(pod["metadata"]["labels"]))
    }
    value = "x" * (METADATA // 2 // KEYS)
    pod["metadata"]["annotations"] = {f"flood-{number}": value for number in range(EXTRA_KEYS)}
    job["spec"]["template"]["spec"]["nodeSelector"] = {"flood": "nowhere"}
    address = f"{LOOPBACK}:{ports.remembered(place.lab)[SERVER]}"
    arguments = (address, place.lab.pki, (person, account), space, pod, job, stop, answers)
    process = context.Process(target=_flood, args=arguments)
    process.start()
    answers.get(timeout=PATIENCE)  # it has begun
    try:
        yield
    finally:
        stop.set()
        for status, count in answers.get(timeout=PATIENCE).items():
            observation.answers[status] = observation.answers.get(status, 0) + count
        process.join()
        jobs = collection("batch/v1", "Job", space)
        place.admin.request("DELETE", f"{jobs}?propagationPolicy=Background")
        place.admin.request("DELETE", f"{collection('v1', 'ConfigMap', space)}?labelSelector=flood")


def _flood(
    address: str,
    pki: Path,
    who: tuple[Impersonation, Impersonation],
    space: str,
    pod: Object,
    job: Object,
    stop: Any,
    answers: Any,
) -> None:
    # On a cluster clients have machines of their own, and here they share the processors with the API server.
    os.nice(CLIENT_NICE)
    counts: dict[int, int] = {}
    lock = threading.Lock()
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    pods, maps, jobs = (
        collection(version, kind, space) for version, kind in (("v1", "Pod"), ("v1", "ConfigMap"), ("batch/v1", "Job"))
    )
    # Bodies are made once: what a client computes would take processor time from the server that it floods.
    dry_run = json.dumps(pod).encode()
    rewrites = [json.dumps({"data": {"a": letter * (DATA - KIB)}}).encode() for letter in "ab"]
    del job["metadata"]["name"]
    job["metadata"]["generateName"] = "flood-"
    nowhere = json.dumps(job).encode()

    def run(number: int) -> None:
        connection, turn = http.client.HTTPSConnection(address, timeout=PATIENCE, context=context), 0

        def ask(method: str, path: str, body: bytes, content_type: str = "application/json") -> int:
            connection.putrequest(method, path)
            sent = [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Accept", _JSON)]
            for header, value in (*sent, *who[number % 2].headers()):
                connection.putheader(header, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            answer.read()
            return answer.status

        object_head = {"metadata": {"name": f"flood-{number}", "labels": {"flood": "x"}}}
        requests = (
            lambda: ask("POST", f"{pods}?dryRun=All", dry_run),
            lambda: ask("PATCH", f"{maps}/flood-{number}", rewrites[turn % 2], _MERGE),
            lambda: ask("POST", jobs, nowhere),
        )
        ask("POST", maps, json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **object_head}).encode())
        while not stop.is_set():
            try:
                status = requests[number // 2 % len(requests)]()
            except (OSError, http.client.HTTPException):
                status = 0
                connection.close()
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
    plan = make_plan(loaded, loaded.day)
    with started(root, loaded, plan, fake_nodes(loaded.environment)) as lab:
        os.environ["KUBECONFIG"] = str(lab.folder / "kubeconfig")
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(plan.objects())})
        command = ["kubectl", "apply", "--server-side", "-f", "-"]
        subprocess.run(command, input=text, env=environ(root), text=True, capture_output=True, check=True)
        _limit(lab)
        with lab_api.LabApi(lab, ports.remembered(lab)[SERVER]) as admin:
            place = Scene(lab, loaded, plan, Api(plan.context), admin)
            until(lambda: _in_force(place), "the guards are enforced and a job of the neighbour is admitted", PATIENCE)
            yield place


def _limit(lab: Lab) -> None:
    """Restart the lab's API server with the limits of concurrent requests."""
    running = processes.running(lab, (SERVER,))[SERVER]
    argv = [*running[0].argv, *(f"--{name}={limit}" for name, limit in IN_FLIGHT.items())]
    processes.stop(running)
    processes.start(lab, SERVER, argv)
    until(lambda: answers(lab, ports.remembered(lab)[SERVER]), "the API server answers", PATIENCE)


def _in_force(place: Scene) -> bool:
    """Whether the guards are enforced and a job of a tenant is admitted."""
    jobs = f"{collection('batch/v1', 'Job', place.space(1))}?dryRun=All"
    try:
        return guards_judge(place.admin) and place.api.request("POST", jobs, place.work(1, "job"), place.person(1)).ok
    except ApiUnreachable:
        return False


@contextmanager
def levels(place: Scene, *, is_present: bool) -> Generator[None]:
    """Run with the plan's flow schemas, or without them."""
    schemas = [item for item in place.plan.platform.flow_control if item["kind"] == "FlowSchema"]
    if not is_present:
        for item in schemas:
            place.admin.request("DELETE", path_of(item))
    until(
        lambda: (_schema_of(place, place.person(0)) == TENANTS) is is_present,
        "the flow schemas are created or removed",
        PATIENCE,
    )
    try:
        yield
    finally:
        if not is_present:
            for item in schemas:
                place.admin.request("POST", path_of(item).rpartition("/")[0], item, "application/json")


def _schema_of(place: Scene, who: Impersonation) -> str:
    """Name of the flow schema of an identity's requests."""
    schemas = place.admin.get(collection("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"))["items"]
    headers = place.api.request("GET", "/version", identity=who).headers
    uid = next(value for name, value in headers.items() if name.lower() == "x-kubernetes-pf-flowschema-uid")
    return next((item["metadata"]["name"] for item in schemas if item["metadata"]["uid"] == uid), "")
