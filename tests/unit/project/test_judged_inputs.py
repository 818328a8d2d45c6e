"""Inputs of the judges of the AWS half, of schemas and of a running cluster; the bill of materials of the image."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from judged import faults, image, inputs, live, mtb, nvidia, parse, schemas, terraform
from judged.checklists import FOLDER
from judged.homes import ROOT
from judged.model import SkippedJudge
from judged.program import Resource
from judged.terraform import UnknownBlocks
from tenancy.catalog.days import today
from tenancy.rules.objects import object_findings
from tenancy.spec.loader import Loaded, load
from tests.conftest import every, nonempty


@pytest.fixture(scope="module")
def resources() -> Sequence[Resource]:
    return inputs.aws_resources()


@pytest.fixture(scope="module")
def bank(resources: Sequence[Resource]) -> dict[str, Any]:
    return terraform.plan(resources)


# The AWS half as a Terraform plan


@pytest.mark.parametrize(
    ("kind", "terraforms"),
    [
        ("aws:s3/bucketPolicy:BucketPolicy", "aws_s3_bucket_policy"),
        ("aws:ec2/launchTemplate:LaunchTemplate", "aws_launch_template"),
        ("aws:eks/nodeGroup:NodeGroup", "aws_eks_node_group"),
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "aws_vpc_security_group_ingress_rule"),
        ("aws:costexplorer/costAllocationTag:CostAllocationTag", "aws_ce_cost_allocation_tag"),
        ("aws:iam/openIdConnectProvider:OpenIdConnectProvider", "aws_iam_openid_connect_provider"),
    ],
)
def test_a_type_has_terraforms_name(kind: str, terraforms: str) -> None:
    assert terraform.type_of(kind) == terraforms


def test_a_block_is_a_list_with_a_singular_name_and_tags_stay_a_map() -> None:
    inputs = {"vpcConfig": {"subnetIds": ["a"]}, "rules": [{"bucketKeyEnabled": True}], "tags": {"costCenter": "1"}}
    assert terraform.fields(inputs) == {
        "vpc_config": [{"subnet_ids": ["a"]}],
        "rule": [{"bucket_key_enabled": True}],
        "tags": {"costCenter": "1"},
    }


def test_a_list_of_blocks_without_a_known_name_is_refused_by_name() -> None:
    with pytest.raises(UnknownBlocks, match="somethings"):
        terraform.fields({"somethings": [{"a": 1}]})


def test_an_input_that_is_another_resource_is_a_reference() -> None:
    bucket = Resource("aws:s3/bucket:Bucket", "data", {"bucket": "data"})
    twin = Resource("aws:s3/bucketVersioning:BucketVersioning", "data", {"bucket": bucket.id})
    resources = terraform.plan([bucket, twin])["configuration"]["root_module"]["resources"]
    assert [resource["expressions"] for resource in resources] == [
        {},
        {"bucket": {"references": ["aws_s3_bucket.data.id", "aws_s3_bucket.data"]}},
    ]


def test_every_resource_of_the_bank_has_an_address_of_its_own(bank: dict[str, Any]) -> None:
    addresses = [resource["address"] for resource in bank["planned_values"]["root_module"]["resources"]]
    assert len(addresses) == len(set(addresses)) > 200
    assert {"aws_eks_cluster.bank-cluster", "aws_vpc.bank-network-vpc"} <= set(addresses)


def test_the_plan_of_the_bank_is_json_and_has_no_pulumi_values(bank: dict[str, Any]) -> None:
    text = json.dumps(bank)
    assert "4dabf18193072939515e22adb298388d" not in text, "the mark of a secret or of an unknown value"


def test_a_fault_on_aws_that_other_tools_know_is_found_by_a_rule_of_the_pack_and_its_twin_is_not(
    resources: Sequence[Resource],
) -> None:
    def rules(resource: Resource) -> set[str]:
        item = {"kind": resource.kind, "metadata": {"name": resource.name}, **resource.inputs}
        return {finding.rule for finding in object_findings(item)}

    for fault in nonempty(faults.aws_faults(resources)):
        assert rules(fault.broken) - rules(fault.twin) == set(fault.rules), fault.name


# Schemas


CRD = {
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "x.example",
        "names": {"kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "schema": {
                    "openAPIV3Schema": {
                        "properties": {
                            "spec": {
                                "properties": {
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "free": {"properties": {}, "x-kubernetes-preserve-unknown-fields": True},
                                }
                            }
                        }
                    }
                },
            }
        ],
    },
}


def test_a_custom_kinds_schema_refuses_unknown_fields_where_the_api_server_drops_them() -> None:
    ((name, schema),) = schemas.definition(CRD)
    spec = schema["properties"]["spec"]
    assert name == "thing-x.example-v1.json"
    assert schema["properties"]["kind"] == {"const": "Thing"}
    assert spec["additionalProperties"] is False
    assert spec["properties"]["port"] == {"type": ["integer", "string"]}
    assert "additionalProperties" not in spec["properties"]["free"]


def test_what_is_no_definition_has_no_schema() -> None:
    assert list(schemas.definition({"kind": "ServiceAccount"})) == []


# A running cluster


def test_without_a_lab_its_judges_are_skipped_by_name(tmp_path: Path) -> None:
    with (
        live.LabOfJudges(tmp_path, is_enabled=False) as lab,
        pytest.raises(SkippedJudge, match="no lab was to be started"),
    ):
        lab.kubeconfig()
    assert list(tmp_path.iterdir()) == []


def test_hardeneks_is_not_asked_what_asks_aws() -> None:
    settings = {"rules": {"cluster_wide": {"security": {"iam": ["check_endpoint_public_access", "restrict_wildcard"]}}}}
    assert live.without_aws(settings)["rules"] == {"cluster_wide": {"security": {"iam": ["restrict_wildcard"]}}}


SENT = {"id": "rbac-a@fraud", "refused": True, "twin_admitted": True, "status": 403, "denier": "RBAC"}


@pytest.mark.parametrize(
    ("result", "broken"),
    [
        (SENT, []),
        ({**SENT, "id": "rbac-b"}, ["rbac-a was not sent"]),
        ({**SENT, "skipped": "no such kind"}, ["rbac-a was not sent"]),
        ({**SENT, "refused": False, "status": 201, "denier": "none"}, ["rbac-a@fraud was answered with 201 by none"]),
        ({**SENT, "twin_admitted": False}, ["the twin of rbac-a@fraud was refused"]),
    ],
)
def test_a_behaviour_is_shown_by_attacks_that_were_refused_with_twins_admitted(
    result: dict[str, Any], broken: list[str]
) -> None:
    row = {"shown-by": ["rbac-a", "tests/unit/planning/test_plan.py"]}
    assert list(mtb.broken_attacks([result], row)) == broken


def test_a_namespace_without_a_quota_of_a_resource_is_named() -> None:
    quota = {"metadata": {"namespace": "a"}, "spec": {"hard": {"count/secrets": "1", "pods": "1"}}}
    assert list(mtb.unlimited([quota], "a", ["secrets|count/secrets", "pods", "services"])) == [
        "a has no quota of services"
    ]
    assert list(mtb.unlimited([quota], "b", ["pods"])) == ["b has no quota of pods"]


def test_what_an_owner_may_not_do_is_named(loaded: Loaded) -> None:
    def ask(*words: object) -> subprocess.CompletedProcess[str]:
        denied = "deletecollection" in words
        return subprocess.CompletedProcess([], int(denied or "create" in words), json.dumps({"items": []}))

    message_by_check = {finding.check: finding.message for finding in mtb.verdict([], loaded, ask).findings}
    assert "an owner may not deletecollection networkpolicies" in message_by_check["MTB-PL2-BC-OPS-4"]
    assert "an owner may not update networkpolicies" not in message_by_check["MTB-PL2-BC-OPS-4"]
    assert "has no quota of pods" in message_by_check["MTB-PL1-CC-FNS-2"]
    assert "MTB-PL1-CC-DI-1" not in message_by_check, "the pod was refused"


# NVIDIA's suite from a clone


PINNED = "1207cb75" + "0" * 32
ROWS: list[dict[str, Any]] = [{"id": "A", "run": {"wait": 30}, "ends": "no container"}, {"id": "B"}]


def nvidias_rows() -> Sequence[dict[str, Any]]:
    return yaml.safe_load((FOLDER / "nvidia.yaml").read_text("utf-8"))["items"]


def test_without_its_clone_nvidias_suite_is_skipped_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SkippedJudge, match=r"git clone https://\S+/ai-cloud-validation`, and JUDGED_NVIDIA=PATH"):
        nvidia.clone({})
    with pytest.raises(SkippedJudge, match="no clone of"):
        nvidia.clone({"JUDGED_NVIDIA": str(tmp_path)})


def test_without_its_clone_nvidias_suite_starts_no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGED_NVIDIA", raising=False)
    with live.LabOfJudges(tmp_path, is_enabled=True) as lab, pytest.raises(SkippedJudge, match="in no package index"):
        nvidia.verdict(lab)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_without_git_has_no_commit(tmp_path: Path) -> None:
    assert nvidia.commit(tmp_path) == ""


@pytest.mark.parametrize(
    ("commit", "suite", "expected_version"),
    [
        (PINNED, "AB", "1207cb75"),
        ("f" * 40, "AB", "ffffffff, not the pinned 1207cb75"),
        ("", "AB", "of an unknown commit, not the pinned 1207cb75"),
        ("f" * 40, "AC", "ffffffff, not the pinned 1207cb75; not run: C; gone: B"),
    ],
)
def test_a_clone_at_another_commit_is_named_in_the_version(commit: str, suite: str, expected_version: str) -> None:
    assert nvidia.version(commit, PINNED, dict.fromkeys(suite), ROWS) == expected_version


@pytest.mark.parametrize("suite", ["A", "ABC"])
def test_at_the_pinned_commit_every_check_has_a_row_and_every_row_a_check(suite: str) -> None:
    with pytest.raises(ValueError, match=r"not the suite's at 1207cb75: (gone: B|not run: C)$"):
        nvidia.version(PINNED, PINNED, dict.fromkeys(suite), ROWS)


def test_checks_of_a_suite_are_in_lists_and_in_groups() -> None:
    groups = {"pools": [{"A": {"step": "s"}}, {"B": None}], "kubernetes": {"checks": {"C": {"count": 1}}}}
    assert nvidia.checks({"tests": {"validations": groups}}) == {"A": {"step": "s"}, "B": {}, "C": {"count": 1}}


def test_a_check_is_asked_with_the_suites_parameters_those_of_its_row_and_what_the_spec_expects() -> None:
    suite = {"A": {"image": "i", "wait": 180}, "B": {}}
    assert nvidia.selected(suite, ROWS, {}) == {"A": {"image": "i", "wait": 30}}
    variants = {"A": {"A-x": {"count": 1}, "A-y": {"count": 2, "image": None}}}
    assert nvidia.selected(suite, ROWS, variants) == {
        "A-x": {"image": "i", "wait": 30, "count": 1},
        "A-y": {"image": None, "wait": 30, "count": 2},
    }
    assert nvidia.selected({"B": {}}, ROWS, {}) == {}


def test_the_suite_is_told_the_nodes_and_gpus_of_the_spec_files() -> None:
    expectations = nvidia.expected(load(ROOT / "stacks" / "local").environment)
    assert expectations["K8sNodeCountCheck"] == {"K8sNodeCountCheck": {"count": 14}}
    totals = {name: expectation["expected_total"] for name, expectation in expectations["K8sGpuCapacityCheck"].items()}
    assert totals == {
        "K8sGpuCapacityCheck-gpu": 64,
        "K8sGpuCapacityCheck-gpu.shared": 32,
        "K8sGpuCapacityCheck-mig-1g.5gb": 64,
        "K8sGpuCapacityCheck-mig-3g.20gb": 16,
    }


def test_a_row_says_that_its_check_runs_or_why_it_does_not() -> None:
    rows = nvidias_rows()
    assert len({row["id"] for row in rows}) == len(rows) == 36
    for row in rows:
        expected_status = "partly" if "ends" in row else "shown"
        assert ("run" in row) is (row["status"] in ("shown", "partly")), row["id"]
        assert "run" not in row or row["status"] == expected_status, row["id"]


RESULT: dict[str, Any] = {"name": "A", "passed": False, "skipped": False}


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ({**RESULT, "message": "stopped: no container answers"}, "containers"),
        ({**RESULT, "message": "ns-02: a guard refused the pod"}, "lab"),
        ({**RESULT, "passed": True, "skipped": True, "message": "no container"}, "lab"),
        ({**RESULT, "passed": True, "message": "Skipped: no names configured"}, "lab"),
        ({**RESULT, "passed": True, "message": "verified"}, None),
    ],
)
def test_where_a_check_of_nvidias_ended_is_the_object_of_its_finding(result: dict[str, Any], where: str | None) -> None:
    verdict = parse.nvidia([result], ["A"], nvidia.ends(ROWS), "1", "")
    assert [finding.object for finding in verdict.findings] == ([where] if where else [])


def test_a_check_of_nvidias_without_a_result_is_an_error() -> None:
    with pytest.raises(ValueError, match="no result of A"):
        parse.nvidia([], ["A"], {}, "1", "")


def test_guards_leave_the_suites_namespaces_alone_in_the_lab_and_not_in_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[tuple[str, ...], Path]] = []
    monkeypatch.setattr(live.LabOfJudges, "kubeconfig", lambda _: tmp_path)
    monkeypatch.setattr(live.LabOfJudges, "_run", lambda _, *words, project: sent.append((words, project)))
    live.LabOfJudges(tmp_path, is_enabled=True).leave_alone(
        nvidia.NAMESPACES, today() + dt.timedelta(1), "a suite of others runs"
    )
    ((words, project),) = sent
    assert words == ("up", "local")
    lab_platform, example_platform = (load(at / "stacks" / "local").environment.platform for at in (project, ROOT))
    assert [pattern.matches("isvtest-netpol-1") for pattern in lab_platform.temporary_namespaces] == [True]
    assert example_platform.temporary_namespaces == ()
    assert (project / "tenancy").resolve() == ROOT / "tenancy"


# The image


def test_the_bill_of_the_image_lists_what_the_containerfile_pins_and_says_what_it_lacks() -> None:
    document = image.document(image.FILE.read_text("utf-8"), "pulumi==3.259.0 \\\n    --hash=sha256:0\n")
    components_by_name = {component["name"]: component for component in document["components"]}
    assert {"docker.io/library/python", "docker.io/aquasec/trivy", "awscli", "trivy", "pulumi"} <= set(
        components_by_name
    )
    assert every(
        len(component["hashes"][0]["content"]) == 64
        for component in document["components"]
        if component["type"] == "container"
    )
    assert document["metadata"]["properties"][0]["value"] == image.INCOMPLETE
    assert document["compositions"][0]["aggregate"] == "incomplete"
    references = [component["bom-ref"] for component in document["components"]]
    assert len(references) == len(set(references))


def test_an_image_without_a_base_by_digest_has_no_bill() -> None:
    with pytest.raises(ValueError, match="by digest"):
        image.document("FROM python:3.12\n", "")
