"""Attacks on the clock exist where an environment has one, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenancy.planning import make_plan
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Attack, Scene, all_attacks, differences
from tests.conftest import SpecFolder, nonempty
from tests.spec_cases import ENV

NEW = {"rbac-clock-", "kueue-05-localqueue-reserve@"}


def attacks(loaded: Loaded) -> dict[str, Attack]:
    return {a.id: a for a in all_attacks(Scene(loaded.environment, loaded.tenants)) if not a.skipped}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loaded, Loaded]:
    """The same environment without a clock and with one."""
    folder: Path = tmp_path_factory.mktemp("clock")
    without, with_clock = SpecFolder(folder / "without" / "small"), SpecFolder(folder / "with" / "small")
    with_clock.add(ENV, "queues: {clock: true}\n")
    return without.load(), with_clock.load()


def test_only_a_clock_is_attacked_as_one(both: tuple[Loaded, Loaded]) -> None:
    before, after = map(attacks, both)
    assert not before.keys() - after.keys()
    added = after.keys() - before.keys()
    assert {prefix for prefix in NEW for id in added if id.startswith(prefix)} == NEW
    assert [id for id in added if not id.startswith(tuple(NEW))] == []


def test_each_twin_is_the_platforms_or_differs_in_the_queue(both: tuple[Loaded, Loaded]) -> None:
    before, after = map(attacks, both)
    for id in nonempty(after.keys() - before.keys()):
        differing_paths = differences(after[id].request.as_data(), after[id].twin.as_data())
        assert differing_paths == (["/who"] if id.startswith("rbac-") else ["/body/spec/clusterQueue"]), id


def test_every_object_of_the_plan_that_the_clock_writes_is_attacked(both: tuple[Loaded, Loaded]) -> None:
    _, loaded = both
    plan = make_plan(loaded, loaded.day)
    reserve = {o["kind"] for o in plan.objects() if o["metadata"]["name"] == "tenancy-reserve"}
    assert reserve == {"ClusterQueue", "LocalQueue"}
    paths = {a.request.path for id, a in attacks(loaded).items() if id.startswith("rbac-clock-")}
    for kind in reserve:
        assert any(path.endswith(f"/{kind.lower()}s/tenancy-reserve") for path in paths), kind
