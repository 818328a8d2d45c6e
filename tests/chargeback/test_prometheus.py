"""Reading from Prometheus: what is asked, how pages and failures are borne, and that it makes the same bill as tables.

The server here answers in the shape of Prometheus' HTTP API (query_range, matrix) and knows a trace.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenancy.chargeback.prometheus import QUERIES, label, prometheus_at, read_tables, resource
from tenancy.chargeback.report import make_report
from tenancy.chargeback.tables import tables
from tenancy.cluster.prometheus import PAGE, Prometheus, PrometheusUnavailable
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import Loaded
from tests.chargeback.scene import HOUR, OCTOBER, allocation, device_hours, dollars, node, priced, report, whole_periods
from tests.conftest import every

END = OCTOBER + 12 * HOUR
STEP = 300
NODE = {
    "node": "t1",
    "label_tenancy_gpu_pool": "train",
    "label_node_kubernetes_io_instance_type": "p4d.24xlarge",
    "label_karpenter_sh_capacity_type": "on-demand",
}
POD = {"namespace": "fraud--train", "pod": "job-a-0"}
Series = dict[str, list[tuple[dict[str, str], int, int, float]]]
"""Query -> series with the stretch in which they have a value."""


def trace() -> Series:
    begin, end = OCTOBER + 2 * HOUR, OCTOBER + 8 * HOUR
    on = {**POD, "node": "t1"}
    queue = {"flavor": "train", "resource": "nvidia.com/gpu"}
    return {
        "nodes": [(NODE, OCTOBER, END, 1)],
        "namespaces": [({"namespace": "fraud--train", "label_tenancy_gpu_tenant": "fraud"}, OCTOBER, END, 1)],
        "allocations": [
            ({**on, "resource": "nvidia_com_gpu"}, begin, end, 4),
            ({**on, "resource": "cpu"}, begin, end, 8),
            ({**on, "resource": "memory"}, begin, end, 2**34),
        ],
        "labels": [
            ({**POD, "label_tenancy_gpu_tenant": "fraud", "label_kueue_x_k8s_io_queue_name": "default"}, begin, END, 1)
        ],
        "owners": [({**POD, "owner_name": "job-a"}, begin, END, 1)],
        "guarantees": [
            ({**queue, "cluster_queue": "fraud--batch"}, OCTOBER, END, 16),
            ({**queue, "cluster_queue": "research--batch"}, OCTOBER, END, 8),
            ({**queue, "cluster_queue": "fraud--batch", "flavor": "any.pool", "resource": "cpu"}, OCTOBER, END, 64),
        ],
        "lends": [({**queue, "cluster_queue": "fraud--batch"}, OCTOBER, END, float("inf"))],
        "used": [(USED, begin, end, 0.25)],
        "devices": [(USED, begin, end, 4)],
        "claims": [({"namespace": "fraud--train"}, begin, begin + 3 * HOUR, 73 * 2**30)],
    }


USED = {"exported_namespace": "fraud--train", "namespace": "gpu-operator", "modelName": "NVIDIA A100-SXM4-40GB"}


class Server:
    """Prometheus as far as it is asked. `fail` answers are given first, as (status, body)."""

    def __init__(self, series: Series) -> None:
        self.series, self.asked, self.fail = series, [], []
        names = {query: name for name, query in QUERIES.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                parameters = {key: values[0] for key, values in urllib.parse.parse_qs(body).items()}
                outer.asked.append({**parameters, "path": self.path, "token": self.headers.get("Authorization")})
                status, answer = 200, outer.answer(names[parameters["query"]], parameters)
                if outer.fail:
                    status, answer = outer.fail.pop(0)
                sent = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def answer(self, name: str, parameters: dict[str, str]) -> dict[str, Any]:
        start, end, step = (int(parameters[key]) for key in ("start", "end", "step"))
        result = []
        for labels, begin, until, value in self.series.get(name, ()):
            if values := [[at, str(value)] for at in range(start, end + 1, step) if begin <= at < until]:
                result.append({"metric": labels, "values": values})
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(trace())
    yield server
    server.close()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return priced(tmp_path_factory.mktemp("prometheus"))


def source(server: Server, token: str = "") -> Prometheus:
    return prometheus_at(server.url, token, pause=lambda seconds: None)  # noqa: ARG005


def bill(loaded: Loaded, server: Server) -> Any:
    frames = read_tables(source(server), loaded.environment, OCTOBER, END, STEP)
    read = tables({name: [(name, frame.lazy())] for name, frame in frames.items()}, OCTOBER, END)
    return make_report(loaded.environment, loaded.tenants, read, whole_periods(OCTOBER, END)), read


def test_it_makes_the_same_bill_as_the_tables_of_the_same_trace(loaded: Loaded, server: Server) -> None:
    costs, _ = bill(loaded, server)
    rows = [allocation("fraud--train", "t1", "a100", 4, OCTOBER + 2 * HOUR, OCTOBER + 8 * HOUR, cpu=8, memory=2**34)]
    costs_of_tables = report(loaded, OCTOBER, END, nodes=[node("t1", "train", OCTOBER, END)], allocations=rows)
    assert [(li.tenant, li.category, li.micro) for li in costs.lines] == [
        (li.tenant, li.category, li.micro) for li in costs_of_tables.lines
    ]
    assert (dollars(costs, "fraud", "held"), device_hours(costs, "fraud")) == (60, 24)


def test_claims_cost_their_rate_for_as_long_as_their_volumes_are_there(tmp_path: Path, server: Server) -> None:
    rated = priced(tmp_path, "costs: {rates: {storage: 10}}\n")
    costs, read = bill(rated, server)
    assert read.lines is not None
    assert dollars(costs, "fraud", "storage") == 3, "a tenth of 730 GiB for 3 of 730 hours"
    rows = [
        {"kind": "storage", "namespace": "fraud--train", "quantity": 73, "start": OCTOBER, "end": OCTOBER + 3 * HOUR}
    ]
    costs_of_tables = report(rated, OCTOBER, END, nodes=[node("t1", "train", OCTOBER, END)], lines=rows)
    assert dollars(costs_of_tables, "fraud", "storage") == 3


def test_claims_are_asked_for_where_storage_has_a_rate(loaded: Loaded, server: Server) -> None:
    _, read = bill(loaded, server)
    assert read.lines is None
    assert QUERIES["claims"] not in {request["query"] for request in server.asked}


def test_only_claims_whose_volume_a_driver_made_are_asked_for() -> None:
    assert 'kube_persistentvolumeclaim_info{volumename=~"pvc-.+"}' in QUERIES["claims"]


def test_workload_queue_and_tenant_come_with_the_pod(loaded: Loaded, server: Server) -> None:
    costs, _ = bill(loaded, server)
    assert costs.work.select("owner", "workload", "queue", "flavor").rows() == [("fraud", "job-a", "default", "a100")]


def test_guarantees_are_kueues_and_an_unlimited_loan_is_all_of_it(loaded: Loaded, server: Server) -> None:
    _, read = bill(loaded, server)
    columns = ("tenant", "pool", "flavor", "count", "lends")
    rows = {tuple(map(str, row)) for row in read.guarantees.select(columns).iter_rows()}
    assert rows == {("fraud", "train", "a100", "16", "16"), ("research", "train", "a100", "8", "0")}


def test_use_is_the_namespaces_that_the_pod_is_in_and_not_the_exporters(loaded: Loaded, server: Server) -> None:
    from tenancy.chargeback.use import uses

    costs, read = bill(loaded, server)
    (fraud,) = [use for use in uses(costs, read) if use.tenant == "fraud"]
    assert (fraud.measured_use, fraud.efficiency, fraud.measured) == (6.0, 25.0, 100.0)


def test_hours_without_samples_become_a_gap(loaded: Loaded, server: Server) -> None:
    server.series["nodes"] = [(NODE, OCTOBER, OCTOBER + 3 * HOUR, 1), (NODE, OCTOBER + 6 * HOUR, END, 1)]
    costs, read = bill(loaded, server)
    assert read.gaps == [(OCTOBER + 3 * HOUR, OCTOBER + 6 * HOUR)]
    assert dollars(costs, "(no data)") == 60


def test_a_long_range_is_asked_page_by_page_without_overlap(server: Server) -> None:
    list(source(server).range(QUERIES["nodes"], OCTOBER, END - 1, STEP))
    pages = [(int(request["start"]), int(request["end"])) for request in server.asked]
    assert pages[0] == (OCTOBER, OCTOBER + PAGE - STEP)
    assert every(next_page[0] - page[1] == STEP for page, next_page in pairwise(pages))
    assert {request["path"] for request in server.asked} == {"/api/v1/query_range"}


def test_a_token_is_sent(server: Server) -> None:
    list(source(server, "secret").range(QUERIES["nodes"], OCTOBER, OCTOBER, STEP))
    assert {request["token"] for request in server.asked} == {"Bearer secret"}


def test_what_is_overloaded_is_asked_again(loaded: Loaded, server: Server) -> None:
    server.fail = [(503, {"error": "busy"}), (429, {"error": "later"})]
    costs, _ = bill(loaded, server)
    assert dollars(costs, "fraud", "held") == 60


@pytest.mark.parametrize(
    ("answers", "message_part"),
    [
        ([(400, {"status": "error", "errorType": "bad_data", "error": "parse error"})], "400: parse error"),
        ([(401, {"error": "no token"})], "401: no token"),
        ([(503, {"error": "busy"})] * 4, "503: busy"),
        ([(200, {"status": "error", "error": "query timed out"})], "query timed out"),
        (
            [(200, {"status": "success", "warnings": ["store down"], "data": {"result": []}})],
            "answers: store down",
        ),
    ],
)
def test_what_is_not_answered_whole_is_not_taken_for_nothing(server: Server, answers: list, message_part: str) -> None:
    server.fail = answers
    with pytest.raises(PrometheusUnavailable, match=message_part):
        list(source(server).range(QUERIES["nodes"], OCTOBER, OCTOBER, STEP))


def test_a_server_that_does_not_answer_is_reported_after_some_tries() -> None:
    waited: list[float] = []
    with pytest.raises(PrometheusUnavailable, match="does not answer"):
        list(prometheus_at("http://127.0.0.1:9", pause=waited.append).range("up", OCTOBER, OCTOBER, STEP))
    assert waited == [1, 2, 4]


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "http://[::", "http://[::]:x", "http://a:99999", "http://a..b", "http://é", "http://:90"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Violation, match="bill-10"):
        prometheus_at(url)


@pytest.mark.parametrize("url", ["http://prometheus:9090", "http://[::1]:9090", "https://a.b/prometheus/"])
def test_an_address_is_taken_as_it_is_written(url: str) -> None:
    assert prometheus_at(url).address == url.rstrip("/")


def test_metrics_without_the_pools_label_are_refused(loaded: Loaded, server: Server) -> None:
    server.series["nodes"] = [({"node": "t1"}, OCTOBER, END, 1)]
    with pytest.raises(Violation, match="label_tenancy_gpu_pool"):
        read_tables(source(server), loaded.environment, OCTOBER, END, STEP)


def test_a_range_without_any_use_is_all_idle(loaded: Loaded, server: Server) -> None:
    del server.series["allocations"]
    costs, _ = bill(loaded, server)
    assert (dollars(costs, "idle"), dollars(costs)) == (240, 240)


def test_names_are_spelled_as_kube_state_metrics_does() -> None:
    assert label("kueue.x-k8s.io/queue-name") == "label_kueue_x_k8s_io_queue_name"
    assert resource("nvidia.com/mig-1g.5gb") == "nvidia_com_mig_1g_5gb"


def test_slices_are_known_by_their_pools_resource(loaded: Loaded, server: Server) -> None:
    server.series["nodes"] = [({**NODE, "label_tenancy_gpu_pool": "serve"}, OCTOBER, END, 1)]
    on = {**POD, "node": "t1", "resource": "nvidia_com_mig_1g_5gb"}
    server.series["allocations"] = [(on, OCTOBER, END, 7)]
    costs, _ = bill(loaded, server)
    assert device_hours(costs, "fraud", "a100-1g.5gb") == 84


def test_the_recorded_tables_say_the_same(loaded: Loaded, server: Server, tmp_path: Path) -> None:
    from tenancy.chargeback.tables import read

    frames = read_tables(source(server), loaded.environment, OCTOBER, END, STEP)
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / f"{name}.parquet")
    again = make_report(loaded.environment, loaded.tenants, read(tmp_path, OCTOBER, END), whole_periods(OCTOBER, END))
    assert again.lines == bill(loaded, server)[0].lines
