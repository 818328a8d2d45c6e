"""A double of Prometheus: an HTTP server that answers every query with the series that a test gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from answering import answering


@dataclass
class PrometheusDouble:
    """Its address, what it answers, and what it was asked."""

    address: str
    result: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    more: dict[str, Any] = field(default_factory=dict)
    queries: list[dict[str, str]] = field(default_factory=list)

    def idle(self, namespace: str, pod: str, owner: tuple[str, str], gpus: int, active: str = "0.01") -> None:
        """Add GPUs of a pod that are as active as that."""
        kind, name = owner
        for number in range(gpus):
            labels = {"namespace": namespace, "pod": pod, "UUID": f"GPU-{namespace}-{pod}-{number}"}
            metric = {**labels, "job_type": kind, "workload": name}
            self.result.append({"metric": metric, "value": [0, active]})


@contextmanager
def prometheus_double() -> Iterator[PrometheusDouble]:
    """A double on a port of its own, as long as it is used."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            double.queries.append({key: values[0] for key, values in parse_qs(body).items()})
            answer = {"status": "success", "data": {"result": double.result}, **double.more}
            self.send_response(double.status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double = PrometheusDouble(f"http://127.0.0.1:{server.server_port}")
    with answering(server):
        yield double
