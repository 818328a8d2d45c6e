"""A rendered environment for tools that apply it from a repository: Argo CD, Flux, Pulumi's operator or Deployments.

All of them keep one order: cluster-wide objects before tenants, and a tenant's isolation resources before its access
bindings. None of them deletes an isolation resource by itself: pruning only narrows what a tenant has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenancy.deploy.gitops.argo import for_argo
from tenancy.deploy.gitops.flux import for_flux
from tenancy.deploy.gitops.pulumi import for_deployments, for_operator
from tenancy.deploy.gitops.source import GitOpsRefused, GitOpsSource, GitOpsTool
from tenancy.planning.plan_model import Plan
from tenancy.spec.fields.environment import Layout

__all__ = ["GitOpsRefused", "GitOpsSource", "GitOpsTool", "rendered"]


def rendered(plan: Plan, layout: Layout, tool: GitOpsTool, source: GitOpsSource) -> Mapping[str, str]:
    """Relative path -> text, of everything that `tenancy render` writes and of what the tool reads beside it."""
    return _TOOLS[tool](plan, layout, source)


_TOOLS: Mapping[GitOpsTool, Callable[[Plan, Layout, GitOpsSource], Mapping[str, str]]] = {
    GitOpsTool.ARGO: for_argo,
    GitOpsTool.FLUX: for_flux,
    GitOpsTool.OPERATOR: for_operator,
    GitOpsTool.DEPLOYMENTS: for_deployments,
}
