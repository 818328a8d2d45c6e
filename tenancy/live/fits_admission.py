"""Whether the API server would admit work and its pods: dry runs, and the ResourceQuotas for all pods together."""

from __future__ import annotations

import copy
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tenancy.catalog.controllers import QUEUE, RUN_TIME, URGENCY
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.pods import ONE, Pods, limits_of, queued_metadata, requests_of, written
from tenancy.kube.quantities import thousandths
from tenancy.kube.requests import Impersonation, collection
from tenancy.kube.selectors import counts_classes
from tenancy.live import denial
from tenancy.live.api import CONFLICT, NOT_FOUND, Api, ApiUnreachable, Response
from tenancy.live.fits_answers import ControlAnswer, FitVerdict
from tenancy.planning.common.priorities import DEFAULT_CLASS

ASKED = ("RBAC", "guard", "Pod Security", "LimitRange")
"""Controls that one dry run passes through."""
_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$")
_FORBIDDEN = re.compile(r"^.*? is forbidden: ")


def admitted(plane: str, item: Mapping[str, Any], asked_as: str, refused: bool) -> ControlAnswer:
    """The answer of a control that a dry run passed, or that it did not reach because another one refused."""
    if refused and plane != "RBAC":
        return ControlAnswer(plane, FitVerdict.UNKNOWN, "Not reached: another control refuses first.")
    sentences = {
        "RBAC": f"{asked_as} may create {item['kind']}s in {item['metadata']['namespace']}.",
        "guard": "It breaks no rule, and neither do its pods.",
        "Pod Security": "Its pods comply with the namespace's level.",
        "LimitRange": "Its containers are within the namespace's bounds.",
    }
    return ControlAnswer(plane, FitVerdict.FITS, sentences[plane])


def pod_from(item: Mapping[str, Any], pods: Pods) -> Object:
    """A pod of a template, as its controller would create it, with the work's labels for the queue."""
    template = copy.deepcopy(pods.template)
    metadata = template.get("metadata") or {}
    asked = {key: value for key, value in (queued_metadata(item).get("labels") or {}).items() if key in _QUEUE_LABELS}
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
    if denial.denier(answer.status, answer.message) == deniers.RBAC and _NOT_FOR_OTHERS in answer.message:
        change = "change: run it with the platform's rights"
        raise ApiUnreachable(f"given {answer.message}; rule: this asks as the tenant's developers; {change}")
    return answer


_NOT_FOR_OTHERS = "cannot impersonate resource"


def admission_answers(
    api: Api, item: Object, who: Impersonation, asked_as: str, what: str
) -> tuple[list[ControlAnswer], Response]:
    """The refusal of a dry run, if there is one, and the answer."""
    answer = _ask(api, item, who)
    return ([] if answer.ok else [_refusal(answer, item, asked_as, what)]), answer


def _refusal(answer: Response, item: Mapping[str, Any], asked_as: str, what: str) -> ControlAnswer:
    found = denial.denier(answer.status, answer.message)
    space, message = item["metadata"]["namespace"], _FORBIDDEN.sub("", answer.message)
    if found.startswith(deniers.ADMISSION_POLICY):
        policy, _, rule = found.removeprefix(deniers.ADMISSION_POLICY).partition(":")
        text = message.partition("denied request: ")[2] or message
        title, _, change = text.partition(" To change: ")
        return ControlAnswer("guard", FitVerdict.NEVER, f"{policy} refuses its {what}: {title}", change or rule, found)
    if found.startswith(deniers.QUOTA):
        return _exceeded(message, found, what)
    if found == deniers.RBAC:
        change = "ask as a group with a role there (--as), or write one under the people of the tenant's file"
        return ControlAnswer(
            "RBAC", FitVerdict.NEVER, f"{asked_as} may not create {item['kind']}s in {space}.", change, found
        )
    if found == deniers.POD_SECURITY:
        change = "write the security context that `tenancy sample` prints"
        return ControlAnswer("Pod Security", FitVerdict.NEVER, f"Its {what} {message}.", change, found)
    if found == deniers.LIMIT_RANGE:
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
        f"{written(asked[key])} {key} at once, of which quota {name} has {written(hard[key])} in all "
        f"and {written(left)} left."
    )
    if never:
        return ControlAnswer("quota", FitVerdict.NEVER, text, "ask for less, or for a larger quota", denier)
    return ControlAnswer("quota", FitVerdict.WAITS, text, "delete finished work, or ask for less", denier)


def quota_answer(api: Api, space: str, sets: Sequence[Pods]) -> ControlAnswer:
    """Whether the quota has room for all the pods together; a dry run counts one only."""
    asked: Counter[str] = Counter()
    for pods in sets:
        each: Counter[str] = Counter({"pods": ONE})
        for side, amounts in (("requests", requests_of), ("limits", limits_of)):
            each.update({f"{side}.{name}": amount for name, amount in amounts(pods.template["spec"]).items()})
        asked.update({key: amount * pods.count for key, amount in each.items()})
    classes = {pods.template["spec"].get("priorityClassName", DEFAULT_CLASS) for pods in sets}
    for item in api.items(collection("v1", "ResourceQuota", space)):
        if not counts_classes(item["spec"], classes):
            continue
        hard, used = (
            {key: thousandths(amount) for key, amount in ((item.get("status") or {}).get(of) or {}).items()}
            for of in ("hard", "used")
        )
        if over := {key: asked[key] for key in hard if asked[key] + used.get(key, 0) > hard[key]}:
            name = item["metadata"]["name"]
            return _over(name, over, Counter(used), hard, deniers.quota(name))
    return ControlAnswer("quota", FitVerdict.FITS, "The quota has room for all of its pods.")
