"""Which of several copies of the clock works: the holder of a Lease, for as long as it renews it."""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.clock.controller import ClockRefused, server_time
from tenancy.kube.requests import collection
from tenancy.live.api import CONFLICT, NOT_FOUND, Api, Response

SECONDS = 90
"""After which another copy takes over: three rounds."""
STOPPED, STOPPED_SECONDS = "stopped-for-a-removal", 3600
"""Holder while the clock's queues are removed, and for how long: longer than that takes."""
ATTEMPTS = 5
_API = "coordination.k8s.io/v1"
_WHERE = collection(_API, "Lease", words.PLATFORM_NAMESPACE)
_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


def _me() -> str:
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease `tenancy-clock` in the platform's namespace, as one copy sees it."""

    api: Api
    holder: str = field(default_factory=_me)

    def hold(self) -> bool:
        """Take or renew the Lease; False if another copy holds it. ClockRefused if the API server refuses that."""
        found = _found(self.api)
        if found.status == NOT_FOUND or _may_take(found.body.get("spec") or {}, self.holder, server_time(found)):
            return _write(self.api, found, self.holder, SECONDS)
        return False


def take(api: Api) -> None:
    """Take the Lease from the copy that holds it, so that none works for an hour or until `release`. A round that has
    begun is not ended. ClockRefused if the API server refuses that."""
    for _ in range(ATTEMPTS):
        found = _found(api)
        if found.status == NOT_FOUND or _write(api, found, STOPPED, STOPPED_SECONDS):
            return
    raise ClockRefused(f"the Lease {words.CLOCK} was changed {ATTEMPTS} times meanwhile")


def release(api: Api) -> None:
    """Delete the Lease if `take` has it. ClockRefused if the API server refuses that."""
    found = _found(api)
    if found.ok and (found.body.get("spec") or {}).get("holderIdentity") == STOPPED:
        answer = api.request("DELETE", f"{_WHERE}/{words.CLOCK}")
        if not answer.ok and answer.status != NOT_FOUND:
            raise ClockRefused(f"DELETE {_WHERE}: {answer.status} {answer.message}")


def _found(api: Api) -> Response:
    found = api.request("GET", f"{_WHERE}/{words.CLOCK}")
    if not found.ok and found.status != NOT_FOUND:
        raise ClockRefused(f"GET {_WHERE}: {found.status} {found.message}")
    return found


def _write(api: Api, found: Response, holder: str, seconds: int) -> bool:
    """Write the Lease in place of the one that was found; False if another process did."""
    renewed = server_time(found).strftime(_FORM)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
    metadata: dict[str, Any] = {"name": words.CLOCK, "namespace": words.PLATFORM_NAMESPACE}
    method, path = "POST", _WHERE
    if found.ok:
        method, path = "PUT", f"{_WHERE}/{words.CLOCK}"
        metadata["resourceVersion"] = found.body["metadata"]["resourceVersion"]
    body = {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}
    answer = api.request(method, path, body)
    if not answer.ok and answer.status != CONFLICT:
        raise ClockRefused(f"{method} {path}: {answer.status} {answer.message}")
    return answer.ok


def _may_take(spec: Mapping[str, Any], holder: str, now: dt.datetime) -> bool:
    if spec.get("holderIdentity") in {holder, None, ""}:
        return True
    try:
        renewed = dt.datetime.fromisoformat(spec["renewTime"])
        return now - renewed > dt.timedelta(seconds=int(spec.get("leaseDurationSeconds") or SECONDS))
    except (KeyError, TypeError, ValueError):
        return True
