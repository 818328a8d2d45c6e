"""Events of a story on a running cluster, and what must be true whenever it rests.

People ask with their own rights. A kubelet's part is played: it ends pods as an event says.
"""

from __future__ import annotations

import copy
import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ledger_evidence import evidence
from ledger_items import items_of, resource
from scene import GPU, PLATFORM, Object, Scene, condition, end_work, holds

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.clock.controller import Clock
from tenancy.cluster.api import ApiUnreachable, Response
from tenancy.cluster.evictions import late_operator
from tenancy.explain.gpu_counts import PodTree, counted_devices
from tenancy.explain.usage import QueueUse
from tenancy.kube.requests import MERGE, collection
from tenancy.planning.queueing.queue_names import API
from tests.ledger_events import Event
from tests.running_operators import PROGRAMS, Operators
from tests.waiting import PATIENCE

QUIET_SECONDS = 1.5
"""For which nothing may change at rest."""
LOOP_SECONDS = 6.0
"""For which no work may be evicted, or start again after it: the evictions of a loop are two to five seconds apart."""
END_SECONDS = PATIENCE
"""For which nothing may be wrong at rest, and within which what was told to end has ended."""
REST_PATIENCES = 3
"""Within so many times that long all comes to rest: on a busy machine evictions may follow from others for a minute."""
LATE_SECONDS = 20.0
"""After which an operator that has not ended evicted work is restarted."""
REFUSAL_SECONDS = 400.0
"""Time for which a refusal of a pod by the namespace's quota counts. A controller repeats it within a minute, but its
client sends 25 events of an object and then one in five minutes."""
CHILDREN = {"leaderworkerset": ("apps/v1", "StatefulSet"), "rayjob": ("ray.io/v1", "RayCluster")}
"""Labels of kinds whose children are no Jobs."""
RAY_OUTCOME = "played.example/ray-job"
"""Annotation of a RayCluster that says what became of its job (`tests/modules/operators/kuberay.go`)."""


@dataclass(frozen=True)
class Sight:
    """State of the cluster at one moment."""

    bound: dict[str, int]
    """GPUs of pods with a node that have not ended, by tenant."""
    counted: dict[str, int]
    """GPUs that Kueue counts, by tenant."""
    evictions: int
    """Evictions of all Workloads since the start."""
    evicted: float
    """When work was last evicted, or let start again after it, in seconds since 1970."""
    problems: tuple[str, ...]
    works: frozenset[str]
    """Names of the work that the problems are of."""

    def moves(self) -> object:
        """Facts that do not change at rest."""
        return self.bound, self.counted, self.evictions, self.problems


@dataclass
class Verdict:
    """Problems that were there when a story rested."""

    number: int
    """Events until then."""
    problems: tuple[str, ...]
    works: frozenset[str] = frozenset()
    evidence: str = ""
    """Evidence of the cluster on this work."""


@dataclass
class Player:
    """Plays events on a scene."""

    scene: Scene
    operators: Operators | None = None
    clock: Clock | None = None
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    rests: list[float] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)
    """Seconds that each kind of event took."""
    _touched: set[str] = field(default_factory=set)
    """Work of which a pod ended or was taken away, or whose size was changed: it may be counted without pods."""
    _late_since: dict[str, float] = field(default_factory=dict)
    """Namespaces of operators that have not ended evicted work, and since when."""

    def play(self, events: Sequence[Event], patience: float = END_SECONDS) -> Verdict | None:
        """Play them; what was wrong at the first rest at which something was."""
        for number, event in enumerate(events, 1):
            if event.verb == "rest":
                if verdict := self.wait_for_rest(patience):
                    return replace(verdict, number=number)
                continue
            try:
                self._do(event)
            except Exception as error:
                error.add_note(f"in event {number}: {event!r}")
                raise
        return None

    def clear(self) -> None:
        """Take all work off the cluster, and what events left of queues and nodes."""
        self._touched.clear()
        self._uncordon()
        for tenant in self._tenants():
            self._stop(tenant, "None")
            space = self.scene.space(tenant)
            for name in FRAMEWORKS:
                where = collection(*resource(name), space)
                for item in self.scene.api.items(where, absent=True):
                    self.scene.api.request("DELETE", f"{where}/{item['metadata']['name']}?propagationPolicy=Background")
            end_work(self.scene.api, space)
        self.scene.clear()

    # What is done

    def _do(self, event: Event) -> None:
        action: Callable[[Event], Response | None] = getattr(self, f"_{event.verb.replace('-', '_')}")
        began = time.monotonic()
        try:
            answer = action(event)
        except ApiUnreachable as error:
            # The API server repeats an eviction for up to ten seconds, as long as the pod changes meanwhile.
            self._touched.add(event.name)
            self.log.append(f"{event!r} -> {error}")
            return
        self.seconds[event.verb] += time.monotonic() - began
        refusal = "" if answer is None or answer.ok else f" -> {answer.status} {answer.message[-160:]}"
        self.log.append(f"{event!r}{refusal}")
        if answer is not None:
            self.answers[event.verb, answer.status // 100] += 1

    def _ask(self, event: Event, method: str, path: str, body: Object | None = None) -> Response:
        return self.scene.api.request(
            method, path, body, self.scene.developer(event.tenant), MERGE if method == "PATCH" else "application/json"
        )

    def _make(self, event: Event) -> Response | None:
        answer = None
        for item in items_of(self.scene, event):
            answer = self.scene.ask(event.tenant, item)
            if not answer.ok:
                break
        return answer

    def _finish(self, event: Event) -> None:
        if event.kind == "rayjob" and not event.facts["left"]:
            self._end_ray_job(event)
            return
        pods = self._running(event)
        remainder = min(event.facts["left"], len(pods))
        first = int(event.facts["at"] * (len(pods) - remainder + 1)) if pods else 0
        for pod in pods[:first] + pods[first + remainder :]:
            self._end(pod, "Succeeded")
            self._touched.add(event.name)

    def _end_ray_job(self, event: Event) -> None:
        """Write the end that Ray reports for the job of a RayJob from now on; its pods run until KubeRay ends them."""
        where = collection("ray.io/v1", "RayCluster", self.scene.space(event.tenant))
        for name in self._names(event, where):
            note = {"metadata": {"annotations": {RAY_OUTCOME: "SUCCEEDED"}}}
            answer = self.scene.api.request("PATCH", f"{where}/{name}", note, content_type=MERGE)
            assert answer.ok or answer.status == 404, answer.message
            self._touched.add(event.name)

    def _fail(self, event: Event) -> None:
        if pod := self._chosen_pod(event):
            self._end(pod, "Failed")
            self._touched.add(event.name)

    def _delete(self, event: Event) -> Response | None:
        version, kind = resource(event.kind)
        where = collection(version, kind, self.scene.space(event.tenant))
        self._touched.add(event.name)
        answer = None
        for name in self._names(event, where) if event.kind == "group" else [event.name]:
            answer = self._ask(event, "DELETE", f"{where}/{name}?propagationPolicy={event.facts['how']}")
        return answer

    def _delete_child(self, event: Event) -> Response | None:
        """Delete the finished children of a JobSet, or a running child of another kind."""
        version, kind = CHILDREN.get(event.kind, ("batch/v1", "Job"))
        where = collection(version, kind, self.scene.space(event.tenant))
        items = [i for i in self.scene.api.items(where) if _is_of(i["metadata"]["name"], event.name)]
        if kind == "Job":
            items = [item for item in items if holds(item, "Complete")] or items
        if not items:
            return None
        self._touched.add(event.name)
        name = _at(items, event.facts["at"])["metadata"]["name"]
        return self._ask(event, "DELETE", f"{where}/{name}?propagationPolicy=Background")

    def _delete_pod(self, event: Event) -> Response | None:
        pod = self._chosen_pod(event)
        if pod is None:
            return None
        self._touched.add(event.name)
        where = collection("v1", "Pod", self.scene.space(event.tenant))
        return self._ask(event, "DELETE", f"{where}/{pod['metadata']['name']}")

    def _scale(self, event: Event) -> Response:
        self._touched.add(event.name)
        replicas = event.facts["replicas"]
        if event.kind == "raycluster":
            cluster = self.scene.api.request("GET", self._path(event)).body
            groups = copy.deepcopy(cluster.get("spec", {}).get("workerGroupSpecs") or [])
            for group in groups:
                group["replicas"] = replicas
            return self._ask(event, "PATCH", self._path(event), {"spec": {"workerGroupSpecs": groups}})
        return self._ask(event, "PATCH", self._path(event), {"spec": {"replicas": replicas}})

    def _roll(self, event: Event) -> Response | None:
        item = self.scene.api.request("GET", self._path(event)).body
        if "spec" not in item:
            return None
        self._touched.add(event.name)
        container = copy.deepcopy(item["spec"]["template"]["spec"]["containers"][0])
        for amounts in container["resources"].values():
            if GPU in amounts:
                amounts[GPU] = str(event.facts["gpus"])
        change = {"spec": {"template": {"spec": {"containers": [container]}}}}
        return self._ask(event, "PATCH", self._path(event), change)

    def _patch(self, event: Event) -> Response:
        self._touched.add(event.name)
        return self._ask(event, "PATCH", self._path(event), {"spec": event.facts["spec"]})

    def _evict(self, event: Event) -> Response | None:
        pod = self._chosen_pod(event)
        if pod is None:
            return None
        self._touched.add(event.name)
        return self._evicted(pod)

    def _evicted(self, pod: Object) -> Response:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        item = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}
        return self.scene.api.request("POST", f"{collection('v1', 'Pod', space)}/{name}/eviction", item, PLATFORM)

    def _drain(self, event: Event) -> None:
        """No pod may come to a node with GPUs until the next rest, and those that are there go."""
        items = self.scene.items("Node", None, "v1")
        nodes = sorted(node["metadata"]["name"] for node in items if GPU in node["status"]["allocatable"])
        node = nodes[event.facts["node"] % len(nodes)]
        self._cordon(node, True)
        for tenant in self._tenants():
            for pod in self.scene.pods(self.scene.space(tenant)):
                if pod["spec"].get("nodeName") == node:
                    self._touched.add(_work_of(pod["metadata"]["name"]))
                    self._evicted(pod)

    def _hold(self, event: Event) -> Response:
        return self._stop(event.tenant, "HoldAndDrain" if event.facts["drain"] else "Hold")

    def _resume(self, event: Event) -> Response:
        return self._stop(event.tenant, "None")

    def _stop(self, tenant: str, policy: str) -> Response:
        where = f"{collection(API, 'LocalQueue', self.scene.space(tenant))}/default"
        return self.scene.api.request("PATCH", where, {"spec": {"stopPolicy": policy}}, PLATFORM, MERGE)

    def _restart(self, event: Event) -> None:
        """A program ends at once, and is started again."""
        if event.name == "kueue":
            self.scene.kill_kueue()
            self.scene.start_kueue()
        elif self.operators:
            self.operators.stop(event.name)
            self.operators.start(event.name)
            self.operators.until_ready(event.name)

    def _pause(self, event: Event) -> None:
        time.sleep(event.facts["seconds"])

    def _until(self, event: Event) -> None:
        """Until so many pods of it run, for half a minute."""
        ends = time.monotonic() + 30
        while len(self._running(event)) < event.facts["pods"] and time.monotonic() < ends:
            time.sleep(0.2)

    # What there is

    def _tenants(self) -> list[str]:
        return [tenant.tenant for tenant in self.scene.loaded.tenants]

    def _path(self, event: Event) -> str:
        return f"{collection(*resource(event.kind), self.scene.space(event.tenant))}/{event.name}"

    def _names(self, event: Event, where: str) -> list[str]:
        names = [item["metadata"]["name"] for item in self.scene.api.items(where)]
        return [name for name in names if _is_of(name, event.name)]

    def _running(self, event: Event) -> list[Object]:
        pods = self.scene.pods(self.scene.space(event.tenant))
        own_pods = [pod for pod in pods if _is_of(pod["metadata"]["name"], event.name)]
        return sorted(own_pods, key=lambda pod: pod["metadata"]["name"])

    def _chosen_pod(self, event: Event) -> Object | None:
        pods = self._running(event)
        return _at(pods, event.facts["at"]) if pods else None

    def _end(self, pod: Object, phase: str) -> None:
        """Write the status that a kubelet writes when the containers of a pod have ended."""
        code = 0 if phase == "Succeeded" else 1
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        states = [
            {"name": c["name"], "image": c["image"], "imageID": "", "ready": False, "restartCount": 0, "state": ended}
            for c in pod["spec"]["containers"]
        ]
        conditions = [
            {**c, "status": "False", "reason": "PodCompleted"} if c["type"] in {"Ready", "ContainersReady"} else c
            for c in pod["status"]["conditions"]
        ]
        status = {"phase": phase, "containerStatuses": states, "conditions": conditions}
        where = f"{collection('v1', 'Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}/status"
        answer = self.scene.api.request("PATCH", where, {"status": status}, content_type=MERGE)
        assert answer.ok or answer.status == 404, answer.message

    def _end_deleted(self, pods: Sequence[Object]) -> None:
        """Write the status that a kubelet writes before a pod goes: a Job with `podReplacementPolicy: Failed` waits for
        it."""
        for pod in pods:
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp") and metadata.get("finalizers") and pod["status"]["phase"] == "Running":
                self._end(pod, "Failed")

    def _cordon(self, node: str, is_closed: bool) -> None:
        where = f"{collection('v1', 'Node')}/{node}"
        self.scene.api.request("PATCH", where, {"spec": {"unschedulable": is_closed or None}}, PLATFORM, MERGE)

    def _uncordon(self) -> None:
        for node in self.scene.items("Node", None, "v1"):
            if node["spec"].get("unschedulable"):
                self._cordon(node["metadata"]["name"], False)

    # What must be true at rest

    def wait_for_rest(self, patience: float = END_SECONDS) -> Verdict | None:
        """Wait until nothing has changed for some seconds and nothing is wrong; what has been for so many seconds."""
        self._uncordon()
        began = since = time.monotonic()
        first_seen: dict[str, float] = {}
        start, last = self.look(), None
        while True:
            sight, now = self.look(), time.monotonic()
            if last is None or sight.moves() != last.moves():
                since = now
            last = sight
            first_seen = {problem: first_seen.get(problem, now) for problem in sight.problems}
            since_eviction = time.time() - sight.evicted
            if not sight.problems and now - since >= QUIET_SECONDS and since_eviction >= LOOP_SECONDS:
                self.rests.append(now - began)
                self.log.append(f"# at rest after {now - began:.0f} s: run {sight.bound}, counted {sight.counted}")
                return None
            problems = [problem for problem, since_when in first_seen.items() if now - since_when >= patience]
            if problems or now - began > REST_PATIENCES * patience:
                evictions = sight.evictions - start.evictions
                state = f"run {sight.bound}, counted {sight.counted}, {evictions} evictions"
                if not problems:
                    verb = "evictions go on" if since_eviction < 3 * LOOP_SECONDS else "it does not come to rest"
                    problems = [f"{verb} though nothing is submitted: {state}", *sight.problems]
                self.log += [f"# {problem}" for problem in (*problems, state)]
                return Verdict(0, tuple(problems), sight.works, evidence(self.scene, sight.works))
            time.sleep(0.4)

    def look(self) -> Sight:
        """The state now, with the problems that it would have at rest."""
        holdings = [use for use in self.scene.holdings() if use.flavor == "a100"]
        bound: Counter[str] = Counter()
        counted: Counter[str] = Counter()
        evictions, evicted, problems, works = 0, 0.0, list[str](), set[str]()
        is_kept, late_namespaces = False, set[str]()
        for tenant in self._tenants():
            space = self.scene.space(tenant)
            workloads = self.scene.items("Workload", space)
            evictions += sum(map(_evictions, workloads))
            evicted = max(evicted, *map(_evicted, workloads), 0.0)
            tree, pods = PodTree(self.scene.api, space, workloads), self.scene.items("Pod", space, "v1")
            self._end_deleted(pods)
            bound[tenant] = sum(map(_gpus, tree.pods))
            counted[tenant] = sum(use.held for use in holdings if use.tenant == tenant)
            if bound[tenant] > counted[tenant]:
                problems.append(f"{tenant}: {bound[tenant]} GPUs run, {counted[tenant]} are counted")
            work_conditions = _conditions_of_work(workloads)
            is_kept |= bool(work_conditions)
            late_namespaces |= _late_operators(tree, workloads)
            wrong = {
                **self._miscounted(space, tree, pods),
                **_told_to_end(tree),
                **work_conditions,
                **self._kept_waiting(tenant, workloads, holdings),
            }
            problems += [f"{tenant}, {title}: {problem}" for title, problem in wrong.items()]
            works |= {_work_of(title.partition("/")[2]) for title in wrong}
        if is_kept and self.clock:
            self.clock.tick()
        self._restart_operators(late_namespaces)
        return Sight(dict(bound), dict(counted), evictions, evicted, tuple(problems), frozenset(works))

    def _restart_operators(self, namespaces: set[str]) -> None:
        """As `tenancy queues` advises: the operators of these namespaces have not ended evicted work."""
        now = time.monotonic()
        self._late_since = {name: self._late_since.get(name, now) for name in namespaces}
        for program in PROGRAMS.values():
            namespace = FRAMEWORKS[program.framework].namespace
            if self.operators and now - self._late_since.get(namespace, now) >= LATE_SECONDS:
                self.log.append(f"# {program.name} has not ended evicted work and is restarted")
                self._restart(Event("restart", name=program.name))
                del self._late_since[namespace]

    def _miscounted(self, space: str, tree: PodTree, pods: Sequence[Object]) -> dict[str, str]:
        """Work that has more GPUs than are counted; or fewer, though none of its pods ended, waits, was refused or was
        changed."""
        unbound = {
            _work_of(pod["metadata"]["name"])
            for pod in pods
            if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}
        }
        problems, refused = {}, None
        for (kind, name), (own_pods, workloads) in tree.works().items():
            run = sum(map(_gpus, own_pods))
            counts = sum(counted_devices(workload)[GPU] for workload in workloads)
            if run < counts and _work_of(name) not in self._touched | unbound:
                refused = self._refused(space) if refused is None else refused
                if _work_of(name) in refused:
                    continue
            elif run <= counts:
                continue
            problems[f"{kind}/{name}"] = f"its pods have {run} GPUs and {counts} are counted for it"
        return problems

    def _refused(self, space: str) -> set[str]:
        """Work whose pods the namespace's quota refuses: pods that wait in the queue count in it too."""
        events = self.scene.api.items(collection("v1", "Event", space) + "?fieldSelector=type=Warning")
        now = time.time()
        return {
            _work_of(event["involvedObject"]["name"])
            for event in events
            if "exceeded quota" in event["message"] and now - _time(event.get("lastTimestamp")) < REFUSAL_SECONDS
        }

    def _kept_waiting(self, tenant: str, workloads: Sequence[Object], holdings: Sequence[QueueUse]) -> dict[str, str]:
        """Work that waits and would fit into what its tenant is guaranteed and does not use."""
        local = self.scene.items("LocalQueue", self.scene.space(tenant))
        if not all(holds(queue, "Active") for queue in local):
            return {}
        free = sum(use.guaranteed - use.held for use in holdings if use.tenant == tenant)
        problems = {}
        for workload in workloads:
            request = sum(map(_request, workload["spec"]["podSets"]))
            is_done = any(holds(workload, kind) for kind in ("QuotaReserved", "Finished"))
            reserved = condition(workload, "QuotaReserved")
            # A StatefulSet that is scaled to 0 wants nothing.
            is_waiting = not is_done and workload["spec"].get("active", True) and reserved.get("reason") != "OnHold"
            if is_waiting and 0 < request <= free and self._has_pool(workload):
                problems[_title(workload)] = (
                    f"it waits for {request} GPUs and {free} of the guarantee are free ({reserved.get('message', '')})"
                )
        return problems

    def _has_pool(self, workload: Object) -> bool:
        """Whether there is a pool of the name that its pods select."""
        specs = [pods["template"]["spec"] for pods in workload["spec"]["podSets"]]
        pools = {(spec.get("nodeSelector") or {}).get(vocabulary.POOL) for spec in specs}
        return pools - {None} <= self.scene.loaded.environment.pools.keys()


def _at(items: Sequence[Object], part: float) -> Object:
    """The item at that part of the list, from 0 for its first to 1 for its last."""
    return items[min(int(part * len(items)), len(items) - 1)]


def _told_to_end(tree: PodTree) -> dict[str, str]:
    """Work that has ended or was evicted, and pods that were deleted, and run all the same."""
    problems = {}
    for (kind, name), (pods, workloads) in tree.works().items():
        states = {state for workload in workloads if (state := _ending(workload))}
        if pods and states and all(map(_ending, workloads)):
            problems[f"{kind}/{name}"] = f"it is {' and '.join(sorted(states))}, and {len(pods)} of its pods run"
        for pod in pods:
            if since := pod["metadata"].get("deletionTimestamp"):
                problems[f"Pod/{pod['metadata']['name']}"] = f"it was deleted at {since} and is there"
    return problems


def _late_operators(tree: PodTree, workloads: Sequence[Object]) -> set[str]:
    """Namespaces of operators that have not ended evicted work."""
    now = dt.datetime.now(dt.UTC)
    operators = [late_operator(workload, tree.pods_of(workload), now) for workload in workloads]
    return {operator.namespace for operator in operators if operator}


def _conditions_of_work(workloads: Sequence[Object]) -> dict[str, str]:
    """Work that was evicted and whose GPUs are counted all the same: other work waits for them."""
    return {
        _title(workload): f"it was evicted, and {count} GPUs are counted for it"
        for workload in workloads
        if holds(workload, "Evicted") and (count := counted_devices(workload)[GPU])
    }


def _ending(workload: Object) -> str:
    """Whether its pods have to be gone, in a word; what was evicted and admitted again goes on."""
    if holds(workload, "Finished"):
        return "finished"
    return "evicted" if holds(workload, "Evicted") and not holds(workload, "Admitted") else ""


def _evictions(workload: Object) -> int:
    stats = ((workload.get("status") or {}).get("schedulingStats") or {}).get("evictions") or ()
    return sum(stat["count"] for stat in stats)


def _evicted(workload: Object) -> float:
    return _time(condition(workload, "Evicted").get("lastTransitionTime"))


def _time(when: str | None) -> float:
    return dt.datetime.fromisoformat(when).timestamp() if when else 0.0


def _title(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or [{"kind": "Workload", "name": workload["metadata"]["name"]}]
    return f"{owners[0]['kind']}/{owners[0]['name']}"


def _amount(pod: Object) -> int:
    return sum(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in pod["containers"])


def _gpus(pod: Object) -> int:
    return _amount(pod["spec"])


def _request(pods: Object) -> int:
    return pods.get("count", 1) * _amount(pods["template"]["spec"])


def _is_of(name: str, work: str) -> bool:
    """Whether a child is of that work: its name begins with the work's."""
    return name == work or name.startswith(f"{work}-")


def _work_of(name: str) -> str:
    """The work that a child is of."""
    return name.partition("-")[0]
