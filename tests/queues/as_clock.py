"""A client with the rights of the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, Response
from tenancy.kube.requests import Impersonation

CLOCK = Impersonation(
    f"system:serviceaccount:{vocabulary.PLATFORM_NAMESPACE}:{vocabulary.CLOCK}",
    ("system:serviceaccounts", f"system:serviceaccounts:{vocabulary.PLATFORM_NAMESPACE}"),
)


class AsClock(Api):
    """The clock's own identity, so that a right that it lacks is refused."""

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        identity: Impersonation | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return super().request(method, path, body, identity or CLOCK, content_type, headers)

    def events(self, path: str, identity: Impersonation | None = None) -> Iterator[Mapping[str, Any]]:
        return super().events(path, identity or CLOCK)
