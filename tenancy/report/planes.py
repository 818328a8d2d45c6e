"""Isolation: for every pair of tenants and every plane, computed from the objects of the plan.

The spec files are not used: RoleBindings, NetworkPolicies, IAM policies, tolerated pools and Kueue's objects are
evaluated as the API server, the CNI, AWS, the scheduler and Kueue evaluate them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from tenancy.iam.account import AccountIdentity, AccountModel
from tenancy.iam.answers import Target, can, requests_by_service, target
from tenancy.iam.conditions import texts
from tenancy.kube.quota_tree import Tree, most_borrowed
from tenancy.kube.selectors import has_labels
from tenancy.planning import access_review
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.plan_model import Plan
from tenancy.planning.queueing import queue_names, quota_shares
from tenancy.report.network import admits_outside_traffic, opening_policy
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.environment import GuardsMode
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Attack, Scene, all_attacks

NO = "–"
ALL_SUBJECTS = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})
BY_ROLE = "RBAC"


class CellKind(StrEnum):
    """Kind of a cell, which is its colour."""

    CLOSED = "closed"  # no access from one to the other
    SHARED_RESOURCE = "shared"  # a resource is shared, and isolated within
    GRANTED = "given"  # granted by the files by name
    OPEN = "open"  # not granted: a fault


class Cell(NamedTuple):
    """Access of one tenant to another on one plane."""

    kind: CellKind
    word: str
    """Short enough for a cell."""
    explanation: str
    """A sentence without names of tenants, so that equal cells are one line of the key."""
    rules: tuple[str, ...]
    """Ids of the rules that enforce it."""
    enforced_by: str
    """The control that refuses or allows the access."""
    proof: str
    """A command that tests it, for this pair alone if possible."""


class Plane(NamedTuple):
    """A table of one kind of isolation: one cell for each pair of tenants."""

    name: str
    question: str
    """The question about the row's tenant and the column's tenant."""
    cells: Mapping[tuple[str, str], Cell]


class IsolationMatrix:
    """The planes of an environment, each computed once."""

    def __init__(self, loaded: Loaded, plan: Plan) -> None:
        self.environment, self.tenants, self.plan = loaded.environment, active_tenants(loaded.tenants), plan
        self._tenants_by_name: Mapping[str, Tenant] = {tenant.tenant: tenant for tenant in self.tenants}
        self.names = list(self._tenants_by_name)

    def all(self) -> list[Plane]:
        """The tables of all kinds: access, network, data, nodes and queues."""
        planes = [self._access(), self._network()]
        if self.environment.aws.enabled:
            planes.append(self._data())
        planes.append(self._nodes())
        if self.environment.has_queues:
            planes.append(self._queues())
        return [self._with_guard_mode(plane) for plane in planes]

    def _with_guard_mode(self, plane: Plane) -> Plane:
        """Mark cells that guards enforce in an environment whose guards only warn."""
        if self.environment.guards is GuardsMode.ENFORCE:
            return plane
        cells = {
            pair: cell._replace(enforced_by=f"{cell.enforced_by}; guards only warn")
            if "guard" in cell.enforced_by
            else cell
            for pair, cell in plane.cells.items()
        }
        return plane._replace(cells=cells)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return ((source, peer) for source in self.names for peer in self.names if source != peer)

    # Attacks of `tenancy verify`

    @cached_property
    def _attacks(self) -> tuple[Attack, ...]:
        return tuple(
            attack for attack in all_attacks(Scene(self.environment, self.tenants, (), ())) if not attack.skipped
        )

    @cached_property
    def _attacks_by_pair(self) -> Mapping[tuple[str, str], int]:
        """Attacks on other tenants' objects, by attacker and owner."""
        owner = {space.name: tenant.name for tenant in self.plan.tenants for space in tenant.namespaces}
        attack_counts: dict[tuple[str, str], int] = {}
        for attack in self._attacks:
            head, _, space = attack.id.partition("@")
            if attack.rule == "rbac" and space in owner and "-as-" in head:
                pair = head.rpartition("-as-")[2], owner[space]
                attack_counts[pair] = attack_counts.get(pair, 0) + 1
        return attack_counts

    def _verify_command(self, *prefixes: str) -> str:
        """Number of attacks that test it, and the command that runs them."""
        count = {prefix: sum(attack.id.startswith(prefix) for attack in self._attacks) for prefix in prefixes}
        commands = " and ".join(
            f"tenancy verify --only {prefix} ({number})" for prefix, number in count.items() if number
        )
        return f"attacks: {commands}" if commands else "no attack: the environment has no such case"

    # Objects

    def _access(self) -> Plane:
        """By subjects of RoleBindings: subjects bound in both tenants, and every service account of the first."""
        roles_by_subject: dict[str, dict[tuple[str, str], set[str]]] = {}
        for tenant in self.plan.tenants:
            tenant_roles = roles_by_subject.setdefault(tenant.name, {})
            for space in tenant.namespaces:
                for binding in access_review.bindings_in(space):
                    tenant_roles.setdefault((binding.kind, binding.name), set()).add(
                        binding.role.removeprefix("tenancy-")
                    )
        spaces = {tenant.name: {space.name for space in tenant.namespaces} for tenant in self.plan.tenants}

        def owner(subject: tuple[str, str]) -> str:
            """The tenant of a service account or of a group of service accounts."""
            kind, name = subject
            space = name.partition("/")[0] if kind == "ServiceAccount" else name.rpartition("serviceaccounts:")[2]
            return next((tenant for tenant, tenant_spaces in spaces.items() if space in tenant_spaces), "")

        subjects_with_owner = {
            tenant: [(*subject, owner(subject)) for subject in roles] for tenant, roles in roles_by_subject.items()
        }
        cells = {}
        for source, peer in self._pairs():
            roles: set[str] = set()
            open_to: set[str] = set()
            for kind, name, owner_tenant in subjects_with_owner[peer]:
                if (kind, name) in roles_by_subject[source]:
                    roles |= roles_by_subject[peer][kind, name]
                if owner_tenant == source or name in ALL_SUBJECTS:
                    open_to |= roles_by_subject[peer][kind, name]
            attack_count = self._attacks_by_pair.get((source, peer), 0)
            proof = (
                f"attacks: tenancy verify --only rbac- ({attack_count} of this pair)"
                if attack_count
                else "attacks: of neighbouring pairs, by the same bindings"
            )
            if open_to:
                explanation = "a role is bound to its service accounts, or to all users"
                cells[source, peer] = Cell(CellKind.OPEN, "open", explanation, ("rbac-05",), BY_ROLE, proof)
            elif roles:
                word = ", ".join(sorted(roles))
                explanation = f"people in both files have the role {word} there"
                proof = "tenancy report access shows the lines"
                cells[source, peer] = Cell(CellKind.GRANTED, word, explanation, ("rbac-05",), BY_ROLE, proof)
            else:
                explanation = "none of its people and none of its service accounts has a role there"
                cells[source, peer] = Cell(
                    CellKind.CLOSED, NO, explanation, ("rbac-05", "rbac-01", "rbac-02"), BY_ROLE, proof
                )
        return Plane("objects", "Can it see or change objects of the other at the API server?", cells)

    # Connections

    def _network(self) -> Plane:
        spaces = {tenant.name: tenant.namespaces for tenant in self.plan.tenants}
        bindings = {
            tenant: [space for space in tenant_spaces if admits_outside_traffic(space)]
            for tenant, tenant_spaces in spaces.items()
        }
        has_cluster_policies = {tenant.name for tenant in self.plan.tenants if tenant.cluster_policies}
        proof = self._verify_command("net-02", "net-10", "net-01", "net-07")
        cells = {}
        for source, peer in self._pairs():
            admitting_policy = (
                opening_policy(spaces[source], bindings[peer], self.environment.own_ranges) if bindings[peer] else ""
            )
            if has_cluster_policies & {source, peer}:
                explanation = "a clusterwide deny policy blocks it, whatever their own policies allow"
                enforcer = "CiliumClusterwideNetworkPolicy, by Cilium"
                cells[source, peer] = Cell(
                    CellKind.CLOSED, NO, explanation, ("net-02", "net-01", "net-07"), enforcer, proof
                )
            elif admitting_policy:
                explanation = "a NetworkPolicy of the other admits it"
                cells[source, peer] = Cell(
                    CellKind.OPEN, "open", explanation, ("net-02",), f"NetworkPolicy {admitting_policy}", proof
                )
            else:
                explanation = "every namespace of both denies by default, and no policy of the other admits it"
                rules = ("net-02", "net-01", "net-07")
                cells[source, peer] = Cell(
                    CellKind.CLOSED, NO, explanation, rules, "NetworkPolicy default-deny, by the CNI", proof
                )
        return Plane("network", "Can its pods connect to pods of the other?", cells)

    # What is on AWS

    def _data(self) -> Plane:
        account = AccountModel(self.environment, self.tenants, self.plan)
        owned = {
            tenant.name: list(_owned(account, self._tenants_by_name[tenant.name], tenant.aws))
            for tenant in self.plan.tenants
            if tenant.name in self._tenants_by_name
        }
        patterns = {
            tenant.name: [(who, _patterns(who)) for who in account.of_tenant(tenant.name)]
            for tenant in self.plan.tenants
        }
        cells = {}
        for source, peer in self._pairs():
            allowed_words: set[str] = set()
            example_arn = ""
            for who, role_patterns in patterns[source]:
                for words, place in owned[peer]:
                    example_arn = example_arn or place.arn
                    if _may_matter(account, role_patterns, place):
                        allowed_words |= {
                            word for word, action in words.items() if can(account, who, action, place).answer.allowed
                        }
            target_url = (
                f"s3://{example_arn.partition(':::')[2].removesuffix('any')}" if ":::" in example_arn else example_arn
            )
            proof = (
                f"tenancy who-can {target_url} {self.environment.environment}"
                if target_url
                else "the other has no resources of its own on AWS"
            )
            rules = ("stor-02", "stor-01", "aws-04")
            if allowed_words & {"write", "delete", "send", "push"}:
                explanation = "a policy allows it to change resources of the other"
                cells[source, peer] = Cell(CellKind.OPEN, "write", explanation, rules, "IAM", proof)
            elif allowed_words:
                word, explanation = "read", "a grant allows it to read where the other writes, and to change nothing"
                cells[source, peer] = Cell(CellKind.GRANTED, word, explanation, rules, "IAM", proof)
            else:
                explanation = "no statement of any of its roles, and of no resource's policy, allows it"
                cells[source, peer] = Cell(
                    CellKind.CLOSED, NO, explanation, rules, "IAM: role, boundary and resource policy", proof
                )
        return Plane("data", "Can its identities reach data, secrets, queues or images of the other on AWS?", cells)

    # Nodes

    def _nodes(self) -> Plane:
        environment = self.environment
        pools = {
            tenant.tenant: {
                name for tier in tenant.tiers for name in quota_shares.open_pools(environment, tenant, tier)
            }
            for tenant in self.tenants
        }
        taint_tests, gpu_tests = self._verify_command("sched-01", "sched-02"), self._verify_command("gpu-0")
        cells = {}
        for source, peer in self._pairs():
            shared_pools = pools[source] & pools[peer]
            if any(environment.pools[name].gpu_sharing for name in shared_pools):
                explanation = "both run on replicas of the same GPUs, which share memory and faults"
                cells[source, peer] = Cell(CellKind.OPEN, "replicas", explanation, ("pool-02",), "nothing", gpu_tests)
            elif any(environment.pools[name].mig for name in shared_pools):
                explanation = "slices of the same boards: MIG isolates memory and compute; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[source, peer] = Cell(
                    CellKind.SHARED_RESOURCE,
                    "slices",
                    explanation,
                    rules,
                    "MIG, device plugin, admission guards",
                    gpu_tests,
                )
            elif shared_pools:
                explanation = "whole GPUs of the same nodes: one tenant at a time uses a GPU; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[source, peer] = Cell(
                    CellKind.SHARED_RESOURCE, "GPUs", explanation, rules, "device plugin, admission guards", gpu_tests
                )
            else:
                explanation = "no node admits work of both"
                cells[source, peer] = Cell(
                    CellKind.CLOSED,
                    NO,
                    explanation,
                    ("sched-01", "sched-02"),
                    "taints; guard on tolerations",
                    taint_tests,
                )
        return Plane("nodes", "Can its work run on nodes on which work of the other runs?", cells)

    # Queues

    def _queues(self) -> Plane:
        environment, tree = self.environment, Tree(self.plan.cluster_queues, self.plan.cohorts)
        queues_by_tenant = {tenant.name: tenant.cluster_queues for tenant in self.plan.tenants}
        nodes = {name: [tree.queues[queue.name] for queue in queues] for name, queues in queues_by_tenant.items()}
        spaces = {tenant.name: [space.meta.labels for space in tenant.namespaces] for tenant in self.plan.tenants}
        local_queue_targets = {
            tenant.name: {queue.queue for space in tenant.namespaces for queue in space.local_queues}
            for tenant in self.plan.tenants
        }
        offers = [
            (flavor, queue_names.flavor_name(environment, pool), queue_names.queue_resource(environment, flavor))
            for pool in environment.pools
            for flavor in environment.flavors_of(pool)
        ]
        queue_tests, lending_tests = (
            self._verify_command("kueue-05", "kueue-01"),
            self._verify_command("share-", "kueue-0"),
        )
        cells = {}
        for source, peer in self._pairs():
            peer_queues = queues_by_tenant[peer]
            if local_queue_targets[source] & {queue.name for queue in peer_queues} or any(
                has_labels(queue.selects, labels) for queue in peer_queues for labels in spaces[source]
            ):
                explanation = "a queue of the other admits its namespaces"
                cells[source, peer] = Cell(CellKind.OPEN, "open", explanation, ("kueue-05",), "Kueue", queue_tests)
                continue
            sums: dict[str, int] = {}
            for flavor, pool, resource in offers:
                if count := most_borrowed(nodes[source], nodes[peer], (pool, resource)):
                    sums[flavor] = sums.get(flavor, 0) + count
            if sums:
                explanation = (
                    "it may borrow idle GPUs that the other lends, and the other reclaims them when it needs them"
                )
                max_gpus = max(sums.values())
                word = f"≤ {max_gpus}"
                enforcer = "Kueue: lending and borrowing limits, reclaim"
                cells[source, peer] = Cell(
                    CellKind.GRANTED, word, explanation, ("share-01", "share-03", "share-04"), enforcer, lending_tests
                )
            else:
                explanation = "its queues cannot use GPUs of the other, not even idle ones"
                cells[source, peer] = Cell(
                    CellKind.CLOSED, NO, explanation, ("kueue-05", "kueue-01"), "Kueue; guard on queues", queue_tests
                )
        return Plane("queues", "Can its work use GPUs that are guaranteed to the other?", cells)


def _owned(account: AccountModel, tenant: Tenant, aws: Any) -> Iterator[tuple[Mapping[str, str], Target]]:
    """Resources of the tenant alone, with their actions: prefixes that it writes, and resources of its own."""
    requests = requests_by_service()
    for grant in tenant.storage:
        if grant.access is not Access.READ_ONLY and (
            place := target(account, f"s3://{grant.bucket}/{grant.prefix}any")
        ):
            yield requests["s3"], place
    if aws is None:
        return
    for resource in aws.owned:
        if place := target(account, resource.arn):
            yield requests[resource.arn.split(":")[2]], place


def _may_matter(account: AccountModel, patterns: Sequence[str], place: Target) -> bool:
    """Whether a statement of the role or of the resource's policy could allow access; otherwise IAM denies it."""
    policy = account.thing(place.arn).policy
    if policy and any(statement["Effect"] == "Allow" for statement in policy["Statement"]):
        return True
    prefix = place.arn.removesuffix("any")
    return any(
        pattern.startswith(prefix) or prefix.startswith(pattern) or fnmatchcase(place.arn, pattern)
        for pattern in patterns
    )


def _patterns(who: AccountIdentity) -> tuple[str, ...]:
    """Resources in the role's allow statements, with a wildcard for each variable."""
    patterns = {
        "".join("*" if i % 2 else part for i, part in enumerate(_variables(resource)))
        for document in who.role.policies.values()
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for resource in texts(statement.get("Resource", "*"))
    }
    return tuple(sorted(patterns))


def _variables(text: str) -> list[str]:
    """A text split at its policy variables: every second part is a variable."""
    parts: list[str] = []
    for index, piece in enumerate(text.split("${")):
        if index:
            name, _, suffix = piece.partition("}")
            parts += [name, suffix]
        else:
            parts.append(piece)
    return parts


def counts(planes: Sequence[Plane]) -> dict[CellKind, int]:
    """Number of cells of all planes by kind."""
    counts_by_kind = dict.fromkeys(CellKind, 0)
    for plane in planes:
        for cell in plane.cells.values():
            counts_by_kind[cell.kind] += 1
    return counts_by_kind
