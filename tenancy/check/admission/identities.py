"""The identities of an environment: its people by name or role, its pods, its nodes and its platform team.

A person's groups are known only to the identity provider: someone who is asked about by name has the rights that the
name alone gives, a role has those of the first group with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from tenancy.check.admission import nodes
from tenancy.check.admission.access import SERVICE_ACCOUNT, authenticated
from tenancy.check.admission.bootstrap import GROUP, MASTERS, NODES
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AUTHENTICATED, Identity
from tenancy.kube.objects import get_path
from tenancy.planning.kubernetes.access import PERSONAS, role_name
from tenancy.spec.fields.people import Role

PLATFORM = "platform"
"""Name by which `--as` means the platform team."""
WORKLOAD_CREATORS = (Role.DEVELOPER, Role.OWNER)
"""Roles that create workloads, the more usual one first."""
_KINDS = ("Group", "User", "ServiceAccount")
"""Subjects of bindings, in the order in which one is taken for a role."""


class UnknownIdentityError(ValueError):
    """An identity that no binding names; the message lists those that exist."""


def identity(cluster: ClusterObjects, requested_name: str, namespace: str) -> Identity:
    """The identity that is meant by a role of a namespace, by the name of a user or group, or by a name of Kubernetes'.

    Raises UnknownIdentityError.
    """
    if requested_name == PLATFORM:
        return authenticated(Identity("platform", tuple(_administrators(cluster))))
    if requested_name in {*PERSONAS}:
        if role_identity := identity_of_role(cluster, Role(requested_name), namespace):
            return role_identity
        raise UnknownIdentityError(
            _unknown(requested_name, (role for role in PERSONAS if identity_of_role(cluster, role, namespace)))
        )
    if requested_name.startswith(SERVICE_ACCOUNT) and requested_name.count(":") == 3:
        return authenticated(Identity(requested_name))
    if requested_name.startswith(nodes.PREFIX):
        return authenticated(Identity(requested_name, (NODES,)))
    kinds = {kind for kind, name in _subjects(cluster) if name == requested_name}
    if "User" in kinds:
        return authenticated(Identity(requested_name))
    if "Group" in kinds:
        return _member(requested_name, requested_name)
    candidates = [*PERSONAS, PLATFORM, *(name for kind, name in _subjects(cluster) if not name.startswith("system:"))]
    raise UnknownIdentityError(_unknown(requested_name, candidates))


def identity_of_role(cluster: ClusterObjects, role: Role, namespace: str) -> Identity | None:
    """The identity that has a role in a namespace; None if it has no subject there."""
    bindings = cluster.all(GROUP, "RoleBinding", namespace)
    role_bindings = [binding for binding in bindings if get_path(binding, "roleRef", "name") == role_name(role)]
    subjects = [subject for binding in role_bindings for subject in binding.get("subjects") or ()]
    for subject in sorted(subjects, key=lambda subject: _KINDS.index(subject["kind"])):
        if subject["kind"] == "Group":
            return _member(subject["name"], f"{role} ({subject['name']})")
        if subject["kind"] == "ServiceAccount":
            return authenticated(Identity(_account(subject, namespace)))
        return authenticated(Identity(subject["name"]))
    return None


def workload_creator(cluster: ClusterObjects, namespace: str) -> Identity | None:
    """The identity that makes the work of a namespace; None if its tenant names no developer and no owner."""
    return next(
        (role_identity for role in WORKLOAD_CREATORS if (role_identity := identity_of_role(cluster, role, namespace))),
        None,
    )


def _member(group: str, username: str) -> Identity:
    return authenticated(Identity(username, (group,)))


def _account(subject: Mapping[str, str], namespace: str) -> str:
    return f"{SERVICE_ACCOUNT}{subject.get('namespace') or namespace}:{subject['name']}"


def _subjects(cluster: ClusterObjects) -> Iterator[tuple[str, str]]:
    """Kind and name of every subject of a binding."""
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in cluster.all(GROUP, kind):
            for subject in binding.get("subjects") or ():
                yield subject["kind"], subject["name"]


def _administrators(cluster: ClusterObjects) -> Iterator[str]:
    """Groups with every right, but for the API server's own."""
    for binding in cluster.all(GROUP, "ClusterRoleBinding"):
        if get_path(binding, "roleRef", "name") == "cluster-admin":
            for subject in binding.get("subjects") or ():
                if subject["kind"] == "Group" and subject["name"] not in (MASTERS, AUTHENTICATED):
                    yield subject["name"]


def _unknown(name: str, candidates: Iterable[str]) -> str:
    names = list(dict.fromkeys(map(str, candidates)))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    change = f"use one of {', '.join(names)}" if names else "name people in the tenant's file"
    change = f"did you mean {close[0]!r}?" if close else change
    rule = (
        f"a role of the namespace, {PLATFORM}, a user or group with a binding, or system:serviceaccount:NAMESPACE:NAME"
    )
    return f"given {name!r}; rule: {rule}; change: {change}"
