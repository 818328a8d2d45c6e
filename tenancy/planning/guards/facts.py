"""Facts of an environment that the expressions of guards depend on."""

from __future__ import annotations

from tenancy.catalog.frameworks import FRAMEWORKS, Framework
from tenancy.rules.model import GuardFacts
from tenancy.spec.fields.environment import Environment


def frameworks(environment: Environment) -> tuple[Framework, ...]:
    """Kinds that the environment installs and queues."""
    return tuple(FRAMEWORKS[kind] for kind in sorted(environment.queues.kinds)) if environment.has_queues else ()


def guard_facts(environment: Environment) -> GuardFacts:
    """Facts of an environment for the expressions of its guards."""
    return GuardFacts(
        platform_group=environment.platform.group,
        system_namespaces=tuple(environment.system_namespaces),
        kubernetes=environment.cluster.kubernetes,
        queued=environment.has_queues,
        devices_by_claim=environment.uses_device_claims,
        virtual_clusters=bool(environment.virtual_clusters),
        frameworks=frameworks(environment),
        claim_classes=tuple(environment.claim_classes),
        volume_attributes_classes=tuple(environment.platform.volume_attributes_classes),
        keys=tuple(environment.platform.metadata_keys),
    )
