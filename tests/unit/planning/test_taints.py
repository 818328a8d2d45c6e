"""One taint of one pool: what follows from it in the whole plan, and that nothing else does."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bench.generate import generate
from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.planning.aws.addons import AddOn
from tenancy.planning.common import pools as plan_pools
from tenancy.planning.common.charts import HelmChart
from tenancy.planning.common.meta import PlannedObject
from tenancy.planning.common.pools import Taint, fake_nodes, node_taints, pools_of, startup_taints, tolerations
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.queueing.queue_names import flavor_name
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import load
from tests.conftest import SpecFolder
from tests.daemonsets import DAEMONSETS, TOLERATE_ALL

STACKS = Path(__file__).parents[3] / "stacks"
AWS = {
    "enabled": True,
    "account": "111122223333",
    "region": "eu-central-1",
    "zones": ["eu-central-1a", "eu-central-1b"],
    "platform-role": "arn:aws:iam::111122223333:role/platform",
}
GPU = "nvidia.com/gpu"
NEW = {"key": "bank.example/embargo", "value": "yes", "effect": "NoExecute"}
"""A taint that the platform's people add one day."""

CONTROLLERS_ONLY = {"karpenter", "karpenter-crd", "kueue", "prometheus-operator-crds", "coredns", "metrics-server"}
OPERATORS = {"gpu-operator daemonsets.tolerations", "gpu-operator node-feature-discovery.worker.tolerations"}
MONITORING = "eks-node-monitoring-agent dcgmAgent.tolerations"
EFA_PLUGIN = "aws-efa-k8s-device-plugin tolerations"

Facts = dict[str, Any]
"""Every value of a plan by its path."""


def facts(environment: Environment, tenants: Sequence[Tenant]) -> Facts:
    """The whole plan, the lab's nodes and every tenant's samples. Lists are values; what has a name is found by it."""
    # What tenants have in the queues is in the queues themselves.
    plan = replace(planning.plan(environment, tenants), shares={})
    samples = {
        f"{tenant.namespace_name(part)}/{flavor}": sample("pod", environment, tenant, part, {flavor: 1})
        for tenant in tenants
        for part in tenant.namespaces
        for flavor, guaranteed in tenant.guaranteed_in(part).items()
        if guaranteed and pools_of(environment, flavor, tenant.tenant, frozenset({tenant.tier_of(part)}))
    }
    return dict(_walk("", {"plan": plan, "lab": fake_nodes(environment), "sample": samples}))


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    value = value.manifest() if isinstance(value, PlannedObject) else value
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            # Keys of Kubernetes hold dots and slashes; so does no path below that a test names.
            yield from _walk(f"{path} {key}".strip(), child)
    elif isinstance(value, (list, tuple)) and value and all(map(_name, value)):
        children_by_name = {_name(child): child for child in value}
        assert len(children_by_name) == len(value), f"two of one name in {path}"
        for name, child in children_by_name.items():
            yield from _walk(f"{path} [{name}]", child)
    else:
        yield path, value


def _name(value: Any) -> str:
    """Name that distinguishes a member of a list; empty where its place does."""
    value = value.manifest() if isinstance(value, PlannedObject) else value
    if is_dataclass(value) and not isinstance(value, type):
        name_value = getattr(value, "name", "")
        return name_value if isinstance(name_value, str) else ""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    if not metadata:
        return ""
    return "/".join(filter(None, (value["kind"], metadata.get("namespace"), metadata["name"])))


def changed_facts(before: Facts, after: Facts) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path, ()) != after.get(path, ())}


# Environments


def on_aws(environment: Environment, **changes: Any) -> Environment:
    fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Environment.model_validate({**fields, "aws": AWS, **changes})


Case = tuple[Environment, tuple[Tenant, ...]]


def _bank(_folder: Path) -> Case:
    loaded = load(STACKS / "bank")
    return loaded.environment, loaded.tenants


def _local(_folder: Path) -> Case:
    """With a Prometheus that the platform brings."""
    loaded = load(STACKS / "local")
    return on_aws(loaded.environment, metrics={"collector": "install"}), loaded.tenants


def _generated(folder: Path) -> Case:
    loaded = load(generate(folder / "generated", 4))
    return on_aws(loaded.environment), loaded.tenants


def _by_claim(folder: Path) -> Case:
    """Devices by claim, and EFA: with the charts that only such a cluster has."""
    spec = SpecFolder(folder / "small")
    environment = spec.load().environment
    cluster = {"name": "small", "context": "small", "kubernetes": "1.36", "cni": "cilium", "devices": "dra"}
    pools = {
        "train": {"instance-type": "p4d.24xlarge", "nodes": 4},
        "far": {
            "instance-type": "p4d.24xlarge",
            "nodes": 2,
            "efa": True,
            "tenants": ["fraud"],
            "zones": ["eu-central-1a"],
        },
    }
    return on_aws(environment, cluster=cluster, pools=pools, flavors={"a100": {"gpu": "a100-40gb"}}), (
        Tenant.model_validate(dict(tenant="fraud", team="fraud", department="risk", tier="batch", **OWNED)),
    )


OWNED = {"owner": {"name": "leads", "mail": "leads@bank.example"}, "cost-center": "CC-1"}


CASES: dict[str, Callable[[Path], Case]] = {
    "bank": _bank,
    "local": _local,
    "generated": _generated,
    "by-claim": _by_claim,
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


# A pool that gets a taint

OPEN = {"instance-type": "p4d.24xlarge", "nodes": {"min": 2, "max": 5}}
"""No tenant's guarantee depends on it, so that it can be closed to all but one."""


def with_spare(small: SpecFolder, restricted: bool, others: bool) -> Case:
    """The small environment on AWS with one more pool, beside restricted ones or beside open ones alone."""
    loaded = small.load()
    spare = {**OPEN, "tenants": ["fraud"]} if restricted else OPEN
    fields = loaded.environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    pools = fields["pools"] if others else {"train": fields["pools"]["train"]}
    tenants = loaded.tenants
    if not others:
        tenants = tuple(tenant.model_copy(update={"gpus": {"a100": tenant.gpus["a100"]}}) for tenant in tenants)
    return on_aws(loaded.environment, pools={**pools, "spare": spare}), tenants


BORN_WITH = {
    f"plan cluster groups [spare] labels {vocabulary.TENANT}",
    f"plan platform services nodes [NodePool/spare] spec template metadata labels {vocabulary.TENANT}",
    *(f"lab [Node/spare-{n}] metadata labels {vocabulary.TENANT}" for n in (0, 1)),
}
"""By which pods of a tenant with dedicated nodes find them."""
OF_THE_POOL = {
    "plan cluster groups [spare] taints",
    "plan platform services nodes [NodePool/spare] spec template spec taints",
    "lab [Node/spare-0] spec taints",
    "lab [Node/spare-1] spec taints",
    "plan platform queueing flavors [ResourceFlavor/spare] spec nodeTaints",
    "plan platform queueing flavors [ResourceFlavor/spare] spec tolerations",
}
OF_THE_BILL = {
    "plan cluster groups [spare] tags tenancy:tenant",
    "plan platform services nodes [EC2NodeClass/spare] spec tags tenancy:tenant",
}
"""The cost of a pool of one tenant alone is the tenant's."""
OF_THE_SAMPLES = {
    "sample fraud--train/a100 spec tolerations",
    # The first pool by name that admits the tenant.
    f"sample research--main/a100 spec nodeSelector {vocabulary.POOL}",
}
OF_ITS_TENANT = {
    f"plan tenants [fraud] namespaces [{name}] meta annotations {vocabulary.ALLOWED_POOLS}"
    for name in ("fraud--train", "fraud--serve")
}
OF_THE_PLATFORM = {
    "plan platform services charts [gpu-operator] values daemonsets tolerations",
    "plan platform services charts [gpu-operator] values node-feature-discovery worker tolerations",
    "plan platform services add_ons [eks-node-monitoring-agent] configuration dcgmAgent tolerations",
}
OF_OTHERS_QUEUES = "plan tenants [research] cluster_queues [ClusterQueue/research--batch] spec resourceGroups"
"""A queue spans the pools that its tenant may use."""
ALWAYS = OF_THE_POOL | BORN_WITH | OF_THE_BILL | OF_THE_SAMPLES | OF_ITS_TENANT | {OF_OTHERS_QUEUES}


def test_a_pool_that_is_restricted_changes_its_nodes_and_its_tenants_namespaces(spec: SpecFolder) -> None:
    before, after = (facts(*with_spare(spec, restricted, others=True)) for restricted in (False, True))
    assert changed_facts(before, after) == ALWAYS, "what tolerates one pool's taint tolerates all"


def test_the_first_restricted_pool_changes_what_runs_on_every_node_too(spec: SpecFolder) -> None:
    before, after = (facts(*with_spare(spec, restricted, others=False)) for restricted in (False, True))
    assert changed_facts(before, after) == ALWAYS | OF_THE_PLATFORM


def test_each_of_them_gets_the_pools_taint_and_loses_nothing(spec: SpecFolder) -> None:
    before, after = (facts(*with_spare(spec, restricted, others=False)) for restricted in (False, True))
    for path in OF_THE_POOL:
        added = [taint for taint in after[path] if taint not in before[path]]
        assert [(taint["key"], taint["value"]) for taint in added] == [(vocabulary.POOL, "spare")], path
        assert [taint for taint in after[path] if taint in before[path]] == list(before[path]), path
    for path in OF_ITS_TENANT:
        assert (before[path], after[path]) == ("", "spare"), path
    for path in OF_THE_PLATFORM:
        added = [toleration for toleration in after[path] if toleration not in before[path]]
        assert added == [{"key": vocabulary.POOL, "operator": "Exists", "effect": "NoSchedule"}], path


def test_a_pool_that_changes_hands_changes_no_toleration_of_the_platform(spec: SpecFolder) -> None:
    environment, tenants = with_spare(spec, restricted=True, others=True)
    spare = environment.pools["spare"].model_copy(update={"tenants": ("research",)})
    changed_environment = environment.model_copy(update={"pools": {**environment.pools, "spare": spare}})
    research_fact = f"plan tenants [research] namespaces [research--main] meta annotations {vocabulary.ALLOWED_POOLS}"
    samples = {
        f"sample {where}/a100 spec {field}"
        for where in ("fraud--train", "research--main")
        for field in ("tolerations", f"nodeSelector {vocabulary.POOL}")
    }
    queues = {
        OF_OTHERS_QUEUES,
        *(
            f"plan tenants [fraud] {name} spec resourceGroups"
            for name in (
                "cohort",
                "cluster_queues [ClusterQueue/fraud--batch]",
                "cluster_queues [ClusterQueue/fraud--production]",
            )
        ),
    }
    # Fraud's guarantee was in the pool, and the unallocated GPUs are elsewhere now.
    queues.add("plan platform queueing cohorts [Cohort/organisation] spec resourceGroups")
    # Fraud may borrow in one pool less.
    quotas = {
        f"plan tenants [fraud] namespaces [{name}] quota spec hard requests.{GPU}"
        for name in ("fraud--train", "fraud--serve")
    }
    changes = changed_facts(facts(environment, tenants), facts(changed_environment, tenants))
    assert changes == OF_THE_BILL | BORN_WITH | OF_ITS_TENANT | {research_fact} | samples | queues | quotas


# A taint of a new kind


def everywhere(patch: pytest.MonkeyPatch, old: Any, new: Any) -> set[str]:
    """Put a function in the place of another in every module that has imported it; their names."""
    modules_by_name = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("tenancy.") and getattr(module, old.__name__, None) is old
    }
    for module in modules_by_name.values():
        patch.setattr(module, old.__name__, new)
    return set(modules_by_name)


@pytest.fixture
def embargo(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give every node one taint more, from here on."""

    def start() -> None:
        def more(name: str, pool: Any) -> list[Taint]:
            return [*node_taints(name, pool), NEW]

        readers = everywhere(monkeypatch, plan_pools.node_taints, more)
        assert {
            f"tenancy.planning.{name}"
            for name in ("common.pools", "aws.cluster", "aws.karpenter", "kubernetes.samples")
        } <= readers

    return start


def nodes_of(environment: Environment) -> set[str]:
    """Paths of the taints of all of the pools' nodes, real and fake, and of what the queue knows of them."""
    pools = environment.pools.items()
    groups = {f"plan cluster groups [{name}] taints" for name, pool in pools if pool.nodes.min}
    karpenter = {
        f"plan platform services nodes [NodePool/{name}] spec template spec taints"
        for name, pool in pools
        if pool.is_autoscaled
    }
    fake = {f"lab [Node/{name}-{number}] spec taints" for name, pool in pools for number in range(pool.nodes.min)}
    flavors = {
        f"plan platform queueing flavors [ResourceFlavor/{flavor_name(environment, name)}] spec {field}"
        for name, pool in pools
        for field in ("nodeTaints", "tolerations")
        if pool.machine.gpus
    }
    return groups | karpenter | fake | flavors


def test_a_new_taint_reaches_every_node_and_daemonset_of_the_bank_and_nothing_else(
    tmp_path: Path, embargo: Callable[[], None]
) -> None:
    environment, tenants = _bank(tmp_path)
    before = facts(environment, tenants)
    embargo()
    efa = "plan platform services charts [aws-efa-k8s-device-plugin] values tolerations"
    samples = {path for path in before if path.startswith("sample ") and path.endswith(" spec tolerations")}
    changes = changed_facts(before, facts(environment, tenants))
    # The alert on nodes without a taint names it.
    alert = "plan platform metrics [PrometheusRule/monitoring/tenancy] spec groups"
    assert changes == nodes_of(environment) | OF_THE_PLATFORM | {efa, alert} | samples


def test_a_new_taint_reaches_the_driver_of_claims(tmp_path: Path, embargo: Callable[[], None]) -> None:
    environment, tenants = _by_claim(tmp_path)
    before = facts(environment, tenants)
    embargo()
    charts = "plan platform services charts"
    more = {
        f"{charts} [aws-efa-k8s-device-plugin] values tolerations",
        f"{charts} [dra-driver-nvidia-gpu] values kubeletPlugin tolerations",
    }
    assert changed_facts(before, facts(environment, tenants)) == nodes_of(environment) | OF_THE_PLATFORM | more


# Every daemonset tolerates every taint


def taints_on_nodes(environment: Environment, tenants: Sequence[Tenant]) -> set[tuple[str, str]]:
    """Key and effect of what the machines get, out of what AWS and Karpenter are asked for; never of a start alone."""
    node_taints = set()
    for path, value in facts(environment, tenants).items():
        if path.endswith(" taints") and "[system]" not in path:
            effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
            node_taints |= {(taint["key"], effects.get(taint["effect"], taint["effect"])) for taint in value}
    return node_taints - {(taint["key"], taint["effect"]) for taint in startup_taints(environment)}


def parts(value: Any) -> Iterator[AddOn | HelmChart]:
    """Every chart and add-on of a plan, wherever in it."""
    if isinstance(value, AddOn | HelmChart):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from parts(child)


def lacking(environment: Environment, tenants: Sequence[Tenant]) -> set[str]:
    """Places of daemonsets that some taint keeps off a node, as `chart path key`."""
    taints = taints_on_nodes(environment, tenants)
    missing = set()
    for part in parts(planning.plan(environment, tenants)):
        values = part.values if isinstance(part, HelmChart) else part.configuration
        for path in DAEMONSETS.get(part.name, ()):
            tolerations_value = functools.reduce(lambda values_part, key: values_part[key], path.split("."), values)
            missing |= {
                f"{part.name} {path} {key}" for key, effect in taints if not _tolerated(tolerations_value, key, effect)
            }
    return missing


def _tolerated(tolerations_value: Any, key: str, effect: str) -> bool:
    if isinstance(tolerations_value, bool):
        return tolerations_value
    return any(
        toleration["operator"] == "Exists"
        and toleration.get("key", key) == key
        and toleration.get("effect", effect) == effect
        for toleration in tolerations_value
    )


def test_nodes_have_the_taints_that_their_pools_say(case: Case) -> None:
    environment, tenants = case
    closed = (
        {(vocabulary.POOL, "NoSchedule")} if any(pool.is_restricted for pool in environment.pools.values()) else set()
    )
    assert taints_on_nodes(environment, tenants) == {(GPU, "NoSchedule")} | closed


def test_every_daemonset_tolerates_every_taint(case: Case) -> None:
    assert lacking(*case) == set()


def test_every_daemonset_tolerates_a_taint_of_a_new_kind(case: Case, embargo: Callable[[], None]) -> None:
    embargo()
    assert (NEW["key"], NEW["effect"]) in taints_on_nodes(*case)
    assert lacking(*case) == set()


def test_every_chart_and_add_on_is_judged_or_has_no_daemonset(case: Case) -> None:
    names = {part.name for part in parts(planning.plan(*case))}
    assert names <= {*DAEMONSETS, *TOLERATE_ALL, *CONTROLLERS_ONLY}
    expected_names = {"gpu-operator", "eks-node-monitoring-agent", "aws-ebs-csi-driver", *TOLERATE_ALL}
    assert expected_names <= names, "on every cluster with machines"


def test_the_charts_that_only_some_clusters_have_are_among_the_judged(tmp_path: Path) -> None:
    names = {name: {part.name for part in parts(planning.plan(*make(tmp_path / name)))} for name, make in CASES.items()}
    assert "aws-efa-k8s-device-plugin" in names["bank"]
    assert "cilium" in names["bank"]
    assert "dra-driver-nvidia-gpu" in names["by-claim"]
    assert set(DAEMONSETS) <= set().union(*names.values())


@pytest.mark.parametrize("dropped", [GPU, vocabulary.POOL])
def test_a_taint_that_the_platform_forgets_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: str
) -> None:
    """The tests above fail if `tolerations` left one out."""

    def forgetful(environment: Environment) -> list[Taint]:
        return [toleration for toleration in tolerations(environment) if toleration["key"] != dropped]

    readers = everywhere(monkeypatch, plan_pools.tolerations, forgetful)
    assert "tenancy.planning.services" in readers
    environment, tenants = _bank(tmp_path)
    places = {*OPERATORS, MONITORING, EFA_PLUGIN}
    assert lacking(environment, tenants) == {f"{place} {dropped}" for place in places}


def test_a_lab_and_aws_give_a_node_the_same_taints(case: Case) -> None:
    environment, tenants = case
    all_facts = facts(environment, tenants)
    effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
    starting = {taint["key"] for taint in startup_taints(environment)}
    assert bool(starting) == (environment.cluster.cni is Cni.CILIUM)
    cluster = planning.plan(environment, tenants).cluster
    assert cluster
    for group in (group for group in cluster.groups if group.pool):
        real = [{**t, "effect": effects[t["effect"]]} for t in group.taints if t["key"] not in starting]
        for number in range(group.nodes):
            assert all_facts[f"lab [Node/{group.pool}-{number}] spec taints"] == real
