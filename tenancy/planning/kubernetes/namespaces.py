"""A tenant's namespaces: what the guards, the scheduler and the bill read about a workload."""

from __future__ import annotations

from tenancy.catalog import gpus, vocabulary
from tenancy.planning.common.device_classes import granted_classes
from tenancy.planning.common.labels import extra_labels, tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.common.priorities import allowed_classes
from tenancy.planning.kubernetes.network import allowed_peers
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.fields.tiers import Spread


def pod_security(version: str, level: str = "restricted") -> dict[str, str]:
    """Pod Security labels, pinned: `latest` would change under running tenants at an upgrade."""
    prefix = vocabulary.PSA_ENFORCE.removesuffix("enforce")
    modes = {"enforce": level, "audit": "restricted", "warn": "restricted"}
    return {
        **{prefix + mode: mode_level for mode, mode_level in modes.items()},
        **{f"{prefix}{mode}-version": f"v{version}" for mode in modes},
    }


def granted_resources(environment: Environment, tenant: Tenant, namespace: Namespace) -> list[str]:
    """Extended resources and huge pages that pods there may name; under DRA they claim GPUs instead."""
    efa_pools = [pool for pool in environment.pools.values() if pool.efa and pool.admits(tenant.tenant, tenant.tiers)]
    quota = environment.tiers[tenant.tier_of(namespace)].quota_for(namespace.quota)
    other_resources = {*quota.extra_resources, *([gpus.EFA] if efa_pools else [])}
    if environment.uses_device_claims:
        return sorted(other_resources)
    return sorted({environment.resource_of(flavor) for flavor in tenant.gpus} | other_resources)


def allowed_pools(environment: Environment, tenant: Tenant, tier: str) -> list[str]:
    """Pools with a taint of their own that the tenant's pods of that tier may tolerate."""
    return [
        name
        for name, pool in sorted(environment.pools.items())
        if pool.is_restricted and pool.admits(tenant.tenant, frozenset({tier}))
    ]


def allowed_registries(environment: Environment, tenant: Tenant) -> list[str]:
    """Prefixes of image names that a tenant may use."""
    return [prefix.replace("{tenant}", tenant.tenant) for prefix in environment.images.registries]


def allowances(environment: Environment, tenant: Tenant, namespace: Namespace) -> list[str]:
    """Exemptions that pods there have. Each is granted, never assumed: a namespace without the annotation has none."""
    tier, allowed = environment.tiers[tenant.tier_of(namespace)], vocabulary.Allowance
    grants = {
        allowed.ANY_NODE: not tenant.on_own_nodes,
        allowed.BESIDE_OTHERS: not tenant.dedicated_hosts,
        allowed.GPUS_FOR_ALL: not tenant.gpu_users,
        allowed.IMAGE_TAGS: tier.allow_image_tags,
        allowed.LARGE_CONFIG: tier.allow_large_config,
        allowed.NODE_RUNTIME: not tenant.is_sandboxed,
        allowed.SYNCED_NAMES: tenant.in_virtual_clusters,
        allowed.WRITABLE_ROOT: tier.allow_writable_root_filesystem,
    }
    return sorted(name.value for name, is_granted in grants.items() if is_granted)


def token_accounts(tenant: Tenant, namespace: Namespace) -> list[str]:
    """Names of a namespace's service accounts whose pods get a token for the API server."""
    return [account.name for account in tenant.accounts_in(namespace) if account.automount_token]


def queue_notes(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Annotations about the namespace's queues, for the guards; empty without a queue."""
    if not environment.has_queues:
        return {}
    tier = environment.tiers[tenant.tier_of(namespace)]
    notes = {
        vocabulary.ALLOWED_QUEUES: ",".join([vocabulary.DEFAULT_QUEUE, *sorted(namespace.queues)]),
        vocabulary.DEFAULT_LIMITS: ",".join(
            f"{resource}={size}" for resource, size in sorted(tier.container.default.items())
        ),
    }
    return notes | ({vocabulary.MAX_RUN_SECONDS: str(seconds(tier.max_run_time))} if tier.max_run_time else {})


def namespace_meta(environment: Environment, tenant: Tenant, namespace: Namespace) -> Meta:
    """Name and labels of the namespace, and annotations that hold what the guards allow in it."""
    tier = tenant.tier_of(namespace)
    declared_accounts = {account.name for account in tenant.accounts_in(namespace)}
    accounts = {vocabulary.DEFAULT_ACCOUNT, namespace.service_account, *declared_accounts}
    lists = {
        vocabulary.ALLOWANCES: allowances(environment, tenant, namespace),
        vocabulary.ALLOWED_ACCOUNTS: sorted(accounts),
        vocabulary.ALLOWED_RUNTIMES: [vocabulary.SANDBOX_CLASS] if tenant.is_sandboxed else [],
        vocabulary.TOKEN_ACCOUNTS: token_accounts(tenant, namespace),
        vocabulary.ALLOWED_POOLS: allowed_pools(environment, tenant, tier),
        vocabulary.ALLOWED_PRIORITIES: allowed_classes(environment, tier),
        vocabulary.ALLOWED_REGISTRIES: allowed_registries(environment, tenant),
        vocabulary.ALLOWED_RESOURCES: granted_resources(environment, tenant, namespace),
        **allowed_peers(tenant),
    }
    if environment.uses_device_claims:
        lists[vocabulary.ALLOWED_DEVICE_CLASSES] = granted_classes(environment, tenant)
    waivers = [f"{w.rule}={w.until.isoformat()}" for w in tenant.exceptions if w.namespace == namespace.name]
    spread, spread_of = environment.tiers[tier].topology_spread, environment.tiers[tier].topology_spread_scope
    annotations = {
        **tenant.annotations,
        **namespace.annotations,
        **{key: ",".join(values) for key, values in lists.items()},
        **queue_notes(environment, tenant, namespace),
        vocabulary.OWNER_MAIL: tenant.owner.mail,
        **({vocabulary.OWN_LABELS: ",".join(label_keys)} if (label_keys := extra_labels(tenant, namespace)) else {}),
        **(
            {}
            if spread is Spread.NONE
            else {vocabulary.SPREAD: spread.value, vocabulary.SPREAD_OF: ",".join(sorted(spread_of))}
        ),
        **({vocabulary.LEAVING: tenant.offboarding.value} if tenant.offboarding else {}),
        **({vocabulary.TITLE: tenant.title} if tenant.title else {}),
        **({vocabulary.PREFIX + "purpose": namespace.purpose} if namespace.purpose else {}),
        **({vocabulary.EXCEPTIONS: ",".join(sorted(waivers))} if waivers else {}),
        # An existing namespace's labels have other owners; adopting is taking them over.
        **({"pulumi.com/patchForce": "true"} if tenant.adopt else {}),
    }
    labels = {
        **tenant_labels(environment, tenant, namespace),
        **pod_security(environment.cluster.kubernetes, namespace.pod_security.value),
    }
    return Meta(tenant.namespace_name(namespace), labels, annotations=annotations)
