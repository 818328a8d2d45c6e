"""A thin client of the API server: any kubeconfig, impersonation of any identity, answers as plain data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tenancy.catalog.files import SETTINGS, regular_file
from tenancy.kube.requests import Impersonation, collection

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPHeaderDict

TIMEOUT = 10.0
"""Seconds for one request."""
RETRY_SECONDS = 30.0
"""Seconds for which a list is requested again while the server answers 429."""


class ApiUnreachable(Exception):
    """The API server did not answer, refused what must not be refused, or the kubeconfig names none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """`status` is that of a refusal."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the API server: status, decoded body and headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The message of a Status object; empty if there is none."""
        return str(self.body.get("message", ""))


class Api:
    """A client of the API server of a context, by default the current one."""

    def __init__(self, context: str | None, kubeconfig: str | None = None) -> None:
        """`kubeconfig` is a path or the text itself. Default: KUBECONFIG, or the file in the home folder."""
        # Takes 0.2 s to import: only commands that ask a cluster pay for it.
        import yaml
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException

        try:
            if kubeconfig and ("\n" in kubeconfig or "{" in kubeconfig):
                self._client = config.new_client_from_config_dict(yaml.safe_load(kubeconfig), context=context)
            else:
                # The library reads the variable once, when it is imported.
                file = kubeconfig or os.environ.get("KUBECONFIG") or None
                for part in (file or config.KUBE_CONFIG_DEFAULT_LOCATION).split(os.pathsep):
                    if (path := Path(part).expanduser()).exists():
                        regular_file(path, SETTINGS)
                self._client = config.new_client_from_config(config_file=file, context=context)
        except (ConfigException, OSError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError) as error:
            raise ApiUnreachable(
                f"given kubeconfig without a usable context {context!r} ({str(error).strip()}); "
                "change: set KUBECONFIG (for the lab: `. .lab/env`), or name another context in environment.yaml"
            ) from error
        self.host = self._client.configuration.host

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        identity: Impersonation | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request; ApiUnreachable if the server does not answer. A refusal is a Response like any other."""
        from urllib3 import HTTPHeaderDict

        request_headers = HTTPHeaderDict(
            {"Accept": "application/json", "Content-Type": content_type, **(headers or {})}
        )
        answer = self._send(
            method, path, request_headers, identity, None if body is None else json.dumps(body).encode()
        )
        try:
            parsed = json.loads(answer.data) if answer.data else {}
        except ValueError:
            parsed = {"message": answer.data.decode("utf-8", "replace")}
        return Response(answer.status, parsed if isinstance(parsed, dict) else {"items": parsed}, dict(answer.headers))

    def events(self, path: str, identity: Impersonation | None = None) -> Iterator[Mapping[str, Any]]:
        """The events of a watch as they come, until the server or the caller ends it; ApiUnreachable if the server
        does not answer, refuses the watch or cuts it. `path` has the query."""
        from urllib3 import HTTPHeaderDict
        from urllib3.exceptions import HTTPError

        answer = self._send("GET", path, HTTPHeaderDict({"Accept": "application/json"}), identity, is_streamed=True)
        try:
            if answer.status != OK:
                raise ApiUnreachable(f"GET {path}: {answer.status}", answer.status)
            for line in answer:
                yield json.loads(line)
        except (HTTPError, ValueError) as error:
            raise ApiUnreachable(f"GET {path}: the watch ended ({type(error).__name__})") from error
        finally:
            # The rest of a watch that the caller leaves is not read: its connection is of no further use.
            answer.close()

    def _send(
        self,
        method: str,
        path: str,
        request_headers: HTTPHeaderDict,
        identity: Impersonation | None,
        data: bytes | None = None,
        *,
        is_streamed: bool = False,
    ) -> BaseHTTPResponse:
        from urllib3.exceptions import HTTPError

        for name, value in identity.headers() if identity else ():
            request_headers.add(name, value)
        for setting in self._client.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                request_headers[setting["key"]] = setting["value"]
        try:
            return self._client.rest_client.pool_manager.request(
                method,
                self.host + path,
                body=data,
                headers=request_headers,
                timeout=TIMEOUT,
                retries=False,
                redirect=False,  # the credential and the identity are for this server
                preload_content=not is_streamed,
            )
        except HTTPError as error:
            raise ApiUnreachable(
                f"the API server at {self.host} does not answer ({type(error).__name__}); "
                "change: start it (for the lab: `tenancy lab up`) and run this again"
            ) from error

    def items(self, path: str, absent: bool = False) -> list[dict[str, Any]]:
        """The objects of a list; ApiUnreachable if the list is refused.

        With `absent` the list of an unknown kind is empty: a chart may install the kind later. For a kind that was just
        installed the server answers 429 for some seconds.
        """
        answer = self._get_with_retries(path)
        if absent and answer.status == NOT_FOUND:
            return []
        if not answer.ok:
            raise ApiUnreachable(f"GET {path}: {answer.status} {answer.message}", answer.status)
        return list(answer.body.get("items") or [])

    def pages(
        self, path: str, limit: int = 500, *, selector: str = "", absent: bool = False
    ) -> Iterator[Mapping[str, Any]]:
        """A list in parts of up to `limit` objects, as the API server answers them; ApiUnreachable if one is refused.
        A long list is not in memory as a whole. `selector` is one of labels, quoted; with `absent` the list of an
        unknown kind has no part."""
        token, selector_query = "", f"&labelSelector={selector}" if selector else ""
        while True:
            continue_query = f"&continue={quote(token, safe='')}" if token else ""
            answer = self._get_with_retries(f"{path}?limit={limit}{selector_query}{continue_query}")
            if absent and answer.status == NOT_FOUND:
                return
            if not answer.ok:
                raise ApiUnreachable(f"GET {path}: {answer.status} {answer.message}", answer.status)
            yield answer.body
            token = answer.body["metadata"].get("continue") or ""
            if not token:
                return

    def paged_items(self, path: str, *, selector: str = "", absent: bool = False) -> Iterator[dict[str, Any]]:
        """`items`, a page at a time: for lists that grow with the number of tenants."""
        for page in self.pages(path, selector=selector, absent=absent):
            yield from page.get("items") or ()

    def _get_with_retries(self, path: str) -> Response:
        answer = self.request("GET", path)
        deadline = time.monotonic() + RETRY_SECONDS
        while answer.status == TOO_MANY_REQUESTS and time.monotonic() < deadline:
            time.sleep(1)
            answer = self.request("GET", path)
        return answer


OK, NOT_FOUND, CONFLICT, TOO_MANY_REQUESTS = 200, 404, 409, 429


def path_of(manifest: Mapping[str, Any]) -> str:
    """Path of one object."""
    metadata = manifest["metadata"]
    return f"{collection(manifest['apiVersion'], manifest['kind'], metadata.get('namespace'))}/{metadata['name']}"
