"""Redirect handlers for urllib: a credential is sent only to the origin that it was given for.

urllib itself sends every header of a request, Authorization included, to the target of a redirect, and turns a POST
that is answered by 301 or 302 into a GET without its body: a comment would count as posted that never was.
"""

from __future__ import annotations

import urllib.parse
import urllib.request
from http.client import HTTPMessage
from typing import IO

PORTS = {"http": 80, "https": 443}
SEE_OTHER = 303


class Redirected(Exception):
    """A redirect that is not followed."""


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port (RFC 6454)."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme.lower())


def shown(url: str) -> str:
    """A URL without its parts that may be secret: user, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follow a redirect within its origin, with the same request; after 303 with a GET, as that code requires."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The request to the new URL, if its scheme, host and port are the same; else Redirected."""
        if origin(newurl) != origin(req.full_url):
            raise Redirected(f"{shown(req.full_url)} redirects to {shown(newurl)}")
        if code == SEE_OTHER:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        return urllib.request.Request(newurl, req.data, req.headers, method=req.get_method())


class NoDowngrade(urllib.request.HTTPRedirectHandler):
    """For requests without a credential: follow a redirect to any host, but never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The request to the new URL, unless it goes from HTTPS to another scheme; then Redirected."""
        if origin(req.full_url)[0] == "https" != origin(newurl)[0]:
            raise Redirected(f"{shown(req.full_url)} redirects to {shown(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
