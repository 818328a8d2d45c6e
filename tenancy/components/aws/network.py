from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws

from tenancy.components.aws.aws_resource import policy_json
from tenancy.planning.aws.cluster import NetworkPlan, endpoint_service
from tenancy.planning.common.names import SUBNET_TAG, SubnetUse
from tenancy.spec.fields.aws import Endpoints


@dataclass(frozen=True, slots=True)
class GivenNetwork:
    """Ids of an existing network, which may be outputs of other resources."""

    vpc: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    """Private subnets by zone."""


class ClusterNetwork(pulumi.ComponentResource):
    """Private subnets with egress through NAT; requests of nodes to AWS stay inside the VPC."""

    vpc_id: pulumi.Output[str]
    subnets: dict[str, pulumi.Output[str]]
    """Private subnet by zone."""
    prerequisites: list[pulumi.Resource]
    """Dependencies of nodes: the routes out and the endpoints exist before nodes start and until they are gone."""

    def __init__(
        self,
        name: str,
        plan: NetworkPlan,
        tags: dict[str, str],
        opts: pulumi.ResourceOptions | None = None,
        *,
        existing_network: GivenNetwork | None = None,
        protect: bool = False,
    ) -> None:
        """`given` has the ids of a VPC that exists, where they are outputs; else they are the plan's. With `protect`
        VPC and subnets are neither deleted nor replaced."""
        super().__init__("gpu-tenancy:index:ClusterNetwork", name, None, opts)
        self._name, self._tags = name, tags
        self._child_opts = pulumi.ResourceOptions(parent=self)
        self._protected_opts = pulumi.ResourceOptions(parent=self, protect=protect)
        self.prerequisites = []
        invoke_opts = pulumi.InvokeOptions(parent=self)
        if plan.vpc:
            ids = existing_network.subnets if existing_network else {}
            self.vpc_id = pulumi.Output.from_input(existing_network.vpc if existing_network else plan.vpc)
            self.subnets = {
                subnet.zone: pulumi.Output.from_input(ids.get(subnet.zone, subnet.subnet_id)) for subnet in plan.subnets
            }
            if existing_network:
                self.vpc_id.apply(lambda resolved_id: _must_resolve(resolved_id, invoke_opts))
            else:
                _must_resolve(plan.vpc, invoke_opts)
        else:
            tables = self._make_vpc(plan)
        if plan.endpoints is Endpoints.CHECKED:
            for service in ("s3", *plan.services):
                if existing_network:
                    _must_exist_once_known(self.vpc_id, plan, service, invoke_opts)
                else:
                    _must_exist(plan, service, invoke_opts)
        elif plan.vpc:
            self._endpoints(plan, *_routes_and_ranges(self.vpc_id, self.subnets, invoke_opts))
        else:
            self._endpoints(plan, tables, [plan.cidr])
        self.register_outputs({"vpc": self.vpc_id, "subnets": self.subnets})

    def _tags_named(self, suffix: str) -> dict[str, str]:
        return {**self._tags, "Name": f"{self._name}-{suffix}"}

    def _make_vpc(self, plan: NetworkPlan) -> list[pulumi.Input[str]]:
        """The VPC; returns the route tables of its private subnets."""
        name, child_opts = self._name, self._child_opts
        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=plan.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tags_named("vpc"),
            opts=self._protected_opts,
        )
        # A network interface without a security group of its own gets no traffic at all.
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default", vpc_id=vpc.id, ingress=[], egress=[], tags=self._tags_named("default"), opts=child_opts
        )
        gateway = aws.ec2.InternetGateway(
            f"{name}-gateway", vpc_id=vpc.id, tags=self._tags_named("gateway"), opts=child_opts
        )
        public_routes = aws.ec2.RouteTable(
            f"{name}-public",
            vpc_id=vpc.id,
            routes=[{"cidr_block": "0.0.0.0/0", "gateway_id": gateway.id}],
            tags=self._tags_named("public"),
            opts=child_opts,
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
                tags={**self._tags_named(f"public-{zone}"), SUBNET_TAG: SubnetUse.PUBLIC},
                opts=self._protected_opts,
            )
            public_route = aws.ec2.RouteTableAssociation(
                f"{name}-public-{zone}", route_table_id=public_routes.id, subnet_id=public.id, opts=child_opts
            )
            # EC2 refuses both in a VPC whose gateway is not attached yet, and does not detach it before they are gone.
            after_gateway = pulumi.ResourceOptions(parent=self, depends_on=[gateway])
            address = aws.ec2.Eip(f"{name}-{zone}", domain="vpc", tags=self._tags_named(zone), opts=after_gateway)
            # One for each zone: a zone that fails does not cut the egress of the others.
            nat = aws.ec2.NatGateway(
                f"{name}-{zone}",
                allocation_id=address.allocation_id,
                subnet_id=public.id,
                tags=self._tags_named(zone),
                opts=after_gateway,
            )
            private = aws.ec2.Subnet(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=planned.private,
                tags={**self._tags_named(f"private-{zone}"), SUBNET_TAG: SubnetUse.PRIVATE},
                opts=self._protected_opts,
            )
            table = aws.ec2.RouteTable(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                routes=[{"cidr_block": "0.0.0.0/0", "nat_gateway_id": nat.id}],
                tags=self._tags_named(f"private-{zone}"),
                opts=child_opts,
            )
            private_route = aws.ec2.RouteTableAssociation(
                f"{name}-private-{zone}", route_table_id=table.id, subnet_id=private.id, opts=child_opts
            )
            self.prerequisites += [public_route, private_route]
            self.subnets[zone] = private.id
            tables.append(table.id)
        return tables

    def _endpoints(
        self,
        plan: NetworkPlan,
        tables: pulumi.Input[list[str]] | list[pulumi.Input[str]],
        ranges: pulumi.Input[list[str]],
    ) -> None:
        """`tables` are those of the private subnets, `ranges` all addresses of the VPC."""
        name, child_opts = self._name, self._child_opts
        s3 = aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=self.vpc_id,
            service_name=endpoint_service(plan.region, "s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=tables,
            policy=policy_json(plan.s3_policy),
            tags=self._tags_named("s3"),
            opts=child_opts,
        )
        group = aws.ec2.SecurityGroup(
            f"{name}-endpoints",
            vpc_id=self.vpc_id,
            description="HTTPS from the VPC to AWS services",
            ingress=[
                {
                    "description": "addresses of the VPC",
                    "protocol": "tcp",
                    "from_port": 443,
                    "to_port": 443,
                    "cidr_blocks": ranges,
                }
            ],
            egress=[],
            tags=self._tags_named("endpoints"),
            opts=child_opts,
        )
        interfaces = [
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=self.vpc_id,
                service_name=endpoint_service(plan.region, service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.subnets.values()),
                security_group_ids=[group.id],
                tags=self._tags_named(service),
                opts=child_opts,
            )
            for service in plan.services
        ]
        self.prerequisites += [s3, *interfaces]


SEVERAL_ENDPOINTS = "multiple EC2 VPC Endpoints matched"
"""Part of the provider's message where more than one endpoint answers; `NO_ENDPOINT` where none does. Its data source
for one endpoint is the only one: terraform-provider-aws, SingularDataSourceFindError."""
NO_ENDPOINT = "no matching EC2 VPC Endpoint found"


def _must_resolve(vpc: str, opts: pulumi.InvokeOptions) -> None:
    """Ends the run if names of a VPC's endpoints do not resolve in it: neither endpoints' private DNS nor EKS' private
    endpoint would (EKS user guide, "VPC requirements and considerations")."""
    vpc_settings = aws.ec2.get_vpc(id=vpc, opts=opts)
    dns_settings = {
        "enableDnsSupport": vpc_settings.enable_dns_support,
        "enableDnsHostnames": vpc_settings.enable_dns_hostnames,
    }
    if missing_settings := [name for name, value in dns_settings.items() if not value]:
        raise pulumi.RunError(
            f"given {vpc} without {' and '.join(missing_settings)}; rule: nodes reach the API server and AWS by "
            "private names of the VPC; change: `aws ec2 modify-vpc-attribute --vpc-id "
            f"{vpc} --{'enable-dns-support' if 'enableDnsSupport' in missing_settings else 'enable-dns-hostnames'}`, "
            "one attribute a call"
        )


def _must_exist_once_known(
    vpc: pulumi.Output[str], plan: NetworkPlan, service: str, opts: pulumi.InvokeOptions
) -> None:
    """The same as `_must_exist`, once the VPC's id is known: of a VPC that is new, in the update."""
    vpc.apply(lambda vpc_id: _must_exist(replace(plan, vpc=vpc_id), service, opts))


def _must_exist(plan: NetworkPlan, service: str, opts: pulumi.InvokeOptions) -> None:
    """Ends the run if the VPC has no endpoint of the service: its nodes would reach AWS over the internet."""
    # A VPC may have both kinds for S3: one of them for what reaches it from outside of AWS.
    kind = "Gateway" if service == "s3" else "Interface"
    service_name = endpoint_service(plan.region, service)
    try:
        aws.ec2.get_vpc_endpoint(
            vpc_id=plan.vpc,
            service_name=service_name,
            state="available",
            filters=[{"name": "vpc-endpoint-type", "values": [kind]}],
            opts=opts,
        )
    except Exception as error:  # the SDK raises nothing narrower
        if SEVERAL_ENDPOINTS in str(error):
            return
        if NO_ENDPOINT not in str(error):
            raise
        raise pulumi.RunError(
            f"given {plan.vpc} without an available endpoint of type {kind} for {service_name}; rule: with `endpoints: "
            "checked` nodes reach AWS without the internet; change: make that endpoint, or write `endpoints: made` "
            "under aws.network"
        ) from None


def _routes_and_ranges(
    vpc_id: pulumi.Input[str], subnets: Mapping[str, pulumi.Input[str]], opts: pulumi.InvokeOptions
) -> tuple[pulumi.Output[list[str]], pulumi.Output[list[str]]]:
    """Route tables of the given subnets, and every range of their VPC: nodes may be in a secondary one."""
    vpc = aws.ec2.get_vpc_output(id=vpc_id, opts=opts)
    subnet_tables = [
        aws.ec2.get_route_tables_output(
            vpc_id=vpc_id,
            filters=[aws.ec2.GetRouteTablesFilterArgs(name="association.subnet-id", values=[subnet])],  # ty: ignore[invalid-argument-type]
            opts=opts,
        ).ids
        for subnet in subnets.values()
    ]
    # A subnet without an association uses the VPC's main table.
    tables = pulumi.Output.all(vpc.main_route_table_id, *subnet_tables).apply(
        lambda tables: sorted({table for ids in tables[1:] for table in ids or [tables[0]]})
    )
    ranges = vpc.cidr_block_associations.apply(
        lambda blocks: sorted({block.cidr_block for block in blocks if block.state == "associated"})
    )
    return tables, ranges
