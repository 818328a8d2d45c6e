"""Simulations on the real Kueue: small ones, that end by themselves and leave nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tenancy.simulation.changes import changed
from tenancy.simulation.events import Kind, Run
from tenancy.simulation.results import Results, evaluate
from tenancy.simulation.runner import simulate
from tenancy.simulation.trace import Job
from tenancy.spec import Loaded, load

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
  a100: {{guaranteed: {guaranteed}, lend-up-to: {guaranteed}, {more}}}
"""
ENVIRONMENT = """\
environment: small
organisation: {name: bank, departments: {risk: {sharing: lend-and-borrow}}}
platform: {group: gpu-platform-team}
cluster: {name: small, context: small-context}
images:
  registries: [registry.bank.example/shared/]
  sample: registry.bank.example/shared/cuda-sample:13.0
tiers:
  batch: {priority: 100}
flavors:
  a100: {gpu: a100-40gb}
pools:
  train: {instance: p4d.24xlarge, nodes: 4}
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("simulation") / "small"
    (folder / "tenants").mkdir(parents=True)
    (folder / "environment.yaml").write_text(ENVIRONMENT, "utf-8")
    for name, guaranteed, more in (
        ("lender", 16, "sharing: lend"),
        ("borrower", 8, "sharing: lend-and-borrow, borrow-up-to: 24"),
        ("third", 8, "sharing: lend-and-borrow, borrow-up-to: 8"),
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
    return tuple(sorted([*borrower, *lender, *third], key=lambda each: each.submit))


@pytest.fixture(scope="module")
def runs(loaded: Loaded, jobs: tuple[Job, ...]) -> dict[str, Run]:
    """Three runs side by side, each in a process and a cluster of its own: they wait more than they work."""
    strict = changed(loaded, ["lender:gpus.a100={guaranteed: 16, sharing: strict}"])
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        asked = {
            name: pool.submit(simulate, environment, jobs, _quiet, WINDOW)
            for name, environment in (("lent", loaded), ("strict", strict), ("again", loaded))
        }
        return {name: future.result(timeout=150) for name, future in asked.items()}


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
        if event.kind is Kind.START and jobs[event.job].tenant == tenant:
            first.setdefault(event.job, event.time)
    return [start - jobs[number].submit for number, start in first.items()]


@pytest.mark.parametrize("which", ["lent", "strict"])
def test_no_pool_is_ever_used_beyond_its_gpus(
    request: pytest.FixtureRequest, jobs: tuple[Job, ...], which: str
) -> None:
    run: Run = request.getfixturevalue(which)
    used: Counter[int] = Counter()
    for event in run.events:
        sign = {Kind.START: 1, Kind.EVICT: -1, Kind.FINISH: -1}.get(event.kind, 0)
        used[event.time] += sign * jobs[event.job].gpus
    total = 0
    for moment in sorted(used):
        total += used[moment]
        assert 0 <= total <= 32, f"{total} of 32 GPUs in use at {moment}"
    assert total == 0, "everything that started has ended"


def test_every_job_runs_as_long_as_it_needs(lent: Run, jobs: tuple[Job, ...]) -> None:
    ran: dict[int, int] = defaultdict(int)
    started: dict[int, int] = {}
    lost: Counter[int] = Counter()
    for event in lent.events:
        if event.kind is Kind.START:
            started[event.job] = event.time
        elif event.kind in {Kind.EVICT, Kind.FINISH}:
            ran[event.job] += event.time - started.pop(event.job)
            lost[event.job] += event.lost
    assert {number: ran[number] - lost[number] for number in ran} == {n: each.duration for n, each in enumerate(jobs)}


def test_a_lender_gets_back_what_it_lent_at_once(lent: Run, jobs: tuple[Job, ...]) -> None:
    evicted = [event for event in lent.events if event.kind is Kind.EVICT]
    assert evicted
    assert "lender" not in {jobs[event.job].tenant for event in evicted}, "it holds no more than its own"
    assert "lender" in {jobs[event.by].tenant for event in evicted if event.by is not None}
    assert sorted(waits(lent, jobs, "lender"))[:4] == [0, 0, 0, 0], "16 GPUs are its own"


def test_who_shares_with_nobody_never_waits_for_its_own_and_makes_others_wait(
    lent: Run, strict: Run, jobs: tuple[Job, ...]
) -> None:
    assert sorted(waits(strict, jobs, "lender"))[:4] == [0, 0, 0, 0]
    assert [event for event in strict.events if event.kind is Kind.EVICT and jobs[event.job].tenant == "lender"] == []
    before, after = (sum(waits(run, jobs, "borrower")) for run in (lent, strict))
    assert after > before, "what the lender leaves idle stays idle"


def test_the_same_trace_twice_is_the_same_within_the_window(
    loaded: Loaded, runs: dict[str, Run], jobs: tuple[Job, ...]
) -> None:
    one, other = (results(loaded, jobs, runs[name]) for name in ("lent", "again"))
    for before, after in zip(one.tenants, other.tenants, strict=True):
        # What an eviction throws away is used twice, and what starts later uses less before the end.
        moved = sum(each.gpus for each in jobs if each.tenant == before.name) * WINDOW / 3600
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
    ]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("gpu-tenancy-simulation-*/lab/logs/kube-apiserver.log")):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 130, output
    assert b"nothing is left running" in output
    assert list(tmp_path.glob("gpu-tenancy-simulation-*")) == []
    assert _mentions(str(tmp_path)) == []


def _mentions(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            found += [line] if text in line else []
    return found
