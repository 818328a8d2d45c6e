"""Instance types against EC2's own listing and against Karpenter's table of network interfaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import judges
import pytest

from tenancy.catalog.boards import BOARDS
from tenancy.catalog.instances import GENERAL, INSTANCES, NOT_NVIDIA, for_services
from tests.conftest import nonempty

OFF_EC2S_LIST = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p6e-gb200.36xlarge"}
OFF_KARPENTERS_TABLE = {"p6e-gb200.36xlarge"}
PARTS_OF_A_GPU = {name for name in INSTANCES if name.startswith(("g6f.", "gr6f."))}


@pytest.fixture(scope="module")
def karpenter_tables() -> Path:
    return judges.folder("tables-karpenter")


@pytest.fixture(scope="module")
def interfaces(karpenter_tables: Path) -> dict[str, tuple[int, int]]:
    """Pods and network cards by instance type."""
    text = (karpenter_tables / "zz_generated.vpclimits.go").read_text()
    interfaces_by_type = {}
    for name, body in re.findall(r'^\t"([^"]+)": \{\n(.*?)^\t\},', text, re.DOTALL | re.MULTILINE):

        def number(key: str, text: str = body) -> int:
            match = re.search(rf"\b{key}:\s*(\d+)", text)
            assert match, key
            return int(match.group(1))

        counts = re.findall(r"MaximumNetworkInterfaces:\s*(\d+),\s*NetworkCardIndex:\s*(\d+)", body)
        cards = {index: int(count) for count, index in counts}
        default = cards[str(number("DefaultNetworkCardIndex"))]
        interfaces_by_type[name] = default * (number("IPv4PerInterface") - 1) + 2, len(cards)
    return interfaces_by_type


@pytest.fixture(scope="module")
def listing() -> dict[str, Any]:
    return judges.ec2_types()


def test_every_type_is_in_karpenters_table_but_those_known_to_be_missing(
    interfaces: dict[str, tuple[int, int]],
) -> None:
    assert set(INSTANCES) - set(interfaces) == OFF_KARPENTERS_TABLE


@pytest.mark.parametrize("name", sorted(set(INSTANCES) - OFF_KARPENTERS_TABLE))
def test_pods_and_network_cards_are_karpenters(name: str, interfaces: dict[str, tuple[int, int]]) -> None:
    assert (INSTANCES[name].pods, INSTANCES[name].network_cards) == interfaces[name]


def test_every_type_with_nvidia_gpus_on_ec2s_list_is_known(listing: dict[str, Any]) -> None:
    sold = {
        name
        for name, info in listing.items()
        if any(gpu["Manufacturer"] == "NVIDIA" for gpu in info.get("GpuInfo", {}).get("Gpus", []))
    }
    assert sold - set(INSTANCES) == set()
    assert set(INSTANCES) - sold == OFF_EC2S_LIST


@pytest.mark.parametrize("name", sorted(set(INSTANCES) - OFF_EC2S_LIST))
def test_a_type_is_what_ec2_lists(name: str, listing: dict[str, Any]) -> None:
    info, instance = listing[name], INSTANCES[name]
    (gpu,) = info["GpuInfo"]["Gpus"]
    network = info["NetworkInfo"]
    architecture = {"x86_64": "amd64", "arm64": "arm64"}[info["ProcessorInfo"]["SupportedArchitectures"][0]]
    catalogued = {
        "gpus": instance.gpus,
        "vcpu": instance.vcpu,
        "memory": instance.memory * 1024,
        "efa": instance.efa,
        "nvme": instance.nvme,
        "cards": instance.network_cards,
        "architecture": instance.architecture,
    }
    listed_by_ec2 = {
        "gpus": gpu["LogicalGpuCount"],
        "vcpu": info["VCpuInfo"]["DefaultVCpus"],
        "memory": info["MemoryInfo"]["SizeInMiB"],
        "efa": (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
        "nvme": (info.get("InstanceStorageInfo") or {}).get("TotalSizeInGB", 0),
        "cards": network["MaximumNetworkCards"],
        "architecture": architecture,
    }
    assert catalogued == listed_by_ec2


@pytest.mark.parametrize("name", sorted(name for name in set(INSTANCES) - OFF_EC2S_LIST if INSTANCES[name].efa))
def test_an_interface_has_the_addresses_that_ec2_lists(name: str, listing: dict[str, Any]) -> None:
    assert INSTANCES[name].addresses == listing[name]["NetworkInfo"]["Ipv4AddressesPerInterface"]


@pytest.mark.parametrize("name", sorted(set(INSTANCES) - OFF_EC2S_LIST - PARTS_OF_A_GPU))
def test_a_types_board_is_the_gpu_that_ec2_lists(name: str, listing: dict[str, Any]) -> None:
    (gpu,) = listing[name]["GpuInfo"]["Gpus"]
    assert BOARDS[INSTANCES[name].gpu].memory_mib == gpu["MemoryInfo"]["SizeInMiB"]
    slug = gpu["Name"].lower().replace(" server", "").replace(" ", "-")
    assert INSTANCES[name].gpu.startswith(slug)


@pytest.mark.parametrize("name", GENERAL)
def test_a_type_without_gpus_is_what_ec2_and_karpenter_list(
    name: str, listing: dict[str, Any], interfaces: dict[str, tuple[int, int]]
) -> None:
    info, instance = listing[name], GENERAL[name]
    assert (instance.gpus, instance.gpu, instance.nvme) == (0, "", 0)
    assert instance.vcpu == info["VCpuInfo"]["DefaultVCpus"]
    assert instance.memory * 1024 == info["MemoryInfo"]["SizeInMiB"]
    assert (instance.pods, instance.network_cards) == interfaces[name]
    assert {"x86_64": "amd64", "arm64": "arm64"}[
        info["ProcessorInfo"]["SupportedArchitectures"][0]
    ] == instance.architecture


@pytest.mark.parametrize("name", INSTANCES)
def test_an_instances_board_is_known(name: str) -> None:
    assert INSTANCES[name].gpu in BOARDS


@pytest.mark.parametrize("name", [name for name, instance in INSTANCES.items() if not instance.unsupported])
def test_a_type_that_makes_a_pool_is_known_in_full(name: str) -> None:
    instance = INSTANCES[name]
    assert instance.gpus
    assert instance.pods


def test_the_types_that_make_no_pool_say_why() -> None:
    families = {name.split(".")[0] for name, instance in INSTANCES.items() if instance.unsupported}
    assert families == {"g6f", "gr6f", "g7", "p6e-gb200"}


def test_only_the_p3_families_are_old() -> None:
    assert {name.split(".")[0] for name, instance in INSTANCES.items() if instance.old} == {"p3", "p3dn"}


def test_only_graviton_and_grace_are_arm() -> None:
    arm = {name.split(".")[0] for name, instance in INSTANCES.items() if instance.architecture == "arm64"}
    assert arm == {"g5g", "p6e-gb200"}


def test_who_makes_accelerators_is_told_by_a_types_name(listing: dict[str, Any]) -> None:
    """Nothing else is known of a type that the catalog does not list; its sibling is no typing error of it."""
    others = {"FpgaInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo", "NeuronInfo"}
    assert {name for name, facts in listing.items() if others & facts.keys()} <= set(filter(NOT_NVIDIA.match, listing))
    assert not [name for name, facts in listing.items() if "GpuInfo" in facts and NOT_NVIDIA.match(name)]
    assert not list(filter(NOT_NVIDIA.match, (*INSTANCES, *GENERAL)))


def test_what_keeps_services_off_a_type_is_what_ec2_lists(listing: dict[str, Any]) -> None:
    for name, info in nonempty(listing.items()):
        machines = info["ProcessorInfo"]["SupportedArchitectures"]
        misfit = for_services(name) or ""
        assert ("arm64" in misfit) == ("arm64" in machines), name
        if "no room" in misfit:
            has_one_cpu = info["VCpuInfo"]["DefaultVCpus"] == 1
            assert has_one_cpu or info["MemoryInfo"]["SizeInMiB"] <= 4096, f"{name} would hold them"
