"""Kueue under our queues against Kueue under queues written by hand: how fast a backlog is admitted, and how fast what
was lent comes back."""

from __future__ import annotations

import contextlib
import datetime as dt
import queue
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.plan.model import Object
from tenancy.plan.queues import API, queue_name
from tenancy.simulation import objects
from tenancy.simulation.cluster import Cluster, own_lab
from tenancy.simulation.trace import Job
from tenancy.spec import Loaded, load

TENANTS = 200
BACKLOG = 20_000
CLUSTERS = (80, 625)
"""Nodes of 8 GPUs: 640 and 5,000."""
TIER, POOL = "batch", "train"
QUIET = 3.0
"""Seconds without a change: longer than any of Kueue's writes take."""
LENDER = "team-0000"
"""Lends all it has and submits last."""

_ENVIRONMENT = """\
environment: {name}
organisation:
  name: bank
  departments:
    risk: {{sharing: lend-and-borrow}}
    markets: {{sharing: lend-and-borrow}}
    research: {{sharing: lend-and-borrow}}
platform: {{group: gpu-platform-team}}
cluster: {{name: bench, context: gpu-tenancy-lab}}
images: {{registries: [registry.bank.example/], sample: "registry.bank.example/cuda:13.0"}}
tiers:
  batch:
    priority: 1000
flavors:
  a100: {{gpu: a100-40gb}}
pools:
  train: {{instance: p4d.24xlarge, nodes: {nodes}}}
"""
_TENANT = """\
tenant: {name}
team: {name}
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: {department}
cost-center: CC-1
tier: batch
gpus:
  a100: {{guaranteed: {guaranteed}, sharing: lend-and-borrow, lend-up-to: {guaranteed}, borrow-up-to: {most}}}
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
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m}
"""
KINDS = BY_HAND, FAIR, GENERATED = "by hand", "by hand, fair", "generated"


@dataclass(frozen=True)
class Figures:
    admitted: int
    seconds: float
    reclaim: float


def measure() -> str:
    """The rows of the section, as Markdown."""
    rows = [
        f"{TENANTS} tenants, {BACKLOG:,} workloads of one GPU that wait when the queues open. By hand: one cohort, a "
        "queue for each tenant with the same limits, Kueue's default configuration; fair: with Kueue's fair sharing "
        "between queues and inside them, as the generated ones have it. What is lent comes back when one tenant asks "
        f"for all that it is promised while everybody else holds the rest and nothing has changed for {QUIET:.0f} s. "
        "Ratios are what the generated queues take to what the row takes.",
        "",
        "| GPUs | queues | admissions a second | ratio | until what was lent is back, s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for nodes in CLUSTERS:
        found = {kind: _run(nodes, kind) for kind in KINDS}
        ours = found[GENERATED]
        for kind, figures in found.items():
            rate, our_rate = (f.admitted / f.seconds for f in (figures, ours))
            rows.append(
                f"| {nodes * 8:,} | {kind} | {rate:.0f} | {rate / our_rate:.2f} | {figures.reclaim:.2f} "
                f"| {ours.reclaim / figures.reclaim:.2f} |"
            )
    return "\n".join(rows)


def _run(nodes: int, kind: str) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(_generate(Path(folder) / "bench", nodes))
        if kind == GENERATED:
            values, made = objects.kueue_values(loaded, speed=1), list(objects.cluster_objects(loaded))
        else:
            values, made = _plain_values(_FAIR if kind == FAIR else ""), list(_by_hand(loaded, kind))
        with own_lab(values, lambda _: None) as cluster:
            return _measured(cluster, loaded, made, nodes * 8)


def _measured(cluster: Cluster, loaded: Loaded, made: list[Object], gpus: int) -> Figures:
    # Without its flavor no queue takes work, and with it all take it at once.
    opens = [item for item in made if item["kind"] == "ResourceFlavor" and item["metadata"]["name"] == POOL]
    cluster.make(item for item in made if item not in opens)
    driver = _Driver(cluster)
    base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=BACKLOG)
    others = [tenant.tenant for tenant in loaded.tenants if tenant.tenant != LENDER]
    for number in range(BACKLOG):
        cluster.put(_workload(loaded, others[number % len(others)], 1, number, base))
    seen = 0
    deadline = time.monotonic() + 600
    while seen < BACKLOG:
        seen += sum(b'"msg":"Workload create event"' in line for line in cluster.log.lines())
        if time.monotonic() > deadline:
            raise SystemExit(f"Kueue knows {seen} workloads of {BACKLOG} after 600 s")
        time.sleep(0.1)
    began = time.monotonic()
    cluster.make(opens)
    driver.follow_until(lambda: len(driver.admitted) >= gpus)
    seconds = time.monotonic() - began
    driver.follow_until_quiet()
    item = _workload(loaded, LENDER, next(iter(loaded.tenants)).gpus["a100"].guaranteed, BACKLOG, base)
    began = time.monotonic()
    cluster.put(item)
    driver.follow_until(lambda: item["metadata"]["name"] in driver.admitted)
    return Figures(gpus, seconds, time.monotonic() - began)


class _Driver:
    """Whose work it is: what is evicted ends as soon as it is told to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.admitted: set[str] = set()
        cluster.watch()

    def follow_until_quiet(self) -> None:
        """Until Kueue has said of everything that waits that it does: what comes next starts with a free scheduler."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._follow(self._cluster.changes.get(timeout=QUIET))

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
    return objects.workload(loaded, job, number, base + dt.timedelta(seconds=number))


def _generate(folder: Path, nodes: int) -> Path:
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(_ENVIRONMENT.format(name=folder.name, nodes=nodes), "utf-8")
    each, more = divmod(nodes * 8, TENANTS)
    for number in range(TENANTS):
        name, guaranteed = f"team-{number:04d}", each + (number < more)
        text = _TENANT.format(
            name=name, department=_DEPARTMENTS[number % 3], guaranteed=guaranteed, most=nodes * 8 - guaranteed
        )
        (folder / "tenants" / f"{name}.yaml").write_text(text, "utf-8")
    return folder


def _plain_values(more: str) -> dict[str, Any]:
    return {"managerConfig": {"controllerManagerConfigYaml": _PLAIN_CONFIGURATION + more}}


def _by_hand(loaded: Loaded, kind: str) -> Iterator[Object]:
    """The same limits as somebody would write them who knows Kueue's traps: no tree, no transformation."""

    def made(kind: str, name: str, **body: Any) -> Object:
        return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **body}

    yield made("ResourceFlavor", POOL, spec={})
    yield made("WorkloadPriorityClass", f"tenancy-tier-{TIER}", value=1000)
    for tenant in loaded.tenants:
        share, queue_of = tenant.gpus["a100"], queue_name(tenant.tenant, TIER)
        resources = [
            {"name": "cpu", "nominalQuota": "100k"},
            {"name": "memory", "nominalQuota": "100Ti"},
            {
                "name": "nvidia.com/gpu",
                "nominalQuota": str(share.guaranteed),
                "lendingLimit": str(share.lend_up_to),
                "borrowingLimit": str(share.borrow_up_to),
            },
        ]
        group = {
            "coveredResources": [resource["name"] for resource in resources],
            "flavors": [{"name": POOL, "resources": resources}],
        }
        spec = {
            "cohortName": "all",
            "namespaceSelector": {"matchLabels": {words.TENANT: tenant.tenant}},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            **({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if kind == FAIR else {}),
        }
        yield made("ClusterQueue", queue_of, spec=spec)
        name = words.derived_name(tenant.tenant, "main")
        labels = {words.TENANT: tenant.tenant}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        local = made("LocalQueue", words.DEFAULT_QUEUE, spec={"clusterQueue": queue_of})
        yield {**local, "metadata": {"name": words.DEFAULT_QUEUE, "namespace": name}}
