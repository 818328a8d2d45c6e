"""Constraints of AWS' own API on the values in a resource: enumerations, lengths, ranges and required members.

From botocore's service models, where botocore is installed; without it nothing is said. Properties are matched to
the API's members by name, whatever their case; `RENAMED` has those that Terraform calls otherwise. What has no
member of that name is not judged here: `aws_double_types` has judged it already.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

import aws_double_facts as facts
from aws_double_types import UNKNOWN, Mistake

# Service, operation, and the member of its input in which the properties are.
OPERATIONS = {
    "aws:budgets/budget:Budget": ("budgets", "CreateBudget", "Budget"),
    "aws:cloudwatch/eventRule:EventRule": ("events", "PutRule", ""),
    "aws:cloudwatch/logGroup:LogGroup": ("logs", "CreateLogGroup", ""),
    "aws:ec2/capacityReservation:CapacityReservation": ("ec2", "CreateCapacityReservation", ""),
    "aws:ec2/eip:Eip": ("ec2", "AllocateAddress", ""),
    "aws:ec2/launchTemplate:LaunchTemplate": ("ec2", "CreateLaunchTemplate", "LaunchTemplateData"),
    "aws:ec2/natGateway:NatGateway": ("ec2", "CreateNatGateway", ""),
    "aws:ec2/placementGroup:PlacementGroup": ("ec2", "CreatePlacementGroup", ""),
    "aws:ec2/vpc:Vpc": ("ec2", "CreateVpc", ""),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("ec2", "CreateVpcEndpoint", ""),
    "aws:ecr/repository:Repository": ("ecr", "CreateRepository", ""),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": ("ecr", "SetRepositoryPolicy", ""),
    "aws:eks/accessEntry:AccessEntry": ("eks", "CreateAccessEntry", ""),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ("eks", "AssociateAccessPolicy", ""),
    "aws:eks/addon:Addon": ("eks", "CreateAddon", ""),
    "aws:eks/cluster:Cluster": ("eks", "CreateCluster", ""),
    "aws:eks/nodeGroup:NodeGroup": ("eks", "CreateNodegroup", ""),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ("eks", "CreatePodIdentityAssociation", ""),
    "aws:iam/instanceProfile:InstanceProfile": ("iam", "CreateInstanceProfile", ""),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": ("iam", "CreateOpenIDConnectProvider", ""),
    "aws:iam/policy:Policy": ("iam", "CreatePolicy", ""),
    "aws:iam/role:Role": ("iam", "CreateRole", ""),
    "aws:iam/rolePolicy:RolePolicy": ("iam", "PutRolePolicy", ""),
    "aws:kms/alias:Alias": ("kms", "CreateAlias", ""),
    "aws:kms/key:Key": ("kms", "CreateKey", ""),
    "aws:s3/accessPoint:AccessPoint": ("s3control", "CreateAccessPoint", ""),
    "aws:s3/bucket:Bucket": ("s3", "CreateBucket", ""),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        "s3",
        "PutBucketLifecycleConfiguration",
        "LifecycleConfiguration",
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": (
        "s3",
        "PutBucketOwnershipControls",
        "OwnershipControls",
    ),
    "aws:s3/bucketPolicy:BucketPolicy": ("s3", "PutBucketPolicy", ""),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (
        "s3",
        "PutPublicAccessBlock",
        "PublicAccessBlockConfiguration",
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        "s3",
        "PutBucketEncryption",
        "ServerSideEncryptionConfiguration",
    ),
    "aws:s3/bucketVersioning:BucketVersioning": ("s3", "PutBucketVersioning", ""),
    "aws:secretsmanager/secret:Secret": ("secretsmanager", "CreateSecret", ""),
    "aws:secretsmanager/secretPolicy:SecretPolicy": ("secretsmanager", "PutResourcePolicy", ""),
    "aws:sns/topic:Topic": ("sns", "CreateTopic", ""),
    "aws:sns/topicSubscription:TopicSubscription": ("sns", "Subscribe", ""),
    "aws:sqs/queue:Queue": ("sqs", "CreateQueue", ""),
}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "budgets": {"name": "BudgetName"},
    "ec2": {"vpcSecurityGroupIds": "SecurityGroupIds", "strategy": "Strategy"},
    "ecr": {"name": "repositoryName", "repository": "repositoryName", "policy": "policyText"},
    "eks": {
        "nodeRoleArn": "nodeRole",
        "resolveConflictsOnCreate": "resolveConflicts",
        "resolveConflictsOnUpdate": "resolveConflicts",
        "sourceSecurityGroupIds": "sourceSecurityGroups",
        "vpcConfig": "resourcesVpcConfig",
    },
    "iam": {
        "assumeRolePolicy": "AssumeRolePolicyDocument",
        "clientIdLists": "ClientIDList",
        "permissionsBoundary": "PermissionsBoundary",
        "policy": "PolicyDocument",
        "thumbprintLists": "ThumbprintList",
    },
    "kms": {"customerMasterKeySpec": "KeySpec"},
    "logs": {"name": "logGroupName"},
    "s3": {"rule": "Rules"},
    "secretsmanager": {"secretArn": "SecretId", "policy": "ResourcePolicy"},
    "sns": {"topic": "TopicArn"},
}
# The name that a resource has among its like, and members that only some types call otherwise.
NAMES: Mapping[str, Mapping[str, str]] = {
    "aws:ec2/placementGroup:PlacementGroup": {"name": "GroupName"},
    "aws:eks/nodeGroup:NodeGroup": {"subnetIds": "subnets"},
    "aws:iam/instanceProfile:InstanceProfile": {"name": "InstanceProfileName"},
    "aws:iam/policy:Policy": {"name": "PolicyName"},
    "aws:iam/role:Role": {"name": "RoleName"},
    "aws:iam/rolePolicy:RolePolicy": {"name": "PolicyName", "role": "RoleName"},
    "aws:kms/alias:Alias": {"name": "AliasName"},
    "aws:sqs/queue:Queue": {"name": "QueueName"},
}
# What the provider fills in when the program does not say it, beside names.
FILLED = {"aws:s3/accessPoint:AccessPoint": "accountId"}
# Properties whose values stand in another operation or service: service and shape of each value.
ELSEWHERE: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "aws:budgets/budget:Budget": {"notifications": ("budgets", "Notification")},
    "aws:eks/cluster:Cluster": {"enabledClusterLogTypes": ("eks", "LogType")},
    "aws:eks/nodeGroup:NodeGroup": {"instanceTypes": ("ec2", "InstanceType")},
}


DOCUMENTS = {"assumeRolePolicy", "eventPattern", "policy"}


@functools.cache
def _model(service: str) -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model(service, "service-2"))


def mistakes(token: str, inputs: Mapping[str, Any]) -> list[Mistake]:
    """Everything about these (plain) inputs that the API would refuse by its model alone."""
    return [*_documents(inputs), *_by_model(token, inputs)]


def _documents(inputs: Mapping[str, Any]) -> Iterator[Mistake]:
    """Policies and patterns travel as text: it has to be an object of JSON."""
    for name in DOCUMENTS & inputs.keys():
        if isinstance(inputs[name], str):
            try:
                document = json.loads(inputs[name])
            except ValueError:
                document = None
            if not isinstance(document, dict):
                yield Mistake(name, f"wants a JSON document, got {inputs[name][:40]!r}")


def _by_model(token: str, inputs: Mapping[str, Any]) -> list[Mistake]:
    if token not in OPERATIONS or importlib.util.find_spec("botocore") is None:
        return []
    service, operation, member = OPERATIONS[token]
    shape = _model(service).operation_model(operation).input_shape
    shape = shape.members[member] if member else shape
    renamed = {**RENAMED.get(service, {}), **NAMES.get(token, {})}
    values_by_name = dict(inputs)
    values_by_name.setdefault(facts.AUTONAMED.get(token, "name"), UNKNOWN)  # the provider makes a name
    if token in FILLED:
        values_by_name.setdefault(FILLED[token], UNKNOWN)
    mistakes = []
    for name, (service_model, kind) in ELSEWHERE.get(token, {}).items():
        values = values_by_name.pop(name, [])
        for index, item in enumerate(values if isinstance(values, list) else []):
            mistakes += _judge(_model(service_model).shape_for(kind), item, f"{name}[{index}]", {})
    return mistakes + list(_structure(shape, values_by_name, "", renamed))


def _structure(shape: Any, value: Mapping[str, Any], prefix: str, renamed: Mapping[str, str]) -> Iterator[Mistake]:
    members = {name.lower(): name for name in shape.members}
    met = set()
    for key, item in value.items():
        name = members.get(renamed.get(key, key).lower())
        if name is not None:
            met.add(name)
        if name is not None and key != "tags":  # a map here; some APIs want a list of keys and values
            yield from _judge(shape.members[name], item, prefix + key, renamed)
    for name in shape.required_members:
        if name not in met and shape.members[name].metadata.get("idempotencyToken") is None:
            yield Mistake(prefix + name, f"the AWS API needs `{name}` in {shape.name}")


def _judge(shape: Any, value: Any, path: str, renamed: Mapping[str, str]) -> Iterator[Mistake]:
    if shape.type_name == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _judge(shape.member, item, f"{path}[{index}]", renamed)
    elif shape.type_name == "list" and isinstance(value, dict):  # a list of at most one
        yield from _judge(shape.member, value, path, renamed)
    elif shape.type_name == "structure" and isinstance(value, dict):
        yield from _structure(shape, value, f"{path}.", renamed)
    elif isinstance(value, str) and shape.type_name == "string":
        enumeration = getattr(shape, "enum", None)
        if enumeration and value not in enumeration:
            near = difflib.get_close_matches(value, enumeration, 8, 0.0)
            yield Mistake(path, f"the AWS API's {shape.name} knows {', '.join(near)} and not {value!r}")
        else:
            yield from _range(shape, len(value), path, f"{len(value)} characters")
    elif isinstance(value, int | float) and not isinstance(value, bool) and shape.type_name in ("integer", "long"):
        yield from _range(shape, value, path, str(value))


def _range(shape: Any, size: float, path: str, value_text: str) -> Iterator[Mistake]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if (low is not None and size < low) or (high is not None and size > high):
        yield Mistake(path, f"the AWS API's {shape.name} is {low} to {high}, got {value_text}")
