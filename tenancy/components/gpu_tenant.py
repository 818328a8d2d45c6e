from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pulumi

from tenancy.cluster.guards import require_guards
from tenancy.components import tenant as planned
from tenancy.components.choice import resolve_tenant
from tenancy.components.customize import Change, Customization
from tenancy.components.gpu_platform import GpuPlatform
from tenancy.components.inputs import ClusterInputs, with_inputs
from tenancy.components.kubernetes.guarded import Require
from tenancy.spec.inputs import EnvironmentInput, TenantInput, TenantsInput

_T = TypeVar("_T")


class GpuTenant(planned.PlannedTenant):
    """One tenant, all of it: namespaces with quotas, network policies, queues and access, and its half on AWS.

    With `platform`, the component that makes the guards in the same program, the tenant is made after them. Without,
    the provider's cluster is asked for its guards: in a preview if the cluster answers, else in the update.
    """

    namespaces: pulumi.Output[dict[str, str]]
    """Name on the cluster by name in the tenant, such as `{"train": "fraud--train"}`. Known in the preview; what takes
    it is made after the namespaces, their isolation and access."""
    service_accounts: pulumi.Output[dict[str, list[str]]]
    """Service accounts by namespace; with AWS grants, the first one has them."""
    role_arns: pulumi.Output[dict[str, str]]
    """IAM roles of pods by namespace, and under `ci` that of the pipeline; known once their policies are attached."""
    queues: pulumi.Output[dict[str, list[str]]]
    """LocalQueues of Kueue by namespace."""
    buckets: pulumi.Output[dict[str, list[dict[str, str]]]]
    """Grants by bucket: `prefix`, `access`, and the ARN of the `access_point` where it has one."""
    sample_job: pulumi.Output[dict[str, Any] | None]
    """A Job on one GPU that the cluster admits from a developer of the tenant, as an object; None if the tenant
    leaves."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput | None = None,
        tenant: TenantInput | None = None,
        *,
        tenants: TenantsInput | None = None,
        platform: GpuPlatform | None = None,
        inputs: ClusterInputs | None = None,
        customize: Mapping[str, Change] | None = None,
        opts: pulumi.ResourceOptions | None = None,
        require: Require = require_guards,
    ) -> None:
        """Make the tenant.

        Args:
            name: Logical name, unique in the stack; without `tenant`, the tenant's name too.
            environment: A model, a mapping in Python's names or a path. Default: the platform's; one of both is needed.
            tenant: A model, a mapping or a file's path. Default: the one called `name` of all tenants.
            tenants: All tenants of the environment, with this one or without. Rules across tenants, such as guarantees
                that exceed the supply, are checked over these alone. Default: the platform's; the files in `tenants/`
                beside the environment's file; or this one alone.
            platform: The platform that this program makes. Default: it is on the cluster already.
            inputs: Outputs that take the places of values in the environment. Default: the platform's.
            customize: Changes of single resources, see docs/library.md. Default: none.
            opts: `providers` has a Kubernetes provider, and with `aws.enabled` an AWS provider.
            require: Asks a cluster for its guards, given a context and a kubeconfig.

        Raises:
            SpecError: with every problem of the environment and its tenants.
            pulumi.RunError: without a Kubernetes provider, or if the guards are missing, older, or do not judge.
            ValueError: for a tenant that the platform does not have, or an unknown target of `customize`.
        """
        resolved = resolve_tenant(name, environment, tenant, tenants, platform)
        inputs = inputs or (platform.inputs if platform else None)
        changes = Customization(customize or {}, f"GpuTenant {name}", resolved.tenant)
        transformations = [*changes.transformations(), *with_inputs(inputs, resolved.environment)]
        super().__init__(
            name,
            resolved.plan,
            resolved.gate,
            platform.data if platform else None,
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(transformations=transformations)),
            platform=platform.guards if platform else None,
            require=require,
        )
        changes.check_used()
        outputs = resolved.outputs()
        isolation = [r for space in self.spaces.values() for r in (space.namespace, *space.isolation_resources)]
        all_resources = [*isolation, *(resource for space in self.spaces.values() for resource in space.access)]
        self.namespaces = known_after(outputs.namespaces, all_resources)
        self.service_accounts = known_after(outputs.service_accounts, all_resources)
        self.queues = known_after(outputs.queues, isolation)
        self.sample_job = known_after(outputs.sample_job, all_resources)
        self.role_arns = pulumi.Output.all(
            **{part: self.roles.get(arn, arn) for part, arn in outputs.role_arns.items()}
        )
        self.buckets = pulumi.Output.all(self.role_arns).apply(lambda _: outputs.buckets)


def known_after(value: _T, resources: Iterable[pulumi.Resource]) -> pulumi.Output[_T]:
    """A value that is known, for resources that have to be made after these."""

    async def resolve(result: Any) -> Any:
        return result

    return pulumi.Output(set(resources), resolve(value), resolve(True))
