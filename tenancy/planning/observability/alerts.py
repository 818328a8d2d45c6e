"""Prometheus' rules of an environment: whom a series belongs to, and when its owner or the platform is alerted.

Every alert carries tenant and owner; a series without a tenant is the platform's. The owner of a namespace or queue
comes from the environment and not from labels of objects, so an alert reaches its owner even when a label was removed.

Metrics by their exporters' names: kube-state-metrics v2 `docs/metrics`, dcgm-exporter `etc/default-counters.csv` (what
is commented out there `planning/observability/metrics.py` switches on), Kueue v0.19.2 `pkg/metrics/metrics.go`, node
exporter, cAdvisor, kube-apiserver. Exporters that run twice export the same series twice: take the largest first, then
the sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import CLOCK_ENDED, CLOCK_LAST_ROUND, COUNT_DELAY_SECONDS, metric_name
from tenancy.catalog.gpus import APPLICATION_XIDS
from tenancy.planning.common.pools import extended_resources, node_taints
from tenancy.planning.guards import guards
from tenancy.planning.kubernetes import flow_control
from tenancy.planning.kubernetes.quotas import queued_keys
from tenancy.planning.observability.recording_rules import (
    ACTIVE_PHASES,
    CURRENT_GPUS,
    GPU_BUSY,
    NAMESPACE_INFO,
    NODE_POOL,
    POD_GPUS,
    POD_WORKLOAD,
    POOL_LABEL,
    QUEUE_INFO,
    USD_PER_HOUR,
    Rule,
    device_prices,
    fact_rules,
    owner_rules,
    pods_in_phase,
)
from tenancy.planning.queueing.queue_names import queue_resource
from tenancy.spec.checks.stored_objects import REVISION_SECONDS, STORE_BYTES
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import BUDGET_DAYS
from tenancy.spec.fields.tenant import Tenant

PLATFORM = "platform"
"""Tenant of series without a tenant; no tenant may be called so."""
LOCAL_DISKS = "/mnt/k8s-disks/.+"
"""Mount points of the instance's NVMe disks, by nodeadm."""
NVME_DEVICES = "nvme.+"
"""Block devices of a node: instance store and EBS volumes. The kernel counts I/O time of these, not of the RAID device
that nodeadm builds of them."""
NVME_WAIT_SECONDS = 0.01
"""Mean time of one request, queueing included. An NVMe device that is not saturated answers within a millisecond."""
UPDATE_SECONDS = 3600
"""For which an Update of Pulumi Kubernetes Operator is taken to be at work: a stack takes seconds to minutes."""
WRITES = "POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION"


def rule_file(environment: Environment, tenants: Sequence[Tenant]) -> dict[str, Any]:
    """The content of a rule file, as Prometheus loads it and as the spec of a PrometheusRule."""
    ordered = sorted(tenants, key=lambda tenant: tenant.tenant)
    groups = {
        "tenancy-facts": [*owner_rules(environment, ordered), *fact_rules(environment, ordered)],
        "tenancy-tenants": _about_tenants(environment, ordered),
        "tenancy-devices": _about_devices(environment),
        "tenancy-nodes": _about_nodes(environment),
        "tenancy-platform": _about_platform(environment),
    }
    return {"groups": [{"name": name, "interval": "30s", "rules": list(rules)} for name, rules in groups.items()]}


def _alert(
    environment: Environment, name: str, expr: str, pending_for: str, severity: str, summary: str, **labels: str
) -> Rule:
    return {
        "alert": name,
        "expr": expr,
        **({"for": pending_for} if pending_for else {}),
        "labels": {
            "severity": severity,
            "environment": environment.environment,
            "tenant": f"{{{{ with $labels.tenant }}}}{{{{ . }}}}{{{{ else }}}}{PLATFORM}{{{{ end }}}}",
            "owner": f"{{{{ with $labels.owner }}}}{{{{ . }}}}{{{{ else }}}}{environment.platform.group}{{{{ end }}}}",
            **labels,
        },
        "annotations": {"summary": summary, "runbook_url": f"{environment.metrics.runbooks}#{name.lower()}"},
    }


def _one_of(names: Iterable[str]) -> str:
    """A regular expression as it is written between quotes."""
    return "|".join(map(re.escape, names)).replace("\\", "\\\\")


def _of_namespace(expr: str) -> str:
    return f"({expr}) * on (namespace) group_left (tenant, owner) {NAMESPACE_INFO}"


def _of_queue(expr: str, **matchers: str) -> str:
    selector = ", ".join(f'{key}="{value}"' for key, value in matchers.items())
    return f"({expr}) * on (cluster_queue) group_left (tenant, owner, tier) {QUEUE_INFO}{{{selector}}}"


def _of_holder(expr: str, *keys: str) -> str:
    """With the labels of the tenant that uses the device, if one does."""
    return f"{_of_namespace(expr)} or on ({', '.join(keys)}) ({expr})"


def _about_tenants(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Rule]:
    metrics = environment.metrics

    def alert(name: str, expr: str, pending_for: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, pending_for, severity, summary, **labels)

    def quota(kind: str) -> str:
        return f'max by (namespace, resourcequota, resource) (kube_resourcequota{{type="{kind}"{excluded_resources}}})'

    # Of these the queue gives no more than the line: it is full when all is used as it is meant to be.
    excluded_resources = (
        f', resource!~"{_one_of(queued_resources)}"' if (queued_resources := queued_keys(environment)) else ""
    )

    for name, part, severity in (("QuotaNearlyUsed", 0.8, "warning"), ("QuotaUsed", 0.95, "critical")):
        summary = (
            "{{ $labels.namespace }} uses {{ $value | humanizePercentage }} of its quota of {{ $labels.resource }}"
        )
        usage = _of_namespace(f"{quota('used')} / ({quota('hard')} > 0)")
        yield alert(name, f"{usage} > {part}", "5m", severity, summary)
    if environment.has_queues:
        yield from _about_queues(environment, tenants, alert)
    idle = f"max by (namespace, pod) ({GPU_BUSY}) < 0.05"
    idle_workloads = (
        f"({idle}) * on (namespace, pod) group_left (workload) {POD_WORKLOAD} or on (namespace, pod) ({idle})"
    )
    summary = (
        "{{ with $labels.workload }}{{ . }}{{ else }}{{ $labels.pod }}{{ end }} in {{ $labels.namespace }} holds GPUs "
        "and uses {{ $value | humanizePercentage }} of them"
    )
    yield alert("GpuIdle", _of_namespace(idle_workloads), metrics.idle_alert_after, "warning", summary)
    throttled, periods = (
        f'sum by (namespace, pod) (rate(container_cpu_cfs_{prefix}periods_total{{container!=""}}[10m]))'
        for prefix in ("throttled_", "")
    )
    waits = f"max by (namespace, pod) ({GPU_BUSY}) < 0.5"
    place = 'max by (namespace, pod, node) (kube_pod_info{node!=""})'
    neighbors = (
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
        f"while its GPU waits; beside it on {{{{ $labels.node }}}}:{neighbors}",
    )
    if any(tenant.budget for tenant in tenants) and any(device_prices(environment)):
        # A sum, not a mean: a mean of the first hours would ring on a cluster's first day.
        month = (
            f"sum_over_time({USD_PER_HOUR}[{BUDGET_DAYS}d:1h]) / on (tenant) group_left () tenancy:tenant:budget_usd"
        )
        for name, part, severity in (("BudgetNearlySpent", 0.8, "warning"), ("BudgetSpent", 1, "critical")):
            summary = "{{ $labels.tenant }} held GPUs for {{ $value | humanizePercentage }} of its monthly budget"
            yield alert(name, f"{month} > {part}", "1h", severity, summary)


def _about_queues(environment: Environment, tenants: Sequence[Tenant], alert: Any) -> Iterator[Rule]:
    names = sorted({queue_resource(environment, flavor) for flavor in environment.flavors})
    resource_matcher = f'resource=~"{_one_of(names)}"'
    per_queue = "sum by (cluster_queue, resource) (max by (cluster_queue, flavor, resource) "
    free = (
        f"{per_queue}(kueue_cluster_queue_nominal_quota{{{resource_matcher}}})) "
        f"- {per_queue}(kueue_cluster_queue_resource_reservation{{{resource_matcher}}}))"
    )
    waiting = "sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads))"
    mean_request = (
        f"max by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{resource_matcher}}} > 0) "
        f"/ on (cluster_queue) group_left () ({waiting} > 0)"
    )
    open_ = 'max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 1'
    unmet_guarantee = f"{free} >= on (cluster_queue, resource) ({mean_request}) and on (cluster_queue) ({open_})"
    summary = (
        "{{ $labels.cluster_queue }} has {{ $value }} {{ $labels.resource }} of its guarantee free, and work that fits "
        "waits"
    )
    if names:
        max_delay = environment.metrics.guaranteed_wait_alert_after
        yield alert("GuaranteeNotMet", _of_queue(unmet_guarantee), max_delay, "critical", summary)
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
        yield from _about_counts(environment, resource_matcher, alert)


def _about_counts(environment: Environment, resource_matcher: str, alert: Any) -> Iterator[Rule]:
    """GPUs that a queue's pods have in a pool, against those that the queue counts there.

    Pods and queues are scraped at different times. So a pod counts once it has had its node for a minute, and against
    it stands the most that was counted in the last minute: else a cluster on which work starts and ends all the time
    would always seem to differ.
    """
    on_pod, keys = "on (namespace, pod)", "tenant, owner, cluster_queue, pool, resource"

    def of_pods(series: str) -> str:
        """With the labels that queues have; kube-state-metrics writes names of resources in another way."""
        expr = f'sum by ({keys}) (label_replace({series}, "cluster_queue", "$1", "queue", "(.+)"))'
        for name in sorted({environment.resource_of(flavor) for flavor in environment.flavors}):
            if (exported := metric_name(name)) != name:
                expr = f'label_replace({expr}, "resource", "{name}", "resource", "{exported}")'
        return expr

    def of_queues(series: str) -> str:
        per_flavor = f"max by (cluster_queue, flavor, resource) ({series})"
        pool = f'label_replace({per_flavor}, "pool", "$1", "flavor", "([^.]+).*")'
        return f"sum by ({keys}) ({pool} * on (cluster_queue) group_left (tenant, owner) {QUEUE_INFO})"

    reservations = f"kueue_cluster_queue_resource_reservation{{{resource_matcher}}}"
    counted_gpus, counted_before = (
        of_queues(series) for series in (reservations, f"max_over_time({reservations}[{COUNT_DELAY_SECONDS}s])")
    )
    scheduled_before = f"max by (namespace, pod) (kube_pod_status_scheduled_time) < time() - {COUNT_DELAY_SECONDS}"
    # The timestamp is the end of the grace period, within which a pod may still run.
    terminating = "max by (namespace, pod) (kube_pod_deletion_timestamp) > time()"
    running_gpus = of_pods(
        f"({POD_GPUS} and {on_pod} ({pods_in_phase(*ACTIVE_PHASES)}) and {on_pod} ({scheduled_before}) "
        f"unless {on_pod} ({terminating}))"
    )
    # Without Kueue's metrics nothing seems to be counted: that is another alert.
    difference = f"{running_gpus} - ({counted_before} or 0 * {running_gpus}) > 0 and on () (count({reservations}) > 0)"
    device_text = "{{ $value }} {{ $labels.resource }} in pool {{ $labels.pool }}"
    summary = f"pods of {{{{ $labels.cluster_queue }}}} have {device_text} that the queue does not count"
    yield alert("GpusUncounted", difference, f"{COUNT_DELAY_SECONDS}s", "critical", summary)
    unused = f"{counted_gpus} - ({of_pods(CURRENT_GPUS)} or 0 * {counted_gpus}) > 0"
    summary = f"{{{{ $labels.cluster_queue }}}} counts {device_text} that no pod has"
    yield alert("QuotaWithoutPods", unused, "1h", "info", summary)


def _about_devices(environment: Environment) -> Iterator[Rule]:
    keys = ("Hostname", "gpu", "UUID")

    def per_device(metric: str) -> str:
        return f"max by ({', '.join(keys)}, namespace, pod) ({metric})"

    def device(name: str, expr: str, severity: str, summary: str, pending_for: str = "1m") -> Rule:
        gpu_text = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
        return _alert(environment, name, _of_holder(expr, *keys), pending_for, severity, summary.format(gpu=gpu_text))

    xid = per_device("DCGM_FI_DEV_XID_ERRORS")
    application_errors = " or ".join(f"{xid} == {number}" for number in APPLICATION_XIDS)
    yield device("GpuXid", f"{xid} > 0 unless ({application_errors})", "critical", "{gpu} reports XID {{{{ $value }}}}")
    double_bit, remap = (
        per_device(metric)
        for metric in ("increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h])", "DCGM_FI_DEV_ROW_REMAP_FAILURE")
    )
    ecc = f"{double_bit} > 0 or {remap} > 0"
    yield device("GpuEcc", ecc, "critical", "{gpu} has memory errors that cannot be corrected")
    links = " or ".join(
        f"{per_device(f'increase(DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL[30m])')} > 0"
        for kind in ("RECOVERY", "REPLAY")
    )
    yield device("GpuNvlink", links, "warning", "{gpu} has errors on its NVLinks")
    heat = f"{per_device('rate(DCGM_FI_DEV_THERMAL_VIOLATION[10m])')} > 0"
    yield device("GpuTooHot", heat, "warning", "{gpu} is slowed down because it is too hot", "10m")
    memory = f"{per_device('DCGM_FI_PROF_DRAM_ACTIVE')} > 0.9"
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
    near_limit = _of_holder(link, *keys, "direction")
    yield _alert(environment, "GpuPcieNearLimit", near_limit, "10m", "warning", summary)


def _about_nodes(environment: Environment) -> Iterator[Rule]:
    def alert(name: str, expr: str, pending_for: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, pending_for, severity, summary, **labels)

    for name, pool in environment.pools.items():
        pool_nodes = f'max by (node) (kube_node_labels{{{POOL_LABEL}="{name}"}})'
        for resource, count in extended_resources(environment, name).items():
            if resource.startswith("nvidia.com/"):
                expected_capacity = f'kube_node_status_capacity{{resource="{metric_name(resource)}"}} == {count}'
                alert_name = "MigLayoutNotApplied" if pool.mig else "GpuMissing"
                summary = f"{{{{ $labels.node }}}} of pool {name} does not have {count} {resource}"
                expr = f"{pool_nodes} unless on (node) ({expected_capacity})"
                yield alert(alert_name, expr, "15m", "critical", summary, pool=name, resource=resource)
        for taint in node_taints(name, pool):
            facts = ", ".join(f'{key}="{taint[key]}"' for key in ("key", "value", "effect"))
            summary = f"{{{{ $labels.node }}}} of pool {name} lacks its taint {taint['key']}"
            expr = f"{pool_nodes} unless on (node) kube_node_spec_taint{{{facts}}}"
            yield alert("NodeWithoutTaint", expr, "5m", "critical", summary, pool=name, taint=taint["key"])
    gpus = 'max by (node) (kube_node_status_capacity{resource=~"nvidia_com_.+"}) > 0'
    yield alert(
        "NodeWithoutPool",
        f"{gpus} unless on (node) {NODE_POOL}",
        "5m",
        "critical",
        f"{{{{ $labels.node }}}} has GPUs and no label {vocabulary.POOL}",
    )
    reported_nodes = 'label_replace(DCGM_FI_DEV_GPU_TEMP, "node", "$1", "Hostname", "(.+)")'
    yield alert(
        "GpuUnwatched",
        f"{gpus} unless on (node) ({reported_nodes})",
        "15m",
        "warning",
        "no GPU metrics are exported for {{ $labels.node }}",
    )
    size, free = (f'node_filesystem_{kind}_bytes{{mountpoint=~"{LOCAL_DISKS}"}}' for kind in ("size", "avail"))
    full = f"max by (node, mountpoint) (1 - {free} / {size}) > 0.8"
    summary = "{{ $labels.mountpoint }} of {{ $labels.node }} is {{ $value | humanizePercentage }} full"
    yield alert("LocalDiskFull", full, "10m", "warning", summary)

    def disk(counter: str) -> str:
        return f'max by (node, device) (rate(node_disk_{counter}_total{{device=~"{NVME_DEVICES}"}}[5m]))'

    busy = f"{disk('io_time_seconds')} > 0.8"
    summary = "{{ $labels.device }} of {{ $labels.node }} is busy {{ $value | humanizePercentage }} of the time"
    yield alert("DiskBusy", busy, "15m", "info", summary)
    io_seconds = f"{disk('read_time_seconds')} + {disk('write_time_seconds')}"
    requests = f"({disk('reads_completed')} + {disk('writes_completed')} > 0)"
    waits = f"({io_seconds}) / {requests} > {NVME_WAIT_SECONDS} and on (node, device) ({busy})"
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
    def alert(name: str, expr: str, pending_for: str, severity: str, summary: str, **labels: str) -> Rule:
        return _alert(environment, name, expr, pending_for, severity, summary, **labels)

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
    update_seconds = f'max(workqueue_longest_running_processor_seconds{{name="update-controller"}}) > {UPDATE_SECONDS}'
    summary = "an Update holds a worker of Pulumi's operator for {{ $value | humanizeDuration }}"
    yield alert("PulumiUpdateHoldsWorker", update_seconds, "", "critical", summary)
    stored = f"max(apiserver_storage_size_bytes) / {STORE_BYTES}"
    for name, part, severity in (("ApiStorageNearlyFull", 0.6, "warning"), ("ApiStorageFull", 0.8, "critical")):
        summary = "the API server's store is {{ $value | humanizePercentage }} full; at 100% it refuses all writes"
        yield alert(name, f"{stored} > {part}", "5m", severity, summary)
    # Over the time for which former revisions are kept, a steady rate of rewrites does not grow.
    in_an_hour = f"max(predict_linear(apiserver_storage_size_bytes[{REVISION_SECONDS}s], 3600))"
    summary = "the API server's store is full within an hour if it grows as in the last 10 minutes"
    yield alert("ApiStorageGrowing", f"{in_an_hour} > {STORE_BYTES}", "2m", "critical", summary)
    rejected_requests = (
        f'sum by (priority_level, reason) (increase(apiserver_flowcontrol_rejected_requests_total{{priority_level=~"'
        f'{_one_of((flow_control.PLATFORM, flow_control.TENANTS))}"}}[10m])) > 0'
    )
    summary = (
        "the API server refused {{ $value | humanize }} requests of level {{ $labels.priority_level }} as too many"
    )
    yield alert("RequestsRefused", rejected_requests, "", "warning", summary)
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
    guard_writes = (
        'sum by (resource, verb) (apiserver_request_total{group="admissionregistration.k8s.io", subresource="", '
        f'dry_run="", code=~"2..", resource=~"validatingadmissionpolic.+", verb=~"{WRITES}"}}'
    )
    # A first write of its kind is a new series, of which Prometheus knows no increase. Where nothing of the API server
    # was known before, every series is new and says nothing.
    was_scraped = 'count(apiserver_request_total{resource="nodes"} offset 15m) > 0'
    yield alert(
        "GuardChanged",
        f"({guard_writes}) > {guard_writes} offset 15m)) or (({guard_writes}) unless {guard_writes} offset 15m)) "
        f"and on () ({was_scraped}))",
        "",
        "info",
        "guards were written ({{ $labels.verb }} {{ $labels.resource }}): was it a deployment?",
    )
