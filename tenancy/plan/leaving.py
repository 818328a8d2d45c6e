"""What a tenant has on the cluster, where that is less than its file says: one that leaves, by its stage, and one whose
people work in virtual clusters. The one place where this is decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tenancy.plan.documents import Document
from tenancy.plan.grants import PUSH
from tenancy.plan.tenant_aws import TenantAwsPlan
from tenancy.plan.workloads import CI
from tenancy.spec.queues import Gate
from tenancy.spec.tenant import Leaving, Role, Tenant


def standing(tenants: Iterable[Tenant]) -> tuple[Tenant, ...]:
    """The tenants that have something, each with what it has at its stage."""
    return tuple(_at_stage(tenant) for tenant in tenants if tenant.leaving is not Leaving.REMOVE)


def _at_stage(tenant: Tenant) -> Tenant:
    """Everybody reads, and of one that leaves nothing new starts.

    Behind a virtual cluster people work with an API server of their own. Whoever could make a pod beside it, or enter
    its control plane, would be past what it keeps apart.

    What runs may end: it is the tenant's last work, and whoever stays after all has lost none of it. `queue: drain`
    beside it evicts that too. Walls, guards and the grants of what still runs stay. GPU grants do too: without a role
    that makes work they are worth nothing, and a namespace without any opens its GPUs to all.
    """
    if tenant.leaving is None and not tenant.in_virtual_clusters:
        return tenant
    stopped = Gate.DRAIN if tenant.queue is Gate.DRAIN else Gate.HOLD
    return tenant.model_copy(
        update={
            "people": tuple(person.model_copy(update={"role": Role.VIEWER}) for person in tenant.people),
            "ci": tenant.ci and tenant.ci.model_copy(update={"role": Role.VIEWER.value}),
            "queue": stopped if tenant.leaving else tenant.queue,
        }
    )


def only_reading(tenant: Tenant, aws: TenantAwsPlan | None) -> TenantAwsPlan | None:
    """Its half on AWS, where the pipeline of a tenant that leaves pulls images and pushes none."""
    if aws is None or tenant.leaving is None:
        return aws
    roles = tuple(
        replace(role, policies={name: _without(document, PUSH) for name, document in role.policies.items()})
        if role.purpose == CI
        else role
        for role in aws.roles
    )
    return replace(aws, roles=roles)


def _without(document: Document, actions: Iterable[str]) -> Document:
    dropped = frozenset(actions)
    statements: list[dict[str, Any]] = [
        {**statement, "Action": [action for action in statement["Action"] if action not in dropped]}
        for statement in document["Statement"]
    ]
    return {**document, "Statement": statements}
