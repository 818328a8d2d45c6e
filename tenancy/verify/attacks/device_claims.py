"""Attacks on quotas and rights over device claims, with and without GPUs by claim."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.kube.deniers import quota
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, Impersonation, group
from tenancy.planning.common.device_classes import claimable_flavors, device_class
from tenancy.planning.kubernetes import quotas
from tenancy.rules.attacks import Attack, Request, attack, put, skipped
from tenancy.rules.claim_forms import API, CLAIMS, DRIVER, DRIVER_CLASSES, FORMS, claim
from tenancy.rules.device_claims import EXACTLY, MAX_DEVICES, REQUESTS, by_platform_alone, is_claimed, singular
from tenancy.rules.scene import MISSING_OBJECT, POD_NAME
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks.access import rbac_attack
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

MAX_REQUESTS = 32
"""Requests of one claim: `DeviceRequestsMaxSize`."""
QUOTA = quota(quotas.NAME)
_NOTE = {"metadata": {"annotations": {"note": "hello"}}}


def claim_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks by claims on what no rule guards: quotas, and rights on what the driver and the scheduler write."""
    home = scene.home
    if home is None or not is_claimed(scene):
        return
    yield from device_rights(home)
    if home.environment.uses_device_claims:
        for place in scene.staffed:
            for flavor, max_devices in place.max_gpus.items():
                yield over_quota(place, flavor, max_devices)
        yield from claim_rights(scene)
    else:
        for place in scene.staffed:
            yield from no_claims(place)
        yield from no_rights(home)


def over_quota(place: AttackedNamespace, flavor: str, max_devices: int) -> Attack:
    """One device more than the maximum of the namespace."""
    id, name = f"quota-resourceclaim-{flavor}@{place.name}", device_class(flavor)
    sentence = f"claim {max_devices + 1} {flavor}, where the maximum of {place.name} is {max_devices}"
    if max_devices:
        # gpu-08 bounds a request. The twin's last one asks for one device: other work may use the rest of the quota.
        last = min(max_devices + 1, MAX_DEVICES)
        full_requests, last_count = divmod(max_devices + 1 - last, MAX_DEVICES)
        counts = [*[MAX_DEVICES] * full_requests, *([last_count] if last_count else []), last]
        if len(counts) > MAX_REQUESTS:
            return skipped(
                id, "quota", sentence, f"a claim has at most {MAX_REQUESTS} requests of {MAX_DEVICES} devices"
            )
        body = claim(name, *counts)
        twin = put(body, f"/spec{REQUESTS}/{len(counts) - 1}/exactly/count", 1)
    elif place.usable_gpus:
        body = claim(name)
        twin = put(body, f"/spec{EXACTLY}/deviceClassName", device_class(next(iter(place.usable_gpus))))
    else:
        return by_platform_alone(id, "quota", sentence, QUOTA, place, claim(name))
    request = Request("POST", group(API, place.name, CLAIMS), body, place.developer)
    return attack(id, "quota", sentence, QUOTA, request, twin_body=twin)


def no_claims(place: AttackedNamespace) -> Iterator[Attack]:
    """Claims by the platform, which RBAC and guards allow, where no quota counts claimed GPUs: the quota on the number
    of claims refuses them."""
    for plural in FORMS:
        id = f"quota-{singular(plural)}@{place.name}"
        body = claim(DRIVER_CLASSES[0], plural=plural)
        yield by_platform_alone(id, "quota", f"claim outside of the quota on GPUs, by {plural}", QUOTA, place, body)


def device_rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Objects that only the driver, the platform and the scheduler write: what a device is, and who got it."""
    who, missing_claim = place.developer, group(API, place.name, CLAIMS, MISSING_OBJECT)
    classes, slices = (group(API, None, what) for what in ("deviceclasses", "resourceslices"))
    offered: Object = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": POD_NAME}, "spec": {}}
    pool = {"name": POD_NAME, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": POD_NAME, "pool": pool, "devices": []}
    published: Object = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": POD_NAME}, "spec": spec}
    # Where the device plugin allocates GPUs the environment has no device class.
    device_class_name = next(iter(claimable_flavors(place.environment)), MISSING_OBJECT)
    status = {"status": {}}
    for name, sentence, request in (
        (
            "device-status",
            "give itself a device by a claim's status",
            Request("PATCH", f"{missing_claim}/status", status, who, MERGE),
        ),
        ("device-claim", "change a claim", Request("PATCH", missing_claim, _NOTE, who, MERGE)),
        ("device-class", "make a device class", Request("POST", classes, offered, who)),
        ("device-widen", "widen a device class", Request("PATCH", f"{classes}/{device_class_name}", _NOTE, who, MERGE)),
        ("device-slice", "publish devices of its own", Request("POST", slices, published, who)),
        ("device-list", "list the cluster's devices", Request("GET", slices, None, who)),
    ):
        yield rbac_attack(name, sentence, request, twin_who=None, twin_missing=MISSING_OBJECT in request.path)


def no_rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Attacks where GPUs are not claimed: no tenant may list or delete claims."""
    for plural in FORMS:
        where, slug = group(API, place.name, plural), singular(plural)
        yield rbac_attack(f"list-{slug}", f"list {plural}", Request("GET", where, None, place.developer), twin_who=None)
        # Creation has no twin: the quota refuses even the platform's.
        request = Request("DELETE", f"{where}/{MISSING_OBJECT}", None, place.developer)
        yield rbac_attack(f"delete-{slug}", f"remove one of the {plural}", request, twin_who=None, twin_missing=True)


def claim_rights(scene: Scene) -> Iterator[Attack]:
    """Claims are created by developers, each in namespaces of their own tenant."""
    for attacker, victim in scene.pairs():
        who, suffix = attacker.developer, f"as-{attacker.tenant.tenant}@{victim.name}"
        for plural in FORMS:
            victim_path, own_path = (group(API, place.name, plural) for place in (victim, attacker))
            slug, text = (
                singular(plural),
                f"{attacker.tenant.tenant}'s developer: {{}} {plural} of {victim.tenant.tenant}",
            )
            request = Request("GET", victim_path, None, who)
            yield rbac_attack(f"list-{slug}-{suffix}", text.format("see the"), request, twin_path=own_path)
            flavor = next(iter(attacker.usable_gpus), None)
            if flavor is None:
                reason = f"{attacker.name} has no GPUs, so its own claim would not be admitted"
                yield skipped(f"rbac-make-{slug}-{suffix}", "rbac", text.format("make"), reason)
                continue
            request = Request("POST", victim_path, claim(device_class(flavor), plural=plural), who)
            yield rbac_attack(f"make-{slug}-{suffix}", text.format("make"), request, twin_path=own_path)
    for role in (Role.VIEWER, Role.OPERATOR):
        place = next((place for place in scene.staffed if place.usable_gpus and place.person(role)), None)
        id, sentence = f"{role}-resourceclaim", f"{role}: claim a device"
        if place is None:
            yield skipped(f"rbac-{id}", "rbac", sentence, f"no namespace with GPUs has both a {role} and a developer")
        else:
            yield _claimed_by(id, sentence, place, place.person(role))
    place = scene.home
    if place and place.usable_gpus:
        name = f"system:serviceaccount:{place.name}:default"
        account = Impersonation(name, ("system:serviceaccounts", f"system:serviceaccounts:{place.name}"))
        yield _claimed_by("workload-resourceclaim", "a pod's own account: claim a device", place, account)
    else:
        reason = "no namespace with a developer has GPUs"
        yield skipped("rbac-workload-resourceclaim", "rbac", "a pod's own account: claim a device", reason)


def _claimed_by(id: str, sentence: str, place: AttackedNamespace, who: Impersonation | None) -> Attack:
    body = claim(device_class(next(iter(place.usable_gpus))))
    return rbac_attack(
        id, sentence, Request("POST", group(API, place.name, CLAIMS), body, who), twin_who=place.developer
    )
