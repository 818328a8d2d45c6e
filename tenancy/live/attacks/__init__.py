"""The attacks that `tenancy verify` asks, made from the environment's own files."""

from __future__ import annotations

from tenancy.live.attacks.access import access_attacks
from tenancy.live.attacks.claims import claim_attacks
from tenancy.live.attacks.limits import limit_attacks
from tenancy.live.attacks.model import Attack, Request, differences, from_entries
from tenancy.live.attacks.nodes import node_attacks
from tenancy.live.attacks.objects import object_attacks
from tenancy.live.attacks.pods import pod_attacks
from tenancy.live.attacks.queues import queue_attacks
from tenancy.live.attacks.scene import Place, Scene
from tenancy.live.attacks.surface import surface_attacks
from tenancy.plan.guards import BACKSTOPS, GUARDED, OF_DELETIONS

RULES_ATTACKED = tuple(rule for rule in GUARDED if rule not in {*BACKSTOPS, *OF_DELETIONS})
"""Rules of the catalogue that attacks are aimed at; RBAC, quota and Pod Security have theirs beside them.

No one environment gives occasion for all of them: what a claim may say (gpu-08) is attacked where GPUs are claimed, a
pod with a claim (gpu-07) where they are not, and the queue where there is one.
"""

__all__ = ["RULES_ATTACKED", "Attack", "Place", "Request", "Scene", "all_attacks", "differences", "from_entries"]


def all_attacks(scene: Scene) -> tuple[Attack, ...]:
    """Every attack that the environment gives an occasion for, and by name those that it does not."""
    return (
        *pod_attacks(scene),
        *claim_attacks(scene),
        *object_attacks(scene),
        *limit_attacks(scene),
        *queue_attacks(scene),
        *access_attacks(scene),
        *surface_attacks(scene),
        *node_attacks(scene),
    )
