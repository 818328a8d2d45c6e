"""Critical alerts that fire in an environment, as its Prometheus tells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from tenancy.live.api import TIMEOUT, Api, ApiUnreachable
from tenancy.planning.observability.alerts import EVALUATED

OF_USE = ("BudgetSpent", "QuotaUsed")
"""Critical alerts that a tenant's own use raises, whatever version its stack has."""


class AlertsUnknown(Exception):
    """Prometheus does not tell whether alerts fire; the message says why."""


def firing(api: Api, environment: str, address: str) -> Iterator[str]:
    """Each critical alert that fires in the environment for a tenant, with how many of it if there are several, without
    those of tenants' own use; AlertsUnknown if the Prometheus at the address does not answer, or does not evaluate the
    environment's rules.

    A service of the cluster (`NAME.NAMESPACE.svc`) is asked through the API server, any other address directly.
    """
    if not _ask(api, address, f'{EVALUATED}{{environment="{environment}"}}'):
        raise AlertsUnknown(f"the Prometheus at {address} does not evaluate the alert rules of {environment}")
    query = (
        f'ALERTS{{alertstate="firing",severity="critical",environment="{environment}",alertname!~"{"|".join(OF_USE)}"}}'
    )
    found = (series.get("metric") or {} for series in _ask(api, address, query))
    counted = Counter((metric.get("alertname"), metric.get("tenant")) for metric in found)
    for (name, tenant), count in counted.items():
        yield f"alert {name} fires for {tenant}{f', {count} times' if count > 1 else ''}"


def _ask(api: Api, address: str, query: str) -> list[Mapping[str, Any]]:
    body = _answer(api, address, f"/api/v1/query?query={quote(query, safe='')}")
    if body.get("status") != "success":
        said = body.get("error") or body.get("message") or "no result"
        raise AlertsUnknown(f"the Prometheus at {address} does not answer: {said}")
    return list((body.get("data") or {}).get("result") or ())


def _answer(api: Api, address: str, path: str) -> Mapping[str, Any]:
    url = urlsplit(address)
    service, namespace, *rest = [*(url.hostname or "").split("."), "", ""]
    if rest[:1] == ["svc"]:
        named = f"{url.scheme}:{service}:{url.port or (443 if url.scheme == 'https' else 80)}"
        try:
            return api.request(
                "GET", f"/api/v1/namespaces/{namespace}/services/{named}/proxy{url.path.rstrip('/')}{path}"
            ).body
        except ApiUnreachable as error:
            raise AlertsUnknown(str(error)) from error
    return _direct(address.rstrip("/") + path)


def _direct(url: str) -> Mapping[str, Any]:
    from urllib3 import PoolManager
    from urllib3.exceptions import HTTPError

    try:
        answer = PoolManager().request("GET", url, timeout=TIMEOUT, retries=False, redirect=False)
        body = json.loads(answer.data)
    except (HTTPError, ValueError) as error:
        raise AlertsUnknown(f"{url.partition('?')[0]} does not answer ({type(error).__name__})") from error
    return body if isinstance(body, dict) else {}
