"""GPU tenancy: many teams on one GPU cluster, from one specification per tenant and one per environment.

The library:

- the models of a specification, such as `Environment`, `Tenant` and `Pool`, made in Python or read from YAML by `load`;
- `validate(environment, tenants)`, which returns every problem, and `plan(environment, tenants)`, which returns every
  object as plain data;
- Pulumi components: `GpuCluster`, `GpuPlatform` and `GpuTenant`, and smaller parts of a tenant.

Nothing but this file is imported until a name is used. docs/library.md shows each of them in a program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tenancy.components.gpu_cluster import GpuCluster
    from tenancy.components.gpu_platform import GpuPlatform
    from tenancy.components.gpu_tenant import GpuTenant
    from tenancy.components.inputs import ClusterInputs
    from tenancy.components.tenant_parts import (
        AdmissionGuards,
        TenantNamespace,
        TenantQueues,
        TenantRole,
        TenantStorage,
    )
    from tenancy.planning import Plan, plan
    from tenancy.schema.aws import AddOnRelease, AddOns, Aws, Endpoints, Network, System
    from tenancy.schema.calendar import GpuWindow, TemporaryShare
    from tenancy.schema.cluster import Cluster, ClusterMode, Cni, Devices, Encryption, Images, Sandbox, VirtualClusters
    from tenancy.schema.costs import Costs, OverheadKey, PurchaseKind, UsageKind
    from tenancy.schema.data import Access, AwsResources, Bucket, FileAccessPoint, Files, KeyPer, ResourceUse
    from tenancy.schema.environment import Environment
    from tenancy.schema.environment_fields import GuardsMode, Layout
    from tenancy.schema.identity import BreakGlass, Ci, PodIdentity
    from tenancy.schema.metrics import Collector, CostTool, Metrics, Smtp
    from tenancy.schema.network_rules import EgressRule, IngressRule
    from tenancy.schema.organisation import Department, Organisation
    from tenancy.schema.people import Owner, Person, Role, Subject
    from tenancy.schema.platform import Platform, PlatformService, TemporaryNamespaces
    from tenancy.schema.pools import (
        Flavor,
        GpuSharing,
        Market,
        Mig,
        Nodes,
        Part,
        Pool,
        Provisioner,
        Purchase,
        Sharing,
        Strategy,
        Upgrade,
        UpgradeStrategy,
    )
    from tenancy.schema.problems import Problem, SpecError
    from tenancy.schema.queues import QueueOrder, Queues, QueueState, Relief, Scheduler, SharingPreset
    from tenancy.schema.rollout import AlertGate, Order, Rollout
    from tenancy.schema.services import Services, Source
    from tenancy.schema.shares import Budget, GpuShare, WhenSpent
    from tenancy.schema.tenant import (
        ExceptionEntry,
        Isolation,
        Namespace,
        OffboardingStage,
        PodSecurity,
        ServiceAccount,
        Storage,
        Tenant,
    )
    from tenancy.schema.tiers import Claim, Container, IdleAction, IdleRule, Quota, Spread, SpreadOf, Tier
    from tenancy.schema.typed import EnvironmentDict, TenantDict
    from tenancy.validation import Loaded, load, validate

_HOMES = {
    "tenancy.components.gpu_cluster": ("GpuCluster",),
    "tenancy.components.gpu_platform": ("GpuPlatform",),
    "tenancy.components.gpu_tenant": ("GpuTenant",),
    "tenancy.components.inputs": ("ClusterInputs",),
    "tenancy.components.tenant_parts": (
        "AdmissionGuards",
        "TenantNamespace",
        "TenantQueues",
        "TenantRole",
        "TenantStorage",
    ),
    "tenancy.planning": ("Plan", "plan"),
    "tenancy.schema.aws": ("AddOnRelease", "AddOns", "Aws", "Endpoints", "Network", "System"),
    "tenancy.schema.calendar": ("GpuWindow", "TemporaryShare"),
    "tenancy.schema.cluster": (
        "Cluster",
        "ClusterMode",
        "Cni",
        "Devices",
        "Encryption",
        "Images",
        "Sandbox",
        "VirtualClusters",
    ),
    "tenancy.schema.costs": ("Costs", "OverheadKey", "PurchaseKind", "UsageKind"),
    "tenancy.schema.data": ("Access", "Bucket", "FileAccessPoint", "Files", "KeyPer", "ResourceUse", "AwsResources"),
    "tenancy.schema.environment": ("Environment",),
    "tenancy.schema.environment_fields": ("GuardsMode", "Layout"),
    "tenancy.schema.identity": ("BreakGlass", "Ci", "PodIdentity"),
    "tenancy.schema.metrics": ("Collector", "CostTool", "Metrics", "Smtp"),
    "tenancy.schema.network_rules": ("EgressRule", "IngressRule"),
    "tenancy.schema.organisation": ("Department", "Organisation"),
    "tenancy.schema.people": ("Owner", "Person", "Role", "Subject"),
    "tenancy.schema.platform": ("Platform", "PlatformService", "TemporaryNamespaces"),
    "tenancy.schema.pools": (
        "Flavor",
        "GpuSharing",
        "Market",
        "Mig",
        "Nodes",
        "Part",
        "Pool",
        "Provisioner",
        "Purchase",
        "Sharing",
        "Strategy",
        "Upgrade",
        "UpgradeStrategy",
    ),
    "tenancy.schema.problems": ("Problem", "SpecError"),
    "tenancy.schema.queues": ("QueueOrder", "QueueState", "Queues", "Relief", "Scheduler", "SharingPreset"),
    "tenancy.schema.rollout": ("AlertGate", "Order", "Rollout"),
    "tenancy.schema.services": ("Services", "Source"),
    "tenancy.schema.shares": ("Budget", "GpuShare", "WhenSpent"),
    "tenancy.schema.tenant": (
        "ExceptionEntry",
        "Isolation",
        "OffboardingStage",
        "Namespace",
        "PodSecurity",
        "ServiceAccount",
        "Storage",
        "Tenant",
    ),
    "tenancy.schema.tiers": ("Claim", "Container", "IdleAction", "IdleRule", "Quota", "Spread", "SpreadOf", "Tier"),
    "tenancy.schema.typed": ("EnvironmentDict", "TenantDict"),
    "tenancy.validation": ("Loaded", "load", "validate"),
}
"""Modules with the names that they define."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - by subject
    "__version__",
    # Models
    "Environment",
    "Organisation",
    "Department",
    "Platform",
    "Cluster",
    "IdleAction",
    "IdleRule",
    "Images",
    "Aws",
    "Network",
    "Queues",
    "Relief",
    "Scheduler",
    "Bucket",
    "Tier",
    "Quota",
    "Container",
    "Flavor",
    "Pool",
    "Nodes",
    "Purchase",
    "Mig",
    "Tenant",
    "Owner",
    "Person",
    "Role",
    "Namespace",
    "Isolation",
    "GpuShare",
    "SharingPreset",
    "Storage",
    "Access",
    "EgressRule",
    "IngressRule",
    "Budget",
    "ExceptionEntry",
    # Further types of fields
    "BreakGlass",
    "Ci",
    "Claim",
    "Costs",
    "FileAccessPoint",
    "Files",
    "GpuSharing",
    "GpuWindow",
    "Metrics",
    "TemporaryShare",
    "Part",
    "PlatformService",
    "ResourceUse",
    "Rollout",
    "Sandbox",
    "ServiceAccount",
    "Services",
    "Smtp",
    "Subject",
    "System",
    "TemporaryNamespaces",
    "Upgrade",
    "AwsResources",
    "VirtualClusters",
    "ClusterMode",
    "Cni",
    "Collector",
    "CostTool",
    "Devices",
    "Encryption",
    "AddOnRelease",
    "AddOns",
    "Endpoints",
    "GuardsMode",
    "KeyPer",
    "Layout",
    "OffboardingStage",
    "Market",
    "AlertGate",
    "Order",
    "OverheadKey",
    "PodIdentity",
    "PodSecurity",
    "Provisioner",
    "PurchaseKind",
    "QueueOrder",
    "QueueState",
    "Sharing",
    "Source",
    "Spread",
    "SpreadOf",
    "Strategy",
    "UpgradeStrategy",
    "UsageKind",
    "WhenSpent",
    "EnvironmentDict",
    "TenantDict",
    # Functions
    "load",
    "Loaded",
    "validate",
    "Problem",
    "SpecError",
    "plan",
    "Plan",
    # Components
    "GpuCluster",
    "GpuPlatform",
    "GpuTenant",
    "ClusterInputs",
    "AdmissionGuards",
    "TenantNamespace",
    "TenantRole",
    "TenantStorage",
    "TenantQueues",
]


def __getattr__(name: str) -> Any:
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
