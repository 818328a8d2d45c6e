"""Names and tags of what is made on AWS."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from tenancy.catalog import account, vocabulary
from tenancy.planning.common.labels import extra_labels, tenant_labels, tier_labels
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant

ROLE_LENGTH = account.ROLE_NAME
"""IAM's limit on role names; every other name here is allowed to be longer."""

CLUSTER_TAG = "tenancy:cluster"
EKS_GROUP_TAG = "aws:eks:cluster-name"
"""EKS puts it on the security group that it makes for a cluster, and on no other."""
POOL_TAG = "tenancy:pool"
ENVIRONMENT_TAG = "tenancy:environment"
NAMESPACE_TAG = "tenancy:namespace"
CLAIM_TAG = "kubernetes.io/created-for/pvc/namespace"
"""Tag of a claim's volume; the EBS driver writes it for every storage class (aws-ebs-csi-driver, docs/tagging.md)."""
SUBNET_TAG = "tenancy:subnet"
"""Tag of the subnets that are created; Karpenter finds the private ones by it."""


class SubnetUse(StrEnum):
    """Use of a subnet: nodes, or load balancers and NAT gateways."""

    PRIVATE = "private"
    PUBLIC = "public"


def aws_name(environment: Environment, purpose: str) -> str:
    """`<cluster>-<purpose>`; a name that would be too long is cut and keeps a hash of the whole."""
    name = f"{environment.cluster.name}-{purpose}"
    if len(name) <= ROLE_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: ROLE_LENGTH - len(digest) - 1]}-{digest}"


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
        "managed-by": vocabulary.PRODUCT,
        **({POOL_TAG: pool} if pool else {}),
    }


def pool_tags(environment: Environment, name: str) -> dict[str, str]:
    """Tags of a pool's nodes and volumes; those of a pool with one tenant are that tenant's."""
    pool = environment.pools[name]
    owner = {vocabulary.TENANT_TAG: pool.tenants[0]} if len(pool.tenants) == 1 and not pool.tiers else {}
    return {**tags(environment, name), **owner}


def control_plane_name(cluster: str) -> str:
    """Logical name of the control plane."""
    return f"{cluster}-cluster"


def node_group_names(cluster: str, group: str) -> tuple[str, str]:
    """Logical names of a node group's launch template and of the group itself."""
    return f"{cluster}-{group}-template", f"{cluster}-{group}-nodes"


def kubeconfig_command(cluster: str, region: str, context: str) -> str:
    """Command that adds a cluster to the kubeconfig under the name of the environment's context."""
    return f"aws eks update-kubeconfig --name {cluster} --region {region} --alias {context}"


def tenants_path(environment: Environment) -> str:
    """IAM path of everything that tenants become, and of nothing else."""
    return f"/tenancy/{environment.environment}/"


def tenant_path(environment: Environment, tenant: Tenant) -> str:
    """IAM path of a tenant's roles."""
    return f"{tenants_path(environment)}{tenant.tenant}/"


def platform_path(environment: Environment) -> str:
    """IAM path of what only the platform has; beside the tenants' and not above."""
    return f"/tenancy-platform/{environment.environment}/"


def tenant_role(environment: Environment, tenant: Tenant, namespace: str) -> str:
    """Role of a namespace's pods. A name that is cut contains a dot, any other contains none: no two are the same."""
    return truncate_with_hash(_qualified_name(environment, tenant, namespace), account.ROLE_NAME, ".")


def ci_role(environment: Environment, tenant: Tenant) -> str:
    """Role of the tenant's pipeline; `.ci` is neither a namespace nor a hash."""
    name = f"{environment.cluster.name}{vocabulary.SEPARATOR}{tenant.tenant}"
    return f"{truncate_with_hash(name, account.ROLE_NAME - 3, '.')}.ci"


def tenant_queue(environment: Environment, tenant: Tenant, name: str) -> str:
    """SQS allows no dots: an underscore marks what is cut."""
    return truncate_with_hash(_qualified_name(environment, tenant, name), account.QUEUE_NAME, "_")


def tenant_access_point(environment: Environment, tenant: Tenant, bucket: str) -> str:
    """S3 allows neither dots nor underscores; so every name ends in a hash of the whole name."""
    full_name = f"{environment.environment}/{environment.cluster.name}/{tenant.tenant}/{bucket}"
    return f"{tenant.tenant}-{_hash(full_name)}"


def tenant_budget(environment: Environment, tenant: Tenant) -> str:
    """Name of a tenant's AWS budget."""
    return truncate_with_hash(
        f"{environment.cluster.name}{vocabulary.SEPARATOR}{tenant.tenant}", account.BUDGET_NAME, "."
    )


def tenant_secret(environment: Environment, tenant: Tenant, name: str) -> str:
    """Name of a secret of a tenant in Secrets Manager."""
    return f"tenancy/{environment.environment}/{tenant.tenant}/{name}"


def tenant_log_group(environment: Environment, tenant: Tenant, name: str) -> str:
    """Name of a tenant's CloudWatch log group."""
    return f"/tenancy/{environment.environment}/{tenant.tenant}/{name}"


def tenant_repository(environment: Environment, tenant: Tenant, name: str) -> str:
    """Name of a tenant's ECR repository."""
    return vocabulary.repository(environment.environment, tenant.tenant, name)


def shared_repositories(environment: Environment) -> str:
    """Prefix of repositories that all pipelines may read; no tenant is called `shared`."""
    return f"{environment.environment}/shared/"


def bucket_key_alias(environment: Environment, bucket: str) -> str:
    """Alias of the KMS key of a bucket."""
    return f"alias/tenancy/{environment.environment}/bucket/{bucket}"


def tenant_key_alias(environment: Environment, tenant: Tenant) -> str:
    """Alias of the KMS key of a tenant."""
    return f"alias/tenancy/{environment.environment}/tenant/{tenant.tenant}"


def tenant_tags(environment: Environment, tenant: Tenant, tier: str) -> dict[str, str]:
    """Tags of what is a tenant's: the vocabulary of its labels."""
    labels = tier_labels(environment, tenant, tier)
    return {
        **tags(environment),
        vocabulary.TENANT_TAG: tenant.tenant,
        **{key: labels[key] for key in (*vocabulary.COST_LABELS, *tenant.labels)},
    }


def namespace_tags(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Tags of what is one namespace's: the vocabulary of its labels, its own product and labels among them."""
    labels = tenant_labels(environment, tenant, namespace)
    return {
        **tags(environment),
        vocabulary.TENANT_TAG: tenant.tenant,
        **{key: labels[key] for key in (*vocabulary.COST_LABELS, *extra_labels(tenant, namespace))},
    }


def truncate_with_hash(name: str, max_length: int, separator: str) -> str:
    """The name if it is short enough; else its beginning, a mark that no whole name contains, and a hash of it all."""
    if len(name) <= max_length:
        return name
    digest = _hash(name)
    return f"{name[: max_length - len(digest) - 1]}{separator}{digest}"


def _qualified_name(environment: Environment, tenant: Tenant, name: str) -> str:
    return vocabulary.SEPARATOR.join((environment.cluster.name, tenant.tenant, name))


def shard_number(name: str, parts: int) -> int:
    """The part that a name is in, counted from 1, by its hash: it stays there when others come and go."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % parts + 1


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
