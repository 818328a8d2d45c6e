"""Samples of GPUs from Prometheus, for idle rules."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from tenancy.clock.idle import SETTLED_SECONDS, Sample, query, samples
from tenancy.cluster.prometheus import Prometheus, PrometheusUnavailable
from tenancy.spec.fields.environment import Environment


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples from the server at an address such as http://prometheus-operated.monitoring.svc:9090."""

    address: str

    def idle_gpus(self, environment: Environment, now: dt.datetime) -> list[Sample]:
        """GPUs that are idle by the widest rule of the environment. PrometheusUnavailable without a complete answer."""
        timestamp = (now - dt.timedelta(seconds=SETTLED_SECONDS)).timestamp()
        try:
            return samples(Prometheus(self.address).instant(query(environment), timestamp))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise PrometheusUnavailable(f"{self.address} answers what is no result: {error}") from None
