"""A new version in waves: after each wave a gate, and a red gate stops the rollout."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tenancy.catalog import vocabulary as words
from tenancy.cli.up_fleet import Fleet, run_tenants

if TYPE_CHECKING:
    from tenancy.live.api import Api
    from tenancy.planning.scope import Stack

SHOWN = 12
"""Lines of a failed check that the message has."""


def run_waves(
    fleet: Fleet, stacks: Sequence[Stack], workers: int, gate: Callable[[Fleet], list[str]] | None = None
) -> list[str]:
    """Run the tenants' stacks that need it, those of a new program in the environment's waves; the names of failed
    ones. Failed if a wave fails or a gate is red."""
    from tenancy.engine.driver import Failed
    from tenancy.engine.rollout import in_waves, waves

    environment = fleet.loaded.environment
    if environment.rollout is None or fleet.run.only_preview:
        return run_tenants(fleet, stacks, workers)
    planned = waves(environment, fleet.loaded.tenants, environment.rollout)
    todo = [wave for wave in in_waves(planned, fleet.causes) if wave.stacks]
    later = {name for wave in todo for name in wave.stacks}
    failed = run_tenants(fleet, [stack for stack in stacks if stack[0] not in later], workers)
    for wave in todo:
        if wave.name != planned[0].name:
            _pause(fleet, environment.rollout.pause, wave.name)
            if problems := (gate or red)(fleet):
                raise Failed(_stopped(fleet, f"before {wave.name}", problems))
        fleet.report.say(f"{wave.name}: {len(wave.stacks)} stacks")
        if broken := run_tenants(fleet, [stack for stack in stacks if stack[0] in wave.stacks], workers):
            raise Failed(_stopped(fleet, f"in {wave.name}", [f"stacks failed: {', '.join(broken)}"]))
    return failed


def red(fleet: Fleet) -> list[str]:
    """What the gate finds: attacks that succeed, queues that admit nothing, and critical alerts."""
    queues = inactive_queues(fleet.driver.api, fleet.run.plan.environment)
    return [*_verified(fleet), *queues, *alerting(fleet)]


def alerting(fleet: Fleet) -> Iterator[str]:
    """Critical alerts of the environment, or why they are not known; none where no metrics are collected, or where
    `rollout` ignores them."""
    from tenancy.live.alerts import AlertsUnknown, firing
    from tenancy.schema.metrics import Collector
    from tenancy.schema.rollout import AlertGate

    environment = fleet.loaded.environment
    ignored = environment.rollout is not None and environment.rollout.alerts is AlertGate.IGNORED
    if ignored or environment.metrics.collector is Collector.NONE:
        return
    try:
        yield from firing(fleet.driver.api, environment.environment, _prometheus(fleet))
    except AlertsUnknown as error:
        yield f"{error}; to go on without alerts: `alerts: ignored` in rollout"


def _prometheus(fleet: Fleet) -> str:
    """Address of the environment's Prometheus: beside the lab's control plane in a lab."""
    if fleet.run.plan.context == words.LAB_CONTEXT:
        from tenancy.lab import ports
        from tenancy.lab.layout import Lab

        if port := ports.remembered(Lab.of(fleet.driver.root)).get("prometheus"):
            return f"http://127.0.0.1:{port}"
    return fleet.loaded.environment.metrics.address


def inactive_queues(api: Api, environment: str) -> Iterator[str]:
    """ClusterQueues of the environment that Kueue does not serve; without Kueue none."""
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    for item in api.items(f"{path}?labelSelector={words.ENVIRONMENT}%3D{environment}", absent=True):
        if item["spec"].get("stopPolicy", "None") != "None":
            continue  # on hold on purpose
        for each in (item.get("status") or {}).get("conditions") or ():
            if each["type"] == "Active" and each["status"] != "True":
                yield f"ClusterQueue {item['metadata']['name']} is not active: {each.get('message', '')}"


def _verified(fleet: Fleet) -> Iterator[str]:
    """Nothing if `tenancy verify` finds no gap; it runs in a process of its own, whose memory ends with it."""
    lab = ["--lab"] if fleet.run.plan.context == words.LAB_CONTEXT else []
    command = [sys.executable, "-m", "tenancy", "verify", str(fleet.loaded.folder), "--brief", *lab]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-SHOWN:]
        yield "`tenancy verify` found a gap:\n    " + "\n    ".join(lines)


def _pause(fleet: Fleet, minutes: int, wave: str) -> None:
    if minutes:
        fleet.report.say(f"{wave} begins after {minutes} min and a gate (Ctrl-C stops the rollout here)")
    time.sleep(60 * minutes)


def _stopped(fleet: Fleet, where: str, problems: Sequence[str]) -> str:
    name = fleet.run.plan.environment
    return (
        f"the rollout of {name} stopped {where}\n  " + "\n  ".join(problems) + f"\n  `tenancy rollout status {name}` "
        f"shows where it stands; change: correct it, and `tenancy up {name}` goes on with the gate; or check out the "
        f"former version, and `tenancy up {name}` takes back the tenants that have the new one"
    )
