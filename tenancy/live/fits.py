"""Whether work would be admitted and start now, and if not, which control refuses it. Nothing is created: the API
server is asked by dry runs, and quota of the queues and capacity of the nodes are read and computed."""

from __future__ import annotations

import copy
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.kube import quantities
from tenancy.kube.quantities import thousandths
from tenancy.kube.quota_tree import Node, Place
from tenancy.kube.selectors import has_labels, takes_node
from tenancy.kube.tolerations import tolerates
from tenancy.live import denial
from tenancy.live.api import NOT_FOUND, Api, ApiUnreachable, Impersonation, Response, collection
from tenancy.live.cohorts import read_tree
from tenancy.planning.common.pools import node_labels, node_resources, node_taints
from tenancy.planning.common.priorities import DEFAULT_CLASS, priorities
from tenancy.planning.guards.names import QUEUE, RUN_TIME, URGENCY
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import ANY_POOL, API, BOARD_COMPUTE, BOARD_MEMORY, pool_of
from tenancy.rules.pod_templates import templates_of
from tenancy.schema.environment import Environment

Object = dict[str, Any]
Resources = Counter[str]
"""Resource -> amount, in thousandths."""
ONE = 1000

CONFLICT = 409
LEAST_PODS = "kueue.x-k8s.io/job-min-parallelism"
NEARNESS = tuple(f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained"))


class FitVerdict(StrEnum):
    """From the best to the worst."""

    FITS = "fits"
    UNKNOWN = "not asked"  # another control refused before this one was reached
    WAITS = "waits"
    NEVER = "never"

    @property
    def rank(self) -> int:
        """Position in the order from fits to never fits; the worst verdict of all controls decides."""
        return list(FitVerdict).index(self)


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """The answer of one control."""

    plane: str
    verdict: FitVerdict
    sentence: str
    change: str = ""
    denier: str = ""
    """The control that refused, as `tenancy.live.denial` names it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The answers of all controls to one piece of work."""

    kind: str
    name: str
    namespace: str
    asked_as: str
    said: tuple[ControlAnswer, ...]

    @property
    def verdict(self) -> FitVerdict:
        """The worst of the controls' verdicts."""
        return max((said.verdict for said in self.said), key=lambda verdict: verdict.rank)


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one template."""

    name: str
    count: int
    template: Object


class NotWork(ValueError):
    """The object's pods cannot be read."""


# What a manifest asks for


def pods_of(item: Mapping[str, Any]) -> list[Pods]:
    """The maximum number of concurrent pods of an object; none if it creates none. NotWork if they cannot be read."""
    kind, spec = item["kind"], item.get("spec") or {}
    try:
        found = [pods for pods in _pods(kind, spec, item) if int(pods.count)]
        for pods in found:
            requests_of(pods.template["spec"])
    except KeyError as error:
        raise NotWork(f"{kind} {_name(item)} without {error.args[0]}") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise NotWork(f"{kind} {_name(item)}, in which something is not of its form ({error})") from None
    return found


def _pods(kind: str, spec: Any, item: Mapping[str, Any]) -> Iterator[Pods]:
    templates = {template.path.removesuffix(".spec"): template for template in templates_of(item)}

    def pods(name: str, count: Any, at: str = "spec.template") -> Pods:
        return Pods(name, count, {"metadata": templates[at].metadata or {}, "spec": templates[at].spec})

    match kind:
        case "Pod":
            yield pods("pod", 1, "spec")
        case "Job":
            yield pods("pod", _parallel(spec))
        case "CronJob":
            yield pods("pod", _parallel(spec["jobTemplate"]["spec"]), "spec.jobTemplate.spec.template")
        case "Deployment" | "StatefulSet" | "ReplicaSet":
            yield pods("pod", spec.get("replicas", 1))
        case "JobSet":
            for number, job in enumerate(spec["replicatedJobs"]):
                count = job.get("replicas", 1) * _parallel(job["template"]["spec"])
                yield pods(job["name"], count, f"spec.replicatedJobs[{number}].template.spec.template")
        case "LeaderWorkerSet":
            group, replicas, where = spec["leaderWorkerTemplate"], spec.get("replicas", 1), "spec.leaderWorkerTemplate"
            if group.get("leaderTemplate"):
                yield pods("leader", replicas, f"{where}.leaderTemplate")
            size = group.get("size", 1) - ("leaderTemplate" in group)
            yield pods("worker", replicas * size, f"{where}.workerTemplate")
        case "MPIJob":
            for name, replica in spec["mpiReplicaSpecs"].items():
                yield pods(name.lower(), replica.get("replicas", 1), f"spec.mpiReplicaSpecs.{name}.template")
        case "RayCluster" | "RayJob":
            where = "spec" if kind == "RayCluster" else "spec.rayClusterSpec"
            cluster = spec if kind == "RayCluster" else spec["rayClusterSpec"]
            yield pods("head", 1, f"{where}.headGroupSpec.template")
            for number, group in enumerate(cluster.get("workerGroupSpecs") or ()):
                yield pods(group["groupName"], group.get("replicas", 1), f"{where}.workerGroupSpecs[{number}].template")


def _parallel(spec: Mapping[str, Any]) -> int:
    return min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))


BY_ITSELF = ("Deployment", "Pod", "ReplicaSet")
"""Kinds whose pods queue one by one."""


UNSEEN = ("TrainJob",)
"""Kinds without a pod template of their own."""


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of the queued object."""
    return (item["spec"]["jobTemplate"].get("metadata") or {}) if item["kind"] == "CronJob" else item["metadata"]


def requests_of(spec: Mapping[str, Any]) -> Resources:
    """Requests of a pod as the scheduler counts them: the sum of its containers, or the largest init container."""

    def of(container: Mapping[str, Any]) -> Resources:
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        return Counter({name: thousandths(amount) for name, amount in amounts.items()})

    together: Resources = Counter()
    largest: Resources = Counter()
    for container in spec.get("initContainers") or ():
        mine = of(container)
        if container.get("restartPolicy") == "Always":
            together.update(mine)
            mine = Counter()
        for name, amount in (together + mine).items():
            largest[name] = max(largest[name], amount)
    for container in spec["containers"]:
        together.update(of(container))
    overhead = {name: thousandths(amount) for name, amount in (spec.get("overhead") or {}).items()}
    return (together | largest) + Counter(overhead)


def limits_of(spec: Mapping[str, Any]) -> Resources:
    """Sum of the limits of a pod's containers, in thousandths, by resource."""
    found: Resources = Counter()
    for container in spec["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        found.update({name: thousandths(amount) for name, amount in limits.items()})
    return found


# Dry runs of the API server

_ASKED = ("RBAC", "guard", "Pod Security", "LimitRange")
"""Controls that one dry run passes through."""
_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$")
_FORBIDDEN = re.compile(r"^.*? is forbidden: ")


def fit(api: Api, environment: Environment, item: Object, who: Impersonation, asked_as: str) -> Fit:
    """The answer of every control to one object, which names its namespace. NotWork if its pods cannot be read."""
    sets = pods_of(item)
    said, answer = _admission(api, item, who, asked_as, item["kind"])
    filled = []
    for pods in sets:
        if item["kind"] != "Pod":
            more, answer = _admission(api, _pod(item, pods), who, asked_as, f"pod ({pods.name})")
            # Its controller creates the pods, not the user; and a control that refuses the work is reported once.
            said += [one for one in more if one.plane not in {"RBAC", *(before.plane for before in said)}]
        # Defaults of admission count too: requests and priority.
        spec = answer.body["spec"] if answer.ok else pods.template["spec"]
        filled.append(replace(pods, template={**pods.template, "spec": spec}))
    refused = {one.plane for one in said if one.verdict is not FitVerdict.FITS}
    yes = [_admitted(plane, item, asked_as, bool(refused)) for plane in _ASKED if plane not in refused]
    if filled:
        space = item["metadata"]["namespace"]
        if "quota" not in refused:
            said.append(_quota(api, space, filled))
        flavors: list[Object] = []
        if environment.queued:
            queued, flavors = _queue(api, environment, item, filled)
            said.append(queued)
        said.append(_pool(api, environment, filled, flavors))
    if item["kind"] in UNSEEN:
        text = "Its pods are defined by its runtime, which is not in the manifest."
        said += [ControlAnswer(plane, FitVerdict.UNKNOWN, text) for plane in ("queue", "pool")]
    order = [*_ASKED, "API validation", "quota", "queue", "pool"]
    found = sorted([*yes, *said], key=lambda one: order.index(one.plane))
    return Fit(item["kind"], _name(item), item["metadata"]["namespace"], asked_as, tuple(found))


def _name(item: Mapping[str, Any]) -> str:
    return item["metadata"].get("name") or f"{item['metadata'].get('generateName', '')}…"


def _admitted(plane: str, item: Mapping[str, Any], asked_as: str, refused: bool) -> ControlAnswer:
    if refused and plane != "RBAC":
        return ControlAnswer(plane, FitVerdict.UNKNOWN, "Not reached: another control refuses first.")
    sentences = {
        "RBAC": f"{asked_as} may create {item['kind']}s in {item['metadata']['namespace']}.",
        "guard": "It breaks no rule, and neither do its pods.",
        "Pod Security": "Its pods comply with the namespace's level.",
        "LimitRange": "Its containers are within the namespace's bounds.",
    }
    return ControlAnswer(plane, FitVerdict.FITS, sentences[plane])


def _pod(item: Mapping[str, Any], pods: Pods) -> Object:
    """A pod of a template, as its controller would create it, with the work's labels for the queue."""
    template = copy.deepcopy(pods.template)
    metadata = template.get("metadata") or {}
    asked = {key: value for key, value in (_metadata(item).get("labels") or {}).items() if key in _QUEUE_LABELS}
    labels = {**asked, **(metadata.get("labels") or {})}
    own = {"name": f"fits-{secrets.token_hex(4)}", "namespace": item["metadata"]["namespace"], "labels": labels}
    notes = {"annotations": metadata["annotations"]} if metadata.get("annotations") else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, **notes}, "spec": template["spec"]}


_QUEUE_LABELS = frozenset({QUEUE, URGENCY, RUN_TIME})


def _ask(api: Api, item: Object, who: Impersonation) -> Response:
    path = collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"]) + "?dryRun=All"
    answer = api.request("POST", path, item, who)
    if answer.status == CONFLICT and item["metadata"].get("name"):
        # It exists already: ask for a copy of it.
        name = f"{item['metadata']['name'][:50].rstrip('-.')}-{secrets.token_hex(4)}"
        answer = api.request("POST", path, {**item, "metadata": {**item["metadata"], "name": name}}, who)
    if denial.denier(answer.status, answer.message) == denial.RBAC and _NOT_FOR_OTHERS in answer.message:
        change = "change: run it with the platform's rights"
        raise ApiUnreachable(f"given {answer.message}; rule: this asks as the tenant's developers; {change}")
    return answer


_NOT_FOR_OTHERS = "cannot impersonate resource"


def _admission(
    api: Api, item: Object, who: Impersonation, asked_as: str, what: str
) -> tuple[list[ControlAnswer], Response]:
    """The refusal of a dry run, if there is one, and the answer."""
    answer = _ask(api, item, who)
    return ([] if answer.ok else [_refusal(answer, item, asked_as, what)]), answer


def _refusal(answer: Response, item: Mapping[str, Any], asked_as: str, what: str) -> ControlAnswer:
    found = denial.denier(answer.status, answer.message)
    space, message = item["metadata"]["namespace"], _FORBIDDEN.sub("", answer.message)
    if found.startswith(denial.ADMISSION_POLICY):
        policy, _, rule = found.removeprefix(denial.ADMISSION_POLICY).partition(":")
        text = message.partition("denied request: ")[2] or message
        title, _, change = text.partition(" To change: ")
        return ControlAnswer("guard", FitVerdict.NEVER, f"{policy} refuses its {what}: {title}", change or rule, found)
    if found.startswith(denial.QUOTA):
        return _exceeded(message, found, what)
    if found == denial.RBAC:
        change = "ask as a group with a role there (--as), or write one under the people of the tenant's file"
        return ControlAnswer(
            "RBAC", FitVerdict.NEVER, f"{asked_as} may not create {item['kind']}s in {space}.", change, found
        )
    if found == denial.POD_SECURITY:
        change = "write the security context that `tenancy sample` prints"
        return ControlAnswer("Pod Security", FitVerdict.NEVER, f"Its {what} {message}.", change, found)
    if found == denial.LIMIT_RANGE:
        change = f"ask for what `kubectl describe limitrange -n {space}` allows"
        return ControlAnswer("LimitRange", FitVerdict.NEVER, f"Its {what}: {message}.", change, found)
    if answer.status == NOT_FOUND:
        missing = f"namespace {space}" if "namespaces" in message else f"kind {item['kind']} ({item['apiVersion']})"
        change = "run `tenancy up` first, or write a kind that the environment has (queues.kinds)"
        return ControlAnswer("API validation", FitVerdict.NEVER, f"The cluster has no {missing}.", change, found)
    return ControlAnswer("API validation", FitVerdict.NEVER, f"Its {what}: {message}", "correct the manifest", found)


def _exceeded(message: str, denier: str, what: str) -> ControlAnswer:
    found = _EXCEEDED.search(message)
    if not found:
        return ControlAnswer(
            "quota", FitVerdict.NEVER, f"Its {what}: {message}", "set the fields that the quota requires", denier
        )
    asked, used, hard = (
        {key: thousandths(amount) for key, _, amount in (pair.partition("=") for pair in found[n].split(","))}
        for n in (2, 3, 4)
    )
    return _over(found[1], asked, used, hard, denier)


def _over(
    name: str,
    asked: Mapping[str, int],
    used: Mapping[str, int],
    hard: Mapping[str, int],
    denier: str,
) -> ControlAnswer:
    never = [key for key in asked if asked[key] > hard[key]]
    late = [key for key in asked if asked[key] + used[key] > hard[key]]
    key = (never or late)[0]
    left = max(hard[key] - used[key], 0)
    text = (
        f"{_written(asked[key])} {key} at once, of which quota {name} has {_written(hard[key])} in all "
        f"and {_written(left)} left."
    )
    if never:
        return ControlAnswer("quota", FitVerdict.NEVER, text, "ask for less, or for a larger quota", denier)
    return ControlAnswer("quota", FitVerdict.WAITS, text, "delete finished work, or ask for less", denier)


def _quota(api: Api, space: str, sets: Sequence[Pods]) -> ControlAnswer:
    """Whether the quota has room for all the pods together; a dry run counts one only."""
    asked: Counter[str] = Counter()
    for pods in sets:
        each: Counter[str] = Counter({"pods": ONE})
        for side, amounts in (("requests", requests_of), ("limits", limits_of)):
            each.update({f"{side}.{name}": amount for name, amount in amounts(pods.template["spec"]).items()})
        asked.update({key: amount * pods.count for key, amount in each.items()})
    for item in api.items(collection("v1", "ResourceQuota", space)):
        if not _covers(item, sets):
            continue
        hard, used = (
            {key: thousandths(amount) for key, amount in ((item.get("status") or {}).get(of) or {}).items()}
            for of in ("hard", "used")
        )
        if over := {key: asked[key] for key in hard if asked[key] + used.get(key, 0) > hard[key]}:
            name = item["metadata"]["name"]
            return _over(name, over, Counter(used), hard, denial.quota(name))
    return ControlAnswer("quota", FitVerdict.FITS, "The quota has room for all of its pods.")


def _covers(item: Mapping[str, Any], sets: Sequence[Pods]) -> bool:
    """Whether a quota counts these pods: a quota scoped to priority classes counts only pods of those."""
    terms = (item["spec"].get("scopeSelector") or {}).get("matchExpressions") or ()
    classes = {pods.template["spec"].get("priorityClassName", DEFAULT_CLASS) for pods in sets}
    return not item["spec"].get("scopes") and all(
        term["scopeName"] == "PriorityClass" and classes <= set(term.get("values") or ()) for term in terms
    )


# Quota of the queue


class _Mode(StrEnum):
    """From the best to the worst."""

    NOW = "now"
    CALLED_BACK = "called back"  # guaranteed quota is lent: borrowers are evicted
    OWN = "own"  # less urgent work of its own queue is evicted
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The flavor that pods would get their quota of."""

    mode: _Mode
    flavor: str
    resource: str = ""
    """The resource that is short."""
    needed: int = 0
    there: int = 0
    """The amount available now, or for `never` the maximum."""
    reason: str = ""


def _queue(
    api: Api, environment: Environment, item: Mapping[str, Any], sets: Sequence[Pods]
) -> tuple[ControlAnswer, list[Object]]:
    """The answer of the queue, and the flavors that it would assign."""
    space = item["metadata"]["namespace"]
    name = (_metadata(item).get("labels") or {}).get(QUEUE, words.DEFAULT_QUEUE)
    local = api.request("GET", f"{collection(API, 'LocalQueue', space)}/{name}")
    if not local.ok:
        text = f"There is no queue {name} in {space}."
        return ControlAnswer("queue", FitVerdict.NEVER, text, f"drop the label {QUEUE}, or name one of its queues"), []
    called = local.body["spec"]["clusterQueue"]
    queue = api.request("GET", f"{collection(API, 'ClusterQueue')}/{called}")
    if not queue.ok:
        text = f"Queue {name} uses ClusterQueue {called}, which does not exist."
        return ControlAnswer("queue", FitVerdict.NEVER, text, "ask the platform team to run `tenancy up`"), []
    for one in (local.body, queue.body):
        if not _active(one):
            change = "wait until the platform team resumes it"
            return ControlAnswer("queue", FitVerdict.WAITS, f"Queue {called} is on hold.", change), []
    tree, flavors = read_tree(api), {f["metadata"]["name"]: f for f in api.items(collection(API, "ResourceFlavor"))}
    wanted = [(pods, _counted(api, environment, item, pods)) for pods in sets]
    urgency = _urgency(environment, item, sets[0])
    work = _work_of(api, called)
    scheduler = _Scheduler(queue.body, tree[called], flavors, work, urgency)
    choices = scheduler.place(wanted)
    ahead = sum(1 for one in work if not _holds_quota(one) and (one["spec"].get("priority") or 0) >= urgency)
    used = [flavors[one.flavor] for one in choices if one.flavor in flavors and one.mode is not _Mode.NEVER]
    return _told(called, item, choices, scheduler, wanted, ahead), used


def _active(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return all(c["status"] == "True" for c in conditions if c["type"] == "Active")


def _work_of(api: Api, called: str) -> list[Object]:
    """Workloads of a ClusterQueue that have not ended."""
    leading = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["clusterQueue"]
        for one in api.items(collection(API, "LocalQueue"))
    }
    found = []
    for one in api.items(collection(API, "Workload")):
        conditions = (one.get("status") or {}).get("conditions") or ()
        ended = any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)
        queue = leading.get((one["metadata"]["namespace"], one["spec"].get("queueName", "")))
        if queue == called and not ended and one["spec"].get("active", True):
            found.append(one)
    return found


def _holds_quota(workload: Mapping[str, Any]) -> bool:
    return bool((workload.get("status") or {}).get("admission"))


def _urgency(environment: Environment, item: Mapping[str, Any], pods: Pods) -> int:
    spec, values = pods.template["spec"], priorities(environment)
    named = (_metadata(item).get("labels") or {}).get(URGENCY)
    return values.get(named or spec.get("priorityClassName") or DEFAULT_CLASS, spec.get("priority") or 0)


def _counted(api: Api, environment: Environment, item: Mapping[str, Any], pods: Pods) -> Resources:
    """The amounts that Kueue counts for one pod, by its configuration."""
    rules = configuration(environment)["resources"]
    asked = requests_of(pods.template["spec"])
    for claim in pods.template["spec"].get("resourceClaims") or ():
        path = collection("resource.k8s.io/v1", "ResourceClaimTemplate", item["metadata"]["namespace"])
        template = api.request("GET", f"{path}/{claim.get('resourceClaimTemplateName')}")
        named = {c: m["name"] for m in rules.get("deviceClassMappings", ()) for c in m["deviceClassNames"]}
        for request in template.body["spec"]["spec"]["devices"]["requests"] if template.ok else ():
            asked[named[request["exactly"]["deviceClassName"]]] += request["exactly"]["count"] * ONE
    found: Resources = Counter()
    changed = {rule["input"]: rule for rule in rules.get("transformations", ())}
    for name, amount in asked.items():
        if name.startswith(tuple(rules["excludeResourcePrefixes"])):
            continue
        rule = changed.get(name, {"strategy": "Retain", "outputs": {}})
        if rule["strategy"] == "Retain":
            found[name] += amount
        for output, factor in rule["outputs"].items():
            found[output] += amount * int(factor)
    return found


class _Scheduler:
    """Kueue's flavor assignment: every kind of pod gets one flavor of each resource group."""

    def __init__(
        self,
        queue: Mapping[str, Any],
        node: Node,
        flavors: Mapping[str, Object],
        work: Sequence[Mapping[str, Any]],
        urgency: int,
    ) -> None:
        self.queue, self.node, self.flavors = queue, node, flavors
        self.less_urgent: Counter[Place] = Counter()
        for one in work:
            if _holds_quota(one) and (one["spec"].get("priority") or 0) < urgency:
                for pods in one["status"]["admission"]["podSetAssignments"]:
                    for resource, amount in (pods.get("resourceUsage") or {}).items():
                        place = (pods["flavors"].get(resource, ""), resource)
                        self.less_urgent[place] += thousandths(amount)

    def place(self, wanted: Sequence[tuple[Pods, Resources]]) -> list[_Choice]:
        """A choice for each kind of pod and resource group; quota of one choice is not available to the next."""
        taken: list[tuple[Place, int]] = []
        found = []
        for pods, each in wanted:
            needed = {name: amount * pods.count for name, amount in each.items() if amount}
            for group in self.queue["spec"]["resourceGroups"]:
                here = {name: needed.pop(name) for name in group["coveredResources"] if name in needed}
                if not here:
                    continue
                before: Counter[Place] = Counter()
                for place, amount in taken:
                    before[place] += amount
                choices = [self._in(flavor["name"], here, pods, before) for flavor in group["flavors"]]
                best = min(choices, key=lambda choice: list(_Mode).index(choice.mode))
                found.append(best)
                for name, amount in here.items() if best.mode is not _Mode.NEVER else ():
                    self.node.use((best.flavor, name), amount)
                    taken.append(((best.flavor, name), amount))
            for name, amount in needed.items():
                found.append(_Choice(_Mode.NEVER, "", name, amount, 0, f"its queue has no {name}"))
        for place, amount in taken:
            self.node.use(place, -amount)
        return found

    def _in(self, flavor: str, needed: Mapping[str, int], pods: Pods, before: Mapping[Place, int]) -> _Choice:
        """The choice of one flavor for the pods; `before` is assigned to other pods of the same work."""
        if reason := _elsewhere(self.flavors.get(flavor), pods):
            return _Choice(_Mode.NEVER, flavor, reason=reason)
        worst = _Choice(_Mode.NOW, flavor)
        for resource, amount in needed.items():
            place = (flavor, resource)
            free, most = self.node.available(place), self.node.potential(place)
            nominal, used = self.node.nominal.get(place, 0), self.node.used[place]
            mode, there = _Mode.NOW, free
            if amount + before[place] > most:
                mode, there, amount = _Mode.NEVER, most, amount + before[place]
            elif amount > free and used + amount <= nominal:
                mode = _Mode.CALLED_BACK
            elif amount > free and used - self.less_urgent[place] + amount <= nominal:
                mode = _Mode.OWN
            elif amount > free:
                mode = _Mode.LATER
            choice = _Choice(mode, flavor, resource, amount, max(there, 0))
            order = list(_Mode)
            if order.index(choice.mode) > order.index(worst.mode):
                worst = choice
        return worst

    def borrowed(self, choices: Sequence[_Choice], wanted: Sequence[tuple[Pods, Resources]]) -> Counter[str]:
        """Amounts of devices that would be borrowed from other tenants."""
        found: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for pods, each in wanted:
            total.update({name: amount * pods.count for name, amount in each.items()})
        for choice in choices:
            for name, amount in total.items():
                place = (choice.flavor, name)
                if place in self.node.nominal and choice.flavor != ANY_POOL and name not in _SHADOWS:
                    more = self.node.used[place] + amount - self.node.nominal[place]
                    found[name] = max(found[name], min(max(more, 0), amount))
        return found


_SHADOWS = frozenset({BOARD_COMPUTE, BOARD_MEMORY})


def _elsewhere(flavor: Mapping[str, Any] | None, pods: Pods) -> str:
    """Why pods cannot use a flavor, whatever its quota; empty if they can."""
    if flavor is None:
        return "its flavor does not exist"
    labels = flavor["spec"].get("nodeLabels") or {}
    for key, value in (pods.template["spec"].get("nodeSelector") or {}).items():
        if key in labels and labels[key] != value:
            return f"its node selector names {value}"
    notes = (pods.template.get("metadata") or {}).get("annotations") or {}
    near, asks = flavor["spec"].get("topologyName"), any(key in notes for key in NEARNESS)
    if near and not asks:
        return "the pool needs a topology annotation on the pods"
    if asks and labels and not near:
        return "the pool has no topology, and the pods ask for one"
    return ""


def _pool_name(flavor: str) -> str:
    return "" if flavor in {"", ANY_POOL} else f" in pool {pool_of(flavor)}"


def _written(number: int) -> str:
    return quantities.write(Decimal(number) / ONE)


def _amount(number: int, resource: str) -> str:
    return f"{_written(number)} {resource}"


def _told(
    called: str,
    item: Mapping[str, Any],
    choices: Sequence[_Choice],
    scheduler: _Scheduler,
    wanted: Sequence[tuple[Pods, Resources]],
    ahead: int,
) -> ControlAnswer:
    order = list(_Mode)
    worst = max(choices, key=lambda choice: order.index(choice.mode), default=_Choice(_Mode.NOW, ""))
    pool = _pool_name(worst.flavor)
    waiting = f" {ahead} of the queue start{'s' * (ahead == 1)} first." if ahead else ""
    if worst.mode is not _Mode.NOW and (fewer := _fewer(item, scheduler, wanted)):
        return _partly(called, item, fewer, wanted[0][0].count)
    if worst.mode is _Mode.NOW:
        if ahead and scheduler.queue["spec"].get("queueingStrategy") == "StrictFIFO":
            text = f"Queue {called} has room, and starts work in strict order (StrictFIFO).{waiting}"
            return ControlAnswer("queue", FitVerdict.WAITS, text, "wait, or raise its priority")
        where = "".join(dict.fromkeys(_pool_name(choice.flavor) for choice in choices))
        more = [_amount(n, name) for name, n in scheduler.borrowed(choices, wanted).items() if n]
        lent = f"; {', '.join(more)} of it borrowed, which may be reclaimed" if more else ""
        return ControlAnswer("queue", FitVerdict.FITS, f"Queue {called} starts it now{where}{lent}.")
    if worst.mode is _Mode.CALLED_BACK:
        text = f"Queue {called} reclaims lent quota{pool}: it starts when the borrowers have ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for their grace period")
    if worst.mode is _Mode.OWN:
        text = f"Queue {called} evicts work of its own of lower priority{pool}: it starts when that has ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for its grace period")
    if worst.mode is _Mode.LATER:
        text = (
            f"Queue {called} has {_amount(worst.there, worst.resource)} for it now{pool}, of "
            f"{_written(worst.needed)} that it asks for."
        )
        return ControlAnswer(
            "queue", FitVerdict.WAITS, text + waiting, "wait, ask for less, or split it into smaller pieces"
        )
    if worst.reason:
        text = f"Queue {called} never starts it{pool}: {worst.reason}."
        return ControlAnswer(
            "queue", FitVerdict.NEVER, text, "ask for what the tenant has a share of, and let the queue choose"
        )
    text = (
        f"Queue {called} never starts it{pool}: it asks for {_amount(worst.needed, worst.resource)} at once, and the "
        f"maximum is {_written(worst.there)}."
    )
    return ControlAnswer("queue", FitVerdict.NEVER, text, "ask for less, or for a larger share")


def _fewer(item: Mapping[str, Any], scheduler: _Scheduler, wanted: Sequence[tuple[Pods, Resources]]) -> int:
    """Number of its pods that would start now, if they may start without the others."""
    ((pods, each), *others) = wanted
    notes = item["metadata"].get("annotations") or {}
    least = 1 if item["kind"] in BY_ITSELF else int(notes.get(LEAST_PODS, 0)) if item["kind"] == "Job" else 0
    if others or not least:
        return 0
    low, high = least - 1, pods.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        choices = scheduler.place([(replace(pods, count=middle), each)])
        low, high = (middle, high) if all(choice.mode is _Mode.NOW for choice in choices) else (low, middle - 1)
    return low if low >= least else 0


def _partly(called: str, item: Mapping[str, Any], fewer: int, count: int) -> ControlAnswer:
    if item["kind"] == "Job":
        return ControlAnswer(
            "queue", FitVerdict.FITS, f"Queue {called} starts it now with {fewer} of its {count} pods."
        )
    text = f"Queue {called} starts {fewer} of its {count} pods now; the others wait."
    return ControlAnswer("queue", FitVerdict.WAITS, text, f"write {fewer} replicas, or wait")


# Capacity of the nodes


@dataclass(slots=True)
class _Machine:
    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    whole: Resources
    free: Resources
    made: bool = True
    """False for a node that the pool could still add."""


def _machines(api: Api, environment: Environment) -> list[_Machine]:
    """Existing nodes with their free capacity, then the nodes that pools may still add."""
    used: dict[str, Resources] = {}
    for pod in api.items("/api/v1/pods"):
        spec = pod["spec"]
        if spec.get("nodeName") and (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            used.setdefault(spec["nodeName"], Counter()).update(requests_of(spec) + Counter({"pods": ONE}))
    found = []
    for node in api.items("/api/v1/nodes"):
        if node["spec"].get("unschedulable"):
            continue
        name, whole = node["metadata"]["name"], _parsed(node["status"].get("allocatable") or {})
        free = Counter(whole)
        free.subtract(used.get(name, {}))
        labels = {"kubernetes.io/hostname": name, **(node["metadata"].get("labels") or {})}
        found.append(_Machine(name, labels, node["spec"].get("taints") or (), whole, free))
    present = Counter(machine.labels.get(words.POOL) for machine in found)
    for name, pool in environment.pools.items():
        whole = _parsed(node_resources(environment, name))
        for number in range(pool.nodes.max - present[name]):
            labels, taints = node_labels(name, pool), node_taints(name, pool)
            found.append(_Machine(f"{name} (new {number})", labels, taints, whole, Counter(whole), made=False))
    return found


def _parsed(amounts: Mapping[str, Any]) -> Resources:
    return Counter({name: thousandths(amount) for name, amount in amounts.items()})


def _pool(api: Api, environment: Environment, sets: Sequence[Pods], flavors: Sequence[Object]) -> ControlAnswer:
    """Whether nodes have room for the pods, with the node selectors and tolerations of their flavors."""
    machines = _machines(api, environment)
    wanted: list[tuple[int, Resources, list[_Machine]]] = []
    for pods in sets:
        spec = _sent(pods.template["spec"], flavors)
        needed = requests_of(spec) + Counter({"pods": ONE})
        reasons = {machine.name: _unsuited(spec, machine) for machine in machines}
        able = [machine for machine in machines if not reasons[machine.name]]
        if not any(_holds(machine.whole, needed) for machine in able):
            return _nowhere(machines, reasons, needed, pods)
        wanted.append((pods.count, needed, able))
    total = sum(pods.count for pods in sets)
    lacking, grown = _packed(wanted, {machine.name: Counter(machine.free) for machine in machines})
    if lacking:
        never, _ = _packed(wanted, {machine.name: Counter(machine.whole) for machine in machines})
        if never:
            text = f"All nodes that its pods fit on have room for {total - never} of its {total} together."
            return ControlAnswer("pool", FitVerdict.NEVER, text, "ask for fewer or smaller pods")
        text = f"Nodes have room for {total - lacking} of its {total} pods now."
        return ControlAnswer(
            "pool", FitVerdict.WAITS, text, "wait until other work ends, or ask for fewer or smaller pods"
        )
    if grown:
        return ControlAnswer(
            "pool", FitVerdict.WAITS, "Its pods need new nodes.", "wait until the autoscaler has added them"
        )
    return ControlAnswer("pool", FitVerdict.FITS, "Nodes have room for all of its pods.")


def _packed(wanted: Sequence[tuple[int, Resources, list[_Machine]]], room: Mapping[str, Resources]) -> tuple[int, bool]:
    """Number of pods that do not fit, placed first-fit, and whether a new node is needed."""
    lacking, grown = 0, False
    for count, needed, able in wanted:
        left = count
        for machine in able:
            fitting = min(left, _times(room[machine.name], needed))
            if fitting > 0:
                room[machine.name].subtract({name: amount * fitting for name, amount in needed.items()})
                left -= fitting
                grown = grown or not machine.made
        lacking += left
    return lacking, grown


def _sent(spec: Mapping[str, Any], flavors: Sequence[Object]) -> Object:
    """A pod as the queue admits it: with the node selector and the tolerations of its flavors."""
    selector, tolerations = dict(spec.get("nodeSelector") or {}), list(spec.get("tolerations") or ())
    for flavor in flavors:
        selector |= flavor["spec"].get("nodeLabels") or {}
        tolerations += flavor["spec"].get("tolerations") or ()
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _holds(machine: Resources, needed: Resources) -> bool:
    return all(machine[name] >= amount for name, amount in needed.items())


def _times(machine: Resources, needed: Resources) -> int:
    return min((int(machine[name] // amount) for name, amount in needed.items() if amount), default=0)


def _unsuited(spec: Mapping[str, Any], machine: _Machine) -> str:
    """Why the scheduler would never place a pod on the node, whatever its free capacity; empty if it could."""
    if not has_labels(spec["nodeSelector"], machine.labels):
        return "are not those of its node selector or pool"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not takes_node(affinity["nodeSelectorTerms"], machine.labels, machine.name):
        return "are not those of its node affinity"
    for taint in machine.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(tolerates(t, taint) for t in spec["tolerations"]):
            return f"have the taint {taint['key']}, which it does not tolerate"
    return ""


def _nowhere(machines: Sequence[_Machine], reasons: Mapping[str, str], needed: Resources, pods: Pods) -> ControlAnswer:
    counted: Counter[str] = Counter()
    for machine in machines:
        short = [name for name, amount in needed.items() if machine.whole[name] < amount]
        counted[reasons[machine.name] or f"have less {short[0] if short else 'room'} than one pod asks for"] += 1
    why = "; ".join(f"{count} {reason}" for reason, count in counted.most_common(3)) or "there are none"
    more = ", those that are not made yet among them," if any(not machine.made for machine in machines) else ""
    text = f"No node takes a pod of it ({pods.name}), not even an empty one: of {len(machines)} nodes{more} {why}."
    asks = any(name.startswith("nvidia.com/") for name in needed) or pods.template["spec"].get("resourceClaims")
    keep_off = all(gpus.GPU_TAINT in {taint["key"] for taint in machine.taints} for machine in machines)
    if machines and keep_off and not asks:
        change = "ask for a GPU, or have the platform team add a pool without GPUs: every pool is of GPU nodes"
        return ControlAnswer("pool", FitVerdict.NEVER, text, change)
    return ControlAnswer(
        "pool", FitVerdict.NEVER, text, "ask for what one node has, and name no nodes: the queue chooses the pool"
    )
