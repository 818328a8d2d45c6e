"""Room that a machine has for pods, against the numbers that Karpenter publishes."""

from __future__ import annotations

import pytest

from tenancy.catalog.instances import INSTANCES, Instance
from tenancy.catalog.nodes import (
    DAEMONSETS,
    Addon,
    Provisioner,
    Resources,
    allocatable,
    cpu_reserve,
    daemonset_reserve,
    pods,
    visible_memory,
)

SUPPORTED = [name for name, instance in INSTANCES.items() if not instance.unsupported]


# karpenter-provider-aws `website/content/en/preview/reference/instance-types.md`: Resources of each type. The page
# takes a root volume of 20 GiB and no local disks.
@pytest.mark.parametrize(
    ("name", "cpu", "memory", "admitted"),
    [
        ("p3.2xlarge", 7910, 56786, 58),
        ("p3.8xlarge", 31850, 228187, 234),
        ("p3.16xlarge", 63770, 459304, 234),
        ("p3dn.24xlarge", 95690, 718987, 737),
        ("p4d.24xlarge", 95690, 1082712, 737),
        ("p5.48xlarge", 191450, 1938410, 100),
    ],
)
def test_what_is_left_is_what_karpenter_publishes(name: str, cpu: int, memory: int, admitted: int) -> None:
    instance = INSTANCES[name]
    room = allocatable(instance, pods(instance, "karpenter"))
    assert (room.cpu, room.memory, room.pods) == (cpu, memory, admitted)


def test_graviton_loses_64_mib_more_as_karpenter_publishes() -> None:
    a1_xlarge = Instance("t4g", 0, 4, 8, 0, 0, 58, architecture="arm64")
    room = allocatable(a1_xlarge, 58)
    assert (room.cpu, room.memory) == (3920, 6525)


def test_a_root_volume_of_20_gib_leaves_17() -> None:
    instance = INSTANCES["g5g.xlarge"]
    assert not instance.nvme
    assert allocatable(instance, 58).ephemeral == 17 * 1024
    assert allocatable(instance, 58, root_gib=200).ephemeral == 200 * 1024 * 9 // 10 - 1024


def test_local_disks_count_in_place_of_the_root_volume() -> None:
    instance = INSTANCES["p5.48xlarge"]
    room = allocatable(instance, 100, root_gib=20).ephemeral
    assert room == allocatable(instance, 100, root_gib=2000).ephemeral
    assert 0.89 < room * 2**20 / (instance.nvme * 10**9) < 0.9


# nodeadm and Karpenter: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
@pytest.mark.parametrize(("vcpu", "reserve"), [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310), (192, 550)])
def test_the_kubelet_keeps_less_of_each_further_core(vcpu: int, reserve: int) -> None:
    assert cpu_reserve(vcpu) == reserve


@pytest.mark.parametrize(
    ("name", "provisioner", "admitted"),
    [
        ("g5.4xlarge", "managed", 110),
        ("g5.4xlarge", "karpenter", 234),
        ("g5.12xlarge", "managed", 250),
        ("g5.12xlarge", "karpenter", 737),
        ("p5.48xlarge", "managed", 100),
        ("p5.48xlarge", "karpenter", 100),
        ("g4dn.xlarge", "managed", 29),
    ],
)
def test_managed_groups_cap_pods_and_karpenter_does_not(name: str, provisioner: Provisioner, admitted: int) -> None:
    assert pods(INSTANCES[name], provisioner) == admitted


def test_a_cap_on_pods_frees_no_memory() -> None:
    instance = INSTANCES["g5.12xlarge"]
    assert allocatable(instance, 250).memory == allocatable(instance, 737).memory, "nodeadm reserves before it caps"


@pytest.mark.parametrize("name", SUPPORTED)
def test_pods_get_less_than_the_machine_has_and_never_nothing(name: str) -> None:
    instance = INSTANCES[name]
    room = allocatable(instance, pods(instance, "managed"))
    assert 0 < room.cpu < instance.vcpu * 1000
    assert 0 < room.memory < visible_memory(instance) < instance.memory * 1024
    assert room.ephemeral > 0


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_daemonset_fits_on_every_type_with_room_for_tenants(name: str) -> None:
    instance = INSTANCES[name]
    room, reserve = allocatable(instance, pods(instance, "managed")), daemonset_reserve(Addon)
    assert reserve.cpu < room.cpu
    assert reserve.memory < room.memory
    assert reserve.pods < room.pods


def test_a_cluster_pays_only_for_its_own_addons() -> None:
    assert daemonset_reserve([]) == Resources()
    assert daemonset_reserve([Addon.EFA]) == Resources(cpu=10, memory=20, pods=1)
    assert daemonset_reserve([Addon.VPC_CNI, Addon.KUBE_PROXY]) == Resources(cpu=150, memory=0, pods=2)


def test_an_addon_that_requests_nothing_still_takes_a_pod() -> None:
    assert daemonset_reserve([Addon.POD_IDENTITY]) == Resources(pods=1)


def test_naming_an_addon_twice_counts_it_once() -> None:
    assert daemonset_reserve([Addon.EFA, Addon.EFA]) == daemonset_reserve([Addon.EFA])


def test_every_addon_puts_a_pod_on_a_node() -> None:
    assert {daemonset.addon for daemonset in DAEMONSETS.values()} == set(Addon)


@pytest.mark.parametrize("name", DAEMONSETS)
def test_a_daemonset_names_its_source(name: str) -> None:
    assert DAEMONSETS[name].source


@pytest.mark.parametrize(
    ("name", "expected_pods"),
    [
        ("p4d.24xlarge", 688),
        ("p5.48xlarge", 51),
        ("p5en.48xlarge", 149),
        ("p6-b300.48xlarge", 198),
        ("g6.8xlarge", 205),
    ],
)
def test_an_interface_for_efa_alone_takes_the_addresses_of_pods(name: str, expected_pods: int) -> None:
    assert pods(INSTANCES[name], "karpenter", efa=True) == expected_pods
