"""The same attacks where namespaces have names that say nothing of their tenants, as on a cluster that was there
before: one lab of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attack_lab import Cluster, _edit, deployed, gaps, local

from tenancy.catalog import vocabulary
from tenancy.planning import make_plan
from tenancy.spec.loader import load

PATTERN = 'namespace-name: "ml-{tenant}-{namespace}"\nplatform:\n'

pytestmark = pytest.mark.exhaustive(
    reason=(
        "the same attacks on a lab of its own whose namespaces have names "
        "of others; `make test` runs them where names have the tenant in "
        "front"
    )
)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = local(tmp_path_factory.mktemp("foreign") / "local")
    _edit(folder / "environment.yaml", ("platform:\n", PATTERN))
    _edit(folder / "tenants" / "fraud.yaml", ("{name: train,", "{name: train, namespace-name: night-runs,"))
    loaded = load(folder)
    with deployed(loaded, make_plan(loaded, loaded.day), folder.parent / "lab") as cluster:
        yield cluster


def test_every_attack_is_refused_and_its_twin_admitted_whatever_the_namespaces_are_called(foreign: Cluster) -> None:
    names = [space.name for tenant in foreign.plan.tenants for space in tenant.namespaces]
    assert "night-runs" in names
    assert not [name for name in names if vocabulary.SEPARATOR in name]
    assert gaps(foreign, [attack for attack in foreign.attacks if not attack.skipped]) == []
