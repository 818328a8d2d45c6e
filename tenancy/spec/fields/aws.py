"""The AWS side of an environment: network, EKS cluster, and the nodes of the platform itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.instances import for_services
from tenancy.catalog.nodes import SYSTEM_ROOT_GIB, WHOLE_ROOT_GIB
from tenancy.catalog.regions import REGIONS
from tenancy.catalog.versions import ADD_ONS, AMI_DEFAULT, add_on_misfit, ami_release_misfit
from tenancy.rules.values import MOST_PUBLIC, foreign_arn, is_private, never_public, unsafe_range, wide_range
from tenancy.spec.fields.base import Flag, Positive, Spec, TextForm, WholeNumber
from tenancy.spec.fields.identity import Identities, PodIdentity
from tenancy.spec.fields.pools import Release, Zone, Zones
from tenancy.spec.reading.mistakes import Mistake, nearest, rule_mistake
from tenancy.spec.reading.source import Location

_Account = Annotated[
    str, TextForm(r"^([0-9]{12})?$", "an account id of 12 digits", 'write it like "111122223333", with quotes')
]
_Region = Annotated[str, TextForm(r"^([a-z]{2}(-[a-z]+)+-[0-9])?$", "an AWS region", "write it like eu-central-1")]
_Vpc = Annotated[
    str,
    TextForm(r"^vpc-[0-9a-f]{8,17}$", "an id of a VPC is 'vpc-' and hexadecimal digits", "write it like vpc-0123abcd"),
]
_Subnet = Annotated[
    str,
    TextForm(
        r"^subnet-[0-9a-f]{8,17}$",
        "an id of a subnet is 'subnet-' and hexadecimal digits",
        "write it like subnet-0123abcd",
    ),
]
_RoleArn = Annotated[
    str,
    TextForm(
        r"^(arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+)?$",
        "ARN of an IAM role",
        "write it like arn:aws:iam::111122223333:role/platform",
    ),
]
_PolicyArn = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[\w+=,.@/-]+$",
        "ARN of an IAM policy",
        "write it like arn:aws:iam::111122223333:policy/boundary",
    ),
]
_KeyArn = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]+$",
        "ARN of a KMS key",
        "write it like arn:aws:kms:eu-central-1:111122223333:key/<id>",
    ),
]
_File = Annotated[
    str,
    TextForm(
        r"^[A-Za-z0-9][A-Za-z0-9._-]*\.json$", "a JSON file's name without a path", "write it like ip-ranges.json"
    ),
]
_Cidr = Annotated[
    str, TextForm(r"^[0-9.]+/[0-9]{1,2}$", "an IPv4 address range with its length", "write it like 10.64.0.0/16", 18)
]


MAX_ZONES = 3
"""Each zone gets a quarter of the VPC's range for private addresses; the last quarter is for public addresses."""


class Endpoints(StrEnum):
    """Whether VPC endpoints are made or only looked up."""

    MADE = "made"  # the S3 gateway and the interface endpoints are part of the stack
    CHECKED = "checked"  # they exist already: a run stops if one is missing


class Network(Spec):
    """A VPC that the stack makes (cidr), or an existing one (vpc and subnets)."""

    cidr: _Cidr = Field(
        default="10.64.0.0/16",
        description="IPv4 range of the VPC that is made, /16 to /20. Each zone gets a quarter of it for private "
        "addresses. Default: 10.64.0.0/16.",
    )
    vpc: _Vpc | None = Field(default=None, description="Id of an existing VPC to use. Default: a VPC is made.")
    subnets: dict[Zone, _Subnet] = Field(
        default_factory=dict,
        description="Private subnets of the existing VPC, one id per zone, each with a route out of the VPC. "
        "Required with vpc. Default: subnets are made.",
    )
    endpoints: Endpoints | None = Field(
        default=None,
        description="Whether the VPC endpoints for S3, ECR, STS, EC2 and CloudWatch are made, or only checked for. "
        "Default: made; in an existing VPC, checked.",
    )
    zone_quarters: dict[Zone, Annotated[int, WholeNumber(1, MAX_ZONES)]] = Field(
        default_factory=dict,
        description="Quarter of cidr that holds a zone's private addresses, 1 to 3, by zone. A zone keeps it for as "
        "long as the cluster exists. Default: by the zone's letter, whatever the order of zones: a and d the first, b "
        "and e the second, c and f the third.",
    )
    aws_ip_ranges_file: _File | None = Field(
        default=None,
        description="Name of AWS' published list of addresses, beside environment.yaml, such as ip-ranges.json from "
        "https://ip-ranges.amazonaws.com. S3's ranges of the region are read from it and added to aws-service-cidrs. "
        "Default: none.",
    )
    aws_service_cidrs: tuple[_Cidr, ...] = Field(
        default=(),
        description="Address ranges at which pods with an AWS identity reach AWS services, port 443: those of "
        "interface endpoints, and of the prefix list of S3's gateway endpoint. No range may hold pods. Default: "
        "none; such pods reach only what the tenant's egress allows.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if bool(self.vpc) != bool(self.subnets):
            fault = "vpc without subnets" if self.vpc else "subnets without vpc"
            yield Mistake((), fault, "an existing VPC comes with its private subnets", "write both, or neither")
        for i, text in enumerate(self.aws_service_cidrs):
            if fault := unsafe_range(text):
                yield rule_mistake(("aws-service-cidrs", i), "net-05", fault)
        zone_of: dict[str, str] = {}
        for zone, subnet in self.subnets.items():
            if (first := zone_of.setdefault(subnet, zone)) != zone:
                fault = f"{subnet}, which is that of {first}"
                yield Mistake(("subnets", zone), fault, "a subnet is in one zone", f"name the subnet in {zone}")
        for field in ("cidr", "zone_quarters"):
            if self.vpc and field in self.model_fields_set:
                key, rule = field.replace("_", "-"), "a VPC is either made or existing"
                yield Mistake((key,), f"{key} beside vpc", rule, "drop one of the two")
        if self.endpoints is Endpoints.CHECKED and not self.vpc:
            rule = "endpoints are checked only in an existing VPC"
            yield Mistake(("endpoints",), "endpoints: checked without vpc", rule, "name the vpc, or drop endpoints")
        try:
            network = ipaddress.IPv4Network(self.cidr)
        except ValueError as error:
            yield Mistake(("cidr",), f"{self.cidr!r} ({error})", "an IPv4 range", "write it like 10.64.0.0/16")
            return
        if not (is_private(self.cidr) and 16 <= network.prefixlen <= 20):
            change = "write it like 10.64.0.0/16"
            yield Mistake(("cidr",), self.cidr, "a range of RFC 1918 or RFC 6598, from /16 to /20", change)

    @property
    def endpoints_are(self) -> Endpoints:
        """Whether the endpoints are made or looked up: as written, else looked up in an existing VPC and made in a new
        one."""
        return self.endpoints or (Endpoints.CHECKED if self.vpc else Endpoints.MADE)


class System(Spec):
    """Nodes of the platform's own services; no tenant's pod runs there."""

    instance_type: Annotated[
        str, TextForm(r"^[a-z0-9-]+\.[a-z0-9]+$", "an EC2 instance type without GPU", "write it like m7i.xlarge")
    ] = Field(
        default="m7i.xlarge",
        description="EC2 instance type of the platform's nodes: amd64, without GPU, size large or more. Default: "
        "m7i.xlarge.",
    )
    nodes: Annotated[int, WholeNumber(2, 50)] = Field(
        default=3, description="Number of nodes, spread over the zones, at least 2. Default: 3."
    )
    zones: Zones = Field(
        default=(),
        min_length=1,
        description="Availability zones of the nodes, some of aws.zones. Default: all zones of the environment; nodes "
        "that exist stay in theirs when one is added.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if misfit := for_services(self.instance_type):
            rule = "the platform's services run on amd64, without GPUs, on size large or more"
            yield Mistake(
                ("instance-type",), f"{self.instance_type}, which {misfit}", rule, "write one such as m7i.xlarge"
            )


class AddOnRelease(StrEnum):
    """Which version of an EKS add-on a run installs."""

    DEFAULT = "default"  # the one that EKS marks as the default of the cluster's Kubernetes
    LATEST = "latest"  # the most recent that EKS lists for the cluster's Kubernetes


class AddOns(Spec):
    """Versions of the EKS add-ons. Each run asks EKS again, so that they follow the cluster's Kubernetes."""

    release: AddOnRelease = Field(
        default=AddOnRelease.DEFAULT,
        description="Version of every add-on that versions does not name: EKS' default for the cluster's Kubernetes, "
        "or the latest that EKS lists for it. Where the default is older than the platform needs, the latest is taken. "
        "Default: default.",
    )
    versions: dict[str, str] = Field(
        default_factory=dict,
        description="Fixed versions by add-on, such as vpc-cni: v1.20.4-eksbuild.2. That of kube-proxy has the minor "
        "of cluster.kubernetes. Default: none is fixed.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        for name, version in self.versions.items():
            if name not in ADD_ONS:
                change = f"write {' or '.join(nearest(name, ADD_ONS))}"
                yield Mistake(("versions", name), f"add-on {name!r}", f"one of {', '.join(ADD_ONS)}", change)
            elif fault := add_on_misfit(name, version):
                rule = "a version that EKS lists, and none that is older than the platform needs"
                command = f"`aws eks describe-addon-versions --addon-name {name}`"
                yield Mistake(("versions", name), fault, rule, f"write one that {command} prints, or drop it")


_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
"""Values that CloudWatch Logs accepts as retentionInDays (PutRetentionPolicy)."""


class Aws(Identities):
    """The AWS account of an environment: region, network, nodes of the system, identities and encryption keys."""

    enabled: Flag = Field(
        default=False,
        description="Whether the environment has an AWS half: roles, buckets, keys, repositories, budgets, access "
        "entries, and with cluster.mode: build network, cluster and nodes. Default: false.",
    )
    account: _Account = Field(
        default="",
        description="AWS account id, 12 digits. A run on another account stops. Required with enabled: true. "
        "Default: none.",
    )
    region: _Region = Field(
        default="", description="AWS region, such as eu-central-1. Required with enabled: true. Default: none."
    )
    zones: Zones = Field(
        default=(),
        min_length=1,
        description="Availability zones, at least two. Default: those of the existing VPC's subnets.",
    )
    network: Network = Field(default_factory=Network, description="VPC of the cluster. Default: a VPC is made.")
    platform_role: _RoleArn = Field(
        default="",
        description="ARN of the IAM role of the platform team and of the identity that runs the stacks (the "
        "deployer). In a cluster that is built an access entry maps it to platform.group, and no other identity is an "
        "administrator, not even the creator of the cluster. Required with enabled: true. Default: none.",
    )
    permissions_boundary: _PolicyArn | None = Field(
        default=None,
        description="ARN of the permissions boundary of the cluster's own roles and of break-glass. Tenants' roles "
        "have a boundary that is made for them. Default: none.",
    )
    public_access_cidrs: tuple[_Cidr, ...] = Field(
        default=(),
        description="Public address ranges that reach the API server from the internet, at most 40. Default: none; "
        "the API server is private.",
    )
    log_retention_days: Positive = Field(
        default=365, description="Retention of the control plane's logs, all five kinds, days. Default: 365."
    )
    kms_key_arn: _KeyArn | None = Field(
        default=None,
        description="ARN of the KMS key for secrets, volumes and logs. Default: a key is made for the cluster.",
    )
    tenant_log_kms_key_arn: _KeyArn | None = Field(
        default=None,
        description="ARN of the KMS key of tenants' log groups (aws-resources.log-groups). Its policy must allow "
        "CloudWatch "
        "Logs to use it for /tenancy/<environment>/*. Default: the key of CloudWatch Logs.",
    )
    deletion_protection: Flag = Field(
        default=True,
        description="Whether EKS refuses to delete the cluster, and Pulumi's engine to replace or delete it, its VPC, "
        "subnets, node groups, add-ons and access entries. Default: true.",
    )
    extended_support: Flag = Field(
        default=True,
        description="Whether EKS keeps the cluster's Kubernetes past its standard support of 14 months, for 12 more, "
        "for $0.60 instead of $0.10 an hour. With false EKS updates the control plane when standard "
        "support ends. Default: true.",
    )
    irsa: Flag = Field(
        default=False,
        description="Whether an OIDC provider for IRSA is made; in an existing cluster for oidc-issuer. Default: "
        "false; pods use EKS Pod Identity, or the provider that the account has.",
    )
    system: System = Field(
        default_factory=System, description="Nodes of the platform's own services. Default: the defaults of its fields."
    )
    ami_release: Release = Field(
        default=AMI_DEFAULT,
        description=f"Release of the EKS node images (AL2023); a pool may set its own. Default: {AMI_DEFAULT}.",
    )
    add_ons: AddOns = Field(
        default_factory=AddOns,
        description="Versions of the EKS add-ons of a cluster that is built. Default: the defaults of its fields.",
    )
    root_volume_size: Annotated[int, WholeNumber(50, 16_000)] | None = Field(
        default=None,
        description="Size of every node's root volume, GiB. The volume is encrypted. Default: "
        f"{SYSTEM_ROOT_GIB} for machines with local NVMe disks, which have the images and the pods' files; else "
        f"{WHOLE_ROOT_GIB}.",
    )
    upgrade_pause: Annotated[int, WholeNumber(0, 1440)] = Field(
        default=30,
        description="Pause between two waves of node upgrades, minutes. The run can be stopped during the pause. "
        "Default: 30.",
    )

    def identity_mistakes(self, platform_group: str, *, built: bool) -> Iterator[Mistake]:
        """Mistakes in the mapping of identities; the platform's group is in another part of the file, as is whether
        the cluster is built."""
        yield from self.people_mistakes(platform_group, self.platform_role)
        if not self.enabled:
            return
        arns: list[tuple[Location, str]] = [(("group-roles", group), role) for group, role in self.group_roles.items()]
        arns += [
            (("permissions-boundary",), self.permissions_boundary or ""),
            (("platform-role",), self.platform_role),
            (("kms-key-arn",), self.kms_key_arn or ""),
            (("tenant-log-kms-key-arn",), self.tenant_log_kms_key_arn or ""),
        ]
        for location, arn in arns:
            if arn and (fault := foreign_arn(arn, self.account, self.region)):
                yield rule_mistake(location, "aws-01", fault)
        needed = {"irsa: true": self.irsa or not built, "oidc-issuer": bool(self.oidc_issuer)}
        if self.identity is PodIdentity.IRSA and not all(needed.values()):
            fault = "identity: irsa without " + " and ".join(
                name for name, is_present in needed.items() if not is_present
            )
            rule = "the roles' trust names the cluster's provider"
            change = "make the cluster with irsa: true, then write its issuer"
            command = "`aws eks describe-cluster --name CLUSTER --query cluster.identity.oidc.issuer`"
            yield Mistake(("identity",), fault, rule, change if built else f"write the issuer that {command} prints")
        if self.irsa and not built and not self.oidc_issuer:
            rule = "the provider of an existing cluster is made for its issuer"
            yield Mistake(("irsa",), "irsa: true without oidc-issuer", rule, "write oidc-issuer, or drop irsa")

    def mistakes(self) -> Iterator[Mistake]:
        for i, text in enumerate(self.public_access_cidrs):
            if fault := wide_range(text) or never_public(text):
                yield rule_mistake(("public-access-cidrs", i), "eks-01", fault)
        if (count := len(self.public_access_cidrs)) > MOST_PUBLIC:
            fault, change = f"{count} ranges of {MOST_PUBLIC}", "join neighbouring ranges, or come through one gateway"
            yield rule_mistake(("public-access-cidrs",), "eks-01", fault, change)
        if misfit := ami_release_misfit(self.ami_release):
            yield rule_mistake(("ami-release",), "ami-01", misfit)
        if self.log_retention_days not in _LOG_DAYS:
            close = min(_LOG_DAYS, key=lambda days: abs(days - self.log_retention_days))
            rule = "a retention that CloudWatch Logs accepts"
            yield Mistake(
                ("log-retention-days",), f"log-retention-days: {self.log_retention_days}", rule, f"write {close}"
            )
        if not self.enabled:
            return
        for field in ("account", "region", "platform_role"):
            if not getattr(self, field):
                name = field.replace("_", "-")
                rule = f"a cluster on AWS has an account, a region and a platform-role; {name} is missing"
                yield Mistake((), f"enabled: true without {name}", rule, f"write {name}")
        if self.region and self.region not in REGIONS:
            change = f"use {' or '.join(nearest(self.region, REGIONS))}, or add it to tenancy/catalog/regions.py"
            yield rule_mistake(("region",), "ref-01", f"region {self.region!r}", change)

    def built_mistakes(self) -> Iterator[Mistake]:
        """Mistakes in the zones of a cluster that is built."""
        if len(self.every_zone) < 2:
            fault = f"{len(self.every_zone)} zones"
            field = "network" if self.network.vpc else "zones"
            yield Mistake((field,), fault, "EKS needs two availability zones at least", "name two or three")
        if not self.network.vpc and len(self.zones) > MAX_ZONES:
            fault, rule = f"{len(self.zones)} zones", f"a VPC that is made has {MAX_ZONES} zones at most"
            yield Mistake(("zones",), fault, rule, f"name {MAX_ZONES}, or give a VPC with its subnets")
        yield from self._quarter_mistakes()
        for i, zone in enumerate(self.system.zones):
            if zone not in self.every_zone:
                fault, change = f"zone {zone} outside aws.zones", f"use {', '.join(self.every_zone)}"
                yield rule_mistake(("system", "zones", i), "ref-01", fault, change)
        for i, zone in enumerate(self.zones):
            if self.region and zone[:-1] != self.region:
                yield rule_mistake(("zones", i), "ref-01", f"zone {zone} outside {self.region}", f"use {self.region}a")
        if self.network.vpc and self.zones and set(self.zones) != set(self.network.subnets):
            fault = f"zones {', '.join(self.zones)} beside subnets in {', '.join(self.network.subnets)}"
            yield Mistake(("zones",), fault, "zones of a given VPC are its subnets'", "drop zones")

    def root_gib(self, nvme: int) -> int:
        """Size of the root volume of a machine with so much local NVMe (GB), GiB."""
        return self.root_volume_size or (SYSTEM_ROOT_GIB if nvme else WHOLE_ROOT_GIB)

    def _quarter_mistakes(self) -> Iterator[Mistake]:
        if self.network.vpc:
            return
        for zone in self.network.zone_quarters:
            if zone not in self.every_zone:
                fault, change = f"zone {zone} outside aws.zones", f"use {', '.join(self.every_zone)}"
                yield rule_mistake(("network", "zone-quarters", zone), "ref-01", fault, change)
        zone_of: dict[int, str] = {}
        for zone in self.every_zone[:MAX_ZONES]:
            quarter = self.quarter_of(zone)
            if (first := zone_of.setdefault(quarter, zone)) != zone:
                free = sorted(
                    set(range(1, MAX_ZONES + 1)) - {self.quarter_of(used_zone) for used_zone in self.every_zone}
                )
                fault, rule = (
                    f"{zone} in quarter {quarter}, which is that of {first}",
                    "each zone has a range of its own",
                )
                change = f"write network.zone-quarters: {{{zone}: {free[0]}}}" if free else "write other quarters"
                yield Mistake(("network", "zone-quarters"), fault, rule, change)

    @property
    def every_zone(self) -> tuple[str, ...]:
        """Names of the availability zones, sorted: those written, or those of the existing subnets. Their order in the
        file says nothing."""
        return tuple(sorted(self.zones or self.network.subnets))

    def quarter_of(self, zone: str) -> int:
        """Quarter of the VPC's range that holds a zone's private addresses, from 1."""
        return self.network.zone_quarters.get(zone) or (ord(zone[-1]) - ord("a")) % MAX_ZONES + 1
