"""Counts of `tenancy fits` without a cluster: pods of a manifest, their requests, the tree of quotas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.cluster.api import ApiUnreachable, Response
from tenancy.explain.cohorts import read_tree
from tenancy.explain.fits import fit
from tenancy.kube.pods import NotWork, limits_of, pods_of, requests_of
from tenancy.kube.quantities import thousandths
from tenancy.kube.quota_tree import Node
from tenancy.kube.requests import Impersonation
from tenancy.rules.workloads import of_api
from tenancy.spec.fields.environment import Environment
from tests.conftest import SpecFolder

GPU = "nvidia.com/gpu"
PLACE = ("train", GPU)
SPEC = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "500m"}}}]}
TEMPLATE = {"spec": SPEC}
OBJECT_OF_TENANT = {"apiVersion": "v1", "metadata": {"name": "one", "namespace": "fraud--train"}}


def manifest(kind: str, spec: Any) -> dict[str, Any]:
    return {**OBJECT_OF_TENANT, "apiVersion": of_api(kind), "kind": kind, "spec": spec}


# Pods of a manifest


@pytest.mark.parametrize(
    ("kind", "spec", "counts"),
    [
        ("Pod", SPEC, {"pod": 1}),
        ("Job", {"template": TEMPLATE}, {"pod": 1}),
        ("Job", {"parallelism": 8, "completions": 3, "template": TEMPLATE}, {"pod": 3}),
        ("Job", {"parallelism": 8, "template": TEMPLATE}, {"pod": 8}),
        ("CronJob", {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}}, {"pod": 2}),
        ("Deployment", {"replicas": 3, "template": TEMPLATE}, {"pod": 3}),
        ("StatefulSet", {"template": TEMPLATE}, {"pod": 1}),
        ("Deployment", {"replicas": 0, "template": TEMPLATE}, {}),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
                    {"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": TEMPLATE}}},
                ]
            },
            {"driver": 1, "worker": 8},
        ),
        (
            "LeaderWorkerSet",
            {
                "replicas": 2,
                "leaderWorkerTemplate": {"size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE},
            },
            {"leader": 2, "worker": 6},
        ),
        (
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": TEMPLATE}},
            {"worker": 8},
        ),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 4, "template": TEMPLATE}}},
            {"launcher": 1, "worker": 4},
        ),
        (
            "RayCluster",
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"groupName": "gpus", "replicas": 5, "numOfHosts": 4, "template": TEMPLATE}],
            },
            {"head": 1, "gpus": 20},
        ),
        ("ConfigMap", None, {}),
    ],
)
def test_every_kind_says_how_many_pods_it_makes_at_once(kind: str, spec: Any, counts: dict[str, int]) -> None:
    assert {pods.name: pods.count for pods in pods_of(manifest(kind, spec))} == counts


@pytest.mark.parametrize(
    "spec", [{}, {"template": {}}, {"template": None}, {"parallelism": "many", "template": TEMPLATE}, []]
)
def test_a_job_without_pods_is_no_work(spec: Any) -> None:
    with pytest.raises(NotWork, match="Job one"):
        pods_of(manifest("Job", spec))


def _container(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts}}


def test_containers_of_a_pod_ask_together() -> None:
    assert requests_of({"containers": [_container(cpu="500m"), _container(cpu="2")]}) == {"cpu": 2500}


def test_a_limit_is_asked_for_where_no_request_is_written() -> None:
    assert requests_of({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]}) == {"nvidia.com/gpu": 2000}


def test_a_start_container_counts_where_it_asks_for_more() -> None:
    spec = {"initContainers": [_container(cpu="4")], "containers": [_container(cpu="1", memory="1Gi")]}
    assert requests_of(spec) == {"cpu": 4000, "memory": 2**30 * 1000}


def test_a_sidecar_counts_beside_the_others() -> None:
    sidecar = {**_container(cpu="1"), "restartPolicy": "Always"}
    spec = {"initContainers": [sidecar, _container(cpu="4")], "containers": [_container(cpu="2")]}
    assert requests_of(spec) == {"cpu": 5000}


def test_a_sandbox_costs_its_overhead() -> None:
    assert requests_of({"containers": [_container(cpu="1")], "overhead": {"cpu": "250m"}}) == {"cpu": 1250}


@pytest.mark.parametrize(
    ("pod_resources", "requests", "limits"),
    [
        ({}, {"cpu": 3000, GPU: 2000}, {GPU: 2000}),
        ({"requests": {"cpu": "8"}}, {"cpu": 8000, GPU: 2000}, {GPU: 2000}),
        ({"requests": {"cpu": "1"}}, {"cpu": 1000, GPU: 2000}, {GPU: 2000}),
        ({"limits": {"cpu": "8"}}, {"cpu": 3000, GPU: 2000}, {"cpu": 8000, GPU: 2000}),
        ({"limits": {"memory": "1"}}, {"cpu": 3000, "memory": 1000, GPU: 2000}, {"memory": 1000, GPU: 2000}),
        (
            {"requests": {"memory": "1"}, "limits": {"memory": "2"}},
            {"cpu": 3000, "memory": 1000, GPU: 2000},
            {"memory": 2000, GPU: 2000},
        ),
        (
            {"limits": {"hugepages-2Mi": "2"}},
            {"cpu": 3000, "hugepages-2Mi": 2000, GPU: 2000},
            {"hugepages-2Mi": 2000, GPU: 2000},
        ),
        ({"requests": {GPU: "8"}}, {"cpu": 3000, GPU: 2000}, {GPU: 2000}),
        ({"requests": None, "limits": None}, {"cpu": 3000, GPU: 2000}, {GPU: 2000}),
    ],
)
def test_what_the_pod_as_a_whole_requests_is_what_counts(pod_resources: Any, requests: Any, limits: Any) -> None:
    """Only CPU, memory and huge pages; a limit of the whole is its request where no container has one."""
    containers = [_container(cpu="1"), {"resources": {"requests": {"cpu": "2"}, "limits": {GPU: 2}}}]
    spec = {"containers": containers, "resources": pod_resources}
    assert (requests_of(spec), limits_of(spec)) == (requests, limits)


def test_a_start_container_and_the_overhead_count_in_limits_too() -> None:
    def limited(cpu: str) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": cpu}}}

    spec = {"containers": [limited("1")], "initContainers": [limited("4")], "overhead": {"cpu": "1", "memory": "1"}}
    assert limits_of(spec) == {"cpu": 5000}


# The tree of quotas


def _queue(name: str, kind: str, parent: str | None, used: int = 0, **limits: int) -> dict[str, Any]:
    names = {"nominal": "nominalQuota", "borrow": "borrowingLimit", "lend": "lendingLimit"}
    resource = {"name": PLACE[1], **{names[key]: str(count) for key, count in limits.items()}}
    groups = [{"coveredResources": [PLACE[1]], "flavors": [{"name": PLACE[0], "resources": [resource]}]}]
    parent_field = {"cohortName" if kind == "ClusterQueue" else "parentName": parent} if parent else {}
    status = {"flavorsReservation": [{"name": PLACE[0], "resources": [{"name": PLACE[1], "total": str(used)}]}]}
    return {
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**parent_field, "resourceGroups": groups},
        **({"status": status} if used else {}),
    }


class Cluster:
    def __init__(self, *items: dict[str, Any]) -> None:
        self.all = items

    def items(self, path: str) -> list[dict[str, Any]]:
        return [item for item in self.all if item["kind"].lower() + "s" == path.rpartition("/")[2]]


def _tree(*items: dict[str, Any]) -> dict[str, Node]:
    cluster: Any = Cluster(_queue("root", "Cohort", None, nominal=8), *items)
    return read_tree(cluster)


def _is(node: Node) -> tuple[float, float]:
    return node.available(PLACE) / 1000, node.potential(PLACE) / 1000


def test_a_queue_alone_has_what_it_is_promised() -> None:
    assert _is(_tree(_queue("a", "ClusterQueue", None, used=3, nominal=8))["a"]) == (5, 8)


def test_unallocated_gpus_are_there_up_to_the_limit() -> None:
    free_gpus = _tree(_queue("a", "ClusterQueue", "root", nominal=4, borrow=6, lend=4))["a"]
    assert _is(free_gpus) == (10, 10)


def test_what_another_lends_and_does_not_use_is_there() -> None:
    tree = _tree(
        _queue("a", "ClusterQueue", "root", nominal=4, borrow=100, lend=4),
        _queue("b", "ClusterQueue", "root", used=3, nominal=16, borrow=0, lend=10),
    )
    # Its first 6 it keeps, so the 3 that it uses are taken from no borrower.
    assert _is(tree["a"]) == (4 + 8 + 10, 4 + 8 + 10)
    assert _is(tree["b"]) == (13, 16)


def test_what_is_borrowed_is_gone_for_its_owner_until_it_is_called_back() -> None:
    tree = _tree(
        _queue("a", "ClusterQueue", "root", used=20, nominal=4, borrow=100, lend=4),
        _queue("b", "ClusterQueue", "root", nominal=16, borrow=0, lend=10),
    )
    assert _is(tree["a"]) == (2, 22)
    assert _is(tree["b"]) == (8, 16)


def test_a_limit_of_a_tenant_holds_for_its_queues_together() -> None:
    tree = _tree(
        _queue("tenant", "Cohort", "root", borrow=2, lend=0),
        _queue("a", "ClusterQueue", "tenant", nominal=3, borrow=100, lend=3),
        _queue("b", "ClusterQueue", "tenant", used=2, nominal=1, borrow=100, lend=1),
    )
    assert _is(tree["a"]) == (3 + 1 - 2 + 2, 3 + 1 + 2)


def test_what_is_tried_and_taken_back_leaves_no_trace() -> None:
    tree = _tree(
        _queue("tenant", "Cohort", "root", used=0, borrow=6, lend=2),
        _queue("a", "ClusterQueue", "tenant", used=2, nominal=5, borrow=100, lend=3),
    )
    before = _is(tree["a"])
    for amount in (1, 4, 7):
        tree["a"].use(PLACE, thousandths(amount))
        assert _is(tree["a"])[0] == before[0] - amount
        tree["a"].use(PLACE, -thousandths(amount))
        assert _is(tree["a"]) == before


# Who asks


def test_who_may_not_ask_for_others_is_told_so(environment: Environment) -> None:
    message = 'users "x" is forbidden: User "jane" cannot impersonate resource "users" in API group ""'

    class Server:
        def request(self, *_: Any) -> Response:
            return Response(403, {"message": message})

    api: Any = Server()
    with pytest.raises(ApiUnreachable, match=r"jane.*change: run it with the platform's rights"):
        fit(api, environment, manifest("Pod", SPEC), Impersonation("x"), "x")


# Bad input


def run(spec: SpecFolder, text: str, *options: str) -> Result:
    result = CliRunner().invoke(main, ["fits", "-", str(spec.path), *options], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


@pytest.mark.parametrize(
    ("work", "message_part"),
    [
        ("", "given an empty file"),
        ("a: [", "given no YAML"),
        ("a: b", "an object has apiVersion, kind and metadata.name"),
        ("- a", "an object has apiVersion, kind and metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": SPEC}, "change: add --namespace"),
        (manifest("ConfigMap", None), "given ConfigMap; rule: a kind that runs pods"),
        (
            {**OBJECT_OF_TENANT, "kind": "Job", "metadata": {"name": "x", "namespace": "fraud--tain"}},
            "change: use fraud--train",
        ),
    ],
)
def test_what_is_no_work_of_a_tenant_ends_with_2(spec: SpecFolder, work: Any, message_part: str) -> None:
    result = run(spec, work if isinstance(work, str) else json.dumps(work))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message_part in result.stderr


def test_two_namespaces_are_one_too_many(spec: SpecFolder) -> None:
    result = run(spec, json.dumps(manifest("Pod", SPEC)), "--namespace", "fraud--serve")
    assert result.exit_code == 2
    assert "given --namespace fraud--serve and metadata.namespace fraud--train" in result.stderr


def test_where_no_role_makes_work_a_group_has_to_be_named(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "fraud-engineers, role: developer", "fraud-engineers, role: viewer")
    text = json.dumps({**manifest("Pod", SPEC), "metadata": {"name": "one", "namespace": "fraud--serve"}})
    result = run(spec, text)
    assert result.exit_code == 2
    assert "whose file has no developer or owner in serve; rule: work is created by a" in result.stderr
    assert "developer or owner; change: name a group with --as" in result.stderr


def test_a_file_that_is_not_there_ends_with_2(spec: SpecFolder) -> None:
    result = CliRunner().invoke(main, ["fits", "/nowhere.yaml", str(spec.path)])
    assert result.exit_code == 2
    assert "/nowhere.yaml" in result.stderr


def test_a_cluster_that_is_nowhere_is_said(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    result = run(spec, json.dumps(manifest("Pod", SPEC)))
    assert result.exit_code == 1
    assert "given kubeconfig without a usable context" in result.stderr
