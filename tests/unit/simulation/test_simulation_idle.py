"""Idle rules in a simulation: when they look, what they suspend, and what the report says of it."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.cli import main
from tenancy.clock.idle import SETTLED_SECONDS, Sample, Work, decide
from tenancy.clock.usage import IdleTime
from tenancy.kube.objects import Object
from tenancy.planning.queueing.queue_names import queue_resource
from tenancy.simulation import report as reports
from tenancy.simulation.changes import with_changes
from tenancy.simulation.checkpoint import name_of
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.idling import SAMPLE_SECONDS, SimulatedIdle, idle_times, with_owner
from tenancy.simulation.page import page
from tenancy.simulation.report import SimulationReport, run_both
from tenancy.simulation.results import Results, evaluate
from tenancy.simulation.trace import Job, Trace
from tenancy.spec.fields.tiers import IdleRule
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder, every, examples
from tests.spec_cases import ENV

MINUTE, HOUR = 60, 3600
START = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
RULED = "    interruptible: true\n    idle: {duration: %s, warnings: 2, action: suspend}\n"
SPACE = "fraud--train"
NOTEBOOK = Job("notebook", 0, "fraud", "train", "a100", 1, 1, 10 * HOUR, "batch", busy=HOUR)


def ruled(spec: SpecFolder, after: str = "30m") -> Loaded:
    spec.add(ENV, "queues: {clock: true}\nmetrics: {collector: existing}\n")
    spec.edit(ENV, "    interruptible: true\n", RULED % after)
    return spec.load()


@pytest.fixture
def idle(spec: SpecFolder) -> Loaded:
    return ruled(spec)


def workload(loaded: Loaded, number: int, gpus: int = 1) -> Object:
    """Admitted work as Kueue writes it."""
    resource = queue_resource(loaded.environment, "a100")
    podset = {"flavors": {resource: "train"}, "resourceUsage": {resource: str(gpus)}}
    admitted = {"type": "Admitted", "status": "True"}
    item = {
        "metadata": {"name": f"job-{number}", "namespace": SPACE, "uid": "x"},
        "spec": {"active": True},
        "status": {"admission": {"podSetAssignments": [podset]}, "conditions": [admitted]},
    }
    return with_owner(item, f"{number}-1")


def looks(rules: SimulatedIdle, loaded: Loaded, end: int, gpus: int = 1) -> Iterator[tuple[int, list[str], list[str]]]:
    """Every look up to `end`, with the works that it warns and suspends; what is suspended ends at once."""
    while (now := rules.next()) is not None and now <= end:
        idle_work = rules.look(now, [workload(loaded, number, gpus) for number in rules.idle_from])
        suspended = [work.name for work, _ in idle_work.suspensions]
        yield now, [work.name for work, _ in idle_work.warnings], suspended
        for name in suspended:
            rules.ended(int(name.removeprefix("job-")))


def suspended_at(loaded: Loaded, *jobs: Job) -> dict[str, int]:
    """When jobs that start at once are suspended."""
    rules = SimulatedIdle(loaded, START)
    for number, job in enumerate(jobs):
        rules.started(number, job, SPACE, 0, 0)
    return {name: now for now, _, names in looks(rules, loaded, 10 * HOUR) for name in names}


def test_an_idle_notebook_is_suspended_after_its_warnings_and_busy_work_is_never_looked_at(idle: Loaded) -> None:
    rules = SimulatedIdle(idle, START)
    rules.started(0, NOTEBOOK, SPACE, 0, 0)
    rules.started(1, replace(NOTEBOOK, busy=None), SPACE, 0, 0)
    rules.started(2, replace(NOTEBOOK, busy=NOTEBOOK.duration), SPACE, 0, 0)
    assert rules.idle_from == {0: HOUR}
    idle_looks = list(looks(rules, idle, 10 * HOUR))
    assert idle_looks[0] == (HOUR + SAMPLE_SECONDS, [], []), "the first look of which every sample is idle"
    steps = [(now, warned, ended) for now, warned, ended in idle_looks if warned or ended]
    first = HOUR + SAMPLE_SECONDS
    assert steps == [
        (first + 30 * MINUTE, ["job-0"], []),
        (first + 60 * MINUTE, ["job-0"], []),
        (first + 90 * MINUTE, [], ["job-0"]),
    ]
    assert rules.next() is None, "nothing is left to look at"


def test_work_is_idle_when_every_sample_of_a_look_is(idle: Loaded) -> None:
    rules = SimulatedIdle(idle, START)
    rules.started(0, NOTEBOOK, SPACE, 0, 0)
    rules.started(1, replace(NOTEBOOK, busy=HOUR + MINUTE), SPACE, 0, 0)
    course = looks(rules, idle, 10 * HOUR)
    assert next(course)[0] == HOUR + SAMPLE_SECONDS
    assert set(rules.idle) == {"0-1"}, "half of the samples of the other are busy"
    assert next(course)[0] == HOUR + MINUTE + SAMPLE_SECONDS
    assert set(rules.idle) == {"0-1", "1-1"}


def test_looks_are_never_further_apart_than_the_clocks_samples_cover(idle: Loaded) -> None:
    rules = SimulatedIdle(idle, START)
    for number, busy in enumerate((HOUR, HOUR + 50, HOUR + 3 * MINUTE)):
        rules.started(number, replace(NOTEBOOK, busy=busy), SPACE, 0, 0)
    times = [now for now, _, _ in looks(rules, idle, 10 * HOUR)]
    assert len(times) > 40
    assert every(0 < next_time - now <= SAMPLE_SECONDS for now, next_time in itertools.pairwise(times))


@settings(max_examples=examples(100))
@given(
    busy=st.integers(0, 4 * HOUR),
    after=st.integers(1, 120),
    warn=st.integers(1, 4),
)
def test_a_suspension_comes_when_the_clock_of_a_cluster_would_make_it(
    loaded: Loaded, busy: int, after: int, warn: int
) -> None:
    """Its looks are 30 seconds apart, on samples of two minutes; each step of the simulation is up to a look late."""
    rule = IdleRule.model_validate({"duration": f"{after}m", "warnings": warn, "action": "suspend"})
    work = Work("u", SPACE, "job-0", rule, 1, frozenset({"Job/job-0"}))
    real = _real(work, busy)
    tiers = loaded.environment.tiers
    tier = tiers["batch"].model_copy(update={"idle": rule})
    environment = loaded.environment.model_copy(update={"tiers": {**tiers, "batch": tier}})
    rules = SimulatedIdle(replace(loaded, environment=environment), START)
    rules.started(0, replace(NOTEBOOK, duration=60 * HOUR, busy=busy), SPACE, 0, 0)
    ends = [now for now, _, names in looks(rules, loaded, 60 * HOUR) if names]
    assert len(ends) == 1
    assert -SETTLED_SECONDS - 30 <= ends[0] - real <= (warn + 1) * SAMPLE_SECONDS


def _real(work: Work, busy: int) -> int:
    """Second at which the clock of a cluster suspends work that is idle from `busy` on."""
    sample = Sample(SPACE, "p", "Job/job-0", "GPU-1", 0.0)
    record: dict[str, IdleTime] = {}
    for second in range(0, 60 * HOUR, 30):
        quiet = second - SETTLED_SECONDS - SAMPLE_SECONDS >= busy
        at = START + dt.timedelta(seconds=second)
        decision = decide([work], [sample] if quiet else [], at, record, at - dt.timedelta(seconds=30))
        record = dict(decision.idle)
        if decision.suspensions:
            return second
    raise AssertionError("it is never suspended")


def test_a_rule_shorter_than_a_look_is_looked_at_as_often_as_it_needs(spec: SpecFolder) -> None:
    assert suspended_at(ruled(spec, "1m"), NOTEBOOK) == {"job-0": HOUR + SAMPLE_SECONDS + 3 * MINUTE}


def test_in_a_relief_of_the_environment_nothing_is_suspended(spec: SpecFolder) -> None:
    loaded = ruled(spec)
    spec.edit(
        ENV,
        "queues: {clock: true}",
        "queues: {clock: true, budget-exemption: {until: 2026-11-23, reason: an incident, owner: a@bank.example}}",
    )
    assert suspended_at(loaded, NOTEBOOK) != {}
    assert suspended_at(spec.load(), NOTEBOOK) == {}


def test_work_of_other_tiers_and_of_shared_gpus_is_not_under_the_rule(idle: Loaded) -> None:
    rules = SimulatedIdle(idle, START)
    rules.started(0, replace(NOTEBOOK, flavor="l4-shared"), SPACE, 0, 0)
    rules.started(1, NOTEBOOK, "fraud--serve", 0, 0)
    assert rules.idle_from == {}
    rules.started(2, NOTEBOOK, SPACE, 0, 0)
    assert rules.idle_from == {2: HOUR}


def test_saved_work_is_not_done_again_and_an_evicted_job_begins_anew(idle: Loaded) -> None:
    rules = SimulatedIdle(idle, START)
    rules.started(0, NOTEBOOK, SPACE, 5 * HOUR, 20 * MINUTE)
    assert rules.idle_from == {0: 5 * HOUR + 40 * MINUTE}
    rules.ended(0)
    rules.started(0, NOTEBOOK, SPACE, 7 * HOUR, 2 * HOUR)
    assert rules.idle_from == {0: 7 * HOUR}, "it was idle before"


@pytest.mark.parametrize("stop", [HOUR, HOUR + 10 * MINUTE, HOUR + 70 * MINUTE, HOUR + 91 * MINUTE])
def test_a_run_that_is_continued_gives_the_warnings_once(idle: Loaded, stop: int) -> None:
    uninterrupted = SimulatedIdle(idle, START)
    uninterrupted.started(0, NOTEBOOK, SPACE, 0, 0)
    expected = list(looks(uninterrupted, idle, 10 * HOUR))
    first = SimulatedIdle(idle, START)
    first.started(0, NOTEBOOK, SPACE, 0, 0)
    first_looks = list(looks(first, idle, stop))
    stored_state = json.loads(json.dumps(first.text()))
    second = SimulatedIdle(idle, START)
    second.restore(stored_state)
    second.started(0, NOTEBOOK, SPACE, 0, 0)
    assert [*first_looks, *looks(second, idle, 10 * HOUR)] == expected


# What a run amounts to


JOBS = (
    NOTEBOOK,
    replace(NOTEBOOK, name="open", busy=2 * HOUR),
    Job("r", 0, "research", "main", "a100", 8, 8, HOUR, "batch"),
)
END = 4 * HOUR
EVENTS = (
    *(Event(0, EventKind.SUBMIT, n) for n in range(3)),
    *(Event(0, EventKind.START, n, "train") for n in range(3)),
    Event(HOUR, EventKind.FINISH, 2, "train"),
    Event(3 * HOUR, EventKind.SUSPEND, 0, "train", "idle", returned_seconds=7 * HOUR),
)


@pytest.fixture
def results(loaded: Loaded) -> Results:
    return evaluate(loaded, JOBS, Run(EVENTS, 1.0, 0, 0), END)


def test_idle_gpu_hours_are_those_that_were_held_and_not_used(results: Results) -> None:
    assert sorted(idle_times(JOBS, Run(EVENTS, 1.0, 0, 0), END)) == [
        (0, "train", HOUR, 3 * HOUR),
        (1, "train", 2 * HOUR, END),
    ]
    fraud = next(group for group in results.tenants if group.name == "fraud")
    assert (fraud.used, fraud.idle, fraud.suspended, fraud.back) == (7.0, 4.0, 1, 7.0)
    batch = next(group for group in results.tiers if group.name == "batch")
    assert (batch.used, batch.idle, batch.suspended, batch.back) == (15.0, 4.0, 1, 7.0)
    (train,) = [pool for pool in results.pools if pool.name == "train"]
    assert train.busy == pytest.approx(11 / (train.gpus * 4))
    assert train.share == pytest.approx(15 / (train.gpus * 4))


def test_an_evicted_job_is_idle_again_after_the_work_that_it_lost() -> None:
    events = (
        Event(0, EventKind.START, 0, "train"),
        Event(2 * HOUR, EventKind.EVICT, 0, "train", lost_seconds=90 * MINUTE),
        Event(3 * HOUR, EventKind.START, 0, "train"),
        Event(4 * HOUR, EventKind.FINISH, 0, "train"),
    )
    periods = list(idle_times(JOBS, Run(events, 1.0, 0, 0), END))
    assert periods == [(0, "train", HOUR, 2 * HOUR), (0, "train", 3 * HOUR + 30 * MINUTE, 4 * HOUR)]


def test_the_report_compares_idle_gpus_before_and_after(loaded: Loaded, results: Results) -> None:
    original = evaluate(loaded, JOBS, Run(EVENTS[:-1], 1.0, 0, 0), END)
    runs = (Run(EVENTS[:-1], 1.0, 0, 0), Run(EVENTS, 1.0, 0, 0))
    report = SimulationReport("small", ("an idle rule",), (), original, results, runs, 30)
    table = next(table for table in report.tables() if table.title == "Idle GPUs")
    assert table.rows == [("fraud", "5 → 4", "0 → 1", "0 → 7")]
    pools = next(table for table in report.tables() if table.title == "Pools")
    assert pools.header == ("pool", "GPUs", "in use", "busy", "max", "in use after", "busy after", "max after")
    text = page(report)
    assert "suspended because idle" in text
    assert "0 → 1" in text
    assert json.loads(json.dumps(report.as_json()))["after"]["tenants"][0]["suspended"] == 1
    assert len({len(row) for row in report.rows()}) == 1


def test_a_trace_that_says_nothing_of_activity_has_no_figures_of_it(loaded: Loaded) -> None:
    jobs = tuple(replace(job, busy=None) for job in JOBS)
    results = evaluate(loaded, jobs, Run(EVENTS[:-1], 1.0, 0, 0), END)
    report = SimulationReport("small", (), (), results, None, (Run(EVENTS[:-1], 1.0, 0, 0),), 30)
    assert "Idle GPUs" not in {table.title for table in report.tables()}
    assert next(table for table in report.tables() if table.title == "Pools").header == (
        "pool",
        "GPUs",
        "in use",
        "max",
    )
    assert "suspended because idle" not in page(report)


@pytest.mark.parametrize(
    ("jobs", "note_text"),
    [(JOBS, "idle rules look every 2 minutes"), (JOBS[2:], "idle rules find nothing: no job of the trace says when")],
)
def test_the_report_says_what_idle_rules_were_given(
    idle: Loaded, jobs: tuple[Job, ...], note_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "simulate", lambda *_: Run((Event(0, EventKind.SUBMIT, 0),), 1.0, 0, 0))
    report = run_both(idle, None, Trace(jobs), END, 60, (), lambda _: None)
    assert any(note_text in note for note in report.notes), report.notes


def test_another_idle_rule_is_a_change_and_another_run(idle: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_spec = with_changes(idle, ["environment:tiers.batch.idle.duration=60m"])
    monkeypatch.setattr(reports, "simulate", lambda *_: Run((Event(0, EventKind.SUBMIT, 0),), 1.0, 0, 0))
    messages: list[str] = []
    run_both(idle, changed_spec, Trace(JOBS), END, 60, ("x",), messages.append)
    assert not any("affects no queue" in line for line in messages)
    assert name_of(idle, JOBS, 60) != name_of(changed_spec, JOBS, 60)


def test_a_wrong_time_of_idleness_ends_with_2_before_anything_starts(loaded: Loaded, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit,tenant,gpus,duration,busy\n0,fraud,1,60,90\n", "utf-8")
    result = CliRunner().invoke(main, ["simulate", str(loaded.folder), "--trace", str(path)])
    assert result.exit_code == 2
    assert f"{path}:2:14: busy: given '90'; rule seconds of the run time, from 0 to 60; change: " in result.output
