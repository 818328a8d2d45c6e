"""The EKS cluster and its nodes as plain data, without ids that only AWS can assign."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.catalog.gpus import REPAIRED_APPLICATION_XIDS
from tenancy.catalog.instances import MACHINES
from tenancy.catalog.versions import ami_name
from tenancy.planning.aws import identity, node_config
from tenancy.planning.aws.addons import AddOn, wanted_add_ons
from tenancy.planning.common import names
from tenancy.planning.common.charts import SYSTEM_NODES, SYSTEM_TOLERATIONS
from tenancy.planning.common.pools import Taint, efa_cards, node_labels, node_taints, startup_taints
from tenancy.spec.fields.aws import MAX_ZONES, Endpoints
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Market, Pool

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
PRIVATE_SERVICES = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "monitoring", "sqs", "ssm", "sts")
"""AWS services that nodes and the platform's pods call besides S3. Only IAM and the price list need the internet."""
CHINA_ENDPOINT_SERVICES = frozenset({"ec2", "ecr.api", "ecr.dkr", "sts"})
"""Those of them whose endpoint services begin with `cn.` in China: eksctl `pkg/cfn/builder/vpc_endpoint.go`,
2026-11-23."""
ADMINISTRATOR = "AmazonEKSClusterAdminPolicy"
GPU_CONDITION = "AcceleratedHardwareReady"
"""Condition of a node by which EKS' monitoring agent reports GPUs."""
UNREPAIRED_REASONS = tuple(f"NvidiaXID{code}Error" for code in REPAIRED_APPLICATION_XIDS)
"""A tenant's program that fails is no reason to reboot or replace a node that others use."""
PLATFORM_ROLE = "platform-role"
"""Value of `replacing` for the platform's access entry, besides the names of node groups."""
CLUSTER_IS_BUILT_RULE = "cluster.mode: build with aws.enabled builds the cluster"
"""Rule of a message about an environment whose cluster exists."""


def endpoint_service(region: str, short: str) -> str:
    """A service as its VPC endpoints name it."""
    prefix = "cn." if region.startswith("cn-") and short in CHINA_ENDPOINT_SERVICES else ""
    return f"{prefix}com.amazonaws.{region}.{short}"


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """One zone. A given subnet has an id; otherwise a private and a public range are made."""

    zone: str
    subnet_id: str
    private: str
    public: str


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The VPC of a cluster: made, or an existing one."""

    region: str
    vpc: str
    """Id of a given VPC; empty: one is made."""
    cidr: str
    subnets: tuple[SubnetPlan, ...]
    endpoints: Endpoints
    services: tuple[str, ...]
    """Interface endpoints, by the service's short name."""
    s3_policy: identity.Document
    """Policy of the gateway endpoint for S3."""


@dataclass(frozen=True, slots=True)
class NodeGroupPlan:
    """A managed node group and its launch template."""

    name: str
    pool: str
    """Empty for the system's."""
    instance: str
    ami_type: str
    release: str
    """EKS' public SSM parameter with the image's full release version: its patch number cannot be derived."""
    nodes: int
    started: int
    """Current number of nodes: 0 before a capacity block begins, because EC2 would refuse each."""
    zones: tuple[str, ...]
    names_zones: bool
    """Whether the file names its zones; else they are the environment's."""
    labels: dict[str, str]
    taints: tuple[dict[str, str], ...]
    capacity_type: str
    reservation: str
    """Id of the reservation or capacity block that the nodes come from; empty: none."""
    efa_cards: tuple[int, ...]
    """Network cards with an EFA-only interface, in the pool's security group; empty: an ordinary interface alone."""
    user_data: str
    at_once: int
    terminates_first: bool
    wave: int
    root_volume: int
    """GiB."""
    unrepaired: tuple[str, ...]
    """Reasons of the condition GPU_CONDITION for which EKS repairs no node."""
    tags: dict[str, str]

    @property
    def image(self) -> str:
        """Name of the image, as the release notes list it."""
        return self.release.split("/")[-2]

    @property
    def image_release(self) -> str:
        """The image's `ami-release`."""
        return self.image.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class KarpenterPlan:
    """The queue of interruption notices that Karpenter reads, and the events that fill it."""

    queue: str
    queue_policy: identity.Document
    events: dict[str, identity.Document]
    """Pattern of each EventBridge rule, by the rule's name."""


@dataclass(frozen=True, slots=True)
class AccountPlan:
    """Account and region of all AWS resources, with or without a cluster."""

    account: str
    region: str
    cluster: str
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The AWS resources of an environment: network, control plane, nodes, roles, add-ons."""

    name: str
    kubernetes: str
    region: str
    account: str
    network: NetworkPlan
    service_cidr: str
    """Empty: EKS chooses."""
    roles: dict[str, identity.RolePlan]
    """By purpose."""
    boundary: str
    key: str
    """ARN of a given key; empty: one is made, with `key_policy`."""
    key_policy: identity.Document
    key_alias: str
    log_group: str
    log_days: int
    public_access: tuple[str, ...]
    deletion_protection: bool
    extended_support: bool
    irsa: bool
    platform_role: str
    platform_group: str
    platform_policy: str
    """ARN of the access policy that makes the platform's role an administrator."""
    add_ons: tuple[AddOn, ...]
    """Those without which no node gets ready."""
    groups: tuple[NodeGroupPlan, ...]
    """In the order of their waves."""
    efa_groups: dict[str, dict[str, str]]
    """Tags of the security group of each pool with EFA, by pool."""
    karpenter: KarpenterPlan | None
    tags: dict[str, str]

    @property
    def system(self) -> str:
        """Logical name of the system's node group."""
        return names.node_group_names(self.name, SYSTEM_NODES[vocabulary.POOL])[1]


@dataclass(frozen=True, slots=True)
class UpgradeSurge:
    """Machines that a managed group needs beyond its own while its nodes are replaced."""

    group: str
    instance: str
    gpus: int
    """GPUs of one node."""
    nodes: int
    zones: int
    more: int


def upgrade_surges(plan: ClusterPlan | None) -> tuple[UpgradeSurge, ...]:
    """One for each managed group of a cluster that is built, in the order of their waves.

    EKS raises the desired size by the larger of twice the zones and maxUnavailable, and waits for a new node in every
    zone (EKS user guide, "Understand each phase of node updates", 2026-11-27).
    """
    return tuple(
        UpgradeSurge(
            group.name,
            group.instance,
            machine.gpus if (machine := MACHINES.get(group.instance)) else 0,
            group.nodes,
            len(group.zones),
            0 if group.terminates_first else max(2 * len(group.zones), group.at_once),
        )
        for group in (plan.groups if plan else ())
    )


def account_plan(environment: Environment) -> AccountPlan | None:
    """None where AWS is switched off."""
    aws = environment.aws
    if not aws.enabled:
        return None
    return AccountPlan(aws.account, aws.region, environment.cluster.name, names.tags(environment))


def cluster_plan(environment: Environment, day: dt.date) -> ClusterPlan | None:
    """Network, cluster and nodes of an environment; None where it does not build them."""
    aws = environment.aws
    if not environment.builds_cluster:
        return None
    groups = [_system_group(environment), *_pool_groups(environment, day)]
    scales = any(pool.is_autoscaled for pool in environment.pools.values())
    return ClusterPlan(
        name=environment.cluster.name,
        kubernetes=environment.cluster.kubernetes,
        region=aws.region,
        account=aws.account,
        network=_network(environment),
        service_cidr=environment.cluster.service_cidr or "",
        roles=identity.roles(environment),
        boundary=aws.permissions_boundary or "",
        key=aws.kms_key_arn or "",
        key_policy=identity.key_policy(environment),
        key_alias=identity.key_alias(environment),
        log_group=identity.log_group_prefix(environment) + "cluster",
        log_days=aws.log_retention_days,
        public_access=aws.public_access_cidrs,
        deletion_protection=aws.deletion_protection,
        extended_support=aws.extended_support,
        irsa=aws.irsa,
        platform_role=aws.platform_role,
        platform_group=environment.platform.group,
        platform_policy=f"arn:{identity.partition(aws.region)}:eks::aws:cluster-access-policy/{ADMINISTRATOR}",
        add_ons=tuple(add_on for add_on in wanted_add_ons(environment) if add_on.before_nodes),
        groups=tuple(sorted(groups, key=lambda group: (group.wave, group.name))),
        efa_groups={name: names.pool_tags(environment, name) for name, pool in environment.pools.items() if pool.efa},
        karpenter=_karpenter(environment) if scales else None,
        tags=names.tags(environment),
    )


def _network(environment: Environment) -> NetworkPlan:
    network = environment.aws.network
    ranges = list(ipaddress.IPv4Network(network.cidr).subnets(prefixlen_diff=2))
    public = list(ranges[MAX_ZONES].subnets(prefixlen_diff=4))
    quarters = {zone: environment.aws.quarter_of(zone) - 1 for zone in environment.aws.every_zone}
    return NetworkPlan(
        region=environment.aws.region,
        vpc=network.vpc or "",
        cidr=network.cidr,
        subnets=tuple(
            SubnetPlan(zone, network.subnets[zone], "", "")
            if network.vpc
            else SubnetPlan(zone, "", str(ranges[quarter]), str(public[quarter]))
            for zone, quarter in quarters.items()
        ),
        endpoints=network.endpoints_are,
        services=PRIVATE_SERVICES,
        s3_policy=identity.s3_endpoint_policy(environment),
    )


def _system_group(environment: Environment) -> NodeGroupPlan:
    system = environment.aws.system
    return NodeGroupPlan(
        name=SYSTEM_NODES[vocabulary.POOL],
        pool="",
        instance=system.instance_type,
        ami_type="AL2023_x86_64_STANDARD",
        release=_release(environment, "x86_64", "standard", environment.aws.ami_release),
        nodes=system.nodes,
        started=system.nodes,
        zones=system.zones or environment.aws.every_zone,
        names_zones=bool(system.zones),
        labels=dict(SYSTEM_NODES),
        taints=_taints(
            environment, ({"key": t["key"], "value": "true", "effect": "NoSchedule"} for t in SYSTEM_TOLERATIONS)
        ),
        capacity_type="ON_DEMAND",
        reservation="",
        efa_cards=(),
        user_data=node_config.user_data(environment, None, base=True),
        at_once=1,
        terminates_first=False,
        wave=0,
        # No NodeConfig of theirs puts images on local disks.
        root_volume=environment.aws.root_gib(0),
        unrepaired=(),
        tags=names.tags(environment),
    )


def _pool_groups(environment: Environment, day: dt.date) -> Iterator[NodeGroupPlan]:
    for name, pool in sorted(environment.pools.items()):
        if not pool.nodes.min:
            continue
        architecture = "arm64" if pool.machine.architecture == "arm64" else "x86_64"
        variant = "nvidia" if pool.machine.gpus else "standard"
        registered_labels = node_config.registration_labels(name, pool)
        labels = node_labels(name, pool)
        yield NodeGroupPlan(
            name=name,
            pool=name,
            instance=pool.instance_type,
            ami_type=f"AL2023_{'ARM_64' if architecture == 'arm64' else architecture}_{variant.upper()}",
            release=_release(environment, architecture, variant, pool.ami_release or environment.aws.ami_release),
            nodes=pool.nodes.min,
            started=pool.nodes.min if pool.purchase.has_begun(day) else 0,
            zones=tuple(sorted(pool.zones)) or environment.aws.every_zone,
            names_zones=bool(pool.zones),
            # Labels of birth are in the user data: changed there, they replace nodes instead of relabelling them.
            labels={
                k: v
                for k, v in labels.items()
                if k not in registered_labels and not k.startswith("node.kubernetes.io/")
            },
            taints=_taints(environment, node_taints(name, pool)),
            capacity_type=_capacity_type(pool),
            reservation=pool.purchase.reservation_id or "",
            efa_cards=efa_cards(pool),
            user_data=node_config.user_data(environment, name, base=True),
            at_once=pool.upgrade.max_unavailable,
            terminates_first=pool.terminates_first,
            wave=pool.upgrade.wave,
            root_volume=environment.aws.root_gib(pool.machine.nvme),
            unrepaired=UNREPAIRED_REASONS if pool.machine.gpus else (),
            tags=names.pool_tags(environment, name),
        )


_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""Names of the taint effects in the EKS API."""


def _taints(environment: Environment, taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return tuple({**taint, "effect": _EFFECTS[taint["effect"]]} for taint in (*taints, *startup_taints(environment)))


def _release(environment: Environment, architecture: str, variant: str, release: str) -> str:
    minor = environment.cluster.kubernetes
    name = ami_name(minor, architecture, variant, release)
    return f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/{architecture}/{variant}/{name}/release_version"


def _capacity_type(pool: Pool) -> str:
    if pool.purchase.capacity_block:
        return "CAPACITY_BLOCK"
    return "SPOT" if pool.purchase.market is Market.SPOT else "ON_DEMAND"


def _karpenter(environment: Environment) -> KarpenterPlan:
    return KarpenterPlan(
        queue=names.karpenter_queue(environment),
        queue_policy=identity.queue_policy(environment),
        events=identity.interruption_events(environment),
    )
