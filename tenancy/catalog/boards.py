"""GPU boards and the MIG layouts that fit on one.

A layout is a count per profile on one board. Sources are named beside each board; what they share:

- guide: NVIDIA MIG user guide r610 (supported profiles, placements) and r620 (driver floors), read 2026-11-20;
- mig-parted: NVIDIA/mig-parted v0.15.0 `deployments/systemd/config-default.yaml` (device ids) and
  `pkg/mig/builder/builder_test.go` (most instances of each profile), read 2026-11-20;
- nvml-mock: NVIDIA/k8s-test-infra `pkg/gpu/mocknvml/configs/*.mig.yaml` (placements), read 2026-11-20;
- EC2: DescribeInstanceTypes (memory of a board), as moto 5.2.5 keeps it (2026-10-27).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Profile:
    """One MIG profile: the units of a board that one instance takes, how many fit, and where they may start."""

    compute: int
    """Compute slices."""
    memory: int
    """Memory units, contiguous."""
    most: int
    """Number that fits on an empty board."""
    starts: tuple[int, ...]
    """Memory units at which an instance may start."""
    engines: int = 0
    """Sets of media engines (decoder, encoder, JPEG) taken, where the board has too few for every layout."""
    extension: int = 0
    """1 where it takes the optical flow unit, of which a board has one: `+me` means it."""


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU as EC2 sells it. Without profiles it can only be used whole or time-sliced."""

    memory_mib: int
    """Memory as EC2 or the driver states it; the driver reserves some of it."""
    architecture: str
    source: str
    date: str
    """When the source was read."""
    compute_slices: int = 0
    memory_units: int = 0
    engines: int = 0
    """Sets of media engines, where they are scarce; 0: a layout that fits otherwise never runs out of them."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    """PCI ids, as mig-parted's `device-filter` takes them; empty: not published."""
    driver: str = ""
    """The first driver with MIG on this board."""


def _board(names: str, memory_mib: int, architecture: str, driver: str, devices: str, source: str) -> Board:
    """A board of seven slices. All have one geometry: 8 memory units, of which 1g profiles never start at the last.

    `names` in this order: 1g, 1g with double memory, 2g, 3g, 4g, 7g.
    """
    single, double, two, three, four, seven = names.split()
    profiles = {
        single: Profile(1, 1, 7, (0, 1, 2, 3, 4, 5, 6)),
        single + "+me": Profile(1, 1, 1, (0, 1, 2, 3, 4, 5, 6), extension=1),
        double: Profile(1, 2, 4, (0, 2, 4, 6)),
        two: Profile(2, 2, 3, (0, 2, 4)),
        three: Profile(3, 4, 2, (0, 4)),
        four: Profile(4, 4, 1, (0,)),
        seven: Profile(7, 8, 1, (0,), extension=1),
    }
    return Board(
        memory_mib,
        architecture,
        source,
        "2026-11-20",
        compute_slices=7,
        memory_units=8,
        profiles=MappingProxyType(profiles),
        devices=tuple(devices.split()),
        driver=driver,
    )


def _unpartitioned(memory_mib: int, architecture: str, source: str = "EC2") -> Board:
    return Board(memory_mib, architecture, source, "2026-11-20")


_QUARTERS = (0, 1, 2, 3)
_HALVES = (0, 2)

_A30 = {
    "1g.6gb": Profile(1, 1, 4, _QUARTERS),
    "1g.6gb+me": Profile(1, 1, 1, _QUARTERS, extension=1),
    "2g.12gb": Profile(2, 2, 2, _HALVES),
    "2g.12gb+me": Profile(2, 2, 1, _HALVES, extension=1),
    "4g.24gb": Profile(4, 4, 1, (0,), extension=1),
}

# Engines and extension are the NVDEC and OFA columns of the guide's table. `+me.all` takes all four sets, so only
# `-me` slices fit beside it. Starts are the A30's: the guide prints none for this board, and sums do not need them.
_RTX_PRO_6000 = {
    "1g.24gb": Profile(1, 1, 4, _QUARTERS, engines=1),
    "1g.24gb+me": Profile(1, 1, 1, _QUARTERS, engines=1, extension=1),
    "1g.24gb+gfx": Profile(1, 1, 4, _QUARTERS, engines=1),
    "1g.24gb+me.all": Profile(1, 1, 1, _QUARTERS, engines=4, extension=1),
    "1g.24gb-me": Profile(1, 1, 4, _QUARTERS),
    "2g.48gb": Profile(2, 2, 2, _HALVES, engines=2),
    "2g.48gb+gfx": Profile(2, 2, 2, _HALVES, engines=2),
    "2g.48gb+me.all": Profile(2, 2, 1, _HALVES, engines=4, extension=1),
    "2g.48gb-me": Profile(2, 2, 2, _HALVES),
    "4g.96gb": Profile(4, 4, 1, (0,), engines=4, extension=1),
    "4g.96gb+gfx": Profile(4, 4, 1, (0,), engines=4, extension=1),
}

BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        "a100-40gb": _board(
            "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
            40960,
            "ampere",
            "450.80.02",
            "0x20B010DE 0x20B110DE 0x20F110DE",
            "guide, mig-parted, EC2",
        ),
        "a100-80gb": _board(
            "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            81920,
            "ampere",
            "450.80.02",
            "0x20B210DE 0x20B510DE 0x20F310DE 0x20F510DE",
            "guide, mig-parted, EC2",
        ),
        "h100-80gb": _board(
            "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            81920,
            "hopper",
            "525.85.12",
            "0x233010DE 0x233110DE",
            "guide, mig-parted, nvml-mock, EC2",
        ),
        "h200-141gb": _board(
            "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
            144384,
            "hopper",
            "550.90.07",
            "0x233510DE 0x233B10DE",
            "guide, mig-parted, EC2",
        ),
        "b200-180gb": _board(
            "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
            183359,
            "blackwell",
            "570.133.20",
            "0x290110DE",
            "guide, mig-parted, nvml-mock, EC2",
        ),
        "b300-269gb": _board(
            # Names: gpu-operator v26.7.0 `assets/state-mig-manager/0400_configmap.yaml`. Placements as on B200.
            "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
            275040,
            "blackwell",
            "580.82.07",
            "0x318210DE",
            "gpu-operator, EC2",
        ),
        "gb200-186gb": _board(
            # Older drivers say 1g.24gb, 3g.95gb, 4g.95gb and 7g.189gb (mig-parted's static table still does).
            "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb",
            189471,
            "blackwell",
            "570.133.20",
            "0x294110DE",
            "guide, nvml-mock; memory as nvidia-smi prints it",
        ),
        "gb300-278gb": _board(
            # The guide has no table of it: names and placements are nvml-mock's.
            "1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb",
            284208,
            "blackwell",
            "595.58.03",
            "0x31C210DE",
            "gpu-operator, nvml-mock; memory as nvidia-smi prints it",
        ),
        "rtx-pro-6000": Board(
            98304,
            "blackwell",
            "guide, mig-parted, EC2",
            "2026-11-20",
            compute_slices=4,
            memory_units=4,
            engines=4,
            profiles=MappingProxyType(_RTX_PRO_6000),
            devices=("0x2BB510DE",),
            driver="575.51.03",
        ),
        "a30-24gb": Board(
            24576,
            "ampere",
            "guide, mig-parted; not sold by EC2",
            "2026-11-20",
            compute_slices=4,
            memory_units=4,
            profiles=MappingProxyType(_A30),
            devices=("0x20B710DE",),
            driver="460.73.01",
        ),
        # Partitionable (2 instances, from driver 575.64), but the guide prints no profile table of it: NVIDIA's vGPU
        # pages name 1g.16gb and 2g.32gb, neither their media variants nor how many fit. Whole GPUs until it does.
        "rtx-pro-4500": _unpartitioned(32768, "blackwell"),
        "l40s": _unpartitioned(45776, "ada"),
        "l4": _unpartitioned(22888, "ada"),
        "a10g": _unpartitioned(22888, "ampere"),
        "t4g": _unpartitioned(16384, "turing"),
        "t4": _unpartitioned(16384, "turing"),
        "v100-32gb": _unpartitioned(32768, "volta"),
        "v100-16gb": _unpartitioned(16384, "volta", "EC2, as moto 4.2.14 keeps it"),
    }
)
"""Keyed by board and never by profile alone: `1g.10gb` is two different slices on two boards.

The memory in a key is that of the full MIG profile, or the one NVIDIA sells the board by.
"""

PRODUCTS: Mapping[str, str] = {
    # As nvidia-smi prints them on machines with that board; NVML gives the driver the same words.
    "a100-40gb": "NVIDIA A100-SXM4-40GB",
    "a100-80gb": "NVIDIA A100-SXM4-80GB",
    "a10g": "NVIDIA A10G",
    "a30-24gb": "NVIDIA A30",
    "b200-180gb": "NVIDIA B200",
    "b300-269gb": "NVIDIA B300 SXM6 AC",
    "gb200-186gb": "NVIDIA GB200",
    "gb300-278gb": "NVIDIA GB300",
    "h100-80gb": "NVIDIA H100 80GB HBM3",
    "h200-141gb": "NVIDIA H200",
    "l4": "NVIDIA L4",
    "l40s": "NVIDIA L40S",
    "rtx-pro-4500": "NVIDIA RTX PRO 4500 Blackwell Server Edition",
    "rtx-pro-6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "t4": "Tesla T4",
    "t4g": "NVIDIA T4G",
    "v100-16gb": "Tesla V100-SXM2-16GB",
    "v100-32gb": "Tesla V100-SXM2-32GB",
}
"""The driver's name of each board: its attribute `productName`."""


def _limits(board: Board) -> tuple[tuple[str, str, int], ...]:
    """Resources that the slices of a layout share: field of Profile, its name in messages, amount of a board."""
    limits = [("memory", "memory", board.memory_units), ("compute", "compute", board.compute_slices)]
    if board.engines:
        limits.append(("engines", "media engines", board.engines))
    return (*limits, ("extension", "media extension", 1))


def layout_misfit(board: str, layout: Mapping[str, int]) -> str | None:
    """Why a MIG layout does not fit on one board, with the sums; None when it fits.

    Sums and counts together accept exactly what an exhaustive placement search accepts.
    """
    spec = BOARDS[board]
    unknown = sorted(set(layout) - set(spec.profiles))
    if unknown:
        profile_names = ", ".join(spec.profiles) or "none, it cannot be partitioned"
        return f"{board} has no profile {', '.join(unknown)}; its profiles: {profile_names}"
    for name, count in layout.items():
        if count > spec.profiles[name].most:
            return f"{count} x {name}: at most {spec.profiles[name].most} fit on {board}"
    for attribute, resource, limit in _limits(spec):
        parts = [part for name, n in layout.items() for part in [getattr(spec.profiles[name], attribute)] * n if part]
        if sum(parts) > limit:
            return f"{resource} {' + '.join(map(str, parts))} = {sum(parts)} of {limit} units on {board}"
    return None


@cache
def feasible_layouts(board: str) -> tuple[tuple[int, ...], ...]:
    """Every layout that fits and is not empty, as counts in the order of the board's profiles."""
    rows: list[tuple[int, ...]] = [()]
    names = tuple(BOARDS[board].profiles)
    for name in names:
        # A layout that does not fit does not fit with more slices either, so it is dropped here.
        longer = ((*row, count) for row in rows for count in range(BOARDS[board].profiles[name].most + 1))
        rows = [row for row in longer if not layout_misfit(board, dict(zip(names, row, strict=False)))]
    return tuple(row for row in rows if any(row))


@cache
def maximal_layouts(board: str) -> tuple[tuple[int, ...], ...]:
    """The feasible layouts to which no slice can be added."""
    feasible = set(feasible_layouts(board))

    def grown(counts: tuple[int, ...]) -> bool:
        return any((*counts[:i], count + 1, *counts[i + 1 :]) in feasible for i, count in enumerate(counts))

    return tuple(counts for counts in feasible_layouts(board) if not grown(counts))


def nearest_layouts(board: str, layout: Mapping[str, int], count: int = 3) -> list[dict[str, int]]:
    """Layouts that fit, nearest first: fewest slices added or taken, then big slices kept, then the board used up.

    Profiles that the board does not have are ignored; a layout of only such profiles has no nearest layout.
    """
    names = tuple(BOARDS[board].profiles)
    profiles = tuple(BOARDS[board].profiles.values())
    wanted_counts = tuple(layout.get(name, 0) for name in names)
    if not any(wanted_counts):
        return []

    def rank(counts: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        changes = tuple(have - want for have, want in zip(counts, wanted_counts, strict=True))
        memory_loss = sum(-change * p.memory**2 for change, p in zip(changes, profiles, strict=True) if change < 0)
        used = sum(have * (p.compute + p.memory) for have, p in zip(counts, profiles, strict=True))
        return sum(map(abs, changes)), memory_loss, -used, tuple(-have for have in counts)

    nearest = sorted(feasible_layouts(board), key=rank)[:count]
    return [{name: have for name, have in zip(names, counts, strict=True) if have} for counts in nearest]


def fitting_layouts(board: str, layout: Mapping[str, int], count: int = 3) -> list[dict[str, int]]:
    """Layouts to propose instead of one that does not fit: with every kind of slice that it has, if there are such.

    A profile of another board stands for the plain one of this board with as many compute slices.
    """
    profiles = BOARDS[board].profiles
    plain_of: dict[str, str] = {}
    for name in profiles:
        plain_of.setdefault(name.partition(".")[0], name)
    wanted: Counter[str] = Counter()
    if layout.keys() <= profiles.keys():
        wanted.update(layout)
    else:
        for name, number in layout.items():
            if alike := plain_of.get(name.partition(".")[0]):
                wanted[alike] += number
    nearest = nearest_layouts(board, wanted, len(feasible_layouts(board)))
    with_every_kind = [candidate for candidate in nearest if wanted.keys() <= candidate.keys()]
    return sorted(with_every_kind or nearest, key=lambda candidate: len(candidate.keys() - wanted.keys()))[:count]


def share_of(board: str, profile: str) -> Fraction:
    """The part of a board that one slice takes away from others: the larger of its compute and its memory share."""
    spec = BOARDS[board]
    slice_ = spec.profiles[profile]
    return max(Fraction(slice_.compute, spec.compute_slices), Fraction(slice_.memory, spec.memory_units))


def balanced(board: str) -> dict[str, int]:
    """mig-parted's layout `all-balanced`: one half of each kind; empty for a board without profiles."""
    counts = {1: 2, 2: 1, 3: 1} if BOARDS[board].compute_slices == 7 else {1: 2, 2: 1}
    layout: dict[str, int] = {}
    for name, profile in BOARDS[board].profiles.items():
        plain = not {"+", "-"} & set(name)
        # The plain 1g comes before the one with double memory in every table.
        if plain and profile.compute in counts:
            layout[name] = counts.pop(profile.compute)
    return layout


def write_layout(layout: Mapping[str, int]) -> str:
    """A layout in a message or a table: `4 x 1g.5gb + 1 x 3g.20gb`."""
    return " + ".join(f"{count} x {name}" for name, count in layout.items() if count)


def similar(name: str) -> list[str]:
    """The boards that a name may mean, such as H100, NVIDIA-A100-SXM4-80GB or Tesla-V100; none if it means none."""
    import difflib  # only on the way to a message

    words = re.findall(r"[a-z0-9]+", name.lower())
    by_model = [board for board in BOARDS if board.partition("-")[0] in words]
    by_memory = [
        board for board in by_model if {memory := board.rpartition("-")[2], memory.removesuffix("gb")} & {*words}
    ]
    return by_memory or by_model or difflib.get_close_matches("-".join(words), BOARDS, n=1)
