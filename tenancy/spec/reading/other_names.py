"""Names that other tools and former versions have for fields, and what there is in place of fields that only they have.

Names are compared without case, dashes and underscores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_DESIRED_NAMES = ("desired", "desiredcapacity", "desiredcount", "desiredsize")
_SMALLEST, _LARGEST = "min nodes", "max nodes"
"""Fields of a range, and where there are none: the field with the range."""
_FIELDS: Mapping[str, str] = {
    # Kueue
    **dict.fromkeys(("nominal", "nominalquota", "quota", "reserved"), "guaranteed"),
    "borrow": "lend-and-borrow",
    "cohort": "department",
    "cohortname": "department",
    # Karpenter, EC2 and Terraform's modules of both
    "capacitytype": "purchase",
    "marketoptions": "purchase",
    "spot": "purchase",
    "capacityreservation": "purchase",
    "instancetypes": "instance-type",
    "instancefamily": "instance-type",
    **dict.fromkeys(_DESIRED_NAMES, "nodes"),
    "replicas": "nodes time-slicing",
    **dict.fromkeys(("initialnodecount", "nodecount", "numberofnodes", "numnodes", "size"), "nodes"),
    **dict.fromkeys(("count", "number"), "nodes guaranteed"),
    **dict.fromkeys(("autoscaling", "autoscalinggroup", "scaling", "scalingconfig"), "nodes"),
    **dict.fromkeys(
        ("mincapacity", "mincount", "minimum", "minnodecount", "minnodes", "minreplicas", "minsize", "min"), _SMALLEST
    ),
    **dict.fromkeys(
        ("maxcapacity", "maxcount", "maximum", "maxnodecount", "maxnodes", "maxreplicas", "maxsize", "max"), _LARGEST
    ),
    "availabilityzones": "zones",
    "releaseversion": "ami-release",
    "amireleaseversion": "ami-release",
    "clustername": "name",
    "clusterversion": "kubernetes",
    "kubernetesversion": "kubernetes",
    "version": "kubernetes",
    # Kubernetes and NVIDIA's device plugin
    "resourcequota": "quota",
    "limitrange": "container",
    "priorityclassname": "priority",
    **dict.fromkeys(("address", "ip", "ipblock", "range", "tocidr"), "cidr"),
    **dict.fromkeys(("domain", "fqdn", "host", "hostname", "tofqdns"), "dns"),
    "email": "mail user",
    **dict.fromkeys(("name", "team"), "group"),
    **dict.fromkeys(("admin", "clusteradmin", "maintainer"), "owner"),
    **dict.fromkeys(("edit", "editor", "write", "writer"), "developer"),
    **dict.fromkeys(("read", "reader", "readonly"), "viewer"),
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
_DESIRED = "drop it: the pods that wait decide how many nodes there are between min and max"
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
    # The number of nodes of a pool
    "min": dict.fromkeys(_DESIRED_NAMES, _DESIRED),
    # How a pool is shared
    "time-slicing": {
        **dict.fromkeys(("pergpu", "gpus", "devices", "resources"), _TIME_SLICING),
        **dict.fromkeys(("mode", "strategy", "type"), "drop it: the mode is the key, such as time-slicing: 4"),
        **dict.fromkeys(("exclusive", "false", "none", "off", "whole"), "drop it: without gpu-sharing a GPU is whole"),
        "mig": "drop it: slices are cut by the field mig",
    },
}
"""By a field of the part of a spec: other names there, and what to do."""


def field_of(name: str, fields: Collection[str]) -> str:
    """The field, of those that are known, that another tool or a former version calls so; empty if there is none."""
    letters = _letters(name)
    candidates = f"{_FIELDS.get(letters, '')} {_FORMER_FIELDS.get(letters, '')}".split()
    return next((spelling for field in candidates if (spelling := _spelling_of(field, fields))), "")


def range_of_nodes(name: str, fields: Collection[str], siblings: Mapping[str, Any]) -> str:
    """Advice on a key of a pool that is a part of the range of its nodes, by the keys beside it; else empty."""
    ends = {_FIELDS.get(_letters(key), ""): key for key in siblings}
    smallest, largest = ends.get(_SMALLEST), ends.get(_LARGEST)
    if "nodes" not in fields or not (smallest or largest):
        return ""
    if name not in {smallest, largest}:
        return _DESIRED if _letters(name) in _DESIRED_NAMES else ""
    limits = [siblings[end] for end in (smallest, largest) if end]
    nodes = f"nodes: {{min: {limits[0]}, max: {limits[-1]}}}"
    if smallest and largest:
        return f"write {nodes}" if name == smallest else f"drop it: it is max of {nodes}"
    return f"write {nodes}, {'with a larger max if it may grow' if smallest else 'with a smaller min if it may shrink'}"


def change_for_foreign_field(name: str, fields: Collection[str]) -> str:
    """Advice on a field that only other tools have, where these are known; else empty."""
    advice = (texts for field, texts in _WITHOUT_FIELD.items() if _spelling_of(field, fields))
    return next((texts[letters] for texts in advice if (letters := _letters(name)) in texts), "")


def _spelling_of(field: str, fields: Collection[str]) -> str:
    """The field as it is spelt where it is known: with dashes in files, with underscores in Python."""
    return next((name for name in fields if _letters(name) == _letters(field)), "")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
