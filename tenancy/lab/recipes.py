"""tools.toml as objects: the tools, their versions and their sources."""

from __future__ import annotations

import hashlib
import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PACKAGE_FOLDER = Path(__file__).parent
VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)")


@dataclass(frozen=True)
class HostPlatform:
    """Operating system and architecture, named as Go names them."""

    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}/{self.arch}"

    @classmethod
    def current(cls) -> HostPlatform:
        """The operating system and processor of this machine, as Go names them."""
        machine = platform.machine().lower()
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
        return cls(platform.system().lower(), arch)


@dataclass(frozen=True)
class Checksums:
    """URL of a release's checksums, and their format."""

    format: str  # list | bare | github: see tools.toml
    url: str


@dataclass(frozen=True)
class ReleaseArchive:
    """A file of a release with its checksums."""

    url: str
    checksums: tuple[Checksums, ...]
    member: str | None  # None: the downloaded file is the tool

    @property
    def filename(self) -> str:
        """Last segment of the URL."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class LabTool:
    """A program that the lab needs, and the ways to get it."""

    name: str
    version: str
    family: str
    folder: Path  # the family's Go module
    platform: HostPlatform
    release: ReleaseArchive | str  # a text: the reason why there is none
    ask: tuple[str, ...] = ()
    leader: str | None = None
    optional: bool = False
    symbols: tuple[tuple[str, str], ...] = ()
    package: str | None = None
    module: str | None = None
    copy: str | None = None
    embed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @property
    def filename(self) -> str:
        """Name of the program's file."""
        return Path(self.copy).name if self.copy else self.name

    @property
    def release_key(self) -> str:
        """Version and platform, which name the file's checksum."""
        return f"{self.version}-{self.platform.os}-{self.platform.arch}"

    @cached_property
    def build_key(self) -> str:
        """Changes with anything that a build depends on, so that a moved pin builds again."""
        recipe = hashlib.sha256(repr((self.symbols, self.package, self.module, self.copy, self.embed)).encode())
        for file in module_files(self.folder):
            recipe.update(file.name.encode() + b"\0" + file.read_bytes())
        return f"{self.release_key}-{recipe.hexdigest()[:10]}"

    @property
    def ldflags(self) -> str:
        """Linker flags of the build, which set the version."""
        return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in self.symbols)])


def module_files(folder: Path) -> list[Path]:
    """The files of a family that a build depends on."""
    return sorted(p for p in folder.glob("*") if p.name in ("go.mod", "go.sum") or p.suffix == ".go")


def load(
    file: Path = PACKAGE_FOLDER / "tools.toml", folders: Path = PACKAGE_FOLDER / "go", on: HostPlatform | None = None
) -> dict[str, LabTool]:
    """The lab's tools by name, from their table and Go modules."""
    on = on or HostPlatform.current()
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        name: _tool(name, row, family, families, folders / family, on)
        for family, families in table.items()
        for name, row in families["tools"].items()
    }


def _tool(
    name: str, row: Mapping[str, Any], family: str, family_facts: Mapping[str, Any], folder: Path, on: HostPlatform
) -> LabTool:
    version = family_facts["version"]
    major, minor, _ = version.split(".", 2)
    symbols = family_facts.get("symbols", {})
    return LabTool(
        name=name,
        version=version,
        family=family,
        folder=folder,
        platform=on,
        release=_release(name, row, family_facts, on),
        ask=tuple(row.get("ask", ())),
        leader=row.get("beside"),
        optional=row.get("optional", False),
        symbols=tuple((k, v.format(version=version, major=major, minor=minor)) for k, v in symbols.items()),
        package=row.get("package"),
        module=row.get("module"),
        copy=row.get("copy"),
        embed=tuple(row.get("embed", ())),
    )


def _release(
    name: str, row: Mapping[str, Any], family_facts: Mapping[str, Any], on: HostPlatform
) -> ReleaseArchive | str:
    release = family_facts["release"]
    if isinstance(release, str):
        return release
    if str(on) not in row.get("platforms", release["platforms"]):
        return f"nothing is published for {on}"
    words = {
        "version": family_facts["version"],
        "tool": name,
        "os": on.os,
        "arch": release.get("arch", {}).get(on.arch, on.arch),
        "ext": release.get("ext", {}).get(on.os, ""),
    }
    member = row.get("member")
    return ReleaseArchive(
        url=release["file"].format(**words),
        checksums=tuple(Checksums(c["format"], c["url"].format(**words)) for c in release["checksums"]),
        member=member.format(**words) if member else None,
    )
