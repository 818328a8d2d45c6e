"""Parts of a platform and of a tenant, for programs that make the rest in their own way.

The environment and all tenants are given as to `GpuTenant`, and nothing is made unless they are valid together.
"""

from __future__ import annotations

from dataclasses import replace

import pulumi

from tenancy.catalog.days import today
from tenancy.cluster.guards import require_guards
from tenancy.components.aws.identity import IamRole
from tenancy.components.aws.pod_identity import pod_identity
from tenancy.components.aws.tenant_aws_resources import TenantAwsResources
from tenancy.components.choice import resolve_tenant
from tenancy.components.gpu_platform import GpuPlatform, enforced_on
from tenancy.components.kubernetes import cluster_objects as planned_platform
from tenancy.components.kubernetes import tenant_namespace as planned_namespace
from tenancy.components.kubernetes.guarded import Require, provider_of
from tenancy.components.tenant import queue_tree
from tenancy.planning import make_plan
from tenancy.planning.aws.tenant_models import TenantAwsPlan
from tenancy.spec.inputs import EnvironmentInput, TenantInput, TenantsInput, load_spec


class AdmissionGuards(planned_platform.PlannedGuards):
    """Guards, priority classes, roles and the other cluster-wide objects of Kubernetes itself; no queues, services,
    metrics and AWS. Inputs, options and errors are those of `GpuPlatform`."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput,
        tenants: TenantsInput | None = None,
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        day = today()
        platform_plan = make_plan(load_spec(environment, tenants, day), day).platform
        # Without what this does not make: the cluster need not serve its kinds.
        plan = replace(
            platform_plan, queueing=None, cluster_policies=(), metrics_prerequisites=(), metrics=(), services=None
        )
        enforced = enforced_on(lambda: provider_of(self, f"AdmissionGuards {name}"), plan.marker["data"]["digest"])
        super().__init__(name, plan, enforced, opts)


class TenantNamespace(planned_namespace.PlannedNamespace):
    """One namespace of a tenant with its quota, limits, network policies, LocalQueues, accounts and access; made after
    the guards. Inputs and errors are those of `GpuTenant`; `namespace` is its name in the tenant, such as `train`."""

    name: str
    """On the cluster, such as `fraud--train`."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput | None = None,
        tenant: TenantInput | None = None,
        *,
        namespace: str,
        tenants: TenantsInput | None = None,
        platform: GpuPlatform | None = None,
        opts: pulumi.ResourceOptions | None = None,
        require: Require = require_guards,
    ) -> None:
        resolved = resolve_tenant(name, environment, tenant, tenants, platform)
        plan = resolved.namespace(namespace)
        self.name = plan.name
        super().__init__(
            name,
            plan,
            resolved.gate,
            resolved.plan.adopt,
            opts,
            guards=lambda component: resolved.guards(component, require),
        )


class TenantQueues(pulumi.ComponentResource):
    """A tenant's Cohort and ClusterQueues, to which the LocalQueues of its namespaces lead; they need Kueue and the
    platform's queues. Inputs and errors are those of `GpuTenant`."""

    resources: list[pulumi.Resource]
    """Dependencies of the tenant's namespaces."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput | None = None,
        tenant: TenantInput | None = None,
        *,
        tenants: TenantsInput | None = None,
        platform: GpuPlatform | None = None,
        opts: pulumi.ResourceOptions | None = None,
        require: Require = require_guards,
    ) -> None:
        resolved = resolve_tenant(name, environment, tenant, tenants, platform)
        super().__init__("gpu-tenancy:index:TenantQueues", name, None, opts)
        depends_on = [resolved.guards(self, require), *resolved.gate]
        self.resources = queue_tree(self, name, resolved.plan.queues, depends_on)
        self.register_outputs({"queues": len(self.resources)})


class TenantRole(pulumi.ComponentResource):
    """The IAM role of the pods of one namespace, and its association with their service account. Pods get it at once:
    let `opts` depend on the namespace. Inputs and errors are those of `GpuTenant`; ValueError if the namespace has no
    grants on AWS."""

    arn: pulumi.Output[str]
    """Known once its policies are attached."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput | None = None,
        tenant: TenantInput | None = None,
        *,
        namespace: str,
        tenants: TenantsInput | None = None,
        platform: GpuPlatform | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        resolved = resolve_tenant(name, environment, tenant, tenants, platform)
        namespace_name = resolved.namespace(namespace).name
        aws = resolved.plan.aws or TenantAwsPlan()
        roles = [role for role in aws.roles if role.purpose == namespace]
        if not roles:
            raise ValueError(
                f"given TenantRole {name} for namespace {namespace}, which has no role of its own; rule: a role is "
                "made of grants on AWS; change: enable aws and give the namespace storage or uses"
            )
        super().__init__("gpu-tenancy:index:TenantRole", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        gate = platform.data.gate if platform and platform.data else []
        self.arn = IamRole(name, roles[0], gate, child_opts).arn
        for association in aws.associations:
            if association.namespace == namespace_name:
                pod_identity(f"{name}-{association.service_account}", association, self.arn, child_opts)
        self.register_outputs({"arn": self.arn})


class TenantStorage(TenantAwsResources):
    """A tenant's access points of the shared buckets, with their policies. Inputs and errors are `GpuTenant`'s."""

    buckets: dict[str, list[dict[str, str]]]
    """Grants by bucket: `prefix`, `access`, and the ARN of the `access_point` where it has one."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput | None = None,
        tenant: TenantInput | None = None,
        *,
        tenants: TenantsInput | None = None,
        platform: GpuPlatform | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        resolved = resolve_tenant(name, environment, tenant, tenants, platform)
        points = resolved.plan.aws.access_points if resolved.plan.aws else ()
        self.buckets = resolved.outputs().buckets
        gate = platform.data.gate if platform and platform.data else []
        super().__init__(name, TenantAwsPlan(access_points=points), gate, opts)
