"""A first run with its state in a bucket: the state written once at the end, against once before and after each step.

The bucket is a double: it takes the requests of Pulumi's S3 backend and answers a write after `WRITE_SECONDS`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from bench.engine import NAME, project
from tenancy.lab.layout import environ

WRITE_SECONDS = 0.05
BUCKET = "states"
_AT_END = "from tenancy.cli import main; main()"
_EACH_STEP = f"import tenancy.deploy.unrecorded_objects as u; u.STATE_AT_END = {{}}; {_AT_END}"


class Bucket(ThreadingHTTPServer):
    """The objects of a bucket on loopback, and how much was written."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects: dict[str, bytes] = {}
        self.writes, self.written_bytes = 0, 0

    @property
    def url(self) -> str:
        """For `PULUMI_BACKEND_URL`."""
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return f"s3://{BUCKET}?endpoint={endpoint}&disableSSL=true&s3ForcePathStyle=true&region=eu-central-1"


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _bucket(self) -> Bucket:
        assert isinstance(self.server, Bucket)
        return self.server

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{md5(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (self.headers.get("x-amz-content-sha256") or "").startswith("STREAMING"):
            body = _dechunked(body)
        time.sleep(WRITE_SECONDS)
        self._bucket.writes += 1
        self._bucket.written_bytes += len(body)
        if source := self.headers.get("x-amz-copy-source"):
            body = self._bucket.objects[unquote(source).lstrip("/").removeprefix(f"{BUCKET}/")]
        self._bucket.objects[self._key()] = body
        date = b"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        self._answer(200, b"<CopyObjectResult>" + date + b"</CopyObjectResult>" if source else b"")

    def do_GET(self) -> None:
        key = self._key()
        if not key:
            self._answer(200, self._listed().encode())
        elif key in self._bucket.objects:
            self._answer(200, self._bucket.objects[key])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self._bucket.objects.pop(self._key(), None)
        self._answer(204)

    def _listed(self) -> str:
        query = parse_qs(urlsplit(self.path).query)
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        names = [name for name in sorted(self._bucket.objects) if name.startswith(prefix)]
        folders = {
            prefix + name.removeprefix(prefix).partition(delimiter)[0] + delimiter
            for name in names
            if delimiter and delimiter in name.removeprefix(prefix)
        }
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self._bucket.objects[name])}</Size></Contents>"
            for name in names
            if not (delimiter and delimiter in name.removeprefix(prefix))
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}{prefixes}</ListBucketResult>"


def _dechunked(body: bytes) -> bytes:
    """A body in the `aws-chunked` encoding: each chunk after its length in hexadecimal digits."""
    parts = []
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.partition(b";")[0] or b"0", 16)
        if not size:
            break
        parts.append(rest[:size])
        body = rest[size + 2 :]
    return b"".join(parts)


@contextmanager
def bucket() -> Generator[Bucket]:
    """An empty bucket, served until the end."""
    with Bucket() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def measure() -> str:
    """The rows of the section, as Markdown."""
    rows = [
        f"| {name} | {seconds:.0f} s | {writes} | {written / 1e6:.1f} MB |"
        for name, code in (("at the end", _AT_END), ("at each step", _EACH_STEP))
        for seconds, writes, written in [_first_run(code)]
    ]
    head = "| state written | `tenancy up` from nothing | writes | written |\n|---|---|---|---|"
    tail = (
        f"An environment of 15 tenants in one stack on an empty lab; its state is in a bucket that answers each write "
        f"after {WRITE_SECONDS * 1000:.0f} ms. One run each."
    )
    return "\n".join([head, *rows, "", tail])


def _first_run(code: str) -> tuple[float, int, int]:
    """Seconds, writes and bytes written of an environment's first run."""
    with project() as (root, _), tempfile.TemporaryDirectory() as folder, bucket() as server:
        # Outside of the lab's own folder, which would give the run its own backend.
        program = Path(folder) / "program"
        shutil.copytree(root, program, symlinks=True, ignore=shutil.ignore_patterns(".lab"))
        variables = environ(root) | {
            "PULUMI_BACKEND_URL": server.url,
            "AWS_ACCESS_KEY_ID": "double",
            "AWS_SECRET_ACCESS_KEY": "double",
        }
        started = time.monotonic()
        command = [sys.executable, "-c", code, "up", NAME, "--lab", "--skip-preview"]
        subprocess.run(command, cwd=program, env=variables, check=True, capture_output=True)
        return time.monotonic() - started, server.writes, server.written_bytes
