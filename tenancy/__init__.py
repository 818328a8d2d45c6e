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
    from tenancy.spec.fields.aws import AddOnRelease, AddOns, Aws, Endpoints, Network, System
    from tenancy.spec.fields.calendar import GpuWindow, TemporaryShare
    from tenancy.spec.fields.cluster import (
        Cluster,
        ClusterMode,
        Cni,
        Devices,
        Encryption,
        Images,
        Sandbox,
        VirtualClusters,
    )
    from tenancy.spec.fields.costs import Costs, OverheadKey, PurchaseKind, UsageKind
    from tenancy.spec.fields.data import Access, AwsResources, Bucket, FileAccessPoint, Files, KeyPer, ResourceUse
    from tenancy.spec.fields.environment import Environment, GuardsMode, Layout
    from tenancy.spec.fields.identity import BreakGlass, Ci, PodIdentity
    from tenancy.spec.fields.metrics import Collector, CostTool, Metrics, Smtp
    from tenancy.spec.fields.network_rules import EgressRule, IngressRule
    from tenancy.spec.fields.organisation import Department, Organisation
    from tenancy.spec.fields.people import Owner, Person, Role, Subject
    from tenancy.spec.fields.platform import Platform, PlatformService, TemporaryNamespaces
    from tenancy.spec.fields.pools import (
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
    from tenancy.spec.fields.queues import (
        BudgetExemption,
        QueueingStrategy,
        Queues,
        Scheduler,
        SharingPreset,
        StopPolicy,
    )
    from tenancy.spec.fields.rollout import AlertGate, Order, Rollout
    from tenancy.spec.fields.services import Services, Source
    from tenancy.spec.fields.shares import Budget, GpuShare, WhenSpent
    from tenancy.spec.fields.tenant import (
        ExceptionEntry,
        Isolation,
        Namespace,
        OffboardingStage,
        PodSecurity,
        ServiceAccount,
        Storage,
        Tenant,
    )
    from tenancy.spec.fields.tiers import Claim, Container, IdleAction, IdleRule, Quota, Spread, SpreadOf, Tier
    from tenancy.spec.inputs import validate
    from tenancy.spec.loader import Loaded, load
    from tenancy.spec.reading.problems import Problem, SpecError
    from tenancy.spec.typed import EnvironmentDict, TenantDict

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
    "tenancy.spec.fields.aws": ("AddOnRelease", "AddOns", "Aws", "Endpoints", "Network", "System"),
    "tenancy.spec.fields.calendar": ("GpuWindow", "TemporaryShare"),
    "tenancy.spec.fields.cluster": (
        "Cluster",
        "ClusterMode",
        "Cni",
        "Devices",
        "Encryption",
        "Images",
        "Sandbox",
        "VirtualClusters",
    ),
    "tenancy.spec.fields.costs": ("Costs", "OverheadKey", "PurchaseKind", "UsageKind"),
    "tenancy.spec.fields.data": (
        "Access",
        "AwsResources",
        "Bucket",
        "FileAccessPoint",
        "Files",
        "KeyPer",
        "ResourceUse",
    ),
    "tenancy.spec.fields.environment": ("Environment", "GuardsMode", "Layout"),
    "tenancy.spec.fields.identity": ("BreakGlass", "Ci", "PodIdentity"),
    "tenancy.spec.fields.metrics": ("Collector", "CostTool", "Metrics", "Smtp"),
    "tenancy.spec.fields.network_rules": ("EgressRule", "IngressRule"),
    "tenancy.spec.fields.organisation": ("Department", "Organisation"),
    "tenancy.spec.fields.people": ("Owner", "Person", "Role", "Subject"),
    "tenancy.spec.fields.platform": ("Platform", "PlatformService", "TemporaryNamespaces"),
    "tenancy.spec.fields.pools": (
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
    "tenancy.spec.reading.problems": ("Problem", "SpecError"),
    "tenancy.spec.fields.queues": (
        "QueueingStrategy",
        "StopPolicy",
        "Queues",
        "BudgetExemption",
        "Scheduler",
        "SharingPreset",
    ),
    "tenancy.spec.fields.rollout": ("AlertGate", "Order", "Rollout"),
    "tenancy.spec.fields.services": ("Services", "Source"),
    "tenancy.spec.fields.shares": ("Budget", "GpuShare", "WhenSpent"),
    "tenancy.spec.fields.tenant": (
        "ExceptionEntry",
        "Isolation",
        "OffboardingStage",
        "Namespace",
        "PodSecurity",
        "ServiceAccount",
        "Storage",
        "Tenant",
    ),
    "tenancy.spec.fields.tiers": (
        "Claim",
        "Container",
        "IdleAction",
        "IdleRule",
        "Quota",
        "Spread",
        "SpreadOf",
        "Tier",
    ),
    "tenancy.spec.typed": ("EnvironmentDict", "TenantDict"),
    "tenancy.spec.loader": ("Loaded", "load"),
    "tenancy.spec.inputs": ("validate",),
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
    "BudgetExemption",
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
    "QueueingStrategy",
    "StopPolicy",
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
