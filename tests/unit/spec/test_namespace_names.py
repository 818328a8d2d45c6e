"""Names of tenants' namespaces on the cluster: by a pattern, or each by itself; whatever follows from them agrees."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.planning.access_review import review
from tenancy.planning.aws import iam_roles
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import validate
from tests.conftest import SpecFolder, in_days, nonempty

PATTERN = 'namespace-name: "{tenant}-{namespace}"\ncluster:\n'
TRAIN = "  - {name: train, purpose: nightly retraining"


def renamed(spec: SpecFolder) -> SpecFolder:
    """The small environment whose tenants have names that only their labels assign."""
    spec.edit("environment.yaml", "cluster:\n", PATTERN)
    spec.edit("tenants/fraud.yaml", TRAIN, f"{TRAIN}, namespace-name: ml-train")
    return spec


def spaces_of(value: Any) -> set[str]:
    """Every text of objects in which a name of the default form is."""
    if isinstance(value, dict):
        return {name for child in (*value, *value.values()) for name in spaces_of(child)}
    if isinstance(value, list | tuple):
        return {name for child in value for name in spaces_of(child)}
    return (
        {value} if isinstance(value, str) and re.search(r"\b(fraud|research)--(train|serve|main)\b", value) else set()
    )


def test_a_pattern_names_every_namespace_and_an_own_name_wins(spec: SpecFolder) -> None:
    loaded = renamed(spec).load()
    plan = make_plan(loaded, loaded.day)
    names = {space.name for tenant in plan.tenants for space in tenant.namespaces}
    assert names == {"ml-train", "fraud-serve", "research-main"}


def test_no_object_of_the_plan_holds_a_name_of_the_default_form(spec: SpecFolder) -> None:
    def default_names(spec: SpecFolder) -> set[str]:
        loaded = spec.load()
        objects: list[Object] = [*make_plan(loaded, loaded.day).objects()]
        return spaces_of(objects)

    assert default_names(spec), "with the default pattern there are such names"
    assert default_names(renamed(spec)) == set()


def test_every_object_of_a_namespace_is_in_it_and_has_its_tenants_label(spec: SpecFolder) -> None:
    loaded = renamed(spec).load()
    for tenant in nonempty(make_plan(loaded, loaded.day).tenants):
        for space in tenant.namespaces:
            for item in (*space.isolation, *space.access):
                assert item["metadata"]["namespace"] == space.name, item["kind"]
                assert item["metadata"]["labels"][vocabulary.TENANT] == tenant.name, item["kind"]


def test_the_access_review_names_the_namespaces_of_the_cluster(spec: SpecFolder) -> None:
    loaded = renamed(spec).load()
    entries = review(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))
    leads = next(entry for entry in entries if entry.subject == "fraud-leads")
    assert leads.applies_to == ("ml-train",)


def test_specs_from_python_are_named_as_those_from_files(spec: SpecFolder) -> None:
    loaded = renamed(spec).load()
    raw = [
        Tenant.model_validate(yaml.safe_load((spec.path / "tenants" / f"{tenant.tenant}.yaml").read_text("utf-8")))
        for tenant in loaded.tenants
    ]
    assert validate(loaded.environment, raw) == []
    assert planning.plan(loaded.environment, raw) == make_plan(loaded, loaded.day)


def test_the_trust_of_a_shared_role_names_the_namespaces_that_have_no_common_form(spec: SpecFolder) -> None:
    loaded = spec.load()
    environment = with_shared_role(loaded.environment)
    (usual,) = {like(role) for role in iam_roles.shared_roles(environment, loaded.tenants)}
    assert usual == "*--*"
    renamed_tenants = [tenant.with_namespace_names("{tenant}-{namespace}") for tenant in loaded.tenants]
    roles = iam_roles.shared_roles(environment, renamed_tenants)
    trusted = {name for role in roles for name in like(role)}
    assert trusted == {"*--*", "fraud-train", "fraud-serve", "research-main"}
    for tenant in nonempty(renamed_tenants):
        for part in tenant.namespaces:
            role = next(r for r in roles if r.arn == iam_roles.role_arn(environment, tenant, part))
            assert tenant.namespace_name(part) in like(role), "its own pods are trusted"


def with_shared_role(environment: Environment) -> Environment:
    return environment.model_copy(update={"aws": environment.aws.model_copy(update={"identity": PodIdentity.SHARED})})


def like(role: Any) -> Any:
    pattern = role.trust["Statement"][0]["Condition"]["StringLike"]["aws:RequestTag/kubernetes-namespace"]
    return pattern if isinstance(pattern, str) else tuple(pattern)


def test_a_name_is_refused_that_another_tenant_has(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "cluster:\n", 'namespace-name: "{tenant}"\ncluster:\n')
    (problem,) = spec.problems()
    assert (problem.id, problem.field) == ("name-02", "namespaces[1].namespace-name")
    assert "namespace 'fraud', which is train of fraud as well" in problem.given
    spec.edit("tenants/fraud.yaml", "- {name: serve", "- {name: serve, namespace-name: fraud-serve")
    assert spec.load(), "with one namespace a tenant, or one of another name, the tenant's name is enough"


def test_two_tenants_whose_names_meet_under_a_pattern_are_refused(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "cluster:\n", PATTERN)
    spec.edit(
        "tenants/research.yaml",
        "tier: batch\n",
        "tier: batch\nnamespaces: [{name: main, namespace-name: fraud-serve}]\n",
    )
    assert {problem.id for problem in spec.problems()} == {"name-02"}


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("monitoring", "monitored"),
        ("kube-fraud", "cube-fraud"),
        ("default", "defaults"),
        ("cert-manager", "cert-managed"),
        ("e2e-fraud", "e3e-fraud"),
        ("research--x", "fraud--x"),
        ("ml--fraud", "ml-fraud"),
        ("fraud--a--b", "fraud--a-b"),
    ],
)
def test_a_namespace_of_another_owner_or_form_is_refused(spec: SpecFolder, name: str, twin: str) -> None:
    suites = '  temporary-namespaces: [{name: "e2e-*", until: %s, reason: the conformance suite of the release}]\n'
    more = f"namespaces: [monitoring]\n  unmanaged-namespaces: [cert-manager]\n{suites % in_days(9)}"
    spec.edit("environment.yaml", "namespaces: [monitoring]\n", more)
    spec.edit("tenants/fraud.yaml", TRAIN, f"{TRAIN}, namespace-name: {name}")
    (problem,) = spec.problems()
    assert (problem.id, problem.field) == ("name-03", "namespaces[0].namespace-name")
    spec.edit("tenants/fraud.yaml", f"namespace-name: {name}", f"namespace-name: {twin}")
    assert spec.load()


@pytest.mark.parametrize("pattern", ["{namespace}", "{tenant}/{namespace}", "{tenant}-{tenant}", "{team}-{tenant}"])
def test_a_pattern_has_the_tenant_once_and_no_other_placeholder(spec: SpecFolder, pattern: str) -> None:
    spec.edit("environment.yaml", "cluster:\n", f'namespace-name: "{pattern}"\ncluster:\n')
    assert [problem.field for problem in spec.problems()] == ["namespace-name"]


def test_a_name_that_a_pattern_makes_too_long_is_refused(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "cluster:\n", f'namespace-name: "{"x" * 58}-{{tenant}}"\ncluster:\n')
    problems = {(problem.id, problem.field) for problem in spec.problems()}
    assert ("name-03", "namespaces[0].namespace-name") in problems
