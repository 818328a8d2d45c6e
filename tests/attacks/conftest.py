"""A lab with the objects of `stacks/local` and a longest run, applied by the platform's own group.

The modules of this folder share one: each takes away what it made, and puts back what it took away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_lab import Cluster, deploy, ended, entered, local

from tenancy.planning import Plan, make_plan
from tenancy.spec.loader import Loaded, load
from tests.conftest import OfFolder

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return local(tmp_path_factory.mktemp("files") / "local")


@pytest.fixture(scope="session")
def loaded(folder: Path) -> Loaded:
    return load(folder)


@pytest.fixture(scope="session")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def cluster(
    of_folder: OfFolder, loaded: Loaded, plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    def start() -> tuple[Path, Cluster]:
        home = tmp_path_factory.mktemp("attacks") / "lab"
        of_folder.at_end(FOLDER, lambda: ended(home))
        return home, deploy(loaded, plan, home)

    home, started = of_folder.once(FOLDER, start)
    with entered(home):
        yield started
