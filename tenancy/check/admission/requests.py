"""Requests to the API server: an operation on an object, and the identity that asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenancy.kube.kinds import group_of, plural
from tenancy.kube.objects import Object

AUTHENTICATED = "system:authenticated"
"""Group of every identity that the API server knows."""


class Operation(StrEnum):
    """The operation of a request. Only the first four reach admission."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"
    READ = "READ"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that asks."""

    username: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One request to the API server."""

    operation: Operation
    group: str
    """API group; empty for the core group."""
    version: str
    resource: str
    """In the plural, such as `pods`."""
    name: str
    """Empty where the API server generates it."""
    identity: Identity
    subresource: str = ""
    namespace: str | None = None
    """None for a cluster-scoped resource."""
    object: Object | None = None
    old_object: Object | None = None
    """The stored object that is changed or deleted."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """CreateOptions, UpdateOptions or DeleteOptions."""
    verb: str = ""
    """RBAC's verb, such as `patch`; empty: the operation's own."""

    @property
    def access_verb(self) -> str:
        """The verb that RBAC is asked about."""
        return self.verb or self.operation.value.lower()


def creation(item: Object, namespace: str | None, identity: Identity) -> AdmissionRequest:
    """The request that creates an object. `namespace` is where the request goes; None for a cluster-scoped kind."""
    version = str(item.get("apiVersion") or "").rpartition("/")[2]
    name = str(item["metadata"].get("name") or "")
    resource = plural(str(item["kind"]))
    return AdmissionRequest(
        Operation.CREATE, group_of(item), version, resource, name, identity, namespace=namespace, object=item
    )


LARGEST = 3 * 2**20
"""Bytes of the largest request that the API server reads."""
DEEPEST = 100
"""Levels of an object that are read: no kind has half of them, and the API server's own limit is far above."""


def unreadable(item: Object) -> str:
    """Why an object is too large or too deep to be judged; empty if it is not.

    Every part counts where it stands: in a file one part can stand in a million places by aliases.
    """
    size, waiting = 0, list[tuple[Any, int]]([(item, 1)])
    while waiting:
        value, depth = waiting.pop()
        if depth > DEEPEST:
            return f"given an object of more than {DEEPEST} levels"
        if isinstance(value, Mapping):
            size += 2 + sum(len(str(key)) + 4 for key in value)
            waiting += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, (list, tuple)):
            size += 2 + len(value)
            waiting += [(inner, depth + 1) for inner in value]
        else:
            size += len(value) + 2 if isinstance(value, str) else 4
        if size > LARGEST:
            return f"Request entity too large: limit is {LARGEST} bytes"
    return ""
