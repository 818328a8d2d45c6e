"""A small client of the lab's API server, acting as its admin: starts in milliseconds."""

from __future__ import annotations

import http.client
import json
import ssl
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from tenancy.lab.layout import Lab, LabError
from tenancy.lab.pki import LOOPBACK

FIELD_MANAGER = "gpu-tenancy-lab"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiError(LabError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LabApi:
    """One connection, kept open."""

    def __init__(self, lab: Lab, port: int, *, timeout: float = 30, identity: str = "admin") -> None:
        context = ssl.create_default_context(cafile=str(lab.pki / "ca.crt"))
        context.load_cert_chain(lab.pki / f"{identity}.crt", lab.pki / f"{identity}.key")
        self._connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=timeout, context=context)

    def __enter__(self) -> LabApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = MERGE, accept: str = "application/json"
    ) -> Any:
        """Send a request and return the decoded answer; `ApiError` if it is refused."""
        data = None if body is None else json.dumps(body)
        headers = {"Accept": accept, **({"Content-Type": content_type} if data else {})}
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= 300:  # an API server never redirects: something else answers
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                message = text.decode(errors="replace")
            raise ApiError(response.status, f"the API server refused {method} {path}: {message}")
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode(errors="replace")

    def get(self, path: str, **query: str) -> Any:
        """Read a resource or a list of them."""
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Apply an object on the server side as the lab's own field manager."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        return self.request("PATCH", f"{path}/{quote(body['metadata']['name'])}?{query}", body, APPLY)
