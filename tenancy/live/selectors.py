"""Label selectors of an environment's objects, quoted for a URL."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from tenancy.catalog import vocabulary as words

FEW = 5
"""Tenants, and objects of a kind, up to which they are asked for by name: a run of one tenant's stack then costs the
same however many tenants there are. For more, one list takes less time than their number of requests."""


def of_environment(environment: str, tenant: str | None = None) -> str:
    """Selector of the environment's objects, or of those of one of its tenants."""
    return _quoted(f"{words.ENVIRONMENT}={environment}{f',{words.TENANT}={tenant}' if tenant else ''}")


def of_platform(environment: str) -> str:
    """Selector of the environment's objects that are no tenant's."""
    return _quoted(f"{words.ENVIRONMENT}={environment},!{words.TENANT}")


def of_tenants(environment: str, tenants: Iterable[str]) -> str:
    """Selector of all objects of these tenants of the environment."""
    return _quoted(f"{words.ENVIRONMENT}={environment},{words.TENANT} in ({','.join(tenants)})")


def of_all_tenants(environment: str) -> str:
    """Selector of the objects of every tenant of the environment."""
    return _quoted(f"{words.ENVIRONMENT}={environment},{words.TENANT}")


def of_none() -> str:
    """Selector that no object has: the answer is the list's resource version alone."""
    return _quoted(f"{words.ENVIRONMENT}=")


def _quoted(selector: str) -> str:
    return quote(selector, safe="")
