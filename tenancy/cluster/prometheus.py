"""Instant queries of Prometheus' HTTP API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tenancy.redirects import NoDowngrade, Redirected

TIMEOUT_SECONDS = 10.0
QUERY = "/api/v1/query"
Series = Mapping[str, Any]
_OPENER = urllib.request.build_opener(NoDowngrade())


class PrometheusSilent(Exception):
    """Prometheus did not answer, or its answer is incomplete."""


def ask(address: str, query: str, at: float | None = None) -> list[Series]:
    """The series of a query at an instant, Unix time; by default now. PrometheusSilent without a complete answer."""
    parameters = {"query": query, **({} if at is None else {"time": f"{at:.3f}"})}
    try:
        url = address.rstrip("/") + QUERY
        with _OPENER.open(url, urllib.parse.urlencode(parameters).encode(), TIMEOUT_SECONDS) as answer:
            return series(address, json.load(answer))
    except urllib.error.HTTPError as error:
        raise PrometheusSilent(f"{address} answers {error.code}") from None
    except (OSError, http.client.HTTPException, Redirected) as error:
        raise PrometheusSilent(f"{address} does not answer: {error}") from None
    except ValueError as error:
        raise PrometheusSilent(f"{address} answers what is no result: {error}") from None


def series(address: str, body: Any) -> list[Series]:
    """The series of an answer from the address. PrometheusSilent if it is incomplete."""
    try:
        if body["status"] != "success" or body.get("warnings"):
            raise PrometheusSilent(f"{address} answers: {body.get('error') or body.get('warnings')}")
        return list(body["data"]["result"])
    except (LookupError, TypeError, AttributeError) as error:
        raise PrometheusSilent(f"{address} answers what is no result: {error}") from None
