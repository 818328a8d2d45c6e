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
from tenancy.live.api import CONFLICT, NOT_FOUND, Api, collection

SECONDS = 90
"""After which another copy takes over: three rounds."""
_API = "coordination.k8s.io/v1"
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
        where = collection(_API, "Lease", words.PLATFORM_NAMESPACE)
        found = self.api.request("GET", f"{where}/{words.CLOCK}")
        if not found.ok and found.status != NOT_FOUND:
            raise ClockRefused(f"GET {where}: {found.status} {found.message}")
        now = server_time(found)
        spec = {"holderIdentity": self.holder, "leaseDurationSeconds": SECONDS, "renewTime": now.strftime(_FORM)}
        metadata: dict[str, Any] = {"name": words.CLOCK, "namespace": words.PLATFORM_NAMESPACE}
        if found.status == NOT_FOUND:
            method, path = "POST", where
        elif _may_take(found.body.get("spec") or {}, self.holder, now):
            method, path = "PUT", f"{where}/{words.CLOCK}"
            metadata["resourceVersion"] = found.body["metadata"]["resourceVersion"]
        else:
            return False
        body = {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = self.api.request(method, path, body)
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
