"""Critical alerts that fire in an environment, read from its Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.prometheus import QUERY, Prometheus, PrometheusUnavailable, Series, series_of
from tenancy.planning.observability.recording_rules import ENVIRONMENT_INFO

USAGE_ALERTS = ("BudgetSpent", "QuotaUsed")
"""Critical alerts that a tenant's own use raises, whatever version its stack has."""


def firing(api: Api, environment: str, address: str) -> Iterator[str]:
    """Yield each critical alert that fires in the environment for a tenant, with its count if it fires several times.
    Alerts in `USAGE_ALERTS` are left out. PrometheusUnavailable if the Prometheus at the address does not answer, or
    does not evaluate the environment's rules.

    A service of the cluster (`NAME.NAMESPACE.svc`) is asked through the API server, any other address directly.
    """
    if not _ask(api, address, f'{ENVIRONMENT_INFO}{{environment="{environment}"}}'):
        raise PrometheusUnavailable(f"the Prometheus at {address} does not evaluate the alert rules of {environment}")
    excluded = "|".join(USAGE_ALERTS)
    query = f'ALERTS{{alertstate="firing",severity="critical",environment="{environment}",alertname!~"{excluded}"}}'
    metrics = (entry.get("metric") or {} for entry in _ask(api, address, query))
    counts = Counter((metric.get("alertname"), metric.get("tenant")) for metric in metrics)
    for (name, tenant), count in counts.items():
        yield f"alert {name} fires for {tenant}{f', {count} times' if count > 1 else ''}"


def _ask(api: Api, address: str, query: str) -> list[Series]:
    url = urlsplit(address)
    service, namespace, *domains = [*(url.hostname or "").split("."), "", ""]
    try:
        if domains[:1] != ["svc"]:
            return Prometheus(address).instant(query)
        service_address = f"{url.scheme}:{service}:{url.port or (443 if url.scheme == 'https' else 80)}"
        path = f"/api/v1/namespaces/{namespace}/services/{service_address}/proxy{url.path.rstrip('/')}{QUERY}"
        answer = api.request("GET", f"{path}?query={quote(query, safe='')}")
        if not answer.ok:
            fault = f"{answer.status} {answer.message}"
            raise PrometheusUnavailable(f"the Prometheus at {address} does not answer: {fault}")
        return series_of(address, answer.body)
    except ApiUnreachable as error:
        raise PrometheusUnavailable(str(error)) from error
