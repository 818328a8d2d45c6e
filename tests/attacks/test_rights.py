"""Rights of each persona on all that the API server serves: at home, next door, anywhere."""

from __future__ import annotations

import fnmatch
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from attack_lab import Cluster, claimed, settle, turned

from tenancy.cluster.api import Api, path_of
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation, collection
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks import AttackedNamespace
from tests.conftest import Golden, every

RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
OWN_NAMESPACE, NEIGHBOUR_NAMESPACE, CLUSTER = "own", "other", "cluster"
SELF_REVIEWS = {"authentication.k8s.io", "authorization.k8s.io"}
"""Groups in which every user may review their own identity and rights."""


class Kind(NamedTuple):
    group: str
    resource: str
    """With its subresource."""
    namespaced: bool
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.group}/{self.resource}" if self.group else self.resource


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    assert cluster.scene.home
    return cluster.scene.home


@pytest.fixture(scope="module")
def neighbour(cluster: Cluster, home: AttackedNamespace) -> AttackedNamespace:
    place = cluster.scene.other_tenant_namespace(home)
    assert place
    return place


@pytest.fixture(scope="module")
def kinds(cluster: Cluster) -> Sequence[Kind]:
    return sorted(_discovered(cluster.api))


def _discovered(api: Api) -> Iterator[Kind]:
    """All that the API server says it serves, of every version, subresources too."""
    roots = {"": "/api/v1"}
    versions = [
        (group["name"], version["groupVersion"])
        for group in api.request("GET", "/apis").body["groups"]
        for version in group["versions"]
    ]
    kinds_by_name: dict[tuple[str, str], Kind] = {}
    for group, path in [*roots.items(), *((name, f"/apis/{version}") for name, version in versions)]:
        for item in api.request("GET", path).body.get("resources", []):
            # The API server says of a subresource only what it stores; RBAC may be asked about any verb.
            kind = Kind(group, item["name"], item["namespaced"], tuple(sorted(item["verbs"])))
            before = kinds_by_name.get((group, item["name"]))
            verbs = {*kind.verbs, *(before.verbs if before else ())}
            kinds_by_name[group, item["name"]] = kind._replace(verbs=tuple(sorted(verbs)))
    yield from kinds_by_name.values()


FURTHER_VERBS = ("impersonate", "bind", "escalate", "approve", "sign", "use", "attest")
"""Verbs that no kind lists and RBAC knows."""


def _personas(home: AttackedNamespace) -> Mapping[str, Impersonation]:
    account = f"system:serviceaccount:{home.name}:default"
    people = {role.value: home.person(role) for role in Role}
    people_by_name = {name: who for name, who in people.items() if who}
    people_by_name["workload"] = Impersonation(
        account, ("system:serviceaccounts", f"system:serviceaccounts:{home.name}")
    )
    people_by_name["stranger"] = Impersonation("user-without-roles")
    return people_by_name


def _rules(api: Api, who: Impersonation, namespace: str) -> list[dict[str, Any]]:
    """Rules that the API server reports for an identity in a namespace."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = api.request("POST", f"{REVIEWS}/selfsubjectrulesreviews", body, who)
    assert answer.ok, answer.message
    assert not answer.body["status"]["incomplete"]
    return answer.body["status"]["resourceRules"]


def _may(rules: Sequence[Mapping[str, Any]], kind: Kind, verb: str) -> str:
    """Empty if not; else `yes`, or the names to which the right is limited."""

    def covers(rule: Mapping[str, Any]) -> bool:
        resource = any(
            r in ("*", kind.resource) or (r.startswith("*/") and fnmatch.fnmatch(kind.resource, r))
            for r in rule.get("resources", [])
        )
        group = any(g in ("*", kind.group) for g in rule.get("apiGroups", []))
        return resource and group and any(v in ("*", verb) for v in rule["verbs"])

    names = [rule.get("resourceNames") or [] for rule in rules if covers(rule)]
    if not names:
        return ""
    return (
        "yes"
        if any(not names_of_rule for names_of_rule in names)
        else ",".join(sorted({n for names_of_rule in names for n in names_of_rule}))
    )


@cache
def _verbs_to_review(kind: Kind) -> tuple[str, ...]:
    return (*kind.verbs, *FURTHER_VERBS)


def _matrix(api: Api, home: AttackedNamespace, neighbour: AttackedNamespace, kinds: Sequence[Kind]) -> Iterator[str]:
    scopes = {OWN_NAMESPACE: home.name, NEIGHBOUR_NAMESPACE: neighbour.name, CLUSTER: "kube-node-lease"}
    for persona, who in _personas(home).items():
        for scope, namespace in scopes.items():
            rules = _rules(api, who, namespace)
            for kind in kinds:
                if not kind.namespaced and scope == NEIGHBOUR_NAMESPACE:
                    continue
                verbs = [(verb, _may(rules, kind, verb)) for verb in _verbs_to_review(kind)]
                allowed = [verb if how == "yes" else f"{verb}[{how}]" for verb, how in verbs if how]
                if allowed:
                    yield f"{persona} | {scope} | {kind} | {' '.join(allowed)}"
            yield from (f"{persona} | {scope} | {line}" for line in _unserved(rules, kinds))


def _unserved(rules: Sequence[Mapping[str, Any]], kinds: Sequence[Kind]) -> list[str]:
    """Rights on what the API server does not serve: of namespaces that are not here, or made up to be asked about."""
    served = {(kind.group, kind.resource) for kind in kinds}
    missing_kinds = {
        f"{group}/{resource} (not served) | {' '.join(sorted(rule['verbs']))}"
        for rule in rules
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        if (group, resource) not in served and "*" not in group + resource
    }
    return sorted(missing_kinds)


def test_rights_are_those_that_were_reviewed(
    cluster: Cluster,
    home: AttackedNamespace,
    neighbour: AttackedNamespace,
    kinds: Sequence[Kind],
    request: pytest.FixtureRequest,
) -> None:
    golden = Golden(Path(__file__).parent, request.config.getoption("--update-golden"))
    rights = [*_matrix(cluster.api, home, neighbour, kinds)]
    served = [f"{kind} | {' '.join(kind.verbs)}" for kind in kinds]
    text = [
        "# persona | where | kind | verbs; whatever is not here may not be done. `cluster` is a namespace of no",
        "# tenant, and so what holds in all of them.",
        *rights,
        "",
        "# All that was asked about: what the API server serves.",
        *served,
    ]
    golden.check("rights.txt", "\n".join(text) + "\n")


def test_next_door_and_everywhere_there_is_nothing(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace, kinds: Sequence[Kind]
) -> None:
    rows = [line.split(" | ") for line in _matrix(cluster.api, home, neighbour, kinds)]
    personas = {persona for persona, scope, _, _ in rows if scope == OWN_NAMESPACE}
    assert personas >= {"developer"}, "else the twin is missing"
    beyond = [row for row in rows if row[1] != OWN_NAMESPACE and row[2].partition("/")[0] not in SELF_REVIEWS]
    assert beyond == []


def test_the_matrix_is_what_the_authorizer_says(
    cluster: Cluster, home: AttackedNamespace, kinds: Sequence[Kind]
) -> None:
    """A cell for each kind, a different verb each time, asked of the authorizer itself."""
    who = home.developer
    assert who
    rules = _rules(cluster.api, who, home.name)
    wrong = []
    for number, kind in enumerate(kinds):
        verb = _verbs_to_review(kind)[number % len(_verbs_to_review(kind))]
        resource, _, subresource = kind.resource.partition("/")
        where = {"namespace": home.name} if kind.namespaced else {}
        spec = {
            "user": who.user,
            "groups": [*who.groups, "system:authenticated"],
            "resourceAttributes": {
                **where,
                "verb": verb,
                "group": kind.group,
                "resource": resource,
                "subresource": subresource,
            },
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = cluster.api.request("POST", f"{REVIEWS}/subjectaccessreviews", body).body["status"]
        # A right that is limited to names is none on any name; in one namespace no right on a cluster-wide kind holds.
        if answer["allowed"] is not (_may(rules, kind, verb) == "yes"):
            wrong.append((str(kind), verb, answer))
    assert wrong == []


def test_a_tenant_has_less_than_the_built_in_role(
    cluster: Cluster, home: AttackedNamespace, kinds: Sequence[Kind]
) -> None:
    who = home.developer
    assert who
    role = cluster.api.request("GET", f"/apis/{RBAC}/v1/clusterroles/edit").body["rules"]
    tenant_rules = _rules(cluster.api, who, home.name)

    def rights(rules: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
        return {(str(kind), verb) for kind in kinds for verb in _verbs_to_review(kind) if _may(rules, kind, verb)}

    withheld = rights(role) - rights(tenant_rules)
    dangerous = {
        ("serviceaccounts", "impersonate"),
        ("serviceaccounts/token", "create"),
        ("pods/proxy", "create"),
        ("services/proxy", "create"),
        ("coordination.k8s.io/leases", "update"),
        ("apps/daemonsets", "create"),
    }
    assert dangerous <= withheld
    more = {right for right in rights(tenant_rules) - rights(role) if right[0].partition("/")[0] not in SELF_REVIEWS}
    assert {kind for kind, _ in more} <= SEEN_TOO, "what the built-in role lacks and a developer has"


SEEN_TOO = {
    "kueue.x-k8s.io/localqueues",
    "kueue.x-k8s.io/workloads",
    "visibility.kueue.x-k8s.io/localqueues/pendingworkloads",
    "pods/ephemeralcontainers",
}
"""Kinds on which a developer has a right that `edit` lacks: the queue, read; and debugging one's own pods."""


# Without RBAC


@contextmanager
def _all_rights_for_all(api: Api) -> Generator[None]:
    """Every right for all users."""
    binding: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "verify-all-rights"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}],
    }
    path = collection(f"{RBAC}/v1", "ClusterRoleBinding")
    answer = api.request("POST", path, binding)
    assert answer.ok, answer.message
    try:
        yield
    finally:
        assert api.request("DELETE", f"{path}/verify-all-rights").ok


def test_without_rights_to_keep_exactly_the_attacks_on_them_get_through(cluster: Cluster) -> None:
    with _all_rights_for_all(cluster.api):
        settle(cluster, "rbac", refused=False)
        # The use of GPUs is a right too, which a guard checks.
        assert turned(cluster) == claimed(cluster, "rbac") | claimed(cluster, "gpu-10")
    settle(cluster, "rbac", refused=True)


def test_every_role_and_binding_of_the_plan_is_in_this_matrix(cluster: Cluster) -> None:
    roles = {item["metadata"]["name"] for item in cluster.plan.objects() if item["kind"] == "ClusterRole"}
    bound = {item["roleRef"]["name"] for item in cluster.plan.objects() if item["kind"] == "RoleBinding"}
    assert bound <= roles
    assert every(
        cluster.api.request("GET", path_of(o)).ok for o in cluster.plan.objects() if o["kind"] == "ClusterRole"
    )
