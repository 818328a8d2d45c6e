"""Dashboards for Grafana: one for the platform, and one for every tenant that shows nothing but its own.

Metrics and labels: Kueue v0.19 `pkg/metrics/metrics.go`, kube-state-metrics v2 `docs/metrics`, dcgm-exporter's
`default-counters.csv`; fields of a dashboard: Grafana's schema as grafana-foundation-sdk publishes it. A dashboard does
not isolate tenants: the data source decides what a reader may query from Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tenancy.catalog import boards, vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.names import truncate_with_hash
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.queue_names import flavor_name, queue_name, queue_resource
from tenancy.planning.queueing.quota_shares import in_preference, open_pools, part_of_node
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import BUDGET_DAYS
from tenancy.spec.fields.tenant import Tenant

LABEL = "grafana_dashboard"
"""By which the sidecar of Grafana's chart finds a ConfigMap (`sidecar.dashboards.label`, its default)."""
FOLDER = "grafana_folder"
"""Annotation with the folder (`sidecar.dashboards.folderAnnotation`)."""
MARKUP = frozenset("<>{}[]$`|")
"""Characters by which Grafana writes variables, and others HTML and Markdown: a title is shown in all three."""
LONGEST_UID = 40
"""Characters of a dashboard's uid (Grafana's HTTP API, "Create / Update dashboard")."""
SCHEMA = 39
"""`schemaVersion` of Grafana 10.4 and later; a newer Grafana moves it on by itself."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NodePrices = Mapping[str, Fraction | None]
"""Pool -> dollars for an hour of its node; None: no price is known."""
MONTH = f"{BUDGET_DAYS}d"
MICRO = 1_000_000
COLUMNS, WIDTH = 24, 8
"""Columns of Grafana's grid, and width of a panel."""

Panel = dict[str, Any]


def all_dashboards(
    environment: Environment, tenants: Sequence[Tenant], prices: NodePrices
) -> list[tuple[Tenant | None, dict[str, Any]]]:
    """The platform's first, then every tenant's."""
    ordered = sorted(active_tenants(tenants), key=lambda tenant: tenant.tenant)
    return [
        (None, platform_dashboard(environment, prices)),
        *((tenant, tenant_dashboard(environment, tenant, prices)) for tenant in ordered),
    ]


def platform_dashboard(environment: Environment, prices: NodePrices) -> dict[str, Any]:
    """Supply, guaranteed, borrowed, idle, money."""
    queries = _Queries(environment, prices)
    rows = [("Supply", list(_supply(queries)))]
    if environment.has_queues:
        rows += [
            (
                "Guaranteed, borrowed, idle",
                [
                    _series("Guaranteed, GPUs", _by_tenant(queries.guaranteed()), "{{tenant}}", stack=True),
                    _series("In use, GPUs", _by_tenant(queries.in_use()), "{{tenant}}", stack=True),
                    _series(
                        "Borrowed, GPUs",
                        queries.excess(queries.in_use(), queries.guaranteed()),
                        "{{tenant}}",
                        stack=True,
                    ),
                    _series(
                        "Guaranteed and idle, GPUs",
                        queries.excess(queries.guaranteed(), queries.in_use()),
                        "{{tenant}}",
                        stack=True,
                    ),
                    _series("Waiting jobs", queries.waiting(), "{{tenant}}"),
                    _series("Waiting time, p95", queries.wait(0.95), "{{tenant}}", unit="s"),
                    _series("Evictions for others, an hour", queries.evictions(), "{{tenant}}"),
                ],
            ),
            ("Money", list(_money(queries))),
        ]
    rows.append(("Use", [_series("GPUs busy", queries.busy("", _DEVICE), "{{namespace}}", unit="percentunit")]))
    title = f"Tenancy of {environment.environment}: platform"
    return _dashboard(environment, "", title, rows)


def tenant_dashboard(environment: Environment, tenant: Tenant, prices: NodePrices) -> dict[str, Any]:
    """Mine: queue, waiting, use, cost."""
    queries = _Queries(environment, prices, tenant)
    rows: list[tuple[str, list[Panel]]] = []
    if environment.has_queues:
        rows += [
            (
                "Queue",
                [
                    _stat("Guaranteed, GPUs", f"sum({queries.guaranteed()})"),
                    _stat("In use, GPUs", f"sum({queries.in_use()})"),
                    _stat("Of these borrowed, GPUs", queries.excess(queries.in_use(), queries.guaranteed())),
                    _series(
                        "In use by flavor, GPUs", f"sum by (flavor) ({queries.in_use()})", "{{flavor}}", stack=True
                    ),
                ],
            ),
            (
                "Waiting",
                [
                    _stat("Waiting jobs", queries.waiting()),
                    _series("Waiting time, p95", queries.wait(0.95), "p95", unit="s"),
                    _series("Evictions, an hour", queries.evictions(), "evicted for others"),
                ],
            ),
        ]
    busy, memory = queries.busy("", _DEVICE), queries.memory()
    rows.append(
        (
            "Use",
            [
                _series("GPUs busy", busy, "{{namespace}}", unit="percentunit"),
                _series("GPU memory in use", memory, "{{namespace}}", unit="decmbytes"),
                _series("Least busy pods", queries.idle_pods(), "{{namespace}}/{{pod}}", unit="percentunit"),
            ],
        )
    )
    if environment.has_queues:
        rows.append(("Cost", list(_cost(queries, tenant))))
    tenant_title = "".join(character for character in tenant.title if character not in MARKUP).strip()
    title = f"{tenant_title or tenant.tenant}: GPUs in {environment.environment}"
    return _dashboard(environment, tenant.tenant, title, rows)


def config_map(environment: Environment, tenant: Tenant | None, board: Mapping[str, Any]) -> Object:
    """The dashboard as Grafana's sidecar finds it."""
    tenant_label = {vocabulary.TENANT: tenant.tenant} if tenant else {}
    labels = {**platform_labels(environment), **tenant_label, LABEL: "1"}
    return manifest(
        "v1",
        "ConfigMap",
        str(board["uid"]),
        labels,
        {"data": {f"{board['uid']}.json": as_json(board)}},
        namespace=vocabulary.PLATFORM_NAMESPACE,
        annotations={FOLDER: f"Tenancy of {environment.environment}"},
    )


def as_json(board: Mapping[str, Any]) -> str:
    """A dashboard as text, as Grafana imports it."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


def gpu_part(environment: Environment, pool: str, flavor: str) -> Fraction:
    """Part of a whole GPU that one of a flavor takes from others, as the bill counts it."""
    flavor_spec, sharing = environment.flavors[flavor], environment.pools[pool].gpu_sharing
    part = boards.share_of(flavor_spec.gpu, flavor_spec.mig) if flavor_spec.mig else Fraction(1)
    return part / (sharing.replicas if sharing else 1)


# What is asked


_DEVICE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Part of the time in which any engine of a GPU or slice worked, 0 to 1."""
_FRAMEBUFFER = "DCGM_FI_DEV_FB_USED"
"""MiB."""
_POOL_LABEL = "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", vocabulary.POOL)
"""Name of the pool label in kube-state-metrics."""


class _Queries:
    """PromQL about all tenants, or about one tenant alone.

    Kueue's metrics of a queue come from every replica of it and from no tenant: the largest of each is taken, and the
    tenant is the part of the queue's name before the separator.
    """

    def __init__(self, environment: Environment, prices: NodePrices, tenant: Tenant | None = None) -> None:
        self.environment, self.prices, self.tenant = environment, prices, tenant
        self._queues = sorted({queue_name(tenant.tenant, tier) for tier in tenant.tiers}) if tenant else []
        self._spaces = [tenant.namespace_name(part) for part in tenant.namespaces] if tenant else []

    def _offers(self) -> Iterator[tuple[str, str]]:
        """Pool and flavor of every kind of device; where it is one tenant's, of those that its queues span."""
        environment, tenant = self.environment, self.tenant
        pools = (
            set(environment.pools)
            if tenant is None
            else {p for tier in tenant.tiers for p in open_pools(environment, tenant, tier)}
        )
        for pool in environment.pools if tenant is None else in_preference(environment, pools):
            for flavor in environment.flavors_of(pool):
                if tenant is None or flavor in tenant.gpus:
                    yield pool, flavor

    def _matching(self, *matchers: str) -> str:
        """Matchers, with the tenant's queues if it is one's."""
        tenant_matchers = [f"cluster_queue=~{_any_of(self._queues)}"] if self.tenant else []
        all_matchers = [*tenant_matchers, *matchers]
        return f"{{{','.join(all_matchers)}}}" if all_matchers else ""

    def _weighted(self, metric: str, weight: Mapping[tuple[str, str], Fraction]) -> str:
        """A metric of queues by tenant, flavor and resource, each times its weight."""
        parts = []
        for (pool, flavor), factor in weight.items():
            selector = self._matching(
                f'flavor="{flavor_name(self.environment, pool)}"',
                f'resource="{queue_resource(self.environment, flavor)}"',
            )
            largest = f"max by (cluster_queue, flavor, resource) ({metric}{selector})"
            parts.append(largest if factor == 1 else f"{largest} * {_number(factor)}")
        series = " or ".join(f"({part})" for part in parts) or "vector(0)"
        return f"sum by (tenant, flavor, resource) ({_named_tenant(series)})"

    def _gpus(self) -> dict[tuple[str, str], Fraction]:
        """Whole GPUs that one of each is."""
        return {(pool, flavor): gpu_part(self.environment, pool, flavor) for pool, flavor in self._offers()}

    def guaranteed(self) -> str:
        return self._weighted("kueue_cluster_queue_nominal_quota", self._gpus())

    def in_use(self) -> str:
        return self._weighted("kueue_cluster_queue_resource_usage", self._gpus())

    def excess(self, amount: str, threshold: str) -> str:
        """By how much the one is above the other, flavor by flavor."""
        return f"sum by (tenant) (clamp_min({amount} - {threshold}, 0))"

    def dollars(self) -> str:
        """Dollars an hour of the GPUs in use, by the price of their part of a node."""
        prices_by_flavor = {}
        for pool, flavor in self._offers():
            price = self.prices.get(pool)
            if price is not None:
                prices_by_flavor[pool, flavor] = price * part_of_node(self.environment, pool, flavor)
        return self._weighted("kueue_cluster_queue_resource_usage", prices_by_flavor)

    def supply_dollars(self) -> str:
        """Dollars an hour of the nodes that exist."""
        node_counts = (
            f'count by ({_POOL_LABEL}) (max by (node, {_POOL_LABEL}) (kube_node_labels{{{_POOL_LABEL}="%s"}}))'
        )
        parts = [
            f"({node_counts % pool} * {_number(price)})"
            for pool in self.environment.pools
            if (price := self.prices.get(pool)) is not None
        ]
        return f"sum({' or '.join(parts) or 'vector(0)'})"

    def unpriced(self) -> list[str]:
        return sorted({pool for pool, _ in self._offers() if self.prices.get(pool) is None})

    def waiting(self) -> str:
        selector = self._matching()
        return (
            f"sum by (tenant) ({_named_tenant(f'max by (cluster_queue, status) (kueue_pending_workloads{selector})')})"
        )

    def wait(self, part: float) -> str:
        rate = f"rate(kueue_admission_wait_time_seconds_bucket{self._matching()}[1h])"
        return f"histogram_quantile({part}, sum by (tenant, le) ({_named_tenant(rate)}))"

    def evictions(self) -> str:
        selector = self._matching('reason="Preempted"')
        evictions_per_hour = f"increase(kueue_evicted_workloads_total{selector}[1h])"
        return f"sum by (tenant) ({_named_tenant(evictions_per_hour)})"

    def busy(self, extra_label: str, metric: str) -> str:
        """Average by namespace of the GPUs that pods have; without `honorLabels` Prometheus calls the pod's labels
        `exported_`."""
        grouping = f", {extra_label}" if extra_label else ""
        return f"avg by (namespace{grouping}) ({self._devices(metric, extra_label)})"

    def memory(self) -> str:
        return f"sum by (namespace) ({self._devices(_FRAMEBUFFER, 'pod')})"

    def idle_pods(self) -> str:
        return f"bottomk(5, {self.busy('pod', _DEVICE)})"

    def _devices(self, metric: str, extra_label: str) -> str:
        namespace_matcher = f"=~{_any_of(self._spaces)}" if self.tenant else '!=""'
        exported_series = f"{metric}{{exported_namespace{namespace_matcher}}}"
        for name in ("namespace", *((extra_label,) if extra_label else ())):
            exported_series = f'label_replace({exported_series}, "{name}", "$1", "exported_{name}", "(.+)")'
        plain_series = f'{metric}{{exported_namespace="",namespace{namespace_matcher},pod!=""}}'
        return f"{exported_series} or {plain_series}"


def _named_tenant(series: str) -> str:
    return f'label_replace({series}, "tenant", "$1", "cluster_queue", "(.+?){vocabulary.SEPARATOR}.*")'


def _by_tenant(series: str) -> str:
    return f"sum by (tenant) ({series})"


def _any_of(names: Sequence[str]) -> str:
    """A regular expression of exactly these names: names have dashes alone, which are not special in it."""
    return f'"{"|".join(names)}"'


def _number(value: Fraction) -> str:
    """To be multiplied by: in decimals where these are exact, else as the fraction that it is."""
    if value * MICRO % 1:
        return f"{value.numerator} / {value.denominator}"
    return f"{float(value):.6f}".rstrip("0").rstrip(".")


# Panels


def _supply(queries: _Queries) -> Iterator[Panel]:
    nodes = f'count by ({_POOL_LABEL}) (max by (node, {_POOL_LABEL}) (kube_node_labels{{{_POOL_LABEL}!=""}}))'
    yield _series("Nodes by pool", nodes, f"{{{{{_POOL_LABEL}}}}}", stack=True)
    not_ready = 'max by (node, condition, status) (kube_node_status_condition{condition="Ready",status!="true"} == 1)'
    yield _stat("Nodes that are not ready", f"count({not_ready}) or vector(0)")
    if not queries.environment.uses_device_claims:
        devices = (
            'sum by (resource) (max by (node, resource) (kube_node_status_allocatable{resource=~"nvidia_com_.+"}))'
        )
        yield _series("GPUs, slices and replicas that nodes offer", devices, "{{resource}}")


def _money(queries: _Queries) -> Iterator[Panel]:
    price_note = (
        f"Without {', '.join(unpriced_pools)}: no price is known." if (unpriced_pools := queries.unpriced()) else ""
    )
    yield _series(
        "In use, dollars an hour",
        _by_tenant(queries.dollars()),
        "{{tenant}}",
        "currencyUSD",
        stack=True,
        about=price_note,
    )
    idle = f"clamp_min({queries.supply_dollars()} - (sum({queries.dollars()}) or vector(0)), 0)"
    yield _series("Nodes not in use, dollars an hour", idle, "idle", "currencyUSD", about=price_note)
    yield _stat("Nodes, dollars an hour", queries.supply_dollars(), "currencyUSD", price_note)
    yield _bars(
        "Cost in the range shown, dollars",
        f"sort_desc({_in_range(_by_tenant(queries.dollars()))})",
        "{{tenant}}",
        price_note,
    )


def _cost(queries: _Queries, tenant: Tenant) -> Iterator[Panel]:
    price_note = (
        f"Without {', '.join(unpriced_pools)}: no price is known." if (unpriced_pools := queries.unpriced()) else ""
    )
    about = (
        f"GPUs in use, by the price of their part of a node. The bill adds idle GPUs and storage. {price_note}".strip()
    )
    yield _stat("In use, dollars an hour", f"sum({queries.dollars()})", "currencyUSD", about)
    yield _stat("Cost in the range shown, dollars", _in_range(f"sum({queries.dollars()})"), "currencyUSD", about)
    if tenant.budget:
        budget_part = f"{_in_range(f'sum({queries.dollars()})', MONTH)} / {tenant.budget.monthly_usd}"
        yield _stat("Cost in 30 days, of the month's budget", budget_part, "percentunit", about, steps=(0.5, 0.8, 1.0))


def _in_range(dollars: str, span: str = "$__range") -> str:
    """Dollars an hour as dollars of a range: the average, times its hours, where there were samples."""
    # Seldom enough that a month is hundreds of samples, often enough that a job of an hour is in them.
    step, an_hour = ("1h", 1) if span == MONTH else ("5m", 12)
    return f"sum_over_time(({dollars})[{span}:{step}]) / {an_hour}"


def _series(title: str, query: str, legend: str, unit: str = "short", *, stack: bool = False, about: str = "") -> Panel:
    custom: dict[str, Any] = {"fillOpacity": 25 if stack else 5, "lineWidth": 1, "showPoints": "never"}
    if stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    return {
        **_panel("timeseries", title, query, legend, about),
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _stat(title: str, query: str, unit: str = "short", about: str = "", steps: Sequence[float] = ()) -> Panel:
    colours = ("yellow", "orange", "red")
    threshold_steps: list[dict[str, Any]] = [{"value": None, "color": "green"}]
    threshold_steps += [{"value": step, "color": colour} for step, colour in zip(steps, colours, strict=False)]
    defaults: dict[str, Any] = {"unit": unit, "thresholds": {"mode": "absolute", "steps": threshold_steps}}
    return {
        **_panel("stat", title, query, "", about, instant=True),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {**_REDUCED, "graphMode": "none", "colorMode": "value" if steps else "none"},
    }


def _bars(title: str, query: str, legend: str, about: str) -> Panel:
    return {
        **_panel("bargauge", title, query, legend, about, instant=True),
        "fieldConfig": {"defaults": {"unit": "currencyUSD", "min": 0}, "overrides": []},
        "options": {**_REDUCED, "displayMode": "basic"},
    }


_REDUCED = {"orientation": "auto", "reduceOptions": {"values": False, "calcs": ["lastNotNull"]}}


def _panel(kind: str, title: str, query: str, legend: str, about: str, *, instant: bool = False) -> Panel:
    target: dict[str, Any] = {"refId": "A", "datasource": SOURCE, "expr": query, "legendFormat": legend or "__auto"}
    target |= {"instant": True} if instant else {"range": True}
    return {
        "type": kind,
        "title": title,
        **({"description": about} if about else {}),
        "datasource": SOURCE,
        "targets": [target],
    }


def _dashboard(
    environment: Environment, tenant_name: str, title: str, rows: Sequence[tuple[str, Sequence[Panel]]]
) -> dict[str, Any]:
    full_uid = (
        f"{vocabulary.PRODUCT}-{environment.environment}{vocabulary.SEPARATOR + tenant_name if tenant_name else ''}"
    )
    return {
        "uid": truncate_with_hash(full_uid, LONGEST_UID, "-"),
        "title": title,
        "tags": [vocabulary.PRODUCT, environment.environment],
        "timezone": "utc",
        "editable": False,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0}
            ]
        },
        "panels": list(_grid_layout(rows)),
    }


def _grid_layout(rows: Sequence[tuple[str, Sequence[Panel]]]) -> Iterator[Panel]:
    """Rows with their panels on the grid, three across, each with a number of its own."""
    number, top = 1, 0
    for title, panels in rows:
        grid = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"type": "row", "id": number, "title": title, "collapsed": False, "gridPos": grid, "panels": []}
        number, top = number + 1, top + 1
        for index, panel in enumerate(panels):
            column, line = index % (COLUMNS // WIDTH), index // (COLUMNS // WIDTH)
            grid = {"h": WIDTH, "w": WIDTH, "x": column * WIDTH, "y": top + line * WIDTH}
            yield {"id": number, **panel, "gridPos": grid}
            number += 1
        top += -(-len(panels) // (COLUMNS // WIDTH)) * WIDTH
