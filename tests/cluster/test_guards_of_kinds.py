"""Guards over the kinds of work that others' operators run, on a real API server with Kueue's own webhooks before them.

The operators do not run here: what is asked is refused or admitted before they would see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.live.denial import AuditLog
from tenancy.live.verify import run
from tenancy.plan import make_plan
from tenancy.plan.guards import guards
from tenancy.spec import load
from tests.attacks.attack_lab import (
    ROOT,
    Cluster,
    Mutant,
    claimed,
    deployed,
    halves,
    local,
    turned,
    without_controllers,
)
from tests.operators import crds, training_runtime

GUARD = "tenancy-frameworks"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("kinds")
    loaded = load(local(folder / "local", kinds=FRAMEWORKS))
    plan = make_plan(loaded.environment, loaded.tenants)
    with deployed(loaded, plan, folder / "lab", crds(), [training_runtime()]) as found:
        yield found


@pytest.fixture(scope="module")
def on_kinds(cluster: Cluster) -> Cluster:
    """Of the attacks those that go through kinds of others."""
    return replace(cluster, attacks=tuple(a for a in cluster.attacks if f"/{GUARD}:" in a.expected_denier))


@pytest.fixture(scope="module")
def mutant(on_kinds: Cluster) -> Iterator[Mutant]:
    mutant = Mutant(on_kinds)
    yield mutant
    mutant.without(frozenset())


def test_every_kind_of_work_is_attacked_and_refused_by_its_own_guard(cluster: Cluster, on_kinds: Cluster) -> None:
    results = run(cluster.api, cluster.attacks, AuditLog(cluster.audit_log))
    assert [result.as_dict() for result in results if result.gap] == []
    asked = {a.request.path.rpartition("/")[2] for a in on_kinds.attacks}
    assert asked == {framework.resource for framework in FRAMEWORKS.values()}


def _rules() -> list[str]:
    loaded = load(ROOT / "stacks" / "local")
    queues = loaded.environment.queues.model_copy(update={"kinds": tuple(FRAMEWORKS)})
    environment = loaded.environment.model_copy(update={"queues": queues})
    (found,) = (guard for guard in guards(environment) if guard.name == GUARD)
    return sorted({*found.rules} - {"ns-02"})


@pytest.mark.parametrize("rule", _rules())
def test_every_rule_is_attacked_through_these_kinds(on_kinds: Cluster, rule: str) -> None:
    assert claimed(on_kinds, rule) != set()


@pytest.mark.parametrize("rules", halves(_rules()).values(), ids=halves(_rules()))
def test_without_some_rules_exactly_their_attacks_through_these_kinds_get_through(
    on_kinds: Cluster, mutant: Mutant, rules: frozenset[str]
) -> None:
    with without_controllers(on_kinds):
        asked = mutant.without(rules)
        assert turned(on_kinds, asked) == claimed(on_kinds, *rules)
