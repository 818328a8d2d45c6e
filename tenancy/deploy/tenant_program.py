"""The program of a tenant's own stack, run in the process that drives the engine: files are read and planned once for a
fleet, and Python and the providers' SDKs are loaded once."""

from __future__ import annotations

import pulumi

from tenancy.cluster.api import Api
from tenancy.cluster.guards import VERSION, PreconditionFailed, marker
from tenancy.components.program import build
from tenancy.lifecycle.adoption_record import record
from tenancy.planning.outputs import stack_outputs
from tenancy.planning.plan_model import Plan
from tenancy.planning.scope import StackScope
from tenancy.spec.loader import Loaded


def register(loaded: Loaded, plan: Plan, tenant: str, api: Api) -> None:
    """Register the tenant's resources and outputs, as `tenancy.program.run` does in a stack of its own.

    That guards judge was asked before the first tenant of the run; here only that they are still stored.
    """

    def require(*_: str | None) -> None:
        version = str(marker(api).get("version", ""))
        if not version.isdigit() or int(version) < VERSION:
            raise PreconditionFailed(
                "given guards that were removed while stacks ran; rule: a tenant needs enforced guards; change: "
                f"`tenancy up {plan.environment}`"
            )

    part = plan.tenant(tenant)
    if not pulumi.runtime.is_dry_run():
        record(api, (part,))
    build(plan, StackScope.TENANT, None, (part,), lambda: None, require=require)
    spec = next(spec_of_tenant for spec_of_tenant in loaded.tenants if spec_of_tenant.tenant == tenant)
    for name, value in stack_outputs(loaded.environment, (spec,), (part,)).items():
        pulumi.export(name, value)
