"""Further cases of the pack and `tenancy check`, beside `pack_cases`: an object that breaks each rule, and its twin of
one field."""

from __future__ import annotations

import json
from typing import Any

from pack_cases import (
    CLOSED,
    GPU_TAINT,
    RBAC,
    SECURED,
    SIZE_CASES,
    Case,
    binding,
    cilium,
    cluster_queue,
    container,
    group,
    isolation_resources,
    kueue,
    local_queue,
    manifest,
    namespace,
    node_pool,
    of_space,
    on_aws,
    on_port,
    one_of,
    release,
    resolving,
    with_field,
)

from tenancy.catalog import vocabulary
from tenancy.rules import aws
from tenancy.rules.queues import PREEMPTION

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
ADMISSION = "admissionregistration.k8s.io/v1"


def twins(
    rule: str, finding: str, others: tuple[Object, ...], item: Object, path: tuple[Any, ...], mended: Any
) -> Case:
    return Case(rule, (*others, item), (*others, with_field(item, path, mended)), finding)


def pod(**spec: Any) -> Object:
    full = {**SECURED, "containers": [container()], **spec}
    return manifest("v1", "Pod", "p", {"spec": full}, namespace="acme")


def contained(**context: Any) -> Object:
    return pod(containers=[container(securityContext={**CLOSED, **context})])


def config_map(key: str, value: Any) -> Object:
    return manifest("v1", "ConfigMap", "c", {"data": {key: json.dumps(value)}}, None, "gpu-operator")


SLICED = {"sharing": {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"name": GPU, "replicas": 4}]}}}
RENAMED_SHARING = {"sharing": {"timeSlicing": {**SLICED["sharing"]["timeSlicing"], "renameByDefault": True}}}


def cuts(**slices: int) -> Object:
    return {"version": "v1", "mig-configs": {"x": [{"devices": "all", "mig-devices": slices}]}}


def flavor(name: str, labels: Object) -> Object:
    return manifest("kueue.x-k8s.io/v1beta2", "ResourceFlavor", name, {"spec": {"nodeLabels": labels}}, None)


def node(name: str, labels: Object, count: str = "8", taints: list[Object] | None = None) -> Object:
    body = {"spec": {"taints": taints or []}, "status": {"allocatable": {GPU: count}, "capacity": {GPU: count}}}
    item = manifest("v1", "Node", name, body, None)
    item["metadata"]["labels"] = labels
    return item


def daemon_set(**spec: Any) -> Object:
    full = {"template": {"spec": {"containers": [{"name": "main"}], **spec}}}
    return manifest("apps/v1", "DaemonSet", "agent", {"spec": full}, None, "kube-system")


def account(name: str, where: str, tenant: str, role: str) -> Object:
    item = manifest("v1", "ServiceAccount", name, None, tenant, where)
    item["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": role}
    return item


def _association(name: str, where: str, role: str) -> Object:
    association = {"clusterName": "c", "namespace": where, "serviceAccount": "a", "roleArn": role}
    return on_aws(aws.POD_IDENTITY, name, association)


def home(name: str, *gpus: str) -> tuple[Object, ...]:
    """A tenant's namespace with its isolation resources and the way to DNS."""
    quota, *others = isolation_resources(name, name)
    hard = {"pods": "1", **{f"requests.{resource}": "1" for resource in (GPU, *gpus)}}
    return (namespace(name, name), with_field(quota, ("spec", "hard"), hard), *others)


def offer(resource: str, amount: str, borrowed: str = "0") -> list[Object]:
    resource_quota = {"name": resource, "nominalQuota": amount, "borrowingLimit": borrowed, "lendingLimit": "0"}
    return [{"coveredResources": [resource], "flavors": [{"name": "a100", "resources": [resource_quota]}]}]


def share(tenant: str, resource: str = GPU, amount: str = "8", **spec: Any) -> Object:
    return cluster_queue(f"{tenant}--batch", tenant, resourceGroups=offer(resource, amount), **spec)


def queue(tenant: str, name: str = "default", leads_to: str = "") -> Object:
    return local_queue(name, tenant, tenant, leads_to or f"{tenant}--batch")


def policy(name: str) -> Object:
    return manifest(ADMISSION, "ValidatingAdmissionPolicy", name, {"spec": {"failurePolicy": "Fail"}}, None)


def policy_binding(name: str, policy_name: str) -> Object:
    spec = {"policyName": policy_name, "validationActions": ["Deny"]}
    return manifest(ADMISSION, "ValidatingAdmissionPolicyBinding", name, {"spec": spec}, None)


def role(name: str, where: str, tenant: str) -> Object:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    return manifest(f"{RBAC}/v1", "Role", name, {"rules": rules}, tenant, where)


def _pods(labels: Object) -> Object:
    return {"metadata": {"labels": labels}, "spec": {**SECURED, "containers": [container()]}}


_OF_TEMPLATE = ("spec", "template", "spec")


def _with(**fields: Any) -> Object:
    return {"spec": {**_pods({})["spec"], **fields}}


def of_others(kind: str, spec: Object) -> Object:
    return manifest("example.org/v1", kind, "sweep" if kind == "JobSet" else "t", {"spec": spec}, "acme", "acme")


def job(name: str, labels: Object) -> Object:
    return manifest("batch/v1", "Job", name, {"spec": {"template": _pods(labels)}}, "acme", "acme")


def nightly(labels: Object) -> Object:
    spec = {"jobTemplate": {"spec": {"template": _pods(labels)}}}
    return manifest("batch/v1", "CronJob", "nightly", {"spec": spec}, "acme", "acme")


def priority(name: str, value: int) -> Object:
    return manifest("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", name, {"value": value}, None)


def pod_priority(name: str, value: int) -> Object:
    return manifest("scheduling.k8s.io/v1", "PriorityClass", name, {"value": value}, None)


def asking(name: str, expression: str) -> Object:
    spec = {"failurePolicy": "Fail", "validations": [{"expression": expression}]}
    return manifest(ADMISSION, "ValidatingAdmissionPolicy", name, {"spec": spec}, None)


def label_guard(*resources: str) -> tuple[Object, ...]:
    """An admission policy that stands, on updates of these."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": list(resources)}]
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}}
    item = manifest(ADMISSION, "ValidatingAdmissionPolicy", "labels", {"spec": spec}, None)
    return (policy_binding("labels", "labels"), item)


def _resolved_by_cilium(port: str) -> Object:
    return cilium("dns", "acme", egress=[on_port(port, toEndpoints=[of_space("kube-system")])])


def undefaulted(item: Object) -> Object:
    path = ("spec", "limits", 0, "defaultRequest", "memory")
    return with_field(item, path, None) if item["kind"] == "LimitRange" else item


G6 = one_of("node.kubernetes.io/instance-type", "g6.12xlarge")
_ROLE_REF = ("roleRef", "name")
_NOMINAL = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota")
_FLAVOR = ("spec", "resourceGroups", 0, "flavors", 0, "name")
LABELS = {"board": "a100"}
_EXPRESSION = ("spec", "validations", 0, "expression")
_NODES = (node("n", LABELS, "8"),)
FLAVORS = (flavor("a100", LABELS),)
QUEUED = (*home("acme"), queue("acme"))
SHARED_GPU = GPU + ".shared"
TEAMS = (*home("acme"), *home("rival"))
M7I = one_of("node.kubernetes.io/instance-type", "m7i.4xlarge")
TEAM_LABEL, OUR_OWN = "bank.example/team", "node-restriction.kubernetes.io/team"
_SELECTOR = ("spec", "nodeSelector")
_RULES = ("spec", "matchConstraints", "resourceRules", 0, "resources")
_SET = ("values", "managerConfig", "controllerManagerConfigYaml")
_CONVERTED = {"resources": {"transformations": [{"input": GPU}, {"input": "nvidia.com/mig-1g.10gb"}]}}
_UNCONVERTED = {"resources": {"transformations": [{"input": GPU}]}}

ALONE = (
    *SIZE_CASES,
    twins("pod-02", "Pod acme/p", (), pod(hostNetwork=True), ("spec", "hostNetwork"), False),
    twins("pod-02", "Pod acme/p", (), pod(hostPID=True), ("spec", "hostPID"), None),
    twins(
        "pod-02",
        "ReplicationController acme/old",
        (),
        manifest(
            "v1",
            "ReplicationController",
            "old",
            {"spec": {"template": {"spec": {"containers": [], "hostPID": True}}}},
            "acme",
            "acme",
        ),
        ("spec", "template", "spec", "hostPID"),
        False,
    ),
    twins(
        "pod-02",
        "Pod acme/p",
        (),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/dev"}}]),
        ("spec", "volumes", 0),
        {"name": "v", "emptyDir": {}},
    ),
    twins(
        "pod-02",
        "Pod acme/p",
        (),
        contained(privileged=True),
        ("spec", "containers", 0, "securityContext", "privileged"),
        False,
    ),
    twins(
        "pod-02",
        "Pod acme/p",
        (),
        contained(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        ("spec", "containers", 0, "securityContext", "capabilities", "add", 0),
        "NET_BIND_SERVICE",
    ),
    twins(
        "pod-02",
        "JobSet acme/sweep",
        (),
        of_others("JobSet", {"replicatedJobs": [{"template": {"spec": {"template": _with(hostNetwork=True)}}}]}),
        ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "hostNetwork"),
        False,
    ),
    twins(
        "share-02",
        "ConfigMap gpu-operator/c",
        (),
        config_map("any", SLICED),
        ("data", "any"),
        json.dumps(RENAMED_SHARING),
    ),
    twins(
        "mig-01",
        "ConfigMap gpu-operator/c",
        (),
        config_map("config.yaml", cuts(**{"1g.10gb": 8})),
        ("data", "config.yaml"),
        json.dumps(cuts(**{"1g.10gb": 7})),
    ),
    twins(
        "mig-01",
        "ConfigMap gpu-operator/c",
        (),
        config_map("config.yaml", cuts(**{"1g.7gb": 1})),
        ("data", "config.yaml"),
        json.dumps(cuts(**{"1g.10gb": 1})),
    ),
    twins(
        "kueue-15",
        "LocalQueue acme/default",
        (),
        {**queue("acme"), "apiVersion": "kueue.x-k8s.io/v1beta1"},
        ("apiVersion",),
        "kueue.x-k8s.io/v1beta2",
    ),
)
TOGETHER = (
    twins(
        "cost-01",
        "Job acme/train",
        home("acme"),
        job("train", {"team": "rival"}),
        ("spec", "template", "metadata", "labels", "team"),
        "x",
    ),
    twins(
        "cost-01",
        "CronJob acme/nightly",
        home("acme"),
        nightly({"cost-center": "1"}),
        ("spec", "jobTemplate", "spec", "template", "metadata", "labels"),
        {"app": "nightly"},
    ),
    twins(
        "kueue-23",
        "WorkloadPriorityClass urgent",
        (
            *QUEUED,
            share("acme"),
            priority("normal", 100),
            policy_binding("classes", "classes"),
            priority("urgent", 1000),
        ),
        asking("classes", "true"),
        _EXPRESSION,
        "'kueue.x-k8s.io/priority-class' in object.metadata.labels",
    ),
    twins(
        "kueue-23",
        "PriorityClass urgent",
        (*home("acme"), pod_priority("urgent", 1000)),
        with_field(home("acme")[1], ("metadata", "name"), "scoped"),
        ("spec", "scopeSelector"),
        {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]},
    ),
    Case(
        "kueue-24",
        (share("acme"), *(undefaulted(item) for item in QUEUED)),
        (share("acme"), *QUEUED),
        "Namespace acme",
    ),
    Case(
        "quota-05",
        (
            *_NODES,
            *(
                with_field(o, ("spec", "hard"), {"pods": "1"}) if o["kind"] == "ResourceQuota" else o
                for o in home("acme")
            ),
        ),
        (*_NODES, *home("acme")),
        "ResourceQuota acme/isolation",
    ),
    Case(
        "net-08",
        (*home("acme")[:-1], resolving("acme", 443)),
        home("acme"),
        "NetworkPolicy acme/isolation",
    ),
    Case(
        "net-08",
        (*home("acme")[:-1], _resolved_by_cilium("443")),
        (*home("acme")[:-1], _resolved_by_cilium("53")),
        "NetworkPolicy acme/isolation",
    ),
    *(
        twins("pod-04", name, home("acme"), item, path, mended)
        for name, item, path, mended in (
            ("Pod acme/p", contained(runAsUser=0), ("spec", "containers", 0, "securityContext", "runAsUser"), 10000),
            (
                "Job acme/x",
                with_field(job("x", {}), (*_OF_TEMPLATE, "securityContext", "seccompProfile"), None),
                (*_OF_TEMPLATE, "securityContext", "seccompProfile"),
                {"type": "RuntimeDefault"},
            ),
            (
                "PyTorchJob acme/t",
                of_others("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": _with(securityContext={})}}}),
                ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "securityContext"),
                SECURED["securityContext"],
            ),
        )
    ),
    twins(
        "rbac-06",
        "RoleBinding acme/b",
        (*home("acme"), role("work", "acme", "acme")),
        binding("b", "acme", "acme", "werk", "acme-people"),
        _ROLE_REF,
        "work",
    ),
    twins(
        "rbac-01",
        "RoleBinding acme/b",
        home("acme"),
        binding("b", "acme", "acme", "cluster-admin", "acme-people", "ClusterRole"),
        _ROLE_REF,
        "view",
    ),
    twins(
        "rbac-02",
        "RoleBinding acme/b",
        home("acme"),
        binding("b", "acme", "acme", "edit", "acme-people", "ClusterRole"),
        _ROLE_REF,
        "view",
    ),
    twins(
        "rbac-03",
        "RoleBinding acme/b",
        home("acme"),
        binding("b", "acme", "acme", "admin", "acme-people", "ClusterRole"),
        _ROLE_REF,
        "view",
    ),
    Case(
        "guard-02",
        (policy("images"),),
        (policy("images"), policy_binding("images", "images")),
        "ValidatingAdmissionPolicy images",
    ),
    twins(
        "guard-02",
        "ValidatingAdmissionPolicyBinding b",
        (policy("images"), policy_binding("images", "images")),
        policy_binding("b", "imags"),
        ("spec", "policyName"),
        "images",
    ),
    twins(
        "id-04",
        "ServiceAccount rival/a",
        (*home("acme"), *home("rival"), account("a", "acme", "acme", "arn:1")),
        account("a", "rival", "rival", "arn:1"),
        ("metadata", "annotations", "eks.amazonaws.com/role-arn"),
        "arn:2",
    ),
    twins(
        "id-04",
        "PodIdentityAssociation ack/a",
        (*home("acme"), *home("rival"), account("a", "acme", "acme", "arn:1")),
        manifest(
            "eks.services.k8s.aws/v1alpha1",
            "PodIdentityAssociation",
            "a",
            {"spec": {"namespace": "rival", "serviceAccount": "a", "roleARN": "arn:1"}},
            None,
            "ack",
        ),
        ("spec", "roleARN"),
        "arn:2",
    ),
    twins(
        "id-04",
        f"{aws.POD_IDENTITY} b",
        (*home("acme"), *home("rival"), _association("a", "acme", "arn:1")),
        _association("b", "rival", "arn:1"),
        ("roleArn",),
        "arn:2",
    ),
    twins("kueue-16", "ResourceFlavor a100", (*QUEUED, *FLAVORS, *_NODES), share("acme", amount="9"), _NOMINAL, "8"),
    twins(
        "kueue-16",
        "ResourceFlavor a100",
        (
            *QUEUED,
            flavor("a100", {"karpenter.sh/nodepool": "a"}),
            with_field(node_pool("a", G6, [GPU_TAINT]), ("spec", "limits"), {GPU: "8"}),
        ),
        share("acme", amount="9"),
        _NOMINAL,
        "8",
    ),
    twins(
        "kueue-17",
        "LocalQueue acme/x",
        (*QUEUED, share("acme")),
        queue("acme", "x", "acme--bach"),
        ("spec", "clusterQueue"),
        "acme--batch",
    ),
    twins(
        "kueue-17",
        "LocalQueue acme/x",
        (
            *(*QUEUED, share("acme"), *home("rival"), queue("rival"), share("rival")),
            with_field(share("rival"), ("metadata", "name"), "acme--of-rival"),
        ),
        queue("acme", "x", "acme--of-rival"),
        ("spec", "clusterQueue"),
        "acme--batch",
    ),
    twins(
        "kueue-18",
        "ClusterQueue acme--batch",
        (*QUEUED, *FLAVORS),
        with_field(share("acme"), _FLAVOR, "a10"),
        _FLAVOR,
        "a100",
    ),
    twins(
        "kueue-18",
        "ResourceFlavor b",
        (*_NODES, *home("acme")),
        flavor("b", {"board": "a10"}),
        ("spec", "nodeLabels", "board"),
        "a100",
    ),
    Case(
        "kueue-19",
        (
            *QUEUED,
            kueue("k", fairSharing={"preemptionStrategies": list(PREEMPTION)}),
            share("acme", preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
        ),
        (
            *QUEUED,
            kueue("k", fairSharing={"preemptionStrategies": list(PREEMPTION)}),
            share("acme", preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}}),
        ),
        "ClusterQueue acme--batch",
    ),
    Case(
        "kueue-20",
        (share("acme"), *home("acme"), queue("acme", "other")),
        (share("acme"), *home("acme"), queue("acme", "default")),
        "Namespace acme",
    ),
    twins(
        "kueue-21",
        "Release gpu-operator/k",
        (*home("acme", "nvidia.com/mig-1g.10gb"), queue("acme"), share("acme", "nvidia.com/mig-1g.10gb")),
        kueue("k", **_UNCONVERTED),
        _SET,
        kueue("k", **_CONVERTED)["values"]["managerConfig"][_SET[-1]],
    ),
    twins(
        "kueue-22", "ClusterQueue ghost--batch", (*QUEUED, share("acme")), share("ghost"), ("spec", "cohortName"), None
    ),
    Case(
        "pool-02",
        (
            *home("acme", SHARED_GPU),
            *home("rival", SHARED_GPU),
            queue("acme"),
            queue("rival"),
            share("acme", SHARED_GPU),
            share("rival", SHARED_GPU),
        ),
        (
            *home("acme", SHARED_GPU),
            *home("rival", SHARED_GPU),
            queue("acme"),
            queue("rival"),
            share("acme", SHARED_GPU),
            share("rival", SHARED_GPU, "0"),
        ),
        "ClusterQueue rival--batch",
    ),
    Case(
        "pool-02",
        (*home("acme", SHARED_GPU), *home("rival", SHARED_GPU)),
        (*home("acme", SHARED_GPU), *home("rival")),
        "ResourceQuota rival/isolation",
    ),
    twins(
        "node-06",
        "DaemonSet kube-system/agent",
        (node_pool("a", G6, [GPU_TAINT]),),
        daemon_set(tolerations=[{"key": "other", "operator": "Exists"}]),
        ("spec", "template", "spec", "tolerations", 0, "key"),
        GPU,
    ),
    twins(
        "node-06",
        "DaemonSet kube-system/agent",
        (node("n", {"gpu": "yes"}, taints=[GPU_TAINT]),),
        daemon_set(nodeSelector={"gpu": "yes"}),
        ("spec", "template", "spec", "nodeSelector", "gpu"),
        "no",
    ),
    twins(
        "sched-07", "Pod acme/p", _NODES, pod(nodeSelector={"board": "h100"}), ("spec", "nodeSelector", "board"), "a100"
    ),
    twins(
        "sched-07",
        "Pod acme/p",
        (node("n", LABELS, taints=[{"key": vocabulary.POOL, "value": "a", "effect": "NoSchedule"}]),),
        pod(nodeSelector=LABELS, tolerations=[{"key": vocabulary.POOL, "operator": "Equal", "value": "b"}]),
        ("spec", "tolerations", 0, "value"),
        "a",
    ),
    twins(
        "node-08",
        "NodePool own",
        (*TEAMS, node_pool("own", M7I, [], {TEAM_LABEL: "acme", OUR_OWN: "acme"})),
        pod(nodeSelector={TEAM_LABEL: "acme"}),
        _SELECTOR,
        {OUR_OWN: "acme"},
    ),
    twins(
        "node-08",
        "NodePool seen",
        (
            *TEAMS,
            pod(nodeSelector={TEAM_LABEL: "acme"}),
            node_pool("seen", M7I, [], {TEAM_LABEL: "acme"}),
            label_guard()[0],
        ),
        label_guard("nodes")[1],
        _RULES,
        ["nodes", "nodes/status"],
    ),
    twins(
        "node-08",
        f"{aws.GROUP} own",
        (*TEAMS, node("of-group", {TEAM_LABEL: "acme"}), pod(nodeSelector={TEAM_LABEL: "acme"})),
        group("own", labels={TEAM_LABEL: "acme"}),
        ("labels", TEAM_LABEL),
        "spare",
    ),
)
CASES = (*ALONE, *TOGETHER)


def _chart(where: str) -> Object:
    return {**release("redis", {}), "chart": "redis", "metadata": {"name": "redis", "namespace": where}}


PREVIEW_ONLY_CASES = (
    Case("seen-01", (*home("acme"), _chart("acme")), (*home("acme"), _chart("monitoring")), "Release acme/redis"),
    twins(
        "seen-03",
        "ResourceQuota acme/list",
        home("acme"),
        manifest("v1", "ResourceQuota", "list", {"spec": {"hard": [{"pods": "1"}]}}, "acme", "acme"),
        ("spec", "hard"),
        {"pods": "1"},
    ),
)
"""Findings that only a judge of a whole program can make. seen-02 is about values that a preview does not know: no
object has it."""
