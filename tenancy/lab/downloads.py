"""The release route: a file from its publisher, kept only if it matches the publisher's checksum."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import urllib.parse
import zipfile
from pathlib import Path
from typing import IO

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from tenancy.http_client import HttpClient, Redirected

from .progress import Progress
from .recipes import Checksums, LabTool, ReleaseArchive

CONNECT = 4.0  # seconds to connect: a host that drops packets is tried once and abandoned soon
STALL = 30.0
BLOCK = 1 << 18


class RouteError(Exception):
    """The reason why a route failed, and what would make it work."""

    def __init__(
        self,
        reason: str,
        remedy: str | None = None,
        hosts: tuple[str, ...] = (),
        go: tuple[int, ...] = (),
        loud: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.hosts = hosts  # that would have to be reachable
        self.go = go  # the Go version that would be needed
        self.loud = loud  # reported at once, even if another route works


class Downloads:
    """The downloads of one run, with the hosts that did not answer and the archives fetched so far."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._client = HttpClient(STALL, connect_timeout=CONNECT, other_hosts=True)
        self._dead: dict[str, str] = {}
        self._archives: dict[str, Path] = {}

    def fetch_tool(self, tool: LabTool, work: Path, target: Path) -> None:
        """Write the tool to `target`; `work` contains archives that several tools of a family share."""
        if isinstance(tool.release, str):
            raise RouteError(tool.release)
        archive = self._archives.get(tool.release.url)
        if archive is None or not archive.exists():
            archive = work / tool.release.filename
            expected = self._expected(tool.release)
            self._download(tool, tool.release.url, archive)
            actual = _sha256(archive)
            if actual != expected:
                archive.unlink()
                raise RouteError(
                    f"{tool.release.url} is refused: its SHA-256 is {actual}, its publisher says {expected}",
                    "look into the checksum mismatch before you trust that host or a proxy before it",
                    loud=True,
                )
            self._archives[tool.release.url] = archive
        if tool.release.member is None:
            archive.replace(target)
        else:
            _extract(archive, tool.release.member, target)

    def _expected(self, release: ReleaseArchive) -> str:
        reasons: list[RouteError] = []
        for checksums in release.checksums:
            try:
                text = self._read(checksums.url)
            except RouteError as failed:
                reasons.append(failed)
                continue
            value = checksum(text, checksums, release.filename)
            if value:
                return value
            reasons.append(RouteError(f"{checksums.url} has no SHA-256 of {release.filename}"))
        raise RouteError(
            "; ".join(dict.fromkeys(r.reason for r in reasons)),
            hosts=tuple(host for r in reasons for host in r.hosts),
        )

    def _read(self, url: str) -> str:
        with self._open(url) as response:
            return _block(response, url, 1 << 24).decode("utf-8", "replace")

    def _download(self, tool: LabTool, url: str, target: Path) -> None:
        host = urllib.parse.urlsplit(url).netloc or "a file"
        text = f"{tool}: downloading from {host}"
        since = self._progress.begin(text)
        bytes_read = 0
        with self._open(url) as response, target.open("wb") as out:
            while block := _block(response, url, BLOCK):
                out.write(block)
                bytes_read += len(block)
                self._progress.tick(f"{text}, {bytes_read / 1e6:.0f} MB", since)

    def _open(self, url: str) -> IO[bytes] | BaseHTTPResponse:
        host = urllib.parse.urlsplit(url).netloc
        if host in self._dead:
            raise RouteError(self._dead[host], hosts=(host,))
        try:
            if not host:
                return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).open("rb")
            response = self._client.open("GET", url, headers={"User-Agent": "gpu-tenancy"})
        except Redirected as error:
            raise RouteError(f"{error}, without encryption") from error
        except OSError as error:
            if not host:
                raise RouteError(f"{url} cannot be read ({error})") from error
            self._dead[host] = f"{host} cannot be reached ({error})"
            raise RouteError(self._dead[host], hosts=(host,)) from error
        if response.status != 200:
            response.close()
            raise RouteError(f"{url} answers {response.status} {response.reason}")
        return response


def _block(response: IO[bytes] | BaseHTTPResponse, url: str, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, HTTPError) as error:
        raise RouteError(f"{url} broke off ({error})", "try again") from error


def checksum(text: str, source: Checksums, filename: str) -> str | None:
    """The SHA-256 of `filename` in a publisher's checksum file; shorter hashes are ignored."""
    value = ""
    if source.format == "bare":
        value = next(iter(text.split()), "")
    elif source.format == "list":
        for fields in map(str.split, text.splitlines()):
            if len(fields) == 2 and fields[1].lstrip("*").removeprefix("./") == filename:
                value = fields[0]
    elif source.format == "github":
        try:
            assets = json.loads(text)["assets"]
            value = next((a["digest"] or "" for a in assets if a["name"] == filename), "")
        except (ValueError, KeyError, TypeError):
            return None
        value = value.removeprefix("sha256:")
    else:
        raise ValueError(f"unknown checksum format {source.format!r}: one of list, bare, github")
    return value.lower() if re.fullmatch(r"[0-9A-Fa-f]{64}", value) else None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _extract(archive: Path, member: str, target: Path) -> None:
    """Extract one member; nothing else of the archive is written to disk."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as packed, packed.open(member) as stream, target.open("wb") as out:
                shutil.copyfileobj(stream, out)
            return
        with tarfile.open(archive) as packed:
            stream = packed.extractfile(member)
            if stream is None:
                raise KeyError(member)
            with stream, target.open("wb") as out:
                shutil.copyfileobj(stream, out)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise RouteError(f"{archive.name} has no file {member} ({error})") from error
