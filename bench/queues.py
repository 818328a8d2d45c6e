"""Kueue with our queues against Kueue with queues written by hand: how fast a backlog is admitted, and how fast lent
quota is reclaimed."""

from __future__ import annotations

import contextlib
import datetime as dt
import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processors import used
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.lab import processes
from tenancy.planning import make_plan
from tenancy.planning.common.labels import tier_labels
from tenancy.planning.queueing.queue_names import API, queue_name
from tenancy.simulation import objects
from tenancy.simulation.cluster import CYCLE_STARTS, HEADS_OBTAINED, WORKLOAD_CREATED, SimulationCluster, own_lab
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded, load

TENANTS = 200
BACKLOG = 20_000


ROUNDS = 3
CLUSTERS = {80: 9, 625: 3}
"""Number of nodes of 8 GPUs, 640 and 5,000 GPUs in all -> number of tenants that lend all their quota and submit last,
one after another: a reclaim of less than a tenth of a second is measured more often."""
BAR = 1.1
"""Maximum ratio of our queues' times to those of queues by hand with the same guarantees: admissions and reclaim."""
TIER, POOL = "batch", "train"
PROCESSES = ("kueue", "kube-apiserver", "etcd")
QUIET = 3.0
"""Seconds without a change, in which Kueue's scheduler waits for work. One pass over all pending work can take longer
than this before the first result is written."""
PATIENCE = 30.0
"""Seconds after which a lender submits all the same: queues that preempt each other may go on for long."""

_ENVIRONMENT = """\
environment: {name}
organisation:
  name: bank
  departments:
    risk: {{sharing: lend-and-borrow}}
    markets: {{sharing: lend-and-borrow}}
    research: {{sharing: lend-and-borrow}}
platform: {{group: gpu-platform-team}}
cluster: {{name: bench, context: gpu-tenancy-lab, object-overcommit: 100}}
images: {{registries: [registry.bank.example/], sample: "registry.bank.example/cuda:13.0"}}
tiers:
  batch:
    priority: 1000
flavors:
  a100: {{gpu: a100-40gb}}
pools:
  train: {{instance-type: p4d.24xlarge, nodes: {nodes}}}
"""
_TENANT = """\
tenant: {name}
team: {name}
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: {department}
cost-center: CC-1
tier: batch
gpus:
  a100: {{guaranteed: {guaranteed}, sharing: lend-and-borrow, lending-limit: {guaranteed}, borrowing-limit: {most}}}
"""
_DEPARTMENTS = ("risk", "markets", "research")

_PLAIN_CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: 300, burst: 500}
controller:
  groupKindConcurrency:
    Workload.kueue.x-k8s.io: 10
    LocalQueue.kueue.x-k8s.io: 5
    ClusterQueue.kueue.x-k8s.io: 5
integrations: {frameworks: [batch/job]}
waitForPodsReady: {timeout: 8760h}
"""
_FAIR = """\
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m}
"""
KINDS = BY_HAND, AS_PROMISED, GENERATED = "by hand", "by hand, as promised", "generated"


@dataclass(frozen=True)
class Figures:
    """Results of one run: admissions a second, CPU seconds for 1,000 of them, and seconds until lent quota is
    reclaimed, the median of all lenders."""

    rate: float
    cpu: float
    reclaim: float


def _median(runs: list[Figures]) -> Figures:
    return Figures(*(statistics.median(getattr(run, name) for run in runs) for name in ("rate", "cpu", "reclaim")))


def measure() -> str:
    """The rows of the section, as Markdown."""
    rows = [
        f"{TENANTS} tenants, {BACKLOG:,} workloads of one GPU that wait when the queues open. By hand: one cohort, a "
        "queue for each tenant with the limits of the generated one, Kueue's default configuration. By hand, as "
        "promised: also with the other guarantees of the generated ones, a cohort for each department, Kueue's fair "
        "sharing between departments, between queues and inside them, and the labels for cost on every object. Kueue "
        "writes its events and its webhooks are called, as in a cluster.",
        "",
        f"The bar: {BAR} times the time of queues by hand with the same guarantees, for admissions and for reclaim at "
        "both sizes. Queues with limits alone show what the guarantees cost in Kueue.",
        "",
        "Reclaim: seconds until a tenant that lends all its quota gets it back, when it submits work for its whole "
        "guarantee while the other tenants use all GPUs and Kueue has been at rest for "
        f"{QUIET:.0f} s, or has not come to rest for {PATIENCE:.0f} s; medians of "
        f"{' and '.join(map(str, CLUSTERS.values()))} tenants, one after another. Medians of {ROUNDS} rounds, one of "
        "each kind after another; in brackets each round's rate, since the speed of a shared machine varies. Ratios "
        "are the time that the generated queues take to the time that the row takes; processors: CPU seconds that "
        f"{', '.join(PROCESSES[:-1])} and {PROCESSES[-1]} use for 1,000 admissions.",
        "",
        "| GPUs | queues | admissions a second (each round) | ratio | processors, s | ratio | reclaim, s | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for nodes, lenders in CLUSTERS.items():
        runs: dict[str, list[Figures]] = {kind: [] for kind in KINDS}
        for number in range(ROUNDS):
            # The first kind alternates: an effect of the machine on the first run affects each kind.
            for kind in KINDS[number % len(KINDS) :] + KINDS[: number % len(KINDS)]:
                runs[kind].append(_run(nodes, kind, lenders))
                print(f"queues: {nodes * 8:,} GPUs, {kind}: {runs[kind][-1]}", file=sys.stderr, flush=True)
        rows += _rows(nodes, runs)
    return "\n".join(rows)


def _rows(nodes: int, runs: Mapping[str, list[Figures]]) -> Iterator[str]:
    own_figures = _median(runs[GENERATED])
    for kind, rounds in runs.items():
        figures = _median(rounds)
        spread = ", ".join(f"{round_.rate:.0f}" for round_ in rounds)
        yield (
            f"| {nodes * 8:,} | {kind} | {figures.rate:.0f} ({spread}) | {figures.rate / own_figures.rate:.2f} "
            f"| {figures.cpu:.1f} | {own_figures.cpu / figures.cpu:.2f} "
            f"| {figures.reclaim:.2f} | {own_figures.reclaim / figures.reclaim:.2f} |"
        )


def _run(nodes: int, kind: str, lenders: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(_generate(Path(folder) / "bench", nodes))
        if kind == GENERATED:
            values = objects.kueue_values(loaded, speed=1)
            cluster_items = list(objects.cluster_objects(make_plan(loaded, loaded.day)))
        else:
            values, cluster_items = _plain_values(_FAIR if kind == AS_PROMISED else ""), list(_by_hand(loaded, kind))
        with own_lab(values, lambda _: None, without_webhooks=False) as cluster:
            return _measured(cluster, loaded, cluster_items, nodes * 8, lenders)


def _measured(
    cluster: SimulationCluster, loaded: Loaded, cluster_items: list[Object], gpus: int, lenders: int
) -> Figures:
    # Without its flavor no queue admits work, and with it all start at once.
    opens = [item for item in cluster_items if item["kind"] == "ResourceFlavor" and item["metadata"]["name"] == POOL]
    cluster.make(item for item in cluster_items if item not in opens)
    driver = _Driver(cluster)
    base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=BACKLOG)
    promised = {tenant.tenant: tenant.gpus["a100"].guaranteed for tenant in loaded.tenants}
    names = list(promised)
    lending, others = names[:lenders], names[lenders:]
    for number in range(BACKLOG):
        cluster.put(_workload(loaded, others[number % len(others)], 1, number, base))
    created_workloads = 0
    deadline = time.monotonic() + 600
    while created_workloads < BACKLOG:
        created_workloads += sum(WORKLOAD_CREATED in line for line in cluster.log.lines())
        if time.monotonic() > deadline:
            raise SystemExit(f"Kueue knows {created_workloads} workloads of {BACKLOG} after 600 s")
        time.sleep(0.1)
    began, before = time.monotonic(), _used(cluster)
    cluster.make(opens)
    driver.follow_until(lambda: len(driver.admitted) >= gpus)
    seconds, cpu = time.monotonic() - began, _used(cluster) - before
    back, rests = [], 0
    for number, lender in enumerate(lending, BACKLOG):
        rests += driver.follow_until_rest()
        item = _workload(loaded, lender, promised[lender], number, base)
        began = time.monotonic()
        cluster.put(item)
        driver.follow_until(lambda name=item["metadata"]["name"]: name in driver.admitted)
        back.append(time.monotonic() - began)
    texts = ", ".join(f"{seconds:.2f}" for seconds in back)
    print(f"queues: back after {texts} s, {rests} times from rest", file=sys.stderr, flush=True)
    return Figures(gpus / seconds, cpu / gpus * 1000, statistics.median(back))


def _used(cluster: SimulationCluster) -> float:
    """CPU seconds of all processes that take part."""
    processes_by_name = processes.running(cluster.lab, PROCESSES)
    return sum(used(process.pid) for group in processes_by_name.values() for process in group)


class _Driver:
    """Plays the controllers of the work: evicted work ends at once."""

    def __init__(self, cluster: SimulationCluster) -> None:
        self._cluster = cluster
        self.admitted: set[str] = set()
        self._busy = False
        cluster.watch()

    def follow_until_rest(self) -> bool:
        """Follow changes until Kueue has reported on all pending work, so that the next one meets an idle scheduler."""
        began = last = time.monotonic()
        while (self._busy or time.monotonic() - last < QUIET) and time.monotonic() - began < PATIENCE:
            with contextlib.suppress(queue.Empty):
                self._follow(self._cluster.changes.get(timeout=0.1))
                last = time.monotonic()
            for line in self._cluster.log.lines():
                if HEADS_OBTAINED in line:
                    self._busy = True
                elif CYCLE_STARTS in line:
                    self._busy, last = False, time.monotonic()
        return time.monotonic() - began < PATIENCE

    def follow_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._follow(self._cluster.changes.get(timeout=120))

    def _follow(self, item: Object) -> None:
        name = item["metadata"]["name"]
        conditions = {c["type"]: c for c in item.get("status", {}).get("conditions", [])}
        if conditions.get("Evicted", {}).get("status") == "True" and item["status"].get("admission"):
            self.admitted.discard(name)
            for kind in ("QuotaReserved", "Admitted"):
                conditions[kind] = {**conditions[kind], "status": "False", "reason": "Pending"}
            # Where it has changed since, a later state follows.
            self._cluster.change_status(item, {"admission": None, "conditions": list(conditions.values())})
        elif conditions.get("Admitted", {}).get("status") == "True":
            self.admitted.add(name)


def _workload(loaded: Loaded, tenant: str, gpus: int, number: int, base: dt.datetime) -> Object:
    job = Job(f"job-{number}", number, tenant, "main", "a100", gpus, 1, 3600, TIER)
    return objects.workload(
        loaded, job, vocabulary.derived_name(tenant, "main"), number, base + dt.timedelta(seconds=number)
    )


def _generate(folder: Path, nodes: int) -> Path:
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(_ENVIRONMENT.format(name=folder.name, nodes=nodes), "utf-8")
    per_tenant, more = divmod(nodes * 8, TENANTS)
    for number in range(TENANTS):
        name, guaranteed = f"team-{number:04d}", per_tenant + (number < more)
        text = _TENANT.format(
            name=name, department=_DEPARTMENTS[number % 3], guaranteed=guaranteed, most=nodes * 8 - guaranteed
        )
        (folder / "tenants" / f"{name}.yaml").write_text(text, "utf-8")
    return folder


def _plain_values(more: str) -> dict[str, Any]:
    return {"managerConfig": {"controllerManagerConfigYaml": _PLAIN_CONFIGURATION + more}}


def _by_hand(loaded: Loaded, kind: str) -> Iterator[Object]:
    """The same limits as an expert of Kueue would write them by hand, and the other guarantees for `AS_PROMISED`."""
    promised = kind == AS_PROMISED

    def manifest_of(kind: str, name: str, labels: Mapping[str, str] | None = None, **body: Any) -> Object:
        return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "labels": dict(labels or {})}, **body}

    yield manifest_of("ResourceFlavor", POOL, spec={})
    yield manifest_of("WorkloadPriorityClass", f"tenancy-tier-{TIER}", value=1000)
    if promised:
        yield manifest_of("Cohort", "all", spec={})
        yield from (manifest_of("Cohort", name, spec={"parentName": "all"}) for name in _DEPARTMENTS)
    limits = {
        queue.name: [
            resource
            for group in queue.groups
            for flavor in group.manifest()["flavors"]
            for resource in flavor["resources"]
        ]
        for queue in make_plan(loaded, loaded.day).cluster_queues
    }
    for tenant in loaded.tenants:
        queue_of = queue_name(tenant.tenant, TIER)
        resources = limits[queue_of]
        group = {
            "coveredResources": [resource["name"] for resource in resources],
            "flavors": [{"name": POOL, "resources": resources}],
        }
        spec = {
            "cohortName": tenant.department if promised else "all",
            "namespaceSelector": {"matchLabels": {vocabulary.TENANT: tenant.tenant}},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            **({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if promised else {}),
        }
        labels = tier_labels(loaded.environment, tenant, tenant.tier) if promised else None
        yield manifest_of("ClusterQueue", queue_of, labels, spec=spec)
        name = vocabulary.derived_name(tenant.tenant, "main")
        space = {"name": name, "labels": {vocabulary.TENANT: tenant.tenant}}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": space}
        local = manifest_of("LocalQueue", vocabulary.DEFAULT_QUEUE, labels, spec={"clusterQueue": queue_of})
        yield {**local, "metadata": {**local["metadata"], "namespace": name}}
