"""Types of a resource's properties by pulumi_aws: which exist, which are required, and their type.

The SDK is generated from the provider's schema, so its `<Name>Args` classes are that schema as far as a
machine without the provider can have it.
"""

from __future__ import annotations

import difflib
import enum
import functools
import importlib
import inspect
import json
import sys
import threading
import types
import typing
import warnings
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from pulumi import _types
from pulumi.runtime import rpc


class Unknown:
    """A value that only the deployment will know."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = Unknown()
# The engine's names for a value that is not known yet, by what it will be: string, bool, number, list,
# asset, archive, map (sdk/go/common/resource/plugin/rpc.go).
_SENTINELS = {
    rpc.UNKNOWN,
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}
# The SDK's packages are lazy modules, which must not be woken by two threads at once.
_importing = threading.Lock()
_SIGNATURE = rpc._special_sig_key
_ASSETS = {rpc._special_asset_sig, rpc._special_archive_sig}


def from_struct(value: Struct | ListValue | Value) -> Any:
    """The message of the engine, unchanged, with whole numbers as int."""
    if isinstance(value, Struct):
        return {key: from_struct(item) for key, item in value.fields.items()}
    if isinstance(value, ListValue):
        return [from_struct(item) for item in value.values]
    match value.WhichOneof("kind"):
        case "number_value":
            return int(value.number_value) if value.number_value.is_integer() else value.number_value
        case "struct_value":
            return from_struct(value.struct_value)
        case "list_value":
            return from_struct(value.list_value)
        case "null_value" | None:
            return None
        case kind:
            return getattr(value, kind)


def to_struct(value: Mapping[str, Any]) -> Struct:
    """The answer to the engine: `UNKNOWN` in the engine's own notation."""
    struct = Struct()
    struct.update(_spell(value))
    return struct


def _spell(value: Any) -> Any:
    if value is UNKNOWN:
        return rpc.UNKNOWN
    if isinstance(value, Mapping):
        return {key: _spell(item) for key, item in value.items()}
    return [_spell(item) for item in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The value itself: out of secrets and outputs, without nulls, `UNKNOWN` for what is not known yet."""
    if isinstance(value, str):
        return UNKNOWN if value in _SENTINELS else value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    signature = value.get(_SIGNATURE)
    if signature == rpc._special_secret_sig:
        return plain(value["value"])
    if signature == rpc._special_output_value_sig:
        return plain(value["value"]) if "value" in value else UNKNOWN
    if signature in _ASSETS:
        return value
    return {key: plain(item) for key, item in value.items() if item is not None}


@dataclass(frozen=True)
class Mistake:
    """A property as a path (`scalingConfig.maxSize`, `taints[0].effect`) and what is wrong with it."""

    path: str
    reason: str


@functools.cache
def resource_class(token: str) -> type | None:
    """The SDK's class for `aws:eks/nodeGroup:NodeGroup`; None if it has none.

    The SDK registers its own table of tokens, so renamed packages (`lambda_`) need no rule here.
    """
    package, _, resource_path = token.partition(":")
    module = rpc.get_resource_module(package, resource_path.partition(":")[0], "") if package == "aws" else None
    info = getattr(module, "mod_info", {})
    name = info.get("classes", {}).get(token)
    with _importing, warnings.catch_warnings():  # the packages' own deprecated classes warn when they are made
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(info["fqn"]), name) if name else None


@functools.cache
def arguments_class(resource: type) -> type:
    """`NodeGroupArgs` of `NodeGroup`."""
    module = sys.modules[resource.__module__]
    # Where both are there, the short name is that of a part of another resource.
    names = (f"{resource.__name__}InitArgs", f"{resource.__name__}Args")
    arguments_type = next((getattr(module, name) for name in names if hasattr(module, name)), None)
    assert arguments_type is not None, f"{resource.__module__} has none of {names}"
    return arguments_type


@functools.cache
def fields(cls: type) -> Mapping[str, Any]:
    """camelCase name and type of every property of an input type."""
    return _types.input_type_types(cls)


@functools.cache
def required(cls: type) -> tuple[str, ...]:
    """camelCase names of what an input type's constructor asks for."""
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return tuple(names[parameter.name] for parameter in parameters if parameter.default is inspect.Parameter.empty)


@functools.cache
def output_types(token: str) -> Mapping[str, Any]:
    """camelCase name and type of what a resource has once it is there."""
    cls = resource_class(token)
    return _types.resource_types(cls) if cls else {}


@functools.cache
def computed(token: str) -> Mapping[str, Any]:
    """Outputs that are no inputs."""
    cls = resource_class(token)
    settable = fields(arguments_class(cls)) if cls else {}
    return {name: typ for name, typ in output_types(token).items() if name not in settable}


def check_resource(token: str, inputs: Mapping[str, Any]) -> list[Mistake]:
    """Everything about these (plain) inputs that the SDK's types would not have."""
    cls = resource_class(token)
    if cls is None:
        return [Mistake("", f"pulumi_aws has no resource type {token}")]
    return list(_object(arguments_class(cls), inputs, ""))


def check_config(inputs: Mapping[str, Any]) -> list[Mistake]:
    """The same for the provider's configuration."""
    return list(_object(pulumi_aws.ProviderArgs, {name: decoded(name, value) for name, value in inputs.items()}, ""))


def decoded(setting: str, value: Any) -> Any:
    """A setting of the provider: the engine hands over as JSON what is no text."""
    if not isinstance(value, str) or fields(pulumi_aws.ProviderArgs).get(setting) is str:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def alternatives(typ: Any) -> list[Any]:
    """Types that an Input may have once it is known."""
    if typing.get_origin(typ) in (typing.Union, types.UnionType):
        member_types = dict.fromkeys(alternative for arg in typing.get_args(typ) for alternative in alternatives(arg))
        # Where any string will do, the enumeration beside it is a help to editors.
        return [
            alternative
            for alternative in member_types
            if not (str in member_types and isinstance(alternative, enum.EnumMeta))
        ]
    if typing.get_origin(typ) in (Awaitable, pulumi.Output) or typ in (type(None), pulumi.Output):
        return []
    return [] if typing.is_typeddict(typ) else [typ]


def check(typ: Any, value: Any, path: str) -> list[Mistake]:
    """Mistakes of one value; none if any alternative of its type accepts it."""
    if value is UNKNOWN:
        return []
    verdicts = [list(_mistakes_of_type(alternative, value, path)) for alternative in alternatives(typ)]
    if not verdicts or any(not verdict for verdict in verdicts):
        return []
    # A verdict on something inside the value says more than one on the value itself.
    inner = [verdict for verdict in verdicts if verdict[0].path != path]
    if inner or len(verdicts) == 1:
        return (inner or verdicts)[0]
    wants = " or ".join(_describe(alternative) for alternative in alternatives(typ))
    return [Mistake(path, f"wants {wants}, got {_show(value)}")]


def _mistakes_of_type(typ: Any, value: Any, path: str) -> Iterator[Mistake]:
    origin = typing.get_origin(typ)
    if typ is Any:
        return
    if isinstance(typ, type) and _types.is_input_type(typ) and isinstance(value, dict):
        yield from _object(typ, value, f"{path}.")
    elif origin is not None and issubclass(origin, Sequence) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from check(typing.get_args(typ)[0], item, f"{path}[{index}]")
    elif origin is not None and issubclass(origin, Mapping) and isinstance(value, dict) and _SIGNATURE not in value:
        for key, item in value.items():
            yield from check(typing.get_args(typ)[1], item, f"{path}.{key}")
    elif not _fits(typ, value):
        yield Mistake(path, f"wants {_describe(typ)}, got {_show(value)}")


def _fits(typ: Any, value: Any) -> bool:
    if typing.get_origin(typ) is typing.Literal:
        return value in typing.get_args(typ)
    if not isinstance(typ, type):
        return False
    if issubclass(typ, enum.Enum):
        return value in [member.value for member in typ]
    if issubclass(typ, pulumi.Asset | pulumi.Archive):
        return isinstance(value, dict) and value.get(_SIGNATURE) in _ASSETS
    if issubclass(typ, pulumi.Resource):  # the engine sends its id
        return isinstance(value, str)
    if issubclass(typ, bool | int | float):
        return isinstance(value, (int, float) if typ is float else typ) and isinstance(value, bool) == (typ is bool)
    return issubclass(typ, str) and isinstance(value, str)


def _object(cls: type, value: Mapping[str, Any], prefix: str) -> Iterator[Mistake]:
    field_types = fields(cls)
    for name, item in value.items():
        if name.startswith("__"):  # the engine's and the provider's own marks
            continue
        if name in field_types:
            yield from check(field_types[name], item, prefix + name)
            continue
        near = difflib.get_close_matches(name, field_types, 1, 0.6)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        yield Mistake(prefix + name, f"{_describe(cls)} has no such property{hint}")
    for name in required(cls):
        if value.get(name) is None:
            yield Mistake(prefix + name, f"{_describe(cls)} needs this property")


def _describe(typ: Any) -> str:
    origin = typing.get_origin(typ)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(typ)))
    if origin is not None:
        return "a list" if issubclass(origin, Sequence) else "a map"
    if issubclass(typ, enum.Enum):
        return "one of " + ", ".join(repr(member.value) for member in typ)
    words = {
        str: "a string",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        pulumi.Archive: "an archive",
        pulumi.Asset: "an asset",
    }
    package = typ.__module__.removeprefix("pulumi_aws.").partition(".")[0]
    return words.get(typ) or f"{package}.{typ.__name__.removesuffix('Args')}"


def _show(value: Any) -> str:
    kind = {list: "a list", dict: "a map", str: "the string ", bool: "", int: "the number ", float: "the number "}
    text = kind[type(value)]
    if isinstance(value, bool):
        return str(value).lower()
    return text if isinstance(value, list | dict) else f"{text}{value!r}"
