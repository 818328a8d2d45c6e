"""Changes that a takeover of namespaces would make, foreign objects that it leaves, and those that guards would refuse.

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

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api, Response
from tenancy.cluster.discovery import ResourceKind, namespaced_kinds
from tenancy.cluster.selectors import environment_selector
from tenancy.cluster.undecided_namespaces import UNDECIDED_RULE, UndecidedNamespace, undecided_namespaces
from tenancy.cluster.user_copies import QUEUE_LABELS, has_ended, user_copy
from tenancy.kube import deniers, quantities
from tenancy.kube.objects import Object
from tenancy.kube.pods import NotWork, Pods, limits_of, pods_of, requests_of
from tenancy.kube.quantities import thousandths
from tenancy.kube.requests import Impersonation, collection
from tenancy.planning.guards import BACKSTOPS, READINESS_PROBE, guards
from tenancy.planning.guards.admission_policy import Guard
from tenancy.planning.plan_model import NamespacePlan, Plan, TenantPlan
from tenancy.rules.catalogue import RULES
from tenancy.spec.fields.environment import Environment, GuardsMode

MERGE = "application/merge-patch+json"


class State(StrEnum):
    """State of a namespace with regard to the plan."""

    ADOPTED = "taken over"
    TO_ADOPT = "to be taken over"  # its tenant's file says adopt: true
    CONFLICTING = "in the way"  # its tenant's file does not say adopt: true
    STRAY = "in no file"  # its name begins like a tenant's, and no file names it
    UNDECIDED = "undecided"  # it has work, belongs to no tenant and is not unmanaged
    UNMANAGED = "unmanaged"  # listed under platform.unmanaged-namespaces


class AdoptionTopic(StrEnum):
    """Topic of a finding about an existing namespace."""

    CHANGES = "changes"
    FOREIGN_OBJECT = "stays beside"
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
    """For a refusal: the rule's id, or the control if it has no rules."""


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
    binding_actions = [
        item["spec"].get("validationActions") or []
        for item in api.items(f"{path}?labelSelector={environment_selector(environment)}")
        if item["metadata"]["name"] != READINESS_PROBE
    ]
    if not binding_actions:
        return None
    return GuardsMode.ENFORCE if all("Deny" in actions for actions in binding_actions) else GuardsMode.AUDIT


def spaces(api: Api, environment: Environment, plan: Plan, tenant: str | None = None) -> tuple[ExistingNamespace, ...]:
    """Existing namespaces of the plan, or with a tenant's name, with their findings. Without `tenant` also undecided
    and unmanaged ones."""
    namespaces_by_name = {item["metadata"]["name"]: item for item in api.items("/api/v1/namespaces")}
    examiner = _NamespaceExaminer(api, environment)
    results = []
    for one in plan.tenants:
        if tenant not in {None, one.name}:
            continue
        planned = {space.name: space for space in one.namespaces}
        for name, live in sorted(namespaces_by_name.items()):
            if name in planned:
                labels = live["metadata"].get("labels") or {}
                is_adopted = labels.get(vocabulary.ENVIRONMENT) == plan.environment
                state = State.ADOPTED if is_adopted else State.TO_ADOPT if one.adopt else State.CONFLICTING
                results.append(examiner.examine_planned(planned[name], live, one.name, state))
            elif name in plan.admission.unmanaged:
                continue  # of a tenant that has left
            elif (
                name.startswith(vocabulary.derived_name(one.name, "")) or _labelled(live, plan.environment) == one.name
            ):
                results.append(ExistingNamespace(name, one.name, State.STRAY, 0, ()))
    if tenant is None:
        listed_names = {space.name for space in results}
        undecided_by_name = {
            one.name: one for one in undecided_namespaces(api, plan, list(namespaces_by_name.values()))
        }
        results += [
            examiner.examine_foreign(name, State.UNDECIDED, entry)
            for name, entry in undecided_by_name.items()
            if name not in listed_names
        ]
        for name in sorted(plan.admission.unmanaged & namespaces_by_name.keys()):
            space = examiner.examine_foreign(name, State.UNMANAGED)
            role_bindings = tuple(_foreign_role_bindings(api, plan, name))
            results.append(replace(space, findings=(*space.findings, *role_bindings)))
    return tuple(results)


def _labelled(live: Object, environment: str) -> str | None:
    """The tenant whose namespace it is by its labels, which only the platform writes; None in another environment."""
    labels = live["metadata"].get("labels") or {}
    return labels.get(vocabulary.TENANT) if labels.get(vocabulary.ENVIRONMENT) == environment else None


NO_TENANT = ""


class _NamespaceExaminer:
    """Examines one namespace after another; facts of the cluster are read once."""

    def __init__(self, api: Api, environment: Environment) -> None:
        self._api = api
        self._environment = environment

    @cached_property
    def _mode(self) -> GuardsMode | None:
        return mode(self._api, self._environment.environment)

    @cached_property
    def _kinds(self) -> tuple[ResourceKind, ...]:
        return namespaced_kinds(self._api)[0]

    @cached_property
    def _guarded_kinds(self) -> tuple[ResourceKind, ...]:
        """Kinds that the guards judge and users create."""
        guarded = {
            (group, plural)
            for guard in guards(self._environment)
            if "CREATE" in guard.operations
            for group, _, plurals in guard.resources
            for plural in plurals
        }
        return tuple(kind for kind in self._kinds if (kind.group, kind.plural) in guarded)

    @cached_property
    def _rules_that_read_namespace(self) -> frozenset[str]:
        # Defaults of a limit range or of Kueue's webhooks are missing before a takeover.
        return namespace_rules(guards(self._environment)) | frozenset(BACKSTOPS)

    def examine_planned(self, planned: NamespacePlan, live: Object, tenant: str, state: State) -> ExistingNamespace:
        name = planned.name
        findings = [
            *_changes(planned, live),
            *_foreign_objects(self._api, self._environment.environment, name, state),
            *self._quota(planned),
            *_pod_security(self._api, planned),
        ]
        objects = list(self._user_objects(name)) if self._mode else []
        has_tenant_label = (live["metadata"].get("labels") or {}).get(vocabulary.TENANT) == tenant
        skipped = frozenset() if has_tenant_label else self._rules_that_read_namespace
        for item in objects:
            findings += self._refusal_findings(item, skipped)
        return ExistingNamespace(
            name, tenant, state, len(objects), tuple(sorted(skipped)) if objects else (), tuple(findings)
        )

    def examine_foreign(self, name: str, state: State, work: UndecidedNamespace | None = None) -> ExistingNamespace:
        """A namespace of no tenant: the guards' answers to its objects, or, without guards, the expected ones."""
        findings: list[AdoptionFinding] = []
        object_count = 0
        if self._mode:
            for item in self._user_objects(name):
                object_count += 1
                refusals = list(self._refusal_findings(item, (), daemons=True))
                # A namespace without a tenant lacks the guards' annotations: rules on these add nothing to ns-02.
                ns02_refusals = [refusal for refusal in refusals if refusal.rule == UNDECIDED_RULE]
                findings += ns02_refusals or refusals
        elif work:
            title = RULES[UNDECIDED_RULE].title
            findings += [
                AdoptionFinding(
                    name, AdoptionTopic.REFUSED, f"{count} {resource}", "would be refused", title, UNDECIDED_RULE
                )
                for resource, count in work.work.items()
            ]
        for webhook in work.webhooks if work else ():
            findings.append(
                AdoptionFinding(
                    name,
                    AdoptionTopic.FOREIGN_OBJECT,
                    webhook,
                    "calls a service here",
                    "it fails without the service's pods",
                )
            )
        return ExistingNamespace(name, NO_TENANT, state, object_count, (), tuple(findings))

    def _user_objects(self, space: str) -> Iterator[Object]:
        """Objects there that users created, that have not ended, and that are not of the plan."""
        for kind in self._guarded_kinds:
            for item in self._api.items(kind.path(space)):
                metadata = item["metadata"]
                is_planned = (metadata.get("labels") or {}).get(vocabulary.ENVIRONMENT) == self._environment.environment
                if not (is_planned or metadata.get("ownerReferences") or has_ended(item)):
                    yield {"apiVersion": kind.version, "kind": kind.kind, **item}

    def _quota(self, planned: NamespacePlan) -> Iterator[AdoptionFinding]:
        for quota, exceeded in below_use(self._api, [planned], self._kinds).items():
            for key, (hard, used) in exceeded.items():
                yield AdoptionFinding(
                    planned.name, AdoptionTopic.QUOTA, f"{quota.partition('/')[2]}: {key}", used, hard
                )

    def _refusal_findings(
        self, item: Object, skipped: Collection[str], *, daemons: bool = False
    ) -> Iterator[AdoptionFinding]:
        reported_rules: set[str] = set()
        object_name = f"{item['kind']} {item['metadata']['name']}"
        for copy in _copies_to_request(item, daemons=daemons):
            answer = self._api.request("POST", _dry_run_path(copy), copy, REPORTER)
            for outcome, (rule, message) in _refusals(answer):
                if rule not in reported_rules and rule not in skipped:
                    reported_rules.add(rule)
                    yield AdoptionFinding(
                        item["metadata"]["namespace"], AdoptionTopic.REFUSED, object_name, outcome, message, rule
                    )


# Changes, and foreign objects


def _changes(planned: NamespacePlan, live: Object) -> Iterator[AdoptionFinding]:
    for place, planned_values in (("labels", planned.meta.labels), ("annotations", planned.meta.annotations)):
        present = live["metadata"].get(place) or {}
        for key, value in sorted(planned_values.items()):
            if key != FORCE and present.get(key) != value:
                field_name = f"{place.removesuffix('s')} {key}"
                yield AdoptionFinding(planned.name, AdoptionTopic.CHANGES, field_name, present.get(key, ABSENT), value)


FORCE = "pulumi.com/patchForce"
"""An annotation for the engine alone."""
ABSENT = "–"


def _foreign_role_bindings(api: Api, plan: Plan, space: str) -> Iterator[AdoptionFinding]:
    """RoleBindings of an unmanaged namespace that give a tenant's users or pods access: the tenant's rules are not
    enforced there."""
    bound = [each for tenant in plan.tenants for namespace in tenant.namespaces for each in namespace.bindings]
    tenant_subjects = {(s.kind, s.name) for binding in bound for s in binding.subjects if s.kind != "ServiceAccount"}
    tenant_namespaces = {namespace.name for tenant in plan.tenants for namespace in tenant.namespaces}
    for item in api.items(collection("rbac.authorization.k8s.io/v1", "RoleBinding", space)):
        subjects = [
            f"{s['kind']} {s['name']}"
            for s in item.get("subjects") or ()
            if (s["kind"], s["name"]) in tenant_subjects or s.get("namespace") in tenant_namespaces
        ]
        if subjects:
            binding_name = f"RoleBinding {item['metadata']['name']}"
            yield AdoptionFinding(
                space,
                AdoptionTopic.FOREIGN_OBJECT,
                binding_name,
                ", ".join(subjects),
                "a tenant has access, outside of its own rules",
            )


def _foreign_objects(api: Api, environment: str, space: str, state: State) -> Iterator[AdoptionFinding]:
    """Foreign objects that a takeover leaves: they add to what the files grant, or limit it."""

    def foreign(version: str, kind: str) -> Iterator[tuple[str, Object]]:
        for item in api.items(collection(version, kind, space)):
            if (item["metadata"].get("labels") or {}).get(vocabulary.ENVIRONMENT) != environment:
                yield f"{kind} {item['metadata']['name']}", item

    for name, item in foreign("rbac.authorization.k8s.io/v1", "RoleBinding"):
        subjects = ", ".join(f"{s['kind']} {s['name']}" for s in item.get("subjects") or ()) or "no subject"
        yield AdoptionFinding(
            space,
            AdoptionTopic.FOREIGN_OBJECT,
            name,
            f"{subjects} as {item['roleRef']['name']}",
            "they keep their access",
        )
    for name, item in foreign("v1", "ResourceQuota"):
        hard = ", ".join(f"{key} {amount}" for key, amount in sorted((item["spec"].get("hard") or {}).items()))
        yield AdoptionFinding(space, AdoptionTopic.FOREIGN_OBJECT, name, hard, "the smaller of the two applies")
    for name, item in foreign("v1", "LimitRange"):
        types = ", ".join(sorted({limit["type"] for limit in item["spec"].get("limits") or ()}))
        yield AdoptionFinding(
            space, AdoptionTopic.FOREIGN_OBJECT, name, f"of {types}", "both limits apply, and the defaults of either"
        )
    if state is State.ADOPTED:
        return  # the guards evaluate its own NetworkPolicies: most allow no more than its file
    for name, item in foreign("networking.k8s.io/v1", "NetworkPolicy"):
        directions = " and ".join(item["spec"].get("policyTypes") or ["Ingress"])
        yield AdoptionFinding(
            space, AdoptionTopic.FOREIGN_OBJECT, name, directions, "what it allows adds to what the file allows"
        )


# Quota


MAX_SINGLE_LISTS = 20
"""Maximum number of namespaces whose quotas are listed one by one: as many as one tenant may have."""
ExceededQuota = dict[str, tuple[str, str]]
"""Key of a quota -> planned amount, and amount in use."""


def quota_notes(api: Api, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Quotas that are or will be below the current use. Running pods are not affected, so an update continues."""
    planned = [space for tenant in tenants for space in tenant.namespaces]
    # An adopted namespace may have objects of any kind without a quota that counts them, so they are counted here.
    kinds = namespaced_kinds(api)[0] if any(tenant.adopt for tenant in tenants) else None
    for name, exceeded in below_use(api, planned, kinds).items():
        for key, (hard, used) in exceeded.items():
            consequence = "running pods stay, and new ones are refused until use is below the quota"
            yield f"quota {name}: {used} {key} in use, of {hard}: {consequence}"


def below_use(
    api: Api, planned: Sequence[NamespacePlan], kinds: Sequence[ResourceKind] | None = None
) -> dict[str, ExceededQuota]:
    """Quotas by namespace/name that would be below the current use. With `kinds`, the use of quotas that do not exist
    yet is counted."""
    # A tenant's stack does not list the quotas of all tenants.
    namespaces = [space.name for space in planned] if len(planned) <= MAX_SINGLE_LISTS else [None]
    present = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for name in namespaces
        for item in api.items(collection("v1", "ResourceQuota", name))
    }
    exceeded_by_quota: dict[str, ExceededQuota] = {}
    for space in planned:
        for quota in space.quotas:
            live = present.get((space.name, quota.name))
            used = ((live or {}).get("status") or {}).get("used")
            if used is None and kinds is not None and not quota.classes:
                used = in_use(api, space.name, quota.hard, kinds)
            exceeded = {
                key: (str(amount), str(used[key]))
                for key, amount in quota.hard.items()
                if used and key in used and thousandths(used[key]) > thousandths(amount)
            }
            if exceeded:
                exceeded_by_quota[f"{space.name}/{quota.name}"] = exceeded
    return exceeded_by_quota


def in_use(api: Api, space: str, keys: Collection[str], kinds: Sequence[ResourceKind]) -> dict[str, str]:
    """Amounts in use that a quota of these keys would count, as its controller does; unknown keys are left out."""
    pods = [p for p in api.items(collection("v1", "Pod", space)) if not has_ended(p)]
    amounts: Counter[str] = Counter({"pods": 1000 * len(pods)})
    for pod in pods:
        for list_name, amounts_of in (("requests", requests_of), ("limits", limits_of)):
            amounts.update({f"{list_name}.{name}": amount for name, amount in amounts_of(pod["spec"]).items()})
    services = api.items(collection("v1", "Service", space))
    service_types = [s["spec"].get("type") for s in services]
    claims = api.items(collection("v1", "PersistentVolumeClaim", space))
    amounts.update(
        {
            "services": 1000 * len(services),
            "services.loadbalancers": 1000 * service_types.count("LoadBalancer"),
            "services.nodeports": 1000 * (service_types.count("NodePort") + service_types.count("LoadBalancer")),
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
        if key.startswith(vocabulary.PSA_ENFORCE.removesuffix("enforce"))
    }
    path = f"/api/v1/namespaces/{planned.name}?dryRun=All"
    answer = api.request("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE)
    level = labels.get(vocabulary.PSA_ENFORCE, "")
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


def namespace_rules(guard_set: Sequence[Guard]) -> frozenset[str]:
    """Rules whose expression reads the namespace, directly or by a variable."""
    rules = set()
    for guard in guard_set:
        reading = {name for name, text in guard.variables.items() if "namespaceObject" in text}
        while readers := {
            name
            for name, text in guard.variables.items()
            if name not in reading and reading.intersection(re.findall(r"variables\.(\w+)", text))
        }:
            reading |= readers
        for rule, text in guard.rules.items():
            if "namespaceObject" in text or reading.intersection(re.findall(r"variables\.(\w+)", text)):
                rules.add(rule)
    return frozenset(rules)


def _copies_to_request(item: Object, *, daemons: bool = False) -> Iterator[Object]:
    """A copy of an object as it would be created again, under another name, and a pod of each of its templates. Without
    `daemons` a DaemonSet's pods are left out, since guards judge its template."""
    copy = user_copy(item)
    if item["kind"] == "Secret":
        copy = _without_values(copy)
    copy["metadata"]["name"] = f"{item['metadata']['name'][:50].rstrip('-.')}-{secrets.token_hex(4)}"
    yield copy
    if item["kind"] == "Pod":
        return
    try:
        sets = pods_of(copy)
    except NotWork:
        return
    if item["kind"] == "DaemonSet" and daemons:
        sets = [Pods("pod", 1, copy["spec"]["template"])]
    labels = {key: value for key, value in (copy["metadata"].get("labels") or {}).items() if key in QUEUE_LABELS}
    for pods in sets:
        metadata = pods.template.get("metadata") or {}
        pod_metadata = {
            "name": f"adoption-{secrets.token_hex(4)}",
            "namespace": item["metadata"]["namespace"],
            "labels": {**labels, **(metadata.get("labels") or {})},
            "annotations": metadata.get("annotations") or {},
        }
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": pods.template["spec"]}


def _without_values(secret: Object) -> Object:
    """A secret with its keys and without its values; its type only if a token, since other types validate values."""
    kind = secret.get("type")
    return {
        **{key: secret[key] for key in ("apiVersion", "kind", "metadata")},
        "data": dict.fromkeys(secret.get("data") or (), ""),
        **({"type": kind} if kind == "kubernetes.io/service-account-token" else {}),
    }


def _dry_run_path(item: Object) -> str:
    return collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"]) + "?dryRun=All"


def _refusals(answer: Response) -> Iterator[tuple[str, tuple[str, str]]]:
    """Whether the copy is refused or warned of, by which rule or control, and the message. Quota is left out: it counts
    the copy in addition to the original."""
    for text in warnings(answer):
        if policy_match := _POLICY.match(text):
            yield "warned of", _rule_and_message(policy_match[2], policy_match[1])
    if answer.ok:
        return
    denier, message = denial.denier(answer.status, answer.message), answer.message
    if denier.startswith(deniers.ADMISSION_POLICY):
        yield "refused", _rule_and_message(message.partition("denied request: ")[2], denier)
    elif not denier.startswith(deniers.QUOTA):
        yield "refused", (denier, message.partition("is forbidden: ")[2] or message)


def _rule_and_message(text: str, policy: str) -> tuple[str, str]:
    rule_match = _RULE.match(text)
    rule, message = (rule_match[1], rule_match[2]) if rule_match else (policy, text)
    title, _, change = message.partition(_TO_CHANGE)
    change = change.partition(" Read ")[0].rstrip(". ")
    return rule, f"{title.rstrip('.')}; change: {change}" if change else title
