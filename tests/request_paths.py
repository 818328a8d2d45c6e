"""What the authorizers are asked about an HTTP request.

Source: k8s.io/apiserver v0.36.3 `pkg/endpoints/request/requestinfo.go`.
"""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from tenancy.check.admission.access import Attributes

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMED_WITHOUT = {"get": "list", "delete": "deletecollection"}
_OF_NAMESPACES = ("status", "finalize")


def attributes(method: str, url: str) -> Attributes:
    found = urlsplit(url)
    verb, parts = _VERBS[method], [unquote(part) for part in found.path.strip("/").split("/")]
    core = parts[0] == "api"
    rest = parts[2:] if core else parts[3:]
    if parts[0] not in ("api", "apis") or not rest:
        return Attributes(method.lower(), path=found.path)
    group, namespace = "" if core else parts[1], ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    resource, name, subresource = [*rest, "", ""][:3]
    if not name:
        verb = _NAMED_WITHOUT.get(verb, verb)
        if verb == "list" and parse_qs(found.query).get("watch", ["false"])[0] in ("true", "1"):
            verb = "watch"
    return Attributes(verb, resource, group, subresource, namespace, name)
