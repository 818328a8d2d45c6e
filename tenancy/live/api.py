"""A thin client of the API server: any kubeconfig, any identity that may impersonate, plain answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TIMEOUT = 10.0
"""Seconds for one request."""
PATIENCE = 30.0
"""Seconds for which a list is asked again while the server says that it will have it."""


class Unreachable(Exception):
    """The API server did not answer, or the kubeconfig leads to none."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, when not the kubeconfig's own user."""

    user: str
    groups: Sequence[str] = ()

    def headers(self) -> list[tuple[str, str]]:
        groups = [*self.groups, "system:authenticated"]
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in groups)]


class Api:
    """One kept connection to the API server of a context; None: of the current one."""

    def __init__(self, context: str | None) -> None:
        # Takes 0.2 s to import: only commands that ask a cluster pay for it.
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException

        try:
            self._client = config.new_client_from_config(
                # The library reads the variable once, when it is imported.
                config_file=os.environ.get("KUBECONFIG") or None,
                context=context,
            )
        except (ConfigException, OSError, KeyError) as error:
            raise Unreachable(
                f"given kubeconfig without a usable context {context!r} ({str(error).strip()}); "
                "change: set KUBECONFIG (for the lab: `. .lab/env`), or name another context in environment.yaml"
            ) from error
        self.host = self._client.configuration.host

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        identity: Identity | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask; Unreachable if nobody answers. A refusal is an Answer like any other."""
        from urllib3 import HTTPHeaderDict
        from urllib3.exceptions import HTTPError

        sent = HTTPHeaderDict({"Accept": "application/json", "Content-Type": content_type, **(headers or {})})
        for setting in self._client.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                sent[setting["key"]] = setting["value"]
        for name, value in identity.headers() if identity else ():
            sent.add(name, value)
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._client.rest_client.pool_manager.request(
                method, self.host + path, body=data, headers=sent, timeout=TIMEOUT, retries=False
            )
        except HTTPError as error:
            raise Unreachable(
                f"the API server at {self.host} does not answer ({type(error).__name__}); "
                "change: start it (for the lab: `tenancy lab up`) and run this again"
            ) from error
        try:
            parsed = json.loads(answer.data) if answer.data else {}
        except ValueError:
            parsed = {"message": answer.data.decode("utf-8", "replace")}
        return Answer(answer.status, parsed if isinstance(parsed, dict) else {"items": parsed}, dict(answer.headers))

    def items(self, path: str, absent: bool = False) -> list[dict[str, Any]]:
        """The objects of a list; Unreachable if the list is refused.

        With `absent` a kind that the server does not know has none: a chart may bring it later. Of one that it has just
        learned it says for some seconds to ask again.
        """
        answer = self.request("GET", path)
        until = time.monotonic() + PATIENCE
        while answer.status == ASK_AGAIN and time.monotonic() < until:
            time.sleep(1)
            answer = self.request("GET", path)
        if absent and answer.status == NOT_FOUND:
            return []
        if not answer.ok:
            raise Unreachable(f"GET {path}: {answer.status} {answer.message}")
        return list(answer.body.get("items") or [])


NOT_FOUND, ASK_AGAIN = 404, 429

_PLURALS = {
    "ciliumclusterwidenetworkpolicy": "ciliumclusterwidenetworkpolicies",
    "ciliumnetworkpolicy": "ciliumnetworkpolicies",
    "mutatingadmissionpolicy": "mutatingadmissionpolicies",
    "networkpolicy": "networkpolicies",
    "topology": "topologies",
    "validatingadmissionpolicy": "validatingadmissionpolicies",
}
_CLUSTER_SCOPED = frozenset(
    {"ClusterRole", "Namespace", "PriorityClass"}
    | {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Node"}
)


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """Path of the list that objects of a kind are in."""
    lower = kind.lower()
    plural = _PLURALS.get(lower) or (lower + "es" if lower.endswith("s") else lower + "s")
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    scope = "" if kind in _CLUSTER_SCOPED or namespace is None else f"/namespaces/{namespace}"
    return f"{root}{scope}/{plural}"


def path_of(manifest: Mapping[str, Any]) -> str:
    """Path of one object."""
    metadata = manifest["metadata"]
    return f"{collection(manifest['apiVersion'], manifest['kind'], metadata.get('namespace'))}/{metadata['name']}"
