"""A resource of AWS that the plan describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pulumi

from tenancy.planning.aws.documents import Document


class AwsResource(pulumi.CustomResource):
    """Sends the properties as they go over the wire, under the provider's type token.

    The SDK's own classes of all that a tenant has would take 1.3 s to import, in every run of every tenant's stack.
    """

    arn: pulumi.Output[str]
    """ARN of the resource, if AWS gives it one."""

    def __init__(self, token: str, name: str, properties: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        # What is not given comes back as AWS has it.
        super().__init__(f"aws:{token}", name, {"arn": None, **properties}, opts)


def policy_json(document: Document) -> str:
    """A policy as AWS takes it, without the white space that counts in some of its limits."""
    return json.dumps(document, separators=(",", ":"))


def retain_opts(parent: pulumi.Resource, *, protect: bool = False) -> pulumi.ResourceOptions:
    """Options of a resource that outlives its stack: destroyed, it leaves the state and stays on AWS."""
    return pulumi.ResourceOptions(parent=parent, protect=protect, retain_on_delete=True)


def basename(path: str) -> str:
    """The last part of an alias, an ARN or a path."""
    return path.rpartition("/")[2]
