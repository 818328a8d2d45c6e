"""Inputs of each stack's last successful run, as records on the cluster.

They are ConfigMaps in the platform's namespace: every machine that reaches the cluster reads all of them in one
request, tenants have no access there, and they are gone with the cluster. Stacks' states are read one by one.
A record only saves work. It is removed before a stack changes and written after it has succeeded, so a run that ends in
between leaves none, and objects are compared with the plan whatever the record says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import NOT_FOUND, Api, ApiUnreachable, Response
from tenancy.deploy.digests import StackDigest
from tenancy.kube.requests import APPLY, collection

KIND = vocabulary.PREFIX + "record"
"""Label of the records. They carry none of the environment's: no stack makes them."""
STACK = "stack"
_FIELDS = ("plan", "program", "settings")
PATH = collection("v1", "ConfigMap", vocabulary.PLATFORM_NAMESPACE)
"""Path of the list that has the records."""
_MANAGER = "tenancy"


def read(api: Api) -> dict[str, StackDigest]:
    """The records of a cluster by the stacks' names; what cannot be read counts as none."""
    answer = api.request("GET", f"{PATH}?labelSelector={KIND}%3D{STACK}")
    records = {}
    for item in answer.body.get("items") or () if answer.ok else ():
        data: Mapping[str, Any] = item.get("data") or {}
        if all(data.get(field) for field in (STACK, *_FIELDS)):
            records[str(data[STACK])] = StackDigest(*(str(data[field]) for field in _FIELDS))
    return records


def write(api: Api, stack: str, digest: StackDigest) -> None:
    """Record a successful run; ApiUnreachable if it is refused, which costs the next run the time for this stack."""
    data = {STACK: stack, **{field: getattr(digest, field) for field in _FIELDS}}
    answer = put(api, _name(stack), {KIND: STACK}, data)
    if not answer.ok:
        raise ApiUnreachable(f"the record of stack {stack} is not written: {answer.status} {answer.message}")


def put(api: Api, name: str, labels: Mapping[str, str], data: Mapping[str, str]) -> Response:
    """Write a record of that name; the API server's answer."""
    metadata = {"name": name, "namespace": vocabulary.PLATFORM_NAMESPACE, "labels": dict(labels)}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
    path = f"{PATH}/{name}?fieldManager={_MANAGER}&force=true"
    return api.request("PATCH", path, item, content_type=APPLY)


def forget(api: Api, stack: str) -> None:
    """Remove a stack's record, before it changes; none is fine. ApiUnreachable if it is refused, because an old record
    would hide that the run did not end."""
    answer = api.request("DELETE", f"{PATH}/{_name(stack)}")
    if not answer.ok and answer.status != NOT_FOUND:
        raise ApiUnreachable(f"the record of stack {stack} is not removed: {answer.status} {answer.message}")


def _name(stack: str) -> str:
    return f"{STACK}.{stack}"
