"""Pods that operators make from other forms than a pod template: models, services, steps, patches written as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.kube.documents import DEEPEST as DEEPEST_DOCUMENT
from tenancy.kube.objects import UNKNOWN, name_of
from tenancy.kube.pod_shapes import MAX_DEPTH
from tenancy.kube.pod_templates import not_judged, templates_of

Object = dict[str, Any]
DEVICES = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
HARMLESS = {"name": "LOG_LEVEL", "value": "all"}
PRIVILEGED = {"privileged": True}


def manifest_of(api_version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "team-a"}, "spec": spec}


def rules(folder: Path, item: Object, *more: str) -> set[str]:
    result = check(folder, item, "--format", "json", *more)
    return {finding["rule"] for finding in json.loads(result.stdout)["findings"]}


def check(folder: Path, item: Object, *more: str) -> Result:
    (folder / "x.yaml").write_text(yaml.safe_dump(item))
    return CliRunner().invoke(main, ["check", str(folder / "x.yaml"), "--all", *more])


SERVING, NIM, ARGO = "serving.kserve.io/v1beta1", "apps.nvidia.com/v1alpha1", "argoproj.io/v1alpha1"
TEKTON, DYNAMO, RAY = "tekton.dev/v1", "nvidia.com/v1alpha1", "ray.io/v1"
NIM_IMAGE = {"repository": "nvcr.io/nim/llm", "tag": "1.3"}


def _with_variable(variable: Object) -> dict[str, tuple[Object, str]]:
    """Objects with a variable of a container in each form, and the path of the container."""
    container = {"image": "x.example/x:1", "env": [variable]}
    pod = {"metadata": {}, "spec": {"containers": [{"name": "c", **container}]}}
    group = {"headGroupSpec": {"template": pod}}
    services = {"vllm": {"componentType": "worker", "envs": [variable], "resources": {"limits": {"gpu": "1"}}}}
    main_container = {"extraPodSpec": {"mainContainer": container}}
    step = {"name": "s", "image": "x.example/x:1", "script": "true", "env": [variable]}
    return {
        "KServe model": (
            manifest_of(SERVING, "InferenceService", {"predictor": {"model": {"env": [variable]}}}),
            "spec.predictor.model",
        ),
        "KServe framework": (
            manifest_of(SERVING, "InferenceService", {"predictor": {"triton": {"env": [variable]}}}),
            "spec.predictor.triton",
        ),
        "KServe workers": (
            manifest_of(
                SERVING,
                "InferenceService",
                {"predictor": {"containers": [{"name": "k", "image": "a/b:1"}], "workerSpec": pod["spec"]}},
            ),
            "spec.predictor.workerSpec.containers[0]",
        ),
        "KServe LLM": (
            manifest_of("serving.kserve.io/v1alpha1", "LLMInferenceService", {"prefill": {"template": pod["spec"]}}),
            "spec.prefill.template.containers[0]",
        ),
        "NIMService": (manifest_of(NIM, "NIMService", {"image": NIM_IMAGE, "env": [variable]}), "spec"),
        "NIMService sidecar": (
            manifest_of(
                NIM, "NIMService", {"image": NIM_IMAGE, "sidecarContainers": [{"image": NIM_IMAGE, "env": [variable]}]}
            ),
            "spec.sidecarContainers[0]",
        ),
        "NIMPipeline": (
            manifest_of(
                NIM, "NIMPipeline", {"services": [{"name": "a", "spec": {"image": NIM_IMAGE, "env": [variable]}}]}
            ),
            "spec.services[0].spec",
        ),
        "NIMCache": (manifest_of(NIM, "NIMCache", {"env": [variable], "storage": {}}), "spec"),
        "Argo container": (
            manifest_of(ARGO, "Workflow", {"templates": [{"container": container}]}),
            "spec.templates[0].container",
        ),
        "Argo script": (
            manifest_of(ARGO, "WorkflowTemplate", {"templates": [{"script": {**container, "source": "true"}}]}),
            "spec.templates[0].script",
        ),
        "Argo container set": (
            manifest_of(ARGO, "CronWorkflow", {"workflowSpec": {"templates": [{"containerSet": pod["spec"]}]}}),
            "spec.workflowSpec.templates[0].containerSet.containers[0]",
        ),
        "Argo manifest": (
            manifest_of(
                ARGO,
                "Workflow",
                {
                    "templates": [
                        {
                            "resource": {
                                "action": "create",
                                "manifest": yaml.safe_dump(manifest_of("v1", "Pod", pod["spec"])),
                            }
                        }
                    ]
                },
            ),
            "spec.templates[0].resource.manifest.spec.containers[0]",
        ),
        "Dynamo graph": (manifest_of(DYNAMO, "DynamoGraphDeployment", {"services": services}), "spec.services.vllm"),
        "Dynamo main container": (
            manifest_of(DYNAMO, "DynamoComponentDeployment", main_container),
            "spec.extraPodSpec.mainContainer",
        ),
        "Dynamo v1beta1": (
            manifest_of(
                "nvidia.com/v1beta1", "DynamoGraphDeployment", {"components": [{"name": "a", "podTemplate": pod}]}
            ),
            "spec.components[0].podTemplate.spec.containers[0]",
        ),
        "RayService": (
            manifest_of(RAY, "RayService", {"rayClusterConfig": group}),
            "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0]",
        ),
        "Volcano": (
            manifest_of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": 1, "template": pod}]}),
            "spec.tasks[0].template.spec.containers[0]",
        ),
        "Tekton Task": (manifest_of(TEKTON, "Task", {"steps": [step]}), "spec.steps[0]"),
        "Tekton TaskRun": (manifest_of(TEKTON, "TaskRun", {"taskSpec": {"steps": [step]}}), "spec.taskSpec.steps[0]"),
        "Tekton PipelineRun": (
            manifest_of(
                TEKTON, "PipelineRun", {"pipelineSpec": {"tasks": [{"name": "a", "taskSpec": {"steps": [step]}}]}}
            ),
            "spec.pipelineSpec.tasks[0].taskSpec.steps[0]",
        ),
        "an object inside of another": (
            manifest_of(
                "work.open-cluster-management.io/v1",
                "ManifestWork",
                {"workload": {"manifests": [manifest_of("v1", "Pod", pod["spec"])]}},
            ),
            "spec.workload.manifests[0].spec.containers[0]",
        ),
    }


VARIABLES, TWINS = _with_variable(DEVICES), _with_variable(HARMLESS)


@pytest.mark.parametrize("form", VARIABLES)
def test_a_variable_of_devices_is_found_in_every_form_and_its_twin_is_not(form: str, tmp_path: Path) -> None:
    item, path = VARIABLES[form]
    (given_text,) = [
        finding["given"]
        for finding in json.loads(check(tmp_path, item, "--format", "json").stdout)["findings"]
        if finding["rule"] == "gpu-02"
    ]
    assert given_text == f"{path}.env[0].name: NVIDIA_VISIBLE_DEVICES"
    assert "gpu-02" not in rules(tmp_path, TWINS[form][0])


TAINT = {"tolerations": [{"operator": "Exists"}]}
PODS = {
    "Tekton's pod template": manifest_of(
        TEKTON, "TaskRun", {"taskRef": {"name": "a"}, "podTemplate": {"hostNetwork": True}}
    ),
    "Tekton's of a pipeline": manifest_of(
        TEKTON, "PipelineRun", {"taskRunSpecs": [{"pipelineTaskName": "a", "podTemplate": {"hostNetwork": True}}]}
    ),
    "Argo's workflow": manifest_of(ARGO, "Workflow", {"hostNetwork": True, "templates": []}),
    "Argo's pod of garbage": manifest_of(ARGO, "Workflow", {"artifactGC": {"podSpecPatch": "hostNetwork: true"}}),
    "NIM's folder": manifest_of(NIM, "NIMService", {"image": NIM_IMAGE, "storage": {"hostPath": "/var/lib/nim"}}),
    "Dynamo's": manifest_of(
        DYNAMO, "DynamoGraphDeployment", {"services": {"a": {"extraPodSpec": {"hostNetwork": True}}}}
    ),
    "KServe's": manifest_of(
        SERVING, "InferenceService", {"predictor": {"hostNetwork": True, "model": {"storageUri": "s3://x"}}}
    ),
}


@pytest.mark.parametrize("form", PODS)
def test_a_way_to_the_node_is_found_in_fields_of_the_pod(form: str, tmp_path: Path) -> None:
    assert "pod-02" in rules(tmp_path, PODS[form])


# Patches as text


def workflow(patch: str, **template: Any) -> Object:
    container = {"image": "x.example/x:1", "command": ["fit"], **template}
    return manifest_of(
        ARGO, "Workflow", {"podSpecPatch": patch, "templates": [{"name": "fit", "container": container}]}
    )


PATCH = {"containers": [{"name": "main", "securityContext": PRIVILEGED}]}


@pytest.mark.parametrize("patch", [json.dumps(PATCH), yaml.safe_dump(PATCH)], ids=["JSON", "YAML"])
def test_a_patch_as_text_is_judged_with_its_line(patch: str, tmp_path: Path) -> None:
    result = check(tmp_path, workflow(patch), "--format", "json")
    (pod_finding,) = [finding for finding in json.loads(result.stdout)["findings"] if finding["rule"] == "pod-02"]
    assert pod_finding["given"] == "spec.podSpecPatch.containers[0].securityContext.privileged: true"
    lines = (tmp_path / "x.yaml").read_text().splitlines()
    assert "podSpecPatch" in lines[pod_finding["line"] - 1]
    assert rules(tmp_path, workflow(patch.replace("true", "false"))) == set()


def test_what_a_patch_overwrites_is_not_judged(tmp_path: Path) -> None:
    mended = json.dumps({"containers": [{"name": "main", "securityContext": {"privileged": False}}]})
    assert rules(tmp_path, workflow(mended, securityContext=PRIVILEGED)) == set()
    of_another = mended.replace("main", "wait")
    assert rules(tmp_path, workflow(of_another, securityContext=PRIVILEGED)) == {"pod-02"}


def test_a_patch_with_parameters_is_read_and_what_they_give_is_not_judged(tmp_path: Path) -> None:
    patch = "hostNetwork: true\ncontainers: [{name: main, securityContext: {privileged: {{inputs.parameters.p}} }}]"
    (template,) = [candidate for candidate in templates_of(workflow(patch)) if candidate.path == "spec.podSpecPatch"]
    assert template.containers[0][1]["securityContext"] == {"privileged": UNKNOWN}
    findings = json.loads(check(tmp_path, workflow(patch), "--format", "json").stdout)["findings"]
    assert [finding["given"] for finding in findings] == ["spec.podSpecPatch.hostNetwork: true"]


def test_a_patch_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    result = check(tmp_path, workflow("containers: ["))
    assert "spec.podSpecPatch is neither YAML nor JSON" in result.stdout
    assert check(tmp_path, workflow("containers: ["), "--strict").exit_code == 1


def test_a_patch_that_an_expression_writes_is_named(tmp_path: Path) -> None:
    result = check(tmp_path, workflow("{{=toJson(patch)}}"))
    assert "spec.podSpecPatch is written when it runs" in result.stdout
    assert check(tmp_path, workflow("{{=toJson(patch)}}"), "--strict").exit_code == 1
    assert "is written" not in check(tmp_path, workflow("hostNetwork: {{=patch}}")).stdout


# What is not judged


def test_an_object_whose_name_the_api_server_makes_is_shown_by_its_start(tmp_path: Path) -> None:
    item = {**workflow("hostNetwork: true"), "metadata": {"generateName": "train-", "namespace": "team-a"}}
    assert name_of(item) == "Workflow team-a/(generateName train-)"
    assert name_of({"kind": "Workflow", "metadata": {"generateName": "train-"}}) == "Workflow (generateName train-)"
    result = check(tmp_path, item)
    assert "Workflow team-a/(generateName train-) (" in result.stdout
    assert "None" not in result.stdout


def _widget(name: str) -> Object:
    return {"apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "a"}, "spec": {}}


def test_strictly_what_is_not_judged_fails_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump_all([_widget(f"w{number}") for number in range(6)]))
    runs = {more: CliRunner().invoke(main, ["check", str(tmp_path), *more]) for more in ((), ("--strict",))}
    assert [run.exit_code for run in runs.values()] == [0, 1]
    for run in runs.values():
        assert run.stdout.endswith("6 objects: no broken rule, 6 not judged\n")
        assert {f"w{number}" for number in range(6) if f"Widget a/w{number}" in run.stdout} == {
            f"w{number}" for number in range(6)
        }
    junit = CliRunner().invoke(main, ["check", str(tmp_path), "--strict", "--format", "junit"])
    assert (junit.exit_code, junit.stdout.count("<failure")) == (1, 6)


def test_an_object_that_is_too_deep_to_search_ends_with_its_name_and_is_not_passed(tmp_path: Path) -> None:
    spec: Any = {"containers": [{"name": "c", "image": "a/b:1", "securityContext": PRIVILEGED}]}
    for _ in range(MAX_DEPTH):
        spec = {"a": spec}
    item = manifest_of("x.example/v1", "Widget", spec)
    assert f"more than {MAX_DEPTH} levels" in str(not_judged(item))
    run = check(tmp_path, item)
    assert (run.exit_code, run.stdout) == (2, "")
    assert "Widget team-a/x, which cannot be judged (given an object of more than 100 levels)" in run.stderr
    for _ in range(9):
        item["spec"] = item["spec"]["a"]
    assert rules(tmp_path, item) >= {"pod-02"}


def test_a_document_that_is_deeper_than_any_object_ends_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: " + "{a: " * DEEPEST_DOCUMENT + "1" + "}" * DEEPEST_DOCUMENT)
    result = CliRunner().invoke(main, ["check", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "x.yaml:1: given a document that is too deep" in result.stderr


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_a_model_server_is_told_by_the_devices_that_it_asks_for(part: str) -> None:
    def containers(resources: Any) -> list[str]:
        model = {"modelFormat": {"name": "huggingface"}, "storageUri": "pvc://models/x", "resources": resources}
        item = manifest_of(SERVING, "InferenceService", {"predictor": {"model": model}})
        return [path for template in templates_of(item) for path, _ in template.containers]

    assert containers({part: {"nvidia.com/gpu": 1, "cpu": 4}}) == ["spec.predictor.model"]
    assert containers({part: {"storage": "1Gi"}}) == []
