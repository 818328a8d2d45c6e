"""Every rule once: its id, why it is there and what to do when it says no.

The faces of a rule (spec check, policy pack, guard, attack) refer to it by id; which of them exist is
read off the code that implements them (`tenancy rules`), never written down twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    CRITICAL = "critical"  # another tenant's data or devices
    HIGH = "high"  # another tenant's capacity, or a guard that can be stepped around
    MEDIUM = "medium"  # the tenant's own safety, or a wrong bill


@dataclass(frozen=True, slots=True)
class Rule:
    """`title` completes "this is refused because"; `fix` says what to write instead."""

    id: str
    title: str
    why: str
    fix: str
    severity: Severity = Severity.HIGH
    waivable: bool = False
    advises: bool = False
    """The policy pack warns and refuses nothing, unless it is configured to: what is meant well can look like this."""


class Violation(ValueError):
    """A value broke a rule. `given` is what was found, `change` what to write instead."""

    def __init__(self, rule: str, given: str, change: str | None = None) -> None:
        self.rule = RULES[rule]
        self.given = given
        self.change = change or self.rule.fix
        super().__init__(f"given {given}; rule {rule}: {self.rule.title}; change: {self.change}")


_CRITICAL, _HIGH, _MEDIUM = Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM

_ALL = (
    # What people write
    Rule(
        "name-01",
        "a name is a DNS label without '--', not reserved, at most 30 characters for a tenant and 31 for a part",
        "derived names are <tenant>--<part>: any other form could make two tenants' names collide",
        "use lower-case letters, digits and single dashes",
        _CRITICAL,
    ),
    Rule(
        "name-02",
        "a name means one thing in an environment",
        "two tenants with one name would own each other's objects",
        "rename one of the two",
        _CRITICAL,
    ),
    Rule(
        "ref-01",
        "what a file refers to is declared in the environment",
        "a tier, flavor, pool or department that nobody declared has no limits",
        "declare it in environment.yaml, or name one that is declared there",
        _MEDIUM,
    ),
    Rule(
        "rbac-05",
        "access is given to people's own groups and users, never to system or platform identities",
        "a binding to system:authenticated opens a tenant to everybody",
        "name a group or user of the identity provider that belongs to this tenant alone",
        _CRITICAL,
    ),
    Rule(
        "net-05",
        "an address range leads out of the cluster and is no wider than /8",
        "a wide range opens the instance metadata service, the nodes and every other tenant",
        "name the range of the service that the tenant needs",
        _CRITICAL,
    ),
    Rule(
        "net-06",
        "host names need a CNI that can hold them",
        "a plain NetworkPolicy knows addresses only, so the rule would be silently empty",
        "set cluster.cni to cilium, or name the service's address range with cidr",
        _MEDIUM,
    ),
    Rule(
        "stor-01",
        "a prefix is relative, ends with '/' and holds no wildcard or '..'",
        "'teams/fraud' without the slash also matches 'teams/fraud-2'",
        "write the prefix as 'teams/<tenant>/'",
        _CRITICAL,
    ),
    Rule(
        "stor-02",
        "two tenants' prefixes do not overlap unless both only read",
        "one tenant could read or overwrite the other's data",
        "give each tenant a prefix of its own",
        _CRITICAL,
    ),
    Rule(
        "stor-05",
        "who may not delete writes where old versions are kept",
        "an overwrite destroys what a delete would",
        "set versioned to true on the bucket",
    ),
    Rule(
        "stor-06",
        "a grant is no wider than the tier's storage-access",
        "a tier that only reads would change what others rely on",
        "narrow the grant's access, or move the part to a tier that may write",
    ),
    Rule(
        "stor-07",
        "a part's grants do not overlap",
        "rights add up: the wider grant holds in all of the narrower one, whatever that promises",
        "write one grant for the prefix, or limit the two to different parts",
        _MEDIUM,
    ),
    Rule(
        "aws-01",
        "an ARN is of the environment's own account, partition and region",
        "what another account owns, another account changes",
        "name one of this account",
        _CRITICAL,
    ),
    Rule(
        "aws-02",
        "a policy is no longer than AWS takes",
        "AWS refuses it in the middle of a run, and the tenant keeps what it had",
        "give the tenant fewer grants, or one wider prefix",
        _MEDIUM,
    ),
    Rule(
        "aws-03",
        "the account holds what all tenants need together",
        "the tenant that is one too many fails in the middle of a run",
        "have the quota raised and write it under aws.quotas, or use another account",
        _MEDIUM,
    ),
    Rule(
        "aws-04",
        "a shared role grants what its session tags tell apart: prefixes called like the namespace, and what all read",
        "the tags carry namespace and service account and no tenant: everything else would be everybody's",
        "call the prefix <tenant>--<part>/ and limit it to the part, or set aws.identity to pod-identity",
        _CRITICAL,
    ),
    Rule(
        "aws-05",
        "a pipeline is one repository and one branch or environment, without a wildcard",
        "a wildcard lets every branch, or every repository of the forge, become the tenant",
        "name the repository, and one branch or environment",
        _CRITICAL,
    ),
    Rule(
        "aws-06",
        "an IAM role stands for one group of people",
        "whoever takes it would be in two groups at once, and no file says so",
        "give each group a role of its own",
    ),
    Rule(
        "aws-07",
        "grants are carried by a service account of their own",
        "pods that name no service account run as default: all of them would have the grants",
        "name a service account, such as workload",
    ),
    Rule(
        "share-01",
        "a share lends at most what is guaranteed, and lends or borrows only if its preset says so",
        "a limit that the preset ignores promises something that never happens",
        "choose sharing: lend or lend-and-borrow, or drop the limit",
        _MEDIUM,
    ),
    Rule(
        "share-03",
        "a tenant borrows only for work that may be called back",
        "what never gives way would keep what belongs to somebody else",
        "give a part a tier with borrows: true, or drop borrow-up-to",
    ),
    Rule(
        "share-04",
        "GPUs are lent and borrowed through a queue",
        "without one nobody can take back what was lent",
        "set queues.scheduler to kueue, or sharing to strict",
        _MEDIUM,
    ),
    Rule(
        "price-01",
        "either every board of the flavors has a price or none",
        "a GPU without a price would count for nothing in a share",
        "write the price of each, or drop prices",
        _MEDIUM,
    ),
    Rule(
        "queue-01",
        "a queue has at most 64 pools, 64 resources and 512 amounts of them",
        "Kueue refuses a queue with more than that",
        "open fewer pools to the tenant, or give it fewer flavors",
        _MEDIUM,
    ),
    Rule(
        "queue-02",
        "a part's quota takes a default container for every GPU that the part is promised",
        "the queue would start work whose pods the quota then refuses, and its GPUs would lie idle",
        "raise the quota of the tier or the part, or lower the default request or the guarantee",
        _MEDIUM,
    ),
    Rule(
        "pool-01",
        "a tenant holds a flavor only if a pool that yields it admits the tenant",
        "the GPUs would stay pending for ever",
        "add the tenant or its tier to a pool that yields the flavor",
        _MEDIUM,
    ),
    Rule(
        "pool-02",
        "a time-sliced or MPS pool serves exactly one tenant",
        "replicas of one GPU share memory and faults: nothing isolates their users",
        "name one tenant in the pool's tenants, or use MIG",
        _CRITICAL,
    ),
    Rule(
        "pool-03",
        "what is guaranteed of a flavor does not exceed what its pools surely have",
        "a guarantee above the supply is broken the day somebody calls it in",
        "lower the guarantees or raise nodes (for an autoscaled pool its minimum counts)",
    ),
    Rule(
        "mig-01",
        "a MIG layout fits on the board",
        "a layout that does not fit fails on the node, long after it was merged",
        "choose counts whose memory and compute units fit",
        _MEDIUM,
    ),
    Rule(
        "mig-02",
        "strategy single cuts every GPU of a pool into one profile, and no pool offers whole GPUs beside it",
        "single calls slices nvidia.com/gpu: a job for a whole GPU would land on a seventh of one",
        "use strategy: mixed, or one profile on all GPUs and no whole GPUs in the environment",
        _MEDIUM,
    ),
    Rule(
        "mig-03",
        "a resource name means one kind of slice to whoever may use it",
        "1g.10gb is a seventh of one board and a quarter of another: one quota would count both",
        "open the two pools to different tenants, or cut one of them into profiles of another name",
        _MEDIUM,
    ),
    Rule(
        "pool-04",
        "a node takes a pod for every slice or replica that it yields, beside the platform's own pods",
        "what is above the node's limit on pods can never be used, and is paid for",
        "lower replicas or slices",
        _MEDIUM,
    ),
    Rule(
        "pool-05",
        "spot nodes and shared GPUs serve interruptible tiers only",
        "a spot node goes with two minutes' notice; a shared GPU fails for all when it fails for one",
        "move the tenant to on-demand nodes and whole GPUs or slices, or set interruptible on its tier",
    ),
    Rule(
        "pool-06",
        "an EFA pool serves one tenant in one zone, on a type that has EFA",
        "EFA bypasses the operating system: no network policy sees it, only the security group does",
        "name one tenant in the pool's tenants, or set efa to false",
        _CRITICAL,
    ),
    Rule(
        "pool-07",
        "a pool is bought and made in a way that can hold its size",
        "nothing scales a managed group, nobody can promise spot, a reservation is in one zone",
        "write a fixed number for managed, a range for karpenter, the zone of a reservation",
        _MEDIUM,
    ),
    Rule(
        "pool-08",
        "MPS shares whole GPUs only",
        "the device plugin refuses MPS on a partitioned GPU and offers nothing at all",
        "use time-slicing inside slices, or drop mig",
        _MEDIUM,
    ),
    Rule(
        "pool-09",
        "a pool's instance type can be run by this product",
        "its nodes would boot and never offer a GPU",
        "choose a type that `tenancy catalog` lists without a reason against it",
        _MEDIUM,
    ),
    Rule(
        "mig-04",
        "Karpenter is told what a node with cut GPUs will offer",
        "EC2 knows of whole GPUs only: pods for slices stay pending, pods for whole GPUs start node after node",
        "make a NodeOverlay for the pool, with nvidia.com/mig-<profile> of one node under capacity",
        _MEDIUM,
    ),
    Rule(
        "share-02",
        "a replica of a GPU has a name of its own, and nobody gets two of them",
        "a replica that is called nvidia.com/gpu is taken for a whole GPU, and two of them may be one GPU twice",
        "set renameByDefault and, for time slicing, failRequestsGreaterThanOne to true",
    ),
    Rule(
        "ami-01",
        "node images are no older than the release that closes the known ways out of a container",
        "older container toolkits open every GPU of a node to an image that asks, older runtimes the node itself",
        "use the release of the catalogue, or a newer one",
        _CRITICAL,
    ),
    Rule(
        "ami-02",
        "a node image is named by its release",
        "the newest image of the day changes nodes when nobody asked; the newest of the first day is never renewed",
        "name a release, such as releaseVersion 1.36.3-20260903 or alias al2023@v20260903",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        "eks-01",
        "the API server is private, or open to named ranges",
        "an endpoint that the whole internet reaches is one leaked credential away from every tenant",
        "list the ranges of your offices and runners, or leave it private",
        _CRITICAL,
    ),
    Rule(
        "eks-02",
        "access to the cluster is given by access entries alone, and none comes by itself",
        "whoever edits the config map aws-auth, or made the cluster, administers it, and no list of entries shows it",
        "set authenticationMode to API and bootstrapClusterCreatorAdminPermissions to false when the cluster is made",
    ),
    Rule(
        "node-01",
        "a node's metadata service answers the node itself and no pod",
        "a pod that reaches it has the node's role, and user data with it",
        "set httpTokens to required and httpPutResponseHopLimit to 1 under metadataOptions",
        _CRITICAL,
    ),
    Rule(
        "node-02",
        "volumes of nodes are encrypted, whatever the account's default is",
        "a node's disk holds images, scratch data and secrets of every tenant that ran there",
        "set encrypted on every ebs under blockDeviceMappings, the root volume among them",
        _MEDIUM,
    ),
    Rule(
        "node-03",
        "a node with GPUs keeps pods off that want none",
        "pods without a GPU fill its processors and memory, and the GPUs idle beside them",
        "give the group or NodePool a taint, nvidia.com/gpu=present:NoSchedule",
    ),
    Rule(
        "node-04",
        "a reservation is used without a placement group, unless it was made in that group",
        "EC2 looks for capacity in the group, finds none of the reservation there, and starts nothing",
        "drop the placement group, or make the reservation in it",
        _MEDIUM,
        advises=True,
    ),
    Rule(
        "node-05",
        "NVIDIA's operator and its feature discovery tolerate the taints of every pool with GPUs",
        "nodes that they keep away from have GPUs that nobody can ask for",
        "list the taint under daemonsets.tolerations and under node-feature-discovery.worker.tolerations",
        _MEDIUM,
    ),
    Rule(
        "ver-01",
        "what the platform installs supports the cluster's Kubernetes",
        "an operator on a version that its makers do not support fails at the next upgrade, on every node at once",
        "use a Kubernetes that all of it supports",
        _MEDIUM,
    ),
    Rule(
        "dra-01",
        "device claims are used where the cluster, the nodes and the driver support them",
        "elsewhere claims stay pending for ever, or sharing is alpha",
        "use Kubernetes 1.34 or newer and managed pools, or set cluster.devices to plugin",
        _MEDIUM,
    ),
    Rule(
        "exc-01",
        "an exception names a waivable rule and ends on a date in the future",
        "a waiver without an end is a policy change that nobody decided",
        "renew the date after a review, or remove the exception and what needs it",
    ),
    Rule(
        "build-01",
        "an option is available in this version",
        "an option that is read and then ignored is worse than one that is refused",
        "use one of the available values",
        _MEDIUM,
    ),
    # Namespaces
    Rule(
        "ns-01",
        "labels and annotations of a tenant's namespace belong to the platform",
        "quota, queue, guard and bill all follow the namespace's labels",
        "ask the platform team; the spec file of the tenant is where they come from",
        _CRITICAL,
    ),
    Rule(
        "ns-02",
        "a workload runs only in a namespace that belongs to a tenant or to the platform",
        "an unlabelled namespace would have no guard data and no owner for its cost",
        "create the namespace through a tenant file, or list it under platform.namespaces",
        _CRITICAL,
    ),
    Rule(
        "ns-03",
        "a tenant's namespace enforces the restricted Pod Security level, pinned to a version",
        "below restricted a pod can reach the node, and with it every tenant on it",
        "set pod-security to restricted, or write an exception with an end date",
        _CRITICAL,
        waivable=True,
    ),
    Rule(
        "ns-04",
        "every tenant namespace has a quota, a limit range and a default-deny network policy",
        "a namespace that lacks one is unlimited or open",
        "create all three with the namespace",
        _CRITICAL,
    ),
    Rule(
        "ns-05",
        "a tenant's namespace is deleted by the platform alone",
        "everything of the tenant goes with it, and whoever has every right can mistype a name",
        "remove the tenant's file and run tenancy up, as the platform's group",
    ),
    Rule(
        "cost-01",
        "a workload is charged to the tenant of its namespace",
        "a pod that claims another team's label sends that team the bill",
        "drop the label; it is taken from the namespace",
        _MEDIUM,
    ),
    Rule(
        "cost-02",
        "every tenant object carries the whole cost vocabulary",
        "an unlabelled object is cost that nobody owns",
        "set all of the labels " + "team, owner, department, cost-center, product, env, tier, gpu-tier",
        _MEDIUM,
    ),
    # The bill: what `tenancy chargeback` is given
    Rule(
        "bill-01",
        "what is billed has a price that somebody said",
        "a price that is made up makes a bill that is made up",
        "write the pool's under costs.pools, its board's under prices, or a discount or rate under costs",
        _MEDIUM,
    ),
    Rule(
        "bill-02",
        "what is held is a flavor that the node's pool yields",
        "nobody can say which part of the node it took: counted as one GPU, a slice would cost seven times as much",
        "name the flavor as environment.yaml does, or declare the pool as it was",
        _MEDIUM,
    ),
    Rule(
        "bill-03",
        "a namespace is one tenant's at a time",
        "what two tenants claim would be paid by the wrong one or twice",
        "correct the label of the pods, or the times in the table of namespaces",
        _MEDIUM,
    ),
    Rule(
        "bill-04",
        "data covers the whole range",
        "hours that nobody saw would cost nothing",
        "ask for a range that was recorded, or write what is missing into the tables",
        _MEDIUM,
    ),
    Rule(
        "bill-05",
        "no more is held of a node than it has",
        "one of those who hold it does not, or the node is not what it is taken for",
        "look for rows that were told twice, and for the pool's layout at that time",
        _MEDIUM,
    ),
    Rule(
        "bill-06",
        "what is held is held on a node that is known",
        "a node that is missing in the data is missing in the bill",
        "add the node's time to the table of nodes",
        _MEDIUM,
    ),
    Rule(
        "bill-07",
        "a table is complete and every row of it can be read",
        "a row that is passed over is cost that nobody has",
        "correct the row; docs/chargeback.md lists the columns",
        _MEDIUM,
    ),
    Rule(
        "bill-08",
        "whoever holds something is a tenant's or the platform's",
        "what belongs to nobody is paid by everybody",
        "name the tenant in the table of namespaces or in a label, or list the namespace under platform.namespaces",
        _MEDIUM,
    ),
    Rule(
        "bill-09",
        "a range, its periods and its time zone are real",
        "a bill of days that do not exist cannot be checked",
        "write days as 2026-10-01 and zones as Europe/Berlin",
        _MEDIUM,
    ),
    Rule(
        "bill-10",
        "the metrics can be asked for",
        "what cannot be asked for would look like nothing held",
        "look at the address, the token and the metrics that docs/chargeback.md lists",
        _MEDIUM,
    ),
    # GPU devices
    Rule(
        "gpu-01",
        "a pod does not choose its runtime class",
        "the nvidia runtime classes hand out every GPU of the node",
        "drop runtimeClassName; the node's default runtime gives the GPUs that were asked for",
        _CRITICAL,
    ),
    Rule(
        "gpu-02",
        "a container does not choose devices by environment variable",
        "NVIDIA_VISIBLE_DEVICES and its kin open GPUs that the scheduler gave to somebody else",
        "drop the variable ('void' and 'none' are fine) and ask for GPUs under resources.limits",
        _CRITICAL,
    ),
    Rule(
        "gpu-03",
        "envFrom has no prefix that completes to a device variable",
        "prefix NVIDIA_ with key VISIBLE_DEVICES is NVIDIA_VISIBLE_DEVICES",
        "drop the prefix or choose another",
        _CRITICAL,
    ),
    Rule(
        "gpu-04",
        "a config map or secret has no key that is a device variable",
        "envFrom would turn the key into the variable, unseen by the guard on pods",
        "rename the key",
        _CRITICAL,
    ),
    Rule(
        "gpu-05",
        "a pod has no CDI annotation",
        "container runtimes inject any device that such an annotation names",
        "drop annotations under cdi.k8s.io and nvidia.cdi.k8s.io",
        _CRITICAL,
    ),
    Rule(
        "gpu-06",
        "a container asks only for extended resources that its tenant was granted",
        "a resource that no quota names is unlimited",
        "ask for a granted resource, or have the flavor added to the tenant file",
        _CRITICAL,
    ),
    Rule(
        "gpu-07",
        "a pod claims devices only in a cluster that hands them out by claim, and only claims of its namespace",
        "elsewhere a device claim steps around the quota on GPUs",
        "ask for GPUs under resources.limits; with cluster.devices: dra, by resourceClaimTemplateName",
        _CRITICAL,
    ),
    Rule(
        "gpu-08",
        "a device claim asks for a number of devices of granted classes, and for nothing else",
        "all devices, another class, a device's own settings or a taint's toleration reach other tenants' GPUs",
        "name a granted class and a count under exactly; drop config, adminAccess, capacity and tolerations",
        _CRITICAL,
    ),
    Rule(
        "gpu-09",
        "GPUs come from the device plugin or by claim, and not by NRI",
        "with NVIDIA's NRI plugin an annotation of a pod names the GPUs that it gets",
        "set cdi.nriPluginEnabled to false",
        _CRITICAL,
    ),
    # Scheduling
    Rule(
        "sched-01",
        "a pod tolerates only its own pools' taints, and a GPU taint only if it asks for that GPU",
        "a toleration is the key to another tenant's nodes",
        "drop the toleration; use operator Equal with one of your own pools",
        _CRITICAL,
    ),
    Rule(
        "sched-02",
        "a pod does not name its node",
        "nodeName skips the scheduler and with it every taint",
        "drop nodeName; select nodes by label",
        _CRITICAL,
    ),
    Rule(
        "sched-04",
        "a pod uses only the priority classes of its namespace",
        "a higher class evicts other tenants",
        "use a class that your namespace lists, or none",
    ),
    Rule(
        "sched-05",
        "a pod uses the cluster's scheduler",
        "another scheduler would bind the pod past taints and queues",
        "drop schedulerName",
    ),
    Rule(
        "sched-06",
        "required pod affinity stays in the pod's own namespace",
        "required anti-affinity to all namespaces keeps everybody else off a node",
        "drop namespaces and namespaceSelector from required terms",
    ),
    # Queues
    Rule(
        "kueue-01",
        "work names a queue of its namespace",
        "work without a queue, or of a queue that is not there, waits for ever",
        "drop the label kueue.x-k8s.io/queue-name, or name one of `kubectl get localqueues`",
        _MEDIUM,
    ),
    Rule(
        "kueue-02",
        "only controllers say that an object belongs to a controller",
        "what claims to be part of work that runs is started without being counted: any number of GPUs on one CPU",
        "drop ownerReferences with controller: true; a reference without it is fine",
    ),
    Rule(
        "kueue-03",
        "scheduling gates are the queue's, which alone takes them off",
        "a pod without the gate runs on GPUs that belong to others; one with another gate holds GPUs and never runs",
        "drop schedulingGates, and wait for the queue: `tenancy why` says for what",
    ),
    Rule(
        "kueue-04",
        "work is started by the queue, and run by its own controller",
        "what is not suspended at first, or no longer, runs before it is counted",
        "drop suspend: false and managedBy; to stop work of your own set suspend to true",
    ),
    Rule(
        "kueue-05",
        "a namespace's queue leads to its tenant's share",
        "a queue that leads to another tenant's share spends it",
        "name a cluster queue that begins with the tenant's name and '--'",
        _CRITICAL,
    ),
    Rule(
        "kueue-06",
        "work uses only the priority classes of its namespace in the queue",
        "a higher class goes first in every queue of the tenant, and evicts its other work",
        "use a class that your namespace lists, or drop the label kueue.x-k8s.io/priority-class",
    ),
    Rule(
        "kueue-07",
        "a container says how much CPU and memory it needs",
        "what is asked for nowhere is counted as nothing",
        "write requests of cpu and memory; the namespace's limit range fills them in where it stands",
        _MEDIUM,
    ),
    Rule(
        "kueue-08",
        "of the queue's labels and annotations a tenant writes those that ask for something",
        "the others are the queue's notes: by them it takes pods for counted, for alike or for none of its own",
        "drop labels and annotations of kueue.x-k8s.io but queue-name, priority-class, max-exec-time-seconds, "
        "job-min-parallelism, job-completions-equal-parallelism and podset-*-topology; for pods that start together "
        "use a Job",
    ),
    Rule(
        "kueue-09",
        "a pod waits for the queue unless it is part of work that the queue started",
        "a pod that starts at once is not counted",
        "nothing is wrong with the pod: the platform team has to look at the queue's webhooks",
    ),
    Rule(
        "kueue-10",
        "work that ends says how long it may run, within the limit of its tier",
        "GPUs that nobody gives back cannot be planned with",
        "set the label kueue.x-k8s.io/max-exec-time-seconds to at most tenancy.gpu/max-run-seconds of the namespace",
        _MEDIUM,
    ),
    Rule(
        "kueue-11",
        "a tenant's share takes work of its own namespaces alone",
        "an empty selector lets every namespace spend the share, and one of another tenant's label lets that tenant",
        "set namespaceSelector to matchLabels: {tenancy.gpu/tenant: <the tenant>}",
    ),
    Rule(
        "kueue-12",
        "what is in a cohort says of every resource how much of it is lent",
        "without lendingLimit all that is idle is lent, to everybody in the tree",
        "write lendingLimit beside every nominalQuota, 0 for what is never lent",
    ),
    Rule(
        "kueue-13",
        "whoever lends gets it back",
        "reclaimWithinCohort is Never unless something else is written: the lender waits for its own guarantee",
        "set preemption.reclaimWithinCohort to Any",
    ),
    Rule(
        "kueue-14",
        "Kueue manages work without a queue too, and counts GPUs",
        "work that names no queue, or asks for what is not counted, would run at once on GPUs that belong to others",
        "set manageJobsWithoutQueueName to true, and take nvidia.com out of resources.excludeResourcePrefixes",
    ),
    Rule(
        "quota-04",
        "a container that asks for more than its namespace's default limit writes its own limit",
        "the queue holds such work for ever: it would ask for more than it is limited to",
        "write limits of the same resources; `kubectl describe limitrange` shows the defaults",
        _MEDIUM,
    ),
    # Images, names, storage, services
    Rule(
        "img-01",
        "images come from the environment's registries",
        "an image from anywhere runs unscanned code next to other tenants",
        "push the image to a registry that the environment lists",
    ),
    Rule(
        "dns-01",
        "a pod uses the cluster's DNS as it is",
        "hostAliases and own resolvers step around the rules on host names",
        "drop dnsPolicy, dnsConfig and hostAliases",
        _MEDIUM,
    ),
    Rule(
        "avail-01",
        "a pod ends within ten minutes",
        "a long grace period holds a GPU that its owner calls back",
        "set terminationGracePeriodSeconds to 600 or less and write checkpoints on SIGTERM",
        _MEDIUM,
    ),
    Rule(
        "avail-02",
        "a disruption budget leaves room for one eviction",
        "a budget of none blocks the drain of a node that others share, at every upgrade",
        "allow at least one pod to be unavailable",
        _MEDIUM,
    ),
    Rule(
        "avail-03",
        "a pod has no finalizers of its own",
        "with one that nobody takes off, neither the pod nor its namespace ever goes",
        "drop metadata.finalizers; end with a preStop hook or on SIGTERM",
        _MEDIUM,
    ),
    Rule(
        "avail-04",
        "a pod lets its node be emptied",
        "one pod that forbids it keeps a node, and the flaws of its image, for as long as it likes",
        "drop karpenter.sh/do-not-disrupt and cluster-autoscaler.kubernetes.io/safe-to-evict; use a disruption budget",
        _MEDIUM,
    ),
    Rule(
        "pod-01",
        "a pod runs on Linux and in the node's own user namespace",
        "for other pods the restricted level drops its checks on root and capabilities",
        "drop os and hostUsers",
    ),
    Rule(
        "quota-03",
        "resources are asked for by containers",
        "a limit range does not see what is asked for by the pod as a whole",
        "move spec.resources to the containers",
    ),
    Rule(
        "id-01",
        "a service account names no AWS role",
        "the annotation asks for another tenant's identity",
        "the platform binds roles by Pod Identity; drop the annotation",
    ),
    Rule(
        "id-02",
        "no secret holds a service account's token",
        "such a token never expires and works from anywhere",
        "mount a projected token, which the kubelet renews",
    ),
    Rule(
        "id-03",
        "a projected token is for the API server or for AWS, and lives a day at most",
        "a token for another audience is a log-in to whatever trusts the cluster, under a name that it takes for ours",
        "drop audience, or use sts.amazonaws.com or pods.eks.amazonaws.com; set expirationSeconds to 86400 or less",
    ),
    Rule(
        "net-01",
        "a service is of type ClusterIP, without external addresses, names or controllers' annotations",
        "load balancers, node ports and external names lead traffic past the network policies",
        "use ClusterIP; the platform team publishes services",
    ),
    Rule(
        "net-07",
        "a pod's annotations choose no network, address, device or sandbox of the node",
        "network plugins and runtimes obey them: a foreign network or address, a way past policies, another hypervisor",
        "drop the annotation; kubernetes.io/ingress-bandwidth and egress-bandwidth are fine",
        _CRITICAL,
    ),
    Rule(
        "stor-03",
        "a claim names a storage class and no volume",
        "a volume name, a selector or an empty class binds a volume that another tenant left behind",
        "set storageClassName; drop volumeName and selector",
        _CRITICAL,
    ),
    Rule(
        "stor-04",
        "a pod has no inline CSI volume",
        "such a volume is mounted with the driver's own rights, past claims and quota",
        "make a PersistentVolumeClaim",
    ),
    # Objects that platform programs make
    Rule(
        "quota-01",
        "a quota has only keys that the API server enforces",
        "'limits.nvidia.com/gpu' and a bare 'nvidia.com/gpu' are stored and never counted",
        "write extended resources as requests.<domain>/<name>",
    ),
    Rule(
        "quota-02",
        "a limit range names no GPU",
        "a maximum becomes everybody's default: pods that want no GPU get one",
        "cap GPUs by quota; drop them from the limit range",
    ),
    Rule(
        "rbac-01",
        "a tenant's role has no wildcard",
        "'*' grants pods/status, namespaces and every resource that is installed later",
        "list the resources and verbs",
        _CRITICAL,
    ),
    Rule(
        "rbac-02",
        "a tenant's role cannot escalate, bind, impersonate, approve or mint tokens",
        "each of these verbs is every other right",
        "drop the verb or resource",
        _CRITICAL,
    ),
    Rule(
        "rbac-03",
        "a tenant's role only reads what limits the tenant",
        "who can write quotas, limit ranges, network policies or bindings has none",
        "leave get, list and watch",
        _CRITICAL,
    ),
    Rule(
        "rbac-04",
        "a tenant gets namespaced rights only",
        "a ClusterRoleBinding to a tenant reaches all namespaces",
        "bind the role with a RoleBinding in the tenant's namespaces",
        _CRITICAL,
    ),
    Rule(
        "net-02",
        "a network policy in a tenant's namespace opens nothing to other namespaces",
        "policies add up: one that admits all namespaces undoes the default-deny",
        "select the tenant's own namespaces by the tenant label",
        _CRITICAL,
    ),
    Rule(
        "guard-01",
        "an admission policy fails closed and its binding denies",
        "with failurePolicy Ignore or only Audit, a typo admits everything",
        "set failurePolicy to Fail and validationActions to [Deny]",
        _CRITICAL,
    ),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
