"""A new version in waves: who is in which, how far it is, and what stops it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from tenancy.catalog import vocabulary
from tenancy.cli import up_gate, up_rollout
from tenancy.cli.up_gate import alert_findings, inactive_queues
from tenancy.cli.up_rollout import expect_former_environments, run_waves
from tenancy.cluster.alerts import firing
from tenancy.cluster.api import ApiUnreachable, Response
from tenancy.cluster.prometheus import PrometheusUnavailable
from tenancy.deploy.decide import Cause
from tenancy.deploy.digests import StackDigest
from tenancy.deploy.driver import RunFailed
from tenancy.deploy.rollout import Wave, progress, waves, waves_for_new_program
from tenancy.lab import ports
from tenancy.lab.layout import Lab
from tenancy.planning.scope import StackScope
from tenancy.spec.fields.metrics import Collector
from tenancy.spec.fields.rollout import AlertGate, Order, Rollout
from tenancy.spec.loader import Loaded, load
from tenancy.spec.reading.problems import SpecError
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
OLD, NEW = StackDigest("plan", "1", "s"), StackDigest("plan", "2", "s")


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks" / "bank")


def planned(bank: Loaded, **fields: Any) -> list[Wave]:
    return waves(bank.environment, bank.tenants, Rollout(**fields))


@pytest.mark.parametrize(
    "fields",
    [{}, {"canary": ("fraud",)}, {"canary_percent": 30, "wave_size": 3}, {"order": Order.DEPARTMENT, "wave_size": 2}],
)
def test_every_tenant_is_in_one_wave(bank: Loaded, fields: dict[str, Any]) -> None:
    stacks = [name for wave in planned(bank, **fields) for name in wave.stacks]
    assert sorted(stacks) == sorted(f"bank--{tenant.tenant}" for tenant in bank.tenants)


def test_the_canary_is_the_first_wave_and_no_later_one_is_larger_than_asked(bank: Loaded) -> None:
    canary, *waves = planned(bank, canary=("fraud",), wave_size=4)
    assert canary == Wave("canary", ("bank--fraud",))
    assert [wave.name for wave in waves] == [f"wave {number}" for number in range(1, len(waves) + 1)]
    assert max(len(wave.stacks) for wave in waves) == 4


def test_a_share_takes_some_tenants_of_each_tier_and_counts_the_named_ones(bank: Loaded) -> None:
    tiers = {f"bank--{tenant.tenant}": tenant.tier for tenant in bank.tenants}
    first = planned(bank, canary_percent=1)[0]
    assert sorted(tiers[name] for name in first.stacks) == sorted(set(tiers.values())), "one of each"
    with_named = planned(bank, canary_percent=1, canary=("fraud",))[0]
    assert "bank--fraud" in with_named.stacks
    assert len(with_named.stacks) == len(first.stacks)


def test_small_tenants_come_before_large_ones(bank: Loaded) -> None:
    sizes = {f"bank--{t.tenant}": sum(share.guaranteed for share in t.gpus.values()) for t in bank.tenants}
    order = [sizes[name] for wave in planned(bank, wave_size=3) for name in wave.stacks]
    assert order == sorted(order)


def test_a_wave_by_department_has_tenants_of_one(bank: Loaded) -> None:
    departments = {f"bank--{tenant.tenant}": tenant.department for tenant in bank.tenants}
    for wave in nonempty(planned(bank, order=Order.DEPARTMENT)):
        assert len({departments[name] for name in wave.stacks}) == 1
        assert f"({departments[wave.stacks[0]]})" in wave.name


def test_how_far_it_is_follows_from_the_records_alone() -> None:
    progress_entries = progress(
        [Wave("canary", ("a", "b")), Wave("wave 1", ("c",))], dict.fromkeys("abc", NEW), {"a": NEW, "b": OLD}
    )
    assert [(entry.finished, entry.remaining) for entry in progress_entries] == [(("a",), ("b",)), ((), ("c",))]


@pytest.mark.parametrize(
    ("causes", "waits"),
    [
        ((Cause.PROGRAM,), True),
        ((Cause.PROGRAM, Cause.DRIFT), True),
        ((Cause.FILES,), False),
        ((Cause.NEW,), False),
        ((Cause.REQUESTED, Cause.PROGRAM), False),
        ((), False),
    ],
)
def test_only_a_new_program_waits_for_its_wave(causes: tuple[Cause, ...], waits: bool) -> None:
    (wave,) = waves_for_new_program([Wave("wave 1", ("a",))], {"a": causes})
    assert wave.stacks == (("a",) if waits else ())


def with_rollout(tmp_path: Path, name: str, rollout: str) -> Path:
    """A copy of an example environment with these waves."""
    folder = tmp_path / name
    if not folder.exists():
        shutil.copytree(ROOT / "stacks" / name, folder)
    text = (ROOT / "stacks" / name / "environment.yaml").read_text("utf-8")
    (folder / "environment.yaml").write_text(f"{text}rollout: {rollout}\n", "utf-8")
    return folder


def test_a_canary_that_is_no_tenant_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="tenant 'fruad'") as raised:
        load(with_rollout(tmp_path, "bank", "{canary: [fruad]}"))
    assert "environment.yaml" in str(raised.value)


def test_an_environment_does_not_wait_for_itself(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="an environment that waits for itself"):
        load(with_rollout(tmp_path, "local", "{depends-on: [dev, local]}"))
    assert load(with_rollout(tmp_path, "local", "{depends-on: [dev]}")).environment.rollout == Rollout(
        depends_on=("dev",)
    )


# Environments in order


class Former:
    """The environment `local` of the repository, for which another one waits, by what its cluster has recorded."""

    def __init__(self, **recorded: str) -> None:
        self.recorded = recorded

    def request(self, *_: Any) -> Response:
        items = [{"data": {"stack": s, "plan": "p", "program": at, "settings": "s"}} for s, at in self.recorded.items()]
        return Response(200, {"items": items})


def waiting(bank: Loaded, *causes: Cause, after: tuple[str, ...] = ("local",), preview: bool = False) -> Any:
    environment = bank.environment.model_copy(update={"rollout": Rollout(depends_on=after)})
    return SimpleNamespace(
        run=SimpleNamespace(
            loaded=replace(bank, environment=environment, folder=ROOT / "stacks" / "bank"),
            plan=SimpleNamespace(environment="bank"),
            only_preview=preview,
        ),
        causes={"bank": causes},
        digests={"bank": NEW},
    )


def test_a_new_version_waits_for_the_environment_that_has_it_first(bank: Loaded) -> None:
    contexts: list[str] = []

    def reach(context: str, **recorded: str) -> Any:
        contexts.append(context)
        return Former(**recorded)

    with pytest.raises(
        RunFailed, match=r"environment local, where 1 of 1 stacks do not run it: local; rule: bank gets"
    ):
        expect_former_environments(waiting(bank, Cause.PROGRAM), lambda context: reach(context, local=OLD.program))
    with pytest.raises(RunFailed, match=r"change: `tenancy up local` first; nothing was changed"):
        expect_former_environments(waiting(bank, Cause.PROGRAM), reach)
    expect_former_environments(waiting(bank, Cause.PROGRAM), lambda context: reach(context, local=NEW.program))
    assert len(contexts) == 3


@pytest.mark.parametrize("causes", [(Cause.FILES,), (Cause.NEW,), (Cause.PROGRAM, Cause.REQUESTED), ()])
def test_what_is_no_new_version_waits_for_no_environment(bank: Loaded, causes: tuple[Cause, ...]) -> None:
    expect_former_environments(waiting(bank, *causes), lambda _: pytest.fail("it is asked"))
    expect_former_environments(waiting(bank, Cause.PROGRAM, preview=True), lambda _: pytest.fail("a preview asks"))


def test_an_environment_that_cannot_be_asked_is_not_taken_for_ready(bank: Loaded) -> None:
    def silent(_: str) -> Any:
        raise ApiUnreachable("the API server at https://dev does not answer")

    with pytest.raises(RunFailed, match="environment local, which cannot be asked: the API server at https://dev"):
        expect_former_environments(waiting(bank, Cause.PROGRAM), silent)
    with pytest.raises(RunFailed, match="environment none-such, which cannot be asked"):
        expect_former_environments(waiting(bank, Cause.PROGRAM, after=("none-such",)), silent)


# The run


class Ran:
    """A fleet of three tenants with a new program, of whom one is the canary, and what was run of it."""

    def __init__(self, bank: Loaded, monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
        tenants = bank.tenants[:3]
        rollout = Rollout(canary=(tenants[0].tenant,), wave_size=1, pause=0)
        environment = bank.environment.model_copy(update={"rollout": rollout})
        self.said: list[str] = []
        self.order: list[list[str]] = []
        self.names = [f"bank--{tenant.tenant}" for tenant in tenants]
        self.fleet: Any = SimpleNamespace(
            run=SimpleNamespace(
                loaded=replace(bank, environment=environment, tenants=tenants),
                plan=SimpleNamespace(environment="bank"),
                only_preview=False,
                report=SimpleNamespace(say=self.said.append),
            ),
            causes=dict.fromkeys(self.names, (Cause.PROGRAM,)),
        )

        def run_tenants(_: Any, stacks: Any, __: int) -> list[str]:
            names = [stack[0] for stack in stacks if self.fleet.causes[stack[0]]]
            self.order += [names] if names else []
            return [name for name in names if name == failing]

        monkeypatch.setattr(up_rollout, "run_tenants", run_tenants)

    def go(self, *gates: list[str]) -> list[str]:
        answers = iter(gates)
        stacks = [(name, StackScope.TENANT, name.partition("--")[2]) for name in self.names]
        return run_waves(self.fleet, stacks, 2, lambda _: next(answers))


def test_waves_run_one_after_another_with_a_gate_between_two(bank: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(bank, monkeypatch)
    assert ran.go([], []) == []
    assert [len(wave) for wave in ran.order] == [1, 1, 1]
    assert ran.order[0] == [ran.names[0]]


def test_a_red_gate_stops_it_and_says_what_failed_and_how_to_go_on(
    bank: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran(bank, monkeypatch)
    with pytest.raises(RunFailed) as raised:
        ran.go([], ["`tenancy verify` found a gap"])
    assert len(ran.order) == 2, "the third wave did not begin"
    assert "stopped before wave 2\n  `tenancy verify` found a gap" in str(raised.value)
    assert "`tenancy rollout status bank` shows where it stands" in str(raised.value)
    assert "check out the former version" in str(raised.value)


def test_a_stack_that_fails_stops_the_waves_after_its_own(bank: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Ran(bank, monkeypatch).names[0]
    ran = Ran(bank, monkeypatch, failing=failing)
    with pytest.raises(RunFailed, match=f"stopped in canary\n  stacks failed: {failing}"):
        ran.go()
    assert ran.order == [[failing]]


def test_a_rollout_that_was_ended_after_the_canary_begins_with_the_gate(
    bank: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran(bank, monkeypatch)
    ran.fleet.causes[ran.names[0]] = ()
    with pytest.raises(RunFailed, match="stopped before wave 1"):
        ran.go(["still red"])
    assert ran.order == []


def test_an_edited_file_does_not_wait_for_the_waves(bank: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(bank, monkeypatch)
    ran.fleet.causes[ran.names[2]] = (Cause.FILES,)
    ran.go([], [])
    assert ran.order[0] == [ran.names[2]]


def queue(name: str, active: str, policy: str = "None") -> dict[str, Any]:
    condition = {"type": "Active", "status": active, "message": "references missing flavors"}
    return {"metadata": {"name": name}, "spec": {"stopPolicy": policy}, "status": {"conditions": [condition]}}


def test_a_queue_that_kueue_does_not_serve_is_red_and_one_on_hold_is_not() -> None:
    queue_items = [queue("good", "True"), queue("bad", "False"), queue("held", "False", "Hold")]
    api: Any = SimpleNamespace(items=lambda *_, **__: queue_items)
    assert list(inactive_queues(api, "bank")) == ["ClusterQueue bad is not active: references missing flavors"]


def test_the_gate_has_what_the_attacks_the_queues_and_the_alerts_find(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ("_verification_gaps", "inactive_queues", "alert_findings")
    for part in parts:
        monkeypatch.setattr(up_gate, part, lambda *_, part=part: iter([f"found by {part}"]))
    run: Any = SimpleNamespace(driver=SimpleNamespace(api=None), plan=SimpleNamespace(environment="bank"))
    assert up_gate.gate_findings(run) == [f"found by {part}" for part in parts]


# Alerts

IN_CLUSTER = "http://prometheus-operated.monitoring.svc:9090"


class AlertSource:
    """An API server with a Prometheus behind it, and what it was asked for."""

    def __init__(self, *alerts: dict[str, str], rules: str = "bank", refused: int = 0, silent: bool = False) -> None:
        self.alerts, self.rules, self.refused, self.silent = alerts, rules, refused, silent
        self.paths: list[str] = []

    def request(self, method: str, path: str) -> Response:
        assert method == "GET"
        self.paths.append(path)
        if self.silent:
            raise ApiUnreachable("the API server does not answer")
        if self.refused:
            return Response(self.refused, {"message": "no endpoints available"})
        series: list[Any] = [{"metric": labels} for labels in self.alerts]
        if "ALERTS" not in path:
            query = unquote(path.partition("?query=")[2])
            info_query = f'tenancy:environment:info{{environment="{self.rules}"}}'
            series = [{"metric": {}}] if query == info_query else []
        return Response(200, {"status": "success", "data": {"result": series}})


def firing_alerts(source: Any) -> list[str]:
    return list(firing(source, "bank", IN_CLUSTER))


def test_a_critical_alert_that_fires_is_named_with_its_tenant() -> None:
    source = AlertSource({"alertname": "GuardMissing", "tenant": "platform"})
    assert firing_alerts(source) == ["alert GuardMissing fires for platform"]
    prefix = "/api/v1/namespaces/monitoring/services/http:prometheus-operated:9090/proxy/api/v1/query?query="
    assert [path.startswith(prefix) for path in source.paths] == [True, True], "it needs no other way into the cluster"
    parts = ("severity%3D%22critical%22", "environment%3D%22bank%22", "BudgetSpent")
    assert [part for part in parts if part not in source.paths[-1]] == []


def test_an_alert_of_many_series_is_named_once_with_their_number() -> None:
    guard_alerts = [{"alertname": "GuardMissing", "tenant": "platform", "guard": str(number)} for number in range(40)]
    xid_alert = {"alertname": "GpuXid", "tenant": "fraud"}
    assert firing_alerts(AlertSource(*guard_alerts, xid_alert)) == [
        "alert GuardMissing fires for platform, 40 times",
        "alert GpuXid fires for fraud",
    ]


def test_without_alerts_it_is_green() -> None:
    assert firing_alerts(AlertSource()) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (AlertSource(rules=""), "does not evaluate the alert rules of bank"),
        (AlertSource(rules="dev"), "does not evaluate the alert rules of bank"),
        (AlertSource(refused=503), "no endpoints available"),
        (AlertSource(silent=True), "the API server does not answer"),
    ],
)
def test_a_prometheus_that_does_not_tell_is_not_taken_for_silence(source: AlertSource, why: str) -> None:
    with pytest.raises(PrometheusUnavailable, match=why):
        firing_alerts(source)


def test_an_address_outside_of_the_cluster_is_asked_directly() -> None:
    source: Any = AlertSource()
    with pytest.raises(PrometheusUnavailable, match=r"http://127\.0\.0\.1:9 does not answer"):
        list(firing(source, "bank", "http://127.0.0.1:9"))
    assert source.paths == []


@pytest.mark.parametrize(
    ("collector", "gate", "red"),
    [
        (Collector.INSTALL, AlertGate.REQUIRED, True),
        (Collector.INSTALL, AlertGate.IGNORED, False),
        (Collector.NONE, AlertGate.REQUIRED, False),
    ],
)
def test_no_answer_is_red_where_metrics_are_collected_unless_alerts_are_ignored(
    bank: Loaded, collector: Collector, gate: AlertGate, red: bool
) -> None:
    metrics = bank.environment.metrics.model_copy(update={"collector": collector})
    changes = {"metrics": metrics, "rollout": Rollout(alerts=gate)}
    environment = bank.environment.model_copy(update=changes)
    run: Any = SimpleNamespace(
        loaded=replace(bank, environment=environment),
        plan=SimpleNamespace(context="bank"),
        driver=SimpleNamespace(api=AlertSource(refused=503)),
    )
    problems = list(alert_findings(run))
    assert ["`alerts: ignored` in rollout" in problem for problem in problems] == [True] * red


@pytest.mark.parametrize("collector", list(Collector))
@pytest.mark.parametrize("watched", [True, False])
def test_a_lab_is_asked_where_it_has_a_prometheus_whatever_the_files_say(
    bank: Loaded, collector: Collector, watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPU_TENANCY_LAB", raising=False)
    lab = Lab.locate(tmp_path)
    lab.folder.mkdir()
    lab.remember(ports=dict.fromkeys((*ports.NAMES, "prometheus"), 9), metrics={"seed": 1} if watched else {})
    metrics = bank.environment.metrics.model_copy(update={"collector": collector})
    api = AlertSource({"alertname": "GuardMissing"})
    run: Any = SimpleNamespace(
        loaded=replace(bank, environment=bank.environment.model_copy(update={"metrics": metrics})),
        plan=SimpleNamespace(context=vocabulary.LAB_CONTEXT),
        driver=SimpleNamespace(api=api, root=tmp_path),
    )
    problems = list(alert_findings(run))
    assert ["http://127.0.0.1:9 does not answer" in problem for problem in problems] == [True] * watched
    assert api.paths == [], "there is no service in the cluster"
