"""The program that the engine runs for the judge: the stack of the cluster whole, and of the platform and its tenants
what they own on AWS. Their namespaces are components without an API server: pods' identities still depend on them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pulumi
from pulumi.runtime import register_resource_transform

from judged.faults import merge
from tenancy.components.aws.data import SharedAws
from tenancy.components.aws.tenant_aws import TenantAws
from tenancy.components.kubernetes.tenant_namespace import PlannedNamespace
from tenancy.components.program import aws_provider, build
from tenancy.components.services import service_add_ons
from tenancy.planning import Plan, make_plan
from tenancy.planning.plan_model import TenantPlan
from tenancy.planning.scope import StackScope, names_of, scope_of
from tenancy.spec.loader import load

FAULTS = "JUDGED_AWS_FAULTS"
"""Variable of the environment: the file of seeded faults, a list of `kind`, `resource` and `change`."""
EACH_RUN = "{run}"
"""Stands in a seeded fault for a text that differs in each run of the program."""


class Namespace(pulumi.ComponentResource):
    """A namespace as far as AWS' half of a tenant asks for it: something to depend on."""

    def __init__(self, name: str) -> None:
        super().__init__("gpu-tenancy:index:JudgedNamespace", name)
        self.namespace = self
        self.isolation_resources = [self]


def run() -> None:
    """Register the stack's resources."""
    stack = pulumi.get_stack()
    loaded = load(names_of(stack)[0])
    plan = make_plan(loaded, loaded.day)
    if FAULTS in os.environ:
        _seed(json.loads(Path(os.environ[FAULTS]).read_text("utf-8")))
    if scope_of(None, loaded.environment.stacks, stack) is StackScope.CLUSTER:
        build(plan, StackScope.CLUSTER, None, (), _nothing, _nothing)
    else:
        _build_aws_half(plan)


def _build_aws_half(plan: Plan) -> None:
    if plan.account is None:
        return
    options = pulumi.ResourceOptions(providers=[aws_provider(plan.account)])
    data = SharedAws("platform-data", plan.platform.data, (), options) if plan.platform.data else None
    if plan.platform.services:
        # A question to AWS has no provider but its parent's.
        parent = pulumi.ComponentResource("gpu-tenancy:index:Services", "platform-services", None, options)
        service_add_ons("platform-services", plan.platform.services, pulumi.ResourceOptions(parent=parent))
    for tenant in plan.tenants:
        if tenant.aws:
            TenantAws(f"{tenant.name}-aws", tenant.aws, _namespaces(tenant), data, options)


def _namespaces(tenant: TenantPlan) -> Mapping[str, PlannedNamespace]:
    namespaces = {namespace.name: Namespace(f"{tenant.name}-{namespace.name}") for namespace in tenant.namespaces}
    return cast(Mapping[str, PlannedNamespace], namespaces)


def _seed(faults: list[dict[str, Any]]) -> None:
    """Merge each fault's change into the inputs of its resource."""
    run = uuid.uuid4().hex
    changes = {
        (fault["kind"], fault["resource"]): json.loads(json.dumps(fault["change"]).replace(EACH_RUN, run))
        for fault in faults
    }

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        change = changes.get((args.type_, args.name))
        if change is None:
            return None
        return pulumi.ResourceTransformResult(merge(dict(args.props), change), args.opts)

    register_resource_transform(transform)


def _nothing(*_: object) -> None:
    """Stands for the questions to a cluster that an update asks."""
