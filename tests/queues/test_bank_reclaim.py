"""The bank: 15 teams, 640 GPUs, all of them in use, and fraud's retraining that has to start.

Who holds what when it arrives. In train-a100 (576 GPUs): performance 200, all borrowed; nlp 152 of its 192; credit-risk
64; aml 48; fraud 32 of its 64; pricing, cyber and document-ai 16 each; churn, marketing, quant-research and voice 8
each. What performance borrows are the 64 unallocated GPUs, market-risk's 64, nlp's 40 and fraud's 32. In
train-efa: performance's own 64.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from scene import LEAST_PODS, Scene, collection, condition, holds

from tenancy.explain.usage import QueueUse
from tenancy.kube.requests import Impersonation
from tenancy.planning.kubernetes.samples import ANY_TOPOLOGY, sample
from tenancy.planning.queueing.quota_shares import supply
from tests.waiting import until

STACK = "bank"
SETTINGS = {
    "waitForPodsReady": {
        "timeout": "30s",
        "recoveryTimeout": "30s",
        "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
    }
}
"""Work whose pods do not start goes back after 20 minutes, and tries again after one: here after seconds."""
HOURS = 12
"""Work that the fine-tuning has done since its last checkpoint, in the story."""
OTHERS = {
    "nlp": 152,
    "credit-risk": 64,
    "aml": 48,
    "fraud": 32,
    "pricing": 16,
    "cyber": 16,
    "document-ai": 16,
    "churn": 8,
    "marketing": 8,
    "quant-research": 8,
    "voice": 8,
}
FINE_TUNING = 200
DAILY = {"document-ai": "train"}
"""Tenants whose daily work is not in the first part."""


@pytest.fixture(scope="module")
def full(scene: Scene) -> Scene:
    """Everything in use but what performance borrows."""
    for tenant, gpus in OTHERS.items():
        scene.submit(tenant, "daily", 8, gpus // 8, part=DAILY.get(tenant))
    scene.submit("performance", "own", 8, 8, pod_notes={ANY_TOPOLOGY: "true"})
    for tenant, gpus in OTHERS.items():
        scene.until_held(tenant, gpus, "train-a100")
    scene.until_held("performance", 64, "train-efa")
    return scene


@pytest.fixture
def story(full: Scene) -> Iterator[Scene]:
    """Afterwards neither the fine-tuning nor the retraining is left."""
    yield full
    for tenant, keep in (("performance", "own"), ("fraud", "daily")):
        space = full.space(tenant)
        for job in full.items("Job", space, "batch/v1"):
            name = job["metadata"]["name"]
            if name != keep:
                where = f"{collection('batch/v1', 'Job', space)}/{name}"
                full.api.request("DELETE", f"{where}?propagationPolicy=Background")
        until(lambda space=space, keep=keep: set(full.workloads(space)) == {keep}, f"{space} has only {keep}")
        until(lambda space=space: len(full.pods(space)) == len(full.items("Pod", space, "v1")), "no pod ends")
    full.until_held("fraud", 32, "train-a100")
    full.until_held("performance", 0, "train-a100")


def price(scene: Scene, gpus: int) -> tuple[int, Decimal]:
    """Loss with so many GPUs: GPU-hours and dollars."""
    return gpus * HOURS, gpus * HOURS * scene.loaded.environment.prices["a100-40gb"]


def run_in_the_cluster(scene: Scene) -> int:
    return sum(h.held for h in scene.holdings() if h.flavor == "a100")


def test_fraud_gets_its_guarantee_by_one_reclaim_and_the_200_gpu_job_goes_whole(story: Scene) -> None:
    """Fraud is guaranteed 64, uses 32 and lends 32. It asks for these 32: the one job that borrowed them, of 200 GPUs,
    is evicted whole, because a job's pods come and go together. 12 hours after its checkpoint that costs 2,400 hours
    of a GPU, $6,000; 168 GPUs stand idle, and the fine-tuning waits for the 32 it lacks."""
    train = story.submit("performance", "fine-tuning", 8, FINE_TUNING // 8, cpu="72")
    story.until_runs(train, "fine-tuning")
    until(lambda: len(story.pods(train)) == 8 + 25, "all of its pods run")
    until(lambda: run_in_the_cluster(story) == 640, "the cluster is full")
    assert story.borrowed("performance") == FINE_TUNING

    home = story.submit("fraud", "retraining", 8, 4)
    story.until_runs(home, "retraining")
    until(lambda: len(story.pods(home)) == 4 + 4, "its pods run")
    story.until_held("fraud", 64, "train-a100")
    assert story.evictions() == {"fine-tuning": 1}, "one reclaim, and no other tenant's work"
    story.until_held("performance", 0, "train-a100")
    assert price(story, FINE_TUNING) == (2400, Decimal("6000.00"))
    until(lambda: run_in_the_cluster(story) == 640 - FINE_TUNING + 32, "168 stand idle")
    sentence = story.until_said(train, "fine-tuning", "32 more nvidia.com/gpu in pool train-a100")
    assert sentence.startswith("It ran on borrowed GPUs, which their owner reclaimed.")


@pytest.mark.exhaustive(reason="the same work in 25 jobs; `make test` has one job of 200 GPUs that is evicted whole")
def test_of_25_jobs_of_8_gpus_only_four_go(story: Scene) -> None:
    """The same work in 25 jobs: fraud's 32 GPUs are those of four, and 21 go on. 12 hours after their checkpoints that
    costs 384 hours of a GPU, $960: a 6.25th."""
    names = [f"part-{number}" for number in range(25)]
    for name in names:
        train = story.submit("performance", name, 8, cpu="72")
    story.until_runs(train, *names)
    until(lambda: story.borrowed("performance") == FINE_TUNING, "they are all borrowed")
    home = story.submit("fraud", "retraining", 8, 4)
    story.until_runs(home, "retraining")
    evictions = story.evictions()
    assert sum(evictions.values()) == 4
    assert set(evictions) < set(names), "performance's, which alone borrows"
    story.until_held("performance", 168, "train-a100")
    assert price(story, sum(evictions.values()) * 8) == (384, Decimal("960.00"))
    until(lambda: run_in_the_cluster(story) == 640, "nothing stands idle")
    assert story.runs(train, *set(names) - set(evictions))
    # Of work that is alike Kueue looks at one piece, and writes why it waits into that one alone.
    sentence_part = "waits for 8 more nvidia.com/gpu in pool train-a100"
    until(
        lambda: any(sentence_part in story.why(train, name).sentence for name in evictions),
        "one of the four says why it waits",
    )


@pytest.mark.exhaustive(reason="partial admission after an eviction; `make test` has the eviction")
def test_a_job_that_says_how_few_pods_do_comes_back_smaller_at_once(story: Scene) -> None:
    """Partial admission: it is evicted whole all the same, and with `job-min-parallelism: 8` it starts again with the
    21 pods for which there is room, instead of waiting for 25."""
    train = story.submit("performance", "fine-tuning", 8, 25, notes={LEAST_PODS: "8"}, cpu="72")
    story.until_runs(train, "fine-tuning")
    home = story.submit("fraud", "retraining", 8, 4)
    story.until_runs(home, "retraining")
    story.until_held("performance", 168, "train-a100")
    assert story.evictions() == {"fine-tuning": 1}
    until(lambda: len(story.pods(train)) == 8 + 21, "21 of its 25 pods run")
    until(lambda: run_in_the_cluster(story) == 640, "nothing stands idle")


@pytest.mark.exhaustive(reason="Kueue dies in a reclaim; `make test` has the reclaim")
def test_kueue_dies_in_the_middle_of_a_reclaim(story: Scene) -> None:
    """While it is down nothing of a tenant starts, the system's pods do, and what runs goes on.

    Back, it looks at the queues one by one, and may start the retraining before it has counted what performance
    borrows: both are admitted, 608 GPUs of 576, and the retraining's pods find no node. What heals it is that work
    whose pods do not start goes back into the queue; then the fine-tuning is evicted. Nothing is lost.
    """
    train = story.submit("performance", "fine-tuning", 8, 25, cpu="72")
    story.until_runs(train, "fine-tuning")
    until(lambda: len(story.pods(train)) == 8 + 25, "all of its pods run")
    home = story.submit("fraud", "retraining", 8, 4)
    story.kill_kueue()

    late = story.job("aml", "late", 8)
    refused = story.ask("aml", late)
    assert refused.status == 500
    assert "failed calling webhook" in refused.message
    alone = {**late["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    alone["metadata"] = {"name": "alone", "namespace": story.space("aml")}
    assert story.ask("aml", alone).status == 500
    system = {**alone, "metadata": {"name": "system", "namespace": "kube-system"}}
    path = collection("v1", "Pod", "kube-system")
    system_pod = story.api.request("POST", path, system, Impersonation("root", ("system:masters",)))
    assert system_pod.ok, system_pod.message
    assert len(story.pods(story.space("nlp"))) == 152 // 8, "what runs goes on"

    story.start_kueue()
    story.until_runs(home, "retraining")
    until(lambda: len(story.pods(home)) == 8, "the retraining's pods run")
    story.until_held("performance", 0, "train-a100")
    until(lambda: len(story.pods(train)) == 8, "and none of the fine-tuning's")
    always_on = supply(story.loaded.environment, story.loaded.day, always_on=True)["a100"]
    for pool, always_on_gpus in always_on.items():
        assert sum(h.held for h in story.holdings() if (h.pool, h.flavor) == (pool, "a100")) <= always_on_gpus, pool
    assert not story.runs(train, "fine-tuning")
    for tenant in OTHERS:
        assert holds(story.workloads(story.space(tenant, DAILY.get(tenant)))["daily"], "Admitted"), tenant
    assert story.ask("aml", late, "?dryRun=All").ok
    story.api.request("DELETE", f"{path}/system?gracePeriodSeconds=0")


# How near the pods of a job are


def test_four_nodes_of_one_switch_or_none(scene: Scene) -> None:
    """train-efa has 8 nodes, 4 to a switch of the lowest layer. A job of five nodes that wants one switch never starts
    there; one of four does, on four nodes of one switch; a second one has the other. Kueue tries one pool after the
    other and keeps what it said of the last: that train-efa has room for four of five, or that train-a100 has no
    topology."""
    scene.clear()
    near = {"kueue.x-k8s.io/podset-required-topology": "topology.k8s.aws/network-node-layer-3"}
    train = scene.submit("performance", "five", 8, 5, pod_notes=near)
    reasons = ("4 of its 5 pods fit", "It never starts in pool train-a100: the nodes there have no known topology")
    until(lambda: any(reason in scene.why(train, "five").sentence for reason in reasons), "it says what is in its way")
    for name in ("four", "four-more"):
        scene.submit("performance", name, 8, 4, pod_notes=near)
    scene.until_runs(train, "four", "four-more")
    until(lambda: len(scene.pods(train)) == 8, "eight pods run")
    assert not scene.runs(train, "five")
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in scene.items("Node", None, "v1")}
    for name in ("four", "four-more"):
        gang_pods = [p for p in scene.pods(train) if p["metadata"]["labels"]["job-name"] == name]
        switches = {nodes[p["spec"]["nodeName"]]["topology.k8s.aws/network-node-layer-3"] for p in gang_pods}
        assert len(switches) == 1, name


def test_work_that_says_nothing_of_topology_does_not_get_the_pool_that_has_one(scene: Scene) -> None:
    """Kueue gives a flavor with a topology to work that asks for one, and to no other: performance's ordinary jobs
    borrow in train-a100 while its own 64 GPUs in train-efa are free."""
    scene.clear()
    train = scene.submit("performance", "ordinary", 8)
    scene.until_runs(train, "ordinary")
    scene.until_held("performance", 8, "train-a100")
    scene.until_borrowed("performance", 8)
    scene.submit("performance", "near", 8, pod_notes={ANY_TOPOLOGY: "true"})
    scene.until_runs(train, "near")
    scene.until_held("performance", 8, "train-efa")
    assert scene.until_said(train, "near", "It runs") == "It runs in pool train-efa."


# The product's own samples


@pytest.mark.parametrize(
    ("kind", "tenant", "pool"),
    [("job", "performance", "train-efa"), ("pod", "performance", "train-efa"), ("job", "treasury", "train-a100")],
)
def test_a_sample_starts_where_its_tenant_has_gpus(scene: Scene, kind: str, tenant: str, pool: str) -> None:
    """`tenancy sample` for who is guaranteed a pool with a topology, and for who is guaranteed nothing and borrows."""
    scene.clear()
    who = scene.tenant(tenant)
    item = sample(kind, scene.loaded.environment, who, who.namespaces[0], {"a100": 1})
    answer = scene.ask(tenant, item)
    assert answer.ok, answer.message
    home = scene.space(tenant)
    # It ends at once.
    ran = lambda: [*scene.pods(home), *scene.pods(home, "Succeeded")]  # noqa: E731
    until(ran, "its pod runs")
    assert {pod["spec"]["nodeName"].rpartition("-")[0] for pod in ran()} == {pool}


# A crowd


@pytest.mark.exhaustive(reason="200 jobs at once; `make test` has one that takes as many GPUs")
def test_200_jobs_at_once_harm_no_other_tenant(scene: Scene) -> None:
    """credit-risk makes 200 jobs of 4 GPUs: 32 run, on its 64 and 64 borrowed, and 168 wait. What aml and fraud ask
    for within their guarantees runs as soon as if it were alone."""
    scene.clear()
    alone = _seconds(scene, "aml", "alone")
    names = [f"sweep-{number}" for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        (home, *_) = pool.map(lambda name: scene.submit("credit-risk", name, 4), names)
    until(lambda: _row(scene).waiting == 168, "168 wait")
    row = _row(scene)
    assert (row.guaranteed, row.held, row.borrowed, row.running, row.waiting) == (64, 128, 64, 32, 168)
    waiting = scene.not_running(home, names)
    assert len(waiting) == 168
    for name in (waiting[0], waiting[-1]):
        scene.until_said(home, name, "It waits for 4 more nvidia.com/gpu in pool train-a100")
    neighbour_seconds = [_seconds(scene, "aml", "beside"), _seconds(scene, "fraud", "beside")]
    assert max(neighbour_seconds) < alone + 5, "seconds until it runs, beside 200 jobs and before"


def _row(scene: Scene) -> QueueUse:
    return next(h for h in scene.holdings() if (h.tenant, h.pool) == ("credit-risk", "train-a100"))


def _seconds(scene: Scene, tenant: str, name: str) -> float:
    return scene.until_runs(scene.submit(tenant, name, 8, 4), name)


def test_who_is_guaranteed_nothing_runs_on_what_is_idle(scene: Scene) -> None:
    """treasury is guaranteed nothing and may borrow 8: it runs while the GPUs are idle, on borrowed ones alone."""
    home = scene.submit("treasury", "forecast", 8)
    scene.until_runs(home, "forecast")
    scene.until_held("treasury", 8)
    scene.until_borrowed("treasury", 8)
    scene.submit("treasury", "more", 1)
    assert "It waits for 1 more nvidia.com/gpu" in scene.until_said(home, "more", "waits for")
    assert condition(scene.workload(home, "forecast"), "Evicted") == {}
