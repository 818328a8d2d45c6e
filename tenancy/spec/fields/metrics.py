"""`metrics` of an environment: their collection, tenants' access to them, and alerts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog import vocabulary
from tenancy.rules.values import tenants_name
from tenancy.spec.fields.base import Flag, LabelValue, Mail, Size, Slug, Spec, TextForm
from tenancy.spec.fields.queues import Duration, seconds
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class Collector(StrEnum):
    """Collector of metrics: installed by the platform, existing, or none."""

    NONE = "none"  # no objects for metrics are made
    EXISTING = "existing"  # an existing Prometheus Operator selects the platform's rules and monitors
    INSTALL = "install"  # the platform installs Prometheus Operator, Prometheus, Alertmanager and the exporters


class CostTool(StrEnum):
    """A cost tool that the platform prepares values for, besides `tenancy chargeback`."""

    NONE = "none"  # `tenancy chargeback` alone
    OPENCOST = "opencost"
    KUBECOST = "kubecost"


_Address = Annotated[
    str,
    TextForm(
        r"^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._/-]*)?$",
        "an HTTP address",
        "write it like http://prometheus:9090",
        200,
    ),
]


_Page = Annotated[
    str, TextForm(r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", "a path or address", "write it like docs/runbooks.md", 200)
]


class Smtp(Spec):
    """The mail server for alerts, and the addresses that they are sent from and to."""

    server: Annotated[
        str, TextForm(r"^[A-Za-z0-9.-]+:[0-9]+$", "a host and a port", "write it like mail.bank.example:587")
    ] = Field(description="Host and port of the SMTP server; TLS is required. Required.")
    sender: Mail = Field(description="Sender address of alert mails. Required.")
    platform: Mail = Field(description="Mail address that receives the platform's own alerts. Required.")


class Metrics(Spec):
    """Collection and storage of metrics, alerts and their recipients."""

    collector: Collector = Field(
        default=Collector.NONE,
        description="How metrics are collected. Default: none; no metrics are collected and no alerts are sent.",
    )
    namespace: Slug = Field(
        default="monitoring",
        description="Namespace of Prometheus and of the platform's alert rules. It is a platform namespace, where "
        "guards do not apply. Default: monitoring.",
    )
    labels: dict[str, LabelValue] = Field(
        default={"release": "kube-prometheus-stack"},
        description="Labels by which an existing Prometheus Operator selects rules and monitors. Default: release: "
        "kube-prometheus-stack, as the chart sets it.",
    )
    prometheus: _Address | None = Field(
        default=None,
        description="Address of Prometheus inside the cluster. Default: the service prometheus-operated in namespace.",
    )
    retention: Duration = Field(
        default="45d",
        description="Time for which the installed Prometheus keeps series. Bills of a month and budget alerts read "
        "30 days back. Default: 45d.",
    )
    storage: Size = Field(
        default="200Gi", description="Size of the volume of the installed Prometheus, bytes. Default: 200Gi."
    )
    tenant_queries: Flag = Field(
        default=True,
        description="Whether tenants may query Prometheus for the series of their own namespaces (and no others). "
        "Default: true.",
    )
    cost_tool: CostTool = Field(
        default=CostTool.NONE, description="Further tool that shows costs, besides `tenancy chargeback`. Default: none."
    )
    runbooks: _Page = Field(
        default="docs/runbooks.md",
        description="Path or address of the page with the runbooks; each alert links to it. Default: docs/runbooks.md.",
    )
    mail: Smtp | None = Field(
        default=None, description="SMTP server that sends alert mails. Default: none; alerts have no receiver."
    )
    guaranteed_wait_alert_after: Duration = Field(
        default="15m",
        description="Time that work within its guarantee may wait before its owner and the platform are alerted. "
        "Default: 15m.",
    )
    idle_alert_after: Duration = Field(
        default="30m", description="Time that an allocated GPU may be idle before its owner is alerted. Default: 30m."
    )
    max_wait_p90: dict[str, Duration] = Field(
        default_factory=dict,
        description="Wait for admission that nine of ten jobs must stay below, by tier. Default: 2h.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        of_another, of_ours = ("labels", "prometheus"), ("retention", "storage")
        if self.installed:
            for name in sorted(self.model_fields_set.intersection(of_another)):
                rule = "the Prometheus that is installed here uses the chart's"
                yield Mistake((name,), f"{name} with collector: install", rule, f"drop {name}, or write existing")
            if self.namespace in NOT_ITS_OWN:
                rule = "Prometheus is installed into a namespace of its own, with its own Pod Security"
                yield Mistake(("namespace",), f"namespace {self.namespace}", rule, "write monitoring")
            if seconds(self.retention) < BUDGET_DAYS * 86400:
                rule = f"budget alerts read the last {BUDGET_DAYS} days"
                yield Mistake(("retention",), f"retention {self.retention}", rule, f"write {BUDGET_DAYS}d or longer")
        else:
            for name in sorted(self.model_fields_set.intersection(of_ours)):
                fault, rule = (
                    f"{name} with collector: {self.collector}",
                    "it configures the Prometheus that is installed here",
                )
                yield Mistake((name,), fault, rule, f"drop {name}, or write collector: install")
        if fault := tenants_name(self.namespace):
            yield rule_mistake(("namespace",), "name-01", fault, "name a namespace of the platform's own, without '--'")
        for tier, wait in self.max_wait_p90.items():
            if seconds(wait) > LONGEST_WAIT:
                fault, rule = f"{tier}: {wait}", f"Kueue measures waits up to {LONGEST_WAIT} s"
                yield Mistake(("max-wait-p90", tier), fault, rule, f"write {LONGEST_WAIT // 60}m at most")

    @property
    def collected(self) -> bool:
        """Whether any metrics are collected."""
        return self.collector is not Collector.NONE

    @property
    def installed(self) -> bool:
        """Whether the platform installs the collector."""
        return self.collector is Collector.INSTALL

    @property
    def address(self) -> str:
        """Address of Prometheus inside the cluster; the operator names the service."""
        return self.prometheus or f"http://prometheus-operated.{self.namespace}.svc:9090"

    def wait_of(self, tier: str) -> int:
        """Seconds that nine of ten jobs of a tier wait at most."""
        return seconds(self.max_wait_p90.get(tier, "2h"))


BUDGET_DAYS = 30
"""Days of usage whose mean is compared with a month's budget."""
NOT_ITS_OWN = frozenset({*vocabulary.SYSTEM_NAMESPACES, vocabulary.QUEUE_NAMESPACE, vocabulary.OPERATOR_NAMESPACE})
LONGEST_WAIT = 40_960
"""Seconds: the last finite bucket of Kueue's `admission_wait_time_seconds` (v0.19.2, `pkg/metrics/metrics.go`)."""
