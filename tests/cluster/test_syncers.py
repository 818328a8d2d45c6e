"""A tenant in virtual clusters on a real API server: its control plane as the chart would make it, pods as its syncer
would make them, and all other identities.

No virtual cluster runs here. What the chart and the syncer make is written down from their sources: loft-sh/vcluster,
chart/templates/statefulset.yaml@d02c4a8, chart/templates/_init-containers.tpl@9e4fcdf,
pkg/controllers/resources/pods/translate/translator.go@05503bc and pkg/util/translate/labels.go@0ac4bbc.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from virtual_worlds import DIGEST, SETTINGS, SHARED_REGISTRY

from tenancy.catalog import vocabulary
from tenancy.cluster.denial import AuditLog
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, Impersonation, core, group
from tenancy.planning import make_plan
from tenancy.planning.common.charts import HelmChart
from tenancy.rules.attacks import ABSENT, attack, put
from tenancy.spec.loader import load
from tenancy.verify.attacks import Attack, Request
from tenancy.verify.verification import run
from tests.attacks.attack_lab import ROOT, Cluster, apply, deployed
from tests.waiting import until_clear

pytestmark = pytest.mark.exhaustive(
    reason=(
        "a tenant's virtual cluster on a lab of its own, with every "
        "identity; what its syncer may write is in "
        "tests/unit/planning/test_virtual_clusters.py"
    )
)

HOME = "fraud--serve"
SECOND_NAMESPACE = "fraud--train"
NEIGHBOUR = "research--main"
PODS = core(HOME, "pods")
SETS = group("apps/v1", HOME, "statefulsets")
PUBLIC_IMAGE = "docker.io/library/alpine:3.20"


def syncer(namespace: str) -> Impersonation:
    accounts = "system:serviceaccounts"
    return Impersonation(f"system:serviceaccount:{namespace}:virtual-cluster", (accounts, f"{accounts}:{namespace}"))


PEOPLE = {
    "developer": Impersonation("jane", ("fraud-engineers",)),
    "operator": Impersonation("jane", ("fraud-oncall",)),
    "owner": Impersonation("jane", ("fraud-leads",)),
}


def edited(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("virtual")
    files = folder / "local"
    shutil.copytree(ROOT / "stacks" / "local", files)
    edited(
        files / "environment.yaml",
        ("cni: vpc-cni", "cni: cilium"),
        ("cuda-sample:13.1", f"cuda-sample:13.1@{DIGEST}"),
        (
            "    gpu-tier: reserved\n",
            "    gpu-tier: reserved\n    allow-image-tags: false\n    allow-writable-root-filesystem: false\n",
        ),
        ("prices:", f"{SETTINGS}prices:"),
    )
    edited(files / "tenants" / "fraud.yaml", ("tier: batch\n", "tier: batch\nisolation: virtual-cluster\n"))
    loaded = load(files)
    kinds = [
        yaml.safe_load((judges.folder("schemas-cilium") / f"{name}.yaml").read_text("utf-8"))
        for name in ("ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies")
    ]
    with deployed(loaded, make_plan(loaded, loaded.day), folder / "lab", kinds) as deployed_cluster:
        yield deployed_cluster


@pytest.fixture(scope="module")
def chart(cluster: Cluster) -> HelmChart:
    (space_chart,) = [space.chart for space in cluster.plan.tenant("fraud").namespaces if space.name == HOME]
    assert space_chart
    return space_chart


@pytest.fixture(scope="module")
def plane(chart: HelmChart) -> Object:
    """The StatefulSet that the chart makes of its values."""
    values = chart.values["controlPlane"]
    stateful, distro = values["statefulSet"], values["distro"]["k8s"]
    image = "{registry}/{repository}:{tag}"
    writable = {
        "helm-cache": "/.cache/helm",
        "binaries": "/binaries",
        "tmp": "/tmp",
        "certs": "/pki",
    }
    mounts = [{"name": name, "mountPath": path} for name, path in writable.items()]
    selector_labels = {"app": "vcluster", "release": chart.name}
    field = {"fieldPath": "metadata.name"}
    spec = {
        "terminationGracePeriodSeconds": 15,
        "priorityClassName": stateful["scheduling"]["priorityClassName"],
        "securityContext": stateful["security"]["podSecurityContext"],
        "serviceAccountName": values["advanced"]["serviceAccount"]["name"],
        "volumes": [
            *({"name": name, "emptyDir": {}} for name in writable),
            {"name": "vcluster-config", "secret": {"secretName": f"vc-config-{chart.name}"}},
        ],
        "enableServiceLinks": stateful["enableServiceLinks"],
        "initContainers": [
            {
                "name": "kubernetes",
                "image": image.format(**distro["image"]),
                "command": ["cp"],
                "args": ["-r", "/kubernetes/.", "/binaries/"],
                "volumeMounts": [{"name": "binaries", "mountPath": "/binaries"}],
                "securityContext": distro["securityContext"],
                "resources": distro["resources"],
            }
        ],
        "containers": [
            {
                "name": "syncer",
                "image": image.format(**stateful["image"]),
                "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": field}}],
                "securityContext": stateful["security"]["containerSecurityContext"],
                "resources": stateful["resources"],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8443, "scheme": "HTTPS"}},
                "volumeMounts": [
                    *mounts,
                    {"name": "data", "mountPath": "/data"},
                    {"name": "vcluster-config", "mountPath": "/var/lib/vcluster"},
                ],
            }
        ],
    }
    claim = stateful["persistence"]["volumeClaim"]
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": claim["storageClass"],
        "resources": {"requests": {"storage": claim["size"]}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": chart.name,
            "namespace": HOME,
            "labels": {**selector_labels, "heritage": "Helm", **stateful["labels"]},
        },
        "spec": {
            "serviceName": f"{chart.name}-headless",
            "podManagementPolicy": "Parallel",
            "replicas": stateful["highAvailability"]["replicas"],
            "selector": {"matchLabels": selector_labels},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": volume}],
            "template": {"metadata": {"labels": {**selector_labels, **stateful["pods"]["labels"]}}, "spec": spec},
        },
    }


@pytest.fixture(scope="module")
def synced(cluster: Cluster, chart: HelmChart) -> Object:
    """A pod that a ReplicaSet of the virtual cluster's asked for, as its syncer makes it on the host."""
    place = next(place for place in cluster.scene.places if place.name == HOME)
    pod = place.pod({"a100-1g.5gb": 1})
    name = f"hello-x-default-x-{chart.name}"
    pod["metadata"] |= {
        "name": name,
        "labels": {
            "app": "hello",
            "kueue.x-k8s.io/queue-name": "default",
            "vcluster.loft.sh/managed-by": chart.name,
            "vcluster.loft.sh/namespace": "default",
        },
        "annotations": {
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            "vcluster.loft.sh/name": "hello",
            "vcluster.loft.sh/namespace": "default",
            "vcluster.loft.sh/object-host-name": name,
            "vcluster.loft.sh/service-account-name": "default",
        },
    }
    to_host = chart.values["sync"]["toHost"]["pods"]
    pod["spec"] |= {
        "serviceAccountName": chart.values["controlPlane"]["advanced"]["workloadServiceAccount"]["name"],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": to_host["priorityClassName"],
        "hostname": "hello",
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["10.0.0.53"],
            "searches": ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"],
            "options": [{"name": "ndots", "value": "5"}],
        },
        "hostAliases": [
            {"ip": "10.0.0.1", "hostnames": ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]}
        ],
    }
    return pod


def gaps(cluster: Cluster, attacks: Sequence[Attack]) -> list[dict[str, Any]]:
    """Attacks that get through, that another control refuses, or whose twin is refused as well."""
    assert attacks
    results = run(cluster.api, attacks, AuditLog(cluster.audit_log))
    return [result.as_dict() for result in results if result.gap]


# The suite


def test_every_attack_of_the_suite_is_refused_and_its_twin_is_not(cluster: Cluster) -> None:
    assert not {place.name for place in cluster.scene.staffed} & {HOME, SECOND_NAMESPACE}, (
        "who would make anything there?"
    )
    assert gaps(cluster, cluster.attacks) == []


# The control plane

OFF_BY_ONE = {
    "kueue-01": ("/metadata/labels/kueue.x-k8s.io~1queue-name", "others"),
    "id-07": ("/spec/template/spec/serviceAccountName", "stranger"),
    "img-01": ("/spec/template/spec/initContainers/0/image", PUBLIC_IMAGE + "@" + DIGEST),
    "img-02": ("/spec/template/spec/containers/0/image", f"{SHARED_REGISTRY}/vcluster-oss:0.34.0"),
    "pod-03": ("/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem", ABSENT),
    "dns-01": ("/spec/template/spec/hostAliases", [{"ip": "10.0.0.1", "hostnames": ["kubernetes"]}]),
    "cost-01": ("/spec/template/metadata/labels/team", "others"),
    "sched-04": ("/spec/template/spec/priorityClassName", "system-cluster-critical"),
}


@pytest.mark.parametrize("rule", OFF_BY_ONE)
def test_a_control_plane_with_one_field_off_is_refused(cluster: Cluster, plane: Object, rule: str) -> None:
    where, bad = OFF_BY_ONE[rule]
    body = put(plane, where, bad)
    guard = deniers.guard("tenancy-templates", rule)
    assert gaps(cluster, [attack(rule, rule, rule, guard, Request("POST", SETS, body), twin_body=plane)]) == []


def test_it_runs_as_the_syncer_with_a_token_and_within_all_limits(cluster: Cluster, plane: Object) -> None:
    """Made for good: by its controller, behind the queue, past Pod Security, limit range and quota."""
    apply([plane])
    pod = f"{PODS}/{plane['metadata']['name']}-0"
    until_clear(
        lambda: [] if cluster.api.request("GET", pod).ok else cluster.api.request("GET", SETS).body, "its pod is made"
    )
    pod_object = cluster.api.request("GET", pod).body
    assert pod_object["spec"]["serviceAccountName"] == "virtual-cluster"
    projected = [v["projected"]["sources"] for v in pod_object["spec"]["volumes"] if "projected" in v]
    assert any("serviceAccountToken" in source for sources in projected for source in sources)
    assert pod_object["metadata"]["labels"][vocabulary.TENANT] == "fraud"
    claim = core(HOME, "persistentvolumeclaims", f"data-{plane['metadata']['name']}-0")
    assert cluster.api.request("GET", claim).ok


# Pods from inside


def test_a_pod_of_the_syncers_is_judged_like_any_other(cluster: Cluster, synced: Object) -> None:
    stranger = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger", "namespace": HOME}}
    apply([stranger])
    token = [{"serviceAccountToken": {"path": "token"}}]
    owner = {"apiVersion": "v1", "kind": "Service", "name": "virtual-cluster", "uid": "u", "controller": True}
    spec, first = "/spec", "/spec/containers/0"
    others = [{"key": vocabulary.POOL, "operator": "Equal", "value": "notebooks", "effect": "NoSchedule"}]
    off: dict[str, tuple[str, Any]] = {
        "kueue-01": ("/metadata/labels/kueue.x-k8s.io~1queue-name", "others"),
        "kueue-02": ("/metadata/ownerReferences", [owner]),
        "sched-01": (f"{spec}/tolerations", [*synced["spec"]["tolerations"], *others]),
        "id-07": (f"{spec}/serviceAccountName", "stranger"),
        "id-08": (f"{spec}/volumes", [{"name": "token", "projected": {"sources": token}}]),
        "img-01": (f"{first}/image", f"{PUBLIC_IMAGE}@{DIGEST}"),
        "pod-03": (f"{first}/securityContext/readOnlyRootFilesystem", ABSENT),
        "gpu-01": (f"{spec}/runtimeClassName", "nvidia"),
        "gpu-02": (f"{first}/env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        "avail-04": ("/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict", "false"),
        "cost-01": ("/metadata/labels/team", "others"),
    }
    attacks = [
        attack(
            *(rule, rule, rule, deniers.guard("tenancy-pods", rule)),
            Request("POST", PODS, put(synced, where, bad), syncer(HOME)),
            twin_body=synced,
        )
        for rule, (where, bad) in off.items()
    ]
    host = put(synced, "/spec/volumes", [{"name": "host", "hostPath": {"path": "/"}}])
    request = Request("POST", PODS, host, syncer(HOME))
    attacks.append(attack("host-path", "psa", "mount the host", deniers.POD_SECURITY, request, twin_body=synced))
    assert gaps(cluster, attacks) == []


def test_a_pod_of_the_syncers_waits_in_the_queue_and_stays_the_syncers(cluster: Cluster, synced: Object) -> None:
    """Made for good: what the queue writes onto it keeps the syncer from none of its own changes."""
    who, name = syncer(HOME), "waits-x-default-x-virtual-cluster"
    creation = cluster.api.request("POST", PODS, put(synced, "/metadata/name", name), who)
    assert creation.ok, creation.message
    assert {"name": "kueue.x-k8s.io/admission"} in creation.body["spec"]["schedulingGates"]
    where = f"{PODS}/{name}"
    labelled = cluster.api.request("PATCH", where, {"metadata": {"labels": {"version": "2"}}}, who, MERGE)
    assert labelled.ok, labelled.message
    assert cluster.api.request("DELETE", where, None, who).ok
    until_clear(lambda: cluster.api.request("GET", where).ok, "it is gone")


def test_the_dns_inside_is_admitted(cluster: Cluster, chart: HelmChart, synced: Object) -> None:
    """As chart/templates/coredns-configmap.yaml@18821e6 has it: with the node's resolver, and a capability."""
    dns = chart.values["controlPlane"]["coredns"]["deployment"]
    pod = copy.deepcopy(synced)
    for field in ("dnsConfig", "tolerations", "nodeSelector"):
        pod["spec"].pop(field)
    container = pod["spec"]["containers"][0]
    container |= {"image": dns["image"], "resources": dns["resources"]}
    container["securityContext"]["capabilities"] = {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    pod["spec"] |= {"dnsPolicy": "Default", "restartPolicy": "Always"}
    pod["metadata"]["labels"] |= dns["pods"]["labels"]
    answer = cluster.api.request("POST", f"{PODS}?dryRun=All", pod, syncer(HOME))
    assert answer.ok, answer.message


def test_only_the_syncer_sets_where_names_are_resolved(cluster: Cluster, synced: Object) -> None:
    """Not even who may make pods everywhere: the twin is the same pod of the syncer's."""
    guard = deniers.guard("tenancy-pods", "dns-01")
    as_platform = Request("POST", PODS, synced)
    attacks = [attack("platform", "dns-01", "names", guard, as_platform, twin_who=syncer(HOME))]
    usual = copy.deepcopy(synced)
    for field in ("dnsPolicy", "dnsConfig", "hostAliases"):
        usual["spec"].pop(field)
    for field in ("dnsConfig", "hostAliases"):
        body = put(usual, f"/spec/{field}", synced["spec"][field])
        attacks.append(attack(field, "dns-01", field, guard, Request("POST", PODS, body), twin_body=usual))
    assert gaps(cluster, attacks) == []


# Who is who


def test_people_make_and_enter_nothing_beside_their_virtual_cluster(cluster: Cluster, synced: Object) -> None:
    attacks = []
    for role, who in PEOPLE.items():
        requests = {
            "pod": Request("POST", PODS, synced, who),
            "enter": Request("GET", core(HOME, "pods", "away", "exec?command=id&stdout=true"), None, who),
            "forward": Request("GET", core(HOME, "pods", "away", "portforward?ports=8443"), None, who),
            "kubeconfig": Request("GET", core(HOME, "secrets", "vc-virtual-cluster"), None, who),
            "delete": Request("DELETE", core(HOME, "pods", "away"), None, who),
        }
        attacks += [
            attack(
                *(f"{role}-{what}", "rbac", what, deniers.RBAC, request),
                twin_who=syncer(HOME),
                twin_missing=what != "pod",
            )
            for what, request in requests.items()
        ]
    assert gaps(cluster, attacks) == []


def test_people_still_read_there(cluster: Cluster) -> None:
    assert [role for role, who in PEOPLE.items() if not cluster.api.request("GET", PODS, None, who).ok] == []


@pytest.mark.parametrize("namespace", [SECOND_NAMESPACE, NEIGHBOUR])
def test_a_syncer_has_no_rights_elsewhere(cluster: Cluster, synced: Object, namespace: str) -> None:
    attacks = [
        attack(
            "make",
            "rbac",
            "make",
            deniers.RBAC,
            Request("POST", PODS, synced, syncer(namespace)),
            twin_who=syncer(HOME),
        ),
        attack(
            *("read", "rbac", "read", deniers.RBAC, Request("GET", core(HOME, "secrets"), None, syncer(namespace))),
            twin_who=syncer(HOME),
        ),
    ]
    assert gaps(cluster, attacks) == []


def test_a_syncer_has_none_of_the_platforms_rights(cluster: Cluster) -> None:
    metadata = {"metadata": {"name": "attack"}}
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", **metadata}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", **metadata}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", **metadata, "spec": {"podSelector": {}}}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **metadata, "rules": []}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    requests: dict[str, tuple[str, Object]] = {
        "endpoints": (core(HOME, "endpoints"), endpoints),
        "account": (core(HOME, "serviceaccounts"), account),
        "token": (core(HOME, "serviceaccounts", "default", "token"), token),
        "policy": (group("networking.k8s.io/v1", HOME, "networkpolicies"), policy),
        "role": (group("rbac.authorization.k8s.io/v1", HOME, "roles"), role),
    }
    attacks = [
        attack(what, "rbac", what, deniers.RBAC, Request("POST", path, body, syncer(HOME)), twin_who=None)
        for what, (path, body) in requests.items()
    ]
    nodes = Request("GET", "/api/v1/nodes", None, syncer(HOME))
    attacks.append(attack("nodes", "rbac", "nodes", deniers.RBAC, nodes, twin_who=None))
    assert gaps(cluster, attacks) == []
