"""Requests of attacks, as the offline API server takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tenancy import planning
from tenancy.check.admission.access import Attributes, authenticated, forbidden
from tenancy.check.admission.bootstrap import platform_binding
from tenancy.check.admission.patches import PatchError, patched
from tenancy.check.admission.requests import AdmissionRequest, Identity, Operation
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import Denial, Verdict
from tenancy.kube.deniers import API_VALIDATION, NOT_FOUND
from tenancy.kube.objects import Object
from tenancy.rules.attacks import Request
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.verify.attacks import Attack, Scene, all_attacks
from tests.request_paths import attributes

CLASSES, RUNTIMES = ["nvidia"], ["plain"]
"""Runtime classes and training runtimes of the cluster."""
RUNTIME = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
"""The operator of NVIDIA brings it."""
_OPERATIONS = {
    "POST": Operation.CREATE,
    "PUT": Operation.UPDATE,
    "PATCH": Operation.UPDATE,
    "DELETE": Operation.DELETE,
    "GET": Operation.READ,
}


def offline_server(environment: Environment, tenants: Sequence[Tenant]) -> OfflineApiServer:
    """The API server of an environment with the node that attacks are on."""
    node = Scene(environment, tenants, CLASSES, RUNTIMES).node
    nodes = [{**node, "apiVersion": "v1", "kind": "Node"}] if node else []
    return offline_server_of(planning.plan(environment, tenants).objects(), environment, nodes)


def offline_server_of(
    objects: Iterable[Object], environment: Environment, extra: Sequence[Object] = ()
) -> OfflineApiServer:
    """The API server of a cluster with these objects, and with the environment's unmanaged namespaces."""
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in environment.platform.unmanaged_namespaces
    ]
    platform = platform_binding(environment.platform.group)
    return OfflineApiServer([platform, *objects, *spaces, *extra], environment.cluster.kubernetes)


def attacks_of(environment: Environment, tenants: Sequence[Tenant]) -> tuple[Attack, ...]:
    """Every attack that applies to an environment, without a cluster."""
    return tuple(attack for attack in all_attacks(Scene(environment, tenants, CLASSES, RUNTIMES)) if not attack.skipped)


def verdict_on(server: OfflineApiServer, request: Request, platform: str) -> Verdict:
    """The answer to a request of an attack; `platform` is the group of the identity that sends those without one."""
    attributes_of_request = attributes(request.method, request.path)
    who = request.who
    identity = (
        Identity(who.user, tuple(who.groups)) if who else Identity("kubernetes-admin", ("system:masters", platform))
    )
    identity = authenticated(identity)
    decision = server.access.decide(identity, attributes_of_request)
    if decision.decided and not decision.allowed:
        return Verdict((forbidden(identity, attributes_of_request),))
    undecided = () if decision.decided else (decision.reason,)
    operation = _OPERATIONS[request.method]
    old = _old(server, attributes_of_request)
    if (
        old is None
        and attributes_of_request.name
        and (operation is not Operation.CREATE or attributes_of_request.subresource)
    ):
        return Verdict(
            (Denial(NOT_FOUND, None, f'{attributes_of_request.resource} "{attributes_of_request.name}" not found'),),
            undecided,
        )
    if operation is Operation.READ or (operation is Operation.DELETE and not attributes_of_request.name):
        return Verdict((), undecided)
    try:
        item = _new(request, attributes_of_request, old)
    except PatchError as error:
        return Verdict((Denial(API_VALIDATION, None, str(error)),), undecided)
    return server.verdict(
        AdmissionRequest(
            operation,
            attributes_of_request.group,
            _version(request.path),
            attributes_of_request.resource,
            attributes_of_request.name or str(((item or {}).get("metadata") or {}).get("name") or ""),
            identity,
            subresource=attributes_of_request.subresource,
            namespace=_namespace(attributes_of_request),
            object=item,
            old_object=None if operation is Operation.CREATE else old,
            options=_options(request),
            verb=attributes_of_request.verb,
        )
    )


def _namespace(attributes: Attributes) -> str | None:
    return attributes.namespace or None


def _old(server: OfflineApiServer, attributes: Attributes) -> Object | None:
    namespace = "" if attributes.resource == "namespaces" else attributes.namespace
    return server.stored(attributes.group, attributes.resource, attributes.name, namespace) if attributes.name else None


def _version(path: str) -> str:
    parts = urlsplit(path).path.strip("/").split("/")
    return parts[1] if parts[0] == "api" else parts[2]


def _new(request: Request, attributes: Attributes, old: Object | None) -> Object | None:
    if request.method == "DELETE":
        return None
    if request.method == "PATCH":
        assert old is not None
        return patched(old, request.body, request.content_type)
    body: dict[str, Any] = request.body
    metadata = dict(body.get("metadata") or {})
    if attributes.namespace and attributes.resource != "namespaces":
        metadata["namespace"] = attributes.namespace
    return {**body, "metadata": metadata}


def _options(request: Request) -> Mapping[str, Any]:
    options: dict[str, Any] = {
        key: {"true": True, "false": False}.get(values[0], int(values[0]) if values[0].isdigit() else values[0])
        for key, values in parse_qs(urlsplit(request.path).query).items()
    }
    if request.method == "DELETE" and isinstance(request.body, Mapping):
        options |= request.body
    return {**options, "dryRun": ["All"]}
