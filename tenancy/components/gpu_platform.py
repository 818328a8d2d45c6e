from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pulumi

from tenancy.catalog.days import today
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.guards import PreconditionFailed, wait_for_guards
from tenancy.components.collector import collect_seldom
from tenancy.components.customize import Change, Customization
from tenancy.components.inputs import ClusterInputs, with_inputs
from tenancy.components.kubernetes.guarded import provider_of, provider_setting
from tenancy.components.platform import PlannedPlatform
from tenancy.planning import make_plan
from tenancy.planning.plan_model import Plan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import EnvironmentInput, TenantsInput, load_spec


class GpuPlatform(PlannedPlatform):
    """Everything that the tenants of one cluster share, on a cluster that exists or that the same program makes.

    That is guards, priority classes, roles, queues, network policies, and with `aws.enabled` the services and the
    shared data on AWS.

    It takes all tenants, because rules and quotas depend on all of them together; `GpuTenant(..., platform=...)` then
    makes each.
    """

    environment: Environment
    tenants: tuple[Tenant, ...]
    """Sorted by name."""
    plan: Plan
    inputs: ClusterInputs | None

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput,
        tenants: TenantsInput | None = None,
        *,
        inputs: ClusterInputs | None = None,
        customize: Mapping[str, Change] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Make the platform.

        Args:
            name: Logical name, unique in the stack; names of the parts begin with it.
            environment: A model, a mapping in Python's names, or the path of `environment.yaml` or of its folder.
            tenants: All tenants: models, mappings, paths of files, or the path of a folder of files. Default: the files
                in `tenants/` beside the environment's file; none if it is not given as a path.
            inputs: Outputs of other resources that take the places of values in the environment. Default: none.
            customize: Changes of single resources, see docs/library.md. Default: none.
            opts: `providers` has a Kubernetes provider, with `enable_config_map_mutable=True`, and with `aws.enabled`
                an AWS provider.

        Raises:
            SpecError: with every problem of the environment and its tenants.
            pulumi.RunError: without a Kubernetes provider; in an update if the guards do not judge in time.
            ValueError: for an unknown target of `customize` or a stand-in that is missing.
        """
        day = today()
        spec = load_spec(environment, tenants, day)
        self.environment, self.tenants, self.plan = spec.environment, spec.tenants, make_plan(spec, day)
        self.inputs = inputs
        changes = Customization(customize or {}, f"GpuPlatform {name}")
        transformations = [*changes.transformations(), *with_inputs(inputs, self.environment)]
        enforced = enforced_on(
            lambda: provider_of(self, f"GpuPlatform {name}"), self.plan.platform.marker["data"]["digest"]
        )
        collect_seldom()
        transform_opts = pulumi.ResourceOptions(transformations=transformations)
        super().__init__(name, self.plan.platform, enforced, pulumi.ResourceOptions.merge(opts, transform_opts))
        changes.check_used()

    def tenant(self, name: str) -> Tenant:
        """The tenant of that name; ValueError if the platform has none."""
        for tenant in self.tenants:
            if tenant.tenant == name:
                return tenant
        known_names = ", ".join(tenant.tenant for tenant in self.tenants) or "none"
        raise ValueError(
            f"given tenant {name!r}, and a platform with {known_names}; rule: a platform knows all of its tenants, "
            "because rules and quotas depend on all of them; change: add it to the platform's tenants"
        )


def enforced_on(provider: Callable[[], pulumi.ProviderResource], digest: str) -> Callable[[], None]:
    """A function that returns when the provider's cluster enforces guards of that digest; it is called in a thread."""
    loop = asyncio.get_event_loop()

    def wait() -> None:
        context, kubeconfig = (
            asyncio.run_coroutine_threadsafe(provider_setting(provider(), setting), loop).result()
            for setting in ("context", "kubeconfig")
        )
        try:
            wait_for_guards(Api(context, kubeconfig), digest)
        except (PreconditionFailed, ApiUnreachable) as error:
            raise pulumi.RunError(str(error)) from None

    return wait
