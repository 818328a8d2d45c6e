"""`tenancy clock run` with spec files in which an entry has ended since they were deployed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.catalog.exporters import CLOCK_ENDED
from tenancy.cli import clock as command
from tenancy.cli import main
from tenancy.clock.health import Health
from tenancy.clock.usage import Usage
from tenancy.spec.loader import load, load_deployed
from tenancy.spec.reading.problems import SpecError
from tests.answering import free_ports
from tests.clock_cluster import RECORD, Cluster
from tests.conftest import SpecFolder, in_days
from tests.mounted_volume import clock_container, clock_objects, clock_volume
from tests.spec_cases import ENV, FRAUD

NOON = dt.time(12, tzinfo=dt.UTC)
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/"
WAIVER = "exceptions:\n  - {rule: %s, namespace: train, reason: image of a vendor, owner: a@bank.example, until: %s}\n"
LAST = 9
"""Days for which the dated entries are valid."""


def _waiver(spec: SpecFolder) -> None:
    spec.add(FRAUD, WAIVER % ("ns-03", in_days(LAST)))


def _suite(spec: SpecFolder) -> None:
    entry = f"{{name: 'e2e-*', until: {in_days(LAST)}, reason: conformance after an upgrade}}"
    spec.edit(ENV, "namespaces: [monitoring]", f"namespaces: [monitoring]\n  temporary-namespaces: [{entry}]")


def _block(spec: SpecFolder) -> None:
    purchase = f"{{capacity-block: cr-0123abcd, ends: {in_days(LAST)}}}"
    pool = f"{{instance-type: p4d.24xlarge, nodes: 1, zones: [eu-central-1a], purchase: {purchase}}}"
    spec.edit(ENV, "  serve:\n", f"  block: {pool}\n  serve:\n")


def _relief(spec: SpecFolder) -> None:
    entry = f"{{until: {in_days(LAST)}, reason: an incident of the desk, owner: a@bank.example}}"
    spec.edit(ENV, "clock: true", f"clock: true, budget-exemption: {entry}")


def _share(spec: SpecFolder) -> None:
    entry = f"{{gpus: 8, starts: {in_days(1)}, until: {in_days(LAST)}, reason: close of the quarter}}"
    spec.edit(FRAUD, "a100: {guaranteed: 16", f"a100: {{temporary-shares: [{entry}], guaranteed: 16")


REFUSED: dict[str, tuple[Callable[[SpecFolder], None], str]] = {
    "exception": (_waiver, f"{FRAUD}: exceptions[0].until: given until: "),
    "temporary namespaces": (_suite, f"{ENV}: platform.temporary-namespaces[0].until: given until: "),
    "capacity block": (_block, f"{ENV}: pools.block.purchase.ends: given capacity block cr-0123abcd, which ended on "),
}
"""Entries that are refused after their last day, with the refusal."""
ENTRIES = {"relief": _relief, "further share": _share, **{name: write for name, (write, _) in REFUSED.items()}}
"""Every entry of a spec with a last day."""


@pytest.fixture
def spec(spec: SpecFolder) -> SpecFolder:
    spec.add(ENV, "queues: {clock: true}\n")
    spec.edit(FRAUD, "180000}", "180000, when-spent: hold, monthly-gpu-hours: 9}")
    return spec


@pytest.fixture
def cluster(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(spec.load())
    monkeypatch.setattr("tenancy.cluster.api.Api", lambda *_: cluster)
    return cluster


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the day: so many from now."""
    first = today()

    def set_day(days: int) -> None:
        for module in ("tenancy.cli.clock", "tenancy.spec.loader"):
            monkeypatch.setattr(f"{module}.today", lambda: first + dt.timedelta(days=days))

    return set_day


def run(spec: SpecFolder, *options: str) -> Result:
    return CliRunner().invoke(main, ["clock", "run", str(spec.path), *options])


def stop_policies(cluster: Cluster) -> dict[str, str]:
    """Stop policies of fraud's queues."""
    queues = {path.removeprefix(QUEUES): item for path, item in cluster.objects.items() if path.startswith(QUEUES)}
    return {name: item["spec"]["stopPolicy"] for name, item in queues.items() if name.startswith("fraud")}


def spend(cluster: Cluster) -> None:
    """Put a spent budget into the record of the month."""
    cluster.now = dt.datetime.combine(today(), NOON)
    usage = Usage(cluster.now - dt.timedelta(minutes=1), {"fraud": {"a100-40gb": 10 * 3600 * 1000}})
    metadata = {"name": vocabulary.CLOCK, "namespace": vocabulary.PLATFORM_NAMESPACE}
    cluster.objects[RECORD] = {"metadata": {**metadata, "resourceVersion": "1"}, "data": {"usage": usage.text()}}


@pytest.mark.parametrize("entry", REFUSED)
def test_a_clock_that_is_started_after_an_entry_has_ended_keeps_budgets_and_says_so(
    entry: str, spec: SpecFolder, cluster: Cluster, day: Callable[[int], None]
) -> None:
    write, refusal = REFUSED[entry]
    write(spec)
    day(LAST)
    assert spec.problems() == ()
    day(LAST + 1)
    assert len(spec.problems()) == 1, "what is deployed has to be mended"
    spend(cluster)
    result = run(spec, "--once")
    assert (result.exit_code, result.exception) == (0, None), result.stderr
    assert set(stop_policies(cluster).values()) == {"Hold"}
    problem, note = result.stderr.splitlines()
    place, _, refusal_text = refusal.partition(":")
    assert f"/{place}:" in problem
    assert refusal_text in problem
    assert note == "tenancy: these entries have ended and have no effect; the files stay in use"


@pytest.mark.parametrize("entry", REFUSED)
def test_another_mistake_refuses_the_files_and_is_told_with_what_has_ended(
    entry: str, spec: SpecFolder, cluster: Cluster, day: Callable[[int], None]
) -> None:
    REFUSED[entry][0](spec)
    spec.add(FRAUD, "nonsense: 1\n")
    day(LAST + 1)
    result = run(spec, "--once")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines == [*map(str, spec.problems()), "tenancy: 2 problems; nothing was changed"]
    assert cluster.writes == []


def test_files_that_were_never_valid_are_refused(spec: SpecFolder) -> None:
    spec.add(FRAUD, WAIVER % ("ns-01", in_days(-9)))
    with pytest.raises(SpecError):
        load_deployed(spec.path)


@pytest.mark.parametrize("years", [0.1, 1, 2, 3, 4, 10])
def test_no_entry_makes_valid_files_unusable_for_the_clock_on_any_later_day(
    years: float, spec: SpecFolder, day: Callable[[int], None]
) -> None:
    for write in ENTRIES.values():
        write(spec)
    loaded = load(spec.path)
    assert load_deployed(spec.path).ended == ()
    day(int(366 * years))
    deployed = load_deployed(spec.path)
    assert (deployed.environment, deployed.tenants) == (loaded.environment, loaded.tenants)
    assert len(deployed.ended) == len(REFUSED)


def test_a_running_clock_tells_what_has_ended_once_a_day_and_counts_it(
    spec: SpecFolder, cluster: Cluster, day: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds: on the last day of the entry, and two on the day after it."""
    _waiver(spec)
    day(LAST)
    spend(cluster)
    health_pages: list[Health] = []
    counted: list[str] = []

    def health(environment: str) -> Health:
        health_pages.append(Health(environment))
        return health_pages[0]

    def sleep(_: float) -> None:
        counted.append(
            next(line for line in health_pages[0].answer("/metrics")[1].splitlines() if CLOCK_ENDED + "{" in line)
        )
        if len(counted) == 4:
            raise KeyboardInterrupt
        day(LAST + (len(counted) > 1))

    monkeypatch.setattr("tenancy.clock.health.Health", health)
    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    result = run(spec)
    assert result.stderr.count("which is past") == 1
    assert [line.rpartition(" ")[2] for line in counted] == ["0", "0", "1", "1"]


def test_changed_files_with_an_entry_that_has_ended_are_used(
    spec: SpecFolder, cluster: Cluster, day: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _waiver(spec)
    day(LAST + 1)
    spend(cluster)
    states: list[Any] = []

    def sleep(_: float) -> None:
        states.append(set(stop_policies(cluster).values()))
        if len(states) == 2:
            raise KeyboardInterrupt
        spec.edit(FRAUD, "monthly-gpu-hours: 9}", "monthly-gpu-hours: 9000}")

    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    run(spec)
    assert states == [{"Hold"}, {"None"}], "a raised budget opens the queues"


def test_the_command_line_of_the_deployment_reads_mounted_files_and_those_that_replace_them(
    spec: SpecFolder, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.edit(ENV, "clock: true", f"clock: true, clock-image: 'registry.bank.example/clock@sha256:{'0' * 64}'")
    objects = clock_objects(spec.load())
    volume = clock_volume(objects, tmp_path / "mounted")
    container = clock_container(objects)
    mount, port = container["volumeMounts"][0]["mountPath"], container["ports"][0]["containerPort"]
    (free,) = free_ports(1)
    args = [argument.replace(mount, str(volume.path)).replace(f":{port}", f":{free}") for argument in container["args"]]
    assert args[0] == "tenancy"
    cluster.now = dt.datetime.combine(today(), NOON)
    spend(cluster)
    states: list[Any] = []

    def sleep(_: float) -> None:
        states.append(set(stop_policies(cluster).values()))
        if len(states) == 3:
            raise KeyboardInterrupt
        if len(states) == 1:
            files = volume.read()
            changed_file = files["tenants/fraud.yaml"].replace("monthly-gpu-hours: 9\n", "monthly-gpu-hours: 11\n")
            assert changed_file != files["tenants/fraud.yaml"]
            volume.write({**files, "tenants/fraud.yaml": changed_file})

    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    result = CliRunner().invoke(main, args[1:])
    assert (states, result.stderr) == ([{"Hold"}, {"None"}, {"None"}], "\nAborted!\n"), (
        "it reads them without a message"
    )


def test_files_that_change_while_the_clock_starts_are_read_in_the_next_round(
    spec: SpecFolder, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(cluster)
    read = command.load_deployed
    states: list[Any] = []

    def changed_meanwhile(name: str) -> Any:
        content = read(name)
        spec.edit(FRAUD, "monthly-gpu-hours: 9}", "monthly-gpu-hours: 9000}")
        monkeypatch.setattr(command, "load_deployed", read)
        return content

    def sleep(_: float) -> None:
        states.append(set(stop_policies(cluster).values()))
        if len(states) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "load_deployed", changed_meanwhile)
    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    run(spec)
    assert states == [{"Hold"}, {"None"}]


def test_a_changed_file_with_the_other_suffix_is_read(
    spec: SpecFolder, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec.path / FRAUD).rename((spec.path / FRAUD).with_suffix(".yml"))
    spend(cluster)
    states: list[Any] = []

    def sleep(_: float) -> None:
        states.append(set(stop_policies(cluster).values()))
        if len(states) == 2:
            raise KeyboardInterrupt
        spec.edit(FRAUD.replace(".yaml", ".yml"), "monthly-gpu-hours: 9}", "monthly-gpu-hours: 9000}")

    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    run(spec)
    assert states == [{"Hold"}, {"None"}]
