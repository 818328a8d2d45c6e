"""Attributes of an HTTP request that the authorizers judge.

Source: k8s.io/apiserver v0.36.3 `pkg/endpoints/request/requestinfo.go`.
"""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from tenancy.check.admission.access import Attributes

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMED_WITHOUT = {"get": "list", "delete": "deletecollection"}
_OF_NAMESPACES = ("status", "finalize")


def attributes(method: str, url: str) -> Attributes:
    address = urlsplit(url)
    verb, parts = _VERBS[method], [unquote(part) for part in address.path.strip("/").split("/")]
    core = parts[0] == "api"
    path_segments = parts[2:] if core else parts[3:]
    if parts[0] not in ("api", "apis") or not path_segments:
        return Attributes(method.lower(), path=address.path)
    group, namespace = "" if core else parts[1], ""
    if path_segments[0] == "namespaces" and len(path_segments) > 1:
        namespace = path_segments[1]
        if len(path_segments) > 2 and path_segments[2] not in _OF_NAMESPACES:
            path_segments = path_segments[2:]
    resource, name, subresource = [*path_segments, "", ""][:3]
    if not name:
        verb = _NAMED_WITHOUT.get(verb, verb)
        if verb == "list" and parse_qs(address.query).get("watch", ["false"])[0] in ("true", "1"):
            verb = "watch"
    return Attributes(verb, resource, group, subresource, namespace, name)
