"""Which work is found idle, from samples and a record: no cluster, and no time but the given one."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import subprocess
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tenancy.clock.idle import COVERED, SAMPLES, SETTLED_SECONDS, Sample, Work, decide, idle_rules, query, watched_work
from tenancy.clock.prometheus import GpuMetrics
from tenancy.clock.usage import IdleTime, Usage
from tenancy.cluster.prometheus import PrometheusUnavailable
from tenancy.lab import prometheus, tools
from tenancy.planning import make_plan
from tenancy.spec.fields.tiers import IdleAction, IdleRule
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder
from tests.prometheus_double import prometheus_double
from tests.spec_cases import ENV

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
STEP = dt.timedelta(seconds=30)
RULE = IdleRule(duration="30m", action=IdleAction.SUSPEND)
OWNER = "StatefulSet/notebook"
BEFORE = "tiers:\n  production:\n"


def work(gpus: int = 2, rule: IdleRule = RULE, owner: str = OWNER) -> Work:
    return Work("u1", "fraud--train", "notebook-1", rule, gpus, frozenset({owner}))


def sample(device: str = "a", active: float = 0.01, **labels: Any) -> Sample:
    sample_labels = {"namespace": "fraud--train", "pod": "notebook-0", "owner": OWNER} | labels
    return Sample(sample_labels["namespace"], sample_labels["pod"], sample_labels["owner"], device, active)


def idle(minutes: float, samples: list[Sample], rule: IdleRule = RULE, **work_fields: Any) -> list[str]:
    """Events up to then, with the same samples at every look."""
    events, before, last_look = [], {}, NOON - STEP
    for at in range(int(minutes * 2) + 1):
        now = NOON + at * STEP
        decision = decide([work(rule=rule, **work_fields)], samples, now, before, last_look)
        events += [f"{at / 2:g} warned" for _ in decision.warnings] + [
            f"{at / 2:g} suspended" for _ in decision.suspensions
        ]
        if decision.suspensions:
            break
        before, last_look = decision.idle, now
    return events


def test_idle_work_is_warned_and_then_suspended() -> None:
    both = [sample("a"), sample("b")]
    assert idle(120, both) == ["30 warned", "60 warned", "90 suspended"]
    assert idle(89.5, both) == ["30 warned", "60 warned"]
    assert idle(400, both, IdleRule(action=IdleAction.ALERT)) == ["30 warned", "60 warned"]
    assert idle(400, both, RULE.model_copy(update={"warnings": 1})) == ["30 warned", "60 suspended"]


@pytest.mark.parametrize(
    ("about", "samples"),
    [
        ("no sample", []),
        ("a GPU without a sample", [sample("a")]),
        ("a busy GPU", [sample("a"), sample("b", 0.05)]),
        ("NaN", [sample("a"), sample("b", math.nan)]),
        ("a GPU too many, which was another pod's", [sample("a"), sample("b"), sample("c")]),
        ("another owner's GPU", [sample("a"), sample("b", owner="Job/other", pod="other-0")]),
        ("another namespace's GPU", [sample("a"), sample("b", namespace="research--main")]),
        ("one GPU twice, once busy", [sample("a"), sample("b"), sample("b", 0.9, pod="notebook-1")]),
    ],
)
def test_what_no_sample_of_each_gpu_shows_is_not_idle(about: str, samples: list[Sample]) -> None:
    assert idle(400, samples) == [], about


def test_a_pod_that_its_deployment_would_make_anew_is_warned_and_not_suspended() -> None:
    alone = [sample("a", owner="ReplicaSet/web"), sample("b", owner="ReplicaSet/web")]
    assert idle(400, alone, owner="Pod/notebook-0") == ["30 warned", "60 warned"]


def test_a_clock_that_did_not_look_begins_anew() -> None:
    both, idle_times = [sample("a"), sample("b")], {"u1": IdleTime(NOON - dt.timedelta(hours=9), NOON, 2)}
    now = NOON + dt.timedelta(minutes=30)
    assert decide([work()], both, now, idle_times, now - COVERED).suspensions
    for last_look in (now - COVERED - dt.timedelta(seconds=1), now + dt.timedelta(seconds=1)):
        decision = decide([work()], both, now, idle_times, last_look)
        assert decision.suspensions == decision.warnings == ()
        assert decision.idle == {"u1": IdleTime(now, now)}


def test_a_warning_says_when_the_work_is_suspended() -> None:
    idle_times = {"u1": IdleTime(NOON, NOON)}
    now = NOON + dt.timedelta(minutes=30)
    ((_, warning),) = decide([work()], [sample("a"), sample("b")], now, idle_times, now - STEP).warnings
    assert warning == (
        "Its GPUs (2) have been active for less than 5% of the time since 2026-11-23 12:00 UTC (warning 1 of 2); if "
        "that goes on, it is suspended at 13:30 UTC."
    )


class Trace:
    """Activity of the GPUs of a piece of work every 30 seconds for four hours; None: there is no sample."""

    LENGTH = 480

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.gpus = dice.randint(1, 3)
        self.active: list[list[float | None]] = [
            [dice.uniform(0, 0.049) for _ in range(self.LENGTH)] for _ in range(self.gpus)
        ]
        self.owner = [OWNER] * self.LENGTH
        self.skipped: set[int] = set()
        for _ in range(dice.randint(0, 6)):
            begin, gpu = dice.randrange(self.LENGTH), dice.randrange(self.gpus)
            self._disturb(dice, begin, self.active[gpu])

    def _disturb(self, dice: random.Random, begin: int, activity: list[float | None]) -> None:
        kind = dice.choice(("burst", "loading", "checkpoint", "missing", "NaN", "moved", "clock"))
        if kind == "loading":  # a short computation after each long pause
            pause = dice.randint(2, 59)
            for at in range(begin, self.LENGTH, pause):
                activity[at] = dice.uniform(0.05, 1)
        elif kind == "checkpoint":  # computation on all GPUs, and pauses in which it is written
            pause = dice.randint(4, 40)
            for gpu in self.active:
                for at in range(begin, min(begin + 200, self.LENGTH)):
                    gpu[at] = 0.0 if at % (3 * pause) < pause else dice.uniform(0.3, 1)
        elif kind == "moved":
            for at in range(begin, min(begin + dice.randint(1, 20), self.LENGTH)):
                self.owner[at] = "StatefulSet/other"
        elif kind == "clock":
            self.skipped |= set(range(begin, begin + dice.randint(1, 30)))
        else:
            value = {"burst": dice.uniform(0.05, 1), "missing": None, "NaN": math.nan}[kind]
            for at in range(begin, min(begin + dice.randint(1, 20), self.LENGTH)):
                activity[at] = value

    def was_idle(self, at: int) -> bool:
        """Whether every GPU has a sample below the limit at that step, under the work's own name."""
        values = [activity[at] for activity in self.active]
        return self.owner[at] == OWNER and all(v is not None and v < RULE.part for v in values)

    def looked_at(self, at: int) -> list[Sample]:
        """Samples that the query answers at that step; Prometheus evaluates the same query in another test."""
        newest = at - 1 - SETTLED_SECONDS // 30
        span = range(newest - SAMPLES + 1, newest + 1)
        samples = []
        for number, activity in enumerate(self.active):
            values = [activity[i] for i in span if i >= 0 and self.owner[i] == self.owner[newest]]
            if len(values) == SAMPLES and all(v is not None and v < RULE.part for v in values):
                samples.append(sample(str(number), max(v for v in values if v is not None), owner=self.owner[newest]))
        return samples


def _suspended(trace: Trace) -> int | None:
    """The step at which the work is suspended."""
    before: Mapping[str, IdleTime] = {}
    last_look = NOON - STEP
    for at in range(trace.LENGTH):
        if at in trace.skipped:
            continue
        now = NOON + at * STEP
        decision = decide([work(trace.gpus)], trace.looked_at(at), now, before, last_look)
        if decision.suspensions:
            return at
        before, last_look = decision.idle, now
    return None


def wrong(seeds: range) -> tuple[int, list[int]]:
    """Number of traces that end in a suspension, and seeds of those in which the work was not idle all the time."""
    suspended, wrong_seeds = 0, []
    for seed in seeds:
        trace = Trace(seed)
        at = _suspended(trace)
        if at is None:
            continue
        suspended += 1
        # 90 minutes, and what the first look covers before them; the last sample is not settled yet.
        if not all(trace.was_idle(i) for i in range(at - 181, at)):
            wrong_seeds.append(seed)
    return suspended, wrong_seeds


def test_no_trace_with_pauses_checkpoints_and_gaps_is_suspended_wrongly() -> None:
    suspended, wrong_seeds = wrong(range(100))
    assert wrong_seeds == []
    assert 10 < suspended < 90, "else the traces try nothing"


@pytest.mark.exhaustive(reason="ten thousand traces; `make test` has the borders one by one")
def test_none_of_ten_thousand_traces_is_suspended_wrongly() -> None:
    suspended, wrong_seeds = wrong(range(10_000))
    assert wrong_seeds == []
    assert suspended > 1000


# What is read


@pytest.fixture
def loaded(spec: SpecFolder) -> Loaded:
    spec.add(ENV, "queues: {clock: true}\nmetrics: {collector: existing}\n")
    spec.edit(ENV, "    interruptible: true\n", "    interruptible: true\n    idle: {action: suspend}\n")
    return spec.load()


def stored(name: str, gpus: int, namespace: str = "fraud--train", kind: str = "Job", **spec: Any) -> dict[str, Any]:
    podset = {"flavors": {"nvidia.com/gpu": "train"}, "resourceUsage": {"nvidia.com/gpu": str(gpus), "cpu": "8"}}
    return {
        "metadata": {
            "name": f"job-{name}",
            "uid": name,
            "namespace": namespace,
            "ownerReferences": [{"kind": kind, "name": name}],
        },
        "spec": spec,
        "status": {
            "admission": {"podSetAssignments": [podset]},
            "conditions": [{"type": "Admitted", "status": "True"}],
        },
    }


def test_work_is_watched_in_tiers_with_a_rule_alone(loaded: Loaded) -> None:
    rules = idle_rules(loaded.environment, loaded.tenants)
    ended = stored("ended", 8)
    ended["status"]["conditions"].append({"type": "Finished", "status": "True"})
    waiting = stored("waiting", 8)
    waiting["status"]["conditions"][0]["status"] = "False"
    works = [
        stored("train", 8),
        stored("off", 8, active=False),
        stored("cpu", 0),
        stored("served", 8, "fraud--serve"),
        stored("else", 8, "monitoring"),
        ended,
        waiting,
    ]
    (watched,) = watched_work(loaded.environment, rules, works)
    assert (watched.uid, watched.gpus, watched.owners) == ("train", 8, frozenset({"Job/train"}))
    assert watched.stays_suspended
    assert not next(watched_work(loaded.environment, rules, [stored("p", 1, kind="Pod")])).stays_suspended


def test_the_clock_may_patch_work_only_where_idle_work_is_suspended(loaded: Loaded, spec: SpecFolder) -> None:
    def verbs(loaded: Loaded) -> list[str]:
        plan = make_plan(loaded, loaded.day)
        (role,) = [o for o in plan.objects() if o["kind"] == "ClusterRole" and o["metadata"]["name"] == "tenancy-clock"]
        return next(rule["verbs"] for rule in role["rules"] if "workloads" in rule["resources"])

    assert verbs(loaded) == ["get", "list", "watch", "delete", "patch"]
    spec.edit(ENV, "idle: {action: suspend}", "idle: {}")
    assert verbs(spec.load()) == ["get", "list", "watch", "delete"]


def test_prometheus_is_asked_for_settled_samples(loaded: Loaded) -> None:
    with prometheus_double() as double:
        double.idle("fraud--train", "train-0", ("Job", "train"), 2)
        double.idle("fraud--train", "alone", ("", ""), 1, "NaN")
        samples = GpuMetrics(double.address).idle_gpus(loaded.environment, NOON)
        (request,) = double.queries
    assert request["query"] == query(loaded.environment)
    assert float(request["time"]) == NOON.timestamp() - SETTLED_SECONDS
    assert [(s.owner, s.active) for s in samples[:2]] == [("Job/train", 0.01)] * 2
    assert len({s.device for s in samples}) == 3
    assert (samples[2].owner, math.isnan(samples[2].active)) == ("", True)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (500, {}),
        (200, {"status": "error", "error": "too many samples"}),
        (200, {"warnings": ["a store did not answer"]}),
        (200, {"data": []}),
        (200, {"data": {"result": [{"metric": {}, "value": ["x"]}]}}),
    ],
)
def test_an_incomplete_answer_is_none(loaded: Loaded, status: int, more: dict[str, Any]) -> None:
    with prometheus_double() as double:
        double.status, double.more = status, more
        with pytest.raises(PrometheusUnavailable, match="answers"):
            GpuMetrics(double.address).idle_gpus(loaded.environment, NOON)
    with pytest.raises(PrometheusUnavailable, match="does not answer"):
        GpuMetrics(double.address).idle_gpus(loaded.environment, NOON)


def test_a_record_of_idle_time_is_read_as_it_was_written() -> None:
    usage = Usage(NOON, idle={"u1": IdleTime(NOON - STEP, NOON, 1)})
    assert Usage.read(usage.text()) == usage
    former = json.loads(usage.text())
    del former["idle"]
    assert Usage.read(json.dumps(former)).idle == {}


def test_prometheus_answers_idle_gpus_with_all_samples_alone(loaded: Loaded, tmp_path: Path) -> None:
    """Every 30 seconds a sample; asked at 10 minutes."""
    device = count()

    def engine(pod: str, metric: str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", **more: str) -> str:
        labels = {"namespace": "fraud--train", "pod": pod, "UUID": f"GPU-{next(device)}", "GPU_I_PROFILE": "", **more}
        return f"{metric}{{{', '.join(f'{k}={json.dumps(v)}' for k, v in labels.items() if v)}}}"

    quiet, util = "0.01x40", "DCGM_FI_DEV_GPU_UTIL"
    series = {
        engine("idle"): quiet,
        engine("busy"): "0.06x40",
        engine("burst"): "0.01x17 0.9 0.01x22",
        engine("gap"): "0.01x17 _ 0.01x22",
        engine("nan"): "0.01x17 NaN 0.01x22",
        engine("ended"): "0.01x17 stale",
        engine("before"): "0.01x15 0.9 0.01x24",
        engine("plain", util): "1x40",
        engine("plain-busy", util): "6x40",
        engine("unowned"): quiet,
        **{
            f'tenancy:pod:workload{{namespace="fraud--train",pod="{pod}", workload="of-{pod}", job_type="Job"}}': "1x40"
            for pod in ("idle", "busy", "burst", "gap", "nan", "ended", "before", "plain", "plain-busy")
        },
    }
    text = {
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"sort(count by (pod, workload) ({query(loaded.environment)}))",
                        "eval_time": "10m",
                        "exp_samples": [
                            {"labels": f'{{pod="{pod}"{more}}}', "value": 1}
                            for pod, more in (
                                ("before", ', workload="of-before"'),
                                ("idle", ', workload="of-idle"'),
                                ("plain", ', workload="of-plain"'),
                                ("unowned", ""),
                            )
                        ],
                    }
                ],
            }
        ]
    }
    path = tmp_path / "test.json"
    path.write_text(json.dumps(text))
    tool = tools.ensure(only=["promtool"], pins=prometheus.pins())["promtool"]
    completed = subprocess.run([tool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
