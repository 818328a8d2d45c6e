"""Costs of the platform without its GPU machines, and the extra machines of an upgrade."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy import planning
from tenancy.catalog.days import today
from tenancy.cli import main
from tenancy.planning.aws.cluster import cluster_plan, upgrade_surges
from tenancy.planning.fixed_costs import FixedCost, fixed_costs
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, every

BANK = Path(__file__).parents[3] / "stacks" / "bank"


LOADED = load(BANK)


@pytest.fixture(scope="module")
def bank() -> Environment:
    return LOADED.environment


def costs(environment: Environment, tenants: Any = LOADED.tenants) -> dict[str, FixedCost]:
    return {cost.item: cost for cost in fixed_costs(environment, planning.plan(environment, tenants))}


def with_aws(environment: Environment, **updates: Any) -> Environment:
    return environment.model_copy(update={"aws": environment.aws.model_copy(update=updates)})


def test_the_bank_pays_for_what_it_makes() -> None:
    cost_by_item = costs(LOADED.environment)
    assert {item: cost.count for item, cost in cost_by_item.items()} == {
        "control plane": 1,
        "NAT gateways": 3,
        "public IPv4 addresses": 3,
        "interface endpoints": 30,
        "GB of control plane logs": 100,
        "KMS key of the cluster": 1,
        "nodes of system": 3,
        "nodes of general": 3,
        "GiB of root volumes of nodes without GPUs": 6 * 200,
        "GiB of root volumes of nodes with GPUs": 83 * 50,
        "KMS keys of buckets": 4,
        "KMS keys of tenants": 2,
        "secrets of tenants": 2,
    }
    assert cost_by_item["control plane"].month == Decimal("73.00")
    assert cost_by_item["interface endpoints"].month == Decimal("219.00")
    assert cost_by_item["nodes of system"].month == 3 * Decimal("0.2016") * 730


def test_a_zone_more_costs_a_gateway_an_address_and_an_endpoint_of_each_service(bank: Environment) -> None:
    two = costs(with_aws(bank, zones=bank.aws.zones[:2]))
    assert [two[item].count for item in ("NAT gateways", "public IPv4 addresses", "interface endpoints")] == [2, 2, 20]


def test_what_is_given_is_not_paid_for_here(bank: Environment) -> None:
    subnets = {zone: f"subnet-0123abc{zone[-1]}" for zone in bank.aws.zones}
    network = bank.aws.network.model_copy(update={"vpc": "vpc-0123abcd", "subnets": subnets})
    cost_by_item = costs(
        with_aws(bank, network=network, kms_key_arn="arn:aws:kms:eu-central-1:111122223333:key/0123abcd")
    )
    assert not {"NAT gateways", "public IPv4 addresses", "interface endpoints", "KMS key of the cluster"} & set(
        cost_by_item
    )
    assert "control plane" in cost_by_item


def test_a_machine_without_a_price_is_unknown_and_in_no_sum(bank: Environment) -> None:
    system = bank.aws.system.model_copy(update={"instance_type": "m9x.xlarge"})
    cost_by_item = costs(with_aws(bank, system=system))
    assert cost_by_item["nodes of system"].month is None
    assert every(cost.month is not None for item, cost in cost_by_item.items() if item != "nodes of system")


def test_a_price_of_the_file_counts_before_the_list(bank: Environment) -> None:
    priced_bank = bank.model_copy(
        update={"costs": bank.costs.model_copy(update={"pools": {"general": Decimal("1.00")}})}
    )
    assert costs(priced_bank)["nodes of general"].month == 3 * 730


def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["report", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_says_that_it_estimates_and_sums_up() -> None:
    value = json.loads(run("costs", str(BANK), "--format", "json"))
    assert value["estimate"] is True
    assert value["prices"]["region"] == "us-east-1"
    assert value["month"] == pytest.approx(sum(item["month"] for item in value["items"]), abs=0.1)
    text = " ".join(run("costs", str(BANK)).split())
    assert "an estimate and no bill, and eu-central-1 has other prices" in text
    assert f"{value['month']:,.2f}" in text


def test_an_environment_without_aws_has_nothing_to_estimate(spec: SpecFolder) -> None:
    assert run("costs", str(spec.path)).startswith("Nothing to estimate: aws.enabled is false")


def test_a_cluster_of_another_tool_costs_what_tenants_keys_and_secrets_do(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", f"  mode: existing\n{ON_AWS}")
    spec.add("tenants/fraud.yaml", "aws-resources: {secrets: [card-network, ledger]}\n")
    loaded = spec.load()
    cost_by_item = costs(loaded.environment, loaded.tenants)
    assert cost_by_item["secrets of tenants"].count == 2
    assert not {"control plane", "NAT gateways", "nodes of system"} & set(cost_by_item)


# Nodes during an upgrade


def surges(environment: Environment, **pool: Any) -> dict[str, int]:
    pools = {**environment.pools, "notebooks": environment.pools["notebooks"].model_copy(update=pool)}
    plan = cluster_plan(environment.model_copy(update={"pools": pools}), today())
    return {surge.group: surge.more for surge in upgrade_surges(plan)}


def test_a_surge_is_twice_the_zones_and_a_reservation_has_none(bank: Environment) -> None:
    assert surges(bank) == {
        "system": 6,
        "general": 6,
        "notebooks": 6,
        "serve-mig": 6,
        "train-a100": 0,
        "train-efa": 0,
    }


def test_one_zone_needs_two_more_nodes_and_many_at_once_as_many(bank: Environment) -> None:
    assert surges(bank, zones=("eu-central-1a",))["notebooks"] == 2
    upgrade = bank.pools["notebooks"].upgrade.model_copy(update={"max_unavailable": 9})
    assert surges(bank, upgrade=upgrade)["notebooks"] == 9


def test_the_report_of_capacity_names_the_pools_whose_machines_are_scarce() -> None:
    text = " ".join(run("capacity", str(BANK)).split())
    assert "notebooks, serve-mig: EKS starts up to twice as many nodes as the group has zones" in text
    value = json.loads(run("capacity", str(BANK), "--format", "json"))
    assert {upgrade["group"]: upgrade["more"] for upgrade in value["upgrades"]}["serve-mig"] == 6
