"""Quotas and shares: what a tenant may use, and of what nothing is left uncounted."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.kube import quantities
from tenancy.rules.attacks import ABSENT, Attack, skipped
from tenancy.rules.expressions import unless_by_controller
from tenancy.rules.model import GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import ALL_KINDS, LIMITS, REQUESTS, Case, attack_of, in_queue, kinds_of, through_all_kinds

# Attacks


def _of_whole_pods(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    sentence, resources = "request resources outside of the limit range", {"limits": {"cpu": "1"}}
    yield Case("quota-03", "pod-level", sentence, "/spec/resources", resources, kinds=ALL_KINDS)


def _above_defaults(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "block its queue with work that can never start"
    default = place.environment.tiers[place.tenant.tier_of(place.namespace)].container.default
    if "cpu" not in default:
        yield skipped("quota-04-job-limit", "quota-04", sentence, "its tier has no default limit of cpu")
    else:
        more = quantities.write(quantities.parse(default["cpu"]) + 1)
        case = Case("quota-04", "limit", sentence, f"{LIMITS}/cpu", ABSENT, more, {f"{REQUESTS}/cpu": more})
        for kind in kinds_of(place):
            # A pod's limit gets its default before it is judged; the API server then compares request and limit.
            if kind != "Pod":
                yield attack_of(scene, place, case, kind)
    if unread := [f.kind for f in place.frameworks if f.kind not in kinds_of(place)]:
        reason = f"{', '.join(unread)} has no pod template of its own: guards judge its pods instead"
        yield skipped("kueue-template", "quota-04", "hide a pod in a template", reason)


RULES: tuple[Rule, ...] = (
    Rule(
        id="share-01",
        title="a share lends no more than its guarantee, and lends or borrows only if its sharing preset allows it",
        why="a limit that the preset ignores has no effect",
        fix="choose sharing: lend or lend-and-borrow, or drop the limit",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="share-03",
        title="a tenant borrows GPUs only for work that may be preempted",
        why="work that is never preempted would keep GPUs that are guaranteed to another tenant",
        fix="give a namespace a tier with allow-borrowing: true, or drop borrowing-limit",
    ),
    Rule(
        id="share-04",
        title="GPUs are lent and borrowed only through a queue",
        why="without a queue, lent GPUs cannot be reclaimed",
        fix="set queues.scheduler to kueue, or sharing to strict",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="share-02",
        title="a replica of a GPU has a resource name of its own, and no container gets two replicas",
        why="a replica named nvidia.com/gpu is taken for a whole GPU, and two replicas may be the same GPU",
        fix="set renameByDefault and, for time slicing, failRequestsGreaterThanOne to true",
    ),
    Rule(
        id="quota-04",
        title="a container that asks for more than its namespace's default limit sets its own limit",
        why="the queue never admits such work: its requests would exceed its limits",
        fix="write limits of the same resources; `kubectl describe limitrange` shows the defaults",
        severity=Severity.MEDIUM,
        guards={
            # Kueue reads a template before the defaults of its pods are filled in.
            GuardSubject.QUEUED_TEMPLATES: unless_by_controller(
                """variables.containers.all(c, !has(c.resources) || !has(c.resources.requests)
        || variables.defaultLimits.all(d, !(d.split('=')[0] in c.resources.requests)
            || (has(c.resources.limits) && d.split('=')[0] in c.resources.limits)
            || !quantity(string(c.resources.requests[d.split('=')[0]])).isGreaterThan(quantity(d.split('=')[1]))))"""
            )
        },
        attacks=(in_queue(_above_defaults),),
    ),
    Rule(
        id="quota-03",
        title="resources are requested by containers, not by the pod as a whole",
        why="a limit range does not check the resources of the pod as a whole",
        fix="move spec.resources to the containers",
        guards={GuardSubject.PODS: "!has(variables.spec.resources)"},
        attacks=(through_all_kinds(_of_whole_pods),),
    ),
    Rule(
        id="quota-06",
        title=(
            "object quotas of one tenant, and of all tenants divided by object-overcommit, fit into half of the API "
            "server's store"
        ),
        why="an API server whose store is full accepts no writes, neither from other tenants nor from nodes",
        fix=(
            "lower the counts of the tiers' quotas, split the environment into two clusters, or raise "
            "cluster.object-overcommit"
        ),
    ),
    Rule(
        id="quota-05",
        title="a tenant's quota names every kind of GPU that the cluster offers",
        why="a resource that no quota names is unlimited: one tenant takes every slice that is free",
        fix="write requests.<resource> for each, 0 for what the tenant does not have",
    ),
    Rule(
        id="quota-01",
        title="a quota has only keys that the API server accepts and enforces",
        why=(
            "'limits.nvidia.com/gpu' and a bare 'nvidia.com/gpu' are stored and never counted; the API server "
            "refuses a "
            "quota with a key such as 'count/a/b', and the update ends there"
        ),
        fix="write extended resources as requests.<domain>/<name>",
    ),
    Rule(
        id="quota-02",
        title="a limit range names no GPU, and no maximum without a default",
        why=(
            "a maximum without a default is the default: pods get GPUs, huge pages or a whole node's memory "
            "that they do "
            "not ask for"
        ),
        fix="cap GPUs and huge pages by quota and drop them from the limit range; write a default beside each maximum",
    ),
)
