"""Settings that a tenant with isolation: virtual-cluster cannot have, and resources that its control planes use."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from tenancy.catalog import virtual_clusters as sizes
from tenancy.catalog import vocabulary
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


def virtual_cluster_mistakes(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Requirements of a virtual cluster, and settings that its syncer cannot keep."""
    if not tenant.in_virtual_clusters:
        return
    location, other_isolation = ("isolation",), "drop it, or set isolation to namespace or dedicated-nodes"
    if environment.virtual_clusters is None:
        yield rule_mistake(
            location, "iso-03", f"isolation: {tenant.isolation} in an environment without virtual-clusters"
        )
        return
    if environment.cluster.cni is not Cni.CILIUM:
        fault = f"isolation: {tenant.isolation} with cni {environment.cluster.cni}, which cannot select the API server"
        yield rule_mistake(location, "iso-03", fault, "set cluster.cni to cilium: its syncer asks the API server")
    if environment.uses_device_claims:
        fault = f"isolation: {tenant.isolation} with devices: dra, whose claims need cluster-wide rights to be synced"
        yield rule_mistake(location, "iso-03", fault, "set cluster.devices to plugin")
    prefixes = tuple(p.replace("{tenant}", tenant.tenant) for p in environment.images.registries)
    for image in environment.virtual_clusters.images:
        if not image.startswith(prefixes):
            fault = f"isolation: {tenant.isolation}, and image {image.partition('@')[0]} outside {', '.join(prefixes)}"
            yield rule_mistake(
                location, "iso-03", fault, "copy it into a registry of images.registries and name it there"
            )
    if tenant.adopt:
        yield rule_mistake(("adopt",), "iso-03", "adopt: true, for work that is in no virtual cluster", other_isolation)
    if tenant.dedicated_hosts:
        yield rule_mistake(
            ("dedicated-hosts",),
            "iso-03",
            "dedicated-hosts: true, which a syncer limits to its own pods",
            other_isolation,
        )
    if tenant.gpu_users:
        yield rule_mistake(
            ("gpu-users",), "iso-03", "gpu-users, while one syncer makes the pods of all users", other_isolation
        )
    for i, namespace in enumerate(tenant.namespaces):
        yield from _namespace_mistakes(environment, tenant, namespace, ("namespaces", i))


def _namespace_mistakes(
    environment: Environment, tenant: Tenant, namespace: Namespace, namespace_location: tuple[str, int]
) -> Iterator[Mistake]:
    if namespace.service_accounts:
        fault = "service-accounts of a namespace whose pods all run as one account of the host"
        yield rule_mistake(
            (*namespace_location, "service-accounts"),
            "iso-03",
            fault,
            "drop them, and make them in the virtual cluster",
        )
    if namespace.service_account == vocabulary.VIRTUAL_CLUSTER:
        yield rule_mistake(
            (*namespace_location, "service-account"),
            "iso-03",
            f"service-account: {namespace.service_account}, the syncer's",
        )
    if not namespace.allow_intra_namespace:
        fault = "allow-intra-namespace: false, while its pods need the API server in their namespace"
        yield rule_mistake((*namespace_location, "allow-intra-namespace"), "iso-03", fault, "drop it")
    tier = environment.tiers.get(name := tenant.tier_of(namespace))
    if tier is None:
        return
    location = (*namespace_location, "tier") if namespace.tier else ("tier",)
    if tier.max_run_time and environment.has_queues:
        fault = f"tier {name}, whose max-run-time would end the namespace's own DNS"
        yield rule_mistake(location, "iso-03", fault, "use a tier without one")
    for container, size in sizes.CONTAINERS.items():
        bounds = (
            *(("max", k, v, size["limits"].get(k, v)) for k, v in tier.container.max.items()),
            *(("min", k, size["requests"].get(k, v), v) for k, v in tier.container.min.items()),
        )
        for bound, resource, upper, lower in bounds:
            if amount(lower) > amount(upper):
                fault = (
                    f"tier {name}, whose container.{bound} of {resource} excludes {container}: {lower} above {upper}"
                )
                yield rule_mistake(location, "iso-03", fault, "widen it, or use another tier")
    if not amount(tier.volume_claim.min) <= amount(sizes.VOLUME) <= amount(tier.volume_claim.max):
        fault = f"tier {name}, whose claim bounds exclude the control plane's {sizes.VOLUME}"
        yield rule_mistake(location, "iso-03", fault, "widen them, or use another tier")
    quota = tier.quota_for(namespace.quota).effective()
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
    for resource, need in needs.items():
        if quota[resource] < need:
            fault = f"a quota of {resource} below what the control plane of namespace {namespace.name} takes"
            yield rule_mistake(
                (*namespace_location, "quota") if namespace.quota else location, "iso-03", fault, "raise it"
            )


def _both(side: str, what: str) -> Decimal:
    return sum((amount(size[side][what]) for size in sizes.CONCURRENT_CONTAINERS), Decimal())
