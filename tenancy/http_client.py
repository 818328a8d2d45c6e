"""The one HTTP client, on urllib3: a credential is sent only to the origin that it was given for.

The Kubernetes library has its own connections, which `cluster.api` asks likewise without redirects.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Generator, Mapping
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from urllib3 import (
    BaseHTTPResponse,
    HTTPConnectionPool,
    HTTPSConnectionPool,
    PoolManager,
    ProxyManager,
    Timeout,
    make_headers,
)
from urllib3.exceptions import HTTPError

PORTS = {"http": 80, "https": 443}
SEE_OTHER = 303
MAX_REDIRECTS = 10


class NoAnswer(OSError):
    """The server did not answer, or its answer broke off."""


class Redirected(NoAnswer):
    """A redirect that is not followed."""


class HttpAnswer(NamedTuple):
    """Status and body of an answer, whatever the status."""

    status: int
    reason: str
    data: bytes


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port (RFC 6454)."""
    parts = urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme.lower())


def shown(url: str) -> str:
    """A URL without its parts that may be secret: user, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class HttpClient:
    """Requests to any server, by the proxies of the environment.

    A redirect is followed within its origin, with the same request; after 303 with a GET, as that code requires. With
    `other_hosts`, for requests without a credential, it is followed to any host, but never from https to http.
    """

    def __init__(self, timeout: float, *, connect_timeout: float | None = None, other_hosts: bool = False) -> None:
        self._timeout = Timeout(connect=connect_timeout or timeout, read=timeout)
        self._other_hosts = other_hosts
        self._pools: dict[str | None, PoolManager] = {}

    def request(
        self, method: str, url: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """The answer to a request; NoAnswer without a whole one."""
        with self.open(method, url, body, headers) as answer:
            return HttpAnswer(answer.status, answer.reason or "", read(answer))

    def open(
        self, method: str, url: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> BaseHTTPResponse:
        """The answer to a request, whose body the caller reads and closes; NoAnswer without one."""
        for _ in range(MAX_REDIRECTS):
            answer = _send(self._pool(url), method, url, body, headers, self._timeout)
            location = answer.get_redirect_location()
            if not location:
                return answer
            answer.close()
            target = urljoin(url, location)
            if not self._may_follow(url, target):
                raise Redirected(f"{shown(url)} redirects to {shown(target)}")
            if answer.status == SEE_OTHER:
                method, body = "GET", None
            url = target
        raise Redirected(f"{shown(url)} is the end of {MAX_REDIRECTS} redirects")

    def _may_follow(self, url: str, target: str) -> bool:
        if self._other_hosts:
            return origin(url)[0] != "https" or origin(target)[0] == "https"
        return origin(url) == origin(target)

    def _pool(self, url: str) -> PoolManager:
        parts = urlsplit(url)
        proxy = urllib.request.getproxies().get(parts.scheme)
        if proxy and urllib.request.proxy_bypass(parts.hostname or ""):
            proxy = None
        if proxy not in self._pools:
            self._pools[proxy] = self._new_pool(proxy)
        return self._pools[proxy]

    def _new_pool(self, proxy: str | None) -> PoolManager:
        if proxy is None:
            return PoolManager(ssl_context=self._tls)
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        user, _, _ = urlsplit(proxy).netloc.rpartition("@")
        proxy_headers = make_headers(proxy_basic_auth=unquote(user)) if user else None
        return ProxyManager(proxy, proxy_headers=proxy_headers, ssl_context=self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class LocalServer:
    """Requests to one port of this machine, without a proxy and redirects; a connection is kept, and opened again after
    it broke. `tls` has the server's authority and the client's certificate; without it nothing is encrypted."""

    def __init__(self, port: int, timeout: float | None, tls: ssl.SSLContext | None = None) -> None:
        host, self._timeout = "127.0.0.1", Timeout(timeout)
        self._pool = HTTPSConnectionPool(host, port, ssl_context=tls) if tls else HTTPConnectionPool(host, port)

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """The answer to a request; NoAnswer without a whole one."""
        answer = _send(self._pool, method, path, body, headers, self._timeout)
        return HttpAnswer(answer.status, answer.reason or "", read(answer))

    def lines(self, path: str) -> Generator[bytes]:
        """The lines of an answer as they come, until the server or the caller ends it; NoAnswer if it breaks off."""
        answer = _send(self._pool, "GET", path, None, None, self._timeout)
        try:
            yield from answer
        except HTTPError as error:
            raise NoAnswer(_reason(error)) from error
        finally:
            answer.close()

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


def read(answer: BaseHTTPResponse, size: int | None = None) -> bytes:
    """The body of an answer, or the next part of it; NoAnswer if it breaks off."""
    try:
        return answer.read(size)
    except HTTPError as error:
        raise NoAnswer(_reason(error)) from error


def _reason(error: HTTPError) -> str:
    return str(error.__cause__ or error)


def _send(
    pool: PoolManager | HTTPConnectionPool,
    method: str,
    url: str,
    body: bytes | str | None,
    headers: Mapping[str, str] | None,
    timeout: Timeout,
) -> BaseHTTPResponse:
    try:
        return pool.request(
            method,
            url,
            body=body,
            headers=headers,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )
    except HTTPError as error:
        raise NoAnswer(_reason(error)) from error
