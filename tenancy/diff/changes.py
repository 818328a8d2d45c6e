"""Comparison of two specs and their plans by what tenants have: a pure function."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import permutations
from typing import Any

from tenancy.catalog.prices import MONTH_HOURS
from tenancy.catalog.versions import minor_step
from tenancy.planning import Plan, make_plan
from tenancy.planning.access_review import all_grants, rights
from tenancy.planning.aws import creation
from tenancy.planning.aws.karpenter import node_settings
from tenancy.planning.aws.prices import MICRO, node_price, purchase_kind
from tenancy.planning.common.quota_changes import BORROWS, GUARANTEED, LENDS, WEIGHT
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.capacity import supply
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.planning.scope import StackScope, select, stacks
from tenancy.rules import cross_object, manifest_rules, objects
from tenancy.rules.cilium import CLUSTERWIDE, IN_NAMESPACE
from tenancy.rules.findings import Finding
from tenancy.rules.index import tenant_label
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment, Layout
from tenancy.spec.fields.network_rules import EgressRule, IngressRule
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.queues import StopPolicy
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.problems import Problem

UNKNOWN = "unknown"
"""Value of a cost without a price."""


class ChangeTopic(StrEnum):
    """Topic of a change."""

    TENANT = "tenant"
    GPUS = "GPUs"
    QUOTA = "quota"
    NETWORK = "network"
    ACCESS = "access"
    COST = "cost"
    EXCEPTION = "exception"
    RULE = "rule"
    WORK = "work"
    STACK = "stack"


Value = int | str | None
"""None: it does not exist on this side."""


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs between before and after, about a tenant or the platform."""

    topic: ChangeTopic
    tenant: str
    """Empty for a fact about all tenants or the platform."""
    what: str
    before: Value
    after: Value
    of: str = ""
    """Subject of the fact: a flavor, a group, a namespace."""

    def mirrored(self) -> Change:
        """The same change with before and after swapped."""
        return replace(self, before=self.after, after=self.before)


@dataclass(frozen=True)
class SpecState:
    """An environment at one time: the loaded spec, or its problems, or neither if it does not exist."""

    name: str
    loaded: Loaded | None = None
    problems: tuple[Problem, ...] = ()

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of the spec; None if the spec is invalid or absent."""
        return make_plan(self.loaded, self.loaded.day) if self.loaded else None

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Tenants by name, as deployed: a leaving tenant has less, and is absent at its last stage."""
        return {tenant.tenant: tenant for tenant in active_tenants(self.loaded.tenants)} if self.loaded else {}

    @property
    def environment(self) -> Environment | None:
        """The environment's spec; None if it is invalid or absent."""
        return self.loaded.environment if self.loaded else None


def diff(before: SpecState, after: SpecState) -> tuple[Change, ...]:
    """Every change, ordered by topic. If a side cannot be read, only broken rules are compared."""
    result = [*rule_changes(_broken_rules(before), _broken_rules(after))]
    if not (before.problems or after.problems):
        result += fact_changes(ChangeTopic.TENANT, _names(before), _names(after))
        result += fact_changes(ChangeTopic.GPUS, _shares(before), _shares(after))
        result += fact_changes(ChangeTopic.QUOTA, _quotas(before), _quotas(after))
        result += fact_changes(ChangeTopic.NETWORK, _reach(before), _reach(after))
        result += _without_cilium(before, after)
        result += fact_changes(ChangeTopic.ACCESS, _access(before), _access(after))
        result += fact_changes(ChangeTopic.COST, _costs(before), _costs(after))
        result += fact_changes(ChangeTopic.EXCEPTION, _exceptions(before), _exceptions(after))
        result += fact_changes(ChangeTopic.WORK, _workload_places(before), _workload_places(after))
        result += _fixed(before, after)
        result += fact_changes(ChangeTopic.STACK, *_stacks(before, after))
    return in_topic_order(result)


def in_topic_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Changes sorted by topic and tenant."""
    order = list(ChangeTopic)
    return tuple(sorted(changes, key=lambda c: (order.index(c.topic), c.tenant, c.of, c.what)))


Facts = dict[tuple[str, str, str], Value]
"""(tenant, of, what) -> value."""


def fact_changes(topic: ChangeTopic, before: Facts, after: Facts) -> Iterator[Change]:
    """Changes of a topic between two sets of facts."""
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            tenant, of, what = key
            yield Change(topic, tenant, what, old, new, of)


_GIVEN_SEPARATOR = ": given "


def rule_fact(finding: Finding) -> tuple[str, str, str]:
    """The key of a broken rule among the facts of its topic."""
    return "", finding.rule, f"{finding.object}{_GIVEN_SEPARATOR}{finding.given}"


def rule_changes(before: Facts, after: Facts) -> Iterator[Change]:
    """Changes of broken rules. If an object loses some of its faults against a rule and gains none, the rule is not
    newly broken, and the lost faults are told alone."""
    all_changes = list(fact_changes(ChangeTopic.RULE, before, after))
    new = [change for change in all_changes if change.after is not None]
    for change in (candidate for candidate in all_changes if candidate.after is None):
        (subject, faults), text = _faults(change), change.what
        for new_change in (candidate for candidate in new if candidate.of == change.of):
            name, other_faults = _faults(new_change)
            if name == subject and set(other_faults) < set(faults):
                new.remove(new_change)
                text = f"{name}{_GIVEN_SEPARATOR}{', '.join(fault for fault in faults if fault not in other_faults)}"
                break
        yield replace(change, what=text)
    yield from new


def _faults(change: Change) -> tuple[str, list[str]]:
    """The object that breaks a rule, and what was given part by part."""
    subject, _, faults = change.what.partition(_GIVEN_SEPARATOR)
    return subject, re.split(r"[;,] (?:and )?", faults)


# What is compared


def _names(side: SpecState) -> Facts:
    return {(name, "", "is a tenant"): tenant.title or tenant.team for name, tenant in side.tenants.items()}


BORROWABLE, SHARING = "always on", "shares with other departments"


def _shares(side: SpecState) -> Facts:
    """GPU amounts and weights. Zeros are left out, so that a new tenant gains and a removed one loses its amounts."""
    facts: Facts = {}
    if not side.environment:
        return facts
    for flavor in supply(side.environment, list(side.tenants.values())):
        for share in flavor.tenants:
            amounts = {
                GUARANTEED: share.guaranteed,
                BORROWS: share.borrows,
                BORROWABLE: share.borrowable,
                LENDS: share.lends,
            }
            facts |= {(share.tenant, flavor.flavor, what): count for what, count in amounts.items() if count}
        totals = {"always on": flavor.always_on, "max": flavor.maximum}
        facts |= {("", flavor.flavor, what): count for what, count in totals.items() if count}
    for name, department in side.environment.organisation.departments.items():
        if members(side, name):
            facts |= {("", name, SHARING): department.sharing.value, ("", name, WEIGHT): department.weight}
    for name, tenant in side.tenants.items():
        facts |= {(name, "", WEIGHT): tenant.weight} if tenant.gpus else {}
    return facts


def _quotas(side: SpecState) -> Facts:
    """Quotas of namespaces, without GPUs, which are compared by flavor."""
    facts: Facts = {}
    for tenant in side.plan.tenants if side.plan else ():
        for space in tenant.namespaces:
            for quota in space.quotas:
                suffix = f", of {quota.name}" if quota.classes else ""
                hard = quota.hard.items()
                facts |= {(tenant.name, space.name, key + suffix): amount for key, amount in hard if "/" not in key}
    return facts


def _reach(side: SpecState) -> Facts:
    """Destinations that pods may connect to, and pools on whose nodes they may run."""
    facts: Facts = {}
    for name, tenant in side.tenants.items():
        for rule in tenant.egress:
            facts[name, "pods", f"{_peer_name(rule)}, port {rule.port}/{rule.protocol}"] = "connect"
        for rule in tenant.ingress:
            facts[name, _peer_name(rule), f"pods, port {rule.port}/{rule.protocol}"] = "connect"
        open_namespaces = [part.name for part in tenant.namespaces if part.allow_intra_namespace]
        closed_namespaces = [part.name for part in tenant.namespaces if not part.allow_intra_namespace]
        facts |= {(name, f"pods of {part}", "each other"): "as policies of its own say" for part in closed_namespaces}
        if tenant.allow_cross_namespace:
            facts |= {
                (name, f"pods of {source}", f"pods of {target}"): "connect"
                for source, target in permutations(open_namespaces, 2)
            }
    if side.environment:
        for cidr in side.environment.aws.network.aws_service_cidrs:
            facts["", "pods with grants on AWS", f"{cidr}, port 443/TCP"] = "connect"
        for cidr in side.environment.aws.public_access_cidrs:
            facts["", "people and pipelines", f"the API server from {cidr}"] = "connect"
        for name, pool in side.environment.pools.items():
            for tenant in side.tenants.values():
                if pool.admits(tenant.tenant, tenant.tiers):
                    facts[tenant.tenant, "pods", f"nodes of pool {name}"] = "run"
    return facts


def _peer_name(rule: EgressRule | IngressRule) -> str:
    if isinstance(rule, EgressRule) and (rule.dns or rule.internet):
        return rule.dns or "the internet"
    return rule.cidr or f"the platform's {rule.service}"


CILIUM = frozenset({IN_NAMESPACE, CLUSTERWIDE})


def _without_cilium(before: SpecState, after: SpecState) -> Iterator[Change]:
    """Policies of Cilium that are deleted because the cluster gets another CNI, by the tenant of their pods."""
    old, new = before.environment, after.environment
    if not (old and new and before.plan) or old.cluster.cni is not Cni.CILIUM or new.cluster.cni is Cni.CILIUM:
        return
    deleted: dict[str, list[str]] = {}
    for item in before.plan.objects():
        tenant = tenant_label(item) or ""
        if item["kind"] in CILIUM and (not tenant or tenant in after.tenants):
            deleted.setdefault(tenant, []).append(objects.name_of(item))
    for tenant, policies in deleted.items():
        description = f"whatever only policies of Cilium restrict; deleted: {', '.join(sorted(policies))}"
        yield Change(ChangeTopic.NETWORK, tenant, description, None, "connect", "pods" if tenant else "pods of tenants")


def _access(side: SpecState) -> Facts:
    """Rights by subject and place. Several rights of one subject at one place are one value."""
    if not side.loaded or not side.plan:
        return {}
    roles_by_key: dict[tuple[str, str, str], set[str]] = {}
    for entry in all_grants(side.loaded.environment, side.loaded.tenants, side.plan):
        for place in entry.applies_to:
            roles_by_key.setdefault((entry.tenant, f"{entry.kind} {entry.subject}", place), set()).add(entry.role)
    facts: Facts = {key: " and ".join(sorted(roles)) for key, roles in roles_by_key.items()}
    for right in rights(side.plan):
        for resource in right.to:
            key = ("", f"role {right.role}", resource)
            facts[key] = " and ".join(filter(None, [str(facts.get(key) or ""), right.may]))
    return facts


ALWAYS_ON, MAXIMUM, GUARANTEE_VALUE, BUDGET = "nodes always on", "max nodes", "guarantees", "budget"


def _costs(side: SpecState) -> Facts:
    """Dollars a month. A sum with an unknown price is unknown, and the pool without a price is listed."""
    environment = side.environment
    if not environment:
        return {}
    prices = {
        name: node_price(environment, name, pool.instance_type, str(purchase_kind(pool)))
        for name, pool in environment.pools.items()
    }
    facts: Facts = {("", name, "price"): UNKNOWN for name, price in prices.items() if price is None}
    pools = environment.pools.items()
    facts["", "", ALWAYS_ON] = _month((prices[name], pool.nodes.min) for name, pool in pools)
    facts["", "", MAXIMUM] = _month((prices[name], pool.nodes.max) for name, pool in pools)
    for name, tenant in side.tenants.items():
        parts = [(_unit_price(environment, prices, tenant, flavor), s.guaranteed) for flavor, s in tenant.gpus.items()]
        facts[name, "", GUARANTEE_VALUE] = _month(parts)
        if tenant.budget:
            facts[name, "", BUDGET] = tenant.budget.monthly_usd
    return {key: value for key, value in facts.items() if value != 0}


def _month(priced: Iterable[tuple[Any, int]]) -> Value:
    amounts = [(price, count) for price, count in priced if count]
    if any(price is None for price, _ in amounts):
        return UNKNOWN
    return round(sum(price * count for price, count in amounts) * MONTH_HOURS / MICRO)


def _unit_price(environment: Environment, prices: Mapping[str, int | None], tenant: Tenant, flavor: str) -> Any:
    """Millionths of a dollar an hour of one GPU, slice or replica, in the first pool that admits the tenant."""
    for name, pool in environment.pools_by_flavor[flavor]:
        if pool.admits(tenant.tenant, tenant.tiers):
            price = prices[name]
            return None if price is None else price * part_of_node(environment, name, flavor)
    return None


def _exceptions(side: SpecState) -> Facts:
    return {
        (name, f"{waiver.rule} in {waiver.namespace}", f"{waiver.reason} ({waiver.owner})"): f"until {waiver.until}"
        for name, tenant in side.tenants.items()
        for waiver in tenant.exceptions
    }


def _broken_rules(side: SpecState) -> Facts:
    """Rules that the files break, or the objects of their plan."""
    facts: Facts = {}
    for problem in side.problems:
        facts["", problem.id or "file", problem_text(problem)] = "broken"
    if side.plan:
        items = list(side.plan.objects())
        alone = (f for item in items for f in (*objects.object_findings(item), *manifest_rules.object_findings(item)))
        for finding in (*alone, *cross_object.findings_together(items)):
            facts[rule_fact(finding)] = "broken"
    return facts


def problem_text(problem: Problem) -> str:
    """A mistake as it is compared: without its line number, which changes when lines above it change."""
    return f"{problem.file.rpartition(':')[2]}, {problem.field or 'file'}: given {problem.given}"


NAMESPACE, QUEUE, SHARE, GATE = "namespace", "queue", "share of GPUs", "queue is"
NODES, NODES_MIN, NODES_MAX = "nodes of pool", "nodes always on in pool", "max nodes in pool"
VERSION = "Kubernetes of every node"
CONTENTS = "holds"
"""In previews: a resource whose deletion or replacement also deletes what it contains."""


def _workload_places(side: SpecState) -> Facts:
    """Namespaces, queues and nodes of work: if one changes or is removed, work is replaced or drained."""
    facts: Facts = {}
    if not side.plan or not side.environment:
        return facts
    for tenant in side.plan.tenants:
        for space in tenant.namespaces:
            facts[tenant.name, space.name, NAMESPACE] = "adopted" if tenant.adopt else "made here"
            for queue in space.local_queues:
                facts[tenant.name, f"{space.name}/{queue.name}", QUEUE] = queue.queue
        for share in tenant.cluster_queues:
            facts[tenant.name, share.name, SHARE] = "there"
    for name, tenant in side.tenants.items():
        if tenant.stop_policy is not StopPolicy.NONE:
            facts[name, "", GATE] = tenant.stop_policy.value
        for part in tenant.namespaces:
            if part.stop_policy is not StopPolicy.NONE:
                facts[name, tenant.namespace_name(part), GATE] = part.stop_policy.value
    for name, pool in side.environment.pools.items():
        facts["", name, NODES] = _node_properties(pool)
        facts["", name, NODES_MIN] = pool.nodes.min
        facts["", name, NODES_MAX] = pool.nodes.max
    if side.environment.pools:
        facts["", "", VERSION] = side.environment.cluster.kubernetes
    return facts


FIXED, GROUP, ZONE, CLUSTER = "fixed at creation", "node group", "zone", "cluster"
REFUSED_MINOR = "Kubernetes that EKS refuses"
REPLACED_NODES, KARPENTER_NODES = "nodes that EKS replaces", "nodes that Karpenter replaces"
"""Nodes that go one after another, because what they are launched with changes."""


def _fixed(before: SpecState, after: SpecState) -> Iterator[Change]:
    """Changes of a cluster that is built here that no update makes, and those for which AWS replaces or deletes."""
    old, new = (side.plan.cluster if side.plan else None for side in (before, after))
    if old is None:
        return
    if new is None:
        yield Change(ChangeTopic.WORK, "", CLUSTER, "built here", None, old.name)
        return
    old_values, new_values = creation.fixed_values(old), creation.fixed_values(new)
    for field, value in new_values.items():
        if value and old_values[field] != value:
            yield Change(ChangeTopic.WORK, "", FIXED, old_values[field] or creation.CHOSEN_BY_EKS, value, field)
    if minor_step(old.kubernetes, new.kubernetes):
        yield Change(ChangeTopic.WORK, "", REFUSED_MINOR, old.kubernetes, new.kubernetes)
    subnets = {subnet.zone: subnet for subnet in new.network.subnets}
    moved_subnets: dict[str, str] = {}
    for subnet in old.network.subnets:
        if subnet.zone not in subnets:
            yield Change(ChangeTopic.WORK, "", ZONE, "there", None, subnet.zone)
            continue
        new_subnet = subnets[subnet.zone]
        if subnet.private and new_subnet.private not in {"", subnet.private}:
            yield Change(ChangeTopic.WORK, "", FIXED, subnet.private, new_subnet.private, f"range of {subnet.zone}")
        if subnet.subnet_id and new_subnet.subnet_id not in {"", subnet.subnet_id}:
            moved_subnets[subnet.zone] = f"subnet of {subnet.zone} {subnet.subnet_id} → {new_subnet.subnet_id}"
    groups = {group.name: group for group in new.groups}
    for group in old.groups:
        if group.name in groups:
            differences = creation.group_differences(group, groups[group.name])
            differences += [moved_subnets[zone] for zone in group.zones if zone in moved_subnets]
            if differences:
                yield Change(ChangeTopic.WORK, "", GROUP, "there", ", ".join(differences), group.name)
            elif _same_pool(before, after, group.pool):
                settings = creation.launch_differences(old, group, new, groups[group.name])
                yield from _replaced_nodes(REPLACED_NODES, group.name, settings)
    yield from _replaced_by_karpenter(before, after)


def _replaced_nodes(what: str, name: str, settings: Sequence[str]) -> Iterator[Change]:
    if settings:
        yield Change(ChangeTopic.WORK, "", what, "there", ", ".join(settings), name)


def _replaced_by_karpenter(before: SpecState, after: SpecState) -> Iterator[Change]:
    old, new = before.environment, after.environment
    for name in sorted(old.pools.keys() & new.pools.keys()) if old and new else ():
        sides = [(side, name, side.pools[name]) for side in (old, new) if side]
        if all(pool.is_autoscaled for *_, pool in sides) and _same_pool(before, after, name):
            settings = creation.setting_differences(*(node_settings(*side) for side in sides))
            yield from _replaced_nodes(KARPENTER_NODES, name, settings)


def _same_pool(before: SpecState, after: SpecState, pool: str) -> bool:
    """Whether nothing is told yet of the nodes of a pool; also of the platform's, which belong to none."""
    old, new = (side.environment for side in (before, after))
    if not (old and new) or old.cluster.kubernetes != new.cluster.kubernetes:
        return False
    return not pool or _node_properties(old.pools[pool]) == _node_properties(new.pools[pool])


def _node_properties(pool: Pool) -> str:
    """Properties of a pool that a running node cannot change."""
    zones = f" in {', '.join(sorted(pool.zones))}" if pool.zones else ""
    extras = "".join(
        f", {word}" for word in (_gpu_partitioning(pool), "EFA" if pool.efa else "", pool.ami_release or "") if word
    )
    return f"{pool.instance_type}, {pool.purchase}, by {pool.effective_provisioner}{zones}{extras}"


def _gpu_partitioning(pool: Pool) -> str:
    words = []
    if pool.mig:
        words.append(f"MIG {pool.mig.model_dump(mode='json', exclude_none=True, exclude_defaults=True)}")
    if pool.gpu_sharing:
        words.append(f"shared by {pool.gpu_sharing.mode}, {pool.gpu_sharing.replicas} replicas")
    return " ".join(words)


def _stacks(before: SpecState, after: SpecState) -> tuple[Facts, Facts]:
    """Stacks whose part of the plan differs, with a hash of the part on each side."""
    parts_before, parts_after = dict(_parts(before)), dict(_parts(after))
    differ = [
        name for name in parts_before.keys() | parts_after.keys() if parts_before.get(name) != parts_after.get(name)
    ]
    result: tuple[Facts, Facts] = ({}, {})
    for facts, parts in zip(result, (parts_before, parts_after), strict=True):
        for name in differ:
            if name in parts:
                scope, tenant, part = parts[name]
                facts[tenant or "", str(scope), name] = hashlib.sha256(repr(part).encode()).hexdigest()[:8]
    return result


def _parts(side: SpecState) -> Iterator[tuple[str, tuple[StackScope, str | None, Any]]]:
    if not side.plan or not side.environment:
        return
    plan, layout = side.plan, side.environment.stacks
    for name, scope, tenant in stacks(plan, layout):
        if scope is StackScope.CLUSTER:
            part: Any = plan.cluster
        elif scope is StackScope.TENANT:
            part = plan.tenant(tenant or "")
        else:
            part = (plan.platform, plan.tenants if layout is Layout.ONE else ())
        yield name, (scope, tenant, part)


def users(side: SpecState, pool: str) -> list[str]:
    """Tenants with a share of a pool's flavors, which lose capacity if its nodes are removed."""
    environment = side.environment
    if not environment or pool not in environment.pools:
        return []
    flavors = set(environment.flavors_of(pool))
    pool_spec = environment.pools[pool]
    return [n for n, t in side.tenants.items() if pool_spec.admits(n, t.tiers) and flavors & set(t.gpus)]


def members(side: SpecState, department: str) -> list[str]:
    """Tenants of a department."""
    return [name for name, tenant in side.tenants.items() if tenant.department == department]


def object_counts(before: SpecState, after: SpecState, stack: str) -> str:
    """Number of changed objects of a stack by kind; empty if no object on the cluster changes."""
    old, new = (_objects(side, stack) for side in (before, after))
    kinds: dict[str, int] = {}
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            kinds[name[0]] = kinds.get(name[0], 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def _objects(side: SpecState, stack: str) -> dict[tuple[str, str], Any]:
    items: Iterable[Any] = ()
    for name, (scope, tenant, _) in _parts(side):
        if name == stack and side.plan and scope is not StackScope.CLUSTER:
            platform, tenants = select(side.plan, scope, tenant)
            items = [item for part in (platform, *tenants) if part for item in part.objects()]
    return {(item["kind"], objects.name_of(item)): item for item in items}


def published_price_pools(side: SpecState) -> list[str]:
    """Pools whose price is AWS's published one, because the environment has none."""
    environment = side.environment
    if not environment:
        return []
    return sorted(
        name
        for name, pool in environment.pools.items()
        if name not in environment.costs.pools
        and pool.machine.gpu not in environment.prices
        and node_price(environment, name, pool.instance_type, str(purchase_kind(pool))) is not None
    )
