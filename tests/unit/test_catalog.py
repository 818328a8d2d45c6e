from __future__ import annotations

import pytest

from tenancy.catalog.gpus import BOARDS, INSTANCES, allocatable, layout_misfit, resource_name


@pytest.mark.parametrize("name", INSTANCES)
def test_an_instances_board_is_known(name: str) -> None:
    assert INSTANCES[name].gpu in BOARDS


@pytest.mark.parametrize("name", INSTANCES)
def test_pods_get_less_than_the_machine_has(name: str) -> None:
    left, instance = allocatable(INSTANCES[name]), INSTANCES[name]
    assert int(left["cpu"].removesuffix("m")) < instance.vcpu * 1000
    assert int(left["memory"].removesuffix("Mi")) < instance.memory * 1024


@pytest.mark.parametrize(
    ("profile", "shared", "name"),
    [
        (None, False, "nvidia.com/gpu"),
        (None, True, "nvidia.com/gpu.shared"),
        ("1g.5gb", False, "nvidia.com/mig-1g.5gb"),
        ("1g.5gb+me", False, "nvidia.com/mig-1g.5gb.me"),
    ],
)
def test_a_flavor_is_an_extended_resource(profile: str | None, shared: bool, name: str) -> None:
    assert resource_name(profile, shared) == name


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        ({"3g.20gb": 2}, True),
        ({"3g.20gb": 2, "1g.5gb": 1}, False),
        ({"1g.10gb": 4}, True),
        ({"1g.10gb": 5}, False),
        ({"1g.5gb+me": 1, "1g.5gb": 6}, True),
        ({"1g.5gb+me": 2}, False),
        ({"7g.40gb": 1, "1g.5gb": 1}, False),
        ({"4g.20gb": 1, "3g.20gb": 1}, True),
    ],
)
def test_a_layout_fits_or_not(layout: dict[str, int], fits: bool) -> None:
    assert (layout_misfit("a100-40gb", layout) is None) is fits


def test_one_profile_name_is_two_slices_on_two_boards() -> None:
    assert layout_misfit("a100-80gb", {"1g.10gb": 7}) is None
    assert layout_misfit("a100-40gb", {"1g.10gb": 7})
