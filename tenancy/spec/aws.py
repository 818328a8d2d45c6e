"""The AWS side of an environment: network, EKS cluster, and the nodes of the platform itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.instances import for_services
from tenancy.catalog.regions import REGIONS
from tenancy.catalog.versions import AMI_DEFAULT, ami_release_misfit
from tenancy.rules.values import foreign_arn, is_private, unsafe_range, wide_range
from tenancy.spec.base import Flag, Form, Mistake, Positive, Spec, Whole, broken
from tenancy.spec.identity import Identities, PodIdentity
from tenancy.spec.pools import Release, Zone, Zones, nearest
from tenancy.spec.source import Location

_Account = Annotated[
    str, Form(r"^([0-9]{12})?$", "an account id of 12 digits", 'write it like "111122223333", with quotes')
]
_Region = Annotated[str, Form(r"^([a-z]{2}(-[a-z]+)+-[0-9])?$", "an AWS region", "write it like eu-central-1")]
_Vpc = Annotated[str, Form(r"^vpc-[0-9a-f]{8,17}$", "id of a VPC", "write it like vpc-0123abcd")]
_Subnet = Annotated[str, Form(r"^subnet-[0-9a-f]{8,17}$", "id of a subnet", "write it like subnet-0123abcd")]
_RoleArn = Annotated[
    str,
    Form(
        r"^(arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+)?$",
        "ARN of an IAM role",
        "write it like arn:aws:iam::111122223333:role/platform",
    ),
]
_PolicyArn = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[\w+=,.@/-]+$",
        "ARN of an IAM policy",
        "write it like arn:aws:iam::111122223333:policy/boundary",
    ),
]
_KeyArn = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]+$",
        "ARN of a KMS key",
        "write it like arn:aws:kms:eu-central-1:111122223333:key/<id>",
    ),
]
_Cidr = Annotated[
    str, Form(r"^[0-9.]+/[0-9]{1,2}$", "an IPv4 address range with its length", "write it like 10.64.0.0/16", 18)
]


MOST_ZONES = 3
"""Each gets a quarter of the VPC's range for private addresses; the last quarter is for the public ones."""


class Endpoints(StrEnum):
    MADE = "made"  # the S3 gateway and the interface endpoints are part of the stack
    CHECKED = "checked"  # somebody else made them: a run stops where one is missing


class Network(Spec):
    """A VPC of the stack's own (cidr), or one that is there (vpc and subnets)."""

    cidr: _Cidr = Field(
        "10.64.0.0/16", description="Range of the VPC that is made, /16 to /20; each zone gets a private quarter."
    )
    vpc: _Vpc | None = Field(None, description="An existing VPC, instead of a new one.")
    subnets: dict[Zone, _Subnet] = Field(
        default_factory=dict, description="Its private subnets, one for each zone, with a route out."
    )
    endpoints: Endpoints | None = Field(
        None, description="S3, ECR, STS, EC2 and CloudWatch without the internet. Absent: made, in a given VPC checked."
    )
    service_ranges: tuple[_Cidr, ...] = Field(
        (),
        description="Ranges at which pods with an identity on AWS reach its services, port 443: those of interface "
        "endpoints, and of the prefix list of S3's gateway; no range that holds pods. Absent: none, and what a "
        "tenant's reach opens.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if bool(self.vpc) != bool(self.subnets):
            given = "vpc without subnets" if self.vpc else "subnets without vpc"
            yield Mistake((), given, "an existing VPC comes with its private subnets", "write both, or neither")
        for i, text in enumerate(self.service_ranges):
            if given := unsafe_range(text):
                yield broken(("service-ranges", i), "net-05", given)
        zone_of: dict[str, str] = {}
        for zone, subnet in self.subnets.items():
            if (first := zone_of.setdefault(subnet, zone)) != zone:
                given = f"{subnet}, which stands for {first}"
                yield Mistake(("subnets", zone), given, "a subnet is in one zone", f"name the subnet in {zone}")
        if self.vpc and "cidr" in self.model_fields_set:
            yield Mistake(("cidr",), "cidr beside vpc", "a VPC is made or given", "drop one of the two")
        if self.endpoints is Endpoints.CHECKED and not self.vpc:
            rule = "endpoints are checked in a VPC that is there"
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
        return self.endpoints or (Endpoints.CHECKED if self.vpc else Endpoints.MADE)


class System(Spec):
    """Nodes of the platform's own services; no tenant's pod runs there."""

    instance: Annotated[
        str, Form(r"^[a-z0-9-]+\.[a-z0-9]+$", "an EC2 instance type without GPU", "write it like m7i.xlarge")
    ] = Field("m7i.xlarge", description="Instance type, amd64, of size large or more.")
    nodes: Annotated[int, Whole(2, 50)] = Field(3, description="How many, over the zones; two at least.")

    def mistakes(self) -> Iterator[Mistake]:
        if misfit := for_services(self.instance):
            rule = "the platform's services run on amd64, without GPUs, on size large or more"
            yield Mistake(("instance",), f"{self.instance}, which {misfit}", rule, "write one such as m7i.xlarge")


_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
"""What CloudWatch Logs accepts as retentionInDays (PutRetentionPolicy)."""


class Aws(Identities):
    enabled: Flag = Field(
        False, description="Whether the AWS layer (network, cluster, nodes) is built. Absent: it is not."
    )
    account: _Account = Field("", description="Account id, 12 digits. A run on another account stops.")
    region: _Region = Field("", description="Region, such as eu-central-1.")
    zones: Zones = Field(
        (), min_length=1, description="Availability zones, two at least. Absent: those of a given VPC's subnets."
    )
    network: Network = Field(default_factory=Network, description="Absent: a VPC of its own.")
    platform_role: _RoleArn = Field(
        "",
        description="IAM role of the platform team and of whoever runs the stacks. An access entry maps it to "
        "platform.group; nobody else is an administrator, the creator neither.",
    )
    permissions_boundary: _PolicyArn | None = Field(
        None,
        description="Boundary of the cluster's own roles and of break-glass; absent: none. Tenants' roles have one "
        "that is made for them.",
    )
    public_access: tuple[_Cidr, ...] = Field(
        (), description="Ranges that reach the API server from the internet. Absent: none, it is private."
    )
    log_days: Positive = Field(365, description="Days for which the control plane's logs are kept, all five kinds.")
    encryption_key: _KeyArn | None = Field(
        None, description="KMS key for secrets, volumes and logs. Absent: one is made for the cluster."
    )
    deletion_protection: Flag = Field(True, description="Whether the cluster refuses to be deleted. Absent: it does.")
    irsa: Flag = Field(False, description="Whether an OIDC provider is made for IRSA. Absent: no, but Pod Identity.")
    system: System = Field(default_factory=System, description="Nodes of the platform's own services.")
    ami_release: Release = Field(
        AMI_DEFAULT, description="Release of the EKS node images, AL2023; a pool may have one of its own."
    )
    root_volume: Annotated[int, Whole(50, 16_000)] = Field(
        200, description="Root volume of every node, GiB, encrypted."
    )
    upgrade_pause: Annotated[int, Whole(0, 1440)] = Field(
        30, description="Minutes between two waves of node upgrades, in which somebody may stop the run."
    )

    def identity_mistakes(self, platform_group: str) -> Iterator[Mistake]:
        """What is wrong with who is who; the platform's group is another part of the file."""
        yield from self.people_mistakes(platform_group, self.platform_role)
        if not self.enabled:
            return
        named: list[tuple[Location, str]] = [(("people", group), role) for group, role in self.people.items()]
        named += [
            (("permissions-boundary",), self.permissions_boundary or ""),
            (("platform-role",), self.platform_role),
            (("encryption-key",), self.encryption_key or ""),
        ]
        for where, arn in named:
            if arn and (given := foreign_arn(arn, self.account, self.region)):
                yield broken(where, "aws-01", given)
        if self.identity is PodIdentity.IRSA and not (self.irsa and self.oidc_issuer):
            given = "identity: irsa without " + " and ".join(
                name for name, there in (("irsa: true", self.irsa), ("oidc-issuer", self.oidc_issuer)) if not there
            )
            rule = "the roles' trust names the cluster's provider"
            yield Mistake(("identity",), given, rule, "make the cluster with irsa: true, then write its issuer")

    def mistakes(self) -> Iterator[Mistake]:
        for i, text in enumerate(self.public_access):
            if given := wide_range(text):
                yield broken(("public-access", i), "eks-01", given)
        if misfit := ami_release_misfit(self.ami_release):
            yield broken(("ami-release",), "ami-01", misfit)
        if self.log_days not in _LOG_DAYS:
            close = min(_LOG_DAYS, key=lambda days: abs(days - self.log_days))
            rule = "a retention that CloudWatch Logs knows"
            yield Mistake(("log-days",), f"log-days: {self.log_days}", rule, f"write {close}")
        if not self.enabled:
            return
        for field in ("account", "region", "platform_role"):
            if not getattr(self, field):
                name = field.replace("_", "-")
                rule = f"a cluster on AWS has an account, a region and a platform-role; {name} is missing"
                yield Mistake((), f"enabled: true without {name}", rule, f"write {name}")
        if self.region and self.region not in REGIONS:
            change = f"use {' or '.join(nearest(self.region, REGIONS))}, or add it to tenancy/catalog/regions.py"
            yield broken(("region",), "ref-01", f"region {self.region!r}", change)
        if len(self.every_zone) < 2:
            given = f"{len(self.every_zone)} zones"
            field = "network" if self.network.vpc else "zones"
            yield Mistake((field,), given, "EKS needs two availability zones at least", "name two or three")
        if not self.network.vpc and len(self.zones) > MOST_ZONES:
            given, rule = f"{len(self.zones)} zones", f"a VPC that is made has {MOST_ZONES} zones at most"
            yield Mistake(("zones",), given, rule, f"name {MOST_ZONES}, or give a VPC with its subnets")
        for i, zone in enumerate(self.zones):
            if self.region and zone[:-1] != self.region:
                yield broken(("zones", i), "ref-01", f"zone {zone} outside {self.region}", f"use {self.region}a")
        if self.network.vpc and self.zones and set(self.zones) != set(self.network.subnets):
            given = f"zones {', '.join(self.zones)} beside subnets in {', '.join(self.network.subnets)}"
            yield Mistake(("zones",), given, "zones of a given VPC are its subnets'", "drop zones")

    @property
    def every_zone(self) -> tuple[str, ...]:
        return self.zones or tuple(self.network.subnets)
