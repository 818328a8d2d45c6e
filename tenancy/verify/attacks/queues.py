"""Attacks on rights over the queue: objects of Kueue that only Kueue and the platform write."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, Impersonation, group
from tenancy.planning.queueing.queue_names import API
from tenancy.rules.attacks import Attack, Request
from tenancy.rules.queues import local_queue
from tenancy.rules.scene import MISSING_OBJECT, POD_NAME
from tenancy.rules.workloads import all_kinds, work
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks.access import rbac_attack
from tenancy.verify.attacks.scene import AttackedNamespace, Scene


def queue_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks by a developer on the queues of its own and of other tenants."""
    home = scene.home
    if home is None or not home.environment.has_queues:
        return
    for attacker, victim in scene.pairs():
        who, suffix = attacker.developer, f"as-{attacker.tenant.tenant}@{victim.name}"
        for what in ("localqueues", "workloads"):
            victim_path, own_path = (group(API, place.name, what) for place in (victim, attacker))
            text = f"{attacker.tenant.tenant}'s developer: see the {what} of {victim.tenant.tenant}"
            yield rbac_attack(f"list-{what}-{suffix}", text, Request("GET", victim_path, None, who), twin_path=own_path)
    yield from _rights(home)


def _rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Objects of the queue that only Kueue and the platform write."""
    who, queue_name = place.developer, place.queue
    queues, works = (group(API, place.name, what) for what in ("localqueues", "workloads"))
    note = {"metadata": {"annotations": {"note": "hello"}}}
    stop = {"spec": {"stopPolicy": "None"}}
    status = {"status": {"conditions": []}}
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": place.pod()["spec"]}}]}
    own_workload: Object = {"apiVersion": API, "kind": "Workload", "metadata": {"name": POD_NAME}, "spec": spec}
    urgent: Object = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": POD_NAME}, "value": 9}
    for name, sentence, request in (
        ("make-queue", "make itself a queue", Request("POST", queues, local_queue(queue_name), who)),
        (
            "open-queue",
            "resume a queue that is on hold",
            Request("PATCH", f"{queues}/{vocabulary.DEFAULT_QUEUE}", stop, who, MERGE),
        ),
        ("drop-queue", "remove its queue", Request("DELETE", f"{queues}/{vocabulary.DEFAULT_QUEUE}", None, who)),
        ("make-workload", "create a Workload", Request("POST", works, own_workload, who)),
        ("admit", "admit its own work", Request("PATCH", f"{works}/{MISSING_OBJECT}/status", status, who, MERGE)),
        ("change-workload", "change a Workload", Request("PATCH", f"{works}/{MISSING_OBJECT}", note, who, MERGE)),
        ("drop-workload", "delete a Workload", Request("DELETE", f"{works}/{MISSING_OBJECT}", None, who)),
        ("list-shares", "list every tenant's quota", Request("GET", group(API, None, "clusterqueues"), None, who)),
        ("list-cohorts", "list the cohorts", Request("GET", group(API, None, "cohorts"), None, who)),
        (
            "widen-share",
            "raise its quota",
            Request("PATCH", group(API, None, "clusterqueues", queue_name), note, who, MERGE),
        ),
        (
            "make-urgency",
            "create a priority class for its work",
            Request("POST", group(API, None, "workloadpriorityclasses"), urgent, who),
        ),
        (
            "others-pending",
            "list the pending work of a ClusterQueue",
            Request(
                "GET",
                group("visibility.kueue.x-k8s.io/v1beta2", None, "clusterqueues", queue_name, "pendingworkloads"),
                None,
                who,
            ),
        ),
    ):
        # The lab runs no visibility server.
        missing = MISSING_OBJECT in request.path or "visibility" in request.path
        yield rbac_attack(
            f"queue-{name}",
            f"{place.tenant.tenant}'s developer: {sentence}",
            request,
            twin_who=None,
            twin_missing=missing,
        )
    for framework in place.frameworks:
        path = group(f"{framework.group}/{framework.version}", place.name, framework.resource)
        account = f"system:serviceaccount:{place.name}:default"
        pod = Impersonation(account, ("system:serviceaccounts", f"system:serviceaccounts:{place.name}"))
        request = Request("GET", path, None, pod)
        yield rbac_attack(
            f"workload-{framework.resource}", f"a pod's own account: see {framework.resource}", request, twin_who=who
        )
        viewer = place.person(Role.VIEWER)
        if viewer and framework.kind in all_kinds(place):
            request = Request("POST", path, work(place, framework.kind), viewer)
            yield rbac_attack(
                f"viewer-{framework.resource}", f"viewer: make {framework.resource}", request, twin_who=who
            )
