"""Creation of a pod and of a job with enforced guards, against the same API server without them."""

from __future__ import annotations

import copy
import gc
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from bench.generate import generate
from bench.labs import CREATE, REFUSED, SERVER, answers, guards_judge, started, until
from bench.processors import used
from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import HELD, QUEUE
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.components import KUEUE
from tenancy.lab.layout import Lab
from tenancy.planning import Plan, make_plan
from tenancy.planning.kubernetes.samples import sample
from tenancy.spec.loader import Loaded, load

TENANTS = (10, 200)
PATIENCE = 300.0
"""Maximum seconds until created objects are enforced; quotas of 1,000 namespaces take the controllers a while."""
PLUGIN = "ValidatingAdmissionPolicy"
QUOTA = "ResourceQuota"
_ROOM = "1Pi"
READ = {QUOTA, "LimitRange"}
"""Isolation resources of a namespace that an admission reads."""
_TWO_PARTS, _FOUR_PARTS = "  - notebooks\n", "  - notebooks\n  - explore\n  - tools\n"
_TABLE = (
    "| tenants | creation of | pairs | p10 | median | p99 | CPU of the server |",
    "|---|---|---|---|---|---|---|",
)
_GPU = {"a100": 1}
PAIRS = 2500
PAUSE = 0.02
"""Seconds before each request. Without a pause every request runs beside the garbage collection of the requests before,
on processors that the server shares here with all other processes."""
_LARGEST = (40, 24)
"""Containers, and environment variables of each."""
_ALIKE = ("train", "explore")
"""Two namespaces with the same isolation resources. Stored objects are counted in quotas, and two servers that count in
one namespace get conflicts now and then."""


@dataclass(frozen=True)
class Work:
    """An object to create, and how often."""

    name: str
    body: Object
    pairs: int
    pause: float = PAUSE
    stored: bool = False

    def path(self, namespace: str) -> str:
        path = collection(self.body["apiVersion"], self.body["kind"], namespace)
        return path if self.stored else f"{path}?dryRun=All"


@dataclass(frozen=True)
class Server:
    api: LabApi
    pid: int
    namespace: str
    """The namespace of its requests."""

    def cpu(self) -> float:
        return used(self.pid)


@dataclass(frozen=True)
class Servers:
    """Two API servers on one store, which differ in one admission plugin."""

    lab: Lab
    bare: Server
    guarded: Server


@dataclass(frozen=True)
class ServerTimes:
    """Latencies in seconds, and the server's CPU seconds for each request."""

    times: list[float]
    cpu: float


def measure() -> str:
    """The rows of the section, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(fleet(Path(folder) / "stacks" / "bench", max(TENANTS)))
        plan = make_plan(loaded, loaded.day)
        rows = [
            f"{len(loaded.tenants[0].namespaces)} namespaces a tenant; {len(plan.platform.guards) // 2} guards with "
            f"{_rules(plan)} rules. Two API servers on one store, one with the plugin {PLUGIN} switched off; a "
            "creation on an open connection to each in turn, in ms without → with guards: their ratio. Memory grows as "
            f"in every lab (`GOGC={os.environ.get('GOGC', processes.GOGC)}`). Load before and after: {{before}} and "
            "{after}.",
            "",
            "Stored, as tenants' are: the namespace's quotas count it, etcd writes it. One request after another "
            "without a pause; the controllers are stopped, so that nothing but the server is measured, and without "
            "Kueue, whose webhooks would add the same to both. The bar, 1.3 at p99 and no more with more tenants, "
            "applies to these rows: they are the latency that a user waits for.",
            "",
            *_TABLE,
        ]
        before = os.getloadavg()[0]
        with servers(Path(folder), loaded, plan) as compared:
            for since, count in pairwise((0, *TENANTS)):
                make(compared.guarded.api, plan, since, count)
                if not since:
                    # The check that the queue is gone needs the first tenants.
                    leave_out_the_queue(compared, works(loaded)[0])
                    make_room(compared)
                with at_rest(compared.lab):
                    rows += [_row(count, work, *timed(compared, work)) for work in stored(loaded)]
            with at_rest(compared.lab):
                hardest = [_row(count, work, *timed(compared, work)) for work in works(loaded, queue=False)]
        rows += [
            "",
            "Dry runs, which end before anything is counted or written, with Kueue's webhooks, as every cluster with "
            f"queues has them; {PAUSE * 1000:.0f} ms after the one before unless the row says otherwise. Where others "
            "use the machine too, the least disturbed tenth and the server's own CPU for each request are the most "
            "reliable.",
            "",
            *_TABLE,
        ]
        with servers(Path(folder), loaded, plan) as compared:
            for since, count in pairwise((0, *TENANTS)):
                make(compared.guarded.api, plan, since, count)
                rows += [_row(count, work, *timed(compared, work)) for work in works(loaded)]
            hasty = [replace(work, name=f"{work.name}, no pause", pause=0) for work in works(loaded)[:2]]
            rows += [_row(count, work, *timed(compared, work)) for work in hasty]
        return "\n".join(rows + hardest).format(before=f"{before:.1f}", after=f"{os.getloadavg()[0]:.1f}")


def _rules(plan: Plan) -> int:
    return sum(len(guard["spec"].get("validations", ())) for guard in plan.platform.guards)


def _row(count: int, work: Work, bare: ServerTimes, guarded: ServerTimes) -> str:
    cells = [f"{count}", work.name, f"{work.pairs:,}"]
    percentiles = [
        tuple(
            statistics.quantiles(server_times.times, n=100, method="inclusive")[part]
            for server_times in (bare, guarded)
        )
        for part in (9, 49, 98)
    ]
    for low, high in (*percentiles, (bare.cpu, guarded.cpu)):
        cells.append(f"{low * 1000:.1f} → {high * 1000:.1f}: {high / low:.2f}")
    print(f"guards: {', '.join(cells)}", file=sys.stderr, flush=True)
    return f"| {' | '.join(cells)} |"


def fleet(folder: Path, tenants: int) -> Path:
    """An environment of that many tenants with five namespaces each."""
    generate(folder, tenants)
    for path in (folder / "tenants").iterdir():
        path.write_text(path.read_text("utf-8").replace(_TWO_PARTS, _FOUR_PARTS), "utf-8")
    return folder


def works(loaded: Loaded, *, queue: bool = True) -> tuple[Work, ...]:
    """Objects as a tenant sends them; without the queue's webhooks, as those would change them."""
    tenant = loaded.tenants[0]
    part = tenant.namespaces[0]
    pod, job = (sample(kind, loaded.environment, tenant, part, _GPU) for kind in ("pod", "job"))
    for item in (pod, job):
        item["metadata"]["labels"][QUEUE] = vocabulary.DEFAULT_QUEUE
    if not queue:
        pod["spec"]["schedulingGates"] = [{"name": HELD}]
        job["spec"]["suspend"] = True
    largest, (containers, variables) = copy.deepcopy(pod), _LARGEST
    first = largest["spec"]["containers"][0]
    first["env"] = [{"name": f"SETTING_{number}", "value": "x"} for number in range(variables)]
    little = {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi"}
    largest["spec"]["containers"] += [
        {**first, "name": f"c{number}", "resources": {"requests": little, "limits": little}}
        for number in range(1, containers)
    ]
    alone = "" if queue else ", no webhooks"
    return (
        Work(f"a pod with a GPU{alone}", pod, PAIRS),
        Work(f"a job with a GPU{alone}", job, PAIRS),
        Work(f"a pod of {containers} containers with {variables} variables each{alone}", largest, 30),
    )


def stored(loaded: Loaded) -> list[Work]:
    """The same objects without a pause, and stored."""
    return [
        replace(work, name=work.name.partition(",")[0], pause=0, stored=True) for work in works(loaded, queue=False)[:2]
    ]


def timed(compared: Servers, work: Work) -> tuple[ServerTimes, ServerTimes]:
    """Requests without and with the guards, in pairs; the first of a pair alternates."""
    both = (compared.bare, compared.guarded)
    for server in both:
        for _ in range(20):
            _ask(server, work)
    times: list[list[float]] = [[], []]
    before = [server.cpu() for server in both]
    gc.collect()
    gc.disable()
    try:
        for number in range(work.pairs):
            for which in (0, 1) if number % 2 else (1, 0):
                time.sleep(work.pause)
                times[which].append(_ask(both[which], work))
    finally:
        gc.enable()
    cpu_per_pair = [(server.cpu() - began) / work.pairs for server, began in zip(both, before, strict=True)]
    return ServerTimes(times[0], cpu_per_pair[0]), ServerTimes(times[1], cpu_per_pair[1])


def _ask(server: Server, work: Work) -> float:
    body = work.body
    if work.stored:
        # A name that the API server generates is free.
        metadata = {**body["metadata"], "generateName": f"{body['metadata']['name']}-", "namespace": server.namespace}
        del metadata["name"]
        body = {**body, "metadata": metadata}
    began = time.perf_counter()
    server.api.request("POST", work.path(body["metadata"]["namespace"]), body, CREATE)
    return time.perf_counter() - began


@contextmanager
def servers(root: Path, loaded: Loaded, plan: Plan) -> Generator[Servers]:
    """A lab without nodes, and two more API servers on its store: the lab's own one serves the controllers."""
    with started(root, loaded, plan, nodes=[]) as lab:
        port_names = [*ports.NAMES, *ports.QUEUES]
        chosen_ports = ports.choose(lab, port_names, [*port_names, *ports.METRICS])
        guarded, bare = (chosen_ports[name] for name in ports.METRICS)
        first = _start(lab, chosen_ports[SERVER], guarded, "guarded", {})
        off = f"--disable-admission-plugins={PLUGIN}"
        second = _start(lab, chosen_ports[SERVER], bare, "bare", {f",{PLUGIN},": ","}, off)
        for port in (guarded, bare):
            until(lambda port=port: answers(lab, port), f"the API server on port {port} answers", PATIENCE)
        with (
            LabApi(lab, guarded, identity="platform") as guarded_api,
            LabApi(lab, bare, identity="platform") as bare_api,
        ):
            spaces = [vocabulary.derived_name(loaded.tenants[0].tenant, part) for part in _ALIKE]
            yield Servers(lab, bare=Server(bare_api, second, spaces[0]), guarded=Server(guarded_api, first, spaces[1]))


def _start(lab: Lab, server_port: int, port: int, name: str, changes: Mapping[str, str], *more: str) -> int:
    """Start an API server like the lab's own; return its process."""
    argv = list(processes.running(lab, (SERVER,))[SERVER][0].argv)
    for old, new in {
        f"--secure-port={server_port}": f"--secure-port={port}",
        "audit.log": f"audit-{name}.log",
        **changes,
    }.items():
        argv = [argument.replace(old, new) for argument in argv]
    processes.start(lab, f"{SERVER}-{name}", [*argv, *more])
    listening = f"--secure-port={port}"
    return next(process.pid for process in processes.running(lab, (SERVER,))[SERVER] if listening in process.argv)


@contextmanager
def at_rest(lab: Lab) -> Generator[None]:
    """Stop the controllers, so that they do not act on stored objects."""
    pid = processes.running(lab, (control_plane.MANAGER,))[control_plane.MANAGER][0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def make_room(compared: Servers) -> None:
    """Raise the quotas in the namespaces of stored objects: they count as many resources as before and refuse none."""
    api = compared.guarded.api
    for server in (compared.bare, compared.guarded):
        path = collection("v1", QUOTA, server.namespace)
        for item in api.get(path)["items"]:
            hard = {key: _ROOM for key, limit in item["spec"]["hard"].items() if limit != "0"}
            api.request("PATCH", f"{path}/{item['metadata']['name']}", {"spec": {"hard": hard}})
        until(lambda path=path: _agree(api.get(path)["items"]), "the quotas are as large as they should be", PATIENCE)


def _agree(quotas: Iterable[Object]) -> bool:
    return all(item["spec"]["hard"] == item.get("status", {}).get("hard") for item in quotas)


def leave_out_the_queue(compared: Servers, pod: Work) -> None:
    """Remove Kueue and its webhooks, and wait until both servers have noticed."""
    processes.stop(processes.running(compared.lab, (KUEUE,))[KUEUE], at_once=True)
    for kind in ("Mutating", "Validating"):
        path = collection("admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration")
        for item in compared.guarded.api.get(path)["items"]:
            compared.guarded.api.request("DELETE", f"{path}/{item['metadata']['name']}")
    for server in (compared.bare, compared.guarded):
        until(lambda api=server.api: not _waits(api, pod), "no webhook is asked", PATIENCE)


def _waits(api: LabApi, pod: Work) -> bool:
    """Whether a webhook makes the pod wait for the queue; a guard refuses a pod that does not."""
    try:
        answer = api.request("POST", pod.path(pod.body["metadata"]["namespace"]), pod.body, CREATE)
    except ApiError as error:
        if error.status != REFUSED:
            raise
        return False
    return "schedulingGates" in answer["spec"]


def make(api: LabApi, plan: Plan, since: int, end: int) -> None:
    """Create the objects of these tenants that admission reads, and those of the platform before the first of them."""
    if not since:
        platform = plan.platform
        _apply(api, [platform.namespace, *platform.priorities, *platform.guards, *platform.readiness_probe])
        until(lambda: guards_judge(api), "the guards are enforced", PATIENCE)
    spaces = [space for tenant in plan.tenants[since:end] for space in tenant.namespaces]
    _apply(api, [space.namespace for space in spaces])
    _apply(api, [item for space in spaces for item in space.isolation if item["kind"] in READ])
    quotas = [item for tenant in plan.tenants[:end] for item in tenant.objects() if item["kind"] == QUOTA]
    until(lambda: _counted(api) >= len(quotas), f"{len(quotas)} quotas are counted", PATIENCE)


def _apply(api: LabApi, items: Iterable[Object]) -> None:
    for item in items:
        api.apply(collection(item["apiVersion"], item["kind"], item["metadata"].get("namespace")), item)


def _counted(api: LabApi) -> int:
    """Number of quotas whose use the controllers have counted: before that nothing is admitted."""
    items = api.get("/api/v1/resourcequotas")["items"]
    return sum("used" in item.get("status", {}) for item in items)
