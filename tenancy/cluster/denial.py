"""The control that denied a request: read from the answer and, independently, from the audit log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tenancy.catalog.files import regular_file
from tenancy.kube.deniers import (
    ADMISSION_POLICY,
    API_VALIDATION,
    KUEUE,
    LIMIT_RANGE,
    NONE,
    POD_SECURITY,
    PRIORITY,
    RBAC,
    SERVICE_ACCOUNT,
    UNKNOWN,
    guard,
    quota,
)

AUDIT_PREFIX = "tenancy-verify-"
"""Prefix of the audit ids that requests carry."""
AUDIT_WAIT = 5.0
"""Seconds that the audit log may lag behind the answers."""

_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (?:([a-z]+-\d+): )?")
_QUOTA = re.compile(r"(?:exceeded|failed) quota: ([^,:]+)")
_RBAC = re.compile(
    r'User "[^"]*" cannot \S+ (?:resource|path) "|cannot impersonate resource "'
    r"|attempting to grant RBAC permissions not currently held"
    r"|must have cluster-admin privileges to use the aggregationRule"
)
_PLUGINS = {
    KUEUE: re.compile(r'admission webhook "v[a-z]+\.kb\.io" denied the request'),
    SERVICE_ACCOUNT: re.compile("error looking up service account "),
    PRIORITY: re.compile("no PriorityClass with name "),
}
_LIMIT_RANGE = re.compile(r"(?:minimum|maximum) \S+ usage per |max limit to request ratio per ")


def denier(status: int, message: str) -> str:
    """The control that refused, by words that it alone uses; `none` if the request was admitted.

    A refusal of no known kind, such as a missing object's 404, is `unknown`: it proves nothing.
    """
    if status < 400:
        return NONE
    if match := _POLICY.search(message):
        return guard(match[1], match[2] or "")
    if match := _QUOTA.search(message):
        return quota(match[1].strip())
    if 'violates PodSecurity "' in message:
        return POD_SECURITY
    if status == 403 and _RBAC.search(message):
        return RBAC
    if status == 403 and _LIMIT_RANGE.search(message):
        return LIMIT_RANGE
    if plugin := next((name for name, words in _PLUGINS.items() if words.search(message)), None):
        return plugin
    if status in (400, 422):
        return API_VALIDATION
    return UNKNOWN


def audit_disagreement(denier: str, event: Mapping[str, Any] | None) -> str | None:
    """Contradiction between the audit log and `denier`; None if the two agree."""
    if event is None:
        return "the audit log has no event of this request"
    notes = event.get("annotations") or {}
    decision = notes.get("authorization.k8s.io/decision")
    # A request that cannot be decoded never reaches authorization's annotation, so only `forbid` is compared.
    if (decision == "forbid") != (denier == RBAC):
        return f"the audit log says authorization decided {decision!r}, the answer says {denier}"
    failures = _policies(notes.get("validation.policy.admission.k8s.io/validation_failure", ""))
    if denier.startswith(ADMISSION_POLICY):
        policy = denier.removeprefix(ADMISSION_POLICY).partition(":")[0]
        if policy not in failures:
            return f"the audit log names {', '.join(sorted(failures)) or 'no policy'}, the answer names {policy}"
    elif denier == NONE and failures:
        return f"the audit log says {', '.join(sorted(failures))} failed, the answer says admitted"
    return None


def _policies(annotation: str) -> set[str]:
    try:
        entries = json.loads(annotation) if annotation else []
    except ValueError:
        return set()
    return {str(entry.get("policy")) for entry in entries if isinstance(entry, dict)}


class ForeignLogError(Exception):
    """The audit log is another API server's, or empty."""


class AuditLog:
    """An audit log in JSON lines that the API server is writing, and may rotate, while it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        regular_file(path)
        stat = path.stat()
        self._inode, self._size = stat.st_ino, stat.st_size

    def events(self, ids: Collection[str], timeout: float = AUDIT_WAIT) -> dict[str, dict[str, Any]]:
        """Events with these audit ids that were written since this object was made; waits for late ones.

        ForeignLogError if there is not a single one.
        """
        wanted_ids, deadline = set(ids), time.monotonic() + timeout
        while True:
            events = self._read(wanted_ids)
            late = time.monotonic() > deadline
            if late and wanted_ids and not events:
                raise ForeignLogError(
                    f"given {self._path}, which has no event of any of these {len(wanted_ids)} requests; "
                    "rule: the audit log of the API server that was asked; change: name its log with --audit-log"
                )
            if late or len(events) == len(wanted_ids):
                return events
            time.sleep(0.05)

    def _read(self, audit_ids: set[str]) -> dict[str, dict[str, Any]]:
        events: dict[str, dict[str, Any]] = {}
        # Decoding takes the time, and most lines of a busy log are of other requests.
        for line in self._fresh_bytes().splitlines():
            event = _event(line) if AUDIT_PREFIX.encode() in line else None
            # A long-running request has several stages; the last one is the one with the decisions.
            if event and event.get("auditID") in audit_ids:
                events[event["auditID"]] = event
        return events

    def _fresh_bytes(self) -> bytes:
        files = [file for file in (self._path, *self._rotated()) if file.exists()]
        # Oldest first: the file that was the log at the start, from its end at that time, and every newer one.
        parts: list[bytes] = []
        for file in files:
            with file.open("rb") as stream:
                is_original_file = file.stat().st_ino == self._inode
                stream.seek(self._size if is_original_file else 0)
                parts.insert(0, stream.read())
            if is_original_file:
                break
        return b"".join(parts)

    def _rotated(self) -> list[Path]:
        real = self._path.resolve()
        return sorted(real.parent.glob(f"{real.stem}-*{real.suffix}"), reverse=True)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:  # the line that is being written
        return None
    return event if isinstance(event, dict) else None
