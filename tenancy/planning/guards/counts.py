"""How many pods work makes, against how many the queue counts: Kueue v0.19.2 counts each kind by its own sum.

A guard's CEL computes in 64 bits and refuses what exceeds them; Kueue and the operators compute in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog.sizes import PODS_OF_WORK

_REPLICAS, _PARALLELISM = "{0}.?replicas.orValue(1)", "{0}.?parallelism.orValue(1)"


def in_parallel(job: str) -> str:
    """CEL: pods that a Job runs at a time, of its spec. The spec has no type."""
    return _PARALLELISM.format(job)


def ends_as_counted(job: str) -> str:
    """CEL: whether each pod of a Job that ends leaves less to run (job_controller.go, ReclaimablePods)."""
    return f"(!has({job}.completions) || {in_parallel(job)} <= {job}.completions)"


def few(*counts: str) -> str:
    """CEL: whether a product of counts is one that the queue counts as it is."""
    return f"{' * '.join(counts)} <= {PODS_OF_WORK}"


def _each(at: str, part: str) -> str:
    """A condition on each part `p` of a list that may be absent."""
    return f"(!has({at}) || {at}.all(p, {part}))"


_SPEC = "dyn(object).spec"
_JOBS = f"{_SPEC}.replicatedJobs"
_OF_CLUSTER, _OF_JOB = f"{_SPEC}.workerGroupSpecs", f"{_SPEC}.rayClusterSpec.workerGroupSpecs"
_ROLES = f"{_SPEC}.mpiReplicaSpecs"


def _in_ray_job(text: str) -> str:
    return f"(!has({_SPEC}.rayClusterSpec) || {text})"


# KubeRay takes a number between minReplicas and maxReplicas, and Kueue the number of replicas (raycluster/common.go,
# `effectiveWorkerCount`, against KubeRay's `GetWorkerGroupDesiredReplicas`).
_GROUP = """p.?minReplicas.orValue(0) <= p.?replicas.orValue(0)
    && p.?replicas.orValue(0) >= 0 && p.?replicas.orValue(0) <= p.?maxReplicas.orValue(p.?replicas.orValue(0))"""
_GROUP_PODS = few(_REPLICAS.format("p"), "p.?numOfHosts.orValue(1)")
COUNTED: Mapping[str, Mapping[str, str]] = {
    "kueue-26": {
        "RayCluster": _each(_OF_CLUSTER, _GROUP),
        # A RayJob's cluster ends with it, and is its own (rayjob_controller.go).
        "RayJob": f"""({_in_ray_job(_each(_OF_JOB, _GROUP))}
        && (!has({_SPEC}.clusterSelector) || size({_SPEC}.clusterSelector) == 0)
        && (!has({_SPEC}.ttlSecondsAfterFinished) || {_SPEC}.ttlSecondsAfterFinished == 0)
        && !has({_SPEC}.deletionStrategy))""",
    },
    "kueue-28": {"JobSet": _each(_JOBS, ends_as_counted("p.template.spec"))},
    "kueue-29": {
        "JobSet": _each(_JOBS, few(_REPLICAS.format("p"), in_parallel("p.template.spec"))),
        "LeaderWorkerSet": f"({few(_REPLICAS.format(_SPEC), f'{_SPEC}.leaderWorkerTemplate.?size.orValue(1)')})",
        "MPIJob": f"{_ROLES}.all(r, {few(_REPLICAS.format(f'{_ROLES}[r]'))})",
        "RayCluster": _each(_OF_CLUSTER, _GROUP_PODS),
        "RayJob": _in_ray_job(_each(_OF_JOB, _GROUP_PODS)),
        "TrainJob": f"({few(f'{_SPEC}.?trainer.?numNodes.orValue(1)')})",
    },
    # By default the operator leaves workers that run (mpi-operator v0.8.2, `setDefaultsRunPolicy`), and Kueue counts
    # none of them once the launcher has ended (mpijob_controller.go, `Finished`).
    "kueue-30": {"MPIJob": f"({_SPEC}.?runPolicy.?cleanPodPolicy.orValue('None') in ['Running', 'All'])"},
}
"""Rules on counts of each kind of other operators."""


def _no_more(at: str, named: str, count: str) -> str:
    """Whether each of a list's parts was there before, under its name, with as many pods."""
    now, before = (f"dyn({root}).{at}" for root in ("object", "oldObject"))
    counts = [count.replace("p.", f"{part}.") for part in ("p", "q")]
    return f"""(!has({now}) || {now}.all(p, has({before}) && {before}.exists(q,
        q.{named} == p.{named} && {counts[0]} <= {counts[1]})))"""


_WORKERS = "p.?replicas.orValue(0) * p.?numOfHosts.orValue(1)"
_MPI = "dyn({0}).spec.mpiReplicaSpecs.?{1}.?replicas.orValue({2})"
NO_MORE: Mapping[str, str] = {
    "JobSet": _no_more(
        "spec.replicatedJobs", "name", "p.?replicas.orValue(1) * p.template.spec.?parallelism.orValue(1)"
    ),
    "MPIJob": " && ".join(
        f"{_MPI.format('object', name, absent)} <= {_MPI.format('oldObject', name, absent)}"
        for name, absent in (("Launcher", 1), ("Worker", 0))
    ),
    "RayCluster": _no_more("spec.workerGroupSpecs", "groupName", _WORKERS),
    "RayJob": f"""(!has(dyn(object).spec.rayClusterSpec)
        || {_no_more("spec.rayClusterSpec.workerGroupSpecs", "groupName", _WORKERS)})""",
    "TrainJob": """dyn(object).spec.?trainer.?numNodes.orValue(1)
        <= dyn(oldObject).spec.?trainer.?numNodes.orValue(1)""",
}
"""Of each kind that the queue starts as a whole: whether it has no more pods than before."""
