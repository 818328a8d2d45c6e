"""The bank of `stacks/bank`: 15 teams on 640 GPUs, and what its files refuse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import pools_of
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import SharingPreset
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load
from tests.conftest import SpecFolder, every, nonempty

ROOT = Path(__file__).parents[3]
BANK = ROOT / "stacks" / "bank"
PAGE = (ROOT / "docs" / "pools.md").read_text("utf-8")
ENV, FRAUD = "environment.yaml", "tenants/fraud.yaml"
BOARD = "a100-40gb"
PROMISED, SPARE = 576, 64


class Bank(SpecFolder):
    """A copy of the bank's files, in which a test makes a mistake."""

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.copytree(BANK, path)

    def drop_pool(self, name: str) -> None:
        lines = (self.path / ENV).read_text("utf-8").splitlines(keepends=True)
        start = lines.index(f"  {name}:\n")
        lines_after = [i for i, line in enumerate(lines) if i > start and not line.startswith("    ")]
        self.write(ENV, "".join(lines[:start] + lines[lines_after[0] if lines_after else len(lines) :]))


@pytest.fixture
def copy(tmp_path: Path) -> Bank:
    return Bank(tmp_path / "bank")


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(BANK)


@pytest.fixture(scope="module")
def environment(bank: Loaded) -> Environment:
    return bank.environment


@pytest.fixture(scope="module")
def tenants(bank: Loaded) -> dict[str, Tenant]:
    return {tenant.tenant: tenant for tenant in bank.tenants}


@pytest.fixture(scope="module")
def bank_plan(bank: Loaded) -> Plan:
    return make_plan(bank, bank.day)


def guaranteed(tenants: dict[str, Tenant], flavor: str) -> int:
    return sum(tenant.gpus[flavor].guaranteed for tenant in tenants.values() if flavor in tenant.gpus)


def hard(plan: Plan, tenant: str, part: str) -> dict[str, str]:
    quotas = [
        item["spec"]["hard"]
        for item in plan.tenant(tenant).objects()
        if (item["kind"], item["metadata"]["name"]) == ("ResourceQuota", "tenant")
        and item["metadata"]["namespace"] == f"{tenant}--{part}"
    ]
    assert len(quotas) == 1, f"one quota in {tenant}--{part}"
    return quotas[0]


# Pools


def test_the_reservation_holds_640_gpus_in_80_nodes(environment: Environment) -> None:
    reserved = [pool for pool in environment.pools.values() if pool.purchase.reservation_id]
    assert len({pool.purchase.reservation_id for pool in reserved}) == 1
    assert sum(pool.nodes.min for pool in reserved) == 80
    assert sum(pool.nodes.min * pool.machine.gpus for pool in reserved) == 640
    assert {pool.machine.gpu for pool in reserved} == {BOARD}


@pytest.mark.parametrize(
    ("pool", "node"),
    [
        ("train-a100", {"a100": 8}),
        ("train-efa", {"a100": 8}),
        ("serve-mig", {"a100-1g.5gb": 32, "a100-3g.20gb": 8}),
        ("notebooks", {"l4-shared": 16}),
    ],
)
def test_a_node_of_each_pool_yields(environment: Environment, pool: str, node: dict[str, int]) -> None:
    assert environment.flavors_of(pool) == node


def test_shared_gpus_serve_one_interruptible_tenant(environment: Environment, tenants: dict[str, Tenant]) -> None:
    users = [tenants[name] for pool in environment.pools.values() if pool.gpu_sharing for name in pool.tenants]
    assert [user.tenant for user in users] == ["notebooks-lab"]
    assert every(environment.tiers[tier].interruptible for user in users for tier in user.tiers)


def test_slices_are_open_to_production_inference_alone(environment: Environment, tenants: dict[str, Tenant]) -> None:
    for tenant in nonempty(tenants.values()):
        for part in nonempty(tenant.namespaces):
            slices = {f for f, count in tenant.guaranteed_in(part).items() if count and environment.flavors[f].mig}
            assert not slices or tenant.tier_of(part) == "production-inference"


# Tiers and tenants


def test_fifteen_teams_have_a_file_of_at_most_35_lines(bank: Loaded) -> None:
    assert len(bank.tenants) == 15
    for path in sorted((BANK / "tenants").iterdir()):
        assert len(path.read_text("utf-8").splitlines()) <= 35, f"{path.name} is no longer a short file"


def test_inference_stands_above_training_above_research_above_opportunistic(environment: Environment) -> None:
    order = ("production-inference", "production-training", "research", "opportunistic")
    assert [environment.tiers[tier].priority for tier in order] == [1_000_000, 100_000, 1_000, 100]


def test_only_opportunistic_work_is_interruptible(environment: Environment) -> None:
    assert [name for name, tier in environment.tiers.items() if tier.interruptible] == ["opportunistic"]


def test_fraud_has_64_lends_32_and_borrows_128(tenants: dict[str, Tenant]) -> None:
    share = tenants["fraud"].gpus["a100"]
    assert (share.guaranteed, share.lending_limit, share.borrowing_limit) == (64, 32, 128)
    assert share.sharing is SharingPreset.LEND_AND_BORROW


def test_performance_may_borrow_the_200_gpus_of_its_fine_tuning_in_one_pool(
    environment: Environment, tenants: dict[str, Tenant], bank_plan: Plan
) -> None:
    """The pods of a job are admitted into one pool: its own 64 in train-efa and 136 elsewhere would never run it."""
    assert tenants["performance"].gpus["a100"].borrowing_limit == 200
    assert environment.flavors_of("train-a100")["a100"] * environment.pools["train-a100"].nodes.min >= 200
    (queue,) = [o for o in bank_plan.tenant("performance").queues if o["kind"] == "ClusterQueue"]
    quota = {
        (flavor["name"], resource["name"]): (resource["nominalQuota"], resource["borrowingLimit"])
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    }
    assert quota["train-a100", "nvidia.com/gpu"] == ("0", "200")
    assert quota["train-efa.eks-network", "nvidia.com/gpu"] == ("64", "0")


def test_performance_lends_nothing_because_no_other_tenant_may_run_in_its_pool(
    environment: Environment, tenants: dict[str, Tenant]
) -> None:
    efa_pool = environment.pools["train-efa"]
    assert efa_pool.tenants == ("performance",)
    assert efa_pool.nodes.min * efa_pool.machine.gpus == tenants["performance"].gpus["a100"].guaranteed
    assert not tenants["performance"].gpus["a100"].lending_limit


def test_others_lend_more_than_performance_may_borrow(tenants: dict[str, Tenant]) -> None:
    lent = sum(t.gpus["a100"].lending_limit or 0 for t in tenants.values() if "a100" in t.gpus)
    assert lent >= (tenants["performance"].gpus["a100"].borrowing_limit or 0)


@pytest.mark.parametrize(
    ("tenant", "least", "greatest"),
    [("pricing", 16, 16), ("cyber", 16, 16), ("marketing", 8, 32), ("quant-research", 8, 32), ("treasury", 0, 8)],
)
def test_small_shares(tenants: dict[str, Tenant], tenant: str, least: int, greatest: int) -> None:
    share = tenants[tenant].gpus["a100"]
    assert (share.guaranteed, share.guaranteed + (share.borrowing_limit or 0)) == (least, greatest)


# Guarantees


def test_576_of_640_gpus_are_promised_and_64_are_spare(environment: Environment, tenants: dict[str, Tenant]) -> None:
    present_gpus = sum(
        pool.nodes.min * environment.flavors_of(n).get("a100", 0) for n, pool in environment.pools.items()
    )
    assert guaranteed(tenants, "a100") == PROMISED
    assert present_gpus - PROMISED == SPARE


def test_a_lost_node_breaks_no_guarantee_of_slices(environment: Environment, tenants: dict[str, Tenant]) -> None:
    pool, node = environment.pools["serve-mig"], environment.flavors_of("serve-mig")
    for flavor, units_per_node in nonempty(node.items()):
        assert 0 < guaranteed(tenants, flavor) <= units_per_node * (pool.nodes.min - 1), f"{flavor} without one node"


def test_every_namespace_reaches_what_it_holds(environment: Environment, tenants: dict[str, Tenant]) -> None:
    for name, tenant in nonempty(tenants.items()):
        for part in nonempty(tenant.namespaces):
            for flavor, count in nonempty(tenant.guaranteed_in(part).items()):
                pools = pools_of(environment, flavor, name, frozenset({tenant.tier_of(part)}))
                assert pools or not count, f"{name}--{part.name} holds {count} {flavor} that no pool yields to it"


# The plan


def test_the_plan_has_15_tenants_in_20_namespaces(bank_plan: Plan) -> None:
    assert len(bank_plan.tenants) == 15
    assert sum(len(tenant.namespaces) for tenant in bank_plan.tenants) == 20


def test_fraud_s_training_has_the_quota_of_the_story(bank_plan: Plan) -> None:
    expected = {
        "requests.cpu": "200",
        "limits.cpu": "400",
        "requests.memory": "800Gi",
        "limits.memory": "1600Gi",
        "pods": "200",
        "services": "50",
        "persistentvolumeclaims": "100",
        "count/jobs.batch": "500",
        "requests.storage": "100Ti",
        "requests.nvidia.com/gpu": "192",  # 64 guaranteed and 128 borrowed: the queue holds it to that, not the quota
    }
    assert expected.items() <= hard(bank_plan, "fraud", "train").items()


def test_a_production_namespace_has_the_quota_of_the_story(bank_plan: Plan) -> None:
    expected = {"requests.cpu": "128", "limits.cpu": "256", "requests.memory": "512Gi", "limits.memory": "1Ti"}
    assert expected.items() <= hard(bank_plan, "fraud", "serve").items()


def test_performance_alone_has_efa_interfaces_those_of_8_nodes(bank_plan: Plan) -> None:
    efa_quotas = {
        item["metadata"]["namespace"]: item["spec"]["hard"]["requests.vpc.amazonaws.com/efa"]
        for item in bank_plan.objects()
        if item["kind"] == "ResourceQuota" and item["metadata"]["name"] == "tenant"
    }
    assert {name: count for name, count in efa_quotas.items() if count != "0"} == {"performance--train": "32"}


def test_node_groups_are_what_is_always_there_and_change_wave_by_wave(bank_plan: Plan) -> None:
    assert bank_plan.cluster is not None
    groups = [(group.wave, group.name, group.nodes) for group in bank_plan.cluster.groups]
    assert groups == [
        (0, "system", 3),
        (1, "general", 3),
        (1, "notebooks", 1),
        (2, "train-a100", 72),
        (2, "train-efa", 8),
        (3, "serve-mig", 2),
    ]


def test_the_reserved_groups_end_a_node_before_they_make_the_next(bank_plan: Plan) -> None:
    assert bank_plan.cluster is not None
    reserved = {group.name: group.terminates_first for group in bank_plan.cluster.groups if group.reservation}
    assert reserved == {"train-a100": True, "train-efa": True}, "the reservation has no room for one more"


def test_an_upgrade_of_the_shared_pool_takes_less_than_what_is_spare(environment: Environment) -> None:
    pool = environment.pools["train-a100"]
    assert pool.upgrade.max_unavailable * pool.machine.gpus < SPARE


def test_karpenter_makes_the_other_8_nodes_for_serving(bank_plan: Plan) -> None:
    pools = [item for item in bank_plan.platform.services.nodes if item["kind"] == "NodePool"]
    assert [(item["metadata"]["name"], item["spec"]["limits"]["nodes"]) for item in pools] == [("serve-mig", "8")]


# Mistakes


def problem(copy: Bank) -> Any:
    problems = copy.problems()
    assert len(problems) == 1, f"one problem was expected: {[str(p) for p in problems]}"
    return problems[0]


def test_taking_the_serving_pool_away_names_the_tenants_that_hold_a_share(copy: Bank) -> None:
    copy.drop_pool("serve-mig")
    problems_by_field = {p.field: p for p in copy.problems()}
    assert set(problems_by_field) == {"flavors.a100-1g.5gb", "flavors.a100-3g.20gb"}
    assert {p.id for p in problems_by_field.values()} == {"pool-01"}
    assert "cyber, document-ai, fraud, pricing hold a share" in problems_by_field["flavors.a100-1g.5gb"].given
    assert problems_by_field["flavors.a100-1g.5gb"].given in PAGE
    assert "document-ai, fraud, pricing, voice hold a share" in problems_by_field["flavors.a100-3g.20gb"].given


def test_the_last_spare_gpu_may_be_promised(copy: Bank) -> None:
    copy.edit(FRAUD, "a100: {guaranteed: 64", f"a100: {{guaranteed: {64 + SPARE}")
    assert copy.problems() == ()


def test_one_gpu_more_than_there_is_is_refused_with_the_sum(copy: Bank) -> None:
    copy.edit(FRAUD, "a100: {guaranteed: 64", f"a100: {{guaranteed: {64 + SPARE + 1}")
    over_promise = problem(copy)
    assert over_promise.id == "pool-03"
    assert over_promise.given.endswith("= 577 guaranteed of 576 a100 in train-a100")
    assert over_promise.given in PAGE


def test_what_performance_gives_up_in_its_own_pool_is_guaranteed_to_no_other_tenant(copy: Bank) -> None:
    copy.edit("tenants/performance.yaml", "guaranteed: 64", "guaranteed: 0")
    copy.edit(FRAUD, "a100: {guaranteed: 64", f"a100: {{guaranteed: {64 + SPARE + 1}")
    over_promise = problem(copy)
    assert over_promise.id == "pool-03"
    assert over_promise.given.endswith("= 577 guaranteed of 576 a100 in train-a100"), (
        "640 are there, but 64 are EFA nodes"
    )


NOTEBOOKS, SERVE = "tenants: [notebooks-lab]", "layout: {1g.5gb: 4, 3g.20gb: 1}"
LAB = "g6.12xlarge\n    nodes: 1\n    gpu-sharing: {time-slicing: 4}"
MISTAKES = [
    ("pool-02", NOTEBOOKS, "tenants: [notebooks-lab, churn]"),
    ("pool-04", LAB, LAB.replace("12x", "x").replace("4}", "48}")),
    ("pool-05", NOTEBOOKS, "tenants: [fraud]"),
    ("pool-06", "tenants: [performance]", "tenants: [performance, nlp]"),
    ("pool-07", "    zones: [eu-central-1a]\n    upgrade", "    upgrade"),
    ("pool-07", "nodes: {min: 2, max: 10}", "nodes: {min: 2, max: 10}\n    purchase: spot"),
    ("pool-08", f"mig: {{{SERVE}}}", f"mig: {{{SERVE}}}\n    gpu-sharing: {{mps: 2}}"),
    ("pool-09", "g6.12xlarge", "g6f.xlarge"),
    ("mig-01", SERVE, "layout: {1g.10gb: 4, 3g.40gb: 1}"),
    ("mig-01", SERVE, "layout: {1g.5gb: 5, 3g.20gb: 1}"),
    ("mig-01", SERVE, "per-gpu: [{gpus: 6, slices: {1g.5gb: 7}}, {gpus: 4, slices: {3g.20gb: 2}}]"),
    ("ami-01", "g6.12xlarge", "g6.12xlarge\n    ami-release: v20260512"),
    ("dra-01", "cni: cilium}", "cni: cilium, devices: dra}"),
]


@pytest.mark.parametrize(("rule", "old", "new"), MISTAKES, ids=[f"{rule} {new}" for rule, _, new in MISTAKES])
def test_the_page_on_pools_shows_what_is_printed(copy: Bank, rule: str, old: str, new: str) -> None:
    copy.edit(ENV, old, new)
    texts = [problem.given for problem in copy.problems() if problem.id == rule]
    assert texts, f"{rule} should refuse {new!r}"
    assert any(text in PAGE for text in texts), f"docs/pools.md should say {texts}"


def test_the_message_on_the_page_is_printed_where_it_says(copy: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.edit(ENV, SERVE, "layout: {1g.5gb: 5, 3g.20gb: 1}")
    monkeypatch.chdir(copy.path.parent)
    assert f"stacks/{problem(copy)}" in PAGE, "paste it again: the line moved, or the words did"


def test_a_node_may_be_cut_in_parts(copy: Bank) -> None:
    copy.edit(ENV, "    nodes: {min: 2, max: 10}", "    nodes: {min: 4, max: 10}")
    copy.edit(ENV, SERVE, "per-gpu: [{gpus: 6, slices: {1g.5gb: 7}}, {gpus: 1, slices: {3g.20gb: 2}}]")
    assert copy.load().environment.flavors_of("serve-mig") == {"a100": 1, "a100-1g.5gb": 42, "a100-3g.20gb": 2}
