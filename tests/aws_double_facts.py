"""Facts of the AWS double on single resource types: names, ids, and properties that replace.

`REPLACES` are the `ForceNew` and `RequiresReplace` marks of hashicorp/terraform-provider-aws, `AUTONAMED` and
`DELETES_FIRST` the overrides in pulumi/pulumi-aws' provider/resources.go. Types that are not listed update in
place and have made-up ids: add a line here, from those sources, before a test relies on one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aws_double_types as sdk
from aws_double_types import UNKNOWN

ACCOUNT = "111122223333"  # AWS' own example account

# A property below a listed one counts too (`accessScope` covers `accessScope.namespaces`).
REPLACES: Mapping[str, str] = {
    "aws:budgets/budget:Budget": "accountId name namePrefix",
    "aws:cloudwatch/eventRule:EventRule": "eventBusName name namePrefix",
    "aws:cloudwatch/eventTarget:EventTarget": "eventBusName rule targetId",
    "aws:cloudwatch/logGroup:LogGroup": "logGroupClass name namePrefix",
    "aws:costexplorer/costAllocationTag:CostAllocationTag": "tagKey",
    "aws:ec2/capacityReservation:CapacityReservation": (
        "availabilityZone ebsOptimized ephemeralStorage instanceMatchCriteria instancePlatform instanceType tenancy"
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "vpcId",
    "aws:ec2/eip:Eip": "customerOwnedIpv4Pool domain ipamPoolId networkBorderGroup publicIpv4Pool",
    "aws:ec2/launchTemplate:LaunchTemplate": "name namePrefix",
    "aws:ec2/natGateway:NatGateway": "allocationId connectivityType privateIp secondaryPrivateIpAddressCount subnetId",
    "aws:ec2/placementGroup:PlacementGroup": "name partitionCount spreadLevel strategy",
    "aws:ec2/route:Route": "destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId routeTableId",
    "aws:ec2/routeTable:RouteTable": "vpcId",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "gatewayId subnetId",
    "aws:ec2/securityGroup:SecurityGroup": "description name namePrefix vpcId",
    "aws:ec2/securityGroupRule:SecurityGroupRule": (
        "cidrBlocks fromPort ipv6CidrBlocks prefixListIds protocol securityGroupId self sourceSecurityGroupId toPort "
        "type"
    ),
    "aws:ec2/subnet:Subnet": (
        "availabilityZone availabilityZoneId cidrBlock ipv4IpamPoolId ipv4NetmaskLength ipv6IpamPoolId ipv6Native "
        "ipv6NetmaskLength outpostArn vpcId"
    ),
    "aws:ec2/vpc:Vpc": "cidrBlock ipv4IpamPoolId ipv4NetmaskLength",
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        "dnsOptions.privateDnsPreference dnsOptions.privateDnsSpecifiedDomains resourceConfigurationArn serviceName "
        "serviceNetworkArn serviceRegion vpcEndpointType vpcId"
    ),
    "aws:ecr/repository:Repository": "encryptionConfigurations name",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "repository",
    "aws:eks/accessEntry:AccessEntry": "clusterName principalArn type",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "accessScope clusterName policyArn principalArn",
    "aws:eks/addon:Addon": "addonName clusterName",
    "aws:eks/cluster:Cluster": (
        "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons "
        "kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr name "
        "outpostConfig.controlPlaneInstanceType outpostConfig.controlPlanePlacement.groupName roleArn"
    ),
    "aws:eks/fargateProfile:FargateProfile": "clusterName fargateProfileName podExecutionRoleArn selectors subnetIds",
    "aws:eks/nodeGroup:NodeGroup": (
        "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id launchTemplate.name nodeGroupName "
        "nodeGroupNamePrefix nodeRoleArn remoteAccess subnetIds"
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "clusterName namespace serviceAccount",
    "aws:iam/instanceProfile:InstanceProfile": "name namePrefix path",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "url",
    "aws:iam/policy:Policy": "description name namePrefix path",
    "aws:iam/role:Role": "name namePrefix path",
    "aws:iam/rolePolicy:RolePolicy": "name namePrefix role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "policyArn role",
    "aws:kms/alias:Alias": "name namePrefix",
    "aws:kms/key:Key": "customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId",
    "aws:s3/accessPoint:AccessPoint": (
        "accountId bucket bucketAccountId name publicAccessBlockConfiguration vpcConfiguration"
    ),
    "aws:s3/bucket:Bucket": "bucket bucketPrefix objectLockEnabled",
    "aws:secretsmanager/secret:Secret": "name namePrefix type",
    "aws:secretsmanager/secretPolicy:SecretPolicy": "secretArn",
    "aws:sns/topic:Topic": "fifoTopic name namePrefix",
    "aws:sns/topicPolicy:TopicPolicy": "arn",
    "aws:sns/topicSubscription:TopicSubscription": "endpoint protocol topic",
    "aws:sqs/queue:Queue": "fifoQueue name namePrefix",
    "aws:sqs/queuePolicy:QueuePolicy": "queueUrl",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "securityGroupId",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "securityGroupId",
}
# Computed where the program leaves them out: the provider's plan shows no change where a part is unknown in a preview.
COMPUTED_BLOCKS = {"aws:ec2/securityGroup:SecurityGroup": {"egress", "ingress"}}
# Sets to AWS and to the provider: another order is no change.
SETS = set(
    "clientIdLists egress enabledClusterLogTypes ingress kubernetesGroups managedPolicyArns namespaces "
    "podIdentityAssociations publicAccessCidrs routeTableIds routes securityGroupIds securityGroups subnetIds taints "
    "vpcSecurityGroupIds".split()
)
# Named after the resource when the program gives no name; an optional `name` is, everywhere but here.
AUTONAMED = {
    "aws:cloudwatch/eventTarget:EventTarget": "targetId",
    "aws:ec2/keyPair:KeyPair": "keyName",
    "aws:efs/fileSystem:FileSystem": "creationToken",
    "aws:eks/fargateProfile:FargateProfile": "fargateProfileName",
    "aws:eks/nodeGroup:NodeGroup": "nodeGroupName",
    "aws:s3/bucket:Bucket": "bucket",
}
DELETES_FIRST = {
    "aws:ec2/securityGroupRule:SecurityGroupRule",
    "aws:efs/mountTarget:MountTarget",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
}
# Made again over what is there, without an error.
PUTS = {
    "aws:costexplorer/costAllocationTag:CostAllocationTag",
    "aws:ecr/repositoryPolicy:RepositoryPolicy",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:secretsmanager/secretPolicy:SecretPolicy",
    "aws:sns/topicPolicy:TopicPolicy",
    "aws:sqs/queuePolicy:QueuePolicy",
}

# Ids that AWS draws. All others that matter are in IDS.
PREFIXES = {
    "aws:ec2/capacityReservation:CapacityReservation": "cr-",
    "aws:ec2/eip:Eip": "eipalloc-",
    "aws:ec2/internetGateway:InternetGateway": "igw-",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt-",
    "aws:ec2/natGateway:NatGateway": "nat-",
    "aws:ec2/routeTable:RouteTable": "rtb-",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc-",
    "aws:ec2/securityGroup:SecurityGroup": "sg-",
    "aws:ec2/securityGroupRule:SecurityGroupRule": "sgrule-",
    "aws:ec2/subnet:Subnet": "subnet-",
    "aws:ec2/vpc:Vpc": "vpc-",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce-",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "a-",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "sgr-",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "sgr-",
}
IDS = {
    "aws:budgets/budget:Budget": "{account}:{name}",
    "aws:cloudwatch/eventRule:EventRule": "{name}",
    "aws:cloudwatch/eventTarget:EventTarget": "{rule}-{targetId}",
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
    "aws:costexplorer/costAllocationTag:CostAllocationTag": "{tagKey}",
    "aws:ec2/keyPair:KeyPair": "{keyName}",
    "aws:ec2/placementGroup:PlacementGroup": "{name}",
    "aws:ecr/repository:Repository": "{name}",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "{repository}",
    "aws:eks/accessEntry:AccessEntry": "{clusterName}:{principalArn}",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "{clusterName}#{principalArn}#{policyArn}",
    "aws:eks/addon:Addon": "{clusterName}:{addonName}",
    "aws:eks/cluster:Cluster": "{name}",
    "aws:eks/fargateProfile:FargateProfile": "{clusterName}:{fargateProfileName}",
    "aws:eks/nodeGroup:NodeGroup": "{clusterName}:{nodeGroupName}",
    "aws:iam/instanceProfile:InstanceProfile": "{name}",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "{arn}",
    "aws:iam/policy:Policy": "{arn}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:kms/alias:Alias": "{name}",
    "aws:kms/key:Key": "{uuid}",
    "aws:s3/accessPoint:AccessPoint": "{account}:{name}",
    "aws:secretsmanager/secret:Secret": "{arn}",
    "aws:secretsmanager/secretPolicy:SecretPolicy": "{secretArn}",
    "aws:sns/topic:Topic": "{arn}",
    "aws:sns/topicPolicy:TopicPolicy": "{arn}",
    "aws:sns/topicSubscription:TopicSubscription": "{arn}",
    "aws:sqs/queue:Queue": "https://sqs.{region}.amazonaws.com/{account}/{name}",
    "aws:sqs/queuePolicy:QueuePolicy": "{queueUrl}",
}
ARNS = {
    "aws:budgets/budget:Budget": "arn:aws:budgets::{account}:budget/{name}",
    "aws:cloudwatch/eventRule:EventRule": "arn:aws:events:{region}:{account}:rule/{name}",
    "aws:cloudwatch/logGroup:LogGroup": "arn:aws:logs:{region}:{account}:log-group:{name}",
    "aws:ec2/eip:Eip": "arn:aws:ec2:{region}:{account}:elastic-ip/{id}",
    "aws:ec2/natGateway:NatGateway": "arn:aws:ec2:{region}:{account}:natgateway/{id}",
    "aws:ecr/repository:Repository": "arn:aws:ecr:{region}:{account}:repository/{name}",
    "aws:eks/accessEntry:AccessEntry": "arn:aws:eks:{region}:{account}:access-entry/{clusterName}/{uuid}",
    "aws:eks/addon:Addon": "arn:aws:eks:{region}:{account}:addon/{clusterName}/{addonName}/{uuid}",
    "aws:eks/nodeGroup:NodeGroup": "arn:aws:eks:{region}:{account}:nodegroup/{clusterName}/{nodeGroupName}/{uuid}",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        "arn:aws:eks:{region}:{account}:podidentityassociation/{clusterName}/{id}"
    ),
    "aws:iam/instanceProfile:InstanceProfile": "arn:aws:iam::{account}:instance-profile{path}{name}",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "arn:aws:iam::{account}:oidc-provider/{host}",
    "aws:iam/policy:Policy": "arn:aws:iam::{account}:policy{path}{name}",
    "aws:iam/role:Role": "arn:aws:iam::{account}:role{path}{name}",
    "aws:kms/alias:Alias": "arn:aws:kms:{region}:{account}:{name}",
    "aws:s3/accessPoint:AccessPoint": "arn:aws:s3:{region}:{account}:accesspoint/{name}",
    "aws:s3/bucket:Bucket": "arn:aws:s3:::{bucket}",
    "aws:secretsmanager/secret:Secret": "arn:aws:secretsmanager:{region}:{account}:secret:{name}-{uuid}",
    "aws:sns/topic:Topic": "arn:aws:sns:{region}:{account}:{name}",
    "aws:sns/topicPolicy:TopicPolicy": "{arn}",
    "aws:sns/topicSubscription:TopicSubscription": "{topic}:{uuid}",
    "aws:sqs/queue:Queue": "arn:aws:sqs:{region}:{account}:{name}",
}


def autoname(token: str, name: str, inputs: Mapping[str, Any], old: Mapping[str, Any], seed: bytes) -> dict[str, str]:
    """The name property that the provider fills in, if it has to; an old one stays."""
    key = AUTONAMED.get(token, "name")
    cls = sdk.resource_class(token)
    optional = cls and key in sdk.fields(sdk.arguments_class(cls)) and key not in sdk.required(sdk.arguments_class(cls))
    if not optional or key in inputs or f"{key}Prefix" in inputs:
        return {}
    if key in old.get("__defaults", ()) and isinstance(old.get(key), str):
        return {key: old[key]}
    generated = f"{name}-{hashlib.sha256(seed + name.encode()).hexdigest()[:7]}"
    prefix = "alias/" if token == "aws:kms/alias:Alias" else ""
    return {key: prefix + (generated.lower() if key == "bucket" else generated)}


def add_on_version(arguments: Mapping[str, Any]) -> str:
    """EKS' default version of an add-on, or the most recent one: here by the cluster's minor."""
    minor, patch = arguments["kubernetesVersion"], int(arguments.get("mostRecent") or False)
    major = minor if arguments["addonName"] == "kube-proxy" else f"9.{minor.partition('.')[2]}"
    return f"v{major}.{patch}-eksbuild.1"


@dataclass(frozen=True)
class Change:
    """A property that differs: `how` is ADD, DELETE or UPDATE."""

    path: str
    how: str

    @property
    def property(self) -> str:
        return self.path.partition(".")[0].partition("[")[0]


def changes(old: Any, new: Any, path: str = "", name: str = "") -> Iterator[Change]:
    """Changes of a program, by path."""
    if isinstance(old, dict) and isinstance(new, dict) and sdk._SIGNATURE not in old | new:
        for key in sorted(key for key in old.keys() | new.keys() if not key.startswith("__")):
            child_path = f"{path}.{key}" if path else key
            if key in old and key in new:
                yield from changes(old[key], new[key], child_path, key)
            elif isinstance(old.get(key, new.get(key)), dict):
                inside = list(changes(old.get(key, {}), new.get(key, {}), child_path, key))
                yield from inside or [Change(child_path, "ADD" if key in new else "DELETE")]
            else:
                yield Change(child_path, "ADD" if key in new else "DELETE")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and name not in SETS:
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changes(before, after, f"{path}[{index}]")
    elif UNKNOWN in (old, new) or _order(name, old) != _order(name, new):
        yield Change(path, "UPDATE")


def planned_changes(token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Changes that the provider's plan shows for a resource of a type."""
    unknown_blocks = {key for key in COMPUTED_BLOCKS.get(token, ()) if repr(UNKNOWN) in repr(new.get(key))}
    return [change for change in changes(old, new) if change.property not in unknown_blocks]


def _order(name: str, value: Any) -> Any:
    texts = isinstance(value, list) and name in SETS
    return sorted(json.dumps(item, sort_keys=True, default=repr) for item in value) if texts else value


def puts(token: str) -> bool:
    """Whether making it again over what is there is no error."""
    return token in PUTS or (token.startswith("aws:s3/bucket") and token != "aws:s3/bucket:Bucket")


def replaces(token: str, change: Change) -> bool:
    """Whether AWS needs another resource for this change. `region` always does."""
    words = {"region", *REPLACES.get(token, "").split()}
    if token.startswith("aws:s3/bucket"):
        words |= {"bucket", "expectedBucketOwner"}
    if token == "aws:eks/cluster:Cluster" and change.how == "DELETE":
        words.add("encryptionConfig")  # cannot be taken back
    parts = change.path.replace("[", ".[").split(".")
    return any(".".join(parts[: index + 1]).replace(".[", "[") in words for index in range(len(parts)))
