"""Queues over random pools, tenants and shares: Kueue takes them, they add up, and no quota stands in their way."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

import judges
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tenancy import planning
from tenancy.catalog.instances import MACHINES
from tenancy.kube import quantities
from tenancy.kube.objects import Object
from tenancy.planning import Plan, digest
from tenancy.planning.common.pools import node_allocatable
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import (
    ANY_POOL,
    BOARD_COMPUTE,
    BOARD_MEMORY,
    CORES,
    ROOT,
    flavor_name,
    queue_resource,
)
from tenancy.planning.queueing.queues import machine_resources
from tenancy.planning.queueing.quota_shares import board_units
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load
from tenancy.spec.reading.problems import SpecError
from tests.conftest import amounts, examples
from tests.random_environments import FIRM, NAME, PODS_AND_NAMES, SOFT, Spec, bounds, environments, units_of

PRESETS = st.sampled_from(["strict", "lend", "lend-and-borrow"])
QUOTA = {"cpu": "100k", "memory": "1Pi", "ephemeral-storage": "1Pi", "pods": 1000}


@st.composite
def tenancies(draw: st.DrawFn) -> Spec:
    """An environment with tenants whose guarantees fit by construction: each is taken out of some pool."""
    spec = copy.deepcopy(draw(environments()))
    spec.pop("shares")
    for tier in spec["tiers"].values():
        tier |= {
            "allow-borrowing": draw(st.booleans()),
            "queueing-strategy": draw(st.sampled_from(["strict-fifo", "best-effort-fifo"])),
        }
        tier["quota"] = QUOTA
    departments = {name: {"sharing": draw(PRESETS), "weight": draw(st.integers(1, 9))} for name in ("risk", "retail")}
    spec["organisation"]["departments"] = departments
    unpromised = {(pool, flavor): count for flavor in spec["flavors"] for pool, count in _surely(spec, flavor).items()}
    spec["files"] = []
    for name in ("casual", "steady", "third", "fourth")[: draw(st.integers(2, 4))]:
        spec["files"].append(draw(tenant_files(spec, name, unpromised)))
    return spec


def _surely(spec: Spec, flavor: str) -> dict[str, int]:
    """Number of units of a flavor that each pool always has."""
    flavor_settings = spec["flavors"][flavor]
    counts = {}
    for name, pool in spec["pools"].items():
        same = MACHINES[pool["instance-type"]].gpu == flavor_settings["gpu"]
        mode = next(iter(pool.get("gpu-sharing", {})), None)
        if same and mode == flavor_settings.get("gpu-sharing"):
            units_per_node = units_of(pool, spec.get("mig-layouts", {})).get(flavor_settings.get("mig", ""), 0)
            if units_per_node:
                counts[name] = units_per_node * bounds(pool)[0]
    return counts


@st.composite
def tenant_files(draw: st.DrawFn, spec: Spec, name: str, unpromised: dict[tuple[str, str], int]) -> Spec:
    tiers = [SOFT] if name == "casual" else draw(st.lists(st.sampled_from([FIRM, SOFT]), min_size=1, max_size=3))
    parts = [{"name": f"part-{i}", "tier": tier, "gpus": {}} for i, tier in enumerate(tiers)]
    shares: dict[str, Spec] = {}
    for flavor in spec["flavors"]:
        pools = _surely(spec, flavor)
        for part in parts:
            admitting_pools = [pool for pool in pools if _admits(spec["pools"][pool], name, part["tier"])]
            if admitting_pools and draw(st.booleans()):
                pool = draw(st.sampled_from(admitting_pools))
                part_gpus = draw(st.integers(0, unpromised[pool, flavor]))
                unpromised[pool, flavor] -= part_gpus
                part["gpus"][flavor] = part_gpus
        if any(flavor in part["gpus"] for part in parts):
            guaranteed = sum(part["gpus"].get(flavor, 0) for part in parts)
            shares[flavor] = draw(gpu_shares(guaranteed, any(spec["tiers"][tier]["allow-borrowing"] for tier in tiers)))
    return {
        "tenant": name,
        "team": f"{name}-team",
        "owner": {"name": f"{name}-leads", "mail": f"{name}@bank.example"},
        "department": draw(st.sampled_from(["risk", "retail"])),
        "cost-center": "CC-1",
        "tier": tiers[0],
        "namespaces": parts,
        "gpus": shares,
        "weight": draw(st.integers(1, 9)),
        "stop-policy": draw(st.sampled_from(["none", "hold", "hold-and-drain"])),
    }


def _admits(pool: Spec, tenant: str, tier: str) -> bool:
    names, tiers = pool.get("tenants", []), pool.get("tiers", [])
    return not (names or tiers) or tenant in names or tier in tiers


@st.composite
def gpu_shares(draw: st.DrawFn, guaranteed: int, may_borrow: bool) -> Spec:
    preset = draw(PRESETS)
    share: Spec = {"guaranteed": guaranteed, "sharing": preset}
    if preset != "strict" and draw(st.booleans()):
        share["lending-limit"] = draw(st.integers(0, guaranteed))
    if preset == "lend-and-borrow" and may_borrow and draw(st.booleans()):
        share["borrowing-limit"] = draw(st.integers(0, 40))
    return share


Reader = Callable[[Spec], Loaded | SpecError]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("queues") / NAME
    (folder / "tenants").mkdir(parents=True)

    def read_spec(spec: Spec) -> Loaded | SpecError:
        for old in (folder / "tenants").iterdir():
            old.unlink()
        text = json.dumps({key: value for key, value in spec.items() if key != "files"})
        (folder / "environment.yaml").write_text(text, "utf-8")
        for file in spec["files"]:
            (folder / "tenants" / f"{file['tenant']}.yaml").write_text(json.dumps(file), "utf-8")
        try:
            return load(folder)
        except SpecError as refusal:
            return refusal

    return read_spec


def cluster_queues(plan: Plan) -> dict[str, Object]:
    return {o["metadata"]["name"]: o for tenant in plan.tenants for o in tenant.queues if o["kind"] == "ClusterQueue"}


def cohorts(plan: Plan) -> Iterator[Object]:
    for item in (*plan.platform.queues, *(o for tenant in plan.tenants for o in tenant.queues)):
        if item["kind"] == "Cohort":
            yield item


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(spec=tenancies())
def test_queues_of_whatever_is_accepted(read: Reader, spec: Spec) -> None:
    outcome = read(spec)
    event(type(outcome).__name__)
    if isinstance(outcome, SpecError):
        assert {problem.id for problem in outcome.problems} <= PODS_AND_NAMES, str(outcome)
        return
    environment, tenants = outcome.environment, outcome.tenants
    plan = planning.plan(environment, tenants)
    kueue_takes_it(environment, plan)
    nothing_is_lost(environment, tenants, plan)
    limits_hold(environment, tenants, plan)
    no_quota_is_below_its_queue(environment, tenants, plan)
    others_change_nothing(environment, tenants, plan)


def kueue_takes_it(environment: Environment, plan: Plan) -> None:
    for item in plan.objects():
        if item["apiVersion"].startswith("kueue"):
            assert judges.kueue(item) == [], item["metadata"]["name"]
            for group in item.get("spec", {}).get("resourceGroups", ()):
                assert len(group["flavors"]) <= 64
                assert len(group["coveredResources"]) <= 64
                for limit in ("nominalQuota", "borrowingLimit", "lendingLimit"):
                    amounts = {r[limit] for f in group["flavors"] for r in f["resources"] if limit in r}
                    assert not {text for text in amounts if text.rstrip("m").endswith("000")}, "Kueue writes it anew"
    assert judges.kueue(configuration(environment)) == []


def nothing_is_lost(environment: Environment, tenants: tuple[Tenant, ...], plan: Plan) -> None:
    """Guaranteed and unallocated quota add up to all that there may be, to the unit."""
    (root,) = (cohort for cohort in cohorts(plan) if cohort["metadata"]["name"] == ROOT)
    total: Counter[tuple[str, str]] = Counter()
    for item in (root, *cluster_queues(plan).values()):
        for where, amount in amounts(item).items():
            assert amount >= 0, where
            total[where] += Fraction(amount)
    units = {} if environment.uses_device_claims else board_units(environment)
    for name, pool in environment.pools.items():
        expected: Counter[str] = Counter()
        for flavor, units_per_node in environment.flavors_of(name).items():
            count = units_per_node * pool.nodes.max
            expected[queue_resource(environment, flavor)] += count
            compute, memory = units.get(environment.resource_of(flavor), (0, 0))
            expected[BOARD_COMPUTE] += count * compute
            expected[BOARD_MEMORY] += count * memory
        kueues = flavor_name(environment, name)
        assert {r: n for (pool, r), n in total.items() if pool == kueues and n} == +expected
    general = [pool for pool in environment.pools.values() if not pool.machine.gpus]
    parts = sum(
        any(pool.admits(tenant.tenant, frozenset({tenant.tier_of(part)})) for pool in general)
        for tenant in tenants
        for part in tenant.namespaces
    )
    nodes = [
        (node_allocatable(environment, name), pool.nodes.max)
        for name, pool in environment.pools.items()
        if pool.machine.gpus
    ]
    of_quotas = {what: parts * quantities.parse(str(QUOTA[what])) for what in ("cpu", "memory")}
    names = machine_resources(environment)
    of_quotas["cpu"] *= 1000 if names["cpu"] == CORES else 1
    cpu = sum(Fraction(remaining.cpu * count, 1 if names["cpu"] == CORES else 1000) for remaining, count in nodes)
    memory = sum(remaining.memory * count * 2**20 for remaining, count in nodes)
    assert total[ANY_POOL, names["cpu"]] <= cpu + Fraction(of_quotas["cpu"]), "more than the nodes have"
    assert total[ANY_POOL, names["memory"]] <= memory + Fraction(of_quotas["memory"])


def limits_hold(environment: Environment, tenants: tuple[Tenant, ...], plan: Plan) -> None:
    """Every limit is written below the root; a strict share neither lends nor borrows, a firm tier never borrows."""
    queues, machines = cluster_queues(plan), machine_resources(environment).values()
    for item in (*queues.values(), *cohorts(plan)):
        if item["metadata"]["name"] != ROOT:
            assert (
                amounts(item).keys() == amounts(item, "lendingLimit").keys() == amounts(item, "borrowingLimit").keys()
            )
    for tenant in tenants:
        top, *tier_queues = plan.tenant(tenant.tenant).queues
        assert bool(tier_queues) == (len(tenant.tiers) > 1) == (top["kind"] == "Cohort"), (
            "one queue needs nothing above it"
        )
        lent, borrowed = amounts(top, "lendingLimit"), amounts(top, "borrowingLimit")
        for resource in {queue_resource(environment, flavor) for flavor in tenant.gpus}:
            same = [share for f, share in tenant.gpus.items() if queue_resource(environment, f) == resource]
            total = sum(amount for (_, r), amount in lent.items() if r == resource)
            assert total <= sum(share.lends for share in same)
            for (_, r), amount in borrowed.items():
                assert r != resource or amount <= sum(share.borrows for share in same)
        for tier in tenant.tiers:
            queue = queues[f"{tenant.tenant}--{tier}"]
            assert environment.tiers[tier].allow_borrowing or set(amounts(queue, "borrowingLimit").values()) <= {0}
            promised: Counter[str] = Counter()
            for part in tenant.namespaces:
                promised.update(tenant.guaranteed_in(part) if tenant.tier_of(part) == tier else {})
            resources: Counter[str] = Counter()
            for flavor, count in promised.items():
                resources[queue_resource(environment, flavor)] += count
            sums: Counter[str] = Counter()
            for (_, resource), amount in amounts(queue).items():
                if resource not in (*machines, BOARD_COMPUTE, BOARD_MEMORY):
                    sums[resource] += int(amount)
            assert +sums == +resources, "a queue is promised what its parts hold"


def no_quota_is_below_its_queue(environment: Environment, tenants: tuple[Tenant, ...], plan: Plan) -> None:
    """Or the queue would start work whose pods the quota refuses."""
    queues = cluster_queues(plan)
    tenant_quotas = [o for o in plan.objects() if (o["kind"], o["metadata"]["name"]) == ("ResourceQuota", "tenant")]
    hard = {o["metadata"]["namespace"]: o["spec"]["hard"] for o in tenant_quotas}
    for tenant in tenants:
        for part in tenant.namespaces:
            queue = queues[f"{tenant.tenant}--{tenant.tier_of(part)}"]
            gives: Counter[str] = Counter()
            for limit in ("nominalQuota", "borrowingLimit"):
                for (_, resource), amount in amounts(queue, limit).items():
                    gives[resource] += int(amount)
            for flavor in tenant.gpus:
                resource = queue_resource(environment, flavor)
                keys = (
                    [f"{flavor}.deviceclass.resource.k8s.io/devices"]
                    if environment.uses_device_claims
                    else [f"requests.{resource}"]
                )
                for key in keys:
                    limit = quantities.parse(hard[tenant.namespace_name(part)][key])
                    assert limit >= gives[resource], f"{key} of {part.name}"


def others_change_nothing(environment: Environment, tenants: tuple[Tenant, ...], plan: Plan) -> None:
    """A tenant's namespaces stay the same, and its queues where none of its flavors comes from two pools."""
    assert digest(planning.plan(environment, tenants[::-1]).objects()) == digest(plan.objects())
    for tenant in tenants:
        alone = planning.plan(environment, [tenant]).tenants[0]
        with_others = plan.tenant(tenant.tenant)
        assert alone.namespaces == with_others.namespaces
        shape = [[(o["kind"], o["metadata"], *sorted(amounts(o))) for o in t.queues] for t in (alone, with_others)]
        assert shape[0] == shape[1], "only amounts may move"
        if all(len(environment.pools_by_flavor[flavor]) == 1 for flavor in tenant.gpus):
            assert alone.queues == with_others.queues
