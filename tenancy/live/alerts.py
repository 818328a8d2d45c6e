"""Critical alerts that fire in an environment, as its Prometheus tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.prometheus import QUERY, PrometheusSilent, Series, ask, series
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
    found = (each.get("metric") or {} for each in _ask(api, address, query))
    counted = Counter((metric.get("alertname"), metric.get("tenant")) for metric in found)
    for (name, tenant), count in counted.items():
        yield f"alert {name} fires for {tenant}{f', {count} times' if count > 1 else ''}"


def _ask(api: Api, address: str, query: str) -> list[Series]:
    url = urlsplit(address)
    service, namespace, *rest = [*(url.hostname or "").split("."), "", ""]
    try:
        if rest[:1] != ["svc"]:
            return ask(address, query)
        named = f"{url.scheme}:{service}:{url.port or (443 if url.scheme == 'https' else 80)}"
        path = f"/api/v1/namespaces/{namespace}/services/{named}/proxy{url.path.rstrip('/')}{QUERY}"
        answer = api.request("GET", f"{path}?query={quote(query, safe='')}")
        if not answer.ok:
            raise AlertsUnknown(f"the Prometheus at {address} does not answer: {answer.status} {answer.message}")
        return series(address, answer.body)
    except (ApiUnreachable, PrometheusSilent) as error:
        raise AlertsUnknown(str(error)) from error
