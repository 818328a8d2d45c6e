from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenancy.cluster import denial
from tenancy.kube import deniers

_POLICY = (
    "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'tenancy-templates' with binding 'tenancy-templates' "
    "denied request: gpu-02: a container does not choose devices by environment variable. To change: drop it."
)
_RBAC = 'pods is forbidden: User "a" cannot create resource "pods" in API group "" in the namespace "fraud--train"'


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (201, "", deniers.NONE),
        (403, _POLICY, "ValidatingAdmissionPolicy/tenancy-templates:gpu-02"),
        (403, _RBAC, deniers.RBAC),
        (403, 'forbidden: User "a" cannot get path "/metrics"', deniers.RBAC),
        (403, 'users "b" is forbidden: User "a" cannot impersonate resource "users" in API group ""', deniers.RBAC),
        (403, 'pods "x" is forbidden: exceeded quota: tenant, requested: pods=1, used: pods=1', "ResourceQuota/tenant"),
        (403, 'pods "x" is forbidden: failed quota: tenant: must specify limits.cpu', "ResourceQuota/tenant"),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:v1.36": hostPort', deniers.POD_SECURITY),
        (403, 'pods "x" is forbidden: maximum cpu usage per Container is 96, but limit is 97', deniers.LIMIT_RANGE),
        (422, 'Pod "x" is invalid: spec.nodeName: Invalid value', deniers.API_VALIDATION),
        (404, 'pods "x" not found', deniers.UNKNOWN),
        (409, 'pods "x" already exists', deniers.UNKNOWN),
        (500, "an error on the server", deniers.UNKNOWN),
        (403, "the integer value of priority (5) must not be provided in pod spec", deniers.UNKNOWN),
    ],
)
def test_the_denier_is_told_by_the_words_that_it_alone_uses(status: int, message: str, expected: str) -> None:
    assert denial.denier(status, message) == expected


def test_a_foreign_policy_is_named_without_a_rule() -> None:
    message = "ValidatingAdmissionPolicy 'theirs' with binding 'b' denied request: no"
    assert denial.denier(403, message) == "ValidatingAdmissionPolicy/theirs:", "it must not pass for one of our rules"


def test_a_user_cannot_forge_the_denier_by_the_name_of_an_object() -> None:
    message = 'pods "violates" is forbidden: something else entirely refused User'
    assert denial.denier(403, message) == deniers.UNKNOWN


def _event(decision: str, *policies: str) -> dict[str, Any]:
    notes = {"authorization.k8s.io/decision": decision}
    if policies:
        failures = [{"policy": policy, "binding": policy} for policy in policies]
        notes["validation.policy.admission.k8s.io/validation_failure"] = json.dumps(failures)
    return {"annotations": notes}


@pytest.mark.parametrize(
    ("component", "event", "agrees"),
    [
        (deniers.RBAC, _event("forbid"), True),
        (deniers.RBAC, _event("allow"), False),
        (deniers.POD_SECURITY, _event("allow"), True),
        (deniers.POD_SECURITY, _event("forbid"), False),
        ("ValidatingAdmissionPolicy/tenancy-pods:gpu-02", _event("allow", "tenancy-pods"), True),
        ("ValidatingAdmissionPolicy/tenancy-pods:gpu-02", _event("allow", "tenancy-templates"), False),
        ("ValidatingAdmissionPolicy/tenancy-pods:gpu-02", _event("allow"), False),
        (deniers.NONE, _event("allow"), True),
        (deniers.NONE, _event("allow", "tenancy-pods"), False),
        (deniers.NONE, None, False),
    ],
)
def test_the_audit_log_is_asked_whether_it_agrees(component: str, event: dict[str, Any] | None, agrees: bool) -> None:
    assert (denial.audit_disagreement(component, event) is None) == agrees


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    path.write_text(_line("old"))
    return path


def _line(name: str) -> str:
    return json.dumps({"auditID": denial.AUDIT_PREFIX + name, "stage": "ResponseComplete"}) + "\n"


def _ids(*names: str) -> list[str]:
    return [denial.AUDIT_PREFIX + name for name in names]


def _read(log: Path, write: Callable[[], None], *names: str, timeout: float = 0.2) -> set[str]:
    audit = denial.AuditLog(log)
    write()
    return set(audit.events(_ids(*names), timeout))


def test_only_what_was_written_since_the_start_is_read(log: Path) -> None:
    def write() -> None:
        with log.open("a") as file:
            file.write(_line("a") + "not json\n" + _line("b"))

    assert _read(log, write, "a", "b", "old") == set(_ids("a", "b")), "an old event must not vouch for a new request"


def test_a_line_that_is_still_being_written_is_left_for_later(log: Path) -> None:
    def write() -> None:
        with log.open("a") as file:
            file.write(_line("a") + _line("b")[:10])

    assert _read(log, write, "a", "b") == set(_ids("a"))


def test_events_on_both_sides_of_a_rotation_are_found(log: Path) -> None:
    def write() -> None:
        with log.open("a") as file:
            file.write(_line("a"))
        log.rename(log.with_name("audit-2026-11-21T00-00-00.000.log"))
        log.write_text(_line("b"))

    assert _read(log, write, "a", "b") == set(_ids("a", "b"))


def test_a_log_without_any_event_is_another_clusters(log: Path) -> None:
    with pytest.raises(denial.ForeignLogError, match="--audit-log"):
        _read(log, lambda: None, "a")
