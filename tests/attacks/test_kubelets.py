"""Writes of a compromised machine to its node, on a real API server with the Node authorizer and
NodeRestriction as EKS has them: by its kubelet's certificate, and by the tokens of the pods that run there."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api, Response
from tenancy.cluster.denial import AuditLog
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, Impersonation, core, group
from tenancy.lab import pki
from tenancy.lab.layout import Lab
from tenancy.rules.nodes import NOTE, kubelet, node_path
from tenancy.verify.attacks import Attack
from tenancy.verify.verification import ask, run
from tests.attacks.attack_lab import ROOT, Cluster
from tests.waiting import until_clear

GUARD = deniers.guard("tenancy-nodes", "node-08")
HOME = "kube-system"
"""A namespace in which no guard judges pods, as the platform's daemons are judged by none."""
DAEMON = "daemon"


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Object:
    assert cluster.scene.node
    return cluster.scene.node


@pytest.fixture(scope="module")
def attacks(cluster: Cluster) -> list[Attack]:
    node_attacks = [a for a in cluster.attacks if a.id.startswith(("node-08-", "rbac-node-of-its-own"))]
    assert len(node_attacks) == 11
    return node_attacks


def labelled(key: str, value: str | None) -> Object:
    return {"metadata": {"labels": {key: value}}}


def other_pool(cluster: Cluster, node: Object) -> str:
    return next(name for name in cluster.scene.environment.pools if name != node["metadata"]["labels"][vocabulary.POOL])


def judged(api: Api, path: str, body: Object, who: Impersonation | None = None) -> tuple[int, str]:
    """The answer's status, and which control it comes from."""
    answer = api.request("PATCH", f"{path}?dryRun=All", body, who, MERGE)
    return answer.status, denial.denier(answer.status, answer.message)


def as_whom(cluster: Cluster, folder: Path, name: str, user: Object) -> Api:
    """A client with its own credentials: an impersonated user has no claims of a token."""
    lab = Lab(ROOT, cluster.audit_log.parent)
    kubeconfig = yaml.safe_load(lab.kubeconfig.read_text("utf-8"))
    kubeconfig["users"] = [{"name": entry["name"], "user": user} for entry in kubeconfig["users"]]
    file = folder / f"{name}.kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(file))
        return Api(None)


# The kubelet


def test_a_kubelet_moves_its_node_nowhere(cluster: Cluster, attacks: list[Attack]) -> None:
    results = run(cluster.api, attacks, AuditLog(cluster.audit_log))
    assert [result.as_dict() for result in results if result.gap] == []


def test_a_kubelets_own_certificate_moves_it_nowhere_either(
    cluster: Cluster, attacks: list[Attack], node: Object, tmp_path: Path
) -> None:
    lab, who = Lab(ROOT, cluster.audit_log.parent), kubelet(node["metadata"]["name"])
    pki._issue(lab, "kubelet", who.user, tuple(who.groups), datetime.timedelta(hours=1))
    user = {"client-certificate": str(lab.pki / "kubelet.crt"), "client-key": str(lab.pki / "kubelet.key")}
    asking = as_whom(cluster, tmp_path, "kubelet", user)

    def answer_of(probe: Attack, twin: bool = False) -> Response:
        return ask(asking, replace(probe.twin if twin else probe.request, who=None))

    refused = {attack.id: answer_of(attack) for attack in attacks}
    assert {id: denial.denier(answer.status, answer.message) for id, answer in refused.items()} == {
        attack.id: attack.expected_denier for attack in attacks
    }
    assert {
        attack.id for attack in attacks if attack.rule == "node-08" and not answer_of(attack, twin=True).ok
    } == set()


def test_a_kubelet_registers_with_the_labels_that_it_is_started_with(cluster: Cluster, node: Object) -> None:
    """The twin of the two is the Node's name: that of another machine is refused by the API server itself."""
    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fresh", "labels": node["metadata"]["labels"]}}
    identities = {name: kubelet(name) for name in ("fresh", "another")}
    answers = {
        name: cluster.api.request("POST", "/api/v1/nodes?dryRun=All", fresh, who) for name, who in identities.items()
    }
    assert answers["fresh"].status == 201, answers["fresh"].message
    assert answers["another"].status == 403
    assert "is not allowed to modify node" in answers["another"].message


def test_a_kubelet_cannot_make_its_node_anew(cluster: Cluster, node: Object) -> None:
    """Neither gone nor given to the garbage collector, so that it stands in its own way."""
    who = kubelet(node["metadata"]["name"])
    for path in (node_path(node), "/api/v1/nodes"):
        deletion = cluster.api.request("DELETE", f"{path}?dryRun=All", None, who)
        assert (deletion.status, denial.denier(deletion.status, deletion.message)) == (403, deniers.RBAC)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": who.user,
            "groups": list(who.groups),
            "resourceAttributes": {"verb": "delete", "resource": "nodes", "name": node["metadata"]["name"]},
        },
    }
    answer = cluster.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.body["status"]["allowed"] is False
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "00000000-0000-0000-0000-000000000001"}
    owned = {"metadata": {"ownerReferences": [owner]}}
    answer = cluster.api.request("PATCH", f"{node_path(node)}?dryRun=All", owned, who, MERGE)
    assert answer.status == 403
    assert "ownerReferences" in answer.message
    again = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"]}}
    assert cluster.api.request("POST", "/api/v1/nodes?dryRun=All", again, who).status == 409


# What runs on the node, and what labels any


@pytest.fixture(scope="module")
def daemon(cluster: Cluster, node: Object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A pod's own token, of an account that may write every node; the pod runs on the node."""
    name, api = {"name": DAEMON}, cluster.api
    rules = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch", "update"]}]
    rbac = "rbac.authorization.k8s.io"
    bound = {
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": DAEMON},
        "subjects": [{"kind": "ServiceAccount", "name": DAEMON, "namespace": HOME}],
    }
    spec = {
        "serviceAccountName": DAEMON,
        "nodeName": node["metadata"]["name"],
        "containers": [{"name": "main", "image": "registry.example/daemon:1"}],
        "tolerations": [{"operator": "Exists"}],
    }
    objects_by_path = {
        core(HOME, "serviceaccounts"): {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        group(f"{rbac}/v1", None, "clusterroles"): {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": name,
            "rules": rules,
        },
        group(f"{rbac}/v1", None, "clusterrolebindings"): {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            **bound,
        },
        core(HOME, "pods"): {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": spec},
    }
    try:
        for path, item in objects_by_path.items():
            answer = api.request("POST", path, item)
            assert answer.ok, answer.message
        pod = api.request("GET", core(HOME, "pods", DAEMON)).body
        token = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": 3600,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": DAEMON, "uid": pod["metadata"]["uid"]},
            },
        }
        answer = api.request("POST", core(HOME, "serviceaccounts", DAEMON, "token"), token)
        assert answer.ok, answer.message
        folder = tmp_path_factory.mktemp("daemon")
        daemon_api = as_whom(cluster, folder, DAEMON, {"token": answer.body["status"]["token"]})
        until_clear(lambda: not daemon_api.request("GET", node_path(node)).ok, "the account has its rights")
        yield daemon_api
    finally:
        for path in reversed(objects_by_path):
            api.request("DELETE", f"{path}/{DAEMON}?gracePeriodSeconds=0")


@pytest.mark.parametrize("path", ["", "/status"])
def test_what_a_kubelet_cannot_do_by_itself_no_pod_on_its_node_does_for_it(
    cluster: Cluster, daemon: Api, node: Object, path: str
) -> None:
    """The twin is another label, which the pod's account may write."""
    moved = labelled(vocabulary.POOL, other_pool(cluster, node))
    assert judged(daemon, node_path(node) + path, moved) == (403, GUARD)
    assert judged(daemon, node_path(node) + path, labelled(vocabulary.POOL, None)) == (403, GUARD)
    assert judged(daemon, node_path(node) + path, labelled(NOTE, "hello")) == (200, deniers.NONE)


def test_an_account_without_a_pod_on_the_node_is_the_platforms_to_trust(cluster: Cluster, daemon: Api) -> None:
    """The same account, the same label, on a node where it does not run: Karpenter's controllers label nodes so."""
    elsewhere = next(n for n in cluster.api.items("/api/v1/nodes") if n["metadata"]["name"] != _runs_on(cluster))
    moved = labelled(vocabulary.POOL, other_pool(cluster, elsewhere))
    assert judged(daemon, node_path(elsewhere), moved) == (200, deniers.NONE)


def _runs_on(cluster: Cluster) -> str:
    return cluster.api.request("GET", core(HOME, "pods", DAEMON)).body["spec"]["nodeName"]


@pytest.mark.parametrize(
    ("account", "space", "refused"),
    [
        ("node-feature-discovery", vocabulary.OPERATOR_NAMESPACE, True),
        ("karpenter", "kube-system", False),
        ("node-controller", "kube-system", False),
    ],
)
def test_feature_discovery_moves_no_node_and_what_makes_nodes_does(
    cluster: Cluster, node: Object, account: str, space: str, refused: bool
) -> None:
    """Whatever their rights are: with all of them the guard is what is left. What NFD publishes passes."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{space}", "system:masters")
    who = Impersonation(f"system:serviceaccount:{space}:{account}", groups)
    moved = labelled(vocabulary.POOL, other_pool(cluster, node))
    assert judged(cluster.api, node_path(node), moved, who) == ((403, GUARD) if refused else (200, deniers.NONE))
    published: dict[str, Any] = labelled("feature.node.kubernetes.io/cpu-model.vendor_id", "Intel")
    assert judged(cluster.api, node_path(node), published, who) == (200, deniers.NONE)
