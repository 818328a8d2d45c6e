"""Check that the guards that tenants' objects depend on are enforced by the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, path_of
from tenancy.kube.requests import collection
from tenancy.planning.guards import MARKER, QUESTION, VERSION, probe_message

TIMEOUT_SECONDS = 120.0
"""Seconds within which an API server enforces stored guards; it loads them every second."""
REQUIRED_ANSWERS = 10
"""Refusals in a row, each on a connection of its own. API servers load guards independently: of two servers behind a
load balancer this number misses one once in five hundred times."""


class PreconditionFailed(Exception):
    """The cluster is not in the state that the plan needs; nothing was changed."""


def require_guards(context: str | None, kubeconfig: str | None = None) -> None:
    """Return if the cluster enforces guards of this version or newer; else PreconditionFailed, or ApiUnreachable if it
    does not answer."""
    if problems := list(guard_problems(Api(context, kubeconfig))):
        raise PreconditionFailed("\n".join(problems))


def guard_problems(api: Api) -> Iterator[str]:
    """Why a tenant may not be created there; PreconditionFailed if the guards are stored and not enforced."""
    data = marker(api)
    version = str(data.get("version", ""))
    if not version.isdigit() or int(version) < VERSION:
        guards_found = f"guards of version {version}" if version else "no guards"
        yield (
            f"given a cluster with {guards_found}; rule: a tenant needs enforced guards of version {VERSION} or newer; "
            "change: update the platform stack of the environment first"
        )
    else:
        wait_for_guards(api, str(data.get("digest", "")))


def marker(api: Api) -> dict[str, Any]:
    """Version and digest of the guards that are stored; empty without any."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap"}
    path = path_of({**config_map, "metadata": {"name": MARKER, "namespace": vocabulary.PLATFORM_NAMESPACE}})
    answer = api.request("GET", path)
    return dict(answer.body.get("data") or {}) if answer.ok else {}


def wait_for_guards(api: Api, digest: str, patience: float = TIMEOUT_SECONDS) -> None:
    """Return once the API server enforces the guards of that digest; PreconditionFailed if it does not in time.

    Stored guards are not enforced at once: for about a second after their creation a cluster admits everything.
    """
    path = collection("v1", "ConfigMap", vocabulary.PLATFORM_NAMESPACE) + "?dryRun=All"
    question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    deadline = time.monotonic() + patience
    answers_in_a_row = 0
    while answers_in_a_row < REQUIRED_ANSWERS:
        answer = api.request("POST", path, question, headers={"Connection": "close"})
        answers_in_a_row = (
            answers_in_a_row + 1 if answer.status == 403 and probe_message(digest) in answer.message else 0
        )
        if answers_in_a_row:
            continue
        if time.monotonic() > deadline:
            raise PreconditionFailed(
                f"given guards that are stored and not enforced after {patience:.0f} s (the API server says: "
                f"{answer.status} {answer.message or 'admitted'}); rule: guards are enforced before tenants are made; "
                "change: see what the API server's log says about ValidatingAdmissionPolicies, then run this again"
            )
        time.sleep(0.05)
