"""Scheduling: which nodes a pod may run on, and beside whom."""

from __future__ import annotations

from tenancy.catalog import gpus, sizes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.expressions import OF_TENANT, cel, may
from tenancy.rules.model import Face, GuardFacts, Rule, Severity, Subject

_TOLERABLE = f"""(t.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']
            && has(t.effect) && t.effect == 'NoExecute')
        || (t.key == 'node.kubernetes.io/memory-pressure' && has(t.effect) && t.effect == 'NoSchedule')
        || (t.key == {cel(words.POOL)} && (!has(t.operator) || t.operator in ['', 'Equal'])
            && has(t.value) && t.value in variables.allowedPools)
        || t.key in variables.asked
        || (t.key == {cel(gpus.GPU_TAINT)} && variables.asked.exists(r, r.startsWith('nvidia.com/')))"""
"""What a toleration `t` may be. EKS adds one for each extended resource that a pod asks for, keyed by the resource."""


def _tolerations(facts: GuardFacts) -> str:
    """No admission plugin adds a toleration to a pod with a claim, so the pod has to name that of the GPU nodes itself:
    gpu-08 lets no claim be empty."""
    claimed = f"""
        || (t.key == {cel(gpus.GPU_TAINT)}
            && has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0)"""
    return f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}{claimed if facts.devices_by_claim else ""}))"""


_OTHERS = f"""x.namespaceSelector.matchExpressions.exists(e, e.key == {cel(words.TENANT)} && e.operator == 'Exists')
        && x.namespaceSelector.matchExpressions.exists(e, e.key == {cel(words.TENANT)} && e.operator == 'NotIn'
            && e.values == [{OF_TENANT}])"""
_APART = f"""(x.topologyKey == 'kubernetes.io/hostname' && has(x.labelSelector)
        && !has(x.labelSelector.matchLabels) && !has(x.labelSelector.matchExpressions)
        && !has(x.matchLabelKeys) && !has(x.mismatchLabelKeys) && !has(x.namespaces)
        && has(x.namespaceSelector) && !has(x.namespaceSelector.matchLabels)
        && has(x.namespaceSelector.matchExpressions) && size(x.namespaceSelector.matchExpressions) == 2
        && {_OTHERS})"""
"""Whether a term `x` keeps a pod off nodes with pods of other tenants, and off no other nodes."""


def _terms(kind: str, field: str) -> str:
    """Terms of a pod's affinity of a kind; none if there are none."""
    at = f"variables.spec.affinity.{kind}"
    return f"(has({at}) && has({at}.{field}) ? {at}.{field} : [])"


_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
_AFFINITIES = ("podAffinity", "podAntiAffinity")
_AT_HOME = """(has(x.podAffinityTerm) && !has(x.podAffinityTerm.namespaceSelector)
            && (!has(x.podAffinityTerm.namespaces) || size(x.podAffinityTerm.namespaces) == 0))"""
# The node of a pod reveals which pods it preferred or avoided. For pods that controllers make, the template was judged.
_PREFERS = " && ".join(f"{_terms(kind, _PREFERRED)}.all(x, {_AT_HOME})" for kind in _AFFINITIES)
_FEW_TERMS = " && ".join(
    f"size({_terms(kind, field)}) <= {sizes.AFFINITY_TERMS}"
    for kind in _AFFINITIES
    for field in (_REQUIRED, _PREFERRED)
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="sched-01",
        title="a pod tolerates only its own pools' taints, and a GPU taint only if it asks for that GPU",
        why="a toleration lets a pod run on another tenant's nodes",
        fix="drop the toleration; use operator Equal with one of your own pools",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={Subject.PODS: _tolerations},
    ),
    Rule(
        id="sched-02",
        title="a pod does not name its node",
        why="nodeName bypasses the scheduler and with it every taint",
        fix="drop nodeName; select nodes by label",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={Subject.PODS: "!variables.placing || !has(variables.spec.nodeName) || variables.spec.nodeName == ''"},
    ),
    Rule(
        id="sched-03",
        title="pods of a tenant with dedicated nodes run on its own nodes",
        why="on any other node it shares the kernel with other tenants",
        fix="set nodeSelector tenancy.gpu/tenant to the tenant's name",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""!variables.placing || {may(Allowance.ANY_NODE)} || (has(variables.spec.nodeSelector)
        && {cel(words.TENANT)} in variables.spec.nodeSelector
        && variables.spec.nodeSelector[{cel(words.TENANT)}] == {OF_TENANT})"""
        },
    ),
    Rule(
        id="sched-04",
        title="a pod uses only the priority classes of its namespace",
        why="a higher class preempts pods of other tenants",
        fix="use a class that your namespace lists, or none",
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: """!has(variables.spec.priorityClassName) || variables.spec.priorityClassName == ''
        || variables.spec.priorityClassName in variables.allowedPriorities"""
        },
    ),
    Rule(
        id="sched-05",
        title="a pod uses the cluster's scheduler",
        why="another scheduler would bind the pod regardless of taints and queues",
        fix="drop schedulerName",
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: """!has(variables.spec.schedulerName)
        || variables.spec.schedulerName in ['', 'default-scheduler']"""
        },
    ),
    Rule(
        id="sched-06",
        title="pod affinity stays in the pod's own namespace",
        why=(
            "required anti-affinity to all namespaces keeps all other pods off a node; preferred terms let the pod's "
            "placement reveal which labels other tenants' pods have, and where they run"
        ),
        fix="drop namespaces and namespaceSelector from required and preferred terms",
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            Subject.PODS: f"""!has(variables.spec.affinity) || (
        (!has(variables.spec.affinity.podAntiAffinity)
            || !has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                (!{may(Allowance.BESIDE_OTHERS)} && {_APART})
                || (!has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0))))
        && (!has(variables.spec.affinity.podAffinity)
            || !has(variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                !has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0)))
        && (!variables.placing || variables.byController || ({_PREFERS})))"""
        },
    ),
    Rule(
        id="sched-09",
        title="a pod has at most 16 terms of each kind of pod affinity",
        why="the scheduler compares each term with every pod of the cluster, while all other pods wait",
        fix="merge terms, or drop the least important ones",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            Subject.PODS: f"""!variables.placing || variables.byController || !has(variables.spec.affinity)
        || ({_FEW_TERMS})"""
        },
    ),
    Rule(
        id="sched-08",
        title="pods of a tenant with apart: true share no node with another tenant's pods",
        why="the tenant's file requires it, and the scheduler acts only on what the pod itself says",
        fix=(
            "require anti-affinity by hostname to all pods of namespaces whose tenancy.gpu/tenant exists and "
            "is another, "
            "as `tenancy sample` writes it"
        ),
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""!variables.placing || {may(Allowance.BESIDE_OTHERS)} || (has(variables.spec.affinity)
        && has(variables.spec.affinity.podAntiAffinity)
        && has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
        && variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.exists(x,
            {_APART}))"""
        },
    ),
    Rule(
        id="sched-07",
        title="a node selector matches existing nodes, whose taints the pod tolerates",
        why="otherwise the pod stays pending for ever",
        fix="select a label that nodes have, and tolerate their taints",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW,
    ),
)
