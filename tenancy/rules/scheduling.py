"""Scheduling: which nodes a pod may run on, and beside whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tenancy.catalog import gpus, sizes, vocabulary
from tenancy.catalog.vocabulary import Allowance
from tenancy.kube import deniers
from tenancy.rules.attacks import ABSENT, Attack, escaped, skipped
from tenancy.rules.expressions import OF_TENANT, cel, may
from tenancy.rules.model import GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    ANTI_AFFINITY,
    LIMITS,
    Case,
    at_home,
    attack_of,
    in_each_namespace,
    kinds_of,
    through_all_kinds,
    withheld,
)

_TOLERABLE = f"""(t.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']
            && has(t.effect) && t.effect == 'NoExecute')
        || (t.key == 'node.kubernetes.io/memory-pressure' && has(t.effect) && t.effect == 'NoSchedule')
        || (t.key == {cel(vocabulary.POOL)} && (!has(t.operator) || t.operator in ['', 'Equal'])
            && has(t.value) && t.value in variables.allowedPools)
        || t.key in variables.asked
        || (t.key == {cel(gpus.GPU_TAINT)} && variables.asked.exists(r, r.startsWith('nvidia.com/')))"""
"""Allowed forms of a toleration `t`. EKS adds one for each extended resource that a pod asks for, keyed by the
resource."""


def _tolerations(facts: GuardFacts) -> str:
    """No admission plugin adds a toleration to a pod with a claim, so the pod has to name that of the GPU nodes itself:
    gpu-08 lets no claim be empty."""
    claimed = f"""
        || (t.key == {cel(gpus.GPU_TAINT)}
            && has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0)"""
    return f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}{claimed if facts.devices_by_claim else ""}))"""


_TENANT_KEY = cel(vocabulary.TENANT)
_OTHERS = f"""x.namespaceSelector.matchExpressions.exists(e, e.key == {_TENANT_KEY} && e.operator == 'Exists')
        && x.namespaceSelector.matchExpressions.exists(e, e.key == {_TENANT_KEY} && e.operator == 'NotIn'
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

# Attacks

_NEAR = ANTI_AFFINITY.replace("podAntiAffinity", "podAffinity")
_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


def _tolerated(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    all_taints = [{"operator": "Exists"}]
    yield Case("sched-01", "all", "tolerate every taint", "/spec/tolerations", all_taints, kinds=ALL_KINDS)
    usual = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    exists = {"/spec/tolerations": [{**usual, "operator": "Exists"}]}
    equal = {"/spec/tolerations": [{**usual, "operator": "Equal", "value": "another-tenants"}]}
    key = "/spec/tolerations/0/key"
    yield Case("sched-01", "empty-key", "tolerate every taint of an effect", key, "", usual["key"], exists)
    yield Case("sched-01", "any-pool", "tolerate every pool's taint", key, vocabulary.POOL, usual["key"], exists)
    yield Case("sched-01", "a-pool", "tolerate another tenant's pool", key, vocabulary.POOL, usual["key"], equal)
    cordon = "node.kubernetes.io/unschedulable"
    yield Case("sched-01", "cordon", "run on nodes that are being drained", key, cordon, usual["key"], exists)
    effect = "/spec/tolerations/0/effect"
    yield Case("sched-01", "not-ready", "start on a node that is not ready", effect, "NoSchedule", "NoExecute", exists)


def _gpu_tolerations(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    if place.environment.uses_device_claims:
        return
    sentence = "use a GPU node's CPU without asking for its GPU"
    flavor = next(iter(place.usable_gpus), None)
    if flavor is None:
        yield skipped("sched-01-pod-no-gpu", "sched-01", sentence, "no namespace with a developer has GPUs")
        return
    at = f"{LIMITS}/{escaped(place.environment.resource_of(flavor))}"
    base = {
        "/spec/tolerations": [{"key": gpus.GPU_TAINT, "operator": "Exists"}],
        f"{at.replace('limits', 'requests')}": ABSENT,
    }
    case = Case("sched-01", "no-gpu", sentence, at, ABSENT, "1", base, gpus={flavor: 1})
    for kind in kinds_of(place):
        yield attack_of(scene, place, case, kind)
    # Requests follow limits: a limit of zero asks for nothing.
    yield attack_of(scene, place, Case("sched-01", "zero-gpu", sentence, at, "0", "1", base, gpus={flavor: 1}), "Pod")


def _foreign_pools(scene: AttackScene) -> Iterator[Attack]:
    sentence = "tolerate another tenant's pool instead of its own"
    for place in scene.staffed:
        own_pools, pools = place.pools, sorted(place.environment.pools.items())
        foreign_pools = [name for name, pool in pools if pool.is_restricted and name not in own_pools]
        if not (own_pools and foreign_pools):
            reason = "no pool with a taint admits it" if not own_pools else "every pool with a taint admits it"
            yield skipped(f"sched-01-pod-foreign-pool@{place.name}", "sched-01", sentence, reason)
            continue
        taint = {"key": vocabulary.POOL, "operator": "Equal", "value": own_pools[0], "effect": "NoSchedule"}
        base, at = {"/spec/tolerations": [taint]}, "/spec/tolerations/0/value"
        case = Case("sched-01", "foreign-pool", sentence, at, foreign_pools[0], own_pools[0], base)
        yield attack_of(scene, place, case, "Pod", suffix=f"@{place.name}")


_NODE_NAME = Case("sched-02", "node", "choose a node without the scheduler", "/spec/nodeName", "node-1")


def _named_nodes(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    yield replace(_NODE_NAME, kinds=tuple(kind for kind in kinds_of(place) if kind != "Pod"))


def _named_node(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    if place.environment.has_queues:
        # Every pod has the queue's scheduling gate by then, and the API server refuses a pod with a gate and a node
        # name.
        yield attack_of(scene, place, replace(_NODE_NAME, rule="api-validation"), "Pod", deniers.API_VALIDATION)
    else:
        yield attack_of(scene, place, _NODE_NAME, "Pod")


def _shared_nodes(scene: AttackScene) -> Iterator[Attack]:
    at = f"/spec/nodeSelector/{escaped(vocabulary.TENANT)}"
    return withheld(scene, "sched-03", "run on nodes shared with other tenants", Allowance.ANY_NODE, at, ABSENT)


def _neighbours(scene: AttackScene) -> Iterator[Attack]:
    sentence = "run on a node beside another tenant's pods"
    return withheld(scene, "sched-08", sentence, Allowance.BESIDE_OTHERS, "/spec/affinity", ABSENT)


def _priorities(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    at, usual = "/spec/priorityClassName", place.priorities[-1]
    for slug, name, kinds in (
        ("system", "system-node-critical", ALL_KINDS),
        ("cluster", "system-cluster-critical", ("Pod",)),
    ):
        yield Case("sched-04", slug, f"run with priority {name}", at, name, usual, kinds=kinds)


def _other_priorities(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    for name in place.other_priorities:
        at = "/spec/priorityClassName"
        yield Case("sched-04", name, f"run with priority {name}", at, name, place.priorities[-1])


def _schedulers(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    sentence, at = "use a scheduler of its own", "/spec/schedulerName"
    yield Case("sched-05", "own", sentence, at, "mine", "default-scheduler", kinds=ALL_KINDS)


def _affinities(scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    base: dict[str, Any] = {ANTI_AFFINITY: [_TERM]}
    near: dict[str, Any] = {_NEAR: [_TERM]}
    others, at = "keep all other tenants' pods off its node", f"{ANTI_AFFINITY}/0/namespaceSelector"
    yield Case("sched-06", "all-namespaces", others, at, {}, base=base, kinds=ALL_KINDS)
    namespace = other_namespace.name if (other_namespace := scene.other_tenant_namespace(place)) else "kube-system"
    sentence, at = f"keep {namespace}'s pods off its node", f"{ANTI_AFFINITY}/0/namespaces"
    yield Case("sched-06", "named", sentence, at, [namespace], base=base)
    for slug, name, bad in (("all", "namespaceSelector", {}), ("named", "namespaces", [namespace])):
        for prefers, where in (("away", ANTI_AFFINITY), ("near", _NEAR)):
            prefer = where.replace("required", "preferred")
            weighed: dict[str, Any] = {prefer: [{"weight": 1, "podAffinityTerm": _TERM}]}
            yield Case(
                *("sched-06", f"oracle-{prefers}-{slug}", "learn by its own placement where other tenants' pods run"),
                *(f"{prefer}/0/podAffinityTerm/{name}", bad, ABSENT, weighed),
                ALL_KINDS if (slug, prefers) == ("all", "away") else ("Pod",),
            )
    yield Case("sched-06", "near", "run beside other tenants' pods", f"{_NEAR}/0/namespaceSelector", {}, base=near)


def _many_terms(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    for slug, where in (("required", _NEAR), ("preferred", _NEAR.replace("required", "preferred"))):
        term = _TERM if slug == "required" else {"weight": 1, "podAffinityTerm": _TERM}
        full: dict[str, Any] = {where: [term] * sizes.AFFINITY_TERMS}
        at, sentence = f"{where}/{sizes.AFFINITY_TERMS}", "slow the scheduler down by many affinity terms"
        kinds = ALL_KINDS if slug == "preferred" else ("Pod",)
        yield Case("sched-09", slug, sentence, at, term, ABSENT, full, kinds)


def _claim_tolerations(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    if not place.environment.uses_device_claims:
        return
    sentence, at = "use a GPU node's CPU without a claim", "/spec/resourceClaims"
    tolerant = {"/spec/tolerations": [{"key": gpus.GPU_TAINT, "operator": "Exists"}]}
    claimed = [{"name": "gpu", "resourceClaimName": "gpu"}]
    for kind in kinds_of(place):
        yield attack_of(scene, place, Case("sched-01", "no-claim", sentence, at, ABSENT, claimed, tolerant), kind)
    yield attack_of(scene, place, Case("sched-01", "empty-claims", sentence, at, [], claimed, tolerant), "Pod")


RULES: tuple[Rule, ...] = (
    Rule(
        id="sched-01",
        title="a pod tolerates only its own pools' taints, and a GPU taint only if it asks for that GPU",
        why="a toleration lets a pod run on another tenant's nodes",
        fix="drop the toleration; use operator Equal with one of your own pools",
        severity=Severity.CRITICAL,
        guards={GuardSubject.PODS: _tolerations},
        attacks=(through_all_kinds(_tolerated), at_home(_gpu_tolerations), at_home(_claim_tolerations), _foreign_pools),
    ),
    Rule(
        id="sched-02",
        title="a pod does not name its node",
        why="nodeName bypasses the scheduler and with it every taint",
        fix="drop nodeName; select nodes by label",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: "!variables.placing || !has(variables.spec.nodeName) || variables.spec.nodeName == ''"
        },
        attacks=(through_all_kinds(_named_nodes), at_home(_named_node)),
    ),
    Rule(
        id="sched-03",
        title="pods of a tenant with dedicated nodes run on its own nodes",
        why="on any other node it shares the kernel with other tenants",
        fix="set nodeSelector tenancy.gpu/tenant to the tenant's name",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""!variables.placing || {may(Allowance.ANY_NODE)} || (has(variables.spec.nodeSelector)
        && {cel(vocabulary.TENANT)} in variables.spec.nodeSelector
        && variables.spec.nodeSelector[{cel(vocabulary.TENANT)}] == {OF_TENANT})"""
        },
        attacks=(_shared_nodes,),
    ),
    Rule(
        id="sched-04",
        title="a pod uses only the priority classes of its namespace",
        why="a higher class preempts pods of other tenants",
        fix="use a class that your namespace lists, or none",
        guards={
            GuardSubject.PODS: """!has(variables.spec.priorityClassName) || variables.spec.priorityClassName == ''
        || variables.spec.priorityClassName in variables.allowedPriorities"""
        },
        attacks=(through_all_kinds(_priorities), in_each_namespace(_other_priorities)),
    ),
    Rule(
        id="sched-05",
        title="a pod uses the cluster's scheduler",
        why="another scheduler would bind the pod regardless of taints and queues",
        fix="drop schedulerName",
        guards={
            GuardSubject.PODS: """!has(variables.spec.schedulerName)
        || variables.spec.schedulerName in ['', 'default-scheduler']"""
        },
        attacks=(through_all_kinds(_schedulers),),
    ),
    Rule(
        id="sched-06",
        title="pod affinity stays in the pod's own namespace",
        why=(
            "required anti-affinity to all namespaces keeps all other pods off a node; preferred terms let the pod's "
            "placement reveal which labels other tenants' pods have, and where they run"
        ),
        fix="drop namespaces and namespaceSelector from required and preferred terms",
        guards={
            GuardSubject.PODS: f"""!has(variables.spec.affinity) || (
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
        attacks=(through_all_kinds(_affinities),),
    ),
    Rule(
        id="sched-09",
        title="a pod has at most 16 terms of each kind of pod affinity",
        why="the scheduler compares each term with every pod of the cluster, while all other pods wait",
        fix="merge terms, or drop the least important ones",
        severity=Severity.MEDIUM,
        guards={
            GuardSubject.PODS: f"""!variables.placing || variables.byController || !has(variables.spec.affinity)
        || ({_FEW_TERMS})"""
        },
        attacks=(through_all_kinds(_many_terms),),
    ),
    Rule(
        id="sched-08",
        title="pods of a tenant with dedicated-hosts: true share no node with another tenant's pods",
        why="the tenant's file requires it, and the scheduler acts only on what the pod itself says",
        fix=(
            "require anti-affinity by hostname to all pods of namespaces whose tenancy.gpu/tenant exists and "
            "is another, "
            "as `tenancy sample` writes it"
        ),
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.PODS: f"""!variables.placing || {may(Allowance.BESIDE_OTHERS)} || (has(variables.spec.affinity)
        && has(variables.spec.affinity.podAntiAffinity)
        && has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
        && variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.exists(x,
            {_APART}))"""
        },
        attacks=(_neighbours,),
    ),
    Rule(
        id="sched-07",
        title="a node selector matches existing nodes, whose taints the pod tolerates",
        why="otherwise the pod stays pending for ever",
        fix="select a label that nodes have, and tolerate their taints",
        severity=Severity.MEDIUM,
    ),
)
