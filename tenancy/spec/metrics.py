"""`metrics` of an environment: who collects them, what of them a tenant sees, and when somebody is told."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog import vocabulary as words
from tenancy.rules.values import tenants_name
from tenancy.spec.base import Flag, Form, LabelValue, Mail, Mistake, Size, Slug, Spec, broken
from tenancy.spec.queues import Duration, seconds


class Collector(StrEnum):
    NONE = "none"  # nothing of metrics is made
    EXISTING = "existing"  # a Prometheus Operator that is there already picks up our rules and monitors
    INSTALL = "install"  # the platform brings Prometheus Operator, Prometheus, Alertmanager and the exporters


class CostTool(StrEnum):
    NONE = "none"  # `tenancy chargeback` alone
    OPENCOST = "opencost"
    KUBECOST = "kubecost"


_Address = Annotated[
    str,
    Form(
        r"^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._/-]*)?$",
        "an HTTP address",
        "write it like http://prometheus:9090",
        200,
    ),
]


_Page = Annotated[
    str, Form(r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", "a path or address", "write it like docs/runbooks.md", 200)
]


class Smtp(Spec):
    server: Annotated[
        str, Form(r"^[A-Za-z0-9.-]+:[0-9]+$", "a host and a port", "write it like mail.bank.example:587")
    ] = Field(description="Host and port; TLS is asked for.")
    sender: Mail = Field(description="From whom.")
    platform: Mail = Field(description="Where the platform's own alerts go.")


class Metrics(Spec):
    collector: Collector = Field(Collector.NONE, description="Who collects them. Absent: nobody, and nobody is told.")
    namespace: Slug = Field(
        "monitoring",
        description="Namespace of Prometheus and of our rules; one of the platform's, where guards judge nobody.",
    )
    labels: dict[str, LabelValue] = Field(
        {"release": "kube-prometheus-stack"},
        description="Labels by which the operator that is there picks up rules and monitors; those of the chart by "
        "default.",
    )
    prometheus: _Address | None = Field(
        None,
        description="Where Prometheus answers inside the cluster. Absent: at prometheus-operated in the namespace.",
    )
    retention: Duration = Field(
        "45d",
        description="How long the Prometheus that is installed keeps series: a month's bill and the budgets' alerts "
        "read 30 days back.",
    )
    storage: Size = Field("200Gi", description="Volume of the Prometheus that is installed, bytes.")
    tenant_view: Flag = Field(
        True, description="Whether tenants may ask Prometheus for the series of their namespaces, and for nothing else."
    )
    cost_tool: CostTool = Field(CostTool.NONE, description="What else shows costs. Absent: `tenancy chargeback` alone.")
    runbooks: _Page = Field(
        "docs/runbooks.md", description="Where the page with what to do stands; each alert links there."
    )
    mail: Smtp | None = Field(
        None, description="The server that alerts are mailed through. Absent: routes have no way to anybody yet."
    )
    guarantee_within: Duration = Field(
        "15m",
        description="How long work that fits into its guarantee may wait before its owner and the platform hear of it.",
    )
    idle_after: Duration = Field("30m", description="How long a held GPU may do nothing before its owner hears of it.")
    longest_wait: dict[str, Duration] = Field(
        default_factory=dict,
        description="By tier: the wait before admission that nine of ten jobs stay under. Absent: 2h.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        of_another, of_ours = ("labels", "prometheus"), ("retention", "storage")
        if self.installed:
            for name in sorted(self.model_fields_set.intersection(of_another)):
                rule = "Prometheus that is installed here has the chart's own"
                yield Mistake((name,), f"{name} with collector: install", rule, f"drop {name}, or write existing")
            if self.namespace in NOT_ITS_OWN:
                rule = "Prometheus is installed into a namespace of its own, with its own Pod Security"
                yield Mistake(("namespace",), f"namespace {self.namespace}", rule, "write monitoring")
            if seconds(self.retention) < BUDGET_DAYS * 86400:
                rule = f"the budgets' alerts look at {BUDGET_DAYS} days"
                yield Mistake(("retention",), f"retention {self.retention}", rule, f"write {BUDGET_DAYS}d or longer")
        else:
            for name in sorted(self.model_fields_set.intersection(of_ours)):
                given, rule = (
                    f"{name} with collector: {self.collector}",
                    "said to the Prometheus that is installed here",
                )
                yield Mistake((name,), given, rule, f"drop {name}, or write collector: install")
        if given := tenants_name(self.namespace):
            yield broken(("namespace",), "name-01", given, "name a namespace of the platform's own, without '--'")
        for tier, wait in self.longest_wait.items():
            if seconds(wait) > LONGEST_WAIT:
                given, rule = f"{tier}: {wait}", f"Kueue tells waits apart up to {LONGEST_WAIT} s"
                yield Mistake(("longest-wait", tier), given, rule, f"write {LONGEST_WAIT // 60}m at most")

    @property
    def collected(self) -> bool:
        return self.collector is not Collector.NONE

    @property
    def installed(self) -> bool:
        """Whether the platform brings what collects them."""
        return self.collector is Collector.INSTALL

    @property
    def address(self) -> str:
        """Where Prometheus answers inside the cluster; the operator names the service."""
        return self.prometheus or f"http://prometheus-operated.{self.namespace}.svc:9090"

    def wait_of(self, tier: str) -> int:
        """Seconds that nine of ten jobs of a tier wait at most."""
        return seconds(self.longest_wait.get(tier, "2h"))


BUDGET_DAYS = 30
"""What is held counts against a month's budget as its mean over so many days."""
NOT_ITS_OWN = frozenset({*words.SYSTEM_NAMESPACES, words.QUEUE_NAMESPACE, words.OPERATOR_NAMESPACE})
LONGEST_WAIT = 40_960
"""Seconds: the last finite bucket of Kueue's `admission_wait_time_seconds` (v0.19.2, `pkg/metrics/metrics.go`)."""
