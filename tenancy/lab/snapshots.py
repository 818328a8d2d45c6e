"""Snapshots of etcd: a new lab starts from the state that its API server and Kueue's kinds reach at every first start.

The definitions of Kueue's kinds alone take the API server four seconds of CPU time. A snapshot is taken before the
controllers start and before anything of the lab's own is written: no identity, no authority, no token is in it. It is
kept beside the tools, under a name with the digest of all that decides its content.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenancy.http_client import LocalServer
from tenancy.lab import components, kueue, processes
from tenancy.lab.api import ApiError, LabApi, client_tls
from tenancy.lab.layout import Lab, LabError

# The kinds name the port of Kueue's webhooks: a snapshot serves labs with that port only.
WEBHOOK_PORTS = range(29990, 29998)
MAX_SNAPSHOTS = 2 * len(WEBHOOK_PORTS)
"""Snapshots that stay, of 10 MB each; the longest unused goes first."""
AUTHORITIES = "kube-system/extension-apiserver-authentication"
"""ConfigMap with the authorities that components trust: the API server adds its own to those that it finds."""
CONTENT = "content.json"
# Zeros end etcd's log, whose file is far longer than what is in it; a record may end with zeros too.
ALIGNED = 64 * 1024
STOP_SECONDS = 5.0


def folder() -> Path:
    """Folder of the snapshots, in the cache of the tools."""
    from tenancy.lab import tools

    return tools.cache_root() / "snapshots"


def name(binaries: Iterable[Path], kinds: list[dict[str, Any]]) -> str:
    """The name for these programs (their paths contain versions) and definitions of kinds."""
    facts = json.dumps([[str(path) for path in binaries], kinds], sort_keys=True)
    sources = (components.__file__, kueue.__file__, __file__)
    return digest(facts.encode() + b"".join(Path(str(source)).read_bytes() for source in sources))[:16]


def webhook_ports(claims: contextlib.ExitStack) -> Iterator[int]:
    """Ports for Kueue's webhooks that no other lab of this user starts with until `claims` end."""
    with contextlib.suppress(OSError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        for port in WEBHOOK_PORTS:
            file = claims.enter_context((folder() / f"{port}.lock").open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield port


def restore(lab: Lab, name: str) -> bool:
    """Write the snapshot as etcd's data of a lab that has none; False if there is none or it is damaged."""
    source = folder() / name
    if not source.is_dir():
        return False
    with tempfile.TemporaryDirectory(prefix=".etcd-", dir=lab.folder) as fresh:
        try:
            for path, expected_digest in json.loads((source / CONTENT).read_text("utf-8")).items():
                data = (source / path).read_bytes()
                if digest(data) != expected_digest:
                    raise ValueError(path)
                _write(Path(fresh) / "etcd" / path, data)
            os.utime(source)
            for path in Path(fresh).rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
            (Path(fresh) / "etcd").replace(lab.folder / "etcd")
        except (OSError, ValueError, AttributeError):
            discard(name)
            return False
    return True


def discard(name: str) -> None:
    """Delete a snapshot, if it exists."""
    shutil.rmtree(folder() / name, ignore_errors=True)


def prune() -> None:
    """Delete the oldest snapshots above the number that is kept."""
    snapshots = [path for path in folder().iterdir() if (path / CONTENT).is_file()]
    for old in sorted(snapshots, key=lambda path: path.stat().st_mtime)[:-MAX_SNAPSHOTS]:
        shutil.rmtree(old, ignore_errors=True)


def digest(data: bytes) -> str:
    """SHA-256 of the data, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def keep(lab: Lab, name: str, ports: Mapping[str, int]) -> None:
    """Take the snapshot of a lab whose API server has started and whose controllers have not.

    A cache that cannot be written is no error: the next lab starts without a snapshot.
    """
    running_processes = processes.running(lab, components.COMPONENTS[:2])
    with contextlib.suppress(OSError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder()) as fresh:
            with _paused(running_processes["kube-apiserver"]):
                _delete(lab, ports["etcd"], f"/registry/configmaps/{AUTHORITIES}")
                with _paused(running_processes["etcd"]):
                    digests = _copy(lab.folder / "etcd", Path(fresh) / "new")
            (Path(fresh) / "new" / CONTENT).write_text(json.dumps(digests), "utf-8")
            # Another lab may have been first.
            with contextlib.suppress(OSError):
                (Path(fresh) / "new").replace(folder() / name)
        prune()
    _wait_for_authorities(lab, ports["kube-apiserver"])


def _copy(source: Path, target: Path) -> dict[str, str]:
    """Copy etcd's data; return the digest of each file by its path."""
    digests = {}
    # etcd has made the file of its next log already.
    for path in (path for path in source.rglob("*") if path.is_file() and path.suffix != ".tmp"):
        data = path.read_bytes()
        if path.suffix == ".wal":
            data = data[: (len(data.rstrip(b"\0")) // ALIGNED + 2) * ALIGNED]
        relative_path = path.relative_to(source)
        _write(target / relative_path, data)
        digests[str(relative_path)] = digest(data)
    return digests


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@contextlib.contextmanager
def _paused(processes: list[processes.Process]) -> Generator[None]:
    """The files of a stopped process are as a kill would leave them, and etcd continues from these."""
    try:
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not all(_is_stopped(process.pid) for process in processes):
            if time.monotonic() > deadline:
                raise OSError("a process does not stop")
            time.sleep(0.005)
        yield
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task")
    if threads.is_dir():
        states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads.iterdir()]
        return {*states} <= {"T"}
    output = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return output.stdout.startswith("T")


def _delete(lab: Lab, port: int, key: str) -> None:
    """Delete a key by etcd's JSON gateway."""
    tls = client_tls(lab, "kube-apiserver-etcd", "etcd-ca")
    body = json.dumps({"key": base64.b64encode(key.encode()).decode()})
    with contextlib.closing(LocalServer(port, 5, tls)) as etcd:
        if (answer := etcd.request("POST", "/v3/kv/deleterange", body)).status != 200:
            raise OSError(answer.reason)


def _wait_for_authorities(lab: Lab, port: int) -> None:
    """Wait until the API server has written its authorities again: the controllers read them once, at their start."""
    namespace, _, called = AUTHORITIES.partition("/")
    deadline = time.monotonic() + STOP_SECONDS * 6
    with LabApi(lab, port) as api:
        while time.monotonic() < deadline:
            with contextlib.suppress(ApiError):
                api.get(f"/api/v1/namespaces/{namespace}/configmaps/{called}")
                return
            time.sleep(0.02)
    raise LabError(f"the API server does not write ConfigMap {AUTHORITIES}: see `tenancy lab logs kube-apiserver`.")
