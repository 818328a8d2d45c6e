"""A tenant's own labels and annotations: which are allowed, and where they arrive."""

from __future__ import annotations

import pytest

from tenancy.planning import make_plan
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder

ENV, FRAUD = "environment.yaml", "tenants/fraud.yaml"
TRAIN = "  - {name: train, purpose: nightly retraining"
ALLOWED = "  name: bank\n  label-keys: [project]\n  annotation-keys: [bank.example/, runbook]\n"


@pytest.fixture
def spec_with_annotations(spec: SpecFolder) -> SpecFolder:
    spec.edit(ENV, "  name: bank\n", ALLOWED)
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS)
    more = 'product: scoring, labels: {project: night}, annotations: {runbook: "wiki, page 2"}'
    spec.edit(FRAUD, TRAIN, f"{TRAIN}, {more}")
    spec.add(FRAUD, "labels: {project: cards}\nannotations: {bank.example/data: cards, runbook: none}\n")
    return spec


def test_annotations_are_on_the_tenants_namespaces_and_a_namespaces_own_wins(spec_with_annotations: SpecFolder) -> None:
    loaded = spec_with_annotations.load()
    train, serve = (s.namespace["metadata"]["annotations"] for s in make_plan(loaded, loaded.day).tenants[0].namespaces)
    assert (train["bank.example/data"], train["runbook"]) == ("cards", "wiki, page 2")
    assert (serve["bank.example/data"], serve["runbook"]) == ("cards", "none")


def test_a_namespaces_product_and_labels_are_on_its_objects_and_its_role(spec_with_annotations: SpecFolder) -> None:
    loaded = spec_with_annotations.load()
    fraud = make_plan(loaded, loaded.day).tenants[0]
    labels = fraud.namespaces[0].namespace["metadata"]["labels"]
    assert (labels["product"], labels["project"]) == ("scoring", "night")
    assert fraud.aws
    tags = {role.purpose: (role.tags["product"], role.tags["project"]) for role in fraud.aws.roles}
    assert tags == {"train": ("scoring", "night"), "serve": ("fraud-detection", "cards")}
    assert {association.namespace: association.tags["project"] for association in fraud.aws.associations} == {
        "fraud--train": "night",
        "fraud--serve": "cards",
    }


@pytest.mark.parametrize("key", ["bank.example.evil/x", "other", "pulumi.com/patchForce", "tenancy.gpu/allows"])
def test_an_annotation_that_the_environment_does_not_allow_is_refused(
    spec_with_annotations: SpecFolder, key: str
) -> None:
    spec_with_annotations.edit(FRAUD, "runbook: none", f"{key}: none")
    assert [problem.id for problem in spec_with_annotations.problems()] == ["ref-01"]


@pytest.mark.parametrize("key", ["tenancy.gpu/", "kubernetes.io/", "pulumi.com/", "tenancy.gpu/allows"])
def test_the_environment_allows_none_that_the_platform_reads(spec_with_annotations: SpecFolder, key: str) -> None:
    spec_with_annotations.edit(
        ENV, "annotation-keys: [bank.example/, runbook]", f"annotation-keys: [bank.example/, runbook, {key}]"
    )
    assert [problem.id for problem in spec_with_annotations.problems()] == ["cost-04"]
