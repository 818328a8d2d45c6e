"""Random pools: what is refused is refused with words, and what is accepted can be planned and adds up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tenancy.catalog.boards import BOARDS
from tenancy.catalog.instances import GENERAL, MACHINES
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.node_config import USER_DATA_BYTES
from tenancy.planning.common.pools import extended_resources, fake_nodes
from tenancy.planning.queueing.pool_yields import pool_yield
from tenancy.spec.loader import Loaded, load, on_lab
from tenancy.spec.reading.problems import SpecError
from tests.conftest import examples
from tests.random_environments import (
    EFA,
    ENVIRONMENT,
    FIRM,
    NAME,
    OF_EKS,
    PODS_AND_NAMES,
    SOFT,
    TENANTS,
    ZONES,
    Spec,
    bounds,
    environments,
    offered,
)

# And those that break some


def broken(draw: st.DrawFn, spec: Spec) -> None:
    """Change one field of one pool, or of what pools stand on, into anything."""
    pool = spec["pools"][draw(st.sampled_from(sorted(spec["pools"])))]
    field = draw(st.sampled_from(sorted(ANYTHING)))
    pool[field] = draw(ANYTHING[field])
    for _ in range(draw(st.integers(0, 1))):
        pool.pop(draw(st.sampled_from(sorted(pool))))


PROFILES = sorted({profile for board in BOARDS.values() for profile in board.profiles} | {"", "1g", "9g.1gb", "all"})
JUNK = st.sampled_from([None, "", "x", -1, 0, 1.5, True, [], {}, [[]], {"": None}, "\u0000", 10**30])
LAYOUTS = st.dictionaries(st.sampled_from(PROFILES), st.integers(-1, 9), max_size=4)
PARTS = st.lists(st.fixed_dictionaries({"gpus": st.integers(0, 9), "slices": LAYOUTS}), max_size=4)
MIG = st.fixed_dictionaries(
    {},
    optional={
        "layout": LAYOUTS,
        "layout-name": st.sampled_from(["all-balanced", "nothing", ""]),
        "per-gpu": PARTS,
        "strategy": st.sampled_from(["single", "mixed", "none"]),
    },
)
COUNT = st.integers(-1, 60)
NODES = COUNT | st.fixed_dictionaries({"max": COUNT}, optional={"min": COUNT})
SHARE = st.fixed_dictionaries({}, optional={"time-slicing": COUNT, "mps": COUNT})
PURCHASE = st.sampled_from(["spot", "on-demand", "cheap", {"reservation": "cr-1"}, {"capacity-block": "cr-0123abcd"}])
ANYTHING: dict[str, st.SearchStrategy[Any]] = {
    "instance-type": st.sampled_from([*MACHINES, "x9.large", ""]) | JUNK,
    "nodes": NODES | JUNK,
    "provisioner": st.sampled_from(["managed", "karpenter"]) | JUNK,
    "purchase": PURCHASE | JUNK,
    "efa": st.booleans() | JUNK,
    "mig": MIG | JUNK,
    "gpu-sharing": SHARE | JUNK,
    "tenants": st.lists(st.sampled_from([*TENANTS, "missing"]), max_size=2) | JUNK,
    "tiers": st.lists(st.sampled_from([FIRM, SOFT, "none"]), max_size=2) | JUNK,
    "zones": st.lists(st.sampled_from([*ZONES, "us-east-1a", "x"]), max_size=2) | JUNK,
    "ami-release": st.sampled_from(["v20260101", "v2026", "v20270101"]) | JUNK,
    "upgrade": JUNK | st.fixed_dictionaries({}, optional={"wave": COUNT, "max-unavailable": COUNT}),
    "colour": JUNK,
}


@st.composite
def damaged(draw: st.DrawFn) -> Spec:
    spec = draw(environments())
    for _ in range(draw(st.integers(1, 3))):
        broken(draw, spec)
    return spec


# Reading

Reader = Callable[[Spec], Loaded | SpecError]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("pools") / NAME
    (folder / "tenants").mkdir(parents=True)

    def read_spec(spec: Spec) -> Loaded | SpecError:
        # What JSON says, YAML says too.
        text = json.dumps({key: value for key, value in spec.items() if key != "shares"})
        (folder / "environment.yaml").write_text(text, "utf-8")
        for tenant, tier in TENANTS.items():
            (folder / "tenants" / f"{tenant}.yaml").write_text(json.dumps(tenant_file(tenant, tier, spec)), "utf-8")
        try:
            return load(folder)
        except SpecError as refusal:
            return refusal

    return read_spec


def tenant_file(tenant: str, tier: str, spec: Spec) -> Spec:
    return {
        "tenant": tenant,
        "team": f"{tenant}-team",
        "owner": {"name": f"{tenant}-leads", "mail": f"{tenant}@bank.example"},
        "department": "risk",
        "cost-center": "CC-1",
        "tier": tier,
        "people": [{"group": f"{tenant}-people", "role": "developer"}],
        "gpus": spec["shares"][tenant],
    }


def adds_up(loaded: Loaded, spec: Spec) -> None:
    """Check the properties of every accepted environment."""
    offers = {name: offered(spec, name) for name in spec["pools"]}
    played = on_lab(loaded)
    for variant in (loaded, played):
        for name, offer in offers.items():
            assert extended_resources(variant.environment, name) == offer, name
            assert pool_yield(variant.environment, name, variant.tenants).resources == offer, name
        plan = make_plan(variant, variant.day)
        resources = {what for offer in offers.values() for what in offer}
        assert missing_in_quotas(plan, resources) == set()
    machines = fake_nodes(played.environment)
    assert len(machines) == sum(bounds(pool)[0] for pool in spec["pools"].values())
    for node in machines:
        name = node["metadata"]["name"].rpartition("-")[0]
        extended_counts = {what: int(count) for what, count in node["status"]["allocatable"].items() if "/" in what}
        assert extended_counts == offers[name]
    assert make_plan(played, played.day).cluster is None
    karpenter_makes_what_scales(make_plan(loaded, loaded.day), spec, offers)


def missing_in_quotas(plan: Plan, resources: set[str]) -> set[str]:
    """Resources that some namespace's quota says nothing about."""
    tenant_quota = ("ResourceQuota", "tenant")
    quotas = [
        item["spec"]["hard"] for item in plan.objects() if (item["kind"], item["metadata"]["name"]) == tenant_quota
    ]
    assert len(quotas) == len(TENANTS)
    return {resource for resource in resources for hard in quotas if f"requests.{resource}" not in hard}


def karpenter_makes_what_scales(plan: Plan, spec: Spec, offers: Mapping[str, Mapping[str, int]]) -> None:
    assert plan.cluster
    assert plan.platform.services
    by_kind: dict[str, set[str]] = {}
    for item in plan.platform.services.nodes:
        by_kind.setdefault(item["kind"], set()).add(item["metadata"]["name"])
    scaling = {name for name, pool in spec["pools"].items() if len(set(bounds(pool))) == 2}
    # EC2 knows a type's whole GPUs, and Karpenter its EFA interfaces.
    unlike = {
        name
        for name in scaling
        if {what: count for what, count in offers[name].items() if what != EFA}
        != ({"nvidia.com/gpu": gpus} if (gpus := MACHINES[spec["pools"][name]["instance-type"]].gpus) else {})
    }
    assert by_kind.get("NodePool", set()) == by_kind.get("EC2NodeClass", set()) == scaling
    assert by_kind.get("NodeOverlay", set()) == unlike
    fixed = {group.pool: group.nodes for group in plan.cluster.groups if group.pool}
    assert fixed == {name: least for name, pool in spec["pools"].items() if (least := bounds(pool)[0])}
    texts = [group.user_data for group in plan.cluster.groups]
    texts += [item["spec"]["userData"] for item in plan.platform.services.nodes if item["kind"] == "EC2NodeClass"]
    assert max(len(text.encode()) for text in texts) <= USER_DATA_BYTES - OF_EKS


@settings(max_examples=examples(120))
@given(spec=environments())
def test_pools_that_keep_to_the_rules_are_accepted_and_add_up(read: Reader, spec: Spec) -> None:
    outcome = read(spec)
    event(type(outcome).__name__)
    if isinstance(outcome, Loaded):
        adds_up(outcome, spec)
    else:
        assert {problem.id for problem in outcome.problems} <= PODS_AND_NAMES, str(outcome)


@settings(max_examples=examples(200))
@given(spec=damaged())
def test_pools_that_are_anything_are_refused_with_words_or_add_up(read: Reader, spec: Spec) -> None:
    outcome = read(spec)
    event(type(outcome).__name__)
    if isinstance(outcome, Loaded):
        adds_up(outcome, spec)
    else:
        assert outcome.problems
        assert all(problem.rule and problem.change and problem.line for problem in outcome.problems)


def test_every_general_type_makes_a_pool_that_offers_no_gpu(read: Reader) -> None:
    pools = {name.replace(".", "-"): {"instance-type": name, "nodes": {"min": 1, "max": 2}} for name in GENERAL}
    shares: Spec = {tenant: {} for tenant in TENANTS}
    spec = {**copy.deepcopy(ENVIRONMENT), "pools": pools, "shares": shares}
    outcome = read(spec)
    assert isinstance(outcome, Loaded), str(outcome)
    adds_up(outcome, spec)


def test_slices_that_pods_share_and_that_are_no_flavor_are_in_every_quota(read: Reader) -> None:
    pool = {
        "instance-type": "p4d.24xlarge",
        "nodes": 1,
        "mig": {"layout": {"3g.20gb": 1, "4g.20gb": 1}},
        "gpu-sharing": {"time-slicing": 2},
        "tenants": ["casual"],
    }
    flavors = {"a100-3g-shared": {"gpu": "a100-40gb", "mig": "3g.20gb", "gpu-sharing": "time-slicing"}}
    shares: Spec = {tenant: {} for tenant in TENANTS}
    spec = {**copy.deepcopy(ENVIRONMENT), "pools": {"cut": pool}, "flavors": flavors, "shares": shares}
    outcome = read(spec)
    assert isinstance(outcome, Loaded), str(outcome)
    resources = set(extended_resources(outcome.environment, "cut"))
    assert resources == {"nvidia.com/mig-3g.20gb.shared", "nvidia.com/mig-4g.20gb.shared"}
    assert missing_in_quotas(make_plan(outcome, outcome.day), resources) == set()
