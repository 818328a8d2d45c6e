"""Dashboards: Grafana's schema knows every field, Prometheus reads every query, a tenant's asks for its own alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tenancy.catalog import vocabulary
from tenancy.lab import prometheus, tools
from tenancy.planning.aws.prices import node_prices
from tenancy.planning.observability import dashboards
from tenancy.spec.loader import Loaded, load
from tests.conftest import SpecFolder, every, nonempty

ROOT = Path(__file__).parents[4]
KUEUE = {
    "kueue_admission_wait_time_seconds_bucket",
    "kueue_cluster_queue_nominal_quota",
    "kueue_cluster_queue_resource_usage",
    "kueue_evicted_workloads_total",
    "kueue_pending_workloads",
}
"""Kueue v0.19.2, pkg/metrics/metrics.go."""
STATE = {"kube_node_labels", "kube_node_status_allocatable", "kube_node_status_condition"}
"""kube-state-metrics v2, docs/metrics/cluster/node-metrics.md."""
DEVICES = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"}
"""dcgm-exporter, etc/default-counters.csv."""


@cache
def promtool() -> Path:
    """Prometheus' own: a machine without it gets it, as it gets the other tools."""
    return tools.ensure(only=["promtool"], pins=prometheus.pins())["promtool"]


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks/bank")


def boards_of(loaded: Loaded) -> dict[str, dict[str, Any]]:
    prices = node_prices(loaded.environment)
    dashboards_by_tenant = dashboards.all_dashboards(loaded.environment, loaded.tenants, prices)
    return {tenant.tenant if tenant else "": board for tenant, board in dashboards_by_tenant}


@pytest.fixture(scope="module")
def boards(bank: Loaded) -> dict[str, dict[str, Any]]:
    return boards_of(bank)


def queries(board: dict[str, Any]) -> dict[str, str]:
    """By the panel's title; Grafana's own variable as it would fill it in."""
    return {
        panel["title"]: target["expr"].replace("$__range", "24h")
        for panel in board["panels"]
        for target in panel.get("targets", ())
    }


def test_there_is_one_for_the_platform_and_one_for_every_tenant(boards: dict[str, Any], bank: Loaded) -> None:
    assert list(boards) == ["", *sorted(tenant.tenant for tenant in bank.tenants)]
    rows = [panel["title"] for panel in boards[""]["panels"] if panel["type"] == "row"]
    assert rows == ["Supply", "Guaranteed, borrowed, idle", "Money", "Use"]
    rows = [panel["title"] for panel in boards["fraud"]["panels"] if panel["type"] == "row"]
    assert rows == ["Queue", "Waiting", "Use", "Cost"]


def lost_fields(original: Any, read: Any, at: str = "") -> Iterator[str]:
    """Fields that did not come back."""
    if isinstance(original, dict):
        for key, value in original.items():
            if value is not None:
                yield from (
                    lost_fields(value, read.get(key), f"{at}.{key}") if isinstance(read, dict) else [f"{at}.{key}"]
                )
    elif isinstance(original, list) and isinstance(read, list) and len(original) == len(read):
        for number, (original_item, read_item) in enumerate(zip(original, read, strict=True)):
            yield from lost_fields(original_item, read_item, f"{at}[{number}]")
    elif original != read:
        yield at


def came_back(board: dict[str, Any]) -> list[str]:
    plugins.register_default_plugins()
    return list(lost_fields(board, json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))))


def test_grafanas_schema_knows_every_field(boards: dict[str, Any]) -> None:
    assert {name: came_back(board) for name, board in boards.items()} == {name: [] for name in boards}


@pytest.mark.parametrize(
    "where", [(), ("panels", 1), ("panels", 1, "fieldConfig", "defaults"), ("panels", 1, "targets", 0)]
)
def test_a_field_that_grafana_does_not_know_is_found(boards: dict[str, Any], where: tuple[Any, ...]) -> None:
    board = json.loads(json.dumps(boards["fraud"]))
    at = board
    for key in where:
        at = at[key]
    at["madeUp"] = True
    assert len(came_back(board)) == 1


def test_panels_have_numbers_of_their_own_and_lie_beside_one_another(boards: dict[str, Any]) -> None:
    for board in nonempty(boards.values()):
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        cells = [
            (x, y)
            for grid in (panel["gridPos"] for panel in board["panels"])
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < dashboards.COLUMNS


def test_every_metric_is_one_that_an_exporter_publishes(boards: dict[str, Any]) -> None:
    used = set()
    for board in boards.values():
        for query in queries(board).values():
            used |= set(re.findall(r"\b(?:kueue_|kube_|DCGM_)\w+", query))
    assert used == KUEUE | STATE | DEVICES


def test_a_tenants_dashboard_asks_for_its_own_queues_and_namespaces_alone(boards: dict[str, Any], bank: Loaded) -> None:
    for tenant in nonempty(bank.tenants):
        own_names = {tenant.namespace_name(part) for part in tenant.namespaces}
        own_names |= {vocabulary.derived_name(tenant.tenant, tier) for tier in tenant.tiers}
        for query in queries(boards[tenant.tenant]).values():
            matchers = re.findall(r'(?:cluster_queue|exported_namespace|namespace)=~"([^"]*)"', query)
            assert matchers, query
            assert {name for matcher in matchers for name in matcher.split("|")} <= own_names
            selectors = re.findall(r"(?:kueue_|DCGM_)\w+(\{[^}]*\})?", query)
            assert every("=~" in selector for selector in selectors), "no selector is without one"


def test_a_tenants_dashboard_names_no_pool_of_others(boards: dict[str, Any]) -> None:
    assert "train-efa" not in json.dumps(boards["aml"]), "which is another tenant's alone"
    assert "train-efa" in json.dumps(boards["performance"])


def test_a_pool_without_a_price_is_named_and_in_no_query(loaded: Loaded) -> None:
    prices = dict.fromkeys(loaded.environment.pools, Fraction(20)) | {"train": None}
    board = dashboards.platform_dashboard(loaded.environment, prices)
    panel = next(panel for panel in board["panels"] if panel["title"].startswith("In use, dollars"))
    assert panel["description"] == "Without train: no price is known."
    assert 'flavor="train"' not in panel["targets"][0]["expr"]
    assert 'flavor="serve"' in panel["targets"][0]["expr"]


def test_without_a_queue_there_is_supply_and_use(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    boards = boards_of(spec.load())
    assert not any("kueue" in query for board in boards.values() for query in queries(board).values())
    assert [panel["title"] for panel in boards["fraud"]["panels"] if panel["type"] == "row"] == ["Use"]


def test_names_fit_grafana_and_kubernetes_however_long(spec: SpecFolder) -> None:
    long = "t" * 30
    spec.edit("tenants/fraud.yaml", "tenant: fraud", f"tenant: {long}")
    spec.write(f"tenants/{long}.yaml", (spec.path / "tenants/fraud.yaml").read_bytes())
    (spec.path / "tenants/fraud.yaml").unlink()
    uids = [board["uid"] for board in boards_of(spec.load()).values()]
    assert every(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", uid) and len(uid) <= 40 for uid in uids)
    assert len(set(uids)) == len(uids)


def test_a_config_map_carries_the_same_dashboard_for_the_sidecar(boards: dict[str, Any], bank: Loaded) -> None:
    tenant = next(tenant for tenant in bank.tenants if tenant.tenant == "fraud")
    item = dashboards.config_map(bank.environment, tenant, boards["fraud"])
    assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert item["metadata"]["labels"][vocabulary.TENANT] == "fraud"
    (text,) = item["data"].values()
    assert json.loads(text) == boards["fraud"]


def test_the_same_files_in_any_order_make_the_same_dashboards(boards: dict[str, Any], bank: Loaded) -> None:
    turned = boards_of(replace(bank, tenants=bank.tenants[::-1]))
    assert [dashboards.as_json(board) for board in turned.values()] == [dashboards.as_json(b) for b in boards.values()]


# By Prometheus itself


def checked(folder: Path, command: str, document: Any) -> subprocess.CompletedProcess[str]:
    path = folder / "given.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return subprocess.run([str(promtool()), *command.split(), path.name], cwd=folder, capture_output=True, text=True)


def test_prometheus_reads_every_query(boards: dict[str, Any], tmp_path: Path) -> None:
    all_queries = [query for board in boards.values() for query in queries(board).values()]
    rules = [{"record": f"a:{number}", "expr": query} for number, query in enumerate(all_queries)]
    completed = checked(tmp_path, "check rules --lint=none", {"groups": [{"name": "all", "rules": rules}]})
    assert (completed.returncode, f"{len(all_queries)} rules found" in completed.stdout) == (0, True), completed.stderr
    broken = [{"record": "a:broken", "expr": f"{all_queries[0]})"}]
    assert checked(tmp_path, "check rules", {"groups": [{"name": "one", "rules": broken}]}).returncode != 0


def series(metric: str, value: str, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return {"series": f"{metric}{{{inside}}}", "values": value}


def of_queue(
    metric: str, value: int, queue: str, flavor: str, resource: str = "nvidia.com/gpu"
) -> list[dict[str, str]]:
    """As both of Kueue's replicas tell it."""
    labels = {"cluster_queue": queue, "flavor": flavor, "resource": resource}
    return [series(metric, f"{value}x90", **labels, replica_role=role) for role in ("leader", "follower")]


QUOTA, USAGE = "kueue_cluster_queue_nominal_quota", "kueue_cluster_queue_resource_usage"
SERIES = [
    *of_queue(QUOTA, 16, "fraud--batch", "train"),
    *of_queue(USAGE, 24, "fraud--batch", "train"),
    *of_queue(QUOTA, 14, "fraud--production", "serve", "nvidia.com/mig-1g.5gb"),
    *of_queue(USAGE, 7, "fraud--production", "serve", "nvidia.com/mig-1g.5gb"),
    *of_queue(QUOTA, 8, "research--batch", "train"),
    *of_queue(USAGE, 2, "research--batch", "train"),
    *of_queue(USAGE, 640, "research--batch", "train", "tenancy.gpu/millicores"),
    *(series("kube_node_labels", "1x90", node=f"t{n}", label_tenancy_gpu_pool="train") for n in range(4)),
    series("kueue_pending_workloads", "3x90", cluster_queue="fraud--batch", status="active", replica_role="leader"),
    series("kueue_pending_workloads", "3x90", cluster_queue="fraud--batch", status="active", replica_role="follower"),
    series("kueue_pending_workloads", "2x90", cluster_queue="fraud--batch", status="inadmissible"),
    series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5x90", exported_namespace="fraud--train", exported_pod="a", gpu="0"),
    series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "1x90", namespace="fraud--train", pod="b", gpu="1"),
    series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0x90", namespace="monitoring", gpu="2"),
    series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.25x90", namespace="research--main", pod="c", gpu="3"),
]
"""Fraud holds 24 whole GPUs, 8 of them borrowed, and half of its slices; research 2 of 8. GPUs are $2.50 an hour."""

PLATFORM = {
    "Guaranteed, GPUs": {"fraud": 18, "research": 8},
    "In use, GPUs": {"fraud": 25, "research": 2},
    "Borrowed, GPUs": {"fraud": 8, "research": 0},
    "Guaranteed and idle, GPUs": {"fraud": 1, "research": 6},
    "Waiting jobs": {"fraud": 5},
    "In use, dollars an hour": {"fraud": 62.5, "research": 5},
    "Nodes not in use, dollars an hour": {None: 12.5},
    "Nodes, dollars an hour": {None: 80},
}
TENANT = {
    "Guaranteed, GPUs": {None: 18},
    "In use, GPUs": {None: 25},
    "Of these borrowed, GPUs": {"fraud": 8},
    "Waiting jobs": {"fraud": 5},
    "In use, dollars an hour": {None: 62.5},
    "Cost in the range shown, dollars": {None: 62.5},
}


@pytest.mark.parametrize(("whose", "expected"), [("", PLATFORM), ("fraud", TENANT)])
def test_prometheus_answers_what_the_panel_says(
    spec: SpecFolder, tmp_path: Path, whose: str, expected: dict[str, dict[str | None, float]]
) -> None:
    spec.add("environment.yaml", "prices: {l4: 0.80, a100-40gb: 2.50}\n")
    panel_queries = queries(boards_of(spec.load())[whose])
    tests = [
        {
            # An hour of samples: then an average times the hours is what one hour costs.
            "expr": panel_queries[title].replace("[24h:5m]", "[1h:5m]"),
            "eval_time": "61m",
            "exp_samples": [
                {"labels": f'{{tenant="{tenant}"}}' if tenant else "{}", "value": value}
                for tenant, value in values_by_tenant.items()
            ],
        }
        for title, values_by_tenant in expected.items()
    ]
    document = {
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": SERIES, "promql_expr_test": tests}],
    }
    completed = checked(tmp_path, "test rules", document)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    tests[0]["exp_samples"][0]["value"] += 1
    assert checked(tmp_path, "test rules", document).returncode != 0, "another number is found"


def test_prometheus_finds_the_pods_under_either_namespace_label(spec: SpecFolder, tmp_path: Path) -> None:
    busy = {"fraud": {"fraud--train": 0.75}, "": {"fraud--train": 0.75, "research--main": 0.25}}
    boards = boards_of(spec.load())
    tests = [
        {
            "expr": queries(boards[whose])["GPUs busy"],
            "eval_time": "5m",
            "exp_samples": [
                {"labels": f'{{namespace="{space}"}}', "value": value} for space, value in values_by_namespace.items()
            ],
        }
        for whose, values_by_namespace in busy.items()
    ]
    pods = [("fraud--train", "a", 0.5), ("fraud--train", "b", 1)]
    samples = [{"labels": f'{{namespace="{space}", pod="{pod}"}}', "value": value} for space, pod, value in pods]
    tests.append({"expr": queries(boards["fraud"])["Least busy pods"], "eval_time": "5m", "exp_samples": samples})
    completed = checked(
        tmp_path,
        "test rules",
        {"evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": SERIES, "promql_expr_test": tests}]},
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("title", "shown_title"),
    [
        ("Fraud & Abuse (EU)", "Fraud & Abuse (EU)"),
        ("<img src=x onerror=alert(1)>", "img src=x onerror=alert(1)"),
        ("$datasource ${tenant} [[tenant]]", "datasource tenant tenant"),
        ("{{namespace}} `rm` | [a](https://x.example)", "namespace rm  a(https://x.example)"),
        ("<>", "fraud"),
        ("", "fraud"),
    ],
)
def test_a_tenants_title_is_text_in_grafana(bank: Loaded, title: str, shown_title: str) -> None:
    """Neither one of Grafana's variables nor markup; a title that is nothing else gives way to the tenant's name."""
    fraud = next(tenant for tenant in bank.tenants if tenant.tenant == "fraud").model_copy(update={"title": title})
    prices = node_prices(bank.environment)
    board = dashboards.tenant_dashboard(bank.environment, fraud, prices)
    assert board["title"] == f"{shown_title}: GPUs in bank"
    plain = dashboards.tenant_dashboard(bank.environment, fraud.model_copy(update={"title": "Fraud"}), prices)
    assert {**board, "title": ""} == {**plain, "title": ""}, "it stands nowhere else"
