"""Resources that a program registers, recorded without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pulumi
from aws_double_facts import add_on_version
from pulumi.runtime.mocks import MockMonitor, Mocks, set_mocks
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.stack import run_pulumi_func

from tenancy.components.program import build
from tenancy.planning import Plan
from tenancy.planning.scope import StackScope, select
from tests.conftest import forget_programs

ADD_ON_VERSION = "aws:eks/getAddonVersion:getAddonVersion"
CLUSTER = "aws:eks/cluster:Cluster"


class Echo(Mocks):
    """Gives back what it is given; a program that asks something outside its files is stopped, but for the versions of
    EKS' add-ons."""

    def call(self, args: Any) -> Any:
        if args.token == ADD_ON_VERSION:
            return {"version": add_on_version(args.args)}
        raise AssertionError(f"the program called {args.token}")

    def new_resource(self, args: Any) -> tuple[str, dict[str, Any]]:
        if args.typ == CLUSTER:
            # What refers to it is left out of a request when the output is none.
            network = {**args.inputs["vpcConfig"], "clusterSecurityGroupId": f"{args.name}-group"}
            return f"{args.name}-id", {**args.inputs, "vpcConfig": network}
        return f"{args.name}-id", args.inputs


@dataclass
class Registered:
    """Registrations that the engine would get."""

    requests: dict[str, Any] = field(default_factory=dict)
    """URN -> registration."""
    outputs: dict[str, Any] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """Numbers of resources when it was asked whether the guards are in force."""

    def of(self, kind: str) -> dict[str, Any]:
        return {urn: request for urn, request in self.requests.items() if request.type.rpartition(":")[2] == kind}

    def kubernetes(self) -> dict[str, Any]:
        return {urn: r for urn, r in self.requests.items() if r.type.startswith("kubernetes:")}

    def parent(self, urn: str) -> Any:
        return self.requests.get(self.requests[urn].parent)

    def path(self, urn: str) -> str:
        """The parts of a URN: types from the outermost component inwards, and the name."""
        types, at = [], urn
        while at in self.requests:
            types.append(self.requests[at].type)
            at = self.requests[at].parent
        return f"{'$'.join(reversed(types))}::{self.requests[urn].name}"


class Monitor(MockMonitor):
    def __init__(self, registered: Registered) -> None:
        super().__init__(Echo())
        self.registered = registered

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the engine's name)
        response = super().RegisterResource(request)
        if request.type == "pulumi:pulumi:Stack":
            return response
        if response.urn in self.registered.requests:
            self.registered.repeated.append(response.urn)
        self.registered.requests[response.urn] = request
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 (the engine's name)
        self.registered.outputs[request.urn] = request.outputs
        return super().RegisterResourceOutputs(request)


def register(
    plan: Plan,
    scope: StackScope = StackScope.ALL,
    tenant: str | None = None,
    preview: bool = False,
    replacing: Collection[str] = (),
) -> Registered:
    """Resources of the product's program. `replacing` is as for `build`."""
    registered = Registered()
    platform, tenants = select(plan, scope, tenant)

    def program() -> None:
        def ask(*_: object) -> None:
            registered.asked.append(len(registered.requests))

        build(plan, scope, platform, tenants, ask, ask, **({"replacing": replacing} if replacing else {}))

    run(program, registered, project="gpu-tenancy", stack=plan.environment, preview=preview)
    return registered


def run(
    program: Callable[[], object],
    registered: Registered,
    *,
    project: str = "other",
    stack: str = "dev",
    preview: bool = False,
) -> None:
    """Run a program until everything has drained, on an event loop of its own."""

    async def entry() -> None:
        program()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        set_mocks(Echo(), project=project, stack=stack, preview=preview, monitor=Monitor(registered))
        # The engine would show the stack traces; to make them is a fifth of a registration's time.
        with mock.patch.object(pulumi.runtime.resource, "_get_stack_trace", source_pb2.StackTrace):
            loop.run_until_complete(run_pulumi_func(entry))
    finally:
        loop.close()
        asyncio.set_event_loop(None)
        forget_programs()
