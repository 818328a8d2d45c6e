"""API priority and fairness: how many requests of tenants the API server works on at once, beside the platform's.

Without it people of tenants share a level with the platform's, and service accounts of tenants share one with Kueue and
the operators. Nothing of it depends on tenants: all but the system and the platform have the tenants' level, and a flow
is a user, which the API server tells apart itself. So a new tenant, or a new person of one, is never outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.spec.fields.environment import Environment

API = "flowcontrol.apiserver.k8s.io/v1"
PLATFORM = "tenancy-platform"
TENANTS = "tenancy-tenants"
"""Name of a level and of the schema that leads to it."""
PRECEDENCE = {PLATFORM: 1100, TENANTS: 8500}
"""The lower number is asked first. Kubernetes' own for nodes, controllers, scheduler and kube-system end at 900, those
for service accounts and people are 9000 and 9900 (apiserver v1.36.3 `pkg/apis/flowcontrol/bootstrap`). What other
products bring for their own service accounts is asked before tenants'."""
SHARES = {PLATFORM: 30, TENANTS: 30}
"""Kubernetes' own levels together have 245, of which service accounts and people have 120. Of the 600 requests that an
API server works on at once by default, each of the two has 600 * 30 / 305, rounded up 60. A request that guards judge
takes processor time from begin to end, so seats beyond what the processors serve make all requests slow, and no
request waits: tenants have a tenth of the seats, and a flood waits in its own queues before the processors are short.
"""
QUEUES, HAND_SIZE, QUEUE_LENGTH = 128, 6, 50
"""Queues of a level, those that one flow may use, and requests that wait in each: as Kubernetes' own levels for
workloads. One flow fills 6 of 128 queues, and another finds a queue that is free."""
_SERVICE_ACCOUNTS = "system:serviceaccounts:{}"
"""Group of all service accounts of a namespace."""
_AUTHENTICATED = "system:authenticated"
"""Group of all people and service accounts. What has not signed in has Kubernetes' own level for the rest."""
_ALL_RESOURCES = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}


def flow_objects(environment: Environment) -> tuple[Object, ...]:
    """Levels before the schemas that lead to them."""
    labels = platform_labels(environment)
    # What the platform has is there at once, whatever tenants do; what tenants leave idle others may use, and they
    # never get more than their own.
    lending_by_level = {PLATFORM: {"lendablePercent": 0}, TENANTS: {"lendablePercent": 50, "borrowingLimitPercent": 0}}
    groups_by_level = {PLATFORM: _platform_groups(environment), TENANTS: [_AUTHENTICATED]}
    levels = [
        manifest(API, "PriorityLevelConfiguration", name, labels, {"spec": _level(name, lending)})
        for name, lending in lending_by_level.items()
    ]
    schemas = [
        manifest(API, "FlowSchema", name, labels, {"spec": _schema(name, groups)})
        for name, groups in groups_by_level.items()
    ]
    return (*levels, *schemas)


def _level(name: str, lending: dict[str, int]) -> dict[str, Any]:
    queuing = {"queues": QUEUES, "handSize": HAND_SIZE, "queueLengthLimit": QUEUE_LENGTH}
    settings = {
        "nominalConcurrencyShares": SHARES[name],
        "limitResponse": {"type": "Queue", "queuing": queuing},
        **lending,
    }
    return {"type": "Limited", "limited": settings}


def _schema(name: str, groups: Sequence[str]) -> dict[str, Any]:
    subjects = [{"kind": "Group", "group": {"name": group}} for group in groups]
    rule = {
        "subjects": subjects,
        "resourceRules": [_ALL_RESOURCES],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return {
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": PRECEDENCE[name],
        # Not by namespace: a request counts before it is authorized, so a tenant could fill the flow of another's
        # namespace with requests that are refused.
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }


def _platform_groups(environment: Environment) -> list[str]:
    """The platform's people, and what runs in its namespaces; kube-system has a schema of Kubernetes' own."""
    namespaces = [name for name in environment.system_namespaces if not name.startswith("kube-")]
    return [environment.platform.group, *map(_SERVICE_ACCOUNTS.format, namespaces)]
