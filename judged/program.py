"""The AWS half of an environment as its program registers it, without an engine: every resource with its inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.stack import run_pulumi_func

from tenancy.components.program import build
from tenancy.planning import Plan
from tenancy.planning.scope import StackScope, select

TYPES = "aws:"
_LOOKED_UP = {
    "aws:ssm/getParameter:getParameter": {"value": "of the pinned node image"},
    "aws:eks/getAddonVersion:getAddonVersion": {"version": "v9.9.9-eksbuild.1"},
}
"""Answers of AWS that only versions depend on."""


@dataclass(frozen=True, slots=True)
class Resource:
    """`kind` is a type token such as `aws:kms/key:Key`, `inputs` are under the SDK's names for the engine."""

    kind: str
    name: str
    inputs: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The name by which other resources' inputs refer to it. Resources of two types may have one name."""
        return f"{self.kind.rpartition(':')[2]}/{self.name}"


class _Recorder(Mocks):
    def __init__(self) -> None:
        self.resources: list[Resource] = []

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        if args.token in _LOOKED_UP:
            return _LOOKED_UP[args.token], []
        raise RuntimeError(f"the program asked {args.token}, which has no answer here")

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        resource = Resource(args.typ, args.name, args.inputs)
        if args.typ.startswith(TYPES):
            self.resources.append(resource)
        # Other resources take these from outputs.
        return resource.id, {"arn": resource.id, "allocationId": resource.id, **args.inputs}


def aws_resources(plan: Plan) -> Sequence[Resource]:
    """Every resource on AWS that the programs of an environment register: network, cluster and nodes, and what belongs
    to the platform and to tenants. By type and name."""
    recorder = _Recorder()
    _run(plan, StackScope.ALL, recorder)
    if plan.cluster:
        _run(plan, StackScope.CLUSTER, recorder)
    return sorted(recorder.resources, key=lambda resource: (resource.kind, resource.name))


def _run(plan: Plan, scope: StackScope, recorder: _Recorder) -> None:
    platform, tenants = select(plan, scope, None)

    async def program() -> None:
        build(plan, scope, platform, tenants, _nothing, _nothing)

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        set_mocks(recorder, project="gpu-tenancy", stack=plan.environment, preview=False)
        loop.run_until_complete(run_pulumi_func(program))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def _nothing(*_: object) -> None:
    """Stands for the questions to a cluster that an update asks."""
