"""The clock's rounds on a cluster that is played: it is killed between any two requests, and there are two of it."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.clock.controller import Clock, ClockRefused, stored_usage
from tenancy.clock.idle import Sample
from tenancy.clock.shutdown import end_reservations
from tenancy.cluster.prometheus import PrometheusUnavailable
from tenancy.kube.objects import Object
from tenancy.spec.loader import Loaded
from tests.clock_cluster import MONDAY, RECORD, Cluster, Killed
from tests.conftest import SpecFolder, nonempty
from tests.spec_cases import ENV, FRAUD, RESEARCH

HEAD = "gpu-windows:\n  - {name: close, flavor: a100, gpus: 8, days: mon-fri, "
INSTANTS = [
    MONDAY + dt.timedelta(hours=h, minutes=m) for h, m in [(12, 0), (16, 50), (17, 0), (18, 0), (20, 0), (20, 1)]
]


@pytest.fixture
def loaded(spec: SpecFolder) -> Loaded:
    spec.add(ENV, "queues: {clock: true}\n")
    spec.add(FRAUD, HEAD + "starts: '17:00', ends: '20:00'}\n")
    spec.add(RESEARCH, HEAD + "starts: '20:15', ends: '23:00'}\n")
    return spec.load()


def clock(cluster: Cluster, loaded: Loaded) -> Clock:
    api: Any = cluster
    return Clock(api, loaded.environment, loaded.tenants)


def settle(cluster: Cluster, loaded: Loaded) -> None:
    """Rounds until nothing changes; the first sees what is there, the second what Kueue admitted."""
    for _ in range(4):
        if not clock(cluster, loaded).tick().changes:
            return
    raise AssertionError("the clock does not settle")


def course(loaded: Loaded) -> list[dict[str, Any]]:
    """The state at each instant, of a clock that is never disturbed."""
    cluster, states = Cluster(loaded), []
    for now in INSTANTS:
        cluster.now = now
        settle(cluster, loaded)
        states.append(cluster.state())
    return states


def test_a_round_that_finds_everything_in_place_writes_only_its_record(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    controller = clock(cluster, loaded)
    controller.tick()
    cluster.writes.clear()
    before = cluster.requests
    cluster.now += dt.timedelta(seconds=30)
    assert controller.tick().changes == ()
    assert cluster.writes == [f"PUT {RECORD}"]
    assert cluster.requests - before == 5, "a record, three watches and a record, whatever the number of tenants"
    assert cluster.lists == 3, "of the first round"


def test_the_course_of_a_day_ends_as_it_began(loaded: Loaded) -> None:
    states = course(loaded)
    quiet = {path: spec for path, spec in states[0].items() if "/workloads/" not in path}
    assert {path: spec for path, spec in states[-1].items() if "/workloads/" not in path} != quiet, "20:15 has begun"
    assert states[1] != states[0] != states[2] != states[1]
    assert states[2] == states[3]


def _also(instant: int) -> Any:
    return pytest.param(
        instant,
        marks=pytest.mark.exhaustive(reason="three of six instants; `make test` has the other three"),
    )


@pytest.mark.parametrize("instant", [_also(0), 1, 2, _also(3), 4, _also(5)])
def test_a_clock_that_is_killed_before_any_request_is_continued_by_the_next(loaded: Loaded, instant: int) -> None:
    before, expected = Cluster(loaded), course(loaded)[instant]
    for now in INSTANTS[:instant]:
        before.now = now
        settle(before, loaded)
    for step in range(1, 40):
        cluster = copy.deepcopy(before)
        cluster.now, cluster.kill_at = INSTANTS[instant], cluster.requests + step
        try:
            clock(cluster, loaded).tick()
            clock(cluster, loaded).tick()
            has_ended = True
        except Killed:
            has_ended = False
        cluster.kill_at = None
        settle(cluster, loaded)
        assert cluster.state() == expected, f"killed before request {step}"
        if has_ended:
            return
    raise AssertionError("a round has more requests than this test kills")


def test_at_no_write_is_more_promised_than_there_is(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    promised_at_start = cluster.most = cluster.promised()
    for now in INSTANTS:
        cluster.now = now
        settle(cluster, loaded)
    assert cluster.most == promised_at_start


def test_rounds_that_are_missed_end_in_the_same_state(loaded: Loaded) -> None:
    for last, expected in nonempty(enumerate(course(loaded))):
        cluster = Cluster(loaded)
        cluster.now = INSTANTS[last]
        settle(cluster, loaded)
        assert cluster.state() == expected, f"the first round is at {INSTANTS[last]}"


def test_of_two_copies_the_one_that_comes_second_is_refused_and_reads_anew(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    settle(cluster, loaded)
    first_copy, second_copy = clock(cluster, loaded), clock(cluster, loaded)
    inner = cluster.items
    cluster.now += dt.timedelta(minutes=1)

    def overtaken(path: str) -> list[Object]:
        cluster.items = inner  # type: ignore[method-assign]
        items = inner(path)
        second_copy.tick()
        return items

    cluster.items = overtaken  # type: ignore[method-assign]
    with pytest.raises(ClockRefused, match="409"):
        first_copy.tick()
    assert first_copy.tick().changes == ()


def test_a_damaged_record_is_counted_anew(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    settle(cluster, loaded)
    cluster.objects[RECORD]["data"]["usage"] = "}"
    api: Any = cluster
    assert stored_usage(api) is None
    settle(cluster, loaded)
    assert stored_usage(api) is not None


def test_the_time_is_that_of_the_api_server(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    cluster.now = INSTANTS[1]
    assert clock(cluster, loaded).tick().now == INSTANTS[1]


def test_a_queue_that_the_engine_has_not_made_is_left_to_it(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/fraud--batch"
    del cluster.objects[path]
    cluster.now = INSTANTS[2]
    settle(cluster, loaded)
    assert path not in cluster.objects


def test_the_end_of_a_clock_deletes_its_reservations_and_no_work(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    cluster.now = MONDAY + dt.timedelta(hours=16, minutes=50)
    settle(cluster, loaded)
    place = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads/{}"
    for space in (vocabulary.PLATFORM_NAMESPACE, "fraud--train"):
        cluster._put(place.format(space, "work"), {"metadata": {"name": "work", "namespace": space}, "spec": {}})
    before = {path for path in cluster.objects if "/workloads/" in path}
    assert len(before) == 3
    api: Any = cluster
    assert end_reservations(api) == 1
    remaining_paths = {path for path in cluster.objects if "/workloads/" in path}
    assert {path.rpartition("/")[2] for path in remaining_paths} == {"work"}
    assert end_reservations(api) == 0


# One process over many rounds, which reads what has changed


def follows(cluster: Cluster, loaded: Loaded) -> Callable[[], list[str]]:
    """Rounds of one process until nothing changes; what they changed."""
    controller = clock(cluster, loaded)

    def rounds_until_settled() -> list[str]:
        messages: list[str] = []
        for _ in range(4):
            changes = controller.tick().changes
            messages += changes
            if not changes:
                return messages
        raise AssertionError("the clock does not settle")

    return rounds_until_settled


def test_a_process_that_reads_changes_decides_as_one_that_has_just_been_started(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    rounds_until_settled = follows(cluster, loaded)
    for now, expected in nonempty(zip(INSTANTS, course(loaded), strict=True)):
        cluster.now = now
        rounds_until_settled()
        assert cluster.state() == expected, now
    assert cluster.lists == 3, "all of its rounds read changes"


QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/fraud--batch"


def test_what_another_writes_is_reverted_by_a_process_that_reads_changes(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    rounds_until_settled = follows(cluster, loaded)
    rounds_until_settled()
    before = cluster.state()
    cluster.now += dt.timedelta(seconds=30)
    cluster.request("PATCH", QUEUE, {"metadata": {}, "spec": {"stopPolicy": "Hold"}})
    assert rounds_until_settled() == ["ClusterQueue fraud--batch: Hold -> None"]
    assert cluster.state() == before
    status = copy.deepcopy(cluster.objects[QUEUE])
    status["status"] = {"pendingWorkloads": 7}
    cluster._put(QUEUE, status)
    cluster.writes.clear()
    assert rounds_until_settled() == []
    assert {where.partition(" ")[2] for where in cluster.writes} == {RECORD}


def test_a_queue_that_is_made_again_gets_what_it_should_have(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    cluster.now = INSTANTS[2]
    rounds_until_settled = follows(cluster, loaded)
    rounds_until_settled()
    granted = cluster.state()
    planned = copy.deepcopy(Cluster(loaded).objects[QUEUE])
    cluster.delete(QUEUE)
    assert rounds_until_settled() == []
    cluster._put(QUEUE, planned)
    assert any("fraud--batch" in change for change in rounds_until_settled())
    assert cluster.state() == granted


@pytest.mark.parametrize("cause", ["compacted", "another copy", "restored"])
def test_changes_that_cannot_be_known_are_read_by_whole_lists(loaded: Loaded, cause: str) -> None:
    cluster = Cluster(loaded)
    rounds_until_settled = follows(cluster, loaded)
    rounds_until_settled()
    cluster.now = INSTANTS[1]
    if cause == "compacted":
        cluster.request("PATCH", QUEUE, {"metadata": {}, "spec": {"stopPolicy": "Hold"}})
        cluster.request("PATCH", "/apis/kueue.x-k8s.io/v1beta2/cohorts/organisation", {"metadata": {}, "spec": {}})
        cluster.oldest = cluster.version
    elif cause == "another copy":
        settle(cluster, loaded)
        cluster.happened.clear()
    else:
        # From a backup: versions go back, and the changes of the time between are unknown.
        backup = copy.deepcopy(cluster.objects)
        rounds_until_settled()
        cluster.objects, cluster.version = backup, cluster.version - 3
        cluster.happened.clear()
    before = cluster.lists
    rounds_until_settled()
    assert cluster.lists > before
    assert cluster.state() == course(loaded)[1]


def test_other_files_are_read_with_whole_lists(loaded: Loaded, spec: SpecFolder) -> None:
    cluster = Cluster(loaded)
    cluster.now = INSTANTS[2]
    controller = clock(cluster, loaded)
    controller.tick()
    controller.tick()
    spec.edit(FRAUD, "gpus: 8, days", "gpus: 4, days")
    changed_files = spec.load()
    controller.environment, controller.tenants = changed_files.environment, changed_files.tenants
    assert controller.tick().changes != ()
    settle(cluster, changed_files)
    fresh = Cluster(changed_files)
    fresh.now = cluster.now
    settle(fresh, changed_files)
    assert cluster.state() == fresh.state()


def test_usage_is_the_same_whether_changes_or_lists_are_read(loaded: Loaded) -> None:
    watching_cluster, listing_cluster = with_work(loaded), with_work(loaded)
    api: Any = watching_cluster
    process = Clock(api, loaded.environment, loaded.tenants)
    for minute in range(6):
        for cluster in (watching_cluster, listing_cluster):
            cluster.now = MONDAY + dt.timedelta(minutes=minute)
            if minute == 2:
                cluster.delete(RESEARCHED)
            if minute == 3:
                work = copy.deepcopy(cluster.objects[NOTEBOOK])
                ended = {"type": "Finished", "status": "True", "lastTransitionTime": "2026-11-23T00:02:30Z"}
                work["status"]["conditions"].append(ended)
                cluster._put(NOTEBOOK, work)
        process.tick()
        if minute != 2:
            clock(listing_cluster, loaded).tick()
    api = listing_cluster
    listed_usage = stored_usage(api)
    assert listed_usage is not None
    # Of the deletion a process that has just been started knows nothing: its record has it up to the look before.
    assert listed_usage.gpu_hours("fraud") > 0
    api = watching_cluster
    watched_usage = stored_usage(api)
    assert watched_usage is not None
    assert watched_usage.used["fraud"] == listed_usage.used["fraud"]
    assert watching_cluster.lists == 3


# Idle work


NOTEBOOK = "/apis/kueue.x-k8s.io/v1beta2/namespaces/fraud--train/workloads/notebook"
RESEARCHED = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research--main/workloads/busy"


@pytest.fixture
def idle(spec: SpecFolder) -> Loaded:
    spec.add(ENV, "queues: {clock: true}\nmetrics: {collector: existing}\n")
    spec.edit(ENV, "    interruptible: true\n", "    interruptible: true\n    idle: {duration: 1m, action: suspend}\n")
    return spec.load()


def with_work(loaded: Loaded) -> Cluster:
    """A notebook, and work of another tenant that is busy."""
    cluster = Cluster(loaded)
    podset = {"flavors": {"nvidia.com/gpu": "train"}, "resourceUsage": {"nvidia.com/gpu": "1"}}
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-22T00:00:00Z"}
    for path in (NOTEBOOK, RESEARCHED):
        parts = path.split("/")
        owner = {"kind": "StatefulSet", "name": parts[-1]}
        cluster._put(
            path,
            {
                "metadata": {"name": parts[-1], "namespace": parts[5], "ownerReferences": [owner]},
                "spec": {"active": True},
                "status": {"admission": {"podSetAssignments": [podset]}, "conditions": [admitted]},
            },
        )
    return cluster


def quiet(_: Any, __: dt.datetime) -> list[Sample]:
    return [Sample("fraud--train", "notebook-0", "StatefulSet/notebook", "GPU-1", 0.01)]


def rounds(cluster: Cluster, loaded: Loaded, count: int, read: Any = quiet) -> list[str]:
    """Changes of work in the rounds of a clock that is restarted each minute."""
    suspensions: list[str] = []
    for _ in range(count):
        controller = clock(cluster, loaded)
        controller.idle_gpus = read
        suspensions += [change for change in controller.tick().changes if "suspended" in change]
        cluster.now += dt.timedelta(minutes=1)
    return suspensions


def test_idle_work_is_suspended_after_its_warnings_and_busy_work_is_not(idle: Loaded) -> None:
    cluster = with_work(idle)
    assert rounds(cluster, idle, 3) == []
    (event,) = [o for path, o in cluster.objects.items() if "/events/" in path]
    assert (event["reason"], event["involvedObject"]["uid"]) == ("GpuIdle", NOTEBOOK)
    assert "warning 2 of 2" in event["message"]
    assert rounds(cluster, idle, 1) == ["fraud--train/notebook: suspended, its 1 GPUs were idle"]
    suspended = cluster.objects[NOTEBOOK]
    assert suspended["spec"]["active"] is False
    assert "2 warnings had been given" in suspended["metadata"]["annotations"][vocabulary.SUSPENDED]
    assert cluster.objects[RESEARCHED]["spec"]["active"] is True
    assert rounds(cluster, idle, 9) == [], "work that is suspended is not found idle again"


def test_without_samples_nothing_is_suspended_and_the_round_says_why(idle: Loaded) -> None:
    def silent(*_: Any) -> list[Sample]:
        raise PrometheusUnavailable("http://x does not answer")

    cluster = with_work(idle)
    assert rounds(cluster, idle, 3) == []
    controller = clock(cluster, idle)
    controller.idle_gpus = silent
    assert controller.tick().problem == "http://x does not answer"
    assert rounds(cluster, idle, 3) == [], "idle time begins anew"
    controller = clock(cluster, idle)
    assert controller.tick().problem == "", "a round of `tenancy up` reads none"
    assert cluster.objects[NOTEBOOK]["spec"]["active"] is True


def test_in_a_relief_of_the_environment_no_idle_work_is_warned_or_suspended(idle: Loaded, spec: SpecFolder) -> None:
    relief = "budget-exemption: {until: 2026-11-23, reason: Restart after an outage., owner: gpu@bank.example}"
    spec.edit(ENV, "clock: true", f"clock: true, {relief}")
    free = spec.load()
    cluster = with_work(free)
    assert rounds(cluster, free, 9) == []
    assert not any("/events/" in path for path in cluster.objects)
    assert rounds(cluster, idle, 9) != [], "without it"


def test_a_warning_that_could_not_be_written_does_not_count(idle: Loaded) -> None:
    cluster = with_work(idle)
    rounds(cluster, idle, 1)
    for _ in range(9):
        cluster.kill_at = cluster.requests + 3
        with pytest.raises(Killed):
            rounds(cluster, idle, 1)
        assert not any("/events/" in path for path in cluster.objects)
        cluster.kill_at = None
    assert rounds(cluster, idle, 2) == []
    assert rounds(cluster, idle, 1) != []


def test_a_clock_that_is_killed_before_a_suspension_makes_it_in_the_next_round(idle: Loaded) -> None:
    before = with_work(idle)
    rounds(before, idle, 3)
    outcomes = set()
    for step in range(1, 12):
        cluster = copy.deepcopy(before)
        cluster.kill_at = cluster.requests + step
        try:
            rounds(cluster, idle, 1)
            outcomes.add("done")
        except Killed:
            outcomes.add("killed")
        cluster.kill_at = None
        rounds(cluster, idle, 2)
        assert cluster.objects[NOTEBOOK]["spec"]["active"] is False, f"killed before request {step}"
    assert outcomes == {"done", "killed"}


def test_other_work_of_the_same_name_is_left_alone(idle: Loaded) -> None:
    cluster = with_work(idle)
    rounds(cluster, idle, 3)
    inner = cluster.items

    def replaced(path: str) -> list[Object]:
        items = inner(path)
        if path.endswith("workloads"):
            cluster.objects[NOTEBOOK]["metadata"]["uid"] = "another"
        return items

    cluster.items = replaced  # type: ignore[method-assign]
    assert rounds(cluster, idle, 1) == []
    assert cluster.objects[NOTEBOOK]["spec"]["active"] is True


def evicted_group(cluster: Cluster, name: str, *owners: str, since: float = 60, namespace: str = "fraud--train") -> str:
    """The path of a Workload of a group of pods that was evicted and has quota."""
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads/{name}"
    at = (cluster.now - dt.timedelta(seconds=since)).isoformat()
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in ("QuotaReserved", "Admitted")]
    conditions.append({"type": "Evicted", "status": "True", "lastTransitionTime": at})
    used = [{"name": "main", "count": 8, "flavors": {"nvidia.com/gpu": "train"}}]
    item = {
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            "ownerReferences": [{"kind": kind, "name": "store", "uid": kind} for kind in ("StatefulSet", *owners)],
        },
        "spec": {"active": True, "podSets": [{"name": "main", "count": 8}]},
        "status": {"conditions": conditions, "admission": {"podSetAssignments": used}},
    }
    item["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"nvidia.com/gpu": "8"}
    cluster._put(path, item)
    return path


def test_what_keeps_quota_after_its_eviction_is_deleted_and_what_has_pods_or_a_minute_is_not(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    without = evicted_group(cluster, "without-pods")
    others = {evicted_group(cluster, "with-pods", "Pod"), evicted_group(cluster, "just-now", since=59)}
    others.add(evicted_group(cluster, "of-no-tenant", namespace="other"))
    assert [change for change in clock(cluster, loaded).tick().changes if "kept quota" in change] == [
        "fraud--train/without-pods: deleted, it was evicted and kept quota without pods"
    ]
    assert without not in cluster.objects
    assert others <= cluster.objects.keys()


def test_what_changed_since_it_was_read_is_not_deleted(loaded: Loaded) -> None:
    cluster = Cluster(loaded)
    path = evicted_group(cluster, "without-pods")
    cluster.changed_before_deletion = path
    assert not [change for change in clock(cluster, loaded).tick().changes if "kept quota" in change]
    assert path in cluster.objects
