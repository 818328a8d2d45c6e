"""Who can reach whom is read off what is made: a plan in which a wall is missing says so, on that plane alone."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenancy.kube.objects import Object
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.tenant_aws import TenantAwsPlan
from tenancy.planning.queueing.model import LocalQueue
from tenancy.report.network import opening
from tenancy.report.planes import Cell, CellKind, Plane, Planes
from tenancy.rules.catalogue import RULES
from tenancy.validation import Loaded, load
from tests.conftest import SpecFolder

ROOT = Path(__file__).parents[2]
FRAUD_OF_RESEARCH, RESEARCH_OF_FRAUD = ("fraud", "research"), ("research", "fraud")


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks/bank")


@pytest.fixture(scope="module")
def planes(bank: Loaded) -> dict[str, Plane]:
    return found(bank, make_plan(bank.environment, bank.tenants))


def found(loaded: Loaded, plan: Plan) -> dict[str, Plane]:
    return {plane.name: plane for plane in Planes(loaded, plan).all()}


def changed(plan: Plan, tenant: str, change: Callable[[list[Any]], None], part: str = "walls") -> Plan:
    """The plan with other objects in the tenant's first namespace."""
    one = plan.tenant(tenant)
    first, *others = one.namespaces
    objects = copy.deepcopy(list(getattr(first, part)))
    change(objects)
    first = dataclasses.replace(first, **{part: tuple(objects)})
    made = dataclasses.replace(one, namespaces=(first, *others))
    return dataclasses.replace(plan, tenants=tuple(made if each.name == tenant else each for each in plan.tenants))


def kinds(of: dict[str, Plane], pair: tuple[str, str]) -> dict[str, CellKind]:
    return {name: plane.cells[pair].kind for name, plane in of.items()}


def test_every_plane_has_a_cell_for_every_pair_of_the_bank(planes: dict[str, Plane], bank: Loaded) -> None:
    names = [tenant.tenant for tenant in bank.tenants]
    pairs = {(one, other) for one in names for other in names if one != other}
    assert list(planes) == ["objects", "network", "data", "nodes", "queues"]
    assert all(set(plane.cells) == pairs for plane in planes.values())


def test_every_cell_names_rules_that_there_are_and_what_proves_them(planes: dict[str, Plane]) -> None:
    cells: list[Cell] = [cell for plane in planes.values() for cell in plane.cells.values()]
    assert {rule for cell in cells for rule in cell.rules} <= set(RULES)
    assert all(cell.rules and cell.holds and cell.proof for cell in cells)


def test_nothing_is_open_in_the_bank(planes: dict[str, Plane]) -> None:
    assert [
        (plane.name, *pair)
        for plane in planes.values()
        for pair, cell in plane.cells.items()
        if cell.kind is CellKind.OPEN
    ] == []


def test_a_pair_that_is_attacked_counts_its_attacks(planes: dict[str, Plane]) -> None:
    assert "(18 of this pair)" in planes["objects"].cells["churn", "aml"].proof
    assert "of neighbouring pairs" in planes["objects"].cells["nlp", "aml"].proof


def test_a_group_in_two_files_is_given_and_not_open(planes: dict[str, Plane]) -> None:
    cell = planes["objects"].cells["fraud", "aml"]
    assert (cell.kind, cell.word) == (CellKind.GIVEN, "viewer")


def test_a_role_for_the_others_service_account_is_open(loaded: Loaded, plan: Plan) -> None:
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "research--main"}

    def bind(objects: list[Object]) -> None:
        next(o for o in objects if o["kind"] == "RoleBinding")["subjects"].append(subject)

    before, after = found(loaded, plan), found(loaded, changed(plan, "fraud", bind, "access"))
    assert kinds(after, RESEARCH_OF_FRAUD) == kinds(before, RESEARCH_OF_FRAUD) | {"objects": CellKind.OPEN}
    assert kinds(after, FRAUD_OF_RESEARCH) == kinds(before, FRAUD_OF_RESEARCH)


@pytest.mark.parametrize(
    "group", ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:research--main"]
)
def test_a_role_for_all_users_is_open(loaded: Loaded, plan: Plan, group: str) -> None:
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}

    def bind(objects: list[Object]) -> None:
        next(o for o in objects if o["kind"] == "RoleBinding")["subjects"].append(subject)

    assert found(loaded, plan)["objects"].cells[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED
    after = found(loaded, changed(plan, "fraud", bind, "access"))
    assert after["objects"].cells[RESEARCH_OF_FRAUD].kind is CellKind.OPEN


def test_a_policy_at_both_ends_opens_the_network(loaded: Loaded, plan: Plan) -> None:
    everywhere = [{"namespaceSelector": {}}]

    def let_in(objects: list[Object]) -> None:
        objects.append(policy("open", ["Ingress"], ingress=[{"from": everywhere}]))

    def let_out(objects: list[Object]) -> None:
        objects.append(policy("out", ["Egress"], egress=[{"to": everywhere}]))

    half = changed(plan, "fraud", let_in)
    both = changed(half, "research", let_out)
    assert found(loaded, half)["network"].cells[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED, "nothing leaves research"
    cell = found(loaded, both)["network"].cells[RESEARCH_OF_FRAUD]
    assert (cell.kind, cell.holds) == (CellKind.OPEN, "NetworkPolicy open in fraud--train")


def test_a_namespace_without_its_default_deny_admits_all_traffic(loaded: Loaded, plan: Plan) -> None:
    def tear_down(objects: list[Object]) -> None:
        objects[:] = [o for o in objects if o["kind"] != "NetworkPolicy"]

    open_plan = changed(changed(plan, "fraud", tear_down), "research", tear_down)
    cell = found(loaded, open_plan)["network"].cells[RESEARCH_OF_FRAUD]
    assert (cell.kind, cell.holds) == (CellKind.OPEN, "NetworkPolicy none in fraud--train")


def test_a_queue_that_spends_the_others_share_is_open(loaded: Loaded, plan: Plan) -> None:
    def lead_astray(queues: list[LocalQueue]) -> None:
        queues[0] = dataclasses.replace(queues[0], queue="research--batch")

    after = found(loaded, changed(plan, "fraud", lead_astray, "local_queues"))["queues"]
    assert after.cells[FRAUD_OF_RESEARCH].kind is CellKind.OPEN
    assert found(loaded, plan)["queues"].cells[FRAUD_OF_RESEARCH].kind is CellKind.CLOSED


def test_what_one_may_borrow_is_what_the_other_lends(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "risk: {title: Risk and Compliance}", "risk: {sharing: lend-and-borrow}")
    spec.edit("environment.yaml", "research: {}", "research: {sharing: lend-and-borrow}")
    spec.edit("tenants/research.yaml", "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend, lend-up-to: 5}")
    loaded = spec.load()
    of = found(loaded, make_plan(loaded.environment, loaded.tenants))["queues"].cells
    assert (of[FRAUD_OF_RESEARCH].kind, of[FRAUD_OF_RESEARCH].word) == (CellKind.GIVEN, "≤ 5")
    assert of[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED, "research borrows nothing"


def test_departments_that_share_nothing_lend_nothing(spec: SpecFolder) -> None:
    spec.edit("tenants/research.yaml", "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend, lend-up-to: 5}")
    loaded = spec.load()
    of = found(loaded, make_plan(loaded.environment, loaded.tenants))["queues"].cells
    assert of[FRAUD_OF_RESEARCH].kind is CellKind.CLOSED


def test_a_shared_pool_is_shared_and_a_pool_of_ones_own_is_apart(planes: dict[str, Plane]) -> None:
    nodes = planes["nodes"].cells
    assert (nodes["fraud", "nlp"].kind, nodes["fraud", "nlp"].word) == (CellKind.SHARED, "GPUs")
    assert (nodes["fraud", "pricing"].kind, nodes["fraud", "pricing"].word) == (CellKind.SHARED, "slices")
    assert nodes["fraud", "notebooks-lab"].kind is CellKind.CLOSED


def test_replicas_of_one_gpu_for_two_tenants_are_open(
    loaded: Loaded, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.planning.queueing.quota_shares.open_pools", lambda *_: ["notebooks"])
    assert found(loaded, plan)["nodes"].cells[FRAUD_OF_RESEARCH].kind is CellKind.OPEN


def aws(plan: Plan, name: str) -> TenantAwsPlan:
    found = plan.tenant(name).aws
    assert found is not None
    return found


def test_pods_that_become_the_others_role_are_open(bank: Loaded) -> None:
    plan = make_plan(bank.environment, bank.tenants)
    theirs = next(role for role in aws(plan, "nlp").roles if role.purpose == "train")
    mine = aws(plan, "fraud")
    leaked = dataclasses.replace(
        mine,
        roles=(*mine.roles, theirs),
        associations=tuple(dataclasses.replace(each, role=theirs.arn) for each in mine.associations),
    )
    tenants = tuple(dataclasses.replace(t, aws=leaked) if t.name == "fraud" else t for t in plan.tenants)
    before, after = found(bank, plan), found(bank, dataclasses.replace(plan, tenants=tenants))
    assert before["data"].cells["fraud", "nlp"].kind is CellKind.CLOSED
    assert after["data"].cells["fraud", "nlp"].kind is CellKind.OPEN
    assert after["data"].cells["fraud", "aml"].kind is CellKind.CLOSED


def test_a_role_that_says_too_much_meets_the_isolation_of_the_bucket(bank: Loaded) -> None:
    plan = make_plan(bank.environment, bank.tenants)
    theirs = next(role for role in aws(plan, "nlp").roles if role.purpose == "train")
    mine = aws(plan, "fraud")
    wide = tuple(dataclasses.replace(r, policies=theirs.policies) if r.purpose == "train" else r for r in mine.roles)
    leaked = dataclasses.replace(mine, roles=wide)
    tenants = tuple(dataclasses.replace(t, aws=leaked) if t.name == "fraud" else t for t in plan.tenants)
    after = found(bank, dataclasses.replace(plan, tenants=tenants))
    assert after["data"].cells["fraud", "nlp"].kind is CellKind.CLOSED


def test_without_aws_and_queues_there_are_no_such_planes(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lend-up-to: 8, borrow-up-to: 16", "")
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    loaded = spec.load()
    assert list(found(loaded, make_plan(loaded.environment, loaded.tenants))) == ["objects", "network", "nodes"]


# NetworkPolicies by themselves


def policy(name: str, types: list[str] | None = None, pods: dict[str, Any] | None = None, **rules: Any) -> Object:
    spec = {"podSelector": pods or {}, **({"policyTypes": types} if types else {}), **rules}
    return {"kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


def space(name: str, *policies: Object, **labels: str) -> tuple[Object, list[Object]]:
    return {"metadata": {"name": name, "labels": labels}}, list(policies)


DENY = policy("deny", ["Ingress", "Egress"])
OUT = policy("out", ["Egress"], egress=[{}])


@pytest.mark.parametrize(
    ("into", "opened"),
    [
        ([], ""),
        ([policy("any", ["Ingress"], ingress=[{}])], "any in b"),
        ([policy("own", ["Ingress"], ingress=[{"from": [{"podSelector": {}}]}])], ""),
        ([policy("range", ["Ingress"], ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])], "range in b"),
        (
            [policy("by", ["Ingress"], ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"t": "a"}}}]}])],
            "by in b",
        ),
        ([policy("by", ["Ingress"], ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"t": "b"}}}]}])], ""),
        ([policy("no-types", None, ingress=[{}])], "no-types in b"),
        ([policy("egress", ["Egress"], ingress=[{}])], ""),
    ],
)
def test_a_connection_needs_a_rule_that_matches(into: list[Object], opened: str) -> None:
    assert opening([space("a", DENY, OUT, t="a")], [space("b", DENY, *into, t="b")]) == opened


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["a"], True),
        ("In", ["b"], False),
        ("NotIn", ["a"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_expressions_of_a_selector_mean_what_kubernetes_says(operator: str, values: Any, matches: bool) -> None:
    selector = {"matchExpressions": [{"key": "t", "operator": operator, **({"values": values} if values else {})}]}
    into = policy("by", ["Ingress"], ingress=[{"from": [{"namespaceSelector": selector}]}])
    assert bool(opening([space("a", DENY, OUT, t="a")], [space("b", DENY, into)])) is matches


def test_a_policy_of_some_pods_leaves_the_others_open() -> None:
    some = policy("some", ["Ingress"], {"matchLabels": {"app": "x"}})
    assert opening([space("a", DENY, OUT)], [space("b", some)]) == "none in b"
    assert opening([space("a", DENY)], [space("b", some)]) == "", "nothing leaves a"
