"""A cluster of one's own, and on it a platform and two tenants: their VPC, issuer and kubeconfig are outputs."""

import json

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from access import kubeconfig

from tenancy import ClusterInputs, GpuPlatform, GpuTenant

ZONES = ("eu-central-1a", "eu-central-1b")

account = aws.Provider("account", region="eu-central-1", allowed_account_ids=["111122223333"])
on_aws = pulumi.ResourceOptions(provider=account)

vpc = aws.ec2.Vpc("vpc", cidr_block="10.64.0.0/16", opts=on_aws)
subnets = {
    zone: aws.ec2.Subnet(zone, vpc_id=vpc.id, availability_zone=zone, cidr_block=f"10.64.{n}.0/24", opts=on_aws)
    for n, zone in enumerate(ZONES)
}
trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "eks.amazonaws.com"}}
role = aws.iam.Role(
    "cluster", assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [trust]}), opts=on_aws
)
cluster = aws.eks.Cluster(
    "gpu",
    name="gpu",  # `cluster.name` of the environment: names of roles and ARNs follow from it
    version="1.36",
    role_arn=role.arn,
    vpc_config={"subnet_ids": [subnet.id for subnet in subnets.values()]},
    access_config={"authentication_mode": "API"},
    opts=on_aws,
)
issuer = cluster.identities[0].oidcs[0].issuer
aws.iam.OpenIdConnectProvider("issuer", url=issuer, client_id_lists=["sts.amazonaws.com"], opts=on_aws)

provider = kubernetes.Provider(
    "gpu",
    kubeconfig=pulumi.Output.all(cluster.name, cluster.endpoint, cluster.certificate_authority.data).apply(
        lambda made: kubeconfig(*made)
    ),
    enable_config_map_mutable=True,
)
both = pulumi.ResourceOptions(providers=[provider, account])

platform = GpuPlatform(
    "platform",
    "environment.yaml",
    inputs=ClusterInputs(
        cluster_name=cluster.name,
        oidc_issuer=issuer,
        vpc_id=vpc.id,
        subnet_ids={zone: subnet.id for zone, subnet in subnets.items()},
    ),
    opts=both,
)
for name in ("fraud", "vision"):
    tenant = GpuTenant(name, platform=platform, opts=both)
    pulumi.export(name, {"namespaces": tenant.namespaces, "role_arns": tenant.role_arns, "buckets": tenant.buckets})
