"""Objects, routes and values that a collector adds to an environment, and samples of the lab's exporters."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenancy.catalog import vocabulary
from tenancy.catalog.bandwidth import GIGABITS
from tenancy.catalog.instances import INSTANCES
from tenancy.catalog.versions import COST_CHARTS
from tenancy.cli.lab import command as lab_command
from tenancy.lab import metrics as exporters
from tenancy.lab import prometheus, tools
from tenancy.planning import Plan, make_plan
from tenancy.planning.kubernetes.access import cluster_roles
from tenancy.planning.observability.alerts import rule_file
from tenancy.planning.observability.metrics import COUNTERS, exporter_values, kubecost_values, metrics_objects, routes
from tenancy.planning.render import reference_files
from tenancy.planning.scope import StackScope
from tenancy.planning.services import services_plan
from tenancy.rules.objects import object_findings
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import LONGEST_WAIT, Collector, Metrics
from tenancy.spec.fields.people import Role
from tenancy.spec.loader import Loaded, load, on_lab
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, documents
from tests.judges import ec2_types, folder
from tests.registered import register

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


def run_amtool(*arguments: str) -> str:
    return subprocess.run([amtool(), *arguments], capture_output=True, text=True, check=True).stdout.strip()


# An environment


def test_nothing_of_metrics_is_made_without_a_collector(plan: Plan) -> None:
    assert (plan.platform.metrics, plan.platform.exporters.keys()) == ((), {"kueue"})


def test_the_lab_makes_no_objects_of_an_operator_that_it_does_not_have(watched: Loaded) -> None:
    played = on_lab(watched)
    assert make_plan(watched, watched.day).platform.metrics
    assert make_plan(played, played.day).platform.metrics == ()


def test_the_rules_that_an_operator_loads_are_the_tested_ones(watched: Loaded) -> None:
    (rules,) = of_kind(watched, "PrometheusRule")
    assert rules["spec"] == rule_file(watched.environment, watched.tenants)


def test_the_namespace_of_metrics_is_the_platforms(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "namespaces: [monitoring]", "namespaces: []")
    assert "monitoring" not in spec.load().environment.system_namespaces
    spec.add("environment.yaml", WATCHED)
    assert "monitoring" in spec.load().environment.system_namespaces


def test_a_wait_for_a_tier_that_is_not_there_is_refused(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {max-wait-p90: {prodcution: 30m}}\n")
    problem = spec.problem()
    assert (problem.id, problem.given) == ("ref-01", "tier 'prodcution'")


def test_a_wait_that_kueue_cannot_tell_is_refused(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {max-wait-p90: {production: 683m}}\n")
    problem = spec.problem()
    assert (problem.given, problem.field) == ("production: 683m", "metrics.max-wait-p90.production")
    assert problem.rule == "Kueue measures waits up to 40960 s"
    assert problem.change == "write 682m at most"


def test_a_wait_that_kueue_can_just_tell_is_taken(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {max-wait-p90: {production: 682m}}\n")
    assert spec.load().environment.metrics.wait_of("production") == 40_920


def test_the_longest_wait_is_the_last_bucket_of_the_queue_that_is_installed() -> None:
    source = (folder("metrics-kueue") / "metrics.go").read_text("utf-8")
    buckets = r'"admission_wait_time_seconds",\n[^\n]+\n\s+Buckets:\s+generateExponentialBuckets\((\d+)\)'
    (count,) = re.findall(rf"\s{buckets}", source)
    assert "append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, count-1)...)" in source
    assert 2.5 * 2 ** (int(count) - 2) == LONGEST_WAIT


def test_the_page_on_alerts_says_how_long_a_wait_can_be_told() -> None:
    text = (Path(__file__).parents[4] / "docs" / "alerts.md").read_text("utf-8")
    assert f"Kueue's buckets of waits end at {LONGEST_WAIT} s; `max-wait-p90` is {LONGEST_WAIT // 60}m at most" in text


def test_no_rule_of_the_pack_is_broken_by_what_tenants_ask_through(watched: Loaded) -> None:
    objects = metrics_objects(watched.environment, watched.tenants)
    assert [finding for item in objects for finding in object_findings(item)] == []
    assert {"Deployment", "ClusterRoleBinding", "NetworkPolicy"} <= {item["kind"] for item in objects}


def test_without_a_view_tenants_get_no_way_to_prometheus(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {collector: existing, tenant-queries: false}\n")
    loaded = spec.load()
    kinds = {item["kind"] for item in metrics_objects(loaded.environment, loaded.tenants)}
    assert kinds == {"PrometheusRule", "ServiceMonitor", "AlertmanagerConfig"}


def test_the_proxy_that_trusts_all_callers_listens_to_its_own_pod_alone(watched: Loaded) -> None:
    (deployment,) = of_kind(watched, "Deployment")
    by_name = {
        container["name"]: container["args"] for container in deployment["spec"]["template"]["spec"]["containers"]
    }
    assert "-insecure-listen-address=127.0.0.1:8080" in by_name["label"]
    assert "--upstream=http://127.0.0.1:8080/" in by_name["token"]


def test_a_probe_needs_no_token_and_reaches_a_port_that_is_listened_on(watched: Loaded) -> None:
    """The kubelet reaches a pod's address, and the loopback address by a program inside alone."""
    (deployment,) = of_kind(watched, "Deployment")
    token, label = deployment["spec"]["template"]["spec"]["containers"]
    assert "--proxy-endpoints-port=8643" in token["args"]
    assert token["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8643, "scheme": "HTTPS"}
    assert token["readinessProbe"]["tcpSocket"] == {"port": 8443}
    assert {port["containerPort"] for port in token["ports"]} == {8443, 8643}
    for probe in (label["readinessProbe"], label["livenessProbe"]):
        assert probe["exec"]["command"][-1] == "http://127.0.0.1:8080/healthz"
    for container in (token, label):
        last = [container[name]["failureThreshold"] for name in ("readinessProbe", "livenessProbe")]
        assert last == [3, 6], "a pod that is slow for a while is left out before it is started anew"


def test_the_health_of_the_proxy_is_no_way_into_its_pod(watched: Loaded) -> None:
    (policy,) = of_kind(watched, "NetworkPolicy")
    (service,) = of_kind(watched, "Service")
    assert [entry["ports"] for entry in policy["spec"]["ingress"]] == [[{"protocol": "TCP", "port": 8443}]]
    assert [port["port"] for port in service["spec"]["ports"]] == [8443]


def test_one_of_the_two_proxies_stays_while_nodes_are_drained(watched: Loaded) -> None:
    (deployment,), (budget,) = of_kind(watched, "Deployment"), of_kind(watched, "PodDisruptionBudget")
    assert deployment["spec"]["replicas"] - budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert set(affinity) == {"preferredDuringSchedulingIgnoredDuringExecution"}, "one node runs both"


READS, POSTS, PUTS = "get", "create", "update"
"""Attributes that kube-rbac-proxy asks the API server about for a GET, a POST and a PUT (`pkg/proxy/proxy.go`)."""


def asked_about(loaded: Loaded) -> tuple[str, str]:
    """API group, and resource with its subresource, as a role names them."""
    (config,) = of_kind(loaded, "ConfigMap")
    attributes = yaml.safe_load(config["data"]["config.yaml"])["authorization"]["resourceAttributes"]
    return attributes.get("apiGroup", ""), "/".join(
        filter(None, (attributes["resource"], attributes.get("subresource")))
    )


def verbs_on(rules: list[dict[str, Any]], group: str, resource: str) -> set[str]:
    return {v for rule in rules if group in rule["apiGroups"] and resource in rule["resources"] for v in rule["verbs"]}


def test_every_persona_asks_for_its_series_by_get_and_none_by_what_has_a_body(watched: Loaded) -> None:
    """A body's namespaces reach prom-label-proxy, and kube-rbac-proxy never saw them."""
    roles = {role.name: role.manifest()["rules"] for role in cluster_roles(watched.environment)}
    may = {name: verbs_on(rules, *asked_about(watched)) for name, rules in roles.items() if name != "tenancy-gpu-user"}
    assert set(may) == {f"tenancy-{role}" for role in Role}
    assert [name for name, verbs in may.items() if READS not in verbs] == []
    assert {name: verbs & {POSTS, PUTS} for name, verbs in may.items() if verbs & {POSTS, PUTS}} == {}
    assert {POSTS, PUTS} <= verbs_on(roles["tenancy-developer"], "", "pods"), "a right on pods would let a POST in"


def test_the_engine_is_told_of_each_object_under_one_component(watched: Loaded) -> None:
    plan = make_plan(watched, watched.day)
    registered = register(plan)
    (component,) = registered.of("MetricsCollection")
    children = [request for request in registered.requests.values() if request.parent == component]
    assert len(children) == len(plan.platform.metrics)


# Installed here


@pytest.fixture(scope="module")
def bank() -> Loaded:
    """The example bank, which brings its own Prometheus."""
    loaded = load(Path(__file__).parents[4] / "stacks" / "bank")
    brought = Metrics(collector=Collector.INSTALL, retention="60d", storage="300Gi")
    return replace(loaded, environment=loaded.environment.model_copy(update={"metrics": brought}))


@pytest.fixture(scope="module")
def brought(bank: Loaded) -> Plan:
    return make_plan(bank, bank.day)


@pytest.fixture(scope="module")
def stack(brought: Plan) -> dict[str, Any]:
    return brought.platform.metrics_charts[-1].values


@pytest.mark.parametrize(
    ("metrics_fields", "given_text"),
    [
        ("collector: install, labels: {release: mine}", "labels with collector: install"),
        ("collector: install, prometheus: 'http://other:9090'", "prometheus with collector: install"),
        ("collector: install, namespace: kube-system", "namespace kube-system"),
        ("collector: install, retention: 29d", "retention 29d"),
        ("collector: existing, retention: 60d", "retention with collector: existing"),
        ("storage: 1Ti", "storage with collector: none"),
    ],
)
def test_what_does_not_go_with_the_collector_is_refused(spec: SpecFolder, metrics_fields: str, given_text: str) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    spec.add("environment.yaml", f"metrics: {{{metrics_fields}}}\n")
    assert [problem.given for problem in spec.problems()] == [given_text]


def test_what_goes_with_a_collector_that_is_installed_is_taken(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    spec.add("environment.yaml", "metrics: {collector: install, namespace: telemetry, retention: 30d, storage: 1Ti}\n")
    environment = spec.load().environment
    assert environment.metrics.address == "http://prometheus-operated.telemetry.svc:9090"
    assert "telemetry" in environment.system_namespaces


def test_nothing_is_installed_on_a_cluster_that_another_program_makes(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {collector: install}\n")
    problem = spec.problem()
    assert (problem.field, problem.given) == ("metrics.collector", "collector: install without services.storage-class")


def test_definitions_come_first_then_what_knows_them_then_our_rules(brought: Plan) -> None:
    registered = register(brought, StackScope.PLATFORM)
    (component,) = registered.of("MetricsCollection")
    children = {urn: request for urn, request in registered.requests.items() if request.parent == component}
    releases = {request.name: urn for urn, request in children.items() if request.type.endswith(":Release")}
    crds, stack_release = (
        releases[f"platform-metrics-{name}"] for name in ("prometheus-operator-crds", "kube-prometheus-stack")
    )
    prerequisites = {urn for urn, request in children.items() if request.type.endswith((":Namespace", ":StorageClass"))}
    cni = next(urn for urn, request in registered.of("Release").items() if request.name == "platform-services-cilium")
    assert set(children[crds].dependencies) == {*prerequisites, cni}
    assert set(children[stack_release].dependencies) == {crds, cni}
    rule_resources = children.keys() - prerequisites - {crds, stack_release}
    assert {"PrometheusRule", "ServiceMonitor"} <= {children[urn].type.rpartition(":")[2] for urn in rule_resources}
    assert {tuple(children[urn].dependencies) for urn in rule_resources} == {(stack_release,)}


def test_what_is_rendered_is_what_is_installed(brought: Plan) -> None:
    sent = {request.name: request.object for request in register(brought, StackScope.PLATFORM).of("Release").values()}
    rendered = {
        papers_of[0]["name"]: papers_of[0] for path, papers_of in reference_files(brought) if path.startswith("charts/")
    }
    for name in ("prometheus-operator-crds", "kube-prometheus-stack"):
        assert rendered[name]["values"] == sent[f"platform-metrics-{name}"]["values"]
        assert rendered[name]["version"] == sent[f"platform-metrics-{name}"]["version"]
    assert "charts/values-kube-prometheus-stack.yaml" not in dict(reference_files(brought)), (
        "no other program installs it"
    )


def test_who_installs_it_gets_the_same_values_for_the_exporters(bank: Loaded, stack: dict[str, Any]) -> None:
    metrics = Metrics(collector=Collector.EXISTING)
    exporter_chart = exporter_values(bank.environment.model_copy(update={"metrics": metrics}))["kube-prometheus-stack"]
    tells, stack_metrics = (values["kube-state-metrics"] for values in (exporter_chart, stack))
    assert tells["metricLabelsAllowlist"] == stack_metrics["metricLabelsAllowlist"]
    assert tells["extraArgs"] == [f"--resources={','.join(stack_metrics['collectors'])}"]
    node = "prometheus-node-exporter"
    assert exporter_chart[node]["prometheus"] == stack[node]["prometheus"]


def test_prometheus_reads_nothing_that_a_tenant_could_write(brought: Plan, stack: dict[str, Any]) -> None:
    spec = {**stack["prometheus"]["prometheusSpec"], **stack["alertmanager"]["alertmanagerSpec"]}
    spaces = [value for key, value in spec.items() if key.endswith("NamespaceSelector")]
    assert len(spaces) == 6
    for selector in spaces:
        (term,) = selector["matchExpressions"]
        assert (term["key"], term["operator"]) == ("kubernetes.io/metadata.name", "In")
        assert set(term["values"]) == {"monitoring", "kube-system"}
    picked = spec["serviceMonitorSelector"]["matchLabels"]
    of_operator = [item for item in brought.platform.metrics if item["apiVersion"].startswith("monitoring.coreos.com")]
    assert of_operator
    assert [item for item in of_operator if not picked.items() <= item["metadata"]["labels"].items()] == []


def test_every_setting_of_prometheus_is_one_that_its_operator_knows(stack: dict[str, Any]) -> None:
    """The chart passes them on by these names; of the volume alone it has another."""
    spec = {("storage" if key == "storageSpec" else key): value for key, value in settings(stack, "prometheus").items()}
    assert spec["retention"] == "60d"
    assert misfits("prometheuses", spec) == []
    assert misfits("alertmanagers", settings(stack, "alertmanager")) == []
    assert misfits("prometheuses", {**spec, "retentionTime": "60d"}) == ["retentionTime"]


def settings(stack: dict[str, Any], part: str) -> dict[str, Any]:
    return stack[part][f"{part}Spec"]


def misfits(kind: str, spec: dict[str, Any]) -> list[str]:
    """Fields that the operator's definition does not have, at any depth."""
    text = (folder("schemas-prometheus-operator") / f"monitoring.coreos.com_{kind}.yaml").read_text("utf-8")
    (definition,) = documents(text)
    (version,) = definition["spec"]["versions"]
    return list(unknown(spec, version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def unknown(value: Any, schema: dict[str, Any], before: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from unknown(item, schema["items"], before)
    elif isinstance(value, dict) and "additionalProperties" not in schema:
        for key, item in value.items():
            if key in schema["properties"]:
                yield from unknown(item, schema["properties"][key], f"{before}{key}.")
            else:
                yield before + key


def test_prometheus_keeps_what_it_saw_on_an_encrypted_volume_of_its_own(brought: Plan, stack: dict[str, Any]) -> None:
    claim = settings(stack, "prometheus")["storageSpec"]["volumeClaimTemplate"]["spec"]
    (disk,) = brought.platform.storage_classes
    assert (claim["storageClassName"], claim["resources"]) == (
        disk["metadata"]["name"],
        {"requests": {"storage": "300Gi"}},
    )


def test_only_who_needs_the_node_is_outside_of_the_restricted_namespace(brought: Plan, stack: dict[str, Any]) -> None:
    (space,) = [item for item in brought.platform.metrics_prerequisites if item["kind"] == "Namespace"]
    assert space["metadata"]["name"] == brought.platform.metrics_charts[-1].namespace == "monitoring"
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    moved = {part: values["namespaceOverride"] for part, values in stack.items() if "namespaceOverride" in values}
    assert moved == {"prometheus-node-exporter": "kube-system"}


def test_what_tenants_ask_through_has_a_node_of_the_platforms(brought: Plan, watched: Loaded) -> None:
    """On a cluster that is made here every node has a taint; another cluster's taints are unknown."""
    (platform_deployment,) = [item for item in brought.platform.metrics if item["kind"] == "Deployment"]
    pod = platform_deployment["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"tenancy.gpu/pool": "system"}
    assert pod["tolerations"] == [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
    (watched_deployment,) = of_kind(watched, "Deployment")
    assert not {"nodeSelector", "tolerations"} & watched_deployment["spec"]["template"]["spec"].keys()


def test_kube_state_metrics_reads_no_secret(stack: dict[str, Any]) -> None:
    collectors = stack["kube-state-metrics"]["collectors"]
    assert {"pods", "nodes", "resourcequotas", "persistentvolumeclaims", "validatingadmissionpolicies"} <= set(
        collectors
    )
    assert not {"secrets", "configmaps"} & set(collectors)


def test_node_exporter_takes_its_part_of_every_node(bank: Loaded) -> None:
    without = bank.environment.model_copy(update={"metrics": Metrics()})
    more, before = (environment.daemonset_resources("train-a100") for environment in (bank.environment, without))
    assert (more.cpu - before.cpu, more.memory - before.memory, more.pods - before.pods) == (50, 50, 1)


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
    assert run_amtool("config", "routes", "test", f"--config.file={file}", *matchers) == receivers


def test_mail_goes_to_the_address_of_the_tenants_owner(watched: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.json"
    file.write_text(json.dumps(routes(watched.environment, watched.tenants)))
    assert "SUCCESS" in run_amtool("check-config", str(file))
    sent = {
        receiver["name"]: receiver["email_configs"][0]["to"] for receiver in json.loads(file.read_text())["receivers"]
    }
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


def test_the_exporter_gets_these_counters_with_a_collector_and_its_own_without() -> None:
    environment = load(Path(__file__).parents[4] / "stacks" / "bank").environment
    collected, not_collected = (
        environment.model_copy(update={"metrics": Metrics(collector=collector)})
        for collector in (Collector.EXISTING, Collector.NONE)
    )
    assert dcgm(collected)["config"]["data"] == COUNTERS
    assert "config" not in dcgm(not_collected)


def test_labels_that_rules_and_bills_read_are_on_the_allow_list(watched: Loaded) -> None:
    values = exporter_values(watched.environment)["kube-prometheus-stack"]["kube-state-metrics"]
    nodes, namespaces, pods = values["metricLabelsAllowlist"]
    assert nodes.startswith("nodes=[tenancy.gpu/pool,")
    assert namespaces.startswith("namespaces=[tenancy.gpu/tenant,")
    assert "kueue.x-k8s.io/queue-name" in pods


COST_KEYS = {
    # opencost/opencost-helm-chart@725bb939d6a631a7b679cef38fe42a3d872efe64 charts/opencost/values.yaml; 2026-11-23.
    "opencost": """
        opencost.prometheus.external.enabled opencost.prometheus.external.url opencost.prometheus.internal.enabled
    """,
    # kubecost/kubecost@v3.2.1 kubecost/values.yaml, and of its agent's chart, kubecost/finops-agent-chart@v1.0.20
    # charts/finops-agent/values.yaml; read 2026-11-23.
    "kubecost": """
        global.clusterId networkCosts.enabled clusterController.enabled telemetry.enabled
        kubecostProductConfigs.labelMappingConfigs.owner_label kubecostProductConfigs.labelMappingConfigs.team_label
        kubecostProductConfigs.labelMappingConfigs.department_label
        kubecostProductConfigs.labelMappingConfigs.product_label
        kubecostProductConfigs.labelMappingConfigs.environment_label
        finopsagent.agent.kubecost.customPrices.enabled finopsagent.agent.kubecost.customPrices.GPU
    """,
}
KUBECOST_REFUSES = (
    *("global.prometheus", "global.grafana", "global.amp", "prometheus", "grafana", "kubecostModel", "kubecostMetrics"),
    *("kubecostAggregator", "kubecostFrontend", "pricingCsv", "service", "federatedETL"),
)
"""Keys of its second version with which the chart ends (v3.2.1 `templates/_helpers.tpl`)."""


def _paths(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{before}{key}.")
        else:
            yield before + key


@pytest.mark.parametrize("tool", COST_CHARTS)
def test_a_cost_tool_gets_values_that_its_chart_has(spec: SpecFolder, tool: str) -> None:
    spec.add("environment.yaml", f"metrics: {{collector: existing, cost-tool: {tool}}}\n")
    loaded = spec.load()
    chart = COST_CHARTS[tool].chart
    values = exporter_values(priced(loaded.environment, "2.50"))
    assert set(values) == {"kube-prometheus-stack", chart}
    assert set(_paths(values[chart])) == set(COST_KEYS[tool].split())
    rendered = dict(reference_files(make_plan(loaded, loaded.day)))
    assert f"charts/values-{chart}.yaml" in rendered


def priced(environment: Environment, *prices: str) -> Environment:
    """With one board for each price."""
    return environment.model_copy(update={"prices": {f"board-{n}": Decimal(p) for n, p in enumerate(prices)}})


def test_opencost_is_pointed_to_prometheus(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {collector: existing, cost-tool: opencost}\n")
    environment = spec.load().environment
    assert exporter_values(environment)["opencost"]["opencost"]["prometheus"]["external"] == {
        "enabled": True,
        "url": environment.metrics.address,
    }


def test_kubecost_gets_nothing_that_its_chart_refuses(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "metrics: {collector: existing, cost-tool: kubecost}\n")
    paths = set(_paths(kubecost_values(priced(spec.load().environment, "2.50"))))
    assert [path for path in paths if path.startswith(tuple(f"{key}." for key in KUBECOST_REFUSES))] == []
    assert paths.isdisjoint(KUBECOST_REFUSES)


@pytest.mark.parametrize(
    ("prices", "handed"),
    [((), None), (("2.50",), "2.50"), (("2.50", "2.50"), "2.50"), (("2.50", "0.60"), None)],
)
def test_kubecost_gets_the_price_of_a_gpu_where_there_is_one(
    spec: SpecFolder, prices: tuple[str, ...], handed: str | None
) -> None:
    values = kubecost_values(priced(spec.load().environment, *prices))
    custom = {"agent": {"kubecost": {"customPrices": {"enabled": True, "GPU": handed}}}}
    assert values.get("finopsagent") == (custom if handed else None)


def test_kubecost_finds_each_of_its_concepts_among_our_labels(spec: SpecFolder) -> None:
    label_mapping = kubecost_values(spec.load().environment)["kubecostProductConfigs"]["labelMappingConfigs"]
    assert set(label_mapping.values()) <= set(vocabulary.COST_LABELS)


def test_the_page_on_kubecost_installs_the_pinned_chart() -> None:
    page = (Path(__file__).parents[4] / "docs" / "kubecost.md").read_text("utf-8")
    pin = COST_CHARTS["kubecost"]
    assert f"{pin.chart} --repo {pin.repository} --version {pin.version}" in page


def test_what_a_network_card_can_is_what_ec2_says() -> None:
    types = ec2_types()
    published_gigabits = {
        name: types[name]["NetworkInfo"]["NetworkCards"][0]["BaselineBandwidthInGbps"]
        for name in INSTANCES
        if types.get(name, {}).get("NetworkInfo", {}).get("NetworkCards")
    }
    assert published_gigabits == GIGABITS


# The lab's exporters


def test_a_pod_is_told_as_kube_state_metrics_tells_it() -> None:
    lines = {
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
            scheduled=1790812800,
        )
    }
    me = 'namespace="fraud--train",pod="job-a-0",uid="1"'
    assert f'kube_pod_labels{{{me},label_tenancy_gpu_tenant="fraud"}} 1' in lines
    assert f'kube_pod_owner{{{me},owner_kind="Job",owner_name="job-a",owner_is_controller="true"}} 1' in lines
    assert f"kube_pod_status_scheduled_time{{{me}}} 1790812800" in lines
    assert not [line for line in lines if line.startswith("kube_pod_completion_time")], "it has not ended"
    where = f'kube_pod_container_resource_requests{{{me},container="main",node="train-0"'
    assert f'{where},resource="nvidia_com_mig_1g_5gb",unit="integer"}} 2' in lines
    assert f'{where},resource="cpu",unit="core"}} 0.5' in lines


def test_a_pod_got_its_node_and_ended_when_its_status_says_so() -> None:
    ended = {"terminated": {"finishedAt": "2026-10-01T01:00:00Z"}}
    pod = {
        "metadata": {"namespace": "fraud--train", "name": "job-a-0", "uid": "1"},
        "spec": {"nodeName": "train-0", "containers": []},
        "status": {
            "phase": "Succeeded",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-10-01T00:00:09Z"},
            ],
            "containerStatuses": [{"state": ended}, {"state": {"running": {}}}],
        },
    }
    items = dict.fromkeys(exporters.LISTS, ()) | {"pods": [pod]}
    times = {name: value for name, _, value in exporters.state(items) if name.endswith("_time")}
    assert times == {"kube_pod_status_scheduled_time": 1790812800, "kube_pod_completion_time": 1790812800 + 3600}


def test_devices_of_a_node_are_told_once_each_with_the_pod_that_holds_them() -> None:
    labels = {"node.kubernetes.io/instance-type": "p4d.24xlarge", "tenancy.gpu/board": "a100-40gb"}
    work = [("fraud--train", "job-a-0", "main", {"nvidia.com/gpu": "2"})]
    samples = list(exporters.device_samples("train-0", labels, {"nvidia.com/gpu": "8"}, work, 1, 0))
    use = [labels for name, labels, _ in samples if name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    assert [sample_labels["gpu"] for sample_labels in use if sample_labels.get("pod") == "job-a-0"] == ["0", "1"]
    assert len({sample_labels["UUID"] for sample_labels in use}) == len(use) == 8
    assert use[0]["modelName"] == "NVIDIA A100-SXM4-40GB"


def test_unused_replicas_of_one_gpu_are_one_series() -> None:
    labels = {"node.kubernetes.io/instance-type": "g6.12xlarge", "tenancy.gpu/board": "l4"}
    samples = list(exporters.device_samples("notebooks-0", labels, {"nvidia.com/gpu.shared": "16"}, [], 1, 0))
    lines = [exporters.line(name, labels, 0) for name, labels, _ in samples]
    assert len(lines) == len(set(lines))
    assert len({labels["gpu"] for _, labels, _ in samples}) == 4


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
    expected_version = {"v0.308.0": "3.8.0"}.get(module.split()[1], module.split()[1].removeprefix("v"))
    assert pin.version == expected_version


def test_a_history_without_prometheus_is_refused() -> None:
    answer = CliRunner().invoke(lab_command, ["up", "local", "--history", "1"])
    assert answer.exit_code == 2
    assert "add --with metrics" in answer.output
