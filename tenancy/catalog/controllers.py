"""Names of controllers, and the marks of Kueue: who writes, and what is written onto what is queued."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary

VOLUME_BINDER = "system:serviceaccount:kube-system:persistent-volume-binder"
SYSTEM_USERS = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
"""Users of the control plane, beside the service accounts of its namespaces."""
NAMESPACE_CONTROLLERS = (
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
)
JOB_CONTROLLERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller")
"""The second wherever controllers have accounts of their own, as on EKS."""
JOB_FINALIZER = "batch.kubernetes.io/job-tracking"
"""The job controller puts it on pods that it makes. No controller removes it from pods of another controller, and no
template needs it."""

CLAIM_CONTROLLERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:resource-claim-controller")
"""Identities that make a pod's claims from their templates."""
CLAIM_OF_POD = "resource.kubernetes.io/pod-claim-name"
"""Annotation by which that controller recognizes its own claims (KEP-3063)."""

KUEUE = f"system:serviceaccount:{vocabulary.QUEUE_NAMESPACE}:kueue-controller-manager"
WORKLOAD_CONTROLLERS = (
    "system:kube-controller-manager",
    *(
        f"system:serviceaccount:kube-system:{name}"
        for name in (
            *("cronjob-controller", "daemon-set-controller", "deployment-controller", "generic-garbage-collector"),
            *("job-controller", "replicaset-controller", "replication-controller", "statefulset-controller"),
        )
    ),
)
"""Controllers that make objects from objects; what tenants write was judged by a guard as a template."""

AUTOSCALERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:horizontal-pod-autoscaler")
"""Controllers that scale on behalf of the autoscaler's author."""

DOMAIN = "kueue.x-k8s.io/"
QUEUE = DOMAIN + "queue-name"
URGENCY = DOMAIN + "priority-class"
RUN_TIME = DOMAIN + "max-exec-time-seconds"
MANAGED = DOMAIN + "managed"
"""Label and finalizer of a pod that the queue starts."""
HELD = DOMAIN + "admission"
"""Gate of a pod that waits for the queue."""
PLACED = DOMAIN + "topology"
"""Gate of a pod that waits for its place in the network."""
PARENT = DOMAIN + "pod-suspending-parent"
COUNTED = DOMAIN + "podset"
"""Label of a pod that the queue has admitted: which part of its work it is (pkg/constants, jobframework)."""

WRITABLE = (
    *(QUEUE, URGENCY, RUN_TIME),
    *(DOMAIN + f"job-{name}" for name in ("completions-equal-parallelism", "min-parallelism")),
    *(
        DOMAIN + f"podset-{name}"
        for name in (
            *("group-name", "preferred-topology", "required-topology", "slice-required-topology"),
            *("slice-required-topology-constraints", "slice-size", "unconstrained-topology"),
        )
    ),
)
"""Labels and annotations of Kueue's that ask it for something and tell it nothing; the rest of v0.19.2 is refused:

prebuilt-workload-name, multikueue-origin[-uid] (pkg/controller/constants, apis/kueue/v1beta2/multikueue_types.go)
    runs under quota that was given to other work, or is not counted at all
pod-group-name, -total-count, -fast-admission, -serving, role-hash, retriable-in-group, pod-group-pod-index[-label]
    (pkg/controller/jobs/pod/constants) pods of one `role-hash` are counted as if all were like the first: one that
    asks for no GPU makes eight free. The queue trusts a hash that is present, and its author is unknown. Groups are
    made by Kueue itself, for StatefulSets and LeaderWorkerSets
managed, pod-suspending-parent, podset, cluster-queue-name, local-queue-name, workload, workload-slice-name,
pod-index-offset, stopping, raycluster-* (pkg/constants, topology_types.go, jobs/job, jobs/raycluster/common.go)
    Kueue's own notes; without the first two it takes a pod for none of its own
elastic-job (pkg/constants) work that grows while it runs; how it is counted has not been reviewed
safe-to-forcefully-delete, admission-gated-by (pkg/controller/constants), provreq.kueue.x-k8s.io/* (the autoscaler's)
"""
GATED: Mapping[str, Mapping[str, str]] = {
    "pods": {MANAGED: "true", DOMAIN + "role-hash": ""},
    "deployments": {MANAGED: "true", PARENT: "deployment"},
    "statefulsets": {PARENT: "statefulset"},
    "leaderworkersets": {
        PARENT: "leaderworkerset.x-k8s.io/leaderworkerset",
        DOMAIN + "pod-group-serving": "true",
        DOMAIN + "pod-index-offset": "1",
    },
    "mpijobs": {DOMAIN + "pod-index-offset": "1"},
}
"""Fields that Kueue's webhooks write before a guard sees the object, as if its maker had; empty: any value."""
OWN_CONTROLLERS = (
    *("batch.kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller", "kubeflow.org/mpi-operator"),
    *("kubernetes.io/job-controller", "ray.io/kuberay-operator", "trainer.kubeflow.org/trainjob-controller"),
)
"""Values that `managedBy` may have: the controller of that kind by default."""

BUDGET_SPENT = "BudgetSpent"
"""Reason of the clock's Event on the LocalQueues of a tenant whose budget is spent."""

GPU_IDLE = "GpuIdle"
"""Reason of the clock's Events on a Workload whose GPUs are idle."""
