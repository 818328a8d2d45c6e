"""Recovery from a killed engine: locks, orphaned plugins, pending operations and damaged files."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tenancy.cluster.api import Api, path_of

CLOCK_SLACK = 2.0
"""Seconds by which the boot time that the kernel tells may be off."""

_STATE_ENDINGS = frozenset({"", ".gz", ".zst"})
"""Endings of a state's file after `.json`; a backup and the attributes have others."""

Row = tuple[int, int, str]
"""(process, its parent, its command line)"""


class StackLocked(Exception):
    """Another engine works on the stack."""


def mend_backend(backend: str) -> int:
    """Remove what an engine that was killed began to write beside a state in a file backend; how many files.

    The attributes of a state are written in place, unlike the state itself: an empty file of them hides the stack from
    every command ("EOF"), and none at all means the same as the one that would have been written.
    """
    root = _root(backend)
    empty_files = [path for path in (root / "stacks").rglob("*.attrs") if path.stat().st_size == 0] if root else []
    for path in empty_files:
        path.unlink(missing_ok=True)
    return len(empty_files)


def _root(backend: str) -> Path | None:
    """The folder of a file backend."""
    url = urlparse(backend)
    return Path(unquote(url.path)) / ".pulumi" if url.scheme == "file" else None


def stale_locks(backend: str, project: str, stack: str) -> list[Path]:
    """Locks of a file backend whose process has died on this machine; StackLocked if one may be alive."""
    root = _root(backend)
    if root is None:
        return []  # other backends report the lock's owner themselves
    folder = root / "locks" / "organization" / project / stack
    locks = []
    for path in sorted(folder.glob("*.json")):
        try:
            lock = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue  # being written or removed right now
        pid = int(lock.get("pid", 0))
        is_local = lock.get("hostname") == socket.gethostname()
        if is_local and (not _is_alive(pid) or _is_younger(pid, str(lock.get("timestamp", "")))):
            locks.append(path)
        else:
            raise StackLocked(
                f"stack {stack} is being changed by process {lock.get('pid')} on {lock.get('hostname')} "
                f"since {lock.get('timestamp')}; change: wait until it is done"
            )
    return locks


def is_settled(backend: str, project: str, stack: str) -> bool:
    """Whether the stack's state in a file backend says that no engine left anything unfinished.

    False where only the engine can tell: to have it export a state takes half a second.
    """
    deployment = stored_deployment(backend, project, stack)
    return deployment is not None and not deployment.get("pending_operations")


def stack_names(backend: str, project: str) -> list[str] | None:
    """The project's stacks in a file backend, sorted; None where only the engine can tell: another backend, or one of
    before stacks were sorted by projects.

    The engine reads the whole state of every stack for its list, and keeps all of them in memory.
    """
    root = _root(backend)
    if root is None or any((root / "stacks").glob("*.json*")):
        return None
    names = (path.name.partition(".json") for path in (root / "stacks" / project).glob("*.json*"))
    return sorted(name for name, _, ending in names if ending in _STATE_ENDINGS)


def damaged_state(backend: str, project: str, stack: str) -> Path | None:
    """The stack's file in a file backend, if it is empty or cut off: the disk was full when it was written."""
    root = _root(backend)
    path = root / "stacks" / project / f"{stack}.json" if root else None
    if path is None or not path.exists():
        return None
    try:
        json.loads(path.read_text("utf-8"))
    except ValueError:
        return path
    return None


def stored_deployment(backend: str, project: str, stack: str) -> dict[str, Any] | None:
    """The deployment that a file backend has of the stack; None where only the engine can tell: another backend, or a
    state that is compressed, encrypted or not there."""
    root = _root(backend)
    if root is None:
        return None
    try:
        state = json.loads((root / "stacks" / project / f"{stack}.json").read_text("utf-8"))
        return dict(state["checkpoint"].get("latest") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not Path("/proc/self/stat").exists()  # it has ended meanwhile, where there is such a table
    # A zombie has ended; only its parent has not noticed.
    return state != "Z"


def _is_younger(pid: int, timestamp: str) -> bool:
    """Whether the process was started after the lock was made: its number belonged to another one then."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        locked = dt.datetime.fromisoformat(timestamp).timestamp()
    except (OSError, ValueError, IndexError, StopIteration):
        return False  # no such table on this system, or no time in the lock: the careful answer
    return booted + ticks / os.sysconf("SC_CLK_TCK") > locked + CLOCK_SLACK


def settle_deployment(deployment: Mapping[str, Any], api: Api | None) -> tuple[dict[str, Any], list[str]]:
    """The deployment without pending operations, and the URNs whose live state the engine has to read again.

    What was being made and has reached the cluster is taken into the state, so that it is removed should its
    tenant's file be gone by now; the rest was never made. (`pulumi refresh --import-pending-creates` reports such
    a resource as settled and drops it.)
    """
    resources: list[dict[str, Any]] = list(deployment.get("resources") or ())
    known_urns = {resource["urn"] for resource in resources}
    urns_to_refresh = []
    for operation in deployment.get("pending_operations") or ():
        resource = operation["resource"]
        urn, inputs = resource["urn"], resource.get("inputs") or {}
        if urn not in known_urns:
            if operation.get("type") != "creating" or api is None or not _exists(inputs, api):
                continue
            metadata = inputs["metadata"]
            name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            resources.insert(_first_dependent(urn, resources), {**resource, "id": name, "outputs": inputs})
            known_urns.add(urn)
        if resource.get("custom"):
            urns_to_refresh.append(urn)
    other_fields = {key: value for key, value in deployment.items() if key != "pending_operations"}
    return {**other_fields, "resources": resources}, list(dict.fromkeys(urns_to_refresh))


def _first_dependent(urn: str, resources: Sequence[Mapping[str, Any]]) -> int:
    """Index at which a state takes the resource: the engine refuses a state with a resource before its dependencies."""
    quoted_urn = json.dumps(urn)
    return next(
        (place for place, resource in enumerate(resources) if quoted_urn in json.dumps(resource)), len(resources)
    )


def _exists(inputs: Mapping[str, Any], api: Api) -> bool:
    return "metadata" in inputs and "kind" in inputs and api.request("GET", path_of(inputs)).ok


_REAPERS = frozenset({"init", "launchd", "systemd", "tini"})


def end_orphans(home: Path, table: Iterable[Row] | None = None) -> int:
    """End plugins of an engine that was killed, which may still be writing to the cluster; their number.

    A plugin's parent is the engine; once that is dead it belongs to init or the session's manager. Any other parent
    may be alive and using it.
    """
    rows = list(_table() if table is None else table)
    names = {pid: Path(command.split(" ", 1)[0]).name for pid, _, command in rows}
    folders = {f"{folder}/" for folder in (home / "plugins", (home / "plugins").resolve())}
    orphans = [
        pid
        for pid, parent, command in rows
        if command.startswith(tuple(folders)) and (parent <= 1 or names.get(parent, "init") in _REAPERS)
    ]
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(orphans)


def _table() -> Iterator[Row]:
    output = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=False
    )
    for line in output.stdout.splitlines():
        pid, parent, *command = line.split(None, 2)
        yield int(pid), int(parent), "".join(command)
