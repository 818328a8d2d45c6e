"""The GPUs that run are those that Kueue counts, whatever happens to work of any kind, with the kinds' own operators.

At rest: no tenant's pods have more GPUs than its queues count, and fewer only where pods ended before their work; what
was told to end has ended within a minute; nothing is evicted any more; and no work that fits into a guarantee waits.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import town
from as_clock import AsClock
from ledger import END_SECONDS, Player, Verdict
from scene import Object, Scene, kueue_values

from tenancy.clock.controller import Clock
from tenancy.cluster import evictions
from tenancy.explain import gpu_counts
from tenancy.lab import control_plane
from tenancy.lab.layout import environ
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.queueing.queue_names import API
from tests import operators, running_operators
from tests.ledger_events import (
    KINDS,
    REGRESSIONS,
    REST_EVENT,
    SETTINGS_REGRESSIONS,
    WITHOUT_PODS,
    Event,
    Story,
    about,
    smallest,
)
from tests.waiting import until

OPERATORS = ("jobset", "lws", "trainer", "kuberay", "mpi-operator")
QUEUED = ("jobset", "leaderworkerset", "mpijob", "raycluster", "rayjob", "trainjob")
FILES = {
    # The heads of Ray clusters and the launchers of MPIJobs have no GPUs.
    "environment.yaml": town.ENVIRONMENT.replace("{cpu: 600, memory: 4Ti}", "{services: 200}")
    + "  general: {instance-type: m7i.4xlarge, nodes: 2}\n"
    + f"queues: {{clock: true, kinds: [{', '.join(QUEUED)}]}}\n",
    "tenants/fraud.yaml": town.tenant(
        "fraud", "risk", "guaranteed: 32, sharing: lend-and-borrow, lending-limit: 16, borrowing-limit: 32"
    ),
    "tenants/performance.yaml": town.tenant(
        "performance", "markets", "guaranteed: 24, sharing: lend-and-borrow, lending-limit: 24, borrowing-limit: 40"
    ),
}
EVENTS = int(os.environ.get("TENANCY_LEDGER_EVENTS", "300"))
SEED = int(os.environ.get("TENANCY_LEDGER_SEED", "0")) or 20261127
RELEASE_SECONDS = 5
"""After which the clock ends an eviction."""
ATTEMPTS = 40
"""Parts of a failed story that are played again, to find the smallest that fails."""
SEARCH_SECONDS = float(os.environ.get("TENANCY_LEDGER_SEARCH_SECONDS", "600"))
"""For which parts are played."""
BEFORE = {
    "featureGates": {"ReclaimablePods": True},
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
}
"""Kueue's own defaults, which the environment's configuration changes."""


def definitions() -> list[Object]:
    return [*operators.crds(), *running_operators.definitions()]


CRDS = definitions


@pytest.fixture(scope="module")
def player(scene: Scene) -> Iterator[Player]:
    """With the clock, which is less patient with evictions than in a cluster."""
    clock = Clock(AsClock(scene.plan.context), scene.loaded.environment, scene.loaded.tenants)
    with running_operators.running(scene.lab, OPERATORS) as programs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(evictions, "RELEASE_SECONDS", RELEASE_SECONDS)
        scene.put(runtime(scene))
        yield Player(scene, programs, clock)
        Player(scene, programs).clear()


def runtime(scene: Scene) -> Object:
    """The platform's runtime, from which a TrainJob is made."""
    pods = scene.job("fraud", "any", 1)["spec"]["template"]
    pods["spec"]["containers"][0]["name"] = "node"
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def played(player: Player, events: Sequence[Event], patience: float = END_SECONDS) -> Verdict | None:
    player.clear()
    return player.play([*events, *([] if events and events[-1] == REST_EVENT else [REST_EVENT])], patience)


def holds_for(player: Player, events: Sequence[Event], title: str) -> None:
    """Play the events; what was wrong ends in a message with the smallest part of them that shows it."""
    verdict = played(player, events)
    if verdict is None:
        # What a story leaves fails this story, and not the next.
        player.clear()
        return
    problems = "\n".join(f"  {problem}" for problem in verdict.problems)
    message = f"{title}: after {verdict.number} events, at rest:\n{problems}\n{verdict.evidence}"
    # The search takes minutes, and may itself be ended.
    print(message, file=sys.stderr, flush=True)
    try:
        part = smallest_failing(player, events[: verdict.number], verdict.works)
    except AssertionError as error:
        part = f"The search for a smaller part was given up: {error}"
    pytest.fail(f"{message}\n{part}")


def smallest_failing(player: Player, events: Sequence[Event], works: Collection[str]) -> str:
    """A part of the events that fails, and how many were tried."""
    ends = time.monotonic() + SEARCH_SECONDS

    def fails(part: Sequence[Event]) -> bool:
        return time.monotonic() < ends and played(player, part) is not None

    tried = about(events, works) if works else events
    start = tried if fails(tried) else events
    least, attempts = smallest(start, fails, ATTEMPTS)
    lines = "\n".join(f"    {event!r}," for event in least)
    return f"The smallest part that fails, of {attempts} that were tried:\n[\n{lines}\n]"


def test_what_was_wrong_first_is_said_though_no_smaller_part_can_be_played() -> None:
    player, problem = Mock(spec=Player), "w1: its pods have 8 GPUs and 0 are counted for it"
    player.play.return_value = Verdict(1, (problem,), frozenset({"w1"}))
    player.clear.side_effect = (None, AssertionError("after 60 s still not: no workload is left"))
    with pytest.raises(pytest.fail.Exception) as failure:
        holds_for(player, [Event("pause", facts={"seconds": 0})], "seed 1")
    assert problem in str(failure.value)
    assert "given up: after 60 s still not: no workload is left" in str(failure.value)


def test_what_a_story_leaves_is_named_once(player: Player) -> None:
    scene = player.scene
    pods = scene.job("fraud", "any", 1)["spec"]["template"]["spec"]
    metadata = {"name": "left", "namespace": scene.space("fraud")}
    spec = {"queueName": "default", "podSets": [{"name": "main", "count": 1, "template": {"spec": pods}}]}
    scene.put({"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec})
    with pytest.raises(AssertionError, match=r'no workload is left\n.*"name": "left".*"Admitted"'):
        scene.clear(seconds=3)
    player.clear()


@contextmanager
def configured(scene: Scene, **settings: Any) -> Iterator[None]:
    """Kueue with other settings."""

    def start(values: dict[str, Any]) -> None:
        group = scene.loaded.environment.platform.group
        nodes = fake_nodes(scene.loaded.environment)
        control_plane.up(root=scene.root, platform_group=group, nodes=nodes, queues=values)

    start(kueue_values(scene.loaded, **settings))
    try:
        yield
    finally:
        start(kueue_values(scene.loaded))


def test_what_runs_is_counted_at_every_rest_of_a_random_story(player: Player) -> None:
    """Its seed is printed; `TENANCY_LEDGER_SEED` plays another one, of `TENANCY_LEDGER_EVENTS`."""
    events = Story(SEED, KINDS, ("kueue", *OPERATORS)).events(EVENTS)
    holds_for(player, events, f"seed {SEED}")
    print(
        f"rests took {', '.join(f'{seconds:.0f}' for seconds in player.rests)} s; events "
        f"{', '.join(f'{verb} {seconds:.0f}' for verb, seconds in player.seconds.most_common())} s; "
        f"{dict(player.answers)}",
        file=sys.stderr,
    )
    assert {verb for verb, status in player.answers if status == 2} >= {"make", "delete", "scale", "evict"}


@pytest.mark.exhaustive(reason="ten thousand events; `make test` has three hundred")
@pytest.mark.parametrize("number", range(10))
def test_what_runs_is_counted_in_ten_thousand_events(player: Player, number: int) -> None:
    events = Story(SEED + 1 + number, KINDS, ("kueue", *OPERATORS)).events(1000)
    holds_for(player, events, f"seed {SEED + 1 + number}")


@pytest.mark.parametrize("title", REGRESSIONS)
def test_what_was_found_in_queues_once_is_counted(player: Player, title: str) -> None:
    holds_for(player, REGRESSIONS[title], title)


@pytest.mark.exhaustive(reason="Kueue's own defaults, one by one; `make test` holds our settings")
@pytest.mark.parametrize("title", SETTINGS_REGRESSIONS)
def test_with_kueues_own_defaults_each_of_them_is_seen(player: Player, title: str) -> None:
    with configured(player.scene, **BEFORE):
        verdict = played(player, REGRESSIONS[title], patience=20)
        player.clear()
    assert verdict, "\n".join(player.log)


@pytest.mark.exhaustive(reason="without the clock; `make test` plays with it")
def test_without_the_clock_an_eviction_without_pods_ends_by_the_command_that_is_told(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_counts, "COUNT_DELAY_SECONDS", 1)
    scene, space = player.scene, player.scene.space("fraud")
    player.clear()
    verdict = Player(scene).play(REGRESSIONS[WITHOUT_PODS], patience=20)
    assert verdict is not None
    assert any("it was evicted, and 64 GPUs are counted for it" in problem for problem in verdict.problems)
    told = scene.why(space, "set", "statefulset").sentence
    assert "It has no pods, and Kueue still counts 64 nvidia.com/gpu for it: other work waits." in told
    (remark,) = [text for text in gpu_counts.remarks(scene.api, scene.loaded.environment, [space]) if "evicted" in text]
    (command,) = {*re.findall("`(kubectl .*?)`", told), *re.findall("`(kubectl .*?)`", remark)}
    subprocess.run(shlex.split(command), env=environ(scene.root), check=True, capture_output=True)
    until(lambda: scene.gpus_in_use("performance") == 24, "the guarantee that waited for these GPUs has them")
    scene.until_held("fraud", 0)
    player.clear()


@pytest.mark.exhaustive(reason="a hole under Kueue's own defaults; what is said of one is in tests/unit/explain")
def test_a_hole_is_named_and_closes_when_kueue_gets_its_settings(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tenancy queues` and `tenancy why` name the work while it is not counted; with the gate off Kueue counts it again
    and neither says anything any more."""
    monkeypatch.setattr(gpu_counts, "COUNT_DELAY_SECONDS", 1)
    scene, space = player.scene, player.scene.space("fraud")
    environment = scene.loaded.environment

    def remarks() -> list[str]:
        return [text for text in gpu_counts.remarks(scene.api, environment, [space]) if "to other work too" in text]

    with configured(scene, **BEFORE):
        played(player, REGRESSIONS["a JobSet whose children have succeeded is restarted"], patience=15)
        until(lambda: scene.why(space, "sweep", "jobset").state == "uncounted", "why says that it is not counted")
        (remark,) = remarks()
        assert remark.startswith(f"JobSet sweep in {space}: 8 pods of this JobSet run with 64 nvidia.com/gpu")
        assert "Kueue counts 8" in remark
    until(lambda: scene.gpus_in_use("fraud") == 64, "Kueue counts it")
    assert scene.why(space, "sweep", "jobset").state == "runs"
