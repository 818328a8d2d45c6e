"""Every alert fires on its series and is silent on a twin that differs in one value, as promtool evaluates the file."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from tenancy.catalog.nodes import EPHEMERAL_EVICTION_PER_CENT
from tenancy.cli import main
from tenancy.lab import prometheus, tools
from tenancy.planning.aws.prices import MICRO, node_price, node_prices
from tenancy.planning.kubernetes.quotas import queued_keys
from tenancy.planning.observability.alerts import rule_file
from tenancy.spec.checks.stored_objects import STORE_BYTES
from tenancy.spec.fields.cluster import Devices
from tests.conftest import SpecFolder, nonempty

RUNBOOKS = Path(__file__).parents[4] / "docs" / "runbooks.md"
GPU = 'gpu="3", UUID="GPU-a", Hostname="train-0"'
GPU_OF_JOB = f'{GPU}, container="main", namespace="fraud--train", pod="job-a-0"'
POOL = 'label_tenancy_gpu_pool="train"'
QUEUE = 'cohort="tenant--fraud", cluster_queue="fraud--batch", flavor="train", resource="nvidia.com/gpu"'
COUNTED = {"cluster_queue": "fraud--batch", "pool": "train", "resource": "nvidia.com/gpu"}
PLATFORM = {"tenant": "platform", "owner": "gpu-platform-team"}
FRAUD = {"tenant": "fraud", "owner": "fraud-leads"}
DEVICE = {"gpu": "3", "UUID": "GPU-a", "Hostname": "train-0"}
GUARD = "tenancy-pods"


@dataclass(frozen=True)
class Case:
    """`series` fire `alert`; with the values of `twin` in place of those of the first series they do not."""

    alert: str
    series: dict[str, str]
    twin: str
    at: str
    labels: dict[str, str]
    summary: str
    severity: str = "warning"
    variant: str = ""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def silent(self) -> dict[str, str]:
        first = next(iter(self.series))
        return self.series | {first: self.twin}


def waits(le_600: int, le_more: int) -> dict[str, str]:
    """Admissions of a queue's jobs, as many a minute under 10 minutes and in all."""
    name = 'kueue_admission_wait_time_seconds_bucket{cluster_queue="fraud--batch", priority_class="", le='
    return {
        f'{name}"640"}}': f"0+{le_600}x120",
        f'{name}"10240"}}': f"0+{le_more}x120",
        f'{name}"+Inf"}}': f"0+{le_more}x120",
    }


def quota(used: int, resource: str = "pods") -> dict[str, str]:
    quota_labels = f'namespace="fraud--serve", resourcequota="tenancy", resource="{resource}"'
    return {
        f'kube_resourcequota{{{quota_labels}, type="used"}}': f"{used}x30",
        f'kube_resourcequota{{{quota_labels}, type="hard"}}': "20x30",
    }


def guarantee(reserved: int, **more: str) -> dict[str, str]:
    return {
        f"kueue_cluster_queue_resource_reservation{{{QUEUE}}}": f"{reserved}x40",
        f"kueue_cluster_queue_nominal_quota{{{QUEUE}}}": "16x40",
        'kueue_cluster_queue_resource_pending{cluster_queue="fraud--batch", resource="nvidia.com/gpu"}': "8x40",
        'kueue_pending_workloads{cluster_queue="fraud--batch", status="active"}': "2x40",
        'kueue_cluster_queue_status{cluster_queue="fraud--batch", status="active"}': "1x40",
        **more,
    }


def counts(bound: int, reserved: int, **more: str) -> dict[str, str]:
    """GPUs of a tenant's pod, and those that its queue counts."""
    pod = 'namespace="fraud--train", pod="job-a-0"'
    request = f'{pod}, container="main", node="train-0", resource="nvidia_com_gpu"'
    return {
        f"kueue_cluster_queue_resource_reservation{{{QUEUE}}}": f"{reserved}x90",
        f"kube_pod_container_resource_requests{{{request}}}": f"{bound}x90",
        f'kube_pod_status_phase{{{pod}, phase="Running"}}': "1x90",
        f"kube_pod_status_scheduled_time{{{pod}}}": "60x90",
        f'kube_node_labels{{node="train-0", {POOL}}}': "1x90",
        **more,
    }


def throttled(part: int) -> dict[str, str]:
    """Series in which so many of 60 periods of a minute have no CPU."""
    own_container = 'namespace="fraud--train", pod="job-a-0", container="main"'
    busy_pod = 'namespace="research--main", pod="busy-0"'
    return {
        f"container_cpu_cfs_throttled_periods_total{{{own_container}}}": f"0+{part}x60",
        f"container_cpu_cfs_periods_total{{{own_container}}}": "0+60x60",
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{GPU_OF_JOB}}}": "0.2x60",
        'kube_pod_info{namespace="fraud--train", pod="job-a-0", node="train-0"}': "1x60",
        f'kube_pod_info{{{busy_pod}, node="train-0"}}': "1x60",
        f'container_cpu_usage_seconds_total{{{busy_pod}, container="main"}}': "0+1800x60",
    }


def traffic(bits: float) -> dict[str, str]:
    return {
        'node_network_transmit_bytes_total{node="train-0", device="ens5"}': f"0+{bits * 60 / 8:.0f}x40",
        f'kube_node_labels{{node="train-0", {POOL}}}': "1x40",
    }


def disk(busy: int) -> dict[str, str]:
    """An NVMe device that serves 1,000 writes a second and is busy for so many seconds a minute."""
    device_labels = 'node="train-0", device="nvme1n1"'
    return {
        f"node_disk_io_time_seconds_total{{{device_labels}}}": f"0+{busy}x40",
        f"node_disk_read_time_seconds_total{{{device_labels}}}": "0x40",
        f"node_disk_write_time_seconds_total{{{device_labels}}}": "0+6x40",
        f"node_disk_reads_completed_total{{{device_labels}}}": "0x40",
        f"node_disk_writes_completed_total{{{device_labels}}}": "0+60000x40",
    }


def money(gpus: int) -> dict[str, str]:
    """Held at two full hours, and no more afterwards."""
    return {
        'kube_pod_container_resource_requests{namespace="fraud--train", pod="job-a-0", container="main", '
        'node="train-0", resource="nvidia_com_gpu"}': f"{gpus}x70 _x110",
        'kube_pod_status_phase{namespace="fraud--train", pod="job-a-0", phase="Running"}': "1x70 _x110",
        f'kube_node_labels{{node="train-0", {POOL}}}': "1x180",
    }


def guard(action: str) -> dict[str, str]:
    return {
        "kube_validatingadmissionpolicybinding_validation_action"
        f'{{validatingadmissionpolicybinding="{GUARD}", action="Deny"}}': action,
        f'kube_validatingadmissionpolicy_info{{validatingadmissionpolicy="{GUARD}", failure_policy="Fail"}}': "1x20",
    }


def guard_writes(code: str) -> str:
    return (
        f'apiserver_request_total{{group="admissionregistration.k8s.io", resource="validatingadmissionpolicies", '
        f'verb="PATCH", subresource="", code="{code}"}}'
    )


CASES = [
    Case(
        "QuotaNearlyUsed",
        quota(17),
        "16x30",
        "10m",
        {**FRAUD, "namespace": "fraud--serve", "resourcequota": "tenancy", "resource": "pods"},
        "fraud--serve uses 85% of its quota of pods",
    ),
    Case(
        "QuotaUsed",
        quota(20),
        "19x30",
        "10m",
        {**FRAUD, "namespace": "fraud--serve", "resourcequota": "tenancy", "resource": "pods"},
        "fraud--serve uses 100% of its quota of pods",
        "critical",
    ),
    Case(
        "QuotaUsed",
        quota(20, "requests.example.com/fpga"),
        "19x30",
        "10m",
        {
            **FRAUD,
            "namespace": "fraud--serve",
            "resourcequota": "tenancy",
            "resource": "requests.example.com/fpga",
        },
        "fraud--serve uses 100% of its quota of requests.example.com/fpga",
        "critical",
        "a device that no queue gives",
    ),
    Case(
        "GuaranteeNotMet",
        guarantee(12),
        "13x40",
        "20m",
        {**FRAUD, "cluster_queue": "fraud--batch", "resource": "nvidia.com/gpu", "tier": "batch"},
        "fraud--batch has 4 nvidia.com/gpu of its guarantee free, and work that fits waits",
        "critical",
    ),
    Case(
        "WaitsTooLong",
        waits(50, 100),
        "0+80x120",
        "100m",
        {**FRAUD, "cluster_queue": "fraud--batch", "tier": "batch"},
        "one in ten jobs of fraud--batch waits 2h 18m 40s or longer",
    ),
    Case(
        "NothingStarts",
        {
            'kueue_pending_workloads{cluster_queue="fraud--batch", status="active"}': "3x300",
            'kueue_admitted_workloads_total{cluster_queue="fraud--batch", priority_class=""}': "7x300",
        },
        "0x300",
        "250m",
        {**FRAUD, "cluster_queue": "fraud--batch", "tier": "batch"},
        "3 jobs wait in fraud--batch, and none has started for 7200s",
    ),
    Case(
        "GpusUncounted",
        counts(64, 8),
        "64x90",
        "10m",
        {**FRAUD, **COUNTED},
        "pods of fraud--batch have 56 nvidia.com/gpu in pool train that the queue does not count",
        "critical",
    ),
    Case(
        "GpusUncounted",
        {
            'kube_pod_status_phase{namespace="fraud--train", pod="job-a-0", phase="Running"}': "1x90",
            **counts(64, 0),
        },
        "0x90",
        "10m",
        {**FRAUD, **COUNTED},
        "pods of fraud--batch have 64 nvidia.com/gpu in pool train that the queue does not count",
        "critical",
        "of work that has not ended",
    ),
    Case(
        "GpusUncounted",
        {
            'kube_pod_deletion_timestamp{namespace="fraud--train", pod="job-a-0"}': "300x90",
            **counts(64, 0),
        },
        "900x90",
        "10m",
        {**FRAUD, **COUNTED},
        "pods of fraud--batch have 64 nvidia.com/gpu in pool train that the queue does not count",
        "critical",
        "of a pod whose grace period is over",
    ),
    Case(
        "QuotaWithoutPods",
        counts(8, 64),
        "8x90",
        "80m",
        {**FRAUD, **COUNTED},
        "fraud--batch counts 56 nvidia.com/gpu in pool train that no pod has",
        "info",
    ),
    Case(
        "QuotaWithoutPods",
        {f"kueue_cluster_queue_resource_reservation{{{QUEUE}}}": "64x90"},
        "0x90",
        "80m",
        {**FRAUD, **COUNTED},
        "fraud--batch counts 64 nvidia.com/gpu in pool train that no pod has",
        "info",
        "of a tenant without a pod",
    ),
    Case(
        "GpuIdle",
        {
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{GPU_OF_JOB}}}": "0.02x60",
            'kube_pod_owner{namespace="fraud--train", pod="job-a-0", owner_kind="Job", owner_name="job-a"}': "1x60",
        },
        "0.06x60",
        "40m",
        {**FRAUD, "namespace": "fraud--train", "pod": "job-a-0", "workload": "job-a"},
        "job-a in fraud--train holds GPUs and uses 2% of them",
    ),
    Case(
        "GpuIdle",
        {f"DCGM_FI_DEV_GPU_UTIL{{{GPU_OF_JOB}}}": "2x60"},
        "6x60",
        "40m",
        {**FRAUD, "namespace": "fraud--train", "pod": "job-a-0"},
        "job-a-0 in fraud--train holds GPUs and uses 2% of them",
        variant="a pod without an owner, on a board without profiling",
    ),
    Case(
        "CpuThrottledBesideGpu",
        throttled(30),
        "0+12x60",
        "40m",
        {**FRAUD, "namespace": "fraud--train", "pod": "job-a-0", "node": "train-0"},
        "fraud--train/job-a-0 gets no CPU in 50% of its periods while its GPU waits; beside it on train-0: "
        "research--main/busy-0 (30 cores)",
    ),
    Case(
        "BudgetNearlySpent",
        money(5832),
        "5400x70 _x110",
        "150m",
        FRAUD,
        "fraud held GPUs for 81% of its monthly budget",
    ),
    Case(
        "BudgetSpent",
        money(7300),
        "5832x70 _x110",
        "150m",
        FRAUD,
        "fraud held GPUs for 101.4% of its monthly budget",
        "critical",
    ),
    Case(
        "GpuXid",
        {f"DCGM_FI_DEV_XID_ERRORS{{{GPU_OF_JOB}}}": "79x10"},
        "31x10",
        "5m",
        {**FRAUD, **DEVICE, "namespace": "fraud--train", "pod": "job-a-0"},
        "GPU 3 of train-0 reports XID 79",
        "critical",
    ),
    Case(
        "GpuXid",
        {f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "79x10"},
        "0x10",
        "5m",
        {**PLATFORM, **DEVICE},
        "GPU 3 of train-0 reports XID 79",
        "critical",
        "a GPU that is not in use",
    ),
    Case(
        "GpuEcc",
        {f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU_OF_JOB}}}": "0x20 1x20"},
        "1x40",
        "30m",
        {**FRAUD, **DEVICE, "namespace": "fraud--train", "pod": "job-a-0"},
        "GPU 3 of train-0 has memory errors that cannot be corrected",
        "critical",
    ),
    Case(
        "GpuNvlink",
        {f"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{{{GPU_OF_JOB}}}": "0x20 1x20"},
        "1x40",
        "30m",
        {**FRAUD, **DEVICE, "namespace": "fraud--train", "pod": "job-a-0"},
        "GPU 3 of train-0 has errors on its NVLinks",
    ),
    Case(
        "GpuTooHot",
        {f"DCGM_FI_DEV_THERMAL_VIOLATION{{{GPU_OF_JOB}}}": "0+1000x40"},
        "1000x40",
        "30m",
        {**FRAUD, **DEVICE, "namespace": "fraud--train", "pod": "job-a-0"},
        "GPU 3 of train-0 is slowed down because it is too hot",
    ),
    Case(
        "MigLayoutNotApplied",
        {
            'kube_node_status_capacity{node="serve-0", resource="nvidia_com_mig_1g_5gb"}': "49x30",
            'kube_node_labels{node="serve-0", label_tenancy_gpu_pool="serve"}': "1x30",
        },
        "56x30",
        "20m",
        {**PLATFORM, "node": "serve-0", "pool": "serve", "resource": "nvidia.com/mig-1g.5gb"},
        "serve-0 of pool serve does not have 56 nvidia.com/mig-1g.5gb",
        "critical",
    ),
    Case(
        "GpuMissing",
        {
            'kube_node_status_capacity{node="train-0", resource="nvidia_com_gpu"}': "7x30",
            f'kube_node_labels{{node="train-0", {POOL}}}': "1x30",
        },
        "8x30",
        "20m",
        {**PLATFORM, "node": "train-0", "pool": "train", "resource": "nvidia.com/gpu"},
        "train-0 of pool train does not have 8 nvidia.com/gpu",
        "critical",
    ),
    Case(
        "NodeWithoutTaint",
        {
            'kube_node_spec_taint{node="train-0", key="nvidia.com/gpu", value="present", effect="NoSchedule"}': "_x20",
            f'kube_node_labels{{node="train-0", {POOL}}}': "1x20",
        },
        "1x20",
        "10m",
        {**PLATFORM, "node": "train-0", "pool": "train", "taint": "nvidia.com/gpu"},
        "train-0 of pool train lacks its taint nvidia.com/gpu",
        "critical",
    ),
    Case(
        "NodeWithoutPool",
        {
            f'kube_node_labels{{node="train-0", {POOL}}}': "_x20",
            'kube_node_status_capacity{node="train-0", resource="nvidia_com_gpu"}': "8x20",
        },
        "1x20",
        "10m",
        {**PLATFORM, "node": "train-0"},
        "train-0 has GPUs and no label tenancy.gpu/pool",
        "critical",
    ),
    Case(
        "GpuUnwatched",
        {
            f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}": "_x30",
            'kube_node_status_capacity{node="train-0", resource="nvidia_com_gpu"}': "8x30",
        },
        "40x30",
        "20m",
        {**PLATFORM, "node": "train-0"},
        "no GPU metrics are exported for train-0",
    ),
    Case(
        "LocalDiskFull",
        {
            'node_filesystem_avail_bytes{node="train-0", mountpoint="/mnt/k8s-disks/0"}': "15x20",
            'node_filesystem_size_bytes{node="train-0", mountpoint="/mnt/k8s-disks/0"}': "100x20",
        },
        "25x20",
        "15m",
        {**PLATFORM, "node": "train-0", "mountpoint": "/mnt/k8s-disks/0"},
        "/mnt/k8s-disks/0 of train-0 is 85% full",
    ),
    Case(
        "DiskBusy",
        disk(busy=54),
        "0+42x40",
        "30m",
        {**PLATFORM, "node": "train-0", "device": "nvme1n1"},
        "nvme1n1 of train-0 is busy 90% of the time",
        "info",
    ),
    Case(
        "DiskSaturated",
        {
            'node_disk_write_time_seconds_total{node="train-0", device="nvme1n1"}': "0+1200x40",
            **{name: values for name, values in disk(busy=54).items() if "write_time" not in name},
            'container_fs_writes_bytes_total{namespace="fraud--train", pod="job-a-0", container="main"}': "0+6e6x40",
            'container_fs_reads_bytes_total{namespace="fraud--train", pod="job-a-0", container="main"}': "0+0x40",
            'kube_pod_info{namespace="fraud--train", pod="job-a-0", node="train-0"}': "1x40",
        },
        "0+120x40",
        "30m",
        {**PLATFORM, "node": "train-0", "device": "nvme1n1"},
        "nvme1n1 of train-0 is saturated, a request takes 20ms; pods with the most I/O: fraud--train/job-a-0 (100kB/s)",
    ),
    Case(
        "GpuMemoryBandwidth",
        {f"DCGM_FI_PROF_DRAM_ACTIVE{{{GPU_OF_JOB}}}": "0.95x40"},
        "0.85x40",
        "35m",
        {**FRAUD, **DEVICE, "namespace": "fraud--train", "pod": "job-a-0"},
        "GPU 3 of train-0 uses 95% of its memory bandwidth",
        "info",
    ),
    Case(
        "GpuPcieNearLimit",
        {
            f"DCGM_FI_PROF_PCIE_RX_BYTES{{{GPU_OF_JOB}}}": f"{0.9 * 31.5e9:.0f}x40",
            f'kube_node_labels{{node="train-0", {POOL}}}': "1x40",
        },
        f"{0.7 * 31.5e9:.0f}x40",
        "30m",
        {
            **FRAUD,
            **DEVICE,
            "namespace": "fraud--train",
            "pod": "job-a-0",
            "node": "train-0",
            "pool": "train",
            "direction": "receive",
        },
        "GPU 3 of train-0: PCIe receive at 90% of what its link can carry",
    ),
    Case(
        "NetworkNearLimit",
        traffic(80e9),
        f"0+{60e9 * 60 / 8:.0f}x40",
        "30m",
        {**PLATFORM, "node": "train-0", "pool": "train", "direction": "transmit"},
        "train-0: transmit at 80% of what the instance can",
    ),
    Case(
        "KubeStateMissing",
        {f'kube_node_labels{{node="train-0", {POOL}}}': "_x20"},
        "1x20",
        "15m",
        PLATFORM,
        "most of these alerts see nothing",
        "critical",
    ),
    Case(
        "PulumiUpdateHoldsWorker",
        {
            'workqueue_longest_running_processor_seconds{name="update-controller"}': "0+60x70",
            'workqueue_longest_running_processor_seconds{name="stack-controller"}': "0+60x70",
        },
        "0+60x30 0+60x40",
        "65m",
        PLATFORM,
        "an Update holds a worker of Pulumi's operator for 1h 5m 0s",
        "critical",
    ),
    Case(
        "KueueDown",
        {'kueue_build_info{git_version="v0.19.2"}': "_x20"},
        "1x20",
        "10m",
        PLATFORM,
        "no work starts: Kueue does not answer",
        "critical",
    ),
    Case(
        "ClockSilent",
        {'tenancy_clock_last_round_timestamp_seconds{environment="small", pod="a"}': "_x20"},
        "0+60x20",
        "10m",
        PLATFORM,
        "the clock makes no rounds: windows do not start and budgets do not bind",
        "critical",
    ),
    Case(
        "ClockSilent",
        {
            'tenancy_clock_last_round_timestamp_seconds{environment="small", pod="a"}': "0+60x5 300x15",
            'tenancy_clock_last_round_timestamp_seconds{environment="small", pod="b"}': "0x20",
        },
        "0+60x20",
        "17m",
        PLATFORM,
        "the clock makes no rounds: windows do not start and budgets do not bind",
        "critical",
        "both copies are there and none works",
    ),
    Case(
        "SpecEntryEnded",
        {
            'tenancy_clock_ended_entries{environment="small", pod="a"}': "2x20",
            'tenancy_clock_ended_entries{environment="small", pod="b"}': "0x20",
        },
        "0x20",
        "10m",
        PLATFORM,
        "the last day of 2 entries of the spec files has passed: `tenancy up` refuses the files",
        "warning",
    ),
    Case(
        "GuardMissing",
        guard("_x20"),
        "1x20",
        "5m",
        {**PLATFORM, "guard": GUARD},
        f"guard {GUARD} is not there, or refuses nothing",
        "critical",
    ),
    Case(
        "GuardChanged",
        {guard_writes("200"): "3x10 4x20", 'apiserver_request_total{resource="nodes", verb="LIST"}': "1x30"},
        "4x30",
        "20m",
        {**PLATFORM, "resource": "validatingadmissionpolicies", "verb": "PATCH"},
        "guards were written (PATCH validatingadmissionpolicies): was it a deployment?",
        "info",
    ),
    Case(
        "GuardChanged",
        {guard_writes("200"): "_x10 1x20", 'apiserver_request_total{resource="nodes", verb="LIST"}': "1x30"},
        "_x31",
        "20m",
        {**PLATFORM, "resource": "validatingadmissionpolicies", "verb": "PATCH"},
        "guards were written (PATCH validatingadmissionpolicies): was it a deployment?",
        "info",
        "the first write of its kind",
    ),
    Case(
        "ApiStorageNearlyFull",
        {'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}': f"{STORE_BYTES * 7 // 10}x20"},
        f"{STORE_BYTES * 5 // 10}x20",
        "10m",
        PLATFORM,
        "the API server's store is 70% full; at 100% it refuses all writes",
    ),
    Case(
        "ApiStorageFull",
        {'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}': f"{STORE_BYTES * 9 // 10}x20"},
        f"{STORE_BYTES * 7 // 10}x20",
        "10m",
        PLATFORM,
        "the API server's store is 90% full; at 100% it refuses all writes",
        "critical",
    ),
    Case(
        "ApiStorageGrowing",
        # 14 GiB an hour, and less than 1.
        {'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}': f"{2**30}+{240 * 2**20}x20"},
        f"{2**30}+{16 * 2**20}x20",
        "13m",
        PLATFORM,
        "the API server's store is full within an hour if it grows as in the last 10 minutes",
        "critical",
    ),
    Case(
        "RequestsRefused",
        {
            "apiserver_flowcontrol_rejected_requests_total"
            '{flow_schema="tenancy-tenants", priority_level="tenancy-tenants", reason="queue-full"}': "0x5 6x25"
        },
        "6x30",
        "8m",
        {**PLATFORM, "priority_level": "tenancy-tenants", "reason": "queue-full"},
        "the API server refused 6 requests of level tenancy-tenants as too many",
    ),
]


@cache
def promtool() -> Path:
    return tools.ensure(only=["promtool"], pins=prometheus.pins())["promtool"]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    spec = SpecFolder(tmp_path_factory.mktemp("priced") / "small")
    image = f"registry.bank.example/tenancy@sha256:{'0' * 64}"
    clock = f"queues: {{clock: true, clock-image: '{image}'}}\n"
    spec.add("environment.yaml", "prices: {a100-40gb: 12.50, l4: 1}\n" + clock)
    loaded = spec.load()
    return rule_file(loaded.environment, loaded.tenants)


@pytest.fixture(scope="module")
def file(rules: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.json"
    path.write_text(json.dumps(rules))
    return path


def group(case: Case, series: dict[str, str], expected: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    """A test in promtool's form."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"alertname": case.alert, "eval_time": case.at, "exp_alerts": expected}],
    }


def written_tests(file: Path, name: str, tests: list[dict[str, Any]], alert: str = "") -> Path:
    """A file of tests beside the rules, for all of them, or with `alert` for that one and what is recorded: the others
    take most of promtool's time."""
    rules = file
    if alert:
        rules = file.parent / f"{name}.rules.json"
        groups = json.loads(file.read_text())["groups"]
        kept_groups = [
            {**group, "rules": [r for r in group["rules"] if r.get("alert") in {None, alert}]} for group in groups
        ]
        rules.write_text(json.dumps({"groups": [group for group in kept_groups if group["rules"]]}))
    path = file.parent / f"{name}.json"
    path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    return path


def judged(*paths: Path) -> str:
    """Output of promtool for files of tests; empty where all is as expected."""
    completed = subprocess.run([promtool(), "test", "rules", *paths], capture_output=True, text=True, check=False)
    return "" if completed.returncode == 0 else completed.stdout + completed.stderr


def evaluate(file: Path, case: Case, series: dict[str, str], expected: list[dict[str, Any]]) -> str:
    """Output of promtool for the case; empty where the alerts are as expected."""
    return judged(written_tests(file, case.alert, [group(case, series, expected)], case.alert))


def expected(case: Case, rules: dict[str, Any]) -> list[dict[str, Any]]:
    labels = {"severity": case.severity, "environment": "small", **case.labels}
    link = f"docs/runbooks.md#{case.alert.lower()}"
    alerts = [{"exp_labels": labels, "exp_annotations": {"summary": case.summary, "runbook_url": link}}]
    if case.alert == "GuardMissing":
        return alerts + others_missing(case, rules)
    return alerts


def others_missing(case: Case, rules: dict[str, Any]) -> list[dict[str, Any]]:
    """A case knows one guard; the others are missing in both halves."""
    return [
        {
            "exp_labels": {"severity": case.severity, "environment": "small", **PLATFORM, "guard": name},
            "exp_annotations": {
                "summary": f"guard {name} is not there, or refuses nothing",
                "runbook_url": "docs/runbooks.md#guardmissing",
            },
        }
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("alert") == case.alert and (name := rule["labels"]["guard"]) != GUARD
    ]


def titled(case: Case) -> str:
    return f"{case.alert}, {case.variant}" if case.variant else case.alert


@pytest.fixture(scope="module")
def against(file: Path, rules: dict[str, Any]) -> dict[str, str]:
    """What promtool has against the cases, by the names of those that it has something against: of a case that fires,
    its title, and of its twin "not" and its title."""
    paths = []
    for alert in sorted({case.alert for case in CASES}):
        tests = []
        for case in [case for case in CASES if case.alert == alert]:
            other_alerts = others_missing(case, rules) if case.alert == "GuardMissing" else []
            tests.append(group(case, case.series, expected(case, rules), titled(case)))
            tests.append(group(case, case.silent, other_alerts, f"not {titled(case)}"))
        paths.append(written_tests(file, alert, tests, alert))
    output = judged(*paths)
    failures = {block.partition(",\n")[0]: block for block in re.split(r"^ *name: ", output, flags=re.MULTILINE)[1:]}
    assert bool(failures) == bool(output), output
    return failures


@pytest.mark.parametrize("case", CASES, ids=titled)
def test_an_alert_names_its_tenant_and_owner_and_what_is_wrong(case: Case, against: dict[str, str]) -> None:
    assert against.get(titled(case), "") == ""


@pytest.mark.parametrize("case", CASES, ids=titled)
def test_an_alert_is_silent_where_one_value_differs(case: Case, against: dict[str, str]) -> None:
    assert against.get(f"not {titled(case)}", "") == ""


def test_each_case_has_a_name_of_its_own_and_one_that_is_not_so_is_found(file: Path, rules: dict[str, Any]) -> None:
    assert len({titled(case) for case in CASES}) == len(CASES)
    case = CASES[0]
    wrong = judged(written_tests(file, "wrong", [group(case, case.silent, expected(case, rules), titled(case))]))
    assert f"name: {titled(case)}," in wrong


QUEUED = ("requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb", "requests.vpc.amazonaws.com/efa")


@pytest.mark.parametrize("resource", QUEUED)
@pytest.mark.parametrize("name", ["QuotaNearlyUsed", "QuotaUsed"])
def test_a_guarantee_that_is_used_as_it_is_meant_to_be_sends_no_alert(file: Path, name: str, resource: str) -> None:
    """The queue gives no more than the line; that it is full is what the tenant pays for."""
    case = Case(name, quota(20, resource), "", "10m", {}, "")
    assert evaluate(file, case, case.series, []) == ""


def test_without_a_queue_a_full_line_of_gpus_is_told(tmp_path: Path) -> None:
    """There it is the line itself that refuses the next pod."""
    spec = SpecFolder(tmp_path / "small")
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")
    loaded = spec.load()
    alone = tmp_path / "rules.json"
    alone.write_text(json.dumps(rules := rule_file(loaded.environment, loaded.tenants)))
    case = Case(
        "QuotaUsed",
        quota(20, "requests.nvidia.com/gpu"),
        "19x30",
        "10m",
        {**FRAUD, "namespace": "fraud--serve", "resourcequota": "tenancy", "resource": "requests.nvidia.com/gpu"},
        "fraud--serve uses 100% of its quota of requests.nvidia.com/gpu",
        "critical",
    )
    assert evaluate(alone, case, case.series, expected(case, rules)) == ""
    assert evaluate(alone, case, case.silent, []) == ""


def test_under_claims_the_classes_that_the_queue_gives_are_left_out(tmp_path: Path) -> None:
    spec = SpecFolder(tmp_path / "small")
    loaded = spec.load()
    by_claim = loaded.environment.model_copy(
        update={"cluster": loaded.environment.cluster.model_copy(update={"devices": Devices.DRA})}
    )
    lines = queued_keys(by_claim)
    assert "a100.deviceclass.resource.k8s.io/devices" in lines
    assert "count/resourceclaims.resource.k8s.io" not in lines, "a number of objects, which no queue counts"


@pytest.mark.parametrize(
    "replaced_series",
    [
        {"kueue_cluster_queue_resource_reservation": "_x90"},
        {"kueue_cluster_queue_resource_reservation": "64x9 0x90"},
        {"kube_pod_status_scheduled_time": "585x90"},
    ],
    ids=["Kueue's metrics are missing", "Kueue's were scraped a minute later", "the pod got its node just now"],
)
def test_gpus_that_were_counted_a_minute_ago_or_may_be_in_a_minute_send_no_alert(
    file: Path, replaced_series: dict[str, str]
) -> None:
    series = {
        name: next((v for metric, v in replaced_series.items() if name.startswith(metric)), values)
        for name, values in counts(64, 8).items()
    }
    case = Case("GpusUncounted", series, "", "10m", {}, "")
    assert evaluate(file, case, case.series, []) == ""


def alert_names(file: dict[str, Any]) -> set[str]:
    return {rule["alert"] for group in file["groups"] for rule in group["rules"] if "alert" in rule}


def test_no_alert_is_without_a_case(rules: dict[str, Any]) -> None:
    assert alert_names(rules) == {case.alert for case in CASES}


def test_every_alert_has_a_runbook_section_and_no_section_is_about_nothing(rules: dict[str, Any]) -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text("utf-8"), re.MULTILINE)) == alert_names(rules)


@pytest.mark.parametrize(("discount", "is_alert"), [("", True), ("costs: {discounts: {on-demand: 40}}\n", False)])
def test_a_budget_is_spent_at_the_price_that_is_paid(tmp_path: Path, discount: str, is_alert: bool) -> None:
    """The dashboard, the bill and the alert tell a tenant the same."""
    spec = SpecFolder(tmp_path / "small")
    spec.add("environment.yaml", f"prices: {{a100-40gb: 12.50, l4: 1}}\n{discount}")
    loaded = spec.load()
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules := rule_file(loaded.environment, loaded.tenants)))
    (case,) = [case for case in CASES if case.alert == "BudgetSpent"]
    assert evaluate(path, case, case.series, expected(case, rules) if is_alert else []) == ""


def test_two_busy_hours_on_a_first_day_are_not_a_month(tmp_path: Path) -> None:
    """At 549 dollars an hour, the published price, a month would cost twice the 180,000 of its budget."""
    loaded = SpecFolder(tmp_path / "small").load()
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rule_file(loaded.environment, loaded.tenants)))
    for case in CASES:
        if case.alert in {"BudgetNearlySpent", "BudgetSpent"}:
            assert evaluate(path, case, money(200), []) == ""


def test_devices_cost_what_the_bill_and_the_dashboard_say(tmp_path: Path) -> None:
    spec = SpecFolder(tmp_path / "small")
    spec.add("environment.yaml", "costs: {pools: {serve: 20}, discounts: {on-demand: 10}}\n")
    loaded = spec.load()
    file = rule_file(loaded.environment, loaded.tenants)
    expressions = {
        (rule["labels"]["pool"], rule["labels"]["resource"]): rule["expr"]
        for group in file["groups"]
        for rule in group["rules"]
        if rule.get("record") == "tenancy:device:usd_per_hour"
    }
    a_node = node_prices(loaded.environment)["train"]
    assert a_node
    assert a_node * MICRO == node_price(loaded.environment, "train", "p4d.24xlarge", "on-demand")
    assert expressions["train", "nvidia_com_gpu"] == f"vector({float(a_node / 8):.6f})", (
        "of the published price, less 10 %"
    )
    assert expressions["serve", "nvidia_com_mig_1g_5gb"] == f"vector({20 / 56:.6f})"


def commands(page: str) -> list[str]:
    """The product's own commands in a page, each as one line."""
    return [re.sub(r"\s+", " ", command_text) for command_text in re.findall(r"`(tenancy\s[^`/]+)`", page)]


@pytest.mark.parametrize("page", ["alerts.md", "runbooks.md"])
def test_each_command_that_a_page_names_is_one_that_can_be_given(page: str) -> None:
    for line in nonempty(commands((RUNBOOKS.parent / page).read_text("utf-8"))):
        command: click.Command = main
        words = line.split()[1:]
        while isinstance(command, click.Group):
            subcommand = command.get_command(click.Context(command), words.pop(0))
            assert subcommand, f"{line}: no such command"
            command = subcommand
        options = [param for param in command.params if isinstance(param, click.Option)]
        options_by_name = {name: option for option in options for name in option.opts}
        typed_options = [word for word in words if word.startswith("-")]
        assert set(typed_options) <= set(options_by_name), line
        missing = [option.name for option in options if option.required and not {*option.opts} & {*typed_options}]
        assert not (typed_options and missing), line
        if line.startswith("tenancy chargeback") and typed_options:
            assert {"--prometheus", "--holdings"} & {*typed_options}, f"{line}: no source is given"


def test_the_page_says_when_the_kubelet_evicts() -> None:
    assert f"at {100 - EPHEMERAL_EVICTION_PER_CENT} % it evicts" in re.sub(r"\s+", " ", RUNBOOKS.read_text("utf-8"))


# Series that add up


POD = 'namespace="fraud--train", pod="job-a-0"'
GPU_SECONDS = f"tenancy:gpu_seconds_total{{{POD}}}"


def gpus(resource: str = "nvidia_com_gpu") -> dict[str, str]:
    """A job's pod with four devices that got its node one minute after the beginning."""
    request = f'{POD}, container="main", node="train-0", resource="{resource}"'
    return {
        f"kube_pod_container_resource_requests{{{request}}}": "4x60",
        f'kube_pod_owner{{{POD}, owner_kind="Job", owner_name="job-a"}}': "1x60",
        f"kube_pod_status_scheduled_time{{{POD}}}": "60x60",
        f'kube_pod_status_phase{{{POD}, phase="Running"}}': "1x60",
        f'kube_node_labels{{node="train-0", {POOL}}}': "1x60",
    }


def answers(file: Path, series: dict[str, str], expected_samples: dict[tuple[str, str], dict[str, float]]) -> str:
    """Output of promtool for series; `expected_samples` are samples by expression and time."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": at, "exp_samples": [{"labels": n, "value": v} for n, v in samples.items()]}
            for (expr, at), samples in expected_samples.items()
        ],
    }
    return judged(written_tests(file, "series", [test]))


def series_name(name: str, **labels: str) -> str:
    return f"{name}{{{', '.join(f'{key}=%s' % json.dumps(text) for key, text in labels.items())}}}"


HOME = {"namespace": "fraud--train", "queue": "fraud--batch", "pool": "train", **FRAUD}
JOB_LABELS = {**HOME, "job_type": "Job", "gpu_type": "a100", "purchase": "on-demand", "resource": "nvidia_com_gpu"}


def test_gpus_that_are_held_are_told_by_tenant_queue_kind_of_job_and_of_gpu_and_purchase(file: Path) -> None:
    expected = {series_name("tenancy:current_gpus", **JOB_LABELS): 4.0}
    assert answers(file, gpus(), {("tenancy:current_gpus", "10m"): expected}) == ""


def test_what_is_not_known_of_a_device_is_left_out_and_not_the_device(file: Path) -> None:
    series = {name: values for name, values in gpus("nvidia_com_odd").items() if "owner" not in name}
    expected = {series_name("tenancy:current_gpus", **HOME, resource="nvidia_com_odd"): 4.0}
    assert answers(file, series, {("tenancy:current_gpus", "10m"): expected}) == ""


def test_gpu_seconds_count_from_when_the_pod_got_its_node(file: Path) -> None:
    expected = {series_name("tenancy:gpu_seconds_total", **JOB_LABELS, pod="job-a-0", node="train-0"): 4 * (600 - 60.0)}
    assert answers(file, gpus(), {("tenancy:gpu_seconds_total", "10m"): expected}) == ""


def test_no_gpu_second_is_lost_while_no_scrape_succeeds(file: Path) -> None:
    blind = {name: re.sub(r"^(\d+)x60$", r"\1x10 _x20 \1x30", values) for name, values in gpus().items()}
    between = f"sum(increase({GPU_SECONDS}[45m]))"
    assert answers(file, blind, {(GPU_SECONDS, "25m"): {}, (between, "50m"): {"{}": 4 * 45 * 60}}) == ""


def test_gpu_seconds_end_with_the_pod(file: Path) -> None:
    ended = {
        f"kube_pod_completion_time{{{POD}}}": "_x20 1200x40",
        f'kube_pod_status_phase{{{POD}, phase="Running"}}': "1x20 0x40",
        f'kube_pod_status_phase{{{POD}, phase="Succeeded"}}': "0x20 1x40",
    }
    assert answers(file, gpus() | ended, {(f"sum({GPU_SECONDS})", "40m"): {"{}": 4 * (1200 - 60)}}) == ""


def test_gpu_seconds_do_not_end_with_one_of_a_pods_containers(file: Path) -> None:
    sidecar = {f"kube_pod_completion_time{{{POD}}}": "300x60"}
    assert answers(file, gpus() | sidecar, {(f"sum({GPU_SECONDS})", "40m"): {"{}": 4 * (2400 - 60)}}) == ""


def test_a_pod_that_failed_without_an_end_counts_no_further(file: Path) -> None:
    failed = {
        f'kube_pod_status_phase{{{POD}, phase="Running"}}': "1x20 0x40",
        f'kube_pod_status_phase{{{POD}, phase="Failed"}}': "0x20 1x40",
    }
    assert (
        answers(
            file, gpus() | failed, {(f"sum({GPU_SECONDS})", "20m"): {"{}": 4 * (1200 - 60)}, (GPU_SECONDS, "40m"): {}}
        )
        == ""
    )


def test_a_pod_of_the_same_name_begins_anew_and_what_was_before_still_counts(file: Path) -> None:
    again = {f"kube_pod_status_scheduled_time{{{POD}}}": "60x29 1800x30"}
    rise = f"round(sum(increase({GPU_SECONDS}[50m])), 60)"
    assert answers(file, gpus() | again, {(rise, "55m"): {"{}": 4 * (24 + 25) * 60}}) == ""
