"""IAM documents of the cluster: who may become which role, and what each role may do.

Every role is one cluster's: a trust names the cluster, a permission the cluster, the region or a tag that only this
cluster's resources carry. Sources, read 2026-11-20:

- Karpenter: karpenter-provider-aws `website/content/en/preview/reference/cloudformation.md` (the policies of v1.14) and
  the calls in v1.14.1 `pkg/aws/sdk.go`;
- EKS: user guide, "Cross-service confused deputy prevention", "EKS Pod Identity role", "Amazon EKS node IAM role";
- KMS: "Required KMS key policy for use with encrypted volumes" (Auto Scaling), "Encrypt log data" (CloudWatch Logs).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenancy.catalog import vocabulary
from tenancy.planning.aws.documents import Document, partition
from tenancy.planning.aws.documents import allow as _allow
from tenancy.planning.aws.documents import arn as _arn
from tenancy.planning.aws.documents import deny as _deny
from tenancy.planning.aws.documents import dns_suffix as _suffix
from tenancy.planning.aws.documents import document as _document
from tenancy.planning.common.names import CLUSTER_TAG, EKS_GROUP_TAG, aws_name, karpenter_queue, node_role
from tenancy.spec.fields.environment import Environment

MANAGED_COUNT = 10
"""Most managed policies of a role, unless the account's quota is raised."""

CLUSTER, NODE, VPC_CNI, EBS_CSI, KARPENTER = "cluster", "node", "vpc-cni", "ebs-csi", "karpenter"

EBS_POLICY = "AmazonEBSCSIDriverEKSClusterScopedPolicy"
"""AWS' policy of the EBS CSI driver for one cluster: volumes and snapshots whose tag `ebs.csi.aws.com/cluster-name` is
the `eks-cluster-name` of the session, and instances whose `eks:cluster-name` or `eks:eks-cluster-name` is. EKS writes
the first on nodes of managed groups, Karpenter the second; the add-on tags what it creates from v1.58.0 on. The older
`AmazonEBSCSIDriverPolicy` allows all volumes of the account (kubernetes-sigs/aws-ebs-csi-driver#2918)."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """An IAM role of the platform, with its trust policy and permissions."""

    name: str
    trust: Document
    managed: tuple[str, ...] = ()
    """ARNs of AWS' own policies."""
    inline: dict[str, Document] = field(default_factory=dict)
    service_account: tuple[str, str] | None = None
    """Namespace and name of the service account that gets it by Pod Identity; None: AWS itself takes it."""


def roles(environment: Environment) -> dict[str, RolePlan]:
    """Every role of a cluster, by purpose."""
    plans = {
        CLUSTER: _cluster_role(environment),
        NODE: _node_role(environment),
        VPC_CNI: _pod_role(
            environment, VPC_CNI, "aws-node", inline={"interfaces": _document(*_interface_statements(environment))}
        ),
        EBS_CSI: _pod_role(environment, EBS_CSI, "ebs-csi-controller-sa", managed=(EBS_POLICY,)),
    }
    if any(pool.is_autoscaled for pool in environment.pools.values()):
        plans[KARPENTER] = _pod_role(environment, KARPENTER, "karpenter", inline=_karpenter(environment))
    return plans


def role_arn(environment: Environment, role: RolePlan) -> str:
    """ARN of a role of the platform."""
    return _arn(environment, "iam", f"role/{role.name}", region="")


def cluster_arn(environment: Environment) -> str:
    """ARN of the EKS cluster."""
    return _arn(environment, "eks", f"cluster/{environment.cluster.name}")


def key_alias(environment: Environment) -> str:
    """Alias of the key that is made for the cluster: a name for what only AWS can give an id."""
    return f"alias/{vocabulary.PRODUCT}/{environment.cluster.name}"


def volume_key(environment: Environment) -> str:
    """Key with which EC2 encrypts the volumes that Karpenter and the CSI driver create."""
    return environment.aws.kms_key_arn or key_alias(environment)


def log_group_prefix(environment: Environment) -> str:
    """Prefix of the names of all log groups that the cluster's key may encrypt."""
    return f"/aws/eks/{environment.cluster.name}/"


def _cluster_role(environment: Environment) -> RolePlan:
    condition = {
        "StringEquals": {"aws:SourceAccount": environment.aws.account},
        "ArnEquals": {"aws:SourceArn": cluster_arn(environment)},
    }
    return RolePlan(
        aws_name(environment, CLUSTER),
        _trust_policy("eks.amazonaws.com", "sts:AssumeRole", condition),
        managed=(_managed_policy(environment, "AmazonEKSClusterPolicy"),),
    )


def _node_role(environment: Environment) -> RolePlan:
    """The nodes' role, which a pod that escapes to the node's network gets: it pulls images and describes the node.

    No right to change the network, which is the CNI's own role, and no shell by Session Manager.
    """
    # Auto Mode's minimum: with AmazonEKSWorkerNodePolicy a node could read the whole network of the account.
    managed = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
    # nodeadm names the node after what DescribeInstances says, and asks for pods of a type that is newer than itself.
    describe_itself = _allow(
        "DescribeItself", ["ec2:DescribeInstances", "ec2:DescribeInstanceTypes"], "*", _in_region(environment)
    )
    return RolePlan(
        node_role(environment),
        _trust_policy(f"ec2.{_suffix(environment)}", "sts:AssumeRole"),
        managed=tuple(_managed_policy(environment, policy) for policy in managed),
        inline={"nodeadm": _document(describe_itself)},
    )


def _pod_role(
    environment: Environment,
    purpose: str,
    service_account: str,
    managed: tuple[str, ...] = (),
    inline: dict[str, Document] | None = None,
) -> RolePlan:
    """A role that one service account of kube-system takes, of this cluster and of no other."""
    namespace = "kube-system"
    condition = {
        "StringEquals": {
            "aws:SourceAccount": environment.aws.account,
            "aws:RequestTag/eks-cluster-name": environment.cluster.name,
            "aws:RequestTag/kubernetes-namespace": namespace,
            "aws:RequestTag/kubernetes-service-account": service_account,
        },
        "ArnEquals": {"aws:SourceArn": cluster_arn(environment)},
    }
    return RolePlan(
        aws_name(environment, purpose),
        _trust_policy("pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"], condition),
        managed=tuple(_managed_policy(environment, policy) for policy in managed),
        inline=inline or {},
        service_account=(namespace, service_account),
    )


def _interface_statements(environment: Environment) -> list[Document]:
    """Actions that the VPC CNI calls, on interfaces and instances that carry this cluster's tag and no others.

    AWS' `AmazonEKS_CNI_Policy` allows all interfaces of the account. The actions are those of amazon-vpc-cni-k8s
    `docs/iam-policy.md`, "Scope-down IAM policy per EKS cluster" (3ecdfeb, read 2026-11-27), with two differences: the
    tag is our own, which nodes' first interfaces have from their start and the CNI gives to others
    (`ADDITIONAL_ENI_TAGS`), and an interface may be tagged only when it is created or when it carries the tag already.
    """
    interfaces, instances, groups = (
        _arn(environment, "ec2", f"{kind}/*") for kind in ("network-interface", "instance", "security-group")
    )
    name = environment.cluster.name
    has_cluster_tag = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": name}}
    has_eks_tag = {"StringEquals": {f"aws:ResourceTag/{EKS_GROUP_TAG}": name}}
    requests_cluster_tag = {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": name}}
    on_creation = {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}
    given_subnets = environment.aws.network.subnets.values()
    # A given subnet has none of our tags, and may be another account's, shared with this one.
    subnets = [_arn(environment, "ec2", f"subnet/{subnet}", account="*") for subnet in sorted(given_subnets)]
    described_kinds = ("Instances", "InstanceTypes", "NetworkInterfaces", "SecurityGroups", "Subnets", "Tags")
    attach, change = ["ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface"], "ec2:ModifyNetworkInterfaceAttribute"
    addresses = ["ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses", "ec2:DeleteNetworkInterface"]
    create = ["ec2:CreateNetworkInterface"]
    return [
        _allow(
            "ReadNetwork",
            [f"ec2:Describe{described_kind}" for described_kind in described_kinds],
            "*",
            _in_region(environment),
        ),
        _allow("CreateTaggedInterfaces", create, interfaces, requests_cluster_tag),
        _allow("CreateInOwnSubnets", create, subnets)
        if subnets
        else _allow("CreateInOwnSubnets", create, _arn(environment, "ec2", "subnet/*"), has_cluster_tag),
        _allow("UseGroupOfCluster", [*create, change], groups, has_eks_tag),
        _allow("UseGroupsOfPools", [*create, change], groups, has_cluster_tag),
        _allow("TagCreatedInterfaces", ["ec2:CreateTags"], interfaces, on_creation),
        _allow("TagOwnInterfaces", ["ec2:CreateTags"], interfaces, has_cluster_tag),
        _allow("ChangeOwnInterfaces", [*attach, change, *addresses], interfaces, has_cluster_tag),
        _allow("AttachToOwnInstances", [*attach, change], instances, has_cluster_tag),
    ]


def _karpenter(environment: Environment) -> dict[str, Document]:
    return {
        "node-lifecycle": _document(*_node_lifecycle(environment)),
        "instance-profiles": _document(*_instance_profiles(environment)),
        "discovery": _document(*_discovery(environment)),
        "interruptions": _document(
            _allow(
                "ReadInterruptions",
                ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
                _queue_arn(environment),
            )
        ),
    }


def _node_lifecycle(environment: Environment) -> list[Document]:
    """Instances come and go only with this cluster's tags on them."""
    name = environment.cluster.name
    created_resources = [
        _arn(environment, "ec2", f"{kind}/*")
        for kind in ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
    ]
    # Subnets and reservations may be another account's, shared with this one; images are Amazon's.
    used_resources = [_arn(environment, "ec2", f"{kind}/*", account="") for kind in ("image", "snapshot")]
    used_resources += [_arn(environment, "ec2", f"{kind}/*", account="*") for kind in ("security-group", "subnet")]
    reservations = {pool.purchase.reservation_id for pool in environment.pools.values() if pool.is_autoscaled}
    used_resources += [
        _arn(environment, "ec2", f"capacity-reservation/{reservation}", account="*")
        for reservation in sorted(filter(None, reservations))
    ]
    owner_tag = f"kubernetes.io/cluster/{name}"
    requested_tags = {f"aws:RequestTag/{owner_tag}": "owned", "aws:RequestTag/eks:eks-cluster-name": name}
    resource_tags = {f"aws:ResourceTag/{owner_tag}": "owned"}
    requested_pool = {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    resource_pool = {"aws:ResourceTag/karpenter.sh/nodepool": "*"}
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    later_tags = ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
    template = _arn(environment, "ec2", "launch-template/*")
    instance = _arn(environment, "ec2", "instance/*")
    return [
        _allow("UseWhatIsThere", launch, used_resources),
        _allow("UseOwnTemplates", launch, template, {"StringEquals": resource_tags, "StringLike": resource_pool}),
        _allow(
            "CreateTagged",
            [*launch, "ec2:CreateLaunchTemplate"],
            created_resources,
            {"StringEquals": requested_tags, "StringLike": requested_pool},
        ),
        _allow(
            "TagWhatIsCreated",
            ["ec2:CreateTags"],
            created_resources,
            {
                "StringEquals": {
                    **requested_tags,
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": requested_pool,
            },
        ),
        _allow(
            "NameOwnInstances",
            ["ec2:CreateTags"],
            instance,
            {
                "StringEquals": resource_tags,
                "StringLike": resource_pool,
                "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": name},
                "ForAllValues:StringEquals": {"aws:TagKeys": later_tags},
            },
        ),
        _allow(
            "DeleteOwn",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [instance, template],
            {"StringEquals": resource_tags, "StringLike": resource_pool},
        ),
    ]


def _instance_profiles(environment: Environment) -> list[Document]:
    """Profiles in the cluster's own path, around the nodes' role and no other."""
    name, region = environment.cluster.name, environment.aws.region
    profiles = _arn(environment, "iam", "instance-profile/*", region="")
    own_profiles = _arn(environment, "iam", f"instance-profile/karpenter/{region}/{name}/*", region="")
    owner_tag, region_tag, class_tag = (
        f"kubernetes.io/cluster/{name}",
        "topology.kubernetes.io/region",
        "karpenter.k8s.aws/ec2nodeclass",
    )
    requested_tags = {
        f"aws:RequestTag/{owner_tag}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": name,
        f"aws:RequestTag/{region_tag}": region,
    }
    resource_tags = {f"aws:ResourceTag/{owner_tag}": "owned", f"aws:ResourceTag/{region_tag}": region}
    requested_class, resource_class = {f"aws:RequestTag/{class_tag}": "*"}, {f"aws:ResourceTag/{class_tag}": "*"}
    return [
        _allow(
            "PassNodeRole",
            ["iam:PassRole"],
            _arn(environment, "iam", f"role/{node_role(environment)}", region=""),
            {"StringEquals": {"iam:PassedToService": f"ec2.{_suffix(environment)}"}},
        ),
        _allow(
            "CreateProfiles",
            ["iam:CreateInstanceProfile"],
            own_profiles,
            {"StringEquals": requested_tags, "StringLike": requested_class},
        ),
        _allow(
            "TagOwnProfiles",
            ["iam:TagInstanceProfile"],
            own_profiles,
            {"StringEquals": {**resource_tags, **requested_tags}, "StringLike": {**resource_class, **requested_class}},
        ),
        _allow(
            "ChangeOwnProfiles",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            own_profiles,
            {"StringEquals": resource_tags, "StringLike": resource_class},
        ),
        # One that is gone has no path: asked for within the path alone, it would be forbidden instead of not found.
        _allow("ReadProfiles", ["iam:GetInstanceProfile"], profiles),
        _allow("ListProfiles", ["iam:ListInstanceProfiles"], "*"),
    ]


def _discovery(environment: Environment) -> list[Document]:
    described_kinds = (
        "CapacityReservations Images Instances InstanceStatus InstanceTypeOfferings InstanceTypes LaunchTemplates "
        "SecurityGroups SpotPriceHistory Subnets"
    )
    images = _arn(environment, "ssm", "parameter/aws/service/eks/optimized-ami/*", account="")
    return [
        _allow("ReadEc2", [f"ec2:Describe{kind}" for kind in described_kinds.split()], "*", _in_region(environment)),
        _allow("FindImages", ["ssm:GetParameter"], images),
        # Answered by two regions for all, so no region is asked for.
        _allow("ReadPrices", ["pricing:GetProducts"], "*"),
        _allow("FindApiServer", ["eks:DescribeCluster"], cluster_arn(environment)),
    ]


def interruption_events(environment: Environment) -> dict[str, Document]:
    """Patterns of the EventBridge rules that fill Karpenter's queue, by the rule's name.

    No more than Karpenter acts on (`pkg/controllers/interruption/messages`): it deletes the rest unread.
    """
    patterns: dict[str, Document] = {
        "health": {
            "source": ["aws.health"],
            "detail-type": ["AWS Health Event"],
            "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
        },
        "spot": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
        "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
        "reservation": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"],
        },
        "state": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
            "detail": {"state": ["shutting-down", "stopped", "stopping", "terminated"]},
        },
    }
    return {aws_name(environment, f"karpenter-{event}"): pattern for event, pattern in patterns.items()}


def queue_policy(environment: Environment) -> Document:
    """Only the cluster's own rules may send messages, and all requests must use TLS."""
    queue = _queue_arn(environment)
    rules = [_arn(environment, "events", f"rule/{name}") for name in interruption_events(environment)]
    write = _allow("WriteFromOwnRules", ["sqs:SendMessage"], queue, {"ArnEquals": {"aws:SourceArn": rules}})
    read = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:ReceiveMessage"]
    return _document(
        {**write, "Principal": {"Service": "events.amazonaws.com"}},
        {
            "Sid": "NothingUnencrypted",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["sqs:SendMessage", *read],
            "Resource": queue,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )


def s3_endpoint_policy(environment: Environment) -> Document:
    """Denies writes with credentials of other accounts: a pod could copy data to a bucket of another account.

    Reads are allowed: image layers are in buckets of Amazon and of other registries, read with the registries'
    presigned URLs or anonymously.
    """
    aws = environment.aws
    own_principals = (
        {"aws:PrincipalOrgID": aws.organization_id} if aws.organization_id else {"aws:PrincipalAccount": aws.account}
    )
    writes = ["s3:CreateBucket", "s3:DeleteObject*", "s3:Put*"]
    return _document(
        {**_allow("Everything", ["s3:*"], "*"), "Principal": "*"},
        _deny("NoWritesWithForeignKeys", writes, "*", {"StringNotEquals": own_principals}, principal="*"),
    )


_USE_ACTIONS = [
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
]
_ADMINISTER_ACTIONS = [
    *("kms:CancelKeyDeletion", "kms:CreateAlias", "kms:CreateGrant", "kms:DeleteAlias", "kms:DisableKey"),
    *("kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation", "kms:GetKeyPolicy"),
    *("kms:GetKeyRotationStatus", "kms:ListGrants", "kms:ListKeyPolicies", "kms:ListResourceTags"),
    *("kms:PutKeyPolicy", "kms:RetireGrant", "kms:RevokeGrant", "kms:ScheduleKeyDeletion", "kms:TagResource"),
    *("kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription"),
]


def key_policy(environment: Environment) -> Document:
    """Policy of the key of secrets, volumes and logs. A given key needs the same statements."""
    account, region, suffix = environment.aws.account, environment.aws.region, _suffix(environment)
    scaling = _arn(
        environment,
        "iam",
        "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
        region="",
    )
    # By condition: as a principal, a service-linked role that does not exist yet would make KMS refuse the policy.
    by_scaling = {"StringEquals": {"kms:CallerAccount": account}, "ArnEquals": {"aws:PrincipalArn": scaling}}
    for_aws = {**by_scaling, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    by_volumes = {"StringEquals": {"kms:CallerAccount": account, "kms:ViaService": f"ec2.{region}.{suffix}"}}
    of_cluster = _arn(environment, "logs", f"log-group:{log_group_prefix(environment)}*")
    by_logs = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": of_cluster}}
    any_principal = {"AWS": "*"}
    return _document(
        {
            # Principals that IAM policies of the account allow, without a right to decrypt: EKS takes its grant for
            # secrets from the identity that creates the cluster, which needs only kms:CreateGrant for that.
            **_allow("Administer", [*_ADMINISTER_ACTIONS, "kms:DescribeKey"], "*"),
            "Principal": {"AWS": _arn(environment, "iam", "root", region="")},
        },
        # As AWS' own key for EBS: principals that may create the volume, such as Karpenter and the CSI driver.
        {**_allow("Volumes", [*_USE_ACTIONS, "kms:CreateGrant"], "*", by_volumes), "Principal": any_principal},
        # Managed node groups are Auto Scaling groups.
        {**_allow("VolumesOfNodeGroups", _USE_ACTIONS, "*", by_scaling), "Principal": any_principal},
        {**_allow("GrantsOfNodeGroups", ["kms:CreateGrant"], "*", for_aws), "Principal": any_principal},
        {**_allow("Logs", _USE_ACTIONS, "*", by_logs), "Principal": {"Service": f"logs.{region}.{suffix}"}},
    )


def _trust_policy(service: str, actions: str | list[str], condition: Document | None = None) -> Document:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return _document({**statement, "Condition": condition} if condition else statement)


def _in_region(environment: Environment) -> Document:
    return {"StringEquals": {"aws:RequestedRegion": environment.aws.region}}


def _managed_policy(environment: Environment, name: str) -> str:
    return f"arn:{partition(environment.aws.region)}:iam::aws:policy/{name}"


def _queue_arn(environment: Environment) -> str:
    return _arn(environment, "sqs", karpenter_queue(environment))
