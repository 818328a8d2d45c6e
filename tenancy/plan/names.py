"""Names and tags of what is made on AWS."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from tenancy.catalog import vocabulary as words
from tenancy.spec.environment import Environment

ROLE_LENGTH = 64
"""IAM's limit on role names; every other name here is allowed to be longer."""

CLUSTER_TAG = "tenancy:cluster"
POOL_TAG = "tenancy:pool"
ENVIRONMENT_TAG = "tenancy:environment"
SUBNET_TAG = "tenancy:subnet"
"""Of the subnets that are made; Karpenter finds the private ones by it."""


class SubnetUse(StrEnum):
    PRIVATE = "private"
    PUBLIC = "public"


def aws_name(environment: Environment, purpose: str) -> str:
    """`<cluster>-<purpose>`; a name that would be too long is cut and keeps a hash of the whole."""
    whole = f"{environment.cluster.name}-{purpose}"
    if len(whole) <= ROLE_LENGTH:
        return whole
    kept = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: ROLE_LENGTH - len(kept) - 1]}-{kept}"


def node_role(environment: Environment) -> str:
    """Role of every node's own identity."""
    return aws_name(environment, "node")


def karpenter_queue(environment: Environment) -> str:
    """SQS queue in which Karpenter reads of spot interruptions and of machines that fail."""
    return aws_name(environment, "karpenter")


def tags(environment: Environment, pool: str | None = None) -> dict[str, str]:
    """Tags of everything on AWS; the platform's own cost vocabulary is the environment's."""
    return {
        ENVIRONMENT_TAG: environment.environment,
        CLUSTER_TAG: environment.cluster.name,
        "env": environment.environment,
        "managed-by": words.PRODUCT,
        **({POOL_TAG: pool} if pool else {}),
    }


def pool_tags(environment: Environment, name: str) -> dict[str, str]:
    """Tags of a pool's nodes and volumes; those of a pool with one tenant are that tenant's."""
    pool = environment.pools[name]
    owner = {words.TENANT_TAG: pool.tenants[0]} if len(pool.tenants) == 1 and not pool.tiers else {}
    return {**tags(environment, name), **owner}


def control_plane_name(cluster: str) -> str:
    """Logical name of the control plane."""
    return f"{cluster}-cluster"


def node_group_names(cluster: str, group: str) -> tuple[str, str]:
    """Logical names of a node group's launch template and of the group itself."""
    return f"{cluster}-{group}-template", f"{cluster}-{group}-nodes"


def kubeconfig_command(cluster: str, region: str, context: str) -> str:
    """What puts a cluster into the kubeconfig under the name of the environment's context."""
    return f"aws eks update-kubeconfig --name {cluster} --region {region} --alias {context}"
