"""Settings that a tenant with isolation: virtual-cluster cannot have, and resources that its control planes use."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from tenancy.catalog import virtual_clusters as sizes
from tenancy.catalog import vocabulary as words
from tenancy.schema.base import Mistake, amount, broken
from tenancy.schema.cluster import Cni
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Namespace, Tenant


def virtual(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Requirements of a virtual cluster, and settings that its syncer cannot keep."""
    if not tenant.in_virtual_clusters:
        return
    where, shared = ("isolation",), "drop it, or set isolation to namespace or dedicated-nodes"
    if environment.virtual_clusters is None:
        yield broken(where, "iso-03", f"isolation: {tenant.isolation} in an environment without virtual-clusters")
        return
    if environment.cluster.cni is not Cni.CILIUM:
        given = f"isolation: {tenant.isolation} with cni {environment.cluster.cni}, which cannot select the API server"
        yield broken(where, "iso-03", given, "set cluster.cni to cilium: its syncer asks the API server")
    if environment.devices_by_claim:
        given = f"isolation: {tenant.isolation} with devices: dra, whose claims need cluster-wide rights to be synced"
        yield broken(where, "iso-03", given, "set cluster.devices to plugin")
    prefixes = tuple(p.replace("{tenant}", tenant.tenant) for p in environment.images.registries)
    for image in environment.virtual_clusters.images:
        if not image.startswith(prefixes):
            given = f"isolation: {tenant.isolation}, and image {image.partition('@')[0]} outside {', '.join(prefixes)}"
            yield broken(where, "iso-03", given, "copy it into a registry of images.registries and name it there")
    if tenant.adopt:
        yield broken(("adopt",), "iso-03", "adopt: true, for work that is in no virtual cluster", shared)
    if tenant.apart:
        yield broken(("apart",), "iso-03", "apart: true, which a syncer limits to its own pods", shared)
    if tenant.gpu_users:
        yield broken(("gpu-users",), "iso-03", "gpu-users, while one syncer makes the pods of all users", shared)
    for i, namespace in enumerate(tenant.namespaces):
        yield from _virtual_part(environment, tenant, namespace, ("namespaces", i))


def _virtual_part(
    environment: Environment, tenant: Tenant, namespace: Namespace, at: tuple[str, int]
) -> Iterator[Mistake]:
    if namespace.service_accounts:
        given = "service-accounts of a namespace whose pods all run as one account of the host"
        yield broken((*at, "service-accounts"), "iso-03", given, "drop them, and make them in the virtual cluster")
    if namespace.service_account == words.VIRTUAL_CLUSTER:
        yield broken((*at, "service-account"), "iso-03", f"service-account: {namespace.service_account}, the syncer's")
    if not namespace.open_inside:
        given = "open-inside: false, while its pods need the API server in their namespace"
        yield broken((*at, "open-inside"), "iso-03", given, "drop it")
    tier = environment.tiers.get(name := tenant.tier_of(namespace))
    if tier is None:
        return
    where = (*at, "tier") if namespace.tier else ("tier",)
    if tier.max_run_time and environment.queued:
        given = f"tier {name}, whose max-run-time would end the namespace's own DNS"
        yield broken(where, "iso-03", given, "use a tier without one")
    for who, size in sizes.CONTAINERS.items():
        bounds = (
            *(("max", k, v, size["limits"].get(k, v)) for k, v in tier.container.max.items()),
            *(("min", k, size["requests"].get(k, v), v) for k, v in tier.container.min.items()),
        )
        for bound, what, most, least in bounds:
            if amount(least) > amount(most):
                given = f"tier {name}, whose container.{bound} of {what} excludes {who}: {least} above {most}"
                yield broken(where, "iso-03", given, "widen it, or use another tier")
    if not amount(tier.claim.min) <= amount(sizes.VOLUME) <= amount(tier.claim.max):
        given = f"tier {name}, whose claim bounds exclude the control plane's {sizes.VOLUME}"
        yield broken(where, "iso-03", given, "widen them, or use another tier")
    quota = tier.allows(namespace.quota).effective()
    needs = {
        "cpu": _both("requests", "cpu"),
        "cpu-limit": _both("limits", "cpu"),
        "memory": _both("requests", "memory"),
        "memory-limit": _both("limits", "memory"),
        "ephemeral-storage": _both("limits", "ephemeral-storage"),
        "pods": sizes.PODS,
        "volume-claims": 1,
        "storage": amount(sizes.VOLUME),
    }
    for what, need in needs.items():
        if quota[what] < need:
            given = f"a quota of {what} below what the control plane of namespace {namespace.name} takes"
            yield broken((*at, "quota") if namespace.quota else where, "iso-03", given, "raise it")


def _both(side: str, what: str) -> Decimal:
    return sum((amount(size[side][what]) for size in sizes.RUNNING), Decimal())
