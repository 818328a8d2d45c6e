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
from tenancy.iam.answers import SERVICES, Target, can, target
from tenancy.iam.conditions import texts
from tenancy.kube.quota_tree import Tree, most_borrowed
from tenancy.kube.selectors import has_labels
from tenancy.planning import access_review
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.model import Plan
from tenancy.planning.queueing import queue_names, quota_shares
from tenancy.prove.attacks import Attack, Scene, all_attacks
from tenancy.report.network import opening, porous
from tenancy.schema.data import Access
from tenancy.schema.environment import GuardsMode
from tenancy.schema.tenant import Tenant
from tenancy.validation import Loaded

NO = "–"
ALL_SUBJECTS = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})
BY_ROLE = "RBAC"


class CellKind(StrEnum):
    """Kind of a cell, which is its colour."""

    CLOSED = "closed"  # no access from one to the other
    SHARED = "shared"  # a resource is shared, and isolated within
    GIVEN = "given"  # granted by the files by name
    OPEN = "open"  # not granted: a fault


class Cell(NamedTuple):
    """Access of one tenant to another on one plane."""

    kind: CellKind
    word: str
    """Short enough for a cell."""
    said: str
    """A sentence without names of tenants, so that equal cells are one line of the key."""
    rules: tuple[str, ...]
    """Ids of the rules that enforce it."""
    holds: str
    """The control that refuses or allows the access."""
    proof: str
    """A command that tests it, for this pair alone if possible."""


class Plane(NamedTuple):
    """A table of one kind of isolation: one cell for each pair of tenants."""

    name: str
    asks: str
    """The question about the row's tenant and the column's tenant."""
    cells: Mapping[tuple[str, str], Cell]


class Planes:
    """The planes of an environment, each computed once."""

    def __init__(self, loaded: Loaded, plan: Plan) -> None:
        self.environment, self.tenants, self.plan = loaded.environment, active_tenants(loaded.tenants), plan
        self._of: Mapping[str, Tenant] = {tenant.tenant: tenant for tenant in self.tenants}
        self.names = list(self._of)

    def all(self) -> list[Plane]:
        """The tables of all kinds: access, network, data, nodes and queues."""
        found = [self._access(), self._network()]
        if self.environment.aws.enabled:
            found.append(self._data())
        found.append(self._nodes())
        if self.environment.has_queues:
            found.append(self._queues())
        return [self._as_held(plane) for plane in found]

    def _as_held(self, plane: Plane) -> Plane:
        """Mark cells that guards enforce in an environment whose guards only warn."""
        if self.environment.guards is GuardsMode.ENFORCE:
            return plane
        cells = {
            pair: cell._replace(holds=f"{cell.holds}; guards only warn") if "guard" in cell.holds else cell
            for pair, cell in plane.cells.items()
        }
        return plane._replace(cells=cells)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return ((one, other) for one in self.names for other in self.names if one != other)

    # Attacks of `tenancy verify`

    @cached_property
    def _attacks(self) -> tuple[Attack, ...]:
        return tuple(each for each in all_attacks(Scene(self.environment, self.tenants, (), ())) if not each.skipped)

    @cached_property
    def _across(self) -> Mapping[tuple[str, str], int]:
        """Attacks on other tenants' objects, by attacker and owner."""
        owner = {space.name: tenant.name for tenant in self.plan.tenants for space in tenant.namespaces}
        found: dict[tuple[str, str], int] = {}
        for each in self._attacks:
            head, _, space = each.id.partition("@")
            if each.rule == "rbac" and space in owner and "-as-" in head:
                pair = head.rpartition("-as-")[2], owner[space]
                found[pair] = found.get(pair, 0) + 1
        return found

    def _asked(self, *prefixes: str) -> str:
        """Number of attacks that test it, and the command that runs them."""
        count = {prefix: sum(each.id.startswith(prefix) for each in self._attacks) for prefix in prefixes}
        asked = " and ".join(f"tenancy verify --only {prefix} ({number})" for prefix, number in count.items() if number)
        return f"attacks: {asked}" if asked else "no attack: the environment has no such case"

    # Objects

    def _access(self) -> Plane:
        """By subjects of RoleBindings: subjects bound in both tenants, and every service account of the first."""
        bound: dict[str, dict[tuple[str, str], set[str]]] = {}
        for tenant in self.plan.tenants:
            held = bound.setdefault(tenant.name, {})
            for space in tenant.namespaces:
                for each in access_review.bindings_in(space):
                    held.setdefault((each.kind, each.name), set()).add(each.role.removeprefix("tenancy-"))
        spaces = {tenant.name: {space.name for space in tenant.namespaces} for tenant in self.plan.tenants}

        def owner(subject: tuple[str, str]) -> str:
            """The tenant of a service account or of a group of service accounts."""
            kind, name = subject
            space = name.partition("/")[0] if kind == "ServiceAccount" else name.rpartition("serviceaccounts:")[2]
            return next((tenant for tenant, of in spaces.items() if space in of), "")

        own = {tenant: [(*each, owner(each)) for each in of] for tenant, of in bound.items()}
        cells = {}
        for one, other in self._pairs():
            roles: set[str] = set()
            open_to: set[str] = set()
            for kind, name, whose in own[other]:
                if (kind, name) in bound[one]:
                    roles |= bound[other][kind, name]
                if whose == one or name in ALL_SUBJECTS:
                    open_to |= bound[other][kind, name]
            asked = self._across.get((one, other), 0)
            proof = (
                f"attacks: tenancy verify --only rbac- ({asked} of this pair)"
                if asked
                else "attacks: of neighbouring pairs, by the same bindings"
            )
            if open_to:
                said = "a role is bound to its service accounts, or to all users"
                cells[one, other] = Cell(CellKind.OPEN, "open", said, ("rbac-05",), BY_ROLE, proof)
            elif roles:
                word = ", ".join(sorted(roles))
                said = f"people in both files have the role {word} there"
                proof = "tenancy report access shows the lines"
                cells[one, other] = Cell(CellKind.GIVEN, word, said, ("rbac-05",), BY_ROLE, proof)
            else:
                said = "none of its people and none of its service accounts has a role there"
                cells[one, other] = Cell(CellKind.CLOSED, NO, said, ("rbac-05", "rbac-01", "rbac-02"), BY_ROLE, proof)
        return Plane("objects", "Can it see or change objects of the other at the API server?", cells)

    # Connections

    def _network(self) -> Plane:
        spaces = {tenant.name: tenant.namespaces for tenant in self.plan.tenants}
        bindings = {tenant: [space for space in of if porous(space)] for tenant, of in spaces.items()}
        has_cluster_policies = {tenant.name for tenant in self.plan.tenants if tenant.cluster_policies}
        proof = self._asked("net-02", "net-10", "net-01", "net-07")
        cells = {}
        for one, other in self._pairs():
            way = opening(spaces[one], bindings[other], self.environment.own_ranges) if bindings[other] else ""
            if has_cluster_policies & {one, other}:
                said = "a clusterwide deny policy blocks it, whatever their own policies allow"
                by = "CiliumClusterwideNetworkPolicy, by Cilium"
                cells[one, other] = Cell(CellKind.CLOSED, NO, said, ("net-02", "net-01", "net-07"), by, proof)
            elif way:
                said = "a NetworkPolicy of the other admits it"
                cells[one, other] = Cell(CellKind.OPEN, "open", said, ("net-02",), f"NetworkPolicy {way}", proof)
            else:
                said = "every namespace of both denies by default, and no policy of the other admits it"
                rules = ("net-02", "net-01", "net-07")
                cells[one, other] = Cell(
                    CellKind.CLOSED, NO, said, rules, "NetworkPolicy default-deny, by the CNI", proof
                )
        return Plane("network", "Can its pods connect to pods of the other?", cells)

    # What is on AWS

    def _data(self) -> Plane:
        account = AccountModel(self.environment, self.tenants, self.plan)
        owned = {
            tenant.name: list(_owned(account, self._of[tenant.name], tenant.aws))
            for tenant in self.plan.tenants
            if tenant.name in self._of
        }
        patterns = {
            tenant.name: [(who, _patterns(who)) for who in account.of_tenant(tenant.name)]
            for tenant in self.plan.tenants
        }
        cells = {}
        for one, other in self._pairs():
            found: set[str] = set()
            about = ""
            for who, named in patterns[one]:
                for words, place in owned[other]:
                    about = about or place.arn
                    if _may_matter(account, named, place):
                        found |= {
                            word for word, action in words.items() if can(account, who, action, place).answer.allowed
                        }
            at = f"s3://{about.partition(':::')[2].removesuffix('any')}" if ":::" in about else about
            proof = (
                f"tenancy who-can {at} {self.environment.environment}"
                if at
                else "the other has no resources of its own on AWS"
            )
            rules = ("stor-02", "stor-01", "aws-04")
            if found & {"write", "delete", "send", "push"}:
                said = "a policy allows it to change resources of the other"
                cells[one, other] = Cell(CellKind.OPEN, "write", said, rules, "IAM", proof)
            elif found:
                word, said = "read", "a grant allows it to read where the other writes, and to change nothing"
                cells[one, other] = Cell(CellKind.GIVEN, word, said, rules, "IAM", proof)
            else:
                said = "no statement of any of its roles, and of no resource's policy, allows it"
                cells[one, other] = Cell(
                    CellKind.CLOSED, NO, said, rules, "IAM: role, boundary and resource policy", proof
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
        apart, beside = self._asked("sched-01", "sched-02"), self._asked("gpu-0")
        cells = {}
        for one, other in self._pairs():
            both = pools[one] & pools[other]
            if any(environment.pools[name].share for name in both):
                said = "both run on replicas of the same GPUs, which share memory and faults"
                cells[one, other] = Cell(CellKind.OPEN, "replicas", said, ("pool-02",), "nothing", beside)
            elif any(environment.pools[name].mig for name in both):
                said = "slices of the same boards: MIG isolates memory and compute; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[one, other] = Cell(
                    CellKind.SHARED, "slices", said, rules, "MIG, device plugin, admission guards", beside
                )
            elif both:
                said = "whole GPUs of the same nodes: one tenant at a time uses a GPU; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[one, other] = Cell(
                    CellKind.SHARED, "GPUs", said, rules, "device plugin, admission guards", beside
                )
            else:
                said = "no node admits work of both"
                cells[one, other] = Cell(
                    CellKind.CLOSED, NO, said, ("sched-01", "sched-02"), "taints; guard on tolerations", apart
                )
        return Plane("nodes", "Can its work run on nodes on which work of the other runs?", cells)

    # Queues

    def _queues(self) -> Plane:
        environment, tree = self.environment, Tree(self.plan.cluster_queues, self.plan.cohorts)
        of = {tenant.name: tenant.cluster_queues for tenant in self.plan.tenants}
        nodes = {name: [tree.queues[queue.name] for queue in queues] for name, queues in of.items()}
        spaces = {tenant.name: [space.meta.labels for space in tenant.namespaces] for tenant in self.plan.tenants}
        leads = {
            tenant.name: {queue.queue for space in tenant.namespaces for queue in space.local_queues}
            for tenant in self.plan.tenants
        }
        offers = [
            (flavor, queue_names.flavor_name(environment, pool), queue_names.queue_resource(environment, flavor))
            for pool in environment.pools
            for flavor in environment.flavors_of(pool)
        ]
        refused, lent = self._asked("kueue-05", "kueue-01"), self._asked("share-", "kueue-0")
        cells = {}
        for one, other in self._pairs():
            theirs = of[other]
            if leads[one] & {queue.name for queue in theirs} or any(
                has_labels(queue.selects, labels) for queue in theirs for labels in spaces[one]
            ):
                said = "a queue of the other admits its namespaces"
                cells[one, other] = Cell(CellKind.OPEN, "open", said, ("kueue-05",), "Kueue", refused)
                continue
            sums: dict[str, int] = {}
            for flavor, pool, resource in offers:
                if count := most_borrowed(nodes[one], nodes[other], (pool, resource)):
                    sums[flavor] = sums.get(flavor, 0) + count
            if sums:
                said = "it may borrow idle GPUs that the other lends, and the other reclaims them when it needs them"
                most = max(sums.values())
                word = f"≤ {most}"
                holds = "Kueue: lending and borrowing limits, reclaim"
                cells[one, other] = Cell(CellKind.GIVEN, word, said, ("share-01", "share-03", "share-04"), holds, lent)
            else:
                said = "its queues cannot use GPUs of the other, not even idle ones"
                cells[one, other] = Cell(
                    CellKind.CLOSED, NO, said, ("kueue-05", "kueue-01"), "Kueue; guard on queues", refused
                )
        return Plane("queues", "Can its work use GPUs that are guaranteed to the other?", cells)


def _owned(account: AccountModel, tenant: Tenant, aws: Any) -> Iterator[tuple[Mapping[str, str], Target]]:
    """Resources of the tenant alone, with their actions: prefixes that it writes, and resources of its own."""
    for grant in tenant.storage:
        if grant.access is not Access.READ_ONLY and (
            place := target(account, f"s3://{grant.bucket}/{grant.prefix}any")
        ):
            yield SERVICES["s3"], place
    if aws is None:
        return
    from tenancy.planning.aws import documents, grants

    environment = account.environment
    arns = [documents.arn(environment, "secretsmanager", f"secret:{secret.name}") for secret in aws.secrets]
    arns += [queue.arn for queue in aws.queues]
    arns += [grants.repository_arn(environment, repository.name) for repository in aws.repositories]
    arns += [documents.arn(environment, "logs", f"log-group:{group.name}") for group in aws.log_groups]
    for arn in arns:
        if place := target(account, arn):
            yield SERVICES[arn.split(":")[2]], place


def _may_matter(account: AccountModel, patterns: Sequence[str], place: Target) -> bool:
    """Whether a statement of the role or of the resource's policy could allow access; otherwise IAM denies it."""
    policy = account.thing(place.arn).policy
    if policy and any(statement["Effect"] == "Allow" for statement in policy["Statement"]):
        return True
    whole = place.arn.removesuffix("any")
    return any(
        pattern.startswith(whole) or whole.startswith(pattern) or fnmatchcase(place.arn, pattern)
        for pattern in patterns
    )


def _patterns(who: AccountIdentity) -> tuple[str, ...]:
    """Resources in the role's allow statements, with a wildcard for each variable."""
    found = {
        "".join("*" if i % 2 else part for i, part in enumerate(_variables(resource)))
        for document in who.role.policies.values()
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for resource in texts(statement.get("Resource", "*"))
    }
    return tuple(sorted(found))


def _variables(text: str) -> list[str]:
    """A text split at its policy variables: every second part is a variable."""
    parts: list[str] = []
    for at, piece in enumerate(text.split("${")):
        if at:
            name, _, rest = piece.partition("}")
            parts += [name, rest]
        else:
            parts.append(piece)
    return parts


def counts(planes: Sequence[Plane]) -> dict[CellKind, int]:
    """Number of cells of all planes by kind."""
    found = dict.fromkeys(CellKind, 0)
    for plane in planes:
        for cell in plane.cells.values():
            found[cell.kind] += 1
    return found
