"""A lab of its own, with the objects of `stacks/local` and a longest run, applied by the platform's own group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_lab import Cluster, deployed, local

from tenancy.plan import Plan, make_plan
from tenancy.spec import Loaded, load


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return local(tmp_path_factory.mktemp("files") / "local")


@pytest.fixture(scope="session")
def loaded(folder: Path) -> Loaded:
    return load(folder)


@pytest.fixture(scope="session")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded.environment, loaded.tenants)


@pytest.fixture(scope="module")
def cluster(loaded: Loaded, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with deployed(loaded, plan, tmp_path_factory.mktemp("attacks") / "lab") as found:
        yield found
