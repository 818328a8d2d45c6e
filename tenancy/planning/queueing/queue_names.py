"""Names of Kueue's objects, and of the resources that they count."""

from __future__ import annotations

from tenancy.catalog import vocabulary
from tenancy.planning.common.pools import network_labels
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.tenant import Tenant

API = "kueue.x-k8s.io/v1beta2"
ROOT = "organisation"
"""The Cohort above all; its quota is what is guaranteed to no tenant (unallocated)."""
ANY_POOL = "any.pool"
"""Flavor of CPU and memory. With a dot, so that no pool is called so."""
TOPOLOGIES = {3: "eks-network", 4: "eks-network-4"}
"""By the number of network layers in nodes' labels: Kueue takes only nodes that have the labels of all levels."""
PROVISIONING = "provisioning"
CORES = vocabulary.PREFIX + "millicores"
MEMORY = vocabulary.PREFIX + "memory"
"""CPU in thousandths and memory in bytes under names that no pod asks for. Kueue refuses work that asks for a topology
as soon as a flavor without one has anything that its pods ask for (`tas_flavorassigner.go`, "does not support")."""
BOARD_COMPUTE = vocabulary.PREFIX + "board-compute"
BOARD_MEMORY = vocabulary.PREFIX + "board-memory"


def department_cohort(department: str) -> str:
    """Name of the Cohort of a department."""
    return vocabulary.derived_name("department", department)


def tenant_cohort(tenant: str) -> str:
    """Name of the Cohort of a tenant."""
    return vocabulary.derived_name("tenant", tenant)


def parent_cohort(tenant: Tenant) -> str:
    """Name of the Cohort of a tenant's queues: its own, or for one queue its department's."""
    return tenant_cohort(tenant.tenant) if len(tenant.tiers) > 1 else department_cohort(tenant.department)


def queue_name(tenant: str, tier: str) -> str:
    """Name of a ClusterQueue. It is a label of its pods; the limits on both names keep it within 63 characters."""
    return vocabulary.derived_name(tenant, tier)


def queue_resource(environment: Environment, flavor: str) -> str:
    """Resource name of a flavor in the queues; under DRA devices get a name there (`deviceClassMappings`)."""
    return vocabulary.PREFIX + flavor if environment.uses_device_claims else environment.resource_of(flavor)


def flavor_name(environment: Environment, pool: str) -> str:
    """Kueue's flavor of a pool. A flavor's topology is immutable, so a pool with one has a flavor of another name."""
    topology = topology_of(environment, environment.pools[pool])
    return f"{pool}.{topology}" if topology else pool


def pool_of(flavor: str) -> str:
    """Pool of a flavor; names of pools have no dots."""
    return flavor if flavor == ANY_POOL else flavor.partition(".")[0]


def topology_levels(layers: int) -> tuple[str, ...]:
    """Broadest first; labels that EKS puts on nodes whose types report their place (EKS user guide, "topology aware
    scheduling"). Kueue minds node taints only where the last one is the host's name."""
    return (*network_labels(layers), "kubernetes.io/hostname")


def topology_of(environment: Environment, pool: Pool) -> str | None:
    """Name of the Topology by which Kueue places pods of the pool; None where it does not."""
    # Kueue places no pods with claims of devices, and the others on nodes that are there and have all of the labels.
    # In a pool that scales, nothing would ask for another node, unless a ProvisioningRequest does first.
    has_nodes = not pool.is_autoscaled or environment.queues.provisioning_class is not None
    places_pods = pool.efa and has_nodes and not environment.uses_device_claims
    return TOPOLOGIES.get(pool.network_layers) if places_pods else None
