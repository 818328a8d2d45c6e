"""What taking namespaces over would change, what stays beside it, and what the guards would refuse of what is there.

Lists and dry runs alone: whatever would write is asked with `dryRun=All`.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from tenancy.catalog import quantity
from tenancy.catalog import vocabulary as words
from tenancy.live import denial
from tenancy.live.api import Answer, Api, Identity, collection
from tenancy.live.cohorts import thousandths
from tenancy.live.copies import ASKS_QUEUE, as_written, has_ended
from tenancy.live.discovery import Kind, namespaced
from tenancy.live.fits import NotWork, limits_of, pods_of, requests_of
from tenancy.plan.guards import BACKSTOPS, WITNESS, guards
from tenancy.plan.guards.expressions import Guard
from tenancy.plan.model import NamespacePlan, Object, Plan
from tenancy.spec.environment import Environment, GuardsMode

MERGE = "application/merge-patch+json"


class State(StrEnum):
    """What a namespace is to the plan."""

    OURS = "taken over"
    WANTED = "to be taken over"  # its tenant's file says adopt: true
    IN_THE_WAY = "in the way"  # it does not
    STRAY = "in no file"  # it is called as a tenant's, and no file names it


class Topic(StrEnum):
    CHANGES = "changes"
    BESIDE = "stays beside"
    QUOTA = "quota below use"
    POD_SECURITY = "Pod Security"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person has to know before, or to mend."""

    namespace: str
    topic: Topic
    what: str
    """A key, or an object."""
    now: str
    then: str
    rule: str = ""
    """Of a refusal: the rule's id, or the control that has no rules."""


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace that the plan would take over, has taken over, or that is called as if it had."""

    name: str
    tenant: str
    state: State
    asked: int
    """Objects that the guards were asked about."""
    unasked: tuple[str, ...]
    """Rules that rest on what a takeover writes, and so cannot be asked before."""
    findings: tuple[Finding, ...] = field(default=())


def mode(api: Api, environment: str) -> GuardsMode | None:
    """What the cluster's guards do, by their bindings; None where none stands. One that only warns is enough."""
    path = collection("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")
    found = [
        item["spec"].get("validationActions") or []
        for item in api.items(f"{path}?labelSelector={words.ENVIRONMENT}={environment}")
        if item["metadata"]["name"] != WITNESS
    ]
    if not found:
        return None
    return GuardsMode.ENFORCE if all("Deny" in actions for actions in found) else GuardsMode.AUDIT


def spaces(api: Api, environment: Environment, plan: Plan, tenant: str | None = None) -> tuple[Space, ...]:
    """Every namespace that there is of the plan's, or of a tenant's name, with what is to be known of it."""
    there = {item["metadata"]["name"]: item for item in api.items("/api/v1/namespaces")}
    asker = _Asker(api, environment)
    found = []
    for one in plan.tenants:
        if tenant not in {None, one.name}:
            continue
        planned = {space.name: space for space in one.namespaces}
        for name, live in sorted(there.items()):
            if name in planned:
                labels = live["metadata"].get("labels") or {}
                ours = labels.get(words.ENVIRONMENT) == plan.environment
                state = State.OURS if ours else State.WANTED if one.adopt else State.IN_THE_WAY
                found.append(asker.space(planned[name], live, one.name, state))
            elif name.startswith(words.derived_name(one.name, "")):
                found.append(Space(name, one.name, State.STRAY, 0, ()))
    return tuple(found)


class _Asker:
    """Asks about one namespace after another; what is the cluster's is asked once."""

    def __init__(self, api: Api, environment: Environment) -> None:
        self._api = api
        self._environment = environment

    @cached_property
    def _mode(self) -> GuardsMode | None:
        return mode(self._api, self._environment.environment)

    @cached_property
    def _kinds(self) -> tuple[Kind, ...]:
        return namespaced(self._api)[0]

    @cached_property
    def _judged(self) -> tuple[Kind, ...]:
        """Kinds that the guards judge and people make."""
        judged = {
            (group, plural)
            for guard in guards(self._environment)
            if "CREATE" in guard.operations
            for group, _, plurals in guard.resources
            for plural in plurals
        }
        return tuple(kind for kind in self._kinds if (kind.group, kind.plural) in judged)

    @cached_property
    def _of_namespace(self) -> frozenset[str]:
        # What a limit range or Kueue's webhooks would write is not written in a namespace that is not ours.
        return namespace_rules(guards(self._environment)) | frozenset(BACKSTOPS)

    def space(self, planned: NamespacePlan, live: Object, tenant: str, state: State) -> Space:
        name = planned.name
        findings = [
            *_changes(planned, live),
            *_beside(self._api, self._environment.environment, name, state),
            *self._quota(planned),
            *_pod_security(self._api, planned),
        ]
        there = list(self._there(name)) if self._mode else []
        known = (live["metadata"].get("labels") or {}).get(words.TENANT) == tenant
        skipped = frozenset() if known else self._of_namespace
        for item in there:
            findings += self._refused(item, skipped)
        return Space(name, tenant, state, len(there), tuple(sorted(skipped)) if there else (), tuple(findings))

    def _there(self, space: str) -> Iterator[Object]:
        """What was made by hand there, has not ended, and is no part of what the plan makes."""
        for kind in self._judged:
            for item in self._api.items(kind.path(space)):
                metadata = item["metadata"]
                ours = (metadata.get("labels") or {}).get(words.ENVIRONMENT) == self._environment.environment
                if not (ours or metadata.get("ownerReferences") or has_ended(item)):
                    yield {"apiVersion": kind.version, "kind": kind.kind, **item}

    def _quota(self, planned: NamespacePlan) -> Iterator[Finding]:
        for quota, over in below_use(self._api, [planned], self._kinds).items():
            for key, (hard, used) in over.items():
                yield Finding(planned.name, Topic.QUOTA, f"{quota.partition('/')[2]}: {key}", used, hard)

    def _refused(self, item: Object, skipped: Collection[str]) -> Iterator[Finding]:
        seen: set[str] = set()
        what = f"{item['kind']} {item['metadata']['name']}"
        for asked in _asked(item):
            answer = self._api.request("POST", _where(asked), asked, NOBODY)
            for now, (rule, says) in _refusals(answer):
                if rule not in seen and rule not in skipped:
                    seen.add(rule)
                    yield Finding(item["metadata"]["namespace"], Topic.REFUSED, what, now, says, rule)


# What changes, and what does not


def _changes(planned: NamespacePlan, live: Object) -> Iterator[Finding]:
    for place in ("labels", "annotations"):
        wanted, present = planned.namespace["metadata"].get(place) or {}, live["metadata"].get(place) or {}
        for key, value in sorted(wanted.items()):
            if key != FORCE and present.get(key) != value:
                what = f"{place.removesuffix('s')} {key}"
                yield Finding(planned.name, Topic.CHANGES, what, present.get(key, ABSENT), value)


FORCE = "pulumi.com/patchForce"
"""Says something to the engine alone."""
ABSENT = "–"


def _beside(api: Api, environment: str, space: str, state: State) -> Iterator[Finding]:
    """What somebody else made there and a takeover leaves: it adds to what the files give, or takes from it."""

    def foreign(version: str, kind: str) -> Iterator[tuple[str, Object]]:
        for item in api.items(collection(version, kind, space)):
            if (item["metadata"].get("labels") or {}).get(words.ENVIRONMENT) != environment:
                yield f"{kind} {item['metadata']['name']}", item

    for name, item in foreign("rbac.authorization.k8s.io/v1", "RoleBinding"):
        who = ", ".join(f"{s['kind']} {s['name']}" for s in item.get("subjects") or ()) or "nobody"
        yield Finding(space, Topic.BESIDE, name, f"{who} as {item['roleRef']['name']}", "they still get in")
    for name, item in foreign("v1", "ResourceQuota"):
        hard = ", ".join(f"{key} {amount}" for key, amount in sorted((item["spec"].get("hard") or {}).items()))
        yield Finding(space, Topic.BESIDE, name, hard, "the smaller of the two holds")
    for name, item in foreign("v1", "LimitRange"):
        types = ", ".join(sorted({limit["type"] for limit in item["spec"].get("limits") or ()}))
        yield Finding(space, Topic.BESIDE, name, f"of {types}", "both bounds hold, either's defaults")
    if state is State.OURS:
        return  # its own NetworkPolicies are asked about: most say no more than its file
    for name, item in foreign("networking.k8s.io/v1", "NetworkPolicy"):
        ways = " and ".join(item["spec"].get("policyTypes") or ["Ingress"])
        yield Finding(space, Topic.BESIDE, name, ways, "what it lets through adds to what the file does")


# Quota


FEW = 20
"""Namespaces that are asked one by one: as many as one tenant may have."""
Over = dict[str, tuple[str, str]]
"""Key of a quota -> what it will be, and what is in use."""


def below_use(api: Api, planned: Sequence[NamespacePlan], kinds: Sequence[Kind] | None = None) -> dict[str, Over]:
    """Quotas by namespace/name that would be below what is in use now. Of those that are not there yet it is counted,
    if `kinds` are given."""
    # One tenant's stack does not ask for everybody's.
    few = [space.name for space in planned] if len(planned) <= FEW else [None]
    present = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for name in few
        for item in api.items(collection("v1", "ResourceQuota", name))
    }
    found: dict[str, Over] = {}
    for space in planned:
        for quota in (item for item in space.isolation if item["kind"] == "ResourceQuota"):
            name = quota["metadata"]["name"]
            live = present.get((space.name, name))
            used = ((live or {}).get("status") or {}).get("used")
            if used is None and kinds is not None and not quota["spec"].get("scopeSelector"):
                used = in_use(api, space.name, quota["spec"]["hard"], kinds)
            over = {
                key: (str(amount), str(used[key]))
                for key, amount in quota["spec"]["hard"].items()
                if used and key in used and _number(used[key]) > _number(amount)
            }
            if over:
                found[f"{space.name}/{name}"] = over
    return found


def _number(amount: str | int) -> int:
    try:
        return thousandths(amount)
    except ValueError:
        return 0  # a form that the API server writes and we do not: not compared


def in_use(api: Api, space: str, keys: Collection[str], kinds: Sequence[Kind]) -> dict[str, str]:
    """What a quota of these keys would count there, as its controller does; unknown keys are left out."""
    pods = [p for p in api.items(collection("v1", "Pod", space)) if not has_ended(p)]
    amounts: Counter[str] = Counter({"pods": 1000 * len(pods)})
    for pod in pods:
        for side, of in (("requests", requests_of), ("limits", limits_of)):
            amounts.update({f"{side}.{name}": amount for name, amount in of(pod["spec"]).items()})
    services = api.items(collection("v1", "Service", space))
    outside = [s["spec"].get("type") for s in services]
    claims = api.items(collection("v1", "PersistentVolumeClaim", space))
    amounts.update(
        {
            "services": 1000 * len(services),
            "services.loadbalancers": 1000 * outside.count("LoadBalancer"),
            "services.nodeports": 1000 * (outside.count("NodePort") + outside.count("LoadBalancer")),
            "secrets": 1000 * len(api.items(collection("v1", "Secret", space))),
            "configmaps": 1000 * len(api.items(collection("v1", "ConfigMap", space))),
            "persistentvolumeclaims": 1000 * len(claims),
        }
    )
    for claim in claims:
        size = thousandths(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))
        of_class = f"{claim['spec'].get('storageClassName', '')}.storageclass.storage.k8s.io/"
        amounts.update({"requests.storage": size, f"{of_class}requests.storage": size})
        amounts.update({f"{of_class}persistentvolumeclaims": 1000})
    by_name = {f"count/{kind.plural}{'.' + kind.group if kind.group else ''}": kind for kind in kinds}
    for key in keys:
        if key in by_name:
            amounts[key] = 1000 * len(api.items(by_name[key].path(space), absent=True))
    return {key: quantity.write(quantity.parse(f"{amount}m")) for key, amount in amounts.items() if key in keys}


# Pod Security

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def warnings(answer: Answer) -> list[str]:
    """What the API server warns of."""
    header = next((text for name, text in answer.headers.items() if name.lower() == "warning"), "")
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


def _pod_security(api: Api, planned: NamespacePlan) -> Iterator[Finding]:
    """What the API server says of the pods that are there, asked for the labels that the plan writes."""
    labels = {
        key: value
        for key, value in planned.namespace["metadata"]["labels"].items()
        if key.startswith(words.PSA_ENFORCE.removesuffix("enforce"))
    }
    path = f"/api/v1/namespaces/{planned.name}?dryRun=All"
    answer = api.request("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE)
    level = labels.get(words.PSA_ENFORCE, "")
    for text in warnings(answer):
        # "pod: reason, reason" for each kind of pod, below a line that says of which namespace.
        if ": " in text and not text.startswith("existing pods in namespace"):
            pods, _, reasons = text.partition(": ")
            yield Finding(planned.name, Topic.POD_SECURITY, pods, reasons, f"refused at level {level} when made anew")
    if not answer.ok:
        yield Finding(planned.name, Topic.POD_SECURITY, "namespace", f"{answer.status}", answer.message)


# Guards

NOBODY = Identity("tenancy-report", ("system:masters",))
"""Who asks: RBAC lets them do all, and no guard exempts them, as some do the platform's group."""
_POLICY = re.compile(
    r"^Validation failed for ValidatingAdmissionPolicy '([^']+)' with binding '[^']+': (.*)$", re.DOTALL
)
_RULE = re.compile(r"^([a-z]+-\d+): (.*)$", re.DOTALL)
_TO_CHANGE = " To change: "


def namespace_rules(found: Sequence[Guard]) -> frozenset[str]:
    """Rules whose text reads the namespace, directly or by a variable."""
    rules = set()
    for guard in found:
        reading = {name for name, text in guard.variables.items() if "namespaceObject" in text}
        while more := {
            name
            for name, text in guard.variables.items()
            if name not in reading and reading.intersection(re.findall(r"variables\.(\w+)", text))
        }:
            reading |= more
        for rule, text in guard.rules.items():
            if "namespaceObject" in text or reading.intersection(re.findall(r"variables\.(\w+)", text)):
                rules.add(rule)
    return frozenset(rules)


def _asked(item: Object) -> Iterator[Object]:
    """A copy of an object as it would be made anew under another name, and a pod of each of its templates."""
    made = as_written(item)
    if item["kind"] == "Secret":
        made = _emptied(made)
    made["metadata"]["name"] = f"{item['metadata']['name'][:50].rstrip('-.')}-{secrets.token_hex(4)}"
    yield made
    if item["kind"] in {"DaemonSet", "Pod"}:
        return
    try:
        sets = pods_of(made)
    except NotWork:
        return
    labels = {key: value for key, value in (made["metadata"].get("labels") or {}).items() if key in ASKS_QUEUE}
    for pods in sets:
        metadata = pods.template.get("metadata") or {}
        own = {
            "name": f"adoption-{secrets.token_hex(4)}",
            "namespace": item["metadata"]["namespace"],
            "labels": {**labels, **(metadata.get("labels") or {})},
            "annotations": metadata.get("annotations") or {},
        }
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": pods.template["spec"]}


def _emptied(secret: Object) -> Object:
    """Its keys, and its type where that says what it may do: values are nobody's, and other types check them."""
    kind = secret.get("type")
    return {
        **{key: secret[key] for key in ("apiVersion", "kind", "metadata")},
        "data": dict.fromkeys(secret.get("data") or (), ""),
        **({"type": kind} if kind == "kubernetes.io/service-account-token" else {}),
    }


def _where(item: Object) -> str:
    return collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"]) + "?dryRun=All"


def _refusals(answer: Answer) -> Iterator[tuple[str, tuple[str, str]]]:
    """Whether it is refused or warned of, by which rule or control, and what that says. A quota is not among them: it
    counts the copy beside what it is of."""
    for text in warnings(answer):
        if found := _POLICY.match(text):
            yield "warned of", _ruled(found[2], found[1])
    if answer.ok:
        return
    who, message = denial.denier(answer.status, answer.message), answer.message
    if who.startswith(denial.ADMISSION_POLICY):
        yield "refused", _ruled(message.partition("denied request: ")[2], who)
    elif not who.startswith(denial.QUOTA):
        yield "refused", (who, message.partition("is forbidden: ")[2] or message)


def _ruled(text: str, policy: str) -> tuple[str, str]:
    found = _RULE.match(text)
    rule, said = (found[1], found[2]) if found else (policy, text)
    title, _, change = said.partition(_TO_CHANGE)
    change = change.partition(" Read ")[0].rstrip(". ")
    return rule, f"{title.rstrip('.')}; change: {change}" if change else title
