"""The class that claims name, where the platform brings what makes volumes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from virtual_worlds import ENV, virtual

from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.addons import wanted_add_ons
from tenancy.planning.aws.identity import key_alias
from tenancy.planning.common import names
from tenancy.planning.kubernetes.storage import storage_classes
from tenancy.planning.render import file_texts
from tenancy.planning.scope import StackScope
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.conftest import SpecFolder
from tests.registered import register

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
    spec_folder = virtual(tmp_path / "small")
    spec_folder.edit(ENV, "  storage-class: gp3\n", "")
    return spec_folder


def planned(folder: SpecFolder) -> Plan:
    loaded = folder.load()
    return make_plan(loaded, loaded.day)


def test_there_is_one_where_the_driver_is_ours(environment: Environment) -> None:
    (storage_class,) = storage_classes(on_aws(environment))
    assert storage_class["metadata"]["name"] == "tenancy-gp3"
    assert storage_class["provisioner"] == "ebs.csi.aws.com"
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer", (
        "else the volume may be in a zone without a free GPU"
    )
    assert storage_class["reclaimPolicy"] == "Delete"
    assert storage_class["allowVolumeExpansion"]


def test_there_is_none_on_a_cluster_that_another_program_makes(environment: Environment) -> None:
    assert storage_classes(environment) == ()


@pytest.mark.parametrize("kms_key", [None, KEY])
def test_its_volumes_are_encrypted_with_the_clusters_key(environment: Environment, kms_key: str | None) -> None:
    aws_environment = on_aws(environment, kms_key_arn=kms_key)
    (storage_class,) = storage_classes(aws_environment)
    disk = {key: value for key, value in storage_class["parameters"].items() if not key.startswith("tagSpecification")}
    assert disk == {"type": "gp3", "encrypted": "true", "kmsKeyId": kms_key or key_alias(aws_environment)}


@pytest.mark.parametrize(
    ("namespace", "tenant"), [("fraud--train", "fraud"), ("quant-research--main", "quant-research"), ("monitoring", "")]
)
def test_its_volumes_say_whose_they_are(environment: Environment, namespace: str, tenant: str) -> None:
    (storage_class,) = storage_classes(on_aws(environment))
    tag_values = [text for key, text in storage_class["parameters"].items() if key.startswith("tagSpecification_")]
    tags = dict(interpolated(text, namespace).split("=", 1) for text in tag_values)
    assert tags == {"tenancy:namespace": namespace, "tenancy:tenant": tenant}


def interpolated(text: str, namespace: str) -> str:
    """The text that Go's text/template makes of the forms in use here, with the driver's functions `contains` and
    `field`."""

    def piped(match: re.Match[str]) -> str:
        return namespace.split(match["delimiter"])[int(match["index"])] if match["delimiter"] else namespace

    condition = re.compile(r'\{\{ if \.PVCNamespace \| contains "([^"]+)" \}\}(.*)\{\{ end \}\}')
    text = condition.sub(lambda match: match[2] if match[1] in namespace else "", text)
    value = r'\{\{ \.PVCNamespace(?: \| field "(?P<delimiter>[^"]+)" (?P<index>\d+))? \}\}'
    result = re.sub(value, piped, text)
    assert "{{" not in result, f"{text} has a form that is not known here"
    return result


def test_the_driver_tags_every_volume_with_its_environment(environment: Environment) -> None:
    """Lines of the bill without this tag are outside the environment, whatever the class of the volume."""
    aws_environment = on_aws(environment)
    (driver,) = [add_on for add_on in wanted_add_ons(aws_environment) if add_on.name == "aws-ebs-csi-driver"]
    assert driver.configuration["controller"]["extraVolumeTags"] == names.tags(aws_environment)
    assert names.tags(aws_environment)["tenancy:environment"] == aws_environment.environment


def test_another_key_or_tag_is_a_new_class_which_protection_would_refuse() -> None:
    """Its parameters cannot be changed, so that the engine replaces it."""
    loaded = load(Path(__file__).parents[3] / "stacks" / "bank")
    registered = register(make_plan(loaded, loaded.day), StackScope.PLATFORM).kubernetes()
    protected = {request.type.rpartition(":")[2]: request.protect for request in registered.values()}
    assert protected.pop("StorageClass") is False
    assert protected["ValidatingAdmissionPolicy"] is True


def test_no_claim_gets_it_without_naming_it(environment: Environment) -> None:
    """stor-03 judges a claim as it is written: a default would be filled in before, also where the author forgot it."""
    (storage_class,) = storage_classes(on_aws(environment))
    assert "annotations" not in storage_class["metadata"]


def test_virtual_clusters_name_it_by_themselves(folder: SpecFolder) -> None:
    folder.add(ENV, ON_AWS)
    plan = planned(folder)
    chart = plan.tenant("fraud").namespaces[0].chart
    (storage_class,) = plan.platform.storage_classes
    assert chart
    claim = chart.values["controlPlane"]["statefulSet"]["persistence"]["volumeClaim"]
    assert claim["storageClass"] == storage_class["metadata"]["name"], "stor-03 refuses a claim that names none"
    assert "platform/26-storage-classes.yaml" in file_texts(plan)


def test_elsewhere_a_class_is_asked_for(folder: SpecFolder) -> None:
    problem = folder.problem()
    assert (problem.id, problem.field) == ("iso-03", "virtual-clusters")
    assert "storage-class" in str(problem)


def test_elsewhere_the_class_that_is_named_is_taken(folder: SpecFolder) -> None:
    folder.edit(ENV, "  resolver:", "  storage-class: files\n  resolver:")
    chart = planned(folder).tenant("fraud").namespaces[0].chart
    assert chart
    assert chart.values["controlPlane"]["statefulSet"]["persistence"]["volumeClaim"]["storageClass"] == "files"
