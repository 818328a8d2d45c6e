"""Mappings of the models' fields in Python's names. Made from the models by `tenancy schema --python`."""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict


class AddOnsDict(TypedDict):
    """Versions of the EKS add-ons. Each run asks EKS again, so that they follow the cluster's Kubernetes."""

    release: NotRequired[Literal['default', 'latest']]
    versions: NotRequired[Mapping[str, str]]


class AwsDict(TypedDict):
    """The AWS account of an environment: region, network, nodes of the system, identities and encryption keys."""

    identity: NotRequired[Literal['pod-identity', 'irsa', 'shared']]
    oidc_issuer: NotRequired[str | None]
    organization_id: NotRequired[str | None]
    group_roles: NotRequired[Mapping[str, str]]
    break_glass: NotRequired[BreakGlassDict | None]
    ci_hosts: NotRequired[Sequence[str]]
    existing_oidc_providers: NotRequired[Sequence[str]]
    management_account: NotRequired[bool]
    service_quotas: NotRequired[Mapping[str, int]]
    enabled: NotRequired[bool]
    account: NotRequired[str]
    region: NotRequired[str]
    zones: NotRequired[Sequence[str]]
    network: NotRequired[NetworkDict]
    platform_role: NotRequired[str]
    permissions_boundary: NotRequired[str | None]
    public_access_cidrs: NotRequired[Sequence[str]]
    log_retention_days: NotRequired[int]
    kms_key_arn: NotRequired[str | None]
    tenant_log_kms_key_arn: NotRequired[str | None]
    deletion_protection: NotRequired[bool]
    extended_support: NotRequired[bool]
    irsa: NotRequired[bool]
    system: NotRequired[SystemDict]
    ami_release: NotRequired[str]
    add_ons: NotRequired[AddOnsDict]
    root_volume_size: NotRequired[int | None]
    upgrade_pause: NotRequired[int]


class AwsResourcesDict(TypedDict):
    """Further AWS resources of one tenant. Names are derived from the tenant's, so no two tenants share one."""

    repositories: NotRequired[Sequence[str]]
    secrets: NotRequired[Sequence[str] | Mapping[str, ResourceUseDict]]
    log_groups: NotRequired[Sequence[str] | Mapping[str, ResourceUseDict]]
    sqs_queues: NotRequired[Sequence[str] | Mapping[str, ResourceUseDict]]
    efs_access_points: NotRequired[Sequence[FilesDict]]


class BreakGlassDict(TypedDict):
    """Emergency access: a role that requires MFA, lasts one hour and raises an alarm."""

    trusted_principals: Sequence[str]
    mail: str


class BucketDict(TypedDict):
    """A bucket in which tenants may have prefixes."""

    purpose: NotRequired[str]
    tenant: NotRequired[str | None]
    kms_key_scope: NotRequired[Literal['bucket', 'tenant']]
    expiration_days: NotRequired[int | None]
    versioning: NotRequired[bool]
    noncurrent_version_days: NotRequired[int]
    access_points: NotRequired[bool]
    existing: NotRequired[bool]
    kms_key_arn: NotRequired[str | None]


class BudgetDict(TypedDict):
    """A tenant's monthly budget, in US dollars and optionally in GPU-hours. Months begin at midnight UTC."""

    monthly_usd: int
    monthly_gpu_hours: NotRequired[int | None]
    when_spent: NotRequired[Literal['alert', 'hold', 'stop']]
    grace_period: NotRequired[str]
    exemption: NotRequired[BudgetExemptionDict | None]


class BudgetExemptionDict(TypedDict):
    """A time for which budgets do not bind, with a responsible person and an end."""

    until: str | dt.date
    reason: str
    owner: str


class CiDict(TypedDict):
    """A pipeline: one repository on GitHub or GitLab, and one branch or environment of it."""

    github: NotRequired[str | None]
    gitlab: NotRequired[str | None]
    host: NotRequired[str | None]
    branch: NotRequired[str | None]
    environment: NotRequired[str | None]
    role: NotRequired[str]
    namespaces: NotRequired[Sequence[str]]


class ClaimDict(TypedDict):
    """Smallest and largest size of one volume claim, bytes."""

    min: NotRequired[str | int]
    max: NotRequired[str | int]


class ClusterDict(TypedDict):
    """The EKS cluster of an environment: its name, version, network plugin and GPU devices."""

    name: str
    mode: NotRequired[Literal['build', 'existing'] | None]
    context: str
    kubernetes: NotRequired[str]
    cni: NotRequired[Literal['vpc-cni', 'cilium']]
    encryption: NotRequired[Literal['none', 'wireguard']]
    node_and_pod_cidrs: NotRequired[Sequence[str]]
    service_cidr: NotRequired[str | None]
    object_overcommit: NotRequired[int]
    node_local_dns: NotRequired[bool]
    devices: NotRequired[Literal['plugin', 'dra']]


class ContainerDict(TypedDict):
    """Limits of one container; a GPU is never among them."""

    default: NotRequired[Mapping[str, str | int]]
    default_request: NotRequired[Mapping[str, str | int]]
    min: NotRequired[Mapping[str, str | int]]
    max: NotRequired[Mapping[str, str | int]]


class CostsDict(TypedDict):
    """Prices, discounts and allocation keys for chargeback, in US dollars and percent."""

    pools: NotRequired[Mapping[str, float]]
    discounts: NotRequired[Mapping[str, int]]
    shared: NotRequired[Mapping[str, float]]
    rates: NotRequired[Mapping[str, float]]
    overhead: NotRequired[Literal['compute', 'guarantee', 'even']]
    lender_credit: NotRequired[int]


class DepartmentDict(TypedDict):
    """A group of tenants with one weight and one lending policy: a Kueue Cohort."""

    title: NotRequired[str]
    sharing: NotRequired[Literal['strict', 'lend', 'lend-and-borrow']]
    weight: NotRequired[int]


class EgressRuleDict(TypedDict):
    """Egress: a peer outside the tenant that its pods may connect to. Exactly one of dns, cidr, service and internet. All other egress is denied."""

    cidr: NotRequired[str | None]
    service: NotRequired[str | None]
    port: int
    protocol: NotRequired[Literal['TCP', 'UDP']]
    internet: NotRequired[bool]
    dns: NotRequired[str | None]


class EnvironmentDict(TypedDict):
    """One cluster and all that its tenants share."""

    environment: str
    organisation: OrganisationDict
    platform: PlatformDict
    cluster: ClusterDict
    namespace_name: NotRequired[str]
    guards: NotRequired[Literal['enforce', 'audit']]
    stacks: NotRequired[Literal['one', 'per-tenant']]
    rollout: NotRequired[RolloutDict | None]
    aws: NotRequired[AwsDict]
    services: NotRequired[ServicesDict]
    images: ImagesDict
    sandbox: NotRequired[SandboxDict | None]
    virtual_clusters: NotRequired[VirtualClustersDict | None]
    queues: NotRequired[QueuesDict]
    prices: NotRequired[Mapping[str, float]]
    costs: NotRequired[CostsDict]
    metrics: NotRequired[MetricsDict]
    buckets: NotRequired[Sequence[str] | Mapping[str, BucketDict]]
    efs_access_points: NotRequired[Sequence[str] | Mapping[str, FileAccessPointDict]]
    tiers: Mapping[str, TierDict]
    flavors: NotRequired[Mapping[str, FlavorDict]]
    mig_layouts: NotRequired[Mapping[str, Mapping[str, int]]]
    pools: NotRequired[Mapping[str, PoolDict]]


class ExceptionEntryDict(TypedDict):
    """An exception from one rule for one namespace of the tenant, with a responsible person and an end date."""

    rule: str
    namespace: str
    reason: str
    owner: str
    until: str | dt.date


class FileAccessPointDict(TypedDict):
    """An access point of an EFS file system that the platform made, with a tenant's root folder."""

    tenant: NotRequired[str | None]


class FilesDict(TypedDict):
    """A directory of an EFS file system, reached by an access point that the platform made."""

    access_point: str
    file_system: str
    access: NotRequired[Literal['read-only', 'read-write']]
    namespaces: NotRequired[Sequence[str]]


class FlavorDict(TypedDict):
    """A kind of GPU that pools yield: a whole GPU, a MIG slice, or a replica of a shared GPU or slice."""

    gpu: Literal['a100-40gb', 'a100-80gb', 'h100-80gb', 'h200-141gb', 'b200-180gb', 'b300-269gb', 'gb200-186gb', 'gb300-278gb', 'rtx-pro-6000', 'a30-24gb', 'rtx-pro-4500', 'l40s', 'l4', 'a10g', 't4g', 't4', 'v100-32gb', 'v100-16gb']
    mig: NotRequired[str | None]
    gpu_sharing: NotRequired[Literal['time-slicing', 'mps'] | None]


class GpuShareDict(TypedDict):
    """The tenant's share of a flavor. Counts are GPUs, slices or replicas of the flavor."""

    guaranteed: int
    sharing: NotRequired[Literal['strict', 'lend', 'lend-and-borrow']]
    lending_limit: NotRequired[int | None]
    borrowing_limit: NotRequired[int | None]
    temporary_shares: NotRequired[Sequence[TemporaryShareDict]]


class GpuSharingDict(TypedDict):
    """Number of pods that one GPU or slice serves: exactly one of time-slicing and mps."""

    time_slicing: NotRequired[int | None]
    mps: NotRequired[int | None]


class GpuWindowDict(TypedDict):
    """A time of the week in which the tenant has more guaranteed GPUs, free at its start."""

    name: str
    flavor: str
    gpus: int
    days: NotRequired[str]
    starts: str
    ends: str
    time_zone: NotRequired[str]
    reclaim_lead_time: NotRequired[str]


class IdleRuleDict(TypedDict):
    """Rule for work that holds GPUs and does not use them."""

    utilization_threshold: NotRequired[str]
    duration: NotRequired[str]
    warnings: NotRequired[int]
    action: NotRequired[Literal['alert', 'suspend']]


class ImagesDict(TypedDict):
    """Registries that tenants' images may come from, and the image of samples."""

    registries: Sequence[str]
    sample: str


class IngressRuleDict(TypedDict):
    """Ingress: a peer outside the tenant that may connect to its pods. Exactly one of cidr and service. All other ingress is denied."""

    cidr: NotRequired[str | None]
    service: NotRequired[str | None]
    port: int
    protocol: NotRequired[Literal['TCP', 'UDP']]


class MetricsDict(TypedDict):
    """Collection and storage of metrics, alerts and their recipients."""

    collector: NotRequired[Literal['none', 'existing', 'install']]
    namespace: NotRequired[str]
    labels: NotRequired[Mapping[str, str]]
    prometheus: NotRequired[str | None]
    retention: NotRequired[str]
    storage: NotRequired[str | int]
    tenant_queries: NotRequired[bool]
    cost_tool: NotRequired[Literal['none', 'opencost', 'kubecost']]
    runbooks: NotRequired[str]
    mail: NotRequired[SmtpDict | None]
    guaranteed_wait_alert_after: NotRequired[str]
    idle_alert_after: NotRequired[str]
    max_wait_p90: NotRequired[Mapping[str, str]]


class MigDict(TypedDict):
    """MIG partitions of a node's GPUs: exactly one of layout, layout-name and per-gpu."""

    layout: NotRequired[Mapping[str, int] | None]
    layout_name: NotRequired[str | None]
    per_gpu: NotRequired[Sequence[PartDict] | None]
    strategy: NotRequired[Literal['mixed', 'single']]


class NamespaceDict(TypedDict):
    """A namespace of the tenant. On the cluster it has the name that the environment's pattern gives, or its own."""

    name: str
    namespace_name: NotRequired[str | None]
    purpose: NotRequired[str]
    tier: NotRequired[str | None]
    product: NotRequired[str | None]
    labels: NotRequired[Mapping[str, str]]
    annotations: NotRequired[Mapping[str, str]]
    gpus: NotRequired[Mapping[str, int]]
    queues: NotRequired[Mapping[str, int]]
    weight: NotRequired[int]
    stop_policy: NotRequired[Literal['none', 'hold', 'hold-and-drain']]
    quota: NotRequired[QuotaDict | None]
    pod_security: NotRequired[Literal['restricted', 'baseline']]
    allow_intra_namespace: NotRequired[bool]
    service_account: NotRequired[str]
    service_accounts: NotRequired[Sequence[str | ServiceAccountDict]]


class NetworkDict(TypedDict):
    """A VPC that the stack makes (cidr), or an existing one (vpc and subnets)."""

    cidr: NotRequired[str]
    vpc: NotRequired[str | None]
    subnets: NotRequired[Mapping[str, str]]
    endpoints: NotRequired[Literal['made', 'checked'] | None]
    zone_quarters: NotRequired[Mapping[str, int]]
    aws_ip_ranges_file: NotRequired[str | None]
    aws_service_cidrs: NotRequired[Sequence[str]]


class NodesDict(TypedDict):
    """Smallest and largest number of nodes of an autoscaled pool."""

    min: NotRequired[int]
    max: int


class OrganisationDict(TypedDict):
    """The organisation that shares the cluster: the root of the queue tree, and its departments."""

    name: str
    departments: Mapping[str, DepartmentDict]
    label_keys: NotRequired[Sequence[str]]
    annotation_keys: NotRequired[Sequence[str]]


class OwnerDict(TypedDict):
    """The group or person responsible for a tenant."""

    name: str
    mail: str


class PartDict(TypedDict):
    """Some GPUs of a node, all with the same partition."""

    gpus: int
    slices: Mapping[str, int]


class PersonDict(TypedDict):
    """A group, user or service account, and its role in the tenant."""

    group: NotRequired[str | None]
    user: NotRequired[str | None]
    service_account: NotRequired[str | None]
    namespaces: NotRequired[Sequence[str]]
    role: Literal['viewer', 'developer', 'operator', 'owner']


class PlatformDict(TypedDict):
    """The platform team and its namespaces and services."""

    group: str
    namespaces: NotRequired[Sequence[str]]
    unmanaged_namespaces: NotRequired[Sequence[str]]
    temporary_namespaces: NotRequired[Sequence[TemporaryNamespacesDict]]
    chart_mirror: NotRequired[str | None]
    services: NotRequired[Mapping[str, PlatformServiceDict]]
    metadata_keys: NotRequired[Sequence[str]]
    storage_classes: NotRequired[Sequence[str]]
    volume_attributes_classes: NotRequired[Sequence[str]]
    docs: NotRequired[str]


class PlatformServiceDict(TypedDict):
    """Pods of the platform that tenants' files may name under egress and ingress."""

    namespace: str
    labels: Mapping[str, str]


class PoolDict(TypedDict):
    """Nodes of one instance type, for the tenants and tiers that it names, or for all tenants."""

    instance_type: str
    nodes: int | NodesDict
    provisioner: NotRequired[Literal['managed', 'karpenter', 'self-managed', 'auto-mode'] | None]
    purchase: NotRequired[Literal['on-demand', 'spot'] | PurchaseDict]
    efa: NotRequired[bool]
    mig: NotRequired[MigDict | None]
    gpu_sharing: NotRequired[GpuSharingDict | None]
    tenants: NotRequired[Sequence[str]]
    tiers: NotRequired[Sequence[str]]
    zones: NotRequired[Sequence[str]]
    ami_release: NotRequired[str | None]
    upgrade: NotRequired[UpgradeDict]


class PurchaseDict(TypedDict):
    """Purchase of the nodes: exactly one of market, reservation and capacity-block."""

    market: NotRequired[Literal['on-demand', 'spot'] | None]
    reservation: NotRequired[str | None]
    capacity_block: NotRequired[str | None]
    starts: NotRequired[str | dt.date | None]
    ends: NotRequired[str | dt.date | None]


class QueuesDict(TypedDict):
    """Settings of all queues of the cluster."""

    scheduler: NotRequired[Literal['kueue', 'none']]
    kinds: NotRequired[Sequence[Literal['jobset', 'leaderworkerset', 'mpijob', 'raycluster', 'rayjob', 'trainjob']]]
    usage_half_life: NotRequired[str]
    pods_ready_timeout: NotRequired[str]
    finished_workload_retention: NotRequired[str]
    hold_before_capacity_block_end: NotRequired[str]
    clock: NotRequired[bool]
    clock_image: NotRequired[str | None]
    budget_exemption: NotRequired[BudgetExemptionDict | None]
    provisioning_class: NotRequired[str | None]


class QuotaDict(TypedDict):
    """Limits of one namespace. Limits of cpu and memory are twice the requests by default."""

    cpu: NotRequired[str | int]
    cpu_limit: NotRequired[str | int | None]
    memory: NotRequired[str | int]
    memory_limit: NotRequired[str | int | None]
    ephemeral_storage: NotRequired[str | int]
    pods: NotRequired[int]
    services: NotRequired[int]
    ended_pods: NotRequired[int | None]
    secrets: NotRequired[int]
    config_maps: NotRequired[int]
    jobs: NotRequired[int]
    cron_jobs: NotRequired[int]
    deployments: NotRequired[int]
    volume_claims: NotRequired[int]
    storage: NotRequired[str | int]
    hard: NotRequired[Mapping[str, str | int]]


class ResourceUseDict(TypedDict):
    """A use of an AWS resource by the pods of a tenant's namespaces."""

    namespaces: NotRequired[Sequence[str]]


class RolloutDict(TypedDict):
    """Waves in which a new version of the program reaches the stacks of tenants, with a gate before each."""

    depends_on: NotRequired[Sequence[str]]
    canary: NotRequired[Sequence[str]]
    canary_percent: NotRequired[int]
    wave_size: NotRequired[int]
    order: NotRequired[Literal['size', 'department']]
    pause: NotRequired[int]
    alerts: NotRequired[Literal['required', 'ignored']]


class SandboxDict(TypedDict):
    """A kernel for each pod. The runtime is already on the pool's nodes: their image or an installer brings it."""

    handler: str
    pool: str
    overhead: NotRequired[Mapping[str, str | int]]


class ServiceAccountDict(TypedDict):
    """A service account that pods of a namespace may use, besides the one with its AWS grants."""

    name: str
    automount_token: NotRequired[bool]


class ServicesDict(TypedDict):
    """Charts of the platform, each on its own."""

    gpu_operator: NotRequired[Literal['install', 'present', 'none'] | None]
    device_plugin: NotRequired[Literal['install', 'present', 'none'] | None]
    dcgm_exporter: NotRequired[Literal['install', 'present', 'none'] | None]
    dra_driver: NotRequired[Literal['install', 'present', 'none'] | None]
    efa_device_plugin: NotRequired[Literal['install', 'present', 'none'] | None]
    kueue: NotRequired[Literal['install', 'present', 'none'] | None]
    storage_class: NotRequired[Literal['install', 'present', 'none'] | None]


class SmtpDict(TypedDict):
    """The mail server for alerts, and the addresses that they are sent from and to."""

    server: str
    sender: str
    platform: str


class StorageDict(TypedDict):
    """A grant of access to the objects below a prefix of an S3 bucket."""

    bucket: str
    prefix: str
    access: NotRequired[Literal['read-only', 'write-once', 'append-only', 'read-write']]
    namespaces: NotRequired[Sequence[str]]
    expiration_days: NotRequired[int | None]


class SubjectDict(TypedDict):
    """A group or a user of the identity provider, or a service account of the tenant."""

    group: NotRequired[str | None]
    user: NotRequired[str | None]
    service_account: NotRequired[str | None]
    namespaces: NotRequired[Sequence[str]]


class SystemDict(TypedDict):
    """Nodes of the platform's own services; no tenant's pod runs there."""

    instance_type: NotRequired[str]
    nodes: NotRequired[int]
    zones: NotRequired[Sequence[str]]


class TemporaryNamespacesDict(TypedDict):
    """Namespaces that guards ignore for a time, such as those that a test suite makes."""

    name: str
    until: str | dt.date
    reason: str


class TemporaryShareDict(TypedDict):
    """GPUs on top of a guarantee from a first to a last day."""

    gpus: int
    starts: str | dt.date
    until: str | dt.date
    time_zone: NotRequired[str]
    reason: str


class TenantDict(TypedDict):
    """One team: its people, its GPU shares and its limits."""

    tenant: str
    title: NotRequired[str]
    team: str
    owner: OwnerDict
    department: str
    cost_center: str
    product: NotRequired[str | None]
    labels: NotRequired[Mapping[str, str]]
    annotations: NotRequired[Mapping[str, str]]
    tier: str
    isolation: NotRequired[Literal['namespace', 'dedicated-nodes', 'sandbox', 'virtual-cluster']]
    namespaces: NotRequired[Sequence[str | NamespaceDict]]
    people: NotRequired[Sequence[PersonDict]]
    gpu_users: NotRequired[Sequence[SubjectDict]]
    dedicated_hosts: NotRequired[bool]
    gpus: NotRequired[Mapping[str, GpuShareDict]]
    gpu_windows: NotRequired[Sequence[GpuWindowDict]]
    weight: NotRequired[int]
    stop_policy: NotRequired[Literal['none', 'hold', 'hold-and-drain']]
    storage: NotRequired[Sequence[StorageDict]]
    aws_resources: NotRequired[AwsResourcesDict]
    ci: NotRequired[CiDict | None]
    egress: NotRequired[Sequence[EgressRuleDict]]
    ingress: NotRequired[Sequence[IngressRuleDict]]
    allow_cross_namespace: NotRequired[bool]
    budget: NotRequired[BudgetDict | None]
    exceptions: NotRequired[Sequence[ExceptionEntryDict]]
    offboarding: NotRequired[Literal['hold', 'export', 'remove'] | None]
    adopt: NotRequired[bool]


class TierDict(TypedDict):
    """Limits of a kind of tenant: the defaults of its namespaces and their ceiling."""

    priority: int
    gpu_tier: NotRequired[str]
    interruptible: NotRequired[bool]
    allow_borrowing: NotRequired[bool]
    queueing_strategy: NotRequired[Literal['best-effort-fifo', 'strict-fifo']]
    max_run_time: NotRequired[str | None]
    idle: NotRequired[IdleRuleDict | None]
    topology_spread: NotRequired[Literal['none', 'preferred', 'required']]
    topology_spread_scope: NotRequired[Sequence[Literal['replicas', 'jobs', 'namespace']]]
    allow_image_tags: NotRequired[bool]
    allow_large_config: NotRequired[bool]
    allow_writable_root_filesystem: NotRequired[bool]
    max_storage_access: NotRequired[Literal['read-only', 'write-once', 'append-only', 'read-write']]
    quota: NotRequired[QuotaDict]
    container: NotRequired[ContainerDict]
    volume_claim: NotRequired[ClaimDict]


class UpgradeDict(TypedDict):
    """Replacement of nodes when the image, the layout or a launch setting changes."""

    strategy: NotRequired[Literal['surge', 'terminate-first'] | None]
    max_unavailable: NotRequired[int]
    wave: NotRequired[int]


class VirtualClustersDict(TypedDict):
    """An API server for each namespace of a tenant, made by the chart vcluster from its open-source build."""

    syncer: str
    kubernetes: str
    dns: str
    resolver: str
    storage_class: NotRequired[str | None]
    oidc: NotRequired[Sequence[str]]
