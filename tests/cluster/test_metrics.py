"""A lab with Prometheus: what it scrapes, what of it makes a bill, what it tells, and who may ask for what."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.chargeback import periods
from tenancy.chargeback.prometheus import read_tables
from tenancy.chargeback.report import make_report
from tenancy.chargeback.tables import tables
from tenancy.cluster.prometheus import Prometheus
from tenancy.lab import control_plane, ports, prometheus, tools
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.kueue import _path
from tenancy.lab.layout import Lab
from tenancy.lab.metrics_history import STEP, openmetrics
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.observability import alerts
from tenancy.planning.observability.alerts import rule_file
from tenancy.planning.observability.metrics import label_proxy_arguments, metrics_objects
from tenancy.planning.services import queue_chart
from tenancy.spec.fields.metrics import Collector
from tenancy.spec.loader import Loaded, on_lab
from tests.answering import answers, free_ports
from tests.conftest import SpecFolder
from tests.judges import folder

pytest.importorskip("polars")
from tenancy.chargeback.example import frames, month
from tests.waiting import PATIENCE, until

START, END = 1790812800, 1790812800 + 86400
"""A day before the lab was there: 2026-10-01."""
CREATE = "application/json"
INTERVAL_SECONDS = 3
"""Seconds between two scrapes and two evaluations, so that what changes is told soon."""
PAIR = {"fraud": "fraud--train", "research": "research--main"}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    spec = SpecFolder(tmp_path_factory.mktemp("spec") / "small")
    spec.add("tenants/research.yaml", "namespaces: [{name: main}]\n")
    spec.add("environment.yaml", "prices: {a100-40gb: 12.50, l4: 1}\n")
    return on_lab(spec.load())


@pytest.fixture(scope="module")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def rows(loaded: Loaded) -> dict[str, list[dict[str, Any]]]:
    """A day's trace that begins and ends at a sample: then Prometheus has seen all of it."""
    tables_by_name = month(loaded, START, END, 1)
    for name in ("allocations", "used"):
        for row in tables_by_name[name]:
            row["start"], row["end"] = (-(-row[side] // STEP) * STEP for side in ("start", "end"))
        tables_by_name[name] = [row for row in tables_by_name[name] if row["start"] < row["end"] <= END]
    return tables_by_name


@pytest.fixture(scope="module")
def root(loaded: Loaded, rows: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("metrics")
    (home / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    chart = queue_chart(loaded.environment)
    assert chart
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        patch.setattr(prometheus, "SCRAPE_SECONDS", INTERVAL_SECONDS)
        patch.setattr(alerts, "COUNT_DELAY_SECONDS", 2 * INTERVAL_SECONDS)
        rules = rule_file(loaded.environment, loaded.tenants)
        often = {"groups": [{**group, "interval": f"{INTERVAL_SECONDS}s"} for group in rules["groups"]]}
        try:
            control_plane.up(
                root=home,
                platform_group=loaded.environment.platform.group,
                nodes=fake_nodes(loaded.environment),
                queues=chart.values,
                watched={"seed": 1, "rules": often},
                history=openmetrics(loaded, rows, START, END),
            )
            yield home
        finally:
            control_plane.down(root=home)


@pytest.fixture(scope="module")
def lab(root: Path) -> Lab:
    return Lab.locate(root)


@pytest.fixture(scope="module")
def url(lab: Lab) -> str:
    return f"http://127.0.0.1:{ports.remembered(lab)['prometheus']}"


@pytest.fixture(scope="module")
def admin(lab: Lab, plan: Plan) -> Iterator[LabApi]:
    """The API server with all that the environment makes, and a pod of each tenant that holds GPUs."""
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"], identity="platform") as api:
        for item in plan.objects():
            apply(api, item)
        for namespace in PAIR.values():
            accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            until(lambda accounts=accounts: is_served(api, accounts), f"{namespace} has an account")
            api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(), CREATE)
        yield api


def apply(api: LabApi, item: dict[str, Any]) -> None:
    api.apply(_path(item).rpartition("/")[0], item)


def is_served(api: LabApi, path: str) -> bool:
    """Also for kinds that the API server does not serve yet: it says 404, and then 429 for a moment."""
    try:
        return bool(api.get(path))
    except ApiError as refused:
        if refused.status not in {404, 429, 503}:
            raise
        return False


def job(name: str = "holds") -> dict[str, Any]:
    machine_resources = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "1Gi"}
    container = {
        "name": "main",
        "image": "registry.bank.example/shared/cuda-sample:13.1",
        "resources": {"limits": {**machine_resources, "nvidia.com/gpu": "4"}, "requests": machine_resources},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
    }
    template = {"metadata": {"annotations": {"tenancy.gpu/lab-seconds": "3600"}}, "spec": pod}
    spec = {"template": template, "backoffLimit": 0}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def get(url: str, path: str, **parameters: str) -> Any:
    text = f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(text, timeout=PATIENCE) as answer:
        return json.load(answer)["data"]


def query(url: str, text: str, **parameters: str) -> list[dict[str, Any]]:
    return get(url, "query", query=text, **parameters)["result"]


# What is scraped and evaluated


def test_the_api_server_kueue_and_both_exporters_are_scraped(url: str) -> None:
    def up() -> bool:
        health_by_job = {target["labels"]["job"]: target["health"] for target in get(url, "targets")["activeTargets"]}
        return health_by_job == dict.fromkeys(("apiserver", "kueue", "kube-state-metrics", "dcgm-exporter"), "up")

    until(up, "all four are up")


def test_every_rule_is_evaluated_without_an_error(url: str, loaded: Loaded) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in get(url, "rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()), "all have been evaluated")
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []
    generated = rule_file(loaded.environment, loaded.tenants)
    assert len(rules()) == sum(len(group["rules"]) for group in generated["groups"])


def test_a_lab_with_metrics_says_so_in_its_status(root: Path) -> None:
    rows = {row.component: row.answering for row in control_plane.status(root=root)}
    assert rows["prometheus"]
    assert rows["metrics-generator"]


def test_a_second_up_leaves_prometheus_alone(root: Path) -> None:
    def pids() -> dict[str, int | None]:
        return {row.component: row.pid for row in control_plane.status(root=root)}

    before = pids()
    control_plane.up(root=root)
    assert pids() == before


# Chargeback


def bill(loaded: Loaded, rows_by_table: dict[str, Any], start: int, end: int) -> dict[tuple[str, ...], int]:
    """Millionths of a dollar by tenant, category, pool and flavor."""
    bill_periods = periods.periods(start, end, periods.PeriodLength("range"), periods.zone_of("UTC"))
    sources = {name: [(name, frame.lazy())] for name, frame in rows_by_table.items() if name != "lines"}
    report = make_report(loaded.environment, loaded.tenants, tables(sources, start, end), bill_periods, None)
    assert report.findings == []
    micro_by_key: dict[tuple[str, ...], int] = {}
    for line in report.lines:
        key = (line.tenant, line.category.value, line.billing_unit.pool, line.flavor)
        micro_by_key[key] = micro_by_key.get(key, 0) + line.micro
    return micro_by_key


def test_the_bill_from_prometheus_is_to_the_millionth_that_of_the_trace(loaded: Loaded, url: str, rows: Any) -> None:
    from_trace = bill(loaded, frames(rows), START, END)
    assert len(from_trace) > 5
    assert bill(loaded, read_tables(Prometheus(url), loaded.environment, START, END, STEP), START, END) == from_trace


def test_a_range_that_begins_between_two_scrapes_lacks_nothing(loaded: Loaded, url: str) -> None:
    begin, end = START + 7 * 3600 + 101, START + 9 * 3600 + 47
    charges = bill(loaded, read_tables(Prometheus(url), loaded.environment, begin, end, STEP), begin, end)
    nodes = (4 * 8 + 8) * 12.5 + 4 * 1  # dollars an hour of the nodes that the pools have at least
    assert sum(charges.values()) == pytest.approx(nodes * 1e6 * (end - begin) / 3600, abs=100)


@pytest.mark.usefixtures("admin")
def test_what_runs_now_is_held_by_its_tenant(url: str) -> None:
    def current_gpus() -> dict[str, str]:
        return {sample["metric"]["tenant"]: sample["value"][1] for sample in query(url, "tenancy:current_gpus")}

    until(lambda: current_gpus() == {"fraud": "4", "research": "4"}, "both hold four GPUs")


@pytest.mark.usefixtures("admin")
def test_gpu_seconds_of_what_runs_are_told_with_queue_kind_of_job_and_of_gpu_and_purchase(url: str) -> None:
    labels = ("tenant", "queue", "job_type", "gpu_type", "purchase")

    def counted_labels() -> set[tuple[str, ...]]:
        samples = query(url, f"sum by ({', '.join(labels)}) (tenancy:gpu_seconds_total) > 0")
        return {tuple(sample["metric"].get(label, "") for label in labels) for sample in samples}

    expected = {(tenant, f"{tenant}--batch", "Job", "a100", "on-demand") for tenant in PAIR}
    until(lambda: counted_labels() == expected, "both have GPU-seconds")


# Alerts


def test_a_guard_that_goes_is_told_by_name_and_the_others_are_not(admin: LabApi, url: str, plan: Plan) -> None:
    def missing() -> set[str]:
        return {sample["metric"]["guard"] for sample in query(url, 'ALERTS{alertname="GuardMissing"}')}

    until(lambda: missing() == set(), "all guards are seen")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    admin.request("DELETE", f"{path}/tenancy-services")
    until(lambda: missing() == {"tenancy-services"}, "the one that went is told")
    for guard in plan.platform.guards:
        if guard["metadata"]["name"] == "tenancy-services":
            apply(admin, guard)
    until(lambda: missing() == set(), "it is back")


def test_a_node_that_loses_its_taint_is_told(admin: LabApi, url: str) -> None:
    def reported_taints() -> set[tuple[str, str]]:
        samples = query(url, 'ALERTS{alertname="NodeWithoutTaint"}')
        return {(sample["metric"]["node"], sample["metric"]["taint"]) for sample in samples}

    assert reported_taints() == set()
    node = admin.get("/api/v1/nodes/notebooks-0")
    admin.request("PATCH", "/api/v1/nodes/notebooks-0", {"spec": {"taints": None}})
    expected_taints = {("notebooks-0", taint["key"]) for taint in node["spec"]["taints"]}
    try:
        until(lambda: reported_taints() == expected_taints, "the node is told")
    finally:
        admin.request("PATCH", "/api/v1/nodes/notebooks-0", {"spec": {"taints": node["spec"]["taints"]}})


@pytest.mark.exhaustive(
    reason=(
        "GPUs that Kueue does not count, told by Prometheus of a lab; the rule is asked in "
        "tests/unit/planning/observability/test_alerts.py, and a node and a guard are told here"
    )
)
def test_gpus_that_run_and_are_not_counted_are_told_by_queue_and_pool(admin: LabApi, url: str) -> None:
    """A Workload is called finished while its pod runs: Kueue gives its GPUs to others."""

    def reported_holes() -> list[tuple[str, ...]]:
        samples = query(url, 'ALERTS{alertname="GpusUncounted", alertstate="firing"}')
        return [tuple(sample["metric"][key] for key in ("tenant", "cluster_queue", "pool")) for sample in samples]

    space, jobs = "fraud--train", "/apis/batch/v1/namespaces/fraud--train/jobs"
    workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space}/workloads"
    admin.request("POST", jobs, job("hole"), CREATE)
    try:
        pods = f"/api/v1/namespaces/{space}/pods?labelSelector=job-name=hole"
        until(lambda: [p for p in admin.get(pods)["items"] if p["status"]["phase"] == "Running"], "its pod runs")
        time.sleep(3 * INTERVAL_SECONDS)
        assert reported_holes() == [], "it is counted"
        (workload,) = [
            w for w in admin.get(workloads)["items"] if w["metadata"]["ownerReferences"][0]["name"] == "hole"
        ]
        finished_condition = {"type": "Finished", "status": "True", "reason": "Any", "message": "any"}
        finished_condition["lastTransitionTime"] = workload["metadata"]["creationTimestamp"]
        conditions = [*workload["status"]["conditions"], finished_condition]
        path = f"{workloads}/{workload['metadata']['name']}/status"
        admin.request("PATCH", path, {"status": {"conditions": conditions}})
        until(lambda: reported_holes() == [("fraud", "fraud--batch", "train")], "the hole is told")
    finally:
        admin.request("DELETE", f"{jobs}/hole?propagationPolicy=Background")
    until(lambda: reported_holes() == [], "no pod is left")


# What a tenant sees


@pytest.fixture(scope="module")
def view(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The proxy that puts the namespace into queries, with the arguments that it has in a cluster."""
    binary = tools.ensure(only=["prom-label-proxy"], pins=prometheus.pins())["prom-label-proxy"]
    (port,) = free_ports(1)
    with (tmp_path_factory.mktemp("view") / "log").open("w") as log:
        process = subprocess.Popen([binary, *label_proxy_arguments(url, port)], stdout=log, stderr=log)
        try:
            until(lambda: answers(port), "the proxy listens")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("tenant", PAIR)
def test_a_tenant_sees_the_gpus_of_its_own_pods_alone(url: str, view: str, tenant: str) -> None:
    metric = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}'

    def visible_namespaces(where: str, **parameters: str) -> set[str]:
        return {sample["metric"]["namespace"] for sample in query(where, metric, **parameters)}

    until(lambda: visible_namespaces(url) == set(PAIR.values()), "Prometheus has both tenants' devices")
    assert visible_namespaces(view, namespace=PAIR[tenant]) == {PAIR[tenant]}


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    "text",
    [
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{namespace="research--main"}',
        'kube_pod_labels{namespace=~".+"} or kube_pod_labels{namespace!=""}',
        'sum by (namespace) (vector(1) * on () group_right () kube_pod_info{namespace=~"research.*"})',
        'max_over_time(kube_pod_info{namespace="research--main"}[5m:15s])',
    ],
)
def test_however_a_question_is_written_each_tenant_is_answered_with_its_own(view: str, text: str) -> None:
    """A selector's own matcher of the namespace is dropped for the proxy's: even who names the other gets its own."""

    def visible_namespaces(tenant: str) -> set[str]:
        return {sample["metric"]["namespace"] for sample in query(view, text, namespace=PAIR[tenant])}

    until(lambda: visible_namespaces("fraud") and visible_namespaces("research"), "both have something to see")
    assert {tenant: visible_namespaces(tenant) for tenant in PAIR} == {
        tenant: {namespace} for tenant, namespace in PAIR.items()
    }


@pytest.mark.usefixtures("admin")
def test_names_of_pods_are_told_to_their_tenant_alone(view: str) -> None:
    research_pods = [sample["metric"]["pod"] for sample in query(view, "kube_pod_info", namespace="research--main")]
    fraud_pods = get(view, "label/pod/values", namespace="fraud--train")
    assert research_pods
    assert fraud_pods
    assert not set(research_pods) & set(fraud_pods)


def test_a_question_without_a_namespace_is_refused(view: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        query(view, "up")
    assert refused.value.code == 400
    assert "namespace" in refused.value.read().decode()


@pytest.mark.parametrize("path", ["targets", "status/config", "rules?namespace=fraud--train&all=1"])
def test_what_is_no_question_about_series_does_not_pass_the_token_check(path: str, loaded: Loaded) -> None:
    """kube-rbac-proxy stands before the other one and lets these paths through, and no others."""
    (token,) = [c for c in deployment(loaded)["spec"]["template"]["spec"]["containers"] if c["name"] == "token"]
    (allowed,) = [argument for argument in token["args"] if argument.startswith("--allow-paths=")]
    assert f"/api/v1/{path.partition('?')[0]}" not in allowed.partition("=")[2].split(",")
    assert "/api/v1/query" in allowed.partition("=")[2].split(",")


def collected(loaded: Loaded) -> list[dict[str, Any]]:
    metrics = loaded.environment.metrics.model_copy(update={"collector": Collector.EXISTING})
    return [*metrics_objects(loaded.environment.model_copy(update={"metrics": metrics}), loaded.tenants)]


def deployment(loaded: Loaded) -> dict[str, Any]:
    (deployment_item,) = [item for item in collected(loaded) if item["kind"] == "Deployment"]
    return deployment_item


@pytest.mark.parametrize(
    ("namespace", "verb", "allowed"),
    [
        ("fraud--train", "get", True),
        ("research--main", "get", False),
        ("fraud--train", "create", False),
    ],
)
def test_who_may_read_the_logs_of_a_namespace_may_ask_for_its_series_and_only_by_get(
    admin: LabApi, loaded: Loaded, namespace: str, verb: str, allowed: bool
) -> None:
    """The request of kube-rbac-proxy to the API server, with a person of a tenant and the attributes of its
    configuration; it calls a POST `create`."""
    (config,) = [item for item in collected(loaded) if item["kind"] == "ConfigMap"]
    resource_attributes = yaml.safe_load(config["data"]["config.yaml"])["authorization"]["resourceAttributes"]
    attributes = {
        "namespace": resource_attributes["namespace"].replace("{{ .Value }}", namespace),
        "version": resource_attributes["apiVersion"],
        "resource": resource_attributes["resource"],
        "subresource": resource_attributes["subresource"],
        "verb": verb,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "jane", "groups": ["fraud-engineers"], "resourceAttributes": attributes},
    }
    answer = admin.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, CREATE)
    assert answer["status"]["allowed"] is allowed


@pytest.mark.usefixtures("admin")
def test_the_label_proxy_answers_a_body_that_names_the_other_tenant(view: str) -> None:
    """Why no person may have the right that a POST asks for."""
    body = urllib.parse.urlencode({"query": "kube_pod_info", "namespace": "research--main"}).encode()

    def visible_namespaces() -> set[str]:
        with urllib.request.urlopen(f"{view}/api/v1/query?namespace=fraud--train", body, timeout=PATIENCE) as answer:
            return {sample["metric"]["namespace"] for sample in json.load(answer)["data"]["result"]}

    until(lambda: visible_namespaces() == set(PAIR.values()), "the answer has both")


# An operator


class Plainly(yaml.SafeLoader):
    """To YAML 1.1 a lone `=` is no text; to the authors of the definitions it is."""


Plainly.add_constructor("tag:yaml.org,2002:value", Plainly.construct_yaml_str)


@pytest.mark.exhaustive(
    reason=(
        "the definitions of the Prometheus operator judge every object; "
        "`make test` gives the same rules to Prometheus itself"
    )
)
def test_an_operator_takes_every_object_of_ours(admin: LabApi, loaded: Loaded) -> None:
    schema_folder = folder("schemas-prometheus-operator")
    crds = [yaml.load(path.read_text(), Plainly) for path in schema_folder.glob("*.yaml")]
    platform_objects = [item for item in collected(loaded) if item["apiVersion"].startswith("monitoring.coreos.com")]
    needed = {item["kind"] for item in platform_objects}
    assert needed == {"PrometheusRule", "ServiceMonitor", "AlertmanagerConfig"}
    for crd in crds:
        if crd["spec"]["names"]["kind"] in needed:
            apply(admin, crd)
    apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}})
    for item in platform_objects:
        path = _path(item).rpartition("/")[0]
        until(lambda path=path: is_served(admin, path), f"{path} is served")
        admin.request("POST", f"{path}?fieldValidation=Strict", item, CREATE)
