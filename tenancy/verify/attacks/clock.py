"""Attacks on quota that changes with time: the clock's record, its reservations and the queues that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import JSON_PATCH, MERGE, core, group
from tenancy.planning.queueing.queue_names import API, queue_name
from tenancy.rules.attacks import Attack, Request, attack
from tenancy.rules.queues import leading
from tenancy.rules.scene import POD_NAME
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

RESERVATION = POD_NAME
"""A Workload that does not exist: reservations do only before a window starts."""


def clock_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks by a tenant's developer; none where the environment has no clock."""
    home = scene.home
    if home is None or not home.environment.has_clock:
        return
    yield from _record(home)
    yield from _reservations(home)
    yield from _queues(home)
    yield leading(scene, home, vocabulary.RESERVE_QUEUE, "reserve")


def _rbac_attack(
    place: AttackedNamespace, name: str, sentence: str, request: Request, *, missing: bool = False
) -> Attack:
    """By RBAC; the twin is the platform's."""
    text = f"{place.tenant.tenant}'s developer: {sentence}"
    return attack(f"rbac-clock-{name}", "rbac", text, deniers.RBAC, request, twin_who=None, twin_missing=missing)


def _record(place: AttackedNamespace) -> Iterator[Attack]:
    record, who = core(vocabulary.PLATFORM_NAMESPACE, "configmaps", vocabulary.CLOCK), place.developer
    account = core(vocabulary.PLATFORM_NAMESPACE, "serviceaccounts", vocabulary.CLOCK, "token")
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    for name, sentence, request in (
        ("read-record", "read every tenant's use", Request("GET", record, None, who)),
        ("empty-record", "reset its budget", Request("PATCH", record, {"data": {"usage": "{}"}}, who, MERGE)),
        ("drop-record", "delete the record of its use", Request("DELETE", record, None, who)),
        ("become", "become the clock", Request("POST", account, token, who)),
    ):
        yield _rbac_attack(place, name, sentence, request)


def _reservations(place: AttackedNamespace) -> Iterator[Attack]:
    works, who = group(API, vocabulary.PLATFORM_NAMESPACE, "workloads"), place.developer
    pods = [{"name": "main", "count": 1, "template": {"spec": place.pod()["spec"]}}]
    spec = {"queueName": vocabulary.RESERVE_QUEUE, "podSets": pods}
    workload: Object = {"apiVersion": API, "kind": "Workload", "metadata": {"name": POD_NAME}, "spec": spec}
    yield _rbac_attack(place, "reserve", "reserve GPUs", Request("POST", works, workload, who))
    reservation_path, suspended, admitted = (
        f"{works}/{RESERVATION}",
        {"spec": {"active": False}},
        {"status": {"conditions": []}},
    )
    for name, sentence, request in (
        ("suspend-reservation", "suspend a reservation", Request("PATCH", reservation_path, suspended, who, MERGE)),
        (
            "forge-reservation",
            "have a reservation admitted",
            Request("PATCH", f"{reservation_path}/status", admitted, who, MERGE),
        ),
        ("drop-reservation", "delete a reservation", Request("DELETE", reservation_path, None, who)),
    ):
        yield _rbac_attack(place, name, sentence, request, missing=True)


def _queues(place: AttackedNamespace) -> Iterator[Attack]:
    who, open_queue = place.developer, {"spec": {"stopPolicy": "None"}}
    own_queue_path = group(
        API, None, "clusterqueues", queue_name(place.tenant.tenant, place.tenant.tier_of(place.namespace))
    )
    reserve = group(API, None, "clusterqueues", vocabulary.RESERVE_QUEUE)
    local = group(API, vocabulary.PLATFORM_NAMESPACE, "localqueues", vocabulary.RESERVE_QUEUE)
    quota = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    larger_quota: Any = [{"op": "replace", "path": quota, "value": "1000000"}]
    for name, sentence, request in (
        ("open-queue", "open a queue that is on hold", Request("PATCH", own_queue_path, open_queue, who, MERGE)),
        ("raise-quota", "raise its quota", Request("PATCH", own_queue_path, larger_quota, who, JSON_PATCH)),
        (
            "raise-reserve",
            "raise the quota of the reserve queue",
            Request("PATCH", reserve, larger_quota, who, JSON_PATCH),
        ),
        ("open-reserve", "change the reserve queue", Request("PATCH", reserve, open_queue, who, MERGE)),
        ("drop-reserve", "delete the reserve queue", Request("DELETE", reserve, None, who)),
        ("open-reserve-local", "change the queue of reservations", Request("PATCH", local, open_queue, who, MERGE)),
    ):
        yield _rbac_attack(place, name, sentence, request)
