"""A credential goes to the origin that it was given for: each client asks real servers on loopback that redirect."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tenancy.cluster.api import Api
from tenancy.cluster.prometheus import Prometheus, PrometheusUnavailable
from tenancy.http_client import MAX_REDIRECTS, HttpClient, Redirected, origin
from tenancy.lab.downloads import Downloads, RouteError
from tenancy.lab.progress import Progress

ROOT = Path(__file__).parents[3]
TOKEN = "s3cr3t"
MATRIX = {"status": "success", "data": {"resultType": "matrix", "result": []}}


class ReceivedRequest(NamedTuple):
    method: str
    path: str
    credential: str
    body: bytes


class Server:
    """Answers everything with `answer`, but a path of `moved` with a redirect to where that says."""

    def __init__(self, answer: object) -> None:
        self.asked: list[ReceivedRequest] = []
        self.moved: dict[str, tuple[int, str]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                credential = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or ""
                outer.asked.append(ReceivedRequest(self.command, path, credential, body))
                sent = json.dumps(answer).encode()
                if path in outer.moved:
                    code, where = outer.moved[path]
                    self.send_response(code)
                    self.send_header("Location", where)
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The one that is asked, and another origin."""
    pair = Server(MATRIX), Server(MATRIX)
    yield pair
    for server in pair:
        server.close()


ELSEWHERE = {
    "another host": lambda _, target, path: target.url(path, "localhost"),
    "another host of the same port": lambda origin_server, _, path: origin_server.url("/moved" + path, "localhost"),
    "another port": lambda _, target, path: target.url(path),
    "no port and no encryption": lambda *_: "http://localhost/",
}
"""Targets of a redirect; the last has no server, so that a client that follows it fails otherwise."""
elsewhere = pytest.mark.parametrize("where", ELSEWHERE)
code = pytest.mark.parametrize("code", [301, 302, 303, 307, 308])


def _seen_beyond(origin_server: Server, target: Server) -> list[ReceivedRequest]:
    return [*target.asked, *(request for request in origin_server.asked if request.path.startswith("/moved"))]


# Prometheus

RANGE = "/api/v1/query_range"


@elsewhere
@code
def test_a_token_for_prometheus_does_not_leave_its_origin(
    where: str, code: int, servers: tuple[Server, Server]
) -> None:
    origin_server, target = servers
    origin_server.moved[RANGE] = code, ELSEWHERE[where](origin_server, target, RANGE)
    with pytest.raises(PrometheusUnavailable, match=r"redirects to http://.*; rule: .*; change: "):
        list(Prometheus(origin_server.url(), TOKEN).range("up", 0, 60, 60))
    assert [request.credential for request in origin_server.asked] == [f"Bearer {TOKEN}"], (
        "asked once: a redirect is no passing fault"
    )
    assert _seen_beyond(origin_server, target) == []


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_prometheus_may_redirect_within_its_origin(code: int, servers: tuple[Server, Server]) -> None:
    origin_server, _ = servers
    origin_server.moved[RANGE] = code, f"/prometheus{RANGE}"
    assert list(Prometheus(origin_server.url(), TOKEN).range("up", 0, 60, 60)) == []
    first, second = origin_server.asked
    assert second == first._replace(path=f"/prometheus{RANGE}"), "method, credential and question stay as they were"


# The forge


def _forge(kind: str, server: Server, folder: Path) -> subprocess.CompletedProcess[str]:
    comment_file = folder / "bank.md"
    comment_file.write_text("<!-- gpu-tenancy diff: bank -->\nfirst\n", "utf-8")
    base = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "CI_", "GIT_"))}
    github = {"GITHUB_API_URL": server.url(), "GITHUB_REPOSITORY": "bank/gpus", "GITHUB_TOKEN": TOKEN}
    gitlab = {"CI_API_V4_URL": server.url(), "CI_PROJECT_ID": "9", "GITLAB_TOKEN": TOKEN}
    step_variables = {"PYTHONPATH": str(ROOT), "PULL_REQUEST": "7"}
    command = [sys.executable, ROOT / "ci/steps/forge.py", "comment", comment_file]
    env = {**base, **step_variables, **(github if kind == "github" else gitlab)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


FIRST = {"github": "/repos/bank/gpus/issues/7/comments", "gitlab": "/user"}


@elsewhere
@pytest.mark.parametrize("kind", FIRST)
def test_a_token_of_a_forge_does_not_leave_its_origin(
    kind: str, where: str, servers: tuple[Server, Server], tmp_path: Path
) -> None:
    origin_server, target = servers
    origin_server.moved[FIRST[kind]] = 302, ELSEWHERE[where](origin_server, target, FIRST[kind])
    process = _forge(kind, origin_server, tmp_path)
    assert (process.returncode, process.stdout) == (1, "")
    assert "redirects to http://" in process.stderr
    assert "Traceback" not in process.stderr
    assert [TOKEN in request.credential for request in origin_server.asked] == [True]
    assert _seen_beyond(origin_server, target) == []


def test_a_comment_on_a_renamed_repository_is_still_posted(servers: tuple[Server, Server], tmp_path: Path) -> None:
    """GitHub answers 301 to where the repository is now, and a request is to be repeated there as it was."""
    origin_server, _ = servers
    origin_server.moved[FIRST["github"]] = 301, "/repositories/1/issues/7/comments"
    process = _forge("github", origin_server, tmp_path)
    assert process.stdout == "comment: created\n", process.stderr
    assert [request.method for request in origin_server.asked] == ["GET", "GET", "POST", "POST"]
    first, second = origin_server.asked[2:]
    assert second == first._replace(path="/repositories/1/issues/7/comments")
    assert json.loads(second.body)["body"].endswith("first")


# The API server


def test_a_token_for_the_api_server_does_not_leave_its_origin(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin_server, target = servers
    config = tmp_path / "config"
    config.write_text(yaml.safe_dump(_kubeconfig(origin_server.url())), "utf-8")
    monkeypatch.setenv("KUBECONFIG", str(config))
    origin_server.moved["/api/v1/pods"] = 307, target.url("/api/v1/pods", "localhost")
    answer = Api("one").request("GET", "/api/v1/pods")
    assert (answer.status, answer.ok) == (307, False)
    assert [request.credential for request in origin_server.asked] == [f"Bearer {TOKEN}"]
    assert target.asked == []


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "one", "user": {"token": TOKEN}}],
    }


# Downloads hold no credential, but what they get is run


def test_a_download_may_be_redirected_to_another_host(servers: tuple[Server, Server]) -> None:
    origin_server, target = servers
    origin_server.moved["/tool"] = 302, target.url("/tool", "localhost")
    with Downloads(Progress())._open(origin_server.url("/tool")) as response:
        assert json.load(response) == MATRIX
    assert [request.path for request in target.asked] == ["/tool"]


def test_a_download_that_would_lose_its_encryption_ends_its_route(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin_server, target = servers
    _encrypt(origin_server, tmp_path / "pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "pem"))
    assert Downloads(Progress())._open(f"https://127.0.0.1:{origin_server.port}/twin").read(1), (
        "the twin is not redirected"
    )
    origin_server.moved["/tool"] = 302, target.url("/tool")
    with pytest.raises(RouteError, match=r"redirects to http://.*, without encryption"):
        Downloads(Progress())._open(f"https://127.0.0.1:{origin_server.port}/tool")
    assert target.asked == []


def _encrypt(server: Server, pem: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)


# Every client


def test_all_requests_go_through_one_client() -> None:
    """Another one would follow a redirect anywhere, with every header."""
    other = re.compile(
        r"urlopen|build_opener|urllib\.request\.Request|http\.client|import requests\b|PoolManager|ConnectionPool"
    )
    files = [ROOT / "__main__.py", *(f for d in ("tenancy", "ci", "policy", "bench") for f in (ROOT / d).rglob("*.py"))]
    asking = {str(file.relative_to(ROOT)) for file in files if other.search(file.read_text("utf-8"))}
    # The flood measures connections of its own.
    assert asking == {"tenancy/http_client.py", "bench/flood.py"}


# What an origin is


@pytest.mark.parametrize(
    ("url", "second_url", "same"),
    [
        ("https://a.example/x", "https://A.example:443/y?z", True),
        ("http://a.example", "http://a.example:80/", True),
        ("https://a.example", "http://a.example", False),
        ("http://a.example", "https://a.example", False),
        ("https://a.example", "https://b.a.example", False),
        ("https://a.example", "https://a.example:8443", False),
        ("https://a.example", "https://a.example@b.example/", False),
        ("https://[::1]:90", "https://[::1]:90/x", True),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, second_url: str, same: bool) -> None:
    assert (origin(url) == origin(second_url)) is same


@elsewhere
@code
def test_a_redirect_to_another_origin_is_refused(where: str, code: int, servers: tuple[Server, Server]) -> None:
    origin_server, target = servers
    origin_server.moved["/x"] = code, ELSEWHERE[where](origin_server, target, "/x")
    with pytest.raises(Redirected, match="redirects to http://"):
        HttpClient(5).request("POST", origin_server.url("/x"), b"body", {"Authorization": f"Bearer {TOKEN}"})
    assert _seen_beyond(origin_server, target) == []


def test_redirects_without_an_end_are_an_error(servers: tuple[Server, Server]) -> None:
    origin_server, _ = servers
    origin_server.moved["/x"] = 302, "/x"
    with pytest.raises(Redirected, match="10 redirects"):
        HttpClient(5).request("GET", origin_server.url("/x"))
    assert len(origin_server.asked) == MAX_REDIRECTS


def test_a_request_goes_to_the_proxy_of_the_environment_and_names_its_user(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, _ = servers
    monkeypatch.setenv("http_proxy", proxy.url().replace("://", "://user:secret@"))
    monkeypatch.delenv("no_proxy", raising=False)
    assert HttpClient(5).request("GET", "http://far.example/x").status == 200
    assert [request.path for request in proxy.asked] == ["http://far.example/x"]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert HttpClient(5).request("GET", proxy.url("/near")).status == 200
    assert proxy.asked[-1].path == "/near"
