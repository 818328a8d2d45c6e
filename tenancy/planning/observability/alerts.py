"""Prometheus' rules of an environment: whom a series belongs to, and when its owner or the platform is alerted.

Every alert carries tenant and owner; a series without a tenant is the platform's. The owner of a namespace or queue
comes from the environment and not from labels of objects, so an alert reaches its owner even when a label was removed.

Metrics by their exporters' names: kube-state-metrics v2 `docs/metrics`, dcgm-exporter `etc/default-counters.csv` (what
is commented out there `plan/observability/metrics.py` switches on), Kueue v0.19.2 `pkg/metrics/metrics.go`, node
exporter, cAdvisor, kube-apiserver. Exporters that run twice export the same series twice: take the largest first, then
the sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.bandwidth import GIGABITS, PCIE_BYTES
from tenancy.catalog.boards import BOARDS
from tenancy.catalog.exporters import CLOCK_ENDED, CLOCK_LAST_ROUND, COUNT_DELAY_SECONDS, label_name, metric_name
from tenancy.catalog.gpus import APPLICATION_XIDS
from tenancy.planning.aws.prices import node_prices
from tenancy.planning.common.pools import extended_resources, node_taints
from tenancy.planning.guards import guards
from tenancy.planning.kubernetes import flow_control
from tenancy.planning.kubernetes.quotas import queued_lines
from tenancy.planning.queueing.queue_names import queue_name, queue_resource
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.schema.environment import Environment
from tenancy.schema.metrics import BUDGET_DAYS
from tenancy.schema.tenant import Tenant
from tenancy.validation.stored import REVISION_SECONDS, STORE_BYTES

Rule = dict[str, Any]

PLATFORM = "platform"
"""Tenant of series without a tenant; no tenant may be called so."""
POOL_LABEL = label_name(words.POOL)
LOCAL_DISKS = "/mnt/k8s-disks/.+"
"""Where nodeadm mounts the instance's NVMe."""
NVME_DEVICES = "nvme.+"
"""Block devices of a node: instance store and EBS volumes. The kernel counts I/O time of these, not of the RAID device
that nodeadm builds of them."""
NVME_WAIT_SECONDS = 0.01
"""Mean time of one request, queueing included. An NVMe device that is not saturated answers within a millisecond."""
UPDATE_SECONDS = 3600
"""For which an Update of Pulumi Kubernetes Operator is taken to be at work: a stack takes seconds to minutes."""
PRESENT = ("Pending", "Running")
"""Phases of a pod that has not ended. One that has a node has its devices too."""
WRITES = "POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION"

EVALUATED = "tenancy:environment:info"
"""1 for each environment whose rules a Prometheus evaluates; without them it knows no alert of the environment."""
INFO = "tenancy:namespace:info"
QUEUE = "tenancy:queue:info"
BUSY = "tenancy:gpu:busy"
NODE_POOL = "tenancy:node:pool"
WORKLOAD = "tenancy:pod:workload"
DEVICE = "tenancy:device:info"
REQUESTED = "tenancy:pod:requested_gpus"
DEVICES = "tenancy:pod:gpus"
HELD = "tenancy:current_gpus"
SECONDS = "tenancy:gpu_seconds_total"
SPENT = "tenancy:tenant:usd_per_hour"


def rule_file(environment: Environment, tenants: Sequence[Tenant]) -> dict[str, Any]:
    """The content of a rule file, as Prometheus loads it and as the spec of a PrometheusRule."""
    ordered = sorted(tenants, key=lambda tenant: tenant.tenant)
    groups = {
        "tenancy-facts": [*_owners(environment, ordered), *_facts(environment, ordered)],
        "tenancy-tenants": _about_tenants(environment, ordered),
        "tenancy-devices": _about_devices(environment),
        "tenancy-nodes": _about_nodes(environment),
        "tenancy-platform": _about_platform(environment),
    }
    return {"groups": [{"name": name, "interval": "30s", "rules": list(rules)} for name, rules in groups.items()]}


def _record(name: str, expr: str, **labels: str) -> Rule:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def _alert(
    environment: Environment, name: str, expr: str, after: str, severity: str, summary: str, **labels: str
) -> Rule:
    return {
        "alert": name,
        "expr": expr,
        **({"for": after} if after else {}),
        "labels": {
            "severity": severity,
            "environment": environment.environment,
            "tenant": f"{{{{ with $labels.tenant }}}}{{{{ . }}}}{{{{ else }}}}{PLATFORM}{{{{ end }}}}",
            "owner": f"{{{{ with $labels.owner }}}}{{{{ . }}}}{{{{ else }}}}{environment.platform.group}{{{{ end }}}}",
            **labels,
        },
        "annotations": {"summary": summary, "runbook_url": f"{environment.metrics.runbooks}#{name.lower()}"},
    }


def _owners(environment: Environment, tenants: Iterable[Tenant]) -> Iterator[Rule]:
    for tenant in tenants:
        mine = {"tenant": tenant.tenant, "owner": tenant.owner.name}
        yield _record("tenancy:tenant:info", "vector(1)", **mine)
        for part in tenant.namespaces:
            queue = {"queue": queue_name(tenant.tenant, tenant.tier_of(part))} if environment.has_queues else {}
            yield _record(INFO, "vector(1)", namespace=tenant.namespace_name(part), **queue, **mine)
        for tier in sorted(tenant.tiers) if environment.has_queues else ():
            facts = {"cluster_queue": queue_name(tenant.tenant, tier), "tier": tier, **mine}
            yield _record(QUEUE, "vector(1)", **facts)
            wait = f"vector({environment.metrics.wait_of(tier)})"
            yield _record("tenancy:queue:longest_wait_seconds", wait, cluster_queue=facts["cluster_queue"])
        if tenant.budget:
            yield _record("tenancy:tenant:budget_usd", f"vector({tenant.budget.monthly_usd})", **mine)


def _facts(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Rule]:
    yield _record(EVALUATED, "vector(1)", environment=environment.environment)
    pool = f'label_replace(kube_node_labels{{{POOL_LABEL}!=""}}, "pool", "$1", "{POOL_LABEL}", "(.+)")'
    yield _record(NODE_POOL, f"max by (node, pool) ({pool})")
    owner = 'label_replace(topk by (namespace, pod) (1, kube_pod_owner), "workload", "$1", "owner_name", "(.+)")'
    owner = f'label_replace({owner}, "job_type", "$1", "owner_kind", "(.+)")'
    yield _record(WORKLOAD, f"max by (namespace, pod, workload, job_type) ({owner})")
    # NVML has no use of a MIG slice; the profiling counter has, and some boards lack that one.
    yield _record(
        BUSY,
        "max by (namespace, pod, container, Hostname, gpu, UUID, modelName, GPU_I_PROFILE, GPU_I_ID) "
        '(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""} or DCGM_FI_DEV_GPU_UTIL{pod!="", GPU_I_PROFILE=""} / 100)',
    )
    held = (
        "max by (namespace, pod, container, node, resource) "
        '(kube_pod_container_resource_requests{node!="", resource=~"nvidia_com_.+"})'
    )
    for name, pool in environment.pools.items():
        for flavor in () if environment.uses_device_claims else environment.flavors_of(name):
            facts = {"gpu_type": flavor, "purchase": pool.purchase.option}
            resource = metric_name(environment.resource_of(flavor))
            yield _record(DEVICE, "vector(1)", pool=name, resource=resource, **facts)
    yield _record(
        REQUESTED,
        f"sum by (namespace, pod, node, resource) ({held}) * on (node) group_left (pool) {NODE_POOL} "
        f"* on (namespace) group_left (tenant, owner, queue) {INFO}",
    )
    typed = _where_known(REQUESTED, "pool, resource", "gpu_type, purchase", DEVICE)
    yield _record(DEVICES, _where_known(typed, "namespace, pod", "job_type", WORKLOAD))
    here, ended = _phase(*PRESENT), _phase("Succeeded", "Failed")
    kinds = "tenant, owner, namespace, queue, job_type, pool, resource, gpu_type, purchase"
    yield _record(HELD, f"sum by ({kinds}) ({DEVICES} and on (namespace, pod) ({here}))")
    # Of each pod, never a sum of pods: a sum falls when a pod goes, and a counter that falls has begun anew. From when
    # the pod got its node, not from the first sample: so nothing is lost while Prometheus is down.
    since = "max by (namespace, pod) (kube_pod_status_scheduled_time)"
    until = (
        f"(max by (namespace, pod) (kube_pod_completion_time) and on (namespace, pod) ({ended})) "
        f"or (0 * {since} + time() and on (namespace, pod) ({here}))"
    )
    yield _record(SECONDS, f"{DEVICES} * on (namespace, pod) group_left () (({until}) - {since})")
    for name, pool in environment.pools.items():
        if pool.instance in GIGABITS:
            yield _record("tenancy:pool:network_bits", f"vector({GIGABITS[pool.instance] * 1e9:.0f})", pool=name)
        if pool.machine.gpus:
            link = PCIE_BYTES[BOARDS[pool.machine.gpu].architecture]
            yield _record("tenancy:pool:pcie_bytes", f"vector({link:.0f})", pool=name)
    prices = dict(_prices(environment))
    for (name, resource), price in prices.items():
        yield _record("tenancy:device:usd_per_hour", f"vector({float(price):.6f})", pool=name, resource=resource)
    if prices and tenants:
        spent = f"{HELD} * on (pool, resource) group_left () tenancy:device:usd_per_hour"
        # A tenant without GPUs in use spends nothing: without the zero its average would leave these hours out.
        yield _record(SPENT, f"sum by (tenant, owner) ({spent}) or on (tenant) tenancy:tenant:info * 0")


def _prices(environment: Environment) -> Iterator[tuple[tuple[str, str], Fraction]]:
    """Dollars an hour of a device with its part of the node, where a price is known."""
    for name, node in node_prices(environment).items():
        if node is None or environment.uses_device_claims:
            continue
        for flavor in environment.flavors_of(name):
            price = node * part_of_node(environment, name, flavor)
            yield (name, metric_name(environment.resource_of(flavor))), price


def _phase(*phases: str) -> str:
    """Pods in one of the phases."""
    return f'max by (namespace, pod) (kube_pod_status_phase{{phase=~"{"|".join(phases)}"}}) == 1'


def _where_known(expr: str, keys: str, more: str, facts: str) -> str:
    """With more labels from `facts`, and without them where those say nothing."""
    return f"({expr} * on ({keys}) group_left ({more}) {facts} or on ({keys}) {expr})"


def _one_of(names: Iterable[str]) -> str:
    """A regular expression as it is written between quotes."""
    return "|".join(map(re.escape, names)).replace("\\", "\\\\")


def _of_namespace(expr: str) -> str:
    return f"({expr}) * on (namespace) group_left (tenant, owner) {INFO}"


def _of_queue(expr: str, **where: str) -> str:
    chosen = ", ".join(f'{key}="{value}"' for key, value in where.items())
    return f"({expr}) * on (cluster_queue) group_left (tenant, owner, tier) {QUEUE}{{{chosen}}}"


def _of_holder(expr: str, *keys: str) -> str:
    """With the labels of the tenant that uses the device, if one does."""
    return f"{_of_namespace(expr)} or on ({', '.join(keys)}) ({expr})"


def _about_tenants(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Rule]:
    metrics = environment.metrics

    def alert(name: str, expr: str, after: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, after, severity, summary, **labels)

    def quota(kind: str) -> str:
        return f'max by (namespace, resourcequota, resource) (kube_resourcequota{{type="{kind}"{others}}})'

    # Of these the queue gives no more than the line: it is full when all is used as it is meant to be.
    others = f', resource!~"{_one_of(given)}"' if (given := queued_lines(environment)) else ""

    for name, part, severity in (("QuotaNearlyUsed", 0.8, "warning"), ("QuotaUsed", 0.95, "critical")):
        summary = (
            "{{ $labels.namespace }} uses {{ $value | humanizePercentage }} of its quota of {{ $labels.resource }}"
        )
        used = _of_namespace(f"{quota('used')} / ({quota('hard')} > 0)")
        yield alert(name, f"{used} > {part}", "5m", severity, summary)
    if environment.has_queues:
        yield from _about_queues(environment, tenants, alert)
    idle = f"max by (namespace, pod) ({BUSY}) < 0.05"
    named = f"({idle}) * on (namespace, pod) group_left (workload) {WORKLOAD} or on (namespace, pod) ({idle})"
    summary = (
        "{{ with $labels.workload }}{{ . }}{{ else }}{{ $labels.pod }}{{ end }} in {{ $labels.namespace }} holds GPUs "
        "and uses {{ $value | humanizePercentage }} of them"
    )
    yield alert("GpuIdle", _of_namespace(named), metrics.idle_after, "warning", summary)
    throttled, periods = (
        f'sum by (namespace, pod) (rate(container_cpu_cfs_{what}periods_total{{container!=""}}[10m]))'
        for what in ("throttled_", "")
    )
    waits = f"max by (namespace, pod) ({BUSY}) < 0.5"
    place = 'max by (namespace, pod, node) (kube_pod_info{node!=""})'
    beside = (
        "{{ $node := $labels.node }}{{ $me := $labels.namespace }}"
        "{{ range query (printf "
        '"topk(4, sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=\\"\\"}[10m])) '
        '* on (namespace, pod) group_left () kube_pod_info{node=\\"%s\\", namespace!=\\"%s\\"})" $node $me) }}'
        " {{ .Labels.namespace }}/{{ .Labels.pod }} ({{ .Value | humanize }} cores){{ end }}"
    )
    yield alert(
        "CpuThrottledBesideGpu",
        _of_namespace(
            f"({throttled} / ({periods} > 0) > 0.25 and on (namespace, pod) ({waits})) "
            f"* on (namespace, pod) group_left (node) {place}"
        ),
        "15m",
        "warning",
        "{{ $labels.namespace }}/{{ $labels.pod }} gets no CPU in {{ $value | humanizePercentage }} of its periods "
        f"while its GPU waits; beside it on {{{{ $labels.node }}}}:{beside}",
    )
    if any(tenant.budget for tenant in tenants) and any(_prices(environment)):
        # A sum, not a mean: a mean of the first hours would ring on a cluster's first day.
        month = f"sum_over_time({SPENT}[{BUDGET_DAYS}d:1h]) / on (tenant) group_left () tenancy:tenant:budget_usd"
        for name, part, severity in (("BudgetNearlySpent", 0.8, "warning"), ("BudgetSpent", 1, "critical")):
            summary = "{{ $labels.tenant }} held GPUs for {{ $value | humanizePercentage }} of its monthly budget"
            yield alert(name, f"{month} > {part}", "1h", severity, summary)


def _about_queues(environment: Environment, tenants: Sequence[Tenant], alert: Any) -> Iterator[Rule]:
    names = sorted({queue_resource(environment, flavor) for flavor in environment.flavors})
    which = f'resource=~"{_one_of(names)}"'
    per_queue = "sum by (cluster_queue, resource) (max by (cluster_queue, flavor, resource) "
    free = (
        f"{per_queue}(kueue_cluster_queue_nominal_quota{{{which}}})) "
        f"- {per_queue}(kueue_cluster_queue_resource_reservation{{{which}}}))"
    )
    waiting = "sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads))"
    asked = (
        f"max by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{which}}} > 0) "
        f"/ on (cluster_queue) group_left () ({waiting} > 0)"
    )
    open_ = 'max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 1'
    broken = f"{free} >= on (cluster_queue, resource) ({asked}) and on (cluster_queue) ({open_})"
    summary = (
        "{{ $labels.cluster_queue }} has {{ $value }} {{ $labels.resource }} of its guarantee free, and work that fits "
        "waits"
    )
    if names:
        within = environment.metrics.guarantee_within
        yield alert("GuaranteeNotMet", _of_queue(broken), within, "critical", summary)
    waits = "sum by (cluster_queue, le) (rate(kueue_admission_wait_time_seconds_bucket[1h]))"
    yield alert(
        "WaitsTooLong",
        f"{_of_queue(f'histogram_quantile(0.9, {waits})')} "
        "> on (cluster_queue) group_left () tenancy:queue:longest_wait_seconds",
        "10m",
        "warning",
        "one in ten jobs of {{ $labels.cluster_queue }} waits {{ $value | humanizeDuration }} or longer",
    )
    for tier in sorted({tier for tenant in tenants for tier in tenant.tiers}):
        wait = f"{environment.metrics.wait_of(tier)}s"
        started = f"sum by (cluster_queue) (increase(kueue_admitted_workloads_total[{wait}])) > 0"
        expr = _of_queue(f"({waiting} > 0) unless on (cluster_queue) ({started})", tier=tier)
        summary = f"{{{{ $value }}}} jobs wait in {{{{ $labels.cluster_queue }}}}, and none has started for {wait}"
        yield alert("NothingStarts", expr, wait, "warning", summary, tier=tier)
    if names and not environment.uses_device_claims:
        yield from _about_counts(environment, which, alert)


def _about_counts(environment: Environment, which: str, alert: Any) -> Iterator[Rule]:
    """GPUs that a queue's pods have in a pool, against those that the queue counts there.

    Pods and queues are scraped at different times. So a pod counts once it has had its node for a minute, and against
    it stands the most that was counted in the last minute: else a cluster on which work starts and ends all the time
    would always seem to differ.
    """
    where, keys = "on (namespace, pod)", "tenant, owner, cluster_queue, pool, resource"

    def of_pods(series: str) -> str:
        """With the labels that queues have; kube-state-metrics writes names of resources in another way."""
        found = f'sum by ({keys}) (label_replace({series}, "cluster_queue", "$1", "queue", "(.+)"))'
        for name in sorted({environment.resource_of(flavor) for flavor in environment.flavors}):
            if (exported := metric_name(name)) != name:
                found = f'label_replace({found}, "resource", "{name}", "resource", "{exported}")'
        return found

    def of_queues(series: str) -> str:
        each = f"max by (cluster_queue, flavor, resource) ({series})"
        pool = f'label_replace({each}, "pool", "$1", "flavor", "([^.]+).*")'
        return f"sum by ({keys}) ({pool} * on (cluster_queue) group_left (tenant, owner) {QUEUE})"

    reserved = f"kueue_cluster_queue_resource_reservation{{{which}}}"
    counted, counted_before = (
        of_queues(series) for series in (reserved, f"max_over_time({reserved}[{COUNT_DELAY_SECONDS}s])")
    )
    settled = f"max by (namespace, pod) (kube_pod_status_scheduled_time) < time() - {COUNT_DELAY_SECONDS}"
    # The timestamp is the end of the grace period, within which a pod may still run.
    ending = "max by (namespace, pod) (kube_pod_deletion_timestamp) > time()"
    running = of_pods(f"({DEVICES} and {where} ({_phase(*PRESENT)}) and {where} ({settled}) unless {where} ({ending}))")
    # Without Kueue's metrics nothing seems to be counted: that is another alert.
    differs = f"{running} - ({counted_before} or 0 * {running}) > 0 and on () (count({reserved}) > 0)"
    of = "{{ $value }} {{ $labels.resource }} in pool {{ $labels.pool }}"
    summary = f"pods of {{{{ $labels.cluster_queue }}}} have {of} that the queue does not count"
    yield alert("GpusUncounted", differs, f"{COUNT_DELAY_SECONDS}s", "critical", summary)
    unused = f"{counted} - ({of_pods(HELD)} or 0 * {counted}) > 0"
    summary = f"{{{{ $labels.cluster_queue }}}} counts {of} that no pod has"
    yield alert("QuotaWithoutPods", unused, "1h", "info", summary)


def _about_devices(environment: Environment) -> Iterator[Rule]:
    keys = ("Hostname", "gpu", "UUID")

    def of(metric: str) -> str:
        return f"max by ({', '.join(keys)}, namespace, pod) ({metric})"

    def device(name: str, expr: str, severity: str, summary: str, after: str = "1m") -> Rule:
        where = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
        return _alert(environment, name, _of_holder(expr, *keys), after, severity, summary.format(gpu=where))

    xid = of("DCGM_FI_DEV_XID_ERRORS")
    own = " or ".join(f"{xid} == {number}" for number in APPLICATION_XIDS)
    yield device("GpuXid", f"{xid} > 0 unless ({own})", "critical", "{gpu} reports XID {{{{ $value }}}}")
    ecc = f"{of('increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h])')} > 0 or {of('DCGM_FI_DEV_ROW_REMAP_FAILURE')} > 0"
    yield device("GpuEcc", ecc, "critical", "{gpu} has memory errors that cannot be corrected")
    links = " or ".join(
        f"{of(f'increase(DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL[30m])')} > 0" for kind in ("RECOVERY", "REPLAY")
    )
    yield device("GpuNvlink", links, "warning", "{gpu} has errors on its NVLinks")
    heat = f"{of('rate(DCGM_FI_DEV_THERMAL_VIOLATION[10m])')} > 0"
    yield device("GpuTooHot", heat, "warning", "{gpu} is slowed down because it is too hot", "10m")
    memory = f"{of('DCGM_FI_PROF_DRAM_ACTIVE')} > 0.9"
    summary = "{gpu} uses {{{{ $value | humanizePercentage }}}} of its memory bandwidth"
    yield device("GpuMemoryBandwidth", memory, "info", summary, "30m")
    series = ", ".join((*keys, "namespace", "pod", "node", "direction"))
    ways = " or ".join(
        f'max by ({series}) (label_replace(label_replace(DCGM_FI_PROF_PCIE_{counter}_BYTES, "node", "$1", "Hostname", '
        f'"(.+)"), "direction", "{way}", "", ""))'
        for counter, way in (("RX", "receive"), ("TX", "transmit"))
    )
    link = f"({ways}) * on (node) group_left (pool) {NODE_POOL} / on (pool) group_left () tenancy:pool:pcie_bytes > 0.8"
    summary = "GPU {{ $labels.gpu }} of {{ $labels.node }}: PCIe {{ $labels.direction }} at "
    summary += "{{ $value | humanizePercentage }} of what its link can carry"
    found = _of_holder(link, *keys, "direction")
    yield _alert(environment, "GpuPcieNearLimit", found, "10m", "warning", summary)


def _about_nodes(environment: Environment) -> Iterator[Rule]:
    def alert(name: str, expr: str, after: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, after, severity, summary, **labels)

    for name, pool in environment.pools.items():
        there = f'max by (node) (kube_node_labels{{{POOL_LABEL}="{name}"}})'
        for resource, count in extended_resources(environment, name).items():
            if resource.startswith("nvidia.com/"):
                right = f'kube_node_status_capacity{{resource="{metric_name(resource)}"}} == {count}'
                called = "MigLayoutNotApplied" if pool.mig else "GpuMissing"
                summary = f"{{{{ $labels.node }}}} of pool {name} does not have {count} {resource}"
                expr = f"{there} unless on (node) ({right})"
                yield alert(called, expr, "15m", "critical", summary, pool=name, resource=resource)
        for taint in node_taints(name, pool):
            facts = ", ".join(f'{key}="{taint[key]}"' for key in ("key", "value", "effect"))
            summary = f"{{{{ $labels.node }}}} of pool {name} lacks its taint {taint['key']}"
            expr = f"{there} unless on (node) kube_node_spec_taint{{{facts}}}"
            yield alert("NodeWithoutTaint", expr, "5m", "critical", summary, pool=name, taint=taint["key"])
    gpus = 'max by (node) (kube_node_status_capacity{resource=~"nvidia_com_.+"}) > 0'
    yield alert(
        "NodeWithoutPool",
        f"{gpus} unless on (node) {NODE_POOL}",
        "5m",
        "critical",
        f"{{{{ $labels.node }}}} has GPUs and no label {words.POOL}",
    )
    told = 'label_replace(DCGM_FI_DEV_GPU_TEMP, "node", "$1", "Hostname", "(.+)")'
    yield alert(
        "GpuUnwatched",
        f"{gpus} unless on (node) ({told})",
        "15m",
        "warning",
        "no GPU metrics are exported for {{ $labels.node }}",
    )
    size, free = (f'node_filesystem_{what}_bytes{{mountpoint=~"{LOCAL_DISKS}"}}' for what in ("size", "avail"))
    full = f"max by (node, mountpoint) (1 - {free} / {size}) > 0.8"
    summary = "{{ $labels.mountpoint }} of {{ $labels.node }} is {{ $value | humanizePercentage }} full"
    yield alert("LocalDiskFull", full, "10m", "warning", summary)

    def disk(what: str) -> str:
        return f'max by (node, device) (rate(node_disk_{what}_total{{device=~"{NVME_DEVICES}"}}[5m]))'

    busy = f"{disk('io_time_seconds')} > 0.8"
    summary = "{{ $labels.device }} of {{ $labels.node }} is busy {{ $value | humanizePercentage }} of the time"
    yield alert("DiskBusy", busy, "15m", "info", summary)
    spent = f"{disk('read_time_seconds')} + {disk('write_time_seconds')}"
    requests = f"({disk('reads_completed')} + {disk('writes_completed')} > 0)"
    waits = f"({spent}) / {requests} > {NVME_WAIT_SECONDS} and on (node, device) ({busy})"
    writers = (
        "{{ range query (printf "
        '"topk(4, sum by (namespace, pod) (rate(container_fs_writes_bytes_total{container!=\\"\\"}[5m]) '
        '+ rate(container_fs_reads_bytes_total{container!=\\"\\"}[5m])) '
        '* on (namespace, pod) group_left () kube_pod_info{node=\\"%s\\"})" $labels.node) }}'
        " {{ .Labels.namespace }}/{{ .Labels.pod }} ({{ .Value | humanize }}B/s){{ end }}"
    )
    summary = (
        "{{ $labels.device }} of {{ $labels.node }} is saturated, a request takes {{ $value | humanizeDuration }}; "
        f"pods with the most I/O:{writers}"
    )
    yield alert("DiskSaturated", waits, "10m", "warning", summary)
    ways = " or ".join(
        f'label_replace(sum by (node) (rate(node_network_{way}_bytes_total{{device=~"e(ns|th).+"}}[5m])), '
        f'"direction", "{way}", "", "")'
        for way in ("receive", "transmit")
    )
    yield alert(
        "NetworkNearLimit",
        f"({ways}) * 8 * on (node) group_left (pool) {NODE_POOL} "
        "/ on (pool) group_left () tenancy:pool:network_bits > 0.7",
        "10m",
        "warning",
        "{{ $labels.node }}: {{ $labels.direction }} at {{ $value | humanizePercentage }} of what the instance can",
    )


def _about_platform(environment: Environment) -> Iterator[Rule]:
    def alert(name: str, expr: str, after: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, after, severity, summary, **labels)

    yield alert("KubeStateMissing", "absent(kube_node_labels)", "10m", "critical", "most of these alerts see nothing")
    if environment.has_queues:
        yield alert("KueueDown", "absent(kueue_build_info)", "5m", "critical", "no work starts: Kueue does not answer")
    if environment.queues.clock_image:
        silent = f"time() - max({CLOCK_LAST_ROUND}) > 300 or absent({CLOCK_LAST_ROUND})"
        summary = "the clock makes no rounds: windows do not start and budgets do not bind"
        yield alert("ClockSilent", silent, "5m", "critical", summary)
        summary = "the last day of {{ $value }} entries of the spec files has passed: `tenancy up` refuses the files"
        yield alert("SpecEntryEnded", f"max({CLOCK_ENDED}) > 0", "5m", "warning", summary)
    # pulumi-kubernetes-operator v2.9.0 `update_controller.go`: an Update is one reconciliation, however long it takes.
    held = f'max(workqueue_longest_running_processor_seconds{{name="update-controller"}}) > {UPDATE_SECONDS}'
    summary = "an Update holds a worker of Pulumi's operator for {{ $value | humanizeDuration }}"
    yield alert("PulumiUpdateHoldsWorker", held, "", "critical", summary)
    stored = f"max(apiserver_storage_size_bytes) / {STORE_BYTES}"
    for name, part, severity in (("ApiStorageNearlyFull", 0.6, "warning"), ("ApiStorageFull", 0.8, "critical")):
        summary = "the API server's store is {{ $value | humanizePercentage }} full; at 100% it refuses all writes"
        yield alert(name, f"{stored} > {part}", "5m", severity, summary)
    # Over the time for which former revisions are kept, a steady rate of rewrites does not grow.
    in_an_hour = f"max(predict_linear(apiserver_storage_size_bytes[{REVISION_SECONDS}s], 3600))"
    summary = "the API server's store is full within an hour if it grows as in the last 10 minutes"
    yield alert("ApiStorageGrowing", f"{in_an_hour} > {STORE_BYTES}", "2m", "critical", summary)
    refused = (
        f'sum by (priority_level, reason) (increase(apiserver_flowcontrol_rejected_requests_total{{priority_level=~"'
        f'{_one_of((flow_control.PLATFORM, flow_control.TENANTS))}"}}[10m])) > 0'
    )
    summary = (
        "the API server refused {{ $value | humanize }} requests of level {{ $labels.priority_level }} as too many"
    )
    yield alert("RequestsRefused", refused, "", "warning", summary)
    for guard in guards(environment):
        refuses = f'validatingadmissionpolicybinding="{guard.name}", action="Deny"'
        closed = f'validatingadmissionpolicy="{guard.name}", failure_policy="Fail"'
        yield alert(
            "GuardMissing",
            f"max(absent(kube_validatingadmissionpolicybinding_validation_action{{{refuses}}}) "
            f"or absent(kube_validatingadmissionpolicy_info{{{closed}}}))",
            "2m",
            "critical",
            f"guard {guard.name} is not there, or refuses nothing",
            guard=guard.name,
        )
    written = (
        'sum by (resource, verb) (apiserver_request_total{group="admissionregistration.k8s.io", subresource="", '
        f'dry_run="", code=~"2..", resource=~"validatingadmissionpolic.+", verb=~"{WRITES}"}}'
    )
    # A first write of its kind is a new series, of which Prometheus knows no increase. Where nothing of the API server
    # was known before, every series is new and says nothing.
    known = 'count(apiserver_request_total{resource="nodes"} offset 15m) > 0'
    yield alert(
        "GuardChanged",
        f"({written}) > {written} offset 15m)) or (({written}) unless {written} offset 15m)) and on () ({known}))",
        "",
        "info",
        "guards were written ({{ $labels.verb }} {{ $labels.resource }}): was it a deployment?",
    )
