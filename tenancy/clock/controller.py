"""One look at the cluster and one round of writes: what differs from the decision is written, and nothing else.

Each round starts from the cluster and the record of usage, so a restart, a missed round or a second copy changes
nothing: the record is written with the version that was read, and a copy that comes second is refused and reads anew.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import BUDGET_SPENT, GPU_IDLE
from tenancy.clock.decision import KEY, Desired, ExhaustedBudget, budget_exemption, desired
from tenancy.clock.idle import IdleDecision, Sample, Work, decide, suspension, watched_work
from tenancy.clock.usage import Running, Usage, empty
from tenancy.clock.view import View
from tenancy.cluster.api import CONFLICT, NOT_FOUND, Api, ApiUnreachable, Response, path_of
from tenancy.cluster.prometheus import PrometheusUnavailable
from tenancy.kube.objects import CLOCK_FIELDS, Object, get_path, true_conditions
from tenancy.kube.quantities import thousandths
from tenancy.kube.quota_tree import stored_quotas
from tenancy.kube.requests import APPLY, MERGE, collection
from tenancy.planning.queueing.queue_names import API
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

EVENT_INTERVAL = dt.timedelta(minutes=30)
"""After which the Event is written again: the API server keeps one for an hour."""


class ClockRefused(Exception):
    """The API server refuses what the clock writes or reads."""


@dataclass(frozen=True, slots=True)
class Round:
    """Changes of one round, in sentences; empty if everything was as it should be."""

    now: dt.datetime
    changes: tuple[str, ...]
    exhausted_budgets: tuple[ExhaustedBudget, ...]
    problem: str = ""
    """Why no GPU was found idle, if samples could not be read."""


@dataclass(slots=True)
class Clock:
    """The clock of one environment. `now` reads the time; None: the API server's, which a jump of this machine's does
    not change. `idle_gpus` reads samples of GPUs at an instant; without it no work counts as idle."""

    api: Api
    environment: Environment
    tenants: Sequence[Tenant]
    now: Callable[[], dt.datetime] | None = None
    idle_gpus: Callable[[Environment, dt.datetime], Sequence[Sample]] | None = None
    _running: dict[str, Running] | None = None
    _record: str = ""
    """The version of the record of usage that `_running` and `_last_view` belong to."""
    _last_view: View | None = None
    _event_times: dict[str, dt.datetime] = field(default_factory=dict)

    def tick(self) -> Round:
        """Bring the queues to what they should be now. ApiUnreachable and ClockRefused leave the rest for the next
        round."""
        record = self._request("GET", _record_path(), allow=(NOT_FOUND,))
        now = self.now() if self.now else server_time(record)
        former_usage, version = _stored(record, now)
        is_own_record = bool(version) and version == self._record
        view = self._view(is_own_record)
        view.read_work(self.api)
        usage, running = view.meter.count(former_usage, view.allocations, now, self._running if is_own_record else None)
        workloads = view.works
        decision = desired(self.environment, self.tenants, now, usage, _admitted_keys(workloads), view.decided)
        idle, problem = self._idle(view, now, former_usage)
        # Before the record: a warning counts when it has been written.
        for work, sentence in idle.warnings:
            self._warn(_about_work(work, GPU_IDLE, f"idle.{work.name}", sentence, now))
        self._record = self._write_record(replace(decision.usage, idle=idle.idle), version)
        self._running = running
        view.decide(decision)
        changes = [*self._queues(view, decision), *self._reservations(decision, workloads), *self._suspend(idle, now)]
        changes += self._release(view.unreleased(now))
        self._warn_of_budgets(view, decision.exhausted_budgets, now)
        return Round(now, tuple(changes), decision.exhausted_budgets, problem)

    def _view(self, is_own_record: bool) -> View:
        """The cluster as this process knows it. It is read anew for other files, and if the record is not the one that
        this process wrote: another copy worked since, or the cluster was restored."""
        view = self._last_view
        if view is None or view.environment is not self.environment or view.tenants is not self.tenants:
            view = self._last_view = View(self.environment, self.tenants)
        elif not is_own_record:
            view.forget()
        return view

    def _idle(self, view: View, now: dt.datetime, former_usage: Usage) -> tuple[IdleDecision, str]:
        """Decision about idle work, and the reason if no samples were read."""
        works = list(watched_work(self.environment, view.rules, view.works))
        if not works or self.idle_gpus is None or budget_exemption(self.environment, None, now):
            return IdleDecision((), (), {}), ""
        try:
            gpu_samples = self.idle_gpus(self.environment, now)
        except PrometheusUnavailable as error:
            return IdleDecision((), (), {}), str(error)
        return decide(works, gpu_samples, now, former_usage.idle, former_usage.until), ""

    def _suspend(self, idle: IdleDecision, now: dt.datetime) -> Iterator[str]:
        for work, sentence in idle.suspensions:
            path = f"{collection(API, 'Workload', work.namespace)}/{work.name}"
            body = suspension(work.uid, sentence)
            # Other work of that name: the API server answers 409.
            answer = self._request("PATCH", path, body, allow=(NOT_FOUND, CONFLICT), content_type=MERGE)
            if answer.ok:
                self._warn(_about_work(work, GPU_IDLE, f"suspended.{work.name}", sentence, now))
                yield f"{work.namespace}/{work.name}: suspended, its {work.gpus} GPUs were idle"

    def _release(self, workloads: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Delete Workloads that keep quota after their eviction, unless they have changed since they were read."""
        for workload in workloads:
            metadata = workload["metadata"]
            path = f"{collection(API, 'Workload', metadata['namespace'])}/{metadata['name']}"
            options = {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}}
            if self._request("DELETE", path, options, allow=(NOT_FOUND, CONFLICT)).ok:
                yield f"{metadata['namespace']}/{metadata['name']}: deleted, it was evicted and kept quota without pods"

    def _warn(self, event: Object) -> None:
        # A namespace that is not made yet has no work to tell about.
        path = f"{path_of(event)}?fieldManager={vocabulary.CLOCK}&force=true"
        self._request("PATCH", path, event, allow=(NOT_FOUND,), content_type=APPLY)

    def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        allow: Iterable[int] = (),
        content_type: str = "application/json",
    ) -> Response:
        answer = self.api.request(method, path, body, content_type=content_type)
        if not answer.ok and answer.status not in allow:
            raise ClockRefused(f"{method} {path.partition('?')[0]}: {answer.status} {answer.message}")
        return answer

    def _write_record(self, usage: Usage, version: str) -> str:
        labels = {vocabulary.MANAGED_BY: vocabulary.PRODUCT, vocabulary.ENVIRONMENT: self.environment.environment}
        metadata: Object = {"name": vocabulary.CLOCK, "namespace": vocabulary.PLATFORM_NAMESPACE, "labels": labels}
        if version:
            metadata["resourceVersion"] = version
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"usage": usage.text()}}
        path = path_of(item) if version else path_of(item).rpartition("/")[0]
        answer = self._request("PUT" if version else "POST", path, item)
        return str(answer.body["metadata"]["resourceVersion"])

    def _queues(self, view: View, decision: Desired) -> Iterator[str]:
        view.read_queues(self.api)
        desired_queues, pending = decision.by_place(), []
        for place in sorted(view.unsettled):
            stored = view.queue(place)
            # A queue that the engine has not made yet is made by it, with what belongs to it.
            item = desired_queues[place].manifest() if stored and place in desired_queues else None
            if stored and item and not _is_same(item, stored):
                pending.append((item, stored))
            else:
                view.unsettled.discard(place)
        # Quota is taken from one before another gets it, so that at no instant more is promised than there is.
        for item, stored in sorted(pending, key=lambda pair: _nominal(pair[0]) - _nominal(pair[1])):
            spec = {key: item["spec"][key] for _, key in CLOCK_FIELDS if key in item["spec"]}
            body = {
                "apiVersion": API,
                "kind": item["kind"],
                "metadata": {"name": item["metadata"]["name"]},
                "spec": spec,
            }
            self._request(
                "PATCH", f"{path_of(item)}?fieldManager={vocabulary.CLOCK}&force=true", body, content_type=APPLY
            )
            yield f"{item['kind']} {item['metadata']['name']}: {_change_text(item, stored)}"

    def _reservations(self, decision: Desired, workloads: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        planned = {item["metadata"]["name"]: item for item in decision.reservations}
        existing_names = {workload["metadata"]["name"] for workload in reserving(workloads)}
        path = collection(API, "Workload", vocabulary.PLATFORM_NAMESPACE)
        for name, item in planned.items():
            if name not in existing_names:
                self._request("POST", path, item, allow=(CONFLICT,))
                yield f"{name}: reserving {item['spec']['podSets'][0]['count']} GPUs"
        for name in sorted(existing_names - planned.keys()):
            self._request("DELETE", f"{path}/{name}", allow=(NOT_FOUND,))
            yield f"{name}: no longer reserved"

    def _warn_of_budgets(self, view: View, budgets: Iterable[ExhaustedBudget], now: dt.datetime) -> None:
        tenants_by_name = {tenant.tenant: tenant for tenant in view.tenants}
        for budget in budgets:
            if now - self._event_times.get(budget.tenant, now - EVENT_INTERVAL) < EVENT_INTERVAL:
                continue
            for namespace in tenants_by_name[budget.tenant].namespaces:
                self._warn(_about_budget(tenants_by_name[budget.tenant].namespace_name(namespace), budget, now))
            self._event_times[budget.tenant] = now


def reserving(workloads: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Those of the Workloads by which the clock reserves GPUs."""
    for workload in workloads:
        if workload["metadata"]["namespace"] == vocabulary.PLATFORM_NAMESPACE and KEY in (
            workload["metadata"].get("annotations") or {}
        ):
            yield workload


def _admitted_keys(workloads: Iterable[Mapping[str, Any]]) -> set[str]:
    """Keys of spans all of whose reservations are admitted."""
    admitted_by_key: dict[str, bool] = {}
    for workload in reserving(workloads):
        is_admitted = "Admitted" in true_conditions(workload)
        key = workload["metadata"]["annotations"][KEY]
        admitted_by_key[key] = (
            admitted_by_key.get(key, True) and is_admitted and not workload["metadata"].get("deletionTimestamp")
        )
    return {key for key, is_admitted in admitted_by_key.items() if is_admitted}


def stored_usage(api: Api) -> Usage | None:
    """The usage of the month as the clock has recorded it; None if it has recorded none."""
    answer = api.request("GET", _record_path())
    try:
        return Usage.read(answer.body["data"]["usage"]) if answer.ok else None
    except (KeyError, TypeError, ValueError):
        return None


def _record_path() -> str:
    return f"{collection('v1', 'ConfigMap', vocabulary.PLATFORM_NAMESPACE)}/{vocabulary.CLOCK}"


def _stored(record: Response, now: dt.datetime) -> tuple[Usage, str]:
    if record.status == NOT_FOUND:
        return empty(now), ""
    version = str(record.body["metadata"]["resourceVersion"])
    try:
        return Usage.read((record.body.get("data") or {})["usage"]), version
    except (KeyError, ValueError):
        # Damaged by hand: the Workloads of the month that still exist are counted anew.
        return empty(now), version


def server_time(answer: Response) -> dt.datetime:
    """The time of the API server, by its answer. ApiUnreachable without one."""
    date = next((value for key, value in answer.headers.items() if key.lower() == "date"), None)
    if date is None:
        raise ApiUnreachable("the API server's answer has no Date")
    return parsedate_to_datetime(date).astimezone(dt.UTC)


def _is_same(item: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether quotas and state are the same; equal text is most often, and parsing 1,000 tenants' costs a second."""
    texts = [[queue["spec"].get(key) for _, key in CLOCK_FIELDS] for queue in (item, stored)]
    return texts[0] == texts[1] or _quotas_and_state(item) == _quotas_and_state(stored)


def _quotas_and_state(item: Mapping[str, Any]) -> object:
    quotas = [
        (q.flavor, q.resource, *(None if n is None else thousandths(n) for n in (q.nominal, q.borrowing, q.lending)))
        for q in stored_quotas(item["spec"])
    ]
    return quotas, item["spec"].get("stopPolicy", "None")


def _nominal(item: Mapping[str, Any]) -> int:
    return sum(thousandths(quota.nominal or 0) for quota in stored_quotas(item["spec"]) if quota.resource == _gpu(item))


def _gpu(item: Mapping[str, Any]) -> str:
    """A resource of the GPUs' group, by which quotas are compared: all of the group move together."""
    groups = item["spec"].get("resourceGroups") or []
    return str(groups[-1]["coveredResources"][0]) if groups else ""


def _change_text(item: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    before, after = get_path(stored, "spec", "stopPolicy") or "None", get_path(item, "spec", "stopPolicy") or "None"
    parts = [f"{before} -> {after}"] if before != after else []
    old = {quota[:2]: quota.nominal for quota in stored_quotas(stored["spec"])}
    for quota in stored_quotas(item["spec"]):
        was = old.get(quota[:2])
        if quota.resource == _gpu(item) and was != quota.nominal:
            parts.append(f"{quota.flavor} {was} -> {quota.nominal}")
    return ", ".join(parts) or "limits"


def _about_budget(namespace: str, budget: ExhaustedBudget, now: dt.datetime) -> Object:
    queue = {"apiVersion": API, "kind": "LocalQueue", "name": vocabulary.DEFAULT_QUEUE, "namespace": namespace}
    return _event(queue, f"budget.{budget.since:%Y-%m}", BUDGET_SPENT, str(budget), budget.since, now)


def _about_work(work: Work, reason: str, name: str, sentence: str, now: dt.datetime) -> Object:
    about = {"apiVersion": API, "kind": "Workload", "name": work.name, "namespace": work.namespace, "uid": work.uid}
    return _event(about, name, reason, sentence, now, now)


def _event(
    about: Mapping[str, str], name: str, reason: str, message: str, first: dt.datetime, last: dt.datetime
) -> Object:
    form = "%Y-%m-%dT%H:%M:%SZ"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": dict(about),
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": first.astimezone(dt.UTC).strftime(form),
        "lastTimestamp": last.astimezone(dt.UTC).strftime(form),
        "reportingComponent": vocabulary.CLOCK,
        "source": {"component": vocabulary.CLOCK},
    }
