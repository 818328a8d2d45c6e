"""A folder of spec files, written by an editor or mounted by kubelet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

DATA = "..data"
"""The link that kubelet replaces when the content of a volume changes (`pkg/volume/util/atomic_writer.go`)."""


class SpecFolder:
    """A folder of spec files, and where its entries are read.

    kubelet mounts a ConfigMap, a Secret and a projected volume as links: `tenants -> ..data/tenants`, where `..data`
    leads to a folder beside it, `..2026_11_27_16_00_00.1`, and is replaced as one. These links alone are followed, and
    all of them to the folder that `..data` named at first: files of one moment.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._volumes: dict[Path, Path | None] = {}

    def source(self, path: Path) -> Path:
        """Path behind kubelet's links, else the path itself."""
        place = self.folder
        for name in path.relative_to(self.folder).parts:
            if place not in self._volumes:
                self._volumes[place] = _volume(place)
            volume = self._volumes[place]
            linked = volume and _target(place / name) == f"{DATA}/{name}"
            place = (volume if volume and linked else place) / name
        return place

    def entries(self, *below: str) -> Iterator[Path]:
        """Sources of the entries of the folder, or of one below it, in the order of their names."""
        home = self.folder.joinpath(*below)
        yield from (self.source(home / name) for name in sorted(os.listdir(self.source(home))))  # noqa: PTH208 - names


def _volume(folder: Path) -> Path | None:
    """The folder with the content of a mounted volume; None for an ordinary folder."""
    target = _target(folder / DATA)
    # A name alone: what it leads to is in the folder itself.
    if not target.startswith("..") or target == ".." or "/" in target:
        return None
    volume = folder / target
    return volume if volume.is_dir() and not volume.is_symlink() else None


def _target(link: Path) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - a Path would drop a slash at the end
    except OSError:
        return ""
