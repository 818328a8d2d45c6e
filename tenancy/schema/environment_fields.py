"""The fields of `environment.yaml`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog import vocabulary as words
from tenancy.schema.aws import Aws
from tenancy.schema.base import (
    FlavorName,
    Positive,
    ShortName,
    Slug,
    Spec,
    TextForm,
)
from tenancy.schema.cluster import (
    Cluster,
    Images,
    Sandbox,
    VirtualClusters,
)
from tenancy.schema.costs import Costs, Price
from tenancy.schema.data import Buckets, FileAccessPoints
from tenancy.schema.metrics import Metrics
from tenancy.schema.organisation import Organisation
from tenancy.schema.platform import Platform
from tenancy.schema.pools import (
    Flavor,
    Pool,
)
from tenancy.schema.queues import Queues
from tenancy.schema.rollout import Rollout
from tenancy.schema.services import Services
from tenancy.schema.tiers import Tier, TierName


class GuardsMode(StrEnum):
    """Whether admission policies refuse requests or only warn."""

    ENFORCE = "enforce"
    AUDIT = "audit"  # nothing is refused: the user is warned, and the audit log records it


class Layout(StrEnum):
    """Split of an environment's objects into Pulumi stacks."""

    ONE = "one"  # one stack for everything: best up to about five tenants
    PER_TENANT = "per-tenant"  # a platform stack and one per tenant: a change runs about 30 resources, not all


_NamePattern = Annotated[
    str,
    TextForm(
        r"^([a-z0-9-]|\{namespace\})*\{tenant\}([a-z0-9-]|\{namespace\})*$",
        "lower-case letters, digits and dashes, with {tenant} once and {namespace}",
        'write it like "{tenant}-{namespace}", with quotes',
        100,
    ),
]


class EnvironmentFields(Spec):
    """One cluster and all that its tenants share."""

    environment: ShortName = Field(description="Name of the environment, equal to the name of its folder. Required.")
    organisation: Organisation = Field(description="Organisation and departments that share the cluster. Required.")
    platform: Platform = Field(description="Platform team: its group, namespaces and services. Required.")
    cluster: Cluster = Field(description="Kubernetes cluster: name, version, network and devices. Required.")
    namespace_name: _NamePattern = Field(
        default=words.NAMESPACE_NAME,
        description="Pattern of the names of tenants' namespaces; {tenant} and {namespace} stand for their names in "
        "the tenant's file. Without {namespace}, a tenant has one namespace. A namespace may have a name of its own "
        "instead, as its namespace-name. Changing it deletes and makes every namespace. Default: "
        "{tenant}--{namespace}.",
    )
    guards: GuardsMode = Field(
        default=GuardsMode.ENFORCE,
        description="Whether guards refuse requests that break a rule, or only warn (audit). audit is for a cluster "
        "with existing workloads, until `tenancy report adoption` finds nothing; tenants are not isolated meanwhile. "
        "Default: enforce.",
    )
    stacks: Layout = Field(
        default=Layout.ONE, description="How the environment is split into Pulumi stacks. Default: one."
    )
    rollout: Rollout | None = Field(
        default=None,
        description="Waves in which a new version of the program reaches the stacks of tenants. Default: all at once.",
    )
    aws: Aws = Field(default_factory=Aws, description="AWS side of the environment. Default: disabled.")
    services: Services = Field(
        default_factory=Services,
        description="Services on the cluster's nodes: installed by the environment, present, or none. Default: the "
        "defaults of its fields.",
    )
    images: Images = Field(description="Registries of container images. Required.")
    sandbox: Sandbox | None = Field(
        default=None, description="Runtime of tenants with isolation: sandbox. Default: no tenant may have it."
    )
    virtual_clusters: VirtualClusters | None = Field(
        default=None,
        description="Control planes of tenants with isolation: virtual-cluster. Default: no tenant may have it.",
    )
    queues: Queues = Field(
        default_factory=Queues, description="How GPUs are shared over time. Default: the defaults of its fields."
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="Price of a whole GPU for one hour, dollars, by board; makes shares of different boards "
        "comparable. For all boards of the flavors, or none. Default: none.",
    )
    costs: Costs = Field(
        default_factory=Costs,
        description="Further prices and keys for `tenancy chargeback`. Default: the defaults of its fields.",
    )
    metrics: Metrics = Field(
        default_factory=Metrics,
        description="Collection of metrics and alerts. Default: no metrics are collected and no alerts are sent.",
    )
    buckets: Buckets = Field(
        default_factory=dict,
        description="S3 buckets in which tenants may have prefixes: a list of names, or a mapping of names to "
        "settings. Default: none.",
    )
    file_access_points: FileAccessPoints = Field(
        default_factory=dict,
        description="EFS access points that tenants may use, by ARN: a list, or a mapping of ARNs to settings. "
        "Default: none.",
    )
    tiers: dict[TierName, Tier] = Field(min_length=1, description="Tiers of tenants, by name. Required.")
    flavors: dict[FlavorName, Flavor] = Field(
        default_factory=dict, description="GPU flavors that tenants may ask for, by name. Default: none."
    )
    mig_layouts: dict[Slug, dict[str, Positive]] = Field(
        default_factory=dict,
        description="MIG layouts that pools can share, by name: number of slices per GPU, by profile. Default: none.",
    )
    pools: dict[ShortName, Pool] = Field(
        default_factory=dict, description="Node pools that yield the flavors, by name. Default: none."
    )
