"""GPUs that run and are not counted: by which work `tenancy queues` and `tenancy why` name them, and when not."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.catalog import vocabulary
from tenancy.cli import main
from tenancy.cluster.api import ApiUnreachable, Response
from tenancy.explain.gpu_counts import bound_devices, counted_devices, differences, remarks
from tenancy.explain.waiting import explain
from tenancy.kube.objects import Object
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder, every

GPU = "nvidia.com/gpu"
SPACE = "fraud--train"


def ago(seconds: float) -> str:
    return (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)).isoformat(timespec="seconds")


def owned(*owners: Object) -> list[Object]:
    return [
        {"apiVersion": o["apiVersion"], "kind": o["kind"], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]


def thing(api: str, kind: str, name: str, *owners: Object, **more: Any) -> Object:
    metadata = {"name": name, "namespace": SPACE, "uid": f"{kind}/{name}", "creationTimestamp": ago(600)}
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, "ownerReferences": owned(*owners)}, **more}


def pod(
    name: str, *owners: Object, gpus: int = 8, since: float = 300, ends: float | None = None, **labels: str
) -> Object:
    limits = {GPU: str(gpus), "cpu": "4"}
    item = thing(
        "v1",
        "Pod",
        name,
        *owners,
        spec={"nodeName": "train-0", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        status={
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(since)}],
        },
    )
    item["metadata"]["labels"] = labels
    if ends is not None:
        item["metadata"]["deletionTimestamp"] = ago(-ends)
    return item


def workload(owner: Object, gpus: int, *, pods: int = 1, ended: int = 0, **conditions: str) -> Object:
    """Kueue's Workload of that many pods, which together have those GPUs."""
    states = {"QuotaReserved": "True", "Admitted": "True", **conditions}
    used = [{"name": "main", "count": pods, "resourceUsage": {GPU: str(gpus), "cpu": "32"}}]
    item = thing("kueue.x-k8s.io/v1beta2", "Workload", f"{owner['kind'].lower()}-{owner['metadata']['name']}", owner)
    item["spec"] = {"queueName": "default", "active": True, "podSets": [{"name": "main", "count": pods}]}
    item["status"] = {
        "conditions": [
            {"type": kind, "status": state, "lastTransitionTime": ago(300), "reason": "Any", "message": "any"}
            for kind, state in states.items()
        ],
        "admission": {"podSetAssignments": used},
    }
    if ended:
        item["status"]["reclaimablePods"] = [{"name": "main", "count": ended}]
    return item


class Cluster:
    """Answers lists with what there is of a kind, and one object by its name."""

    def __init__(self, *items: Object, counted: int = 0, refused: str = "") -> None:
        queue = thing("kueue.x-k8s.io/v1beta2", "LocalQueue", "default", spec={"clusterQueue": "fraud--batch"})
        totals = [{"name": "train", "resources": [{"name": GPU, "total": str(counted)}]}]
        queue["status"] = {"flavorsReservation": totals}
        node = thing("v1", "Node", "train-0")
        node["metadata"]["labels"] = {vocabulary.POOL: "train"}
        self.objects, self.refused = [*items, queue, node], refused

    def items(self, path: str) -> list[Object]:
        plural = path.partition("?")[0].rpartition("/")[2]
        if plural == self.refused:
            raise ApiUnreachable("forbidden", 403)
        return [item for item in self.objects if item["kind"].lower() + "s" == plural]

    def paged_items(self, path: str, *, selector: str = "") -> Iterator[Object]:
        assert selector
        yield from self.items(path)

    def request(self, _method: str, path: str) -> Response:
        where, _, name = path.rpartition("/")
        items = [item for item in self.items(where) if item["metadata"]["name"] == name]
        return Response(200, items[0]) if items else Response(404, {"message": "not items"})


JOBSET = thing("jobset.x-k8s.io/v1alpha2", "JobSet", "sweep", spec={"suspend": False})
CHILDREN = [thing("batch/v1", "Job", f"sweep-{n}", JOBSET) for n in range(8)]
PODS = [pod(f"sweep-{n}-x", child) for n, child in enumerate(CHILDREN)]


def counts_of(loaded: Loaded, *items: Object, **more: Any) -> list[tuple[str, str, int, int, int]]:
    api: Any = Cluster(*items, **more)
    counts = differences(api, loaded.environment, [SPACE])
    return [(count.kind, count.name, count.pods, count.pod_devices, count.kueue_devices) for count in counts]


def why(kind: str, name: str, *items: Object, **more: Any) -> tuple[str, str]:
    api: Any = Cluster(*items, **more)
    explanation = explain(api, SPACE, kind, name)
    return explanation.state, explanation.sentence


def test_work_whose_ended_pods_were_made_anew_is_named_by_its_kind_and_with_both_numbers(loaded: Loaded) -> None:
    """Seven children succeeded and run again; Kueue still takes them for ended."""
    items = [JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8, ended=7)]
    assert counts_of(loaded, *items) == [("JobSet", "sweep", 8, 64, 8)]
    state, sentence = why("jobset", "sweep", *items, counted=8)
    assert state == "uncounted"
    assert sentence.startswith(
        "8 pods of this JobSet run with 64 nvidia.com/gpu and Kueue counts 8: it gives the other 56 "
    )
    assert sentence.endswith(
        "Delete it, which ends its pods, and make it anew; tell the platform team if that happens again."
    )


def test_the_same_work_that_is_counted_whole_is_not_named(loaded: Loaded) -> None:
    items = [JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8)]
    assert counts_of(loaded, *items) == []
    assert why("jobset", "sweep", *items, counted=64) == ("runs", "It runs.")


def test_where_the_queues_count_all_a_number_in_the_status_that_kueue_no_longer_reads_is_no_difference() -> None:
    """Work that began before Kueue's feature gate was switched off keeps what was written then."""
    items = [JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8, ended=7)]
    assert why("jobset", "sweep", *items, counted=64)[0] == "runs"
    assert why("jobset", "sweep", *items, counted=63)[0] == "uncounted"


@pytest.mark.parametrize(
    ("conditions", "is_admitted"),
    [({"Finished": "True"}, True), ({"Evicted": "True"}, False)],
    ids=["its work has ended", "an eviction did not end them"],
)
def test_pods_that_are_left_behind_are_named_whatever_the_workload_says(
    loaded: Loaded, conditions: dict[str, str], is_admitted: bool
) -> None:
    job = thing("kubeflow.org/v2beta1", "MPIJob", "train", spec={})
    finished = workload(job, 56, pods=7, **conditions)
    if not is_admitted:
        finished["status"]["admission"] = None
    items = [job, *(pod(f"worker-{n}", job) for n in range(7)), finished]
    assert counts_of(loaded, *items) == [("MPIJob", "train", 7, 56, 0)]
    assert why("mpijob", "train", *items)[0] == "uncounted"


def test_pods_without_any_workload_are_named_by_what_owns_them(loaded: Loaded) -> None:
    items = [JOBSET, *CHILDREN, *PODS]
    assert counts_of(loaded, *items) == [("JobSet", "sweep", 8, 64, 0)]
    assert why("jobset", "sweep", *items)[0] == "uncounted"


def test_who_may_not_read_a_kind_still_learns_the_number_by_the_nearest_owner(loaded: Loaded) -> None:
    counts = counts_of(loaded, JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8, ended=7), refused="jobs")
    assert ("Job", "sweep-0", 1, 8, 0) in counts
    assert every(counted == 0 for kind, _, _, _, counted in counts if kind == "Job")


@pytest.mark.parametrize(
    ("facts", "is_named"),
    [
        ({}, True),
        ({"since": 30}, False),
        ({"ends": 25}, False),
        ({"ends": -25}, True),
    ],
    ids=["for five minutes", "for half a minute", "within its grace period", "after its grace period"],
)
def test_a_difference_is_one_after_a_minute(loaded: Loaded, facts: dict[str, float], is_named: bool) -> None:
    job = thing("batch/v1", "Job", "late", spec={"suspend": False})
    items = [job, pod("late-0", job, **facts), workload(job, 0)]
    assert bool(counts_of(loaded, *items)) is is_named
    assert (why("job", "late", *items)[0] == "uncounted") is is_named


def test_ended_pods_of_work_that_goes_on_are_told_as_counted_and_not_as_a_hole(loaded: Loaded) -> None:
    job = thing("batch/v1", "Job", "tail", spec={"suspend": False})
    items = [job, pod("tail-7", job), workload(job, 64, pods=8)]
    assert counts_of(loaded, *items) == [("Job", "tail", 1, 8, 64)]
    assert why("job", "tail", *items)[0] == "runs"
    young = workload(job, 64, pods=8)
    young["status"]["conditions"][0]["lastTransitionTime"] = ago(20)
    assert counts_of(loaded, job, young) == [], "its pods may be on their way"


def test_pods_of_a_group_are_counted_by_the_group_that_they_name(loaded: Loaded) -> None:
    label = {"kueue.x-k8s.io/pod-group-name": "pod-group-0"}
    first = pod("group-0", **label)
    group = workload(first, 16, pods=2)
    group["metadata"]["name"] = "pod-group-0"
    assert counts_of(loaded, first, pod("group-1", **label), group) == []
    assert counts_of(loaded, first, pod("group-1", **label), pod("group-2", **label), group) == [
        ("Pod", "group-0", 3, 24, 16)
    ]


EVICTED = {"Evicted": "True"}


def stateful_set(*owners: Object, evicted: float = 300, **conditions: str) -> list[Object]:
    """A StatefulSet of 64 GPUs and the Workload of its group, to which these pods belong."""
    owner = thing("apps/v1", "StatefulSet", "store", spec={"replicas": 8})
    group = workload(owner, 64, pods=8, **conditions)
    group["metadata"]["annotations"] = {"kueue.x-k8s.io/is-group-workload": "true"}
    group["metadata"]["ownerReferences"] += owned(*owners)
    for condition in group["status"]["conditions"]:
        if condition["type"] == "Evicted":
            condition |= {"reason": "Preempted", "lastTransitionTime": ago(evicted)}
    return [owner, *owners, group]


def test_what_kueue_evicted_without_pods_and_still_counts_is_named_with_what_frees_it(loaded: Loaded) -> None:
    release = f"`kubectl delete workloads -n {SPACE} statefulset-store`"
    api: Any = Cluster(*stateful_set(**EVICTED))
    (remark,) = remarks(api, loaded.environment, [SPACE])
    assert "Kueue evicted this StatefulSet, which has no pods, and still counts 64 nvidia.com/gpu for it" in remark
    assert release in remark
    state, sentence = why("statefulset", "store", *stateful_set(**EVICTED))
    assert state == "evicted"
    assert "It has no pods, and Kueue still counts 64 nvidia.com/gpu for it: other work waits." in sentence
    assert release in sentence


@pytest.mark.parametrize(
    ("owners", "facts"),
    [
        pytest.param((), {}, id="it was not evicted"),
        pytest.param((), {**EVICTED, "evicted": 30}, id="Kueue has a minute to return the quota"),
        pytest.param((), {**EVICTED, "QuotaReserved": "False"}, id="Kueue has returned it"),
        pytest.param((pod("store-0"),), EVICTED, id="a pod of it is there"),
    ],
)
def test_other_work_is_not_named_so(loaded: Loaded, owners: tuple[Object, ...], facts: dict[str, Any]) -> None:
    items = stateful_set(*owners, **facts)
    api: Any = Cluster(*items)
    assert not any("Kueue evicted this" in remark for remark in remarks(api, loaded.environment, [SPACE]))
    assert "and Kueue still counts" not in why("statefulset", "store", *items)[1]


MPIJOB = thing("kubeflow.org/v2beta1", "MPIJob", "ranks", spec={"runPolicy": {"suspend": True}})


def evicted_ranks(*, pods: int = 5, evicted: float = 300, ends: float | None = None, **conditions: str) -> list[Object]:
    """An MPIJob of 40 GPUs that was evicted so many seconds ago, the pods that it still has, and its Workload."""
    item = workload(MPIJOB, 40, pods=5, **{"Evicted": "True", **conditions})
    item["spec"]["podSets"][0]["template"] = {"spec": {}}
    if "QuotaReserved" in conditions:
        del item["status"]["admission"]
    for condition in item["status"]["conditions"]:
        if condition["type"] == "Evicted":
            condition |= {"reason": "Preempted", "lastTransitionTime": ago(evicted)}
    return [MPIJOB, *(pod(f"ranks-worker-{n}", MPIJOB, ends=ends) for n in range(pods)), item]


RESTART = "restarts the operator with `kubectl rollout restart deployment -n mpi-operator`"
REQUEUED = {"QuotaReserved": "False", "Admitted": "False"}


@pytest.mark.parametrize(
    ("facts", "counted", "state"),
    [
        pytest.param({}, 40, "evicted", id="its operator has not ended its pods"),
        pytest.param({"pods": 0}, 40, "evicted", id="its operator has not written that they ended"),
        pytest.param(REQUEUED, 0, "uncounted", id="its operator has not written that they run"),
        pytest.param({"Finished": "True"}, 0, "uncounted", id="it has ended"),
    ],
)
def test_work_that_its_operator_has_not_ended_is_named_with_the_command_that_ends_it(
    loaded: Loaded, facts: dict[str, Any], counted: int, state: str
) -> None:
    items = evicted_ranks(**facts)
    api: Any = Cluster(*items)
    (remark,) = remarks(api, loaded.environment, [SPACE])
    assert f"they have {8 * facts.get('pods', 5)} {GPU}, and Kueue counts {counted}." in remark
    assert RESTART in remark
    said_state, sentence = why("mpijob", "ranks", *items)
    assert (said_state, RESTART in sentence) == (state, True), sentence


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"Evicted": "False"}, id="it was not evicted"),
        pytest.param({"evicted": 30}, id="the operator has a minute"),
        pytest.param({**REQUEUED, "pods": 0}, id="its pods have ended"),
        pytest.param({"ends": 20}, id="its pods are told to end"),
    ],
)
def test_no_restart_is_advised_of_an_operator_that_ends_its_work(loaded: Loaded, facts: dict[str, Any]) -> None:
    api: Any = Cluster(*evicted_ranks(**facts))
    assert not any("rollout restart" in remark for remark in remarks(api, loaded.environment, [SPACE]))
    assert "rollout restart" not in why("mpijob", "ranks", *evicted_ranks(**facts))[1]


def test_a_group_that_waits_evicted_beside_one_that_runs_is_no_fault_of_the_operator(loaded: Loaded) -> None:
    """Kueue counts each group of a LeaderWorkerSet by a Workload of its own."""
    groups = thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "ranks", spec={"replicas": 2})
    runs, waits = workload(groups, 8), workload(groups, 8, Evicted="True", **REQUEUED)
    runs["metadata"]["name"], waits["metadata"]["name"] = "ranks-0", "ranks-1"
    waits["metadata"]["ownerReferences"][0]["uid"] += "/1"
    del waits["status"]["admission"]
    items = [groups, pod("ranks-0-0", groups), runs, waits]
    api: Any = Cluster(*items)
    assert remarks(api, loaded.environment, [SPACE]) == []
    pod_of_evicted = pod("ranks-1-0", groups, **{"kueue.x-k8s.io/pod-group-name": "ranks-1"})
    (remark,) = remarks(Cluster(*items, pod_of_evicted), loaded.environment, [SPACE])  # type: ignore[arg-type]
    assert "`kubectl rollout restart deployment -n lws-system`" in remark


def test_a_remark_names_a_command_that_explains_the_work(loaded: Loaded) -> None:
    api: Any = Cluster(JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8, ended=7))
    (remark,) = remarks(api, loaded.environment, [SPACE])
    assert remark.startswith("JobSet sweep in fraud--train: 8 pods of this JobSet run with 64 nvidia.com/gpu")
    assert "`tenancy why jobset/sweep -n fraud--train`" in remark
    jobs = [thing("batch/v1", "Job", f"j{n}", spec={}) for n in range(8)]
    api = Cluster(*jobs, *(pod(f"p{n}", job) for n, job in enumerate(jobs)))
    assert remarks(api, loaded.environment, [SPACE])[-1] == "3 more pieces of work differ in that way"


def test_devices_are_of_the_queue_of_their_namespace_and_the_pool_of_their_node(loaded: Loaded) -> None:
    api: Any = Cluster(*PODS, pod("cpu", gpus=0))
    assert bound_devices(api, loaded.environment) == {("fraud--batch", "train", GPU): 64}


@pytest.mark.parametrize(
    ("pods", "ended", "counted"),
    [(8, 0, 64), (8, 7, 8), (8, 8, 0), (8, 9, 0)],
)
def test_what_kueue_takes_for_ended_is_not_counted(pods: int, ended: int, counted: int) -> None:
    assert counted_devices(workload(JOBSET, 64, pods=pods, ended=ended))[GPU] == counted


def test_of_work_that_was_admitted_with_fewer_pods_those_are_counted() -> None:
    """Partial admission: four of eight, of which Kueue takes none for ended until the other four are."""
    part = workload(JOBSET, 32, pods=4)
    part["spec"]["podSets"][0]["count"] = 8
    assert counted_devices(part)[GPU] == 32
    part["status"]["reclaimablePods"] = [{"name": "main", "count": 6}]
    assert counted_devices(part)[GPU] == 16


QUOTA = {"name": "train", "resources": [{"name": GPU, "nominalQuota": "16", "borrowingLimit": "16"}]}


def queues(monkeypatch: pytest.MonkeyPatch, folder: SpecFolder, reserved: int, form: str, *items: Object) -> Result:
    queue = thing("kueue.x-k8s.io/v1beta2", "ClusterQueue", "fraud--batch")
    queue["metadata"]["labels"] = {vocabulary.ENVIRONMENT: "small", vocabulary.TENANT: "fraud", "tier": "batch"}
    queue["spec"] = {"resourceGroups": [{"coveredResources": [GPU], "flavors": [QUOTA]}]}
    totals = [{"name": "train", "resources": [{"name": GPU, "total": str(reserved), "borrowed": "0"}]}]
    queue["status"] = {"flavorsReservation": totals, "conditions": []}
    cluster = Cluster(queue, *items)
    monkeypatch.setattr("tenancy.cluster.api.Api", lambda _context: cluster)
    return CliRunner().invoke(main, ["queues", str(folder.path), "--format", form])


def test_queues_name_the_work_below_the_table_and_say_in_json_what_pods_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = SpecFolder(tmp_path / "small")
    items = [JOBSET, *CHILDREN, *PODS, workload(JOBSET, 64, pods=8, ended=7)]
    result = queues(monkeypatch, folder, 8, "text", *items)
    assert result.exit_code == 0, result.output
    assert "JobSet sweep in fraud--train: 8 pods of this JobSet run with 64 nvidia.com/gpu" in re.sub(
        r"\s+", " ", result.stdout
    )
    (row,) = json.loads(queues(monkeypatch, folder, 8, "json", *items).stdout)
    assert (row["held"], row["bound"]) == (8, 64)
    counted = queues(monkeypatch, folder, 64, "text", *items)
    assert "JobSet" not in counted.stdout
