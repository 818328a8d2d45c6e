"""Datasets and models by name and version.

    datasets/<name>/<version>/<path>            the files
    datasets/<name>/.claims/<version>           claim of the uploader; never removed, so no version is used twice
    datasets/<name>/.manifests/<version>        files, sizes, SHA-256; written last: without it there is no version
    datasets/<name>/.aliases/<alias>            the version that an alias such as 'production' points to

Every race is decided by S3's conditional writes, never by a clock.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gpu_tenancy_s3.client import Prefix, Stored
from gpu_tenancy_s3.errors import BadName, Corrupt, Exists, NotFound, Refused, WriteConflict
from gpu_tenancy_s3.keys import safe_key

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
VERSION = re.compile(r"v[1-9][0-9]{0,8}|[0-9]{4}-[0-9]{2}-[0-9]{2}(-[1-9][0-9]{0,3})?", re.ASCII)
FILES_MOST = 100_000
"""Maximum number of files of a version: its manifest stays under 32 MiB, and training on more files is slow anyway."""
MANIFEST_MOST = 64 * 2**20
"""Bytes."""


class File(NamedTuple):
    """A file of a manifest: its path below the folder, size and checksum."""

    path: str
    size: int
    """Bytes."""
    sha256: str


class VersionRecord(NamedTuple):
    """A complete version."""

    name: str
    version: str
    created: str
    """UTC, by the uploader's clock; for information only."""
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class VersionedObjects:
    """Versioned items, one folder of a prefix for each kind. Use Datasets or Models."""

    kind = ""

    def __init__(self, prefix: Prefix) -> None:
        self._root = prefix.within(self.kind)

    def names(self) -> list[str]:
        """Names of the artifacts."""
        return [entry.key.rstrip("/") for entry in self._root.list(recursive=False) if entry.is_folder]

    def upload(self, name: str, source: str | os.PathLike[str], version: str | None = None) -> VersionRecord:
        """Upload a folder, or one file, as a version of its own: the next number if none is given.

        Exists if the version was ever claimed, also by a broken or deleted upload. Links to files are refused: their
        targets may be no data. After an error the version stays claimed and incomplete; delete_version clears it.
        """
        place, longest = self._place(name), _version("v999999999" if version is None else version)
        files = _files(Path(source))
        for path in files:
            safe_key(f"{place.prefix}{longest}/", path)
        version = self._claim(place, version)
        inner = place.within(version)
        stored = _together(lambda path: inner.put(path, files[path], if_absent=True), files, place.workers)
        files_of_version = tuple(
            File(path, uploaded.size, uploaded.sha256 or "") for path, uploaded in zip(files, stored, strict=True)
        )
        manifest = VersionRecord(name, version, datetime.now(UTC).isoformat(timespec="seconds"), files_of_version)
        place.put(f".manifests/{version}", _manifest_bytes(manifest), if_absent=True)
        if self._deleted(place, version):
            place.delete(f".manifests/{version}")
            raise WriteConflict(
                f"{name} {version} was deleted while it was uploaded; change: upload it again as a new one"
            )
        return manifest

    def versions(self, name: str) -> list[str]:
        """The complete versions, oldest first: v9 before v10, numbers before dates."""
        return sorted(_versions_in(self._place(name), ".manifests"), key=_order)

    def latest(self, name: str) -> str:
        """The highest complete version, whenever it was uploaded. NotFound if there is none."""
        if versions := self.versions(name):
            return versions[-1]
        raise NotFound(f"{self.kind}/{name} has no complete version; change: look at names()")

    def promoted(self, name: str, alias: str = "production") -> str:
        """The version that an alias points to. NotFound if nothing was promoted to it."""
        return self._alias(self._place(name), alias)[0]

    def manifest(self, name: str, version: str = "latest") -> VersionRecord:
        """version: one, 'latest' or an alias."""
        if version == "latest":
            version = self.latest(name)
        elif not VERSION.fullmatch(version):
            version = self.promoted(name, version)
        place = self._place(name)
        return _parsed(place.read(f".manifests/{_version(version)}", limit=MANIFEST_MOST), name, version)

    def download(self, name: str, version: str = "latest", *, to: str | os.PathLike[str]) -> VersionRecord:
        """All files of a version into the new folder `to`, which appears whole and verified or not at all."""
        target = Path(to)
        if target.exists():
            raise Exists(f"{target} exists already; change: name a new folder, which is created")
        manifest = self.manifest(name, version)
        inner = self._place(name).within(manifest.version)
        stage = target.with_name(f".{secrets.token_hex(8)}.part")

        def fetch(file: File) -> Stored:
            path = stage / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            return inner.get(file.path, path, sha256=file.sha256)

        try:
            stage.mkdir(parents=True)
            _together(fetch, manifest.files, inner.workers)
            try:
                stage.rename(target)
            except OSError as error:
                raise Exists(f"{target} was created by another process meanwhile; change: name a new folder") from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return manifest

    def promote(self, name: str, version: str, to: str = "production", *, instead_of: str | None = None) -> str | None:
        """Point an alias to a version; return the version before, or None.

        WriteConflict if another promotion comes in between, or if `instead_of` is given and is not the version before.
        """
        place = self._place(name)
        place.stat(f".manifests/{_version(version)}")
        before = etag = None
        with suppress(NotFound):
            before, etag = self._alias(place, to)
        if instead_of not in {None, before}:
            raise WriteConflict(f"{to} of {name} is {before}, not {instead_of}; change: look at it, then promote again")
        key, body = f".aliases/{to}", json.dumps({"version": version}).encode()
        try:
            alias_entry = place.put(key, body, if_absent=etag is None, if_match=etag)
        except Exists as error:
            raise WriteConflict(f"{to} of {name} was promoted by another client; change: look at it first") from error
        if self._deleted(place, version):  # deletion marks before it reads aliases: one of the two sees the other
            if before is None:
                place.delete(key, if_match=alias_entry.etag)
            else:
                place.put(key, json.dumps({"version": before}).encode(), if_match=alias_entry.etag)
            raise WriteConflict(f"{name} {version} was deleted while it was promoted; change: promote another")
        return before

    def delete_version(self, name: str, version: str) -> None:
        """Delete a version's files, also those of a broken upload; its number is not given again.

        Refused while an alias points to it. An interrupted deletion is finished by calling it again.
        """
        place, claim = self._place(name), f".claims/{_version(version)}"
        before = place.stat(claim)
        self._refuse_promoted(place, name, version)
        mark = json.dumps({"deleted": secrets.token_hex(16)}).encode()  # no two marks have one ETag
        marked = place.put(claim, mark, if_match=before.etag)
        try:
            self._refuse_promoted(place, name, version)
        except Refused:
            place.put(claim, b'{"kept": true}', if_match=marked.etag)
            raise
        place.delete(f".manifests/{version}")
        inner = place.within(version)
        _together(inner.delete, [entry.key for entry in inner.list()], inner.workers)

    def _place(self, name: str) -> Prefix:
        if not NAME.fullmatch(name):
            rule = "a name has up to 63 of a-z, 0-9, '.', '_', '-', with a letter or digit at both ends"
            raise BadName(repr(name), rule, "write it like 'fraud-transactions'")
        return self._root.within(name)

    def _claim(self, place: Prefix, version: str | None) -> str:
        claimed = _versions_in(place, ".claims")
        numbers = [int(claim[1:]) for claim in claimed if claim.startswith("v")]
        dated = (not numbers and bool(claimed)) if version is None else not version.startswith("v")
        if (version is None and dated) or (claimed and dated == bool(numbers)):
            rule = f"versions of one name are all numbers or all dates: here is {claimed[0]}"
            raise BadName(repr(version), rule, "give the next one of that kind")
        number = max(numbers, default=0) + 1
        while True:
            claimed_version = version or f"v{number}"
            try:
                place.put(f".claims/{claimed_version}", b"{}", if_absent=True)
            except Exists as error:
                if version:
                    change = "upload a new version: none is written twice"
                    raise Exists(f"{place.prefix}{version} was claimed before; change: {change}") from error
                number += 1
            else:
                return claimed_version

    def _deleted(self, place: Prefix, version: str) -> bool:
        return b"deleted" in place.read(f".claims/{version}")

    def _alias(self, place: Prefix, alias: str) -> tuple[str, str]:
        """Version and ETag."""
        if not NAME.fullmatch(alias) or alias == "latest" or VERSION.fullmatch(alias):
            rule = "an alias is a slug that is no version and not 'latest'"
            raise BadName(repr(alias), rule, "write it like 'production'")
        body, stored = place.read_stored(f".aliases/{alias}")
        try:
            version = json.loads(body)["version"]
            return _version(version), stored.etag
        except (ValueError, KeyError, TypeError, BadName) as error:
            raise Corrupt(f"{place.prefix}.aliases/{alias} is no alias; change: promote again") from error

    def _refuse_promoted(self, place: Prefix, name: str, version: str) -> None:
        for entry in place.list(".aliases"):
            alias = entry.key.rpartition("/")[2]
            if self._alias(place, alias)[0] == version:
                raise Refused(f"{name} {version}", f"{alias} points to it", f"promote another version to {alias} first")


class Datasets(VersionedObjects):
    """datasets/<name>/<version>/… of a prefix."""

    kind = "datasets"


class Models(VersionedObjects):
    """models/<name>/<version>/… of a prefix."""

    kind = "models"


def _version(version: str) -> str:
    rule, change = "a version is 'v' and a number, or a date with an optional number", "write v3, 2026-01-31, …-2"
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise BadName(repr(version), rule, change)
    if version[0] != "v":
        try:
            date.fromisoformat(version[:10])
        except ValueError as error:
            raise BadName(f"{version!r} ({error})", rule, change) from error
    return version


def _versions_in(place: Prefix, folder: str) -> list[str]:
    names_in_folder = (entry.key.rpartition("/")[2] for entry in place.list(folder))
    return [version for version in names_in_folder if VERSION.fullmatch(version)]


def _order(version: str) -> tuple[bool, list[int]]:
    return version[:1] != "v", [int(number) for number in re.findall("[0-9]+", version)]


def _together(act: Callable[[Any], Any], things: Iterable[Any], workers: int) -> list[Any]:
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(act, thing) for thing in things]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _files(source: Path) -> dict[str, Path]:
    """Keys and files, in order."""
    if source.is_file():
        return {source.name: source}
    paths_by_key: dict[str, Path] = {}
    for folder, subfolders, names in os.walk(source):
        for name in sorted({*names, *subfolders}):
            path = Path(folder, name)
            if path.is_symlink() or (name in names and not path.is_file()):
                change = "put the file itself there: the content of a link or a device may be no data"
                raise Refused(str(path), "only plain files and folders are uploaded", change)
            if name in names:
                paths_by_key[path.relative_to(source).as_posix()] = path
    if not 0 < len(paths_by_key) <= FILES_MOST:
        change = "name a folder with files; pack small ones into archives"
        raise Refused(f"{source} with {len(paths_by_key)} files", f"a version has 1 to {FILES_MOST} files", change)
    return dict(sorted(paths_by_key.items()))


def _manifest_bytes(manifest: VersionRecord) -> bytes:
    fields = manifest._asdict() | {"files": [file._asdict() for file in manifest.files]}
    return json.dumps({"format": 1} | fields).encode()


def _parsed(body: bytes, name: str, version: str) -> VersionRecord:
    """Parse a manifest as untrusted input: any writer of the prefix can write one, and its paths become local files."""
    try:
        fields = json.loads(body)
        files = tuple(
            File(str(file_fields["path"]), int(file_fields["size"]), str(file_fields["sha256"]))
            for file_fields in fields["files"]
        )
        is_same_version = fields["format"] == 1 and (fields["name"], fields["version"]) == (name, version)
        for file in files:
            safe_key("manifest/", file.path)
        if is_same_version and files and all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files):
            return VersionRecord(name, version, str(fields["created"]), files)
    except (ValueError, KeyError, TypeError, Refused) as error:
        raise Corrupt(f"the manifest of {name} {version} is damaged ({error}); change: upload a new version") from error
    raise Corrupt(f"the manifest of {name} {version} is another's or damaged; change: upload a new version")
