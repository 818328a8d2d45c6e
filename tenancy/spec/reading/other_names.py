"""Names that other tools and former versions have for fields, and what there is in place of fields that only they have.

Names are compared without case, dashes and underscores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_FIELDS: Mapping[str, str] = {
    # Kueue
    "nominalquota": "guaranteed",
    "cohort": "department",
    "cohortname": "department",
    # Karpenter, EC2 and Terraform's modules of both
    "capacitytype": "purchase",
    "marketoptions": "purchase",
    "spot": "purchase",
    "capacityreservation": "purchase",
    "instancetypes": "instance-type",
    "instancefamily": "instance-type",
    "minsize": "nodes",
    "maxsize": "nodes",
    "desiredsize": "nodes",
    "desiredcapacity": "nodes",
    "replicas": "nodes",
    "availabilityzones": "zones",
    "releaseversion": "ami-release",
    "amireleaseversion": "ami-release",
    "clustername": "name",
    "clusterversion": "kubernetes",
    "kubernetesversion": "kubernetes",
    "version": "kubernetes",
    # Kubernetes
    "resourcequota": "quota",
    "limitrange": "container",
    "priorityclassname": "priority",
    "ipblock": "cidr",
    "tofqdns": "dns",
    "email": "mail",
}
_FORMER_FIELDS: Mapping[str, str] = {
    # A tenant, its quota, namespaces and AWS resources
    "apitoken": "automount-token",
    "borrowupto": "borrowing-limit",
    "files": "efs-access-points",
    "grace": "grace-period",
    "lead": "reclaim-lead-time",
    "lendupto": "lending-limit",
    "logs": "log-groups",
    "more": "temporary-shares",
    "other": "hard",
    "queue": "stop-policy",
    "uses": "aws-resources",
    # A tier
    "borrows": "allow-borrowing",
    "claim": "volume-claim",
    "order": "queueing-strategy",
    "spread": "topology-spread",
    "spreadof": "topology-spread-scope",
    # Flavors and pools
    "atonce": "max-unavailable",
    "named": "layout-name",
    "share": "gpu-sharing",
    # AWS
    "dnscache": "node-local-dns",
    "encryptionkey": "kms-key-arn",
    "expireafter": "expiration-days",
    "forges": "ci-hosts",
    "keepversions": "noncurrent-version-days",
    "key": "kms-key-scope",
    "logkey": "tenant-log-kms-key-arn",
    "payer": "management-account",
    "people": "group-roles",
    "ranges": "node-and-pod-cidrs",
    "trusted": "trusted-principals",
    # Queues, metrics, the platform and roll-outs
    "after": "duration depends-on",
    "below": "utilization-threshold",
    "canaryshare": "canary-percent",
    "keepfinished": "finished-workload-retention",
    "keys": "metadata-keys",
    "longestwait": "max-wait-p90",
    "relief": "budget-exemption exemption",
    "then": "action",
}
"""Names of former versions, and those of today, one for each part of a spec; those that look alike are not here."""
_IMAGE = "drop it: nodes run EKS' own image, whose release is ami-release"
_CONSOLIDATION = "drop it: a node is removed only while it is empty, and when its image or a setting changes"
_LABELS = "drop it: nodes have the labels of their pool and their board"
_TAINTS = "drop it: a pool with tenants or tiers has a taint of its own, and one with GPUs a further one"
_USER_DATA = "drop it: user data is made from the pool's fields"
_GROUPS = "drop it: nodes have security groups of the environment's own"
_OWN_QUEUES = "drop it: a tenant's queues are made, and admit work of its own namespaces alone"
_SHARES = "drop it, and write the tenant's GPUs by flavor, such as gpus: {a100: {guaranteed: 8}}"
_RECLAIM = "drop it: what is lent is reclaimed, and sharing under gpus says whether anything is lent"
_TIME_SLICING = (
    "drop it: time-slicing or mps is for every GPU of a node, as NVIDIA's device plugin shares all of them or none; "
    "GPUs that stay whole need a pool of their own"
)
_WITHOUT_FIELD: Mapping[str, Mapping[str, str]] = {
    # A pool
    "instance-type": {
        **dict.fromkeys(("ami", "amiid", "amifamily", "amialias", "amitype", "amiselectorterms", "imageid"), _IMAGE),
        **dict.fromkeys(("consolidation", "consolidationpolicy", "consolidateafter", "disruption"), _CONSOLIDATION),
        **dict.fromkeys(("expireafter", "ttlsecondsafterempty", "ttlsecondsuntilexpired"), _CONSOLIDATION),
        **dict.fromkeys(("labels", "nodelabels"), _LABELS),
        **dict.fromkeys(("taints", "startuptaints", "nodetaints"), _TAINTS),
        **dict.fromkeys(("userdata", "bootstrapextraargs", "kubelet", "prebootstrapuserdata"), _USER_DATA),
        **dict.fromkeys(("securitygroups", "securitygroupids", "securitygroupselectorterms"), _GROUPS),
        **dict.fromkeys(("subnets", "subnetids", "subnetselectorterms"), "drop it, and write the zones of the nodes"),
        "limits": "drop it: nodes, or nodes.max of an autoscaled pool, is the limit",
        "requirements": "drop it: instance-type, zones and purchase say which nodes are made",
        "weight": "drop it: reserved pools are filled first, and spot pools last",
    },
    # A tenant
    "cost-center": {
        **dict.fromkeys(("clusterqueue", "localqueue", "namespaceselector", "queuename"), _OWN_QUEUES),
        **dict.fromkeys(("coveredresources", "flavors", "resourcegroups"), _SHARES),
        **dict.fromkeys(("borrowwithincohort", "preemption", "reclaimwithincohort"), _RECLAIM),
    },
    # How a pool is shared
    "time-slicing": dict.fromkeys(("pergpu", "gpus", "devices", "resources"), _TIME_SLICING),
}
"""By a field of the part of a spec: other names there, and what to do."""


def field_of(name: str, fields: Collection[str]) -> str:
    """The field, of those that are known, that another tool or a former version calls so; empty if there is none."""
    letters = _letters(name)
    candidates = (_FIELDS.get(letters, ""), *_FORMER_FIELDS.get(letters, "").split())
    return next((spelling for field in candidates if (spelling := _spelling_of(field, fields))), "")


def change_for_foreign_field(name: str, fields: Collection[str]) -> str:
    """Advice on a field that only other tools have, where these are known; else empty."""
    advice = (texts for field, texts in _WITHOUT_FIELD.items() if _spelling_of(field, fields))
    return next((texts[letters] for texts in advice if (letters := _letters(name)) in texts), "")


def _spelling_of(field: str, fields: Collection[str]) -> str:
    """The field as it is spelt where it is known: with dashes in files, with underscores in Python."""
    return next((name for name in fields if _letters(name) == _letters(field)), "")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
