"""Resources of a node of a pool, and the part of them that goes with one GPU or slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenancy.catalog import boards, gpus, nodes
from tenancy.kube import quantities
from tenancy.kube.placement import place_by_pools
from tenancy.planning.common.pools import node_allocatable, tenant_allocatable
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import GpuPartition, Pool, Provisioner, resource_name
from tenancy.spec.fields.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of thing that pods ask a node for: a whole GPU, a slice, or a replica of either."""

    flavor: str | None
    """None: no flavor matches, so no tenant can be granted it."""
    profile: str | None
    resource: str
    """The extended resource, or the device class where GPUs are asked for by claim."""
    count: int
    """Number of units of one node."""
    share: Fraction
    """The part of a board that one takes away from others."""
    each: nodes.Resources
    """Resources of one unit when all units of the node are in use."""


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
    """Resources that the kubelet offers to all pods."""
    daemonsets: nodes.Resources
    """Requests of the platform's own pods."""
    left: nodes.Resources
    """Resources that are left for tenants."""
    pods_left: int
    """Pods left when each unit has one."""
    units: tuple[Unit, ...]
    notes: tuple[str, ...]


def pool_yield(environment: Environment, name: str, tenants: Sequence[Tenant] = ()) -> PoolYield:
    """Yield of one pool. Tiers of `tenants` that a pool names are judged together with those that it names itself."""
    pool = environment.pools[name]
    allocatable, tenant_part = node_allocatable(environment, name), tenant_allocatable(environment, name)
    units = _units(environment, name, tenant_part)
    efa = {gpus.EFA: pool.machine.efa} if pool.efa else {}
    by_plugin = {} if environment.uses_device_claims else {unit.resource: unit.count for unit in units}
    return PoolYield(
        pool=name,
        instance=pool.instance_type,
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
        allocatable=allocatable,
        daemonsets=environment.daemonset_resources(name),
        left=tenant_part,
        pods_left=tenant_part.pods - sum(unit.count for unit in units),
        units=units,
        notes=tuple(_notes(environment, name, units, tenants)),
    )


def parts_of(available: nodes.Resources, shares: Mapping[str, tuple[int, Fraction]]) -> dict[str, nodes.Resources]:
    """A node's resources divided among what it is cut into, by count and share of a board; rounded down.

    A 3g slice so gets more CPU than a 1g. A board that is not cut to the end leaves nothing idle: its slices get more.
    """
    total_share = sum((count * share for count, share in shares.values()), Fraction())
    parts = {key: share / total_share for key, (_, share) in shares.items()}
    return {
        key: nodes.Resources(
            int(available.cpu * part), int(available.memory * part), 1, int(available.ephemeral * part)
        )
        for key, part in parts.items()
    }


def _units(environment: Environment, name: str, available: nodes.Resources) -> tuple[Unit, ...]:
    pool = environment.pools[name]
    mode, replicas = (pool.gpu_sharing.mode, pool.gpu_sharing.replicas) if pool.gpu_sharing else (None, 1)
    counts: Counter[str] = Counter()
    for count, slices in environment.partitions_of(name):
        for profile, slice_count in slices.items() or [("", 1)]:
            counts[profile] += count * slice_count * replicas
    board = pool.machine.gpu
    shares = {
        profile: (count, (boards.share_of(board, profile) if profile else Fraction(1)) / replicas)
        for profile, count in counts.items()
    }
    flavor_by_profile = {environment.flavors[flavor].mig or "": flavor for flavor in environment.flavors_of(name)}
    parts = parts_of(available, shares)
    return tuple(
        Unit(
            flavor=flavor_by_profile.get(profile),
            profile=profile or None,
            resource=flavor_by_profile.get(profile, "")
            if environment.uses_device_claims
            else resource_name(profile or None, mode is not None, pool.strategy),
            count=count,
            share=share,
            each=parts[profile],
        )
        for profile, (count, share) in shares.items()
    )


def _layout(environment: Environment, name: str) -> str:
    pool = environment.pools[name]
    parts = " and ".join(
        f"{count} x [{boards.write_layout(slices)}]" if slices else _whole_gpus_text(count)
        for count, slices in environment.partitions_of(name)
    )
    if not parts:
        return "no GPUs"
    return (
        f"{parts}, {pool.gpu_sharing.replicas} pods on each by {pool.gpu_sharing.mode}" if pool.gpu_sharing else parts
    )


def _whole_gpus_text(count: int) -> str:
    return f"{count} whole GPU{'s' * (count > 1)}"


def _notes(environment: Environment, name: str, units: Sequence[Unit], tenants: Sequence[Tenant]) -> Iterator[str]:
    pool = environment.pools[name]
    if not pool.nodes.min:
        yield "nodes.min is 0: the pool backs no guarantee"
    for unit in units:
        if unit.flavor is None:
            yield f"{unit.count} x {unit.profile or 'GPU'} on every node match no flavor: no tenant can be granted them"
    for layout in environment.partitions_of(name):
        if layout.slices and (profile := _room(pool.machine.gpu, layout)):
            yield f"{layout.gpus} x [{boards.write_layout(layout.slices)}]: each GPU has room for {profile} more"
    if environment.has_queues and not pool.machine.gpus:
        yield from _overcommit_notes(environment, name, tenants)
    for tier in sorted(_tiers(environment, pool, tenants)):
        container = environment.tiers[tier].container
        for unit in units:
            unit_name = unit.flavor or unit.profile or "GPU"
            if excess := _excess(container.default_request, unit.each):
                yield (
                    f"tier {tier}: a container that writes no requests asks for more than one {unit_name} has "
                    f"({excess}): such pods do not fill a node; lower container.default-request"
                )
            if excess := _excess(container.default, unit.each):
                yield (
                    f"tier {tier}: a container that writes no limits may use more than one {unit_name} has ({excess}): "
                    "a full node is overcommitted; lower container.default"
                )


def _overcommit_notes(environment: Environment, name: str, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Notes on a pool without GPUs for which queues admit more than it can run: only quotas limit CPU and memory."""
    pools = {pool_name: pool for pool_name, pool in environment.pools.items() if not pool.machine.gpus}
    cores: Counter[frozenset[str]] = Counter()
    gibibytes: Counter[frozenset[str]] = Counter()
    for tenant in tenants:
        for namespace in tenant.namespaces:
            tier = tenant.tier_of(namespace)
            if admitting_pools := frozenset(
                pool_name for pool_name, pool in pools.items() if pool.admits(tenant.tenant, frozenset({tier}))
            ):
                quota = environment.tiers[tier].quota_for(namespace.quota)
                cores[admitting_pools] += int(amount(quota.cpu))
                gibibytes[admitting_pools] += int(amount(quota.memory) / 2**30)
    nodes_of = {
        pool_name: (pool.nodes.max, node_allocatable(environment, pool_name)) for pool_name, pool in pools.items()
    }
    for claims, capacity, unit in (
        (
            cores,
            {pool_name: max_nodes * node.cpu // 1000 for pool_name, (max_nodes, node) in nodes_of.items()},
            " cores",
        ),
        (
            gibibytes,
            {pool_name: max_nodes * node.memory // 1024 for pool_name, (max_nodes, node) in nodes_of.items()},
            "Gi",
        ),
    ):
        _, full = place_by_pools(claims, capacity)
        if name in full:
            quotas = sum(count for admitting_pools, count in claims.items() if admitting_pools <= full)
            have = sum(capacity[pool_name] for pool_name in full)
            yield (
                f"quotas of the namespaces that come here are {quotas:,}{unit}, and all nodes of "
                f"{' and '.join(sorted(full))} have {have:,}{unit}: queues admit more than the nodes can run"
            )


def _room(board: str, layout: GpuPartition) -> str | None:
    """The largest slice for which a board with this layout has room left."""
    profiles = boards.BOARDS[board].profiles
    fitting = [
        p for p in profiles if not boards.layout_misfit(board, {**layout.slices, p: layout.slices.get(p, 0) + 1})
    ]
    return max(fitting, key=lambda p: (profiles[p].memory, profiles[p].compute), default=None)


def _tiers(environment: Environment, pool: Pool, tenants: Sequence[Tenant]) -> frozenset[str]:
    """Tiers whose pods may come to the pool."""
    if not pool.is_restricted:
        return frozenset(environment.tiers)
    return frozenset(pool.tiers).union(*(tenant.tiers for tenant in tenants if tenant.tenant in pool.tenants))


def _excess(requests: Mapping[str, str], unit_size: nodes.Resources) -> str:
    """Requests of cpu and memory that exceed one unit, as text."""
    sizes = {"cpu": f"{unit_size.cpu}m", "memory": f"{unit_size.memory}Mi"}
    return " and ".join(
        f"{key} {requests[key]} of {quantities.write(amount(size))}"
        for key, size in sizes.items()
        if key in requests and amount(requests[key]) > amount(size)
    )
