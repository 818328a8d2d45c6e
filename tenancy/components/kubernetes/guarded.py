"""Dependencies that are answers of the cluster: of guards, that it is ready for them; of a tenant whose program makes
no guards, that they judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pulumi

from tenancy.cluster.api import ApiUnreachable
from tenancy.cluster.guards import PreconditionFailed, require_guards
from tenancy.planning.plan_model import PlatformPlan

Require = Callable[[str | None, str | None], None]
"""Given context and kubeconfig of a cluster, it returns if a tenant may be made there, else Refused or Unreachable."""
Preflight = Callable[[PlatformPlan, str | None, str | None, bool], Sequence[str]]
"""Given the plan, context and kubeconfig of a cluster, and whether this is a preview, it returns warnings if the
platform may be made there, else PreconditionFailed or ApiUnreachable."""


def provider_of(component: pulumi.ComponentResource, name: str) -> pulumi.ProviderResource:
    """The Kubernetes provider that a component was given; RunError, which names the component, without one."""
    provider = component.get_provider("kubernetes:core/v1:Namespace")
    if provider is None:
        raise pulumi.RunError(
            f"given {name} without a provider of its cluster; rule: whether guards judge is asked of the "
            "cluster that it is made on; change: hand one down, "
            "opts=ResourceOptions(providers=[kubernetes.Provider(...)])"
        )
    return provider


def cluster_ready(
    name: str,
    plan: PlatformPlan,
    provider: pulumi.ProviderResource,
    preflight: Preflight,
    component: pulumi.Resource | None = None,
) -> pulumi.Output[pulumi.Resource]:
    """The provider, once its cluster is ready for the platform; RunError if it is not, see `check_platform`. It is
    asked after what `component` depends on, such as an operator of the same program."""

    def ask(context: str | None, kubeconfig: str | None) -> None:
        for text in preflight(plan, context, kubeconfig, pulumi.runtime.is_dry_run()):
            pulumi.log.warn(f"{name}: {text}")

    return _provider_after(name, "whether the cluster is ready for guards", provider, ask, component)


def guards_judge(
    name: str, provider: pulumi.ProviderResource, require: Require = require_guards
) -> pulumi.Output[pulumi.Resource]:
    """The provider, once the guards of its cluster judge; RunError if there are none, or older ones."""
    return _provider_after(f"tenant {name}", "whether the guards judge", provider, require)


def _provider_after(
    component_name: str,
    question: str,
    provider: pulumi.ProviderResource,
    ask: Require,
    component: pulumi.Resource | None = None,
) -> pulumi.Output[pulumi.Resource]:
    """The provider, once its cluster has answered.

    A preview that does not know the cluster yet, or does not reach it, says so and leaves the question to the update.
    """

    async def resolve() -> pulumi.Resource:
        if component is not None:
            await component.urn.future()
        context, kubeconfig = (
            await provider_setting(provider, "context"),
            await provider_setting(provider, "kubeconfig"),
        )
        # To a preview what is not given looks like what is not known yet.
        if pulumi.runtime.is_dry_run() and not (context or kubeconfig):
            _warn_deferred(component_name, question, "its provider names no context that is known yet")
            return provider
        try:
            await asyncio.to_thread(ask, context, kubeconfig)
        except PreconditionFailed as error:
            raise pulumi.RunError(f"{component_name}: {error}") from None
        except ApiUnreachable as error:
            if not pulumi.runtime.is_dry_run():
                raise pulumi.RunError(f"{component_name}: {error}") from None
            _warn_deferred(component_name, question, str(error))
        return provider

    return pulumi.Output.from_input(resolve())


async def provider_setting(provider: pulumi.ProviderResource, setting: str) -> Any:
    """An input of a provider, None if it is not known: the SDK keeps each as an output of its name, and types none."""
    return await pulumi.Output.from_input(provider.__dict__.get(setting)).future()


def _warn_deferred(component_name: str, question: str, reason: str) -> None:
    pulumi.log.warn(f"{component_name}: {question} is asked in the update, not in this preview: {reason}")
