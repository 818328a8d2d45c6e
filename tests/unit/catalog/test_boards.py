"""Boards and their profiles against the tables their makers print."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tenancy.catalog.boards import BOARDS, balanced, layout_misfit, nearest_layouts, share_of, write_layout
from tests.conftest import every, nonempty

PARTITIONABLE = [name for name, board in BOARDS.items() if board.profiles]
SEVEN = [name for name in PARTITIONABLE if BOARDS[name].compute_slices == 7]

# mig-parted `pkg/mig/builder/builder_test.go`: most instances of each profile. B300, GB200 and GB300: gpu-operator
# `assets/state-mig-manager/0400_configmap.yaml` and nvml-mock.
PUBLISHED = {
    "a30-24gb": "1g.6gb 4, 1g.6gb+me 1, 2g.12gb 2, 2g.12gb+me 1, 4g.24gb 1",
    "a100-40gb": "1g.5gb 7, 1g.5gb+me 1, 1g.10gb 4, 2g.10gb 3, 3g.20gb 2, 4g.20gb 1, 7g.40gb 1",
    "a100-80gb": "1g.10gb 7, 1g.10gb+me 1, 1g.20gb 4, 2g.20gb 3, 3g.40gb 2, 4g.40gb 1, 7g.80gb 1",
    "h100-80gb": "1g.10gb 7, 1g.10gb+me 1, 1g.20gb 4, 2g.20gb 3, 3g.40gb 2, 4g.40gb 1, 7g.80gb 1",
    "h200-141gb": "1g.18gb 7, 1g.18gb+me 1, 1g.35gb 4, 2g.35gb 3, 3g.71gb 2, 4g.71gb 1, 7g.141gb 1",
    "b200-180gb": "1g.23gb 7, 1g.23gb+me 1, 1g.45gb 4, 2g.45gb 3, 3g.90gb 2, 4g.90gb 1, 7g.180gb 1",
    "b300-269gb": "1g.34gb 7, 1g.34gb+me 1, 1g.67gb 4, 2g.67gb 3, 3g.135gb 2, 4g.135gb 1, 7g.269gb 1",
    "gb200-186gb": "1g.23gb 7, 1g.23gb+me 1, 1g.47gb 4, 2g.47gb 3, 3g.93gb 2, 4g.93gb 1, 7g.186gb 1",
    "gb300-278gb": "1g.35gb 7, 1g.35gb+me 1, 1g.70gb 4, 2g.70gb 3, 3g.139gb 2, 4g.139gb 1, 7g.278gb 1",
    "rtx-pro-6000": (
        "1g.24gb 4, 1g.24gb+me 1, 1g.24gb+gfx 4, 1g.24gb+me.all 1, 1g.24gb-me 4, "
        "2g.48gb 2, 2g.48gb+gfx 2, 2g.48gb+me.all 1, 2g.48gb-me 2, 4g.96gb 1, 4g.96gb+gfx 1"
    ),
}

# The NVDEC and OFA columns of the MIG user guide's table of the RTX PRO 6000 Blackwell.
ENGINES = {
    "1g.24gb": (1, 0),
    "1g.24gb+me": (1, 1),
    "1g.24gb+gfx": (1, 0),
    "1g.24gb+me.all": (4, 1),
    "1g.24gb-me": (0, 0),
    "2g.48gb": (2, 0),
    "2g.48gb+gfx": (2, 0),
    "2g.48gb+me.all": (4, 1),
    "2g.48gb-me": (0, 0),
    "4g.96gb": (4, 1),
    "4g.96gb+gfx": (4, 1),
}

# nvml-mock `mock-nvml-config-{h100,b200,gb300}.mig.yaml`: {start}:size of a board of seven slices, in memory units.
PLACEMENTS = [
    (1, ((0, 1, 2, 3, 4, 5, 6), 1)),
    (1, ((0, 1, 2, 3, 4, 5, 6), 1)),
    (1, ((0, 2, 4, 6), 2)),
    (2, ((0, 2, 4), 2)),
    (3, ((0, 4), 4)),
    (4, ((0,), 4)),
    (7, ((0,), 8)),
]


def test_every_board_with_profiles_has_a_published_table() -> None:
    assert set(PUBLISHED) == set(PARTITIONABLE)


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_as_many_instances_fit_as_the_makers_table_says(board: str) -> None:
    catalogued = ", ".join(f"{name} {profile.most}" for name, profile in BOARDS[board].profiles.items())
    assert catalogued == PUBLISHED[board]


@pytest.mark.parametrize("board", SEVEN)
def test_boards_of_seven_slices_place_their_instances_alike(board: str) -> None:
    profiles = BOARDS[board].profiles.values()
    assert [(p.compute, (p.starts, p.memory)) for p in profiles] == PLACEMENTS


def test_media_engines_of_the_rtx_pro_6000_are_the_guides() -> None:
    profiles = BOARDS["rtx-pro-6000"].profiles
    assert {name: (p.engines, p.extension) for name, p in profiles.items()} == ENGINES


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_a_profiles_name_tells_its_compute_slices(board: str) -> None:
    for name, profile in BOARDS[board].profiles.items():
        assert name.startswith(f"{profile.compute}g."), name


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_a_slice_never_leaves_its_board(board: str) -> None:
    catalogued_board = BOARDS[board]
    for name, profile in nonempty(catalogued_board.profiles.items()):
        assert max(profile.starts) + profile.memory <= catalogued_board.memory_units, name


GUIDE = {
    # NVIDIA MIG user guide, release 620, "Deployment considerations", read 2026-11-23. Older releases have A100's and
    # H100's the other way round.
    "a100-40gb": "450.80.02",
    "a100-80gb": "450.80.02",
    "a30-24gb": "460.73.01",
    "h100-80gb": "525.85.12",
    "h200-141gb": "550.90.07",
    "b200-180gb": "570.133.20",
    "gb200-186gb": "570.133.20",
    "b300-269gb": "580.82.07",
    "rtx-pro-6000": "575.51.03",
    "gb300-278gb": "595.58.03",
}


def test_the_first_driver_of_each_board_is_the_guides() -> None:
    assert {name: board.driver for name, board in BOARDS.items() if board.profiles} == GUIDE


@pytest.mark.parametrize("board", PARTITIONABLE)
def test_a_board_that_can_be_partitioned_names_its_driver_and_devices(board: str) -> None:
    assert BOARDS[board].driver
    assert every(device.startswith("0x") and device.endswith("10DE") for device in BOARDS[board].devices)
    assert BOARDS[board].devices


def test_a_pci_device_is_one_board() -> None:
    devices = [device for board in BOARDS.values() for device in board.devices]
    assert len(devices) == len(set(devices)), "device-filter would pick two layouts for one GPU"


@pytest.mark.parametrize("board", [name for name in BOARDS if name not in PARTITIONABLE])
def test_a_board_without_profiles_says_so(board: str) -> None:
    misfit = layout_misfit(board, {"1g.5gb": 1})
    assert misfit
    assert "none, it cannot be partitioned" in misfit


def test_one_profile_name_is_two_slices_on_two_boards() -> None:
    assert layout_misfit("a100-80gb", {"1g.10gb": 7}) is None
    assert layout_misfit("a100-40gb", {"1g.10gb": 7}) == "7 x 1g.10gb: at most 4 fit on a100-40gb"


def test_a_misfit_shows_the_sum_slice_by_slice() -> None:
    misfit = layout_misfit("a100-40gb", {"3g.20gb": 2, "1g.5gb": 1})
    assert misfit == "memory 4 + 4 + 1 = 9 of 8 units on a100-40gb"


def test_a_misfit_names_the_profiles_a_board_has() -> None:
    misfit = layout_misfit("a30-24gb", {"1g.5gb": 1})
    assert misfit
    assert misfit.startswith("a30-24gb has no profile 1g.5gb; its profiles: 1g.6gb, ")


@pytest.mark.parametrize(
    ("board", "layout", "fits"),
    [
        ("a100-40gb", {"3g.20gb": 2}, True),
        ("a100-40gb", {"4g.20gb": 1, "3g.20gb": 1}, True),
        ("a100-40gb", {"1g.5gb+me": 1, "1g.5gb": 6}, True),
        ("a100-40gb", {"1g.5gb+me": 1, "1g.5gb": 7}, False),
        ("a100-40gb", {"1g.5gb+me": 2}, False),
        ("a100-40gb", {"7g.40gb": 1, "1g.5gb": 1}, False),
        ("a30-24gb", {"1g.6gb": 2, "2g.12gb": 1}, True),
        ("a30-24gb", {"1g.6gb+me": 1, "2g.12gb+me": 1}, False),
        ("rtx-pro-6000", {"1g.24gb+me.all": 1, "1g.24gb-me": 3}, True),
        ("rtx-pro-6000", {"1g.24gb+me.all": 1, "1g.24gb": 1}, False),
        ("rtx-pro-6000", {"1g.24gb+gfx": 2, "2g.48gb+gfx": 1}, True),
    ],
)
def test_a_layout_fits_or_not(board: str, layout: dict[str, int], fits: bool) -> None:
    assert (layout_misfit(board, layout) is None) is fits


def test_two_media_extensions_are_refused_for_the_one_optical_flow_unit() -> None:
    misfit = layout_misfit("a30-24gb", {"1g.6gb+me": 1, "2g.12gb+me": 1})
    assert misfit == "media extension 1 + 1 = 2 of 1 units on a30-24gb"


@pytest.mark.parametrize(
    ("layout", "nearest"),
    [
        ({"3g.20gb": 2, "1g.5gb": 1}, {"3g.20gb": 2}),
        ({"1g.5gb": 9}, {"1g.5gb": 7}),
        ({"7g.40gb": 1, "1g.5gb": 1}, {"7g.40gb": 1}),
        ({"3g.20gb": 2, "9g.90gb": 1}, {"3g.20gb": 2}),
    ],
)
def test_the_nearest_layout_keeps_the_big_slices(layout: dict[str, int], nearest: dict[str, int]) -> None:
    assert nearest_layouts("a100-40gb", layout)[0] == nearest


def test_nothing_is_near_to_profiles_that_a_board_lacks() -> None:
    assert nearest_layouts("a100-80gb", {"1g.5gb": 7}) == []
    assert nearest_layouts("t4", {"1g.5gb": 7}) == []


@pytest.mark.parametrize(
    ("board", "profile", "share"),
    [
        ("a100-40gb", "1g.5gb", Fraction(1, 7)),
        ("a100-40gb", "1g.10gb", Fraction(1, 4)),
        ("a100-40gb", "2g.10gb", Fraction(2, 7)),
        ("a100-40gb", "3g.20gb", Fraction(1, 2)),
        ("a100-40gb", "4g.20gb", Fraction(4, 7)),
        ("a100-40gb", "7g.40gb", Fraction(1)),
        ("rtx-pro-6000", "2g.48gb", Fraction(1, 2)),
    ],
)
def test_a_slices_share_is_the_larger_of_compute_and_memory(board: str, profile: str, share: Fraction) -> None:
    assert share_of(board, profile) == share


# mig-parted and gpu-operator: `all-balanced`.
@pytest.mark.parametrize(
    ("board", "layout"),
    [
        ("a100-40gb", {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        ("a100-80gb", {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
        ("h100-80gb", {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
        ("h200-141gb", {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}),
        ("b200-180gb", {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1}),
        ("gb200-186gb", {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1}),
        ("rtx-pro-6000", {"1g.24gb": 2, "2g.48gb": 1}),
        ("a30-24gb", {"1g.6gb": 2, "2g.12gb": 1}),
        ("t4", {}),
    ],
)
def test_the_balanced_layout_is_mig_parteds(board: str, layout: dict[str, int]) -> None:
    assert balanced(board) == layout


def test_a_layout_reads_as_counts() -> None:
    assert write_layout({"1g.5gb": 4, "2g.10gb": 0, "3g.20gb": 1}) == "4 x 1g.5gb + 1 x 3g.20gb"
