"""Behaviour that a dry run cannot show: quota under concurrency, quota that a status frees, eviction, queueing
order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from attack_lab import Cluster, apply, without_controllers

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api
from tenancy.kube import deniers
from tenancy.kube.requests import MERGE, STRATEGIC, Impersonation, collection
from tenancy.planning.kubernetes import quotas
from tenancy.planning.kubernetes.pod_defaults import JOB_NAME, REVISIONS
from tenancy.rules.attacks import put
from tenancy.rules.availability import JOB_CONTROLLER
from tenancy.rules.values import unenforced_quota_keys
from tenancy.rules.workloads import CLUSTER_ADMIN, LIMITS, workload
from tenancy.verify.attacks import AttackedNamespace
from tests.waiting import until_clear

GPU = "nvidia.com/gpu"
KEYS = {"of-limits": f"limits.{GPU}", "bare": GPU, "misspelt": "requests.nvida.com/gpu"}
AT_ONCE, ROOM = 50, 5
NODE = "verify-small"
SMALL = {"cpu": "4", "memory": "16Gi", "pods": "20", "ephemeral-storage": "100Gi"}


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    assert cluster.scene.home
    return cluster.scene.home


@pytest.fixture(scope="module")
def neighbour(cluster: Cluster, home: AttackedNamespace) -> AttackedNamespace:
    neighbour_place = next(place for place in cluster.scene.staffed if place.tenant.tenant != home.tenant.tenant)
    assert neighbour_place
    return neighbour_place


def _with_gpus(home: AttackedNamespace) -> tuple[dict[str, Any], str]:
    """A pod with one GPU of the first kind, and the resource's name."""
    flavor = next(iter(home.usable_gpus))
    return home.pod({flavor: 1}), home.environment.resource_of(flavor)


@contextmanager
def _created(api: Api, path: str, body: Any, who: Impersonation | None = None) -> Generator[str]:
    answer = api.request("POST", path, body, who)
    assert answer.ok, answer.message
    object_path = f"{path}/{answer.body['metadata']['name']}"
    try:
        yield object_path
    finally:
        _delete(api, object_path)


def _delete(api: Api, object_path: str) -> None:
    """No controller here removes a pod's own finalizers, so this does."""
    api.request("PATCH", object_path, {"metadata": {"finalizers": None}}, None, MERGE)
    # Without a policy the API server would leave a job's pods behind, and wait for what does that.
    api.request("DELETE", f"{object_path}?gracePeriodSeconds=0&propagationPolicy=Background")
    until_clear(lambda: api.request("GET", object_path).ok, f"{object_path} is gone")


# Quotas


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_that_counts_nothing_limits_nothing_and_is_refused_when_read(
    cluster: Cluster, home: AttackedNamespace, key: str
) -> None:
    pod, resource = _with_gpus(home)
    quota: dict[str, Any] = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "of-a-test"}}
    quota["spec"] = {"hard": {key.replace(GPU, resource): "0"}}
    pods = collection("v1", "Pod", home.name)
    with _created(cluster.api, collection("v1", "ResourceQuota", home.name), quota) as quota_path:

        def uncounted() -> bool:
            status = cluster.api.request("GET", quota_path).body.get("status") or {}
            return "hard" not in status

        until_clear(uncounted, "the quota was looked at")
        answer = cluster.api.request("POST", f"{pods}?dryRun=All", pod, home.developer)
        assert answer.ok, f"the key would count: {answer.message}"
        counts = {"spec": {"hard": {key.replace(GPU, resource): None, f"requests.{resource}": "0"}}}
        assert cluster.api.request("PATCH", quota_path, counts, content_type=MERGE).ok
        until_clear(
            lambda: cluster.api.request("POST", f"{pods}?dryRun=All", pod, home.developer).ok,
            "the twin's key counts",
        )
    if key == KEYS["misspelt"]:
        # Its form counts; that no pod asks for such a resource follows from the plan's own list of resources.
        assert f"requests.{resource}" in quotas.gpu_quota(home.environment, home.tenant, home.namespace)
    else:
        assert unenforced_quota_keys([key]) == [key]


def test_an_ended_pod_counts_as_an_object_and_no_longer_as_a_pod(cluster: Cluster, home: AttackedNamespace) -> None:
    """`pods` alone would let a tenant store as many ended ones as it likes."""
    pod, pods, path = home.pod(), collection("v1", "Pod", home.name), collection("v1", "ResourceQuota", home.name)
    quota: dict[str, Any] = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "of-objects"}}
    another = put(pod, "/metadata/name", "another")
    with _created(cluster.api, pods, pod, home.developer) as ended:
        ends = {"status": {"phase": "Succeeded"}}
        assert cluster.api.request("PATCH", f"{ended}/status", ends, content_type=MERGE).ok
        for key, used in (("count/pods", "1"), ("pods", "0")):
            with _created(cluster.api, path, {**quota, "spec": {"hard": {key: "1"}}}) as quota_path:
                until_clear(
                    lambda quota_path=quota_path, key=key, used=used: (
                        (cluster.api.request("GET", quota_path).body.get("status") or {}).get("used", {}).get(key)
                        != used
                    ),
                    f"{key} is counted",
                )
                answer = cluster.api.request("POST", f"{pods}?dryRun=All", another, home.developer)
                if used == "1":
                    assert answer.status == 403
                    assert "exceeded quota: of-objects" in answer.message
                else:
                    assert answer.ok, answer.message


@pytest.mark.parametrize("scope", ["Terminating", "NotTerminating", "NotBestEffort"])
def test_no_quota_of_ours_on_gpus_is_scoped_by_how_work_ends(
    cluster: Cluster, home: AttackedNamespace, scope: str
) -> None:
    """The API server takes such a quota, which does not count a pod with a deadline, or one without."""
    path = f"{collection('v1', 'ResourceQuota', home.name)}?dryRun=All"
    quota: dict[str, Any] = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "scoped"}}
    quota["spec"] = {"hard": {f"requests.{GPU}": "1"}, "scopes": [scope]}
    answer = cluster.api.request("POST", path, quota)
    assert answer.ok, f"this test is no longer needed: {answer.message}"
    on_gpus = [
        item["spec"]
        for item in cluster.plan.objects()
        if item["kind"] == "ResourceQuota"
        and any(key.startswith("requests.nvidia.com/") for key in item["spec"]["hard"])
    ]
    assert on_gpus
    assert [spec for spec in on_gpus if scope in str(spec.get("scopes", "")) + str(spec.get("scopeSelector", ""))] == []


def test_fifty_at_once_get_exactly_what_the_quota_has(cluster: Cluster, home: AttackedNamespace) -> None:
    """Admission counts exactly. The quota controller recounts from what its cache has seen: while it lags behind, as on
    a busy machine, a recount in between gives room again. That is Kubernetes' own, so it stands still here."""
    key = "count/poddisruptionbudgets.policy"
    quota = f"{collection('v1', 'ResourceQuota', home.name)}/{quotas.NAME}"
    hard = cluster.api.request("GET", quota).body["spec"]["hard"]
    path = collection("policy/v1", "PodDisruptionBudget", home.name)
    budget: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {}}
    budget["spec"] = {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1}
    budgets = [put(budget, "/metadata/name", f"at-once-{number}") for number in range(AT_ONCE)]

    def allow(value: str) -> None:
        assert cluster.api.request("PATCH", quota, {"spec": {"hard": {key: value}}}, content_type=MERGE).ok

    def unseen(value: str) -> bool:
        status = cluster.api.request("GET", quota).body["status"]
        return status["hard"].get(key) != value or status["used"].get(key) != "0"

    allow(str(ROOM))
    until_clear(lambda: unseen(str(ROOM)), "the quota is counted anew")
    try:
        with without_controllers(cluster), ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda body: cluster.api.request("POST", path, body, home.developer), budgets))
        refused = {denial.denier(a.status, a.message) for a in answers if not a.ok}
        # A server that finds the count taken away under it says so and has the client try again.
        late = [a for a in answers if a.status in (409, 500, 429)]
        assert refused <= {deniers.quota(quotas.NAME), deniers.UNKNOWN}
        assert sum(a.ok for a in answers) <= ROOM
        assert sum(a.ok for a in answers) == ROOM or late, "as many as there is room for"
    finally:
        for body in budgets:
            cluster.api.request("DELETE", f"{path}/{body['metadata']['name']}")
        allow(hard[key])
        until_clear(lambda: unseen(hard[key]), "the quota has room again")


def test_a_write_of_a_pods_status_frees_its_quota(cluster: Cluster, home: AttackedNamespace) -> None:
    pod, resource = _with_gpus(home)
    pod = put(pod, "/metadata/name", "counted")
    quota = f"{collection('v1', 'ResourceQuota', home.name)}/{quotas.NAME}"
    succeeded = {"status": {"phase": "Succeeded"}}

    def used() -> str:
        return cluster.api.request("GET", quota).body["status"]["used"][f"requests.{resource}"]

    before = used()
    with _created(cluster.api, collection("v1", "Pod", home.name), pod, home.developer) as pod_path:
        assert used() != before, "it counts"
        answer = cluster.api.request("PATCH", f"{pod_path}/status", succeeded, home.developer, MERGE)
        assert denial.denier(answer.status, answer.message) == deniers.RBAC
        assert cluster.api.request("PATCH", f"{pod_path}/status", succeeded, None, MERGE).ok
        until_clear(lambda: used() != before, "what is done counts no more")


# Whose node it is


@pytest.fixture
def node(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A node of four processors that no other pod uses, as a selector."""
    with _node(cluster, NODE) as selector:
        yield selector


@contextmanager
def _node(cluster: Cluster, name: str) -> Generator[dict[str, str]]:
    """A node of four processors, as a selector of all such nodes."""
    selector = {"verify.example/node": NODE}
    labels = {**selector, "kubernetes.io/hostname": name}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels}
    apply([{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}])
    path = f"/api/v1/nodes/{name}"
    status = {"status": {"allocatable": SMALL, "capacity": SMALL}}
    assert cluster.api.request("PATCH", f"{path}/status", status, None, STRATEGIC).ok

    def unready() -> bool:
        node = cluster.api.request("GET", path).body
        is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        return not is_ready or bool(node["spec"].get("taints")) or node["status"]["allocatable"].get("cpu") != "4"

    until_clear(unready, "the node is ready")
    yield selector
    cluster.api.request("DELETE", path)


def _on(place: AttackedNamespace, name: str, selector: dict[str, str], cpu: str) -> dict[str, Any]:
    pod = put(place.pod(), "/metadata/name", name)
    pod = put(pod, "/spec/nodeSelector", selector)
    for side in ("requests", "limits"):
        pod = put(pod, f"{LIMITS.replace('limits', side)}/cpu", cpu)
    return pod


def _by_platform(name: str, selector: dict[str, str], cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "x", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    pod_spec = {"nodeSelector": selector, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec}


def _placed(cluster: Cluster, pod_path: str) -> bool:
    return not _unplaced(cluster, pod_path)


def _unplaced(cluster: Cluster, pod_path: str) -> str:
    """Why the pod has no node, in the scheduler's words; empty if it has one."""
    answer = cluster.api.request("GET", pod_path)
    assert answer.ok, answer.message
    if answer.body.get("spec", {}).get("nodeName"):
        return ""
    conditions = answer.body.get("status", {}).get("conditions") or [{}]
    return "; ".join(condition.get("message", "") for condition in conditions) or "the scheduler has not looked at it"


def _turned_away(cluster: Cluster, pod_path: str) -> bool:
    """The scheduler looked at it and found no place."""
    conditions = cluster.api.request("GET", pod_path).body.get("status", {}).get("conditions", [])
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


SYSTEM = collection("v1", "Pod", "kube-system")


def test_no_priority_of_ours_evicts_another_tenants_pod(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace, node: dict[str, str]
) -> None:
    home_pods, neighbour_pods = (collection("v1", "Pod", place.name) for place in (home, neighbour))
    with _created(cluster.api, neighbour_pods, _on(neighbour, "sitting", node, "3"), neighbour.developer) as sitting:
        until_clear(lambda: _unplaced(cluster, sitting), "the other pod has the node")
        # The highest class that the attacker may use, against whatever the other has.
        with _created(cluster.api, home_pods, _on(home, "pushing", node, "3"), home.developer) as pushing:
            until_clear(lambda: not _turned_away(cluster, pushing), "the scheduler has looked")
            live_pod = cluster.api.request("GET", sitting).body
            assert live_pod["metadata"].get("deletionTimestamp") is None
            assert not cluster.api.request("GET", pushing).body["status"].get("nominatedNodeName")
        # The twin may evict, and does: it is the class alone that keeps tenants from it.
        urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "verify-urgent"}}
        with (
            _created(cluster.api, "/apis/scheduling.k8s.io/v1/priorityclasses", {**urgent, "value": 2_000_000}),
            _created(
                cluster.api, SYSTEM, _by_platform("evicting", node, "3", priorityClassName="verify-urgent"), None
            ) as evicting,
        ):
            until_clear(lambda: _unplaced(cluster, evicting), "the pod that may evict gets the node")


def test_anti_affinity_across_namespaces_would_keep_others_off_a_node(
    cluster: Cluster, home: AttackedNamespace, node: dict[str, str]
) -> None:
    """Why sched-06 is there. The term names one pod alone: a pod of the platform may be on the node too."""
    mark = "bank.example~1beside"
    selector = {"matchLabels": {mark.replace("~1", "/"): "true"}}
    term: dict[str, Any] = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    second_pod = put(_on(home, "beside", node, "1"), f"/metadata/labels/{mark}", "true")
    for namespaces, kept_off in (({"namespaceSelector": {}}, True), ({}, False)):
        terms = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, **namespaces}]}}
        # A name for each: kwok may still delete the first pod, by its name, when the second one is made.
        name = "alone-kept-off" if kept_off else "alone"
        with _created(cluster.api, SYSTEM, _by_platform(name, node, "1", affinity=terms)) as alone:
            until_clear(lambda at=alone: _unplaced(cluster, at), "one pod is there")
            with _created(cluster.api, collection("v1", "Pod", home.name), second_pod, home.developer) as second_path:
                if kept_off:
                    until_clear(lambda at=second_path: not _turned_away(cluster, at), "the scheduler has looked")
                    assert not _placed(cluster, second_path)
                else:
                    until_clear(lambda at=second_path: _unplaced(cluster, at), "the other has the node too")


# What the API server writes onto pods


MAKERS = {"Deployment": "ReplicaSet", "StatefulSet": "StatefulSet"}


@contextmanager
def _replicas(
    cluster: Cluster, place: AttackedNamespace, kind: str, name: str, pod: dict[str, Any] | None = None, count: int = 1
) -> Generator[list[dict[str, Any]]]:
    """`count` pods, as a Deployment's or a StatefulSet's controller made them of a template like `pod`."""
    body = put(workload(kind, put(pod or place.pod(), "/metadata/name", name)), "/spec/replicas", count)
    if kind == "StatefulSet":
        body = put(body, "/spec/podManagementPolicy", "Parallel")
    pods, makers = (
        collection(*version_and_kind, place.name) for version_and_kind in (("v1", "Pod"), ("apps/v1", MAKERS[kind]))
    )

    def live_items(path: str = pods) -> list[dict[str, Any]]:
        return [item for item in cluster.api.items(path) if f"{item['metadata']['name']}-".startswith(f"{name}-")]

    path = collection("apps/v1", kind, place.name)
    answer = cluster.api.request("POST", path, body, place.developer)
    assert answer.ok, answer.message
    try:
        until_clear(lambda: len(live_items()) < count, f"{count} pods are made")
        yield live_items()
    finally:
        cluster.api.request("DELETE", f"{path}/{name}?propagationPolicy=Background")
        # While its maker is there, what goes comes back.
        until_clear(lambda: live_items(makers), f"no controller makes pods of {name}")
        until_clear(
            lambda: [_delete(cluster.api, f"{pods}/{pod['metadata']['name']}") for pod in live_items()],
            "no pod is left",
        )


@contextmanager
def _spread_as(
    cluster: Cluster, place: AttackedNamespace, spread: str | None, key: str = vocabulary.SPREAD
) -> Generator[None]:
    """The place's namespace as one of a tier that spreads its pods so."""
    path = f"/api/v1/namespaces/{place.name}"
    before = cluster.api.request("GET", path).body["metadata"]["annotations"].get(key)

    def write(value: str | None) -> None:
        patch = {"metadata": {"annotations": {key: value}}}
        assert cluster.api.request("PATCH", path, patch, None, MERGE).ok

    write(spread)
    try:
        yield
    finally:
        write(before)


def test_a_pod_without_cost_labels_gets_those_of_its_namespace(cluster: Cluster, home: AttackedNamespace) -> None:
    namespace_labels = cluster.api.request("GET", f"/api/v1/namespaces/{home.name}").body["metadata"]["labels"]
    cost_labels = {key: namespace_labels[key] for key in vocabulary.CHARGED_LABELS if key in namespace_labels}
    pod = home.pod()
    assert cost_labels
    assert not cost_labels.keys() & pod["metadata"]["labels"].keys()
    answer = cluster.api.request("POST", f"{collection('v1', 'Pod', home.name)}?dryRun=All", pod, home.developer)
    assert answer.ok, answer.message
    assert cost_labels.items() <= answer.body["metadata"]["labels"].items()


KINDS = {kind: REVISIONS[maker] for kind, maker in MAKERS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_lie_evenly_on_nodes(cluster: Cluster, home: AttackedNamespace, kind: str) -> None:
    """Each revision by itself: else a new one would have to lie where the old one does not."""
    with _replicas(cluster, home, kind, f"spread-{kind.lower()}") as (pod,):
        (constraint,) = pod["spec"]["topologySpreadConstraints"]
        # The API server itself makes the selector of the labels' values.
        revision = {"key": KINDS[kind], "operator": "In", "values": [pod["metadata"]["labels"][KINDS[kind]]]}
    assert constraint == {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": [KINDS[kind]],
        "labelSelector": {"matchExpressions": [revision]},
    }


def _selectors(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [constraint["labelSelector"] for constraint in pod["spec"].get("topologySpreadConstraints", [])]


def _of_job(pod: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """A pod as the job controller makes it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["name"], "uid": job["uid"], "controller": True}
    pod = put(pod, "/metadata/ownerReferences", [owner])
    return put(pod, f"/metadata/labels/{JOB_NAME.replace('/', '~1')}", job["name"])


@pytest.mark.parametrize(("spread_of", "spread"), [("jobs,replicas", True), ("replicas", False)])
def test_the_pods_of_a_job_are_spread_where_the_tier_says_so(
    cluster: Cluster, home: AttackedNamespace, *, spread_of: str, spread: bool
) -> None:
    suspended = put(workload("Job", put(home.pod(), "/metadata/name", "spread-job")), "/spec/suspend", True)
    with (
        _spread_as(cluster, home, spread_of, vocabulary.SPREAD_OF),
        _created(cluster.api, collection("batch/v1", "Job", home.name), suspended, home.developer) as job_path,
    ):
        job = cluster.api.request("GET", job_path).body["metadata"]
        path = f"{collection('v1', 'Pod', home.name)}?dryRun=All"

        def unknown_to_kueue() -> str:
            """Kueue reads the job from a cache that learns of it a moment later."""
            message = cluster.api.request("POST", path, _of_job(home.pod(), job), JOB_CONTROLLER).message
            return message if "not found" in message else ""

        until_clear(unknown_to_kueue, "Kueue knows the job")
        answer = cluster.api.request("POST", path, _of_job(home.pod(), job), JOB_CONTROLLER)
        assert answer.ok, answer.message
        same_job = {"key": JOB_NAME, "operator": "In", "values": [job["name"]]}
        assert _selectors(answer.body) == ([{"matchExpressions": [same_job]}] if spread else [])


def test_all_pods_of_a_namespace_are_spread_where_the_tier_says_so(cluster: Cluster, home: AttackedNamespace) -> None:
    pods = collection("v1", "Pod", home.name)

    def left_alone() -> bool:
        return not _selectors(cluster.api.request("POST", f"{pods}?dryRun=All", home.pod(), home.developer).body)

    with _spread_as(cluster, home, "namespace", vocabulary.SPREAD_OF):
        until_clear(left_alone, "the API server has not noticed the annotation")
        with _created(cluster.api, pods, home.pod(), home.developer) as pod_path:
            pod = cluster.api.request("GET", pod_path).body
            assert _selectors(pod) == [
                {"matchLabels": {vocabulary.TENANT: pod["metadata"]["labels"][vocabulary.TENANT]}}
            ]


OWN_CONSTRAINT = {
    "maxSkew": 3,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "x"}},
}


def test_a_replica_with_a_constraint_of_its_own_keeps_it(cluster: Cluster, home: AttackedNamespace) -> None:
    constrained_pod = put(home.pod(), "/spec/topologySpreadConstraints", [OWN_CONSTRAINT])
    with _replicas(cluster, home, "Deployment", "own", constrained_pod) as (pod,):
        assert pod["spec"]["topologySpreadConstraints"] == [OWN_CONSTRAINT]


def test_a_pod_that_is_no_replica_is_left_alone(cluster: Cluster, home: AttackedNamespace) -> None:
    alone = put(home.pod(), f"/metadata/labels/{KINDS['Deployment']}", "as-if")
    with _created(cluster.api, collection("v1", "Pod", home.name), alone, home.developer) as pod_path:
        assert "topologySpreadConstraints" not in cluster.api.request("GET", pod_path).body["spec"]


def test_a_tier_may_leave_its_replicas_to_the_scheduler(cluster: Cluster, home: AttackedNamespace) -> None:
    with (
        _spread_as(cluster, home, None),
        _replicas(cluster, home, "Deployment", "left") as (pod,),
    ):
        assert "topologySpreadConstraints" not in pod["spec"]


@pytest.mark.parametrize(("spread", "runs_together"), [("preferred", True), ("required", False)])
def test_a_replica_waits_rather_than_stand_beside_another_only_where_the_tier_says_so(
    cluster: Cluster, home: AttackedNamespace, node: dict[str, str], *, spread: str, runs_together: bool
) -> None:
    full = "verify-full"
    with (
        _node(cluster, full),
        _created(cluster.api, SYSTEM, _by_platform("filling", {"kubernetes.io/hostname": full}, "4")) as filling,
        _spread_as(cluster, home, spread),
    ):
        until_clear(lambda: _unplaced(cluster, filling), "one node is full")
        pod = _on(home, "as-template", node, "1")
        with _replicas(cluster, home, "Deployment", spread, pod, count=2) as pods:
            paths = [f"{collection('v1', 'Pod', home.name)}/{pod['metadata']['name']}" for pod in pods]

            def unseen() -> list[str]:
                return [at for at in paths if not _placed(cluster, at) and not _turned_away(cluster, at)]

            until_clear(unseen, "the scheduler has looked at both")
            assert sum(_placed(cluster, at) for at in paths) == 1 + runs_together


# Whose turn it is


def test_a_tenants_requests_wait_their_turn(cluster: Cluster, home: AttackedNamespace) -> None:
    levels = {
        item["metadata"]["uid"]: item["spec"]["type"]
        for item in cluster.api.items("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations")
    }
    path = f"{collection('v1', 'Pod', home.name)}"

    def level(who: Impersonation | None) -> str:
        headers = {name.lower(): value for name, value in cluster.api.request("GET", path, None, who).headers.items()}
        return levels[headers["x-kubernetes-pf-prioritylevel-uid"]]

    assert level(home.developer) == "Limited"
    assert level(CLUSTER_ADMIN) == "Exempt", "else nothing tells the two apart"
