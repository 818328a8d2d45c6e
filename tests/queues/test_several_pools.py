"""Which of several pools a tenant's work gets: those where it is promised something before those of others."""

from __future__ import annotations

import pytest
import town
from scene import Scene

pytestmark = pytest.mark.exhaustive(
    reason="several pools on a lab of their own; which comes first is in tests/unit/planning/queueing/test_queues.py"
)

SPARE = "  spare: {instance-type: p4d.24xlarge, nodes: 1, tiers: [batch]}\n"
BORROWS = "guaranteed: 8, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 8"
FILES = {
    "environment.yaml": town.ENVIRONMENT.replace("nodes: 8", "nodes: 1") + SPARE,
    # Of claims of one size the first by name gets the better pool, which is not for all tenants.
    "tenants/fraud.yaml": town.tenant("fraud", "risk", "guaranteed: 8, sharing: lend, lending-limit: 8"),
    "tenants/pricing.yaml": town.tenant("pricing", "markets", BORROWS),
}


def test_work_within_its_guarantee_is_not_put_on_what_others_lend(scene: Scene) -> None:
    """pricing is promised 8 GPUs in train. fraud's 8 in spare, the better pool, are idle when pricing's job comes: it
    runs on its own all the same, and goes on when fraud asks for what it lent."""
    home = scene.submit("pricing", "mine", 8)
    scene.until_runs(home, "mine")
    owner = scene.submit("fraud", "owner", 8)
    scene.until_runs(owner, "owner")
    assert scene.evictions() == {}
    scene.until_held("pricing", 8, "train")
    scene.until_held("fraud", 8, "spare")
    scene.clear()


def test_what_others_lend_comes_after_ones_own(scene: Scene) -> None:
    """pricing's second job runs on what fraud lends in spare, and gives it back."""
    home = scene.submit("pricing", "first", 8)
    scene.until_runs(home, "first")
    scene.submit("pricing", "second", 8)
    scene.until_runs(home, "second")
    scene.until_borrowed("pricing", 8)
    owner = scene.submit("fraud", "owner", 8)
    scene.until_runs(owner, "owner")
    assert scene.evictions().keys() == {"second"}
    assert scene.runs(home, "first")
    scene.clear()
