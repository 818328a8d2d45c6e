"""What judges of the AWS half, of schemas and of a running cluster are given; the bill of materials of the image."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judged import faults, image, inputs, live, mtb, schemas, terraform
from judged.model import SkippedJudge
from judged.program import Resource
from judged.terraform import UnknownBlocks
from tenancy.rules.objects import object_findings
from tenancy.validation import Loaded
from tests.conftest import every


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
        ("aws:iam/openIdConnectProvider:OpenIdConnectProvider", "aws_iam_openid_connect_provider"),
    ],
)
def test_a_type_has_terraforms_name(kind: str, terraforms: str) -> None:
    assert terraform.type_of(kind) == terraforms


def test_a_block_is_a_list_with_a_singular_name_and_tags_stay_a_map() -> None:
    given = {"vpcConfig": {"subnetIds": ["a"]}, "rules": [{"bucketKeyEnabled": True}], "tags": {"costCenter": "1"}}
    assert terraform.fields(given) == {
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
    made = terraform.plan([bucket, twin])["configuration"]["root_module"]["resources"]
    assert [one["expressions"] for one in made] == [
        {},
        {"bucket": {"references": ["aws_s3_bucket.data.id", "aws_s3_bucket.data"]}},
    ]


def test_every_resource_of_the_bank_has_an_address_of_its_own(bank: dict[str, Any]) -> None:
    addresses = [one["address"] for one in bank["planned_values"]["root_module"]["resources"]]
    assert len(addresses) == len(set(addresses)) > 200
    assert {"aws_eks_cluster.bank-cluster", "aws_vpc.bank-network-vpc"} <= set(addresses)


def test_the_plan_of_the_bank_is_json_and_has_no_pulumi_values(bank: dict[str, Any]) -> None:
    text = json.dumps(bank)
    assert "4dabf18193072939515e22adb298388d" not in text, "the mark of a secret or of an unknown value"


def test_a_fault_on_aws_that_other_tools_know_is_found_by_a_rule_of_the_pack_and_its_twin_is_not(
    resources: Sequence[Resource],
) -> None:
    def rules(one: Resource) -> set[str]:
        item = {"kind": one.kind, "metadata": {"name": one.name}, **one.inputs}
        return {found.rule for found in object_findings(item)}

    for fault in faults.aws_faults(resources):
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
    with live.LabOfJudges(tmp_path, wanted=False) as lab, pytest.raises(SkippedJudge, match="no lab was to be started"):
        lab.kubeconfig()
    assert list(tmp_path.iterdir()) == []


def test_hardeneks_is_not_asked_what_asks_aws() -> None:
    given = {"rules": {"cluster_wide": {"security": {"iam": ["check_endpoint_public_access", "restrict_wildcard"]}}}}
    assert live.without_aws(given)["rules"] == {"cluster_wide": {"security": {"iam": ["restrict_wildcard"]}}}


SENT = {"id": "rbac-a@fraud", "refused": True, "twin_admitted": True, "status": 403, "denier": "RBAC"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (SENT, []),
        ({**SENT, "id": "rbac-b"}, ["rbac-a was not sent"]),
        ({**SENT, "skipped": "no such kind"}, ["rbac-a was not sent"]),
        ({**SENT, "refused": False, "status": 201, "denier": "none"}, ["rbac-a@fraud was answered with 201 by none"]),
        ({**SENT, "twin_admitted": False}, ["the twin of rbac-a@fraud was refused"]),
    ],
)
def test_a_behaviour_is_shown_by_attacks_that_were_refused_with_twins_admitted(
    result: dict[str, Any], said: list[str]
) -> None:
    row = {"shown-by": ["rbac-a", "tests/unit/test_plan.py"]}
    assert list(mtb.broken_attacks([result], row)) == said


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

    found = {one.check: one.message for one in mtb.verdict([], loaded, ask).findings}
    assert "an owner may not deletecollection networkpolicies" in found["MTB-PL2-BC-OPS-4"]
    assert "an owner may not update networkpolicies" not in found["MTB-PL2-BC-OPS-4"]
    assert "has no quota of pods" in found["MTB-PL1-CC-FNS-2"]
    assert "MTB-PL1-CC-DI-1" not in found, "the pod was refused"


# The image


def test_the_bill_of_the_image_lists_what_the_containerfile_pins_and_says_what_it_lacks() -> None:
    made = image.document(image.FILE.read_text("utf-8"), "pulumi==3.259.0 \\\n    --hash=sha256:0\n")
    named = {one["name"]: one for one in made["components"]}
    assert {"docker.io/library/python", "docker.io/aquasec/trivy", "awscli", "trivy", "pulumi"} <= set(named)
    assert every(len(one["hashes"][0]["content"]) == 64 for one in made["components"] if one["type"] == "container")
    assert made["metadata"]["properties"][0]["value"] == image.INCOMPLETE
    assert made["compositions"][0]["aggregate"] == "incomplete"
    references = [one["bom-ref"] for one in made["components"]]
    assert len(references) == len(set(references))


def test_an_image_without_a_base_by_digest_has_no_bill() -> None:
    with pytest.raises(ValueError, match="by digest"):
        image.document("FROM python:3.12\n", "")
