from __future__ import annotations

import pulumi
import pulumi_aws as aws

from tenancy.components.aws_resource import text
from tenancy.plan.cluster import NetworkPlan
from tenancy.plan.names import SUBNET_TAG, SubnetUse
from tenancy.spec.aws import Endpoints


class Network(pulumi.ComponentResource):
    """Private subnets with a way out; what nodes say to AWS does not leave it."""

    vpc_id: pulumi.Output[str]
    subnets: dict[str, pulumi.Output[str]]
    """Private subnet by zone."""

    def __init__(
        self, name: str, plan: NetworkPlan, tags: dict[str, str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:index:Network", name, None, opts)
        self._name, self._tags = name, tags
        self._below = pulumi.ResourceOptions(parent=self)
        if plan.vpc:
            self.vpc_id = pulumi.Output.from_input(plan.vpc)
            self.subnets = {subnet.zone: pulumi.Output.from_input(subnet.given) for subnet in plan.subnets}
            asking = pulumi.InvokeOptions(parent=self)
            tables: list[pulumi.Input[str]] = [
                aws.ec2.get_route_table_output(subnet_id=subnet.given, opts=asking).id for subnet in plan.subnets
            ]
            cidr: pulumi.Input[str] = aws.ec2.get_vpc_output(id=plan.vpc, opts=asking).cidr_block
        else:
            tables, cidr = self._make(plan), plan.cidr
        if plan.endpoints is Endpoints.MADE:
            self._endpoints(plan, tables, cidr)
        else:
            for service in ("s3", *plan.services):
                _must_exist(plan, service, pulumi.InvokeOptions(parent=self))
        self.register_outputs({"vpc": self.vpc_id, "subnets": self.subnets})

    def _tagged(self, what: str) -> dict[str, str]:
        return {**self._tags, "Name": f"{self._name}-{what}"}

    def _make(self, plan: NetworkPlan) -> list[pulumi.Input[str]]:
        """The VPC; returns the route tables of its private subnets."""
        name, below = self._name, self._below
        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=plan.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tagged("vpc"),
            opts=below,
        )
        # Whatever forgets to name a group of its own gets no traffic at all.
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default", vpc_id=vpc.id, ingress=[], egress=[], tags=self._tagged("default"), opts=below
        )
        gateway = aws.ec2.InternetGateway(f"{name}-gateway", vpc_id=vpc.id, tags=self._tagged("gateway"), opts=below)
        out = aws.ec2.RouteTable(
            f"{name}-public",
            vpc_id=vpc.id,
            routes=[{"cidr_block": "0.0.0.0/0", "gateway_id": gateway.id}],
            tags=self._tagged("public"),
            opts=below,
        )
        self.vpc_id, self.subnets = vpc.id, {}
        tables: list[pulumi.Input[str]] = []
        for planned in plan.subnets:
            zone = planned.zone
            public = aws.ec2.Subnet(
                f"{name}-public-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=planned.public,
                tags={**self._tagged(f"public-{zone}"), SUBNET_TAG: SubnetUse.PUBLIC},
                opts=below,
            )
            aws.ec2.RouteTableAssociation(
                f"{name}-public-{zone}", route_table_id=out.id, subnet_id=public.id, opts=below
            )
            address = aws.ec2.Eip(f"{name}-{zone}", domain="vpc", tags=self._tagged(zone), opts=below)
            # One for each zone: a zone that fails takes nobody else's way out along.
            nat = aws.ec2.NatGateway(
                f"{name}-{zone}",
                allocation_id=address.allocation_id,
                subnet_id=public.id,
                tags=self._tagged(zone),
                opts=below,
            )
            private = aws.ec2.Subnet(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=planned.private,
                tags={**self._tagged(f"private-{zone}"), SUBNET_TAG: SubnetUse.PRIVATE},
                opts=below,
            )
            table = aws.ec2.RouteTable(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                routes=[{"cidr_block": "0.0.0.0/0", "nat_gateway_id": nat.id}],
                tags=self._tagged(f"private-{zone}"),
                opts=below,
            )
            aws.ec2.RouteTableAssociation(
                f"{name}-private-{zone}", route_table_id=table.id, subnet_id=private.id, opts=below
            )
            self.subnets[zone] = private.id
            tables.append(table.id)
        return tables

    def _endpoints(self, plan: NetworkPlan, tables: list[pulumi.Input[str]], cidr: pulumi.Input[str]) -> None:
        name, below = self._name, self._below
        aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=self.vpc_id,
            service_name=_service(plan, "s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=tables,
            policy=text(plan.s3_policy),
            tags=self._tagged("s3"),
            opts=below,
        )
        group = aws.ec2.SecurityGroup(
            f"{name}-endpoints",
            vpc_id=self.vpc_id,
            description="HTTPS from the VPC to AWS services",
            ingress=[{"protocol": "tcp", "from_port": 443, "to_port": 443, "cidr_blocks": [cidr]}],
            egress=[],
            tags=self._tagged("endpoints"),
            opts=below,
        )
        for service in plan.services:
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=self.vpc_id,
                service_name=_service(plan, service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.subnets.values()),
                security_group_ids=[group.id],
                tags=self._tagged(service),
                opts=below,
            )


def _must_exist(plan: NetworkPlan, service: str, opts: pulumi.InvokeOptions) -> None:
    """Ends the run where the VPC has no endpoint of the service: its nodes would talk over the internet."""
    aws.ec2.get_vpc_endpoint(vpc_id=plan.vpc, service_name=_service(plan, service), state="available", opts=opts)


def _service(plan: NetworkPlan, short: str) -> str:
    """A service as endpoints name it."""
    return f"com.amazonaws.{plan.region}.{short}"
