"""Simulations on the real Kueue: small ones, that end by themselves and leave nothing."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenancy.http_client import HttpAnswer, LocalServer, NoAnswer
from tenancy.lab import processes
from tenancy.lab.components import KUEUE
from tenancy.lab.layout import Lab
from tenancy.simulation import cluster as clusters
from tenancy.simulation import runner
from tenancy.simulation.attempts import simulate
from tenancy.simulation.changes import with_changes
from tenancy.simulation.checkpoint import Store, run_of
from tenancy.simulation.clocked import ROUND_SECONDS
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.idling import SAMPLE_SECONDS
from tenancy.simulation.results import Results, evaluate
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded, load
from tests.waiting import PATIENCE, until

MINUTE = 60
WINDOW = 240
TENANT = """\
tenant: {name}
team: {name}-team
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: risk
cost-center: CC-1
tier: batch
gpus:
  a100: {{guaranteed: {guaranteed}, lending-limit: {guaranteed}, {more}}}
"""
ENVIRONMENT = """\
environment: small
organisation: {name: bank, departments: {risk: {sharing: lend-and-borrow}}}
platform: {group: gpu-platform-team}
cluster: {name: small, context: small-context}
images:
  registries: [registry.bank.example/shared/]
  sample: registry.bank.example/shared/cuda-sample:13.1
tiers:
  batch: {priority: 100}
flavors:
  a100: {gpu: a100-40gb}
pools:
  train: {instance-type: p4d.24xlarge, nodes: 4}
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("simulation") / "small"
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(ENVIRONMENT, "utf-8")
    for name, guaranteed, more in (
        ("lender", 16, "sharing: lend"),
        ("borrower", 8, "sharing: lend-and-borrow, borrowing-limit: 24"),
        ("third", 8, "sharing: lend-and-borrow, borrowing-limit: 8"),
    ):
        (folder / "tenants" / f"{name}.yaml").write_text(
            TENANT.format(name=name, guaranteed=guaranteed, more=more), "utf-8"
        )
    return load(folder)


def job(number: int, tenant: str, submit: int, gpus: int, minutes: int) -> Job:
    return Job(f"{tenant}-{number}", submit, tenant, "main", "a100", gpus, gpus, minutes * MINUTE, "batch", 10 * MINUTE)


@pytest.fixture(scope="module")
def jobs() -> tuple[Job, ...]:
    """The borrower fills the pool, the lender comes back, and a third does a little all the time: 60 jobs."""
    borrower = [job(n, "borrower", 10 * n, 4, 50) for n in range(20)]
    lender = [job(n, "lender", 30 * MINUTE + 20 * n, 4, 20) for n in range(20)]
    third = [job(n, "third", 5 * MINUTE + 4 * MINUTE * n, 1 + n % 4, 9) for n in range(20)]
    return tuple(sorted([*borrower, *lender, *third], key=lambda job: job.submit))


@pytest.fixture(scope="module")
def runs(loaded: Loaded, jobs: tuple[Job, ...]) -> dict[str, Run]:
    """Two runs side by side, each in a process and a cluster of its own: they wait more than they work."""
    strict = with_changes(loaded, ["lender:gpus.a100={guaranteed: 16, sharing: strict}"])
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        futures = {
            name: pool.submit(simulate, environment, jobs, _quiet, WINDOW)
            for name, environment in (("lent", loaded), ("strict", strict))
        }
        return {name: future.result(2 * PATIENCE) for name, future in futures.items()}


@pytest.fixture(scope="module")
def lent(runs: dict[str, Run]) -> Run:
    return runs["lent"]


@pytest.fixture(scope="module")
def strict(runs: dict[str, Run]) -> Run:
    return runs["strict"]


def _quiet(_line: str) -> None:
    pass


def results(loaded: Loaded, jobs: tuple[Job, ...], run: Run) -> Results:
    return evaluate(loaded, jobs, run, 3 * 3600)


def waits(run: Run, jobs: tuple[Job, ...], tenant: str) -> list[int]:
    first: dict[int, int] = {}
    for event in run.events:
        if event.kind is EventKind.START and jobs[event.job].tenant == tenant:
            first.setdefault(event.job, event.time)
    return [start - jobs[number].submit for number, start in first.items()]


@pytest.mark.exhaustive(reason="whole simulations on Kueue; their accounts are in tests/unit/simulation")
@pytest.mark.parametrize("which", ["lent", "strict"])
def test_no_pool_is_ever_used_beyond_its_gpus(
    request: pytest.FixtureRequest, jobs: tuple[Job, ...], which: str
) -> None:
    run: Run = request.getfixturevalue(which)
    used: Counter[int] = Counter()
    for event in run.events:
        sign = {EventKind.START: 1, EventKind.EVICT: -1, EventKind.FINISH: -1}.get(event.kind, 0)
        used[event.time] += sign * jobs[event.job].gpus
    total = 0
    for moment in sorted(used):
        total += used[moment]
        assert 0 <= total <= 32, f"{total} of 32 GPUs in use at {moment}"
    assert total == 0, "everything that started has ended"


@pytest.mark.exhaustive(reason="whole simulations on Kueue; their accounts are in tests/unit/simulation")
def test_every_job_runs_as_long_as_it_needs(lent: Run, jobs: tuple[Job, ...]) -> None:
    ran: dict[int, int] = defaultdict(int)
    started: dict[int, int] = {}
    lost_seconds: Counter[int] = Counter()
    for event in lent.events:
        if event.kind is EventKind.START:
            started[event.job] = event.time
        elif event.kind in {EventKind.EVICT, EventKind.FINISH}:
            ran[event.job] += event.time - started.pop(event.job)
            lost_seconds[event.job] += event.lost_seconds
    assert {number: ran[number] - lost_seconds[number] for number in ran} == {
        n: job.duration for n, job in enumerate(jobs)
    }


@pytest.mark.exhaustive(reason="whole simulations on Kueue; a reclaim on Kueue is in tests/queues/test_bank_reclaim.py")
def test_a_lender_gets_back_what_it_lent_at_once(lent: Run, jobs: tuple[Job, ...]) -> None:
    evicted = [event for event in lent.events if event.kind is EventKind.EVICT]
    assert evicted
    assert "lender" not in {jobs[event.job].tenant for event in evicted}, "it holds no more than its own"
    assert "lender" in {jobs[event.preemptor].tenant for event in evicted if event.preemptor is not None}
    assert sorted(waits(lent, jobs, "lender"))[:4] == [0, 0, 0, 0], "16 GPUs are its own"


@pytest.mark.exhaustive(reason="whole simulations on Kueue; strict sharing is in tests/unit/planning/queueing")
def test_a_tenant_that_never_lends_never_waits_for_its_own_and_makes_others_wait(
    lent: Run, strict: Run, jobs: tuple[Job, ...]
) -> None:
    assert sorted(waits(strict, jobs, "lender"))[:4] == [0, 0, 0, 0]
    assert [
        event for event in strict.events if event.kind is EventKind.EVICT and jobs[event.job].tenant == "lender"
    ] == []
    before, after = (sum(waits(run, jobs, "borrower")) for run in (lent, strict))
    assert after > before, "what the lender leaves idle stays idle"


@pytest.mark.exhaustive(
    reason="two whole simulations on Kueue; what is made of their events is in tests/unit/simulation"
)
def test_the_same_trace_twice_is_the_same_within_the_window(loaded: Loaded, lent: Run, jobs: tuple[Job, ...]) -> None:
    first, second = (results(loaded, jobs, run) for run in (lent, simulate(loaded, jobs, _quiet, WINDOW)))
    for before, after in zip(first.tenants, second.tenants, strict=True):
        # What an eviction throws away is used twice, and what starts later uses less before the end.
        moved = sum(job.gpus for job in jobs if job.tenant == before.name) * WINDOW / 3600
        assert after.used == pytest.approx(before.used, abs=moved + abs(after.lost - before.lost)), before.name
        # Who can start only by an eviction is looked at four times less often.
        # The mean: of 20 jobs that wait for one another the middle one is any of several.
        assert abs((after.waits.mean or 0) - (before.waits.mean or 0)) <= 4 * WINDOW, before.name
        assert abs(after.evictions - before.evictions) <= 3, before.name


def test_an_interrupted_run_leaves_no_process_and_no_folder(loaded: Loaded, tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        "-c",
        "from tenancy.cli import main; main()",
        "simulate",
        str(loaded.folder),
        "--jobs",
        "50",
        "--checkpoints",
        str(tmp_path / "state"),
    ]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        until(
            lambda: list(tmp_path.glob("gpu-tenancy-simulation-*/lab/logs/kube-apiserver.log")),
            "it has started a cluster",
            process=child,
        )
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=PATIENCE)
    finally:
        child.kill()
    assert child.returncode == 130, output
    assert b"nothing is left running" in output
    assert list(tmp_path.glob("gpu-tenancy-simulation-*")) == []
    assert _mentions(str(tmp_path)) == []


def _mentions(text: str) -> list[str]:
    command_lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            command_lines += [line] if text in line else []
    return command_lines


# Ended and resumed


@pytest.fixture(scope="module")
def plain() -> tuple[Job, ...]:
    """Work whose outcome no timing of Kueue's changes: each tenant alone, within its guarantee, no two at once."""
    return tuple(
        job(n, tenant, 600 * n + 200 * i, 8, 4)
        for n in range(30)
        for i, tenant in enumerate(("lender", "borrower", "third"))
    )


@pytest.fixture(scope="module")
def undisturbed(loaded: Loaded, plain: tuple[Job, ...]) -> Run:
    return simulate(loaded, plain, _quiet, WINDOW)


def started_in(store: Store) -> Path:
    until(lambda: store.leftover_cluster() and store.read(), "the run has a cluster and a checkpoint")
    folder = store.leftover_cluster()
    assert folder
    return folder


def same(first: Run, second: Run) -> None:
    assert [e for e in first.events if e.kind is not EventKind.WAIT] == [
        e for e in second.events if e.kind is not EventKind.WAIT
    ]


KILLED = """\
import sys
from pathlib import Path
import pickle
from tenancy.simulation import runner
from tenancy.simulation.attempts import simulate
from tenancy.simulation.checkpoint import Store
runner.CHECKPOINT_SECONDS = 0.0
loaded, jobs, window = pickle.loads(Path(sys.argv[1]).read_bytes())
simulate(loaded, jobs, print, window, Store(Path(sys.argv[2]), "run"))
"""


@pytest.mark.exhaustive(
    reason="a simulation that is killed; checkpoints are in tests/unit/simulation/test_simulation_checkpoints.py"
)
def test_a_run_that_is_killed_in_the_middle_goes_on_and_comes_to_the_same(
    loaded: Loaded, plain: tuple[Job, ...], undisturbed: Run, tmp_path: Path
) -> None:
    (tmp_path / "asked").write_bytes(pickle.dumps((loaded, plain, WINDOW)))
    store = Store(tmp_path / "state", "run")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "asked"), str(tmp_path / "state")]
    child = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)}, start_new_session=True)
    until(lambda: (store.read() or {"now": 0})["now"] >= 6000, "the run is in its middle", process=child)
    child.kill()
    child.wait()
    leftover = store.leftover_cluster()
    assert leftover
    assert _mentions(str(leftover)), "a killed run ends nothing"
    checkpoint = store.read()
    assert checkpoint
    assert not checkpoint["done"]
    messages: list[str] = []
    resumed = simulate(loaded, plain, messages.append, WINDOW, store)
    same(resumed, undisturbed)
    assert any("continues from" in line for line in messages)
    assert _mentions(str(leftover)) == [], "what the killed run left is ended"
    assert not leftover.exists()


@pytest.mark.exhaustive(
    reason=(
        "a simulation with evictions that is killed; checkpoints are in "
        "tests/unit/simulation/test_simulation_checkpoints.py"
    )
)
def test_a_run_with_evictions_that_is_killed_keeps_what_was_decided(
    loaded: Loaded, jobs: tuple[Job, ...], lent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue's own choices are within the tolerance; those before the checkpoint are the same to the letter."""
    store = Store()
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)
    real_save = Store.save
    middle: list[Run] = []

    def keep(self: Store, checkpoint: dict[str, Any]) -> None:
        real_save(self, checkpoint)
        if not middle and any(row[1] == EventKind.EVICT for row in checkpoint["events"]):
            middle.append(run_of({"form": 1, **checkpoint}))
            raise OSError("ended in the middle")

    monkeypatch.setattr(Store, "save", keep)
    resumed = simulate(loaded, jobs, _quiet, WINDOW, store)
    (before,) = middle
    assert resumed.events[: len(before.events)] == before.events
    for resumed_results, lent_results in zip(
        results(loaded, jobs, resumed).tenants, results(loaded, jobs, lent).tenants, strict=True
    ):
        assert resumed_results.waits.jobs == lent_results.waits.jobs
        assert resumed_results.waits.never == lent_results.waits.never == 0
        assert abs((resumed_results.waits.mean or 0) - (lent_results.waits.mean or 0)) <= 4 * WINDOW, (
            resumed_results.name
        )
        assert abs(resumed_results.evictions - lent_results.evictions) <= 3, resumed_results.name


def pid_of(store: Store, name: str) -> int:
    folder = started_in(store)
    lab = Lab(folder, folder / "lab")
    (process,) = processes.running(lab, (name,))[name]
    return process.pid


@pytest.mark.exhaustive(
    reason=(
        "stops Kueue for seconds; the clock that stands still meanwhile is "
        "in tests/unit/simulation/test_simulation_checkpoints.py"
    )
)
def test_a_kueue_that_gets_no_time_makes_the_run_longer_and_no_other(
    loaded: Loaded,
    plain: tuple[Job, ...],
    undisturbed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped for longer than any silence that counts as Kueue's answer."""
    seconds = 3.0
    assert seconds > 2 * runner.SILENCE_SECONDS
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)
    store = Store(tmp_path, "run")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, loaded, plain, _quiet, WINDOW, store)
        pid = pid_of(store, KUEUE)
        for _ in range(3):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)  # the length of the stop is what is tried
            os.kill(pid, signal.SIGCONT)
            before = (store.read() or {})["now"]
            until(lambda before=before: running.done() or (store.read() or {})["now"] != before, "it goes on")
        same(running.result(PATIENCE), undisturbed)


@pytest.mark.exhaustive(
    reason="stops Kueue for good; that a stall is noticed is in tests/unit/simulation/test_simulation_checkpoints.py"
)
def test_a_kueue_that_stays_stopped_is_replaced_and_the_run_comes_to_the_same(
    loaded: Loaded, plain: tuple[Job, ...], undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(clusters, "STALL_SECONDS", 10.0)
    store = Store(tmp_path, "run")
    messages: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, loaded, plain, messages.append, WINDOW, store)
        os.kill(pid_of(store, KUEUE), signal.SIGSTOP)
        same(running.result(PATIENCE), undisturbed)
    assert any("makes no progress" in line and "starting another cluster" in line for line in messages)


@pytest.mark.exhaustive(
    reason=(
        "loses every seventh answer of etcd; a lost answer is in tests/unit/simulation/test_simulation_checkpoints.py"
    )
)
def test_an_etcd_that_answers_too_late_changes_nothing(
    loaded: Loaded, plain: tuple[Job, ...], undisturbed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every seventh answer is lost after etcd has done what it was asked."""
    count = 0
    real_request = LocalServer.request

    def request(self: LocalServer, *arguments: Any) -> HttpAnswer:
        nonlocal count
        answer = real_request(self, *arguments)
        if self in etcd:
            count += 1
            if count % 7 == 0:
                raise NoAnswer("timed out")
        return answer

    etcd: list[LocalServer] = []
    real_init = clusters.SimulationCluster.__init__

    def init(self: clusters.SimulationCluster, lab: Lab) -> None:
        real_init(self, lab)
        etcd.append(self._etcd)

    monkeypatch.setattr(clusters.SimulationCluster, "__init__", init)
    monkeypatch.setattr(LocalServer, "request", request)
    messages: list[str] = []
    same(simulate(loaded, plain, messages.append, WINDOW), undisturbed)
    assert count > 50
    assert not any("another cluster" in line for line in messages)


# With a clock: a window, a spent budget, and work beside both


HOUR = 60 * MINUTE
MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
NIGHT = "gpu-windows: [{name: night, flavor: a100, gpus: 16, days: mon-sun, starts: '05:00', ends: '07:00'}]\n"
BUDGET = "budget: {monthly-usd: 1000000, monthly-gpu-hours: 8, when-spent: hold}\n"
BORROWS = TENANT.replace("lending-limit: {guaranteed}, ", "")


def timed(name: str, submit: int, gpus: int, minutes: int) -> Job:
    tenant = name.partition("-")[0]
    return Job(name, submit, tenant, "main", "a100", gpus, min(gpus, 8), minutes * MINUTE, "batch")


JOBS = (
    *(timed(f"borrower-{n}", n, 4, 600) for n in range(4)),
    timed("spender-first", 10, 8, 120),
    timed("spender-second", 150 * MINUTE, 1, 10),
    timed("risk-early", 230 * MINUTE, 24, 5),
    timed("risk-report", 5 * HOUR + 20 * MINUTE, 24, 60),
)


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("clocked") / "small"
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(ENVIRONMENT + "queues: {clock: true}\n", "utf-8")
    for name, text in {
        "risk": BORROWS.format(name="risk", guaranteed=8, more="sharing: strict") + NIGHT,
        "spender": BORROWS.format(name="spender", guaranteed=8, more="sharing: strict") + BUDGET,
        "borrower": BORROWS.format(name="borrower", guaranteed=0, more="sharing: lend-and-borrow, borrowing-limit: 24"),
    }.items():
        (folder / "tenants" / f"{name}.yaml").write_text(text, "utf-8")
    return load(folder)


@pytest.fixture(scope="module")
def clocked_run(clocked: Loaded) -> Run:
    return simulate(clocked, JOBS, _quiet, WINDOW, start=MONDAY)


def events_of(run: Run, name: str, kind: EventKind) -> list[Event]:
    number = next(n for n, job in enumerate(JOBS) if job.name == name)
    return [event for event in run.events if event.job == number and event.kind is kind]


@pytest.mark.exhaustive(
    reason="a simulation with a window; windows on Kueue are in tests/queues/test_windows_and_budgets.py"
)
def test_a_window_is_free_at_its_start_and_taken_from_borrowers_in_its_lead(clocked_run: Run) -> None:
    (early_start,) = events_of(clocked_run, "risk-early", EventKind.START)
    assert 5 * HOUR <= early_start.time <= 5 * HOUR + ROUND_SECONDS, "24 GPUs are there in the window alone"
    (report,) = events_of(clocked_run, "risk-report", EventKind.START)
    assert report.time == JOBS[-1].submit
    evicted = [event for n in range(4) for event in events_of(clocked_run, f"borrower-{n}", EventKind.EVICT)]
    times = [event.time for event in evicted]
    assert len(times) == 4
    assert min(times) >= 4 * HOUR + 45 * MINUTE
    assert max(times) <= 4 * HOUR + 50 * MINUTE
    back = [events_of(clocked_run, f"borrower-{n}", EventKind.START)[-1].time for n in range(4)]
    assert min(back) >= report.time + HOUR


@pytest.mark.exhaustive(
    reason="a simulation with a budget; budgets on Kueue are in tests/queues/test_windows_and_budgets.py"
)
def test_a_spent_budget_holds_new_work_and_not_running_work(clocked_run: Run) -> None:
    (finish,) = events_of(clocked_run, "spender-first", EventKind.FINISH)
    assert finish.time == JOBS[4].submit + 2 * HOUR
    assert events_of(clocked_run, "spender-second", EventKind.START) == []


@pytest.mark.exhaustive(reason="a simulation with reservations; what counts as a job is in tests/unit/simulation")
def test_reservations_are_no_jobs_of_the_trace(clocked_run: Run) -> None:
    assert {event.job for event in clocked_run.events} == set(range(len(JOBS)))


def without_names(run: Run) -> list[tuple[int, EventKind, str]]:
    """Which of the borrower's four equal jobs starts first is Kueue's choice."""
    return sorted((e.time, e.kind, JOBS[e.job].tenant) for e in run.events if e.kind is not EventKind.WAIT)


@pytest.mark.exhaustive(reason="a simulation with the clock that is ended; checkpoints are in tests/unit/simulation")
@pytest.mark.parametrize(("after", "before"), [(3.0, 4.75), (5.25, 7.0)], ids=["a spent budget", "in the window"])
def test_a_run_with_a_clock_that_is_ended_goes_on_with_its_window_and_budget(
    clocked: Loaded, clocked_run: Run, after: float, before: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, inner, ended = Store(), Store.save, []
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)

    def keep(self: Store, checkpoint: dict[str, Any]) -> None:
        inner(self, checkpoint)
        if not ended and checkpoint["now"] >= after * HOUR:
            ended.append(checkpoint["now"])
            raise OSError("ended in the middle")

    monkeypatch.setattr(Store, "save", keep)
    resumed = simulate(clocked, JOBS, _quiet, WINDOW, store, start=MONDAY)
    (now,) = ended
    assert after * HOUR <= now < before * HOUR, "it was ended where its name says"
    assert without_names(resumed) == without_names(clocked_run)


# With an idle rule: a notebook that falls idle, and work that waits for its GPUs


RULED = "tiers:\n  batch: {priority: 100, interruptible: true, idle: {duration: 30m, warnings: 2, action: suspend}}\n"
IDLE_JOBS = (
    Job("notebook", 0, "lender", "main", "a100", 8, 8, 10 * HOUR, "batch", busy=HOUR),
    Job("training", 0, "lender", "main", "a100", 8, 8, 6 * HOUR, "batch"),
    Job("waiting", 10 * MINUTE, "lender", "main", "a100", 8, 8, HOUR, "batch"),
    Job("late", 4 * HOUR, "lender", "main", "a100", 8, 8, 10 * MINUTE, "batch"),
)
SUSPENDED = HOUR + SAMPLE_SECONDS + 3 * 30 * MINUTE


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("ruled") / "small"
    (folder / "tenants").mkdir(parents=True)
    text = ENVIRONMENT.replace("tiers:\n  batch: {priority: 100}\n", RULED).replace("nodes: 4", "nodes: 2")
    extra = "queues: {clock: true}\nmetrics: {collector: existing}\n"
    (folder / "environment.yaml").write_text(text + extra, "utf-8")
    tenant = TENANT.format(name="lender", guaranteed=16, more="sharing: lend")
    (folder / "tenants" / "lender.yaml").write_text(tenant, "utf-8")
    return load(folder)


@pytest.fixture(scope="module")
def suspended(ruled: Loaded) -> Run:
    return simulate(ruled, IDLE_JOBS, _quiet, WINDOW, start=MONDAY)


def facts(run: Run) -> list[tuple[int, EventKind, int]]:
    """Which of two jobs that are submitted at once starts first is Kueue's choice."""
    return sorted((e.time, e.kind, e.job) for e in run.events if e.kind is not EventKind.WAIT)


@pytest.mark.exhaustive(
    reason="a simulation with an idle notebook; the rule is in tests/unit/clock/test_idle.py and tests/unit/simulation"
)
def test_an_idle_notebook_is_suspended_by_the_clocks_rule_and_kueue_gives_its_gpus_to_waiting_work(
    ruled: Loaded, suspended: Run
) -> None:
    (event,) = [event for event in suspended.events if event.kind is EventKind.SUSPEND]
    assert (event.job, event.time, event.returned_seconds) == (0, SUSPENDED, 10 * HOUR - SUSPENDED)
    assert "2 warnings had been given" in event.text
    (start,) = [event.time for event in suspended.events if event.kind is EventKind.START and event.job == 2]
    assert SUSPENDED <= start <= SUSPENDED + 4 * WINDOW
    ended = {event.job for event in suspended.events if event.kind is EventKind.FINISH}
    assert ended == {1, 2, 3}, "what is suspended does not come back"
    results = evaluate(ruled, IDLE_JOBS, suspended, 10 * HOUR)
    (lender,) = results.tenants
    assert (lender.suspended, lender.idle) == (1, pytest.approx(8 * (SUSPENDED - HOUR) / HOUR))


@pytest.mark.exhaustive(reason="a simulation with idle work that is ended; checkpoints are in tests/unit/simulation")
@pytest.mark.parametrize("after", [90 * MINUTE, SUSPENDED], ids=["between two warnings", "after the suspension"])
def test_a_run_with_idle_work_that_is_ended_goes_on_with_its_warnings(
    ruled: Loaded, suspended: Run, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, inner, ended = Store(), Store.save, []
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)

    def keep(self: Store, checkpoint: dict[str, Any]) -> None:
        inner(self, checkpoint)
        if not ended and checkpoint["now"] >= after:
            ended.append(checkpoint["now"])
            raise OSError("ended in the middle")

    monkeypatch.setattr(Store, "save", keep)
    resumed = simulate(ruled, IDLE_JOBS, _quiet, WINDOW, store, start=MONDAY)
    assert ended
    before, resumed_facts = ([fact for fact in facts(run) if fact[0] <= SUSPENDED] for run in (suspended, resumed))
    assert resumed_facts == before
    assert {fact[1:] for fact in facts(resumed)} == {fact[1:] for fact in facts(suspended)}
