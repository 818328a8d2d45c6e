from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.data import Data
from tenancy.components.aws.tenant_aws import TenantAws
from tenancy.components.kubernetes.guarded import Require, guarded, provider_of
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.platform import AdmissionGuards
from tenancy.components.kubernetes.tenant_namespace import TenantNamespace
from tenancy.live.guards import require_guards
from tenancy.planning.model import TenantPlan


class GpuTenant(pulumi.ComponentResource):
    """All objects of one tenant. It is made only where the guards of its version are enforced: without them its
    namespaces look complete and isolate nothing."""

    def __init__(
        self,
        name: str,
        plan: TenantPlan,
        after: Sequence[pulumi.Input[pulumi.Resource]] = (),
        data: Data | None = None,
        opts: pulumi.ResourceOptions | None = None,
        *,
        platform: AdmissionGuards | None = None,
        require: Require = require_guards,
    ) -> None:
        """`data` is what tenants share on AWS, and `platform` what makes the guards, where this program makes them.
        Without `platform` the provider's cluster is asked for them by `require`, and RunError ends the program if they
        are missing, older, or do not judge."""
        super().__init__("gpu-tenancy:index:GpuTenant", name, None, opts)
        gate = platform.gate if platform else guarded(name, provider_of(self, f"tenant {name}"), require)
        after = [gate, *after]
        prerequisites: list[pulumi.Resource] = []
        tree: list[pulumi.Resource] = []
        for item in (*plan.cluster_policies, *plan.queues):
            made = Manifest(
                child_name(name, item), item, pulumi.ResourceOptions(parent=self, depends_on=[*after, *tree])
            )
            prerequisites.append(made)
            if item["kind"] == "Cohort":
                # A queue that joins a Cohort before the Cohort has its parent would be cut off from all others.
                tree.append(made)
        # Work ends with its namespace, and a queue is deleted only when it has none. Namespaces depend on the queues,
        # and on the cluster network policies, so that no pod starts before these deny.
        behind = prerequisites or after
        namespaces = {
            each.name: TenantNamespace(each.name, each, behind, plan.adopt, pulumi.ResourceOptions(parent=self))
            for each in plan.namespaces
        }
        if plan.aws:
            TenantAws(f"{name}-aws", plan.aws, namespaces, data, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"namespaces": [namespace.name for namespace in plan.namespaces]})
