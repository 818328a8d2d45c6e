"""A simulation of an environment with a clock, on the real Kueue: a window, a spent budget, and work beside both."""

from __future__ import annotations

import datetime as dt

import pytest

from tenancy.simulation.attempts import simulate
from tenancy.simulation.clocked import EVERY
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.trace import Job
from tenancy.validation import Loaded, load
from tests.cluster.test_simulate import ENVIRONMENT, MINUTE, TENANT, WINDOW

HOUR = 60 * MINUTE
MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
NIGHT = "windows: [{name: night, flavor: a100, gpus: 16, days: mon-sun, starts: '05:00', ends: '07:00'}]\n"
BUDGET = "budget: {monthly-usd: 1000000, monthly-gpu-hours: 8, when-spent: hold}\n"
BORROWS = TENANT.replace("lend-up-to: {guaranteed}, ", "")


def job(name: str, submit: int, gpus: int, minutes: int) -> Job:
    tenant = name.partition("-")[0]
    return Job(name, submit, tenant, "main", "a100", gpus, min(gpus, 8), minutes * MINUTE, "batch")


JOBS = (
    *(job(f"borrower-{n}", n, 4, 600) for n in range(4)),
    job("spender-first", 10, 8, 120),
    job("spender-second", 150 * MINUTE, 1, 10),
    job("risk-early", 230 * MINUTE, 24, 5),
    job("risk-report", 5 * HOUR + 20 * MINUTE, 24, 60),
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("clocked") / "small"
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(ENVIRONMENT + "queues: {clock: true}\n", "utf-8")
    for name, text in {
        "risk": BORROWS.format(name="risk", guaranteed=8, more="sharing: strict") + NIGHT,
        "spender": BORROWS.format(name="spender", guaranteed=8, more="sharing: strict") + BUDGET,
        "borrower": BORROWS.format(name="borrower", guaranteed=0, more="sharing: lend-and-borrow, borrow-up-to: 24"),
    }.items():
        (folder / "tenants" / f"{name}.yaml").write_text(text, "utf-8")
    return load(folder)


@pytest.fixture(scope="module")
def run(loaded: Loaded) -> Run:
    return simulate(loaded, JOBS, lambda _: None, WINDOW, start=MONDAY)


def of(run: Run, name: str, kind: EventKind) -> list[Event]:
    number = next(n for n, each in enumerate(JOBS) if each.name == name)
    return [event for event in run.events if event.job == number and event.kind is kind]


def test_a_window_is_free_at_its_start_and_taken_from_borrowers_in_its_lead(run: Run) -> None:
    (early,) = of(run, "risk-early", EventKind.START)
    assert 5 * HOUR <= early.time <= 5 * HOUR + EVERY, "24 GPUs are there in the window alone"
    (report,) = of(run, "risk-report", EventKind.START)
    assert report.time == JOBS[-1].submit
    evicted = [event for n in range(4) for event in of(run, f"borrower-{n}", EventKind.EVICT)]
    assert len(evicted) == 4
    assert all(4 * HOUR + 45 * MINUTE <= event.time <= 4 * HOUR + 50 * MINUTE for event in evicted)
    back = [of(run, f"borrower-{n}", EventKind.START)[-1].time for n in range(4)]
    assert all(time >= report.time + HOUR for time in back)


def test_a_spent_budget_holds_new_work_and_not_running_work(run: Run) -> None:
    (finish,) = of(run, "spender-first", EventKind.FINISH)
    assert finish.time == JOBS[4].submit + 2 * HOUR
    assert of(run, "spender-second", EventKind.START) == []


def test_reservations_are_no_jobs_of_the_trace(run: Run) -> None:
    assert {event.job for event in run.events} == set(range(len(JOBS)))
