"""The names that every layer shares: labels, annotations, tags, reserved words and length limits."""

from __future__ import annotations

from enum import StrEnum

PREFIX = "tenancy.gpu/"

TENANT = PREFIX + "tenant"
TENANT_TAG = "tenancy:tenant"
"""The same on AWS, as a tag."""
ENVIRONMENT = PREFIX + "environment"
"""On every object of ours: an object without it was made by somebody else."""
POOL = PREFIX + "pool"
"""Label and taint of a node, and the toleration of whoever may use the pool."""

BOARD = PREFIX + "board"
"""Label of a node: which GPU board it carries."""
LAB_NODE = PREFIX + "lab"
"""Label of the lab's fake nodes."""
LAB_SECONDS = LAB_NODE + "-seconds"
"""Annotation of a pod: how many seconds it runs in the lab before it succeeds, as "5400" or "0.25"."""
LAB_CONTEXT = "gpu-tenancy-lab"
"""Context of the lab's kubeconfig; nothing else has it."""

OVERRULE = {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"}
"""Of the engine's variables: whoever else writes into a field of ours gives way. Without it a run ends there."""

# What the guards read. Annotations, because a list does not fit into a label value.
ALLOWANCES = PREFIX + "allows"
"""What a namespace's pods may leave out, of `Allowance`; without the annotation nothing."""
ALLOWED_ACCOUNTS = PREFIX + "allowed-service-accounts"
ALLOWED_EGRESS = PREFIX + "allowed-egress"
"""`<range>:<port>/<transport>` for each that NetworkPolicies of the tenant's own may open, and SIBLINGS."""
ALLOWED_INGRESS = PREFIX + "allowed-ingress"
SIBLINGS = "parts"
"""Among these, the tenant's other namespaces."""
ALLOWED_DEVICE_CLASSES = PREFIX + "allowed-device-classes"
ALLOWED_POOLS = PREFIX + "allowed-pools"
ALLOWED_PRIORITIES = PREFIX + "allowed-priority-classes"
ALLOWED_QUEUES = PREFIX + "allowed-queues"
ALLOWED_REGISTRIES = PREFIX + "allowed-registries"
ALLOWED_RESOURCES = PREFIX + "allowed-resources"
STORAGE_CLASS = "tenancy-gp3"
"""StorageClass for everybody's claims, where the platform brings what makes volumes."""
SANDBOX_CLASS = "tenancy-sandbox"
"""RuntimeClass of tenants in sandboxes; no other is ours."""
ALLOWED_RUNTIMES = PREFIX + "allowed-runtime-classes"
VIRTUAL_CLUSTER = "virtual-cluster"
"""A part's own control plane: its Helm release, its service account, and the ClusterRole `tenancy-` of that."""
TOKEN_ACCOUNTS = PREFIX + "token-service-accounts"
"""Service accounts whose pods get a token of the API server's."""
DEFAULT_LIMITS = PREFIX + "default-limits"
"""`<resource>=<quantity>` for each limit that a container gets which writes none."""
MAX_RUN_SECONDS = PREFIX + "max-run-seconds"
"""Longest run of a job; absent: no limit."""
SPREAD = PREFIX + "spread"
"""How replicas are spread over nodes, of the spec's `Spread`; absent: as the scheduler spreads everybody's."""
EXCEPTIONS = PREFIX + "exceptions"
"""`<rule>=<date>` for each waiver in force, comma-separated."""
OWNER_MAIL = PREFIX + "owner-mail"
LEAVING = PREFIX + "leaving"
"""Stage at which a namespace's tenant leaves; absent: it stays."""
GUARDS_MODE = PREFIX + "guards"
"""On a guard's binding that only warns, and meant to: `audit`."""
TITLE = PREFIX + "title"


class Allowance(StrEnum):
    """What a namespace's pods may leave out. Each is granted, so that a namespace without its notes allows least."""

    ANY_NODE = "any-node"  # nodes that are not the tenant's own
    BESIDE_OTHERS = "beside-others"  # a node beside other tenants' pods
    GPUS_FOR_ALL = "gpus-for-all"  # GPUs for whoever may make work
    IMAGE_TAGS = "image-tags"  # images by tag
    NODE_RUNTIME = "node-runtime"  # the node's own runtime
    SYNCED_NAMES = "synced-names"  # the cluster's names, where a virtual cluster's syncer makes the pod
    WRITABLE_ROOT = "writable-root"  # a root file system that containers write to


GPU_GRANT = ("tenancy.gpu", "gpus", "use")
"""API group, resource and verb of the right to run work on GPUs, where that is granted by name. Nothing serves them:
a guard asks the authorizer."""

MANAGED_BY = "app.kubernetes.io/managed-by"
PRODUCT = "gpu-tenancy"

COST_LABELS = (
    "team",
    "owner",
    "department",
    "cost-center",
    "product",
    "env",
    "tier",
    "gpu-tier",
)
"""The keys that Kubecost and OpenCost read by default, and the two that say what a workload may ask for."""

CHARGED_LABELS = (TENANT, "team", "owner", "department", "cost-center", "product", "gpu-tier")
"""What a bill is made from: a pod that carries one of these must carry its namespace's value.

Not `env` and `tier`: charts put them on pods for reasons of their own, and no bill is read by them alone.
"""

PSA_ENFORCE = "pod-security.kubernetes.io/enforce"
PSA_VERSION = "pod-security.kubernetes.io/enforce-version"

PLATFORM_NAMESPACE = "tenancy-system"
QUEUE_NAMESPACE = "kueue-system"
"""Of Kueue, wherever there are queues."""
DEFAULT_QUEUE = "default"
"""The queue of work that names none, in every tenant's namespace; Kueue knows it by this name."""
OPERATOR_NAMESPACE = "gpu-operator"
"""Of NVIDIA's operator, on a cluster with machines."""
SYSTEM_NAMESPACES = ("kube-node-lease", "kube-public", "kube-system", PLATFORM_NAMESPACE)
"""Where the guards judge nobody; an environment adds the platform's own."""

IDENTITY_AGENT = "169.254.170.23/32"
"""Where a pod asks for its credentials by EKS Pod Identity."""
DEFAULT_ACCOUNT = "default"
"""Service account of pods that name none; Kubernetes makes it in every namespace."""
METADATA = ("169.254.169.0/24", "fd00:ec2::253/128", "fd00:ec2::254/128")
"""What every machine on EC2 reaches beside the network: its metadata with its credentials, the VPC's resolver."""
SPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace, set by the API server and fixed."""
WORKLOAD_ACCOUNT = "workload"
"""Service account of a part that carries its grants on AWS, unless the file names another."""
CI_GROUP = "tenancy:{tenant}:ci"
"""Kubernetes group of a tenant's pipeline; nobody else may be in a group of this form."""

SEPARATOR = "--"
"""Between a tenant's name and the part: no name may hold it, so derived names are injective."""
TENANT_LENGTH = 30
PART_LENGTH = 31
LABEL_LENGTH = 63

RESERVED_NAMES = frozenset(
    {"all", "cilium", "default", "gpu-operator", "karpenter", "kubecost", "kueue-system", "monitoring"}
    | {"platform", "root", "shared", "system", "tenancy", "tenancy-system"}
)
"""Names that a tenant or an environment may not take; `kube-` and `system-` prefixes beside them."""

RESERVED_PREFIXES = ("kube-", "system-", "eks-", "aws-", "tenancy-")


def repository(environment: str, tenant: str, name: str) -> str:
    """A tenant's repository in the account's registry."""
    return f"{environment}/{tenant}/{name}"


def derived_name(tenant: str, part: str) -> str:
    """The cluster-wide name of a tenant's part; at most 63 characters by the limits on both."""
    return f"{tenant}{SEPARATOR}{part}"
