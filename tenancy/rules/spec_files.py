"""Spec files: references, times, versions and exceptions."""

from __future__ import annotations

from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="ref-01",
        title="a file refers only to names that the environment declares or the product's catalogue lists",
        why=(
            "an undeclared tier, flavor, pool or department has no limits, and an undeclared bucket, folder or "
            "forge no "
            "owner"
        ),
        fix="declare it in environment.yaml, or use a name that is declared there or that `tenancy catalog` lists",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="queue-01",
        title=(
            "a queue has at most 64 pools, 64 resources and 512 amounts (pools times resources), and a cluster "
            "16 device "
            "classes"
        ),
        why="Kueue refuses a larger queue, and does not start with more device classes",
        fix="open fewer pools to the tenant, or give it fewer flavors",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="queue-02",
        title="a namespace's quota has room for one default container for every GPU that the namespace is guaranteed",
        why="the queue would admit work whose pods the quota then refuses, and its GPUs would be idle",
        fix="raise the quota of the tier or the namespace, or lower the default container or the guarantee",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="queue-03",
        title=(
            "Kueue's memory holds the most work of the largest tenant, and of all tenants divided by object-overcommit"
        ),
        why="Kueue keeps whole jobs, pods and workloads in memory; if it runs out of memory, no tenant's work starts",
        fix=(
            "lower jobs, pods or ended-pods of the tiers, split the environment into two clusters, or raise "
            "cluster.object-overcommit"
        ),
    ),
    Rule(
        id="time-01",
        title="windows, further shares and budgets that bind need the clock",
        why="without it queues keep the guarantee that they were made with, and a spent budget stops nothing",
        fix="set queues.clock to true and run `tenancy clock run`, or drop the field",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="time-02",
        title="at every instant the always-on nodes of the pools have all guarantees, windows and further shares",
        why="two tenants would count on the same GPUs, and which of them gets them is undefined",
        fix="move or shorten one of them, or raise nodes (of an autoscaled pool, nodes.min counts)",
    ),
    Rule(
        id="time-03",
        title="a window's lead is longer than a pod's longest grace period, 10 minutes, and at most pods-ready-timeout",
        why=(
            "borrowers keep their GPUs for the grace period, and after pods-ready-timeout Kueue takes back GPUs "
            "that were "
            "reclaimed and have no pods yet"
        ),
        fix="write a reclaim-lead-time such as 15m, or raise queues.pods-ready-timeout",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="time-04",
        title="a budget in dollars binds only where boards have prices",
        why="without prices no amount is ever spent",
        fix="write prices into the environment, or monthly-gpu-hours into the budget",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="time-05",
        title="an idle rule needs the clock, and metrics of GPUs that pods get as extended resources",
        why="without them no GPU is ever found idle, and the rule has no effect",
        fix="set queues.clock to true and metrics.collector to install or existing, or drop the rule",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="time-06",
        title="idle work is suspended only in a tier whose work tolerates the loss of its GPU",
        why="an inference service without requests at night would be stopped",
        fix="write action: alert, or interruptible: true if the tier's work tolerates it",
    ),
    Rule(
        id="ver-01",
        title="all components that the platform installs support the cluster's Kubernetes version",
        why="a component on a version that its makers do not support fails at the next upgrade, on every node at once",
        fix="use a Kubernetes version that all components support",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="exc-01",
        title="an exception names a waivable rule, once, and ends within the next 366 days",
        why="an exception without an end date is a permanent change of policy without a review",
        fix="renew the date after a review, by 366 days at most, or remove the exception and what needs it",
    ),
    Rule(
        id="custom-01",
        title="a program changes no field that isolates a tenant, by `customize` of a component",
        why="such a change weakens the isolation of one tenant in one program, where no review of the specs sees it",
        fix=(
            "write it in the spec; for an object in a namespace, an exception in the tenant's spec with an end "
            "date waives "
            "it"
        ),
        severity=Severity.CRITICAL,
        waivable=True,
    ),
)
