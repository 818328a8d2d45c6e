"""A tenant's last stage on the cluster: its work ends, then its namespaces go, and what holds one is named.

In this order: doors and identities (the engine's), work, namespaces with their walls in them, queues (the engine's).
The walls stand until the namespace controller takes them, which ends pods before anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.live.api import NOT_FOUND, Api, collection, path_of
from tenancy.live.discovery import Kind, namespaced
from tenancy.plan.model import Object
from tenancy.plan.queues import API as QUEUES

PATIENCE = 300
"""Seconds that work has to end, and a namespace to go. Kueue back after an outage takes a minute or so."""
GRACE = 5
"""Seconds that the namespace controller leaves a namespace alone which is told to go: namespaceDeletionGracePeriod of
kubernetes pkg/controller/namespace. Before that nothing in it holds it, and a report would name nothing."""
PAUSE = 1.0
FRESH = 120.0
"""Seconds since a controller renewed its lease within which it runs; they renew every few seconds."""
WORK = (
    ("batch/v1", "CronJob"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
)
"""What makes pods before what it makes: else it makes them anew."""
KUEUE = "Kueue"
SHOWN = 20
"""Objects of a report; who holds one usually holds all of a kind."""


class Stuck(Exception):
    """Something did not go in time; the message says what holds it, and the way out."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who takes a finalizer off, and whether it runs; None: nobody here can tell."""

    name: str
    runs: bool | None

    def __str__(self) -> str:
        said = {True: "runs", False: "does not run", None: "nobody here can say whether it runs"}[self.runs]
        return f"{self.name}, which {said}" if self.runs is not None else f"{self.name}; {said}"


@dataclass(frozen=True, slots=True)
class Held:
    """An object that is there, and what keeps it."""

    kind: Kind
    namespace: str
    name: str
    finalizers: tuple[str, ...]

    @property
    def command(self) -> str:
        """What takes its finalizers off by hand."""
        group = f".{self.kind.group}" if self.kind.group else ""
        return (
            f"kubectl patch {self.kind.plural}{group} {self.name} -n {self.namespace} --type merge "
            """-p '{"metadata":{"finalizers":null}}'"""
        )


def never_held(api: Api, spaces: Sequence[str]) -> list[str]:
    """Those of these namespaces that are there and were on no former stage: their people still work."""
    there = {item["metadata"]["name"]: item["metadata"] for item in api.items("/api/v1/namespaces")}
    return [
        name
        for name in spaces
        if name in there
        and "deletionTimestamp" not in there[name]
        and words.LEAVING not in (there[name].get("annotations") or {})
    ]


def doors_held(api: Api, doors: Sequence[Object]) -> None:
    """Stuck if one of these objects has a finalizer: told to go it would let people in until somebody takes that off,
    and the engine waits for it for ten minutes, whatever it is asked."""
    found = {path_of(door): api.request("GET", path_of(door)) for door in doors}
    marks = {path: answer.body["metadata"].get("finalizers") for path, answer in found.items() if answer.ok}
    if not any(marks.values()):
        return
    kinds = {(kind.version, kind.kind): kind for kind in namespaced(api)[0]}
    held = [
        Held(kinds[door["apiVersion"], door["kind"]], metadata["namespace"], metadata["name"], tuple(marked))
        for door in doors
        if (marked := marks.get(path_of(door))) and (metadata := door["metadata"])
    ]
    spaces = ", ".join(sorted({each.namespace for each in held}))
    given = f"given {spaces}, whose doors something holds; rule: doors shut before anything else ends"
    raise Stuck("\n".join([given, *_said(held), *_way_out(Holders(api), held)]))


def take_out(
    api: Api, spaces: Sequence[str], queues: Sequence[str], patience: float, say: Callable[[str], None]
) -> None:
    """End the work of these namespaces and remove them; Stuck if that takes longer than `patience` seconds each time.

    May be asked again at any time: it goes on from there.
    """
    _drain(api, queues)
    present = [name for name in spaces if _is_there(api, name)]
    if not present:
        return
    open_ones = [name for name in present if not _is_going(api, name)]
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
            raise Stuck(f"namespace {name} cannot be removed: {answer.status} {answer.message}")
    _await(
        api,
        lambda: [name for name in present if _is_there(api, name)],
        patience + GRACE,
        f"removing {', '.join(present)}",
        "namespace",
        say,
    )


def _drain(api: Api, queues: Sequence[str]) -> None:
    """Let nothing of these ClusterQueues start, and evict what runs."""
    for name in queues:
        path = f"{collection(QUEUES, 'ClusterQueue')}/{name}"
        patch = {"spec": {"stopPolicy": "HoldAndDrain"}}
        # Without Kueue its webhook refuses this; the namespaces go all the same, or the report says that it is down.
        api.request("PATCH", path, patch, content_type="application/merge-patch+json")


def _is_there(api: Api, name: str) -> bool:
    return api.request("GET", f"/api/v1/namespaces/{name}").status != NOT_FOUND


def _is_going(api: Api, name: str) -> bool:
    answer = api.request("GET", f"/api/v1/namespaces/{name}")
    return answer.ok and "deletionTimestamp" in answer.body["metadata"]


def _end_work(api: Api, space: str) -> None:
    frameworks = [(f"{f.group}/{f.version}", f.kind) for f in FRAMEWORKS.values()]
    for version, kind in (*frameworks, *WORK):
        where = collection(version, kind, space)
        for item in api.items(where, absent=True):
            api.request("DELETE", f"{where}/{item['metadata']['name']}?propagationPolicy=Background")


def _pods(api: Api, space: str) -> list[Any]:
    ended = {"Succeeded", "Failed"}
    return [p for p in api.items(collection("v1", "Pod", space)) if p.get("status", {}).get("phase") not in ended]


def _await(
    api: Api, left: Callable[[], list[str]], patience: float, what: str, of: str, say: Callable[[str], None]
) -> None:
    deadline, said = time.monotonic() + patience, False
    while names := left():
        if time.monotonic() > deadline:
            raise Stuck(report(api, names, patience, of))
        if not said:
            say(what)
            said = True
        time.sleep(PAUSE)


# What holds


def report(api: Api, spaces: Sequence[str], patience: float, of: str = "namespace") -> str:
    """What holds these namespaces, who should let go of it, and the way out."""
    kinds, silent = namespaced(api)
    lines = [f"given {', '.join(spaces)}, whose {of} is still there after {patience:.0f} s; rule: what leaves is gone"]
    there: list[Held] = []
    for space in spaces:
        found = sorted(_held(api, kinds, space), key=lambda h: (not h.finalizers, h.kind.kind, h.name))
        lines += _said(found[:SHOWN])
        if more := len(found) - SHOWN:
            lines += [f"  and {more} more in {space}"] if more > 0 else []
        there += found
        lines += [f"  {space}: {text}" for text in _conditions(api, space)]
    lines += [f"  {version} does not answer: a namespace goes when every kind can be listed" for version in silent]
    return "\n".join([*lines, *_way_out(Holders(api), there)])


def _said(found: Iterable[Held]) -> Iterator[str]:
    for held in found:
        marks = ", ".join(held.finalizers) or "nothing: its controller ends it"
        yield f"  {held.kind.kind} {held.namespace}/{held.name} is held by {marks}"


def _way_out(holders: Holders, found: Sequence[Held]) -> Iterator[str]:
    """Who takes the finalizers off, and what to do."""
    controllers = {finalizer: holders.of(finalizer) for held in found for finalizer in held.finalizers}
    yield from (f"  {finalizer} is taken off by {holder}" for finalizer, holder in sorted(controllers.items()))
    down = holders.in_the_way or sorted({holder.name for holder in controllers.values() if holder.runs is False})
    first = f"start {' and '.join(down)} again" if down else "see to what is named above"
    yield f"change: {first}, and run this again: it goes on from here"
    if shown := [held for held in found if held.finalizers]:
        yield f"if nobody ever will, by hand, for each of them, knowing what it leaves undone: {shown[0].command}"


def _held(api: Api, kinds: Sequence[Kind], space: str) -> Iterator[Held]:
    """What of a namespace should be gone and is not. What nobody has begun to remove holds nothing yet."""
    for kind in kinds:
        if kind.kind == "Event" or not {"create", "delete"} <= set(kind.verbs):
            continue
        answer = api.request("GET", kind.path(space))
        for item in (answer.body.get("items") or ()) if answer.ok else ():
            metadata = item["metadata"]
            if kind.kind == "Pod" or "deletionTimestamp" in metadata:
                yield Held(kind, space, metadata["name"], tuple(metadata.get("finalizers") or ()))


def _conditions(api: Api, space: str) -> Iterator[str]:
    """What the namespace controller says of its own troubles."""
    answer = api.request("GET", f"/api/v1/namespaces/{space}")
    # It may have gone meanwhile: a refusal's own status is a word.
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


class Holders:
    """Who takes finalizers off on this cluster, asked once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kueue = kueue_runs(api)
        self._manager = _renews(api, "kube-system", "kube-controller-manager")

    @property
    def in_the_way(self) -> list[str]:
        """Whose webhook refuses what others would change: its own finalizers need not be among those that hold."""
        return [KUEUE] if self._kueue is False else []

    def of(self, finalizer: str) -> Holder:
        if finalizer.startswith("kueue.x-k8s.io/"):
            return Holder(KUEUE, self._kueue)
        owner = _OWNERS.get(finalizer)
        if owner and owner.startswith(_OF_MANAGER):
            if self.in_the_way:
                return Holder(f"{owner}, asking the webhook of {KUEUE}", False)
            return Holder(owner, self._manager)
        domain = finalizer.partition("/")[0]
        return Holder(owner or f"whoever writes finalizers of {domain}", None)


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
    return age.total_seconds() < FRESH
