"""Partitions of GPUs and levels of isolation: MIG layouts, claims of devices, dedicated nodes, sandboxes and virtual
clusters."""

from __future__ import annotations

from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="mig-01",
        title="a MIG layout fits on the board",
        why="a layout that does not fit fails on the node, long after the pull request was merged",
        fix="choose profiles of the board, and counts whose memory and compute units fit",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="mig-02",
        title=(
            "strategy single cuts every GPU of a pool into one profile, and no pool of the environment offers whole "
            "GPUs"
        ),
        why="strategy single names slices nvidia.com/gpu: a job for a whole GPU could get a seventh of one",
        fix="use strategy: mixed, or one profile on all GPUs and no whole GPUs in the environment",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="mig-03",
        title="a resource name means one kind of slice for each tenant",
        why="1g.10gb is a seventh of one board and a quarter of another: one quota would count both",
        fix="open the two pools to different tenants, or cut one of them into profiles of another name",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="mig-04",
        title="Karpenter knows the slices that a node with partitioned GPUs will offer",
        why="EC2 reports whole GPUs only: pods for slices stay pending, and pods for whole GPUs start node after node",
        fix="make a NodeOverlay for the pool, with one node's count of nvidia.com/mig-<profile> under capacity",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="dra-01",
        title="the cluster, its nodes and the driver support device claims where these are used",
        why="without support, claims stay pending for ever, or sharing by claims is an alpha feature of Kubernetes",
        fix="use Kubernetes 1.34 or newer and managed pools, or set cluster.devices to plugin",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="iso-01",
        title="a tenant with dedicated nodes has pools that admit it alone, and GPUs of no other pool",
        why="two tenants on one node share its kernel",
        fix="name only this tenant under tenants of a pool, and restrict the other pools that yield its flavors",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="iso-02",
        title="a tenant with isolation: sandbox has a sandbox runtime, a bare-metal pool and no GPUs",
        why=(
            "a virtual machine needs hardware virtualization, and uses a GPU only as a whole board that is passed "
            "through to it, with the driver in the guest"
        ),
        fix="write sandbox in environment.yaml, with a bare-metal pool that admits the tenant",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="iso-03",
        title=(
            "a tenant with isolation: virtual-cluster has all that a virtual cluster needs, and no setting that a "
            "virtual cluster cannot enforce"
        ),
        why=(
            "the syncer creates all work under one account, so the host's rules by user or by kind of work do not apply"
        ),
        fix=(
            "write virtual-clusters in environment.yaml, and drop settings that the host applies by user or by kind of "
            "work"
        ),
        severity=Severity.CRITICAL,
    ),
)
