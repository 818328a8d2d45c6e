"""CEL as Kubernetes evaluates it, by CEL's own C++ runtime (cel-expr-python).

The functions that Kubernetes adds to CEL are here as far as guards use them:
`k8s.io/apiserver` v0.36.3 `pkg/cel/library/quantity.go`, `authz.go`, `jsonpatch.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from decimal import Decimal
from functools import cache
from typing import Any

from tenancy.kube.quantities import parse
from tenancy.rules.attacks import escaped

ROOTS = ("object", "oldObject", "request", "namespaceObject", "authorizer", "variables")
"""Variables of every expression of an admission policy."""

Permission = Callable[[Mapping[str, str]], bool]
"""Whether the identity of a request has a permission, by `group`, `resource`, `namespace` and `verb`."""
_PERMISSION: ContextVar[Permission] = ContextVar("permission")
_PARTS = {"group": "group", "resource": "resource", "namespace": "namespace", "check": "verb"}
"""Functions of the authorizer, and the part of a permission that each names."""
_SYNTAX = re.compile(r"Syntax error: (.*?)(?= expecting \{|$)", re.MULTILINE)
_VARIABLE = re.compile(r"\bvariables\.(\w+)")


class EvaluationError(Exception):
    """An expression that ends in an error, in CEL's words."""


@cache
def _environment() -> Any:
    # Imported here: loading the runtime takes longer than most commands.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional, ext_strings

    kinds = cel.Type

    def function(name: str, takes: Sequence[Any], gives: Any, does: Any, *, member: bool) -> Any:
        overload = cel.Overload(f"kubernetes_{name}", gives, list(takes), member, does)
        return cel.FunctionDecl(name, [overload])

    text = kinds.STRING
    functions = [
        # A quantity is its exact number as a text.
        function("quantity", [text], text, lambda amount: str(parse(amount)), member=False),
        function("sign", [text], kinds.INT, lambda amount: _sign(Decimal(amount)), member=False),
        function("isGreaterThan", [text, text], kinds.BOOL, lambda a, b: Decimal(a) > Decimal(b), member=True),
        # A check of the authorizer is its parts as JSON.
        *(function(name, [text, text], text, _adding(part), member=True) for name, part in _PARTS.items()),
        function("allowed", [text], kinds.BOOL, lambda check: _PERMISSION.get()(json.loads(check)), member=True),
        function("jsonpatch.escapeKey", [text], text, escaped, member=False),
    ]
    return cel.NewEnv(
        _messages(),
        variables=dict.fromkeys(ROOTS, kinds.DYN),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=functions,
    )


def _messages() -> Any:
    """The messages that Kubernetes adds to CEL: JSONPatch."""
    from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2

    field = descriptor_pb2.FieldDescriptorProto  # ty: ignore[missing-attribute]
    value = struct_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(  # ty: ignore[missing-attribute]
        name="jsonpatch.proto", syntax="proto3", dependency=[value.name]
    )
    fields = file.message_type.add(name="JSONPatch").field
    for number, name in enumerate(("op", "path", "from"), start=1):
        fields.add(name=name, number=number, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    fields.add(
        name="value",
        number=4,
        label=field.LABEL_OPTIONAL,
        type=field.TYPE_MESSAGE,
        type_name=".google.protobuf.Value",
    )
    pool: Any = descriptor_pool.DescriptorPool()  # ty: ignore[possibly-missing-implicit-call]
    pool.AddSerializedFile(value.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _adding(part: str) -> Callable[[str, str], str]:
    return lambda check, value: json.dumps({**json.loads(check), part: value})


def _sign(number: Decimal) -> int:
    return (number > 0) - (number < 0)


@cache
def compiled(expression: str) -> Any:
    """An expression without variables, ready to be evaluated; ValueError if it is no CEL."""
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def syntax_mistake(expression: str) -> str | None:
    """The mistake in a text that is no expression; None for one that can be read."""
    try:
        compiled(expression)
    except ValueError as error:
        mistake = _SYNTAX.search(str(error))
        # Names in backticks are read by Kubernetes alone.
        return mistake[1] if mistake and "`" not in expression else None
    return None


@cache
def variables_in(expression: str) -> frozenset[str]:
    """Names of the variables that an expression reads."""
    return frozenset(_VARIABLE.findall(expression))


class Evaluator:
    """Evaluates expressions: the values of their roots are converted once for all of them."""

    def __init__(self, roots: Mapping[str, Any], permission: Permission = lambda _: False) -> None:
        self._roots = {**dict.fromkeys(ROOTS), **roots, "authorizer": "{}"}
        self._permission = permission
        self._activation = self._with({})

    def _with(self, variables: Mapping[str, Any]) -> Any:
        return _environment().Activation({**self._roots, "variables": dict(variables)})

    def having(self, variables: Mapping[str, str]) -> Evaluator:
        """The same, with the variables of a policy, each evaluated once.

        One that ends in an error is left out: an expression that reads it ends in an error too, as at the API server.
        """
        values: dict[str, Any] = {}
        scope, waiting = self, dict(variables)
        while waiting:
            computable_names = [name for name, text in waiting.items() if variables_in(text).isdisjoint(waiting)]
            if not computable_names:
                break
            for name in computable_names:
                text = waiting.pop(name)
                with suppress(EvaluationError):
                    values[name] = scope.value(text)
            scope = copy(self)
            scope._activation = self._with(values)
        return scope

    def value(self, expression: str) -> Any:
        """The value of an expression; EvaluationError if it has none."""
        token = _PERMISSION.set(self._permission)
        try:
            result = compiled(expression).eval(self._activation)
        finally:
            _PERMISSION.reset(token)
        value = result.plain_value()
        if result.type().name() == "ERROR":
            raise EvaluationError(str(value))
        return value
