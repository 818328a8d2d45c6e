"""The names that every layer shares: labels, annotations, tags, reserved words and length limits."""

from __future__ import annotations

from enum import StrEnum

PREFIX = "tenancy.gpu/"

TENANT = PREFIX + "tenant"
TENANT_TAG = "tenancy:tenant"
"""The same name as a tag on AWS."""
ENVIRONMENT = PREFIX + "environment"
"""Label of every object of this product; an object without it has another manager."""
POOL = PREFIX + "pool"
"""Label and taint of a pool's nodes, and toleration of pods that may use the pool."""
NETWORK_LAYER = "topology.k8s.aws/network-node-layer-"
"""Label of a node, with the layer's number, broadest first: what EKS says of where in the network a node is."""

BOARD = PREFIX + "board"
"""Label of a node: its GPU board."""
LAB_NODE = PREFIX + "lab"
"""Label of the lab's fake nodes."""
LAB_SECONDS = LAB_NODE + "-seconds"
"""Annotation of a pod: how many seconds it runs in the lab before it succeeds, as "5400" or "0.25"."""
LAB_CONTEXT = "gpu-tenancy-lab"
"""Context of the lab's kubeconfig; no other kubeconfig has it."""

PATCH_FORCE_ENVIRONMENT = {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"}
"""Environment variable of the engine: it takes over fields that another manager owns. Without it a run stops there."""

# What the guards read. Annotations, because a list does not fit into a label value.
ALLOWANCES = PREFIX + "allows"
"""Allowances of a namespace's pods, of `Allowance`; without the annotation there are none."""
ALLOWED_ACCOUNTS = PREFIX + "allowed-service-accounts"
ALLOWED_EGRESS = PREFIX + "allowed-egress"
"""`<range>:<port>/<transport>` for each peer that NetworkPolicies of the tenant may allow, and SIBLINGS."""
ALLOWED_INGRESS = PREFIX + "allowed-ingress"
SIBLINGS = "namespaces"
"""Among these peers: the tenant's other namespaces."""
ALLOWED_DEVICE_CLASSES = PREFIX + "allowed-device-classes"
ALLOWED_POOLS = PREFIX + "allowed-pools"
ALLOWED_PRIORITIES = PREFIX + "allowed-priority-classes"
ALLOWED_QUEUES = PREFIX + "allowed-queues"
ALLOWED_REGISTRIES = PREFIX + "allowed-registries"
ALLOWED_RESOURCES = PREFIX + "allowed-resources"
STORAGE_CLASS = "tenancy-gp3"
"""StorageClass for claims of all tenants, if the platform installs the volume provisioner."""
SANDBOX_CLASS = "tenancy-sandbox"
"""RuntimeClass of tenants with isolation: sandbox, the only one of this product."""
ALLOWED_RUNTIMES = PREFIX + "allowed-runtime-classes"
VIRTUAL_CLUSTER = "virtual-cluster"
"""Control plane of a namespace: name of its release and service account, and with `tenancy-` of its ClusterRole."""
TOKEN_ACCOUNTS = PREFIX + "token-service-accounts"
"""Service accounts whose pods get a token of the API server."""
DEFAULT_LIMITS = PREFIX + "default-limits"
"""`<resource>=<quantity>` for each default limit of a container."""
MAX_RUN_SECONDS = PREFIX + "max-run-seconds"
"""Longest run time of a job. Default: no limit."""
SPREAD = PREFIX + "spread"
"""Spreading of replicas over nodes, a value of the spec's `Spread`. Default: as the scheduler spreads all pods."""
SPREAD_OF = SPREAD + "-of"
"""Which pods are spread, of the spec's `SpreadOf`, comma-separated."""
EXCEPTIONS = PREFIX + "exceptions"
"""`<rule>=<date>` for each valid exception, comma-separated."""
OWNER_MAIL = PREFIX + "owner-mail"
KEPT_BY_CLOCK = PREFIX + "kept-by-clock"
"""Annotation of a queue or Cohort whose quota and state `tenancy clock` writes, and the engine only at first."""
SUSPENDED = PREFIX + "suspended"
"""Annotation of a Workload that the clock has suspended: when and why, in a sentence."""
CLOCK = "tenancy-clock"
"""Name of the clock's service account, role, record of usage and field manager."""
RESERVE_QUEUE = "tenancy-reserve"
"""Name of the ClusterQueue, and of the LocalQueue in the platform's namespace, in which the clock reserves GPUs."""
LEAVING = PREFIX + "leaving"
"""Stage of the removal of a namespace's tenant. Default: none, the tenant stays."""
LEFT = "remove"
"""The last stage: on a namespace that existed before its tenant, and is kept without it."""
BEFORE_ADOPTION = PREFIX + "before-adoption"
"""Annotation of an adopted namespace: what its adoption changed, as JSON, to be given back when its tenant has left."""
GUARDS_MODE = PREFIX + "guards"
"""Annotation of a guard's binding that only warns on purpose: `audit`."""
TITLE = PREFIX + "title"


class Allowance(StrEnum):
    """Allowances of a namespace's pods. Each is granted, so a namespace without annotations allows least."""

    ANY_NODE = "any-node"  # nodes that are not the tenant's own
    BESIDE_OTHERS = "beside-others"  # a node beside other tenants' pods
    GPUS_FOR_ALL = "gpus-for-all"  # GPUs for every user that may create work
    IMAGE_TAGS = "image-tags"  # images by tag
    LARGE_CONFIG = "large-config"  # config maps and secrets of up to 1 MiB
    NODE_RUNTIME = "node-runtime"  # the node's own runtime
    SYNCED_NAMES = "synced-names"  # the cluster's names, where a virtual cluster's syncer makes the pod
    WRITABLE_ROOT = "writable-root"  # a root file system that containers write to


GPU_GRANT = ("tenancy.gpu", "gpus", "use")
"""API group, resource and verb of the right to run work on GPUs, if it is granted by name. No API serves them: a guard
asks the authorizer."""

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
"""The keys that Kubecost and OpenCost read by default, and the two keys of a workload's tier."""

CHARGED_LABELS = (TENANT, "team", "owner", "department", "cost-center", "product", "gpu-tier")
"""Labels that bills use: a pod with one of these must have its namespace's value.

`env` and `tier` are not among them: charts set them on pods for other purposes, and no bill uses them alone.
"""

LOADED_LABELS = (
    *("grafana_alert", "grafana_dashboard", "grafana_datasource", "grafana_notifier", "grafana_plugin"),
    *("prometheus_config", "prometheus_rule"),
)
"""Labels of config maps and secrets that sidecars of the collector load from every namespace: the defaults of the
charts of Grafana (`sidecar.*.label`), of Prometheus and of their usual reloaders."""

OWN_LABELS = PREFIX + "own-labels"
"""Annotation: keys of the tenant's own labels, comma-separated. A pod with such a label must have its namespace's
value, and gets this value if it has none."""
MOST_OWN_LABELS = 10
"""Own labels of a namespace. AWS accepts 50 tags on a resource, of which cost tags and the product's tags use 14."""
PLATFORM_DOMAINS = ("kubernetes.io", "k8s.io", "pulumi.com", "cilium.io", "karpenter.sh", "amazonaws.com", "nvidia.com")
"""Domains whose label keys, with their subdomains, have a meaning to the platform: no tenant's file sets them."""

PSA_ENFORCE = "pod-security.kubernetes.io/enforce"
PSA_VERSION = "pod-security.kubernetes.io/enforce-version"

PLATFORM_NAMESPACE = "tenancy-system"
NAMESPACE_TYPE = "kubernetes:core/v1:Namespace"
"""The engine's type of a namespace."""
QUEUE_NAMESPACE = "kueue-system"
"""Namespace of Kueue, if the environment has queues."""
DEFAULT_QUEUE = "default"
"""LocalQueue of work that names no queue, in every tenant's namespace; Kueue defines the name."""
OPERATOR_NAMESPACE = "gpu-operator"
"""Namespace of NVIDIA's operator, on a cluster with nodes."""
SYSTEM_NAMESPACES = ("kube-node-lease", "kube-public", "kube-system", PLATFORM_NAMESPACE)
"""Namespaces where guards do not apply; an environment adds the platform's own."""

IDENTITY_AGENT = "169.254.170.23/32"
"""Address at which a pod gets its credentials from EKS Pod Identity."""
DNS_CACHE = "169.254.20.10/32"
"""Address of NodeLocal DNSCache on each node (kubernetes `cluster/addons/dns/nodelocaldns`)."""
DNS_CACHE_NAME = "node-local-dns"
"""Label of its pods."""
DEFAULT_ACCOUNT = "default"
"""Service account of pods that name none; Kubernetes makes it in every namespace."""
METADATA = ("169.254.169.0/24", "fd00:ec2::253/128", "fd00:ec2::254/128")
"""Link-local addresses of every EC2 instance-type: its metadata service with credentials, and the VPC's resolver."""
SPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace, set by the API server and fixed."""
WORKLOAD_ACCOUNT = "workload"
"""Service account of a namespace with its AWS grants, unless the file names another."""
CI_GROUP = "tenancy:{tenant}:ci"
"""Kubernetes group of a tenant's pipeline; no other identity may be in a group of this form."""

SEPARATOR = "--"
"""Between a tenant's name and the namespace's: no name may contain it, so derived names are injective."""
NAMESPACE_NAME = "{tenant}--{namespace}"
"""Pattern of the names of namespaces, unless an environment has a pattern of its own."""
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


def derived_name(tenant: str, namespace: str) -> str:
    """The cluster-wide name of a tenant's namespace; at most 63 characters by the limits on both."""
    return f"{tenant}{SEPARATOR}{namespace}"
