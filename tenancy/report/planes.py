"""Who can reach whom: for every pair of tenants and every plane, computed from the plan's own objects.

Nothing is taken from what the files mean to say: RoleBindings, NetworkPolicies, policies of IAM, tolerated pools and
Kueue's objects are read as the API server, the CNI, AWS, the scheduler and Kueue read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from tenancy.iam.account import Account, Identity
from tenancy.iam.answers import SERVICES, Target, can, target
from tenancy.iam.conditions import texts
from tenancy.live.attacks import Attack, Scene, all_attacks
from tenancy.plan import access_review, queues
from tenancy.plan.leaving import standing
from tenancy.plan.model import Object, Plan
from tenancy.report.network import opening, porous
from tenancy.spec import Loaded
from tenancy.spec.data import Access
from tenancy.spec.environment import GuardsMode
from tenancy.spec.tenant import Tenant

NO = "–"
EVERYBODY = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})
BY_ROLE = "RBAC"


class Kind(StrEnum):
    """What a cell says: its colour."""

    CLOSED = "closed"  # nothing leads from one to the other
    SHARED = "shared"  # something is shared, and a wall stands within it
    GIVEN = "given"  # the files give it by name
    OPEN = "open"  # nobody gave it: a fault


class Cell(NamedTuple):
    """What one tenant can do to another on one plane."""

    kind: Kind
    word: str
    """Short enough for a cell."""
    said: str
    """A sentence that names nobody, so that equal cells are one line of the key."""
    rules: tuple[str, ...]
    """Ids of the rules that hold it."""
    holds: str
    """The control that refuses, or that lets through."""
    proof: str
    """How to see it; of this pair alone where that can be asked."""


class Plane(NamedTuple):
    name: str
    asks: str
    """The question, of the row's tenant about the column's."""
    cells: Mapping[tuple[str, str], Cell]


class Planes:
    """The planes of an environment, each computed once."""

    def __init__(self, loaded: Loaded, plan: Plan) -> None:
        self.environment, self.tenants, self.plan = loaded.environment, standing(loaded.tenants), plan
        self._of: Mapping[str, Tenant] = {tenant.tenant: tenant for tenant in self.tenants}
        self.names = list(self._of)

    def all(self) -> list[Plane]:
        found = [self._access(), self._network()]
        if self.environment.aws.enabled:
            found.append(self._data())
        found.append(self._nodes())
        if self.environment.queued:
            found.append(self._queues())
        return [self._as_held(plane) for plane in found]

    def _as_held(self, plane: Plane) -> Plane:
        """Where guards only warn, none of them holds anything."""
        if self.environment.guards is GuardsMode.ENFORCE:
            return plane
        cells = {
            pair: cell._replace(holds=f"{cell.holds}; guards only warn") if "guard" in cell.holds else cell
            for pair, cell in plane.cells.items()
        }
        return plane._replace(cells=cells)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return ((one, other) for one in self.names for other in self.names if one != other)

    # What the attacks of `tenancy verify` ask

    @cached_property
    def _attacks(self) -> tuple[Attack, ...]:
        return tuple(each for each in all_attacks(Scene(self.environment, self.tenants, (), ())) if not each.skipped)

    @cached_property
    def _across(self) -> Mapping[tuple[str, str], int]:
        """Attacks on other tenants' objects, by who asks and whose they are."""
        owner = {space.name: tenant.name for tenant in self.plan.tenants for space in tenant.namespaces}
        found: dict[tuple[str, str], int] = {}
        for each in self._attacks:
            head, _, space = each.id.partition("@")
            if each.rule == "rbac" and space in owner and "-as-" in head:
                pair = head.rpartition("-as-")[2], owner[space]
                found[pair] = found.get(pair, 0) + 1
        return found

    def _asked(self, *prefixes: str) -> str:
        """How many attacks ask it, and how to ask them."""
        count = {prefix: sum(each.id.startswith(prefix) for each in self._attacks) for prefix in prefixes}
        asked = " and ".join(f"tenancy verify --only {prefix} ({number})" for prefix, number in count.items() if number)
        return f"attacks: {asked}" if asked else "no attack: the environment gives no occasion"

    # Objects

    def _access(self) -> Plane:
        """By subjects of RoleBindings: whoever is bound in both, and every service account of the one."""
        bound: dict[str, dict[tuple[str, str], set[str]]] = {}
        for tenant in self.plan.tenants:
            held = bound.setdefault(tenant.name, {})
            for space in tenant.namespaces:
                for item in space.access:
                    for each in access_review.bindings(item) if item["kind"] == "RoleBinding" else ():
                        held.setdefault((each.kind, each.name), set()).add(each.role.removeprefix("tenancy-"))
        spaces = {tenant.name: {space.name for space in tenant.namespaces} for tenant in self.plan.tenants}

        def owner(subject: tuple[str, str]) -> str:
            """The tenant whose pods it is, of a service account or their group."""
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
                if whose == one or name in EVERYBODY:
                    open_to |= bound[other][kind, name]
            asked = self._across.get((one, other), 0)
            proof = (
                f"attacks: tenancy verify --only rbac- ({asked} of this pair)"
                if asked
                else "attacks: of neighbouring pairs, by the same bindings"
            )
            if open_to:
                said = "a role is bound to its service accounts, or to everybody"
                cells[one, other] = Cell(Kind.OPEN, "open", said, ("rbac-05",), BY_ROLE, proof)
            elif roles:
                word = ", ".join(sorted(roles))
                said = f"people whom both files name have the role {word} there"
                proof = "tenancy report access says by which lines"
                cells[one, other] = Cell(Kind.GIVEN, word, said, ("rbac-05",), BY_ROLE, proof)
            else:
                said = "none of its people and none of its service accounts has a role there"
                cells[one, other] = Cell(Kind.CLOSED, NO, said, ("rbac-05", "rbac-01", "rbac-02"), BY_ROLE, proof)
        return Plane("objects", "Can it see or change objects of the other at the API server?", cells)

    # Connections

    def _network(self) -> Plane:
        spaces = {
            tenant.name: [
                (space.namespace, [o for o in space.isolation if o["kind"] == "NetworkPolicy"])
                for space in tenant.namespaces
            ]
            for tenant in self.plan.tenants
        }
        doors = {tenant: [space for space in of if porous(space)] for tenant, of in spaces.items()}
        fenced = {tenant.name for tenant in self.plan.tenants if tenant.fences}
        proof = self._asked("net-02", "net-10", "net-01", "net-07")
        cells = {}
        for one, other in self._pairs():
            way = opening(spaces[one], doors[other], self.environment.own_ranges) if doors[other] else ""
            if fenced & {one, other}:
                said = "a clusterwide deny stands between them, whatever a policy of theirs opens"
                by = "CiliumClusterwideNetworkPolicy, by Cilium"
                cells[one, other] = Cell(Kind.CLOSED, NO, said, ("net-02", "net-01", "net-07"), by, proof)
            elif way:
                said = "a NetworkPolicy of the other lets it in"
                cells[one, other] = Cell(Kind.OPEN, "open", said, ("net-02",), f"NetworkPolicy {way}", proof)
            else:
                said = "every namespace of both denies by default, and no policy of the other admits it"
                rules = ("net-02", "net-01", "net-07")
                cells[one, other] = Cell(Kind.CLOSED, NO, said, rules, "NetworkPolicy default-deny, by the CNI", proof)
        return Plane("network", "Can its pods connect to pods of the other?", cells)

    # What is on AWS

    def _data(self) -> Plane:
        account = Account(self.environment, self.tenants, self.plan)
        owned = {tenant.name: list(_owned(account, self._of[tenant.name], tenant.aws)) for tenant in self.plan.tenants}
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
                else "the other has nothing of its own on AWS"
            )
            rules = ("stor-02", "stor-01", "aws-04")
            if found & {"write", "delete", "send", "push"}:
                said = "a policy lets it change what is the other's"
                cells[one, other] = Cell(Kind.OPEN, "write", said, rules, "IAM", proof)
            elif found:
                word, said = "read", "a grant lets it read where the other writes, and change nothing"
                cells[one, other] = Cell(Kind.GIVEN, word, said, rules, "IAM", proof)
            else:
                said = "no statement of any of its roles, and of no resource's policy, allows it"
                cells[one, other] = Cell(Kind.CLOSED, NO, said, rules, "IAM: role, boundary and resource policy", proof)
        return Plane("data", "Can its identities reach data, secrets, queues or images of the other on AWS?", cells)

    # Nodes

    def _nodes(self) -> Plane:
        environment = self.environment
        pools = {
            tenant.tenant: {name for tier in tenant.tiers for name in queues.open_pools(environment, tenant, tier)}
            for tenant in self.tenants
        }
        apart, beside = self._asked("sched-01", "sched-02"), self._asked("gpu-0")
        cells = {}
        for one, other in self._pairs():
            both = pools[one] & pools[other]
            if any(environment.pools[name].share for name in both):
                said = "both run on replicas of the same GPUs, which share memory and faults"
                cells[one, other] = Cell(Kind.OPEN, "replicas", said, ("pool-02",), "nothing", beside)
            elif any(environment.pools[name].mig for name in both):
                said = "slices of the same boards: memory and compute are apart by MIG; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[one, other] = Cell(
                    Kind.SHARED, "slices", said, rules, "MIG, device plugin, admission guards", beside
                )
            elif both:
                said = "whole GPUs of the same nodes: a GPU is one tenant's at a time; the node is shared"
                rules = ("gpu-06", "gpu-01", "gpu-02", "gpu-05")
                cells[one, other] = Cell(Kind.SHARED, "GPUs", said, rules, "device plugin, admission guards", beside)
            else:
                said = "no node admits work of both"
                cells[one, other] = Cell(
                    Kind.CLOSED, NO, said, ("sched-01", "sched-02"), "taints; guard on tolerations", apart
                )
        return Plane("nodes", "Can its work run on nodes on which work of the other runs?", cells)

    # Queues

    def _queues(self) -> Plane:
        tree = _Cohorts(self.plan)
        environment = self.environment
        spaces = {
            tenant.name: [s.namespace["metadata"]["labels"] for s in tenant.namespaces] for tenant in self.plan.tenants
        }
        leads = {
            tenant.name: {
                item["spec"]["clusterQueue"]
                for space in tenant.namespaces
                for item in space.isolation
                if item["kind"] == "LocalQueue"
            }
            for tenant in self.plan.tenants
        }
        offers = [
            (flavor, queues.flavor_name(environment, pool), queues.queue_resource(environment, flavor))
            for pool in environment.pools
            for flavor in environment.flavors_of(pool)
        ]
        refused, lent = self._asked("kueue-05", "kueue-01"), self._asked("share-", "kueue-0")
        cells = {}
        for one, other in self._pairs():
            theirs = tree.of[other]
            if leads[one] & {item["metadata"]["name"] for item in theirs} or any(
                _admits(item["spec"].get("namespaceSelector"), labels) for item in theirs for labels in spaces[one]
            ):
                said = "a queue of the other admits its namespaces"
                cells[one, other] = Cell(Kind.OPEN, "open", said, ("kueue-05",), "Kueue", refused)
                continue
            sums: dict[str, int] = {}
            for flavor, pool, resource in offers:
                if count := tree.borrows(one, other, pool, resource):
                    sums[flavor] = sums.get(flavor, 0) + count
            if sums:
                said = "it may borrow what the other lends and leaves idle, and gives it back when the other calls"
                most = max(sums.values())
                word = f"≤ {most}"
                holds = "Kueue: lending and borrowing limits, reclaim"
                cells[one, other] = Cell(Kind.GIVEN, word, said, ("share-01", "share-03", "share-04"), holds, lent)
            else:
                said = "its queues spend nothing of the other's, not even what is idle"
                cells[one, other] = Cell(
                    Kind.CLOSED, NO, said, ("kueue-05", "kueue-01"), "Kueue; guard on queues", refused
                )
        return Plane("queues", "Can its work use GPUs that are promised to the other?", cells)


def _owned(account: Account, tenant: Tenant, aws: Any) -> Iterator[tuple[Mapping[str, str], Target]]:
    """What is the tenant's alone, with what can be done to it: prefixes that it writes, and things of its own."""
    for grant in tenant.storage:
        if grant.access is not Access.READ_ONLY and (
            place := target(account, f"s3://{grant.bucket}/{grant.prefix}any")
        ):
            yield SERVICES["s3"], place
    if aws is None:
        return
    from tenancy.plan import documents, grants

    environment = account.environment
    arns = [documents.arn(environment, "secretsmanager", f"secret:{secret.name}") for secret in aws.secrets]
    arns += [queue.arn for queue in aws.queues]
    arns += [grants.repository_arn(environment, repository.name) for repository in aws.repositories]
    arns += [documents.arn(environment, "logs", f"log-group:{group.name}") for group in aws.log_groups]
    for arn in arns:
        if place := target(account, arn):
            yield SERVICES[arn.split(":")[2]], place


def _may_matter(account: Account, patterns: Sequence[str], place: Target) -> bool:
    """Whether any statement could allow anything: of the role, or of the thing's own policy. Else IAM says no."""
    policy = account.thing(place.arn).policy
    if policy and any(statement["Effect"] == "Allow" for statement in policy["Statement"]):
        return True
    whole = place.arn.removesuffix("any")
    return any(
        pattern.startswith(whole) or whole.startswith(pattern) or fnmatchcase(place.arn, pattern)
        for pattern in patterns
    )


def _patterns(who: Identity) -> tuple[str, ...]:
    """Resources of what the role's policies allow, with a wildcard for each variable."""
    found = {
        "".join("*" if i % 2 else part for i, part in enumerate(_variables(resource)))
        for document in who.role.policies.values()
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for resource in texts(statement.get("Resource", "*"))
    }
    return tuple(sorted(found))


def _variables(text: str) -> list[str]:
    """A text around its policy variables: every second part is one."""
    parts: list[str] = []
    for at, piece in enumerate(text.split("${")):
        if at:
            name, _, rest = piece.partition("}")
            parts += [name, rest]
        else:
            parts.append(piece)
    return parts


def _admits(selector: Any, labels: Mapping[str, str]) -> bool:
    """Of a ClusterQueue: none admits nobody, an empty one everybody (Kueue's reference of `namespaceSelector`)."""
    if selector is None:
        return False
    if selector.get("matchExpressions"):
        return True  # more than the plan writes: taken for open, so that it is looked at
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


class _Cohorts:
    """Kueue's tree as the plan writes it: what one tenant may borrow of another's."""

    def __init__(self, plan: Plan) -> None:
        objects = [*plan.platform.queues, *(item for tenant in plan.tenants for item in tenant.queues)]
        self._cohorts = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Cohort"}
        self._known: dict[int, dict[tuple[str, str], _Limits]] = {}
        self.of: dict[str, list[Object]] = {
            tenant.name: [item for item in tenant.queues if item["kind"] == "ClusterQueue"] for tenant in plan.tenants
        }
        self._paths = {name: self._path(name) for name in self.of}

    def borrows(self, one: str, other: str, flavor: str, resource: str) -> int:
        """At most, of one resource of one of Kueue's flavors; limits hold at every step up and down the tree."""
        theirs = [self._quota(item, flavor, resource) for item in self.of[other]]
        lent = sum(min(nominal, nominal if lends is None else lends) for nominal, _, lends in theirs)
        mine = [
            borrows
            for nominal, borrows, _ in (self._quota(item, flavor, resource) for item in self.of[one])
            if borrows != 0
        ]
        ours, there = self._paths[one], self._paths[other]
        shared = [name for name in ours if name in there]
        if not (lent and mine and shared):
            return 0
        limits = [lent, *([] if None in mine else [max(b for b in mine if b is not None)])]
        for path, which in ((ours, 1), (there, 2)):
            for name in path[: path.index(shared[0])]:
                limit = self._quota(self._cohorts[name], flavor, resource)[which]
                limits += [] if limit is None else [limit]
        return min(limits)

    def _path(self, tenant: str) -> list[str]:
        """Cohorts from the tenant's queues to the root."""
        found: list[str] = []
        name = next((item["spec"].get("cohortName") for item in self.of[tenant]), None)
        while name and name in self._cohorts and name not in found:
            found.append(name)
            name = self._cohorts[name]["spec"].get("parentName")
        return found

    def _quota(self, item: Object, flavor: str, resource: str) -> _Limits:
        """Nominal, and limits on borrowing and lending; None: no limit."""
        if id(item) not in self._known:
            self._known[id(item)] = {
                (each["name"], quota["name"]): (
                    int(quota["nominalQuota"]) if quota["nominalQuota"].isdigit() else 0,
                    _limit(quota.get("borrowingLimit")),
                    _limit(quota.get("lendingLimit")),
                )
                for group in item["spec"].get("resourceGroups", ())
                for each in group["flavors"]
                for quota in each["resources"]
            }
        # What a queue has no quota of it cannot ask for; a cohort without one sets no limit.
        return self._known[id(item)].get((flavor, resource), (0, None, None) if item["kind"] == "Cohort" else (0, 0, 0))


_Limits = tuple[int, int | None, int | None]


def _limit(text: str | None) -> int | None:
    """A limit on devices; of memory, with its unit, nobody asks here."""
    return int(text) if text is not None and text.isdigit() else None


def counts(planes: Sequence[Plane]) -> dict[Kind, int]:
    """Cells of all planes by what they say."""
    found = dict.fromkeys(Kind, 0)
    for plane in planes:
        for cell in plane.cells.values():
            found[cell.kind] += 1
    return found
