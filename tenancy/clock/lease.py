"""Leader election among copies of the clock: the holder of a Lease works for as long as it renews it."""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.clock.controller import ClockRefused, server_time
from tenancy.cluster.api import CONFLICT, NOT_FOUND, Api, Response
from tenancy.kube.requests import collection

SECONDS = 90
"""After which another copy takes over: three rounds."""
STOPPED, STOPPED_SECONDS = "stopped-for-a-removal", 3600
"""Holder while the clock's queues are removed, and for how long: longer than that takes."""
ATTEMPTS = 5
_API = "coordination.k8s.io/v1"
_PATH = collection(_API, "Lease", vocabulary.PLATFORM_NAMESPACE)
_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


def _identity() -> str:
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease `tenancy-clock` in the platform's namespace, as one copy sees it."""

    api: Api
    holder: str = field(default_factory=_identity)

    def hold(self) -> bool:
        """Take or renew the Lease; False if another copy holds it. ClockRefused if the API server refuses that."""
        answer = _read_lease(self.api)
        if answer.status == NOT_FOUND or _may_take(answer.body.get("spec") or {}, self.holder, server_time(answer)):
            return _write(self.api, answer, self.holder, SECONDS)
        return False


def take(api: Api) -> None:
    """Take the Lease from the copy that holds it, so that none works for an hour or until `release`. A round that has
    begun is not ended. ClockRefused if the API server refuses that."""
    for _ in range(ATTEMPTS):
        answer = _read_lease(api)
        if answer.status == NOT_FOUND or _write(api, answer, STOPPED, STOPPED_SECONDS):
            return
    raise ClockRefused(f"the Lease {vocabulary.CLOCK} was changed {ATTEMPTS} times meanwhile")


def release(api: Api) -> None:
    """Delete the Lease if `take` has it. ClockRefused if the API server refuses that."""
    lease = _read_lease(api)
    if lease.ok and (lease.body.get("spec") or {}).get("holderIdentity") == STOPPED:
        answer = api.request("DELETE", f"{_PATH}/{vocabulary.CLOCK}")
        if not answer.ok and answer.status != NOT_FOUND:
            raise ClockRefused(f"DELETE {_PATH}: {answer.status} {answer.message}")


def _read_lease(api: Api) -> Response:
    answer = api.request("GET", f"{_PATH}/{vocabulary.CLOCK}")
    if not answer.ok and answer.status != NOT_FOUND:
        raise ClockRefused(f"GET {_PATH}: {answer.status} {answer.message}")
    return answer


def _write(api: Api, former: Response, holder: str, seconds: int) -> bool:
    """Write the Lease in place of the one that was found; False if another process did."""
    renewed = server_time(former).strftime(_FORM)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
    metadata: dict[str, Any] = {"name": vocabulary.CLOCK, "namespace": vocabulary.PLATFORM_NAMESPACE}
    method, path = "POST", _PATH
    if former.ok:
        method, path = "PUT", f"{_PATH}/{vocabulary.CLOCK}"
        metadata["resourceVersion"] = former.body["metadata"]["resourceVersion"]
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
