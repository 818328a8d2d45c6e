"""The smallest workloads that the cluster admits from a tenant's developers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import RUN_TIME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.objects import Object
from tenancy.planning.common.devices import device_class
from tenancy.planning.common.labels import manifest
from tenancy.planning.common.pools import node_taints, pools_of
from tenancy.planning.common.priorities import class_name
from tenancy.planning.kubernetes.namespaces import granted_resources
from tenancy.planning.queueing.queue_names import flavor_name
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.rules.catalogue import Violation
from tenancy.rules.claim_forms import claim_spec, template_name
from tenancy.rules.device_claims import MAX_DEVICES
from tenancy.schema.environment import Environment, nearest
from tenancy.schema.queues import seconds
from tenancy.schema.tenant import Namespace, Tenant

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
    known = ", ".join(n.name for n in tenant.namespaces)
    raise Violation("ref-01", f"namespace {name!r} of tenant {tenant.tenant}", f"use one of {known}")


def sample_to_create(
    kind: str, environment: Environment, tenant: Tenant, namespace: Namespace, wanted: Mapping[str, int]
) -> Object:
    """The `sample` as `kubectl create -f -` takes it: a List, where a template of its claim has to be there first.

    A job of more GPUs than a node has gets several pods; LargerThanNodes for what nodes of one pool cannot take.
    """
    if kind == "mpijob" and "mpijob" not in environment.queues.kinds:
        listed = ", ".join(environment.queues.kinds) or "none"
        raise Violation("ref-01", f"mpijob, where queues.kinds are {listed}", "add mpijob to queues.kinds")
    if len(wanted) != 1:
        found = sample("job" if kind == "mpijob" else kind, environment, tenant, namespace, wanted)
        return _mpi_job(found, found, 1, 1) if kind == "mpijob" else found
    ((flavor, total),) = wanted.items()
    found = split(kind, environment, tenant, namespace, flavor, total)
    count = found.each
    workload = sample("job" if kind == "mpijob" else kind, environment, tenant, namespace, {flavor: count}, found.pool)
    if kind == "mpijob":
        workload = _mpi_job(sample("job", environment, tenant, namespace, {}), workload, found.pods, count)
    elif found.pods > 1:
        workload["spec"] |= {"completions": found.pods, "parallelism": found.pods, "completionMode": "Indexed"}
    if not environment.uses_device_claims:
        return workload
    body = {"spec": {"spec": claim_spec(device_class(flavor), count)}}
    where = tenant.namespace_name(namespace)
    name = template_name(device_class(flavor), count)
    template = manifest("resource.k8s.io/v1", "ResourceClaimTemplate", name, _LABELS, body, namespace=where)
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
    each: int
    pool: str


def split(
    kind: str, environment: Environment, tenant: Tenant, namespace: Namespace, flavor: str, count: int
) -> SampleSplit:
    """One pod if a node has that many GPUs, or the fewest equal pods of a job; in the first pool that can take them."""
    pools = _granting(environment, tenant, namespace, flavor, count)
    devices = {name: environment.flavors_of(name)[flavor] for name in pools}
    if alone := next((name for name in pools if devices[name] >= count), None):
        return SampleSplit(1, count, alone)
    most = max(devices.values())
    given = f"given {count} {flavor} for one pod; rule: a pod runs on one node, and no node has more than {most}"
    if kind == "pod":
        raise LargerThanNodes(f"{given}; change: ask for {most} at most, or for a job, which gets several pods")
    for name in pools:
        each = max(size for size in range(1, devices[name] + 1) if count % size == 0)
        if devices[name] * environment.pools[name].nodes.max >= count:
            return SampleSplit(count // each, each, name)
    largest = max(devices[name] * environment.pools[name].nodes.max for name in pools)
    rule = f"a job runs in one pool, and no pool has more than {largest}"
    raise LargerThanNodes(f"given {count} {flavor}; rule: {rule}; change: ask for {largest} at most")


def sample(
    kind: str,
    environment: Environment,
    tenant: Tenant,
    namespace: Namespace,
    wanted: Mapping[str, int],
    pool: str | None = None,
) -> Object:
    """A `pod` or `job` that asks for `wanted` GPUs by flavor; Violation if the tenant may not have them.

    `pool` is one that yields them to the tenant; by default the preferred one. Where GPUs are claimed it names the
    template of a claim, which `sample_to_create` brings along.
    """
    resources = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    claimed = bool(environment.uses_device_claims and wanted)
    tolerations: list[dict[str, str]] = []
    selector: dict[str, str] = {}
    notes: dict[str, str] = {}
    template = "-".join(template_name(device_class(flavor), count) for flavor, count in wanted.items())
    for flavor, count in wanted.items():
        pools = _granting(environment, tenant, namespace, flavor, count)
        if not claimed:
            resources[environment.resource_of(flavor)] = str(count)
        elif count > MAX_DEVICES:
            raise Violation("gpu-08", f"a claim of {count} {flavor}", f"ask for {MAX_DEVICES} at most")
        chosen = pool or pools[0]
        if kind == "job":
            resources |= _fabric(environment, tenant, namespace, chosen, flavor, count)
        selector = {words.POOL: chosen}
        tolerations = [{"operator": "Equal", **taint} for taint in node_taints(chosen, environment.pools[chosen])]
        # A pool with a topology has a flavor of another name.
        if environment.has_queues and flavor_name(environment, chosen) != chosen:
            notes = {ANY_TOPOLOGY: "true"}
    if len(wanted) > 1:
        raise Violation("gpu-06", f"flavors {', '.join(wanted)}", "one pod runs on one pool: ask for one flavor")
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
                "command": ["nvidia-smi", "-L"] if wanted else ["true"],
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
        **({"tolerations": tolerations, "nodeSelector": selector} if wanted else {}),
    }
    if tenant.is_sandboxed:
        spec["runtimeClassName"] = words.SANDBOX_CLASS
    if tenant.on_own_nodes:
        spec["nodeSelector"] = {**selector, words.TENANT: tenant.tenant}
        own = [(n, p) for n, p in sorted(environment.pools.items()) if p.sole_tenant == tenant.tenant]
        plain = [taint for name, pool in own if not pool.machine.gpus for taint in node_taints(name, pool)]
        spec["tolerations"] = tolerations or [{"operator": "Equal", **taint} for taint in plain]
    if tenant.apart:
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_apart(tenant)]}}
    where = tenant.namespace_name(namespace)
    labels = {**_LABELS, **run_time(environment, tenant, namespace)}
    if kind == "pod":
        return manifest("v1", "Pod", NAME, labels, {"spec": spec}, namespace=where, annotations=notes)
    metadata = {"labels": dict(_LABELS), **({"annotations": notes} if notes else {})}
    template = {"metadata": metadata, "spec": spec}
    body = {"spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": template}}
    return manifest("batch/v1", "Job", NAME, labels, body, namespace=where)


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


def _granting(environment: Environment, tenant: Tenant, namespace: Namespace, flavor: str, count: int) -> list[str]:
    """Pools that yield a flavor to a namespace, the preferred first; Violation if it may not have that many."""
    if flavor not in tenant.gpus:
        known = ", ".join(nearest(flavor, tenant.gpus)) or "no flavor at all"
        raise Violation("gpu-06", f"{flavor} for {tenant.tenant}", f"{tenant.tenant} has {known}")
    most = quota_ceiling(environment, tenant, namespace)[flavor]
    if count > most:
        given = f"{count} {flavor}, while the maximum of {tenant.namespace_name(namespace)} is {most}"
        less = "ask for less" if most else "give it a guarantee or let it borrow"
        raise Violation("gpu-06", given, f"{less}, or choose the namespace that has them")
    pools = pools_of(environment, flavor, tenant.tenant, frozenset({tenant.tier_of(namespace)}))
    if not pools:
        raise Violation("pool-01", f"{flavor}, which no pool yields to tier {tenant.tier_of(namespace)}")
    return pools


def missing_pool(environment: Environment, tenant: Tenant, namespace: Namespace) -> str | None:
    """Why a sample without GPUs stays Pending, and what to change; None where some pool takes it."""
    tiers = frozenset({tenant.tier_of(namespace)})
    if any(not pool.machine.gpus and pool.admits(tenant.tenant, tiers) for pool in environment.pools.values()):
        return None
    where = tenant.namespace_name(namespace)
    return (
        f"found no pool without GPUs that admits {where}: this stays Pending, because GPU nodes take only pods that "
        "ask for a GPU. Fix: add --gpu FLAVOR=N, or add to `pools` of environment.yaml one such as "
        "`general: {instance: m7i.2xlarge, nodes: 1}`"
    )


def _apart(tenant: Tenant) -> Object:
    """The term that keeps a pod off the nodes of other tenants' pods; sched-08 takes no other."""
    others = [
        {"key": words.TENANT, "operator": "Exists"},
        {"key": words.TENANT, "operator": "NotIn", "values": [tenant.tenant]},
    ]
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchExpressions": others},
    }


def run_time(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """The label by which work says how long it may run, where its tier asks for one."""
    most = environment.tiers[tenant.tier_of(namespace)].max_run_time
    return {RUN_TIME: str(min(seconds(most), SAMPLE_SECONDS))} if environment.has_queues and most else {}
