"""The state of a stack, as the engine would record what a program registers, with ids and outputs that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from tests import registered as programs
from tests.aws_answers import Answers
from tests.registered import Registered
from tests.registered_aws import inputs

ISSUER = "https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
SERVICE_CIDR = "10.100.0.0/16"
"""Range of services that EKS has chosen, where the program gives none."""


def answer(patch: pytest.MonkeyPatch) -> None:
    """Let mocks give what AWS gives of a cluster and its network."""
    answers, echo = Answers(), programs.Echo.new_resource

    def resource(mocks: Any, arguments: Any) -> tuple[str, dict[str, Any]]:
        resource_id, outputs = echo(mocks, arguments)
        computed_outputs = {
            "allocationId": resource_id,
            "arn": f"arn:aws:x:{arguments.name}",
            "identities": [{"oidcs": [{"issuer": ISSUER}]}],
        }
        return resource_id, {**outputs, **computed_outputs}

    patch.setattr(programs.Echo, "call", lambda mocks, call: answers(mocks, call))
    patch.setattr(programs.Echo, "new_resource", resource)


def resources(registered: Registered) -> list[dict[str, Any]]:
    """Resources on AWS as `Driver.resources` has them."""
    return [_resource(registered, urn) for urn, r in registered.requests.items() if r.type.startswith("aws:")]


def _resource(registered: Registered, urn: str) -> dict[str, Any]:
    request = registered.requests[urn]
    sent = inputs(request)
    outputs = dict(sent)
    if request.type.endswith(":Cluster"):
        outputs["arn"] = f"arn:aws:eks:eu-central-1:111122223333:cluster/{sent['name']}"
        outputs["vpcConfig"] = {**sent["vpcConfig"], "vpcId": "vpc-0123abcd"}
        outputs.setdefault("kubernetesNetworkConfig", {"serviceIpv4Cidr": SERVICE_CIDR})
    return {
        "urn": f"urn:pulumi:stack::project::{registered.path(urn)}",
        "type": request.type,
        "id": f"{request.name}-id",
        "inputs": sent,
        "outputs": outputs,
        "protect": request.protect,
    }
