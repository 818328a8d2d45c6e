"""Rights over the whole cluster, in every form of a subject that hands them to tenants or to everybody."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.check.judge import judge
from tenancy.check.reader import FilePosition, Manifests
from tenancy.rules.catalogue import RULES
from tenancy.rules.model import Severity
from tests.pack_cases import RBAC, manifest

TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}


def group(name: str) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "Group", "name": name}


def user(name: str) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def account(namespace: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": "agent", "namespace": namespace}


def bound(role: str, subject: dict[str, str], **metadata: Any) -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    item = manifest(f"{RBAC}/v1", "ClusterRoleBinding", "rights", {"roleRef": reference, "subjects": [subject]}, None)
    return {**item, "metadata": {**item["metadata"], **metadata}}


def cluster_role(name: str, **rule: list[str]) -> dict[str, Any]:
    return manifest(f"{RBAC}/v1", "ClusterRole", name, {"rules": [rule]}, None)


def broken_rights(*items: dict[str, Any]) -> list[str]:
    """Critical findings about the bindings among the objects."""
    placed_findings = judge(Manifests([(item, FilePosition("x.yaml", 1)) for item in items])).findings
    return [
        str(placed_finding.finding.given)
        for placed_finding in placed_findings
        if "ClusterRoleBinding" in placed_finding.finding.object
        and RULES[placed_finding.finding.rule].severity is Severity.CRITICAL
    ]


EVERYBODY = [
    *("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:serviceaccounts:team-a"),
    "system:masters",
]


@pytest.mark.parametrize("role", ["cluster-admin", "admin", "edit"])
@pytest.mark.parametrize("name", EVERYBODY)
def test_a_group_that_everybody_is_in_has_no_rights_over_the_cluster(role: str, name: str) -> None:
    assert broken_rights(TEAM, bound(role, group(name))) == [f"ClusterRole {role} for Group {name!r}"]
    assert broken_rights(TEAM, bound(role, group("platform-admins"))) == []


@pytest.mark.parametrize("name", ["system:anonymous", "alice@acme.example", "system:serviceaccount:team-a:default"])
def test_a_user_has_no_rights_over_the_cluster(name: str) -> None:
    rights = broken_rights(TEAM, bound("cluster-admin", user(name)))
    assert len(rights) == 1
    assert name in rights[0]
    assert broken_rights(TEAM, bound("cluster-admin", user("system:kube-controller-manager"))) == []


def test_a_service_account_by_its_user_name_is_the_service_account() -> None:
    by_name = user("system:serviceaccount:team-a:agent")
    assert broken_rights(TEAM, bound("node-reader", by_name)) != []
    assert broken_rights(TEAM, bound("node-reader", account("team-a"))) != []
    for subject in (user("system:serviceaccount:kube-system:agent"), account("kube-system")):
        assert broken_rights(TEAM, bound("cluster-admin", subject)) == []


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["update"]},
    ],
)
def test_a_role_of_ones_own_with_such_rights_is_like_cluster_admin(rule: dict[str, list[str]]) -> None:
    role, harmless = (
        cluster_role("helper", **rule),
        cluster_role("helper", apiGroups=[""], resources=["nodes"], verbs=["get"]),
    )
    assert len(broken_rights(TEAM, role, bound("helper", group("system:authenticated")))) == 1
    assert broken_rights(TEAM, harmless, bound("helper", group("system:authenticated"))) == []
    assert broken_rights(TEAM, role, bound("helper", group("platform-admins"))) == []


def test_what_kubernetes_binds_itself_is_no_finding() -> None:
    defaults = {"name": "cluster-admin", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    assert broken_rights(TEAM, bound("cluster-admin", group("system:masters"), **defaults)) == []
    for role in ("system:basic-user", "system:discovery", "system:public-info-viewer"):
        assert broken_rights(TEAM, bound(role, group("system:authenticated"))) == []
    assert len(broken_rights(TEAM, bound("system:node", group("system:authenticated")))) == 1


def test_such_a_binding_in_a_namespace_of_the_platform_is_found_too() -> None:
    everybody = bound("cluster-admin", group("system:authenticated"), namespace="kube-system")
    item = {**everybody, "kind": "RoleBinding"}
    placed_findings = judge(Manifests([(manifest, FilePosition("x.yaml", 1)) for manifest in (TEAM, item)])).findings
    assert "rbac-05" in {placed_finding.finding.rule for placed_finding in placed_findings}
    role_binding = {**bound("cluster-admin", group("platform-admins"), namespace="kube-system"), "kind": "RoleBinding"}
    placed_findings = judge(
        Manifests([(manifest, FilePosition("x.yaml", 1)) for manifest in (TEAM, role_binding)])
    ).findings
    assert "rbac-05" not in {placed_finding.finding.rule for placed_finding in placed_findings}
