"""Keys of labels and annotations that tenants may write, by CEL's own runtime: what charts, kubectl and controllers of
supported kinds write is admitted, and what agents obey is not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.planning.guards import guards
from tenancy.planning.guards.admission_policy import Guard
from tenancy.rules.workloads import kinds_of, of_api, workload
from tenancy.spec.fields.platform import Platform
from tenancy.verify.attacks.scene import AttackedNamespace, Scene
from tests import cel_runtime as cel
from tests.attack_worlds import world_of

PERSON = {"username": "verify-developer@fraud", "groups": ["fraud-engineers"]}
USUAL = {
    "app": "x",
    "team.example": "x",
    "app.kubernetes.io/name": "x",
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": "mlflow-1.2.3",
    "pod-template-hash": "abc",
    "job-name": "x",
    "controller-uid": "x",
    "batch.kubernetes.io/job-name": "x",
    "apps.kubernetes.io/pod-index": "0",
    "statefulset.kubernetes.io/pod-name": "x-0",
    "argocd.argoproj.io/instance": "mlflow",
    "kustomize.toolkit.fluxcd.io/name": "apps",
    "ray.io/node-type": "worker",
    "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
    "bank.example/product": "cards",
    "ml.bank.example/model": "x",
    "fraud/model": "x",
}
"""Labels of charts, of controllers and of tools that deploy, and those of the organization and the tenant."""
NOTES = {
    "checksum/config": "3f2a",
    "meta.helm.sh/release-name": "mlflow",
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
    "kubectl.kubernetes.io/restartedAt": "2026-11-27T17:00:00Z",
    "kubectl.kubernetes.io/default-container": "hello",
    "deployment.kubernetes.io/revision": "3",
    "cronjob.kubernetes.io/instantiate": "manual",
    "kubernetes.io/change-cause": "a new model",
    "kubernetes.io/egress-bandwidth": "1G",
    "controller.kubernetes.io/pod-deletion-cost": "10",
    "prometheus.io/scrape": "true",
    "prometheus.io/port": "8080",
    "prometheus.io/scheme": "http",
    "prometheus.io/path": "/metrics",
    "pulumi.com/skipAwait": "true",
    "ray.io/ft-enabled": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}


@cache
def _guards(*keys: str, classes: tuple[str, ...] = (), attributes: tuple[str, ...] = ()) -> tuple[Guard, ...]:
    environment, _ = world_of("every-kind")
    update = {"metadata_keys": keys, "storage_classes": classes, "volume_attributes_classes": attributes}
    platform = environment.platform.model_copy(update=update)
    return tuple(guards(environment.model_copy(update={"platform": platform})))


@cache
def _place() -> AttackedNamespace:
    home = Scene(*world_of("every-kind"), ["nvidia"], ["plain"]).home
    assert home
    return home


@cache
def _space(name: str) -> Object:
    items = planning.plan(*world_of("every-kind")).objects()
    return next(item for item in items if item["kind"] == "Namespace" and item["metadata"]["name"] == name)


def refused(
    item: Object,
    old: Object | None = None,
    user: Any = PERSON,
    keys: tuple[str, ...] = (),
    rule: str = "meta-01",
    **classes: tuple[str, ...],
) -> bool:
    """Whether a rule refuses an object that a person writes."""
    group, _, _ = item["apiVersion"].rpartition("/")
    resource = collection(item["apiVersion"], item["kind"], "x").rpartition("/")[2]
    name = _place().name
    item = {**item, "metadata": {"name": "x", "namespace": name, **item["metadata"]}}
    data = {
        "object": item,
        "oldObject": old,
        "request": {
            "operation": "UPDATE" if old else "CREATE",
            "resource": {"group": group, "resource": resource},
            "subResource": "",
            "name": "x",
            "namespace": name,
            "userInfo": user,
        },
        "namespaceObject": _space(name),
    }
    judging_guards = [
        guard
        for guard in _guards(*keys, **classes)
        if rule in guard.rules
        and any(api_group == group and resource in resources for api_group, _, resources in guard.resources)
    ]
    assert judging_guards, "no guard judges this kind"
    return any(cel.refuses(guard, rule, data) for guard in judging_guards)


KINDS = kinds_of(_place())


def _template(kind: str, labels: dict[str, str], notes: dict[str, str]) -> Object:
    pod = _place().pod()
    metadata = {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), **labels}, "annotations": notes}
    return workload(kind, {**pod, "metadata": metadata})


@pytest.mark.parametrize("kind", KINDS)
def test_what_charts_and_controllers_write_is_admitted(kind: str) -> None:
    template = _template(kind, USUAL, NOTES)
    assert not refused(template)
    own_metadata = {
        **template["metadata"],
        "labels": {**template["metadata"].get("labels", {}), **USUAL},
        "annotations": NOTES,
    }
    assert not refused({**template, "metadata": own_metadata})


@pytest.mark.parametrize("key", ["sidecar.istio.io/inject", "example.com/x", "vault.hashicorp.com/agent-inject"])
@pytest.mark.parametrize("kind", ["Pod", "Deployment", "JobSet"])
def test_the_platform_adds_keys_and_domains_for_its_agents(kind: str, key: str) -> None:
    template = _template(kind, {}, {key: "x"})
    domain = key.partition("/")[0]
    assert refused(template)
    assert not refused(template, keys=(key,))
    assert not refused(template, keys=(domain,))
    assert not refused(template, keys=(domain.partition(".")[2],)), "a domain has those below it"
    assert refused(template, keys=(f"{key}s", f"not-{domain}", f"below.{domain}"))


def test_what_an_object_has_already_is_not_judged_again_and_a_changed_value_is() -> None:
    pod = _place().pod()
    old = {**pod, "metadata": {**pod["metadata"], "annotations": {"loki.grafana.com/tenant": "x"}}}
    again = {**old, "metadata": {**old["metadata"], "labels": {"app": "y"}}}
    changed_value = {**old, "metadata": {**old["metadata"], "annotations": {"loki.grafana.com/tenant": "y"}}}
    emptied = {**old, "metadata": {**old["metadata"], "annotations": {"loki.grafana.com/limit": ""}}}
    assert [refused(item, old) for item in (again, changed_value, emptied)] == [False, True, True]


def test_agents_and_the_platform_write_their_own_keys() -> None:
    agent = {"username": "system:serviceaccount:gpu-operator:gpu-operator", "groups": []}
    groups = ["system:serviceaccounts:kube-system", world_of("every-kind")[0].platform.group]
    pod = _template("Pod", {"nvidia.com/gpu-driver-upgrade-drain.skip": "true"}, {})
    assert refused(pod, user=agent), "of a namespace that is not the platform's"
    assert [refused(pod, user={**agent, "groups": [group]}) for group in groups] == [False, False]


def test_a_label_of_the_platform_is_on_no_object_of_a_tenant() -> None:
    for kind in ("ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim"):
        item = {"apiVersion": "v1", "kind": kind, "metadata": {"labels": {"app": "x"}}}
        assert not refused(item)
        assert refused({**item, "metadata": {"labels": {vocabulary.ENVIRONMENT: "local"}}})
    assert of_api("Pod") == "v1"


def claim(storage: str | None, attributes: str | None = None) -> Object:
    spec = {"storageClassName": storage, "volumeAttributesClassName": attributes}
    stated_fields = {name: value for name, value in spec.items() if value is not None}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": stated_fields}


def test_a_claim_names_the_classes_that_the_environment_lists() -> None:
    def answers(*items: Object, **classes: tuple[str, ...]) -> list[bool]:
        return [refused(item, rule="stor-12", **classes) for item in items]

    own_class, other_class, no_class = claim(vocabulary.STORAGE_CLASS), claim("fast"), claim(None)
    assert answers(own_class, other_class, no_class) == [False, True, True]
    assert answers(own_class, other_class, no_class, classes=("fast", "files")) == [True, False, True]
    dear = claim(vocabulary.STORAGE_CLASS, "io2")
    assert [*answers(dear), *answers(dear, attributes=("io2",))] == [True, False]


def test_a_claim_that_is_there_keeps_its_class_and_takes_no_other() -> None:
    old = claim("gp2")
    larger = {**old, "spec": {**old["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    assert not refused(larger, old, rule="stor-12")
    assert refused(claim("gp2", "io2"), old, rule="stor-12")
    assert refused(claim("io2"), old, rule="stor-12")


@pytest.mark.parametrize("kind", KINDS)
def test_the_claims_that_work_makes_are_judged_in_its_template(kind: str) -> None:
    def work_with_claim(storage: str) -> Object:
        volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim(storage)["spec"]}}}
        pod = _place().pod()
        return workload(kind, {**pod, "spec": {**pod["spec"], "volumes": [volume]}})

    assert [refused(work_with_claim(name), rule="stor-12") for name in (vocabulary.STORAGE_CLASS, "fast")] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (
            "metadata_keys",
            ["sidecar.istio.io", "reloader.stakater.com/auto"],
            ["app", "*.istio.io", "Istio.io", "istio.io/", "a/b"],
        ),
        ("storage_classes", ["gp3", "files"], ["GP3", ""]),
        ("volume_attributes_classes", ["io2"], ["IO2", "a b"]),
    ],
)
def test_what_the_platform_lists_has_the_form_of_its_names(field: str, good: list[str], bad: list[str]) -> None:
    assert getattr(Platform.model_validate({"group": "g", field: good}), field) == tuple(good)
    for name in bad:
        with pytest.raises(ValidationError):
            Platform.model_validate({"group": "g", field: [name]})
