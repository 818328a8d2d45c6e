"""Every rule once: its id, its reason and what to change when it is broken.

Each row declares where the rule is enforced (its faces). Tests compare that with the code: they fail for a face that is
declared and not implemented, and for one that is implemented and not declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto

from tenancy.catalog.sizes import PODS_OF_WORK


class Severity(StrEnum):
    """What is at risk where a rule is broken."""

    CRITICAL = "critical"  # another tenant's data or devices
    HIGH = "high"  # another tenant's capacity, or a guard that can be bypassed
    MEDIUM = "medium"  # the tenant's own safety, or a wrong bill


class Face(Flag):
    """Where a rule is enforced."""

    SPEC = auto()  # when spec files are read, and before they are planned
    PREVIEW = auto()  # in the policy pack and by `tenancy check`
    API_SERVER = auto()  # by an admission policy
    AWS = auto()  # by IAM, a bucket policy or an AWS service
    ATTACK = auto()  # `tenancy verify` tries to break it on a running cluster


FACES: Mapping[Face, str] = {
    Face.SPEC: "file",
    Face.PREVIEW: "preview",
    Face.API_SERVER: "API server",
    Face.AWS: "AWS",
    Face.ATTACK: "attack",
}
"""Names of the faces, as tables show them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`title` states what must be true, `why` the damage if it is not, and `fix` what to write instead."""

    faces: Face
    id: str
    title: str
    why: str
    fix: str
    severity: Severity = Severity.HIGH
    fix_of_object: str = ""
    """What to change in an object that no spec file describes, where `fix` names a field of a spec file."""
    waivable: bool = False
    advises: bool = False
    """The policy pack only warns, unless it is configured to refuse: correct programs can break the rule too."""
    partial: Mapping[Face, str] = field(default_factory=dict)
    """Why a face finds less than the others, by face. The text completes "this face finds less, because"."""


class Violation(ValueError):
    """A value broke a rule. `given` is what was found, `change` what to write instead."""

    def __init__(self, rule: str, given: str, change: str | None = None) -> None:
        self.rule = RULES[rule]
        self.given = given
        self.change = change or self.rule.fix
        super().__init__(f"given {given}; rule {rule}: {self.rule.title}; change: {self.change}")


_CRITICAL, _HIGH, _MEDIUM = Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM
_SPEC, _PREVIEW, _API_SERVER, _AWS, _ATTACK = Face
_ELSEWHERE = Face(0)  # by `tenancy chargeback` when a bill is made, or by the program before it changes a cluster

_ALL = (
    # Spec files
    Rule(
        _SPEC,
        "name-01",
        "a name is a DNS label without '--', not reserved, at most 30 characters for a tenant and 31 for a namespace",
        "derived names are <tenant>--<namespace>: any other form could make two tenants' names collide",
        "use lower-case letters, digits and single dashes",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "name-02",
        "a name identifies one thing in an environment",
        "two tenants with one name would own each other's objects",
        "rename one of the two",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "name-03",
        "a tenant's namespace has a name of at most 63 characters that is neither reserved nor the platform's nor "
        "unmanaged, with '--' only after its tenant's name",
        "guards do not apply in the platform's namespaces, and a name with '--' says whose namespace it is",
        "change the namespace's namespace-name, or the pattern namespace-name in environment.yaml",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "ref-01",
        "a file refers only to names that the environment declares or the product's catalogue lists",
        "an undeclared tier, flavor, pool or department has no limits, and an undeclared bucket, folder or forge no "
        "owner",
        "declare it in environment.yaml, or use a name that is declared there or that `tenancy catalog` lists",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _PREVIEW,
        "rbac-05",
        "access is granted to groups and users of people, never to system or platform identities",
        "a binding to system:authenticated gives every user and pod of the cluster access to the tenant",
        "name a group or user of the identity provider that belongs to this tenant alone",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _PREVIEW,
        "net-05",
        "address ranges lie outside the cluster and together cover no more than one /8, or one /32 of IPv6; or it is "
        "the internet without private ranges",
        "a wide range, also in pieces, opens the instance metadata service, the nodes and every other tenant",
        "name the range of the service that the tenant needs, or write internet: true under egress",
        _CRITICAL,
        fix_of_object="name the range of the service that the tenant needs under ipBlock.cidr",
    ),
    Rule(
        _SPEC,
        "net-06",
        "network rules by host name need a CNI that enforces them",
        "a plain NetworkPolicy matches addresses only: the rule would match nothing, without an error",
        "set cluster.cni to cilium, or name the service's address range with cidr",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "net-09",
        "encryption between nodes needs a CNI that supports it",
        "the VPC CNI sends pods' traffic unencrypted, whatever the file says",
        "set cluster.cni to cilium, or encryption to none",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _AWS,
        "stor-01",
        "a prefix is relative, of printable ASCII, ends with '/' and contains no wildcard, quote or '..'",
        "'teams/fraud' without the slash also matches 'teams/fraud-2'",
        "write the prefix as 'teams/<tenant>/'",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _AWS,
        "stor-02",
        "two tenants' prefixes do not overlap unless both only read",
        "one tenant could read or overwrite the other's data",
        "give each tenant a prefix of its own",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _AWS,
        "stor-05",
        "a grant that may write but not delete needs a versioned bucket",
        "without versions an overwrite destroys data as a delete does",
        "set versioned to true on the bucket",
    ),
    Rule(
        _SPEC | _AWS,
        "stor-06",
        "a grant is no wider than the tier's storage-access",
        "a tier that may only read could change data that others rely on",
        "narrow the grant's access, or move the namespace to a tier that may write",
    ),
    Rule(
        _SPEC | _AWS,
        "stor-07",
        "a namespace's grants do not overlap",
        "rights add up: the wider grant also applies to the narrower grant's prefix, so the narrower one limits "
        "nothing",
        "write one grant for the prefix, or limit the two to different namespaces",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-01",
        "an ARN is of the environment's own account, partition and region",
        "a resource of another account can be changed by that account at any time",
        "use the ARN of a resource in this account",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-02",
        "a policy document is no longer than AWS accepts",
        "AWS refuses a longer one in the middle of a run, and the tenant keeps its previous rights",
        "give the tenant fewer grants, or one wider prefix",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-03",
        "the account's AWS quotas cover the resources of all tenants together",
        "the resources above a quota fail in the middle of a run",
        "have the quota raised by AWS and write the new value under aws.quotas, or use another account",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-04",
        "a shared role grants only what its session tags separate: prefixes named after the namespace, and shared data",
        "the tags name the namespace and the service account, not the tenant: other grants would apply to all tenants",
        "name the prefix <tenant>--<namespace>/ and limit the grant to that namespace, or set aws.identity to "
        "pod-identity",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-05",
        "a pipeline is one repository and one branch or environment, without a wildcard",
        "a wildcard lets every branch, or every repository of the forge, act as the tenant",
        "name the repository, and one branch or environment",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _AWS,
        "aws-06",
        "an IAM role is mapped to one group of people",
        "an identity that takes the role would be in two groups at once, and no file would show it",
        "give each group a role of its own",
    ),
    Rule(
        _SPEC | _AWS,
        "aws-07",
        "AWS grants belong to a service account other than default",
        "pods that name no service account run as default: all of them would have the grants",
        "name a service account, such as workload",
    ),
    Rule(
        _PREVIEW | _AWS,
        "stor-08",
        "a bucket keeps its objects when the program is destroyed",
        "the bucket may hold the only copy of a tenant's data",
        "drop forceDestroy; empty the bucket by hand before it is removed",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "stor-10",
        "a bucket refuses public access, whatever its policy and its access lists say",
        "one statement or access list that allows everyone publishes every object",
        "set all four fields of the bucket's public access block to true",
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "stor-11",
        "a key of KMS rotates every year",
        "without rotation, key material that leaks decrypts everything that was ever encrypted with it",
        "set enableKeyRotation to true",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "img-04",
        "a tag of a repository always names the same image",
        "a tag that moves brings an image that was not reviewed into running work",
        "set imageTagMutability to IMMUTABLE",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _SPEC,
        "share-01",
        "a share lends no more than its guarantee, and lends or borrows only if its sharing preset allows it",
        "a limit that the preset ignores has no effect",
        "choose sharing: lend or lend-and-borrow, or drop the limit",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "share-03",
        "a tenant borrows GPUs only for work that may be preempted",
        "work that is never preempted would keep GPUs that are guaranteed to another tenant",
        "give a namespace a tier with borrows: true, or drop borrow-up-to",
    ),
    Rule(
        _SPEC,
        "share-04",
        "GPUs are lent and borrowed only through a queue",
        "without a queue, lent GPUs cannot be reclaimed",
        "set queues.scheduler to kueue, or sharing to strict",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "price-01",
        "either all boards of the flavors have a price, or none has",
        "a GPU without a price would count as 0 in a share",
        "write a price for each board, or drop prices",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "queue-01",
        "a queue has at most 64 pools, 64 resources and 512 amounts (pools times resources), and a cluster 16 device "
        "classes",
        "Kueue refuses a larger queue, and does not start with more device classes",
        "open fewer pools to the tenant, or give it fewer flavors",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "queue-02",
        "a namespace's quota has room for one default container for every GPU that the namespace is guaranteed",
        "the queue would admit work whose pods the quota then refuses, and its GPUs would be idle",
        "raise the quota of the tier or the namespace, or lower the default container or the guarantee",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "queue-03",
        "Kueue's memory holds the most work of the largest tenant, and of all tenants divided by object-overcommit",
        "Kueue keeps whole jobs, pods and workloads in memory; if it runs out of memory, no tenant's work starts",
        "lower jobs, pods or ended-pods of the tiers, split the environment into two clusters, or raise "
        "cluster.object-overcommit",
    ),
    Rule(
        _SPEC,
        "time-01",
        "windows, further shares and budgets that bind need the clock",
        "without it queues keep the guarantee that they were made with, and a spent budget stops nothing",
        "set queues.clock to true and run `tenancy clock run`, or drop the field",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "time-02",
        "at every instant the always-on nodes of the pools have all guarantees, windows and further shares",
        "two tenants would count on the same GPUs, and which of them gets them is undefined",
        "move or shorten one of them, or raise nodes (of an autoscaled pool, nodes.min counts)",
    ),
    Rule(
        _SPEC,
        "time-03",
        "a window's lead is longer than a pod's longest grace period, 10 minutes, and at most pods-ready-within",
        "borrowers keep their GPUs for the grace period, and after pods-ready-within Kueue takes back GPUs that were "
        "reclaimed and have no pods yet",
        "write a lead such as 15m, or raise queues.pods-ready-within",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "time-04",
        "a budget in dollars binds only where boards have prices",
        "without prices no amount is ever spent",
        "write prices into the environment, or monthly-gpu-hours into the budget",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "time-05",
        "an idle rule needs the clock, and metrics of GPUs that pods get as extended resources",
        "without them no GPU is ever found idle, and the rule has no effect",
        "set queues.clock to true and metrics.collector to install or existing, or drop the rule",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "time-06",
        "idle work is suspended only in a tier whose work tolerates the loss of its GPU",
        "an inference service without requests at night would be stopped",
        "write then: alert, or interruptible: true if the tier's work tolerates it",
    ),
    Rule(
        _SPEC,
        "pool-01",
        "a tenant has a flavor only if a pool that yields it admits the tenant",
        "pods that ask for the flavor would stay pending for ever",
        "add the tenant or its tier to a pool that yields the flavor",
        _MEDIUM,
    ),
    Rule(
        _SPEC | _PREVIEW,
        "pool-02",
        "a time-sliced or MPS pool serves exactly one tenant",
        "replicas of one GPU share memory and faults: their users are not isolated from each other",
        "name one tenant in the pool's tenants, or use MIG",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "pool-03",
        "the guarantees of a flavor do not exceed the minimum size of its pools",
        "a guarantee above the minimum cannot be met when all tenants use theirs",
        "lower the guarantees, or raise nodes of a pool (of an autoscaled pool, nodes.min counts)",
    ),
    Rule(
        _SPEC | _PREVIEW,
        "mig-01",
        "a MIG layout fits on the board",
        "a layout that does not fit fails on the node, long after it was merged",
        "choose counts whose memory and compute units fit",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "mig-02",
        "strategy single cuts every GPU of a pool into one profile, and no pool of the environment offers whole GPUs",
        "strategy single names slices nvidia.com/gpu: a job for a whole GPU could get a seventh of one",
        "use strategy: mixed, or one profile on all GPUs and no whole GPUs in the environment",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "mig-03",
        "a resource name means one kind of slice for each tenant",
        "1g.10gb is a seventh of one board and a quarter of another: one quota would count both",
        "open the two pools to different tenants, or cut one of them into profiles of another name",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "pool-04",
        "a node's pod limit leaves room for one pod per slice or replica, besides the platform's own pods",
        "slices and replicas above the pod limit can never be used, and are paid for",
        "lower replicas or slices",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "pool-05",
        "spot nodes and shared GPUs serve interruptible tiers only",
        "a spot node is withdrawn with two minutes' notice; a fault on a shared GPU fails the pods of all who share it",
        "move the tenant to on-demand nodes and whole GPUs or slices, or set interruptible on its tier",
    ),
    Rule(
        _SPEC | _PREVIEW | _AWS,
        "pool-06",
        "an EFA pool serves one tenant in one zone, on a type that has EFA",
        "EFA bypasses the operating system: network policies do not apply to it, only the security group does",
        "name one tenant in the pool's tenants, or set efa to false",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "pool-07",
        "a pool's provisioner and purchase option support its size",
        "a managed group is not autoscaled, spot capacity is not guaranteed, and a reservation is in one zone",
        "write a fixed number of nodes for managed, a range for karpenter, and the zone of a reservation",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "pool-08",
        "MPS shares whole GPUs only",
        "the device plugin refuses MPS on a partitioned GPU and offers nothing at all",
        "use time-slicing inside slices, or drop mig",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "pool-09",
        "this product supports a pool's instance type",
        "on other types nodes do not start, or never offer a GPU",
        "choose a type that `tenancy catalog` lists without a reason against it",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "pool-10",
        "nodes that are made elsewhere are of an existing cluster, and those of EKS Auto Mode have whole GPUs by "
        "device plugin",
        "Auto Mode's image and device plugin take no settings: no layout of MIG, no sharing, no DRA driver",
        "use provisioner: managed, karpenter or self-managed for such a pool",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "mig-04",
        "Karpenter knows the slices that a node with partitioned GPUs will offer",
        "EC2 reports whole GPUs only: pods for slices stay pending, and pods for whole GPUs start node after node",
        "make a NodeOverlay for the pool, with one node's count of nvidia.com/mig-<profile> under capacity",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "share-02",
        "a replica of a GPU has a resource name of its own, and no container gets two replicas",
        "a replica named nvidia.com/gpu is taken for a whole GPU, and two replicas may be the same GPU",
        "set renameByDefault and, for time slicing, failRequestsGreaterThanOne to true",
    ),
    Rule(
        _SPEC | _PREVIEW,
        "ami-01",
        "node images are no older than the release that fixes the known container escapes",
        "older container toolkits give an image every GPU of a node, and older runtimes the node itself",
        "use the release of the catalogue, or a newer one",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "ami-02",
        "a node image is named by its release",
        "a reference to the newest image replaces nodes at a time that was not planned, or keeps the first day's image",
        "name a release, such as releaseVersion 1.36.3-20260903 or alias al2023@v20260903",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _SPEC | _PREVIEW | _AWS,
        "eks-01",
        "the API server is private, or open to named ranges",
        "with an endpoint open to the internet, one leaked credential gives access to every tenant",
        "list the ranges of your offices and runners, or leave it private",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _AWS,
        "eks-02",
        "access to the cluster is granted only by access entries, none of them automatic",
        "an identity that edits the config map aws-auth, or created the cluster, administers it without an access "
        "entry",
        "set authenticationMode to API and bootstrapClusterCreatorAdminPermissions to false when the cluster is made",
    ),
    Rule(
        _PREVIEW | _AWS,
        "eks-03",
        "a cluster with tenants on it is not deleted in one step",
        "destroying the wrong stack would delete the work of every tenant",
        "set deletionProtection to true, or protect the resource",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "eks-04",
        "a security group admits no connections from the whole internet",
        "nodes and endpoints behind the group are reached, and attacked, from anywhere",
        "name the address ranges or security groups that connect",
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "node-01",
        "a node's metadata service answers the node and no pod",
        "a pod that reaches it gets the credentials of the node's role, and the user data",
        "set httpTokens to required and httpPutResponseHopLimit to 1 under metadataOptions",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "node-02",
        "volumes of nodes are encrypted, whatever the account's default is",
        "a node's disk holds images, scratch data and secrets of every tenant that ran there",
        "set encrypted on every ebs under blockDeviceMappings, the root volume among them",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "node-03",
        "a node with GPUs has a taint that keeps off pods without GPUs",
        "pods without a GPU fill its CPU and memory, and its GPUs stay idle",
        "give the group or NodePool a taint, nvidia.com/gpu=present:NoSchedule",
    ),
    Rule(
        _PREVIEW,
        "node-04",
        "a reservation is used without a placement group, unless it was made in that group",
        "EC2 looks for capacity in the group, finds no reserved capacity there, and starts no instance",
        "drop the placement group, or make the reservation in it",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "node-05",
        "NVIDIA's operator and its feature discovery tolerate the taints of every pool with GPUs",
        "a node that they cannot run on advertises no GPUs, so no pod can use them",
        "list the taint under daemonsets.tolerations and under node-feature-discovery.worker.tolerations",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "node-06",
        "a daemon set tolerates the taints of the pools with GPUs that it may run on",
        "a node that it does not reach has no driver, no metrics or no network, without an error",
        "tolerate the taint, or select the nodes that it is for",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "node-07",
        "a NodePool with GPU instances has a limit",
        "Karpenter starts nodes for all pending pods: a loop that makes pods uses up the budget or the last capacity",
        "set spec.limits, such as nvidia.com/gpu: 64",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "node-08",
        "kubelets cannot write the node labels by which tenants' work is placed",
        "an attacker with a node's kubelet could label it as another tenant's node and receive that tenant's pods",
        "deny kubelets the label by an admission policy on updates of nodes and nodes/status; on a NodePool, the "
        "prefix node-restriction.kubernetes.io/ does the same",
        advises=True,
        partial={_PREVIEW: "it sees resources that create nodes with such labels, and no request to change a node"},
    ),
    Rule(
        _PREVIEW,
        "node-09",
        "one DCGM server runs on a node with GPUs",
        "with a second one, EKS' node monitoring agent has marked healthy nodes unhealthy, and node repair replaces "
        "such a node with everything that runs on it",
        "set dcgm.enabled to false: the exporter has an engine of its own, and the agent installs its own server",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "node-10",
        "a NodePool with GPUs removes only empty nodes, and none for its age",
        "Karpenter evicts what runs on a node to pack work more tightly, and on a node that expires: a training run "
        "ends, and begins again at its last checkpoint",
        "set spec.disruption.consolidationPolicy to WhenEmpty and spec.template.spec.expireAfter to Never; EKS Auto "
        "Mode takes 504h at most",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _SPEC,
        "ver-01",
        "all components that the platform installs support the cluster's Kubernetes version",
        "a component on a version that its makers do not support fails at the next upgrade, on every node at once",
        "use a Kubernetes version that all components support",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "dra-01",
        "the cluster, its nodes and the driver support device claims where these are used",
        "without support, claims stay pending for ever, or sharing is alpha",
        "use Kubernetes 1.34 or newer and managed pools, or set cluster.devices to plugin",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "exc-01",
        "an exception names a waivable rule, once, and ends within the next 366 days",
        "an exception without an end date is a permanent change of policy without a review",
        "renew the date after a review, by 366 days at most, or remove the exception and what needs it",
    ),
    Rule(
        _ELSEWHERE,
        "custom-01",
        "a program changes no field that isolates a tenant, by `customize` of a component",
        "such a change weakens the isolation of one tenant in one program, where no review of the specs sees it",
        "write it in the spec; for an object in a namespace, an exception in the tenant's spec with an end date waives "
        "it",
        _CRITICAL,
        waivable=True,
    ),
    # Namespaces
    Rule(
        _API_SERVER | _ATTACK,
        "ns-01",
        "only the platform sets labels and annotations of a tenant's namespace",
        "quota, queue, guards and bill all depend on the namespace's labels",
        "ask the platform team to change the tenant's spec file, which they are made from",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "ns-02",
        "a workload runs only in a namespace that belongs to a tenant or to the platform",
        "guards have no data on a namespace without labels, and its cost has no owner",
        "create the namespace through a tenant file, or list it under platform.namespaces or platform.unmanaged",
        _CRITICAL,
    ),
    Rule(
        _SPEC | _PREVIEW,
        "ns-03",
        "a tenant's namespace enforces the restricted Pod Security level, pinned to a version",
        "below restricted, a pod can reach the node, and with it every tenant on the node",
        "set pod-security to restricted, or write an exception with an end date",
        _CRITICAL,
        fix_of_object="set the labels enforce: restricted and enforce-version: v1.36, or the cluster's minor version",
        waivable=True,
    ),
    Rule(
        _PREVIEW,
        "ns-04",
        "every tenant namespace has a quota, a limit range and a default-deny network policy",
        "a namespace without one of them has no limits or accepts all traffic",
        "create all three with the namespace",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "ns-05",
        "only the platform deletes a tenant's namespace",
        "all objects of the tenant in it are deleted too, and an administrator can mistype a name",
        "remove the tenant's file and run tenancy up, as the platform's group",
    ),
    Rule(
        _ELSEWHERE,
        "ns-06",
        "before guards refuse anything, every namespace with work is the platform's, a tenant's or listed as unmanaged",
        "running pods continue, and their replacements are refused: an outage days after the change",
        "list the namespace under platform.unmanaged or platform.namespaces, adopt it by a tenant's file, or set "
        "guards to audit",
    ),
    Rule(
        _PREVIEW,
        "ns-07",
        "a tenant's namespace is removed only after the tenant's file says leaving",
        "everything in the namespace is deleted with it, and a file is more easily deleted by mistake than changed",
        "restore the file or the namespace in it; to remove the tenant, write `leaving: hold` into its file, and after "
        "the next run `leaving: remove`; a program of your own makes its namespaces with protect=True",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "ns-08",
        "an exemption of namespaces from the guards has a last day within the next 366",
        "an exemption that outlives its test suite lets other work bypass the guards",
        "renew the date after a review, or remove the entry",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "cost-01",
        "the cost of an object is charged to the tenant of its namespace",
        "a pod, a volume or a service with another team's label is charged to that team",
        "drop the label; the namespace's value is used",
        _MEDIUM,
        partial={
            _PREVIEW: "it reads labels of Kubernetes' built-in kinds of work, in namespaces that are among the objects"
        },
    ),
    Rule(
        _PREVIEW,
        "cost-02",
        "every object of a tenant has all cost labels",
        "the cost of an object without them has no owner",
        "set all of the labels " + "team, owner, department, cost-center, product, env, tier, gpu-tier",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "cost-03",
        "every AWS resource of a tenant has the tenant's cost tags",
        "AWS bills by tags alone: the cost of a resource without them has no owner",
        "set all of the tags " + "team, owner, department, cost-center, product, env, tier, gpu-tier",
        _MEDIUM,
    ),
    Rule(
        _SPEC,
        "cost-04",
        "a tenant's own labels have keys without a meaning for the platform",
        "a key of Kubernetes, Kueue, Cilium, Karpenter, AWS or of this product decides where pods run and who pays",
        "choose a key without a domain, or with one of your own",
    ),
    # The bill: what `tenancy chargeback` is given
    Rule(
        _ELSEWHERE,
        "bill-01",
        "everything that is billed has a configured price",
        "a bill with a guessed price is wrong",
        "write the pool's price under costs.pools, its board's under prices, or a discount or rate under costs",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-02",
        "a flavor in use on a node is one that the node's pool yields",
        "otherwise the share of the node is unknown: counted as one GPU, a slice would cost seven times as much",
        "name the flavor as environment.yaml does, or declare the pool as it was at that time",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-03",
        "a namespace belongs to one tenant at a time",
        "usage that two tenants claim would be charged to the wrong one, or twice",
        "correct the label of the pods, or the times in the table of namespaces",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-04",
        "usage data covers the whole range",
        "hours without data would cost nothing",
        "choose a range that was recorded, or add the missing rows to the tables",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-05",
        "usage of a node does not exceed what the node has",
        "a row of usage is wrong, or the node is not of the kind that the data says",
        "look for duplicate rows, and check the pool's layout at that time",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-06",
        "every node with usage is in the data",
        "a node that is missing in the data is missing in the bill",
        "add the node and its times to the table of nodes",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-07",
        "a table is complete, and every row of it can be read and counts once",
        "the cost of a skipped row is charged to no tenant, and a row that counts twice is charged twice",
        "correct the row; docs/chargeback.md lists the columns",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-08",
        "all usage belongs to a tenant or to the platform",
        "usage without an owner would be charged to all tenants",
        "name the tenant in the table of namespaces or in a label, or list the namespace under platform.namespaces",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-09",
        "a range, its periods and its time zone are valid",
        "a bill of days that do not exist cannot be checked",
        "write days as 2026-10-01 and zones as Europe/Berlin",
        _MEDIUM,
    ),
    Rule(
        _ELSEWHERE,
        "bill-10",
        "the source of the metrics answers every query",
        "a query that fails would look like no usage",
        "check the address, the token and the metrics that docs/chargeback.md lists",
        _MEDIUM,
    ),
    # Isolation
    Rule(
        _SPEC,
        "iso-01",
        "a tenant with dedicated nodes has pools that admit it alone, and GPUs of no other pool",
        "two tenants on one node share its kernel",
        "name only this tenant under tenants of a pool, and restrict the other pools that yield its flavors",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "iso-02",
        "a tenant with isolation: sandbox has a sandbox runtime, a bare-metal pool and no GPUs",
        "a virtual machine needs hardware virtualization, and takes a GPU only as a whole board with a driver inside",
        "write sandbox in environment.yaml, with a bare-metal pool that admits the tenant",
        _CRITICAL,
    ),
    Rule(
        _SPEC,
        "iso-03",
        "a tenant with isolation: virtual-cluster has all that a virtual cluster needs, and no setting that it cannot "
        "keep",
        "the syncer creates all work under one account, so the host's rules by user or by kind of work do not apply",
        "write virtual-clusters in environment.yaml, and drop settings that the host applies by user or by kind of "
        "work",
        _CRITICAL,
    ),
    # GPU devices
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "gpu-01",
        "a pod uses the runtime class of its namespace",
        "the nvidia runtime classes give access to every GPU of the node, and the node's default runtime is no sandbox",
        "drop runtimeClassName; in a sandboxed namespace set it to tenancy-sandbox",
        _CRITICAL,
        partial={_PREVIEW: "it does not know which tiers are sandboxed, so work without a runtime class passes"},
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "gpu-02",
        "a container does not choose devices by environment variable",
        "NVIDIA_VISIBLE_DEVICES and related variables open GPUs that the scheduler assigned to other pods",
        "drop the variable ('void' and 'none' are fine) and ask for GPUs under resources.limits",
        _CRITICAL,
        partial={_PREVIEW: "it reads variables from config maps and secrets only where these are among the objects"},
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-03",
        "envFrom has no prefix that can form the name of a device variable",
        "prefix NVIDIA_ with key VISIBLE_DEVICES is NVIDIA_VISIBLE_DEVICES",
        "drop the prefix or choose another",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-04",
        "a config map or secret has no key that is the name of a device variable",
        "envFrom would turn the key into the variable, which the guard on pods cannot see",
        "rename the key",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-05",
        "a pod has no CDI annotation",
        "container runtimes inject any device that such an annotation names",
        "drop annotations under cdi.k8s.io and nvidia.cdi.k8s.io",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-06",
        "a container asks only for extended resources that its tenant was granted",
        "a resource that no quota names is unlimited",
        "ask for a granted resource, or have the flavor added to the tenant file",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-07",
        "a pod uses device claims only in a cluster with devices: dra, and only claims of its namespace",
        "elsewhere a device claim bypasses the quota on GPUs",
        "ask for GPUs under resources.limits; with cluster.devices: dra, by resourceClaimTemplateName",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "gpu-08",
        "a device claim asks for a count of devices of granted classes, and a claim template is named after both",
        "allocation mode All, another class, device settings or a toleration reach other tenants' GPUs; a template "
        "that is replaced under the same name takes more devices than the queue counted",
        "name a granted class and a count under exactly; drop config, adminAccess, capacity and tolerations; name a "
        "template <class>-<count>, such as a100-2, with any suffix after a dot",
        _CRITICAL,
        partial={
            _PREVIEW: "it reads classes and templates' names only where a namespace among the objects lists its classes"
        },
    ),
    Rule(
        _PREVIEW,
        "gpu-09",
        "GPUs are assigned by the device plugin or by device claims, not by NRI",
        "with NVIDIA's NRI plugin an annotation of a pod names the GPUs that it gets",
        "set cdi.nriPluginEnabled to false",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-11",
        "only the cluster makes a pod's own claims, from the template that the pod names",
        "a claim that passes for a pod's own gives the pod devices that the queue never counted",
        "drop the controller from ownerReferences and resource.kubernetes.io/pod-claim-name; name the claim in the pod",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-10",
        "where GPUs are granted by name, only users with the grant make work that asks for GPUs, and scale work",
        "GPUs that a user without the grant takes are missing for the work of users who have it",
        "have one of the tenant's gpu-users do it, or be added there; without GPUs, change spec.replicas itself",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "gpu-12",
        "work in an unmanaged namespace asks for no GPU and runs on no node that is reserved for tenants",
        "it is in no quota and no queue, so it would run on GPUs that are guaranteed to tenants",
        "drop GPUs, device claims, nodeName, and tolerations of everything, of nvidia.com/* and of tenancy.gpu/pool; "
        "or run it as a tenant, or as the platform's under platform.namespaces",
    ),
    # Scheduling
    Rule(
        _API_SERVER | _ATTACK,
        "sched-01",
        "a pod tolerates only its own pools' taints, and a GPU taint only if it asks for that GPU",
        "a toleration lets a pod run on another tenant's nodes",
        "drop the toleration; use operator Equal with one of your own pools",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "sched-02",
        "a pod does not name its node",
        "nodeName bypasses the scheduler and with it every taint",
        "drop nodeName; select nodes by label",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "sched-03",
        "pods of a tenant with dedicated nodes run on its own nodes",
        "on any other node it shares the kernel with other tenants",
        "set nodeSelector tenancy.gpu/tenant to the tenant's name",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "sched-04",
        "a pod uses only the priority classes of its namespace",
        "a higher class preempts pods of other tenants",
        "use a class that your namespace lists, or none",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "sched-05",
        "a pod uses the cluster's scheduler",
        "another scheduler would bind the pod regardless of taints and queues",
        "drop schedulerName",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "sched-06",
        "pod affinity stays in the pod's own namespace",
        "required anti-affinity to all namespaces keeps all other pods off a node; preferred terms let the pod's "
        "placement reveal which labels other tenants' pods have, and where they run",
        "drop namespaces and namespaceSelector from required and preferred terms",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "sched-09",
        "a pod has at most 16 terms of each kind of pod affinity",
        "the scheduler compares each term with every pod of the cluster, while all other pods wait",
        "merge terms, or drop the least important ones",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "sched-08",
        "pods of a tenant with apart: true share no node with another tenant's pods",
        "the tenant's file requires it, and the scheduler acts only on what the pod itself says",
        "require anti-affinity by hostname to all pods of namespaces whose tenancy.gpu/tenant exists and is another, "
        "as `tenancy sample` writes it",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "sched-07",
        "a node selector matches existing nodes, whose taints the pod tolerates",
        "otherwise the pod stays pending for ever",
        "select a label that nodes have, and tolerate their taints",
        _MEDIUM,
    ),
    # Queues
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-01",
        "work names a queue of its namespace",
        "work without a queue, or with a queue that does not exist, waits for ever",
        "label the work kueue.x-k8s.io/queue-name: default, or with another name of `kubectl get localqueues`: a queue "
        "on hold takes it, and starts it when it opens",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-02",
        "only controllers set which objects they own",
        "a pod that claims to be part of admitted work, or that leaves it, is not counted: any number of GPUs could "
        "run under a quota of one CPU",
        "leave references with controller: true as they are, and the labels of a job's pods; other references are fine",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-03",
        "only the queue sets scheduling gates, and removes them from pods that it has counted",
        "a pod without the gate runs on GPUs of other tenants; a pod with another gate keeps GPUs and never runs",
        "drop schedulingGates, and wait for the queue: `tenancy why` shows what it waits for",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-04",
        "only the queue starts work, and the controller of its kind runs it",
        "work that is created unsuspended, or is resumed by hand, runs before it is counted",
        "drop suspend: false and managedBy; to stop work of your own set suspend to true",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "kueue-05",
        "a LocalQueue points to a ClusterQueue of its own tenant",
        "a LocalQueue that points to another tenant's ClusterQueue spends that tenant's quota",
        "name a ClusterQueue that begins with the tenant's name and '--'",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-06",
        "work uses only the workload priority classes of its namespace",
        "a higher class is admitted first in every queue of the tenant, and evicts the tenant's other work",
        "use a class that your namespace lists, or drop the label kueue.x-k8s.io/priority-class",
    ),
    Rule(
        _API_SERVER,
        "kueue-07",
        "a container has requests of CPU and memory",
        "the queue counts a container without requests as using nothing",
        "write requests of cpu and memory; the namespace's limit range, where there is one, fills them in",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-08",
        "a tenant sets only those Kueue labels and annotations that are requests to the queue",
        "the others are Kueue's own records: a pod with them passes for counted, for a copy of a counted pod, or for "
        "unmanaged",
        "drop labels and annotations of kueue.x-k8s.io other than queue-name, priority-class, max-exec-time-seconds, "
        "job-min-parallelism, job-completions-equal-parallelism and podset-*-topology; for pods that start together "
        "use a Job",
    ),
    Rule(
        _API_SERVER,
        "kueue-09",
        "a pod waits for the queue unless it is part of work that the queue started",
        "a pod that starts without the queue is not counted",
        "ask the platform team to check the queue's webhooks; the pod itself is correct",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-10",
        "work that runs to completion sets a maximum run time, within the limit of its tier",
        "without it, there is no time by which its GPUs are free again",
        "set the label kueue.x-k8s.io/max-exec-time-seconds to at most tenancy.gpu/max-run-seconds of the namespace",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "kueue-11",
        "a tenant's ClusterQueue admits work of the tenant's own namespaces only",
        "an empty selector lets every namespace spend the quota, and a selector on another tenant's label that tenant",
        "set namespaceSelector to matchLabels: {tenancy.gpu/tenant: <the tenant>}",
    ),
    Rule(
        _PREVIEW,
        "kueue-12",
        "a member of a cohort sets lendingLimit for every resource",
        "without lendingLimit all idle quota is lent, to every member of the cohort tree",
        "write lendingLimit beside every nominalQuota, 0 for quota that is never lent",
    ),
    Rule(
        _PREVIEW,
        "kueue-13",
        "a ClusterQueue that lends can reclaim what it lent",
        "the default of reclaimWithinCohort is Never: the lender waits for its own guarantee",
        "set preemption.reclaimWithinCohort to Any",
    ),
    Rule(
        _PREVIEW,
        "kueue-14",
        "Kueue also manages work that names no queue, and counts GPUs",
        "work without a queue name, or with resources that are not counted, would run at once on GPUs of other tenants",
        "set manageJobsWithoutQueueName to true, and take nvidia.com out of resources.excludeResourcePrefixes",
    ),
    Rule(
        _PREVIEW,
        "kueue-15",
        "Kueue's objects use its current API version, v1beta2",
        "Kueue 0.19 serves no v1alpha1 and Kueue 0.20 no v1beta1, so the API server refuses the object; with v1beta2 "
        "the older fields spec.cohort, spec.parent and admissionChecks are dropped without an error",
        "set apiVersion to kueue.x-k8s.io/v1beta2, cohort of a ClusterQueue to cohortName, and parent of a Cohort to "
        "parentName",
    ),
    Rule(
        _PREVIEW,
        "kueue-16",
        "the nominal quotas of all queues for a flavor do not exceed what its nodes have",
        "quota above the supply cannot be met when all tenants use theirs",
        "lower nominalQuota, or raise the limits of the pool",
    ),
    Rule(
        _PREVIEW,
        "kueue-17",
        "a LocalQueue points to an existing ClusterQueue that admits its namespace",
        "otherwise the namespace's work waits for ever",
        "name a ClusterQueue whose namespaceSelector matches the namespace",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "kueue-18",
        "a ClusterQueue uses existing ResourceFlavors, with labels that nodes have",
        "otherwise its work waits for nodes that never come",
        "make the ResourceFlavor, with nodeLabels of a pool",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "kueue-19",
        "with fair sharing, no ClusterQueue sets borrowWithinCohort",
        "with fair sharing the shares decide what is preempted: Kueue accepts the field and ignores it",
        "drop borrowWithinCohort, or fairSharing from Kueue's configuration",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "kueue-20",
        "every tenant namespace has a LocalQueue named default",
        "work that names no queue uses it; without it such work runs uncounted",
        "make a LocalQueue named default, or set manageJobsWithoutQueueName to true",
    ),
    Rule(
        _PREVIEW,
        "kueue-21",
        "if Kueue converts one GPU resource for fair sharing, it converts every slice that queues offer",
        "a slice without a conversion counts as 0 in a fair share",
        "add an input for each nvidia.com/mig-… under resources.transformations",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW,
        "kueue-22",
        "every member of a cohort is a ClusterQueue of a declared tenant",
        "an undeclared member borrows what the others leave idle",
        "take the ClusterQueue out of the cohort, or select the namespaces of a tenant",
    ),
    Rule(
        _PREVIEW,
        "kueue-23",
        "an admission policy limits the priority classes that a tenant's work may use",
        "without one, any user may name any class: the highest is admitted first everywhere and evicts others' work",
        "bind an admission policy that compares kueue.x-k8s.io/priority-class and priorityClassName with a list",
    ),
    Rule(
        _PREVIEW,
        "kueue-24",
        "in a namespace with a queue, a default, a quota or an admission policy ensures CPU and memory requests",
        "the queue counts a container without requests as using nothing, and it uses capacity guaranteed to others",
        "give a LimitRange defaults of cpu and memory, or require requests by an admission policy",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER,
        "kueue-25",
        "work is deleted together with its pods",
        "pods that outlive their work keep GPUs that the queue has given to other work",
        "delete it with propagationPolicy Background or Foreground, as kubectl does without --cascade=orphan",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-26",
        "the queue counts every pod of a Ray cluster for as long as the pod exists",
        "workers that are not counted, or that outlive the job, run on GPUs that are guaranteed to others",
        "set minReplicas no higher than replicas, and maxReplicas no lower; of a RayJob drop ttlSecondsAfterFinished, "
        "deletionStrategy and clusterSelector",
    ),
    Rule(
        _API_SERVER,
        "kueue-27",
        "running work has no more pods than the queue has counted",
        "further pods run until the queue has stopped the work, and for their grace period after, on GPUs that are "
        "guaranteed to others",
        "suspend the work before its counts are raised, or make further work",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-28",
        "a Job's parallelism is at most its completions, also in a CronJob and in a JobSet",
        "Kueue takes each pod that ends for one that returns its GPUs, and of such a Job another pod starts on them: "
        "its running pods are not counted, and no guarantee reclaims them",
        "set parallelism no higher than completions; that many pods run at most in any case",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-29",
        f"each part of a piece of work has at most {PODS_OF_WORK:,} pods",
        "Kueue multiplies counts of pods in 32 bits: a larger product begins again at 0, and the GPUs of its pods are "
        "not counted",
        "lower replicas, parallelism, size, numOfHosts or numNodes, or make several pieces of work",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-30",
        "the workers of an MPIJob end with its launcher",
        "with the MPI operator's default they keep their GPUs after the launcher has ended, and the queue gives the "
        "same GPUs to other work",
        "set spec.runPolicy.cleanPodPolicy to Running or All",
    ),
    Rule(
        _PREVIEW,
        "kueue-31",
        "Kueue counts the GPUs of a job until it ends, and compares final shares alone before an eviction",
        "with Kueue's defaults a restarted JobSet runs on GPUs that are not counted and cannot be evicted, and jobs of "
        "two tenants can evict each other without end",
        "set featureGates.ReclaimablePods to false, and fairSharing.preemptionStrategies to "
        "LessThanOrEqualToFinalShare alone",
        advises=True,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "kueue-32",
        "each job of a JobSet that says parallelism says completions too, or is NonIndexed",
        "the API server refuses an Indexed job without completions: the JobSet holds its quota for pods that never "
        "come",
        "set completions, or completionMode: NonIndexed",
    ),
    Rule(
        _PREVIEW,
        "kueue-33",
        "a Deployment that waits for the queue has a progress deadline of more than ten minutes",
        "after ten minutes, the default, Kubernetes reports a Deployment that only waits as failed: Helm, Argo CD and "
        "Flux then stop the release or roll it back",
        "set spec.progressDeadlineSeconds above the longest wait that is acceptable, such as 86400 for a day",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "quota-04",
        "a container that asks for more than its namespace's default limit sets its own limit",
        "the queue never admits such work: its requests would exceed its limits",
        "write limits of the same resources; `kubectl describe limitrange` shows the defaults",
        _MEDIUM,
    ),
    # Images, names, storage, services
    Rule(
        _SPEC | _API_SERVER | _ATTACK,
        "img-01",
        "images come from the environment's registries",
        "an image from another registry runs unscanned code next to other tenants",
        "push the image to a registry that the environment lists",
    ),
    Rule(
        _SPEC | _PREVIEW | _API_SERVER | _ATTACK,
        "img-02",
        "an image is named by digest, or by a tag other than latest where the tier takes tags",
        "a tag that moves can come to name an unscanned image",
        "write the image with @sha256:<digest>, or with the tag of a release",
        _MEDIUM,
        partial={_PREVIEW: "it does not know whether a tier takes tags, so any tag but latest passes"},
    ),
    Rule(
        _SPEC,
        "img-03",
        "a registry prefix that is open to all tenants contains no tenant's own repository",
        "nodes can pull every repository of the account, so a tenant that may name the image can run it, weights and "
        "all",
        "write {tenant} into the prefix, and keep images for all tenants under a prefix of their own",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "dns-01",
        "a pod uses the cluster's DNS as it is",
        "hostAliases and other resolvers bypass network rules by host name",
        "drop dnsPolicy, dnsConfig and hostAliases",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "avail-01",
        "a pod ends within ten minutes (600 s)",
        "a long grace period keeps a GPU from the tenant that reclaims it",
        "set terminationGracePeriodSeconds, of the pod and of each probe, or --grace-period, to 600 or less and write "
        "checkpoints on SIGTERM",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "avail-02",
        "a disruption budget leaves room for one eviction",
        "a budget that allows no eviction, or that sets minAvailable, can block the drain of a node that others share",
        "write maxUnavailable, of 1 or more, in place of minAvailable",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "avail-03",
        "a tenant's objects have no finalizers of the tenant's own",
        "if a finalizer is never removed, the object and its namespace are never deleted, and a deleted job's pods "
        "run on",
        "drop metadata.finalizers; clean up in a preStop hook or on SIGTERM",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "avail-04",
        "a pod does not block the drain of its node",
        "one pod that does keeps the node, with the vulnerabilities of its image, in use for any length of time",
        "drop karpenter.sh/do-not-disrupt and cluster-autoscaler.kubernetes.io/safe-to-evict; use a disruption budget",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "avail-05",
        "an object is small: a spec of up to 64 KiB, a config map or secret of up to 256 KiB, metadata of up to "
        "128 KiB, up to 64 labels and 64 annotations of it and of a pod template, up to 32 field managers, and up to "
        "256 entries in a list or a map",
        "above 1.5 MiB etcd accepts no change of an object: it cannot be deleted, evicted or suspended any more, and "
        "a GPU that it borrowed is never returned; below that it fills the memory of the API server and of the queue",
        "put data into a bucket, a volume or an image and read it from there; apply with --server-side, which repeats "
        "no object in an annotation; for config maps of up to 1 MiB ask for a tier with large-config",
        _CRITICAL,
        partial={
            _PREVIEW: "it reads objects with the tenant's label, and no data of config maps, which a tier may extend"
        },
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "avail-07",
        "a CronJob's schedule has five fields, or is a word such as @daily: at most one start a minute",
        "`@every` takes any duration: a few CronJobs that start each second occupy the controllers of all tenants' "
        "CronJobs and Jobs",
        "write five fields, such as */5 * * * *; for a shorter interval let one pod repeat the work",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "avail-06",
        "a pod stays in the API until its containers have ended",
        "a pod that is deleted with a grace period of zero frees quota, queue and devices while its containers run "
        "on: the next pod, of any tenant, is scheduled on GPUs that are still in use",
        "drop --force and --grace-period=0, and set terminationGracePeriodSeconds to 1 or more; the platform removes "
        "the pods of a lost node",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "pod-01",
        "a pod runs on Linux and in the node's own user namespace",
        "for other pods the restricted level drops its checks on root and capabilities",
        "drop os and hostUsers",
    ),
    Rule(
        _PREVIEW,
        "pod-02",
        "a tenant's pod shares nothing of its node: no host namespaces, no hostPath, no privileged container",
        "root on a node can read every other tenant's memory, tokens and GPUs there",
        "drop the field; work that needs the node runs as a daemon set of the platform",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "pod-03",
        "where the tier requires it, containers write only to volumes",
        "an intruder cannot replace a program on a file system that is read-only",
        "set securityContext.readOnlyRootFilesystem to true, and mount an emptyDir where the program writes",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "pod-04",
        "pods and pod templates comply with the Pod Security level that their namespace enforces",
        "Pod Security refuses the pods of a Job and not the Job: the queue would reserve GPUs for work that never "
        "starts",
        "set each field that is named to what its level allows; `tenancy sample` prints a pod that complies",
        partial={_PREVIEW: "fields that give a pod access to its node, such as hostNetwork, are found as pod-02"},
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "pod-05",
        "before Kubernetes 1.34, probes and lifecycle hooks of a pod ask the pod itself",
        "the kubelet sends them from the node's network, past every network policy, to the instance metadata for "
        "example; Pod Security has the check from 1.34 on",
        "drop host from httpGet and tcpSocket of probes and lifecycle hooks",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "quota-03",
        "resources are requested by containers, not by the pod as a whole",
        "a limit range does not check the resources of the pod as a whole",
        "move spec.resources to the containers",
    ),
    Rule(
        _SPEC,
        "quota-06",
        "object quotas of one tenant, and of all tenants divided by object-overcommit, fit into half of the API "
        "server's store",
        "an API server whose store is full accepts no writes, neither from other tenants nor from nodes",
        "lower the counts of the tiers' quotas, split the environment into two clusters, or raise "
        "cluster.object-overcommit",
    ),
    Rule(
        _PREVIEW,
        "quota-05",
        "a tenant's quota names every kind of GPU that the cluster offers",
        "a resource that no quota names is unlimited: one tenant takes every slice that is free",
        "write requests.<resource> for each, 0 for what the tenant does not have",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-01",
        "a service account names no AWS role",
        "the annotation asks for another tenant's identity",
        "the platform binds roles by Pod Identity; drop the annotation",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-02",
        "no secret holds a service account's token",
        "such a token never expires and works from anywhere",
        "mount a projected token, which the kubelet renews",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-03",
        "a projected token is for the API server or for AWS, and valid for one day at most",
        "with a token for another audience a pod can log in to any service that trusts the cluster, under a name that "
        "the service takes for the platform's",
        "drop audience, or use sts.amazonaws.com or pods.eks.amazonaws.com; set expirationSeconds to 86400 or less",
    ),
    Rule(
        _PREVIEW | _AWS,
        "id-04",
        "an IAM role belongs to one tenant",
        "two tenants with one role read and write each other's data",
        "make a role for each tenant's service account",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _AWS,
        "id-05",
        "a role's trust policy names who may take the role: one service account, or one branch of one repository; a "
        "tenant's role trusts no other account",
        "a wildcard, or a token's issuer alone, lets every namespace of the cluster or every repository act as the "
        "tenant; of another account, its administrators choose who does",
        "test the token's :sub with StringEquals for system:serviceaccount:<namespace>:<name>, without a wildcard; "
        "list your own account under the provider's allowedAccountIds",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _AWS,
        "id-06",
        "an IAM policy grants named actions; a tenant's is limited to its prefixes and grants nothing that yields "
        "more rights",
        "s3:* on a bucket covers every tenant's data, and the bucket's policy and encryption too; an identity that "
        "changes policies, or takes others' roles, machines and functions, gets all of their rights",
        "name the actions and bucket/prefix/*, put ListBucket under a condition on s3:prefix, and name the one role "
        "of its own that a tenant passes or takes",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-07",
        "a pod runs as a service account that the tenant's file names",
        "a user who may make pods would act with the rights of every service account in the namespace",
        "drop serviceAccountName, or declare the account under service-accounts of the namespace",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-08",
        "a pod has an API token only if its service account was given one, and no client certificate of the API server",
        "an intruder in a container finds it there and can call the API server with it",
        "set automountServiceAccountToken to false, or api-token on the account in the tenant's file; drop "
        "podCertificate with a signer of kubernetes.io",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "id-10",
        "a change of the platform's objects does not use the field manager of the platform's engine",
        "under that name it passes for a change by the platform, and no report of drift shows it",
        "name another field manager, one that does not begin with pulumi-kubernetes, or none",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _AWS,
        "id-09",
        "a role that pods take has session tags",
        "without tags, a policy that compares the namespace's tag matches no session, and one with IfExists matches "
        "all",
        "drop disableSessionTags",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "net-01",
        "a service is of type ClusterIP, without external addresses, names or controllers' annotations",
        "load balancers, node ports and external names bypass the network policies",
        "use ClusterIP; the platform team publishes services",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "net-07",
        "a pod's annotations choose no network, address, device or sandbox of the node",
        "network plugins and runtimes obey them: the pod could get another network or address, bypass policies or "
        "choose another hypervisor",
        "drop the annotation; kubernetes.io/ingress-bandwidth and egress-bandwidth are fine",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "net-10",
        "only the platform changes its network policies, and no other policy has its label",
        "without the default-deny a namespace is open to all traffic; an owner reference to a tenant's object would "
        "delete the policy together with that object",
        "do not change policies with the label tenancy.gpu/environment; add policies of your own without that label",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "net-11",
        "the cluster chooses a service's address",
        "a chosen address may be that of another service that is not made yet, such as the cluster's DNS",
        "drop clusterIP and clusterIPs; clusterIP: None is fine",
    ),
    Rule(
        _PREVIEW,
        "net-08",
        "a namespace with a default-deny allows egress to the cluster's DNS",
        "without DNS no name resolves, and users then remove the default-deny to make their work run",
        "add an egress rule to kube-dns in kube-system, UDP and TCP 53",
        _MEDIUM,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "stor-03",
        "a PersistentVolumeClaim names a storage class and no volume",
        "a volume name, a selector or an empty class binds a volume that another tenant left behind",
        "set storageClassName; drop volumeName, selector and volume.beta.kubernetes.io/storage-class",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "stor-12",
        "a claim names a storage class, and a class of volume attributes, that the environment lists",
        "a class decides whether a volume is encrypted, whose tags it has, what it costs and with which driver it is "
        "made; on a cluster that exists there are classes for others",
        "set storageClassName to a class of platform.storage-classes, tenancy-gp3 by default; the platform team adds "
        "classes there and under platform.volume-attributes-classes",
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "stor-04",
        "a pod has no inline CSI volume",
        "such a volume is mounted with the driver's own rights, without a claim and outside of the quota",
        "make a PersistentVolumeClaim",
    ),
    Rule(
        _PREVIEW,
        "stor-09",
        "a PersistentVolume of a program is reserved for one claim, and is mounted with the rights of the pod",
        "any namespace may claim a volume without a claimRef; with the driver's rights every pod that mounts a volume "
        "reads what the driver may read",
        "name namespace and claim under claimRef; with Mountpoint for S3 set authenticationSource: pod",
        _CRITICAL,
    ),
    Rule(
        _API_SERVER | _ATTACK,
        "meta-01",
        "labels and annotations have keys that no agent of the platform obeys",
        "an agent has rights of its own in every namespace: by a key a pod keeps its node from an upgrade or from "
        "being removed, writes into another tenant's logs or leaves a mesh, a claim changes its volume's price and "
        "tags, and a secret becomes a copy of another tenant's",
        "drop the key, or use one without a domain or under the domain of your owner's mail address; the platform team "
        "adds keys that its agents may obey under platform.keys",
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "obs-01",
        "the platform's dashboards and collectors load no config map or secret of a tenant",
        "a sidecar that watches all namespaces loads what has its label: dashboards, data sources and alerts that the "
        "platform and other tenants see",
        "drop the label; the platform team adds dashboards and alerts",
        _MEDIUM,
    ),
    # Objects that platform programs make
    Rule(
        _SPEC | _PREVIEW,
        "quota-01",
        "a quota has only keys that the API server accepts and enforces",
        "'limits.nvidia.com/gpu' and a bare 'nvidia.com/gpu' are stored and never counted; the API server refuses a "
        "quota with a key such as 'count/a/b', and the update ends there",
        "write extended resources as requests.<domain>/<name>",
    ),
    Rule(
        _SPEC | _PREVIEW,
        "quota-02",
        "a limit range names no GPU, and no maximum without a default",
        "a maximum without a default is the default: pods get GPUs, huge pages or a whole node's memory that they do "
        "not ask for",
        "cap GPUs and huge pages by quota and drop them from the limit range; write a default beside each maximum",
    ),
    Rule(
        _PREVIEW,
        "rbac-01",
        "a tenant's role has no wildcard",
        "'*' grants pods/status, namespaces and every resource that is installed later",
        "list the resources and verbs",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "rbac-02",
        "a tenant's role cannot escalate, bind, impersonate, approve or mint tokens",
        "each of these verbs is a way to every other right",
        "drop the verb or resource",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "rbac-03",
        "a tenant's role can only read the objects that limit the tenant",
        "a tenant that can write quotas, limit ranges, network policies or bindings is not limited by them",
        "grant get, list and watch only",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "rbac-04",
        "a tenant gets namespaced rights only, and rights like cluster-admin belong to groups and service accounts of "
        "the platform",
        "a ClusterRoleBinding grants rights in all namespaces, those of every other tenant among them",
        "bind the role with a RoleBinding in the tenant's namespaces; for the platform name a group of its own",
        _CRITICAL,
    ),
    Rule(
        _ELSEWHERE,
        "rbac-07",
        "the identity that deploys is in the platform's group",
        "guards let only that group change tenants' namespaces, whatever other rights an identity has",
        "add the identity to platform.group, or deploy as one that is in it",
    ),
    Rule(
        _PREVIEW,
        "rbac-06",
        "a binding names a role that exists",
        "the user who later makes a role of that name decides what the tenant may do",
        "name a role that is among the objects, or drop the binding",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _API_SERVER | _ATTACK,
        "net-02",
        "a network policy in a tenant's namespace allows only traffic that the tenant's file allows",
        "policies add up: one that admits all namespaces undoes the default-deny",
        "select pods of the same namespace, or name ranges with ports exactly as under egress and ingress",
        _CRITICAL,
        fix_of_object="select pods of the same namespace by podSelector, or name ranges under ipBlock.cidr, with ports",
        partial={
            _PREVIEW: (
                "it does not know who makes a policy: one with the platform's label counts as the platform's; and "
                "only namespaces that this product made show what a tenant's file allows"
            )
        },
    ),
    Rule(
        _PREVIEW,
        "guard-01",
        "an admission policy fails closed and its binding denies",
        "with failurePolicy Ignore or only Audit, a typo admits everything",
        "set failurePolicy to Fail and validationActions to [Deny]",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "guard-02",
        "an admission policy has a binding, and a binding names a policy that exists",
        "a policy without a binding is not enforced, although it looks as if it were",
        "make a ValidatingAdmissionPolicyBinding with policyName and validationActions [Deny]",
        _CRITICAL,
    ),
    Rule(
        _PREVIEW,
        "guard-03",
        "guards only warn as long as a cluster is being adopted",
        "until guards enforce, violations are admitted and tenants are not isolated",
        "correct what `tenancy report adoption` finds, then set guards to enforce in environment.yaml",
        _CRITICAL,
        advises=True,
    ),
    # Only in the preset `regulated`
    Rule(
        _PREVIEW | _AWS,
        "reg-01",
        "a tenant's work shares no node with another tenant's work",
        "after a container escape on a shared node, the data of the other tenants there can be read",
        "name a pool of its own under tenancy.gpu/allowed-pools of the namespace, or require podAntiAffinity "
        "on kubernetes.io/hostname against namespaces of other tenants",
    ),
    Rule(
        _PREVIEW | _AWS,
        "reg-02",
        "secrets, volumes, buckets and logs are encrypted with a customer-managed key",
        "with an AWS-owned key you cannot see or revoke who may decrypt",
        "name a key of KMS: encryptionConfig, kmsKeyId, or kmsMasterKeyId of a bucket's encryption configuration",
    ),
    Rule(
        _PREVIEW | _AWS,
        "reg-03",
        "a log group sets how long its logs are kept",
        "without a retention period logs are kept for ever, or are deleted without a decision",
        "set retentionInDays to what your auditors ask for",
        _MEDIUM,
    ),
    Rule(
        _PREVIEW | _AWS,
        "reg-04",
        "the control plane writes an audit log",
        "without it, there is no record of who read or changed what",
        "list audit under enabledClusterLogTypes",
    ),
    Rule(
        _PREVIEW,
        "seen-01",
        "the objects of a chart are checked before the chart is installed for a tenant",
        "a release does not show its objects to the policy pack: no rule has checked them",
        "put helm on the path, check the rendered chart in the same pipeline, or install it with a Chart",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "seen-02",
        "values that rules read are known in a preview",
        "a value that is not known yet has not been checked; it is checked in the update, once it is known",
        "write the value itself where possible; an Output of another resource is not known in a preview",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        _PREVIEW,
        "seen-03",
        "an object has the form that the API accepts",
        "rules cannot check what they cannot read",
        "write it as the API accepts it; `kubectl explain` shows the form",
        _MEDIUM,
    ),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}


def with_face(face: Face) -> tuple[str, ...]:
    """Ids of the rules that have a face."""
    return tuple(rule.id for rule in _ALL if face in rule.faces)
