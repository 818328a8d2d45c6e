"""Samples of GPUs from Prometheus, for idle rules."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from tenancy.clock.idle import SETTLED_SECONDS, Sample, query, samples
from tenancy.redirects import NoDowngrade, Redirected
from tenancy.schema.environment import Environment

TIMEOUT_SECONDS = 10.0
"""A round does not wait longer: without samples every GPU counts as busy."""
_OPENER = urllib.request.build_opener(NoDowngrade())


class PrometheusSilent(Exception):
    """Prometheus did not answer, or its answer is incomplete."""


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples from the server at an address such as http://prometheus-operated.monitoring.svc:9090."""

    address: str

    def idle_gpus(self, environment: Environment, now: dt.datetime) -> list[Sample]:
        """GPUs that are idle by the widest rule of the environment. PrometheusSilent without a complete answer."""
        at = (now - dt.timedelta(seconds=SETTLED_SECONDS)).timestamp()
        body = urllib.parse.urlencode({"query": query(environment), "time": f"{at:.3f}"}).encode()
        try:
            with _OPENER.open(f"{self.address.rstrip('/')}/api/v1/query", body, TIMEOUT_SECONDS) as answer:
                found = json.load(answer)
            if found["status"] != "success" or found.get("warnings"):
                said = found.get("error") or found.get("warnings")
                raise PrometheusSilent(f"{self.address} answers: {said}")
            return samples(found["data"]["result"])
        except urllib.error.HTTPError as error:
            raise PrometheusSilent(f"{self.address} answers {error.code}") from None
        except (OSError, http.client.HTTPException, Redirected) as error:
            raise PrometheusSilent(f"{self.address} does not answer: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise PrometheusSilent(f"{self.address} answers what is no result: {error}") from None
