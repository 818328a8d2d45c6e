"""A test double of the AWS provider plugin: the engine talks to it as it talks to the real one, AWS is not there.

The real plugin is a release download that neither this project's tests nor a machine without network can have.
The double speaks `pulumirpc.ResourceProvider`, checks what a program sends against pulumi_aws' own types (and the
AWS API's enumerations, where botocore is installed), keeps what it "makes" in memory and writes down every call:

    with AwsDouble() as aws:
        project.run("pulumi", "up", ..., env=aws.environ)
        assert aws.order("create") == ["create vpc", "create subnet"]

What it can show: that a program's resources have the right properties, refer to one another, come in the right
order, and which change updates, replaces or deletes what. What it cannot: whether AWS would accept a value, name,
quota or combination, whether a policy grants what it should, how long anything takes, what AWS fills in. It is
stricter than the provider in one thing: text is not taken for a number, nor a number for text. It is simpler in
others: no conflicts between properties, no defaults but automatic names, no normalised policy documents; an
optional property taken away always counts as a change, a provider's changed region never does; anything can be
deleted, whatever still refers to it. No figure or claim about AWS may rest on it.
"""

from __future__ import annotations

# The names of the calls and of their parameters come from the generated servicer.
# ruff: noqa: ARG002, N802
import json
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NoReturn

import aws_double_api as api
import aws_double_facts as facts
import aws_double_outputs as invent
import aws_double_types as sdk
import grpc
from aws_double_types import Mistake, from_struct, plain, to_struct
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

Answer = Mapping[str, Any] | Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Result of an invoke: the values, or a function of its arguments and the region."""


ANSWERS: Mapping[str, Answer] = {
    "aws:eks/getAddonVersion:getAddonVersion": lambda arguments, region: {
        **arguments,
        "version": facts.add_on_version(arguments),
        "id": arguments["addonName"],
        "region": region,
    },
    "aws:index/getAvailabilityZones:getAvailabilityZones": lambda _, region: {
        "id": region,
        "names": [f"{region}{zone}" for zone in "abc"],
        "zoneIds": [f"double-az{index}" for index in (1, 2, 3)],
        "groupNames": [region],
        "region": region,
    },
    "aws:index/getCallerIdentity:getCallerIdentity": {
        "id": facts.ACCOUNT,
        "accountId": facts.ACCOUNT,
        "arn": f"arn:aws:iam::{facts.ACCOUNT}:user/double",
        "userId": "AIDADOUBLE",
    },
    "aws:index/getPartition:getPartition": {
        "id": "aws",
        "partition": "aws",
        "dnsSuffix": "amazonaws.com",
        "reverseDnsPrefix": "com.amazonaws",
    },
    "aws:index/getRegion:getRegion": lambda _, region: {
        "id": region,
        "name": region,
        "region": region,
        "description": region,
        "endpoint": f"ec2.{region}.amazonaws.com",
    },
}


@dataclass(frozen=True)
class Call:
    """Something the engine asked for; `inputs` are plain, with `UNKNOWN` for what a preview cannot know."""

    kind: str
    type: str
    name: str
    urn: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    preview: bool = False


@dataclass
class Live:
    """A resource that the double has made. Tests may change one behind the engine's back, or take it away."""

    type: str
    urn: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


@dataclass
class Fault:
    match: str
    kind: str
    message: str
    remaining_strikes: int | None


class AwsDouble(provider_pb2_grpc.ResourceProviderServicer):
    """The plugin; a context manager that serves while it is open."""

    def __init__(self, region: str = "eu-central-1", seed: int = 0) -> None:
        self.calls: list[Call] = []
        self.live: dict[tuple[str, str], Live] = {}
        self.answers: dict[str, Answer] = dict(ANSWERS)
        self.on_call: Callable[[Call], None] | None = None
        """Called before anything is done, on the double's thread: to hold the engine up, or to kill it."""
        self.port = 0
        self._region = region
        self._faults: list[Fault] = []
        self._configured: dict[str, tuple[str, dict[str, str]]] = {}
        self._chance = random.Random(seed)
        self._lock = threading.RLock()

    def __enter__(self) -> AwsDouble:
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._server = grpc.server(ThreadPoolExecutor(16), options=[*unlimited, ("grpc.so_reuseport", 0)])
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    @property
    def environ(self) -> dict[str, str]:
        """For the process that runs the engine."""
        return {"PULUMI_DEBUG_PROVIDERS": f"aws:{self.port}"}

    def order(self, *kinds: str) -> list[str]:
        """`["create vpc", …]`: what was really done, without previews."""
        return [f"{call.kind} {call.name}" for call in self.calls if call.kind in kinds and not call.preview]

    def fail_on(
        self, match: str, kind: str, message: str = "the double was told to fail", times: int | None = 1
    ) -> None:
        """Let the next calls of a kind fail whose urn holds `match` (type and name are part of a urn), or whose
        token does if they are invokes. Previews do not fail; `times=None` means for ever."""
        self._faults.append(Fault(match, kind, message, times))

    def mend(self) -> None:
        """Let nothing fail any more."""
        self._faults.clear()

    def find(self, match: str) -> Live:
        """The one live resource whose urn holds this text."""
        matches = [resource for resource in self.live.values() if match in resource.urn]
        assert len(matches) == 1, (
            f"{len(matches)} live resources match {match!r}: {[resource.urn for resource in matches]}"
        )
        return matches[0]

    def drift(self, match: str, **properties: Any) -> None:
        """Change a resource behind the engine's back."""
        resource = self.find(match)
        resource.inputs |= properties
        resource.outputs |= properties

    def lose(self, match: str) -> None:
        """Delete a resource behind the engine's back."""
        resource = self.find(match)
        del self.live[resource.type, resource.id]

    # The provider's own settings

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def Attach(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=version("pulumi-aws"))

    def GetSchema(self, request: Any, context: Any) -> Any:
        schema = {"name": "aws", "version": version("pulumi-aws")}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        sent = from_struct(request.news)
        mistakes = sdk.check_config(_settings(plain(sent)))
        return provider_pb2.CheckResponse(inputs=to_struct(sent), failures=_failures(mistakes))

    def DiffConfig(self, request: Any, context: Any) -> Any:
        old, new = (_settings(plain(from_struct(settings))) for settings in (request.old_inputs, request.news))
        changes_of_config = list(facts.changes(old, new))
        kinds = provider_pb2.DiffResponse
        changes = kinds.DIFF_SOME if changes_of_config else kinds.DIFF_NONE
        return kinds(changes=changes, diffs=[change.path for change in changes_of_config])

    def Configure(self, request: Any, context: Any) -> Any:
        settings = plain(from_struct(request.args))
        tags = sdk.decoded("defaultTags", settings.get("defaultTags", {})).get("tags", {})
        # Every provider of a program has a connection of its own: that tells their regions apart.
        self._configured[context.peer()] = (_known_or(settings.get("region"), self._region), tags)
        self._note(Call("configure", "pulumi:providers:aws", request.name, request.urn, settings), context)
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    # Resources

    def Check(self, request: Any, context: Any) -> Any:
        sent, old = from_struct(request.news), plain(from_struct(request.olds))
        sent = {key: value for key, value in sent.items() if value is not None}
        inputs = plain(sent)
        call = self._call("check", request, inputs)
        self._note(call, context)
        mistakes = sdk.check_resource(call.type, inputs)
        mistakes += api.mistakes(call.type, inputs) if not mistakes else []
        if not mistakes:
            generated_names = facts.autoname(call.type, call.name, inputs, old, request.randomSeed)
            sent |= generated_names
            sent["__defaults"] = list(generated_names)
        return provider_pb2.CheckResponse(inputs=to_struct(sent), failures=_failures(mistakes))

    def Diff(self, request: Any, context: Any) -> Any:
        old, new = plain(from_struct(request.old_inputs)), plain(from_struct(request.news))
        call = self._call("diff", request, new, request.id)
        self._note(call, context)
        property_changes = facts.planned_changes(call.type, old, new)
        replacing = {change.path for change in property_changes if facts.replaces(call.type, change)}
        kinds = provider_pb2.PropertyDiff.Kind
        details = {
            change.path: provider_pb2.PropertyDiff(
                kind=kinds.Value(change.how + "_REPLACE" * (change.path in replacing)), inputDiff=True
            )
            for change in property_changes
        }
        # A name that the program gives is taken until the old resource is gone.
        key = facts.AUTONAMED.get(call.type, "name")
        keeps_name = key in new and key not in new.get("__defaults", ()) and old.get(key) == new[key]
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if property_changes else provider_pb2.DiffResponse.DIFF_NONE,
            replaces=sorted(replacing),
            deleteBeforeReplace=bool(replacing) and (keeps_name or call.type in facts.DELETES_FIRST),
            diffs=sorted({change.property for change in property_changes}),
            detailedDiff=details,
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> Any:
        sent = from_struct(request.properties)
        call = self._call("create", request, plain(sent), preview=request.preview)
        self._note(call, context)
        region, tags = self._settings_of(context)
        region = _known_or(call.inputs.get("region"), region)
        with self._lock:
            naming = invent.Naming(call.type, call.name, region, call.inputs, self._chance)
            outputs = invent.outputs(naming, _unmarked(sent), tags, request.preview)
            if request.preview:
                return provider_pb2.CreateResponse(properties=to_struct(outputs))
            key = (call.type, naming.words["id"])
            if key in self.live and not facts.puts(call.type):
                self._fail(context, f"creating {call.type} ({key[1]}): it exists already, as {self.live[key].urn}")
            self.live[key] = Live(call.type, call.urn, key[1], sent, outputs)
        return provider_pb2.CreateResponse(id=key[1], properties=to_struct(outputs))

    def Read(self, request: Any, context: Any) -> Any:
        call = self._call("read", request, plain(from_struct(request.inputs)), request.id)
        self._note(call, context)
        resource = self.live.get((call.type, request.id))
        if resource is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=resource.id, properties=to_struct(resource.outputs), inputs=to_struct(resource.inputs)
        )

    def Update(self, request: Any, context: Any) -> Any:
        sent, old = from_struct(request.news), from_struct(request.olds)
        call = self._call("update", request, plain(sent), request.id, request.preview)
        self._note(call, context)
        before = plain(from_struct(request.old_inputs))
        outputs = invent.updated(call.type, before, call.inputs, old, _unmarked(sent), request.preview)
        outputs |= invent.tags_all(call.type, call.inputs, self._settings_of(context)[1])
        if not request.preview:
            with self._lock:
                resource = self.live.get((call.type, request.id))
                if resource is None:
                    self._fail(context, f"updating {call.type} ({request.id}): it does not exist")
                resource.inputs, resource.outputs = sent, outputs
        return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    def Delete(self, request: Any, context: Any) -> Any:
        call = self._call("delete", request, plain(from_struct(request.old_inputs)), request.id)
        self._note(call, context)
        with self._lock:
            self.live.pop((call.type, request.id), None)  # gone already is as good to the provider
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        arguments = plain(from_struct(request.args))
        self._note(Call("invoke", request.tok, request.tok.rpartition(":")[2], inputs=arguments), context)
        answer = self.answers.get(request.tok)
        if answer is None:
            self._fail(context, f"the AWS double has no answer to {request.tok}: put one into its `answers`")
        if callable(answer):
            region = _known_or(arguments.get("region"), self._settings_of(context)[0])
            answer = answer(arguments, region)
        return provider_pb2.InvokeResponse(**{"return": to_struct(answer)})

    def _settings_of(self, context: Any) -> tuple[str, dict[str, str]]:
        return self._configured.get(context.peer(), (self._region, {}))

    def _call(self, kind: str, request: Any, inputs: Mapping[str, Any], id: str = "", preview: bool = False) -> Call:
        _, _, types, name = request.urn.split("::", 3)
        return Call(kind, types.rpartition("$")[2], name, request.urn, _unmarked(inputs), id, preview)

    def _note(self, call: Call, context: Any) -> None:
        with self._lock:
            self.calls.append(call)
        if self.on_call is not None:
            self.on_call(call)
        if call.preview:
            return
        with self._lock:
            hits = [
                f
                for f in self._faults
                if f.kind == call.kind and f.match in (call.urn or call.type) and f.remaining_strikes != 0
            ]
            for fault in hits[:1]:
                fault.remaining_strikes = None if fault.remaining_strikes is None else fault.remaining_strikes - 1
        if hits:
            self._fail(context, hits[0].message)

    def _fail(self, context: Any, message: str) -> NoReturn:
        context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError


def _failures(mistakes: list[Mistake]) -> list[Any]:
    return [provider_pb2.CheckFailure(property=mistake.path, reason=mistake.reason) for mistake in mistakes]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in ("version", "pluginDownloadURL")}


def _known_or(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _unmarked(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sent.items() if not key.startswith("__")}
