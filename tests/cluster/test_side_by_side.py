"""A slice of the comparison of docs/side-by-side.md: what another way to share a cluster lets through, and ours not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from scripts import columns
from scripts.columns import COLUMNS, Column
from scripts.side_by_side import (
    Verdict,
    attacks_of,
    comparable_attacks,
    has_meaning,
    page,
    prepared_lab,
    verdicts_of_column,
)
from tenancy.planning import make_plan
from tenancy.rules.workloads import CLUSTER_ADMIN
from tenancy.spec.loader import Loaded, load
from tenancy.verify.attacks import Attack
from tests.conftest import every

pytestmark = pytest.mark.exhaustive(
    reason="other ways to share a cluster are attacked for a page of the documentation; no guarantee of ours"
)

SLICE = ("gpu-02-pod-env", "sched-01-pod-all", "rbac-mint-token", "rbac-list-nodes", "pod-security-pod-host-network")
COMPARED = {column.key: column for column in COLUMNS if column.key in ("ours", "plain")}


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(columns.ROOT / "stacks" / "local")


@pytest.fixture(scope="module")
def attacks(loaded: Loaded) -> Sequence[Attack]:
    return attacks_of(loaded)


@pytest.fixture(scope="module")
def verdicts(loaded: Loaded, attacks: Sequence[Attack]) -> Mapping[str, Mapping[str, Verdict]]:
    """One column after another."""
    compared_attacks = [attack for attack in attacks if attack.id.startswith(SLICE) and not has_meaning(attack)]
    with prepared_lab(loaded, make_plan(loaded, loaded.day)) as (api, lab):
        return {key: verdicts_of_column(api, lab, column, loaded, compared_attacks) for key, column in COMPARED.items()}


def test_ours_refuses_each_of_them_and_admits_its_twin(verdicts: Mapping[str, Mapping[str, Verdict]]) -> None:
    assert {id: verdict for id, verdict in verdicts["ours"].items() if not (verdict.by and verdict.twin)} == {}


@pytest.mark.parametrize("id", ["gpu-02-pod-env", "sched-01-pod-all", "rbac-mint-token"])
def test_a_plain_namespace_lets_it_through(verdicts: Mapping[str, Mapping[str, Verdict]], id: str) -> None:
    assert verdicts["plain"][id] == Verdict("", twin=True)


@pytest.mark.parametrize("id", ["rbac-list-nodes", "pod-security-pod-host-network@fraud--train"])
def test_a_plain_namespace_refuses_what_kubernetes_itself_refuses(
    verdicts: Mapping[str, Mapping[str, Verdict]], id: str
) -> None:
    assert verdicts["plain"][id].by
    assert verdicts["plain"][id].twin


# What is compared


def test_what_an_administrator_asks_is_left_out_and_counted(attacks: Sequence[Attack]) -> None:
    by_admin = [attack for attack in attacks if attack.request.who == CLUSTER_ADMIN and not attack.skipped]
    assert by_admin
    assert every(has_meaning(attack) for attack in by_admin)
    nothing = {key: {a.id: Verdict("x", True) for a in attacks} for key in COMPARED}
    comparable, excluded = comparable_attacks(attacks, nothing)
    assert len(comparable) + excluded.total() == len(attacks), "each is compared or left out with a reason"


def test_an_attack_counts_only_where_its_twin_is_admitted(attacks: Sequence[Attack]) -> None:
    first, second = [attack for attack in attacks if not has_meaning(attack)][:2]
    verdicts = {"a": {first.id: Verdict("x", True), second.id: Verdict("x", False)}}
    comparable, excluded = comparable_attacks([first, second], verdicts)
    assert comparable == [first]
    assert excluded.total() == 1


def test_the_page_counts_what_got_through_by_family(attacks: Sequence[Attack]) -> None:
    gpu_attacks = [attack for attack in attacks if attack.rule == "gpu-02" and not has_meaning(attack)]
    columns: list[Column] = [*COMPARED.values()]
    verdicts_by_column = {
        "ours": {a.id: Verdict("guard", True) for a in gpu_attacks},
        "plain": {a.id: Verdict("", True) for a in gpu_attacks},
    }
    text = page(columns, verdicts_by_column, gpu_attacks)
    assert f"| **got through** | **{len(gpu_attacks)}** | **0** |" in text
    assert f"| GPUs and devices | {len(gpu_attacks)} | {len(gpu_attacks)} | 0 |" in text
