"""Pods that an object creates, how many of them run at once, and what each requests.

Sources: `k8s.io/component-helpers` v0.36.3 `resource/helpers.go`, `k8s.io/kubernetes` v1.36.3
`pkg/apis/core/v1/defaults.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenancy.kube.objects import Object
from tenancy.kube.pod_templates import templates_of
from tenancy.kube.quantities import thousandths, write

Resources = Counter[str]
"""Resource -> amount, in thousandths."""
SCALE = 1000
_HUGE = "hugepages-"


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one template."""

    name: str
    count: int
    template: Object


class NotWork(ValueError):
    """The object's pods cannot be read."""


def shown_name(item: Mapping[str, Any]) -> str:
    """The name of an object, or the beginning of a name that the API server completes."""
    return item["metadata"].get("name") or f"{item['metadata'].get('generateName', '')}…"


def queued_metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of the queued object."""
    return (item["spec"]["jobTemplate"].get("metadata") or {}) if item["kind"] == "CronJob" else item["metadata"]


def quantity_text(number: int) -> str:
    """A number of thousandths as a quantity."""
    return write(Decimal(number) / SCALE)


def amount_of(number: int, resource: str) -> str:
    """A number of thousandths of a resource, in words."""
    return f"{quantity_text(number)} {resource}"


# Number of pods

_MIN_PODS = "kueue.x-k8s.io/job-min-parallelism"
_SINGLE_POD_KINDS = ("Deployment", "Pod", "ReplicaSet")
"""Kinds whose pods queue one by one."""


def min_pods_to_start(item: Mapping[str, Any]) -> int:
    """Number of pods with which an object starts; 0 if all of its pods start together."""
    if item["kind"] in _SINGLE_POD_KINDS:
        return 1
    return int((item["metadata"].get("annotations") or {}).get(_MIN_PODS, 0)) if item["kind"] == "Job" else 0


def pods_of(item: Mapping[str, Any]) -> list[Pods]:
    """The maximum number of concurrent pods of an object; none if it creates none. NotWork if they cannot be read."""
    kind, spec = item["kind"], item.get("spec") or {}
    try:
        running_pods = [pods for pods in _pods(kind, spec, item) if int(pods.count)]
        for pods in running_pods:
            requests_of(pods.template["spec"])
    except KeyError as error:
        raise NotWork(f"{kind} {shown_name(item)} without {error.args[0]}") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise NotWork(f"{kind} {shown_name(item)}, in which something is not of its form ({error})") from None
    return running_pods


def _pods(kind: str, spec: Any, item: Mapping[str, Any]) -> Iterator[Pods]:
    templates = {template.path.removesuffix(".spec"): template for template in templates_of(item)}

    def pods(name: str, count: Any, path: str = "spec.template") -> Pods:
        return Pods(name, count, {"metadata": templates[path].metadata or {}, "spec": templates[path].spec})

    match kind:
        case "Pod":
            yield pods("pod", 1, "spec")
        case "Job":
            yield pods("pod", _parallel(spec))
        case "CronJob":
            yield pods("pod", _parallel(spec["jobTemplate"]["spec"]), "spec.jobTemplate.spec.template")
        case "Deployment" | "StatefulSet" | "ReplicaSet":
            yield pods("pod", spec.get("replicas", 1))
        case "JobSet":
            for number, job in enumerate(spec["replicatedJobs"]):
                count = job.get("replicas", 1) * _parallel(job["template"]["spec"])
                yield pods(job["name"], count, f"spec.replicatedJobs[{number}].template.spec.template")
        case "LeaderWorkerSet":
            group, replicas, root = spec["leaderWorkerTemplate"], spec.get("replicas", 1), "spec.leaderWorkerTemplate"
            if group.get("leaderTemplate"):
                yield pods("leader", replicas, f"{root}.leaderTemplate")
            size = group.get("size", 1) - ("leaderTemplate" in group)
            yield pods("worker", replicas * size, f"{root}.workerTemplate")
        case "MPIJob":
            for name, replica in spec["mpiReplicaSpecs"].items():
                yield pods(name.lower(), replica.get("replicas", 1), f"spec.mpiReplicaSpecs.{name}.template")
        case "RayCluster" | "RayJob":
            root = "spec" if kind == "RayCluster" else "spec.rayClusterSpec"
            cluster = spec if kind == "RayCluster" else spec["rayClusterSpec"]
            yield pods("head", 1, f"{root}.headGroupSpec.template")
            for number, group in enumerate(cluster.get("workerGroupSpecs") or ()):
                count = group.get("replicas", 1) * max(group.get("numOfHosts", 1), 1)
                yield pods(group["groupName"], count, f"{root}.workerGroupSpecs[{number}].template")


def _parallel(spec: Mapping[str, Any]) -> int:
    return min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))


# Requests and limits of a pod


def requests_of(spec: Mapping[str, Any]) -> Resources:
    """Requests of a pod as the scheduler counts them: the sum of its containers, or the largest init container.

    For CPU, memory and huge pages, requests of the pod as a whole (`spec.resources`) replace that.
    """
    container_requests = _pod_amounts(
        spec, lambda resources: {**resources.get("limits", {}), **resources.get("requests", {})}
    )
    requests, limits = (_of_whole(_resources_of(spec).get(side, {})) for side in ("requests", "limits"))
    # A limit of the whole is its request as well, for what neither the pod nor a container requests.
    defaults = {
        name: limit for name, limit in limits.items() if name not in container_requests or name.startswith(_HUGE)
    }
    overhead = {name: thousandths(amount) for name, amount in (spec.get("overhead") or {}).items()}
    return Counter({**container_requests, **defaults, **requests}) + Counter(overhead)


def limits_of(spec: Mapping[str, Any]) -> Resources:
    """Limits of a pod as a quota counts them: as `requests_of`, with the overhead where there is a limit."""
    pod_limits = _pod_amounts(spec, lambda resources: resources.get("limits", {}))
    pod_limits |= _of_whole(_resources_of(spec).get("limits", {}))
    overhead = {
        name: thousandths(amount) for name, amount in (spec.get("overhead") or {}).items() if pod_limits.get(name)
    }
    return Counter(pod_limits) + Counter(overhead)


def _pod_amounts(spec: Mapping[str, Any], amounts: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, int]:
    """Sum of a pod's containers, or the largest init container if that is more; `amounts` are those of one."""

    def of(container: Mapping[str, Any]) -> Resources:
        return Counter({name: thousandths(amount) for name, amount in amounts(_resources_of(container)).items()})

    total: Resources = Counter()
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        container_amounts = of(container)
        if container.get("restartPolicy") == "Always":
            total.update(container_amounts)
            container_amounts = Counter()
        for name, amount in (total + container_amounts).items():
            largest[name] = max(largest.get(name, 0), amount)
    for container in spec["containers"]:
        total.update(of(container))
    return {name: max(total[name], largest.get(name, 0)) for name in {**total, **largest}}


def _resources_of(holder: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Requests and limits of a container, or of a pod as a whole; those that are null are left out."""
    return {side: amounts for side, amounts in (holder.get("resources") or {}).items() if amounts}


def _of_whole(amounts: Mapping[str, Any]) -> dict[str, int]:
    """Amounts that a pod can have as a whole; the API server takes no others there."""
    return {
        name: thousandths(amount)
        for name, amount in amounts.items()
        if name in {"cpu", "memory"} or name.startswith(_HUGE)
    }
