"""A prefix's objects: end to end against moto, faults on a wire that answers what it is told."""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import botocore.endpoint
import moto
import pytest
from botocore.awsrequest import AWSResponse
from moto.core.models import botocore_stubber
from urllib3.exceptions import ProtocolError

from gpu_tenancy_s3 import (
    Corrupt,
    Denied,
    Exists,
    NoClient,
    NotFound,
    Prefix,
    Refused,
    S3Error,
    Throttled,
    TooLarge,
    Unreachable,
    WriteConflict,
)
from gpu_tenancy_s3 import client as module
from tests.conftest import every, nonempty

BUCKET = "bank-datasets"
MIB = 2**20
BIG = os.urandom(1024) * (11 * 1024)
KEY_ARN = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with moto.mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def fraud(s3: Any) -> Iterator[Prefix]:
    yield Prefix(BUCKET, "teams/fraud/", s3, part_size=5 * MIB)
    for entry in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        s3.delete_object(Bucket=BUCKET, Key=entry["Key"])


def _uploads(s3: Any) -> list[Any]:
    return s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


# ── what S3 does, as moto plays it ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["bytes", "path", "text path", "file"])
@pytest.mark.parametrize("body", [b"", b"hello", BIG], ids=["empty", "small", "in parts"])
def test_what_is_put_from_anywhere_comes_back(fraud: Prefix, tmp_path: Path, body: bytes, kind: str) -> None:
    (tmp_path / "in").write_bytes(body)
    source = {"bytes": body, "path": tmp_path / "in", "text path": str(tmp_path / "in"), "file": io.BytesIO(body)}[kind]
    stored = fraud.put("a/x", source)
    assert (stored.size, stored.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert fraud.get("a/x", tmp_path / "out") == stored
    assert (tmp_path / "out").read_bytes() == body
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"], "no temporary file is left"


def test_an_object_is_where_the_prefix_says(fraud: Prefix, s3: Any) -> None:
    fraud.within("a").put("b/x", b"hello")
    assert s3.get_object(Bucket=BUCKET, Key="teams/fraud/a/b/x")["Body"].read() == b"hello"


def test_an_upload_in_parts_is_one_checksum_over_the_whole(fraud: Prefix, s3: Any) -> None:
    assert fraud.put("big", BIG).checked == "crc32"
    head = s3.head_object(Bucket=BUCKET, Key="teams/fraud/big", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32"] == b64encode(zlib.crc32(BIG).to_bytes(4, "big")).decode()
    assert head["ETag"].endswith('-3"')


def test_a_source_that_gives_a_little_at_a_time_makes_full_parts(fraud: Prefix) -> None:
    class Pipe(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 700_001))

    stored = fraud.put("big", Pipe(BIG))
    assert stored.etag.endswith('-3"'), "parts under 5 MiB would be refused"
    assert stored.sha256 == hashlib.sha256(BIG).hexdigest()


def test_only_a_window_of_parts_is_in_memory(fraud: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    sent: list[int] = []
    real = module._pieces

    def watched(file: Any, _: int) -> Iterator[bytes]:
        for number, piece in enumerate(real(file, 1000)):
            alive.append(number - len(sent))
            yield piece

    def ask(method: str, _full: str, **_: Any) -> dict[str, Any]:
        if method == "upload_part":
            sent.append(1)
        return {"UploadId": "u", "ETag": '"e"'}

    monkeypatch.setattr(module, "_pieces", watched)
    monkeypatch.setattr(fraud, "_ask", ask)
    fraud.put("big", bytes(100_000))
    assert len(sent) == 100
    assert max(alive) <= fraud.workers + 1


def test_a_prefix_is_listed_to_its_last_page(fraud: Prefix, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        fraud.put(f"a/{number}", b"x" * number)
    s3.put_object(Bucket=BUCKET, Key="teams/fraud-2/secret", Body=b"")
    real, pages = fraud._ask, []
    monkeypatch.setattr(fraud, "_ask", lambda *a, **k: pages.append(k) or real(*a, **k, MaxKeys=3))
    entries = list(fraud.list())
    assert [(entry.key, entry.size) for entry in entries] == [(f"a/{number}", number) for number in range(7)]
    assert len(pages) == 3
    assert every(entry.modified and entry.etag and not entry.is_folder for entry in entries)


def test_a_list_that_does_not_descend_shows_folders(fraud: Prefix, s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="teams/fraud/", Body=b"")  # the console's marker
    for key in ("a/1", "a/2", "b", "c/d/e"):
        fraud.put(key, b"")
    entries = sorted((entry.key, entry.is_folder) for entry in fraud.list(recursive=False))
    assert entries == [("a/", True), ("b", False), ("c/", True)]
    assert [entry.key for entry in fraud.list("c", recursive=False)] == ["c/d/"]


def test_keys_that_xml_or_urls_would_change_are_listed_as_they_are(fraud: Prefix) -> None:
    keys = ["+", "100%25", "a b", "a&b<c>", "ä😀"]
    for key in keys:
        fraud.put(key, key.encode())
    assert sorted(entry.key for entry in fraud.list()) == sorted(keys)
    assert [fraud.read(key).decode() for key in keys] == keys


def test_a_write_once_key_is_written_once(fraud: Prefix) -> None:
    for body in (b"first", BIG):
        fraud.put(f"once-{len(body)}", body, if_absent=True)
        with pytest.raises(Exists, match="was not changed"):
            fraud.put(f"once-{len(body)}", b"second", if_absent=True)
    assert fraud.read("once-5") == b"first"


def test_an_upload_in_parts_that_finds_its_key_taken_leaves_no_parts(fraud: Prefix, s3: Any) -> None:
    fraud.put("taken", b"first")
    with pytest.raises(Exists):
        fraud.put("taken", BIG, if_absent=True)
    assert _uploads(s3) == []
    assert fraud.read("taken") == b"first"


def test_of_two_who_read_the_same_only_one_overwrites(fraud: Prefix) -> None:
    etag = fraud.put("state", b"0").etag
    fraud.put("state", b"1", if_match=etag)
    with pytest.raises(WriteConflict, match="read it again"):
        fraud.put("state", b"2", if_match=etag)
    with pytest.raises(WriteConflict):
        fraud.delete("state", if_match=etag)
    with pytest.raises(WriteConflict):
        fraud.put("never-there", b"", if_match=etag)
    with pytest.raises(Refused, match="one of them"):
        fraud.put("state", b"", if_match=etag, if_absent=True)
    assert fraud.read("state") == b"1"


def test_what_is_not_there_is_not_found(fraud: Prefix, tmp_path: Path) -> None:
    for act in (lambda: fraud.stat("x"), lambda: fraud.read("x"), lambda: fraud.get("x", tmp_path / "x")):
        with pytest.raises(NotFound, match="s3://bank-datasets/teams/fraud/x"):
            act()
    with pytest.raises(NotFound, match="NoSuchBucket"):
        list(Prefix("no-such-bucket", "a/", fraud._connect()).list())
    assert list(tmp_path.iterdir()) == []


def test_deleting_twice_is_fine(fraud: Prefix) -> None:
    fraud.put("x", b"")
    fraud.delete("x")
    fraud.delete("x")
    assert list(fraud.list()) == []


def test_a_small_read_does_not_begin_a_large_object(fraud: Prefix) -> None:
    fraud.put("x", b"12345")
    assert fraud.read("x", limit=5) == b"12345"
    with pytest.raises(TooLarge, match="5 bytes of 4"):
        fraud.read("x", limit=4)


def test_a_file_opened_as_text_is_refused(fraud: Prefix) -> None:
    with pytest.raises(Refused, match="open it with 'rb'"):
        fraud.put("x", io.StringIO("text"))


@pytest.mark.parametrize("body", [b"hello", BIG], ids=["whole", "in parts"])
def test_a_copy_is_the_same_bytes(
    fraud: Prefix, s3: Any, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPY_MOST", 6 * MIB)
    monkeypatch.setattr(module, "COPY_PART", 5 * MIB)
    common_prefix = Prefix(BUCKET, "shared/", s3, part_size=5 * MIB)
    common_prefix.put("base", body, content_type="application/x-tar")
    assert fraud.copy("base", "mine", origin=common_prefix).size == len(body)
    fraud.copy("mine", "b/again")
    assert fraud.get("b/again", tmp_path / "x").sha256 == hashlib.sha256(body).hexdigest()
    assert s3.head_object(Bucket=BUCKET, Key="teams/fraud/b/again")["ContentType"] == "application/x-tar"
    with pytest.raises(Refused, match="another key"):
        fraud.copy("mine", "mine")


def test_a_key_and_an_owner_go_with_every_write(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = Prefix(BUCKET, "teams/kms/", s3, kms_key=KEY_ARN, owner="123456789012", part_size=5 * MIB)
    calls: list[tuple[str, dict[str, Any]]] = []
    s3.meta.events.register(
        "provide-client-params.s3", spy := lambda params, model, **_: calls.append((model.name, dict(params)))
    )
    sealed.put("small", b"")
    sealed.put("big", BIG)
    sealed.copy("small", "copy")
    monkeypatch.setattr(module, "COPY_MOST", 6 * MIB)
    sealed.copy("big", "copy")
    s3.meta.events.unregister("provide-client-params.s3", spy)
    makers = [params for name, params in calls if name in {"PutObject", "CreateMultipartUpload", "CopyObject"}]
    assert len(makers) == 4
    for params in makers:
        assert (params["ServerSideEncryption"], params["SSEKMSKeyId"]) == ("aws:kms", KEY_ARN)
        assert params["BucketKeyEnabled"] is True, "without it every object costs a request to KMS"
    assert {params["ExpectedBucketOwner"] for _, params in calls} == {"123456789012"}
    assert {params.get("ExpectedSourceBucketOwner") for _, params in calls if "CopySource" in params} == {
        "123456789012"
    }


@pytest.mark.usefixtures("env")
def test_a_signed_url_is_for_one_object_one_method_and_a_short_time() -> None:
    prefix = Prefix(BUCKET, "teams/fraud/", region="eu-central-1")
    url = urlsplit(prefix.presign("a b/ä", expires=60))
    query = parse_qs(url.query)
    assert url.path.endswith("/teams/fraud/a%20b/%C3%A4")
    assert (query["X-Amz-Expires"], query["X-Amz-Algorithm"]) == (["60"], ["AWS4-HMAC-SHA256"])
    sealed = urlsplit(Prefix(BUCKET, "a/", region="eu-central-1", kms_key=KEY_ARN).presign("x", "PUT"))
    assert "x-amz-server-side-encryption-aws-kms-key-id" in parse_qs(sealed.query)["X-Amz-SignedHeaders"][0]
    for expires in (0, -1, 3601, 7 * 86400):
        with pytest.raises(Refused, match="3600"):
            prefix.presign("x", expires=expires)
    with pytest.raises(Refused, match="GET or PUT"):
        prefix.presign("x", "DELETE")


def test_what_was_changed_in_the_bucket_is_noticed(fraud: Prefix, tmp_path: Path) -> None:
    fraud.put("x", b"hello")
    with pytest.raises(Corrupt, match="SHA-256"):
        fraud.get("x", tmp_path / "x", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"part_size": MIB}, {"part_size": 6 * 2**30}, {"attempts": 0}, {"workers": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        Prefix(BUCKET, "a/", **wrong)


# ── what moto cannot do: a wire that answers what it is told ────────────────────────────────────────────────────────


class Body(io.BytesIO):
    """Breaks after its bytes, if told to."""

    def __init__(self, content: bytes, breaks: Exception | None = None) -> None:
        super().__init__(content)
        self.breaks = breaks

    def read(self, amount: int | None = -1) -> bytes:
        chunk = super().read(amount)
        if not chunk and self.breaks:
            raise self.breaks
        return chunk

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()


class Wire:
    """Answers in order, or by a function of the request; what was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.by: Callable[[Any], Any] | None = None

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        self.asked.append(request)
        answer = self.by(request) if self.by else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, headers, body = answer
        return AWSResponse(request.url, status, headers, body if isinstance(body, Body) else Body(body))


def _error(status: int, code: str, message: str = "said so") -> tuple[int, dict[str, str], bytes]:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return status, {"content-type": "application/xml"}, body


def _object(body: bytes | Body, size: int, etag: str = '"e1-2"', status: int = 200, **headers: str) -> Any:
    metadata_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"etag": etag, "content-length": str(size)} | metadata_headers, body


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "testing", "SECRET_ACCESS_KEY": "testing"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """botocore's own waiting, kept instead of waited."""
    sleeps: list[float] = []
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=sleeps.append))
    return sleeps


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(botocore_stubber, "enabled", False)  # moto would answer as well: every handler is called
    return Wire()


@pytest.fixture
def far(wire: Wire, env: None) -> Prefix:  # noqa: ARG001
    prefix = Prefix(BUCKET, "teams/fraud/", region="eu-central-1", attempts=3, pause=lambda _: None, part_size=5 * MIB)
    prefix._connect().meta.events.register_first("before-send.s3", wire)
    return prefix


def test_a_throttled_request_is_tried_again_after_a_pause(far: Prefix, wire: Wire, pauses: list[float]) -> None:
    wire.answers = [_error(503, "SlowDown"), _error(500, "InternalError"), _object(b"hello", 5)]
    assert far.read("x") == b"hello"
    assert len(pauses) == 2


def test_throttling_that_lasts_is_told_after_the_last_attempt(far: Prefix, wire: Wire, pauses: list[float]) -> None:
    wire.answers = [_error(503, "SlowDown")] * 3
    with pytest.raises(Throttled, match="fewer workers"):
        far.read("x")
    assert len(wire.asked) == 3
    assert len(pauses) == 2


@pytest.mark.parametrize("breaks", [ProtocolError("reset"), ConnectionResetError("reset"), None])
def test_a_body_that_breaks_is_continued_where_it_broke(
    far: Prefix, wire: Wire, tmp_path: Path, breaks: Exception | None
) -> None:
    crc = b64encode(zlib.crc32(b"hello world").to_bytes(4, "big")).decode()
    wire.answers = [
        _object(Body(b"hello", breaks), 11, x_amz_checksum_crc32=crc),
        _object(Body(b" wor", breaks), 6, status=206),
        _object(b"ld", 2, status=206),
    ]
    assert far.get("x", tmp_path / "x").checked == "crc32"
    assert (tmp_path / "x").read_bytes() == b"hello world"
    range_headers = [(request.headers.get("Range"), request.headers.get("If-Match")) for request in wire.asked]
    assert range_headers == [(None, None), (b"bytes=5-", b'"e1-2"'), (b"bytes=9-", b'"e1-2"')]


def test_an_object_that_changed_under_a_broken_body_is_not_mixed(far: Prefix, wire: Wire, tmp_path: Path) -> None:
    wire.answers = [_object(Body(b"hello", ProtocolError("reset")), 11), _error(412, "PreconditionFailed")]
    with pytest.raises(WriteConflict):
        far.get("x", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_keeps_breaking_ends(far: Prefix, wire: Wire) -> None:
    wire.by = lambda _: _object(Body(b"", ProtocolError("reset")), 11)
    with pytest.raises(Unreachable, match="broke 3 times at byte 0 of 11"):
        far.read("x")


@pytest.mark.parametrize(
    "headers",
    [
        {"x_amz_checksum_crc32": b64encode(zlib.crc32(b"hello").to_bytes(4, "big")).decode()},
        {"x_amz_checksum_sha256": b64encode(hashlib.sha256(b"hello").digest()).decode()},
        {"etag": f'"{hashlib.md5(b"hello").hexdigest()}"'},
    ],
    ids=["crc32", "sha256", "md5"],
)
def test_bytes_that_are_not_the_stored_ones_are_refused(far: Prefix, wire: Wire, headers: dict[str, str]) -> None:
    wire.answers = [_object(b"hello", 5, **headers), _object(b"hellO", 5, **headers)]
    assert far.read("x") == b"hello"
    with pytest.raises(Corrupt):
        far.read("x")


def test_an_etag_that_kms_made_is_taken_for_no_md5(far: Prefix, wire: Wire) -> None:
    wire.answers = [_object(b"hello", 5, etag=f'"{"0" * 32}"', x_amz_server_side_encryption="aws:kms")]
    assert far.read_stored("x")[1].checked == "size"


def test_a_disk_that_is_full_is_no_broken_body(far: Prefix, wire: Wire) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    wire.answers = [_object(b"hello", 5)]
    with pytest.raises(OSError, match="No space"):
        far.get("x", Full())
    assert len(wire.asked) == 1


def _multipart(fail: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """S3's side of an upload in parts, but where `fail` has an answer."""

    def answer(request: Any) -> Any:
        if (failed := fail(request)) is not None:
            return failed
        query = urlsplit(request.url).query
        if request.method == "POST" and query == "uploads":
            return 200, {}, b"<R><UploadId>u1</UploadId></R>"
        if request.method == "POST":
            return 200, {}, b'<R><ETag>"done-3"</ETag></R>'
        return (204 if request.method == "DELETE" else 200), {"etag": '"p"'}, b""

    return answer


@pytest.mark.parametrize("stage", ["PUT", "POST"])
def test_an_upload_in_parts_that_fails_is_aborted(far: Prefix, wire: Wire, pauses: list[float], stage: str) -> None:
    wire.by = _multipart(
        lambda r: _error(500, "InternalError") if r.method == stage and "uploadId=u1" in r.url else None
    )
    with pytest.raises(S3Error, match="InternalError"):
        far.put("x", BIG)
    assert [request.method for request in wire.asked].index("DELETE") == len(wire.asked) - 1, "no part comes after it"
    assert "uploadId=u1" in wire.asked[-1].url
    assert len(pauses) == (6 if stage == "PUT" else 2)


def test_an_upload_is_aborted_when_its_source_fails_or_a_person_stops_it(far: Prefix, wire: Wire) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 10 * MIB:
                raise KeyboardInterrupt
            return super().read(size)

    wire.by = _multipart(lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        far.put("x", Broken(BIG))
    assert wire.asked[-1].method == "DELETE"


def test_an_abort_that_fails_says_that_parts_are_left(far: Prefix, wire: Wire) -> None:
    wire.by = _multipart(lambda r: _error(403, "AccessDenied") if r.method in {"PUT", "DELETE"} else None)
    with pytest.raises(Denied) as denied:
        far.put("x", BIG)
    assert "parts of upload u1 may be left" in denied.value.__notes__[0]


def test_a_completion_carries_the_condition_and_the_whole_checksum(far: Prefix, wire: Wire) -> None:
    wire.by = _multipart(lambda _: None)
    far.put("x", BIG, if_absent=True)
    last = wire.asked[-1].headers
    assert last["If-None-Match"] == b"*"
    assert last["x-amz-checksum-crc32"].decode() == b64encode(zlib.crc32(BIG).to_bytes(4, "big")).decode()
    assert last["x-amz-mp-object-size"] == str(len(BIG)).encode()


@pytest.mark.usefixtures("pauses")
def test_a_write_whose_answer_was_lost_is_not_taken_for_another_writers(far: Prefix, wire: Wire) -> None:
    def answer(request: Any) -> Any:
        if request.method == "HEAD":
            return _object(b"", 5, etag='"mine"', x_amz_meta_writer=wire.asked[0].headers["x-amz-meta-writer"].decode())
        return _error(500, "InternalError") if len(wire.asked) == 1 else _error(412, "PreconditionFailed")

    wire.by = answer
    assert far.put("x", b"hello", if_absent=True).etag == '"mine"'
    assert [request.method for request in wire.asked] == ["PUT", "PUT", "HEAD"]


@pytest.mark.usefixtures("pauses")
def test_a_retried_write_that_lost_to_another_writer_is_told_so(far: Prefix, wire: Wire) -> None:
    foreign_object = _object(b"", 5, x_amz_meta_writer="another")
    wire.answers = [_error(500, "InternalError"), _error(412, "PreconditionFailed"), foreign_object]
    with pytest.raises(Exists):
        far.put("x", b"hello", if_absent=True)


def test_two_writes_at_the_same_moment_are_tried_again(far: Prefix, wire: Wire) -> None:
    wire.answers = [_error(409, "ConditionalRequestConflict"), _object(b"", 0)]
    assert far.put("x", b"hello", if_absent=True).size == 5
    wire.answers = [_error(409, "ConditionalRequestConflict")] * 3
    with pytest.raises(WriteConflict):
        far.put("x", b"hello", if_absent=True)


def test_a_denial_names_action_object_and_what_may_be_missing(far: Prefix, wire: Wire) -> None:
    wire.answers = [_error(403, "AccessDenied")] * 3
    acts: dict[str, Callable[[], Any]] = {
        "s3:GetObject": lambda: far.read("x"),
        "s3:PutObject": lambda: far.put("x", b""),
        "s3:ListBucket": lambda: list(far.list("x")),
    }
    for action, act in nonempty(acts.items()):
        with pytest.raises(Denied, match="storage in the tenant's file") as denied:
            act()
        assert denied.value.action == action
        assert denied.value.where.startswith("s3://bank-datasets/teams/fraud/x")
        assert ("does not exist is answered like this" in str(denied.value)) == (action == "s3:GetObject")
    wire.answers = [_error(403, "AccessDenied", "not authorized to perform: kms:Decrypt")]
    with pytest.raises(Denied, match="KMS key as well"):
        far.read("x")
    wire.answers = [(403, {}, b"")]
    with pytest.raises(Denied):
        far.stat("x")


def test_an_expired_session_is_a_denial(far: Prefix, wire: Wire) -> None:
    wire.answers = [_error(400, "ExpiredToken")]
    with pytest.raises(Denied, match="ExpiredToken"):
        far.put("x", b"")


@pytest.mark.usefixtures("pauses")
def test_no_answer_at_all_is_unreachable(far: Prefix, wire: Wire) -> None:
    from botocore.exceptions import ConnectTimeoutError

    wire.by = lambda _: ConnectTimeoutError(endpoint_url="https://s3")
    with pytest.raises(Unreachable, match="look at the network"):
        far.read("x")
    assert len(wire.asked) == 3


def test_a_list_goes_on_with_the_token_it_was_given(far: Prefix, wire: Wire) -> None:
    page = (
        "<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}<Contents><Key>teams/fraud/{key}</Key><Size>1</Size>"
        "<ETag>e</ETag><LastModified>2026-01-31T00:00:00Z</LastModified></Contents></ListBucketResult>"
    )
    token = "<NextContinuationToken>t/1=</NextContinuationToken>"
    wire.answers = [
        (200, {}, page.format(more="true", token=token, key="a").encode()),
        (200, {}, page.format(more="false", token="", key="b").encode()),
    ]
    assert [entry.key for entry in far.list()] == ["a", "b"]
    second = parse_qs(urlsplit(wire.asked[1].url).query)
    assert (second["continuation-token"], second["prefix"]) == (["t/1="], ["teams/fraud/"])


def test_a_made_client_retries_as_told_and_signs_what_kms_can_read(far: Prefix) -> None:
    config = far._connect().meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}
    assert config.signature_version == "s3v4"


def test_without_a_region_the_message_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setattr(boto3.session.Session, "client", _no_region)
    with pytest.raises(NoClient, match="AWS_REGION"):
        Prefix(BUCKET, "a/").read("x")


def _no_region(*_: Any, **__: Any) -> Any:
    from botocore.exceptions import NoRegionError

    raise NoRegionError
