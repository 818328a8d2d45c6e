"""Environments with pools at random that keep to the rules."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tenancy.catalog.boards import BOARDS, feasible_layouts
from tenancy.catalog.instances import INSTANCES, MACHINES

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


def plain_profiles(board: str) -> dict[int, str]:
    """By compute slices the profile without a suffix that has the least memory."""
    profiles_by_compute: dict[int, tuple[int, str]] = {}
    for name in BOARDS[board].profiles:
        if match := re.fullmatch(r"(\d)g\.(\d+)gb", name):
            compute, memory = map(int, match.groups())
            profiles_by_compute[compute] = min(profiles_by_compute.get(compute, (memory, name)), (memory, name))
    return {compute: name for compute, (_, name) in profiles_by_compute.items()}


def layouts_of(pool: Spec, layouts: Mapping[str, Spec]) -> list[Spec]:
    """The slices of each GPU of a node; none: it is whole."""
    machine, mig = MACHINES[pool["instance-type"]], (pool.get("mig") or {})
    if "per-gpu" in mig:
        parts = [part["slices"] for part in mig["per-gpu"] for _ in range(part["gpus"])]
        return parts + [{}] * (machine.gpus - len(parts))
    if mig.get("layout-name") == "all-balanced":
        names = plain_profiles(machine.gpu)
        balanced = {1: 2, 2: 1, 3: 1} if 7 in names else {1: 2, 2: 1}
        return [{names[compute]: count for compute, count in balanced.items()}] * machine.gpus
    return [layouts[mig["layout-name"]] if "layout-name" in mig else mig.get("layout", {})] * machine.gpus


def units_of(pool: Spec, layouts_by_name: Mapping[str, Spec]) -> Counter[str]:
    """Units of one node by profile; of whole GPUs by the empty name."""
    unit_counts: Counter[str] = Counter()
    for slices in layouts_of(pool, layouts_by_name):
        unit_counts.update(slices or {"": 1})
    share = pool.get("gpu-sharing") or {}
    replicas = share.get("time-slicing") or share.get("mps") or 1
    return Counter({profile: count * replicas for profile, count in unit_counts.items()})


def offered(spec: Spec, name: str) -> dict[str, int]:
    """Extended resources of one node of a pool."""
    pool = spec["pools"][name]
    resources: Counter[str] = Counter()
    if pool.get("efa"):
        resources[EFA] = MACHINES[pool["instance-type"]].efa
    if spec["cluster"].get("devices") == "dra":
        return dict(resources)
    single = (pool.get("mig") or {}).get("strategy") == "single"
    for profile, count in units_of(pool, spec.get("mig-layouts", {})).items():
        resource = "nvidia.com/mig-" + profile.replace("+", ".") if profile and not single else "nvidia.com/gpu"
        resources[resource + (".shared" if pool.get("gpu-sharing") else "")] += count
    return dict(resources)


def bounds(pool: Spec) -> tuple[int, int]:
    nodes = pool["nodes"]
    return (nodes, nodes) if isinstance(nodes, int) else (nodes.get("min", 0), nodes["max"])


@st.composite
def layouts(draw: st.DrawFn, board: str, alone: bool = False) -> Spec:
    """Slices that fit on a board; `alone`: of one profile."""
    names = tuple(BOARDS[board].profiles)
    fitting = [counts for counts in feasible_layouts(board) if not alone or sum(map(bool, counts)) == 1]
    return {name: count for name, count in zip(names, draw(st.sampled_from(fitting)), strict=True) if count}


@st.composite
def cuts(draw: st.DrawFn, instance: str, single: bool, layouts_by_name: Spec) -> Spec:
    machine = MACHINES[instance]
    if single:
        return {"layout": draw(layouts(machine.gpu, alone=True)), "strategy": "single"}
    form = draw(st.sampled_from(["layout", "named", "all-balanced", "per-gpu"]))
    if form == "layout":
        return {"layout": draw(layouts(machine.gpu))}
    if form == "layout-name":
        name = f"{machine.gpu}-{len(layouts_by_name)}"
        layouts_by_name[name] = draw(layouts(machine.gpu))
        return {"layout-name": name}
    if form == "all-balanced":
        return {"layout-name": form}
    parts, gpus_to_cut = [], machine.gpus
    while gpus_to_cut and (not parts or draw(st.booleans())):
        count = draw(st.integers(1, gpus_to_cut))
        gpus_to_cut -= count
        parts.append({"gpus": count, "slices": draw(layouts(machine.gpu))})
    return {"per-gpu": parts}


@st.composite
def pools(draw: st.DrawFn, single: bool, by_claim: bool, layouts_by_name: Spec) -> Spec:
    """A pool that keeps to the rules, but perhaps to how many pods a node takes."""
    instance = draw(st.sampled_from(TYPES))
    machine = MACHINES[instance]
    pool: Spec = {"instance-type": instance}
    cuttable = bool(machine.gpu and BOARDS[machine.gpu].profiles)
    if cuttable and (single or draw(st.booleans())):
        pool["mig"] = draw(cuts(instance, single, layouts_by_name))
    # In an environment of single slices a whole GPU would have their name.
    must_share = single and machine.gpus and not cuttable
    if machine.gpus and not by_claim and (must_share or draw(st.integers(0, 3)) == 0):
        how = "time-slicing" if "mig" in pool else draw(st.sampled_from(["time-slicing", "mps"]))
        pool["gpu-sharing"] = {how: draw(st.integers(2, 8))}
        pool["tenants"] = ["casual"]
    least = draw(st.integers(0, 3))
    pool["nodes"] = draw(st.just(least + 1) if by_claim else st.sampled_from([least, {"min": least, "max": least + 4}]))
    users = draw(st.sampled_from([{}, {"tenants": ["steady"]}, {"tenants": [*TENANTS]}, {"tiers": [FIRM]}]))
    pool = pool if "gpu-sharing" in pool else {**users, **pool}
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
    layouts_by_name: Spec = {}
    pools_by_name = {
        f"pool-{i}": draw(pools(single, by_claim, layouts_by_name)) for i in range(draw(st.integers(1, 4)))
    }
    for i, pool in enumerate(pools_by_name.values()):
        if "reservation" in pool.get("purchase", ""):
            pool["purchase"] = {"reservation": f"cr-0123abc{i}"}  # one is of one type, in one zone
    spec: Spec = {**copy.deepcopy(ENVIRONMENT), "pools": pools_by_name, "mig-layouts": layouts_by_name}
    if by_claim:
        spec["cluster"]["devices"] = "dra"
    # Flavors of all that is yielded, but perhaps for some of what a pool yields beside others.
    flavors: dict[str, Spec] = {}
    by_flavor: dict[str, list[str]] = {}
    for name, pool in pools_by_name.items():
        mode = next(iter(pool.get("gpu-sharing", {})), "")
        units = sorted(units_of(pool, layouts_by_name))
        chosen_units = units[:1] + [unit for unit in units[1:] if draw(st.integers(0, 4))]
        for profile in chosen_units:
            key = "-".join(filter(None, (MACHINES[pool["instance-type"]].gpu, re.sub(r"[^a-z0-9]", "", profile), mode)))
            key += "x" * (profile.count("+") + 2 * profile.count("-"))
            flavors[key] = {"gpu": MACHINES[pool["instance-type"]].gpu}
            flavors[key] |= {"mig": profile} if profile else {}
            flavors[key] |= {"gpu-sharing": mode} if mode else {}
            by_flavor.setdefault(key, []).append(name)
    spec["flavors"] = flavors
    shares: dict[str, dict[str, Any]] = {tenant: {} for tenant in TENANTS}
    for flavor, places in by_flavor.items():
        holder = draw(st.sampled_from([*TENANTS, ""]))
        open_to = [pools_by_name[place] for place in places if holder and admits(pools_by_name[place], holder)]
        if open_to:
            always_on = any(bounds(pool)[0] for pool in open_to)
            shares[holder][flavor] = {"guaranteed": int(always_on and draw(st.booleans()))}
    spec["shares"] = shares
    return spec


PODS_AND_NAMES = {"pool-04", "mig-03"}
"""Rules that a sound environment may break: a node has more slices than pods, or two slices one name."""
