"""RBAC without a cluster: every attack on it, what was recorded of an API server, and grants of more than one has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tenancy import planning
from tenancy.check.admission import bootstrap
from tenancy.check.admission.access import Attributes, Authorizer, authenticated
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.identities import PLATFORM, UnknownIdentityError, identity, workload_creator
from tenancy.check.admission.nodes import restriction
from tenancy.check.admission.requests import AdmissionRequest, Identity, Operation
from tenancy.cluster import denial
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.verify.attacks import Attack, Request, Scene, all_attacks
from tests.attack_worlds import WORLDS, world_of
from tests.request_paths import attributes

ROOT = Path(__file__).parents[4]
RIGHTS = ROOT / "tests" / "attacks" / "rights.txt"
API = f"{bootstrap.GROUP}/v1"
FURTHER_VERBS = ("impersonate", "bind", "escalate", "approve", "sign", "use", "attest")
"""Verbs that no kind lists and RBAC knows."""


@cache
def world(name: str) -> tuple[ClusterObjects, str]:
    environment, tenants = world_of(name)
    plan = planning.plan(environment, tenants)
    minor = tuple(map(int, environment.cluster.kubernetes.split(".")))
    platform = bootstrap.platform_binding(plan.admission.group)
    return ClusterObjects([*bootstrap.objects((minor[0], minor[1])), platform, *plan.objects()]), plan.admission.group


@cache
def access_of(name: str) -> Authorizer:
    return Authorizer(world(name)[0])


@cache
def attacks(name: str) -> tuple[Attack, ...]:
    scene = Scene(*world_of(name), ["nvidia"], ["plain"])
    return tuple(attack for attack in all_attacks(scene) if not attack.skipped)


def allowed(name: str, request: Request) -> bool:
    who = Identity(request.who.user, tuple(request.who.groups)) if request.who else Identity("", (world(name)[1],))
    decision = access_of(name).decide(authenticated(who), attributes(request.method, request.path))
    assert decision.decided
    return decision.allowed


@pytest.mark.parametrize("name", WORLDS)
def test_exactly_the_attacks_on_rbac_are_refused_by_it(name: str) -> None:
    refused = {attack.id for attack in attacks(name) if not allowed(name, attack.request)}
    assert len(refused) > 150
    assert refused == {attack.id for attack in attacks(name) if attack.expected_denier == deniers.RBAC}


@pytest.mark.parametrize("name", WORLDS)
def test_no_twin_is_refused_by_it(name: str) -> None:
    assert [attack.id for attack in attacks(name) if not allowed(name, attack.twin)] == []


# What an API server answered for every kind that it serves


def _recorded() -> tuple[Mapping[tuple[str, str, str], str], Sequence[tuple[str, str]]]:
    """Rights by persona, place and kind, and the kinds that the API server served with their verbs."""
    first, _, second = RIGHTS.read_text("utf-8").partition("\n\n")
    rows = [line.split(" | ") for line in first.splitlines() if not line.startswith("#")]
    rights = {(row[0], row[1], row[2]): row[3] for row in rows if "not served" not in row[2]}
    lines = [line for line in second.splitlines() if not line.startswith("#")]
    return rights, [(kind, verbs) for kind, _, verbs in (line.partition(" | ") for line in lines)]


def _personas(cluster: ClusterObjects, space: str) -> Iterator[tuple[str, Identity]]:
    for role in ("viewer", "developer", "operator", "owner"):
        yield role, identity(cluster, role, space)
    yield "workload", identity(cluster, f"system:serviceaccount:{space}:default", space)
    yield "stranger", authenticated(Identity("user-without-roles"))


def test_rights_are_those_that_an_api_server_told() -> None:
    cluster, _ = world("local")
    access, (recorded, served) = access_of("local"), _recorded()
    assert len(served) > 100
    verbs_by_right = {}
    for persona, who in _personas(cluster, "fraud--train"):
        for place, space in (("own", "fraud--train"), ("other", "research--train"), ("cluster", "kube-node-lease")):
            for kind, verbs in served:
                first, slash, subresource_part = kind.partition("/")
                group, resource = (
                    (first, subresource_part) if slash and (first in GROUPS or "." in first) else ("", kind)
                )
                name, _, subresource = resource.partition("/")
                allowed_verbs = [
                    verb
                    for verb in (*verbs.split(), *FURTHER_VERBS)
                    if access.decide(who, Attributes(verb, name, group, subresource, space)).allowed
                ]
                if allowed_verbs:
                    verbs_by_right[persona, place, kind] = " ".join(allowed_verbs)
    reviews = {key for key in verbs_by_right if key[1] == "other"}
    assert {kind.partition("/")[2] for _, _, kind in reviews} == set(REVIEWS)
    assert {key: right_verbs for key, right_verbs in verbs_by_right.items() if key not in reviews} == dict(recorded)


REVIEWS = ("selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
"""Rights that every identity has to ask about itself, in every namespace."""
GROUPS = {"apps", "autoscaling", "batch", "policy"}
"""API groups without a dot."""


# Granting


def _grant(kind: str, item: Object, who: Identity, old: Object | None = None) -> AdmissionRequest:
    operation = Operation.UPDATE if old else Operation.CREATE
    verb = "update" if old else "create"
    space = None if kind.startswith("cluster") else "a"
    new_object = {"apiVersion": API, "metadata": {"name": "x"}, **item}
    return AdmissionRequest(
        operation, bootstrap.GROUP, "v1", kind, "x", authenticated(who), "", space, new_object, old, {}, verb
    )


def _role(*rules: Object) -> Object:
    return {"rules": list(rules)}


def _reference(name: str, kind: str = "ClusterRole") -> Object:
    return {"roleRef": {"apiGroup": bootstrap.GROUP, "kind": kind, "name": name}, "subjects": []}


PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
POD_A = {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]}
LOGS = {"apiGroups": ["*"], "resources": ["*/log"], "verbs": ["get"]}
METRICS = {"nonResourceURLs": ["/metrics/x"], "verbs": ["get"]}
ANN, ADMIN, MASTER = Identity("ann"), Identity("bob", ("admins",)), Identity("root", (bootstrap.MASTERS,))


def _access(*rules: Object) -> Authorizer:
    """Ann has these rules, and the admins all."""
    role = {"apiVersion": API, "kind": "ClusterRole", "metadata": {"name": "anns"}, "rules": list(rules)}
    rule_binding = bootstrap.binding("anns", "anns", [{"kind": "User", "name": "ann"}])
    everything = bootstrap.platform_binding("admins")
    return Authorizer(ClusterObjects([*bootstrap.objects((1, 36)), role, rule_binding, everything]))


@pytest.mark.parametrize(
    ("rules", "granted", "missing"),
    [
        ((PODS,), _role(PODS), ""),
        ((PODS,), _role(POD_A), ""),
        ((POD_A,), _role(POD_A), ""),
        ((POD_A,), _role(PODS), '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'),
        (
            ({**PODS, "verbs": ["get"]},),
            _role(PODS, METRICS),
            '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n{NonResourceURLs:["/metrics/x"], Verbs:["get"]}',
        ),
        (({"nonResourceURLs": ["/metrics/*"], "verbs": ["*"]},), _role(METRICS), ""),
        ((LOGS,), _role({**PODS, "resources": ["pods/log"], "verbs": ["get"]}), ""),
        ((LOGS,), _role({**PODS, "verbs": ["get"]}), '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'),
    ],
)
def test_a_role_may_grant_what_its_author_has(rules: Sequence[Object], granted: Object, missing: str) -> None:
    denied = _access(*rules).escalation(_grant("roles", granted, ANN))
    if not missing:
        assert denied is None
        return
    assert denied
    assert denied.component == deniers.RBAC
    assert denied.message == (
        'roles.rbac.authorization.k8s.io "x" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting '
        f"to grant RBAC permissions not currently held:\n{missing}"
    )
    assert denial.denier(403, denied.message) == deniers.RBAC


ESCALATE = {"apiGroups": [bootstrap.GROUP], "resources": ["roles"], "verbs": ["escalate"]}
BIND = {"apiGroups": [bootstrap.GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]}


def test_the_verb_escalate_lets_a_role_grant_more() -> None:
    assert _access(ESCALATE).escalation(_grant("roles", _role(PODS), ANN)) is None
    assert _access(ESCALATE).escalation(_grant("clusterroles", _role(PODS), ANN))


def test_the_verb_bind_lets_a_binding_grant_more() -> None:
    assert _access(BIND).escalation(_grant("rolebindings", _reference("view"), ANN)) is None
    assert _access(BIND).escalation(_grant("rolebindings", _reference("edit"), ANN))
    assert _access().escalation(_grant("clusterrolebindings", _reference("system:basic-user"), ANN)) is None


def test_who_has_all_rights_may_grant_all() -> None:
    for who in (ADMIN, MASTER):
        assert _access().escalation(_grant("clusterrolebindings", _reference("cluster-admin"), who)) is None
    denied = _access().escalation(_grant("clusterrolebindings", _reference("cluster-admin"), ANN))
    assert denied
    assert denied.message.endswith(
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n{NonResourceURLs:["*"], Verbs:["*"]}'
    )


def test_a_role_that_collects_others_needs_all_rights() -> None:
    collects = {"rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    denied = _access(PODS).escalation(_grant("clusterroles", collects, ANN))
    assert denied
    assert denial.denier(403, denied.message) == deniers.RBAC
    assert _access(PODS).escalation(_grant("clusterroles", {"rules": []}, ANN)) is None
    assert _access().escalation(_grant("clusterroles", collects, ADMIN)) is None


def test_a_change_of_owners_grants_nothing() -> None:
    old = {"apiVersion": API, "metadata": {"name": "x"}, **_role(PODS)}
    owned = {**old, "metadata": {"name": "x", "ownerReferences": [{"name": "y"}]}}
    labelled = {**old, "metadata": {"name": "x", "labels": {"y": "z"}}}
    assert _access().escalation(_grant("roles", owned, ANN, old)) is None
    assert _access().escalation(_grant("roles", labelled, ANN, old))


def test_a_binding_to_no_role_is_not_found() -> None:
    denied = _access().escalation(_grant("rolebindings", _reference("gone"), ANN))
    assert denied
    assert (denied.component, denied.message) == (
        "API validation",
        'clusterroles.rbac.authorization.k8s.io "gone" not found',
    )


# Impersonation, nodes and names


def _impersonates(*rules: Object, target: Identity) -> bool:
    return _access(*rules).impersonation(ANN, target, Attributes("get", "pods", namespace="a")) is None


def test_to_act_as_another_needs_the_verb_for_its_name_and_each_group() -> None:
    user = {"apiGroups": [""], "resources": ["users"], "resourceNames": ["eve"], "verbs": ["impersonate"]}
    group = {**user, "resources": ["groups"], "resourceNames": ["g"]}
    assert _impersonates(user, target=Identity("eve"))
    assert not _impersonates(user, target=Identity("mallory"))
    assert not _impersonates(user, target=Identity("eve", ("g",)))
    assert _impersonates(user, group, target=Identity("eve", ("g", "system:authenticated")))


def test_edit_lets_act_as_service_accounts_of_the_namespace_alone() -> None:
    rules = bootstrap.binding("edits", "edit", [{"kind": "User", "name": "ann"}])
    local_binding = {**rules, "kind": "RoleBinding", "metadata": {"name": "edits", "namespace": "a"}}
    access, attributes = (
        Authorizer(ClusterObjects([*bootstrap.objects((1, 36)), local_binding])),
        Attributes("get", "pods"),
    )
    assert access.impersonation(ANN, Identity("system:serviceaccount:a:default"), attributes) is None
    denied = access.impersonation(ANN, Identity("system:serviceaccount:b:default"), attributes)
    assert denied
    assert denial.denier(403, denied.message) == deniers.RBAC


def test_parts_of_an_impersonation_hold_for_the_requests_that_they_name() -> None:
    api = {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]}
    on = {**PODS, "verbs": ["impersonate-on:user-info:get"]}
    assert _impersonates(api, on, target=Identity("eve"))
    assert not _impersonates(api, {**on, "verbs": ["impersonate-on:user-info:list"]}, target=Identity("eve"))
    assert not _impersonates(api, on, target=Identity("system:serviceaccount:a:b"))


NODE = authenticated(Identity("system:node:n", ("system:nodes",)))


@pytest.mark.parametrize(
    ("verb", "resource", "name", "allowed"),
    [
        ("patch", "nodes", "n", True),
        ("get", "nodes", "n", True),
        ("get", "nodes", "m", False),
        ("list", "nodes", "", False),
        ("delete", "nodes", "n", False),
        ("create", "pods", "", True),
        ("update", "pods", "p", False),
        ("list", "services", "", True),
        ("create", "services", "", False),
    ],
)
def test_a_kubelet_reaches_its_own_node(verb: str, resource: str, name: str, allowed: bool) -> None:
    decision = _access().decide(NODE, Attributes(verb, resource, name=name))
    assert (decision.allowed, decision.decided) == (allowed, True)


def test_what_a_kubelet_reads_depends_on_its_pods() -> None:
    decision = _access().decide(NODE, Attributes("get", "secrets", namespace="a", name="s"))
    assert (decision.allowed, decision.decided) == (False, False)
    assert "pods that run there" in decision.reason


def _node(labels: Mapping[str, str], **spec: object) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "item", "message"),
    [
        ("n", _node({"a": "b", "bank.example/note": "x", "node.kubernetes.io/x": "y"}), ""),
        ("m", _node({"a": "b"}), 'node "n" is not allowed to modify node "m"'),
        ("n", _node({}), ""),
        ("n", _node({"a": "b", "x.k8s.io/y": "z"}), "is not allowed to modify labels: x.k8s.io/y"),
        (
            "n",
            _node({"a": "b", "node-restriction.kubernetes.io/pool": "z", "kubernetes.io/role": "x"}),
            "is not allowed to modify labels: kubernetes.io/role, node-restriction.kubernetes.io/pool",
        ),
        ("n", _node({"a": "b"}, taints=[{"key": "x"}]), 'node "n" is not allowed to modify taints'),
    ],
)
def test_a_kubelet_writes_its_own_node_without_reserved_labels_and_taints(
    name: str, item: Object, message: str
) -> None:
    assert restriction("n", "UPDATE", name, item, _node({"a": "b"})) == message


def test_people_are_known_by_role_group_and_name() -> None:
    cluster, group = world("local")
    developer = identity(cluster, "developer", "fraud--train")
    assert developer == workload_creator(cluster, "fraud--train")
    assert set(developer.groups) == {"fraud-engineers", "system:authenticated"}
    assert "researchers" in identity(cluster, "researchers", "fraud--train").groups
    assert identity(cluster, "jane@bank.example", "fraud--train").username == "jane@bank.example"
    assert group in identity(cluster, PLATFORM, "").groups
    assert identity(cluster, "system:node:n", "").groups[0] == "system:nodes"
    account = identity(cluster, "system:serviceaccount:a:b", "")
    assert "system:serviceaccounts:a" in account.groups


@pytest.mark.parametrize(
    ("person", "change"), [("develper", "did you mean 'developer'?"), ("zzz", "use one of viewer")]
)
def test_an_unknown_person_is_named_with_what_there_is(person: str, change: str) -> None:
    cluster, _ = world("local")
    with pytest.raises(UnknownIdentityError, match="rule: a role of the namespace, platform, a user or group") as error:
        identity(cluster, person, "fraud--train")
    assert change in str(error.value)
