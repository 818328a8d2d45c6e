"""`tenancy check --env`: the API server's answer to manifests, from the files of the environment alone."""

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
from tests.demo import demo

Object = dict[str, Any]
SPACE = "fraud--train"
IMAGE = "registry.bank.example/teams/fraud/fit@sha256:" + "0" * 64
CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
REQUESTS = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
POD: Object = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": IMAGE,
            "securityContext": CLOSED,
            "resources": {"requests": REQUESTS, "limits": REQUESTS},
        }
    ],
}


def manifest(kind: str, name: str = "x", api_version: str = "v1", space: str | None = SPACE, **body: Any) -> Object:
    metadata = {"name": name, **({"namespace": space} if space else {})}
    return copy.deepcopy({"apiVersion": api_version, "kind": kind, "metadata": metadata, **body})


def job(**pod: Any) -> Object:
    return manifest("Job", "fit", "batch/v1", spec={"template": {"spec": {**POD, **pod}}})


def check(folder: Path, *items: Object, more: tuple[str, ...] = ()) -> Result:
    (folder / "x.yaml").write_text(yaml.safe_dump_all(items))
    return CliRunner().invoke(main, ["check", str(folder / "x.yaml"), "--env", "local", *more])


def answer(folder: Path, *items: Object, more: tuple[str, ...] = ()) -> list[Object]:
    return json.loads(check(folder, *items, more=(*more, "--format", "json")).stdout)["answers"]["objects"]


def denials(verdict: Object) -> set[str]:
    return {denial["rule"] or denial["component"] for denial in verdict["denials"]}


TOLERATION = {"tolerations": [{"operator": "Exists"}]}
OF_DOCKER = {"containers": [{**POD["containers"][0], "image": "docker.io/someone/fit:latest"}]}
REFUSED = {
    "toleration": (job(**TOLERATION), {"sched-01"}),
    "image": (job(**OF_DOCKER), {"img-01", "img-02"}),
    "service": (manifest("Service", spec={"type": "LoadBalancer", "ports": [{"port": 80}]}), {"net-01"}),
}


def test_work_that_keeps_to_every_rule_is_admitted(tmp_path: Path) -> None:
    result = check(tmp_path, job())
    assert result.stdout.endswith("1 object: 0 refused by local, no broken rule\n"), result.output
    assert result.exit_code == 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_in_the_words_of_the_guard_with_its_place(name: str, tmp_path: Path) -> None:
    item, rules = REFUSED[name]
    (verdict,) = answer(tmp_path, item)
    assert (verdict["answer"], denials(verdict)) == ("refused", rules)
    result = check(tmp_path, item)
    assert result.exit_code == 1
    output = " ".join(result.stdout.split())
    assert "asked of local as developer (fraud-engineers), for fraud" in output
    assert f"{item['kind']} {SPACE}/{item['metadata']['name']} (" in output
    for rule in rules:
        assert f"{rule}: " in output
        assert f"Read docs/rules.md#{rule}" in output


def test_what_is_refused_is_not_told_a_second_time_as_a_finding(tmp_path: Path) -> None:
    output = json.loads(check(tmp_path, job(nodeName="n"), more=("--format", "json")).stdout)
    assert "sched-02" not in {finding["rule"] for finding in output["findings"]}


def test_the_same_holds_of_a_kind_that_an_operator_serves(tmp_path: Path) -> None:
    files = demo()
    files["environment"]["queues"] = {"kinds": ["jobset"]}
    folder = files.write(tmp_path)
    replicated = {"name": "w", "template": {"spec": {"template": {"spec": {**POD, **OF_DOCKER}}}}}
    item = manifest("JobSet", "fit", "jobset.x-k8s.io/v1alpha2", "vision--main", spec={"replicatedJobs": [replicated]})
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(item))
    command = ["check", str(tmp_path / "x.yaml"), "--env", str(folder), "--format", "json"]
    output = json.loads(CliRunner().invoke(main, command).stdout)
    (verdict,) = output["answers"]["objects"]
    assert denials(verdict) == {"img-01", "img-02"}
    assert "img-02" not in {finding["rule"] for finding in output["findings"]}


def test_a_deployment_that_names_no_queue_waits_in_the_tenants_and_is_advised(tmp_path: Path) -> None:
    pod = {field: value for field, value in POD.items() if field != "restartPolicy"}

    def advice(**spec: Any) -> set[str]:
        template = {"metadata": {"labels": {"app": "x"}}, "spec": pod}
        item = manifest(
            "Deployment",
            "chat",
            "apps/v1",
            spec={"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec},
        )
        output = json.loads(check(tmp_path, item, more=("--format", "json")).stdout)
        assert [entry["answer"] for entry in output["answers"]["objects"]] == ["admitted"]
        return {finding["rule"] for finding in output["findings"]}

    assert advice() == {"kueue-33"}
    assert advice(progressDeadlineSeconds=86400) == set()


def test_a_role_decides_who_may(tmp_path: Path) -> None:
    (verdict,) = answer(tmp_path, job(), more=("--as", "viewer"))
    assert (verdict["answer"], denials(verdict)) == ("refused", {"RBAC"})
    role = manifest("ClusterRole", "reader", "rbac.authorization.k8s.io/v1", None, rules=[])
    rules_by_options = {whose: denials(answer(tmp_path, role, more=whose)[0]) for whose in ((), ("--namespace", SPACE))}
    assert list(rules_by_options.values()) == [set(), {"RBAC"}]


def test_an_object_without_a_namespace_is_asked_about_in_the_one_that_is_named(tmp_path: Path) -> None:
    item = manifest("ConfigMap", space=None, data={"a": "b"})
    assert denials(answer(tmp_path, item)[0]) == set() or answer(tmp_path, item)[0]["tenant"] == "platform"
    (verdict,) = answer(tmp_path, item, more=("--namespace", SPACE))
    assert (verdict["answer"], verdict["object"], verdict["as"]) == (
        "admitted",
        f"ConfigMap {SPACE}/x",
        "developer (fraud-engineers)",
    )


def test_a_namespace_that_the_same_files_make_counts_as_present(tmp_path: Path) -> None:
    space, item = manifest("Namespace", "new", space=None), manifest("ConfigMap", space="new", data={})
    options = {"more": ("--as", "platform")}
    assert [denials(verdict) for verdict in answer(tmp_path, item, space, **options)] == [{"NamespaceLifecycle"}, set()]
    assert [denials(verdict) for verdict in answer(tmp_path, space, item, **options)] == [set(), set()]


@pytest.mark.parametrize(
    ("more", "message_part"),
    [
        (("--env", "nope"), "given 'nope'"),
        (("--namespace", "fraud--trian"), "did you mean 'fraud--train'?"),
        (("--as", "develper"), "did you mean 'developer'?"),
    ],
)
def test_an_unknown_name_ends_with_one_sentence(more: tuple[str, ...], message_part: str, tmp_path: Path) -> None:
    result = check(tmp_path, job(), more=more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message_part in result.stderr


def test_a_person_without_an_environment_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--as", "viewer"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "given --as without --env" in result.stderr


def test_every_form_has_the_refusals(tmp_path: Path) -> None:
    item, rules = REFUSED["image"]
    (run,) = json.loads(check(tmp_path, item, more=("--format", "sarif")).stdout)["runs"]
    described = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert {result["ruleId"] for result in run["results"]} == rules
    assert [described[result["ruleIndex"]] for result in run["results"]] == [
        result["ruleId"] for result in run["results"]
    ]
    root = ElementTree.fromstring(check(tmp_path, item, more=("--format", "junit")).stdout)
    assert root.get("failures") == "1"
    assert {failure.get("message") for failure in root.iter("failure")} == {"img-01, img-02"}
    (run,) = json.loads(check(tmp_path, item, more=("--as", "viewer", "--format", "sarif")).stdout)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["RBAC"]


# What is admitted and never starts


def training(gpus: int, pods: int = 1, notes: Object | None = None, space: str = SPACE) -> Object:
    amounts = {**REQUESTS, "nvidia.com/gpu": str(gpus)}
    container = {**POD["containers"][0], "resources": {"requests": amounts, "limits": amounts}}
    template = {"metadata": {"annotations": notes or {}}, "spec": {**POD, "containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return manifest("Job", "fit", "batch/v1", space, spec=spec)


RACK = {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}
NEVER_STARTS = {
    "ceiling": (
        training(8, 9),
        training(8, 8),
        "it asks for 72 nvidia.com/gpu at once, and the maximum of its queue is",
    ),
    "node": (training(16), training(8), "one pod asks for 16 nvidia.com/gpu, and a node has 8"),
    "topology": (training(8, notes=RACK), training(8), "the nodes there have no known topology"),
    "flavor": (training(1, space="fraud--serve"), training(1), "the maximum of its queue is 0"),
}


@pytest.mark.parametrize("name", NEVER_STARTS)
def test_work_that_is_admitted_and_never_starts_fails_with_its_cause(name: str, tmp_path: Path) -> None:
    item, twin, cause = NEVER_STARTS[name]
    (verdict,) = answer(tmp_path, item)
    assert (verdict["answer"], verdict["denials"]) == ("admitted", [])
    assert cause in verdict["obstacles"][0]["sentence"]
    result = check(tmp_path, item)
    assert result.exit_code == 1
    output = " ".join(result.stdout.split())
    assert f"never starts Job {item['metadata']['namespace']}/fit (" in output
    assert f"{cause}" in output
    assert "0 refused by local, 1 can never start" in output
    (twin_verdict,) = answer(tmp_path, twin)
    assert (twin_verdict["answer"], twin_verdict["obstacles"], check(tmp_path, twin).exit_code) == ("admitted", [], 0)


def test_of_a_deployment_each_replica_starts_by_itself(tmp_path: Path) -> None:
    template = training(8)["spec"]["template"]
    template["metadata"]["labels"] = {"app": "x"}
    template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 9, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    (verdict,) = answer(tmp_path, manifest("Deployment", "x", "apps/v1", spec=spec))
    assert verdict["obstacles"] == []


def test_every_form_has_what_never_starts(tmp_path: Path) -> None:
    item = training(16)
    (run,) = json.loads(check(tmp_path, item, more=("--format", "sarif")).stdout)["runs"]
    (sarif_result,) = run["results"]
    assert sarif_result["ruleId"] == run["tool"]["driver"]["rules"][sarif_result["ruleIndex"]]["id"] == "never-starts"
    assert sarif_result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    root = ElementTree.fromstring(check(tmp_path, item, more=("--format", "junit")).stdout)
    assert root.get("failures") == "1"
    (failure,) = root.iter("failure")
    assert (failure.get("message"), "a node has 8" in (failure.text or "")) == ("never-starts", True)
