"""Tolerations against taints, as Kubernetes matches them.

Source: `k8s.io/api` v0.36.3 `core/v1/toleration.go`. `Gt` and `Lt` are alpha and off by default in 1.36; the API server
refuses tolerations with them while they are off, so stored ones are in effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")


def tolerates(toleration: Any, taint: Mapping[str, Any], unknown: object = None, if_unknown: bool = True) -> bool:
    """Whether a pod with this toleration may run on nodes with the taint.

    A preview does not know every value: `if_unknown` is the answer if a value equal to `unknown` decides.
    """
    if unknown is not None and toleration == unknown:
        return if_unknown
    fields = toleration if isinstance(toleration, Mapping) else {}

    def same(first: Any, second: Any) -> bool:
        return if_unknown if unknown is not None and unknown in (first, second) else first == second

    key, effect, operator = (fields.get(name) or "" for name in ("key", "effect", "operator"))
    if effect and not same(effect, taint["effect"]):
        return False
    if unknown is not None and operator == unknown:
        return if_unknown
    if not key:
        return operator == "Exists"  # the API server accepts no other operator without a key
    if not same(key, taint["key"]):
        return False
    value, taint_value = (
        str(value_input) if value_input is not None else "" for value_input in (fields.get("value"), taint.get("value"))
    )
    match operator:
        case "Exists":
            return True
        case "" | "Equal":
            return same(value, taint_value)
        case "Gt" | "Lt":
            if unknown is not None and unknown in (value, taint_value):
                return if_unknown
            if not (_CANONICAL.fullmatch(value) and _CANONICAL.fullmatch(taint_value)):
                return False
            return int(taint_value) > int(value) if operator == "Gt" else int(taint_value) < int(value)
    return False
