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
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

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
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
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


def compiled(expression: str) -> Any:
    """An expression, ready to be evaluated; ValueError if it is no CEL."""
    program = _program(expression)
    if isinstance(program, ValueError):
        raise program
    return program


@cache
def _program(expression: str) -> Any:
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        return ValueError(str(error))


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
        self._activation = _environment().Activation(self._roots)
        self._variables: tuple[tuple[str, str], ...] = ()
        self._with_separate_variables: Evaluator | None = None

    def having(self, variables: Mapping[str, str]) -> Evaluator:
        """The same, with the variables of a policy.

        An expression that reads a variable that ends in an error ends in an error too, as at the API server.
        """
        scope = copy(self)
        scope._variables, scope._with_separate_variables = tuple(variables.items()), None
        return scope

    def value(self, expression: str) -> Any:
        """The value of an expression; EvaluationError if it has none."""
        if not self._variables:
            return self._evaluated(expression)
        with suppress(EvaluationError, ValueError):
            return self._evaluated(_with_variables(expression, self._variables))
        # A variable ends in an error, or the text is longer or deeper than what CEL reads.
        self._with_separate_variables = self._with_separate_variables or self._separately()
        return self._with_separate_variables._evaluated(expression)

    def _separately(self) -> Evaluator:
        """The same, with those variables that have a value, each evaluated by itself."""
        scope, values = copy(self), dict[str, Any]()
        for names in _rounds(self._variables):
            for name in names:
                with suppress(EvaluationError):
                    values[name] = scope._evaluated(dict(self._variables)[name])
            scope = copy(scope)
            scope._activation = _environment().Activation({**self._roots, "variables": dict(values)})
        return scope

    def _evaluated(self, expression: str) -> Any:
        token = _PERMISSION.set(self._permission)
        try:
            result = compiled(expression).eval(self._activation)
        finally:
            _PERMISSION.reset(token)
        value = result.plain_value()
        if result.type().name() == "ERROR":
            raise EvaluationError(str(value))
        return value

    def values(self, expressions: Sequence[str]) -> list[Any]:
        """The value of each expression, or the EvaluationError in which it ends.

        All are evaluated as one, and each alone only where one of them ends in an error.
        """
        try:
            return self.value(_listed(tuple(expressions)))
        except (EvaluationError, ValueError) as error:
            if len(expressions) == 1:
                return [error if isinstance(error, EvaluationError) else self.value(expressions[0])]
        # Together they may be longer or deeper than what CEL reads.
        half = len(expressions) // 2
        return [*self.values(expressions[:half]), *self.values(expressions[half:])]


@cache
def _listed(expressions: tuple[str, ...]) -> str:
    return f"[{', '.join(expressions)}]"


@cache
def _with_variables(expression: str, variables: tuple[tuple[str, str], ...]) -> str:
    """The expression with the variables before it: evaluated as one, they cost much less than each by itself."""
    rounds, texts = _rounds(variables), dict(variables)
    for number in reversed(range(len(rounds))):
        earlier_names = [name for names in rounds[:number] for name in names]
        entries = [
            *(f'"{name}": variables.{name}' for name in earlier_names),
            *(f'"{name}": dyn({texts[name]})' for name in rounds[number]),
        ]
        expression = f"cel.bind(variables, {{{', '.join(entries)}}}, {expression})"
    return expression


@cache
def _rounds(variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], ...]:
    """The names of variables in an order of evaluation: each reads only those of the rounds before its own."""
    rounds, waiting = [], dict(variables)
    while names := tuple(name for name, text in waiting.items() if variables_in(text).isdisjoint(waiting)):
        rounds.append(names)
        waiting = {name: text for name, text in waiting.items() if name not in names}
    return tuple(rounds)
