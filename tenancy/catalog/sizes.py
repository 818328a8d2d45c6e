"""Maximum sizes of objects that a tenant writes.

etcd refuses a request above 1.5 MiB (`--max-request-bytes`), and such an object can no longer be ended: a deletion,
an eviction and Kueue's suspension each add a few bytes first. What is stored of an object is its spec, its metadata and
its status, as protobuf, or as JSON for kinds of operators. JSON writes one byte of text as six at the most (`<` as
`\\u003c`), so the largest object of a tenant takes 6 * (64 + 128) KiB = 1.125 MiB, and 384 KiB are left for what the
controllers write. A Workload of Kueue's holds the pod templates of its job once: 6 * 64 KiB.
"""

from __future__ import annotations

KIB = 1024
ETCD_REQUEST = 1536 * KIB
"""Bytes of one write; etcd's default, and EKS'."""

SPEC = 64 * KIB
"""Bytes of the text of `spec`, or of the field in its place."""
METADATA = 128 * KIB
"""Bytes of the text of `metadata`, field managers and owners among it. The annotation of a client-side `kubectl apply`
repeats the whole object and counts; the API server itself takes 256 KiB of annotations."""
DATA = 256 * KIB
"""Bytes of a config map's or a secret's data, as JSON has it: what is binary counts as base64."""
LARGE_DATA = 1024 * KIB
"""The same where the tier allows large ones: the API server's own bound (kubernetes `pkg/apis/core`, MaxSecretSize)."""
KEYS = 64
"""Labels, and annotations, of an object or a pod template."""
MANAGERS = 32
"""Entries of `managedFields`: server-side apply adds one for each new name of a field manager, and the API server
bounds the names of updates alone, to ten (structured-merge-diff, `capManagers`)."""
WALKED = 256
"""Entries of a list or a map that a guard walks over. CEL's cost tracker keeps a note of each step and searches all of
them when the next is short-circuited (google/cel-go interpreter/runtimecost.go, `refValStack.drop`): the time grows
with the square of the number, and the cost that it counts does not."""
WALKED_OF_PLATFORM = 1024
"""The same, of labels and annotations of nodes and namespaces: no tenant writes them, and a node has hundreds."""
MAX_GRACE_SECONDS = 600
"""Seconds that a pod may take to end."""
AFFINITY_TERMS = 16
"""Terms in each list of a pod's affinity to other pods: the scheduler compares each with every pod of the cluster."""
PODS_OF_WORK = 10_000
"""Pods of one piece of work, or of one of its parts (a group of workers, a replicated job). Kueue multiplies the counts
of a part in 32 bits (v0.19.2 raycluster/common.go, jobset_controller.go): above 2^31 the product begins again at 0, and
its GPUs are not counted. The bound is far below, and above the pods of any cluster that this product has been tried on.
"""
