"""Images of containers and of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.attacks import ABSENT, Attack
from tenancy.rules.expressions import cel, may
from tenancy.rules.model import Face, GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.values import IMAGE_ASTRAY, IMAGE_DIGEST
from tenancy.rules.workloads import (
    ALL_KINDS,
    FOREIGN_IMAGE,
    INIT,
    Case,
    in_each_namespace,
    in_queue,
    in_second_templates,
    through_all_kinds,
    withheld,
)


def _every_image(condition: str) -> str:
    """A condition on the image `{0}` of each container and of each image volume."""
    return f"""variables.containers.all(c, has(c.image) && {condition.format("c.image")})
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.image)
            || (has(v.image.reference) && {condition.format("v.image.reference")})))"""


# The last part contains the tag: a registry's port is in the first.
_FIXED = f"""({{0}}.contains('@') ? {{0}}.matches({cel(IMAGE_DIGEST).replace("{", "{{").replace("}", "}}")})
        : {may(Allowance.IMAGE_TAGS)} && {{0}}.matches(':[^/]+$') && !{{0}}.endsWith(':latest'))"""
_PLACED = f"(variables.allowedRegistries.exists(p, {{0}}.startsWith(p)) && !{{0}}.matches({cel(IMAGE_ASTRAY)}))"
"""Whether an image is below a folder of an allowed registry, with no way out of it."""

# Attacks

_AT = "/spec/containers/0/image"


def _foreign(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    image, pull = place.environment.images.sample, "run an image from anywhere"
    yield Case("img-01", "image", pull, _AT, FOREIGN_IMAGE, image, kinds=ALL_KINDS)
    first = {INIT: [{**place.pod()["spec"]["containers"][0], "name": "first"}]}
    yield Case("img-01", "init", f"{pull} as init container", f"{INIT}/0/image", FOREIGN_IMAGE, image, first)
    volumes = {"/spec/volumes": [{"name": "weights", "image": {"reference": image}}]}
    mount, at = "mount an image from anywhere", "/spec/volumes/0/image/reference"
    yield Case("img-01", "volume", mount, at, FOREIGN_IMAGE, image, volumes)
    prefix = place.registries[0].rstrip("/")
    alike, sentence = f"{prefix}.attacker.example/miner:1", "run an image of a registry with a similar name"
    yield Case("img-01", "look-alike", sentence, _AT, alike, image)
    sentence = "run an image of a folder beside its registry's"
    yield Case("img-01", "way-out", sentence, _AT, f"{prefix}/../other/miner:1", image)


def _of_other_tenants(scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    if other_namespace := scene.other_tenant_namespace(place):
        for registry in sorted(set(other_namespace.registries) - set(place.registries)):
            sentence = f"run an image of {other_namespace.tenant.tenant}"
            yield Case("img-01", "foreign-tenant", sentence, _AT, f"{registry}model:1", place.environment.images.sample)


def _second_images(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    return in_second_templates(scene, place, "img-01", _AT, FOREIGN_IMAGE, place.environment.images.sample)


def _moving(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    image, moving = place.environment.images.sample, "run an image by a tag that moves"
    name = image.partition("@")[0]
    latest = f"{name.rpartition(':')[0]}:latest"
    yield Case("img-02", "latest", moving, _AT, latest, image, kinds=ALL_KINDS)
    yield Case("img-02", "no-tag", moving, _AT, latest.removesuffix(":latest"), image)
    yield Case("img-02", "half-digest", "run an image by an incomplete digest", _AT, f"{name}@sha256:abc", image)


def _tagged(scene: AttackScene) -> Iterator[Attack]:
    def tag(image: str) -> str:
        return image.partition("@")[0]

    return withheld(scene, "img-02", "run an image by its tag", Allowance.IMAGE_TAGS, _AT, ABSENT, tag)


RULES: tuple[Rule, ...] = (
    Rule(
        id="img-04",
        title="a tag of a repository always names the same image",
        why="a tag that moves brings an image that was not reviewed into running work",
        fix="set imageTagMutability to IMMUTABLE",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="ami-01",
        title="node images are no older than the release that fixes the known container escapes",
        why="older container toolkits give an image every GPU of a node, and older runtimes the node itself",
        fix="use the release of the catalogue, or a newer one",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="ami-02",
        title="a node image is named by its release",
        why=(
            "a reference to the newest image replaces nodes at a time that was not planned, or keeps the first day's "
            "image"
        ),
        fix="name a release, such as releaseVersion 1.36.3-20260903 or alias al2023@v20260903",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="img-01",
        title="images come from the environment's registries",
        why="an image from another registry runs unscanned code next to other tenants",
        fix="push the image to a registry that the environment lists",
        guards={GuardSubject.PODS: _every_image(_PLACED)},
        attacks=(through_all_kinds(_foreign), in_each_namespace(_of_other_tenants), in_queue(_second_images)),
    ),
    Rule(
        id="img-02",
        title="an image is named by digest, or by a tag other than latest where the tier takes tags",
        why="a tag that moves can come to name an unscanned image",
        fix="write the image with @sha256:<digest>, or with the tag of a release",
        severity=Severity.MEDIUM,
        partial={Face.PREVIEW: "it does not know whether a tier takes tags, so any tag but latest passes"},
        guards={GuardSubject.PODS: _every_image(_FIXED)},
        attacks=(through_all_kinds(_moving), _tagged),
    ),
    Rule(
        id="img-03",
        title="a registry prefix that is open to all tenants contains no tenant's own repository",
        why=(
            "nodes can pull every repository of the account, so a tenant that may name the image can run it, "
            "weights and "
            "all"
        ),
        fix="write {tenant} into the prefix, and keep images for all tenants under a prefix of their own",
    ),
)
