"""GPUs that pods have, against those that Kueue counts for their work.

Kueue gives what it does not count to other work, and an eviction does not end it. It counts less than runs where an
operator makes pods anew after Kueue has taken them for ended, makes more pods than its spec says, or leaves pods
behind when its work has ended; more than runs where pods have ended before their work, or do not start.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import COUNT_DELAY_SECONDS
from tenancy.catalog.frameworks import FRAMEWORKS, Framework
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.evictions import keeps_quota_without_pods, late_operator, to_release, to_restart
from tenancy.kube import quantities
from tenancy.kube.objects import true_conditions
from tenancy.kube.pods import SCALE, requests_of
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API, queue_resource
from tenancy.spec.fields.environment import Environment

Object = Mapping[str, Any]
NAMED_WORKS = 5
"""Pieces of work that are named; what is wrong with one of a kind is mostly wrong with all."""
EXPLAINED_KINDS = {"job", "pod", "deployment", "statefulset", *FRAMEWORKS}
"""Kinds that `tenancy why` knows."""
GROUP = "kueue.x-k8s.io/pod-group-name"
"""Label, or annotation of longer names, with the name of the Workload of a group of pods."""
WORKLOAD = "kueue.x-k8s.io/workload"
"""Annotation with the name of the Workload, on pods that Kueue places by topology."""
MAX_OWNERS = 6
"""Owners from a pod up to its work: LeaderWorkerSet, StatefulSet, leader, StatefulSet, worker are five."""
SCHEDULED_PODS = "?fieldSelector=spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class WorkCount:
    """Devices of one resource that the pods of one piece of work have, and those that Kueue counts for it."""

    namespace: str
    kind: str
    name: str
    resource: str
    pods: int
    """Pods with a node that have not ended and ask for the resource."""
    pod_devices: int
    """Devices that those pods have."""
    kueue_devices: int
    unreleased: tuple[str, ...] = ()
    """Workloads of it that were evicted without pods and keep their quota."""
    late_operator: Framework | None = None
    """Its kind if it ended or was evicted and its operator has not ended its pods."""

    @property
    def uncounted_devices(self) -> int:
        """Devices that Kueue gives to other work although they are in use."""
        return max(0, self.pod_devices - self.kueue_devices)

    def sentence(self) -> str:
        """The difference in a sentence, without a name."""
        work = "group of pods" if self.kind == "Pod" and self.pods > 1 else self.kind
        pods = f"{self.pods} pod{'s' * (self.pods != 1)} of this {work}"
        if self.late_operator:
            return (
                f"This {self.kind} has ended or was evicted, and its operator has not ended its pods: they have "
                f"{self.pod_devices} {self.resource}, and Kueue counts {self.kueue_devices}. "
                f"{to_restart(self.late_operator)}"
            )
        if self.uncounted_devices:
            return (
                f"{pods} {'run' if self.pods != 1 else 'runs'} with {self.pod_devices} {self.resource} and Kueue "
                f"counts {self.kueue_devices}: it gives the other {self.uncounted_devices} to other work too, and its "
                "evictions may not end these pods."
            )
        if self.unreleased:
            return (
                f"Kueue evicted this {self.kind}, which has no pods, and still counts {self.kueue_devices} "
                f"{self.resource} for it: other work waits for them. {to_release(self.namespace, self.unreleased)}"
            )
        return (
            f"Kueue counts {self.kueue_devices} {self.resource} for this {self.kind} and its pods have "
            f"{self.pod_devices}: ended pods are counted until the whole work ends, and so are pods that do not start."
        )


def uncounted_work(api: Api, namespace: str, work: Object, workloads: Sequence[Object]) -> WorkCount | None:
    """The work if its pods have had more of a resource than Kueue counts for them for a minute, and the queues of its
    namespace do not count it either: where Kueue takes a Workload's status for more, nothing is wrong."""
    now, tree = _now(), PodTree(api, namespace, workloads)
    uid, title = work["metadata"]["uid"], (work["kind"], work["metadata"]["name"])
    pods = [pod for pod in tree.pods if uid in tree.chain(pod)]
    own_workloads = [w for w in workloads if any(tree.workload(pod) is w for pod in pods) or uid in _owner_uids(w)]
    settled_pods = [pod for pod in pods if _is_settled(pod, now)]
    for count in _counts(tree, title, settled_pods, own_workloads):
        everything = sum(_devices(pod)[count.resource] for pod in tree.pods if _is_settled(pod, now))
        if count.uncounted_devices and everything > _counted_by_queues(api, namespace, count.resource):
            return count
    return None


def _counted_by_queues(api: Api, namespace: str, resource: str) -> int:
    return sum(
        quantities.units(usage.get("total") or 0)
        for queue in api.items(collection(API, "LocalQueue", namespace))
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
        for usage in flavor["resources"]
        if usage["name"] == resource
    )


def bound_devices(api: Api, environment: Environment) -> Counter[tuple[str, str, str]]:
    """Devices of pods with a node, by ClusterQueue, pool and resource."""
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"][vocabulary.POOL]
        for node in api.paged_items(collection("v1", "Node"), selector=vocabulary.POOL)
    }
    queues = {
        queue["metadata"]["namespace"]: queue["spec"]["clusterQueue"]
        for queue in api.paged_items(
            collection(API, "LocalQueue"), selector=f"{vocabulary.ENVIRONMENT}={environment.environment}"
        )
    }
    devices: Counter[tuple[str, str, str]] = Counter()
    for pod in api.items(collection("v1", "Pod") + SCHEDULED_PODS):
        space, pool = pod["metadata"]["namespace"], pools.get(pod["spec"].get("nodeName", ""))
        if pool and space in queues:
            for resource, count in _devices(pod).items():
                devices[queues[space], pool, resource] += count
    return devices


def remarks(api: Api, environment: Environment, namespaces: Iterable[str]) -> list[str]:
    """A sentence for each piece of work whose count differs, with what to do."""
    counts = differences(api, environment, namespaces)
    sentences = []
    for count in counts[:NAMED_WORKS]:
        command = f"`tenancy why {count.kind.lower()}/{count.name} -n {count.namespace}` and "
        command = command if count.kind.lower() in EXPLAINED_KINDS else ""
        advice = f" See {command}the runbook of the alert GpusUncounted." if count.uncounted_devices else ""
        sentences.append(f"{count.kind} {count.name} in {count.namespace}: {count.sentence()}{advice}")
    if (more := len(counts) - NAMED_WORKS) > 0:
        sentences.append(f"{more} more pieces of work differ in that way")
    return sentences


def differences(api: Api, environment: Environment, namespaces: Iterable[str]) -> list[WorkCount]:
    """Work of namespaces whose devices and whose count have differed for a minute, the most uncounted first."""
    resources = {queue_resource(environment, flavor) for flavor in environment.flavors}
    differing: list[WorkCount] = []
    for namespace in namespaces:
        tree = PodTree(api, namespace, api.items(collection(API, "Workload", namespace)))
        now = _now()
        for title, (pods, workloads) in tree.works().items():
            settled_pods = [pod for pod in pods if _is_settled(pod, now)]
            differing += [count for count in _counts(tree, title, settled_pods, workloads) if count.uncounted_devices]
            if any(_is_old(workload, "QuotaReserved", now) for workload in workloads):
                differing += [
                    count
                    for count in _counts(tree, title, pods, workloads)
                    if count.kueue_devices > count.pod_devices or (count.late_operator and not count.uncounted_devices)
                ]
    return sorted(
        (count for count in differing if count.resource in resources),
        key=lambda c: (-c.uncounted_devices, c.pod_devices - c.kueue_devices, c.namespace, c.name, c.resource),
    )


def _counts(
    tree: PodTree, title: tuple[str, str], pods: Sequence[Object], workloads: Iterable[Object]
) -> Iterator[WorkCount]:
    pod_devices, kueue_devices, unreleased = Counter[str](), Counter[str](), list[str]()
    operator = None
    for workload in workloads:
        kueue_devices += counted_devices(workload)
        operator = operator or late_operator(workload, tree.pods_of(workload), _now())
        if keeps_quota_without_pods(workload, _now()):
            unreleased.append(workload["metadata"]["name"])
    devices_of_pods = [_devices(pod) for pod in pods]
    for devices in devices_of_pods:
        pod_devices += devices
    for resource in sorted({*pod_devices, *kueue_devices}):
        pods_with_resource = sum(resource in devices for devices in devices_of_pods)
        counts = (pods_with_resource, pod_devices[resource], kueue_devices[resource])
        yield WorkCount(tree.namespace, *title, resource, *counts, tuple(unreleased), operator)


class PodTree:
    """The pods of a namespace that have nodes, what owns them, and the Workloads by which Kueue counts them."""

    def __init__(self, api: Api, namespace: str, workloads: Sequence[Object]) -> None:
        self.namespace, self._api, self._workloads = namespace, api, workloads
        self._read: set[tuple[str, str]] = set()
        self._known: dict[str, Object] = {}
        self._by_uid = {uid: workload for workload in workloads for uid in _owner_uids(workload)}
        self._by_name = {workload["metadata"]["name"]: workload for workload in workloads}
        self.pods = api.items(collection("v1", "Pod", namespace) + SCHEDULED_PODS)

    def chain(self, pod: Object) -> dict[str, tuple[str, str]]:
        """UID -> kind and name of the pod and its owners, the nearest first. A kind that may not be read ends it."""
        metadata = pod["metadata"]
        owners = {metadata["uid"]: ("Pod", metadata["name"])}
        layer: Sequence[Object] = metadata.get("ownerReferences") or ()
        for _ in range(MAX_OWNERS):
            owners |= {owner["uid"]: (owner["kind"], owner["name"]) for owner in layer}
            layer = [higher for owner in layer for higher in self._owners_of(owner)]
        return owners

    def _owners_of(self, owner: Object) -> Sequence[Object]:
        kind = (owner["apiVersion"], owner["kind"])
        if owner["uid"] not in self._known and kind not in self._read:
            self._read.add(kind)
            try:
                items = self._api.items(collection(*kind, self.namespace))
            except ApiUnreachable:
                items = []
            self._known |= {item["metadata"]["uid"]: item for item in items}
        item = self._known.get(owner["uid"])
        return item["metadata"].get("ownerReferences") or () if item else ()

    def workload(self, pod: Object) -> Object | None:
        """The Workload of a pod: the one that it names, or that of its nearest owner that has one."""
        metadata = pod["metadata"]
        names = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
        for key in (GROUP, WORKLOAD):
            if workload := self._by_name.get(names.get(key, "")):
                return workload
        return next((self._by_uid[uid] for uid in self.chain(pod) if uid in self._by_uid), None)

    def pods_of(self, workload: Object) -> Iterator[Object]:
        """The pods that Kueue counts by a Workload."""
        return (pod for pod in self.pods if self.workload(pod) is workload)

    def works(self) -> dict[tuple[str, str], tuple[list[Object], list[Object]]]:
        """Kind and name of each piece of work -> its pods and its Workloads: a LeaderWorkerSet has one for each group,
        and what was left behind has none."""
        works: dict[tuple[str, str], tuple[list[Object], list[Object]]] = {}
        for workload in self._workloads:
            works.setdefault(_title(workload), ([], []))[1].append(workload)
        for pod in self.pods:
            workload = self.workload(pod)
            title = _title(workload) if workload else list(self.chain(pod).values())[-1]
            works.setdefault(title, ([], []))[0].append(pod)
        return works


def counted_devices(workload: Object) -> Counter[str]:
    """Devices that Kueue counts for a Workload, by resource (v0.19.2 `pkg/workload/workload.go`)."""
    status = workload.get("status") or {}
    if "Finished" in true_conditions(workload):
        return Counter()
    reclaimable = {pods["name"]: pods["count"] for pods in status.get("reclaimablePods") or ()}
    counts = {pods["name"]: pods.get("count", 1) for pods in workload["spec"]["podSets"]}
    devices: Counter[str] = Counter()
    for pods in (status.get("admission") or {}).get("podSetAssignments") or ():
        name = pods["name"]
        count = pods.get("count", counts.get(name, 1))
        active = max(0, min(count, counts.get(name, count) - reclaimable.get(name, 0)))
        for resource, amount in (pods.get("resourceUsage") or {}).items():
            devices[resource] += quantities.units(amount) * active // count if count else 0
    return devices


def _devices(pod: Object) -> Counter[str]:
    """Extended resources of a pod: those whose name has a domain."""
    requests = requests_of(pod["spec"])
    return Counter({name: amount // SCALE for name, amount in requests.items() if "/" in name and amount >= SCALE})


def _owner_uids(item: Object) -> set[str]:
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}


def _title(workload: Object) -> tuple[str, str]:
    """Kind and name of what a Workload is of. The pods of a group own theirs together: the first stands for them."""
    for owner in workload["metadata"].get("ownerReferences") or ():
        return owner.get("kind", "Workload"), owner["name"]
    return "Workload", workload["metadata"]["name"]


def _is_settled(pod: Object, now: dt.datetime) -> bool:
    """Whether it has had its node for a minute, and is not told to end or should have ended by now."""
    ends = pod["metadata"].get("deletionTimestamp")
    if ends and _time(ends) > now:
        return False
    return _is_old(pod, "PodScheduled", now)


def _is_old(item: Object, kind: str, now: dt.datetime) -> bool:
    """Whether a condition has been true for a minute."""
    condition = true_conditions(item).get(kind)
    return (
        condition is not None and (now - _time(condition["lastTransitionTime"])).total_seconds() > COUNT_DELAY_SECONDS
    )


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
