"""Whether work of other operators has no more pods than before (kueue-27)."""

from __future__ import annotations

from collections.abc import Mapping


def _no_more(path: str, name_field: str, count: str) -> str:
    """Whether each of a list's parts was there before, under its name, with as many pods."""
    new_parts, old_parts = (f"dyn({root}).{path}" for root in ("object", "oldObject"))
    counts = [count.replace("p.", f"{part}.") for part in ("p", "q")]
    return f"""(!has({new_parts}) || {new_parts}.all(p, has({old_parts}) && {old_parts}.exists(q,
        q.{name_field} == p.{name_field} && {counts[0]} <= {counts[1]})))"""


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
"""Expression for each kind that the queue starts as a whole: whether it has no more pods than before."""
