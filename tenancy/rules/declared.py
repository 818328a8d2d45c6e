"""Traffic that a tenant's own NetworkPolicies may allow: within its namespace, and as its file declares.

The guard of net-02 has the same rule in CEL (`tenancy/planning/guards/objects.py`); tests send the attacks to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.rules.found import UNKNOWN, Object, as_list, get_path

_SIDES = (("ingress", "from", words.ALLOWED_INGRESS), ("egress", "to", words.ALLOWED_EGRESS))


def undeclared(policy: Object, space: Object) -> Iterator[str]:
    """Traffic that a policy allows and the file does not, by the annotations of its namespace; nothing if these are
    unknown, or if the namespace or the policy has another origin."""
    labels, notes = (get_path(space, "metadata", key) or {} for key in ("labels", "annotations"))
    if UNKNOWN in (labels, notes) or words.ENVIRONMENT not in labels:
        return
    if words.ENVIRONMENT in (get_path(policy, "metadata", "labels") or {}):
        return  # the platform's own policy, which allows more than the file
    for direction, side, key in _SIDES:
        declared = str(notes.get(key) or "")
        if declared == UNKNOWN:
            continue
        for rule in as_list(get_path(policy, "spec", direction)):
            if not as_list(get_path(rule, side)):
                yield f"{direction} without '{side}', which allows every peer"
            for peer in as_list(get_path(rule, side)):
                yield from _beyond(peer, rule, direction, declared.split(","), space)


def _beyond(peer: Any, rule: Any, direction: str, declared: list[str], space: Object) -> Iterator[str]:
    if block := get_path(peer, "ipBlock"):
        ports = as_list(get_path(rule, "ports"))
        if not ports:
            yield f"{direction} {get_path(block, 'cidr')} on every port, which the tenant's file does not allow"
        for port in ports:
            place = f"{get_path(block, 'cidr')}:{get_path(port, 'port')}/{get_path(port, 'protocol') or 'TCP'}"
            to = f" to port {get_path(port, 'endPort')}" if get_path(port, "endPort") is not None else ""
            if to or place not in declared:
                yield f"{direction} {place}{to}, which the tenant's file does not allow"
        return
    if get_path(peer, "namespaceSelector") is None:
        return
    chosen = get_path(peer, "namespaceSelector", "matchLabels") or {}
    own = chosen.get(words.SPACE_NAME) == get_path(space, "metadata", "name")
    sibling = chosen.get(words.TENANT) == get_path(space, "metadata", "labels", words.TENANT)
    if not own and not (sibling and words.SIBLINGS in declared):
        yield f"{direction} namespaceSelector {dict(chosen)}, which the tenant's file does not allow"
