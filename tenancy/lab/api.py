"""A small client of the lab's API server, acting as its admin: starts in milliseconds."""

from __future__ import annotations

import json
import ssl
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from tenancy.http_client import LocalServer
from tenancy.lab.layout import Lab, LabError

FIELD_MANAGER = "gpu-tenancy-lab"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiError(LabError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def client_tls(lab: Lab, identity: str = "admin", authority: str = "ca") -> ssl.SSLContext:
    """TLS as an identity of the lab, to a server of one of its authorities."""
    context = ssl.create_default_context(cafile=str(lab.pki / f"{authority}.crt"))
    context.load_cert_chain(lab.pki / f"{identity}.crt", lab.pki / f"{identity}.key")
    return context


class LabApi:
    """One connection, kept open."""

    def __init__(self, lab: Lab, port: int, *, timeout: float = 30, identity: str = "admin") -> None:
        self._server = LocalServer(port, timeout, client_tls(lab, identity))

    def __enter__(self) -> LabApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = MERGE, accept: str = "application/json"
    ) -> Any:
        """Send a request and return the decoded answer; `ApiError` if it is refused."""
        data = None if body is None else json.dumps(body)
        headers = {"Accept": accept, **({"Content-Type": content_type} if data else {})}
        status, _, text = self._server.request(method, path, data, headers)
        if status >= 300:  # an API server never redirects: something else answers
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                message = text.decode(errors="replace")
            raise ApiError(status, f"the API server refused {method} {path}: {message}")
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode(errors="replace")

    def get(self, path: str, **query: str) -> Any:
        """Read a resource or a list of them."""
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Apply an object on the server side as the lab's own field manager."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        return self.request("PATCH", f"{path}/{quote(body['metadata']['name'])}?{query}", body, APPLY)
