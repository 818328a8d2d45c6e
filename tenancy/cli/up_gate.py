"""The gate between two waves of a rollout: what is wrong on the cluster stops the next wave."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenancy.catalog import vocabulary

if TYPE_CHECKING:
    from tenancy.cli.up_settings import EnvironmentRun
    from tenancy.cluster.api import Api

MAX_CHECK_LINES = 12
"""Lines of a failed check that the message has."""


def gate_findings(run: EnvironmentRun) -> list[str]:
    """Findings of the gate: attacks that succeed, queues that admit nothing, and critical alerts."""
    queues = inactive_queues(run.driver.api, run.plan.environment)
    return [*_verification_gaps(run), *queues, *alert_findings(run)]


def alert_findings(run: EnvironmentRun) -> Iterator[str]:
    """Critical alerts of the environment, or why they are not known; none where no metrics are collected, or where
    `rollout` ignores them."""
    from tenancy.cluster.alerts import firing
    from tenancy.cluster.prometheus import PrometheusUnavailable
    from tenancy.spec.fields.rollout import AlertGate

    environment = run.loaded.environment
    ignored = environment.rollout is not None and environment.rollout.alerts is AlertGate.IGNORED
    address = _prometheus(run)
    if ignored or not address:
        return
    try:
        yield from firing(run.driver.api, environment.environment, address)
    except PrometheusUnavailable as error:
        yield f"{error}; to go on without alerts: `alerts: ignored` in rollout"


def _prometheus(run: EnvironmentRun) -> str:
    """Address of the environment's Prometheus; empty if it has none. A lab has one beside its control plane, or none,
    whatever the environment's files say: no operator runs in it."""
    if run.plan.context != vocabulary.LAB_CONTEXT:
        metrics = run.loaded.environment.metrics
        return metrics.address if metrics.collected else ""
    from tenancy.lab import ports
    from tenancy.lab.layout import Lab

    lab = Lab.locate(run.driver.root)
    # Port 0 refuses every connection: a Prometheus that was asked for and never started is red too.
    port = ports.remembered(lab).get("prometheus", 0)
    return f"http://127.0.0.1:{port}" if lab.recall().get("metrics") else ""


def inactive_queues(api: Api, environment: str) -> Iterator[str]:
    """ClusterQueues of the environment that Kueue does not serve; without Kueue none."""
    from tenancy.cluster.selectors import environment_selector

    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    for item in api.items(f"{path}?labelSelector={environment_selector(environment)}", absent=True):
        if item["spec"].get("stopPolicy", "None") != "None":
            continue  # on hold on purpose
        for condition in (item.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Active" and condition["status"] != "True":
                yield f"ClusterQueue {item['metadata']['name']} is not active: {condition.get('message', '')}"


def _verification_gaps(run: EnvironmentRun) -> Iterator[str]:
    """Nothing if `tenancy verify` finds no gap; it runs in a process of its own, whose memory ends with it."""
    lab = ["--lab"] if run.plan.context == vocabulary.LAB_CONTEXT else []
    command = [sys.executable, "-m", "tenancy", "verify", str(run.loaded.folder), "--brief", *lab]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = (process.stdout + process.stderr).strip().splitlines()[-MAX_CHECK_LINES:]
        yield "`tenancy verify` found a gap:\n    " + "\n    ".join(lines)
