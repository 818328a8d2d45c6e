"""Answers of an environment's API server to manifests: each is the request that creates it.

An object that is admitted counts as present for those after it, as when files are applied in their order.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.check.admission import identities
from tenancy.check.admission.queue import QueueAdmission
from tenancy.check.admission.requests import Identity, creation
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import Denial, Verdict, VerdictOutcome
from tenancy.check.reader import FilePosition, Manifests, Unjudged
from tenancy.kube.kinds import is_cluster_wide
from tenancy.kube.objects import Object, get_path, name_of
from tenancy.planning.queueing.causes import WaitCause
from tenancy.spec.fields.environment import Environment

LIFECYCLE = "NamespaceLifecycle"
"""Admission plugin that refuses objects in namespaces that do not exist."""


class UnknownNamespaceError(ValueError):
    """A namespace that the environment does not have; the message says which there are."""


@dataclass(frozen=True, slots=True)
class ObjectAnswer:
    """The API server's answer to the creation of one object."""

    object: str
    tenant: str
    place: FilePosition
    identity: str
    """The identity that asks, in words."""
    verdict: Verdict
    obstacles: tuple[WaitCause, ...] = ()
    """Why the queue can never admit what the API server admits; empty if it could start."""

    @property
    def refused(self) -> bool:
        """Whether the API server refuses it."""
        return self.verdict.outcome is VerdictOutcome.REFUSED


@dataclass(frozen=True, slots=True)
class ObjectAnswers:
    """The answers to all objects of an input, in its order."""

    environment: str
    answers: tuple[ObjectAnswer, ...] = ()
    unasked: tuple[Unjudged, ...] = ()
    """Objects that are no requests, such as a chart's release."""

    @property
    def refusals(self) -> tuple[ObjectAnswer, ...]:
        """Objects that the API server refuses."""
        return tuple(answer for answer in self.answers if answer.refused)

    @property
    def blocked(self) -> tuple[ObjectAnswer, ...]:
        """Objects that are admitted and can never start."""
        return tuple(answer for answer in self.answers if answer.obstacles)

    @property
    def undecided(self) -> Mapping[str, list[ObjectAnswer]]:
        """Each reason why an answer is not decided, with the objects of which it is true."""
        answers_by_reason: dict[str, list[ObjectAnswer]] = {}
        for answer in self.answers:
            for reason in answer.verdict.undecided:
                answers_by_reason.setdefault(reason, []).append(answer)
        return answers_by_reason

    @property
    def refused_rules(self) -> frozenset[tuple[str, str | None]]:
        """Each object, with each rule by which it is refused."""
        return frozenset((answer.object, denial.rule) for answer in self.answers for denial in answer.verdict.denials)

    @property
    def queues(self) -> Mapping[FilePosition, str]:
        """The queue of each object that is admitted into one, by the object's place."""
        return {
            answer.place: str(queue)
            for answer in self.answers
            if (queue := get_path(answer.verdict.object, "metadata", "labels", QUEUE_NAME))
        }

    @property
    def passes(self) -> bool:
        """Whether no object is refused, and each can start."""
        return not self.refusals and not self.blocked


def answers(
    manifests: Manifests,
    server: OfflineApiServer,
    environment: Environment,
    name: str,
    namespace: str | None = None,
    person: str | None = None,
) -> ObjectAnswers:
    """The answer to each object, by the person or role `named`, or else by a developer of the namespace's tenant.

    `name` is that of the environment's folder, `namespace` that of objects that name none. Raises
    UnknownNamespaceError and `identities.UnknownIdentityError`.
    """
    new_namespaces = {
        str(get_path(item, "metadata", "name")) for item, _ in manifests.objects if item.get("kind") == "Namespace"
    }
    if namespace is not None and server.cluster.namespace(namespace) is None and namespace not in new_namespaces:
        raise UnknownNamespaceError(_unknown(namespace, tenants_of(server)))
    home = namespace or _home(manifests, server)
    queues = QueueAdmission(environment, server.cluster)
    unasked: list[Unjudged] = []
    object_answers: list[ObjectAnswer] = []
    for item, place in manifests.objects:
        if not item.get("apiVersion"):
            reason = "no object of the API: its chart is judged by what `helm template` writes"
            unasked.append(Unjudged(place, name_of(item), reason))
            continue
        item = _placed(dict(item), namespace)
        where = get_path(item, "metadata", "namespace")
        identity = _identity(server, person, where or home or "", home)
        verdict = _with_advice(_answer(server, item, where, identity), item)
        obstacles: tuple[WaitCause, ...] = ()
        if not verdict.denials:
            server.add(verdict.object or item)
            obstacles = tuple(queues.obstacles(verdict.object, where)) if verdict.object and where else ()
        tenant = tenants_of(server).get(str(where), "platform")
        object_answers.append(ObjectAnswer(name_of(item), tenant, place, identity.username, verdict, obstacles))
    return ObjectAnswers(name, tuple(object_answers), tuple(unasked))


def tenants_of(server: OfflineApiServer) -> Mapping[str, str]:
    """Each namespace of a tenant, and the tenant."""
    spaces = server.cluster.all("", "Namespace")
    return {
        str(get_path(space, "metadata", "name")): str(tenant)
        for space in spaces
        if (tenant := get_path(space, "metadata", "labels", vocabulary.TENANT))
    }


def _placed(item: dict[str, Any], namespace: str | None) -> Object:
    metadata = {**(item.get("metadata") or {})}
    if is_cluster_wide(item, namespace):
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace or "default"
    return {**item, "metadata": metadata}


def _home(manifests: Manifests, server: OfflineApiServer) -> str | None:
    """The first namespace of a tenant in an input, whose people create also what is in none."""
    tenants = tenants_of(server)
    spaces = (get_path(item, "metadata", "namespace") for item, _ in manifests.objects)
    return next((str(space) for space in spaces if space in tenants), None)


def _identity(server: OfflineApiServer, person: str | None, where: str, home: str | None) -> Identity:
    if person is not None:
        return identities.identity(server.cluster, person, where)
    creator = identities.workload_creator(server.cluster, where)
    if creator is None and home is not None:
        creator = identities.workload_creator(server.cluster, home)
    return creator or identities.identity(server.cluster, identities.PLATFORM, where)


def _answer(server: OfflineApiServer, item: Object, namespace: str | None, identity: Identity) -> Verdict:
    verdict = server.verdict(creation(item, namespace, identity))
    if not verdict.denials and namespace and server.cluster.namespace(namespace) is None:
        return Verdict((Denial(LIFECYCLE, None, f'namespaces "{namespace}" not found'),))
    return verdict


def _with_advice(verdict: Verdict, item: Object) -> Verdict:
    """The verdict, with the field for NodeLocal DNSCache where a policy to it is refused: no range of a tenant's file
    opens it, as the guard's message says of other ranges."""
    if not any(denial.rule == "net-02" for denial in verdict.denials):
        return verdict
    spec = str(item.get("spec"))
    if vocabulary.DNS_CACHE not in spec and vocabulary.DNS_CACHE_NAME not in spec:
        return verdict
    advice = ". NodeLocal DNSCache needs no policy: cluster.node-local-dns of the environment opens it for DNS"
    denials = (
        replace(denial, message=denial.message + advice) if denial.rule == "net-02" else denial
        for denial in verdict.denials
    )
    return replace(verdict, denials=tuple(denials))


def _unknown(namespace: str, tenant_by_namespace: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(namespace, tenant_by_namespace, n=1, cutoff=0.5)
    change = (
        f"did you mean {close[0]!r}?"
        if close
        else f"use one of {', '.join(sorted(tenant_by_namespace)) or 'none: there are none'}"
    )
    return f"given --namespace {namespace}; rule: a namespace of the environment, or of the files; change: {change}"


def identities_of(object_answers: Sequence[ObjectAnswer]) -> Iterator[tuple[str, list[str]]]:
    """Each identity that asked, with the namespaces in which it did."""
    groups: dict[str, dict[str, None]] = {}
    for answer in object_answers:
        groups.setdefault(answer.identity, {})[answer.tenant] = None
    yield from ((identity, list(tenants)) for identity, tenants in groups.items())
