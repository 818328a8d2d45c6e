"""Sharing of idle GPUs: between departments by their weights, between a tenant's own queues by what they used.
No borrower keeps them for ever.

What Kueue's share of a department, tenant or queue counts (v0.19.2 `pkg/cache/scheduler/fair_sharing.go`): for each
resource, what is held above the quota below it, of all pools together, divided by all that its parent could lend;
the largest of these by its weight. The smallest share with its next piece of work added goes first, at each level of
the tree. Here 24 GPUs are the owner's, who lends them all; risk weighs 2 and markets 1.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import town
from scene import GPU, PLATFORM, QUEUE, Object, Scene, collection, condition, holds

from tenancy.catalog import vocabulary
from tenancy.planning.queueing.queue_names import API, BOARD_COMPUTE, BOARD_MEMORY
from tenancy.planning.queueing.quota_shares import BOARD
from tests.waiting import until

pytestmark = pytest.mark.exhaustive(
    reason="shares that settle over minutes; weights and their settings are in tests/unit/planning/queueing"
)

SLICED = "  serve: {instance-type: p4d.24xlarge, nodes: 1, mig: {layout: {1g.5gb: 4, 3g.20gb: 1}}}\n"
FILES = {
    "environment.yaml": town.ENVIRONMENT.replace("nodes: 8", "nodes: 6") + SLICED,
    "tenants/slices.yaml": town.tenant("slices", "research", "guaranteed: 8").replace(
        "guaranteed: 8}}", "guaranteed: 8}, a100-1g.5gb: {guaranteed: 32}, a100-3g.20gb: {guaranteed: 8}}"
    ),
    "tenants/owner.yaml": town.tenant("owner", "research", "guaranteed: 24, sharing: lend, lending-limit: 24"),
    "tenants/fraud.yaml": town.tenant(
        "fraud",
        "risk",
        "guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 24",
    ),
    "tenants/pricing.yaml": town.tenant(
        "pricing", "markets", "guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 24"
    ),
    "tenants/scoring.yaml": town.tenant("scoring", "markets", "guaranteed: 8", "production"),
    "tenants/nightly.yaml": town.tenant(
        "nightly", "risk", "guaranteed: 8", more="namespaces: [{name: main, queues: {heavy: 1, light: 1}}]\n"
    ),
}
SETTINGS = {"admissionFairSharing": {"usageSamplingInterval": "3s", "usageHalfLifeTime": "10m"}}
"""Use is looked at every five minutes, and halves in a week: here every three seconds, in ten minutes."""


def rush(scene: Scene, tenant: str, count: int, **more: str) -> list[str]:
    names = [f"{tenant}-{number}" for number in range(count)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: scene.submit(tenant, name, 1, **more), names))
    return names


def all_at_once(scene: Scene) -> str:
    """The owner uses all of its GPUs."""
    home = scene.submit("owner", "all", 8, 3)
    scene.until_runs(home, "all")
    return home


def gives_way(scene: Scene, home: str) -> None:
    path = f"{collection('batch/v1', 'Job', home)}/all?propagationPolicy=Background"
    scene.api.request("DELETE", path)


def test_what_becomes_idle_is_shared_by_the_departments_weights(scene: Scene) -> None:
    """24 jobs of a GPU wait in fraud of risk and 24 in pricing of markets when the owner's 24 GPUs become idle. Kueue
    starts one of each queue at a time, whatever their weights: 24 admissions later they hold 12 each. Only then the
    weights count: four more admissions of fraud, each for an eviction of pricing, and they hold 16 and 8."""
    home = all_at_once(scene)
    rush(scene, "pricing", 24)
    rush(scene, "fraud", 24)
    gives_way(scene, home)
    scene.until_held("fraud", 16)
    scene.until_held("pricing", 8)
    until(lambda: sum(scene.evictions(scene.space("pricing")).values()) == 4, "four evictions")
    assert scene.evictions(scene.space("fraud")) == {}
    sentence = "It ran on borrowed GPUs, which went to a queue that uses less for its weight."
    assert scene.until_said(scene.space("pricing"), min(scene.evictions()), sentence).startswith(sentence)


def test_who_comes_late_gets_its_share_by_as_many_evictions_as_admissions(scene: Scene) -> None:
    """fraud has borrowed all 24. pricing's first job takes one of them by one eviction, its second another, and after
    eight they hold 16 and 8; its ninth waits, for its share would be the larger one."""
    scene.clear()
    rush(scene, "fraud", 24)
    scene.until_held("fraud", 24)
    names = rush(scene, "pricing", 10)
    scene.until_held("pricing", 8)
    scene.until_held("fraud", 16)
    assert sum(scene.evictions(scene.space("fraud")).values()) == 8
    assert scene.evictions(scene.space("pricing")) == {}
    late = scene.not_running(scene.space("pricing"), names)
    assert len(late) == 2
    assert "other queues do not lend that many" in scene.until_said(
        scene.space("pricing"), late[-1], "waits for 1 more"
    )


def test_a_share_is_that_of_the_scarcest_resource(scene: Scene) -> None:
    """pricing's jobs take 22 cores with their GPU, twice what comes with one: its CPU counts, and twice. So risk, with
    its weight of 2, has four jobs for each of markets': 19 or 20 and 4 or 5 of 24."""
    scene.clear()
    home = all_at_once(scene)
    rush(scene, "pricing", 12, cpu="22")
    rush(scene, "fraud", 24)
    gives_way(scene, home)
    until(lambda: scene.gpus_in_use("fraud") in {19, 20}, "fraud has 19 or 20")
    until(lambda: scene.gpus_in_use("pricing") in {4, 5}, "pricing has 4 or 5")


def test_the_owner_gets_back_what_it_lent(scene: Scene) -> None:
    """All 24 are lent: the owner's 24-GPU job runs as soon as those who borrowed them are evicted."""
    scene.clear()
    rush(scene, "fraud", 24)
    scene.until_held("fraud", 24)
    home = all_at_once(scene)
    scene.until_held("fraud", 0)
    assert sum(scene.evictions(scene.space("fraud")).values()) == 24
    scene.until_held("owner", 24)
    gives_way(scene, home)


def test_a_lender_starves_in_queues_that_are_written_by_hand(scene: Scene) -> None:
    """The counter-example: two ClusterQueues of one cohort, with Kueue's defaults. reclaimWithinCohort is Never and
    everything is lent: the borrower has the lender's 8 GPUs, and the lender's job is not given them back. The test
    before is the same story in our queues."""
    scene.clear()
    for name in ("lender", "borrower"):
        _by_hand(scene, name, 8 if name == "lender" else 0)
    try:
        for name in ("borrower", "lender"):
            space = f"by-hand--{name}"
            _create(scene, _plain_job(scene, space))
            if name == "borrower":
                scene.until_runs(space, "work")
        scene.until_waits("by-hand--lender", "work")
        message = condition(scene.workload("by-hand--lender", "work"), "QuotaReserved")["message"]
        assert "insufficient unused quota" in message
        assert "preemption" not in message.lower() or "not" in message.lower()
        assert scene.runs("by-hand--borrower", "work")
        assert not holds(scene.workload("by-hand--borrower", "work"), "Evicted")
        spec = scene.api.request("GET", f"{collection(API, 'ClusterQueue')}/hand--lender").body["spec"]
        assert spec["preemption"]["reclaimWithinCohort"] == "Never"
    finally:
        for name in ("lender", "borrower"):
            scene.api.request("DELETE", f"/api/v1/namespaces/by-hand--{name}")
        until(lambda: not [n for n in scene.items("Namespace", None, "v1") if _is_by_hand(n)], "their spaces are gone")
        for kind, name in (("ClusterQueue", "hand--lender"), ("ClusterQueue", "hand--borrower")):
            scene.api.request("DELETE", f"{collection(API, kind)}/{name}")
        scene.api.request("DELETE", f"{collection(API, 'ResourceFlavor')}/by-hand")


def _is_by_hand(item: Object) -> bool:
    return item["metadata"]["name"].startswith("by-hand")


def _by_hand(scene: Scene, name: str, gpus: int) -> None:
    space = f"by-hand--{name}"
    like = next(o for o in scene.plan.objects() if o["metadata"]["name"] == scene.space("owner"))
    facts = {"name": space, "labels": {vocabulary.TENANT: "hand"}, "annotations": like["metadata"]["annotations"]}
    scene.put({"apiVersion": "v1", "kind": "Namespace", "metadata": facts})
    spec = {"nodeLabels": {vocabulary.POOL: "train"}, "tolerations": [{"operator": "Exists"}]}
    scene.put({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "by-hand"}, "spec": spec})
    counted = {GPU: gpus, BOARD_COMPUTE: BOARD * gpus, BOARD_MEMORY: BOARD * gpus}
    quota = {"name": "by-hand", "resources": [{"name": r, "nominalQuota": str(n)} for r, n in counted.items()]}
    groups = [{"coveredResources": list(counted), "flavors": [quota]}]
    spec = {"cohortName": "by-hand", "namespaceSelector": {}, "resourceGroups": groups}
    scene.put({"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": f"hand--{name}"}, "spec": spec})
    local = {"name": "default", "namespace": space}
    spec = {"clusterQueue": f"hand--{name}"}
    scene.put({"apiVersion": API, "kind": "LocalQueue", "metadata": local, "spec": spec})
    until(lambda: holds(scene.items("LocalQueue", space)[0], "Active"), "its queue is open")


def _plain_job(scene: Scene, space: str) -> Object:
    job = scene.job("owner", "work", 8)
    job["metadata"] |= {"namespace": space, "labels": {QUEUE: "default"}}
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: "8"}}
    return job


def _create(scene: Scene, item: Object) -> None:
    where = collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"])
    answer = scene.api.request("POST", where, item, PLATFORM)
    assert answer.ok, answer.message


def test_of_a_tenants_queues_who_used_less_goes_first(scene: Scene) -> None:
    """nightly's queue heavy has used the tenant's 8 GPUs for a while, light has not. Two jobs wait in heavy and,
    later, one in light: when the GPUs are free, light's goes first. Kueue may look at one of the three alone."""
    scene.clear()
    home = scene.submit("nightly", "first", 8, queue="heavy")
    scene.until_runs(home, "first")
    until(lambda: _used(scene, home, "heavy") not in {"", "0"}, "its use is counted")
    for name, queue in (("second", "heavy"), ("third", "heavy"), ("light", "light")):
        scene.submit("nightly", name, 8, queue=queue)
    for name in ("second", "third", "light"):
        scene.until_said(home, name, "It waits for 8 more nvidia.com/gpu")
    scene.api.request("DELETE", f"{collection('batch/v1', 'Job', home)}/first?propagationPolicy=Background")
    scene.until_runs(home, "light")
    assert not scene.runs(home, "second")
    assert not scene.runs(home, "third")


def _used(scene: Scene, space: str, queue: str) -> str:
    (local_queue,) = [q for q in scene.items("LocalQueue", space) if q["metadata"]["name"] == queue]
    sharing = (local_queue.get("status") or {}).get("fairSharing") or {}
    used = (sharing.get("admissionFairSharingStatus") or {}).get("consumedResources") or {}
    return str(used.get(vocabulary.PREFIX + "board-compute", ""))


def test_a_tier_that_never_borrows_keeps_its_guarantee_and_is_never_evicted(scene: Scene) -> None:
    """scoring is production, guaranteed 8: its second job of 8 waits though 24 GPUs are idle. Then two departments
    borrow all 24 and the owner calls them back: scoring's first job is not touched."""
    scene.clear()
    home = scene.submit("scoring", "one", 8)
    scene.until_runs(home, "one")
    scene.submit("scoring", "two", 8)
    scene.until_waits(home, "two")
    assert "It waits for 8 more nvidia.com/gpu in pool train" in scene.why(home, "two").sentence
    rush(scene, "fraud", 12)
    rush(scene, "pricing", 12)
    until(lambda: scene.gpus_in_use("fraud") + scene.gpus_in_use("pricing") == 24, "all 24 are borrowed")
    all_at_once(scene)
    until(lambda: scene.gpus_in_use("fraud") + scene.gpus_in_use("pricing") == 0, "all 24 are given back")
    assert scene.runs(home, "one")
    assert scene.evictions(home) == {}
    scene.until_held("scoring", 8)
    scene.until_borrowed("scoring", 0)


def test_a_tenants_urgent_work_evicts_only_its_own(scene: Scene) -> None:
    """nightly's 8 GPUs run work of no class. Its work of class batch takes their place; fraud's, which is no more
    urgent and borrows, stays: who borrows is evicted for a guarantee, not for urgency."""
    scene.clear()
    neighbour_space = scene.submit("fraud", "beside", 8)
    home = scene.submit("nightly", "usual", 8)
    scene.until_runs(neighbour_space, "beside")
    scene.until_runs(home, "usual")
    scene.submit("nightly", "urgent", 8, priority="batch")
    scene.until_runs(home, "urgent")
    assert scene.evictions() == {"usual": 1}
    sentence = "More urgent work of its own tenant took its place."
    assert scene.until_said(home, "usual", sentence).startswith(sentence)
    assert scene.runs(neighbour_space, "beside")


def test_of_equal_work_who_came_first_goes_first(scene: Scene) -> None:
    """Three jobs wait for nightly's 8 GPUs: `tenancy why` counts who is ahead in the same queue, and says of each what
    it says of the first, the one that Kueue looks at."""
    scene.clear()
    home = scene.submit("nightly", "runs", 8)
    scene.until_runs(home, "runs")
    names = ["next-0", "next-1", "next-2"]
    for name in names:
        scene.submit("nightly", name, 8)
        until(lambda name=name: scene.workload(home, name), f"{name} is queued")
    for name in names:
        assert "It waits for 8 more nvidia.com/gpu in pool train" in scene.until_said(home, name, "waits for")
    assert scene.why(home, names[0]).ahead == 0
    assert scene.why(home, names[-1]).ahead in range(3), "those of the same second are equal"


def test_a_large_slice_waits_where_only_small_ones_are_free(scene: Scene) -> None:
    """A node is cut into 32 of 1g.5gb and 8 of 3g.20gb. With all eight in use the ninth waits, although 30 small ones
    are free: no controller cuts one into the other. Both kinds and whole GPUs are counted in boards too: 24 units of
    compute for a 3g, 8 for a 1g, 56 for a whole one."""
    scene.clear()
    home = scene.submit("slices", "whole", 1)
    scene.submit("slices", "large", 1, 8, flavor="a100-3g.20gb")
    scene.submit("slices", "small", 1, 2, flavor="a100-1g.5gb")
    scene.until_runs(home, "whole", "large", "small")
    scene.submit("slices", "ninth", 1, flavor="a100-3g.20gb")
    scene.until_said(home, "ninth", "It waits for 1 more nvidia.com/mig-3g.20gb in pool serve")
    expected_reservations = {
        ("serve", BOARD_COMPUTE): "208",
        ("train", BOARD_COMPUTE): "56",
        ("serve", BOARD_MEMORY): "238",
    }
    until(
        lambda: expected_reservations.items() <= _reserved(scene, "slices").items(), f"boards: {expected_reservations}"
    )
    for flavor, count in (("a100", 1), ("a100-3g.20gb", 8), ("a100-1g.5gb", 2)):
        assert scene.gpus_in_use("slices", flavor=flavor) == count


def _reserved(scene: Scene, tenant: str) -> dict[tuple[str, str], str]:
    reservations = scene.queue(tenant, "batch")["status"]["flavorsReservation"]
    return {(flavor["name"], r["name"]): r["total"] for flavor in reservations for r in flavor["resources"]}
