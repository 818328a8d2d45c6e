"""Results of a run, on events made by hand, against arithmetic made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tenancy.catalog.waits import percentile, time
from tenancy.kube.quota_tree import FlavorQuota
from tenancy.planning import make_plan
from tenancy.planning.common.meta import Meta
from tenancy.planning.queueing.queue_objects import OPEN, ClusterQueue, Cohort, ResourceGroup
from tenancy.simulation.changes import with_changes
from tenancy.simulation.cluster import CYCLE_STARTS, HEADS_OBTAINED
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.page import page
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.report import SimulationReport, kueue_settings, shorten_reason, wait
from tenancy.simulation.results import BINS, Results, evaluate, jain, lending, waits_of
from tenancy.simulation.runner import MOVING_SECONDS, Runner
from tenancy.simulation.trace import Job, Trace, must_fit
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.problems import SpecError
from tests.conftest import every

HOUR = 3600


def job(
    tenant: str, gpus: int, submit: int = 0, flavor: str = "a100", namespace: str = "train", tier: str = "batch"
) -> Job:
    return Job(f"{tenant}-{submit}", submit, tenant, namespace, flavor, gpus, 1, 2 * HOUR, tier)


JOBS = (
    job("fraud", 24),
    job("research", 8, HOUR, namespace="main"),
    job("fraud", 16, 2 * HOUR),
    job("fraud", 2, 0, "a100-1g.5gb", "serve", "production"),
)
EVENTS = (
    Event(0, EventKind.SUBMIT, 0),
    Event(0, EventKind.START, 0, "train"),
    Event(0, EventKind.SUBMIT, 3),
    Event(0, EventKind.START, 3, "serve"),
    Event(HOUR, EventKind.SUBMIT, 1),
    Event(HOUR, EventKind.WAIT, 1, text="no room"),
    Event(HOUR + 600, EventKind.EVICT, 0, "train", "Preempted", HOUR + 600, 1),
    Event(HOUR + 600, EventKind.START, 1, "train"),
    Event(2 * HOUR, EventKind.SUBMIT, 2),
    Event(2 * HOUR, EventKind.START, 2, "train"),
    Event(2 * HOUR, EventKind.FINISH, 3, "serve"),
    Event(3 * HOUR, EventKind.FINISH, 1, "train"),
    Event(4 * HOUR, EventKind.FINISH, 2, "train"),
)


@pytest.fixture(scope="module")
def results(loaded: Loaded) -> Results:
    return evaluate(loaded, JOBS, Run(EVENTS, 1.0, 2, 30), 4 * HOUR)


def group(results: Results, name: str):
    return next(candidate for candidate in (*results.tenants, *results.tiers) if candidate.name == name)


def test_hours_are_split_at_the_guarantee(results: Results) -> None:
    fraud = group(results, "fraud")
    # 24 GPUs for 70 minutes, 16 for two hours, and two sevenths of a GPU for two hours.
    assert fraud.used == pytest.approx(24 * 70 / 60 + 16 * 2 + 2 * 2 / 7)
    # Of 24 the guarantee is 16.
    assert fraud.borrowed == pytest.approx(8 * 70 / 60)
    assert fraud.guaranteed == pytest.approx(fraud.used - fraud.borrowed)


def test_unallocated_gpus_are_lent_by_no_tenant(results: Results) -> None:
    assert group(results, "research").lent == 0, "32 GPUs, 24 promised: the 8 borrowed were unallocated"


def test_idle_guarantees_are_lent_in_proportion_after_what_is_spare() -> None:
    assert lending({"a": 6.0, "b": 2.0}, 7.0, 3.0) == {"a": 3.0, "b": 1.0}
    assert lending({"a": 6.0, "b": 2.0}, 3.0, 3.0) == {"a": 0.0, "b": 0.0}
    assert lending({"a": 1.0}, 9.0, 3.0) == {"a": 1.0}, "no more than is idle"
    assert lending({}, 9.0, 3.0) == {}


def test_a_wait_ends_at_the_first_start(results: Results) -> None:
    research = group(results, "research").waits
    assert (research.jobs, research.never, research.p50, research.max) == (1, 0, 600, 600)
    assert group(results, "fraud").waits.max == 0, "what was evicted had started"
    assert group(results, "batch").waits.jobs == 3


def test_an_eviction_counts_what_it_threw_away_and_for_whom(results: Results) -> None:
    fraud = group(results, "fraud")
    assert fraud.evictions == 1
    assert fraud.lost == pytest.approx(24 * (HOUR + 600) / HOUR)
    assert results.evictions == {"research": {"fraud": 1}}
    assert sum(results.evicted) == 1


def test_a_pool_is_used_by_the_area_under_its_jobs(results: Results) -> None:
    (train,) = (pool for pool in results.pools if pool.name == "train")
    assert train.gpus == 32
    assert train.used == pytest.approx(24 * 70 / 60 + 8 * 110 / 60 + 16 * 2)
    assert train.share == pytest.approx(train.used / (32 * 4))
    assert train.most == 24, "16 and 8 at once"
    (serve,) = (pool for pool in results.pools if pool.name == "serve")
    assert serve.gpus == pytest.approx(24), "seven slices are a whole GPU"


def test_parts_of_the_time_add_up_to_the_whole(results: Results) -> None:
    for name in ("fraud", "research"):
        assert sum(results.use[name]) * results.bin_seconds / HOUR == pytest.approx(group(results, name).used)
    assert len(results.fairness) == BINS


def test_who_waited_longest_comes_with_the_reason_and_who_had_more(results: Results) -> None:
    (first, *_further) = results.longest
    assert (first.job, first.waited, first.reason) == (f"research-{HOUR}", 600, "no room")
    assert first.above == {"fraud": 8}


def test_a_percentile_is_a_value_that_was_there() -> None:
    values = list(range(1, 21))
    assert [percentile(values, part) for part in (0.5, 0.95, 1.0)] == [10, 19, 20]
    assert percentile([7], 0.5) == 7
    assert percentile([], 0.5) is None


def test_who_never_started_waited_longer_than_all_others() -> None:
    assert [percentile([1, 2, 3], part, 1) for part in (0.5, 0.75, 0.95)] == [2, 3, None]
    waits = waits_of([3, 1, 2], 1)
    assert (waits.jobs, waits.p50, waits.p95, waits.max, waits.mean) == (4, 2, None, None, 2)
    assert [wait(waits, seconds) for seconds in (waits.p50, waits.max)] == ["2s", "never"]
    none = waits_of([], 0)
    assert wait(none, none.max) == "–"


def test_jain_is_one_where_all_have_the_same() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([1, 2]) == pytest.approx(9 / 10)
    assert jain([0, 0]) is None


def test_a_job_that_never_started_is_said(loaded: Loaded) -> None:
    results = evaluate(loaded, JOBS[:1], Run((Event(0, EventKind.SUBMIT, 0),), 1.0, 0, 0), HOUR)
    assert group(results, "fraud").waits.never == 1
    assert group(results, "fraud").waits.p50 is None
    (longest,) = results.longest
    assert (longest.job, longest.waited, longest.started) == ("fraud-0", 0, False), "though nothing came after it"


def test_a_tier_has_no_guarantee_to_borrow_above(results: Results) -> None:
    report = SimulationReport("small", ("fraud:weight=2",), (), results, results, (Run(EVENTS, 1.0, 2, 30),) * 2, 30)
    tenants, tiers, *_ = report.tables()
    assert set(tenants.header) - set(tiers.header) == {"borrowed", "lent"}, (
        "a nought would say that it borrowed nothing"
    )
    assert not {"guaranteed", "borrowed", "lent"} & set(report.as_json()["before"]["tiers"][0])
    header, *rows = report.rows()
    assert {row[header.index("borrowed")] for row in rows if row[1] == "tier"} == {None}
    assert every(len(row) == len(tiers.header) for row in tiers.rows)


def test_of_two_runs_each_says_what_never_started(loaded: Loaded) -> None:
    results = evaluate(loaded, JOBS[:1], Run((Event(0, EventKind.SUBMIT, 0),), 1.0, 0, 0), HOUR)
    report = SimulationReport("small", ("fraud:weight=2",), (), results, results, (Run((), 1.0, 2, 30),) * 2, 30)
    remarks = next(iter(report.tables())).remarks
    assert remarks == ["never started before: fraud 1", "never started after: fraud 1"]
    drawn = page(report)
    assert "more than 5 % never started: fraud" in drawn
    assert '<span class="soft">longest wait</span><b>never</b>' in drawn


def test_who_may_not_borrow_does_not_wait_to(loaded: Loaded) -> None:
    waiting = job("fraud", 32), job("research", 16, 0, namespace="main")
    events = Run(tuple(Event(0, EventKind.SUBMIT, number) for number in range(2)), 1.0, 0, 0)
    starts = Run((*events.events, Event(0, EventKind.START, 1, "train")), 1.0, 0, 0)
    assert evaluate(loaded, waiting, starts, HOUR).mean_fairness == pytest.approx(0.5), "one of two has all"
    environment = loaded.environment
    batch = environment.tiers["batch"].model_copy(update={"allow_borrowing": False})
    environment = environment.model_copy(update={"tiers": {**environment.tiers, "batch": batch}})
    firm = replace(loaded, environment=environment)
    assert evaluate(firm, waiting, starts, HOUR).mean_fairness is None, "alone among those that may"


def test_the_page_holds_everything_and_makes_no_request(results: Results) -> None:
    report = SimulationReport("small", ("fraud:weight=2",), (), results, results, (Run(EVENTS, 1.0, 2, 30),) * 2, 30)
    text = page(report)
    assert not re.search(r"(src|href)=|https?://|@import|<script", text), "one file, no network"
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") == 9, "four pairs and the waiting times"
    assert text.count('"GPUs in use by tenant"') == text.count('"GPUs borrowed by tenant"') == 2, (
        "said to who cannot see"
    )
    json.dumps(report.as_json())
    assert len({len(row) for row in report.rows()}) == 1


def test_what_only_one_of_two_runs_has_is_in_the_report(results: Results) -> None:
    fraud, research = (group(results, name) for name in ("fraud", "research"))
    serve, train = (next(pool for pool in results.pools if pool.name == name) for name in ("serve", "train"))
    before = replace(results, tenants=(fraud, research), pools=(train,))
    after = replace(results, tenants=(fraud,), pools=(replace(train, gpus=64.0), serve))
    report = SimulationReport("small", ("fraud:weight=2",), (), before, after, (Run(EVENTS, 1.0, 2, 30),) * 2, 30)
    tenants, _, pools, *_ = report.tables()
    assert [row[0] for row in tenants.rows] == ["fraud", "research"]
    assert tenants.rows[1][5] == f"{round(research.used)} → 0"
    assert [row[:3] for row in pools.rows] == [
        ("serve", "0 → 24", "–"),
        ("train", "32 → 64", f"{train.share:.0%}"),
    ], "a pool that a change makes larger, and one that it makes"


def test_a_change_that_reaches_no_queue_is_said(loaded: Loaded) -> None:
    for change in ("fraud:budget={monthly-usd: 7}", "fraud:gpus.a100.guaranteed=16"):
        assert kueue_settings(with_changes(loaded, [change])) == kueue_settings(loaded), "Kueue is given the same"
    for change in ("fraud:weight=7", "fraud:gpus.a100.guaranteed=15", "environment:pools.train.nodes=5"):
        assert kueue_settings(with_changes(loaded, [change])) != kueue_settings(loaded), change


def test_the_report_says_of_which_hours_it_speaks(results: Results) -> None:
    report = SimulationReport("small", (), (), results, None, (Run(EVENTS, 1.0, 2, 30),), 30)
    assert any("cover the first 4 hours, until all work was submitted" in remark for remark in report.remarks)


def test_lengths_of_time_read_as_people_say_them() -> None:
    assert [time(seconds) for seconds in (None, 5, 90, 3600, 25200 + 120)] == ["–", "5s", "2m", "1h00", "7h02"]
    assert shorten_reason("couldn't assign flavors to pod set main: a, insufficient b") == "a"


def test_work_without_a_place_after_the_change_is_refused(loaded: Loaded) -> None:
    must_fit(Trace(JOBS), loaded)
    with pytest.raises(SpecError, match="no place for job"):
        must_fit(Trace((job("fraud", 1, flavor="l4-shared"),)), loaded)
    with pytest.raises(SpecError, match="a100 in train, queue fast, tier batch"):
        must_fit(Trace((replace(JOBS[0], queue="fast"),)), loaded)


def groups(*quota: int) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup(("gpu",), {"pool": {"gpu": FlavorQuota(*quota)}}),)


def test_quotas_say_who_could_start_without_an_eviction() -> None:
    def queue(name: str, *quota: int) -> ClusterQueue:
        return ClusterQueue(Meta(name, {}), "root", {}, groups(*quota), 1, strict=False, stop=OPEN)

    quotas = Quotas([queue("lender", 8, 0, 6), queue("borrower", 2, 5, 2)], [Cohort(Meta("root", {}), None, groups(4))])
    assert quotas.fits("borrower", "gpu", 7), "its 2, and 5 of the 10 that others let it have"
    assert not quotas.fits("borrower", "gpu", 8), "its limit"
    quotas.use("lender", "pool", "gpu", 8)
    assert quotas.fits("borrower", "gpu", 6), "its 2 and the root's 4"
    assert not quotas.fits("borrower", "gpu", 7)
    quotas.use("borrower", "pool", "gpu", 6)
    assert not quotas.fits("lender", "gpu", 1)
    quotas.use("lender", "pool", "gpu", -8)
    assert quotas.fits("lender", "gpu", 8), "its own guarantee was never another tenant's"
    quotas.use("borrower", "pool", "gpu", -6)
    assert quotas.fits("borrower", "gpu", 7)


def log_line(what: str) -> bytes:
    return f'{{"logger":"inadmissible_workload_requeue_worker","msg":"{what}"}}'.encode()


def test_kueue_does_not_rest_between_moving_and_having_moved(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(loaded, loaded.day)
    runner = Runner(loaded, JOBS, None, plan, HOUR)  # ty: ignore[invalid-argument-type]
    now = 100.0
    monkeypatch.setattr("tenancy.simulation.runner.time.monotonic", lambda: now)
    assert runner._rests()
    runner._log.process(log_line("Attempting to move workloads"))
    assert not runner._rests(), "waiting workloads may be moved yet, and the scheduler has not looked at them"
    runner._log.process(log_line("Moved inadmissible workloads in tree"))
    assert not runner._rests(), "they have not been looked at"
    runner._log.process(b'{"logger":"scheduler",' + HEADS_OBTAINED + b',"headCount":1,}')
    runner._log.process(b'{"logger":"scheduler",' + CYCLE_STARTS + b"}")
    assert runner._rests()
    runner._log.process(log_line("Attempting to move workloads"))
    now += MOVING_SECONDS
    assert runner._rests(), "there was no workload to move"


def test_a_run_waits_for_kueues_last_word(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(loaded, JOBS, None, make_plan(loaded, loaded.day), HOUR)  # ty: ignore[invalid-argument-type]
    monkeypatch.setattr("tenancy.simulation.runner.LAST_WORD_SECONDS", 0.05)
    monkeypatch.setattr(runner, "_settle", lambda: None)
    assert not runner._may_start_more(), "no workload is started"
    monkeypatch.setattr(runner, "_settle", lambda: runner._ends.append((HOUR, 0, 1)))
    assert runner._may_start_more()
