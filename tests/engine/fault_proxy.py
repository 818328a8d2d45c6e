"""A way to the API server that fails on purpose, once, at the write that it was told of."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from answering import answering

from tenancy.lab import ports
from tenancy.lab.layout import Lab
from tenancy.lab.pki import LOOPBACK

BLOCK = 65536
OF_ONE_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
WRITES = {"DELETE", "PATCH", "POST", "PUT"}
ASKING = "/apis/authorization.k8s.io/"
"""Reviews of rights are made, and nothing is written."""


class Fault(StrEnum):
    ERROR = "500"
    BUSY = "429"
    CONFLICT = "409"
    UNDELIVERED = "cut"  # the request never arrives
    UNANSWERED = "lost"  # it arrives, and its answer does not: the object is made and the engine does not know
    KILLED = "killed"  # likewise, and the engine is ended
    EXPIRED = "401"  # from that write on every request is refused, as with a token that has expired


@dataclass
class Trap:
    """Springs once (EXPIRED: for good), at the `at`-th write (from 1) to `resource`, or to any where none is named.

    `resource` is a kind's plural or an object's name.
    """

    fault: Fault
    at: int = 1
    resource: str = ""
    kill: Callable[[], None] = lambda: None
    """Ends the engine."""
    sprung: str = ""
    """The request that was hit."""
    _write_count: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def takes(self, method: str, path: str) -> bool:
        if self.sprung and self.fault is Fault.EXPIRED:
            return True
        if method not in WRITES or "dryRun=All" in path or path.startswith(ASKING):
            return False
        if self.resource and self.resource not in urlsplit(path).path.split("/")[-2:]:
            return False
        with self._lock:
            self._write_count += 1
            if self._write_count != self.at:
                return False
            self.sprung = f"{method} {path.partition('?')[0]}"
            return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, lab: Lab) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(lab.pki / "serving.crt", lab.pki / "serving.key")
        self.socket = serving.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.asking = ssl.create_default_context(cafile=str(lab.pki / "ca.crt"))
        # Every request through the proxy is the platform engineer's: a client's certificate does not pass a proxy.
        self.asking.load_cert_chain(lab.pki / "platform.crt", lab.pki / "platform.key")
        self.target = ports.remembered(lab)["kube-apiserver"]
        self.trap: Trap | None = None

    def handle_error(self, request: object, client_address: object) -> None:
        """An engine that is killed leaves half a request behind."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _proxy(self) -> _Server:
        assert isinstance(self.server, _Server)
        return self.server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self._body()
        trap = self._proxy.trap
        fault = trap.fault if trap and trap.takes(self.command, self.path) else None
        if fault in {Fault.ERROR, Fault.BUSY, Fault.CONFLICT, Fault.EXPIRED}:
            self._refuse(int(fault))
            return
        if fault is Fault.UNDELIVERED:
            self.close_connection = True
            return
        upstream = http.client.HTTPSConnection(LOOPBACK, self._proxy.target, context=self._proxy.asking)
        with contextlib.closing(upstream):
            headers = {key: value for key, value in self.headers.items() if key.lower() not in OF_ONE_HOP}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if trap and fault in {Fault.UNANSWERED, Fault.KILLED}:
                answer.read()
                if fault is Fault.KILLED:
                    trap.kill()
                self.close_connection = True
                return
            self._answer(answer)

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _pass_on  # noqa: N815

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _refuse(self, status: int) -> None:
        text = json.dumps(
            {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "trap"}
        )
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        """Chunk by chunk, because a watch has no end."""
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in OF_ONE_HOP:
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        while block := answer.read1(BLOCK):
            self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


@dataclass(frozen=True)
class Proxy:
    _server: _Server

    @contextmanager
    def armed(self, trap: Trap) -> Generator[Trap]:
        self._server.trap = trap
        try:
            yield trap
        finally:
            self._server.trap = None


@contextmanager
def in_front(lab: Lab) -> Generator[Proxy]:
    """The lab's kubeconfig leads through the proxy."""
    server = _Server(lab)
    direct = lab.kubeconfig.read_text("utf-8")
    through = direct.replace(f":{server.target}", f":{server.server_address[1]}")
    assert through != direct
    with answering(server):
        lab.kubeconfig.write_text(through, "utf-8")
        try:
            yield Proxy(server)
        finally:
            lab.kubeconfig.write_text(direct, "utf-8")
