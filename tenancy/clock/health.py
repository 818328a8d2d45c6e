"""The clock's metrics and its answer to probes, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tenancy.catalog.exporters import CLOCK_ENDED, CLOCK_LAST_ROUND

LATE_SECONDS = 180.0
"""Without an attempt for so long the process hangs, and a probe restarts it."""


@dataclass
class Health:
    """Times of the rounds of one process."""

    environment: str
    now: Callable[[], float] = time.time
    last_round: float | None = None
    """Unix time of the last round that the cluster accepted; None while another copy works."""
    ended: int = 0
    """Entries of the spec files in use whose last day has passed."""
    attempted: float = field(init=False)

    def __post_init__(self) -> None:
        self.attempted = self.now()

    def attempt(self) -> None:
        """A round begins."""
        self.attempted = self.now()

    def complete(self) -> None:
        """A round was accepted."""
        self.last_round = self.now()

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text for a path."""
        if path == "/healthz":
            late = self.now() - self.attempted > LATE_SECONDS
            return (503, "no round was attempted\n") if late else (200, "ok\n")
        if path != "/metrics":
            return 404, "not found\n"
        labels = f'{{environment="{self.environment}"}}'
        lines = [
            f"# TYPE {CLOCK_ENDED} gauge",
            f"{CLOCK_ENDED}{labels} {self.ended}",
            f"# TYPE {CLOCK_LAST_ROUND} gauge",
        ]
        if self.last_round is not None:
            lines.append(f"{CLOCK_LAST_ROUND}{labels} {self.last_round:.3f}")
        return 200, "\n".join(lines) + "\n"

    def serve(self, host: str, port: int) -> ThreadingHTTPServer:
        """Answer in a thread of its own. OSError if the address is in use."""
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = health.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                """Probes are not logged."""

        server = ThreadingHTTPServer((host, port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
