"""The smallest workloads that the cluster admits from a tenant's developers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.controllers import RUN_TIME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.objects import Object
from tenancy.planning.common.device_classes import device_class
from tenancy.planning.common.labels import manifest
from tenancy.planning.common.pools import node_taints, pools_of
from tenancy.planning.common.priorities import class_name
from tenancy.planning.kubernetes.namespaces import granted_resources
from tenancy.planning.queueing.queue_names import flavor_name
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.rules.catalogue import Violation
from tenancy.rules.claim_forms import claim_spec, template_name
from tenancy.rules.device_claims import MAX_DEVICES
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.reading.mistakes import nearest

NAME = "hello-gpu"
SAMPLE_SECONDS = 3600
SAMPLE_ID = 10001
"""User and group that it runs as: above 10,000 no host's own account has the number (kube-score, CKV_K8S_40)."""
ANY_TOPOLOGY = "kueue.x-k8s.io/podset-unconstrained-topology"
"""Annotation of pods that may lie anywhere in a flavor with a topology; without one Kueue never gives it to them."""
HUGE_PAGES, PAGES = "hugepages-2Mi", "5Gi"
_LABELS = {"app.kubernetes.io/name": NAME}


def find_namespace(tenant: Tenant, name: str | None) -> Namespace:
    """A namespace by its name in the file or in the cluster; without a name the first.

    Raises Violation if the tenant has no such namespace.
    """
    if name is None:
        return tenant.namespaces[0]
    for namespace in tenant.namespaces:
        if name in {namespace.name, tenant.namespace_name(namespace)}:
            return namespace
    known_names = ", ".join(n.name for n in tenant.namespaces)
    raise Violation("ref-01", f"namespace {name!r} of tenant {tenant.tenant}", f"use one of {known_names}")


def sample_to_create(
    kind: str, environment: Environment, tenant: Tenant, namespace: Namespace, requested_gpus: Mapping[str, int]
) -> Object:
    """The `sample` as `kubectl create -f -` takes it: a List, where a template of its claim has to be there first.

    A job of more GPUs than a node has gets several pods; LargerThanNodes for what nodes of one pool cannot take.
    """
    if kind == "mpijob" and "mpijob" not in environment.queues.kinds:
        enabled_kinds = ", ".join(environment.queues.kinds) or "none"
        raise Violation("ref-01", f"mpijob, where queues.kinds are {enabled_kinds}", "add mpijob to queues.kinds")
    if len(requested_gpus) != 1:
        workload = sample("job" if kind == "mpijob" else kind, environment, tenant, namespace, requested_gpus)
        return _mpi_job(workload, workload, 1, 1) if kind == "mpijob" else workload
    ((flavor, total),) = requested_gpus.items()
    sample_split = split(kind, environment, tenant, namespace, flavor, total)
    count = sample_split.gpus_per_pod
    workload = sample(
        "job" if kind == "mpijob" else kind, environment, tenant, namespace, {flavor: count}, sample_split.pool
    )
    if kind == "mpijob":
        workload = _mpi_job(sample("job", environment, tenant, namespace, {}), workload, sample_split.pods, count)
    elif sample_split.pods > 1:
        workload["spec"] |= {
            "completions": sample_split.pods,
            "parallelism": sample_split.pods,
            "completionMode": "Indexed",
        }
    if not environment.uses_device_claims:
        return workload
    body = {"spec": {"spec": claim_spec(device_class(flavor), count)}}
    namespace_name = tenant.namespace_name(namespace)
    name = template_name(device_class(flavor), count)
    template = manifest("resource.k8s.io/v1", "ResourceClaimTemplate", name, _LABELS, body, namespace=namespace_name)
    return {"apiVersion": "v1", "kind": "List", "items": [template, workload]}


def _mpi_job(launcher: Object, worker: Object, workers: int, slots: int) -> Object:
    """An MPIJob of the pods of two Jobs. By the operator's default its workers would outlive it (kueue-30)."""
    framework = FRAMEWORKS["mpijob"]
    parts = {"Launcher": (1, launcher), "Worker": (workers, worker)}
    spec = {
        "slotsPerWorker": slots,
        "runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 600},
        "mpiReplicaSpecs": {
            name: {"replicas": count, "template": job["spec"]["template"]} for name, (count, job) in parts.items()
        },
    }
    api = f"{framework.group}/{framework.version}"
    return {"apiVersion": api, "kind": framework.kind, "metadata": worker["metadata"], "spec": spec}


class LargerThanNodes(ValueError):
    """Work that no node, or no pool, is large enough for."""


class SampleSplit(NamedTuple):
    """The pods of a sample, the GPUs of each, and the pool whose nodes take them."""

    pods: int
    gpus_per_pod: int
    pool: str


def split(
    kind: str, environment: Environment, tenant: Tenant, namespace: Namespace, flavor: str, count: int
) -> SampleSplit:
    """One pod if a node has that many GPUs, or the fewest equal pods of a job; in the first pool that can take them."""
    pools = _granting_pools(environment, tenant, namespace, flavor, count)
    devices = {name: environment.flavors_of(name)[flavor] for name in pools}
    if single_node_pool := next((name for name in pools if devices[name] >= count), None):
        return SampleSplit(1, count, single_node_pool)
    largest_node = max(devices.values())
    request_text = (
        f"given {count} {flavor} for one pod; rule: a pod runs on one node, and no node has more than {largest_node}"
    )
    if kind == "pod":
        raise LargerThanNodes(
            f"{request_text}; change: ask for {largest_node} at most, or for a job, which gets several pods"
        )
    for name in pools:
        per_pod = max(size for size in range(1, devices[name] + 1) if count % size == 0)
        if devices[name] * environment.pools[name].nodes.max >= count:
            return SampleSplit(count // per_pod, per_pod, name)
    largest = max(devices[name] * environment.pools[name].nodes.max for name in pools)
    rule = f"a job runs in one pool, and no pool has more than {largest}"
    raise LargerThanNodes(f"given {count} {flavor}; rule: {rule}; change: ask for {largest} at most")


def sample(
    kind: str,
    environment: Environment,
    tenant: Tenant,
    namespace: Namespace,
    requested_gpus: Mapping[str, int],
    pool: str | None = None,
) -> Object:
    """A `pod` or `job` that asks for `requested_gpus` GPUs by flavor; Violation if the tenant may not have them.

    `pool` is one that yields them to the tenant; by default the preferred one. Where GPUs are claimed it names the
    template of a claim, which `sample_to_create` brings along.
    """
    resources = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    claimed = bool(environment.uses_device_claims and requested_gpus)
    tolerations: list[dict[str, str]] = []
    selector: dict[str, str] = {}
    notes: dict[str, str] = {}
    template = "-".join(template_name(device_class(flavor), count) for flavor, count in requested_gpus.items())
    for flavor, count in requested_gpus.items():
        pools = _granting_pools(environment, tenant, namespace, flavor, count)
        if not claimed:
            resources[environment.resource_of(flavor)] = str(count)
        elif count > MAX_DEVICES:
            raise Violation("gpu-08", f"a claim of {count} {flavor}", f"ask for {MAX_DEVICES} at most")
        pool_name = pool or pools[0]
        if kind == "job":
            resources |= _fabric(environment, tenant, namespace, pool_name, flavor, count)
        selector = {vocabulary.POOL: pool_name}
        tolerations = [{"operator": "Equal", **taint} for taint in node_taints(pool_name, environment.pools[pool_name])]
        # A pool with a topology has a flavor of another name.
        if environment.has_queues and flavor_name(environment, pool_name) != pool_name:
            notes = {ANY_TOPOLOGY: "true"}
    if len(requested_gpus) > 1:
        raise Violation(
            "gpu-06", f"flavors {', '.join(requested_gpus)}", "one pod runs on one pool: ask for one flavor"
        )
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": SAMPLE_ID,
            "runAsGroup": SAMPLE_ID,
            "fsGroup": SAMPLE_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "priorityClassName": class_name(tenant.tier_of(namespace)),
        "containers": [
            {
                "name": "hello",
                "image": environment.images.sample,
                "command": ["nvidia-smi", "-L"] if requested_gpus else ["true"],
                "resources": {
                    "requests": dict(resources),
                    "limits": dict(resources),
                    **({"claims": [{"name": "gpu"}]} if claimed else {}),
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        **({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}]} if claimed else {}),
        **({"tolerations": tolerations, "nodeSelector": selector} if requested_gpus else {}),
    }
    if tenant.is_sandboxed:
        spec["runtimeClassName"] = vocabulary.SANDBOX_CLASS
    if tenant.on_own_nodes:
        spec["nodeSelector"] = {**selector, vocabulary.TENANT: tenant.tenant}
        tenant_pools = [(n, p) for n, p in sorted(environment.pools.items()) if p.sole_tenant == tenant.tenant]
        cpu_taints = [
            taint for name, pool in tenant_pools if not pool.machine.gpus for taint in node_taints(name, pool)
        ]
        spec["tolerations"] = tolerations or [{"operator": "Equal", **taint} for taint in cpu_taints]
    if tenant.dedicated_hosts:
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_tenant_anti_affinity(tenant)]}
        }
    namespace_name = tenant.namespace_name(namespace)
    labels = {**_LABELS, **run_time(environment, tenant, namespace)}
    if kind == "pod":
        return manifest("v1", "Pod", NAME, labels, {"spec": spec}, namespace=namespace_name, annotations=notes)
    metadata = {"labels": dict(_LABELS), **({"annotations": notes} if notes else {})}
    template = {"metadata": metadata, "spec": spec}
    body = {"spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": template}}
    return manifest("batch/v1", "Job", NAME, labels, body, namespace=namespace_name)


def _fabric(
    environment: Environment, tenant: Tenant, namespace: Namespace, pool: str, flavor: str, count: int
) -> dict[str, str]:
    """EFA interfaces of a pod that takes all GPUs of a node, and the huge pages of its library, where they are granted.

    The pages as in AWS' own manifests (awslabs/awsome-distributed-ai, PR 1230).
    """
    machine = environment.pools[pool]
    if not machine.efa or count < environment.flavors_of(pool)[flavor]:
        return {}
    pages = {name: PAGES for name in granted_resources(environment, tenant, namespace) if name == HUGE_PAGES}
    return {gpus.EFA: str(machine.machine.efa), **pages}


def _granting_pools(
    environment: Environment, tenant: Tenant, namespace: Namespace, flavor: str, count: int
) -> list[str]:
    """Pools that yield a flavor to a namespace, the preferred first; Violation if it may not have that many."""
    if flavor not in tenant.gpus:
        known_flavors = ", ".join(nearest(flavor, tenant.gpus)) or "no flavor at all"
        raise Violation("gpu-06", f"{flavor} for {tenant.tenant}", f"{tenant.tenant} has {known_flavors}")
    maximum = quota_ceiling(environment, tenant, namespace)[flavor]
    if count > maximum:
        request_text = f"{count} {flavor}, while the maximum of {tenant.namespace_name(namespace)} is {maximum}"
        advice = "ask for less" if maximum else "give it a guarantee or let it borrow"
        raise Violation("gpu-06", request_text, f"{advice}, or choose the namespace that has them")
    pools = pools_of(environment, flavor, tenant.tenant, frozenset({tenant.tier_of(namespace)}))
    if not pools:
        raise Violation("pool-01", f"{flavor}, which no pool yields to tier {tenant.tier_of(namespace)}")
    return pools


def missing_pool(environment: Environment, tenant: Tenant, namespace: Namespace) -> str | None:
    """Reason for which a sample without GPUs stays Pending, with a change; None where some pool takes it."""
    tiers = frozenset({tenant.tier_of(namespace)})
    if any(not pool.machine.gpus and pool.admits(tenant.tenant, tiers) for pool in environment.pools.values()):
        return None
    namespace_name = tenant.namespace_name(namespace)
    return (
        f"found no pool without GPUs that admits {namespace_name}: this stays Pending, because GPU nodes take only "
        "pods that ask for a GPU. Fix: add --gpu FLAVOR=N, or add to `pools` of environment.yaml one such as "
        "`general: {instance-type: m7i.2xlarge, nodes: 1}`"
    )


def _tenant_anti_affinity(tenant: Tenant) -> Object:
    """The term that keeps a pod off the nodes of other tenants' pods; sched-08 takes no other."""
    other_tenants = [
        {"key": vocabulary.TENANT, "operator": "Exists"},
        {"key": vocabulary.TENANT, "operator": "NotIn", "values": [tenant.tenant]},
    ]
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchExpressions": other_tenants},
    }


def run_time(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """The label by which work says how long it may run, where its tier asks for one."""
    max_run_time = environment.tiers[tenant.tier_of(namespace)].max_run_time
    return (
        {RUN_TIME: str(min(seconds(max_run_time), SAMPLE_SECONDS))} if environment.has_queues and max_run_time else {}
    )
