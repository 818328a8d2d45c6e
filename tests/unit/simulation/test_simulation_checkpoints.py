"""A simulation that was ended goes on from its last checkpoint, and a slow machine is no stalled one."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answering import answering
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.http_client import HttpAnswer, NoAnswer
from tenancy.lab.layout import LabError
from tenancy.planning import make_plan
from tenancy.simulation import attempts as attempting
from tenancy.simulation import cluster as clusters
from tenancy.simulation import report as reports
from tenancy.simulation.attempts import Unfinished, simulate
from tenancy.simulation.checkpoint import SimulationBusy, Store, events_as_rows, name_of, run_of
from tenancy.simulation.cluster import Pulse, SimulationCluster, SimulationStuck
from tenancy.simulation.events import Event, EventKind, Run, first_part
from tenancy.simulation.results import evaluate
from tenancy.simulation.runner import Runner
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded
from tests.waiting import PATIENCE, until

HOUR = 3600
JOBS = tuple(Job(f"fraud-{n}", n * HOUR, "fraud", "train", "a100", 8, 8, 2 * HOUR, "batch") for n in range(6))
EVENTS = (
    Event(0, EventKind.SUBMIT, 0),
    Event(0, EventKind.WAIT, 0, text="no room"),
    Event(0, EventKind.START, 0, "train"),
    Event(HOUR, EventKind.SUBMIT, 1),
    Event(HOUR, EventKind.EVICT, 0, "train", "Preempted", HOUR, 1),
    Event(2 * HOUR, EventKind.SUBMIT, 2),
)


def checkpoint(**more: Any) -> dict[str, Any]:
    facts = {"done": False, "now": 2 * HOUR, "seconds": 7.0, "looks": 3, "latest": 20}
    return {**facts, "events": events_as_rows(EVENTS), **more}


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    for store in (Store(tmp_path, "one"), Store()):
        assert store.read() is None
        store.save(checkpoint())
        stored_checkpoint = store.read()
        assert stored_checkpoint
        assert run_of(stored_checkpoint) == Run(EVENTS, 7.0, 3, 20)
        store.delete()
        assert store.read() is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"form": 0}', '{"now": 1}'])
def test_a_damaged_checkpoint_or_one_of_another_form_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.json").write_text(content)
    assert Store(tmp_path, "one").read() is None


def test_a_write_that_is_cut_off_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "one")
    store.save(checkpoint())

    def interrupted_replace(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", interrupted_replace)
    with pytest.raises(OSError, match="no space left"):
        store.save(checkpoint(now=3 * HOUR))
    assert (store.read() or {})["now"] == 2 * HOUR


def test_the_same_work_has_one_name_and_every_difference_another(loaded: Loaded) -> None:
    longer = (*JOBS[:-1], Job("fraud-5", 5 * HOUR, "fraud", "train", "a100", 8, 8, 3 * HOUR, "batch"))
    assert name_of(loaded, JOBS, 60) == name_of(loaded, JOBS, 60)
    assert len({name_of(loaded, JOBS, 60), name_of(loaded, JOBS, 61), name_of(loaded, longer, 60)}) == 3


def test_two_runs_do_not_write_one_checkpoint(tmp_path: Path) -> None:
    with (
        Store(tmp_path, "one").hold_lock(),
        Store(tmp_path, "two").hold_lock(),
        pytest.raises(SimulationBusy, match="name another folder with --checkpoints"),
        Store(tmp_path, "one").hold_lock(),
    ):
        pass
    with Store(tmp_path, "one").hold_lock():
        pass


# Attempts


def attempts(monkeypatch: pytest.MonkeyPatch, *steps: int | Exception) -> list[int]:
    """Each attempt keeps a checkpoint at an hour and fails, or fails with what it is given; the last one comes to the
    end. Returns where each began."""
    began: list[int] = []
    pending_steps = list(steps)

    def attempt(_loaded: Loaded, _jobs: object, _say: object, _window: object, store: Store, _start: object) -> Run:
        stored_checkpoint = store.read()
        began.append(stored_checkpoint["now"] if stored_checkpoint else 0)
        if not pending_steps:
            store.save(checkpoint(done=True))
            return Run(EVENTS, 9.0, 3, 20)
        step = pending_steps.pop(0)
        if isinstance(step, Exception):
            raise step
        store.save(checkpoint(now=step))
        raise SimulationStuck("Kueue makes no progress for 300 s")

    monkeypatch.setattr(attempting, "_attempt", attempt)
    return began


def quiet(_line: str) -> None:
    pass


@pytest.mark.parametrize("failure", [TimeoutError("timed out"), ConnectionResetError("reset"), LabError("kueue ended")])
def test_a_failed_cluster_is_replaced_and_the_run_goes_on(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    began = attempts(monkeypatch, HOUR, failure, 2 * HOUR, failure)
    assert simulate(loaded, JOBS, quiet).seconds == 9.0
    assert began == [0, HOUR, HOUR, 2 * HOUR, 2 * HOUR]


def test_a_run_that_gets_no_further_ends_with_what_it_has(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    began = attempts(monkeypatch, 2 * HOUR, *[SimulationStuck("no progress")] * attempting.MAX_ATTEMPTS)
    with pytest.raises(Unfinished, match="no progress") as ended:
        simulate(loaded, JOBS, quiet)
    assert ended.value.now == 2 * HOUR
    assert ended.value.run.events == EVENTS
    assert len(began) == 1 + attempting.MAX_ATTEMPTS


def test_what_is_done_is_not_done_again(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = attempts(monkeypatch)
    store = Store(tmp_path, "one")
    store.save(checkpoint(done=True))
    assert simulate(loaded, JOBS, quiet, None, store) == Run(EVENTS, 7.0, 3, 20)
    assert began == []


def test_the_cluster_that_a_killed_run_left_is_ended(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(monkeypatch)
    ended: list[Path] = []
    monkeypatch.setattr(attempting, "stop_leftover", ended.append)
    store = Store(tmp_path, "one")
    store.record_cluster(tmp_path / "left")
    simulate(loaded, JOBS, quiet, None, store)
    assert ended == [tmp_path / "left"]
    assert store.leftover_cluster() is None


# Partial results


def run_cli(loaded: Loaded, tmp_path: Path, *words: str) -> Any:
    return CliRunner().invoke(
        main, ["simulate", str(loaded.folder), "--jobs", "5", "--checkpoints", str(tmp_path), *words]
    )


def test_partial_results_are_shown_as_such_and_end_with_1(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(monkeypatch, 2 * HOUR, *[SimulationStuck("Kueue makes no progress")] * attempting.MAX_ATTEMPTS)
    out = tmp_path / "page.html"
    result = run_cli(loaded, tmp_path, "--out", str(out))
    assert result.exit_code == 1
    assert "PARTIAL, the first 2.0 hours: simulation of" in result.output
    assert "run the same command again" in result.output
    assert "Traceback" not in result.output
    assert "Partial results, the first 2.0 hours" in out.read_text("utf-8")
    # The next run of the same command comes to the end, and leaves no checkpoint.
    began = attempts(monkeypatch)
    again = run_cli(loaded, tmp_path, "--format", "json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["partial"] is None
    assert began == [2 * HOUR]
    assert list(tmp_path.glob("*.json")) == []


def test_json_says_what_the_results_are_of(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(monkeypatch, 2 * HOUR, *[SimulationStuck("stalled")] * attempting.MAX_ATTEMPTS)
    result = run_cli(loaded, tmp_path, "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["partial"] == {"of": "the first 2.0 hours", "reason": "stalled"}


def test_fresh_starts_at_0(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(monkeypatch, 2 * HOUR, *[SimulationStuck("stalled")] * attempting.MAX_ATTEMPTS)
    run_cli(loaded, tmp_path)
    began = attempts(monkeypatch)
    assert run_cli(loaded, tmp_path, "--ignore-checkpoints").exit_code == 0
    assert began == [0]


def test_nothing_kept_is_a_message_and_no_traceback(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(monkeypatch, *[TimeoutError("timed out")] * attempting.MAX_ATTEMPTS)
    result = run_cli(loaded, tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "timed out" in result.output
    assert isinstance(result.exception, SystemExit)


def test_work_that_had_not_come_yet_is_not_counted(loaded: Loaded) -> None:
    results = evaluate(loaded, JOBS, Run(EVENTS, 1.0, 0, 0), 2 * HOUR)
    assert (results.jobs, results.tenants[0].waits.jobs, results.tenants[0].waits.never) == (3, 3, 2)
    assert evaluate(loaded, JOBS, first_part(Run(EVENTS, 1.0, 0, 0), HOUR), HOUR).jobs == 2


def test_before_and_after_are_of_the_same_hours(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenancy.simulation.trace import Trace

    answers = [Run(EVENTS, 1.0, 0, 0), Unfinished("stalled", Run(EVENTS[:5], 1.0, 0, 0), HOUR)]

    def ran(*_: object) -> Run:
        answer = answers.pop(0)
        if isinstance(answer, Unfinished):
            raise answer
        return answer

    monkeypatch.setattr(reports, "simulate", ran)
    report = reports.run_both(loaded, loaded, Trace(JOBS), 6 * HOUR, None, ["x"], quiet)
    assert report.after
    assert [(results.jobs, results.hours) for results in (report.before, report.after)] == [(2, 1.0), (2, 1.0)]


# Slow machines


@pytest.fixture
def kueue() -> Iterator[tuple[int, threading.Event]]:
    """A server that answers while it is let to."""
    lets = threading.Event()
    lets.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            lets.wait(PATIENCE)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with answering(server):
        yield server.server_address[1], lets
        lets.set()


def test_a_process_that_gets_no_time_has_its_clock_stand_still(kueue: tuple[int, threading.Event]) -> None:
    port, lets = kueue
    pulse = Pulse(port, "/readyz")
    until(lambda: pulse.now() >= 0.1, "the clock goes")
    lets.clear()
    stopped = pulse.now()
    begin = time.monotonic()
    while time.monotonic() - begin < 1.5:
        assert pulse.now() == stopped
    lets.set()
    until(lambda: pulse.now() >= stopped + 0.05, "the clock goes again")
    pulse.close()


def test_the_clock_of_a_process_that_ended_stands_still() -> None:
    pulse = Pulse(1, "/readyz")
    assert {pulse.now() for _ in range(200)} == {0.0}


class Etcd:
    """A connection that fails as often as it is told to."""

    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    def request(self, *_: object) -> HttpAnswer:
        self.asked += 1
        if self.asked <= self.failures:
            raise NoAnswer("timed out")
        return HttpAnswer(200, "OK", b'{"header": {"revision": "7"}, "succeeded": true}')


def cluster_with(etcd: Etcd) -> SimulationCluster:
    cluster = SimulationCluster.__new__(SimulationCluster)
    cluster._etcd = etcd  # ty: ignore[invalid-assignment]
    return cluster


def test_an_etcd_that_answers_too_late_is_asked_again() -> None:
    etcd = Etcd(3)
    cluster_with(etcd).put({"metadata": {"namespace": "a", "name": "b"}})
    assert etcd.asked == 4


def test_an_etcd_that_never_answers_is_a_stalled_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "STALL_SECONDS", 0.2)
    with pytest.raises(SimulationStuck, match=r"did not answer within 0 s \(timed out\)"):
        cluster_with(Etcd(10**9)).put({"metadata": {"namespace": "a", "name": "b"}})


class Alive:
    """A cluster of which nothing is to be seen."""

    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    def ended(self) -> list[str]:
        return self._ended


def runner_with(loaded: Loaded, ended: list[str]) -> Runner:
    runner = Runner(loaded, JOBS, None, make_plan(loaded, loaded.day), HOUR)  # ty: ignore[invalid-argument-type]
    runner.cluster = Alive(ended)  # ty: ignore[invalid-assignment]
    return runner


def test_a_stall_is_no_progress_and_not_a_long_time(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with(loaded, [])
    now = 1000.0
    monkeypatch.setattr("tenancy.simulation.runner.time.monotonic", lambda: now)
    runner._log.progressed = now
    for _ in range(5):
        now += clusters.STALL_SECONDS - 1
        runner._wait(1000.0 + 1400)
        runner._log.process(b'{"logger":"scheduler","msg":"Workload assumed in the cache","workload":{"name":"job-1"}}')
    now += clusters.STALL_SECONDS + 1
    with pytest.raises(SimulationStuck, match="makes no progress for 300 s"):
        runner._wait(now)


def test_scheduling_cycles_without_an_outcome_are_no_progress(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with(loaded, [])
    now = 1000.0
    monkeypatch.setattr("tenancy.simulation.runner.time.monotonic", lambda: now)
    runner._log.progressed = now
    now += clusters.STALL_SECONDS + 1
    runner._log.process(b'{"logger":"scheduler","msg":"Scheduling cycle complete"}')
    with pytest.raises(SimulationStuck, match="makes no progress"):
        runner._wait(now)


def test_a_process_that_ended_is_named_at_once(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with(loaded, ["kueue"])
    now = 1000.0
    monkeypatch.setattr("tenancy.simulation.runner.time.monotonic", lambda: now)
    runner._log.progressed = runner._checked = now
    now += 2
    with pytest.raises(SimulationStuck, match="kueue of the simulation's cluster ended"):
        runner._wait(now)
