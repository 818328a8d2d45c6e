"""Attacks on work that waits, and what stands behind Kueue's own webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from attack_lab import Cluster, Mutant, claimed, gaps, refused_by, removed, turned, without_controllers

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import COUNTED, DOMAIN, HELD, KUEUE, MANAGED, PARENT, QUEUE, RUN_TIME, URGENCY
from tenancy.cluster.api import Response, path_of
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import JSON_PATCH, MERGE, Impersonation, collection, group
from tenancy.planning.guards import BACKSTOPS
from tenancy.planning.kubernetes import quotas
from tenancy.planning.queueing.queue_names import API, queue_name
from tenancy.rules.attacks import ABSENT, attack, escaped, put
from tenancy.rules.availability import JOB_CONTROLLER
from tenancy.rules.queueing import OWNER
from tenancy.rules.scene import MISSING_OBJECT
from tenancy.rules.workloads import CLUSTER_ADMIN, workload
from tenancy.verify.attacks import Attack, AttackedNamespace, Request, Scene, differences
from tenancy.verify.verification import ask, run
from tests.waiting import until_clear

QUEUE_ITSELF = Impersonation(KUEUE, ("system:serviceaccounts", f"system:serviceaccounts:{vocabulary.QUEUE_NAMESPACE}"))

HOOKS = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
POD_HOOK = "mpod.kb.io"

# What was to be shown of each way past the queue (family K of the catalogue of bypasses), and the attacks that do.
WAYS: dict[str, Sequence[str]] = {
    "K1 work without a queue, or of a queue that is not there": ("kueue-01-pod-queue", "kueue-01-job-queue"),
    "K2 kinds that Kueue is not told of": (
        *("kueue-01-deployment-queue", "kueue-01-statefulset-queue", "kueue-03-deployment-own"),
        *("kueue-03-statefulset-own", "gpu-06-pod-unknown"),
    ),
    "K3 a forged owner": ("kueue-02-pod-owner", "kueue-02-job-owner", "kueue-02-cronjob-owner"),
    "K4 the queue's gate": ("kueue-03-job-queues", "update-ungate", "update-ungate-by-admin", "update-uncounted"),
    "K5 the queue's marks on a pod": (
        *("kueue-08-pod-parent", "update-unmanage", "update-unmanage-by-status", "update-parent"),
    ),
    "K6 started by hand": ("update-unsuspend", "kueue-04-job-managed-by"),
    "K7 another tenant's share": ("kueue-05-localqueue-share-of-performance@fraud--train", "rbac-queue-make-queue"),
    "K8 a foreign priority class": ("kueue-06-pod-unknown", "kueue-06-job-template", "sched-04-pod-system"),
    "K9 work that asks for nothing": ("behind-kueue-07",),
    "K10 the queue's own objects": (
        *("rbac-queue-admit", "rbac-queue-drop-workload", "rbac-queue-make-workload", "kueue-08-pod-prebuilt"),
    ),
    "K14 a queue's settings": ("rbac-queue-open-queue", "rbac-queue-drop-queue"),
    "K15 who waits in a whole share": ("rbac-queue-others-pending", "rbac-queue-list-shares"),
    "K16 a namespace that the queue leaves alone": (
        "ns-01-namespace-tenant@fraud--train",
        "ns-01-namespace-orphan@fraud--train",
        "ns-01-label-kueue",
    ),
}


@dataclass(frozen=True)
class WaitingWork:
    """Work that waits for a queue on hold."""

    cluster: Cluster
    place: AttackedNamespace
    gates: Sequence[Mapping[str, str]]
    """Scheduling gates of the pod."""

    def at(self, what: str) -> str:
        versions = {"jobs": "batch/v1", "deployments": "apps/v1", "statefulsets": "apps/v1"}
        version = versions.get(what.partition("/")[0], "v1")
        return group(version, self.place.name, what).replace("/apis/v1", "/api/v1")

    def _update(
        self,
        name: str,
        rule: str,
        what: str,
        good: Any,
        at: str,
        bad: Any,
        who: Impersonation | None,
        kind: str = MERGE,
    ) -> Attack:
        request = Request("PATCH", self.at(what), put(good, at, bad), who, kind)
        guard = self.cluster.scene.guard(rule, what.replace("/held", ""))
        return attack(f"update-{name}", rule, name, guard, request, twin_body=good)

    def _delete(self, name: str, rule: str, what: str, option: str, bad: Any, good: Any) -> Attack:
        request = Request("DELETE", self.at(what), {option: bad}, self.place.developer)
        guard = self.cluster.scene.guard(rule, what.replace("/held", ""), deleted=True)
        return attack(f"delete-{name}", rule, name, guard, request, twin_body={option: good})

    def _by_queue(self, name: str, rule: str, what: str, body: Any, kind: str = MERGE) -> Attack:
        """By an identity with every right; its twin by the queue."""
        request = Request("PATCH", self.at(what), body, CLUSTER_ADMIN, kind)
        guard = self.cluster.scene.guard(rule, what.replace("/held", ""))
        return attack(f"update-{name}-by-admin", rule, name, guard, request, twin_who=QUEUE_ITSELF)

    def _uncounted(self, off: list[Object]) -> Attack:
        """By the queue itself, as for a StatefulSet's former revision; its twin leaves the note of its admission."""
        request = Request("PATCH", self.at("pods/held"), off, QUEUE_ITSELF, JSON_PATCH)
        guard = self.cluster.scene.guard("kueue-03", "pods")
        sentence = "be let go by the queue without being counted"
        counted = put(off, "/0/path", f"/metadata/labels/{escaped(COUNTED)}")
        return attack("update-uncounted", "kueue-03", sentence, guard, request, twin_body=counted)

    def attacks(self) -> Iterator[Attack]:
        me = self.place.developer
        # A change that is none of the queue's, so that the twin is judged too.
        note = {"metadata": {"labels": {"note": "hello"}}}
        for number, gate in enumerate(self.gates):
            keep = [
                {"op": "add", "path": "/metadata/labels/note", "value": "hello"},
                {"op": "test", "path": f"/spec/schedulingGates/{number}", "value": gate},
            ]
            slug = "ungate" if gate["name"] == HELD else f"ungate-{number}"
            yield self._update(slug, "kueue-03", "pods/held", keep, "/1/op", "remove", me, JSON_PATCH)
            if gate["name"] == HELD:
                yield self._update(
                    f"{slug}-by-admin", "kueue-03", "pods/held", keep, "/1/op", "remove", CLUSTER_ADMIN, JSON_PATCH
                )
                yield self._uncounted(put(keep, "/1/op", "remove"))
            else:
                yield self._by_queue(slug, "kueue-03", "pods/held", put(keep, "/1/op", "remove"), JSON_PATCH)
        marked = put(note, f"/metadata/labels/{escaped(MANAGED)}", "true")
        at = f"/metadata/labels/{escaped(MANAGED)}"
        yield self._update("unmanage", "kueue-08", "pods/held", marked, at, None, me)
        yield self._update("unmanage-by-status", "kueue-08", "pods/held/status", marked, at, None, CLUSTER_ADMIN)
        both = {"metadata": {**marked["metadata"], "annotations": {MANAGED: "true"}}}
        yield self._update("unmanage-by-annotation", "kueue-08", "pods/held", both, at, None, me)
        note_patch = {"metadata": {"annotations": {"bank.example/note": "hello"}}}
        parent = f"/metadata/annotations/{escaped(PARENT)}"
        yield self._update("parent", "kueue-08", "pods/held", note_patch, parent, "deployment", me)
        owned = {
            **note_patch,
            "metadata": {**note_patch["metadata"], "ownerReferences": [{**OWNER, "controller": False}]},
        }
        controls = "/metadata/ownerReferences/0/controller"
        for what in ("pods/held", "jobs/held"):
            yield self._update(f"owner-{what[:3]}", "kueue-02", what, owned, controls, True, me)
        waits = {**note, "spec": {"suspend": True}}
        yield self._update("unsuspend", "kueue-04", "jobs/held", waits, "/spec/suspend", False, me)
        once = {**note, "spec": {"parallelism": 1}}
        yield self._update("parallelism", "kueue-28", "jobs/held", once, "/spec/parallelism", 2, me)
        yield self._by_queue("unsuspend", "kueue-04", "jobs/held", put(waits, "/spec/suspend", False))
        label = "/metadata/labels/"
        for what in ("pods/held", "jobs/held"):
            queue, urgency = (f"{label}{escaped(key)}" for key in (QUEUE, URGENCY))
            yield self._update(f"queue-{what[:3]}", "kueue-01", what, note, queue, "another-tenants", me)
            yield self._update(f"urgency-{what[:3]}", "kueue-06", what, note, urgency, "tenancy-tier-of-no-tenant", me)
        yield self._update(
            "group", "kueue-08", "pods/held", note, f"{label}{escaped(DOMAIN + 'pod-group-name')}", "a", me
        )
        timed = put(note, f"{label}{escaped(RUN_TIME)}", "60")
        for slug, bad in (("longer", str(4 * 86400)), ("endless", None)):
            yield self._update(slug, "kueue-10", "jobs/held", timed, f"{label}{escaped(RUN_TIME)}", bad, me)
        scale_patch = {"spec": {"replicas": 1}}
        for slug, what in (("none", "statefulsets/held"), ("scaled-to-none", "statefulsets/held/scale")):
            yield self._update(slug, "kueue-34", what, scale_patch, "/spec/replicas", 0, me)
        yield self._delete("orphan", "kueue-25", "jobs/held", "propagationPolicy", "Orphan", "Foreground")
        yield self._delete(
            "orphan-deployment", "kueue-25", "deployments/held", "propagationPolicy", "Orphan", "Foreground"
        )
        yield self._delete("as-the-server-does", "kueue-25", "jobs/held", "propagationPolicy", None, "Background")
        yield self._delete("orphan-as-before", "kueue-25", "jobs/held", "orphanDependents", True, False)


@pytest.fixture(scope="module")
def waiting_work(cluster: Cluster) -> Iterator[WaitingWork]:
    place = _home(cluster.scene)
    share = queue_name(place.tenant.tenant, place.tenant.tier_of(place.namespace))
    # Not the namespace's own queue: Kueue takes one on hold for none, and gives work without a name no queue.
    queue = group(API, None, "clusterqueues", share)

    def stop(policy: str) -> None:
        answer = cluster.api.request("PATCH", queue, {"spec": {"stopPolicy": policy}}, content_type=MERGE)
        assert answer.ok, answer.message
        until_clear(lambda: _active(cluster.api.request("GET", queue)) == (policy != "None"), f"the queue is {policy}")

    pod = put(place.pod(), "/metadata/name", "held")
    waiting_objects = [pod, *(workload(kind, pod) for kind in ("Job", "Deployment", "StatefulSet"))]
    stop("Hold")
    try:
        answers = [
            cluster.api.request("POST", collection(item["apiVersion"], item["kind"], place.name), item, place.developer)
            for item in waiting_objects
        ]
        assert [answer.message for answer in answers if not answer.ok] == []
        yield WaitingWork(cluster, place, _gates(answers[0]))
    finally:
        for item in waiting_objects:
            path = path_of(put(item, "/metadata/namespace", place.name))
            cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        stop("None")


def _active(answer: Response) -> bool:
    conditions = answer.body.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def test_work_that_waits_cannot_be_changed_into_work_that_does_not(cluster: Cluster, waiting_work: WaitingWork) -> None:
    assert gaps(cluster, list(waiting_work.attacks())) == []
    kinds = ("pods", "jobs", "deployments", "statefulsets")
    statuses = [cluster.api.request("GET", waiting_work.at(f"{what}/held")).status for what in kinds]
    assert statuses == [200, 200, 200, 200], "a deletion with options of its own is a dry run too"


@pytest.fixture(scope="module")
def changes(cluster: Cluster, waiting_work: WaitingWork) -> Cluster:
    return replace(cluster, attacks=tuple(waiting_work.attacks()))


@pytest.fixture(scope="module")
def mutant(changes: Cluster) -> Iterator[Mutant]:
    mutant = Mutant(changes)
    yield mutant
    mutant.without(frozenset())


CHANGING = (
    *("kueue-01", "kueue-02", "kueue-03", "kueue-04", "kueue-06", "kueue-08", "kueue-10", "kueue-25", "kueue-28"),
    "kueue-34",
)


@pytest.mark.parametrize("rule", CHANGING)
def test_without_a_rule_exactly_its_changes_of_waiting_work_get_through(
    changes: Cluster, mutant: Mutant, rule: str
) -> None:
    assert claimed(changes, rule) != set()
    with without_controllers(changes):
        sent_attacks = mutant.without({rule})
        assert turned(changes, sent_attacks) == claimed(changes, rule)


@pytest.fixture
def jobs_pod(cluster: Cluster, waiting_work: WaitingWork) -> Iterator[tuple[str, Object]]:
    """A pod as the job controller makes it, while no controller runs that would delete it: its path and metadata."""
    place = waiting_work.place
    job = cluster.api.request("GET", waiting_work.at("jobs/held")).body["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "held", "uid": job["uid"], "controller": True}
    labels = {"batch.kubernetes.io/controller-uid": job["uid"], "bank.example/group": "a"}
    pod = put(place.pod(), "/metadata", {"name": "of-job", "labels": labels, "ownerReferences": [owner]})
    # No node has it: the tests say when the pod gets a node.
    pod = put(pod, "/spec/nodeSelector", {"kubernetes.io/hostname": "node-that-is-missing"})
    with without_controllers(cluster):
        answer = cluster.api.request("POST", collection("v1", "Pod", place.name), pod, JOB_CONTROLLER)
        assert answer.ok, answer.message
        assert MANAGED not in answer.body["metadata"]["labels"], "the queue counts its job"
        path = f"{collection('v1', 'Pod', place.name)}/of-job"
        try:
            yield path, pod["metadata"]
        finally:
            cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0")


def _escapes(cluster: Cluster, place: AttackedNamespace, path: str, metadata: Object) -> Iterator[Attack]:
    guard = cluster.scene.guard("kueue-02", "pods")

    def patch(name: str, sentence: str, good: Object, at: str, bad: Any) -> Attack:
        body = {"metadata": {**good, "annotations": {"bank.example/note": "hello"}}}
        request = Request("PATCH", path, put(body, f"/metadata{at}", bad), place.developer, MERGE)
        return attack(f"escape-{name}", "kueue-02", sentence, guard, request, twin_body=body)

    for key, value in metadata["labels"].items():
        for what, bad in (("off", None), ("changed", "another")):
            at = f"/labels/{escaped(key)}"
            yield patch(f"{what}-{key}", "leave its job by a label", {"labels": {key: value}}, at, bad)
    (owner,) = metadata["ownerReferences"]
    owners = {"ownerReferences": [owner]}
    for field, bad in (("name", "not-there"), ("kind", "ReplicaSet"), ("uid", MISSING_OBJECT), ("controller", False)):
        sentence = f"belong to another owner by {field}"
        yield patch(f"owner-{field}", sentence, owners, f"/ownerReferences/0/{field}", bad)
    second = {"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": MISSING_OBJECT}
    yield patch("owner-beside", "outlive its job by a second owner", owners, "/ownerReferences/1", second)
    yield patch("owner-none", "belong to no owner", owners, "/ownerReferences/0", ABSENT)


def test_a_jobs_pod_does_not_leave_its_job(
    cluster: Cluster, waiting_work: WaitingWork, mutant: Mutant, jobs_pod: tuple[str, Object]
) -> None:
    """It would run on while the job makes another, without being counted or reclaimed."""
    mutant.without(frozenset())
    refused_by(cluster, "kueue-02", tuple(_escapes(cluster, waiting_work.place, *jobs_pod)))


def test_a_pod_that_runs_ends_within_ten_minutes_whichever_identity_deletes_it(
    cluster: Cluster, waiting_work: WaitingWork, mutant: Mutant, jobs_pod: tuple[str, Object]
) -> None:
    """One that never ran ends at once, whatever is asked."""
    mutant.without(frozenset())
    path, _ = jobs_pod
    bound = {"metadata": {"name": "of-job"}, "target": {"kind": "Node", "name": "node-that-is-missing"}}
    assert cluster.api.request("POST", f"{path}/binding", bound).ok
    guard, me = cluster.scene.guard("avail-01", "pods", deleted=True), waiting_work.place.developer
    request, sentence = Request("DELETE", path, {"gracePeriodSeconds": 601}, me), "keep its GPU for a year"
    in_body = attack("delete-grace", "avail-01", sentence, guard, request, twin_body={"gracePeriodSeconds": 600})
    request = Request("DELETE", f"{path}?gracePeriodSeconds=601", None, me)
    twin = f"{path}?gracePeriodSeconds=600"
    refused_by(
        cluster,
        "avail-01",
        (in_body, attack("delete-grace-query", "avail-01", sentence, guard, request, twin_path=twin)),
    )


def test_a_pod_on_a_node_is_not_forgotten_before_it_ends(
    cluster: Cluster, waiting_work: WaitingWork, mutant: Mutant, jobs_pod: tuple[str, Object]
) -> None:
    """Its quota and its share would be free while its containers run."""
    mutant.without(frozenset())
    path, _ = jobs_pod
    pods, me = path.rpartition("/")[0], waiting_work.place.developer
    answer = cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0&dryRun=All", None, me)
    assert answer.ok, f"one that has no node runs nowhere: {answer.message}"
    bound = {"metadata": {"name": "of-job"}, "target": {"kind": "Node", "name": "node-that-is-missing"}}
    assert cluster.api.request("POST", f"{path}/binding", bound).ok
    guard, sentence = cluster.scene.guard("avail-06", "pods", deleted=True), "free its GPU before its containers end"
    account = Impersonation(
        f"system:serviceaccount:{waiting_work.place.name}:default",
        ("system:masters", "system:serviceaccounts", f"system:serviceaccounts:{waiting_work.place.name}"),
    )
    attacks = []
    for slug, who in (("person", me), ("admin", CLUSTER_ADMIN), ("account", account)):
        request = Request("DELETE", path, {"gracePeriodSeconds": 0}, who)
        body = attack(f"at-once-{slug}", "avail-06", sentence, guard, request, twin_body={"gracePeriodSeconds": 1})
        request = Request("DELETE", f"{path}?gracePeriodSeconds=0", None, who)
        twin = f"{path}?gracePeriodSeconds=1"
        attacks += [body, attack(f"at-once-{slug}-query", "avail-06", sentence, guard, request, twin_path=twin)]
    group_path = f"{pods}?labelSelector=bank.example%2Fgroup%3Da&gracePeriodSeconds="
    request = Request("DELETE", f"{group_path}0", None, me)
    attacks.append(attack("at-once-all", "avail-06", sentence, guard, request, twin_path=f"{group_path}1"))
    request = Request("DELETE", path, {"gracePeriodSeconds": 0}, me)
    attacks.append(attack("at-once-platform", "avail-06", sentence, guard, request, twin_who=None))
    refused_by(cluster, "avail-06", attacks)


# What stands behind another control


@contextmanager
def _unhooked(cluster: Cluster) -> Iterator[None]:
    """Kueue changes no pod that is made, as if its webhook were not there."""
    path = path_of({**HOOKS, "metadata": {"name": "kueue-mutating-webhook-configuration"}})
    webhooks = cluster.api.request("GET", path).body["webhooks"]
    no_pod = {"matchLabels": {"no-pod.bank.example/has": "this"}}
    less = [{**webhook, "objectSelector": no_pod} if webhook["name"] == POD_HOOK else webhook for webhook in webhooks]
    assert less != webhooks

    def change(all_of_them: list[dict[str, Any]]) -> None:
        answer = cluster.api.request("PATCH", path, {"webhooks": all_of_them}, content_type=MERGE)
        assert answer.ok, answer.message

    change(less)
    try:
        yield
    finally:
        change(webhooks)
        place = _home(cluster.scene)
        pod_request = Request("POST", collection("v1", "Pod", place.name), place.pod(), place.developer)
        until_clear(lambda: not _gates(ask(cluster.api, pod_request)), "Kueue gates pods again")


def _gates(answer: Response) -> list[Mapping[str, str]]:
    return answer.body.get("spec", {}).get("schedulingGates", [])


def _home(scene: Scene) -> AttackedNamespace:
    assert scene.home
    return scene.home


def _backstop_probe(scene: Scene, rule: str) -> Attack:
    """An attack that reaches a rule once the control before it is removed."""
    place = _home(scene)
    pod, path, guard = place.pod(), collection("v1", "Pod", place.name), scene.guard(rule, "pods")
    name = f"behind-{rule}"
    if rule == "sched-02":
        request = Request("POST", path, put(pod, "/spec/nodeName", "node-1"), JOB_CONTROLLER)
        return attack(name, rule, "choose a node without the scheduler", guard, request, twin_body=pod)
    if rule == "kueue-09":
        queued_pod = put(pod, f"/metadata/labels/{escaped(QUEUE)}", vocabulary.DEFAULT_QUEUE)
        request = Request("POST", path, queued_pod, place.developer)
        return attack(name, rule, "start at once", guard, request, twin_who=JOB_CONTROLLER)
    at, little = "/spec/containers/0/resources", {"cpu": "1", "memory": "1Gi"}
    request = Request("POST", path, put(pod, at, ABSENT), place.developer)
    good = put(pod, at, {"requests": little, "limits": little})
    return attack(name, rule, "be counted as nothing", guard, request, twin_body=good)


@pytest.mark.parametrize("rule", [*BACKSTOPS, "sched-02"])
def test_behind_another_control_a_rule_refuses_by_itself(cluster: Cluster, mutant: Mutant, rule: str) -> None:
    """And without it what it refuses gets through, or as far as a third control: the quota counts what is asked for."""
    probe = _backstop_probe(cluster.scene, rule)
    alone = replace(cluster, attacks=(probe,))
    mutant.without(frozenset())
    without = Mutant(alone).without
    assert len(differences(probe.request.as_data(), probe.twin.as_data())) == 1
    with removed(cluster, "LimitRange", "limits") if rule == "kueue-07" else _unhooked(cluster):
        until_clear(lambda: [r.as_dict() for r in run(cluster.api, [probe]) if r.gap], f"{rule} refuses by itself")
        without({rule})
        try:
            (through,) = run(cluster.api, [probe], twins=False)
            assert through.denier == (deniers.quota(quotas.NAME) if rule == "kueue-07" else deniers.NONE)
        finally:
            without(frozenset())


@pytest.mark.parametrize("way", WAYS)
def test_every_way_past_the_queue_is_attacked(cluster: Cluster, waiting_work: WaitingWork, way: str) -> None:
    backstop_probes = [_backstop_probe(cluster.scene, rule) for rule in BACKSTOPS]
    attacked = {a.id for a in (*cluster.attacks, *waiting_work.attacks(), *backstop_probes) if not a.skipped}
    assert {*WAYS[way]} <= attacked
