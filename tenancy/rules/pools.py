"""Node pools."""

from __future__ import annotations

from tenancy.rules import aws
from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="pool-01",
        title="a tenant has a flavor only if a pool that yields it admits the tenant",
        why="pods that ask for the flavor would stay pending for ever",
        fix="add the tenant or its tier to a pool that yields the flavor",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="pool-02",
        title="a time-sliced or MPS pool serves exactly one tenant",
        why="replicas of one GPU share memory and faults: their users are not isolated from each other",
        fix="name one tenant in the pool's tenants, or use MIG",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="pool-03",
        title="the guarantees of a flavor do not exceed the minimum size of its pools",
        why="a guarantee above the minimum cannot be met when all tenants use theirs",
        fix="lower the guarantees, or raise nodes of a pool (of an autoscaled pool, nodes.min counts)",
    ),
    Rule(
        id="pool-04",
        title="a node's pod limit leaves room for one pod per slice or replica, besides the platform's own pods",
        why="slices and replicas above the pod limit can never be used, and are paid for",
        fix="lower replicas or slices",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="pool-05",
        title="spot nodes and shared GPUs serve interruptible tiers only",
        why=(
            "a spot node is withdrawn with two minutes' notice; a fault on a shared GPU fails the pods of all who "
            "share it"
        ),
        fix="move the tenant to on-demand nodes and whole GPUs or slices, or set interruptible on its tier",
    ),
    Rule(
        id="pool-06",
        title="an EFA pool serves one tenant in one zone, on a type that has EFA",
        why="EFA bypasses the operating system: network policies do not apply to it, only the security group does",
        fix="name one tenant in the pool's tenants, or set efa to false",
        severity=Severity.CRITICAL,
        aws_settings={aws.INGRESS: "referencedSecurityGroupId"},
    ),
    Rule(
        id="pool-07",
        title="a pool's provisioner and purchase option support its size",
        why="a managed group is not autoscaled, spot capacity is not guaranteed, and a reservation is in one zone",
        fix="write a fixed number of nodes for managed, a range for karpenter, and the zone of a reservation",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="pool-08",
        title="MPS shares whole GPUs only",
        why="the device plugin refuses MPS on a partitioned GPU and offers nothing at all",
        fix="use time-slicing inside slices, or drop mig",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="pool-09",
        title="this product supports a pool's instance type",
        why="on other types nodes do not start, or never offer a GPU",
        fix="choose a type that `tenancy catalog` lists without a reason against it",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="pool-10",
        title=(
            "nodes that are made elsewhere are of an existing cluster, and those of EKS Auto Mode have whole GPUs by "
            "device plugin"
        ),
        why="Auto Mode's image and device plugin take no settings: no layout of MIG, no sharing, no DRA driver",
        fix="use provisioner: managed, karpenter or self-managed for such a pool",
        severity=Severity.MEDIUM,
    ),
)
