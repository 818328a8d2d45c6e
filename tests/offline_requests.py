"""Requests of attacks as the offline API server takes them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tenancy.check.admission.requests import AUTHENTICATED, AdmissionRequest, Identity, Operation
from tenancy.prove.attacks.model import Request

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v\w+)(?:/namespaces/(?P<space>[^/]+)(?=/))?/(?P<resource>[\w.-]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<part>.+))?)?"
)
PLATFORM = Identity("kubernetes-admin", ("system:masters", AUTHENTICATED))
"""The user of a lab's kubeconfig."""


def creation(request: Request) -> AdmissionRequest | None:
    """A POST as the offline server takes it; None for another method."""
    url = urlsplit(request.path)
    found = _PATH.fullmatch(url.path)
    if request.method != "POST" or not found:
        return None
    space = unquote(found["space"]) if found["space"] else None
    body: dict[str, Any] = request.body
    metadata = {**body.get("metadata", {}), **({"namespace": space} if space else {})}
    return AdmissionRequest(
        Operation.CREATE,
        found["group"] or "",
        found["version"],
        found["resource"],
        unquote(found["name"] or metadata.get("name", "")),
        identity(request),
        subresource=found["part"] or "",
        namespace=space,
        object={**body, "metadata": metadata},
        options={key: values[0] for key, values in parse_qs(url.query).items()},
    )


def identity(request: Request) -> Identity:
    """Who sends a request, with the group that the API server adds."""
    return Identity(request.who.user, (*request.who.groups, AUTHENTICATED)) if request.who else PLATFORM
