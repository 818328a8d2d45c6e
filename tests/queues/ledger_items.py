"""The work of a story as objects of the API, by the facts of the event that makes it."""

from __future__ import annotations

from scene import LEAST_PODS, QUEUE, Object, Scene

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tests.ledger_events import Event

GROUP_LABELS = ("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count")
WITHOUT_OPERATOR = {"job": ("batch/v1", "Job"), "deployment": ("apps/v1", "Deployment")}
WITHOUT_OPERATOR |= {"statefulset": ("apps/v1", "StatefulSet"), "pod": ("v1", "Pod"), "group": ("v1", "Pod")}
ROLLOUT = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}}


def resource(kind: str) -> tuple[str, str]:
    """API version and kind."""
    if kind in WITHOUT_OPERATOR:
        return WITHOUT_OPERATOR[kind]
    framework = FRAMEWORKS[kind]
    return f"{framework.group}/{framework.version}", framework.kind


def items_of(scene: Scene, event: Event) -> list[Object]:
    """Objects that a developer creates: one, or the pods of a group."""
    facts, space = event.facts, scene.space(event.tenant)
    match event.kind:
        case "job":
            return [_job(scene, event)]
        case "pod":
            return [_pod(scene, event, event.name, facts["restart"])]
        case "group":
            pods = facts["pods"]
            return [_pod(scene, event, f"{event.name}-{n}", "Never", pods) for n in range(pods)]
    version, kind = resource(event.kind)
    metadata: Object = {"name": event.name, "namespace": space}
    return [{"apiVersion": version, "kind": kind, "metadata": metadata, "spec": _spec(scene, event)}]


def _spec(scene: Scene, event: Event) -> Object:
    facts = event.facts
    gpus, pods = facts["gpus"], facts.get("pods", 1)
    always, once = _template(scene, event, gpus, "Always"), _template(scene, event, gpus, "Never")
    match event.kind:
        case "deployment":
            return {"replicas": pods, "selector": {"matchLabels": {"app": event.name}}, "template": always}
        case "statefulset":
            spec = {"replicas": pods, "selector": {"matchLabels": {"app": event.name}}, "template": always}
            return spec | {"serviceName": event.name, "podManagementPolicy": facts["policy"]}
        case "jobset":
            job: Object = {"backoffLimit": 0, "parallelism": pods, "completions": pods, "template": once}
            if "ttl" in facts:
                job["ttlSecondsAfterFinished"] = facts["ttl"]
            jobs = [{"name": "a", "replicas": facts["jobs"], "template": {"spec": job}}]
            if facts.get("second"):
                jobs.append({"name": "b", "replicas": 1, "template": {"spec": job}})
            return {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": facts["restarts"]}}
        case "leaderworkerset":
            group = {"size": pods, "workerTemplate": always}
            return {"replicas": facts["groups"], "leaderWorkerTemplate": group, "rolloutStrategy": ROLLOUT}
        case "raycluster" | "rayjob":
            head = {"rayStartParams": {}, "template": _template(scene, event, 0, "Never")}
            count = {"replicas": pods, "minReplicas": 0, "maxReplicas": pods, "numOfHosts": facts["hosts"]}
            worker = {"groupName": "gpus", "rayStartParams": {}, **count, "template": once}
            cluster = {"headGroupSpec": head, "workerGroupSpecs": [worker]}
            if event.kind == "raycluster":
                return cluster
            job = {"entrypoint": "true", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
            return {**job, "rayClusterSpec": cluster}
        case "trainjob":
            resources = once["spec"]["containers"][0]["resources"]
            trainer = {"numNodes": pods, "resourcesPerNode": resources}
            return {"runtimeRef": {"name": "plain"}, "trainer": trainer}
        case "mpijob":
            roles = {"Launcher": {"replicas": 1, "template": _template(scene, event, 0, "Never")}}
            roles["Worker"] = {"replicas": pods, "template": once}
            return {"runPolicy": {"cleanPodPolicy": "Running"}, "slotsPerWorker": 1, "mpiReplicaSpecs": roles}
        case unknown_kind:
            raise AssertionError(unknown_kind)


def _template(scene: Scene, event: Event, gpus: int, restart: str) -> Object:
    pods = scene.job(event.tenant, "any", gpus)["spec"]["template"]
    pods["spec"]["restartPolicy"] = restart
    if pool := event.facts.get("pool"):
        pods["spec"]["nodeSelector"] = {**pods["spec"].get("nodeSelector", {}), vocabulary.POOL: pool}
    return {
        "metadata": {"labels": {"app": event.name}, "annotations": pods["metadata"]["annotations"]},
        "spec": pods["spec"],
    }


def _job(scene: Scene, event: Event) -> Object:
    facts = event.facts
    job = scene.job(event.tenant, event.name, facts["gpus"], facts["pods"], priority=facts.get("priority"))
    spec = job["spec"]
    spec["completions"] = facts.get("completions", facts["pods"])
    if spec["completions"] is None:
        del spec["completions"]
    if "mode" in facts:
        spec["completionMode"] = facts["mode"]
    if "per_index" in facts:
        spec |= {"backoffLimitPerIndex": facts["per_index"], "maxFailedIndexes": 1}
    if "ttl" in facts:
        spec["ttlSecondsAfterFinished"] = facts["ttl"]
    if "replacement" in facts:
        spec["podReplacementPolicy"] = facts["replacement"]
    if "least" in facts:
        job["metadata"]["annotations"][LEAST_PODS] = str(facts["least"])
    return job


def _pod(scene: Scene, event: Event, name: str, restart: str, group: int = 0) -> Object:
    pod = _template(scene, event, event.facts["gpus"], restart)
    metadata = {**pod["metadata"], "name": name, "namespace": scene.space(event.tenant)}
    if group:
        group_name, total = GROUP_LABELS
        metadata["labels"] = {**metadata["labels"], group_name: event.name, QUEUE: "default"}
        metadata["annotations"] = {**metadata["annotations"], total: str(group)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}
