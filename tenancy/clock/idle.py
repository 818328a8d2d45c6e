"""Work with idle GPUs, and what follows: a pure function of rules, the instant, samples and the record.

Work is idle only if a sample of each of its GPUs says so. A GPU without a sample, with NaN, with a gap in its samples
or under another pod's name counts as busy, and so does all that the clock did not look at in time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.clock.usage import IdleTime
from tenancy.kube.objects import true_conditions
from tenancy.kube.quantities import units
from tenancy.planning.observability.recording_rules import POD_WORKLOAD
from tenancy.planning.queueing.queue_names import queue_resource
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.fields.tiers import IdleAction, IdleRule

COVERED = dt.timedelta(minutes=2)
"""Time that the samples of one look cover; if the look before is longer ago, idle time begins anew."""
SAMPLES = 4
"""Samples of a GPU in that time: one every 30 seconds, as the ServiceMonitor says. A GPU with fewer is busy."""
SETTLED_SECONDS = 15
"""Age of the newest sample that is read: a scrape is stored some seconds after its time."""
ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"


@dataclass(frozen=True, slots=True)
class Sample:
    """Activity of a pod's GPU, by the most active of the samples that one round covers."""

    namespace: str
    pod: str
    owner: str
    """Kind and name of the pod's owner, such as Job/train; empty if unknown."""
    device: str
    active: float
    """Part of the time, 0 to 1; NaN if a sample is."""


@dataclass(frozen=True, slots=True)
class Work:
    """Admitted work of a tier with an idle rule."""

    uid: str
    namespace: str
    name: str
    """Name of its Workload."""
    rule: IdleRule
    gpus: int
    owners: frozenset[str]
    """Kinds and names of what the Workload belongs to, such as Job/train."""

    @property
    def stays_suspended(self) -> bool:
        """Whether a suspension keeps it from running. A pod that is suspended is deleted, and its Deployment makes
        another one with a Workload of its own."""
        return any(not owner.startswith("Pod/") for owner in self.owners)


@dataclass(frozen=True, slots=True)
class IdleDecision:
    """Warnings and suspensions at an instant."""

    warnings: tuple[tuple[Work, str], ...]
    """Each with its sentence; it counts when it has been written."""
    suspensions: tuple[tuple[Work, str], ...]
    idle: Mapping[str, IdleTime]
    """The record for the next look."""


def query(environment: Environment) -> str:
    """PromQL for the GPUs that are idle by the widest rule, with pod and owner; empty without a rule.

    A GPU is missing from the answer if a sample is missing, and if one is NaN: `max_over_time` ignores NaN, a sum does
    not, and NaN is below nothing.
    """
    rules = [tier.idle for tier in environment.tiers.values() if tier.idle]
    if not rules:
        return ""
    window = f"[{COVERED // dt.timedelta(seconds=1)}s]"

    def max_activity(metric: str, selector: str) -> str:
        series = f"{metric}{{{selector}}}{window}"
        return f"(max_over_time({series}) + 0 * sum_over_time({series}) and count_over_time({series}) >= {SAMPLES})"

    engine, util = max_activity(ENGINE, 'pod!=""'), max_activity(UTIL, 'pod!="", GPU_I_PROFILE=""')
    idle = f"(({engine} or {util} / 100) < {max(rule.part for rule in rules)})"
    # A pod without an owner keeps its series.
    return f"{idle} * on (namespace, pod) group_left (job_type, workload) {POD_WORKLOAD} or on (namespace, pod) {idle}"


def samples(result: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """The series of an answer of Prometheus to the query."""
    result_samples = []
    for series in result:
        labels = series["metric"]
        device = "/".join(
            (labels.get("UUID") or f"{labels.get('Hostname', '')}:{labels.get('gpu', '')}", labels.get("GPU_I_ID", ""))
        )
        owner = f"{labels['job_type']}/{labels['workload']}" if labels.get("workload") else ""
        result_samples.append(
            Sample(labels.get("namespace", ""), labels.get("pod", ""), owner, device, float(series["value"][1]))
        )
    return result_samples


def idle_rules(environment: Environment, tenants: Iterable[Tenant]) -> dict[str, IdleRule]:
    """The rule of each namespace whose tier has one."""
    return {
        tenant.namespace_name(space): rule
        for tenant in tenants
        for space in tenant.namespaces
        if (rule := environment.tiers[tenant.tier_of(space)].idle)
    }


def watched_work(
    environment: Environment, rules: Mapping[str, IdleRule], workloads: Iterable[Mapping[str, Any]]
) -> Iterator[Work]:
    """Admitted Workloads of namespaces with an idle rule that hold GPUs."""
    names = {queue_resource(environment, flavor) for flavor in environment.flavors}
    for workload in workloads if rules else ():
        metadata, status = workload["metadata"], workload.get("status") or {}
        rule = rules.get(metadata["namespace"])
        conditions = true_conditions(workload).keys()
        if rule is None or "Admitted" not in conditions or conditions & {"Finished", "Evicted"}:
            continue
        if not (workload.get("spec") or {}).get("active", True):
            continue
        gpus = sum(
            units(used)
            for podset in (status.get("admission") or {}).get("podSetAssignments") or ()
            for resource, used in (podset.get("resourceUsage") or {}).items()
            if resource in names
        )
        owners = frozenset(f"{owner['kind']}/{owner['name']}" for owner in metadata.get("ownerReferences") or ())
        if gpus > 0:
            yield Work(metadata["uid"], metadata["namespace"], metadata["name"], rule, int(gpus), owners)


def decide(
    works: Iterable[Work],
    gpu_samples: Sequence[Sample],
    now: dt.datetime,
    former_idle: Mapping[str, IdleTime],
    last_round: dt.datetime,
) -> IdleDecision:
    """Warnings and suspensions that follow from the samples at `now`, after those at `last_round`, which `former_idle`
    is the record of.

    A step follows only after its predecessor: a warning `after` of idle time, a suspension `after` the last warning.
    """
    idle_times = former_idle if dt.timedelta(0) <= now - last_round <= COVERED else {}
    samples_by_owner: dict[tuple[str, str], list[Sample]] = {}
    for sample in gpu_samples:
        for name in (sample.owner, f"Pod/{sample.pod}"):
            samples_by_owner.setdefault((sample.namespace, name), []).append(sample)
    idle: dict[str, IdleTime] = {}
    warnings, suspensions = [], []
    for work in works:
        work_samples = {sample for owner in work.owners for sample in samples_by_owner.get((work.namespace, owner), ())}
        if not _is_idle(work, work_samples):
            continue
        rule, idle_time = work.rule, idle_times.get(work.uid, IdleTime(now, now))
        if now - idle_time.last >= dt.timedelta(seconds=seconds(rule.duration)):
            if idle_time.warned < rule.warnings:
                idle_time = replace(idle_time, last=now, warned=idle_time.warned + 1)
                warnings.append((work, _warning(work, idle_time)))
            elif rule.action is IdleAction.SUSPEND and work.stays_suspended:
                suspensions.append((work, _suspension(work, idle_time, now)))
        idle[work.uid] = idle_time
    return IdleDecision(tuple(warnings), tuple(suspensions), idle)


def suspension(uid: str, sentence: str) -> dict[str, Any]:
    """Merge patch that suspends a Workload, and says why. Another one of its name, with another uid, is refused."""
    return {"metadata": {"uid": uid, "annotations": {vocabulary.SUSPENDED: sentence}}, "spec": {"active": False}}


def _is_idle(work: Work, work_samples: Iterable[Sample]) -> bool:
    devices: dict[str, bool] = {}
    for sample in work_samples:
        # False for NaN; of two series of one GPU both have to be idle.
        devices[sample.device] = devices.get(sample.device, True) and sample.active < work.rule.part
    return sum(devices.values()) == len(devices) == work.gpus


def _warning(work: Work, idle_time: IdleTime) -> str:
    rule = work.rule
    text = (
        f"Its GPUs ({work.gpus}) have been active for less than {rule.utilization_threshold} of the time since "
        f"{idle_time.since.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC (warning {idle_time.warned} of {rule.warnings})"
    )
    if rule.action is IdleAction.ALERT or not work.stays_suspended:
        return f"{text}."
    remaining = rule.warnings - idle_time.warned + 1
    suspension_time = idle_time.last + remaining * dt.timedelta(seconds=seconds(rule.duration))
    return f"{text}; if that goes on, it is suspended at {suspension_time.astimezone(dt.UTC):%H:%M} UTC."


def _suspension(work: Work, idle_time: IdleTime, now: dt.datetime) -> str:
    return (
        f"It was suspended on {now.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC: its GPUs had been active for less than "
        f"{work.rule.utilization_threshold} of the time since {idle_time.since.astimezone(dt.UTC):%Y-%m-%d %H:%M} "
        "UTC, and "
        f"{idle_time.warned} warning{'s' * (idle_time.warned != 1)} had been given."
    )
