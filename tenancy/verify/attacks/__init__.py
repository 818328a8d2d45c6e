"""The attacks that `tenancy verify` sends, derived from the environment's own files.

A rule's attacks are in the file of its family, `tenancy/rules/<family>.py`. Here are those on controls without rules:
RBAC, quotas, limit ranges and Pod Security.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog.frameworks import Framework
from tenancy.rules.attacks import Attack, Request, differences, skipped
from tenancy.rules.catalogue import RULES
from tenancy.rules.faces import with_face
from tenancy.rules.model import Face
from tenancy.verify.attacks.access import access_attacks
from tenancy.verify.attacks.clock import clock_attacks
from tenancy.verify.attacks.device_claims import claim_attacks
from tenancy.verify.attacks.entries import from_entries
from tenancy.verify.attacks.limits import limit_attacks
from tenancy.verify.attacks.nodes import node_attacks
from tenancy.verify.attacks.queues import queue_attacks
from tenancy.verify.attacks.scene import AttackedNamespace, Scene
from tenancy.verify.attacks.surface import surface_attacks

RULES_ATTACKED = with_face(Face.ATTACK)
"""Rules of the catalogue that attacks test; RBAC, quota and Pod Security have attacks of their own beside them.

A single environment does not exercise all of them: gpu-08, on what a claim may say, is attacked where GPUs are claimed,
gpu-07, on a pod with a claim, where they are not, and rules on the queue where the environment has one.
"""

__all__ = [
    "RULES_ATTACKED",
    "Attack",
    "AttackedNamespace",
    "Request",
    "Scene",
    "all_attacks",
    "differences",
    "from_entries",
]


def all_attacks(scene: Scene) -> tuple[Attack, ...]:
    """Every attack that applies to the environment and its cluster; those that do not are marked as skipped."""
    rule_attacks = (attack for rule in RULES.values() for attacks in rule.attacks for attack in attacks(scene))
    attacks = (
        *_not_attacked(scene),
        *rule_attacks,
        *claim_attacks(scene),
        *limit_attacks(scene),
        *queue_attacks(scene),
        *clock_attacks(scene),
        *access_attacks(scene),
        *surface_attacks(scene),
        *node_attacks(scene),
    )
    return tuple(_if_served(attack, scene.unserved) for attack in attacks) if scene.unserved else attacks


def _not_attacked(scene: Scene) -> Iterator[Attack]:
    """Attacks that are left out: without people who may make work, without a queue, and what exists already."""
    if scene.home is None:
        reason = "no tenant has a developer or an owner"
        yield skipped("pods", "gpu-02", "attack through pods", reason)
        yield skipped("claims", "gpu-07", "attack through device claims", reason)
        yield skipped("objects", "gpu-04", "attack through objects", reason)
        yield skipped("queues", "kueue-01", "start work without the queue", reason)
    elif not scene.home.environment.has_queues:
        yield skipped("queues", "kueue-01", "start work without the queue", "the environment has no queue")
    else:
        reason = "only running work can be enlarged, and the attacks create nothing"
        yield skipped("kueue-27-parallelism", "kueue-27", "run more pods than the queue has counted", reason)
        reason = "only existing work can be deleted, and the attacks create nothing"
        yield skipped("kueue-25-orphan", "kueue-25", "leave running pods that no queue counts", reason)
        reason = "only existing work can be scaled, and the attacks create nothing"
        yield skipped("kueue-34-waits", "kueue-34", "hold GPUs without pods that could be evicted", reason)
        reason = "only Kueue can admit work, and the attacks create nothing"
        yield skipped("kueue-35-counts", "kueue-35", "add pods while the queue admits the work", reason)


def _if_served(attack: Attack, missing: Sequence[Framework]) -> Attack:
    """The attack, skipped if one of its requests is for a kind whose operator is not installed: nothing answers it."""
    paths = [request.path.partition("?")[0] for request in (attack.request, attack.twin)]
    kinds = [
        framework.kind
        for framework in missing
        if any(
            path.startswith(f"/apis/{framework.group}/{framework.version}/") and framework.resource in path.split("/")
            for path in paths
        )
    ]
    if attack.skipped or not kinds:
        return attack
    return skipped(attack.id, attack.rule, attack.attack, f"the cluster serves no {kinds[0]}: its operator is missing")
