"""Refusals that guards of every environment share, found without an environment, and rules that wait for one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenancy.check.blame import fields_at_fault
from tenancy.check.guard_rules import judgement
from tenancy.cli import main

Object = dict[str, Any]
DIGEST = "@sha256:" + "0" * 64
POD: Object = {"containers": [{"name": "main", "image": f"x.example/x{DIGEST}"}]}
DNS = {"dnsPolicy": "Default"}
GRACE = {"terminationGracePeriodSeconds": 100_000}


def work(kind: str = "Deployment", **pod: Any) -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**copy.deepcopy(POD), **pod}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x", "namespace": "team-a"}, "spec": spec}


AT = "spec.template.spec"
IMAGES = {
    "containers": [{"name": "main", "image": "a.example/x:latest"}, {"name": "b", "image": f"a.example/x{DIGEST}"}],
}
BROKEN = {
    "dns-01": (work(**DNS), f"{AT}.dnsPolicy: Default"),
    "avail-01": (work(**GRACE), f"{AT}.terminationGracePeriodSeconds: 100000"),
    "img-02": (work(**IMAGES), f"{AT}.containers[0].image: a.example/x:latest"),
    "sched-05": (work(schedulerName="mine"), f"{AT}.schedulerName: mine"),
    "sched-01": (work(tolerations=[{"operator": "Exists"}]), f"{AT}.tolerations[0].operator: Exists"),
    "gpu-01": (work(runtimeClassName="nvidia"), f"{AT}.runtimeClassName: nvidia"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_what_every_environment_refuses_is_told_with_its_field(rule: str) -> None:
    item, reason = BROKEN[rule]
    assert (rule, reason) in {(issue.rule, issue.given) for issue in judgement(item, "a").broken}
    twin = judgement(work(), "a")
    assert rule not in {issue.rule for issue in twin.broken}


def test_what_a_list_of_the_namespace_may_permit_waits_for_an_environment() -> None:
    outcome = judgement(work(priorityClassName="urgent", tolerations=[{"key": "tenancy.gpu/pool", "value": "a"}]), "a")
    assert {"sched-04", "img-01", "id-07"} <= outcome.waits
    assert outcome.broken == ()


def test_what_the_platform_alone_may_do_waits_for_who_asks() -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "x", "namespace": "a", "annotations": {"eks.amazonaws.com/role-arn": "arn"}},
    }
    outcome = judgement(account, "a")
    assert (outcome.broken, outcome.waits) == ((), {"id-01"})


def test_each_of_two_fields_at_fault_is_named() -> None:
    volume = {"name": "w", "image": {"reference": "a.example/w:latest"}}
    item = work(**{**IMAGES, "volumes": [volume]})
    reason = {issue.rule: issue.given for issue in judgement(item, "a").broken}["img-02"]
    assert (
        reason == f"{AT}.containers[0].image: a.example/x:latest; {AT}.volumes[0].image.reference: a.example/w:latest"
    )


LATEST = {"spec": {"containers": [{"name": "c", "image": "a.example/x:latest"}]}}
TOLERANT = {"spec": {**POD, "tolerations": [{"key": "ray.io/node-type", "value": "worker"}]}}
IN_PARTS = {
    "a field and an annotation": (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "x", "namespace": "team-a", "annotations": {"lb.amazonaws.com/scheme": "internal"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        },
        "net-01",
        ["spec.type", "metadata.annotations.lb.amazonaws.com/scheme"],
    ),
    "groups that the author names": (
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "x", "namespace": "team-a"},
            "spec": {"mpiReplicaSpecs": {"Launcher": {"template": LATEST}, "Worker": {"template": LATEST}}},
        },
        "img-02",
        [f"spec.mpiReplicaSpecs.{group}.template.spec.containers[0].image" for group in ("Launcher", "Worker")],
    ),
    "a pod beside one without a fault": (
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "x", "namespace": "team-a"},
            "spec": {"headGroupSpec": {"template": {"spec": POD}}, "workerGroupSpecs": [{"template": TOLERANT}]},
        },
        "sched-01",
        [f"spec.workerGroupSpecs[0].template.spec.tolerations[0].{field}" for field in ("key", "value")],
    ),
}


@pytest.mark.parametrize("form", IN_PARTS)
def test_the_fields_at_fault_are_named_in_each_part_of_an_object_and_in_no_other(form: str) -> None:
    item, rule, fields = IN_PARTS[form]
    given = {issue.rule: issue.given for issue in judgement(item, "a").broken}[rule]
    assert [part.partition(": ")[0] for part in given.split("; ")] == fields


def test_an_object_of_which_no_field_is_at_fault_is_named_by_its_kind() -> None:
    assert fields_at_fault(work(), lambda _: True, "object.spec") == "Deployment"


def test_of_a_list_of_more_entries_than_questions_the_list_is_named() -> None:
    text = "object.data.list"
    item = {"kind": "ConfigMap", "data": {"list": [{"name": f"entry-{number}"} for number in range(1000)]}}
    assert fields_at_fault(item, lambda changed: bool(changed.get("data", {}).get("list")), text).startswith(
        'data.list: [{"name": "entry-0"}'
    )


def check(folder: Path, item: Object, *more: str) -> Any:
    (folder / "x.yaml").write_text(yaml.safe_dump(item))
    return CliRunner().invoke(main, ["check", str(folder / "x.yaml"), "--all", *more])


def test_the_check_tells_it_with_the_line_and_names_the_rules_that_wait(tmp_path: Path) -> None:
    item, reason = BROKEN["dns-01"]
    result = check(tmp_path, item)
    assert result.exit_code == 1
    assert reason in result.stdout
    assert "rules of the API server wait for an environment (--env ENV): " in " ".join(result.stdout.split())
    output = json.loads(check(tmp_path, item, "--format", "json").stdout)
    (finding,) = [entry for entry in output["findings"] if entry["rule"] == "dns-01"]
    assert "dnsPolicy" in (tmp_path / "x.yaml").read_text().splitlines()[finding["line"] - 1]
    assert "img-01" in output["waits"]
