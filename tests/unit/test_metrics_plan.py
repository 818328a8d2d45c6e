"""What an environment with a collector adds: objects, routes, values; and what the lab's exporters say."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy.catalog.bandwidth import GIGABITS
from tenancy.catalog.instances import INSTANCES
from tenancy.cli.lab import command as lab_command
from tenancy.lab import metrics as exporters
from tenancy.lab import prometheus, tools
from tenancy.plan import Plan, make_plan
from tenancy.plan.alerts import rule_file
from tenancy.plan.metrics import COUNTERS, exporter_values, metrics_objects, routes
from tenancy.plan.render import papers
from tenancy.plan.services import services_plan
from tenancy.rules.objects import object_findings
from tenancy.spec import Environment, Loaded, load, on_lab
from tenancy.spec.metrics import Collector
from tests.conftest import SpecFolder
from tests.judges import ec2_types
from tests.unit.test_components import register

MAIL = "mail: {server: 'mail.bank.example:587', sender: gpu@bank.example, platform: gpu-ops@bank.example}"
WATCHED = f"metrics: {{collector: existing, {MAIL}}}\n"


@pytest.fixture
def watched(spec: SpecFolder) -> Loaded:
    spec.add("environment.yaml", WATCHED)
    return spec.load()


def of_kind(loaded: Loaded, kind: str) -> list[dict[str, Any]]:
    return [item for item in metrics_objects(loaded.environment, loaded.tenants) if item["kind"] == kind]


@cache
def amtool() -> Path:
    return tools.ensure(only=["amtool"], pins=prometheus.pins())["amtool"]


def asked(*arguments: str) -> str:
    return subprocess.run([amtool(), *arguments], capture_output=True, text=True, check=True).stdout.strip()


# An environment


def test_nothing_of_metrics_is_made_where_nobody_collects(plan: Plan) -> None:
    assert (plan.platform.metrics, plan.platform.exporters) == ((), {})


def test_the_lab_makes_no_objects_of_an_operator_that_it_does_not_have(watched: Loaded) -> None:
    played = on_lab(watched)
    assert make_plan(watched.environment, watched.tenants).platform.metrics
    assert make_plan(played.environment, played.tenants).platform.metrics == ()


def test_the_rules_that_an_operator_loads_are_the_tested_ones(watched: Loaded) -> None:
    (rules,) = of_kind(watched, "PrometheusRule")
    assert rules["spec"] == rule_file(watched.environment, watched.tenants)


def test_the_namespace_of_metrics_is_the_platforms(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "namespaces: [monitoring]", "namespaces: []")
    assert "monitoring" not in spec.load().environment.system_namespaces
    spec.add("environment.yaml", WATCHED)
    assert "monitoring" in spec.load().environment.system_namespaces


def test_a_wait_for_a_tier_that_is_not_there_is_refused(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {longest-wait: {prodcution: 30m}}\n")
    problem = spec.problem()
    assert (problem.id, problem.given) == ("ref-01", "tier 'prodcution'")


def test_a_wait_that_kueue_cannot_tell_is_refused(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {longest-wait: {production: 171m}}\n")
    assert spec.problem().given == "production: 171m"


def test_a_wait_that_kueue_can_just_tell_is_taken(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {longest-wait: {production: 170m}}\n")
    assert spec.load().environment.metrics.wait_of("production") == 10_200


def test_no_rule_of_the_pack_is_broken_by_what_tenants_ask_through(watched: Loaded) -> None:
    made = metrics_objects(watched.environment, watched.tenants)
    assert [finding for item in made for finding in object_findings(item)] == []
    assert {"Deployment", "ClusterRoleBinding", "NetworkPolicy"} <= {item["kind"] for item in made}


def test_without_a_view_tenants_get_no_way_to_prometheus(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {collector: existing, tenant-view: false}\n")
    loaded = spec.load()
    kinds = {item["kind"] for item in metrics_objects(loaded.environment, loaded.tenants)}
    assert kinds == {"PrometheusRule", "ServiceMonitor", "AlertmanagerConfig"}


def test_the_proxy_that_trusts_everybody_listens_to_its_own_pod_alone(watched: Loaded) -> None:
    (deployment,) = of_kind(watched, "Deployment")
    by_name = {each["name"]: each["args"] for each in deployment["spec"]["template"]["spec"]["containers"]}
    assert "-insecure-listen-address=127.0.0.1:8080" in by_name["label"]
    assert "--upstream=http://127.0.0.1:8080/" in by_name["token"]


def test_the_engine_is_told_of_each_object_under_one_component(watched: Loaded) -> None:
    plan = make_plan(watched.environment, watched.tenants)
    registered = register(plan)
    (component,) = registered.of("Metrics")
    children = [request for request in registered.requests.values() if request.parent == component]
    assert len(children) == len(plan.platform.metrics)


# Routes


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ({"tenant": "fraud", "severity": "warning"}, "tenant-fraud"),
        ({"tenant": "research", "severity": "warning"}, "tenant-research"),
        ({"tenant": "fraud", "severity": "critical"}, "platform,tenant-fraud"),
        ({"tenant": "platform", "severity": "warning"}, "platform"),
    ],
)
def test_an_alert_goes_to_its_tenant_and_what_is_critical_to_the_platform_too(
    watched: Loaded, tmp_path: Path, labels: dict[str, str], receivers: str
) -> None:
    file = tmp_path / "alertmanager.json"
    file.write_text(json.dumps(routes(watched.environment, watched.tenants)))
    matchers = [f"{key}={value}" for key, value in labels.items()]
    assert asked("config", "routes", "test", f"--config.file={file}", *matchers) == receivers


def test_mail_goes_to_the_address_of_the_tenants_owner(watched: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.json"
    file.write_text(json.dumps(routes(watched.environment, watched.tenants)))
    assert "SUCCESS" in asked("check-config", str(file))
    sent = {each["name"]: each["email_configs"][0]["to"] for each in json.loads(file.read_text())["receivers"]}
    assert sent["tenant-fraud"] == "fraud-leads@bank.example"
    assert sent["platform"] == "gpu-ops@bank.example"


# Exporters


def test_every_metric_of_dcgm_in_a_rule_is_one_that_the_exporter_is_told_to_tell(watched: Loaded) -> None:
    text = json.dumps(rule_file(watched.environment, watched.tenants))
    used = set(re.findall(r"DCGM_\w+", text))
    assert used
    assert used <= {line.split(",")[0] for line in COUNTERS.splitlines()}


def dcgm(environment: Environment) -> dict[str, Any]:
    services = services_plan(environment)
    assert services
    (operator,) = [chart for chart in services.charts if chart.name == "gpu-operator"]
    return operator.values["dcgmExporter"]


def test_the_exporter_gets_these_counters_where_somebody_collects_and_its_own_elsewhere() -> None:
    environment = load(Path(__file__).parents[2] / "stacks" / "bank").environment
    collected = environment.metrics.model_copy(update={"collector": Collector.EXISTING})
    assert dcgm(environment.model_copy(update={"metrics": collected}))["config"]["data"] == COUNTERS
    assert "config" not in dcgm(environment)


def test_labels_that_rules_and_bills_read_are_on_the_allow_list(watched: Loaded) -> None:
    values = exporter_values(watched.environment)["kube-prometheus-stack"]["kube-state-metrics"]
    nodes, namespaces, pods = values["metricLabelsAllowlist"]
    assert nodes.startswith("nodes=[tenancy.gpu/pool,")
    assert namespaces.startswith("namespaces=[tenancy.gpu/tenant,")
    assert "kueue.x-k8s.io/queue-name" in pods


@pytest.mark.parametrize(("tool", "chart"), [("opencost", "opencost"), ("kubecost", "cost-analyzer")])
def test_a_cost_tool_gets_values_that_point_to_prometheus(spec: SpecFolder, tool: str, chart: str) -> None:
    spec.add("environment.yaml", f"metrics: {{collector: existing, cost-tool: {tool}}}\n")
    loaded = spec.load()
    values = exporter_values(loaded.environment)
    assert set(values) == {"kube-prometheus-stack", chart}
    assert loaded.environment.metrics.prometheus in json.dumps(values[chart])
    rendered = dict(papers(make_plan(loaded.environment, loaded.tenants)))
    assert rendered[f"charts/values-{chart}.yaml"] == [values[chart]]


def test_what_a_network_card_can_is_what_ec2_says() -> None:
    types = ec2_types()
    known = {
        name: types[name]["NetworkInfo"]["NetworkCards"][0]["BaselineBandwidthInGbps"]
        for name in INSTANCES
        if types.get(name, {}).get("NetworkInfo", {}).get("NetworkCards")
    }
    assert known == GIGABITS


# The lab's exporters


def test_a_pod_is_told_as_kube_state_metrics_tells_it() -> None:
    told = {
        exporters.line(*sample)
        for sample in exporters.pod_samples(
            "fraud--train",
            "job-a-0",
            uid="1",
            node="train-0",
            phase="Running",
            requests={"main": {"nvidia.com/mig-1g.5gb": "2", "cpu": "500m"}},
            owner=("Job", "job-a"),
            given={"tenancy.gpu/tenant": "fraud", "secret": "x"},
        )
    }
    me = 'namespace="fraud--train",pod="job-a-0",uid="1"'
    assert f'kube_pod_labels{{{me},label_tenancy_gpu_tenant="fraud"}} 1' in told
    assert f'kube_pod_owner{{{me},owner_kind="Job",owner_name="job-a",owner_is_controller="true"}} 1' in told
    where = f'kube_pod_container_resource_requests{{{me},container="main",node="train-0"'
    assert f'{where},resource="nvidia_com_mig_1g_5gb",unit="integer"}} 2' in told
    assert f'{where},resource="cpu",unit="core"}} 0.5' in told


def test_devices_of_a_node_are_told_once_each_with_the_pod_that_holds_them() -> None:
    labels = {"node.kubernetes.io/instance-type": "p4d.24xlarge", "tenancy.gpu/board": "a100-40gb"}
    work = [("fraud--train", "job-a-0", "main", {"nvidia.com/gpu": "2"})]
    told = list(exporters.device_samples("train-0", labels, {"nvidia.com/gpu": "8"}, work, 1, 0))
    use = [labels for name, labels, _ in told if name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    assert [each["gpu"] for each in use if each.get("pod") == "job-a-0"] == ["0", "1"]
    assert len({each["UUID"] for each in use}) == len(use) == 8
    assert use[0]["modelName"] == "NVIDIA A100-SXM4-40GB"


def test_replicas_of_one_gpu_that_nobody_holds_are_one_series() -> None:
    labels = {"node.kubernetes.io/instance-type": "g6.12xlarge", "tenancy.gpu/board": "l4"}
    told = list(exporters.device_samples("notebooks-0", labels, {"nvidia.com/gpu.shared": "16"}, [], 1, 0))
    lines = [exporters.line(name, labels, 0) for name, labels, _ in told]
    assert len(lines) == len(set(lines))
    assert len({labels["gpu"] for _, labels, _ in told}) == 4


def test_how_busy_a_pod_is_follows_from_the_seed() -> None:
    assert exporters.busy(1, "a/b", 100) == exporters.busy(1, "a/b", 100)
    assert exporters.busy(1, "a/b", 100) != exporters.busy(2, "a/b", 100)


# Its tools and its command


@pytest.mark.parametrize(
    ("tool", "module"),
    [
        ("prometheus", "github.com/prometheus/prometheus v0.308.0"),
        ("prom-label-proxy", "github.com/prometheus-community/prom-label-proxy v0.11.1"),
        ("amtool", "github.com/prometheus/alertmanager v0.34.2"),
    ],
)
def test_a_pinned_version_is_the_one_that_go_mod_builds(tool: str, module: str) -> None:
    pin = prometheus.pins()[tool]
    lines = [line.split(" //")[0].strip() for line in (pin.folder / "go.mod").read_text().splitlines()]
    assert module in lines
    # Prometheus' module has a version of its own: v0.308.0 is release 3.8.0.
    released = {"v0.308.0": "3.8.0"}.get(module.split()[1], module.split()[1].removeprefix("v"))
    assert pin.version == released


def test_a_history_without_prometheus_is_refused() -> None:
    answer = CliRunner().invoke(lab_command, ["up", "local", "--history", "1"])
    assert answer.exit_code == 2
    assert "add --with metrics" in answer.output
