"""Which work holds GPUs that are idle, and what follows: a pure function of rules, the instant, samples and the record.

Work is idle only if a sample of each of its GPUs says so. A GPU without a sample, with NaN, with a gap in its samples
or under another pod's name counts as busy, and so does all that the clock did not look at in time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.clock.usage import IdleTime
from tenancy.kube.quantities import units
from tenancy.planning.observability.alerts import WORKLOAD
from tenancy.planning.queueing.queue_names import queue_resource
from tenancy.schema.environment import Environment
from tenancy.schema.queues import seconds
from tenancy.schema.tenant import Tenant
from tenancy.schema.tiers import IdleAction, IdleRule

COVERED = dt.timedelta(minutes=2)
"""Time that the samples of one look cover; if the look before is longer ago, idle time begins anew."""
SAMPLES = 4
"""Samples of a GPU in that time: one every 30 seconds, as the ServiceMonitor says. A GPU with fewer is busy."""
SETTLED_SECONDS = 15
"""Age of the newest sample that is read: a scrape is stored some seconds after its time."""
ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"


@dataclass(frozen=True, slots=True)
class Sample:
    """How active a GPU of a pod was, in the most active of the samples that one look covers."""

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
    """Of its Workload."""
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
    """What follows at an instant."""

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

    def most(metric: str, where: str) -> str:
        series = f"{metric}{{{where}}}{window}"
        return f"(max_over_time({series}) + 0 * sum_over_time({series}) and count_over_time({series}) >= {SAMPLES})"

    engine, util = most(ENGINE, 'pod!=""'), most(UTIL, 'pod!="", GPU_I_PROFILE=""')
    idle = f"(({engine} or {util} / 100) < {max(rule.part for rule in rules)})"
    # A pod without an owner keeps its series.
    return f"{idle} * on (namespace, pod) group_left (job_type, workload) {WORKLOAD} or on (namespace, pod) {idle}"


def samples(result: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """The series of an answer of Prometheus to the query."""
    found = []
    for series in result:
        of = series["metric"]
        device = "/".join((of.get("UUID") or f"{of.get('Hostname', '')}:{of.get('gpu', '')}", of.get("GPU_I_ID", "")))
        owner = f"{of['job_type']}/{of['workload']}" if of.get("workload") else ""
        found.append(Sample(of.get("namespace", ""), of.get("pod", ""), owner, device, float(series["value"][1])))
    return found


def idle_rules(environment: Environment, tenants: Iterable[Tenant]) -> dict[str, IdleRule]:
    """The rule of each namespace whose tier has one."""
    return {
        tenant.namespace_name(space): rule
        for tenant in tenants
        for space in tenant.namespaces
        if (rule := environment.tiers[tenant.tier_of(space)].idle)
    }


def watched(
    environment: Environment, rules: Mapping[str, IdleRule], workloads: Iterable[Mapping[str, Any]]
) -> Iterator[Work]:
    """Admitted Workloads of namespaces with an idle rule that hold GPUs."""
    names = {queue_resource(environment, flavor) for flavor in environment.flavors}
    for workload in workloads if rules else ():
        metadata, status = workload["metadata"], workload.get("status") or {}
        rule = rules.get(metadata["namespace"])
        held = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
        if rule is None or "Admitted" not in held or held & {"Finished", "Evicted"}:
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
    found: Sequence[Sample],
    now: dt.datetime,
    before: Mapping[str, IdleTime],
    looked: dt.datetime,
) -> IdleDecision:
    """What follows from the samples at `now`, after those at `looked`, which `before` is the record of.

    A step follows only after its predecessor: a warning `after` of idle time, a suspension `after` the last warning.
    """
    known = before if dt.timedelta(0) <= now - looked <= COVERED else {}
    of: dict[tuple[str, str], list[Sample]] = {}
    for sample in found:
        for name in (sample.owner, f"Pod/{sample.pod}"):
            of.setdefault((sample.namespace, name), []).append(sample)
    idle: dict[str, IdleTime] = {}
    warnings, suspensions = [], []
    for work in works:
        mine = {sample for owner in work.owners for sample in of.get((work.namespace, owner), ())}
        if not _idle(work, mine):
            continue
        rule, spent = work.rule, known.get(work.uid, IdleTime(now, now))
        if now - spent.last >= dt.timedelta(seconds=seconds(rule.after)):
            if spent.warned < rule.warn:
                spent = replace(spent, last=now, warned=spent.warned + 1)
                warnings.append((work, _warning(work, spent)))
            elif rule.then is IdleAction.SUSPEND and work.stays_suspended:
                suspensions.append((work, _suspension(work, spent, now)))
        idle[work.uid] = spent
    return IdleDecision(tuple(warnings), tuple(suspensions), idle)


def suspension(uid: str, said: str) -> dict[str, Any]:
    """Merge patch that suspends a Workload, and says why. Another one of its name, with another uid, is refused."""
    return {"metadata": {"uid": uid, "annotations": {words.SUSPENDED: said}}, "spec": {"active": False}}


def _idle(work: Work, mine: Iterable[Sample]) -> bool:
    devices: dict[str, bool] = {}
    for sample in mine:
        # False for NaN; of two series of one GPU both have to be idle.
        devices[sample.device] = devices.get(sample.device, True) and sample.active < work.rule.part
    return sum(devices.values()) == len(devices) == work.gpus


def _warning(work: Work, spent: IdleTime) -> str:
    rule = work.rule
    said = (
        f"Its GPUs ({work.gpus}) have been active for less than {rule.below} of the time since "
        f"{spent.since.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC (warning {spent.warned} of {rule.warn})"
    )
    if rule.then is IdleAction.ALERT or not work.stays_suspended:
        return f"{said}."
    left = rule.warn - spent.warned + 1
    at = spent.last + left * dt.timedelta(seconds=seconds(rule.after))
    return f"{said}; if that goes on, it is suspended at {at.astimezone(dt.UTC):%H:%M} UTC."


def _suspension(work: Work, spent: IdleTime, now: dt.datetime) -> str:
    return (
        f"It was suspended on {now.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC: its GPUs had been active for less than "
        f"{work.rule.below} of the time since {spent.since.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC, and "
        f"{spent.warned} warning{'s' * (spent.warned != 1)} had been given."
    )
