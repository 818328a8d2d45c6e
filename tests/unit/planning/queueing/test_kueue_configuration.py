"""Kueue's configuration, judged by Kueue's own loader and checks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import judges
import pytest

from tenancy.catalog.frameworks import BUILT_IN_INTEGRATIONS, FRAMEWORKS
from tenancy.planning.queueing.kueue import MANAGED_NAMESPACES, configuration
from tenancy.planning.queueing.queue_names import BOARD_COMPUTE, BOARD_MEMORY
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import Loaded, load
from tests.conftest import SpecFolder

STACKS = Path(__file__).parents[4] / "stacks"
ENV = "environment.yaml"
QUEUES = "queues: {%s}\nbuckets:"


def by_claim(spec: SpecFolder) -> Environment:
    spec.edit(ENV, "  cni: vpc-cni", "  cni: vpc-cni\n  devices: dra")
    spec.edit(ENV, "nodes: {min: 1, max: 3}", "nodes: 3")
    spec.edit(ENV, "  l4-shared: {gpu: l4, gpu-sharing: time-slicing}", "  l4: {gpu: l4}")
    spec.edit(ENV, "    gpu-sharing: {time-slicing: 4}\n", "")
    spec.edit("tenants/research.yaml", "  l4-shared: {guaranteed: 16}", "  l4: {guaranteed: 4}")
    return spec.load().environment


def with_queues(spec: SpecFolder, settings: str) -> dict[str, Any]:
    spec.edit(ENV, "buckets:", QUEUES % settings)
    return configuration(spec.load().environment)


# Kueue reads it


def test_kueue_starts_with_it(environment: Environment) -> None:
    assert judges.kueue(configuration(environment)) == []


def test_nothing_is_counted_by_local_queue(environment: Environment) -> None:
    """Each admission would go through all of them. Without a word Kueue counts them (`SetDefaults_Configuration`)."""
    assert configuration(environment)["metrics"]["localQueueMetrics"] == {"enable": False}


@pytest.mark.parametrize("stack", ["bank", "local"])
def test_kueue_starts_with_that_of_every_example(stack: str) -> None:
    assert judges.kueue(configuration(load(STACKS / stack).environment)) == []


def test_kueue_starts_with_that_of_devices_by_claim(spec: SpecFolder) -> None:
    assert judges.kueue(configuration(by_claim(spec))) == []


def test_kueue_starts_with_every_kind_of_work(spec: SpecFolder) -> None:
    settings = with_queues(spec, f"kinds: [{', '.join(FRAMEWORKS)}]")
    assert judges.kueue(settings) == []
    expected = {*BUILT_IN_INTEGRATIONS, *(framework.integration for framework in FRAMEWORKS.values())}
    assert set(settings["integrations"]["frameworks"]) == expected


def test_kueue_starts_with_lengths_of_every_unit(spec: SpecFolder) -> None:
    settings = with_queues(spec, "usage-half-life: 99999d, pods-ready-timeout: 1m, finished-workload-retention: 36h")
    assert judges.kueue(settings) == []
    assert settings["admissionFairSharing"]["usageHalfLifeTime"] == f"{99999 * 24 * 60}m"
    assert settings["waitForPodsReady"]["timeout"] == settings["waitForPodsReady"]["recoveryTimeout"] == "1m"
    assert settings["objectRetentionPolicies"]["workloads"] == {"afterFinished": "2160m"}


WRONG: list[tuple[str, Any, str]] = [
    ("fairSharing.preemptionStrategies", ["LessThanInitialShare", "LessThanOrEqualToFinalShare"], "preemptionStrat"),
    ("integrations.frameworks", ["batch/jobs"], "supported values"),
    ("integrations.framework", ["batch/job"], "unknown field"),
    ("admissionFairSharing.usageHalfLifeTime", "7d", "unknown unit"),
    ("admissionFairSharing.resourceWeights", {"cpu": -1.0}, "greater than or equal to 0"),
    ("managedJobsNamespaceSelector.matchExpressions", [{"key": "a b", "operator": "Exists"}], "matchExpressions"),
    ("waitForPodsReady.requeuingStrategy.timestamp", "Never", "timestamp"),
    ("resources.transformations", [{"input": "a", "strategy": "Keep"}], "strategy"),
    ("resources.transformations", [{"input": "a", "strategy": "Retain"}] * 2, "Duplicate"),
    (
        "resources.deviceClassMappings",
        [{"name": f"x/{i}", "deviceClassNames": [f"{i}"]} for i in range(17)],
        "at most 16",
    ),
    ("objectRetentionPolicies.workloads.afterFinished", "-1m", "afterFinished"),
]


@pytest.mark.parametrize(("path", "value", "says"), WRONG, ids=[f"{path}={value}" for path, value, _ in WRONG])
def test_kueue_would_say_what_is_wrong(environment: Environment, path: str, value: Any, says: str) -> None:
    """So that its silence above means something."""
    settings = copy.deepcopy(configuration(environment))
    *parent_keys, key = path.split(".")
    holder = settings
    for name in parent_keys:
        holder = holder[name]
    holder[key] = value
    (problem,) = judges.kueue(settings)
    assert says in problem


# What it says


@pytest.mark.parametrize(
    ("queues", "minutes"), [(0, 5), (1_500, 5), (1_501, 10), (3_000, 10), (3_001, 15), (18_000, 60), (100_000, 60)]
)
def test_usage_is_sampled_as_often_as_five_writes_a_second_allow(loaded: Loaded, queues: int, minutes: int) -> None:
    tenant = loaded.tenants[0]
    space = tenant.namespaces[0]
    spaces = (space.model_copy(update={"queues": {f"q{n}": 1 for n in range(queues - 1)}}),) if queues else ()
    settings = configuration(loaded.environment, [tenant.model_copy(update={"namespaces": spaces})])
    assert settings["admissionFairSharing"]["usageSamplingInterval"] == f"{minutes}m"
    assert judges.kueue(settings) == []


def test_nothing_of_a_tenant_starts_without_the_queue(environment: Environment) -> None:
    settings = configuration(environment)
    assert settings["manageJobsWithoutQueueName"] is True
    assert settings["managedJobsNamespaceSelector"] == MANAGED_NAMESPACES
    assert MANAGED_NAMESPACES == {"matchExpressions": [{"key": "tenancy.gpu/tenant", "operator": "Exists"}]}


def test_what_is_used_is_counted_in_boards_alone(environment: Environment) -> None:
    weights = configuration(environment)["admissionFairSharing"]["resourceWeights"]
    assert {name for name, weight in weights.items() if weight} == {BOARD_COMPUTE}
    assert {"cpu", "memory", BOARD_MEMORY, *environment.resources} <= weights.keys(), "an absent one counts as one"


def test_where_all_gpus_are_whole_they_are_counted_and_no_board(environment: Environment) -> None:
    whole_gpus = {"pools": {"train": environment.pools["train"]}, "flavors": {"a100": environment.flavors["a100"]}}
    settings = configuration(environment.model_copy(update=whole_gpus))
    weights = settings["admissionFairSharing"]["resourceWeights"]
    assert {name for name, weight in weights.items() if weight} == {"nvidia.com/gpu"}
    assert settings["resources"]["transformations"] == []


def test_what_is_used_by_claim_is_counted_in_devices_alone(spec: SpecFolder) -> None:
    weights = configuration(by_claim(spec))["admissionFairSharing"]["resourceWeights"]
    assert {name for name, weight in weights.items() if weight} == {
        f"tenancy.gpu/{flavor}" for flavor in ("a100", "a100-1g.5gb", "l4")
    }


def test_every_resource_that_some_pool_offers_is_changed_into_boards_and_kept(environment: Environment) -> None:
    transformations = {
        transformation["input"]: transformation
        for transformation in configuration(environment)["resources"]["transformations"]
    }
    assert transformations.keys() == {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"}
    assert {transformation["strategy"] for transformation in transformations.values()} == {"Retain"}
    assert transformations["nvidia.com/gpu"]["outputs"] == {BOARD_COMPUTE: "56", BOARD_MEMORY: "56"}
    assert transformations["nvidia.com/mig-1g.5gb"]["outputs"] == {BOARD_COMPUTE: "8", BOARD_MEMORY: "7"}
    assert transformations["nvidia.com/gpu.shared"]["outputs"] == {BOARD_COMPUTE: "14", BOARD_MEMORY: "14"}


def test_devices_by_claim_have_names_instead(spec: SpecFolder) -> None:
    resources = configuration(by_claim(spec))["resources"]
    assert "transformations" not in resources
    assert resources["deviceClassMappings"] == [
        {"name": f"tenancy.gpu/{flavor}", "deviceClassNames": [flavor]} for flavor in ("a100", "a100-1g.5gb", "l4")
    ]


def test_no_gpu_is_left_out_of_what_the_queue_counts(environment: Environment) -> None:
    left_out = configuration(environment)["resources"]["excludeResourcePrefixes"]
    assert left_out == ["ephemeral-storage", "vpc.amazonaws.com/efa"]
    assert not [r for r in (*environment.resources, BOARD_COMPUTE, "cpu", "memory") if r.startswith(tuple(left_out))]


def test_a_pod_that_ended_stays_counted_until_its_job_ends(environment: Environment) -> None:
    """Its job may make it anew, and Kueue would not count it again."""
    assert configuration(environment)["featureGates"]["ReclaimablePods"] is False


def test_no_work_is_evicted_for_a_share_that_is_larger_afterwards(environment: Environment) -> None:
    """With `LessThanInitialShare` too, jobs of two tenants evict each other without end."""
    assert configuration(environment)["fairSharing"]["preemptionStrategies"] == ["LessThanOrEqualToFinalShare"]


def test_two_environments_of_the_same_file_say_the_same(spec: SpecFolder) -> None:
    assert configuration(spec.load().environment) == configuration(spec.load().environment)
