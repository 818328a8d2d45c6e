"""What a node of a pool yields, and what of it goes with one GPU or slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenancy.catalog import boards, gpus, nodes
from tenancy.kube import quantities
from tenancy.kube.placement import place_by_pools
from tenancy.planning.common.pools import node_allocatable, tenant_allocatable
from tenancy.schema.base import amount
from tenancy.schema.environment import Environment
from tenancy.schema.pools import GpuPartition, Pool, Provisioner, resource_name
from tenancy.schema.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of thing that pods ask a node for: a whole GPU, a slice, or a replica of either."""

    flavor: str | None
    """None: no flavor matches, so no tenant can be granted it."""
    profile: str | None
    resource: str
    """The extended resource, or the device class where GPUs are asked for by claim."""
    count: int
    """How many one node has."""
    share: Fraction
    """The part of a board that one takes away from others."""
    each: nodes.Resources
    """What is left for one when all of the node are in use."""


@dataclass(frozen=True, slots=True)
class PoolYield:
    """One pool: how many nodes, and what one of them offers."""

    pool: str
    instance: str
    board: str
    nodes_min: int
    nodes_max: int
    provisioner: Provisioner
    purchase: str
    layout: str
    flavors: Mapping[str, int]
    resources: Mapping[str, int]
    """Extended resources of one node, EFA among them."""
    vcpu: int
    """As EC2 sells it."""
    memory_gib: int
    """As EC2 sells it."""
    allocatable: nodes.Resources
    """What the kubelet offers to all pods."""
    daemonsets: nodes.Resources
    """What the platform's own pods take of it."""
    left: nodes.Resources
    """What is left for tenants."""
    pods_left: int
    """Pods left when each unit has one."""
    units: tuple[Unit, ...]
    notes: tuple[str, ...]


def pool_yield(environment: Environment, name: str, tenants: Sequence[Tenant] = ()) -> PoolYield:
    """What one pool yields. The tiers of `tenants` that a pool names are judged beside those it names itself."""
    pool = environment.pools[name]
    offered, left = node_allocatable(environment, name), tenant_allocatable(environment, name)
    units = _units(environment, name, left)
    efa = {gpus.EFA: pool.machine.efa} if pool.efa else {}
    by_plugin = {} if environment.uses_device_claims else {unit.resource: unit.count for unit in units}
    return PoolYield(
        pool=name,
        instance=pool.instance,
        board=pool.machine.gpu,
        nodes_min=pool.nodes.min,
        nodes_max=pool.nodes.max,
        provisioner=pool.effective_provisioner,
        purchase=str(pool.purchase),
        layout=_layout(environment, name),
        flavors=environment.flavors_of(name),
        resources={**efa, **by_plugin},
        vcpu=pool.machine.vcpu,
        memory_gib=pool.machine.memory,
        allocatable=offered,
        daemonsets=environment.daemonset_resources(name),
        left=left,
        pods_left=left.pods - sum(unit.count for unit in units),
        units=units,
        notes=tuple(_notes(environment, name, units, tenants)),
    )


def parts_of(left: nodes.Resources, shares: Mapping[str, tuple[int, Fraction]]) -> dict[str, nodes.Resources]:
    """A node's resources divided among what it is cut into, by count and share of a board; rounded down.

    A 3g slice so gets more CPU than a 1g. A board that is not cut to the end leaves nothing idle: its slices get more.
    """
    whole = sum((count * share for count, share in shares.values()), Fraction())
    parts = {key: share / whole for key, (_, share) in shares.items()}
    return {
        key: nodes.Resources(int(left.cpu * part), int(left.memory * part), 1, int(left.ephemeral * part))
        for key, part in parts.items()
    }


def _units(environment: Environment, name: str, left: nodes.Resources) -> tuple[Unit, ...]:
    pool = environment.pools[name]
    mode, replicas = (pool.share.mode, pool.share.replicas) if pool.share else (None, 1)
    counts: Counter[str] = Counter()
    for count, slices in environment.partitions_of(name):
        for profile, each in slices.items() or [("", 1)]:
            counts[profile] += count * each * replicas
    board = pool.machine.gpu
    shares = {
        profile: (count, (boards.share_of(board, profile) if profile else Fraction(1)) / replicas)
        for profile, count in counts.items()
    }
    called = {environment.flavors[flavor].mig or "": flavor for flavor in environment.flavors_of(name)}
    each = parts_of(left, shares)
    return tuple(
        Unit(
            flavor=called.get(profile),
            profile=profile or None,
            resource=called.get(profile, "")
            if environment.uses_device_claims
            else resource_name(profile or None, mode is not None, pool.strategy),
            count=count,
            share=share,
            each=each[profile],
        )
        for profile, (count, share) in shares.items()
    )


def _layout(environment: Environment, name: str) -> str:
    pool = environment.pools[name]
    parts = " and ".join(
        f"{count} x [{boards.write_layout(slices)}]" if slices else _whole(count)
        for count, slices in environment.partitions_of(name)
    )
    if not parts:
        return "no GPUs"
    return f"{parts}, {pool.share.replicas} pods on each by {pool.share.mode}" if pool.share else parts


def _whole(count: int) -> str:
    return f"{count} whole GPU{'s' * (count > 1)}"


def _notes(environment: Environment, name: str, units: Sequence[Unit], tenants: Sequence[Tenant]) -> Iterator[str]:
    pool = environment.pools[name]
    if not pool.nodes.min:
        yield "nodes.min is 0: the pool backs no guarantee"
    for unit in units:
        if unit.flavor is None:
            yield f"{unit.count} x {unit.profile or 'GPU'} on every node match no flavor: no tenant can be granted them"
    for cut in environment.partitions_of(name):
        if cut.slices and (more := _room(pool.machine.gpu, cut)):
            yield f"{cut.gpus} x [{boards.write_layout(cut.slices)}]: each GPU has room for {more} more"
    if environment.has_queues and not pool.machine.gpus:
        yield from _beyond(environment, name, tenants)
    for tier in sorted(_tiers(environment, pool, tenants)):
        container = environment.tiers[tier].container
        for unit in units:
            what = unit.flavor or unit.profile or "GPU"
            if over := _over(container.default_request, unit.each):
                yield (
                    f"tier {tier}: a container that writes no requests asks for more than one {what} has ({over}): "
                    "such pods do not fill a node; lower container.default-request"
                )
            if over := _over(container.default, unit.each):
                yield (
                    f"tier {tier}: a container that writes no limits may use more than one {what} has ({over}): "
                    "a full node is overcommitted; lower container.default"
                )


def _beyond(environment: Environment, name: str, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Where queues admit more than a pool without GPUs can run: only namespaces' quotas limit CPU and memory."""
    pools = {each: pool for each, pool in environment.pools.items() if not pool.machine.gpus}
    cores: Counter[frozenset[str]] = Counter()
    gibibytes: Counter[frozenset[str]] = Counter()
    for tenant in tenants:
        for namespace in tenant.namespaces:
            tier = tenant.tier_of(namespace)
            if mine := frozenset(each for each, pool in pools.items() if pool.admits(tenant.tenant, frozenset({tier}))):
                quota = environment.tiers[tier].quota_for(namespace.quota)
                cores[mine] += int(amount(quota.cpu))
                gibibytes[mine] += int(amount(quota.memory) / 2**30)
    nodes_of = {each: (pool.nodes.max, node_allocatable(environment, each)) for each, pool in pools.items()}
    for claims, there, unit in (
        (cores, {each: most * node.cpu // 1000 for each, (most, node) in nodes_of.items()}, " cores"),
        (gibibytes, {each: most * node.memory // 1024 for each, (most, node) in nodes_of.items()}, "Gi"),
    ):
        _, full = place_by_pools(claims, there)
        if name in full:
            quotas = sum(count for mine, count in claims.items() if mine <= full)
            have = sum(there[each] for each in full)
            yield (
                f"quotas of the namespaces that come here are {quotas:,}{unit}, and all nodes of "
                f"{' and '.join(sorted(full))} have {have:,}{unit}: queues admit more than the nodes can run"
            )


def _room(board: str, cut: GpuPartition) -> str | None:
    """The largest slice for which a board with this layout has room left."""
    profiles = boards.BOARDS[board].profiles
    fitting = [p for p in profiles if not boards.layout_misfit(board, {**cut.slices, p: cut.slices.get(p, 0) + 1})]
    return max(fitting, key=lambda p: (profiles[p].memory, profiles[p].compute), default=None)


def _tiers(environment: Environment, pool: Pool, tenants: Sequence[Tenant]) -> frozenset[str]:
    """Tiers whose pods may come to the pool."""
    if not pool.is_restricted:
        return frozenset(environment.tiers)
    return frozenset(pool.tiers).union(*(tenant.tiers for tenant in tenants if tenant.tenant in pool.tenants))


def _over(asked: Mapping[str, str], each: nodes.Resources) -> str:
    """What of cpu and memory is more than one unit has."""
    has = {"cpu": f"{each.cpu}m", "memory": f"{each.memory}Mi"}
    return " and ".join(
        f"{key} {asked[key]} of {quantities.write(amount(there))}"
        for key, there in has.items()
        if key in asked and amount(asked[key]) > amount(there)
    )
