"""What a takeover of namespaces would change, which foreign objects it leaves, and which ones the guards would refuse.

Only lists and dry runs: every write is sent with `dryRun=All`.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from tenancy.catalog import vocabulary as words
from tenancy.kube import deniers, quantities
from tenancy.kube.objects import Object
from tenancy.kube.pods import NotWork, Pods, limits_of, pods_of, requests_of
from tenancy.kube.quantities import thousandths
from tenancy.kube.requests import Impersonation, collection
from tenancy.live import denial
from tenancy.live.api import Api, Response
from tenancy.live.copies import ASKS_QUEUE, as_written, has_ended
from tenancy.live.discovery import ResourceKind, namespaced
from tenancy.live.selectors import of_environment
from tenancy.live.undecided import REFUSED_BY, Undecided, undecided
from tenancy.planning.guards import BACKSTOPS, READINESS_PROBE, guards
from tenancy.planning.guards.model import Guard
from tenancy.planning.model import NamespacePlan, Plan, TenantPlan
from tenancy.rules.catalogue import RULES
from tenancy.schema.environment import Environment, GuardsMode

MERGE = "application/merge-patch+json"


class State(StrEnum):
    """State of a namespace with regard to the plan."""

    OURS = "taken over"
    WANTED = "to be taken over"  # its tenant's file says adopt: true
    IN_THE_WAY = "in the way"  # its tenant's file does not say adopt: true
    STRAY = "in no file"  # its name begins like a tenant's, and no file names it
    UNDECIDED = "undecided"  # it has work, belongs to no tenant and is not unmanaged
    UNMANAGED = "unmanaged"  # listed under platform.unmanaged


class AdoptionTopic(StrEnum):
    """What a finding about an existing namespace is about."""

    CHANGES = "changes"
    BESIDE = "stays beside"
    QUOTA = "quota below use"
    POD_SECURITY = "Pod Security"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AdoptionFinding:
    """One fact to know, or to correct, before a takeover."""

    namespace: str
    topic: AdoptionTopic
    what: str
    """A key, or an object."""
    now: str
    then: str
    rule: str = ""
    """Of a refusal: the rule's id, or the control that has no rules."""


@dataclass(frozen=True, slots=True)
class ExistingNamespace:
    """A namespace that the plan would take over or has taken over, or whose name begins like a tenant's."""

    name: str
    tenant: str
    state: State
    asked: int
    """Number of objects that the guards evaluated."""
    unasked: tuple[str, ...]
    """Rules that depend on fields that a takeover writes, and so cannot be evaluated before."""
    findings: tuple[AdoptionFinding, ...] = field(default=())


def mode(api: Api, environment: str) -> GuardsMode | None:
    """Mode of the cluster's guards, by their bindings; None without guards. One binding that only warns means audit."""
    path = collection("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")
    found = [
        item["spec"].get("validationActions") or []
        for item in api.items(f"{path}?labelSelector={of_environment(environment)}")
        if item["metadata"]["name"] != READINESS_PROBE
    ]
    if not found:
        return None
    return GuardsMode.ENFORCE if all("Deny" in actions for actions in found) else GuardsMode.AUDIT


def spaces(api: Api, environment: Environment, plan: Plan, tenant: str | None = None) -> tuple[ExistingNamespace, ...]:
    """Existing namespaces of the plan, or with a tenant's name, with their findings. Without `tenant` also undecided
    and unmanaged ones."""
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
            elif name in plan.admission.unmanaged:
                continue  # of a tenant that has left
            elif name.startswith(words.derived_name(one.name, "")) or _labelled(live, plan.environment) == one.name:
                found.append(ExistingNamespace(name, one.name, State.STRAY, 0, ()))
    if tenant is None:
        seen = {space.name for space in found}
        others = {one.name: one for one in undecided(api, plan, list(there.values()))}
        found += [asker.outside(name, State.UNDECIDED, one) for name, one in others.items() if name not in seen]
        for name in sorted(plan.admission.unmanaged & there.keys()):
            space = asker.outside(name, State.UNMANAGED)
            entering = tuple(_entering(api, plan, name))
            found.append(replace(space, findings=(*space.findings, *entering)))
    return tuple(found)


def _labelled(live: Object, environment: str) -> str | None:
    """The tenant whose namespace it is by its labels, which only the platform writes; None in another environment."""
    labels = live["metadata"].get("labels") or {}
    return labels.get(words.TENANT) if labels.get(words.ENVIRONMENT) == environment else None


NO_TENANT = ""


class _Asker:
    """Examines one namespace after another; facts of the cluster are read once."""

    def __init__(self, api: Api, environment: Environment) -> None:
        self._api = api
        self._environment = environment

    @cached_property
    def _mode(self) -> GuardsMode | None:
        return mode(self._api, self._environment.environment)

    @cached_property
    def _kinds(self) -> tuple[ResourceKind, ...]:
        return namespaced(self._api)[0]

    @cached_property
    def _judged(self) -> tuple[ResourceKind, ...]:
        """Kinds that the guards judge and users create."""
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
        # Defaults of a limit range or of Kueue's webhooks are missing before a takeover.
        return namespace_rules(guards(self._environment)) | frozenset(BACKSTOPS)

    def space(self, planned: NamespacePlan, live: Object, tenant: str, state: State) -> ExistingNamespace:
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
        return ExistingNamespace(
            name, tenant, state, len(there), tuple(sorted(skipped)) if there else (), tuple(findings)
        )

    def outside(self, name: str, state: State, work: Undecided | None = None) -> ExistingNamespace:
        """A namespace of no tenant: the guards' answers to its objects, or, without guards, the expected ones."""
        findings: list[AdoptionFinding] = []
        asked = 0
        if self._mode:
            for item in self._there(name):
                asked += 1
                found = list(self._refused(item, (), daemons=True))
                # A namespace without a tenant lacks the guards' annotations: rules on these add nothing to ns-02.
                alone = [one for one in found if one.rule == REFUSED_BY]
                findings += alone or found
        elif work:
            says = RULES[REFUSED_BY].title
            findings += [
                AdoptionFinding(
                    name, AdoptionTopic.REFUSED, f"{count} {resource}", "would be refused", says, REFUSED_BY
                )
                for resource, count in work.work.items()
            ]
        for each in work.webhooks if work else ():
            findings.append(
                AdoptionFinding(
                    name, AdoptionTopic.BESIDE, each, "calls a service here", "it fails without the service's pods"
                )
            )
        return ExistingNamespace(name, NO_TENANT, state, asked, (), tuple(findings))

    def _there(self, space: str) -> Iterator[Object]:
        """Objects there that users created, that have not ended, and that are not of the plan."""
        for kind in self._judged:
            for item in self._api.items(kind.path(space)):
                metadata = item["metadata"]
                ours = (metadata.get("labels") or {}).get(words.ENVIRONMENT) == self._environment.environment
                if not (ours or metadata.get("ownerReferences") or has_ended(item)):
                    yield {"apiVersion": kind.version, "kind": kind.kind, **item}

    def _quota(self, planned: NamespacePlan) -> Iterator[AdoptionFinding]:
        for quota, over in below_use(self._api, [planned], self._kinds).items():
            for key, (hard, used) in over.items():
                yield AdoptionFinding(
                    planned.name, AdoptionTopic.QUOTA, f"{quota.partition('/')[2]}: {key}", used, hard
                )

    def _refused(self, item: Object, skipped: Collection[str], *, daemons: bool = False) -> Iterator[AdoptionFinding]:
        seen: set[str] = set()
        what = f"{item['kind']} {item['metadata']['name']}"
        for asked in _asked(item, daemons=daemons):
            answer = self._api.request("POST", _where(asked), asked, REPORTER)
            for now, (rule, says) in _refusals(answer):
                if rule not in seen and rule not in skipped:
                    seen.add(rule)
                    yield AdoptionFinding(item["metadata"]["namespace"], AdoptionTopic.REFUSED, what, now, says, rule)


# Changes, and foreign objects


def _changes(planned: NamespacePlan, live: Object) -> Iterator[AdoptionFinding]:
    for place, wanted in (("labels", planned.meta.labels), ("annotations", planned.meta.annotations)):
        present = live["metadata"].get(place) or {}
        for key, value in sorted(wanted.items()):
            if key != FORCE and present.get(key) != value:
                what = f"{place.removesuffix('s')} {key}"
                yield AdoptionFinding(planned.name, AdoptionTopic.CHANGES, what, present.get(key, ABSENT), value)


FORCE = "pulumi.com/patchForce"
"""An annotation for the engine alone."""
ABSENT = "–"


def _entering(api: Api, plan: Plan, space: str) -> Iterator[AdoptionFinding]:
    """RoleBindings of an unmanaged namespace that give a tenant's users or pods access: the tenant's rules are not
    enforced there."""
    bound = [each for tenant in plan.tenants for part in tenant.namespaces for each in part.bindings]
    people = {(s.kind, s.name) for each in bound for s in each.subjects if s.kind != "ServiceAccount"}
    homes = {part.name for tenant in plan.tenants for part in tenant.namespaces}
    for item in api.items(collection("rbac.authorization.k8s.io/v1", "RoleBinding", space)):
        inside = [
            f"{s['kind']} {s['name']}"
            for s in item.get("subjects") or ()
            if (s["kind"], s["name"]) in people or s.get("namespace") in homes
        ]
        if inside:
            what = f"RoleBinding {item['metadata']['name']}"
            yield AdoptionFinding(
                space, AdoptionTopic.BESIDE, what, ", ".join(inside), "a tenant has access, outside of its own rules"
            )


def _beside(api: Api, environment: str, space: str, state: State) -> Iterator[AdoptionFinding]:
    """Foreign objects that a takeover leaves: they add to what the files grant, or limit it."""

    def foreign(version: str, kind: str) -> Iterator[tuple[str, Object]]:
        for item in api.items(collection(version, kind, space)):
            if (item["metadata"].get("labels") or {}).get(words.ENVIRONMENT) != environment:
                yield f"{kind} {item['metadata']['name']}", item

    for name, item in foreign("rbac.authorization.k8s.io/v1", "RoleBinding"):
        who = ", ".join(f"{s['kind']} {s['name']}" for s in item.get("subjects") or ()) or "no subject"
        yield AdoptionFinding(
            space, AdoptionTopic.BESIDE, name, f"{who} as {item['roleRef']['name']}", "they keep their access"
        )
    for name, item in foreign("v1", "ResourceQuota"):
        hard = ", ".join(f"{key} {amount}" for key, amount in sorted((item["spec"].get("hard") or {}).items()))
        yield AdoptionFinding(space, AdoptionTopic.BESIDE, name, hard, "the smaller of the two applies")
    for name, item in foreign("v1", "LimitRange"):
        types = ", ".join(sorted({limit["type"] for limit in item["spec"].get("limits") or ()}))
        yield AdoptionFinding(
            space, AdoptionTopic.BESIDE, name, f"of {types}", "both limits apply, and the defaults of either"
        )
    if state is State.OURS:
        return  # the guards evaluate its own NetworkPolicies: most allow no more than its file
    for name, item in foreign("networking.k8s.io/v1", "NetworkPolicy"):
        ways = " and ".join(item["spec"].get("policyTypes") or ["Ingress"])
        yield AdoptionFinding(space, AdoptionTopic.BESIDE, name, ways, "what it allows adds to what the file allows")


# Quota


FEW = 20
"""Maximum number of namespaces whose quotas are listed one by one: as many as one tenant may have."""
Over = dict[str, tuple[str, str]]
"""Key of a quota -> planned amount, and amount in use."""


def quota_notes(api: Api, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Quotas that are or will be below the current use. Running pods are not affected, so an update continues."""
    planned = [space for tenant in tenants for space in tenant.namespaces]
    # An adopted namespace may have objects of any kind without a quota that counts them, so they are counted here.
    kinds = namespaced(api)[0] if any(tenant.adopt for tenant in tenants) else None
    for name, over in below_use(api, planned, kinds).items():
        for key, (hard, used) in over.items():
            stays = "running pods stay, and new ones are refused until use is below the quota"
            yield f"quota {name}: {used} {key} in use, of {hard}: {stays}"


def below_use(
    api: Api, planned: Sequence[NamespacePlan], kinds: Sequence[ResourceKind] | None = None
) -> dict[str, Over]:
    """Quotas by namespace/name that would be below the current use. With `kinds`, the use of quotas that do not exist
    yet is counted."""
    # A tenant's stack does not list the quotas of all tenants.
    few = [space.name for space in planned] if len(planned) <= FEW else [None]
    present = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for name in few
        for item in api.items(collection("v1", "ResourceQuota", name))
    }
    found: dict[str, Over] = {}
    for space in planned:
        for quota in space.quotas:
            live = present.get((space.name, quota.name))
            used = ((live or {}).get("status") or {}).get("used")
            if used is None and kinds is not None and not quota.classes:
                used = in_use(api, space.name, quota.hard, kinds)
            over = {
                key: (str(amount), str(used[key]))
                for key, amount in quota.hard.items()
                if used and key in used and thousandths(used[key]) > thousandths(amount)
            }
            if over:
                found[f"{space.name}/{quota.name}"] = over
    return found


def in_use(api: Api, space: str, keys: Collection[str], kinds: Sequence[ResourceKind]) -> dict[str, str]:
    """Amounts in use that a quota of these keys would count, as its controller does; unknown keys are left out."""
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
    return {key: quantities.write(quantities.parse(f"{amount}m")) for key, amount in amounts.items() if key in keys}


# Pod Security

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def warnings(answer: Response) -> list[str]:
    """The warnings of an answer of the API server."""
    header = next((text for name, text in answer.headers.items() if name.lower() == "warning"), "")
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


def _pod_security(api: Api, planned: NamespacePlan) -> Iterator[AdoptionFinding]:
    """The API server's warnings about existing pods, from a dry run of the Pod Security labels of the plan."""
    labels = {
        key: value
        for key, value in planned.meta.labels.items()
        if key.startswith(words.PSA_ENFORCE.removesuffix("enforce"))
    }
    path = f"/api/v1/namespaces/{planned.name}?dryRun=All"
    answer = api.request("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE)
    level = labels.get(words.PSA_ENFORCE, "")
    for text in warnings(answer):
        # "pod: reason, reason" for each kind of pod, below a line that names the namespace.
        if ": " in text and not text.startswith("existing pods in namespace"):
            pods, _, reasons = text.partition(": ")
            yield AdoptionFinding(
                planned.name, AdoptionTopic.POD_SECURITY, pods, reasons, f"refused at level {level} when created again"
            )
    if not answer.ok:
        yield AdoptionFinding(planned.name, AdoptionTopic.POD_SECURITY, "namespace", f"{answer.status}", answer.message)


# Guards

REPORTER = Impersonation("tenancy-report", ("system:masters",))
"""The identity of the dry runs: it has every right of RBAC, and no guard exempts it, as some exempt the platform."""
_POLICY = re.compile(
    r"^Validation failed for ValidatingAdmissionPolicy '([^']+)' with binding '[^']+': (.*)$", re.DOTALL
)
_RULE = re.compile(r"^([a-z]+-\d+): (.*)$", re.DOTALL)
_TO_CHANGE = " To change: "


def namespace_rules(found: Sequence[Guard]) -> frozenset[str]:
    """Rules whose expression reads the namespace, directly or by a variable."""
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


def _asked(item: Object, *, daemons: bool = False) -> Iterator[Object]:
    """A copy of an object as it would be created again, under another name, and a pod of each of its templates. Without
    `daemons` a DaemonSet's pods are left out, since guards judge its template."""
    made = as_written(item)
    if item["kind"] == "Secret":
        made = _emptied(made)
    made["metadata"]["name"] = f"{item['metadata']['name'][:50].rstrip('-.')}-{secrets.token_hex(4)}"
    yield made
    if item["kind"] == "Pod":
        return
    try:
        sets = pods_of(made)
    except NotWork:
        return
    if item["kind"] == "DaemonSet" and daemons:
        sets = [Pods("pod", 1, made["spec"]["template"])]
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
    """A secret with its keys and without its values; its type only if a token, since other types validate values."""
    kind = secret.get("type")
    return {
        **{key: secret[key] for key in ("apiVersion", "kind", "metadata")},
        "data": dict.fromkeys(secret.get("data") or (), ""),
        **({"type": kind} if kind == "kubernetes.io/service-account-token" else {}),
    }


def _where(item: Object) -> str:
    return collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"]) + "?dryRun=All"


def _refusals(answer: Response) -> Iterator[tuple[str, tuple[str, str]]]:
    """Whether the copy is refused or warned of, by which rule or control, and the message. Quota is left out: it counts
    the copy in addition to the original."""
    for text in warnings(answer):
        if found := _POLICY.match(text):
            yield "warned of", _ruled(found[2], found[1])
    if answer.ok:
        return
    who, message = denial.denier(answer.status, answer.message), answer.message
    if who.startswith(deniers.ADMISSION_POLICY):
        yield "refused", _ruled(message.partition("denied request: ")[2], who)
    elif not who.startswith(deniers.QUOTA):
        yield "refused", (who, message.partition("is forbidden: ")[2] or message)


def _ruled(text: str, policy: str) -> tuple[str, str]:
    found = _RULE.match(text)
    rule, said = (found[1], found[2]) if found else (policy, text)
    title, _, change = said.partition(_TO_CHANGE)
    change = change.partition(" Read ")[0].rstrip(". ")
    return rule, f"{title.rstrip('.')}; change: {change}" if change else title
