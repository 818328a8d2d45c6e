"""Queries of Prometheus' HTTP API."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from tenancy.http_client import HttpAnswer, HttpClient, NoAnswer, Redirected

PAGE = 6 * 3600
"""Seconds of one query of a range, so that an answer stays small."""
QUERY = "/api/v1/query"
RANGE = "/api/v1/query_range"
PASSING = frozenset({429, 502, 503, 504})
"""Statuses after which the same query may be answered."""

Series = Mapping[str, Any]
Samples = list[tuple[int, float]]


class PrometheusUnavailable(Exception):
    """Prometheus did not answer, or its answer is incomplete; the message says why."""


def is_address(text: str) -> bool:
    """Whether a text is an address of a Prometheus."""
    try:
        parts = urlsplit(text)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:  # brackets, labels or a port that are none
        return False
    return bool(host and text.isascii() and re.fullmatch(r"https?://[^\s/]+(/\S*)?", text))


class Prometheus:
    """The Prometheus at an address such as http://prometheus-operated.monitoring.svc:9090."""

    def __init__(
        self,
        address: str,
        token: str = "",
        *,
        timeout: float = 10.0,
        tries: int = 1,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`token` is sent to the address alone. `timeout` is that of one query in seconds, and `pause` waits between
        tries, as many seconds as it is given."""
        self.address, self._token, self._tries, self._pause = address.rstrip("/"), token, tries, pause
        self._client = HttpClient(timeout)

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        """The series at an instant, Unix time; by default now. PrometheusUnavailable without a complete answer."""
        return self._ask(QUERY, {"query": query, **({} if at is None else {"time": f"{at:.3f}"})})

    def range(self, query: str, start: int, end: int, step: int) -> Iterator[tuple[Mapping[str, str], Samples]]:
        """Labels of series with their samples, page by page; start and end are inclusive. PrometheusUnavailable without
        complete answers."""
        page = max(PAGE // step, 1) * step
        for begin in range(start, end + 1, page):
            last = min(begin + page - step, end)
            for series in self._ask(RANGE, {"query": query, "start": begin, "end": last, "step": step}):
                yield series["metric"], [(int(float(when)), float(value)) for when, value in series["values"]]

    def _ask(self, path: str, parameters: Mapping[str, object]) -> list[Series]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for attempt in range(1, self._tries + 1):
            try:
                answer = self._client.request("POST", self.address + path, urlencode(parameters), headers)
                if answer.status < 300:
                    return series_of(self.address, json.loads(answer.data))
                fault = f"answers {answer.status}: {_error_of(answer)}"
                if answer.status not in PASSING:
                    break
            except Redirected as error:
                change = "give the address that answers without a redirect"
                text = f"{error}; rule: a token is sent only to its own origin; change: {change}"
                raise PrometheusUnavailable(text) from None
            except NoAnswer as error:
                fault = f"does not answer: {error}"
            except ValueError as error:
                fault = f"answers what is no result: {error}"
            if attempt < self._tries:
                self._pause(0.5 * 2**attempt)
        raise PrometheusUnavailable(f"{self.address} {fault}")


def _error_of(answer: HttpAnswer) -> str:
    try:
        return json.loads(answer.data)["error"]
    except (ValueError, LookupError, TypeError):
        return answer.reason


def series_of(address: str, body: Any) -> list[Series]:
    """The series of an answer from the address. PrometheusUnavailable if it is incomplete: a partial answer would look
    like less use."""
    try:
        if body["status"] != "success" or body.get("warnings"):
            raise PrometheusUnavailable(f"{address} answers: {body.get('error') or body['warnings'][0]}")
        return list(body["data"]["result"])
    except (LookupError, TypeError, AttributeError) as error:
        raise PrometheusUnavailable(f"{address} answers what is no result: {error}") from None
