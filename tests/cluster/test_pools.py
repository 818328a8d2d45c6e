"""The pools as a real scheduler sees them: what a node offers, who lands on it, and what stays outside."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml

from tenancy.catalog import vocabulary
from tenancy.catalog.instances import MACHINES
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.layout import Lab
from tenancy.lab.nodes import apply_nodes
from tenancy.planning import make_plan
from tenancy.planning.aws.cluster import NodeGroupPlan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.common.priorities import priority_classes
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.queueing.pool_yields import pool_yield
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import Loaded, load, on_lab
from tests.waiting import until_clear

BANK = Path(__file__).parents[2] / "stacks" / "bank"
CREATE = "application/json"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"

# The bank's pools as `stacks/bank/environment.yaml` describes them in words.
COUNTS = {"train-a100": 72, "train-efa": 8, "serve-mig": 2, "notebooks": 1, "general": 3}
OFFERED = {
    "train-a100": {GPU: 8},
    "train-efa": {GPU: 8, EFA: 4},
    "serve-mig": {"nvidia.com/mig-1g.5gb": 32, "nvidia.com/mig-3g.20gb": 8},
    "notebooks": {"nvidia.com/gpu.shared": 16},
    "general": {},
}
HOMES = {
    "a100": "train-a100",
    "a100-1g.5gb": "serve-mig",
    "a100-3g.20gb": "serve-mig",
    "l4-shared": "notebooks",
}
OWN_POOLS = {"performance--train": {"a100": "train-efa"}}
"""Pools of flavors of tenants that have a pool of their own: their work runs there first."""
TOTAL, OF_GPUS, CLOSED = 86, 83, 11
"""Nodes, those with GPUs, and those with a taint of their pool's own."""
UNITS = [(pool, resource, count) for pool, offer in OFFERED.items() for resource, count in offer.items()]
RESTRICTED = [(pool, resource) for pool, resource, _ in UNITS if pool != "train-a100"]

Toleration = Mapping[str, str]
GPU_TOLERATION: Toleration = {"key": GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}


def pool_toleration(pool: str) -> Toleration:
    return {"key": vocabulary.POOL, "operator": "Equal", "value": pool, "effect": "NoSchedule"}


def tolerations_of(pool: str) -> list[Toleration]:
    """Tolerations of a pod that may run in the pool."""
    return [GPU_TOLERATION, *([] if pool == "train-a100" else [pool_toleration(pool)])]


class Scheduler:
    """The lab's, asked by pods.

    What it sees of nodes and of pods that are gone lags behind the API server, so its first word need not be its last:
    who waits for an answer waits for the one that is expected.
    """

    def __init__(self, api: LabApi) -> None:
        self._api = api
        self._made = 0

    def ask(
        self,
        resources: Mapping[str, str],
        tolerations: Sequence[Toleration] = (),
        where: Mapping[str, str] | None = None,
        count: int = 1,
    ) -> list[str]:
        """Make some pods that are alike; their names."""
        names = [f"pod-{self._made + i}" for i in range(count)]
        self._made += count
        container = {"name": "main", "image": "fake", "resources": {"requests": resources, "limits": resources}}
        spec = {"containers": [container], "tolerations": list(tolerations), "nodeSelector": dict(where or {})}
        for name in names:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            self._api.request("POST", PODS, pod, CREATE)
        return names

    def landed(self, names: Sequence[str], path: str = PODS) -> list[str]:
        """The node of each pod, once all have one."""
        until_clear(
            lambda: {n: self._reasons(path).get(n) for n in names if n not in self._nodes(path)}, "pods have nodes"
        )
        nodes_by_pod = self._nodes(path)
        return [nodes_by_pod[name] for name in names]

    def refused(self, names: Sequence[str], *reasons: str) -> None:
        """Wait until every pod is kept waiting for these reasons, among others; one that gets a node fails at once."""

        def obstacles() -> dict[str, str]:
            placed = {name: node for name, node in self._nodes(PODS).items() if name in names}
            assert placed == {}, f"these should wait: {reasons}"
            reasons_by_pod = self._reasons(PODS)
            return {
                n: reasons_by_pod.get(n, "")
                for n in names
                if any(reason not in reasons_by_pod.get(n, "") for reason in reasons)
            }

        until_clear(obstacles, f"the scheduler says {reasons}")

    def places(
        self,
        resources: Mapping[str, str],
        tolerations: Sequence[Toleration] = (),
        where: Mapping[str, str] | None = None,
        count: int = 1,
    ) -> list[str]:
        return self.landed(self.ask(resources, tolerations, where, count))

    def _nodes(self, path: str) -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self._api.get(path)["items"]
            if "nodeName" in pod["spec"]
        }

    def _reasons(self, path: str) -> dict[str, str]:
        return {
            pod["metadata"]["name"]: condition["message"]
            for pod in self._api.get(path)["items"]
            for condition in pod["status"].get("conditions", [])
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        }

    def clear(self) -> None:
        self._api.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        until_clear(lambda: self._api.get(PODS)["items"], "every pod is gone")


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return on_lab(load(BANK))


@pytest.fixture(scope="module")
def groups() -> dict[str, NodeGroupPlan]:
    """Node groups that AWS would be asked for, by pool."""
    loaded = load(BANK)
    plan = make_plan(loaded, loaded.day)
    assert plan.cluster
    return {group.pool: group for group in plan.cluster.groups if group.pool}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("pools")
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            yield control_plane.up(root=root)
        finally:
            control_plane.down(root=root)


@pytest.fixture(scope="module")
def api(lab: Lab) -> Iterator[LabApi]:
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as lab_api:
        until_clear(
            lambda: not _exists(lab_api, "/api/v1/namespaces/default/serviceaccounts/default"), "pods can be made"
        )
        yield lab_api


def _exists(api: LabApi, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


@pytest.fixture
def nodes(lab: Lab, api: LabApi, bank: Loaded) -> dict[str, dict[str, Any]]:
    """The bank's nodes as the API server has them, by name."""
    apply_nodes(fake_nodes(bank.environment), lab)
    return {node["metadata"]["name"]: node for node in api.get(NODES)["items"]}


@pytest.fixture
def scheduler(api: LabApi, nodes: dict[str, dict[str, Any]]) -> Iterator[Scheduler]:  # noqa: ARG001 - they have to be there
    pool_scheduler = Scheduler(api)
    yield pool_scheduler
    pool_scheduler.clear()


# What the machine is, by others' word


class Karpenter:
    """Karpenter's reserve of a machine, read from its source."""

    def __init__(self) -> None:
        folder = judges.folder("tables-karpenter")
        self._types = (folder / "types.go").read_text()
        self._limits = (folder / "zz_generated.vpclimits.go").read_text()
        self._options = (judges.folder("options-karpenter") / "options.go").read_text()

    def _number(self, text: str, pattern: str) -> str:
        matches = re.findall(pattern, text)
        assert len(matches) == 1, f"{pattern} stands {len(matches)} times in Karpenter's source"
        return matches[0]

    def pods(self, name: str, efa_only: int = 0) -> int:
        """`ENILimitedPods`, with interfaces for EFA alone on the default card."""
        body = self._number(self._limits, rf'(?ms)^\t"{re.escape(name)}": \{{\n(.*?)^\t\}},')
        card = self._number(body, r"DefaultNetworkCardIndex:\s*(\d+)")
        interfaces = self._number(body, rf"MaximumNetworkInterfaces:\s*(\d+),\s*NetworkCardIndex:\s*{card},")
        addresses = self._number(body, r"IPv4PerInterface:\s*(\d+)")
        return (int(interfaces) - efa_only) * (int(addresses) - 1) + 2

    def cpu_reserve(self, vcpu: int) -> int:
        """`kubeReservedResources`, millicores."""
        pattern = r"\{start: (\d+), end: (\d+|1 << 31), percentage: ([\d.]+)\}"
        ranges = re.findall(pattern, self._types)
        assert len(ranges) == 4
        reserve = 0
        for start, end, part in ranges:
            last = 2**31 if "<<" in end else int(end)
            reserve += int(max(0, min(vcpu * 1000, last) - int(start)) * float(part))
        return reserve

    def memory(self, sold: int, pods: int, arm: bool) -> int:
        """MiB that pods get of those sold."""
        sold -= int(self._number(self._types, r"sizeInMib -= (\d+)")) if arm else 0
        share = float(self._number(self._options, r'WithDefaultFloat64\("VM_MEMORY_OVERHEAD_PERCENT", ([\d.]+)\)'))
        per_pod, base = re.findall(r'Sprintf\("%dMi", \((\d+)\*pods\.Value\(\)\)\+(\d+)\)', self._types)[0]
        eviction = self._number(self._types, r'ResourceMemory:\s+resource\.MustParse\("(\d+)Mi"\)')
        return sold - math.ceil(sold * share) - int(per_pod) * pods - int(base) - int(eviction)

    def storage(self, gigabytes: int) -> float:
        """MiB that pods get of the local disks."""
        reserve = self._number(self._types, r'ResourceEphemeralStorage: resource\.MustParse\("(\d+)Gi"\)')
        reserved_percent = self._number(self._types, r"storage\.Value\(\)\) / 100 \* (\d+)")
        disks = gigabytes * 10**9
        return (disks - math.ceil(disks / 100 * int(reserved_percent))) / 2**20 - int(reserve) * 1024


@pytest.fixture(scope="module")
def karpenter() -> Karpenter:
    return Karpenter()


@pytest.fixture(scope="module")
def ec2() -> dict[str, Any]:
    return judges.ec2_types()


TYPES = sorted(
    name
    for name, instance in MACHINES.items()
    # EC2's list has dropped the p3 of 16 GB.
    if not instance.unsupported and not (instance.old and instance.gpu == "v100-16gb")
)
WITH_EFA = [name for name in TYPES if MACHINES[name].efa]


def _pool(name: str, efa: bool = False) -> str:
    return name.replace(".", "-") + ("-efa" if efa else "")


@pytest.fixture(scope="module")
def machines(lab: Lab, api: LabApi, bank: Loaded) -> dict[str, dict[str, int]]:
    """Allocatable of a node of every instance type, and of each with EFA, as the API server has it."""
    flavors = {board: {"gpu": board} for board in sorted({MACHINES[name].gpu for name in TYPES} - {""})}
    pools: dict[str, Any] = {_pool(name): {"instance-type": name, "nodes": 1} for name in TYPES}
    only = {"nodes": 1, "efa": True, "tenants": ["x"], "zones": ["eu-central-1a"]}
    pools |= {_pool(name, efa=True): {"instance-type": name, **only} for name in WITH_EFA}
    fields = bank.environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    environment = Environment.model_validate({**fields, "flavors": flavors, "pools": pools, "prices": {}})
    apply_nodes(fake_nodes(environment), lab)
    return {node["metadata"]["labels"][vocabulary.POOL]: offered(node) for node in api.get(NODES)["items"]}


SUFFIXES = {"": 1, "m": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1000}


def offered(node: dict[str, Any]) -> dict[str, int]:
    """Allocatable in millicores, bytes and counts."""
    amounts = {}
    for name, text in node["status"]["allocatable"].items():
        [(number, suffix)] = re.findall(r"^(\d+)(\D*)$", text)
        whole_cores = name == "cpu" and suffix != "m"
        amounts[name] = int(number) * SUFFIXES[suffix] * (1000 if whole_cores else 1)
    return amounts


def managed_cap(vcpu: int) -> int:
    """EKS user guide, "Assign more IP addresses with prefixes": pods on a node of a managed group at most."""
    return 110 if vcpu < 30 else 250


@pytest.mark.parametrize("name", TYPES)
def test_a_node_offers_what_ec2_sells_less_what_karpenter_takes_off(
    name: str, machines: dict[str, dict[str, int]], karpenter: Karpenter, ec2: dict[str, Any]
) -> None:
    machine, node = ec2[name], machines[_pool(name)]
    gpus = sum(gpu["Count"] for gpu in machine.get("GpuInfo", {}).get("Gpus", []))
    vcpu, sold = machine["VCpuInfo"]["DefaultVCpus"], machine["MemoryInfo"]["SizeInMiB"]
    pods, arm = karpenter.pods(name), machine["ProcessorInfo"]["SupportedArchitectures"][0] == "arm64"
    assert node["cpu"] == vcpu * 1000 - karpenter.cpu_reserve(vcpu)
    assert node["memory"] == karpenter.memory(sold, pods, arm) * 2**20
    assert node["pods"] == min(pods, managed_cap(vcpu))
    assert node.get(GPU, 0) == gpus
    assert EFA not in node, "an interface that is not asked for costs addresses, and passes every network policy"
    if disks := machine.get("InstanceStorageInfo"):
        lost_to_rounding = karpenter.storage(disks["TotalSizeInGB"]) - node["ephemeral-storage"] / 2**20
        assert 0 <= lost_to_rounding < 2


@pytest.mark.parametrize("name", WITH_EFA)
def test_efa_takes_the_addresses_of_an_interface_and_nothing_else(
    name: str, machines: dict[str, dict[str, int]], karpenter: Karpenter, ec2: dict[str, Any]
) -> None:
    network, node = ec2[name]["NetworkInfo"], machines[_pool(name, efa=True)]
    interfaces = network["EfaInfo"]["MaximumEfaInterfaces"]
    # Where there are fewer than cards, the default card, the first, is one without.
    on_default = 1 if interfaces == network["MaximumNetworkCards"] else 0
    assert node[EFA] == interfaces
    assert node["pods"] == min(karpenter.pods(name, on_default), managed_cap(ec2[name]["VCpuInfo"]["DefaultVCpus"]))
    # nodeadm counts all interfaces for its reserve, whatever they are for.
    without = machines[_pool(name)]
    same = ("cpu", "memory", "ephemeral-storage", GPU)
    assert {what: node[what] for what in same} == {what: without[what] for what in same}


# What the plan says of the bank's nodes


def test_the_bank_has_its_nodes_with_what_its_files_say(nodes: dict[str, dict[str, Any]]) -> None:
    pools = [node["metadata"]["labels"][vocabulary.POOL] for node in nodes.values()]
    assert {pool: pools.count(pool) for pool in set(pools)} == COUNTS
    for name, node in nodes.items():
        extended = {what: count for what, count in offered(node).items() if "/" in what}
        assert extended == OFFERED[node["metadata"]["labels"][vocabulary.POOL]], name


def test_a_node_has_the_labels_and_taints_that_aws_would_give_it(
    nodes: dict[str, dict[str, Any]], groups: dict[str, NodeGroupPlan]
) -> None:
    effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
    for name, node in nodes.items():
        labels, group = node["metadata"]["labels"], groups[node["metadata"]["labels"][vocabulary.POOL]]
        assert {**group.labels, **birth_labels(group.user_data)}.items() <= labels.items(), name
        assert labels["node.kubernetes.io/instance-type"] == group.instance
        assert labels["topology.kubernetes.io/zone"] in group.zones
        # Cilium takes off the one that keeps pods away until its agent runs.
        lasting = [t for t in group.taints if t["key"] != "node.cilium.io/agent-not-ready"]
        assert node["spec"].get("taints", []) == [{**taint, "effect": effects[taint["effect"]]} for taint in lasting], (
            name
        )


def birth_labels(user_data: str) -> dict[str, str]:
    """Labels that the kubelet registers with, by the user data; the digest of the layout is for replacing nodes."""
    text = user_data.split("Content-Type: application/node.eks.aws\n\n")[1].partition("\n--")[0]
    flags = yaml.safe_load(text)["spec"]["kubelet"].get("flags", [])
    pairs = [pair for flag in flags for pair in flag.removeprefix("--node-labels=").split(",")]
    labels = dict(pair.split("=") for pair in pairs)
    return {key: value for key, value in labels.items() if key != vocabulary.PREFIX + "layout"}


def test_nodes_of_a_pool_are_spread_over_its_zones(nodes: dict[str, dict[str, Any]]) -> None:
    zones: dict[str, set[str]] = {}
    for node in nodes.values():
        labels = node["metadata"]["labels"]
        zones.setdefault(labels[vocabulary.POOL], set()).add(labels["topology.kubernetes.io/zone"])
    assert {pool: len(pool_zones) for pool, pool_zones in zones.items()} == {
        "train-a100": 1,
        "train-efa": 1,
        "serve-mig": 2,
        "notebooks": 1,
        "general": 3,
    }


# Who lands where


@pytest.mark.parametrize(("pool", "resource", "count"), UNITS)
def test_a_node_takes_as_many_as_the_plan_says_and_not_one_more(
    scheduler: Scheduler, pool: str, resource: str, count: int
) -> None:
    node = f"{pool}-0"
    where, tolerations = {"kubernetes.io/hostname": node}, tolerations_of(pool)
    unit = {"cpu": "100m", "memory": "128Mi", resource: "1"}
    assert scheduler.places(unit, tolerations, where, count) == [node] * count
    scheduler.refused(scheduler.ask(unit, tolerations, where), f"1 Insufficient {resource}")


@pytest.mark.parametrize("pool", [pool for pool, offer in OFFERED.items() if offer])
def test_slices_of_the_size_that_is_reported_fill_a_node_to_the_last_core(
    scheduler: Scheduler, bank: Loaded, pool: str
) -> None:
    node, reported = f"{pool}-0", pool_yield(bank.environment, pool, bank.tenants)
    where, tolerations = {"kubernetes.io/hostname": node}, tolerations_of(pool)

    def size(cpu: int, memory: int, **extended: str) -> dict[str, str]:
        return {"cpu": f"{cpu}m", "memory": f"{memory}Mi", **extended}

    assert scheduler.places(size(reported.daemonsets.cpu, reported.daemonsets.memory), tolerations, where) == [node]
    for unit in reported.units:
        slice_pod = size(unit.each.cpu, unit.each.memory, **{unit.resource: "1"})
        assert scheduler.places(slice_pod, tolerations, where, unit.count) == [node] * unit.count
    scheduler.refused(scheduler.ask(size(100, 1), tolerations, where), "1 Insufficient cpu")
    scheduler.refused(scheduler.ask(size(0, 128), tolerations, where), "1 Insufficient memory")


def test_the_open_pool_takes_576_gpus_and_the_efa_nodes_none_of_the_rest(scheduler: Scheduler) -> None:
    whole_node = {GPU: "8"}
    landed = scheduler.places(whole_node, [GPU_TOLERATION], count=72)
    assert set(landed) == {f"train-a100-{i}" for i in range(72)}
    one_more = scheduler.ask(whole_node, [GPU_TOLERATION])
    # The nodes without GPUs have no taint, and none of these.
    scheduler.refused(
        one_more, f"{72 + TOTAL - OF_GPUS} Insufficient {GPU}", f"{CLOSED} node(s) had untolerated taint(s)"
    )


def test_without_a_gpu_toleration_a_pod_lands_on_nodes_without_gpus_alone(scheduler: Scheduler) -> None:
    assert {name.rpartition("-")[0] for name in scheduler.places({"cpu": "100m"}, count=4)} == {"general"}
    on_gpus = scheduler.ask({"cpu": "100m"}, where={"nvidia.com/gpu.present": "true"})
    scheduler.refused(on_gpus, f"0/{TOTAL} nodes are available", f"{OF_GPUS} node(s) had untolerated taint(s)")


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/gpu.shared"])
def test_the_toleration_that_the_api_server_adds_opens_no_pool_of_slices(scheduler: Scheduler, resource: str) -> None:
    """It is keyed by the resource, and only whole GPUs have the key of the taint."""
    scheduler.refused(scheduler.ask({resource: "1"}), f"{OF_GPUS} node(s) had untolerated taint(s)")


@pytest.mark.parametrize(("pool", "resource"), RESTRICTED)
def test_a_restricted_pool_is_closed_to_pods_without_its_own_toleration(
    scheduler: Scheduler, pool: str, resource: str
) -> None:
    unit, selector = {resource: "1"}, {vocabulary.POOL: pool}
    foreign_pool = "notebooks" if pool != "notebooks" else "serve-mig"
    none = scheduler.ask(unit, [GPU_TOLERATION], selector)
    wrong = scheduler.ask(unit, [GPU_TOLERATION, pool_toleration(foreign_pool)], selector)
    scheduler.refused(none, f"{CLOSED} node(s) had untolerated taint(s)")
    scheduler.refused(wrong, f"{CLOSED - COUNTS[foreign_pool]} node(s) had untolerated taint(s)")
    (landed,) = scheduler.places(unit, tolerations_of(pool), selector)
    assert landed.startswith(f"{pool}-"), "the twin with both tolerations"


@pytest.mark.parametrize(
    ("pool", "resource"), [pool_and_resource for pool_and_resource in RESTRICTED if pool_and_resource[1] != GPU]
)
def test_the_toleration_of_a_pool_is_none_of_gpu_nodes(scheduler: Scheduler, pool: str, resource: str) -> None:
    """For whole GPUs the API server adds it."""
    unit, selector = {resource: "1"}, {vocabulary.POOL: pool}
    scheduler.refused(
        scheduler.ask(unit, [pool_toleration(pool)], selector), f"{OF_GPUS} node(s) had untolerated taint(s)"
    )


@pytest.mark.parametrize(
    ("pool", "resource"), [pool_and_resource for pool_and_resource in RESTRICTED if pool_and_resource[1] != GPU]
)
def test_slices_and_interfaces_lead_to_their_pool_without_a_selector(
    scheduler: Scheduler, pool: str, resource: str
) -> None:
    everything = [GPU_TOLERATION, *map(pool_toleration, COUNTS)]
    (landed,) = scheduler.places({resource: "1"}, everything)
    assert landed.startswith(f"{pool}-")


def test_a_pool_that_is_opened_admits_all_tenants_at_once(
    lab: Lab, api: LabApi, scheduler: Scheduler, bank: Loaded
) -> None:
    """Nodes that stand are changed, not only those that come."""
    waiting = scheduler.ask({"nvidia.com/mig-1g.5gb": "1"}, [GPU_TOLERATION])
    scheduler.refused(waiting, "untolerated taint(s)")
    pools = bank.environment.pools
    opened = pools["serve-mig"].model_copy(update={"tiers": ()})
    environment = bank.environment.model_copy(update={"pools": {**pools, "serve-mig": opened}})
    assert apply_nodes(fake_nodes(environment), lab) == {"written": 2, "removed": 0, "kept": TOTAL - 2}
    taints = [api.get(f"{NODES}/serve-mig-{i}")["spec"]["taints"] for i in range(2)]
    assert [[taint["key"] for taint in pool_taints] for pool_taints in taints] == [[GPU], [GPU]]
    (landed,) = scheduler.landed(waiting)
    assert landed.startswith("serve-mig-")


def test_every_sample_of_a_tenant_lands_in_the_pool_of_its_flavor(
    api: LabApi, scheduler: Scheduler, bank: Loaded
) -> None:
    """Through the tenant's real quota and limits: names of resources agree from the spec to the node."""
    plan = make_plan(bank, bank.day)
    expected: dict[str, str] = {}
    for priority_class in priority_classes(bank.environment):
        api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class, CREATE)
    for tenant in bank.tenants:
        for part in tenant.namespaces:
            where = tenant.namespace_name(part)
            flavors = [flavor for flavor, guaranteed in tenant.guaranteed_in(part).items() if guaranteed]
            samples = {flavor: sample("pod", bank.environment, tenant, part, {flavor: 1}) for flavor in flavors}
            if samples:
                expected |= {f"{where}/{flavor}": OWN_POOLS.get(where, HOMES)[flavor] for flavor in samples}
                make_namespace(api, plan, where)
                for flavor, pod in samples.items():
                    named_pod = {**pod, "metadata": {**pod["metadata"], "name": flavor.replace(".", "-")}}
                    api.request("POST", f"/api/v1/namespaces/{where}/pods", named_pod, CREATE)
    landed_pools = {}
    for key in expected:
        where, flavor = key.split("/")
        (landed,) = scheduler.landed([flavor.replace(".", "-")], f"/api/v1/namespaces/{where}/pods")
        landed_pools[key] = landed.rpartition("-")[0]
    assert len(expected) >= 20
    assert landed_pools == expected


def make_namespace(api: LabApi, plan: Any, name: str) -> None:
    (space,) = [s for tenant in plan.tenants for s in tenant.namespaces if s.name == name]
    api.request("POST", "/api/v1/namespaces", space.namespace, CREATE)
    for item in space.isolation:
        if item["kind"] in {"ResourceQuota", "LimitRange"}:
            api.request("POST", f"/api/v1/namespaces/{name}/{item['kind'].lower()}s", item, CREATE)
    until_clear(lambda: not _exists(api, f"/api/v1/namespaces/{name}/serviceaccounts/default"), f"{name} takes pods")
    quota = f"/api/v1/namespaces/{name}/resourcequotas/tenant"
    until_clear(lambda: not api.get(quota)["status"].get("used"), f"the quota of {name} counts")
