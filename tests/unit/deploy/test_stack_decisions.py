"""Which stacks a run updates and why, how many at once, and what is known of a stack's last run."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from pulumi import automation

from tenancy.catalog import vocabulary
from tenancy.cli import main
from tenancy.cli.up_decision import decide_runs
from tenancy.cli.up_report import Report
from tenancy.cli.up_settings import EnvironmentRun, RemovableTenants, StackSelection
from tenancy.cluster.api import ApiUnreachable, Response
from tenancy.deploy import records, workers
from tenancy.deploy.command import OwnGroupCommand
from tenancy.deploy.decide import (
    MAX_STACKS_SHOWN,
    Cause,
    CliSelection,
    causes,
    is_as_planned,
    needs_preview,
    summary_lines,
)
from tenancy.deploy.digests import (
    StackDigest,
    digests,
    has_program_config,
    is_standard,
    program_digest,
    settings_digest,
)
from tenancy.deploy.fleet_drift import BATCH, tenants_with_drift
from tenancy.deploy.layout import Move, moves
from tenancy.deploy.workers import RunResult, Throttle, default_workers, is_busy, run_all
from tenancy.planning import make_plan
from tenancy.planning.scope import StackScope, in_shard, stacks
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import Loaded, load
from tests.conftest import every
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
SAME = StackDigest("plan", "program", "settings")
STACKS = [
    ("bank", StackScope.PLATFORM, None),
    ("bank--fraud", StackScope.TENANT, "fraud"),
    ("bank--voice", StackScope.TENANT, "voice"),
]
NAMES = [name for name, *_ in STACKS]
ALL_SAME = dict.fromkeys(NAMES, SAME)


def why(
    planned_digests: Mapping[str, StackDigest] = ALL_SAME,
    recorded: Mapping[str, StackDigest] = ALL_SAME,
    drifted: tuple[str, ...] = (),
    selection: CliSelection | None = None,
    existing: tuple[str, ...] = tuple(NAMES),
) -> dict[str, tuple[Cause, ...]]:
    causes_by_stack = causes(STACKS, planned_digests, recorded, existing, drifted, selection or CliSelection())
    return {name: stack_causes for name, stack_causes in causes_by_stack.items() if stack_causes}


class WithoutKubeconfig:
    """A driver before its cluster exists: the backend has no stack, and no context reaches an API server."""

    root, engine = ROOT, SimpleNamespace(version="3.259.0")

    def stacks(self, _environment: str) -> list[str]:
        return []

    @property
    def api(self) -> Any:
        raise ApiUnreachable("given kubeconfig without a usable context")


def test_a_cluster_that_is_still_to_be_made_is_asked_nothing(bank: Loaded) -> None:
    plan = make_plan(bank, bank.day)
    leavers, driver = RemovableTenants(frozenset(), frozenset(), 1), cast("Any", WithoutKubeconfig())
    run = EnvironmentRun(
        bank, plan, leavers, driver, Report("text"), StackSelection((), None), only_preview=True, refresh=False
    )
    cluster = next(stack for stack in stacks(plan, bank.environment.stacks) if stack[1] is StackScope.CLUSTER)
    fleet = decide_runs(run, [cluster])
    assert fleet.causes == {cluster[0]: (Cause.NEW,)}


def test_a_fleet_that_is_as_it_was_made_runs_nothing() -> None:
    assert why() == {}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"plan": "other"}, Cause.FILES),
        ({"program": "other"}, Cause.PROGRAM),
        ({"settings": "other"}, Cause.SETTINGS),
    ],
)
def test_what_changed_is_the_cause_and_no_other_stack_runs(change: dict[str, str], cause: Cause) -> None:
    assert why({**ALL_SAME, "bank--fraud": replace(SAME, **change)}) == {"bank--fraud": (cause,)}


def test_an_object_that_is_not_as_planned_runs_its_stack() -> None:
    assert why(drifted=("bank--voice",)) == {"bank--voice": (Cause.DRIFT,)}


def test_a_changed_plan_differs_from_the_cluster_anyway_and_is_not_called_drift() -> None:
    planned_digests = {**ALL_SAME, "bank--fraud": replace(SAME, plan="other")}
    assert why(planned_digests, drifted=("bank--fraud",)) == {"bank--fraud": (Cause.FILES,)}


def test_a_lost_record_costs_a_run_and_nothing_else() -> None:
    recorded = {name: SAME for name in NAMES if name != "bank"}
    assert why(recorded=recorded) == {"bank": (Cause.NO_RECORD,)}


def test_a_record_without_a_stack_in_the_backend_counts_for_nothing() -> None:
    assert why(existing=("bank", "bank--fraud")) == {"bank--voice": (Cause.NEW,)}


@pytest.mark.parametrize(
    ("selection", "ran"),
    [
        (CliSelection(stacks=["bank--fraud"]), ["bank--fraud"]),
        (CliSelection(refresh=True), NAMES),
        (CliSelection(removing=["voice"]), ["bank--voice"]),
        (CliSelection(removing=["fraud--serve"]), ["bank--fraud"]),
    ],
)
def test_what_is_asked_for_runs_whether_anything_changed_or_not(selection: CliSelection, ran: list[str]) -> None:
    assert why(selection=selection) == dict.fromkeys(ran, (Cause.REQUESTED,))


def test_the_stack_of_a_cluster_always_runs_because_aws_tells_no_drift() -> None:
    cluster = [("bank.cluster", StackScope.CLUSTER, None)]
    digests = {"bank.cluster": SAME}
    assert causes(cluster, digests, digests, digests, (), CliSelection()) == {"bank.cluster": (Cause.AWS,)}


def test_what_will_run_is_told_in_a_few_lines_for_a_thousand_tenants() -> None:
    causes_by_stack = {f"bank--t{number}": (Cause.PROGRAM,) for number in range(1000)} | {
        "bank": (),
        "bank--x": (Cause.DRIFT,),
    }
    first, program, drift = summary_lines("bank", causes_by_stack)
    assert first == "bank: 1001 of 1002 stacks to run, 1 unchanged"
    assert program.startswith("  changed program or versions: bank--t0, ")
    assert program.endswith(f" and {1000 - MAX_STACKS_SHOWN} more")
    assert drift == "  drift on the cluster: bank--x"


def in_state(kind: str, name: str, tenant: str | None) -> dict[str, Any]:
    labels = {vocabulary.TENANT: tenant} if tenant else {}
    return {"type": kind, "id": name, "inputs": {"metadata": {"name": name, "labels": labels}}}


@pytest.mark.parametrize(
    ("preview", "reason"),
    [
        (in_state(vocabulary.NAMESPACE_TYPE, "fraud--train", "fraud"), None),
        (in_state("kubernetes:core/v1:ServiceAccount", "default", None), None),
        ({"type": "aws:iam/role:Role", "id": "r", "inputs": {}}, None),
        (in_state(vocabulary.NAMESPACE_TYPE, "fraud--old", "fraud"), "namespace fraud--old, which the plan has not"),
        (in_state("kubernetes:core/v1:ServiceAccount", "default", "voice"), "an object of tenant voice"),
    ],
)
def test_an_update_that_would_lose_something_is_previewed_first(preview: dict[str, Any], reason: str | None) -> None:
    need = needs_preview([preview], {"fraud"}, ["fraud--train"])
    assert (need is None) if reason is None else (need is not None and reason in need)


@pytest.mark.parametrize(
    ("reverted", "stored", "expected"),
    [(0, ["/a", "/b"], True), (1, ["/a", "/b"], False), (0, ["/a"], False)],
    ids=["another form of the same values", "a value was reverted", "destroyed by the plain engine"],
)
def test_what_differs_in_form_alone_needs_no_engine(reverted: int, stored: list[str], expected: bool) -> None:
    assert is_as_planned(reverted, ["/a", "/b"], stored) is expected


# Layouts


@pytest.mark.parametrize(
    ("layout", "states", "expected"),
    [
        (Layout.PER_TENANT, {"bank": {"fraud": "a"}}, [Move("fraud", "bank", "bank--fraud", "a", is_begun=False)]),
        (Layout.PER_TENANT, {"bank": {}, "bank--fraud": {"fraud": "b"}}, []),
        (
            Layout.PER_TENANT,
            {"bank": {"fraud": "a"}, "bank--fraud": {"fraud": "b"}},
            [Move("fraud", "bank", "bank--fraud", "a", is_begun=True)],
        ),
        (
            Layout.ONE,
            {"bank": {}, "bank--fraud": {"fraud": "b"}},
            [Move("fraud", "bank--fraud", "bank", "b", is_begun=False)],
        ),
        (Layout.ONE, {"bank": {"fraud": "a"}}, []),
    ],
    ids=["into its own", "in its own", "in both", "into one", "in one"],
)
def test_a_tenant_moves_into_the_stack_of_the_layout(
    layout: Layout, states: dict[str, dict[str, str]], expected: list[Move]
) -> None:
    assert moves("bank", layout, ["fraud", "voice"], states) == expected


# Digests


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks" / "bank")


def made_of(loaded: Loaded) -> dict[str, StackDigest]:
    plan = make_plan(loaded, loaded.day)
    return digests(loaded, plan, stacks(plan, Layout.PER_TENANT), ROOT, program_digest(ROOT, "3.272.0"))


def test_the_same_files_have_the_same_digests_and_no_two_stacks_one_plan(bank: Loaded) -> None:
    digests = made_of(bank)
    assert digests == made_of(load(ROOT / "stacks" / "bank"))
    assert len({digest.plan for digest in digests.values()}) == len(digests)


def test_an_edit_of_one_tenant_changes_the_digest_of_its_stack_alone(bank: Loaded) -> None:
    tenants = [t.model_copy(update={"title": "New"}) if t.tenant == "fraud" else t for t in bank.tenants]
    before, after = made_of(bank), made_of(replace(bank, tenants=tuple(tenants)))
    assert {name for name in before if before[name] != after[name]} == {"bank--fraud"}


def test_settings_are_the_config_and_the_place_of_the_state(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    file = tmp_path / "stacks" / "Pulumi.bank.yaml"
    bare = settings_digest(tmp_path, "bank", "s3://states/a")
    file.write_text("encryptionsalt: v1:abc\n", "utf-8")
    assert settings_digest(tmp_path, "bank", "s3://states/a?region=eu-central-1") == bare, "the engine writes the salt"
    assert settings_digest(tmp_path, "bank", "s3://states/b") != bare
    file.write_text("config: {gpu-tenancy:scope: platform}\n", "utf-8")
    assert settings_digest(tmp_path, "bank", "s3://states/a") != bare


@pytest.mark.parametrize(
    ("text", "has_config"),
    [
        ("config: {gpu-tenancy:tenant: voice}", True),
        ("config: {gpu-tenancy:scope: all}", True),
        ("config: {gpu-tenancy:tenant: fraud, gpu-tenancy:scope: tenant, gpu-tenancy:environment: bank}", False),
        ("config: {aws:region: x}", False),
        ("", False),
    ],
)
def test_config_that_names_another_tenant_is_left_to_the_projects_program(
    text: str, has_config: bool, tmp_path: Path
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.bank--fraud.yaml").write_text(text, "utf-8")
    assert has_program_config(tmp_path, ("bank--fraud", StackScope.TENANT, "fraud")) is has_config


def test_only_a_program_and_a_pack_of_the_library_alone_are_standard(tmp_path: Path) -> None:
    assert is_standard(ROOT)
    (tmp_path / "policy").mkdir()
    for name in ("__main__.py", "policy/__main__.py"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    assert is_standard(tmp_path)
    with (tmp_path / "policy" / "__main__.py").open("a") as file:
        file.write("print('a rule of our own')\n")
    assert not is_standard(tmp_path)


# Records


class Server:
    """Stores ConfigMaps, or refuses."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.items = status, {}  # type: tuple[int, dict[str, Any]]

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        if self.status != 200:
            return Response(self.status, {"message": "no"})
        name = path.partition("?")[0].rpartition("/")[2]
        if method == "PATCH":
            self.items[name] = body
        elif method == "DELETE":
            return Response(200 if self.items.pop(name, None) else 404, {})
        return Response(200, {"items": list(self.items.values())})


def test_a_record_is_read_as_it_was_written_until_it_is_removed() -> None:
    server: Any = Server()
    records.write(server, "bank--fraud", SAME)
    records.write(server, "bank", replace(SAME, plan="p"))
    assert records.read(server) == {"bank--fraud": SAME, "bank": replace(SAME, plan="p")}
    records.forget(server, "bank")
    records.forget(server, "bank")
    assert set(records.read(server)) == {"bank--fraud"}


def test_a_damaged_record_counts_as_none() -> None:
    server: Any = Server()
    records.write(server, "bank", SAME)
    del server.items["stack.bank"]["data"]["plan"]
    assert records.read(server) == {}


def test_records_that_may_not_be_read_count_as_none_and_one_that_stays_ends_the_run() -> None:
    server: Any = Server(403)
    assert records.read(server) == {}
    with pytest.raises(ApiUnreachable, match="the record of stack bank is not removed: 403"):
        records.forget(server, "bank")


def test_drift_of_a_fleet_is_one_list_for_each_kind_and_batch_of_tenants(bank: Loaded) -> None:
    plan = make_plan(bank, bank.day)
    fraud_plan = plan.tenant("fraud")
    large_plan = replace(plan, tenants=tuple(replace(fraud_plan, name=f"t{number}") for number in range(2 * BATCH + 1)))
    paths: list[str] = []

    def list_items(path: str, absent: bool) -> list[Any]:
        assert absent
        paths.append(path)
        return []

    api: Any = SimpleNamespace(items=list_items)
    assert tenants_with_drift(api, large_plan, large_plan.names) == {"fraud"}, "by the label of what is missing"
    kinds = {item["kind"] for item in fraud_plan.objects()}
    assert len(paths) == 3 * len(kinds)
    assert every(re.search(r"labelSelector=[\w.%-]+$", path) for path in paths), "quoted"
    assert f"%28t{2 * BATCH}%29" in paths[-1]


# Side by side


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [(2, 24_000, 2), (64, 256_000, 16), (8, 2_000, 2), (1, 512, 1), (4, 16_000, 4)],
)
def test_workers_follow_cores_and_memory(cores: int, memory: int, expected: int) -> None:
    assert default_workers(cores, memory) == expected


class Broken(Exception):
    pass


def run(items: list[str], work: Any, at_once: int = 4) -> list[RunResult[str]]:
    return list(run_all(items, work, at_once, Broken, lambda: None))


def test_one_that_fails_stops_no_other() -> None:
    def work(item: str) -> None:
        if item == "b":
            raise Broken("no")

    assert {outcome.item: outcome.failed for outcome in run(["a", "b", "c"], work)} == {"a": None, "b": "no", "c": None}


def test_no_more_run_at_once_than_there_are_workers() -> None:
    now, maximum, lock, meet = [0], [0], threading.Lock(), threading.Barrier(3)

    def work(_: str) -> None:
        with lock:
            now[0] += 1
            maximum[0] = max(maximum[0], now[0])
        meet.wait(PATIENCE)
        with lock:
            now[0] -= 1

    run([str(number) for number in range(9)], work, 3)
    assert maximum == [3]


def test_a_busy_server_slows_the_run_and_fails_no_stack() -> None:
    tries: dict[str, int] = {}

    def work(item: str) -> None:
        tries[item] = tries.get(item, 0) + 1
        if tries[item] < 3:
            raise Broken("POST: 429 Too Many Requests")

    assert [outcome.failed for outcome in run(["a", "b"], work)] == [None, None]
    assert tries == {"a": 3, "b": 3}


def test_a_server_that_stays_busy_fails_the_stack_in_the_end() -> None:
    def work(_: str) -> None:
        raise Broken("429")

    (result,) = run(["a"], work)
    assert result.failed == "429"


@pytest.mark.parametrize(("text", "busy"), [("HTTP 429", True), ("TooManyRequests", True), ("id 14290 refused", False)])
def test_what_a_busy_server_says_is_known(text: str, busy: bool) -> None:
    assert is_busy(text) is busy


def test_the_throttle_halves_and_comes_back_one_by_one() -> None:
    throttle = Throttle(8)
    throttle.busy()
    throttle.busy()
    assert throttle.current_workers == 2
    for _ in range(20):
        throttle.fine()
    assert throttle.current_workers == 8


def test_after_ctrl_c_what_runs_ends_and_nothing_more_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, messages, go = [], [], [], threading.Event()
    real = workers.wait

    def interrupted_once(*arguments: Any, **more: Any) -> Any:
        if not messages:
            raise KeyboardInterrupt
        go.set()
        return real(*arguments, **more)

    monkeypatch.setattr(workers, "wait", interrupted_once)

    def work(item: str) -> None:
        begun.append(item)
        go.wait(PATIENCE)
        ended.append(item)

    with pytest.raises(KeyboardInterrupt):
        list(run_all(["a", "b", "c", "d"], work, 2, Broken, lambda: messages.append("told")))
    assert (sorted(begun), sorted(ended), messages) == (["a", "b"], ["a", "b"], ["told"])


def test_every_tenant_is_in_one_shard_and_stays_there_when_others_come() -> None:
    fleet = [(f"bank--t{n}", StackScope.TENANT, f"t{n}") for n in range(100)]
    parts = [in_shard([*STACKS, *fleet], part, 4) for part in range(1, 5)]
    assert sorted(chain(*parts)) == sorted([*STACKS[1:], *fleet]), "and the platform in none"
    assert every(set(in_shard(fleet[:50], part, 4)) <= set(parts[part - 1]) for part in range(1, 5))


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3"])
def test_a_part_that_there_is_not_is_refused_before_anything_is_read(shard: str) -> None:
    result = CliRunner().invoke(main, ["up", "nowhere", "--shard", shard])
    assert result.exit_code == 2
    assert f"given {shard}; rule: K/N with K from 1 to N" in result.output


def test_an_engine_beside_others_is_in_a_group_that_ctrl_c_does_not_reach(tmp_path: Path) -> None:
    script = tmp_path / "pulumi"
    script.write_text("#!/bin/sh\nps -o pgid= -p $$\nexit ${FAILS:-0}\n", "utf-8")
    script.chmod(0o755)
    command = OwnGroupCommand(SimpleNamespace(command=str(script), version=None))  # ty: ignore[invalid-argument-type]
    heard: list[str] = []
    assert int(command.run(["up"], str(tmp_path), {}, heard.append).stdout) != os.getpgrp()
    assert len(heard) == 1
    with pytest.raises(automation.CommandError):
        command.run(["up"], str(tmp_path), {"FAILS": "1"})
