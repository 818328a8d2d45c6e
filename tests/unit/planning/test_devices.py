"""Devices by claim: what a plan says where `cluster.devices` is dra, and that nothing else says it."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import boards, gpus, vocabulary
from tenancy.check.guard_rules import guard_findings
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.device_classes import PRODUCTS, device_classes
from tenancy.planning.kubernetes.access import PERSONAS, role_name
from tenancy.planning.kubernetes.quotas import CLAIM_COUNTS, CLASS_AS_RESOURCE, CLASS_QUOTA
from tenancy.rules.claim_forms import DRIVER_CLASSES
from tenancy.rules.cross_object import findings_together
from tenancy.rules.objects import object_findings
from tenancy.rules.values import unenforced_quota_keys
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.pools import Flavor, Sharing
from tenancy.spec.loader import Loaded
from tests.claims import by_claim
from tests.conftest import every, nonempty

Object = dict[str, Any]


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return by_claim(tmp_path_factory.mktemp("claims") / "small").load()


@pytest.fixture(scope="module")
def dra(claimed: Loaded) -> Plan:
    return make_plan(claimed, claimed.day)


def kinds(plan: Plan, kind: str) -> list[Object]:
    return [item for item in plan.objects() if item["kind"] == kind]


def quotas_of(plan: Plan) -> list[Object]:
    """Quotas of whole namespaces; those of priority classes stand under them."""
    return [item for item in kinds(plan, "ResourceQuota") if "scopeSelector" not in item["spec"]]


def _quota(plan: Plan, namespace: str) -> dict[str, str]:
    (quota,) = [q for q in quotas_of(plan) if q["metadata"]["namespace"] == namespace]
    return quota["spec"]["hard"]


def _annotations(plan: Plan, name: str) -> dict[str, str]:
    (namespace_object,) = [o for o in kinds(plan, "Namespace") if o["metadata"]["name"] == name]
    return namespace_object["metadata"]["annotations"]


def _guards(plan: Plan) -> dict[str, list[str]]:
    """The rules of each policy."""
    policies = [g for g in plan.platform.guards if g["kind"] == "ValidatingAdmissionPolicy"]
    return {
        policy["metadata"]["name"]: [v["message"].partition(":")[0] for v in policy["spec"]["validations"]]
        for policy in policies
    }


def _expressions(environment: Environment) -> dict[str, str]:
    return {
        item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"]["expression"]
        for item in device_classes(environment)
    }


# Classes


def test_a_class_holds_whole_gpus_of_one_board(claimed: Loaded) -> None:
    assert _expressions(claimed.environment)["a100"] == (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
        " && device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100-SXM4-40GB'"
    )


def test_a_class_of_slices_holds_one_profile_of_one_board(claimed: Loaded) -> None:
    assert _expressions(claimed.environment)["a100-1g.5gb"] == (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
        " && device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
        " && device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100-SXM4-40GB'"
    )


def test_the_drivers_name_of_every_board_is_known_and_of_no_other() -> None:
    assert set(PRODUCTS) == set(boards.BOARDS)
    assert len(set(PRODUCTS.values())) == len(PRODUCTS)


def test_no_class_is_an_extended_resource_as_well(dra: Plan) -> None:
    assert [item for item in kinds(dra, "DeviceClass") if "extendedResourceName" in item["spec"]] == []


def test_a_replica_of_a_shared_gpu_has_no_class(claimed: Loaded) -> None:
    flavors = {**claimed.environment.flavors, "l4-shared": Flavor(gpu="l4", gpu_sharing=Sharing.TIME_SLICING)}
    assert "l4-shared" not in _expressions(claimed.environment.model_copy(update={"flavors": flavors})), (
        "its class would be that of whole GPUs"
    )


# Quotas and annotations


def test_no_extended_resource_of_a_gpu_is_granted_beside_claims(dra: Plan) -> None:
    for item in nonempty(quotas_of(dra)):
        hard = item["spec"]["hard"]
        assert hard[f"requests.{gpus.GPU}"] == "0"
        assert {count for key, count in hard.items() if key.startswith("requests.nvidia.com/")} == {"0"}
    for space in nonempty(kinds(dra, "Namespace")):
        assert "nvidia.com" not in space["metadata"].get("annotations", {}).get(vocabulary.ALLOWED_RESOURCES, "")


def test_every_class_is_in_every_quota_as_device_and_as_resource(dra: Plan, claimed: Loaded) -> None:
    class_names = {*claimed.environment.flavors, *DRIVER_CLASSES}
    for item in nonempty(quotas_of(dra)):
        hard = item["spec"]["hard"]
        for name in class_names:
            assert hard[name + CLASS_QUOTA] == hard[CLASS_AS_RESOURCE + name], "either way the same number"


@pytest.mark.parametrize(
    ("namespace", "device_class", "count"),
    [
        ("fraud--train", "a100", "32"),  # 16 and 16 borrowed
        ("fraud--train", "a100-1g.5gb", "0"),
        ("fraud--serve", "a100-1g.5gb", "14"),
        ("research--main", "a100-1g.5gb", "0"),
        ("research--main", "l4", "4"),
        *((name, driver, "0") for name in ("fraud--train", "research--main") for driver in DRIVER_CLASSES),
    ],
)
def test_a_namespace_holds_of_a_class_what_it_holds_of_the_flavor(
    dra: Plan, namespace: str, device_class: str, count: str
) -> None:
    assert _quota(dra, namespace)[device_class + CLASS_QUOTA] == count


def test_every_quota_key_of_claims_is_one_that_the_api_server_counts(dra: Plan) -> None:
    assert unenforced_quota_keys({key for q in kinds(dra, "ResourceQuota") for key in q["spec"]["hard"]}) == []


def test_a_tenants_claims_may_name_its_own_flavors_alone(dra: Plan) -> None:
    assert _annotations(dra, "fraud--train")[vocabulary.ALLOWED_DEVICE_CLASSES] == "a100,a100-1g.5gb"
    assert _annotations(dra, "research--main")[vocabulary.ALLOWED_DEVICE_CLASSES] == "a100,l4"


# Guards and roles


def test_claims_and_their_templates_are_guarded(dra: Plan) -> None:
    guards = _guards(dra)
    assert guards["tenancy-resourceclaims"] == ["gpu-08", "gpu-11"]
    assert guards["tenancy-resourceclaimtemplates"] == ["gpu-08"]


def test_beside_claims_the_same_rules_stand_in_the_same_guards(dra: Plan, plan: Plan) -> None:
    guards = _guards(dra)
    del guards["tenancy-resourceclaims"], guards["tenancy-resourceclaimtemplates"]
    assert guards == _guards(plan)


def test_the_marker_knows_which_way_devices_are_handed_out(dra: Plan, plan: Plan) -> None:
    assert dra.platform.marker["data"]["digest"] != plan.platform.marker["data"]["digest"]


def _claim_verbs(plan: Plan, role: Role) -> set[str]:
    (cluster_role,) = [r for r in plan.platform.roles if r["metadata"]["name"] == role_name(role)]
    return {v for rule in cluster_role["rules"] if "resource.k8s.io" in rule["apiGroups"] for v in rule["verbs"]}


@pytest.mark.parametrize("role", PERSONAS)
def test_roles_that_run_workloads_make_claims_and_all_roles_see_them(dra: Plan, role: Role) -> None:
    makes = {"create", "delete"} if role in {Role.DEVELOPER, Role.OWNER} else set()
    assert _claim_verbs(dra, role) == {"get", "list", "watch"} | makes


def test_no_role_writes_the_status_of_a_claim_or_a_class(dra: Plan) -> None:
    rules = [rule for role in dra.platform.roles for rule in role["rules"]]
    resources = {resource for rule in rules if "resource.k8s.io" in rule["apiGroups"] for resource in rule["resources"]}
    assert resources == {"resourceclaims", "resourceclaimtemplates"}


def test_the_policy_pack_has_nothing_against_a_plan_with_claims(dra: Plan) -> None:
    items = list(dra.objects())
    alone = (finding for item in items for finding in object_findings(item))
    assert [*alone, *guard_findings(items)[0], *findings_together(items)] == []


# Without claims


def test_with_the_device_plugin_there_is_nothing_to_claim_and_no_right_to(plan: Plan) -> None:
    assert kinds(plan, "DeviceClass") == []
    assert every(_claim_verbs(plan, role) == set() for role in PERSONAS)
    assert not any("resourceclaim" in name for name in _guards(plan))
    assert vocabulary.ALLOWED_DEVICE_CLASSES not in str(list(plan.objects()))


def test_with_the_device_plugin_every_quota_has_room_for_no_claim(plan: Plan) -> None:
    for item in nonempty(quotas_of(plan)):
        assert {item["spec"]["hard"][key] for key in CLAIM_COUNTS} == {"0"}
        assert not any("deviceclass" in key for key in item["spec"]["hard"])
