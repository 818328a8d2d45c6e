"""Service accounts of tenants on a real API server: no person of a tenant gets another's identity by one.

What `tenancy verify` asks of every cluster is in `tenancy.verify.attacks`; here is what needs more than it has: the
other ways to write, tokens of all persons, and a person's own certificate, because who impersonates cannot be
impersonated.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tenancy.cluster import denial
from tenancy.cluster.api import Api
from tenancy.cluster.denial import AuditLog
from tenancy.kube import deniers
from tenancy.kube.requests import APPLY, JSON_PATCH, MERGE, STRATEGIC, Impersonation, core, group
from tenancy.lab import pki, ports
from tenancy.lab.layout import Lab
from tenancy.rules.attacks import attack
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks import Attack, AttackedNamespace, Request
from tenancy.verify.verification import ask, run
from tests.attacks.attack_lab import ROOT, Cluster

GUARD = deniers.guard("tenancy-serviceaccounts", "id-01")
ROLE = "eks.amazonaws.com/role-arn"
ANOTHERS = "arn:aws:iam::111122223333:role/tenancy/bank/performance/bank--performance--train"
HARMLESS = "bank.example/note"


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    """A namespace with a person of every role."""
    return next(place for place in cluster.scene.places if all(map(place.person, Role)))


@pytest.fixture(scope="module")
def neighbour(cluster: Cluster, home: AttackedNamespace) -> AttackedNamespace:
    return next(place for place in cluster.scene.places if place.tenant.tenant != home.tenant.tenant)


def gaps(cluster: Cluster, attacks: Sequence[Attack]) -> list[dict[str, Any]]:
    """Attacks that get through, that another control refuses, or whose twin is refused as well."""
    assert attacks
    results = run(cluster.api, attacks, AuditLog(cluster.audit_log))
    return [result.as_dict() for result in results if result.gap]


def person(place: AttackedNamespace, role: Role) -> Impersonation:
    identity = place.person(role)
    assert identity
    return identity


def annotated(key: str, value: str, name: str = "default") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "annotations": {key: value}}}


def test_an_owner_asks_for_no_aws_role_however_it_is_written(cluster: Cluster, home: AttackedNamespace) -> None:
    """The twin has the same value under a name that no controller reads."""
    owner, where = person(home, Role.OWNER), core(home.name, "serviceaccounts", "default")
    steps = {
        key: [{"op": "add", "path": "/metadata/annotations", "value": {key: ANOTHERS}}] for key in (ROLE, HARMLESS)
    }
    bad, good = annotated(ROLE, ANOTHERS), annotated(HARMLESS, ANOTHERS)
    ways = {
        "merge": ("PATCH", where, MERGE, bad, good),
        "strategic": ("PATCH", where, STRATEGIC, bad, good),
        "json": ("PATCH", where, JSON_PATCH, steps[ROLE], steps[HARMLESS]),
        "apply": ("PATCH", f"{where}?fieldManager=owner", APPLY, bad, good),
        "put": ("PUT", where, "application/json", bad, good),
        "create": (
            *("POST", core(home.name, "serviceaccounts"), "application/json"),
            *(annotated(key, ANOTHERS, "attack") for key in (ROLE, HARMLESS)),
        ),
    }
    attacks = [
        attack(f"owner-{way}", "id-01", way, GUARD, Request(method, path, body, owner, kind), twin_body=twin)
        for way, (method, path, kind, body, twin) in ways.items()
    ]
    assert gaps(cluster, attacks) == []


@pytest.mark.parametrize("key", ["audience", "sts-regional-endpoints", "token-expiration", "skip-containers"])
def test_an_owner_changes_nothing_else_that_eks_reads_there(
    cluster: Cluster, home: AttackedNamespace, key: str
) -> None:
    where = core(home.name, "serviceaccounts", "default")
    request = Request("PATCH", where, annotated(f"eks.amazonaws.com/{key}", "x"), person(home, Role.OWNER), MERGE)
    twin = annotated(f"{key}.bank.example/x", "x")
    assert gaps(cluster, [attack(key, "id-01", key, GUARD, request, twin_body=twin)]) == []


def test_the_other_roles_write_no_service_account_at_all(cluster: Cluster, home: AttackedNamespace) -> None:
    attacks = []
    for role in (Role.DEVELOPER, Role.OPERATOR, Role.VIEWER):
        patch = annotated(HARMLESS, "hello")
        where = core(home.name, "serviceaccounts", "default")
        for name, request in (
            ("patch", Request("PATCH", where, patch, person(home, role), MERGE)),
            ("create", Request("POST", core(home.name, "serviceaccounts"), annotated(HARMLESS, "x", "attack"))),
            ("delete", Request("DELETE", where)),
        ):
            role_request = replace(request, who=person(home, role))
            owner = person(home, Role.OWNER)
            attacks.append(attack(f"{role}-{name}", "rbac", name, deniers.RBAC, role_request, twin_who=owner))
    assert gaps(cluster, attacks) == []


def test_no_role_of_a_tenant_mints_a_token_in_any_namespace(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace
) -> None:
    """The twin is the platform, for which the guards are in force and RBAC is not in the way."""
    token = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["pods.eks.amazonaws.com"]},
    }
    attacks = [
        attack(
            f"{role}-{place.name}",
            "rbac",
            f"{role}: a token of {place.name}",
            deniers.RBAC,
            Request("POST", core(place.name, "serviceaccounts", "default", "token"), token, person(home, role)),
            twin_who=None,
        )
        for role in Role
        for place in (home, neighbour)
    ]
    assert gaps(cluster, attacks) == []


def test_a_neighbours_pod_has_no_rights_here(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace
) -> None:
    name = f"system:serviceaccount:{neighbour.name}:default"
    pod = Impersonation(name, ("system:serviceaccounts", f"system:serviceaccounts:{neighbour.name}"))
    attacks = [
        attack(
            f"{method}-{what}",
            "rbac",
            what,
            deniers.RBAC,
            Request(method, core(home.name, what), body, pod),
            twin_who=who,
        )
        for method, what, body, who in (
            ("GET", "secrets", None, person(home, Role.DEVELOPER)),
            ("GET", "serviceaccounts", None, person(home, Role.VIEWER)),
            ("POST", "pods", home.pod(), person(home, Role.DEVELOPER)),
        )
    ]
    assert gaps(cluster, attacks) == []


def test_an_owner_lets_no_foreign_account_in(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace
) -> None:
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "attack"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenancy-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": neighbour.name}],
    }
    where = group("rbac.authorization.k8s.io/v1", home.name, "rolebindings")
    request = Request("POST", where, body, person(home, Role.OWNER))
    assert gaps(cluster, [attack("bind", "rbac", "bind", deniers.RBAC, request, twin_who=None)]) == []


def test_a_pod_runs_only_as_an_account_of_its_own_namespace(
    cluster: Cluster, home: AttackedNamespace, neighbour: AttackedNamespace
) -> None:
    """An account is named without a namespace; one that only the neighbour has is none."""
    account_object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "next-door"}}
    assert cluster.api.request("POST", core(neighbour.name, "serviceaccounts"), account_object).ok

    def pod_answer(place: AttackedNamespace, account: str) -> Any:
        body = {**place.pod(), "spec": {**place.pod()["spec"], "serviceAccountName": account}}
        return ask(cluster.api, Request("POST", core(place.name, "pods"), body, place.developer))

    refused = pod_answer(home, "next-door")
    assert refused.status == 403
    assert f"error looking up service account {home.name}/next-door" in refused.message
    assert pod_answer(home, "default").ok
    neighbour_answer = pod_answer(neighbour, "next-door")
    assert denial.denier(neighbour_answer.status, neighbour_answer.message) == deniers.guard("tenancy-pods", "id-07"), (
        "found, and not named"
    )


# ── impersonation ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def themselves(cluster: Cluster, home: AttackedNamespace, tmp_path_factory: pytest.TempPathFactory) -> dict[Role, Api]:
    """All persons with a certificate of their own; the lab's authority stands for EKS' access entries."""
    folder = tmp_path_factory.mktemp("people")
    lab = Lab(ROOT, cluster.audit_log.parent)
    port = ports.remembered(lab)["kube-apiserver"]
    apis_by_role = {}
    with pytest.MonkeyPatch.context() as patch:
        for role in (Role.OWNER, Role.DEVELOPER, Role.OPERATOR):
            who = person(home, role)
            pki._issue(lab, f"person-{role}", who.user, tuple(who.groups), datetime.timedelta(hours=1))
            pki._write_kubeconfig(lab, folder / role, f"person-{role}", who.user, port)
            patch.setenv("KUBECONFIG", str(folder / role))
            apis_by_role[role] = Api(None)
    return apis_by_role


@pytest.mark.parametrize("role", [Role.OWNER, Role.DEVELOPER, Role.OPERATOR])
def test_no_role_of_a_tenant_impersonates(
    cluster: Cluster, themselves: dict[Role, Api], home: AttackedNamespace, neighbour: AttackedNamespace, role: Role
) -> None:
    """The twin is the same list without the headers."""
    api, where = themselves[role], core(home.name, "pods")
    assert api.request("GET", where).ok
    account = f"system:serviceaccount:{neighbour.name}:default"
    for victim in (
        Impersonation(account, ("system:serviceaccounts", f"system:serviceaccounts:{neighbour.name}")),
        Impersonation(f"system:serviceaccount:{home.name}:default"),
        Impersonation(person(neighbour, Role.OWNER).user, person(neighbour, Role.OWNER).groups),
        Impersonation(person(home, Role.OWNER).user, ("system:masters",)),
        Impersonation("platform-engineer", (cluster.scene.environment.platform.group,)),
    ):
        answer = api.request("GET", where, identity=victim)
        assert (answer.status, denial.denier(answer.status, answer.message)) == (403, deniers.RBAC), victim
        # Since 1.36 the server asks for `impersonate-on:…` first, where it once asked for `impersonate`.
        assert " cannot impersonate" in answer.message


def test_the_platform_may_impersonate_or_these_tests_prove_nothing(
    cluster: Cluster, neighbour: AttackedNamespace
) -> None:
    account = Impersonation(f"system:serviceaccount:{neighbour.name}:default")
    answer = cluster.api.request("GET", core(neighbour.name, "pods"), identity=account)
    assert answer.status == 403
    assert f'User "{account.user}" cannot list resource' in answer.message


def test_a_pod_is_no_account_that_the_file_does_not_name(cluster: Cluster, home: AttackedNamespace) -> None:
    """Objects that make pods are refused in `tenancy verify`; a pod needs an account that is there, which an owner
    makes."""
    unlisted_account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "left-behind"}}
    accounts = core(home.name, "serviceaccounts")
    assert cluster.api.request("POST", accounts, unlisted_account, person(home, Role.OWNER)).ok
    pods, pod = core(home.name, "pods"), home.pod()
    bad, good = ({**pod, "spec": {**pod["spec"], "serviceAccountName": name}} for name in ("left-behind", "default"))
    who, denier = person(home, Role.DEVELOPER), deniers.guard("tenancy-pods", "id-07")
    request = Request("POST", pods, bad, who)
    probe = attack("id-07-pod", "id-07", "act as a leftover account", denier, request, twin_body=good)
    try:
        assert gaps(cluster, [probe]) == []
    finally:
        cluster.api.request("DELETE", f"{accounts}/left-behind")
