"""The AWS half as a Terraform plan in JSON, the form that other makers' tools read.

Pulumi's AWS SDK is made from Terraform's provider: types and fields are the same with other spelling. Two things are
lost on the way and put back here: a block is a list even where one is allowed, and its name is in the singular.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judged.program import Resource

OTHER_TYPES = {
    "aws:costexplorer/costAllocationTag:CostAllocationTag": "aws_ce_cost_allocation_tag",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "aws_iam_openid_connect_provider",
}
"""Types whose name does not follow from Pulumi's."""

WITHOUT_MODULE = "ec2"
"""The module of Pulumi's that Terraform's names do not have."""

MAPS = ("tags", "tagsAll", "labels", "variables")
"""Fields whose keys are the user's: maps and no blocks."""

SINGULAR = {
    "clientIdLists": "client_id_list",
    "costFilters": "cost_filter",
    "notifications": "notification",
    "podIdentityAssociations": "pod_identity_association",
    "routes": "route",
    "rules": "rule",
    "taints": "taint",
    "transitions": "transition",
}
"""Lists that Pulumi names in the plural and Terraform in the singular."""

PLURAL = (
    *("blockDeviceMappings", "networkInterfaces", "nodeRepairConfigOverrides", "tagSpecifications"),
    *("ingress", "egress"),
)
"""Lists of blocks whose name both share."""


class UnknownBlocks(ValueError):
    """A list of blocks whose name in Terraform is not known here."""


def plan(resources: Sequence[Resource]) -> dict[str, Any]:
    """The plan that creates the resources. Raises UnknownBlocks."""
    addresses = {resource.id: _address(resource) for resource in resources}
    planned, changes, configured = [], [], []
    for resource in resources:
        values = {name: value for name, value in fields(resource.inputs).items() if value is not None}
        kind, _, name = addresses[resource.id].partition(".")
        common = {"address": addresses[resource.id], "mode": "managed", "type": kind, "name": name}
        planned.append({**common, "provider_name": "registry.terraform.io/hashicorp/aws", "values": values})
        changes.append({**common, "change": {"actions": ["create"], "before": None, "after": values}})
        expressions = {
            key: {"references": [f"{address}.id", address]}
            for key, value in values.items()
            for address in _references(value, addresses)
        }
        configured.append({**common, "provider_config_key": "aws", "expressions": expressions})
    return {
        "format_version": "1.2",
        "terraform_version": "1.9.0",
        "planned_values": {"root_module": {"resources": planned}},
        "resource_changes": changes,
        "configuration": {"root_module": {"resources": configured}},
    }


def type_of(kind: str) -> str:
    """Terraform's type for a token of Pulumi's: `aws:s3/bucketPolicy:BucketPolicy` is `aws_s3_bucket_policy`."""
    if kind in OTHER_TYPES:
        return OTHER_TYPES[kind]
    _, path, name = kind.split(":")
    module = path.partition("/")[0]
    return "_".join(["aws", *([] if module == WITHOUT_MODULE else [module]), _snake(name)])


def fields(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a resource under Terraform's names, with blocks as lists. Raises UnknownBlocks."""
    return dict(_field(name, value) for name, value in inputs.items())


def _field(name: str, value: Any) -> tuple[str, Any]:
    if name in MAPS:
        return _snake(name), value
    if isinstance(value, Mapping):
        return _snake(name), [fields(value)]
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        if name not in SINGULAR and name not in PLURAL:
            raise UnknownBlocks(f"{name}: what Terraform calls it is not in judged/terraform.py")
        return SINGULAR.get(name, _snake(name)), [fields(block) for block in value]
    return SINGULAR.get(name, _snake(name)), value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _address(resource: Resource) -> str:
    return f"{type_of(resource.kind)}.{re.sub(r'[^A-Za-z0-9_-]', '_', resource.name)}"


def _references(value: Any, addresses: Mapping[str, str]) -> Iterator[str]:
    if isinstance(value, str) and value in addresses:
        yield addresses[value]
    elif isinstance(value, list):
        for item in value:
            yield from _references(item, addresses)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item, addresses)
