"""Counts that the API server writes with a suffix (1,000 is `1k`), and every other spelling, wherever they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog.gpus import GPU
from tenancy.diff import previews
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import ChangeTopic
from tenancy.kube import pods
from tenancy.planning import Plan, make_plan
from tenancy.report.planes import CellKind, IsolationMatrix
from tenancy.rules.cross_object import findings_together
from tenancy.rules.queues import CHECKS
from tenancy.simulation.quotas import Quotas
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder, amounts

COUNTS = (999, 1000, 1001, 2000, 10_000)
SPELLINGS = {
    "1000": ("1k", "1e3", "1E3", "1000000m", "1000.", "+1000", "0.001M", "1000000000u"),
    "129000000": ("129e6", "129M", "129E6", "0.129G"),
    "1": ("1000m", "1.0", "01", "1e0", ".1e1"),
}
ALL = [(number, text) for number, texts in SPELLINGS.items() for text in texts]
QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"


@pytest.fixture(autouse=True)
def large_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store and a queue for as many pods: what they are on EKS is not what is asked here."""
    monkeypatch.setattr("tenancy.spec.checks.stored_objects.STORE_BYTES", 2**50)
    monkeypatch.setattr("tenancy.spec.checks.crossfile.KUEUE_SIZES", (2**50,))


def world(spec: SpecFolder, guaranteed: int) -> tuple[Loaded, Plan]:
    """As many GPUs of tenant fraud as are said, all lent, of which tenant research may borrow 400."""
    spec.edit("environment.yaml", "nodes: 4}", f"nodes: {guaranteed // 8 + 2}}}")
    spec.edit("environment.yaml", "    interruptible: true\n", f"    interruptible: true\n{QUOTA}")
    spec.edit("tenants/fraud.yaml", "guaranteed: 16, ", f"guaranteed: {guaranteed}, ")
    spec.edit("tenants/fraud.yaml", "lending-limit: 8, ", f"lending-limit: {guaranteed}, ")
    spec.edit("tenants/research.yaml", "a100: {guaranteed: 8}", f"a100: {BORROWS}")
    spec.edit("tenants/research.yaml", "department: research", "department: risk")
    loaded = spec.load()
    return loaded, make_plan(loaded, loaded.day)


QUOTA = "    quota: {cpu: 90000, memory: 900Ti, pods: 50000, ephemeral-storage: 900Ti}\n"
BORROWS = "{guaranteed: 8, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 400}"


@pytest.mark.parametrize("guaranteed", COUNTS)
def test_the_report_says_what_is_borrowed_whatever_count_is_guaranteed(spec: SpecFolder, guaranteed: int) -> None:
    loaded, plan = world(spec, guaranteed)
    cell = next(p for p in IsolationMatrix(loaded, plan).all() if p.name == "queues").cells["research", "fraud"]
    assert (cell.kind, cell.word) == (CellKind.GRANTED, "≤ 400")


@pytest.mark.parametrize("guaranteed", COUNTS)
def test_the_simulation_counts_what_is_guaranteed(spec: SpecFolder, guaranteed: int) -> None:
    _, plan = world(spec, guaranteed)
    quotas = Quotas(plan.cluster_queues, plan.cohorts)
    queue = next(item for item in plan.tenant("fraud").queues if amounts(item).get(("train", GPU)) == guaranteed)
    name = queue["metadata"]["name"]
    maximum = guaranteed + 8
    assert quotas.fits(name, GPU, maximum), "its own, and what research lends"
    assert not quotas.fits(name, GPU, guaranteed + 17), "it borrows 16 at most"
    quotas.use(name, "train", GPU, guaranteed)
    assert not quotas.fits(name, GPU, 9), "research has 8"


def _queue(guaranteed: Any) -> dict[str, Any]:
    resource = {"name": GPU, "nominalQuota": guaranteed}
    spec = {"resourceGroups": [{"flavors": [{"name": "train", "resources": [resource]}]}]}
    return {"metadata": {"name": "fraud--batch", "labels": {"tenancy.gpu/tenant": "fraud"}}, "spec": spec}


def _alarms(folder: Path, before: Any, after: Any) -> list[ReviewReason | None]:
    urn = f"urn:pulumi:small--fraud::gpu-tenancy::{QUEUE}::x"
    states = {
        key: {"type": QUEUE, "inputs": _queue(queue_inputs)}
        for key, queue_inputs in (("oldState", before), ("newState", after))
    }
    (folder / "preview.json").write_text(json.dumps({"steps": [{"op": "update", "urn": urn, **states}]}), "utf-8")
    changes = previews.changes([previews.read(str(folder / "preview.json"))])
    return [alarm(change) for change in changes if change.topic is ChangeTopic.GPUS]


@pytest.mark.parametrize(
    ("before", "after"),
    [("2k", "500"), ("1999", "500"), ("1e3", "999"), ("1k", "999"), (1000, "999"), (1000.0, "999"), ("10k", "1.5k")],
)
def test_a_preview_of_less_is_an_alarm_in_every_spelling(tmp_path: Path, before: Any, after: Any) -> None:
    assert _alarms(tmp_path, before, after) == [ReviewReason.LOST_GUARANTEE]
    assert _alarms(tmp_path, after, before) == [None], "more is guaranteed"


@pytest.mark.parametrize(("number", "text"), ALL)
def test_a_preview_of_another_spelling_changes_nothing(tmp_path: Path, number: str, text: str) -> None:
    assert _alarms(tmp_path, number, text) == []


QUOTA_TYPE = "kubernetes:core/v1:ResourceQuota"


def _quota_changes(folder: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    urn = f"urn:pulumi:small--fraud::gpu-tenancy::{QUOTA_TYPE}::x"
    metadata = {"name": "tenant", "namespace": "fraud--train", "labels": {"tenancy.gpu/tenant": "fraud"}}
    states = {
        key: {"type": QUOTA_TYPE, "inputs": {"metadata": metadata, "spec": {"hard": dict(hard)}}}
        for key, hard in (("oldState", before), ("newState", after))
    }
    (folder / "preview.json").write_text(json.dumps({"steps": [{"op": "update", "urn": urn, **states}]}), "utf-8")
    changes = previews.changes([previews.read(str(folder / "preview.json"))])
    return [(change.what, change.before, change.after) for change in changes if change.topic is ChangeTopic.QUOTA]


@pytest.mark.parametrize("key", ["pods", "requests.memory", f"requests.{GPU}"])
@pytest.mark.parametrize(("number", "text"), ALL)
def test_a_quota_in_another_spelling_is_no_change(tmp_path: Path, key: str, number: str, text: str) -> None:
    assert _quota_changes(tmp_path, {key: number}, {key: text}) == []
    assert [what for what, *_ in _quota_changes(tmp_path, {key: "7"}, {key: text})] == [key]


def test_a_quota_of_another_amount_is_shown_as_the_api_server_writes_it(tmp_path: Path) -> None:
    before = {"pods": "2048", "requests.memory": "2048Mi", "requests.cpu": 1}
    after = {"pods": "1000", "requests.memory": "what later is known", "requests.cpu": "1500m"}
    assert _quota_changes(tmp_path, before, after) == [
        ("pods", "2048", "1k"),
        ("requests.cpu", "1", "1500m"),
        ("requests.memory", "2Gi", "what later is known"),
    ]


@pytest.mark.parametrize(("number", "text"), [*ALL, ("1", "123n"), ("1500", "1500"), ("0.5", "0.5"), ("1Gi", "2**30")])
def test_a_live_pod_is_read_in_every_spelling(number: str, text: str) -> None:
    def read(amount: str) -> pods.Resources:
        return pods.requests_of({"containers": [{"resources": {"requests": {"memory": amount}}}]})

    match text:
        case "123n":
            assert read(text) == {"memory": 1}, "rounded up to a thousandth, as the API server rounds"
        case "2**30":
            assert read(number) == {"memory": 2**30 * 1000}
        case _:
            assert read(text) == {"memory": int(Decimal(number) * 1000)}


@pytest.mark.parametrize(("number", "text"), ALL)
def test_a_render_is_judged_in_every_spelling(number: str, text: str) -> None:
    def rules(nominal: str, allocatable: str) -> list[str]:
        node: dict[str, Any] = {"kind": "Node", "metadata": {"name": "n", "labels": {"p": "x"}}}
        node["status"] = {"allocatable": {GPU: allocatable}}
        flavor = {"kind": "ResourceFlavor", "metadata": {"name": "train"}, "spec": {"nodeLabels": {"p": "x"}}}
        queue = {"kind": "ClusterQueue", **_queue(nominal)}
        queue["spec"] |= {"namespaceSelector": {}}
        return [finding.rule for finding in findings_together([node, flavor, queue])]

    less = str(int(number) - 1)
    assert "kueue-16" in rules(text, less), "more is promised than there is"
    assert "kueue-16" not in rules(text, number)
    assert "kueue-16" not in rules(number, text)
    assert "kueue-16" in rules(str(int(number) + 1), text)


@pytest.mark.parametrize("none", ["0", 0, "0Gi", "0m", "0e3", ".0"])
def test_what_lends_nothing_is_read_in_every_spelling(none: Any) -> None:
    def rules(limit: Any) -> list[str]:
        queue = {"kind": "ClusterQueue", **_queue("8")}
        queue["spec"] |= {"cohortName": "bank", "namespaceSelector": None}
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = limit
        return [rule for rule, _ in CHECKS["ClusterQueue"](queue)]

    assert "kueue-13" not in rules(none)
    assert "kueue-13" in rules("1m")
