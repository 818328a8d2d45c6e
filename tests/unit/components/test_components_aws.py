"""The AWS halves of tenants and of what they share as the program registers them, under mocks: names, order,
protection, and what the double's judges say of every input."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aws_double_api
import aws_double_types as sdk
import pytest
from aws_double_types import from_struct

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.components.aws.eks_cluster import EksCluster
from tenancy.components.aws.network import ClusterNetwork
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.cluster import cluster_plan
from tenancy.planning.scope import StackScope
from tenancy.spec.loader import load
from tests import registered
from tests.conftest import every, nonempty
from tests.registered import Registered, register
from tests.registered_aws import dependencies_of, if_any, inputs, inputs_of_kinds, kind, on_aws

ROOT = Path(__file__).parents[3]
TENANT = "fraud"
DATA = {"Key", "Bucket", "Repository", "Secret"}
"""Types of AWS that hold data which cannot be created again."""
RETAINED_TYPES = {
    *("Key", "Alias", "Repository", "RepositoryPolicy", "LogGroup", "Bucket", "BucketLifecycleConfiguration"),
    *("BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock", "BucketVersioning"),
    *("BucketServerSideEncryptionConfiguration", "Secret", "SecretPolicy"),
    "OpenIdConnectProvider",  # the account's, which others use too
}


@pytest.fixture(scope="module")
def bank() -> Plan:
    loaded = load(ROOT / "stacks" / "bank")
    return make_plan(loaded, loaded.day)


@pytest.mark.parametrize(("cidr", "sent"), [(None, None), ("172.20.0.0/16", {"serviceIpv4Cidr": "172.20.0.0/16"})])
def test_a_cluster_is_told_its_range_of_services_where_the_file_says_it_alone(
    cidr: str | None, sent: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else were written would replace clusters that have the other range of the two that EKS chooses from."""
    loaded = load(ROOT / "stacks" / "bank")
    cluster = loaded.environment.cluster.model_copy(update={"service_cidr": cidr})
    environment = loaded.environment.model_copy(update={"cluster": cluster})
    planned = cluster_plan(environment, today())
    assert planned
    network: Any = SimpleNamespace(subnets={"eu-central-1a": "subnet-1"})
    roles: Any = SimpleNamespace(arns={"cluster": "arn:aws:iam::111122223333:role/cluster"})
    monkeypatch.setattr(registered, "build", lambda *_: EksCluster("bank", planned, network, roles))
    (cluster_request,) = inputs_of_kinds(register(planning.plan(environment, loaded.tenants)), "Cluster").values()
    assert inputs(cluster_request).get("kubernetesNetworkConfig") == sent


def test_the_way_to_s3_that_is_made_has_a_policy(bank: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = bank.cluster
    assert planned
    assert not planned.network.vpc
    monkeypatch.setattr(registered, "build", lambda *_: ClusterNetwork("n", planned.network, {}))
    endpoints = {
        inputs(request)["serviceName"].rpartition(".")[2]: inputs(request)
        for request in inputs_of_kinds(register(bank), "VpcEndpoint").values()
    }
    assert json.loads(endpoints["s3"]["policy"]) == planned.network.s3_policy, "AWS' default allows everything"


@pytest.fixture(scope="module")
def tenant(bank: Plan) -> Registered:
    return register(bank, StackScope.TENANT, TENANT)


@pytest.fixture(scope="module")
def platform(bank: Plan) -> Registered:
    return register(bank, StackScope.PLATFORM)


@pytest.fixture(scope="module")
def single_stack(bank: Plan) -> Registered:
    return register(bank)


def test_every_input_is_one_that_the_sdk_and_the_api_know(single_stack: Registered) -> None:
    wrong = {
        request.name: unknown_inputs
        for request in on_aws(single_stack).values()
        if (
            unknown_inputs := [
                *sdk.check_resource(request.type, inputs(request)),
                *aws_double_api.mistakes(request.type, inputs(request)),
            ]
        )
    }
    assert wrong == {}


def test_the_judges_know_every_type_by_its_operation_or_it_is_one_of_these(single_stack: Registered) -> None:
    """The others are checked by the SDK's types alone: AWS calls their properties otherwise."""
    unknown = {request.type for request in on_aws(single_stack).values()} - aws_double_api.OPERATIONS.keys()
    assert {token.rpartition(":")[2] for token in unknown} == {"EventTarget", "QueuePolicy", "TopicPolicy"}


def test_no_two_resources_share_a_name(single_stack: Registered) -> None:
    assert single_stack.repeated == []


def test_a_childs_name_starts_with_its_components(single_stack: Registered) -> None:
    for urn, request in nonempty(on_aws(single_stack).items()):
        at = single_stack.parent(urn)
        while not at.type.startswith("gpu-tenancy:"):
            at = single_stack.requests[at.parent]
        assert request.name.startswith(at.name + "-"), request.name


def test_every_component_says_that_it_is_complete(single_stack: Registered) -> None:
    components = {urn for urn, request in single_stack.requests.items() if request.type.startswith("gpu-tenancy:")}
    kinds = {kind(single_stack.requests[urn]) for urn in components}
    assert {"Data", "ProtectedBucket", "EncryptionKey", "EmergencyAccess", "EventAlarm"} <= kinds
    assert {"TenantAws", "IamRole", "TenantAwsResources"} <= kinds
    assert components <= single_stack.outputs.keys()


def test_everything_that_can_carry_tags_says_whose_it_is(single_stack: Registered) -> None:
    tagged, tenants = 0, [request.name for request in single_stack.of("GpuTenant").values()]
    for urn, request in nonempty(on_aws(single_stack).items()):
        if "tags" not in sdk.fields(sdk.arguments_class(sdk.resource_class(request.type) or object)):
            continue
        path = single_stack.path(urn)
        if ":Services$" in path:
            continue
        tags, tagged = inputs(request)["tags"], tagged + 1
        assert tags["managed-by"] == vocabulary.PRODUCT, request.name
        owner = next(
            (tenant for tenant in tenants if ":TenantAws$" in path and request.name.startswith(f"{tenant}-aws-")), None
        )
        assert tags.get(vocabulary.TENANT_TAG) == owner, request.name
    assert tagged > 50


def test_data_is_protected_and_roles_are_not(single_stack: Registered) -> None:
    assert inputs_of_kinds(single_stack, *DATA)
    assert {kind(request) for request in on_aws(single_stack).values() if request.protect} == DATA
    assert every(request.protect for request in inputs_of_kinds(single_stack, *DATA).values())


def test_a_platforms_own_stack_does_not_protect_its_roles_either(platform: Registered) -> None:
    of_data = {urn for urn in on_aws(platform) if "gpu-tenancy:index:Data" in platform.path(urn)}
    protected = {kind(platform.requests[urn]) for urn in of_data if platform.requests[urn].protect}
    assert protected == {"Bucket", "Key"}


def test_what_holds_data_outlives_its_stack_with_its_isolation_around_it(single_stack: Registered) -> None:
    outliving = {kind(request) for request in on_aws(single_stack).values() if request.retainOnDelete}
    assert outliving == RETAINED_TYPES, "a bucket that stays without its policy stands open"
    assert every(request.retainOnDelete for request in inputs_of_kinds(single_stack, *RETAINED_TYPES).values())


def test_nothing_of_it_is_a_secret_value(single_stack: Registered) -> None:
    assert inputs_of_kinds(single_stack, "Secret")
    assert if_any(single_stack, "SecretVersion") == {}
    for request in on_aws(single_stack).values():
        assert list(request.additionalSecretOutputs) == []
        assert sdk._SIGNATURE not in json.dumps(from_struct(request.object)), request.name


def test_the_buckets_locks_are_shut_before_any_role_is_there(single_stack: Registered) -> None:
    policies = inputs_of_kinds(single_stack, "BucketPolicy").keys()
    (boundary,) = [
        urn
        for urn, request in inputs_of_kinds(single_stack, "Policy").items()
        if request.name == "platform-data-boundary"
    ]
    roles = {urn for urn in inputs_of_kinds(single_stack, "Role") if "TenantAws" in single_stack.path(urn)}
    assert policies
    assert roles
    for urn in roles:
        assert boundary in single_stack.requests[urn].dependencies
        assert policies <= dependencies_of(single_stack, urn)


def test_a_buckets_policy_comes_when_the_public_is_shut_out(platform: Registered) -> None:
    for request in inputs_of_kinds(platform, "BucketPolicy").values():
        assert {kind(platform.requests[urn]) for urn in request.dependencies} == {"Bucket", "BucketPublicAccessBlock"}


def test_a_bucket_says_what_is_in_it(platform: Registered) -> None:
    purposes = {
        inputs(request)["bucket"]: inputs(request)["tags"].get("purpose")
        for request in inputs_of_kinds(platform, "Bucket").values()
    }
    purposes = {bucket: purpose for bucket, purpose in purposes.items() if bucket.startswith("bank-")}
    buckets = load(ROOT / "stacks" / "bank").environment.buckets
    assert purposes == {name: bucket.purpose for name, bucket in buckets.items()}
    assert purposes["bank-scratch"] == "what may be lost"


def test_a_bucket_encrypts_by_its_own_key(platform: Registered) -> None:
    for request in inputs_of_kinds(platform, "BucketServerSideEncryptionConfiguration").values():
        keys = [urn for urn in request.dependencies if kind(platform.requests[urn]) == "Key"]
        whose = [platform.requests[urn].name.removesuffix("-key") for urn in keys]
        assert whose == [request.name.removesuffix("-encryption")]


def test_an_association_waits_for_its_namespaces_isolation_and_its_roles_policies(tenant: Registered) -> None:
    associations = inputs_of_kinds(tenant, "PodIdentityAssociation")
    assert len(associations) == 2
    for urn, request in associations.items():
        space = inputs(request)["namespace"]
        before = dependencies_of(tenant, urn)
        isolation_resources = {
            u for u, r in tenant.kubernetes().items() if tenant.parent(u).name == space and kind(r) in WALLS
        }
        assert isolation_resources
        assert isolation_resources <= set(request.dependencies)
        role = next(u for u in before if u in inputs_of_kinds(tenant, "Role"))
        assert {u for u, r in inputs_of_kinds(tenant, "RolePolicy").items() if r.parent == role} <= before


WALLS = {"LimitRange", "LocalQueue", "NetworkPolicy", "ResourceQuota"}


def test_a_pipelines_entry_waits_for_every_isolation_resource(tenant: Registered) -> None:
    (entry,) = inputs_of_kinds(tenant, "AccessEntry")
    isolation_resources = {urn for urn, request in tenant.kubernetes().items() if kind(request) in WALLS}
    assert isolation_resources <= set(tenant.requests[entry].dependencies)


def test_a_role_goes_before_the_namespaces_do(tenant: Registered) -> None:
    spaces = tenant.of("Namespace").keys()
    assert len(inputs_of_kinds(tenant, "Role")) == 3
    for urn in inputs_of_kinds(tenant, "Role"):
        assert spaces <= dependencies_of(tenant, urn)


def test_a_policy_goes_with_its_role_and_an_entry_with_its_principal(tenant: Registered) -> None:
    """By property, not by order alone: the engine makes anew with a role what was on it."""
    key_by_type = {"RolePolicy": "role", "PodIdentityAssociation": "roleArn", "AccessEntry": "principalArn"}
    for name, key in nonempty(key_by_type.items()):
        for request in inputs_of_kinds(tenant, name).values():
            on = request.propertyDependencies[key].urns
            assert any(kind(tenant.requests[urn]) == "Role" for urn in on), request.name


def test_people_get_in_only_behind_the_guards(platform: Registered) -> None:
    (marker,) = [urn for urn in platform.of("ConfigMap") if "metrics" not in urn.lower()]
    people = {
        urn: r
        for urn, r in inputs_of_kinds(platform, "AccessEntry").items()
        if "EmergencyAccess" not in platform.path(urn)
    }
    assert len(people) == 8
    for request in people.values():
        assert marker in request.dependencies


def test_break_glass_is_never_used_without_an_alarm(platform: Registered) -> None:
    (role,) = [urn for urn in inputs_of_kinds(platform, "Role") if "EmergencyAccess" in platform.path(urn)]
    assert inputs_of_kinds(platform, "EventTarget", "TopicSubscription", "TopicPolicy").keys() <= dependencies_of(
        platform, role
    )


ROLE_ASSUMED = {
    "source": "aws.sts",
    "detail-type": "AWS API Call via CloudTrail",
    "detail": {"eventSource": "sts.amazonaws.com", "eventName": "AssumeRole", "readOnly": True},
}
"""A role that is taken, as CloudTrail writes it and EventBridge gets it."""


def heard(state: str, pattern: Any, event: Any) -> bool:
    """EventBridge user guide, "Receiving read-only management events from AWS services": plain ENABLED leaves them
    out."""
    states = {"ENABLED": not event["detail"]["readOnly"], "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS": True}
    return states.get(state, False) and _matches(pattern, event)


def _matches(pattern: Any, event: Any) -> bool:
    if isinstance(pattern, dict):
        return all(key in event and _matches(field_pattern, event[key]) for key, field_pattern in pattern.items())
    return event in pattern


@pytest.mark.parametrize("name", ["AssumeRole", "GetCallerIdentity"])
def test_the_break_glass_alarm_hears_its_role_taken_and_nothing_else(platform: Registered, name: str) -> None:
    rules = inputs_of_kinds(platform, "EventRule")
    (rule,) = [inputs(request) for urn, request in rules.items() if "EmergencyAccess" in platform.path(urn)]
    pattern = json.loads(rule["eventPattern"])
    (role,) = pattern["detail"]["requestParameters"]["roleArn"]
    event = {
        **ROLE_ASSUMED,
        "detail": {**ROLE_ASSUMED["detail"], "eventName": name, "requestParameters": {"roleArn": role}},
    }
    assert heard(rule.get("state", "ENABLED"), pattern, event) is (name == "AssumeRole")


def test_a_tenants_stack_has_a_provider_for_aws_only_if_it_has_something_there(bank: Plan) -> None:
    from dataclasses import replace

    from tenancy.planning.aws.tenant_models import TenantAwsPlan

    def providers(registered: Registered) -> set[str]:
        return {r.type for r in registered.requests.values() if r.type.startswith("pulumi:providers:")}

    both = {"pulumi:providers:aws", "pulumi:providers:kubernetes"}
    assert providers(register(bank, StackScope.TENANT, TENANT)) == both
    without = replace(bank, tenants=(replace(bank.tenant(TENANT), aws=TenantAwsPlan()),))
    alone = register(without, StackScope.TENANT, TENANT)
    assert providers(alone) == {"pulumi:providers:kubernetes"}
    assert on_aws(alone) == {}


def test_one_provider_makes_all_of_it(single_stack: Registered) -> None:
    assert len({request.provider for request in on_aws(single_stack).values()}) == 1


def test_the_scopes_together_register_what_one_stack_does(
    bank: Plan, single_stack: Registered, platform: Registered
) -> None:
    apart = [platform, *(register(bank, StackScope.TENANT, tenant.name) for tenant in bank.tenants)]
    paths = sorted(registered_stack.path(urn) for registered_stack in apart for urn in on_aws(registered_stack))
    assert paths == sorted(single_stack.path(urn) for urn in on_aws(single_stack))


def test_a_tenants_stack_does_not_import_the_sdk_of_services() -> None:
    """They take longer to import than the rest of the program."""
    import subprocess
    import sys

    code = "import sys, tenancy.components.program; print([m for m in sys.modules if m.startswith('pulumi_aws')])"
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
