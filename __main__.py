"""The Pulumi program: read the stack's config, load, plan, look at the cluster, build."""

import pulumi

from tenancy.components.program import build
from tenancy.components.scope import Scope, default_scope, select
from tenancy.live.api import Api, Unreachable
from tenancy.live.preflight import Refused, check
from tenancy.plan import make_plan
from tenancy.spec import SpecError, load

config = pulumi.Config("gpu-tenancy")
environment, _, tenant = pulumi.get_stack().partition("--")

try:
    loaded = load(config.get("environment") or environment)
    scope = Scope(config.get("scope") or default_scope(loaded.environment.stacks, tenant))
    plan = make_plan(loaded.environment, loaded.tenants)
    platform, tenants = select(plan, scope, config.get("tenant") or tenant)
    check(Api(plan.context), plan, platform, tenants)
except (SpecError, Unreachable, Refused) as error:
    raise pulumi.RunError(str(error)) from None
except KeyError as error:
    raise pulumi.RunError(f"given tenant {error}; rule: a tenant of the environment; change: name one") from None

build(plan, scope, platform, tenants)
