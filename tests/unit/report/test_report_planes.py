"""Who can reach whom is read off what is made: a plan in which a wall is missing says so, on that plane alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.tenant_models import TenantAwsPlan
from tenancy.planning.common.meta import Meta
from tenancy.planning.kubernetes.namespace_objects import (
    EGRESS,
    INGRESS,
    LimitRange,
    NetworkPolicy,
    NetworkRule,
    Peer,
    PodAccount,
    ResourceQuota,
    RoleSubject,
)
from tenancy.planning.plan_model import NamespacePlan
from tenancy.report.network import admits_outside_traffic, opening_policy
from tenancy.report.planes import Cell, CellKind, IsolationMatrix, Plane
from tenancy.rules.catalogue import RULES
from tenancy.spec.loader import Loaded, load
from tests.conftest import SpecFolder, every

ROOT = Path(__file__).parents[3]
FRAUD_OF_RESEARCH, RESEARCH_OF_FRAUD = ("fraud", "research"), ("research", "fraud")


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks/bank")


@pytest.fixture(scope="module")
def planes(bank: Loaded) -> dict[str, Plane]:
    return planes_of(bank, make_plan(bank, bank.day))


def planes_of(loaded: Loaded, plan: Plan) -> dict[str, Plane]:
    return {plane.name: plane for plane in IsolationMatrix(loaded, plan).all()}


def with_changed_namespace(plan: Plan, tenant: str, change: Callable[[NamespacePlan], NamespacePlan]) -> Plan:
    """The plan with another first namespace of the tenant."""
    tenant_plan = plan.tenant(tenant)
    first, *others = tenant_plan.namespaces
    changed_tenant = dataclasses.replace(tenant_plan, namespaces=(change(first), *others))
    return dataclasses.replace(
        plan, tenants=tuple(changed_tenant if candidate.name == tenant else candidate for candidate in plan.tenants)
    )


def kinds(planes: dict[str, Plane], pair: tuple[str, str]) -> dict[str, CellKind]:
    return {name: plane.cells[pair].kind for name, plane in planes.items()}


def test_every_plane_has_a_cell_for_every_pair_of_the_bank(planes: dict[str, Plane], bank: Loaded) -> None:
    names = [tenant.tenant for tenant in bank.tenants]
    pairs = {(row, column) for row in names for column in names if row != column}
    assert list(planes) == ["objects", "network", "data", "nodes", "queues"]
    assert every(set(plane.cells) == pairs for plane in planes.values())


def test_every_cell_names_rules_that_there_are_and_what_proves_them(planes: dict[str, Plane]) -> None:
    cells: list[Cell] = [cell for plane in planes.values() for cell in plane.cells.values()]
    assert {rule for cell in cells for rule in cell.rules} <= set(RULES)
    assert every(cell.rules and cell.enforced_by and cell.proof for cell in cells)


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
    assert (cell.kind, cell.word) == (CellKind.GRANTED, "viewer")


def binding(subject: RoleSubject) -> Callable[[NamespacePlan], NamespacePlan]:
    """The first role for one more subject."""

    def bind(space: NamespacePlan) -> NamespacePlan:
        first, *others = space.bindings
        more = dataclasses.replace(first, subjects=(*first.subjects, subject))
        return dataclasses.replace(space, bindings=(more, *others))

    return bind


def test_a_role_for_the_others_service_account_is_open(loaded: Loaded, plan: Plan) -> None:
    bind = binding(RoleSubject("ServiceAccount", "default", "research--main"))
    before, after = planes_of(loaded, plan), planes_of(loaded, with_changed_namespace(plan, "fraud", bind))
    assert kinds(after, RESEARCH_OF_FRAUD) == kinds(before, RESEARCH_OF_FRAUD) | {"objects": CellKind.OPEN}
    assert kinds(after, FRAUD_OF_RESEARCH) == kinds(before, FRAUD_OF_RESEARCH)


@pytest.mark.parametrize(
    "group", ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:research--main"]
)
def test_a_role_for_all_users_is_open(loaded: Loaded, plan: Plan, group: str) -> None:
    assert planes_of(loaded, plan)["objects"].cells[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED
    after = planes_of(loaded, with_changed_namespace(plan, "fraud", binding(RoleSubject("Group", group))))
    assert after["objects"].cells[RESEARCH_OF_FRAUD].kind is CellKind.OPEN


def test_a_policy_at_both_ends_opens_the_network(loaded: Loaded, plan: Plan) -> None:
    everywhere = [NetworkRule((Peer(namespaces={}),))]

    def let_in(space: NamespacePlan) -> NamespacePlan:
        return dataclasses.replace(space, policies=(*space.policies, policy("open", INGRESS, ingress=everywhere)))

    def let_out(space: NamespacePlan) -> NamespacePlan:
        return dataclasses.replace(space, policies=(*space.policies, policy("out", EGRESS, egress=everywhere)))

    half = with_changed_namespace(plan, "fraud", let_in)
    both = with_changed_namespace(half, "research", let_out)
    assert planes_of(loaded, half)["network"].cells[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED, (
        "nothing leaves research"
    )
    cell = planes_of(loaded, both)["network"].cells[RESEARCH_OF_FRAUD]
    assert (cell.kind, cell.enforced_by) == (CellKind.OPEN, "NetworkPolicy open in fraud--train")


def test_a_namespace_without_its_default_deny_admits_all_traffic(loaded: Loaded, plan: Plan) -> None:
    def tear_down(space: NamespacePlan) -> NamespacePlan:
        return dataclasses.replace(space, policies=())

    open_plan = with_changed_namespace(with_changed_namespace(plan, "fraud", tear_down), "research", tear_down)
    cell = planes_of(loaded, open_plan)["network"].cells[RESEARCH_OF_FRAUD]
    assert (cell.kind, cell.enforced_by) == (CellKind.OPEN, "NetworkPolicy none in fraud--train")


def test_a_queue_that_spends_the_others_share_is_open(loaded: Loaded, plan: Plan) -> None:
    def lead_astray(space: NamespacePlan) -> NamespacePlan:
        first, *others = space.local_queues
        return dataclasses.replace(space, local_queues=(dataclasses.replace(first, queue="research--batch"), *others))

    after = planes_of(loaded, with_changed_namespace(plan, "fraud", lead_astray))["queues"]
    assert after.cells[FRAUD_OF_RESEARCH].kind is CellKind.OPEN
    assert planes_of(loaded, plan)["queues"].cells[FRAUD_OF_RESEARCH].kind is CellKind.CLOSED


def test_what_one_may_borrow_is_what_the_other_lends(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "risk: {title: Risk and Compliance}", "risk: {sharing: lend-and-borrow}")
    spec.edit("environment.yaml", "research: {}", "research: {sharing: lend-and-borrow}")
    spec.edit(
        "tenants/research.yaml", "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend, lending-limit: 5}"
    )
    loaded = spec.load()
    queue_cells = planes_of(loaded, make_plan(loaded, loaded.day))["queues"].cells
    assert (queue_cells[FRAUD_OF_RESEARCH].kind, queue_cells[FRAUD_OF_RESEARCH].word) == (CellKind.GRANTED, "≤ 5")
    assert queue_cells[RESEARCH_OF_FRAUD].kind is CellKind.CLOSED, "research borrows nothing"


def test_departments_that_share_nothing_lend_nothing(spec: SpecFolder) -> None:
    spec.edit(
        "tenants/research.yaml", "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend, lending-limit: 5}"
    )
    loaded = spec.load()
    queue_cells = planes_of(loaded, make_plan(loaded, loaded.day))["queues"].cells
    assert queue_cells[FRAUD_OF_RESEARCH].kind is CellKind.CLOSED


def test_a_shared_pool_is_shared_and_a_pool_of_ones_own_is_apart(planes: dict[str, Plane]) -> None:
    nodes = planes["nodes"].cells
    assert (nodes["fraud", "nlp"].kind, nodes["fraud", "nlp"].word) == (CellKind.SHARED_RESOURCE, "GPUs")
    assert (nodes["fraud", "pricing"].kind, nodes["fraud", "pricing"].word) == (CellKind.SHARED_RESOURCE, "slices")
    assert nodes["fraud", "notebooks-lab"].kind is CellKind.CLOSED


def test_replicas_of_one_gpu_for_two_tenants_are_open(
    loaded: Loaded, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.planning.queueing.quota_shares.open_pools", lambda *_: ["notebooks"])
    assert planes_of(loaded, plan)["nodes"].cells[FRAUD_OF_RESEARCH].kind is CellKind.OPEN


def aws(plan: Plan, name: str) -> TenantAwsPlan:
    tenant_aws = plan.tenant(name).aws
    assert tenant_aws is not None
    return tenant_aws


def test_pods_that_become_the_others_role_are_open(bank: Loaded) -> None:
    plan = make_plan(bank, bank.day)
    nlp_role = next(role for role in aws(plan, "nlp").roles if role.purpose == "train")
    fraud_aws = aws(plan, "fraud")
    leaked = dataclasses.replace(
        fraud_aws,
        roles=(*fraud_aws.roles, nlp_role),
        associations=tuple(
            dataclasses.replace(association, role=nlp_role.arn) for association in fraud_aws.associations
        ),
    )
    tenants = tuple(dataclasses.replace(t, aws=leaked) if t.name == "fraud" else t for t in plan.tenants)
    before, after = planes_of(bank, plan), planes_of(bank, dataclasses.replace(plan, tenants=tenants))
    assert before["data"].cells["fraud", "nlp"].kind is CellKind.CLOSED
    assert after["data"].cells["fraud", "nlp"].kind is CellKind.OPEN
    assert after["data"].cells["fraud", "aml"].kind is CellKind.CLOSED


def test_a_role_that_says_too_much_meets_the_isolation_of_the_bucket(bank: Loaded) -> None:
    plan = make_plan(bank, bank.day)
    nlp_role = next(role for role in aws(plan, "nlp").roles if role.purpose == "train")
    fraud_aws = aws(plan, "fraud")
    wide = tuple(
        dataclasses.replace(r, policies=nlp_role.policies) if r.purpose == "train" else r for r in fraud_aws.roles
    )
    leaked = dataclasses.replace(fraud_aws, roles=wide)
    tenants = tuple(dataclasses.replace(t, aws=leaked) if t.name == "fraud" else t for t in plan.tenants)
    after = planes_of(bank, dataclasses.replace(plan, tenants=tenants))
    assert after["data"].cells["fraud", "nlp"].kind is CellKind.CLOSED


def test_without_aws_and_queues_there_are_no_such_planes(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    loaded = spec.load()
    assert list(planes_of(loaded, make_plan(loaded, loaded.day))) == ["objects", "network", "nodes"]


# NetworkPolicies by themselves


def policy(name: str, *types: str, **rules: Sequence[NetworkRule]) -> NetworkPolicy:
    return NetworkPolicy(Meta(name, {}), types, tuple(rules.get("ingress", ())), tuple(rules.get("egress", ())))


def space(name: str, *policies: NetworkPolicy, **labels: str) -> NamespacePlan:
    meta = Meta(name, labels)
    return NamespacePlan(
        meta, ResourceQuota(meta, {}), (), LimitRange(meta, ()), PodAccount(meta, api_token=False), policies
    )


DENY = policy("deny", INGRESS, EGRESS)
OUT = policy("out", EGRESS, egress=[NetworkRule()])


def admits(name: str, **peer: Any) -> NetworkPolicy:
    return policy(name, INGRESS, ingress=[NetworkRule((Peer(**peer),))])


@pytest.mark.parametrize(
    ("into", "opened"),
    [
        ([], ""),
        ([policy("any", INGRESS, ingress=[NetworkRule()])], "any in b"),
        ([admits("own", pods={})], ""),
        ([admits("range", cidr="10.0.0.0/8")], "range in b"),
        ([admits("public", cidr="8.8.8.0/24")], ""),
        ([admits("all", namespaces={})], "all in b"),
        ([admits("by", namespaces={"t": "a"})], "by in b"),
        ([admits("by", namespaces={"t": "b"})], ""),
        ([admits("named", namespaces={"kubernetes.io/metadata.name": "a"})], "named in b"),
        ([policy("egress", EGRESS, ingress=[NetworkRule()])], ""),
    ],
)
def test_a_connection_needs_a_rule_that_matches(into: list[NetworkPolicy], opened: str) -> None:
    targets = [space("b", DENY, *into, t="b")]
    assert opening_policy([space("a", DENY, OUT, t="a")], targets) == opened
    assert not opened or admits_outside_traffic(targets[0])


def test_a_policy_of_some_pods_leaves_the_others_open() -> None:
    partial = dataclasses.replace(policy("some", INGRESS), pods={"app": "x"})
    assert opening_policy([space("a", DENY, OUT)], [space("b", partial)]) == "none in b"
    assert admits_outside_traffic(space("b", partial))
    assert opening_policy([space("a", DENY)], [space("b", partial)]) == "", "nothing leaves a"


def test_a_namespace_that_denies_all_but_itself_is_not_porous() -> None:
    assert not admits_outside_traffic(space("b", DENY, admits("own", pods={})))
