"""The verdict without a cluster is the API server's, over manifests in public shapes; roles that it makes are those
that are written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from attack_lab import Cluster

from tenancy.check.admission import bootstrap
from tenancy.check.admission.access import authenticated
from tenancy.check.admission.requests import Identity, creation, plural
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import VerdictOutcome
from tenancy.cluster import denial
from tenancy.cluster.api import Response
from tenancy.kube import deniers
from tenancy.kube.deniers import CONFLICT, NOT_FOUND
from tenancy.kube.requests import Impersonation
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks import AttackedNamespace
from tenancy.verify.verification import AT_ONCE
from tests.manifests import Manifest, manifests
from tests.offline_requests import RUNTIME, offline_server_of

UNDECIDED_AT_MOST = 0.02
_BY_STATUS = {404: NOT_FOUND, 409: CONFLICT}


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    assert cluster.scene.home
    return cluster.scene.home


@pytest.fixture(scope="module")
def requests(home: AttackedNamespace) -> Sequence[tuple[Manifest, Impersonation | None]]:
    """Every manifest, and who creates it where the environment has such a person."""
    people = {role.value: home.person(role) for role in Role}
    return [
        (manifest, None if manifest.role == "platform" else people[manifest.role])
        for manifest in manifests(home.pod())
        if manifest.role == "platform" or people[manifest.role]
    ]


@pytest.fixture(scope="module")
def answers(
    cluster: Cluster, home: AttackedNamespace, requests: Sequence[tuple[Manifest, Impersonation | None]]
) -> Mapping[str, str]:
    """The denying control of each manifest by the API server, or none."""

    def request(pair: tuple[Manifest, Impersonation | None]) -> Response:
        item = pair[0].item
        version = item["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{root}/namespaces/{home.name}/{plural(item['kind'])}?dryRun=All"
        return cluster.api.request("POST", path, item, pair[1])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        responses = list(pool.map(request, requests))
    return {
        manifest.id: _BY_STATUS.get(answer.status) or denial.denier(answer.status, answer.message)
        for (manifest, _), answer in zip(requests, responses, strict=True)
    }


def _disagreements(
    server: OfflineApiServer,
    cluster: Cluster,
    home: AttackedNamespace,
    people_and_manifests: Sequence[tuple[Manifest, Impersonation | None]],
    answers: Mapping[str, str],
) -> Iterator[tuple[str, Any, str]]:
    group = cluster.plan.admission.group
    for manifest, who in people_and_manifests:
        identity = Identity(who.user, tuple(who.groups)) if who else Identity("platform-engineer", (group,))
        verdict = server.verdict(creation(manifest.item, home.name, authenticated(identity)))
        controls = {denied.denier for denied in verdict.denials} or {deniers.NONE}
        if verdict.outcome is VerdictOutcome.UNDECIDED:
            assert "" not in (verdict.undecided or ("",)), manifest.id
            yield manifest.id, VerdictOutcome.UNDECIDED, ""
        elif answers[manifest.id] not in controls:
            yield manifest.id, sorted(controls), answers[manifest.id]


def test_the_verdict_without_a_cluster_is_that_of_its_api_server(
    cluster: Cluster,
    home: AttackedNamespace,
    requests: Sequence[tuple[Manifest, Impersonation | None]],
    answers: Mapping[str, str],
) -> None:
    assert len(requests) > 700
    assert len(set(answers.values())) > 50, "many controls refuse"
    disagreements = list(
        _disagreements(
            offline_server_of(cluster.plan.objects(), cluster.scene.environment, [RUNTIME]),
            cluster,
            home,
            requests,
            answers,
        )
    )
    undecided = [id for id, outcome, _ in disagreements if outcome is VerdictOutcome.UNDECIDED]
    assert [disagreement for disagreement in disagreements if disagreement[1] is not VerdictOutcome.UNDECIDED] == []
    assert len(undecided) <= UNDECIDED_AT_MOST * len(requests), undecided


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy/"),
        ("RoleBinding", deniers.NONE),
        ("LimitRange", deniers.LIMIT_RANGE),
    ],
)
def test_without_a_kind_of_object_other_verdicts_would_be_told(
    kind: str,
    refused: str,
    cluster: Cluster,
    home: AttackedNamespace,
    requests: Sequence[tuple[Manifest, Impersonation | None]],
    answers: Mapping[str, str],
) -> None:
    objects = [item for item in cluster.plan.objects() if item["kind"] != kind]
    disagreements = _disagreements(
        offline_server_of(objects, cluster.scene.environment, [RUNTIME]), cluster, home, requests, answers
    )
    assert any(
        answer.startswith(refused) for _, outcome, answer in disagreements if outcome is not VerdictOutcome.UNDECIDED
    )


def test_roles_that_the_api_server_makes_are_those_that_are_written_down(cluster: Cluster) -> None:
    minor = tuple(map(int, cluster.scene.environment.cluster.kubernetes.split(".")))
    recorded = list(bootstrap.objects((minor[0], minor[1])))
    assert len(recorded) > 25
    for item in recorded:
        what = "clusterroles" if item["kind"] == "ClusterRole" else "clusterrolebindings"
        path = f"/apis/{bootstrap.GROUP}/v1/{what}/{item['metadata']['name']}"
        served = cluster.api.request("GET", path).body
        if item["kind"] == "ClusterRoleBinding":
            assert _subjects(served) == _subjects(item), path
            assert served["roleRef"]["name"] == item["roleRef"]["name"]
        elif "aggregationRule" in item:
            assert served["aggregationRule"] == item["aggregationRule"], path
        else:
            assert _rights(served) == _rights(item), path


def _subjects(binding: Mapping[str, Any]) -> set[tuple[str, ...]]:
    return {
        (subject["kind"], subject["name"], subject.get("namespace", "")) for subject in binding.get("subjects") or ()
    }


def _rights(role: Mapping[str, Any]) -> set[tuple[str, ...]]:
    return {
        (group, resource, verb)
        for rule in role.get("rules") or ()
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or [""]
        for resource in [*(rule.get("resources") or ()), *(rule.get("nonResourceURLs") or ())]
    }
