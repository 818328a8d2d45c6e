"""A double of an API server over HTTP: it answers reads with the objects that a test gives it, and takes every write
without a change. For tests of what a command prints, not of what a cluster does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from answering import answering

from tenancy.cluster.api import path_of
from tenancy.kube.objects import Object

_ALLOWED = {"allowed": True, "userInfo": {"username": "jane", "groups": []}}
"""Status of every review."""


def kubeconfig(address: str, context: str) -> str:
    """The text of a kubeconfig whose context leads to the double."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": {"server": address}}],
            "users": [{"name": "jane", "user": {"token": "none"}}],
            "contexts": [{"name": context, "context": {"cluster": "double", "user": "jane"}}],
            "current-context": context,
        }
    )


def _answer(objects: dict[str, Object], method: str, path: str, body: Any) -> tuple[int, Any]:
    if method != "GET":
        return 201, {**body, "status": {**(body.get("status") or {}), **_ALLOWED}} if isinstance(body, dict) else {}
    if path in objects:
        return 200, objects[path]
    _, root, *segments = path.split("/")
    resource_segments = segments[1:] if root == "api" else segments[2:]
    if len(resource_segments) % 2 == 0:
        return 404, {"message": "the server could not find the requested resource"}
    head, _, plural = path.rpartition("/")
    items = [item for where, item in objects.items() if where.rpartition("/")[0] == path]
    if len(resource_segments) == 1:  # of all namespaces
        items += [
            item
            for where, item in objects.items()
            if where.startswith(f"{head}/namespaces/") and where.split("/")[-2] == plural
        ]
    return 200, {"items": items, "metadata": {"resourceVersion": "1"}}


@contextmanager
def cluster_double(objects: Iterable[Object]) -> Iterator[str]:
    """The address of a double with these objects, as long as it is used."""
    objects_by_path: dict[str, Object] = {}
    for number, item in enumerate(objects):
        metadata = {**item["metadata"], "uid": f"uid-{number}", "resourceVersion": "1"}
        metadata |= {"creationTimestamp": "2026-11-01T00:00:00Z", "managedFields": []}
        objects_by_path[path_of(item)] = {**item, "metadata": metadata}

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            request_body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = _answer(
                objects_by_path,
                self.command,
                self.path.partition("?")[0],
                json.loads(request_body) if request_body else None,
            )
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with answering(server):
        yield f"http://127.0.0.1:{server.server_port}"
