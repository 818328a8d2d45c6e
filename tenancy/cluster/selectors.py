"""Label selectors of an environment's objects, quoted for a URL."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from tenancy.catalog import vocabulary

MAX_NAMED = 5
"""Tenants, and objects of a kind, up to which they are asked for by name: a run of one tenant's stack then costs the
same however many tenants there are. For more, one list takes less time than their number of requests."""


def environment_selector(environment: str, tenant: str | None = None) -> str:
    """Selector of the environment's objects, or of those of one of its tenants."""
    return _quoted(f"{vocabulary.ENVIRONMENT}={environment}{f',{vocabulary.TENANT}={tenant}' if tenant else ''}")


def platform_selector(environment: str) -> str:
    """Selector of the environment's objects that are no tenant's."""
    return _quoted(f"{vocabulary.ENVIRONMENT}={environment},!{vocabulary.TENANT}")


def tenants_selector(environment: str, tenants: Iterable[str]) -> str:
    """Selector of all objects of these tenants of the environment."""
    return _quoted(f"{vocabulary.ENVIRONMENT}={environment},{vocabulary.TENANT} in ({','.join(tenants)})")


def all_tenants_selector(environment: str) -> str:
    """Selector of the objects of every tenant of the environment."""
    return _quoted(f"{vocabulary.ENVIRONMENT}={environment},{vocabulary.TENANT}")


def _quoted(selector: str) -> str:
    return quote(selector, safe="")
