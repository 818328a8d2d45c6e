"""Random pools: what is refused is refused with words, and what is accepted can be planned and adds up."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tenancy.catalog.boards import BOARDS, feasible_layouts
from tenancy.catalog.instances import GENERAL, INSTANCES, MACHINES
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.node_config import USER_DATA_BYTES
from tenancy.planning.common.pools import fake_nodes, node_extended
from tenancy.planning.queueing.pool_yields import pool_yield
from tenancy.validation import Loaded, SpecError, load, on_lab
from tests.conftest import examples

NAME = "random"
ZONES = ["eu-central-1a", "eu-central-1b"]
EFA = "vpc.amazonaws.com/efa"
OF_EKS = 2048
"""Bytes that EKS and Karpenter add to user data: a certificate, an endpoint and names."""
TYPES = [*(name for name, instance in INSTANCES.items() if not instance.unsupported), "m7i.4xlarge", "m7g.xlarge"]
FIRM, SOFT = "firm", "soft"
TENANTS = {"steady": FIRM, "casual": SOFT}
"""Tenants and their tiers; only the second is interruptible."""
ENVIRONMENT: dict[str, Any] = {
    "environment": NAME,
    "organisation": {"name": "bank", "departments": {"risk": {}}},
    "platform": {"group": "gpu-platform-team"},
    "cluster": {"name": NAME, "context": NAME, "cni": "cilium"},
    "aws": {
        "enabled": True,
        "account": "111122223333",
        "region": "eu-central-1",
        "zones": ZONES,
        "platform-role": "arn:aws:iam::111122223333:role/platform",
    },
    "images": {"registries": ["registry.example/"], "sample": "registry.example/cuda:13"},
    "tiers": {FIRM: {"priority": 10}, SOFT: {"priority": 1, "interruptible": True}},
}

Spec = dict[str, Any]
"""The environment's file, with the tenants' shares beside it."""


# What a pool's file says, counted here from nothing but the file


def plain_profiles(board: str) -> dict[int, str]:
    """By compute slices the profile without a suffix that has the least memory."""
    found: dict[int, tuple[int, str]] = {}
    for name in BOARDS[board].profiles:
        if match := re.fullmatch(r"(\d)g\.(\d+)gb", name):
            compute, memory = map(int, match.groups())
            found[compute] = min(found.get(compute, (memory, name)), (memory, name))
    return {compute: name for compute, (_, name) in found.items()}


def layouts_of(pool: Spec, named: Mapping[str, Spec]) -> list[Spec]:
    """The slices of each GPU of a node; none: it is whole."""
    machine, mig = MACHINES[pool["instance"]], (pool.get("mig") or {})
    if "per-gpu" in mig:
        parts = [part["slices"] for part in mig["per-gpu"] for _ in range(part["gpus"])]
        return parts + [{}] * (machine.gpus - len(parts))
    if mig.get("named") == "all-balanced":
        names = plain_profiles(machine.gpu)
        balanced = {1: 2, 2: 1, 3: 1} if 7 in names else {1: 2, 2: 1}
        return [{names[compute]: count for compute, count in balanced.items()}] * machine.gpus
    return [named[mig["named"]] if "named" in mig else mig.get("layout", {})] * machine.gpus


def units_of(pool: Spec, named: Mapping[str, Spec]) -> Counter[str]:
    """Units of one node by profile; of whole GPUs by the empty name."""
    found: Counter[str] = Counter()
    for slices in layouts_of(pool, named):
        found.update(slices or {"": 1})
    share = pool.get("share") or {}
    replicas = share.get("time-slicing") or share.get("mps") or 1
    return Counter({profile: count * replicas for profile, count in found.items()})


def offered(spec: Spec, name: str) -> dict[str, int]:
    """Extended resources of one node of a pool."""
    pool = spec["pools"][name]
    found: Counter[str] = Counter()
    if pool.get("efa"):
        found[EFA] = MACHINES[pool["instance"]].efa
    if spec["cluster"].get("devices") == "dra":
        return dict(found)
    single = (pool.get("mig") or {}).get("strategy") == "single"
    for profile, count in units_of(pool, spec.get("mig-layouts", {})).items():
        resource = "nvidia.com/mig-" + profile.replace("+", ".") if profile and not single else "nvidia.com/gpu"
        found[resource + (".shared" if pool.get("share") else "")] += count
    return dict(found)


def bounds(pool: Spec) -> tuple[int, int]:
    nodes = pool["nodes"]
    return (nodes, nodes) if isinstance(nodes, int) else (nodes.get("min", 0), nodes["max"])


# Environments that keep to the rules


@st.composite
def layouts(draw: st.DrawFn, board: str, alone: bool = False) -> Spec:
    """Slices that fit on a board; `alone`: of one profile."""
    names = tuple(BOARDS[board].profiles)
    fitting = [counts for counts in feasible_layouts(board) if not alone or sum(map(bool, counts)) == 1]
    return {name: count for name, count in zip(names, draw(st.sampled_from(fitting)), strict=True) if count}


@st.composite
def cuts(draw: st.DrawFn, instance: str, single: bool, named: Spec) -> Spec:
    machine = MACHINES[instance]
    if single:
        return {"layout": draw(layouts(machine.gpu, alone=True)), "strategy": "single"}
    form = draw(st.sampled_from(["layout", "named", "all-balanced", "per-gpu"]))
    if form == "layout":
        return {"layout": draw(layouts(machine.gpu))}
    if form == "named":
        name = f"{machine.gpu}-{len(named)}"
        named[name] = draw(layouts(machine.gpu))
        return {"named": name}
    if form == "all-balanced":
        return {"named": form}
    parts, left = [], machine.gpus
    while left and (not parts or draw(st.booleans())):
        count = draw(st.integers(1, left))
        left -= count
        parts.append({"gpus": count, "slices": draw(layouts(machine.gpu))})
    return {"per-gpu": parts}


@st.composite
def pools(draw: st.DrawFn, single: bool, by_claim: bool, named: Spec) -> Spec:
    """A pool that keeps to the rules, but perhaps to how many pods a node takes."""
    instance = draw(st.sampled_from(TYPES))
    machine = MACHINES[instance]
    pool: Spec = {"instance": instance}
    cuttable = bool(machine.gpu and BOARDS[machine.gpu].profiles)
    if cuttable and (single or draw(st.booleans())):
        pool["mig"] = draw(cuts(instance, single, named))
    # In an environment of single slices a whole GPU would have their name.
    must_share = single and machine.gpus and not cuttable
    if machine.gpus and not by_claim and (must_share or draw(st.integers(0, 3)) == 0):
        how = "time-slicing" if "mig" in pool else draw(st.sampled_from(["time-slicing", "mps"]))
        pool["share"] = {how: draw(st.integers(2, 8))}
        pool["tenants"] = ["casual"]
    least = draw(st.integers(0, 3))
    pool["nodes"] = draw(st.just(least + 1) if by_claim else st.sampled_from([least, {"min": least, "max": least + 4}]))
    users = draw(st.sampled_from([{}, {"tenants": ["steady"]}, {"tenants": [*TENANTS]}, {"tiers": [FIRM]}]))
    pool = pool if "share" in pool else {**users, **pool}
    if draw(st.integers(0, 3)) == 0:
        bought = draw(st.sampled_from(["spot", {"reservation": "cr-0123abcd"}]))
        pool["purchase"] = bought
        if bought == "spot":
            pool |= {"nodes": 0 if by_claim else {"min": 0, "max": 4}, "tenants": ["casual"]}
            pool.pop("tiers", None)
        else:
            pool["zones"] = [draw(st.sampled_from(ZONES))]
    if machine.efa and draw(st.booleans()):
        pool |= {"efa": True, "zones": [draw(st.sampled_from(ZONES))]}
        pool["tenants"] = pool.get("tenants", ["steady"])[:1]
        pool.pop("tiers", None)
    return pool


def admits(pool: Spec, tenant: str) -> bool:
    names, tiers = pool.get("tenants", []), pool.get("tiers", [])
    return not (names or tiers) or tenant in names or TENANTS[tenant] in tiers


@st.composite
def environments(draw: st.DrawFn) -> Spec:
    single, by_claim = draw(st.sampled_from([(False, False)] * 3 + [(True, False), (False, True)]))
    named: Spec = {}
    made = {f"pool-{i}": draw(pools(single, by_claim, named)) for i in range(draw(st.integers(1, 4)))}
    for i, pool in enumerate(made.values()):
        if "reservation" in pool.get("purchase", ""):
            pool["purchase"] = {"reservation": f"cr-0123abc{i}"}  # one is of one type, in one zone
    spec: Spec = {**copy.deepcopy(ENVIRONMENT), "pools": made, "mig-layouts": named}
    if by_claim:
        spec["cluster"]["devices"] = "dra"
    # Flavors of all that is yielded, but perhaps for some of what a pool yields beside others.
    flavors: dict[str, Spec] = {}
    by_flavor: dict[str, list[str]] = {}
    for name, pool in made.items():
        mode = next(iter(pool.get("share", {})), "")
        units = sorted(units_of(pool, named))
        kept = units[:1] + [unit for unit in units[1:] if draw(st.integers(0, 4))]
        for profile in kept:
            key = "-".join(filter(None, (MACHINES[pool["instance"]].gpu, re.sub(r"[^a-z0-9]", "", profile), mode)))
            key += "x" * (profile.count("+") + 2 * profile.count("-"))
            flavors[key] = {"gpu": MACHINES[pool["instance"]].gpu}
            flavors[key] |= {"mig": profile} if profile else {}
            flavors[key] |= {"share": mode} if mode else {}
            by_flavor.setdefault(key, []).append(name)
    spec["flavors"] = flavors
    shares: dict[str, dict[str, Any]] = {tenant: {} for tenant in TENANTS}
    for flavor, places in by_flavor.items():
        holder = draw(st.sampled_from([*TENANTS, ""]))
        open_to = [made[place] for place in places if holder and admits(made[place], holder)]
        if open_to:
            always_on = any(bounds(pool)[0] for pool in open_to)
            shares[holder][flavor] = {"guaranteed": int(always_on and draw(st.booleans()))}
    spec["shares"] = shares
    return spec


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
        "named": st.sampled_from(["all-balanced", "nothing", ""]),
        "per-gpu": PARTS,
        "strategy": st.sampled_from(["single", "mixed", "none"]),
    },
)
COUNT = st.integers(-1, 60)
NODES = COUNT | st.fixed_dictionaries({"max": COUNT}, optional={"min": COUNT})
SHARE = st.fixed_dictionaries({}, optional={"time-slicing": COUNT, "mps": COUNT})
PURCHASE = st.sampled_from(["spot", "on-demand", "cheap", {"reservation": "cr-1"}, {"capacity-block": "cr-0123abcd"}])
ANYTHING: dict[str, st.SearchStrategy[Any]] = {
    "instance": st.sampled_from([*MACHINES, "x9.large", ""]) | JUNK,
    "nodes": NODES | JUNK,
    "provisioner": st.sampled_from(["managed", "karpenter"]) | JUNK,
    "purchase": PURCHASE | JUNK,
    "efa": st.booleans() | JUNK,
    "mig": MIG | JUNK,
    "share": SHARE | JUNK,
    "tenants": st.lists(st.sampled_from([*TENANTS, "missing"]), max_size=2) | JUNK,
    "tiers": st.lists(st.sampled_from([FIRM, SOFT, "none"]), max_size=2) | JUNK,
    "zones": st.lists(st.sampled_from([*ZONES, "us-east-1a", "x"]), max_size=2) | JUNK,
    "ami-release": st.sampled_from(["v20260101", "v2026", "v20270101"]) | JUNK,
    "upgrade": JUNK | st.fixed_dictionaries({}, optional={"wave": COUNT, "at-once": COUNT}),
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

    def written(spec: Spec) -> Loaded | SpecError:
        # What JSON says, YAML says too.
        text = json.dumps({key: value for key, value in spec.items() if key != "shares"})
        (folder / "environment.yaml").write_text(text, "utf-8")
        for tenant, tier in TENANTS.items():
            (folder / "tenants" / f"{tenant}.yaml").write_text(json.dumps(tenant_file(tenant, tier, spec)), "utf-8")
        try:
            return load(folder)
        except SpecError as refusal:
            return refusal

    return written


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
    """What holds of everything that is accepted."""
    offers = {name: offered(spec, name) for name in spec["pools"]}
    played = on_lab(loaded)
    for each in (loaded, played):
        for name, offer in offers.items():
            assert node_extended(each.environment, name) == offer, name
            assert pool_yield(each.environment, name, each.tenants).resources == offer, name
        plan = make_plan(each.environment, each.tenants)
        resources = {what for offer in offers.values() for what in offer}
        assert missing_in_quotas(plan, resources) == set()
    machines = fake_nodes(played.environment)
    assert len(machines) == sum(bounds(pool)[0] for pool in spec["pools"].values())
    for node in machines:
        name = node["metadata"]["name"].rpartition("-")[0]
        found = {what: int(count) for what, count in node["status"]["allocatable"].items() if "/" in what}
        assert found == offers[name]
    assert make_plan(played.environment, played.tenants).cluster is None
    karpenter_makes_what_scales(make_plan(loaded.environment, loaded.tenants), spec, offers)


def missing_in_quotas(plan: Plan, resources: set[str]) -> set[str]:
    """Resources that some namespace's quota says nothing about."""
    whole = ("ResourceQuota", "tenant")
    quotas = [made["spec"]["hard"] for made in plan.objects() if (made["kind"], made["metadata"]["name"]) == whole]
    assert len(quotas) == len(TENANTS)
    return {resource for resource in resources for hard in quotas if f"requests.{resource}" not in hard}


def karpenter_makes_what_scales(plan: Plan, spec: Spec, offers: Mapping[str, Mapping[str, int]]) -> None:
    assert plan.cluster
    assert plan.platform.services
    by_kind: dict[str, set[str]] = {}
    for made in plan.platform.services.nodes:
        by_kind.setdefault(made["kind"], set()).add(made["metadata"]["name"])
    scaling = {name for name, pool in spec["pools"].items() if len(set(bounds(pool))) == 2}
    # EC2 knows a type's whole GPUs, and Karpenter its EFA interfaces.
    unlike = {
        name
        for name in scaling
        if {what: count for what, count in offers[name].items() if what != EFA}
        != ({"nvidia.com/gpu": gpus} if (gpus := MACHINES[spec["pools"][name]["instance"]].gpus) else {})
    }
    assert by_kind.get("NodePool", set()) == by_kind.get("EC2NodeClass", set()) == scaling
    assert by_kind.get("NodeOverlay", set()) == unlike
    fixed = {group.pool: group.nodes for group in plan.cluster.groups if group.pool}
    assert fixed == {name: least for name, pool in spec["pools"].items() if (least := bounds(pool)[0])}
    texts = [group.user_data for group in plan.cluster.groups]
    texts += [made["spec"]["userData"] for made in plan.platform.services.nodes if made["kind"] == "EC2NodeClass"]
    assert max(len(text.encode()) for text in texts) <= USER_DATA_BYTES - OF_EKS


PODS_AND_NAMES = {"pool-04", "mig-03"}
"""Rules that a sound environment may break: a node has more slices than pods, or two slices one name."""


@settings(deadline=None, max_examples=examples(120))
@given(spec=environments())
def test_pools_that_keep_to_the_rules_are_accepted_and_add_up(read: Reader, spec: Spec) -> None:
    outcome = read(spec)
    event(type(outcome).__name__)
    if isinstance(outcome, Loaded):
        adds_up(outcome, spec)
    else:
        assert {problem.id for problem in outcome.problems} <= PODS_AND_NAMES, str(outcome)


@settings(deadline=None, max_examples=examples(200))
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
    made = {name.replace(".", "-"): {"instance": name, "nodes": {"min": 1, "max": 2}} for name in GENERAL}
    shares: Spec = {tenant: {} for tenant in TENANTS}
    spec = {**copy.deepcopy(ENVIRONMENT), "pools": made, "shares": shares}
    outcome = read(spec)
    assert isinstance(outcome, Loaded), str(outcome)
    adds_up(outcome, spec)


def test_slices_that_pods_share_and_that_are_no_flavor_are_in_every_quota(read: Reader) -> None:
    pool = {
        "instance": "p4d.24xlarge",
        "nodes": 1,
        "mig": {"layout": {"3g.20gb": 1, "4g.20gb": 1}},
        "share": {"time-slicing": 2},
        "tenants": ["casual"],
    }
    flavors = {"a100-3g-shared": {"gpu": "a100-40gb", "mig": "3g.20gb", "share": "time-slicing"}}
    shares: Spec = {tenant: {} for tenant in TENANTS}
    spec = {**copy.deepcopy(ENVIRONMENT), "pools": {"cut": pool}, "flavors": flavors, "shares": shares}
    outcome = read(spec)
    assert isinstance(outcome, Loaded), str(outcome)
    resources = set(node_extended(outcome.environment, "cut"))
    assert resources == {"nvidia.com/mig-3g.20gb.shared", "nvidia.com/mig-4g.20gb.shared"}
    assert missing_in_quotas(make_plan(outcome.environment, outcome.tenants), resources) == set()
