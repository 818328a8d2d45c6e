"""Decisions of the clock at an instant, from specs and a record: no cluster, and no time but the given one."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.catalog import vocabulary
from tenancy.clock.decision import KEY, Desired, desired
from tenancy.clock.status import budget_status
from tenancy.clock.usage import Meter, Usage, empty, next_month
from tenancy.cluster.api import Response
from tenancy.cluster.drift import Drift, foreign_drift, revert_drift
from tenancy.components.kubernetes.manifest import Manifest
from tenancy.kube.objects import Object
from tenancy.kube.quantities import units
from tenancy.planning import make_plan
from tenancy.spec.fields.queues import StopPolicy
from tenancy.spec.loader import Loaded, load
from tenancy.spec.reading.problems import SpecError
from tests.conftest import FILES, SpecFolder, nonempty
from tests.spec_cases import ENV, FRAUD, RESEARCH

CLOCK = "queues: {clock: true}\n"
WINDOW = "gpu-windows:\n  - {name: close, flavor: a100, gpus: 8, days: mon-fri, starts: '17:00', ends: '20:00'}\n"
GPU = "nvidia.com/gpu"
HOLDS = "budget: {monthly-usd: 180000, monthly-gpu-hours: 100, when-spent: hold}"
MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def clocked(spec: SpecFolder, tenant: str = FRAUD, more: str = WINDOW) -> Loaded:
    spec.add(ENV, CLOCK)
    spec.add(tenant, more)
    return spec.load()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """fraud with a window, and both tenants with budgets that bind."""
    folder = tmp_path_factory.mktemp("clock") / "small"
    spec = SpecFolder(folder)
    spec.add(ENV, CLOCK)
    spec.add(FRAUD, WINDOW)
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", HOLDS)
    stops = "budget: {monthly-usd: 500, monthly-gpu-hours: 50, when-spent: stop, grace-period: 2h}\n"
    spec.add(RESEARCH, stops)
    return spec.load()


def at(loaded: Loaded, now: dt.datetime, usage: Usage | None = None, admitted: tuple[str, ...] = ()) -> Desired:
    return desired(loaded.environment, loaded.tenants, now, usage or empty(now), admitted)


def clock(hour: int, minute: int = 0) -> dt.datetime:
    return MONDAY + dt.timedelta(hours=hour, minutes=minute)


def nominal(decision: Desired, name: str) -> int:
    """Whole A100 of a queue or Cohort."""
    (item,) = [queue for queue in decision.queues if queue["metadata"]["name"] == name]
    return gpus(item)


def gpus(item: Object) -> int:
    return sum(
        units(resource["nominalQuota"])
        for group in item["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == GPU
    )


def stop(decision: Desired, name: str) -> str:
    (item,) = [queue for queue in decision.queues if queue["metadata"]["name"] == name]
    return str(item["spec"]["stopPolicy"])


def test_outside_of_windows_the_queues_are_as_planned(world: Loaded) -> None:
    plan = make_plan(world, world.day)
    planned = {(o["kind"], o["metadata"]["name"]): o for o in plan.objects() if o["kind"] in {"Cohort", "ClusterQueue"}}
    decision = at(world, clock(12))
    assert {(o["kind"], o["metadata"]["name"]): o for o in decision.queues} == planned
    assert decision.reservations == ()


def test_in_the_lead_the_reserve_queue_has_the_gpus_and_not_the_tenant(world: Loaded) -> None:
    before, decision = at(world, clock(16, 44)), at(world, clock(16, 45))
    assert nominal(before, vocabulary.RESERVE_QUEUE) == 0
    assert nominal(decision, vocabulary.RESERVE_QUEUE) == 8
    assert nominal(decision, "fraud--batch") == nominal(before, "fraud--batch") == 16
    assert nominal(decision, "organisation") == nominal(before, "organisation") - 8
    (reservation,) = decision.reservations
    assert reservation["spec"]["podSets"][0]["count"] == 8
    assert reservation["metadata"]["namespace"] == vocabulary.PLATFORM_NAMESPACE


def test_the_reserve_queue_lends_all_that_it_has(world: Loaded) -> None:
    """Quota that is not lent counts as free while borrowers still use the GPUs."""
    (queue,) = [o for o in at(world, clock(16, 45)).queues if o["metadata"]["name"] == vocabulary.RESERVE_QUEUE]
    for group in nonempty(queue["spec"]["resourceGroups"]):
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                assert resource["lendingLimit"] == resource["nominalQuota"]
                assert units(resource["borrowingLimit"]) == 0


def key(decision: Desired) -> str:
    (reservation,) = decision.reservations
    return str(reservation["metadata"]["annotations"][KEY])


def test_at_the_start_the_tenant_gets_what_kueue_has_reclaimed(world: Loaded) -> None:
    lead = at(world, clock(16, 50))
    reservation_key = key(lead)
    before_start = at(world, clock(16, 59), lead.usage, (reservation_key,))
    assert nominal(before_start, "fraud--batch") == 16, "before the start the GPUs stay reserved"
    assert len(before_start.reservations) == 1
    at_start = at(world, clock(17), before_start.usage, (reservation_key,))
    assert nominal(at_start, "fraud--batch") == 24
    assert nominal(at_start, vocabulary.RESERVE_QUEUE) == 0
    assert at_start.reservations == ()
    before_end = at(world, clock(19, 59), at_start.usage)
    assert nominal(before_end, "fraud--batch") == 24, "the reservation is gone and the record says that it was granted"
    at_end = at(world, clock(20), before_end.usage)
    assert nominal(at_end, "fraud--batch") == 16
    assert at_end.usage.granted == frozenset()


def test_what_is_not_reclaimed_yet_is_not_the_tenants(world: Loaded) -> None:
    """The clock was down in the lead, or a borrower takes long to end."""
    late = at(world, clock(17, 30))
    assert nominal(late, "fraud--batch") == 16
    assert len(late.reservations) == 1
    decision = at(world, clock(17, 31), late.usage, (key(late),))
    assert nominal(decision, "fraud--batch") == 24


def test_a_tenant_whose_queue_is_stopped_has_no_window(world: Loaded) -> None:
    used = Usage(clock(16), {"fraud": {"a100-40gb": 200 * 3600 * 1000}})
    decision = at(world, clock(17), used)
    assert stop(decision, "fraud--batch") == "Hold"
    assert decision.reservations == ()
    assert nominal(decision, "organisation") == nominal(at(world, clock(12)), "organisation")


def hours(tenant: str, count: float, now: dt.datetime, **more: Any) -> Usage:
    return Usage(now, {tenant: {"a100-40gb": int(count * 3600 * 1000)}}, **more)


def test_a_budget_binds_from_its_last_hour_on(world: Loaded) -> None:
    now = clock(12)
    assert stop(at(world, now, hours("fraud", 99.99, now)), "fraud--batch") == "None"
    decision = at(world, now, hours("fraud", 100, now))
    assert stop(decision, "fraud--batch") == stop(decision, "fraud--production") == "Hold"
    assert stop(decision, "research--batch") == "None", "another tenant's budget"
    (exhausted,) = decision.exhausted_budgets
    assert str(exhausted) == (
        "The budget of 2026-11 was spent on 2026-11-23; 0.0 GPU-hours over it; the next month starts on 2026-12-01 "
        "UTC; ask fraud-leads."
    )


def test_stop_evicts_after_the_grace_period_and_not_before(world: Loaded) -> None:
    first = at(world, clock(12), hours("research", 60, clock(12)))
    assert stop(first, "research--batch") == "Hold"
    spent_since = first.usage.spent_since
    assert (
        stop(at(world, clock(13, 59), hours("research", 61, clock(13), spent_since=spent_since)), "research--batch")
        == "Hold"
    )
    late = at(world, clock(14), hours("research", 61, clock(14), spent_since=spent_since))
    assert stop(late, "research--batch") == "HoldAndDrain"


def test_the_next_month_opens_the_queue(world: Loaded) -> None:
    now = dt.datetime(2026, 11, 30, 23, 59, tzinfo=dt.UTC)
    on_hold = at(world, now, hours("fraud", 100, now))
    assert stop(on_hold, "fraud--batch") == "Hold"
    meter = Meter(world.environment, world.tenants)
    next_month = now + dt.timedelta(minutes=2)
    usage, _ = meter.advance(on_hold.usage, [], next_month)
    assert usage.month == "2026-12"
    assert stop(at(world, next_month, usage), "fraud--batch") == "None"


def test_a_raised_budget_opens_the_queue_at_once(world: Loaded, tmp_path: Any) -> None:
    spec = SpecFolder(tmp_path / "small")
    spec.add(ENV, CLOCK)
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", HOLDS.replace("100,", "200,"))
    now = clock(12)
    on_hold = at(world, now, hours("fraud", 100, now))
    assert stop(at(spec.load(), now, on_hold.usage), "fraud--batch") == "None"
    assert at(spec.load(), now, on_hold.usage).usage.spent_since == {}


RELIEF = "exemption: {until: 2026-11-23, reason: Restart after an outage., owner: fraud-leads@bank.example}"


@pytest.mark.parametrize("where", ["budget", "environment"])
def test_a_relief_opens_the_queue_until_its_last_day_has_ended(where: str, spec: SpecFolder) -> None:
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", HOLDS if where == "environment" else HOLDS[:-1] + f", {RELIEF}}}")
    spec.add(ENV, CLOCK if where == "budget" else f"queues: {{clock: true, budget-{RELIEF}}}\n")
    spec.add(RESEARCH, HOLDS.replace("180000", "500") + "\n")
    loaded = spec.load()

    def decision_at(now: dt.datetime) -> Desired:
        used = {name: {"a100-40gb": 200 * 3600 * 1000} for name in ("fraud", "research")}
        return at(loaded, now, Usage(now, used))

    last = decision_at(clock(23, 59))
    assert stop(last, "fraud--batch") == "None"
    assert stop(last, "research--batch") == ("Hold" if where == "budget" else "None"), "its own budget's relief alone"
    assert "fraud" not in last.usage.spent_since
    (fraud, _) = decision_at(clock(24)).exhausted_budgets
    assert (fraud.tenant, fraud.state) == ("fraud", StopPolicy.HOLD)
    assert stop(decision_at(clock(24)), "fraud--batch") == "Hold"
    tenant = next(t for t in loaded.tenants if t.tenant == "fraud")
    assert budget_status(loaded.environment, tenant, clock(12), last.usage) == "200 %, does not bind until 11-23"


@pytest.mark.parametrize(
    ("file", "text", "message_part"),
    [
        (ENV, f"queues: {{budget-{RELIEF}}}\n", "without a clock no budget binds"),
        (FRAUD, f"budget: {{monthly-usd: 5, {RELIEF}}}\n", "such a budget does not bind"),
        (
            FRAUD,
            f"budget: {{monthly-usd: 5, when-spent: hold, {RELIEF.replace('2026-11-23', '2036-11-23')}}}\n",
            "days ahead",
        ),
    ],
)
def test_a_relief_without_effect_or_without_an_end_is_refused(
    file: str, text: str, message_part: str, spec: SpecFolder
) -> None:
    if file == FRAUD:
        spec.add(ENV, CLOCK)
        spec.edit(FRAUD, "budget: {monthly-usd: 180000}\n", "")
    spec.add(file, text)
    with pytest.raises(SpecError, match=message_part):
        spec.load()


def test_dollars_bind_by_the_price_of_the_board(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", "budget: {monthly-usd: 100, when-spent: hold}")
    spec.add(ENV, CLOCK + "prices: {a100-40gb: 4, l4: 1}\n")
    loaded, now = spec.load(), clock(12)
    assert hours("fraud", 25, now).dollars("fraud", {"a100-40gb": Decimal(4)}) == 100
    assert stop(at(loaded, now, hours("fraud", 24.9, now)), "fraud--batch") == "None"
    assert stop(at(loaded, now, hours("fraud", 25, now)), "fraud--batch") == "Hold"


# At every instant

INSTANTS = st.integers(0, 420 * 24 * 60).map(lambda minutes: MONDAY + dt.timedelta(minutes=minutes))


def all_gpus(decision: Desired) -> int:
    return sum(map(gpus, decision.queues))


@given(now=INSTANTS, granted=st.booleans(), spent_hours=st.sampled_from([0, 49, 50, 99, 100, 10_000]))
@settings(max_examples=60)
def test_at_no_instant_is_a_guarantee_less_or_the_sum_another(
    world: Loaded, now: dt.datetime, granted: bool, spent_hours: int
) -> None:
    usage = hours("fraud", spent_hours, now)
    first = at(world, now, usage)
    keys = tuple(item["metadata"]["annotations"][KEY] for item in first.reservations)
    decision = at(world, now, usage, keys if granted else ())
    quiet = at(world, clock(12))
    assert all_gpus(decision) == all_gpus(quiet), "what one gets another does not have"
    for name in ("fraud--batch", "research--batch"):
        assert nominal(decision, name) >= nominal(quiet, name)
    assert nominal(decision, "organisation") >= 0
    reserved = sum(item["spec"]["podSets"][0]["count"] for item in decision.reservations)
    assert nominal(decision, vocabulary.RESERVE_QUEUE) == reserved
    again = at(world, now, decision.usage, keys if granted else ())
    assert again == decision, "the decision is the same if it is made twice"


@given(
    course=st.lists(
        st.tuples(INSTANTS, st.booleans(), st.sampled_from([0, 49, 99, 100, 10_000])), min_size=1, max_size=6
    )
)
@settings(max_examples=60)
def test_an_earlier_decision_saves_time_and_changes_nothing(
    world: Loaded, course: list[tuple[dt.datetime, bool, int]]
) -> None:
    before, keys = None, ()
    for now, granted, spent_hours in course:
        usage, admitted = hours("fraud", spent_hours, now), keys if granted else ()
        decision = desired(world.environment, world.tenants, now, usage, admitted, before)
        assert decision == at(world, now, usage, admitted)
        before, keys = decision, tuple(item["metadata"]["annotations"][KEY] for item in decision.reservations)


def test_queues_of_an_earlier_decision_are_not_made_again(world: Loaded) -> None:
    first = at(world, clock(12))
    second = desired(world.environment, world.tenants, clock(13), empty(clock(13)), (), first)
    assert second.cluster_queues is first.cluster_queues
    lead = desired(world.environment, world.tenants, clock(16, 45), empty(clock(13)), (), second)
    assert lead.cluster_queues is not first.cluster_queues


# Usage


def workload(
    name: str, gpus: int, admitted: dt.datetime, ended: dt.datetime | None = None, namespace: str = "fraud--train"
) -> Mapping[str, Any]:
    def condition(kind: str, moment: dt.datetime) -> Mapping[str, str]:
        return {"type": kind, "status": "True", "lastTransitionTime": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}

    podset = {
        "name": "main",
        "flavors": {GPU: "train", "cpu": "any.pool"},
        "resourceUsage": {GPU: str(gpus), "cpu": "1"},
    }
    conditions = [condition("Admitted", admitted), *([condition("Finished", ended)] if ended else [])]
    status = {"admission": {"podSetAssignments": [podset]}, "conditions": conditions}
    return {"metadata": {"name": name, "uid": name, "namespace": namespace}, "status": status}


def meter(world: Loaded) -> Meter:
    return Meter(world.environment, world.tenants)


def test_work_counts_from_its_admission_to_its_end(world: Loaded) -> None:
    works = [workload("a", 8, clock(8), clock(10)), workload("b", 2, clock(11))]
    usage, running = meter(world).advance(empty(clock(12)), works, clock(12))
    assert usage.gpu_hours("fraud") == 8 * 2 + 2
    assert set(running) == {"b"}
    assert usage.gpu_hours("research") == 0


def test_how_often_the_clock_looks_changes_nothing(world: Loaded) -> None:
    works = [workload("a", 8, clock(8, 7), clock(10, 13)), workload("b", 3, clock(9, 1))]
    once, _ = meter(world).advance(empty(clock(12)), works, clock(12))
    usage, running = empty(clock(12)), None
    for minute in range(0, 12 * 60 + 1, 7):
        now = clock(0, minute)
        admitted_works = [
            w for w in works if w["status"]["conditions"][0]["lastTransitionTime"] <= f"{now:%Y-%m-%dT%H:%M:%SZ}"
        ]
        observed_works = [
            w if len(w["status"]["conditions"]) == 1 or now >= clock(10, 13) else workload("a", 8, clock(8, 7))
            for w in admitted_works
        ]
        usage, running = meter(world).advance(usage, observed_works, now, running)
    usage, _ = meter(world).advance(usage, works, clock(12), running)
    assert usage.used == once.used


def test_work_that_is_deleted_counts_up_to_the_look_that_misses_it(world: Loaded) -> None:
    usage, running = meter(world).advance(empty(clock(9)), [workload("a", 8, clock(8))], clock(9))
    usage, running = meter(world).advance(usage, [], clock(9, 30), running)
    assert usage.gpu_hours("fraud") == 12
    usage, _ = meter(world).advance(usage, [], clock(10), running)
    assert usage.gpu_hours("fraud") == 12


def test_a_clock_that_goes_back_adds_nothing_and_one_that_comes_again_adds_once(world: Loaded) -> None:
    works = [workload("a", 1, clock(8))]
    usage, running = meter(world).advance(empty(clock(12)), works, clock(12), None)
    back, running = meter(world).advance(usage, works, clock(9), running)
    assert back is usage
    usage, _ = meter(world).advance(back, works, clock(13), running)
    assert usage.gpu_hours("fraud") == 5


def test_a_month_counts_its_own_hours(world: Loaded) -> None:
    begin = dt.datetime(2026, 11, 30, 22, tzinfo=dt.UTC)
    usage, running = meter(world).advance(empty(begin), [workload("a", 1, begin)], begin + dt.timedelta(hours=1))
    assert usage.gpu_hours("fraud") == 1
    usage, _ = meter(world).advance(usage, [workload("a", 1, begin)], begin + dt.timedelta(hours=5), running)
    assert (usage.month, usage.gpu_hours("fraud")) == ("2026-12", 3)
    assert next_month(begin) == dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


def test_work_of_others_and_work_that_waits_counts_for_no_tenant(world: Loaded) -> None:
    waiting = workload("a", 8, clock(8))
    waiting["status"].pop("admission")
    foreign_work = workload("b", 8, clock(8), namespace="monitoring")
    usage, running = meter(world).advance(empty(clock(12)), [waiting, foreign_work], clock(12))
    assert (usage.used, running) == ({}, {})


def test_a_record_is_read_as_it_was_written() -> None:
    usage = hours("fraud", 3.5, clock(12), spent_since={"fraud": clock(11)}, granted=frozenset({"fraud/a100/x"}))
    assert Usage.read(usage.text()) == usage


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"until": 1}', '{"until": "2026-11-01", "used": {}}'])
def test_a_damaged_record_is_told_from_a_whole_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Usage.read(text)


# What the engine and others see


def test_the_engine_leaves_quotas_and_states_to_the_clock(spec: SpecFolder) -> None:
    loaded = clocked(spec)
    plan = make_plan(loaded, loaded.day)
    clock_objects = [o for o in plan.objects() if vocabulary.KEPT_BY_CLOCK in o["metadata"].get("annotations", {})]
    assert Counter(o["kind"] for o in clock_objects) == {"Cohort": 4, "ClusterQueue": 4}


def test_a_component_ignores_what_the_clock_writes_and_nothing_else(
    spec: SpecFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    options_by_name: dict[str, pulumi.ResourceOptions] = {}

    def record(_: Any, kind: str, name: str, __: Any, opts: pulumi.ResourceOptions) -> None:
        options_by_name[f"{kind.rpartition(':')[2]} {name}"] = opts

    monkeypatch.setattr(pulumi.CustomResource, "__init__", record)
    loaded = clocked(spec)
    for item in make_plan(loaded, loaded.day).objects():
        Manifest(item["metadata"]["name"], item, pulumi.ResourceOptions())
    fields = ["spec.resourceGroups", "spec.stopPolicy"]
    assert options_by_name["ClusterQueue fraud--batch"].ignore_changes == fields
    assert options_by_name["Cohort organisation"].ignore_changes == fields
    ignoring = {name.partition(" ")[0] for name, opts in options_by_name.items() if opts.ignore_changes}
    assert ignoring == {"ClusterQueue", "Cohort"}


def test_what_the_clock_wrote_is_no_drift_and_what_another_wrote_beside_it_is(spec: SpecFolder) -> None:
    loaded = clocked(spec)
    plan = make_plan(loaded, loaded.day)
    (item,) = [o for o in plan.objects() if o["metadata"]["name"] == "fraud--batch" and o["kind"] == "ClusterQueue"]
    (cohort,) = [o for o in plan.objects() if o["metadata"]["name"] == "organisation"]
    assert list(cohort["spec"]) == ["resourceGroups"], "the engine then manages nothing below its spec"

    def drift_texts(field: str, value: Any, planned: Object) -> list[str]:
        live = {**planned, "spec": {**planned["spec"], field: value}}
        own_fields = {f"f:{key}": {} for key in planned["spec"] if key != field}
        fields = {"pulumi-kubernetes-1": own_fields, "another": {f"f:{field}": {}}}
        entries = [
            {"manager": who, "operation": "Apply", "time": "2026-11-23T10:00:00Z", "fieldsV1": {"f:spec": tree}}
            for who, tree in fields.items()
            if tree
        ]
        live["metadata"] = {**planned["metadata"], "managedFields": entries}
        api: Any = SimpleNamespace(items=lambda *_, **__: [live])
        return [str(drift) for drift in foreign_drift(api, "x", [planned])]

    groups = item["spec"]["resourceGroups"][:1]
    assert drift_texts("stopPolicy", "Hold", item) == drift_texts("resourceGroups", groups, item) == []
    assert drift_texts("resourceGroups", groups, cohort) == []
    assert drift_texts("parentName", "another", cohort) != []
    assert drift_texts("queueingStrategy", "StrictFIFO", item) != []
    without_clock = {**item, "metadata": {**item["metadata"], "annotations": {}}}
    assert drift_texts("stopPolicy", "Hold", without_clock) != [], "without a clock it is drift"


@pytest.mark.parametrize("writer", ["the clock", "the engine"])
def test_drift_is_reverted_without_what_the_clock_wrote(spec: SpecFolder, writer: str) -> None:
    """The live value is sent for a field that the clock has not written yet: without it the field would go."""
    loaded = clocked(spec)
    plan = make_plan(loaded, loaded.day)
    (item,) = [o for o in plan.objects() if o["metadata"]["name"] == "fraud--batch" and o["kind"] == "ClusterQueue"]
    engine, clock_fields = "pulumi-kubernetes-1", {"f:resourceGroups": {}, "f:stopPolicy": {}}
    others = {f"f:{key}": {} for key in item["spec"] if f"f:{key}" not in clock_fields}
    trees = {engine: others | (clock_fields if writer == "the engine" else {}), vocabulary.CLOCK: clock_fields}
    entries = [
        {"manager": who, "operation": "Apply", "time": "2026-11-23T10:00:00Z", "fieldsV1": {"f:spec": tree}}
        for who, tree in trees.items()
    ]
    spec_now = {**item["spec"], "stopPolicy": "Hold", "queueingStrategy": "StrictFIFO"}
    live = {**item, "spec": spec_now, "metadata": {**item["metadata"], "managedFields": entries}}
    sent: list[Object] = []
    api: Any = SimpleNamespace(request=lambda _, __, body, **___: sent.append(body) or Response(200, {}))
    revert_drift(api, Drift(item, live, (("f:spec", "f:queueingStrategy"),)), engine)
    (sent_object,) = sent
    expected = {key: value for key, value in item["spec"].items() if f"f:{key}" not in clock_fields}
    if writer == "the engine":
        expected |= {"resourceGroups": item["spec"]["resourceGroups"], "stopPolicy": "Hold"}
    assert sent_object == {**item, "spec": expected}


def test_without_a_clock_nothing_is_left_to_it() -> None:
    assert "clock" not in "".join(FILES.values())
    stacks = load(Path(__file__).parents[3] / "stacks" / "bank")
    plan = make_plan(stacks, stacks.day)
    assert not [o for o in plan.objects() if vocabulary.KEPT_BY_CLOCK in o["metadata"].get("annotations", {})]
    assert not [o for o in plan.objects() if o["metadata"]["name"] in {vocabulary.CLOCK, vocabulary.RESERVE_QUEUE}]
