from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy.catalog import gpus, vocabulary
from tenancy.cli import main
from tenancy.kube.pod_templates import templates_of
from tenancy.kube.pods import pods_of
from tenancy.planning import make_plan
from tenancy.planning.common.priorities import allowed_classes, class_name
from tenancy.planning.kubernetes.namespaces import allowed_pools, allowed_registries, granted_resources
from tenancy.planning.kubernetes.samples import (
    ANY_TOPOLOGY,
    SAMPLE_ID,
    find_namespace,
    missing_pool,
    sample,
    sample_to_create,
)
from tenancy.rules.catalogue import Violation
from tenancy.rules.pod_security import PodSecurityLevel, breaches
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load
from tests.claims import by_claim
from tests.conftest import SpecFolder, nonempty

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["pod", "job"])
def test_every_tenant_gets_a_sample_of_every_flavor_that_it_holds(loaded: Loaded, kind: str) -> None:
    for tenant in nonempty(loaded.tenants):
        for namespace in tenant.namespaces:
            for flavor, guaranteed in tenant.guaranteed_in(namespace).items():
                if guaranteed:
                    sample_object = sample(kind, loaded.environment, tenant, namespace, {flavor: guaranteed})
                    assert sample_object["metadata"]["namespace"] == tenant.namespace_name(namespace)


def test_a_sample_asks_for_what_the_guards_let_through(loaded: Loaded) -> None:
    environment = loaded.environment
    for tenant in nonempty(loaded.tenants):
        for namespace in tenant.namespaces:
            pools = allowed_pools(environment, tenant, tenant.tier_of(namespace))
            for flavor in (f for f, guaranteed in tenant.guaranteed_in(namespace).items() if guaranteed):
                spec = sample("pod", environment, tenant, namespace, {flavor: 1})["spec"]
                (container,) = spec["containers"]
                extended = {r for r in container["resources"]["limits"] if "/" in r}
                assert extended <= set(granted_resources(environment, tenant, namespace))
                assert container["image"].startswith(tuple(allowed_registries(environment, tenant)))
                assert {t["value"] for t in spec["tolerations"] if t["key"] == vocabulary.POOL} <= set(pools)


def test_a_sample_without_gpus_goes_to_no_pool(environment: Environment, fraud: Tenant) -> None:
    spec = sample("pod", environment, fraud, fraud.namespaces[0], {})["spec"]
    assert "tolerations" not in spec
    assert "nodeSelector" not in spec


@pytest.mark.parametrize("stack", ["bank", "local"])
@pytest.mark.parametrize("kind", ["pod", "job"])
def test_a_sample_keeps_to_the_restricted_level_of_every_version(stack: str, kind: str) -> None:
    stack_files = load(ROOT / "stacks" / stack)
    for tenant, part in nonempty((member, part) for member in stack_files.tenants for part in member.namespaces):
        (template,) = templates_of(sample(kind, stack_files.environment, tenant, part, {}))
        assert [
            breach for minor in range(30, 37) for breach in breaches(template, PodSecurityLevel.RESTRICTED, minor)
        ] == []


def test_a_sample_runs_as_no_user_and_no_group_of_a_host(environment: Environment, fraud: Tenant) -> None:
    spec = sample("pod", environment, fraud, fraud.namespaces[0], {})["spec"]
    assert {spec["securityContext"][field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {SAMPLE_ID}
    assert SAMPLE_ID > 10_000
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("part", ["train", "serve"])
def test_a_sample_is_as_urgent_as_its_tier(environment: Environment, fraud: Tenant, part: str) -> None:
    namespace = find_namespace(fraud, part)
    spec = sample("pod", environment, fraud, namespace, {})["spec"]
    tier = fraud.tier_of(namespace)
    assert spec["priorityClassName"] == class_name(tier)
    assert spec["priorityClassName"] in allowed_classes(environment, tier)


@pytest.mark.parametrize("stack", ["bank", "local"])
def test_a_pool_without_gpus_admits_every_namespace_of_the_examples(stack: str) -> None:
    stack_files = load(ROOT / "stacks" / stack)
    parts = [(tenant, part) for tenant in stack_files.tenants for part in tenant.namespaces]
    assert [missing_pool(stack_files.environment, *member_and_part) for member_and_part in parts] == [None] * len(parts)
    assert {image for image in [stack_files.environment.images.sample] if not image.endswith(":13.1")} == set()


GENERAL = "  general: {instance-type: m7i.xlarge, nodes: 1%s}\n  serve:\n"


@pytest.mark.parametrize(("users", "warned"), [(None, True), (", tenants: [research]", True), ("", False)])
def test_a_sample_that_stays_pending_says_which_pool_is_missing(
    spec: SpecFolder, users: str | None, warned: bool
) -> None:
    if users is not None:
        spec.edit("environment.yaml", "  serve:\n", GENERAL % users)
    result = CliRunner().invoke(main, ["sample", "pod", str(spec.path), "--tenant", "fraud"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["kind"] == "Pod"
    assert ("found no pool without GPUs that admits fraud--train" in result.stderr) is warned


def test_a_job_is_a_pod_that_is_tidied_up(environment: Environment, fraud: Tenant) -> None:
    job = sample("job", environment, fraud, fraud.namespaces[0], {"a100": 1})
    pod = sample("pod", environment, fraud, fraud.namespaces[0], {"a100": 1})
    assert job["spec"]["template"]["spec"] == pod["spec"]
    assert job["spec"]["ttlSecondsAfterFinished"]


@pytest.mark.parametrize(
    ("part", "requested_gpus", "rule"),
    [
        ("train", {"l4-shared": 1}, "gpu-06"),
        ("train", {"a100": 200}, "gpu-06"),
        ("train", {"a100-1g.5gb": 1}, "gpu-06"),
        ("serve", {"a100-1g.5gb": 1, "a100": 0}, "gpu-06"),
    ],
)
def test_what_the_tenant_may_not_have_is_refused(
    environment: Environment, fraud: Tenant, part: str, requested_gpus: dict[str, int], rule: str
) -> None:
    with pytest.raises(Violation) as error:
        sample("pod", environment, fraud, find_namespace(fraud, part), requested_gpus)
    assert error.value.rule.id == rule


@pytest.mark.parametrize("part", [None, "train", "fraud--train"])
def test_a_namespace_is_found_by_either_name(fraud: Tenant, part: str | None) -> None:
    assert find_namespace(fraud, part).name == "train"


def test_an_unknown_namespace_is_answered_with_those_that_there_are(fraud: Tenant) -> None:
    with pytest.raises(Violation, match="train, serve"):
        find_namespace(fraud, "trian")


def test_a_sample_runs_where_the_quota_has_room(loaded: Loaded, fraud: Tenant) -> None:
    sample_pod: Any = sample("pod", loaded.environment, fraud, fraud.namespaces[0], {"a100": 16})
    plan = make_plan(loaded, loaded.day)
    quota_key = ("ResourceQuota", "tenant")
    isolation_resources = plan.tenant("fraud").namespaces[0].isolation
    (quota,) = [o for o in isolation_resources if (o["kind"], o["metadata"]["name"]) == quota_key]
    requested = sample_pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
    assert int(requested) <= int(quota["spec"]["hard"]["requests.nvidia.com/gpu"])


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(ROOT / "stacks" / "bank")


@pytest.mark.parametrize("kind", ["pod", "job"])
@pytest.mark.parametrize(("tenant", "has_annotation"), [("performance", True), ("fraud", False)])
def test_only_a_sample_for_a_pool_with_a_topology_says_that_it_may_lie_anywhere(
    bank: Loaded, kind: str, tenant: str, has_annotation: bool
) -> None:
    who = next(candidate for candidate in bank.tenants if candidate.tenant == tenant)
    sample_object = sample(kind, bank.environment, who, who.namespaces[0], {"a100": 1})
    pods = sample_object["spec"]["template"] if kind == "job" else sample_object
    assert (ANY_TOPOLOGY in pods["metadata"].get("annotations", {})) is has_annotation


def test_who_is_guaranteed_nothing_gets_a_sample_of_what_it_may_borrow_and_no_more(bank: Loaded) -> None:
    treasury = next(candidate for candidate in bank.tenants if candidate.tenant == "treasury")
    sample("job", bank.environment, treasury, treasury.namespaces[0], {"a100": 8})
    with pytest.raises(Violation, match="9 a100, while the maximum of treasury--main is 8"):
        sample("job", bank.environment, treasury, treasury.namespaces[0], {"a100": 9})
    share = treasury.gpus["a100"].model_copy(update={"borrowing_limit": 0})
    alone = treasury.model_copy(update={"gpus": {"a100": share}})
    with pytest.raises(Violation, match="give it a guarantee or let it borrow"):
        sample("job", bank.environment, alone, alone.namespaces[0], {"a100": 1})


# Where GPUs are claimed


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return by_claim(tmp_path_factory.mktemp("claims") / "small").load()


def _pod_spec(workload: Any) -> Any:
    return workload["spec"]["template"]["spec"] if workload["kind"] == "Job" else workload["spec"]


@pytest.mark.parametrize("kind", ["pod", "job"])
def test_a_sample_claims_what_the_namespace_holds_by_a_template_that_comes_first(claimed: Loaded, kind: str) -> None:
    for tenant in nonempty(claimed.tenants):
        for namespace in tenant.namespaces:
            for flavor, guaranteed in tenant.guaranteed_in(namespace).items():
                if guaranteed:
                    guaranteed = min(guaranteed, 8)  # of one node
                    sample_list = sample_to_create(kind, claimed.environment, tenant, namespace, {flavor: guaranteed})
                    template, workload = sample_list["items"]
                    (request,) = template["spec"]["spec"]["devices"]["requests"]
                    assert request["exactly"] == {
                        "deviceClassName": flavor,
                        "allocationMode": "ExactCount",
                        "count": guaranteed,
                    }
                    (claim,) = _pod_spec(workload)["resourceClaims"]
                    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
                    where = {item["metadata"]["namespace"] for item in (template, workload)}
                    assert where == {tenant.namespace_name(namespace)}


def test_a_sample_with_a_claim_asks_for_no_extended_resource(claimed: Loaded) -> None:
    fraud = claimed.tenants[0]
    spec = sample("pod", claimed.environment, fraud, fraud.namespaces[0], {"a100": 1})["spec"]
    (container,) = spec["containers"]
    assert [name for name in container["resources"]["limits"] if "/" in name] == []
    assert container["resources"]["claims"] == [{"name": spec["resourceClaims"][0]["name"]}]
    assert gpus.GPU_TAINT in {toleration["key"] for toleration in spec["tolerations"]}


def test_a_sample_without_gpus_claims_nothing_and_comes_alone(claimed: Loaded) -> None:
    fraud = claimed.tenants[0]
    sample_pod = sample_to_create("pod", claimed.environment, fraud, fraud.namespaces[0], {})
    assert sample_pod == sample("pod", claimed.environment, fraud, fraud.namespaces[0], {})
    assert "resourceClaims" not in sample_pod["spec"]
    assert "claims" not in sample_pod["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("requested_gpus", "rule"), [({"a100": 41}, "gpu-06"), ({"l4": 1}, "gpu-06"), ({"a100": 1, "l4": 1}, "gpu-06")]
)
def test_a_claim_that_would_be_refused_is_no_sample(tmp_path: Path, requested_gpus: dict[str, int], rule: str) -> None:
    folder = by_claim(tmp_path / "small")
    folder.edit("environment.yaml", "nodes: 4}", "nodes: 10}")
    guaranteed = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
    folder.edit("tenants/fraud.yaml", guaranteed, "a100: {guaranteed: 40}")
    loaded = folder.load()
    fraud = loaded.tenants[0]
    with pytest.raises(Violation) as error:
        sample_to_create("pod", loaded.environment, fraud, fraud.namespaces[0], requested_gpus)
    assert error.value.rule.id == rule


def test_the_command_prints_template_and_pod_as_one_list(tmp_path: Path) -> None:
    folder = by_claim(tmp_path / "small")
    arguments = ["sample", "pod", str(folder.path), "--tenant", "fraud", "--gpu", "a100=2"]
    printed_list = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert (printed_list["apiVersion"], printed_list["kind"]) == ("v1", "List")
    assert [item["kind"] for item in printed_list["items"]] == ["ResourceClaimTemplate", "Pod"]


# More GPUs than a node has


def _nodes_of(environment: Environment, sample_object: Any) -> int:
    """GPUs of a node of the pool that a sample names."""
    pool = _pod_spec(sample_object)["nodeSelector"][vocabulary.POOL]
    return environment.flavors_of(pool)["a100"]


@pytest.mark.parametrize(
    ("count", "pods", "gpus_per_pod"), [(1, 1, 1), (8, 1, 8), (9, 3, 3), (12, 2, 6), (16, 2, 8), (24, 3, 8), (32, 4, 8)]
)
def test_a_job_of_more_gpus_than_a_node_has_gets_equal_pods(
    environment: Environment, fraud: Tenant, count: int, pods: int, gpus_per_pod: int
) -> None:
    sample_job = sample_to_create("job", environment, fraud, fraud.namespaces[0], {"a100": count})
    (container,) = _pod_spec(sample_job)["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(gpus_per_pod)
    assert gpus_per_pod <= _nodes_of(environment, sample_job)
    job_fields = [sample_job["spec"].get(key) for key in ("completions", "parallelism", "completionMode")]
    assert job_fields == ([pods, pods, "Indexed"] if pods > 1 else [None] * 3)


def test_a_pod_of_more_gpus_than_a_node_has_is_refused_with_the_way(spec: SpecFolder) -> None:
    words = ("sample", "pod", str(spec.path), "--tenant", "fraud", "--gpu", "a100=9")
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "given 9 a100 for one pod; rule: a pod runs on one node, and no node has more than 8" in result.stderr
    assert "change: ask for 8 at most, or for a job, which gets several pods" in result.stderr
    job = CliRunner().invoke(main, ["sample", "job", *words[2:]])
    assert job.exit_code == 0
    assert "note: 3 pods of 3 a100: no node of pool train has 9" in job.stderr


def test_a_job_of_more_gpus_than_any_pool_has_is_refused(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  train: {instance-type: p4d.24xlarge, nodes: 4}\n", TWO_POOLS)
    result = CliRunner().invoke(main, ["sample", "job", str(spec.path), "--tenant", "fraud", "--gpu", "a100=24"])
    assert result.exit_code == 2
    assert "given 24 a100; rule: a job runs in one pool, and no pool has more than 16" in result.stderr


TWO_POOLS = "  train: {instance-type: p4d.24xlarge, nodes: 2}\n  more: {instance-type: p4d.24xlarge, nodes: 2}\n"


# An MPIJob


def test_the_workers_of_a_sample_of_an_mpijob_end_with_its_launcher(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "buckets:", "queues: {kinds: [mpijob]}\nbuckets:")
    words = ("sample", "mpijob", str(spec.path), "--tenant", "fraud")
    result = CliRunner().invoke(main, [*words, "--gpu", "a100=12"])
    assert result.exit_code == 0, result.output
    sample_job = json.loads(result.stdout)
    assert sample_job["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    assert [(pods.name, pods.count) for pods in pods_of(sample_job)] == [("launcher", 1), ("worker", 2)]
    launcher, worker = (pods.template["spec"]["containers"][0]["resources"]["limits"] for pods in pods_of(sample_job))
    assert ("nvidia.com/gpu" in launcher, worker["nvidia.com/gpu"]) == (False, "6")
    assert json.loads(CliRunner().invoke(main, words).stdout)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 1


def test_an_mpijob_that_the_environment_does_not_queue_is_no_sample(spec: SpecFolder) -> None:
    result = CliRunner().invoke(main, ["sample", "mpijob", str(spec.path), "--tenant", "fraud", "--gpu", "a100=1"])
    assert result.exit_code == 2
    assert "given mpijob, where queues.kinds are none" in result.stderr
    assert "change: add mpijob to queues.kinds" in result.stderr
