"""Values that the AWS double invents: ids, ARNs and the outputs that AWS decides.

The rule needs no table: a resource has its inputs, and for every output that is not an input a value of the type
that the SDK gives it. `special` has the few on which programs build more.
"""

from __future__ import annotations

import base64
import random
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aws_double_facts as facts
import aws_double_types as sdk
from aws_double_facts import ACCOUNT
from aws_double_types import UNKNOWN
from pulumi import _types

OWN_ARN = {"arn", "accessEntryArn", "associationArn"}
# The shape of a made-up value, by how its property's name ends.
SHAPES = {
    "availabilityZone": "{region}a",
    "NetworkAclId": "acl-{hex}",
    "NetworkInterfaceId": "eni-{hex}",
    "RouteTableId": "rtb-{hex}",
    "SecurityGroupId": "sg-{hex}",
    "vpcId": "vpc-{hex}",
    "ownerId": "{account}",
    "publicIp": "198.51.100.7",
    "privateIp": "10.0.0.7",
    "status": "ACTIVE",
    "state": "available",
    "At": "2026-01-01T00:00:00Z",
    "Date": "2026-01-01T00:00:00Z",
}


class Words(dict[str, str]):
    """In a preview not all are there, and what is made from them stays unknown anyway."""

    def __missing__(self, key: str) -> str:
        return f"no-{key}"

    def __or__(self, further_words: Any) -> Words:
        return Words({**self, **further_words})


@dataclass
class Naming:
    """One new resource, and the words from which its id, ARN and outputs are made."""

    token: str
    name: str
    region: str
    inputs: Mapping[str, Any]
    chance: random.Random
    words: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text_inputs = {key: value for key, value in self.inputs.items() if isinstance(value, str)}
        key = facts.AUTONAMED.get(self.token, "name")
        self.words = Words() | {
            "name": self.name,
            key: text_inputs.get(f"{key}Prefix", f"{self.name}-") + self.hex(8),
            "path": "/",
            "account": ACCOUNT,
            "region": self.region,
            "host": text_inputs.get("url", "").removeprefix("https://"),
            "uuid": "-".join(self.hex(length) for length in (8, 4, 4, 4, 12)),
            **text_inputs,
        }
        # An ARN may hold the id and an id may be the ARN, never both.
        for key in ("arn", "id") if "{arn}" in facts.IDS.get(self.token, "") else ("id", "arn"):
            template = self._id() if key == "id" else facts.ARNS.get(self.token, self._arn())
            self.words[key] = template.format_map(self.words)

    def hex(self, length: int = 17) -> str:
        return f"{self.chance.getrandbits(4 * length):0{length}x}"

    def _id(self) -> str:
        if self.token in facts.PREFIXES:
            return facts.PREFIXES[self.token] + self.hex()
        if self.token.startswith("aws:s3/bucket") and isinstance(self.inputs.get("bucket"), str):
            return "{bucket}"
        return facts.IDS.get(self.token, f"{self.name}-{self.hex(7)}")

    def _arn(self) -> str:
        service, _, kind = self.token.split(":")[1].partition("/")
        dashed = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind)
        return f"arn:aws:{'ec2' if service == 'vpc' else service}:{{region}}:{{account}}:{dashed}/{{id}}"

    def fake(self, name: str, typ: Any, depth: int = 0) -> Any:
        """A value of the right type; None where there is nothing to say."""
        origin, arguments = typing.get_origin(typ), typing.get_args(typ)
        if name in OWN_ARN:
            return self.words["arn"]
        if origin is not None and issubclass(origin, Mapping):
            return {}
        if origin is not None and issubclass(origin, Sequence):
            return [self.fake(name, arguments[0], depth)] if depth < 4 else []
        if isinstance(typ, type) and _types.is_output_type(typ):
            output_types = _types.output_type_types(typ) if depth < 4 else {}
            return {key: self.fake(key, output_type, depth + 1) for key, output_type in output_types.items()}
        if typ in (bool, int, float):
            return {bool: False, int: 1, float: 1.0}[typ]
        shape = next((text for end, text in SHAPES.items() if name.endswith(end)), None)
        if shape:
            return shape.format_map({**self.words, "hex": self.hex()})
        if name.endswith(("Arn", "arn")):
            return f"{self.words['arn']}/{name}"
        return f"{name}-of-{self.words['id']}"


def special(naming: Naming) -> dict[str, Any]:
    """Outputs on which programs build, for the types where a value of the right type is not enough."""
    words = naming.words
    match naming.token:
        case "aws:ec2/launchTemplate:LaunchTemplate":
            return {"defaultVersion": 1, "latestVersion": 1}
        case "aws:ec2/eip:Eip":
            return {"allocationId": words["id"]}
        case "aws:ec2/subnet:Subnet":
            return {"availabilityZone": f"{naming.region}a", "availabilityZoneId": "double-az1"}
        case "aws:eks/podIdentityAssociation:PodIdentityAssociation":
            return {"associationId": words["id"], "externalId": None}
        case "aws:eks/nodeGroup:NodeGroup":
            group = f"eks-{words['nodeGroupName']}-{words['uuid']}"
            return {"resources": [{"autoscalingGroups": [{"name": group}]}]}
        case "aws:eks/cluster:Cluster":
            key = naming.hex(32).upper()
            return {
                "clusterId": None,  # of clusters on Outposts
                "endpoint": f"https://{key}.gr7.{naming.region}.eks.amazonaws.com",
                "certificateAuthority": {"data": base64.b64encode(b"the double's authority").decode()},
                "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{naming.region}.amazonaws.com/id/{key}"}]}],
                "vpcConfig": {"clusterSecurityGroupId": f"sg-{naming.hex()}", "vpcId": f"vpc-{naming.hex()}"},
                "kubernetesNetworkConfig": {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"},
                "platformVersion": "eks.1",
            }
        case "aws:kms/key:Key":
            return {"keyId": words["id"]}
        case "aws:s3/bucket:Bucket":
            return {
                "bucketDomainName": f"{words['bucket']}.s3.amazonaws.com",
                "bucketRegionalDomainName": f"{words['bucket']}.s3.{naming.region}.amazonaws.com",
                "bucketRegion": naming.region,
            }
        case "aws:sqs/queue:Queue":
            return {"url": words["id"]}
    return {}


def outputs(naming: Naming, sent: Mapping[str, Any], tags: Mapping[str, str], preview: bool) -> dict[str, Any]:
    """Everything that the resource has once it is there; in a preview what AWS decides is unknown."""
    token = naming.token
    invented = {name: naming.fake(name, typ) for name, typ in sdk.computed(token).items()}
    invented = {key: value for key, value in {**invented, **special(naming)}.items() if value is not None}
    key = facts.AUTONAMED.get(token, "name")
    if f"{key}Prefix" in sent:
        invented[key] = naming.words[key]
    properties = _overlaid(_unknown(invented) if preview and invented else invented, sent)
    if "region" in sdk.output_types(token):
        properties.setdefault("region", naming.region)
    return properties | tags_all(token, naming.inputs, tags)


def tags_all(token: str, inputs: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """The provider's default tags under the resource's own."""
    if "tagsAll" not in sdk.output_types(token):
        return {}
    resource_tags = inputs.get("tags") or {}
    return {"tagsAll": resource_tags if resource_tags is UNKNOWN else {**defaults, **resource_tags}}


def _overlaid(invented: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Given values over invented ones; maps are merged."""
    merged = dict(invented)
    for key, value in overrides.items():
        nested = merged.get(key)
        both = isinstance(nested, dict) and isinstance(value, dict) and sdk._SIGNATURE not in value
        merged[key] = _overlaid(nested, value) if both else value
    return merged


def _unknown(value: Any) -> Any:
    return {key: _unknown(item) for key, item in value.items()} if isinstance(value, dict) and value else UNKNOWN


def updated(
    token: str, old: Any, new: Any, outputs: Mapping[str, Any], sent: Mapping[str, Any], preview: bool
) -> dict[str, Any]:
    """The outputs after an update in place, from inputs and outputs before it and the inputs after it."""
    after = _overlaid(_without(outputs, old), sent)
    changed_properties = {change.property for change in facts.changes(old, new)}
    if token == "aws:ec2/launchTemplate:LaunchTemplate":
        # The provider's own rules: its plan and its update do not leave out the same properties.
        changed_properties -= {"name", "namePrefix", "defaultVersion", "updateDefaultVersion"}
        if changed_properties - ({"description"} if preview else {"tags"}):
            after["latestVersion"] = UNKNOWN if preview else outputs["latestVersion"] + 1
            if new.get("updateDefaultVersion") is True:
                after["defaultVersion"] = after["latestVersion"]
    return after


def _without(properties: Mapping[str, Any], removed: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs that AWS decided: those that do not come from the inputs."""
    remaining = {}
    for key, value in properties.items():
        if key not in removed:
            remaining[key] = value
        elif isinstance(value, dict) and isinstance(removed[key], dict) and sdk._SIGNATURE not in value:
            inside = _without(value, removed[key])
            remaining |= {key: inside} if inside else {}
    return remaining
