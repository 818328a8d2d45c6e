"""A lab for a benchmark: started with the queues of a plan, asked, ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.lab import control_plane
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.layout import Lab
from tenancy.planning import Plan
from tenancy.planning.guards import QUESTION
from tenancy.spec.loader import Loaded

SERVER = "kube-apiserver"
CREATE = "application/json"
REFUSED = 403


@contextmanager
def started(root: Path, loaded: Loaded, plan: Plan, nodes: list[Object]) -> Generator[Lab]:
    """A lab of its own in that folder, without the plan's objects; nothing of it is left running."""
    assert plan.platform.queue_chart
    (root / "Pulumi.yaml").write_text("name: bench\nruntime: python\n", "utf-8")
    os.environ.pop("GPU_TENANCY_LAB", None)
    group, values = loaded.environment.platform.group, plan.platform.queue_chart.values
    lab = control_plane.up(root=root, platform_group=group, nodes=nodes, queues=values)
    try:
        yield lab
    finally:
        control_plane.down(root=root)


def answers(lab: Lab, port: int) -> bool:
    """Whether the API server on that port is ready."""
    try:
        with LabApi(lab, port) as api:
            return api.get("/readyz") == "ok"
    except (OSError, ApiError):
        return False


def guards_judge(api: LabApi) -> bool:
    """Whether the readiness probe refuses: it is the last policy that the server takes up."""
    question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    path = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps?dryRun=All"
    try:
        api.request("POST", path, question, CREATE)
    except ApiError as error:
        return error.status == REFUSED
    return False


def until(fact: Callable[[], bool], what: str, patience: float) -> None:
    """Wait until it is true; the benchmark ends if it is not within so many seconds."""
    deadline = time.monotonic() + patience
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {patience:.0f} s still not: {what}")
        time.sleep(0.2)
