"""Manifests in public shapes without a cluster: how many there are, their form, and what Kueue's webhooks say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tenancy import planning
from tenancy.check.admission import bootstrap
from tenancy.check.admission.access import authenticated
from tenancy.check.admission.requests import Identity, creation
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import Verdict, VerdictOutcome
from tenancy.cluster import denial
from tenancy.kube import deniers
from tenancy.kube.deniers import API_VALIDATION, KUEUE
from tenancy.kube.objects import Object
from tenancy.rules.attacks import put
from tenancy.verify.attacks import Scene
from tests.attack_worlds import world_of
from tests.manifests import manifests, of_kind

SPACE = "fraud--train"


@cache
def server() -> OfflineApiServer:
    environment, tenants = world_of("local")
    return OfflineApiServer.of_environment(planning.plan(environment, tenants), environment.cluster.kubernetes)


@cache
def pod() -> Object:
    home = Scene(*world_of("local")).home
    assert home
    assert home.name == SPACE
    return home.pod()


def verdict(item: Object, *, platform: bool = False) -> Verdict:
    group = planning.plan(*world_of("local")).admission.group if platform else "fraud-engineers"
    return server().verdict(creation(item, SPACE, authenticated(Identity("someone", (group,)))))


def test_there_are_at_least_five_hundred_of_many_kinds() -> None:
    samples = list(manifests(pod()))
    assert len({sample.id for sample in samples}) == len(samples) >= 500
    kinds = Counter(sample.item["kind"] for sample in samples)
    assert len(kinds) > 35
    assert min(kinds[kind] for kind in ("Pod", "Deployment", "StatefulSet", "Job", "CronJob", "Service")) > 40


def test_each_has_a_verdict_and_few_are_not_decided() -> None:
    verdicts = [verdict(sample.item, platform=sample.role == "platform") for sample in manifests(pod())]
    outcomes = Counter(judged.outcome for judged in verdicts)
    assert outcomes[VerdictOutcome.ADMITTED] > 150
    assert outcomes[VerdictOutcome.REFUSED] > 300
    assert outcomes[VerdictOutcome.UNDECIDED] <= 0.02 * len(verdicts)
    assert [judged for judged in verdicts if judged.outcome is VerdictOutcome.UNDECIDED and not judged.undecided] == []


def _work(kind: str) -> Object:
    item = of_kind(kind, {"metadata": {"labels": {}}, "spec": pod()["spec"]})
    del item["metadata"]["labels"]
    return item


def _with_label(kind: str, api_version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}


PORTS = {"ports": [{"port": 80}], "selector": {"a": "b"}}
CPU = "/spec/containers/0/resources/requests/cpu"
DEADLINE = "/spec/template/spec/activeDeadlineSeconds"
BLOCK = "/spec/egress/0/to/0/ipBlock/cidr"
EGRESS = {"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}]}]}
SCALE = {"scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}, "maxReplicas": 3}


@pytest.mark.parametrize(
    ("item", "at", "bad", "field"),
    [
        (_work("Pod"), "/spec/containers/0/name", "A_b", "spec.containers[0].name"),
        (_work("Pod"), "/spec/restartPolicy", "Sometimes", "spec.restartPolicy"),
        (_work("Pod"), "/metadata/name", "Train_1", "metadata.name"),
        (_work("Pod"), "/metadata/labels", {"a b": "c"}, "metadata.labels"),
        (_work("Pod"), "/spec/terminationGracePeriodSeconds", "30", "spec.terminationGracePeriodSeconds"),
        (_work("Pod"), "/spec/hostNetwork", "yes", "spec.hostNetwork"),
        (_work("Pod"), CPU, "1 core", "spec.containers[0].resources.requests[cpu]"),
        (_work("Pod"), "/metadata/namespace", "default", ""),
        (_work("Deployment"), "/spec/selector", {"matchLabels": {"app": "y"}}, "spec.template.metadata.labels"),
        (_work("Deployment"), "/spec/selector", {}, "spec.selector"),
        (_work("StatefulSet"), DEADLINE, 60, "spec.template.spec.activeDeadlineSeconds"),
        (_work("StatefulSet"), "/spec/template/spec/restartPolicy", "Never", "spec.template.spec.restartPolicy"),
        (_work("Job"), "/spec/template/spec/restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        (_work("Job"), "/spec/parallelism", -1, "spec.parallelism"),
        (_work("CronJob"), "/spec/schedule", "every day", "spec.schedule"),
        (_work("CronJob"), "/spec/timeZone", "Mars/Base", "spec.timeZone"),
        (_with_label("Service", spec=PORTS), "/spec/ports", [], "spec.ports"),
        (_with_label("Service", spec=PORTS), "/spec/ports/0/port", 70000, "spec.ports[0].port"),
        (_with_label("ConfigMap"), "/data", {"a/b": "c"}, "data[a/b]"),
        (_with_label("ConfigMap"), "/data", {"a": 1}, "data"),
        (_with_label("Secret"), "/data", {"a": "***"}, "data[a]"),
        (_with_label("Secret", stringData={"tls.crt": "x"}), "/type", "kubernetes.io/tls", "data[tls.key]"),
        (_with_label("NetworkPolicy", "networking.k8s.io/v1", spec=EGRESS), BLOCK, "10.0.0.1", BLOCK),
        (
            _with_label("HorizontalPodAutoscaler", "autoscaling/v2", spec=SCALE),
            "/spec/minReplicas",
            5,
            "spec.maxReplicas",
        ),
    ],
)  # fmt: skip
def test_what_has_no_form_is_refused_with_its_field(item: Object, at: str, bad: Any, field: str) -> None:
    refused, twin = verdict(put(item, at, bad), platform=True), verdict(item, platform=True)
    assert API_VALIDATION not in [denial.component for denial in twin.denials]
    assert refused.denials[0].component == API_VALIDATION
    path = "spec.egress[0].to[0].ipBlock.cidr" if field == BLOCK else field
    assert path in {denial.path for denial in refused.denials}


def test_an_object_of_the_environment_exists_already() -> None:
    names = ("kube-root-ca.crt", "another")
    verdicts = [verdict({**_with_label("ConfigMap"), "metadata": {"name": name}}) for name in names]
    assert [[denial.component for denial in verdict.denials] for verdict in verdicts] == [["already exists"], []]


def test_it_is_not_known_whether_an_operators_kind_is_served() -> None:
    answer = verdict(_with_label("Workflow", "argoproj.io/v1alpha1", spec={}), platform=True)
    assert answer.outcome is VerdictOutcome.UNDECIDED
    assert "workflows.argoproj.io depends on its operator" in answer.undecided[0]
    assert verdict(_with_label("Workflow", "argoproj.io/v1alpha1", spec={})).denials[0].component == deniers.RBAC


# Kueue's webhooks


def _annotated(kind: str, template: bool = False, labels: Mapping[str, str] | None = None, **notes: str) -> Object:
    item = _work(kind)
    entries = {f"kueue.x-k8s.io/{name.replace('_', '-')}": value for name, value in notes.items()}
    owner = item["spec"]["template"]["metadata"] if template else item["metadata"]
    owner["annotations"] = entries
    item["metadata"]["labels"] = {**item["metadata"].get("labels", {}), **(labels or {})}
    return item


@pytest.mark.parametrize(
    ("bad", "good", "message"),
    [
        (
            _annotated("Job", job_min_parallelism="x"),
            _annotated("Job", job_min_parallelism="1"),
            'vjob.kb.io" denied the request: metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: '
            '"x": strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            _annotated("Job", job_min_parallelism="2"),
            _annotated("Job", job_min_parallelism="1"),
            "should be between 0 and 1",
        ),
        (
            _annotated("Job", job_completions_equal_parallelism="maybe"),
            _annotated("Job", job_completions_equal_parallelism="false"),
            "strconv.ParseBool",
        ),
        (
            _annotated("Job", template=True, podset_unconstrained_topology="maybe"),
            _annotated("Job", template=True, podset_unconstrained_topology="true"),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology]",
        ),
        (
            _annotated("Job", template=True, podset_required_topology="a", podset_preferred_topology="a"),
            _annotated("Job", template=True, podset_required_topology="a"),
            "must not contain more than one topology annotation",
        ),
        (
            _annotated("Job", template=True, podset_slice_size="2"),
            _annotated("Job", template=True),
            "may not be set when 'kueue.x-k8s.io/podset-slice-required-topology' is not specified",
        ),
    ],
)
def test_kueue_refuses_its_own_annotations_in_a_wrong_form(bad: Object, good: Object, message: str) -> None:
    refused = verdict(bad)
    assert [denial.component for denial in refused.denials] == [KUEUE]
    assert message in refused.denials[0].message
    assert denial.denier(403, refused.denials[0].message) == KUEUE
    assert verdict(good).denials == ()


def test_kueue_says_nothing_of_namespaces_of_no_tenant() -> None:
    group = planning.plan(*world_of("local")).admission.group
    who = authenticated(Identity("someone", (group,)))
    item = _annotated("Job", job_min_parallelism="x")
    assert KUEUE not in {denial.component for denial in server().verdict(creation(item, "default", who)).denials}


def test_bootstrap_roles_follow_the_version() -> None:
    def rights(minor: int) -> str:
        return str([item for item in bootstrap.objects((1, minor)) if item["metadata"]["name"].endswith("to-edit")])

    assert "resourceclaims" in rights(34)
    assert "resourceclaims" not in rights(33)
