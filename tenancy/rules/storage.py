"""Storage: volumes, claims, buckets and prefixes."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog.controllers import VOLUME_BINDER
from tenancy.rules import aws
from tenancy.rules.attacks import Attack, put
from tenancy.rules.claims_of_work import CLAIM_TEMPLATES, by_resource_of_work, each_claim_of_volumes
from tenancy.rules.expressions import cel, same_field
from tenancy.rules.model import GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    DISK,
    Case,
    against,
    at_home,
    claims_of_pods,
    create,
    minimal,
    policy_of,
    through_all_kinds,
)

OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation that goes before `storageClassName`: what the volume binder reads first."""


def _classes(facts: GuardFacts, claim: str = "c") -> str:
    """Whether a claim, or a template of one, names classes that the environment lists."""
    storage = f"{claim}.spec.?storageClassName.orValue('') in {cel(list(facts.claim_classes))}"
    attributes = cel(["", *facts.volume_attributes_classes])
    return f"{storage} && {claim}.spec.?volumeAttributesClassName.orValue('') in {attributes}"


def _claims(facts: GuardFacts) -> str:
    """A claim that is there keeps its class: it can still be enlarged."""
    return f"""({_classes(facts, "dyn(object)")}) || (oldObject != null
        && {same_field("storageClassName")} && {same_field("volumeAttributesClassName")})"""


# Attacks


def _foreign_volumes(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": place.environment.claim_classes[0],
    }
    plain = minimal("PersistentVolumeClaim", spec=spec)
    sentence, anything = "bind a volume that another tenant released", {"matchLabels": {"team": "another-team"}}
    yield create(scene, place, "stor-03", "volume", sentence, plain, "/spec/volumeName", "pv-of-another-tenant")
    yield create(scene, place, "stor-03", "selector", f"{sentence}, by its labels", plain, "/spec/selector", anything)
    yield create(scene, place, "stor-03", "classless", f"{sentence}, of no class", plain, "/spec/storageClassName", "")
    annotated_claim = put(plain, "/metadata/annotations", {"note": "hello"})
    at = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class"
    yield create(scene, place, "stor-03", "old-annotation", f"{sentence}, by an annotation", annotated_claim, at, "")


def _inline_volumes(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    inline = [{"name": "data", "csi": {"driver": "s3.csi.aws.com"}}]
    yield Case("stor-04", "inline", "mount a volume with the driver's rights", "/spec/volumes", inline, kinds=ALL_KINDS)


def _foreign_classes(_scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    plain = minimal("PersistentVolumeClaim", spec={**DISK, "storageClassName": place.environment.claim_classes[0]})
    plain["metadata"]["annotations"] = {"note": "hello"}
    unknown_class, fast = (
        "use a class of volumes that the platform did not choose for tenants",
        "raise its volume's price",
    )
    for field, bad, sentence in (
        ("storageClassName", "class-of-others", unknown_class),
        ("volumeAttributesClassName", "fastest", fast),
    ):
        slug = field.removesuffix("Name").lower()
        yield against(place, "stor-12", slug, sentence, "tenancy-claims", plain, f"/spec/{field}", bad)
        for name, manifest, where in claims_of_pods(place):
            policy, at = policy_of(place, manifest["kind"]), f"{where}/spec/{field}"
            yield against(place, "stor-12", f"{name}-{slug}", sentence, policy, manifest, at, bad)


RULES: tuple[Rule, ...] = (
    Rule(
        id="stor-01",
        title="a prefix is relative, of printable ASCII, ends with '/' and contains no wildcard, quote or '..'",
        why="'teams/fraud' without the slash also matches 'teams/fraud-2'",
        fix="write the prefix as 'teams/<tenant>/'",
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="stor-02",
        title="two tenants' prefixes do not overlap unless both only read",
        why="one tenant could read or overwrite the other's data",
        fix="give each tenant a prefix of its own",
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="stor-05",
        title="a grant that may write but not delete needs a versioned bucket",
        why="without versions an overwrite destroys data as a delete does",
        fix="set versioned to true on the bucket",
        aws_settings={aws.VERSIONING: "versioningConfiguration"},
    ),
    Rule(
        id="stor-06",
        title="a grant is no wider than the tier's max-storage-access",
        why="a tier that may only read could change data that others rely on",
        fix="narrow the grant's access, or move the namespace to a tier that may write",
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="stor-07",
        title="a namespace's grants do not overlap",
        why=(
            "rights add up: the wider grant also applies to the narrower grant's prefix, so the narrower one limits "
            "nothing"
        ),
        fix="write one grant for the prefix, or limit the two to different namespaces",
        severity=Severity.MEDIUM,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="stor-08",
        title="a bucket keeps its objects when the program is destroyed",
        why="the bucket may hold the only copy of a tenant's data",
        fix="drop forceDestroy; empty the bucket by hand before it is removed",
        severity=Severity.MEDIUM,
        aws_settings={aws.BUCKET: "forceDestroy"},
    ),
    Rule(
        id="stor-10",
        title="a bucket refuses public access, whatever its policy and its access lists say",
        why="one statement or access list that allows everyone publishes every object",
        fix="set all four fields of the bucket's public access block to true",
        advises=True,
    ),
    Rule(
        id="stor-11",
        title="a key of KMS rotates every year",
        why="without rotation, key material that leaks decrypts everything that was ever encrypted with it",
        fix="set enableKeyRotation to true",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="stor-03",
        title="a PersistentVolumeClaim names a storage class and no volume",
        why="a volume name, a selector or an empty class binds a volume that another tenant left behind",
        fix="set storageClassName; drop volumeName, selector and volume.beta.kubernetes.io/storage-class",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.CLAIMS: f"""has(object.spec.storageClassName) && object.spec.storageClassName != ''
        && object.metadata.?annotations[?{cel(OLD_CLASS)}].orValue(object.spec.storageClassName)
            == object.spec.storageClassName
        && !has(object.spec.selector)
        && (!has(object.spec.volumeName) || object.spec.volumeName == ''
            || request.userInfo.username == {cel(VOLUME_BINDER)}
            || (oldObject != null && has(oldObject.spec.volumeName)
                && oldObject.spec.volumeName == object.spec.volumeName))"""
        },
        attacks=(at_home(_foreign_volumes),),
    ),
    Rule(
        id="stor-12",
        title="a claim names a storage class, and a class of volume attributes, that the environment lists",
        why=(
            "a class decides whether a volume is encrypted, whose tags it has, what it costs and with which "
            "driver it is "
            "made; on a cluster that exists there are classes for others"
        ),
        fix=(
            "set storageClassName to a class of platform.storage-classes, tenancy-gp3 by default; the platform "
            "team adds "
            "classes there and under platform.volume-attributes-classes"
        ),
        guards={
            GuardSubject.PODS: lambda facts: each_claim_of_volumes(_classes(facts)),
            GuardSubject.CLAIMS_OF_WORK: lambda facts: by_resource_of_work(facts, (CLAIM_TEMPLATES, _classes(facts))),
            GuardSubject.CLAIMS: _claims,
        },
        attacks=(at_home(_foreign_classes),),
    ),
    Rule(
        id="stor-04",
        title="a pod has no inline CSI volume",
        why="such a volume is mounted with the driver's own rights, without a claim and outside of the quota",
        fix="make a PersistentVolumeClaim",
        guards={GuardSubject.PODS: "!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.csi))"},
        attacks=(through_all_kinds(_inline_volumes),),
    ),
    Rule(
        id="stor-09",
        title="a PersistentVolume of a program is reserved for one claim, and is mounted with the rights of the pod",
        why=(
            "any namespace may claim a volume without a claimRef; with the driver's rights every pod that "
            "mounts a volume "
            "reads what the driver may read"
        ),
        fix="name namespace and claim under claimRef; with Mountpoint for S3 set authenticationSource: pod",
        severity=Severity.CRITICAL,
    ),
)
