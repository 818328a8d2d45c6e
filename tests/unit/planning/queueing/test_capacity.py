"""Capacity of pools, the guarantees of it, and the remainder after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.generate import generate
from tenancy.catalog import boards
from tenancy.catalog.instances import INSTANCES
from tenancy.planning.common.pools import extended_resources, node_allocatable
from tenancy.planning.queueing.capacity import FlavorSupply, Loss, LossScope, losses, place_by_pools, supply
from tenancy.planning.queueing.pool_yields import PoolYield, parts_of, pool_yield
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool
from tenancy.spec.loader import load
from tests.claims import by_claim
from tests.conftest import ENVIRONMENT, SpecFolder, examples, nonempty

ENV = "environment.yaml"
FRAUD = "tenants/fraud.yaml"
RESEARCH = "tenants/research.yaml"
TRAIN = "train: {instance-type: p4d.24xlarge, nodes: 4}"
SERVE = "    nodes: {min: 1, max: 3}\n    mig:\n      layout: {1g.5gb: 7}"
SLICE = "  a100-1g.5gb: {gpu: a100-40gb, mig: 1g.5gb}"
RESERVED = (
    "train: {{instance-type: p4d.24xlarge, nodes: 4, purchase: {{reservation: cr-0123abcd}}, zones: [eu-central-1a]{}}}"
)


def _yield_of(spec: SpecFolder, pool: str) -> PoolYield:
    loaded = spec.load()
    return pool_yield(loaded.environment, pool, loaded.tenants)


def _supply_of(spec: SpecFolder, flavor: str) -> FlavorSupply:
    loaded = spec.load()
    return next(
        flavor_supply for flavor_supply in supply(loaded.environment, loaded.tenants) if flavor_supply.flavor == flavor
    )


def _loss(spec: SpecFolder, scope: LossScope, where: str, rack: int = 4) -> Loss:
    loaded = spec.load()
    (loss,) = (
        loss for loss in losses(loaded.environment, loaded.tenants, rack) if (loss.scope, loss.where) == (scope, where)
    )
    return loss


def _environment(**pools: dict[str, Any]) -> Environment:
    """The small environment with other pools, and a flavor for each profile of their boards."""
    document = yaml.safe_load(ENVIRONMENT)
    kinds = {INSTANCES[pool["instance-type"]].gpu for pool in pools.values()}
    document["flavors"] = {
        f"{board}-{i}": {"gpu": board, **({"mig": profile} if profile else {})}
        for board in kinds
        for i, profile in enumerate([None, *boards.BOARDS[board].profiles])
    }
    return Environment.model_validate({**document, "pools": pools})


# What a node yields


def test_a_uniform_pool_divides_its_node_evenly(spec: SpecFolder) -> None:
    (unit,) = _yield_of(spec, "train").units
    remaining = _yield_of(spec, "train").left
    assert (unit.count, unit.share, unit.resource) == (8, 1, "nvidia.com/gpu")
    assert (unit.each.cpu, unit.each.memory) == (remaining.cpu // 8, remaining.memory // 8)


def test_a_bigger_slice_gets_more_of_the_node(spec: SpecFolder) -> None:
    spec.edit(ENV, SLICE, SLICE + "\n  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}")
    spec.edit(ENV, SERVE, "    nodes: {min: 1, max: 3}\n    mig: {layout: {1g.5gb: 4, 3g.20gb: 1}}")
    small, big = _yield_of(spec, "serve").units
    assert (small.count, big.count) == (32, 8)
    assert big.each.cpu / small.each.cpu == pytest.approx(Fraction(1, 2) / Fraction(1, 7), rel=0.01)


def test_a_replica_gets_its_part_of_a_gpu(spec: SpecFolder) -> None:
    (unit,) = _yield_of(spec, "notebooks").units
    assert (unit.flavor, unit.count, unit.share) == ("l4-shared", 16, Fraction(1, 4))
    assert unit.each.cpu == _yield_of(spec, "notebooks").left.cpu // 16


def test_whole_gpus_beside_slices_get_what_whole_gpus_get(spec: SpecFolder) -> None:
    spec.edit(
        ENV, SERVE, "    nodes: {min: 1, max: 3}\n    mig: {per-gpu: [{gpus: 2, slices: {1g.5gb: 7}}], strategy: mixed}"
    )
    node_yield = _yield_of(spec, "serve")
    sliced, whole_gpus = node_yield.units
    assert (sliced.count, whole_gpus.count) == (14, 6)
    assert whole_gpus.each.cpu == node_yield.left.cpu // 8
    assert node_yield.layout == "2 x [7 x 1g.5gb] and 6 whole GPUs"


def test_what_the_kubelet_and_the_platform_keep_is_taken_off(spec: SpecFolder) -> None:
    node_yield = _yield_of(spec, "train")
    assert node_yield.memory_gib * 1024 > node_yield.allocatable.memory > node_yield.left.memory
    assert node_yield.left.cpu == node_yield.allocatable.cpu - node_yield.daemonsets.cpu
    assert node_yield.left.pods == 250 - node_yield.daemonsets.pods


def test_pods_are_counted_after_one_for_each_slice(spec: SpecFolder) -> None:
    spec.edit(ENV, SLICE, SLICE + "\n  h100-1g.10gb: {gpu: h100-80gb, mig: 1g.10gb}")
    spec.edit(ENV, TRAIN, TRAIN + "\n  infer: {instance-type: p5.48xlarge, nodes: 2, mig: {layout: {1g.10gb: 7}}}")
    node_yield = _yield_of(spec, "infer")
    assert node_yield.flavors == {"h100-1g.10gb": 56}
    assert node_yield.allocatable.pods == 100
    assert node_yield.pods_left == 100 - node_yield.daemonsets.pods - 56


@pytest.mark.parametrize("pool", ["train", "serve", "notebooks"])
def test_a_yield_is_what_the_nodes_advertise(environment: Environment, pool: str) -> None:
    node_yield = pool_yield(environment, pool)
    assert node_yield.resources == extended_resources(environment, pool)
    assert node_yield.flavors == environment.flavors_of(pool)
    assert node_yield.allocatable == node_allocatable(environment, pool)


def test_efa_interfaces_are_among_the_resources(spec: SpecFolder) -> None:
    change = "train: {instance-type: p4d.24xlarge, nodes: 4, efa: true, tenants: [fraud], zones: [eu-central-1a]}"
    spec.edit(ENV, TRAIN, change)
    spec.edit(RESEARCH, "  a100: {guaranteed: 8}\n", "")
    assert _yield_of(spec, "train").resources == {"vpc.amazonaws.com/efa": 4, "nvidia.com/gpu": 8}


def test_by_claim_a_unit_is_asked_for_by_its_class_and_no_resource_is_advertised(tmp_path: Path) -> None:
    node_yield = _yield_of(by_claim(tmp_path / "small"), "serve")
    assert (node_yield.resources, [unit.resource for unit in node_yield.units]) == ({}, ["a100-1g.5gb"])


def test_slices_of_no_flavor_are_shown_as_lost(spec: SpecFolder) -> None:
    spec.edit(ENV, SERVE, "    nodes: {min: 1, max: 3}\n    mig: {layout: {1g.5gb: 4, 3g.20gb: 1}}")
    node_yield = _yield_of(spec, "serve")
    assert node_yield.flavors == {"a100-1g.5gb": 32}
    assert "8 x 3g.20gb on every node match no flavor: no tenant can be granted them" in node_yield.notes
    assert node_yield.resources["nvidia.com/mig-3g.20gb"] == 8, "the node advertises them all the same"


def test_a_board_that_is_not_cut_to_the_end_says_what_still_fits(spec: SpecFolder) -> None:
    spec.edit(ENV, "layout: {1g.5gb: 7}", "layout: {1g.5gb: 3}")
    assert "8 x [3 x 1g.5gb]: each GPU has room for 4g.20gb more" in _yield_of(spec, "serve").notes


def test_a_full_board_says_nothing(spec: SpecFolder) -> None:
    assert not [note for note in _yield_of(spec, "serve").notes if "room" in note]


def test_a_request_by_default_that_is_more_than_a_slice_gets_is_said(spec: SpecFolder) -> None:
    spec.edit(
        ENV,
        "    priority: 1000\n",
        "    priority: 1000\n    container: {default-request: {memory: 20Gi}, default: {}, max: {}}\n",
    )
    (note,) = _yield_of(spec, "serve").notes
    assert "tier production" in note
    assert "memory 20Gi of " in note
    assert "default-request" in note


def test_a_limit_by_default_that_is_more_than_a_slice_gets_is_said(spec: SpecFolder) -> None:
    (note,) = _yield_of(spec, "serve").notes
    assert "cpu 2 of 1705m" in note, "seven slices of eight GPUs share 95 cores"
    assert "overcommitted" in note


def test_a_tier_that_the_pool_does_not_admit_is_not_judged(spec: SpecFolder) -> None:
    container_limits = "container: {default-request: {memory: 20Gi}, default: {}, max: {}}"
    # As much as 24 GPUs ask for by default, or the files would be refused.
    spec.edit(ENV, "    priority: 100\n", f"    priority: 100\n    quota: {{memory: 512Gi}}\n    {container_limits}\n")
    spec.edit(ENV, "    container:\n      max: {cpu: 32, memory: 128Gi}\n", "")
    assert not [note for note in _yield_of(spec, "serve").notes if "batch" in note]
    assert [note for note in _yield_of(spec, "notebooks").notes if "batch" in note], "research is of that tier"


def test_a_pool_without_a_minimum_says_that_it_backs_nothing(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, TRAIN + "\n  more: {instance-type: p4d.24xlarge, nodes: {min: 0, max: 2}}")
    assert "nodes.min is 0: the pool backs no guarantee" in _yield_of(spec, "more").notes


_BATCH = "  cpu: {instance-type: m7i.4xlarge, nodes: %s, tiers: [batch]}\n"
_LESS = ["128 cores, and all nodes of cpu have 111 cores", "512Gi, and all nodes of cpu have 394Gi"]


@pytest.mark.parametrize(
    ("pools", "amounts"),
    [
        (_BATCH % 10, []),
        (_BATCH % "{min: 1, max: 10}", []),
        (_BATCH % 7, _LESS),
        (_BATCH % 7 + "  other: {instance-type: m7i.4xlarge, nodes: 99, tiers: [production]}\n", _LESS),
        (_BATCH % 7 + "  other: {instance-type: m7i.4xlarge, nodes: 99}\n", []),
    ],
    ids=["as much", "as much at most", "less", "more, where others come", "more, where they come too"],
)
def test_quotas_beyond_the_pools_without_gpus_are_said(spec: SpecFolder, pools: str, amounts: list[str]) -> None:
    """Of these Kueue knows nothing else: what it lets start beyond the nodes waits for one."""
    spec.edit(ENV, "  serve:\n", f"{pools}  serve:\n")
    notes = _yield_of(spec, "cpu").notes
    assert len(notes) == len(amounts)
    for note, much in zip(notes, amounts, strict=True):
        assert f"quotas of the namespaces that come here are {much}: " in note


_CUTTABLE = ("p4d.24xlarge", "p5.4xlarge", "p5.48xlarge", "p6-b200.48xlarge", "g7e.2xlarge", "g7e.48xlarge")


@st.composite
def _pools(draw: st.DrawFn) -> dict[str, Any]:
    """A pool of any type, cut in up to three ways, or shared."""
    name = draw(st.sampled_from(_CUTTABLE))
    board, unassigned_gpus = INSTANCES[name].gpu, INSTANCES[name].gpus
    parts = []
    while unassigned_gpus and draw(st.booleans()):
        gpus = draw(st.integers(1, unassigned_gpus))
        counts = draw(st.sampled_from(boards.feasible_layouts(board)))
        slices = {profile: n for profile, n in zip(boards.BOARDS[board].profiles, counts, strict=True) if n}
        parts.append({"gpus": gpus, "slices": slices})
        unassigned_gpus -= gpus
    nodes = draw(st.sampled_from([1, {"min": 0, "max": 2}, {"min": 1, "max": 2}]))
    return {"instance-type": name, "nodes": nodes, **({"mig": {"per-gpu": parts}} if parts else {})}


@settings(max_examples=examples(60))
@given(pool=_pools())
def test_what_all_units_get_together_is_never_more_than_the_node_has(pool: dict[str, Any]) -> None:
    node_yield = pool_yield(_environment(any=pool), "any")
    for resource in ("cpu", "memory", "ephemeral"):
        given_out = sum(unit.count * getattr(unit.each, resource) for unit in node_yield.units)
        remaining = getattr(node_yield.left, resource)
        units = sum(unit.count for unit in node_yield.units)
        assert remaining - units < given_out <= remaining <= getattr(node_yield.allocatable, resource), (
            "only rounding is lost"
        )
    assert node_yield.pods_left >= 0
    assert {unit.flavor: unit.count for unit in node_yield.units} == dict(node_yield.flavors)


@settings(max_examples=examples(60))
@given(pool=_pools())
def test_the_losses_of_single_gpus_add_up_to_the_node(pool: dict[str, Any]) -> None:
    environment = _environment(any=pool)
    pool_losses = losses(environment, ())
    (node,) = (loss for loss in pool_losses if loss.scope is LossScope.NODE)
    singles = [loss for loss in pool_losses if loss.scope is LossScope.GPU]
    summed: dict[str, int] = {}
    for partition, loss in zip(environment.partitions_of("any"), singles, strict=True):
        for flavor, count in loss.units.items():
            summed[flavor] = summed.get(flavor, 0) + partition.gpus * count
    assert summed == node.units == environment.flavors_of("any")


def test_a_part_is_rounded_down() -> None:
    remaining = pool_yield(_environment(any={"instance-type": "p4d.24xlarge", "nodes": 1}), "any").left
    part = parts_of(remaining, {"a": (7, Fraction(1, 7))})["a"]
    assert 7 * part.memory <= remaining.memory < 7 * (part.memory + 1)


# Supply


def test_eighty_nodes_are_640_gpus(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, TRAIN.replace("nodes: 4", "nodes: 80"))
    assert _supply_of(spec, "a100").always_on == 640


def test_a_mixed_layout_yields_both_kinds(spec: SpecFolder) -> None:
    spec.edit(ENV, SLICE, SLICE + "\n  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}")
    spec.edit(ENV, SERVE, "    nodes: 2\n    mig: {layout: {1g.5gb: 4, 3g.20gb: 1}}")
    assert (_supply_of(spec, "a100-1g.5gb").always_on, _supply_of(spec, "a100-3g.20gb").always_on) == (64, 16)


def test_only_the_minimum_is_surely_there(spec: SpecFolder) -> None:
    flavor_supply = _supply_of(spec, "a100-1g.5gb")
    assert (flavor_supply.always_on, flavor_supply.maximum) == (56, 168)


def test_what_is_guaranteed_and_what_is_free_make_what_is_there(spec: SpecFolder) -> None:
    flavor_supply = _supply_of(spec, "a100")
    assert flavor_supply.guaranteed == sum(share.guaranteed for share in flavor_supply.tenants) == 24
    assert (
        flavor_supply.guaranteed + flavor_supply.free
        == flavor_supply.always_on
        == sum(pool.always_on for pool in flavor_supply.pools)
    )
    assert flavor_supply.lendable == sum(share.lends for share in flavor_supply.tenants) == 8


def test_a_tenant_borrows_what_is_free_and_what_others_lend(spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend, lending-limit: 3}")
    borrowable = {share.tenant: share.borrowable for share in _supply_of(spec, "a100").tenants}
    assert borrowable == {"fraud": 8 + 3, "research": 0}


def test_no_tenant_borrows_more_than_the_file_says(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "borrowing-limit: 16", "borrowing-limit: 5")
    assert _supply_of(spec, "a100").tenants[0].borrowable == 5


def test_what_is_lent_is_lent_once_however_many_namespaces_hold_it(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "gpus: {a100-1g.5gb: 14}, quota: {cpu: 16, pods: 20}", "gpus: {a100-1g.5gb: 14, a100: 8}")
    spec.edit(RESEARCH, "{guaranteed: 8}", "{guaranteed: 8, sharing: lend-and-borrow, borrowing-limit: 99}")
    assert _supply_of(spec, "a100").tenants[1].borrowable == 8 + 8


def test_no_tenant_borrows_from_a_pool_that_does_not_admit_it(spec: SpecFolder) -> None:
    spec.edit(
        ENV, TRAIN, TRAIN.replace("4}", "3}") + "\n  own: {instance-type: p4d.24xlarge, nodes: 1, tenants: [research]}"
    )
    flavor_supply = _supply_of(spec, "a100")
    assert flavor_supply.free == 8
    # Research fits into its own pool: so the eight beside fraud's sixteen are free for fraud.
    assert flavor_supply.tenants[0].borrowable == 8
    spec.edit(ENV, TRAIN.replace("4}", "3}"), TRAIN.replace("4}", "2}"))
    assert _supply_of(spec, "a100").tenants[0].borrowable == 0


def test_an_upgrade_that_terminates_first_takes_its_nodes(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, RESERVED.format(""))
    flavor_supply = _supply_of(spec, "a100")
    assert (flavor_supply.always_on, flavor_supply.upgrading, flavor_supply.unmet) == (32, 24, ())


def test_an_upgrade_that_surges_takes_nothing(spec: SpecFolder) -> None:
    assert _supply_of(spec, "a100").upgrading == 32


def test_guarantees_that_an_upgrade_breaks_are_named(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, RESERVED.format(", upgrade: {max-unavailable: 2}"))
    flavor_supply = _supply_of(spec, "a100")
    (unmet,) = flavor_supply.unmet
    assert flavor_supply.upgrading == unmet.there == 16
    assert (unmet.guaranteed, unmet.missing, unmet.tenants) == (24, 8, {"fraud": 16, "research": 8})


@pytest.mark.parametrize(("wave", "upgrading"), [(1, 16), (2, 24)])
def test_pools_of_one_wave_are_replaced_together(spec: SpecFolder, wave: int, upgrading: int) -> None:
    half = RESERVED.replace("nodes: 4", "nodes: 2")
    second_pool = half.replace("train", "again").format(f", upgrade: {{wave: {wave}}}")
    spec.edit(ENV, TRAIN, half.format("") + "\n  " + second_pool)
    assert _supply_of(spec, "a100").upgrading == upgrading


def test_an_upgrade_takes_no_more_nodes_than_there_are(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, RESERVED.format(", upgrade: {max-unavailable: 9}"))
    assert _supply_of(spec, "a100").upgrading == 0


def test_what_the_files_may_promise_is_there_without_a_failure(tmp_path: Path) -> None:
    loaded = load(generate(tmp_path / "bench", 30))
    for flavor in nonempty(supply(loaded.environment, loaded.tenants)):
        assert flavor.unmet == ()
        assert flavor.free >= 0


def test_the_work_grows_with_the_tenants_and_no_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    admits = Pool.admits

    def counted(*args: Any) -> bool:
        calls.append(args)
        return admits(*args)

    loaded = load(generate(tmp_path / "bench", 60))
    monkeypatch.setattr(Pool, "admits", counted)
    counts = []
    for tenant_count in (30, 60):
        calls.clear()
        supply(loaded.environment, loaded.tenants[:tenant_count])
        losses(loaded.environment, loaded.tenants[:tenant_count])
        counts.append(len(calls))
    assert counts[1] <= 2 * counts[0]


# Placing claims

_NAMES = ("a", "b", "c", "d")
_SETS = [frozenset(chosen_names) for size in range(1, 5) for chosen_names in combinations(_NAMES, size)]


@settings(max_examples=examples(300))
@given(
    claims=st.dictionaries(st.sampled_from(_SETS), st.integers(1, 6), max_size=12),
    capacities=st.fixed_dictionaries({name: st.integers(0, 12) for name in _NAMES}),
)
def test_what_finds_no_place_is_what_the_tightest_pools_lack(
    claims: Mapping[frozenset[str], int], capacities: Mapping[str, int]
) -> None:
    def lacks(pools: frozenset[str]) -> int:
        return sum(count for admitting_pools, count in claims.items() if admitting_pools <= pools) - sum(
            capacities[pool] for pool in pools
        )

    missing, full = place_by_pools(claims, capacities)
    assert missing == max(0, *map(lacks, _SETS))
    assert lacks(full) == missing, "the pools named are those that lack it"


# Losses


def test_one_gpu_costs_what_it_is_cut_into(spec: SpecFolder) -> None:
    assert _loss(spec, LossScope.GPU, "train").units == {"a100": 1}
    assert _loss(spec, LossScope.GPU, "serve").units == {"a100-1g.5gb": 7}
    assert _loss(spec, LossScope.GPU, "notebooks").units == {"l4-shared": 4}


def test_guarantees_hold_while_something_free_is_left(spec: SpecFolder) -> None:
    loss = _loss(spec, LossScope.NODE, "train")
    assert (loss.units, loss.unmet) == ({"a100": 8}, ())


def test_a_lost_rack_names_whose_guarantees_do_not_hold(spec: SpecFolder) -> None:
    (unmet,) = _loss(spec, LossScope.RACK, "train", rack=2).unmet
    assert (unmet.there, unmet.guaranteed, unmet.missing) == (16, 24, 8)
    assert unmet.tenants == {"fraud": 16, "research": 8}


def test_a_rack_holds_no_more_nodes_than_the_pool(spec: SpecFolder) -> None:
    loss = _loss(spec, LossScope.RACK, "serve", rack=10)
    assert (loss.nodes, loss.gpus, loss.units) == (3, 24, {"a100-1g.5gb": 168})
    (unmet,) = loss.unmet
    assert (unmet.missing, unmet.there) == (14, 0), "only the minimum was always_on there"


def test_only_who_may_use_the_pool_and_holds_a_share_can_be_hit(spec: SpecFolder) -> None:
    assert _loss(spec, LossScope.NODE, "train").tenants == ("fraud", "research")
    assert _loss(spec, LossScope.NODE, "serve").tenants == ("fraud",)
    assert _loss(spec, LossScope.NODE, "notebooks").tenants == ("research",)


def test_a_guarantee_is_not_met_by_a_pool_that_does_not_admit_it(spec: SpecFolder) -> None:
    spec.edit(
        ENV, TRAIN, TRAIN.replace("4}", "2}") + "\n  own: {instance-type: p4d.24xlarge, nodes: 9, tenants: [research]}"
    )
    (unmet,) = _loss(spec, LossScope.NODE, "train").unmet
    assert (unmet.pools, unmet.there, unmet.missing, unmet.tenants) == (("train",), 8, 8, {"fraud": 16})
    assert _loss(spec, LossScope.RACK, "own", rack=9).unmet, "then research competes for what fraud has"


def test_a_guarantee_is_not_met_by_a_pool_for_a_tier_of_another_part(spec: SpecFolder) -> None:
    spec.edit(
        ENV, TRAIN, TRAIN.replace("4}", "3}") + "\n  prod: {instance-type: p4d.24xlarge, nodes: 5, tiers: [production]}"
    )
    (unmet,) = _loss(spec, LossScope.NODE, "train").unmet
    assert (unmet.pools, unmet.missing) == (("train",), 8), "fraud holds its GPUs in a part of tier batch"


def test_a_pool_that_only_luck_fills_breaks_no_guarantee(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, TRAIN + "\n  more: {instance-type: p4d.24xlarge, nodes: {min: 0, max: 2}}")
    assert not any(_loss(spec, scope, "more").unmet for scope in (LossScope.GPU, LossScope.NODE, LossScope.RACK))


def test_a_zone_takes_its_part_of_every_pool_in_it(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, TRAIN.replace("4}", "3, zones: [eu-central-1a, eu-central-1b]}"))
    spec.edit(
        ENV, "    gpu-sharing: {time-slicing: 4}", "    gpu-sharing: {time-slicing: 4}\n    zones: [eu-central-1b]"
    )
    loss = _loss(spec, LossScope.ZONE, "eu-central-1b")
    assert loss.pools == ("train", "notebooks")
    assert (loss.nodes, loss.gpus, loss.units) == (3, 20, {"a100": 16, "l4-shared": 16})
    assert {unmet.flavor: unmet.missing for unmet in loss.unmet} == {"a100": 16, "l4-shared": 16}


def test_without_zones_no_zone_is_judged(environment: Environment) -> None:
    assert LossScope.ZONE not in {loss.scope for loss in losses(environment, ())}


def test_a_pool_without_nodes_loses_nothing(spec: SpecFolder) -> None:
    spec.edit(ENV, TRAIN, TRAIN + "\n  none: {instance-type: p4d.24xlarge, nodes: 0}")
    loaded = spec.load()
    assert "none" not in {loss.where for loss in losses(loaded.environment, loaded.tenants)}
