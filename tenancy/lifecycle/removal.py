"""A tenant's last stage on the cluster: its work ends, its namespaces are removed, and finalizers that block are named.

In this order: access bindings and identities (by the engine), work, namespaces with the isolation resources in them,
queues (by the engine). The namespace controller removes isolation resources last: it ends pods before anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.api import NOT_FOUND, Api, path_of
from tenancy.cluster.discovery import ResourceKind, namespaced_kinds
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API as QUEUES

PATIENCE = 300
"""Seconds that work has to end, and a namespace to be removed. Kueue needs about a minute after an outage."""
DELETION_GRACE = 5
"""Seconds that the namespace controller waits before it removes a deleted namespace's content:
namespaceDeletionGracePeriod of kubernetes pkg/controller/namespace. A report before that would be empty."""
PAUSE = 1.0
MAX_LEASE_AGE = 120.0
"""Maximum age in seconds of the lease of a running controller; controllers renew it every few seconds."""
WORK = (
    ("batch/v1", "CronJob"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
)
"""Owners before the objects that they create: else they create them again."""
ACCESS_BINDINGS = (("rbac.authorization.k8s.io/v1", "RoleBinding"), ("v1", "ServiceAccount"))
"""Kinds that give people access or pods an identity: they are removed before isolation resources."""
KUEUE = "Kueue"
MAX_REPORTED_OBJECTS = 20
"""Maximum number of objects in a report; a finalizer that blocks one usually blocks all of a kind."""


class RemovalTimeout(Exception):
    """An object was not removed in time; the message names the finalizers that block it, and the remedy."""


@dataclass(frozen=True, slots=True)
class FinalizerOwner:
    """The controller that removes a finalizer, and whether it runs; None: unknown."""

    name: str
    runs: bool | None

    def __str__(self) -> str:
        state = {True: "runs", False: "does not run", None: "whether it runs is unknown"}[self.runs]
        return f"{self.name}, which {state}" if self.runs is not None else f"{self.name}; {state}"


@dataclass(frozen=True, slots=True)
class BlockedObject:
    """An object that still exists, and the finalizers that block its removal."""

    kind: ResourceKind
    namespace: str
    name: str
    finalizers: tuple[str, ...]

    @property
    def command(self) -> str:
        """Command that removes its finalizers by hand."""
        group = f".{self.kind.group}" if self.kind.group else ""
        return (
            f"kubectl patch {self.kind.plural}{group} {self.name} -n {self.namespace} --type merge "
            """-p '{"metadata":{"finalizers":null}}'"""
        )


def skipped_hold(api: Api, spaces: Sequence[str]) -> list[str]:
    """Those of these namespaces that exist and skipped the former stages: their users still work."""
    metadata_by_name = {item["metadata"]["name"]: item["metadata"] for item in api.items("/api/v1/namespaces")}
    return [
        name
        for name in spaces
        if name in metadata_by_name
        and "deletionTimestamp" not in metadata_by_name[name]
        # One that was given back after its tenant left is no longer in use by it.
        and vocabulary.TENANT in (metadata_by_name[name].get("labels") or {})
        and vocabulary.LEAVING not in (metadata_by_name[name].get("annotations") or {})
    ]


def require_removable_bindings(api: Api, bindings: Sequence[Object]) -> None:
    """RemovalTimeout if one of these access bindings has a finalizer: after its deletion it would still give access
    until the finalizer is removed, and the engine waits ten minutes for it, whatever its timeouts."""
    answers = {path_of(binding): api.request("GET", path_of(binding)) for binding in bindings}
    finalizers = {path: answer.body["metadata"].get("finalizers") for path, answer in answers.items() if answer.ok}
    if not any(finalizers.values()):
        return
    kinds = {(kind.version, kind.kind): kind for kind in namespaced_kinds(api)[0]}
    blocked = [
        BlockedObject(
            kinds[binding["apiVersion"], binding["kind"]],
            metadata["namespace"],
            metadata["name"],
            tuple(binding_finalizers),
        )
        for binding in bindings
        if (binding_finalizers := finalizers.get(path_of(binding))) and (metadata := binding["metadata"])
    ]
    spaces = ", ".join(sorted({blocked_object.namespace for blocked_object in blocked}))
    headline = f"given {spaces}, whose access bindings cannot be removed; rule: access ends before anything else"
    raise RemovalTimeout("\n".join([headline, *_blocked_lines(blocked), *_remedy_lines(FinalizerOwners(api), blocked)]))


def mark_left(api: Api, spaces: Sequence[str]) -> None:
    """Annotate namespaces that stay after their tenant has left: its file may be removed, and the next run does not
    report them (ns-07)."""
    for name in spaces:
        patch = {"metadata": {"annotations": {vocabulary.LEAVING: vocabulary.LEFT}}}
        answer = api.request("PATCH", f"/api/v1/namespaces/{name}", patch, content_type="application/merge-patch+json")
        if not answer.ok and answer.status != NOT_FOUND:
            raise RemovalTimeout(f"namespace {name} cannot be marked as left: {answer.status} {answer.message}")


def end_and_remove(
    api: Api, spaces: Sequence[str], queues: Sequence[str], patience: float, say: Callable[[str], None]
) -> None:
    """End the work of these namespaces and remove them; RemovalTimeout if either takes longer than `patience` seconds.

    Safe to repeat at any time: it continues from there.
    """
    _drain(api, queues)
    present = [name for name in spaces if _exists(api, name)]
    if not present:
        return
    open_ones = [name for name in present if not _is_terminating(api, name)]
    for name in open_ones:
        _end_work(api, name)
    _await(
        api,
        lambda: [name for name in open_ones if _pods(api, name)],
        patience,
        f"its work is ending in {', '.join(open_ones)}",
        "work",
        say,
    )
    for name in present:
        answer = api.request("DELETE", f"/api/v1/namespaces/{name}")
        if not answer.ok and answer.status not in {NOT_FOUND, 409}:
            raise RemovalTimeout(f"namespace {name} cannot be removed: {answer.status} {answer.message}")
    _await(
        api,
        lambda: [name for name in present if _exists(api, name)],
        patience + DELETION_GRACE,
        f"removing {', '.join(present)}",
        "namespace",
        say,
    )


def _drain(api: Api, queues: Sequence[str]) -> None:
    """Hold these ClusterQueues, and evict their running work."""
    for name in queues:
        path = f"{collection(QUEUES, 'ClusterQueue')}/{name}"
        patch = {"spec": {"stopPolicy": "HoldAndDrain"}}
        # Without Kueue its webhook refuses this; the namespaces are removed all the same, or the report names Kueue.
        api.request("PATCH", path, patch, content_type="application/merge-patch+json")


def _exists(api: Api, name: str) -> bool:
    return api.request("GET", f"/api/v1/namespaces/{name}").status != NOT_FOUND


def _is_terminating(api: Api, name: str) -> bool:
    answer = api.request("GET", f"/api/v1/namespaces/{name}")
    return answer.ok and "deletionTimestamp" in answer.body["metadata"]


def _end_work(api: Api, space: str) -> None:
    frameworks = [(f"{f.group}/{f.version}", f.kind) for f in FRAMEWORKS.values()]
    for version, kind in (*frameworks, *WORK):
        path = collection(version, kind, space)
        for item in api.items(path, absent=True):
            api.request("DELETE", f"{path}/{item['metadata']['name']}?propagationPolicy=Background")


def _pods(api: Api, space: str) -> list[Any]:
    ended = {"Succeeded", "Failed"}
    return [p for p in api.items(collection("v1", "Pod", space)) if p.get("status", {}).get("phase") not in ended]


def _await(
    api: Api,
    remaining: Callable[[], list[str]],
    patience: float,
    progress_message: str,
    subject: str,
    say: Callable[[str], None],
) -> None:
    deadline, is_announced = time.monotonic() + patience, False
    while names := remaining():
        if time.monotonic() > deadline:
            raise RemovalTimeout(report(api, names, patience, subject))
        if not is_announced:
            say(progress_message)
            is_announced = True
        time.sleep(PAUSE)


# Blocking finalizers


def report(api: Api, spaces: Sequence[str], patience: float, subject: str = "namespace") -> str:
    """Finalizers that block these namespaces, the controllers that should remove them, and the remedy."""
    kinds, silent = namespaced_kinds(api)
    headline = f"given {', '.join(spaces)}, whose {subject} still exists after {patience:.0f} s"
    lines = [f"{headline}; rule: a removed tenant leaves nothing running"]
    all_blocked: list[BlockedObject] = []
    for space in spaces:
        blocked = sorted(_blocked_objects(api, kinds, space), key=lambda h: (not h.finalizers, h.kind.kind, h.name))
        lines += _blocked_lines(blocked[:MAX_REPORTED_OBJECTS])
        if more := len(blocked) - MAX_REPORTED_OBJECTS:
            lines += [f"  and {more} more in {space}"] if more > 0 else []
        all_blocked += blocked
        lines += [f"  {space}: {text}" for text in _conditions(api, space)]
    lines += [f"  {version} does not answer: a namespace is removed when all kinds can be listed" for version in silent]
    return "\n".join([*lines, *_remedy_lines(FinalizerOwners(api), all_blocked)])


def _blocked_lines(blocked: Iterable[BlockedObject]) -> Iterator[str]:
    for entry in blocked:
        finalizers = ", ".join(entry.finalizers) or "no finalizer: its controller ends it"
        yield f"  {entry.kind.kind} {entry.namespace}/{entry.name} is blocked by {finalizers}"


def _remedy_lines(holders: FinalizerOwners, blocked: Sequence[BlockedObject]) -> Iterator[str]:
    """The controllers that remove the finalizers, and what to do."""
    controllers = {finalizer: holders.owner_of(finalizer) for entry in blocked for finalizer in entry.finalizers}
    yield from (f"  {finalizer} is removed by {holder}" for finalizer, holder in sorted(controllers.items()))
    stopped_controllers = holders.blocking_webhooks or sorted(
        {holder.name for holder in controllers.values() if holder.runs is False}
    )
    remedy = (
        f"start {' and '.join(stopped_controllers)} again" if stopped_controllers else "resolve what is named above"
    )
    yield f"change: {remedy}, and run this again: it continues from here"
    if removable := [entry for entry in blocked if entry.finalizers]:
        yield f"last resort, for each of them, which skips the controller's own cleanup: {removable[0].command}"


def _blocked_objects(api: Api, kinds: Sequence[ResourceKind], space: str) -> Iterator[BlockedObject]:
    """Objects of a namespace that are being deleted and still exist, and pods. Other objects block nothing yet."""
    for kind in kinds:
        if kind.kind == "Event" or not {"create", "delete"} <= set(kind.verbs):
            continue
        answer = api.request("GET", kind.path(space))
        for item in (answer.body.get("items") or ()) if answer.ok else ():
            metadata = item["metadata"]
            if kind.kind == "Pod" or "deletionTimestamp" in metadata:
                yield BlockedObject(kind, space, metadata["name"], tuple(metadata.get("finalizers") or ()))


def _conditions(api: Api, space: str) -> Iterator[str]:
    """Failures that the namespace controller reports."""
    answer = api.request("GET", f"/api/v1/namespaces/{space}")
    # It may be removed meanwhile: the status of a refusal is a string.
    for condition in (answer.body.get("status") or {}).get("conditions") or () if answer.ok else ():
        if condition["status"] == "True" and condition["type"].endswith("Failure"):
            yield condition["message"]


_OWNERS: Mapping[str, str] = {
    "batch.kubernetes.io/job-tracking": "the job controller",
    "foregroundDeletion": "the garbage collector",
    "kubernetes.io/pvc-protection": "the controller of volume claims, once no pod uses it",
    "orphan": "the garbage collector",
    "resource.kubernetes.io/delete-protection": "the controller of device claims, once no pod uses it",
    "service.kubernetes.io/load-balancer-cleanup": "the load balancers' controller",
    "service.k8s.aws/resources": "AWS Load Balancer Controller",
    "elbv2.k8s.aws/resources": "AWS Load Balancer Controller",
}
"""Finalizers of Kubernetes' own controllers and of those that an environment installs."""
_OF_MANAGER = ("the garbage collector", "the job controller", "the controller of ")


class FinalizerOwners:
    """The controllers that remove finalizers on this cluster, looked up once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kueue = kueue_runs(api)
        self._manager = _renews(api, "kube-system", "kube-controller-manager")

    @property
    def blocking_webhooks(self) -> list[str]:
        """Controllers whose webhook refuses other controllers' changes, even where none of their own finalizers
        blocks."""
        return [KUEUE] if self._kueue is False else []

    def owner_of(self, finalizer: str) -> FinalizerOwner:
        """The program that removes a finalizer, and whether it runs."""
        if finalizer.startswith("kueue.x-k8s.io/"):
            return FinalizerOwner(KUEUE, self._kueue)
        owner = _OWNERS.get(finalizer)
        if owner and owner.startswith(_OF_MANAGER):
            if self.blocking_webhooks:
                return FinalizerOwner(f"{owner}, asking the webhook of {KUEUE}", False)
            return FinalizerOwner(owner, self._manager)
        domain = finalizer.partition("/")[0]
        return FinalizerOwner(owner or f"the controller of {domain}", None)


def kueue_runs(api: Api) -> bool | None:
    """Whether Kueue's webhook answers; None on a cluster without its kinds."""
    if not api.request("GET", f"/apis/{QUEUES}").ok:
        return None
    probe = {
        "apiVersion": QUEUES,
        "kind": "ResourceFlavor",
        "metadata": {"name": "tenancy-does-kueue-answer"},
        "spec": {},
    }
    answer = api.request("POST", collection(QUEUES, "ResourceFlavor") + "?dryRun=All", probe)
    return not (answer.status >= 500 and "failed calling webhook" in answer.message)


def _renews(api: Api, namespace: str, name: str) -> bool | None:
    """Whether a controller renews its lease; None without one."""
    import datetime as dt

    answer = api.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    renewed = (answer.body.get("spec") or {}).get("renewTime") if answer.ok else None
    if not renewed:
        return None
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(renewed)
    return age.total_seconds() < MAX_LEASE_AGE
