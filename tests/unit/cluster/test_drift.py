"""Drift of an object, found by its values and by the engine's own field manager, not by a manager's name."""

from __future__ import annotations

import copy
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tenancy.cluster.api import Response, path_of
from tenancy.cluster.drift import Drift, drift

MANAGER = "pulumi-kubernetes-1a2b3c4d"
ACCOUNT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "fraud--train", "labels": {"tenancy.gpu/environment": "local"}},
    "automountServiceAccountToken": False,
}
FIELDS = {
    "f:automountServiceAccountToken": {},
    "f:metadata": {"f:labels": {"f:tenancy.gpu/environment": {}}},
}
HOME = "/api/v1/namespaces/fraud--train/serviceaccounts/default"


def entry(manager: str, fields: dict[str, Any], operation: str = "Apply") -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "time": "2026-11-23T10:00:00Z", "fieldsV1": fields}


def live(*entries: dict[str, Any], **values: Any) -> dict[str, Any]:
    item = copy.deepcopy(ACCOUNT)
    item["metadata"] |= {"uid": "u", "creationTimestamp": "2026-11-23T09:00:00Z", "managedFields": list(entries)}
    return {**item, **values}


class Server:
    """Has one object, knows which labels it has, and answers an apply with what it would be."""

    def __init__(self, item: dict[str, Any] | None, *, admitted_values: dict[str, Any] | None = None) -> None:
        self.item, self.written = item, admitted_values
        self.asked: list[str] = []

    def items(self, path: str, absent: bool = False) -> list[dict[str, Any]]:  # noqa: ARG002
        labelled = self.item and "tenancy.gpu/environment" in (self.item["metadata"].get("labels") or {})
        return [self.item] if self.item and labelled else []

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        self.asked.append(f"{method} {path}")
        if method == "GET":
            return Response(200, self.item) if self.item else Response(404, {})
        query = parse_qs(urlsplit(path).query)
        assert query["dryRun"] == ["All"], "a report writes nothing"
        assert query["fieldManager"] == [MANAGER]
        return Response(200, {**(self.item or {}), **body, **(self.written or {})})


def drift_of(server: Server, *, is_recorded: bool = True) -> list[Drift]:
    managers = {path_of(ACCOUNT): MANAGER} if is_recorded else None
    return drift(server, "tenancy.gpu/environment=local", [ACCOUNT], managers)  # ty: ignore[invalid-argument-type]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_is_as_it_was_made_is_no_drift(is_recorded: bool) -> None:
    assert drift_of(Server(live(entry(MANAGER, FIELDS))), is_recorded=is_recorded) == []


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("manager", ["honest", "pulumi-kubernetes-4f3c2b1a", MANAGER])
def test_a_changed_value_is_reported_whatever_name_wrote_it(manager: str, is_recorded: bool) -> None:
    token = "f:automountServiceAccountToken"
    if manager == MANAGER:
        entries = [entry(MANAGER, FIELDS)]
    else:
        other_fields = {key: value for key, value in FIELDS.items() if key != token}
        entries = [entry(MANAGER, other_fields), entry(manager, {token: {}})]
    (drift,) = drift_of(Server(live(*entries, automountServiceAccountToken=True)), is_recorded=is_recorded)
    assert drift.fields == "automountServiceAccountToken"
    if is_recorded:
        assert manager in drift.writers


@pytest.mark.parametrize(
    "manager", ["Pulumi-kubernetes-1a2b3c4d", "pulumi-kubernetes-1a2b3c4e", "tenancy", "Tenancy-up"]
)
def test_a_name_like_the_engines_is_named_as_one_that_is_not(manager: str) -> None:
    token = "f:automountServiceAccountToken"
    other_fields = {key: value for key, value in FIELDS.items() if key != token}
    entries = [entry(MANAGER, other_fields), entry(manager, {token: {}}, "Update")]
    (drift,) = drift_of(Server(live(*entries, automountServiceAccountToken=True)))
    assert drift.writers == f"{manager} (not the engine's) at 2026-11-23T10:00:00Z"


def test_a_forged_record_of_managers_is_told_as_a_write_under_the_engines_name() -> None:
    forged = [entry(MANAGER, FIELDS), entry("kubectl-label", {"f:metadata": {"f:labels": {"f:x": {}}}}, "Update")]
    (drift,) = drift_of(Server(live(*forged, automountServiceAccountToken=True)))
    assert drift.fields.startswith("automountServiceAccountToken")
    assert f"a client under the engine's name {MANAGER} at 2026-11-23T10:00:00Z" in drift.writers
    assert "kubectl-label at 2026-11-23T10:00:00Z" in drift.writers
    (drift,) = drift_of(Server(live(entry("clock\u202ex", {}), automountServiceAccountToken=True)))
    assert "\u202e" not in drift.writers


def test_another_form_of_the_same_value_is_no_drift() -> None:
    """As of a quantity that the API server writes in its own form."""
    item = live(entry(MANAGER, FIELDS), automountServiceAccountToken="no")
    assert drift_of(Server(item, admitted_values={"automountServiceAccountToken": "no"})) == []


def test_a_field_written_beside_by_a_name_like_the_engines_is_reported() -> None:
    forged = entry("pulumi-kubernetes-4f3c2b1a", {"f:imagePullSecrets": {}})
    item = live(entry(MANAGER, FIELDS), forged, imagePullSecrets=[{"name": "x"}])
    (drift,) = drift_of(Server(item))
    assert drift.fields == "imagePullSecrets (new)"


def test_what_was_made_anew_is_told_as_that_with_who_made_it() -> None:
    item = live(entry("kubectl-create", {}, "Update"))
    del item["metadata"]["labels"], item["automountServiceAccountToken"]
    (drift,) = drift_of(Server(item))
    assert str(drift).startswith("ServiceAccount fraud--train/default: was created again, without ")
    assert "automountServiceAccountToken" in drift.description
    assert drift.writers == "kubectl-create at 2026-11-23T10:00:00Z"


def test_what_a_client_without_a_name_made_anew_says_when() -> None:
    item = live()
    del item["metadata"]["labels"], item["automountServiceAccountToken"]
    (drift,) = drift_of(Server(item))
    assert drift.writers == "a client without a name at 2026-11-23T09:00:00Z"


def test_what_is_gone_is_gone() -> None:
    server = Server(None)
    (drift,) = drift_of(server)
    assert (drift.live, str(drift)) == (None, "ServiceAccount fraud--train/default is gone")
    assert server.asked == [f"GET {HOME}"]


def test_without_the_state_no_object_is_asked_for_alone() -> None:
    server = Server(None)
    assert drift_of(server, is_recorded=False)
    assert server.asked == []
