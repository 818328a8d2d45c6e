"""What a killed engine leaves behind, and how the next run goes on from there."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tenancy.live.api import Api, path_of


class Locked(Exception):
    """Another engine works on the stack."""


def dead_locks(backend: str, project: str, stack: str) -> list[Path]:
    """Locks of a file backend whose process has died on this machine; Locked if one may be alive."""
    url = urlparse(backend)
    if url.scheme != "file":
        return []  # other backends say themselves who holds the lock
    folder = Path(unquote(url.path)) / ".pulumi" / "locks" / "organization" / project / stack
    dead = []
    for path in sorted(folder.glob("*.json")):
        try:
            lock = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue  # being written or removed right now
        if lock.get("hostname") == socket.gethostname() and not _alive(int(lock.get("pid", 0))):
            dead.append(path)
        else:
            raise Locked(
                f"stack {stack} is being changed by process {lock.get('pid')} on {lock.get('hostname')} "
                f"since {lock.get('timestamp')}; change: wait until it is done"
            )
    return dead


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    # A zombie has ended; only its parent has not noticed.
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def pending_creates(deployment: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """URN and inputs of what an engine was making when it died."""
    for operation in deployment.get("pending_operations") or ():
        if operation.get("type") == "creating":
            yield operation["resource"]["urn"], operation["resource"].get("inputs") or {}


def found_ids(deployment: Mapping[str, Any], api: Api) -> dict[str, str]:
    """URN -> provider id of pending creations that did reach the cluster."""
    found = {}
    for urn, inputs in pending_creates(deployment):
        if "metadata" in inputs and api.request("GET", path_of(inputs)).ok:
            metadata = inputs["metadata"]
            found[urn] = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return found


def settle(deployment: Mapping[str, Any], api: Api, refresh: Callable[[list[str]], None]) -> int:
    """Take what reached the cluster into the state and drop the rest; the number of pending operations."""
    pending = deployment.get("pending_operations") or ()
    if pending:
        ids = found_ids(deployment, api)
        imports = [argument for pair in ids.items() for text in pair for argument in ("--import-pending-creates", text)]
        if imports:
            refresh(imports)
        refresh(["--clear-pending-creates"])
    return len(pending)
