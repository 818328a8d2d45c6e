"""Kinds of work that Kueue queues besides the built-in ones, and the operators that run them.

Read 2026-11-21 from the modules that Kueue v0.19.2 is built with: jobset v0.12.0, lws v0.9.0, kuberay v1.6.2,
kubeflow/trainer v2.2.1, mpi-operator v0.8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Framework:
    """One kind: its resource, its name in Kueue, and the operator that makes its pods."""

    integration: str
    """Name in Kueue's `integrations.frameworks`."""
    group: str
    version: str
    resource: str
    kind: str
    namespace: str
    """Namespace of its operator, as the operator's manifests install it."""
    service_account: str
    required_frameworks: tuple[str, ...] = ()
    """Keys of `FRAMEWORKS`: kinds that its operator creates."""

    @property
    def operator(self) -> str:
        """User name of its operator at the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.service_account}"


BUILT_IN_INTEGRATIONS = ("batch/job", "pod", "deployment", "statefulset")
"""Kinds that are always queued, by their names in Kueue."""

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        "jobset": Framework(
            "jobset.x-k8s.io/jobset",
            *("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
            *("jobset-system", "jobset-controller-manager"),
        ),
        "leaderworkerset": Framework(
            "leaderworkerset.x-k8s.io/leaderworkerset",
            *("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
            *("lws-system", "lws-controller-manager"),
        ),
        "mpijob": Framework(
            "kubeflow.org/mpijob", "kubeflow.org", "v2beta1", "mpijobs", "MPIJob", "mpi-operator", "mpi-operator"
        ),
        "raycluster": Framework(
            "ray.io/raycluster", "ray.io", "v1", "rayclusters", "RayCluster", "ray-system", "kuberay-operator"
        ),
        "rayjob": Framework(
            "ray.io/rayjob", "ray.io", "v1", "rayjobs", "RayJob", "ray-system", "kuberay-operator", ("raycluster",)
        ),
        "trainjob": Framework(
            "trainer.kubeflow.org/trainjob",
            *("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
            *("kubeflow-system", "kubeflow-trainer-controller-manager"),
            ("jobset",),
        ),
    }
)
"""By their names in `queues.kinds`."""
