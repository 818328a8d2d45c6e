"""Rules on Kueue's objects and on its configuration (v0.19.2 `apis/kueue/v1beta2`, `apis/config/v1beta2`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.kube.quantities import parse_or_zero
from tenancy.kube.quota_tree import stored_quotas
from tenancy.kube.requests import group
from tenancy.rules.attacks import Attack, Request, attack, put
from tenancy.rules.expressions import IN_TENANTS_NAMESPACE, OF_TENANT, cel
from tenancy.rules.findings import Given, Object
from tenancy.rules.model import GuardSubject, Rule, Severity
from tenancy.rules.owned import plain_value
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import CLUSTER_ADMIN

# Attacks

_QUEUES = "kueue.x-k8s.io/v1beta2"


def leading(scene: AttackScene, place: AttackPlace, leads_to: str, slug: str) -> Attack:
    """A LocalQueue of another ClusterQueue, created by a cluster admin; its twin names the namespace's ClusterQueue."""
    queue_body = local_queue(place.queue)
    path, guard = group(_QUEUES, place.name, "localqueues"), scene.guard("kueue-05", "localqueues")
    request = Request("POST", path, put(queue_body, "/spec/clusterQueue", leads_to), CLUSTER_ADMIN)
    text = f"create a queue in {place.name} that uses the quota of {leads_to}"
    return attack(f"kueue-05-localqueue-{slug}@{place.name}", "kueue-05", text, guard, request, twin_body=queue_body)


def local_queue(leads_to: str) -> Object:
    """A LocalQueue that leads to a ClusterQueue."""
    spec = {"clusterQueue": leads_to}
    return {"apiVersion": _QUEUES, "kind": "LocalQueue", "metadata": {"name": POD_NAME}, "spec": spec}


def _shares(scene: AttackScene) -> Iterator[Attack]:
    """Queues of other tenants, and of tenants whose names begin like this one's and that need not exist."""
    home = scene.home
    if home is None or not home.environment.has_queues:
        return
    tenant = home.tenant.tenant
    yield leading(scene, home, home.queue_of(f"{tenant}-2"), "like")
    yield leading(scene, home, home.queue_of(f"{tenant}x"), "longer")
    for place, other_place in scene.pairs():
        yield leading(scene, place, other_place.queue, f"share-of-{other_place.tenant.tenant}")
    if scene.unmanaged:
        queue = local_queue(f"{tenant}--x")
        at, twin_path = (group(_QUEUES, name, "localqueues") for name in (scene.unmanaged, home.name))
        text, guard = "use a tenant's quota from an unmanaged namespace", scene.guard("kueue-05", "localqueues")
        request = Request("POST", at, queue, CLUSTER_ADMIN)
        yield attack("kueue-05-unmanaged", "kueue-05", text, guard, request, twin_path=twin_path)


RULES: tuple[Rule, ...] = (
    Rule(
        id="kueue-05",
        title="a LocalQueue points to a ClusterQueue of its own tenant",
        why="a LocalQueue that points to another tenant's ClusterQueue spends that tenant's quota",
        fix="name a ClusterQueue that begins with the tenant's name and '--'",
        severity=Severity.CRITICAL,
        guards={
            # A LocalQueue leads to the tenant's own share, for any author.
            GuardSubject.QUEUES: f"""{IN_TENANTS_NAMESPACE}
        && object.spec.clusterQueue.startsWith({OF_TENANT} + {cel(vocabulary.SEPARATOR)})"""
        },
        attacks=(_shares,),
    ),
    Rule(
        id="kueue-11",
        title="a tenant's ClusterQueue admits work of the tenant's own namespaces only",
        why=(
            "an empty selector lets every namespace spend the quota, and a selector on another tenant's label that "
            "tenant"
        ),
        fix="set namespaceSelector to matchLabels: {tenancy.gpu/tenant: <the tenant>}",
    ),
    Rule(
        id="kueue-12",
        title="a member of a cohort sets lendingLimit for every resource",
        why="without lendingLimit all idle quota is lent, to every member of the cohort tree",
        fix="write lendingLimit beside every nominalQuota, 0 for quota that is never lent",
    ),
    Rule(
        id="kueue-13",
        title="a ClusterQueue that lends can reclaim what it lent",
        why="the default of reclaimWithinCohort is Never: the lender waits for its own guarantee",
        fix="set preemption.reclaimWithinCohort to Any",
    ),
    Rule(
        id="kueue-14",
        title="Kueue also manages work that names no queue, and counts GPUs",
        why=(
            "work without a queue name, or with resources that are not counted, would run at once on GPUs of other "
            "tenants"
        ),
        fix="set manageJobsWithoutQueueName to true, and take nvidia.com out of resources.excludeResourcePrefixes",
    ),
    Rule(
        id="kueue-15",
        title="Kueue's objects use its current API version, v1beta2",
        why=(
            "Kueue 0.19 serves no v1alpha1 and Kueue 0.20 no v1beta1, so the API server refuses the object; "
            "with v1beta2 "
            "the older fields spec.cohort, spec.parent and admissionChecks are dropped without an error"
        ),
        fix=(
            "set apiVersion to kueue.x-k8s.io/v1beta2, cohort of a ClusterQueue to cohortName, and parent of a "
            "Cohort to "
            "parentName"
        ),
    ),
    Rule(
        id="kueue-16",
        title="the nominal quotas of all queues for a flavor do not exceed what its nodes have",
        why="quota above the supply cannot be met when all tenants use theirs",
        fix="lower nominalQuota, or raise the limits of the pool",
    ),
    Rule(
        id="kueue-17",
        title="a LocalQueue points to an existing ClusterQueue that admits its namespace",
        why="otherwise the namespace's work waits for ever",
        fix="name a ClusterQueue whose namespaceSelector matches the namespace",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="kueue-18",
        title="a ClusterQueue uses existing ResourceFlavors, with labels that nodes have",
        why="otherwise its work waits for nodes that never come",
        fix="make the ResourceFlavor, with nodeLabels of a pool",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="kueue-19",
        title="with fair sharing, no ClusterQueue sets borrowWithinCohort",
        why="with fair sharing the shares decide what is preempted: Kueue accepts the field and ignores it",
        fix="drop borrowWithinCohort, or fairSharing from Kueue's configuration",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="kueue-20",
        title="every tenant namespace has a LocalQueue named default",
        why="work that names no queue uses it; without it such work runs uncounted",
        fix="make a LocalQueue named default, or set manageJobsWithoutQueueName to true",
    ),
    Rule(
        id="kueue-21",
        title="if Kueue converts one GPU resource for fair sharing, it converts every slice that queues offer",
        why="a slice without a conversion counts as 0 in a fair share",
        fix="add an input for each nvidia.com/mig-… under resources.transformations",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="kueue-22",
        title="every member of a cohort is a ClusterQueue of a declared tenant",
        why="an undeclared member borrows what the others leave idle",
        fix="take the ClusterQueue out of the cohort, or select the namespaces of a tenant",
    ),
    Rule(
        id="kueue-23",
        title="an admission policy limits the priority classes that a tenant's work may use",
        why=(
            "without one, any user may name any class: the highest is admitted first everywhere and evicts others' work"
        ),
        fix="bind an admission policy that compares kueue.x-k8s.io/priority-class and priorityClassName with a list",
    ),
    Rule(
        id="kueue-24",
        title="in a namespace with a queue, a default, a quota or an admission policy ensures CPU and memory requests",
        why="the queue counts a container without requests as using nothing, and it uses capacity guaranteed to others",
        fix="give a LimitRange defaults of cpu and memory, or require requests by an admission policy",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="kueue-31",
        title="Kueue counts the GPUs of a job until it ends, and compares final shares alone before an eviction",
        why=(
            "with Kueue's defaults a restarted JobSet runs on GPUs that are not counted and cannot be evicted, "
            "and jobs of "
            "two tenants can evict each other without end"
        ),
        fix=(
            "set featureGates.ReclaimablePods to false, and fairSharing.preemptionStrategies to "
            "LessThanOrEqualToFinalShare alone"
        ),
        advises=True,
    ),
    Rule(
        id="kueue-33",
        title="a Deployment that waits for the queue has a progress deadline of more than ten minutes",
        why=(
            "after ten minutes, the default, Kubernetes reports a Deployment that only waits as failed: Helm, "
            "Argo CD and "
            "Flux then stop the release or roll it back"
        ),
        fix="set spec.progressDeadlineSeconds above the longest wait that is acceptable, such as 86400 for a day",
        severity=Severity.MEDIUM,
        advises=True,
    ),
)

CHART = "kueue"
CONFIGURATION = "kueue-manager-config"
"""Name of the ConfigMap that the chart makes from its values."""
TEXT = "controller_manager_config.yaml"
"""Its key."""
_GPUS = (gpus.GPU, "nvidia.com/mig-")
GATES: Mapping[str, bool] = {"ReclaimablePods": False}
"""Feature gates. Kueue counts a pod that has ended as returned, whatever its job makes afterwards: a JobSet that
restarts, a child Job that is made anew and a Job with more parallelism than completions run on GPUs that it does not
count (v0.19.2 `job_controller.go`, `jobset_controller.go`: ReclaimablePods). Its webhook refuses a lower number
(`workload_webhook.go`: validateReclaimablePodsUpdate), and the refusal ends the reconciliation before the eviction
(`jobframework/reconciler.go`, steps 4 and 6): such work cannot be reclaimed, held or drained. Without the gate all
pods of a job are counted until the job ends."""
PREEMPTION = ("LessThanOrEqualToFinalShare",)
"""Strategies of preemption between tenants. With LessThanInitialShare too, a job whose share after its start is larger
than that of its victim may evict it, and the victim evicts that job in turn: six jobs of two tenants, two of them with
`job-min-parallelism`, evicted each other 50 times in 40 s. With this one alone the evicting tenant's share is at most
that of the evicted one after each eviction, so evictions end."""


def _tenant(item: Object) -> str | None:
    return get_path(item, "metadata", "labels", vocabulary.TENANT)


def _cluster_queue(item: Object) -> Given:
    spec, tenant = item.get("spec"), _tenant(item)
    selector = get_path(spec, "namespaceSelector")
    # An absent selector matches no namespace.
    if selector is not None and not _selects_own_namespaces(selector, tenant):
        whose = f" of tenant {tenant}" if tenant else ""
        yield "kueue-11", f"namespaceSelector {plain_value(selector)}{whose}"
    if not (cohort := cohort_of(item)):
        return
    yield from _unlimited(spec)
    reclaim = get_path(spec, "preemption", "reclaimWithinCohort")
    if reclaim in (None, "Never") and any(_lends(quota.lending) for quota in stored_quotas(spec)):
        yield "kueue-13", f"reclaimWithinCohort {reclaim or 'not set'} of a lender in {cohort}"


def cohort_of(item: Object) -> Any:
    """The Cohort that a ClusterQueue or a Cohort is in; v1beta1 has `cohort`, v1alpha1 of a Cohort `parent`."""
    names = ("cohortName", "cohort") if item.get("kind") == "ClusterQueue" else ("parentName", "parent")
    return next((value for name in names if (value := get_path(item, "spec", name))), None)


def _lends(limit: Any) -> bool:
    """Whether quota is lent under a lendingLimit: without a limit all of it is, with an unknown limit it may be."""
    return limit in (None, UNKNOWN) or bool(parse_or_zero(limit))


def _selects_own_namespaces(selector: Any, tenant: str | None) -> bool:
    if tenant is None:
        # A queue of no tenant: its selector must not match all namespaces.
        return bool(get_path(selector, "matchLabels") or get_path(selector, "matchExpressions"))
    return get_path(selector, "matchLabels", vocabulary.TENANT) == tenant


def _cohort(item: Object) -> Given:
    if cohort_of(item):
        yield from _unlimited(item.get("spec"))


def _unlimited(spec: Any) -> Given:
    lent = [f"{quota.resource} of {quota.flavor}" for quota in stored_quotas(spec) if quota.lending is None]
    if lent:
        yield "kueue-12", f"no lendingLimit for {', '.join(lent)}"


def shares_taken(items: Iterable[Object], homes: Mapping[str, str]) -> Iterator[tuple[Object, str]]:
    """kueue-05 on LocalQueues in namespaces of no tenant: the queue, and whose share it names.

    `homes` are the namespaces that are known to be a tenant's, with their tenants.
    """
    tenants = set(homes.values())
    for item in items:
        space = str(get_path(item, "metadata", "namespace"))
        if item.get("kind") != "LocalQueue" or _tenant(item) or space in homes:
            continue
        share = str(get_path(item, "spec", "clusterQueue"))
        owner, separator, _ = share.partition(vocabulary.SEPARATOR)
        # The file of a namespace may be elsewhere: its name then says whose it is.
        if separator and owner in tenants and space.partition(vocabulary.SEPARATOR)[0] != owner:
            yield item, f"clusterQueue {share} of tenant {owner}, from namespace {space}"


_PROGRESS = 600
"""Seconds: a Deployment's default of progressDeadlineSeconds, which runs while its pods wait (kueue 6334, PR 15354)."""


def waiting_deployment(item: Object) -> Given:
    """kueue-33."""
    deadline = get_path(item, "spec", "progressDeadlineSeconds")
    if (
        get_path(item, "metadata", "labels", QUEUE_NAME)
        and parse_or_zero(deadline) <= _PROGRESS
        and deadline != UNKNOWN
    ):
        value = f"{_PROGRESS}, the default," if deadline is None else deadline
        yield "kueue-33", f"progressDeadlineSeconds {value} of a Deployment in a queue"


def _config_map(item: Object) -> Given:
    data = item.get("data")
    if get_path(item, "metadata", "name") == CONFIGURATION and data:
        yield from of_configuration(get_path(data, TEXT))


def _release(item: Object) -> Given:
    chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
    if chart == CHART or chart.startswith(f"{CHART}-0"):
        text = get_path(item, "values", "managerConfig", "controllerManagerConfigYaml")
        if text is not None or not item.get("valueYamlFiles"):
            gates = as_list(get_path(item, "values", "controllerManager", "featureGates"))
            yield from of_configuration(
                text, {str(get_path(gate, "name")): get_path(gate, "enabled") for gate in gates}
            )


def of_configuration(text: Any, arguments: Mapping[str, Any] | None = None) -> Given:
    """kueue-14 and kueue-31 on Kueue's configuration; `arguments` are feature gates of its command line, which replace
    those of the configuration."""
    if text == UNKNOWN:
        yield "kueue-14", f"a configuration {UNKNOWN}"
        return
    try:
        configuration = yaml.safe_load(text) if isinstance(text, str) else text
    except yaml.YAMLError:
        configuration = None
    managed = get_path(configuration, "manageJobsWithoutQueueName")
    if managed is not True:
        yield "kueue-14", f"manageJobsWithoutQueueName {_value_text(managed)}"
    left_out = as_list(get_path(configuration, "resources", "excludeResourcePrefixes"))
    if uncounted_names := [prefix for prefix in map(str, left_out) if any(name.startswith(prefix) for name in _GPUS)]:
        yield "kueue-14", f"excludeResourcePrefixes {', '.join(uncounted_names)}"
    for gate, expected_value in GATES.items():
        if (value := get_path(arguments or get_path(configuration, "featureGates"), gate)) not in (
            expected_value,
            UNKNOWN,
        ):
            yield "kueue-31", f"featureGates.{gate} {_value_text(value)}"
    if (sharing := get_path(configuration, "fairSharing")) is not None:
        strategies = get_path(sharing, "preemptionStrategies")
        if strategies != UNKNOWN and tuple(as_list(strategies)) != PREEMPTION:
            yield "kueue-31", f"preemptionStrategies {', '.join(map(str, as_list(strategies))) or 'not set'}"


def _value_text(value: Any) -> str:
    return "not set" if value is None else str(value).lower()


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "ConfigMap": _config_map,
    "Release": _release,
}
