"""The page of what happens when something fails, and the parts of it that need no cluster."""

from __future__ import annotations

import ast
import copy
import re
from functools import cache
from pathlib import Path

import pytest

from tenancy.kube.objects import Object
from tenancy.planning import Plan, make_plan
from tenancy.planning.guards import READINESS_PROBE
from tests.conftest import SpecFolder, nonempty

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (R\d+) \|.*\| (.+) \|$", re.MULTILINE)
TEST_REFERENCE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
NEWEST, BEFORE, OLDEST = "1.36", "1.35", "1.30"
SINCE = {"MutatingAdmissionPolicy": NEWEST, "MutatingAdmissionPolicyBinding": NEWEST}
"""Kinds that older API servers do not have in the version that the plan is written in."""
STABLE = {
    "v1",
    *("admissionregistration.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1"),
    *("flowcontrol.apiserver.k8s.io/v1", "rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1"),
}
"""Versions of built-in kinds that the oldest API server has."""
ISOLATION_KINDS = {"LimitRange", "NetworkPolicy", "ResourceQuota", "ValidatingAdmissionPolicy"}
BINDING_KINDS = {"RoleBinding", "ValidatingAdmissionPolicyBinding"}


def rows() -> dict[str, list[tuple[str, str]]]:
    """Each property with the tests that the page names for it."""
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    return {id: TEST_REFERENCE.findall(tests) for id, tests in ROW.findall(page)}


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_page_has_a_row_for_each_property() -> None:
    assert list(rows()) == [f"R{number}" for number in range(1, 16)]


@pytest.mark.parametrize("id", [f"R{number}" for number in range(1, 16)])
def test_a_test_that_the_page_names_is_there(id: str) -> None:
    test_references = rows()[id]
    assert test_references, f"{id} names no test"
    for path, name in test_references:
        assert name.startswith("test_"), f"{id}: {path} names no test"
        assert name in functions(path), f"{id}: {path}::{name}"


def objects(plan: Plan, kinds: set[str]) -> list[Object]:
    return [item for item in plan.objects() if item["kind"] in kinds]


def test_no_change_of_a_file_makes_a_isolation_resource_or_a_binding_anew(plan: Plan) -> None:
    """The provider makes anew what gets another role or, of a quota, other scopes (`forceNew` in its diff.go); in
    between there would be neither the old nor the new one. Both follow from the name, and another name is another
    object, which is made before the old one goes."""
    isolation_objects = objects(plan, ISOLATION_KINDS | BINDING_KINDS)
    assert {item["kind"] for item in isolation_objects} == ISOLATION_KINDS | BINDING_KINDS
    assert not [item["metadata"] for item in isolation_objects if "scopes" in item.get("spec", {})]
    for item in nonempty(objects(plan, BINDING_KINDS)):
        name = item["metadata"]["name"]
        leads = item["roleRef"]["name"] if "roleRef" in item else item["spec"]["policyName"]
        assert leads.removeprefix("tenancy-") == name.removeprefix("tenancy-"), name


def on(spec: SpecFolder, version: str) -> dict[tuple[str, ...], Object]:
    text = (spec.path / "environment.yaml").read_text("utf-8")
    spec.write("environment.yaml", re.sub(r'kubernetes: "[\d.]+"', f'kubernetes: "{version}"', text))
    loaded = spec.load()
    planned_objects = make_plan(loaded, loaded.day).objects()
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): copy.deepcopy(item)
        for item in planned_objects
    }


def split(item: Object) -> tuple[Object, dict[str, str]]:
    """An object without the versions of Pod Security that its labels pin, and these."""
    labels = item["metadata"]["labels"]
    pins = {key: labels.pop(key) for key in list(labels) if re.fullmatch(r"pod-security\..*-version", key)}
    return item, pins


def without_probe_hosts(item: Object) -> Object:
    """An object without pod-05, the guard's check in the place of one that Pod Security has from 1.34 on."""
    if item["kind"] != "ValidatingAdmissionPolicy":
        return item
    spec = item["spec"]
    validations = [
        validation for validation in spec["validations"] if not str(validation["message"]).startswith("pod-05")
    ]
    return {**item, "spec": {**spec, "validations": validations}}


@pytest.mark.parametrize("version", [BEFORE, OLDEST])
def test_an_upgrade_changes_the_pinned_standard_and_nothing_else(spec: SpecFolder, version: str) -> None:
    older, newer = on(spec, version), on(spec, NEWEST)
    assert {kind for kind, *_ in newer.keys() - older.keys()} <= SINCE.keys()
    assert older.keys() <= newer.keys()
    pinned = 0
    for key, item in older.items():
        (before, old), (after, new) = split(without_probe_hosts(item)), split(newer[key])
        if key[2] in {"guards", READINESS_PROBE}:
            continue  # they tell which guards there are
        assert before == after, key
        assert set(old.values()) <= {f"v{version}"}
        assert set(new.values()) <= {f"v{NEWEST}"}
        assert old.keys() == new.keys()
        pinned += bool(old)
    assert pinned == sum(kind == "Namespace" for kind, *_ in older)


def test_the_oldest_api_server_has_every_version_that_is_asked_of_it(spec: SpecFolder) -> None:
    api_versions = {item["apiVersion"] for key, item in on(spec, OLDEST).items() if key[0] not in SINCE}
    assert {version for version in api_versions if "kueue" not in version and "cilium" not in version} <= STABLE
