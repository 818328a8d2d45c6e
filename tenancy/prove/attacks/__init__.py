"""The attacks that `tenancy verify` sends, derived from the environment's own files."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog.frameworks import Framework
from tenancy.prove.attacks.access import access_attacks
from tenancy.prove.attacks.claims import claim_attacks
from tenancy.prove.attacks.clock import clock_attacks
from tenancy.prove.attacks.counts import count_attacks
from tenancy.prove.attacks.keys import key_attacks
from tenancy.prove.attacks.limits import limit_attacks
from tenancy.prove.attacks.model import Attack, Request, differences, from_entries, skipped
from tenancy.prove.attacks.nodes import node_attacks
from tenancy.prove.attacks.objects import object_attacks
from tenancy.prove.attacks.pods import pod_attacks
from tenancy.prove.attacks.queues import queue_attacks
from tenancy.prove.attacks.scene import AttackedNamespace, Scene
from tenancy.prove.attacks.security import security_attacks
from tenancy.prove.attacks.sizes import size_attacks
from tenancy.prove.attacks.surface import surface_attacks
from tenancy.prove.attacks.unmanaged import unmanaged_attacks
from tenancy.rules.catalogue import Face, with_face

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
    attacks = (
        *pod_attacks(scene),
        *claim_attacks(scene),
        *object_attacks(scene),
        *limit_attacks(scene),
        *size_attacks(scene),
        *key_attacks(scene),
        *security_attacks(scene),
        *queue_attacks(scene),
        *count_attacks(scene),
        *clock_attacks(scene),
        *access_attacks(scene),
        *surface_attacks(scene),
        *node_attacks(scene),
        *unmanaged_attacks(scene),
    )
    return tuple(_if_served(attack, scene.unserved) for attack in attacks) if scene.unserved else attacks


def _if_served(attack: Attack, missing: Sequence[Framework]) -> Attack:
    """The attack, skipped if one of its requests is for a kind whose operator is not installed: nothing answers it."""
    paths = [request.path.partition("?")[0] for request in (attack.request, attack.twin)]
    kinds = [
        each.kind
        for each in missing
        if any(
            path.startswith(f"/apis/{each.group}/{each.version}/") and each.resource in path.split("/")
            for path in paths
        )
    ]
    if attack.skipped or not kinds:
        return attack
    return skipped(attack.id, attack.rule, attack.attack, f"the cluster serves no {kinds[0]}: its operator is missing")
