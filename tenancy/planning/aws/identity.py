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

from tenancy.catalog import vocabulary as words
from tenancy.catalog.account import INLINE_LENGTH as INLINE_LENGTH
from tenancy.catalog.account import TRUST_LENGTH as TRUST_LENGTH
from tenancy.planning.aws.documents import Document as Document
from tenancy.planning.aws.documents import allow as _allow
from tenancy.planning.aws.documents import arn as _arn
from tenancy.planning.aws.documents import deny as _deny
from tenancy.planning.aws.documents import document as _document
from tenancy.planning.aws.documents import partition as partition
from tenancy.planning.aws.documents import suffix as _suffix
from tenancy.planning.common.names import CLUSTER_TAG, EKS_GROUP_TAG, aws_name, karpenter_queue, node_role
from tenancy.schema.environment import Environment

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
    made = {
        CLUSTER: _cluster(environment),
        NODE: _node(environment),
        VPC_CNI: _of_pods(
            environment, VPC_CNI, "aws-node", inline={"interfaces": _document(*_interfaces(environment))}
        ),
        EBS_CSI: _of_pods(environment, EBS_CSI, "ebs-csi-controller-sa", managed=(EBS_POLICY,)),
    }
    if any(pool.scales for pool in environment.pools.values()):
        made[KARPENTER] = _of_pods(environment, KARPENTER, "karpenter", inline=_karpenter(environment))
    return made


def role_arn(environment: Environment, role: RolePlan) -> str:
    """ARN of a role of the platform."""
    return _arn(environment, "iam", f"role/{role.name}", region="")


def cluster_arn(environment: Environment) -> str:
    """ARN of the EKS cluster."""
    return _arn(environment, "eks", f"cluster/{environment.cluster.name}")


def key_alias(environment: Environment) -> str:
    """Alias of the key that is made for the cluster: a name for what only AWS can give an id."""
    return f"alias/{words.PRODUCT}/{environment.cluster.name}"


def volume_key(environment: Environment) -> str:
    """Key with which EC2 encrypts the volumes that Karpenter and the CSI driver create."""
    return environment.aws.encryption_key or key_alias(environment)


def log_group_prefix(environment: Environment) -> str:
    """How the names of all log groups begin that the cluster's key may encrypt."""
    return f"/aws/eks/{environment.cluster.name}/"


def _cluster(environment: Environment) -> RolePlan:
    condition = {
        "StringEquals": {"aws:SourceAccount": environment.aws.account},
        "ArnEquals": {"aws:SourceArn": cluster_arn(environment)},
    }
    return RolePlan(
        aws_name(environment, CLUSTER),
        _trust("eks.amazonaws.com", "sts:AssumeRole", condition),
        managed=(_managed(environment, "AmazonEKSClusterPolicy"),),
    )


def _node(environment: Environment) -> RolePlan:
    """The nodes' role, which a pod that escapes to the node's network gets: it pulls images and describes the node.

    No right to change the network, which is the CNI's own role, and no shell by Session Manager.
    """
    # Auto Mode's minimum: with AmazonEKSWorkerNodePolicy a node could read the whole network of the account.
    managed = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
    # nodeadm names the node after what DescribeInstances says, and asks for pods of a type that is newer than itself.
    born = _allow("DescribeItself", ["ec2:DescribeInstances", "ec2:DescribeInstanceTypes"], "*", _here(environment))
    return RolePlan(
        node_role(environment),
        _trust(f"ec2.{_suffix(environment)}", "sts:AssumeRole"),
        managed=tuple(_managed(environment, policy) for policy in managed),
        inline={"nodeadm": _document(born)},
    )


def _of_pods(
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
        _trust("pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"], condition),
        managed=tuple(_managed(environment, policy) for policy in managed),
        inline=inline or {},
        service_account=(namespace, service_account),
    )


def _interfaces(environment: Environment) -> list[Document]:
    """What the VPC CNI calls, on interfaces and instances that carry this cluster's tag and no others.

    AWS' `AmazonEKS_CNI_Policy` allows all interfaces of the account. The actions are those of amazon-vpc-cni-k8s
    `docs/iam-policy.md`, "Scope-down IAM policy per EKS cluster" (3ecdfeb, read 2026-11-27), with two differences: the
    tag is our own, which nodes' first interfaces have from their start and the CNI gives to others
    (`ADDITIONAL_ENI_TAGS`), and an interface may be tagged only when it is created or when it carries the tag already.
    """
    interfaces, instances, groups = (
        _arn(environment, "ec2", f"{kind}/*") for kind in ("network-interface", "instance", "security-group")
    )
    name = environment.cluster.name
    has = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": name}}
    of_eks = {"StringEquals": {f"aws:ResourceTag/{EKS_GROUP_TAG}": name}}
    asked = {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": name}}
    created = {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}
    given = environment.aws.network.subnets.values()
    # A given subnet has none of our tags, and may be another account's, shared with this one.
    subnets = [_arn(environment, "ec2", f"subnet/{subnet}", account="*") for subnet in sorted(given)]
    described = ("Instances", "InstanceTypes", "NetworkInterfaces", "SecurityGroups", "Subnets", "Tags")
    attach, change = ["ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface"], "ec2:ModifyNetworkInterfaceAttribute"
    addresses = ["ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses", "ec2:DeleteNetworkInterface"]
    create = ["ec2:CreateNetworkInterface"]
    return [
        _allow("ReadNetwork", [f"ec2:Describe{each}" for each in described], "*", _here(environment)),
        _allow("CreateTaggedInterfaces", create, interfaces, asked),
        _allow("CreateInOwnSubnets", create, subnets)
        if subnets
        else _allow("CreateInOwnSubnets", create, _arn(environment, "ec2", "subnet/*"), has),
        _allow("UseGroupOfCluster", [*create, change], groups, of_eks),
        _allow("UseGroupsOfPools", [*create, change], groups, has),
        _allow("TagCreatedInterfaces", ["ec2:CreateTags"], interfaces, created),
        _allow("TagOwnInterfaces", ["ec2:CreateTags"], interfaces, has),
        _allow("ChangeOwnInterfaces", [*attach, change, *addresses], interfaces, has),
        _allow("AttachToOwnInstances", [*attach, change], instances, has),
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
    made = [
        _arn(environment, "ec2", f"{kind}/*")
        for kind in ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
    ]
    # Subnets and reservations may be another account's, shared with this one; images are Amazon's.
    used = [_arn(environment, "ec2", f"{kind}/*", account="") for kind in ("image", "snapshot")]
    used += [_arn(environment, "ec2", f"{kind}/*", account="*") for kind in ("security-group", "subnet")]
    reserved = {pool.purchase.reserved for pool in environment.pools.values() if pool.scales}
    used += [
        _arn(environment, "ec2", f"capacity-reservation/{each}", account="*") for each in sorted(filter(None, reserved))
    ]
    owned = f"kubernetes.io/cluster/{name}"
    asked = {f"aws:RequestTag/{owned}": "owned", "aws:RequestTag/eks:eks-cluster-name": name}
    has = {f"aws:ResourceTag/{owned}": "owned"}
    some_pool_asked = {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    has_some_pool = {"aws:ResourceTag/karpenter.sh/nodepool": "*"}
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    later = ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
    template = _arn(environment, "ec2", "launch-template/*")
    instance = _arn(environment, "ec2", "instance/*")
    return [
        _allow("UseWhatIsThere", launch, used),
        _allow("UseOwnTemplates", launch, template, {"StringEquals": has, "StringLike": has_some_pool}),
        _allow(
            "CreateTagged",
            [*launch, "ec2:CreateLaunchTemplate"],
            made,
            {"StringEquals": asked, "StringLike": some_pool_asked},
        ),
        _allow(
            "TagWhatIsCreated",
            ["ec2:CreateTags"],
            made,
            {
                "StringEquals": {
                    **asked,
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": some_pool_asked,
            },
        ),
        _allow(
            "NameOwnInstances",
            ["ec2:CreateTags"],
            instance,
            {
                "StringEquals": has,
                "StringLike": has_some_pool,
                "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": name},
                "ForAllValues:StringEquals": {"aws:TagKeys": later},
            },
        ),
        _allow(
            "DeleteOwn",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [instance, template],
            {"StringEquals": has, "StringLike": has_some_pool},
        ),
    ]


def _instance_profiles(environment: Environment) -> list[Document]:
    """Profiles in the cluster's own path, around the nodes' role and no other."""
    name, region = environment.cluster.name, environment.aws.region
    profiles = _arn(environment, "iam", "instance-profile/*", region="")
    own = _arn(environment, "iam", f"instance-profile/karpenter/{region}/{name}/*", region="")
    owned, here, of_class = (
        f"kubernetes.io/cluster/{name}",
        "topology.kubernetes.io/region",
        "karpenter.k8s.aws/ec2nodeclass",
    )
    asked = {
        f"aws:RequestTag/{owned}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": name,
        f"aws:RequestTag/{here}": region,
    }
    has = {f"aws:ResourceTag/{owned}": "owned", f"aws:ResourceTag/{here}": region}
    class_asked, has_class = {f"aws:RequestTag/{of_class}": "*"}, {f"aws:ResourceTag/{of_class}": "*"}
    return [
        _allow(
            "PassNodeRole",
            ["iam:PassRole"],
            _arn(environment, "iam", f"role/{node_role(environment)}", region=""),
            {"StringEquals": {"iam:PassedToService": f"ec2.{_suffix(environment)}"}},
        ),
        _allow(
            "CreateProfiles", ["iam:CreateInstanceProfile"], own, {"StringEquals": asked, "StringLike": class_asked}
        ),
        _allow(
            "TagOwnProfiles",
            ["iam:TagInstanceProfile"],
            own,
            {"StringEquals": {**has, **asked}, "StringLike": {**has_class, **class_asked}},
        ),
        _allow(
            "ChangeOwnProfiles",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            own,
            {"StringEquals": has, "StringLike": has_class},
        ),
        # One that is gone has no path: asked for within the path alone, it would be forbidden instead of not found.
        _allow("ReadProfiles", ["iam:GetInstanceProfile"], profiles),
        _allow("ListProfiles", ["iam:ListInstanceProfiles"], "*"),
    ]


def _discovery(environment: Environment) -> list[Document]:
    what = (
        "CapacityReservations Images Instances InstanceStatus InstanceTypeOfferings InstanceTypes LaunchTemplates "
        "SecurityGroups SpotPriceHistory Subnets"
    )
    images = _arn(environment, "ssm", "parameter/aws/service/eks/optimized-ami/*", account="")
    return [
        _allow("ReadEc2", [f"ec2:Describe{each}" for each in what.split()], "*", _here(environment)),
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
    ours = {"aws:PrincipalOrgID": aws.organization} if aws.organization else {"aws:PrincipalAccount": aws.account}
    writes = ["s3:CreateBucket", "s3:DeleteObject*", "s3:Put*"]
    return _document(
        {**_allow("Everything", ["s3:*"], "*"), "Principal": "*"},
        _deny("NoWritesWithForeignKeys", writes, "*", {"StringNotEquals": ours}, principal="*"),
    )


_USE = [
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
]
_ADMINISTER = [
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
            **_allow("Administer", [*_ADMINISTER, "kms:DescribeKey"], "*"),
            "Principal": {"AWS": _arn(environment, "iam", "root", region="")},
        },
        # As AWS' own key for EBS: principals that may create the volume, such as Karpenter and the CSI driver.
        {**_allow("Volumes", [*_USE, "kms:CreateGrant"], "*", by_volumes), "Principal": any_principal},
        # Managed node groups are Auto Scaling groups.
        {**_allow("VolumesOfNodeGroups", _USE, "*", by_scaling), "Principal": any_principal},
        {**_allow("GrantsOfNodeGroups", ["kms:CreateGrant"], "*", for_aws), "Principal": any_principal},
        {**_allow("Logs", _USE, "*", by_logs), "Principal": {"Service": f"logs.{region}.{suffix}"}},
    )


def _trust(service: str, actions: str | list[str], condition: Document | None = None) -> Document:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return _document({**statement, "Condition": condition} if condition else statement)


def _here(environment: Environment) -> Document:
    return {"StringEquals": {"aws:RequestedRegion": environment.aws.region}}


def _managed(environment: Environment, name: str) -> str:
    return f"arn:{partition(environment.aws.region)}:iam::aws:policy/{name}"


def _queue_arn(environment: Environment) -> str:
    return _arn(environment, "sqs", karpenter_queue(environment))
