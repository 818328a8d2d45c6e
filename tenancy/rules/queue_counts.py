"""Counts: how many pods work makes, against how many the queue counts.

Kueue v0.19.2 counts each kind by its own sum. CEL computes in 64 bits and refuses what exceeds them; Kueue and the
operators compute in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog.sizes import PODS_OF_WORK
from tenancy.rules.expressions import by_framework, unless_by_controller
from tenancy.rules.model import Expression, Face, GuardFacts, Rule, Subject

_REPLICAS, _PARALLELISM = "{0}.?replicas.orValue(1)", "{0}.?parallelism.orValue(1)"
_JOB, _OF_CRON_JOB = "dyn(object).spec", "dyn(object).spec.jobTemplate.spec"
IS_JOB = "request.resource.resource == 'jobs'"


def in_parallel(job: str) -> str:
    """Pods that a Job runs at a time, of its spec. The spec has no type."""
    return _PARALLELISM.format(job)


def _ends_as_counted(job: str) -> str:
    """Whether each pod of a Job that ends leaves less to run (job_controller.go, ReclaimablePods)."""
    return f"(!has({job}.completions) || {in_parallel(job)} <= {job}.completions)"


def _few(*counts: str) -> str:
    """Whether a product of counts is one that the queue counts as it is."""
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


def _of_frameworks(texts: Mapping[str, str]) -> Expression:
    """The text for the kind of the object; none where the environment queues none of the kinds."""

    def text_of(facts: GuardFacts) -> str | None:
        text = by_framework([framework.kind for framework in facts.frameworks], texts, "true")
        return None if text == "true" else unless_by_controller(text)

    return text_of


# KubeRay takes a number between minReplicas and maxReplicas, and Kueue the number of replicas (raycluster/common.go,
# `effectiveWorkerCount`, against KubeRay's `GetWorkerGroupDesiredReplicas`).
_GROUP = """p.?minReplicas.orValue(0) <= p.?replicas.orValue(0)
    && p.?replicas.orValue(0) >= 0 && p.?replicas.orValue(0) <= p.?maxReplicas.orValue(p.?replicas.orValue(0))"""
_GROUP_PODS = _few(_REPLICAS.format("p"), "p.?numOfHosts.orValue(1)")
_GROUP_SIZE = f"{_SPEC}.leaderWorkerTemplate.?size.orValue(1)"
_SCALED = "dyn(object).?spec.?replicas.orValue(0)"
_CHILDREN = """object.kind != 'JobSet' || !has(dyn(object).spec.replicatedJobs)
        || dyn(object).spec.replicatedJobs.all(j, !has(j.template.spec.parallelism) || has(j.template.spec.completions)
            || j.template.spec.?completionMode.orValue('Indexed') == 'NonIndexed')"""


def _children(facts: GuardFacts) -> str | None:
    """JobSet's webhook writes Indexed where nothing is said, and the API server refuses such a Job without
    completions."""
    kinds = {framework.kind for framework in facts.frameworks}
    return unless_by_controller(_CHILDREN) if "JobSet" in kinds else None


def _scales(facts: GuardFacts) -> str | None:
    if not facts.queued:
        return None
    return (
        "request.resource.resource == 'horizontalpodautoscalers'"
        f" ? {_few('dyn(object).spec.maxReplicas')} : {_few(_SCALED)}"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="kueue-26",
        title="the queue counts every pod of a Ray cluster for as long as the pod exists",
        why="workers that are not counted, or that outlive the job, run on GPUs that are guaranteed to others",
        fix=(
            "set minReplicas no higher than replicas, and maxReplicas no lower; of a RayJob drop "
            "ttlSecondsAfterFinished, "
            "deletionStrategy and clusterSelector"
        ),
        enforced=Face.ATTACK,
        guards={
            Subject.FRAMEWORKS: _of_frameworks(
                {
                    "RayCluster": _each(_OF_CLUSTER, _GROUP),
                    # A RayJob's cluster ends with it, and is its own (rayjob_controller.go).
                    "RayJob": f"""({_in_ray_job(_each(_OF_JOB, _GROUP))}
        && (!has({_SPEC}.clusterSelector) || size({_SPEC}.clusterSelector) == 0)
        && (!has({_SPEC}.ttlSecondsAfterFinished) || {_SPEC}.ttlSecondsAfterFinished == 0)
        && !has({_SPEC}.deletionStrategy))""",
                }
            )
        },
    ),
    Rule(
        id="kueue-28",
        title="a Job's parallelism is at most its completions, also in a CronJob and in a JobSet",
        why=(
            "Kueue takes each pod that ends for one that returns its GPUs, and of such a Job another pod "
            "starts on them: "
            "its running pods are not counted, and no guarantee reclaims them"
        ),
        fix="set parallelism no higher than completions; that many pods run at most in any case",
        enforced=Face.ATTACK,
        guards={
            Subject.BUILT_IN_WORK: unless_by_controller(f"!({IS_JOB}) || {_ends_as_counted(_JOB)}"),
            Subject.CRON_JOBS: lambda facts: (
                unless_by_controller(_ends_as_counted(_OF_CRON_JOB)) if facts.queued else None
            ),
            Subject.FRAMEWORKS: _of_frameworks({"JobSet": _each(_JOBS, _ends_as_counted("p.template.spec"))}),
        },
    ),
    Rule(
        id="kueue-29",
        title=f"each part of a piece of work has at most {PODS_OF_WORK:,} pods",
        why=(
            "Kueue multiplies counts of pods in 32 bits: a larger product begins again at 0, and the GPUs of "
            "its pods are "
            "not counted"
        ),
        fix="lower replicas, parallelism, size, numOfHosts or numNodes, or make several pieces of work",
        enforced=Face.ATTACK,
        guards={
            Subject.BUILT_IN_WORK: unless_by_controller(
                f"{IS_JOB} ? {_few(in_parallel(_JOB))} : {_few(_REPLICAS.format(_JOB))}"
            ),
            Subject.CRON_JOBS: lambda facts: (
                unless_by_controller(_few(in_parallel(_OF_CRON_JOB))) if facts.queued else None
            ),
            Subject.FRAMEWORKS: _of_frameworks(
                {
                    "JobSet": _each(_JOBS, _few(_REPLICAS.format("p"), in_parallel("p.template.spec"))),
                    "LeaderWorkerSet": f"({_few(_REPLICAS.format(_SPEC), _GROUP_SIZE)})",
                    "MPIJob": f"{_ROLES}.all(r, {_few(_REPLICAS.format(f'{_ROLES}[r]'))})",
                    "RayCluster": _each(_OF_CLUSTER, _GROUP_PODS),
                    "RayJob": _in_ray_job(_each(_OF_JOB, _GROUP_PODS)),
                    "TrainJob": f"({_few(f'{_SPEC}.?trainer.?numNodes.orValue(1)')})",
                }
            ),
            Subject.SCALES: _scales,
        },
    ),
    Rule(
        id="kueue-30",
        title="the workers of an MPIJob end with its launcher",
        why=(
            "with the MPI operator's default they keep their GPUs after the launcher has ended, and the queue "
            "gives the "
            "same GPUs to other work"
        ),
        fix="set spec.runPolicy.cleanPodPolicy to Running or All",
        enforced=Face.ATTACK,
        guards={
            # By default the operator leaves workers that run (mpi-operator v0.8.2, `setDefaultsRunPolicy`), and Kueue
            # counts none of them once the launcher has ended (mpijob_controller.go, `Finished`).
            Subject.FRAMEWORKS: _of_frameworks(
                {"MPIJob": f"({_SPEC}.?runPolicy.?cleanPodPolicy.orValue('None') in ['Running', 'All'])"}
            )
        },
    ),
    Rule(
        id="kueue-32",
        title="each job of a JobSet that says parallelism says completions too, or is NonIndexed",
        why=(
            "the API server refuses an Indexed job without completions: the JobSet holds its quota for pods that never "
            "come"
        ),
        fix="set completions, or completionMode: NonIndexed",
        enforced=Face.ATTACK,
        guards={Subject.FRAMEWORKS: _children},
    ),
)
