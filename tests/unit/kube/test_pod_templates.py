"""Pods inside objects are found by their shape; kinds that cannot be judged are named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.kube.pod_templates import not_judged, templates_of
from tests.conftest import every

Object = dict[str, Any]
CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "main", "image": "x.example/x:1", "securityContext": CLOSED}],
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
JOB = {"spec": {"template": TEMPLATE}}


def manifest_of(api_version: str, kind: str, spec: Any) -> Object:
    return copy.deepcopy({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})


KINDS: dict[str, tuple[Object, list[str]]] = {
    "Pod": (manifest_of("v1", "Pod", POD), ["spec"]),
    "Job": (manifest_of("batch/v1", "Job", {"template": TEMPLATE}), ["spec.template.spec"]),
    "CronJob": (manifest_of("batch/v1", "CronJob", {"jobTemplate": JOB}), ["spec.jobTemplate.spec.template.spec"]),
    "JobSet": (
        manifest_of("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"template": JOB}, {"template": JOB}]}),
        [f"spec.replicatedJobs[{number}].template.spec.template.spec" for number in (0, 1)],
    ),
    "PyTorchJob": (
        manifest_of("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}}),
        ["spec.pytorchReplicaSpecs.Worker.template.spec"],
    ),
    "RayCluster": (
        manifest_of(
            "ray.io/v1",
            "RayCluster",
            {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"template": TEMPLATE}]},
        ),
        ["spec.headGroupSpec.template.spec", "spec.workerGroupSpecs[0].template.spec"],
    ),
    "LeaderWorkerSet": (
        manifest_of(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}}
        ),
        ["spec.leaderWorkerTemplate.workerTemplate.spec"],
    ),
    "InferenceService": (
        manifest_of("serving.kserve.io/v1beta1", "InferenceService", {"predictor": POD}),
        ["spec.predictor"],
    ),
    "Volcano's Job": (
        manifest_of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": TEMPLATE}]}),
        ["spec.tasks[0].template.spec"],
    ),
    "of no known operator": (
        manifest_of("x.example/v1", "Trainer", {"a": {"podTemplate": TEMPLATE}}),
        ["spec.a.podTemplate.spec"],
    ),
}
WITHOUT: dict[str, Object] = {
    "ConfigMap": manifest_of("v1", "ConfigMap", {"containers": POD["containers"]}),
    "NodePool": manifest_of("karpenter.sh/v1", "NodePool", {"template": {"spec": {"requirements": []}}}),
    "ClusterQueue": manifest_of("kueue.x-k8s.io/v1beta2", "ClusterQueue", {}),
    "Topology": manifest_of("kueue.x-k8s.io/v1beta2", "Topology", {}),
    "PrometheusRule": manifest_of("monitoring.coreos.com/v1", "PrometheusRule", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_of_a_kind_is_found_where_it_stands(kind: str) -> None:
    item, paths = KINDS[kind]
    templates = templates_of(item)
    assert [template.path for template in templates] == paths
    assert [path for template in templates for path, _ in template.containers] == [
        f"{at}.containers[0]" for at in paths
    ]
    assert every(template.whole for template in templates)
    assert not_judged(item) is None


def test_a_template_has_its_own_metadata() -> None:
    (template,) = templates_of(KINDS["PyTorchJob"][0])
    assert template.metadata == {"labels": {"a": "b"}}


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_known_kind_without_pods_is_judged_and_has_none(kind: str) -> None:
    assert (templates_of(WITHOUT[kind]), not_judged(WITHOUT[kind])) == ((), None)


def test_what_a_controller_completes_is_judged_by_what_is_written_alone(tmp_path: Path) -> None:
    model = {"modelFormat": {"name": "x"}, "securityContext": {"runAsUser": 10001}}
    item = manifest_of("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"model": model}})
    assert "in part" in str(not_judged(item))
    assert check(tmp_path, item).exit_code == 0, "absent fields may be the runtime's"
    item["spec"]["predictor"]["model"]["securityContext"]["privileged"] = True
    result = check(tmp_path, item)
    assert result.exit_code == 1
    assert "spec.predictor.model.securityContext.privileged: true" in result.stdout


def check(folder: Path, item: Object, *more: str) -> Result:
    item = {**item, "metadata": {"name": "x", "namespace": "acme"}}
    (folder / "x.yaml").write_text(yaml.safe_dump(item))
    return CliRunner().invoke(main, ["check", str(folder / "x.yaml"), "--all", *more])


@pytest.mark.parametrize("kind", KINDS)
def test_a_privileged_container_of_any_kind_is_found_and_its_twin_is_not(tmp_path: Path, kind: str) -> None:
    item = copy.deepcopy(KINDS[kind][0])
    clean = check(tmp_path, item)
    assert (clean.exit_code, "not judged" in clean.stdout) == (0, False), clean.output
    _, context = templates_of(item)[-1].containers[-1][0], templates_of(item)[-1].containers[-1][1]["securityContext"]
    context["privileged"] = True
    result = check(tmp_path, item)
    assert result.exit_code == 1
    assert "pod-02" in result.stdout
    assert f"{KINDS[kind][1][-1]}.containers[0]" in "".join(result.stdout.split())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_held_to_the_restricted_level(tmp_path: Path, kind: str) -> None:
    item = copy.deepcopy(KINDS[kind][0])
    templates_of(item)[-1].spec["securityContext"].pop("runAsNonRoot")
    result = check(tmp_path, item, "--format", "json")
    assert {finding["rule"] for finding in json.loads(result.stdout)["findings"]} == {"pod-04"}
    assert result.exit_code == 1


RAY_CLUSTER = {"headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE}}


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, False),
        ({"submissionMode": "K8sJobMode"}, False),
        ({"submissionMode": "SidecarMode", "submitterPodTemplate": TEMPLATE}, False),
        ({"submissionMode": "HTTPMode"}, True),
        ({"submitterPodTemplate": TEMPLATE}, True),
    ],
)
def test_a_ray_job_is_judged_with_the_pod_that_its_operator_makes_to_submit_it(
    tmp_path: Path, fields: Object, holds: bool
) -> None:
    item = manifest_of("ray.io/v1", "RayJob", {"entrypoint": "true", "rayClusterSpec": RAY_CLUSTER, **fields})
    findings = json.loads(check(tmp_path, item, "--format", "json").stdout)["findings"]
    assert ("pod-04" in {finding["rule"] for finding in findings}) is not holds
    assert holds or "spec.submitterPodTemplate.spec" in str(findings)


def test_the_level_is_the_one_that_the_namespace_enforces(tmp_path: Path) -> None:
    item = copy.deepcopy(KINDS["JobSet"][0])
    templates_of(item)[-1].spec["securityContext"].pop("runAsNonRoot")
    label = {"pod-security.kubernetes.io/enforce": "baseline", "tenancy.gpu/tenant": "acme"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme", "labels": label}}
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    item["metadata"]["namespace"] = "acme"
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(item))
    check_result = CliRunner().invoke(main, ["check", str(tmp_path), "--format", "json"])
    assert "pod-04" not in {finding["rule"] for finding in json.loads(check_result.stdout)["findings"]}


UNKNOWN_KIND = manifest_of("x.example/v1", "Widget", {"size": 3})


def test_an_unknown_kind_is_named_with_its_file_in_every_form(tmp_path: Path) -> None:
    text = check(tmp_path, UNKNOWN_KIND)
    assert (text.exit_code, "not judged: Widget acme/x in " in text.stdout) == (0, True)
    assert text.stdout.endswith("1 object: no broken rule, 1 not judged\n")
    (entry,) = json.loads(check(tmp_path, UNKNOWN_KIND, "--format", "json").stdout)["not_judged"]
    assert (entry["object"], Path(entry["file"]).name, entry["line"]) == ("Widget acme/x", "x.yaml", 1)
    (run,) = json.loads(check(tmp_path, UNKNOWN_KIND, "--format", "sarif").stdout)["runs"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("not judged: Widget acme/x")
    (skipped,) = ElementTree.fromstring(check(tmp_path, UNKNOWN_KIND, "--format", "junit").stdout).iter("skipped")
    assert skipped.get("message", "").startswith("not judged: ")


def test_a_known_kind_is_not_named(tmp_path: Path) -> None:
    assert "not judged" not in check(tmp_path, WITHOUT["Topology"]).output
