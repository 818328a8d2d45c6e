"""A new version in waves, with a real engine and API server: a red gate stops it, and the next run goes on."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from engine_project import CommandResult, Project
from fleet_project import assert_as_rendered, make_fleet

from tenancy.cluster.alerts import firing
from tenancy.cluster.api import Api
from tenancy.cluster.prometheus import PrometheusUnavailable
from tenancy.kube.requests import Impersonation
from tenancy.lab import control_plane, metrics, ports, processes, prometheus
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.observability.alerts import rule_file
from tenancy.planning.observability.recording_rules import ENVIRONMENT_INFO
from tenancy.spec.loader import load, on_lab
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.exhaustive(
    reason="a rollout with Prometheus and real alerts; waves and gates are in tests/unit/deploy"
)

TENANTS = ("credit", "fraud", "risk")
WAVES = "rollout: {canary: [fraud], wave-size: 1, pause: 0}\n"
LEAK: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "leak"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture(scope="module")
def fleet(project: Project) -> Project:
    make_fleet(project, TENANTS, WAVES)
    project.up()
    return project


def new_version(project: Project, number: int) -> None:
    pack = project.folder / "policy" / "PulumiPolicy.yaml"
    pack.write_text(pack.read_text("utf-8") + f"# version {number}\n", "utf-8")


def finished_counts(project: Project) -> dict[str, int]:
    """Tenants with the present version, by wave."""
    result = project.tenancy("rollout", "status", "local", "--format", "json")
    assert result.code == 0, result.text
    return {wave["wave"]: len(wave["done"]) for wave in json.loads(result.out)["waves"]}


def up(project: Project) -> CommandResult:
    return project.tenancy("up", "local")


def test_a_red_gate_stops_it_after_the_canary_and_the_next_run_goes_on(fleet: Project) -> None:
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}
    new_version(fleet, 1)
    with fleet.api("admin") as api:
        api.request("POST", BINDINGS, LEAK, "application/json")
    stopped = up(fleet)
    assert stopped.code == 1
    assert "the rollout of local stopped before wave 1\n  `tenancy verify` found a gap" in stopped.err
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    again = up(fleet)
    assert again.code == 1, "the gate is asked again"
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    with fleet.api("admin") as api:
        api.request("DELETE", f"{BINDINGS}/leak")
    result = up(fleet)
    assert result.code == 0, result.text
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}
    assert_as_rendered(fleet)


def test_guards_that_are_newer_than_tenants_isolate_them_and_older_ones_refuse_a_newer_tenant(fleet: Project) -> None:
    source = next(
        path
        for path in (fleet.folder / "tenancy").rglob("*.py")
        if any(line.startswith("VERSION = ") and line[10:].strip().isdigit() for line in path.read_text().splitlines())
    )
    text = source.read_text()
    line = next(line for line in text.splitlines() if line.startswith("VERSION = "))
    source.write_text(text.replace(line, f"VERSION = {int(line[10:]) + 1}"))
    alone = fleet.tenancy("up", "local", "--stack", "local--credit")
    assert alone.code == 1
    assert "guards of version" in alone.err, alone.text

    first = fleet.tenancy("up", "local", "--stack", "local")
    assert first.code == 0, first.text
    assert finished_counts(fleet) == {"canary": 0, "wave 1": 0, "wave 2": 0}
    gate = fleet.tenancy("verify", "local", "--brief")
    assert gate.code == 0, gate.text
    result = up(fleet)
    assert result.code == 0, result.text
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}


# Alerts of the environment's own rules, in a real Prometheus

INTERVAL_SECONDS = 3
"""Seconds between two scrapes and two evaluations, so that what changes is told soon."""
FIRING = 'ALERTS{alertname="GuardMissing", alertstate="firing"}'


@dataclass(frozen=True)
class Watched:
    """The fleet's lab with Prometheus, which evaluates the rules of the environment's files."""

    project: Project

    def up(self, environment: str = "local") -> None:
        """All that is missing is started; with the rules of an environment of another name, Prometheus anew."""
        control_plane.up(root=self.project.folder, watched={"seed": 1, "rules": self.rules(environment)})

    def rules(self, environment: str) -> dict[str, Any]:
        loaded = on_lab(load(self.project.environment))
        called = loaded.environment.model_copy(update={"environment": environment})
        groups = rule_file(called, loaded.tenants)["groups"]
        return {"groups": [{**group, "interval": f"{INTERVAL_SECONDS}s"} for group in groups]}

    def query_result(self, query: str) -> list[Mapping[str, Any]]:
        port = ports.remembered(self.project.lab)["prometheus"]
        text = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(text, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]["result"]

    def end_exporters(self) -> None:
        processes.stop(metrics.running(self.project.lab))

    def end_prometheus(self) -> None:
        processes.stop(processes.running(self.project.lab, ("prometheus",))["prometheus"])


@pytest.fixture(scope="module")
def watched(fleet: Project) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prometheus, "SCRAPE_SECONDS", INTERVAL_SECONDS)
        environment = on_lab(load(fleet.environment)).environment
        control_plane.up(root=fleet.folder, nodes=fake_nodes(environment))
        watcher = Watched(fleet)
        watcher.up()
        yield watcher
        control_plane.up(root=fleet.folder, watched={})


class InCluster:
    """The lab's Prometheus as a service of the cluster, and a user who asks for it through the API server. An API
    server proxies to addresses of pods alone, and to no loopback address: a pod that no kubelet runs has the address of
    this machine, where a relay listens."""

    ADDRESS = "http://prometheus-operated.monitoring.svc:9090"
    MONITORING = "/api/v1/namespaces/monitoring"
    RIGHTS = "/apis/rbac.authorization.k8s.io/v1/namespaces/monitoring"
    NODE = "beside"

    def __init__(self, project: Project, address: str, relay: int) -> None:
        self.api = Api(None, str(project.lab.kubeconfig))
        labels = {"app": "prometheus"}
        container = {"name": "main", "image": "registry.bank.example/shared/prometheus:3.8.0"}
        pod = {"nodeName": self.NODE, "containers": [container]}
        ready_condition = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready_condition]}
        ports = [{"name": "http-web", "port": 9090, "targetPort": relay}]
        service = {"clusterIP": "None", "selector": labels, "ports": ports}
        with project.api("admin") as api:
            api.apply("/api/v1/nodes", _object("Node", self.NODE))
            api.apply("/api/v1/namespaces", _object("Namespace", "monitoring"))
            until(lambda: project.exists(f"{self.MONITORING}/serviceaccounts/default"), "pods can be made")
            pod_object = _object("Pod", "prometheus-0", labels) | {"spec": pod}
            api.request("POST", f"{self.MONITORING}/pods", pod_object, "application/json")
            api.request("PATCH", f"{self.MONITORING}/pods/prometheus-0/status", {"status": status})
            api.apply(f"{self.MONITORING}/services", _object("Service", "prometheus-operated") | {"spec": service})
            endpoints = f"{self.MONITORING}/endpoints/prometheus-operated"
            until(lambda: project.exists(endpoints) and api.get(endpoints).get("subsets"), "the service has its pod")

    def end(self, project: Project) -> None:
        with project.api("admin") as api:
            for path in (f"{self.MONITORING}/services/prometheus-operated", f"/api/v1/nodes/{self.NODE}"):
                api.request("DELETE", path)
            api.request("DELETE", f"{self.MONITORING}/pods/prometheus-0?gracePeriodSeconds=0")

    def grant(self, project: Project, user: str) -> None:
        rule = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
        group = "rbac.authorization.k8s.io"
        reference = {"apiGroup": group, "kind": "Role", "name": user}
        subject = {"apiGroup": group, "kind": "User", "name": user}
        binding = {"roleRef": reference, "subjects": [subject]}
        with project.api("admin") as api:
            api.apply(f"{self.RIGHTS}/roles", _object("Role", user, api=f"{group}/v1") | {"rules": [rule]})
            api.apply(f"{self.RIGHTS}/rolebindings", _object("RoleBinding", user, api=f"{group}/v1") | binding)

    def firing(self, user: str) -> list[str]:
        """Problems that the gate finds as this user."""
        someone: Any = SimpleNamespace(request=partial(self.api.request, identity=Impersonation(user)))
        return list(firing(someone, "local", self.ADDRESS))


def _object(kind: str, name: str, labels: Mapping[str, str] | None = None, api: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": dict(labels or {})}}


@contextmanager
def relay(address: str, port: int) -> Iterator[int]:
    """A port on that address of this machine, of which GET requests go to a port on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{self.path}", timeout=PATIENCE) as answer:
                body = answer.read()
                self.send_response(answer.status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def in_cluster(fleet: Project, watched: Watched) -> Iterator[InCluster]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only says which address it would send from.
        if probe.connect_ex(("192.0.2.1", 9)) or probe.getsockname()[0].startswith("127."):
            pytest.skip("this machine has no address but loopback, to which an API server proxies nothing")
        address = probe.getsockname()[0]
    with relay(address, ports.remembered(watched.project.lab)["prometheus"]) as port:
        prometheus_pod = InCluster(fleet, address, port)
        yield prometheus_pod
        prometheus_pod.end(fleet)


def test_an_alert_that_fires_stops_it_by_its_name_and_without_its_cause_it_goes_on(
    fleet: Project, watched: Watched, in_cluster: InCluster
) -> None:
    """Without its exporter Prometheus knows of no guard; the alert waits for two minutes, as everywhere."""
    until(lambda: watched.query_result(f'{ENVIRONMENT_INFO}{{environment="local"}}'), "the rules are evaluated")
    new_version(fleet, 2)
    watched.end_exporters()
    rules = [rule for group in watched.rules("local")["groups"] for rule in group["rules"]]
    guards = sum(rule.get("alert") == "GuardMissing" for rule in rules)
    until(lambda: len(watched.query_result(FIRING)) == guards, "the alert of every guard fires")
    alert_text = f"alert GuardMissing fires for platform, {guards} times"
    in_cluster.grant(fleet, "watcher")
    assert alert_text in in_cluster.firing("watcher"), "through the API server too"

    stopped = up(fleet)
    assert stopped.code == 1
    assert "the rollout of local stopped before wave 1\n  " in stopped.err
    assert f"\n  {alert_text}\n" in stopped.err
    assert "change: correct it, and `tenancy up local` goes on with the gate" in stopped.err
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    watched.up()
    until(lambda: not watched.query_result(FIRING), "the alert is over")
    assert in_cluster.firing("watcher") == []
    result = up(fleet)
    assert result.code == 0, result.text
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}


def test_a_prometheus_that_is_down_or_has_the_rules_of_another_environment_stops_it(
    fleet: Project, watched: Watched
) -> None:
    new_version(fleet, 3)
    watched.end_prometheus()
    down = up(fleet)
    assert down.code == 1
    assert "the rollout of local stopped before wave 1\n  http://127.0.0.1:" in down.err
    assert "to go on without alerts: `alerts: ignored` in rollout" in down.err

    # What it recorded before it was ended would be valid for five minutes more.
    shutil.rmtree(prometheus.storage(fleet.lab))
    watched.up("dev")
    until(lambda: watched.query_result(f'{ENVIRONMENT_INFO}{{environment="dev"}}'), "the other rules are evaluated")
    update = up(fleet)
    assert update.code == 1
    assert "does not evaluate the alert rules of local" in update.err
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    watched.up()
    until(lambda: watched.query_result(f'{ENVIRONMENT_INFO}{{environment="local"}}'), "its own rules are evaluated")
    result = up(fleet)
    assert result.code == 0, result.text
    assert finished_counts(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}


def test_a_prometheus_of_the_cluster_is_asked_with_the_right_to_its_service_alone(
    fleet: Project, watched: Watched, in_cluster: InCluster
) -> None:
    until(lambda: watched.query_result(f'{ENVIRONMENT_INFO}{{environment="local"}}'), "the rules are evaluated")
    with pytest.raises(PrometheusUnavailable, match=r'cannot get resource "services/proxy"'):
        in_cluster.firing("newcomer")
    in_cluster.grant(fleet, "newcomer")
    until(lambda: in_cluster.firing("newcomer") == [], "it is told that no alert fires")
