from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.cluster.guards import require_guards
from tenancy.components.aws.data import SharedAws
from tenancy.components.aws.tenant_aws import TenantAws
from tenancy.components.kubernetes.cluster_objects import PlannedGuards
from tenancy.components.kubernetes.guarded import Require, guards_judge, provider_of
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.tenant_namespace import PlannedNamespace
from tenancy.kube.objects import Object
from tenancy.planning.plan_model import TenantPlan


class PlannedTenant(pulumi.ComponentResource):
    """All objects of one tenant. It is made only where the guards of its version are enforced: without them its
    namespaces look complete and isolate nothing."""

    spaces: dict[str, PlannedNamespace]
    """By the namespace's name on the cluster."""
    roles: dict[str, pulumi.Output[str]]
    """ARNs of the roles that this makes, known once their policies are attached, by the ARN that the plan has."""

    def __init__(
        self,
        name: str,
        plan: TenantPlan,
        depends_on: Sequence[pulumi.Input[pulumi.Resource]] = (),
        data: SharedAws | None = None,
        opts: pulumi.ResourceOptions | None = None,
        *,
        platform: PlannedGuards | None = None,
        require: Require = require_guards,
    ) -> None:
        """`data` is what tenants share on AWS, and `platform` what makes the guards, where this program makes them.
        Without `platform` the provider's cluster is asked for them by `require`, and RunError ends the program if they
        are missing, older, or do not judge."""
        super().__init__("gpu-tenancy:index:GpuTenant", name, None, opts)
        gate = platform.gate if platform else guards_judge(name, provider_of(self, f"tenant {name}"), require)
        depends_on = [gate, *depends_on]
        prerequisites = queue_tree(self, name, (*plan.cluster_policies, *plan.queues), depends_on)
        # Work ends with its namespace, and a queue is deleted only when it has none. Namespaces depend on the queues,
        # and on the cluster network policies, so that no pod starts before these deny.
        namespace_depends_on = prerequisites or depends_on
        child_opts = pulumi.ResourceOptions(parent=self)
        # Under its own name a tenant's namespaces have theirs: the program's logical names.
        prefix = "" if name == plan.name else f"{name}-"
        self.spaces = {
            namespace_plan.name: PlannedNamespace(
                f"{prefix}{namespace_plan.name}", namespace_plan, namespace_depends_on, plan.adopt, child_opts
            )
            for namespace_plan in plan.namespaces
        }
        self.roles = TenantAws(f"{name}-aws", plan.aws, self.spaces, data, child_opts).roles if plan.aws else {}
        self.register_outputs({"namespaces": [namespace.name for namespace in plan.namespaces]})


def queue_tree(
    parent: pulumi.Resource, name: str, objects: Sequence[Object], depends_on: Sequence[pulumi.Input[pulumi.Resource]]
) -> list[pulumi.Resource]:
    """A tenant's queues below a component of that name, and what is made with them."""
    manifests: list[pulumi.Resource] = []
    tree: list[pulumi.Resource] = []
    for item in objects:
        options = pulumi.ResourceOptions(parent=parent, depends_on=[*depends_on, *tree])
        manifests.append(Manifest(child_name(name, item), item, options))
        if item["kind"] == "Cohort":
            # A queue that joins a Cohort before the Cohort has its parent would be cut off from all others.
            tree.append(manifests[-1])
    return manifests
