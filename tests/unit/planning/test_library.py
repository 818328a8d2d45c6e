"""The public names of `tenancy`, as a program of someone else uses them."""

from __future__ import annotations

import ast
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pulumi
import pulumi_kubernetes as kubernetes
import pytest
from pydantic import BaseModel

import tenancy
from tenancy import (
    AdmissionGuards,
    ClusterInputs,
    Environment,
    GpuCluster,
    GpuPlatform,
    GpuTenant,
    SpecError,
    Tenant,
    TenantNamespace,
    TenantQueues,
    TenantRole,
    TenantStorage,
    load,
    plan,
    validate,
)
from tenancy.catalog.days import today
from tenancy.planning import make_plan
from tenancy.spec.loader import Loaded
from tenancy.spec.typed_dicts import module
from tests.aws_answers import Answers
from tests.conftest import SpecFolder, every, nonempty
from tests.registered import Echo, Registered, register
from tests.registered import run as run_program

ROOT = Path(__file__).parents[3]
STACKS = ("local", "bank")
OWNED = {"team": "fraud", "department": "risk", "cost_center": "CC-1", "tier": "batch"}
OWNER = {"name": "fraud-leads", "mail": "fraud-leads@bank.example"}


def run(program: Callable[[pulumi.ResourceOptions], object], *, preview: bool = True) -> Registered:
    """A program with a Kubernetes provider of its own; of an update, no API server is asked."""
    registered = Registered()

    def entry() -> None:
        provider = kubernetes.Provider("own", context="own")
        program(pulumi.ResourceOptions(providers=[provider]))

    run_program(entry, registered, preview=preview)
    return registered


def names(registered: Registered) -> set[tuple[str, str]]:
    return {(request.type, request.name) for request in registered.requests.values()}


def test_nothing_is_imported_until_a_name_is_used() -> None:
    code = "import sys, tenancy; print(tenancy.__version__, sorted({'pydantic', 'pulumi', 'yaml'} & {*sys.modules}))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split(" ", 1)[1] == "[]\n"


def test_models_need_no_pulumi() -> None:
    code = "import sys; from tenancy import Tenant, validate, plan; print('pulumi' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


@pytest.mark.parametrize("name", tenancy.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(tenancy, name)
    assert name in dir(tenancy)
    assert name == "__version__" or value.__doc__


def types_of(field: Any) -> set[type[BaseModel] | type[StrEnum]]:
    """Models and enumerations that a field's annotation names, and those of their fields."""
    field_types = set().union(*map(types_of, get_args(field)))
    if isinstance(field, type) and issubclass(field, StrEnum):
        field_types |= {field}
    if isinstance(field, type) and issubclass(field, BaseModel):
        field_types |= {field}.union(*(types_of(model_field.annotation) for model_field in field.model_fields.values()))
    return field_types


def test_every_type_of_a_field_can_be_imported() -> None:
    """A type checker wants the model where a file has a mapping."""
    for field_type in nonempty(types_of(Environment) | types_of(Tenant)):
        assert getattr(tenancy, field_type.__name__) is field_type
        assert field_type.__name__ in tenancy.__all__


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="Nosuch"):
        _ = tenancy.Nosuch


def test_the_package_is_typed() -> None:
    assert (ROOT / "tenancy" / "py.typed").exists()


def test_the_typed_mappings_are_those_of_the_models() -> None:
    text = (ROOT / "tenancy" / "spec" / "typed.py").read_text("utf-8")
    assert text == module(), "run: tenancy schema --python > tenancy/spec/typed.py"


def test_type_checkers_know_which_fields_have_a_default() -> None:
    """They read it by its keyword alone (PEP 681): mypy would ask a program for every field."""
    wrong = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "tenancy" / "spec" / "fields").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Field" and node.args
    ]
    assert wrong == []


@pytest.mark.parametrize("stack", STACKS)
def test_a_model_made_in_python_is_the_one_of_its_file(stack: str) -> None:
    loaded = load(ROOT / "stacks" / stack)
    for model in (loaded.environment, *loaded.tenants):
        by_name = model.model_dump(by_alias=False, exclude_unset=True)
        assert type(model)(**by_name) == model


def test_a_file_has_dashes_alone(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "cost-center:", "cost_center:")
    problem = spec.problem()
    assert (problem.line, problem.given) == (6, "key 'cost_center'")
    assert "did you mean 'cost-center'?" in problem.change


def test_a_wrong_model_raises_one_error_with_every_problem_and_its_path() -> None:
    with pytest.raises(SpecError) as caught:
        Tenant(
            tenant="fraud",
            teem="x",
            owner={**OWNER, "mail": "nobody"},
            namespaces=[{"name": "train", "pod_securty": "restricted"}, {"name": "serve", "tier": 5}],
            **{**OWNED, "cost_center": 7},
        )
    assert [problem.path for problem in caught.value.problems] == [
        "tenant fraud: cost_center",
        "tenant fraud: namespaces[0].pod_securty",
        "tenant fraud: namespaces[1].tier",
        "tenant fraud: owner.mail",
        "tenant fraud: teem",
    ]
    assert "did you mean 'pod_security'?" in str(caught.value)


def test_validate_returns_the_problems_of_all_specs_together(loaded: Loaded) -> None:
    fraud = loaded.tenants[0]
    environment = loaded.environment
    assert validate(environment, loaded.tenants) == []
    problems = validate(environment, [fraud.model_copy(update={"department": "nosuch"}), loaded.tenants[1]])
    assert [(p.path, p.id) for p in problems] == [("tenant fraud: department", "ref-01")]
    with pytest.raises(SpecError, match="ref-01"):
        plan(environment, [fraud.model_copy(update={"department": "nosuch"}), loaded.tenants[1]])


def test_specs_are_models_mappings_or_paths(spec: SpecFolder, loaded: Loaded) -> None:
    expected_plan = make_plan(loaded, loaded.day)
    mappings = [tenant.model_dump(exclude_unset=True) for tenant in loaded.tenants]
    files = [spec.path / "tenants" / f"{name}.yaml" for name in ("fraud", "research")]
    assert plan(loaded.environment.model_dump(exclude_unset=True), mappings) == expected_plan
    assert plan(spec.path / "environment.yaml", files) == expected_plan
    assert plan(str(spec.path / "environment.yaml"), str(spec.path / "tenants")) == expected_plan
    assert plan(spec.path) == expected_plan


def test_problems_of_files_have_their_lines_and_those_of_mappings_their_paths(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "team: fraud-detection", "team: Fraud!")
    problems = validate(spec.path / "environment.yaml", [spec.path / "tenants" / "fraud.yaml", {"tenant": "other"}])
    assert {problem.file.rpartition("/")[2] for problem in problems} == {"fraud.yaml", "tenant other"}
    assert [problem.line for problem in problems if problem.file.endswith("fraud.yaml")] == [3]


def test_what_is_no_spec_is_refused_in_words() -> None:
    (problem,) = validate(7)  # ty: ignore[invalid-argument-type]
    assert str(problem) == (
        "environment: given int; rule an Environment, a mapping of its fields or a path; change: give one of them"
    )


def test_a_program_makes_a_platform_and_its_tenants(loaded: Loaded) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        platform = GpuPlatform("gpu", loaded.environment, loaded.tenants, opts=opts)
        for tenant in loaded.tenants:
            GpuTenant(tenant.tenant, platform=platform, opts=opts)

    registered = run(program)
    objects = list(make_plan(loaded, loaded.day).objects())
    assert len(registered.kubernetes()) == len(objects)
    assert registered.repeated == []
    assert ("gpu-tenancy:index:GpuPlatform", "gpu") in names(registered)
    assert ("kubernetes:core/v1:Namespace", "fraud--train") in names(registered)


def test_under_the_programs_names_a_program_of_ones_own_has_its_resources(loaded: Loaded) -> None:
    """So that one state fits both: nothing is made anew by going from `tenancy up` to the library."""

    def program(opts: pulumi.ResourceOptions) -> None:
        platform = GpuPlatform("platform", loaded.environment, loaded.tenants, opts=opts)
        for tenant in loaded.tenants:
            GpuTenant(tenant.tenant, platform=platform, opts=opts)

    program_resources, plan_resources = run(program), register(make_plan(loaded, loaded.day))
    assert {program_resources.path(urn) for urn in program_resources.kubernetes()} == {
        plan_resources.path(urn) for urn in plan_resources.kubernetes()
    }


def test_two_clusters_with_the_same_tenants_fit_into_one_stack(loaded: Loaded) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        for cluster in ("east", "west"):
            platform = GpuPlatform(cluster, loaded.environment, loaded.tenants, opts=opts)
            GpuTenant(f"{cluster}-fraud", platform=platform, tenant=loaded.tenants[0], opts=opts)

    registered = run(program)
    assert registered.repeated == []
    assert {name for kind, name in names(registered) if kind.endswith(":TenantNamespace")} == {
        f"{cluster}-fraud-fraud--{part}" for cluster in ("east", "west") for part in ("train", "serve")
    }


def test_nothing_is_made_of_specs_that_break_a_rule_together(loaded: Loaded) -> None:
    wrong = loaded.tenants[0].model_copy(update={"department": "nosuch"})
    for make in (
        lambda opts: GpuPlatform("gpu", loaded.environment, [wrong, loaded.tenants[1]], opts=opts),
        lambda opts: GpuTenant("fraud", loaded.environment, wrong, tenants=loaded.tenants[1:], opts=opts),
    ):
        with pytest.raises(SpecError, match="ref-01"):
            run(make)


def test_a_tenant_that_the_platform_does_not_know_is_refused(loaded: Loaded) -> None:
    def program(name: str, **more: Any) -> Callable[[pulumi.ResourceOptions], object]:
        def declare(opts: pulumi.ResourceOptions) -> None:
            platform = GpuPlatform("gpu", loaded.environment, loaded.tenants, opts=opts)
            GpuTenant(name, platform=platform, opts=opts, **more)

        return declare

    with pytest.raises(ValueError, match="given tenant 'other', and a platform with fraud, research"):
        run(program("other"))
    with pytest.raises(ValueError, match="differs from the platform's"):
        run(program("fraud", tenant=loaded.tenants[0].model_copy(update={"title": "Other"})))
    with pytest.raises(ValueError, match="without environment and platform"):
        run(lambda opts: GpuTenant("fraud", opts=opts))


def test_outputs_are_known_in_a_preview_and_bring_their_dependencies(loaded: Loaded) -> None:
    output_values: dict[str, Any] = {}

    def program(opts: pulumi.ResourceOptions) -> None:
        platform = GpuPlatform("gpu", loaded.environment, loaded.tenants, opts=opts)
        fraud = GpuTenant("fraud", platform=platform, opts=opts)
        for name in ("namespaces", "service_accounts", "queues", "buckets", "sample_job"):
            getattr(fraud, name).apply(lambda value, name=name: output_values.update({name: value}))
        kubernetes.core.v1.ConfigMap("mine", metadata={"namespace": fraud.namespaces["train"]}, opts=opts)

    registered = run(program)
    assert output_values["namespaces"] == {"train": "fraud--train", "serve": "fraud--serve"}
    assert output_values["queues"] == {"train": ["default"], "serve": ["default"]}
    assert set(output_values["buckets"]) == {"datasets"}
    assert output_values["sample_job"]["metadata"]["namespace"] == "fraud--train"
    json.dumps(output_values)
    (dependent,) = [request for request in registered.requests.values() if request.name == "mine"]
    assert any(urn.endswith("::fraud--train") for urn in dependent.dependencies)


def _customized(loaded: Loaded, target: str, change: Any, tenant: Tenant | None = None) -> Registered:
    customized_tenant = tenant or loaded.tenants[0]

    def program(opts: pulumi.ResourceOptions) -> None:
        platform = GpuPlatform("gpu", loaded.environment, [customized_tenant, loaded.tenants[1]], opts=opts)
        GpuTenant("fraud", platform=platform, customize={target: change}, opts=opts)

    return run(program)


def _properties(registered: Registered, name: str) -> Any:
    (request,) = [
        r for r in registered.requests.values() if r.name == name and r.type == "kubernetes:core/v1:Namespace"
    ]
    return request.object


@pytest.mark.parametrize("target", ["fraud--train", "Namespace/fraud--train"])
def test_a_resource_is_customized_by_its_logical_name_or_its_own(loaded: Loaded, target: str) -> None:
    registered = _customized(loaded, target, {"metadata": {"labels": {"bank.example/wave": "two"}}})
    assert _properties(registered, "fraud--train")["metadata"]["labels"]["bank.example/wave"] == "two"
    assert "bank.example/wave" not in _properties(registered, "fraud--serve")["metadata"]["labels"]


def test_a_name_that_two_resources_have_is_refused_with_their_longer_names(loaded: Loaded) -> None:
    longer = "LimitRange/fraud--train/tenant and ResourceQuota/fraud--train/tenant; rule"
    with pytest.raises(ValueError, match=longer):
        _customized(loaded, "fraud--train-tenant", {"metadata": {"labels": {"bank.example/wave": "two"}}})


def test_a_function_customizes_a_copy(loaded: Loaded) -> None:
    def add(properties: dict[str, Any]) -> None:
        properties["metadata"]["annotations"]["bank.example/note"] = "yes"

    registered = _customized(loaded, "Namespace/fraud--train", add)
    assert _properties(registered, "fraud--train")["metadata"]["annotations"]["bank.example/note"] == "yes"


def test_an_unknown_target_is_refused_with_near_names(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match="use Namespace/fraud--train or"):
        _customized(loaded, "Namespace/fraud--trian", {})


ISOLATING = [
    ("Namespace/fraud--train", {"metadata": {"labels": {"team": "other"}}}, "metadata.labels.team"),
    (
        "Namespace/fraud--train",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
        "metadata.labels.pod-security.kubernetes.io/enforce",
    ),
    (
        "Namespace/fraud--train",
        {"metadata": {"labels": {"tenancy.gpu/new": "x"}}},
        "metadata.labels.tenancy.gpu/new",
    ),
    ("NetworkPolicy/fraud--train/default-deny", {"spec": {"policyTypes": ["Ingress"]}}, "spec"),
    ("ResourceQuota/fraud--train/tenant", {"spec": {"hard": {"pods": "9000"}}}, "spec"),
]


def _excepted(tenant: Tenant, part: str) -> Tenant:
    entry = {
        "rule": "custom-01",
        "namespace": part,
        "reason": "A migration that ends this month",
        "owner": "fraud-leads@bank.example",
        "until": today() + dt.timedelta(days=30),
    }
    return Tenant(**{**tenant.model_dump(exclude_unset=True), "exceptions": [entry]})


@pytest.mark.parametrize(("target", "change", "field"), ISOLATING)
def test_an_isolating_field_is_customized_only_with_an_exception(
    loaded: Loaded, target: str, change: Any, field: str
) -> None:
    fraud = loaded.tenants[0]
    with pytest.raises(ValueError, match="custom-01") as caught:
        _customized(loaded, target, change)
    assert f"which changes {field};" in str(caught.value)
    with pytest.raises(ValueError, match="custom-01"):
        _customized(loaded, target, change, _excepted(fraud, "serve"))
    assert _customized(loaded, target, change, _excepted(fraud, "train")).requests


def test_an_objects_identity_is_never_customized(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match="the object's identity"):
        _customized(
            loaded, "Namespace/fraud--train", {"metadata": {"name": "x"}}, _excepted(loaded.tenants[0], "train")
        )


def test_an_output_without_a_stand_in_is_refused(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match=r"given an output for aws\.oidc_issuer"):
        run(
            lambda opts: GpuPlatform(
                "gpu", loaded.environment, loaded.tenants, inputs=ClusterInputs(oidc_issuer="x"), opts=opts
            )
        )


def test_parts_of_a_tenant_are_made_one_by_one() -> None:
    bank = load(ROOT / "stacks" / "bank")
    tenant_plan = make_plan(bank, bank.day).tenant("fraud")
    assert tenant_plan.aws
    (role, *_) = [role for role in tenant_plan.aws.roles if role.purpose != "ci"]
    output_values: dict[str, Any] = {}

    def program(opts: pulumi.ResourceOptions) -> None:
        common_arguments: dict[str, Any] = {"tenants": bank.tenants, "opts": opts}
        fraud = bank.tenants[[tenant.tenant for tenant in bank.tenants].index("fraud")]
        part = fraud.namespaces[0].name
        space = TenantNamespace("space", bank.environment, fraud, namespace=part, **common_arguments)
        queues = TenantQueues("queues", bank.environment, fraud, **common_arguments)
        tenant_role = TenantRole("role", bank.environment, fraud, namespace=role.purpose, **common_arguments)
        storage = TenantStorage("storage", bank.environment, fraud, **common_arguments)
        output_values.update(space=space.name, queues=len(queues.resources), buckets=set(storage.buckets))
        tenant_role.arn.apply(lambda arn: output_values.update(arn=arn))
        AdmissionGuards("guards", bank.environment, bank.tenants, opts=opts)

    registered = run(program)
    # Pulumi knows no id in a preview, and with it no ARN.
    assert output_values["queues"] == len(tenant_plan.queues)
    assert output_values["space"] == tenant_plan.namespaces[0].name
    assert output_values["buckets"]
    kinds = {kind.rpartition(":")[2] for kind, _ in names(registered)}
    assert {"TenantNamespace", "TenantQueues", "TenantRole", "AdmissionGuards", "TenantAwsResources"} <= kinds
    assert {"ClusterQueue", "Role", "PodIdentityAssociation", "ValidatingAdmissionPolicy", "LocalQueue"} <= kinds
    assert registered.repeated == []


def test_a_namespace_that_the_tenant_lacks_is_refused(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match="use one of train, serve"):
        run(
            lambda opts: TenantNamespace(
                "x", loaded.environment, loaded.tenants[0], namespace="nosuch", tenants=loaded.tenants, opts=opts
            )
        )
    with pytest.raises(ValueError, match="no role of its own"):
        run(
            lambda opts: TenantRole(
                "x", loaded.environment, loaded.tenants[0], namespace="train", tenants=loaded.tenants, opts=opts
            )
        )


def test_a_cluster_needs_aws(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match=r"an environment whose cluster exists; rule: cluster\.mode: build"):
        run(lambda opts: GpuCluster("x", loaded.environment, loaded.tenants, opts=opts))


def test_a_cluster_is_made_in_a_network_that_is_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = load(ROOT / "stacks" / "bank")
    answers = Answers()
    monkeypatch.setattr(Echo, "call", lambda mocks, call: answers(mocks, call))
    zones = bank.environment.aws.zones
    fields = bank.environment.model_dump(exclude_unset=True)
    network = {"vpc": "vpc-00000000000000000", "subnets": {zone: f"subnet-0000000{zone[-1]}" for zone in zones}}
    aws = {key: value for key, value in fields["aws"].items() if key != "zones"}
    environment = Environment(**{**fields, "aws": {**aws, "network": {**aws["network"], **network}}})

    def program(opts: pulumi.ResourceOptions) -> None:
        vpc = pulumi.Output.from_input("vpc-0123456789abcdef0")
        subnets = {zone: pulumi.Output.from_input(f"subnet-{zone[-1] * 8}") for zone in zones}
        inputs = ClusterInputs(vpc_id=vpc, subnet_ids=subnets)
        cluster = GpuCluster("bank", environment, bank.tenants, inputs=inputs, opts=opts)
        assert every(
            isinstance(output, pulumi.Output) for output in (cluster.name, cluster.endpoint, cluster.kubeconfig)
        )

    registered = run(program)
    (cluster,) = [r for r in registered.requests.values() if r.type == "aws:eks/cluster:Cluster"]
    assert sorted(cluster.object["vpcConfig"]["subnetIds"]) == ["subnet-aaaaaaaa", "subnet-bbbbbbbb", "subnet-cccccccc"]
    checked = {arguments["vpcId"] for name, arguments in answers.asked if name == "getVpcEndpoint"}
    assert checked == {"vpc-0123456789abcdef0"}
