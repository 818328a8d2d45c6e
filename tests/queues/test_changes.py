"""Effects of a change of the files on running and waiting work: only the work that the change names stops."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
import town
from scene import QUEUE, Object, Scene, collection, holds, kueue_values

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.cluster.api import Response, path_of
from tenancy.kube.requests import Impersonation
from tenancy.lab import control_plane
from tenancy.planning.kubernetes.queue_defaults import queue_defaults
from tenancy.planning.kubernetes.samples import ANY_TOPOLOGY
from tenancy.planning.queueing.queue_names import API
from tests.waiting import until

SHARE = "guaranteed: 16, sharing: lend-and-borrow, lending-limit: 16, borrowing-limit: 16"
BLOCK = """\
  block:
    instance-type: p4d.24xlarge
    nodes: 2
    zones: [eu-central-1a]
    tenants: [burst]
    purchase: {capacity-block: cr-0a1b2c3d4e5f60718, ends: %s}
"""


def ends_in(days: int) -> str:
    return (today() + dt.timedelta(days=days)).isoformat()


FAR = ends_in(30)
FILES = {
    "environment.yaml": town.ENVIRONMENT + BLOCK % FAR,
    "tenants/fraud.yaml": town.tenant("fraud", "risk", SHARE),
    "tenants/pricing.yaml": town.tenant("pricing", "markets", SHARE),
    "tenants/burst.yaml": town.tenant(
        "burst", "research", "guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 16"
    ),
    "tenants/leaver.yaml": town.tenant("leaver", "research", "guaranteed: 8"),
}


@pytest.fixture
def town_hall(scene: Scene) -> Iterator[Scene]:
    """Afterwards the files and the queues are what they were, and no workload is left."""
    before = {path: path.read_text("utf-8") for path in scene.folder.rglob("*.yaml")}
    yield scene
    for path, text in before.items():
        path.write_text(text, "utf-8")
    for item in scene.items("CronJob", None, "batch/v1"):
        scene.api.request("DELETE", path_of({"apiVersion": "batch/v1", "kind": "CronJob", **item}))
    scene.apply()
    scene.clear()
    scene.settle()


def test_a_guarantee_lowered_under_use_evicts_no_workload(town_hall: Scene) -> None:
    """fraud runs on all of its 16. Lowered to 8, it goes on: 8 of the 16 are borrowed from now on, which others may
    call back, and nothing new starts on top of what it may borrow."""
    home = town_hall.submit("fraud", "one", 8)
    town_hall.submit("fraud", "two", 8)
    town_hall.until_runs(home, "one", "two")
    town_hall.until_held("fraud", 16)
    assert town_hall.borrowed("fraud") == 0
    town_hall.edit("tenants/fraud.yaml", SHARE, "guaranteed: 8, sharing: lend-and-borrow, lending-limit: 8")
    town_hall.apply("Cohort", "ClusterQueue")
    town_hall.until_borrowed("fraud", 8)
    assert town_hall.gpus_in_use("fraud") == 16
    town_hall.submit("fraud", "three", 8)
    town_hall.until_waits(home, "three")
    assert town_hall.runs(home, "one", "two")
    assert town_hall.evictions() == {}


@pytest.mark.exhaustive(reason="a department that stops borrowing; `make test` lowers a guarantee under use")
def test_a_department_that_may_not_borrow_any_more_keeps_what_runs(town_hall: Scene) -> None:
    """pricing runs on 16 of its own and 8 borrowed. markets may only lend from now on: what runs goes on, and the next
    job waits while GPUs are idle."""
    home = town_hall.submit("pricing", "one", 8, 3)
    town_hall.until_runs(home, "one")
    town_hall.until_borrowed("pricing", 8)
    town_hall.edit("environment.yaml", "markets: {sharing: lend-and-borrow, weight: 1}", "markets: {sharing: lend}")
    town_hall.apply("Cohort", "ClusterQueue")
    town_hall.submit("pricing", "two", 8)
    town_hall.until_said(home, "two", "waits for")
    assert town_hall.runs(home, "one")
    assert town_hall.evictions() == {}


@pytest.mark.exhaustive(reason="a tenant that changes its department; `make test` lowers a guarantee under use")
def test_a_tenant_that_moves_to_another_department_keeps_what_runs(town_hall: Scene) -> None:
    """fraud moves from risk to markets while it runs on 16 of its own and 8 borrowed: it holds the same as before, and
    the next job is judged in its new department."""
    home = town_hall.submit("fraud", "one", 8, 3)
    town_hall.until_runs(home, "one")
    town_hall.edit("tenants/fraud.yaml", "department: risk", "department: markets")
    town_hall.apply("Cohort", "ClusterQueue", "Namespace")
    assert _parent_cohort(town_hall, "fraud--batch") == "department--markets"
    town_hall.submit("fraud", "two", 8)
    town_hall.until_runs(home, "two")
    town_hall.until_held("fraud", 32)
    town_hall.until_borrowed("fraud", 16)
    assert town_hall.evictions() == {}


@pytest.mark.exhaustive(reason="a second tier that comes and goes; the plan of it is in tests/unit/planning/queueing")
def test_a_tenants_queue_moves_below_its_cohort_and_back_while_its_work_runs(town_hall: Scene) -> None:
    """fraud runs on 16 of its own and 8 borrowed when it gets a second tier, and when it gives that up again: nothing
    stops, what it borrows is counted, and its next job starts."""
    home = town_hall.submit("fraud", "one", 8, 3)
    town_hall.until_runs(home, "one")
    town_hall.until_borrowed("fraud", 8)
    file = town_hall.folder / "tenants/fraud.yaml"
    alone = file.read_text("utf-8")
    parts = "namespaces: [{name: main}, {name: serve, tier: production, gpus: {a100: 4}}]\n"
    file.write_text(alone + parts, "utf-8")
    town_hall.apply()
    town_hall.settle()
    assert (
        _parent_cohort(town_hall, "fraud--batch") == _parent_cohort(town_hall, "fraud--production") == "tenant--fraud"
    )
    assert town_hall.runs(home, "one")
    town_hall.submit("fraud", "two", 8)
    town_hall.until_runs(home, "two")
    town_hall.until_held("fraud", 32)

    more = list(town_hall.plan.tenant("fraud").queues)
    file.write_text(alone, "utf-8")
    town_hall.apply()
    planned_paths = [path_of(item) for item in town_hall.plan.tenant("fraud").queues]
    removed_paths = [path for path in map(path_of, more) if path not in planned_paths]
    for path in ("/api/v1/namespaces/fraud--serve", *reversed(removed_paths)):
        assert town_hall.api.request("DELETE", path).ok, path
    until(lambda: not any(town_hall.api.request("GET", path).ok for path in removed_paths), "queue and cohort are gone")
    assert len(removed_paths) == 2
    town_hall.until_borrowed("fraud", 16)
    assert town_hall.runs(home, "one", "two")
    assert town_hall.evictions() == {}


def _parent_cohort(scene: Scene, queue: str) -> str:
    return next(q["spec"]["cohortName"] for q in scene.items("ClusterQueue") if q["metadata"]["name"] == queue)


def test_hold_keeps_what_runs_and_starts_nothing(town_hall: Scene) -> None:
    home = town_hall.submit("fraud", "one", 8)
    town_hall.until_runs(home, "one")
    town_hall.edit("tenants/fraud.yaml", "tier: batch", "tier: batch\nstop-policy: hold")
    town_hall.apply("ClusterQueue")
    until(lambda: town_hall.holdings()[0] and _state(town_hall) != "open", "the queue is closed")
    town_hall.submit("fraud", "two", 8)
    town_hall.until_said(home, "two", "Its queue is on hold")
    assert town_hall.runs(home, "one")
    town_hall.edit("tenants/fraud.yaml", "stop-policy: hold", "stop-policy: none")
    town_hall.apply("ClusterQueue")
    town_hall.until_runs(home, "two")


def test_what_came_on_hold_says_what_it_waits_for_once_the_queue_is_open(town_hall: Scene) -> None:
    """Kueue looks at one of six that are the same, and leaves with the others what it said on hold."""
    home = town_hall.submit("leaver", "runs", 8)
    town_hall.until_runs(home, "runs")
    town_hall.edit("tenants/leaver.yaml", "tier: batch", "tier: batch\nstop-policy: hold")
    town_hall.apply("ClusterQueue")
    late = [town_hall.submit("leaver", f"late-{number}", 8) and f"late-{number}" for number in range(6)]
    for name in late:
        town_hall.until_said(home, name, "Its queue is on hold")
    town_hall.edit("tenants/leaver.yaml", "stop-policy: hold", "stop-policy: none")
    town_hall.apply("ClusterQueue")
    for name in late:
        town_hall.until_said(home, name, "It waits for 8 more nvidia.com/gpu")


def test_drain_evicts_what_runs_and_gives_it_back_its_place(town_hall: Scene) -> None:
    home = town_hall.submit("fraud", "one", 8)
    town_hall.until_runs(home, "one")
    town_hall.edit("tenants/fraud.yaml", "tier: batch", "tier: batch\nstop-policy: hold-and-drain")
    town_hall.apply("ClusterQueue")
    town_hall.until_held("fraud", 0)
    until(lambda: town_hall.evictions(reason="ClusterQueueStopped") == {"one": 1}, "it was evicted once")
    advice = "ask the platform team, or see `stop-policy` and `offboarding` in the tenant's file."
    sentence = town_hall.until_said(home, "one", f"until the platform team opens it again; {advice}")
    assert "Its queue was emptied by the platform team." in sentence
    until(lambda: not town_hall.pods(home), "its pods are gone")
    town_hall.edit("tenants/fraud.yaml", "stop-policy: hold-and-drain", "stop-policy: none")
    town_hall.apply("ClusterQueue")
    town_hall.until_runs(home, "one")


def held_back(scene: Scene, gate: str) -> str:
    """The first namespace of fraud on hold or drained by its own line in the file; its name."""
    file = scene.folder / "tenants/fraud.yaml"
    file.write_text(file.read_text("utf-8") + f"namespaces: [{{name: main, stop-policy: {gate}}}]\n", "utf-8")
    scene.apply("LocalQueue")
    (queue,) = scene.items("LocalQueue", scene.space("fraud"))
    until(lambda: not holds(scene.items("LocalQueue", scene.space("fraud"))[0], "Active"), "Kueue has stopped it")
    return queue["metadata"]["namespace"]


def opened(scene: Scene) -> None:
    file = scene.folder / "tenants/fraud.yaml"
    file.write_text(file.read_text("utf-8").partition("namespaces:")[0], "utf-8")
    scene.apply("LocalQueue")


CRONJOBS = Impersonation("system:serviceaccount:kube-system:cronjob-controller", ("system:masters",))


def without_a_queue(scene: Scene, kind: str) -> tuple[Object, Impersonation]:
    """Work that names no queue, and whose request makes it: a developer's, or for a CronJob its controller's."""
    job = scene.job("fraud", f"of-{kind.lower()}", 1)
    metadata = {"name": job["metadata"]["name"], "namespace": job["metadata"]["namespace"]}
    pods = job["spec"]["template"]
    if kind == "Job":
        return {**job, "metadata": metadata}, scene.developer("fraud")
    if kind == "CronJob":
        owner = {"apiVersion": "batch/v1", "kind": kind, "name": "nightly", "uid": nightly(scene), "controller": True}
        return {**job, "metadata": {**metadata, "ownerReferences": [owner]}}, CRONJOBS
    if kind == "Pod":
        annotations = pods["metadata"]["annotations"]
        item = {"apiVersion": "v1", "kind": kind, "metadata": {**metadata, "annotations": annotations}}
        return {**item, "spec": pods["spec"]}, scene.developer("fraud")
    labels = {"app": metadata["name"]}
    template = {"metadata": {**pods["metadata"], "labels": labels}, "spec": {**pods["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    spec |= {"serviceName": metadata["name"]} if kind == "StatefulSet" else {}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}, scene.developer("fraud")


def nightly(scene: Scene) -> str:
    """A CronJob whose Jobs the test makes, because its own schedule would take a minute; its uid."""
    job = scene.job("fraud", "nightly", 1)
    metadata = {"name": "nightly", "namespace": job["metadata"]["namespace"]}
    spec = {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": {"spec": job["spec"]}}
    item = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
    answer = scene.ask("fraud", item)
    assert answer.ok or answer.status == 409, answer.message
    return scene.api.request("GET", path_of(item)).body["metadata"]["uid"]


WORK = ("Job", "Pod", "Deployment", "StatefulSet", "CronJob")


def ask(scene: Scene, kind: str, query: str = "", **labels: str) -> Response:
    item, who = without_a_queue(scene, kind)
    item["metadata"]["labels"] = labels
    return scene.api.request(
        "POST", collection(item["apiVersion"], item["kind"], scene.space("fraud")) + query, item, who
    )


@pytest.mark.parametrize(
    "gate",
    [
        "hold",
        pytest.param(
            "hold-and-drain", marks=pytest.mark.exhaustive(reason="a drained namespace; `make test` has one on hold")
        ),
    ],
)
def test_work_without_a_queues_name_waits_while_its_namespace_is_on_hold_and_starts_afterwards(
    town_hall: Scene, gate: str
) -> None:
    home = held_back(town_hall, gate)
    for kind in WORK:
        answer = ask(town_hall, kind)
        assert answer.ok, f"{kind}: {answer.message}"
        assert answer.body["metadata"]["labels"][QUEUE] == "default", kind
    until(lambda: len(town_hall.items("Workload", home)) == len(WORK), "Kueue knows all of it")
    assert not town_hall.pods(home)
    assert not any(holds(item, "QuotaReserved") for item in town_hall.items("Workload", home))
    opened(town_hall)
    until(lambda: len(town_hall.pods(home)) == len(WORK), "all of it runs")
    town_hall.until_held("fraud", len(WORK))


@pytest.mark.exhaustive(
    reason="a Kubernetes that names no queue; its guards are attacked in tests/unit/check/admission"
)
def test_where_the_api_server_names_no_queue_work_is_refused_with_the_label_to_write(town_hall: Scene) -> None:
    """As on Kubernetes 1.35. A CronJob's controller is refused too, and tries again: its Job would never start."""
    home = held_back(town_hall, "hold")
    for item in queue_defaults(town_hall.loaded.environment):
        assert town_hall.api.request("DELETE", path_of(item)).ok
    until(lambda: not ask(town_hall, "Job", "?dryRun=All").ok, "the API server writes no queue's name")
    for kind in WORK:
        refused = ask(town_hall, kind)
        assert refused.status == 403, kind
        assert "kueue-01" in refused.message, kind
        assert "label the work kueue.x-k8s.io/queue-name: default" in refused.message
        assert ask(town_hall, kind, **{QUEUE: "default"}).ok, kind
    opened(town_hall)
    until(lambda: len(town_hall.pods(home)) == len(WORK), "all of it runs")
    town_hall.clear("fraud")
    for kind in WORK:
        assert ask(town_hall, kind, "?dryRun=All").ok, f"{kind}: Kueue names the queue while it is open"


def _state(scene: Scene) -> str:
    return next(h.state for h in scene.holdings() if h.tenant == "fraud")


def test_nothing_new_starts_on_a_capacity_block_that_ends(town_hall: Scene) -> None:
    """burst has a block of 16 GPUs to itself and prefers it. A day before the block ends, what runs there goes on,
    and its next job starts in train."""
    home = town_hall.submit("burst", "one", 8)
    town_hall.until_runs(home, "one")
    town_hall.until_held("burst", 8, "block")
    town_hall.edit("environment.yaml", FAR, ends_in(1))
    town_hall.apply("Cohort", "ClusterQueue")
    town_hall.submit("burst", "two", 8)
    town_hall.until_runs(home, "two")
    town_hall.until_held("burst", 8, "train")
    town_hall.until_held("burst", 8, "block")


@pytest.mark.exhaustive(
    reason="a pool that gets EFA while work runs; its flavor is in tests/unit/planning/queueing/test_queues.py"
)
def test_a_pool_that_gets_efa_afterwards_has_a_new_flavor(town_hall: Scene) -> None:
    """A flavor's topology is immutable. The pool keeps its name in `tenancy queues`, its flavor is
    block.eks-network; a workload that asks for a topology gets it."""
    town_hall.edit("environment.yaml", "    tenants: [burst]\n", "    tenants: [burst]\n    efa: true\n")
    town_hall.read()
    _with_its_configuration(town_hall)
    try:
        town_hall.apply()
        flavors = {flavor["metadata"]["name"] for flavor in town_hall.items("ResourceFlavor")}
        assert "block.eks-network" in flavors
        home = town_hall.submit("burst", "near", 8, 2, pod_notes={ANY_TOPOLOGY: "true"})
        town_hall.until_runs(home, "near")
        town_hall.until_held("burst", 16, "block")
        town_hall.submit("burst", "far", 8)
        town_hall.until_runs(home, "far")
        town_hall.until_held("burst", 8, "train")
        town_hall.clear("burst")
        town_hall.api.request("DELETE", f"{collection(API, 'ResourceFlavor')}/block")
        is_flavor_removed = lambda: "block" not in {f["metadata"]["name"] for f in town_hall.items("ResourceFlavor")}  # noqa: E731
        until(is_flavor_removed, "the old flavor goes")
    finally:
        town_hall.edit("environment.yaml", "    efa: true\n", "")
        town_hall.read()
        _with_its_configuration(town_hall)


def _with_its_configuration(scene: Scene) -> None:
    from tenancy.planning.common.pools import fake_nodes

    nodes = fake_nodes(scene.loaded.environment)
    control_plane.up(root=scene.root, nodes=nodes, queues=kueue_values(scene.loaded))


# A tenant that leaves


def leave(scene: Scene, tenant: str) -> None:
    """Delete a tenant's objects as the engine does when its file is gone: namespaces, then queues."""
    (plan,) = [candidate for candidate in scene.plan.tenants if candidate.name == tenant]
    for space in plan.namespaces:
        scene.api.request("DELETE", f"/api/v1/namespaces/{space.name}")


def _is_there(scene: Scene, space: str) -> bool:
    return scene.api.request("GET", f"/api/v1/namespaces/{space}").ok


@pytest.mark.exhaustive(reason="a tenant that leaves with jobs; its removal is in tests/engine/test_offboarding.py")
def test_a_tenant_that_leaves_takes_its_work_along(town_hall: Scene) -> None:
    """One job of it runs and one waits. Its namespace goes, and its GPUs are others'."""
    home = town_hall.submit("leaver", "runs", 8)
    town_hall.until_runs(home, "runs")
    town_hall.submit("leaver", "waits", 8)
    town_hall.until_waits(home, "waits")
    leave(town_hall, "leaver")
    until(lambda: not _is_there(town_hall, home), "its namespace is gone")
    town_hall.until_held("leaver", 0)


@pytest.mark.exhaustive(
    reason="a tenant leaves while Kueue is down; what holds a removal is named in tests/engine/test_offboarding.py"
)
def test_without_kueue_a_tenant_cannot_leave(town_hall: Scene) -> None:
    """leaver's job waits, fraud's runs. Kueue's finalizers hold what waits, and the namespace's own status names them.
    Where pods run it never comes to these: the API server ends pods before all else, they wait for their Job's
    finalizer, taking it off is an update that only Kueue lets through, and the status says nothing. With Kueue back
    both go."""
    waiting = town_hall.submit("leaver", "waits", 8, 2)
    town_hall.until_waits(waiting, "waits")
    running = town_hall.submit("fraud", "runs", 8)
    until(lambda: len(town_hall.pods(running)) == 1, "its pod runs")
    town_hall.kill_kueue()
    try:
        leave(town_hall, "leaver")
        leave(town_hall, "fraud")
        until(lambda: "kueue.x-k8s.io/resource-in-use" in _held_by(town_hall, waiting), "its status says who holds it")
        until(lambda: not town_hall.pods(running), "its pod is being ended")
        (pod,) = town_hall.items("Pod", running, "v1")
        path = f"{collection('v1', 'Pod', running)}/{pod['metadata']['name']}?dryRun=All"
        assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        freed = {"metadata": {"finalizers": None}}
        refused = town_hall.api.request("PATCH", path, freed, content_type="application/merge-patch+json")
        assert (refused.status, "failed calling webhook" in refused.message) == (500, True)
        silent = "All content-preserving finalizers finished"
        until(lambda: _held_by(town_hall, running) == silent, "its status names no remaining finalizer")
        assert _is_there(town_hall, waiting)
        assert _is_there(town_hall, running)
    finally:
        town_hall.start_kueue()
    for tenant, home in (("leaver", waiting), ("fraud", running)):
        # A controller that was refused tries again after a pause that has doubled each time.
        until(lambda home=home: not _is_there(town_hall, home), f"{home} is gone")
        town_hall.until_held(tenant, 0)


def _held_by(scene: Scene, space: str) -> str:
    namespace = scene.api.request("GET", f"/api/v1/namespaces/{space}").body
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    return " ".join(c["message"] for c in conditions if c["type"] == "NamespaceFinalizersRemaining")


def test_the_labels_of_a_tenants_work_say_whose_it_is(town_hall: Scene) -> None:
    """By these the bill is split: Kueue writes the queue's name on every pod."""
    home = town_hall.submit("fraud", "one", 8)
    until(lambda: len(town_hall.pods(home)) == 1, "it runs")
    labels = town_hall.pods(home)[0]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/cluster-queue-name"] == "fraud--batch"
    assert labels["kueue.x-k8s.io/local-queue-name"] == vocabulary.DEFAULT_QUEUE
