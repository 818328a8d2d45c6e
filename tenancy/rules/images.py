"""Images of containers and of nodes."""

from __future__ import annotations

from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.expressions import cel, may
from tenancy.rules.model import Face, Rule, Severity, Subject
from tenancy.rules.values import IMAGE_ASTRAY, IMAGE_DIGEST


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

RULES: tuple[Rule, ...] = (
    Rule(
        id="img-04",
        title="a tag of a repository always names the same image",
        why="a tag that moves brings an image that was not reviewed into running work",
        fix="set imageTagMutability to IMMUTABLE",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW,
        advises=True,
    ),
    Rule(
        id="ami-01",
        title="node images are no older than the release that fixes the known container escapes",
        why="older container toolkits give an image every GPU of a node, and older runtimes the node itself",
        fix="use the release of the catalogue, or a newer one",
        severity=Severity.CRITICAL,
        enforced=Face.SPEC | Face.PREVIEW,
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
        enforced=Face.PREVIEW,
        advises=True,
    ),
    Rule(
        id="img-01",
        title="images come from the environment's registries",
        why="an image from another registry runs unscanned code next to other tenants",
        fix="push the image to a registry that the environment lists",
        enforced=Face.SPEC | Face.ATTACK,
        guards={Subject.PODS: _every_image(_PLACED)},
    ),
    Rule(
        id="img-02",
        title="an image is named by digest, or by a tag other than latest where the tier takes tags",
        why="a tag that moves can come to name an unscanned image",
        fix="write the image with @sha256:<digest>, or with the tag of a release",
        severity=Severity.MEDIUM,
        enforced=Face.SPEC | Face.PREVIEW | Face.ATTACK,
        partial={Face.PREVIEW: "it does not know whether a tier takes tags, so any tag but latest passes"},
        guards={Subject.PODS: _every_image(_FIXED)},
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
        enforced=Face.SPEC,
    ),
)
