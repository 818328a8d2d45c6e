from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pulumi

from tenancy.components.aws.access_entry import access_entry
from tenancy.components.aws.aws_resource import basename
from tenancy.components.aws.data import SharedAws
from tenancy.components.aws.identity import IamRole
from tenancy.components.aws.key import EncryptionKey
from tenancy.components.aws.pod_identity import pod_identity
from tenancy.components.aws.tenant_aws_resources import TenantAwsResources
from tenancy.planning.aws.tenant_models import TenantAwsPlan


class NamespaceResources(Protocol):
    """Resources of a namespace in the cluster that its AWS resources depend on."""

    namespace: pulumi.Resource
    isolation_resources: list[pulumi.Resource]


class TenantAws(pulumi.ComponentResource):
    """A tenant's half on AWS. The namespace of a role's pods exists before the role is bound, and outlives it:
    associations, entries and roles are deleted first, then isolation resources and namespaces."""

    roles: dict[str, pulumi.Output[str]]
    """ARNs of its roles and of the shared ones, by the ARN that the plan has."""

    def __init__(
        self,
        name: str,
        plan: TenantAwsPlan,
        namespaces: Mapping[str, NamespaceResources],
        data: SharedAws | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`data` is what tenants share, where this stack makes it; a stack of the tenant's own finds it there."""
        super().__init__("gpu-tenancy:index:TenantAws", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        for key in plan.keys:
            EncryptionKey(f"{name}-{basename(key.alias)}", key, child_opts)
        gate = data.gate if data else []
        prerequisites = [*gate, *(space.namespace for space in namespaces.values())]
        self.roles = roles = dict(data.roles) if data else {}
        roles |= {role.arn: IamRole(f"{name}-{role.name}", role, prerequisites, child_opts).arn for role in plan.roles}
        TenantAwsResources(f"{name}-own", plan, gate, child_opts)
        for association in plan.associations:
            association_opts = pulumi.ResourceOptions(
                parent=self, depends_on=namespaces[association.namespace].isolation_resources
            )
            role = roles.get(association.role, association.role)
            pod_identity(
                f"{name}-{association.namespace}-{association.service_account}", association, role, association_opts
            )
        isolation_resources = [resource for space in namespaces.values() for resource in space.isolation_resources]
        for entry in plan.access_entries:
            principal = roles.get(entry.principal, entry.principal)
            access_entry(f"{name}-{basename(entry.principal)}", entry, principal, isolation_resources, self)
        self.register_outputs({"roles": [role.name for role in plan.roles]})
