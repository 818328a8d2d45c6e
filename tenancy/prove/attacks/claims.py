"""Attacks through device claims: where GPUs are claimed, and where the device plugin allocates them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import CLAIM_OF_POD
from tenancy.catalog.versions import incompatible
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import Impersonation
from tenancy.planning.common.devices import DRIVER, DRIVER_CLASSES, claimable, device_class, granted_classes
from tenancy.planning.kubernetes import quotas
from tenancy.planning.kubernetes.samples import claim_spec, template_name
from tenancy.prove.attacks.model import ABSENT, MERGE, Attack, Request, attack, escaped, group, put, skipped
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import ALL_KINDS, LIMITS, Case, attack_of, kinds_of
from tenancy.rules.gpus import MAX_DEVICES
from tenancy.schema.people import Role

API = "resource.k8s.io/v1"
FORMS = {"resourceclaims": "/spec", "resourceclaimtemplates": "/spec/spec"}
"""JSON pointer of a claim's own spec, in a claim and in a template of one."""
CLAIMS, TEMPLATES = FORMS

REQUESTS = "/devices/requests"
EXACTLY = f"{REQUESTS}/0/exactly"
MOST_REQUESTS = 32
"""Requests of one claim: `DeviceRequestsMaxSize`."""
QUOTA = denial.quota(quotas.NAME)
SETTINGS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
CLAIMED = [{"name": "gpu", "resourceClaimName": "gpu"}]

_GONE = f"{POD_NAME}-not-there"
_PASSED_OFF = "present its own claim as one that a pod's template made"
_ABSENT_POD = {"apiVersion": "v1", "kind": "Pod", "name": _GONE, "uid": "0b1c0000-0000-4000-8000-000000000000"}
_NOTE = {"metadata": {"annotations": {"note": "hello"}}}


def claim(class_name: str, *counts: int, name: str = "", plural: str = CLAIMS) -> Object:
    """A claim of devices, or the template of one: a request for each count, one device if there is none."""
    name = name or (POD_NAME if plural == CLAIMS else template_name(class_name, *(counts or (1,))))
    kind = "ResourceClaim" if plural == CLAIMS else "ResourceClaimTemplate"
    empty = {"apiVersion": API, "kind": kind, "metadata": {"name": name}}
    return put(empty, FORMS[plural], claim_spec(class_name, *(counts or (1,))))


def claim_attacks(scene: Scene) -> Iterator[Attack]:
    """Misuse of claims; each way to allocate GPUs (claims, device plugin) has attacks of its own."""
    home, sentence = scene.home, "attack through device claims"
    if home is None:
        yield skipped("claims", "gpu-07", sentence, "no tenant has a developer or an owner")
        return
    version = home.environment.cluster.kubernetes
    if incompatible(version, "dra"):
        reason = f"Kubernetes {version} serves no {API} and drops what a pod says about claims"
        yield skipped("claims", "gpu-07", sentence, reason)
        return
    yield from device_rights(home)
    if home.environment.devices_by_claim:
        yield from _with_claims(scene, home)
    else:
        yield from _without_claims(scene, home)


def _with_claims(scene: Scene, home: AttackedNamespace) -> Iterator[Attack]:
    yield from said_by_claims(scene, home)
    yield from said_by_pods(scene, home)
    for place in scene.manned:
        environment, tenant = place.environment, place.tenant
        for name in sorted({*map(device_class, claimable(environment))} - {*granted_classes(environment, tenant)}):
            yield from foreign_class(scene, place, name)
        for flavor, held in place.most.items():
            yield over_quota(place, flavor, held)
    yield from claim_rights(scene)


def _without_claims(scene: Scene, home: AttackedNamespace) -> Iterator[Attack]:
    sentence = "claim a device outside of the quota"
    for kind in kinds_of(home):
        yield attack_of(scene, home, Case("gpu-07", "claim", sentence, "/spec/resourceClaims", CLAIMED), kind)
    reason = "GPUs are extended resources here: the quota refuses every claim, whatever its content"
    yield skipped("gpu-08-resourceclaim", "gpu-08", "claim more than was granted", reason)
    yield skipped("gpu-11-claim", "gpu-11", _PASSED_OFF, reason)
    for place in scene.manned:
        yield from no_claims(place)
    yield from no_rights(home)


# What a claim may say


def claim_form(
    scene: Scene, place: AttackedNamespace, case: Case, flavor: str, plural: str, *, denier: str = "", suffix: str = ""
) -> Attack:
    """A case through a claim of a flavor or a template of one; its pointers are relative to the claim's own spec."""
    root, whole = FORMS[plural], claim(device_class(flavor), plural=plural)
    for pointer, value in case.base.items():
        whole = put(whole, root + pointer, value)
    bad, good = (put(whole, root + case.at, value) for value in (case.bad, case.good))
    return attack(
        f"{case.rule}-{_singular(plural)}-{case.name}{suffix}",
        case.rule,
        case.attack if plural == CLAIMS else f"by a template: {case.attack}",
        denier or scene.guard(case.rule, plural),
        Request("POST", group(API, place.name, plural), bad, place.developer),
        twin_body=good,
    )


def _singular(plural: str) -> str:
    return plural.removesuffix("s")


def said_by_claims(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Fields of a claim beyond a number of devices of a granted class."""
    flavor = next(iter(place.held), None)
    if flavor is None:
        reason = "no namespace with a developer has GPUs, so no claim would be admitted"
        yield skipped("gpu-08-resourceclaim", "gpu-08", "claim more than was granted", reason)
        yield skipped("gpu-11-claim", "gpu-11", _PASSED_OFF, reason)
        return
    for case in _claim_cases(device_class(flavor)):
        for plural in FORMS:
            yield claim_form(scene, place, case, flavor, plural)
    yield from _passed_off(scene, place, device_class(flavor))
    for plural in FORMS:
        # Without the namespace's label, which ns-01 protects, the API server refuses before the guard is evaluated.
        yield claim_form(scene, place, admin_access("api-validation"), flavor, plural, denier=denial.API_VALIDATION)


def _claim_cases(mine: str) -> Iterator[Case]:
    """Cases whose twins claim one device of the class."""
    one = claim_spec(mine, 1)["devices"]["requests"]
    requested = {REQUESTS: one}
    named = f"{EXACTLY}/deviceClassName"
    for name in DRIVER_CLASSES:
        yield Case("gpu-08", name.replace(".", "-"), f"claim a device of class {name}, of any model", named, name, mine)
    yield Case(
        "gpu-08", "unknown-class", "claim a device of a class that is not granted", named, "another-tenants", mine
    )
    mode, uncounted = f"{EXACTLY}/allocationMode", {f"{EXACTLY}/count": ABSENT}
    yield Case("gpu-08", "all", "claim every device that fits", mode, "All", "ExactCount", uncounted)
    empty = "tolerate GPU nodes by a claim of nothing"
    yield Case("gpu-08", "nothing", empty, REQUESTS, [], one)
    yield Case("gpu-08", "no-requests", f"{empty}, not even a list", REQUESTS, ABSENT, one)
    yield Case("gpu-08", "no-devices", f"{empty}, not even devices", "/devices", ABSENT, {"requests": one})
    sentence = f"claim more than {MAX_DEVICES} devices at once"
    yield Case("gpu-08", "count", sentence, f"{EXACTLY}/count", MAX_DEVICES + 1, 1)
    everything = [{"operator": "Exists"}]
    yield Case("gpu-08", "toleration", "claim devices that are tainted", f"{EXACTLY}/tolerations", everything)
    part = {"requests": {"memory": "1Gi"}}
    yield Case("gpu-08", "part-of-a-gpu", "claim a part of a GPU, which no quota counts", f"{EXACTLY}/capacity", part)
    opaque = [{"opaque": {"driver": DRIVER, "parameters": SETTINGS}}]
    yield Case("gpu-08", "settings", "share a GPU by its own driver settings", "/devices/config", opaque)
    second = f"{REQUESTS}/1"
    either = {"name": "either", "firstAvailable": [{"name": "a", "deviceClassName": mine}]}
    yield Case("gpu-08", "alternatives", "claim one of several alternatives", second, either, base=requested)
    _, foreign = claim_spec(DRIVER_CLASSES[0], 1, 1)["devices"]["requests"]
    sentence = "add a request of another class to one of its own"
    yield Case("gpu-08", "second-request", sentence, second, foreign, base=requested)


def _passed_off(scene: Scene, place: AttackedNamespace, mine: str) -> Iterator[Attack]:
    """Claims that no quota counts, for work that was counted."""
    made = put(claim(mine), "/metadata/annotations", {"note": "hello"})
    made = put(made, "/metadata/ownerReferences", [{**_ABSENT_POD, "controller": False}])
    path, guard = group(API, place.name, CLAIMS), scene.guard("gpu-11", CLAIMS)
    for name, at, bad, good in (
        ("owner", "/metadata/ownerReferences/0/controller", True, False),
        ("note", f"/metadata/annotations/{escaped(CLAIM_OF_POD)}", "gpu", ABSENT),
    ):
        request = Request("POST", path, put(made, at, bad), place.developer)
        yield attack(f"gpu-11-claim-{name}", "gpu-11", _PASSED_OFF, guard, request, twin_body=put(made, at, good))
    path, guard = group(API, place.name, TEMPLATES), scene.guard("gpu-08", TEMPLATES)
    sentence, made = "replace a template that was counted by a larger one", claim(mine, plural=TEMPLATES)
    for name, bad in (("free", "any"), ("less", template_name(mine, 2)), ("longer", f"{template_name(mine, 1)}-a")):
        request = Request("POST", path, put(made, "/metadata/name", bad), place.developer)
        yield attack(f"gpu-08-template-called-{name}", "gpu-08", sentence, guard, request, twin_body=made)
    request = Request("POST", path, put(made, f"/spec/spec{EXACTLY}/count", 2), place.developer)
    yield attack("gpu-08-template-count", "gpu-08", sentence, guard, request, twin_body=made)


def admin_access(rule: str) -> Case:
    """Claims of devices in use by others (adminAccess), as a monitor of the platform may make."""
    return Case(rule, "admin", "claim devices that others are using", f"{EXACTLY}/adminAccess", True, False)


def foreign_class(scene: Scene, place: AttackedNamespace, name: str) -> Iterator[Attack]:
    """Claims of a class of the environment that the tenant was not granted."""
    sentence = f"claim a device of class {name}, which {place.tenant.tenant} was not granted"
    flavor, at = next(iter(place.held), None), f"{EXACTLY}/deviceClassName"
    for plural in FORMS:
        if flavor:
            case = Case("gpu-08", name, sentence, at, name, device_class(flavor))
            yield claim_form(scene, place, case, flavor, plural, suffix=f"@{place.name}")
        else:
            slug = f"gpu-08-{_singular(plural)}-{name}@{place.name}"
            yield _by_platform(
                slug, "gpu-08", sentence, scene.guard("gpu-08", plural), place, claim(name, plural=plural)
            )


def _by_platform(id: str, rule: str, sentence: str, denier: str, place: AttackedNamespace, body: Object) -> Attack:
    """For places where no claim of the tenant is admitted: the platform asks; the twin is in its own namespace."""
    plural = f"{body['kind'].lower()}s"
    request = Request("POST", group(API, place.name, plural), body)
    return attack(id, rule, sentence, denier, request, twin_path=group(API, words.PLATFORM_NAMESPACE, plural))


# What a pod may say about claims


def said_by_pods(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Attacks on the rules for ResourceClaims, by the pods that name them."""
    sentence, at = "use a GPU node's CPU without a claim", "/spec/resourceClaims"
    tolerant = {"/spec/tolerations": [{"key": gpus.GPU_TAINT, "operator": "Exists"}]}
    for kind in kinds_of(place):
        yield attack_of(scene, place, Case("sched-01", "no-claim", sentence, at, ABSENT, CLAIMED, tolerant), kind)
    yield attack_of(scene, place, Case("sched-01", "empty-claims", sentence, at, [], CLAIMED, tolerant), "Pod")
    for name in granted_classes(place.environment, place.tenant):
        as_resource = f"{LIMITS}/deviceclass.resource.kubernetes.io~1{name}"
        case = Case(
            "gpu-06", f"class-{name}", f"ask for class {name} as a resource, outside of its quota", as_resource, "1"
        )
        yield attack_of(scene, place, case, "Pod")
    sentence = "claim a device without naming a claim or a template"
    which, claimed = f"{at}/0/resourceClaimName", {at: CLAIMED}
    neither = Case("api-validation", "nameless-claim", sentence, which, ABSENT, "gpu", claimed)
    for kind in ALL_KINDS:
        yield attack_of(scene, place, neither, kind, denial.API_VALIDATION)
    reason = "this API can name only a claim or a template of one; anything else never reaches the guard"
    yield skipped("gpu-07-pod-claim", "gpu-07", "claim a device in a third way", reason)


# What counts claims


def over_quota(place: AttackedNamespace, flavor: str, held: int) -> Attack:
    """One device more than the maximum of the namespace."""
    id, name = f"quota-resourceclaim-{flavor}@{place.name}", device_class(flavor)
    sentence = f"claim {held + 1} {flavor}, where the maximum of {place.name} is {held}"
    if held:
        # gpu-08 bounds a request. The twin's last one asks for one device: other work may use the rest of the quota.
        last = min(held + 1, MAX_DEVICES)
        full, rest = divmod(held + 1 - last, MAX_DEVICES)
        counts = [*[MAX_DEVICES] * full, *([rest] if rest else []), last]
        if len(counts) > MOST_REQUESTS:
            return skipped(
                id, "quota", sentence, f"a claim has at most {MOST_REQUESTS} requests of {MAX_DEVICES} devices"
            )
        body = claim(name, *counts)
        twin = put(body, f"/spec{REQUESTS}/{len(counts) - 1}/exactly/count", 1)
    elif place.held:
        body = claim(name)
        twin = put(body, f"/spec{EXACTLY}/deviceClassName", device_class(next(iter(place.held))))
    else:
        return _by_platform(id, "quota", sentence, QUOTA, place, claim(name))
    request = Request("POST", group(API, place.name, CLAIMS), body, place.developer)
    return attack(id, "quota", sentence, QUOTA, request, twin_body=twin)


def no_claims(place: AttackedNamespace) -> Iterator[Attack]:
    """Claims by the platform, which RBAC and guards allow, where no quota counts claimed GPUs: the quota on the number
    of claims refuses them."""
    for plural in FORMS:
        id = f"quota-{_singular(plural)}@{place.name}"
        body = claim(DRIVER_CLASSES[0], plural=plural)
        yield _by_platform(id, "quota", f"claim outside of the quota on GPUs, by {plural}", QUOTA, place, body)


# Who may do what with claims


def _rbac(id: str, sentence: str, request: Request, **twin: Any) -> Attack:
    return attack(f"rbac-{id}", "rbac", sentence, denial.RBAC, request, **twin)


def device_rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Objects that only the driver, the platform and the scheduler write: what a device is, and who got it."""
    who, gone = place.developer, group(API, place.name, CLAIMS, _GONE)
    classes, slices = (group(API, None, what) for what in ("deviceclasses", "resourceslices"))
    offered: Object = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": POD_NAME}, "spec": {}}
    pool = {"name": POD_NAME, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": POD_NAME, "pool": pool, "devices": []}
    published: Object = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": POD_NAME}, "spec": spec}
    # Where the device plugin allocates GPUs the environment has no device class.
    known = next(iter(claimable(place.environment)), _GONE)
    status = {"status": {}}
    for name, sentence, request in (
        (
            "device-status",
            "give itself a device by a claim's status",
            Request("PATCH", f"{gone}/status", status, who, MERGE),
        ),
        ("device-claim", "change a claim", Request("PATCH", gone, _NOTE, who, MERGE)),
        ("device-class", "make a device class", Request("POST", classes, offered, who)),
        ("device-widen", "widen a device class", Request("PATCH", f"{classes}/{known}", _NOTE, who, MERGE)),
        ("device-slice", "publish devices of its own", Request("POST", slices, published, who)),
        ("device-list", "list the cluster's devices", Request("GET", slices, None, who)),
    ):
        yield _rbac(name, sentence, request, twin_who=None, twin_missing=_GONE in request.path)


def no_rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Where GPUs are not claimed, no tenant may list or delete claims."""
    for plural in FORMS:
        where, slug = group(API, place.name, plural), _singular(plural)
        yield _rbac(f"list-{slug}", f"list {plural}", Request("GET", where, None, place.developer), twin_who=None)
        # Creation has no twin: the quota refuses even the platform's.
        request = Request("DELETE", f"{where}/{_GONE}", None, place.developer)
        yield _rbac(f"delete-{slug}", f"remove one of the {plural}", request, twin_who=None, twin_missing=True)


def claim_rights(scene: Scene) -> Iterator[Attack]:
    """Claims are created by developers, each in namespaces of their own tenant."""
    for one, other in scene.pairs():
        who, suffix = one.developer, f"as-{one.tenant.tenant}@{other.name}"
        for plural in FORMS:
            theirs, mine = (group(API, place.name, plural) for place in (other, one))
            slug, text = _singular(plural), f"{one.tenant.tenant}'s developer: {{}} {plural} of {other.tenant.tenant}"
            request = Request("GET", theirs, None, who)
            yield _rbac(f"list-{slug}-{suffix}", text.format("see the"), request, twin_path=mine)
            flavor = next(iter(one.held), None)
            if flavor is None:
                reason = f"{one.name} has no GPUs, so its own claim would not be admitted"
                yield skipped(f"rbac-make-{slug}-{suffix}", "rbac", text.format("make"), reason)
                continue
            request = Request("POST", theirs, claim(device_class(flavor), plural=plural), who)
            yield _rbac(f"make-{slug}-{suffix}", text.format("make"), request, twin_path=mine)
    for role in (Role.VIEWER, Role.OPERATOR):
        place = next((place for place in scene.manned if place.held and place.person(role)), None)
        id, sentence = f"{role}-resourceclaim", f"{role}: claim a device"
        if place is None:
            yield skipped(f"rbac-{id}", "rbac", sentence, f"no namespace with GPUs has both a {role} and a developer")
        else:
            yield _claimed_by(id, sentence, place, place.person(role))
    place = scene.home
    if place and place.held:
        name = f"system:serviceaccount:{place.name}:default"
        account = Impersonation(name, ("system:serviceaccounts", f"system:serviceaccounts:{place.name}"))
        yield _claimed_by("workload-resourceclaim", "a pod's own account: claim a device", place, account)
    else:
        reason = "no namespace with a developer has GPUs"
        yield skipped("rbac-workload-resourceclaim", "rbac", "a pod's own account: claim a device", reason)


def _claimed_by(id: str, sentence: str, place: AttackedNamespace, who: Impersonation | None) -> Attack:
    body = claim(device_class(next(iter(place.held))))
    return _rbac(id, sentence, Request("POST", group(API, place.name, CLAIMS), body, who), twin_who=place.developer)
