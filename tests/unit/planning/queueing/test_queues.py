"""Queues of tenants: their quotas, and the amounts that they may lend and borrow."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import judges
import pytest

from tenancy import planning
from tenancy.catalog import boards, vocabulary
from tenancy.catalog.controllers import QUEUE as LABEL
from tenancy.kube.objects import Object
from tenancy.kube.quantities import parse
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes, node_allocatable, node_taints
from tenancy.planning.common.priorities import priorities
from tenancy.planning.kubernetes.queue_defaults import queue_defaults
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import (
    ANY_POOL,
    BOARD_COMPUTE,
    BOARD_MEMORY,
    CORES,
    MEMORY,
    ROOT,
    TOPOLOGIES,
    department_cohort,
    flavor_name,
    pool_of,
    queue_name,
    tenant_cohort,
)
from tenancy.planning.queueing.queues import machine_resources
from tenancy.planning.queueing.quota_shares import BOARD, board_units, quota_ceiling, shares, supply
from tenancy.spec import loader
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load
from tests import cel_runtime
from tests.conftest import SpecFolder, amounts, every, nonempty, unreserved

STACKS = Path(__file__).parents[4] / "stacks"
ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"
GPU, SLICE, REPLICA = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"
BORROWS = "{guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
BLOCK = "{capacity-block: cr-0123abcd, ends: 2027-03-01}"
EFA = "{instance-type: p4d.24xlarge, nodes: 2, efa: on, zones: [eu-central-1a], tenants: [fraud]}"


def plan_of(spec: SpecFolder) -> Plan:
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def queues(plan: Plan) -> Iterator[Object]:
    yield from plan.platform.queues
    for tenant in plan.tenants:
        yield from tenant.queues


def queue_object(plan: Plan, kind: str, name: str) -> Object:
    (match,) = [o for o in queues(plan) if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return match


def objects_by_name(plan: Plan, kind: str) -> dict[str, Object]:
    """Objects of a kind by name. There is one at least: a loop over none would show nothing."""
    objects = if_any(plan, kind)
    assert objects, f"no {kind} in the plan"
    return objects


def if_any(plan: Plan, kind: str) -> dict[str, Object]:
    """Objects of a kind by name; for a test of whether there are any."""
    return {o["metadata"]["name"]: o for o in queues(plan) if o["kind"] == kind}


def cluster_queue(plan: Plan, name: str) -> Object:
    return queue_object(plan, "ClusterQueue", name)


def flavors(queue: Object) -> list[str]:
    """Kueue's flavors of GPUs, in the order in which they are tried."""
    return [flavor["name"] for group in queue["spec"]["resourceGroups"][1:] for flavor in group["flavors"]]


def local(plan: Plan, namespace: str) -> dict[str, Object]:
    spaces = {space.name: space for tenant in plan.tenants for space in tenant.namespaces}
    return {o["metadata"]["name"]: o["spec"] for o in spaces[namespace].isolation if o["kind"] == "LocalQueue"}


# The tree


def test_the_tree_is_organisation_department_tenant_and_tier(plan: Plan) -> None:
    parents = {name: cohort["spec"].get("parentName") for name, cohort in objects_by_name(plan, "Cohort").items()}
    assert parents == {
        "organisation": None,
        "department--risk": "organisation",
        "department--research": "organisation",
        "tenant--fraud": "department--risk",
    }
    leads = {name: queue["spec"]["cohortName"] for name, queue in objects_by_name(plan, "ClusterQueue").items()}
    assert leads == {
        "fraud--batch": "tenant--fraud",
        "fraud--production": "tenant--fraud",
        "research--batch": "department--research",
    }


def test_the_only_queue_of_a_tenant_has_the_limits_and_the_weight_that_its_cohort_would_have(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "{name: serve, tier: production, ", "{name: serve, ")
    spec.edit(FRAUD, "gpus: {a100-1g.5gb: 14}, quota", "quota")
    spec.edit(FRAUD, "  a100-1g.5gb: {guaranteed: 14}\n", "")
    spec.add(FRAUD, "weight: 5\n")
    alone = cluster_queue(plan_of(spec), "fraud--batch")
    spec.edit(FRAUD, "{name: serve, ", "{name: serve, tier: production, ")
    plan = plan_of(spec)
    cohort, queue = queue_object(plan, "Cohort", "tenant--fraud"), cluster_queue(plan, "fraud--batch")
    assert alone["spec"]["cohortName"] == cohort["spec"]["parentName"]
    assert alone["spec"]["fairSharing"] == cohort["spec"]["fairSharing"] == {"weight": "5"}
    assert amounts(alone) == amounts(queue)
    for limit in ("borrowingLimit", "lendingLimit"):
        assert {k: n for k, n in amounts(alone, limit).items() if n} == {
            k: n for k, n in amounts(cohort, limit).items() if n
        }


def test_a_department_without_tenants_is_there_for_the_first_one(spec: SpecFolder) -> None:
    spec.edit(ENV, "    research: {}", "    research: {}\n    retail: {}")
    assert queue_object(plan_of(spec), "Cohort", "department--retail")["spec"]["parentName"] == ROOT


def test_two_namespaces_of_one_tier_share_a_queue(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "  - {name: serve, tier: production", "  - {name: more}\n  - {name: serve, tier: production")
    plan = plan_of(spec)
    assert {q["clusterQueue"] for part in ("train", "more") for q in local(plan, f"fraud--{part}").values()} == {
        "fraud--batch"
    }


def test_a_second_tier_is_one_queue_more_and_renames_none(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "{name: serve, tier: production, ", "{name: serve, ")
    spec.edit(FRAUD, "gpus: {a100-1g.5gb: 14}, quota", "quota")
    spec.edit(FRAUD, "  a100-1g.5gb: {guaranteed: 14}\n", "")
    before = {o["metadata"]["name"] for o in plan_of(spec).tenant("fraud").queues}
    spec.edit(FRAUD, "{name: train, ", "{name: train, tier: production, ")
    after = {o["metadata"]["name"] for o in plan_of(spec).tenant("fraud").queues}
    assert after - before == {"fraud--production", "tenant--fraud"}
    assert before - after == set()


def test_only_the_tenants_own_namespaces_may_use_its_queues(plan: Plan) -> None:
    for tenant in nonempty(plan.tenants):
        for queue in (o for o in tenant.queues if o["kind"] == "ClusterQueue"):
            assert queue["spec"]["namespaceSelector"] == {"matchLabels": {vocabulary.TENANT: tenant.name}}
        for space in tenant.namespaces:
            assert space.namespace["metadata"]["labels"][vocabulary.TENANT] == tenant.name


def test_names_are_as_long_as_a_label_may_be_and_never_meet() -> None:
    parts = ["a", "b", "a-b", "b-a", "a-a", "t" * 30]
    tiers = ["a", "b", "a-b", "b-a", "r" * 31]
    queue_names = {(tenant, tier): queue_name(tenant, tier) for tenant, tier in product(parts, tiers)}
    assert len(set(queue_names.values())) == len(queue_names)
    assert max(map(len, queue_names.values())) == vocabulary.LABEL_LENGTH
    cohorts = [ROOT, *(department_cohort(name) for name in parts), *(tenant_cohort(name) for name in parts)]
    assert len(set(cohorts)) == len(cohorts)


def test_no_pool_can_be_called_like_the_flavor_of_machines(spec: SpecFolder) -> None:
    spec.edit(ENV, "  train: {inst", f"  {ANY_POOL}: {{inst")
    assert spec.problem().id == "name-01"


def test_queues_are_made_after_what_they_stand_on(plan: Plan) -> None:
    order = [o["kind"] for o in plan.platform.queues]
    assert order == sorted(order, key=["Topology", "ResourceFlavor", "WorkloadPriorityClass", "Cohort"].index)
    assert [o["kind"] for o in plan.tenants[0].queues] == ["Cohort", "ClusterQueue", "ClusterQueue"]


@pytest.mark.parametrize("stack", ["bank", "local"])
def test_kueue_refuses_no_object_of_an_example(stack: str) -> None:
    loaded = load(STACKS / stack)
    plan = make_plan(loaded, loaded.day)
    objects = [*queues(plan), *(o for t in plan.tenants for s in t.namespaces for o in s.isolation)]
    problems = {o["metadata"]["name"]: judges.kueue(o) for o in objects if o["apiVersion"].startswith("kueue")}
    assert len(problems) > 10
    assert {name: messages for name, messages in problems.items() if messages} == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(lendingLimit="1T"), "must be less than or equal to the nominalQuota"),
        (lambda r: r.update(name="cpus"), "must match the name in coveredResources"),
        (lambda r: r.update(nominalQuota="-1"), "must be greater than or equal to 0"),
        (lambda r: r.update(lending="1"), "unknown field"),
    ],
)
def test_kueue_would_say_what_is_wrong_with_one(plan: Plan, change: Any, says: str) -> None:
    """So that its silence above means something."""
    queue = cluster_queue(plan, "fraud--batch")
    groups = [
        {**g, "flavors": [{**f, "resources": [dict(r) for r in f["resources"]]} for f in g["flavors"]]}
        for g in queue["spec"]["resourceGroups"]
    ]
    change(groups[0]["flavors"][0]["resources"][0])
    (problem,) = judges.kueue({**queue, "spec": {**queue["spec"], "resourceGroups": groups}})
    assert says in problem


def test_without_a_queue_there_is_none(spec: SpecFolder) -> None:
    spec.add(ENV, "queues: {scheduler: none}\n")
    spec.edit(FRAUD, BORROWS, "{guaranteed: 16}")
    plan = plan_of(spec)
    assert list(queues(plan)) == []
    assert plan.platform.queue_chart is None
    assert not [o for o in plan.objects() if o["apiVersion"].startswith("kueue")]


# Resource groups


def test_every_flavor_of_a_group_lists_all_its_resources_in_order(plan: Plan) -> None:
    for item in nonempty(queues(plan)):
        for group in item["spec"].get("resourceGroups", ()) if "spec" in item else ():
            for flavor in group["flavors"]:
                assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_machines_are_counted_once_and_gpus_by_pool(plan: Plan) -> None:
    queue = cluster_queue(plan, "research--batch")
    machines, gpus = queue["spec"]["resourceGroups"]
    assert (machines["coveredResources"], [f["name"] for f in machines["flavors"]]) == (["cpu", "memory"], [ANY_POOL])
    assert gpus["coveredResources"] == [GPU, REPLICA, BOARD_COMPUTE, BOARD_MEMORY]
    assert [flavor["name"] for flavor in gpus["flavors"]] == ["notebooks", "train"]


def test_a_tenant_without_gpus_has_a_queue_of_machines(spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "gpus:\n  a100: {guaranteed: 8}\n  l4-shared: {guaranteed: 16}\n", "")
    plan = plan_of(spec)
    assert [g["coveredResources"] for g in cluster_queue(plan, "research--batch")["spec"]["resourceGroups"]] == [
        ["cpu", "memory"]
    ]
    assert set(amounts(cluster_queue(plan, "research--batch")).values()) == {0}


def test_every_limit_below_the_root_is_written(plan: Plan) -> None:
    """An absent one would mean all there is; and the root, which has no parent, may have none."""
    for kind in ("Cohort", "ClusterQueue"):
        for name, item in objects_by_name(plan, kind).items():
            for limit in ("borrowingLimit", "lendingLimit"):
                limits = amounts(item, limit)
                assert limits.keys() == (set() if name == ROOT else amounts(item).keys()), f"{limit} of {name}"


def test_amounts_are_spelt_as_kueue_writes_them_back(spec: SpecFolder) -> None:
    """Its webhook writes the whole object anew, and a second run would see another text."""
    spec.edit(ENV, "  serve:\n", "  general: {instance-type: m7i.4xlarge, nodes: 2}\n  serve:\n")
    spec.edit(ENV, "quota: {cpu: 128, memory: 512Gi, ", "quota: {cpu: 10000, memory: 512Gi, ")
    spec.edit(FRAUD, "quota: {cpu: 16, pods: 20}", "quota: {cpu: 2000, pods: 20}")
    spec.edit(FRAUD, "gpus: {a100-1g.5gb: 14}, ", "")
    spec.edit(FRAUD, "  a100-1g.5gb: {guaranteed: 14}\n", "")
    (machines,) = [
        {r["name"]: r["nominalQuota"] for r in group["flavors"][0]["resources"]}
        for group in cluster_queue(plan_of(spec), "fraud--production")["spec"]["resourceGroups"][:1]
    ]
    assert machines == {"cpu": "2k", "memory": "512Gi"}


def test_cohorts_below_the_root_have_nothing_of_their_own(plan: Plan) -> None:
    for name, cohort in nonempty(objects_by_name(plan, "Cohort").items()):
        assert name == ROOT or set(amounts(cohort).values()) == {0}


# Lending and borrowing


@pytest.mark.parametrize(
    ("share", "lends", "borrows"),
    [
        ("{guaranteed: 16}", 0, 0),
        ("{guaranteed: 16, sharing: strict}", 0, 0),
        ("{guaranteed: 16, sharing: lend}", 16, 0),
        ("{guaranteed: 16, sharing: lend, lending-limit: 0}", 0, 0),
        ("{guaranteed: 5, sharing: lend-and-borrow}", 5, 5),
        ("{guaranteed: 16, sharing: lend, lending-limit: 5}", 5, 0),
        ("{guaranteed: 16, sharing: lend-and-borrow, borrowing-limit: 7}", 16, 7),
        ("{guaranteed: 16, sharing: lend-and-borrow, lending-limit: 16, borrowing-limit: 7}", 16, 7),
        ("{guaranteed: 16, sharing: lend-and-borrow, lending-limit: 16, borrowing-limit: 10000}", 16, 16),
    ],
)
def test_a_tenant_lends_and_borrows_what_it_says_and_never_more_than_there_is(
    spec: SpecFolder, share: str, lends: int, borrows: int
) -> None:
    spec.edit(FRAUD, BORROWS, share)
    cohort = queue_object(plan_of(spec), "Cohort", "tenant--fraud")
    assert amounts(cohort, "lendingLimit")["train", GPU] == lends
    assert amounts(cohort, "borrowingLimit")["train", GPU] == borrows
    assert amounts(cohort, "lendingLimit")["train", BOARD_COMPUTE] == lends * BOARD
    assert amounts(cohort, "borrowingLimit")["train", BOARD_COMPUTE] == borrows * BOARD


def test_what_is_lent_of_two_pools_is_no_more_than_what_is_lent_in_all(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", "  also: {instance-type: p4d.24xlarge, nodes: 2}\n  serve:\n")
    spec.edit(FRAUD, BORROWS, "{guaranteed: 40, sharing: lend, lending-limit: 35}")
    lent = amounts(queue_object(plan_of(spec), "Cohort", "tenant--fraud"), "lendingLimit")
    assert (lent["also", GPU], lent["train", GPU]) == (16, 19)


def test_a_preset_holds_for_its_flavor_alone(plan: Plan) -> None:
    cohort = queue_object(plan, "Cohort", "tenant--fraud")
    assert amounts(cohort, "lendingLimit")["serve", SLICE] == amounts(cohort, "borrowingLimit")["serve", SLICE] == 0


def test_what_is_lent_brings_its_cpu_and_memory(plan: Plan, environment: Environment) -> None:
    lent = amounts(queue_object(plan, "Cohort", "tenant--fraud"), "lendingLimit")
    node_room, daemonsets = node_allocatable(environment, "train"), environment.daemonset_resources("train")
    assert lent[ANY_POOL, "cpu"] == 8 * Decimal((node_room.cpu - daemonsets.cpu) // 8) / 1000
    assert lent[ANY_POOL, "memory"] == 8 * ((node_room.memory - daemonsets.memory) // 8) * 2**20


def test_a_strict_department_is_an_island(spec: SpecFolder) -> None:
    cohort = queue_object(plan_of(spec), "Cohort", "department--risk")
    assert {*amounts(cohort, "lendingLimit").values(), *amounts(cohort, "borrowingLimit").values()} == {0}


@pytest.mark.parametrize(("preset", "borrows"), [("lend", False), ("lend-and-borrow", True)])
def test_a_department_lends_what_its_tenants_lend(spec: SpecFolder, preset: str, borrows: bool) -> None:
    spec.edit(ENV, "    risk: {title: Risk and Compliance}", f"    risk: {{sharing: {preset}}}")
    plan = plan_of(spec)
    cohort = queue_object(plan, "Cohort", "department--risk")
    lent, borrowed = amounts(cohort, "lendingLimit"), amounts(cohort, "borrowingLimit")
    assert (lent["train", GPU], lent["serve", SLICE]) == (8, 0)
    assert borrowed["train", GPU] == (32 if borrows else 0), "all there is"
    island = queue_object(plan, "Cohort", "department--research")
    assert {*amounts(island, "lendingLimit").values(), *amounts(island, "borrowingLimit").values()} == {0}


def test_a_queue_lends_all_that_it_is_promised_to_its_tenants_other_tiers(plan: Plan) -> None:
    for name in ("fraud--batch", "fraud--production"):
        queue = cluster_queue(plan, name)
        assert amounts(queue, "lendingLimit") == amounts(queue), name


def test_a_tier_that_borrows_reaches_what_other_tiers_hold_and_what_the_tenant_borrows(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "{a100-1g.5gb: 14}, quota: {cpu: 16", "{a100-1g.5gb: 14, a100: 4}, quota: {cpu: 18")
    plan = plan_of(spec)
    batch, production = cluster_queue(plan, "fraud--batch"), cluster_queue(plan, "fraud--production")
    assert (amounts(batch)["train", GPU], amounts(batch, "borrowingLimit")["train", GPU]) == (12, 4 + 16)
    assert (amounts(production)["train", GPU], amounts(production, "borrowingLimit")["train", GPU]) == (4, 12 + 16)


def test_a_tier_that_does_not_borrow_borrows_nothing_of_anything(spec: SpecFolder) -> None:
    spec.edit(ENV, "    priority: 1000\n", "    priority: 1000\n    allow-borrowing: false\n")
    plan = plan_of(spec)
    assert set(amounts(cluster_queue(plan, "fraud--production"), "borrowingLimit").values()) == {0}
    assert amounts(cluster_queue(plan, "fraud--production"))["serve", SLICE] == 14
    assert amounts(cluster_queue(plan, "fraud--batch"), "borrowingLimit")["train", GPU] == 16


def test_what_is_lent_stands_first_in_pools_that_others_may_use(spec: SpecFolder) -> None:
    """With 16 in a pool of its own and 16 in one for all tenants fraud lends 8: those that others can borrow."""
    spec.edit(ENV, "  serve:\n", f"  far: {EFA}\n  serve:\n")
    spec.edit(FRAUD, "a100: {guaranteed: 16", "a100: {guaranteed: 32")
    lent = amounts(queue_object(plan_of(spec), "Cohort", "tenant--fraud"), "lendingLimit")
    assert (lent["far.eks-network", GPU], lent["train", GPU]) == (0, 8)


def test_the_cpu_of_what_is_borrowed_in_one_of_two_pools_is_counted_once(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", "  also: {instance-type: p4d.24xlarge, nodes: 4}\n  serve:\n")
    cohort = queue_object(plan_of(spec), "Cohort", "tenant--fraud")
    borrowed = amounts(cohort, "borrowingLimit")
    assert borrowed["train", GPU] == borrowed["also", GPU] == 16
    assert borrowed[ANY_POOL, "cpu"] < 16 * 12


def test_a_lender_reclaims_its_guarantee_from_any_borrower(plan: Plan) -> None:
    for queue in nonempty(objects_by_name(plan, "ClusterQueue").values()):
        assert queue["spec"]["preemption"] == {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "Never"},
        }


def test_free_gpus_anywhere_come_before_an_eviction(plan: Plan) -> None:
    for queue in nonempty(objects_by_name(plan, "ClusterQueue").values()):
        fungible = queue["spec"]["flavorFungibility"]
        assert fungible == {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}


# Amounts


def test_guarantees_stand_in_pools_and_the_rest_is_the_organisations(plan: Plan) -> None:
    root = amounts(queue_object(plan, "Cohort", ROOT))
    assert amounts(cluster_queue(plan, "fraud--batch"))["train", GPU] == 16
    assert amounts(cluster_queue(plan, "research--batch"))["train", GPU] == 8
    assert root["train", GPU] == 32 - 16 - 8
    assert root["serve", SLICE] == 3 * 56 - 14, "of the nodes that may be made too"
    assert root["notebooks", REPLICA] == 0


def without_gpus(environment: Environment, tenant: Tenant, tier: str) -> bool:
    pools = environment.pools.values()
    return any(not pool.machine.gpus and pool.admits(tenant.tenant, frozenset({tier})) for pool in pools)


@pytest.mark.parametrize("stack", ["bank", "local", "small"])
def test_nothing_is_promised_twice_and_nothing_is_lost(loaded: Loaded, stack: str) -> None:
    stack_files = loaded if stack == "small" else load(STACKS / stack)
    environment, plan = stack_files.environment, make_plan(stack_files, stack_files.day)
    total: Counter[tuple[str, str]] = Counter()
    for item in (queue_object(plan, "Cohort", ROOT), *objects_by_name(plan, "ClusterQueue").values()):
        for where, amount in amounts(item).items():
            total[where] += Fraction(amount)
    units = board_units(environment)
    for name, pool in nonempty(environment.pools.items()):
        compute = memory = 0
        for flavor, per_node in environment.flavors_of(name).items():
            resource, count = environment.resource_of(flavor), per_node * pool.nodes.max
            assert total[flavor_name(environment, name), resource] == count
            compute, memory = compute + count * units[resource][0], memory + count * units[resource][1]
        assert total[flavor_name(environment, name), BOARD_COMPUTE] == compute
        assert total[flavor_name(environment, name), BOARD_MEMORY] == memory
    of_gpus = ((name, pool) for name, pool in environment.pools.items() if pool.machine.gpus)
    nodes = [(node_allocatable(environment, name), pool.nodes.max) for name, pool in of_gpus]
    names = machine_resources(environment)
    per_core = 1000 if names["cpu"] == CORES else 1
    cpu = sum(Fraction(room.cpu * count * per_core, 1000) for room, count in nodes)
    memory = sum(room.memory * count * 2**20 for room, count in nodes)
    # Of pools without GPUs a queue is promised what its namespaces' quotas allow: they have no sum.
    parts = [(t, n) for t in stack_files.tenants for n in t.namespaces if without_gpus(environment, t, t.tier_of(n))]
    quotas = [environment.tiers[tenant.tier_of(part)].quota_for(part.quota) for tenant, part in parts]
    promised = total[ANY_POOL, names["cpu"]] - sum(Fraction(parse(quota.cpu)) for quota in quotas) * per_core
    assert cpu * Fraction(9, 10) < promised <= cpu, "all but the platform's own, and roundings"
    promised = total[ANY_POOL, names["memory"]] - sum(Fraction(parse(quota.memory)) for quota in quotas)
    assert memory * Fraction(9, 10) < promised <= memory


def test_a_board_has_as_many_units_as_its_slices_and_no_more(environment: Environment) -> None:
    """Whole numbers for every profile of every board, so that a full board is never over its own size."""
    for name, board in boards.BOARDS.items():
        for counts in boards.feasible_layouts(name):
            layout = dict(zip(board.profiles, counts, strict=True))
            compute = sum(-(-board.profiles[p].compute * BOARD // board.compute_slices) * n for p, n in layout.items())
            memory = sum(-(-board.profiles[p].memory * BOARD // board.memory_units) * n for p, n in layout.items())
            assert compute <= BOARD, f"{boards.write_layout(layout)} on {name}"
            assert memory <= BOARD, f"{boards.write_layout(layout)} on {name}"
    assert board_units(environment) == {GPU: (56, 56), SLICE: (8, 7), REPLICA: (14, 14)}


@pytest.mark.parametrize(("replicas", "units_per_replica"), [(2, 28), (3, 19), (5, 12), (8, 7)])
def test_a_replica_is_a_share_of_a_board_rounded_up(spec: SpecFolder, replicas: int, units_per_replica: int) -> None:
    """So replicas of one board may be a little more than it: in what is asked for and in what is promised alike."""
    spec.edit(ENV, "time-slicing: 4", f"time-slicing: {replicas}")
    spec.edit(RESEARCH, "{guaranteed: 16}", "{guaranteed: 8}")
    assert board_units(spec.load().environment)[REPLICA] == (units_per_replica, units_per_replica)


def test_of_two_boards_with_one_name_for_their_slices_the_larger_counts(spec: SpecFolder) -> None:
    more = "  h100-1g.10gb: {gpu: h100-80gb, mig: 1g.10gb}\n  a100-1g.10gb: {gpu: a100-40gb, mig: 1g.10gb}\npools:\n"
    more += "  one: {instance-type: p4d.24xlarge, nodes: 1, mig: {layout: {1g.10gb: 4}}, tenants: [fraud]}\n"
    more += "  two: {instance-type: p5.48xlarge, nodes: 1, mig: {layout: {1g.10gb: 7}}, tenants: [research]}\n"
    spec.edit(ENV, "pools:\n", more)
    environment = spec.load().environment
    assert environment.resource_of("h100-1g.10gb") == environment.resource_of("a100-1g.10gb")
    assert board_units(environment)["nvidia.com/mig-1g.10gb"] == (8, 14), "a quarter of the smaller board's memory"


def test_of_two_ways_to_share_the_larger_replica_counts(spec: SpecFolder) -> None:
    twice = "{instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {time-slicing: 2}, tenants: [research]}"
    spec.edit(ENV, "  serve:\n", f"  a-twice: {twice}\n  serve:\n")
    assert board_units(spec.load().environment)[REPLICA] == (28, 28), "though a GPU of the other pool has four"


def test_what_a_job_asks_for_is_changed_into_what_the_queue_has(plan: Plan, environment: Environment) -> None:
    """A tenant that asks for all that it holds is within its boards too, to the unit."""
    rates = {
        transformation["input"]: transformation["outputs"]
        for transformation in configuration(environment)["resources"]["transformations"]
    }
    for name, queue in nonempty(objects_by_name(plan, "ClusterQueue").items()):
        quotas = amounts(queue)
        for pool in flavors(queue):
            for board in (BOARD_COMPUTE, BOARD_MEMORY):
                requested = sum(quotas[pool, r] * int(rates[r][board]) for p, r in quotas if p == pool and r in rates)
                assert requested == quotas[pool, board], f"{board} of {name} in {pool}"


def test_the_most_that_a_namespace_holds_is_what_its_queue_could_give(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", "  also: {instance-type: p4d.24xlarge, nodes: 1}\n  serve:\n")
    loaded = spec.load()
    fraud = loaded.tenants[0]
    train, serve = fraud.namespaces
    assert quota_ceiling(loaded.environment, fraud, train) == {"a100": 16 + 16 + 8, "a100-1g.5gb": 0}
    assert quota_ceiling(loaded.environment, fraud, serve) == {"a100": 16 + 16 + 8, "a100-1g.5gb": 14}


def test_the_most_that_a_namespace_of_a_firm_tier_holds_is_what_its_tier_is_promised(spec: SpecFolder) -> None:
    spec.edit(ENV, "    priority: 1000\n", "    priority: 1000\n    allow-borrowing: false\n")
    spec.edit(FRAUD, "people:", "  - {name: score, tier: production, gpus: {a100-1g.5gb: 0, a100: 3}}\npeople:")
    loaded = spec.load()
    fraud = loaded.tenants[0]
    for part in nonempty(fraud.namespaces[1:]):
        assert quota_ceiling(loaded.environment, fraud, part) == {"a100": 3, "a100-1g.5gb": 14}, part.name


def test_a_guarantee_stands_whole_in_one_pool_if_it_can(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", "  also: {instance-type: p4d.24xlarge, nodes: 2}\n  serve:\n")
    plan = plan_of(spec)
    assert amounts(cluster_queue(plan, "fraud--batch"))["also", GPU] == 16
    assert amounts(cluster_queue(plan, "research--batch"))["train", GPU] == 8


def test_a_tenant_that_comes_changes_no_namespace_of_another_and_its_queues_where_both_have_a_choice(
    spec: SpecFolder,
) -> None:
    spec.edit(ENV, "  serve:\n", "  also: {instance-type: p4d.24xlarge, nodes: 3}\n  serve:\n")
    loaded = spec.load()
    fraud, research = loaded.tenants
    share = research.gpus["a100"].model_copy(update={"guaranteed": 20})
    bigger = research.model_copy(update={"gpus": {**research.gpus, "a100": share}})
    alone, with_small, with_big = (
        planning.plan(unreserved(loaded.environment), tenants).tenant("fraud")
        for tenants in ([fraud], [fraud, research], [fraud, bigger])
    )
    assert alone.namespaces == with_small.namespaces == with_big.namespaces
    assert alone.queues == with_small.queues
    where = [{pool for (pool, r), n in amounts(t.queues[1]).items() if r == GPU and n} for t in (alone, with_big)]
    assert where == [{"also"}, {"train"}], "20 stand whole in the pool that comes first, and 16 in the other"


# Weights, order, stopping


def test_weights_stand_where_they_are_compared(spec: SpecFolder) -> None:
    spec.edit(ENV, "    risk: {title: Risk and Compliance}", "    risk: {weight: 3}")
    spec.add(FRAUD, "weight: 5\n")
    spec.edit(FRAUD, "{name: train, ", "{name: train, weight: 7, queues: {urgent: 9}, ")
    plan = plan_of(spec)
    weights = {name: cohort["spec"].get("fairSharing") for name, cohort in objects_by_name(plan, "Cohort").items()}
    assert weights == {
        "organisation": None,
        "department--risk": {"weight": "3"},
        "department--research": {"weight": "1"},
        "tenant--fraud": {"weight": "5"},
    }
    assert {name: q["fairSharing"]["weight"] for name, q in local(plan, "fraud--train").items()} == {
        "default": "7",
        "urgent": "9",
    }


def test_who_used_less_goes_first_among_a_tenants_queues(plan: Plan) -> None:
    for queue in nonempty(objects_by_name(plan, "ClusterQueue").values()):
        assert queue["spec"]["admissionScope"] == {"admissionMode": "UsageBasedAdmissionFairSharing"}


def test_a_tenants_queues_count_alike(spec: SpecFolder) -> None:
    spec.add(FRAUD, "weight: 5\n")
    plan = plan_of(spec)
    for name in ("fraud--batch", "fraud--production"):
        assert cluster_queue(plan, name)["spec"]["fairSharing"] == {"weight": "1"}


def test_a_tier_says_whether_later_work_may_overtake(spec: SpecFolder) -> None:
    spec.edit(ENV, "    priority: 1000\n", "    priority: 1000\n    queueing-strategy: strict-fifo\n")
    plan = plan_of(spec)
    assert cluster_queue(plan, "fraud--production")["spec"]["queueingStrategy"] == "StrictFIFO"
    assert cluster_queue(plan, "fraud--batch")["spec"]["queueingStrategy"] == "BestEffortFIFO"


@pytest.mark.parametrize(("gate", "stop"), [("none", "None"), ("hold", "Hold"), ("hold-and-drain", "HoldAndDrain")])
def test_a_tenants_gate_stops_its_queues_and_no_others(spec: SpecFolder, gate: str, stop: str) -> None:
    spec.add(FRAUD, f"stop-policy: {gate}\n")
    policies = {
        name: queue["spec"]["stopPolicy"] for name, queue in objects_by_name(plan_of(spec), "ClusterQueue").items()
    }
    assert policies == {"fraud--batch": stop, "fraud--production": stop, "research--batch": "None"}


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the day on which files are read and plans made."""

    def set_day(text: str) -> None:
        monkeypatch.setattr(loader, "today", lambda: dt.date.fromisoformat(text))

    return set_day


def block(spec: SpecFolder) -> None:
    """Research's own pool becomes a capacity block, and its a100 go."""
    spec.edit(
        ENV,
        "    nodes: 1\n    gpu-sharing",
        f"    nodes: 1\n    zones: [eu-central-1a]\n    purchase: {BLOCK}\n    gpu-sharing",
    )
    spec.edit(RESEARCH, "  a100: {guaranteed: 8}\n", "")


@pytest.mark.parametrize(
    ("day", "before_end", "stop"),
    [
        ("2027-02-27", "1d", "None"),
        ("2027-02-28", "1d", "Hold"),
        ("2027-03-01", "1d", "Hold"),
        ("2027-02-27", "24h", "None"),
        ("2027-02-27", "48h", "Hold"),
        ("2027-02-27", "25h", None),
        ("2027-02-27", "90m", None),
        ("2027-02-27", "182d", None),
        ("2027-02-27", "181d", "Hold"),
        ("2027-02-21", "1w", None),
        ("2027-02-22", "7d", "Hold"),
        ("2027-02-21", "7d", "None"),
    ],
)
def test_nothing_starts_on_a_capacity_block_that_ends(
    spec: SpecFolder, today: Any, day: str, before_end: str, stop: str | None
) -> None:
    today(day)
    block(spec)
    spec.add(ENV, f"queues: {{hold-before-capacity-block-end: {before_end}}}\n")
    if stop is None:
        assert spec.problem().field == "queues.hold-before-capacity-block-end"
        return
    plan = plan_of(spec)
    queue = cluster_queue(plan, "research--batch")
    assert queue["spec"]["stopPolicy"] == stop
    assert amounts(queue)["notebooks", REPLICA] == (16 if stop == "None" else 0)
    assert amounts(queue_object(plan, "Cohort", ROOT))["notebooks", REPLICA] == 0
    assert cluster_queue(plan, "fraud--batch")["spec"]["stopPolicy"] == "None"


@pytest.mark.parametrize(("day", "stop"), [("2027-01-31", "Hold"), ("2027-02-01", "None"), ("2027-02-02", "None")])
def test_nothing_starts_on_a_capacity_block_before_it_begins(spec: SpecFolder, today: Any, day: str, stop: str) -> None:
    today(day)
    block(spec)
    spec.edit(ENV, "ends: 2027-03-01", "starts: 2027-02-01, ends: 2027-03-01")
    queue = cluster_queue(plan_of(spec), "research--batch")
    assert queue["spec"]["stopPolicy"] == stop
    assert amounts(queue)["notebooks", REPLICA] == (16 if stop == "None" else 0)


def test_who_has_another_pool_goes_on_there_when_a_block_ends(spec: SpecFolder, today: Any) -> None:
    today("2027-02-28")
    more = f"{{instance-type: p4d.24xlarge, nodes: 2, zones: [eu-central-1a], purchase: {BLOCK}}}"
    spec.edit(ENV, "  serve:\n", f"  block: {more}\n  serve:\n")
    queue = cluster_queue(plan_of(spec), "fraud--batch")
    assert queue["spec"]["stopPolicy"] == "None"
    assert (amounts(queue)["block", GPU], amounts(queue)["train", GPU]) == (0, 16)
    assert amounts(queue, "borrowingLimit")["block", GPU] == 0


def test_a_gate_that_is_shut_stays_shut_when_a_block_ends(spec: SpecFolder, today: Any) -> None:
    today("2027-03-01")
    block(spec)
    spec.add(RESEARCH, "stop-policy: hold-and-drain\n")
    assert cluster_queue(plan_of(spec), "research--batch")["spec"]["stopPolicy"] == "HoldAndDrain"


# Flavors


def test_a_flavor_is_a_pool_with_its_taints_tolerated(plan: Plan, environment: Environment) -> None:
    flavors_by_name = objects_by_name(plan, "ResourceFlavor")
    assert flavors_by_name.keys() == {ANY_POOL, *environment.pools}
    assert flavors_by_name.pop(ANY_POOL)["spec"] == {}, "with labels it would send pods without a GPU to GPU nodes"
    for name, flavor in flavors_by_name.items():
        taints = node_taints(name, environment.pools[name])
        assert flavor["spec"]["nodeLabels"] == {vocabulary.POOL: name}
        assert flavor["spec"]["nodeTaints"] == taints
        assert flavor["spec"]["tolerations"] == [{"operator": "Equal", **taint} for taint in taints]


def test_a_pool_without_gpus_is_no_flavor(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", "  general: {instance-type: m7i.4xlarge, nodes: 2}\n  serve:\n")
    plan = plan_of(spec)
    assert "general" not in objects_by_name(plan, "ResourceFlavor")
    quota = amounts(cluster_queue(plan, "research--batch"))
    assert quota[ANY_POOL, "cpu"] > 64, "its CPU is what the namespace's own quota allows, and that of its GPUs"


def test_own_pools_come_first_then_what_is_paid_for_anyway_and_spot_last(spec: SpecFolder) -> None:
    kinds = {
        "a-spot": "nodes: {max: 2}, purchase: spot, tiers: [batch]",
        "a-demand": "nodes: 1, tenants: [research]",
        "b-reserved": "nodes: 1, zones: [eu-central-1a], purchase: {reservation: cr-0123abcd}, tenants: [research]",
        "c-reserved": "nodes: 1, zones: [eu-central-1a], purchase: {reservation: cr-0123abcd}",
        "d-demand": "nodes: 1",
    }
    text = "".join(f"  {name}: {{instance-type: p4d.24xlarge, {fields}}}\n" for name, fields in kinds.items())
    spec.edit(ENV, "  serve:\n", text + "  serve:\n")
    order = flavors(cluster_queue(plan_of(spec), "research--batch"))
    assert order == ["b-reserved", "a-demand", "notebooks", "a-spot", "c-reserved", "d-demand", "train"]


def test_a_queue_spans_the_pools_of_its_tier_alone(plan: Plan) -> None:
    assert flavors(cluster_queue(plan, "fraud--batch")) == ["train"]
    assert flavors(cluster_queue(plan, "fraud--production")) == ["serve", "train"]
    assert flavors(queue_object(plan, "Cohort", "tenant--fraud")) == ["serve", "train"]


def test_a_pool_with_efa_has_a_topology_down_to_the_host(spec: SpecFolder) -> None:
    spec.edit(ENV, "  serve:\n", f"  far: {EFA}\n  serve:\n")
    plan = plan_of(spec)
    levels = [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]
    host = "kubernetes.io/hostname"  # else Kueue minds no node taints
    spec_of = {"levels": [{"nodeLabel": label} for label in (*levels, host)]}
    assert queue_object(plan, "Topology", TOPOLOGIES[3])["spec"] == spec_of
    topologies = {
        name: flavor["spec"].get("topologyName") for name, flavor in objects_by_name(plan, "ResourceFlavor").items()
    }
    assert {name for name, topology in topologies.items() if topology} == {"far.eks-network"}
    assert flavors(cluster_queue(plan, "fraud--batch")) == ["far.eks-network", "train"]


def test_a_pool_that_gets_efa_gets_another_flavor(spec: SpecFolder) -> None:
    """A flavor's topology is immutable."""
    spec.edit(ENV, "  serve:\n", f"  far: {EFA}\n  serve:\n")
    assert "far.eks-network" in objects_by_name(plan_of(spec), "ResourceFlavor")
    spec.edit(ENV, "efa: on, ", "")
    assert "far" in objects_by_name(plan_of(spec), "ResourceFlavor")


@pytest.mark.parametrize("has_tas_request", [True, False], ids=["nodes are asked for", "they come with pods"])
def test_a_pool_with_efa_that_scales_has_a_topology_only_where_nodes_are_asked_for(
    spec: SpecFolder, has_tas_request: bool
) -> None:
    """Kueue places pods on nodes that are there: the pool would never grow beyond its minimum."""
    spec.edit(ENV, "  serve:\n", f"  far: {EFA.replace('nodes: 2', 'nodes: {min: 1, max: 4}')}\n  serve:\n")
    if has_tas_request:
        spec.add(ENV, "queues: {provisioning-class: check-capacity.autoscaling.x-k8s.io}\n")
    plan = plan_of(spec)
    assert (TOPOLOGIES[3] in if_any(plan, "Topology")) is has_tas_request
    assert flavors(cluster_queue(plan, "fraud--batch"))[0] == ("far.eks-network" if has_tas_request else "far")
    assert machine_resources(spec.load().environment)["cpu"] == (CORES if has_tas_request else "cpu")


@pytest.mark.parametrize(
    ("instance", "board", "layers"),
    [
        ("g5.48xlarge", "a10g", 0),
        ("p5.4xlarge", "h100-80gb", 0),
        ("p5.48xlarge", "h100-80gb", 3),
        ("p6-b200.48xlarge", "b200-180gb", 4),
    ],
)
def test_a_pool_has_a_topology_of_the_layers_that_its_nodes_tell(
    spec: SpecFolder, instance: str, board: str, layers: int
) -> None:
    """Kueue takes nodes with all labels of a topology alone: with a layer more it would place nothing there, and with
    one less the narrowest that work can ask for is several switches."""
    spec.edit(ENV, "  l4-shared:", f"  more: {{gpu: {board}}}\n  l4-shared:")
    spec.edit(ENV, "  serve:\n", f"  far: {EFA.replace('p4d.24xlarge', instance)}\n  serve:\n")
    plan = plan_of(spec)
    assert set(if_any(plan, "Topology")) == ({TOPOLOGIES[layers]} if layers else set())
    (node, _) = [item for item in fake_nodes(spec.load().environment) if item["metadata"]["name"].startswith("far-")]
    layer_labels = {label for label in node["metadata"]["labels"] if label.startswith(vocabulary.NETWORK_LAYER)}
    assert len(layer_labels) == layers
    for topology in if_any(plan, "Topology").values():
        assert {level["nodeLabel"] for level in topology["spec"]["levels"]} == layer_labels | {"kubernetes.io/hostname"}
    assert {pool_of(flavor) for flavor in objects_by_name(plan, "ResourceFlavor")} == {
        ANY_POOL,
        *spec.load().environment.pools,
    }


def test_beside_a_topology_machines_have_names_that_no_pod_asks_for(spec: SpecFolder) -> None:
    """And the same amounts: CPU in thousandths, memory in bytes."""
    spec.edit(ENV, "  serve:\n", "  far: {instance-type: p4d.24xlarge, nodes: 4}\n  serve:\n")
    plain = amounts(cluster_queue(plan_of(spec), "research--batch"))
    spec.edit(ENV, "far: {instance-type: p4d.24xlarge, nodes: 4}", f"far: {EFA.replace('nodes: 2', 'nodes: 4')}")
    environment, queue = spec.load().environment, cluster_queue(plan_of(spec), "research--batch")
    assert queue["spec"]["resourceGroups"][0]["coveredResources"] == [CORES, MEMORY]
    assert amounts(queue)[ANY_POOL, CORES] == 1000 * plain[ANY_POOL, "cpu"]
    assert amounts(queue)[ANY_POOL, MEMORY] == plain[ANY_POOL, "memory"]
    kueue_config = configuration(environment)
    outputs_by_input = {
        transformation["input"]: transformation for transformation in kueue_config["resources"]["transformations"]
    }
    assert outputs_by_input["cpu"] == {"input": "cpu", "strategy": "Replace", "outputs": {CORES: "1000"}}
    assert outputs_by_input["memory"] == {"input": "memory", "strategy": "Replace", "outputs": {MEMORY: "1"}}
    assert kueue_config["admissionFairSharing"]["resourceWeights"].items() >= {CORES: 0.0, MEMORY: 0.0}.items()
    assert judges.kueue(kueue_config) == []
    names = machine_resources(environment)
    for item in queues(plan_of(spec)):
        for group in item.get("spec", {}).get("resourceGroups", ())[:1]:
            assert group["coveredResources"] == list(names.values()), "the same in all queues, else none could borrow"


def test_without_efa_there_is_no_topology(plan: Plan) -> None:
    assert if_any(plan, "Topology") == {}


def test_every_priority_class_has_a_twin_for_queued_work(plan: Plan, environment: Environment) -> None:
    classes_by_name = objects_by_name(plan, "WorkloadPriorityClass")
    assert {name: item["value"] for name, item in classes_by_name.items()} == priorities(environment)
    assert classes_by_name.keys() == {item["metadata"]["name"] for item in plan.platform.priorities}


# Namespaces


def test_every_namespace_has_a_queue_for_work_that_names_none(plan: Plan) -> None:
    for tenant in nonempty(plan.tenants):
        for space in tenant.namespaces:
            assert vocabulary.DEFAULT_QUEUE in local(plan, space.name)


def test_a_namespaces_queues_lead_to_its_own_tier(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "{name: train, ", "{name: train, queues: {urgent: 9}, ")
    plan = plan_of(spec)
    assert {q["clusterQueue"] for q in local(plan, "fraud--train").values()} == {"fraud--batch"}
    assert {q["clusterQueue"] for q in local(plan, "fraud--serve").values()} == {"fraud--production"}
    assert {q["stopPolicy"] for q in local(plan, "fraud--train").values()} == {"None"}, "the tenant's gate is above"


@pytest.mark.parametrize(("gate", "stop"), [("none", "None"), ("hold", "Hold"), ("hold-and-drain", "HoldAndDrain")])
def test_a_namespaces_gate_stops_its_own_queues_and_no_other_namespaces(spec: SpecFolder, gate: str, stop: str) -> None:
    spec.edit(FRAUD, "{name: train, ", f"{{name: train, stop-policy: {gate}, queues: {{urgent: 9}}, ")
    plan = plan_of(spec)
    assert {name: q["stopPolicy"] for name, q in local(plan, "fraud--train").items()} == {
        "default": stop,
        "urgent": stop,
    }
    assert {q["stopPolicy"] for q in local(plan, "fraud--serve").values()} == {"None"}
    assert {q["spec"]["stopPolicy"] for q in objects_by_name(plan, "ClusterQueue").values()} == {"None"}


# Provisioning


OF_JOBSET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "sweep", "controller": True}
OF_CRONJOB = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
OF_OTHERS = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "etl", "controller": True}


@pytest.mark.parametrize(
    ("operation", "labels", "owner", "before", "named_by_us"),
    [
        ("CREATE", None, None, None, True),
        ("CREATE", {"app": "x"}, None, None, True),
        ("CREATE", {LABEL: ""}, None, None, True),
        ("CREATE", {LABEL: "nightly"}, None, None, False),
        ("CREATE", {}, OF_CRONJOB, None, True),
        ("CREATE", {}, OF_OTHERS, None, True),
        ("CREATE", {}, OF_JOBSET, None, False),
        ("CREATE", {}, OF_JOBSET | {"controller": False}, None, True),
        ("UPDATE", {}, None, {LABEL: "nightly"}, True),
        ("UPDATE", {}, None, {"app": "x"}, False),
    ],
)
def test_work_without_a_queue_gets_a_name_and_what_is_counted_with_other_work_does_not(
    spec: SpecFolder, operation: str, labels: Any, owner: Any, before: Any, named_by_us: bool
) -> None:
    """A part of a JobSet is counted with it, and work that runs without the queue stays as it is."""
    spec.edit(ENV, "buckets:", "queues: {kinds: [jobset]}\nbuckets:")
    policy, _ = queue_defaults(spec.load().environment)
    meta = {"name": "work", **({} if labels is None else {"labels": labels})}
    data = {
        "object": {"metadata": meta | ({"ownerReferences": [owner]} if owner else {})},
        "oldObject": {"metadata": {"name": "work", "labels": before or {}}},
        "request": {"operation": operation},
    }
    holds = [cel_runtime.evaluated(condition["expression"], data) for condition in policy["spec"]["matchConditions"]]
    assert every(holds) == named_by_us, holds


@pytest.mark.parametrize(("version", "count"), [("1.35", 0), ("1.36", 2)])
def test_the_policy_that_names_queues_is_where_the_api_server_has_it(
    spec: SpecFolder, version: str, count: int
) -> None:
    environment = spec.load().environment
    cluster = environment.cluster.model_copy(update={"kubernetes": version})
    policy_objects = queue_defaults(environment.model_copy(update={"cluster": cluster}))
    assert len(policy_objects) == count


def test_no_autoscaler_is_asked_for_nodes_unless_a_class_is_named(plan: Plan) -> None:
    assert if_any(plan, "AdmissionCheck") == if_any(plan, "ProvisioningRequestConfig") == {}
    assert every(
        "admissionChecksStrategy" not in queue["spec"] for queue in objects_by_name(plan, "ClusterQueue").values()
    )


def test_a_class_is_asked_for_pools_that_scale_alone(spec: SpecFolder) -> None:
    spec.add(ENV, "queues: {provisioning-class: check-capacity.autoscaling.x-k8s.io}\n")
    plan = plan_of(spec)
    config = queue_object(plan, "ProvisioningRequestConfig", "provisioning")["spec"]
    assert config["provisioningClassName"] == "check-capacity.autoscaling.x-k8s.io"
    assert config["managedResources"] == sorted([GPU, SLICE, REPLICA])
    checks_by_queue = {
        name: queue["spec"].get("admissionChecksStrategy")
        for name, queue in objects_by_name(plan, "ClusterQueue").items()
    }
    checks = {"admissionChecks": [{"name": "provisioning", "onFlavors": ["serve"]}]}
    assert checks_by_queue == {"fraud--batch": None, "fraud--production": checks, "research--batch": None}
    check = queue_object(plan, "AdmissionCheck", "provisioning")["spec"]
    assert check["parameters"] == {
        "apiGroup": "kueue.x-k8s.io",
        "kind": "ProvisioningRequestConfig",
        "name": "provisioning",
    }


# Devices by claim


@pytest.fixture
def claimed(spec: SpecFolder) -> Loaded:
    spec.edit(ENV, "  cni: vpc-cni", "  cni: vpc-cni\n  devices: dra")
    spec.edit(ENV, "nodes: {min: 1, max: 3}", "nodes: 3")
    spec.edit(ENV, "  l4-shared: {gpu: l4, gpu-sharing: time-slicing}", "  l4: {gpu: l4}")
    spec.edit(ENV, "    gpu-sharing: {time-slicing: 4}\n", "")
    spec.edit(RESEARCH, "  l4-shared: {guaranteed: 16}", "  l4: {guaranteed: 4}")
    spec.edit(ENV, "  serve:\n", f"  far: {EFA}\n  serve:\n")
    return spec.load()


def test_devices_are_counted_under_names_of_ours(claimed: Loaded) -> None:
    plan = make_plan(claimed, claimed.day)
    queue = cluster_queue(plan, "fraud--production")
    assert queue["spec"]["resourceGroups"][1]["coveredResources"] == ["tenancy.gpu/a100", "tenancy.gpu/a100-1g.5gb"]
    assert amounts(queue)["serve", "tenancy.gpu/a100-1g.5gb"] == 14
    mapped = {mapping["name"] for mapping in configuration(claimed.environment)["resources"]["deviceClassMappings"]}
    used = {resource for item in objects_by_name(plan, "ClusterQueue").values() for _, resource in amounts(item)}
    assert used - mapped == {"cpu", "memory"}, "Kueue counts no device without a mapping"


def test_claims_of_devices_are_placed_without_a_topology(claimed: Loaded) -> None:
    plan = make_plan(claimed, claimed.day)
    assert if_any(plan, "Topology") == {}
    assert "far" in objects_by_name(plan, "ResourceFlavor")


def test_shares_of_devices_stand_as_those_of_the_plugin_do(claimed: Loaded) -> None:
    shares_by_tenant = shares(claimed.environment, claimed.tenants, claimed.day)
    assert shares_by_tenant["fraud"].guarantees == {
        "batch": {"far": {"a100": 16}},
        "production": {"serve": {"a100-1g.5gb": 14}},
    }
    assert supply(claimed.environment, claimed.day, always_on=True)["a100"] == {"train": 32, "far": 16}
