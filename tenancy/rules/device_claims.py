"""Claims of devices (DRA): what a pod may name, and what a claim may say."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import CLAIM_CONTROLLERS, CLAIM_OF_POD
from tenancy.catalog.versions import incompatible
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import group
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.rules.claim_forms import (
    API,
    CLAIMS,
    DRIVER,
    DRIVER_CLASSES,
    FORMS,
    TEMPLATES,
    claim,
    claim_spec,
    template_name,
)
from tenancy.rules.expressions import CONTROLS, cel
from tenancy.rules.model import Face, GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import MISSING_OBJECT, AttackPlace, AttackScene
from tenancy.rules.workloads import ALL_KINDS, Case, attack_of, kinds_of

MAX_DEVICES = 32
"""Devices of one claim: no scheduler gives more (`AllocationResultsMaxSize`)."""


def _claims(facts: GuardFacts) -> str:
    """Claims that a pod may name. If devices are claimed, a claim's content is judged on the claim (gpu-08), so a pod
    may name any of its namespace; a third way to name one is refused until it has been reviewed."""
    if facts.devices_by_claim:
        return """!has(variables.spec.resourceClaims) || variables.spec.resourceClaims.all(c,
        has(c.resourceClaimName) || has(c.resourceClaimTemplateName))"""
    return "!has(variables.spec.resourceClaims) || size(variables.spec.resourceClaims) == 0"


# A request without `exactly` is a list of alternatives, or a form that no rule covers.
_CLAIM = f"""size(variables.config) == 0 && size(variables.requests) > 0
        && variables.requests.all(r, has(r.exactly)
            && r.exactly.deviceClassName in variables.allowedClasses
            && has(r.exactly.allocationMode) && r.exactly.allocationMode == 'ExactCount'
            && has(r.exactly.count) && r.exactly.count <= {MAX_DEVICES}
            && (!has(r.exactly.adminAccess) || !r.exactly.adminAccess)
            && (!has(r.exactly.tolerations) || size(r.exactly.tolerations) == 0)
            && !has(r.exactly.capacity))"""
_COUNTS = """variables.requests.map(r, r.exactly.deviceClassName + '-' + string(r.exactly.count)).join('-')"""
_OWNED_CLAIM = f"""(has(object.metadata.annotations) && {cel(CLAIM_OF_POD)} in object.metadata.annotations)
        || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {CONTROLS}))"""


# Attacks

REQUESTS = "/devices/requests"
EXACTLY = f"{REQUESTS}/0/exactly"
SETTINGS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
CLAIMED = [{"name": "gpu", "resourceClaimName": "gpu"}]
_ABSENT_POD = {"apiVersion": "v1", "kind": "Pod", "name": MISSING_OBJECT, "uid": "0b1c0000-0000-4000-8000-000000000000"}
_PASSED = "present its own claim as one that a pod's template made"


def _of_pods(scene: AttackScene) -> Iterator[Attack]:
    """Attacks by the claims that a pod names."""
    home, at = scene.home, "/spec/resourceClaims"
    if home is None:
        return
    version = home.environment.cluster.kubernetes
    if incompatible(version, "dra"):
        reason = f"Kubernetes {version} serves no {API} and drops what a pod says about claims"
        yield skipped("claims", "gpu-07", "attack through device claims", reason)
    elif home.environment.uses_device_claims:
        sentence, claimed = "claim a device without naming a claim or a template", {at: CLAIMED}
        neither = Case(
            "api-validation", "nameless-claim", sentence, f"{at}/0/resourceClaimName", ABSENT, "gpu", claimed
        )
        for kind in ALL_KINDS:
            yield attack_of(scene, home, neither, kind, deniers.API_VALIDATION)
        reason = "this API can name only a claim or a template of one; anything else never reaches the guard"
        yield skipped("gpu-07-pod-claim", "gpu-07", "claim a device in a third way", reason)
    else:
        for kind in kinds_of(home):
            case = Case("gpu-07", "claim", "claim a device outside of the quota", at, CLAIMED)
            yield attack_of(scene, home, case, kind)


def is_claimed(scene: AttackScene) -> bool:
    """Whether the cluster of the scene serves claims."""
    return scene.home is not None and not incompatible(scene.home.environment.cluster.kubernetes, "dra")


def _contents(scene: AttackScene) -> Iterator[Attack]:
    yield from (attack for attack in _of_claims(scene) if attack.rule != "gpu-11")


def _owners(scene: AttackScene) -> Iterator[Attack]:
    yield from (attack for attack in _of_claims(scene) if attack.rule == "gpu-11")


def _of_claims(scene: AttackScene) -> Iterator[Attack]:
    """Attacks by the content of a claim."""
    home = scene.home
    if home is None or not is_claimed(scene):
        return
    if not home.environment.uses_device_claims:
        reason = "GPUs are extended resources here: the quota refuses every claim, whatever its content"
        yield skipped("gpu-08-resourceclaim", "gpu-08", "claim more than was granted", reason)
        yield skipped("gpu-11-claim", "gpu-11", _PASSED, reason)
        return
    yield from _of_home(scene, home)
    for place in scene.staffed:
        for name in place.other_device_classes:
            yield from foreign_class_attacks(scene, place, name)


def singular(plural: str) -> str:
    """One of a resource, as ids of attacks name it."""
    return plural.removesuffix("s")


def claim_form(
    scene: AttackScene, place: AttackPlace, case: Case, flavor: str, plural: str, *, denier: str = "", suffix: str = ""
) -> Attack:
    """A case through a claim of a flavor or a template of one; its pointers are relative to the claim's own spec."""
    root, form = FORMS[plural], claim(flavor, plural=plural)
    for pointer, value in case.base.items():
        form = put(form, root + pointer, value)
    bad, good = (put(form, root + case.at, value) for value in (case.bad, case.good))
    return attack(
        f"{case.rule}-{singular(plural)}-{case.name}{suffix}",
        case.rule,
        case.attack if plural == CLAIMS else f"by a template: {case.attack}",
        denier or scene.guard(case.rule, plural),
        Request("POST", group(API, place.name, plural), bad, place.developer),
        twin_body=good,
    )


def _of_home(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Fields of a claim beyond a number of devices of a granted class."""
    flavor = next(iter(place.usable_gpus), None)
    if flavor is None:
        reason = "no namespace with a developer has GPUs, so no claim would be admitted"
        yield skipped("gpu-08-resourceclaim", "gpu-08", "claim more than was granted", reason)
        yield skipped("gpu-11-claim", "gpu-11", _PASSED, reason)
        return
    for case in _cases(flavor):
        for plural in FORMS:
            yield claim_form(scene, place, case, flavor, plural)
    yield from _passed_off(scene, place, flavor)
    for plural in FORMS:
        # Without the namespace's label, which ns-01 protects, the API server refuses before the guard is evaluated.
        yield claim_form(scene, place, admin_access("api-validation"), flavor, plural, denier=deniers.API_VALIDATION)


def _cases(device_class: str) -> Iterator[Case]:
    """Cases whose twins claim one device of the class."""
    request = claim_spec(device_class, 1)["devices"]["requests"]
    request_fields = {REQUESTS: request}
    class_field = f"{EXACTLY}/deviceClassName"
    for name in DRIVER_CLASSES:
        yield Case(
            "gpu-08",
            name.replace(".", "-"),
            f"claim a device of class {name}, of any model",
            class_field,
            name,
            device_class,
        )
    yield Case(
        "gpu-08",
        "unknown-class",
        "claim a device of a class that is not granted",
        class_field,
        "another-tenants",
        device_class,
    )
    mode, absent_count = f"{EXACTLY}/allocationMode", {f"{EXACTLY}/count": ABSENT}
    yield Case("gpu-08", "all", "claim every device that fits", mode, "All", "ExactCount", absent_count)
    empty = "tolerate GPU nodes by a claim of nothing"
    yield Case("gpu-08", "nothing", empty, REQUESTS, [], request)
    yield Case("gpu-08", "no-requests", f"{empty}, not even a list", REQUESTS, ABSENT, request)
    yield Case("gpu-08", "no-devices", f"{empty}, not even devices", "/devices", ABSENT, {"requests": request})
    sentence = f"claim more than {MAX_DEVICES} devices at once"
    yield Case("gpu-08", "count", sentence, f"{EXACTLY}/count", MAX_DEVICES + 1, 1)
    everything = [{"operator": "Exists"}]
    yield Case("gpu-08", "toleration", "claim devices that are tainted", f"{EXACTLY}/tolerations", everything)
    part = {"requests": {"memory": "1Gi"}}
    yield Case("gpu-08", "part-of-a-gpu", "claim a part of a GPU, which no quota counts", f"{EXACTLY}/capacity", part)
    opaque = [{"opaque": {"driver": DRIVER, "parameters": SETTINGS}}]
    yield Case("gpu-08", "settings", "share a GPU by its own driver settings", "/devices/config", opaque)
    second = f"{REQUESTS}/1"
    either = {"name": "either", "firstAvailable": [{"name": "a", "deviceClassName": device_class}]}
    yield Case("gpu-08", "alternatives", "claim one of several alternatives", second, either, base=request_fields)
    _, foreign = claim_spec(DRIVER_CLASSES[0], 1, 1)["devices"]["requests"]
    sentence = "add a request of another class to one of its own"
    yield Case("gpu-08", "second-request", sentence, second, foreign, base=request_fields)


def _passed_off(scene: AttackScene, place: AttackPlace, device_class: str) -> Iterator[Attack]:
    """Claims that no quota counts, for work that was counted."""
    manifest = put(claim(device_class), "/metadata/annotations", {"note": "hello"})
    manifest = put(manifest, "/metadata/ownerReferences", [{**_ABSENT_POD, "controller": False}])
    path, guard = group(API, place.name, CLAIMS), scene.guard("gpu-11", CLAIMS)
    for name, at, bad, good in (
        ("owner", "/metadata/ownerReferences/0/controller", True, False),
        ("note", f"/metadata/annotations/{escaped(CLAIM_OF_POD)}", "gpu", ABSENT),
    ):
        request = Request("POST", path, put(manifest, at, bad), place.developer)
        yield attack(f"gpu-11-claim-{name}", "gpu-11", _PASSED, guard, request, twin_body=put(manifest, at, good))
    path, guard = group(API, place.name, TEMPLATES), scene.guard("gpu-08", TEMPLATES)
    sentence, manifest = "replace a template that was counted by a larger one", claim(device_class, plural=TEMPLATES)
    for name, bad in (
        ("free", "any"),
        ("less", template_name(device_class, 2)),
        ("longer", f"{template_name(device_class, 1)}-a"),
    ):
        request = Request("POST", path, put(manifest, "/metadata/name", bad), place.developer)
        yield attack(f"gpu-08-template-called-{name}", "gpu-08", sentence, guard, request, twin_body=manifest)
    request = Request("POST", path, put(manifest, f"/spec/spec{EXACTLY}/count", 2), place.developer)
    yield attack("gpu-08-template-count", "gpu-08", sentence, guard, request, twin_body=manifest)


def admin_access(rule: str) -> Case:
    """Claims of devices in use by others (adminAccess), as a monitor of the platform may make."""
    return Case(rule, "admin", "claim devices that others are using", f"{EXACTLY}/adminAccess", True, False)


def foreign_class_attacks(scene: AttackScene, place: AttackPlace, name: str) -> Iterator[Attack]:
    """Claims of a class of the environment that the tenant was not granted."""
    sentence = f"claim a device of class {name}, which {place.tenant.tenant} was not granted"
    flavor, at = next(iter(place.usable_gpus), None), f"{EXACTLY}/deviceClassName"
    for plural in FORMS:
        if flavor:
            case = Case("gpu-08", name, sentence, at, name, flavor)
            yield claim_form(scene, place, case, flavor, plural, suffix=f"@{place.name}")
        else:
            slug = f"gpu-08-{singular(plural)}-{name}@{place.name}"
            yield by_platform_alone(
                slug, "gpu-08", sentence, scene.guard("gpu-08", plural), place, claim(name, plural=plural)
            )


def by_platform_alone(id: str, rule: str, sentence: str, denier: str, place: AttackPlace, body: Object) -> Attack:
    """For places where no claim of the tenant is admitted: the platform asks; the twin is in its own namespace."""
    plural = f"{body['kind'].lower()}s"
    request = Request("POST", group(API, place.name, plural), body)
    return attack(id, rule, sentence, denier, request, twin_path=group(API, vocabulary.PLATFORM_NAMESPACE, plural))


RULES: tuple[Rule, ...] = (
    Rule(
        id="gpu-07",
        title="a pod uses device claims only in a cluster with devices: dra, and only claims of its namespace",
        why="elsewhere a device claim bypasses the quota on GPUs",
        fix="ask for GPUs under resources.limits; with cluster.devices: dra, by resourceClaimTemplateName",
        severity=Severity.CRITICAL,
        partial={Face.PREVIEW: "it does not know whether pods of the cluster get GPUs by claims"},
        guards={GuardSubject.PODS: _claims},
        attacks=(_of_pods,),
    ),
    Rule(
        id="gpu-08",
        title="a device claim asks for a count of devices of granted classes, and a claim template is named after both",
        why=(
            "allocation mode All, another class, device settings or a toleration reach other tenants' GPUs; a template "
            "that is replaced under the same name takes more devices than the queue counted"
        ),
        fix=(
            "name a granted class and a count under exactly; drop config, adminAccess, capacity and "
            "tolerations; name a "
            "template <class>-<count>, such as a100-2, with any suffix after a dot"
        ),
        severity=Severity.CRITICAL,
        partial={Face.PREVIEW: "it knows the classes that a tenant has only where its namespace is among the objects"},
        guards={
            GuardSubject.DEVICE_CLAIMS: _CLAIM,
            # The queue counts a template when work comes, and claims are made from what has that name by then.
            GuardSubject.DEVICE_CLAIM_TEMPLATES: f"({_CLAIM}) && (object.metadata.name == {_COUNTS}"
            f" || object.metadata.name.startsWith({_COUNTS} + '.'))",
        },
        attacks=(_contents,),
    ),
    Rule(
        id="gpu-11",
        title="only the cluster makes a pod's own claims, from the template that the pod names",
        why="a claim that passes for a pod's own gives the pod devices that the queue never counted",
        fix=(
            "drop the controller from ownerReferences and resource.kubernetes.io/pod-claim-name; name the claim in "
            "the pod"
        ),
        guards={
            # The cluster takes a claim for a pod's own by these two, whatever it asks for.
            GuardSubject.DEVICE_CLAIMS: (
                f"request.userInfo.username in {cel(list(CLAIM_CONTROLLERS))} || !({_OWNED_CLAIM})"
            )
        },
        attacks=(_owners,),
    ),
)
