"""Objects of one prefix: list, read, write, copy, and share by signed URL."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import os
import re
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from gpu_tenancy_s3.errors import CONFLICT, Corrupt, NoClient, Refused, S3Error, TooLarge, Unreachable, translated
from gpu_tenancy_s3.keys import check_bucket, check_prefix, safe_folder, safe_key

MIB = 2**20
GIB = 2**30
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART_LEAST, PART_MOST, PARTS = 5 * MIB, 5 * GIB, 10_000
COPY_MOST = 5 * GIB
"""Maximum size of one CopyObject, in bytes."""
COPY_PART = GIB
READ_MOST = 16 * MIB
PRESIGN_MOST = 3600
"""Seconds. The URL works without an identity, and cannot be revoked."""
_CHUNK = MIB
_MD5 = re.compile("[0-9a-f]{32}")
_ACTIONS = {
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "copy_object": "s3:GetObject of the source or s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_objects_v2": "s3:ListBucket",
    "upload_part_copy": "s3:GetObject of the source or s3:PutObject",
}

Source = bytes | str | os.PathLike[str] | IO[bytes]
"""A str is a path, never content."""


class Entry(NamedTuple):
    """One object of a list, or one folder of a list that is not recursive."""

    key: str
    """Relative to the prefix; a folder's ends with '/'."""
    size: int
    """Bytes; 0 of a folder."""
    etag: str
    """With its quotes, as `if_match` takes it; empty of a folder."""
    modified: datetime | None
    """With its time zone, by S3's clock; None of a folder."""

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a common prefix and not an object."""
        return self.modified is None


class Stored(NamedTuple):
    """One object as it was written or read."""

    key: str
    size: int
    """Bytes."""
    etag: str
    sha256: str | None
    """Hexadecimal, of all bytes; None after a copy in parts, whose bytes stayed in S3."""
    checked: str
    """The checksum that was compared: sha256, crc32 or md5. 'size': S3 had no checksum that can be computed here."""


class Prefix:
    """The objects under one prefix of one bucket, which is all that a tenant's role reaches.

    A convenience, not a security boundary: IAM decides on the role's rights. All keys are relative to `prefix`. Errors
    are those of gpu_tenancy_s3.errors. One Prefix may be used by many threads.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        client: Any = None,
        *,
        kms_key: str | None = None,
        owner: str | None = None,
        region: str | None = None,
        attempts: int = 5,
        part_size: int = 16 * MIB,
        workers: int = 4,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Sends nothing.

        client: boto3's S3 client. Default: created at the first request, with `region` and `attempts`.
        kms_key: ARN of the key for written objects. Default: the bucket's default encryption.
        owner: account number that must own the bucket: a bucket of that name elsewhere gets nothing. Default: any.
        attempts: number of tries of one request, the first included, and of breaks in a row of one body.
        part_size: bytes; larger objects are uploaded in parts, `workers` at once: workers + 2 parts are in memory.
        pause: function that waits the given number of seconds.
        """
        if not PART_LEAST <= part_size <= PART_MOST:
            raise Refused(f"part_size {part_size}", "a part has 5 MiB to 5 GiB", "leave it at 16 MiB")
        if attempts < 1 or workers < 1:
            raise Refused(f"attempts {attempts}, workers {workers}", "both are at least 1", "leave them out")
        self.bucket, self.prefix = check_bucket(bucket), check_prefix(prefix)
        self.attempts, self.part_size, self.workers = attempts, part_size, workers
        self._owner, self._pause = owner, pause
        self._sealed = (
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key, "BucketKeyEnabled": True} if kms_key else {}
        )
        self._connect = cache(lambda: client or _client(region, attempts))

    def __repr__(self) -> str:
        return f"Prefix({self.bucket!r}, {self.prefix!r})"

    def within(self, folder: str) -> Prefix:
        """The prefix of a folder below this one; stor-01 applies to the folder too."""
        inner = copy.copy(self)
        inner.prefix = check_prefix(f"{self.prefix}{folder.removesuffix('/')}/")
        return inner

    def list(self, under: str = "", *, recursive: bool = True) -> Iterator[Entry]:
        """All objects under a folder in the order of their keys, read page by page. Not recursive: only its own objects
        and folders.

        Keys of other tools are listed as they are, also keys that `get` refuses.
        """
        arguments = {"Prefix": safe_folder(self.prefix, under)} | ({} if recursive else {"Delimiter": "/"})
        return self._pages(arguments)  # not a generator itself: an unsafe folder is refused at the call

    def stat(self, key: str) -> Entry:
        """The entry of one object. NotFound if it does not exist."""
        head = self._ask("head_object", self._full(key))
        return Entry(key, head["ContentLength"], head["ETag"], head["LastModified"])

    def get(self, key: str, to: str | os.PathLike[str] | IO[bytes], *, sha256: str | None = None) -> Stored:
        """Stream an object to a path, which appears whole or not at all, or to a file open in binary mode.

        A broken body is continued from the break, with the same ETag; WriteConflict if the object has another by then.
        Corrupt if size, S3's checksum or `sha256` (hexadecimal) differ; a file object already has the bytes by then.
        """
        full = self._full(key)
        if not isinstance(to, str | os.PathLike):
            return self._stream(key, full, to, sha256)
        target = Path(to)
        part = target.with_name(f".{secrets.token_hex(8)}.part")  # the same folder: a rename across disks is none
        try:
            with part.open("xb") as file:
                stored = self._stream(key, full, file, sha256)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return stored

    def read(self, key: str, *, limit: int = READ_MOST) -> bytes:
        """A small object. TooLarge over `limit` bytes, before any of them is read."""
        return self.read_stored(key, limit=limit)[0]

    def read_stored(self, key: str, *, limit: int = READ_MOST) -> tuple[bytes, Stored]:
        """As `read`, with the ETag that a conditional write needs."""
        file = io.BytesIO()
        stored = self._stream(key, self._full(key), file, None, limit)
        return file.getvalue(), stored

    def put(
        self,
        key: str,
        source: Source,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> Stored:
        """Write an object atomically; a failed upload leaves no parts behind.

        if_absent: Exists if the key is taken. if_match: an ETag; WriteConflict if the present object has another one.
        S3 compares SHA-256, or CRC-32 of an upload in parts, before the object can be read.
        """
        full, condition = self._full(key), _condition(if_absent, if_match)
        # Read back by a HEAD, it tells our write, whose answer was lost, from another client's.
        writer = secrets.token_hex(16)
        about = {"ContentType": content_type, "Metadata": {"writer": writer}} | self._sealed
        with _opened(source) as (file, size):
            pieces = _pieces(file, max(self.part_size, -(-size // PARTS)))
            first, second = next(pieces, b""), next(pieces, None)
            if second is None:
                digest = hashlib.sha256(first)
                proof = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": base64.b64encode(digest.digest()).decode()}
                etag = self._put_whole(full, writer, {"Body": first} | about | condition | proof)
                return Stored(key, len(first), etag, digest.hexdigest(), "sha256")
            sha, crc, total = hashlib.sha256(), 0, 0

            def counted() -> Iterator[bytes]:
                nonlocal crc, total
                for piece in chain([first, second], pieces):
                    sha.update(piece)
                    crc, total = zlib.crc32(piece, crc), total + len(piece)
                    yield piece

            def send(piece: bytes, part: dict[str, Any]) -> dict[str, Any]:
                return self._ask("upload_part", full, Body=piece, **part, **_crc(zlib.crc32(piece)))

            def totals() -> dict[str, Any]:
                return {"MpuObjectSize": total} | _crc(crc) | condition

            etag = self._in_parts(full, counted(), send, about, totals, writer)
            return Stored(key, total, etag, sha.hexdigest(), "crc32")

    def copy(self, key: str, to: str, *, origin: Prefix | None = None) -> Stored:
        """Copy inside S3, from `origin` if given: a prefix that the caller may read. Tags are not copied.

        WriteConflict if the source is written meanwhile. An object over 5 GiB is copied in parts.
        """
        origin = origin or self
        source, target = origin._full(key), self._full(to)
        if (origin.bucket, source) == (self.bucket, target):
            raise Refused(repr(to), "a copy goes to another key", "choose another key")
        head = origin._ask("head_object", source)
        size = head["ContentLength"]
        where = {
            "CopySource": {"Bucket": origin.bucket, "Key": source},
            "CopySourceIfMatch": head["ETag"],
            **({"ExpectedSourceBucketOwner": origin._owner} if origin._owner else {}),
        }
        if size <= COPY_MOST:
            # Tags replaced by none: copying them needs two actions more than reading and writing do.
            arguments = where | self._sealed | {"ChecksumAlgorithm": "SHA256", "TaggingDirective": "REPLACE"}
            result = self._ask("copy_object", target, **arguments)["CopyObjectResult"]
            sha = result.get("ChecksumSHA256")
            return Stored(to, size, result["ETag"], base64.b64decode(sha).hex() if sha else None, "sha256")
        step = max(COPY_PART, -(-size // PARTS))
        ranges = (f"bytes={at}-{min(at + step, size) - 1}" for at in range(0, size, step))
        writer = secrets.token_hex(16)
        about = {"ContentType": head["ContentType"], "Metadata": head["Metadata"] | {"writer": writer}} | self._sealed

        def send(piece: str, part: dict[str, Any]) -> dict[str, Any]:
            return self._ask("upload_part_copy", target, CopySourceRange=piece, **part, **where)["CopyPartResult"]

        etag = self._in_parts(target, ranges, send, about, lambda: {"MpuObjectSize": size}, writer)
        return Stored(to, size, etag, None, "crc32")

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete an object; S3 does not tell whether it existed. if_match: an ETag; WriteConflict if it differs."""
        self._ask("delete_object", self._full(key), **_condition(False, if_match))

    def presign(self, key: str, method: Literal["GET", "PUT"] = "GET", expires: int = 900) -> str:
        """A URL for one object, valid for `expires` seconds, at most 3,600, and no longer than the role's session.

        With a `kms_key`, a PUT must send the headers that the URL names as signed.
        """
        full = self._full(key)
        if method not in {"GET", "PUT"}:
            raise Refused(repr(method), "a URL is signed for GET or PUT", "use another method of Prefix")
        if not 1 <= expires <= PRESIGN_MOST:
            raise Refused(f"{expires} s", f"a signed URL lives 1 to {PRESIGN_MOST} s", "sign again when it is needed")
        arguments = {"Bucket": self.bucket, "Key": full} | (self._sealed if method == "PUT" else {})
        with translated(f"s3:{method.capitalize()}Object", self._where(full), arguments):
            return self._connect().generate_presigned_url(f"{method.lower()}_object", arguments, ExpiresIn=expires)

    def _full(self, key: str) -> str:
        return safe_key(self.prefix, key)

    def _where(self, full: str) -> str:
        return f"s3://{self.bucket}/{full}"

    def _ask(self, method: str, full: str | None, **arguments: Any) -> Any:
        arguments |= {"Bucket": self.bucket} | ({"Key": full} if full else {})
        if self._owner:
            arguments["ExpectedBucketOwner"] = self._owner
        client = self._connect()
        with translated(_ACTIONS.get(method, "s3:PutObject"), self._where(full or arguments["Prefix"]), arguments):
            return getattr(client, method)(**arguments)

    def _wait(self, failures: int) -> None:
        self._pause(min(20.0, 0.2 * 2**failures))

    def _pages(self, arguments: dict[str, str]) -> Iterator[Entry]:
        start = len(self.prefix)
        while True:
            page = self._ask("list_objects_v2", None, **arguments)
            for entry in page.get("Contents", ()):
                if key := entry["Key"][start:]:  # empty: the console's marker of the prefix itself
                    yield Entry(key, entry["Size"], entry["ETag"], entry["LastModified"])
            for folder in page.get("CommonPrefixes", ()):
                yield Entry(folder["Prefix"][start:], 0, "", None)
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _stream(
        self, key: str, full: str, file: IO[bytes], expected_sha256: str | None, limit: int | None = None
    ) -> Stored:
        answer = self._ask("get_object", full, ChecksumMode="ENABLED")
        size, etag = answer["ContentLength"], answer["ETag"]
        if limit is not None and size > limit:
            answer["Body"].close()
            raise TooLarge(f"{self._where(full)} has {size} bytes of {limit}; change: use get, or a higher limit")
        check, sha, got, failures = _Check(answer), hashlib.sha256(), 0, 0
        while True:
            chunk, broken = self._chunk(answer["Body"], full)
            if chunk:
                file.write(chunk)
                sha.update(chunk)
                check.update(chunk)
                got, failures = got + len(chunk), 0
            elif got >= size:
                break
            else:
                answer["Body"].close()
                failures += 1
                if failures >= self.attempts:
                    message = f"{self._where(full)} broke {failures} times at byte {got} of {size}: {broken}"
                    raise Unreachable(f"{message}; change: look at the network, then ask again")
                self._wait(failures)
                answer = self._ask("get_object", full, Range=f"bytes={got}-", IfMatch=etag)
        answer["Body"].close()
        if got != size or not check.holds() or expected_sha256 not in {None, sha.hexdigest()}:
            received = f"{got} bytes with SHA-256 {sha.hexdigest()}"
            expected = f"{size} bytes, {check.name} {check.wanted!r}" + (
                f", SHA-256 {expected_sha256}" if expected_sha256 else ""
            )
            raise Corrupt(
                f"{self._where(full)}: {received} arrived of {expected}; change: fetch it again, then upload it again"
            )
        return Stored(key, size, etag, sha.hexdigest(), "sha256" if expected_sha256 else check.name)

    def _chunk(self, body: Any, full: str) -> tuple[bytes, Exception | None]:
        from botocore.exceptions import BotoCoreError, FlexibleChecksumError

        try:
            return body.read(_CHUNK), None
        except FlexibleChecksumError as error:  # botocore compares as well
            raise Corrupt(f"{self._where(full)}: {error}; change: fetch it again, then upload it again") from error
        except (BotoCoreError, OSError) as error:
            return b"", error

    def _put_whole(self, full: str, writer: str, arguments: dict[str, Any]) -> str:
        """The ETag."""
        tried = 0
        while True:
            tried += 1
            try:
                return self._ask("put_object", full, **arguments)["ETag"]
            except S3Error as error:
                if error.code not in CONFLICT or tried >= self.attempts:
                    return self._own_write(full, writer, error)
            self._wait(tried)

    def _own_write(self, full: str, writer: str, error: S3Error) -> str:
        """The ETag, if a condition failed only because an earlier try of the same request had succeeded."""
        if error.retried:
            with suppress(S3Error):
                head = self._ask("head_object", full)
                if head["Metadata"].get("writer") == writer:
                    return head["ETag"]
        raise error

    def _in_parts(
        self,
        full: str,
        pieces: Iterator[Any],
        send: Callable[[Any, dict[str, Any]], dict[str, Any]],
        about: dict[str, Any],
        totals: Callable[[], dict[str, Any]],
        writer: str,
    ) -> str:
        """Upload in parts; return the ETag. CRC-32 because S3 combines it over parts, unlike SHA: readers of the whole
        object can compare it."""
        kind = {"ChecksumType": "FULL_OBJECT"}
        upload = self._ask("create_multipart_upload", full, ChecksumAlgorithm="CRC32", **kind, **about)["UploadId"]

        def upload_part(number: int, piece: Any) -> dict[str, Any]:
            sent = send(piece, {"UploadId": upload, "PartNumber": number})
            return {"PartNumber": number} | {name: sent[name] for name in ("ETag", "ChecksumCRC32") if name in sent}

        try:
            parts: list[dict[str, Any]] = []
            with ThreadPoolExecutor(self.workers) as pool:  # leaving it waits: a late part would outlive the abort
                running: deque[Future[dict[str, Any]]] = deque()
                for number, piece in enumerate(pieces, 1):
                    if number > PARTS:
                        raise TooLarge(f"{self._where(full)} has over {PARTS} parts; change: a larger part_size")
                    if len(running) >= self.workers:
                        parts.append(running.popleft().result())
                    running.append(pool.submit(upload_part, number, piece))
                parts += [future.result() for future in running]
            arguments = {"UploadId": upload, "MultipartUpload": {"Parts": parts}} | kind | totals()
            try:
                return self._ask("complete_multipart_upload", full, **arguments)["ETag"]
            except S3Error as error:
                return self._own_write(full, writer, error)
        except BaseException as error:
            try:
                self._ask("abort_multipart_upload", full, UploadId=upload)
            except S3Error as second:
                error.add_note(f"parts of upload {upload} may be left, and are billed: {second}")
            raise


class _Check:
    """The strongest checksum of the whole content that S3 has and that the standard library computes."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.name, self.wanted = "size", ""
        self._hash: Any = None
        self._crc = 0
        sha, crc, etag = answer.get("ChecksumSHA256", ""), answer.get("ChecksumCRC32", ""), answer["ETag"].strip('"')
        if sha and "-" not in sha:  # with '-' it is of the parts' checksums
            self.name, self.wanted, self._hash = "sha256", sha, hashlib.sha256()
        elif crc and "-" not in crc:
            self.name, self.wanted = "crc32", crc
        elif _MD5.fullmatch(etag) and answer.get("ServerSideEncryption", "AES256") == "AES256":
            digest = base64.b64encode(bytes.fromhex(etag)).decode()  # of KMS' an ETag is no MD5
            self.name, self.wanted, self._hash = "md5", digest, hashlib.md5(usedforsecurity=False)

    def update(self, chunk: bytes) -> None:
        if self._hash:
            self._hash.update(chunk)
        elif self.name == "crc32":
            self._crc = zlib.crc32(chunk, self._crc)

    def holds(self) -> bool:
        if self.name == "size":
            return True
        checksum = self._hash.digest() if self._hash else self._crc.to_bytes(4, "big")
        return base64.b64encode(checksum).decode() == self.wanted


def _client(region: str | None, attempts: int) -> Any:
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import NoRegionError

    config = Config(
        connect_timeout=5,
        max_pool_connections=32,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": attempts},
        signature_version="s3v4",  # the older one, still made for URLs in some regions, cannot read what KMS encrypts
        tcp_keepalive=True,
    )
    try:
        return Session().client("s3", region_name=region, config=config)  # the default session is not for threads
    except NoRegionError as error:
        raise NoClient("no region is known; change: region=…, or set AWS_REGION") from error


def _condition(if_absent: bool, if_match: str | None) -> dict[str, str]:
    if if_absent and if_match is not None:
        raise Refused("if_absent and if_match", "an object is absent or has an ETag", "give one of them")
    if if_match is not None:
        return {"IfMatch": if_match}
    return {"IfNoneMatch": "*"} if if_absent else {}


def _crc(value: int) -> dict[str, str]:
    return {"ChecksumCRC32": base64.b64encode(value.to_bytes(4, "big")).decode()}


@contextmanager
def _opened(source: Source) -> Generator[tuple[IO[bytes], int]]:
    """A file, and its size in bytes or 0 if that is unknown."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield io.BytesIO(source), len(source)
    elif isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    elif hasattr(source, "read") and not isinstance(source, io.TextIOBase):
        yield source, 0
    else:
        rule = "a source is bytes, a path or a file open in binary mode"
        raise Refused(type(source).__name__, rule, "open it with 'rb', or encode it")


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Pieces of exactly `size` bytes but the last: a socket's or pipe's read may give fewer than it was asked for."""
    while True:
        piece = bytearray()
        while len(piece) < size and (chunk := file.read(size - len(piece))):
            piece += chunk
        if piece:
            yield bytes(piece)
        if len(piece) < size:
            return
