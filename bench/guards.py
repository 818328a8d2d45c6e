"""Admission behind the guards against the same API server without them: creation of a pod and of a job, dry run."""

from __future__ import annotations

import copy
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.generate import generate
from bench.processors import used
from tenancy.catalog import vocabulary as words
from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import Api, ApiError
from tenancy.lab.layout import Lab
from tenancy.live.api import collection
from tenancy.plan import Plan, make_plan
from tenancy.plan.guards import HELD, QUESTION, QUEUE
from tenancy.plan.model import Object
from tenancy.plan.samples import sample
from tenancy.spec import Loaded, load

TENANTS = (10, 200)
REFUSED = 403
PATIENCE = 300.0
"""Seconds until what was made is in force; of 1,000 namespaces the controllers take a while to count the quotas."""
SERVER, PLUGIN = "kube-apiserver", "ValidatingAdmissionPolicy"
CREATE = "application/json"
QUOTA = "ResourceQuota"
READ = {QUOTA, "LimitRange"}
"""Of a namespace's walls, what an admission reads."""
_TWO_PARTS, _FOUR_PARTS = "  - notebooks\n", "  - notebooks\n  - explore\n  - tools\n"
_GPU = {"a100": 1}
PAUSE = 0.02
"""Seconds before each request. A server that is asked without one always answers while it collects what the requests
before left behind, on processors that it shares here with everybody else."""
_LARGEST = (64, 256)
"""Containers, and environment variables of each."""


@dataclass(frozen=True)
class Work:
    """What is asked for, and how often."""

    name: str
    body: Object
    pairs: int
    pause: float = PAUSE

    @property
    def path(self) -> str:
        return (
            collection(self.body["apiVersion"], self.body["kind"], self.body["metadata"]["namespace"]) + "?dryRun=All"
        )


@dataclass(frozen=True)
class Server:
    api: Api
    pid: int

    def cpu(self) -> float:
        return used(self.pid)


@dataclass(frozen=True)
class Servers:
    """Two API servers on one store, which differ in one admission plugin."""

    bare: Server
    guarded: Server


@dataclass(frozen=True)
class Asked:
    """Seconds from question to answer, and of the server's processors for each."""

    times: list[float]
    cpu: float


def measure() -> str:
    """The rows of the section, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(fleet(Path(folder) / "stacks" / "bench", max(TENANTS)))
        plan = make_plan(loaded.environment, loaded.tenants)
        rows = [
            f"{len(loaded.tenants[0].namespaces)} namespaces a tenant; {len(plan.platform.guards) // 2} guards with "
            f"{_rules(plan)} rules. Two API servers on one store, one with the plugin {PLUGIN} switched off; a dry-run "
            f"creation on a kept connection to each in turn, {PAUSE * 1000:.0f} ms after the one before unless the row "
            "says otherwise, in ms without → with guards: their ratio. Both ask Kueue's webhooks, as every cluster "
            "with queues does; the last rows are without them. Where others use the machine too, the tenth that was "
            "disturbed least and the server's own CPU for each request say most. "
            "Load before and after: {before} and {after}.",
            "",
            "| tenants | creation of | pairs | p10 | median | p99 | CPU of the server |",
            "|---|---|---|---|---|---|---|",
        ]
        before = os.getloadavg()[0]
        with servers(Path(folder), loaded, plan) as found:
            made = 0
            for count in TENANTS:
                make(found.guarded.api, plan, made, count)
                made = count
                rows += [_row(count, work, *timed(found, work)) for work in works(loaded)]
            hasty = [replace(work, name=f"{work.name}, no pause", pause=0) for work in works(loaded)[:2]]
            rows += [_row(made, work, *timed(found, work)) for work in hasty]
            leave_out_the_queue(found, works(loaded)[0])
            rows += [_row(made, work, *timed(found, work)) for work in works(loaded, queue=False)]
        return "\n".join(rows).format(before=f"{before:.1f}", after=f"{os.getloadavg()[0]:.1f}")


def _rules(plan: Plan) -> int:
    return sum(len(guard["spec"].get("validations", ())) for guard in plan.platform.guards)


def _row(count: int, work: Work, bare: Asked, guarded: Asked) -> str:
    cells = [f"{count}", work.name, f"{work.pairs:,}"]
    found = [
        tuple(statistics.quantiles(asked.times, n=100, method="inclusive")[part] for asked in (bare, guarded))
        for part in (9, 49, 98)
    ]
    for low, high in (*found, (bare.cpu, guarded.cpu)):
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
    """As a tenant sends them; without the queue's webhooks, as those would hand them on."""
    tenant = loaded.tenants[0]
    part = tenant.namespaces[0]
    pod, job = (sample(kind, loaded.environment, tenant, part, _GPU) for kind in ("pod", "job"))
    for item in (pod, job):
        item["metadata"]["labels"][QUEUE] = words.DEFAULT_QUEUE
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
        Work(f"a pod with a GPU{alone}", pod, 2500),
        Work(f"a job with a GPU{alone}", job, 2500),
        Work(f"a pod of {containers} containers with {variables} variables each{alone}", largest, 30),
    )


def timed(found: Servers, work: Work) -> tuple[Asked, Asked]:
    """Without and with the guards, in pairs; who is asked first alternates."""
    both = (found.bare, found.guarded)
    for server in both:
        for _ in range(20):
            _ask(server.api, work)
    times: list[list[float]] = [[], []]
    before = [server.cpu() for server in both]
    gc.collect()
    gc.disable()
    try:
        for number in range(work.pairs):
            for which in (0, 1) if number % 2 else (1, 0):
                time.sleep(work.pause)
                times[which].append(_ask(both[which].api, work))
    finally:
        gc.enable()
    each = [(server.cpu() - began) / work.pairs for server, began in zip(both, before, strict=True)]
    return Asked(times[0], each[0]), Asked(times[1], each[1])


def _ask(api: Api, work: Work) -> float:
    began = time.perf_counter()
    _create(api, work)
    return time.perf_counter() - began


@contextmanager
def servers(root: Path, loaded: Loaded, plan: Plan) -> Generator[Servers]:
    """A lab without nodes, and two more API servers on its store: the lab's own has controllers to serve."""
    assert plan.platform.queue_chart
    (root / "Pulumi.yaml").write_text("name: bench\nruntime: python\n", "utf-8")
    os.environ.pop("GPU_TENANCY_LAB", None)
    group, values = loaded.environment.platform.group, plan.platform.queue_chart.values
    lab = control_plane.up(root=root, platform_group=group, nodes=[], queues=values)
    try:
        kept = [*ports.NAMES, *ports.QUEUES]
        taken = ports.choose(lab, kept, [*kept, *ports.METRICS])
        guarded, bare = (taken[name] for name in ports.METRICS)
        first = _start(lab, taken[SERVER], guarded, "guarded", {})
        off = f"--disable-admission-plugins={PLUGIN}"
        second = _start(lab, taken[SERVER], bare, "bare", {f",{PLUGIN},": ","}, off)
        for port in (guarded, bare):
            _until(lambda port=port: _answers(lab, port), f"the API server on port {port} answers")
        with Api(lab, guarded, identity="platform") as one, Api(lab, bare, identity="platform") as other:
            yield Servers(bare=Server(other, second), guarded=Server(one, first))
    finally:
        control_plane.down(root=root)


def _start(lab: Lab, own: int, port: int, name: str, changed: Mapping[str, str], *more: str) -> int:
    """An API server like the lab's own; its process."""
    argv = list(processes.running(lab, (SERVER,))[SERVER][0].argv)
    for old, new in {
        f"--secure-port={own}": f"--secure-port={port}",
        "audit.log": f"audit-{name}.log",
        **changed,
    }.items():
        argv = [argument.replace(old, new) for argument in argv]
    processes.start(lab, f"{SERVER}-{name}", [*argv, *more])
    listening = f"--secure-port={port}"
    return next(found.pid for found in processes.running(lab, (SERVER,))[SERVER] if listening in found.argv)


def _answers(lab: Lab, port: int) -> bool:
    try:
        with Api(lab, port) as api:
            return api.get("/readyz") == "ok"
    except (OSError, ApiError):
        return False


def leave_out_the_queue(found: Servers, pod: Work) -> None:
    """Takes Kueue's webhooks away, and waits until both servers have noticed."""
    for kind in ("Mutating", "Validating"):
        path = collection("admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration")
        for item in found.guarded.api.get(path)["items"]:
            found.guarded.api.request("DELETE", f"{path}/{item['metadata']['name']}")
    for server in (found.bare, found.guarded):
        _until(lambda api=server.api: not _waits(api, pod), "no webhook is asked")


def _waits(api: Api, pod: Work) -> bool:
    """Whether somebody makes the pod wait for the queue; a guard refuses one that does not."""
    try:
        return "schedulingGates" in _create(api, pod)["spec"]
    except ApiError as error:
        if error.status != REFUSED:
            raise
        return False


def _create(api: Api, work: Work) -> Object:
    return api.request("POST", work.path, work.body, CREATE)


def make(api: Api, plan: Plan, since: int, until: int) -> None:
    """What admission reads of the tenants with these numbers, and the platform before the first of them."""
    if not since:
        platform = plan.platform
        _apply(api, [platform.namespace, *platform.priorities, *platform.guards, *platform.witness])
        _until(lambda: _in_force(api), "the guards are in force")
    spaces = [space for tenant in plan.tenants[since:until] for space in tenant.namespaces]
    _apply(api, [space.namespace for space in spaces])
    _apply(api, [item for space in spaces for item in space.isolation if item["kind"] in READ])
    made = [item for tenant in plan.tenants[:until] for item in tenant.objects() if item["kind"] == QUOTA]
    _until(lambda: _counted(api) >= len(made), f"{len(made)} quotas are counted")


def _apply(api: Api, items: Iterable[Object]) -> None:
    for item in items:
        api.apply(collection(item["apiVersion"], item["kind"], item["metadata"].get("namespace")), item)


def _in_force(api: Api) -> bool:
    """Whether the witness answers: it is the last policy that the server takes up."""
    question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    path = f"/api/v1/namespaces/{words.PLATFORM_NAMESPACE}/configmaps?dryRun=All"
    try:
        api.request("POST", path, question, CREATE)
    except ApiError as error:
        return error.status == REFUSED
    return False


def _counted(api: Api) -> int:
    """Quotas whose use the controllers have counted: before that nothing is admitted."""
    items = api.get("/api/v1/resourcequotas")["items"]
    return sum("used" in item.get("status", {}) for item in items)


def _until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {PATIENCE:.0f} s still not: {what}")
        time.sleep(0.2)
