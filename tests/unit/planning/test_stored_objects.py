"""Sums of object quotas: the API server's store (quota-06) and Kueue's memory (queue-03)."""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from pathlib import Path

import pytest

from tenancy.catalog import sizes
from tenancy.kube import quantities
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.charts import kueue
from tenancy.planning.kubernetes import flow_control, quotas
from tenancy.planning.kubernetes.api_storage import api_storage
from tenancy.spec.checks import stored_objects as stored
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder, nonempty

ENV, FRAUD = "environment.yaml", "tenants/fraud.yaml"
CLUSTER, BATCH = "  name: small\n", "    interruptible: true\n"


def hard(plan: Plan, namespace: str) -> dict[str, str]:
    (hard_limits,) = [
        item["spec"]["hard"]
        for item in plan.objects()
        if item["kind"] == "ResourceQuota"
        and item["metadata"]["name"] == quotas.NAME
        and item["metadata"]["namespace"] == namespace
    ]
    return hard_limits


def memory(plan: Plan) -> Decimal:
    assert plan.platform.queue_chart
    resources = plan.platform.queue_chart.values["controllerManager"]["manager"]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"], "a node that has it is found for all of it"
    return quantities.parse(resources["limits"]["memory"])


def test_every_line_of_a_quota_that_counts_objects_is_in_the_budget(plan: Plan, loaded: Loaded) -> None:
    """A new line that is missing in the budget would be storage that is not counted."""
    for tenant in nonempty(loaded.tenants):
        for part in tenant.namespaces:
            lines = hard(plan, tenant.namespace_name(part))
            objects = {
                key: int(quantities.parse(maximum))
                for key, maximum in lines.items()
                if key.startswith("count/") or key in {"configmaps", "secrets", "services", "persistentvolumeclaims"}
            }
            alone = tenant.model_copy(update={"namespaces": (part,)})
            assert stored.ObjectQuotas(loaded.environment).objects(alone) == sum(objects.values()), part.name


def test_ended_pods_are_counted(plan: Plan, spec: SpecFolder) -> None:
    assert (hard(plan, "fraud--train")["pods"], hard(plan, "fraud--train")["count/pods"]) == ("50", "250")
    spec.edit(FRAUD, "quota: {cpu: 16, pods: 20}", "quota: {cpu: 16, pods: 20, ended-pods: 7}")
    loaded = spec.load()
    assert hard(make_plan(loaded, loaded.day), "fraud--serve")["count/pods"] == "27"


def test_more_ended_pods_than_the_tier_has_are_refused(spec: SpecFolder) -> None:
    spec.edit(FRAUD, "quota: {cpu: 16, pods: 20}", "quota: {cpu: 16, pods: 20, ended-pods: 201}")
    problem = str(spec.problem())
    assert "lower it to 200, or have the platform team raise the quota of tier production" in problem


def test_a_workload_is_there_for_each_job_and_each_pod_that_may_be_stored(plan: Plan) -> None:
    lines = hard(plan, "fraud--train")
    sums = int(lines["count/pods"]) + int(lines["count/jobs.batch"])
    assert int(lines["count/workloads.kueue.x-k8s.io"]) == sums


def overcommitted(spec: SpecFolder, times: int) -> None:
    spec.edit(ENV, CLUSTER, f"{CLUSTER}  object-overcommit: {times}\n")


# The store


def test_half_of_what_eks_stores_is_for_tenants() -> None:
    assert stored.store_budget() == 4 * 2**30


def test_all_tenants_of_the_examples_cannot_fill_the_store(loaded: Loaded) -> None:
    storage = api_storage(loaded.environment, loaded.tenants)
    assert storage.overcommit == 10
    assert storage.stored <= storage.budget


def test_the_page_states_the_rates_of_rewrites_that_the_other_half_of_the_store_holds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "availability.md").read_text("utf-8")
    largest = (
        stored.STORED_BYTES,
        sizes.DATA + sizes.METADATA,
        sizes.LARGE_DATA + sizes.METADATA,
        stored.JSON_GROWTH * stored.STORED_BYTES,
    )
    rewrite_bytes = stored.STORE_BYTES - stored.store_budget()
    expected_rows = {
        size: f"| {size // 1024:,} KiB | {rewrite_bytes // stored.REVISION_SECONDS // size} |" for size in largest
    }
    assert [line for line in expected_rows.values() if line not in page] == []
    shares = flow_control.SHARES[flow_control.TENANTS] / (245 + sum(flow_control.SHARES.values()))
    seats = ceil(600 * shares)
    assert f"all {seats} seats" in page
    writes = seats * 100
    gibibytes = writes * stored.REVISION_SECONDS * stored.STORED_BYTES / 2**30
    assert f"{seats} seats are {writes:,} writes a second: {gibibytes:,.0f} GiB in 10 minutes" in page


# Kueue's memory


def test_kueues_memory_takes_all_work_that_quotas_allow(plan: Plan, loaded: Loaded) -> None:
    live = sum(map(stored.ObjectQuotas(loaded.environment).cached_bytes, loaded.tenants))
    assert memory(plan) >= stored.KUEUE_BASE + stored.GO_GROWTH * live


def test_more_jobs_are_more_memory(plan: Plan, spec: SpecFolder) -> None:
    spec.edit(ENV, "pods: 100,", "pods: 100, jobs: 2000, ended-pods: 100,")
    loaded = spec.load()
    assert memory(make_plan(loaded, loaded.day)) > memory(plan)


def test_an_overcommitment_never_takes_what_the_largest_tenant_needs(spec: SpecFolder) -> None:
    overcommitted(spec, 1000)
    loaded = spec.load()
    quotas = stored.ObjectQuotas(loaded.environment)
    largest_bytes = max(map(quotas.cached_bytes, loaded.tenants))
    needed = quotas.kueue_need(loaded.tenants)
    assert needed == stored.KUEUE_BASE + stored.GO_GROWTH * largest_bytes


def test_without_a_queue_nothing_is_cached(loaded: Loaded) -> None:
    queues = loaded.environment.queues.model_copy(update={"scheduler": "none"})
    environment = loaded.environment.model_copy(update={"queues": queues})
    assert stored.ObjectQuotas(environment).cached_bytes(loaded.tenants[0]) == 0


def test_the_memory_is_the_charts_only_way_to_bound_kueue() -> None:
    """The chart passes no environment to its container: GOMEMLIMIT cannot be set, so the heap may double."""
    manager = kueue({}, "2Gi").values["controllerManager"]["manager"]
    assert manager["resources"]["limits"]["memory"] == "2Gi"
    assert "env" not in manager


# Both


PER_JOB = 2 * stored.CACHED_BYTES * stored.GO_GROWTH
"""Bytes of Kueue's memory for a job and its workload."""
OBJECTS = stored.store_budget() // stored.STORED_BYTES
"""Tenants that fill the storage for tenants."""
JOBS = stored.KUEUE_SIZES[-1] // PER_JOB
"""Tenants that fill the largest Kueue."""


@pytest.mark.parametrize(
    ("rule", "quota", "given_text"),
    [
        ("quota-06", f"cron-jobs: {OBJECTS}", "fraud, which may store"),
        ("queue-03", f"jobs: {JOBS}, ended-pods: 100", "fraud, for whose work"),
    ],
)
def test_a_tenant_that_alone_is_too_much_is_refused_whatever_the_overcommitment(
    spec: SpecFolder, rule: str, quota: str, given_text: str
) -> None:
    overcommitted(spec, 1000)
    spec.edit(ENV, "pods: 100,", f"pods: 100, {quota},")
    problem = spec.problem()
    assert problem.id == rule
    assert given_text in str(problem)


@pytest.mark.parametrize(
    ("rule", "quota", "given_text"),
    [
        ("quota-06", f"cron-jobs: {OBJECTS // 2}", "object-overcommit is 1"),
        ("queue-03", f"jobs: {JOBS // 2}, ended-pods: 100", "work of 2 tenants"),
    ],
)
def test_tenants_that_together_are_too_much_are_refused_unless_the_file_says_so(
    spec: SpecFolder, rule: str, quota: str, given_text: str
) -> None:
    spec.edit(ENV, BATCH, f"{BATCH}    quota: {{{quota}}}\n")
    overcommitted(spec, 1)
    problem = spec.problem()
    assert problem.id == rule
    assert given_text in str(problem)
    spec.edit(ENV, "object-overcommit: 1\n", "object-overcommit: 2\n")
    assert spec.problems() == ()
