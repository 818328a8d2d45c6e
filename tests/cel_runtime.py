"""The guards' expressions evaluated without an API server, by CEL's own C++ runtime (cel-expr-python).

The functions that Kubernetes adds to CEL are doubles: quantities, and an authorizer that allows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from tenancy.kube.quantities import parse
from tenancy.planning.guards.admission_policy import Guard

ANY = cel.Type.DYN
TEXT = cel.Type.STRING
NUMBER = cel.Type.DOUBLE
_ROOTS = ("object", "oldObject", "request", "namespaceObject", "authorizer", "variables")


def _function(name: str, takes: list[cel.Type], gives: cel.Type, does: Any, *, member: bool) -> cel.FunctionDecl:
    overload = cel.Overload(id=f"kubernetes_{name}", return_type=gives, parameters=takes, is_member=member, impl=does)
    return cel.FunctionDecl(name, [overload])


_KUBERNETES = [
    _function("quantity", [TEXT], NUMBER, lambda text: float(parse(text)), member=False),
    _function("sign", [NUMBER], cel.Type.INT, lambda amount: (amount > 0) - (amount < 0), member=False),
    _function(
        "isGreaterThan",
        [NUMBER, NUMBER],
        cel.Type.BOOL,
        lambda left_quantity, right_quantity: left_quantity > right_quantity,
        member=True,
    ),
    *(
        _function(name, [TEXT, TEXT], TEXT, lambda check, _: check, member=True)
        for name in ("group", "resource", "namespace", "check")
    ),
    _function("allowed", [TEXT], cel.Type.BOOL, lambda _: False, member=True),
]
_ENVIRONMENT = cel.NewEnv(
    variables=dict.fromkeys(_ROOTS, ANY),
    extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    functions=_KUBERNETES,
)


@cache
def compiled(expression: str) -> cel.Expression:
    return _ENVIRONMENT.compile(expression)


def evaluated(expression: str, data: Mapping[str, Any]) -> Any:
    return compiled(expression).eval(data={"authorizer": "", **data}).plain_value()


def refuses(guard: Guard, rule: str, data: Mapping[str, Any]) -> bool:
    """Whether a guard refuses a request by one of its rules, as the API server would: where all conditions hold."""
    if not all(evaluated(condition, data) for condition in guard.conditions.values()):
        return False
    text = guard.rules[rule]
    return not evaluated(text, {**data, "variables": _variables(guard, text, data, {})})


def _variables(guard: Guard, text: str, data: Mapping[str, Any], values_by_name: dict[str, Any]) -> dict[str, Any]:
    """The variables that an expression names. One that cannot be made is left out: to read it is then an error."""
    for name in re.findall(r"\bvariables\.(\w+)", text):
        if name not in values_by_name:
            _variables(guard, guard.variables[name], data, values_by_name)
            with suppress(Exception):
                values_by_name[name] = evaluated(guard.variables[name], {**data, "variables": dict(values_by_name)})
    return values_by_name
