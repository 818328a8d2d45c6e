"""The class that claims name, where the platform brings what makes volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from virtual_worlds import ENV, virtual

from tenancy.plan import Plan, make_plan
from tenancy.plan.identity import key_alias
from tenancy.plan.render import texts
from tenancy.plan.storage import storage_classes
from tenancy.spec import Environment
from tests.conftest import SpecFolder

KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-0000-4000-8000-000000000000"
ON_AWS = """\
aws:
  enabled: true
  account: '111122223333'
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: arn:aws:iam::111122223333:role/platform
"""


def on_aws(environment: Environment, **more: Any) -> Environment:
    return environment.model_copy(update={"aws": environment.aws.model_copy(update={"enabled": True, **more})})


@pytest.fixture
def folder(tmp_path: Path) -> SpecFolder:
    """Virtual clusters that name no class."""
    made = virtual(tmp_path / "small")
    made.edit(ENV, "  storage-class: gp3\n", "")
    return made


def planned(folder: SpecFolder) -> Plan:
    loaded = folder.load()
    return make_plan(loaded.environment, loaded.tenants)


def test_there_is_one_where_the_driver_is_ours(environment: Environment) -> None:
    (made,) = storage_classes(on_aws(environment))
    assert made["metadata"]["name"] == "tenancy-gp3"
    assert made["provisioner"] == "ebs.csi.aws.com"
    assert made["volumeBindingMode"] == "WaitForFirstConsumer", "else the volume may be in a zone without a free GPU"
    assert made["reclaimPolicy"] == "Delete"
    assert made["allowVolumeExpansion"]


def test_there_is_none_on_somebody_elses_cluster(environment: Environment) -> None:
    assert storage_classes(environment) == ()


@pytest.mark.parametrize("given", [None, KEY])
def test_its_volumes_are_encrypted_with_the_clusters_key(environment: Environment, given: str | None) -> None:
    there = on_aws(environment, encryption_key=given)
    (made,) = storage_classes(there)
    assert made["parameters"] == {"type": "gp3", "encrypted": "true", "kmsKeyId": given or key_alias(there)}


def test_nobody_gets_it_without_naming_it(environment: Environment) -> None:
    """stor-03 judges a claim as it is written: a default would be filled in before, also where somebody forgot it."""
    (made,) = storage_classes(on_aws(environment))
    assert "annotations" not in made["metadata"]


def test_virtual_clusters_name_it_by_themselves(folder: SpecFolder) -> None:
    folder.add(ENV, ON_AWS)
    plan = planned(folder)
    chart = plan.tenant("fraud").namespaces[0].chart
    (made,) = plan.platform.storage_classes
    assert chart
    claim = chart.values["controlPlane"]["statefulSet"]["persistence"]["volumeClaim"]
    assert claim["storageClass"] == made["metadata"]["name"], "stor-03 refuses a claim that names none"
    assert "platform/26-storage-classes.yaml" in texts(plan)


def test_elsewhere_a_class_is_asked_for(folder: SpecFolder) -> None:
    problem = folder.problem()
    assert (problem.id, problem.field) == ("iso-03", "virtual-clusters")
    assert "storage-class" in str(problem)


def test_elsewhere_the_class_that_is_named_is_taken(folder: SpecFolder) -> None:
    folder.edit(ENV, "  resolver:", "  storage-class: files\n  resolver:")
    chart = planned(folder).tenant("fraud").namespaces[0].chart
    assert chart
    assert chart.values["controlPlane"]["statefulSet"]["persistence"]["volumeClaim"]["storageClass"] == "files"
