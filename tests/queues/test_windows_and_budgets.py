"""Time in the queues, on a running Kueue: the clock writes with its own rights, at instants that the test chooses."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import town
from as_clock import AsClock
from scene import Scene, condition, holds

from tenancy.catalog import vocabulary
from tenancy.clock.controller import Clock, Round, stored_usage
from tenancy.clock.prometheus import GpuMetrics
from tenancy.clock.usage import next_month
from tenancy.cluster.api import Response
from tests.prometheus_double import prometheus_double
from tests.waiting import until

BORROWS = "guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 32"
WINDOW = (
    "gpu-windows: [{name: close, flavor: a100, gpus: 16, days: mon-sun, starts: '17:00', ends: '20:00', "
    "time-zone: Europe/Berlin}]\n"
)
BUDGET = "budget: {monthly-usd: 1000000, monthly-gpu-hours: 1, when-spent: hold}\n"
NOTEBOOKS = """\
  notebooks:
    priority: 50
    interruptible: true
    quota: {cpu: 600, memory: 4Ti}
    idle: {duration: 1m, warnings: 2, action: suspend}
flavors:
"""
FILES = {
    "environment.yaml": town.ENVIRONMENT.replace("nodes: 8", "nodes: 6").replace("flavors:\n", NOTEBOOKS)
    + "queues: {clock: true}\nmetrics: {collector: existing}\n",
    "tenants/desk.yaml": town.tenant("desk", "markets", "guaranteed: 16, sharing: strict", "notebooks"),
    "tenants/risk.yaml": town.tenant("risk", "risk", "guaranteed: 8", "production", WINDOW),
    "tenants/borrower.yaml": town.tenant("borrower", "markets", BORROWS),
    "tenants/spender.yaml": town.tenant("spender", "research", "guaranteed: 8", more=BUDGET),
}
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/risk--production"
RECORD = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/{vocabulary.CLOCK}"


def tick(scene: Scene, now: dt.datetime) -> Round:
    """A round of a clock that has just been started."""
    api = AsClock(scene.plan.context)
    return Clock(api, scene.loaded.environment, scene.loaded.tenants, lambda: now).tick()


def notebook(scene: Scene, name: str) -> str:
    """A StatefulSet of one pod with eight GPUs; its namespace."""
    job, labels = scene.job("desk", name, 8), {"app": name}
    pod = {**job["spec"]["template"]["spec"], "restartPolicy": "Always"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    space = job["metadata"]["namespace"]
    spec = {"replicas": 1, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}
    item = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": space}}
    answer = scene.ask("desk", {**item, "spec": spec})
    assert answer.ok, answer.message
    return space


def running(scene: Scene, space: str, name: str) -> bool:
    return any(pod["metadata"]["name"] == f"{name}-0" for pod in scene.pods(space))


def test_an_idle_notebook_is_suspended_after_its_warnings_and_comes_back(scene: Scene) -> None:
    scene.clear()
    scene.api.request("DELETE", RECORD)
    space = notebook(scene, "idle")
    notebook(scene, "busy")
    until(lambda: all(running(scene, space, name) for name in ("idle", "busy")), "both notebooks run")
    scene.submit("desk", "first", 8)
    now = dt.datetime.now(dt.UTC)
    # It may be the hour of the window, whose GPUs the rounds would move.
    tenants = [tenant.model_copy(update={"gpu_windows": ()}) for tenant in scene.loaded.tenants]
    with prometheus_double() as double:
        double.idle(space, "idle-0", ("StatefulSet", "idle"), 8)
        double.idle(space, "busy-0", ("StatefulSet", "busy"), 7)
        double.idle(space, "busy-0", ("StatefulSet", "busy"), 1, "0.4")
        source = GpuMetrics(double.address)

        def minute(number: int) -> Round:
            at = now + dt.timedelta(minutes=number)
            clock = Clock(AsClock(scene.plan.context), scene.loaded.environment, tenants, lambda: at)
            clock.idle_gpus = source.idle_gpus
            return clock.tick()

        assert [minute(number).changes for number in range(3)][1:] == [(), ()]
        explanation = scene.until_said(space, "idle", "warning 2 of 2", "statefulset")
        assert "suspended at" in explanation
        assert running(scene, space, "idle"), "a warning ends nothing"
        assert len(minute(3).changes) == 1
    until(lambda: not running(scene, space, "idle"), "its pod has ended")
    assert running(scene, space, "busy")
    scene.until_runs(space, "first")
    # Kueue orders by the second of creation: with both waiting from the same second, either would start.
    scene.submit("desk", "second", 8)
    until(lambda: scene.workload(space, "second"), "it waits")
    since = (scene.workload(space, "second") or {})["metadata"]["creationTimestamp"]
    explanation = scene.until_said(space, "idle", "It was suspended", "statefulset")
    assert "less than 5% of the time" in explanation
    assert explanation.endswith("delete it and make it anew.")

    where = f"/apis/apps/v1/namespaces/{space}/statefulsets/idle"
    assert scene.api.request("DELETE", where, None, scene.developer("desk")).ok
    until(lambda: scene.api.request("GET", where).status == 404, "it is deleted")
    until(lambda: f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}" > since, "it comes back in a later second")
    notebook(scene, "idle")
    scene.until_said(space, "idle", "It waits for 8 more", "statefulset")
    assert scene.why(space, "idle", "statefulset").ahead == 1, "the job that was queued before it came back"
    for name in ("first", "second"):
        scene.api.request("DELETE", f"/apis/batch/v1/namespaces/{space}/jobs/{name}?propagationPolicy=Background")
    until(lambda: running(scene, space, "idle"), "it runs again")
    scene.clear()


def berlin(hour: int, minute: int = 0, days: int = 0) -> dt.datetime:
    day = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=days)
    return dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(dt.UTC)


def reserved(scene: Scene) -> bool:
    workloads = scene.items("Workload", vocabulary.PLATFORM_NAMESPACE)
    return bool(workloads) and all(holds(workload, "Admitted") for workload in workloads)


def test_a_process_sees_by_its_watches_what_kueue_and_others_change(scene: Scene) -> None:
    """One clock over several rounds: after the first it lists nothing."""
    requests: list[str] = []

    class RecordingClock(AsClock):
        def request(self, method: str, path: str, *arguments: Any, **more: Any) -> Response:
            requests.append(f"{method} {path}")
            return super().request(method, path, *arguments, **more)

        def events(self, path: str, *arguments: Any) -> Iterator[Mapping[str, Any]]:
            requests.append(f"GET {path}")
            return super().events(path, *arguments)

    scene.clear()
    scene.api.request("DELETE", RECORD)
    now = berlin(12)
    clock = Clock(RecordingClock(scene.plan.context), scene.loaded.environment, scene.loaded.tenants, lambda: now)
    clock.tick()
    requests.clear()
    home = scene.submit("spender", "first", 8)
    scene.until_runs(home, "first")
    now = berlin(12, days=1)
    scene.api.request("PATCH", QUEUE, {"spec": {"stopPolicy": "Hold"}}, content_type="application/merge-patch+json")
    changes = clock.tick().changes
    assert any("Hold -> None" in change for change in changes), changes
    usage = stored_usage(scene.api)
    assert usage is not None
    assert usage.gpu_hours("spender") > 0, "the job that started meanwhile"
    until(lambda: condition(scene.queue("risk", "production"), "Active").get("status") == "True", "it is open")
    now += dt.timedelta(minutes=1)
    assert clock.tick().changes == ()
    assert not [path for path in requests if "limit=" in path], "no list"
    assert len([path for path in requests if "watch=true" in path]) == 6
    scene.clear()
    scene.api.request("DELETE", RECORD)


def test_a_windows_capacity_is_free_when_it_starts_and_goes_back_when_it_ends(scene: Scene) -> None:
    scene.clear()
    tick(scene, berlin(12))
    borrowed = [f"borrowed-{i}" for i in range(16)]
    home = scene.space("borrower")
    for name in borrowed:
        scene.submit("borrower", name, 1)
    scene.until_runs(home, *borrowed)
    assert tick(scene, berlin(16, 44)).changes == (), "the lead is 15 minutes"
    assert scene.runs(home, *borrowed)

    assert any("16 GPUs" in change for change in tick(scene, berlin(16, 45)).changes)
    until(lambda: reserved(scene), "Kueue has reclaimed the window's GPUs")
    scene.until_waits(home, *borrowed)
    assert set(scene.evictions(home)) == set(borrowed)
    assert tick(scene, berlin(16, 50)).changes == (), "a second round has nothing to write"

    tick(scene, berlin(17))
    until(lambda: not scene.items("Workload", vocabulary.PLATFORM_NAMESPACE), "nothing is reserved any more")
    assert scene.waits(home, *borrowed), "what is reserved is not lent"
    scene.submit("risk", "report", 8, 3)
    scene.until_runs(scene.space("risk"), "report")
    until(lambda: len(scene.pods(scene.space("risk"))) == 3, "there are machines for all that was admitted")

    tick(scene, berlin(20))
    assert scene.runs(scene.space("risk"), "report"), "what runs is not evicted by the end of a window"
    scene.clear("risk")
    scene.until_runs(home, *borrowed)
    scene.submit("risk", "late", 8, 3)
    scene.until_waits(scene.space("risk"), "late")
    scene.clear()


def sizes(dice: random.Random, total: int) -> list[int]:
    """GPUs of jobs of one pod that have so many together."""
    gpu_sizes: list[int] = []
    while (remaining_gpus := total - sum(gpu_sizes)) > 0:
        gpu_sizes.append(dice.choice([size for size in (1, 2, 4, 8) if size <= remaining_gpus]))
    return gpu_sizes


@pytest.mark.exhaustive(reason="window after window; one is in `make test`")
def test_every_window_starts_with_its_capacity_free_while_borrowers_run(scene: Scene) -> None:
    """Borrowers have all of the window's GPUs before each, in jobs of other sizes, and more of them wait."""
    count, dice, took = int(os.environ.get("TENANCY_WINDOWS", "4")), random.Random(1), []
    home, risk_space = scene.space("borrower"), scene.space("risk")
    scene.clear()
    scene.api.request("DELETE", RECORD)
    for day in range(count):
        tick(scene, berlin(12, 0, day))
        runs = {f"run-{day}-{n}": gpus for n, gpus in enumerate(sizes(dice, 16))}
        for name, gpus in runs.items():
            scene.submit("borrower", name, gpus)
        scene.until_runs(home, *runs)
        scene.submit("borrower", f"wait-{day}", dice.choice((1, 8)))
        assert any("16 GPUs" in change for change in tick(scene, berlin(16, 45, day)).changes)
        took.append(until(lambda: reserved(scene), f"window {day}: its GPUs are reclaimed"))
        tick(scene, berlin(17, 0, day))
        phases = {pod["status"].get("phase") for pod in scene.items("Pod", home, "v1")}
        assert phases <= {"Succeeded", "Failed"}, f"window {day}: borrowers have left the nodes"
        before = scene.evictions()
        scene.submit("risk", f"report-{day}", 8, 3)
        scene.until_runs(risk_space, f"report-{day}")
        assert scene.evictions() == before, f"window {day}: its work evicts none"
        until(lambda: len(scene.pods(risk_space)) == 3, f"window {day}: there are machines for its work")
        tick(scene, berlin(20, 0, day))
        scene.clear("risk", "borrower")
    print(f"{count} of {count} windows started with their GPUs free, reclaimed within {max(took):.1f} s")
    scene.api.request("DELETE", RECORD)


def test_a_spent_budget_holds_the_queue_and_the_next_month_opens_it(scene: Scene) -> None:
    scene.clear()
    scene.api.request("DELETE", RECORD)
    home = scene.submit("spender", "first", 8)
    scene.until_runs(home, "first")
    now = dt.datetime.now(dt.UTC)
    moment = now + dt.timedelta(minutes=30)
    if moment >= next_month(now):
        moment = next_month(now) + dt.timedelta(minutes=30)
    assert tick(scene, now).exhausted_budgets == ()

    (exhausted_budget,) = tick(scene, moment).exhausted_budgets
    assert exhausted_budget.tenant == "spender"
    until(lambda: condition(scene.queue("spender", "batch"), "Active").get("status") == "False", "it is on hold")
    assert scene.runs(home, "first"), "hold evicts nothing"
    scene.submit("spender", "second", 1)
    explanation = scene.until_said(home, "second", "budget")
    assert f"on {moment:%Y-%m-%d}" in explanation
    assert explanation.endswith("ask spender-leads.")
    # Its twin, of a tenant without a budget.
    scene.until_runs(scene.submit("risk", "twin", 1), "twin")

    path = f"/apis/batch/v1/namespaces/{home}/jobs/first?propagationPolicy=Background"
    scene.api.request("DELETE", path)
    tick(scene, next_month(moment) + dt.timedelta(minutes=1))
    scene.until_runs(home, "second")
    scene.clear()


def test_the_clock_can_make_no_queue_and_read_no_secret(scene: Scene) -> None:
    api = AsClock(scene.plan.context)
    queue = scene.queue("risk", "production")
    new = {**queue, "metadata": {"name": "another"}, "status": {}}
    refused = api.request("POST", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues?dryRun=All", new)
    assert refused.status == 403
    assert "cannot create resource" in refused.message
    assert api.request("GET", "/api/v1/secrets").status == 403
    twin = api.request("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues")
    assert twin.ok


def test_a_tenant_can_change_neither_the_clock_nor_what_it_writes(scene: Scene) -> None:
    person, space = scene.developer("spender"), scene.space("spender")
    patch, kind = {"data": {"usage": "{}"}}, "application/merge-patch+json"
    scene.api.request("POST", RECORD.rpartition("/")[0], {"metadata": {"name": vocabulary.CLOCK}, "data": {}})
    targets: list[tuple[str, str, object]] = [
        ("PATCH", RECORD, patch),
        ("PATCH", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/spender--batch", {"spec": {"stopPolicy": "None"}}),
        ("PATCH", "/apis/kueue.x-k8s.io/v1beta2/cohorts/organisation", {"spec": {"fairSharing": {"weight": "9"}}}),
        (
            "PATCH",
            f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space}/localqueues/default",
            {"spec": {"stopPolicy": "None"}},
        ),
    ]
    for method, path, body in targets:
        answer = scene.api.request(method, path + "?dryRun=All", body, person, kind)
        assert answer.status == 403, path
        assert "cannot patch resource" in answer.message
        twin = scene.api.request(method, path + "?dryRun=All", body, content_type=kind)
        assert twin.ok, (path, twin.message)
    reservation = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "window--mine"}}
    where = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space}/workloads?dryRun=All"
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    podset = {"name": "main", "count": 1, "template": {"spec": pod}}
    body = {**reservation, "spec": {"queueName": "default", "podSets": [podset]}}
    answer = scene.api.request("POST", where, body, person)
    assert answer.status == 403
    assert "cannot create resource" in answer.message
    assert scene.api.request("POST", where, body).ok
