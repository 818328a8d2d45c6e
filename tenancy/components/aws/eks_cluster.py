from __future__ import annotations

import json
from collections.abc import Collection

import pulumi
import pulumi_aws as aws

from tenancy.components.aws.network import ClusterNetwork
from tenancy.components.aws.roles import Roles
from tenancy.planning.aws.cluster import LOG_TYPES, PLATFORM_ROLE, ClusterPlan
from tenancy.planning.common.names import control_plane_name


class EksCluster(pulumi.ComponentResource):
    """The control plane: private, logged, encrypted, and with no administrator but the platform's role."""

    cluster: aws.eks.Cluster
    key: pulumi.Output[str]
    """ARN of the key of secrets, volumes and logs."""
    access: aws.eks.AccessEntry

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        network: ClusterNetwork,
        roles: Roles,
        opts: pulumi.ResourceOptions | None = None,
        *,
        replacing: Collection[str] = (),
    ) -> None:
        """`replacing` is as for PlannedCluster."""
        super().__init__("gpu-tenancy:index:EksCluster", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        # Deleting the key loses every volume and secret. EKS' own protection keeps the control plane alone, after the
        # engine has deleted the nodes, add-ons and access of a cluster that it is about to replace.
        protected_opts = pulumi.ResourceOptions(parent=self, protect=plan.deletion_protection)
        self.key = pulumi.Output.from_input(plan.key)
        if not plan.key:
            key = aws.kms.Key(
                f"{name}-key",
                description=f"Secrets, volumes and logs of {plan.name}",
                enable_key_rotation=True,
                deletion_window_in_days=30,
                policy=json.dumps(plan.key_policy),
                tags=plan.tags,
                opts=protected_opts,
            )
            aws.kms.Alias(f"{name}-key", name=plan.key_alias, target_key_id=key.key_id, opts=child_opts)
            self.key = key.arn
        logs = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            # EKS writes to a group of this name, and would make one that keeps everything for ever.
            name=plan.log_group,
            retention_in_days=plan.log_days,
            kms_key_id=self.key,
            tags=plan.tags,
            opts=child_opts,
        )
        self.cluster = aws.eks.Cluster(
            control_plane_name(plan.name),
            name=plan.name,
            version=plan.kubernetes,
            role_arn=roles.arns["cluster"],
            vpc_config={
                "subnet_ids": list(network.subnets.values()),
                "endpoint_private_access": True,
                "endpoint_public_access": bool(plan.public_access),
                **({"public_access_cidrs": list(plan.public_access)} if plan.public_access else {}),
            },
            # Not even EKS' own default is written here: a cluster that has the other one would be replaced.
            kubernetes_network_config={"service_ipv4_cidr": plan.service_cidr} if plan.service_cidr else None,
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            # The add-ons are resources of their own, with settings that those have not.
            bootstrap_self_managed_addons=False,
            enabled_cluster_log_types=list(LOG_TYPES),
            encryption_config={"provider": {"key_arn": self.key}, "resources": ["secrets"]},
            deletion_protection=plan.deletion_protection,
            upgrade_policy={"support_type": "EXTENDED" if plan.extended_support else "STANDARD"},
            tags=plan.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[logs],
                protect=plan.deletion_protection,
                # EKS takes no other zones for a control plane than those of its creation: containers-roadmap#2258.
                ignore_changes=["vpcConfig.subnetIds"],
            ),
        )
        protects_access = plan.deletion_protection and PLATFORM_ROLE not in replacing
        self.access = aws.eks.AccessEntry(
            f"{name}-platform",
            cluster_name=self.cluster.name,
            principal_arn=plan.platform_role,
            kubernetes_groups=[plan.platform_group],
            tags=plan.tags,
            opts=pulumi.ResourceOptions(parent=self, protect=protects_access),
        )
        aws.eks.AccessPolicyAssociation(
            f"{name}-platform",
            cluster_name=self.cluster.name,
            principal_arn=plan.platform_role,
            policy_arn=plan.platform_policy,
            access_scope={"type": "cluster"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.access], protect=protects_access),
        )
        if plan.irsa:
            aws.iam.OpenIdConnectProvider(
                f"{name}-oidc",
                url=self.cluster.identities[0].oidcs[0].issuer,
                client_id_lists=["sts.amazonaws.com"],
                tags=plan.tags,
                opts=child_opts,
            )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})
