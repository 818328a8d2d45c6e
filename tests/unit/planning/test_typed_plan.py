"""Readers of our own plan use its fields: manifests are for what writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenancy.diff import changes
from tenancy.diff.changes import SpecState
from tenancy.planning import Plan, access_review
from tenancy.planning.kubernetes import namespace_objects as kubernetes
from tenancy.planning.queueing import queue_objects as queueing
from tenancy.report.planes import IsolationMatrix
from tenancy.simulation.quotas import Quotas
from tenancy.spec.loader import Loaded

ROOT = Path(__file__).parents[3]
PLANNED = (
    *(kubernetes.ClusterRole, kubernetes.LimitRange, kubernetes.NetworkPolicy, kubernetes.ResourceQuota),
    *(kubernetes.RoleBinding, kubernetes.PodAccount),
    *(queueing.ClusterQueue, queueing.Cohort, queueing.LocalQueue, queueing.ResourceFlavor),
)
OF_OTHERS = {
    "tenancy/diff/previews.py": "the engine's previews",
    "tenancy/simulation/cluster.py": "objects of the simulation's cluster",
    "tenancy/simulation/clocked.py": "writes the clock's queues and reservations into the simulation's cluster",
    "tenancy/simulation/idling.py": "Workloads of the simulation's cluster",
    "tenancy/simulation/objects.py": "writes the plan's queues into the simulation's cluster",
    "tenancy/simulation/rounds.py": "the clock's reservations, which are Workloads",
    "tenancy/simulation/runner.py": "Workloads as Kueue wrote them",
    "tenancy/simulation/workloads.py": "Workloads as Kueue wrote them",
}
"""Modules that read manifests which are not the plan's, and whose these are."""


@pytest.fixture
def no_manifests(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of which no object becomes a manifest."""

    def fail(self: object) -> None:
        raise AssertionError(f"a reader of the plan asked for a manifest of {self}")

    for planned in PLANNED:
        monkeypatch.setattr(planned, "manifest", fail)
    return plan


def test_the_report_the_review_and_the_simulation_need_no_manifest(loaded: Loaded, no_manifests: Plan) -> None:
    with pytest.raises(AssertionError, match="asked for a manifest"):
        list(no_manifests.objects())
    assert [plane.name for plane in IsolationMatrix(loaded, no_manifests).all()][:2] == ["objects", "network"]
    assert access_review.rights(no_manifests)
    assert access_review.planned_bindings(no_manifests)
    assert access_review.review(loaded.environment, loaded.tenants, no_manifests)
    assert Quotas(no_manifests.cluster_queues, no_manifests.cohorts).fits("fraud--batch", "nvidia.com/gpu", 1)


@pytest.mark.usefixtures("no_manifests")
def test_a_diff_compares_quotas_queues_and_access_without_a_manifest(loaded: Loaded) -> None:
    side = SpecState("now", loaded)
    assert changes._quotas(side)
    assert changes._workload_places(side)
    assert changes._access(side)


def _reads(path: Path) -> Iterator[str]:
    """Places at which a module indexes a manifest, or asks the plan for manifests of one kind of object."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        key = node.slice if isinstance(node, ast.Subscript) else None
        indexed = isinstance(key, ast.Constant) and key.value in FIELDS
        if indexed or (isinstance(node, ast.Attribute) and node.attr in {"isolation", "manifest", "manifests"}):
            yield ast.unparse(node)


FIELDS = {"spec", "metadata", "roleRef", "subjects", "hard"}


def test_report_diff_and_simulation_index_no_manifest_of_the_plan() -> None:
    folders = ("report", "diff", "simulation")
    modules = [path for folder in folders for path in sorted((ROOT / "tenancy" / folder).rglob("*.py"))]
    reads_by_module = {str(path.relative_to(ROOT)): list(_reads(path)) for path in modules}
    assert {path: reads for path, reads in reads_by_module.items() if reads and path not in OF_OTHERS} == {}
    assert set(OF_OTHERS) <= set(reads_by_module)


@pytest.mark.parametrize("line", ["space.isolation", "item['spec']['hard']", "queue.manifest()", "x['metadata']"])
def test_a_manifest_that_is_read_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"{line}\n", "utf-8")
    assert list(_reads(tmp_path / "module.py"))
