"""A small fixed environment that tests change one line at a time."""

from __future__ import annotations

import datetime as dt
import gc
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tenancy.catalog.days import today
from tenancy.components.collector import SELDOM_THRESHOLDS
from tenancy.kube import quantities
from tenancy.kube.objects import Object
from tenancy.lab.processes import GOGC
from tenancy.planning import Plan, make_plan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load
from tenancy.spec.reading.problems import Problem, SpecError

# What tests share asserts too: without this, a failure there says nothing but AssertionError.
pytest.register_assert_rewrite("attack_lab", "engine_project", "engine_aws", "fault_proxy", "scene", "town", "claims")
# The engine too, not the lab alone.
os.environ.setdefault("GOGC", GOGC)
# What is collected and what modules keep stays until the end: the collector would walk all of it again and again.
gc.set_threshold(*SELDOM_THRESHOLDS)

# Of Hypothesis: `make test-all` chooses the first. How long an example takes depends on the machine, so none is refused
# for its time.
settings.register_profile("exhaustive", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


def examples(number: int) -> int:
    """Number of examples of a property: all of `number` in `make test-all`, a fifth of it otherwise."""
    return max(1, number * settings.default.max_examples // 100)


ENVIRONMENT = """\
environment: small
organisation:
  name: bank
  departments:
    risk: {title: Risk and Compliance}
    research: {}
platform:
  group: gpu-platform-team
  namespaces: [monitoring]
cluster:
  name: small
  context: small-context
  kubernetes: "1.36"
  cni: vpc-cni
images:
  registries: [registry.bank.example/shared/, "registry.bank.example/teams/{tenant}/"]
  sample: registry.bank.example/shared/cuda-sample:13.1
buckets: [datasets, models]
tiers:
  production:
    priority: 1000
    quota: {cpu: 128, memory: 512Gi, pods: 100, hard: {count/ingresses.networking.k8s.io: 5}}
  batch:
    priority: 100
    interruptible: true
    container:
      max: {cpu: 32, memory: 128Gi}
flavors:
  a100: {gpu: a100-40gb}
  a100-1g.5gb: {gpu: a100-40gb, mig: 1g.5gb}
  l4-shared: {gpu: l4, gpu-sharing: time-slicing}
pools:
  train: {instance-type: p4d.24xlarge, nodes: 4}
  serve:
    instance-type: p4d.24xlarge
    nodes: {min: 1, max: 3}
    mig:
      layout: {1g.5gb: 7}
    tiers: [production]
  notebooks:
    instance-type: g6.12xlarge
    nodes: 1
    gpu-sharing: {time-slicing: 4}
    tenants: [research]
"""

FRAUD = """\
tenant: fraud
title: Fraud Detection
team: fraud-detection
owner: {name: fraud-leads, mail: fraud-leads@bank.example}
department: risk
cost-center: CC-4411
tier: batch
namespaces:
  - {name: train, purpose: nightly retraining}
  - {name: serve, tier: production, gpus: {a100-1g.5gb: 14}, quota: {cpu: 16, pods: 20}}
people:
  - {group: fraud-engineers, role: developer}
  - {group: fraud-leads, role: owner, namespaces: [train]}
  - {user: jane@bank.example, role: viewer}
gpus:
  a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}
  a100-1g.5gb: {guaranteed: 14}
storage:
  - {bucket: datasets, prefix: teams/fraud/, access: read-write}
  - {bucket: datasets, prefix: shared/}
egress:
  - {cidr: 198.51.100.0/24, port: 8443}
budget: {monthly-usd: 180000}
"""

RESEARCH = """\
tenant: research
team: quant-research
owner: {name: research-leads, mail: research@bank.example}
department: research
cost-center: CC-9000
tier: batch
people:
  - {group: researchers, role: developer}
gpus:
  a100: {guaranteed: 8}
  l4-shared: {guaranteed: 16}
storage:
  - {bucket: datasets, prefix: shared/}
"""

FILES = {"environment.yaml": ENVIRONMENT, "tenants/fraud.yaml": FRAUD, "tenants/research.yaml": RESEARCH}


def documents(text: str) -> list[Any]:
    """Documents of a text of YAML, by libyaml: the lines of charts and CRDs take Python alone ten times as long."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def in_days(count: int) -> str:
    """A day from now, as files have it.

    In a table of cases it is the day on which the module was read, and a run may pass midnight: a case whose answer
    changes from one day to the next asks inside the test.
    """
    return (today() + dt.timedelta(days=count)).isoformat()


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The machine's time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


class SpecFolder:
    """The files of an environment on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "tenants").mkdir(parents=True)
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, content: str | bytes) -> None:
        (self.path / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text("utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        self.write(name, text.replace(old, new))

    def add(self, name: str, text: str) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def load(self) -> Loaded:
        return load(self.path)

    def problems(self) -> tuple[Problem, ...]:
        try:
            self.load()
        except SpecError as error:
            return error.problems
        return ()

    def problem(self) -> Problem:
        problems = self.problems()
        assert len(problems) == 1, f"one problem was expected: {[str(p) for p in problems]}"
        return problems[0]


@pytest.fixture
def spec(tmp_path: Path) -> SpecFolder:
    return SpecFolder(tmp_path / "small")


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return SpecFolder(tmp_path_factory.mktemp("session") / "small").load()


@pytest.fixture(scope="session")
def environment(loaded: Loaded) -> Environment:
    return loaded.environment


def unreserved(environment: Environment) -> Environment:
    """The environment with nothing that names tenants or their people: it can be planned with any of them or none."""
    pools = {name: pool.model_copy(update={"tenants": ()}) for name, pool in environment.pools.items()}
    aws = environment.aws.model_copy(update={"group_roles": {}})
    return environment.model_copy(update={"pools": pools, "aws": aws})


@pytest.fixture(scope="session")
def fraud(loaded: Loaded) -> Tenant:
    return loaded.tenants[0]


@pytest.fixture(scope="session")
def research(loaded: Loaded) -> Tenant:
    return loaded.tenants[1]


@pytest.fixture(scope="session")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded, loaded.day)


def every(values: Iterable[object]) -> bool:
    """`all`, which is not true of nothing: what a test says of each of some, there have to be some of."""
    return all(nonempty(values))


def nonempty(values: Iterable[T]) -> list[T]:
    """The values, of which there have to be some: asserts in a loop over none would hold of nothing."""
    items = list(values)
    assert items, "nothing to say this of"
    return items


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before a test of a module marked `chapters` come the tests above it, also where it alone was chosen."""
    collected = {item.nodeid for item in items}
    modules: dict[str, list[pytest.Item]] = {}
    ordered_items: list[pytest.Item] = []
    for item in items:
        module = item.getparent(pytest.Module)
        if module and item.get_closest_marker("chapters"):
            if module.nodeid not in modules:
                modules[module.nodeid] = [item for item in module.collect() if isinstance(item, pytest.Item)]
            for earlier in modules[module.nodeid]:
                if earlier.nodeid == item.nodeid:
                    # Of two that are collected at different times, each would have the module's fixtures for itself.
                    item = earlier
                    break
                needed = item.get_closest_marker("exhaustive") or not earlier.get_closest_marker("exhaustive")
                if needed and earlier.nodeid not in collected:
                    collected.add(earlier.nodeid)
                    ordered_items.append(earlier)
        ordered_items.append(item)
    items[:] = ordered_items


class OfFolder:
    """Values that the modules of a folder share; they end with the last of them: an idle lab takes a good part of a
    core for as long as it lives."""

    def __init__(self) -> None:
        self._made: dict[Path, Any] = {}
        self._endings: dict[Path, list[Callable[[], object]]] = {}

    def once(self, folder: Path, make: Callable[[], T]) -> T:
        """The value of the folder, made at the first call."""
        if folder not in self._made:
            self._made[folder] = make()
        return self._made[folder]

    def at_end(self, folder: Path, ending: Callable[[], object]) -> None:
        self._endings.setdefault(folder, []).append(ending)

    def leave(self, going_to: Path | None) -> None:
        """End what is of other folders than the one in which the next test is."""
        for folder in [f for f in self._endings if going_to is None or f not in going_to.parents]:
            self._made.pop(folder, None)
            for ending in self._endings.pop(folder):
                ending()


T = TypeVar("Made")
OF_FOLDER = pytest.StashKey[OfFolder]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OF_FOLDER] = OfFolder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    try:
        yield
    finally:
        item.config.stash[OF_FOLDER].leave(nextitem.path if nextitem else None)
        if nextitem is None or nextitem.path != item.path:
            keep_the_rest()


def pytest_collection_finish() -> None:
    keep_the_rest()


def keep_the_rest() -> None:
    """Let the collector free what is left of a module, and never again look at what it keeps."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def of_folder(request: pytest.FixtureRequest) -> Iterator[OfFolder]:
    yield request.config.stash[OF_FOLDER]
    # An interrupted run does not come to the last module.
    request.config.stash[OF_FOLDER].leave(None)


ONE_LAB = ("attacks", "queues")
"""Folders whose modules share a lab that takes longest to set up: with two workers there would be two of each."""

ONE_COMPILATION = ("check", "policy_pack", "rules")
"""Folders whose tests evaluate the expressions of all guards: to compile these takes each process 17 seconds."""


class BySharedStart(LoadFileScheduling):
    """One worker for the tests of a file, for those of a folder that shares a lab, and for all that evaluate the
    guards' expressions."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        *folders, _ = file.split("/")
        if not {*folders}.isdisjoint(ONE_COMPILATION):
            return " ".join(ONE_COMPILATION)
        return "/".join(folders) if folders[-1] in ONE_LAB else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySharedStart | None:
    return BySharedStart(config, log) if config.getoption("dist") == "loadfile" else None


LAB_BYTES = 4 * 2**30
"""Memory of the processes of one worker's tests: a control plane with Kueue, an engine with its programs."""


def pytest_xdist_auto_num_workers() -> int:
    """Workers of `-n auto`: three for two processors, as far as memory goes. A test waits for an API server, its
    controllers and an engine's plugins for a third of its time."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(3 * (os.cpu_count() or 1) // 2, memory // LAB_BYTES))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Write the golden files anew.")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(Path(__file__).parent / "unit" / "golden", request.config.getoption("--update-golden"))


class Golden:
    """Expected output, written once and read by a person."""

    def __init__(self, folder: Path, update: bool) -> None:
        self.folder = folder
        self.update = update

    def check(self, name: str, text: str) -> None:
        path = self.folder / name
        if self.update:
            path.write_text(text, "utf-8")
        assert path.read_text("utf-8") == text, "read the difference, then: pytest --update-golden"


def amounts(queue: Object, limit: str = "nominalQuota") -> dict[tuple[str, str], Decimal]:
    """Quota of a ClusterQueue or Cohort for each resource in each of Kueue's flavors; absent ones are left out."""
    return {
        (flavor["name"], resource["name"]): quantities.parse(resource[limit])
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if limit in resource
    }


def forget_programs() -> None:
    """Drop the calls and outputs of programs that ran here: a failed one's stay in its closed event loop, and the next
    program would wait for them."""
    from pulumi.runtime.settings import SETTINGS

    SETTINGS.rpc_manager.clear()
    with SETTINGS.lock:
        SETTINGS.outputs.clear()


@pytest.fixture(scope="module")
def pack() -> ModuleType:
    """The policies of the pack."""
    from tenancy.policy_pack import policies

    return policies
