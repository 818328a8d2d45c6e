"""Label selectors of tenants' objects, as a request has them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from tenancy.catalog import vocabulary as words

FEW = 5
"""Tenants, and objects of a kind, up to which they are asked for by name: a run of one tenant's stack then costs the
same however many tenants there are. For more, one list takes less time than their number of requests."""


def of_tenants(environment: str, tenants: Iterable[str]) -> str:
    """Selector of all objects of these tenants of the environment, quoted for a URL."""
    return quote(f"{words.ENVIRONMENT}={environment},{words.TENANT} in ({','.join(tenants)})", safe="")
