"""Queues that change through the real engine: refused while workloads are in them, replaced when they are empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import town
from scene import ROOT, Scene, condition, on_lab_of

from tenancy.planning.queueing.queue_names import API
from tests.waiting import until

sys.path.append(str(ROOT / "tests" / "engine"))
from engine_project import Project, copied

FILE = "tenants/fraud.yaml"
ENVIRONMENT = (
    town.ENVIRONMENT.replace("environment: town", "environment: local")
    .replace("context: town", "context: gpu-tenancy-lab")
    .replace("tiers:\n", "tiers:\n  urgent: {priority: 2000}\n")
)
NAMESPACES = """\
namespaces:
  - {name: train, tier: batch, queues: {nightly: 2}}
  - {name: serve, tier: production}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The town, deployed."""
    with copied(tmp_path_factory.mktemp("engine") / "project") as lab_project:
        for tenant in ("performance", "research"):
            lab_project.remove(f"tenants/{tenant}.yaml")
        lab_project.write("environment.yaml", ENVIRONMENT)
        lab_project.write(FILE, town.tenant("fraud", "risk", "guaranteed: 16", more=NAMESPACES))
        result = lab_project.tenancy("lab", "up", "local")
        assert result.code == 0, result.text
        lab_project.up()
        yield lab_project


@pytest.fixture
def scene(project: Project) -> Iterator[Scene]:
    with on_lab_of(project.folder, project.environment) as lab_scene:
        lab_scene.until_counted()
        yield lab_scene


@pytest.mark.exhaustive(
    reason="a queue that goes while a job runs; the refusal is in tests/unit/cluster/test_preflight_reads.py"
)
def test_a_queue_that_goes_is_refused_while_work_is_in_it(project: Project, scene: Scene) -> None:
    """A job of queue nightly runs: the file without that queue is refused, and names the queue. When the job has
    ended, the queue goes."""
    home = scene.submit("fraud", "one", 1, part="train", queue="nightly")
    scene.until_runs(home, "one")
    until(lambda: _local(scene, home, "nightly")["status"].get("reservingWorkloads") == 1, "its queue counts it")
    project.edit(FILE, ", queues: {nightly: 2}", "")
    result = project.tenancy("up", "local")
    assert result.code == 1, result.text
    assert f"given queue nightly of {home}, which would leave the file with 1 running and 0 waiting in it" in result.err
    assert scene.runs(home, "one")
    scene.clear()
    project.up()
    assert {q["metadata"]["name"] for q in scene.items("LocalQueue", home)} == {"default"}


@pytest.mark.exhaustive(
    reason=(
        "a namespace that changes its tier with work in its queue; that a "
        "queue in use is not removed is in "
        "tests/unit/cluster/test_preflight_reads.py"
    )
)
def test_a_namespace_changes_its_tier_when_its_queue_is_empty(project: Project, scene: Scene) -> None:
    """A LocalQueue keeps its ClusterQueue for life. With work that runs in it the new tier is refused; drained, the
    work waits, the queue is replaced, and the work starts in the new tier's queue when it opens."""
    home = scene.submit("fraud", "one", 1, part="train")
    scene.until_runs(home, "one")
    until(lambda: _local(scene, home, "default")["status"].get("reservingWorkloads") == 1, "its queue counts it")
    project.edit(FILE, "{name: train, tier: batch}", "{name: train, tier: urgent}")
    result = project.tenancy("up", "local")
    assert result.code == 1, result.text
    assert f"given queue default of {home}, which would lead to fraud--urgent" in result.err
    assert scene.runs(home, "one")

    project.edit(FILE, "{name: train, tier: urgent}", "{name: train, tier: batch}")
    project.edit(FILE, "namespaces:", "stop-policy: hold-and-drain\nnamespaces:")
    project.up()
    until(lambda: not scene.runs(home, "one"), "it is evicted")
    until(lambda: _local(scene, home, "default")["status"].get("reservingWorkloads") == 0, "nothing runs in its queue")
    project.edit(FILE, "{name: train, tier: batch}", "{name: train, tier: urgent}")
    project.up()
    assert _local(scene, home, "default")["spec"]["clusterQueue"] == "fraud--urgent"
    project.edit(FILE, "stop-policy: hold-and-drain\n", "")
    project.up()
    scene.until_runs(home, "one")
    admitted = (scene.workload(home, "one") or {})["status"]["admission"]
    assert admitted["clusterQueue"] == "fraud--urgent"
    assert condition(scene.workload(home, "one"), "Evicted").get("status") == "False"


def _local(scene: Scene, home: str, name: str) -> dict[str, dict[str, object]]:
    return next(q for q in scene.items("LocalQueue", home, API) if q["metadata"]["name"] == name)
